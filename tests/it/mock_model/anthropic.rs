//! Anthropic's messages, streamed: as much as agents need.
//!
//! What the agent puts into user messages by itself (reminders in `<system-reminder>`, the mark of an
//! interruption) is no word of the user. Turns that failed leave their prompts behind, which the agent
//! then sends as further blocks of one message: each block is a user message here.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Answer, Asked, Wire, events_follow, failed_answer, json_answer, text, until_left};

pub(super) const WIRE: Wire = Wire {
    serves: |path| {
        path.split('?')
            .next()
            .unwrap_or_default()
            .contains("/v1/messages")
    },
    read,
    write,
};

/// How a word in the middle of a turn reaches the model, as a system message.
const WORD: &str = "The user sent a new message while you were working:\n";

fn read(path: &str, request: &Value) -> Asked {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| Some(tool["name"].as_str()?.to_owned());
    let result = |message: &Value| {
        let blocks = message["content"].as_array()?;
        let result = blocks
            .iter()
            .rfind(|block| block["type"] == "tool_result")?;
        Some(text(&result["content"]))
    };
    // What a tool said counts until somebody has spoken since.
    let since = |message: &&Value| message["role"] == "assistant" || !words(message).is_empty();
    let before = messages.iter().rposition(|message| since(&message));
    let newer = &messages[before.map_or(0, |at| at + 1)..];
    Asked {
        model: request["model"].as_str().unwrap_or_default().to_owned(),
        // A look at a model that the agent has never heard of is no turn either.
        users: if path.contains("count_tokens") || request["stream"] != true {
            Vec::new()
        } else {
            messages.iter().flat_map(words).collect()
        },
        tool_result: newer.iter().rev().find_map(result),
        tools: tools.iter().filter_map(name).collect(),
        ..Asked::default()
    }
}

/// What the user said in a message.
fn words(message: &Value) -> Vec<String> {
    let blocks = match &message["content"] {
        Value::String(text) => vec![text.clone()],
        Value::Array(blocks) => blocks
            .iter()
            .filter_map(|block| Some(block["text"].as_str()?.to_owned()))
            .collect(),
        _ => Vec::new(),
    };
    let own = |block: &String| {
        let block = block.trim();
        match message["role"].as_str() {
            Some("user")
                if !block.starts_with('<') && !block.starts_with("[Request interrupted") =>
            {
                Some(block.to_owned())
            }
            Some("system") => {
                let word = block.strip_prefix(WORD)?;
                word.lines().next().map(str::to_owned)
            }
            _ => None,
        }
    };
    blocks.iter().filter_map(own).collect()
}

