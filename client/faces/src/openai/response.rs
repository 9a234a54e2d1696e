//! A response as an object.
//!
//! Owns its members: strict clients read each of them. Must not know its lines.

use std::collections::BTreeMap;

use agentd_protocol::JobId;
use agentd_protocol::line::{Stop, Usage};
use agentd_protocol::rows::{JobPhase, JobRow};
use serde_json::{Value, json};

use super::failure::Failure;
use super::response_request::ResponseRequest;
use super::{BACKGROUND, METADATA, MODEL, Named, PREVIOUS, usage};

/// What is known of a response from its beginning.
#[derive(Clone, PartialEq, Debug)]
pub struct ResponseHead {
    /// The job behind it.
    pub job: JobId,
    /// The agent that answers.
    pub agent: String,
    /// In seconds since 1970.
    pub created: u64,
    /// As it was asked for.
    pub model: String,
    /// The one before.
    pub previous: Option<String>,
    /// The session that it was sent to by name.
    pub conversation: Option<String>,
    /// What whoever made the client says, where that is known.
    pub instructions: Option<String>,
    /// What the client keeps with it.
    pub metadata: BTreeMap<String, String>,
    /// Is it to be read again?
    pub stored: bool,
    /// Did nobody wait for it?
    pub in_background: bool,
    /// What the client makes of a failure.
    pub failing: Failing,
}

/// What a client makes of a response that failed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Failing {
    /// It tells its user.
    #[default]
    Told,
    /// It asks again, but for what it is told to have asked wrongly: Codex.
    AskedAgain,
}

/// How far a response is.
#[derive(Clone, PartialEq, Debug)]
pub enum Progress {
    /// It waits.
    Queued,
    /// It runs.
    Running,
    /// It has ended so.
    Ended(Stop, Option<Usage>),
    /// It was cancelled before anything was known of it.
    Cancelled,
    /// It failed.
    Failed(Failure),
}

impl Progress {
    const fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "in_progress",
            Self::Ended(Stop::EndTurn, _) => "completed",
            Self::Ended(Stop::MaxTokens | Stop::MaxTurnRequests | Stop::Refusal, _) => "incomplete",
            Self::Ended(Stop::Cancelled, _) | Self::Cancelled => "cancelled",
            Self::Failed(_) => "failed",
        }
    }

    /// Of the event that tells it.
    pub(super) const fn event(&self) -> &'static str {
        match self {
            Self::Queued => "response.queued",
            Self::Running => "response.in_progress",
            Self::Ended(Stop::EndTurn, _) => "response.completed",
            Self::Failed(_) => "response.failed",
            // There is no event of its own for what was cancelled.
            Self::Ended(..) | Self::Cancelled => "response.incomplete",
        }
    }

    const fn incomplete(&self) -> Option<&'static str> {
        match self {
            Self::Ended(Stop::MaxTokens | Stop::MaxTurnRequests, _) => Some("max_output_tokens"),
            Self::Ended(Stop::Refusal, _) => Some("content_filter"),
            _ => None,
        }
    }
}

impl ResponseHead {
    /// Of a request that was accepted.
    #[must_use]
    pub fn of(request: &ResponseRequest, (job, agent): (JobId, &str), created: u64) -> Self {
        Self {
            job,
            agent: agent.to_owned(),
            created,
            model: request.model.told(agent),
            previous: None,
            conversation: None,
            instructions: request.instructions.clone(),
            metadata: request.metadata.clone(),
            stored: request.stored,
            in_background: request.in_background,
            failing: Failing::Told,
        }
    }

    /// Of a job that is read again.
    #[must_use]
    pub fn of_row(row: &JobRow, created: u64) -> Self {
        let label = |name: &str| row.labels.get(name).cloned();
        let own = |(name, value): (&String, &String)| {
            Some((name.strip_prefix(METADATA)?.to_owned(), value.clone()))
        };
        Self {
            job: row.job,
            agent: row.agent.clone(),
            created,
            model: label(MODEL).unwrap_or_else(|| row.agent.clone()),
            previous: label(PREVIOUS),
            conversation: None,
            instructions: None,
            metadata: row.labels.iter().filter_map(own).collect(),
            stored: true,
            in_background: label(BACKGROUND).is_some(),
            failing: Failing::Told,
        }
    }

    /// As it is now.
    #[must_use]
    pub fn object(&self, progress: &Progress, output: &[Value]) -> Value {
        let failed = match progress {
            Progress::Failed(failure) => Some(error(failure, self.failing)),
            _ => None,
        };
        let incomplete = progress.incomplete().map(|why| json!({"reason": why}));
        let used = match progress {
            Progress::Ended(_, used) => usage::response(*used),
            _ => Value::Null,
        };
        let conversation = self.conversation.as_ref().map(|id| json!({"id": id}));
        json!({
            "id": Named::Response.id(self.job), "object": "response", "created_at": self.created,
            "status": progress.name(), "background": self.in_background, "error": failed,
            "incomplete_details": incomplete, "instructions": self.instructions,
            "max_output_tokens": null, "model": self.model, "output": output,
            "parallel_tool_calls": true, "previous_response_id": self.previous,
            "conversation": conversation, "reasoning": {"effort": null, "summary": null},
            "store": self.stored, "temperature": null, "text": {"format": {"type": "text"}},
            "tool_choice": "auto", "tools": [], "top_p": null, "truncation": "disabled",
            "usage": used, "metadata": self.metadata,
        })
    }
}

/// Why a response failed, by a code that clients know. The agent has tried again already, where that
/// was of use.
fn error(failure: &Failure, failing: Failing) -> Value {
    let code = match (failing, failure.code.as_str()) {
        (_, "context_length_exceeded") => "context_length_exceeded",
        (Failing::AskedAgain, _) => "invalid_prompt",
        (Failing::Told, "rate-limit") => "rate_limit_exceeded",
        (Failing::Told, _) => "server_error",
    };
    json!({"code": code, "message": format!("{}: {}", failure.code, failure.message)})
}

/// How far a job is, where its last line isn't known.
#[must_use]
pub fn progress_of(phase: JobPhase) -> Progress {
    match phase {
        JobPhase::Queued | JobPhase::Held => Progress::Queued,
        JobPhase::Running => Progress::Running,
        JobPhase::Completed => Progress::Ended(Stop::EndTurn, None),
        JobPhase::Cancelled => Progress::Cancelled,
        JobPhase::Failed | JobPhase::Interrupted => {
            Progress::Failed(Failure::new(424, "failed", "the turn failed"))
        }
    }
}
