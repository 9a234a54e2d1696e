//! Which version each agent's program is of, whether it is that agent at all, and whether somebody
//! is logged in.
//!
//! Owns when a program is asked: once while its answer holds (`kept`), and only while somebody asks
//! for the agents or when its process ended before it was ready, never at the start. Nobody waits
//! longer than their patience for it. Must not know requests.

mod forms;
mod kept;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentd_core::agent::Looked;
use agentd_core::event::{ConfigTaken, Event};
use agentd_core::ids::{Generation, WorkerId};
use agentd_core::worker::Exit;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::probe::NoAnswer;
use super::reap::SpawnTag;
use super::roster::{HostProbe, Reconfigured, RosterChange, Secrets};
use super::spawn::Plan;
use super::{Spawner, environment, probe};
use crate::adapter::{Kind, Launch};
use crate::config::{self, AgentConfig};
use crate::platform::files::Files;
use kept::{AskedAt, Help, KeptVersion};

pub(super) use forms::Unready;
pub(super) use kept::Stamp;
pub use kept::{Learned, learned};

/// Whoever asks a daemon for the agents waits no longer for versions; the next one has them.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Without a daemon nothing goes on after the answer, so a slow program would never be known: its
/// version is waited for as long as it may take, and its help a little. What is known by then is
/// kept, so the next look only asks for the rest.
const ALONE_WITHIN: Duration = probe::WITHIN.saturating_add(Duration::from_secs(2));
/// Programs asked at once: each is a whole interpreter that starts.
const AT_ONCE: usize = 4;

/// How long an answer is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Somebody may ask again soon: a daemon goes on finding out.
    Short,
    /// This process ends with its answer.
    Long,
}

/// A program that gave no version.
#[derive(Clone, Debug)]
struct SilentProgram {
    stamp: Stamp,
    asked: AskedAt,
    /// In words for a person.
    why: String,
    /// Is it sure that it can't be used?
    broken: bool,
}

/// What a look at an agent's files says.
#[derive(Default)]
struct Glance {
    logged_in: Option<bool>,
    why_not: Option<String>,
}

#[derive(Debug, Default)]
struct Cache {
    read: bool,
    kept: BTreeMap<PathBuf, KeptVersion>,
    /// The programs of all agents that were there at the last look.
    now: BTreeMap<PathBuf, Stamp>,
    /// Never kept for the next daemon.
    silent: BTreeMap<PathBuf, SilentProgram>,
    /// Programs whose help said nothing, and when.
    unhelpful: BTreeMap<PathBuf, (Stamp, AskedAt)>,
    asking: BTreeSet<PathBuf>,
    /// Agents that are run in their exec form since they were found to have no other.
    reformed: BTreeSet<String>,
}

/// The versions of all agents.
pub struct Versions {
    spawner: Spawner,
    patience: Patience,
    file: PathBuf,
    cache: Mutex<Cache>,
    /// One at a time writes the file.
    writing: tokio::sync::Mutex<()>,
    changed: Notify,
    room: Semaphore,
    asked: AtomicU64,
}

impl Versions {
    /// Nothing is read or run yet.
    #[must_use]
    pub fn new(spawner: Spawner, state_dir: &Path, patience: Patience) -> Arc<Self> {
        Arc::new(Self {
            spawner,
            patience,
            file: state_dir.join(kept::FILE),
            cache: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            changed: Notify::new(),
            room: Semaphore::new(AT_ONCE),
            asked: AtomicU64::new(0),
        })
    }

    /// Completes a request with what is known of each agent, and posts it.
    pub fn post_when_looked(self: &Arc<Self>, mut event: Event) {
        let versions = Arc::clone(self);
        self.spawner.tracker.spawn(async move {
            let inbox = versions.spawner.inbox.clone();
            let looked = tokio::select! {
                () = inbox.closed() => return,
                looked = async {
                    versions.look_again().await;
                    versions.look().await
                } => looked,
            };
            if let Event::Requested { facts, .. } = &mut event {
                facts.agents = looked;
            }
            // An owner that is gone answers nobody.
            let _gone = inbox.send(event).await;
        });
    }

    /// Looks which agents there are by now, beside whoever asks.
    pub fn look_for_agents(self: &Arc<Self>) {
        let versions = Arc::clone(self);
        self.spawner.tracker.spawn(async move {
            let inbox = versions.spawner.inbox.clone();
            tokio::select! {
                () = inbox.closed() => {}
                () = versions.look_again() => {}
            }
        });
    }

