//! Requests over a disk or a daemon that hangs, and streams that are left: what is asked again runs once,
//! and what nobody waits for any more doesn't run.

use std::io::Read as _;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::chat::{begun, begun_with};
use super::{error, gives_up, header, said};
use crate::http::{Http, jobs};
use crate::support::{Daemon, Place, kill, needs, wait_for};

/// What OpenAI's clients say of a first attempt.
const FIRST: &str = "x-stainless-retry-count: 0\r\n";

/// A daemon whose store hangs while a file is there.
fn served() -> Option<(Daemon, Http, PathBuf)> {
    needs("curl")?;
    let place = Place::new(&Daemon::config(""));
    let daemon = place.start_with(&[("AGENTD_FAILPOINT", "store-hangs")]);
    let http = Http::start(&daemon.place);
    let hangs = daemon.path("state/agentd.hangs");
    Some((daemon, http, hangs))
}

#[test]
fn openai_retry_over_a_hung_disk_runs_once() {
    let Some((daemon, http, hangs)) = served() else {
        return;
    };
    let streamed = |mut body: Value| {
        body["stream"] = true.into();
        body
    };
    let asked = [
        ("/v1/chat/completions", said("a")),
        ("/v1/chat/completions", streamed(said("b"))),
        ("/v1/responses", json!({"input": "c"})),
        ("/v1/responses", json!({"input": "d", "background": true})),
        ("/v1/runs", json!({"input": "e"})),
    ];
    std::fs::write(&hangs, "").unwrap();
    std::thread::scope(|scope| {
        for (path, body) in &asked {
            let http = &http;
            scope.spawn(move || {
                gives_up(http, path, FIRST, body);
                let again = http.post_with(path, body, &["-H", "x-stainless-retry-count: 1"]);
                let (status, code, _) = error(&again);
                assert_eq!((status, code.as_str()), (503, "outcome-unknown"), "{path}");
                assert_eq!(header(&again, "x-should-retry"), Some("true"), "{path}");
            });
        }
    });
    std::fs::remove_file(&hangs).unwrap();
    let mut found: Vec<String> = Vec::new();
    for (path, body) in &asked {
        let again = wait_for("the disk is there", || {
            let again = http.post_with(path, body, &["-H", "x-stainless-retry-count: 2"]);
            (again.status < 300).then_some(again)
        });
        found.extend(header(&again, "x-agentd-job").map(str::to_owned));
    }
    found.sort();
    assert_eq!(found, ["j1", "j2", "j3", "j4", "j5"]);
    assert_eq!(jobs(&daemon), 5);
}

#[test]
fn openai_stream_left_in_a_hang_is_cancelled() {
    let Some((daemon, http, hangs)) = served() else {
        return;
    };
    std::fs::write(&hangs, "").unwrap();
    let counted = |count: u32| format!("x-stainless-retry-count: {count}\r\n");
    // Without a word of retries, without one, and with some that are given up, too.
    for (words, attempts) in [
        ("a", vec![String::new()]),
        ("b", vec![counted(0)]),
        ("c", (0..3).map(counted).collect()),
    ] {
        let mut body = said(&format!("{words} [[sleep 600000]]"));
        body["stream"] = true.into();
        for headers in attempts {
            gives_up(&http, "/v1/chat/completions", &headers, &body);
        }
    }
    daemon.until("it is said to hang", |status| {
        (status["state"] == "degraded").then_some(())
    });
    std::fs::remove_file(&hangs).unwrap();
    for job in ["j1", "j2", "j3"] {
        is_cancelled(&daemon, job);
    }
}

fn is_cancelled(daemon: &Daemon, job: &str) {
    wait_for("it is cancelled", || {
        let rows = daemon.ask(r#"{"type":"jobs"}"#).remove(0);
        let rows = rows["jobs"].as_array().unwrap();
        let row = rows.iter().find(|row| row["job"] == job)?;
        (row["state"] == "cancelled").then_some(())
    });
}

#[test]
fn openai_stream_left_by_one_reader_goes_on() {
    let Some((daemon, http, _hangs)) = served() else {
        return;
    };
    let gate = daemon.path("gate");
    let mut body = said(&format!(
        "chaos:say begun;wait-file {};say whole",
        gate.display()
    ));
    body["stream"] = true.into();
    body["model"] = "chaos".into();
    let key = "Idempotency-Key: k\r\nx-stainless-retry-count: 0\r\n";
    let mut readers: Vec<_> = (0..3).map(|_| begun_with(&http, key, &body)).collect();
    let mut other = said("begun [[sleep 600000]]");
    other["stream"] = true.into();
    let other = begun(&http, &other);
    // The one that came first, and the last one.
    drop(readers.remove(0));
    drop(readers.remove(1));
    drop(other);
    is_cancelled(&daemon, "j2");
    std::fs::write(&gate, "").unwrap();
    let mut rest = String::new();
    readers.remove(0).read_to_string(&mut rest).unwrap();
    assert!(rest.contains("whole") && rest.contains("[DONE]"), "{rest}");
    assert_eq!(jobs(&daemon), 2);
}

#[test]
fn openai_stream_left_as_daemon_hangs_is_cancelled() {
    let Some((daemon, http, _hangs)) = served() else {
        return;
    };
    let mut body = said("begun [[sleep 600000]]");
    body["stream"] = true.into();
    let stream = begun(&http, &body);
    kill(daemon.pid(), Signal::SIGSTOP);
    drop(stream);
    // It waits for the daemon as long as whoever ends the turn.
    let refused = http.post("/v1/chat/completions", &said("a"));
    kill(daemon.pid(), Signal::SIGCONT);
    assert_eq!(error(&refused).1, "no-daemon", "{refused:?}");
    is_cancelled(&daemon, "j1");
}
