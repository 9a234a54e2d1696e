//! A copy of the whole store, made beside the writer.
//!
//! Owns the thread, the copy's file and its connection, which only reads the store. What was
//! committed before the copy began is in it. Must not know who asked.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use agentd_base::clock::wall_ms;
use agentd_core::ids::Token;
use agentd_core::store::{BackupPlan, Loaded};
use agentd_core::{Event, rfc3339};
use rusqlite::{Connection, InterruptHandle, OpenFlags};

use super::Answer;
use super::backup_plan::{self, Planned};
use super::memory;
use super::schema::{beside, remove, reopen_to_read};

/// A copy that is told to stop does, if its disk answers.
const GIVES_UP_WITHIN: Duration = Duration::from_secs(2);
/// Where copies go that nobody gave a place.
const DIR: &str = "backups";

/// The copy that is being made, if one is.
pub(super) struct Backups {
    store: PathBuf,
    answer: Arc<Answer>,
    answers: fn(&Path) -> bool,
    running: Option<RunningCopy>,
}

struct RunningCopy {
    thread: JoinHandle<()>,
    interrupt: InterruptHandle,
    /// True before the answer is given: who has it may ask for the next copy.
    done: Arc<AtomicBool>,
    /// It was told to stop: that it isn't made says nothing of the next one.
    given_up: Arc<AtomicBool>,
}

impl RunningCopy {
    fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.interrupt.interrupt();
    }
}

impl Backups {
    /// Of the store at `store`; `answers` says whether a directory does.
    pub(super) fn new(store: PathBuf, answer: Arc<Answer>, answers: fn(&Path) -> bool) -> Self {
        Self {
            store,
            answer,
            answers,
            running: None,
        }
    }

    /// Begins a copy; its end is answered whenever it comes.
    pub(super) fn begin(&mut self, token: Token, path: Option<&str>, plan: Option<BackupPlan>) {
        let answer = Arc::clone(&self.answer);
        let told = move |loaded| answer(Event::Loaded { token, loaded }.into());
        // Whoever ends a plan wants no copy.
        if plan.is_some_and(|plan| plan.every_s == 0) {
            self.planned_is_well();
            let (path, bytes) = (String::new(), 0);
            return told(Loaded::Backup { path, bytes });
        }
        let path = path.map(PathBuf::from);
        let to = match plan {
            None => To::File(path),
            Some(plan) => To::Planned(Planned::new(plan, dir_of(&self.store, path))),
        };
        self.copy(to, told);
    }

    /// Begins one that nobody asked for, if it is time for it.
    pub(super) fn begin_planned(&mut self, planned: Planned) {
        if self.is_running() {
            return;
        }
        self.copy(To::Due(planned), |loaded| match loaded {
            Loaded::Backup { path, bytes } => tracing::info!(path, bytes, "the store is copied"),
            Loaded::Failed(why) | Loaded::Refused(why) => {
                tracing::error!(why, "the store can't be copied as planned");
            }
            _other => {}
        });
    }

    /// No plan is there any more that could go wrong.
    fn planned_is_well(&self) {
        tell(&self.store, &self.answer, None);
    }

