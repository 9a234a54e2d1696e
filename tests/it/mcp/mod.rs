//! `agentctl serve mcp` from outside: a real face before a real daemon.
//!
//! Owns the client that speaks to it. What is asked well is in `asked`, what goes wrong in `faults`, tasks
//! in `tasks`, over HTTP in `http`, and other people's programs are in `clients`.

mod asked;
mod clients;
mod faults;
mod http;
mod tasks;

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{AGENTCTL, DEADLINE, Place, Reaped, lines, wait_for};

/// A client of a face of its own.
pub struct Client {
    face: Reaped,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    last: u64,
    /// What was said besides answers.
    pub told: Vec<Value>,
}

impl Client {
    /// One that says nothing first.
    pub fn bare(place: &Place, more: &[&str]) -> Self {
        let mut command = place.command(AGENTCTL);
        command.args(["serve", "mcp"]).args(more);
        Self::of(command)
    }

    pub fn of(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut face = Reaped(command.spawn().unwrap());
        let lines = lines(face.0.stdout.take().unwrap());
        Self {
            input: face.0.stdin.take(),
            face,
            lines,
            last: 0,
            told: Vec::new(),
        }
    }

    /// One of a revision that is agreed on first, with what it can do.
    pub fn initialized(place: &Place, version: &str, capabilities: &Value) -> Self {
        let mut client = Self::bare(place, &[]);
        let info = json!({"name": "test", "version": "1"});
        let params =
            json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": info});
        let answer = client.request("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer:#}");
        client.says(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    /// The usual one.
    pub fn new(place: &Place) -> Self {
        Self::initialized(place, "2025-11-25", &json!({}))
    }

    pub fn pid(&self) -> u32 {
        self.face.0.id()
    }

    pub fn writes(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub fn says(&mut self, message: &Value) {
        self.writes(&message.to_string());
    }

    /// The next line, whatever it is.
    pub fn next(&self) -> Value {
        let line = self.lines.recv_timeout(DEADLINE).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["jsonrpc"], "2.0", "{line}");
        line
    }

    /// This request gets no answer, whatever else is told.
    pub fn is_unanswered(&self, id: u64, during: Duration) {
        let until = Instant::now() + during;
        while let Ok(line) = self
            .lines
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            let line: Value = serde_json::from_str(&line).unwrap();
            assert_ne!(line["id"], id, "{line}");
        }
    }

    /// The answer to this id; what else is said is kept.
    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            let line = self.next();
            if line["id"] == id && line.get("method").is_none() {
                return line;
            }
            self.told.push(line);
        }
    }

    pub fn asks(&mut self, method: &str, params: &Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.says(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.asks(method, params);
        self.answer(id)
    }

    pub fn calls(&mut self, tool: &str, arguments: &Value) -> u64 {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}});
        self.asks("tools/call", &params)
    }

    /// What a tool returns; it is no error.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.calls(tool, arguments);
        let answer = self.answer(id);
        let result = &answer["result"];
        assert_eq!(result["isError"], false, "{answer:#}");
        result["structuredContent"].clone()
    }

    /// What a tool says that can't do it.
    pub fn fails(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.calls(tool, arguments);
        let answer = self.answer(id);
        let result = &answer["result"];
        assert_eq!(result["isError"], true, "{answer:#}");
        assert!(result["content"][0]["text"].is_string(), "{answer:#}");
        result["structuredContent"].clone()
    }

    /// What was said of progress.
    pub fn progress(&self) -> Vec<&str> {
        let of_it = |line: &&Value| line["method"] == "notifications/progress";
        let told = self.told.iter().filter(of_it);
        told.filter_map(|line| line["params"]["message"].as_str())
            .collect()
    }

    /// Says no more, and waits until the face has left.
    pub fn ends(mut self) -> Option<i32> {
        drop(self.input.take());
        wait_for("the face leaves", || self.face.0.try_wait().unwrap()).code()
    }
}
