//! The one function that changes what is true.
//!
//! Owns the order: each event goes to the rule that knows it, then follows what follows from any.
//! Must not decide anything itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::{ErrorLine, Telling};
use agentd_protocol::{Body, Id, JobId, Line};

use crate::counters::Counters;
use crate::derived::Derived;
use crate::effect::{Effect, Progress};
use crate::event::Event;
use crate::ids::{ConnId, FollowId, Now, SessionId, Token, TurnId};
use crate::jobs::job::Job;
use crate::jobs::slices::Slices;
use crate::limits::{COMMITS_OUTSTANDING, ENDED_AT_ONCE};
use crate::mode::Mode;
use crate::outbox::awaiting::Awaiting;
use crate::outbox::timers::{Timer, Timers};
use crate::peers::collects::Collects;
use crate::peers::conn::Conn;
use crate::peers::questions::Questions;
use crate::peers::steers::SteerQueue;
use crate::pool::way::{Look, Way};
use crate::rules::budget::Held;
use crate::settings::Settings;
use crate::state::State;
use crate::store::{Query, Urgency, Write};
use crate::terms::SharedTerms;
use crate::tracked::Tracked;
use crate::worker::WorkerEvent;

impl State {
    /// A daemon that has just started.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let (last_seq, ended_jobs) = (settings.last_seq, settings.ended_jobs);
        Self {
            settings,
            now: Now::default(),
            out: Vec::new(),
            mode: Mode::Ready,
            leaving: None,
            conns: BTreeMap::new(),
            jobs: Tracked::default(),
            numbers: BTreeMap::new(),
            sessions: Tracked::default(),
            names: BTreeMap::new(),
            slots: BTreeMap::new(),
            scheduled: 0,
            derived: Derived::default(),
            looked: 0,
            clocked: BTreeSet::new(),
            awaiting: BTreeMap::new(),
            commits: 0,
            loading: BTreeMap::new(),
            dispatching: BTreeMap::new(),
            collecting: Collects::default(),
            aborting: BTreeMap::new(),
            slices: Slices::default(),
            untold: Vec::new(),
            orphaned: BTreeMap::new(),
            restarts: Vec::new(),
            health: BTreeMap::new(),
            further: BTreeMap::new(),
            way: Way::default(),
            look: Look::default(),
            spares: BTreeMap::new(),
            questions: Questions::default(),
            words: SteerQueue::default(),
            compacting: BTreeMap::new(),
            timers: Timers::default(),
            times: BTreeSet::new(),
            spawns_until: Duration::ZERO,
            counters: Counters::at_start(last_seq, ended_jobs),
            subscribers: BTreeSet::new(),
            held: Held::default(),
            shared_terms: SharedTerms::default(),
            store_trouble: None,
            next: 1,
        }
    }

    /// Takes one event and appends what is to be done. Total: it can't fail, wait or panic.
    ///
    /// `now` is read by the caller for this event; its monotonic part must not go back.
    pub fn apply(&mut self, now: Now, event: Event, effects: &mut Vec<Effect>) {
        self.now = Now {
            mono: now.mono.max(self.now.mono),
            boot_ms: now.boot_ms.max(self.now.boot_ms),
            wall_ms: now.wall_ms,
        };
        std::mem::swap(&mut self.out, effects);
        let may_start = may_start(&event);
        self.begin_slice();
        match event {
            Event::Connected { conn, origin } => {
                self.conns.insert(conn, Conn::new(origin));
            }
            Event::Disconnected { conn } => self.disconnected(conn),
            Event::Requested {
                conn,
                id,
                request,
                facts,
            } => self.requested(conn, id, request, &facts),
            Event::CaughtUp { conn } => self.caught_up(conn),
            Event::Stored { token, stored } => self.stored(token, stored),
            Event::Loaded { token, loaded } => self.loaded(token, loaded),
            Event::StoreHealth { trouble } => self.store_health(trouble),
            Event::StoreLosses { losses } => self.settings.losses = losses,
            Event::Recovered(recovered) => self.recovered(*recovered),
            Event::InstanceDied { instance } => self.out.push(Effect::Recover { instance }),
            Event::InstanceGone {
                instance,
                survivors,
            } => self.instance_gone(&instance, &survivors),
            Event::Spawned {
                worker,
                generation,
                pid,
            } => self.spawned(worker, generation, pid),
            Event::SpawnFailed {
                worker,
                generation,
                error,
                fault,
            } => {
                self.spawn_failed(worker, generation, &error, fault);
            }
            Event::Worker {
                worker,
                generation,
                event,
            } => self.worker_said(worker, generation, event),
            Event::WorkerStuck {
                worker,
                generation,
                why,
            } => self.worker_stuck(worker, generation, &why),
            Event::Exited {
                worker,
                generation,
                exit,
                tail,
            } => self.exited(worker, generation, exit, &tail),
            Event::AgentsFound { agents, looked_for } => self.agents_found(agents, looked_for),
            Event::OnlyOneShot { agent, form } => self.only_one_shot(&agent, *form),
            Event::Ticked => {}
            Event::StopAsked => self.stop_asked(),
            Event::InputLost => self.input_lost(),
            Event::AskedLast { conn } => self.release_drain(conn),
            Event::ReaderLeft { conn } => self.reader_left(conn),
        }
        let rang = self.ring() | self.ring_those_who_wait();
        let ended = self.go_on_ending();
        // A store that is behind gets no more work; its next answer lets it go on.
        if (may_start || rang || ended) && !self.store_is_behind() {
            self.schedule();
        }
        self.ask_for_next_slice();
        self.go_on_aborting();
        self.derive();
        self.go_on_stopping();
        self.tell_the_rest();
        // What that ended is brought up to date for whoever asks next.
        self.derive();
        std::mem::swap(&mut self.out, effects);
    }

    /// When `Ticked` is to be sent next, on the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.timers.next()
    }

    /// Deals with every deadline that has passed; was there any?
    fn ring(&mut self) -> bool {
        // Each timer that fires is taken out first, so one that is set again for now waits for the
        // next event and this loop ends.
        let mut due = Vec::new();
        while let Some(timer) = self.timers.pop(self.now.mono) {
            due.push(timer);
        }
        let rang = !due.is_empty();
        for timer in due {
            match timer {
                Timer::Unused(session) => self.session_unused(session),
                Timer::Question(question) => self.question_expired(question),
                Timer::Running(turn) => self.time_up(turn),
                Timer::Settling(turn) => self.unsettled(turn),
                Timer::Stalled(turn) => self.stalled(turn),
                Timer::Flush(turn) => self.flush_text(turn),
                Timer::Slot(worker) => self.slot_deadline(worker),
                Timer::Idle(worker) => self.slot_idle(worker),
                Timer::Retire(worker) => self.retire_now(worker),
                Timer::Recheck(number) => self.collect_again(number),
                Timer::Collect(number) => self.collect_timeout(number),
                Timer::Doubt => self.in_doubt(),
                Timer::Compact(worker) => self.compact_timeout(worker),
                Timer::Unfinished(turn) => self.finish_again(turn),
                Timer::Drain => self.drain_timeout(),
                Timer::Leave => self.leave_now(),
                Timer::Stop => self.stop_timeout(),
                // What they hold back is looked at after every event.
                Timer::SpawnRate
                | Timer::Schedule
                | Timer::Look
                | Timer::Spare
                | Timer::Breaker
                | Timer::Slice => {}
            }
        }
        rang
    }

    pub(crate) const fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    pub(crate) fn send(
        &mut self,
        conn: ConnId,
        body: &Body,
        id: Option<Id>,
        seq: Option<u64>,
        telling: Telling,
        progress: Progress,
    ) {
        let Some(known) = self.conns.get_mut(&conn) else {
            return;
        };
        // Id, seq and the newline are about this much more.
        let marked = known.window.add(body.as_json().len() + 64);
        self.held.unsent += marked.unwrap_or(0);
        self.out.push(Effect::Send {
            conn,
            body: body.clone(),
            id,
            seq,
            telling,
            progress,
        });
        if marked.is_some() {
            self.out.push(Effect::Mark { conn });
        }
    }

    /// Closes a connection without an answer: what became of its request is unknown.
    pub(crate) fn cut_off(&mut self, conn: ConnId) {
        if self.conns.contains_key(&conn) {
            self.out.push(Effect::Close { conn });
        }
    }

    pub(crate) fn answer(&mut self, conn: ConnId, id: Option<Id>, line: &Line) {
        self.send(
            conn,
            &line.body(),
            id,
            None,
            Telling::First,
            Progress::Answered,
        );
    }

    pub(crate) fn refuse(&mut self, conn: ConnId, id: Option<Id>, rejected: Rejected) {
        self.answer(
            conn,
            id,
            &Line::Error(Box::new(ErrorLine::refusal(rejected))),
        );
    }

    pub(crate) fn commit(&mut self, awaiting: Awaiting, writes: Vec<Write>) -> Token {
        self.ask_to_commit(awaiting, writes, Urgency::Waited)
    }

    pub(crate) fn commit_lazily(&mut self, awaiting: Awaiting, writes: Vec<Write>) {
        self.ask_to_commit(awaiting, writes, Urgency::Lazy);
    }

    fn ask_to_commit(&mut self, awaiting: Awaiting, writes: Vec<Write>, urgency: Urgency) -> Token {
        self.tell_the_rest();
        let token = Token(self.number());
        self.awaiting.insert(token, awaiting);
        self.commits += 1;
        self.slices.last_commit = Some(token);
        self.out.push(Effect::Commit {
            token,
            writes,
            urgency,
        });
        token
    }

    /// Has the store told something that nobody waits for, together with others, and before anything
    /// else is asked of it.
    pub(crate) fn tell_later(&mut self, write: Write) {
        self.untold.push(write);
    }

    fn tell_the_rest(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        for some in untold.chunks(ENDED_AT_ONCE) {
            self.commit_lazily(Awaiting::Nothing, some.to_vec());
        }
    }

    /// Are so many commits outstanding that nothing new is begun?
    pub(crate) const fn store_is_behind(&self) -> bool {
        self.commits >= COMMITS_OUTSTANDING
    }

    /// Is a job in memory? Every stored one of this instance is, until its final line is durable.
    #[must_use]
    pub fn knows(&self, job: JobId) -> bool {
        self.numbers.contains_key(&job)
    }

    pub(crate) fn load(&mut self, awaiting: Awaiting, query: Query) -> Token {
        self.tell_the_rest();
        let token = Token(self.number());
        self.awaiting.insert(token, awaiting);
        self.out.push(Effect::Load { token, query });
        token
    }

    fn disconnected(&mut self, conn: ConnId) {
        let Some(gone) = self.conns.remove(&conn) else {
            return;
        };
        self.subscribers.remove(&conn);
        self.held.unsent = self.held.unsent.saturating_sub(gone.window.marked());
        for (follow_id, follow) in gone.follows {
            self.unfollow(conn, follow_id, follow.job);
        }
        for turn in gone.pending {
            if let Some(job) = self.jobs.get_mut(&turn) {
                job.sender = None;
            }
        }
        self.aborters_gone(conn);
        self.collects_nothing(conn);
        self.restarts.retain(|wait| wait.conn != conn);
        self.questions.answers_no_more(conn);
        self.words.forget_conn(conn);
        let mut gone = Vec::new();
        for loading in self.loading.values_mut() {
            let parked = std::mem::take(&mut loading.parked).into_iter();
            let (theirs, others) = parked.partition(|parked| parked.conn == conn);
            loading.parked = others;
            let theirs: VecDeque<_> = theirs;
            gone.extend(theirs);
        }
        self.unparked_all(&gone);
        self.forget_asker(conn);
    }

    pub(crate) fn unfollow(&mut self, conn: ConnId, follow: FollowId, job: JobId) {
        let turn = self.numbers.get(&job);
        if let Some(job) = turn.and_then(|turn| self.jobs.get_mut(turn)) {
            job.followers.remove(&(conn, follow));
        }
    }

    /// Whose a session is. It is in memory for as long as a job of it.
    pub(crate) fn agent_of(&self, session: SessionId) -> String {
        let session = self.sessions.get(&session);
        session.map_or_else(String::new, |session| session.agent.clone())
    }

    /// A job is in memory from now on, and its session with it.
    pub(crate) fn put_job(&mut self, turn: TurnId, job: Job) {
        if let Some(session) = self.sessions.get_mut(&job.session) {
            session.jobs += 1;
        }
        self.held.queued += job.weight;
        self.scheduled += usize::from(job.start.is_some());
        self.jobs.insert(turn, Box::new(job));
    }

    /// A job leaves memory.
    pub(crate) fn take_job(&mut self, turn: TurnId) -> Option<Box<Job>> {
        let job = self.jobs.remove(&turn)?;
        self.held.queued = self.held.queued.saturating_sub(job.weight);
        self.scheduled -= usize::from(job.start.is_some());
        if let Some(session) = self.sessions.get_mut(&job.session) {
            session.jobs -= 1;
        }
        Some(job)
    }
}

/// Can a turn start because of this event? What a turn says on its way starts no other.
pub(crate) const fn may_start(event: &Event) -> bool {
    !matches!(
        event,
        Event::CaughtUp { .. }
            | Event::Worker {
                event: WorkerEvent::Text { .. }
                    | WorkerEvent::Thinking { .. }
                    | WorkerEvent::MessageStarted { .. }
                    | WorkerEvent::ToolStarted { .. }
                    | WorkerEvent::ToolUpdated { .. }
                    | WorkerEvent::ToolEnded { .. }
                    | WorkerEvent::Other { .. }
                    | WorkerEvent::Logged { .. }
                    | WorkerEvent::Stray { .. },
                ..
            }
    )
}
