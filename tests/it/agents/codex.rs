//! Codex, by its app-server.
//!
//! `packaging/ci/install-codex.sh` puts it where these tests look.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{Asks, Can, Driven, Scene, Turns, text};
use crate::acp_server::editor::Editor;
use crate::mock_model::MockModel;
use crate::support::{Client, DEADLINE, Place, is_alive, kill, skipped};

/// The program, if it is installed; a missing one is said loudly.
pub fn program() -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/codex");
    let dir = std::env::var_os("AGENTD_TEST_CODEX_DIR").map_or_else(default, PathBuf::from);
    let program = dir.join("bin/codex");
    if program.is_file() {
        return Some(program);
    }
    let dir = dir.display();
    skipped(&format!("codex in {dir} (packaging/ci/install-codex.sh)"));
    None
}

fn installed() -> Vec<Driven> {
    let Some(program) = program() else {
        return Vec::new();
    };
    vec![Driven {
        label: program.display().to_string(),
        program,
        configure,
        can: Can {
            turns: Turns::InOneProcess,
            tool: Some("commandExecution"),
            asks: Asks::Always,
            denied: "rejected by user",
            errors: &[
                (401, "agent-auth"),
                (429, "rate-limit"),
                (500, "agent-failed"),
            ],
            overflow: Some("context-overflow"),
            keeps_young: true,
            told: &[],
            stops: &[("[[full]]", "max_tokens"), ("[[refuse=finish]]", "refusal")],
            attached: &["pixel.png"],
            hears_of_tools: "tides_low_water",
            models: [(Some("mock"), "mock-1"), (Some("mock"), "mock-2")],
            switches: false,
            mode: None,
            beside: None,
            tries_again: &[],
            refusal_lasts: None,
            patience: DEADLINE,
        },
    }]
}

/// The user's policy is to be asked. Its sandbox is read-only, and each command that the model runs
/// is one outside it: the sandbox itself needs more than every test machine has.
pub fn config(model: &MockModel) -> String {
    format!(
        r#"
approval_policy = "on-request"
sandbox_mode = "read-only"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.mock]
name = "mock"
base_url = "{}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
# Its commands have nothing of agentd's in their environment.
[shell_environment_policy]
inherit = "core"
"#,
        model.url
    )
}

fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
    let dir = place.path("codex");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("config.toml"), config(model)).unwrap();
    let program = &driven.program;
    format!(
        "[agents.it]\nkind = \"codex\"\ncommand = [{program:?}]\nprovider = \"mock\"\nmodel = \"mock-1\"\nenv = {{ CODEX_HOME = {dir:?} }}\n"
    )
}

suite!();

fn scenes() -> Vec<(Driven, Scene)> {
    let scene = |driven| {
        let scene = Scene::of(&driven, "");
        (driven, scene)
    };
    installed().into_iter().map(scene).collect()
}

/// Sends without waiting for an answer.
fn begin(scene: &Scene, prompt: &str) -> Client {
    let mut client = scene.daemon.connect();
    let line =
        json!({"type": "send", "id": 1, "text": prompt, "session": "main", "on_question": "wait"});
    client.send(&line.to_string());
    client
}

fn tell(scene: &Scene, line: &Value) -> Value {
    scene.daemon.ask(&line.to_string()).remove(0)
}

#[test]
fn question_shows_what_runs_without_invented_cost() {
    for (driven, scene) in scenes() {
        let mut client = begin(&scene, "[[bash=echo from-the-tool]]");
        let question = client.until("question").pop().unwrap();
        let title = question["title"].as_str().unwrap();
        assert!(title.starts_with("Run `"), "{question:#}");
        assert!(title.contains("echo from-the-tool"), "{question:#}");
        let detail = question["detail"].as_str().unwrap();
        let home = scene.daemon.path("home");
        assert!(detail.contains(home.to_str().unwrap()), "{question:#}");
        assert!(detail.contains("leave the sandbox"), "{question:#}");
        let id = &question["question_id"];
        tell(
            &scene,
            &json!({"type": "answer", "question_id": id, "approve": true}),
        );
        let last = client.until("message_end").pop().unwrap();
        assert!(text(&driven, &last).contains("from-the-tool"));
        assert_eq!(last["cost"]["status"], "unknown", "{last:#}");
        assert_eq!(
            (&last["usage"]["input_tokens"], &last["provider"]),
            (&json!(24), &json!("mock")),
            "{last:#}"
        );
        assert_eq!(last["context_tokens"], 15, "{last:#}");
        assert!(last["context_window"].as_u64() > Some(15), "{last:#}");
    }
}

