//! Lines to a connection, and its end.
//!
//! Owns what each line counts, and what is forgotten with a connection. Must not know bytes or sockets.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{ErrorLine, Telling};
use agentd_protocol::{Body, Id, JobId, Line};

use crate::effect::{Effect, Progress};
use crate::ids::{ConnId, FollowId};
use crate::state::State;

impl State {
    pub(crate) fn send(
        &mut self,
        conn: ConnId,
        body: &Body,
        id: Option<Id>,
        seq: Option<u64>,
        telling: Telling,
        progress: Progress,
    ) {
        // Id, seq and the newline are about this much more.
        let Some(is_marked) = self.peers.sends(conn, body.as_json().len() + 64) else {
            return;
        };
        self.outbox.push(Effect::Send {
            conn,
            body: body.clone(),
            id,
            seq,
            telling,
            progress,
        });
        // Behind the line that filled it: when the mark comes back, that one was taken, too.
        if is_marked {
            self.outbox.push(Effect::Mark { conn });
        }
    }

    /// Closes a connection without an answer: what became of its request is unknown.
    pub(crate) fn cut_off(&mut self, conn: ConnId) {
        if self.peers.cut_off(conn) {
            self.outbox.push(Effect::Close { conn });
        }
    }

    pub(crate) fn answer(&mut self, conn: ConnId, id: Option<Id>, line: &Line) {
        self.send(
            conn,
            &line.body(),
            id,
            None,
            Telling::First,
            Progress::Answered,
        );
    }

    pub(crate) fn refuse(&mut self, conn: ConnId, id: Option<Id>, rejected: Rejected) {
        self.answer(
            conn,
            id,
            &Line::Error(Box::new(ErrorLine::refusal(rejected))),
        );
    }

    pub(crate) fn disconnected(&mut self, conn: ConnId) {
        // A second time nothing is left to forget.
        let Some(gone) = self.peers.remove(conn) else {
            return;
        };
        for (follow_id, follow) in gone.follows {
            self.unfollow(conn, follow_id, follow.job);
        }
        for turn in gone.pending {
            if let Some(job) = found!(self.jobs.get_mut(turn)) {
                job.sender = None;
            }
        }
        self.collects_nothing(conn);
        // What it asked and nobody looked at yet takes memory, and has nobody to answer.
        self.sessions.forget_conn(conn);
        self.forget_asker(conn);
        self.lists_nothing(conn);
    }

    /// Nobody is told more of a job there. It may be over: its followers outlive it while they read.
    pub(crate) fn unfollow(&mut self, conn: ConnId, follow: FollowId, job: JobId) {
        if let Some(job) = self.jobs.by_number_mut(job) {
            job.followers.remove(&(conn, follow));
        }
    }
}
