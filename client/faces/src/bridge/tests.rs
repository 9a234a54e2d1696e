//! The bridge between a host and a daemon that both are played here, line by line.

use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Bridge, Defaults, Settings};
use crate::face::{Ask, Face as _, Outbox};
use crate::scripted;

/// The bridge, with what it said and asked that nobody looked at yet.
struct Scene {
    face: Bridge,
    out: Outbox,
    now: Instant,
    asked: Vec<Ask>,
    said: Vec<Value>,
    seq: u64,
}

impl Scene {
    fn with(once: bool, defaults: Defaults) -> Self {
        let settings = Settings {
            agent: None,
            here: Some("/w".to_owned()),
            once,
            defaults: Defaults {
                native: true,
                ..defaults
            },
            nonce: "n".to_owned(),
            clock: || UNIX_EPOCH + Duration::from_millis(1_700_000_000_007),
        };
        Self {
            face: Bridge::new(settings),
            out: Outbox::default(),
            now: Instant::now(),
            asked: Vec::new(),
            said: Vec::new(),
            seq: 0,
        }
    }

    fn new() -> Self {
        Self::with(false, Defaults::default())
    }

    /// One whose run `r` in the session `s` was accepted as `j1`.
    fn running(mut fields: Value) -> Self {
        let mut scene = Self::new();
        fields["request_id"] = json!("r");
        fields["session_id"] = json!("s");
        fields["message"] = json!("hello");
        scene.hear(&fields);
        scene.answer(
            "session.list",
            json!({"type": "session.list", "ok": true, "sessions": []}),
        );
        scene.accept();
        scene.told();
        scene
    }

    fn take(&mut self) {
        self.asked.extend(self.out.take_daemon());
        for line in self.out.take_client() {
            self.said.push(serde_json::from_str(&line).unwrap());
        }
    }

    fn line(&mut self, line: &[u8]) {
        self.face.client_line(line, self.now, &mut self.out);
        self.take();
    }

    fn hear(&mut self, line: &Value) {
        self.line(line.to_string().as_bytes());
    }

    /// The oldest request of a type.
    #[track_caller]
    fn asked(&mut self, kind: &str) -> Ask {
        scripted::asked(&mut self.asked, kind)
    }

    fn daemon(&mut self, to: &Ask, line: Value) {
        let received = scripted::answer(to, line);
        self.face
            .daemon_line(Some(to.ticket), received, self.now, &mut self.out);
        self.take();
    }

    #[track_caller]
    fn answer(&mut self, kind: &str, line: Value) -> Value {
        let ask = self.asked(kind);
        self.daemon(&ask, line);
        ask.fields
    }

    #[track_caller]
    fn accept(&mut self) {
        self.seq += 1;
        let accepted = json!({"type": "accepted", "seq": self.seq, "replayed": false, "job": "j1",
            "session": "s", "agent": "a", "ignored": [], "running": true});
        let ask = self.asked("send");
        self.daemon(&ask, accepted);
        self.asked.insert(0, ask);
    }

    /// A line of the turn; numbered where the daemon numbers it.
    #[track_caller]
    fn turn(&mut self, kind: &str, mut line: Value) {
        line["type"] = json!(kind);
        line["job"] = json!("j1");
        if !matches!(kind, "message_start" | "message_delta" | "thinking_delta") {
            self.seq += 1;
            line["seq"] = json!(self.seq);
        }
        let ask = self.asked("send");
        self.daemon(&ask, line);
        if !matches!(kind, "message_end" | "error") {
            self.asked.insert(0, ask);
        }
    }

    fn begin(&mut self, message: u32) {
        self.turn(
            "message_start",
            json!({"message": message, "role": "assistant"}),
        );
    }

    fn delta(&mut self, message: u32, offset: u64, text: &str, native: bool) {
        let delta = json!({"message": message, "offset": offset, "text": text, "native": native});
        self.turn("message_delta", delta);
    }

    #[track_caller]
    fn end(&mut self, stop: &str, text: &str) {
        self.turn("message_end", facts(json!({"stop": stop, "text": text})));
    }

    /// What was said since, in short.
    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said).iter().map(short).collect()
    }
}

