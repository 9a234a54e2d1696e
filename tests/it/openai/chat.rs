//! Models and chat completions: whole, streamed, failed, asked again.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{beginning, chat, chunks, content, error, header, said};
use crate::http::{Http, jobs, served};
use crate::support::{Daemon, kill, needs, wait_for};

#[test]
fn openai_models_are_the_usable_agents() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let list = http.curl("/v1/models", &[]).json();
    let ids: Vec<&Value> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["id"])
        .collect();
    assert_eq!((&list["object"], ids[0]), (&json!("list"), &json!("timmy")));
    assert!(ids.contains(&&json!("chaos")), "{list}");
    for model in ["timmy", "agentd", "timmy/echo/scripted"] {
        let one = http.curl(&format!("/v1/models/{model}"), &[]);
        assert_eq!(
            (one.status, &one.json()["id"]),
            (200, &json!(model)),
            "{one:?}"
        );
        assert!(header(&one, "x-request-id").unwrap().starts_with("req_"));
    }
    for model in ["gpt-4o", "timmy/echo/other", "timmy//x"] {
        let unknown = http.curl(&format!("/v1/models/{model}"), &[]);
        assert_eq!(error(&unknown).0, 404, "{model}");
    }
}

#[test]
fn chat_is_answered_whole_and_as_chunks() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let whole = chat(&http, &said("hello world"));
    assert_eq!(content(&whole), "hello world");
    let reply = whole.json();
    assert_eq!(
        (&reply["id"], &reply["object"]),
        (&json!("chatcmpl-j1"), &json!("chat.completion"))
    );
    assert_eq!(
        (&reply["model"], &reply["choices"][0]["finish_reason"]),
        (&json!("timmy"), &json!("stop"))
    );
    assert_eq!(reply["usage"]["total_tokens"], 0);
    assert_eq!(header(&whole, "x-agentd-job"), Some("j1"));
    let session = header(&whole, "x-agentd-session").unwrap();
    assert_eq!(header(&whole, "x-hermes-session-id"), Some(session));
    let mut body = said("[[tool ls]] said in pieces");
    body["stream"] = true.into();
    body["model"] = "timmy".into();
    body["stream_options"] = json!({"include_usage": true});
    body["tools"] = json!([{"type": "function"}]);
    let stream = chat(&http, &body);
    assert_eq!(header(&stream, "x-agentd-ignored"), Some("tools"));
    let (chunks, done) = chunks(&stream);
    assert!(done);
    let (usage, chunks) = chunks.split_last().unwrap();
    assert_eq!(usage["choices"], json!([]));
    let mut text = String::new();
    for chunk in chunks {
        assert_eq!(chunk["id"], "chatcmpl-j2");
        let delta = &chunk["choices"][0]["delta"];
        assert!(delta.get("tool_calls").is_none());
        text += delta["content"].as_str().unwrap_or_default();
    }
    assert_eq!(text.trim(), "said in pieces");
    let tools = chunks
        .iter()
        .filter(|chunk| chunk["agentd"]["tool"].is_object());
    assert_eq!(tools.count(), 2);
    assert_eq!(jobs(&daemon), 2);
}

#[test]
fn chat_that_failed_is_never_asked_again() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let failed = chat(&http, &said("[[error=rate-limit]]"));
    assert_eq!(error(&failed), (424, "rate-limit".to_owned(), None));
    assert_eq!(header(&failed, "x-should-retry"), Some("false"));
    assert_eq!(header(&failed, "x-agentd-job"), Some("j1"));
    let long = chat(&http, &said("[[error=context-overflow]]"));
    assert_eq!(error(&long).1, "context_length_exceeded");
    let mut body = said("begun [[error=rate-limit]]");
    body["stream"] = true.into();
    let (chunks, done) = chunks(&chat(&http, &body));
    let last = chunks.last().unwrap();
    assert_eq!(
        (&last["error"]["code"], done),
        (&json!("rate-limit"), false)
    );
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["choices"][0]["finish_reason"].is_null())
    );
    assert_eq!(jobs(&daemon), 3);
    // Nothing happened: the models that there are, are named.
    let mut body = said("hi");
    body["model"] = "gpt-4o".into();
    let unknown = chat(&http, &body);
    assert_eq!(
        error(&unknown),
        (404, "model_not_found".to_owned(), Some("model".to_owned()))
    );
    assert!(unknown.body.contains("`timmy`"), "{unknown:?}");
    assert_eq!(jobs(&daemon), 3);
}

