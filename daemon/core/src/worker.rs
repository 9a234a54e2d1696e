//! The commands and events between the core and one worker, whatever protocol the worker speaks.
//!
//! Owns the common denominator of agent protocols. Must not know processes or wires: an adapter
//! translates each of them, or `Capabilities` says that the agent lacks it.

use std::time::Duration;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{
    Cost, FileChange, Level, Sandbox, Stop, ToolKind, ToolLocation, Usage,
};
use agentd_protocol::models::ModeRow;
use agentd_protocol::request::Earlier;
use agentd_protocol::work::{Private, Scope, Silence};
use agentd_protocol::{Code, JobId};

use crate::attached::{AttachmentSupport, Attachments};
use crate::ids::TurnId;
use crate::mcp::McpServers;
pub use crate::pins::ModePin;
pub use crate::said::{CommandList, ContextUse, ModelList};
use crate::store::Pins;

/// A tool call's input or an event's payload: JSON text that the core passes on unread.
pub type Json = String;

/// One user turn, as a worker gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prompt {
    /// Names the turn in every later command and event.
    pub turn: TurnId,
    /// For the worker's tools (`AGENTD_JOB`).
    pub job: JobId,
    /// The session's name.
    pub session: String,
    /// The user's text.
    pub text: String,
    /// What goes with it.
    pub attachments: Attachments,
    /// Pinned provider; unset is omitted towards the worker.
    pub provider: Option<String>,
    /// Pinned model.
    pub model: Option<String>,
    /// Pinned thinking level.
    pub thinking: Option<String>,
    /// Pinned mode, where it goes with each turn.
    pub mode: Option<ModePin>,
    /// What to ask when the model fails, in this order.
    pub fallback_chain: Option<Vec<String>>,
    /// The agent's own id of the session, where it reopens sessions in turns.
    pub native: Option<String>,
    /// Is that another session's id, which is left as it is, and a copy of it opened?
    pub forks: bool,
    /// What the session begins with, where it goes with its first turn.
    pub begins: Option<Box<Begins>>,
    /// Absolute working directory.
    pub cwd: String,
    /// Restricts the tools.
    pub toolsets: Option<Vec<String>>,
    /// MCP servers besides the agent's own.
    pub mcp_servers: McpServers,
}

/// What a session begins with, as its agent takes it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Begins {
    /// What it is told before the conversation.
    pub system: Option<String>,
    /// What was said before elsewhere, oldest first.
    pub history: Vec<Earlier>,
}

/// What the core tells a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerCommand {
    /// Are you there? Answered by `Ready`. The handshake, and asked again after a long idle time.
    Probe,
    /// Run a turn.
    Prompt(Box<Prompt>),
    /// Cancel a turn. Its `Ended` still comes.
    Cancel {
        /// Which.
        turn: TurnId,
    },
    /// Forget the session; the next turn starts a new one. Answered by `Recycled`.
    Recycle,
    /// Take another provider, model, thinking level or mode in the open session, between turns: whatever
    /// is set is as the next turn needs it. Answered by `Switched`.
    Switch(Box<Pins>),
    /// What became of a question.
    Answer {
        /// The worker's own name of the question.
        question: String,
        /// The answer, or that there is none.
        reply: Reply,
    },
    /// Text for a running turn. Answered by `Steered`.
    Steer {
        /// Which turn.
        turn: TurnId,
        /// Names it in its answer.
        steer: u64,
        /// The text.
        text: String,
    },
    /// Which models are there? Asked at any time; answered by `Models`.
    Models {
        /// Names it in its answer.
        number: u64,
        /// What turns are told that name no model, where it goes with each turn.
        pins: Box<Pins>,
    },
    /// Which slash commands are there? Asked at any time; answered by `Commands`.
    Commands {
        /// Names it in its answer.
        number: u64,
    },
    /// Shorten what is remembered of a session that has no turn in flight. Answered by
    /// `Compacted`.
    Compact {
        /// The session's name.
        session: String,
        /// What to keep.
        instructions: Option<String>,
    },
}

/// What an agent may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuestionKind {
    /// May it go on?
    Approval,
    /// One of some options.
    Choice,
    /// Free text.
    Text,
    /// Text that nobody else may see.
    Secret,
}

impl QuestionKind {
    /// As lines name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Choice => "choice",
            Self::Text => "text",
            Self::Secret => "secret",
        }
    }
}

/// A question as a worker asks it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asking {
    /// The worker's own name of it.
    pub question: String,
    /// What for.
    pub kind: QuestionKind,
    /// What is asked.
    pub title: String,
    /// More of it.
    pub detail: Option<String>,
    /// To choose from.
    pub options: Vec<String>,
    /// How long the agent itself waits, if it says.
    pub limit: Option<AskedFor>,
    /// What it is about, for programs.
    pub about: About,
}

/// What a question is about, for programs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct About {
    /// The tool call that leave is asked for.
    pub call: Option<String>,
    /// What that would do: a JSON object.
    pub data: Option<Json>,
    /// How far a yes can go, besides for once.
    pub lasting: Vec<Lasting>,
}

