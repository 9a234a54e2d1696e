//! What is to be done: everything the core asks of the shell. Imperative, closed, in order.

use std::sync::Arc;

use agentd_protocol::line::Telling;
use agentd_protocol::{Body, Id};

use crate::ids::{ConnId, Generation, Token, WorkerId};
use crate::log::Entry;
use crate::mcp::McpServers;
use crate::store::{Pins, Query, Urgency, Write};
use crate::worker::{Prompt, WorkerCommand};

/// Does a line end its request?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// More lines follow for this request, or the line belongs to none.
    More,
    /// It is the request's last line.
    Answered,
    /// It is the request's last line, and live lines follow until unsubscribed.
    Subscribed,
    /// It is the request's last line, and no live lines follow.
    Unsubscribed,
}

/// How a process is told to end, the mildest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StopStage {
    /// Close its standard input.
    Ask,
    /// SIGTERM (and SIGCONT) to its group.
    Term,
    /// SIGKILL to its group, and to what escaped it.
    Kill,
}

/// What a process is started with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spawn {
    /// Which agent of the configuration.
    pub agent: String,
    /// Absolute working directory.
    pub cwd: String,
    /// Pinned provider.
    pub provider: Option<String>,
    /// Pinned model.
    pub model: Option<String>,
    /// Pinned thinking level.
    pub thinking: Option<String>,
    /// Pinned mode.
    pub mode: Option<String>,
    /// Restricts the tools.
    pub toolsets: Option<Vec<String>>,
    /// What the session's agent is told before the conversation.
    pub system: Option<Arc<str>>,
    /// MCP servers besides the agent's own.
    pub mcp_servers: McpServers,
    /// The session it is for, when that is known; for the record in `instances/`.
    pub session: Option<String>,
    /// The agent's own id of a session to reopen.
    pub resume: Option<String>,
    /// Is that one left as it is, and a copy of it opened?
    pub forks: bool,
    /// The turn, for an agent that takes a process per turn.
    pub prompt: Option<Box<Prompt>>,
}

impl Spawn {
    /// What is pinned.
    #[must_use]
    pub fn pins(&self) -> Pins {
        Pins {
            provider: self.provider.clone(),
            model: self.model.clone(),
            thinking: self.thinking.clone(),
            mode: self.mode.clone(),
        }
    }
}

/// Everything the core asks of the shell.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Write a line to a connection.
    Send {
        /// To whom.
        conn: ConnId,
        /// The line.
        body: Body,
        /// The request's id, echoed.
        id: Option<Id>,
        /// The line's number, if it has one.
        seq: Option<u64>,
        /// For the first time, or again?
        telling: Telling,
        /// Does it end the request?
        progress: Progress,
    },
    /// Report `CaughtUp` when everything sent so far was written.
    Mark {
        /// Whose queue.
        conn: ConnId,
    },
    /// The client said `hello`: the connection stays open until it leaves.
    Keep {
        /// Which.
        conn: ConnId,
    },
    /// Close when everything asked is answered.
    Finish {
        /// Which.
        conn: ConnId,
    },
    /// Close without an answer: the outcome is unknown.
    Close {
        /// Which.
        conn: ConnId,
    },
    /// Commit these writes together, or none; answered by `Stored`.
    Commit {
        /// Named in the answer.
        token: Token,
        /// What.
        writes: Vec<Write>,
        /// Does somebody wait?
        urgency: Urgency,
    },
    /// Look something up, after the commits so far; answered by `Loaded`.
    Load {
        /// Named in the answer.
        token: Token,
        /// What.
        query: Query,
    },
    /// Take over what a dead instance left, and end its processes; answered by `Recovered` and
    /// `InstanceGone`.
    Recover {
        /// Which instance.
        instance: String,
    },
    /// Start a process; answered by `Spawned` or `SpawnFailed`.
    Spawn {
        /// In which slot.
        worker: WorkerId,
        /// Under which number.
        generation: Generation,
        /// With what.
        spawn: Box<Spawn>,
    },
    /// Tell a worker.
    Tell {
        /// Which slot.
        worker: WorkerId,
        /// Which spawn.
        generation: Generation,
        /// What.
        command: WorkerCommand,
    },
    /// Read what a process says no more, or again: the store is behind. What it had said by then may
    /// still come, and everything does once it is dead.
    Pause {
        /// Which slot.
        worker: WorkerId,
        /// Which spawn.
        generation: Generation,
        /// No more?
        paused: bool,
    },
    /// End a process; answered by `Exited` in time.
    End {
        /// Which slot.
        worker: WorkerId,
        /// Which spawn.
        generation: Generation,
        /// How.
        stage: StopStage,
    },
    /// Look which agents there are; answered by `AgentsFound`, whatever comes of it.
    LookForAgents,
    /// Look what the machine runs on, how much memory is left, and what these processes take;
    /// answered by `MachineSeen`.
    LookAtMachine {
        /// Each with all that it started.
        pids: Vec<u32>,
    },
    /// Write a line of the log.
    Log(Box<Entry>),
    /// From now on log what these directives let through; they were read before.
    SetLogLevel(String),
    /// Refuse nothing, but tell the service manager and the lock file what is going on.
    Announce(Announcement),
    /// Flush, close everything and leave with exit code 0.
    Exit,
}

impl Effect {
    /// Is it a line to a connection, or about one?
    #[must_use]
    pub const fn is_for_a_connection(&self) -> bool {
        matches!(
            self,
            Self::Send { .. }
                | Self::Mark { .. }
                | Self::Keep { .. }
                | Self::Finish { .. }
                | Self::Close { .. }
        )
    }
}

/// What the outside should know about the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announcement {
    /// It will go down: nobody is let in any more, and whoever is in is served as ever.
    Leaving,
    /// It is going down.
    Stopping,
    /// It is going down and another follows at once: clients wait for it.
    Restarting,
}