    /// The owner knows of what was found when this is over.
    async fn look_again(&self) {
        let told = async |found: RosterChange| {
            let names: Vec<&str> = found
                .agents
                .iter()
                .map(|agent| agent.name.as_str())
                .collect();
            if !names.is_empty() {
                tracing::info!(agents = names.join(","), "a new look found other programs");
            }
            // The form of the program before says nothing of the one that is there now.
            self.cache()
                .reformed
                .retain(|name| !names.contains(&name.as_str()));
            let RosterChange {
                agents, looked_for, ..
            } = found;
            // An owner that is gone runs nobody.
            let _gone = (self.spawner.inbox)
                .send(Event::AgentsFound { agents, looked_for })
                .await;
        };
        self.spawner.agents.look(told).await;
    }

    /// Takes what another configuration says of agents; `None` when looking for them takes too long.
    pub async fn configure(
        &self,
        probe: HostProbe,
        secrets: Secrets,
        changed: &BTreeSet<String>,
    ) -> Option<ConfigTaken> {
        let environment = |agent: &AgentConfig, secrets: &Secrets| {
            environment::of_agent(&self.spawner.environment, secrets, agent)
        };
        let new = Reconfigured {
            probe,
            secrets,
            changed,
            environment: &environment,
        };
        let change = self.spawner.agents.configure(new).await?;
        let names: Vec<&str> = change.agents.iter().map(|agent| &*agent.name).collect();
        // In which form one can be run is found out anew.
        self.cache()
            .reformed
            .retain(|name| !names.contains(&name.as_str()));
        Some(ConfigTaken {
            agents: change.agents,
            removed: change.removed,
            renewed: change.renewed,
            looked_for: change.looked_for,
            ..ConfigTaken::default()
        })
    }

    /// Looks at the files of all agents that can be run, beside the runtime's thread.
    async fn glance(self: &Arc<Self>) -> BTreeMap<String, Glance> {
        let versions = Arc::clone(self);
        let looking = tokio::task::spawn_blocking(move || {
            versions.read_kept();
            let files = Files::apart();
            let agents = versions.spawner.agents.all();
            let (mut glances, mut now) = (BTreeMap::new(), BTreeMap::new());
            for (name, agent) in agents.iter() {
                if let Some(program) = agent.command.first().map(PathBuf::from) {
                    now.extend(Stamp::of(&program, &files).map(|stamp| (program, stamp)));
                }
                let agent = versions.in_force(name, agent);
                glances.insert(name.clone(), versions.glance_at(&agent, &files));
            }
            versions.cache().now = now;
            glances
        });
        looking.await.unwrap_or_default()
    }

    fn glance_at(&self, agent: &AgentConfig, files: &Files) -> Glance {
        let secrets = self.spawner.agents.secrets();
        let env = environment::of_agent(&self.spawner.environment, &secrets, agent);
        let value = |name: &str| {
            let value = env.get(OsStr::new(name))?;
            value.to_str().map(str::to_owned)
        };
        let home = value("HOME").map(PathBuf::from);
        let program = agent.command.first();
        Glance {
            logged_in: config::logged_in(agent, home.as_deref(), &value, files),
            why_not: program.and_then(|program| config::why_not_there(program.as_ref(), files)),
        }
    }

    /// What is known of each agent, after a wait for what isn't yet.
    async fn look(self: &Arc<Self>) -> BTreeMap<String, Looked> {
        let until = Instant::now()
            + match self.patience {
                Patience::Short => ANSWER_WITHIN,
                Patience::Long => ALONE_WITHIN,
            };
        self.glance().await;
        for agent in self.spawner.agents.all().values() {
            self.begin(agent);
        }
        loop {
            // Made before the look: it hears of what changes in between although nobody waits yet
            // (tokio, `Notify::notified`).
            let changed = self.changed.notified();
            let waits = !self.cache().asking.is_empty();
            if !waits || timeout_at(until, changed).await.is_err() {
                break;
            }
        }
        self.reform().await;
        let mut glances = self.glance().await;
        let agents = self.spawner.agents.all();
        let looked = agents.iter().map(|(name, agent)| {
            let glance = glances.remove(name).unwrap_or_default();
            let looked = self.looked(&self.in_force(name, agent), glance);
            (name.clone(), looked)
        });
        looked.collect()
    }