    fn is_running(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| !running.done.load(Ordering::Acquire))
    }

    fn copy(&mut self, to: To, told: impl Fn(Loaded) + Send + Sync + 'static) {
        if self.is_running() {
            let why = "a backup is being made already: wait for its end".to_owned();
            return told(Loaded::Failed(why));
        }
        let (store, answers) = (self.store.clone(), self.answers);
        let answer = Arc::clone(&self.answer);
        let conn = match reopen_to_read(&self.store) {
            Ok(conn) => conn,
            Err(error) => {
                let why = format!("the store can't be opened for a backup: {error}");
                return told(Loaded::Failed(why));
            }
        };
        let interrupt = conn.get_interrupt_handle();
        let told = Arc::new(told);
        let made_it = Arc::clone(&told);
        let done = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&done);
        let given_up = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&given_up);
        let thread = std::thread::Builder::new()
            .name("backup".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || {
                let copied = copy(&conn, &store, &to, answers);
                let is_end = copied.is_ok() || !stops.load(Ordering::Acquire);
                if let Some(lacks) = to.lacks(&copied).filter(|_| is_end) {
                    tell(&store, &answer, lacks.as_deref());
                }
                over.store(true, Ordering::Release);
                match copied {
                    Ok(Some(made)) => made_it(made.told()),
                    Ok(None) => {}
                    Err(why) => made_it(why.told()),
                }
            });
        match thread {
            Ok(thread) => {
                self.running = Some(RunningCopy {
                    thread,
                    interrupt,
                    done,
                    given_up,
                });
            }
            Err(error) => told(Loaded::Failed(format!("no backup can be begun: {error}"))),
        }
    }

    /// Too much is written meanwhile, and the log can't begin anew while it is read.
    pub(super) fn give_up(&self) {
        if let Some(running) = &self.running {
            running.give_up();
        }
    }

    /// Gives up what is not done yet. A copy on a disk that doesn't answer is left to itself: nobody
    /// waits for that to end.
    pub(super) fn close(&mut self) {
        if let Some(running) = self.running.take() {
            running.give_up();
            let until = Instant::now() + GIVES_UP_WITHIN;
            // A thread can't be joined with a limit, so it is looked at.
            while !running.thread.is_finished() && Instant::now() < until {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            if !running.thread.is_finished() {
                tracing::warn!("a backup's disk does not answer: it is left unfinished");
            } else if running.thread.join().is_err() {
                tracing::error!("a backup panicked");
            }
        }
    }
}

/// Where a copy goes.
enum To {
    /// There; to a name with the time without one.
    File(Option<PathBuf>),
    /// To such a name in the directory of a plan, and older ones go.
    Planned(Planned),
    /// The same, if it is time for it.
    Due(Planned),
}

impl To {
    /// What is to be told of the copies of a plan from now on, if that is known by this one.
    fn lacks(&self, copied: &Result<Option<Made>, NoCopy>) -> Option<Option<String>> {
        if matches!(self, Self::File(_)) {
            return None;
        }
        match copied {
            Ok(None) => None,
            Ok(Some(made)) => Some(made.lacks.as_ref().map(|why| {
                format!("the last planned backup was made without timmy's sessions: {why}")
            })),
            Err(NoCopy::Place(why) | NoCopy::Work(why)) => {
                Some(Some(format!("the last planned backup failed: {why}")))
            }
        }
    }
}

/// Notes what is wrong with planned copies, and has `status` say it.
fn tell(store: &Path, answer: &Answer, lacks: Option<&str>) {
    let dir = store.parent().unwrap_or(store);
    if backup_plan::backups_lack(dir).as_deref() == lacks {
        return;
    }
    if let Err(error) = backup_plan::note(store, lacks) {
        tracing::warn!(%error, "what is wrong with planned backups can't be noted");
    }
    let lacks = lacks.map(str::to_owned);
    answer(Event::BackupsLack { lacks }.into());
}

/// The directory of a plan.
fn dir_of(store: &Path, path: Option<PathBuf>) -> PathBuf {
    path.unwrap_or_else(|| store.with_file_name(DIR))
}

/// A plan for the store of a connection.
pub(super) fn planned(
    conn: &Connection,
    path: Option<&str>,
    plan: BackupPlan,
) -> rusqlite::Result<Planned> {
    let unnamed = || rusqlite::Error::InvalidPath(PathBuf::new());
    let store = conn.path().map(Path::new).ok_or_else(unnamed)?;
    Ok(Planned::new(plan, dir_of(store, path.map(PathBuf::from))))
}

/// Why there is no copy.
enum NoCopy {
    /// The path was wrong, and stays so.
    Place(String),
    /// Something else failed, and may succeed later.
    Work(String),
}

