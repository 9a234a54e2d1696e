//! Stub.
use agentd_core::agent::Describe;
use agentd_core::effect::Spawn;
use agentd_core::worker::{WorkerCommand, WorkerEvent};

use super::{Adapter, Launch};

/// Stub.
pub fn describe() -> Describe {
    unreachable!()
}

/// Stub.
pub fn launch(_command: &[String], _spawn: &Spawn) -> Launch {
    unreachable!()
}

/// Stub.
#[derive(Debug)]
pub struct Jsonl;

impl Jsonl {
    /// Stub.
    pub fn new(_spawn: &Spawn) -> Self {
        Self
    }
}

impl Adapter for Jsonl {
    fn decode(&mut self, _bytes: &[u8], _events: &mut Vec<WorkerEvent>, _write: &mut Vec<u8>) {}
    fn encode(
        &mut self,
        _command: &WorkerCommand,
        _events: &mut Vec<WorkerEvent>,
        _write: &mut Vec<u8>,
    ) {
    }
}
