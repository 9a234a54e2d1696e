//! What a connection looks up for the core: files, directories, who is on the other side.
//!
//! Owns which facts go with which request, and that no look at a file holds up anybody else. Must not
//! know what they lead to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agentd_core::Event;
use agentd_core::event::{Descent, RequestContext};
use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::LogFacts;
use agentd_protocol::request_table::Inside;
use agentd_protocol::{Code, Request, request};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::config;
use crate::platform::limit_mark::LimitMark;
use crate::platform::{directories, log, process};
use crate::server::attach;
use crate::server::listen::PeerProcess;
use crate::server::live::LiveConfig;
use crate::server::peer::{Known, Later, PeerConfig};
use crate::server::routes::Routes;
use crate::server::scheduled;
use crate::store::Store;
use crate::worker::Versions;
use agentd_base::remote;

/// The user's own files are read within this time, or not at all.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// Files of the user's that are read at the same time: each has a thread.
const READERS: usize = 4;
/// The sizes of our own files on a network are known within this time, or are those of the last one:
/// `status` has to say how things are when it is gone, too. Elsewhere nobody waits for them: files
/// that are open are known in memory.
const SIZES_WITHIN: Duration = Duration::from_millis(20);

/// `status` waits so long for a configuration that is being read; its answer says which one counts.
const CONFIGURED_WITHIN: Duration = Duration::from_millis(400);

/// What all connections look at.
#[derive(Clone)]
pub struct PeerContext {
    /// The files of the state directory.
    pub sizes: Arc<Sizes>,
    /// The file of the endpoints of webhooks.
    pub endpoints: PathBuf,
    /// Bytes of unfinished lines of all of them together.
    pub partial: Arc<AtomicUsize>,
    /// Where schedules are kept.
    pub store: Store,
    /// The versions of the agents.
    pub versions: Arc<Versions>,
    /// The configuration, where it may be another one later.
    pub live: Option<Arc<LiveConfig>>,
    /// Its routes.
    pub routes: Arc<Routes>,
}

/// Where the state is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Disk {
    Local,
    Network,
}

/// How large the store is.
#[derive(Debug)]
pub struct Sizes {
    dir: PathBuf,
    on: Disk,
    store: AtomicU64,
    wal: AtomicU64,
    asking: Arc<Semaphore>,
}

impl Sizes {
    /// As they are now. Blocks.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        let sizes = Self {
            on: remote::file_system(&dir).map_or(Disk::Local, |_| Disk::Network),
            dir,
            store: AtomicU64::new(0),
            wal: AtomicU64::new(0),
            asking: Arc::new(Semaphore::new(1)),
        };
        sizes.read();
        sizes
    }

    fn read(&self) {
        let size = |file| std::fs::metadata(self.dir.join(file)).map_or(0, |found| found.len());
        self.store.store(size("agentd.db"), Ordering::Relaxed);
        self.wal.store(size("agentd.db-wal"), Ordering::Relaxed);
    }

    /// One thread at most asks, however often it doesn't come back.
    async fn look(self: &Arc<Self>) {
        if self.on == Disk::Local {
            return self.read();
        }
        if let Ok(permit) = Arc::clone(&self.asking).try_acquire_owned() {
            let sizes = Arc::clone(self);
            let asking = tokio::task::spawn_blocking(move || {
                sizes.read();
                drop(permit);
            });
            let _late = timeout(SIZES_WITHIN, asking).await;
        }
    }
}

/// Reads a file of the user's in a thread of its own; `None` when that takes too long.
pub(super) async fn beside<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    static PLACES: Semaphore = Semaphore::const_new(READERS);
    in_a_thread(&PLACES, read).await
}

/// Does something in a thread, when there is a place; `None` when that takes too long.
async fn in_a_thread<T: Send + 'static>(
    places: &'static Semaphore,
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let reading = async {
        // The place goes with the thread: one that hangs keeps it, so that no more can hang than
        // there are.
        let place = places.acquire().await.ok()?;
        let reading = tokio::task::spawn_blocking(move || {
            let read = read();
            drop(place);
            read
        });
        reading.await.ok()
    };
    timeout(READ_WITHIN, reading).await.ok().flatten()
}

