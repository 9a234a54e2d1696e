//! One transaction over the first commands of the queue.
//!
//! Owns how it begins, how it ends and what its end may mean. Must not know what comes before or
//! after it.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use agentd_base::clock::wall_ms;
use agentd_core::Event;
use agentd_core::store::{Query, Recovered, Stored, Written};
use rusqlite::{Connection, ErrorCode};

use super::queue::is_unnumbered_request;
#[cfg(debug_assertions)]
use super::queue::kinds;
use super::takeover::Search;
use super::verify::Verify;
use super::write::{Care, Numbers, Witness, Writing};
use super::writer::WriterConfig;
use super::{Liveness, Moment, Role, StoreCommand};
use super::{backup, takeover};

/// The first commands of the queue were in a transaction whose `COMMIT` neither worked nor failed.
pub(super) struct InDoubt {
    pub(super) answers: Vec<Event>,
    pub(super) commands: usize,
    pub(super) witness: Option<Witness>,
    pub(super) last_seq: u64,
}

/// How a transaction ended.
pub(super) enum Attempt {
    Committed {
        answers: Vec<Event>,
        /// The last number that the store has given out.
        last_seq: u64,
    },
    Failed(rusqlite::Error),
    Doubtful {
        error: rusqlite::Error,
        doubt: InDoubt,
    },
}

/// One transaction over the first `commands` of the queue.
pub(super) fn attempt(
    conn: &Connection,
    config: &mut WriterConfig,
    queue: &VecDeque<StoreCommand>,
    commands: usize,
    stamps: &mut i64,
) -> Attempt {
    wrong!("store-hangs", crate::failpoint::hang(&config.path));
    let fast = attempt_with(conn, config, queue, commands, stamps, Care::Fast);
    fast.unwrap_or_else(|Spoilt| {
        let careful = attempt_with(conn, config, queue, commands, stamps, Care::Savepoints);
        careful.unwrap_or_else(|Spoilt| Attempt::Failed(rusqlite::Error::InvalidQuery))
    })
}

/// Half a commit was in the transaction, which was taken back.
struct Spoilt;

fn attempt_with(
    conn: &Connection,
    config: &mut WriterConfig,
    queue: &VecDeque<StoreCommand>,
    commands: usize,
    stamps: &mut i64,
    care: Care,
) -> Result<Attempt, Spoilt> {
    let fault = &mut config.fault;
    let reads_only = queue
        .iter()
        .take(commands)
        .all(|command| matches!(command, StoreCommand::Load { .. } | StoreCommand::Flush));
    // Who only reads needs no lock, and is not refused one while another instance writes.
    let begin = if reads_only {
        "BEGIN"
    } else {
        "BEGIN IMMEDIATE"
    };
    let begun =
        fault(Moment::BeforeBegin, conn).and_then(|()| conn.prepare_cached(begin)?.execute([]));
    if let Err(error) = begun {
        return Ok(Attempt::Failed(error));
    }
    let numbers = match Numbers::read(conn) {
        Ok(numbers) => numbers,
        Err(error) => return Ok(roll_back(conn, error)),
    };
    let mut writing = Writing {
        conn,
        ours: &config.ours,
        alive: &*config.alive,
        numbers,
        witness: None,
        wall_ms: wall_ms(),
        boot: config.boot.as_deref(),
        entered: HashMap::new(),
        care,
        scheduled: &config.scheduled,
        spoilt: false,
    };
    let mut answers = Vec::with_capacity(commands);
    for command in queue.iter().take(commands) {
        if matches!(command, StoreCommand::Takeover { .. }) {
            *stamps += 1;
        }
        let done = carry_out(&mut writing, command, config.role, *stamps, &config.verify);
        if let Err(error) = done.map(|answer| answers.extend(answer)) {
            let failed = roll_back(conn, error);
            return if writing.spoilt {
                Err(Spoilt)
            } else {
                Ok(failed)
            };
        }
        if conn.is_autocommit() {
            // SQLite rolled back by itself: what follows would not be one transaction.
            let aborted = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT_ROLLBACK);
            return Ok(Attempt::Failed(rusqlite::Error::SqliteFailure(
                aborted, None,
            )));
        }
    }
    if config.role == Role::OneShot
        && let Err(error) = count_fallbacks(conn, &answers)
    {
        return Ok(roll_back(conn, error));
    }
    if writing.witness.is_none() && queue.iter().take(commands).any(is_unnumbered_request) {
        // Who asked must not hear "nothing was written" of something that was.
        *stamps += 1;
        if let Err(error) = takeover::stamp(conn, &config.ours, *stamps) {
            return Ok(roll_back(conn, error));
        }
        writing.witness = Some(Witness::Stamp { value: *stamps });
    }
    let witness = writing.witness;
    wrong!("ack-early", {
        let early = std::mem::take(&mut answers);
        early
            .into_iter()
            .for_each(|answer| (config.answer)(answer.into()));
        crate::failpoint::linger();
    });
    let doubt = InDoubt {
        answers,
        commands,
        witness,
        last_seq: super::columns::nat(writing.numbers.last_seq()),
    };
    Ok(commit(conn, config, queue, doubt))
}

