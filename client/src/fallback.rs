//! When running without the daemon is right: ARCHITECTURE decision 6 as one pure function.
//!
//! Owns the decision and its patience. Must not know sockets, clocks or processes: observations
//! come in, a decision goes out. The same table is `tests/fixtures/v1/fallback.json`, which clients
//! in other languages read.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long the client keeps trying before it calls a daemon silent: longer than any start, short
/// enough for a person.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The same while the daemon's lock says that it starts, or that another follows: the store may be
/// large, or migrated.
pub const RESTART_PATIENCE: Duration = Duration::from_secs(60);

/// What happened last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact {
    /// `ENOENT`.
    NoSocket,
    /// `ECONNREFUSED`.
    Refused,
    /// `EACCES` or `EPERM`.
    Denied,
    /// `EAGAIN`: somebody listens, and is too busy to accept.
    BacklogFull,
    /// Another error of `connect`, or a path that is too long.
    Unusable,
    /// The server isn't our user. Nothing was written to it.
    ForeignUid,
    /// `hello` was written and not answered so far.
    HelloSilent,
    /// The connection ended before `hello` was answered.
    HelloClosed,
    /// `hello` was answered with `draining`.
    HelloDraining,
    /// `hello` was answered with something else that isn't yes.
    HelloOther,
    /// `hello` was answered.
    HelloOk,
    /// The request was answered with `draining`.
    RequestDraining,
    /// The connection ended, or failed, after (part of) the request was written.
    RequestLost,
}

/// What the daemon's lock in the state directory says about this socket.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lock {
    /// Nobody holds it, or it is about another socket.
    #[default]
    Free,
    /// Held: a daemon opens its store.
    Starting,
    /// Held: a daemon is there.
    Running,
    /// Another daemon follows: the lock is held, or was until less than a minute ago.
    Restarting,
    /// Held: the daemon is on its way out.
    Stopping,
}

/// May the client run the request without the daemon?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// Yes.
    Allowed,
    /// No: `--no-fallback`, or a request that only a daemon can answer.
    Forbidden,
}

impl Lock {
    /// Does a daemon come that isn't there yet?
    #[must_use]
    pub const fn is_coming(self) -> bool {
        matches!(self, Self::Starting | Self::Restarting)
    }
}

/// Everything the decision depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// What happened last.
    pub fact: Fact,
    /// What the lock says.
    #[serde(default)]
    pub lock: Lock,
    /// Milliseconds since the first attempt, or since the lock last said that a daemon comes.
    #[serde(default)]
    pub waited_ms: u64,
    /// Is it allowed at all?
    pub fallback: Fallback,
}

impl Observation {
    /// Is a daemon waited for any longer?
    #[must_use]
    pub const fn is_patient(&self) -> bool {
        let patience = if self.lock.is_coming() {
            RESTART_PATIENCE
        } else {
            PATIENCE
        };
        (self.waited_ms as u128) < patience.as_millis()
    }
}

/// Why the one-shot ran, as it stands in `fallback_reason`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// There is no socket.
    NoSocket,
    /// Nobody listens on it.
    Refused,
    /// It accepts no connections.
    BacklogFull,
    /// `hello` was not answered.
    Unanswered,
    /// It is stopping.
    Draining,
}

impl Reason {
    /// As it stands on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSocket => "no-socket",
            Self::Refused => "refused",
            Self::BacklogFull => "backlog-full",
            Self::Unanswered => "unanswered",
            Self::Draining => "draining",
        }
    }

    /// For a person, as the first half of a sentence.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NoSocket => "no daemon is running (there is no socket)",
            Self::Refused => "no daemon is running (nobody listens on the socket)",
            Self::BacklogFull => "the daemon accepts no connections (its backlog is full)",
            Self::Unanswered => "the daemon does not answer",
            Self::Draining => "the daemon is stopping",
        }
    }
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "kebab-case")]
pub enum Decision {
    /// Go on: the request may be written.
    Connected,
    /// Connect again after a short, jittered pause.
    Retry,
    /// Keep waiting for the answer to `hello`.
    Wait,
    /// Nothing was accepted: run it once without the daemon.
    OneShot {
        /// For the record.
        reason: Reason,
    },
    /// The daemon said no; nothing happened. Exit 3.
    Refused,
    /// No daemon, and no fallback. Exit 69.
    Unreachable,
    /// The request left and wasn't answered: ask again with its key. Exit 75.
    Unknown,
}

