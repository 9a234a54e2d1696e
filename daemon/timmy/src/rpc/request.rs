//! What a `send` asks of timmy.
//!
//! Owns the fields that mean something here. Must not know turns.

use std::path::PathBuf;
use std::time::Duration;

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::{OnQuestion, Send};
use serde::Deserialize;

use super::attached;
use crate::config::chain::no_model_of;
use crate::echo;
use crate::send::{Conversation, Messages, ModelSelection, SendRequest};

/// Fields of a worker's `send` that clients don't have.
#[derive(Deserialize)]
struct TowardsWorkers {
    /// The session as it was announced.
    native: Option<String>,
    /// Is it another one's, of which the session is a copy?
    #[serde(default)]
    fork: bool,
    fallback_chain: Option<Vec<String>>,
}

/// Is it for the scripted provider?
///
/// # Errors
/// It is, and for a model that it doesn't have.
pub(super) fn is_for_echo(default: &ModelSelection, send: &Send) -> Result<bool, Rejected> {
    let model = send.model.as_deref();
    let names_it = model.is_some_and(|model| model.starts_with("echo/"));
    // Who names a model gets nothing of the default's provider, and the other way round.
    let default_provider = default.provider.as_deref().filter(|_| !names_it);
    let default_model = default.model.as_deref();
    let default_model = default_model.filter(|_| send.provider.is_none());
    let provider = send.provider.as_deref().or(default_provider);
    echo::is_wanted(provider, model.or(default_model)).map_err(|rejected| {
        let usual = default.provider.as_deref();
        match (provider, model) {
            (Some(provider), Some(model)) if usual == Some(provider) => {
                no_model_of(provider, model, usual)
            }
            _ => rejected,
        }
    })
}

/// May its tools ask for leave?
pub(super) fn may_ask(send: &Send) -> bool {
    // A daemon always says: whoever doesn't may not know how to answer.
    send.on_question == Some(OnQuestion::Wait)
}

/// The send as timmy plays it.
///
/// # Errors
/// A field has the wrong type, or names no directory.
pub(super) fn sent(
    default: &ModelSelection,
    send: &Send,
    body: &str,
) -> Result<SendRequest, Rejected> {
    let invalid = |error: String| Rejected::new(Code::InvalidRequest, error);
    let own: TowardsWorkers =
        serde_json::from_str(body).map_err(|why| invalid(format!("invalid field: {why}")))?;
    let cwd = match &send.cwd {
        Some(cwd) => PathBuf::from(cwd),
        None => std::env::current_dir()
            .map_err(|why| invalid(format!("there is no working directory: {why}")))?,
    };
    let (text, attached) = attached::read(&send.text, &send.attachments)?;
    // The default's model is of its provider: halves of two choices would be neither.
    let pinned = send.provider.is_some() || send.model.is_some();
    let usual_provider = default.provider.clone();
    let default = if pinned {
        &ModelSelection::default()
    } else {
        default
    };
    Ok(SendRequest {
        text,
        attached,
        conversation: match own.native {
            None => Conversation::New,
            Some(native) if own.fork => Conversation::CopyOf(native),
            Some(native) => Conversation::Native(native),
        },
        system: send.system.clone(),
        earlier: send.history.clone(),
        selection: ModelSelection {
            provider: send.provider.clone().or_else(|| default.provider.clone()),
            model: send.model.clone().or_else(|| default.model.clone()),
            thinking: send.thinking.clone().or_else(|| default.thinking.clone()),
            fallback_chain: own
                .fallback_chain
                .or_else(|| default.fallback_chain.clone()),
            timeout: send.timeout.map(seconds),
            usual_provider,
        },
        toolsets: send.toolsets.clone(),
        mcp_servers: send.mcp_servers.clone().unwrap_or_default(),
        cwd,
        job: send.job.clone(),
        messages: if send.include.iter().any(|name| name == "messages") {
            Messages::Included
        } else {
            Messages::LeftOut
        },
    })
}

/// What a daemon says of turns that name no model.
#[derive(Deserialize)]
struct Pinned {
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    model: Option<String>,
}

/// The models that are meant by a turn which names none.
///
/// # Errors
/// A field has the wrong type.
pub(super) fn models(default: &ModelSelection, body: &str) -> Result<ModelSelection, Rejected> {
    let pinned: Pinned = serde_json::from_str(body)
        .map_err(|why| Rejected::new(Code::InvalidRequest, format!("invalid field: {why}")))?;
    Ok(match pinned {
        Pinned {
            provider: None,
            model: None,
        } => default.clone(),
        Pinned { provider, model } => ModelSelection {
            provider,
            model,
            ..ModelSelection::default()
        },
    })
}

/// The decoder has checked it.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
