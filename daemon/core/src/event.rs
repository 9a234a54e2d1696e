//! What happened: everything the core is told. Past tense, closed.

use std::collections::BTreeMap;
use std::sync::Arc;

use agentd_protocol::Id;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{Budget, ConfigFacts, LogFacts};
use agentd_protocol::request::Decoded;
use agentd_protocol::routed::Weighed;
use agentd_protocol::webhook::EndpointRow;

use crate::agent::{Agent, ExecForm, Looked};
use crate::attached::Content;
use crate::ids::{ConnId, Generation, Token, WorkerId};
use crate::machine::Machine;
use crate::store::{Fired, Loaded, Recovered, ScheduleWrite, Stored};
use crate::worker::{Exit, WorkerEvent};

/// Facts about the host that came with a request; the core can't look.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RequestContext {
    /// For `status`: resident memory of this process.
    pub rss_bytes: Option<u64>,
    /// For `status`: how many files this process has open, and may have.
    pub open_files: Option<(u64, u64)>,
    /// For `status`: the database file's size.
    pub store_bytes: u64,
    /// For `status`: the write-ahead log's size.
    pub wal_bytes: u64,
    /// For `status`: the attachments that are not in the store yet.
    pub attached: Budget,
    /// For `status`: how this process logs. For `log_level`: how it would then, or what is wrong with
    /// the level that was given.
    pub log: Option<Result<LogFacts, String>>,
    /// For `status`: which configuration counts.
    pub config: Option<ConfigFacts>,
    /// For `agents`: by their names.
    pub agents: BTreeMap<String, Looked>,
    /// For `send`, `dispatch` and `session.new`: what is known of the directories that it names.
    pub directories: BTreeMap<String, Directory>,
    /// For `send` and `dispatch`: the contents of each send's attachments.
    pub contents: Vec<Vec<Content>>,
    /// For `send`, `dispatch` and `webhook.test`: URLs that nobody may be told at, and why.
    pub callbacks: BTreeMap<String, Rejected>,
    /// For `send`, `dispatch` and `route`: what the routes say of each send, where it is left to them.
    pub routing: Vec<Routing>,
    /// For `webhooks`: what is configured, or why that can't be read.
    pub endpoints: Option<Result<Vec<EndpointRow>, String>>,
    /// For requests that are not the same from inside a worker.
    pub descent: Descent,
    /// For `cron.add`, `cron.edit`, `cron.resume` and `cron.run`: what was worked out, or why nothing
    /// can be.
    pub schedule: Option<Result<Scheduling, Rejected>>,
    /// The core's own: the due time that a `dispatch` is for.
    pub fired: Option<Arc<Fired>>,
    /// The core's own: agents were looked for since it came, so it waits for no other look.
    pub has_looked: bool,
}

/// What a request about a schedule comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scheduling {
    /// A change.
    Write {
        /// Which.
        write: Box<ScheduleWrite>,
        /// What is sent from now on, as JSON, if that is new.
        send: Option<String>,
    },
    /// A job now.
    Run {
        /// What is sent, as JSON.
        send: String,
        /// For which due time.
        fired: Arc<Fired>,
    },
}

/// What the routes say of a send.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Routing {
    /// Each rule, in their order.
    pub weighed: Vec<Weighed>,
    /// The class and the difficulty of its prompt, where a rule asked for them.
    pub classified: Option<(String, String)>,
}

/// What another configuration says.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ConfigTaken {
    /// The agents that are new or not as they were.
    pub agents: Vec<Agent>,
    /// Those that are no agents any more.
    pub removed: Vec<String>,
    /// Those whose processes are of the configuration before.
    pub renewed: Vec<String>,
    /// Who answers when nobody is named.
    pub default_agent: Option<String>,
    /// What spares that nobody configured may take together, in bytes.
    pub spare_memory: Option<u64>,
    /// What was looked for, for the error when no agent is there.
    pub looked_for: String,
}

/// Where the process on the other side of a connection comes from.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Descent {
    /// It and its ancestors.
    pub ancestry: Vec<u32>,
    /// Has it the mark of a worker? It keeps that when its ancestors are gone.
    pub marked: bool,
    /// Was it gone before that could be seen? Whoever has its connection may be an agent.
    pub unseen: bool,
}

/// What is known of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Directory {
    /// It is there; its path without links, dots and needless slashes, where that can be said.
    There(Option<String>),
    /// There is none.
    Missing,
    /// Nobody knows: it doesn't answer.
    Silent,
}

/// Which kind of stream a connection came over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The daemon's socket.
    Socket,
    /// Standard input and output of this very process.
    Stdio,
}

