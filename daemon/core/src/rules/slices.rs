//! Many ends at once: each event commits only so many, the rest follows.
//!
//! Owns what becomes of turns whose end is decided and not yet asked for: they are in no queue any
//! more, so none of them starts, and they stay in memory until their final line is durable. Must not
//! know why they end.

use crate::ids::TurnId;
use crate::jobs::job::Phase;
use crate::jobs::slices::Fate;
use crate::outbox::timers::Timer;
use crate::state::State;

impl State {
    /// Ends a turn that many others may end with: now, or in a later slice. From here on nothing
    /// starts it.
    pub(crate) fn end_in_turn(&mut self, turn: TurnId, fate: Fate) {
        let is_open = self.jobs.slices().is_open();
        let job = expected!(self.jobs.get_mut(turn));
        if job.phase == Phase::Finishing || job.number.is_none() {
            return;
        }
        if is_open {
            return self.end_of_slice(turn, fate);
        }
        // Kept for its end, which goes by where it was.
        let before = std::mem::replace(&mut job.phase, Phase::Finishing);
        let session = job.session;
        // It must not expire, too, before its slice comes.
        self.clear_timers(turn);
        if let Some(session) = found!(self.sessions.get_mut(session)) {
            session.queue.retain(|other| *other != turn);
        }
        self.jobs.slices().push(turn, before, fate);
    }

    fn end_of_slice(&mut self, turn: TurnId, fate: Fate) {
        // How many commits an end takes is seen from outside: each is told to the store by its own
        // rule.
        let commits = self.outbox.commits();
        self.outbox.take_last_commit();
        match fate {
            Fate::Asked(ending) => self.end_as_asked(turn, &ending),
            Fate::Failed(failure) => self.fail(turn, *failure),
            Fate::Expired => self.expired(turn),
        }
        let last = self.outbox.take_last_commit();
        let asked = self.outbox.commits().saturating_sub(commits);
        self.jobs.slices().ended(asked, last);
    }

    /// Ends those whose turn it is; was there any?
    pub(crate) fn go_on_ending(&mut self) -> bool {
        let left = self.jobs.slices().left();
        while let Some((turn, before, fate)) = self.jobs.slices().pop() {
            let job = found!(self.jobs.get_mut(turn));
            if let Some(job) = job.filter(|job| job.said.last.is_none()) {
                job.phase = before;
                self.end_of_slice(turn, fate);
            }
        }
        self.jobs.slices().left() < left
    }
    /// The rest follows with the next event, which comes at once; or else with an answer of the store.
    pub(crate) fn ask_for_next_slice(&mut self) {
        if self.jobs.slices().goes_on_at_once() {
            // A deadline that has passed brings an event, behind those that wait in the owner's
            // queue.
            self.outbox.set(Timer::Slice, self.now.mono);
        }
    }
}