/// How far a yes goes that is for more than once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lasting {
    /// As long as the agent has the session open.
    Session,
    /// From now on.
    Always,
}

impl Lasting {
    /// As lines name it.
    #[must_use]
    pub const fn scope(self) -> Scope {
        match self {
            Self::Session => Scope::Session,
            Self::Always => Scope::Always,
        }
    }
}

impl Asking {
    /// Of all its texts.
    pub(crate) fn bytes(&self) -> usize {
        let detail = self.detail.as_ref().map_or(0, String::len);
        let options = self.options.iter().map(String::len).sum::<usize>();
        let data = self.about.data.as_ref().map_or(0, String::len);
        self.title.len() + detail + options + data
    }
}

/// What a worker hears of its question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Yes, to an approval, for once.
    Approved,
    /// The same for longer, as the agent offered.
    ApprovedFor(Lasting),
    /// No, to an approval, which somebody said.
    Denied,
    /// Nobody answered an approval, which is a no.
    Unanswered(Silence),
    /// This one, to a choice.
    Chosen(String),
    /// Text, secret or not: it is not for logs.
    Text(Private),
    /// No answer comes, to anything but an approval.
    Cancelled,
}

/// The agent's own limit for a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskedFor {
    /// From now on.
    Within(Duration),
    /// Milliseconds since 1970.
    Until(i64),
}

/// What became of a steer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Steering {
    /// The turn has it.
    Taken,
    /// The turn ended first.
    TooLate,
    /// The agent won't.
    Refused(Failure),
}

/// What a worker can do, as far as its handshake says; unset means as `Capabilities` has it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Traits {
    /// One session per process?
    pub one_session: Option<bool>,
    /// Turns at once.
    pub concurrent_sends: Option<u32>,
    /// Does it work in the directory that each turn names, wherever it was started?
    pub cwd_per_turn: bool,
    /// Does it take a system text with a session's first turn?
    pub system: Option<bool>,
    /// Does it take a conversation that was held elsewhere?
    pub history: Option<bool>,
    /// Does it take MCP servers with each turn?
    pub mcp: Option<bool>,
    /// Does it open a copy of a session with a turn?
    pub forks: Option<bool>,
    /// Does it take steers?
    pub steers: Option<bool>,
    /// Can it shorten what it remembers?
    pub compacts: Option<bool>,
    /// What does it take besides text?
    pub takes: Option<AttachmentSupport>,
    /// Does it reopen sessions? `Some(false)`: the process is their memory.
    pub resumes: Option<bool>,
    /// Does it restrict its tools as each turn says?
    pub toolsets: Option<bool>,
    /// Does it take a chain of models?
    pub fallback_chain: Option<bool>,
    /// Does it say which models it has when it is asked?
    pub lists_models: Option<bool>,
    /// Does it say which slash commands it has when it is asked?
    pub lists_commands: Option<bool>,
    /// The models that it offers, where it lists them.
    pub models: Option<Vec<String>>,
    /// The modes that it offers.
    pub modes: Option<Vec<ModeRow>>,
}

/// What is known of a tool call when it begins, besides its input.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ToolAbout {
    /// What it does.
    pub kind: ToolKind,
    /// The files it is about.
    pub locations: Vec<ToolLocation>,
    /// What it changes if it works: told with its end.
    pub diff: Vec<FileChange>,
}

