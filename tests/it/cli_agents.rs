//! `agentctl agents`: what is there, what can be added, and whether it answers.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    AGENTCTL, Daemon, Finished, Place, finish, is_alive, program, program_of, wait_for,
};

pub const SYSTEM: &str = "/usr/bin:/bin";

/// Answers `--version`, and counts how often it was asked.
fn counting(version: &str) -> String {
    format!(
        "echo \"$1\" >> \"$HOME/asked\"\ncase \"$1\" in --version) echo '{version}';; --help) echo 'app-server --input-format';; esac"
    )
}

pub fn start(place: Place) -> Daemon {
    let path = format!("{}:{SYSTEM}", place.path("bin").display());
    place.start_with(&[("PATH", &path)])
}

fn rows(listed: &Finished) -> Vec<Value> {
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let line: Value = serde_json::from_str(listed.stdout.trim()).unwrap();
    line["agents"].as_array().unwrap().clone()
}

pub fn row(daemon: &Daemon, name: &str) -> Value {
    let listed = daemon.agentctl(&["agents", "--json"]);
    let found = rows(&listed).into_iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {listed:?}"))
}

fn asked(daemon: &Daemon) -> Vec<String> {
    let asked = std::fs::read_to_string(daemon.path("home/asked")).unwrap_or_default();
    asked.lines().map(str::to_owned).collect()
}

#[test]
fn agents_are_found_with_their_version_and_login() {
    let place = Place::new("");
    let codex = program(&place.path("bin"), "codex", &counting("codex-cli 0.169.0"));
    let usual = place.path("home/.local/bin");
    let claude = program(&usual, "claude", &counting("2.1.329 (Claude Code)"));
    std::fs::create_dir(place.path("home/.codex")).unwrap();
    std::fs::write(place.path("home/.codex/auth.json"), "{\"tokens\":1}").unwrap();
    let daemon = start(place);
    let row = |name| row(&daemon, name);
    let found = row("codex");
    assert_eq!(found["found"], "path", "{found}");
    assert_eq!(found["command"][0], codex.to_str().unwrap());
    assert_eq!(found["command"][1], "app-server");
    assert_eq!(
        (&found["kind"], &found["version"], &found["logged_in"]),
        (&"codex".into(), &"0.169.0".into(), &true.into())
    );
    assert_eq!(found["usable"], true);
    let found = row("claude");
    assert_eq!(found["command"][0], claude.to_str().unwrap());
    assert_eq!(
        (&found["found"], &found["version"], &found["logged_in"]),
        (&"place".into(), &"2.1.329".into(), &false.into())
    );
    let missing = row("goose");
    assert_eq!(
        (&missing["found"], &missing["usable"]),
        (&"looked-for".into(), &false.into())
    );
    let shown = daemon.agentctl(&["agents"]).stdout;
    let line = shown
        .lines()
        .find(|line| line.starts_with("codex"))
        .unwrap();
    for word in ["0.169.0", "yes", "path", "app-server"] {
        assert!(line.contains(word), "{line}");
    }
}