impl Decision {
    /// The exit code it stands for, where it ends the program.
    #[must_use]
    pub const fn exit_code(self) -> Option<u8> {
        match self {
            Self::Connected | Self::Retry | Self::Wait | Self::OneShot { .. } => None,
            Self::Refused => Some(3),
            Self::Unreachable => Some(69),
            Self::Unknown => Some(75),
        }
    }
}

/// The rule. Falls back only when nothing was accepted: the request never left, or was refused.
#[must_use]
pub fn decide(seen: Observation) -> Decision {
    let patient = seen.is_patient();
    let alone = |reason| match seen.fallback {
        Fallback::Allowed => Decision::OneShot { reason },
        Fallback::Forbidden => Decision::Unreachable,
    };
    match seen.fact {
        Fact::HelloOk => Decision::Connected,
        Fact::RequestLost => Decision::Unknown,
        Fact::ForeignUid | Fact::Denied | Fact::Unusable | Fact::HelloOther => {
            Decision::Unreachable
        }
        Fact::NoSocket | Fact::Refused => match seen.lock {
            // Held with nobody listening: it is just starting.
            Lock::Starting | Lock::Running | Lock::Restarting if patient => Decision::Retry,
            Lock::Stopping => alone(Reason::Draining),
            _ if seen.fact == Fact::NoSocket => alone(Reason::NoSocket),
            _ => alone(Reason::Refused),
        },
        Fact::BacklogFull if patient => Decision::Retry,
        Fact::BacklogFull => alone(Reason::BacklogFull),
        Fact::HelloClosed if patient => Decision::Retry,
        Fact::HelloSilent if patient => Decision::Wait,
        Fact::HelloClosed | Fact::HelloSilent => alone(Reason::Unanswered),
        // A restart is worth waiting for: the next daemon takes the request.
        Fact::HelloDraining | Fact::RequestDraining if seen.lock.is_coming() && patient => {
            Decision::Retry
        }
        Fact::HelloDraining | Fact::RequestDraining => match seen.fallback {
            Fallback::Allowed => alone(Reason::Draining),
            Fallback::Forbidden => Decision::Refused,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Row {
        #[serde(flatten)]
        seen: Observation,
        #[serde(flatten)]
        decision: Decision,
        exit: Option<u8>,
    }

    fn rows() -> Vec<Row> {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/fixtures/v1/fallback.json"
        );
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn the_function_is_the_table() {
        for row in rows() {
            let found = decide(row.seen);
            assert_eq!(found, row.decision, "{:?}", row.seen);
            assert_eq!(found.exit_code(), row.exit, "{:?}", row.seen);
        }
    }

    #[test]
    fn fallback_table_has_every_fact_with_every_lock() {
        use std::collections::BTreeSet;
        let seen: BTreeSet<String> = rows()
            .iter()
            .map(|row| {
                format!(
                    "{:?} {:?} {:?}",
                    row.seen.fact, row.seen.lock, row.seen.fallback
                )
            })
            .collect();
        // 13 facts, 5 locks, 2 permissions.
        assert_eq!(seen.len(), 13 * 5 * 2);
    }

    #[test]
    fn a_request_that_left_never_runs_twice() {
        for row in rows() {
            if row.seen.fact == Fact::RequestLost {
                assert_eq!(decide(row.seen), Decision::Unknown);
            }
        }
    }
}
