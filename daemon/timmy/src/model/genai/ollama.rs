//! Ollama's own wire: a JSON object a line, spoken without `genai`.
//!
//! Owns what is sent there, and how lines are read. `genai` has no word for how long a conversation
//! may be, and Ollama forgets the beginning of one that is longer without saying so. Must not know
//! what makes a reply: `reply` does.

use agentd_protocol::attachment::is_image;
use futures_util::TryStreamExt as _;
use genai::chat::{
    ContentPart, MessageContent, ReasoningEffort, StopReason, StreamEnd, ToolCall as CallPart,
};
use reqwest::Response;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::io::StreamReader;

use super::frames::{Frames, MOST_BYTES};
use super::reply::{self, HeardReply};
use super::{Patience, failure, request, thinking};
use crate::message::{Assistant, CallArguments, Message, ToolCall};
use crate::model::{Failure, Piece, Reply, Request, ToolSpec, Usage, known};
use crate::provider::Wire;

/// Of an error's body so much is read: its words are at the beginning.
const MOST_ERROR: usize = 64 * 1024;
/// More calls in one reply are no model's doing.
const MOST_CALLS: usize = 256;

/// Asks once.
pub(super) async fn ask(
    http: &reqwest::Client,
    patience: Patience,
    request: &Request,
    pieces: &mpsc::Sender<Piece>,
) -> Result<Reply, Failure> {
    let target = &request.target;
    let mut post = http.post(request::address(target, Wire::Ollama)?);
    for (name, value) in request::headers(target, Wire::Ollama) {
        post = post.header(name, value);
    }
    let begun = timeout(patience.begins_within, post.json(&body(request)).send()).await;
    let response = begun
        .map_err(|_late| failure::never_began())?
        .map_err(|error| failure::transport(&error.without_url()))?;
    if !response.status().is_success() {
        return Err(refused(response, patience).await);
    }
    let bytes = response.bytes_stream().map_err(std::io::Error::other);
    let (mut answer, mut room) = (StreamReader::new(bytes), MOST_BYTES);
    let mut frames = Frames::new(Wire::Ollama);
    let mut heard = HeardReply::default();
    let mut calls = Vec::new();
    while let Some(line) = next(&mut answer, &mut room, patience).await? {
        let line: Value =
            serde_json::from_slice(&line).map_err(|error| failure::malformed(&error))?;
        frames.counted();
        if !line["error"].is_null() {
            return Err(failure::of_stream(&line));
        }
        let message = &line["message"];
        let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
        let (thought, said) = (text("thinking"), text("content"));
        heard.thinking.push_str(&thought);
        heard.text.push_str(&said);
        for piece in [Piece::Thinking(thought), Piece::Text(said)] {
            let (Piece::Thinking(text) | Piece::Text(text)) = &piece;
            if !text.is_empty() {
                // Whoever doesn't listen any more has their reasons.
                let _left = pieces.send(piece).await;
            }
        }
        let room = MOST_CALLS - calls.len();
        let told = message["tool_calls"].as_array().into_iter().flatten();
        calls.extend(told.take(room).map(call));
        if line["done"] == true {
            frames.usage = used(&line);
            let reason = line["done_reason"].as_str();
            let end = StreamEnd {
                captured_stop_reason: reason.map(|word| StopReason::from(word.to_owned())),
                captured_content: Some(MessageContent::from_parts(calls)),
                ..StreamEnd::default()
            };
            return reply::whole(heard, end, &mut frames, Wire::Ollama, request);
        }
    }
    reply::cut_off(heard, &mut frames, request)
}

/// A call as it was told; one without an id gets it from `reply`.
fn call(told: &Value) -> ContentPart {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ContentPart::ToolCall(CallPart {
        call_id: text(&told["id"]),
        fn_name: text(&told["function"]["name"]),
        fn_arguments: told["function"]["arguments"].clone(),
        thought_signatures: None,
    })
}

