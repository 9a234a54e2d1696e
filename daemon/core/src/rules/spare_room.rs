//! Spares that nobody configured: which agents have one, and what the machine has room for.
//!
//! Owns how long an agent counts as in use, and when its spare goes. When one is started, and with
//! what, is in `spare.rs`; what the machine is like, the shell finds out.

use std::time::Duration;

use agentd_protocol::line::{Budget, SpareFacts};

use crate::agent::{Agent, Warm};
use crate::effect::{Effect, StopStage};
use crate::ids::WorkerId;
use crate::limits::SPARE_UNMEASURED;
use crate::machine::Machine;
use crate::outbox::timers::Timer;
use crate::pool::slot::Slot;
use crate::pool::spares::Spares;
use crate::rules::agent_choice::per_turn;
use crate::state::State;

impl State {
    /// How many spares is an agent to have now, as far as there is room?
    pub(crate) fn spares_wanted(&self, agent: &Agent) -> usize {
        match agent.warm {
            Warm::Always(some) => some as usize,
            // Nobody is served sooner by one that nobody is logged in to.
            Warm::WhenUsed if agent.logged_in == Some(false) || self.is_locked_out(agent) => 0,
            Warm::WhenUsed => usize::from(self.is_in_use(agent)),
        }
    }

    fn is_locked_out(&self, agent: &Agent) -> bool {
        let spares = self.pool.known_spares(&agent.name);
        spares.is_some_and(|spares| spares.locked_out)
    }

    /// A turn failed for want of a login, or didn't. Processes look for one when they start: those that
    /// are there go.
    pub(crate) fn locked_out(&mut self, agent: &str, is_out: bool) {
        if is_out
            || self
                .pool
                .known_spares(agent)
                .is_some_and(|spares| spares.locked_out)
        {
            self.pool.spares_of(agent).locked_out = is_out;
        }
        if is_out {
            self.renew_all(&[agent.to_owned()]);
        }
    }

    /// Has an agent a turn, or had it one within its idle time?
    fn is_in_use(&self, agent: &Agent) -> bool {
        let until = self.in_use_until(agent);
        let used = until.is_some_and(|until| self.now.mono < until);
        let mut slots = self.pool.slots();
        // One that never had any isn't looked for.
        used || until.is_some()
            && slots.any(|slot| slot.agent == agent.name && !slot.turns.is_empty())
    }

    fn in_use_until(&self, agent: &Agent) -> Option<Duration> {
        let spares = self.pool.known_spares(&agent.name)?;
        Some(spares.used_at? + agent.idle_timeout)
    }

    /// A turn of a process begins or ends.
    pub(crate) fn was_used(&mut self, worker: WorkerId) {
        let slot = expected!(self.pool.get(worker));
        let agent = slot.agent.clone();
        let now = self.now.mono;
        let known = self.settings.agents.get(&agent);
        if known.is_some_and(|agent| agent.warm == Warm::WhenUsed && !per_turn(agent)) {
            self.pool.spares_of(&agent).used_at = Some(now);
        }
    }

    /// Is an idle process its agent's spare? Of those that nobody configured one is enough.
    pub(crate) fn is_kept_spare(&self, worker: WorkerId, slot: &Slot, agent: &Agent) -> bool {
        let wanted = self.spares_wanted(agent);
        let is_free = |slot: &Slot| slot.agent == agent.name && slot.is_free() && slot.is_ready();
        let others = self
            .pool
            .iter()
            .filter(|(other, slot)| *other != worker && is_free(slot) && slot.takes_turns());
        slot.is_free() && wanted > 0 && (agent.warm != Warm::WhenUsed || others.count() < wanted)
    }

    /// A spare has been idle, as is its purpose. One that nobody configured is looked at again when
    /// its agent isn't in use any more.
    pub(crate) fn spare_stays(&mut self, worker: WorkerId) {
        let agent = self.pool.get(&worker).map(|slot| slot.agent.as_str());
        let agent = agent.and_then(|agent| self.settings.agents.get(agent));
        let Some(agent) = agent.filter(|agent| agent.warm == Warm::WhenUsed) else {
            return;
        };
        let now = self.now.mono;
        let until = self.in_use_until(agent).filter(|until| *until > now);
        let at = until.unwrap_or(now + agent.idle_timeout.max(Duration::from_secs(1)));
        self.outbox.set(Timer::Idle(worker), at);
    }

