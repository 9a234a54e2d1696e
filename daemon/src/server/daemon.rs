//! The daemon: locks, socket, alias, signals.
//!
//! Owns the order in which they are taken and given back. Must not know requests.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentd_base::configuration::Taken;
use agentd_core::event::Origin;
use agentd_core::ids::ConnId;
use agentd_core::{Event, Served, Socket};
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::platform::lock::{Lock, LockError};
use crate::platform::log;
use crate::platform::manager;
use crate::platform::paths::{self, PathError, Paths};
use crate::platform::signals::{AtHangup, Stops};
use crate::server::alias::Alias;
use crate::server::listen::{self, Binding, SocketLock};
use crate::server::live::{LiveConfig, Loader};
use crate::server::owner::Arrival;
use crate::server::peer;
use crate::server::runtime::{Runtime, RuntimeError, StartOptions};
use crate::server::{dead_instances, facts, heartbeat, slow_start};
use crate::store::StoreError;

/// The socket file and the alias are looked at this often: `/tmp` is tidied by others.
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// A thread for what would hold up the runtime's own is kept so long: there always is one, then, and
/// work waits for it where the system has no room for another. Without any, tokio panics.
pub const THREADS_KEPT: Duration = CHECK_EVERY.saturating_add(Duration::from_secs(10));
/// A stop waits no longer for a look at them.
const KEPT_WITHIN: Duration = Duration::from_secs(1);
/// The daemon's lock, in the state directory.
pub const LOCK: &str = "daemon.lock";

/// Why the daemon can't come up.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Another one is there.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A directory or path is not as it must be.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The socket can't be bound.
    #[error("can't listen on `{}`: {source}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Store or instance.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Signals can't be heard.
    #[error("can't listen for signals: {0}")]
    Signals(io::Error),
    /// The store can't be copied to be read.
    #[error("can't copy the store in `{}`: {source}", state.display())]
    Copy {
        /// Where it is.
        state: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Why the state, or the socket's directory, can't be written at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unwritable {
    /// The disk is full, or the user's share of it.
    Full,
    /// The file system is read-only.
    ReadOnly,
    /// Another process keeps the store locked.
    Locked,
}

impl DaemonError {
    /// Is it something that may pass, so that the same succeeds later?
    #[must_use]
    pub fn unwritable(&self) -> Option<Unwritable> {
        let source = match self {
            Self::Runtime(RuntimeError::Store(StoreError::Locked { .. })) => {
                return Some(Unwritable::Locked);
            }
            Self::Lock(LockError::Io { source, .. })
            | Self::Path(PathError::Io { source, .. })
            | Self::Listen { source, .. }
            | Self::Runtime(
                RuntimeError::Instance { source, .. }
                | RuntimeError::Store(StoreError::Io { source, .. }),
            ) => source,
            _ => return None,
        };
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(Unwritable::Full),
            io::ErrorKind::ReadOnlyFilesystem => Some(Unwritable::ReadOnly),
            _ => None,
        }
    }
}

/// Where the daemon is and what it was told.
pub struct Options {
    /// Where things live.
    pub paths: Paths,
    /// Is the socket where it is by default, in a directory of ours?
    pub own_directory: bool,
    /// What the user configured.
    pub config: Config,
    /// How it is read again.
    pub loader: Loader,
}

/// Serves until told to stop.
///
/// # Errors
/// When it can't come up; once it is up, it ends well.
pub async fn run(options: Options) -> Result<(), DaemonError> {
    let started = Instant::now();
    // Before all that may take its time: till then a terminal that hangs up would be the end.
    let hangups = signal(SignalKind::hangup()).map_err(DaemonError::Signals)?;
    let Options {
        paths:
            Paths {
                socket,
                state,
                env_file,
                ..
            },
        own_directory,
        config,
        loader,
    } = options;
    // Before any lock: where it is says which socket the locks are about.
    let inherited = Inherited::take(&socket)?;
    let socket = inherited.as_ref().map_or(socket, Inherited::path);
    paths::check_socket_length(&socket, here())?;
    let starting = slow_start::watch(&state);
    paths::private_dir(&state)?;
    // Before the log's file, which two would rotate away from each other, and before the store.
    let mut lock = Lock::take(&state.join(LOCK), &socket)?;
    lock.begin_with(Taken::now(&config.file));
    log::keep_in(&state);
    let (files, now) = listen::raise_file_limit().map_err(|source| DaemonError::Listen {
        path: socket.clone(),
        source,
    })?;
    let alias = config.alias.clone();
    let options = StartOptions {
        state_dir: state,
        socket: Some(socket.clone()),
        served: Served::Daemon,
        stays: match inherited {
            Some(_) => Socket::Stays,
            None => Socket::Ours,
        },
        nested: false,
        config,
        reload: Some((loader, env_file)),
        file_limit: Some(files),
        lock: Some(lock),
        started,
    };
    // The socket comes first, so that whoever starts the daemon can connect; they are answered when
    // the store is open.
    let (listening, listener) = match inherited {
        Some(Inherited { listener, .. }) => (Listening::Inherited { is_there: true }, listener),
        None => Listening::open(&socket, own_directory)?,
    };
    let runtime = Runtime::start(options)?;
    drop(starting);
    let stop = CancellationToken::new();
    listen_for_signals(&runtime, hangups)?;
    let (replace, replacements) = mpsc::channel(1);
    // Whoever connects to a socket that outlives us waits for the next daemon, from the moment
    // this one stops; otherwise there may be none, and they are told.
    let until = match listening {
        Listening::Inherited { .. } => runtime.stopping.clone(),
        Listening::Bound(..) => stop.clone(),
    };
    accept(&runtime, listener, replacements, now, until);
    let keeper = Keeper {
        listening,
        socket: socket.clone(),
        alias: alias.map(|path| Alias::new(path, socket.clone())),
        replace,
    };
    // Its first look makes the alias, which may lie where a disk is slow.
    let live = runtime.context().live;
    let keeping = runtime.tracker.spawn(keeper.keep(stop.clone(), live));
    tracing::info!(
        "agentd {} serves `{}`",
        env!("CARGO_PKG_VERSION"),
        socket.display()
    );
    manager::ready(&socket);
    beat(&runtime, &stop);
    watch_neighbours(&runtime, &stop);
    let (owner, teardown) = runtime.into_parts();
    let store = owner.run().await;
    stop.cancel();
    // It takes the socket and the alias away, which nobody may do after the lock is gone.
    let _panicked = keeping.await;
    teardown.finish(store).await;
    Ok(())
}

