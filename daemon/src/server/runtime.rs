//! What the daemon and the one-shot have in common: store, instance, owner and workers.
//!
//! Owns the order of coming up and going down around the owner. Must not know sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agentd_base::clock::boot_ms;
use agentd_core::effect::Announcement;
use agentd_core::{Event, Served, Settings, Socket, State};
use agentd_protocol::line::LeftFacts;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{self, Config};
use crate::platform::cgroup::Delegated;
use crate::platform::changes::Changes;
use crate::platform::directories;
use crate::platform::files::Files;
use crate::platform::instance::{self, Instance};
use crate::platform::lock::{Doing, Lock};
use crate::platform::{log, manager, memory, process, scheduling};
use crate::server::dead_instances::{Behind, Others};
use crate::server::facts::{PeerContext, Sizes, peer_config};
use crate::server::listen::PeerProcess;
use crate::server::live::{LiveConfig, Loader};
use crate::server::lock_words::Says;
use crate::server::owner::{ANSWERS, Arrival, Beat, Host, INBOX, Owner, OwnerChannels};
use crate::server::peer::PeerConfig;
use crate::server::predecessors::Predecessors;
use crate::server::routes::Routes;
use crate::server::scheduled::{self, Door};
use crate::store::{self, Answers, Liveness, Opened, Role, Store};
use crate::webhook;
use crate::worker::{
    self, Attach, FileLimit, HostProbe, HostSnapshot, Learned, Patience, Roster, SpawnRecord,
    Spawner, Versions, adopt_orphans, learned, tell_logins,
};
use agentd_base::remote;

/// Connections that were accepted and not heard of: more than there can be.
const ARRIVALS: usize = 16 * 1024;
/// What a job of a dead instance takes between the store and the owner, about.
const LEFT_JOB: usize = 512;
/// A stop waits no longer until the lock file says so: on a disk that answers it takes no time.
const SAID_WITHIN: Duration = Duration::from_millis(100);
/// Dead instances whose end is to be told.
const GONE: usize = 64;

