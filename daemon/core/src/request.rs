//! The requests besides `send`: what each does and in which state it is refused.
//!
//! Owns the waiting lists of `abort`, `collect` and `restart_worker`. Must not know bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{AgentRow, HelloAnswer, HelloLimits, Line, Telling};
use agentd_protocol::request::{
    Abort, Collect, Decoded, Hello, RestartWorker, Subscribe, TYPES, Wait,
};
use agentd_protocol::serde_json::Value;
use agentd_protocol::{Body, Code, Id, JobId, Request, limits};

use crate::agent::Found;
use crate::conn::{Follow, FollowState, Role, Subscription};
use crate::effect::{Effect, Progress};
use crate::event::Facts;
use crate::ids::{ConnId, TurnId, WorkerId};
use crate::job::{Phase, Position};
use crate::limits::{COLLECT_JOBS, SENDS_PER_CONNECTION};
use crate::state::State;
use crate::store::{JobRow, JobState, Query};
use crate::stored::Awaiting;
use crate::timers::Timer;

/// Requests that wait until a session is known.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Loading {
    pub(crate) parked: VecDeque<Parked>,
}

/// One of them.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Parked {
    pub(crate) conn: ConnId,
    pub(crate) id: Option<Id>,
    pub(crate) decoded: Decoded,
    pub(crate) facts: Facts,
}

/// A `collect` that waits.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Collecting {
    pub(crate) conn: ConnId,
    id: Option<Id>,
    order: Vec<JobId>,
    wait: Wait,
    deadline: Option<Duration>,
    results: BTreeMap<JobId, Value>,
    pending: BTreeSet<JobId>,
}

/// A `restart_worker` that waits for its processes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RestartWait {
    pub(crate) conn: ConnId,
    id: Option<Id>,
    slots: BTreeSet<WorkerId>,
}

impl State {
    pub(crate) fn requested(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        request: Result<Decoded, Rejected>,
        facts: &Facts,
    ) {
        match request {
            Ok(decoded) => self.request(conn, id, decoded, facts),
            Err(rejected) => self.refuse(conn, id, rejected),
        }
    }

    pub(crate) fn request(
        &mut self,
        conn: ConnId,
        id: Option<Id>,
        decoded: Decoded,
        facts: &Facts,
    ) {
        if forbidden_to_workers(&decoded.request) && self.is_worker(&facts.ancestry) {
            let error = "an agent can't do this: the request came from inside a worker";
            return self.refuse(conn, id, Rejected::new(Code::Forbidden, error));
        }
        match decoded.request {
            Request::Hello(hello) => self.hello(conn, id, &hello),
            Request::Ping => self.answer(conn, id, &Line::Pong),
            Request::Status(status) => {
                let answer = self.status(status.workers, facts);
                self.answer(conn, id, &Line::Status(Box::new(answer)));
            }
            Request::Agents => {
                let agents = self.agent_rows();
                self.answer(conn, id, &Line::Agents { ok: true, agents });
            }
            Request::Send(send) => {
                let decoded = Decoded {
                    request: Request::Send(send),
                    ignored: decoded.ignored,
                };
                self.send_requested(conn, id, decoded, facts);
            }
            Request::Abort(abort) => self.abort(conn, id, abort, facts),
            Request::Collect(collect) => self.collect(conn, id, &collect),
            Request::RestartWorker(restart) => self.restart_worker(conn, id, &restart),
            Request::Subscribe(subscribe) => self.subscribe(conn, id, subscribe),
            Request::Unsubscribe => self.unsubscribe(conn, id),
            Request::Shutdown => {
                self.answer(conn, id, &Line::Shutdown { ok: true });
                self.out.push(Effect::Finish { conn });
            }
            Request::Drain(drain) => self.drain(conn, id, drain.deadline),
            Request::Undrain => self.undrain(conn, id),
            Request::DaemonStop(stop) => self.daemon_stop(conn, id, &stop),
        }
    }

    fn is_worker(&self, ancestry: &[u32]) -> bool {
        self.slots
            .values()
            .filter_map(crate::pool::Slot::pid)
            .any(|pid| ancestry.contains(&pid))
    }

