//! `subscribe`: who wants to hear of jobs that others sent, and from where on.
//!
//! Owns the filter and the check of the cursor. How lines get there is in `fanout.rs`.

use std::collections::BTreeMap;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{Line, Telling};
use agentd_protocol::request::Subscribe;
use agentd_protocol::{Code, Id, JobId, request};

use crate::effect::Progress;
use crate::ids::ConnId;
use crate::limits::COLLECT_JOBS;
use crate::peers::conn::{Place, Stage, Subscription};
use crate::state::State;

impl State {
    pub(crate) fn subscribe(&mut self, conn: ConnId, id: Option<Id>, subscribe: Subscribe) {
        if let Err(rejected) = self.check_subscribe(conn, &subscribe) {
            return self.refuse(conn, id, rejected);
        }
        let number = self.outbox.number();
        let last = self.counters.last_seq();
        let subscription = Subscription {
            number,
            id,
            session: subscribe.session,
            jobs: subscribe.jobs.map(|jobs| jobs.into_iter().collect()),
            sessions: subscribe.sessions,
            missed: false,
            seen: subscribe.after.unwrap_or(last),
            first: JobId(0),
            // The store says first what it still has: `live` must not promise what was pruned.
            stage: Stage::Asked(subscribe.after),
            place: Place::Behind,
            texts: BTreeMap::new(),
            told: BTreeMap::new(),
        };
        self.peers.subscribe(conn, subscription);
        self.resume_subscription(conn);
    }

    /// What can be said against it without the store.
    fn check_subscribe(&self, conn: ConnId, subscribe: &Subscribe) -> Result<(), Rejected> {
        let invalid = |error: String| Rejected::new(Code::InvalidRequest, error);
        if self.peers.subscribers().contains(&conn) {
            let error = "this connection has a subscription: one per connection";
            return Err(invalid(error.to_owned()));
        }
        if let Some(session) = &subscribe.session {
            request::check_session(session)?;
        }
        if subscribe.session.is_some() && subscribe.jobs.is_some() {
            let error = "`subscribe` takes `session` or `jobs`, not both";
            return Err(invalid(error.to_owned()));
        }
        let jobs = subscribe.jobs.as_ref().map_or(0, Vec::len);
        if jobs > COLLECT_JOBS {
            let error = format!("`jobs` has {jobs} entries, the limit is {COLLECT_JOBS}");
            return Err(invalid(error));
        }
        let epoch = &self.settings.epoch;
        match &subscribe.epoch {
            // Numbers of another store would look right and mean other lines.
            Some(other) if other != epoch => {
                let error =
                    format!("the cursor is of epoch `{other}`, and this store's is `{epoch}`");
                Err(cursor_invalid(error))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn unsubscribe(&mut self, conn: ConnId, id: Option<Id>) {
        if !self.peers.contains(conn) {
            return;
        }
        if let Some(subscription) = self.peers.unsubscribe(conn)
            && subscription.stage != Stage::Answered
        {
            // It has its answer, although nothing follows it.
            let seq = subscription.seen;
            self.tell_live(conn, subscription.id, seq);
        }
        let ok = Line::Unsubscribe { ok: true };
        let (first, over) = (Telling::First, Progress::Unsubscribed);
        self.send(conn, &ok.body(), id, None, first, over);
    }

    pub(crate) fn tell_live(&mut self, conn: ConnId, id: Option<Id>, seq: u64) {
        let epoch = self.settings.epoch.clone();
        let live = Line::Live { seq, epoch }.body();
        let (first, from_now) = (Telling::First, Progress::Subscribed);
        self.send(conn, &live, id, None, first, from_now);
    }
}

/// Is a cursor one of this store, and is what came after it still there?
pub(crate) fn check_cursor(after: u64, oldest: u64, last: u64) -> Result<(), Rejected> {
    if after > last {
        let error = format!("the cursor {after} is not of this store, whose last number is {last}");
        return Err(cursor_invalid(error));
    }
    if after < oldest {
        let error = format!(
            "not everything after the cursor {after} is kept: the oldest cursor is {oldest}"
        );
        let hint = format!("subscribe with `\"after\":{oldest}` for everything that is kept");
        return Err(Rejected::new(Code::CursorExpired, error).hint(hint));
    }
    Ok(())
}

fn cursor_invalid(error: String) -> Rejected {
    let hint = "subscribe with `\"after\":0` for everything from the beginning";
    Rejected::new(Code::CursorInvalid, error).hint(hint)
}
