//! Sends with a scripted model: sessions that go on, questions, words, and what goes wrong.

use std::path::{Path, PathBuf};

use super::*;
use agentd_protocol::models::ModelRow;

use crate::config::OnRefusal;
use crate::config::offered::Offered;
use crate::failover::Class;
use crate::message::{Assistant, CallArguments, Message, ToolCall};
use crate::model::{Boxed, Failure, ModelClient};
use crate::provider::Target;
use crate::send::{AgentEnv, Equipped, Planned, Refused, SendRequest};
use crate::session::history::UNKNOWN;
use crate::session::rows::Which;
use crate::turn::tests::script::{Models, Scripted, Step, shown, target, tools};
use crate::turn::{Plan, REQUESTS, TurnEnv};

/// An environment whose model is `a/m`, without a machine.
pub(super) struct Family {
    env: Scripted,
    own: PathBuf,
}

impl TurnEnv for Family {
    fn client(&self) -> &dyn ModelClient {
        self.env.client()
    }

    fn classify(&self, target: &Target, failure: &Failure) -> Class {
        self.env.classify(target, failure)
    }

    fn wall_ms(&self) -> u64 {
        self.env.wall_ms()
    }

    fn chance(&self) -> f64 {
        self.env.chance()
    }
}

impl AgentEnv for Family {
    fn plan<'a>(&'a self, selection: &'a ModelSelection) -> Boxed<'a, Result<Planned, Refused>> {
        Box::pin(async {
            if selection.provider.as_deref() != Some("a") {
                return Err(Rejected::new(Code::NoModel, "no model").into());
            }
            let plan = Plan {
                chain: vec![target("a/m")],
                on_refusal: OnRefusal::Stop,
                thinking: None,
                requests: REQUESTS,
                deadline: selection.timeout,
            };
            Ok(Planned { plan, note: None })
        })
    }

    fn models<'a>(&'a self, selection: &'a ModelSelection) -> Boxed<'a, Result<Offered, Rejected>> {
        Box::pin(async {
            match selection.provider.as_deref() {
                // As a provider whose list doesn't come.
                Some("late") => std::future::pending().await,
                Some("nobody") => Err(Rejected::new(Code::InvalidRequest, "no such provider")),
                _ => Ok(Offered {
                    rows: vec![ModelRow {
                        default: true,
                        ..ModelRow::named("m")
                    }],
                    notes: vec!["one".to_owned(), "two".to_owned()],
                }),
            }
        })
    }

    fn tools<'a>(&'a self, sent: &'a SendRequest) -> Boxed<'a, Result<Equipped, Rejected>> {
        Box::pin(async move {
            let tools = match sent.toolsets.as_deref() {
                Some([one]) if one == "none" => Vec::new(),
                Some([one]) if one == "files" => {
                    crate::tool::file::tools(&Arc::new(crate::tool::tests::rules()))
                }
                // As a server of tools that doesn't come up.
                Some([one]) if one == "late" => std::future::pending().await,
                Some(_) => return Err(Rejected::new(Code::InvalidRequest, "no such toolset")),
                None => tools().0,
            };
            Ok(Equipped {
                tools,
                writable: Vec::new(),
                notes: Vec::new(),
            })
        })
    }

    fn leave(&self) -> Boxed<'_, ()> {
        Box::pin(async {})
    }

    fn own(&self) -> &Path {
        &self.own
    }

    fn confinement(&self) -> String {
        "Nothing is confined.".to_owned()
    }
}

/// A state directory and a model, for one process after the other.
pub(super) struct Home {
    dir: tempfile::TempDir,
    pub(super) models: Arc<Models>,
}

impl Home {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("own")).unwrap();
        std::fs::write(dir.path().join("own/SOUL.md"), "abc").unwrap();
        Self {
            dir,
            models: Arc::default(),
        }
    }

    /// What a process has.
    pub(super) fn agent(&self) -> Agent {
        let env = Scripted {
            models: Arc::clone(&self.models),
            began: tokio::time::Instant::now(),
        };
        Agent {
            env: Arc::new(Family {
                env,
                own: self.dir.path().join("own"),
            }),
            store: Arc::new(Store::new(self.dir.path().join("timmy"))),
        }
    }

    /// Where sessions are kept.
    pub(super) fn state(&self) -> PathBuf {
        self.dir.path().join("timmy")
    }

    pub(super) fn process(&self) -> Process {
        let (out, said) = mpsc::channel(1_000);
        Process {
            service: Service::new(ModelSelection::default(), self.agent(), out),
            said,
        }
    }
}

pub(super) struct Process {
    pub(super) service: Service,
    pub(super) said: mpsc::Receiver<OutgoingLine>,
}

impl Process {
    pub(super) async fn say(&mut self, line: Value) {
        self.service.serve(line.to_string().as_bytes()).await;
    }

