//! The one thread that writes: group commit, retries, and the doubt after a failed `COMMIT`.
//!
//! Owns the queue of orders and the connection. Must not know what a write does.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agentd_core::Event;
use agentd_core::store::Recovered;
use agentd_protocol::Code;
use rusqlite::{Connection, ErrorCode};

#[cfg(feature = "failpoints")]
use super::queue::kinds;
use super::queue::{BATCH, batch_len, changes, is_lazy, pages_of, refusal};
use super::write::{Numbers, Witness, Writing};
use super::{Alive, Answer, Fault, Liveness, Message, Moment, ORDERS, Order, Role};
use super::{read, schema, takeover};

/// A commit that nobody waits for rides on the next one, at most this late.
const LAZY: Duration = Duration::from_secs(1);
/// How often a store in trouble is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// About so many pages in the log are worth a checkpoint when nobody waits.
const CHECKPOINT_PAGES: u64 = 1000;
/// About so many pages (64 MiB) are written back even when somebody waits.
const RESTART_PAGES: u64 = 16 * 1024;
/// What the probe of a store in trouble writes: more than fits into pages that are there already.
const PROBE_BYTES: i64 = 16 * 1024;

/// With what a writer works.
pub(super) struct Setting {
    pub(super) path: PathBuf,
    pub(super) ours: String,
    pub(super) role: Role,
    pub(super) alive: Alive,
    pub(super) answer: Answer,
    pub(super) fault: Fault,
}

/// Why nothing can be written at the moment.
struct Trouble {
    code: Code,
    why: String,
    again: Instant,
}

/// The first orders of the queue were in a transaction whose `COMMIT` neither worked nor failed.
struct Doubt {
    answers: Vec<Event>,
    orders: usize,
    witness: Option<Witness>,
}

/// How a transaction ended.
enum Attempt {
    Committed {
        answers: Vec<Event>,
        pages: u64,
    },
    Failed(rusqlite::Error),
    Doubtful {
        error: rusqlite::Error,
        doubt: Doubt,
    },
}

#[derive(PartialEq, Eq)]
enum Gathered {
    Open,
    Closing,
}

/// The thread's state.
pub(super) struct Writer {
    setting: Setting,
    /// `None` after an error that may have spoilt it.
    conn: Option<Connection>,
    received: Receiver<Message>,
    /// In the order of their tokens; what is retained in trouble comes first.
    queue: VecDeque<Order>,
    /// When the first of the queue's lazy commits has to go.
    lazy_until: Option<Instant>,
    trouble: Option<Trouble>,
    doubt: Option<Doubt>,
    /// About how many pages the log holds that aren't in the file.
    pages: u64,
    stamps: i64,
}

impl Writer {
    pub(super) fn new(setting: Setting, conn: Connection, received: Receiver<Message>) -> Self {
        Self {
            setting,
            conn: Some(conn),
            received,
            queue: VecDeque::new(),
            lazy_until: None,
            trouble: None,
            doubt: None,
            pages: 0,
            stamps: 0,
        }
    }

    /// Works until the last handle is gone or says close.
    pub(super) fn run(mut self) {
        while self.gather() == Gathered::Open {
            self.work();
        }
        if let Some(trouble) = &mut self.trouble {
            trouble.again = Instant::now();
        }
        while !self.queue.is_empty() {
            let before = self.queue.len();
            self.lazy_until = Some(Instant::now());
            self.work();
            if self.trouble.is_some() && self.queue.len() >= before {
                tracing::error!(
                    orders = before,
                    "the store is closed with orders not written"
                );
                break;
            }
        }
        self.leave_the_log();
    }

    /// The last connection to close writes the log back and removes it, which costs a one-shot as
    /// much as its turn. It leaves a short log to whoever comes next: what is in it is durable.
    fn leave_the_log(&self) {
        let Some(conn) = self
            .conn
            .as_ref()
            .filter(|_| self.setting.role == Role::OneShot)
        else {
            return;
        };
        let log = schema::beside(&self.setting.path, "-wal");
        if std::fs::metadata(log).is_ok_and(|log| log.len() < schema::SHORT_LOG) {
            let keep = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            // Otherwise it is written back: slower, no less right.
            let _kept = conn.set_db_config(keep, true);
        }
    }