#[test]
fn chat_asked_again_is_the_same_turn() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let body = said("once [[sleep 300]] more");
    let count = |count: &str| {
        let more = [
            format!("x-stainless-retry-count: {count}"),
            "x-stainless-read-timeout: 60".to_owned(),
        ];
        [
            "-H".to_owned(),
            more[0].clone(),
            "-H".to_owned(),
            more[1].clone(),
        ]
    };
    // The first one leaves before its answer.
    let mut stream = http.connect();
    let text = body.to_string();
    let head = http.head("POST /v1/chat/completions");
    let request = format!(
        "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    wait_for("it is accepted", || (jobs(&daemon) == 1).then_some(()));
    stream.shutdown(Shutdown::Both).unwrap();
    let more = count("1");
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let again = http.post_with("/v1/chat/completions", &body, &more);
    assert_eq!(
        (content(&again), header(&again, "x-agentd-job")),
        ("once more".to_owned(), Some("j1"))
    );
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let other = http.post_with("/v1/chat/completions", &streamed, &more);
    assert_eq!(header(&other, "x-agentd-job"), Some("j2"));
    let (_, done) = chunks(&http.post_with("/v1/chat/completions", &streamed, &more));
    assert!(done);
    // Without a word of an earlier one it is another turn.
    assert_eq!(header(&chat(&http, &body), "x-agentd-job"), Some("j3"));
    let key = ["-H", "Idempotency-Key: monday"];
    for _ in 0..2 {
        let keyed = http.post_with("/v1/chat/completions", &body, &key);
        assert_eq!(header(&keyed, "x-agentd-job"), Some("j4"));
    }
    let other = http.post_with("/v1/chat/completions", &said("other"), &key);
    assert_eq!(error(&other).1, "idempotency-conflict");
    assert_eq!(jobs(&daemon), 4);
}

/// How long that client waits.
const GIVES_UP: Duration = Duration::from_millis(500);

/// A client gives up while the daemon stands still, and asks again before its first attempt is taken.
#[test]
fn chat_asked_again_before_acceptance_runs_once() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let session = "X-Agentd-Session: again";
    // In a session, where it goes on is looked up first; and there the same was said before.
    let asked = [
        ("once 1", false, "X-None: "),
        ("once 2", true, "X-None: "),
        ("once 3", false, session),
        ("once 3", false, session),
    ];
    for (number, (words, streams, named)) in (1..).zip(asked) {
        let mut body = said(words);
        body["stream"] = streams.into();
        let text = body.to_string();
        let head = http.head("POST /v1/chat/completions");
        kill(daemon.pid(), Signal::SIGSTOP);
        let mut first = http.connect();
        let request = format!(
            "{head}x-stainless-retry-count: 0\r\n{named}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        first.write_all(request.as_bytes()).unwrap();
        first.set_read_timeout(Some(GIVES_UP)).unwrap();
        assert!(first.read(&mut [0]).is_err());
        drop(first);
        let retry = ["-H", "x-stainless-retry-count: 1", "-H", named];
        let again = std::thread::scope(|scope| {
            let asking = scope.spawn(|| http.post_with("/v1/chat/completions", &body, &retry));
            kill(daemon.pid(), Signal::SIGCONT);
            asking.join().unwrap()
        });
        assert_eq!(again.status, 200, "{again:?}");
        assert!(again.body.contains("\"stop\""), "all of it: {again:?}");
        assert_eq!(jobs(&daemon), number, "{words} {streams}");
    }
}

/// Reads a stream up to its first word.
pub(super) fn begun(http: &Http, body: &Value) -> BufReader<std::net::TcpStream> {
    begun_with(http, "", body)
}

