//! One process slot's life: started, ready, dead, started again.
//!
//! Owns phases and generations. How a process is ended is in `stop_stages.rs`, what its death means in
//! `process_exit.rs`. Must not know which session gets which slot.

use std::time::Duration;

use crate::agent::{Sessions, SystemText};
use crate::effect::Effect;
use crate::ids::{Generation, SessionId, WorkerId};
use crate::log::What;
use crate::outbox::timers::Timer;
use crate::pool::slot::SlotPhase;
use crate::rules::begin::can_be_reopened;
use crate::settings::Served;
use crate::state::State;
use crate::worker::{Prompt, Traits, WorkerCommand};

impl State {
    /// Starts a slot's next generation, as soon as the spawn rate allows.
    pub(crate) fn start(&mut self, worker: WorkerId) {
        if !self.spawn_allowed() {
            let again = self.now.mono + Duration::from_millis(100);
            if let Some(slot) = found!(self.pool.get_mut(worker)) {
                slot.phase = SlotPhase::Backoff;
                self.outbox.set(Timer::Slot(worker), again);
            }
            return;
        }
        // Counted at once: many may start with one event.
        self.pool.spawns(self.now.mono);
        let slot = expected!(self.pool.get(worker));
        if self.is_per_turn(&slot.agent) {
            // It is one turn, and that is over.
            return self.drop_slot(worker);
        }
        let (spawn, resuming) = self.spawn_of(slot);
        let Some(agent) = self.settings.agents.get(&slot.agent) else {
            // It was taken out of the configuration.
            return self.drop_slot(worker);
        };
        let ready_within = agent.describe.ready_within;
        let revision = agent.revision;
        let now = self.now.mono;
        let slot = expected!(self.pool.get_mut(worker));
        slot.fit.revision = revision;
        for session in &slot.sessions {
            if let Some(session) = self.sessions.get_mut(session) {
                session.revision = Some(revision);
            }
        }
        // What the process before it still says is dropped by this number.
        slot.generation.0 += 1;
        slot.phase = SlotPhase::Starting { pid: None };
        slot.spawned_at = now;
        slot.resuming = resuming;
        slot.native = None;
        slot.retiring = false;
        slot.restart_when_idle = false;
        slot.makes_way = false;
        (slot.served, slot.proven) = (false, false);
        // The new process has its own pipe, which is read.
        (slot.unstored, slot.paused) = (0, false);
        let generation = slot.generation;
        self.outbox.clear(Timer::Retire(worker));
        self.outbox.set(Timer::Slot(worker), now + ready_within);
        self.outbox.push(Effect::Spawn {
            worker,
            generation,
            spawn: Box::new(spawn),
        });
    }

    /// Spawns the process that is one turn.
    pub(crate) fn spawn_for_turn(&mut self, worker: WorkerId, prompt: Prompt) {
        let now = self.now.mono;
        let slot = expected!(self.pool.get(worker));
        let (mut spawn, _) = self.spawn_of(slot);
        spawn.prompt = Some(Box::new(prompt));
        let slot = expected!(self.pool.get_mut(worker));
        slot.phase = SlotPhase::Ready {
            pid: None,
            since: now,
        };
        slot.spawned_at = now;
        let generation = slot.generation;
        self.outbox.push(Effect::Spawn {
            worker,
            generation,
            spawn: Box::new(spawn),
        });
    }

    pub(crate) fn spawned(&mut self, worker: WorkerId, generation: Generation, new: u32) {
        let Some(slot) = self.pool.current(worker, generation) else {
            return;
        };
        match &mut slot.phase {
            SlotPhase::Starting { pid } => {
                *pid = Some(new);
                self.outbox.push(Effect::Tell {
                    worker,
                    generation,
                    command: WorkerCommand::Probe,
                });
            }
            SlotPhase::Ready { pid, .. } | SlotPhase::Stopping { pid, .. } => {
                *pid = Some(new);
                // It need not get ready.
                let one_turn = slot.is_one_turn().then(|| slot.agent.clone());
                if let Some(health) = one_turn.and_then(|agent| self.pool.health_mut(&agent)) {
                    health.found();
                }
            }
            SlotPhase::Planned
            | SlotPhase::Probing { .. }
            | SlotPhase::Recycling { .. }
            | SlotPhase::Backoff
            | SlotPhase::Failed => {}
        }
    }

