//! `agentctl agents`: what is there, what can be added, and whether it answers.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::support::{AGENTCTL, AGENTD, Daemon, Finished, Place, finish, is_alive, wait_for};

const SYSTEM: &str = "/usr/bin:/bin";

/// A shell script that people would call an agent.
fn program(dir: &Path, name: &str, script: &str) -> PathBuf {
    std::fs::create_dir_all(dir).unwrap();
    let file = dir.join(name);
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file
}

/// Answers `--version`, and counts how often it was asked.
fn counting(version: &str) -> String {
    format!("echo \"$1\" >> \"$HOME/asked\"\ncase \"$1\" in --version) echo '{version}';; esac")
}

fn start(place: Place) -> Daemon {
    let path = format!("{}:{SYSTEM}", place.path("bin").display());
    place.start_with(&[("PATH", &path)])
}

fn rows(listed: &Finished) -> Vec<Value> {
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let line: Value = serde_json::from_str(listed.stdout.trim()).unwrap();
    line["agents"].as_array().unwrap().clone()
}

fn row(daemon: &Daemon, name: &str) -> Value {
    let listed = daemon.agentctl(&["agents", "--json"]);
    let found = rows(&listed).into_iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {listed:?}"))
}

fn asked(daemon: &Daemon) -> Vec<String> {
    let asked = std::fs::read_to_string(daemon.path("home/asked")).unwrap_or_default();
    asked.lines().map(str::to_owned).collect()
}

