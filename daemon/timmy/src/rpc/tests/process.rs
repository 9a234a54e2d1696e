//! timmy as a process of its own: killed in the middle, asked for leave, at work in a crate.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use super::whole::Whole;
use super::*;
use crate::session::history::UNKNOWN;
use crate::tool::tests::{has_sandbox, rules};

/// No single line takes longer to come.
const SOON: Duration = Duration::from_secs(60);

/// Has the model run a command that says that it began, and doesn't end.
const BEGINS: &str = r#"[[use bash {"command":"echo begun > begun; sleep 600"}]]"#;

/// A running timmy; it is killed with the test.
struct Timmy {
    child: Child,
    lines: Receiver<Value>,
}

impl Drop for Timmy {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn command(whole: &Whole) -> Command {
    let mut command = Command::new(rules().program);
    let place = whole.dir.path();
    let kept = ["PATH", "CARGO_HOME", "RUSTUP_HOME", "HOME"];
    let kept = kept
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    command
        .env_clear()
        .envs(kept)
        .env("AGENTD_CONFIG", place.join("config/config.toml"))
        .env("AGENTD_STATE_DIR", place.join("state"))
        .current_dir(place);
    command
}

fn read(stdout: ChildStdout) -> Receiver<Value> {
    let (tell, lines) = sync_channel(10_000);
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _gone = tell.send(serde_json::from_str(&line).unwrap());
        }
    });
    lines
}

