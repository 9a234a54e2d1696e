//! pi's RPC: any agent for a client that starts `pi --mode rpc`.
//!
//! Owns the session that the client is in, its run, and which answer of the daemon is whose. A
//! session's id is its name, so the next process goes on where this one was. Must not know agents, nor
//! how a message looks.

mod answers;
mod commands;
mod left;
mod message;
mod queue;
mod run;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Instant, SystemTime};

use agentd_client::ClientError;
use agentd_client::again::MOST_LOSSES;
use agentd_client::client::is_draining;
use agentd_client::wire::Received;
use agentd_protocol::line::{ErrorLine, Line};
use agentd_protocol::models::ModelRow;
use agentd_protocol::request::Earlier;
use agentd_protocol::strict;
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::commands::Command;
use self::message::{Named, Past};
use self::queue::Queue;
use self::turn::Turn;
use crate::face::{self, Face, Outbox, Spoken, Ticket};

/// What a face is told at its start: the words of the command line that have a meaning here.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "they are the options of the command line")]
pub struct Settings {
    pub agent: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub thinking: Option<String>,
    pub toolsets: Option<Vec<String>>,
    /// What the agent is told before the conversation.
    pub system: Option<String>,
    pub name: Option<String>,
    /// Where the client works: where a new session does.
    pub here: Option<String>,
    pub begins: Begins,
    /// Where sessions would be, were they pi's.
    pub sessions: String,
    /// Another one for each process, at random.
    pub nonce: String,
    /// The time of day: messages say it.
    pub clock: fn() -> SystemTime,
}

/// Which session is the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Begins {
    /// A new one.
    New,
    /// That of this path or name.
    Named(String),
    /// A new one that begins with all of that.
    Copy(String),
    /// The one that was used last in this directory.
    Latest,
}

/// A request that has no answer.
struct Asked {
    kind: &'static str,
    fields: Value,
    what: What,
    lost: u32,
}

/// What it is for.
enum What {
    Turn,
    Steer(String),
    /// A word that waits when the client leaves.
    Left(String),
    Latest,
    /// The first session is the copy of another.
    Copy,
    Past(Whose, Past),
    /// Who runs what has no end.
    Alive(Whose, Past),
    /// The client goes into that session.
    Enter(Command, String),
    Compact(Command),
    Titled(Option<Command>),
    Commands(Command),
    Models(Command, Vec<ModelRow>),
    /// Nobody waits.
    Nobody,
}

/// Who needs to know what was said.
enum Whose {
    /// The session is the first.
    First,
    Command(Command),
    /// The client goes into that session.
    Switch(Command, String),
}

/// Is the first session open?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    Not,
    Asked,
    Open,
}

/// The face.
pub struct Pi {
    settings: Settings,
    made: u64,
    opening: Opening,
    /// Commands that wait until it is.
    waiting: VecDeque<Command>,
    session: String,
    /// Does the daemon know it?
    exists: bool,
    /// Was it begun here, with our settings?
    is_ours: bool,
    spoken: Spoken,
    /// What it is called, and whether the daemon knows that.
    title: Option<String>,
    is_titled: bool,
    named: Named,
    /// Did the client choose the model? Else the agent's own answers.
    is_pinned: bool,
    thinking: Option<String>,
    /// What a session begins with that goes on before the end of another.
    begins: Vec<Earlier>,
    rows: Option<Vec<ModelRow>>,
    turn: Option<Turn>,
    /// The command that began the turn, until it is accepted.
    prompt: Option<Command>,
    /// The messages of the run; none while there is no run.
    run: Option<Vec<Value>>,
    count: usize,
    queue: Queue,
    /// Commands that wait for the end of the run.
    settling: VecDeque<Command>,
    compacting: bool,
    compacts_itself: bool,
    /// Questions that the client was asked.
    questions: BTreeMap<String, String>,
    asked: BTreeMap<Ticket, Asked>,
    /// The client is gone.
    left: bool,
    stopped: bool,
}