    async fn next(&mut self) -> Value {
        let next = tokio::time::timeout(Duration::from_secs(20), self.said.recv()).await;
        let line = next.expect("a line within 20 s").expect("a line");
        serde_json::from_str(&line.render()).unwrap()
    }

    /// Lines up to the end of a turn.
    pub(super) async fn until_final(&mut self) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            let line = self.next().await;
            let found = line["type"] == "message_end" || line["type"] == "error";
            lines.push(line);
            if found {
                return lines;
            }
        }
    }

    /// Lines up to the first of this type.
    pub(super) async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            let line = self.next().await;
            let found = line["type"] == kind;
            let failed = line["type"] == "error" && line["code"] != "session-idle";
            assert!(found || !failed, "{line} before `{kind}`");
            lines.push(line);
            if found {
                return lines;
            }
        }
    }
}

fn send(id: &str, text: &str, native: Option<&str>) -> Value {
    let mut line = json!({"type": "send", "id": id, "text": text, "session": "s", "provider": "a",
        "on_question": "wait", "cwd": "/tmp"});
    if let Some(native) = native {
        line["native"] = json!(native);
    }
    line
}

#[tokio::test]
async fn session_goes_on_in_another_process_by_name() {
    let home = Home::new();
    home.models
        .script("a", [Step::Says("one"), Step::Says("two")]);
    let mut first = home.process();
    first.say(send("t1", "hi", None)).await;
    let lines = first.until("message_end").await;
    assert_eq!(
        (&lines[0]["type"], &lines[0]["id"]),
        (&json!("session"), &json!("t1"))
    );
    let native = lines[0]["native"].as_str().unwrap().to_owned();
    let soul = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(lines.last().unwrap()["soul_sha256"], soul);
    // A soul that is another one meanwhile doesn't change a session.
    std::fs::write(home.dir.path().join("own/SOUL.md"), "other").unwrap();
    let mut second = home.process();
    let mut line = send("t1", "and", Some(&native));
    line["include"] = json!(["messages"]);
    second.say(line).await;
    let lines = second.until("message_end").await;
    assert_eq!(lines[0]["type"], "message_start", "it is announced once");
    let last = lines.last().unwrap();
    assert_eq!(last["soul_sha256"], soul);
    assert_eq!(last["messages"].as_array().unwrap().len(), 2);
    assert_eq!(last["messages"][0], json!({"role": "user", "text": "and"}));
    let told = shown(&home.models.asked()[1].messages);
    assert_eq!(told, ["user hi", "said one", "user and"]);
}

#[tokio::test]
async fn session_unused_for_long_is_gone() {
    let home = Home::new();
    home.models.script("a", (0..3).map(|_| Step::Says("x")));
    let mut first = home.process();
    first.say(send("t1", "hi", None)).await;
    let native = first.until("message_end").await[0]["native"].clone();
    let conn = rusqlite::Connection::open(home.dir.path().join("timmy/timmy.db")).unwrap();
    conn.execute("UPDATE sessions SET used_at = 1", []).unwrap();
    let mut second = home.process();
    second.say(send("t1", "hi", None)).await;
    second.until("message_end").await;
    while let Some(ended) = second.service.running.join_next().await {
        second.service.forget(ended);
    }
    second.say(send("t2", "hi", native.as_str())).await;
    let lines = second.until_final().await;
    assert_eq!(lines.last().unwrap()["code"], "context-lost");
}

#[tokio::test]
async fn session_gone_is_told_without_asking_a_model() {
    let home = Home::new();
    let mut process = home.process();
    process.say(send("t1", "hi", Some("0123"))).await;
    let lines = process.until("error").await;
    assert_eq!(lines[0]["code"], "context-lost");
    assert_eq!(
        (&lines[1]["code"], &lines[1]["id"]),
        (&json!("context-lost"), &json!("t1"))
    );
    assert!(home.models.asked().is_empty());
}

#[tokio::test]
async fn call_that_died_is_answered_and_not_rerun() {
    let home = Home::new();
    home.models.script("a", [Step::Says("well")]);
    let native = {
        let store = home.agent().store;
        let basis = crate::session::Basis::default();
        let words = Message::user("hi");
        let mut session = store.create(None, basis, vec![words]).await.unwrap();
        let call = ToolCall {
            id: "c1".to_owned(),
            name: "write".to_owned(),
            arguments: CallArguments::Object(serde_json::Map::new()),
            signatures: Vec::new(),
        };
        let said = Assistant {
            calls: vec![call],
            ..Assistant::default()
        };
        session
            .append(vec![Message::Assistant(said)])
            .await
            .unwrap();
        session.native().unwrap().to_owned()
    };
    let mut process = home.process();
    process.say(send("t1", "go on", Some(&native))).await;
    process.until("message_end").await;
    let told = shown(&home.models.asked()[0].messages);
    let lost = format!("failed {UNKNOWN}");
    assert_eq!(told, ["user hi", "calls write", &lost, "user go on"]);
    let kept = home.agent().store.open(Which::Native(native)).await;
    let kept = shown(kept.unwrap().unwrap().history().messages());
    assert_eq!(kept[2], lost, "it is kept, too");
}

