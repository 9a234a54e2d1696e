//! Hermes' TUI gateway: any agent for the Ink TUI, and for other clients of its JSON-RPC.
//!
//! Owns the connection to the client, and which of the daemon's answers is whose. A session's id is
//! its name and a task's its job, so a gateway that is started anew goes on where the last one was.
//! Must not know agents, nor read files or start programs.

mod answers;
mod beside;
mod commands;
mod methods;
mod past;
mod question;
mod row;
mod sessions;
mod settings;
mod showing;
#[cfg(test)]
mod tests;
mod turn;
mod turns;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use agentd_client::ClientError;
use agentd_client::again::MOST_LOSSES;
use agentd_client::client::is_draining;
use agentd_client::wire::Received;
use agentd_protocol::attachment::Attachment;
use agentd_protocol::line::{CommandRow, ErrorLine, Line};
use agentd_protocol::models::ModelRow;
use agentd_protocol::request::Subscribe;
use agentd_protocol::rows::{SessionPhase, SessionRow, TurnRow};
use agentd_protocol::usage::Usage;
use agentd_protocol::{Code, Id, JobId};
use serde::Serialize;
use serde_json::{Value, json};

use self::question::Question;
use self::turn::Turn;
use crate::face::{self, Face, Outbox, Ticket};
use crate::json_rpc::{self, Failure, Message};

/// No session of that name.
const NO_SESSION: i64 = 4001;
/// A value that isn't taken.
const BAD_VALUE: i64 = 4002;
/// Something needed is missing.
const MISSING: i64 = 4004;
/// A session that could be resumed isn't there.
const NOT_STORED: i64 = 4007;
/// A turn runs, or nothing waits for an answer.
const BUSY: i64 = 4009;
/// Not a command of this gateway.
const NO_COMMAND: i64 = 4018;
/// The daemon refused.
const REFUSED: i64 = 5000;
/// No agent could be had.
const NO_AGENT: i64 = 5032;

/// What the gateway is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who answers in new sessions; without, the default.
    pub agent: Option<String>,
    /// Where the client works: where a new session does.
    pub here: Option<String>,
    /// Another one for each process, at random.
    pub nonce: String,
}

/// A request of the client.
#[derive(Clone, Debug)]
struct Call {
    id: Id,
    method: String,
    params: Value,
}

/// What becomes of a request: its result, nothing yet, or why there is none.
type Begun = Result<Option<Value>, Failure>;

/// A request to the daemon that has no answer.
#[derive(Debug)]
struct Asked {
    kind: &'static str,
    fields: Value,
    what: What,
    lost: u32,
}

/// What it is for.
#[derive(Debug)]
enum What {
    /// Nobody waits, and it has to be done.
    Nobody,
    /// The same, and it may be left.
    Models(String),
    Commands(String),
    /// A prompt, until it is accepted: whose, in which session, and its text.
    Prompt(Id, String, String),
    Background(Id, String),
    /// Which turns run beside that session; and what those said that have ended meanwhile.
    Beside(String, Vec<(JobId, String)>),
    /// What those ask.
    Questions,
    /// Its lines come one by one.
    Turn(JobId),
    /// That session is looked for, for this request.
    Look(Call, String),
    /// A title is looked for.
    ByTitle(Call, String),
    Made(Id, Box<wire::Create>, String),
    MadeSet(Id, Box<wire::Create>, String),
    Listed(Id, row::Lists),
    Past(Box<Opening>),
    History(Id, Vec<TurnRow>),
    Title(Id, String),
    Titled(Id, String),
    Usage(Id, String),
    Branched(Id, String, Option<String>),
    Compressed(Id, String),
    Steered(Id, String, commands::How),
    Deleted(Id, String),
    Answered(Id, Vec<String>, Value),
    Interrupted(Id, Value),
    /// A model is looked for, to be set.
    Choosing(Id, settings::Choice, Vec<ModelRow>),
    Set(Id, settings::Choice),
    Options(Id, Option<String>, Vec<ModelRow>),
    Delegation(Id),
    /// Done is done: that is the answer.
    Done(Id, Value),
}

/// A session that is shown from its beginning.
#[derive(Debug)]
struct Opening {
    reply: Id,
    session: String,
    resumes: bool,
    row: SessionRow,
    turns: Vec<TurnRow>,
    /// Turns that ended since it was asked for.
    ended: Vec<JobId>,
}

