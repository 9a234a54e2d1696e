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

/// Hands in so many turns of each fate, or as many as there is room for, and only then aborts.
pub(crate) fn flood(record: &Arc<Record>, mut work: Work, mut random: Random, size: usize) {
    let mut sessions = BTreeSet::new();
    for (begin, fate) in (0..size)
        .step_by(BATCH)
        .flat_map(|begin| FATES.map(|fate| (begin, fate)))
    {
        let turns = BATCH.min(size - begin);
        // Sessions of their own, so that nobody else's turns wait behind these.
        let session = format!("flood-{}", begin / BATCH);
        sessions.insert(session.clone());
        let batch = Batch {
            fate,
            session,
            turns: (0..turns).map(|_| work.next_dispatched()).collect(),
        };
        if again_and_again(record, |wire| batch.hand_in(record, wire)).is_none() {
            return;
        }
    }
    for session in sessions {
        let aborted = again_and_again(record, |wire| abort(record, wire, &session, &mut random));
        if aborted.is_none() {
            return;
        }
    }
}

/// Until it is answered; nothing when there is no daemon.
fn again_and_again(record: &Record, mut talk: impl FnMut(&mut Wire) -> Option<()>) -> Option<()> {
    loop {
        let Some(mut wire) = poll(UP_WITHIN, || Wire::connect(record)) else {
            record.stuck(format!("no daemon for {UP_WITHIN:?}"));
            return None;
        };
        if talk(&mut wire).is_some() {
            return Some(());
        }
        std::thread::park_timeout(KNOCK_EVERY);
    }
}

struct Batch {
    fate: Fate,
    session: String,
    turns: Vec<Request>,
}

const FATES: [Fate; 2] = [Fate::Fail, Fate::Abort];

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

    /// One connection; nothing when it has to be asked again.
    fn hand_in(&self, record: &Record, wire: &mut Wire) -> Option<()> {
        wire.write(&json!({"type": "hello"})).ok()?;
        record.dispatched(self.dispatched(wire.conn));
        wire.write(&self.line()).ok()?;
        let answer = reply(record, wire, DISPATCH)?;
        let taken = answer["type"] == "dispatch" || answer["retryable"] == false;
        // There is no room before something is aborted: then this is not asked again.
        let full = answer["code"] == "queue-full";
        if full {
            let first = self.turns.first().map(|turn| turn.nonce.as_str());
            let is_it = |asked: &Dispatched| asked.items.first().map(|item| &*item.key) == first;
            record.with(|history| history.dispatched.retain(|asked| !is_it(asked)));
        }
        (taken || full).then_some(())
    }
}

fn abort(record: &Record, wire: &mut Wire, session: &str, random: &mut Random) -> Option<()> {
    wire.write(&json!({"type": "hello"})).ok()?;
    let abort = json!({"type": "abort", "id": ABORT, "session": session, "queued": true});
    wire.write(&abort).ok()?;
    if random.percent(20) {
        // Gone before the answer.
        return None;
    }
    let answer = reply(record, wire, ABORT)?;
    if answer["ok"] != true {
        // Nothing was stored in it.
        return (answer["retryable"] == false).then_some(());
    }
    let jobs = answer["jobs"].as_array().cloned().unwrap_or_default();
    let jobs = jobs.iter().filter_map(Value::as_str).map(str::to_owned);
    record.with(|history| history.aborted.extend(jobs));
    Some(())
}

fn reply(record: &Record, wire: &mut Wire, id: u64) -> Option<Value> {
    loop {
        let line = wire.read(record)?;
        if line["id"] == id {
            return Some(line);
        }
    }
}
