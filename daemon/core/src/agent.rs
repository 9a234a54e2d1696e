//! What the core knows of each agent. Owns no process and no path look-up: the shell found out.

use std::time::Duration;

use agentd_protocol::line::{CostStatus, Stop};
use agentd_protocol::rows::agent_to_do;

use crate::attached::AttachmentSupport;
use crate::mcp::McpServing;
use crate::toolsets::Toolsets;
use crate::worker::QuestionKind;

/// One agent, from the configuration, from PATH, or built in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agent {
    /// Its name on the wire.
    pub name: String,
    /// `jsonl`, `exec`, `pi`, …
    pub kind: &'static str,
    /// What is run, for people.
    pub command: Vec<String>,
    /// How it was found.
    pub found: Found,
    /// Its version, where that is cheap to know.
    pub version: Option<String>,
    /// Or why not, in words for a person.
    pub usable: Result<(), String>,
    /// What its protocol can do.
    pub describe: Capabilities,
    /// Spare processes to keep.
    pub warm: Warm,
    /// A process idle this long is stopped, where its sessions can be resumed.
    pub idle_timeout: Duration,
    /// Default model provider.
    pub provider: Option<String>,
    /// Default model.
    pub model: Option<String>,
    /// Default thinking level.
    pub thinking: Option<String>,
    /// Default mode; the only one that may ask nobody for anything.
    pub mode: Option<String>,
    /// Providers of models that it has for sure, besides those that its kind says.
    pub has: Vec<String>,
    /// Has it what it needs to answer, a login or a key, where that can be seen?
    pub logged_in: Option<bool>,
    /// How often its processes have come to be started otherwise: counted by the core.
    pub revision: u64,
}

impl Agent {
    /// What somebody has to do before it answers, if anything.
    #[must_use]
    pub fn to_do(&self) -> Option<&'static str> {
        agent_to_do(self.found == Found::BuiltIn, self.logged_in)
    }
}

/// How many spare processes an agent has: ready for turns of sessions to come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Warm {
    /// One while the agent is in use, as far as the machine has room for it.
    #[default]
    WhenUsed,
    /// So many, always; 0 forbids them.
    Always(u32),
}

/// The exec form of an agent whose program lacks the form that it was run in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecForm {
    /// `exec`.
    pub kind: &'static str,
    /// What is run, for people.
    pub command: Vec<String>,
    /// What that can do: its processes are turns.
    pub describe: Capabilities,
    /// What the program lacks, in words for a person.
    pub why: String,
}

/// How an agent was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Named in the configuration.
    Configured,
    /// Its program is on PATH.
    OnPath,
    /// Its program is where installers put it, though not on PATH.
    InPlace,
    /// Comes with agentd.
    BuiltIn,
    /// Looked for, not there.
    Missing,
}

/// What a look at the host says of an agent, when somebody asks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Looked {
    /// What its program says of itself.
    pub version: Option<String>,
    /// Why there is no version, or what it lacks.
    pub note: Option<String>,
    /// Why it can't be used, when its program says so itself.
    pub why_not: Option<String>,
    /// Is somebody logged in, where that can be seen?
    pub logged_in: Option<bool>,
    /// How one turn of it is run without agentd, if it has a form for that.
    pub one_shot: Option<Vec<String>>,
}

