//! Changes as statements, inside a transaction that somebody else began and will commit.
//!
//! Owns numbers (`seq`, job numbers), the key's uniqueness and the lease of a session.
//! Must not know batches, retries or who asked.

use std::collections::HashMap;

use agentd_core::store::{End, MessageText, NewJob, Stored, Write, Written};
use agentd_protocol::{Body, Code, JobId};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Params, params};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;

use super::columns::{int, nat, shown};
use super::listed::{self, LastEnd};
use super::{Liveness, attachments, schedules, texts, webhooks};

/// The next free numbers. Only good within one transaction: other processes take some, too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    seq: i64,
    job: i64,
}

impl Numbers {
    /// Looks up what the store has given out so far.
    pub(super) fn read(conn: &Connection) -> rusqlite::Result<Self> {
        // What was pruned is gone, its numbers are not free.
        let seq = "SELECT 1 + max(
            coalesce((SELECT max(seq) FROM jobs), 0),
            coalesce((SELECT final_seq FROM jobs WHERE final_seq IS NOT NULL
                ORDER BY final_seq DESC LIMIT 1), 0),
            coalesce((SELECT max(seq) FROM events), 0),
            coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'pruned_seq'), 0))";
        let job = "SELECT 1 + max(
            coalesce((SELECT max(job) FROM jobs), 0),
            coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'pruned_job'), 0))";
        Ok(Self {
            seq: conn.prepare_cached(seq)?.query_row([], |row| row.get(0))?,
            job: conn.prepare_cached(job)?.query_row([], |row| row.get(0))?,
        })
    }

    /// The highest number given out so far.
    pub(super) const fn last_seq(self) -> i64 {
        self.seq - 1
    }

    fn take_seq(&mut self) -> i64 {
        let seq = self.seq;
        self.seq += 1;
        seq
    }

    fn take_job(&mut self) -> i64 {
        let job = self.job;
        self.job += 1;
        job
    }
}

/// A row by which to tell later whether the transaction that wrote it is in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Witness {
    /// An accepted job.
    Job { job: i64, seq: i64 },
    /// A numbered event of a job of ours.
    Event { job: i64, seq: i64 },
    /// The end of a job of ours.
    Final { job: i64, seq: i64 },
    /// A value in `meta` under our name.
    Stamp { value: i64 },
}

impl Witness {
    /// Is it there? No other instance could have written it.
    pub(super) fn is_there(self, conn: &Connection, ours: &str) -> rusqlite::Result<bool> {
        let found = match self {
            Self::Job { job, seq } => conn.query_row(
                "SELECT 1 FROM jobs WHERE job = ?1 AND seq = ?2 AND instance = ?3",
                params![job, seq, ours],
                |_| Ok(()),
            ),
            Self::Event { job, seq } => conn.query_row(
                "SELECT 1 FROM events WHERE job = ?1 AND seq = ?2",
                params![job, seq],
                |_| Ok(()),
            ),
            Self::Final { job, seq } => conn.query_row(
                "SELECT 1 FROM jobs WHERE job = ?1 AND final_seq = ?2",
                params![job, seq],
                |_| Ok(()),
            ),
            Self::Stamp { value } => conn.query_row(
                "SELECT 1 FROM meta WHERE key = ?1 AND value = ?2",
                params![stamp_key(ours), value.to_string()],
                |_| Ok(()),
            ),
        };
        found.optional().map(|found| found.is_some())
    }
}

/// Where an instance notes what has no number.
pub(super) fn stamp_key(ours: &str) -> String {
    format!("stamp:{ours}")
}

/// Why a write did not happen.
pub(super) enum WriteStop {
    /// The store says no, and all is well.
    Refused(Stored),
    /// The statement failed.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for WriteStop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

/// A running transaction with what its writes need to know.
pub(super) struct Writing<'a> {
    pub(super) conn: &'a Connection,
    pub(super) ours: &'a str,
    pub(super) alive: &'a dyn Fn(&str) -> Liveness,
    pub(super) numbers: Numbers,
    pub(super) witness: Option<Witness>,
    pub(super) wall_ms: i64,
    /// Which boot of the machine this is, where that is known.
    pub(super) boot: Option<&'a str>,
    /// Sessions that this transaction found to be ours, or made so.
    pub(super) entered: HashMap<String, i64>,
    pub(super) care: Care,
    /// Rung when a run of a schedule has ended. Whoever hears it asks the writer, which is behind this
    /// transaction then.
    pub(super) scheduled: &'a Notify,
    /// Did half a commit of one write stay behind? Then the transaction must be done again, with
    /// care.
    pub(super) spoilt: bool,
}

