//! `agentctl` as scripts and people meet it: text, JSON, exit codes, Ctrl-C.

use std::io::{BufRead as _, BufReader};
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::supervision::{chaos_in, pid_of, row, with_marks};
use crate::support::{AGENTCTL, DEADLINE, Daemon, Finished, Place, Reaped, finish, kill, wait_for};

/// An `agentctl` that still runs.
struct Running {
    child: Reaped,
    lines: Receiver<String>,
}

impl Running {
    fn start(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command(AGENTCTL);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = Reaped(command.spawn().unwrap());
        let (sender, lines) = sync_channel(1024);
        let stdout = child.0.stdout.take().unwrap();
        std::thread::spawn(move || {
            let read = BufReader::new(stdout).lines().map_while(Result::ok);
            read.for_each(|line| drop(sender.send(line)));
        });
        Self { child, lines }
    }

    /// The first line that fits.
    fn until(&self, fact: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.recv_timeout(DEADLINE).expect("a line that fits");
            let line: Value = serde_json::from_str(&line).unwrap();
            if fact(&line) {
                return line;
            }
        }
    }

    fn interrupt(&self) {
        kill(self.child.0.id(), Signal::SIGINT);
    }

    fn ended(&mut self) -> ExitStatus {
        wait_for("agentctl leaves", || self.child.0.try_wait().unwrap())
    }
}

fn json_lines(finished: &Finished) -> Vec<Value> {
    finished
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect()
}

fn is(kind: &str) -> impl Fn(&Value) -> bool {
    move |line| line["type"] == kind
}

#[test]
fn the_exit_code_says_what_became_of_it() {
    let daemon = Daemon::start();
    let table: &[(i32, &[&str])] = &[
        (0, &["send", "hi"]),
        (0, &["send", "--agent", "chaos", "hi"]),
        (1, &["send", "--agent", "chaos", "chaos:exit 1"]),
        (1, &["send", "--agent", "chaos", "chaos:no-such-directive"]),
        (2, &["send", "--no-such-option", "hi"]),
        (2, &["send", "  "]),
        (2, &["no-such-command"]),
        (2, &["collect", "j999"]),
        (2, &["send", "hi", "--session", "not a name"]),
        (2, &["send", "hi", "--cwd", "/nowhere/at/all"]),
        (3, &["send", "--session", "taken", "--agent", "timmy", "hi"]),
        (78, &["send", "--agent", "nobody", "hi"]),
        (78, &["send", "--agent", "claude", "hi"]),
        (
            124,
            &[
                "send",
                "--agent",
                "chaos",
                "--timeout",
                "0.1",
                "chaos:wait-file /nowhere",
            ],
        ),
    ];
    chaos_in(&daemon, "hi", Some("taken"));
    for (code, args) in table {
        let finished = daemon.agentctl(args);
        assert_eq!(finished.code, Some(*code), "{args:?}: {finished:?}");
        assert_eq!(
            finished.stderr.contains("error: "),
            *code != 0,
            "{args:?}: {finished:?}"
        );
    }
}

#[test]
fn cli_error_is_a_sentence_and_a_hint() {
    let daemon = Daemon::start();
    let failed = daemon.agentctl(&["send", "--agent", "chaox", "hi"]);
    assert_eq!(failed.stdout, "");
    assert_eq!(
        failed.stderr,
        "error: there is no agent `chaox`\nhint: did you mean `chaos`?\n"
    );
    let failed = daemon.agentctl(&["send", "--agent", "chaos", "chaos:say so far;exit 4"]);
    assert_eq!(failed.stdout, "so far\n");
    assert!(
        failed
            .stderr
            .starts_with("error: agent `chaos` exited with code 4 while running job j")
            && failed.stderr.contains("\nhint: "),
        "{failed:?}"
    );
}

#[test]
fn cli_without_a_daemon_it_needs_exits_69() {
    let place = Place::new(&Daemon::config(""));
    for args in [
        &["status"][..],
        &["abort"],
        &["collect", "j1"],
        &["drain"],
        &["send", "--no-fallback", "hi"],
        &["watch"],
    ] {
        let finished = place.agentctl(args);
        assert_eq!(finished.code, Some(69), "{args:?}: {finished:?}");
        assert!(
            finished.stdout.is_empty() && finished.stderr.starts_with("error: "),
            "{args:?}: {finished:?}"
        );
    }
}

