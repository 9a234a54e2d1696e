//! An editor that speaks the Agent Client Protocol to the face, line by line.
//!
//! Owns the process and every wait for one of its lines.

use std::io::Write as _;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{AGENTCTL, DEADLINE, Place, Reaped, lines, wait_for};

pub struct Editor {
    pub child: Reaped,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// All that was said, in order.
    pub heard: Vec<Value>,
    last: u64,
}

impl Editor {
    /// Starts the face and initializes it.
    pub fn start(place: &Place, arguments: &[&str]) -> Self {
        let mut editor = Self::silent(place, arguments);
        let can = json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true});
        let params = json!({"protocolVersion": 1, "clientCapabilities": can});
        assert_eq!(
            editor.ask("initialize", &params)["result"]["protocolVersion"],
            1
        );
        editor
    }

    /// The same without a word.
    pub fn silent(place: &Place, arguments: &[&str]) -> Self {
        Self::of(place, &[&["acp"], arguments].concat())
    }

    /// The other end of any face.
    pub fn of(place: &Place, face: &[&str]) -> Self {
        let mut command = place.command(AGENTCTL);
        command.arg("serve").args(face);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(place.path("face.log"))
            .unwrap();
        command.stderr(log);
        let mut child = Reaped(command.spawn().unwrap());
        let stdin = child.0.stdin.take();
        let lines = lines(child.0.stdout.take().unwrap());
        Self {
            child,
            stdin,
            lines,
            heard: Vec::new(),
            last: 0,
        }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub fn say(&mut self, line: &Value) {
        self.write(format!("{line}\n").as_bytes());
    }

    /// Says a request, and returns its id.
    pub fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub fn notify(&mut self, method: &str, params: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Waits for the first line, of those that nobody waited for, that is as wanted.
    #[track_caller]
    pub fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + DEADLINE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let line: Value = serde_json::from_str(&line)
                        .unwrap_or_else(|why| panic!("not JSON: {why}: {line}"));
                    self.heard.push(line.clone());
                    if wanted(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("not within {DEADLINE:?}: {what}: {:#?}", self.heard)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it left before {what}: {:#?}", self.heard)
                }
            }
        }
    }

    /// The answer to a request.
    #[track_caller]
    pub fn answer(&mut self, id: u64) -> Value {
        let is_it = |line: &Value| line["id"] == id && line["method"].is_null();
        // Requests may be waited for in another order than they are answered in.
        match self.heard.iter().position(is_it) {
            Some(at) => self.heard[at].clone(),
            None => self.until(&format!("the answer to {id}"), is_it),
        }
    }

    #[track_caller]
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    /// A new session's id.
    #[track_caller]
    pub fn open(&mut self, place: &Place) -> String {
        let params = json!({"cwd": place.path("home"), "mcpServers": []});
        let answer = self.ask("session/new", &params);
        let id = answer["result"]["sessionId"].as_str();
        id.unwrap_or_else(|| panic!("{answer:#}")).to_owned()
    }

    pub fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let blocks = json!([{"type": "text", "text": text}]);
        self.request(
            "session/prompt",
            &json!({"sessionId": session, "prompt": blocks}),
        )
    }

    /// Waits for an update of a kind.
    #[track_caller]
    pub fn update(&mut self, kind: &str) -> Value {
        let line = self.until(kind, |line| {
            line["params"]["update"]["sessionUpdate"] == kind
        });
        line["params"]["update"].clone()
    }

    /// All text of a session that was heard so far, of this kind.
    pub fn text(&self, session: &str, kind: &str) -> String {
        let told = self.heard.iter().map(|line| &line["params"]);
        let told = told.filter(|params| {
            params["sessionId"] == session && params["update"]["sessionUpdate"] == kind
        });
        told.filter_map(|params| params["update"]["content"]["text"].as_str())
            .collect()
    }

    /// Says no more.
    pub fn close(&mut self) {
        drop(self.stdin.take());
    }

    /// Closes its input and waits until it has left.
    pub fn leave(mut self) -> (Option<i32>, Duration, Vec<Value>) {
        self.close();
        let begun = Instant::now();
        let status = wait_for("the face leaves", || self.child.0.try_wait().unwrap());
        while let Ok(line) = self.lines.recv_timeout(DEADLINE) {
            self.heard.push(serde_json::from_str(&line).unwrap());
        }
        (
            status.code(),
            begun.elapsed(),
            std::mem::take(&mut self.heard),
        )
    }
}
