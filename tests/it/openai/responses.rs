//! Responses: whole, streamed, gone on from, in the background, read again.

use serde_json::{Value, json};

use super::{beginning, chunks, error, gives_up, header, words};
use crate::http::{Http, jobs, served};
use crate::support::wait_for;

fn respond(http: &Http, body: &Value) -> Value {
    let answer = http.post("/v1/responses", body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn text(response: &Value) -> String {
    let output = response["output"].as_array().unwrap();
    let said = output
        .iter()
        .find(|item| item["type"] == "message")
        .unwrap();
    words(&said["content"][0]["text"])
}

#[test]
fn response_is_gone_on_from_and_read_again() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let first = respond(&http, &json!({"input": "one", "metadata": {"run": "7"}}));
    assert_eq!(
        (text(&first).as_str(), &first["id"], &first["status"]),
        ("one", &json!("resp_j1"), &json!("completed"))
    );
    let second = respond(
        &http,
        &json!({"input": "two", "previous_response_id": "resp_j1"}),
    );
    assert_eq!(
        (text(&second).as_str(), &second["previous_response_id"]),
        ("two", &json!("resp_j1"))
    );
    let again = http.curl("/v1/responses/resp_j2", &[]).json();
    for member in [
        "id",
        "status",
        "output",
        "previous_response_id",
        "usage",
        "model",
    ] {
        assert_eq!(again[member], second[member], "{member}: {again}");
    }
    // Behind what a history's row has of a message.
    let long = "long".repeat(75_000);
    let body = daemon.path("long.json");
    std::fs::write(&body, json!({"input": long}).to_string()).unwrap();
    let body = format!("@{}", body.display());
    let json = "Content-Type: application/json";
    let told = http
        .curl("/v1/responses", &["-H", json, "-d", &body])
        .json();
    let id = told["id"].as_str().unwrap();
    let again = http.curl(&format!("/v1/responses/{id}"), &[]).json();
    assert!(text(&told) == text(&again), "{}", text(&again).len());
    assert_eq!(
        http.curl("/v1/responses/resp_j1", &[]).json()["metadata"],
        json!({"run": "7"})
    );
    let older = http.post(
        "/v1/responses",
        &json!({"input": "x", "previous_response_id": "resp_j1"}),
    );
    assert_eq!(
        error(&older),
        (
            400,
            "previous_response_not_last".to_owned(),
            Some("previous_response_id".to_owned())
        )
    );
    let unknown = http.post(
        "/v1/responses",
        &json!({"input": "x", "previous_response_id": "resp_j9"}),
    );
    assert_eq!(error(&unknown).1, "previous_response_not_found");
    let items = http.curl("/v1/responses/resp_j2/input_items", &[]).json();
    assert_eq!(items["data"][0]["content"][0]["text"], "two");
    let hidden = respond(&http, &json!({"input": "x", "store": false}));
    let id = hidden["id"].as_str().unwrap();
    assert_eq!(
        error(&http.curl(&format!("/v1/responses/{id}"), &[])).1,
        "response_not_found"
    );
    for _ in 0..2 {
        let deleted = http.curl("/v1/responses/resp_j2", &["-X", "DELETE"]);
        if deleted.status == 200 {
            assert_eq!(
                deleted.json(),
                json!({"id": "resp_j2", "object": "response", "deleted": true})
            );
        } else {
            assert_eq!(error(&deleted).0, 404);
        }
        assert_eq!(http.curl("/v1/responses/resp_j2", &[]).status, 404);
    }
}

/// What it went on from has been gone on from since: by itself.
#[test]
fn response_asked_again_while_it_runs_is_found() {
    let Some((daemon, http)) = served() else {
        return;
    };
    respond(&http, &json!({"input": "one"}));
    let body = json!({"input": "two [[sleep 2000]] more", "previous_response_id": "resp_j1"});
    gives_up(
        &http,
        "/v1/responses",
        "x-stainless-retry-count: 0\r\n",
        &body,
    );
    let retry = ["-H", "x-stainless-retry-count: 1"];
    let again = http.post_with("/v1/responses", &body, &retry);
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(text(&again.json()), "two more");
    assert_eq!(jobs(&daemon), 2);
}

/// A response that is read again as the events of its beginning to its end.
fn read_as_a_stream(http: &Http, job: &str, output: &Value) {
    let path = format!("/v1/responses/resp_{job}");
    let (events, _) = chunks(&http.curl(&format!("{path}?stream=true"), &[]));
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let (first, last) = (&events[0], events.last().unwrap());
    assert_eq!(
        (&first["type"], &last["type"], &last["response"]["output"]),
        (
            &json!("response.created"),
            &json!("response.completed"),
            output
        )
    );
    let later = http.curl(&format!("{path}?stream=true&starting_after=2"), &[]);
    assert_eq!(
        error(&later),
        (
            400,
            "invalid_value".to_owned(),
            Some("starting_after".to_owned())
        )
    );
    let unknown = http.curl("/v1/responses/resp_j9?stream=true", &[]);
    assert_eq!(error(&unknown).1, "response_not_found");
    assert_eq!(error(&http.curl(&format!("{path}?stream=x"), &[])).0, 422);
}

#[test]
fn response_stream_has_tools_as_done_calls() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let body = json!({"input": "[[tool ls]] said", "stream": true, "tools": []});
    let answer = http.post("/v1/responses", &body);
    let (events, _) = chunks(&answer);
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds[..3],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added"
        ]
    );
    assert_eq!(kinds.last(), Some(&"response.completed"));
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let output = &events.last().unwrap()["response"]["output"];
    let types: Vec<&Value> = output
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["type"])
        .collect();
    assert!(
        types.contains(&&json!("mcp_call")) && !types.contains(&&json!("function_call")),
        "{types:?}"
    );
    let id = header(&answer, "x-agentd-job").unwrap();
    let again = http.curl(&format!("/v1/responses/resp_{id}"), &[]).json();
    assert_eq!(&again["output"], output);
    read_as_a_stream(&http, id, output);
    let failed = http.post(
        "/v1/responses",
        &json!({"input": "[[error=agent-auth]]", "stream": true}),
    );
    let (events, _) = chunks(&failed);
    let last = events.last().unwrap();
    assert_eq!(
        (&last["type"], &last["response"]["status"]),
        (&json!("response.failed"), &json!("failed"))
    );
    let failed = http.post("/v1/responses", &json!({"input": "[[error=agent-auth]]"}));
    assert_eq!(error(&failed).0, 424);
    let id = header(&failed, "x-agentd-job").unwrap();
    assert_eq!(
        http.curl(&format!("/v1/responses/resp_{id}"), &[]).json()["status"],
        "failed"
    );
}