/// A host of pi's, which starts `pi --mode rpc`, with Codex behind it.
#[test]
fn pi_host_has_codex_behind_it() {
    for (_, scene) in scenes() {
        let mut host = Editor::of(
            &scene.daemon.place,
            &["pi", "--mode", "rpc", "--agent", "it"],
        );
        let mut says = |kind: &str, mut fields: Value| {
            fields["type"] = json!(kind);
            fields["id"] = json!(kind);
            host.say(&fields);
        };
        for kind in [
            "get_state",
            "get_available_models",
            "get_session_stats",
            "get_commands",
        ] {
            says(kind, json!({}));
        }
        says("prompt", json!({"message": "[[bash=echo from-the-tool]]"}));
        let asked = host.until("a dialog", |line| line["method"] == "confirm");
        assert!(
            asked["title"]
                .as_str()
                .unwrap()
                .contains("echo from-the-tool"),
            "{asked}"
        );
        host.say(&json!({"type": "extension_ui_response", "id": asked["id"], "confirmed": true}));
        let ended = host.until("the call's end", |line| {
            line["type"] == "tool_execution_end"
        });
        assert_eq!(ended["isError"], false, "{ended}");
        host.until("the run's end", |line| line["type"] == "agent_settled");
        // It is steered, ended, and gone on with.
        host.say(&json!({"type": "prompt", "message": "[[hang]]"}));
        host.until("its text", |line| {
            line["assistantMessageEvent"]["type"] == "text_delta"
        });
        host.say(&json!({"type": "steer", "message": "go left"}));
        let run = host.until("the run's end", |line| line["type"] == "agent_end");
        let said = run["messages"].to_string();
        assert!(said.contains("echo: go left"), "{said}");
        host.say(&json!({"type": "prompt", "message": "[[hang]]"}));
        host.until("its text", |line| {
            line["assistantMessageEvent"]["type"] == "text_delta"
        });
        host.say(&json!({"type": "abort"}));
        host.until("the run's end", |line| {
            line["type"] == "agent_settled" && line["aborted"] == true
        });
        host.say(&json!({"type": "compact"}));
        let compacted = host.until("its end", |line| line["command"] == "compact");
        assert_eq!(compacted["success"], true, "{compacted}");
        host.say(&json!({"type": "get_messages"}));
        let past = host.until("the past", |line| line["command"] == "get_messages");
        let past = past["data"]["messages"].as_array().unwrap().clone();
        let stops: Vec<&str> = past
            .iter()
            .filter_map(|one| one["stopReason"].as_str())
            .collect();
        assert_eq!(
            stops,
            ["toolUse", "stop", "stop", "stop", "aborted"],
            "{past:#?}"
        );
        let failed: Vec<&Value> = host
            .heard
            .iter()
            .filter(|line| line["success"] == false)
            .collect();
        assert!(failed.is_empty(), "{failed:#?}");
    }
}

#[test]
fn abort_amid_a_question_leaves_nothing_behind() {
    for (driven, scene) in scenes() {
        let mut client = begin(&scene, "[[bash=echo never]]");
        client.until("question");
        let before = scene.pid();
        tell(&scene, &json!({"type": "abort", "session": "main"}));
        let last = client.until("message_end").pop().unwrap();
        assert_eq!(last["stop"], "cancelled", "{last:#}");
        let open = tell(&scene, &json!({"type": "questions", "session": "main"}));
        assert_eq!(open["questions"], json!([]), "{open:#}");
        assert_eq!(
            text(&driven, &scene.ask("still there")),
            "echo: still there"
        );
        assert_eq!(scene.pid(), before);
    }
}

