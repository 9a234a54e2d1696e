//! The Agent Client Protocol: any agent as one of an editor's.
//!
//! Owns the connection to the editor: its requests, and which of the daemon's lines answers what. A
//! session's id is its name, and everything else has a name made from jobs, so a face that is started
//! anew goes on where the last one was. Must not know agents, nor read files or start programs.

mod bootstrap;
mod failure;
mod history;
mod opening;
mod options;
mod prompt;
mod question;
mod servers;
mod sessions;
mod state;
mod tool;
mod turn;
mod turns;
mod wire;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use agentd_client::ClientError;
use agentd_client::client::is_draining;
use agentd_client::wire::Received;
use agentd_protocol::line::Line;
use agentd_protocol::{Id, JobId};
use serde::Serialize;
use serde_json::{Value, json};

use crate::face::{Face, Outbox, Ticket};
use crate::json_rpc::{self, Failure, Message, params};
use state::{Asked, Deletion, Put, Session, Way, What};
use turn::Turn;
use wire::{Notification, Update};

pub use bootstrap::entries;

/// A request that was lost with so many connections isn't asked for again: the daemon may die of it.
const MOST_LOSSES: u32 = 5;
/// Output of running calls is told this often: each time all of it is.
const OUTPUT_PAUSE: Duration = Duration::from_millis(100);
const AGAIN_AND_AGAIN: &str = "the daemon was lost again and again";
/// What was asked before the client ended is waited for so long.
const LAST_PATIENCE: Duration = Duration::from_secs(10);

/// Who serves the editor.
#[derive(Debug)]
pub struct Acp {
    /// Makes names that nobody else has.
    nonce: String,
    /// Names made so far.
    made: u64,
    /// Who answers in new sessions, unless the client says who.
    agent: Option<String>,
    client: Can,
    sessions: BTreeMap<String, Session>,
    turns: BTreeMap<JobId, Turn>,
    asked: BTreeMap<Ticket, Asked>,
    /// The subscription, under which turns of others are told, and those of a lost connection.
    following: Option<Ticket>,
    /// Who can be chosen; `None` until somebody asked.
    agents: Option<Agents>,
    puts: BTreeMap<String, Put>,
    /// What the first page of the last list had: the pages behind it leave it out.
    listed: BTreeSet<String>,
    /// Deletions that wait for turns to end, with the time of the next look.
    deletions: Vec<(Instant, Deletion)>,
    output_at: Option<Instant>,
    /// Connections that were lost since the daemon last said something.
    losses: u32,
    /// When the client ended, what is still waited for is given up.
    ends_at: Option<Instant>,
    given_up: bool,
}

/// What the client can show.
#[derive(Clone, Copy, Default, Debug)]
struct Can {
    forms: bool,
    notices: bool,
}

#[derive(Clone, Debug)]
enum Agents {
    Asked,
    Known(Vec<String>),
}

impl Acp {
    /// Serves one editor. `nonce` is new for each process: a client counts its requests from 0 in each,
    /// so what may be asked twice is named by it.
    #[must_use]
    pub fn new(agent: Option<String>, nonce: String) -> Self {
        Self {
            nonce,
            made: 0,
            agent,
            client: Can::default(),
            sessions: BTreeMap::new(),
            turns: BTreeMap::new(),
            asked: BTreeMap::new(),
            following: None,
            agents: None,
            puts: BTreeMap::new(),
            listed: BTreeSet::new(),
            deletions: Vec::new(),
            output_at: None,
            losses: 0,
            ends_at: None,
            given_up: false,
        }
    }

    /// A name that nobody else makes.
    fn name(&mut self) -> String {
        self.made += 1;
        format!("acp-{}-{}", self.nonce, self.made)
    }

    fn ask(&mut self, kind: &'static str, fields: &impl Serialize, what: What, out: &mut Outbox) {
        let fields = serde_json::to_value(fields).unwrap_or_default();
        let ticket = out.ask(kind, &fields);
        let asked = Asked {
            kind,
            fields,
            what,
            lost: 0,
        };
        self.asked.insert(ticket, asked);
    }

