//! A language model on loopback that does what its last user message says, on any agent's wire.
//!
//! Owns the server and what is answered; each wire is a file that reads a request and writes an
//! answer: OpenAI's chat completions and responses, Anthropic's messages, Gemini, Ollama.
//!
//! Directives in the message. Anything else is said back after `echo: `.
//!
//! | directive | what is answered |
//! |---|---|
//! | `[[bash=CMD]]` | a call of the agent's shell tool; then what it said |
//! | `[[use NAME JSON]]` | a call of any tool; several of them are calls of one reply |
//! | `[[deltas=N]]` | N pieces, with `[[slow=MS]]` that far apart |
//! | `[[recall]]` | the earlier user messages |
//! | `[[think]]` | thinks before it answers, with what the wire has for a proof |
//! | `[[hang]]` | says `hanging` and no more until the caller leaves |
//! | `[[silent]]` | not even a status, until the caller leaves |
//! | `[[cut]]` | a piece, and the connection breaks |
//! | `[[noend]]` | a piece, and the connection ends as if all were well |
//! | `[[nostop]]` | a whole answer that doesn't say why it stopped |
//! | `[[badjson]]` | a frame that isn't JSON |
//! | `[[cutargs]]` | a call whose arguments are cut short by the limit of output |
//! | `[[full]]` | a piece, cut short by the limit of output |
//! | `[[midfail]]` | a piece, and then the wire's own error in the stream |
//! | `[[refuse=HOW]]` | a refusal: `finish` by the reason to stop, `field` by a field of its own, `prompt` before the model saw it |
//! | `[[error=CODE]]` | an HTTP error |
//! | `[[overflow]]` | the wire's own way to say that the prompt is too long |
//! | `[[fail=WHAT]]` | an error as its house words it: `ratelimit`, `quota`, `billing`, `overload`, `auth` (which repeats the key), `nomodel`, `badrequest`, `policy`, `server`, `long`, `html`; with `[[wait=S]]` a `Retry-After` |
//!
//! With `[[always]]` it counts for later messages, too, that ask for nothing.
//! With `[[on=MODEL]]` only this model does what the message says, and with `[[times=N]]` a model
//! does it for the first N requests that end with this message. Others say it back.

mod anthropic;
mod gemini;
mod ollama;
mod openai;
mod responses;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole request.
    pub body: Value,
    /// Does it think first?
    pub thinks: bool,
    /// How far pieces are apart.
    pub pause: Option<Duration>,
}

impl Asked {
    /// What a header of the request says.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Waits between two pieces: a slow model is what is played here.
    fn pause(&self) {
        if let Some(pause) = self.pause {
            std::thread::park_timeout(pause);
        }
    }
}

/// What is answered.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// Pieces of one message.
    Say(Vec<String>),
    /// A shell command for the agent's own tool.
    Run(String),
    /// Tools by name, with what they get.
    Use(Vec<(String, Value)>),
    /// `hanging`, and nothing more.
    Hang,
    /// Nothing at all.
    Silent,
    /// A piece, and the connection breaks.
    Cut,
    /// A piece, and the connection ends.
    NoEnd,
    /// A whole answer without a reason to stop.
    NoStop,
    /// A frame that isn't JSON.
    BadJson,
    /// A call that is cut short.
    CutArguments,
    Full,
    /// A piece, and an error.
    MidFail,
    /// A refusal, and how it is told.
    Refuse(String),
    /// An HTTP error in a house's own words.
    Fail(Failing),
    /// An HTTP status.
    Error(u16),
    /// The prompt is longer than the model's window.
    Overflow,
}

/// An HTTP error.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Failing {
    pub status: u16,
    pub code: &'static str,
    pub message: String,
    /// Seconds, or a date.
    pub wait: Option<String>,
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

const WIRES: &[Wire] = &[
    openai::WIRE,
    responses::WIRE,
    anthropic::WIRE,
    gemini::WIRE,
    ollama::WIRE,
];

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
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 {
            return Ok(());
        }
        let Some((name, value)) = header.trim().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    if path.ends_with("/api/tags") {
        return json_answer(
            &mut stream,
            200,
            &json!({"models": [{"name": "mock:latest"}]}),
        );
    }
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(wire) = WIRES.iter().find(|wire| (wire.serves)(&path)) else {
        return json_answer(
            &mut stream,
            404,
            &json!({"error": {"message": "not found"}}),
        );
    };
    let mut asked = (wire.read)(&path, &request);
    asked.path = path;
    asked.headers = headers;
    asked.body = request;
    let last = asked.users.last().cloned().unwrap_or_default();
    let same = |before: &&Asked| before.users.last() == Some(&last) && before.model == asked.model;
    let before = seen.lock().unwrap().iter().filter(same).count();
    let answer = answer(&mut asked, before);
    seen.lock().unwrap().push(asked.clone());
    match &answer {
        Answer::Silent => until_left(&mut stream),
        Answer::Fail(failing) if failing.code == "html" => html_answer(&mut stream),
        answer => (wire.write)(&mut stream, &asked, answer),
    }
}