fn used(line: &Value) -> Usage {
    let count = |name: &str| {
        let count = line[name].as_u64().unwrap_or(0);
        count.min(u64::from(u32::MAX))
    };
    Usage {
        input: count("prompt_eval_count"),
        cache_read: count("prompt_eval_cached_count"),
        output: count("eval_count"),
        ..Usage::default()
    }
}

async fn refused(mut response: Response, patience: Patience) -> Failure {
    let mut body = Vec::new();
    while let Ok(Ok(Some(piece))) = timeout(patience.silent_for, response.chunk()).await
        && body.len() < MOST_ERROR
    {
        body.extend_from_slice(&piece);
    }
    body.truncate(MOST_ERROR);
    let body = String::from_utf8_lossy(&body);
    failure::answered(response.status(), response.headers(), &body)
}

/// The next line that isn't blank; the last one may lack its end.
async fn next(
    answer: &mut (impl AsyncBufRead + Unpin),
    room: &mut usize,
    patience: Patience,
) -> Result<Option<Vec<u8>>, Failure> {
    loop {
        let mut line = Vec::new();
        // One byte more than there is room for, to see that it is too long.
        let mut within = answer.take(*room as u64 + 1);
        let read = timeout(patience.silent_for, within.read_until(b'\n', &mut line)).await;
        let read = read
            .map_err(|_late| failure::stopped())?
            .map_err(failure::broken)?;
        *room = room.checked_sub(read).ok_or_else(failure::too_long)?;
        if read == 0 {
            return Ok(None);
        }
        if !line.trim_ascii().is_empty() {
            return Ok(Some(line));
        }
    }
}

/// The whole request.
fn body(request: &Request) -> Value {
    let target = &request.target;
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    let system = request.system.trim();
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    messages.extend(request.messages.iter().filter_map(message));
    let mut options = Map::new();
    if let Some(window) = target.asked_window() {
        options.insert("num_ctx".to_owned(), json!(window));
    }
    // A local server knows best how much its model can say.
    if !target.provider.local {
        let most = known::max_output(&target.model, false);
        options.insert("num_predict".to_owned(), json!(most));
    }
    let mut body = json!({
        "model": target.model,
        "stream": true,
        "messages": messages,
        "options": options,
    });
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    let effort = thinking::effort(request, Wire::Ollama, &mut Map::new()).effort;
    if let Some(effort) = effort {
        body["think"] = match effort {
            ReasoningEffort::Zero => json!(false),
            ReasoningEffort::Low => json!("low"),
            ReasoningEffort::Medium => json!("medium"),
            ReasoningEffort::High => json!("high"),
            _ => json!("max"),
        };
    }
    body
}

/// A message; nothing of one that says nothing.
fn message(message: &Message) -> Option<Value> {
    Some(match message {
        Message::User { text, attached, .. } => {
            let (shown, other): (Vec<_>, Vec<_>) =
                attached.iter().partition(|one| is_image(&one.mime));
            let mut words = text.clone();
            for one in other {
                words.push_str(&format!("\n{}", request::unseen(one)));
            }
            let mut said = json!({"role": "user", "content": words});
            if !shown.is_empty() {
                said["images"] = shown.iter().map(|one| json!(one.data)).collect();
            }
            said
        }
        Message::Tool(result) => json!({
            "role": "tool",
            "tool_name": request::called(&result.name),
            "content": result.output,
        }),
        Message::Assistant(Assistant { text, calls, .. }) => {
            let text = text.trim();
            if text.is_empty() && calls.is_empty() {
                return None;
            }
            let mut said = json!({"role": "assistant", "content": text});
            if !calls.is_empty() {
                said["tool_calls"] = calls.iter().map(repeated).collect();
            }
            said
        }
    })
}

/// A call as it was, except that arguments are an object.
fn repeated(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        CallArguments::Object(fields) => Value::Object(fields.clone()),
        CallArguments::Malformed(text) => json!({"malformed_arguments": text}),
    };
    json!({"function": {"name": request::called(&call.name), "arguments": arguments}})
}

fn tool(spec: &ToolSpec) -> Value {
    json!({"type": "function", "function": {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.schema,
    }})
}
