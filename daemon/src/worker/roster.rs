//! Which agents can be run, from one look at the host to the next.
//!
//! Owns the table of them, and what a new look changes in it. Where is looked, `config` knows; what
//! follows from it, the core decides.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentd_core::agent::Agent;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::environment::Environment;
use super::versions::Stamp;
use crate::config::AgentConfig;
use crate::platform::files::Files;

/// Nobody waits longer for a look, and none begins while one hangs. What doesn't answer, children
/// look at; this is for the state directory and the home, which are this process's own.
const LOOK_WITHIN: Duration = Duration::from_secs(4);
/// Looks begin so far apart, however many ask.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a look sees.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostSnapshot {
    /// Every agent that is configured or looked for, and how it is run if it can be.
    pub agents: Vec<(Agent, Option<AgentConfig>)>,
    /// What was looked for, for people.
    pub looked_for: String,
}

/// Looks at the host; it may take its time.
pub type HostProbe = Arc<dyn Fn(&Files) -> HostSnapshot + Send + Sync>;

/// The key-value pairs of the file `env`.
pub type Secrets = Arc<BTreeMap<String, String>>;

/// What is known of one agent.
#[derive(Clone, Debug)]
struct KnownAgent {
    agent: Agent,
    run: Option<AgentConfig>,
    /// Which file its program was.
    stamp: Option<Stamp>,
}

impl KnownAgent {
    fn of((agent, run): (Agent, Option<AgentConfig>), files: &Files) -> Self {
        let stamp = run.as_ref().and_then(|run| {
            let program = run.command.first()?;
            Stamp::of(Path::new(program), files)
        });
        Self { agent, run, stamp }
    }

    /// Is what a new look says of the agent to count from now on?
    fn gives_way_to(&self, new: &Self) -> bool {
        if self.agent.usable.is_err() {
            return self.agent != new.agent;
        }
        // Bad news counts when it is tried: an upgrade takes a moment, and its sessions live.
        if new.agent.usable.is_err() {
            return false;
        }
        // Which form the same program has, it says itself.
        self.stamp != new.stamp
            || self.agent.command.first() != new.agent.command.first()
            || self.agent.logged_in != new.agent.logged_in
    }
}

/// What a look says of all of them.
#[derive(Debug)]
struct AgentsSeen {
    all: Vec<KnownAgent>,
    looked_for: String,
}

