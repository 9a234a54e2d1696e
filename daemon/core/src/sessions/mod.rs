//! The sessions: conversations that have jobs or a process.
//!
//! Owns the map, their names, and the requests that wait until some are known. Must not know how
//! turns run.

use std::collections::{BTreeMap, VecDeque};

use agentd_protocol::Id;

use crate::ids::{ConnId, SessionId};
use crate::sessions::loading::{Loading, Parked, of_parked};
use crate::sessions::session::{Repinning, Session};
use crate::tracked::Tracked;

pub(crate) mod directory;
pub(crate) mod loading;
pub(crate) mod session;

/// Somebody waits for another name of a session.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Renaming {
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    pub(crate) to: String,
}

/// All that are in memory.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Sessions {
    all: Tracked<SessionId, Box<Session>>,
    names: BTreeMap<String, SessionId>,
    /// What the store is asked for, and who waits for that.
    loading: BTreeMap<String, Loading>,
    /// Bytes that those requests hold.
    parked: usize,
    /// Those that get another name as soon as no process has them.
    renaming: BTreeMap<SessionId, Renaming>,
    /// Those of which something came back from the store, for whoever counts on their pins.
    settled: Vec<SessionId>,
}

impl Sessions {
    pub(crate) fn get(&self, session: &SessionId) -> Option<&Session> {
        self.all.get(session).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, session: &SessionId) -> Option<&mut Session> {
        self.all.get_mut(session).map(Box::as_mut)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.all.iter().map(|(session, known)| (*session, &**known))
    }

    /// All of them: for what is rare.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.all.values_mut().map(Box::as_mut)
    }

    pub(crate) fn contains(&self, session: SessionId) -> bool {
        self.all.contains_key(&session)
    }

    /// The session of this name, if it is in memory.
    pub(crate) fn named(&self, name: &str) -> Option<SessionId> {
        self.names.get(name).copied()
    }

    pub(crate) fn knows(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// A session is in memory from now on.
    pub(crate) fn insert(&mut self, session: SessionId, known: Session) {
        if let Some(name) = &known.name {
            self.names.insert(name.clone(), session);
        }
        self.all.insert(session, Box::new(known));
    }

    /// A session leaves memory.
    pub(crate) fn remove(&mut self, session: SessionId) -> Option<Box<Session>> {
        let known = self.all.remove(&session)?;
        if let Some(name) = &known.name {
            self.names.remove(name);
        }
        Some(known)
    }

    /// A session that nobody named got its name from the store.
    pub(crate) fn name(&mut self, session: SessionId, name: &str) {
        if let Some(known) = self.all.get_mut(&session)
            // A name never changes in memory, as other maps hold it: one that is renamed leaves it.
            && known.name.is_none()
        {
            known.name = Some(name.to_owned());
            self.names.insert(name.to_owned(), session);
        }
    }

    /// A session gets another name when it is free for that.
    pub(crate) fn rename_later(&mut self, session: SessionId, renaming: Renaming) {
        self.renaming.insert(session, renaming);
    }

    /// Those that wait for that.
    pub(crate) fn renaming(&self) -> impl Iterator<Item = (SessionId, &Renaming)> {
        self.renaming
            .iter()
            .map(|(session, renaming)| (*session, renaming))
    }

    /// It waits no more.
    pub(crate) fn renames_now(&mut self, session: SessionId) -> Option<Renaming> {
        self.renaming.remove(&session)
    }

    /// What was on its way to the store, and may have been to change a session's pins, is answered.
    pub(crate) fn settles(&mut self, session: SessionId, answered: Repinning) {
        let known = self.all.get_mut(&session);
        let unpins = known.is_some_and(|known| {
            // Of a dispatch another one may be behind it.
            known.repinning.take_if(|repinning| *repinning == answered);
            known.unpins && known.repinning.is_none()
        });
        if unpins || !self.loading.is_empty() {
            self.settled.push(session);
        }
    }

    /// Those of which something was answered in this event, while somebody waited for some or a pin was
    /// taken back.
    pub(crate) fn take_settled(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.settled)
    }

    /// What belongs to a session has changed elsewhere.
    pub(crate) fn touch(&mut self, session: SessionId) {
        self.all.touch(session);
    }

    /// What may have changed since this was asked last, each once.
    pub(crate) fn take_changed(&mut self) -> Vec<SessionId> {
        self.all.take_changed()
    }

    /// Is the store asked under this key just now?
    pub(crate) fn is_loading(&self, key: &str) -> bool {
        self.loading.contains_key(key)
    }

    /// Under which keys of this beginning somebody waits.
    pub(crate) fn waits_under(&self, beginning: &str) -> Vec<String> {
        let keys = self.loading.keys();
        keys.filter(|key| key.starts_with(beginning))
            .cloned()
            .collect()
    }

    /// The question to the store, if there is one just now, whether a session exists.
    pub(crate) fn asked_for(&self, name: &String) -> Option<String> {
        let mut loading = self.loading.iter();
        let asked = loading.find(|(_, loading)| loading.names.contains(name));
        asked.map(|(key, _)| key.clone())
    }

    /// The question to the store that a send with this idempotency key waits for.
    pub(crate) fn asked_for_send(&self, idempotency_key: &str) -> Option<String> {
        let holds = |loading: &Loading| {
            let mut parked = loading.parked.iter();
            parked.any(|parked| parked.has_key(idempotency_key))
        };
        let mut loading = self.loading.iter();
        let asked = loading.find(|(_, loading)| holds(loading));
        asked.map(|(key, _)| key.clone())
    }

    /// Lets a request wait under a key. If it is the first one, it waits for these names, and the store
    /// has to be asked.
    pub(crate) fn park(&mut self, key: &str, names: &[String], parked: Parked) -> bool {
        self.parked += of_parked(&parked.decoded.request);
        if let Some(loading) = self.loading.get_mut(key) {
            loading.parked.push_back(parked);
            return false;
        }
        let loading = Loading {
            names: names.to_vec(),
            parked: VecDeque::from([parked]),
        };
        self.loading.insert(key.to_owned(), loading);
        true
    }

    /// What waited under a key waits no more. Somebody may have answered for the store before it did.
    pub(crate) fn unpark(&mut self, key: &str) -> Option<Loading> {
        let loading = self.loading.remove(key)?;
        self.weigh_no_more(&loading.parked);
        Some(loading)
    }

    /// Requests of a connection that is gone.
    pub(crate) fn forget_conn(&mut self, conn: ConnId) {
        let mut gone: Vec<Parked> = Vec::new();
        for loading in self.loading.values_mut() {
            let parked = std::mem::take(&mut loading.parked).into_iter();
            let (theirs, others) = parked.partition(|parked| parked.conn == conn);
            loading.parked = others;
            let theirs: VecDeque<_> = theirs;
            gone.extend(theirs);
        }
        self.weigh_no_more(&gone);
    }

    /// Bytes that requests hold which wait until their sessions are known.
    pub(crate) const fn parked(&self) -> usize {
        self.parked
    }

    /// So many of them wait no more.
    fn weigh_no_more<'a>(&mut self, parked: impl IntoIterator<Item = &'a Parked>) {
        let bytes = parked
            .into_iter()
            .map(|one| of_parked(&one.decoded.request));
        self.parked = self.parked.saturating_sub(bytes.sum());
    }
}
