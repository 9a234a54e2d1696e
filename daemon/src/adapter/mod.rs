//! Translation between the core's words and one agent's wire.
//!
//! Owns the closed list of kinds and what each can do. Sans-I/O: bytes in, events and bytes out.
//! Must not know processes, sessions, timers or the store.

pub mod acp;
mod attached;
pub mod claude;
pub mod codex;
pub mod exec;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod jsonl;
mod object;
pub mod pi;
mod refusal;
mod unknown;

use agentd_core::agent::Capabilities;
use agentd_core::effect::Spawn;
use agentd_core::ids::TurnId;
use agentd_core::worker::{Exit, Outcome, WorkerCommand, WorkerEvent};
use serde_json::Value;

/// Which wire an agent speaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// PROTOCOL.md part 8.
    Jsonl,
    /// Any command, a process per turn.
    Exec,
    /// `pi --mode rpc`, both dialects.
    Pi,
    /// The Agent Client Protocol.
    Acp,
    /// Claude Code, by stream-json.
    Claude,
    /// Codex, by `codex app-server`.
    Codex,
}

impl Kind {
    /// Every kind.
    pub const ALL: &[Kind] = &[
        Kind::Jsonl,
        Kind::Exec,
        Kind::Pi,
        Kind::Acp,
        Kind::Claude,
        Kind::Codex,
    ];

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Exec => "exec",
            Self::Pi => "pi",
            Self::Acp => "acp",
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }

    /// What the kind can do when run as `command` (an `exec` command with `{session}` keeps its
    /// own sessions, one without is stateless).
    #[must_use]
    pub fn describe(self, command: &[String]) -> Capabilities {
        match self {
            Self::Jsonl => jsonl::describe(),
            Self::Exec => exec::describe(command),
            Self::Pi => pi::describe(),
            Self::Acp => acp::describe(),
            Self::Claude => claude::describe(),
            Self::Codex => codex::describe(),
        }
    }

    /// What to run for a spawn.
    #[must_use]
    pub fn launch(self, command: &[String], spawn: &Spawn) -> Launch {
        match self {
            Self::Jsonl => jsonl::launch(command, spawn),
            Self::Exec => exec::launch(command, spawn),
            Self::Pi => pi::launch(command, spawn),
            Self::Acp => acp::launch(command, spawn),
            Self::Claude => claude::launch(command, spawn),
            Self::Codex => codex::launch(command, spawn),
        }
    }

    /// Has the daemon's marks on what the agent itself starts, where its environment alone doesn't
    /// bring them there.
    pub fn mark(self, marks: &[(&str, &str)], argv: &mut Vec<String>) {
        if self == Self::Codex {
            codex::mark(marks, argv);
        }
    }

    /// The variables that agents of this kind get from the daemon's environment or the `env` file
    /// without being asked: their own settings, keys and addresses, and no other agent's. The
    /// kinds that any program may speak have none.
    #[must_use]
    pub const fn passes(self) -> &'static [&'static str] {
        match self {
            Self::Jsonl | Self::Exec | Self::Acp => &[],
            Self::Pi => &["PI_CODING_AGENT_DIR"],
            Self::Claude => &[
                "ANTHROPIC_API_KEY",
                "ANTHROPIC_AUTH_TOKEN",
                "ANTHROPIC_BASE_URL",
                "CLAUDE_CODE_OAUTH_TOKEN",
                "CLAUDE_CONFIG_DIR",
            ],
            Self::Codex => &[
                "CODEX_API_KEY",
                "CODEX_HOME",
                "OPENAI_API_KEY",
                "OPENAI_BASE_URL",
            ],
        }
    }

    /// A translator for one process of an agent whose output is `output`.
    #[must_use]
    pub fn adapter_of(self, output: exec::Output, spawn: &Spawn) -> Box<dyn Adapter> {
        match (self, output) {
            (Self::Exec, exec::Output::Openclaw) => Box::new(exec::Openclaw::new(spawn)),
            _ => self.adapter(spawn),
        }
    }

    /// A translator for one process.
    #[must_use]
    pub fn adapter(self, spawn: &Spawn) -> Box<dyn Adapter> {
        match self {
            Self::Jsonl => Box::new(jsonl::Jsonl::new(spawn)),
            Self::Exec => Box::new(exec::Exec::new(spawn)),
            Self::Pi => Box::new(pi::Pi::new(spawn)),
            Self::Acp => Box::new(acp::Acp::new(spawn)),
            Self::Claude => Box::new(claude::Claude::new(spawn)),
            Self::Codex => Box::new(codex::Codex::new(spawn)),
        }
    }
}

/// What a turn ends with whose last line was too long.
const TOO_LONG: &str = "the agent's last line was longer than 16 MiB and was skipped";

/// The end of a turn.
fn ended(turn: TurnId, outcome: Outcome) -> WorkerEvent {
    WorkerEvent::Ended {
        turn,
        outcome: Box::new(outcome),
    }
}

/// The beginning of a text, cut between characters.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// A command line and what is fed to it at once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Launch {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables of the adapter's own, besides the agent's.
    pub env: Vec<(String, String)>,
    /// Written to standard input, which is then closed; `None` keeps it open for commands.
    pub stdin: Option<Vec<u8>>,
}

/// How standard output is cut before it is decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// In lines of at most 16 MiB; longer ones are skipped with a note.
    Lines,
    /// As it comes, in portions of any size.
    Raw,
}

/// One process's translator. No input makes it panic or grow without bound.
pub trait Adapter: Send {
    /// How standard output is cut.
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    /// Translates a line (or a portion) from the worker into events, appended to `events`.
    /// Bytes that the worker must get in return are appended to `write`.
    fn decode(&mut self, bytes: &[u8], events: &mut Vec<WorkerEvent>, write: &mut Vec<u8>);

    /// Translates a command into bytes for the worker, appended to `write`. What can be answered
    /// without the worker is appended to `events`.
    fn encode(
        &mut self,
        command: &WorkerCommand,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    );

    /// What a line that was too long is taken for, where its beginning shows that a turn waits for
    /// it: otherwise that would have no end.
    fn instead_of(&self, beginning: &[u8]) -> Option<Value> {
        let _unused = beginning;
        None
    }

    /// The process is gone and everything it printed was decoded. Only a kind whose exit is the
    /// turn's end has something to say; `tail` is the end of its standard error.
    fn exited(&mut self, exit: Exit, tail: &str, events: &mut Vec<WorkerEvent>) {
        let _unused = (exit, tail, events);
    }
}
