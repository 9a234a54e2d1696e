//! Rules about turns that are handed in together: all or none, found again by their keys.
//!
//! Pure. Must not know how a history is recorded.

use std::collections::BTreeMap;

use super::Seen;
use super::jobs::shown;
use crate::history::{Dispatched, Heard, Item, Job};

/// Everything about one dispatch, however often it was asked.
struct Handed<'a> {
    items: &'a [Item],
    /// The first line under each request, if one came.
    answers: Vec<Option<&'a Heard>>,
}

fn all<'a>(seen: &Seen<'a>) -> BTreeMap<&'a str, Handed<'a>> {
    let mut all: BTreeMap<&str, Handed<'_>> = BTreeMap::new();
    for dispatched in &seen.history.dispatched {
        let Dispatched { conn, id, items } = dispatched;
        let Some(first) = items.first() else { continue };
        let answer = seen.streams.get(&(*conn, *id));
        let answer = answer.and_then(|lines| lines.first().copied());
        let new = || Handed {
            items,
            answers: Vec::new(),
        };
        all.entry(&first.key)
            .or_insert_with(new)
            .answers
            .push(answer);
    }
    all
}

/// Of a dispatch all turns are stored or none is: all, if it was answered, and none, if it was
/// refused. And it is answered in the end.
pub(super) fn all_or_none(seen: &Seen<'_>) -> Vec<String> {
    let by_key = by_key(seen);
    let mut broken = Vec::new();
    for (first, handed) in all(seen) {
        let all = handed.items.len();
        let stored = handed
            .items
            .iter()
            .filter_map(|item| by_key.get(&*item.key));
        let stored: Vec<&str> = stored.map(|job| job.job.as_str()).collect();
        if ![0, all].contains(&stored.len()) {
            broken.push(format!("of {first}, {all} turns, are stored {stored:?}"));
        }
        let answers = || handed.answers.iter().flatten();
        let last = |heard: &Heard| heard.kind() == "dispatch" || heard.line["retryable"] == false;
        if !answers().any(|heard| last(heard)) {
            broken.push(format!("{first} was never answered"));
        }
        for heard in answers() {
            let taken = heard.kind() == "dispatch";
            let refused = heard.kind() == "error" && heard.line["retryable"] == false;
            if (taken && stored.len() != all) || (refused && !stored.is_empty()) {
                broken.push(format!(
                    "of {first} are stored {stored:?}: {}",
                    shown(heard)
                ));
            }
        }
    }
    broken
}

/// The answer names, in the order asked, the job that each key has; asked again, the same ones, all
/// of them as replayed.
pub(super) fn keys_find_the_jobs(seen: &Seen<'_>) -> Vec<String> {
    let by_key = by_key(seen);
    let mut broken = Vec::new();
    for handed in all(seen).values() {
        let mut known = false;
        for heard in handed.answers.iter().flatten() {
            if heard.kind() != "dispatch" {
                continue;
            }
            let rows = heard.line["jobs"].as_array().map_or(&[][..], Vec::as_slice);
            let fits = |(row, item): (&serde_json::Value, &Item)| {
                let stored = by_key.get(&*item.key);
                let is_it = stored.is_some_and(|job| {
                    row["job"] == job.job.as_str()
                        && job.request.contains(&format!("<{}>", item.nonce))
                });
                is_it && row["replayed"] == rows[0]["replayed"]
            };
            let replayed = rows.iter().all(|row| row["replayed"] == true);
            let whole = rows.len() == handed.items.len();
            if !whole || !rows.iter().zip(handed.items).all(fits) || (known && !replayed) {
                let keys: Vec<&str> = handed.items.iter().map(|item| &*item.key).collect();
                broken.push(format!("to {keys:?}: {}", shown(heard)));
            }
            known = true;
        }
    }
    broken
}

fn by_key<'a>(seen: &Seen<'a>) -> BTreeMap<&'a str, &'a Job> {
    let jobs = seen.history.jobs.iter();
    jobs.filter_map(|job| Some((job.key.as_deref()?, job)))
        .collect()
}
