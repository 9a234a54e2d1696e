//! `subscribe`: who wants to hear of jobs that others sent.
//!
//! Owns the filter. How lines get there is in `subscription.rs`.

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{Line, Telling};
use agentd_protocol::request::Subscribe;
use agentd_protocol::{Code, Id};

use crate::conn::{Follow, FollowState, Role, Subscription};
use crate::effect::Progress;
use crate::ids::{ConnId, TurnId};
use crate::job::Position;
use crate::state::State;

impl State {
    pub(crate) fn subscribe(&mut self, conn: ConnId, id: Option<Id>, subscribe: Subscribe) {
        let invalid = |error: &str| Rejected::new(Code::InvalidRequest, error);
        if subscribe.after.is_some() || subscribe.epoch.is_some() {
            let error =
                "`subscribe` with a cursor is part of the protocol but not served by this version";
            return self.refuse(conn, id, Rejected::new(Code::Unsupported, error));
        }
        let Some(known) = self.conns.get_mut(&conn) else {
            return;
        };
        if known.subscription.is_some() {
            return self.refuse(
                conn,
                id,
                invalid("this connection has a subscription: one per connection"),
            );
        }
        if let Some(session) = &subscribe.session
            && let Err(rejected) = agentd_protocol::request::check_session(session)
        {
            return self.refuse(conn, id, rejected);
        }
        let jobs = subscribe.jobs.map(|jobs| jobs.into_iter().collect());
        let subscription = Subscription {
            id: id.clone(),
            session: subscribe.session,
            jobs,
        };
        known.subscription = Some(subscription);
        let live = Line::Live {
            seq: self.counters.last_seq,
            epoch: self.settings.epoch.clone(),
        };
        self.send(
            conn,
            &live.body(),
            id,
            None,
            Telling::First,
            Progress::Subscribed,
        );
        let turns: Vec<TurnId> = self.numbers.values().copied().collect();
        for turn in turns {
            self.let_subscriber_follow(conn, turn);
        }
    }

    /// Makes a subscriber follow a job in memory, unless it is its sender or wants others.
    /// Returns whether it does now.
    pub(crate) fn let_subscriber_follow(&mut self, conn: ConnId, turn: TurnId) -> bool {
        let Some(job) = self.jobs.get(&turn) else {
            return false;
        };
        let Some(number) = job.number else {
            return false;
        };
        let session = self
            .sessions
            .get(&job.session)
            .and_then(|session| session.name.as_deref());
        let Some(known) = self.conns.get(&conn) else {
            return false;
        };
        let Some(subscription) = known
            .subscription
            .as_ref()
            .filter(|wanted| wanted.wants(session, number))
        else {
            return false;
        };
        if known.follows.values().any(|follow| follow.job == number) {
            return false;
        }
        let follow = Follow {
            job: number,
            id: subscription.id.clone(),
            role: Role::Subscriber,
            stream: true,
            replay: false,
            // Numbered events before the subscription are history, which needs a cursor.
            seq: job.seq,
            position: Position::default(),
            state: FollowState::Behind,
        };
        if let Some(follow_id) = self.follow(conn, follow) {
            self.resume(conn, follow_id);
        }
        true
    }

    pub(crate) fn unsubscribe(&mut self, conn: ConnId, id: Option<Id>) {
        let Some(known) = self.conns.get_mut(&conn) else {
            return;
        };
        known.subscription = None;
        let over: Vec<_> = known
            .follows
            .iter()
            .filter(|(_, follow)| follow.role == Role::Subscriber)
            .map(|(follow_id, follow)| (*follow_id, follow.job))
            .collect();
        for (follow_id, job) in over {
            self.unfollow(conn, follow_id, job);
            if let Some(known) = self.conns.get_mut(&conn) {
                known.follows.remove(&follow_id);
            }
        }
        let ok = Line::Unsubscribe { ok: true };
        self.send(
            conn,
            &ok.body(),
            id,
            None,
            Telling::First,
            Progress::Unsubscribed,
        );
    }
}
