//! How old things are, whatever the wall clock says.
//!
//! Owns which time it is believed to be, and which jobs a day of a running machine has passed over.
//! A wall clock may be set to anything; the clock of a boot can't be. Must not know what is
//! forgotten.

use rusqlite::{Connection, OptionalExtension as _};
use serde::{Deserialize, Serialize};

use super::columns::int;

/// A wall clock is believed when it has been so late for so long, and a key is remembered for so
/// long, in milliseconds that were seen to pass.
pub(super) const DAY: i64 = 24 * 60 * 60 * 1000;
/// What was seen within so long is kept together.
const SLOT: i64 = 60 * 60 * 1000;
/// Of the time between two looks so much counts: nobody saw what the clocks did meanwhile. Looks
/// are closer while somebody looks.
const GAP: i64 = SLOT;
/// What was seen is noted this often, and at once if a clock went back by more than a minute.
const NOTED: i64 = SLOT / 2;
const BACK: i64 = 60 * 1000;

/// What the clocks say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Clocks<'a> {
    pub(super) wall_ms: i64,
    /// Which boot of the machine this is, where that is known.
    pub(super) boot: Option<&'a str>,
    /// Since then.
    pub(super) boot_ms: u64,
}

/// What is to be believed of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Believed {
    /// It is at least so late; 0 where that isn't known yet.
    pub(super) now_ms: i64,
    /// Jobs up to this one were accepted a day ago or earlier.
    pub(super) day_old: i64,
}

/// What was seen so far, as it is kept in the store.
#[derive(Default, Serialize, Deserialize)]
struct Ages {
    boot: Option<String>,
    boot_ms: u64,
    /// Time that was seen to pass.
    passed: i64,
    /// Ascending. The first one began a day ago or earlier, if any did.
    slots: Vec<ClockSlot>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct ClockSlot {
    /// By the time that passed.
    since: i64,
    /// How far the wall clock was ahead of that, at least.
    ahead: i64,
    /// The last job that was accepted before.
    job: i64,
}

/// Looks at the clocks, and notes what they say.
pub(super) fn look(conn: &Connection, clocks: Clocks<'_>) -> rusqlite::Result<Believed> {
    let known: Option<String> = conn
        .prepare_cached("SELECT value FROM meta WHERE key = 'ages'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let job = conn
        .prepare_cached("SELECT coalesce(max(job), 0) FROM jobs")?
        .query_row([], |row| row.get(0))?;
    // What can't be read begins anew, and nothing is old for a day.
    let known = known.and_then(|known| serde_json::from_str(&known).ok());
    let mut ages: Ages = known.unwrap_or_default();
    if ages.see(clocks, job) {
        let text = serde_json::to_string(&ages).unwrap_or_default();
        conn.prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES ('ages', ?1)")?
            .execute([text])?;
    }
    Ok(ages.believed())
}

impl Ages {
    /// Takes in what the clocks say. Is it worth noting?
    fn see(&mut self, clocks: Clocks<'_>, job: i64) -> bool {
        let passed = self.since_last(clocks);
        self.passed = self.passed.saturating_add(passed);
        let ahead = clocks.wall_ms.saturating_sub(self.passed);
        let boot = clocks.boot.map(str::to_owned);
        let is_another = std::mem::replace(&mut self.boot, boot).as_deref() != clocks.boot
            || clocks.boot_ms < self.boot_ms;
        self.boot_ms = clocks.boot_ms;
        let slot = ClockSlot {
            since: self.passed,
            ahead,
            job,
        };
        let (is_new, went_back) = match self.slots.last_mut() {
            Some(last) if self.passed - last.since < SLOT => {
                let before = last.ahead;
                last.ahead = before.min(ahead);
                (false, ahead.saturating_add(BACK) < before)
            }
            _ => {
                self.slots.push(slot);
                (true, false)
            }
        };
        let day_ago = self.passed - DAY;
        let old = self.slots.iter().rposition(|slot| slot.since <= day_ago);
        // The last one that began a day ago stays: the day is measured from it.
        self.slots.drain(..old.unwrap_or(0));
        is_new || is_another || went_back || passed >= NOTED
    }

    /// Another boot began nobody knows how long after the last look.
    fn since_last(&self, clocks: Clocks<'_>) -> i64 {
        if self.boot.as_deref() != clocks.boot {
            return 0;
        }
        int(clocks.boot_ms.saturating_sub(self.boot_ms)).min(GAP)
    }

    /// For a day the clock has said no less than this, in step with the time that passed. One that
    /// is set forward isn't believed before, and what it says meanwhile makes nothing old. One that
    /// is set back is believed at once, as that makes nothing old either.
    fn believed(&self) -> Believed {
        let day_ago = self.passed - DAY;
        match self.slots.first().filter(|slot| slot.since <= day_ago) {
            Some(first) => Believed {
                now_ms: self
                    .slots
                    .iter()
                    .map(|slot| slot.ahead)
                    .min()
                    .unwrap_or(0)
                    .saturating_add(self.passed),
                day_old: first.job,
            },
            None => Believed {
                now_ms: 0,
                day_old: 0,
            },
        }
    }
}