    fn request(&mut self, id: Id, method: &str, given: Value, now: Instant, out: &mut Outbox) {
        let done = match method {
            "initialize" => params(given).map(|read| self.initialize(&id, &read, out)),
            "authenticate" => Err(failure::invalid(
                "no way to log in is offered: agents are logged in by their own programs",
            )),
            "session/new" => params(given).and_then(|new| self.new_session(&id, new, now, out)),
            "session/load" => params(given)
                .and_then(|open| self.open_session(&id, open, state::How::Load, now, out)),
            "session/resume" => params(given)
                .and_then(|open| self.open_session(&id, open, state::How::Resume, now, out)),
            "session/list" => params(given).and_then(|list| self.list_sessions(&id, list, out)),
            "session/fork" => params(given).and_then(|open| self.fork_session(&id, open, now, out)),
            "session/set_title" => params(given).and_then(|set| self.title_session(&id, set, out)),
            "session/close" => params(given).and_then(|of| self.close_session(&id, &of, out)),
            "session/delete" => params(given).map(|of| self.delete_session(&id, of, now, out)),
            "session/prompt" => params(given).and_then(|prompt| self.prompt(&id, prompt, out)),
            "session/set_config_option" => params(given).and_then(|set: wire::SetOption| {
                let wire::SetOption {
                    session_id,
                    config_id,
                    value,
                } = set;
                let chosen = (config_id.as_str(), value.as_str());
                self.choose(&id, &session_id, chosen, Way::Option, now, out)
            }),
            "session/set_model" => params(given).and_then(|set: wire::SetModel| {
                let chosen = (options::MODEL, set.model_id.as_str());
                self.choose(&id, &set.session_id, chosen, Way::Older, now, out)
            }),
            "session/set_mode" => params(given).and_then(|set: wire::SetMode| {
                let known = self.sessions.get(&set.session_id);
                let option = known.map(|known| known.offer.option_of_mode(&set.mode_id));
                let chosen = (option.unwrap_or(options::AGENT), set.mode_id.as_str());
                self.choose(&id, &set.session_id, chosen, Way::Older, now, out)
            }),
            _ => Err(Failure::no_method(method)),
        };
        if let Err(failure) = done {
            out.refuse(&id, &failure);
        }
    }

    fn notified(&mut self, method: &str, given: Value, out: &mut Outbox) {
        // Nobody hears what is wrong with a notification, and what isn't known may be ignored.
        match method {
            "session/cancel" => {
                if let Ok(of) = params::<wire::OfSession>(given) {
                    self.cancel(&of.session_id, None, out);
                }
            }
            "$/cancel_request" => {
                if let Ok(of) = params::<wire::CancelRequest>(given) {
                    self.cancel_request(&of.request_id.to_string(), out);
                }
            }
            _ => {}
        }
    }