    /// Asks the agent's program if that has to be.
    fn begin(self: &Arc<Self>, agent: &AgentConfig) {
        let Some(program) = agent.command.first() else {
            return;
        };
        let path = PathBuf::from(program);
        let now = self.cache().now.get(&path).cloned();
        let Some(stamp) = now.filter(|_| config::tells_version(program)) else {
            return;
        };
        {
            let mut cache = self.cache();
            let kept = cache.kept.get(&path).filter(|kept| kept.stamp == stamp);
            let silent = cache
                .silent
                .get(&path)
                .filter(|silent| silent.stamp == stamp);
            let unhelpful = cache.unhelpful.get(&path);
            let done = kept.is_some_and(KeptVersion::holds)
                || unhelpful.is_some_and(|(of, asked)| *of == stamp && asked.is_fresh())
                || silent.is_some_and(|silent| silent.asked.is_fresh());
            if done || !cache.asking.insert(path.clone()) {
                return;
            }
        }
        let (versions, agent) = (Arc::clone(self), agent.clone());
        self.spawner.tracker.spawn(async move {
            let inbox = versions.spawner.inbox.clone();
            // When the owner is gone, nobody asks any more.
            tokio::select! {
                () = inbox.closed() => {}
                () = versions.ask(&agent, &path, stamp) => versions.reform().await,
            }
            versions.cache().asking.remove(&path);
            versions.changed.notify_waiters();
        });
    }

    async fn ask(&self, agent: &AgentConfig, path: &Path, stamp: Stamp) {
        // It is never closed.
        let Ok(_room) = self.room.acquire().await else {
            return;
        };
        let known = self.cache().kept.get(path).cloned();
        let known = known.filter(|kept| kept.stamp == stamp && kept.lacks_help());
        let mut kept = match known {
            Some(kept) => kept,
            None => match self.ask_version(agent, path, stamp).await {
                Ok(kept) => kept,
                Err(silent) => return self.gave_no_version(path, silent),
            },
        };
        self.learn(path, kept.clone()).await;
        let program = path.to_string_lossy();
        let word = config::long_lived_word(&program);
        let tells = |text: &str| word.is_none_or(|word| text.contains(word));
        let help = match probe::ask(self.plan(agent, path, "--help")).await {
            Ok(help) => help.text(),
            // It may exit so with its help, or with an error in its place.
            Err(NoAnswer::Ended(Exit::Code(_), said)) if tells(&said.text()) => said.text(),
            Err(NoAnswer::Broken(_)) => String::new(),
            // One that was killed says nothing of what it has.
            Err(NoAnswer::Ended(..) | NoAnswer::Unclear(_)) => {
                return self.gave_no_help(path, kept.stamp);
            }
        };
        let says = format!("{}\n{help}", kept.line);
        kept.help = Some(if !config::is_its_own(&program, &says) {
            Help::Another(kept.line.clone())
        } else if help.trim().is_empty() {
            return self.gave_no_help(path, kept.stamp);
        } else if !tells(&help) {
            Help::ExecOnly
        } else {
            Help::Whole
        });
        self.learn(path, kept).await;
    }

    /// What `--version` says.
    async fn ask_version(
        &self,
        agent: &AgentConfig,
        path: &Path,
        stamp: Stamp,
    ) -> Result<KeptVersion, SilentProgram> {
        let answer = probe::ask(self.plan(agent, path, "--version")).await;
        let asked = AskedAt::now();
        let (why, broken) = match answer {
            Ok(printed) => match printed.version() {
                Some(version) => {
                    return Ok(KeptVersion {
                        stamp,
                        asked,
                        version,
                        line: printed.first_line().unwrap_or_default(),
                        help: None,
                    });
                }
                None => ("printed nothing".to_owned(), true),
            },
            Err(NoAnswer::Ended(exit, printed)) => match printed.words() {
                Some(words) => (format!("{exit}: {words}"), true),
                None => (exit.to_string(), true),
            },
            Err(NoAnswer::Broken(why)) => (why, true),
            Err(NoAnswer::Unclear(why)) => (why, false),
        };
        let why = format!("`{} --version` {why}", path.display());
        Err(SilentProgram {
            stamp,
            asked,
            why,
            broken,
        })
    }

