//! The file that sessions and cool-downs are kept in.
//!
//! Owns its thread, its commits, and the lock by which a session is open in one process only. Must
//! not know models.
//!
//! Several processes share the file. What is asked at the same time is committed together. A
//! session that is open holds one byte of the file `timmy.lock`, which the kernel gives back when
//! its process dies; and each message has its number, so that two histories could not be mixed even
//! without the lock.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use agentd_base::clock;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tokio::sync::oneshot;

use super::history::History;
use super::lock::{Locks, Open, lock};
use super::rows::{self, Which};
use super::schema::prepare;
use super::{Basis, Session};
use crate::failover::cooldown::Cooldown;
use crate::message::Message;
use crate::tool::anchor::Led;

/// What is committed at once, at most: nobody waits for more than so many others.
const TOGETHER: usize = 64;
/// What waits at once, at most: every turn waits for its own, and there are fewer turns.
const WAITING: usize = 1024;
/// A session that nobody used for so long is forgotten.
const UNUSED: Duration = Duration::from_secs(90 * 24 * 3600);
/// Messages of all sessions; beyond, those unused for longest are forgotten.
const MOST_BYTES: u64 = 512 * 1024 * 1024;
/// Sessions forgotten at once: nobody waits for more.
const FORGOTTEN_AT_ONCE: usize = 200;

/// Why something wasn't kept or found.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The session is open in this process or another one.
    #[error("the session is open in another turn or process; wait for it, or abort it")]
    Open,
    /// Somebody else has added to the session.
    #[error("the session was changed by another process; nothing was added")]
    Changed,
    /// No room.
    #[error("there is no room for `{0}`: {1}")]
    Full(PathBuf, String),
    /// Anything else.
    #[error("can't use `{0}`: {1}")]
    Failed(PathBuf, String),
}

/// What a commit has to outlive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Durability {
    /// A power cut.
    Synced,
    /// The end of the process: what costs nothing to say again doesn't wait for the disk.
    Unsynced,
}

/// Something to do within a transaction.
struct StoreTask {
    durability: Durability,
    work: Work,
}

/// It is told of the commit afterwards.
type Work = Box<dyn FnOnce(Result<&Connection, &StoreError>) -> AfterCommit + Send>;
type AfterCommit = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// The file, for everybody in this process.
#[derive(Debug)]
pub(crate) struct Store {
    work: SyncSender<StoreTask>,
    directory: PathBuf,
    open: Arc<Locks>,
    tidied: AtomicBool,
    used: AtomicBool,
}

/// Where a turn was added.
pub(crate) struct AddedTurn {
    pub(crate) native: String,
    /// The session is new.
    pub(crate) made: bool,
}

/// Where an open session is kept.
pub(crate) struct Kept {
    store: Arc<Store>,
    native: String,
    open: Open,
}

impl Store {
    /// The store in this directory, which is made when it is needed.
    pub(crate) fn new(directory: PathBuf) -> Self {
        let (work, orders) = sync_channel(WAITING);
        let file = directory.clone();
        // The file is opened with the first order: a turn that is refused before makes none.
        std::thread::spawn(move || serve(&file, &orders));
        Self {
            work,
            directory,
            open: Arc::default(),
            tidied: AtomicBool::new(false),
            used: AtomicBool::new(false),
        }
    }

    /// Where output too long to be said goes, for one session.
    pub(crate) fn spill(&self, native: &str) -> PathBuf {
        self.directory.join("spill").join(native)
    }

    /// Makes a session that begins with these messages.
    ///
    /// # Errors
    /// The file can't be written; or the name was given meanwhile.
    pub(crate) async fn create(
        self: &Arc<Self>,
        name: Option<String>,
        basis: Basis,
        first: Vec<Message>,
    ) -> Result<Session, StoreError> {
        let (locks, directory) = (Arc::clone(&self.open), self.directory.clone());
        let text: Vec<String> = first.iter().map(written).collect();
        let own = basis.clone();
        let (native, open) = self
            .run(move |conn, failed| {
                let now = wall_ms();
                let made = rows::create(conn, name.as_deref(), &own, now);
                let (id, native) = made.map_err(failed)?;
                let open = lock(&locks, &directory, id)?;
                // In the same transaction as the row: a session without a word is never seen.
                rows::append(conn, id, 0, &text, now).map_err(failed)?;
                Ok((native, open))
            })
            .await?;
        let store = Arc::clone(self);
        let kept = Kept {
            store,
            native,
            open,
        };
        Ok(Session::kept(kept, History::new(None, first, 0), basis))
    }

