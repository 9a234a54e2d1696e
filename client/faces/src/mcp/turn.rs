//! `ask`: a turn that somebody waits for, for a while.
//!
//! Owns what is told while it runs, and what is returned when the time to wait is over: the turn goes
//! on. It is asked for by its key over any number of connections, so it runs once. Must not know how
//! a question becomes a form.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use agentd_client::ClientError;
use agentd_client::again::MOST_LOSSES;
use agentd_client::wire::Received;
use agentd_protocol::line::{Accepted, ErrorLine, Level};
use agentd_protocol::request::Send;
use agentd_protocol::{Code, JobId, Line};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::outcome::{Outcome, map};
use super::question::{Kind, Question, answer};
use super::task::Create;
use super::work::{Abandoned, BEAT, Scene, Step, Work, nobody_serves};
use crate::face::Ticket;

/// However short the time to wait is: whether it was accepted is worth it.
const ACCEPTANCE: Duration = Duration::from_secs(10);
/// Bytes of the text so far that are told.
const LONGEST_SO_FAR: usize = 8 * 1024;
/// What to do about a job that goes on.
const COLLECT_IT: &str = "the job goes on: call `collect` with it";

/// What a client keeps of a turn that asked something, and brings back with the answers. It is no
/// secret and needs no seal: who changes it asks for another turn, as by any call.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    key: String,
    job: JobId,
    question: String,
    kind: Kind,
}

/// A turn.
pub(super) struct Turn {
    send: Send,
    wait: Duration,
    /// When the time to wait is over, once it has begun.
    until: Option<Instant>,
    begun: Option<Instant>,
    beat: Option<Instant>,
    /// The send, as it was asked last.
    ticket: Option<Ticket>,
    accepted: Option<Accepted>,
    /// What is told of it beside its answer.
    note: Option<String>,
    so_far: String,
    losses: u32,
    /// The answer that a client brought, and its question: given before the turn is asked for again.
    brought: Option<Value>,
    /// An answer under way.
    answering: Option<Ticket>,
    /// Is it told again from its beginning? Then questions may be told that are closed since.
    replayed: bool,
    /// Questions that were put to the client's user.
    put: BTreeSet<String>,
}

impl Turn {
    pub(super) fn new(send: Send, wait: Duration) -> Self {
        Self {
            send,
            wait,
            until: None,
            begun: None,
            beat: None,
            ticket: None,
            accepted: None,
            note: None,
            so_far: String::new(),
            losses: 0,
            brought: None,
            answering: None,
            replayed: false,
            put: BTreeSet::new(),
        }
    }

    /// The same turn, by what a client kept of it, with what its user has answered.
    pub(super) fn going_on(mut self, kept: &str, forms: &Value) -> Result<Self, String> {
        let kept: Kept = serde_json::from_str(kept)
            .map_err(|_| "`requestState` is not what this server gave".to_owned())?;
        let of_job = kept.question.strip_prefix(&kept.job.to_string());
        if !of_job.is_some_and(|rest| rest.starts_with("-q")) {
            return Err("`requestState` is not what this server gave".to_owned());
        }
        self.send.idempotency_key = Some(kept.key);
        self.brought = forms
            .get(&kept.question)
            .map(|form| answer(&kept.question, Some(kept.kind), form));
        Ok(self)
    }

    fn ask(&mut self, scene: &mut Scene<'_>) -> Step {
        self.ticket = Some(scene.ask("send", &self.send));
        Step::Goes
    }

    /// The fields that are told of a turn that goes on.
    fn facts(&self, state: &str) -> serde_json::Map<String, Value> {
        let mut facts = map(json!({"state": state}));
        if let Some(accepted) = &self.accepted {
            facts.insert("job".to_owned(), json!(accepted.job));
            facts.insert("session".to_owned(), json!(accepted.session));
            facts.insert("agent".to_owned(), json!(accepted.agent));
        }
        facts
    }

    /// What it comes to, with what is to be told besides.
    fn done(&self, outcome: Outcome) -> Step {
        Step::Done(outcome.with(self.note.clone()))
    }

    /// The time to wait is over.
    fn is_over(&self, scene: &Scene<'_>) -> Step {
        let Some(accepted) = &self.accepted else {
            if self.ticket.is_none() {
                let error = "the daemon is stopping: nothing was accepted";
                return Step::Done(Outcome::refusal(Code::Draining.name(), error, None));
            }
            let error = "agentd has not answered so far, and may have accepted it";
            return Step::Done(Outcome::unknown(error, "`jobs` says whether it did"));
        };
        if scene.peer.tasks {
            return Step::Becomes(Box::new(Create::new(accepted.job)));
        }
        let mut structured = self.facts("running");
        structured.insert("text".to_owned(), json!(self.so_far));
        structured.insert("hint".to_owned(), json!(COLLECT_IT));
        let job = accepted.job;
        self.done(Outcome {
            structured,
            text: format!("{job} of {} still runs; {COLLECT_IT}", accepted.agent),
            is_error: false,
        })
    }

