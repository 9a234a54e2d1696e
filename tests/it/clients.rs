//! Real `nc`, `socat` and `ncat`: whoever pipes a line in gets the whole answer and an end.
//!
//! The table is the measured one of what each client does at the end of its input; a row says what
//! it can be asked. The exit code is the client's own.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Daemon, Finished, finish, needs, wait_for};

/// How long a turn the client sits through.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Patience {
    /// It leaves by itself after a while: only turns that are done at once.
    Instant,
    /// It waits until the daemon closes.
    Any,
}

struct Row {
    /// `SOCKET` stands for the path.
    command: &'static [&'static str],
    patience: Patience,
    code: i32,
}

const fn row(command: &'static [&'static str], patience: Patience) -> Row {
    Row {
        command,
        patience,
        code: 0,
    }
}

const ROWS: &[Row] = &[
    row(&["nc", "-U", "SOCKET"], Patience::Any),
    row(&["nc", "-N", "-U", "SOCKET"], Patience::Any),
    row(&["nc", "-q0", "-U", "SOCKET"], Patience::Any),
    row(&["nc", "-q1", "-U", "SOCKET"], Patience::Any),
    row(&["nc", "-w1", "-U", "SOCKET"], Patience::Instant),
    row(&["ncat", "-U", "SOCKET"], Patience::Any),
    row(&["ncat", "--no-shutdown", "-U", "SOCKET"], Patience::Any),
    // Its idle time is over before it looks: an answer, and code 1, whatever the server does.
    Row {
        command: &["ncat", "-i1", "-U", "SOCKET"],
        patience: Patience::Instant,
        code: 1,
    },
    row(&["socat", "-", "UNIX-CONNECT:SOCKET"], Patience::Instant),
    row(
        &["socat", "-t30", "-", "UNIX-CONNECT:SOCKET"],
        Patience::Any,
    ),
    row(
        &["socat", "-,ignoreeof", "UNIX-CONNECT:SOCKET"],
        Patience::Any,
    ),
];

fn started() -> Daemon {
    let daemon = Daemon::start();
    // It is made after the socket, when everything is up.
    wait_for("the alias is there", || {
        daemon.path("timmy.sock").exists().then_some(())
    });
    daemon
}

fn pipe(row: &Row, socket: &Path, line: &str) -> Option<Finished> {
    let program = needs(row.command[0])?;
    let mut command = Command::new(program);
    for argument in &row.command[1..] {
        command.arg(argument.replace("SOCKET", socket.to_str().unwrap()));
    }
    Some(finish(command, format!("{line}\n").as_bytes()))
}

fn is_full(row: &Row, finished: &Finished, text: &str) {
    let shown = format!("{:?}: {finished:#?}", row.command);
    let lines: Vec<Value> = finished
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {shown}")))
        .collect();
    assert!(finished.stdout.ends_with('\n'), "cut off: {shown}");
    assert_eq!(lines.first().unwrap()["type"], "accepted", "{shown}");
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["type"], &last["text"]),
        (&"message_end".into(), &text.into()),
        "{shown}"
    );
}

#[test]
fn clients_all_get_an_instant_turn_in_full() {
    let daemon = started();
    // The worker is up, so that the turn is done at once.
    daemon.ask(r#"{"prompt":"warm"}"#);
    for row in ROWS {
        for name in ["agentd.sock", "timmy.sock"] {
            let line = r#"{"prompt":"here I am"}"#;
            let Some(finished) = pipe(row, &daemon.path(name), line) else {
                continue;
            };
            is_full(row, &finished, "here I am");
            assert_eq!(
                finished.code,
                Some(row.code),
                "{:?}: {finished:?}",
                row.command
            );
        }
    }
}

#[test]
fn clients_all_get_a_slow_turn_in_full() {
    let daemon = started();
    std::thread::scope(|scope| {
        for row in ROWS.iter().filter(|row| row.patience == Patience::Any) {
            let daemon = &daemon;
            scope.spawn(move || {
                // Longer than the quiet time of the connection and the patience of socat and nc.
                let line = r#"{"prompt":"slow [[sleep 1200]] answer"}"#;
                let Some(finished) = pipe(row, &daemon.path("timmy.sock"), line) else {
                    return;
                };
                is_full(row, &finished, "slow answer");
                assert_eq!(
                    finished.code,
                    Some(row.code),
                    "{:?}: {finished:?}",
                    row.command
                );
            });
        }
    });
}

#[test]
fn a_client_that_leaves_early_cancels_nothing() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    for (number, row) in ROWS
        .iter()
        .filter(|row| row.patience == Patience::Instant)
        .enumerate()
    {
        let gate = gate.with_extension(number.to_string());
        let line = format!(
            r#"{{"agent":"chaos","session":"s{number}","prompt":"chaos: wait-file {}; say done"}}"#,
            gate.display()
        );
        let Some(finished) = pipe(row, &daemon.path("agentd.sock"), &line) else {
            continue;
        };
        // It got the acceptance before it gave up, and can ask for the rest.
        let accepted: Value =
            serde_json::from_str(finished.stdout.lines().next().unwrap()).unwrap();
        assert_eq!(
            accepted["type"], "accepted",
            "{:?}: {finished:?}",
            row.command
        );
        let job = accepted["job"].as_str().unwrap();
        std::fs::write(&gate, "").unwrap();
        let collected = daemon
            .ask(&format!(r#"{{"type":"collect","jobs":["{job}"]}}"#))
            .remove(0);
        assert_eq!(
            collected["results"][0]["text"], "done",
            "{:?}: {collected}",
            row.command
        );
    }
}

#[test]
fn several_lines_in_one_pipe_are_all_answered() {
    let daemon = Daemon::start();
    for row in ROWS.iter().filter(|row| row.patience == Patience::Any) {
        let lines = "{\"prompt\":\"one [[sleep 300]]\"}\n{\"type\":\"ping\"}\n{\"prompt\":\"two\"}";
        let Some(finished) = pipe(row, &daemon.path("agentd.sock"), lines) else {
            continue;
        };
        let of = |kind: &str| {
            finished
                .stdout
                .matches(&format!("{{\"type\":\"{kind}\""))
                .count()
        };
        assert_eq!(
            (of("accepted"), of("message_end"), of("pong")),
            (2, 2, 1),
            "{:?}: {finished:?}",
            row.command
        );
    }
}