/// Why the runtime can't come up.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// The instance's file can't be made.
    #[error("can't write in `{}`: {source}", dir.display())]
    Instance {
        /// The state directory.
        dir: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Everything around the owner, up and ready.
pub struct Runtime {
    /// The owner.
    pub owner: Owner<OsHost>,
    /// Where events go.
    pub inbox: mpsc::Sender<Event>,
    /// Where connections go.
    pub arrivals: mpsc::Sender<Arrival>,
    /// Where a sign of life is asked for.
    pub beats: mpsc::Sender<Beat>,
    /// Cancelled when a stop begins.
    pub stopping: CancellationToken,
    /// Every task that stop waits for.
    pub tracker: TaskTracker,
    /// Other instances, as they were when the store was opened.
    pub others: Others,
    /// What could not be taken over yet.
    pub left_behind: watch::Receiver<Behind>,
    /// Rung when somebody may be to be told of an end.
    pub to_deliver: Arc<Notify>,
    /// Cancelled when no more jobs can end.
    delivering: CancellationToken,
    writer: JoinHandle<()>,
    instance: Arc<Instance>,
    state_dir: PathBuf,
    context: PeerContext,
}

/// What the runtime is started with.
pub struct StartOptions {
    /// The state directory, private already.
    pub state_dir: PathBuf,
    /// The socket that workers are told.
    pub socket: Option<PathBuf>,
    /// Daemon or one-shot.
    pub served: Served,
    /// What becomes of the socket.
    pub stays: Socket,
    /// Is it a worker of another agentd?
    pub nested: bool,
    /// What the user configured.
    pub config: Config,
    /// How that is read again, and the file of secrets beside it; `None` where it never is.
    pub reload: Option<(Loader, PathBuf)>,
    /// The limit of open files before it was raised.
    pub file_limit: Option<FileLimit>,
    /// The lock to be told of a stop.
    pub lock: Option<Lock>,
    /// Since when the daemon runs.
    pub started: Instant,
}

/// Where the built-in agent finds what the user set, and keeps what it remembers.
fn built_in(options: &StartOptions) -> Arc<BTreeMap<OsString, OsString>> {
    Arc::new(BTreeMap::from([
        ("AGENTD_CONFIG".into(), options.config.file.clone().into()),
        ("AGENTD_STATE_DIR".into(), options.state_dir.clone().into()),
    ]))
}

impl Runtime {
    /// Opens the store, takes over what dead instances left, and makes the owner.
    ///
    /// # Errors
    /// When the state directory or the store can't be used.
    pub fn start(options: StartOptions) -> Result<Self, RuntimeError> {
        let dir = options.state_dir.clone();
        warn_if_remote(&dir);
        // Before the store: whoever finds our rows there asks whether our lock is held.
        let instance = Instance::create(&dir).map_err(|source| RuntimeError::Instance {
            dir: dir.clone(),
            source,
        })?;
        let instance = Arc::new(instance);
        let (inbox, events) = mpsc::channel(INBOX);
        let (arrivals, arriving) = mpsc::channel(ARRIVALS);
        let (gone, ended) = mpsc::channel(GONE);
        let (beats, beating) = mpsc::channel(1);
        let stopping = CancellationToken::new();
        let (behind, left_behind) = watch::channel(Behind::new());
        let tracker = TaskTracker::new();
        let (answers, answered) = mpsc::channel(ANSWERS);
        let opened = open_store(&options, &instance, answers)?;
        for loss in &opened.losses {
            tracing::error!("{loss}");
        }
        // Before the first worker: what that leaves behind must become ours.
        if let Err(error) = adopt_orphans() {
            tracing::warn!(%error, "escaped processes of workers can't be adopted");
        }
        let secrets = Arc::new(options.config.secrets.clone());
        let (roster, seen) = Roster::new(look(&options.config, &dir), secrets);
        let (spawner, versions) =
            spawner(&options, roster, &instance, inbox.clone(), tracker.clone());
        let settings = settings(&options, &opened, seen);
        let endpoints = config::Endpoints::file(&options.config.file);
        let routes = Arc::new(Routes::of(&options.config));
        let delivering = CancellationToken::new();
        if options.served == Served::Daemon {
            let door = Door::of(&inbox, &arrivals, &endpoints, &routes);
            serve_beside(&tracker, &opened, door, &dir, (&delivering, &stopping));
        }
        let live = LiveConfig::of(&options, (&versions, &routes), &opened.store, &inbox);
        let host = OsHost {
            state_dir: dir.clone(),
            behind,
            predecessors: Predecessors::new(dir.clone(), gone),
            says: options.lock.map(Says::new),
            stopping: stopping.clone(),
        };
        let wires = OwnerChannels {
            inbox: events,
            arrivals: arriving,
            beats: beating,
            gone: ended,
            answers: answered,
            store: opened.store.clone(),
            spawner,
        };
        let mut owner = Owner::new(State::new(settings), wires, host, options.started);
        let others = Others::new(&opened.orphans, opened.living);
        // Before the first request, which may be for one of their sessions.
        owner.recover(opened.orphans);
        let context = PeerContext {
            sizes: Arc::new(Sizes::new(dir.clone())),
            endpoints,
            partial: Arc::new(AtomicUsize::new(0)),
            store: opened.store,
            versions,
            live,
            routes,
        };
        Ok(Self {
            owner,
            inbox,
            arrivals,
            beats,
            stopping,
            delivering,
            to_deliver: opened.to_deliver,
            tracker,
            others,
            left_behind,
            writer: opened.writer,
            instance,
            state_dir: dir,
            context,
        })
    }

    /// What a connection's task needs; `peer` is the process on the other side.
    #[must_use]
    pub fn peer_config(&self, peer: Option<PeerProcess>) -> PeerConfig {
        peer_config(self.context.clone(), peer)
    }

    /// What all connections look at.
    #[must_use]
    pub fn context(&self) -> PeerContext {
        self.context.clone()
    }

    /// Where the store is.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Our own name among the instances.
    #[must_use]
    pub fn instance(&self) -> &str {
        self.instance.id()
    }

    /// What is left to do when the owner has said goodbye.
    #[must_use]
    pub fn into_parts(self) -> (Owner<OsHost>, Teardown) {
        let teardown = Teardown {
            writer: self.writer,
            _instance: self.instance,
            delivering: self.delivering,
            tracker: self.tracker,
        };
        (self.owner, teardown)
    }
}

/// What outlives the owner.
pub struct Teardown {
    writer: JoinHandle<()>,
    _instance: Arc<Instance>,
    delivering: CancellationToken,
    tracker: TaskTracker,
}

impl Teardown {
    /// Lets connections write their last lines, tells what has ended, and closes the store.
    pub async fn finish(self, store: Store) {
        self.delivering.cancel();
        self.tracker.close();
        // A peer that takes nothing must not keep the daemon from leaving.
        let _stuck = tokio::time::timeout(Duration::from_secs(2), self.tracker.wait()).await;
        // Last: what was delivered until now is still noted there.
        store.close(self.writer);
    }
}

/// What a daemon does beside the owner: until no more jobs can end, or until a stop begins.
fn serve_beside(
    tracker: &TaskTracker,
    opened: &Opened,
    door: Door,
    dir: &Path,
    (delivering, stopping): (&CancellationToken, &CancellationToken),
) {
    tracker.spawn(deliver(opened, &door.endpoints, delivering));
    tracker.spawn(guard(
        opened.store.clone(),
        dir.to_owned(),
        delivering.clone(),
    ));
    tracker.spawn(scheduled::serve(opened, door, stopping));
    tracker.spawn(give_back(opened, delivering));
    tracker.spawn(memory::forget_program(delivering.clone()));
}

/// Has the store look for its files whenever something goes where they are.
async fn guard(store: Store, dir: PathBuf, stop: CancellationToken) {
    let mut losses = Changes::losses(&dir);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = losses.next() => store.look(),
        }
    }
}

