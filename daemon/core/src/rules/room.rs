//! Room for processes: how many there may be, and which one goes or makes way for another.
//!
//! Owns that choice. Which turn gets which process is in `placement.rs`, how one is ended in `stop_stages.rs`.

use crate::agent::{Agent, Sessions};
use crate::ids::{TurnId, WorkerId};
use crate::indexes::lanes::Lane;
use crate::limits::{MAKES_WAY_AFTER, MAKES_WAY_FOR};
use crate::outbox::timers::Timer;
use crate::pool::fit::Fit;
use crate::pool::slot::Slot;
use crate::rules::schedule::Pass;
use crate::state::State;

/// So many turns may ask in vain for processes that are kept for others, before nobody is asked any
/// more: each has a process of its agent that takes it, so there are few, but for lanes that differ.
const KEPT_LOOKS: usize = 64;

/// Is there room for one more process?
pub(crate) enum Room {
    Some,
    /// One is on its way out.
    Coming,
    None,
}

/// What a turn wants a process for.
pub(crate) struct Wants<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) fit: &'a Fit,
    /// One that is started for its session.
    pub(crate) own: bool,
}

impl State {
    /// Are there as many processes as there may be?
    pub(crate) fn is_full(&self) -> bool {
        self.processes() >= self.settings.max_workers
    }

    /// How many processes take room.
    pub(crate) fn processes(&self) -> usize {
        self.pool
            .slots()
            .filter(|slot| slot.phase.holds_process() && !self.delegates(slot))
            .count()
    }

    /// Does a process only wait for jobs of its own jobs? It must not keep them from running.
    fn delegates(&self, slot: &Slot) -> bool {
        let waits = |turn: &TurnId| {
            let number = self.jobs.get(turn).and_then(|job| job.number);
            number.is_some_and(|number| self.waits_for_children(number))
        };
        !slot.turns.is_empty() && slot.turns.iter().all(waits)
    }

    /// Is there room for one more process? Ends an idle one if not. Turns ask in the order in which
    /// they were accepted, so whoever waits for an idle process is younger.
    ///
    /// Agents that have processes share the room: whoever has more lets others go first, and keeps
    /// what is its share while its turns wait. Else each turn of one agent would end a process of
    /// another, and most of the time would go into starting them.
    pub(crate) fn make_room(&mut self, turn: TurnId, wants: &Wants<'_>, pass: &mut Pass) -> Room {
        // Each that asks looks at all processes, and a hundred thousand may wait.
        if pass.full {
            return Room::None;
        }
        // Those that could take this very turn: another directory's process is of no use to it.
        let has = self.processes_for(wants);
        // Where each turn is a process, no turn gets another one's.
        let any_will_do = has > 0 || wants.agent.describe.sessions == Sessions::PerTurn;
        if any_will_do && !pass.by_age && self.is_behind_others(&wants.agent.name) {
            pass.yields = true;
            return Room::None;
        }
        let processes = self.processes();
        if processes < self.settings.max_workers {
            return Room::Some;
        }
        let leaves = self.pool.slots().filter(|slot| slot.phase.leaves());
        // Older turns that asked before this one get what leaves first.
        let taken = pass.claimed + processes - self.settings.max_workers;
        pass.claimed += 1;
        if leaves.count() > taken {
            return Room::Coming;
        }
        let is_kept =
            |slot: &Slot| has > 0 && self.is_useful(slot) && self.share_of(&slot.agent) <= has + 1;
        // Longest idle first; those that somebody waits for, and memories that can't be resumed,
        // go last.
        let idle = self
            .pool
            .iter()
            .filter(|(_, slot)| slot.turns.is_empty() && slot.is_ready())
            .filter(|(worker, _)| !self.pool.is_compacting(*worker));
        let wanted = |worker: WorkerId| !self.indexes.lanes().is_empty(&Lane::Held(worker));
        let (kept, idle): (Vec<_>, Vec<_>) = idle.partition(|(_, slot)| is_kept(slot));
        let victim = idle
            .into_iter()
            .min_by_key(|(worker, slot)| (self.is_memory(slot), wanted(*worker), slot.idle_since))
            .map(|(worker, _)| worker);
        let Some(worker) = victim else {
            pass.kept += 1;
            if kept.is_empty() || pass.kept >= KEPT_LOOKS {
                pass.full = true;
                self.ask_for_way(turn);
            }
            return Room::None;
        };
        self.retire(worker);
        Room::Coming
    }

