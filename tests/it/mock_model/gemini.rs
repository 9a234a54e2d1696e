//! Google's generateContent, streamed: as much as agents need.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Answer, Asked, Wire, events_follow, failed_answer, json_answer, until_left};

pub(super) const WIRE: Wire = Wire {
    serves: |path| path.contains(":streamGenerateContent"),
    read,
    write,
};

fn read(path: &str, request: &Value) -> Asked {
    let contents = request["contents"].as_array().cloned().unwrap_or_default();
    let users = contents.iter().filter(|content| content["role"] == "user");
    let declared = request["tools"].as_array().cloned().unwrap_or_default();
    let declared = declared
        .iter()
        .filter_map(|tools| tools["functionDeclarations"].as_array());
    let name = |tool: &Value| Some(tool["name"].as_str()?.to_owned());
    let model = path
        .split_once("/models/")
        .and_then(|(_, rest)| rest.split_once(':'));
    Asked {
        model: model.map_or("", |(model, _)| model).to_owned(),
        users: users.flat_map(said).collect(),
        tool_result: contents.last().and_then(|content| {
            let parts = content["parts"].as_array()?;
            let result = parts.iter().find_map(|part| part.get("functionResponse"))?;
            Some(result["response"].to_string())
        }),
        tools: declared.flatten().filter_map(name).collect(),
        ..Asked::default()
    }
}

/// A user's own words, of which Gemini CLI puts several into one message when nothing was said
/// between them; what it tells of the place it runs in is left out.
fn said(content: &Value) -> Vec<String> {
    let parts = content["parts"].as_array().cloned().unwrap_or_default();
    let texts = parts.iter().filter_map(|part| part["text"].as_str());
    texts
        .filter(|text| !text.starts_with("<session_context>"))
        .map(str::to_owned)
        .collect()
}

fn error(code: u16, status: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message, "status": status}})
}

fn write(stream: &mut TcpStream, asked: &Asked, answer: &Answer) -> std::io::Result<()> {
    match answer {
        Answer::Error(code) => {
            let body = error(*code, "MOCK", &format!("mock error {code}"));
            return json_answer(stream, *code, &body);
        }
        Answer::Overflow => {
            let message = "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).";
            return json_answer(stream, 400, &error(400, "INVALID_ARGUMENT", message));
        }
        Answer::Fail(failing) => {
            let status = match failing.status {
                429 => "RESOURCE_EXHAUSTED",
                503 => "UNAVAILABLE",
                401 => "UNAUTHENTICATED",
                404 => "NOT_FOUND",
                500 => "INTERNAL",
                _ => "INVALID_ARGUMENT",
            };
            let body = error(failing.status, status, &failing.message);
            return failed_answer(stream, failing.status, failing.wait.as_deref(), &body);
        }
        _ => events_follow(stream, answer)?,
    }
    if asked.thinks {
        for thought in ["let me ", "see"] {
            let parts = json!([{"text": thought, "thought": true}]);
            piece(stream, asked, &parts, None)?;
        }
    }
    parts(stream, asked, answer)
}

/// What is said or called, and why it stops.
fn parts(stream: &mut TcpStream, asked: &Asked, answer: &Answer) -> std::io::Result<()> {
    let mut say = |parts: Value, finish: Option<&str>| piece(stream, asked, &parts, finish);
    match answer {
        Answer::Say(pieces) => {
            for text in pieces {
                say(json!([{"text": text}]), None)?;
                asked.pause();
            }
            say(json!([{"text": ""}]), Some("STOP"))
        }
        Answer::Run(command) => {
            let call = json!({"name": "run_shell_command", "args": {"command": command}});
            say(json!([{"functionCall": call}]), Some("STOP"))
        }
        Answer::Use(calls) => {
            for (at, (name, input)) in calls.iter().enumerate() {
                let mut part = json!({"functionCall": {"name": name, "args": input}});
                // Only the first call of several is signed.
                if asked.thinks && at == 0 {
                    part["thoughtSignature"] = json!("bW9jaw==");
                }
                let finish = (at + 1 == calls.len()).then_some("STOP");
                say(json!([part]), finish)?;
            }
            Ok(())
        }
        Answer::CutArguments => say(json!([{"text": "part"}]), Some("MALFORMED_FUNCTION_CALL")),
        Answer::Full => say(json!([{"text": "part"}]), Some("MAX_TOKENS")),
        Answer::Refuse(how) if how == "prompt" => {
            let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 12, "totalTokenCount": 12}, "modelVersion": asked.model});
            write!(stream, "data: {blocked}\r\n\r\n")
        }
        Answer::Refuse(_) => {
            say(json!([{"text": "I was go"}]), None)?;
            let refused = json!({"candidates": [{"finishReason": "SAFETY", "index": 0}], "usageMetadata": {"promptTokenCount": 12, "totalTokenCount": 12}});
            write!(stream, "data: {refused}\r\n\r\n")
        }
        Answer::NoStop | Answer::Cut | Answer::NoEnd => say(json!([{"text": "part"}]), None),
        Answer::BadJson => {
            say(json!([{"text": "part"}]), None)?;
            write!(stream, "data: {{not json\r\n\r\n")
        }
        Answer::MidFail => {
            say(json!([{"text": "part"}]), None)?;
            let failed = error(
                503,
                "UNAVAILABLE",
                "The model is overloaded. Please try again later.",
            );
            write!(stream, "data: {failed}\r\n\r\n")
        }
        _ => {
            say(json!([{"text": "hanging"}]), None)?;
            until_left(stream)
        }
    }
}

fn piece(
    stream: &mut TcpStream,
    asked: &Asked,
    parts: &Value,
    finish: Option<&str>,
) -> std::io::Result<()> {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    let mut chunk = json!({"modelVersion": asked.model});
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
        chunk["usageMetadata"] = json!({"promptTokenCount": 12, "cachedContentTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 1, "totalTokenCount": 15});
    }
    chunk["candidates"] = json!([candidate]);
    write!(stream, "data: {chunk}\n\n")
}
