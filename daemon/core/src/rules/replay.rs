//! The same key again: the same job, from its beginning.
//!
//! Owns what is known of a key before and after a refusal. That a key belongs to one job only, the
//! store's constraint says.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{Accepted, Telling};
use agentd_protocol::request::Send;
use agentd_protocol::{Code, JobId, request};

use crate::jobs::job::Waiter;
use crate::outbox::awaiting::Awaiting;
use crate::settings::Served;
use crate::state::State;
use crate::store::{JobRow, JobState, Keyed, Query};

impl State {
    /// Refuses a send, unless its key is that of a job: then that job answers, whatever stands
    /// against new work.
    pub(crate) fn refuse_or_replay(&mut self, waiter: Waiter, send: &Send, rejected: Rejected) {
        // Without a key there is nothing that it could be.
        let Some(key) = send.idempotency_key.clone() else {
            return self.refuse(waiter.conn, waiter.id, rejected);
        };
        self.look_for_key(waiter, key, request::hashed(send), rejected);
    }

    /// Asks the store who has a key; nobody, and the refusal stands.
    pub(crate) fn look_for_key(
        &mut self,
        waiter: Waiter,
        key: String,
        hashed: String,
        rejected: Rejected,
    ) {
        let query = Query::Key { key, hashed };
        self.outbox.load(Awaiting::Key { waiter, rejected }, query);
    }

    pub(crate) fn key_loaded(&mut self, waiter: Waiter, rejected: Rejected, keyed: Keyed) {
        match keyed {
            Keyed::Free => self.refuse(waiter.conn, waiter.id, rejected),
            Keyed::Same { job } => self.replay_job(waiter, job),
            Keyed::Other { job } => self.refuse(waiter.conn, waiter.id, conflict(job)),
        }
    }

    /// The key is another job's, with the same request: the sender hears that job from its
    /// beginning.
    pub(crate) fn replay_job(&mut self, waiter: Waiter, number: JobId) {
        let Some(job) = self.jobs.by_number(number) else {
            let awaiting = Awaiting::Replay {
                waiter,
                job: number,
            };
            self.outbox
                .load(awaiting, Query::Jobs { jobs: vec![number] });
            return;
        };
        let session = self
            .sessions
            .get(&job.session)
            .map(|session| session.shown());
        let accepted = Accepted {
            job: number,
            session: session.unwrap_or_default(),
            agent: self.agent_of(job.session),
            seq: None,
            replayed: true,
            ignored: waiter.ignored.clone(),
            running: job.began(),
            drained: false,
            made: false,
            routed: job.terms.routed.clone(),
        };
        let seq = job.accepted_seq;
        self.sender_follows(&waiter, accepted, seq, Telling::Replay);
    }

    /// The store has, or has not, the job whose key was sent again.
    pub(crate) fn replay(&mut self, waiter: &Waiter, number: JobId, row: Option<JobRow>) {
        // The store took its time, and nobody waits any more.
        if !self.peers.contains(waiter.conn) {
            return;
        }
        let refused = |code, error: String| Rejected::new(code, error);
        let Some(row) = row else {
            let error = format!("job {number} has the key but can't be read");
            let rejected = refused(Code::StoreFailed, error);
            return self.refuse(waiter.conn, waiter.id.clone(), rejected);
        };
        // Its lines are told to that one's connections, and the store tells nobody of them.
        if !self.jobs.knows(number) && !matches!(row.state, JobState::Finished { .. }) {
            let rejected = is_elsewhere(&row, &self.settings.served);
            return self.refuse(waiter.conn, waiter.id.clone(), rejected);
        }
        let accepted = Accepted {
            job: number,
            session: row.session,
            agent: row.agent,
            seq: None,
            replayed: true,
            ignored: waiter.ignored.clone(),
            running: false,
            drained: false,
            made: false,
            routed: row.routed,
        };
        self.sender_follows(waiter, accepted, row.seq, Telling::Replay);
    }
}

/// The refusal of a key whose job isn't ours and has not ended. A daemon has all but those of others
/// that live; a run without one leaves what waits to the daemon that comes next.
fn is_elsewhere(row: &JobRow, served: &Served) -> Rejected {
    let later = "ask again when it has ended".to_owned();
    let (how, hint) = match (&row.state, served) {
        (JobState::Queued { held: true, .. }, Served::OneShot { .. }) => (
            "is held behind an interrupted turn",
            format!(
                "`agentctl start` starts a daemon, and `agentctl sessions resume {}` runs it then",
                row.session
            ),
        ),
        (JobState::Queued { .. }, Served::OneShot { .. }) => (
            "waits for a daemon",
            "`agentctl start` starts one, which runs it; then ask again with the same key"
                .to_owned(),
        ),
        (_, Served::OneShot { .. }) => (
            "runs in another agentd process, or did until that was killed",
            "ask again when it has ended; where none runs any more, `agentctl start` starts a \
             daemon, which says what became of it"
                .to_owned(),
        ),
        (JobState::Queued { .. }, Served::Daemon) => ("waits in another agentd process", later),
        (_, Served::Daemon) => ("runs in another agentd process", later),
    };
    let error = format!("job {} has the key and {how}", row.job);
    Rejected::new(Code::SessionBusy, error).hint(hint)
}

/// The refusal of a key that another request has.
pub(crate) fn conflict(job: JobId) -> Rejected {
    let error = format!("the idempotency key belongs to job {job}, which was another request");
    Rejected::new(Code::IdempotencyConflict, error).hint("use a new key")
}