/// Tells others of ended jobs, until no more can end.
fn deliver(
    opened: &Opened,
    endpoints: &Path,
    delivering: &CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    webhook::watch(webhook::DeliveryConfig {
        store: opened.store.clone(),
        due: Arc::clone(&opened.to_deliver),
        endpoints: endpoints.to_owned(),
        stop: delivering.clone(),
    })
}

/// Gives memory back, at first what the jobs of dead instances took on their way to the owner.
fn give_back(opened: &Opened, stop: &CancellationToken) -> impl Future<Output = ()> + Send + use<> {
    let jobs: usize = opened.orphans.iter().map(|left| left.jobs.len()).sum();
    memory::let_go(jobs * LEFT_JOB);
    memory::give_back(stop.clone())
}

fn warn_if_remote(dir: &Path) {
    if let Some(remote) = remote::file_system(dir) {
        tracing::warn!(
            "`{}` is on a file system of kind {remote}, where the store may be damaged when \
             several machines use it; hint: set `AGENTD_STATE_DIR` to a local directory",
            dir.display()
        );
    }
}

fn open_store(
    options: &StartOptions,
    instance: &Instance,
    answers: mpsc::Sender<Answers>,
) -> Result<Opened, store::StoreError> {
    let role = match options.served {
        Served::Daemon => Role::Daemon,
        Served::OneShot { .. } => Role::OneShot,
    };
    let boot = process::boot_id();
    let dir = options.state_dir.clone();
    let alive = move |id: &str| match instance::liveness(&dir, id) {
        instance::Life::Alive { pid } => Liveness::Alive { pid },
        instance::Life::Dead => Liveness::Dead,
    };
    // The owner takes them whatever happens, so the store's thread waits only briefly.
    let answer = move |some: Answers| {
        let _gone = answers.blocking_send(some);
    };
    directories::ask_by_this_runtime();
    let opened = store::open(
        &options.state_dir,
        store::Opener {
            instance: instance.id(),
            role,
            boot: boot.as_deref(),
            boot_ms,
            give_way: scheduling::give_way,
            answers: directories::answers,
            keep: (role == Role::Daemon).then(|| keep(options.config.retention)),
        },
        Box::new(alive),
        Box::new(answer),
    )?;
    // The owner's thread and the writer's.
    scheduling::shorten();
    Ok(opened)
}