#[tokio::test]
async fn session_is_busy_for_all_processes() {
    let home = Home::new();
    home.models
        .script("a", [Step::Says("one"), Step::Hangs("x")]);
    let (mut one, mut other) = (home.process(), home.process());
    one.say(send("t1", "hi", None)).await;
    let native = one.until("message_end").await[0]["native"].clone();
    let native = native.as_str().unwrap();
    one.say(send("t2", "hi", Some(native))).await;
    one.until("message_delta").await;
    for process in [&mut one, &mut other] {
        process.say(send("t3", "hi", Some(native))).await;
        let refused = process.next().await;
        assert_eq!(
            (&refused["id"], &refused["code"], &refused["retryable"]),
            (&json!("t3"), &json!("session-busy"), &json!(true))
        );
    }
    one.say(json!({"type": "abort", "id": "t2"})).await;
    one.until("message_end").await;
}

#[tokio::test]
async fn question_is_asked_and_answered_once() {
    let home = Home::new();
    let ask = || Step::Calls(vec![("ask", "{}")]);
    let says = || Step::Says("one");
    home.models
        .script("a", [ask(), says(), ask(), says(), ask(), says()]);
    let mut process = home.process();
    let expired = "denied: nobody answered in time, so the user has neither allowed nor refused it";
    for (approve, by, output) in [
        (true, None, "granted"),
        (false, None, "denied: the user said no"),
        (false, Some("expiry"), expired),
    ] {
        process.say(send("t1", "hi", None)).await;
        let asked = process.until("question").await.pop().unwrap();
        assert_eq!(
            (&asked["kind"], &asked["id"]),
            (&json!("approval"), &json!("t1"))
        );
        let question = &asked["question_id"];
        let mut answer =
            json!({"type": "answer", "id": "q1", "question_id": question, "approve": approve});
        if let Some(by) = by {
            answer["by"] = json!(by);
        }
        process.say(answer.clone()).await;
        let lines = process.until("message_end").await;
        let end = lines
            .iter()
            .find(|line| line["type"] == "tool_end")
            .unwrap();
        assert_eq!(
            (&end["ok"], &end["output"]),
            (&json!(approve), &json!(output))
        );
        process.say(answer).await;
        assert_eq!(process.next().await["code"], "unknown-question");
    }
}

#[tokio::test]
async fn where_questions_are_denied_nobody_is_asked() {
    let home = Home::new();
    home.models
        .script("a", [Step::Calls(vec![("ask", "{}")]), Step::Says("one")]);
    let mut process = home.process();
    let mut line = send("t1", "hi", None);
    line["on_question"] = json!("deny");
    process.say(line).await;
    let lines = process.until("message_end").await;
    assert!(lines.iter().all(|line| line["type"] != "question"));
    let end = lines
        .iter()
        .find(|line| line["type"] == "tool_end")
        .unwrap();
    assert!(end["output"].as_str().unwrap().contains("nobody is there"));
}

#[tokio::test]
async fn steering_reaches_its_turn_or_is_refused_idle() {
    let home = Home::new();
    home.models
        .script("a", [Step::Calls(vec![("ask", "{}")]), Step::Says("done")]);
    let mut process = home.process();
    let steer =
        |session: &str| json!({"type": "steer", "id": "s1", "session": session, "text": "left"});
    process.say(steer("s")).await;
    assert_eq!(process.next().await["code"], "session-idle");
    process.say(send("t1", "hi", None)).await;
    let asked = process.until("question").await.pop().unwrap();
    process.say(steer("other")).await;
    assert_eq!(process.next().await["code"], "session-idle");
    process.say(steer("s")).await;
    let cancel =
        json!({"type": "answer", "id": "q1", "question_id": asked["question_id"], "cancel": true});
    process.say(cancel).await;
    let lines = process.until("message_end").await;
    let taken = lines.iter().find(|line| line["type"] == "steer").unwrap();
    assert_eq!((&taken["id"], &taken["ok"]), (&json!("s1"), &json!(true)));
    let told = shown(&home.models.asked()[1].messages);
    assert_eq!(told.last().unwrap(), "user left");
}

