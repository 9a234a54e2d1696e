//! Rules about what a subscriber hears, over one connection or, with a cursor, over many.
//!
//! Pure. Must not know how a history is recorded.

use std::collections::{BTreeMap, BTreeSet};

use super::Seen;
use crate::history::{Asker, Conn, Followed, Heard, History};

/// All connections of one follower, in their order.
struct Following<'a> {
    conns: Vec<(&'a Followed, &'a [&'a Heard])>,
}

impl<'a> Following<'a> {
    fn all(seen: &'a Seen<'_>) -> BTreeMap<&'a str, Self> {
        let mut all: BTreeMap<&str, Self> = BTreeMap::new();
        for followed in &seen.history.followed {
            let lines = seen.streams.get(&(followed.conn, followed.id));
            let lines = lines.map_or(&[][..], Vec::as_slice);
            let new = || Self { conns: Vec::new() };
            let following = all.entry(&followed.follower).or_insert_with(new);
            following.conns.push((followed, lines));
        }
        all
    }

    /// The numbers over all connections.
    fn told(&self) -> Vec<u64> {
        let lines = self.conns.iter().flat_map(|(_, lines)| lines.iter());
        lines.filter_map(|heard| number(heard)).collect()
    }

    /// Up to this number nothing is due. Nothing if it never came to that.
    fn begins_after(&self) -> Option<u64> {
        let (first, _) = self.conns.first()?;
        let lines = self.conns.iter().flat_map(|(_, lines)| lines.iter());
        let mut lives = lines.filter(|heard| heard.kind() == "live");
        first.after.or_else(|| lives.next()?.seq())
    }

    fn session(&self) -> Option<&str> {
        let (first, _) = self.conns.first()?;
        first.session.as_deref()
    }
}

/// The number of a line of a job.
fn number(heard: &Heard) -> Option<u64> {
    heard.job().and_then(|_| heard.seq())
}

/// The numbered lines of a subscription, over all connections on which it was resumed, are those of
/// the store after where it began: in their order, none missing, none twice. Who was there at the
/// end has heard all.
pub(super) fn subscriptions_miss_nothing(seen: &Seen<'_>) -> Vec<String> {
    let all = Following::all(seen);
    // Of each who comes again and again, the last connection.
    let conns = seen.history.followed.iter();
    let last: BTreeMap<&str, Conn> = conns.map(|conn| (conn.who, conn.conn)).collect();
    let elsewhere = run_by_programs(seen.history);
    let mut broken = Vec::new();
    for (name, following) in &all {
        let told = following.told();
        let Some(begin) = following.begins_after() else {
            if !told.is_empty() {
                broken.push(format!("{name} heard {told:?} without `live`"));
            }
            continue;
        };
        let conns = &following.conns;
        let is_last = |(conn, _): &(&Followed, _)| last.get(conn.who) == Some(&conn.conn);
        let to_the_end = conns.last().is_some_and(is_last);
        let due = due(seen, following.session(), begin);
        let mut end = told.len().min(due.len());
        if to_the_end {
            // Lines of a run without the daemon come with the daemon's next one.
            let own = due.iter().rposition(|(_, job)| !elsewhere.contains(job));
            end = end.max(own.map_or(0, |last| last + 1));
        }
        let due: Vec<u64> = due[..end].iter().map(|(seq, _)| *seq).collect();
        if told != due {
            broken.push(format!(
                "{name}, from {begin} on: {}",
                difference(&told, &due)
            ));
        }
    }
    broken
}

/// What the store has after a number, for a subscriber.
fn due<'a>(seen: &Seen<'a>, session: Option<&str>, after: u64) -> Vec<(u64, &'a str)> {
    let sessions = &seen.history.sessions;
    let wanted = |job: &&str| {
        let stored = seen.jobs.get(*job);
        let name = stored.and_then(|job| sessions.get(&job.session));
        session.is_none_or(|session| name.is_some_and(|name| name == session))
    };
    let numbers = seen.numbers_of().into_iter();
    let mut due: Vec<(u64, &str)> = numbers
        .filter(|(job, _)| wanted(job))
        .flat_map(|(job, numbers)| numbers.into_iter().map(move |seq| (seq, job)))
        .filter(|(seq, _)| *seq > after)
        .collect();
    due.sort_unstable();
    due
}

/// The first place where two sequences part.
fn difference(told: &[u64], due: &[u64]) -> String {
    let same = told.iter().zip(due).take_while(|(one, other)| one == other);
    let at = same.count();
    let around = |numbers: &[u64]| -> Vec<u64> {
        let begin = at.saturating_sub(2).min(numbers.len());
        numbers[begin..numbers.len().min(at + 6)].to_vec()
    };
    let (told_here, due_here) = (around(told), around(due));
    let (told, due) = (told.len(), due.len());
    format!("after {at} lines came {told_here:?} for {due_here:?}, {told} lines of {due}")
}

/// `live` stands where it says: what came before it has no larger number, what comes after it no
/// smaller one. The store's epoch is always the same, and a cursor that was told is always taken.
pub(super) fn cursors_hold(seen: &Seen<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    let mut epochs = BTreeSet::new();
    let all = Following::all(seen);
    for (name, (followed, lines)) in all
        .iter()
        .flat_map(|(name, following)| following.conns.iter().map(move |conn| (name, conn)))
    {
        let place = lines.iter().position(|heard| heard.kind() == "live");
        if let Some(place) = place {
            let live = lines[place].seq().unwrap_or(0);
            epochs.extend(lines[place].line["epoch"].as_str());
            let before = lines[..place].iter().filter_map(|heard| number(heard));
            let after = lines[place..].iter().filter_map(|heard| number(heard));
            let before = before.chain(followed.after).max().unwrap_or(0);
            let after = after.min().unwrap_or(u64::MAX);
            if before > live || after <= live {
                broken.push(format!(
                    "to {name} on connection {} came live {live} between {before} and {after}",
                    followed.conn
                ));
            }
        }
        let refused = lines.iter().filter(|heard| {
            heard.kind() == "error" && heard.job().is_none() && heard.line["retryable"] == false
        });
        broken.extend(refused.map(|heard| {
            let after = followed.after;
            format!("{name}, after {after:?}, was refused: {}", heard.line)
        }));
    }
    if epochs.len() > 1 {
        broken.push(format!("one store has the epochs {epochs:?}"));
    }
    broken
}

/// The last number of which subscribers were told, of all jobs or of those in a session.
pub(crate) fn last_told(history: &History, session: Option<&str>) -> u64 {
    let elsewhere = run_by_programs(history);
    let due = due(&Seen::of(history), session, 0);
    let mut own = due.iter().filter(|(_, job)| !elsewhere.contains(job));
    own.next_back().map_or(0, |(seq, _)| *seq)
}

/// Jobs that may have been run without the daemon.
fn run_by_programs(history: &History) -> BTreeSet<&str> {
    let asked = history.asked.iter();
    let programs = asked.filter(|asked| asked.by == Asker::Program);
    let nonces: BTreeSet<&str> = programs.map(|asked| asked.nonce.as_str()).collect();
    let jobs = history.jobs.iter();
    let theirs = jobs.filter(|job| job.key.as_deref().is_some_and(|key| nonces.contains(key)));
    theirs.map(|job| job.job.as_str()).collect()
}
