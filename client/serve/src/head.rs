//! The first head of a connection: read before anything is made of it, within its limits.
//!
//! Owns those limits, and what whoever exceeds them is told. Must not know what is asked: bytes that
//! are no head at all are left to whoever parses them.

use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

use crate::problem::Problem;

/// Longest head, in bytes, its empty line included.
pub(crate) const LONGEST_HEAD: usize = 64 * 1024;
/// Headers of one head: hyper's own limit, told in words.
const HEADERS: usize = 100;
/// Read at a time: most heads are shorter.
const PIECE: usize = 2048;

/// What came instead of a head.
#[derive(Debug)]
pub(crate) enum NoHead {
    /// Nothing that could be answered.
    Nothing,
    /// What exceeds a limit.
    Refused(Box<Problem>),
}

/// Reads until a head is whole, and gives it with what came behind it.
pub(crate) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    within: Duration,
) -> Result<Vec<u8>, NoHead> {
    let mut bytes = Vec::new();
    match timeout(within, filled(stream, &mut bytes)).await {
        Ok(Ok(())) => Ok(bytes),
        Ok(Err(refused)) => Err(refused),
        Err(_) if bytes.is_empty() => Err(NoHead::Nothing),
        Err(_) => {
            let why = format!("the head was not there within {} s", within.as_secs_f64());
            let problem = Problem::new(StatusCode::REQUEST_TIMEOUT, "late-head", why);
            Err(NoHead::Refused(Box::new(problem)))
        }
    }
}

async fn filled(stream: &mut (impl AsyncRead + Unpin), bytes: &mut Vec<u8>) -> Result<(), NoHead> {
    let mut scan = Scan::default();
    loop {
        if bytes.len() == bytes.capacity() {
            bytes.reserve(PIECE);
        }
        let before = bytes.len();
        match stream.read_buf(bytes).await {
            Err(_) => return Err(NoHead::Nothing),
            Ok(0) if before == 0 => return Err(NoHead::Nothing),
            // It breaks off: whoever parses it says so.
            Ok(0) => return Ok(()),
            Ok(_) => {}
        }
        let found = scan.look(bytes.get(before..).unwrap_or_default());
        let refused = |problem| Err(NoHead::Refused(Box::new(problem)));
        if scan.length > LONGEST_HEAD {
            return match scan.first_line {
                Some(length) if length <= LONGEST_HEAD => refused(long_head()),
                _ => refused(long_line()),
            };
        }
        // The first line is none.
        if scan.lines > HEADERS + 1 {
            let why = format!("the head has more than {HEADERS} headers");
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return refused(Problem::new(status, "long-head", why));
        }
        if found == Found::End {
            return Ok(());
        }
    }
}

/// A head of a connection that is kept, if it is longer than the first might have been.
pub(crate) fn check(head: &Parts) -> Result<(), Problem> {
    // Of "METHOD TARGET HTTP/1.1\r\n", of "NAME: VALUE\r\n", and of the empty line.
    let target = head
        .uri
        .path_and_query()
        .map_or(0, |path| path.as_str().len());
    let line = head.method.as_str().len() + target + 12;
    let headers = head.headers.iter();
    let headers: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    if line + headers + 2 <= LONGEST_HEAD {
        return Ok(());
    }
    let close = header::HeaderValue::from_static("close");
    Err(long_head().header(header::CONNECTION, close))
}

fn long_head() -> Problem {
    let why = format!("the head is longer than {LONGEST_HEAD} bytes");
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    Problem::new(status, "long-head", why)
}

fn long_line() -> Problem {
    let why = format!("the first line is longer than {LONGEST_HEAD} bytes");
    Problem::new(StatusCode::URI_TOO_LONG, "long-line", why)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// More has to come.
    Part,
    /// All of a head, or what can't become one.
    End,
}

