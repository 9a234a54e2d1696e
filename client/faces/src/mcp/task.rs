//! Tasks: an `ask` that a client comes back for, in the words of both revisions that have them.
//!
//! Owns what a job is as a task. A task's id is its job's, so a task outlives this program. Must not
//! know how a turn begins.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use agentd_client::ClientError;
use agentd_client::wire::Received;
use agentd_protocol::line::ErrorLine;
use agentd_protocol::rows::{JobPhase, JobRow, QuestionRow};
use agentd_protocol::{Code, JobId, Line};
use serde_json::{Map, Value, json};

use super::outcome::{Outcome, map};
use super::peer::Peer;
use super::question::{Question, answer};
use super::single::NOTHING_CANCELLED;
use super::work::{Scene, Step, Work};
use crate::face::{self, Ticket};
use crate::json_rpc::{self, Failure, INTERNAL_ERROR, INVALID_PARAMS};

/// How often a client had best ask.
const POLL: Duration = Duration::from_secs(2);
/// Tasks of a page.
const PAGE: usize = 50;
/// What the jobs of this face are labelled with.
pub(super) const LABEL: (&str, &str) = ("via", "mcp");

/// What a client wants of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Want {
    /// It was just made.
    Created,
    /// How far it is.
    State,
    /// It was cancelled.
    Cancelled,
}

/// A turn that is handed in, and whose task is the answer.
pub(super) struct Begin {
    pub(super) fields: Value,
}

impl Work for Begin {
    fn begin(&mut self, scene: &mut Scene<'_>) -> Step {
        scene.ask("dispatch", &self.fields);
        Step::Goes
    }

    fn line(&mut self, _ticket: Ticket, received: Received, scene: &mut Scene<'_>) -> Step {
        match received.line {
            Some(Line::Dispatch { jobs, .. }) => match jobs.first() {
                Some(row) => Step::Becomes(Box::new(Create::new(row.job))),
                None => Step::Goes,
            },
            Some(Line::Error(error)) if error.code == Code::Draining => Step::Goes,
            Some(Line::Error(error)) => {
                let error = face::keyless(&error);
                let refused = Outcome::refused(&error, scene.inside);
                Step::Fails(Failure::new(json_rpc::refused(error.code), refused.text))
            }
            Some(_) | None => Step::Goes,
        }
    }

    fn unreachable(&mut self, why: &ClientError) -> Step {
        no_daemon(why)
    }
}

/// What a task is, from the job's row on.
pub(super) struct Create {
    job: JobId,
    want: Want,
    row: Option<JobRow>,
}

impl Create {
    /// A task that was just made.
    pub(super) const fn new(job: JobId) -> Self {
        Self::wanting(job, Want::Created)
    }

    /// `tasks/get`.
    pub(super) const fn get(job: JobId) -> Self {
        Self::wanting(job, Want::State)
    }

    const fn wanting(job: JobId, want: Want) -> Self {
        Self {
            job,
            want,
            row: None,
        }
    }

    fn found(&mut self, row: JobRow, scene: &mut Scene<'_>) -> Step {
        let peer = scene.peer;
        match self.want {
            Want::Created => {
                let created = task(&row, "working", peer);
                return Step::Answers(if peer.is_stateless() {
                    let mut created = created;
                    created.insert("resultType".to_owned(), json!("task"));
                    Value::Object(created)
                } else {
                    json!({"task": created})
                });
            }
            Want::Cancelled => return Step::Answers(task(&row, "cancelled", peer).into()),
            Want::State => {}
        }
        let status = match row.state {
            JobPhase::Queued | JobPhase::Held | JobPhase::Running => {
                scene.ask("questions", &json!({"session": row.session}));
                self.row = Some(row);
                return Step::Goes;
            }
            JobPhase::Cancelled => "cancelled",
            JobPhase::Completed | JobPhase::Failed | JobPhase::Interrupted
                if peer.is_stateless() =>
            {
                scene.ask("collect", &json!({"jobs": [self.job], "timeout": 0}));
                self.row = Some(row);
                return Step::Goes;
            }
            JobPhase::Completed => "completed",
            JobPhase::Failed | JobPhase::Interrupted => "failed",
        };
        Step::Answers(task(&row, status, peer).into())
    }

