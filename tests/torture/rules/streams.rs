//! Rules about what comes over a connection: nothing twice, nothing missing, nothing out of order.
//!
//! Pure. Must not know how a history is recorded.

use std::collections::BTreeMap;

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

/// Each piece begins where the one before it ended, and together they are what the end says: for
/// who comes late, too, as text is told from its beginning.
pub(super) fn text_adds_up(seen: &Seen<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for lines in seen.streams.values() {
        // A subscription has the lines of many jobs.
        let mut by_job: BTreeMap<&str, Vec<&Heard>> = BTreeMap::new();
        for heard in lines {
            if let Some(job) = heard.job() {
                by_job.entry(job).or_default().push(heard);
            }
        }
        for (job, lines) in &by_job {
            let stored = seen.jobs.get(job);
            let again = stored.is_some_and(|job| job.request.contains(r#""retry":"auto""#));
            broken.extend(adds_up(lines, again));
        }
    }
    broken
}

fn adds_up(lines: &[&Heard], may_run_again: bool) -> Option<String> {
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
            "message_end" => {
                let told = messages.values().next_back().map_or("", String::as_str);
                let text = heard.line["text"].as_str().unwrap_or("");
                let cut = heard.line["truncated"] == true;
                // What an attempt said doesn't count when another one is due, although it was
                // cancelled before it said anything.
                let dropped = may_run_again && text.is_empty() && heard.line["stop"] == "cancelled";
                // Of a long one the end is told with its middle left out.
                if told != text && !dropped && !(cut && told.len() > text.len() / 2) {
                    return Some(format!("told was {told:?} before {}", shown(heard)));
                }
            }
            _ => {}
        }
    }
    None
}
