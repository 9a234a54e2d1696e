//! OpenAI's HTTP API in front of the daemon: what is asked becomes a send, lines become the answer.
//!
//! Owns the names that clients see, which are made of jobs, and the labels by which a job is found
//! again. Must not know HTTP, connections or clocks: whoever serves it does (`agentd-serve`).

pub mod chat;
pub mod chat_reply;
pub mod content;
pub mod conversation;
pub mod failure;
pub mod fields;
pub mod format;
pub mod model;
pub mod response;
pub mod response_items;
pub mod response_request;
pub mod response_turn;
pub mod run;
pub mod run_events;
pub mod usage;

use agentd_protocol::limits::MAX_LABEL;
use agentd_protocol::line::{Level, TurnFacts};
use agentd_protocol::{Code, JobId};
use serde_json::{Value, json};

use crate::face::lost;

/// The request that made a job, as a hash: a client that asks once more finds it.
pub const REQUEST: &str = "openai.request";
/// What was said up to this turn, as a hash: the next request of a client without sessions finds it.
pub const CONVERSATION: &str = "openai.conversation";
/// The model as it was asked for.
pub const MODEL: &str = "openai.model";
/// Whom the client asks for, in its own words.
pub const USER: &str = "openai.user";
/// The response before this one.
pub const PREVIOUS: &str = "openai.previous";
/// Is the response to be read again? Only `false` is written.
pub const STORE: &str = "openai.store";
/// Did nobody wait for the response? Only `true` is written.
pub const BACKGROUND: &str = "openai.background";
/// A session's name in the client's own words, where it isn't one of the daemon's.
pub const SESSION: &str = "openai.session";
/// Instructions that the turn got, as a hash.
pub const INSTRUCTIONS: &str = "openai.instructions";
/// Metadata of a response stands behind this.
pub const METADATA: &str = "openai.metadata/";

/// What a job is called in each of the API's parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// A chat completion.
    Completion,
    /// A response.
    Response,
    /// A run.
    Run,
}

impl Named {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Completion => "chatcmpl-",
            Self::Response => "resp_",
            Self::Run => "run_",
        }
    }

    /// A job's name.
    #[must_use]
    pub fn id(self, job: JobId) -> String {
        format!("{}{job}", self.prefix())
    }

    /// The job of a name, if it is one.
    #[must_use]
    pub fn job(self, id: &str) -> Option<JobId> {
        id.strip_prefix(self.prefix())?.parse().ok()
    }
}

/// What an answer says as `agentd` beside its own members, if its agent had lost the turns before.
fn aside(turn: &TurnFacts) -> Option<Value> {
    let (level, code) = (Level::Warning, Code::ContextLost);
    Some(json!({"note": {"level": level, "code": code, "text": lost(turn)?}}))
}

/// Can it be the value of a label?
#[must_use]
pub fn fits_label(value: &str) -> bool {
    value.len() <= MAX_LABEL && !value.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openai_ids_are_made_of_jobs() {
        assert_eq!(Named::Response.id(JobId(7)), "resp_j7");
        assert_eq!(Named::Run.job("run_j7"), Some(JobId(7)));
        for id in ["run_7", "resp_j7", "run_j07", "run_", ""] {
            assert_eq!(Named::Run.job(id), None, "{id}");
        }
    }
}
