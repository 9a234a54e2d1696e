//! Which models an agent has, as it says itself.
//!
//! Owns pages. Must not print, nor know any agent.

use agentd_protocol::answered;
use agentd_protocol::models::{ModelRow, Models};

use crate::asked::{Reply, RequestError};
use crate::client::Client;

/// The models of an agent, or one page of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentModels {
    /// Whose they are.
    pub agent: String,
    /// In its order.
    pub models: Vec<ModelRow>,
    /// What is not as one may think: why there is none, or what was left out.
    pub note: Option<String>,
}

/// Models, page by page, in their agent's order.
#[derive(Clone, Default, Debug)]
pub struct ModelPages {
    asked: Models,
    over: bool,
}

impl ModelPages {
    /// All that an agent has, or that of a session.
    #[must_use]
    pub const fn new(asked: Models) -> Self {
        Self { asked, over: false }
    }

    /// The next page; none after the last.
    ///
    /// # Errors
    /// When the daemon refuses, or doesn't answer.
    pub async fn next(
        &mut self,
        client: &mut Client,
    ) -> Result<Option<Reply<AgentModels>>, RequestError> {
        if self.over {
            return Ok(None);
        }
        let taken = answered!(
            Models { agent, models, next, note }
                => (AgentModels { agent, models, note }, next)
        );
        let reply = client.answer_of(&self.asked, taken);
        let Reply { value, line } = reply.await?;
        let (value, next) = value;
        self.over = next.is_none();
        self.asked.after = next;
        Ok(Some(Reply { value, line }))
    }
}

impl Client {
    /// All models of an agent, or that of a session; a process of it is started if none lives.
    ///
    /// # Errors
    /// `unsupported` where the agent can't say it, `worker-unresponsive` where it says nothing.
    pub async fn models(&mut self, asked: Models) -> Result<AgentModels, RequestError> {
        let mut pages = ModelPages::new(asked);
        let mut all: Option<AgentModels> = None;
        while let Some(page) = pages.next(self).await? {
            let page = page.value;
            match &mut all {
                Some(all) => {
                    all.models.extend(page.models);
                    all.note = page.note.or(all.note.take());
                }
                None => all = Some(page),
            }
        }
        // There is a first page.
        Ok(all.unwrap_or(AgentModels {
            agent: String::new(),
            models: Vec::new(),
            note: None,
        }))
    }
}