/// The same with more headers, each with its line end.
pub(super) fn begun_with(
    http: &Http,
    headers: &str,
    body: &Value,
) -> BufReader<std::net::TcpStream> {
    let mut stream = http.connect();
    let text = body.to_string();
    let head = http.head("POST /v1/chat/completions");
    let request = format!(
        "{head}{headers}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut said = String::new();
    while !said.contains("\"content\":\"begun") {
        assert!(reader.read_line(&mut said).unwrap() > 0, "{said}");
    }
    reader
}

#[test]
fn chat_stream_that_is_closed_cancels_its_turn() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let mut body = said("begun [[sleep 600000]]");
    body["stream"] = true.into();
    drop(begun(&http, &body));
    let stop = |daemon: &Daemon, job: &str| {
        let row = daemon.ask(r#"{"type":"jobs"}"#).remove(0);
        let rows = row["jobs"].as_array().unwrap();
        let row = rows.iter().find(|row| row["job"] == job)?;
        row["stop"].as_str().map(str::to_owned)
    };
    let stopped = wait_for("it is cancelled", || stop(&daemon, "j1"));
    assert_eq!(stopped, "cancelled");
    // Its client, whose connection broke, must not take what was said until then for the answer.
    let retry = ["-H", "x-stainless-retry-count: 1"];
    let again = http.post_with("/v1/chat/completions", &body, &retry);
    assert_eq!(error(&again).0, 424, "{again:?}");
    assert_eq!(error(&again).1, "cancelled");
    assert_eq!(header(&again, "x-agentd-job"), Some("j1"));
    // Nor one that waits for all of it under the same key.
    let keyed = said("begun [[sleep 600000]] keyed");
    let mut streamed = keyed.clone();
    streamed["stream"] = true.into();
    drop(begun_with(&http, "Idempotency-Key: k\r\n", &streamed));
    let whole = http.post_with(
        "/v1/chat/completions",
        &keyed,
        &["-H", "Idempotency-Key: k"],
    );
    assert_eq!((error(&whole).0, &*error(&whole).1), (424, "cancelled"));
    assert_eq!(header(&whole, "x-agentd-job"), Some("j2"));
    let keeping = Http::with(&daemon.place, &["--keep-turns", "--model", "gpt-4o=timmy"]);
    body["model"] = "gpt-4o".into();
    body["messages"][0]["content"] = "begun [[sleep 500]] on".into();
    drop(begun(&keeping, &body));
    assert_eq!(wait_for("it ends", || stop(&daemon, "j3")), "end_turn");
}

#[test]
fn chat_whose_daemon_stays_away_is_found_again() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let body = said("[[sleep 600000]]");
    let asked = |more: &[&str]| http.post_with("/v1/chat/completions", &body, more);
    let keyed = ["-H", "Idempotency-Key: k"];
    let (found, plain, place) = std::thread::scope(|scope| {
        let found = scope.spawn(|| asked(&keyed));
        let plain = scope.spawn(|| asked(&[]));
        wait_for("both are taken", || (jobs(&daemon) == 2).then_some(()));
        let place = daemon.kill();
        (found.join().unwrap(), plain.join().unwrap(), place)
    });
    for (answer, status, again) in [(&found, 503, "true"), (&plain, 424, "false")] {
        let expected = (status, "outcome-unknown".to_owned(), None);
        assert_eq!(error(answer), expected, "{answer:?}");
        assert_eq!(header(answer, "x-should-retry"), Some(again));
    }
    let daemon = place.start();
    let again = asked(&keyed);
    assert_eq!((error(&again).0, &*error(&again).1), (424, "interrupted"));
    assert_eq!(
        header(&again, "x-agentd-job"),
        header(&found, "x-agentd-job")
    );
    assert_eq!(jobs(&daemon), 2);
}

#[test]
fn chat_stream_hears_that_the_daemon_died() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let mut body = said("begun [[sleep 600000]]");
    body["stream"] = true.into();
    let mut stream = begun(&http, &body);
    let place = daemon.kill();
    let daemon = place.start();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"code\":\"interrupted\""), "{rest}");
    assert!(!rest.contains("[DONE]"), "{rest}");
    assert_eq!(jobs(&daemon), 1);
}

#[test]
fn chat_without_a_daemon_may_be_asked_again() {
    if needs("curl").is_none() {
        return;
    }
    let daemon = Daemon::start();
    let http = Http::start(&daemon.place);
    let attempt = |count: &str| {
        let count = format!("x-stainless-retry-count: {count}");
        http.post_with("/v1/chat/completions", &said("hi"), &["-H", &count])
    };
    assert_eq!(header(&attempt("0"), "x-agentd-job"), Some("j1"));
    let place = daemon.kill();
    let refused = attempt("0");
    assert_eq!(error(&refused).0, 503);
    assert_eq!(header(&refused, "retry-after"), Some("1"));
    assert_eq!(header(&refused, "x-should-retry"), Some("true"));
    assert_eq!(error(&attempt("1")).0, 503);
    let _daemon = place.start();
    // Not the answer of the one before, which was the same request.
    for count in ["2", "3"] {
        assert_eq!(header(&attempt(count), "x-agentd-job"), Some("j2"));
    }
}

