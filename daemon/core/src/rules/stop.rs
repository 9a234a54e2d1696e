//! Going down, and standing still: `daemon.stop`, signals, `drain`.
//!
//! Owns the order in which things end. Must not know sockets or locks: it announces.

use std::collections::BTreeSet;
use std::time::Duration;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::Line;
use agentd_protocol::request::{DaemonStop, Drain};
use agentd_protocol::{Code, Id};

use crate::effect::{Announcement, Effect, StopStage};
use crate::ids::{ConnId, TurnId, WorkerId};
use crate::jobs::job::{Ending, Job, Phase};
use crate::limits::{DRAIN_WITHIN, SERVED_BEFORE_A_STOP, STOP_WITHIN};
use crate::mode::{Draining, Hurry, Leave, Mode};
use crate::outbox::timers::Timer;
use crate::settings::{Served, Socket};
use crate::state::State;

impl State {
    pub(crate) fn stopping(&self) -> Rejected {
        let error = format!(
            "agentd (pid {}) is stopping and takes no new work",
            self.settings.pid
        );
        Rejected::new(Code::Draining, error).hint("nothing was run; ask again in a moment")
    }

    pub(crate) fn refuse_stopping(&mut self, conn: ConnId, id: Option<Id>) {
        let rejected = self.stopping();
        self.refuse(conn, id, rejected);
    }

    pub(crate) fn drain(&mut self, conn: ConnId, id: Option<Id>, drain: &Drain) {
        let within = drain.deadline.map_or(DRAIN_WITHIN, Duration::from_secs_f64);
        let holder = drain.while_connected.then_some(conn);
        match &mut self.mode {
            Mode::Stopping(_) => return self.refuse_stopping(conn, id),
            Mode::Draining(draining) => {
                draining.asking.push((conn, id));
                // Whoever wants it to last, has it so.
                draining.holder = draining.holder.and(holder);
            }
            Mode::Ready => {
                let asking = vec![(conn, id)];
                self.mode = Mode::Draining(Draining { asking, holder });
            }
        }
        self.outbox.set(Timer::Drain, self.now.mono + within);
    }

    pub(crate) fn undrain(&mut self, conn: ConnId, id: Option<Id>) {
        if self.mode.is_stopping() {
            return self.refuse_stopping(conn, id);
        }
        self.end_drain("`undrain` came before everything had ended");
        self.answer(conn, id, &Line::Undrain { ok: true });
    }

    fn end_drain(&mut self, error: &str) {
        self.outbox.clear(Timer::Drain);
        if let Mode::Draining(draining) = std::mem::replace(&mut self.mode, Mode::Ready) {
            for (asker, its_id) in draining.asking {
                self.refuse(asker, its_id, Rejected::new(Code::Interrupted, error));
            }
        }
    }

    pub(crate) fn drain_timeout(&mut self) {
        let in_flight = self.indexes.in_flight().len();
        if let Mode::Draining(draining) = &mut self.mode {
            for (conn, id) in std::mem::take(&mut draining.asking) {
                let error = format!("{in_flight} turns still run; the daemon stays drained");
                self.refuse(
                    conn,
                    id,
                    Rejected::new(Code::Timeout, error).hint("`undrain` ends it"),
                );
            }
        }
    }

    pub(crate) fn forget_asker(&mut self, conn: ConnId) {
        if let Some(leave) = &mut self.leaving {
            leave.asked.take_if(|(asker, _)| *asker == conn);
        }
        if let Mode::Draining(draining) = &mut self.mode {
            draining.asking.retain(|(asker, _)| *asker != conn);
        }
        self.release_drain(conn);
    }

    /// A stop will not be asked for on this connection any more.
    pub(crate) fn release_drain(&mut self, conn: ConnId) {
        if let Mode::Draining(draining) = &self.mode
            && draining.holder == Some(conn)
            && self.leaving.is_none()
        {
            self.end_drain("the connection that asked for it has ended");
        }
    }

