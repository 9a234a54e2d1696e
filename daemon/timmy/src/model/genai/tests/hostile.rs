//! A server that says whatever it likes: there is always an end, and never a panic.

use std::io::{Read as _, Write as _};

use proptest::prelude::*;

use super::*;
use crate::model::FailedAt;

/// Answers one request with a head and these bytes.
fn serve(body: Vec<u8>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let mut some = [0; 4096];
            let read = stream.read(&mut some)?;
            if read == 0 {
                break;
            }
            head.extend_from_slice(&some[..read]);
        }
        stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        )?;
        stream.write_all(&body)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        // What is left of the request is read, or the answer would be thrown away with it.
        let _all = stream.read_to_end(&mut Vec::new())?;
        Ok(())
    });
    base
}

fn outcome(wire: Wire, body: Vec<u8>) -> Result<Reply, Box<Failure>> {
    let mut request = at(serve(body), wire, model(wire));
    request.messages.push(user("hi"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(ask(&request))
}

fn framed(wire: Wire, event: &str, data: &str) -> String {
    match wire {
        Wire::Ollama => format!("{data}\n"),
        Wire::Anthropic | Wire::Responses => format!("event: {event}\ndata: {data}\n\n"),
        _ => format!("data: {data}\n\n"),
    }
}

/// Fields that somebody looks for, and values that nobody expects there.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        Just(json!(i32::MAX)),
        Just(json!(u32::MAX)),
        Just(json!(-1)),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        Just(json!("stop")),
        Just(json!("tool_use")),
        Just(json!("thinking")),
        Just(json!("function_call")),
        Just(json!("completed")),
    ];
    let name = prop::sample::select(FIELDS);
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..6).prop_map(|map| {
                let fields = map
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value));
                Value::Object(fields.collect())
            }),
        ]
    })
}

const FIELDS: &[&str] = &[
    "choices",
    "delta",
    "content",
    "tool_calls",
    "index",
    "id",
    "function",
    "name",
    "arguments",
    "finish_reason",
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "cost",
    "refusal",
    "error",
    "message",
    "code",
    "type",
    "content_block",
    "input_tokens",
    "output_tokens",
    "partial_json",
    "cache_read_input_tokens",
    "stop_reason",
    "stop_details",
    "text",
    "thinking",
    "signature",
    "candidates",
    "parts",
    "functionCall",
    "args",
    "finishReason",
    "promptFeedback",
    "blockReason",
    "usageMetadata",
    "promptTokenCount",
    "thoughtsTokenCount",
    "candidatesTokenCount",
    "response",
    "output",
    "output_index",
    "item",
    "status",
    "call_id",
    "done",
    "done_reason",
    "prompt_eval_count",
    "eval_count",
    "reasoning_details",
    "incomplete_details",
    "reason",
];

const EVENTS: &[&str] = &[
    "message",
    "message_start",
    "message_delta",
    "message_stop",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "error",
    "ping",
    "response.completed",
    "response.failed",
    "response.incomplete",
    "response.output_item.added",
    "response.output_item.done",
    "response.function_call_arguments.delta",
    "response.refusal.delta",
];

