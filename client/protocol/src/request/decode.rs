//! The syntax of requests: the second step of decoding, from the members of a line to its fields.
//!
//! Owns what is refused because of how it is written. Must not know what is done about a request.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::beginning::check_system;
use super::mcp_server::check_servers;
use super::send_check::check_send;
use super::work::{Compact, Dispatch, Dispatched, Questions, SessionNew};
use super::{
    Abort, Collect, Hello, Ignored, LogLevel, RestartWorker, SEND_FIELDS, Send, Status, Subscribe,
};
use crate::check::{check_path, check_seconds, check_session, check_words};
use crate::code::Code;
use crate::envelope::{Checked, Envelope, Read, Rejected, fields, invalid};
use crate::limits::MAX_DISPATCH;
use crate::nearest::nearest;
use crate::request_table::{Request, RequestKind};
use crate::schedule::ScheduleSpec;
use crate::strict::Key;
use crate::webhook::Delivery;

/// Fields of a `send` that are reserved: refused rather than ignored, as ignoring them would widen
/// what the sender asked for.
const RESERVED: &[&str] = &["max_turns"];

/// A request and what was ignored in it.
#[derive(Clone, PartialEq, Debug)]
pub struct Decoded {
    /// The request.
    pub request: Request,
    /// Only filled for `send`.
    pub ignored: Vec<Ignored>,
}

impl Request {
    /// Decodes the fields of an envelope.
    ///
    /// # Errors
    /// `unknown-command` with the nearest name, `unsupported` for a request of the protocol that
    /// this version doesn't serve, `invalid-request` for a field of the wrong type or syntax.
    pub fn decode(envelope: &Envelope<'_>) -> Result<Decoded, Rejected> {
        let Some(kind) = RequestKind::named(&envelope.kind) else {
            return Err(unknown_command(&envelope.kind));
        };
        let (request, ignored) = kind.read(envelope)?;
        Ok(Decoded { request, ignored })
    }
}

impl Checked for Abort {}
impl Checked for Compact {}
impl Checked for Delivery {}
impl Checked for Hello {}
impl Checked for LogLevel {}
impl Checked for Questions {}
impl Checked for RestartWorker {}
impl Checked for Status {}

fn unknown_command(name: &str) -> Rejected {
    let shown: String = name.chars().take(64).collect();
    let rejected = Rejected::new(
        Code::UnknownCommand,
        format!("there is no request `{shown}`"),
    );
    match nearest(name, RequestKind::names()) {
        Some(near) => rejected.hint(format!("did you mean `{near}`?")),
        None => {
            let names: Vec<_> = RequestKind::names().collect();
            rejected.hint(format!("known requests: {}", names.join(", ")))
        }
    }
}

impl Checked for Collect {
    fn check(&self) -> Result<(), Rejected> {
        check_seconds("timeout", self.timeout)?;
        match self.jobs.is_empty() {
            true => Err(invalid(
                "`jobs` is empty: expected at least one job, as in [\"j41\"]",
            )),
            false => Ok(()),
        }
    }
}

impl Checked for Subscribe {
    fn check(&self) -> Result<(), Rejected> {
        if self.sessions && self.jobs.is_some() {
            return Err(invalid(
                "`sessions` is given with `jobs`: expected no filter, or `session`",
            ));
        }
        match self.jobs.as_ref().is_some_and(Vec::is_empty) {
            true => Err(invalid(
                "`jobs` is empty: expected at least one, or no `jobs`",
            )),
            false => Ok(()),
        }
    }
}

impl Read for Box<Send> {
    fn read(envelope: &Envelope<'_>) -> Result<(Self, Vec<Ignored>), Rejected> {
        let (send, ignored) = decode_send(envelope.body, envelope.typed)?;
        Ok((Self::new(send), ignored))
    }
}

/// What tells a `dispatch` of many from one of one.
#[derive(Deserialize)]
struct Several<'a> {
    #[serde(borrow, default)]
    jobs: Option<&'a RawValue>,
}

impl Read for Dispatch {
    fn read(envelope: &Envelope<'_>) -> Result<(Self, Vec<Ignored>), Rejected> {
        Ok((dispatch(envelope.body)?, Vec::new()))
    }
}

