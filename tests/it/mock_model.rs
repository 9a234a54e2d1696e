//! A language model on loopback that does what its last user message says.
//!
//! Speaks as much of OpenAI's chat completions (streamed) as agents need. Directives in the message:
//! `[[bash=CMD]]` calls the tool `bash`, `[[deltas=N]]` answers in N pieces, `[[recall]]` repeats the
//! earlier user messages it was given, `[[hang]]` says `hanging` and no more until the caller leaves,
//! `[[error=CODE]]` is an HTTP error. Anything else is said back after `echo: `.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// What one request brought: the text of its user messages, in order.
type Users = Vec<String>;

pub struct MockModel {
    pub url: String,
    seen: Arc<Mutex<Vec<Users>>>,
}

impl MockModel {
    /// Serves until the test process ends.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Vec<Users>>>::default();
        let for_calls = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&for_calls);
                // A caller that left is no failure of the model's.
                std::thread::spawn(move || serve(stream, &seen).ok());
            }
        });
        Self { url, seen }
    }

    /// The user messages of each request so far.
    pub fn seen(&self) -> Vec<Users> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Users>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 {
            return Ok(());
        }
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let users = users(&request);
    seen.lock().unwrap().push(users.clone());
    answer(stream, &request, &users)
}

fn users(request: &Value) -> Users {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let users = messages.iter().filter(|message| message["role"] == "user");
    users.map(|message| text(&message["content"])).collect()
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}

fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let from = text.split_once(&format!("[[{name}"))?.1;
    let inner = from.split_once("]]")?.0;
    Some(inner.strip_prefix('=').unwrap_or(inner))
}

fn answer(mut stream: TcpStream, request: &Value, users: &[String]) -> std::io::Result<()> {
    let (last, earlier) = users
        .split_last()
        .map_or(("", users), |(last, earlier)| (last.as_str(), earlier));
    if let Some(code) = directive(last, "error") {
        let body = json!({"error": {"message": format!("mock error {code}"), "type": "mock", "code": code}}).to_string();
        return write!(
            stream,
            "HTTP/1.1 {code} Mock\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    )?;
    piece(
        &mut stream,
        request,
        &json!({"role": "assistant", "content": ""}),
        None,
    )?;
    if directive(last, "hang").is_some() {
        piece(&mut stream, request, &json!({"content": "hanging"}), None)?;
        // Ends when the caller leaves.
        let _nothing = stream.read(&mut [0])?;
        return Ok(());
    }
    let after_tool = request["messages"]
        .as_array()
        .and_then(|all| all.last())
        .filter(|message| message["role"] == "tool");
    let mut finish = "stop";
    if let Some(result) = after_tool {
        say(
            &mut stream,
            request,
            &format!("tool said: {}", text(&result["content"]).trim()),
        )?;
    } else if let Some(command) = directive(last, "bash") {
        finish = "tool_calls";
        let arguments = json!({"command": command}).to_string();
        let function = json!({"name": "bash", "arguments": arguments});
        let call =
            json!({"index": 0, "id": "call_mock_1", "type": "function", "function": function});
        piece(&mut stream, request, &json!({"tool_calls": [call]}), None)?;
    } else if let Some(count) = directive(last, "deltas") {
        for n in 0..count.parse().unwrap_or(1) {
            say(&mut stream, request, &format!("w{n} "))?;
        }
    } else if directive(last, "recall").is_some() {
        say(
            &mut stream,
            request,
            &format!("earlier: {}", earlier.join(" | ")),
        )?;
    } else {
        say(&mut stream, request, &format!("echo: {last}"))?;
    }
    piece(&mut stream, request, &json!({}), Some(finish))?;
    let usage = json!({"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15});
    let last = json!({"id": "mock", "object": "chat.completion.chunk", "created": 1, "model": request["model"], "choices": [], "usage": usage});
    write!(stream, "data: {last}\n\ndata: [DONE]\n\n")
}

fn say(stream: &mut TcpStream, request: &Value, text: &str) -> std::io::Result<()> {
    piece(stream, request, &json!({"content": text}), None)
}

fn piece(
    stream: &mut TcpStream,
    request: &Value,
    delta: &Value,
    finish: Option<&str>,
) -> std::io::Result<()> {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"id": "mock", "object": "chat.completion.chunk", "created": 1, "model": request["model"], "choices": [choice]});
    write!(stream, "data: {chunk}\n\n")
}