impl AgentsSeen {
    fn of(seen: HostSnapshot, files: &Files) -> Self {
        let all = seen.agents.into_iter();
        Self {
            all: all.map(|agent| KnownAgent::of(agent, files)).collect(),
            looked_for: seen.looked_for,
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    known: BTreeMap<String, KnownAgent>,
    secrets: Secrets,
    /// Those that can be run.
    run: Arc<BTreeMap<String, AgentConfig>>,
    looked_for: String,
}

impl Table {
    fn new(sight: AgentsSeen) -> Self {
        let known = sight.all.into_iter();
        let known = known.map(|known| (known.agent.name.clone(), known));
        let mut table = Self {
            known: known.collect(),
            looked_for: sight.looked_for,
            ..Self::default()
        };
        table.run = table.runnable();
        table
    }

    fn runnable(&self) -> Arc<BTreeMap<String, AgentConfig>> {
        let known = self.known.iter();
        let run = known.filter_map(|(name, known)| Some((name.clone(), known.run.clone()?)));
        Arc::new(run.collect())
    }

    /// Takes what another configuration says: of the agents that it `changed` all of it counts.
    fn configure(&mut self, sight: AgentsSeen, new: &Reconfigured) -> RosterChange {
        self.looked_for = sight.looked_for;
        let before = std::mem::replace(&mut self.secrets, Arc::clone(&new.secrets));
        let mut change = RosterChange {
            looked_for: self.looked_for.clone(),
            ..RosterChange::default()
        };
        let names: BTreeSet<&String> = sight.all.iter().map(|new| &new.agent.name).collect();
        change.removed = self.known.keys().cloned().collect();
        change.removed.retain(|name| !names.contains(name));
        for seen in sight.all {
            let name = seen.agent.name.clone();
            let old = self.known.get(&name);
            let counts = old.is_none_or(|old| {
                let differs = old.agent != seen.agent || old.run != seen.run;
                old.gives_way_to(&seen) || new.changed.contains(&name) && differs
            });
            let is_new = match (old.map(|old| &old.run), counts) {
                (Some(Some(old)), true) => seen.run.as_ref().is_none_or(|run| {
                    let differs = (old.kind, &old.command, old.output)
                        != (run.kind, &run.command, run.output);
                    differs
                        || (new.environment)(old, &before) != (new.environment)(run, &new.secrets)
                }),
                (Some(Some(run)), false) => {
                    (new.environment)(run, &before) != (new.environment)(run, &new.secrets)
                }
                (Some(None) | None, _) => false,
            };
            if is_new {
                change.renewed.push(name.clone());
            }
            if counts {
                change.agents.push(seen.agent.clone());
                self.known.insert(name, seen);
            }
        }
        for name in &change.removed {
            self.known.remove(name);
        }
        self.run = self.runnable();
        change
    }

    /// Takes what a new look says that is to count; says of whom.
    fn take(&mut self, sight: AgentsSeen) -> Vec<Agent> {
        self.looked_for = sight.looked_for;
        let mut taken = Vec::new();
        for new in sight.all {
            let name = &new.agent.name;
            if self
                .known
                .get(name)
                .is_none_or(|old| old.gives_way_to(&new))
            {
                taken.push(new.agent.clone());
                self.known.insert(name.clone(), new);
            }
        }
        if !taken.is_empty() {
            self.run = self.runnable();
        }
        taken
    }
}

/// What a look changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RosterChange {
    pub(super) agents: Vec<Agent>,
    /// Those that another configuration doesn't have any more.
    pub(super) removed: Vec<String>,
    /// Those whose processes it would start otherwise.
    pub(super) renewed: Vec<String>,
    pub(super) looked_for: String,
}

/// Another configuration, as far as it is about agents.
pub(super) struct Reconfigured<'a> {
    /// Looks at the host for it.
    pub(super) probe: HostProbe,
    pub(super) secrets: Secrets,
    /// The agents that it says something else of.
    pub(super) changed: &'a BTreeSet<String>,
    /// What an agent's processes find in their environment.
    pub(super) environment: &'a (dyn Fn(&AgentConfig, &Secrets) -> Environment + Sync),
}

/// How far looks are.
#[derive(Debug, Default)]
struct Looking {
    /// When the last one began.
    began: Option<Instant>,
    /// One that nobody waits for any more.
    hangs: Option<JoinHandle<AgentsSeen>>,
}

/// Which agents can be run.
pub struct Roster {
    table: Mutex<Table>,
    probe: Mutex<HostProbe>,
    looking: tokio::sync::Mutex<Looking>,
}

impl Roster {
    /// Takes the first look, which is given, too. Blocks, for about 2 s at most.
    #[must_use]
    pub fn new(look: HostProbe, secrets: Secrets) -> (Arc<Self>, HostSnapshot) {
        let files = Files::apart();
        let seen = look(&files);
        let roster = Self {
            table: Mutex::new(Table {
                secrets,
                ..Table::new(AgentsSeen::of(seen.clone(), &files))
            }),
            probe: Mutex::new(look),
            looking: tokio::sync::Mutex::default(),
        };
        (Arc::new(roster), seen)
    }

