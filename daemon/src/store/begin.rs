//! What the store holds when it is opened, and what is taken over with that.
//!
//! Owns that first look. Must not know who opens it, nor what they do with it.

use std::collections::BTreeSet;
use std::path::Path;

use agentd_core::store::Recovered;
use rusqlite::Connection;

use super::schema::Whole;
use super::takeover::Search;
use super::{Alive, Liveness, Opener, Role, takeover};

/// How many jobs one-shots accepted, as each of them adds to it.
const FALLBACKS: &str =
    "SELECT coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'fallbacks'), 0)";

/// How far the wall clock was ahead of this boot's, at the least of the last jobs: where it was set
/// forward, those before that tell.
const WALL_AHEAD: &str = "SELECT min(expires_at - expires_boot)
    FROM (SELECT boot, expires_at, expires_boot FROM jobs ORDER BY job DESC LIMIT 256)
    WHERE boot = ?1";

/// What the store holds when it is opened.
pub(super) struct Begun {
    pub(super) epoch: String,
    pub(super) last_seq: u64,
    pub(super) ended_jobs: u64,
    pub(super) fallbacks: u64,
    pub(super) wall_ahead: Option<i64>,
    pub(super) orphans: Vec<Recovered>,
    pub(super) living: BTreeSet<String>,
    pub(super) to_deliver: bool,
    pub(super) scheduled: bool,
}

/// What the store holds, and what is taken over once it is known to be `whole`.
pub(super) fn begin(
    conn: &mut Connection,
    opener: Opener<'_>,
    alive: &Alive,
    whole: Whole<'_>,
) -> rusqlite::Result<Begun> {
    let epoch = conn.query_row("SELECT value FROM meta WHERE key = 'epoch'", [], |row| {
        row.get(0)
    })?;
    let Opener {
        instance,
        role,
        boot,
        ..
    } = opener;
    let (mut orphans, mut living) = (Vec::new(), BTreeSet::new());
    let (mut ended_jobs, mut fallbacks, mut wall_ahead) = (0, 0, None);
    if role == Role::Daemon {
        let ended = "SELECT count(*) FROM jobs WHERE final_seq IS NOT NULL";
        ended_jobs = super::columns::nat(conn.query_row(ended, [], |row| row.get(0))?);
        fallbacks = super::columns::nat(conn.query_row(FALLBACKS, [], |row| row.get(0))?);
        wall_ahead = conn.query_row(WALL_AHEAD, [boot], |row| row.get(0))?;
    }
    if role == Role::Daemon && takeover::anything(conn)? {
        let is_dead = |name: &str| name != instance && alive(name) == Liveness::Dead;
        let change = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let file = change.path().map(Path::new);
        let search = Search::new(role, boot, &is_dead);
        // Read while the check runs; written only behind it, as a damaged file is moved aside as it
        // is.
        let dead = search.find(&change, file)?;
        whole()?;
        if let Some(file) = file {
            search.note_damaged(file);
        }
        living = search.living();
        living.remove(instance);
        orphans = takeover::take(&change, instance, dead)?;
        failpoint!("before-commit-takeover");
        change.commit()?;
        failpoint!("after-commit-takeover");
    } else {
        whole()?;
    }
    let last_seq = takeover::last_seq(conn)?;
    let pending = "SELECT EXISTS (SELECT 1 FROM webhooks WHERE state = 'pending')";
    let to_deliver = conn.query_row(pending, [], |row| row.get(0))?;
    Ok(Begun {
        to_deliver,
        // A one-shot sends nothing by itself.
        scheduled: role == Role::Daemon && super::schedules::any(conn)?,
        epoch,
        last_seq,
        ended_jobs,
        fallbacks,
        wall_ahead,
        orphans,
        living,
    })
}