    pub(crate) fn daemon_stop(&mut self, conn: ConnId, id: Option<Id>, stop: &DaemonStop) {
        let within = stop.deadline.map_or(STOP_WITHIN, Duration::from_secs_f64);
        let announcement = if stop.restart {
            Announcement::Restarting
        } else {
            Announcement::Stopping
        };
        self.leave(Leave {
            within,
            announcement,
            asked: Some((conn, id)),
        });
    }

    /// Where the socket stays, nobody has to hear that the daemon goes: who was let in is served,
    /// who comes later waits for the next one. A second request to stop waits for nobody.
    fn leave(&mut self, leave: Leave) {
        // A socket of the daemon's own goes with it: nobody could wait there.
        let waits = self.settings.socket == Socket::Stays
            && self.leaving.is_none()
            && !self.mode.is_stopping();
        // One that was waited with begins, so that two askers are both answered.
        self.leave_now();
        if waits {
            self.outbox.push(Effect::Announce(Announcement::Leaving));
            self.outbox
                .set(Timer::Leave, self.now.mono + SERVED_BEFORE_A_STOP);
            self.leaving = Some(leave);
        } else {
            self.carry_out(leave);
        }
    }

    /// The stop that was asked for begins.
    pub(crate) fn leave_now(&mut self) {
        self.outbox.clear(Timer::Leave);
        if let Some(leave) = self.leaving.take() {
            self.carry_out(leave);
        }
    }

    fn carry_out(&mut self, leave: Leave) {
        self.begin_stop(leave.within, leave.announcement);
        if let Some((conn, id)) = leave.asked {
            self.answer(conn, id, &Line::DaemonStop { ok: true });
        }
    }

    /// A signal: the first one stops, the second one hurries.
    pub(crate) fn stop_asked(&mut self) {
        if self.mode.is_stopping() {
            // Whoever asks twice has no more patience.
            self.hurry(Hurry::Killing);
        } else {
            self.leave(Leave {
                within: STOP_WITHIN,
                announcement: Announcement::Stopping,
                asked: None,
            });
        }
    }

    /// A nested worker lost its caller: nobody wants the results.
    pub(crate) fn input_lost(&mut self) {
        self.begin_stop(Duration::ZERO, Announcement::Stopping);
        let turns: Vec<TurnId> = self.jobs.iter().map(|(turn, _)| turn).collect();
        for turn in turns {
            let _number = self.cancel(turn);
        }
    }

    /// The one who asked is gone, and with it the only way to hear of the turn. What runs may end.
    pub(crate) fn reader_left(&mut self, conn: ConnId) {
        let Some(known) = self.peers.connected(&conn) else {
            return;
        };
        let pending = known.pending.iter().copied();
        let follows = known.follows.values();
        let followed = follows.filter_map(|follow| self.jobs.numbered(follow.job));
        let turns: BTreeSet<TurnId> = pending.chain(followed).collect();
        for turn in turns {
            match self.jobs.get_mut(&turn).map(|job| &mut job.phase) {
                Some(Phase::Pending { cancelled, .. }) => *cancelled = true,
                // What an agent has begun may have taken effect: it ends by itself.
                Some(Phase::Running { .. } | Phase::Settling { .. }) | None => {}
                Some(_) => {
                    let _number = self.cancel(turn);
                }
            }
        }
        self.collect_no_more(conn);
    }

    fn begin_stop(&mut self, within: Duration, announcement: Announcement) {
        if self.mode.is_stopping() {
            return;
        }
        if let Mode::Draining(draining) =
            std::mem::replace(&mut self.mode, Mode::Stopping(Hurry::Waiting))
        {
            for (conn, id) in draining.asking {
                self.refuse_stopping(conn, id);
            }
        }
        self.outbox.clear(Timer::Drain);
        self.outbox.set(Timer::Stop, self.now.mono + within);
        self.outbox.push(Effect::Announce(announcement));
        // No process comes up any more.
        for wait in self.peers.take_restarts() {
            self.refuse_stopping(wait.conn, wait.id);
        }
        for wait in self.peers.take_listings() {
            self.outbox.clear(Timer::Models(wait.number));
            self.refuse_stopping(wait.conn, wait.id);
        }
    }