    /// How an agent is run, if it can be.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<AgentConfig> {
        self.all().get(name).cloned()
    }

    /// All that can be run.
    #[must_use]
    pub fn all(&self) -> Arc<BTreeMap<String, AgentConfig>> {
        Arc::clone(&self.table().run)
    }

    /// What `pass_env` looks at first.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        Arc::clone(&self.table().secrets)
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks again, beside the runtime's thread; `told` hears what it changed before anybody who
    /// waited goes on. Whoever asked before a look of somebody else's began has that one's.
    pub(super) async fn look<F: Future<Output = ()>>(&self, told: impl FnOnce(RosterChange) -> F) {
        let asked = Instant::now();
        let mut looking = self.looking.lock().await;
        if let Some(began) = looking.began {
            if began > asked {
                return;
            }
            sleep_until(began + LOOK_EVERY).await;
        }
        looking.began = Some(Instant::now());
        let sight = self.see(&mut looking).await;
        let found = {
            let mut table = self.table();
            RosterChange {
                agents: sight.map(|sight| table.take(sight)).unwrap_or_default(),
                looked_for: table.looked_for.clone(),
                ..RosterChange::default()
            }
        };
        told(found).await;
    }

    /// Looks with another configuration, which counts from then on; `None` when that takes too long.
    pub(super) async fn configure(&self, new: Reconfigured<'_>) -> Option<RosterChange> {
        let mut looking = self.looking.lock().await;
        let before = std::mem::replace(&mut *self.probe(), Arc::clone(&new.probe));
        let Some(sight) = self.see(&mut looking).await else {
            *self.probe() = before;
            return None;
        };
        Some(self.table().configure(sight, &new))
    }

    fn probe(&self) -> std::sync::MutexGuard<'_, HostProbe> {
        self.probe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn see(&self, looking: &mut Looking) -> Option<AgentsSeen> {
        if looking
            .hangs
            .as_ref()
            .is_some_and(|hangs| !hangs.is_finished())
        {
            return None;
        }
        let look = Arc::clone(&self.probe());
        let mut seeing = tokio::task::spawn_blocking(move || {
            let files = Files::apart();
            AgentsSeen::of(look(&files), &files)
        });
        match timeout(LOOK_WITHIN, &mut seeing).await {
            Ok(seen) => seen.ok(),
            Err(_) => {
                tracing::warn!(
                    "looking for agents takes long: the home or the state directory does not answer"
                );
                looking.hangs = Some(seeing);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use agentd_core::agent::{Found as How, Warm};

    use super::*;
    use crate::adapter::Kind;

    fn seen(program: &Path, usable: Result<(), &str>) -> HostSnapshot {
        let command = vec![program.to_string_lossy().into_owned()];
        let run = AgentConfig::new(Kind::Jsonl, command.clone());
        let agent = Agent {
            name: "a".to_owned(),
            kind: "jsonl",
            describe: Kind::Jsonl.describe(&command),
            command,
            found: How::OnPath,
            version: None,
            usable: usable.map_err(str::to_owned),
            warm: Warm::Always(0),
            idle_timeout: Duration::ZERO,
            provider: None,
            model: None,
            thinking: None,
            mode: None,
            has: Vec::new(),
            logged_in: None,
            revision: 0,
        };
        let run = agent.usable.is_ok().then_some(run);
        HostSnapshot {
            agents: vec![(agent, run)],
            looked_for: String::new(),
        }
    }

    #[test]
    fn roster_takes_what_came_and_keeps_what_went() {
        let dir = tempfile::TempDir::new().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        std::fs::write(&old, "1").unwrap();
        std::fs::write(&new, "2").unwrap();
        let sight = |seen| AgentsSeen::of(seen, &Files::default());
        let mut table = Table::new(sight(seen(&old, Err("it is not on PATH"))));
        assert!(table.run.is_empty());
        let mut take = |seen: HostSnapshot| {
            let taken = table.take(sight(seen)).len();
            let run = table.run.get("a").map(|run| run.command[0].clone());
            (taken, run)
        };
        let path = |path: &Path| Some(path.to_string_lossy().into_owned());
        assert_eq!(take(seen(&old, Err("it is not on PATH"))), (0, None));
        assert_eq!(take(seen(&old, Err("it is a directory"))), (1, None));
        assert_eq!(take(seen(&old, Ok(()))), (1, path(&old)), "installed");
        assert_eq!(take(seen(&old, Ok(()))), (0, path(&old)));
        assert_eq!(take(seen(&old, Err("gone"))), (0, path(&old)), "away");
        assert_eq!(take(seen(&new, Ok(()))), (1, path(&new)), "elsewhere");
        std::fs::write(dir.path().join("next"), "22").unwrap();
        std::fs::rename(dir.path().join("next"), &new).unwrap();
        assert_eq!(take(seen(&new, Ok(()))), (1, path(&new)), "replaced");
    }

    #[tokio::test]
    async fn roster_looks_once_for_all_who_wait() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let looks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&looks);
        let look = move |_: &Files| {
            counted.fetch_add(1, Ordering::Relaxed);
            HostSnapshot::default()
        };
        let (roster, _) = Roster::new(Arc::new(look), Secrets::default());
        roster.look(async |_| ()).await;
        let one = || roster.look(async |_| ());
        tokio::join!(one(), one(), one(), one());
        assert_eq!(looks.load(Ordering::Relaxed), 3);
    }
}