    /// Makes a session that has what another one has, which is left as it is; none if that isn't there.
    ///
    /// # Errors
    /// The file can't be read or written.
    pub(crate) async fn copy(&self, native: String) -> Result<Option<String>, StoreError> {
        self.run(move |conn, failed| rows::copy(conn, &native, wall_ms()).map_err(failed))
            .await
    }

    /// Opens a session; none if it isn't there.
    ///
    /// # Errors
    /// It is open elsewhere, or can't be read.
    pub(crate) async fn open(
        self: &Arc<Self>,
        which: Which,
    ) -> Result<Option<Session>, StoreError> {
        let (locks, directory) = (Arc::clone(&self.open), self.directory.clone());
        let found = self
            .run(move |conn, failed| {
                let Some(found) = rows::find(conn, &which).map_err(failed)? else {
                    return Ok(None);
                };
                // Before they are read: else another process could add one in between.
                let open = lock(&locks, &directory, found.id)?;
                let messages = rows::messages(conn, found.id).map_err(failed)?;
                Ok(Some((found, messages, open)))
            })
            .await?;
        Ok(found.map(|(found, messages, open)| {
            let kept = Kept {
                store: Arc::clone(self),
                native: found.native,
                open,
            };
            let history = History::new(found.summary, messages, found.first);
            Session::kept(kept, history, found.basis)
        }))
    }

    /// Is a session there?
    ///
    /// # Errors
    /// It can't be read.
    pub(crate) async fn has(&self, which: Which) -> Result<bool, StoreError> {
        self.run(move |conn, failed| {
            let found = rows::find(conn, &which).map_err(failed)?;
            Ok(found.is_some())
        })
        .await
    }

    /// Adds a turn that no model had, whole: to the session that is meant, or to a new one, which is
    /// made without what a model is told first. It doesn't wait for the disk.
    ///
    /// # Errors
    /// Nothing was added.
    pub(crate) async fn add_turn(
        &self,
        to: Option<Which>,
        turn: &[Message],
    ) -> Result<AddedTurn, StoreError> {
        let (locks, directory) = (Arc::clone(&self.open), self.directory.clone());
        let turn: Vec<String> = turn.iter().map(written).collect();
        self.run_as(Durability::Unsynced, move |conn, failed| {
            let now = wall_ms();
            let found = to.as_ref().map(|which| rows::find(conn, which));
            let (id, native, at, made) = match (found.transpose().map_err(failed)?.flatten(), to) {
                (Some(found), _) => {
                    let at = rows::next(conn, found.id, found.first).map_err(failed)?;
                    (found.id, found.native, at, false)
                }
                // It was announced, and is gone.
                (None, Some(Which::Native(_))) => return Err(StoreError::Changed),
                (None, to) => {
                    let name = match &to {
                        Some(Which::Name(name)) => Some(name.as_str()),
                        Some(Which::Native(_)) | None => None,
                    };
                    let made = rows::create(conn, name, &Basis::default(), now);
                    let (id, native) = made.map_err(failed)?;
                    (id, native, 0, true)
                }
            };
            // Open elsewhere it is being added to.
            let _open = lock(&locks, &directory, id)?;
            rows::append(conn, id, at, &turn, now).map_err(failed)?;
            Ok(AddedTurn { native, made })
        })
        .await
    }

    /// Every cool-down there is.
    ///
    /// # Errors
    /// It can't be read.
    pub(crate) async fn cooldowns(&self) -> Result<Vec<Cooldown>, StoreError> {
        self.run(|conn, failed| rows::cooldowns(conn).map_err(failed))
            .await
    }

