//! From what somebody asks about a schedule to what is written, before the core hears of it.
//!
//! Owns what is worked out for it: when it is due, and what an edit leaves of what it was. Whether it
//! may be, the core says.

use std::sync::Arc;

use agentd_core::event::Scheduling;
use agentd_core::store::{Fired, NextDue, ScheduleWrite};
use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::Send;
use agentd_protocol::schedule::{ScheduleId, ScheduleSpec};
use serde_json::{Map, Value};

use super::plan::next_due;
use super::timing::{self, Timing};
use crate::store::{KEYS, KeptSchedule};

/// Fields that say when a schedule is due.
const WHEN: &[&str] = &["at", "every", "cron", "tz", "jitter"];

fn invalid(why: impl Into<String>) -> Rejected {
    Rejected::new(Code::InvalidRequest, why)
}

fn json<T: serde::Serialize>(value: &T) -> String {
    // Strings, numbers and maps with strings as keys can always be written.
    serde_json::to_string(value).unwrap_or_default()
}

/// A new schedule.
///
/// # Errors
/// [`Rejected`] says what is wrong with it.
pub fn add(mut spec: ScheduleSpec, now_ms: i64) -> Result<Scheduling, Rejected> {
    let timing = settle(&mut spec, now_ms)?;
    let next = next_due(&timing, now_ms);
    let (name, send) = (spec.name.take(), json(&spec.send));
    let write = ScheduleWrite::Add {
        name,
        spec: json(&spec),
        anchor_ms: now_ms,
        next,
    };
    Ok(Scheduling::Write {
        write: Box::new(write),
        send: Some(send),
    })
}

fn settle(spec: &mut ScheduleSpec, now_ms: i64) -> Result<Timing, Rejected> {
    if let Some(backoff) = &spec.backoff {
        timing::read_duration("backoff", backoff).map_err(invalid)?;
    }
    timing::settle(spec, now_ms).map_err(invalid)
}

/// Another schedule in the place of one.
///
/// # Errors
/// [`Rejected`] says what is wrong with it.
pub fn edit(
    kept: &KeptSchedule,
    set: &Map<String, Value>,
    now_ms: i64,
) -> Result<Scheduling, Rejected> {
    let mut all = serde_json::to_value(&kept.spec).unwrap_or_default();
    let mut set = set.clone();
    if let Some(send) = set.get_mut("send").and_then(Value::as_object_mut) {
        for (alias, name) in [
            ("prompt", "text"),
            ("message", "text"),
            ("tools", "toolsets"),
        ] {
            if let Some(value) = send.remove(alias) {
                send.insert(name.to_owned(), value);
            }
        }
    }
    // One way to be due takes the place of another.
    let ways = ["at", "every", "cron"];
    if ways
        .iter()
        .any(|way| set.get(*way).is_some_and(|to| !to.is_null()))
    {
        for way in ways {
            set.entry(way).or_insert(Value::Null);
        }
    }
    let other_times = set.keys().any(|field| WHEN.contains(&field.as_str()));
    merge(&mut all, Value::Object(set));
    let mut spec = ScheduleSpec::decode(&all.to_string())?;
    let (anchor_ms, next) = if other_times {
        let timing = settle(&mut spec, now_ms)?;
        (now_ms, next_due(&timing, now_ms))
    } else {
        if let Some(backoff) = &spec.backoff {
            timing::read_duration("backoff", backoff).map_err(invalid)?;
        }
        (kept.anchor_ms, kept.next.clone())
    };
    Ok(set_to(kept, spec, (anchor_ms, next), false))
}

/// One that goes on.
///
/// # Errors
/// When the machine doesn't know its time zone any more.
pub fn resume(kept: &KeptSchedule, now_ms: i64) -> Result<Scheduling, Rejected> {
    let timing = Timing::of(&kept.spec, kept.anchor_ms).map_err(invalid)?;
    let next = match kept.paused {
        // A clock that was set back has nothing come twice.
        true => next_due(&timing, now_ms.max(kept.over_ms.unwrap_or(now_ms))),
        false => kept.next.clone(),
    };
    Ok(set_to(
        kept,
        kept.spec.clone(),
        (kept.anchor_ms, next),
        true,
    ))
}

fn set_to(
    kept: &KeptSchedule,
    mut spec: ScheduleSpec,
    (anchor_ms, next): (i64, NextDue),
    resumes: bool,
) -> Scheduling {
    let (name, send) = (spec.name.take(), json(&spec.send));
    let write = ScheduleWrite::Set {
        schedule: kept.schedule,
        revision: kept.revision,
        name,
        spec: json(&spec),
        anchor_ms,
        next,
        resumes,
    };
    Scheduling::Write {
        write: Box::new(write),
        send: (!resumes).then_some(send),
    }
}

/// RFC 7386.
fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *into = patch;
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Some(into) = into.as_object_mut() else {
        return;
    };
    for (field, value) in patch {
        match value {
            Value::Null => drop(into.remove(&field)),
            value => merge(into.entry(field).or_insert(Value::Null), value),
        }
    }
}

/// A run besides.
#[must_use]
pub fn run(kept: &KeptSchedule, now_ms: i64) -> Scheduling {
    let fired = Fired {
        schedule: kept.schedule,
        expected: None,
        due_ms: now_ms,
        late_ms: 0,
        next: NextDue::default(),
        passed: None,
    };
    let key = format!("{KEYS}{}:run:{now_ms}", ScheduleId(kept.schedule));
    Scheduling::Run {
        send: json(&keyed((*kept.spec.send).clone(), key)),
        fired: Arc::new(fired),
    }
}

/// The send of a due time: the same due time is the same job.
#[must_use]
pub fn due(spec: &ScheduleSpec, fired: &Arc<Fired>) -> Scheduling {
    let at = fired.due_ms.div_euclid(1000);
    let part = fired.due_ms.rem_euclid(1000);
    let mut key = format!("{KEYS}{}:{at}", ScheduleId(fired.schedule));
    if part > 0 {
        key.push_str(&format!(".{part:03}"));
    }
    Scheduling::Run {
        send: json(&keyed((*spec.send).clone(), key)),
        fired: Arc::clone(fired),
    }
}

fn keyed(mut send: Send, key: String) -> Send {
    send.idempotency_key = Some(key);
    send.stream = Some(false);
    send
}
