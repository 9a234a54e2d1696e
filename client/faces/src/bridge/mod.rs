//! The JSONL bridge: agents for a host that writes `run` and reads events, a line each.
//!
//! Owns the requests, which runs go on in which sessions, and what each line of the daemon belongs to.
//! A session's id is its name, so the next process goes on where this one was. Must not know agents,
//! nor what the text of a message is cut into.

mod request;
mod run;
#[cfg(test)]
mod tests;
mod told;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use agentd_client::ClientError;
use agentd_client::again::MOST_LOSSES;
use agentd_client::client::is_draining;
use agentd_client::wire::Received;
use agentd_protocol::Code;
use agentd_protocol::limits::MAX_LINE_IN;
use agentd_protocol::line::{Line, TurnFacts};
use agentd_protocol::request::check_session;
use agentd_protocol::rows::SessionPhase;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use self::request::{Asks, Failure, Stage, Wanted};
use self::run::{BUSY, Run, Why};
use crate::face::{self, Face, Outbox, Spoken, Ticket};
use crate::openai::fits_label;

/// Runs that are to end have so long.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a request has besides its fields.
const ENVELOPE: usize = 256;
/// The host's own word for a session, where that can't be its name.
const SESSION: &str = "bridge.session";

/// What a bridge is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who answers; the default agent without.
    pub agent: Option<String>,
    /// Where the host works: where a new session does, if nobody says otherwise.
    pub here: Option<String>,
    /// The first request is the only one, but for what ends a run.
    pub once: bool,
    /// What counts for a run that doesn't say otherwise.
    pub defaults: Defaults,
    /// Another one for each bridge, at random.
    pub nonce: String,
    /// The time of day: every event says it.
    pub clock: fn() -> SystemTime,
}

/// What a run has that doesn't say otherwise.
#[derive(Clone, Default, Debug)]
#[allow(missing_docs, reason = "they are the options of the command line")]
pub struct Defaults {
    pub cwd: Option<String>,
    pub model: Option<String>,
    pub toolsets: Option<Vec<String>>,
    pub disabled_toolsets: Option<Vec<String>>,
    pub max_iterations: Option<u64>,
    pub deltas: bool,
    pub chunk: Option<usize>,
    pub native: bool,
    pub native_stream: bool,
    pub first_chunk_ms: Option<u64>,
    pub idle_ms: Option<u64>,
}

/// What was asked for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// That its session is closed: it begins anew.
    Closing,
    /// Whether there is such a session.
    Looking,
    Sending,
}

/// An answer of the daemon that somebody waits for.
enum Waits {
    Run(u64, Step),
    /// Of a run that isn't ours.
    Interrupt {
        request_id: Option<Value>,
        session_id: String,
    },
}

/// The face.
pub struct Bridge {
    settings: Settings,
    runs: BTreeMap<u64, Run>,
    waits: BTreeMap<Ticket, Waits>,
    spoken: Spoken,
    last: u64,
    /// Was the one request of `once` made?
    used: bool,
    /// When what goes on is given up, once it is to end.
    ends_at: Option<Instant>,
}