    /// Leaves a provider or a model alone.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) async fn cool(&self, cooldown: Cooldown) -> Result<(), StoreError> {
        self.run(move |conn, failed| rows::cool(conn, &cooldown).map_err(failed))
            .await
    }

    /// It answered what it was asked at this time of the wall clock, in milliseconds: no cool-down
    /// of before counts any more.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) async fn warm(
        &self,
        provider: String,
        model: String,
        asked: u64,
    ) -> Result<(), StoreError> {
        self.run(move |conn, failed| rows::warm(conn, &provider, &model, asked).map_err(failed))
            .await
    }

    /// Is there nothing to forget? Where nothing was kept, nothing is looked for either.
    pub(crate) fn is_tidy(&self) -> bool {
        self.tidied.load(Ordering::Relaxed) || !self.used.load(Ordering::Relaxed)
    }

    /// Forgets what is old, once in the life of this process: there is no hurry.
    pub(crate) async fn tidy(&self) {
        if !self.is_tidy() && !self.tidied.swap(true, Ordering::Relaxed) {
            // Whoever can't be written now is tidied by the next process.
            let _later = self.forget_old().await;
        }
    }

    /// Forgets sessions that nobody used for long, and the oldest when all are too large. One that
    /// is open anywhere stays.
    ///
    /// # Errors
    /// It can't be written.
    async fn forget_old(&self) -> Result<usize, StoreError> {
        self.forget(wall_ms(), UNUSED, MOST_BYTES).await
    }

    async fn forget(&self, now: u64, unused: Duration, bytes: u64) -> Result<usize, StoreError> {
        let (locks, directory) = (Arc::clone(&self.open), self.directory.clone());
        let before = now.saturating_sub(u64::try_from(unused.as_millis()).unwrap_or(u64::MAX));
        let gone = self
            .run(move |conn, failed| {
                let mut gone = Vec::new();
                for (id, native) in
                    rows::old(conn, before, bytes, FORGOTTEN_AT_ONCE).map_err(failed)?
                {
                    // Somebody has it open, and so uses it.
                    let Ok(open) = lock(&locks, &directory, id) else {
                        continue;
                    };
                    rows::forget(conn, id).map_err(failed)?;
                    gone.push((native, open));
                }
                Ok(gone)
            })
            .await?;
        for (native, _open) in &gone {
            // Most have none.
            let _none = std::fs::remove_dir_all(self.spill(native));
        }
        Ok(gone.len())
    }

    /// Runs something on the file's thread; when this returns it is on the disk.
    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection, Failing<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run_as(Durability::Synced, job).await
    }

    /// Runs something on the file's thread; when this returns it is committed.
    async fn run_as<T: Send + 'static>(
        &self,
        durability: Durability,
        job: impl FnOnce(&Connection, Failing<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tell, told) = oneshot::channel();
        let directory = self.directory.clone();
        let work: Work = Box::new(move |conn| {
            // Without the file every job is told so, and none is left waiting.
            let done = match conn {
                Ok(conn) => apart(conn, &|why| failed(&directory, &why), job),
                Err(why) => Err(why.clone()),
            };
            Box::new(move |committed| {
                // Whoever asked may have been cancelled.
                let _gone = tell.send(committed.and(done));
            })
        });
        let failed = |why: &str| StoreError::Failed(self.directory.clone(), why.to_owned());
        self.used.store(true, Ordering::Relaxed);
        let task = StoreTask { durability, work };
        self.work.try_send(task).map_err(|refused| match refused {
            TrySendError::Full(_) => failed("too much waits for its disk"),
            TrySendError::Disconnected(_) => failed("its thread is gone"),
        })?;
        told.await.map_err(|_| failed("its thread is gone"))?
    }
}

impl Kept {
    pub(crate) fn native(&self) -> &str {
        &self.native
    }

    /// Adds messages from this number on.
    ///
    /// # Errors
    /// Nothing was added.
    pub(crate) async fn append(&self, at: u64, messages: &[Message]) -> Result<(), StoreError> {
        let messages: Vec<String> = messages.iter().map(written).collect();
        let id = self.open.id();
        self.store
            .run(move |conn, failed| {
                rows::append(conn, id, at, &messages, wall_ms()).map_err(|why| match why {
                    // Forgotten, or of another one's hand.
                    rusqlite::Error::QueryReturnedNoRows => StoreError::Changed,
                    why if why.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                        StoreError::Changed
                    }
                    why => failed(why),
                })
            })
            .await
    }

    /// Notes what a model is told before anything else.
    ///
    /// # Errors
    /// It isn't noted.
    pub(crate) async fn begin(&self, basis: &Basis) -> Result<(), StoreError> {
        let (id, basis) = (self.open.id(), basis.clone());
        self.store
            .run(move |conn, failed| rows::begin(conn, id, &basis).map_err(failed))
            .await
    }

    /// Notes where the names of its directories lead.
    ///
    /// # Errors
    /// It isn't noted.
    pub(crate) async fn remember(&self, led: &Led) -> Result<(), StoreError> {
        let (id, led) = (self.open.id(), led.clone());
        self.store
            .run(move |conn, failed| rows::remember(conn, id, &led).map_err(failed))
            .await
    }

    /// Puts a summary in the place of the messages before this number.
    ///
    /// # Errors
    /// Nothing was changed.
    pub(crate) async fn compact(&self, summary: &str, first: u64) -> Result<(), StoreError> {
        let (id, summary) = (self.open.id(), summary.to_owned());
        self.store
            .run(move |conn, failed| rows::compact(conn, id, &summary, first).map_err(failed))
            .await
    }
}

