//! What agents ask their users.
//!
//! Owns which questions wait, their deadlines and what closes them. Must not know wires, as an adapter
//! translates, nor which answer fits: that is in `answer.rs`.

use std::time::Duration;

use agentd_protocol::line::{Line, QuestionAbout, ToolKind, ToolLocation, ToolTrace};
use agentd_protocol::request::OnQuestion;
use agentd_protocol::serde_json::{self, Value};
use agentd_protocol::work::{Scope, Silence};

use crate::effect::Effect;
use crate::ids::{Process, QuestionId, TurnId, WorkerId};
use crate::jobs::job::{Job, Phase};
use crate::limits::{
    DEFAULT_TIMEOUT, NAME_BYTES, QUESTION_DETAIL, QUESTION_OPTIONS, QUESTION_TITLE, QUESTION_WAITS,
    QUESTIONS_PER_SESSION,
};
use crate::outbox::timers::Timer;
use crate::peers::questions::{Closed, Question};
use crate::state::State;
use crate::text::{escaped_len, head_and_tail, millis, rfc3339};
use crate::worker::{About, AskedFor, Asking, Lasting, QuestionKind, Reply, WorkerCommand};

/// Why a question gets no answer at all.
enum Unanswered {
    Nobody,
    TooMany,
    TooLong,
    Ending,
}

impl State {
    /// A worker asks: the question waits, or is closed at once, the safe way.
    pub(crate) fn asked(&mut self, worker: WorkerId, turn: Option<TurnId>, mut asking: Asking) {
        let slot = expected!(self.pool.get(worker));
        let process = Process {
            worker,
            generation: slot.generation,
        };
        // An agent of one turn at a time needn't say which one it asks for.
        let turn = turn.or_else(|| slot.turns.first().copied());
        // A worker may name a turn that isn't its own, or ask outside of any.
        let turn = turn.and_then(|turn| self.of_worker(worker, turn));
        let now = self.now.mono;
        let job = turn.and_then(|turn| Some((turn, self.jobs.get_mut(&turn)?)));
        let Some((turn, job, number)) = job.and_then(|(turn, job)| {
            let number = job.number?;
            Some((turn, job, number))
        }) else {
            let reply = silence(asking.kind, Silence::Nobody);
            return self.reply(process, asking.question, reply);
        };
        // Over all attempts: an answer to an earlier one's question must not fit a later one.
        job.said.questions += 1;
        // Who asked waits for us: that is no stall.
        job.said.progress_at = now;
        let question = QuestionId {
            job: number,
            number: job.said.questions,
        };
        let tool = tool_of(job, &asking);
        let bytes = asking.bytes();
        let whole = shorten(&mut asking);
        let waits = self.question_waits(turn).and(whole);
        let at = self.question_deadline(turn, asking.limit);
        let in_ms = i64::try_from(at.saturating_sub(now).as_millis()).unwrap_or(i64::MAX);
        let expires_at = rfc3339(self.now.wall_ms.saturating_add(in_ms));
        let line = Line::Question {
            job: number,
            question_id: question.to_string(),
            kind: asking.kind.name().to_owned(),
            title: asking.title.clone(),
            detail: asking.detail.clone(),
            options: asking.options.clone(),
            about: Box::new(about(&asking, tool)),
            expires_at: waits.is_ok().then(|| expires_at.clone()),
        };
        // It is told although nobody may answer: whoever reads the turn sees what was denied, and
        // why.
        self.say_numbered(turn, &line);
        if let Err(why) = waits {
            self.deny(turn, question, (process, asking), &why);
        } else {
            self.outbox.set(Timer::Question(question), at);
            let open = Question {
                turn,
                process,
                asking,
                expires_at,
                asked_at: now,
            };
            self.peers.questions_mut().insert(question, open);
            self.touch_session_of(turn);
        }
        self.count_output(turn, bytes);
    }

    /// Closes a question that waits for nobody; its turn's tool trace says why.
    fn deny(
        &mut self,
        turn: TurnId,
        question: QuestionId,
        (process, asking): (Process, Asking),
        why: &Unanswered,
    ) {
        let (by, output) = match why {
            Unanswered::Nobody => (Closed::Nobody, "nobody attached"),
            Unanswered::TooMany => (Closed::Nobody, "too many open questions"),
            Unanswered::TooLong => (Closed::Nobody, "its options are longer than 16 KiB"),
            Unanswered::Ending => (Closed::Cancel, "the turn is being ended"),
        };
        self.trace_silence(turn, question, &asking, (output, Duration::ZERO));
        self.say_closed(turn, question, by);
        let why = by.silence().unwrap_or(Silence::Nobody);
        self.reply(process, asking.question, silence(asking.kind, why));
    }