#[test]
fn nothing_is_run_from_the_current_directory() {
    let place = Place::new("");
    let here = place.path("home");
    let witness = place.path("pwned");
    for name in ["claude", "codex", "node", "evil"] {
        program(&here, name, &format!("touch '{}'", witness.display()));
    }
    let node = program(&place.path("bin"), "env-node", "node");
    let config = format!(
        "[agents.node]\nkind = \"exec\"\ncommand = [{node:?}]\n[agents.evil]\nkind = \"exec\"\ncommand = [\"evil\"]\n"
    );
    place.configure(&config);
    // An empty entry of PATH and `.` both mean the current directory, which is the home here.
    let path = format!(":.:{SYSTEM}:");
    let daemon = place.start_with(&[("PATH", &path)]);
    for name in ["claude", "codex"] {
        assert_eq!(row(&daemon, name)["found"], "looked-for");
    }
    assert_eq!(row(&daemon, "evil")["usable"], false);
    // Nor does an agent find its interpreter there.
    let sent = daemon.agentctl(&["send", "--agent", "node", "hi"]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert!(!witness.exists());
}

#[test]
fn version_is_asked_once_until_the_program_changes() {
    let place = Place::new("");
    let bin = place.path("bin");
    program(&bin, "codex", &counting("codex-cli 0.1.0"));
    let daemon = start(place);
    // A daemon that only starts asks nobody.
    assert_eq!(daemon.status()["ok"], true);
    assert_eq!(asked(&daemon), Vec::<String>::new());
    let versions = |daemon: &Daemon| {
        let asked = asked(daemon);
        asked.iter().filter(|word| *word == "--version").count()
    };
    for _ in 0..3 {
        assert_eq!(row(&daemon, "codex")["version"], "0.1.0");
    }
    assert_eq!(versions(&daemon), 1);
    // Nor does the next daemon.
    let daemon = start(daemon.kill());
    assert_eq!(row(&daemon, "codex")["version"], "0.1.0");
    assert_eq!(versions(&daemon), 1);
    program(&bin, "codex", &counting("codex-cli 0.10.0"));
    assert_eq!(row(&daemon, "codex")["version"], "0.10.0");
    assert_eq!(versions(&daemon), 2);
}

#[test]
fn version_that_hangs_or_is_junk_delays_nobody() {
    let place = Place::new("");
    let bin = place.path("bin");
    let hangs = "echo $$ > \"$HOME/pid\"; sleep 300 & echo $! >> \"$HOME/pid\"; wait";
    program(&bin, "claude", hangs);
    program(&bin, "codex", "exec yes \u{1b}]0;junk");
    program(&bin, "pi", "printf '\\033[31mdev\\a build\\n'");
    let daemon = start(place);
    let listed = daemon.agentctl(&["agents", "--json"]);
    assert!(listed.took < Duration::from_secs(9), "{listed:?}");
    let rows = rows(&listed);
    let row_of = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(row_of("claude")["version"], Value::Null);
    let note = |row: &Value| row["note"].as_str().unwrap_or_default().to_owned();
    assert!(
        note(row_of("claude")).contains("still being asked"),
        "{rows:#?}"
    );
    let why_not = |row: &Value| row["why_not"].as_str().unwrap_or_default().to_owned();
    assert!(
        why_not(row_of("codex")).contains("printed more than"),
        "{rows:#?}"
    );
    assert_eq!(row_of("pi")["version"], "[31mdev build");
    // It may be usable all the same.
    assert_eq!(row_of("claude")["usable"], true);
    let later = wait_for("the probe gives up", || {
        let note = note(&row(&daemon, "claude"));
        note.contains("within 10 s").then_some(note)
    });
    assert!(later.contains("--version"), "{later}");
    let pids = std::fs::read_to_string(daemon.path("home/pid")).unwrap();
    for pid in pids.lines() {
        let pid = pid.parse().unwrap();
        wait_for("it is gone with what it started", || {
            (!is_alive(pid)).then_some(())
        });
    }
}

#[test]
fn a_stop_waits_for_no_probe() {
    let place = Place::new("");
    let hangs = "echo $$ > \"$HOME/pid\"; exec sleep 300";
    program(&place.path("bin"), "claude", hangs);
    let daemon = start(place);
    assert_eq!(rows(&daemon.agentctl(&["agents", "--json"])).len(), 9);
    let pid = std::fs::read_to_string(daemon.path("home/pid")).unwrap();
    let pid = pid.trim().parse().unwrap();
    assert!(is_alive(pid), "the probe has ended already");
    let stopped = daemon.agentctl(&["stop"]);
    assert!(stopped.took < Duration::from_secs(5), "{stopped:?}");
    wait_for("the probe is gone", || (!is_alive(pid)).then_some(()));
}

#[test]
fn version_without_a_daemon_is_awaited_within_limits() {
    let place = Place::new("");
    let bin = place.path("bin");
    // Longer than a daemon's answer waits.
    let slow =
        "case $1 in --version) sleep 4; echo 'codex-cli 1.2.3';; --help) echo app-server;; esac";
    program(&bin, "codex", slow);
    let list = |place: &Place| {
        let path = format!("{}:{SYSTEM}", place.path("bin").display());
        let mut command = place.command(AGENTCTL);
        command.env("PATH", path).args(["agents", "--json"]);
        let listed = finish(command, b"");
        (rows(&listed), listed.took)
    };
    let row_of = |rows: &[Value], name: &str| {
        let row = rows.iter().find(|row| row["name"] == name);
        row.unwrap().clone()
    };
    let (rows, _) = list(&place);
    assert_eq!(row_of(&rows, "codex")["version"], "1.2.3", "{rows:#?}");
    // The next one has it at once, and waits for the one that hangs alone.
    program(&bin, "claude", "echo $$ > \"$HOME/pid\"; exec sleep 300");
    let (rows, took) = list(&place);
    let note = row_of(&rows, "claude")["note"].clone();
    assert!(note.as_str().unwrap().contains("within 10 s"), "{note}");
    assert_eq!(row_of(&rows, "claude")["usable"], true);
    assert!(took < Duration::from_secs(15), "{took:?}");
    let pid = std::fs::read_to_string(place.path("home/pid")).unwrap();
    let pid = pid.trim().parse().unwrap();
    wait_for("the probe is gone", || (!is_alive(pid)).then_some(()));
}

#[test]
fn version_that_fails_is_told_in_its_words() {
    let place = Place::new("");
    let bin = place.path("bin");
    program(
        &bin,
        "hermes",
        "echo out; printf 'no \\033[1mpython\\n' >&2; exit 3",
    );
    program(&bin, "codex", "kill -SEGV $$");
    program(&bin, "goose", ":");
    let claude = |text: &str| program_of(&bin, "claude", text);
    claude("#!/usr/bin/env no-such-node");
    let daemon = start(place);
    let why = |name: &str| {
        let row = row(&daemon, name);
        assert_eq!(row["usable"], false, "{row}");
        row["why_not"].as_str().unwrap().to_owned()
    };
    let program = |name: &str| daemon.path("bin").join(name).display().to_string();
    assert_eq!(
        why("hermes"),
        format!(
            "`{} --version` exited with code 3: no [1mpython",
            program("hermes")
        )
    );
    assert_eq!(
        why("codex"),
        format!("`{} --version` was killed by signal 11", program("codex"))
    );
    assert_eq!(
        why("goose"),
        format!("`{} --version` printed nothing", program("goose"))
    );
    assert!(
        why("claude").contains("exited with code 127: "),
        "{}",
        why("claude")
    );
    assert!(why("claude").contains("no-such-node"), "{}", why("claude"));
    // The file is another, so it is asked at once.
    claude(
        "#!/bin/sh\ncase $1 in --version) echo '2.0 (Claude Code)';; --help) echo --input-format;; esac",
    );
    let mended = row(&daemon, "claude");
    assert_eq!(
        (&mended["usable"], &mended["version"]),
        (&true.into(), &"2.0".into()),
        "{mended}"
    );
    // Dead from the start on, it is not even chosen.
    claude("#!/no/such/node");
    let daemon = start(daemon.kill());
    let dead = row(&daemon, "claude");
    assert!(
        dead["why_not"]
            .as_str()
            .unwrap()
            .contains("a script for `/no/such/node`"),
        "{dead}"
    );
}

#[test]
fn program_of_an_agents_name_is_checked() {
    let place = Place::new("");
    let bin = place.path("bin");
    program(&bin, "pi", "echo 'pi 3.14159 (digits of pi)'");
    program(
        &bin,
        "codex",
        "case $1 in --version) echo 'codex-cli 1.0';; --help) echo app-server;; esac",
    );
    let daemon = start(place);
    let pi = row(&daemon, "pi");
    assert_eq!(pi["usable"], false, "{pi}");
    let why = pi["why_not"].as_str().unwrap();
    assert!(
        why.ends_with("is another program than the agent `pi`; it says: pi 3.14159 (digits of pi)"),
        "{why}"
    );
    // The next daemon knows from its start on that there is but one agent.
    let daemon = start(daemon.kill());
    let codex = row(&daemon, "codex");
    assert_eq!(
        (&codex["usable"], &codex["default"]),
        (&true.into(), &true.into())
    );
    let sent = daemon.agentctl(&["send", "--agent", "pi", "hi"]);
    assert_eq!(sent.code, Some(78), "{sent:?}");
    assert!(sent.stderr.contains("it says: pi 3.14159"), "{sent:?}");
}

#[test]
fn shim_is_asked_daily_and_when_lacking_something() {
    let place = Place::new("");
    let bin = place.path("bin");
    // What it starts changes, and its own file doesn't.
    let shim = "echo \"$1\" >> \"$HOME/asked\"; exec /bin/sh \"$HOME/tool\" \"$@\"";
    program(&bin, "goose", shim);
    let tool = |version: &str, help: &str| {
        let script = format!("case $1 in --version) echo {version};; --help) echo '{help}';; esac");
        std::fs::write(place.path("home/tool"), script).unwrap();
    };
    tool("1.0", "Configure goose settings");
    let kept = place.path("state/versions.json");
    let age = |seconds: u64| {
        let text = std::fs::read_to_string(&kept).unwrap();
        let mut kept_now: Value = serde_json::from_str(&text).unwrap();
        for known in kept_now.as_object_mut().unwrap().values_mut() {
            let asked = known["asked"].as_u64().unwrap();
            known["asked"] = (asked - seconds).into();
        }
        std::fs::write(&kept, kept_now.to_string()).unwrap();
    };
    let list = || {
        let path = format!("{}:{SYSTEM}", place.path("bin").display());
        let mut command = place.command(AGENTCTL);
        command.env("PATH", path).args(["agents", "--json"]);
        let rows = rows(&finish(command, b""));
        rows.into_iter().find(|row| row["name"] == "goose").unwrap()
    };
    let old = list();
    assert!(
        old["note"].as_str().unwrap().contains("has no `acp`"),
        "{old}"
    );
    tool("2.0", "Configure goose settings, acp");
    age(10);
    let new = list();
    assert_eq!(new["version"], "2.0", "{new}");
    assert_eq!(new["note"], Value::Null, "{new}");
    // The good news is believed, for a day.
    tool("3.0", "Configure goose settings, acp");
    age(3600);
    assert_eq!(list()["version"], "2.0");
    age(24 * 3600);
    assert_eq!(list()["version"], "3.0");
}

#[test]
fn environment_has_no_key_of_another_agent() {
    let place = Place::new("");
    let bin = place.path("bin");
    let said = "env | grep -c s3cret";
    let (own, other) = (program(&bin, "gemini", said), program(&bin, "goose", said));
    place.configure(&format!(
        "[agents.own]\nkind = \"exec\"\ncommand = [{own:?}]\n\
         [agents.other]\nkind = \"exec\"\ncommand = [{other:?}]\n\
         [agents.plain]\nkind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", {said:?}]\n"
    ));
    let env = place.path("env");
    std::fs::write(&env, "GEMINI_API_KEY=s3cret\n").unwrap();
    std::fs::set_permissions(&env, std::fs::Permissions::from_mode(0o600)).unwrap();
    let daemon = place.start_with(&[
        ("ANTHROPIC_API_KEY", "s3cret"),
        ("OPENAI_API_KEY", "s3cret"),
    ]);
    let text = |agent: &str| {
        let line = format!("{{\"agent\":\"{agent}\",\"prompt\":\"x\"}}");
        daemon.ask(&line).pop().unwrap()["text"].clone()
    };
    assert_eq!(
        (text("own"), text("other"), text("plain")),
        ("1".into(), "0".into(), "0".into())
    );
}