#[tokio::test]
async fn compaction_is_between_turns_of_sessions_here() {
    let home = Home::new();
    let mut process = home.process();
    let compact =
        json!({"type": "compact", "id": "compact", "session": "s", "instructions": "names"});
    process.say(compact.clone()).await;
    assert_eq!(process.next().await["code"], "session-idle");
    home.models.script(
        "a",
        [
            Step::Says("one"),
            Step::Says("two"),
            Step::Says("short"),
            Step::Says("three"),
        ],
    );
    process.say(send("t1", "forgotten", None)).await;
    let native = process.until("message_end").await[0]["native"].clone();
    let native = native.as_str().unwrap();
    process.say(send("t2", "more", Some(native))).await;
    process.until("message_end").await;
    process.say(compact).await;
    let compacted = process.next().await;
    assert_eq!(
        compacted,
        json!({"type": "compact", "id": "compact", "ok": true, "session": "s", "summary": "short"})
    );
    process.say(send("t3", "last", Some(native))).await;
    process.until("message_end").await;
    let told = shown(&home.models.asked()[3].messages);
    assert!(
        told[0].contains("short") && !told.concat().contains("forgotten"),
        "{told:?}"
    );
}

#[tokio::test]
async fn bug_in_a_tool_ends_its_turn_only() {
    let home = Home::new();
    home.models.script(
        "a",
        [Step::Calls(vec![("panic", "{}")]), Step::Says("still here")],
    );
    let mut process = home.process();
    process.say(send("t1", "hi", None)).await;
    let lines = process.until("error").await;
    assert_eq!(lines.last().unwrap()["code"], "internal");
    process.say(send("t2", "hi", None)).await;
    let lines = process.until("message_end").await;
    assert_eq!(lines.last().unwrap()["text"], "still here");
}

#[tokio::test]
async fn request_that_is_unplayable_makes_no_session() {
    let home = Home::new();
    let mut process = home.process();
    let mut line = send("t1", "hi", None);
    line["toolsets"] = json!(["nonsense"]);
    process.say(line).await;
    let refused = process.next().await;
    assert_eq!(
        (&refused["type"], &refused["code"]),
        (&json!("error"), &json!("invalid-request"))
    );
    assert!(!home.dir.path().join("timmy/timmy.db").exists());
    let mut line = send("t1", "hi", None);
    line["native"] = json!(7);
    process.say(line).await;
    assert_eq!(process.next().await["code"], "invalid-request");
}

#[tokio::test]
async fn sixty_four_sessions_talk_at_the_same_time() {
    let home = Home::new();
    home.models
        .script("a", (0..64).map(|_| Step::Says("a b c")));
    let mut process = home.process();
    for n in 0..64 {
        let mut line = send(&format!("t{n}"), "hi", None);
        line["session"] = json!(format!("s{n}"));
        process.say(line).await;
    }
    let mut ended = 0;
    while ended < 64 {
        let line = process.next().await;
        assert_ne!(line["type"], "error", "{line}");
        if line["type"] == "message_end" {
            assert_eq!(line["text"], "a b c");
            ended += 1;
        }
    }
}

#[tokio::test]
async fn steering_a_turn_that_never_begins_is_refused() {
    let home = Home::new();
    let mut process = home.process();
    let mut late = send("t1", "hi", None);
    late["toolsets"] = json!(["late"]);
    process.say(late.clone()).await;
    let steer = json!({"type": "steer", "id": "s1", "session": "s", "text": "left"});
    process.say(steer.clone()).await;
    process.say(json!({"type": "abort", "id": "t1"})).await;
    let lines = process.until("message_end").await;
    assert_eq!(lines.last().unwrap()["stop"], "cancelled");
    // Its answer comes before the final line, and once.
    let refused: Vec<&Value> = lines.iter().filter(|line| line["id"] == "s1").collect();
    assert_eq!(refused.len(), 1, "{lines:#?}");
    assert_eq!(refused[0]["code"], "session-idle");
    process.say(steer).await;
    assert_eq!(process.next().await["code"], "session-idle");

    let mut wrong = send("t2", "hi", None);
    wrong["toolsets"] = json!(["wrong"]);
    process.say(wrong).await;
    process
        .say(json!({"type": "steer", "id": "s2", "session": "s", "text": "left"}))
        .await;
    let (one, other) = (process.next().await, process.next().await);
    assert_eq!(
        (&one["id"], &one["code"]),
        (&json!("s2"), &json!("session-idle"))
    );
    assert_eq!(other["id"], "t2");
}

#[tokio::test(start_paused = true)]
async fn timeout_of_a_turn_includes_its_tools_start() {
    let home = Home::new();
    let mut process = home.process();
    let mut late = send("t1", "hi", None);
    late["toolsets"] = json!(["late"]);
    late["timeout"] = json!(7);
    let began = tokio::time::Instant::now();
    process.say(late).await;
    let last = process.until_final().await.pop().unwrap();
    assert_eq!(last["code"], "timeout", "{last}");
    assert_eq!(began.elapsed().as_secs(), 7);
}
