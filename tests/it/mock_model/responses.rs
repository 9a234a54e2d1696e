//! OpenAI's responses, streamed: as much as agents need.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Answer, Asked, Wire, events_follow, failed_answer, json_answer, text, until_left};

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
        Answer::Fail(failing) => {
            let body = error(failing.code, &failing.message);
            return failed_answer(stream, failing.status, failing.wait.as_deref(), &body);
        }
        _ => events_follow(stream, answer)?,
    }
    event(
        stream,
        "response.created",
        json!({"response": {"id": "resp_mock"}}),
    )?;
    let mut output = Vec::new();
    if asked.thinks {
        for delta in ["let me ", "see"] {
            let delta = json!({"item_id": "rs_mock", "output_index": 0, "summary_index": 0, "delta": delta});
            event(stream, "response.reasoning_summary_text.delta", delta)?;
        }
        let thought = json!({"type": "reasoning", "id": "rs_mock", "summary": [{"type": "summary_text", "text": "let me see"}], "encrypted_content": "bW9jaw=="});
        // It is over before the message begins.
        let done = json!({"output_index": 0, "item": thought});
        event(stream, "response.output_item.done", done)?;
        output.push(thought);
    }
    let begun = output.len();
    let Some(items) = items(stream, asked, answer)? else {
        return Ok(());
    };
    output.extend(items);
    for (index, item) in output.iter().enumerate().skip(begun) {
        let done = json!({"output_index": index, "item": item});
        event(stream, "response.output_item.done", done)?;
    }
    let usage = json!({
        "input_tokens": 12, "input_tokens_details": {"cached_tokens": 5},
        "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 15,
    });
    let mut response = json!({"id": "resp_mock", "object": "response", "status": "completed", "model": asked.model, "output": output, "usage": usage});
    let incomplete = match answer {
        Answer::CutArguments | Answer::Full => Some("max_output_tokens"),
        Answer::Refuse(how) if how == "finish" => Some("content_filter"),
        _ => None,
    };
    let Some(reason) = incomplete else {
        return event(stream, "response.completed", json!({"response": response}));
    };
    response["status"] = json!("incomplete");
    response["incomplete_details"] = json!({"reason": reason});
    event(stream, "response.incomplete", json!({"response": response}))
}

/// A tool of an MCP server is called by its server's name and its own.
fn of_its_server(asked: &Asked, name: &str, mut call: Value) -> Value {
    let parts = |server: &String| {
        Some((
            server.clone(),
            name.strip_prefix(server)?.strip_prefix("__")?,
        ))
    };
    if let Some((server, tool)) = asked.tools.iter().find_map(parts) {
        call["namespace"] = json!(server);
        call["name"] = json!(tool);
    }
    call
}

/// What is said or called; nothing if the answer ends in the middle.
fn items(
    stream: &mut TcpStream,
    asked: &Asked,
    answer: &Answer,
) -> std::io::Result<Option<Vec<Value>>> {
    let call = |name: &str, id: usize, arguments: &str| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": format!("call_mock_{id}"), "name": name, "arguments": arguments});
    Ok(Some(match answer {
        Answer::Say(pieces) => {
            message_begins(stream)?;
            for piece in pieces {
                said(stream, piece)?;
                asked.pause();
            }
            let content =
                json!([{"type": "output_text", "text": pieces.concat(), "annotations": []}]);
            vec![message(&content)]
        }
        Answer::Run(command) => {
            let (name, arguments) = shell(asked, command);
            vec![call(name, 1, &arguments.to_string())]
        }
        Answer::Use(calls) => {
            let calls = calls.iter().enumerate();
            let calls = calls.map(|(at, (name, input))| {
                let call = call(name, at + 1, &input.to_string());
                of_its_server(asked, name, call)
            });
            calls.collect()
        }
        Answer::CutArguments => vec![call("read", 1, r#"{"path": "/etc"#)],
        Answer::Refuse(how) if how == "field" => {
            message_begins(stream)?;
            let words = "I can't help with that.";
            let delta = json!({"item_id": "msg_mock", "output_index": 0, "content_index": 0, "delta": words});
            event(stream, "response.refusal.delta", delta)?;
            vec![message(&json!([{"type": "refusal", "refusal": words}]))]
        }
        other => {
            message_begins(stream)?;
            let words = if *other == Answer::Hang {
                "hanging"
            } else {
                "part"
            };
            said(stream, words)?;
            match other {
                Answer::Full => {
                    let content =
                        json!([{"type": "output_text", "text": "part", "annotations": []}]);
                    return Ok(Some(vec![message(&content)]));
                }
                Answer::Hang => until_left(stream)?,
                Answer::Refuse(_) => return Ok(Some(Vec::new())),
                Answer::BadJson => write!(stream, "data: {{not json\n\n")?,
                Answer::MidFail => {
                    let error =
                        json!({"code": "server_error", "message": "The server had an error"});
                    let response = json!({"id": "resp_mock", "status": "failed", "model": asked.model, "error": error});
                    event(stream, "response.failed", json!({"response": response}))?;
                }
                // This wire has no answer without a status but one that only ends.
                _ => {}
            }
            return Ok(None);
        }
    }))
}

fn message(content: &Value) -> Value {
    json!({"type": "message", "id": "msg_mock", "role": "assistant", "status": "completed", "content": content})
}

/// A call of the shell tool that is offered. Codex asks when the model wants to leave its sandbox.
fn shell<'a>(asked: &Asked, command: &str) -> (&'a str, Value) {
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
