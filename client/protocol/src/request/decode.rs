//! The syntax of requests: the second step of decoding, from the members of a line to its fields.
//!
//! Owns what is refused because of how it is written. Must not know what is done about a request.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::send_check::check_send;
use super::work::{
    Answer, Backup, Dispatch, Dispatched, Jobs, Named, SessionHistory, SessionList, SessionNew,
    SessionRename, SessionSearch, SetModel, Steer, Usage,
};
use super::{Collect, DaemonStop, Drain, Ignored, SEND_FIELDS, Send, Subscribe};
use crate::check::{check_path, check_seconds, check_session, check_words};
use crate::code::Code;
use crate::envelope::{Envelope, Rejected, invalid};
use crate::limits::MAX_DISPATCH;
use crate::nearest::nearest;
use crate::request_table::{Request, RequestKind};
use crate::strict::Key;
use crate::webhook::{Callback, Webhooks};

/// Fields of a `send` that are reserved: refused rather than ignored, as ignoring them would widen
/// what the sender asked for.
const RESERVED: &[&str] = &["history", "max_turns", "system"];

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
        let body = envelope.body;
        let Some(kind) = RequestKind::named(&envelope.kind) else {
            return Err(unknown_command(&envelope.kind));
        };
        let request = match kind {
            RequestKind::Hello => Self::Hello(fields(body)?),
            RequestKind::Ping => Self::Ping,
            RequestKind::Status => Self::Status(fields(body)?),
            RequestKind::Agents => Self::Agents,
            RequestKind::Send => {
                let (send, ignored) = decode_send(body, envelope.typed)?;
                let request = Self::Send(Box::new(send));
                return Ok(Decoded { request, ignored });
            }
            RequestKind::Dispatch => Self::Dispatch(dispatch(body)?),
            RequestKind::Jobs => Self::Jobs(fields::<Jobs>(body)?.check()?),
            RequestKind::Usage => Self::Usage(fields::<Usage>(body)?.check()?),
            RequestKind::Steer => Self::Steer(fields::<Steer>(body)?.check()?),
            RequestKind::Questions => Self::Questions(fields(body)?),
            RequestKind::Answer => Self::Answer(fields::<Answer>(body)?.check()?),
            RequestKind::Compact => Self::Compact(fields(body)?),
            RequestKind::SetModel => Self::SetModel(fields::<SetModel>(body)?.check()?),
            RequestKind::SessionList => Self::SessionList(fields::<SessionList>(body)?.check()?),
            RequestKind::SessionNew => Self::SessionNew(session_new(body)?),
            RequestKind::SessionClose => Self::SessionClose(fields::<Named>(body)?.check()?),
            RequestKind::SessionResume => Self::SessionResume(fields::<Named>(body)?.check()?),
            RequestKind::SessionRename => {
                Self::SessionRename(fields::<SessionRename>(body)?.check()?)
            }
            RequestKind::SessionSearch => {
                Self::SessionSearch(fields::<SessionSearch>(body)?.check()?)
            }
            RequestKind::SessionHistory => {
                Self::SessionHistory(fields::<SessionHistory>(body)?.check()?)
            }
            RequestKind::Backup => {
                let backup = fields::<Backup>(body)?.check()?;
                check_path("path", backup.path.as_deref())?;
                Self::Backup(backup)
            }
            RequestKind::Export => Self::Export(fields(body)?),
            RequestKind::Webhooks => Self::Webhooks(fields::<Webhooks>(body)?.check()?),
            RequestKind::WebhookReplay => Self::WebhookReplay(fields(body)?),
            RequestKind::WebhookTest => Self::WebhookTest(fields::<Callback>(body)?.check("url")?),
            RequestKind::Abort => Self::Abort(fields(body)?),
            RequestKind::Collect => Self::Collect(collect(body)?),
            RequestKind::RestartWorker => Self::RestartWorker(fields(body)?),
            RequestKind::Subscribe => {
                let subscribe: Subscribe = fields(body)?;
                if subscribe.jobs.as_ref().is_some_and(Vec::is_empty) {
                    return Err(invalid(
                        "`jobs` is empty: expected at least one, or no `jobs`",
                    ));
                }
                Self::Subscribe(subscribe)
            }
            RequestKind::Unsubscribe => Self::Unsubscribe,
            RequestKind::Shutdown => Self::Shutdown,
            RequestKind::Drain => {
                let drain: Drain = fields(body)?;
                check_seconds("deadline", drain.deadline)?;
                Self::Drain(drain)
            }
            RequestKind::Undrain => Self::Undrain,
            RequestKind::DaemonStop => {
                let stop: DaemonStop = fields(body)?;
                check_seconds("deadline", stop.deadline)?;
                Self::DaemonStop(stop)
            }
            RequestKind::LogLevel => Self::LogLevel(fields(body)?),
        };
        Ok(Decoded {
            request,
            ignored: Vec::new(),
        })
    }
}

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

fn fields<'de, T: Deserialize<'de>>(body: &'de str) -> Result<T, Rejected> {
    serde_json::from_str(body).map_err(|error| invalid(format!("invalid field: {error}")))
}

fn collect(body: &str) -> Result<Collect, Rejected> {
    let collect: Collect = fields(body)?;
    check_seconds("timeout", collect.timeout)?;
    if collect.jobs.is_empty() {
        return Err(invalid(
            "`jobs` is empty: expected at least one job, as in [\"j41\"]",
        ));
    }
    Ok(collect)
}

/// What tells a `dispatch` of many from one of one.
#[derive(Deserialize)]
struct Several<'a> {
    #[serde(borrow, default)]
    jobs: Option<&'a RawValue>,
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

fn session_new(body: &str) -> Result<SessionNew, Rejected> {
    let all: Fields<'_> = fields(body)?;
    refuse_reserved(&all)?;
    let new: SessionNew = fields(body)?;
    new.session.as_deref().map_or(Ok(()), check_session)?;
    check_path("cwd", new.cwd.as_deref())?;
    check_words(&[("agent", &new.agent)])?;
    Ok(new)
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
    // A bare prompt without a `type` is from `nc` or a script, which wants the ends only.
    send.stream.get_or_insert(typed);
    Ok((send, ignored))
}