    /// Which of its questions are open?
    fn look(&self, scene: &mut Scene<'_>) -> Step {
        if let Some(accepted) = &self.accepted {
            scene.ask("questions", &json!({"session": accepted.session}));
        }
        Step::Goes
    }

    fn question(&mut self, question: Question, scene: &mut Scene<'_>) -> Step {
        let Some(accepted) = &self.accepted else {
            return Step::Goes;
        };
        if !self.put.insert(question.id.clone()) {
            return Step::Goes;
        }
        let form = question.form(&accepted.agent);
        let (true, Some(form), Some(kind)) = (scene.peer.elicits, form, question.kind()) else {
            return self.waits_for_somebody(&question);
        };
        if !scene.peer.is_stateless() {
            scene.say(&format!("asks: {}", question.title));
            scene.requests.put(&question, &form, scene.out);
            return Step::Goes;
        }
        let kept = Kept {
            key: self.send.idempotency_key.clone().unwrap_or_default(),
            job: question.job,
            question: question.id.clone(),
            kind,
        };
        let request = json!({"method": "elicitation/create", "params": form});
        Step::Answers(json!({
            "resultType": "input_required",
            "inputRequests": {question.id: request},
            // Our own type can't fail to be JSON.
            "requestState": serde_json::to_string(&kept).unwrap_or_default(),
        }))
    }

    /// Nobody here puts it to anybody.
    fn waits_for_somebody(&self, question: &Question) -> Step {
        let hint = format!(
            "somebody has to answer it: `agentctl answer {}`; then call `collect` with the job",
            question.id
        );
        let mut structured = self.facts("waiting");
        structured.insert("question".to_owned(), question.told());
        structured.insert("hint".to_owned(), json!(hint));
        self.done(Outcome {
            structured,
            text: format!("The agent asks: {}\n{hint}", question.title),
            is_error: false,
        })
    }

    /// A line that says that it is refused, or how it failed.
    fn failed(&mut self, error: &ErrorLine, line: &Line, scene: &mut Scene<'_>) -> Step {
        if let Some(outcome) = error
            .turn
            .as_ref()
            .is_some_and(|turn| turn.job.is_some())
            .then(|| Outcome::ended(line))
            .flatten()
        {
            return self.done(outcome);
        }
        if error.code == Code::Draining {
            // Nothing was accepted: it is asked for again at the daemon that comes, once this one has
            // left.
            scene.say("the daemon restarts");
            self.ticket = None;
            return Step::Goes;
        }
        Step::Done(Outcome::refused(error, scene.inside))
    }

    fn say(&mut self, text: &str) {
        self.so_far.push_str(text);
        if self.so_far.len() > 2 * LONGEST_SO_FAR {
            let from = self
                .so_far
                .floor_char_boundary(self.so_far.len() - LONGEST_SO_FAR);
            self.so_far.drain(..from);
        }
    }

    fn heard(&mut self, line: Line, scene: &mut Scene<'_>) -> Step {
        match line {
            Line::Accepted(accepted) => {
                let waits = if accepted.running { "" } else { ", and waits" };
                let (job, agent) = (accepted.job, &accepted.agent);
                scene.say(&format!("{agent} has it as {job}{waits}"));
                self.replayed = accepted.replayed;
                let told = scene.spoken.accepted(&accepted);
                // Over HTTP nobody here knows whether the client spoke in it before.
                let made = accepted.made;
                let is_new = made.then(|| format!("the session `{}` is new", accepted.session));
                self.note = self.note.take().or(told).or(is_new);
                self.accepted = Some(accepted);
                if self.until.is_some_and(|until| scene.now >= until) {
                    return self.is_over(scene);
                }
            }
            Line::Running { .. } => scene.say("it runs"),
            Line::MessageStart { replaces, .. } => {
                if replaces.is_some() {
                    self.so_far.clear();
                } else if !self.so_far.is_empty() {
                    self.say("\n\n");
                }
            }
            Line::MessageDelta { text, .. } => self.say(&text),
            Line::ToolStart { name, input, .. } => scene.say(&used(&name, &input)),
            Line::Question {
                job,
                question_id,
                kind,
                title,
                detail,
                options,
                about,
                // Without it was denied at once.
                expires_at: Some(_),
            } => {
                if self.replayed {
                    return self.look(scene);
                }
                let question =
                    Question::new(job, question_id, kind, (title, detail), options, *about);
                return self.question(question, scene);
            }
            Line::Questions { questions, .. } => {
                let job = self.accepted.as_ref().map(|accepted| accepted.job);
                for row in questions.into_iter().filter(|row| Some(row.job) == job) {
                    let step = self.question(Question::of_row(row), scene);
                    if !matches!(step, Step::Goes) {
                        return step;
                    }
                }
            }
            Line::QuestionClosed { question_id, .. } => {
                scene.requests.withdraw(&question_id, scene.out);
            }
            Line::Note {
                level: Level::Warning,
                text,
                ..
            } => scene.say(&text),
            Line::Error(ref error) => return self.failed(error, &line, scene),
            Line::MessageEnd(_) => {
                if let Some(outcome) = Outcome::ended(&line) {
                    return self.done(outcome);
                }
            }
            // Thinking, what tools say, and whatever a later version tells.
            _ => {}
        }
        Step::Goes
    }
}