#[test]
fn cli_busy_session_and_used_key_exit_3() {
    let daemon = Daemon::start();
    let mut busy = daemon.connect();
    busy.send(
        r#"{"type":"send","agent":"chaos","session":"s","text":"chaos:say x;wait-file /nowhere"}"#,
    );
    busy.until("message_delta");
    let refused = daemon.agentctl(&[
        "send",
        "--agent",
        "chaos",
        "--session",
        "s",
        "--mode",
        "reject",
        "hi",
    ]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    let keyed = |text: &str| daemon.agentctl(&["send", "--idempotency-key", "k1", "--json", text]);
    assert_eq!(keyed("one").code, Some(0));
    let again = keyed("one");
    let lines = json_lines(&again);
    assert_eq!(
        (again.code, &lines.last().unwrap()["replayed"]),
        (Some(0), &json!(true)),
        "{again:?}"
    );
    assert_eq!(keyed("two").code, Some(3));
}

#[test]
fn cli_lost_daemon_is_unknown_until_asked_again() {
    let daemon = with_marks("").start();
    let args = [
        "send",
        "--agent",
        "chaos",
        "--json",
        "--idempotency-key",
        "the-key",
        "chaos:ledger;say x;wait-file /nowhere",
    ];
    let mut running = Running::start(&daemon.place, &args);
    running.until(is("message_delta"));
    let mut stderr = running.child.0.stderr.take().unwrap();
    let daemon = daemon.kill();
    assert_eq!(running.ended().code(), Some(75));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
    assert!(said.contains("the-key"), "{said}");
    let daemon = daemon.start();
    let again = daemon.agentctl(&args);
    let lines = json_lines(&again);
    let last = lines.last().unwrap();
    assert_eq!(
        (again.code, &last["code"], &last["replayed"]),
        (Some(1), &json!("interrupted"), &json!(true)),
        "{again:?}"
    );
    let ledger = std::fs::read_to_string(daemon.path("ledger")).unwrap();
    assert_eq!(ledger.lines().count(), 1, "{ledger}");
}

#[test]
fn cli_ctrl_c_aborts_and_a_second_leaves() {
    let daemon = Daemon::start();
    let args = |script| {
        [
            "send",
            "--agent",
            "chaos",
            "--session",
            "s",
            "--json",
            script,
        ]
    };
    let mut running = Running::start(&daemon.place, &args("chaos:say begun;wait-file /nowhere"));
    running.until(is("message_delta"));
    running.interrupt();
    let last = running.until(is("message_end"));
    assert_eq!(
        (&last["stop"], &last["text"]),
        (&json!("cancelled"), &json!("begun"))
    );
    assert_eq!(running.ended().code(), Some(130));

    // This one doesn't listen: only the second Ctrl-C gets us out before it has been replaced.
    let mut running = Running::start(&daemon.place, &args("chaos:say begun;hang"));
    running.until(is("message_delta"));
    running.interrupt();
    daemon.until("the abort was asked for", |status| {
        (row(status, "chaos")?["state"] == "settling").then_some(())
    });
    assert!(
        running.child.0.try_wait().unwrap().is_none(),
        "it waits for the turn's end"
    );
    running.interrupt();
    assert_eq!(running.ended().code(), Some(130));
}

#[test]
fn ctrl_c_ends_a_one_shots_turn_too() {
    let place = with_marks("");
    let mut running = Running::start(
        &place,
        &[
            "send",
            "--agent",
            "chaos",
            "--json",
            "chaos:say begun;wait-file /nowhere",
        ],
    );
    running.until(is("message_delta"));
    running.interrupt();
    let last = running.until(is("message_end"));
    assert_eq!(
        (&last["stop"], &last["served_by"]),
        (&json!("cancelled"), &json!("oneshot"))
    );
    assert_eq!(running.ended().code(), Some(130));
    wait_for("nothing is left behind", || {
        crate::supervision::workers_of(&place)
            .is_empty()
            .then_some(())
    });
}

#[test]
fn json_is_the_protocols_own_lines() {
    let daemon = Daemon::start();
    let sent = daemon.agentctl(&[
        "send",
        "--agent",
        "chaos",
        "--session",
        "main",
        "--json",
        "chaos:tool ro;say hi",
    ]);
    let lines = json_lines(&sent);
    let kinds: Vec<&str> = lines
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        (kinds.first(), kinds.last()),
        (Some(&"accepted"), Some(&"message_end")),
        "{kinds:?}"
    );
    assert!(
        kinds.contains(&"tool_start") && kinds.contains(&"message_delta"),
        "{kinds:?}"
    );
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["text"], &last["session"], &last["served_by"]),
        (&json!("hi"), &json!("main"), &json!("daemon"))
    );
    for (args, kind) in [
        (&["status", "--json"][..], "status"),
        (&["agents", "--json"], "agents"),
        (&["abort", "--json"], "abort"),
        (&["collect", "--json", "j1"], "collect"),
    ] {
        let lines = json_lines(&daemon.agentctl(args));
        assert_eq!(
            (lines.len(), &lines[0]["type"], &lines[0]["ok"]),
            (1, &json!(kind), &json!(true)),
            "{lines:#?}"
        );
    }
}

