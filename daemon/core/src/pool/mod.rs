//! The processes: slots, their health, spares, and what is known of starts to come.
//!
//! Owns the data. Which session gets which process, when one starts and how it ends is decided in the
//! rules.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::health::Health;
use crate::ids::{Generation, WorkerId};
use crate::limits::{LOOK_AGAIN, SPAWN_EVERY, SPAWNS_AT_ONCE};
use crate::mcp::McpServers;
use crate::pool::compacting::Compacting;
use crate::pool::fit::{Fit, Reach};
use crate::pool::slot::Slot;
use crate::pool::spares::{MachineLook, Spares};

pub(crate) mod compacting;
pub(crate) mod crash_blame;
pub(crate) mod fit;
pub(crate) mod slot;
pub(crate) mod spares;

/// All slots, and what outlives them.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Pool {
    slots: BTreeMap<WorkerId, Slot>,
    /// By agent.
    health: BTreeMap<String, Health>,
    /// The same of processes that were started beside another one, see `rules/extra_process.rs`.
    extra: BTreeMap<String, Health>,
    spares: BTreeMap<String, Spares>,
    machine: MachineLook,
    /// Sessions that are being shortened, by the processes that do it.
    compacting: BTreeMap<WorkerId, Compacting>,
    /// What the processes of an agent take.
    reach: BTreeMap<String, Reach>,
    making_way: MakingWay,
    look: LastLook,
    /// Spawns may go on at their rate from this time on: they are ahead of it, or behind.
    spawns_until: Duration,
}

/// The process that takes no new turns, so that an older one of another agent gets its room. When one
/// does is in `rules/room.rs`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct MakingWay {
    /// The one that does, or did last.
    worker: Option<WorkerId>,
    /// It does until then.
    until: Option<Duration>,
}

/// The last look at which agents there are; the first one was at the start. When one is asked for is
/// in `rules/discovery.rs`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct LastLook {
    at: Duration,
    outstanding: bool,
}

impl Pool {
    pub(crate) fn get(&self, worker: &WorkerId) -> Option<&Slot> {
        self.slots.get(worker)
    }

    pub(crate) fn get_mut(&mut self, worker: &WorkerId) -> Option<&mut Slot> {
        self.slots.get_mut(worker)
    }