    /// Waits for something to do, then takes what is there.
    fn gather(&mut self) -> Gathered {
        let mut wait = true;
        for _ in 0..BATCH {
            if self.queue.len() >= ORDERS {
                if let Some(trouble) = &self.trouble {
                    // What is kept has a limit, too: the rest stays in the channel.
                    let again = trouble.again.saturating_duration_since(Instant::now());
                    std::thread::park_timeout(again);
                }
                break;
            }
            let message = if wait && !self.is_due() {
                match self.wait() {
                    Ok(message) => message,
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return Gathered::Closing,
                }
            } else {
                match self.received.try_recv() {
                    Ok(message) => message,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Gathered::Closing,
                }
            };
            wait = false;
            match message {
                Message::Order(order) => self.take(*order),
                Message::Close => return Gathered::Closing,
            }
        }
        Gathered::Open
    }

    fn wait(&self) -> Result<Message, RecvTimeoutError> {
        let until = match &self.trouble {
            Some(trouble) => Some(trouble.again),
            None => self.lazy_until,
        };
        match until {
            Some(until) => self
                .received
                .recv_timeout(until.saturating_duration_since(Instant::now())),
            None => self
                .received
                .recv()
                .map_err(|_gone| RecvTimeoutError::Disconnected),
        }
    }

    /// Is there something that should be written now?
    fn is_due(&self) -> bool {
        let now = Instant::now();
        match &self.trouble {
            Some(trouble) => trouble.again <= now,
            None => {
                self.queue.len() >= BATCH
                    || self.lazy_until.is_some_and(|until| until <= now)
                    || self.queue.iter().any(|order| !is_lazy(order))
            }
        }
    }

    fn take(&mut self, order: Order) {
        if let Some(trouble) = &self.trouble {
            if let Some(refusal) = refusal(&order, trouble.code, &trouble.why) {
                (self.setting.answer)(refusal);
                return;
            }
            if let (Order::Load { token, query }, Some(conn), None) =
                (&order, &self.conn, &self.doubt)
                && !self.queue.iter().any(|earlier| changes(earlier, query))
            {
                let loaded = read::load(conn, query);
                (self.setting.answer)(Event::Loaded {
                    token: *token,
                    loaded,
                });
                return;
            }
        }
        if is_lazy(&order) && self.lazy_until.is_none() {
            self.lazy_until = Some(Instant::now() + LAZY);
        }
        self.queue.push_back(order);
    }

    fn work(&mut self) {
        if !self.is_due() {
            return;
        }
        if self.conn.is_none() || self.doubt.is_some() {
            if let Err(error) = self.reopen() {
                return self.fail(&error);
            }
            if let Some(doubt) = self.doubt.take() {
                return self.resolve(doubt);
            }
        }
        if self.queue.is_empty() && self.trouble.is_some() {
            return match self.probe() {
                Ok(()) => self.recover(),
                Err(error) => self.fail(&error),
            };
        }
        let orders = batch_len(&self.queue);
        match self.attempt(orders) {
            Attempt::Committed { answers, pages } => {
                self.recover();
                self.done(orders, answers);
                self.pages += pages;
                self.write_back();
            }
            Attempt::Failed(error) => self.fail(&error),
            Attempt::Doubtful { error, doubt } => {
                tracing::error!(%error, "a COMMIT neither worked nor failed");
                self.doubt = Some(doubt);
                self.conn = None;
                // Looked at right away, then once per retry.
                match self.reopen() {
                    Ok(()) => {
                        if let Some(doubt) = self.doubt.take() {
                            self.note_trouble(&error);
                            self.resolve(doubt);
                        }
                    }
                    Err(again) => self.fail(&again),
                }
            }
        }
    }