    fn gave_no_version(&self, path: &Path, silent: SilentProgram) {
        let mut cache = self.cache();
        cache.kept.remove(path);
        cache.silent.insert(path.to_owned(), silent);
    }

    fn gave_no_help(&self, path: &Path, stamp: Stamp) {
        let unhelpful = (stamp, AskedAt::now());
        self.cache().unhelpful.insert(path.to_owned(), unhelpful);
    }

    async fn learn(&self, path: &Path, kept: KeptVersion) {
        {
            let mut cache = self.cache();
            cache.silent.remove(path);
            cache.kept.insert(path.to_owned(), kept);
            let Cache { kept, now, .. } = &mut *cache;
            kept.retain(|path, kept| now.get(path) == Some(&kept.stamp));
        }
        let _alone = self.writing.lock().await;
        // Taken behind the lock, so that the last to write has all of it.
        let (file, kept) = (self.file.clone(), self.cache().kept.clone());
        let written = tokio::task::spawn_blocking(move || kept::write(&file, &kept));
        // Only a cache: what is lost is asked again.
        if let Ok(Err(error)) = written.await {
            tracing::debug!(%error, "versions of agents are not kept");
        }
    }

    fn looked(&self, agent: &AgentConfig, glance: Glance) -> Looked {
        let mut looked = Looked {
            logged_in: glance.logged_in,
            why_not: glance.why_not,
            one_shot: config::one_shot(agent),
            ..Looked::default()
        };
        let mut notes: Vec<String> = agent.warnings.iter().map(ToString::to_string).collect();
        let program = agent.command.first();
        if let Some(program) = program.filter(|name| config::tells_version(name)) {
            notes.extend(self.said(agent, program, &mut looked));
        }
        looked.note = Some(notes.join("; ")).filter(|notes| !notes.is_empty());
        looked
    }

    /// What the program said, and a note on it.
    fn said(&self, agent: &AgentConfig, program: &str, looked: &mut Looked) -> Option<String> {
        let path = Path::new(program);
        let cache = self.cache();
        let now = cache.now.get(path)?.clone();
        if let Some(silent) = cache.silent.get(path).filter(|silent| silent.stamp == now) {
            let why = silent.why.clone();
            if silent.broken {
                looked.why_not = Some(why);
                return None;
            }
            return Some(why);
        }
        let Some(kept) = cache.kept.get(path).filter(|kept| kept.stamp == now) else {
            let asks = cache.asking.contains(path);
            return asks.then(|| "its version is still being asked for".to_owned());
        };
        looked.version = Some(kept.version.clone());
        match &kept.help {
            Some(Help::Another(words)) => {
                looked.why_not = config::why_another(agent, words);
                None
            }
            Some(Help::Whole) => {
                // Without a daemon the next run is another start.
                let stays = agent.lacks.is_some() && self.patience == Patience::Short;
                stays.then(|| forms::HAS_IT_NOW.to_owned())
            }
            // What somebody runs in a way of their own is theirs to change.
            Some(Help::ExecOnly) if agent.kind != Kind::Exec => {
                config::long_lived_word(program).map(forms::lacks)
            }
            _ => agent.lacks.map(|word| forms::is_run_once(agent, word)),
        }
    }

    fn plan(&self, agent: &AgentConfig, path: &Path, argument: &str) -> Plan {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let mark = SpawnTag {
            instance: self.spawner.instance.clone(),
            worker: format!("probe-{number}"),
        };
        let mut env = environment::common(&self.spawner.environment, agent);
        // What dies here is found by these when this daemon is killed in between.
        env.insert(environment::INSTANCE.into(), mark.instance.clone().into());
        env.insert(environment::WORKER.into(), mark.worker.clone().into());
        Plan {
            worker: WorkerId(0),
            generation: Generation(0),
            launch: Launch {
                argv: vec![path.to_string_lossy().into_owned(), argument.to_owned()],
                ..Launch::default()
            },
            env,
            cwd: PathBuf::from("/"),
            session: None,
            mark,
            file_limit: self.spawner.file_limit,
            groups: self.spawner.groups.clone(),
        }
    }

    /// What was said to daemons before this one. Blocks.
    fn read_kept(&self) {
        if !self.cache().read {
            let kept = kept::read(&self.file);
            let mut cache = self.cache();
            if !std::mem::replace(&mut cache.read, true) {
                cache.kept = kept;
            }
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
