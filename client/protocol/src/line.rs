//! The lines from the daemon.
//!
//! Owns their members; how a line is addressed, `body` says. Must not know who reads it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

pub use crate::commands::CommandRow;
use crate::ids::JobId;
pub use crate::models::{ModeRow, ModelRow};
use crate::routed::RouteAnswer;
pub use crate::rows::AgentRow;
pub use crate::rows::QuestionAbout;
use crate::rows::{DispatchedRow, FoundRow, JobRow, QuestionRow, SessionRow, TurnRow};
use crate::sums::{NamedSum, Sum};
use crate::webhook::EndpointRow;
pub use sandbox::{Reach, Sandbox};
pub use session::{SessionChange, SessionChanged};
pub use tool::{FileChange, ToolKind, ToolLocation};

/// Most lines are shorter.
const USUAL_LINE: usize = 256;

/// A line from the daemon, without its `id`.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "PROTOCOL.md parts 4 and 5 document each")]
pub enum Line {
    Accepted(Accepted),
    Session {
        native: String,
    },
    Running {
        job: JobId,
        attempt: u32,
    },
    MessageStart {
        job: JobId,
        message: u32,
        role: String,
        replaces: Option<u32>,
    },
    MessageDelta {
        job: JobId,
        message: u32,
        offset: u64,
        text: String,
        native: bool,
    },
    ThinkingDelta {
        job: JobId,
        message: u32,
        offset: u64,
        text: String,
    },
    ToolStart {
        job: JobId,
        tool_call_id: String,
        name: String,
        input: Value,
        read_only: bool,
        #[serde(default)]
        kind: ToolKind,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        locations: Vec<ToolLocation>,
    },
    ToolUpdate {
        job: JobId,
        tool_call_id: String,
        offset: u64,
        output: String,
    },
    ToolEnd {
        job: JobId,
        tool_call_id: String,
        ok: bool,
        output: String,
        truncated: bool,
        duration_ms: u64,
        sandbox: Option<Sandbox>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        diff: Vec<FileChange>,
    },
    Question {
        job: JobId,
        question_id: String,
        kind: String,
        title: String,
        detail: Option<String>,
        #[serde(default)]
        options: Vec<String>,
        #[serde(flatten)]
        about: Box<QuestionAbout>,
        expires_at: Option<String>,
    },
    QuestionClosed {
        job: JobId,
        question_id: String,
        by: String,
        /// What was answered, in a word; never a text.
        answer: Option<String>,
        /// How far a yes goes, if further than once.
        scope: Option<String>,
    },
    SessionChanged(Box<SessionChanged>),
    Note {
        job: Option<JobId>,
        level: Level,
        code: String,
        text: String,
    },
    AgentEvent {
        job: JobId,
        kind: String,
        data: Value,
    },
    MessageEnd(Box<MessageEnd>),
    Error(Box<ErrorLine>),
    Hello(Box<HelloAnswer>),
    Pong,
    Status(Box<StatusAnswer>),
    Agents {
        ok: bool,
        agents: Vec<AgentRow>,
    },
    Dispatch {
        ok: bool,
        jobs: Vec<DispatchedRow>,
    },
    Jobs {
        ok: bool,
        jobs: Vec<JobRow>,
        next: Option<JobId>,
    },
    Usage {
        ok: bool,
        /// Each a [`crate::rows::UsageRow`].
        #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::rows::UsageRow>"))]
        turns: Vec<Value>,
        next: Option<JobId>,
        /// In place of the turns, to whoever asked `by` something.
        total: Option<Box<Sum>>,
        sums: Option<Vec<NamedSum>>,
    },
    Steer {
        ok: bool,
        job: JobId,
    },
    Questions {
        ok: bool,
        questions: Vec<QuestionRow>,
        /// Are there more than fit? Each session's own always do.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
    },
    Answer {
        ok: bool,
        question_id: String,
    },
    Compact {
        ok: bool,
        session: String,
        summary: Option<String>,
    },
    SetModel {
        ok: bool,
        session: String,
        #[serialize_always]
        provider: Option<String>,
        #[serialize_always]
        model: Option<String>,
        #[serialize_always]
        thinking: Option<String>,
        /// The agent's own way of working, where one was set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
    },
    Commands {
        ok: bool,
        /// Whose they are.
        agent: String,
        commands: Vec<CommandRow>,
        /// What is not as one may think: why there is none, or what was left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    Models {
        ok: bool,
        /// Whose they are.
        agent: String,
        models: Vec<ModelRow>,
        /// The agent's own ways of working, with the first page.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        modes: Vec<ModeRow>,
        /// The one that is in force.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next: Option<u64>,
        /// What is not as one may think: why there is none, or what was left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    Route(Box<RouteAnswer>),
    #[serde(rename = "session.list")]
    SessionList {
        ok: bool,
        sessions: Vec<SessionRow>,
        next: Option<u64>,
    },
    #[serde(rename = "session.new")]
    SessionNew {
        ok: bool,
        session: String,
        agent: String,
        cwd: String,
    },
    #[serde(rename = "session.fork")]
    SessionFork {
        ok: bool,
        /// The new one.
        session: String,
        /// The one that it begins with.
        from: String,
        agent: String,
        cwd: String,
    },
    #[serde(rename = "session.close")]
    SessionClose {
        ok: bool,
        session: String,
        /// By which its past is read from now on; none when somebody else had closed it before.
        closed_as: Option<String>,
    },
    #[serde(rename = "session.resume")]
    SessionResume {
        ok: bool,
        session: String,
        /// That were held and aren't any more.
        jobs: Vec<JobId>,
    },
    #[serde(rename = "session.rename")]
    SessionRename {
        ok: bool,
        /// As it is called now.
        session: String,
        /// As it was called.
        was: String,
    },
    #[serde(rename = "session.title")]
    SessionTitle {
        ok: bool,
        session: String,
        #[serialize_always]
        title: Option<String>,
    },
    #[serde(rename = "session.search")]
    SessionSearch {
        ok: bool,
        turns: Vec<FoundRow>,
        next: Option<JobId>,
    },
    #[serde(rename = "session.history")]
    SessionHistory {
        ok: bool,
        session: String,
        turns: Vec<TurnRow>,
        next: Option<u64>,
    },
    Backup {
        ok: bool,
        path: String,
        bytes: u64,
    },
    Export {
        ok: bool,
        rows: Vec<Value>,
        next: Option<u64>,
    },
    Webhooks {
        ok: bool,
        endpoints: Vec<EndpointRow>,
        /// Each a [`crate::webhook::DeliveryRow`].
        #[cfg_attr(
            feature = "schema",
            schemars(with = "Vec<crate::webhook::DeliveryRow>")
        )]
        deliveries: Vec<Value>,
        next: Option<u64>,
    },
    #[serde(rename = "webhook.replay")]
    WebhookReplay {
        ok: bool,
        webhook: String,
    },
    #[serde(rename = "webhook.test")]
    WebhookTest {
        ok: bool,
        webhook: String,
    },
    #[serde(rename = "cron.add")]
    CronAdd {
        ok: bool,
        /// A [`crate::schedule::ScheduleRow`].
        #[cfg_attr(feature = "schema", schemars(with = "crate::schedule::ScheduleRow"))]
        schedule: Box<Value>,
    },
    #[serde(rename = "cron.edit")]
    CronEdit {
        ok: bool,
        /// A [`crate::schedule::ScheduleRow`].
        #[cfg_attr(feature = "schema", schemars(with = "crate::schedule::ScheduleRow"))]
        schedule: Box<Value>,
    },
    #[serde(rename = "cron.list")]
    CronList {
        ok: bool,
        /// Each a [`crate::schedule::ScheduleRow`].
        #[cfg_attr(
            feature = "schema",
            schemars(with = "Vec<crate::schedule::ScheduleRow>")
        )]
        schedules: Vec<Value>,
        next: Option<u64>,
    },
    #[serde(rename = "cron.pause")]
    CronPause {
        ok: bool,
        /// A [`crate::schedule::ScheduleRow`].
        #[cfg_attr(feature = "schema", schemars(with = "crate::schedule::ScheduleRow"))]
        schedule: Box<Value>,
    },
    #[serde(rename = "cron.remove")]
    CronRemove {
        ok: bool,
        /// A [`crate::schedule::ScheduleRow`].
        #[cfg_attr(feature = "schema", schemars(with = "crate::schedule::ScheduleRow"))]
        schedule: Box<Value>,
    },
    #[serde(rename = "cron.resume")]
    CronResume {
        ok: bool,
        /// A [`crate::schedule::ScheduleRow`].
        #[cfg_attr(feature = "schema", schemars(with = "crate::schedule::ScheduleRow"))]
        schedule: Box<Value>,
    },
    #[serde(rename = "cron.run")]
    CronRun {
        ok: bool,
        /// Its id.
        schedule: String,
        job: JobId,
        session: String,
    },
    #[serde(rename = "cron.runs")]
    CronRuns {
        ok: bool,
        /// Its id.
        schedule: String,
        /// Each a [`crate::schedule::RunRow`].
        #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schedule::RunRow>"))]
        runs: Vec<Value>,
        next: Option<u64>,
    },
    Abort {
        ok: bool,
        jobs: Vec<JobId>,
    },
    Collect {
        ok: bool,
        /// Each a final line.
        #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::held::FinalLine>"))]
        results: Vec<Value>,
        pending: Vec<JobId>,
    },
    RestartWorker {
        ok: bool,
    },
    Live {
        seq: u64,
        epoch: String,
    },
    Unsubscribe {
        ok: bool,
    },
    Shutdown {
        ok: bool,
    },
    Drain {
        ok: bool,
    },
    Undrain {
        ok: bool,
    },
    #[serde(rename = "daemon.stop")]
    DaemonStop {
        ok: bool,
    },
    LogLevel {
        ok: bool,
        #[serde(flatten)]
        log: LogFacts,
    },
}

