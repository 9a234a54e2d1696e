//! A server before a daemon, and how it is asked.
//!
//! Owns the process. Must not know what is asked.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{AGENTCTL, DEADLINE, Place, Reaped, finish_within, lines};

/// A server of its own for each test.
pub struct Http {
    pub at: SocketAddr,
    pub token: String,
    server: Reaped,
    /// Of a request: an agent behind it may take long to start.
    deadline: Duration,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    /// As the last of the blocks that `curl -i` prints.
    pub fn parse(mut text: &str) -> Self {
        loop {
            let (head, rest) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
            let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
            let status = status.unwrap_or_else(|| panic!("no status: {text:?}"));
            if !(100..200).contains(&status) {
                let (head, body) = (head.to_ascii_lowercase(), rest.to_owned());
                return Self { status, head, body };
            }
            text = rest;
        }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }

    /// The code of a problem, which says what it has to.
    pub fn code(&self) -> String {
        let problem = self.json();
        assert!(
            self.head.contains("content-type: application/problem+json"),
            "{self:?}"
        );
        assert_eq!(problem["status"], self.status, "{self:?}");
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{self:?}");
        let again = self.head.contains("\r\nretry-after:");
        assert_eq!(problem["retryable"].as_bool().unwrap(), again, "{self:?}");
        problem["code"].as_str().unwrap().to_owned()
    }
}

impl Http {
    /// Serves a place's daemon, whether it runs or not.
    pub fn start(place: &Place) -> Self {
        Self::with(place, &[])
    }

    pub fn with(place: &Place, more: &[&str]) -> Self {
        Self::run(place, place.command(AGENTCTL), more)
    }

    /// Started by a shell, which becomes it by `exec "$@"`.
    pub fn as_of(place: &Place, script: &str) -> Self {
        let mut command = place.command("/bin/sh");
        command.args(["-c", script, "sh", AGENTCTL]);
        Self::run(place, command, &[])
    }

    fn run(place: &Place, mut command: Command, more: &[&str]) -> Self {
        command.args(["serve", "http", "--listen", "127.0.0.1:0"]);
        let log = std::fs::File::create(place.path("http.log")).unwrap();
        command
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut server = Reaped(command.spawn().unwrap());
        let said = lines(server.0.stdout.take().unwrap()).recv_timeout(DEADLINE);
        let said = said.unwrap_or_else(|why| {
            let log = std::fs::read_to_string(place.path("http.log")).unwrap_or_default();
            panic!("{why}: {log}")
        });
        let at = said.strip_prefix("http://").and_then(|rest| {
            let (at, _) = rest.split_once(' ')?;
            at.parse().ok()
        });
        let token = place.agentctl(&["token"]).stdout.trim().to_owned();
        assert_eq!(token.len(), "agentd_".len() + 64);
        Self {
            at: at.unwrap_or_else(|| panic!("{said}")),
            token,
            server,
            deadline: place.deadline,
        }
    }

    pub fn pid(&self) -> u32 {
        self.server.0.id()
    }

    /// Waits until it has left by itself.
    pub fn left(mut self) -> std::process::ExitStatus {
        crate::support::wait_for("the server leaves", || self.server.0.try_wait().unwrap())
    }

    /// Asks as `curl` does, with the token.
    pub fn curl(&self, path: &str, more: &[&str]) -> Answer {
        let bearer = format!("Authorization: Bearer {}", self.token);
        let mut words = vec!["-H", bearer.as_str()];
        words.extend(more);
        self.bare_curl(path, &words)
    }

    /// Without the token.
    pub fn bare_curl(&self, path: &str, more: &[&str]) -> Answer {
        let mut command = Command::new("curl");
        let most = self.deadline.as_secs().to_string();
        command
            .env_clear()
            .args(["-q", "-sS", "-i", "--max-time", &most])
            .args(more)
            .arg(format!("http://{}{path}", self.at));
        let done = finish_within(self.deadline, command, b"");
        assert_eq!(done.code, Some(0), "{done:?}");
        Answer::parse(&done.stdout)
    }

    /// Sends JSON.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, body, &[])
    }

    pub fn post_with(&self, path: &str, body: &Value, more: &[&str]) -> Answer {
        let body = body.to_string();
        let mut words = vec!["-H", "Content-Type: application/json", "-d", body.as_str()];
        words.extend(more);
        self.curl(path, &words)
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Writes these bytes, and reads until the server closes. It has closed when it refused to
    /// read all of them, too.
    pub fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        let _refused = stream.write_all(bytes);
        rest(&mut stream)
    }

    /// The same, and says that nothing follows.
    pub fn raw_and_no_more(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        let _refused = stream.write_all(bytes);
        let _gone = stream.shutdown(std::net::Shutdown::Write);
        rest(&mut stream)
    }

    /// The head that a good request has, its last line open.
    pub fn head(&self, line: &str) -> String {
        let (at, token) = (self.at, &self.token);
        format!("{line} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\n")
    }
}

/// Everything until the end, or the reset.
pub fn rest(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => said.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&said)),
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}
