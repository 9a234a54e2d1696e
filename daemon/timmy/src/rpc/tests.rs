//! What the service says, line by line.

use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::session::store::Store;
use sessions::Home;

mod directories;
mod echoed;
mod process;
mod sessions;
mod whole;

/// Serves these lines, then every line said until the turns are over.
async fn talk(echo: bool, lines: &[&str]) -> Vec<Value> {
    let (out, mut said) = mpsc::channel(10_000);
    let home = Home::new();
    let mut service = Service::new(default(echo), home.agent(), out);
    for line in lines {
        service.serve(line.as_bytes()).await;
    }
    let all = async { while service.running.join_next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(5), all)
        .await
        .expect("the turns end");
    drop(service);
    let mut all = Vec::new();
    while let Some(line) = said.recv().await {
        all.push(serde_json::from_str(&line.render()).unwrap());
    }
    all
}

fn run(echo: bool, lines: &[&str]) -> Vec<Value> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_all()
        .build()
        .unwrap()
        .block_on(talk(echo, lines))
}

fn default(echo: bool) -> ModelSelection {
    ModelSelection {
        provider: echo.then(|| ECHO.to_owned()),
        ..ModelSelection::default()
    }
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect()
}

#[test]
fn echo_returns_the_prompts_words_one_by_one() {
    let lines = run(
        true,
        &[r#"{"type":"send","id":"t1","text":"hello  big world","session":"s"}"#],
    );
    let deltas: Vec<_> = lines
        .iter()
        .filter(|line| line["type"] == "message_delta")
        .collect();
    assert_eq!(deltas.len(), 3);
    assert_eq!(
        (&deltas[2]["text"], &deltas[2]["offset"]),
        (&json!(" world"), &json!(10))
    );
    assert!(lines.iter().all(|line| line["id"] == "t1"));
    let last = lines.last().unwrap();
    assert_eq!(last["type"], "message_end");
    assert_eq!(last["text"], "hello  big world");
    assert_eq!(last["stop"], "end_turn");
    assert_eq!(
        (&last["provider"], &last["model"]),
        (&json!("echo"), &json!("scripted"))
    );
    assert_eq!(last["cost"], json!({"usd": 0.0, "status": "actual"}));
    assert_eq!(last["api_calls"], json!([]));
}

#[test]
fn turn_that_is_first_says_no_model_was() {
    let send = r#"{"type":"send","text":"x","session":"a"}"#;
    let other = r#"{"type":"send","text":"x","session":"b"}"#;
    let lines = run(true, &[send, send, other]);
    assert_eq!(
        kinds(&lines).iter().filter(|kind| **kind == "note").count(),
        2
    );
}

#[test]
fn tools_and_errors_are_played_in_order() {
    let lines = run(
        true,
        &[r#"{"prompt":"a [[tool ls]] b [[error=rate-limit]] c","id":1}"#],
    );
    let expected = [
        "note",
        "message_start",
        "message_delta",
        "tool_start",
        "tool_end",
        "message_delta",
        "error",
    ];
    assert_eq!(kinds(&lines), expected);
    assert_eq!(
        (&lines[3]["name"], &lines[3]["read_only"]),
        (&json!("ls"), &json!(true))
    );
    assert_eq!(
        (&lines[6]["code"], &lines[6]["text"]),
        (&json!("rate-limit"), &json!("a b"))
    );
}

#[test]
fn abort_ends_its_turn_with_text_so_far() {
    let lines = run(
        true,
        &[
            r#"{"type":"send","id":"t1","text":"one [[sleep 60000]] two"}"#,
            r#"{"type":"send","id":"t2","text":"[[sleep 30]] three"}"#,
            r#"{"type":"abort","id":"t1"}"#,
        ],
    );
    let end = |id: &str| {
        let mut ends = lines
            .iter()
            .filter(|line| line["type"] == "message_end" && line["id"] == id);
        let end = ends.next().unwrap();
        (
            end["stop"].as_str().unwrap().to_owned(),
            end["text"].as_str().unwrap().to_owned(),
        )
    };
    assert_eq!(end("t1"), ("cancelled".to_owned(), "one".to_owned()));
    assert_eq!(end("t2"), ("end_turn".to_owned(), "three".to_owned()));
}

#[test]
fn echo_answers_only_who_names_it() {
    for (echo, line, code) in [
        (false, r#"{"type":"send","id":1,"text":"x"}"#, "no-model"),
        (
            true,
            r#"{"type":"send","id":1,"text":"x","provider":"kimi"}"#,
            "no-model",
        ),
        (
            true,
            r#"{"type":"send","id":1,"text":"x","model":"k2"}"#,
            "invalid-request",
        ),
    ] {
        let lines = run(echo, &[line]);
        assert_eq!(kinds(&lines), ["error"], "{line}");
        assert_eq!(lines[0]["code"], code, "{line}");
    }
    for line in [
        r#"{"type":"send","id":1,"text":"x","provider":"echo","model":"scripted"}"#,
        r#"{"type":"send","id":1,"text":"x","model":"echo/scripted"}"#,
    ] {
        let lines = run(false, &[line]);
        assert_eq!(lines.last().unwrap()["type"], "message_end", "{line}");
    }
}

#[test]
fn status_says_what_it_can_do() {
    let lines = run(true, &[r#"{"type":"status","id":"probe"}"#]);
    assert_eq!(
        (&lines[0]["type"], &lines[0]["id"]),
        (&json!("status"), &json!("probe"))
    );
    assert_eq!(
        (&lines[0]["ok"], &lines[0]["sessions"]),
        (&json!(true), &json!("many"))
    );
    assert_eq!(lines[0]["concurrent_sends"], 64);
    for can in [
        "resumes",
        "steer",
        "compact",
        "toolsets",
        "fallback_chain",
        "cwd",
    ] {
        assert_eq!(lines[0][can], true, "{can}");
    }
}

#[test]
fn turn_beyond_64_or_wrong_is_refused() {
    let sends: Vec<String> = (0..65)
        .map(|n| format!(r#"{{"type":"send","id":{n},"text":"[[sleep 200]]"}}"#))
        .collect();
    let sends: Vec<&str> = sends.iter().map(String::as_str).collect();
    let lines = run(true, &sends);
    let refused: Vec<_> = lines
        .iter()
        .filter(|line| line["type"] == "error")
        .collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (&refused[0]["id"], &refused[0]["code"]),
        (&json!(64), &json!("queue-full"))
    );
    for (line, code) in [
        ("null", "not-an-object"),
        ("{", "bad-json"),
        (r#"{"type":"sned","id":2}"#, "unknown-command"),
        (r#"{"type":"drain","id":2}"#, "unsupported"),
    ] {
        assert_eq!(run(true, &[line])[0]["code"], code, "{line}");
    }
}

#[test]
fn what_is_remembered_of_sessions_is_bounded() {
    let sessions = Sessions::default();
    for n in 0..3 * SESSIONS {
        remember(&sessions, &format!("s{n}"), |known| known.echoed = true);
    }
    assert_eq!(lock(&sessions).len(), SESSIONS);
    assert!(remember(&sessions, "s999", |known| known.echoed));
}

#[test]
fn models_are_listed_with_what_is_pinned_first() {
    let lines = run(
        false,
        &[
            r#"{"type":"models","id":"m1","provider":"a","model":"m"}"#,
            r#"{"type":"models","id":"m2","provider":"nobody"}"#,
            r#"{"type":"models","id":"m3","provider":7}"#,
        ],
    );
    let told = |id: &str| lines.iter().find(|line| line["id"] == id).unwrap();
    let listed = told("m1");
    assert_eq!(
        (&listed["type"], &listed["ok"]),
        (&json!("models"), &json!(true))
    );
    assert_eq!(listed["models"][0]["model"], "m");
    assert_eq!(listed["note"], "one; two");
    assert_eq!(told("m2")["error"], "no such provider");
    assert_eq!(told("m3")["code"], "invalid-request");
}

#[test]
fn models_of_echo_come_before_those_configured() {
    // What a command line chose counts where the daemon names nothing.
    for (echo, line) in [
        (false, r#"{"type":"models","id":"m1","provider":"echo"}"#),
        (true, r#"{"type":"models","id":"m1"}"#),
    ] {
        let lines = run(echo, &[line]);
        let rows = &lines[0]["models"];
        assert_eq!(rows[0]["provider"], "echo", "{lines:#?}");
        assert_eq!(
            (&rows[0]["default"], &rows[1]["default"]),
            (&json!(true), &json!(false))
        );
    }
}

#[test]
fn models_that_never_come_hold_up_no_leaving() {
    let leaves = async {
        let (out, _said) = mpsc::channel(10);
        let home = Home::new();
        let mut service = Service::new(default(false), home.agent(), out);
        service
            .serve(br#"{"type":"models","id":"m1","provider":"late"}"#)
            .await;
        service.leave().await;
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    let left = runtime.block_on(async {
        let begun = tokio::time::Instant::now();
        leaves.await;
        begun.elapsed()
    });
    assert_eq!(left, Duration::ZERO);
}
