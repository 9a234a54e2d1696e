//! The real pi from npm, in both of its dialects, against a model on loopback.
//!
//! `packaging/ci/install-pi.sh` puts them where these tests look.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::agents::every_scenario_is_due;
use crate::mock_model::MockModel;
use crate::support::{Daemon, Place, finish, is_alive, kill, needs, skipped, wait_for};

const VERSIONS: [&str; 2] = ["0.73.1", "1.5.2"];

/// The programs that are installed; each missing one is said loudly.
pub fn installed() -> Vec<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/pi");
    let dir = std::env::var_os("AGENTD_TEST_PI_DIR").map_or_else(default, PathBuf::from);
    let there = |version: &&str| {
        let program = dir.join(format!("pi-{version}/bin/pi"));
        if program.is_file() {
            return Some(program);
        }
        let dir = dir.display();
        skipped(&format!(
            "pi {version} in {dir} (packaging/ci/install-pi.sh)"
        ));
        None
    };
    VERSIONS.iter().filter_map(there).collect()
}

/// Those that these tests are for on this run: of the older one, which takes seconds for each start, only
/// what `.ci/agents` names runs on every push.
pub fn due() -> Vec<PathBuf> {
    let mut programs = installed();
    if !every_scenario_is_due() {
        programs.retain(|program| program.ends_with("pi-1.5.2/bin/pi"));
    }
    programs
}

/// A daemon whose agent `pi` asks the model of this test.
pub struct Pi {
    pub daemon: Daemon,
    pub model: MockModel,
}

impl Pi {
    pub fn with(program: &Path, more: &str) -> Self {
        Self::with_flags(program, "", more)
    }

    /// The same with more flags for pi, as they stand in the configuration.
    pub fn with_flags(program: &Path, flags: &str, more: &str) -> Self {
        let model = MockModel::start();
        let place = Place::new("");
        let dir = place.path("pi");
        std::fs::create_dir(&dir).unwrap();
        let models = json!({"providers": {"mock": {
            "baseUrl": model.url, "api": "openai-completions", "apiKey": "none",
            "models": [{"id": "mock-1"}],
        }}});
        std::fs::write(dir.join("models.json"), models.to_string()).unwrap();
        let settings = json!({"retry": {"enabled": false, "provider": {"maxRetries": 0}}});
        std::fs::write(dir.join("settings.json"), settings.to_string()).unwrap();
        let config = format!(
            "{}provider = \"mock\"\nmodel = \"mock-1\"\n{more}",
            agent(program, flags, &dir)
        );
        place.configure(&config);
        Self {
            daemon: place.start(),
            model,
        }
    }

    pub fn start(program: &Path) -> Self {
        Self::with(program, "")
    }

    pub fn ask(&self, line: &Value) -> Value {
        self.daemon
            .ask(&line.to_string())
            .pop()
            .expect("a final line")
    }

    pub fn pid(&self) -> u32 {
        self.daemon.until("pi's process", pid)
    }
}

fn agent(program: &Path, flags: &str, dir: &Path) -> String {
    // The newer one's bundle lacks what it loads extensions with; the older one has it installed.
    let all = program.ancestors().nth(3).unwrap();
    let modules = all.join("pi-0.73.1/node_modules");
    format!(
        "[agents.pi]\ncommand = [{program:?}, \"--mode\", \"rpc\"{flags}]\nenv = {{ PI_CODING_AGENT_DIR = {dir:?}, PI_OFFLINE = \"1\", NODE_PATH = {modules:?} }}\n"
    )
}

fn pid(status: &Value) -> Option<u32> {
    status["workers"][0]["pid"]
        .as_u64()
        .map(|pid| u32::try_from(pid).unwrap())
}

pub fn text(line: &Value) -> &str {
    assert_eq!(line["type"], "message_end", "{line:#}");
    line["text"].as_str().unwrap()
}

#[test]
fn pi_answers_nc_with_the_models_text() {
    let Some(nc) = needs("nc") else { return };
    for program in due() {
        let pi = Pi::start(&program);
        let mut command = pi.daemon.place.command(&nc);
        command.arg("-U").arg(pi.daemon.place.socket());
        let said = finish(command, b"{\"agent\":\"pi\",\"prompt\":\"say hi\"}\n");
        let last: Value = serde_json::from_str(said.stdout.lines().last().expect("lines")).unwrap();
        assert_eq!(text(&last), "echo: say hi", "{program:?}");
        assert_eq!(
            (&last["provider"], &last["model"]),
            (&json!("mock"), &json!("mock-1"))
        );
        assert_eq!(last["usage"]["output_tokens"], 3, "{last:#}");
        assert_eq!(pi.model.seen(), [["say hi"]]);
    }
}