    /// The slot, if this is still its process: of an older one nothing counts any more.
    pub(crate) fn current(
        &mut self,
        worker: WorkerId,
        generation: Generation,
    ) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(&worker);
        slot.filter(|slot| slot.generation == generation)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Slot)> {
        self.slots.iter().map(|(worker, slot)| (*worker, slot))
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    pub(crate) fn contains(&self, worker: WorkerId) -> bool {
        self.slots.contains_key(&worker)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn insert(&mut self, worker: WorkerId, slot: Slot) {
        self.slots.insert(worker, slot);
    }

    pub(crate) fn remove(&mut self, worker: WorkerId) -> Option<Slot> {
        self.slots.remove(&worker)
    }

    /// What is remembered of an agent's processes, if there is anything.
    pub(crate) fn health(&self, agent: &str) -> Option<&Health> {
        self.health.get(agent)
    }

    pub(crate) fn health_mut(&mut self, agent: &str) -> Option<&mut Health> {
        self.health.get_mut(agent)
    }

    /// The same, to remember something.
    pub(crate) fn health_of(&mut self, agent: String) -> &mut Health {
        self.health.entry(agent).or_default()
    }

    /// What is remembered of processes that were started beside another one of their agent.
    pub(crate) fn extra(&self, agent: &str) -> Option<&Health> {
        self.extra.get(agent)
    }

    pub(crate) fn extra_mut(&mut self, agent: &str) -> Option<&mut Health> {
        self.extra.get_mut(agent)
    }

    /// The same, to remember something.
    pub(crate) fn extra_of(&mut self, agent: String) -> &mut Health {
        self.extra.entry(agent).or_default()
    }

    pub(crate) fn forget_extra(&mut self, agent: &str) {
        self.extra.remove(agent);
    }

    pub(crate) fn forget_deaths(&mut self, agent: &str) {
        self.health.remove(agent);
        self.extra.remove(agent);
    }

    /// The last look at the machine.
    pub(crate) const fn machine(&self) -> &MachineLook {
        &self.machine
    }

    /// The same, to note something.
    pub(crate) const fn machine_mut(&mut self) -> &mut MachineLook {
        &mut self.machine
    }

    /// What is known for an agent's spares, if there is anything; to be read.
    pub(crate) fn known_spares(&self, agent: &str) -> Option<&Spares> {
        self.spares.get(agent)
    }

    /// What is known for an agent's spares, if there is anything.
    pub(crate) fn spares(&mut self, agent: &str) -> Option<&mut Spares> {
        self.spares.get_mut(agent)
    }

    /// The same, to remember something.
    pub(crate) fn spares_of(&mut self, agent: &str) -> &mut Spares {
        self.spares.entry(agent.to_owned()).or_default()
    }

    /// What the processes of an agent take, as far as any has said.
    pub(crate) fn reach(&self, agent: &str) -> Option<&Reach> {
        self.reach.get(agent)
    }

    /// The same, to remember something.
    pub(crate) fn reach_of(&mut self, agent: &str) -> &mut Reach {
        self.reach.entry(agent.to_owned()).or_default()
    }

    /// A process has served a turn: it got ready, so spares that are started like it will.
    pub(crate) fn served(&mut self, worker: WorkerId) {
        if let Some(slot) = self.slots.get(&worker) {
            let spares = self.spares.entry(slot.agent.clone()).or_default();
            // Cloned only when it changed: this is asked for each turn. A session's own servers are
            // started for that one alone.
            if !slot.fit.mcp_servers.is_empty() {
                let mcp_servers = McpServers::default();
                spares.last = Some(Fit {
                    mcp_servers,
                    ..slot.fit.clone()
                });
            } else if spares.last.as_ref() != Some(&slot.fit) {
                spares.last = Some(slot.fit.clone());
            }
        }
    }

    /// Is a process shortening a session? Then it takes no turns.
    pub(crate) fn is_compacting(&self, worker: WorkerId) -> bool {
        self.compacting.contains_key(&worker)
    }

    pub(crate) fn compacts(&mut self, worker: WorkerId, compacting: Compacting) {
        self.compacting.insert(worker, compacting);
    }

    /// It shortens nothing any more. Its answer may come when nobody waits for it.
    pub(crate) fn compacted(&mut self, worker: WorkerId) -> Option<Compacting> {
        self.compacting.remove(&worker)
    }

    /// Until when a process makes way.
    pub(crate) const fn way_until(&self) -> Option<Duration> {
        self.making_way.until
    }

    /// Is this the one that did last?
    pub(crate) fn made_way(&self, worker: WorkerId) -> bool {
        self.making_way.worker == Some(worker)
    }

    /// A process takes no new turns until then.
    pub(crate) fn make_way(&mut self, worker: WorkerId, until: Duration) {
        self.making_way = MakingWay {
            worker: Some(worker),
            until: Some(until),
        };
        if let Some(slot) = self.slots.get_mut(&worker) {
            slot.makes_way = true;
        }
    }

    /// None does any more; has that changed anything?
    pub(crate) fn way_ends(&mut self) -> bool {
        self.making_way.until = None;
        // It may be gone by now.
        let worker = self.making_way.worker;
        let slot = worker.and_then(|worker| self.slots.get_mut(&worker));
        slot.is_some_and(|slot| std::mem::take(&mut slot.makes_way))
    }

    /// Is a look at which agents there are on its way?
    pub(crate) const fn is_looking(&self) -> bool {
        self.look.outstanding
    }

    /// Was one over just then, and is none on its way?
    pub(crate) fn has_looked_at(&self, now: Duration) -> bool {
        !self.look.outstanding && self.look.at == now
    }

    /// Not before this, when none is on its way.
    pub(crate) fn next_look(&self) -> Duration {
        self.look.at + LOOK_AGAIN
    }

    pub(crate) const fn looks(&mut self) {
        self.look.outstanding = true;
    }

    /// The look is over.
    pub(crate) const fn looked(&mut self, now: Duration) {
        self.look = LastLook {
            at: now,
            outstanding: false,
        };
    }

    /// When one more process may be started.
    pub(crate) fn next_spawn(&self) -> Duration {
        // As a bucket of `SPAWNS_AT_ONCE` tokens, kept as the one time at which it would be full
        // again.
        let at_once = u32::try_from(SPAWNS_AT_ONCE - 1).unwrap_or(u32::MAX);
        self.spawns_until.saturating_sub(SPAWN_EVERY * at_once)
    }

    /// One more process is started.
    pub(crate) fn spawns(&mut self, now: Duration) {
        // Not before now: a quiet day saves up no more than a full bucket.
        self.spawns_until = self.spawns_until.max(now) + SPAWN_EVERY;
    }

    /// A process has ended a turn well: no crash loop started it, so its spawn doesn't count.
    pub(crate) fn spawn_proven(&mut self) {
        self.spawns_until = self.spawns_until.saturating_sub(SPAWN_EVERY);
    }
}
