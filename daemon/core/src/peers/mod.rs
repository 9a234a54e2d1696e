//! The connections, and what waits for an answer to one of them.
//!
//! Owns the data. Must not know bytes or sockets, nor how a job ends.

use std::collections::{BTreeMap, BTreeSet};

use agentd_protocol::JobId;
use agentd_protocol::rows::SessionPhase;

use crate::ids::{ConnId, SessionId, TurnId, WorkerId};
use crate::peers::collects::Collects;
use crate::peers::conn::{Conn, Subscription};
use crate::peers::questions::Questions;
use crate::peers::steers::PendingSteers;
use crate::peers::waiting::{Aborting, Dispatching, ModelListing, RestartWait};

pub(crate) mod collects;
pub(crate) mod conn;
pub(crate) mod lookup;
pub(crate) mod questions;
pub(crate) mod steers;
pub(crate) mod waiting;

/// All of them. A connection may be gone whenever something for it is done.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Peers {
    conns: BTreeMap<ConnId, Conn>,
    /// Those that have a subscription.
    subscribers: BTreeSet<ConnId>,
    /// Sessions that do something, as those of them heard who want to.
    heard: BTreeMap<SessionId, (String, SessionPhase)>,
    /// Bytes on their way to readers that haven't said that they took them.
    unsent: usize,
    collects: Collects,
    questions: Questions,
    steers: PendingSteers,
    aborting: BTreeMap<u64, Aborting>,
    dispatching: BTreeMap<u64, Dispatching>,
    restarts: Vec<RestartWait>,
    listings: Vec<ModelListing>,
}

impl Peers {
    /// A connection, unless it has gone meanwhile: then nobody there hears what was asked for.
    pub(crate) fn connected(&self, conn: &ConnId) -> Option<&Conn> {
        self.conns.get(conn)
    }

    /// The same, to change it.
    pub(crate) fn connected_mut(&mut self, conn: &ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(conn)
    }

    pub(crate) fn contains(&self, conn: ConnId) -> bool {
        self.conns.contains_key(&conn)
    }

    pub(crate) fn insert(&mut self, conn: ConnId, known: Conn) {
        self.conns.insert(conn, known);
    }

    /// A connection is gone, and with it whatever waited for an answer on it alone. Collects are the
    /// caller's, as they have timers.
    pub(crate) fn remove(&mut self, conn: ConnId) -> Option<Conn> {
        let gone = self.conns.remove(&conn)?;
        self.subscribers.remove(&conn);
        // What was on its way there will never be taken, and must not take room from others.
        self.unsent = self.unsent.saturating_sub(gone.window.marked());
        for aborting in self.aborting.values_mut() {
            // The jobs are aborted all the same: their marks are still written.
            aborting.asker.take_if(|(asker, _)| *asker == conn);
        }
        self.restarts.retain(|wait| wait.conn != conn);
        self.questions.answers(conn, false);
        self.steers.forget_conn(conn);
        Some(gone)
    }

    /// Nobody waits under this key any more.
    pub(crate) fn loaded(&mut self, key: &str) {
        for conn in self.conns.values_mut() {
            conn.loading.take_if(|loading| loading == key);
        }
    }

    pub(crate) const fn subscribers(&self) -> &BTreeSet<ConnId> {
        &self.subscribers
    }

    /// A connection has a subscription, if it is there.
    pub(crate) fn subscribe(&mut self, conn: ConnId, subscription: Subscription) {
        if let Some(known) = self.conns.get_mut(&conn) {
            known.subscription = Some(subscription);
            self.subscribers.insert(conn);
        }
    }

    /// It has none any more.
    pub(crate) fn unsubscribe(&mut self, conn: ConnId) -> Option<Subscription> {
        self.subscribers.remove(&conn);
        self.conns.get_mut(&conn)?.subscription.take()
    }

    /// Is anybody told of sessions?
    pub(crate) fn hear_of_sessions(&self) -> bool {
        let hears = |conn: &ConnId| {
            let known = self.conns.get(conn)?.subscription.as_ref()?;
            known.sessions.then_some(())
        };
        self.subscribers.iter().any(|conn| hears(conn).is_some())
    }

    /// Sessions that do something, as it was told.
    pub(crate) const fn heard(&mut self) -> &mut BTreeMap<SessionId, (String, SessionPhase)> {
        &mut self.heard
    }

    /// Bytes on their way to readers that haven't said that they took them.
    pub(crate) const fn unsent(&self) -> usize {
        self.unsent
    }

    /// So many bytes leave for a connection, if that is there; must a mark follow them?
    pub(crate) fn sends(&mut self, conn: ConnId, bytes: usize) -> Option<bool> {
        let known = self.conns.get_mut(&conn).filter(|conn| !conn.is_cut_off)?;
        let marked = known.window.add(bytes);
        // Only what a mark stands for is counted: its return is how the core learns that it was
        // taken.
        self.unsent += marked.unwrap_or(0);
        Some(marked.is_some())
    }