#[test]
fn agents_test_without_a_daemon_leaves_no_session() {
    let place = Place::new("[agents.echo]\nkind = \"exec\"\ncommand = [\"/bin/cat\"]\n");
    let tried = place.agentctl(&["agents", "test", "echo"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    let daemon = place.start();
    let sessions = daemon.agentctl(&["sessions", "--json"]);
    let page: Value = serde_json::from_str(sessions.stdout.trim()).unwrap();
    assert_eq!(page["sessions"], Value::Array(Vec::new()), "{sessions:?}");
}

#[test]
fn agents_test_exits_as_its_turn_does() {
    let daemon = Daemon::start();
    let tried = |args: &[&str]| daemon.agentctl(&[&["agents", "test"], args].concat());
    let ok = tried(&["timmy"]);
    assert_eq!(ok.code, Some(0), "{ok:?}");
    assert!(ok.stdout.contains("ready"), "{ok:?}");
    let failed = tried(&["chaos", "--prompt", "chaos:error on purpose"]);
    assert_eq!(
        (failed.code, failed.stdout.as_str()),
        (Some(1), ""),
        "{failed:?}"
    );
    let failed = tried(&["chaos", "--json", "--prompt", "chaos:error on purpose"]);
    let line: Value = serde_json::from_str(failed.stdout.trim()).unwrap();
    assert_eq!(
        (&line["ok"], &line["code"]),
        (&false.into(), &"invalid-request".into())
    );
    // It ends as soon as it is told to.
    let never = "sleep-ms 600000";
    let slow = format!("chaos:{never}");
    let slow = tried(&["chaos", "--timeout", "0.3", "--prompt", &slow]);
    assert_eq!(slow.code, Some(124), "{slow:?}");
    // What it told on its way there says more.
    let noted = format!("chaos:note no model;{never}");
    let told = tried(&["chaos", "--timeout", "2", "--prompt", &noted]);
    assert!(
        told.stderr
            .contains("the last that was heard of `chaos`: no model"),
        "{told:?}"
    );
    let unknown = tried(&["nobody"]);
    assert_eq!(unknown.code, Some(78), "{unknown:?}");
    // A try leaves no session behind.
    let sessions = daemon.agentctl(&["sessions", "--json"]);
    let page: Value = serde_json::from_str(sessions.stdout.trim()).unwrap();
    assert_eq!(page["sessions"], Value::Array(Vec::new()), "{sessions:?}");
}

#[test]
fn restart_without_a_daemon_says_nothing_to_do() {
    let place = Place::new("");
    let refused = place.agentctl(&["restart", "pi"]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(
        refused.stderr.contains("nothing to restart") && !refused.stderr.contains("agentctl start"),
        "{refused:?}"
    );
}
