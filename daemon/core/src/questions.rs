//! What agents ask their users, and the answers.
//!
//! Owns open questions, their deadlines and who may answer. Must not know wires: an adapter
//! translates.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::rows::QuestionRow;
use agentd_protocol::work::{Answer, Questions};
use agentd_protocol::{Code, Id, JobId};

use crate::ids::{ConnId, TurnId};
use crate::state::State;

impl State {
    pub(crate) fn questions(&mut self, conn: ConnId, id: Option<Id>, _asked: &Questions) {
        self.refuse(
            conn,
            id,
            Rejected::new(Code::Unsupported, "`questions` is not served yet"),
        );
    }

    /// The open questions of a job.
    pub(crate) fn questions_of(&self, _job: JobId) -> Vec<QuestionRow> {
        Vec::new()
    }

    /// Does a turn wait for an answer?
    pub(crate) fn is_asking(&self, _turn: TurnId) -> bool {
        false
    }

    pub(crate) fn answer_question(&mut self, conn: ConnId, id: Option<Id>, _answer: Answer) {
        self.refuse(
            conn,
            id,
            Rejected::new(Code::Unsupported, "`answer` is not served yet"),
        );
    }
}
