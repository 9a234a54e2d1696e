//! Many ends at once: each event commits only so many, the rest follows.
//!
//! Owns the turns whose end is decided and not yet asked for. They are in no queue any more, so none
//! of them starts, and they stay in memory until their final line is durable. Must not know why they
//! end.

use crate::ids::{Token, TurnId};
use crate::jobs::job::Phase;
use crate::jobs::slices::Fate;
use crate::limits::{ENDED_AT_ONCE, ENDS_IN_FLIGHT};
use crate::outbox::timers::Timer;
use crate::state::State;

impl State {
    /// Ends a turn that many others may end with: now, or in a later slice. From here on nothing
    /// starts it.
    pub(crate) fn end_in_turn(&mut self, turn: TurnId, fate: Fate) {
        let Some(job) = self.jobs.get_mut(&turn) else {
            return;
        };
        if job.phase == Phase::Finishing || job.number.is_none() {
            return;
        }
        if self.slices.left > 0 && self.slices.waiting.is_empty() {
            return self.end_of_slice(turn, fate);
        }
        let before = std::mem::replace(&mut job.phase, Phase::Finishing);
        let session = job.session;
        self.clear_timers(turn);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.queue.retain(|other| *other != turn);
        }
        self.slices.waiting.push_back((turn, before, fate));
    }

    fn end_of_slice(&mut self, turn: TurnId, fate: Fate) {
        let commits = self.commits;
        self.slices.last_commit = None;
        match fate {
            Fate::Asked(ending) => self.end_as_asked(turn, &ending),
            Fate::Failed(failure) => self.fail(turn, *failure),
            Fate::Expired => self.expired(turn),
        }
        let token = self.slices.last_commit.take();
        self.slices.in_flight.extend(token);
        let asked = self.commits.saturating_sub(commits);
        self.slices.left = self.slices.left.saturating_sub(asked.max(1));
    }

    /// A new event: it may end so many.
    pub(crate) fn begin_slice(&mut self) {
        let room = self.slices.in_flight.len() + ENDED_AT_ONCE <= ENDS_IN_FLIGHT;
        self.slices.left = if room { ENDED_AT_ONCE } else { 0 };
    }

    /// Ends those whose turn it is; was there any?
    pub(crate) fn go_on_ending(&mut self) -> bool {
        let before = self.slices.left;
        while self.slices.left > 0
            && let Some((turn, before, fate)) = self.slices.waiting.pop_front()
        {
            let job = self.jobs.get_mut(&turn);
            if let Some(job) = job.filter(|job| job.said.last.is_none()) {
                job.phase = before;
                self.end_of_slice(turn, fate);
            }
        }
        self.slices.left < before
    }

    /// The rest follows with the next event, which comes at once.
    pub(crate) fn ask_for_next_slice(&mut self) {
        let room = self.slices.in_flight.len() + ENDED_AT_ONCE <= ENDS_IN_FLIGHT;
        if room && !self.slices.waiting.is_empty() {
            // Otherwise an answer of the store is the next event.
            self.timers.set(Timer::Slice, self.now.mono);
        }
    }

    /// The store answered a commit.
    pub(crate) fn slice_stored(&mut self, token: Token) {
        self.slices.in_flight.remove(&token);
    }
}
