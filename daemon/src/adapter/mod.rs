//! Translation between the core's words and one agent's wire.
//!
//! Owns the table of kinds, from which everything else that lists kinds is derived or held against it
//! by a test, and what every translator is. Sans-I/O: bytes in, events and bytes out.
//! Must not know processes, sessions, timers or the store.

pub mod acp;
mod attached;
pub mod claude;
pub mod codex;
mod commands;
mod driver;
pub mod exec;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod jsonl;
mod mcp;
mod object;
pub mod pi;
mod refusal;
mod steer_queue;
#[cfg(any(test, feature = "fuzzing"))]
mod testing;
mod tool;
mod unknown;

use agentd_core::agent::Capabilities;
use agentd_core::effect::Spawn;
use agentd_core::ids::TurnId;
use agentd_core::worker::{Exit, Outcome, WorkerCommand, WorkerEvent};
use serde_json::Value;

use exec::Output;

/// A row of the table.
struct KindSpec {
    /// Its name in the configuration.
    name: &'static str,
    /// What it can do when run as a command.
    describe: fn(&[String]) -> Capabilities,
    /// What to run for a spawn.
    launch: fn(&[String], &Spawn) -> Launch,
    /// Has the daemon's marks on what the agent itself starts.
    mark: fn(&[(&str, &str)], &mut Vec<String>),
    /// The variables that it gets without being asked.
    passes: &'static [&'static str],
    /// A translator for one process.
    adapter: fn(Output, &Spawn) -> Box<dyn Adapter>,
}

/// For kinds whose own children get their environment.
const UNMARKED: fn(&[(&str, &str)], &mut Vec<String>) = |_, _| {};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $spec:expr,)*) => {
        /// Which wire an agent speaks.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            const fn spec(self) -> &'static KindSpec {
                match self {
                    $(Self::$kind => const { &$spec },)*
                }
            }
        }
    };
}

kinds! {
    /// PROTOCOL.md part 8.
    Jsonl: KindSpec {
        name: "jsonl",
        describe: |_| jsonl::describe(),
        launch: jsonl::launch,
        mark: UNMARKED,
        passes: &[],
        adapter: |_, spawn| Box::new(jsonl::Jsonl::new(spawn)),
    },
    /// Any command, a process per turn.
    Exec: KindSpec {
        name: "exec",
        describe: exec::describe,
        launch: exec::launch,
        mark: UNMARKED,
        passes: &[],
        adapter: exec::adapter,
    },
    /// `pi --mode rpc`, both dialects.
    Pi: KindSpec {
        name: "pi",
        describe: |_| pi::describe(),
        launch: pi::launch,
        mark: UNMARKED,
        passes: &["PI_CODING_AGENT_DIR"],
        adapter: |_, spawn| Box::new(pi::Pi::new(spawn)),
    },
    /// The Agent Client Protocol.
    Acp: KindSpec {
        name: "acp",
        describe: |_| acp::describe(),
        launch: acp::launch,
        mark: UNMARKED,
        passes: &[],
        adapter: |_, spawn| Box::new(acp::Acp::new(spawn)),
    },
    /// Claude Code, by stream-json.
    Claude: KindSpec {
        name: "claude",
        describe: |_| claude::describe(),
        launch: claude::launch,
        mark: UNMARKED,
        passes: &[
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CONFIG_DIR",
        ],
        adapter: |_, spawn| Box::new(claude::Claude::new(spawn)),
    },
    /// Codex, by `codex app-server`.
    Codex: KindSpec {
        name: "codex",
        describe: |_| codex::describe(),
        launch: codex::launch,
        mark: codex::mark,
        passes: &["CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"],
        adapter: |_, spawn| Box::new(codex::Codex::new(spawn)),
    },
}

impl Kind {
    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// What the kind can do when run as `command` (an `exec` command with `{session}` keeps its
    /// own sessions, one without is stateless).
    #[must_use]
    pub fn describe(self, command: &[String]) -> Capabilities {
        (self.spec().describe)(command)
    }

    /// What to run for a spawn.
    #[must_use]
    pub fn launch(self, command: &[String], spawn: &Spawn) -> Launch {
        (self.spec().launch)(command, spawn)
    }

    /// Has the daemon's marks on what the agent itself starts, where its environment alone doesn't
    /// bring them there.
    pub fn mark(self, marks: &[(&str, &str)], argv: &mut Vec<String>) {
        (self.spec().mark)(marks, argv);
    }

    /// The variables that agents of this kind get from the daemon's environment or the `env` file
    /// without being asked: their own settings, keys and addresses, and no other agent's. The
    /// kinds that any program may speak have none.
    #[must_use]
    pub const fn passes(self) -> &'static [&'static str] {
        self.spec().passes
    }

    /// A translator for one process of an agent whose output is `output`.
    #[must_use]
    pub fn adapter_of(self, output: Output, spawn: &Spawn) -> Box<dyn Adapter> {
        (self.spec().adapter)(output, spawn)
    }

    /// A translator for one process.
    #[must_use]
    pub fn adapter(self, spawn: &Spawn) -> Box<dyn Adapter> {
        self.adapter_of(Output::default(), spawn)
    }
}

/// What a turn ends with whose last line was too long.
const TOO_LONG: &str = "the agent's last line was longer than 16 MiB and was skipped";

/// Models of an agent that are read: the core tells no more, one more shows that there are.
const MOST_MODELS: usize = agentd_core::limits::MODELS_TOLD + 1;

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
    /// All that is to be read at standard input; `None` keeps it open for commands.
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
    /// without the worker is appended to `events`. A process that was given everything at its spawn
    /// is told nothing more.
    fn encode(
        &mut self,
        command: &WorkerCommand,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        let _unused = (command, events, write);
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_names_that_help_lists() {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(*kind));
        }
        let help = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../client/cli/src/args/agents.rs"
        );
        let help = std::fs::read_to_string(help).unwrap();
        assert!(help.contains(&format!("The kinds: {}.", names.join(", "))));
    }
}