/// What an agent's protocol can do. Every adapter has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// How sessions and processes relate.
    pub sessions: Sessions,
    /// What survives the process.
    pub resume: Resume,
    /// Can a running turn be cancelled by a command? Otherwise its process is stopped.
    pub cancels: bool,
    /// Can a process be used for a new session?
    pub recycles: bool,
    /// Are model and provider given with each turn (else when the process starts)?
    pub model_per_turn: bool,
    /// Is the thinking level?
    pub thinking_per_turn: bool,
    /// May its process take other ones between turns? It says whether it did.
    pub switches: bool,
    /// Can it be told which model to use?
    pub models: bool,
    /// Can it be told which provider's?
    pub providers: Providers,
    /// Can it be told how hard to think?
    pub thinking: Levels,
    /// Can it be told in which of its own ways to work?
    pub modes: Modes,
    /// Can it restrict tools, unless its handshake says otherwise?
    pub toolsets: Toolsets,
    /// Does it take a chain of models to fall back to, unless its handshake says otherwise?
    pub fallback_chain: bool,
    /// How it takes a session's system text, unless its handshake says otherwise.
    pub system: SystemText,
    /// Does it take a conversation that was held elsewhere, unless its handshake says otherwise?
    pub history: bool,
    /// How it takes MCP servers of a session.
    pub mcp: McpServing,
    /// Can it open a copy of a session, unless its handshake says otherwise?
    pub forks: bool,
    /// Does it take a steer, unless its handshake says otherwise?
    pub steers: bool,
    /// Does it say which models it has when it is asked, unless its handshake says otherwise?
    pub lists_models: bool,
    /// Does it say which slash commands it has?
    pub lists_commands: bool,
    /// Can it shorten what it remembers, unless its handshake says otherwise?
    pub compacts: bool,
    /// What it tells of its turns.
    pub tells: Reports,
    /// What it takes besides text, at most: its handshake may say less.
    pub attachments: AttachmentSupport,
    /// Turns at once in one process, unless its handshake says otherwise.
    pub concurrent_sends: u32,
    /// From spawn to `Ready`.
    pub ready_within: Duration,
}

/// What an agent tells of its turns, at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reports {
    /// What it thinks, piece by piece, apart from its text.
    pub thinking: bool,
    /// Its tools, from their start to their end.
    pub tools: bool,
    /// The tokens that were used.
    pub usage: bool,
    /// How much of its context a session has used, and how much fits.
    pub context: bool,
    /// Where what it says of its cost comes from; empty where it says nothing.
    pub costs: &'static [CostStatus],
    /// What it asks.
    pub questions: &'static [QuestionKind],
    /// Why a turn ended, where it did not fail.
    pub stops: &'static [Stop],
}

impl Reports {
    /// Its text, and nothing else.
    pub const TEXT: Self = Self {
        thinking: false,
        tools: false,
        usage: false,
        context: false,
        costs: &[],
        questions: &[],
        stops: &[Stop::EndTurn, Stop::Cancelled],
    };
}

/// How sessions and processes relate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sessions {
    /// One session per process.
    One,
    /// Many sessions share a process.
    Many,
    /// A process per turn: it is given the prompt at its spawn, needs no handshake, and its exit
    /// is the turn's end.
    PerTurn,
}

/// How an agent takes the text that it is told before a session's conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemText {
    /// Its process is started with it.
    AtStart,
    /// It goes with the session's first turn.
    WithTurn,
    /// As the beginning of the first prompt: it has no other place for it.
    InPrompt,
}

/// Which model providers an agent can be told to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Providers {
    /// It judges the name itself, and says so when it knows none of it.
    Any,
    /// These.
    Known(&'static [&'static str]),
    /// Those that its models are named by: none without a model.
    OfModel,
    /// It can't be told.
    None,
}

/// Which thinking levels an agent can be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Levels {
    /// It judges the name itself, and says so when it doesn't know it.
    Any,
    /// These.
    Known(&'static [&'static str]),
    /// It can't be told.
    None,
}

/// Which ways of working of its own an agent can be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Modes {
    /// Those that it offers when its session is opened; told with a turn.
    Offered,
    /// These; its process is started with one, and may take another one between turns.
    Known(&'static [Mode]),
    /// It can't be told.
    None,
}

/// A way of working of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// As the agent calls it.
    pub id: &'static str,
    /// What it does otherwise.
    pub description: &'static str,
    /// Whom it asks before it does something.
    pub consent: Consent,
}

/// Does an agent ask before it does something?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consent {
    /// At least before some of it, or it doesn't do that at all.
    Asked,
    /// It doesn't ask its user: only the owner of the machine may choose that, in the configuration.
    Skipped,
}

/// What survives the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// The agent reopens a session by its own id, when its process starts.
    Native,
    /// The agent reopens a session by its own id, which goes with each turn, if its handshake says
    /// so. Otherwise the process is the memory.
    InTurn,
    /// The process is the memory.
    None,
    /// There is no memory at all: every turn is new.
    Stateless,
}