impl Work for Turn {
    fn begin(&mut self, scene: &mut Scene<'_>) -> Step {
        self.begun = Some(scene.now);
        self.until = Some(scene.now + self.wait);
        self.beat = Some(scene.now + BEAT);
        if let Some(answer) = &self.brought {
            // First: what is still asked is looked for afterwards.
            self.answering = Some(scene.ask("answer", answer));
            return Step::Goes;
        }
        self.ask(scene)
    }

    fn line(&mut self, ticket: Ticket, received: Received, scene: &mut Scene<'_>) -> Step {
        if self.answering == Some(ticket) {
            // Somebody may have been faster.
            self.answering = None;
            self.brought = None;
            return self.ask(scene);
        }
        match received.line {
            Some(line @ Line::Questions { .. }) => self.heard(line, scene),
            Some(line) if self.ticket == Some(ticket) => self.heard(line, scene),
            Some(_) | None => Step::Goes,
        }
    }

    fn lost(&mut self, scene: &mut Scene<'_>) -> Step {
        self.losses += 1;
        if self.losses > MOST_LOSSES {
            let error = "the connection to agentd was lost again and again";
            let hint = "`jobs` says what became of it";
            return Step::Done(Outcome::unknown(error, hint));
        }
        // It is told again from its beginning.
        self.so_far.clear();
        scene.say("the daemon was lost; asking again");
        if let Some(answer) = &self.brought {
            self.answering = Some(scene.ask("answer", answer));
            return Step::Goes;
        }
        self.ask(scene)
    }

    fn unreachable(&mut self, why: &ClientError) -> Step {
        let Some(accepted) = &self.accepted else {
            return Step::Done(nobody_serves(why, self.losses > 0));
        };
        let error = format!("the daemon was lost while {} ran: {why}", accepted.job);
        let hint = "when it is back, `collect` has what became of the job";
        let mut outcome = Outcome::unknown(&error, hint);
        outcome.structured.append(&mut self.facts("unknown"));
        Step::Done(outcome)
    }

    fn deadline(&self) -> Option<Instant> {
        let until = match self.accepted {
            Some(_) => self.until,
            None => self.until.max(self.begun.map(|begun| begun + ACCEPTANCE)),
        };
        [until, self.beat].into_iter().flatten().min()
    }

    fn timer(&mut self, scene: &mut Scene<'_>) -> Step {
        let waits = self
            .begun
            .map(|begun| scene.now - begun)
            .unwrap_or_default();
        let wait = match self.accepted {
            Some(_) => self.wait,
            None => self.wait.max(ACCEPTANCE),
        };
        if waits >= wait {
            return self.is_over(scene);
        }
        if self.beat.is_some_and(|beat| scene.now >= beat) {
            scene.say(&format!("{} s so far", waits.as_secs()));
            self.beat = Some(scene.now + BEAT);
        }
        Step::Goes
    }

    fn abandoned(&self) -> Abandoned {
        match &self.accepted {
            // One of a session that goes on is not this call's own.
            _ if self.send.session.is_some() => Abandoned::Nothing,
            Some(accepted) => Abandoned::Job(accepted.job),
            None => Abandoned::Unaccepted(self.send.idempotency_key.clone()),
        }
    }
}

/// A tool call in a few words.
fn used(name: &str, input: &Value) -> String {
    let fields = [
        "command",
        "cmd",
        "path",
        "file_path",
        "pattern",
        "query",
        "url",
    ]
    .into_iter();
    let mut told = fields.filter_map(|field| input.get(field)?.as_str());
    match told.next() {
        Some(told) => format!("{name}: {told}"),
        None => name.to_owned(),
    }
}
