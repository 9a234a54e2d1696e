//! Ollama's own chat, a JSON object a line: as much as agents need.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Answer, Asked, Wire, failed_answer, json_answer, pieces_follow, text, until_left};

pub(super) const WIRE: Wire = Wire {
    serves: |path| path.ends_with("/api/chat"),
    read,
    write,
};

fn read(_path: &str, request: &Value) -> Asked {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let users = messages.iter().filter(|message| message["role"] == "user");
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| Some(tool["function"]["name"].as_str()?.to_owned());
    // Each result is a message of its own.
    let results = messages.iter().rev();
    let results = results.take_while(|message| message["role"] == "tool");
    let mut results: Vec<String> = results.map(|message| text(&message["content"])).collect();
    results.reverse();
    Asked {
        model: request["model"].as_str().unwrap_or_default().to_owned(),
        users: users.map(|message| text(&message["content"])).collect(),
        tool_result: (!results.is_empty()).then(|| results.join(" & ")),
        tools: tools.iter().filter_map(name).collect(),
        ..Asked::default()
    }
}

fn write(stream: &mut TcpStream, asked: &Asked, answer: &Answer) -> std::io::Result<()> {
    match answer {
        Answer::Error(status) => {
            let body = json!({"error": format!("mock error {status}")});
            return json_answer(stream, *status, &body);
        }
        Answer::Overflow => {
            let body = json!({"error": "the input length exceeds the context length"});
            return json_answer(stream, 400, &body);
        }
        Answer::Fail(failing) => {
            let body = json!({"error": failing.message});
            return failed_answer(stream, failing.status, failing.wait.as_deref(), &body);
        }
        _ => pieces_follow(stream, "application/x-ndjson", answer)?,
    }
    let mut say = |message: Value| line(stream, asked, message, None);
    if asked.thinks {
        say(json!({"thinking": "let me "}))?;
        say(json!({"thinking": "see"}))?;
    }
    let mut reason = Some("stop");
    match answer {
        Answer::Say(pieces) => {
            for piece in pieces {
                say(json!({"content": piece}))?;
                asked.pause();
            }
        }
        Answer::Run(command) => {
            let function = json!({"name": "terminal", "arguments": {"command": command}});
            say(json!({"content": "", "tool_calls": [{"function": function}]}))?;
        }
        Answer::Use(calls) => {
            let call = |(name, input): &(String, Value)| json!({"function": {"name": name, "arguments": input}});
            let calls: Vec<Value> = calls.iter().map(call).collect();
            say(json!({"content": "", "tool_calls": calls}))?;
        }
        Answer::CutArguments => {
            // What its parser makes of half a call is text.
            reason = Some("length");
            let function = json!({"name": "read", "arguments": "{\"path\": \"/etc"});
            say(json!({"content": "", "tool_calls": [{"function": function}]}))?;
        }
        Answer::Full => {
            reason = Some("length");
            say(json!({"content": "part"}))?;
        }
        Answer::Refuse(_) => say(json!({"content": "I'm sorry, but I can't help with that."}))?,
        Answer::NoStop => {
            reason = None;
            say(json!({"content": "all of it"}))?;
        }
        Answer::Cut | Answer::NoEnd => return say(json!({"content": "part"})),
        Answer::BadJson => {
            say(json!({"content": "part"}))?;
            return writeln!(stream, "{{not json");
        }
        Answer::MidFail => {
            say(json!({"content": "part"}))?;
            return writeln!(
                stream,
                "{}",
                json!({"error": "an error was encountered while running the model"})
            );
        }
        _ => {
            say(json!({"content": "hanging"}))?;
            return until_left(stream);
        }
    }
    line(stream, asked, json!({"content": ""}), Some(reason))
}

/// A line; the last one says why it stopped, if it says so.
fn line(
    stream: &mut TcpStream,
    asked: &Asked,
    mut message: Value,
    done: Option<Option<&str>>,
) -> std::io::Result<()> {
    message["role"] = json!("assistant");
    let mut line = json!({"model": asked.model, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done.is_some()});
    if let Some(reason) = done {
        line["prompt_eval_count"] = json!(12);
        line["prompt_eval_cached_count"] = json!(5);
        line["eval_count"] = json!(3);
        if let Some(reason) = reason {
            line["done_reason"] = json!(reason);
        }
    }
    writeln!(stream, "{line}")
}