impl Bridge {
    /// One for a new host.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            runs: BTreeMap::new(),
            waits: BTreeMap::new(),
            spoken: Spoken::default(),
            last: 0,
            used: false,
            ends_at: None,
        }
    }

    fn run(
        &mut self,
        request_id: Option<Value>,
        session_id: Option<String>,
        wanted: Box<Wanted>,
        out: &mut Outbox,
    ) -> Result<(), Failure> {
        if self.ends_at.is_some() {
            return Err(Failure::invalid("The bridge is shutting down."));
        }
        if self.settings.once && self.used {
            let why = "The bridge was started with --once: it takes one request.";
            return Err(Failure::invalid(why));
        }
        if session_id.is_some() && self.of_session(session_id.as_deref()).is_some() {
            return Err(Failure {
                retryable: true,
                ..Failure::invalid(BUSY)
            });
        }
        self.last += 1;
        let number = self.last;
        let mut run = Run::new(request_id, session_id, wanted);
        let send = &mut run.wanted.send;
        // No name of the host's: it may count its requests anew in each process.
        send.idempotency_key = Some(format!("bridge-{}-{number}", self.settings.nonce));
        if let Some(id) = &run.session_id {
            let name = name(id);
            if name != *id && fits_label(id) {
                send.labels.insert(SESSION.to_owned(), id.clone());
            }
            if send.agent.is_none() {
                send.agent = self.spoken.agent(&name).cloned();
            }
            send.session = Some(name);
        }
        let length = serde_json::to_string(send).map_or(0, |line| line.len());
        if length + ENVELOPE > MAX_LINE_IN {
            return Err(Failure::invalid(format!(
                "the run takes {length} bytes: expected at most {MAX_LINE_IN}"
            )));
        }
        let step = match (&send.session, run.wanted.resume) {
            (None, _) => Step::Sending,
            (Some(_), true) => Step::Looking,
            (Some(_), false) => Step::Closing,
        };
        self.runs.insert(number, run);
        self.take(number, step, out);
        Ok(())
    }

    /// Asks the daemon for the next step of a run.
    fn take(&mut self, number: u64, step: Step, out: &mut Outbox) {
        let Some(run) = self.runs.get(&number) else {
            return;
        };
        let send = &run.wanted.send;
        let of_session = json!({"session": send.session});
        let ticket = match step {
            Step::Closing => out.ask("session.close", &of_session),
            Step::Looking => out.ask("session.list", &of_session),
            Step::Sending => out.ask("send", send),
        };
        self.waits.insert(ticket, Waits::Run(number, step));
    }

    fn of_session(&self, session_id: Option<&str>) -> Option<u64> {
        let is_it = |(_, run): &(&u64, &Run)| run.session_id.as_deref() == session_id;
        self.runs.iter().find(is_it).map(|(number, _)| *number)
    }

    /// Ends a run: its last lines still come.
    fn end(&mut self, number: u64, why: Why, out: &mut Outbox) {
        if let Some(run) = self.runs.get_mut(&number) {
            run.limit = None;
            run.ends.get_or_insert(why);
            out.abort(run.job, run.wanted.send.idempotency_key.as_deref());
        }
    }

    fn interrupt(&mut self, request_id: Option<Value>, session_id: String, out: &mut Outbox) {
        if let Some(number) = self.of_session(Some(&session_id)) {
            acknowledge(request_id, session_id, out);
            return self.end(number, Why::Interrupted, out);
        }
        // It may be another process's.
        let ticket = out.ask("abort", &json!({"session": name(&session_id)}));
        let waits = Waits::Interrupt {
            request_id,
            session_id,
        };
        self.waits.insert(ticket, waits);
    }

    /// Everything ends, and the bridge with it.
    fn leave(&mut self, now: Instant, out: &mut Outbox) {
        self.ends_at.get_or_insert(now + PATIENCE);
        for number in self.runs.keys().copied().collect::<Vec<_>>() {
            self.end(number, Why::Interrupted, out);
        }
    }

    /// The daemon's word on a session that a run goes on in, or begins anew.
    fn looked(&mut self, number: u64, step: Step, line: Option<Line>, out: &mut Outbox) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        match line {
            Some(Line::SessionList { sessions, .. }) => {
                let is_there = |row: &agentd_protocol::rows::SessionRow| {
                    row.state != SessionPhase::Closed && row.turns > 0
                };
                run.resumed = sessions.iter().any(is_there);
            }
            Some(Line::Error(error))
                if step == Step::Closing && error.code != Code::UnknownSession =>
            {
                let why = run::failure(&error);
                return self.give_up(number, &why, out);
            }
            _ => {}
        }
        if run.ends.is_some() {
            let mut events = Vec::new();
            run.never_begins(&mut events);
            self.say(number, events, out);
            return self.forget(number);
        }
        self.take(number, Step::Sending, out);
    }

    /// A line of a run.
    fn told(&mut self, number: u64, line: Received, now: Instant, out: &mut Outbox) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let mut anew = None;
        if let Some(Line::Accepted(accepted)) = &line.line {
            anew = self.spoken.accepted(accepted);
            run.job = Some(accepted.job);
            run.session_id
                .get_or_insert_with(|| accepted.session.clone());
            if run.ends.is_some() {
                out.abort(run.job, None);
            }
        }
        if line.line.is_none() && line.ends_turn() {
            return self.give_up(
                number,
                &unserved("the daemon's answer was not understood"),
                out,
            );
        }
        let mut events = Vec::new();
        let is_over = run.line(line, now, &mut events);
        // Where the host itself had it begin anew, it knows.
        if let Some(note) = anew.filter(|_| run.wanted.resume) {
            events.push(("note", json!({"message": note})));
        }
        self.say(number, events, out);
        if is_over {
            self.forget(number);
        }
    }

    /// Nobody tells any more what becomes of a run.
    fn give_up(&mut self, number: u64, why: &Failure, out: &mut Outbox) {
        let Some(run) = self.runs.get_mut(&number) else {
            return;
        };
        let mut events = Vec::new();
        run.fails(why, &TurnFacts::default(), &mut events);
        self.say(number, events, out);
        self.forget(number);
    }

    fn forget(&mut self, number: u64) {
        self.runs.remove(&number);
        self.waits
            .retain(|_, waits| !matches!(waits, Waits::Run(of, _) if *of == number));
    }

    fn give_up_all(&mut self, message: &str, out: &mut Outbox) {
        for number in self.runs.keys().copied().collect::<Vec<_>>() {
            self.give_up(number, &unserved(message), out);
        }
        for (_, waits) in std::mem::take(&mut self.waits) {
            if let Waits::Interrupt {
                request_id,
                session_id,
            } = waits
            {
                refuse(request_id, Some(session_id), &unserved(message), out);
            }
        }
    }

    /// Says events of a run.
    fn say(&self, number: u64, events: Vec<told::Event>, out: &mut Outbox) {
        let Some(run) = self.runs.get(&number) else {
            return;
        };
        for (kind, fields) in events {
            let mut line = Map::new();
            line.insert("type".to_owned(), json!(kind));
            if !matches!(kind, "session" | "final" | "error") {
                line.insert("timestamp".to_owned(), json!(self.now()));
            }
            if let Value::Object(fields) = fields {
                line.extend(fields);
            }
            name_line(&mut line, run.request_id.clone(), run.session_id.clone());
            out.say(&line);
        }
    }

    /// The time of day, in milliseconds.
    fn now(&self) -> String {
        let now = OffsetDateTime::from((self.settings.clock)());
        let (date, time) = (now.date(), now.time());
        let (hour, minute, second, ms) = time.as_hms_milli();
        format!("{date}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

/// The daemon's name of a session.
fn name(session_id: &str) -> String {
    match check_session(session_id) {
        Ok(()) => session_id.to_owned(),
        Err(_) => {
            let sum = Sha256::digest(session_id.as_bytes());
            let hex: String = sum
                .iter()
                .take(16)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("bridge-{hex}")
        }
    }
}

fn unserved(message: &str) -> Failure {
    Failure {
        stage: Stage::Run,
        message: message.to_owned(),
        retryable: true,
    }
}

fn name_line(line: &mut Map<String, Value>, request_id: Option<Value>, session_id: Option<String>) {
    if let Some(id) = request_id {
        line.insert("request_id".to_owned(), id);
    }
    if let Some(id) = session_id {
        line.insert("session_id".to_owned(), json!(id));
    }
}

/// Says a line that isn't of a run.
fn say(fields: Value, request_id: Option<Value>, session_id: Option<String>, out: &mut Outbox) {
    if let Value::Object(mut line) = fields {
        name_line(&mut line, request_id, session_id);
        out.say(&line);
    }
}

fn acknowledge(request_id: Option<Value>, session_id: String, out: &mut Outbox) {
    let ack = json!({"type": "interrupt_ack", "accepted": true});
    say(ack, request_id, Some(session_id), out);
}

fn refuse(request_id: Option<Value>, session_id: Option<String>, why: &Failure, out: &mut Outbox) {
    let (kind, mut fields) = run::error(why);
    fields["type"] = json!(kind);
    say(fields, request_id, session_id, out);
}

impl Face for Bridge {
    fn client_line(&mut self, line: &[u8], now: Instant, out: &mut Outbox) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let read = request::Line::read(line, &self.settings);
        let (request_id, session_id) = (read.request_id, read.session_id);
        let refused = match read.asks {
            Ok(Asks::Run(wanted)) => {
                let named = (request_id.clone(), session_id.clone());
                self.run(named.0, named.1, wanted, out).err()
            }
            Ok(Asks::Ping) => {
                say(json!({"type": "pong"}), request_id.clone(), None, out);
                None
            }
            Ok(Asks::Interrupt) => {
                self.interrupt(
                    request_id.clone(),
                    session_id.clone().unwrap_or_default(),
                    out,
                );
                None
            }
            Ok(Asks::Leave) => {
                let ack = json!({"type": "shutdown_ack"});
                say(ack, request_id.clone(), None, out);
                self.leave(now, out);
                None
            }
            Err(why) => Some(why),
        };
        self.used = true;
        if let Some(why) = refused {
            refuse(request_id, session_id, &why, out);
        }
    }

    fn client_line_too_long(&mut self, limit: usize, _now: Instant, out: &mut Outbox) {
        self.used = true;
        let why = format!("the line is longer than {limit} bytes and was skipped");
        let why = Failure {
            stage: Stage::Parse,
            message: why,
            retryable: false,
        };
        refuse(None, None, &why, out);
    }

    /// What was asked for is answered: a host of one run says no more after it.
    fn client_ended(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn stopped(&mut self, now: Instant, out: &mut Outbox) {
        self.leave(now, out);
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
        match self.waits.get(&ticket) {
            Some(Waits::Run(number, Step::Sending)) => {
                let number = *number;
                // Nobody has accepted it: the next daemon is asked, once this one has left.
                if !is_draining(&line) {
                    self.told(number, line, now, out);
                }
            }
            Some(Waits::Run(number, step)) => {
                let (number, step) = (*number, *step);
                self.waits.remove(&ticket);
                self.looked(number, step, line.line, out);
            }
            Some(Waits::Interrupt { .. }) => {
                let Some(Waits::Interrupt {
                    request_id,
                    session_id,
                }) = self.waits.remove(&ticket)
                else {
                    return;
                };
                match line.line {
                    Some(Line::Abort { jobs, .. }) if !jobs.is_empty() => {
                        acknowledge(request_id, session_id, out);
                    }
                    _ => {
                        let why = Failure {
                            retryable: true,
                            ..Failure::invalid("No active run for the provided session_id.")
                        };
                        refuse(request_id, Some(session_id), &why, out);
                    }
                }
            }
            None => {}
        }
    }

    fn daemon_lost(&mut self, _now: Instant, out: &mut Outbox) {
        for (_, waits) in std::mem::take(&mut self.waits) {
            match waits {
                Waits::Run(number, step) => {
                    let Some(run) = self.runs.get_mut(&number) else {
                        continue;
                    };
                    run.losses += 1;
                    if run.losses > MOST_LOSSES {
                        let why = "the daemon was lost again and again: what became of the run is not known";
                        self.give_up(number, &unserved(why), out);
                    } else {
                        // By its key: it runs once.
                        self.take(number, step, out);
                    }
                }
                Waits::Interrupt {
                    request_id,
                    session_id,
                } => {
                    let why =
                        unserved("the daemon was lost: whether the run was ended is not known");
                    refuse(request_id, Some(session_id), &why, out);
                }
            }
        }
    }

    fn unreachable(&mut self, why: &ClientError, _now: Instant, out: &mut Outbox) {
        let message = face::sentence(why);
        self.give_up_all(&message, out);
    }

    fn deadline(&self) -> Option<Instant> {
        let limits = self.runs.values().filter_map(|run| Some(run.limit?.0));
        limits.chain(self.ends_at).min()
    }

    fn timer(&mut self, now: Instant, out: &mut Outbox) {
        if self.ends_at.is_some_and(|at| now >= at) {
            let message = format!("the run did not end within {} s", PATIENCE.as_secs());
            return self.give_up_all(&message, out);
        }
        let due = self.runs.iter().filter_map(|(number, run)| {
            let (at, limit) = run.limit?;
            (now >= at).then_some((*number, limit))
        });
        for (number, limit) in due.collect::<Vec<_>>() {
            self.end(number, Why::Silent(limit), out);
        }
    }

    fn is_done(&self) -> bool {
        self.runs.is_empty() && self.waits.is_empty()
    }

    fn leaves(&self) -> bool {
        self.ends_at.is_some() || self.settings.once && self.used
    }
}