    fn initialize(&mut self, id: &Id, read: &wire::Initialize, out: &mut Outbox) {
        let offers = |path: &str| {
            let found = read.client_capabilities.pointer(path);
            found.is_some_and(Value::is_object)
        };
        self.client = Can {
            forms: offers("/elicitation/form"),
            notices: offers("/session/notices"),
        };
        let answer = json!({
            "protocolVersion": wire::VERSION,
            "agentInfo": {"name": "agentd", "title": "agentd", "version": env!("CARGO_PKG_VERSION")},
            "authMethods": [],
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": {"image": true, "audio": false, "embeddedContext": true},
                "mcpCapabilities": {"http": true, "sse": false},
                "sessionCapabilities": {
                    "list": {}, "resume": {}, "close": {}, "delete": {}, "fork": {}, "title": {},
                },
            },
        });
        out.answer(id, &answer);
    }

    /// Tells what is new of a session that is open here. Notices go to clients that show them; of some,
    /// others are told in the agent's place.
    fn tell(&self, session: &str, updates: &[Update], out: &mut Outbox) {
        if !self.sessions.contains_key(session) {
            return;
        }
        for update in updates {
            let shown = match update {
                Update::Notice { instead, .. } if !self.client.notices => instead.as_deref(),
                update => Some(update),
            };
            let Some(update) = shown else {
                continue;
            };
            let told = Notification {
                session_id: session,
                update,
            };
            out.say(&json_rpc::notification("session/update", &told));
        }
    }

    /// The last line of a request that isn't a turn.
    fn answered(&mut self, asked: Asked, line: Received, now: Instant, out: &mut Outbox) {
        let result = match line.line {
            Some(Line::Error(error)) => Err(failure::of(&error)),
            Some(line) => Ok(line),
            None => Err(Failure::new(
                json_rpc::INTERNAL_ERROR,
                format!("the daemon's answer was not understood: `{}`", line.kind),
            )),
        };
        self.settled(asked, result, now, out);
    }

    /// What was asked has an end; it is said to whoever waits for it.
    fn settled(
        &mut self,
        asked: Asked,
        result: Result<Line, Failure>,
        now: Instant,
        out: &mut Outbox,
    ) {
        let again = asked.lost > 0;
        match asked.what {
            What::Made(session) | What::Forked(session) => {
                self.made(&session, again, result, out);
            }
            What::Unmade { session, agent } => self.unmade(&session, agent, result, out),
            What::Remade { session, before } => {
                self.remade(&session, before, again, result, out);
            }
            What::Looked(session) => self.looked(&session, result, out),
            What::Titled(session) => self.titled(&session, result, out),
            What::Listed(reply, page) => self.listed(&reply, page, result, out),
            What::Closing { reply, session } => Self::closing(&reply, &session, result, out),
            What::Deleted(deletion) => self.deleted(deletion, result, now, out),
            What::Done(reply) => match result {
                Ok(_) => out.answer(&reply, &json!({})),
                Err(failure) => out.refuse(&reply, &failure),
            },
            What::Models { session, rows } => self.have_models(&session, rows, result, out),
            What::Commands(session) => self.have_commands(&session, result, out),
            What::Agents => self.have_agents(result, out),
            What::History(session) => self.have_history(&session, None, result, out),
            What::Piece { session, piece } => {
                self.have_history(&session, Some(piece), result, out);
            }
            What::Turns(session) => self.have_turns(&session, result, out),
            What::InFlight(session) => self.have_in_flight(&session, result),
            What::Set {
                session,
                reply,
                way,
            } => self.set(&session, &reply, way, result, out),
            What::SetAgain(session) => self.has_set_again(&session, result, out),
            What::Prompt {
                reply, cancelled, ..
            } => match result {
                // It may be accepted, and then it runs: nobody knows that it was cancelled.
                Err(failure) if !cancelled || failure::is_unknown(&failure) => {
                    out.refuse(&reply, &failure);
                }
                _ if cancelled => turns::say_cancelled(&reply, out),
                // Its lines come one by one.
                _ => {}
            },
            What::Turn(job) => {
                if let Err(failure) = result {
                    self.lose_turn(job, &failure, out);
                }
            }
            What::Nobody => {}
        }
        self.settle_all(now, out);
    }

    /// Asks again for what was lost with its connection: nothing is done twice.
    fn ask_again(&mut self, now: Instant, out: &mut Outbox) {
        for (_, mut asked) in std::mem::take(&mut self.asked) {
            asked.lost += 1;
            if matches!(asked.what, What::Turn(_)) {
                // It is followed by its number.
                continue;
            }
            if asked.lost > MOST_LOSSES {
                let failure = lost(&asked, AGAIN_AND_AGAIN);
                self.settled(asked, Err(failure), now, out);
                continue;
            }
            let ticket = out.ask(asked.kind, &asked.fields);
            self.asked.insert(ticket, asked);
        }
        self.following = None;
        self.follow(out);
    }
}

/// Of a request that was written, and has no answer.
fn lost(asked: &Asked, why: &str) -> Failure {
    match asked.what {
        What::Prompt { .. } => failure::outcome_unknown(why),
        // Whatever else is asked can be asked again.
        _ => failure::gone(why),
    }
}