pub(super) fn keep(retention: config::Retention) -> store::Keep {
    store::Keep {
        age: Duration::from_secs(u64::from(retention.days) * 24 * 60 * 60),
        bytes: retention.size,
        // Slices follow each other faster while there is something to forget.
        every: Duration::from_secs(600),
    }
}

/// Attachments are read beside the writer: nobody else has to wait for them.
fn attach(state_dir: PathBuf) -> Attach {
    Arc::new(move |job| store::attachments_of_job(&state_dir, job))
}

fn recorder(instance: Arc<Instance>) -> Arc<dyn Fn(SpawnRecord) + Send + Sync> {
    let boot_id = process::boot_id().unwrap_or_default();
    Arc::new(move |spawn: SpawnRecord| {
        let record = instance::SpawnRecord {
            pid: spawn.pid,
            start_time: spawn.started.unwrap_or(0),
            boot_id: boot_id.clone(),
            session: spawn.session,
        };
        if let Err(error) = instance.record(&record) {
            tracing::warn!(%error, pid = spawn.pid, "a worker could not be written down");
        }
    })
}

/// Starts workers for this instance, of the agents that can be run.
fn spawner(
    options: &StartOptions,
    agents: Arc<Roster>,
    instance: &Arc<Instance>,
    inbox: mpsc::Sender<Event>,
    tracker: TaskTracker,
) -> (Spawner, Arc<Versions>) {
    let mut spawner = Spawner {
        inbox,
        tracker,
        instance: instance.id().to_owned(),
        socket: options.socket.clone(),
        agents,
        built_in: built_in(options),
        environment: Arc::new(std::env::vars_os().collect()),
        around: worker::around(&options.served),
        file_limit: options.file_limit,
        groups: groups(&options.served),
        record: recorder(Arc::clone(instance)),
        attach: attach(options.state_dir.clone()),
        versions: None,
    };
    let versions = Versions::new(
        spawner.clone(),
        &options.state_dir,
        patience(&options.served),
    );
    spawner.versions = Some(Arc::clone(&versions));
    (spawner, versions)
}

/// Only the daemon may divide the group that it was started in: a one-shot is somebody's guest.
fn groups(served: &Served) -> Option<Arc<Delegated>> {
    match served {
        Served::Daemon => Delegated::find().map(Arc::new),
        Served::OneShot { .. } => None,
    }
}

const fn patience(served: &Served) -> Patience {
    match served {
        Served::OneShot { .. } => Patience::Long,
        Served::Daemon => Patience::Short,
    }
}

/// Looks at every agent, each in the form that it was last found to have.
pub fn look(config: &Config, state_dir: &Path) -> HostProbe {
    let (config, state_dir) = (config.clone(), state_dir.to_owned());
    let environment = std::env::vars_os().collect();
    Arc::new(move |files| {
        let Learned { exec_only, others } = learned(&state_dir, files);
        let look = config::HostEnv {
            exec_only,
            others,
            ..config::HostEnv::with(files.clone())
        };
        let mut agents = config::agents(&config, &look);
        let looked_for = config::looked_for(&config, &agents);
        for run in agents.iter_mut().filter_map(|(_, run)| run.as_mut()) {
            if config::is_built_in(run) {
                run.pass_env.extend(config.provider_keys.iter().cloned());
            }
        }
        tell_logins(&mut agents, &config, &environment, files);
        HostSnapshot { agents, looked_for }
    })
}

