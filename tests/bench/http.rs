//! What HTTP costs: durable acknowledgements of 64 connections, beside the same over the socket:
//! each turn has a key there, too, as from every client of ours.
//!
//! Owns this measurement, and the client over HTTP. Must not know how it is judged.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::durable::{BURSTS, CLIENTS, burst_of, burst_with, drain, empty, p99};
use crate::place::{AGENTCTL, Place};
use crate::report::{Figure, Limit, median};

/// Nothing measured takes longer.
const DEADLINE: Duration = Duration::from_secs(30);

/// A server in a place; killed when dropped.
pub(crate) struct Http {
    child: Child,
    at: SocketAddr,
    token: String,
}

impl Http {
    pub(crate) fn start(place: &Place) -> Self {
        let words = ["serve", "http", "--listen", "127.0.0.1:0"];
        let mut command = place.command(AGENTCTL, &words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut said).unwrap();
        let at = said.strip_prefix("http://").unwrap();
        let at = at.split(' ').next().unwrap().parse().unwrap();
        let token = std::fs::read_to_string(place.path("state/http.token")).unwrap();
        let token = token.trim().to_owned();
        Self { child, at, token }
    }

    /// Somebody else's, which runs.
    pub(crate) const fn of(child: Child, at: SocketAddr, token: String) -> Self {
        Self { child, at, token }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What an SDK is told.
    pub(crate) fn environment(&self) -> [(&'static str, String); 2] {
        let url = format!("http://{}/v1", self.at);
        [
            ("OPENAI_BASE_URL", url),
            ("OPENAI_API_KEY", self.token.clone()),
        ]
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        let (line, head) = (
            String::new(),
            format!(
                "Host: {}\r\nAuthorization: Bearer {}\r\n",
                self.at, self.token
            ),
        );
        Connection {
            stream,
            reader,
            line,
            head,
        }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A blocking client that stays connected.
pub(crate) struct Connection {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    line: String,
    head: String,
}

impl Connection {
    fn dispatch(&mut self, session: usize) {
        let body = format!(r#"{{"prompt":"the prompt of a burst","session":"burst{session}"}}"#);
        self.post("/v1/dispatch", &body, 202);
    }

    /// Asks, and reads the whole answer, of this status.
    pub(crate) fn post(&mut self, path: &str, body: &str, status: u16) {
        self.send(path, body);
        let length = self.read_head(status);
        self.reader.read_exact(&mut vec![0; length]).unwrap();
    }

    /// Asks for a stream, whose pieces are to be read then.
    pub(crate) fn ask(&mut self, path: &str, body: &str) {
        self.send(path, body);
        self.read_head(200);
    }

    /// What the next event of a stream says; nothing where it ends.
    pub(crate) fn piece(&mut self) -> Option<String> {
        loop {
            self.read_line();
            match self.line.strip_prefix("data: ") {
                Some(data) if data.starts_with("[DONE]") => {}
                Some(data) => return Some(data.to_owned()),
                // The last chunk of the body, and the empty line behind it.
                None if self.line == "0\r\n" => {
                    self.read_line();
                    return None;
                }
                None => {}
            }
        }
    }

    fn send(&mut self, path: &str, body: &str) {
        let request = format!(
            "POST {path} HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.head,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    /// How long the body is, where that is said.
    fn read_head(&mut self, status: u16) -> usize {
        let mut length = 0;
        self.read_line();
        let expected = format!("HTTP/1.1 {status} ");
        assert!(self.line.starts_with(&expected), "{}", self.line);
        while self.line != "\r\n" {
            self.read_line();
            self.line.make_ascii_lowercase();
            if let Some(said) = self.line.strip_prefix("content-length: ") {
                length = said.trim().parse().unwrap();
            }
        }
        length
    }

    fn read_line(&mut self) {
        self.line.clear();
        let read = self.reader.read_line(&mut self.line).unwrap();
        assert!(read > 0, "the server closed");
    }
}

/// A key that is like no other, and beside none that was made before it.
fn key() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = u128::from(NUMBER.fetch_add(1, Ordering::Relaxed));
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    format!("{spread:032x}")
}

/// As `durable::burst`, with a key for each.
fn keyed_burst(socket: &Path) -> (f64, Vec<f64>) {
    burst_with(socket, |session, number| {
        let key = key();
        format!(
            r#"{{"type":"dispatch","id":{number},"text":"the prompt of a burst","session":"burst{session}","idempotency_key":"{key}"}}"#
        )
    })
}

/// The same over HTTP, which makes the keys itself.
fn http_burst(http: &Http) -> (f64, Vec<f64>) {
    burst_of(|session| {
        let mut client = http.connect();
        move |_| client.dispatch(session)
    })
}

pub(crate) fn acks(repetitions: usize) -> Vec<Figure> {
    let (mut socket, mut ours) = (Vec::new(), Vec::new());
    let (mut socket_tails, mut tails) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let place = Place::new();
        let daemon = place.daemon();
        let http = Http::start(&place);
        drain(&place);
        let (mut rates, mut http_rates) = (Vec::new(), Vec::new());
        let (mut took, mut http_took) = (Vec::new(), Vec::new());
        for _ in 0..BURSTS {
            let (rate, some) = keyed_burst(&place.socket());
            rates.push(rate);
            took.extend(some);
            empty(&place);
            let (rate, some) = http_burst(&http);
            http_rates.push(rate);
            http_took.extend(some);
            empty(&place);
        }
        socket.push(median(&rates));
        ours.push(median(&http_rates));
        socket_tails.push(p99(took));
        tails.push(p99(http_took));
        drop(http);
        daemon.stop();
    }
    vec![
        Figure {
            name: "http-acks",
            unit: "1/s",
            // The other way round, so that more is better for us.
            control: ours,
            ours: socket,
            limit: Limit::Ratio(1.0 / 0.4),
            aside: format!(
                "{CLIENTS} connections; columns turned: `ours` is the socket, `control` HTTP"
            ),
        },
        Figure {
            name: "http-acks-p99",
            unit: "ms",
            control: socket_tails,
            ours: tails,
            limit: Limit::Ratio(5.0),
            aside: "the same; control: p99 over the socket".to_owned(),
        },
    ]
}
