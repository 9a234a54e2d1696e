//! What a face costs whoever starts it: how soon it answers, and the memory it takes.
//!
//! Owns these measurements. Must not know how they are judged.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::idle::memory_of;
use crate::place::{AGENTCTL, Client, Place, ms};
use crate::report::{Figure, Limit, median};
use crate::round_trips::p50;

/// Starts per repetition; their median counts.
const RUNS: usize = 21;
/// Turns per repetition; their median counts.
const TURNS: usize = 100;

/// A protocol over standard input and output.
struct Protocol {
    /// As `agentctl serve` calls it.
    name: &'static str,
    figures: [&'static str; 3],
    /// What a client says first, until it is answered.
    begin: fn(&mut Talk),
    /// Makes a session, where the protocol wants one before its first turn.
    open: fn(&mut Talk, &Place) -> Value,
    /// One turn of that session.
    turn: fn(&mut Talk, &Value),
}

pub(crate) fn mcp(repetitions: usize) -> Vec<Figure> {
    let protocol = Protocol {
        name: "mcp",
        figures: ["mcp-ready", "mcp-turn", "mcp-rss"],
        begin: |talk| {
            let client = json!({"name": "bench", "version": "1"});
            let params =
                json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
            talk.ask("initialize", &params);
        },
        open: |_, _| json!("bench-mcp"),
        turn: |talk, session| {
            let arguments = json!({"prompt": "hello", "session": session});
            let ask = json!({"name": "ask", "arguments": arguments});
            talk.ask("tools/call", &ask);
        },
    };
    measured(&protocol, repetitions)
}

pub(crate) fn acp(repetitions: usize) -> Vec<Figure> {
    let protocol = Protocol {
        name: "acp",
        figures: ["acp-ready", "acp-turn", "acp-rss"],
        begin: |talk| {
            talk.ask("initialize", &json!({"protocolVersion": 1}));
        },
        open: |talk, place| {
            let new = json!({"cwd": place.path("home"), "mcpServers": []});
            talk.ask("session/new", &new)["sessionId"].take()
        },
        turn: |talk, session| {
            let prompt = json!([{"type": "text", "text": "hello"}]);
            talk.ask(
                "session/prompt",
                &json!({"sessionId": session, "prompt": prompt}),
            );
        },
    };
    measured(&protocol, repetitions)
}

pub(crate) fn bridge(repetitions: usize) -> Vec<Figure> {
    let protocol = Protocol {
        name: "bridge",
        figures: ["bridge-ready", "bridge-turn", "bridge-rss"],
        begin: |talk| talk.until(&json!({"type": "ping"}), "pong"),
        open: |_, _| Value::Null,
        turn: |talk, _| talk.until(&json!({"message": "hello"}), "final"),
    };
    measured(&protocol, repetitions)
}

pub(crate) fn gateway(repetitions: usize) -> Vec<Figure> {
    let protocol = Protocol {
        name: "gateway",
        figures: ["gateway-ready", "gateway-turn", "gateway-rss"],
        begin: |talk| {
            talk.ask("setup.status", &json!({}));
        },
        open: |talk, _| talk.ask("session.create", &json!({}))["session_id"].take(),
        turn: |talk, session| {
            let submit = json!({"session_id": session, "text": "hello"});
            talk.ask("prompt.submit", &submit);
            talk.event("message.complete");
        },
    };
    measured(&protocol, repetitions)
}

pub(crate) fn pi(repetitions: usize) -> Vec<Figure> {
    let protocol = Protocol {
        name: "pi",
        figures: ["pi-face-ready", "pi-face-turn", "pi-face-rss"],
        begin: |talk| talk.until(&json!({"type": "get_state"}), "response"),
        open: |_, _| Value::Null,
        turn: |talk, _| {
            let prompt = json!({"type": "prompt", "message": "hello"});
            talk.until(&prompt, "agent_settled");
        },
    };
    measured(&protocol, repetitions)
}

/// From the start of the process to its first answer, what a turn of a warm session costs, and what it
/// has in memory after one.
fn measured(protocol: &Protocol, repetitions: usize) -> Vec<Figure> {
    let figure = |name, unit, limit, aside: &str| Figure {
        name,
        unit,
        control: Vec::new(),
        ours: Vec::new(),
        limit,
        aside: aside.to_owned(),
    };
    let [ready, turn, rss] = protocol.figures;
    let aside = "to its first answer; control: /bin/true";
    let mut ready = figure(ready, "ms", Limit::Alone(10.0), aside);
    let aside = "p50 of a warm session; control: the same over the socket";
    let mut turn = figure(turn, "ms", Limit::More(2.0), aside);
    let aside = "resident after a turn, with nothing said for 2 s";
    let mut rss = figure(rss, "MiB", Limit::Alone(8.0), aside);
    let place = Place::new();
    let _daemon = place.daemon();
    for _ in 0..repetitions {
        let bare: Vec<f64> = (0..RUNS)
            .map(|_| ms(place.run("/bin/true", &[], 0)))
            .collect();
        ready.control.push(median(&bare));
        let runs = (0..RUNS).map(|_| one(protocol, &place, Duration::ZERO).0);
        ready.ours.push(median(&runs.collect::<Vec<_>>()));
        let mut native = Client::kept(&place.socket());
        turn.control.push(p50(TURNS, |number| {
            native.send(&format!(
                r#"{{"id":{number},"prompt":"hello","session":"bench"}}"#
            ));
            native.finish();
        }));
        let (mut face, _) = Face::started(protocol, &place);
        let session = (protocol.open)(&mut face.talk, &place);
        turn.ours.push(p50(TURNS, |_| {
            (protocol.turn)(&mut face.talk, &session);
        }));
        face.ended();
        rss.ours
            .push(one(protocol, &place, Duration::from_secs(2)).1);
        rss.control.push(0.0);
    }
    vec![ready, turn, rss]
}

/// One client: how long it waited for its first answer, in ms, and the memory of the face, in MiB, when
/// it has said nothing for so long.
fn one(protocol: &Protocol, place: &Place, idle: Duration) -> (f64, f64) {
    let (mut face, took) = Face::started(protocol, place);
    let session = (protocol.open)(&mut face.talk, place);
    (protocol.turn)(&mut face.talk, &session);
    std::thread::sleep(idle);
    let memory = memory_of(face.child.id(), "Rss:") / 1024.0;
    face.ended();
    (took, memory)
}

/// A face that runs, and its client's end.
struct Face {
    child: Child,
    talk: Talk,
}

impl Face {
    /// With its first answer, and how long that took in ms.
    fn started(protocol: &Protocol, place: &Place) -> (Self, f64) {
        let begun = Instant::now();
        let mut command = place.command(AGENTCTL, &["serve", protocol.name]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut talk = Talk {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            last: 0,
        };
        (protocol.begin)(&mut talk);
        let took = ms(begun.elapsed());
        (Self { child, talk }, took)
    }

    fn ended(mut self) {
        drop(self.talk);
        self.child.wait().unwrap();
    }
}

/// The client's end, a message a line.
struct Talk {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Talk {
    /// Says a line, and waits for one of a type.
    fn until(&mut self, said: &Value, kind: &str) {
        writeln!(self.input, "{said}").unwrap();
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            assert_ne!(line["type"], "error", "{line}");
            if line["type"] == kind {
                return;
            }
        }
    }

    /// Waits for an event of the gateway.
    fn event(&mut self, kind: &str) {
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["params"]["type"] == kind {
                return;
            }
        }
    }

    /// A request of JSON-RPC, and its result.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let id = self.last;
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.input, "{line}").unwrap();
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            let mut line: Value = serde_json::from_str(&line).unwrap();
            if line["id"] == id {
                assert!(line["result"].is_object(), "{line}");
                return line["result"].take();
            }
        }
    }
}