/// What the last user message asks for; `before` is how often it has been asked.
fn answer(asked: &mut Asked, before: usize) -> Answer {
    let last = asked.users.last().cloned().unwrap_or_default();
    // An agent may put a message that was never answered before the next one.
    let told = |part: &&str| part.contains("[[");
    let last = last.rsplit("\n\n").find(told).unwrap_or(&last);
    // Some ask on by themselves, in words of their own.
    let lasting = |word: &&String| word.contains("[[always]]");
    let before_it = asked.users.iter().rev().find(lasting).cloned();
    let last = before_it
        .as_deref()
        .filter(|_| !told(&last))
        .unwrap_or(last);
    let is_meant = directive(last, "on").is_none_or(|model| asked.model == model);
    let times = directive(last, "times").and_then(|times| times.parse().ok());
    if !is_meant || times.is_some_and(|times: usize| before >= times) {
        return Answer::Say(vec![format!("echo: {last}")]);
    }
    asked.thinks = directive(last, "think").is_some();
    let pause = directive(last, "slow").and_then(|millis| millis.parse().ok());
    asked.pause = pause.map(Duration::from_millis);
    if let Some(failure) = failure(last, asked) {
        return failure;
    }
    if let Some(result) = &asked.tool_result {
        return Answer::Say(vec![format!("tool said: {}", result.trim())]);
    }
    if let Some(command) = directive(last, "bash") {
        return Answer::Run(command.to_owned());
    }
    let calls = named_tools(last);
    if !calls.is_empty() {
        return Answer::Use(calls);
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

/// Whatever is no answer.
fn failure(last: &str, asked: &Asked) -> Option<Answer> {
    if let Some(code) = directive(last, "error") {
        return Some(Answer::Error(code.parse().unwrap_or(500)));
    }
    if let Some(what) = directive(last, "fail") {
        let wait = directive(last, "wait").map(str::to_owned);
        return Some(Answer::Fail(Failing {
            wait,
            ..failing(what, asked)
        }));
    }
    if let Some(how) = directive(last, "refuse") {
        return Some(Answer::Refuse(how.to_owned()));
    }
    let plain = [
        ("overflow", Answer::Overflow),
        ("hang", Answer::Hang),
        ("silent", Answer::Silent),
        ("cutargs", Answer::CutArguments),
        ("full", Answer::Full),
        ("cut", Answer::Cut),
        ("noend", Answer::NoEnd),
        ("nostop", Answer::NoStop),
        ("badjson", Answer::BadJson),
        ("midfail", Answer::MidFail),
    ];
    let found = plain
        .into_iter()
        .find(|(name, _)| directive(last, name).is_some());
    found.map(|(_, answer)| answer)
}

fn failing(what: &str, asked: &Asked) -> Failing {
    let key = ["authorization", "x-api-key", "x-goog-api-key"]
        .into_iter()
        .find_map(|name| asked.header(name))
        .unwrap_or_default();
    let (status, code, message) = match what {
        "ratelimit" => (
            429,
            "rate_limit_exceeded",
            "Rate limit reached for requests per minute.".to_owned(),
        ),
        "quota" => (
            429,
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details."
                .to_owned(),
        ),
        "billing" => (
            402,
            "insufficient_credits",
            "Insufficient credits. Add more to go on.".to_owned(),
        ),
        "overload" => (503, "overloaded_error", "Overloaded".to_owned()),
        "auth" => (
            401,
            "invalid_api_key",
            format!("Incorrect API key provided: {key}."),
        ),
        "nomodel" => (
            404,
            "model_not_found",
            format!("The model `{}` does not exist", asked.model),
        ),
        "policy" => (
            400,
            "content_filter",
            "The response was filtered due to the prompt triggering our policy.".to_owned(),
        ),
        "server" => (
            500,
            "server_error",
            "The server had an error while processing your request.".to_owned(),
        ),
        "long" => (400, "invalid_request_error", "é".repeat(10_000)),
        "html" => (502, "html", String::new()),
        _ => (
            400,
            "invalid_request_error",
            "Unsupported parameter: 'foo'".to_owned(),
        ),
    };
    Failing {
        status,
        code,
        message,
        wait: None,
    }
}

/// Any tools that the user asks for by name.
fn named_tools(text: &str) -> Vec<(String, Value)> {
    let parts = text.split("[[use ").skip(1);
    let calls = parts.filter_map(|part| {
        let (name, input) = part.split_once("]]")?.0.split_once(' ')?;
        Some((name.to_owned(), serde_json::from_str(input).ok()?))
    });
    calls.collect()
}

fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let opening = format!("[[{name}");
    let mut parts = text.split(opening.as_str()).skip(1);
    let inner = parts.find_map(|part| {
        let inner = part.split_once("]]")?.0;
        (inner.is_empty() || inner.starts_with(['=', ' '])).then_some(inner)
    })?;
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
    failed_answer(stream, status, None, body)
}

/// The same, with how long to wait.
fn failed_answer(
    stream: &mut TcpStream,
    status: u16,
    wait: Option<&str>,
    body: &Value,
) -> std::io::Result<()> {
    let body = body.to_string();
    let wait = wait.map_or(String::new(), |wait| format!("retry-after: {wait}\r\n"));
    write!(
        stream,
        "HTTP/1.1 {status} Mock\r\ncontent-type: application/json\r\nconnection: close\r\n{wait}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// What a proxy says for a server that is away.
fn html_answer(stream: &mut TcpStream) -> std::io::Result<()> {
    let page = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
    write!(
        stream,
        "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{page}",
        page.len()
    )
}

/// The head of an answer that comes in pieces. One that is going to be cut promises more.
fn pieces_follow(stream: &mut TcpStream, kind: &str, answer: &Answer) -> std::io::Result<()> {
    let promised = if *answer == Answer::Cut {
        "content-length: 1000000\r\n"
    } else {
        ""
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n{promised}\r\n"
    )
}

/// The same for server-sent events.
fn events_follow(stream: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    pieces_follow(stream, "text/event-stream", answer)
}

/// Returns when the caller leaves.
fn until_left(stream: &mut TcpStream) -> std::io::Result<()> {
    let _nothing = stream.read(&mut [0])?;
    Ok(())
}
