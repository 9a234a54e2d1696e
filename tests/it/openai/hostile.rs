//! What is asked badly: each answer is an error in OpenAI's shape, and the server goes on.

use serde_json::{Value, json};

use super::{error, said};
use crate::http::{Http, jobs, served};

#[test]
fn openai_errors_have_openais_shape_everywhere() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let bare = http.bare_curl("/v1/models", &[]);
    assert_eq!(error(&bare), (401, "invalid_api_key".to_owned(), None));
    let page = http.curl("/v1/models", &["-H", "Origin: https://evil.example"]);
    assert_eq!(error(&page).0, 403);
    let host = http.curl("/v1/models", &["-H", "Host: evil.example"]);
    assert_eq!(error(&host).0, 421);
    assert_eq!(error(&http.curl("/v1/chat/completions", &[])).0, 405);
    assert_eq!(
        error(&http.curl("/v1/responses/resp_j1", &["-X", "PUT"])).0,
        405
    );
    for path in [
        "/v1/embeddings",
        "/v1/completions",
        "/v1/chat/other",
        "/v1/responses/resp_j1/other",
    ] {
        assert_eq!(error(&http.post(path, &json!({}))).0, 404, "{path}");
    }
    for path in [
        "/v1/responses/resp_j1",
        "/v1/responses/x",
        "/v1/responses/resp_j1/input_items",
        "/v1/runs/run_j1",
        "/v1/runs/run_j1/events",
        "/v1/models/%FF",
    ] {
        assert_eq!(error(&http.curl(path, &[])).0, 404, "{path}");
    }
    // Others are told as before.
    assert_eq!(http.curl("/v1/nothing", &[]).code(), "unknown-path");
    let form = ["-H", "Content-Type: text/plain", "-d", "{}"];
    assert_eq!(error(&http.curl("/v1/chat/completions", &form)).0, 415);
    for body in [
        "",
        "{",
        "[]",
        "5",
        "\"x\"",
        "{\"messages\":[],\"messages\":[]}",
    ] {
        let words = ["-H", "Content-Type: application/json", "-d", body];
        assert_eq!(
            error(&http.curl("/v1/chat/completions", &words)).0,
            400,
            "{body}"
        );
    }
    let long = format!("{{\"messages\":\"{}\"}}", "x".repeat(17 * 1024 * 1024));
    let head = http.head("POST /v1/responses");
    let request = format!(
        "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{long}",
        long.len()
    );
    let told = http.raw(request.as_bytes());
    assert!(
        told.starts_with("HTTP/1.1 413") && told.contains("{\"error\":{"),
        "{told}"
    );
    assert_eq!(jobs(&daemon), 0);
}

/// A value of each type.
fn wrong() -> Vec<Value> {
    vec![
        json!(true),
        json!(5),
        json!(-1.5),
        json!("\u{0}x"),
        json!([5]),
        json!({"a": {}}),
        json!([[]]),
        json!([{"role": 5}]),
    ]
}

fn asked_with(http: &Http, path: &str, good: &Value, field: &str, value: &Value) {
    let mut body = good.clone();
    body[field] = value.clone();
    let answer = http.post(path, &body);
    if answer.status >= 400 {
        let (status, ..) = error(&answer);
        assert!(status < 500, "{path} {field} {value}: {answer:?}");
    }
}

#[test]
fn openai_fields_of_wrong_types_break_nothing() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let fields: &[(&str, Value, &[&str])] = &[
        (
            "/v1/chat/completions",
            said("hi"),
            &[
                "model",
                "messages",
                "stream",
                "stream_options",
                "n",
                "user",
                "tools",
                "temperature",
            ],
        ),
        (
            "/v1/responses",
            json!({"input": "hi"}),
            &[
                "model",
                "input",
                "instructions",
                "previous_response_id",
                "conversation",
                "stream",
                "background",
                "store",
                "metadata",
            ],
        ),
        (
            "/v1/runs",
            json!({"input": "hi"}),
            &[
                "model",
                "input",
                "instructions",
                "session_id",
                "conversation_history",
                "previous_response_id",
            ],
        ),
        ("/v1/conversations", json!({}), &["items", "metadata"]),
    ];
    for (path, good, fields) in fields {
        for field in *fields {
            for value in wrong() {
                asked_with(&http, path, good, field, &value);
            }
        }
    }
    for value in wrong() {
        let answer = http.post(
            "/v1/runs/run_j1/approval",
            &json!({"choice": value, "all": value}),
        );
        let (status, ..) = error(&answer);
        assert!(status < 500, "{answer:?}");
    }
    assert_eq!(
        http.post("/v1/chat/completions", &said("still here"))
            .status,
        200
    );
    assert_eq!(daemon.status()["state"], "ready");
}
