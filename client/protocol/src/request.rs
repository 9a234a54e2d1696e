//! The requests: the second step of decoding.
//!
//! Owns the fields of every request and their syntax; which there are, `requests` says. Must not know
//! sessions, agents or state: whether a name exists is for the core to say.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::attachment::Attachment;
use crate::code::Code;
pub use crate::envelope::Ignored;
use crate::envelope::{Envelope, Rejected, invalid};
use crate::ids::JobId;
use crate::limits::MAX_DISPATCH;
use crate::nearest::nearest;
use crate::requests::{Request, RequestKind};
use crate::strict::Key;
use crate::webhook::{Callback, Webhooks};
use crate::work::{
    Answer, Backup, Dispatch, Dispatched, Jobs, Named, SessionHistory, SessionList, SessionNew,
    SetModel, Steer, Usage,
};

/// The fields of a `send` that this version acts on, aliases and `type`/`id` included.
pub const SEND_FIELDS: &[&str] = &[
    "type",
    "id",
    "text",
    "prompt",
    "message",
    "session",
    "agent",
    "provider",
    "model",
    "thinking",
    "fallback_chain",
    "cwd",
    "cwd_if_new",
    "timeout",
    "expires",
    "idempotency_key",
    "mode",
    "stream",
    "retry",
    "require_context",
    "must",
    "include",
    "on_question",
    "toolsets",
    "tools",
    "labels",
    "parent",
    "start_at",
    "after_failure",
    "attachments",
    "callback",
    "job",
];

/// Fields of a `send` that are reserved: refused rather than ignored, as ignoring them would widen
/// what the sender asked for.
const RESERVED: &[&str] = &["history", "max_turns", "system"];

/// `abort`; without a target, this connection's last send, else the only live one.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Abort {
    /// One job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The turn in flight of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// With `session`: what waits there, too.
    #[serde(default)]
    pub queued: bool,
}

/// `collect`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Collect {
    /// Which.
    pub jobs: Vec<JobId>,
    /// Seconds to wait; until all are done when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// For all of them or for the first.
    #[serde(default)]
    pub wait: Wait,
}

/// What a `collect` waits for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Every job.
    #[default]
    All,
    /// At least one.
    Any,
}

/// `subscribe`; without a filter, everything.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Subscribe {
    /// One session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Some jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<JobId>>,
    /// A cursor: numbered lines after this one come first; 0 is the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// The cursor's epoch: of another one, it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
}

/// `send`: one user turn. PROTOCOL.md part 4 explains each field.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Send {
    /// The user's turn.
    #[serde(alias = "prompt", alias = "message")]
    pub text: String,
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The conversation as the one asked named it: of workers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<String>,
    /// Who answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Pins the model provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Pins the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How hard to think, in the agent's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// What to ask when the model fails, in this order; each `provider/model`, or a name that the
    /// agent knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_chain: Option<Vec<String>>,
    /// Working directory: absolute, existing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Working directory that counts only if this send makes the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd_if_new: Option<String>,
    /// Restricts the agent's tools.
    #[serde(default, alias = "tools", skip_serializing_if = "Option::is_none")]
    pub toolsets: Option<Vec<String>>,
    /// Seconds it may run; 3600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Seconds it may wait; 3600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<f64>,
    /// The same key twice is the same job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// When the session is busy.
    #[serde(default)]
    pub mode: Mode,
    /// Send the lines between `accepted` and the final one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Wait for somebody's answer, or deny.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_question: Option<OnQuestion>,
    /// Run again after a crash?
    #[serde(default)]
    pub retry: Retry,
    /// Refuse rather than run without the session's earlier turns.
    #[serde(default)]
    pub require_context: bool,
    /// Extra members of the final line: `messages`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Fields the sender depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must: Vec<String>,
    /// Free labels, for `jobs`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The job from inside whose worker it comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// Not before this time, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<String>,
    /// When a turn before it in the session was interrupted.
    #[serde(default)]
    pub after_failure: AfterFailure,
    /// What goes with the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// Who is told of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// Towards workers: the job's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

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
            RequestKind::SessionList => {
                let list: SessionList = fields(body)?;
                check_limit(list.limit)?;
                Self::SessionList(list)
            }
            RequestKind::SessionNew => Self::SessionNew(session_new(body)?),
            RequestKind::SessionClose => Self::SessionClose(fields::<Named>(body)?.check()?),
            RequestKind::SessionResume => Self::SessionResume(fields::<Named>(body)?.check()?),
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
    send.stream.get_or_insert(typed);
    Ok((send, ignored))
}

/// What a send's idempotency hash covers, as given: PROTOCOL.md part 7.
///
/// Returns canonical bytes to be hashed; two sends with equal bytes are the same request.
#[must_use]
pub fn hashed(send: &Send) -> String {
    let mut value = serde_json::json!([
        send.text,
        send.session,
        send.agent,
        send.provider,
        send.model,
        send.thinking,
        send.cwd,
        send.toolsets,
        send.retry,
    ]);
    // What later versions added counts only where it is given: keys of before keep their meaning.
    if let Value::Array(all) = &mut value {
        if let Some(chain) = &send.fallback_chain {
            all.push(serde_json::json!({"fallback_chain": chain}));
        }
        if let Some(callback) = &send.callback {
            all.push(serde_json::json!({"callback": callback.url}));
            if callback.result {
                all.push("callback.result".into());
            }
        }
        if !send.attachments.is_empty() {
            let content = |of: &Attachment| serde_json::json!([of.mime, of.sha256]);
            all.push(send.attachments.iter().map(content).collect());
        }
    }
    value.to_string()
}

mod check;
mod choices;
mod control;
#[cfg(test)]
mod tests;

use crate::check::{check_limit, check_path, check_seconds, check_words};
pub use crate::check::{check_session, unix_ms};
use check::check_send;
pub use choices::{AfterFailure, Mode, OnQuestion, Retry};
pub use control::{DaemonStop, Drain, Hello, LogLevel, RestartWorker, Status};
