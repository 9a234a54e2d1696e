//! MCP: agents as tools of whoever speaks the Model Context Protocol.
//!
//! Owns the methods, and which work goes on for which request. Must not know sockets, clocks or the
//! command line. All ids that a client sees are names of jobs, sessions and questions.

mod calls;
mod outcome;
mod peer;
mod question;
mod single;
mod task;
#[cfg(test)]
mod tests;
mod tools;
mod turn;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agentd_client::ClientError;
use agentd_client::wire::Received;
use agentd_protocol::{Code, Id, JobId, Line};
use serde_json::{Value, json};

use self::outcome::Outcome;
use self::peer::{Peer, Revision, TASKS};
pub use self::peer::{UNSUPPORTED_VERSION, VERSIONS, is_stateless, own_version, session};
use self::question::answer;
use self::tools::Tool;
use self::work::{Abandoned, Progress, Requests, Scene, Step, Work};
use crate::face::{Face, Outbox, Spoken, Ticket};
use crate::json_rpc::{self, Failure, INVALID_PARAMS, Message};

/// A client that says no more may still read what it asked for; for no longer than this.
const AFTER_THE_END: Duration = Duration::from_secs(60);
/// How long a list of ours may be kept, in milliseconds: it changes with the program.
const FRESH_MS: u64 = 3_600_000;
/// Tool calls of a client that are remembered as answered.
const MOST_USED: usize = 4096;

const INSTRUCTIONS: &str = "agentd runs AI agents (Claude Code, Codex, pi and others) for you. `ask` is \
one question and its answer. For parallel work `dispatch` it and `collect` the results later: jobs go on \
without you, and their results survive a restart. Go on with an agent by its `session`.";

/// What a face is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the client's user works: where agents do, if nobody says otherwise.
    pub cwd: Option<PathBuf>,
    /// Are the tools `questions` and `answer` offered?
    pub answers: bool,
    /// Does an `ask` that is cancelled end its job?
    pub abort_cancelled: bool,
    /// Of whom the client's names of tool calls are: two clients may use the same. Without it they
    /// don't count.
    pub scope: Option<String>,
    /// Another one for each face, at random.
    pub nonce: String,
    /// Does it run inside a job?
    pub inside: bool,
}

/// A request of the client that isn't answered.
struct Call {
    id: Id,
    peer: Peer,
    progress: Progress,
    /// What the client calls it, where that may come again.
    used: Option<String>,
    work: Box<dyn Work>,
}

/// The face.
pub struct Mcp {
    settings: Settings,
    /// As `initialize` told of it.
    peer: Peer,
    /// Where the client said that its user works.
    root: Option<PathBuf>,
    calls: BTreeMap<u64, Call>,
    tickets: BTreeMap<Ticket, u64>,
    /// Those of turns that were cancelled before they were accepted.
    unaccepted: BTreeSet<Ticket>,
    requests: Requests,
    spoken: Spoken,
    /// Answers to questions, under way.
    answers: BTreeMap<Ticket, String>,
    last: u64,
    used: BTreeSet<String>,
    ended: Option<Instant>,
}