    /// Is it a spare that nobody configured, nor has used yet?
    pub(crate) fn is_automatic_spare(&self, worker: WorkerId) -> bool {
        let slot = self.pool.get(&worker).filter(|slot| slot.is_unused_spare());
        let agent = slot.and_then(|slot| self.settings.agents.get(&slot.agent));
        agent.is_some_and(|agent| agent.warm == Warm::WhenUsed)
    }

    /// One died before anybody used it. That is nobody's trouble: the agent's turns have their own
    /// processes, and the next spare has time.
    pub(crate) fn spare_died(&mut self, worker: WorkerId) {
        self.count_spare(worker);
        let why = self
            .pool
            .get(&worker)
            .and_then(|slot| slot.last_error.clone());
        self.restarted(worker, Err(why.unwrap_or_default()));
        self.drop_slot(worker);
    }

    /// One doesn't get ready.
    pub(crate) fn spare_hangs(&mut self, worker: WorkerId) {
        self.count_spare(worker);
        self.end_slot(worker, StopStage::Kill, crate::pool::slot::Then::Gone);
    }

    fn count_spare(&mut self, worker: WorkerId) {
        let now = self.now.mono;
        let slot = expected!(self.pool.get(worker));
        let agent = slot.agent.clone();
        self.pool.spares_of(&agent).died(now);
    }

    /// May one more be started? Those that were configured may.
    pub(crate) fn has_room_for_spare(&mut self, agent: &Agent) -> bool {
        if agent.warm != Warm::WhenUsed {
            return true;
        }
        if self.pool.machine().fresh(self.now.mono).is_none() {
            self.look_at_machine();
            return false;
        }
        if self.no_spare_for(agent).is_some() {
            // It may be otherwise by then.
            let again = self.pool.machine().next();
            self.outbox.set_no_later(Timer::Machine, again);
            return false;
        }
        true
    }

