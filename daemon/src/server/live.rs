//! The configuration while the daemon runs: noticed when it changed, checked whole, taken or refused.
//!
//! Owns when it is read again, and what is told of that. What it says, `config` knows; what follows
//! for agents, the core decides.
//!
//! Nothing watches the files: whoever asks for something that depends on them looks first, which is
//! two calls of `stat` (SIGHUP and the look at the socket each minute do so, too). So nobody wakes
//! for it, and a request finds the file as it was written before: links, editors that put another
//! file in its place and files that come later are all the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agentd_base::clock::wall_ms;
use agentd_base::configuration::FileStamp;
use agentd_core::{Event, rfc3339};
use agentd_protocol::line::ConfigFacts;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout};

use crate::config::{Config, TIMMY};
use crate::server::routes::Routes;
use crate::server::runtime::{self, StartOptions};
use crate::store::Store;
use crate::worker::Versions;
use agentd_base::remote;

/// What was written less long ago may be half of it: an editor empties a file before it fills it.
const SETTLES: Duration = Duration::from_millis(50);
/// A file that is written to all the time is read all the same.
const SETTLES_WITHIN: Duration = Duration::from_millis(500);
/// The files and what they name are looked at within this time, or nothing counts that they say.
const READ_WITHIN: Duration = Duration::from_secs(4);
/// What was refused may be mended by what no look at the files shows, such as a directory's mode.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// At the start the configuration was read so long before the daemon began, at most.
const READ_LONG: Duration = Duration::from_secs(5);
/// Files on a network say within this time that they have changed, or are as they were.
const SEEN_WITHIN: Duration = Duration::from_millis(50);

/// Reads the configuration as at the start; the error says why it can't be used.
#[derive(Clone)]
pub struct Loader(pub Arc<dyn Fn() -> Result<Config, String> + Send + Sync>);

/// What tells one content of a file from the next, where it has one.
type Stamp = Option<FileStamp>;

/// The configuration that counts, and what was seen of its files.
struct InForce {
    config: Config,
    stamps: [Stamp; 2],
    since_ms: i64,
    refused: Option<(String, Instant)>,
    needs_restart: Vec<String>,
}

/// A look that nobody waits for any more, if there is one.
type Hanging = Option<AbortHandle>;

/// The configuration of a daemon.
pub struct LiveConfig {
    loader: Loader,
    files: [PathBuf; 2],
    /// Are they on this machine's disks?
    local: bool,
    state_dir: PathBuf,
    in_force: Mutex<InForce>,
    /// One at a time reads them, and none while one hangs.
    reading: tokio::sync::Mutex<Hanging>,
    versions: Arc<Versions>,
    routes: Arc<Routes>,
    store: Store,
    inbox: mpsc::Sender<Event>,
}

impl LiveConfig {
    /// With what was read at the start; `None` where it is never read again.
    #[must_use]
    pub fn of(
        options: &StartOptions,
        (versions, routes): (&Arc<Versions>, &Arc<Routes>),
        store: &Store,
        inbox: &mpsc::Sender<Event>,
    ) -> Option<Arc<Self>> {
        let (loader, env_file) = options.reload.clone()?;
        let (config, started) = (options.config.clone(), options.started);
        let files = [config.file.clone(), env_file];
        // What was written while it was read is read again.
        let believed = |file: &PathBuf| {
            let stamp = FileStamp::of(file);
            stamp.filter(|stamp| {
                stamp
                    .age()
                    .is_none_or(|age| age > started.elapsed() + READ_LONG)
            })
        };
        let stamps = files.each_ref().map(believed);
        let dir = files[0].parent().unwrap_or(Path::new("/"));
        Some(Arc::new(Self {
            local: remote::file_system(dir).is_none(),
            in_force: Mutex::new(InForce {
                config,
                stamps,
                since_ms: wall_ms(),
                refused: None,
                needs_restart: Vec::new(),
            }),
            loader,
            files,
            state_dir: options.state_dir.clone(),
            reading: tokio::sync::Mutex::default(),
            versions: Arc::clone(versions),
            routes: Arc::clone(routes),
            store: store.clone(),
            inbox: inbox.clone(),
        }))
    }