#[test]
fn agents_are_found_on_path_and_in_the_usual_places_with_their_version_and_login() {
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
    for name in ["claude", "codex", "node"] {
        program(&here, name, &format!("touch '{}'", witness.display()));
    }
    let node = program(&place.path("bin"), "env-node", "node");
    let config = format!("[agents.node]\nkind = \"exec\"\ncommand = [{node:?}]\n");
    place.configure(&config);
    // An empty entry of PATH and `.` both mean the current directory, which is the home here.
    let path = format!(":.:{SYSTEM}:");
    let daemon = place.start_with(&[("PATH", &path)]);
    for name in ["claude", "codex"] {
        assert_eq!(row(&daemon, name)["found"], "looked-for");
    }
    // Nor does an agent find its interpreter there.
    let sent = daemon.agentctl(&["send", "--agent", "node", "hi"]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    assert!(!witness.exists());
}

#[test]
fn a_program_is_asked_for_its_version_once_until_it_is_another() {
    let place = Place::new("");
    let bin = place.path("bin");
    program(&bin, "codex", &counting("0.1.0"));
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
    program(&bin, "codex", &counting("0.10.0"));
    assert_eq!(row(&daemon, "codex")["version"], "0.10.0");
    assert_eq!(versions(&daemon), 2);
}

#[test]
fn a_program_that_hangs_or_prints_junk_delays_nobody_for_long_and_leaves_nothing_behind() {
    let place = Place::new("");
    let bin = place.path("bin");
    let hangs = "echo $$ > \"$HOME/pid\"; sleep 300 & echo $! >> \"$HOME/pid\"; wait";
    program(&bin, "claude", hangs);
    program(&bin, "codex", "exec yes \u{1b}]0;junk");
    program(&bin, "hermes", "echo broken >&2; exit 3");
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
    assert!(
        note(row_of("codex")).contains("printed more than"),
        "{rows:#?}"
    );
    assert!(note(row_of("hermes")).contains("code 3"), "{rows:#?}");
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
    program(
        &place.path("bin"),
        "claude",
        "echo $$ > \"$HOME/pid\"; exec sleep 300",
    );
    let path = format!("{}:{SYSTEM}", place.path("bin").display());
    // Without a daemon, the one run ends the probe when it leaves.
    let mut command = place.command(AGENTCTL);
    command.env("PATH", path).args(["agents", "--json"]);
    let listed = finish(command, b"");
    assert!(listed.took < Duration::from_secs(9), "{listed:?}");
    assert_eq!(rows(&listed).len(), 9);
    let pid = std::fs::read_to_string(place.path("home/pid")).unwrap();
    let pid = pid.trim().parse().unwrap();
    wait_for("the probe is gone", || (!is_alive(pid)).then_some(()));
}

#[test]
fn a_program_without_its_long_lived_form_is_run_in_its_one_shot_form_from_the_next_start_on() {
    let place = Place::new("");
    let script = "case \"$1\" in --version) echo 0.9;; --help) echo 'usage: goose run';; run) shift; echo \"ran $*\";; esac";
    program(&place.path("bin"), "goose", script);
    let daemon = start(place);
    wait_for("its help was read", || {
        let note = row(&daemon, "goose")["note"].clone();
        note.as_str()?.contains("has no `acp`").then_some(())
    });
    let daemon = start(daemon.kill());
    assert_eq!(row(&daemon, "goose")["kind"], "exec");
    let sent = daemon.agentctl(&["send", "--agent", "goose", "hi"]);
    assert_eq!(
        sent.stdout.trim(),
        "ran --no-session --quiet --text=hi",
        "{sent:?}"
    );
}

#[test]
fn a_key_of_one_agent_is_in_no_other_ones_environment() {
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
fn agents_are_added_made_the_default_tested_and_removed_and_comments_stay() {
    let written = "# Mine, by hand.\n\n[agents.echo] # the first\nkind = \"exec\"\ncommand = [\"/bin/cat\"]\n";
    let place = Place::new(written);
    let config = || std::fs::read_to_string(place.path("config.toml")).unwrap();
    let done = |args: &[&str]| {
        let done = place.agentctl(&[&["agents"], args].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout
    };
    done(&[
        "add", "shout", "--kind", "exec", "--env", "A=b c", "--model", "m", "--", "tr", "a-z",
        "A-Z",
    ]);
    assert!(config().starts_with(written), "{}", config());
    assert!(config().ends_with(
        "[agents.shout]\nkind = \"exec\"\ncommand = [\"tr\", \"a-z\", \"A-Z\"]\nmodel = \"m\"\nenv = { A = \"b c\" }\n"
    ));
    done(&["default", "shout"]);
    assert!(
        config().starts_with(
            "# Mine, by hand.\ndefault_agent = \"shout\"\n\n[agents.echo] # the first\n"
        )
    );
    let sent = place.agentctl(&["send", "loud"]);
    assert_eq!(sent.stdout.trim(), "LOUD", "{sent:?}");

    let said = done(&["test", "shout"]);
    assert!(
        said.starts_with("`shout` answered in ") && said.contains("READY"),
        "{said}"
    );
    let json = done(&["test", "echo", "--json", "--prompt", "ping"]);
    let tried: Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!(
        (&tried["ok"], &tried["text"], &tried["agent"]),
        (&true.into(), &"ping".into(), &"echo".into())
    );

    let refused = place.agentctl(&["agents", "remove", "shout"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("`agentctl agents default OTHER` first"),
        "{refused:?}"
    );
    done(&["default", "echo"]);
    let json = done(&["remove", "shout", "--json"]);
    let removed: Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!(
        (&removed["done"], &removed["agent"]),
        (&"removed".into(), &"shout".into())
    );
    assert_eq!(
        config().trim_end(),
        written
            .replace("hand.\n", "hand.\ndefault_agent = \"echo\"\n")
            .trim_end()
    );
}

#[test]
fn a_try_without_a_daemon_leaves_no_session_behind_either() {
    let place = Place::new("[agents.echo]\nkind = \"exec\"\ncommand = [\"/bin/cat\"]\n");
    let tried = place.agentctl(&["agents", "test", "echo"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    let daemon = place.start();
    let sessions = daemon.agentctl(&["sessions", "--json"]);
    let page: Value = serde_json::from_str(sessions.stdout.trim()).unwrap();
    assert_eq!(page["sessions"], Value::Array(Vec::new()), "{sessions:?}");
}

#[test]
fn a_test_fails_with_the_exit_code_of_its_turn() {
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
    let slow = tried(&["chaos", "--timeout", "0.3", "--prompt", "chaos:hang"]);
    assert_eq!(slow.code, Some(124), "{slow:?}");
    let unknown = tried(&["nobody"]);
    assert_eq!(unknown.code, Some(78), "{unknown:?}");
    // A try leaves no session behind.
    let sessions = daemon.agentctl(&["sessions", "--json"]);
    let page: Value = serde_json::from_str(sessions.stdout.trim()).unwrap();
    assert_eq!(page["sessions"], Value::Array(Vec::new()), "{sessions:?}");
}

#[test]
fn a_broken_file_is_refused_with_its_line_and_a_secret_with_what_to_do() {
    let broken = "[agents.a]\nkind = \"exec\"\ncomand = [\"/bin/cat\"]\n";
    let place = Place::new(broken);
    let refused = place.agentctl(&["agents", "add", "x", "--kind", "exec", "--", "cat"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("config.toml:3: unknown key `agents.a.comand`"),
        "{refused:?}"
    );
    let config = || std::fs::read_to_string(place.path("config.toml")).unwrap();
    assert_eq!(config(), broken);
    place.configure("");
    let refused = place.agentctl(&[
        "agents",
        "add",
        "x",
        "--kind",
        "exec",
        "--env",
        "X_API_KEY=s3cret",
        "--",
        "cat",
    ]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("--pass-env X_API_KEY") && !refused.stderr.contains("s3cret"),
        "{refused:?}"
    );
    let key = "--api-key=sk-s3cret";
    let refused = place.agentctl(&["agents", "add", "x", "--kind", "exec", "--", "cat", key]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("--pass-env") && !refused.stderr.contains("s3cret"),
        "{refused:?}"
    );
    assert_eq!(config(), "");
    let usage = finish(place.command(AGENTD).arg_words(&["agents", "add"]), b"");
    assert_eq!(usage.code, Some(2), "{usage:?}");
}

#[test]
fn what_is_no_file_is_never_replaced_by_one() {
    let place = Place::new("");
    let file = place.path("config.toml");
    let add = ["agents", "add", "x", "--kind", "exec", "--", "cat"];
    for nowhere in [true, false] {
        std::fs::remove_file(&file).unwrap();
        if nowhere {
            std::os::unix::fs::symlink(place.path("nowhere/config.toml"), &file).unwrap();
        } else {
            nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        let refused = place.agentctl(&add);
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert!(refused.stderr.contains("expected a file"), "{refused:?}");
        let kind = std::fs::symlink_metadata(&file).unwrap().file_type();
        assert!(!kind.is_file(), "{kind:?}");
    }
    std::fs::remove_file(&file).unwrap();
    let mut command = place.command(AGENTCTL);
    command.args(add).env("AGENTD_CONFIG", "relative.toml");
    let home = command.get_current_dir().unwrap().to_owned();
    let added = finish(command, b"");
    assert_eq!(added.code, Some(0), "{added:?}");
    let text = std::fs::read_to_string(home.join("relative.toml")).unwrap();
    assert!(text.contains("[agents.x]"), "{text}");
}

#[test]
fn agents_that_are_added_at_once_are_all_there() {
    let place = Place::new("");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let place = &place;
            scope.spawn(move || {
                let name = format!("a{number}");
                let words = ["agents", "add", &name, "--kind", "exec", "--", "cat"];
                let added = place.agentctl(&words);
                assert_eq!(added.code, Some(0), "{added:?}");
            });
        }
    });
    let config = std::fs::read_to_string(place.path("config.toml")).unwrap();
    let there = (0..8).filter(|number| config.contains(&format!("[agents.a{number}]")));
    assert_eq!(there.count(), 8, "{config}");
}

#[test]
fn a_daemon_that_runs_is_told_of_no_change_and_the_note_says_so() {
    let daemon = Daemon::start();
    let added = daemon.agentctl(&["agents", "add", "x", "--kind", "exec", "--", "cat"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(
        added.stderr.contains("`agentctl stop`, then `agentd`"),
        "{added:?}"
    );
    let tried = daemon.agentctl(&["agents", "test", "x"]);
    assert_eq!(tried.code, Some(78), "{tried:?}");
    let daemon = daemon.kill().start();
    let tried = daemon.agentctl(&["agents", "test", "x"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
}

/// Arguments in the middle of an expression.
trait Words {
    fn arg_words(self, words: &[&str]) -> Self;
}

impl Words for std::process::Command {
    fn arg_words(mut self, words: &[&str]) -> Self {
        self.args(words);
        self
    }
}
