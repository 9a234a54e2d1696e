//! What each reader of the world may rely on: numbered lines in order and without gaps, text without
//! holes or repetitions.
//!
//! Owns the books of readers; compares them with the store's log. Knows nothing of the core.

use std::collections::{BTreeMap, BTreeSet};

use agentd_core::ids::ConnId;
use agentd_protocol::JobId;
use agentd_protocol::serde_json::Value;

use crate::world::{StoredJob, World};

/// Which lines a subscription wants.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub session: Option<String>,
    pub jobs: Option<BTreeSet<JobId>>,
}

impl Filter {
    pub fn wants(&self, job: JobId, stored: &StoredJob) -> bool {
        self.wants_of(job, &stored.session)
    }

    fn wants_of(&self, job: JobId, named: &str) -> bool {
        let session = self.session.as_ref();
        session.is_none_or(|session| session == named)
            && self.jobs.as_ref().is_none_or(|jobs| jobs.contains(&job))
    }
}

/// A subscription as its reader sees it.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    pub filter: Filter,
    /// The number of its last line; `None` before it is known from where on it hears.
    pub seen: Option<u64>,
    pub live: bool,
    /// Jobs that were sent on its connection after it began.
    own: BTreeSet<JobId>,
}

/// One message as a reader put it together: text and thinking.
type Heard = Vec<[String; 2]>;

/// What a client has put together.
#[derive(Debug, Default)]
pub struct Books {
    pub watches: BTreeMap<String, Watch>,
    /// By request and job.
    heard: BTreeMap<(String, String), Heard>,
    /// Jobs that it sent itself: their lines come once, to the send.
    sent: BTreeSet<JobId>,
}

/// A cursor that a reader kept when its connection went.
#[derive(Clone, Debug)]
pub struct Cursor {
    pub filter: Filter,
    pub after: u64,
}

impl Books {
    pub fn subscribed(&mut self, id: &str, filter: Filter, after: Option<u64>) {
        let watch = Watch {
            filter,
            seen: after,
            ..Watch::default()
        };
        self.watches.insert(id.to_owned(), watch);
    }

    pub fn cursors(&self) -> impl Iterator<Item = Cursor> {
        let watches = self.watches.values();
        watches.filter_map(|watch| {
            Some(Cursor {
                filter: watch.filter.clone(),
                after: watch.seen?,
            })
        })
    }
}

pub fn job_of(line: &Value) -> Option<JobId> {
    line["job"].as_str()?[1..].parse().ok().map(JobId)
}

impl World {
    /// A line reached a client: is it the one that had to come next?
    pub fn read(&mut self, conn: ConnId, line: &Value) {
        let client = self.clients.get_mut(&conn).unwrap();
        let mut books = std::mem::take(&mut client.books);
        let id = line["id"].to_string();
        let kind = line["type"].as_str().unwrap();
        if !books.watches.contains_key(&id) && kind == "accepted" {
            books.sent.extend(job_of(line));
            for watch in books.watches.values_mut() {
                watch.own.extend(job_of(line));
            }
        }
        self.read_number(&mut books, &id, line);
        if kind == "live" {
            self.read_live(&mut books, &id, line);
        } else if kind == "error" && line["job"].is_null() {
            books.watches.remove(&id);
        } else if kind == "unsubscribe" {
            books.watches.clear();
        }
        self.read_text(&mut books, &id, line);
        self.clients.get_mut(&conn).unwrap().books = books;
    }

    fn missed(&self, books: &Books, watch: &Watch, from: u64, to: u64, ours: bool) -> Vec<u64> {
        let wanted =
            |job: &JobId| watch.filter.wants(*job, &self.jobs[job]) && !books.sent.contains(job);
        // Who asked for a session's name hears what it said under another one only if the store was
        // read after it got this one: neither is missing.
        let renamed = watch.filter.session.as_ref();
        let renamed = renamed.and_then(|session| self.renamed.get(session));
        let from = renamed.map_or(from, |last| from.max(last + 1));
        let numbers = self.log.range(from.min(to)..to);
        let wanted = numbers.filter(|(_, (job, own))| wanted(job) && (*own || !ours));
        wanted.map(|(seq, _)| *seq).collect()
    }