    fn hello(&mut self, conn: ConnId, id: Option<Id>, hello: &Hello) {
        if self.mode.is_stopping() {
            return self.refuse_stopping(conn, id);
        }
        if hello.protocol.is_some_and(|wanted| wanted != 1) {
            let error = format!(
                "protocol {} is not spoken here: expected 1",
                hello.protocol.unwrap_or(0)
            );
            let version = &self.settings.version;
            let hint = format!(
                "this is agentd {version}; the client is {}",
                hello.version.as_deref().unwrap_or("unnamed")
            );
            return self.refuse(conn, id, Rejected::new(Code::Unsupported, error).hint(hint));
        }
        self.out.push(Effect::Keep { conn });
        let answer = HelloAnswer {
            ok: true,
            server: "agentd".to_owned(),
            version: self.settings.version.clone(),
            protocol: 1,
            epoch: self.settings.epoch.clone(),
            pid: self.settings.pid,
            uid: self.settings.uid,
            capabilities: TYPES
                .iter()
                .filter(|name| SERVED.contains(name))
                .map(|name| (*name).to_owned())
                .collect(),
            limits: HelloLimits {
                line_in: limits::MAX_LINE_IN,
                line_out: limits::MAX_LINE_OUT,
                in_flight: SENDS_PER_CONNECTION,
            },
        };
        self.answer(conn, id, &Line::Hello(Box::new(answer)));
    }

    pub(crate) fn agent_rows(&self) -> Vec<AgentRow> {
        let default = self.default_agent().ok();
        self.settings
            .agents
            .values()
            .map(|agent| AgentRow {
                name: agent.name.clone(),
                kind: agent.kind.to_owned(),
                command: agent.command.clone(),
                found: match agent.found {
                    Found::Configured => "config",
                    Found::OnPath => "path",
                    Found::BuiltIn => "built-in",
                    Found::Missing => "looked-for",
                }
                .to_owned(),
                version: agent.version.clone(),
                usable: agent.usable.is_ok(),
                why_not: agent.usable.clone().err(),
                default: default.as_ref() == Some(&agent.name),
            })
            .collect()
    }

