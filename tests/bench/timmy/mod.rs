//! The built-in agent by itself: how soon it asks its model, what it adds to a turn, what it keeps.
//!
//! Owns these measurements and driving `timmy --rpc`. Must not know how they are judged.

mod files;
mod provider;
mod streams;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) use self::files::tree;
use self::provider::{Provider, REQUEST};
pub(crate) use self::streams::streams;
use crate::idle::memory_of;
use crate::mock_model::MockModel;
use crate::place::{Place, TIMMY, ms};
use crate::report::{Figure, Limit};

/// Starts of one repetition.
const STARTS: usize = 21;
/// Turns of one repetition, each one of a pair.
const TURNS: usize = 100;
/// The first ones find cold caches.
const WARM_UP: usize = 5;
/// Sessions beside the first one.
const IDLE: usize = 99;
/// Turns of a conversation that is shortened.
const LONG: usize = 100;

/// `timmy --rpc` in a place of its own; killed when dropped.
struct Timmy {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: String,
}

impl Timmy {
    fn start(place: &Place) -> Self {
        let mut child = place
            .command(TIMMY, &["--rpc"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            line: String::new(),
            child,
        }
    }

    fn say(&mut self, line: &Value) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn next(&mut self) -> Value {
        self.line.clear();
        let read = self.output.read_line(&mut self.line).unwrap();
        assert!(read > 0, "timmy left");
        serde_json::from_str(&self.line).unwrap()
    }

    /// Reads up to a line of this type.
    fn until(&mut self, kind: &str) -> Value {
        loop {
            let line = self.next();
            assert!(
                line["type"] != "error" && line["stop"] != "error",
                "{line:#}"
            );
            if line["type"] == kind {
                return line;
            }
        }
    }

    /// A turn to its end.
    fn turn(&mut self, session: &str, text: &str) -> Duration {
        let send = json!({"type": "send", "id": 1, "session": session, "text": text});
        let begun = Instant::now();
        self.say(&send);
        self.until("message_end");
        begun.elapsed()
    }

    fn rss_mib(&self) -> f64 {
        memory_of(self.child.id(), "Rss:") / 1024.0
    }
}

impl Drop for Timmy {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A place whose only provider is at this address.
fn place(url: &str, more: &str) -> Place {
    let place = Place::new();
    place.configure(&format!(
        "[models]\ndefault = \"mock/m1\"\n{more}\n[providers.mock]\nbase_url = \"{url}\"\n"
    ));
    place
}

fn figure(name: &'static str, unit: &'static str, limit: Limit, aside: &str) -> Figure {
    let (control, ours, aside) = (Vec::new(), Vec::new(), aside.to_owned());
    Figure {
        name,
        unit,
        control,
        ours,
        limit,
        aside,
    }
}

/// From the start of the process to the whole request at the provider.
pub(crate) fn cold(repetitions: usize) -> Vec<Figure> {
    let provider = Provider::start(provider::say_hello);
    let place = place(&provider.url, "");
    let aside = "from its start to its first request at the provider; control: /bin/true";
    let mut figure = figure("timmy-cold", "ms", Limit::Alone(30.0), aside);
    // The first one lays out its store.
    for start in 0..=repetitions * STARTS {
        let control = ms(place.run("/bin/true", &[], 0));
        let begun = Instant::now();
        let mut timmy = place.command(TIMMY, &["-p", "hello"]).spawn().unwrap();
        let asked = provider.next_request();
        let status = timmy.wait().unwrap();
        assert!(status.success(), "{status}");
        if start > 0 {
            figure.control.push(control);
            figure.ours.push(ms(asked.duration_since(begun)));
        }
    }
    vec![figure]
}

/// A turn beside the same request by hand, pair by pair.
pub(crate) fn turn(repetitions: usize) -> Vec<Figure> {
    let provider = Provider::start(provider::say_hello);
    let aside = "a turn of a warm process; control: the same request by hand";
    let mut figure = figure("timmy-turn", "ms", Limit::More(3.0), aside);
    for _ in 0..repetitions {
        let place = place(&provider.url, "");
        let mut timmy = Timmy::start(&place);
        let by_hand = || {
            let begun = Instant::now();
            provider::ask(provider.address, REQUEST, |_| {});
            ms(begun.elapsed())
        };
        for number in 0..WARM_UP + TURNS {
            // What one leaves to be done would otherwise always be done in the other's time.
            let (control, ours) = match number % 2 {
                0 => {
                    let control = by_hand();
                    (control, ms(timmy.turn("bench", "hello")))
                }
                _ => {
                    let ours = ms(timmy.turn("bench", "hello"));
                    (by_hand(), ours)
                }
            };
            if number >= WARM_UP {
                figure.control.push(control);
                figure.ours.push(ours);
            }
        }
    }
    vec![figure]
}

/// Resident memory with one session, and what each further one adds that has said something.
pub(crate) fn memory(repetitions: usize) -> Vec<Figure> {
    let provider = Provider::start(provider::say_hello);
    let aside = "resident with one session; control: bare tokio + SQLite";
    let mut one = figure("timmy-rss", "MiB", Limit::Alone(25.0), aside);
    let aside = "each idle session after the first";
    let mut more = figure("timmy-session", "MiB", Limit::Alone(1.0), aside);
    for _ in 0..repetitions {
        let place = place(&provider.url, "");
        let bare = memory_of(place.control().pid(), "Rss:") / 1024.0;
        let mut timmy = Timmy::start(&place);
        timmy.turn("first", "hello");
        let first = timmy.rss_mib();
        for number in 0..IDLE {
            timmy.turn(&format!("s{number}"), "hello");
        }
        let all = timmy.rss_mib();
        one.control.push(bare);
        one.ours.push(first);
        more.control.push(0.0);
        more.ours
            .push((all - first) / f64::from(u32::try_from(IDLE).unwrap()));
    }
    vec![one, more]
}

/// A turn whose first model has reached its rate limit for 30 s, and whose second one answers.
pub(crate) fn fallback(repetitions: usize) -> Vec<Figure> {
    let model = MockModel::start();
    let aside = "a turn whose first model says 429 with Retry-After 30; control: one without";
    let mut figure = figure("timmy-fallback", "ms", Limit::Alone(3000.0), aside);
    for _ in 0..repetitions {
        // A place of its own each time: the first model is left alone for the 30 s.
        let place = place(&model.url, "fallbacks = [\"mock/m2\"]");
        let mut timmy = Timmy::start(&place);
        timmy.turn("bench", "hello");
        figure.control.push(ms(timmy.turn("bench", "hello")));
        let text = "[[on=m1]] [[fail=ratelimit]] [[wait=30]]";
        figure.ours.push(ms(timmy.turn("bench", text)));
        let asked = model.asked();
        assert_eq!(asked.last().unwrap().model, "m2", "the next one answers");
    }
    vec![figure]
}

/// A conversation of many turns shortened on request: what timmy does beside the model's summary.
pub(crate) fn compact(repetitions: usize) -> Vec<Figure> {
    let provider = Provider::start(provider::say_hello);
    let aside = format!("`compact` after {LONG} turns of 2 KB; control: a request by hand");
    let mut figure = figure("timmy-compact", "ms", Limit::More(20.0), &aside);
    let text = "word ".repeat(400);
    for _ in 0..repetitions {
        let place = place(&provider.url, "");
        let mut timmy = Timmy::start(&place);
        for _ in 0..LONG {
            timmy.turn("bench", &text);
        }
        let begun = Instant::now();
        provider::ask(provider.address, REQUEST, |_| {});
        figure.control.push(ms(begun.elapsed()));
        let begun = Instant::now();
        timmy.say(&json!({"type": "compact", "id": 2, "session": "bench"}));
        timmy.until("compact");
        figure.ours.push(ms(begun.elapsed()));
    }
    vec![figure]
}
