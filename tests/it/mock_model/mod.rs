//! A language model on loopback that does what its last user message says, on any agent's wire.
//!
//! Owns the server and what is answered; each wire is a file that reads a request and writes an
//! answer. Directives in the message: `[[bash=CMD]]` calls the agent's shell tool, `[[deltas=N]]`
//! answers in N pieces, `[[recall]]` repeats the earlier user messages it was given, `[[hang]]` says
//! `hanging` and no more until the caller leaves, `[[error=CODE]]` is an HTTP error, `[[overflow]]`
//! the wire's own way to say that the prompt is too long. Anything else is said back after `echo: `.

mod anthropic;
mod gemini;
mod openai;
mod responses;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The text of a request's user messages, in order.
type Users = Vec<String>;

/// What a request asks, whatever wire it came on.
#[derive(Clone, Default, Debug)]
pub struct Asked {
    pub model: String,
    pub users: Users,
    /// What a tool said, when that is what came last.
    pub tool_result: Option<String>,
    /// The names of the tools that are offered.
    pub tools: Vec<String>,
    /// All of it, as it came.
    pub whole: String,
}

/// What is answered.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// Pieces of one message.
    Say(Vec<String>),
    /// A shell command for the agent's own tool.
    Run(String),
    /// `hanging`, and nothing more.
    Hang,
    /// An HTTP status.
    Error(u16),
    /// The prompt is longer than the model's window.
    Overflow,
}

/// How one provider's API looks.
struct Wire {
    /// Does it serve this path?
    serves: fn(&str) -> bool,
    /// Reads a request: its path and body.
    read: fn(&str, &Value) -> Asked,
    /// Writes the whole response.
    write: fn(&mut TcpStream, &Asked, &Answer) -> std::io::Result<()>,
}

const WIRES: &[Wire] = &[openai::WIRE, responses::WIRE, anthropic::WIRE, gemini::WIRE];

pub struct MockModel {
    /// Without a path; `url` is that of OpenAI's API.
    pub base: String,
    pub url: String,
    seen: Arc<Mutex<Vec<Asked>>>,
}

impl MockModel {
    /// Serves until the test process ends.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let url = format!("{base}/v1");
        let seen = Arc::<Mutex<Vec<Asked>>>::default();
        let for_calls = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&for_calls);
                // A caller that left is no failure of the model's.
                std::thread::spawn(move || serve(stream, &seen).ok());
            }
        });
        Self { base, url, seen }
    }

    /// The user messages of each request so far.
    pub fn seen(&self) -> Vec<Users> {
        let seen = self.seen.lock().unwrap();
        seen.iter().map(|asked| asked.users.clone()).collect()
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<Asked>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
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
    let Some(wire) = WIRES.iter().find(|wire| (wire.serves)(&path)) else {
        return json_answer(
            &mut stream,
            404,
            &json!({"error": {"message": "not found"}}),
        );
    };
    let mut asked = (wire.read)(&path, &request);
    asked.whole = String::from_utf8_lossy(&body).into_owned();
    let answer = answer(&asked);
    seen.lock().unwrap().push(asked.clone());
    (wire.write)(&mut stream, &asked, &answer)
}

/// What the last user message asks for.
fn answer(asked: &Asked) -> Answer {
    let last = asked.users.last().map_or("", String::as_str);
    // An agent may put a message that was never answered before the next one.
    let told = |part: &&str| part.contains("[[");
    let last = last.rsplit("\n\n").find(told).unwrap_or(last);
    if let Some(code) = directive(last, "error") {
        return Answer::Error(code.parse().unwrap_or(500));
    }
    if directive(last, "overflow").is_some() {
        return Answer::Overflow;
    }
    if directive(last, "hang").is_some() {
        return Answer::Hang;
    }
    if let Some(result) = &asked.tool_result {
        return Answer::Say(vec![format!("tool said: {}", result.trim())]);
    }
    if let Some(command) = directive(last, "bash") {
        return Answer::Run(command.to_owned());
    }
    if let Some(count) = directive(last, "deltas") {
        let count = count.parse().unwrap_or(1);
        return Answer::Say((0..count).map(|n| format!("w{n} ")).collect());
    }
    if directive(last, "recall").is_some() {
        let earlier = asked
            .users
            .split_last()
            .map_or(&[][..], |(_, earlier)| earlier);
        return Answer::Say(vec![format!("earlier: {}", earlier.join(" | "))]);
    }
    Answer::Say(vec![format!("echo: {last}")])
}

fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let from = text.split_once(&format!("[[{name}"))?.1;
    let inner = from.split_once("]]")?.0;
    Some(inner.strip_prefix('=').unwrap_or(inner))
}

/// The text of a message's content, plain or in parts.
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

/// A whole answer that is one JSON document.
fn json_answer(stream: &mut TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    write!(
        stream,
        "HTTP/1.1 {status} Mock\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The head of an answer that comes in server-sent events.
fn events_follow(stream: &mut TcpStream) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    )
}

/// Returns when the caller leaves.
fn until_left(stream: &mut TcpStream) -> std::io::Result<()> {
    let _nothing = stream.read(&mut [0])?;
    Ok(())
}