impl Pi {
    /// One for a new client.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mut face = Self {
            made: 0,
            opening: Opening::Not,
            waiting: VecDeque::new(),
            session: String::new(),
            exists: false,
            is_ours: false,
            spoken: Spoken::default(),
            title: settings.name.clone(),
            is_titled: false,
            named: Named {
                provider: settings.provider.clone(),
                model: settings.model.clone(),
            },
            is_pinned: settings.model.is_some() || settings.provider.is_some(),
            thinking: settings.thinking.clone(),
            begins: Vec::new(),
            rows: None,
            turn: None,
            prompt: None,
            run: None,
            count: 0,
            queue: Queue::default(),
            settling: VecDeque::new(),
            compacting: false,
            compacts_itself: true,
            questions: BTreeMap::new(),
            asked: BTreeMap::new(),
            left: false,
            stopped: false,
            settings,
        };
        face.session = face.name();
        face
    }

    /// A name that nobody else makes.
    fn name(&mut self) -> String {
        self.made += 1;
        let short: String = self.settings.nonce.chars().take(12).collect();
        format!("pi-{short}-{}", self.made)
    }

    fn ask(&mut self, kind: &'static str, fields: &impl Serialize, what: What, out: &mut Outbox) {
        let fields = serde_json::to_value(fields).unwrap_or_default();
        let ticket = out.ask(kind, &fields);
        let lost = 0;
        self.asked.insert(
            ticket,
            Asked {
                kind,
                fields,
                what,
                lost,
            },
        );
    }

    /// Is there a session to be in? What was said in an earlier one is looked for first.
    fn is_open(&mut self, out: &mut Outbox) -> bool {
        if self.opening == Opening::Not {
            self.opening = Opening::Asked;
            match self.settings.begins.clone() {
                Begins::New => self.opening = Opening::Open,
                Begins::Named(path) => match self.settings.name_of(&path) {
                    Some(name) => {
                        self.session = name;
                        self.look_at_past(Whose::First, out);
                    }
                    None => self.is_none_of_ours(&path, out),
                },
                Begins::Copy(path) => match self.settings.name_of(&path) {
                    Some(name) => {
                        let wanted = json!({"session": name, "to": self.session});
                        self.ask("session.fork", &wanted, What::Copy, out);
                    }
                    None => self.is_none_of_ours(&path, out),
                },
                Begins::Latest => {
                    let wanted = json!({"cwd": self.settings.here, "newest": true, "limit": 1,
                        "agent": self.settings.agent});
                    self.ask("session.list", &wanted, What::Latest, out);
                }
            }
        }
        self.opening == Opening::Open
    }

    fn look_at_past(&mut self, whose: Whose, out: &mut Outbox) {
        let session = match &whose {
            Whose::Switch(_, session) => session,
            Whose::First | Whose::Command(_) => &self.session,
        };
        let wanted = json!({"session": session, "events": true});
        let past = What::Past(whose, Past::default());
        self.ask("session.history", &wanted, past, out);
    }

    fn is_none_of_ours(&mut self, path: &str, out: &mut Outbox) {
        let why = format!(
            "`{path}` is no session of agentd: this one is new; `agentctl sessions` lists them"
        );
        self.notice(&why, out);
        self.opening = Opening::Open;
    }

    /// Something to know.
    fn notice(&mut self, why: &str, out: &mut Outbox) {
        self.made += 1;
        let id = format!("note-{}-{}", self.settings.nonce, self.made);
        out.say(&message::notice(&id, why));
    }

    fn opened(&mut self, out: &mut Outbox) {
        self.opening = Opening::Open;
        for command in std::mem::take(&mut self.waiting) {
            self.command(command, out);
        }
        self.tells_on(out);
    }

    /// Goes into a session; what waited in the one before isn't said here.
    fn enter(&mut self, name: String, exists: bool) {
        self.session = name;
        (self.exists, self.is_ours) = (exists, false);
        self.count = 0;
        self.begins = Vec::new();
        self.rows = None;
        self.queue.clear();
        (self.title, self.is_titled) = (None, exists);
    }

    const fn is_busy(&self) -> bool {
        self.turn.is_some()
    }

    /// Has nothing to be waited for?
    const fn is_settled(&self) -> bool {
        !self.is_busy() && !self.compacting
    }

    fn level(&self) -> String {
        self.thinking.clone().unwrap_or_else(|| "off".to_owned())
    }

    fn state(&self) -> Value {
        let mut state = json!({
            "model": self.named.object(self.rows.as_deref().unwrap_or_default()),
            "thinkingLevel": self.level(),
            "isStreaming": self.is_busy(),
            "isCompacting": self.compacting,
            "steeringMode": self.queue.steering_mode.name(),
            "followUpMode": self.queue.follow_up_mode.name(),
            "sessionFile": self.settings.file_of(&self.session),
            "sessionId": self.session,
            "autoCompactionEnabled": self.compacts_itself,
            "messageCount": self.count + self.turn.as_ref().map_or(0, |turn| turn.messages.len()),
            "pendingMessageCount": self.queue.len(),
        });
        if let Some(title) = &self.title {
            state["sessionName"] = json!(title);
        }
        state
    }
}