/// Frames that are each as they should be, for any wire.
fn frames() -> Vec<(&'static str, Value)> {
    let item =
        json!({"type": "function_call", "call_id": "c", "name": "read", "arguments": "{\"a\":"});
    let usage = json!({"input_tokens": i32::MAX, "cache_read_input_tokens": i32::MAX, "output_tokens": i32::MAX});
    vec![
        (
            "message",
            json!({"choices": [{"delta": {"content": "a", "refusal": "b"}}]}),
        ),
        (
            "message",
            json!({"choices": [{"delta": {"tool_calls": [{"index": u32::MAX, "id": "x", "function": {"name": "read", "arguments": "{"}}]}}]}),
        ),
        (
            "message",
            json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": i32::MAX, "completion_tokens": -5, "cost": -1}}),
        ),
        (
            "message_start",
            json!({"type": "message_start", "message": {"usage": usage}}),
        ),
        (
            "content_block_start",
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "read"}}),
        ),
        (
            "content_block_delta",
            json!({"type": "content_block_delta", "delta": {"partial_json": "{", "text": "x"}}),
        ),
        ("content_block_stop", json!({"type": "content_block_stop"})),
        (
            "message_delta",
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage}),
        ),
        ("message_stop", json!({"type": "message_stop"})),
        (
            "message",
            json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "r"}}]}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": i32::MAX, "toolUsePromptTokenCount": i32::MAX, "candidatesTokenCount": i32::MAX, "thoughtsTokenCount": i32::MAX}}),
        ),
        (
            "message",
            json!({"promptFeedback": {"blockReason": "SAFETY"}}),
        ),
        (
            "response.output_item.added",
            json!({"type": "response.output_item.added", "output_index": u32::MAX, "item": item}),
        ),
        (
            "response.completed",
            json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "model": "m", "output": [item]}}),
        ),
        (
            "message",
            json!({"message": {"content": "a", "tool_calls": [{"function": {"name": "r", "arguments": "{"}}]}, "done": false}),
        ),
        (
            "message",
            json!({"done": true, "done_reason": "stop", "prompt_eval_count": i32::MAX, "eval_count": i32::MAX}),
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_bytes_end_in_a_reply_or_failure(
        wire in prop::sample::select(&WIRES[..]),
        body in prop::collection::vec(any::<u8>(), 0..2048),
    ) {
        let _either = outcome(wire, body);
    }

    #[test]
    fn hostile_frames_end_in_a_reply_or_failure(
        wire in prop::sample::select(&WIRES[..]),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        done in any::<bool>(),
    ) {
        let all = frames();
        let mut body: String = picks
            .iter()
            .map(|pick| pick.get(&all))
            .map(|(event, data)| framed(wire, event, &data.to_string()))
            .collect();
        if done {
            body.push_str("data: [DONE]\n\n");
        }
        if let Ok(reply) = outcome(wire, body.into_bytes()) {
            let ids: std::collections::HashSet<_> = reply.message.calls.iter().map(|call| &call.id).collect();
            prop_assert_eq!(ids.len(), reply.message.calls.len());
        }
    }

    #[test]
    fn hostile_fields_end_in_a_reply_or_failure(
        wire in prop::sample::select(&WIRES[..]),
        all in prop::collection::vec((prop::sample::select(EVENTS), value()), 0..6),
    ) {
        let body: String = all
            .iter()
            .map(|(event, data)| framed(wire, event, &data.to_string()))
            .collect();
        let _either = outcome(wire, body.into_bytes());
    }
}

#[test]
fn an_answer_that_never_gets_shorter_is_ended() {
    for wire in [Wire::OpenAi, Wire::Ollama] {
        let text = "x".repeat(1 << 15);
        let data = match wire {
            Wire::Ollama => json!({"message": {"content": text}, "done": false}),
            _ => json!({"choices": [{"delta": {"content": text}}]}),
        };
        let frame = framed(wire, "message", &data.to_string());
        let failure = outcome(wire, frame.repeat(1100).into_bytes()).unwrap_err();
        assert_eq!(failure.at, FailedAt::Malformed, "{wire:?}");
        assert!(
            failure.text.contains("32 MiB"),
            "{wire:?}: {}",
            failure.text
        );
    }
}

#[test]
fn a_line_that_never_ends_is_ended() {
    let body = vec![b'x'; 33 << 20];
    let failure = outcome(Wire::Ollama, body).unwrap_err();
    assert_eq!(failure.at, FailedAt::Malformed, "{failure:?}");
    assert!(failure.text.contains("32 MiB"), "{}", failure.text);
}

/// Bytes go on coming, and none of them ends a frame.
#[tokio::test]
async fn a_frame_that_never_ends_is_silence() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || -> std::io::Result<()> {
        for stream in listener.incoming() {
            let mut stream = stream?;
            let _some = stream.read(&mut [0; 4096])?;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {";
            stream.write_all(head.as_bytes())?;
            // Until the caller leaves.
            while stream.write_all(b" ").is_ok() {
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }
        Ok(())
    });
    let impatient = patient(Duration::from_millis(300));
    for wire in [Wire::OpenAi, Wire::Responses, Wire::Anthropic, Wire::Gemini] {
        let mut request = at(base.clone(), wire, model(wire));
        request.messages.push(user("hi"));
        let (outcome, _) = hear(&impatient, &request).await;
        assert_eq!(outcome.unwrap_err().at, FailedAt::TimedOut, "{wire:?}");
    }
}

#[test]
fn hostile_index_of_calls_takes_no_room() {
    let call = json!({"choices": [{"delta": {"tool_calls": [{"index": u32::MAX, "id": "a", "function": {"name": "read", "arguments": "{}"}}]}}]});
    let stop = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
    let body = format!("data: {call}\n\ndata: {stop}\n\ndata: [DONE]\n\n");
    let reply = outcome(Wire::OpenAi, body.into_bytes()).unwrap();
    assert_eq!(reply.message.calls.len(), 1);
    assert_eq!(reply.message.calls[0].name, "read");
}
