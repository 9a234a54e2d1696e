//! Tools that are one request to the daemon and its one answer.
//!
//! Owns what of the answer is told. Must not know turns.

use std::time::{Duration, Instant};

use agentd_client::ClientError;
use agentd_client::again::MOST_LOSSES;
use agentd_client::wire::Received;
use agentd_protocol::rows::{AgentRow, JobRow, SessionRow, TurnRow};
use agentd_protocol::{Code, JobId, Line};
use serde_json::{Value, json};

use super::outcome::Outcome;
use super::work::{BEAT, Scene, Step, Work, nobody_serves};
use crate::face::Ticket;

/// Bytes of a page of history.
const LONGEST_PAGE: usize = 20 * 1024;
/// Bytes of a text in it, where no job was named.
const LONGEST_TURN: usize = 4 * 1024;

/// Where a job has ended, or is another's.
pub(super) const NOTHING_CANCELLED: &str =
    "nothing was cancelled: no such job is left, or another agentd process runs it";

/// May it be asked again when no answer came?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Again {
    /// It only looks.
    Yes,
    /// By its key it is done once.
    Keyed,
    /// It may have happened.
    No,
}

/// One request.
pub(super) struct Single {
    pub(super) kind: &'static str,
    pub(super) fields: Value,
    pub(super) again: Again,
    /// None of a line that doesn't answer it.
    pub(super) read: fn(&Line) -> Option<Value>,
    losses: u32,
}

impl Single {
    pub(super) fn new(
        kind: &'static str,
        fields: Value,
        again: Again,
        read: fn(&Line) -> Option<Value>,
    ) -> Self {
        Self {
            kind,
            fields,
            again,
            read,
            losses: 0,
        }
    }
}

impl Work for Single {
    fn begin(&mut self, scene: &mut Scene<'_>) -> Step {
        scene.ask(self.kind, &self.fields);
        Step::Goes
    }

    fn line(&mut self, _ticket: Ticket, received: Received, scene: &mut Scene<'_>) -> Step {
        match &received.line {
            // Nothing was done; the connection ends soon.
            Some(Line::Error(error)) if error.code == Code::Draining => Step::Goes,
            Some(Line::Error(error)) => Step::Done(Outcome::refused(error, scene.inside)),
            Some(line) => match (self.read)(line) {
                Some(structured) => Step::Done(Outcome::of(structured)),
                None => Step::Goes,
            },
            None if received.is_final() => {
                let error = format!("the daemon's answer is not understood: {}", received.kind);
                Step::Done(Outcome::refusal(Code::Internal.name(), &error, None))
            }
            None => Step::Goes,
        }
    }

    fn lost(&mut self, scene: &mut Scene<'_>) -> Step {
        self.losses += 1;
        if self.again == Again::No || self.losses > MOST_LOSSES {
            let error = "the connection to agentd was lost: whether it was done is not known";
            return Step::Done(Outcome::unknown(error, "`jobs` says what became of it"));
        }
        self.begin(scene)
    }

    fn unreachable(&mut self, why: &ClientError) -> Step {
        let changes = !matches!(self.again, Again::Yes);
        Step::Done(nobody_serves(why, changes && self.losses > 0))
    }
}

/// `collect`: the ends of jobs, and a while to wait for them.
pub(super) struct Collect {
    jobs: Vec<JobId>,
    any: bool,
    wait: Duration,
    until: Option<Instant>,
    beat: Option<Instant>,
    losses: u32,
}

impl Collect {
    pub(super) fn new(jobs: Vec<JobId>, any: bool, wait: Duration) -> Self {
        Self {
            jobs,
            any,
            wait,
            until: None,
            beat: None,
            losses: 0,
        }
    }

    fn ask(&self, scene: &mut Scene<'_>) -> Step {
        let left = self
            .until
            .map(|until| until.saturating_duration_since(scene.now));
        let wait = if self.any { "any" } else { "all" };
        let timeout = left.unwrap_or_default().as_secs_f64();
        scene.ask(
            "collect",
            &json!({"jobs": self.jobs, "timeout": timeout, "wait": wait}),
        );
        Step::Goes
    }
}

impl Work for Collect {
    fn begin(&mut self, scene: &mut Scene<'_>) -> Step {
        self.until = Some(scene.now + self.wait);
        self.beat = Some(scene.now + BEAT);
        self.ask(scene)
    }

    fn line(&mut self, _ticket: Ticket, received: Received, scene: &mut Scene<'_>) -> Step {
        match received.line {
            Some(Line::Collect {
                results, pending, ..
            }) => {
                let ended = results.into_iter().filter_map(|line| {
                    let line: Line = serde_json::from_value(line).ok()?;
                    Some(Outcome::ended(&line)?.structured)
                });
                let mut told = json!({"results": ended.collect::<Vec<_>>(), "pending": pending});
                if !pending.is_empty() {
                    told["hint"] =
                        json!("those in `pending` go on: call `collect` with them again");
                }
                Step::Done(Outcome::of(told))
            }
            Some(Line::Error(error)) if error.code == Code::Draining => Step::Goes,
            Some(Line::Error(error)) => Step::Done(Outcome::refused(&error, scene.inside)),
            Some(_) | None => Step::Goes,
        }
    }

    fn lost(&mut self, scene: &mut Scene<'_>) -> Step {
        self.losses += 1;
        if self.losses > MOST_LOSSES {
            let error = "the connection to agentd was lost again and again";
            return Step::Done(Outcome::refusal("unreachable", error, None));
        }
        self.ask(scene)
    }