fn write(stream: &mut TcpStream, asked: &Asked, answer: &Answer) -> std::io::Result<()> {
    let error = |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_mock"});
    match answer {
        Answer::Error(status) => {
            let kind = match status {
                401 => "authentication_error",
                429 => "rate_limit_error",
                _ => "api_error",
            };
            let body = error(kind, &format!("mock error {status}"));
            return json_answer(stream, *status, &body);
        }
        Answer::Overflow => {
            let message = "prompt is too long: 209999 tokens > 200000 maximum";
            return json_answer(stream, 400, &error("invalid_request_error", message));
        }
        Answer::Fail(failing) => {
            let (status, kind) = match (failing.status, failing.code) {
                (503, _) => (529, "overloaded_error"),
                (429, _) => (429, "rate_limit_error"),
                (401, _) => (401, "authentication_error"),
                (404, _) => (404, "not_found_error"),
                (500, _) => (500, "api_error"),
                (status, code) => (status, code),
            };
            let body = error(kind, &failing.message);
            return failed_answer(stream, status, failing.wait.as_deref(), &body);
        }
        _ => {}
    }
    if asked.users.is_empty() {
        let usage = json!({"input_tokens": 12, "output_tokens": 1});
        let content = json!([{"type": "text", "text": "Hi"}]);
        let whole = json!({"id": format!("msg_{}", unique()), "type": "message", "role": "assistant", "model": asked.model, "content": content, "stop_reason": "max_tokens", "stop_sequence": null, "usage": usage, "input_tokens": 12});
        return json_answer(stream, 200, &whole);
    }
    events_follow(stream, answer)?;
    let usage = json!({"input_tokens": 12, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1});
    let message = json!({"id": format!("msg_{}", unique()), "type": "message", "role": "assistant", "model": asked.model, "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage});
    event(stream, "message_start", &json!({"message": message}))?;
    event(stream, "ping", &json!({}))?;
    let mut index = 0;
    if asked.thinks {
        let start = json!({"type": "thinking", "thinking": "", "signature": ""});
        let deltas = [
            json!({"type": "thinking_delta", "thinking": "let me "}),
            json!({"type": "thinking_delta", "thinking": "see"}),
            json!({"type": "signature_delta", "signature": "bW9jaw=="}),
        ];
        block(stream, index, &start, &deltas)?;
        let hidden = json!({"type": "redacted_thinking", "data": "aGlkZGVu"});
        event(
            stream,
            "content_block_start",
            &json!({"index": 1, "content_block": hidden}),
        )?;
        event(stream, "content_block_stop", &json!({"index": 1}))?;
        index += 2;
    }
    let Some((stop, details)) = blocks(stream, asked, answer, index)? else {
        return Ok(());
    };
    let delta = json!({"stop_reason": stop, "stop_details": details, "stop_sequence": null});
    event(
        stream,
        "message_delta",
        &json!({"delta": delta, "usage": {"output_tokens": 3}}),
    )?;
    event(stream, "message_stop", &json!({}))
}

/// What comes after the thoughts, and why it stops; nothing if the answer ends in the middle.
fn blocks(
    stream: &mut TcpStream,
    asked: &Asked,
    answer: &Answer,
    mut index: u32,
) -> std::io::Result<Option<(Value, Value)>> {
    let text = json!({"type": "text", "text": ""});
    let stop = match answer {
        Answer::Run(command) => {
            tool(
                stream,
                index,
                "Bash",
                &json!({"command": command}).to_string(),
            )?;
            "tool_use"
        }
        Answer::Use(calls) => {
            for (name, input) in calls {
                tool(stream, index, name, &input.to_string())?;
                index += 1;
            }
            "tool_use"
        }
        Answer::CutArguments => {
            tool(stream, index, "read", r#"{"path": "/etc"#)?;
            "max_tokens"
        }
        Answer::Say(pieces) => {
            event(
                stream,
                "content_block_start",
                &json!({"index": index, "content_block": text}),
            )?;
            for piece in pieces {
                said(stream, index, piece)?;
                asked.pause();
            }
            event(stream, "content_block_stop", &json!({"index": index}))?;
            "end_turn"
        }
        Answer::Refuse(how) => {
            let details = json!({"type": "refusal", "category": "cyber", "explanation": "This can't be helped with."});
            let details = if how == "field" { details } else { Value::Null };
            return Ok(Some((json!("refusal"), details)));
        }
        other => {
            let words = if *other == Answer::Hang {
                "hanging"
            } else {
                "part"
            };
            event(
                stream,
                "content_block_start",
                &json!({"index": index, "content_block": text}),
            )?;
            said(stream, index, words)?;
            match other {
                Answer::Full => {
                    event(stream, "content_block_stop", &json!({"index": index}))?;
                    return Ok(Some((json!("max_tokens"), Value::Null)));
                }
                Answer::NoStop => return Ok(Some((Value::Null, Value::Null))),
                Answer::BadJson => {
                    write!(stream, "event: content_block_delta\ndata: {{not json\n\n")?;
                }
                Answer::MidFail => {
                    let error = json!({"type": "overloaded_error", "message": "Overloaded"});
                    event(stream, "error", &json!({"error": error}))?;
                }
                Answer::Hang => until_left(stream)?,
                _ => {}
            }
            return Ok(None);
        }
    };
    Ok(Some((json!(stop), Value::Null)))
}

fn tool(stream: &mut TcpStream, index: u32, name: &str, input: &str) -> std::io::Result<()> {
    let start =
        json!({"type": "tool_use", "id": format!("toolu_{}", unique()), "name": name, "input": {}});
    let (first, rest) = input.split_at(input.len() / 2);
    let deltas =
        [first, rest].map(|part| json!({"type": "input_json_delta", "partial_json": part}));
    block(stream, index, &start, &deltas)
}

fn said(stream: &mut TcpStream, index: u32, text: &str) -> std::io::Result<()> {
    let delta = json!({"type": "text_delta", "text": text});
    let fields = json!({"index": index, "delta": delta});
    event(stream, "content_block_delta", &fields)
}

/// Ids of messages and calls: the agent takes two with one id for the same.
fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

fn block(
    stream: &mut TcpStream,
    index: u32,
    start: &Value,
    deltas: &[Value],
) -> std::io::Result<()> {
    event(
        stream,
        "content_block_start",
        &json!({"index": index, "content_block": start}),
    )?;
    for delta in deltas {
        event(
            stream,
            "content_block_delta",
            &json!({"index": index, "delta": delta}),
        )?;
    }
    event(stream, "content_block_stop", &json!({"index": index}))
}

fn event(stream: &mut TcpStream, kind: &str, fields: &Value) -> std::io::Result<()> {
    let mut event = fields.clone();
    event["type"] = json!(kind);
    write!(stream, "event: {kind}\ndata: {event}\n\n")
}