impl Timmy {
    fn start(whole: &Whole) -> Self {
        let mut command = command(whole);
        command.arg("--rpc");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = read(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn say(&mut self, line: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut lines: Vec<Value> = Vec::new();
        loop {
            let next = self.lines.recv_timeout(SOON);
            let line = next.unwrap_or_else(|why| panic!("{why} before `{kind}`: {lines:#?}"));
            let found = line["type"] == kind;
            assert!(found || line["type"] != "error", "{line} before `{kind}`");
            lines.push(line);
            if found {
                return lines;
            }
        }
    }

    /// Ends it once the command of [`BEGINS`] runs; where it left off.
    fn killed_in_a_command(mut self, whole: &Whole) -> Value {
        let native = self.until("tool_start")[0]["native"].clone();
        let began = Instant::now();
        while !whole.work("begun").exists() {
            assert!(began.elapsed() < SOON, "the command never began");
            std::thread::yield_now();
        }
        native
    }
}

#[test]
fn process_killed_in_a_tool_call_is_continued() {
    if !has_sandbox() {
        return;
    }
    let whole = Whole::new("default = \"a/m\"");
    let mut first = Timmy::start(&whole);
    first.say(&whole.send(BEGINS, None));
    let native = first.killed_in_a_command(&whole);
    let mut second = Timmy::start(&whole);
    second.say(&whole.send("go on", Some(&native)));
    let lines = second.until("message_end");
    assert!(
        lines.iter().all(|line| line["type"] != "tool_start"),
        "it isn't run again"
    );
    let told = whole.mock.asked().last().unwrap().body.to_string();
    assert!(told.contains(UNKNOWN) && told.contains("go on"), "{told}");
}

#[test]
fn turn_that_runs_again_has_its_prompt_once() {
    if !has_sandbox() {
        return;
    }
    let whole = Whole::new("default = \"a/m\"");
    let send = |native| {
        let mut line = whole.send(BEGINS, native);
        line["job"] = json!("j7");
        line
    };
    let mut first = Timmy::start(&whole);
    first.say(&send(None));
    let native = first.killed_in_a_command(&whole);
    let mut second = Timmy::start(&whole);
    second.say(&send(Some(&native)));
    second.until("message_end");
    let told = whole.mock.asked().last().unwrap().body.to_string();
    assert_eq!(told.matches("[[use bash").count(), 1, "{told}");
    assert!(told.contains("runs again"), "{told}");
}

#[test]
fn leave_that_is_denied_prevents_the_doing() {
    if !has_sandbox() {
        return;
    }
    let whole = Whole::new("default = \"a/m\"");
    let mut timmy = Timmy::start(&whole);
    let target = whole.dir.path().join("outside");
    for approve in [false, true] {
        let wanted = json!({"command": format!("echo out > {}", target.display()),
            "outside": true, "reason": "the test"});
        timmy.say(&whole.send(&format!("[[use bash {wanted}]]"), None));
        let asked = timmy.until("question").pop().unwrap();
        assert_eq!(asked["kind"], "approval");
        assert!(!target.exists(), "nothing happens before the answer");
        let answer = json!({"type": "answer", "id": "q", "question_id": asked["question_id"],
            "approve": approve});
        timmy.say(&answer);
        let lines = timmy.until("message_end");
        let end = lines
            .iter()
            .find(|line| line["type"] == "tool_end")
            .unwrap();
        assert_eq!(
            (&end["ok"], target.exists()),
            (&json!(approve), approve),
            "{end}"
        );
    }
}

#[test]
fn test_failing_in_a_small_crate_is_fixed() {
    if !has_sandbox() {
        return;
    }
    let whole = Whole::new("default = \"a/m\"");
    std::fs::create_dir(whole.work("src")).unwrap();
    let manifest =
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    std::fs::write(whole.work("Cargo.toml"), manifest).unwrap();
    let source = "pub fn add(a: u8, b: u8) -> u8 {\n    a - b\n}\n\n\
        #[test]\nfn adds() {\n    assert_eq!(add(2, 1), 3);\n}\n";
    std::fs::write(whole.work("src/lib.rs"), source).unwrap();
    let mut timmy = Timmy::start(&whole);
    let text = r#"[[use bash {"command":"git init -q && cargo test --offline 2>&1"}]]
        [[use read {"path":"src/lib.rs"}]]
        [[use edit {"path":"src/lib.rs","old":"a - b","new":"a + b"}]]
        [[use bash {"command":"cargo test --offline 2>&1 && git status --short"}]]"#;
    timmy.say(&whole.send(text, None));
    let lines = timmy.until("message_end");
    let ends: Vec<_> = lines
        .iter()
        .filter(|line| line["type"] == "tool_end")
        .collect();
    let output = |at: usize| ends[at]["output"].as_str().unwrap();
    assert_eq!(ends.len(), 4);
    assert!(output(0).contains("test adds ... FAILED"), "{}", output(0));
    assert!(output(1).contains("a - b"), "{}", output(1));
    assert!(output(2).contains("+    a + b"), "{}", output(2));
    assert!(output(3).contains("test adds ... ok"), "{}", output(3));
    assert!(output(3).contains("?? src/"), "{}", output(3));
    let fixed = std::fs::read_to_string(whole.work("src/lib.rs")).unwrap();
    assert_eq!(fixed, source.replace("a - b", "a + b"));
    assert_eq!(lines.last().unwrap()["stop"], "end_turn");
}

#[test]
fn prompt_alone_is_answered_and_named_ones_continue() {
    let whole = Whole::new("default = \"a/m\"");
    let alone = |arguments: &[&str]| {
        let mut command = command(&whole);
        let done = command
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        (
            done.status.code(),
            text,
            String::from_utf8(done.stderr).unwrap(),
        )
    };
    let said = alone(&["-p", "hello"]);
    assert_eq!(
        (said.0, said.1.as_str()),
        (Some(0), "echo: hello\n"),
        "{}",
        said.2
    );
    let first = alone(&["-p", "one", "--session", "main"]);
    assert_eq!(first.0, Some(0), "{}", first.2);
    let again = alone(&["-p", "[[recall]]", "--session", "main"]);
    assert_eq!(again.1, "earlier: one\n");
    let other = alone(&["-p", "[[recall]]"]);
    assert_eq!(other.1, "earlier: \n", "nothing is kept without a name");
    let (code, _, error) = alone(&["-p", "x", "--model", "nobody/m"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("no provider `nobody`"), "{error}");
    let (code, text, _) = alone(&["-p", "[[fail=auth]]", "--json"]);
    assert_eq!(code, Some(78));
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["code"], "agent-auth");
}