/// Takes over what other instances leave that die while we live.
fn watch_neighbours(runtime: &Runtime, stop: &CancellationToken) {
    let neighbours = dead_instances::watch(
        runtime.state_dir().to_owned(),
        runtime.instance().to_owned(),
        runtime.others.clone(),
        runtime.left_behind.clone(),
        runtime.inbox.clone(),
        Arc::clone(&runtime.to_deliver),
        stop.clone(),
    );
    runtime.tracker.spawn(neighbours);
}

/// Tells the service manager that the owner answers, if it wants to know.
fn beat(runtime: &Runtime, stop: &CancellationToken) {
    if let Some(every) = manager::beat_every() {
        let (beats, stopping) = (runtime.beats.clone(), runtime.stopping.clone());
        let beating = heartbeat::keep(every, beats, stopping, stop.clone());
        runtime.tracker.spawn(beating);
    }
}

const fn here() -> paths::Os {
    if cfg!(target_os = "macos") {
        paths::Os::MacOs
    } else {
        paths::Os::Linux
    }
}

/// A socket on which the service manager listened before we came, and will when we are gone.
struct Inherited {
    listener: UnixListener,
    path: PathBuf,
}

impl Inherited {
    /// Takes it, if there is one. Where it is, it says itself; `socket` is for one without a name.
    fn take(socket: &Path) -> Result<Option<Self>, DaemonError> {
        let failed = |source| DaemonError::Listen {
            path: socket.to_owned(),
            source,
        };
        let Some(listener) = listen::from_service_manager().map_err(failed)? else {
            return Ok(None);
        };
        let address = listener.local_addr().map_err(failed)?;
        let path = address.as_pathname().unwrap_or(socket).to_owned();
        Ok(Some(Self { listener, path }))
    }

    fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

type Prepare = Box<dyn Fn(&Path) -> io::Result<()> + Send>;

/// The socket, however it came to us.
enum Listening {
    /// Bound by us, under the lock at this path.
    Bound(Box<Binding<Lock, Prepare>>, PathBuf),
    /// Handed in by the service manager, who keeps it, and the alias with it. The file may be gone.
    Inherited { is_there: bool },
}

impl Listening {
    fn open(socket: &Path, own_directory: bool) -> Result<(Self, UnixListener), DaemonError> {
        let failed = |source| DaemonError::Listen {
            path: socket.to_owned(),
            source,
        };
        let make_private = move |dir: &Path| {
            if own_directory || !dir.exists() {
                paths::private_dir(dir)
            } else {
                Ok(())
            }
        };
        if let Some(dir) = socket.parent() {
            make_private(dir)?;
        }
        let prepare: Prepare = Box::new(move |dir| make_private(dir).map_err(io::Error::other));
        let mut beside = socket.as_os_str().to_owned();
        beside.push(".lock");
        let beside = PathBuf::from(beside);
        let lock = Lock::take(&beside, socket)?;
        let (binding, listener) =
            Binding::new(socket.to_owned(), SocketLock(lock), prepare).map_err(failed)?;
        Ok((Self::Bound(Box::new(binding), beside), listener))
    }