/// How a commit of one write is taken back when it fails in its middle, which it never should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Care {
    /// By the end of the transaction: savepoints cost a third of an accept.
    Fast,
    /// By a savepoint of its own.
    Savepoints,
}

impl Writing<'_> {
    /// Carries out all writes of one commit, or none of them. An error is the store's, not the
    /// commit's: then the whole transaction is lost.
    pub(super) fn commit(&mut self, writes: &[Write]) -> rusqlite::Result<Stored> {
        match writes {
            [write] if self.care == Care::Fast => self.commit_one(write),
            _ => self.commit_all(writes),
        }
    }

    /// What is refused is refused before anything is written.
    fn commit_one(&mut self, write: &Write) -> rusqlite::Result<Stored> {
        let before = (self.numbers, self.witness);
        match self.write(0, write) {
            Ok(one) => Ok(Stored::Committed(vec![one])),
            Err(WriteStop::Refused(refused)) => {
                (self.numbers, self.witness) = before;
                Ok(refused)
            }
            Err(WriteStop::Failed(error)) => {
                self.spoilt = !is_storage(&error);
                Err(error)
            }
        }
    }

    fn commit_all(&mut self, writes: &[Write]) -> rusqlite::Result<Stored> {
        let before = (self.numbers, self.witness);
        self.conn
            .prepare_cached("SAVEPOINT one_commit")?
            .execute([])?;
        let mut written = Vec::with_capacity(writes.len());
        let mut stopped = None;
        for (item, write) in writes.iter().enumerate() {
            match self.write(item, write) {
                Ok(one) => written.push(one),
                Err(stop) => {
                    stopped = Some(stop);
                    break;
                }
            }
        }
        let stored = match stopped {
            None => Stored::Committed(written),
            Some(WriteStop::Refused(refused)) => refused,
            Some(WriteStop::Failed(error)) if is_storage(&error) => return Err(error),
            Some(WriteStop::Failed(error)) => {
                tracing::error!(%error, "a commit that can't be carried out");
                Stored::Failed {
                    code: Code::StoreFailed,
                    why: error.to_string(),
                }
            }
        };
        if !matches!(stored, Stored::Committed(_)) {
            (self.numbers, self.witness) = before;
            // Some of what was entered since is taken back by the savepoint, and which isn't known.
            self.entered.clear();
            self.conn
                .prepare_cached("ROLLBACK TO one_commit")?
                .execute([])?;
        }
        self.conn
            .prepare_cached("RELEASE one_commit")?
            .execute([])?;
        Ok(stored)
    }

    fn update(&self, update: &str, values: impl Params) -> Result<Written, WriteStop> {
        self.conn.prepare_cached(update)?.execute(values)?;
        Ok(Written::Done)
    }

    fn write(&mut self, item: usize, write: &Write) -> Result<Written, WriteStop> {
        match write {
            Write::Accept(new) => self.accept(item, new),
            Write::Start { .. } => self.start(write),
            Write::Requeue { job, attempt } => self.requeue(*job, *attempt),
            Write::Cancel { job } => self.update(
                "UPDATE jobs SET cancelled = 1 WHERE job = ?1 AND final_seq IS NULL",
                [int(job.0)],
            ),
            Write::Event { job, line } => self.event(*job, line),
            Write::Text {
                job,
                message,
                kind,
                offset,
                text,
            } => {
                texts::add(self.conn, *job, (*message, *kind, *offset), text)?;
                Ok(Written::Done)
            }
            Write::Finish {
                job,
                end,
                line,
                texts,
            } => self.finish(*job, *end, line, texts.as_deref()),
            Write::Callback { job, url, result } => {
                webhooks::put(self.conn, int(job.0), (url, *result), self.wall_ms)?;
                Ok(Written::Done)
            }
            Write::Replay { webhook } => Ok(Written::Webhook {
                id: webhooks::replay(self.conn, webhook, self.wall_ms)?,
            }),
            Write::TestCallback { url } => Ok(Written::Webhook {
                id: Some(webhooks::put_test(self.conn, url, self.wall_ms)?),
            }),
            Write::Schedule(write) => schedules::write(self.conn, write, self.wall_ms),
            Write::Hold { job, held } => self.update(
                "UPDATE jobs SET held = ?2 WHERE job = ?1 AND final_seq IS NULL",
                params![int(job.0), held],
            ),
            Write::Open(new) => self.open(new),
            Write::Close { session } => self.close(item, session),
            Write::Rename { session, to } => self.rename(item, session, to),
            Write::Title { session, title } => self.entitle(session, title.as_deref()),
            Write::Model { session, pins } => self.update(
                "UPDATE sessions SET provider = ?2, model = ?3, thinking = ?4, mode = ?5 WHERE name = ?1",
                params![session, pins.provider, pins.model, pins.thinking, pins.mode],
            ),
            Write::Native { session, native } => self.update(
                "UPDATE sessions SET native = ?2, forks = NULL WHERE name = ?1",
                params![session, native],
            ),
            Write::Lost { session } => {
                self.update("UPDATE sessions SET lost = 1 WHERE name = ?1", [session])
            }
            Write::Release { session } => {
                self.entered.remove(session);
                self.update(
                    "UPDATE sessions SET instance = NULL WHERE name = ?1 AND instance = ?2",
                    [session, self.ours],
                )
            }
        }
    }

    fn requeue(&self, job: JobId, attempt: u32) -> Result<Written, WriteStop> {
        self.conn
            .prepare_cached(
                "UPDATE jobs SET state = 'queued', worker = NULL, generation = NULL, attempt = ?2
                 WHERE job = ?1 AND final_seq IS NULL",
            )?
            .execute(params![int(job.0), attempt])?;
        Ok(Written::Done)
    }

    fn start(&mut self, write: &Write) -> Result<Written, WriteStop> {
        let Write::Start {
            job,
            worker,
            generation,
            attempt,
            line,
        } = write
        else {
            return Ok(Written::Done);
        };
        let request = self
            .conn
            .prepare_cached(
                "UPDATE jobs SET state = 'running', instance = ?2, worker = ?3,
                    generation = ?4, attempt = ?5
                 WHERE job = ?1 AND final_seq IS NULL
                 RETURNING request",
            )?
            .query_row(
                params![
                    int(job.0),
                    self.ours,
                    int(worker.0),
                    int(generation.0),
                    attempt
                ],
                |row| row.get(0),
            )
            .optional()?;
        let Some(request) = request else {
            return Ok(Written::Done);
        };
        let seq = self.number_event(*job, line)?;
        Ok(Written::Started { seq, request })
    }

    fn label(&self, job: i64, new: &NewJob) -> rusqlite::Result<()> {
        if let Some(labels) = &new.labels {
            self.conn
                .prepare_cached(
                    "INSERT INTO labels (key, value, job) SELECT key, value, ?2 FROM json_each(?1)",
                )?
                .execute(params![labels, job])?;
        }
        Ok(())
    }

    fn accept(&mut self, item: usize, new: &NewJob) -> Result<Written, WriteStop> {
        if let Some(fired) = &new.fired
            && !schedules::is_next(self.conn, fired)?
        {
            return Err(WriteStop::Refused(Stored::Superseded));
        }
        // Without a key nothing is ever compared with it.
        let hash = (new.key.as_ref()).map(|_key| Sha256::digest(new.hashed.as_bytes()));
        if let (Some(key), Some(hash)) = (&new.key, &hash) {
            let known = self
                .conn
                .prepare_cached(
                    "SELECT jobs.job, jobs.hash, sessions.name FROM jobs
                     JOIN sessions ON sessions.id = jobs.session WHERE jobs.key = ?1",
                )?
                .query_row([key], |row| <(i64, Vec<u8>, _)>::try_from(row))
                .optional()?;
            if let Some((job, known, session)) = known {
                let job = JobId(nat(job));
                // The same key with another request is somebody's mistake: running it would break
                // the promise of the first, and answering with the first would hide the second.
                return if known == hash.as_slice() {
                    let session = shown(session);
                    // As in a store that was put back: its schedule goes on behind it.
                    if let Some(fired) = &new.fired {
                        schedules::fired(self.conn, fired, int(job.0), self.wall_ms)?;
                    }
                    Ok(Written::Duplicate { job, session })
                } else {
                    Err(WriteStop::Refused(Stored::Conflict { item, job }))
                };
            }
        }
        // Behind the key: a replay takes no number.
        let job = self.numbers.take_job();
        let (session, name) = match &new.session {
            Some(name) => self.enter(item, name, new)?,
            None => self.enter_unnamed(job, new)?,
        };
        self.pin(session, new)?;
        let seq = self.numbers.take_seq();
        let (worker, generation) = new.running.unzip();
        self.conn
            .prepare_cached(
                "INSERT INTO jobs (job, seq, session, state, attempt, at_once, instance, worker,
                    generation, parent, accepted_at, expires_at, start_at, boot, expires_boot,
                    start_boot, key, hash, labels, request)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
                    ?16, ?17, ?18, ?19)",
            )?
            .execute(params![
                job,
                seq,
                session,
                if worker.is_some() {
                    "running"
                } else {
                    "queued"
                },
                i64::from(worker.is_some()),
                self.ours,
                worker.map(|worker| int(worker.0)),
                generation.map(|generation| int(generation.0)),
                new.parent.map(|parent| int(parent.0)),
                new.at,
                new.expires.wall_ms,
                new.start.map(|start| start.wall_ms),
                self.boot,
                new.expires.boot_ms.map(int),
                new.start.and_then(|start| start.boot_ms).map(int),
                new.key,
                hash.as_deref(),
                new.labels,
                new.request,
            ])?;
        self.label(job, new)?;
        attachments::put(self.conn, job, &new.contents)?;
        if let Some(fired) = &new.fired {
            schedules::fired(self.conn, fired, job, self.wall_ms)?;
        }
        self.witness = Some(Witness::Job { job, seq });
        Ok(Written::Accepted {
            job: JobId(nat(job)),
            seq: nat(seq),
            session: name,
        })
    }

    fn event(&mut self, job: JobId, line: &Body) -> Result<Written, WriteStop> {
        let seq = self.number_event(job, line)?;
        Ok(Written::Numbered { seq })
    }

    fn number_event(&mut self, job: JobId, line: &Body) -> rusqlite::Result<u64> {
        let job = int(job.0);
        let seq = self.numbers.take_seq();
        self.conn
            .prepare_cached("INSERT INTO events (seq, job, line) VALUES (?1, ?2, ?3)")?
            .execute(params![seq, job, line.as_json()])?;
        self.witness = Some(Witness::Event { job, seq });
        Ok(nat(seq))
    }

    fn finish(
        &mut self,
        job: JobId,
        end: End,
        line: &Body,
        said: Option<&[MessageText]>,
    ) -> Result<Written, WriteStop> {
        let job = int(job.0);
        let (session, ended, ran, accepted_at, key) = self
            .conn
            .prepare_cached(
                "SELECT session, final_seq, attempt > 0, accepted_at, key FROM jobs WHERE job = ?1",
            )?
            .query_row([job], |row| {
                let (session, ended): (i64, Option<i64>) = (row.get(0)?, row.get(1)?);
                let key: Option<String> = row.get(4)?;
                Ok((session, ended, row.get(2)?, row.get::<_, i64>(3)?, key))
            })?;
        if let Some(seq) = ended {
            // The first end was told: it stays, and whoever asked gets its number.
            tracing::error!(job, seq, "a job that has ended was to end again");
            return Ok(Written::Numbered { seq: nat(seq) });
        }
        let seq = self.numbers.take_seq();
        // A clock that was set back must not let a job end before it began.
        let at = self.wall_ms.max(accepted_at);
        self.conn
            .prepare_cached(
                "UPDATE jobs SET state = ?2, final = ?3, final_seq = ?4, finished_at = ?5
                 WHERE job = ?1",
            )?
            .execute(params![job, end_name(end), line.as_json(), seq, at])?;
        if let Some(said) = said {
            texts::replace(self.conn, job, said)?;
        }
        let line = line.as_json();
        listed::end(self.conn, session, &LastEnd { line, at, ran })?;
        if key.is_some_and(|key| key.starts_with(schedules::KEYS))
            && schedules::ended(self.conn, job, (end, end_name(end)), at)?
        {
            self.scheduled.notify_one();
        }
        if end == End::Interrupted {
            // Those of another instance, of which ours may know nothing: of a dead one it has them,
            // and holds the same.
            self.conn
                .prepare_cached(
                    "UPDATE jobs SET held = 1
                     WHERE session = ?1 AND final_seq IS NULL AND state = 'queued'
                        AND instance <> ?2 AND coalesce(start_at, 0) <= ?3
                        AND request ->> 'after_failure' IS NOT 'run'",
                )?
                .execute(params![session, self.ours, self.wall_ms])?;
        }
        self.witness = Some(Witness::Final { job, seq });
        Ok(Written::Numbered { seq: nat(seq) })
    }
}

/// Is it the disk, the file or a lock, so that the same may succeed later?
pub(super) fn is_storage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::OutOfMemory
                | ErrorCode::ReadOnly
                | ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OperationInterrupted
                | ErrorCode::OperationAborted
        )
    )
}

const fn end_name(end: End) -> &'static str {
    match end {
        End::Completed => "completed",
        End::Cancelled => "cancelled",
        End::Failed => "failed",
        End::Interrupted => "interrupted",
    }
}
