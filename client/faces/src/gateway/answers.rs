//! The daemon's answers, as those of the gateway.
//!
//! Owns what each is told as. Must not know how it was asked for.

use agentd_protocol::line::Line;
use agentd_protocol::rows::JobRow;
use serde_json::{Value, json};

use super::commands::How;
use super::methods::not_understood;
use super::{Asked, BUSY, Call, Failure, Gateway, NOT_STORED, What, row};
use crate::face::Outbox;

/// Levels of jobs of jobs that the daemon takes.
const DEEPEST: u64 = 3;

impl Gateway {
    /// The last line of a request that isn't a turn.
    pub(super) fn answered(
        &mut self,
        asked: Asked,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let again = asked.lost > 0;
        match asked.what {
            What::Nobody | What::Turn(_) => {}
            What::Models(name) => {
                if let Ok(line) = result {
                    self.have_models(&name, line, out);
                }
            }
            What::Commands(name) => {
                if let (Ok(Line::Commands { commands, .. }), Some(session)) =
                    (result, self.sessions.get_mut(&name))
                {
                    session.commands = commands;
                }
            }
            What::Beside(name, ended) => {
                if let Ok(Line::Jobs { jobs, .. }) = result {
                    self.have_beside(&name, &ended, &jobs, out);
                }
            }
            What::Questions => {
                if let Ok(Line::Questions { questions, .. }) = result {
                    self.have_questions(questions, out);
                }
            }
            What::Prompt(reply, ..) | What::Background(reply, _) => {
                if let Err(failure) = result {
                    out.refuse(&reply, &failure);
                }
            }
            What::Look(call, wanted) => self.found(call, &wanted, false, result, out),
            What::ByTitle(call, wanted) => self.found(call, &wanted, true, result, out),
            What::Made(reply, create, name) => {
                self.made((reply, create, name), again, result, out);
            }
            What::MadeSet(reply, create, name) => {
                self.made_set((reply, create, name), result, out);
            }
            What::Listed(reply, lists) => match rows(result) {
                Ok(rows) => out.answer(&reply, &self.listed(&lists, rows)),
                Err(failure) => out.refuse(&reply, &failure),
            },
            What::Past(opening) => self.have_past(opening, result, out),
            What::History(reply, turns) => self.have_history(reply, turns, result, out),
            What::Usage(reply, name) => self.tell_usage(&reply, &name, result, out),
            What::Branched(reply, parent, title) => {
                self.branched(&reply, (parent, title), result, out);
            }
            What::Compressed(reply, name) => self.compressed(&reply, &name, result, out),
            What::Answered(reply, ids, done) => {
                self.answer_taken(&reply, &ids, result.map(|_| done), out);
            }
            What::Choosing(reply, choice, rows) => {
                self.choosing((reply, choice, rows), result, out);
            }
            What::Set(reply, choice) => self.set(&reply, &choice, result, out),
            What::Options(reply, session, rows) => {
                self.have_options((reply, session, rows), result, out);
            }
            what => self.told(what, result, out),
        }
    }

    /// What is told as it is.
    fn told(&mut self, what: What, result: Result<Line, Failure>, out: &mut Outbox) {
        match what {
            What::Title(reply, name) => match rows(result) {
                Ok(rows) => {
                    let title = rows.first().map_or("", |row| &row.title);
                    let told = json!({"title": title, "session_key": name});
                    out.answer(&reply, &told);
                }
                Err(failure) => out.refuse(&reply, &failure),
            },
            What::Titled(reply, title) => {
                let done = json!({"pending": false, "title": title});
                say(&reply, result.map(|_| done), out);
            }
            What::Steered(reply, text, how) => {
                let status = if result.is_ok() { "queued" } else { "rejected" };
                let told = match (how, result) {
                    (How::Method, _) => json!({"status": status, "text": text}),
                    (How::Command, Ok(_)) => json!({"type": "exec", "output": "told to the agent"}),
                    (How::Command, Err(failure)) => {
                        return out.refuse(&reply, &failure);
                    }
                };
                out.answer(&reply, &told);
            }
            What::Deleted(reply, name) => {
                let done = result.map(|_| json!({"deleted": name}));
                let done = done.map_err(|failure| Failure {
                    code: match failure.code {
                        BUSY => 4023,
                        super::NO_SESSION => NOT_STORED,
                        code => code,
                    },
                    ..failure
                });
                self.sessions.remove(&name);
                say(&reply, done, out);
            }
            What::Delegation(reply) => {
                let told = result.and_then(|line| match line {
                    Line::Jobs { jobs, .. } => Ok(delegation(&jobs)),
                    _ => Err(not_understood()),
                });
                say(&reply, told, out);
            }
            What::Interrupted(reply, done) | What::Done(reply, done) => {
                say(&reply, result.map(|_| done), out);
            }
            _ => {}
        }
    }

    fn found(
        &mut self,
        call: Call,
        wanted: &str,
        by_title: bool,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        match rows(result) {
            Ok(rows) => self.looked(call, wanted, by_title, rows, out),
            Err(failure) => out.refuse(&call.id, &failure),
        }
    }

    fn tell_usage(
        &self,
        reply: &agentd_protocol::Id,
        name: &str,
        result: Result<Line, Failure>,
        out: &mut Outbox,
    ) {
        let told = result.and_then(|line| match (line, self.sessions.get(name)) {
            (
                Line::Usage {
                    total: Some(sum), ..
                },
                Some(session),
            ) => {
                let mut usage = row::usage(session);
                usage["input"] = json!(sum.input_tokens);
                usage["prompt"] = json!(sum.input_tokens);
                usage["output"] = json!(sum.output_tokens);
                usage["completion"] = json!(sum.output_tokens);
                usage["total"] = json!(sum.input_tokens.saturating_add(sum.output_tokens));
                usage["calls"] = json!(sum.turns);
                Ok(usage)
            }
            _ => Err(not_understood()),
        });
        say(reply, told, out);
    }
}

fn rows(result: Result<Line, Failure>) -> Result<Vec<agentd_protocol::rows::SessionRow>, Failure> {
    match result? {
        Line::SessionList { sessions, .. } => Ok(sessions),
        _ => Err(not_understood()),
    }
}

fn say(reply: &agentd_protocol::Id, result: Result<Value, Failure>, out: &mut Outbox) {
    match result {
        Ok(result) => out.answer(reply, &result),
        Err(failure) => out.refuse(reply, &failure),
    }
}

/// What agents sent from inside their turns.
fn delegation(jobs: &[JobRow]) -> Value {
    let children = jobs.iter().filter(|job| job.parent.is_some());
    let active = children.map(|job| {
        json!({"subagent_id": job.job, "parent_id": job.parent, "goal": job.preview,
            "status": "running", "child_session_id": job.session, "model": job.agent})
    });
    json!({"active": active.collect::<Vec<_>>(), "paused": false, "max_spawn_depth": DEEPEST,
        "max_concurrent_children": null})
}