    /// The worker answered a probe.
    pub(crate) fn worker_ready(&mut self, worker: WorkerId, traits: Traits) {
        let now = self.now.mono;
        let slot = expected!(self.pool.get_mut(worker));
        let (pid, since) = match slot.phase {
            SlotPhase::Starting { pid } => (pid, now),
            SlotPhase::Probing { pid, since } => (pid, since),
            _ => return,
        };
        let first = matches!(slot.phase, SlotPhase::Starting { .. });
        slot.phase = SlotPhase::Ready { pid, since };
        // It has just answered, so its next turn needs no other question.
        slot.idle_since = now;
        self.outbox.clear(Timer::Slot(worker));
        if first {
            self.log_worker(worker, What::Ready);
            let slot = expected!(self.pool.get_mut(worker));
            // What it doesn't say is as its kind has it, and not as the last one said.
            let alone = slot.describe.sessions != Sessions::Many;
            slot.one_session = traits.one_session.unwrap_or(alone);
            slot.cwd_per_turn = traits.cwd_per_turn;
            slot.steers = traits.steers.unwrap_or(slot.steers);
            slot.compacts = traits.compacts.unwrap_or(slot.compacts);
            slot.lists_models = traits.lists_models.unwrap_or(slot.lists_models);
            slot.lists_commands = traits.lists_commands.unwrap_or(slot.lists_commands);
            slot.takes = traits.takes.unwrap_or(slot.takes);
            slot.resumes = traits.resumes.unwrap_or(slot.resumes);
            slot.toolsets = traits.toolsets.unwrap_or(slot.toolsets);
            slot.toolsets_per_turn = traits.toolsets == Some(true);
            slot.fallback_chain = traits.fallback_chain.unwrap_or(slot.fallback_chain);
            if traits.system == Some(false) && slot.system == SystemText::WithTurn {
                slot.system = SystemText::InPrompt;
            }
            slot.history = traits.history.unwrap_or(slot.history);
            slot.mcp = traits.mcp.unwrap_or(slot.mcp);
            slot.forks = traits.forks.unwrap_or(slot.forks);
            slot.models = traits.models;
            slot.modes = traits.modes;
            let most = traits.concurrent_sends;
            // None would make a process that takes no turn, and is waited for.
            slot.capacity = most.unwrap_or(slot.describe.concurrent_sends).max(1);
            let agent = slot.agent.clone();
            // It may have been closed while its process came up.
            if let Some(session) = slot.resuming
                && let Some(session) = self.sessions.get_mut(&session)
            {
                session.open = true;
            }
            // A copy: sessions may leave it below.
            let held: Vec<_> = self
                .pool
                .get(&worker)
                .map(|slot| slot.sessions.iter().copied().collect())
                .unwrap_or_default();
            for session in held {
                let known = self.sessions.get_mut(&session);
                let Some(known) = self.outbox.expected(session, known) else {
                    continue;
                };
                if let Some(health) = known.health.other() {
                    health.ready();
                }
                if known.coming {
                    // It is there for the oldest of those that wait.
                    self.unbind(worker, session);
                }
            }
            if let Some(health) = self.pool.health_mut(&agent) {
                health.ready();
            }
            self.extra_is_ready(worker);
            self.has_said(worker);
            // After it was counted as there: whoever asked for the restart may send at once.
            self.restarted(worker, Ok(()));
        }
        if self
            .pool
            .get(&worker)
            .is_some_and(|slot| slot.turns.is_empty())
        {
            self.arm_idle(worker);
        }
    }

    /// The process is ready for a new session.
    pub(crate) fn worker_recycled(&mut self, worker: WorkerId) {
        let slot = expected!(self.pool.get_mut(worker));
        if let SlotPhase::Recycling { pid, since } = slot.phase {
            slot.phase = SlotPhase::Ready { pid, since };
            slot.idle_since = self.now.mono;
            self.outbox.clear(Timer::Slot(worker));
            self.arm_idle(worker);
        }
    }

    /// The process has other pins, or can't: then it makes way for one that is started with them.
    pub(crate) fn worker_switched(&mut self, worker: WorkerId, has_them: bool) {
        if has_them {
            return self.worker_recycled(worker);
        }
        let slot = self.pool.get(&worker);
        if slot.is_some_and(|slot| matches!(slot.phase, SlotPhase::Recycling { .. })) {
            self.retire(worker);
        }
    }

    /// A session that nobody named stays with the process that alone remembers it and that others
    /// share: whoever goes on with it finds it there, while that lives.
    pub(crate) fn lingers(&mut self, worker: WorkerId, session: SessionId) -> bool {
        let known = self.sessions.get(&session);
        let (Some(known), Some(slot)) = (known, self.pool.get_mut(&worker)) else {
            return false;
        };
        let alone = !(slot.resumes && can_be_reopened(slot, known));
        let shared = slot.describe.sessions == Sessions::Many && !slot.one_session;
        // A run without the daemon ends with its turn.
        let stays = matches!(self.settings.served, Served::Daemon) && !slot.retiring;
        if !(alone && shared && stays) {
            return false;
        }
        if let Some(oldest) = slot.lingers(session) {
            self.unbind(worker, oldest);
        }
        true
    }

    /// A session lets its process go.
    pub(crate) fn unbind(&mut self, worker: WorkerId, session: SessionId) {
        if let Some(slot) = found!(self.pool.get_mut(worker)) {
            slot.lets_go(session);
        }
        if let Some(session) = found!(self.sessions.get_mut(session))
            && session.slot == Some(worker)
        {
            session.has_left();
        }
        // A process may have been all that kept it in memory.
        self.forget_session_if_idle(session);
    }

    /// Removes a slot that has no process.
    pub(crate) fn drop_slot(&mut self, worker: WorkerId) {
        let Some(slot) = self.pool.remove(worker) else {
            return self.outbox.dangling(worker);
        };
        for timer in [
            Timer::Slot(worker),
            Timer::Idle(worker),
            Timer::Retire(worker),
        ] {
            self.outbox.clear(timer);
        }
        for session in slot.sessions {
            if let Some(known) = found!(self.sessions.get_mut(session))
                && known.slot == Some(worker)
            {
                known.has_left();
            }
            self.forget_session_if_idle(session);
        }
        // The others of its agent may all take what this one could not.
        self.reaches(&slot.agent);
        // What failed beside this one may come up now.
        self.may_be_alone(&slot.agent);
        self.restarted(worker, Ok(()));
    }
}
