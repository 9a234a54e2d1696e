//! Many sessions of one process whose models all speak at once: how late a piece comes.
//!
//! Owns this measurement. Must not know how it is judged. Each piece is the moment at which it was said.

use std::net::SocketAddr;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use super::provider::{self, Provider, REQUEST};
use super::{Timmy, figure, place};
use crate::place::ms;
use crate::report::{Figure, Limit};

const SESSIONS: usize = 50;
const PIECES: usize = 100;
/// As a fast model speaks.
const APART: Duration = Duration::from_millis(20);

/// What moments are counted from.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn speak(piece: &mut dyn FnMut(&str)) {
    for _ in 0..PIECES {
        std::thread::sleep(APART);
        piece(&format!("{} ", BEGUN.elapsed().as_micros()));
    }
}

/// The longest that any piece of a text was on its way, in milliseconds.
fn lateness(text: &str) -> f64 {
    let now = BEGUN.elapsed();
    let said = text.split_whitespace().map(|micros| {
        let said = Duration::from_micros(micros.parse().unwrap());
        ms(now.saturating_sub(said))
    });
    said.fold(0.0, f64::max)
}

/// The latest piece of all sessions.
pub(crate) fn streams(repetitions: usize) -> Vec<Figure> {
    LazyLock::force(&BEGUN);
    let provider = Provider::start(speak);
    let aside = format!(
        "the latest of {PIECES} pieces in {SESSIONS} sessions at once; control: as many requests by hand"
    );
    let mut figure = figure("timmy-streams", "ms", Limit::Alone(50.0), &aside);
    for _ in 0..repetitions {
        figure.control.push(by_hand(provider.address));
        let place = place(&provider.url, "");
        let mut timmy = Timmy::start(&place);
        for number in 0..SESSIONS {
            let session = format!("s{number}");
            timmy.say(&json!({"type": "send", "id": number, "session": session, "text": "go"}));
        }
        let (mut latest, mut pieces, mut ended) = (0.0, 0, 0);
        while ended < SESSIONS {
            let line = timmy.next();
            if line["type"] == "message_delta" {
                let text = line["text"].as_str().unwrap();
                pieces += text.split_whitespace().count();
                latest = f64::max(latest, lateness(text));
            }
            assert_ne!(line["type"], "error", "{line:#}");
            ended += usize::from(line["type"] == "message_end");
        }
        assert_eq!(pieces, SESSIONS * PIECES, "each piece is told once");
        figure.ours.push(latest);
    }
    vec![figure]
}

fn by_hand(address: SocketAddr) -> f64 {
    let latest = Mutex::new(0.0);
    std::thread::scope(|scope| {
        for _ in 0..SESSIONS {
            scope.spawn(|| {
                let mut own = 0.0;
                provider::ask(address, REQUEST, |text| {
                    own = f64::max(own, lateness(text));
                });
                let mut latest = latest.lock().unwrap();
                *latest = f64::max(*latest, own);
            });
        }
    });
    latest.into_inner().unwrap()
}