    /// Why the machine has no room for an agent's spare, as seen last.
    fn no_spare_for(&self, agent: &Agent) -> Option<&'static str> {
        let machine = self.pool.machine().last()?;
        let bytes = self.expected_bytes(&agent.name);
        let budget = self.spare_budget();
        machine
            .forbids()
            .or_else(|| (!machine.has_room_for(bytes)).then_some("the machine is short of memory"))
            .or_else(|| {
                let full = budget.bytes + bytes > budget.limit;
                full.then_some("spares would take more memory than they may (`[pool] memory`)")
            })
    }

    /// What one more process of an agent takes, about.
    fn expected_bytes(&self, agent: &str) -> u64 {
        let known = self.pool.known_spares(agent);
        let bytes = known.and_then(|spares: &Spares| spares.bytes);
        bytes.unwrap_or(SPARE_UNMEASURED)
    }

    fn bytes_of(&self, slot: &Slot) -> u64 {
        let seen = self.pool.machine().last();
        let measured = seen.zip(slot.pid());
        let measured = measured.and_then(|(seen, pid)| seen.processes.get(&pid).copied());
        measured.unwrap_or_else(|| self.expected_bytes(&slot.agent))
    }

    /// The spares that nobody configured.
    fn automatic_spares(&self) -> Vec<WorkerId> {
        let spares = self.pool.iter().filter(|(_, slot)| slot.is_spare_to_be());
        let spares = spares.map(|(worker, _)| worker);
        spares
            .filter(|spare| self.is_automatic_spare(*spare))
            .collect()
    }

    fn spare_budget(&self) -> Budget {
        let spares = self.automatic_spares();
        let slots = spares.iter().filter_map(|spare| self.pool.get(spare));
        let share = || self.pool.machine().last().map(Machine::share);
        Budget {
            bytes: slots.map(|slot| self.bytes_of(slot)).sum(),
            limit: self
                .settings
                .spare_memory
                .or_else(share)
                .unwrap_or_default(),
        }
    }

    fn look_at_machine(&mut self) {
        if !self.pool.machine_mut().begin() {
            return;
        }
        let agents = &self.settings.agents;
        let is_measured = |slot: &&Slot| {
            let agent = agents.get(&slot.agent);
            agent.is_some_and(|agent| agent.warm == Warm::WhenUsed) && slot.is_ready()
        };
        let measured = self.pool.slots().filter(is_measured);
        let pids = measured.filter_map(Slot::pid).collect();
        self.outbox.push(Effect::LookAtMachine { pids });
    }

    /// The machine was looked at.
    pub(crate) fn machine_seen(&mut self, machine: Machine) {
        let measured = self.pool.slots().filter_map(|slot| {
            let bytes = machine.processes.get(&slot.pid()?)?;
            Some((slot.agent.clone(), *bytes))
        });
        for (agent, bytes) in measured.collect::<Vec<_>>() {
            self.pool.spares_of(&agent).bytes = Some(bytes);
        }
        self.pool.machine_mut().end(self.now.mono, machine);
    }

    /// Ends the spares that should not be there any more. Were there any?
    pub(crate) fn let_spares_go(&mut self) -> bool {
        let needless = self.needless_spares();
        for worker in &needless {
            self.retire(*worker);
        }
        self.look_at_spares();
        !needless.is_empty()
    }

    fn look_at_spares(&mut self) {
        if self.automatic_spares().is_empty() {
            return;
        }
        // As long as there are any.
        let next = self.pool.machine().next();
        if next <= self.now.mono {
            self.look_at_machine();
        } else {
            self.outbox.set_no_later(Timer::Machine, next);
        }
    }

    fn needless_spares(&self) -> Vec<WorkerId> {
        let forbidden = self.pool.machine().last().and_then(Machine::forbids);
        let (mut needless, mut kept) = (Vec::new(), Vec::new());
        for (worker, slot) in self.pool.iter().filter(|(_, slot)| slot.is_spare_to_be()) {
            let agent = self.settings.agents.get(&slot.agent);
            let others = kept
                .iter()
                .filter(|(_, other): &&(_, &Slot)| other.agent == slot.agent);
            let wanted = agent.is_some_and(|agent| others.count() < self.spares_wanted(agent));
            let automatic = agent.is_some_and(|agent| agent.warm == Warm::WhenUsed);
            let may = !automatic || forbidden.is_none() && self.mode.starts_turns();
            if wanted && may {
                kept.push((worker, slot));
            } else {
                needless.push(worker);
            }
        }
        kept.retain(|(worker, _)| self.is_automatic_spare(*worker));
        let used_at = |slot: &Slot| self.pool.known_spares(&slot.agent)?.used_at;
        kept.sort_by_key(|(_, slot)| used_at(slot));
        let Budget { mut bytes, limit } = self.spare_budget();
        // Those of agents that were used before the others go first.
        for (worker, slot) in kept {
            if bytes <= limit {
                break;
            }
            bytes = bytes.saturating_sub(self.bytes_of(slot));
            needless.push(worker);
        }
        needless
    }

    /// For `status`.
    pub(crate) fn spare_facts(&self) -> SpareFacts {
        let spares = self.automatic_spares();
        let has_one = |agent: &&Agent| {
            let mut slots = spares.iter().filter_map(|spare| self.pool.get(spare));
            slots.any(|slot| slot.agent == agent.name)
        };
        let agents = self.settings.agents.values();
        let mut lacking = agents
            .filter(|agent| agent.warm == Warm::WhenUsed && self.is_in_use(agent))
            .filter(|agent| !has_one(agent));
        SpareFacts {
            processes: spares.len() as u64,
            memory: self.spare_budget(),
            held: lacking
                .find_map(|agent| self.no_spare_for(agent))
                .map(str::to_owned),
        }
    }
}
