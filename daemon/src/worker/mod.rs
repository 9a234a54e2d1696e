//! One process per slot and generation: started, fed, listened to, and made sure to be gone.
//!
//! Owns how commands reach a process and how its words reach the owner. Must not decide anything:
//! when to start, stop or restart is for the core to say.

mod environment;
mod family;
mod fetch;
mod logins;
mod one_text;
mod probe;
mod pump;
mod reap;
mod roster;
mod said;
mod spawn;
mod tail;
mod versions;
mod worker_io;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use agentd_core::effect::{Spawn, StopStage};
use agentd_core::event::Event;
use agentd_core::ids::{Generation, WorkerId};
use agentd_core::worker::WorkerCommand;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::adapter::{Adapter, Kind};
use crate::config::exec_form;
use crate::platform::cgroup::Delegated;
use crate::platform::machine;
use spawn::Plan;
use versions::Unready;

pub(crate) use environment::around;
pub use fetch::Attach;
pub use logins::tell_logins;
pub use reap::adopt_orphans;
pub use roster::{HostProbe, HostSnapshot, Roster, Secrets};
pub use spawn::FileLimit;
pub use versions::{Learned, Patience, Versions, learned};

/// Commands waiting for one process: the core has few turns in one process, so more is a bug of ours.
pub const COMMANDS: usize = 256;

/// What the owner wants of a process. Dropping the sender of the commands kills it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProcessCommand {
    /// Pass a word on.
    Tell(WorkerCommand),
    /// End it.
    End(StopStage),
    /// Read what it says no more, or again.
    Pause(bool),
}

/// A process that was started, for the list in `instances/`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpawnRecord {
    /// The slot.
    pub worker: WorkerId,
    /// The spawn.
    pub generation: Generation,
    /// The process, which leads a group of the same number.
    pub pid: u32,
    /// When it started, in the kernel's ticks since boot: with the pid it names one process.
    pub started: Option<u64>,
    /// The session it is for, when that is known.
    pub session: Option<String>,
}

/// Starts processes.
#[derive(Clone)]
pub struct Spawner {
    /// Where everything that happens is told.
    pub inbox: mpsc::Sender<Event>,
    /// Every process's task is tracked here, so that stop can wait for it.
    pub tracker: TaskTracker,
    /// This instance's name: `AGENTD_INSTANCE` of every process.
    pub instance: String,
    /// `AGENTD_SOCKET` of every process.
    pub socket: Option<PathBuf>,
    /// The agents that can be run.
    pub agents: Arc<Roster>,
    /// What only the built-in agent is told: where its configuration and its state are.
    pub built_in: Arc<BTreeMap<OsString, OsString>>,
    /// In how many runs of others this one runs.
    pub around: usize,
    /// The daemon's own environment, of which little is passed on.
    pub environment: Arc<BTreeMap<OsString, OsString>>,
    /// The limit of open files to be restored in children; `None` when it was never raised.
    pub file_limit: Option<FileLimit>,
    /// Where each process gets a control group of its own; `None` where none can be made.
    pub groups: Option<Arc<Delegated>>,
    /// Writes a process down before anything else is done with it.
    pub record: Arc<dyn Fn(SpawnRecord) + Send + Sync>,
    /// Where a turn's attachments come from.
    pub attach: Attach,
    /// Who is asked when a process never got ready; `None` where nobody is.
    pub versions: Option<Arc<Versions>>,
}

impl Spawner {
    /// Starts a process. Everything else is told by events: `Spawned` or `SpawnFailed` first.
    #[must_use]
    pub fn spawn(
        &self,
        worker: WorkerId,
        generation: Generation,
        spawn: Spawn,
    ) -> mpsc::Sender<ProcessCommand> {
        let Some(agent) = self.agents.get(&spawn.agent) else {
            let error = format!("there is no agent `{}` in the configuration", spawn.agent);
            let failure = spawn::SpawnFailure::permanent(error);
            return self.refuse(worker, generation, failure);
        };
        // A process that is given its turn at its start is the exec form, whatever the agent was
        // found to be at first.
        let form = (agent.kind != Kind::Exec && spawn.prompt.is_some()).then(|| exec_form(&agent));
        let unready = self.versions.as_ref().filter(|_| spawn.prompt.is_none());
        let unready = unready.map(|versions| Unready::new(versions, &spawn.agent));
        let agent = form.flatten().unwrap_or(agent);
        let mut launch = agent.kind.launch(&agent.command, &spawn);
        let mark = self.mark(worker, generation);
        agent.kind.mark(&mark.variables(), &mut launch.argv);
        let adapter = agent.kind.adapter_of(agent.output, &spawn);
        let env = environment::of_worker(self, &agent, &launch, &mark, &spawn);
        let plan = Plan {
            worker,
            generation,
            launch,
            env,
            cwd: PathBuf::from(&spawn.cwd),
            session: spawn.session,
            mark,
            file_limit: self.file_limit,
            groups: self.groups.clone(),
        };
        self.start(plan, adapter, unready)
    }

    /// Looks for agents; the answer is `AgentsFound`, whatever comes of it.
    pub fn look_for_agents(&self) {
        if let Some(versions) = &self.versions {
            return versions.look_for_agents();
        }
        let inbox = self.inbox.clone();
        self.tracker.spawn(async move {
            let nothing = Event::AgentsFound {
                agents: Vec::new(),
                looked_for: String::new(),
            };
            // An owner that is gone needs no answer.
            let _gone = inbox.send(nothing).await;
        });
    }

    /// Looks at the machine, beside the runtime's thread; the answer is `MachineSeen`.
    pub fn look_at_machine(&self, pids: Vec<u32>) {
        let inbox = self.inbox.clone();
        self.tracker.spawn(async move {
            let seen = tokio::task::spawn_blocking(move || machine::look(&pids)).await;
            // An owner that is gone needs no answer.
            let _gone = inbox
                .send(Event::MachineSeen(seen.unwrap_or_default()))
                .await;
        });
    }

    fn mark(&self, worker: WorkerId, generation: Generation) -> reap::SpawnTag {
        reap::SpawnTag {
            instance: self.instance.clone(),
            worker: environment::worker_mark(worker, generation),
        }
    }

    fn start(
        &self,
        plan: Plan,
        adapter: Box<dyn Adapter>,
        unready: Option<Unready>,
    ) -> mpsc::Sender<ProcessCommand> {
        let (sender, commands) = mpsc::channel(COMMANDS);
        let inbox = self.inbox.clone();
        let (record, attach) = (Arc::clone(&self.record), Arc::clone(&self.attach));
        self.tracker.spawn(async move {
            pump::live(plan, adapter, commands, inbox, record, attach, unready).await;
        });
        sender
    }

    fn refuse(
        &self,
        worker: WorkerId,
        generation: Generation,
        failure: spawn::SpawnFailure,
    ) -> mpsc::Sender<ProcessCommand> {
        let (sender, _dropped) = mpsc::channel(1);
        let inbox = self.inbox.clone();
        self.tracker.spawn(async move {
            // An owner that is gone needs no answer.
            let _gone = inbox.send(failure.event(worker, generation)).await;
        });
        sender
    }
}