    /// Of a question that nobody answered the turn's result says so.
    fn trace_silence(
        &mut self,
        turn: TurnId,
        question: QuestionId,
        asking: &Asking,
        (output, waited): (&str, Duration),
    ) {
        let now = self.now.mono;
        if let Some(job) = found!(self.jobs.get_mut(turn)) {
            let trace = ToolTrace {
                tool_call_id: question.to_string(),
                name: "question".to_owned(),
                input: serde_json::json!({"kind": asking.kind.name(), "title": asking.title}),
                ok: Some(false),
                output: output.to_owned(),
                truncated: false,
                duration_ms: Some(millis(waited)),
                sandbox: None,
                kind: ToolKind::Other,
                locations: Vec::new(),
                diff: Vec::new(),
            };
            job.said.tools.push((trace, now));
        }
    }

    /// Would anybody answer a question of this turn?
    fn question_waits(&self, turn: TurnId) -> Result<(), Unanswered> {
        let job = self.jobs.get(&turn).ok_or(Unanswered::Ending)?;
        if !matches!(job.phase, Phase::Running { .. }) {
            return Err(Unanswered::Ending);
        }
        let waits = match job.terms.on_question {
            Some(OnQuestion::Wait) => true,
            Some(OnQuestion::Deny) => false,
            None => self.is_attended(turn),
        };
        let open = self.peers.questions().iter().filter(|(_, open)| {
            let asking = self.jobs.get(&open.turn);
            asking.is_some_and(|asking| asking.session == job.session)
        });
        match waits {
            false => Err(Unanswered::Nobody),
            true if open.count() >= QUESTIONS_PER_SESSION => Err(Unanswered::TooMany),
            true => Ok(()),
        }
    }

    /// Does a connection that hears of this turn have somebody who answers?
    fn is_attended(&self, turn: TurnId) -> bool {
        let Some((job, number)) = self
            .jobs
            .get(&turn)
            .and_then(|job| Some((job, job.number?)))
        else {
            return false;
        };
        let session = self.sessions.get(&job.session);
        let name = session.and_then(|session| session.name.as_deref());
        self.peers.questions().answerers().any(|conn| {
            let Some(conn) = self.peers.connected(conn) else {
                return false;
            };
            let subscribed = conn.subscription.as_ref();
            conn.follows.values().any(|follow| follow.job == number)
                || subscribed.is_some_and(|wanted| wanted.wants(name, number))
        })
    }

    /// The earliest of the agent's own limit, ours, and the turn's deadline.
    fn question_deadline(&self, turn: TurnId, limit: Option<AskedFor>) -> Duration {
        let now = self.now.mono;
        let job = self.jobs.get(&turn);
        let runs_out = job.and_then(|job| {
            Some(job.said.started_at? + job.terms.timeout().unwrap_or(DEFAULT_TIMEOUT))
        });
        let own = limit.map(|limit| match limit {
            AskedFor::Within(time) => time,
            AskedFor::Until(wall_ms) => {
                let left = wall_ms.saturating_sub(self.now.wall_ms);
                Duration::from_millis(u64::try_from(left).unwrap_or(0))
            }
        });
        let own = own.map(|own| now.saturating_add(own));
        let ours = now + QUESTION_WAITS;
        [own, runs_out].into_iter().flatten().fold(ours, Ord::min)
    }

    /// The agent wants no answer any more.
    pub(crate) fn withdrew(&mut self, worker: WorkerId, native: &str) {
        let slot = expected!(self.pool.get(worker));
        let process = Process {
            worker,
            generation: slot.generation,
        };
        let found = self
            .peers
            .questions()
            .iter()
            .find(|(_, open)| open.process == process && open.asking.question == native);
        if let Some((question, open)) = found.map(|(question, open)| (question, open.turn)) {
            self.take(question, Closed::Cancel);
            self.say_closed(open, question, Closed::Cancel);
        }
    }

    pub(crate) fn question_expired(&mut self, question: QuestionId) {
        self.close(question, Closed::Expiry);
    }

    /// The turn waits for answers no more.
    pub(crate) fn close_questions(&mut self, turn: TurnId, by: Closed) {
        for question in self.peers.questions().of_turn(turn) {
            self.close(question, by);
        }
    }

    /// Forgets the questions of a job that is unknown from now on.
    pub(crate) fn forget_questions(&mut self, turn: TurnId) {
        for question in self.peers.questions().of_turn(turn) {
            self.take(question, Closed::Exit);
        }
    }

    fn close(&mut self, question: QuestionId, by: Closed) {
        let Some(open) = self.take(question, by) else {
            return;
        };
        if by == Closed::Expiry {
            let waited = self.now.mono.saturating_sub(open.asked_at);
            let told = ("nobody answered in time", waited);
            self.trace_silence(open.turn, question, &open.asking, told);
        }
        self.say_closed(open.turn, question, by);
        // Nobody is left to hear that nobody answers.
        if by != Closed::Exit
            && let Some(why) = by.silence()
        {
            let reply = silence(open.asking.kind, why);
            self.reply(open.process, open.asking.question, reply);
        }
    }