    /// One transaction over the first `orders` of the queue.
    fn attempt(&mut self, orders: usize) -> Attempt {
        let Some(conn) = &self.conn else {
            return Attempt::Failed(rusqlite::Error::InvalidQuery);
        };
        let fault = &mut self.setting.fault;
        let reads_only = self
            .queue
            .iter()
            .take(orders)
            .all(|order| matches!(order, Order::Load { .. } | Order::Flush));
        let begin = if reads_only {
            "BEGIN"
        } else {
            "BEGIN IMMEDIATE"
        };
        let begun =
            fault(Moment::BeforeBegin, conn).and_then(|()| conn.prepare_cached(begin)?.execute([]));
        if let Err(error) = begun {
            return Attempt::Failed(error);
        }
        let numbers = match Numbers::read(conn) {
            Ok(numbers) => numbers,
            Err(error) => return roll_back(conn, error),
        };
        let mut writing = Writing {
            conn,
            ours: &self.setting.ours,
            alive: &*self.setting.alive,
            numbers,
            witness: None,
            wall_ms: wall_ms(),
        };
        let mut answers = Vec::with_capacity(orders);
        let mut pages = 4;
        for order in self.queue.iter().take(orders) {
            if matches!(order, Order::Takeover { .. }) {
                self.stamps += 1;
            }
            if let Order::Commit { writes, .. } = order {
                pages += writes.iter().map(pages_of).sum::<u64>();
            }
            let done = carry_out(&mut writing, order, self.setting.role, self.stamps);
            let done = done.map(|answer| answers.extend(answer));
            if let Err(error) = done {
                return roll_back(conn, error);
            }
            if conn.is_autocommit() {
                // SQLite rolled back by itself: what follows would not be one transaction.
                let aborted = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT_ROLLBACK);
                return Attempt::Failed(rusqlite::Error::SqliteFailure(aborted, None));
            }
        }
        let witness = writing.witness;
        wrong!("ack-early", {
            let early = std::mem::take(&mut answers);
            early.into_iter().for_each(&self.setting.answer);
            crate::failpoint::linger();
        });
        failpoint!("before-commit", kinds(&self.queue, orders));
        let committed = fault(Moment::BeforeCommit, conn)
            .and_then(|()| conn.prepare_cached("COMMIT")?.execute([]))
            .and_then(|_| fault(Moment::AfterCommit, conn));
        failpoint!("after-commit", kinds(&self.queue, orders));
        match committed {
            Ok(()) => Attempt::Committed {
                answers,
                pages: if reads_only { 0 } else { pages },
            },
            Err(error) if is_doubtful(&error) => Attempt::Doubtful {
                error,
                doubt: Doubt {
                    answers,
                    orders,
                    witness,
                },
            },
            Err(error) => roll_back(conn, error),
        }
    }

    /// Answers the first `orders` of the queue, which are durable.
    fn done(&mut self, orders: usize, answers: Vec<Event>) {
        self.queue.drain(..orders);
        self.lazy_until = self
            .queue
            .iter()
            .any(is_lazy)
            .then(|| Instant::now() + LAZY);
        for answer in answers {
            (self.setting.answer)(answer);
        }
    }

    /// Nothing was written: new jobs are refused, the rest is kept for the next try.
    fn fail(&mut self, error: &rusqlite::Error) {
        self.note_trouble(error);
        let Some(trouble) = &self.trouble else { return };
        // The orders in doubt have their answers already, whichever way it goes.
        let doubtful = self.doubt.as_ref().map_or(0, |doubt| doubt.orders);
        let mut kept = VecDeque::with_capacity(self.queue.len());
        for (place, order) in std::mem::take(&mut self.queue).into_iter().enumerate() {
            match refusal(&order, trouble.code, &trouble.why) {
                Some(refusal) if place >= doubtful => (self.setting.answer)(refusal),
                _kept_for_later => kept.push_back(order),
            }
        }
        self.queue = kept;
    }

    fn note_trouble(&mut self, error: &rusqlite::Error) {
        let code = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Code::DiskFull,
            _ => Code::StoreFailed,
        };
        let why = error.to_string();
        if self.trouble.as_ref().is_none_or(|now| now.why != why) {
            tracing::error!(%error, "the store can't be written");
            (self.setting.answer)(Event::StoreHealth {
                trouble: Some(why.clone()),
            });
        }
        self.trouble = Some(Trouble {
            code,
            why,
            again: Instant::now() + RETRY,
        });
    }

    fn recover(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!("the store can be written again");
            (self.setting.answer)(Event::StoreHealth { trouble: None });
        }
    }

    /// A fresh connection, and a log that holds nothing that could come or go by itself.
    fn reopen(&mut self) -> rusqlite::Result<()> {
        self.conn = None;
        let conn = schema::reopen(&self.setting.path)?;
        (self.setting.fault)(Moment::BeforeBegin, &conn)?;
        let busy: i64 = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        if busy != 0 {
            let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
            return Err(rusqlite::Error::SqliteFailure(busy, None));
        }
        self.pages = 0;
        self.conn = Some(conn);
        Ok(())
    }

    /// The log is settled: either the rows are there or they never will be.
    fn resolve(&mut self, doubt: Doubt) {
        let there = match (&self.conn, doubt.witness) {
            (Some(conn), Some(witness)) => witness.is_there(conn, &self.setting.ours),
            // Without a numbered row everything in it may as well be written again.
            (Some(_), None) => Ok(false),
            (None, _) => Err(rusqlite::Error::InvalidQuery),
        };
        match there {
            Ok(true) => {
                self.recover();
                self.done(doubt.orders, doubt.answers);
            }
            Ok(false) => {
                let lost = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
                self.fail(&rusqlite::Error::SqliteFailure(lost, None));
            }
            Err(error) => {
                self.doubt = Some(doubt);
                self.conn = None;
                self.fail(&error);
            }
        }
    }

    /// Tries whether there is room again, when there is nothing else to try with.
    fn probe(&mut self) -> rusqlite::Result<()> {
        let Some(conn) = &self.conn else {
            return Err(rusqlite::Error::InvalidQuery);
        };
        (self.setting.fault)(Moment::BeforeBegin, conn)?;
        let probe = conn.unchecked_transaction()?;
        probe.execute(
            "INSERT OR REPLACE INTO meta VALUES ('probe', hex(zeroblob(?1 / 2)))",
            [PROBE_BYTES],
        )?;
        probe.execute("DELETE FROM meta WHERE key = 'probe'", [])?;
        probe.commit()
    }

    fn write_back(&mut self) {
        let Some(conn) = &self.conn else { return };
        if self.pages > RESTART_PAGES {
            self.pages = checkpoint(conn, "RESTART");
        } else if self.pages > CHECKPOINT_PAGES && self.queue.is_empty() {
            self.pages = checkpoint(conn, "PASSIVE");
        }
    }
}