    /// How many processes are there, or come up, that take the turn in their time?
    fn processes_for(&self, wants: &Wants<'_>) -> usize {
        let Wants { agent, fit, own } = *wants;
        let takes = |slot: &&Slot| {
            let comes = slot.agent == agent.name && slot.phase.comes() && slot.serves(fit);
            comes && slot.takes_turns() || self.will_take(slot, &agent.name, fit)
        };
        if own {
            return 0;
        }
        self.pool.slots().filter(takes).count()
    }

    /// Waits a turn of another agent for a process that has fewer of them?
    fn is_behind_others(&self, agent: &str) -> bool {
        let share = self.share_of(agent);
        let others = self.settings.agents.keys().filter(|other| *other != agent);
        let mut waiting = others.filter(|other| self.indexes.lanes().any_free(other));
        waiting.any(|other| self.share_of(other) < share)
    }

    /// Does any turn wait that an idle process could take? Mostly its own lane says so.
    fn is_useful(&self, slot: &Slot) -> bool {
        let lanes = self.indexes.lanes();
        let serves = |lane: &Lane| match lane {
            Lane::Free(need) => !need.own && need.fit.as_ref().is_none_or(|fit| slot.serves(fit)),
            Lane::Held(_) => false,
        };
        let own = self.lane_of(slot);
        slot.takes_turns()
            && slot.room() > 0
            && (own.is_some_and(|lane| !lanes.is_empty(&lane))
                || self.takes_more_than_others(slot) && lanes.free_of(&slot.agent).any(serves))
    }

    /// How many processes has an agent?
    fn share_of(&self, agent: &str) -> usize {
        let has = |slot: &&Slot| slot.agent == agent && slot.phase.holds_process();
        let leaves = |slot: &&Slot| !slot.phase.leaves();
        self.pool.slots().filter(has).filter(leaves).count()
    }

    /// No process is idle, and one that is shared may never be: its turns overlap. For one that has
    /// waited for long, such a process takes no new turns for a while, and is idle then.
    fn ask_for_way(&mut self, turn: TurnId) {
        let now = self.now.mono;
        let since = self.jobs.get(&turn).map(|job| job.accepted_at);
        let at = since.unwrap_or(now) + MAKES_WAY_AFTER;
        if at > now {
            // Mostly one gets idle by then.
            return self.outbox.set_no_later(Timer::Look, at);
        }
        // One at a time, or a crowd of one agent would stop all others.
        if self.pool.way_until().is_some() {
            return;
        }
        let began = |turn: &TurnId| self.jobs.get(turn).and_then(|job| job.said.started_at);
        let shared = self.pool.iter().filter(|(worker, slot)| {
            slot.is_ready()
                && slot.at_once() > 1
                && slot.takes_turns()
                && !self.pool.is_compacting(*worker)
        });
        // One whose turns are short, as far as they tell; never the same one twice.
        let soonest = shared.min_by_key(|(worker, slot)| {
            let oldest = slot.turns.iter().filter_map(began).min().unwrap_or(now);
            (
                self.pool.made_way(*worker),
                now.saturating_sub(oldest),
                slot.turns.len(),
            )
        });
        let Some(worker) = soonest.map(|(worker, _)| worker) else {
            return;
        };
        self.pool.make_way(worker, now + MAKES_WAY_FOR);
    }

    /// A process that makes way takes turns again: nobody waits for room any more, or it has been
    /// long enough. Has anything changed?
    pub(crate) fn way_ends(&mut self, full: bool) -> bool {
        let Some(until) = self.pool.way_until() else {
            return false;
        };
        if full && until > self.now.mono {
            self.outbox.set_no_later(Timer::Look, until);
            return false;
        }
        self.pool.way_ends()
    }
}