#[test]
fn cli_alias_prints_the_same_without_a_daemon() {
    let place = Place::new(&Daemon::config(""));
    let args = [
        "agent",
        "--message",
        "hi",
        "--thinking",
        "low",
        "--session",
        "main",
        "--deliver",
        "--json",
    ];
    let shape = |finished: &Finished, served: &str| {
        assert_eq!(finished.code, Some(0), "{finished:?}");
        let lines = json_lines(finished);
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert_eq!(
            lines[0]["payloads"],
            json!([{"text": "hi", "mediaUrl": null}])
        );
        assert_eq!(
            (&lines[0]["meta"]["session"], &lines[0]["meta"]["served_by"]),
            (&json!("main"), &json!(served)),
            "{lines:#?}"
        );
    };
    shape(&place.agentctl(&args), "oneshot");
    shape(&place.start().agentctl(&args), "daemon");
}

#[test]
fn cli_status_rpc_tells_living_workers_by_code() {
    let daemon = Daemon::start();
    assert_eq!(daemon.agentctl(&["status", "--rpc"]).code, Some(1));
    chaos_in(&daemon, "hi", Some("s"));
    let live = daemon.agentctl(&["status", "--rpc"]);
    assert_eq!(live.code, Some(0), "{live:?}");
    let status = daemon.agentctl(&["status"]);
    assert!(
        status.stdout.contains("chaos")
            && status
                .stdout
                .contains(&pid_of(&daemon, "chaos").to_string()),
        "{status:?}"
    );
    assert_eq!(daemon.kill().agentctl(&["status", "--rpc"]).code, Some(69));
}

#[test]
fn cli_agents_says_why_one_is_not_usable() {
    let daemon = Daemon::start();
    let listed = daemon.agentctl(&["agents", "--all"]);
    let line = |name: &str| {
        listed
            .stdout
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{listed:?}"))
    };
    assert!(
        line("timmy (default)").contains("yes") && line("chaos").contains("yes"),
        "{listed:?}"
    );
    assert!(line("claude: ").contains("PATH"), "{listed:?}");
}

#[test]
fn watch_shows_what_another_client_does() {
    let daemon = Daemon::start();
    let watching = Running::start(&daemon.place, &["watch", "--json"]);
    watching.until(is("live"));
    assert_eq!(daemon.agentctl(&["send", "seen by others"]).code, Some(0));
    let accepted = watching.until(is("accepted"));
    let last = watching.until(is("message_end"));
    assert_eq!(
        (&last["text"], &last["job"]),
        (&json!("seen by others"), &accepted["job"])
    );
    assert!(last["seq"].as_u64() > accepted["seq"].as_u64());
}

#[test]
fn cli_stdio_relays_lines_and_falls_back() {
    let daemon = Daemon::start();
    let input =
        b"{\"type\":\"send\",\"id\":\"a\",\"text\":\"one\"}\n{\"type\":\"ping\",\"id\":2}\n";
    let relay = |place: &Place| {
        let mut command = place.command(AGENTCTL);
        command.arg("stdio");
        finish(command, input)
    };
    let check = |finished: &Finished, served: &str| {
        assert_eq!(finished.code, Some(0), "{finished:?}");
        let lines = json_lines(finished);
        let last = lines
            .iter()
            .find(|line| line["type"] == "message_end")
            .unwrap_or_else(|| panic!("{lines:#?}"));
        assert_eq!(
            (&last["id"], &last["text"], &last["served_by"]),
            (&json!("a"), &json!("one"), &json!(served))
        );
        assert!(
            lines
                .iter()
                .any(|line| line["type"] == "pong" && line["id"] == 2),
            "{lines:#?}"
        );
    };
    check(&relay(&daemon.place), "daemon");
    let place = daemon.kill();
    check(&relay(&place), "oneshot");
}

#[test]
fn the_prompt_may_come_from_a_pipe() {
    let daemon = Daemon::start();
    for args in [
        &["send", "--agent", "chaos", "-"][..],
        &["send", "--agent", "chaos"],
    ] {
        let mut command = daemon.place.command(AGENTCTL);
        command.args(args);
        let sent = finish(command, "from a pipe: ü\nsecond line".as_bytes());
        assert_eq!(
            (sent.code, sent.stdout.as_str()),
            (Some(0), "from a pipe: ü\nsecond line\n"),
            "{sent:?}"
        );
    }
}