impl Mcp {
    /// One for a new client.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            peer: Peer::default(),
            root: None,
            calls: BTreeMap::new(),
            tickets: BTreeMap::new(),
            unaccepted: BTreeSet::new(),
            requests: Requests::new(settings.nonce.clone()),
            spoken: Spoken::default(),
            answers: BTreeMap::new(),
            last: 0,
            used: BTreeSet::new(),
            ended: None,
            settings,
        }
    }

    /// One for the next request of a client over HTTP, which brings what `session` gave it; none where
    /// that didn't.
    #[must_use]
    pub fn of_session(settings: Settings, session: &str) -> Option<Self> {
        let peer = Peer::of_session(session)?;
        Some(Self {
            peer,
            ..Self::new(settings)
        })
    }

    fn request(&mut self, id: Id, method: &str, params: Value, now: Instant, out: &mut Outbox) {
        let answered = match Peer::of_request(&params, &self.peer) {
            Err(failure) => Err(failure),
            Ok(peer) => match method {
                "initialize" => self.initialize(&params).map(Some),
                "server/discover" => Ok(Some(discovered())),
                "ping" => Ok(Some(finished(json!({}), &peer))),
                "tools/list" => Ok(Some(self.list(&peer))),
                "tools/call" | "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update"
                | "tasks/list" => match self.work(method, params, &peer) {
                    Err(failure) => Err(failure),
                    Ok((work, facts)) => {
                        self.begin(facts.call(id.clone(), peer, work), now, out);
                        Ok(None)
                    }
                },
                _ => Err(Failure::no_method(method)),
            },
        };
        match answered {
            Ok(None) => {}
            Ok(Some(result)) => out.answer(&id, &result),
            Err(failure) => out.refuse(&id, &failure),
        }
    }

    fn initialize(&mut self, params: &Value) -> Result<Value, Failure> {
        self.peer = Peer::of_initialize(params)?;
        let mut capabilities = json!({"tools": {}});
        if self.peer.revision == Revision::November2025 {
            capabilities["tasks"] =
                json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        }
        Ok(json!({
            "protocolVersion": self.peer.revision.name(),
            "capabilities": capabilities,
            "serverInfo": server(),
            "instructions": INSTRUCTIONS,
        }))
    }

    fn list(&self, peer: &Peer) -> Value {
        let tools = Tool::offered(self.settings.answers).map(|tool| tool.definition(peer));
        let mut list = json!({"tools": tools.collect::<Vec<_>>()});
        if peer.is_stateless() {
            list["ttlMs"] = json!(FRESH_MS);
            list["cacheScope"] = json!("private");
        }
        finished(list, peer)
    }

    fn begin(&mut self, call: Call, now: Instant, out: &mut Outbox) {
        self.last += 1;
        let number = self.last;
        self.calls.insert(number, call);
        self.drive(number, now, out, |work, scene| work.begin(scene));
    }

    /// Gives something to the work of a call, and carries out what becomes of that.
    fn drive(
        &mut self,
        number: u64,
        now: Instant,
        out: &mut Outbox,
        give: impl FnOnce(&mut dyn Work, &mut Scene<'_>) -> Step,
    ) {
        let Some(mut call) = self.calls.remove(&number) else {
            return;
        };
        let mut tickets = Vec::new();
        let mut scene = Scene {
            now,
            peer: &call.peer,
            inside: self.settings.inside,
            progress: &mut call.progress,
            requests: &mut self.requests,
            spoken: &mut self.spoken,
            out,
            tickets: &mut tickets,
        };
        let mut step = give(&mut *call.work, &mut scene);
        while let Step::Becomes(next) = step {
            call.work = next;
            step = call.work.begin(&mut scene);
        }
        let goes_on = matches!(step, Step::Goes);
        match step {
            Step::Goes | Step::Becomes(_) => {}
            Step::Done(outcome) => {
                let result = finished(outcome.result(), &call.peer);
                out.answer(&call.id, &result);
            }
            Step::Answers(result) => {
                out.answer(&call.id, &finished(result, &call.peer));
            }
            Step::Fails(failure) => out.refuse(&call.id, &failure),
        }
        if goes_on {
            self.tickets
                .extend(tickets.into_iter().map(|ticket| (ticket, number)));
            self.calls.insert(number, call);
        } else {
            self.tickets.retain(|_, of| *of != number);
            if let Some(used) = call.used
                && self.used.len() < MOST_USED
            {
                self.used.insert(used);
            }
        }
    }

    /// All that goes on is given the same.
    fn drive_all(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        give: impl Fn(&mut dyn Work, &mut Scene<'_>) -> Step,
    ) {
        let numbers: Vec<u64> = self.calls.keys().copied().collect();
        for number in numbers {
            self.drive(number, now, out, &give);
        }
    }

    /// The client waits for a request no longer. Its turn goes on: clients say this when their own
    /// time is over, too.
    fn cancelled(&mut self, params: &Value, out: &mut Outbox) {
        let named = &params["requestId"];
        let is_it = |call: &Call| {
            serde_json::from_str::<Value>(call.id.as_json()).is_ok_and(|id| id == *named)
        };
        let found = self.calls.iter().find(|(_, call)| is_it(call));
        let Some(number) = found.map(|(number, _)| *number) else {
            return;
        };
        let Some(call) = self.calls.remove(&number) else {
            return;
        };
        out.forget(&call.id);
        let tickets = self.tickets.extract_if(.., |_, of| *of == number);
        let tickets: Vec<Ticket> = tickets.map(|(ticket, _)| ticket).collect();
        match call.work.abandoned() {
            _ if !self.settings.abort_cancelled => {}
            Abandoned::Job(job) => abort(job, out),
            Abandoned::Unaccepted(key) => {
                // Over a disk that hangs nobody may say here that it is accepted.
                out.abort(None, key.as_deref());
                self.unaccepted.extend(tickets);
            }
            Abandoned::Nothing => {}
        }
    }

    /// The daemon's word on what was cancelled before there was any.
    fn accepted_late(&mut self, ticket: Ticket, line: &Received, out: &mut Outbox) {
        if let Some(Line::Accepted(accepted)) = &line.line {
            abort(accepted.job, out);
        } else if !line.is_final() {
            return;
        }
        self.unaccepted.remove(&ticket);
    }

    fn notified(&mut self, method: &str, params: &Value, out: &mut Outbox) {
        match method {
            "notifications/cancelled" => self.cancelled(params, out),
            "notifications/initialized" | "notifications/roots/list_changed" if self.peer.roots => {
                self.requests.ask_roots(out);
            }
            // Nobody waits for an answer.
            _ => {}
        }
    }

    /// The client's answer to a request of ours.
    fn answered(&mut self, id: &Id, result: Result<Value, Failure>, out: &mut Outbox) {
        if self.requests.roots.as_ref() == Some(id) {
            self.requests.roots = None;
            self.root = result.ok().as_ref().and_then(calls::first_root);
        } else if let Some((question, kind)) = question::named(id) {
            self.requests.put.remove(&question);
            // A client that can't put it to anybody is nobody there.
            let form = result.unwrap_or_default();
            let fields = answer(&question, Some(kind), &form);
            self.answers.insert(out.ask("answer", &fields), question);
        }
    }

    /// An answer that doesn't fit its question: without any, the turn would wait for another one.
    fn refused(&mut self, ticket: Ticket, line: Option<&Line>, out: &mut Outbox) {
        let question = self.answers.remove(&ticket);
        if let (Some(id), Some(Line::Error(error))) = (question, line)
            && error.code == Code::InvalidRequest
        {
            out.ask("answer", &json!({"question_id": id, "cancel": true}));
        }
    }
}

impl Face for Mcp {
    fn client_line(&mut self, line: &[u8], now: Instant, out: &mut Outbox) {
        match Message::parse(line) {
            Message::Request { id, .. } if !out.takes(&id) => {}
            Message::Request { id, method, params } => self.request(id, &method, params, now, out),
            Message::Notification { method, params } => self.notified(&method, &params, out),
            Message::Response { id, result } => self.answered(&id, result, out),
            Message::Invalid { id, failure } => {
                out.say(&json_rpc::error(id.as_ref(), &failure));
            }
        }
    }

    fn client_line_too_long(&mut self, limit: usize, _now: Instant, out: &mut Outbox) {
        if let Message::Invalid { id, failure } = Message::too_long(limit) {
            out.say(&json_rpc::error(id.as_ref(), &failure));
        }
    }

    fn client_ended(&mut self, now: Instant, _out: &mut Outbox) {
        self.ended = Some(now + AFTER_THE_END);
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
        if self.unaccepted.contains(&ticket) {
            self.accepted_late(ticket, &line, out);
        } else if self.answers.contains_key(&ticket) {
            self.refused(ticket, line.line.as_ref(), out);
        } else if let Some(number) = self.tickets.get(&ticket).copied() {
            self.drive(number, now, out, |work, scene| {
                work.line(ticket, line, scene)
            });
        }
    }

    fn daemon_lost(&mut self, now: Instant, out: &mut Outbox) {
        self.tickets.clear();
        // Nobody asks for them again: what was accepted goes on, as without the option.
        self.unaccepted.clear();
        self.answers.clear();
        self.drive_all(now, out, |work, scene| work.lost(scene));
    }

    fn unreachable(&mut self, why: &ClientError, now: Instant, out: &mut Outbox) {
        self.unaccepted.clear();
        self.answers.clear();
        self.drive_all(now, out, |work, _scene| work.unreachable(why));
    }

    fn deadline(&self) -> Option<Instant> {
        let calls = self.calls.values().filter_map(|call| call.work.deadline());
        calls.chain(self.ended).min()
    }

    fn timer(&mut self, now: Instant, out: &mut Outbox) {
        if self.ended.is_some_and(|ended| now >= ended) {
            let hint = Some("its job goes on: `agentctl jobs` shows it");
            let why = "the input has ended, and the time for answers is over";
            self.drive_all(now, out, |_work, _scene| {
                Step::Done(Outcome::refusal("ended", why, hint))
            });
        }
        let due = |call: &Call| call.work.deadline().is_some_and(|at| now >= at);
        let due = self.calls.iter().filter(|(_, call)| due(call));
        let numbers: Vec<u64> = due.map(|(number, _)| *number).collect();
        for number in numbers {
            self.drive(number, now, out, |work, scene| work.timer(scene));
        }
    }

    fn is_done(&self) -> bool {
        self.calls.is_empty() && self.unaccepted.is_empty() && self.answers.is_empty()
    }
}

fn abort(job: JobId, out: &mut Outbox) {
    out.ask("abort", &json!({"job": job}));
}

fn server() -> Value {
    json!({"name": "agentd", "title": "agentd", "version": env!("CARGO_PKG_VERSION")})
}

fn discovered() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": VERSIONS,
        "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
        "serverInfo": server(),
        "_meta": {"io.modelcontextprotocol/serverInfo": server()},
        "instructions": INSTRUCTIONS,
        "ttlMs": FRESH_MS,
        "cacheScope": "private",
    })
}

/// A result says that it is all, where the revision has others.
fn finished(mut result: Value, peer: &Peer) -> Value {
    if peer.is_stateless() && result.get("resultType").is_none() {
        result["resultType"] = json!("complete");
    }
    result
}

/// Params that aren't what a method takes.
fn invalid(why: impl Into<String>) -> Failure {
    Failure::new(INVALID_PARAMS, why)
}
