//! Google's generateContent, streamed: as much as agents need.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{Answer, Asked, Wire, events_follow, json_answer, until_left};

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

fn write(stream: &mut TcpStream, asked: &Asked, answer: &Answer) -> std::io::Result<()> {
    let error = |code: u16, status: &str, message: &str| {
        (
            code,
            json!({"error": {"code": code, "message": message, "status": status}}),
        )
    };
    let refusal = match answer {
        Answer::Error(code) => Some(error(*code, "MOCK", &format!("mock error {code}"))),
        Answer::Overflow => Some(error(
            400,
            "INVALID_ARGUMENT",
            "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
        )),
        _ => None,
    };
    if let Some((status, body)) = refusal {
        return json_answer(stream, status, &body);
    }
    events_follow(stream)?;
    match answer {
        Answer::Say(pieces) => {
            for text in pieces {
                piece(stream, asked, &json!([{"text": text}]), false)?;
            }
            piece(stream, asked, &json!([{"text": ""}]), true)
        }
        Answer::Run(command) => {
            let call = json!({"name": "run_shell_command", "args": {"command": command}});
            piece(stream, asked, &json!([{"functionCall": call}]), true)
        }
        Answer::Hang | Answer::Error(_) | Answer::Overflow => {
            piece(stream, asked, &json!([{"text": "hanging"}]), false)?;
            until_left(stream)
        }
    }
}

fn piece(stream: &mut TcpStream, asked: &Asked, parts: &Value, last: bool) -> std::io::Result<()> {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    let mut chunk = json!({"modelVersion": asked.model});
    if last {
        candidate["finishReason"] = json!("STOP");
        chunk["usageMetadata"] =
            json!({"promptTokenCount": 12, "candidatesTokenCount": 3, "totalTokenCount": 15});
    }
    chunk["candidates"] = json!([candidate]);
    write!(stream, "data: {chunk}\n\n")
}
