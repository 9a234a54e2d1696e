//! `agentctl` on a pseudo-terminal, and a daemon that follows a script.
//!
//! Owns both ends. What is said there is the tests'.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use nix::pty::openpty;
use serde_json::{Value, json};

use crate::support::{AGENTCTL, DEADLINE, Place, Reaped, wait_for};

/// The other end of a conversation.
pub struct Peer {
    lines: std::io::Lines<BufReader<UnixStream>>,
    stream: UnixStream,
}

impl Peer {
    /// Answers `hello`, and gives it.
    pub fn accept(listener: &UnixListener) -> (Self, Value) {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut peer = Self { lines, stream };
        let hello = peer.next();
        peer.say(
            json!({"type": "hello", "id": hello["id"], "ok": true, "server": "agentd",
            "version": "0", "protocol": 1, "epoch": "e", "pid": 1, "uid": 1, "capabilities": [],
            "limits": {"line_in": 1, "line_out": 1, "in_flight": 1}}),
        );
        (peer, hello)
    }

    /// The next request, whatever it is.
    pub fn request(&mut self) -> Value {
        let line = self.lines.next().expect("a request").unwrap();
        serde_json::from_str(&line).unwrap()
    }

    pub fn next(&mut self) -> Value {
        loop {
            let request = self.request();
            // Asked now and then while a turn waits, and before it by terminals, which wait for it.
            if request["type"] != "jobs" && request["type"] != "status" {
                return request;
            }
            self.say(
                json!({"type": "error", "id": request["id"], "code": "unsupported",
                "error": "not here"}),
            );
        }
    }

    pub fn say(&mut self, line: Value) {
        writeln!(self.stream, "{line}").unwrap();
    }

    /// Asks, and gives what was answered.
    pub fn ask(&mut self, id: &Value, kind: &str, options: &[&str]) -> Value {
        self.say(
            json!({"type": "question", "id": id, "job": "j1", "question_id": kind,
            "kind": kind, "title": format!("the {kind}"), "options": options}),
        );
        let answer = self.next();
        self.say(json!({"type": "answer", "id": answer["id"], "ok": true, "question_id": kind}));
        self.say(
            json!({"type": "question_closed", "id": id, "job": "j1", "question_id": kind,
            "by": "answer"}),
        );
        answer
    }

    pub fn end(&mut self, id: &Value) {
        self.say(json!({"type": "message_end", "id": id, "job": "j1", "text": "done"}));
    }
}

/// A terminal: what is typed on it, and what it showed so far.
pub struct Terminal {
    keys: File,
    /// Open as long as the terminal is looked at, whoever else leaves.
    _other_side: OwnedFd,
    shown: Receiver<String>,
    pub all: String,
    at: usize,
}

impl Terminal {
    pub fn new(master: File, other_side: OwnedFd) -> Self {
        let mut screen = master.try_clone().unwrap();
        let (sender, shown) = sync_channel(1024);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The other side is gone: that is an error, or an end.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                if sender.send(text).is_err() {
                    return;
                }
            }
        });
        Self {
            keys: master,
            _other_side: other_side,
            shown,
            all: String::new(),
            at: 0,
        }
    }

    pub fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// All that was shown until its program left.
    pub fn rest(mut self) -> String {
        drop(self._other_side);
        while let Ok(more) = self.shown.recv_timeout(DEADLINE) {
            self.all += &more;
        }
        self.all
    }

    /// Waits until this was shown, after what was waited for before.
    pub fn until(&mut self, text: &str) {
        // Some programs never stop drawing.
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(found) = self.all[self.at..].find(text) {
                self.at += found + text.len();
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            let more = self.shown.recv_timeout(left);
            self.all += &more.unwrap_or_else(|_| panic!("no `{text}` in {:?}", self.all));
        }
    }
}

/// `agentctl` at a terminal, with its standard output beside it.
pub fn at_terminal(place: &Place, args: &[&str]) -> (Terminal, Reaped) {
    at_terminal_with(place, args, None)
}

/// The same, with something else than the terminal as standard input.
pub fn at_terminal_with(place: &Place, args: &[&str], input: Option<Stdio>) -> (Terminal, Reaped) {
    let pty = openpty(None, None).unwrap();
    let slave = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut command = place.command(AGENTCTL);
    command
        .args(args)
        .stdin(input.unwrap_or_else(slave))
        .stderr(slave())
        .stdout(Stdio::piped());
    let child = Reaped(command.spawn().unwrap());
    (Terminal::new(File::from(pty.master), pty.slave), child)
}

/// What a command that succeeds shows on its terminal.
pub fn said_at_terminal(place: &Place, args: &[&str]) -> String {
    let (terminal, mut child) = at_terminal(place, args);
    let end = ended(&mut child);
    assert_eq!(end.0, Some(0), "{end:?}");
    terminal.rest()
}

pub fn ended(child: &mut Reaped) -> (Option<i32>, String) {
    let status = wait_for("agentctl leaves", || child.0.try_wait().unwrap());
    let mut said = String::new();
    let mut stdout = child.0.stdout.take().unwrap();
    stdout.read_to_string(&mut said).unwrap();
    (status.code(), said)
}
