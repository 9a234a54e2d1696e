//! The table of kinds: each with its name, what it can do and how it is run.
//!
//! Owns the closed list; everything else that lists kinds is derived from it or held against it by
//! a test. Must not know any wire.

use agentd_core::agent::Capabilities;
use agentd_core::effect::Spawn;

use super::exec::{self, Output};
use super::{Adapter, Launch, acp, claude, codex, jsonl, pi};

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
