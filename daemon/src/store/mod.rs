//! What is durable: one SQLite file, one thread that writes it, tokens answered in order.
//!
//! Owns the file, its tables, group commit, and what happens when the disk says no.
//! Must not know sockets, processes or what a job means; who lives is asked of the caller.

mod age;
mod attachments;
mod backup;
mod backup_plan;
mod begin;
mod checkpoint;
mod columns;
mod damage;
mod disk;
mod export;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod guard;
mod history;
mod inbox;
mod inspect;
mod listed;
mod lists;
mod log;
mod loss;
mod losses;
mod mark;
mod memory;
mod migrations;
mod prune;
mod queue;
mod read;
mod readers;
mod reserve;
mod restore;
mod room;
mod schedules;
mod schema;
mod search;
mod sessions;
mod takeover;
#[cfg(test)]
mod tests;
mod texts;
mod transaction;
mod trouble;
mod usage;
mod verify;
mod webhooks;
mod write;
mod writer;

pub use attachments::of_job as attachments_of_job;
pub(crate) use disk::{copy, free_bytes};
pub use inspect::{backups_lack, backups_planned, check_whole, inspect};
pub use loss::Loss;
pub use losses::{accept_losses, losses};
pub use restore::{Restored, restore};
pub use schedules::{DueSchedule, DueSchedules, KEYS, KeptSchedule, Unsent, paused_schedules};
pub use webhooks::{AttemptOutcome, AttemptRecord, Delivery, Waiting, Wanted, given_up};

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TrySendError;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agentd_core::Event;
use agentd_core::ids::Token;
use agentd_core::store::{Query, Recovered, Urgency, Write};
use rusqlite::Connection;
use tokio::sync::{Notify, oneshot};

use self::begin::begin;
use self::readers::{By, Readers};
use self::schedules::OnSchedules;
use self::schema::Whole;
use self::verify::Verify;

/// Commands between the owner and the writer. What is handed in while it is full comes back, to be
/// handed in again: the owner keeps it, and the core stops asking for more long before.
pub const COMMANDS: usize = 8192;

/// Said to whoever waits for a writer that left.
const ENDED: &str = "the store is closed";
/// Between two tries to open the store together with others: a few of their commits.
const TOGETHER: Duration = Duration::from_millis(10);

/// Which of the two kinds of instance opens the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Takes over everything that dead instances left.
    Daemon,
    /// Takes over nothing but what it is ordered to, and leaves queued jobs to the daemon.
    OneShot,
}

/// Who opens the store.
#[derive(Clone, Copy, Debug)]
pub struct Opener<'a> {
    /// The instance.
    pub instance: &'a str,
    /// What it may take over.
    pub role: Role,
    /// Which boot of the machine this is, where that is known.
    pub boot: Option<&'a str>,
    /// Milliseconds since then.
    pub boot_ms: fn() -> u64,
    /// Has the thread that calls it give way to all others: those that read begin with it.
    pub give_way: fn(),
    /// Does a directory answer? Asked for one that somebody named, by threads that can wait.
    pub answers: fn(&Path) -> bool,
    /// What is forgotten; `None` when somebody else sees to it.
    pub keep: Option<Keep>,
}

/// For how long ended jobs are kept, and how many bytes of them. Unfinished ones always are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// Since their end.
    pub age: Duration,
    /// Of the file, without its free pages.
    pub bytes: u64,
    /// How often that is looked at.
    pub every: Duration,
}

/// Does an instance live?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// It does, in this process.
    Alive {
        /// Which.
        pid: u32,
    },
    /// It doesn't.
    Dead,
}

/// What the store is asked to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreCommand {
    /// Commit these writes together, or none; answered by `Event::Stored`.
    Commit {
        /// Named in the answer.
        token: Token,
        /// What.
        writes: Vec<Write>,
        /// Does somebody wait?
        urgency: Urgency,
    },
    /// Look something up; answered by `Event::Loaded`. Whether that is after the commands so far, or
    /// beside them, [`Query::waits_for_writes`] says.
    Load {
        /// Named in the answer.
        token: Token,
        /// What.
        query: Query,
    },
    /// Take over what a dead instance left; answered by `Event::Recovered`. Of a living one
    /// nothing is taken.
    Takeover {
        /// Which.
        instance: String,
    },
    /// Commit what was only to ride along.
    Flush,
}