/// Our own messages can always be written down.
fn written(message: &Message) -> String {
    serde_json::to_string(message).unwrap_or_default()
}

pub(super) fn failed(directory: &Path, why: &rusqlite::Error) -> StoreError {
    let file = directory.join("timmy.db");
    match why.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full(file, why.to_string()),
        _ => StoreError::Failed(file, why.to_string()),
    }
}

/// What becomes of an error of SQLite.
type Failing<'a> = &'a dyn Fn(rusqlite::Error) -> StoreError;

/// One job within a transaction of several: it fails alone.
fn apart<T>(
    conn: &Connection,
    failed: Failing<'_>,
    job: impl FnOnce(&Connection, Failing<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    conn.execute_batch("SAVEPOINT job").map_err(failed)?;
    let done = job(conn, failed);
    let end = if done.is_ok() {
        "RELEASE job"
    } else {
        // `ROLLBACK TO` undoes what was done since and leaves the savepoint there (SQLite,
        // "Savepoints").
        "ROLLBACK TO job; RELEASE job"
    };
    conn.execute_batch(end).map_err(failed)?;
    done
}

/// The file's thread: it ends with the store.
fn serve(directory: &Path, orders: &Receiver<StoreTask>) {
    let mut conn: Option<Connection> = None;
    // As it is opened.
    let mut set = Durability::Synced;
    while let Ok(first) = orders.recv() {
        let mut work = vec![first];
        while work.len() < TOGETHER
            && let Ok(next) = orders.try_recv()
        {
            work.push(next);
        }
        // Tried again with each order until it opens: a full disk or another process may be over by
        // then.
        if conn.is_none() {
            match prepare(directory) {
                Ok(ready) => conn = Some(ready),
                Err(why) => {
                    refuse(work, &why);
                    continue;
                }
            }
        }
        if let Some(conn) = &mut conn {
            commit(directory, conn, &mut set, work);
        }
    }
}

fn refuse(work: Vec<StoreTask>, why: &StoreError) {
    for one in work {
        (one.work)(Err(why))(Ok(()));
    }
}

/// Has commits from now on outlive what they have to.
fn set_durability(
    conn: &Connection,
    set: &mut Durability,
    wanted: Durability,
) -> rusqlite::Result<()> {
    if *set != wanted {
        // Of a commit that isn't synced the next one that is takes care: both are in one log.
        let synchronous = match wanted {
            Durability::Synced => "FULL",
            Durability::Unsynced => "NORMAL",
        };
        conn.pragma_update(None, "synchronous", synchronous)?;
        *set = wanted;
    }
    Ok(())
}

fn commit(directory: &Path, conn: &mut Connection, set: &mut Durability, work: Vec<StoreTask>) {
    let is_synced = |one: &StoreTask| one.durability == Durability::Synced;
    let wanted = match work.iter().any(is_synced) {
        true => Durability::Synced,
        false => Durability::Unsynced,
    };
    if let Err(why) = set_durability(conn, set, wanted) {
        return refuse(work, &failed(directory, &why));
    }
    // At once for writing: a transaction that reads first, and finds that another process has
    // written meanwhile, can't become one (`SQLITE_BUSY_SNAPSHOT`).
    let begun = conn.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = match begun {
        Ok(transaction) => transaction,
        Err(why) => {
            return refuse(work, &failed(directory, &why));
        }
    };
    // All are told after the commit, and the same: what one of them did wrong it alone is told.
    let told: Vec<AfterCommit> = (work.into_iter())
        .map(|one| (one.work)(Ok(&transaction)))
        .collect();
    let committed = transaction.commit().map_err(|why| failed(directory, &why));
    for tell in told {
        tell(committed.clone());
    }
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    clock::wall_ms().unsigned_abs()
}

#[cfg(test)]
mod tests;
