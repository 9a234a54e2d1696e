//! A client that fills the queue: turns that all fail, and turns that are all aborted.
//!
//! Owns its connection. Must not know what is right.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::client::{KNOCK_EVERY, UP_WITHIN, Wire};
use crate::history::{Dispatched, Item};
use crate::place::BROKEN_AGENT;
use crate::random::Random;
use crate::record::{Record, poll};
use crate::work::{Request, Work};

/// Of one `dispatch`: as many as one may have.
const BATCH: usize = 256;
/// Turns that wait in one session: as many as may.
const OF_A_SESSION: usize = 250;
const DISPATCH: u64 = 1;
const ABORT: u64 = 2;
/// Nothing that waits for it starts within the run.
const NEVER: &str = "2099-01-01T00:00:00Z";

/// What becomes of the turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Their agent can't run.
    Fail,
    /// They wait for a time that doesn't come, and are aborted.
    Abort,
}

/// Hands in so many turns of each fate, asking again until each batch is answered.
pub(crate) fn flood(record: &Arc<Record>, mut work: Work, mut random: Random, size: usize) {
    let mut left = size;
    while left > 0 && !record.is_stopping() {
        for fate in [Fate::Fail, Fate::Abort] {
            let count = left.min(BATCH);
            let turns: Vec<Request> = (0..count).map(|_| work.next_dispatched()).collect();
            // Sessions of their own, so that nobody else's turns wait behind these.
            let session = format!("flood-{}", (size - left) / OF_A_SESSION);
            let batch = Batch {
                fate,
                session,
                turns,
            };
            if see_through(record, &batch, &mut random).is_none() {
                return record.stuck(format!("no daemon for {UP_WITHIN:?}"));
            }
        }
        left = left.saturating_sub(BATCH);
    }
}

struct Batch {
    fate: Fate,
    session: String,
    turns: Vec<Request>,
}

impl Batch {
    fn item(&self, number: usize, turn: &Request) -> Value {
        let mut item = json!({"text": turn.text, "idempotency_key": turn.nonce});
        match self.fate {
            Fate::Fail => {
                // Half of them are alone: their sessions are as many as they are.
                item["agent"] = json!(BROKEN_AGENT);
                if number.is_multiple_of(2) {
                    item["session"] = json!(format!("{}-fails", self.session));
                }
            }
            Fate::Abort => {
                item["agent"] = json!("chaos");
                item["session"] = json!(self.session);
                item["start_at"] = json!(NEVER);
            }
        }
        item
    }

    fn line(&self) -> Value {
        let numbered = self.turns.iter().enumerate();
        let jobs: Vec<Value> = numbered
            .map(|(number, turn)| self.item(number, turn))
            .collect();
        json!({"type": "dispatch", "id": DISPATCH, "jobs": jobs})
    }

    fn dispatched(&self, conn: u64) -> Dispatched {
        let item = |turn: &Request| Item {
            key: turn.nonce.clone(),
            nonce: turn.nonce.clone(),
            retry: crate::history::Retry::Never,
        };
        Dispatched {
            conn,
            id: DISPATCH,
            items: self.turns.iter().map(item).collect(),
        }
    }
}

/// Asks until the batch is answered, and aborted if it is to be.
fn see_through(record: &Record, batch: &Batch, random: &mut Random) -> Option<()> {
    loop {
        let mut wire = poll(UP_WITHIN, || Wire::connect(record))?;
        if talk(record, &mut wire, batch, random).is_some() {
            return Some(());
        }
        std::thread::park_timeout(KNOCK_EVERY);
    }
}

/// One connection; nothing when it has to be asked again.
fn talk(record: &Record, wire: &mut Wire, batch: &Batch, random: &mut Random) -> Option<()> {
    wire.write(&json!({"type": "hello"})).ok()?;
    record.dispatched(batch.dispatched(wire.conn));
    wire.write(&batch.line()).ok()?;
    let answer = wire.reply(record, DISPATCH)?;
    if answer["type"] != "dispatch" {
        return (answer["retryable"] == false).then_some(());
    }
    if batch.fate == Fate::Fail {
        return Some(());
    }
    if random.percent(20) {
        // Gone before it is aborted: asked again, the keys find it.
        return None;
    }
    let abort = json!({"type": "abort", "id": ABORT, "session": batch.session, "queued": true});
    wire.write(&abort).ok()?;
    let answer = wire.reply(record, ABORT)?;
    if answer["ok"] != true {
        return None;
    }
    let jobs = answer["jobs"].as_array().cloned().unwrap_or_default();
    let jobs: BTreeSet<String> = jobs
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    record.with(|history| history.aborted.extend(jobs));
    Some(())
}