impl Face for Acp {
    fn client_line(&mut self, line: &[u8], now: Instant, out: &mut Outbox) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match Message::parse(line) {
            Message::Request { id, .. } if !out.takes(&id) => {}
            Message::Request { id, method, params } => {
                self.request(id, &method, params, now, out);
            }
            Message::Notification { method, params } => self.notified(&method, params, out),
            Message::Response { id, result } => self.client_answered(&id, result, out),
            Message::Invalid { id, failure } => out.say(&json_rpc::error(id.as_ref(), &failure)),
        }
    }

    fn client_line_too_long(&mut self, limit: usize, _now: Instant, out: &mut Outbox) {
        if let Message::Invalid { id, failure } = Message::too_long(limit) {
            out.say(&json_rpc::error(id.as_ref(), &failure));
        }
    }

    fn client_ended(&mut self, now: Instant, out: &mut Outbox) {
        self.ends_at = Some(now + LAST_PATIENCE);
        self.settle_all(now, out);
    }

    fn daemon_line(
        &mut self,
        ticket: Option<Ticket>,
        line: Received,
        now: Instant,
        out: &mut Outbox,
    ) {
        let Some(ticket) = ticket else {
            return;
        };
        self.losses = 0;
        if self.following == Some(ticket) {
            return self.followed_line(line, now, out);
        }
        match self.asked.get(&ticket).map(|asked| &asked.what) {
            Some(What::Prompt { .. } | What::Turn(_)) => self.turn_line(ticket, line, now, out),
            // It is asked for again when this daemon has left.
            Some(_) if is_draining(&line) => {}
            Some(_) if line.is_final() => {
                if let Some(asked) = self.asked.remove(&ticket) {
                    self.answered(asked, line, now, out);
                }
            }
            Some(_) | None => {}
        }
    }

    fn daemon_lost(&mut self, now: Instant, out: &mut Outbox) {
        self.losses += 1;
        if self.losses > MOST_LOSSES {
            let failure = failure::outcome_unknown(AGAIN_AND_AGAIN);
            self.lose_turns(&failure, out);
        }
        self.ask_again(now, out);
    }

    fn unreachable(&mut self, why: &ClientError, now: Instant, out: &mut Outbox) {
        let never = failure::unreachable(why);
        let maybe = failure::outcome_unknown(&why.to_string());
        for (_, asked) in std::mem::take(&mut self.asked) {
            let failure = match asked.lost {
                0 => never.clone(),
                _ => lost(&asked, &why.to_string()),
            };
            self.settled(asked, Err(failure), now, out);
        }
        self.following = None;
        self.lose_turns(&maybe, out);
    }

    fn deadline(&self) -> Option<Instant> {
        let has_agents = self.has_agents();
        let openings = self.sessions.values();
        let openings = openings.filter_map(|one| one.opening.as_ref()?.deadline(has_agents));
        let ends = self.ends_at.filter(|_| !self.given_up);
        let deletions = self.deletions.iter().map(|(at, _)| *at);
        let deletions = deletions.chain(self.output_at);
        openings.chain(deletions).chain(ends).min()
    }

    fn timer(&mut self, now: Instant, out: &mut Outbox) {
        if self.output_at.is_some_and(|at| at <= now) {
            self.output_at = None;
            self.tell_output(out);
        }
        self.delete_again(now, out);
        self.given_up |= self.ends_at.is_some_and(|at| at <= now);
        self.settle_all(now, out);
    }

    fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.turns.is_empty()
    }

    /// Accepted turns go on without the client, who finds them by `session/load`.
    fn is_done(&self) -> bool {
        let waited =
            |asked: &Asked| !matches!(asked.what, What::Turn(_) | What::Commands(_) | What::Nobody);
        let open = self.sessions.values().any(|one| one.opening.is_some());
        let deletes = !self.deletions.is_empty();
        self.given_up || !(open || deletes || self.asked.values().any(waited))
    }
}