fn facts(with: Value) -> Value {
    scripted::facts("s", with)
}

/// Its type, what is said, and how it ended.
fn short(said: &Value) -> String {
    let mut short = said["type"].as_str().unwrap().to_owned();
    for field in [
        "delta",
        "content",
        "text",
        "message",
        "finish_reason",
        "name",
        "reason",
        "resumed",
        "ok",
        "native",
        "completed",
        "interrupted",
        "failed",
        "partial",
    ] {
        match &said[field] {
            Value::Null => {}
            Value::Bool(false) if field != "native" && field != "completed" => {}
            Value::Bool(true) => short.push_str(&format!(" {field}")),
            Value::String(text) => short.push_str(&format!(" {text}")),
            other => short.push_str(&format!(" {field}={other}")),
        }
    }
    short
}

const STREAM: &str = r#"{"assistant_delta": true, "native_stream": true}"#;

fn stream() -> Value {
    serde_json::from_str(STREAM).unwrap()
}

#[test]
fn bridge_streams_then_ends_then_says_all() {
    let mut scene = Scene::running(stream());
    scene.begin(0);
    scene.turn(
        "thinking_delta",
        json!({"message": 0, "offset": 0, "text": "hm"}),
    );
    scene.delta(0, 0, "w0 ", true);
    scene.delta(0, 3, "w1", true);
    let start = json!({"tool_call_id": "c", "name": "ls", "input": {"a": 1}, "read_only": true});
    scene.turn("tool_start", start);
    let end = json!({"tool_call_id": "c", "ok": true, "output": "x", "truncated": false, "duration_ms": 3});
    scene.turn("tool_end", end);
    scene.begin(1);
    scene.delta(1, 0, "done", true);
    scene.end("end_turn", "done");
    let told = [
        "reasoning_delta hm",
        "assistant_delta w0  native",
        "assistant_delta w1 native",
        "assistant_message_end tool_calls native",
        "assistant_message w0 w1 tool_calls",
        "tool_start ls",
        "tool_result x ls ok",
        "assistant_delta done native",
        "assistant_message_end stop native",
        "assistant_message done stop",
        "conversation_end completed",
        "final done completed",
    ];
    assert_eq!(scene.told(), told);
    assert!(scene.face.is_done());
}

#[test]
fn bridge_cuts_finished_text_at_characters() {
    for (fields, streams) in [
        (
            json!({"assistant_delta": true, "assistant_delta_chunk_size": 2}),
            true,
        ),
        (
            json!({"assistant_delta": true, "native_stream": true, "native_assistant_delta": false, "assistant_delta_chunk_size": 2}),
            true,
        ),
        (
            json!({"assistant_delta": true, "native_stream": true, "assistant_delta_chunk_size": 2}),
            false,
        ),
    ] {
        let mut scene = Scene::running(fields);
        scene.begin(0);
        scene.delta(0, 0, "añ", streams);
        scene.delta(0, 3, "日b", streams);
        scene.delta(0, 7, "c", streams);
        assert_eq!(scene.told(), [""; 0]);
        scene.end("end_turn", "añ日bc");
        let told = [
            "assistant_delta añ native=false",
            "assistant_delta 日b native=false",
            "assistant_delta c native=false",
            "assistant_message_end stop native=false",
            "assistant_message añ日bc stop",
            "conversation_end completed",
            "final añ日bc completed",
        ];
        assert_eq!(scene.told(), told);
    }
    let mut scene = Scene::running(json!({}));
    scene.begin(0);
    scene.delta(0, 0, "whole", true);
    scene.end("end_turn", "whole");
    assert_eq!(scene.told()[0], "assistant_message whole stop");
}