/// A session that the client made, activated or spoke in.
#[derive(Debug, Default)]
struct Session {
    agent: String,
    cwd: String,
    provider: Option<String>,
    model: Option<String>,
    thinking: Option<String>,
    title: String,
    state: SessionPhase,
    /// Had it no turn?
    is_empty: bool,
    /// Has the client named it as its current one since it was shown?
    is_looked_at: bool,
    used: Usage,
    turns: u64,
    context: Option<(u64, u64)>,
    /// The agent's own.
    commands: Vec<CommandRow>,
    /// What goes with the next prompt.
    attachments: Vec<Attachment>,
}

/// The face.
#[derive(Debug)]
pub struct Gateway {
    settings: Settings,
    made: u64,
    /// When it greets: at once.
    greets_at: Option<Instant>,
    sessions: BTreeMap<String, Session>,
    /// All turns in flight: the text so far is told to whoever opens the session later.
    turns: BTreeMap<JobId, Turn>,
    questions: Vec<Question>,
    asked: BTreeMap<Ticket, Asked>,
    /// The subscription to everything.
    following: Option<Ticket>,
    /// The last numbered line that was told.
    seq: Option<u64>,
    /// Turns that ended since a daemon was lost: the subscription may tell of them once more.
    over: Option<BTreeSet<JobId>>,
    /// What is told of turns that may be those of prompts which are asked for again.
    held: Vec<(JobId, Received)>,
    /// Connections that were lost since the daemon last said something.
    losses: u32,
    /// What the client set for itself, while it is connected.
    kept: BTreeMap<String, Value>,
    stopped: bool,
}

impl Gateway {
    /// One for a new client.
    #[must_use]
    pub const fn new(settings: Settings, now: Instant) -> Self {
        Self {
            settings,
            made: 0,
            greets_at: Some(now),
            sessions: BTreeMap::new(),
            turns: BTreeMap::new(),
            questions: Vec::new(),
            asked: BTreeMap::new(),
            following: None,
            seq: None,
            over: None,
            held: Vec::new(),
            losses: 0,
            kept: BTreeMap::new(),
            stopped: false,
        }
    }

    fn greet(&mut self, out: &mut Outbox) {
        if self.greets_at.take().is_some() {
            event("gateway.ready", None, Some(&json!({"skin": {}})), out);
        }
    }

    /// A name that nobody else makes.
    fn name(&mut self) -> String {
        self.made += 1;
        let short: String = self.settings.nonce.chars().take(12).collect();
        format!("tui{}-{short}", self.made)
    }

    fn ask(&mut self, kind: &'static str, fields: &impl Serialize, what: What, out: &mut Outbox) {
        self.follow(out);
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

    /// Subscribes to everything, if that isn't so.
    fn follow(&mut self, out: &mut Outbox) {
        if self.following.is_none() {
            let wanted = Subscribe {
                after: self.seq,
                sessions: true,
                ..Subscribe::default()
            };
            self.following = Some(out.ask("subscribe", &wanted));
        }
    }

    fn call(&mut self, call: Call, out: &mut Outbox) {
        let id = call.id.clone();
        match self.begin(call, out) {
            Ok(None) => {}
            Ok(Some(result)) => out.answer(&id, &result),
            Err(failure) => out.refuse(&id, &failure),
        }
    }
}

/// Says an event.
fn event(kind: &str, session: Option<&str>, payload: Option<&Value>, out: &mut Outbox) {
    let mut params = json!({"type": kind});
    if let Some(session) = session {
        params["session_id"] = json!(session);
    }
    if let Some(payload) = payload {
        params["payload"] = payload.clone();
    }
    out.say(&json_rpc::notification("event", &params));
}

fn no_session(session: &str) -> Failure {
    let shown: String = session.chars().take(200).collect();
    let why = format!("session not found: there is no `{shown}`; session.list has those there are");
    Failure::new(NO_SESSION, why)
}

/// An error of the daemon.
fn failure(error: &ErrorLine) -> Failure {
    let code = match error.code {
        Code::UnknownSession => NO_SESSION,
        Code::SessionBusy => BUSY,
        Code::InvalidRequest | Code::Unsupported => BAD_VALUE,
        Code::NoAgent
        | Code::UnknownAgent
        | Code::Ambiguous
        | Code::AgentAuth
        | Code::WorkerStartFailed => NO_AGENT,
        _ => REFUSED,
    };
    Failure {
        data: Some(json!({"code": error.code})),
        ..Failure::new(code, face::hinted(error))
    }
}

impl Face for Gateway {
    fn client_line(&mut self, line: &[u8], _now: Instant, out: &mut Outbox) {
        self.greet(out);
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match Message::parse(line) {
            Message::Request { id, .. } if !out.takes(&id) => {}
            Message::Request { id, method, params } => {
                self.call(Call { id, method, params }, out);
            }
            // None is known, and nothing of ours waits for an answer.
            Message::Notification { .. } | Message::Response { .. } => {}
            Message::Invalid { id, failure } => out.say(&json_rpc::error(id.as_ref(), &failure)),
        }
    }

