//! Kind `claude`: Claude Code's stream-json, both ways.
//!
//! Owns what may be written to the agent and when. Must not know processes or time.

use std::time::Duration;

use agentd_core::agent::{Describe, Resume, Sessions};
use agentd_core::effect::Spawn;
use agentd_core::worker::{WorkerCommand, WorkerEvent};

use super::{Adapter, Launch};

/// What the kind can do.
#[must_use]
pub const fn describe() -> Describe {
    Describe {
        sessions: Sessions::One,
        resume: Resume::Native,
        cancels: true,
        recycles: false,
        model_per_turn: false,
        toolsets: false,
        steers: false,
        compacts: false,
        concurrent_sends: 1,
        ready_within: Duration::from_secs(60),
    }
}

/// What is run.
#[must_use]
pub fn launch(command: &[String], spawn: &Spawn) -> Launch {
    let _to_come = spawn;
    Launch {
        argv: command.to_vec(),
        ..Launch::default()
    }
}

/// One process's translator.
#[derive(Debug, Default)]
pub struct Claude {}

impl Claude {
    /// A translator for a new process.
    #[must_use]
    pub fn new(spawn: &Spawn) -> Self {
        let _to_come = spawn;
        Self {}
    }
}

impl Adapter for Claude {
    fn decode(&mut self, bytes: &[u8], events: &mut Vec<WorkerEvent>, write: &mut Vec<u8>) {
        let _to_come = (bytes, events, write);
    }

    fn encode(
        &mut self,
        command: &WorkerCommand,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        let _to_come = (command, events, write);
    }
}
