//! A copy of the whole store, made beside the writer.
//!
//! Owns the thread, the copy's file and its connection, which only reads the store. What was
//! committed before the copy began is in it. Must not know who asked.

use std::fs;
use std::io::ErrorKind;
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
use super::backup_plan::Planned;
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
        let conn = match reopen_to_read(&self.store) {
            Ok(conn) => conn,
            Err(error) => {
                let why = format!("the store can't be opened for a backup: {error}");
                return told(Loaded::Failed(why));
            }
        };
        let interrupt = conn.get_interrupt_handle();
        let told = Arc::new(told);
        let tell = Arc::clone(&told);
        let done = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&done);
        let thread = std::thread::Builder::new()
            .name("backup".to_owned())
            .stack_size(512 * 1024)
            .spawn(move || {
                let copied = copy(&conn, &store, &to, answers);
                over.store(true, Ordering::Release);
                match copied {
                    Ok(Some(made)) => tell(made),
                    Ok(None) => {}
                    Err(why) => tell(why.told()),
                }
            });
        match thread {
            Ok(thread) => {
                self.running = Some(RunningCopy {
                    thread,
                    interrupt,
                    done,
                });
            }
            Err(error) => told(Loaded::Failed(format!("no backup can be begun: {error}"))),
        }
    }

    /// Too much is written meanwhile, and the log can't begin anew while it is read.
    pub(super) fn give_up(&self) {
        if let Some(running) = &self.running {
            running.interrupt.interrupt();
        }
    }

    /// Gives up what is not done yet. A copy on a disk that doesn't answer is left to itself: nobody
    /// waits for that to end.
    pub(super) fn close(&mut self) {
        if let Some(running) = self.running.take() {
            running.interrupt.interrupt();
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

/// Makes it, if it is time for it.
fn copy(
    conn: &Connection,
    store: &Path,
    to: &To,
    answers: fn(&Path) -> bool,
) -> Result<Option<Loaded>, NoCopy> {
    let Some(path) = place(store, to, answers)? else {
        return Ok(None);
    };
    let shown = path.display();
    // Taken before the work begins; the copy replaces it when it is whole.
    private(&path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => NoCopy::Place(format!(
            "`{shown}` is there already: name a file that isn't"
        )),
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem => NoCopy::Place(format!(
            "can't make `{shown}`: {error}: name a file in a directory that can be written"
        )),
        _other => NoCopy::Work(format!("can't make `{shown}`: {error}")),
    })?;
    let partial = beside(&path, ".partial");
    let made = write_copy(conn, store, to, &partial).and_then(|bytes| {
        fs::rename(&partial, &path).map_err(|error| error.to_string())?;
        // Until its directory is synced, the name may lead to the empty file again after a power
        // cut.
        sync(path.parent().unwrap_or(Path::new("/"))).map_err(|error| error.to_string())?;
        Ok(bytes)
    });
    match made {
        Ok(bytes) => {
            if let To::Planned(planned) | To::Due(planned) = to {
                planned.thin_out();
            }
            let path = path.to_string_lossy().into_owned();
            Ok(Some(Loaded::Backup { path, bytes }))
        }
        Err(why) => {
            for left in [&partial, &beside(&partial, "-journal"), &path] {
                // What can't be removed is of no use, and has no other harm in it.
                let _left = fs::remove_file(left);
            }
            Err(NoCopy::Work(format!(
                "can't make the backup `{shown}`: {why}"
            )))
        }
    }
}

fn write_copy(conn: &Connection, store: &Path, to: &To, partial: &Path) -> Result<u64, String> {
    write_same(conn, partial)?;
    another_history(partial).map_err(|error| error.to_string())?;
    // After the store: a session that timmy knows a turn more of can go on, one that it doesn't
    // know can't.
    match remember(store, partial) {
        Ok(()) => {}
        Err(error) if !matches!(to, To::Due(_)) => {
            let file = memory::file_of(store);
            return Err(format!(
                "timmy's sessions can't be copied: {error}; for a copy without them move `{}` away",
                file.display()
            ));
        }
        // Nobody is there to mend it: jobs without what timmy remembers are better than nothing.
        Err(error) => tracing::error!(%error, "a planned backup is made without timmy's sessions"),
    }
    sync(partial)
        .and_then(|()| fs::metadata(partial))
        .map(|copy| copy.len())
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

fn private(path: &Path) -> std::io::Result<()> {
    fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    Ok(())
}

pub(super) fn sync(path: &Path) -> std::io::Result<()> {
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