/// How much a `note` matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Good to know.
    Info,
    /// Something was not as asked.
    Warning,
}

/// Did the turn have the session's earlier turns?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// Yes.
    Continued,
    /// There were none.
    New,
    /// There were some, and the agent doesn't have them any more.
    Lost,
}

/// One tool call of a turn.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "the names are the documentation")]
pub struct ToolTrace {
    pub tool_call_id: String,
    pub name: String,
    pub input: Value,
    pub ok: Option<bool>,
    pub output: String,
    pub truncated: bool,
    pub duration_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    #[serde(default)]
    pub kind: ToolKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<ToolLocation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diff: Vec<FileChange>,
}

/// What is known of a turn that began; part of both kinds of final line.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 4 documents each")]
pub struct TurnFacts {
    #[serialize_always]
    pub job: Option<JobId>,
    #[serialize_always]
    pub session: Option<String>,
    // Before the text, which may be long: a list of sessions reads how a stored line begins.
    pub context_tokens: Option<u64>,
    pub context_window: Option<u64>,
    #[serde(default)]
    pub text: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    pub refusal: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspected_refusal: bool,
    #[serialize_always]
    pub context: Option<Context>,
    #[serialize_always]
    pub agent: Option<String>,
    #[serialize_always]
    pub provider: Option<String>,
    #[serialize_always]
    pub model: Option<String>,
    pub local: Option<bool>,
    #[serialize_always]
    pub thinking: Option<String>,
    #[serialize_always]
    pub usage: Option<Usage>,
    #[serde(default)]
    pub cost: Cost,
    #[serialize_always]
    pub api_calls: Option<Vec<Value>>,
    pub soul_sha256: Option<String>,
    #[serde(default)]
    pub tool_trace: Vec<ToolTrace>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tool_trace_truncated: bool,
    #[serde(default)]
    pub attempt: u32,
    #[serde(default)]
    pub queued_ms: u64,
    #[serde(default)]
    pub duration_ms: u64,
    #[serde(default)]
    pub served_by: String,
    pub fallback_reason: Option<String>,
    pub messages: Option<Vec<Message>>,
}

