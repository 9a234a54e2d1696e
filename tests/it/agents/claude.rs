//! Claude Code.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Asks, Can, Driven, Scene, Turns, text};
use crate::mock_model::MockModel;
use crate::support::{Client, DEADLINE, Place, skipped};

const VERSION: &str = "2.1.329";

/// The program, if it is installed; a missing one is said loudly.
pub fn program() -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/claude");
    let dir = std::env::var_os("AGENTD_TEST_CLAUDE_DIR").map_or_else(default, PathBuf::from);
    let program = dir.join(format!("claude-{VERSION}/bin/claude"));
    if program.is_file() {
        return Some(program);
    }
    let dir = dir.display();
    skipped(&format!(
        "Claude Code {VERSION} in {dir} (packaging/ci/install-claude.sh)"
    ));
    None
}

fn installed() -> Vec<Driven> {
    let Some(program) = program() else {
        return Vec::new();
    };
    vec![Driven {
        label: format!("Claude Code {VERSION}"),
        program,
        configure,
        can: Can {
            turns: Turns::InOneProcess,
            tool: Some("Bash"),
            asks: Asks::Always,
            denied: "The user did not allow this",
            errors: &[
                (401, "agent-auth"),
                (429, "rate-limit"),
                (500, "agent-failed"),
            ],
            overflow: Some("context-overflow"),
            keeps_young: true,
            told: &[],
            stops: &[
                ("[[full]] [[always]]", "max_tokens"),
                ("[[refuse=finish]] [[always]]", "refusal"),
            ],
            attached: &["pixel.png", "letter.pdf", "notes.txt"],
            hears_of_tools: "tides_low_water",
            models: [(None, "mock-1"), (None, "mock-2")],
            switches: true,
            mode: Some(("plan", "lan mode is active")),
            beside: None,
            tries_again: &[],
            refusal_lasts: None,
            patience: DEADLINE,
        },
    }]
}

fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
    let dir = place.path("claude");
    std::fs::create_dir(&dir).unwrap();
    // It runs commands that only read without a question.
    let settings = json!({"permissions": {"ask": ["Bash"]}});
    std::fs::write(dir.join("settings.json"), settings.to_string()).unwrap();
    std::fs::create_dir(dir.join("commands")).unwrap();
    let command = "---\ndescription: Greets\nargument-hint: whom\n---\ngreetings to $ARGUMENTS";
    std::fs::write(dir.join("commands/greet.md"), command).unwrap();
    let (program, base) = (&driven.program, &model.base);
    format!(
        "[agents.it]\nkind = \"claude\"\ncommand = [{program:?}]\nmodel = \"mock-1\"\nenv = {{ \
         ANTHROPIC_BASE_URL = {base:?}, ANTHROPIC_API_KEY = \"none\", CLAUDE_CONFIG_DIR = {dir:?}, \
         HOME = {dir:?}, CLAUDE_CODE_MAX_RETRIES = \"0\", DISABLE_TELEMETRY = \"1\", \
         DISABLE_ERROR_REPORTING = \"1\" }}\n"
    )
}

suite!();

#[test]
fn chats_in_hermes_interface() {
    installed().iter().for_each(crate::gateway_tui::chats);
}

/// Sends to the session `main`, with somebody there who answers.
fn begin(scene: &Scene, prompt: &str) -> Client {
    let mut client = scene.daemon.connect();
    let line =
        json!({"type": "send", "id": 1, "text": prompt, "session": "main", "on_question": "wait"});
    client.send(&line.to_string());
    client
}

fn answer(scene: &Scene, question: &Value, answer: (&str, Value)) {
    let mut line = json!({"type": "answer", "question_id": question["question_id"]});
    line[answer.0] = answer.1;
    let told = scene.daemon.ask(&line.to_string()).remove(0);
    assert_eq!(told["ok"], true, "{told:#}");
}

