//! What a face costs whoever starts it: how soon it answers, and the memory it takes.
//!
//! Owns these measurements. Must not know how they are judged.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Instant;

use crate::idle::memory_of;
use crate::place::{AGENTCTL, Place, ms};
use crate::report::{Figure, Limit, median};

/// Starts per repetition; their median counts.
const RUNS: usize = 21;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const ASK: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask","arguments":{"prompt":"hello"}}}"#;

/// From the start of the process to its answer to `initialize`, and what it has in memory after a turn.
pub(crate) fn mcp(repetitions: usize) -> Vec<Figure> {
    let figure = |name, unit, limit, aside: &str| Figure {
        name,
        unit,
        control: Vec::new(),
        ours: Vec::new(),
        limit: Limit::Alone(limit),
        aside: aside.to_owned(),
    };
    let mut ready = figure(
        "mcp-ready",
        "ms",
        10.0,
        "to the answer to `initialize`; control: /bin/true",
    );
    let mut rss = figure("mcp-rss", "MiB", 8.0, "resident after a turn");
    let place = Place::new();
    let _daemon = place.daemon();
    for _ in 0..repetitions {
        let bare: Vec<f64> = (0..RUNS)
            .map(|_| ms(place.run("/bin/true", &[], 0)))
            .collect();
        ready.control.push(median(&bare));
        let (took, memory): (Vec<f64>, Vec<f64>) = (0..RUNS).map(|_| face(&place)).unzip();
        ready.ours.push(median(&took));
        rss.ours.push(median(&memory));
        rss.control.push(0.0);
    }
    vec![ready, rss]
}

fn face(place: &Place) -> (f64, f64) {
    let begun = Instant::now();
    let mut command = place.command(AGENTCTL, &["serve", "mcp"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |line: &str| {
        writeln!(input, "{line}").unwrap();
        let answer = lines.next().unwrap().unwrap();
        assert!(answer.contains("\"result\""), "{answer}");
    };
    ask(INITIALIZE);
    let took = ms(begun.elapsed());
    ask(ASK);
    let memory = memory_of(child.id(), "Rss:") / 1024.0;
    drop(input);
    child.wait().unwrap();
    (took, memory)
}