#[test]
fn bridge_lines_have_the_protocols_fields() {
    let mut scene = Scene::new();
    scene.hear(
        &json!({"message": "hi", "request_id": 7, "task_id": "t", "model": "p/a/b",
        "cwd": "sub", "toolsets": "file, web", "disabled_toolsets": ["web"], "max_iterations": 3,
        "system_message": "be brief", "conversation_history": [{"role": "user", "content": "a"}]}),
    );
    let send = scene.asked("send");
    let expected = json!({"text": "hi", "provider": "p", "model": "a/b", "cwd": "/w/sub",
        "toolsets": ["file"], "system": "be brief", "history": [{"role": "user", "text": "a"}],
        "idempotency_key": "bridge-n-1", "mode": "reject", "stream": true, "on_question": "deny",
        "labels": {"task_id": "t"}, "after_failure": "run"});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(send.fields[field], *value, "{field}");
    }
    scene.asked.push(send);
    scene.accept();
    scene.end("end_turn", "yes");
    let time = "2023-11-14T22:13:20.007Z";
    let ids = |mut line: Value| {
        line["request_id"] = json!(7);
        line["session_id"] = json!("s");
        line
    };
    let said = [
        json!({"type": "session"}),
        json!({"type": "conversation_start", "timestamp": time, "user_message": "hi",
            "max_iterations": null, "resumed": false}),
        json!({"type": "note", "timestamp": time,
            "message": "`max_iterations` 3 is not heeded: agents have their own limits"}),
        json!({"type": "assistant_message", "timestamp": time, "content": "yes",
            "has_tool_calls": false, "finish_reason": "stop", "reasoning_present": false}),
        json!({"type": "conversation_end", "timestamp": time, "api_calls": null, "completed": true,
            "interrupted": false, "final_response_present": true, "partial": false, "failed": false}),
        json!({"type": "final", "text": "yes", "api_calls": null, "completed": true,
            "partial": false, "interrupted": false}),
    ];
    assert_eq!(scene.said, said.map(ids));
}

#[test]
fn bridge_sessions_go_on_or_begin_anew() {
    let mut scene = Scene::new();
    scene.hear(&json!({"message": "a", "session_id": "s"}));
    let row = json!({"session": "s", "agent": "a", "cwd": "/w", "state": "idle", "title": "",
        "preview": "", "model": null, "turns": 2, "created_at": "", "last_active_at": ""});
    let list = json!({"type": "session.list", "ok": true, "sessions": [row]});
    assert_eq!(scene.answer("session.list", list), json!({"session": "s"}));
    scene.accept();
    assert_eq!(scene.told(), ["session", "conversation_start resumed"]);
    // Busy here, and busy by another process.
    scene.hear(&json!({"message": "b", "session_id": "s"}));
    let busy = "error A run is already active for this session_id.";
    assert_eq!(scene.told(), [busy]);
    scene.end("end_turn", "x");
    scene.told();
    scene.hear(&json!({"message": "c", "session_id": "s", "resume": false}));
    scene.answer(
        "session.close",
        json!({"type": "error", "code": "session-busy", "error": "busy", "retryable": true}),
    );
    assert_eq!(scene.said[0]["retryable"], true);
    assert_eq!(scene.told(), [busy]);
    // It may run: asked again as it says, without a key, it would run twice.
    scene.hear(&json!({"message": "c", "session_id": "s", "resume": false}));
    scene.answer(
        "session.close",
        json!({"type": "error", "code": "outcome-unknown", "error": "who knows", "retryable": true}),
    );
    assert_eq!(scene.said[0]["retryable"], false);
    assert_eq!(
        scene.told(),
        ["error who knows: it may run yet: look before you ask again"]
    );
    // A word of the host's that is no name.
    scene.hear(&json!({"message": "d", "session_id": "ein Gespräch", "resume": false}));
    scene.answer(
        "session.close",
        json!({"type": "error", "code": "unknown-session", "error": "none"}),
    );
    let send = scene.asked("send");
    assert_eq!(send.fields["labels"]["bridge.session"], "ein Gespräch");
    let name = send.fields["session"].as_str().unwrap();
    assert!(name.starts_with("bridge-") && name.len() == 39, "{name}");
}

