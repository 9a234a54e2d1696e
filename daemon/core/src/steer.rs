//! A word to a running turn.
//!
//! Owns which turn is meant and what its agent made of it. Must not know wires.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::work::Steer;
use agentd_protocol::{Code, Id};

use crate::event::Facts;
use crate::ids::ConnId;
use crate::state::State;

impl State {
    pub(crate) fn steer(&mut self, conn: ConnId, id: Option<Id>, _steer: Steer, _facts: &Facts) {
        self.refuse(
            conn,
            id,
            Rejected::new(Code::Unsupported, "`steer` is not served yet"),
        );
    }
}
