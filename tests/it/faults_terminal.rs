//! What a terminal would obey is shown spelt out, and stored as it was: row B11 of the fault
//! catalogue, with `agentctl` and `timmy -p` on a pseudo-terminal.
//!
//! What each character becomes is tested in `output.rs`; here it is that no command forgot.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use nix::pty::openpty;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::mock_model::MockModel;
use crate::support::{AGENTCTL, AGENTD, DEADLINE, Daemon, Place, Reaped, TIMMY, kill, wait_for};

/// Clears the screen, sets the title, is a link, is C1, returns, erases, reorders.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{1b}]8;;x:y\u{1b}\\\u{9b}31m\u{9d}0;t\u{9c}\rover\u{8}\u{7f}\u{202e}rtl\u{2066}\u{200f}";

/// A program on a terminal of its own.
pub struct OnTerminal {
    child: Reaped,
    screen: Receiver<Vec<u8>>,
    keys: File,
    bytes: Vec<u8>,
}

impl OnTerminal {
    pub fn start(command: Command) -> Self {
        Self::typed_before(command, "")
    }

    /// One whose user typed this before it was there.
    fn typed_before(mut command: Command, typed: &str) -> Self {
        let pty = openpty(None, None).unwrap();
        let mut keys = File::from(pty.master.try_clone().unwrap());
        keys.write_all(typed.as_bytes()).unwrap();
        command
            // Without a spinner, which redraws its line.
            .env("TERM", "dumb")
            .stdin(Stdio::from(pty.slave.try_clone().unwrap()))
            .stdout(Stdio::from(pty.slave.try_clone().unwrap()))
            .stderr(Stdio::from(pty.slave));
        let child = Reaped(command.spawn().unwrap());
        // It keeps ends of the terminal, too.
        drop(command);
        let (sender, screen) = sync_channel(1024);
        let mut master = File::from(pty.master);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // At the end it is an error: everybody has left.
            while let Ok(length @ 1..) = master.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            screen,
            keys,
            bytes: Vec::new(),
        }
    }

    /// Reads until it shows this.
    pub fn until(&mut self, part: &str) {
        while !self.shown().contains(part) {
            let more = self.screen.recv_timeout(DEADLINE);
            let more = more.unwrap_or_else(|_| panic!("no `{part}` in {:?}", self.shown()));
            self.bytes.extend(more);
        }
    }

    /// Everything it showed until its end.
    fn end(self) -> String {
        self.ended().1
    }

    pub fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// The same, behind its exit code.
    pub fn ended(mut self) -> (Option<i32>, String) {
        let status = wait_for("it leaves", || self.child.0.try_wait().unwrap());
        while let Ok(more) = self.screen.recv_timeout(DEADLINE) {
            self.bytes.extend(more);
        }
        let shown = String::from_utf8(self.bytes).expect("UTF-8");
        // The terminal's own line ends.
        (status.code(), shown.replace("\r\n", "\n"))
    }

    fn shown(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

fn on_terminal(place: &Place, args: &[&str]) -> String {
    let mut command = place.command(AGENTCTL);
    command.args(args);
    OnTerminal::start(command).end()
}

/// Is there nothing that a terminal obeys?
fn assert_harmless(what: &str, shown: &str) {
    let obeyed = shown.chars().find(|c| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    });
    assert_eq!(obeyed, None, "{what}: {shown:?}");
}

/// A daemon with an agent all of whose lines are full of it, and one that fails with it.
fn evil_daemon() -> Daemon {
    let place = Place::new("");
    let ends = json!({"type": "message_end", "text": EVIL, "stop": "end_turn", "provider": EVIL,
        "model": EVIL, "thinking": EVIL, "cost": {"usd": 1, "status": "estimated", "source": EVIL}});
    let lines = [
        json!({"type": "note", "level": "warn", "code": "retry", "text": EVIL}),
        json!({"type": "tool_start", "tool_call_id": EVIL, "name": EVIL, "input": {EVIL: EVIL}}),
        json!({"type": "tool_end", "tool_call_id": EVIL, "ok": false, "output": EVIL}),
        json!({"type": "message_delta", "text": EVIL}),
        ends,
    ];
    let lines = lines.map(|line| line.to_string()).join("\n") + "\n";
    std::fs::write(place.path("lines"), lines).unwrap();
    std::fs::write(place.path("evil"), EVIL).unwrap();
    let said = place.path("lines");
    let worker = r#"while read -r line; do case "$line" in
        *'"type":"status"'*) echo '{"type":"status","ok":true}' ;;
        *'"type":"send"'*) cat "$0" ;;
        esac; done"#;
    let fails = r#"cat "$0" >&2; exit 3"#;
    place.configure(&format!(
        "default_agent = \"evil\"\n[agents.evil]\nkind = \"jsonl\"\ncommand = [\"sh\", \"-c\", '''{worker}''', {said:?}]\n\
         [agents.fails]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", '''{fails}''', {:?}]\n\
         [agents.lost]\nkind = \"exec\"\ncommand = [{}]\n",
        place.path("evil"),
        // TOML and JSON spell these characters in the same way.
        spelt(&format!("/no/{EVIL}")),
    ));
    place.start()
}

/// As a string of JSON or TOML, in plain characters.
fn spelt(text: &str) -> String {
    let spell = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        ' '..='~' => c.to_string(),
        c => format!("\\u{:04x}", u32::from(c)),
    };
    format!("\"{}\"", text.chars().map(spell).collect::<String>())
}

