//! OpenAI's chat completions, streamed, and what is said also whole: as much as agents need.
//!
//! What OpenClaw puts into the user's mouth by itself (the time before a message, the machine after it,
//! messages of nothing but its own state) is no word of the user.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Answer, Asked, Wire, events_follow, failed_answer, json_answer, text, until_left};

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
    let error = |code: &str, message: &str| json!({"error": {"message": message, "type": "mock", "code": code}});
    match answer {
        Answer::Error(status) => {
            let body = error(&status.to_string(), &format!("mock error {status}"));
            return json_answer(stream, *status, &body);
        }
        Answer::Overflow => {
            let message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9999 tokens.";
            return json_answer(stream, 400, &error("context_length_exceeded", message));
        }
        Answer::Fail(failing) => {
            let body = error(failing.code, &failing.message);
            return failed_answer(stream, failing.status, failing.wait.as_deref(), &body);
        }
        Answer::Say(pieces) if asked.body["stream"] != true => {
            let message = json!({"role": "assistant", "content": pieces.concat()});
            let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
            let whole = json!({"id": "mock", "object": "chat.completion", "created": 1, "model": asked.model, "choices": [choice]});
            return json_answer(stream, 200, &whole);
        }
        _ => events_follow(stream, answer)?,
    }
    let mut say = |delta: Value, finish: Option<&str>| piece(stream, asked, &delta, finish);
    say(
        json!({"role": "assistant", "content": "", "refusal": null}),
        None,
    )?;
    if asked.thinks {
        say(json!({"reasoning_content": "let me "}), None)?;
        say(json!({"reasoning_content": "see"}), None)?;
    }
    let Some(finish) = middle(stream, asked, answer)? else {
        return Ok(());
    };
    if finish.is_some() {
        piece(stream, asked, &json!({}), finish)?;
    }
    let usage = json!({
        "prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15, "cost": 0.00125,
        "prompt_tokens_details": {"cached_tokens": 5}, "completion_tokens_details": {"reasoning_tokens": 1},
    });
    let last = json!({"id": "mock", "object": "chat.completion.chunk", "created": 1, "model": asked.model, "choices": [], "usage": usage});
    write!(stream, "data: {last}\n\ndata: [DONE]\n\n")
}

/// What is said or called, and why it stops; nothing if the answer ends in the middle.
fn middle(
    stream: &mut TcpStream,
    asked: &Asked,
    answer: &Answer,
) -> std::io::Result<Option<Option<&'static str>>> {
    let mut say = |delta: Value| piece(stream, asked, &delta, None);
    let mut finish = Some("stop");
    match answer {
        Answer::Say(pieces) => {
            for text in pieces {
                say(json!({"content": text}))?;
                asked.pause();
            }
        }
        Answer::Run(command) => {
            finish = Some("tool_calls");
            let is_offered = |name: &&&str| asked.tools.iter().any(|tool| tool == **name);
            let name = ["bash", "terminal", "exec"]
                .iter()
                .find(is_offered)
                .unwrap_or(&"bash");
            let arguments = json!({"command": command}).to_string();
            say(call(0, name, &arguments))?;
        }
        Answer::Use(calls) => {
            finish = Some("tool_calls");
            for (index, (name, input)) in calls.iter().enumerate() {
                let input = input.to_string();
                let (first, rest) = input.split_at(input.len() / 2);
                say(call(index, name, first))?;
                let more = json!({"index": index, "function": {"arguments": rest}});
                say(json!({"tool_calls": [more]}))?;
            }
        }
        Answer::CutArguments => {
            finish = Some("length");
            say(call(0, "read", r#"{"path": "/etc"#))?;
        }
        Answer::Full => {
            finish = Some("length");
            say(json!({"content": "part"}))?;
        }
        Answer::Refuse(how) if how == "field" => {
            say(json!({"refusal": "I'm sorry, "}))?;
            say(json!({"refusal": "I can't help with that."}))?;
        }
        Answer::Refuse(_) => {
            finish = Some("content_filter");
            say(json!({"content": "I was go"}))?;
        }
        Answer::NoStop => {
            finish = None;
            say(json!({"content": "all of it"}))?;
        }
        Answer::Cut | Answer::NoEnd => {
            say(json!({"content": "part"}))?;
            return Ok(None);
        }
        Answer::BadJson => {
            say(json!({"content": "part"}))?;
            write!(stream, "data: {{not json\n\n")?;
            return Ok(None);
        }
        Answer::MidFail => {
            say(json!({"content": "part"}))?;
            let error = json!({"error": {"code": 502, "message": "Provider returned error", "metadata": {"provider_name": "X", "raw": "upstream said no"}}, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]});
            write!(stream, "data: {error}\n\ndata: [DONE]\n\n")?;
            return Ok(None);
        }
        _ => {
            say(json!({"content": "hanging"}))?;
            until_left(stream)?;
            return Ok(None);
        }
    }
    Ok(Some(finish))
}

fn call(index: usize, name: &str, arguments: &str) -> Value {
    let function = json!({"name": name, "arguments": arguments});
    let id = format!("call_mock_{}", index + 1);
    json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
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
