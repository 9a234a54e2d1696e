//! A provider on loopback that says what it is told to, at once.
//!
//! Owns the server, the moments of its requests, and asking it by hand. Must not know what is
//! measured.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::{Value, json};

/// A request by hand.
pub(super) const REQUEST: &str = r#"{"model":"m1","stream":true,"messages":[]}"#;

/// Says the pieces of one answer.
pub(super) type Say = fn(&mut dyn FnMut(&str));

pub(super) fn say_hello(piece: &mut dyn FnMut(&str)) {
    piece("hello");
}

pub(super) struct Provider {
    pub(super) url: String,
    pub(super) address: SocketAddr,
    requests: Receiver<Instant>,
}

impl Provider {
    /// Serves until the process ends, each connection in a thread of its own.
    pub(super) fn start(say: Say) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let tell = tell.clone();
                std::thread::spawn(move || {
                    let whole = read(&stream);
                    // Nobody asks when, in most measurements.
                    let _untold = tell.send(Instant::now());
                    whole.and_then(|()| answer(stream, say)).ok();
                });
            }
        });
        Self {
            url: format!("http://{address}/v1"),
            address,
            requests,
        }
    }

    /// When the next request was there as a whole.
    pub(super) fn next_request(&self) -> Instant {
        self.requests.recv().unwrap()
    }
}

/// A request by hand, up to the end of the answer; each piece of text is told as it comes.
pub(super) fn ask(address: SocketAddr, body: &str, mut piece: impl FnMut(&str)) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Some(data) = line.strip_prefix("data: {") else {
            continue;
        };
        let data: Value = serde_json::from_str(&format!("{{{data}")).unwrap();
        if let Some(text) = data["choices"][0]["delta"]["content"].as_str() {
            piece(text);
        }
    }
}

/// Reads one request to its end.
fn read(stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length])
}

fn answer(mut stream: TcpStream, say: Say) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
    )?;
    let mut failed = Ok(());
    say(&mut |text| {
        let delta = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
        if failed.is_ok() {
            failed = stream.write_all(format!("data: {delta}\n\n").as_bytes());
        }
    });
    failed?;
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3}});
    stream.write_all(format!("data: {end}\n\ndata: {usage}\n\ndata: [DONE]\n\n").as_bytes())
}