/// What a worker told.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkerEvent {
    /// The handshake is done, or a later probe was answered.
    Ready(Traits),
    /// The agent's own id of the open session, from which it can be resumed.
    SessionNamed {
        /// A path or an id, in the agent's own terms.
        native: String,
    },
    /// The process works in another mode, by its own doing.
    ModeChanged {
        /// As far as the agent says something of it.
        mode: ModeRow,
    },
    /// The agent's own id of the session that a turn is of.
    SessionOfTurn {
        /// In which turn.
        turn: TurnId,
        /// A path or an id, in the agent's own terms.
        native: String,
    },
    /// The process is ready for a new session.
    Recycled,
    /// It has all that it was asked to take; `false`: it can't, and what it has is not known.
    Switched(bool),
    /// A new assistant message begins.
    MessageStarted {
        /// In which turn.
        turn: TurnId,
        /// Does it replace the last one (after a retry or a fallback)?
        replaces_last: bool,
    },
    /// Text of the last message begun; one begins by itself where none was announced.
    Text {
        /// In which turn.
        turn: TurnId,
        /// The next piece.
        text: String,
        /// `false` when it was cut from a finished text.
        native: bool,
    },
    /// Thinking of the last message begun.
    Thinking {
        /// In which turn.
        turn: TurnId,
        /// The next piece.
        text: String,
    },
    /// A tool call begins.
    ToolStarted {
        /// In which turn.
        turn: TurnId,
        /// The agent's id of the call.
        call: String,
        /// The tool.
        name: String,
        /// Its arguments.
        input: Json,
        /// Can it change nothing?
        read_only: bool,
        /// What it does, and to which files.
        about: ToolAbout,
    },
    /// More output of a running tool call.
    ToolUpdated {
        /// In which turn.
        turn: TurnId,
        /// Which call.
        call: String,
        /// Bytes of output before this piece.
        offset: u64,
        /// The piece.
        output: String,
    },
    /// A tool call ended.
    ToolEnded {
        /// In which turn.
        turn: TurnId,
        /// Which call.
        call: String,
        /// Did it work?
        ok: bool,
        /// What it gave.
        output: String,
        /// What its command could reach, if the agent says so.
        sandbox: Option<Sandbox>,
        /// What it changed, if the agent tells it only now.
        diff: Vec<FileChange>,
    },
    /// The agent asks its user.
    Asked {
        /// In which turn, if it belongs to one.
        turn: Option<TurnId>,
        /// What.
        asking: Asking,
    },
    /// The agent wants no answer to its question any more.
    Withdrew {
        /// The worker's own name of the question.
        question: String,
    },
    /// What became of a steer.
    Steered {
        /// Which.
        steer: u64,
        /// What became of it.
        steering: Steering,
    },
    /// Which models there are, or why that isn't known.
    Models {
        /// To which question.
        number: u64,
        /// All of them, as the agent tells them.
        result: Result<ModelList, Failure>,
    },
    /// Which slash commands there are, or why that isn't known.
    Commands {
        /// To which question.
        number: u64,
        /// All of them, as the agent tells them.
        result: Result<CommandList, Failure>,
    },
    /// The session is shorter, or isn't. With a summary, where the agent gives one.
    Compacted {
        /// How it went.
        result: Result<Option<String>, Failure>,
    },
    /// Something is left in the process that no later turn must get: it is to be replaced before.
    Spoilt {
        /// What, in words for a person.
        why: &'static str,
    },
    /// What a person would want to know.
    Noted {
        /// In which turn, if it belongs to one.
        turn: Option<TurnId>,
        /// How much it matters.
        level: Level,
        /// For programs.
        code: &'static str,
        /// The sentence.
        text: String,
    },
    /// Output that was left out: it counts against the turn's limit all the same.
    Skipped {
        /// In which turn.
        turn: TurnId,
        /// How many bytes.
        bytes: usize,
    },
    /// Something passed on untouched.
    Other {
        /// In which turn.
        turn: TurnId,
        /// The agent's name for it.
        kind: String,
        /// The payload.
        data: Json,
    },
    /// The turn is over, as the worker says.
    Ended {
        /// Which.
        turn: TurnId,
        /// How.
        outcome: Box<Outcome>,
    },
    /// A line that belongs to no turn in flight, or one that can't be: counted, shown in `status`.
    Stray {
        /// The beginning of it.
        line: String,
    },
    /// A line of the worker that isn't protocol: kept in its tail.
    Logged {
        /// The line.
        line: String,
    },
}

/// The code of a note about a program that speaks no protocol: who waits for it to get ready hears it.
pub const NOT_JSONL: &str = "not-jsonl";

/// How a turn ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Done, or failed.
    pub result: Result<Stop, Failure>,
    /// The last message's whole text, where the agent gives it at the end.
    pub text: Option<String>,
    /// As the agent names it.
    pub provider: Option<String>,
    /// As the agent names it.
    pub model: Option<String>,
    /// The thinking level that counted, where the agent says it; else the one that was asked for.
    pub thinking: Option<String>,
    /// Was it a model on the user's own machines? `None` where the agent doesn't say.
    pub local: Option<bool>,
    /// `None` where the agent reports none: never invented.
    pub usage: Option<Usage>,
    /// What the session's context holds by now, where the agent says it.
    pub context: ContextUse,
    /// What the agent says it cost.
    pub cost: Cost,
    /// Each a JSON object; `None` where the agent reports none.
    pub api_calls: Option<Vec<Json>>,
    /// Why the model or its provider would not, in their words.
    pub refusal: Option<String>,
    /// Does the text read like a refusal that isn't called one?
    pub suspected_refusal: bool,
    /// The sum of the file that says who the agent is, where it has one.
    pub soul_sha256: Option<String>,
}

impl Outcome {
    /// A turn that ended with `stop` and reported nothing else.
    #[must_use]
    pub fn ended(stop: Stop) -> Self {
        Self {
            result: Ok(stop),
            ..Self::failed(Failure::new(Code::AgentFailed, ""))
        }
    }

    /// A turn that failed and reported nothing else.
    #[must_use]
    pub fn failed(failure: Failure) -> Self {
        Self {
            result: Err(failure),
            text: None,
            provider: None,
            model: None,
            thinking: None,
            local: None,
            usage: None,
            context: ContextUse::default(),
            cost: Cost::default(),
            api_calls: None,
            refusal: None,
            suspected_refusal: false,
            soul_sha256: None,
        }
    }
}

/// Why a turn failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// For programs.
    pub code: Code,
    /// The sentence.
    pub error: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(code: Code, error: impl Into<String>) -> Self {
        Self {
            code,
            error: error.into(),
            hint: None,
        }
    }
}

impl From<Failure> for Rejected {
    /// The same, said before anything was accepted.
    fn from(failure: Failure) -> Self {
        Self {
            code: failure.code,
            error: failure.error,
            hint: failure.hint,
            choices: Vec::new(),
        }
    }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}
