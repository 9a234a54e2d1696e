//! What was recorded of a run: what clients asked and heard, what workers did, what is stored.
//!
//! Owns the recording as plain data. Must not know how it came about, nor what is right.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

/// A connection of the run. Each program that was started is one, too.
pub(crate) type Conn = u64;

/// Everything that the rules look at.
#[derive(Clone, Default, Debug)]
pub(crate) struct History {
    pub(crate) asked: Vec<Asked>,
    pub(crate) dispatched: Vec<Dispatched>,
    /// In the order in which the connections were made.
    pub(crate) followed: Vec<Followed>,
    /// In the order in which it was heard or seen.
    pub(crate) holds: Vec<Hold>,
    pub(crate) heard: Vec<Heard>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) events: Vec<Event>,
    /// By their numbers, with the names of those that have one.
    pub(crate) sessions: BTreeMap<u64, String>,
    /// Final lines as they were collected at the end.
    pub(crate) collected: Vec<Value>,
    /// What the receiver of webhooks was told, in that order.
    pub(crate) told: Vec<Told>,
    /// Processes of the run that were there when everything was over.
    pub(crate) left: Vec<String>,
    pub(crate) descriptors: Vec<Descriptors>,
    /// In the order in which they were taken.
    pub(crate) looks: Vec<Look>,
    /// Jobs that had not begun when an `abort` that named them was answered with `ok`.
    pub(crate) aborted: Vec<String>,
    /// What somebody waited for in vain.
    pub(crate) stuck: Vec<String>,
}

/// Who asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// A connection to the daemon.
    Socket,
    /// A program, that may have run without the daemon.
    Program,
}

/// May a turn run again after a crash?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Retry {
    Never,
    Auto,
}

/// One `send`, each time it was written.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) conn: Conn,
    /// The request's `id` on the connection.
    pub(crate) id: u64,
    pub(crate) by: Asker,
    pub(crate) key: Option<String>,
    /// Part of the prompt; the answer begins with it.
    pub(crate) nonce: String,
    pub(crate) retry: Retry,
}

/// One `dispatch`, each time it was written.
#[derive(Clone, Debug)]
pub(crate) struct Dispatched {
    pub(crate) conn: Conn,
    /// The request's `id` on the connection.
    pub(crate) id: u64,
    /// In the order asked, each with a key that no other dispatch has.
    pub(crate) items: Vec<Item>,
}

/// One turn of a `dispatch`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Item {
    pub(crate) key: String,
    /// Part of the prompt; the answer begins with it.
    pub(crate) nonce: String,
    pub(crate) retry: Retry,
}

/// One connection of somebody who subscribes.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    pub(crate) conn: Conn,
    /// The request's `id` on the connection.
    pub(crate) id: u64,
    /// Connections of one follower go on where the one before ended.
    pub(crate) follower: String,
    /// Who makes these connections, one after the other, whether they go on or not.
    pub(crate) who: &'static str,
    /// The cursor that was given.
    pub(crate) after: Option<u64>,
    /// Only jobs of the session with this name.
    pub(crate) session: Option<String>,
}

/// What became of a turn that waits behind an interrupted one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// `session.resume` named it. When that was asked, numbers up to this one had been heard.
    Released { job: String, after: u64 },
    /// The store says that it waits. Ends up to this number were in it.
    Held { job: String, until: u64 },
}

/// A line that a client got.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    /// Since the run began, by the client's clock.
    pub(crate) at: Duration,
    pub(crate) conn: Conn,
    pub(crate) line: Value,
}

impl Heard {
    pub(crate) fn kind(&self) -> &str {
        self.line["type"].as_str().unwrap_or("")
    }

    pub(crate) fn id(&self) -> Option<u64> {
        self.line["id"].as_u64()
    }

    pub(crate) fn job(&self) -> Option<&str> {
        self.line["job"].as_str()
    }

    pub(crate) fn seq(&self) -> Option<u64> {
        self.line["seq"].as_u64()
    }

    /// Is it the end of an accepted job?
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.kind(), "message_end" | "error") && self.job().is_some()
    }
}

/// A line of the ledger: it was synced before the turn did what it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Effect {
    pub(crate) job: String,
    pub(crate) session: String,
    pub(crate) nonce: String,
}

/// A row of the store's jobs.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// As the protocol says it, `j1`.
    pub(crate) job: String,
    pub(crate) seq: u64,
    pub(crate) session: u64,
    pub(crate) key: Option<String>,
    pub(crate) request: String,
    pub(crate) state: String,
    pub(crate) last: Option<End>,
}

/// The end of a stored job.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) seq: u64,
    pub(crate) line: Value,
}

/// A row of the store's events.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) seq: u64,
    pub(crate) job: String,
}

/// One request to the receiver of webhooks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    /// The same in every attempt.
    pub(crate) id: String,
    pub(crate) job: String,
    pub(crate) state: String,
    /// The number of the final line.
    pub(crate) seq: u64,
}

/// A comparison of what is stored with what the daemon knows.
#[derive(Clone, Default, Debug)]
pub(crate) struct Look {
    /// Stored jobs of the daemon's that had no end all the time.
    pub(crate) open: Vec<String>,
    /// Of how many it said that it knows them.
    pub(crate) known: usize,
}

/// One kind of descriptor of the daemon: before its first client, and after the last.
#[derive(Clone, Debug)]
pub(crate) struct Descriptors {
    pub(crate) kind: String,
    pub(crate) base: usize,
    pub(crate) idle: usize,
    /// So many more are explained by living workers.
    pub(crate) allowed: usize,
}