/// What a spawn that made no process says something about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The agent: what it is configured to be can't be run, now or later.
    Agent,
    /// The agent's program: it isn't there, or can't be run just now.
    Missing,
    /// The machine, which is short of processes, memory or descriptors.
    Short,
    /// The machine: it fails, or doesn't answer.
    Machine,
    /// The working directory, and nothing else.
    Directory,
    /// The arguments: too long, or with a byte that can't be in any.
    Arguments,
}

/// Everything the core is told.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A connection was accepted and its peer is our user.
    Connected {
        /// Its name from now on.
        conn: ConnId,
        /// Over what.
        origin: Origin,
    },
    /// The connection is gone. It cancels nothing.
    Disconnected {
        /// Which.
        conn: ConnId,
    },
    /// A decoded request, or why it was refused.
    Requested {
        /// From whom.
        conn: ConnId,
        /// To be echoed.
        id: Option<Id>,
        /// The request.
        request: Result<Decoded, Rejected>,
        /// What the core can't look up.
        facts: Box<RequestContext>,
    },
    /// A reader has taken everything up to the last `Effect::Mark`.
    CaughtUp {
        /// Who.
        conn: ConnId,
    },
    /// The store answered a commit.
    Stored {
        /// Which.
        token: Token,
        /// How.
        stored: Stored,
    },
    /// The store answered a question.
    Loaded {
        /// Which.
        token: Token,
        /// What it found.
        loaded: Loaded,
    },
    /// The store can't write, or can again.
    StoreHealth {
        /// Why not; `None` when all is well.
        trouble: Option<String>,
    },
    /// What is lost of the store has changed: somebody accepted it, or more is.
    StoreLosses {
        /// All that nobody accepted, in words.
        losses: Vec<String>,
    },
    /// What is wrong with the copies that are made by themselves has changed.
    BackupsLack {
        /// In words; `None` when nothing is.
        lacks: Option<String>,
    },
    /// Which schedules agentd has paused has changed.
    SchedulesPaused {
        /// In words; `None` when none is.
        paused: Option<String>,
    },
    /// What a dead instance left in the store is ours now.
    Recovered(Box<Recovered>),
    /// Another instance died without saying goodbye.
    InstanceDied {
        /// Which instance.
        instance: String,
    },
    /// The processes of a dead instance are gone; or these pids would not go.
    InstanceGone {
        /// Which instance.
        instance: String,
        /// What could not be ended.
        survivors: Vec<u32>,
    },
    /// A process is there; it need not be ready.
    Spawned {
        /// Which slot.
        worker: WorkerId,
        /// Which spawn.
        generation: Generation,
        /// Its process id.
        pid: u32,
    },
    /// No process came of a spawn.
    SpawnFailed {
        /// Which slot.
        worker: WorkerId,
        /// Which spawn.
        generation: Generation,
        /// What the system said.
        error: String,
        /// What that is about.
        fault: Fault,
    },
    /// A worker said something.
    Worker {
        /// Which slot.
        worker: WorkerId,
        /// Which spawn.
        generation: Generation,
        /// What.
        event: WorkerEvent,
    },
    /// A worker's standard input took no bytes for too long, or its pipes broke.
    WorkerStuck {
        /// Which slot.
        worker: WorkerId,
        /// Which spawn.
        generation: Generation,
        /// In words for a person.
        why: String,
    },
    /// A process is gone, its group with it, and everything it printed was delivered before this.
    Exited {
        /// Which slot.
        worker: WorkerId,
        /// Which spawn.
        generation: Generation,
        /// How.
        exit: Exit,
        /// The end of what it printed besides protocol.
        tail: String,
    },
    /// An agent's program lacks its long-lived form: from now on the agent is run in the other one.
    FormReplaced {
        /// Its name.
        agent: String,
        /// How it is run from now on.
        form: Box<ExecForm>,
    },
    /// The look that was asked for is over, or somebody else's: these agents are there by now, are
    /// missing for another reason, or have another program than before.
    AgentsFound {
        /// What became of them; those that are as they were are not among them.
        agents: Vec<Agent>,
        /// What was looked for, for the error when no agent is there.
        looked_for: String,
    },
    /// The look at the machine that was asked for is over.
    MachineSeen(Machine),
    /// The configuration was changed: this counts from now on.
    ConfigTaken(Box<ConfigTaken>),
    /// Time passed: some deadline of the core has come.
    Ticked,
    /// The system asked the daemon to stop, by a signal.
    StopAsked,
    /// Standard input of a one-shot worker ended: cancel everything and leave.
    InputLost,
    /// On a connection that said `hello` nothing more can be asked, while answers are outstanding.
    AskedLast {
        /// Which.
        conn: ConnId,
    },
    /// Nobody reads what a connection says, nor asks there any more: what was asked and has not
    /// begun need not begin, and nothing is waited for.
    ReaderLeft {
        /// Which.
        conn: ConnId,
    },
}