    fn deadline(&self) -> Option<Instant> {
        self.beat
    }

    fn timer(&mut self, scene: &mut Scene<'_>) -> Step {
        // The daemon looks at the time to wait.
        let count = self.jobs.len();
        scene.say(&format!(
            "waiting for {count} job{}",
            if count == 1 { "" } else { "s" }
        ));
        self.beat = Some(scene.now + BEAT);
        Step::Goes
    }
}

pub(super) fn dispatched(line: &Line) -> Option<Value> {
    let Line::Dispatch { jobs, .. } = line else {
        return None;
    };
    let row = |row: &agentd_protocol::rows::DispatchedRow| json!({"job": row.job, "session": row.session});
    Some(json!({"jobs": jobs.iter().map(row).collect::<Vec<_>>()}))
}

pub(super) fn steered(line: &Line) -> Option<Value> {
    let Line::Steer { job, .. } = line else {
        return None;
    };
    Some(json!({"job": job}))
}

pub(super) fn cancelled(line: &Line) -> Option<Value> {
    let Line::Abort { jobs, .. } = line else {
        return None;
    };
    let mut told = json!({"jobs": jobs});
    if jobs.is_empty() {
        told["hint"] = json!(NOTHING_CANCELLED);
    }
    Some(told)
}

pub(super) fn sessions(line: &Line) -> Option<Value> {
    let Line::SessionList { sessions, .. } = line else {
        return None;
    };
    let row = |row: &SessionRow| {
        json!({
            "session": row.session, "agent": row.agent, "state": row.state, "title": row.title,
            "preview": row.preview, "cwd": row.cwd, "turns": row.turns, "last_active_at": row.last_active_at,
        })
    };
    Some(json!({"sessions": sessions.iter().map(row).collect::<Vec<_>>()}))
}

pub(super) fn agents(line: &Line) -> Option<Value> {
    let Line::Agents { agents, .. } = line else {
        return None;
    };
    // What is looked for and isn't there helps nobody here.
    let there = agents.iter().filter(|row| row.found != "looked-for");
    let row = |row: &AgentRow| {
        let mut told = json!({"name": row.name, "usable": row.usable, "default": row.default});
        if let Some(version) = &row.version {
            told["version"] = json!(version);
        }
        if let Some(why_not) = &row.why_not {
            told["why_not"] = json!(why_not);
        }
        told
    };
    Some(json!({"agents": there.map(row).collect::<Vec<_>>()}))
}

pub(super) fn jobs(line: &Line) -> Option<Value> {
    let Line::Jobs { jobs, next, .. } = line else {
        return None;
    };
    let row = |row: &JobRow| {
        let mut told = json!({
            "job": row.job, "session": row.session, "agent": row.agent, "state": row.state,
            "preview": row.preview, "accepted_at": row.accepted_at,
        });
        if let Some(finished_at) = &row.finished_at {
            told["finished_at"] = json!(finished_at);
        }
        if let Some(code) = &row.code {
            told["code"] = json!(code);
        }
        told
    };
    let mut told = json!({"jobs": jobs.iter().map(row).collect::<Vec<_>>()});
    if let Some(next) = next {
        told["next"] = json!(next);
    }
    Some(told)
}

/// Of one turn as much as of a page, else a page of several, each cut.
pub(super) fn history(line: &Line) -> Option<Value> {
    let Line::SessionHistory { turns, next, .. } = line else {
        return None;
    };
    // Only a turn that was named by itself has its request.
    let alone = matches!(turns.as_slice(), [turn] if turn.request.is_some());
    let longest = if alone { LONGEST_PAGE } else { LONGEST_TURN };
    let (mut told, mut bytes, mut next) = (Vec::new(), 0, next.map(|next| json!(next)));
    for (at, turn) in turns.iter().enumerate() {
        let row = said(turn, longest);
        bytes += row.to_string().len();
        if bytes > LONGEST_PAGE && at > 0 && !alone {
            next = at
                .checked_sub(1)
                .and_then(|at| turns.get(at))
                .map(|last| json!(last.job.0));
            break;
        }
        told.push(row);
    }
    let mut page = json!({"turns": told});
    if let Some(next) = next {
        page["next"] = next;
    }
    Some(page)
}

fn said(turn: &TurnRow, longest: usize) -> Value {
    let texts: Vec<&str> = turn
        .messages
        .iter()
        .map(|message| message.text.as_str())
        .collect();
    let text = texts.join("\n\n");
    let cut = |text: &str| {
        text.get(..text.floor_char_boundary(longest))
            .map(str::to_owned)
    };
    let is_cut = text.len() > longest || turn.text.len() > longest || turn.truncated;
    let mut told = json!({
        "job": turn.job, "state": turn.state, "prompt": cut(&turn.text), "text": cut(&text),
    });
    if is_cut || turn.messages.iter().any(|message| message.truncated) {
        told["truncated"] = json!(true);
    }
    told
}

pub(super) fn questions(line: &Line) -> Option<Value> {
    let Line::Questions { questions, .. } = line else {
        return None;
    };
    Some(json!({"questions": questions}))
}

pub(super) fn answered(line: &Line) -> Option<Value> {
    let Line::Answer { question_id, .. } = line else {
        return None;
    };
    Some(json!({"question_id": question_id}))
}
