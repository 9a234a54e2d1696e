//! The whole of timmy but for its process: real models' wires, tools and files.

use std::path::PathBuf;
use std::time::Instant;

use super::*;
use crate::config::no_model::CalledAs;
use crate::config::read::Places;
use crate::local_env::LocalEnv;
use crate::mock_model::MockModel;
use crate::session::store::Store;
use sessions::Process;

/// A configuration whose providers are mocks, a state directory and a workspace.
pub(super) struct Whole {
    pub(super) dir: tempfile::TempDir,
    pub(super) mock: MockModel,
}

impl Whole {
    pub(super) fn new(models: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mock = MockModel::start();
        let providers: String = ["a", "b", "c"]
            .map(|name| format!("[providers.{name}]\nbase_url = \"{}\"\n", mock.url))
            .concat();
        std::fs::create_dir_all(dir.path().join("config/timmy")).unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        std::fs::write(dir.path().join("config/timmy/SOUL.md"), "abc").unwrap();
        // Nobody listens on the port of a listener that is gone.
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let gone = gone.local_addr().unwrap();
        let config = format!(
            "[models]\n{models}\n{providers}[providers.gone]\nbase_url = \"http://{gone}/v1\"\n"
        );
        std::fs::write(dir.path().join("config/config.toml"), config).unwrap();
        Self { dir, mock }
    }

    pub(super) fn work(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    fn process(&self) -> Process {
        let env = LocalEnv::with(
            Places {
                config: self.dir.path().join("config/config.toml"),
                state: self.dir.path().join("state"),
            },
            CalledAs::Timmy,
        );
        let (out, said) = mpsc::channel(1_000);
        let agent = Agent {
            env: Arc::new(env),
            store: Arc::new(Store::new(self.dir.path().join("state/timmy"))),
        };
        Process {
            service: Service::new(ModelSelection::default(), agent, out),
            said,
        }
    }

    pub(super) fn send(&self, text: &str, native: Option<&Value>) -> Value {
        let mut line = json!({"type": "send", "id": "t1", "text": text, "session": "s",
            "cwd": self.dir.path().join("work"), "on_question": "wait"});
        if let Some(native) = native {
            line["native"] = native.clone();
        }
        line
    }
}

fn classes(last: &Value) -> Vec<String> {
    let calls = last["api_calls"].as_array().unwrap().iter();
    calls
        .map(|call| format!("{} {}", call["provider"].as_str().unwrap(), call["class"]))
        .collect()
}

#[tokio::test]
async fn model_remembers_in_the_next_process() {
    let whole = Whole::new("default = \"a/m\"");
    let mut first = whole.process();
    first.say(whole.send("hello", None)).await;
    let lines = first.until("message_end").await;
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["text"], &last["provider"]),
        (&json!("echo: hello"), &json!("a"))
    );
    assert!(
        last["usage"]["input_tokens"].as_u64().unwrap() > 0,
        "{last}"
    );
    let soul = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(last["soul_sha256"], soul);
    let system = whole.mock.asked()[0].body.to_string();
    assert!(system.contains("# Who you are\\n\\nabc"), "{system}");
    let mut second = whole.process();
    second
        .say(whole.send("[[recall]]", Some(&lines[0]["native"])))
        .await;
    let lines = second.until("message_end").await;
    assert_eq!(lines.last().unwrap()["text"], "earlier: hello");
}

#[tokio::test]
async fn chain_is_answered_by_the_third_after_failures() {
    let whole = Whole::new("default = \"gone/m\"\nfallbacks = [\"b/two\", \"c/three\"]");
    let mut process = whole.process();
    process
        .say(whole.send("hi [[on=two]] [[fail=auth]]", None))
        .await;
    let lines = process.until("message_end").await;
    let expected = ["gone \"not_configured\"", "b \"auth\"", "c null"];
    assert_eq!(classes(lines.last().unwrap()), expected);
    let notes = lines.iter().filter(|line| line["code"] == "fallback");
    assert_eq!(notes.count(), 2, "{lines:#?}");
}

#[tokio::test]
async fn rate_limit_is_not_waited_for_beside_others() {
    let whole = Whole::new("default = \"a/one\"\nfallbacks = [\"b/two\"]");
    let mut process = whole.process();
    let began = Instant::now();
    process
        .say(whole.send("hi [[on=one]] [[fail=ratelimit]] [[wait=60]]", None))
        .await;
    let lines = process.until("message_end").await;
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    let last = lines.last().unwrap();
    assert_eq!(classes(last), ["a \"rate_limit\"", "b null"]);
    assert_eq!(last["api_calls"][0]["retry_after"], 60.0);
    // Another process leaves it alone, too.
    let mut other = whole.process();
    other.say(whole.send("hi", None)).await;
    let lines = other.until("message_end").await;
    assert_eq!(classes(lines.last().unwrap()), ["b null"]);
}

#[tokio::test]
async fn a_pinned_model_is_never_left() {
    let whole = Whole::new("default = \"a/one\"\nfallbacks = [\"b/two\"]");
    let mut process = whole.process();
    let mut line = whole.send("hi [[fail=auth]]", None);
    line["model"] = json!("a/one");
    process.say(line).await;
    let lines = process.until_final().await;
    let last = lines.last().unwrap();
    assert_eq!(last["code"], "agent-auth", "{last}");
    assert_eq!(classes(last), ["a \"auth\""]);
}

#[tokio::test]
async fn model_writes_a_file_with_a_real_tool() {
    let whole = Whole::new("default = \"a/m\"");
    let mut process = whole.process();
    let text = r#"[[use write {"path":"new.txt","content":"made"}]]"#;
    process.say(whole.send(text, None)).await;
    let lines = process.until("message_end").await;
    let end = lines
        .iter()
        .find(|line| line["type"] == "tool_end")
        .unwrap();
    assert_eq!(end["ok"], true, "{end}");
    let made = std::fs::read_to_string(whole.work("new.txt")).unwrap();
    assert_eq!(made, "made");
    let last = lines.last().unwrap();
    assert!(
        last["text"].as_str().unwrap().starts_with("tool said:"),
        "{last}"
    );
    assert_eq!(classes(last), ["a null", "a null"]);
}

#[tokio::test]
async fn settings_changed_in_a_turn_count_from_another() {
    let whole = Whole::new("default = \"a/m\"");
    let mut process = whole.process();
    let call = r#"[[use bash {"command":"true","outside":true,"reason":"a test"}]]"#;
    process.say(whole.send(call, None)).await;
    let asked = process.until("question").await;
    // Nothing fits into that.
    let file = whole.dir.path().join("config/config.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let smaller = config.replace("[providers.a]\n", "[providers.a]\ncontext_window = 10\n");
    std::fs::write(&file, smaller).unwrap();
    let question = &asked.last().unwrap()["question_id"];
    let answer = json!({"type": "answer", "id": "a1", "question_id": question, "approve": false});
    process.say(answer).await;
    let lines = process.until("message_end").await;
    assert_eq!(classes(lines.last().unwrap()), ["a null", "a null"]);
    let shortened = lines.iter().any(|line| line["code"] == "compaction");
    assert!(!shortened, "{lines:#?}");
    // The next one does heed it.
    let native = asked.iter().find(|line| line["type"] == "session").unwrap();
    process.say(whole.send("hi", Some(&native["native"]))).await;
    let lines = process.until_final().await;
    let shortened = lines.iter().any(|line| line["code"] == "compaction");
    assert!(shortened, "{lines:#?}");
}
