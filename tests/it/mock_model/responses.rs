//! OpenAI's responses, streamed: as much as agents need.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Answer, Asked, Wire, events_follow, json_answer, text, until_left};

pub(super) const WIRE: Wire = Wire {
    serves: |path| path.ends_with("/responses"),
    read,
    write,
};

fn read(_path: &str, request: &Value) -> Asked {
    let input = request["input"].as_array().cloned().unwrap_or_default();
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| Some(tool["name"].as_str()?.to_owned());
    let users = input.iter().filter(|item| item["role"] == "user");
    let users = users.map(|item| text(&item["content"]));
    Asked {
        model: request["model"].as_str().unwrap_or_default().to_owned(),
        // Codex tells of its surroundings in the user's name.
        users: users.filter(|text| !text.starts_with('<')).collect(),
        tool_result: input
            .last()
            .filter(|item| item["type"] == "function_call_output")
            .map(|item| match &item["output"] {
                Value::String(output) => output.clone(),
                parts => text(parts),
            }),
        tools: tools.iter().filter_map(name).collect(),
        ..Asked::default()
    }
}

fn write(stream: &mut TcpStream, asked: &Asked, answer: &Answer) -> std::io::Result<()> {
    let error = |code: &str, message: &str| json!({"error": {"message": message, "type": "mock", "code": code, "param": null}});
    match answer {
        Answer::Error(status) => {
            let body = error(&status.to_string(), &format!("mock error {status}"));
            return json_answer(stream, *status, &body);
        }
        Answer::Overflow => {
            let message = "Your input exceeds the context window of this model. Please adjust your input and try again.";
            return json_answer(stream, 400, &error("context_length_exceeded", message));
        }
        _ => events_follow(stream)?,
    }
    event(
        stream,
        "response.created",
        json!({"response": {"id": "resp_mock"}}),
    )?;
    let item = match answer {
        Answer::Say(pieces) => {
            message_begins(stream)?;
            for piece in pieces {
                said(stream, piece)?;
            }
            let content =
                json!([{"type": "output_text", "text": pieces.concat(), "annotations": []}]);
            json!({"type": "message", "id": "msg_mock", "role": "assistant", "status": "completed", "content": content})
        }
        Answer::Run(command) => {
            let (name, arguments) = call(asked, command);
            json!({"type": "function_call", "id": "fc_mock", "call_id": "call_mock_1", "name": name, "arguments": arguments.to_string()})
        }
        Answer::Hang | Answer::Error(_) | Answer::Overflow => {
            message_begins(stream)?;
            said(stream, "hanging")?;
            return until_left(stream);
        }
    };
    event(
        stream,
        "response.output_item.done",
        json!({"output_index": 0, "item": item}),
    )?;
    let usage = json!({
        "input_tokens": 12, "input_tokens_details": {"cached_tokens": 5},
        "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 15,
    });
    let response = json!({"id": "resp_mock", "object": "response", "status": "completed", "model": asked.model, "output": [item], "usage": usage});
    event(stream, "response.completed", json!({"response": response}))
}

/// A call of the shell tool that is offered. Codex asks when the model wants to leave its sandbox.
fn call<'a>(asked: &Asked, command: &str) -> (&'a str, Value) {
    let offered = |name: &str| asked.tools.iter().any(|tool| tool == name);
    if offered("exec_command") {
        let arguments = json!({
            "cmd": command, "sandbox_permissions": "require_escalated",
            "justification": "The test wants to leave the sandbox.",
        });
        ("exec_command", arguments)
    } else {
        ("bash", json!({"command": command}))
    }
}

fn message_begins(stream: &mut TcpStream) -> std::io::Result<()> {
    let item = json!({"type": "message", "id": "msg_mock", "role": "assistant", "status": "in_progress", "content": []});
    event(
        stream,
        "response.output_item.added",
        json!({"output_index": 0, "item": item}),
    )
}

fn said(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    let delta =
        json!({"item_id": "msg_mock", "output_index": 0, "content_index": 0, "delta": text});
    event(stream, "response.output_text.delta", delta)
}

fn event(stream: &mut TcpStream, kind: &str, mut data: Value) -> std::io::Result<()> {
    data["type"] = json!(kind);
    write!(stream, "event: {kind}\ndata: {data}\n\n")
}