    fn in_force(&self) -> MutexGuard<'_, InForce> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stamps(&self) -> [Stamp; 2] {
        self.files.each_ref().map(|file| FileStamp::of(file))
    }

    /// Is it to be looked at closely? Cheap where the files are on this machine.
    #[must_use]
    pub fn may_have_changed(&self) -> bool {
        !self.local || self.differs(&self.stamps())
    }

    fn differs(&self, stamps: &[Stamp; 2]) -> bool {
        let in_force = self.in_force();
        let refused = in_force.refused.as_ref();
        in_force.stamps != *stamps || refused.is_some_and(|(_, at)| at.elapsed() >= AGAIN_AFTER)
    }

    async fn seen(self: &Arc<Self>, hanging: &mut Hanging) -> Option<[Stamp; 2]> {
        if self.local {
            return Some(self.stamps());
        }
        let live = Arc::clone(self);
        let seeing = tokio::task::spawn_blocking(move || live.stamps());
        in_time(SEEN_WITHIN, seeing, hanging).await
    }

    /// Takes over what the files say by now, or says why not. When this is over, whatever is posted to
    /// the owner comes behind it.
    pub async fn take(self: &Arc<Self>) {
        let mut hanging = self.reading.lock().await;
        if hanging.as_ref().is_some_and(|look| !look.is_finished()) {
            return;
        }
        let Some(stamps) = self.seen(&mut hanging).await else {
            return;
        };
        // Somebody may just have done it.
        if !self.differs(&stamps) {
            return;
        }
        let stamps = self.settled(stamps, &mut hanging).await;
        let loader = self.loader.clone();
        let reading = tokio::task::spawn_blocking(move || (loader.0)());
        let taken = match in_time(READ_WITHIN, reading, &mut hanging).await {
            Some(Ok(config)) => self.count(config).await,
            Some(Err(why)) => Err(why),
            None => Err(format!(
                "`{}` could not be read within {} s",
                self.files[0].display(),
                READ_WITHIN.as_secs()
            )),
        };
        let mut in_force = self.in_force();
        in_force.stamps = stamps;
        let before = in_force.refused.take().map(|(why, _)| why);
        if let Err(why) = taken {
            if before.as_ref() != Some(&why) {
                tracing::error!("the newest configuration does not count: {why}");
            }
            in_force.refused = Some((why, Instant::now()));
        } else if before.is_some() {
            tracing::info!("the newest configuration counts again");
        }
    }

    /// The same for somebody who doesn't wait longer than this: it goes on without him.
    pub async fn take_beside(self: &Arc<Self>, patience: Duration) {
        let live = Arc::clone(self);
        #[expect(clippy::disallowed_methods, reason = "a stop doesn't wait for it")]
        let taking = tokio::spawn(async move { live.take().await });
        let _goes_on = timeout(patience, taking).await;
    }

    /// Waits until nobody writes any more.
    async fn settled(
        self: &Arc<Self>,
        mut stamps: [Stamp; 2],
        hanging: &mut Hanging,
    ) -> [Stamp; 2] {
        let until = Instant::now() + SETTLES_WITHIN;
        loop {
            let before = self.in_force().stamps;
            let went = |(old, new): (&Stamp, &Stamp)| old.is_some() && new.is_none();
            // One that isn't there has no age: it may be about to be put there again.
            let gone = before.iter().zip(&stamps).any(went);
            let ages = stamps.iter().flatten().filter_map(FileStamp::age);
            let youngest = ages.min().unwrap_or(SETTLES);
            if (youngest >= SETTLES && !gone) || Instant::now() >= until {
                return stamps;
            }
            sleep(SETTLES.saturating_sub(if gone { Duration::ZERO } else { youngest })).await;
            let Some(seen) = self.seen(hanging).await else {
                return stamps;
            };
            if gone && seen == stamps {
                return stamps;
            }
            stamps = seen;
        }
    }

    /// From now on this counts.
    async fn count(&self, new: Config) -> Result<(), String> {
        let old = self.in_force().config.clone();
        let is_new = !same(&old, &new);
        if is_new {
            let names = old.agents.keys().chain(new.agents.keys());
            let mut changed: BTreeSet<String> = names
                .filter(|name| old.agents.get(*name) != new.agents.get(*name))
                .cloned()
                .collect();
            if old.unread != new.unread {
                changed.insert(TIMMY.to_owned());
            }
            let probe = runtime::look(&new, &self.state_dir);
            let secrets = Arc::new(new.secrets.clone());
            let taken = self.versions.configure(probe, secrets, &changed).await;
            let mut taken = taken.ok_or("looking for its agents takes too long")?;
            taken.default_agent.clone_from(&new.default_agent);
            taken.spare_memory = new.spare_memory;
            self.log(&taken, &new);
            self.routes.take(&new);
            // An owner that is gone runs nobody.
            let _gone = self.inbox.send(Event::ConfigTaken(Box::new(taken))).await;
            if old.retention != new.retention {
                self.store.keep(runtime::keep(new.retention)).await;
            }
        }
        let mut in_force = self.in_force();
        if is_new {
            in_force.since_ms = wall_ms();
        }
        // The link stays where it was made at the start.
        let alias = in_force.config.alias.clone();
        in_force.needs_restart = match alias == new.alias {
            true => Vec::new(),
            false => vec!["alias".to_owned()],
        };
        in_force.config = Config { alias, ..new };
        Ok(())
    }

    fn log(&self, taken: &agentd_core::event::ConfigTaken, new: &Config) {
        let list = |names: Vec<&str>| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        tracing::info!(
            changed = list(
                taken
                    .agents
                    .iter()
                    .map(|agent| agent.name.as_str())
                    .collect()
            ),
            removed = list(taken.removed.iter().map(String::as_str).collect()),
            renewed = list(taken.renewed.iter().map(String::as_str).collect()),
            "another configuration counts: `{}`",
            self.files[0].display()
        );
        let warnings = new.agents.values().flat_map(|agent| &agent.warnings);
        for warning in warnings.chain(&new.unread) {
            tracing::warn!("{warning}");
        }
        if self.in_force().config.alias != new.alias {
            tracing::warn!("`alias` was changed, which needs a restart");
        }
    }

    /// For `status`.
    #[must_use]
    pub fn facts(&self) -> ConfigFacts {
        let in_force = self.in_force();
        ConfigFacts {
            file: self.files[0].display().to_string(),
            since: rfc3339(in_force.since_ms),
            refused: in_force.refused.as_ref().map(|(why, _)| why.clone()),
            needs_restart: in_force.needs_restart.clone(),
        }
    }
}

/// What a thread found out; one that is late is remembered.
async fn in_time<T>(within: Duration, mut look: JoinHandle<T>, hanging: &mut Hanging) -> Option<T> {
    match timeout(within, &mut look).await {
        Ok(found) => found.ok(),
        Err(_late) => {
            *hanging = Some(look.abort_handle());
            None
        }
    }
}

/// Do both say the same? Where in the file they say it doesn't matter.
fn same(one: &Config, other: &Config) -> bool {
    let given = other.given.clone();
    *other
        == Config {
            given,
            ..one.clone()
        }
}