    /// Takes a question out of those that wait.
    pub(crate) fn take(&mut self, question: QuestionId, by: Closed) -> Option<Question> {
        let open = self.peers.questions_mut().close(question, by)?;
        self.touch_session_of(open.turn);
        self.outbox.clear(Timer::Question(question));
        if let Some(job) = found!(self.jobs.get_mut(open.turn)) {
            // The agent goes on from here: its silence counts anew.
            job.said.progress_at = self.now.mono;
        }
        Some(open)
    }

    pub(crate) fn say_closed(&mut self, turn: TurnId, question: QuestionId, by: Closed) {
        let line = closed_line(question, by, None, None);
        self.say_numbered(turn, &line);
    }

    /// Tells a process what became of its question, if it is still the one that asked.
    pub(crate) fn reply(&mut self, process: Process, question: String, reply: Reply) {
        let Process { worker, generation } = process;
        let asked = self
            .pool
            .get(&worker)
            .is_some_and(|slot| slot.generation == generation && slot.phase.has_process());
        if asked {
            let command = WorkerCommand::Answer { question, reply };
            self.outbox.push(Effect::Tell {
                worker,
                generation,
                command,
            });
        }
    }

    /// Whether a session waits for an answer is something else now.
    fn touch_session_of(&mut self, turn: TurnId) {
        if let Some(job) = self.jobs.get(&turn) {
            self.sessions.touch(job.session);
        }
    }

    /// Does a turn wait for an answer?
    pub(crate) fn is_asking(&self, turn: TurnId) -> bool {
        self.peers
            .questions()
            .iter()
            .any(|(_, open)| open.turn == turn)
    }

    /// What a running turn does, in a few words for people.
    pub(crate) fn doing(&self, turn: TurnId) -> Option<String> {
        let mut open = self.peers.questions().iter();
        match open.find(|(_, open)| open.turn == turn) {
            Some((_, open)) => Some(format!("waiting for an answer: {}", open.asking.title)),
            None => self.jobs.get(&turn)?.said.doing(),
        }
    }
}

/// What an agent hears when nobody answers.
const fn silence(kind: QuestionKind, why: Silence) -> Reply {
    match kind {
        // An approval that nobody gave is a no, whatever the agent would make of silence.
        QuestionKind::Approval => Reply::Unanswered(why),
        QuestionKind::Choice | QuestionKind::Text | QuestionKind::Secret => Reply::Cancelled,
    }
}

/// What the call does that leave is asked for, and to which files, if it has begun.
pub(crate) fn tool_of(job: &Job, asking: &Asking) -> Option<(ToolKind, Vec<ToolLocation>)> {
    let call = asking.about.call.as_deref()?;
    let mut tools = job.said.tools.iter().rev();
    let (trace, _) = tools.find(|(trace, _)| trace.tool_call_id == call)?;
    Some((trace.kind, trace.locations.clone()))
}

/// What a program may want to know of it besides its words.
pub(crate) fn about(asking: &Asking, tool: Option<(ToolKind, Vec<ToolLocation>)>) -> QuestionAbout {
    let About {
        call,
        data,
        lasting,
    } = &asking.about;
    let (tool_kind, locations) = tool
        .map(|(kind, files)| (Some(kind), files))
        .unwrap_or_default();
    let data = data.as_deref().map(serde_json::from_str::<Value>);
    let scopes = match asking.kind {
        QuestionKind::Approval => {
            let lasting = lasting.iter().map(|lasting| lasting.scope());
            let scopes = std::iter::once(Scope::Once).chain(lasting);
            scopes.map(|scope| scope.name().to_owned()).collect()
        }
        QuestionKind::Choice | QuestionKind::Text | QuestionKind::Secret => Vec::new(),
    };
    QuestionAbout {
        tool_call_id: call.clone(),
        // An adapter made it.
        data: data.and_then(Result::ok).filter(Value::is_object),
        tool_kind,
        locations,
        scopes,
    }
}

pub(crate) fn closed_line(
    question: QuestionId,
    by: Closed,
    answer: Option<&str>,
    scope: Option<Lasting>,
) -> Line {
    Line::QuestionClosed {
        job: question.job,
        question_id: question.to_string(),
        by: by.name().to_owned(),
        answer: answer.map(str::to_owned),
        scope: scope.map(|lasting| lasting.scope().name().to_owned()),
    }
}

/// Makes a question fit into a line.
fn shorten(asking: &mut Asking) -> Result<(), Unanswered> {
    let title = std::mem::take(&mut asking.title);
    asking.title = head_and_tail(title, QUESTION_TITLE).0;
    let detail = asking.detail.take();
    asking.detail = detail.map(|detail| head_and_tail(detail, QUESTION_DETAIL).0);
    let about = &mut asking.about;
    about.call.take_if(|call| call.len() > NAME_BYTES);
    // Half of it would be no JSON, or another command.
    about.data.take_if(|data| data.len() > QUESTION_DETAIL);
    let lengths = asking.options.iter().map(|option| escaped_len(option) + 3);
    if lengths.sum::<usize>() > QUESTION_OPTIONS {
        // The answer is one of them word for word, so none can be shortened.
        asking.options = Vec::new();
        return Err(Unanswered::TooLong);
    }
    Ok(())
}
