//! The daemon's answers to all but a turn.
//!
//! Owns whom each is for. Must not know commands that ask nothing.

use agentd_protocol::commands::CommandRow;
use agentd_protocol::line::Line;
use agentd_protocol::rows::{JobRow, SessionPhase, SessionRow};
use serde_json::{Value, json};

use super::commands::Reply;
use super::message::Past;
use super::{Asked, Begins, Opening, Pi, What, Whose};
use crate::face::Outbox;
use crate::title::short;

impl Pi {
    fn was_left(&mut self, text: &str, result: Result<Line, String>, out: &mut Outbox) {
        if let Err(why) = result {
            self.notice(&format!("`{}` is not run: {why}", short(text)), out);
        }
    }

    /// What was asked has an answer.
    pub(super) fn answered(
        &mut self,
        asked: Asked,
        result: Result<Line, String>,
        out: &mut Outbox,
    ) {
        match asked.what {
            What::Turn | What::Nobody => {}
            What::Left(text) => self.was_left(&text, result, out),
            What::Copy => match result {
                Ok(_) => self.look_at_past(Whose::First, out),
                Err(why) => {
                    self.notice(&format!("nothing was copied: {why}"), out);
                    self.opened(out);
                }
            },
            What::Steer(text) => self.steered(&text, result.is_ok(), out),
            What::Latest => {
                if let Ok(Line::SessionList { sessions, .. }) = result
                    && let Some(row) = sessions.into_iter().find(has_turns)
                {
                    self.session = row.session;
                    return self.look_at_past(Whose::First, out);
                }
                self.opened(out);
            }
            What::Past(whose, past) => self.have_past(whose, past, result, out),
            What::Alive(whose, mut past) => {
                if let Ok(Line::Jobs { jobs, .. }) = result {
                    let is_cut_off = |row: &&JobRow| row.cut_off;
                    past.are_cut_off(jobs.iter().filter(is_cut_off).map(|row| row.job));
                }
                self.found(whose, &past, None, out);
            }
            What::Enter(command, name) => {
                let reply = match result {
                    Ok(line) => {
                        let agent = match line {
                            Line::SessionHistory { turns, .. } => Past { turns }.agent(),
                            Line::SessionFork { agent, .. } => Some(agent),
                            _ => None,
                        };
                        if let Some(agent) = agent {
                            self.spoken.know(&name, &agent);
                        }
                        self.enter(name, true);
                        Reply::Done(Some(json!({"cancelled": false})))
                    }
                    Err(why) => Reply::Failed(why),
                };
                self.reply(&command, reply, out);
            }
            What::Compact(command) => self.compacted(&command, result, out),
            What::Titled(command) => {
                if let Ok(Line::SessionTitle { title, .. }) = &result {
                    out.say(&json!({"type": "session_info_changed", "name": title}));
                }
                if let Some(command) = command {
                    let reply = result.map_or_else(Reply::Failed, |_| Reply::Done(None));
                    self.reply(&command, reply, out);
                }
            }
            What::Commands(command) => {
                let rows = match result {
                    Ok(Line::Commands { commands, .. }) => commands,
                    // One that has none, or can't say them.
                    Ok(_) | Err(_) => Vec::new(),
                };
                let commands: Vec<Value> = rows.iter().map(listed).collect();
                let data = json!({"commands": commands});
                self.reply(&command, Reply::Done(Some(data)), out);
            }
            What::Models(command, mut rows) => {
                if let Ok(Line::Models { models, next, .. }) = result {
                    rows.extend(models);
                    if let Some(after) = next {
                        let mut wanted = self.whose();
                        wanted["after"] = json!(after);
                        return self.ask("models", &wanted, What::Models(command, rows), out);
                    }
                }
                // An agent that can't say them has none to choose from.
                self.rows = Some(rows);
                let reply = self.model_command(&command, out);
                self.reply(&command, reply, out);
            }
        }
    }

    fn have_past(
        &mut self,
        whose: Whose,
        mut past: Past,
        result: Result<Line, String>,
        out: &mut Outbox,
    ) {
        let failed = match result {
            Ok(Line::SessionHistory {
                session,
                turns,
                next,
                ..
            }) => {
                past.turns.extend(turns);
                if let Some(after) = next {
                    let wanted = json!({"session": session, "after": after, "events": true});
                    return self.ask("session.history", &wanted, What::Past(whose, past), out);
                }
                None
            }
            Ok(_) => Some("the daemon's answer was not understood".to_owned()),
            Err(why) => Some(why),
        };
        let session = match &whose {
            Whose::First => &self.session,
            Whose::Switch(_, session) => session,
            Whose::Command(_) => return self.found(whose, &past, failed, out),
        };
        if failed.is_some() || past.open().next().is_none() {
            return self.found(whose, &past, failed, out);
        }
        // Without a daemon it may be of a process that is gone.
        let wanted = json!({"session": session, "limit": 256});
        self.ask("jobs", &wanted, What::Alive(whose, past), out);
    }

    fn found(&mut self, whose: Whose, past: &Past, failed: Option<String>, out: &mut Outbox) {
        match (whose, failed) {
            (Whose::Command(command) | Whose::Switch(command, _), Some(why)) => {
                self.reply(&command, Reply::Failed(why), out);
            }
            (Whose::Command(command), None) => {
                let reply = self.past_command(&command, past);
                self.reply(&command, reply, out);
            }
            (Whose::Switch(command, name), None) => {
                self.enter(name, true);
                self.goes_on_after(past, out);
                let entered = Reply::Done(Some(json!({"cancelled": false})));
                self.reply(&command, entered, out);
                self.tells_on(out);
            }
            (Whose::First, failed) => {
                self.exists = failed.is_none();
                if let Some(agent) = past.agent() {
                    self.spoken.know(&self.session, &agent);
                }
                self.is_titled = self.title.is_none();
                self.goes_on_after(past, out);
                self.opened(out);
            }
        }
    }

    /// Nobody knows what the first session is. The next command asks again.
    fn stays_shut(&mut self, why: &str, out: &mut Outbox) {
        self.opening = Opening::Not;
        if matches!(self.settings.begins, Begins::Copy(_)) {
            // The copy may be there.
            self.session = self.name();
        }
        for command in std::mem::take(&mut self.waiting) {
            self.reply(&command, Reply::failed(why), out);
        }
    }

    pub(super) fn fail(&mut self, asked: Asked, why: &str, out: &mut Outbox) {
        match asked.what {
            What::Turn => self.fail_turn(why, out),
            What::Latest
            | What::Copy
            | What::Past(Whose::First, _)
            | What::Alive(Whose::First, _) => self.stays_shut(why, out),
            // Of an agent that wasn't asked nobody knows what it has.
            What::Models(command, _) | What::Commands(command) => {
                self.reply(&command, Reply::Failed(why.to_owned()), out);
            }
            _ => self.answered(asked, Err(why.to_owned()), out),
        }
    }
}

fn has_turns(row: &SessionRow) -> bool {
    row.turns > 0 || !matches!(row.state, SessionPhase::Idle | SessionPhase::Closed)
}

/// A command of the agent, as pi lists those of its extensions.
fn listed(row: &CommandRow) -> Value {
    json!({"name": row.name, "description": row.description, "source": "extension",
        "sourceInfo": {"path": "agentd", "source": "agentd", "scope": "temporary",
            "origin": "top-level"}})
}
