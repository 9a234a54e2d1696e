//! What the face holds of its sessions and requests. A restart may lose all of it: a client opens its
//! sessions again, and prompts are the daemon's.
//!
//! Owns these values. Must not know when they change.

use std::time::{Duration, Instant};

use agentd_client::wire::Received;
use agentd_protocol::models::ModelRow;
use agentd_protocol::request::{McpServer, Send};
use agentd_protocol::rows::TurnRow;
use agentd_protocol::{Id, JobId};
use serde_json::Value;

use super::history::{History, Piece};
use super::options::{Offer, Setting};
use super::question::Answers;
use super::wire::Command;

/// An agent that is slow to start doesn't keep a session from being opened: its models come later.
const MODELS_PATIENCE: Duration = Duration::from_secs(10);
/// Nor does the list of agents, for which programs may have to be asked.
const AGENTS_PATIENCE: Duration = Duration::from_secs(1);

/// A session that the client opened.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Its directory, as the daemon named it.
    pub(super) cwd: String,
    /// MCP servers that the client brought for it; `None` leaves it those that it has.
    pub(super) mcp_servers: Option<Vec<McpServer>>,
    /// Has it turns? Then its agent is the one it has.
    pub(super) begun: bool,
    pub(super) offer: Offer,
    /// What was chosen in it by this client, whichever agent it had.
    pub(super) chosen: Setting,
    /// While it is being opened, or made anew.
    pub(super) opening: Option<Opening>,
    /// Prompts that came meanwhile.
    pub(super) waiting: Vec<Prompt>,
    /// Lines of its turns that came meanwhile.
    pub(super) kept: Vec<(JobId, Received)>,
    /// US dollars; `None` where not all turns are known.
    pub(super) spent: Option<f64>,
    /// The slash commands that the client was told.
    pub(super) commands: Vec<Command>,
    /// Were they looked for again since its first turn here? Some agents tell them only then.
    pub(super) commands_known: bool,
    /// Was it told what it is called?
    pub(super) titled: bool,
}

/// A prompt that wasn't sent.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) reply: Id,
    pub(super) send: Box<Send>,
}

/// What a session waits for before it is answered.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) reply: Id,
    pub(super) how: How,
    pub(super) since: Instant,
    /// Is the session itself known?
    pub(super) is_there: bool,
    /// Did its agent say which models it has, or that it doesn't say, or was it too slow?
    pub(super) has_models: bool,
    /// Is the list of agents waited for no longer?
    pub(super) agents_late: bool,
    /// What was said in it, until it was told.
    pub(super) history: Option<History>,
    /// Turns in flight that have to be looked at, of a session that is resumed.
    pub(super) looks: usize,
    /// Turns in flight.
    pub(super) unfinished: Vec<TurnRow>,
    /// Tokens in its context, and how many fit, where that is known.
    pub(super) context: (Option<u64>, Option<u64>),
}

/// Which request is answered when a session is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    New,
    Load,
    Resume,
    /// It begins as the copy of another one.
    Fork,
    /// It gets another agent.
    Agent(Way),
}

/// How a client chooses something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// By an option: the answer has all of them.
    Option,
    /// As it was before options: the answer is empty.
    Older,
}

impl Opening {
    pub(super) fn new(reply: Id, how: How, now: Instant) -> Self {
        Self {
            reply,
            how,
            since: now,
            is_there: false,
            has_models: false,
            agents_late: false,
            history: None,
            looks: 0,
            unfinished: Vec::new(),
            context: (None, None),
        }
    }

    /// What is slow is not waited for any longer, and nothing of it where the client has `ended`.
    pub(super) fn give_up_waiting(&mut self, now: Instant, ended: bool) {
        self.has_models |= ended || now >= self.since + MODELS_PATIENCE;
        self.agents_late |= ended || now >= self.since + AGENTS_PATIENCE;
    }

    /// Is nothing left that has to be waited for?
    pub(super) const fn is_done(&self, has_agents: bool) -> bool {
        self.is_there
            && self.history.is_none()
            && self.looks == 0
            && self.has_models
            && (has_agents || self.agents_late)
    }

    /// When something is given up.
    pub(super) fn deadline(&self, has_agents: bool) -> Option<Instant> {
        let agents = !(has_agents || self.agents_late);
        let agents = agents.then(|| self.since + AGENTS_PATIENCE);
        let models = (!self.has_models).then(|| self.since + MODELS_PATIENCE);
        agents.into_iter().chain(models).min()
    }
}

/// A request to the daemon without its last line.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) kind: &'static str,
    pub(super) fields: Value,
    pub(super) what: What,
    /// Connections that it was lost with.
    pub(super) lost: u32,
}

/// What a request is for.
#[derive(Debug)]
pub(super) enum What {
    /// A session of this name.
    Made(String),
    /// A session of this name, as the copy of another one.
    Forked(String),
    /// A session without a turn is closed, to be made again under another agent.
    Unmade {
        session: String,
        agent: String,
    },
    /// The session again, under another agent than before.
    Remade {
        session: String,
        before: Option<String>,
    },
    /// What is known of a session that is opened.
    Looked(String),
    /// What it is called.
    Titled(String),
    Listed(Id, ListedPage),
    /// Is there a session, which is not open here?
    Closing {
        reply: Id,
        session: String,
    },
    Deleted(Deletion),
    /// The slash commands of a session.
    Commands(String),
    /// Something was done that has no answer of its own.
    Done(Id),
    Models {
        session: String,
        rows: Vec<ModelRow>,
    },
    Agents,
    History(String),
    Piece {
        session: String,
        piece: Piece,
    },
    /// Turns of a session, of which some may be in flight.
    Turns(String),
    /// One that is in flight.
    InFlight(String),
    Set {
        session: String,
        reply: Id,
        way: Way,
    },
    /// What was chosen before is set again, as its session was made anew.
    SetAgain(String),
    /// A prompt that wasn't accepted yet; `cancelled` if it is to be ended at once.
    Prompt {
        session: String,
        reply: Id,
        cancelled: bool,
    },
    /// One that was, with its number.
    Turn(JobId),
    /// Nobody waits for the answer.
    Nobody,
}

/// A session that leaves the list.
#[derive(Debug)]
pub(super) struct Deletion {
    pub(super) reply: Id,
    pub(super) session: String,
    /// Turns that haven't ended by then keep it.
    pub(super) until: Instant,
}

/// A question that was put to the client.
#[derive(Debug)]
pub(super) struct Put {
    pub(super) job: JobId,
    pub(super) answers: Answers,
}

/// Which sessions are in a page of a list.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListedPage {
    /// Those that were used last.
    Newest,
    /// The others, in the order in which they were made.
    Older,
}
