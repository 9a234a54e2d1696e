//! The requests: the second step of decoding.
//!
//! Owns the fields of every request and their syntax. Must not know sessions, agents or state:
//! whether a name exists is for the core to say.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::attachment::Attachment;
use crate::code::Code;
use crate::envelope::{Envelope, Rejected};
use crate::ids::JobId;
use crate::limits::MAX_DISPATCH;
use crate::nearest::nearest;
use crate::strict::Key;
use crate::webhook::{Callback, Delivery, Webhooks};
use crate::work::{
    Answer, Backup, Compact, Dispatch, Dispatched, Export, Jobs, Named, Questions, SessionHistory,
    SessionList, SessionNew, SetModel, Steer, Usage, check_limit,
};

/// Every request type of protocol 1, served by this version or not.
pub const TYPES: &[&str] = &[
    "abort",
    "agents",
    "answer",
    "backup",
    "collect",
    "compact",
    "daemon.stop",
    "dispatch",
    "drain",
    "export",
    "hello",
    "jobs",
    "log_level",
    "ping",
    "questions",
    "restart_worker",
    "send",
    "session.close",
    "session.history",
    "session.list",
    "session.new",
    "session.resume",
    "set_model",
    "shutdown",
    "status",
    "steer",
    "subscribe",
    "undrain",
    "unsubscribe",
    "usage",
    "webhook.replay",
    "webhook.test",
    "webhooks",
];

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

/// A decoded request.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// Who is there, and which protocol?
    Hello(Hello),
    /// Answered by `pong`.
    Ping,
    /// How is the daemon, and do its workers live?
    Status(Status),
    /// Which agents are there?
    Agents,
    /// One turn.
    Send(Box<Send>),
    /// Several turns, all or none.
    Dispatch(Dispatch),
    /// Which jobs are there?
    Jobs(Jobs),
    /// What ended turns used.
    Usage(Usage),
    /// A word to a running turn.
    Steer(Steer),
    /// What do agents ask?
    Questions(Questions),
    /// The answer to a question.
    Answer(Answer),
    /// The agent shortens what it remembers.
    Compact(Compact),
    /// Another model for a session.
    SetModel(SetModel),
    /// Which sessions are there?
    SessionList(SessionList),
    /// A session without a turn.
    SessionNew(SessionNew),
    /// End a session's process and forget it.
    SessionClose(Named),
    /// Run the turns that are held.
    SessionResume(Named),
    /// What was said.
    SessionHistory(SessionHistory),
    /// A copy of the store.
    Backup(Backup),
    /// Everything stored.
    Export(Export),
    /// Which endpoints and deliveries are there?
    Webhooks(Webhooks),
    /// A delivery goes out again.
    WebhookReplay(Delivery),
    /// A delivery that tells nothing.
    WebhookTest(Callback),
    /// Cancel.
    Abort(Abort),
    /// The final lines of jobs.
    Collect(Collect),
    /// Replace an agent's or session's process.
    RestartWorker(RestartWorker),
    /// Live lines.
    Subscribe(Subscribe),
    /// No more live lines.
    Unsubscribe,
    /// End this connection when everything asked is answered.
    Shutdown,
    /// Start no new turn.
    Drain(Drain),
    /// Start turns again.
    Undrain,
    /// Stop the daemon.
    DaemonStop(DaemonStop),
    /// How much the daemon logs.
    LogLevel(LogLevel),
}

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

/// A field nobody here knows, and the known name nearest to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ignored {
    /// As written.
    pub field: String,
    /// What may have been meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
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
        let request = match &*envelope.kind {
            "hello" => Self::Hello(fields(body)?),
            "ping" => Self::Ping,
            "status" => Self::Status(fields(body)?),
            "agents" => Self::Agents,
            "send" => {
                let (send, ignored) = decode_send(body, envelope.typed)?;
                let request = Self::Send(Box::new(send));
                return Ok(Decoded { request, ignored });
            }
            "dispatch" => Self::Dispatch(dispatch(body)?),
            "jobs" => Self::Jobs(fields::<Jobs>(body)?.check()?),
            "usage" => Self::Usage(fields::<Usage>(body)?.check()?),
            "steer" => Self::Steer(fields::<Steer>(body)?.check()?),
            "questions" => Self::Questions(fields(body)?),
            "answer" => Self::Answer(fields::<Answer>(body)?.check()?),
            "compact" => Self::Compact(fields(body)?),
            "set_model" => Self::SetModel(fields::<SetModel>(body)?.check()?),
            "session.list" => {
                let list: SessionList = fields(body)?;
                check_limit(list.limit)?;
                Self::SessionList(list)
            }
            "session.new" => Self::SessionNew(session_new(body)?),
            "session.close" => Self::SessionClose(fields::<Named>(body)?.check()?),
            "session.resume" => Self::SessionResume(fields::<Named>(body)?.check()?),
            "session.history" => Self::SessionHistory(fields::<SessionHistory>(body)?.check()?),
            "backup" => {
                let backup = fields::<Backup>(body)?.check()?;
                check_path("path", backup.path.as_deref())?;
                Self::Backup(backup)
            }
            "export" => Self::Export(fields(body)?),
            "webhooks" => Self::Webhooks(fields::<Webhooks>(body)?.check()?),
            "webhook.replay" => Self::WebhookReplay(fields(body)?),
            "webhook.test" => Self::WebhookTest(fields::<Callback>(body)?.check("url")?),
            "abort" => Self::Abort(fields(body)?),
            "collect" => Self::Collect(collect(body)?),
            "restart_worker" => Self::RestartWorker(fields(body)?),
            "subscribe" => {
                let subscribe: Subscribe = fields(body)?;
                if subscribe.jobs.as_ref().is_some_and(Vec::is_empty) {
                    return Err(invalid(
                        "`jobs` is empty: expected at least one, or no `jobs`",
                    ));
                }
                Self::Subscribe(subscribe)
            }
            "unsubscribe" => Self::Unsubscribe,
            "shutdown" => Self::Shutdown,
            "drain" => {
                let drain: Drain = fields(body)?;
                check_seconds("deadline", drain.deadline)?;
                Self::Drain(drain)
            }
            "undrain" => Self::Undrain,
            "daemon.stop" => {
                let stop: DaemonStop = fields(body)?;
                check_seconds("deadline", stop.deadline)?;
                Self::DaemonStop(stop)
            }
            "log_level" => Self::LogLevel(fields(body)?),
            other => return Err(unknown_command(other)),
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
    match nearest(name, TYPES.iter().copied()) {
        Some(near) => rejected.hint(format!("did you mean `{near}`?")),
        None => rejected.hint(format!("known requests: {}", TYPES.join(", "))),
    }
}

pub(crate) fn invalid(error: impl Into<String>) -> Rejected {
    Rejected::new(Code::InvalidRequest, error)
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

use check::{check_path, check_send};
pub(crate) use check::{check_seconds, check_words};
pub use check::{check_session, unix_ms};
pub use choices::{AfterFailure, Mode, OnQuestion, Retry};
pub use control::{DaemonStop, Drain, Hello, LogLevel, RestartWorker, Status};
