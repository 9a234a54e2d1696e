//! What the daemon logs, where, and what it never does: `agentctl logs` and `log-level`, with the
//! file, and with a real journal where one can be had.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    AGENTCTL, AGENTD, DEADLINE, Daemon, Finished, Place, Reaped, finish, is_alive, kill, lines,
    needs, skipped, wait_for,
};

/// No journal of this machine is looked into.
const NO_JOURNAL: (&str, &str) = ("PATH", "/nowhere");

fn agentctl(place: &Place, args: &[&str]) -> Finished {
    let mut command = place.command(AGENTCTL);
    command.args(args).env(NO_JOURNAL.0, NO_JOURNAL.1);
    finish(command, b"")
}

fn rows(finished: &Finished) -> Vec<Value> {
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let lines = finished.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn messages(rows: &[Value]) -> Vec<&str> {
    let texts = rows.iter().map(|row| row["message"].as_str().unwrap());
    texts.collect()
}

fn send(daemon: &Daemon, session: &str, text: &str) {
    let sent = daemon.agentctl(&["send", "--session", session, text]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
}

#[test]
fn logs_are_found_by_job_session_and_agent() {
    let daemon = Daemon::start();
    send(&daemon, "one", "first");
    send(&daemon, "two", "second");
    let failed = daemon.agentctl(&["send", "--agent", "chaos", "chaos:exit 9"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let logs = |args: &[&str]| {
        rows(&agentctl(
            &daemon.place,
            &[&["logs", "--json"], args].concat(),
        ))
    };

    let of_job = logs(&["--job", "j1"]);
    let said = messages(&of_job);
    assert!(
        said.iter().any(|text| text.starts_with("job started")),
        "{said:?}"
    );
    assert!(
        said.iter().any(|text| text.starts_with("job done after")),
        "{said:?}"
    );
    for row in &of_job {
        assert_eq!(row["job"], "j1");
        assert_eq!(row["session"], "one");
        assert_eq!(row["agent"], "timmy");
        assert!(row["worker"].is_string(), "{row}");
    }
    let of_session = logs(&["--session", "two"]);
    assert!(
        of_session.iter().any(|row| row["job"] == "j2"),
        "{of_session:?}"
    );
    assert!(of_session.iter().all(|row| row["session"] == "two"));
    let of_agent = logs(&["--agent", "chaos"]);
    let said = messages(&of_agent);
    assert!(
        said.iter()
            .any(|text| text.contains("failed") && text.contains("worker-exited")),
        "{said:?}"
    );
    assert!(
        said.contains(&"worker died: it exited with code 9"),
        "{said:?}"
    );
    assert!(logs(&["--since", "1h"]).len() >= of_job.len() + of_session.len());
    assert_eq!(logs(&["--lines", "1"]).len(), 1);

    // Also when the daemon is gone, and for people.
    let place = daemon.kill();
    let shown = agentctl(&place, &["logs", "--job", "j2"]);
    assert!(shown.stdout.contains("j2  two  timmy"), "{shown:?}");
    let none = agentctl(&place, &["logs", "--job", "j99"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{none:?}");
    assert!(
        none.stderr.contains("nothing was logged that fits"),
        "{none:?}"
    );
}

#[test]
fn without_any_log_it_says_where_it_looked() {
    let place = Place::new("");
    let none = agentctl(&place, &["logs"]);
    assert_eq!(none.code, Some(1));
    assert!(none.stderr.contains("there is no log"), "{none:?}");
    assert!(none.stderr.contains("agentd.log"), "{none:?}");
}

#[test]
fn the_log_is_followed_through_a_rotation() {
    let daemon = Daemon::start();
    let mut command = daemon.place.command(AGENTCTL);
    command
        .args(["logs", "-f", "--json"])
        .env(NO_JOURNAL.0, NO_JOURNAL.1)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut following = Reaped(command.spawn().unwrap());
    let lines = lines(following.0.stdout.take().unwrap());
    let until = |what: &dyn Fn(&Value) -> bool| loop {
        let line = lines.recv_timeout(DEADLINE).expect("a line of the log");
        let row: Value = serde_json::from_str(&line).unwrap();
        if what(&row) {
            return row;
        }
    };
    until(&|row| row["message"].as_str().unwrap().contains("serves"));
    send(&daemon, "one", "first");
    until(&|row| row["job"] == "j1" && row["message"].as_str().unwrap().starts_with("job done"));
    let log = daemon.path("state/agentd.log");
    fs::rename(&log, daemon.path("state/agentd.log.1")).unwrap();
    send(&daemon, "one", "second");
    until(&|row| row["job"] == "j2" && row["message"].as_str().unwrap().starts_with("job done"));
}

#[test]
fn log_level_changes_at_once_unless_wrong() {
    let daemon = Daemon::start();
    let accepted = |job: &str| {
        let logs = rows(&agentctl(&daemon.place, &["logs", "--json", "--job", job]));
        messages(&logs).contains(&"job accepted")
    };
    send(&daemon, "one", "quiet");
    assert!(!accepted("j1"));
    let shown = daemon.agentctl(&["log-level"]);
    assert!(shown.stdout.starts_with("info (to /"), "{shown:?}");

    let set = daemon.agentctl(&["log-level", "debug"]);
    assert!(set.stdout.starts_with("debug (to /"), "{set:?}");
    send(&daemon, "one", "loud");
    assert!(accepted("j2"));

    let wrong = daemon.agentctl(&["log-level", "debgu"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("`debgu` is no level"), "{wrong:?}");
    assert_eq!(daemon.status()["daemon"]["log"]["level"], "debug");

    let some = daemon.agentctl(&["log-level", "warn,agentd_core=debug", "--json"]);
    let some: Value = serde_json::from_str(&some.stdout).unwrap();
    assert_eq!(
        (&some["type"], &some["ok"]),
        (&json!("log_level"), &json!(true))
    );
    send(&daemon, "one", "the core only");
    assert!(accepted("j3"));
    daemon.agentctl(&["log-level", "off"]);
    send(&daemon, "one", "nothing");
    let nothing = rows(&agentctl(&daemon.place, &["logs", "--json", "--job", "j4"]));
    assert_eq!(nothing, Vec::<Value>::new());
}

#[test]
fn a_standard_error_that_nobody_reads_stops_nobody() {
    let place = Place::new(&Daemon::config(""));
    let mut command = place.command(AGENTD);
    command
        .env("AGENTD_LOG", "debug")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = Reaped(command.spawn().unwrap());
    let unread = child.0.stderr.take().unwrap();
    let socket = place.socket();
    wait_for("the daemon answers", || {
        crate::support::Client::try_connect(&socket)
    });
    // Some 300 bytes for each job: a pipe has room for 64 KiB.
    for _ in 0..20 {
        let prompts: Vec<String> = (0..32).map(|n| format!("turn {n}")).collect();
        let prompts: Vec<&str> = prompts.iter().map(String::as_str).collect();
        let done = place.agentctl(&[&["dispatch", "--collect"][..], &prompts].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let log = fs::metadata(place.path("state/agentd.log")).unwrap().len();
    assert!(log > 64 * 1024, "the log of all this has only {log} bytes");
    drop(unread);
}

/// launchd writes standard error to a file that nobody rotates.
#[test]
fn logs_under_launchd_are_in_their_file_only() {
    let logged = |environment: &[(&str, &str)]| {
        let place = Place::new(&Daemon::config(""));
        let daemon = place.start_with(environment);
        send(&daemon, "one", "first");
        // The line of a job's end is told before that of the log is written.
        wait_for("the end of the job is in the log", || {
            let file = fs::read_to_string(daemon.path("state/agentd.log")).ok()?;
            file.contains("job done").then_some(())
        });
        daemon.log()
    };
    let usual = logged(&[]);
    assert!(usual.contains("job done"), "{usual}");
    assert_eq!(logged(&[("AGENTD_SERVICE", "launchd")]), "");
}

/// Keys and words that must be nowhere but where they belong.
const KEY_IN_FILE: &str = "sk-CANARY-in-the-env-file";
const KEY_IN_ENVIRONMENT: &str = "sk-CANARY-in-the-environment";
const PROMPT: &str = "CANARY-of-the-prompt";
const ANSWER: &str = "CANARY-of-the-answer";

/// A process and everything that descends from it.
fn family(root: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids: Vec<u32> = all
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    let mut family = vec![root];
    let mut at = 0;
    while let Some(of) = family.get(at).copied() {
        family.extend(pids.iter().filter(|pid| parent(**pid) == Some(of)));
        at += 1;
    }
    family
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes
        .windows(word.len())
        .any(|window| window == word.as_bytes())
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.push(entry.path());
            found.extend(files_below(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

fn secretive_place() -> Place {
    let place = Place::new(&Daemon::config(""));
    let env = place.path("env");
    fs::write(&env, format!("ANTHROPIC_API_KEY={KEY_IN_FILE}\n")).unwrap();
    fs::set_permissions(&env, fs::Permissions::from_mode(0o600)).unwrap();
    place
}

#[test]
fn logs_arguments_and_cores_have_no_planted_secret() {
    let place = secretive_place();
    let mut command = place.command("/bin/sh");
    // The most that a log shows short of `trace`, and core files wanted.
    command
        .args(["-c", "ulimit -c unlimited 2>/dev/null; exec \"$0\"", AGENTD])
        .env("AGENTD_LOG", "debug")
        .env("OPENAI_API_KEY", KEY_IN_ENVIRONMENT);
    let daemon = place.start_as(command);
    let mut client = daemon.connect();
    let script = format!(
        "chaos:say {PROMPT};ask-on secret;wait-file {}",
        daemon.path("go").display()
    );
    let line =
        json!({"type": "send", "id": 1, "agent": "chaos", "text": script, "on_question": "wait"});
    client.send(&line.to_string());
    let question = client.until("question").pop().unwrap();
    let answer = json!({"type": "answer", "question_id": question["question_id"], "text": ANSWER});
    assert_eq!(daemon.ask(&answer.to_string())[0]["type"], "answer");

    let family = family(daemon.pid());
    assert!(family.len() >= 2, "the worker is not among {family:?}");
    let secrets = [KEY_IN_FILE, KEY_IN_ENVIRONMENT, PROMPT, ANSWER];
    for pid in &family {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        for secret in secrets {
            assert!(
                !holds(&arguments, secret),
                "{secret} is an argument of {pid}"
            );
            let own = *pid == daemon.pid() && secret == KEY_IN_ENVIRONMENT;
            assert!(
                own || !holds(&environment, secret),
                "{secret} is in the environment of {pid}"
            );
        }
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core"))
            .unwrap();
        assert!(core.split_whitespace().nth(4) == Some("1"), "{core}");
    }
    fs::write(daemon.path("go"), "").unwrap();
    client.until("message_end");

    kill(daemon.pid(), Signal::SIGABRT);
    let pid = daemon.pid();
    wait_for("the daemon is gone", || (!is_alive(pid)).then_some(()));
    let log = daemon.log();
    assert!(
        log.contains("job accepted"),
        "the level is not debug: {log}"
    );
    for secret in secrets {
        assert!(!log.contains(secret), "{secret} is on standard error");
    }
    assert_only_the_store_holds(&daemon, &secrets);
}

/// Files are the user's alone, and none but the store holds a prompt, none a key.
fn assert_only_the_store_holds(daemon: &Daemon, secrets: &[&str]) {
    let mut looked = 0;
    for file in files_below(daemon.place.dir.path()) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let meta = fs::symlink_metadata(&file).unwrap();
        let is_state = file.starts_with(daemon.path("state"));
        if is_state {
            let mode = meta.permissions().mode() & 0o777;
            let private = if meta.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode, private, "{}", file.display());
        }
        assert!(!name.starts_with("core"), "{}", file.display());
        if !meta.is_file() || name == "env" {
            continue;
        }
        let bytes = fs::read(&file).unwrap();
        for secret in secrets {
            // Prompts and what agents said are kept in the store, as they should be.
            let kept = name.starts_with("agentd.db") && *secret == PROMPT;
            assert!(
                kept || !holds(&bytes, secret),
                "{secret} is in {}",
                file.display()
            );
        }
        looked += 1;
    }
    assert!(looked >= 3, "only {looked} files were there");
}

#[test]
fn logs_in_a_journal_have_fields_without_secrets() {
    for program in ["unshare", "journalctl", "systemd-cat"] {
        if needs(program).is_none() {
            return;
        }
    }
    let place = secretive_place();
    // As the service manager says it to a service.
    let script = format!(
        "systemd-cat sh -c 'JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec \"{AGENTD}\"' & pid=$!
         for i in $(seq 500); do [ -S \"$AGENTD_SOCKET\" ] && break; sleep 0.01; done
         printf '%s' '{PROMPT}' | '{AGENTCTL}' send --session main -
         '{AGENTCTL}' send --session other 'chaos' --agent chaos
         '{AGENTCTL}' log-level --json
         journalctl --sync
         echo === all; journalctl -o json -q SYSLOG_IDENTIFIER=agentd
         echo === logs; '{AGENTCTL}' logs --json --job j1
         echo === follow; timeout 1 '{AGENTCTL}' logs --follow --json --session other
         '{AGENTCTL}' stop
         wait $pid"
    );
    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/os/journald.sh");
    let mut command = place.command(recipe);
    command.args(["sh", "-c", &script]);
    command.env("AGENTD_LOG", "debug");
    command.env("OPENAI_API_KEY", KEY_IN_ENVIRONMENT);
    let finished = finish(command, b"");
    if finished.code == Some(77) {
        skipped(finished.stderr.trim());
        return;
    }
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let (before, rest) = finished.stdout.split_once("=== all\n").unwrap();
    assert!(before.contains("\"to\":\"journal\""), "{before}");
    let (all, rest) = rest.split_once("=== logs\n").unwrap();
    let (logs, follow) = rest.split_once("=== follow\n").unwrap();
    let parse = |text: &str| -> Vec<Value> {
        let objects = text.lines().filter(|line| line.starts_with('{'));
        objects
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let entry = parse(all)
        .into_iter()
        .find(|entry| {
            entry["MESSAGE"]
                .as_str()
                .is_some_and(|text| text.starts_with("job done"))
        })
        .unwrap_or_else(|| panic!("{all}"));
    assert_eq!(entry["AGENTD_JOB"], "j1");
    assert_eq!(entry["AGENTD_SESSION"], "main");
    assert_eq!(entry["AGENTD_AGENT"], "timmy");
    assert!(entry["AGENTD_WORKER"].is_string(), "{entry}");
    assert_eq!(entry["PRIORITY"], "5");
    for secret in [KEY_IN_FILE, KEY_IN_ENVIRONMENT, PROMPT] {
        assert!(!all.contains(secret), "{secret} is in the journal");
    }
    let logs = parse(logs);
    assert!(
        logs.len() >= 3 && logs.iter().all(|row| row["job"] == "j1"),
        "{logs:?}"
    );
    let follow = parse(follow);
    assert!(
        !follow.is_empty() && follow.iter().all(|row| row["session"] == "other"),
        "{follow:?}"
    );
    assert!(
        !place.path("state/agentd.log").exists(),
        "there is a file as well"
    );
}

#[test]
fn logs_that_cannot_be_written_stop_nobody() {
    let daemon = Daemon::start();
    let log = daemon.path("state/agentd.log");
    fs::remove_file(&log).unwrap();
    // Nothing can be made in its place.
    fs::create_dir(&log).unwrap();
    send(&daemon, "one", "unlogged");
    fs::remove_dir(&log).unwrap();
    send(&daemon, "one", "logged");
    let all = rows(&agentctl(&daemon.place, &["logs", "--json"]));
    let said = messages(&all);
    assert!(
        said[0].contains("lines of the log could not be written: "),
        "{said:?}"
    );
    let other_logs = daemon.log();
    assert!(
        other_logs.contains("j1"),
        "standard error has them: {other_logs}"
    );
}