impl NoCopy {
    fn told(self) -> Loaded {
        match self {
            Self::Place(why) => Loaded::Refused(why),
            Self::Work(why) => Loaded::Failed(why),
        }
    }
}

/// The file that is to be made, in a directory that answers; none if it isn't time for it.
fn place(store: &Path, to: &To, answers: fn(&Path) -> bool) -> Result<Option<PathBuf>, NoCopy> {
    let dir = match to {
        To::File(Some(path)) => path.parent().unwrap_or(path).to_owned(),
        To::File(None) => dir_of(store, None),
        To::Planned(planned) | To::Due(planned) => planned.dir.clone(),
    };
    if !dir.is_absolute() {
        let why = format!("`{}` is not an absolute path", dir.display());
        return Err(NoCopy::Place(why));
    }
    // Before anything there is touched: a dead mount would hold this thread for good, and no other
    // copy would ever begin.
    if !answers(&dir) {
        let why = format!("`{}` does not answer: is its disk there?", dir.display());
        return Err(NoCopy::Work(why));
    }
    match to {
        To::File(Some(path)) => Ok(Some(path.clone())),
        To::File(None) => free_name(&dir).map(Some).map_err(NoCopy::Work),
        To::Due(planned) if !planned.is_due(SystemTime::now()) => Ok(None),
        To::Planned(_) | To::Due(_) => free_name(&dir).map(Some).map_err(NoCopy::Place),
    }
}

/// A copy that was made.
struct Made {
    path: PathBuf,
    bytes: u64,
    /// Why timmy's sessions aren't in it.
    lacks: Option<String>,
}

impl Made {
    fn told(self) -> Loaded {
        let path = self.path.to_string_lossy().into_owned();
        let bytes = self.bytes;
        Loaded::Backup { path, bytes }
    }
}

/// Makes it, if it is time for it. Until it is whole it has another name: whatever kills this
/// process, what has the name of a copy is one.
fn copy(
    conn: &Connection,
    store: &Path,
    to: &To,
    answers: fn(&Path) -> bool,
) -> Result<Option<Made>, NoCopy> {
    let Some(path) = place(store, to, answers)? else {
        return Ok(None);
    };
    let shown = path.display();
    if path.symlink_metadata().is_ok() {
        return Err(is_there(&path));
    }
    let partial = beside(&path, backup_plan::PARTIAL);
    backup_plan::remove_unfinished(&partial);
    let held = begin(&partial).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => NoCopy::Work(format!(
            "`{}` is there: is another backup of that name being made? Else delete it",
            partial.display()
        )),
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem => NoCopy::Place(format!(
            "can't make `{shown}`: {error}: name a file in a directory that can be written"
        )),
        _other => NoCopy::Work(format!("can't make `{shown}`: {error}")),
    })?;
    let failed = |why: String| NoCopy::Work(format!("can't make the backup `{shown}`: {why}"));
    let made = write_copy(conn, store, to, &partial)
        .map_err(failed)
        .and_then(|(bytes, lacks)| {
            let path = match lacks {
                Some(_) => backup_plan::incomplete(&path),
                None => path.clone(),
            };
            failpoint!("before-backup");
            publish(&partial, &path).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => is_there(&path),
                _other => failed(error.to_string()),
            })?;
            Ok(Made { path, bytes, lacks })
        });
    if made.is_err() {
        for left in [&partial, &beside(&partial, "-journal")] {
            // What can't be removed is of no use, and has no other harm in it.
            let _left = fs::remove_file(left);
        }
    }
    drop(held);
    if let (Ok(_), To::Planned(planned) | To::Due(planned)) = (&made, to) {
        planned.thin_out();
    }
    made.map(Some)
}

fn is_there(path: &Path) -> NoCopy {
    NoCopy::Place(format!(
        "`{}` is there already: name a file that isn't",
        path.display()
    ))
}

