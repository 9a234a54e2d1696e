//! A prompt on its way to its process whose attachments are still in the store.
//!
//! Owns the order of words: what is told meanwhile comes after it. Must not know the store.

use std::sync::Arc;

use agentd_core::attached::{Attached, Attachments};
use agentd_core::worker::{Failure, Outcome, Prompt, WorkerCommand, WorkerEvent};
use agentd_protocol::{Code, JobId};
use tokio::task::JoinHandle;

/// The attachments of a turn, or why there are none.
type Read = Result<Vec<Attached>, String>;
/// Reads the attachments of an accepted job. It may block.
pub type Attach = Arc<dyn Fn(JobId) -> Result<Vec<Attached>, String> + Send + Sync>;

/// What is fetched at the moment.
pub(super) struct Fetch {
    attach: Attach,
    prompt: Option<(Box<Prompt>, JoinHandle<Read>)>,
    behind: Vec<WorkerCommand>,
}

/// What can be told now.
pub(super) struct Fetched {
    /// The prompt with all it needs, or how its turn ended instead.
    pub(super) prompt: Result<WorkerCommand, WorkerEvent>,
    /// What came behind it.
    pub(super) behind: Vec<WorkerCommand>,
}

impl Fetch {
    pub(super) fn new(attach: Attach) -> Self {
        Self {
            attach,
            prompt: None,
            behind: Vec::new(),
        }
    }

    /// Gives a command back if it can be told at once.
    pub(super) fn take(&mut self, command: WorkerCommand) -> Option<WorkerCommand> {
        if self.prompt.is_some() {
            self.behind.push(command);
            return None;
        }
        match command {
            WorkerCommand::Prompt(prompt) if prompt.attachments == Attachments::InStore => {
                let (attach, job) = (Arc::clone(&self.attach), prompt.job);
                // Megabytes may come from a disk that is busy, and other processes are listened to
                // meanwhile.
                let fetching = tokio::task::spawn_blocking(move || attach(job));
                self.prompt = Some((prompt, fetching));
                None
            }
            command => Some(command),
        }
    }

    /// Waits for what is fetched; for ever, if nothing is.
    pub(super) async fn done(&mut self) -> Fetched {
        let Some((prompt, fetching)) = &mut self.prompt else {
            return std::future::pending().await;
        };
        let attached = fetching.await;
        let attached = attached.unwrap_or_else(|lost| Err(lost.to_string()));
        let prompt = match attached {
            Ok(attached) => {
                prompt.attachments = Attachments::Here(attached);
                Ok(WorkerCommand::Prompt(prompt.clone()))
            }
            Err(why) => Err(failed(prompt, &why)),
        };
        self.prompt = None;
        Fetched {
            prompt,
            behind: std::mem::take(&mut self.behind),
        }
    }
}

fn failed(prompt: &Prompt, why: &str) -> WorkerEvent {
    let error = format!("the attachments can't be read: {why}");
    let outcome = Outcome::failed(Failure::new(Code::StoreFailed, error));
    WorkerEvent::Ended {
        turn: prompt.turn,
        outcome: Box::new(outcome),
    }
}