#[test]
fn response_in_background_is_polled_and_cancelled() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let before = respond(&http, &json!({"input": "before"}))["id"].clone();
    let begun = respond(
        &http,
        &json!({"input": "a [[sleep 600000]]", "background": true, "previous_response_id": before}),
    );
    assert!(
        ["queued", "in_progress"].contains(&begun["status"].as_str().unwrap()),
        "{begun}"
    );
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    wait_for("it runs", || {
        let now = http.curl(&path, &[]).json();
        (now["status"] == "in_progress").then_some(())
    });
    let cancelled = http.curl(&format!("{path}/cancel"), &["-X", "POST"]).json();
    assert_eq!(
        (&cancelled["status"], &cancelled["background"]),
        (&json!("cancelled"), &json!(true))
    );
    assert_eq!(http.curl(&path, &[]).json()["status"], "cancelled");
    // What was stopped is no answer that one would have to go on from.
    let behind = json!({"input": "behind", "previous_response_id": before});
    assert_eq!(text(&respond(&http, &behind)), "behind");
    let done = respond(&http, &json!({"input": "b", "background": true}));
    let path = format!("/v1/responses/{}", done["id"].as_str().unwrap());
    let done = wait_for("it is done", || {
        let now = http.curl(&path, &[]).json();
        (now["status"] == "completed").then_some(now)
    });
    assert_eq!(text(&done), "b");
    let list = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]);
    let whole = respond(&http, &json!({"input": list}));
    let path = format!(
        "/v1/responses/{}/input_items",
        whole["id"].as_str().unwrap()
    );
    let items = http.curl(&path, &[]).json()["data"].clone();
    let said: Vec<&Value> = items
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["content"][0]["text"])
        .collect();
    assert_eq!(said, ["c", "b", "a"]);
}

#[test]
fn conversation_is_a_session() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let topic = json!({"metadata": {"topic": "demo"}});
    let told = http.post("/v1/conversations", &topic);
    assert_eq!(header(&told, "x-agentd-ignored"), Some("metadata"));
    let made = http.post("/v1/conversations", &json!({})).json();
    let id = made["id"].as_str().unwrap();
    assert_eq!(
        http.curl(&format!("/v1/conversations/{id}"), &[]).json(),
        made
    );
    let one = json!({"input": "one", "instructions": "be terse", "conversation": id});
    let first = respond(&http, &one);
    assert_eq!(
        (text(&first).as_str(), beginning(&daemon)),
        ("one", (json!("be terse"), Vec::new()))
    );
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    assert_eq!(http.curl(&path, &[]).json()["instructions"], "be terse");
    let two = json!({"input": "two", "instructions": "be terse", "conversation": {"id": id}});
    let second = respond(&http, &two);
    assert_eq!(
        (text(&second).as_str(), &second["conversation"]),
        ("two", &json!({"id": id}))
    );
    let three = json!({"input": "three", "instructions": "be kind", "conversation": id});
    assert!(text(&respond(&http, &three)).contains("be kind"));
    let session = http.curl(&format!("/v1/conversations/{id}"), &[]).json();
    assert_eq!(session["object"], "conversation");
    assert_eq!(error(&http.curl("/v1/conversations/nobody", &[])).0, 404);
}