    fn asked(&self, row: &JobRow, questions: Vec<QuestionRow>, scene: &Scene<'_>) -> Step {
        let peer = scene.peer;
        let of_it = questions.into_iter().filter(|found| found.job == self.job);
        let mut forms = Map::new();
        let mut title = None;
        for question in of_it.map(Question::of_row) {
            title.get_or_insert_with(|| question.title.clone());
            if let Some(form) = question.form(&row.agent).filter(|_| peer.elicits) {
                let request = json!({"method": "elicitation/create", "params": form});
                forms.insert(question.id, request);
            }
        }
        let status = if forms.is_empty() {
            "working"
        } else {
            "input_required"
        };
        let mut task = task(row, status, peer);
        if let Some(title) = title {
            task.insert("statusMessage".to_owned(), json!(format!("asks: {title}")));
        }
        if peer.is_stateless() && !forms.is_empty() {
            task.insert("inputRequests".to_owned(), Value::Object(forms));
        }
        Step::Answers(task.into())
    }
}

impl Work for Create {
    fn begin(&mut self, scene: &mut Scene<'_>) -> Step {
        scene.ask("jobs", &row_of(self.job));
        Step::Goes
    }

    fn line(&mut self, _ticket: Ticket, received: Received, scene: &mut Scene<'_>) -> Step {
        match (received.line, &self.row) {
            (Some(Line::Jobs { jobs, .. }), None) => match its_row(jobs, self.job) {
                Some(row) => self.found(row, scene),
                None => unknown(self.job),
            },
            (Some(Line::Questions { questions, .. }), Some(row)) => {
                self.asked(row, questions, scene)
            }
            (Some(Line::Collect { results, .. }), Some(row)) => {
                let Some(outcome) = results.into_iter().next().and_then(outcome) else {
                    return unknown(self.job);
                };
                let mut task = task(row, "completed", scene.peer);
                let mut result = map(outcome.result());
                result.insert("resultType".to_owned(), json!("complete"));
                task.insert("result".to_owned(), Value::Object(result));
                Step::Answers(task.into())
            }
            (Some(Line::Error(error)), _) if error.code == Code::Draining => Step::Goes,
            (Some(Line::Error(error)), _) => refused(error),
            _ => Step::Goes,
        }
    }

    fn lost(&mut self, scene: &mut Scene<'_>) -> Step {
        self.row = None;
        self.begin(scene)
    }

    fn unreachable(&mut self, why: &ClientError) -> Step {
        no_daemon(why)
    }
}

/// `tasks/result`: waits for the end. Meanwhile the turn's questions are put to the client's user.
pub(super) struct Wait {
    job: JobId,
    row: Option<JobRow>,
    poll: Option<Instant>,
    asked: BTreeSet<String>,
}

impl Wait {
    pub(super) const fn new(job: JobId) -> Self {
        Self {
            job,
            row: None,
            poll: None,
            asked: BTreeSet::new(),
        }
    }

    fn elicit(&mut self, rows: Vec<QuestionRow>, scene: &mut Scene<'_>) {
        let agent = self.row.as_ref().map_or("", |row| row.agent.as_str());
        for row in rows.into_iter().filter(|row| row.job == self.job) {
            let question = Question::of_row(row);
            let Some(mut form) = question.form(agent) else {
                continue;
            };
            if self.asked.insert(question.id.clone()) {
                form["_meta"] = related(self.job);
                scene.requests.put(&question, &form, scene.out);
            }
        }
    }
}

