//! Which turns start now: the oldest first, and nobody behind them takes what they wait for.
//!
//! Owns the order in which turns are looked at, and how far. Which process one gets is in
//! `placement.rs`. Must not look at more turns than there are processes, beside those that start or end.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{TurnId, WorkerId};
use crate::indexes::lanes::{Lane, Next};
use crate::jobs::job::{Job, Phase};
use crate::jobs::slices::Fate;
use crate::limits::ENDED_AT_ONCE;
use crate::outbox::timers::Timer;
use crate::pool::slot::Slot;
use crate::rules::placement::Placement;
use crate::rules::turn_timeout::allowed;
use crate::state::State;

/// What a look at a turn came to.
enum Look {
    /// It starts.
    Starts,
    /// It is over, or waits for something else now: what it waited for may be there for others.
    Changed,
    /// It waits for what is on its way to it. One behind it may find more.
    Waits,
    /// It waits, and with it everything behind it in its lane.
    Stands,
}

/// One look at what can start.
#[derive(Default)]
pub(crate) struct Pass {
    /// Lanes that are looked at, and the last turn that was.
    open: BTreeMap<Lane, Option<TurnId>>,
    /// Lanes in which nothing more can start.
    closed: BTreeSet<Lane>,
    /// There is no room for one more process, and none can be made.
    pub(crate) full: bool,
    /// The turn that was looked at lets other agents go first.
    pub(crate) yields: bool,
    /// The lanes of those that did.
    yielded: Vec<Lane>,
    /// Nobody does any more: what is left goes to the oldest.
    pub(crate) by_age: bool,
    /// How many turns asked in vain for processes that are kept for others.
    pub(crate) kept: usize,
    /// Processes on their way out whose room older turns wait for.
    pub(crate) claimed: usize,
    /// How many turns wait for each process that isn't ready.
    promised: BTreeMap<WorkerId, u32>,
    /// These turns wait for nothing but the readiness of their process.
    soon: BTreeSet<TurnId>,
    /// The turn that was looked at waits for a process that comes up, and no other could take it.
    pub(crate) only_comes: bool,
    /// For which processes turns of a lane wait so.
    coming: BTreeMap<Lane, BTreeSet<WorkerId>>,
}

impl Pass {
    /// Nothing more can start in a lane.
    fn close(&mut self, lane: Lane) {
        self.open.remove(&lane);
        if std::mem::take(&mut self.yields) {
            self.yielded.push(lane.clone());
        }
        self.closed.insert(lane);
    }

    /// Looks once more at those who let others go first; was there any?
    fn go_on_by_age(&mut self) -> bool {
        let yielded = std::mem::take(&mut self.yielded);
        for lane in &yielded {
            self.closed.remove(lane);
        }
        self.by_age = true;
        !yielded.is_empty() && !self.full
    }

    /// How many turns wait already for a process that isn't ready?
    pub(crate) fn promised(&self, worker: WorkerId) -> u32 {
        self.promised.get(&worker).copied().unwrap_or_default()
    }
}

impl State {
    /// Starts what can start: called after every event that may let something start.
    pub(crate) fn schedule(&mut self) {
        // What can't be stored isn't begun: its room is for the ends of those that run.
        if self.mode.starts_turns() && self.store_trouble.is_none() {
            self.update_indexes();
            self.start_what_can();
        }
        // Behind the turns: a spare must not take the room that one of them waits for.
        self.keep_warm();
        // Turns that waited for one of them, or for its room, were looked at already.
        if self.let_spares_go() && self.mode.starts_turns() {
            self.outbox.set(Timer::Schedule, self.now.mono);
        }
    }

    fn start_what_can(&mut self) {
        let mut changes = 0;
        let mut pass = self.begin_pass();
        loop {
            let Some((next, lane)) = self.oldest(&pass) else {
                if pass.go_on_by_age() {
                    continue;
                }
                if self.way_ends(pass.full) {
                    pass = self.begin_pass();
                    continue;
                }
                break;
            };
            // Each is a commit, and others wait for the owner meanwhile.
            if changes >= ENDED_AT_ONCE {
                // The rest with the next event, which comes at once.
                return self.outbox.set(Timer::Schedule, self.now.mono);
            }
            self.looked += 1;
            match self.look(next, &mut pass) {
                Look::Starts => {
                    changes += 1;
                    // The next one of this lane begins behind it by itself: it has left the lane.
                    pass.open.entry(lane).or_default();
                }
                Look::Waits => {
                    let last = self.pass_over(&lane, next, &mut pass);
                    pass.open.insert(lane, Some(last));
                }
                Look::Stands => pass.close(lane),
                Look::Changed => {
                    changes += 1;
                    self.update_indexes();
                    // What it gave up may be what an older turn waits for, whose lane is closed.
                    pass = self.begin_pass();
                }
            }
            self.update_indexes();
        }
        // Their process is gone, or serves others first: that is waiting again, and not their time.
        let stopped = self.jobs.clocked().difference(&pass.soon).copied();
        let waits = |turn: &TurnId| {
            let job = self.jobs.get(turn);
            job.is_some_and(|job| matches!(job.phase, Phase::Queued | Phase::Held))
        };
        for turn in stopped.filter(waits).collect::<Vec<_>>() {
            self.clock_stops(turn);
        }
    }