#[test]
fn slash_commands_are_listed_and_run() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        let listed = scene.daemon.ask(r#"{"type":"commands"}"#).remove(0);
        let rows = listed["commands"].as_array().expect("a list");
        let ours = rows.iter().find(|row| row["name"] == "greet");
        let ours = ours.unwrap_or_else(|| panic!("{listed:#}"));
        assert_eq!(ours["hint"], "whom", "{ours:#}");
        let last = scene.ask("/greet everybody");
        let said = text(&driven, &last);
        assert!(said.contains("greetings to everybody"), "{last:#}");
    }
}

#[test]
fn it_thinks_and_says_what_that_cost() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        let lines = begin(&scene, "hello [[think]]").until("message_end");
        let thought: String = lines
            .iter()
            .filter(|line| line["type"] == "thinking_delta")
            .filter_map(|line| line["text"].as_str())
            .collect();
        assert_eq!(thought, "let me see");
        let last = lines.last().unwrap();
        // The twelve that Claude counts, and the seven that were cached.
        let usage = json!({"input_tokens": 19, "output_tokens": 3, "cache_read_tokens": 5, "cache_write_tokens": 2, "reasoning_tokens": 0});
        assert_eq!(last["usage"], usage);
        assert_eq!(last["context_tokens"], 22);
        let listed = scene.daemon.ask(r#"{"type":"session.list"}"#);
        assert_eq!(listed[0]["sessions"][0]["context_tokens"], 22);
        assert_eq!(last["cost"]["status"], "estimated", "{last:#}");
        let first = last["cost"]["usd"].as_f64().unwrap();
        // What it says is the sum since it started; a turn's own part is told.
        let next = scene.ask("again");
        let second = next["cost"]["usd"].as_f64().unwrap();
        assert!(first > 0.0 && (first - second).abs() < 1e-9, "{next:#}");
        assert_eq!(last["model"], "mock-1");
        assert_eq!(last["api_calls"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn an_approval_says_what_is_about_to_run() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        let mut client = begin(&scene, "[[bash=touch made]]");
        let question = client.until("question").pop().unwrap();
        assert_eq!(question["title"], "Bash: touch made");
        let detail = question["detail"].as_str().unwrap();
        assert!(detail.contains("\"command\": \"touch made\""), "{detail}");
        answer(&scene, &question, ("approve", json!(false)));
        let last = client.until("message_end").pop().unwrap();
        assert_eq!(last["tool_trace"][0]["ok"], false, "{last:#}");
    }
}

#[test]
fn question_of_choices_is_answered_to_the_model() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        let option = |label: &str| json!({"label": label, "description": format!("it is {label}")});
        let ask = |question: &str| json!({"question": question, "header": "h", "multiSelect": false, "options": [option("red"), option("blue")]});
        let input = json!({"questions": [ask("Which?"), ask("And then?")]});
        let mut client = begin(&scene, &format!("[[use AskUserQuestion {input} ]]"));
        for (title, choice) in [("Which?", "blue"), ("And then?", "red")] {
            let question = client.until("question").pop().unwrap();
            assert_eq!(
                (&question["kind"], &question["title"], &question["options"]),
                (&json!("choice"), &json!(title), &json!(["red", "blue"]))
            );
            answer(&scene, &question, ("choice", json!(choice)));
        }
        let last = client.until("message_end").pop().unwrap();
        let said = text(&driven, &last);
        for answer in ["\"Which?\"=\"blue\"", "\"And then?\"=\"red\""] {
            assert!(said.contains(answer), "{said}");
        }
        // Nobody there is no answer.
        let line =
            json!({"prompt": format!("[[use AskUserQuestion {input} ]]"), "session": "main"});
        let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
        assert!(text(&driven, &last).contains("did not answer"), "{last:#}");
    }
}

#[test]
fn steering_amid_a_tool_reaches_the_run() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        let gate = scene.daemon.path("gate");
        // The word has the tool's last second to get into the queue.
        let command = format!(
            "until test -e {}; do sleep 0.1; done; sleep 1",
            gate.display()
        );
        let mut client = begin(&scene, &format!("[[bash={command}]]"));
        let question = client.until("question").pop().unwrap();
        answer(&scene, &question, ("approve", json!(true)));
        let mut other = scene.daemon.connect();
        other.send(r#"{"type":"steer","session":"main","text":"go left"}"#);
        std::fs::write(&gate, "").unwrap();
        let taken = other.next().unwrap();
        assert_eq!(
            (&taken["type"], &taken["ok"]),
            (&json!("steer"), &json!(true)),
            "{taken:#}"
        );
        let last = client.until("message_end").pop().unwrap();
        assert_eq!(text(&driven, &last), "echo: go left");
        let first = scene.pid();
        assert_eq!(text(&driven, &scene.ask("next")), "echo: next");
        assert_eq!(scene.pid(), first, "nothing was left behind");
    }
}

