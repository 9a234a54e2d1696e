//! What OpenAI's API costs beside what it is made of: the socket, and the same server's own requests.
//!
//! Owns these measurements, and the agent that speaks at an even pace. Must not know how they are
//! judged.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::durable::p99;
use crate::http::Http;
use crate::place::{Client, Place, ms};
use crate::report::{Figure, Limit};
use crate::round_trips::p50;

/// Turns per repetition; their median counts.
const TURNS: usize = 200;
const STREAMS: usize = 64;
/// How far the pieces of a stream are apart.
const PACE: Duration = Duration::from_millis(1);
/// Pieces of a stream: for two seconds.
const PIECES: u32 = 2000;

const CHAT: &str = "/v1/chat/completions";

fn chat(agent: &str, streams: bool) -> String {
    format!(
        r#"{{"model":"{agent}","stream":{streams},"messages":[{{"role":"user","content":"hello"}}]}}"#
    )
}

/// What a warm agent says first: over the socket, and as a chunk.
pub(crate) fn first(repetitions: usize) -> Vec<Figure> {
    let (place, mut control, mut ours) = (Place::new(), Vec::new(), Vec::new());
    let _daemon = place.daemon();
    let http = Http::start(&place);
    for _ in 0..repetitions {
        let mut client = Client::kept(&place.socket());
        control.push(first_of(|number| {
            client.send(&format!(
                r#"{{"type":"send","id":{number},"text":"hello"}}"#
            ));
            while !client.next().contains(r#""type":"message_delta""#) {}
            let first = Instant::now();
            client.finish();
            first
        }));
        let mut connection = http.connect();
        ours.push(first_of(|_| {
            connection.ask(CHAT, &chat("timmy", true));
            while !connection.piece().is_some_and(|said| says(&said)) {}
            let first = Instant::now();
            while connection.piece().is_some() {}
            first
        }));
    }
    vec![Figure {
        name: "chat-first",
        unit: "ms",
        control,
        ours,
        limit: Limit::More(2.0),
        aside: "p50 to the first words of a streamed chat; control: the socket's first delta"
            .to_owned(),
    }]
}

/// The median time to what a turn says first, of which the whole turn is read.
fn first_of(mut turn: impl FnMut(usize) -> Instant) -> f64 {
    let times = (0..TURNS).map(|number| {
        let begun = Instant::now();
        ms(turn(number).duration_since(begun))
    });
    crate::report::median(&times.collect::<Vec<f64>>())
}

fn says(piece: &str) -> bool {
    piece.contains(r#""content":""#)
}

/// A chat that comes whole, beside a turn that is handed in and waited for.
pub(crate) fn whole(repetitions: usize) -> Vec<Figure> {
    let (place, mut control, mut ours) = (Place::new(), Vec::new(), Vec::new());
    let _daemon = place.daemon();
    let http = Http::start(&place);
    for _ in 0..repetitions {
        let mut connection = http.connect();
        control.push(p50(TURNS, |_| {
            connection.post("/v1/dispatch?wait=20", r#"{"prompt":"hello"}"#, 200);
        }));
        ours.push(p50(TURNS, |_| {
            connection.post(CHAT, &chat("timmy", false), 200);
        }));
    }
    vec![Figure {
        name: "chat-whole",
        unit: "ms",
        control,
        ours,
        limit: Limit::More(3.0),
        aside: "p50 of a chat that isn't streamed; control: `POST /v1/dispatch?wait`".to_owned(),
    }]
}

/// Many streams at once: how long the unluckiest of them waits for a piece.
pub(crate) fn streams(repetitions: usize) -> Vec<Figure> {
    let place = Place::new();
    place.add_agent("paced", "--paced");
    let _daemon = place.daemon();
    let http = Http::start(&place);
    let (mut control, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        control.push(worst(|| {
            let mut client = Client::kept(&place.socket());
            move |said: &mut dyn FnMut()| {
                client.send(r#"{"type":"send","id":1,"agent":"paced","text":"go"}"#);
                loop {
                    let line = client.next();
                    assert!(!line.contains(r#""type":"error""#), "{line}");
                    if line.contains(r#""type":"message_end""#) {
                        return;
                    }
                    if line.contains(r#""type":"message_delta""#) {
                        said();
                    }
                }
            }
        }));
        ours.push(worst(|| {
            let mut connection = http.connect();
            move |said: &mut dyn FnMut()| {
                connection.ask(CHAT, &chat("paced", true));
                while let Some(piece) = connection.piece() {
                    if says(&piece) {
                        said();
                    }
                }
            }
        }));
    }
    vec![Figure {
        name: "chat-streams",
        unit: "ms",
        control,
        ours,
        limit: Limit::Alone(50.0),
        aside: format!(
            "{STREAMS} streams of 1,000 pieces a second: the worst p99 between two; control: the socket"
        ),
    }]
}

/// The largest of the streams' p99 gaps. `connect` gives a reader, which calls at each piece.
fn worst<R: FnMut(&mut dyn FnMut()) + Send>(connect: impl Fn() -> R) -> f64 {
    let ready = Barrier::new(STREAMS);
    let readers: Vec<R> = (0..STREAMS).map(|_| connect()).collect();
    std::thread::scope(|scope| {
        let reading: Vec<_> = readers
            .into_iter()
            .map(|mut read| {
                let ready = &ready;
                scope.spawn(move || {
                    let (mut gaps, mut last) = (Vec::new(), None);
                    ready.wait();
                    read(&mut || {
                        let now = Instant::now();
                        if let Some(last) = last.replace(now) {
                            gaps.push(ms(now.duration_since(last)));
                        }
                    });
                    assert!(!gaps.is_empty(), "nothing was said");
                    p99(gaps)
                })
            })
            .collect();
        let tails = reading.into_iter().map(|one| one.join().unwrap());
        tails.fold(0.0, f64::max)
    })
}

/// A worker of many turns at once, each of which has a piece at each tick.
pub(crate) fn speak() -> ExitCode {
    let (heard, hears) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            heard.send(line).unwrap();
        }
    });
    pace(&hears);
    ExitCode::SUCCESS
}

fn pace(hears: &Receiver<Value>) {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    // The turns under way, by the ids of their sends, and how many pieces each has said.
    let mut turns = BTreeMap::new();
    let mut tick = Instant::now();
    loop {
        // With nothing to say it only listens.
        let heard = if turns.is_empty() {
            hears.recv().map_err(RecvTimeoutError::from)
        } else {
            hears.recv_timeout(tick.saturating_duration_since(Instant::now()))
        };
        match heard {
            Ok(line) if line["type"] == "send" => {
                if turns.is_empty() {
                    tick = Instant::now() + PACE;
                }
                let id = line["id"].to_string();
                writeln!(out, r#"{{"type":"message_start","id":{id}}}"#).unwrap();
                turns.insert(id, 0);
            }
            Ok(line) => {
                let (id, can) = (&line["id"], r#""sessions":"many","concurrent_sends":64"#);
                writeln!(out, r#"{{"type":"status","id":{id},"ok":true,{can}}}"#).unwrap();
                out.flush().unwrap();
            }
            Err(RecvTimeoutError::Timeout) => {
                turns.retain(|id, said| {
                    *said += 1;
                    let told = if *said <= PIECES {
                        r#""type":"message_delta","text":"word ""#
                    } else {
                        r#""type":"message_end","stop":"end_turn""#
                    };
                    writeln!(out, r#"{{{told},"id":{id}}}"#).unwrap();
                    *said <= PIECES
                });
                out.flush().unwrap();
                tick += PACE;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