    fn read_number(&mut self, books: &mut Books, id: &str, line: &Value) {
        let (Some(seq), Some(watch)) = (line["seq"].as_u64(), books.watches.get(id)) else {
            return;
        };
        if line["type"] == "live" {
            return;
        }
        let seen = watch
            .seen
            .expect("a numbered line before `live`, without a cursor");
        assert!(seq > seen, "{seq} after {seen}: {line}");
        let missed = self.missed(books, watch, seen + 1, seq, false);
        assert!(
            missed.is_empty(),
            "{missed:?} are missing between {seen} and {line}"
        );
        let job = job_of(line).unwrap();
        let stored = &self.jobs[&job];
        // Or its session had that name when the store was read.
        let mut names = std::iter::once(&stored.session).chain(&stored.former);
        assert!(
            names.any(|name| watch.filter.wants_of(job, name)),
            "nobody wanted {line}"
        );
        assert!(
            !watch.own.contains(&job),
            "told to its sender twice: {line}"
        );
        assert_eq!(self.log[&seq].0, job, "{line}");
        let watch = books.watches.get_mut(id).unwrap();
        watch.seen = Some(seq);
    }

    fn read_live(&self, books: &mut Books, id: &str, line: &Value) {
        let seq = line["seq"].as_u64().unwrap();
        let Some(watch) = books.watches.get(id) else {
            return;
        };
        assert!(!watch.live, "live twice");
        if let Some(seen) = watch.seen {
            let missed = self.missed(books, watch, seen + 1, seq + 1, false);
            // Whoever leaves before it was live has heard nothing yet.
            assert!(missed.is_empty(), "{missed:?} are missing before {line}");
        }
        let watch = books.watches.get_mut(id).unwrap();
        watch.seen = Some(watch.seen.unwrap_or(0).max(seq));
        watch.live = true;
    }

    fn read_text(&self, books: &mut Books, id: &str, line: &Value) {
        let Some(job) = line["job"].as_str() else {
            return;
        };
        let key = (id.to_owned(), job.to_owned());
        let number = || usize::try_from(line["message"].as_u64().unwrap()).unwrap();
        match line["type"].as_str().unwrap() {
            "message_start" => {
                let heard = books.heard.entry(key).or_default();
                assert_eq!(number(), heard.len(), "{line}");
                heard.push(Default::default());
            }
            kind @ ("message_delta" | "thinking_delta") => {
                let heard = books.heard.entry(key).or_default();
                assert!(number() < heard.len(), "no message_start before {line}");
                let text = &mut heard[number()][usize::from(kind == "thinking_delta")];
                assert_eq!(
                    line["offset"].as_u64().unwrap(),
                    text.len() as u64,
                    "{line}"
                );
                text.push_str(line["text"].as_str().unwrap());
            }
            "message_end" | "error" => {
                let heard = books.heard.remove(&key);
                if !books.watches.contains_key(id) && heard.is_none() {
                    // Who wants no stream gets none.
                    return;
                }
                let heard = heard.unwrap_or_default();
                let job = job_of(line).unwrap();
                let stored = &self.jobs[&job].texts;
                for (message, texts) in heard.iter().enumerate() {
                    for (kind, text) in texts.iter().enumerate() {
                        let key = (u32::try_from(message).unwrap(), kind);
                        let all = stored.get(&key).map_or("", String::as_str);
                        assert!(
                            text == all,
                            "{id} heard {} of {} bytes of {job}/{key:?}",
                            text.len(),
                            all.len()
                        );
                    }
                }
                let most = stored
                    .keys()
                    .map(|(message, _)| *message as usize + 1)
                    .max();
                assert!(
                    heard.len() >= most.unwrap_or(0),
                    "{id} misses a message of {job}"
                );
            }
            _ => {}
        }
    }

    /// Everything is quiet: nobody waits for a line of this instance.
    pub fn check_watches(&self) {
        let last = self.log.last_key_value().map_or(0, |(seq, _)| *seq);
        for (conn, client) in self.clients.iter().filter(|(_, client)| !client.closed) {
            for watch in client.books.watches.values() {
                assert!(watch.live, "{conn:?} never became live");
                let seen = watch.seen.unwrap();
                let missed = self.missed(&client.books, watch, seen + 1, last + 1, true);
                assert!(missed.is_empty(), "{conn:?} never heard {missed:?}");
            }
        }
    }
}