#[test]
fn b11_commands_show_a_terminal_nothing_it_obeys() {
    let daemon = evil_daemon();
    let evil_path = format!("/tmp/{EVIL}");
    // Of a session that was never there: of one that was, nothing is told.
    let evil_session = format!("x{EVIL}");
    for args in [
        &["send", "hi"][..],
        &["send", "hi", "--agent", "fails"],
        &["send", "hi", "--agent", "lost"],
        &["agent", "--message", "hi"],
        &["collect", "j1"],
        &["collect", "j2"],
        &["agents"],
        &["config", "show"],
        // What a script passes on.
        &["send", "hi", "--session", EVIL],
        &["send", "hi", "--cwd", &evil_path],
        &["send", "hi", "--mode", EVIL],
        &["abort", &evil_session],
        &["restart", EVIL],
        &["--socket", &evil_path, "status"],
    ] {
        let shown = on_terminal(&daemon.place, args);
        assert_harmless(&format!("{args:?}"), &shown);
        assert!(
            shown.contains("u{1b}") || shown.contains("u001b"),
            "{args:?}: {shown:?}"
        );
    }
    for args in [
        &["status"][..],
        &["status", "--rpc"],
        &["send", "hi", "--agent", EVIL],
    ] {
        assert_harmless(&format!("{args:?}"), &on_terminal(&daemon.place, args));
    }
    assert_harmless("the daemon's log", &daemon.log());
}

#[test]
fn b11_json_on_a_terminal_is_harmless() {
    let daemon = evil_daemon();
    for args in [
        &["send", "hi", "--json"][..],
        &["agent", "--message", "hi", "--json"],
        &["collect", "j1", "--json"],
        &["agents", "--json"],
        &["config", "show", "--json"],
        &["status", "--json"],
    ] {
        let shown = on_terminal(&daemon.place, args);
        assert_harmless(&format!("{args:?}"), &shown);
        let lines = shown.lines().filter(|line| line.starts_with(['{', '[']));
        let values: Vec<Value> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(!values.is_empty(), "{args:?}: {shown:?}");
        if args[0] == "send" {
            assert_eq!(values.last().unwrap()["text"], EVIL);
        }
    }
    // Whoever isn't a terminal gets it as it was said.
    let piped = daemon.agentctl(&["send", "hi"]);
    assert_eq!(piped.stdout.trim_end_matches('\n'), EVIL, "{piped:?}");
    let stored = daemon.ask(r#"{"type":"collect","jobs":["j1"]}"#);
    assert_eq!(stored[0]["results"][0]["text"], EVIL);
}

#[test]
fn b11_watcher_on_a_terminal_sees_escapes_spelt() {
    let daemon = evil_daemon();
    for json in [false, true] {
        let mut command = daemon.place.command(AGENTCTL);
        command.arg("watch").args(json.then_some("--json"));
        let mut watching = OnTerminal::start(command);
        let marked = if json { "message_end" } else { "done" };
        wait_for("it watches", || {
            daemon.ask(&json!({"prompt": EVIL}).to_string());
            let more = watching.screen.try_iter().flatten();
            watching.bytes.extend(more);
            watching.shown().contains(marked).then_some(())
        });
        daemon.ask(r#"{"agent":"fails","prompt":"hi"}"#);
        watching.until("agent-failed");
        // Who starts tests in the background lets them ignore SIGINT.
        kill(watching.child.0.id(), Signal::SIGTERM);
        let shown = watching.end();
        assert_harmless(&format!("watch, json: {json}"), &shown);
    }
}

#[test]
fn b11_one_shot_and_foreground_daemon_are_harmless() {
    let place = evil_daemon().kill();
    let shown = on_terminal(&place, &["send", "hi"]);
    assert_harmless("a one-shot", &shown);
    assert!(shown.contains("u{1b}[2J"), "{shown:?}");

    let mut command = place.command(AGENTD);
    command.env("AGENTD_LOG", "debug");
    let mut foreground = OnTerminal::start(command);
    foreground.until("serves");
    for agent in ["evil", "fails", "lost"] {
        place.agentctl(&["send", "hi", "--agent", agent]);
    }
    place.agentctl(&["stop"]);
    assert_harmless("the daemon", &foreground.end());
}

#[test]
fn b11_question_is_spelt_out_without_typeahead() {
    let model = MockModel::start();
    let place = Place::new(&format!(
        "[models]\ndefault = \"mock/m\"\n[providers.mock]\nbase_url = \"{}\"\n",
        model.url
    ));
    let ran = place.path("ran");
    let call = json!({"command": format!("touch {} # {EVIL}", ran.display()), "outside": true,
        "reason": EVIL});
    let mut command = place.command(TIMMY);
    command.args(["-p", &format!("[[use bash {call}]] {EVIL}")]);
    let mut asked = OnTerminal::typed_before(command, "y\n");
    asked.until("approve? [y/N] ");
    asked.keys.write_all(b"n\n").unwrap();
    let shown = asked.end();
    assert_harmless("timmy -p", &shown);
    assert!(
        shown.contains("touch") && shown.contains("u{1b}[2J"),
        "{shown:?}"
    );
    assert!(shown.contains("denied: the user said no"), "{shown:?}");
    assert!(!ran.exists());

    // What the model itself says, and a tool's name.
    let mut command = place.command(TIMMY);
    let call = json!({}).to_string();
    command.args(["-p", &format!("{EVIL} [[use bash{EVIL} {call}]]")]);
    let shown = OnTerminal::start(command).end();
    assert_harmless("timmy -p", &shown);
    assert!(shown.contains("u{1b}[2J"), "{shown:?}");
}