/// An empty file that is worked on as long as what this gives is kept.
fn begin(partial: &Path) -> io::Result<fs::File> {
    let held = private(partial)?;
    // Where files can't be locked, what is left after a kill stays.
    let _unlocked = held.try_lock();
    Ok(held)
}

/// Gives a whole copy its name, unless something has it by now.
fn publish(partial: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(partial, path) {
        Ok(()) => fs::remove_file(partial)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(error),
        // A file system without such links.
        Err(_) if path.symlink_metadata().is_err() => fs::rename(partial, path)?,
        Err(error) => return Err(error),
    }
    // Else the name may be gone after a power cut.
    sync(path.parent().unwrap_or(Path::new("/")))
}

/// How long it is, and why timmy's sessions aren't in it.
fn write_copy(
    conn: &Connection,
    store: &Path,
    to: &To,
    partial: &Path,
) -> Result<(u64, Option<String>), String> {
    write_into(conn, partial)?;
    another_history(partial).map_err(|error| error.to_string())?;
    // After the store: a session that timmy knows a turn more of can go on, one that it doesn't
    // know can't.
    let lacks = match remember(store, partial) {
        Ok(()) => None,
        Err(error) if !matches!(to, To::Due(_)) => {
            let file = memory::file_of(store);
            return Err(format!(
                "timmy's sessions can't be copied: {error}; for a copy without them move `{}` away",
                file.display()
            ));
        }
        // Nobody is there to mend it: jobs without what timmy remembers are better than nothing.
        Err(error) => {
            tracing::error!(%error, "a planned backup is made without timmy's sessions");
            Some(error.to_string())
        }
    };
    sync(partial)
        .and_then(|()| fs::metadata(partial))
        .map(|copy| (copy.len(), lacks))
        .map_err(|error| error.to_string())
}

/// Adds what timmy remembers.
fn remember(store: &Path, partial: &Path) -> rusqlite::Result<()> {
    let copy = open_copy(partial)?;
    memory::add(store, &copy)?;
    copy.close().map_err(|(_, error)| error)
}

/// A copy that cursors into the store are right for.
pub(super) fn write_same(conn: &Connection, partial: &Path) -> Result<(), String> {
    remove(partial).map_err(|error| error.to_string())?;
    // With its mode from the first byte on; SQLite takes a file that is empty.
    private(partial).map_err(|error| error.to_string())?;
    let written = write_into(conn, partial);
    if written.is_err() {
        // A part of it takes room, and is of no use.
        let _left = fs::remove_file(partial);
    }
    written
}

fn write_into(conn: &Connection, partial: &Path) -> Result<(), String> {
    // Of one moment, whatever is written meanwhile, and without a log: bytes that are copied would
    // need the log, too, and both at rest.
    conn.execute("VACUUM INTO ?1", [partial.to_string_lossy()])
        .map_err(|error| error.to_string())?;
    sync(partial).map_err(|error| error.to_string())
}

/// Cursors into the store don't count in a store that goes on from the copy.
pub(super) fn another_history(copy: &Path) -> rusqlite::Result<()> {
    let copy = open_copy(copy)?;
    copy.execute(
        "UPDATE meta SET value = lower(hex(randomblob(8))) WHERE key = 'epoch'",
        [],
    )?;
    copy.close().map_err(|(_, error)| error)
}

fn open_copy(copy: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copy = Connection::open_with_flags(copy, flags)?;
    // Else a log is made beside the copy, which whoever moves the file would leave behind.
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    Ok(copy)
}

fn private(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
}

pub(super) fn sync(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// A name with the time in a directory, which is made if it has to be.
fn free_name(dir: &Path) -> Result<PathBuf, String> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| format!("can't make `{}`: {error}", dir.display()))?;
    let time = rfc3339(wall_ms()).replace([':', '-'], "");
    let mut path = dir.join(format!("agentd-{time}.db"));
    let mut next = 2;
    while path.exists() {
        path = dir.join(format!("agentd-{time}-{next}.db"));
        next += 1;
    }
    Ok(path)
}
