//! OpenAI's chat completions, streamed: as much as agents need.
//!
//! What OpenClaw puts into the user's mouth by itself (the time before a message, the machine after it,
//! messages of nothing but its own state) is no word of the user.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Answer, Asked, Wire, events_follow, json_answer, text, until_left};

pub(super) const WIRE: Wire = Wire {
    serves: |path| path.ends_with("/chat/completions"),
    read,
    write,
};

fn read(_path: &str, request: &Value) -> Asked {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let messages: Vec<&Value> = messages
        .iter()
        .filter(|message| !is_state(message))
        .collect();
    let users = messages.iter().filter(|message| message["role"] == "user");
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| Some(tool["function"]["name"].as_str()?.to_owned());
    Asked {
        model: request["model"].as_str().unwrap_or_default().to_owned(),
        users: users
            .map(|message| own_words(&text(&message["content"])))
            .collect(),
        tool_result: messages
            .last()
            .filter(|message| message["role"] == "tool")
            .map(|message| text(&message["content"])),
        tools: tools.iter().filter_map(name).collect(),
        ..Asked::default()
    }
}

/// Is a message nothing but an agent's own state?
fn is_state(message: &Value) -> bool {
    message["role"] == "user"
        && text(&message["content"]).starts_with("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>")
}

fn own_words(text: &str) -> String {
    let dated = text
        .strip_prefix('[')
        .and_then(|text| text.split_once(" UTC] "));
    let undated = dated.map_or(text, |(_, words)| words);
    let (words, _machine) = undated
        .split_once("\n\nRuntime: agent=")
        .unwrap_or((undated, ""));
    words.to_owned()
}

fn write(stream: &mut TcpStream, asked: &Asked, answer: &Answer) -> std::io::Result<()> {
    let error = |status: u16, code: &str, message: &str| {
        (
            status,
            json!({"error": {"message": message, "type": "mock", "code": code}}),
        )
    };
    let refusal = match answer {
        Answer::Error(status) => {
            let code = status.to_string();
            Some(error(*status, &code, &format!("mock error {status}")))
        }
        Answer::Overflow => Some(error(
            400,
            "context_length_exceeded",
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9999 tokens.",
        )),
        _ => None,
    };
    if let Some((status, body)) = refusal {
        return json_answer(stream, status, &body);
    }
    events_follow(stream)?;
    let start = json!({"role": "assistant", "content": ""});
    piece(stream, asked, &start, None)?;
    let mut finish = "stop";
    match answer {
        Answer::Say(pieces) => {
            for text in pieces {
                piece(stream, asked, &json!({"content": text}), None)?;
            }
        }
        Answer::Run(command) => {
            finish = "tool_calls";
            let arguments = json!({"command": command}).to_string();
            let is_offered = |name: &&&str| asked.tools.iter().any(|tool| tool == **name);
            let name = ["bash", "terminal", "exec"]
                .iter()
                .find(is_offered)
                .unwrap_or(&"bash");
            let function = json!({"name": name, "arguments": arguments});
            let call =
                json!({"index": 0, "id": "call_mock_1", "type": "function", "function": function});
            piece(stream, asked, &json!({"tool_calls": [call]}), None)?;
        }
        Answer::Hang | Answer::Error(_) | Answer::Overflow => {
            piece(stream, asked, &json!({"content": "hanging"}), None)?;
            return until_left(stream);
        }
    }
    piece(stream, asked, &json!({}), Some(finish))?;
    let usage = json!({"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15});
    let last = json!({"id": "mock", "object": "chat.completion.chunk", "created": 1, "model": asked.model, "choices": [], "usage": usage});
    write!(stream, "data: {last}\n\ndata: [DONE]\n\n")
}

fn piece(
    stream: &mut TcpStream,
    asked: &Asked,
    delta: &Value,
    finish: Option<&str>,
) -> std::io::Result<()> {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"id": "mock", "object": "chat.completion.chunk", "created": 1, "model": asked.model, "choices": [choice]});
    write!(stream, "data: {chunk}\n\n")
}