/// Its turn goes on: whoever finds it again is told to ask, and nobody else.
#[test]
fn chat_amid_a_stop_is_found_again() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let gate = daemon.path("gate");
    let asked = |http: &Http, word: &str, more: &[&str]| {
        let mut body = said(&format!("chaos:wait-file {};say {word}", gate.display()));
        body["model"] = "chaos".into();
        http.post_with("/v1/chat/completions", &body, more)
    };
    let counted = ["-H", "x-stainless-retry-count: 0"];
    let (found, plain) = std::thread::scope(|scope| {
        let found = scope.spawn(|| asked(&http, "one", &counted));
        wait_for("it is taken", || (jobs(&daemon) == 1).then_some(()));
        let plain = scope.spawn(|| asked(&http, "two", &[]));
        wait_for("both are taken", || (jobs(&daemon) == 2).then_some(()));
        kill(http.pid(), Signal::SIGTERM);
        (found.join().unwrap(), plain.join().unwrap())
    });
    for (answer, status, again) in [(&found, 503, "true"), (&plain, 424, "false")] {
        let expected = (status, "stopping".to_owned(), None);
        assert_eq!(error(answer), expected, "{answer:?}");
        assert_eq!(header(answer, "x-should-retry"), Some(again));
    }
    std::fs::write(&gate, "").unwrap();
    let next = Http::start(&daemon.place);
    let again = asked(&next, "one", &["-H", "x-stainless-retry-count: 1"]);
    assert_eq!(content(&again), "one");
    assert_eq!(header(&again, "x-agentd-job"), Some("j1"));
    assert_eq!(jobs(&daemon), 2);
}

#[test]
fn chat_passes_pictures_on() {
    let Some((_daemon, http)) = served() else {
        return;
    };
    let file = json!({"type": "file", "file": {"file_data": "data:text/plain;base64,aGVsbG8=", "filename": "greeting"}});
    let parts = json!([{"type": "text", "text": "chaos:attached"}, file]);
    let body = json!({"model": "chaos", "messages": [{"role": "user", "content": parts}]});
    assert_eq!(
        content(&chat(&http, &body)),
        "text/plain greeting 8 aGVsbG8="
    );
    let url = json!({"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/a.png"}});
    let body = json!({"messages": [{"role": "user", "content": [url]}]});
    assert_eq!(
        error(&chat(&http, &body)),
        (
            400,
            "invalid_value".to_owned(),
            Some("messages[0].content[0]".to_owned())
        )
    );
}

#[test]
fn chat_form_is_told_to_the_agent() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let schema = json!({"name": "point", "schema": {"type": "object", "required": ["x"]}});
    let mut body = said("hi");
    body["response_format"] = json!({"type": "json_schema", "json_schema": schema});
    let answer = chat(&http, &body);
    assert_eq!(content(&answer), "hi");
    assert_eq!(
        header(&answer, "x-agentd-ignored"),
        Some("response_format"),
        "{answer:?}"
    );
    let (chat_system, _) = beginning(&daemon);
    assert!(
        chat_system
            .as_str()
            .unwrap()
            .contains("\"required\":[\"x\"]"),
        "{chat_system}"
    );
    let format = json!({"type": "json_schema", "name": "point", "schema": schema["schema"]});
    let asked = json!({"input": "hi", "instructions": "be terse", "text": {"format": format}});
    let answer = http.post("/v1/responses", &asked);
    assert_eq!(header(&answer, "x-agentd-ignored"), Some("text.format"));
    let (system, _) = beginning(&daemon);
    assert_eq!(
        system,
        format!("be terse\n\n{}", chat_system.as_str().unwrap())
    );
    // What whoever made the client says is told as it was said.
    let path = format!("/v1/responses/{}", answer.json()["id"].as_str().unwrap());
    assert_eq!(http.curl(&path, &[]).json()["instructions"], "be terse");
    body["response_format"] = json!({"type": "json_schema"});
    let wrong = error(&chat(&http, &body));
    assert_eq!(
        (wrong.0, wrong.2.as_deref()),
        (400, Some("response_format"))
    );
}

#[test]
fn chat_retry_is_found_behind_others_bad_bodies() {
    let Some((daemon, http)) = served() else {
        return;
    };
    let path = "/v1/chat/completions";
    let asked = |count: &str, body: &Value| {
        let count = format!("x-stainless-retry-count: {count}");
        http.post_with(path, body, &["-H", &count])
    };
    assert_eq!(asked("0", &said("a")).status, 200);
    // Others' that can't be read, and one that breaks off.
    let json = "Content-Type: application/json";
    let bad = http.curl(path, &["-H", json, "-d", "{oops"]);
    assert_eq!(bad.status, 400, "{bad:?}");
    let head = http.head(&format!("POST {path}"));
    let half = format!("{head}{json}\r\nContent-Length: 1000\r\n\r\n{{");
    let cut = http.raw_and_no_more(half.as_bytes());
    assert!(cut.is_empty() || cut.contains(" 400 "), "{cut}");
    let again = asked("1", &said("a"));
    assert_eq!(header(&again, "x-agentd-job"), Some("j1"), "{again:?}");
    assert_eq!(jobs(&daemon), 1);
}
