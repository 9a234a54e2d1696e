//! Agents whose programs lack their long-lived form are run in their exec form, at once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cli_agents::{SYSTEM, row, start};
use crate::support::{AGENTCTL, Daemon, Finished, Place, finish, is_alive, program, wait_for};

/// Programs of before their long-lived form: what each is asked is written down.
const OLD: [(&str, &str); 2] = [
    (
        "codex",
        r#"echo "$1" >> "$HOME/asked"
case "$1" in
--version) echo 'codex-cli 0.9.0';;
--help) echo 'Codex CLI: exec, login, help';;
exec) echo "once: $(cat)";;
*) echo "error: unrecognized subcommand '$1'" >&2; exit 2;;
esac"#,
    ),
    (
        "claude",
        r#"case "$*" in *--input-format*) set -- long;; esac
echo "$1" >> "$HOME/asked"
case "$1" in
--version) echo '0.2.1 (Claude Code)';;
--help) echo 'Usage: claude [options] [prompt]: -p, --print, --model';;
-p) echo "once: $(cat)";;
*) echo "error: unknown option '--input-format'" >&2; exit 1;;
esac"#,
    ),
];

fn asked(home: &std::path::Path) -> Vec<String> {
    let asked = std::fs::read_to_string(home.join("asked")).unwrap_or_default();
    asked.lines().map(str::to_owned).collect()
}

/// The word of its long-lived form, as it is written down; and that of the other.
fn forms(name: &str) -> (&'static str, &'static str) {
    match name {
        "codex" => ("app-server", "exec"),
        _ => ("long", "-p"),
    }
}

fn lacks(name: &str) -> &'static str {
    match name {
        "codex" => "this version has no `app-server`: its exec form is run",
        _ => "this version has no `--input-format`: its exec form is run",
    }
}

fn last(lines: &[Value]) -> &Value {
    lines.last().expect("a final line")
}

fn restarts(daemon: &Daemon) -> Value {
    daemon.status()["rpc"]["restarts"].clone()
}

#[test]
fn exec_form_answers_the_first_turn_and_later() {
    for (name, script) in OLD {
        let place = Place::new("");
        program(&place.path("bin"), name, script);
        let daemon = start(place);
        let send = |text: &str, session: &str| {
            let line = json!({"type": "send", "text": text, "agent": name, "session": session, "stream": true});
            daemon.ask(&line.to_string())
        };
        let lines = send("first", "s");
        assert_eq!(last(&lines)["text"], "once: first", "{lines:#?}");
        assert_eq!(last(&lines)["attempt"], 1);
        let notes = lines.iter().filter(|line| line["type"] == "note");
        let notes: Vec<_> = notes.map(|note| note["text"].clone()).collect();
        assert_eq!(notes, [lacks(name)], "{lines:#?}");
        let (long, once) = forms(name);
        let expected = [long, "--version", "--help", once];
        assert_eq!(asked(&daemon.path("home")), expected);
        assert_eq!(restarts(&daemon), 0);

        for session in ["s", "t"] {
            let lines = send("again", session);
            assert_eq!(last(&lines)["text"], "once: again", "{lines:#?}");
        }
        let now = asked(&daemon.path("home"));
        assert_eq!(now[4..], [once, once], "{now:?}");
        let listed = row(&daemon, name);
        assert_eq!(
            (&listed["kind"], &listed["usable"]),
            (&json!("exec"), &json!(true))
        );
        assert_eq!(listed["note"], lacks(name), "{listed:#}");
        // What only the other form could do.
        let refused = daemon.ask(
            &json!({"type": "send", "text": "x", "agent": name, "thinking": "high"}).to_string(),
        );
        assert_eq!(last(&refused)["code"], "unsupported", "{refused:#?}");
        // The next daemon knows it from its start on, and says it as well.
        let daemon = start(daemon.kill());
        let before = asked(&daemon.path("home")).len();
        let sent = daemon.agentctl(&["send", "--agent", name, "new"]);
        assert_eq!(sent.stdout.trim(), "once: new", "{sent:?}");
        assert_eq!(asked(&daemon.path("home"))[before..], [once]);
        assert_eq!(row(&daemon, name)["note"], lacks(name));
        // One that was upgraded is run in its long-lived form again.
        let newer = script
            .replace("exec, login", "app-server")
            .replace("-p, --print", "--input-format");
        program(&daemon.path("bin"), name, &newer);
        let listed = row(&daemon, name);
        assert_eq!(listed["kind"], name, "{listed:#}");
        assert_eq!(listed["note"], Value::Null, "{listed:#}");
    }
}

fn send_alone(place: &Place, name: &str) -> Finished {
    let path = format!("{}:{SYSTEM}", place.path("bin").display());
    let mut command = place.command(AGENTCTL);
    command
        .env("PATH", path)
        .args(["send", "--agent", name, "hi"]);
    finish(command, b"")
}