fn dispatch(body: &str) -> Result<Dispatch, Rejected> {
    let several: Several<'_> = fields(body)?;
    let Some(list) = several.jobs else {
        let (send, ignored) = decode_send(body, true)?;
        let jobs = vec![Dispatched { send, ignored }];
        return Dispatch { jobs }.check();
    };
    // Unread at first, so that an error names the job that it is in.
    let list: Vec<&RawValue> = fields(list.get())?;
    let mut jobs = Vec::new();
    // One more than allowed is enough to refuse them.
    for (item, raw) in list.into_iter().take(MAX_DISPATCH + 1).enumerate() {
        let (send, ignored) = decode_send(raw.get(), true).map_err(|rejected| Rejected {
            error: format!("`jobs[{item}]`: {}", rejected.error),
            ..rejected
        })?;
        jobs.push(Dispatched { send, ignored });
    }
    Dispatch { jobs }.check()
}

/// What a schedule sends, unread.
#[derive(Deserialize)]
struct Scheduled<'a> {
    #[serde(borrow)]
    send: &'a RawValue,
}

impl Read for Box<ScheduleSpec> {
    fn read(envelope: &Envelope<'_>) -> Result<(Self, Vec<Ignored>), Rejected> {
        ScheduleSpec::decode(envelope.body).map(|spec| (Self::new(spec), Vec::new()))
    }
}

impl ScheduleSpec {
    /// Of the fields of an object, each of which has to be known: what nobody here knows would be left
    /// out each time, and nobody would be told.
    ///
    /// # Errors
    /// `invalid-request` or `unsupported`.
    pub fn decode(body: &str) -> Result<Self, Rejected> {
        let sent: Scheduled<'_> = fields(body)?;
        let in_send = |rejected: Rejected| Rejected {
            error: format!("`send`: {}", rejected.error),
            ..rejected
        };
        let names: Fields<'_> = fields(sent.send.get()).map_err(in_send)?;
        Self::check_send_fields(names.keys().map(|field| &*field.0))?;
        let (mut send, ignored) = decode_send(sent.send.get(), true).map_err(in_send)?;
        if let Some(other) = ignored.first() {
            let error = format!("`send` has the field `{}`, which nobody knows", other.field);
            let near = other.nearest.as_ref();
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            return Err(Rejected {
                hint,
                ..invalid(error)
            });
        }
        send.stream = None;
        let mut spec: Self = fields(body)?;
        spec.send = Box::new(send);
        spec.check_all()?;
        Ok(spec)
    }
}

impl Read for SessionNew {
    fn read(envelope: &Envelope<'_>) -> Result<(Self, Vec<Ignored>), Rejected> {
        let all: Fields<'_> = fields(envelope.body)?;
        refuse_reserved(&all)?;
        if all.keys().any(|field| field.0 == "history") {
            return Err(invalid("`history` goes with the session's first `send`"));
        }
        let new: Self = fields(envelope.body)?;
        new.session.as_deref().map_or(Ok(()), check_session)?;
        check_path("cwd", new.cwd.as_deref())?;
        check_words(&[("agent", &new.agent)])?;
        check_system(new.system.as_deref())?;
        check_servers(new.mcp_servers.as_deref().unwrap_or_default())?;
        Ok((new, Vec::new()))
    }
}

/// What an object's fields are called.
type Fields<'a> = BTreeMap<Key<'a>, IgnoredAny>;

fn refuse_reserved(all: &Fields<'_>) -> Result<(), Rejected> {
    match all.keys().find(|field| RESERVED.contains(&&*field.0)) {
        Some(Key(field)) => {
            let error = format!("`{field}` is part of the protocol but not served by this version");
            Err(Rejected::new(Code::Unsupported, error))
        }
        None => Ok(()),
    }
}

fn decode_send(body: &str, typed: bool) -> Result<(Send, Vec<Ignored>), Rejected> {
    // Read twice: with their types, and by their names alone, to tell which of these nobody knows.
    let mut send: Send = fields(body)?;
    let all: Fields<'_> = fields(body)?;
    refuse_reserved(&all)?;
    let mut ignored = Vec::new();
    for Key(field) in all.into_keys() {
        if !SEND_FIELDS.contains(&&*field) {
            let nearest = nearest(&field, SEND_FIELDS.iter().copied()).map(str::to_owned);
            ignored.push(Ignored {
                field: field.into_owned(),
                nearest,
            });
        }
    }
    if let Some(name) = send
        .must
        .iter()
        .find(|name| !SEND_FIELDS.contains(&name.as_str()))
    {
        let error = format!("`must` names `{name}`, which this version does not know");
        return Err(Rejected::new(Code::Unsupported, error));
    }
    check_send(&send)?;
    // Nobody else's to say; noted as ignored above.
    send.routed = None;
    // A bare prompt without a `type` is from `nc` or a script, which wants the ends only.
    send.stream.get_or_insert(typed);
    Ok((send, ignored))
}