#[test]
fn steering_a_cancelled_run_is_not_carried_over() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        let mut client = begin(&scene, "[[hang]]");
        client.until("message_delta");
        let mut other = scene.daemon.connect();
        other.send(r#"{"type":"steer","id":1,"session":"main","text":"too late"}"#);
        other.send(r#"{"type":"abort","id":2,"session":"main"}"#);
        let answers = [other.next().unwrap(), other.next().unwrap()];
        let steer = answers.iter().find(|line| line["id"] == 1).unwrap();
        assert_eq!(steer["code"], "session-idle", "{steer:#}");
        assert_eq!(client.last()["stop"], "cancelled");
        let first = scene.pid();
        assert_eq!(text(&driven, &scene.ask("two")), "echo: two");
        assert_eq!(scene.pid(), first);
        for users in scene.model.seen() {
            assert!(!users.contains(&"too late".to_owned()), "{users:?}");
        }
    }
}

#[test]
fn its_memory_is_shortened_on_request() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        scene.ask("one");
        scene.ask("two");
        let line =
            json!({"type": "compact", "session": "main", "instructions": "keep the numbers"});
        let told = scene.daemon.ask(&line.to_string()).remove(0);
        assert_eq!(told["ok"], true, "{told:#}");
        assert!(told["summary"].as_str().is_some(), "{told:#}");
        let next = scene.ask("three");
        assert_eq!(text(&driven, &next), "echo: three");
        assert_eq!(next["context"], "continued");
        let users = scene.model.seen().pop().unwrap();
        assert!(!users.contains(&"one".to_owned()), "{users:?}");
        let asked = scene.model.seen();
        let keeps =
            |users: &Vec<String>| users.iter().any(|word| word.contains("keep the numbers"));
        assert!(asked.iter().any(keeps), "{asked:?}");
    }
}

#[test]
fn a_session_whose_transcript_is_gone_says_so() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        scene.ask("one");
        let place = scene.daemon.kill();
        std::fs::remove_dir_all(place.path("claude/projects")).unwrap();
        let scene = Scene {
            daemon: place.start(),
            model: scene.model,
            kind: scene.kind,
        };
        let strict = json!({"prompt": "two", "session": "main", "require_context": true});
        let last = scene.daemon.ask(&strict.to_string()).pop().unwrap();
        assert_eq!(last["code"], "context-lost", "{last:#}");
        let next = scene.ask("three [[recall]]");
        assert_eq!(next["context"], "lost", "{next:#}");
        assert!(!text(&driven, &next).contains("one"), "{next:#}");
    }
}

#[test]
fn only_the_tools_of_the_session_are_offered() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        let line = json!({"prompt": "one", "session": "main", "toolsets": ["Read", "Grep"]});
        let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
        assert_eq!(text(&driven, &last), "echo: one");
        let tools = scene.model.asked().pop().unwrap().tools;
        assert!(tools.contains(&"Read".to_owned()), "{tools:?}");
        assert!(!tools.contains(&"Bash".to_owned()), "{tools:?}");
        let line = json!({"prompt": "one", "session": "seed", "toolsets": ["terminal", "file"]});
        let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
        assert_eq!(text(&driven, &last), "echo: one");
        let tools = scene.model.asked().pop().unwrap().tools;
        for tool in ["Bash", "Read", "Write", "Edit"] {
            assert!(tools.contains(&tool.to_owned()), "{tools:?}");
        }
        assert!(!tools.contains(&"WebFetch".to_owned()), "{tools:?}");
        super::pi::refuses_bogus(&scene);
    }
}