    /// Begins with the lanes that lead to a process which could take a turn now, or soon.
    fn begin_pass(&self) -> Pass {
        let mut pass = Pass::default();
        for (worker, slot) in self.pool.iter() {
            if slot.is_ready() && !(slot.has_room() && slot.takes_turns()) {
                continue;
            }
            let held = Lane::Held(worker);
            // Whoever waits for one that comes up waits beside those who wait for any.
            let shared = may_be_shared(slot) || slot.phase.comes();
            let free = self.lane_of(slot).filter(|_| shared);
            for lane in std::iter::once(held).chain(free) {
                if !self.indexes.lanes().is_empty(&lane) {
                    pass.open.insert(lane, None);
                }
            }
            if shared && self.takes_more_than_others(slot) {
                let all = self.indexes.lanes().free_of(&slot.agent);
                pass.open.extend(all.map(|lane| (lane.clone(), None)));
            }
        }
        pass
    }

    /// The oldest turn that may be able to start.
    fn oldest(&self, pass: &Pass) -> Option<(Next, Lane)> {
        let lanes = self.indexes.lanes();
        let open = pass.open.iter();
        let heads = open.filter_map(|(lane, after)| Some((lanes.next_in(lane, *after)?, lane)));
        let known = heads.min_by_key(|(next, _)| next.turn);
        let mut new = None;
        let mut after = None;
        // Lanes that no living process serves are found by their oldest turns, so that these are
        // not overtaken.
        while let Some((turn, lane)) = lanes.lane_after(after).filter(|_| !pass.full) {
            if known.is_some_and(|(next, _)| next.turn < turn) {
                break;
            }
            if !pass.open.contains_key(lane) && !pass.closed.contains(lane) {
                new = lanes.next_in(lane, None).map(|next| (next, lane));
                break;
            }
            after = Some(turn);
        }
        new.or(known).map(|(next, lane)| (next, lane.clone()))
    }

    /// Starts a turn if it can.
    fn look(&mut self, next: Next, pass: &mut Pass) -> Look {
        let Next { turn, session } = next;
        pass.only_comes = false;
        let Some(job) = found!(self.jobs.get(turn)) else {
            return Look::Stands;
        };
        // Its timer may come after the event that would start it.
        if self.is_late(job) {
            self.expire(turn);
            return Look::Changed;
        }
        if self.is_over(job) {
            // It rang while its mark was on its way to a process that is gone.
            self.never_ready(turn);
            return Look::Changed;
        }
        match self.place(session, turn, pass) {
            Placement::Here(worker) => {
                self.mark(turn, worker);
                Look::Starts
            }
            Placement::Never(failure) => {
                self.end_in_turn(turn, Fate::Failed(Box::new(failure)));
                Look::Changed
            }
            Placement::Changed => Look::Changed,
            // Several may wait for one process, which is there for the first of them.
            Placement::Soon(worker) if self.promise(worker, pass) => {
                pass.soon.insert(turn);
                self.clock_runs(turn);
                Look::Waits
            }
            Placement::Coming => Look::Waits,
            // Those behind it may find another one.
            Placement::Soon(_) if self.sessions.get(&session).is_some_and(|one| one.coming) => {
                Look::Waits
            }
            Placement::Soon(_) | Placement::Wait => Look::Stands,
        }
    }

    fn is_late(&self, job: &Job) -> bool {
        job.expires <= self.now.boot_ms
    }

    fn is_over(&self, job: &Job) -> bool {
        let ends = job.clock.map(|since| since + allowed(job));
        ends.is_some_and(|ends| ends <= self.now.mono)
    }

    /// The last one behind a turn for which nothing is to be done either, as it waits for the same
    /// process, or for one that was looked at: a thousand may, and that at each event.
    fn pass_over(&self, lane: &Lane, first: Next, pass: &mut Pass) -> TurnId {
        let comes = |next: Next| {
            let session = self.sessions.get(&next.session)?;
            session.slot.filter(|_| session.coming)
        };
        let waits = |turn: TurnId| {
            let job = self.jobs.get(&turn);
            let in_time = job.is_some_and(|job| !self.is_late(job) && !self.is_over(job));
            in_time && self.jobs.clocked().contains(&turn)
        };
        let mut last = first.turn;
        let Some(worker) = comes(first).filter(|_| pass.only_comes) else {
            return last;
        };
        // What others of the lane could be taken by, one more of them can't: nothing gets free in
        // a pass but by a change, which begins another.
        let mut workers = pass.coming.remove(lane).unwrap_or_default();
        workers.insert(worker);
        for next in self.indexes.lanes().behind(lane, first.turn) {
            let worker = comes(next).filter(|worker| workers.contains(worker));
            if !worker.is_some_and(|worker| waits(next.turn) && self.promise(worker, pass)) {
                break;
            }
            pass.soon.insert(next.turn);
            last = next.turn;
        }
        pass.coming.insert(lane.clone(), workers);
        last
    }

    /// Has a process that isn't ready room for one more of those that wait for it?
    fn promise(&self, worker: WorkerId, pass: &mut Pass) -> bool {
        let Some(slot) = self.pool.get(&worker) else {
            return false;
        };
        // In this pass only: nobody is bound to the process by that.
        let taken = pass.promised.entry(worker).or_default();
        *taken += 1;
        *taken <= slot.capacity
    }
}

/// Could a process take a session that it doesn't hold?
fn may_be_shared(slot: &Slot) -> bool {
    let free = !slot.one_session || slot.sessions.is_empty();
    free && slot.takes_turns() && slot.phase.may_serve() && !slot.is_one_turn()
}