/// A question that wasn't taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotTaken {
    /// [`COMMANDS`] are waiting.
    #[error("the store's queue is full")]
    Full,
    /// The writer has ended.
    #[error("the store is closed")]
    Closed,
}

/// A command that wasn't taken.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// [`COMMANDS`] are waiting: here it is again.
    #[error("the store's queue is full")]
    Full(Box<StoreCommand>),
    /// The writer has ended.
    #[error("the store is closed")]
    Closed,
}

/// Why the store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A newer version wrote it; it was not touched.
    #[error(
        "a newer agentd wrote the store `{}`: its tables are of form {found}, this one reads up to \
         {known}; it was left untouched: run the newer agentd, or set `AGENTD_STATE_DIR` to another directory",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest one known here.
        known: usize,
    },
    /// A database, but somebody else's.
    #[error("`{}` is not a store of agentd; it was left untouched", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The library is too old to be trusted.
    #[error("SQLite {version} is linked; 3051003 or later is needed")]
    OldSqlite {
        /// As `sqlite3_libversion_number` gives it.
        version: i32,
    },
    /// The file system said no.
    #[error("can't open the store `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// Another process keeps it locked.
    #[error(
        "the store `{}` is locked by {}, which did not let go of it; hint: {}",
        path.display(), who(*holder), how_to_free(path, *holder)
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// Which process, if the system tells.
        holder: Option<u32>,
    },
    /// SQLite said no.
    #[error("can't open the store `{}`: {source}{}", path.display(), damage::at_start(source))]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: rusqlite::Error,
    },
}