#[test]
fn pi_serves_a_second_send_without_earlier_context() {
    for program in due() {
        let pi = Pi::start(&program);
        assert_eq!(text(&pi.ask(&json!({"prompt": "one"}))), "echo: one");
        let first = pi.pid();
        let second = pi.ask(&json!({"prompt": "two [[recall]]"}));
        assert_eq!(text(&second), "earlier: ", "{program:?}");
        assert_eq!(second["context"], "new");
        assert_eq!(pi.pid(), first, "{program:?} was recycled");
    }
}

#[test]
fn pi_session_goes_on_after_its_kill() {
    for program in due() {
        let pi = Pi::start(&program);
        let send = |prompt: &str| pi.ask(&json!({"prompt": prompt, "session": "main"}));
        assert_eq!(send("one")["context"], "new");
        let second = send("two [[recall]]");
        assert_eq!(
            (text(&second), &second["context"]),
            ("earlier: one", &json!("continued"))
        );
        let first = pi.pid();
        kill(first, Signal::SIGKILL);
        // A turn that meets the dead process before its death is noticed fails with it.
        pi.daemon.until("the death is noticed", |status| {
            (pid(status) != Some(first)).then_some(())
        });
        let third = send("three [[recall]]");
        assert_eq!(text(&third), "earlier: one | two [[recall]]", "{program:?}");
        assert_eq!(third["context"], "continued", "{program:?}");
        assert_ne!(pi.pid(), first);
    }
}