#[test]
fn config_show_names_each_values_origin() {
    let place = Place::new("default_agent = \"timmy\"\n[agents.timmy]\nprovider = \"echo\"\n");
    let shown = place.agentctl(&["config", "show"]);
    let line = shown
        .stdout
        .lines()
        .find(|line| line.starts_with("default_agent = "))
        .unwrap_or_else(|| panic!("{shown:?}"));
    assert!(
        line.contains("timmy") && line.contains("config.toml:1"),
        "{line}"
    );
    let rows = json_lines(&place.agentctl(&["config", "show", "--json"])).remove(0);
    assert!(
        rows.as_array()
            .unwrap()
            .iter()
            .any(|row| row["key"] == "default_agent" && row["value"].to_string().contains("timmy")),
        "{rows:#}"
    );
}

#[test]
fn cli_wrong_configuration_is_78_with_its_line() {
    let place = Place::new("# mine\ndefault_agnet = \"timmy\"\n");
    for args in [&["config", "show"][..], &["send", "hi"]] {
        let failed = place.agentctl(args);
        assert_eq!(failed.code, Some(78), "{args:?}: {failed:?}");
        assert!(
            failed.stderr.contains("default_agnet")
                && failed.stderr.contains("default_agent")
                && failed.stderr.contains("config.toml:2"),
            "{args:?}: {failed:?}"
        );
    }
}

#[test]
fn aborting_draining_restarting_and_stopping_by_hand() {
    let daemon = Daemon::start();
    let mut turn = daemon.connect();
    turn.send(
        r#"{"type":"send","agent":"chaos","session":"s","text":"chaos:say x;wait-file /nowhere"}"#,
    );
    let job = turn.until("message_delta").remove(0)["job"]
        .as_str()
        .unwrap()
        .to_owned();
    let aborted = daemon.agentctl(&["abort"]);
    assert_eq!(
        (aborted.code, aborted.stdout),
        (Some(0), format!("aborted {job}\n"))
    );
    turn.until("message_end");
    let collected = daemon.agentctl(&["collect", &job]);
    assert!(
        collected
            .stdout
            .starts_with(&format!("{job} cancelled (chaos)\nx\n")),
        "{collected:?}"
    );
    assert_eq!(daemon.agentctl(&["abort"]).stdout, "nothing was running\n");
    let before = pid_of(&daemon, "chaos");
    assert_eq!(daemon.agentctl(&["restart", "chaos"]).code, Some(0));
    assert_ne!(pid_of(&daemon, "chaos"), before);
    assert_eq!(daemon.agentctl(&["drain"]).code, Some(0));
    assert_eq!(daemon.status()["state"], "draining");
    assert_eq!(daemon.agentctl(&["undrain"]).code, Some(0));
    assert_eq!(daemon.status()["state"], "ready");
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    assert_eq!(daemon.left().1.code(), Some(0));
}

#[test]
fn cli_on_an_empty_machine_says_what_helps() {
    let empty = |place: &Place| {
        let mut command = place.command(AGENTCTL);
        command.args(["send", "hi"]).env("PATH", place.path("home"));
        finish(command, b"")
    };
    let check = |finished: &Finished| {
        assert_eq!(
            (finished.code, finished.stdout.as_str()),
            (Some(78), ""),
            "{finished:?}"
        );
        // A person would take it for a hang; the patience for a silent daemon would show, too.
        assert!(finished.took < Duration::from_secs(2), "{finished:?}");
        for word in [
            "config.toml",
            "KIMI_API_KEY",
            "agentctl provider add",
            "agentctl agents",
            "agentctl demo",
        ] {
            assert!(
                finished.stderr.contains(word),
                "`{word}` is not in: {}",
                finished.stderr
            );
        }
    };
    let place = Place::new("");
    check(&empty(&place));
    let nothing = place.path("home").display().to_string();
    let daemon = place.start_with(&[("PATH", &nothing)]);
    check(&empty(&daemon.place));
}

#[test]
fn cli_named_configuration_that_is_missing_fails() {
    let place = Place::new("");
    std::fs::remove_file(place.path("config.toml")).unwrap();
    let finished = finish(place.command(crate::support::AGENTD), b"");
    assert_eq!(finished.code, Some(78), "{finished:?}");
    assert!(finished.stderr.contains("config.toml"), "{finished:?}");
}

#[test]
fn help_and_completions_are_answers() {
    let place = Place::new("");
    for args in [
        &["--help"][..],
        &["send", "--help"],
        &["--version"],
        &["completions", "bash"],
        &["completions", "zsh"],
        &["completions", "fish"],
    ] {
        let said = place.agentctl(args);
        assert_eq!(
            (said.code, said.stderr.as_str()),
            (Some(0), ""),
            "{args:?}: {said:?}"
        );
        assert!(said.stdout.contains("agentctl"), "{args:?}");
    }
}