    /// Nothing more goes to a connection; is that new?
    pub(crate) fn cut_off(&mut self, conn: ConnId) -> bool {
        let known = self.conns.get_mut(&conn);
        known.is_some_and(|conn| !std::mem::replace(&mut conn.is_cut_off, true))
    }

    /// A reader took everything up to a mark.
    pub(crate) fn mark_returned(&mut self, conn: ConnId) {
        if let Some(known) = self.conns.get_mut(&conn) {
            self.unsent = self.unsent.saturating_sub(known.window.mark_returned());
        }
    }

    pub(crate) const fn collects(&self) -> &Collects {
        &self.collects
    }

    pub(crate) const fn collects_mut(&mut self) -> &mut Collects {
        &mut self.collects
    }

    pub(crate) const fn questions(&self) -> &Questions {
        &self.questions
    }

    pub(crate) const fn questions_mut(&mut self) -> &mut Questions {
        &mut self.questions
    }

    pub(crate) const fn steers(&self) -> &PendingSteers {
        &self.steers
    }

    pub(crate) const fn steers_mut(&mut self) -> &mut PendingSteers {
        &mut self.steers
    }

    pub(crate) fn abort(&mut self, number: u64, aborting: Aborting) {
        self.aborting.insert(number, aborting);
    }

    /// The aborts that wait, in their order.
    pub(crate) fn aborts(&self) -> Vec<u64> {
        self.aborting.keys().copied().collect()
    }

    pub(crate) fn aborting(&mut self, number: u64) -> Option<&mut Aborting> {
        self.aborting.get_mut(&number)
    }

    /// All aborts that wait.
    pub(crate) fn all_aborting(&mut self) -> impl Iterator<Item = &mut Aborting> {
        self.aborting.values_mut()
    }

    /// An abort that waits for nothing any more.
    pub(crate) fn take_aborted(&mut self, number: u64) -> Option<Aborting> {
        let done = self.aborting.get(&number)?.is_done();
        done.then(|| self.aborting.remove(&number)).flatten()
    }

    /// A pending job was accepted and cancelled, or refused.
    pub(crate) fn abort_resolved(&mut self, turn: TurnId, job: Option<JobId>) {
        for aborting in self.aborting.values_mut() {
            if aborting.pending.remove(&turn) {
                aborting.jobs.extend(job);
            }
        }
    }

    pub(crate) fn dispatch(&mut self, number: u64, dispatching: Dispatching) {
        self.dispatching.insert(number, dispatching);
    }

    pub(crate) fn dispatched(&mut self, number: u64) -> Option<Dispatching> {
        self.dispatching.remove(&number)
    }

    /// Who waits for a dispatch.
    pub(crate) fn dispatcher(&self, number: u64) -> Option<ConnId> {
        self.dispatching.get(&number).map(|asked| asked.conn)
    }

    /// All that wait.
    pub(crate) fn dispatches(&self) -> impl Iterator<Item = &Dispatching> {
        self.dispatching.values()
    }

    pub(crate) fn restart(&mut self, wait: RestartWait) {
        self.restarts.push(wait);
    }

    /// Does somebody who asked for a restart wait for this process?
    pub(crate) fn awaits_restart(&self, worker: WorkerId) -> bool {
        self.restarts
            .iter()
            .any(|wait| wait.slots.contains(&worker))
    }

    /// A process that was to be restarted is ready, or gone for good.
    pub(crate) fn restarted(&mut self, worker: WorkerId) {
        for wait in &mut self.restarts {
            wait.slots.remove(&worker);
        }
    }

    /// Those who waited for a process that did not come up.
    pub(crate) fn restart_failed(&mut self, worker: WorkerId) -> Vec<RestartWait> {
        let failed = |wait: &mut RestartWait| wait.slots.contains(&worker);
        self.restarts.extract_if(.., failed).collect()
    }

    /// Those who wait for no process any more.
    pub(crate) fn take_restarted(&mut self) -> Vec<RestartWait> {
        let done = |wait: &mut RestartWait| wait.slots.is_empty();
        self.restarts.extract_if(.., done).collect()
    }

    /// All who wait for one.
    pub(crate) fn take_restarts(&mut self) -> Vec<RestartWait> {
        std::mem::take(&mut self.restarts)
    }

    /// Those who wait for an agent's models.
    pub(crate) fn listings(&self) -> &[ModelListing] {
        &self.listings
    }

    pub(crate) fn listing(&mut self, number: u64) -> Option<&mut ModelListing> {
        let mut all = self.listings.iter_mut();
        all.find(|listing| listing.number == number)
    }

    pub(crate) fn lists(&mut self, listing: ModelListing) {
        self.listings.push(listing);
    }

    /// It has its answer.
    pub(crate) fn listed(&mut self, number: u64) -> Option<ModelListing> {
        let at = self.listings.iter();
        let at = at.take_while(|listing| listing.number != number).count();
        (at < self.listings.len()).then(|| self.listings.remove(at))
    }

    /// All of them that are still there.
    pub(crate) fn take_listings(&mut self) -> Vec<ModelListing> {
        std::mem::take(&mut self.listings)
    }
}