/// Looks for the end of a head, each byte once.
#[derive(Debug, Default)]
struct Scan {
    /// Bytes that were looked at, none behind the end.
    length: usize,
    /// Lines that have ended, without the empty ones before the first.
    lines: usize,
    /// Where the first of them ended.
    first_line: Option<usize>,
    has_begun: bool,
    is_within_line: bool,
}

impl Scan {
    fn look(&mut self, bytes: &[u8]) -> Found {
        for byte in bytes {
            self.length += 1;
            match byte {
                b'\n' if self.has_begun && !self.is_within_line => return Found::End,
                b'\n' => {
                    if self.has_begun {
                        self.lines += 1;
                        self.first_line.get_or_insert(self.length);
                    }
                    self.is_within_line = false;
                }
                b'\r' => {}
                // No method begins with it.
                byte if !self.has_begun && !byte.is_ascii_graphic() => return Found::End,
                _ => (self.has_begun, self.is_within_line) = (true, true),
            }
        }
        Found::Part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn status(mut bytes: &[u8]) -> u16 {
        match read(&mut bytes, Duration::from_secs(5)).await {
            Ok(_) => 200,
            Err(NoHead::Nothing) => 0,
            Err(NoHead::Refused(problem)) => problem.status,
        }
    }

    fn with(lines: &str) -> Vec<u8> {
        format!("GET / HTTP/1.1\r\n{lines}\r\n").into_bytes()
    }

    #[tokio::test]
    async fn heads_are_whole_at_their_empty_line() {
        let (mut reads, mut writes) = tokio::io::duplex(1024);
        for end in ["\r\n\r\n", "\n\n", "\n\r\n"] {
            let head = format!("\r\n\nGET / HTTP/1.1\r\nA: b{end}");
            // Nothing follows and nobody leaves: it has to be noticed by itself.
            tokio::io::AsyncWriteExt::write_all(&mut writes, head.as_bytes())
                .await
                .unwrap();
            let read = read(&mut reads, Duration::from_secs(5)).await.unwrap();
            assert_eq!(String::from_utf8(read).unwrap(), head);
        }
        assert_eq!(status(b"").await, 0);
        assert_eq!(status(b"\x16\x03\x01\x02").await, 200);
    }

    #[tokio::test]
    async fn heads_have_a_longest_line_and_most_headers() {
        let padded = |length: usize| {
            let rest = length - with("X: \r\n").len();
            with(&format!("X: {}\r\n", "z".repeat(rest)))
        };
        assert_eq!(padded(LONGEST_HEAD).len(), LONGEST_HEAD);
        assert_eq!(status(&padded(LONGEST_HEAD)).await, 200);
        assert_eq!(status(&padded(LONGEST_HEAD + 1)).await, 431);
        // What comes behind it is not of the head.
        let mut followed = padded(LONGEST_HEAD);
        followed.extend_from_slice(&[b'z'; PIECE]);
        assert_eq!(status(&followed).await, 200);
        assert_eq!(status(&with(&"A: b\r\n".repeat(HEADERS))).await, 200);
        assert_eq!(status(&with(&"A: b\r\n".repeat(HEADERS + 1))).await, 431);
        let line = format!("GET /{}", "z".repeat(LONGEST_HEAD));
        assert_eq!(status(line.as_bytes()).await, 414);
        let ended = format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(status(ended.as_bytes()).await, 414);
        assert_eq!(status("\r\n".repeat(LONGEST_HEAD).as_bytes()).await, 414);
    }

    #[tokio::test(start_paused = true)]
    async fn heads_that_are_late_are_told_so() {
        let (mut reads, mut writes) = tokio::io::duplex(1024);
        let within = Duration::from_secs(5);
        let none = read(&mut reads, within).await;
        assert!(matches!(none, Err(NoHead::Nothing)), "{none:?}");
        tokio::io::AsyncWriteExt::write_all(&mut writes, b"GET /")
            .await
            .unwrap();
        match read(&mut reads, within).await {
            Err(NoHead::Refused(problem)) => assert_eq!(problem.status, 408),
            other => panic!("{other:?}"),
        }
    }
}
