//! Another model for a session, and a shorter memory: `set_model`, `compact`.
//!
//! Owns what is asked of the agent and what is stored of it. Must not know models.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::work::{Compact, SetModel};
use agentd_protocol::{Code, Id};

use crate::event::Facts;
use crate::ids::ConnId;
use crate::state::State;

impl State {
    pub(crate) fn compact(&mut self, conn: ConnId, id: Option<Id>, _asked: Compact, _: &Facts) {
        self.refuse(
            conn,
            id,
            Rejected::new(Code::Unsupported, "`compact` is not served yet"),
        );
    }

    pub(crate) fn set_model(&mut self, conn: ConnId, id: Option<Id>, _set: SetModel, _: &Facts) {
        self.refuse(
            conn,
            id,
            Rejected::new(Code::Unsupported, "`set_model` is not served yet"),
        );
    }
}
