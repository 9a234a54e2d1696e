//! Clients that hand in several turns at once, and collect what became of them later.
//!
//! Owns their connections. Must not know what is right.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::client::{KNOCK_EVERY, UP_WITHIN, Wire};
use crate::history::{Dispatched, Item};
use crate::random::Random;
use crate::record::{Record, poll};
use crate::work::{Request, Work};

/// Of one `dispatch`.
const MOST_TURNS: u64 = 6;
const DISPATCH: u64 = 1;
const COLLECT: u64 = 2;
/// Seconds for one `collect`: what waits behind an interrupted turn has to be released meanwhile.
const COLLECT_WITHIN: u64 = 1;

/// Several turns that are accepted together or not at all.
struct Batch {
    turns: Vec<Request>,
    /// One of them can't be accepted.
    spoilt: bool,
}

/// What an answer to a `dispatch` says.
enum Answer {
    /// These jobs.
    Taken(Vec<String>),
    /// Not now.
    Later,
    Never,
}

impl Batch {
    fn next(work: &mut Work, random: &mut Random) -> Self {
        let count = random.within(2, MOST_TURNS);
        Self {
            turns: (0..count).map(|_| work.next_dispatched()).collect(),
            spoilt: random.percent(15),
        }
    }

    fn line(&self) -> Value {
        let mut jobs: Vec<Value> = self.turns.iter().map(Request::item).collect();
        if let (true, Some(last)) = (self.spoilt, jobs.last_mut()) {
            last["agent"] = json!("nobody");
        }
        json!({"type": "dispatch", "id": DISPATCH, "jobs": jobs})
    }

    fn dispatched(&self, conn: u64) -> Dispatched {
        let item = |turn: &Request| Item {
            key: turn.nonce.clone(),
            nonce: turn.nonce.clone(),
            retry: turn.retry,
        };
        Dispatched {
            conn,
            id: DISPATCH,
            items: self.turns.iter().map(item).collect(),
        }
    }

    fn sessions(&self) -> BTreeSet<&str> {
        let named = self.turns.iter().filter_map(|turn| turn.session.as_deref());
        named.collect()
    }
}

/// Hands in one batch after the other until the run stops, and the last one is done with.
pub(crate) fn dispatch_and_collect(record: &Arc<Record>, mut work: Work, mut random: Random) {
    while !record.is_stopping() {
        let batch = Batch::next(&mut work, &mut random);
        if see_through(record, &batch, &mut random).is_none() {
            return record.stuck(format!("no daemon for {UP_WITHIN:?}"));
        }
    }
}

/// Asks with the same keys again and again, until the end of each turn is known.
fn see_through(record: &Record, batch: &Batch, random: &mut Random) -> Option<()> {
    loop {
        let mut wire = poll(UP_WITHIN, || Wire::connect(record))?;
        match talk(record, &mut wire, batch, random) {
            Some(Answer::Taken(_) | Answer::Never) => return Some(()),
            Some(Answer::Later) => std::thread::park_timeout(KNOCK_EVERY),
            None => {}
        }
    }
}

/// One connection; nothing when it broke.
fn talk(record: &Record, wire: &mut Wire, batch: &Batch, random: &mut Random) -> Option<Answer> {
    wire.write(&json!({"type": "hello"})).ok()?;
    record.dispatched(batch.dispatched(wire.conn));
    if random.percent(5) {
        wire.write_half(&batch.line());
        return None;
    }
    wire.write(&batch.line()).ok()?;
    if random.percent(5) {
        // Gone before the answer.
        return None;
    }
    let answer = answer(record, wire)?;
    if let Answer::Taken(jobs) = &answer {
        collect(record, wire, batch, jobs.clone())?;
    }
    Some(answer)
}

fn answer(record: &Record, wire: &mut Wire) -> Option<Answer> {
    let line = wire.reply(record, DISPATCH)?;
    let rows = line["jobs"].as_array().cloned().unwrap_or_default();
    let job = |row: &Value| row["job"].as_str().map(str::to_owned);
    Some(match line["type"].as_str() {
        Some("dispatch") => Answer::Taken(rows.iter().filter_map(job).collect()),
        _ if line["retryable"] == true => Answer::Later,
        _ => Answer::Never,
    })
}

/// Waits for every end, and resumes the sessions in which something doesn't come to one.
fn collect(record: &Record, wire: &mut Wire, batch: &Batch, mut jobs: Vec<String>) -> Option<()> {
    while !jobs.is_empty() {
        let ask = json!({
            "type": "collect", "id": COLLECT, "jobs": jobs, "timeout": COLLECT_WITHIN,
        });
        wire.write(&ask).ok()?;
        let answer = wire.reply(record, COLLECT)?;
        let results = answer["results"].as_array().cloned().unwrap_or_default();
        jobs.retain(|job| !results.iter().any(|line| line["job"] == job.as_str()));
        record.with(|history| history.collected.extend(results));
        for session in batch.sessions().iter().filter(|_| !jobs.is_empty()) {
            let id = wire.resume(record, session).ok()?;
            wire.reply(record, id)?;
        }
    }
    Some(())
}
