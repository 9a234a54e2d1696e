//! What is decoded, and what is refused with its name.

use super::*;
use crate::Request;
use crate::code::Code;
use crate::envelope::{Envelope, Rejected};

fn decode(line: &str) -> Result<Decoded, Rejected> {
    Request::decode(&Envelope::parse(line.as_bytes()).unwrap())
}

#[test]
fn request_lines_of_the_clawdis_proposal_are_valid() {
    for line in [
        r#"{"type":"send", "text":"hi", "session":"main", "thinking":"low"}"#,
        r#"{"type":"abort"}"#,
        r#"{"type":"status"}"#,
        r#"{"type":"compact"}"#,
    ] {
        assert!(decode(line).is_ok(), "{line}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_bad_field_is_refused_with_its_name() {
    for (line, code, says) in [
        (r#"{"type":"sned"}"#, Code::UnknownCommand, "sned"),
        (r#"{"prompt":""}"#, Code::InvalidRequest, "text"),
        (r#"{"prompt":" \n"}"#, Code::InvalidRequest, "text"),
        (r#"{"prompt":5}"#, Code::InvalidRequest, "expected a string"),
        (
            r#"{"prompt":"a","text":"b"}"#,
            Code::InvalidRequest,
            "duplicate field",
        ),
        (
            r#"{"type":"send"}"#,
            Code::InvalidRequest,
            "missing field `text`",
        ),
        (
            r#"{"prompt":"a","session":"a b"}"#,
            Code::InvalidRequest,
            "session",
        ),
        (
            r#"{"prompt":"a","session":""}"#,
            Code::InvalidRequest,
            "session",
        ),
        (
            r#"{"prompt":"a","cwd":"tmp"}"#,
            Code::InvalidRequest,
            "absolute",
        ),
        (
            r#"{"prompt":"a","model":"--evil"}"#,
            Code::InvalidRequest,
            "model",
        ),
        (
            r#"{"prompt":"a","timeout":-1}"#,
            Code::InvalidRequest,
            "timeout",
        ),
        (
            r#"{"prompt":"a","mode":"steal"}"#,
            Code::InvalidRequest,
            "queue",
        ),
        (
            r#"{"prompt":"a","idempotency_key":""}"#,
            Code::InvalidRequest,
            "idempotency_key",
        ),
        (
            r#"{"prompt":"a","must":["colour"]}"#,
            Code::Unsupported,
            "colour",
        ),
        (
            r#"{"prompt":"a","fallback_chain":["kimi","kimi/"]}"#,
            Code::InvalidRequest,
            "`fallback_chain` has \"kimi/\": expected `provider/model`",
        ),
        (
            r#"{"prompt":"a","system":" "}"#,
            Code::InvalidRequest,
            "`system` is blank",
        ),
        (
            r#"{"prompt":"a","system":"a\u0000b"}"#,
            Code::InvalidRequest,
            "`system` contains a NUL",
        ),
        (
            r#"{"prompt":"a","history":[{"role":"user","text":"x"},{"role":"user","text":""}]}"#,
            Code::InvalidRequest,
            "`history[1]` is blank",
        ),
        (
            r#"{"prompt":"a","history":[{"role":"system","text":"x"}]}"#,
            Code::InvalidRequest,
            "expected `user` or `assistant`",
        ),
        (
            r#"{"type":"session.new","history":[{"role":"user","text":"x"}]}"#,
            Code::InvalidRequest,
            "first `send`",
        ),
        (
            r#"{"prompt":"a","callback":{"url":"x"}}"#,
            Code::InvalidRequest,
            "callback",
        ),
        (
            r#"{"type":"collect","jobs":[]}"#,
            Code::InvalidRequest,
            "jobs",
        ),
        (
            r#"{"type":"collect","jobs":["x"]}"#,
            Code::InvalidRequest,
            "not a job",
        ),
        (
            r#"{"type":"dispatch"}"#,
            Code::InvalidRequest,
            "missing field `text`",
        ),
        (
            r#"{"type":"dispatch","jobs":[]}"#,
            Code::InvalidRequest,
            "0 entries",
        ),
        (
            r#"{"type":"dispatch","jobs":[{"text":"a"},{"text":""}]}"#,
            Code::InvalidRequest,
            "jobs[1]",
        ),
        (
            r#"{"prompt":"a","start_at":"tomorrow"}"#,
            Code::InvalidRequest,
            "start_at",
        ),
        (
            r#"{"prompt":"a","labels":{"a b":"c"}}"#,
            Code::InvalidRequest,
            "labels",
        ),
        (
            r#"{"type":"answer","question_id":"j1-q1"}"#,
            Code::InvalidRequest,
            "just one",
        ),
        (
            r#"{"type":"subscribe","jobs":[]}"#,
            Code::InvalidRequest,
            "jobs",
        ),
        (
            r#"{"type":"jobs","limit":0}"#,
            Code::InvalidRequest,
            "limit",
        ),
        (
            r#"{"type":"steer","text":" "}"#,
            Code::InvalidRequest,
            "text",
        ),
        (
            r#"{"type":"backup","path":"here"}"#,
            Code::InvalidRequest,
            "path",
        ),
    ] {
        let rejected = decode(line).expect_err(line);
        assert_eq!(rejected.code, code, "{line}");
        assert!(rejected.error.contains(says), "{line}: {rejected}");
    }
}

#[test]
fn request_that_begins_a_session_has_limits() {
    let system = |bytes: usize| format!(r#"{{"prompt":"a","system":"{}"}}"#, "x".repeat(bytes));
    assert!(decode(&system(crate::limits::MAX_SYSTEM)).is_ok());
    let refused = decode(&system(crate::limits::MAX_SYSTEM + 1)).unwrap_err();
    assert!(refused.error.contains("65537 bytes"), "{refused}");
    let history = |count: usize, bytes: usize| {
        let one = format!(r#"{{"role":"assistant","text":"{}"}}"#, "x".repeat(bytes));
        format!(
            r#"{{"prompt":"a","history":[{}]}}"#,
            vec![one; count].join(",")
        )
    };
    assert!(decode(&history(1000, 1)).is_ok());
    let refused = decode(&history(1001, 1)).unwrap_err();
    assert!(refused.error.contains("1001 entries"), "{refused}");
    let refused = decode(&history(5, 256 * 1024)).unwrap_err();
    assert!(refused.error.contains("bytes of text"), "{refused}");
}

#[test]
fn request_hash_covers_what_a_session_begins_with() {
    let hash = |line: &str| match decode(line).unwrap().request {
        Request::Send(send) => hashed(&send),
        other => panic!("{other:?}"),
    };
    let bare = hash(r#"{"prompt":"a"}"#);
    let with = hash(r#"{"prompt":"a","system":"s"}"#);
    assert_ne!(bare, with);
    assert_ne!(with, hash(r#"{"prompt":"a","system":"t"}"#));
    let said = |role: &str| {
        hash(&format!(
            r#"{{"prompt":"a","history":[{{"role":"{role}","text":"x"}}]}}"#
        ))
    };
    assert_ne!(bare, said("user"));
    assert_ne!(said("assistant"), said("user"));
}

#[test]
fn request_lists_misspelt_fields_with_the_nearest_name() {
    let decoded = decode(r#"{"prompt":"a","sesion":"x","zzzzzzzz":1}"#).unwrap();
    let near = |field: &str, nearest: Option<&str>| Ignored {
        field: field.to_owned(),
        nearest: nearest.map(str::to_owned),
    };
    assert_eq!(
        decoded.ignored,
        [near("sesion", Some("session")), near("zzzzzzzz", None)]
    );
}

#[test]
fn bare_prompt_gets_ends_and_typed_sends_stream() {
    let stream = |line: &str| match decode(line).unwrap().request {
        Request::Send(send) => send.stream,
        other => panic!("{other:?}"),
    };
    assert_eq!(stream(r#"{"prompt":"a"}"#), Some(false));
    assert_eq!(stream(r#"{"prompt":"a","stream":true}"#), Some(true));
    assert_eq!(stream(r#"{"type":"send","prompt":"a"}"#), Some(true));
}

#[test]
fn answer_has_one_form_and_hides_its_text() {
    for (given, fine) in [
        (r#""approve":false"#, true),
        (r#""choice":"left""#, true),
        (r#""text":"hunter2""#, true),
        (r#""cancel":true"#, true),
        (r#""cancel":false"#, false),
        (r#""approve":true,"cancel":true"#, false),
        (r#""choice":"left","text":"hunter2""#, false),
        (r#""text":7310942"#, false),
        (r#""text":["7310942"]"#, false),
    ] {
        let line = format!(r#"{{"type":"answer","question_id":"j1-q1",{given}}}"#);
        let decoded = Request::decode(&Envelope::parse(line.as_bytes()).unwrap());
        assert_eq!(decoded.is_ok(), fine, "{given}: {decoded:?}");
        let shown = format!("{decoded:?}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("7310942"),
            "{shown}"
        );
    }
}

#[test]
fn request_that_brings_servers_is_checked() {
    let bring = |servers: &str| decode(&format!(r#"{{"prompt":"a","mcp_servers":{servers}}}"#));
    let stdio = |name: &str, more: &str| {
        format!(r#"{{"type":"stdio","name":"{name}","command":"hush"{more}}}"#)
    };
    let http =
        |more: &str| format!(r#"{{"type":"http","name":"a","url":"https://a.example"{more}}}"#);
    let many: Vec<String> = (0..33).map(|n| stdio(&format!("s{n}"), "")).collect();
    let long = "x".repeat(crate::limits::MAX_MCP_BYTES);
    for (servers, says) in [
        (format!("[{}]", many.join(",")), "33 entries"),
        (format!("[{}]", stdio("a b", "")), "`name` must be"),
        (format!("[{0},{0}]", stdio("a", "")), "called `a`, too"),
        (
            format!("[{}]", stdio("a", r#","env":{"A=B":"hush"}"#)),
            "`env` has a name",
        ),
        (
            format!("[{}]", stdio("a", r#","args":["\u0000"]"#)),
            "a NUL",
        ),
        (
            format!("[{}]", http(r#","headers":{"a b":"hush"}"#)),
            "no header can have",
        ),
        (
            format!("[{}]", http(r#","headers":{"a":"hush\n"}"#)),
            "control character",
        ),
        (
            r#"[{"type":"sse","name":"a","url":"file:///hush"}]"#.to_owned(),
            "another scheme",
        ),
        (
            r#"[{"name":"a","command":"x"}]"#.to_owned(),
            "missing field `type`",
        ),
        (
            format!("[{}]", stdio("a", r#","cwd":"/""#)),
            "unknown field `cwd`",
        ),
        (
            format!(r#"[{}]"#, stdio("a", &format!(r#","args":["{long}"]"#))),
            "the limit is 65536",
        ),
    ] {
        let refused = bring(&servers).unwrap_err();
        assert!(refused.error.contains(says), "{refused}");
        assert!(!refused.error.contains("hush"), "{refused}");
    }
    let all = |env: &str| {
        let servers = format!(
            "[{},{}]",
            stdio("f", &format!(r#","env":{{"K":"{env}"}}"#)),
            http("")
        );
        match bring(&servers).unwrap().request {
            Request::Send(send) => send,
            other => panic!("{other:?}"),
        }
    };
    assert_ne!(hashed(&all("hush")), hashed(&all("other")));
    let shown = format!("{:?}", all("hush"));
    assert!(
        shown.contains("McpServer(stdio, f)") && !shown.contains("hush"),
        "{shown}"
    );
}