#[test]
fn steering_reaches_its_turn_or_none() {
    for (driven, scene) in scenes() {
        // Codex stops the message for it.
        let mut client = begin(&scene, "[[hang]]");
        client.until("message_delta");
        let taken = tell(
            &scene,
            &json!({"type": "steer", "session": "main", "text": "go left"}),
        );
        assert_eq!(taken["ok"], true, "{taken:#}");
        let last = client.until("message_end").pop().unwrap();
        assert_eq!(text(&driven, &last), "echo: go left");

        // A turn that waits for its user takes no word.
        let mut client = begin(&scene, "[[bash=echo never]]");
        client.until("question");
        let mut other = scene.daemon.connect();
        other.send(r#"{"type":"steer","session":"main","text":"go right"}"#);
        tell(&scene, &json!({"type": "abort", "session": "main"}));
        let late = other.next().unwrap();
        assert_eq!(late["code"], "session-idle", "{late:#}");
        client.until("message_end");
        assert_eq!(text(&driven, &scene.ask("next")), "echo: next");
        let users = scene.model.seen().pop().unwrap();
        assert!(users.contains(&"go left".to_owned()), "{users:?}");
        assert!(!users.contains(&"go right".to_owned()), "{users:?}");
    }
}

#[test]
fn a_session_is_shortened_and_goes_on() {
    for (driven, scene) in scenes() {
        scene.ask("one");
        let told = json!({"type": "compact", "session": "main", "instructions": "names"});
        let told = tell(&scene, &told);
        assert_eq!(told["code"], "unsupported", "{told:#}");
        let done = tell(&scene, &json!({"type": "compact", "session": "main"}));
        assert_eq!(done["ok"], true, "{done:#}");
        let last = scene.ask("two");
        assert_eq!(text(&driven, &last), "echo: two");
        assert_eq!(last["usage"]["input_tokens"], 12, "{last:#}");
    }
}

#[test]
fn a_session_whose_thread_is_gone_says_so() {
    for (driven, scene) in scenes() {
        scene.ask("one");
        let first = scene.pid();
        kill(first, Signal::SIGKILL);
        scene.daemon.until("the process is gone", |status| {
            (super::pid(status) != Some(first)).then_some(())
        });
        std::fs::remove_dir_all(scene.daemon.path("codex/sessions")).unwrap();
        let strict = json!({"prompt": "two", "session": "main", "require_context": true});
        let refused = scene.daemon.ask(&strict.to_string()).pop().unwrap();
        assert_eq!(refused["code"], "context-lost", "{refused:#}");
        let lines = scene
            .daemon
            .ask(r#"{"type":"send","id":1,"text":"three [[recall]]","session":"main"}"#);
        let last = lines.last().unwrap();
        assert_eq!(last["context"], "lost", "{lines:#?}");
        assert!(!text(&driven, last).contains("one"), "{last:#}");
        let lost = lines.iter().any(|line| line["code"] == "context-lost");
        assert!(lost, "{lines:#?}");
    }
}

#[test]
fn provider_unknown_fails_and_keeps_the_configuration() {
    for (_, scene) in scenes() {
        let file = scene.daemon.path("codex").join("config.toml");
        let before = std::fs::read(&file).unwrap();
        scene.ask("one");
        let set = json!({"type": "set_model", "session": "main", "provider": "mock", "model": "mock-2", "thinking": "high"});
        assert_eq!(tell(&scene, &set)["ok"], true);
        let next = scene.ask("two");
        assert_eq!(
            (&next["model"], &next["thinking"]),
            (&json!("mock-2"), &json!("high")),
            "{next:#}"
        );
        let line = json!({"prompt": "x", "session": "other", "provider": "nope"});
        let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
        assert_eq!(last["code"], "agent-failed", "{last:#}");
        let error = last["error"].as_str().unwrap();
        assert!(error.contains("nope"), "{last:#}");
        assert_eq!(std::fs::read(&file).unwrap(), before);
    }
}

#[test]
fn a_first_turn_that_is_killed_is_remembered() {
    for (driven, scene) in scenes() {
        let mut client = begin(&scene, "[[hang]] first of all");
        client.until("message_delta");
        kill(scene.pid(), Signal::SIGKILL);
        client.until("error");
        let next = scene.ask("two [[recall]]");
        assert_eq!(next["context"], "continued", "{next:#}");
        assert!(text(&driven, &next).contains("first of all"), "{next:#}");
    }
}

#[test]
fn abort_ends_a_command_with_its_turn() {
    for (driven, scene) in scenes() {
        let file = scene.daemon.path("tool-pid");
        let prompt = format!(
            "[[bash=echo $$ > {0}.new && mv {0}.new {0} && sleep 1000]]",
            file.display()
        );
        let mut client = begin(&scene, &prompt);
        let question = client.until("question").pop().unwrap();
        let id = &question["question_id"];
        tell(
            &scene,
            &json!({"type": "answer", "question_id": id, "approve": true}),
        );
        let tool = scene.daemon.until("the tool runs", |_| {
            let pid = std::fs::read_to_string(&file).ok()?;
            pid.trim().parse::<u32>().ok()
        });
        let before = scene.pid();
        tell(&scene, &json!({"type": "abort", "session": "main"}));
        let last = client.until("message_end").pop().unwrap();
        assert_eq!(last["stop"], "cancelled", "{last:#}");
        let gone = |_: &Value| (!is_alive(tool)).then_some(());
        scene.daemon.until("the tool is gone", gone);
        assert_eq!(
            text(&driven, &scene.ask("still there")),
            "echo: still there"
        );
        assert_eq!(scene.pid(), before, "and Codex isn't");
    }
}

#[test]
fn codex_without_a_login_is_told_at_once() {
    for driven in installed() {
        let place = Place::new("");
        let dir = place.path("codex");
        std::fs::create_dir(&dir).unwrap();
        let program = &driven.program;
        // Nothing of the network is asked: it would be tried again for minutes.
        place.configure(&format!(
            "[agents.it]\nkind = \"codex\"\ncommand = [{program:?}]\n\
             env = {{ CODEX_HOME = {dir:?}, HTTPS_PROXY = \"http://127.0.0.1:9\" }}\n"
        ));
        let daemon = place.start();
        for _ in 0..2 {
            let line = r#"{"type":"send","agent":"it","session":"main","text":"one"}"#;
            let last = daemon.ask(line).pop().unwrap();
            assert_eq!(last["code"], "agent-auth", "{last:#}");
            let (error, hint) = (&last["error"], &last["hint"]);
            assert!(
                error.as_str().unwrap().contains("nobody is logged in"),
                "{last:#}"
            );
            assert!(hint.as_str().unwrap().contains("codex login"), "{last:#}");
        }
    }
}
