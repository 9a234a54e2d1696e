//! Requests over a disk that hangs: what is asked again runs once, and what nobody waits for any more
//! doesn't run.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{error, gives_up, header, said};
use crate::http::{Http, jobs};
use crate::support::{Daemon, Place, needs, wait_for};

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
        wait_for("it is cancelled", || {
            let rows = daemon.ask(r#"{"type":"jobs"}"#).remove(0);
            let rows = rows["jobs"].as_array().unwrap();
            let row = rows.iter().find(|row| row["job"] == job)?;
            (row["state"] == "cancelled").then_some(())
        });
    }
}