    /// Makes sure that the socket is there and ours; gives the listener that took its place.
    fn check(&mut self, socket: &Path) -> Result<Option<UnixListener>, DaemonError> {
        let (binding, beside) = match self {
            Self::Bound(binding, beside) => (binding, beside),
            Self::Inherited { is_there } => {
                let before = std::mem::replace(is_there, socket.exists());
                if before && !*is_there {
                    tracing::error!(
                        "the socket was taken away; `agentctl service restart` makes it again"
                    );
                }
                return Ok(None);
            }
        };
        let failed = |source| DaemonError::Listen {
            path: socket.to_owned(),
            source,
        };
        if !binding.lock().is_at(beside) {
            // Whoever took it away took the socket, too, or the directory around both.
            binding.prepare().map_err(failed)?;
            binding.relock(Lock::take(beside, socket)?);
        }
        binding.check().map_err(failed)
    }
}

fn listen_for_signals(runtime: &Runtime, mut hangups: Signal) -> Result<(), DaemonError> {
    let mut stops = Stops::listen(AtHangup::Stay).map_err(DaemonError::Signals)?;
    let inbox = runtime.inbox.clone();
    let live = runtime.context().live;
    // Not tracked: it waits for a signal that may never come.
    #[expect(clippy::disallowed_methods, reason = "stop must not wait for it")]
    let _listening = tokio::spawn(async move {
        loop {
            tokio::select! {
                () = stops.next() => if inbox.send(Event::StopAsked).await.is_err() {
                    return;
                },
                Some(()) = hangups.recv() => {
                    tracing::info!("SIGHUP: the configuration is looked at");
                    look_at(live.as_ref()).await;
                }
            }
        }
    });
    Ok(())
}

async fn look_at(live: Option<&Arc<LiveConfig>>) {
    if let Some(live) = live.filter(|live| live.may_have_changed()) {
        live.take().await;
    }
}

fn accept(
    runtime: &Runtime,
    listener: UnixListener,
    replacements: mpsc::Receiver<UnixListener>,
    files: u64,
    stop: CancellationToken,
) {
    let slots = listen::slots(files);
    let unheard = Arc::new(listen::Unheard::default());
    let (tracker, inbox, arrivals) = (
        runtime.tracker.clone(),
        runtime.inbox.clone(),
        runtime.arrivals.clone(),
    );
    let context = runtime.context();
    let mut next = 0_u64;
    let on_conn = move |stream: tokio::net::UnixStream,
                        peer: Option<listen::PeerProcess>,
                        slot: listen::Slot| {
        next += 1;
        let conn = ConnId(next);
        let (commands, receiver) = mpsc::channel(peer::COMMANDS);
        // The owner hears of a connection before any request of it can come.
        if arrivals
            .try_send(Arrival {
                conn,
                origin: Origin::Socket,
                commands,
            })
            .is_err()
        {
            // The owner is gone or far behind: the client sees the connection close.
            return;
        }
        let config = facts::peer_config(context.clone(), peer);
        let inbox = inbox.clone();
        let (reader, writer) = stream.into_split();
        tracker.spawn(async move {
            peer::serve(
                conn,
                Origin::Socket,
                reader,
                writer,
                inbox,
                receiver,
                config,
            )
            .await;
            drop(slot);
        });
    };
    runtime.tracker.spawn(listen::accept_loop(
        listener,
        replacements,
        slots,
        unheard,
        on_conn,
        stop,
    ));
}

/// Looks after the files that lead to us.
struct Keeper {
    listening: Listening,
    socket: PathBuf,
    alias: Option<Alias>,
    replace: mpsc::Sender<UnixListener>,
}

impl Keeper {
    /// Looks beside the runtime's thread: the alias may be anywhere.
    async fn keep(self, stop: CancellationToken, live: Option<Arc<LiveConfig>>) {
        let every = check_every();
        let mut keeper = self;
        loop {
            let looking = tokio::task::spawn_blocking(move || {
                keeper.check();
                keeper
            });
            let in_time = async {
                stop.cancelled().await;
                tokio::time::sleep(KEPT_WITHIN).await;
            };
            keeper = tokio::select! {
                Ok(looked) = looking => looked,
                () = in_time => return,
                else => return,
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = look_at(live.as_ref()) => {}
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(every) => {}
            }
        }
        let leaving = tokio::task::spawn_blocking(move || keeper.leave());
        let _late = tokio::time::timeout(KEPT_WITHIN, leaving).await;
    }

    fn leave(self) {
        if let Listening::Bound(binding, _) = self.listening {
            if let Some(alias) = &self.alias {
                alias.remove();
            }
            binding.unlink();
        }
    }

    fn check(&mut self) {
        match self.listening.check(&self.socket) {
            Ok(None) => {}
            Ok(Some(listener)) => {
                tracing::warn!("the socket was taken away and is there again");
                let _stopping = self.replace.try_send(listener);
            }
            Err(error) => {
                tracing::error!(%error, "the socket was taken away and can't be bound again")
            }
        }
        if let Some(Err(warning)) = self.alias.as_ref().map(Alias::check) {
            tracing::warn!("{warning}");
        }
    }
}

/// [`CHECK_EVERY`]; a build for tests can be told to look more often.
fn check_every() -> Duration {
    let told = || std::env::var("AGENTD_TEST_CHECK_MS").ok()?.parse().ok();
    let told = if cfg!(debug_assertions) { told() } else { None };
    told.map_or(CHECK_EVERY, Duration::from_millis)
}