#[test]
fn bridge_interrupt_ends_a_run_at_once() {
    let mut scene = Scene::running(stream());
    scene.begin(0);
    scene.delta(0, 0, "half", true);
    let start = json!({"tool_call_id": "c", "name": "ls", "input": {}, "read_only": true});
    scene.turn("tool_start", start);
    scene.told();
    scene.hear(
        &json!({"type": "interrupt", "session_id": "s", "request_id": "i", "message": "stop now"}),
    );
    let ack =
        json!({"type": "interrupt_ack", "accepted": true, "request_id": "i", "session_id": "s"});
    assert_eq!(scene.said, [ack]);
    scene.said.clear();
    assert_eq!(scene.asked("abort").fields, json!({"job": "j1"}));
    scene.end("cancelled", "half");
    let told = [
        "tool_skipped ls interrupted",
        "conversation_end completed=false interrupted partial",
        "final half completed=false interrupted partial",
    ];
    assert_eq!(scene.told(), told);
    // One that isn't sent yet never is.
    scene.hear(&json!({"message": "d", "session_id": "n", "resume": true}));
    scene.hear(&json!({"type": "interrupt", "session_id": "n"}));
    scene.said.clear();
    scene.asked("abort");
    let none = json!({"type": "session.list", "ok": true, "sessions": []});
    scene.answer("session.list", none);
    assert!(scene.asked.is_empty(), "{:?}", scene.asked);
    let told = [
        "conversation_end completed=false interrupted",
        "final completed=false interrupted",
    ];
    assert_eq!(scene.told(), told);
    // Another process's, and nobody's.
    for (answer, told) in [
        (
            json!({"type": "abort", "ok": true, "jobs": ["j2"]}),
            "interrupt_ack",
        ),
        (
            json!({"type": "error", "code": "session-idle", "error": "idle"}),
            "error No active run for the provided session_id.",
        ),
    ] {
        scene.hear(&json!({"type": "interrupt", "session_id": "x"}));
        assert_eq!(scene.answer("abort", answer), json!({"session": "x"}));
        assert_eq!(scene.told(), [told]);
    }
}

#[test]
fn bridge_silent_model_ends_a_streamed_run() {
    let mut limits = stream();
    limits["stream_first_chunk_timeout_ms"] = json!(500);
    limits["stream_idle_timeout_ms"] = json!(100);
    let mut scene = Scene::running(limits);
    let wait = |scene: &Scene| scene.face.deadline().map(|at| at - scene.now);
    assert_eq!(wait(&scene), Some(Duration::from_millis(500)));
    scene.begin(0);
    scene.delta(0, 0, "a", true);
    assert_eq!(wait(&scene), Some(Duration::from_millis(100)));
    let start = json!({"tool_call_id": "c", "name": "ls", "input": {}, "read_only": true});
    scene.turn("tool_start", start);
    assert_eq!(wait(&scene), None);
    let end = json!({"tool_call_id": "c", "ok": false, "output": "", "truncated": false, "duration_ms": 3});
    scene.turn("tool_end", end);
    scene.told();
    scene.now += Duration::from_millis(500);
    scene.face.timer(scene.now, &mut scene.out);
    scene.take();
    scene.asked("abort");
    scene.end("cancelled", "a");
    let told = [
        "error Nothing came from the model for 500 ms, so the run was ended.",
        "conversation_end completed=false failed partial",
        "final a completed=false partial",
    ];
    assert_eq!(scene.told(), told);
}

#[test]
fn bridge_lost_daemon_is_asked_again_by_key() {
    let mut scene = Scene::running(stream());
    scene.begin(0);
    scene.delta(0, 0, "half", true);
    scene.told();
    let before = scene.asked("send");
    scene.face.daemon_lost(scene.now, &mut scene.out);
    scene.take();
    let again = scene.asked("send");
    assert_eq!(again.fields, before.fields);
    scene.asked.push(again);
    scene.seq = 0;
    scene.accept();
    scene.delta(0, 0, "half and", true);
    let failed =
        json!({"code": "interrupted", "error": "the daemon ended", "text": "half and more"});
    scene.turn("error", facts(failed));
    let told = [
        "assistant_delta  and native",
        "assistant_delta  more native",
        "assistant_message_end error native",
        "assistant_message half and more error",
        "error the daemon ended",
        "conversation_end completed=false failed partial",
        "final half and more completed=false partial",
    ];
    assert_eq!(scene.told(), told);
    assert!(scene.face.is_done());
}

