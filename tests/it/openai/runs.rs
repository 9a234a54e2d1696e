//! Runs: started, looked at, read by several, answered, stopped.

use serde_json::{Value, json};

use super::{chunks, error, header, words};
use crate::http::{Http, served};
use crate::support::wait_for;

fn start(http: &Http, body: &Value) -> String {
    let started = http.post("/v1/runs", body);
    assert_eq!(
        (started.status, &started.json()["status"]),
        (202, &json!("started")),
        "{started:?}"
    );
    format!("/v1/runs/{}", started.json()["run_id"].as_str().unwrap())
}

fn until(http: &Http, run: &str, status: &str) -> Value {
    wait_for("the run gets there", || {
        let now = http.curl(run, &[]).json();
        (now["status"] == status).then_some(now)
    })
}

#[test]
fn run_is_started_read_and_read_again() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let run = start(
        &http,
        &json!({"input": "[[tool ls]] said", "session_id": "s-runs"}),
    );
    let done = until(&http, &run, "completed");
    assert_eq!(
        (
            words(&done["output"]).as_str(),
            &done["session_id"],
            &done["object"]
        ),
        ("said", &json!("s-runs"), &json!("hermes.run"))
    );
    let whole = http.curl(&format!("{run}/events"), &[]);
    let (events, _) = chunks(&whole);
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "tool.started",
            "tool.completed",
            "message.delta",
            "run.completed"
        ]
    );
    let ids: Vec<&str> = whole
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("id: "))
        .collect();
    let cursor = format!("Last-Event-ID: {}", ids[1]);
    let (later, _) = chunks(&http.curl(&format!("{run}/events"), &["-H", &cursor]));
    let output = |events: &[Value]| events.last().unwrap()["output"].clone();
    assert_eq!(
        (later.len() < events.len(), output(&later)),
        (true, output(&events))
    );
    let cursor = format!("Last-Event-ID: {}", ids.last().unwrap());
    assert_eq!(
        http.curl(&format!("{run}/events"), &["-H", &cursor]).status,
        204
    );
    let failed = start(&http, &json!({"input": "[[error=rate-limit]]"}));
    assert_eq!(until(&http, &failed, "failed")["error_code"], "rate-limit");
    assert_eq!(
        error(&http.curl("/v1/runs/nope", &[])),
        (404, "run_not_found".to_owned(), None)
    );
}

#[test]
fn run_waits_for_its_answer() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let body = json!({"input": "chaos:ask approval", "model": "chaos"});
    let run = start(&http, &body);
    let waits = until(&http, &run, "waiting_for_approval");
    assert_eq!(waits["last_event"], "approval.request");
    let approval = format!("{run}/approval");
    let wrong = http.post(&approval, &json!({"choice": "perhaps"}));
    assert_eq!(error(&wrong).1, "invalid_approval_choice");
    let other = http.post(
        &approval,
        &json!({"choice": "once", "question_id": "j9-q1"}),
    );
    assert_eq!(error(&other).1, "approval_not_pending");
    let answered = http.post(&approval, &json!({"choice": "once"})).json();
    assert_eq!(answered["resolved"], 1);
    assert_eq!(until(&http, &run, "completed")["output"], "approve=true");
    let late = http.post(&approval, &json!({"choice": "once"}));
    assert_eq!(error(&late).0, 409);
    assert_eq!(header(&late, "x-should-retry"), Some("false"));
    let (events, _) = chunks(&http.curl(&format!("{run}/events"), &[]));
    let asked = events
        .iter()
        .find(|event| event["event"] == "approval.request")
        .unwrap();
    assert_eq!(asked["choices"], json!(["once", "deny"]));
    assert!(
        events
            .iter()
            .any(|event| event["event"] == "approval.responded")
    );
}

#[test]
fn run_is_stopped() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let run = start(&http, &json!({"input": "a [[sleep 600000]]"}));
    until(&http, &run, "running");
    let stopping = http.post(&format!("{run}/stop"), &json!({})).json();
    assert_eq!(stopping["status"], "stopping");
    until(&http, &run, "cancelled");
    let (events, _) = chunks(&http.curl(&format!("{run}/events"), &[]));
    assert_eq!(events.last().unwrap()["event"], "run.cancelled");
    let capabilities = http.curl("/v1/capabilities", &[]).json();
    assert_eq!(capabilities["features"]["run_stop"], true);
}
