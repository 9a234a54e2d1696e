//! What a model may do besides talking.
//!
//! Owns the words between a turn and any tool. Must not know models.

pub(crate) mod anchor;
pub(crate) mod delegate;
pub(crate) mod file;
pub(crate) mod mcp;
pub(crate) mod output;
pub(crate) mod places;
pub(crate) mod question;
pub(crate) mod sandbox;
pub(crate) mod schema;
pub(crate) mod secret;
pub(crate) mod terminal;
pub(crate) mod toolset;
pub(crate) mod web;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use agentd_protocol::line::Sandbox;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::model::{Boxed, ToolSpec};

/// Does what this program starts itself for, if that is what it was started for.
pub(crate) fn hidden(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let word = arguments.nth(1)?;
    if word == terminal::keeper::KEEP {
        Some(terminal::keeper::main(arguments))
    } else if word == sandbox::SANDBOXED {
        Some(sandbox::main(arguments))
    } else if word == terminal::look::LOOK {
        Some(terminal::look::main())
    } else {
        None
    }
}

/// One tool.
pub(crate) trait Tool: Send + Sync {
    /// As a model sees it.
    fn spec(&self) -> ToolSpec;

    /// Does a call change nothing? Such calls of one reply run at the same time.
    fn is_read_only(&self) -> bool;

    /// Does it, or says why not. Must end soon after `around.cancel`, and leave no process behind.
    fn run<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        around: &'a Surroundings,
    ) -> Boxed<'a, Result<ToolOutcome, String>>;
}

/// Where a call happens.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// The workspace: what relative paths are relative to, and what may be written.
    pub(crate) cwd: PathBuf,
    /// Which directories the session's names mean.
    pub(crate) anchors: Arc<anchor::Anchors>,
    /// A directory of this session, for output too long to be said; made when needed.
    pub(crate) spill: PathBuf,
    /// The call's id.
    pub(crate) call: String,
    /// The job of this turn, if a daemon gave one.
    pub(crate) job: Option<String>,
    /// Raised when the turn is to end.
    pub(crate) cancel: CancellationToken,
    /// Output while it runs, in order; full means that nobody can follow, and pieces are dropped.
    pub(crate) progress: mpsc::Sender<String>,
    /// Whom to ask for leave.
    pub(crate) asker: Arc<dyn Asker>,
}

impl Surroundings {
    /// Asks for leave. When the turn ends first, the question is withdrawn, and nothing is done.
    ///
    /// # Errors
    /// It isn't given, or can't be asked for, and this is why, for the model.
    pub(crate) async fn ask(&self, question: &question::Question) -> Result<(), String> {
        let (title, detail) = (question.title(), question.detail()?);
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => {
                Err(format!("cancelled before leave was given to {title}: it was not done"))
            }
            answer = self.asker.approve(Some(&self.call), title, &detail) => match answer {
                Approval::Granted => Ok(()),
                Approval::Denied(reason) => Err(format!("not allowed to {title}: {reason}")),
            },
        }
    }
}

/// What came of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ToolOutcome {
    /// Did it do what was asked?
    pub(crate) ok: bool,
    /// What the model is told, within the limits of `output.rs`.
    pub(crate) output: String,
    /// Was something left out of it?
    pub(crate) truncated: bool,
    /// What a command could reach, when it was one.
    pub(crate) sandbox: Option<Sandbox>,
}

impl ToolOutcome {
    /// It went well.
    pub(crate) const fn done(output: String) -> Self {
        Self {
            ok: true,
            output,
            truncated: false,
            sandbox: None,
        }
    }

    /// The same, as much of it as a model is told.
    pub(crate) fn shown(ok: bool, shown: output::Shown) -> Self {
        Self {
            ok,
            output: shown.text,
            truncated: shown.truncated,
            sandbox: None,
        }
    }

    /// It didn't, and this is why: what was found, what was expected, what to do.
    pub(crate) const fn failed(why: String) -> Self {
        Self {
            ok: false,
            output: why,
            truncated: false,
            sandbox: None,
        }
    }
}

/// Somebody who may allow what is not allowed by itself.
pub(crate) trait Asker: Send + Sync + std::fmt::Debug {
    /// Asks for leave to do `title`, which a `call` wants; `detail` is all of what that is, as
    /// [`question`] makes it. Nobody there means no.
    fn approve<'a>(
        &'a self,
        call: Option<&'a str>,
        title: &'a str,
        detail: &'a str,
    ) -> Boxed<'a, Approval>;
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Approval {
    /// Go on.
    Granted,
    /// Don't, and this is why, for the model and the trace.
    Denied(String),
}

#[cfg(test)]
pub(crate) mod tests;