impl Work for Wait {
    fn begin(&mut self, scene: &mut Scene<'_>) -> Step {
        scene.ask("collect", &json!({"jobs": [self.job]}));
        if scene.peer.elicits {
            scene.ask("jobs", &row_of(self.job));
        }
        Step::Goes
    }

    fn line(&mut self, _ticket: Ticket, received: Received, scene: &mut Scene<'_>) -> Step {
        match received.line {
            Some(Line::Collect { results, .. }) => {
                let Some(outcome) = results.into_iter().next().and_then(outcome) else {
                    return unknown(self.job);
                };
                let mut result = outcome.result();
                result["_meta"] = related(self.job);
                Step::Answers(result)
            }
            Some(Line::Jobs { jobs, .. }) => {
                self.row = its_row(jobs, self.job);
                self.poll = self.row.as_ref().map(|_| scene.now);
                Step::Goes
            }
            Some(Line::Questions { questions, .. }) => {
                self.elicit(questions, scene);
                Step::Goes
            }
            Some(Line::Error(error)) if error.code == Code::Draining => Step::Goes,
            Some(Line::Error(error)) => refused(error),
            Some(_) | None => Step::Goes,
        }
    }

    fn unreachable(&mut self, why: &ClientError) -> Step {
        no_daemon(why)
    }

    fn deadline(&self) -> Option<Instant> {
        self.poll
    }

    fn timer(&mut self, scene: &mut Scene<'_>) -> Step {
        if let Some(row) = &self.row {
            scene.ask("questions", &json!({"session": row.session}));
        }
        self.poll = Some(scene.now + POLL);
        Step::Goes
    }
}

/// `tasks/cancel`.
pub(super) struct Cancel {
    pub(super) job: JobId,
}

impl Work for Cancel {
    fn begin(&mut self, scene: &mut Scene<'_>) -> Step {
        scene.ask("abort", &json!({"job": self.job}));
        Step::Goes
    }

    fn line(&mut self, _ticket: Ticket, received: Received, scene: &mut Scene<'_>) -> Step {
        match received.line {
            Some(Line::Abort { .. }) if scene.peer.is_stateless() => Step::Answers(json!({})),
            Some(Line::Abort { jobs, .. }) if jobs.is_empty() => {
                let why = format!("{}: {NOTHING_CANCELLED}", self.job);
                Step::Fails(Failure::new(INVALID_PARAMS, why))
            }
            Some(Line::Abort { .. }) => {
                Step::Becomes(Box::new(Create::wanting(self.job, Want::Cancelled)))
            }
            Some(Line::Error(error)) if error.code == Code::Draining => Step::Goes,
            Some(Line::Error(error)) => refused(error),
            Some(_) | None => Step::Goes,
        }
    }

    fn unreachable(&mut self, why: &ClientError) -> Step {
        no_daemon(why)
    }
}

/// `tasks/update`: answers to questions of a task.
pub(super) struct Update {
    job: JobId,
    answers: Vec<(String, Value)>,
    left: usize,
}

impl Update {
    /// What isn't about a question of this job is left out.
    pub(super) fn new(job: JobId, forms: &Map<String, Value>) -> Self {
        let own = format!("{job}-q");
        let of_it = forms.iter().filter(|(id, _)| id.starts_with(&own));
        Self {
            job,
            answers: of_it
                .map(|(id, form)| (id.clone(), answer(id, None, form)))
                .collect(),
            left: 0,
        }
    }
}

impl Work for Update {
    fn begin(&mut self, scene: &mut Scene<'_>) -> Step {
        // A task that isn't there is told so, as by the others.
        scene.ask("jobs", &row_of(self.job));
        Step::Goes
    }

