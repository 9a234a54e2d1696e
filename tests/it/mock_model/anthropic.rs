//! Anthropic's messages, streamed: as much as agents need.
//!
//! Two directives of its own: `[[think]]` thinks before it answers, `[[use NAME JSON]]` calls any tool.
//! What the agent puts into user messages by itself (reminders in `<system-reminder>`, the mark of an
//! interruption) is no word of the user. Turns that failed leave their prompts behind, which the agent
//! then sends as further blocks of one message: each block is a user message here.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Answer, Asked, Wire, directive, events_follow, json_answer, text, until_left};

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
        users: if path.contains("count_tokens") {
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

/// Any tool, if the user asks for one by name.
fn named_tool(asked: &Asked) -> Option<(String, Value)> {
    let inner = directive(asked.users.last()?, "use ")?;
    let (name, input) = inner.split_once(' ')?;
    let input = serde_json::from_str(input).ok()?;
    (asked.tool_result.is_none()).then(|| (name.to_owned(), input))
}

fn write(stream: &mut TcpStream, asked: &Asked, answer: &Answer) -> std::io::Result<()> {
    let error = |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}});
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
        _ => {}
    }
    if asked.users.is_empty() {
        return json_answer(stream, 200, &json!({"input_tokens": 12}));
    }
    events_follow(stream)?;
    let usage = json!({"input_tokens": 12, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1});
    let message = json!({"id": format!("msg_{}", unique()), "type": "message", "role": "assistant", "model": asked.model, "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage});
    event(stream, "message_start", &json!({"message": message}))?;
    let mut index = 0;
    if asked
        .users
        .last()
        .is_some_and(|last| last.contains("[[think]]"))
    {
        let start = json!({"type": "thinking", "thinking": "", "signature": ""});
        let deltas = [
            json!({"type": "thinking_delta", "thinking": "let me "}),
            json!({"type": "thinking_delta", "thinking": "see"}),
            json!({"type": "signature_delta", "signature": "bW9jaw=="}),
        ];
        block(stream, index, &start, &deltas)?;
        index += 1;
    }
    let tool = match answer {
        Answer::Run(command) => Some(("Bash".to_owned(), json!({"command": command}))),
        _ => named_tool(asked),
    };
    let text = json!({"type": "text", "text": ""});
    let piece = |piece: &String| json!({"type": "text_delta", "text": piece});
    let stop = match (tool, answer) {
        (Some((name, input)), _) => {
            let start = json!({"type": "tool_use", "id": format!("toolu_{}", unique()), "name": name, "input": {}});
            let delta = json!({"type": "input_json_delta", "partial_json": input.to_string()});
            block(stream, index, &start, &[delta])?;
            "tool_use"
        }
        (None, Answer::Say(pieces)) => {
            let deltas: Vec<Value> = pieces.iter().map(piece).collect();
            block(stream, index, &text, &deltas)?;
            "end_turn"
        }
        _ => {
            let delta = piece(&"hanging".to_owned());
            event(
                stream,
                "content_block_start",
                &json!({"index": index, "content_block": text}),
            )?;
            event(
                stream,
                "content_block_delta",
                &json!({"index": index, "delta": delta}),
            )?;
            return until_left(stream);
        }
    };
    let delta = json!({"stop_reason": stop, "stop_sequence": null});
    event(
        stream,
        "message_delta",
        &json!({"delta": delta, "usage": {"output_tokens": 3}}),
    )?;
    event(stream, "message_stop", &json!({}))
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
