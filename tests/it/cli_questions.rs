//! An agent's questions on the terminal of `agentctl send`, with a daemon that follows a script.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use nix::pty::openpty;
use serde_json::{Value, json};

use crate::support::{AGENTCTL, DEADLINE, Place, Reaped, wait_for};

/// The other end of a conversation.
struct Peer {
    lines: std::io::Lines<BufReader<UnixStream>>,
    stream: UnixStream,
}

impl Peer {
    /// Answers `hello`, and gives it.
    fn accept(listener: &UnixListener) -> (Self, Value) {
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

    fn next(&mut self) -> Value {
        let line = self.lines.next().expect("a request").unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn say(&mut self, line: Value) {
        writeln!(self.stream, "{line}").unwrap();
    }

    /// Asks, and gives what was answered.
    fn ask(&mut self, id: &Value, kind: &str, options: &[&str]) -> Value {
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

    fn end(&mut self, id: &Value) {
        self.say(json!({"type": "message_end", "id": id, "job": "j1", "text": "done"}));
    }
}

/// A terminal: what is typed on it, and what it showed so far.
struct Terminal {
    keys: File,
    /// Open as long as the terminal is looked at, whoever else leaves.
    _other_side: OwnedFd,
    shown: Receiver<String>,
    all: String,
    at: usize,
}

impl Terminal {
    fn new(master: File, other_side: OwnedFd) -> Self {
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

    fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this was shown, after what was waited for before.
    fn until(&mut self, text: &str) {
        loop {
            if let Some(found) = self.all[self.at..].find(text) {
                self.at += found + text.len();
                return;
            }
            let more = self.shown.recv_timeout(DEADLINE);
            self.all += &more.unwrap_or_else(|_| panic!("no `{text}` in {:?}", self.all));
        }
    }
}

/// `agentctl` at a terminal, with its standard output beside it.
fn at_terminal(place: &Place, args: &[&str]) -> (Terminal, Reaped) {
    let pty = openpty(None, None).unwrap();
    let slave = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut command = place.command(AGENTCTL);
    command
        .args(args)
        .stdin(slave())
        .stderr(slave())
        .stdout(Stdio::piped());
    let child = Reaped(command.spawn().unwrap());
    (Terminal::new(File::from(pty.master), pty.slave), child)
}

fn ended(child: &mut Reaped) -> (Option<i32>, String) {
    let status = wait_for("agentctl leaves", || child.0.try_wait().unwrap());
    let mut said = String::new();
    let mut stdout = child.0.stdout.take().unwrap();
    stdout.read_to_string(&mut said).unwrap();
    (status.code(), said)
}

#[test]
fn questions_are_asked_on_the_sends_terminal() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let (begin, begun) = sync_channel::<()>(1);
    let served: JoinHandle<Vec<Value>> = std::thread::spawn(move || {
        let (mut peer, hello) = Peer::accept(&listener);
        let send = peer.next();
        let id = send["id"].clone();
        peer.say(json!({"type": "accepted", "id": id, "job": "j1", "session": "s", "agent": "a"}));
        begun.recv_timeout(DEADLINE).unwrap();
        let approval = peer.ask(&id, "approval", &[]);
        let choice = peer.ask(&id, "choice", &["left", "right"]);
        let secret = peer.ask(&id, "secret", &[]);
        peer.end(&id);
        vec![hello, approval, choice, secret]
    });
    let (mut terminal, mut child) = at_terminal(&place, &["send", "hi"]);
    // Typed before the question is there: it answers nothing.
    terminal.type_in("y\n");
    terminal.until("y\r\n");
    begin.send(()).unwrap();
    terminal.until("the approval");
    terminal.until("approve? [y/N] ");
    terminal.type_in("no\n");
    terminal.until("2  right");
    terminal.until("number: ");
    terminal.type_in("5\n");
    terminal.until("a number from 1 to 2: ");
    terminal.type_in("2\n");
    terminal.until("secret (not shown): ");
    terminal.type_in("hunter2\n");
    let asked = served.join().unwrap();
    assert_eq!(ended(&mut child), (Some(0), "done\n".to_owned()));
    assert_eq!(asked[0]["answers"], true);
    assert_eq!(asked[1]["approve"], false);
    assert_eq!(asked[2]["choice"], "right");
    assert_eq!(asked[3]["text"], "hunter2");
    terminal.type_in("shown again\n");
    terminal.until("shown again");
    assert!(!terminal.all.contains("hunter2"), "{:?}", terminal.all);
}

#[test]
fn questions_answered_elsewhere_are_taken_back() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let (close, closed) = sync_channel::<()>(1);
    let served = std::thread::spawn(move || {
        let (mut peer, _) = Peer::accept(&listener);
        let id = peer.next()["id"].clone();
        peer.say(json!({"type": "accepted", "id": id, "job": "j1", "session": "s", "agent": "a"}));
        peer.say(
            json!({"type": "question", "id": id, "job": "j1", "question_id": "q1",
            "kind": "text", "title": "which?", "options": []}),
        );
        closed.recv_timeout(DEADLINE).unwrap();
        peer.say(
            json!({"type": "question_closed", "id": id, "job": "j1", "question_id": "q1",
            "by": "answer"}),
        );
        peer.end(&id);
    });
    let (mut terminal, mut child) = at_terminal(&place, &["send", "hi"]);
    terminal.until("answer: ");
    close.send(()).unwrap();
    terminal.until("the question is closed: answer");
    served.join().unwrap();
    assert_eq!(ended(&mut child), (Some(0), "done\n".to_owned()));
}

#[test]
fn questions_without_a_terminal_have_nobody_to_answer() {
    for (args, at_a_terminal) in [
        (&["send", "hi"][..], false),
        (&["send", "--json", "hi"], true),
        (&["send", "--on-question", "deny", "hi"], true),
    ] {
        let place = Place::new("");
        let listener = UnixListener::bind(place.socket()).unwrap();
        let served = std::thread::spawn(move || {
            let (mut peer, hello) = Peer::accept(&listener);
            let id = peer.next()["id"].clone();
            peer.end(&id);
            hello
        });
        if at_a_terminal {
            let (_terminal, mut child) = at_terminal(&place, args);
            assert_eq!(ended(&mut child).0, Some(0), "{args:?}");
        } else {
            assert_eq!(place.agentctl(args).code, Some(0), "{args:?}");
        }
        assert_eq!(served.join().unwrap()["answers"], false, "{args:?}");
    }
}