    fn line(&mut self, _ticket: Ticket, received: Received, scene: &mut Scene<'_>) -> Step {
        match received.line {
            Some(Line::Jobs { jobs, .. }) => {
                if its_row(jobs, self.job).is_none() {
                    return unknown(self.job);
                }
                for (_, answer) in &self.answers {
                    scene.ask("answer", answer);
                }
                self.left = self.answers.len();
            }
            Some(Line::Answer { .. } | Line::Error(_)) => self.left = self.left.saturating_sub(1),
            Some(_) | None => return Step::Goes,
        }
        if self.left == 0 {
            return Step::Answers(json!({}));
        }
        Step::Goes
    }

    fn unreachable(&mut self, why: &ClientError) -> Step {
        no_daemon(why)
    }
}

/// `tasks/list`.
pub(super) struct List {
    pub(super) before: Option<JobId>,
}

impl Work for List {
    fn begin(&mut self, scene: &mut Scene<'_>) -> Step {
        let label = format!("{}={}", LABEL.0, LABEL.1);
        let mut fields = json!({"label": label, "limit": PAGE});
        if let Some(before) = self.before {
            fields["before"] = json!(before);
        }
        scene.ask("jobs", &fields);
        Step::Goes
    }

    fn line(&mut self, _ticket: Ticket, received: Received, scene: &mut Scene<'_>) -> Step {
        match received.line {
            Some(Line::Jobs { jobs, next, .. }) => {
                let one = |row: &JobRow| {
                    let status = match row.state {
                        JobPhase::Queued | JobPhase::Held | JobPhase::Running => "working",
                        JobPhase::Completed => "completed",
                        JobPhase::Cancelled => "cancelled",
                        JobPhase::Failed | JobPhase::Interrupted => "failed",
                    };
                    task(row, status, scene.peer)
                };
                let mut told = json!({"tasks": jobs.iter().map(one).collect::<Vec<_>>()});
                if let Some(next) = next {
                    told["nextCursor"] = json!(next);
                }
                Step::Answers(told)
            }
            Some(Line::Error(error)) if error.code == Code::Draining => Step::Goes,
            Some(Line::Error(error)) => refused(error),
            Some(_) | None => Step::Goes,
        }
    }

    fn unreachable(&mut self, why: &ClientError) -> Step {
        no_daemon(why)
    }
}

/// The request whose answer has the row of this job, and no other.
fn row_of(job: JobId) -> Value {
    json!({"before": JobId(job.0.saturating_add(1)), "limit": 1})
}

fn its_row(jobs: Vec<JobRow>, job: JobId) -> Option<JobRow> {
    jobs.into_iter().find(|row| row.job == job)
}

fn outcome(line: Value) -> Option<Outcome> {
    let line: Line = serde_json::from_value(line).ok()?;
    Outcome::ended(&line)
}

fn task(row: &JobRow, status: &str, peer: &Peer) -> Map<String, Value> {
    let updated = row.finished_at.as_ref().or(row.started_at.as_ref());
    let mut task = map(json!({
        "taskId": row.job,
        "status": status,
        "createdAt": row.accepted_at,
        "lastUpdatedAt": updated.unwrap_or(&row.accepted_at),
    }));
    let poll = json!(u64::try_from(POLL.as_millis()).unwrap_or_default());
    // Kept for as long as the job, which is for days.
    let (ttl, interval) = match peer.is_stateless() {
        true => ("ttlMs", "pollIntervalMs"),
        false => ("ttl", "pollInterval"),
    };
    task.insert(ttl.to_owned(), Value::Null);
    task.insert(interval.to_owned(), poll);
    task
}

fn related(job: JobId) -> Value {
    json!({"io.modelcontextprotocol/related-task": {"taskId": job}})
}

fn refused(error: Box<ErrorLine>) -> Step {
    Step::Fails(Failure::new(json_rpc::refused(error.code), error.error))
}

fn unknown(job: JobId) -> Step {
    Step::Fails(Failure::new(
        INVALID_PARAMS,
        format!("there is no task `{job}`"),
    ))
}

fn no_daemon(why: &ClientError) -> Step {
    Step::Fails(Failure::new(INTERNAL_ERROR, face::sentence(why)))
}
