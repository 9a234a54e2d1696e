//! Which turns a request means that names a job, a session or nothing.
//!
//! Owns the choice for `abort`, `steer` and `set_model`, and the wait for a session that is being
//! loaded. Must not know what is done to the turns.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::Decoded;
use agentd_protocol::{Code, Id, JobId, Request};

use crate::event::RequestContext;
use crate::ids::{ConnId, SessionId, TurnId};
use crate::jobs::job::Phase;
use crate::sessions::loading::Parked;
use crate::state::State;

/// What a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target<'a> {
    /// The job.
    Job(JobId),
    /// The session's turn.
    Session(&'a str),
    /// The send with the key.
    Key(&'a str),
    /// Nothing: what the connection sent last, else the only turn there is.
    Own,
}

impl<'a> Target<'a> {
    /// A job says more than a session: whoever gives both means the job.
    pub(crate) const fn new(job: Option<JobId>, session: Option<&'a str>) -> Self {
        match (job, session) {
            (Some(job), _) => Self::Job(job),
            (None, Some(session)) => Self::Session(session),
            (None, None) => Self::Own,
        }
    }
}

impl State {
    /// The session that a request means, or may mean, and that the store is asked for just now.
    pub(crate) fn loading_of(&self, conn: ConnId, target: Target<'_>) -> Option<String> {
        // Who names a job means one that was accepted, so nothing has to be loaded for it.
        let name = match target {
            Target::Job(_) => None,
            Target::Session(session) => Some(session.to_owned()),
            Target::Key(key) => self.sessions.asked_for_send(key),
            Target::Own => self.peers.connected(&conn)?.loading.clone(),
        };
        name.filter(|name| self.sessions.is_loading(name))
    }

    /// Lets a request wait behind those for which a session is being loaded.
    pub(crate) fn wait_for_loading(
        &mut self,
        loading: &str,
        conn: ConnId,
        id: Option<Id>,
        request: Request,
        facts: &RequestContext,
    ) {
        if !self.sessions.is_loading(loading) {
            return;
        }
        // Not counted: it is smaller than the send that it waits behind.
        let decoded = Decoded {
            request,
            ignored: Vec::new(),
        };
        let parked = Parked {
            conn,
            id,
            decoded,
            facts: facts.clone(),
        };
        self.sessions.park(loading, &[], parked);
    }

    /// The live turns that are meant: a session's turn in flight, else its next one; with `queued`
    /// all that it has.
    ///
    /// # Errors
    /// `ambiguous` where nothing is named and several could be meant.
    pub(crate) fn turns_meant(
        &self,
        conn: ConnId,
        target: Target<'_>,
        queued: bool,
    ) -> Result<Vec<TurnId>, Rejected> {
        let live = |turn: &TurnId| self.is_live(*turn);
        match target {
            // A job that isn't in memory has ended, or never was.
            Target::Job(job) => Ok(self.jobs.numbered(job).filter(live).into_iter().collect()),
            Target::Session(name) => Ok(self.turns_in(name, queued)),
            Target::Key(key) => Ok(self.pending_under(key)),
            Target::Own => match self.peers.connected(&conn).and_then(|conn| conn.last_send) {
                Some(last) => Ok(Some(last).into_iter().filter(live).collect()),
                None => self.only_turn(),
            },
        }
    }

    /// Turns with this key that the store was given: one, and those that asked for it again.
    fn pending_under(&self, key: &str) -> Vec<TurnId> {
        let pending = self.indexes.pending().iter().copied();
        let has_it = |turn: &TurnId| self.pending_key(*turn).is_some_and(|(of, _)| of == key);
        pending.filter(has_it).collect()
    }

    fn is_live(&self, turn: TurnId) -> bool {
        let job = self.jobs.get(&turn);
        job.is_some_and(|job| job.phase != Phase::Finishing)
    }

    fn turns_in(&self, name: &str, queued: bool) -> Vec<TurnId> {
        let named = self.sessions.named(name);
        let Some((id, session)) = named.and_then(|id| Some((id, self.sessions.get(&id)?))) else {
            return Vec::new();
        };
        let current = session.current.into_iter();
        let mut turns: Vec<_> = current.filter(|turn| self.is_live(*turn)).collect();
        if queued {
            turns.extend(session.queue.iter().copied());
            // They stand in no queue before their time.
            turns.extend(self.scheduled_in(id));
        } else if turns.is_empty() {
            turns.extend(session.queue.front().copied());
        }
        turns
    }

    /// Turns of a session whose time to start has not come.
    fn scheduled_in(&self, session: SessionId) -> impl Iterator<Item = TurnId> {
        self.jobs
            .iter()
            .filter(move |(_, job)| job.session == session && job.phase == Phase::Scheduled)
            .map(|(turn, _)| turn)
    }

    /// The turn of whoever it is, where there is one only.
    fn only_turn(&self) -> Result<Vec<TurnId>, Rejected> {
        let all = self.jobs.iter();
        let mut live = all.filter(|(_, job)| job.phase != Phase::Finishing);
        match (live.next(), live.next()) {
            // Guessing would end the wrong one, which can't be undone.
            (Some(one), Some(another)) => {
                let turns = [one, another].into_iter().chain(live);
                let numbers = turns.map(|(_, job)| match job.number {
                    Some(number) => number.to_string(),
                    None => "one that is being accepted".to_owned(),
                });
                let jobs: Vec<_> = numbers.collect();
                let error = format!("{} jobs are live: {}", jobs.len(), jobs.join(", "));
                Err(Rejected::new(Code::Ambiguous, error).hint("name one with `job` or `session`"))
            }
            (one, _) => Ok(one.into_iter().map(|(turn, _)| turn).collect()),
        }
    }
}