    fn subscribe(&mut self, conn: ConnId, id: Option<Id>, subscribe: Subscribe) {
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

    fn unsubscribe(&mut self, conn: ConnId, id: Option<Id>) {
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

    fn abort(&mut self, conn: ConnId, id: Option<Id>, abort: Abort, facts: &Facts) {
        let loading = match (&abort.job, &abort.session) {
            (Some(_), _) => None,
            (None, Some(session)) => Some(session.clone()),
            (None, None) => self
                .conns
                .get(&conn)
                .and_then(|known| known.loading.clone()),
        };
        if let Some(loading) = loading.and_then(|name| self.loading.get_mut(&name)) {
            let decoded = Decoded {
                request: Request::Abort(abort),
                ignored: Vec::new(),
            };
            loading.parked.push_back(Parked {
                conn,
                id,
                decoded,
                facts: facts.clone(),
            });
            return;
        }
        let turns = match self.abort_targets(conn, &abort) {
            Ok(turns) => turns,
            Err(rejected) => return self.refuse(conn, id, rejected),
        };
        // A job that isn't accepted yet may never be: then there is nothing to abort.
        let pending = turns.iter().copied().find(|turn| {
            self.jobs
                .get(turn)
                .is_some_and(|job| matches!(job.phase, Phase::Pending { .. }))
        });
        if let Some(job) = pending.and_then(|turn| self.jobs.get_mut(&turn)) {
            if let Phase::Pending { cancelled, .. } = &mut job.phase {
                *cancelled = true;
            }
            job.aborts.push((conn, id));
            return;
        }
        let jobs = turns
            .into_iter()
            .filter_map(|turn| self.cancel(turn))
            .collect();
        self.answer(conn, id, &Line::Abort { ok: true, jobs });
    }

    fn abort_targets(&self, conn: ConnId, abort: &Abort) -> Result<Vec<TurnId>, Rejected> {
        let live = |turn: &TurnId| {
            self.jobs
                .get(turn)
                .is_some_and(|job| job.phase != Phase::Finishing)
        };
        if let Some(job) = abort.job {
            // A job that isn't in memory has ended, or never was: neither can be aborted.
            return Ok(self
                .numbers
                .get(&job)
                .copied()
                .filter(live)
                .into_iter()
                .collect());
        }
        if let Some(session) = &abort.session {
            let Some(session) = self.names.get(session).and_then(|id| self.sessions.get(id)) else {
                return Ok(Vec::new());
            };
            let mut turns: Vec<_> = session.current.into_iter().filter(live).collect();
            if abort.queued {
                turns.extend(session.queue.iter().copied());
            } else if turns.is_empty() {
                turns.extend(session.queue.front().copied());
            }
            return Ok(turns);
        }
        if let Some(last) = self.conns.get(&conn).and_then(|conn| conn.last_send) {
            return Ok(Some(last).into_iter().filter(live).collect());
        }
        let mut all = self.jobs.keys().filter(|turn| live(turn));
        match (all.next(), all.next()) {
            (Some(_), Some(_)) => {
                let jobs: Vec<_> = self.numbers.keys().map(ToString::to_string).collect();
                let error = format!("{} jobs are live: {}", self.jobs.len(), jobs.join(", "));
                Err(Rejected::new(Code::Ambiguous, error).hint("name one with `job` or `session`"))
            }
            (one, _) => Ok(one.copied().into_iter().collect()),
        }
    }

    fn collect(&mut self, conn: ConnId, id: Option<Id>, collect: &Collect) {
        if collect.jobs.len() > COLLECT_JOBS {
            let error = format!(
                "`jobs` has {} entries, the limit is {COLLECT_JOBS}",
                collect.jobs.len()
            );
            return self.refuse(conn, id, Rejected::new(Code::InvalidRequest, error));
        }
        let deadline = collect
            .timeout
            .map(|seconds| self.now.mono + Duration::from_secs_f64(seconds));
        let number = self.number();
        let (here, elsewhere): (BTreeSet<JobId>, BTreeSet<JobId>) = collect
            .jobs
            .iter()
            .copied()
            .partition(|job| self.numbers.contains_key(job));
        let collecting = Collecting {
            conn,
            id,
            order: collect.jobs.clone(),
            wait: collect.wait,
            deadline,
            results: BTreeMap::new(),
            pending: here,
        };
        self.collecting.insert(number, collecting);
        if elsewhere.is_empty() {
            self.collect_started(number);
        } else {
            self.load(
                Awaiting::Collect(number),
                Query::Jobs {
                    jobs: elsewhere.into_iter().collect(),
                },
            );
        }
    }

    /// The store said what became of the jobs that aren't in memory.
    pub(crate) fn collect_loaded(&mut self, number: u64, rows: Vec<JobRow>) {
        let Some(collecting) = self.collecting.get_mut(&number) else {
            return;
        };
        for row in rows {
            match row.state {
                JobState::Finished { seq, line } => {
                    collecting.results.insert(row.job, result(&line, seq));
                }
                JobState::Queued { .. } | JobState::Running { .. } => {
                    collecting.pending.insert(row.job);
                }
            }
        }
        let unknown = collecting
            .order
            .iter()
            .find(|job| !collecting.results.contains_key(job) && !collecting.pending.contains(job))
            .copied();
        if let Some(job) = unknown {
            let (conn, id) = (collecting.conn, collecting.id.clone());
            self.collecting.remove(&number);
            return self.refuse(
                conn,
                id,
                Rejected::new(Code::UnknownJob, format!("there is no job `{job}`")),
            );
        }
        self.collect_started(number);
    }

    fn collect_started(&mut self, number: u64) {
        if let Some(deadline) = self
            .collecting
            .get(&number)
            .and_then(|collecting| collecting.deadline)
        {
            self.timers.set(Timer::Collect(number), deadline);
        }
        self.collect_done(number);
    }

    /// A job ended: whoever collects it hears of it.
    pub(crate) fn collected(&mut self, job: JobId, line: &Body, seq: u64) {
        let mut waiting = Vec::new();
        for (number, collecting) in &mut self.collecting {
            if collecting.pending.remove(&job) {
                collecting.results.insert(job, result(line, seq));
                waiting.push(*number);
            }
        }
        for number in waiting {
            self.collect_done(number);
        }
    }

    fn collect_done(&mut self, number: u64) {
        let Some(collecting) = self.collecting.get(&number) else {
            return;
        };
        let enough = match collecting.wait {
            Wait::All => collecting.pending.is_empty(),
            Wait::Any => !collecting.results.is_empty(),
        };
        if enough
            || collecting
                .deadline
                .is_some_and(|deadline| deadline <= self.now.mono)
        {
            self.collect_answer(number);
        }
    }

    pub(crate) fn collect_timeout(&mut self, number: u64) {
        self.collect_answer(number);
    }

    fn collect_answer(&mut self, number: u64) {
        self.timers.clear(Timer::Collect(number));
        let Some(mut collecting) = self.collecting.remove(&number) else {
            return;
        };
        let mut results = Vec::new();
        let mut pending = Vec::new();
        let mut room = limits::MAX_LINE_OUT - 16 * 1024;
        for job in collecting.order {
            match collecting.results.remove(&job) {
                Some(result) => {
                    let size = result.to_string().len();
                    if size > room {
                        // The next page: asked for again, it comes first.
                        pending.push(job);
                        continue;
                    }
                    room -= size;
                    results.push(result);
                }
                None => pending.push(job),
            }
        }
        self.answer(
            collecting.conn,
            collecting.id,
            &Line::Collect {
                ok: true,
                results,
                pending,
            },
        );
    }

    fn restart_worker(&mut self, conn: ConnId, id: Option<Id>, restart: &RestartWorker) {
        let slots: BTreeSet<WorkerId> = match (&restart.agent, &restart.session) {
            (Some(agent), None) => {
                if !self.settings.agents.contains_key(agent) {
                    let rejected = self.unknown_agent(agent);
                    return self.refuse(conn, id, rejected);
                }
                self.health.remove(agent);
                self.slots
                    .iter()
                    .filter(|(_, slot)| slot.agent == *agent)
                    .map(|(id, _)| *id)
                    .collect()
            }
            (None, Some(session)) => {
                let Some(session) = self
                    .names
                    .get(session)
                    .and_then(|id| self.sessions.get_mut(id))
                else {
                    let error = format!("the session `{session}` has no worker");
                    return self.refuse(conn, id, Rejected::new(Code::UnknownSession, error));
                };
                session.health.reset();
                session.slot.into_iter().collect()
            }
            _ => {
                let error = "`restart_worker` needs either `agent` or `session`";
                return self.refuse(conn, id, Rejected::new(Code::InvalidRequest, error));
            }
        };
        for slot in &slots {
            self.restart_slot(*slot, restart.now);
        }
        self.restarts.push(RestartWait { conn, id, slots });
        self.settle_restarts();
    }

    /// A slot that was to be restarted is ready, or gone for good.
    pub(crate) fn restarted(&mut self, worker: WorkerId, outcome: Result<(), String>) {
        for wait in std::mem::take(&mut self.restarts) {
            let mut wait = wait;
            match &outcome {
                Err(why) if wait.slots.contains(&worker) => {
                    self.refuse(
                        wait.conn,
                        wait.id,
                        Rejected::new(Code::WorkerStartFailed, why.clone()),
                    );
                }
                _ => {
                    wait.slots.remove(&worker);
                    self.restarts.push(wait);
                }
            }
        }
        self.settle_restarts();
    }

    fn settle_restarts(&mut self) {
        let (done, waiting) = std::mem::take(&mut self.restarts)
            .into_iter()
            .partition(|wait| wait.slots.is_empty());
        self.restarts = waiting;
        let done: Vec<RestartWait> = done;
        for wait in done {
            self.answer(wait.conn, wait.id, &Line::RestartWorker { ok: true });
        }
    }
}

/// The requests this version serves: its capabilities.
const SERVED: &[&str] = &[
    "abort",
    "agents",
    "collect",
    "daemon.stop",
    "drain",
    "hello",
    "ping",
    "restart_worker",
    "send",
    "shutdown",
    "status",
    "subscribe",
    "undrain",
    "unsubscribe",
];

const fn forbidden_to_workers(request: &Request) -> bool {
    matches!(
        request,
        Request::RestartWorker(_) | Request::Drain(_) | Request::Undrain | Request::DaemonStop(_)
    )
}

fn result(line: &Body, seq: u64) -> Value {
    crate::json::value(&line.render(None, Some(seq), Telling::Replay))
}

impl RestartWait {
    pub(crate) fn id(&self) -> Option<Id> {
        self.id.clone()
    }
}
