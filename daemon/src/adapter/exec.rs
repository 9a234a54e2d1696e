//! Stub.
use agentd_core::agent::Describe;
use agentd_core::effect::Spawn;
use agentd_core::worker::{WorkerCommand, WorkerEvent};

use super::{Adapter, Launch};

/// Stub.
pub fn describe(_command: &[String]) -> Describe {
    unreachable!()
}

/// Stub.
pub fn launch(_command: &[String], _spawn: &Spawn) -> Launch {
    unreachable!()
}

/// Stub.
#[derive(Debug)]
pub struct Exec;

impl Exec {
    /// Stub.
    pub fn new(_spawn: &Spawn) -> Self {
        Self
    }
}

impl Adapter for Exec {
    fn decode(&mut self, _bytes: &[u8], _events: &mut Vec<WorkerEvent>, _write: &mut Vec<u8>) {}
    fn encode(
        &mut self,
        _command: &WorkerCommand,
        _events: &mut Vec<WorkerEvent>,
        _write: &mut Vec<u8>,
    ) {
    }
}