impl Line {
    /// True for `message_end`, and for an `error` that carries a job.
    #[must_use]
    pub fn ends_job(&self) -> bool {
        match self {
            Self::MessageEnd(_) => true,
            Self::Error(error) => error.turn.as_ref().is_some_and(|turn| turn.job.is_some()),
            _ => false,
        }
    }

    /// Serialises the line, once.
    #[must_use]
    pub fn body(&self) -> Body {
        let mut json = Vec::with_capacity(USUAL_LINE);
        if let Err(why) = serde_json::to_writer(&mut json, self) {
            // Our own types: only a non-string map key could fail, and there is none.
            json = format!(
                r#"{{"type":"error","code":"internal","error":"unserialisable line: {why}"}}"#
            )
            .into_bytes();
        }
        // JSON is UTF-8.
        let json = String::from_utf8(json).unwrap_or_default();
        let replayable = matches!(self, Self::Accepted(_)) || self.ends_job();
        Body::new(&json, replayable)
    }
}

mod accepted;
mod body;
mod ends;
mod hello;
mod refusal;
mod sandbox;
mod session;
mod status;
#[cfg(test)]
mod tests;
mod tool;

pub use crate::usage::{Cost, CostStatus, Usage};
pub use accepted::Accepted;
pub use body::{Body, Telling};
pub use ends::{ErrorLine, Message, MessageEnd, Stop};
pub use hello::{HelloAnswer, HelloLimits};
pub use status::*;