    fn client_line_too_long(&mut self, limit: usize, _now: Instant, out: &mut Outbox) {
        if let Message::Invalid { id, failure } = Message::too_long(limit) {
            out.say(&json_rpc::error(id.as_ref(), &failure));
        }
    }

    /// Turns go on without the client, which finds them again by their sessions.
    fn client_ended(&mut self, _now: Instant, out: &mut Outbox) {
        self.leave(out);
    }

    fn stopped(&mut self, _now: Instant, out: &mut Outbox) {
        self.stopped = true;
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
        self.losses = 0;
        if self.following == Some(ticket) {
            return self.followed_line(line, out);
        }
        match self.asked.get(&ticket).map(|asked| &asked.what) {
            // Nobody has done it: the next daemon is asked, once this one has left.
            Some(_) if is_draining(&line) => {}
            Some(What::Prompt(..) | What::Background(..) | What::Turn(_)) => {
                self.turn_line(ticket, line, out);
                self.release(out);
            }
            Some(_) => {
                let Some(asked) = self.asked.remove(&ticket) else {
                    return;
                };
                let result = match line.line {
                    Some(Line::Error(error)) => Err(failure(&error)),
                    Some(line) => Ok(line),
                    None => Err(Failure::new(
                        json_rpc::INTERNAL_ERROR,
                        "the daemon's answer was not understood",
                    )),
                };
                self.answered(asked, result, out);
            }
            None => {}
        }
    }

    fn daemon_lost(&mut self, _now: Instant, out: &mut Outbox) {
        self.following = None;
        self.over.get_or_insert_default();
        self.losses += 1;
        if self.losses <= MOST_LOSSES && !self.sessions.is_empty() {
            self.follow(out);
        }
        for (_, mut asked) in std::mem::take(&mut self.asked) {
            asked.lost += 1;
            // The subscription tells of turns.
            if matches!(asked.what, What::Turn(_)) {
                continue;
            }
            if asked.lost > MOST_LOSSES {
                let why = "the daemon was lost again and again";
                self.answered(asked, Err(Failure::new(REFUSED, why)), out);
                continue;
            }
            let ticket = out.ask(asked.kind, &asked.fields);
            self.asked.insert(ticket, asked);
        }
    }

    fn unreachable(&mut self, why: &ClientError, _now: Instant, out: &mut Outbox) {
        let why = face::sentence(why);
        self.following = None;
        self.held.clear();
        self.lose_turns(&why, out);
        for (_, asked) in std::mem::take(&mut self.asked) {
            self.answered(asked, Err(Failure::new(REFUSED, why.clone())), out);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.greets_at
    }

    fn timer(&mut self, _now: Instant, out: &mut Outbox) {
        self.greet(out);
    }

    fn is_done(&self) -> bool {
        let counts = |asked: &Asked| match asked.what {
            // They go on.
            What::Turn(_)
            | What::Models(_)
            | What::Commands(_)
            | What::Beside(..)
            | What::Questions => false,
            What::Nobody | What::Prompt(..) | What::Background(..) => true,
            // Its answer would be told to the client.
            _ => !self.stopped,
        };
        self.greets_at.is_none() && !self.asked.values().any(counts)
    }

    fn leaves(&self) -> bool {
        self.stopped
    }
}