/// Facts about the host for each request of a connection; `peer` is the process on the other side.
pub fn peer_config(context: PeerContext, peer: Option<PeerProcess>) -> PeerConfig {
    let PeerContext {
        sizes,
        endpoints,
        partial,
        store,
        versions,
        live,
        routes,
    } = context;
    let sender = Sender {
        process: peer,
        descent: Arc::default(),
    };
    let (configured, scheduled_by) = (live.clone(), Arc::clone(&routes));
    let known = move |request: &Request| match request {
        Request::Status(_) => status(Arc::clone(&sizes), configured.clone()),
        Request::LogLevel(asked) => now(RequestContext {
            log: Some(match &asked.level {
                Some(level) => log::level_of(level).map(log_facts),
                None => Ok(log_facts(log::level())),
            }),
            ..RequestContext::default()
        }),
        Request::Send(_) | Request::Dispatch(_) | Request::Route(_) => {
            of_sends(&endpoints, request.turns())
        }
        Request::SessionNew(new) => {
            let directories = new.cwd.iter().cloned().collect();
            looked_up(&endpoints, directories, Vec::new())
        }
        Request::Webhooks(_) => {
            let file = endpoints.clone();
            soon(async move {
                let read = file.clone();
                let rows = beside(move || config::Endpoints::load(&read).map(|known| known.rows()));
                let rows = match rows.await {
                    Some(rows) => rows.map_err(|error| error.to_string()),
                    None => Err(silent(&file)),
                };
                RequestContext {
                    endpoints: Some(rows),
                    ..RequestContext::default()
                }
            })
        }
        Request::CronAdd(_)
        | Request::CronEdit(_)
        | Request::CronResume(_)
        | Request::CronRun(_) => scheduled::facts(&store, &endpoints, &scheduled_by, request),
        Request::WebhookTest(callback) => {
            let urls = vec![callback.url.clone()];
            looked_up(&endpoints, BTreeSet::new(), urls)
        }
        _ => now(RequestContext::default()),
    };
    let facts = move |request: &Request| {
        let known = match request.kind().rules().inside {
            Inside::Same => known(request),
            Inside::Child | Inside::Forbidden => sender.with(known(request)),
        };
        match &live {
            Some(live) if is_configured(request) && live.may_have_changed() => {
                let patience = match request {
                    // It has to say within a second how things are.
                    Request::Status(_) => Some(CONFIGURED_WITHIN),
                    _ => None,
                };
                behind(Arc::clone(live), patience, known)
            }
            _ => known,
        }
    };
    PeerConfig {
        facts: Arc::new(facts),
        later: later(versions),
        partial,
        routes,
    }
}

/// Does a request depend on what is configured? Of what runs already none does.
const fn is_configured(request: &Request) -> bool {
    matches!(
        request,
        Request::Send(_)
            | Request::Dispatch(_)
            | Request::Route(_)
            | Request::SessionNew(_)
            | Request::CronAdd(_)
            | Request::CronEdit(_)
            | Request::CronRun(_)
            | Request::RestartWorker(_)
            | Request::Agents
            | Request::Models(_)
            | Request::Commands(_)
            | Request::Status(_)
    )
}

/// The newest configuration first: whoever wrote it asks with it.
fn behind(live: Arc<LiveConfig>, patience: Option<Duration>, known: Known) -> Known {
    Known::Soon(Box::pin(async move {
        match patience {
            Some(patience) => live.take_beside(patience).await,
            None => live.take().await,
        }
        match known {
            Known::Now(facts) => Ok(facts),
            Known::Soon(facts) => facts.await,
        }
    }))
}

/// The process on the other side of a connection.
struct Sender {
    process: Option<PeerProcess>,
    /// Where it comes from. Once per connection is enough: who descends from a worker goes on doing
    /// so.
    descent: Arc<OnceLock<Descent>>,
}

impl Sender {
    /// Facts with where it comes from. That is read beside the runtime's thread, while the rest is
    /// looked up.
    fn with(&self, known: Known) -> Known {
        let Some(process) = self.process else {
            return known;
        };
        match (known, self.descent.get()) {
            (Known::Now(mut facts), Some(descent)) => {
                facts.descent = descent.clone();
                Known::Now(facts)
            }
            (known, _) => {
                let of_connection = Arc::clone(&self.descent);
                Known::Soon(Box::pin(async move {
                    let rest = async {
                        match known {
                            Known::Now(facts) => Ok(facts),
                            Known::Soon(facts) => facts.await,
                        }
                    };
                    let (descent, facts) = tokio::join!(descent(process, &of_connection), rest);
                    let mut facts = facts?;
                    facts.descent = descent?;
                    Ok(facts)
                }))
            }
        }
    }
}

/// Where a process comes from: looked up, unless it is known.
async fn descent(peer: PeerProcess, known: &OnceLock<Descent>) -> Result<Descent, Rejected> {
    // Of its own: whoever waits for a file that hangs keeps nobody's descent from being known.
    static PLACES: Semaphore = Semaphore::const_new(READERS);
    if let Some(known) = known.get() {
        return Ok(known.clone());
    }
    let PeerProcess { pid, started } = peer;
    let read = move || Descent {
        ancestry: process::ancestry(pid),
        marked: is_marked(pid),
        // Looked at last: what was read before is of whoever has the number now.
        unseen: process::sees_processes()
            && (started.is_none() || process::start_time(pid) != started),
    };
    let read = in_a_thread(&PLACES, read).await.ok_or_else(|| {
        let within = READ_WITHIN.as_secs();
        let error = format!("what process {pid} descends from could not be read within {within} s");
        Rejected::new(Code::Internal, error).hint("nothing was done; ask again")
    })?;
    Ok(known.get_or_init(|| read).clone())
}