/// What the daemon before left running, if it was cut off amid turns; the log has it, too.
fn left_before(options: &StartOptions, opened: &Opened) -> Option<LeftFacts> {
    let pid = options.lock.as_ref()?.cut_off()?;
    let orphans = &mut opened.orphans.iter();
    let left = orphans.find(|left| instance::was(&left.instance, pid))?;
    let left = left.left();
    if left.interrupted + left.again == 0 {
        return None;
    }
    tracing::warn!("{left}");
    Some(left)
}

fn settings(options: &StartOptions, opened: &Opened, seen: HostSnapshot) -> Settings {
    let HostSnapshot { agents, looked_for } = seen;
    let agents: BTreeMap<_, _> = agents
        .into_iter()
        .map(|(agent, _)| (agent.name.clone(), agent))
        .collect();
    let home = std::env::var("HOME")
        .ok()
        .filter(|home| {
            Files::apart()
                .at(home.as_ref())
                .is_ok_and(|home| home.is_dir())
        })
        .unwrap_or_else(|| "/".to_owned());
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Settings {
        agents,
        default_agent: options.config.default_agent.clone(),
        home,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uid: nix::unistd::getuid().as_raw(),
        epoch: opened.epoch.clone(),
        last_seq: opened.last_seq,
        ended_jobs: opened.ended_jobs,
        fallbacks: opened.fallbacks,
        wall_ahead: opened.wall_ahead,
        losses: opened.losses.clone(),
        backups_lack: store::backups_lack(&options.state_dir),
        schedules_paused: None,
        before: left_before(options, opened),
        served: options.served.clone(),
        socket: options.stays,
        nested: options.nested,
        around: worker::around(&options.served),
        max_workers: agentd_core::limits::MAX_WORKERS,
        // Two that start in the same moment draw other numbers.
        seed: u64::from(now.subsec_nanos()) ^ (u64::from(std::process::id()) << 32),
        looked_for,
        spare_memory: options.config.spare_memory,
    }
}

/// The owner's host.
pub struct OsHost {
    state_dir: PathBuf,
    behind: watch::Sender<Behind>,
    predecessors: Predecessors,
    says: Option<Says>,
    stopping: CancellationToken,
}

impl Host for OsHost {
    fn serving(&mut self) {
        if let Some(says) = &self.says {
            says.say(Doing::Running);
        }
    }

    fn set_log_level(&mut self, level: &str) {
        log::set(level);
        tracing::info!(level, "the log's level was changed");
    }

    fn announce(&mut self, announcement: Announcement) {
        let doing = match announcement {
            // Whoever hears of a stop finds the lock as it says, so it says nothing yet.
            Announcement::Leaving => return self.stopping.cancel(),
            Announcement::Stopping => Doing::Stopping,
            Announcement::Restarting => Doing::Restarting,
        };
        tracing::info!("stopping");
        // A one-shot has no lock, and the service manager it may be below is somebody else's.
        if let Some(says) = &self.says {
            // Whoever is told of the stop finds it in the lock, but not at any price.
            let _late = says.say(doing).recv_timeout(SAID_WITHIN);
            manager::stopping();
        }
        self.stopping.cancel();
    }

    fn end_processes(&mut self, instance: String) {
        self.predecessors.end(instance);
    }

    fn forget(&mut self, instance: &str) {
        let (dir, instance) = (self.state_dir.clone(), instance.to_owned());
        tokio::task::spawn_blocking(move || {
            if let Err(error) = instance::forget(&dir, &instance) {
                tracing::warn!(%error, instance, "the file of a dead instance stays");
            }
        });
    }

    fn left_behind(&mut self, instance: &str, holders: &[String]) {
        let holders: BTreeSet<String> = holders.iter().cloned().collect();
        self.behind.send_if_modified(|behind| {
            if holders.is_empty() {
                return behind.remove(instance).is_some();
            }
            let before = behind.insert(instance.to_owned(), holders.clone());
            before.as_ref() != Some(&holders)
        });
    }
}