#[test]
fn bridge_leaves_when_told_or_used() {
    let mut scene = Scene::running(json!({}));
    scene.face.client_ended(scene.now, &mut scene.out);
    assert!(!scene.face.leaves() && !scene.face.is_done());
    scene.hear(&json!({"type": "quit", "request_id": "q"}));
    assert_eq!(
        scene.said,
        [json!({"type": "shutdown_ack", "request_id": "q"})]
    );
    scene.said.clear();
    scene.asked("abort");
    scene.hear(&json!({"message": "more"}));
    assert_eq!(scene.told(), ["error The bridge is shutting down."]);
    scene.now += super::PATIENCE;
    scene.face.timer(scene.now, &mut scene.out);
    scene.take();
    assert_eq!(scene.told()[0], "error the run did not end within 10 s");
    assert!(scene.face.leaves() && scene.face.is_done());

    let mut scene = Scene::with(true, Defaults::default());
    scene.hear(&json!({"type": "ping", "request_id": "p"}));
    assert_eq!(scene.said, [json!({"type": "pong", "request_id": "p"})]);
    assert!(scene.face.leaves() && scene.face.is_done());
    scene.hear(&json!({"message": "a"}));
    assert!(
        scene.said[1]["message"]
            .as_str()
            .unwrap()
            .contains("--once")
    );
}

/// A line, the stage that refuses it, and how the refusal begins.
const REFUSED: &[(&str, &str, &str)] = &[
    ("nonsense", PARSE, "Invalid JSON input: "),
    (
        "[1]",
        PARSE,
        "Invalid JSON input: the line is not an object",
    ),
    (r#"{"a":1,"a":2}"#, PARSE, "Invalid JSON input: "),
    ("{}", VALID, NO_MESSAGE),
    (r#"{"type":"run","message":" "}"#, VALID, NO_MESSAGE),
    (r#"{"message":["a"]}"#, VALID, NO_MESSAGE),
    (
        r#"{"type":"wat"}"#,
        VALID,
        "Unsupported request type 'wat'.",
    ),
    (r#"{"type":5}"#, VALID, "Unsupported request type '5'."),
    (
        r#"{"type":"interrupt"}"#,
        VALID,
        "interrupt request requires 'session_id'.",
    ),
    (
        r#"{"message":"a","request_id":{}}"#,
        VALID,
        "`request_id` is {}",
    ),
    (
        r#"{"message":"a","session_id":7}"#,
        VALID,
        "`session_id` is 7",
    ),
    (
        r#"{"message":"a","api_key":"sk-secret"}"#,
        VALID,
        "`api_key` is not taken",
    ),
    (
        r#"{"message":"a","base_url":"http://x"}"#,
        VALID,
        "`base_url` is not taken",
    ),
    (
        r#"{"message":"a","disabled_toolsets":["x"]}"#,
        VALID,
        "`disabled_toolsets` is given",
    ),
    (
        r#"{"message":"a","assistant_delta_chunk_size":0}"#,
        VALID,
        "`assistant_delta_chunk_size` is 0",
    ),
    (
        r#"{"message":"a","stream_idle_timeout_ms":-1}"#,
        VALID,
        "Invalid run request: ",
    ),
    (
        r#"{"message":"a","conversation_history":[{"role":"x"}]}"#,
        VALID,
        "`conversation_history[0]`",
    ),
    (r#"{"message":"a","cwd":""}"#, VALID, "`cwd` is empty"),
];
const PARSE: &str = "request_parse";
const VALID: &str = "request_validation";
const NO_MESSAGE: &str = "Run request requires a non-empty 'message' string.";

#[test]
fn bridge_refuses_what_it_can_not_mean() {
    let mut scene = Scene::new();
    for (line, stage, why) in REFUSED {
        scene.line(line.as_bytes());
        let said = scene.said.remove(0);
        assert_eq!(
            (&said["type"], &said["stage"]),
            (&json!("error"), &json!(stage)),
            "{line}"
        );
        let text = said["message"].as_str().unwrap();
        assert!(
            text.starts_with(why) && !text.contains("secret"),
            "{line}: {text}"
        );
        assert!(scene.said.is_empty() && scene.asked.is_empty(), "{line}");
    }
    scene.line(b"\xff");
    assert_eq!(scene.said[0]["stage"], PARSE);
    assert!(scene.face.is_done());
}