/// Has a process the mark of a worker, of whatever instance? A daemon that was started by an agent
/// has one itself, and whoever has the same comes from beside it and not from inside.
fn is_marked(pid: u32) -> bool {
    static OURS: OnceLock<Option<LimitMark>> = OnceLock::new();
    let ours = OURS.get_or_init(|| LimitMark::on(std::process::id()));
    LimitMark::on(pid).is_some_and(|mark| *ours != Some(mark))
}

fn now(facts: RequestContext) -> Known {
    Known::Now(Box::new(facts))
}

fn soon(facts: impl Future<Output = RequestContext> + Send + 'static) -> Known {
    Known::Soon(Box::pin(async { Ok(Box::new(facts.await)) }))
}

fn status(sizes: Arc<Sizes>, live: Option<Arc<LiveConfig>>) -> Known {
    soon(async move {
        sizes.look().await;
        RequestContext {
            rss_bytes: process::rss_bytes(),
            open_files: process::open_files(),
            store_bytes: sizes.store.load(Ordering::Relaxed),
            wal_bytes: sizes.wal.load(Ordering::Relaxed),
            attached: attach::held(),
            log: Some(Ok(log_facts(log::level()))),
            config: live.map(|live| live.facts()),
            ..RequestContext::default()
        }
    })
}

fn log_facts(level: String) -> LogFacts {
    let to = log::place();
    LogFacts { level, to }
}

/// Lists of agents wait for their versions, beside the connection and the owner.
fn later(versions: Arc<Versions>) -> Later {
    Arc::new(move |event| {
        let Event::Requested {
            request: Ok(decoded),
            ..
        } = &event
        else {
            return Some(event);
        };
        if !matches!(decoded.request, Request::Agents) {
            return Some(event);
        }
        versions.post_when_looked(event);
        None
    })
}

/// What sends name: directories, and URLs that may be called.
fn named_by<'a>(
    sends: impl IntoIterator<Item = &'a request::Send>,
) -> (BTreeSet<String>, Vec<String>) {
    let (mut directories, mut urls) = (BTreeSet::new(), Vec::new());
    for send in sends {
        // With both, only the first counts.
        directories.extend(send.cwd.as_ref().or(send.cwd_if_new.as_ref()).cloned());
        urls.extend(send.callback.as_ref().map(|callback| callback.url.clone()));
    }
    (directories, urls)
}

fn of_sends<'a>(endpoints: &Path, sends: impl IntoIterator<Item = &'a request::Send>) -> Known {
    let (directories, urls) = named_by(sends);
    looked_up(endpoints, directories, urls)
}

/// The same for who waits for it.
pub(super) async fn looks_of_sends<'a>(
    endpoints: &Path,
    sends: impl IntoIterator<Item = &'a request::Send>,
) -> RequestContext {
    let (directories, urls) = named_by(sends);
    looks(endpoints.to_owned(), directories, urls).await
}

fn looked_up(endpoints: &Path, directories: BTreeSet<String>, urls: Vec<String>) -> Known {
    if directories.is_empty() && urls.is_empty() {
        return now(RequestContext::default());
    }
    soon(looks(endpoints.to_owned(), directories, urls))
}

async fn looks(file: PathBuf, directories: BTreeSet<String>, urls: Vec<String>) -> RequestContext {
    RequestContext {
        directories: directories::look_at_all(directories).await,
        callbacks: refused(file, urls).await,
        ..RequestContext::default()
    }
}

/// Callbacks that nobody may be told at.
async fn refused(file: PathBuf, urls: Vec<String>) -> BTreeMap<String, Rejected> {
    if urls.is_empty() {
        return BTreeMap::new();
    }
    let (read, asked) = (file.clone(), urls.clone());
    let refused =
        beside(move || config::refused_callbacks(&read, asked.iter().map(String::as_str)));
    // Better refused than told to somebody who may be no endpoint any more.
    refused.await.unwrap_or_else(|| {
        let refused = Rejected::new(Code::UnknownWebhook, silent(&file));
        let all = urls.into_iter().map(|url| (url, refused.clone()));
        all.collect()
    })
}

fn silent(file: &Path) -> String {
    silent_within(&format!("`{}`", file.display()))
}

pub(super) fn silent_within(what: &str) -> String {
    let within = READ_WITHIN.as_secs();
    format!("{what} could not be read within {within} s")
}
