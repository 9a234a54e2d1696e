//! OpenAI's API from outside: a real server before a real daemon.
//!
//! Owns what is asked by `curl` (`chat`, `sessions`, `responses`, `runs`), of a store that hangs
//! (`hanging`), badly (`hostile`), by OpenAI's own clients (`sdks`), Codex (`codex`) and Open WebUI (`open_webui`). The server is `http`'s.

mod chat;
mod codex;
mod hanging;
mod hostile;
mod open_webui;
mod responses;
mod runs;
mod sdks;
mod sessions;

use std::io::{Read as _, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{Answer, Http};
use crate::support::Daemon;

/// How long a client waits.
const GIVES_UP: Duration = Duration::from_millis(500);
/// One message of the user.
pub fn said(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

/// The events of a stream, and whether it ended as it should.
pub fn chunks(answer: &Answer) -> (Vec<Value>, bool) {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(
        answer.head.contains("content-type: text/event-stream"),
        "{answer:?}"
    );
    let mut found = Vec::new();
    let mut done = false;
    for event in answer.body.split_terminator("\n\n") {
        let mut lines = event.lines();
        let data = lines.find_map(|line| line.strip_prefix("data: "));
        match data {
            Some("[DONE]") => done = true,
            Some(data) => found.push(serde_json::from_str(data).unwrap()),
            None => assert!(event.starts_with(':'), "{event}"),
        }
    }
    (found, done)
}

/// A header of an answer.
pub fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let named = |line: &'a str| line.strip_prefix(name)?.strip_prefix(": ");
    answer.head.lines().find_map(named)
}

/// The error of an answer: its status, code and param.
pub fn error(answer: &Answer) -> (u16, String, Option<String>) {
    assert!(
        answer.head.contains("content-type: application/json"),
        "{answer:?}"
    );
    let error = answer.json()["error"].clone();
    assert!(!error["message"].as_str().unwrap().is_empty(), "{answer:?}");
    assert!(
        error["type"].is_string() && error.get("param").is_some(),
        "{answer:?}"
    );
    let word = |name: &str| error[name].as_str().map(str::to_owned);
    (answer.status, word("code").unwrap(), word("param"))
}

/// What a completion says.
pub fn content(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    let content = answer.json()["choices"][0]["message"]["content"].clone();
    words(&content)
}

/// The words of a text, whatever is between them.
pub fn words(text: &Value) -> String {
    let words: Vec<&str> = text.as_str().unwrap().split_whitespace().collect();
    words.join(" ")
}

/// What the newest job's session began with: the system text, and the texts of what was said before.
pub fn beginning(daemon: &Daemon) -> (Value, Vec<String>) {
    let rows = daemon.ask(r#"{"type":"jobs","limit":1}"#).remove(0);
    let row = &rows["jobs"][0];
    let asked = json!({"type": "session.history", "session": row["session"], "job": row["job"]});
    let turn = daemon.ask(&asked.to_string()).remove(0)["turns"][0].clone();
    let history = turn["request"]["history"].as_array().cloned();
    let texts = history.unwrap_or_default().into_iter();
    let texts = texts.map(|one| one["text"].as_str().unwrap().to_owned());
    (turn["request"]["system"].clone(), texts.collect())
}

/// Asks for a chat completion.
pub fn chat(http: &Http, body: &Value) -> Answer {
    http.post("/v1/chat/completions", body)
}

/// Asks, and leaves without an answer.
pub fn gives_up(http: &Http, path: &str, headers: &str, body: &Value) {
    let mut stream = http.connect();
    let (head, body) = (http.head(&format!("POST {path}")), body.to_string());
    let length = body.len();
    let kind = "Content-Type: application/json";
    let request = format!("{head}{headers}{kind}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    stream.set_read_timeout(Some(GIVES_UP)).unwrap();
    assert!(stream.read(&mut [0]).is_err());
}