#[test]
fn exec_form_without_a_daemon_is_remembered() {
    for (name, script) in OLD {
        let place = Place::new("");
        program(&place.path("bin"), name, script);
        let (long, once) = forms(name);
        for asks in [&[long, "--version", "--help", once][..], &[once]] {
            let before = asked(&place.path("home")).len();
            let sent = send_alone(&place, name);
            assert_eq!(sent.code, Some(0), "{sent:?}");
            assert_eq!(sent.stdout.trim(), "once: hi", "{sent:?}");
            assert_eq!(asked(&place.path("home"))[before..], *asks);
        }
    }
}

#[test]
fn exec_form_found_by_a_list_is_used() {
    let place = Place::new("");
    let (name, script) = OLD[0];
    program(&place.path("bin"), name, script);
    let daemon = start(place);
    let listed = row(&daemon, name);
    assert_eq!(listed["kind"], "exec", "{listed:#}");
    assert_eq!(listed["command"][1], "exec", "{listed:#}");
    assert_eq!(listed["note"], lacks(name));
    let sent = daemon.agentctl(&["send", "--agent", name, "hi"]);
    assert_eq!(sent.stdout.trim(), "once: hi", "{sent:?}");
    assert_eq!(asked(&daemon.path("home")), ["--version", "--help", "exec"]);
}

#[test]
fn exec_form_by_path_says_what_it_lacks() {
    let place = Place::new("");
    let (name, script) = OLD[0];
    program(&place.path("bin"), name, script);
    let config = format!(
        "[agents.mine]\nkind = \"codex\"\ncommand = [{:?}]\nprovider = \"p\"\n",
        place.path("bin").join(name)
    );
    place.configure(&config);
    let daemon = start(place);
    let sent = daemon.agentctl(&["send", "--agent", "mine", "hi"]);
    assert!(sent.stderr.contains("provider"), "{sent:?}");
    let note = row(&daemon, "mine")["note"].clone();
    let note = note.as_str().unwrap_or_default();
    for part in [lacks(name), "can't be told the `provider` of config.toml"] {
        assert!(note.contains(part), "{note}");
    }
}

#[test]
fn exec_form_is_not_for_crashing_programs() {
    // Each waits between its starts, so all do at once.
    std::thread::scope(|scope| {
        for (help, at_most) in [
            ("echo 'Codex CLI: app-server, exec'", 1),
            // Bad news holds for a moment only.
            ("kill -9 $$", 2),
            ("exit 3", 2),
            ("echo 'Error: no configuration' >&2; exit 1", 2),
        ] {
            scope.spawn(move || stays_long_lived(help, at_most));
        }
    });
}

/// Of a program that crashes, whatever its help says, which is asked for so often.
fn stays_long_lived(help: &str, at_most: usize) {
    let script = format!(
        "echo \"$1\" >> \"$HOME/asked\"\ncase \"$1\" in --version) echo 'codex-cli 1.0';; --help) {help};; exec) echo no;; *) echo 'no such luck' >&2; exit 2;; esac"
    );
    let place = Place::new("");
    program(&place.path("bin"), "codex", &script);
    let daemon = start(place);
    let sent = daemon.agentctl(&["send", "--agent", "codex", "hi"]);
    assert_eq!(sent.code, Some(1), "{help}: {sent:?}");
    for part in ["exited with code 2", "no such luck"] {
        assert!(sent.stderr.contains(part), "{help}: {sent:?}");
    }
    let asked = asked(&daemon.path("home"));
    let of = |word: &str| asked.iter().filter(|asked| *asked == word).count();
    assert_eq!((of("app-server"), of("exec")), (3, 0), "{help}: {asked:?}");
    assert!((1..=at_most).contains(&of("--help")), "{help}: {asked:?}");
}

#[test]
fn a_stop_waits_for_no_help() {
    let place = Place::new("");
    let script = "case \"$1\" in --version) echo 'codex-cli 1.0';; --help) echo $$ > \"$HOME/pid\"; exec sleep 300;; *) exit 2;; esac";
    program(&place.path("bin"), "codex", script);
    let daemon = start(place);
    let mut client = daemon.connect();
    client.send(r#"{"type":"send","text":"x","agent":"codex"}"#);
    let pid = wait_for("its help is asked", || {
        let pid = std::fs::read_to_string(daemon.path("home/pid")).ok()?;
        pid.trim().parse().ok()
    });
    assert!(is_alive(pid));
    let stopped = daemon.agentctl(&["stop"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(stopped.took < Duration::from_secs(4), "{stopped:?}");
    wait_for("the help is gone", || (!is_alive(pid)).then_some(()));
}
