//! Rules about what comes over a connection: nothing twice, nothing missing, nothing out of order.
//!
//! Pure. Must not know how a history is recorded.

use std::collections::{BTreeMap, BTreeSet};

use super::Seen;
use super::jobs::shown;
use crate::history::{Asker, Heard};

/// The numbers of an answer ascend, and up to the last line that came none is missing. Who asks
/// again gets `accepted`, and numbered lines only from then on.
pub(super) fn no_gap(seen: &Seen<'_>) -> Vec<String> {
    let stored = seen.numbers_of();
    let mut broken = Vec::new();
    for (asked, lines) in seen.answers() {
        let told: Vec<u64> = lines.iter().filter_map(|heard| heard.seq()).collect();
        if !ascends(&told) {
            broken.push(format!("to {} came the numbers {told:?}", asked.nonce));
        }
        let job = lines.iter().find_map(|heard| heard.job());
        // A program may leave out lines that a person doesn't need.
        let whole = asked.by == Asker::Socket;
        let (Some(job), Some(last), true) = (job, told.last(), whole) else {
            continue;
        };
        let numbers = stored.get(job).map_or(&[][..], Vec::as_slice);
        let again = lines.iter().any(|heard| heard.line["replayed"] == true);
        let from = told.iter().copied().nth(1).filter(|_| again).unwrap_or(0);
        let is_due = |seq: &u64| *seq <= *last && (*seq >= from || numbers.first() == Some(seq));
        let due: Vec<u64> = numbers.iter().copied().filter(is_due).collect();
        if told != due {
            broken.push(format!(
                "to {} as {job} came {told:?} of {due:?} on connection {}",
                asked.nonce, asked.conn
            ));
        }
    }
    broken
}

fn ascends(numbers: &[u64]) -> bool {
    numbers.is_sorted_by(|one, next| one < next)
}

/// After `live` comes every numbered line of every job that is heard of, up to where the connection
/// broke; lines of different jobs may overtake each other. The last one, which nothing broke, hears
/// of every job.
pub(super) fn subscriptions_miss_nothing(seen: &Seen<'_>) -> Vec<String> {
    // What a program ran without the daemon is told to nobody.
    let elsewhere = told_by_programs(seen);
    let stored: BTreeMap<&str, Vec<u64>> = seen
        .numbers_of()
        .into_iter()
        .filter(|(job, _)| !elsewhere.contains(job))
        .collect();
    let live_of = |lines: &[&Heard]| {
        let live = lines.iter().find(|heard| heard.kind() == "live")?;
        Some((live.conn, live.seq().unwrap_or(0)))
    };
    let lives: Vec<_> = seen
        .streams
        .values()
        .filter_map(|lines| Some((live_of(lines)?, numbers_by_job(lines))))
        .collect();
    let last = lives.iter().map(|((conn, _), _)| *conn).max();
    let mut broken = Vec::new();
    for ((conn, live), told) in &lives {
        // A daemon that has stored nothing yet says 0, whatever those before it stored.
        let first = told.values().flatten().min().copied().unwrap_or(0);
        let from = if *live > 0 { live + 1 } else { first };
        for (job, numbers) in &stored {
            let told = told.get(job).map_or(&[][..], Vec::as_slice);
            let begun = match told.first() {
                // Of a job that a dead daemon left, lines from before come again.
                Some(told) if *live > 0 => from.min(*told),
                Some(told) => *told,
                None => from,
            };
            let until = if Some(*conn) == last && first > 0 && numbers[0] >= from {
                u64::MAX
            } else {
                told.last().copied().unwrap_or(0)
            };
            let due = numbers.iter().filter(|seq| (begun..=until).contains(seq));
            if !due.eq(told) {
                broken.push(format!(
                    "on connection {conn}, that is live from {from}, came {told:?} of {job}, stored are {numbers:?}"
                ));
            }
        }
    }
    broken
}

fn numbers_by_job<'a>(lines: &[&'a Heard]) -> BTreeMap<&'a str, Vec<u64>> {
    let mut told: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for heard in lines.iter().filter(|heard| heard.kind() != "live") {
        if let (Some(job), Some(seq)) = (heard.job(), heard.seq()) {
            told.entry(job).or_default().push(seq);
        }
    }
    told
}

fn told_by_programs<'a>(seen: &Seen<'a>) -> BTreeSet<&'a str> {
    let nonces: BTreeSet<&str> = seen
        .history
        .asked
        .iter()
        .filter(|asked| asked.by == Asker::Program)
        .map(|asked| asked.nonce.as_str())
        .collect();
    let theirs = seen.history.jobs.iter().filter(|job| {
        let key = job.key.as_deref().unwrap_or("");
        nonces.contains(key)
    });
    theirs.map(|job| job.job.as_str()).collect()
}

/// Each piece begins where the one before it ended, and together they are what the end says.
pub(super) fn text_adds_up(seen: &Seen<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for (place, lines) in &seen.streams {
        // A subscription has the lines of many jobs.
        let mut by_job: BTreeMap<&str, Vec<&Heard>> = BTreeMap::new();
        for heard in lines {
            if let Some(job) = heard.job() {
                by_job.entry(job).or_default().push(heard);
            }
        }
        let begun_late = !seen.asked.contains_key(place);
        for lines in by_job.values() {
            broken.extend(adds_up(lines, begun_late));
        }
    }
    broken
}

fn adds_up(lines: &[&Heard], begun_late: bool) -> Option<String> {
    let mut messages: BTreeMap<u64, String> = BTreeMap::new();
    for heard in lines {
        let message = heard.line["message"].as_u64().unwrap_or(0);
        match heard.kind() {
            "message_start" => drop(messages.insert(message, String::new())),
            "message_delta" => {
                let so_far = messages.entry(message).or_default();
                let offset = heard.line["offset"].as_u64();
                if offset != Some(so_far.len() as u64) {
                    return Some(format!("{} bytes before {}", so_far.len(), shown(heard)));
                }
                so_far.push_str(heard.line["text"].as_str().unwrap_or(""));
            }
            "message_end" if !begun_late => {
                let told = messages.values().next_back().map_or("", String::as_str);
                let text = heard.line["text"].as_str().unwrap_or("");
                let cut = heard.line["truncated"] == true;
                // Of a long one the end is told with its middle left out.
                if told != text && !(cut && told.len() > text.len() / 2) {
                    return Some(format!("told was {told:?} before {}", shown(heard)));
                }
            }
            _ => {}
        }
    }
    None
}