fn who(holder: Option<u32>) -> String {
    match holder {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

fn how_to_free(path: &Path, holder: Option<u32>) -> String {
    match holder {
        Some(pid) => format!(
            "`ps -o stat,args {pid}` shows what it does; one that was stopped (`T`) goes on after \
             `kill -CONT {pid}`"
        ),
        None => format!("`fuser {}` names it", path.display()),
    }
}

/// A handle to the writer and to those who read; cheap to clone. When the last one is gone, they end.
#[derive(Clone)]
pub struct Store {
    commands: inbox::Sender<WriterMessage>,
    readers: Readers,
    /// No more commands come: a writer that can't write need not wait until it can.
    closing: Arc<AtomicBool>,
}

/// An open store.
pub struct Opened {
    /// Takes commands.
    pub store: Store,
    /// Made with the file; another one is another history.
    pub epoch: String,
    /// The last number that was given out.
    pub last_seq: u64,
    /// Jobs that have their final line. Not counted for a one-shot.
    pub ended_jobs: u64,
    /// Jobs that one-shots accepted. Not counted for a one-shot.
    pub fallbacks: u64,
    /// How far the wall clock was ahead of the clock of this boot, at the least of its last jobs. Not
    /// looked up for a one-shot.
    pub wall_ahead: Option<i64>,
    /// What dead instances left, ours from now on. Nothing for a one-shot.
    pub orphans: Vec<Recovered>,
    /// Who had something open then, and lived. Nobody for a one-shot.
    pub living: BTreeSet<String>,
    /// What this start found gone.
    pub loss: Option<Loss>,
    /// That, and what starts before it found, until somebody accepts it.
    pub losses: Vec<String>,
    /// Rings when there is something to deliver.
    pub to_deliver: Arc<Notify>,
    /// Rings when a schedule may be due at another time than before.
    pub scheduled: Arc<Notify>,
    /// To be joined by [`Store::close`].
    pub writer: JoinHandle<()>,
}

/// Answers the question whether an instance lives.
pub type Alive = Box<dyn Fn(&str) -> Liveness + Send + Sync>;
/// Takes the answers, in the writer's thread, in that of a backup and in those of reads.
pub type Answer = Box<dyn Fn(Answers) + Send + Sync>;

/// What one commit answers, in the order of the tokens.
pub struct Answers {
    /// The answers.
    pub events: Vec<Event>,
    /// What was carried out, back to be dropped by whoever made it: memory that another thread frees
    /// makes both wait for the allocator.
    pub spent: Vec<StoreCommand>,
}

impl From<Event> for Answers {
    fn from(event: Event) -> Self {
        Self {
            events: vec![event],
            spent: Vec::new(),
        }
    }
}

enum WriterMessage {
    /// What came together, for one commit.
    Commands(Vec<StoreCommand>),
    /// Answered as soon as it is read.
    Beat(oneshot::Sender<()>),
    /// What is to be delivered? Answered as soon as it is read.
    Due(Wanted, oneshot::Sender<Result<Waiting, String>>),
    /// Are the files still there? And what is lost?
    Look,
    /// From now on this is forgotten.
    Keep(Keep),
    /// Something about schedules, carried out as soon as it is read.
    Schedules(OnSchedules),
    /// Carried out as soon as it is read.
    Attempts(Vec<AttemptRecord>, oneshot::Sender<Result<(), String>>),
    Close,
}

/// When a fault of the disk may be made up in a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    BeforeBegin,
    BeforeCommit,
    AfterCommit,
}

/// Is called at each [`Moment`]; an error stands for one of SQLite's.
type Fault = Box<dyn FnMut(Moment, &Connection) -> rusqlite::Result<()> + Send>;

/// Opens the store in `dir`, and starts its writer.
pub fn open(
    dir: &Path,
    opener: Opener<'_>,
    alive: Alive,
    answer: Answer,
) -> Result<Opened, StoreError> {
    // By then the connection that failed is closed.
    let faults = Faults::of_writer(Box::new(|_, _| Ok(())));
    open_with(dir, opener, alive, answer, faults).map_err(trouble::explained)
}

/// What a test makes up.
struct Faults {
    writer: Fault,
    reader: readers::BeforeRead,
    limits: readers::Limits,
}

impl Faults {
    fn of_writer(writer: Fault) -> Self {
        Self {
            writer,
            reader: Box::new(|| ()),
            limits: readers::Limits::default(),
        }
    }
}

/// Waits for others that make or open the store at the same moment: where two want the whole file,
/// SQLite refuses one at once instead of waiting.
fn prepare(dir: &Path) -> Result<schema::Ready, StoreError> {
    let begun = Instant::now();
    let migrations = migrations::known();
    loop {
        match schema::prepare(dir, &migrations) {
            Err(error) if trouble::is_locked(&error) && begun.elapsed() < schema::BUSY => {
                std::thread::park_timeout(TOGETHER);
            }
            prepared => return prepared,
        }
    }
}

/// What is lost of a store that has begun, and how far it has come from now on.
fn lost(
    path: &Path,
    role: Role,
    ready: &mut schema::Ready,
    reached: mark::Before,
    begun: &begin::Begun,
) -> (Option<Loss>, Option<mark::RunningMark>) {
    let found = ready.loss.take();
    let found = found.or_else(|| reached.lost(path, &begun.epoch, begun.last_seq));
    match role {
        Role::Daemon => {
            let loss = loss::of_start(path, &begun.epoch, found);
            losses::settle(&mut ready.conn, path);
            let mark = mark::RunningMark::of(path, &begun.epoch, begun.last_seq);
            (loss, Some(mark))
        }
        Role::OneShot => (found, None),
    }
}

/// One that has rung: that is kept for whoever listens first, who doesn't yet (`Notify` of tokio).
fn bell(rings: bool) -> Arc<Notify> {
    let bell = Notify::new();
    if rings {
        bell.notify_one();
    }
    Arc::new(bell)
}

fn open_with(
    dir: &Path,
    opener: Opener<'_>,
    alive: Alive,
    answer: Answer,
    faults: Faults,
) -> Result<Opened, StoreError> {
    let path = dir.join(schema::FILE);
    let reached = mark::Before::of(&path);
    let mut ready = prepare(dir)?;
    let begin = |conn: &mut Connection, whole: Whole<'_>| begin(conn, opener, &alive, whole);
    let begun = match schema::beside_check(&mut ready, &path, begin) {
        // What the check found it finds again; whatever else is broken stays where it is.
        Err(why) if ready.unchecked && schema::is_damaged(&path) => {
            drop(ready);
            ready = schema::begin_anew(dir, &why, &migrations::known())?;
            begin(&mut ready.conn, Box::new(|| Ok(())))
        }
        begun => begun,
    };
    let begun = begun.map_err(|source| StoreError::Sqlite {
        path: path.clone(),
        source,
    })?;
    let (loss, mark) = lost(&path, opener.role, &mut ready, reached, &begun);
    let losses = losses::beside(&path, loss.as_ref());
    let conn = ready.conn;
    let (to_deliver, scheduled) = (bell(begun.to_deliver), bell(begun.scheduled));
    let (commands, received) = inbox::inbox(COMMANDS);
    let (alive, answer) = (Arc::new(alive), Arc::new(answer));
    let (commits, closing) = (Arc::default(), Arc::<AtomicBool>::default());
    let verify = Verify::new(path.clone(), opener.give_way);
    let readers = Readers::new(readers::ReaderConfig {
        path: path.clone(),
        answer: Arc::clone(&answer),
        commits: Arc::clone(&commits),
        limits: faults.limits,
        give_way: opener.give_way,
        verify: verify.clone(),
        alive: Arc::clone(&alive),
        before: faults.reader,
    });
    let writer = writer::Writer::new(
        writer::WriterConfig {
            path: path.clone(),
            ours: opener.instance.to_owned(),
            role: opener.role,
            boot: opener.boot.map(str::to_owned),
            boot_ms: opener.boot_ms,
            keep: opener.keep,
            alive,
            answer,
            to_deliver: Arc::clone(&to_deliver),
            scheduled: Arc::clone(&scheduled),
            closing: Arc::clone(&closing),
            commits,
            readers: readers.clone(),
            verify,
            answers: opener.answers,
            fault: faults.writer,
        },
        conn,
        received,
        mark,
    );
    let writer = writer
        .spawn()
        .map_err(|source| StoreError::Io { path, source })?;
    Ok(Opened {
        store: Store {
            commands,
            readers,
            closing,
        },
        epoch: begun.epoch,
        last_seq: begun.last_seq,
        ended_jobs: begun.ended_jobs,
        fallbacks: begun.fallbacks,
        wall_ahead: begun.wall_ahead,
        orphans: begun.orphans,
        living: begun.living,
        loss,
        losses,
        to_deliver,
        scheduled,
        writer,
    })
}

impl Store {
    /// Hands a command to the writer, or a question to those who read, without waiting.
    ///
    /// # Errors
    /// When the queue is full, or whoever takes from it has ended.
    pub fn submit(&self, command: StoreCommand) -> Result<(), Refused> {
        if let StoreCommand::Load { token, query } = &command
            && !query.waits_for_writes()
        {
            match self.readers.submit(*token, query.clone()) {
                Ok(By::Readers) => return Ok(()),
                // Where no process can be made, what was stored is told all the same.
                Ok(By::Nobody) => {}
                Err(NotTaken::Full) => return Err(Refused::Full(Box::new(command))),
                Err(NotTaken::Closed) => return Err(Refused::Closed),
            }
        }
        let mut one = VecDeque::from([command]);
        self.submit_together(&mut one)?;
        let left = one.pop_front().map(|left| Refused::Full(Box::new(left)));
        left.map_or(Ok(()), Err)
    }

    /// Hands in as many commands as there is room for, for one commit; the others stay where they are.
    /// Fails when the writer has ended.
    pub fn submit_together(&self, commands: &mut VecDeque<StoreCommand>) -> Result<(), Refused> {
        let sent = self
            .commands
            .try_send_together(commands, WriterMessage::Commands);
        sent.map_err(|_gone| Refused::Closed)
    }

    /// Asks the writer for a sign of life: one that can't write gives it, one that hangs doesn't.
    ///
    /// # Errors
    /// When its queue is full, or it has ended.
    pub fn beat(&self, heard: oneshot::Sender<()>) -> Result<(), NotTaken> {
        self.hand_in(WriterMessage::Beat(heard))
    }

    /// Are the store's files still there? With a full queue its next commit looks.
    pub fn look(&self) {
        let _next_time = self.hand_in(WriterMessage::Look);
    }

    fn hand_in(&self, message: WriterMessage) -> Result<(), NotTaken> {
        self.commands
            .try_send(message)
            .map_err(|refused| match refused {
                TrySendError::Full(_) => NotTaken::Full,
                TrySendError::Disconnected(_) => NotTaken::Closed,
            })
    }

    /// Commits everything ordered so far, closes the file and waits for the writer to end.
    ///
    /// Blocks; what a full disk refuses to the last is lost, and logged.
    pub fn close(self, writer: JoinHandle<()>) {
        // The last connection writes the log back, and that is the writer's.
        self.readers.close();
        self.closing.store(true, Ordering::Relaxed);
        // A writer that has ended already has nothing to be told.
        // Whatever waits there: a full queue must not keep the store open.
        let _ended = self.commands.send(WriterMessage::Close);
        if writer.join().is_err() {
            tracing::error!("the store's writer panicked");
        }
    }
}