fn refusal(error: &ErrorLine) -> String {
    let error = face::keyless(error);
    let choices = match error.choices.is_empty() {
        true => String::new(),
        false => format!(" (`--agent` is one of {})", error.choices.join(", ")),
    };
    match &error.hint {
        Some(hint) => format!("{}{choices}: {hint}", error.error),
        None => format!("{}{choices}", error.error),
    }
}

fn unparsed(why: &str, out: &mut Outbox) {
    out.say(
        &json!({"type": "response", "command": "parse", "success": false,
        "error": format!("Failed to parse command: {why}")}),
    );
}

fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
    let text = std::str::from_utf8(line).map_err(|why| why.to_string())?;
    strict::check(text).map_err(|why| why.to_string())?;
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("the line is not an object".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

impl Face for Pi {
    fn client_line(&mut self, line: &[u8], _now: Instant, out: &mut Outbox) {
        match object(line) {
            Err(why) => unparsed(&why, out),
            Ok(fields) if fields.get("type") == Some(&json!("extension_ui_response")) => {
                self.answer(&fields, out);
            }
            Ok(fields) => self.command(Command::read(fields), out),
        }
    }

    fn client_line_too_long(&mut self, limit: usize, _now: Instant, out: &mut Outbox) {
        unparsed(&format!("the line is longer than {limit} bytes"), out);
    }

    /// The turn goes on without the client, which finds it again by its session.
    fn client_ended(&mut self, _now: Instant, out: &mut Outbox) {
        self.left = true;
        self.leave(out);
    }

    fn stopped(&mut self, _now: Instant, out: &mut Outbox) {
        (self.left, self.stopped) = (true, true);
        self.leave(out);
    }

    fn daemon_line(
        &mut self,
        ticket: Option<Ticket>,
        line: Received,
        _now: Instant,
        out: &mut Outbox,
    ) {
        let Some(ticket) = ticket else {
            return;
        };
        match self.asked.get(&ticket).map(|asked| &asked.what) {
            // Nobody has done it: the next daemon is asked, once this one has left.
            Some(_) if is_draining(&line) => {}
            Some(What::Turn) => self.turn_line(line, out),
            Some(_) => {
                let Some(asked) = self.asked.remove(&ticket) else {
                    return;
                };
                let result = match line.line {
                    Some(Line::Error(error)) => Err(refusal(&error)),
                    Some(line) => Ok(line),
                    None => Err("the daemon's answer was not understood".to_owned()),
                };
                self.answered(asked, result, out);
            }
            None => {}
        }
    }

    fn daemon_lost(&mut self, _now: Instant, out: &mut Outbox) {
        for (_, mut asked) in std::mem::take(&mut self.asked) {
            asked.lost += 1;
            if asked.lost > MOST_LOSSES {
                self.fail(asked, "the daemon was lost again and again", out);
                continue;
            }
            let ticket = out.ask(asked.kind, &asked.fields);
            self.asked.insert(ticket, asked);
        }
    }

    fn unreachable(&mut self, why: &ClientError, _now: Instant, out: &mut Outbox) {
        let why = face::sentence(why);
        for (_, asked) in std::mem::take(&mut self.asked) {
            self.fail(asked, &why, out);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn timer(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn is_done(&self) -> bool {
        let unaccepted = self.turn.as_ref().is_some_and(|turn| !turn.is_accepted());
        let counts = |asked: &Asked| match asked.what {
            // It goes on.
            What::Turn | What::Nobody => false,
            What::Left(_) | What::Steer(_) => true,
            // Its answer would be told to the client.
            _ => !self.stopped,
        };
        !(unaccepted || self.asked.values().any(counts) || !self.waiting.is_empty())
    }

    fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.turn.is_none()
    }

    fn only_follows(&self) -> bool {
        let mut asked = self.asked.values();
        asked.all(|asked| asked.kind == "subscribe")
    }

    fn leaves(&self) -> bool {
        self.stopped
    }
}