#[test]
fn pi_killed_amid_a_stream_is_one_error() {
    for program in due() {
        let pi = Pi::start(&program);
        let send = |prompt: &str| pi.ask(&json!({"prompt": prompt, "session": "main"}));
        send("one");
        let mut client = pi.daemon.connect();
        client.send(r#"{"type":"send","text":"[[hang]]","session":"main"}"#);
        client.until("message_delta");
        kill(pi.pid(), Signal::SIGKILL);
        let last = client.until("error").pop().unwrap();
        assert_eq!(
            (&last["code"], &last["text"]),
            (&json!("worker-exited"), &json!("hanging")),
            "{program:?}: {last:#}"
        );
        let next = send("three [[recall]]");
        assert!(
            text(&next).starts_with("earlier: one | "),
            "{program:?}: {next:#}"
        );
        assert_eq!(next["context"], "continued", "{program:?}");
    }
}

#[test]
fn pi_session_goes_on_after_the_daemons_kill() {
    for program in due() {
        let pi = Pi::start(&program);
        let line = |prompt: &str| json!({"prompt": prompt, "session": "main"}).to_string();
        pi.daemon.ask(&line("one"));
        let old = pi.pid();
        let daemon = pi.daemon.kill().start();
        let last = daemon.ask(&line("two [[recall]]")).pop().unwrap();
        assert_eq!(
            (text(&last), &last["context"]),
            ("earlier: one", &json!("continued")),
            "{program:?}"
        );
        assert!(!is_alive(old), "{program:?}: the old process is gone");
    }
}

#[test]
fn pi_killed_in_its_first_turn_goes_on() {
    for program in due() {
        let pi = Pi::start(&program);
        let mut client = pi.daemon.connect();
        client.send(r#"{"type":"send","text":"one [[hang]]","session":"main"}"#);
        client.until("message_delta");
        let daemon = pi.daemon.kill().start();
        let again = json!({"prompt": "two [[recall]]", "session": "main"});
        let last = daemon.ask(&again.to_string()).pop().unwrap();
        // The older one writes nothing down before its first answer.
        let kept = program.ends_with("pi-1.5.2/bin/pi");
        let earlier = if kept {
            "earlier: one [[hang]]"
        } else {
            "earlier: "
        };
        assert_eq!(text(&last), earlier, "{program:?}: {last:#}");
        let other = daemon.ask(r#"{"prompt":"three"}"#).pop().unwrap();
        assert_eq!(text(&other), "echo: three", "{program:?}");
    }
}

#[test]
fn pi_aborted_amid_a_stream_stays_usable() {
    for program in due() {
        let pi = Pi::start(&program);
        let mut client = pi.daemon.connect();
        client.send(r#"{"type":"send","id":1,"text":"[[hang]]","session":"main"}"#);
        client.until("message_delta");
        let mut other = pi.daemon.connect();
        let aborted = other.request(r#"{"type":"abort","session":"main"}"#);
        assert_eq!(
            (&aborted["type"], &aborted["ok"]),
            (&json!("abort"), &json!(true))
        );
        let last = client.until("message_end").pop().unwrap();
        assert_eq!(
            (&last["stop"], &last["text"]),
            (&json!("cancelled"), &json!("hanging")),
            "{program:?}"
        );
        let first = pi.pid();
        let next = pi.ask(&json!({"prompt": "still there", "session": "main"}));
        assert_eq!(
            (text(&next), &next["context"]),
            ("echo: still there", &json!("continued")),
            "{program:?}"
        );
        assert_eq!(pi.pid(), first, "{program:?}");
    }
}

#[test]
fn pi_tool_call_is_shown_and_traced() {
    for program in due() {
        let pi = Pi::start(&program);
        let lines = pi
            .daemon
            .ask(r#"{"type":"send","text":"[[bash=echo from-the-tool]]","agent":"pi"}"#);
        let last = lines.last().unwrap();
        assert_eq!(text(last), "tool said: from-the-tool", "{program:?}");
        let trace = &last["tool_trace"][0];
        assert_eq!(
            (&trace["name"], &trace["ok"]),
            (&json!("bash"), &json!(true)),
            "{program:?}: {trace:#}"
        );
        assert_eq!(trace["input"]["command"], "echo from-the-tool");
        assert_eq!(trace["output"].as_str().unwrap().trim(), "from-the-tool");
        let kinds: Vec<&str> = lines
            .iter()
            .filter_map(|line| line["type"].as_str())
            .collect();
        let at = |kind| {
            kinds
                .iter()
                .position(|found| *found == kind)
                .unwrap_or_else(|| panic!("{kind}: {kinds:?}"))
        };
        assert!(at("tool_start") < at("tool_end") && at("tool_end") < at("message_end"));
    }
}

#[test]
fn many_deltas_arrive_whole_and_in_order() {
    for program in due() {
        let pi = Pi::start(&program);
        let lines = pi.daemon.ask(r#"{"type":"send","text":"[[deltas=500]]"}"#);
        let whole: String = (0..500).map(|n| format!("w{n} ")).collect();
        let streamed: String = lines
            .iter()
            .filter(|line| line["type"] == "message_delta")
            .map(|line| line["text"].as_str().unwrap())
            .collect();
        assert_eq!(streamed, whole, "{program:?}");
        assert_eq!(text(lines.last().unwrap()), whole, "{program:?}");
    }
}

#[test]
fn pi_provider_error_is_an_error_with_code() {
    for program in due() {
        let pi = Pi::start(&program);
        for (status, code) in [
            (429, "rate-limit"),
            (401, "agent-auth"),
            (400, "agent-failed"),
        ] {
            let last = pi.ask(&json!({"prompt": format!("[[error={status}]]")}));
            assert_eq!(
                (&last["type"], &last["code"]),
                (&json!("error"), &json!(code)),
                "{program:?}: {last:#}"
            );
        }
        assert_eq!(
            text(&pi.ask(&json!({"prompt": "and now"}))),
            "echo: and now",
            "{program:?}"
        );
    }
}

#[test]
fn without_key_or_model_it_is_agent_auth() {
    for program in due() {
        let place = Place::new("");
        let dir = place.path("pi");
        std::fs::create_dir(&dir).unwrap();
        place.configure(&agent(&program, "", &dir));
        let daemon = place.start();
        let last = daemon.ask(r#"{"agent":"pi","prompt":"hi"}"#).pop().unwrap();
        assert_eq!(
            (&last["type"], &last["code"]),
            (&json!("error"), &json!("agent-auth")),
            "{program:?}: {last:#}"
        );
        let sent = daemon.agentctl(&["send", "--agent", "pi", "hi"]);
        assert_eq!(sent.code, Some(78), "{program:?}: {sent:?}");
    }
}

#[test]
fn pi_queues_two_prompts_and_loses_neither() {
    for program in due() {
        let pi = Pi::start(&program);
        // A warm process, and both lines in one write: pi itself would lose the second.
        pi.ask(&json!({"prompt": "warm", "session": "main"}));
        let line = |n: u32| {
            json!({"type": "send", "id": n, "text": format!("p{n}"), "session": "main"}).to_string()
        };
        let mut client = pi.daemon.connect();
        client.write(format!("{}\n{}\n", line(1), line(2)).as_bytes());
        let lines = client.rest();
        for n in [1, 2] {
            let last = lines.iter().rfind(|found| found["id"] == n).unwrap();
            assert_eq!(text(last), format!("echo: p{n}"), "{program:?}");
        }
        let last = pi.model.seen().pop().unwrap();
        assert_eq!(last, ["warm", "p1", "p2"], "{program:?}");
    }
}

#[test]
fn pi_that_is_idle_stops_and_comes_back() {
    for program in due() {
        let pi = Pi::with(&program, "idle_timeout = \"1s\"\n");
        let send = |prompt: &str| pi.ask(&json!({"prompt": prompt, "session": "main"}));
        send("one");
        let first = pi.pid();
        wait_for("the idle process is stopped", || {
            (!is_alive(first)).then_some(())
        });
        let second = send("two [[recall]]");
        assert_eq!(
            (text(&second), &second["context"]),
            ("earlier: one", &json!("continued")),
            "{program:?}"
        );
    }
}