    /// Running turns had their time.
    pub(crate) fn stop_timeout(&mut self) {
        match self.mode {
            Mode::Stopping(Hurry::Waiting) => self.hurry(Hurry::Ending),
            Mode::Stopping(Hurry::Ending) => self.hurry(Hurry::Killing),
            // Whatever still holds it up: what is accepted is in the store, the next start goes on.
            Mode::Stopping(Hurry::Killing) => {
                self.mode = Mode::Stopping(Hurry::Gone);
                self.outbox.push(Effect::Exit);
            }
            _ => {}
        }
    }

    fn hurry(&mut self, hurry: Hurry) {
        let Mode::Stopping(now) = &mut self.mode else {
            return;
        };
        // A stop never gets slower.
        if *now >= hurry {
            return;
        }
        *now = hurry;
        self.outbox
            .set(Timer::Stop, self.now.mono + crate::limits::RUNG);
        let turns: Vec<TurnId> = self.indexes.in_flight().iter().copied().collect();
        for turn in turns {
            if self
                .jobs
                .get(&turn)
                .is_some_and(|job| matches!(job.phase, Phase::Running { .. }))
            {
                self.tell_to_end(turn, Ending::Interrupted);
            }
        }
        if hurry == Hurry::Killing {
            let slots: Vec<WorkerId> = self.pool.iter().map(|(worker, _)| worker).collect();
            for worker in slots {
                self.stop_slot(worker, StopStage::Kill);
            }
        }
    }

    /// May a turn that the stop interrupted run once more? Not in a run without the daemon, which
    /// nobody follows: who waited for it is told now.
    pub(crate) fn next_daemon_runs(&self, turn: TurnId) -> bool {
        self.settings.served == Served::Daemon
            && self.jobs.get(&turn).is_some_and(Job::may_run_again)
    }

    /// Looked at after every event: what has become possible on the way down?
    pub(crate) fn go_on_stopping(&mut self) {
        match &self.mode {
            Mode::Ready => return,
            // Whoever asked was answered: nothing is waited for.
            Mode::Draining(draining) if draining.asking.is_empty() => return,
            Mode::Draining(_) | Mode::Stopping(_) => {}
        }
        // What a store that can't write would say comes too late: the next daemon finds what it has.
        let in_vain = matches!(self.mode, Mode::Stopping(Hurry::Killing))
            && self.store_trouble.is_some()
            && self.pool.is_empty();
        if !self.indexes.in_flight().is_empty() && !in_vain {
            return;
        }
        if let Mode::Draining(draining) = &mut self.mode {
            for (conn, id) in std::mem::take(&mut draining.asking) {
                self.answer(conn, id, &Line::Drain { ok: true });
            }
            self.outbox.clear(Timer::Drain);
        }
        let Mode::Stopping(hurry) = self.mode else {
            return;
        };
        if hurry == Hurry::Gone {
            return;
        }
        // Only now: a process that was ended before would take its turn with it.
        let slots: Vec<WorkerId> = self.pool.iter().map(|(worker, _)| worker).collect();
        for worker in slots {
            self.stop_slot(
                worker,
                if hurry == Hurry::Killing {
                    StopStage::Kill
                } else {
                    StopStage::Ask
                },
            );
        }
        if self.pool.is_empty() && (self.indexes.pending().is_empty() || in_vain) {
            self.mode = Mode::Stopping(Hurry::Gone);
            self.outbox.clear(Timer::Stop);
            self.outbox.push(Effect::Exit);
        }
    }
}