/// A one-shot's jobs are runs without the daemon: the next daemon tells how many there were. What was
/// refused, or was an earlier job's send, ran nothing.
fn count_fallbacks(conn: &Connection, answers: &[Event]) -> rusqlite::Result<()> {
    let accepts = |event: &Event| match event {
        Event::Stored {
            stored: Stored::Committed(written),
            ..
        } => (written.iter()).any(|one| matches!(one, Written::Accepted { .. })),
        _ => false,
    };
    if answers.iter().any(accepts) {
        let counted = "INSERT INTO meta VALUES ('fallbacks', '1') ON CONFLICT (key)
            DO UPDATE SET value = CAST(value AS INTEGER) + 1";
        conn.execute(counted, [])?;
    }
    Ok(())
}

/// Ends the transaction, and says what its end means.
fn commit(
    conn: &Connection,
    config: &mut WriterConfig,
    #[cfg_attr(
        not(debug_assertions),
        allow(unused_variables, reason = "for their names")
    )]
    queue: &VecDeque<StoreCommand>,
    doubt: InDoubt,
) -> Attempt {
    let fault = &mut config.fault;
    failpoint!("before-commit", kinds(queue, doubt.commands));
    let committed = fault(Moment::BeforeCommit, conn)
        .and_then(|()| conn.prepare_cached("COMMIT")?.execute([]))
        .and_then(|_| fault(Moment::AfterCommit, conn));
    failpoint!("after-commit", kinds(queue, doubt.commands));
    match committed {
        Ok(()) => Attempt::Committed {
            answers: doubt.answers,
            last_seq: doubt.last_seq,
        },
        Err(error) if is_doubtful(&error) => Attempt::Doubtful { error, doubt },
        Err(error) => roll_back(conn, error),
    }
}

/// Does what is ordered, and gives the answer that will be true once the transaction is.
fn carry_out(
    writing: &mut Writing<'_>,
    command: &StoreCommand,
    role: Role,
    stamp: i64,
    verify: &Verify,
) -> rusqlite::Result<Option<Event>> {
    Ok(match command {
        StoreCommand::Commit { token, writes, .. } => Some(Event::Stored {
            token: *token,
            stored: writing.commit(writes)?,
        }),
        // Begun when this transaction is over, so that what is in it is in the copy.
        StoreCommand::Load {
            query: Query::Backup { path, plan },
            ..
        } => {
            let planned = plan.map(|plan| backup::planned(writing.conn, path.as_deref(), plan));
            planned.map_or(Ok(()), |planned| planned?.write(writing.conn))?;
            None
        }
        StoreCommand::Load { token, query } => Some(Event::Loaded {
            token: *token,
            loaded: verify.load(writing.conn, query, writing.alive),
        }),
        StoreCommand::Takeover { instance } => {
            let recovered = take_over(writing, instance, role, stamp)?;
            Some(Event::Recovered(Box::new(recovered)))
        }
        StoreCommand::Flush => None,
    })
}

fn take_over(
    writing: &mut Writing<'_>,
    instance: &str,
    role: Role,
    stamp: i64,
) -> rusqlite::Result<Recovered> {
    let nothing = || Recovered {
        instance: instance.to_owned(),
        sessions: Vec::new(),
        jobs: Vec::new(),
        holders: Vec::new(),
        last_seq: 0,
    };
    // Asked again here, with the lock held: two hands on one session are worse than a job that
    // waits.
    if instance == writing.ours || (writing.alive)(instance) != Liveness::Dead {
        tracing::error!(instance, "a living instance was to be taken over");
        return Ok(nothing());
    }
    let search = Search::new(role, writing.boot, &|_| true).only(instance);
    let mut found = search.find(writing.conn, None)?;
    if let Some(file) = writing.conn.path() {
        search.note_damaged(Path::new(file));
    }
    // What was asked for is answered, even if nothing is left of it.
    found.entry(instance.to_owned()).or_default();
    let taken = takeover::take(writing.conn, writing.ours, found)?;
    let recovered = taken.into_iter().next().unwrap_or_else(nothing);
    takeover::stamp(writing.conn, writing.ours, stamp)?;
    if writing.witness.is_none() {
        writing.witness = Some(Witness::Stamp { value: stamp });
    }
    Ok(recovered)
}

fn roll_back(conn: &Connection, error: rusqlite::Error) -> Attempt {
    if !conn.is_autocommit()
        && let Err(second) = conn.execute_batch("ROLLBACK")
    {
        tracing::error!(%second, "a transaction can't be rolled back");
    }
    Attempt::Failed(error)
}

/// May the file hold what this `COMMIT` wrote, now or after the next recovery?
pub(super) fn is_doubtful(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        // With these the commit's last frame isn't written, without which no recovery takes the
        // others.
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}