/// Writes the log back into the file and says how many pages of it are left to do.
fn checkpoint(conn: &Connection, mode: &str) -> u64 {
    let done = conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
    });
    match done {
        Ok((pages, written)) => u64::try_from(pages - written).unwrap_or(0),
        Err(error) => {
            tracing::warn!(%error, "the write-ahead log can't be written back");
            0
        }
    }
}

/// Does what is ordered, and gives the answer that will be true once the transaction is.
fn carry_out(
    writing: &mut Writing<'_>,
    order: &Order,
    role: Role,
    stamp: i64,
) -> rusqlite::Result<Option<Event>> {
    Ok(match order {
        Order::Commit { token, writes, .. } => Some(Event::Stored {
            token: *token,
            stored: writing.commit(writes)?,
        }),
        Order::Load { token, query } => Some(Event::Loaded {
            token: *token,
            loaded: read::load(writing.conn, query),
        }),
        Order::Takeover { instance } => {
            let recovered = take_over(writing, instance, role, stamp)?;
            Some(Event::Recovered(Box::new(recovered)))
        }
        Order::Flush => None,
    })
}

fn take_over(
    writing: &mut Writing<'_>,
    instance: &str,
    role: Role,
    stamp: i64,
) -> rusqlite::Result<Recovered> {
    if instance == writing.ours || (writing.alive)(instance) != Liveness::Dead {
        tracing::error!(instance, "a living instance was to be taken over");
        return Ok(Recovered {
            instance: instance.to_owned(),
            sessions: Vec::new(),
            jobs: Vec::new(),
        });
    }
    let recovered = takeover::take(writing.conn, writing.ours, instance, &[], role)?;
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
fn is_doubtful(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

fn wall_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}
