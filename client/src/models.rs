//! Which models and slash commands an agent has, as it says itself.
//!
//! Owns pages. Must not print, nor know any agent.

use agentd_protocol::commands::{CommandRow, Commands};
use agentd_protocol::models::{ModeRow, ModelRow, Models};
use agentd_protocol::request::Send;
use agentd_protocol::routed::RouteAnswer;
use agentd_protocol::{Line, RequestKind, answered};

use crate::asked::{Reply, RequestError};
use crate::client::Client;
use crate::pages::{PageTaken, Paged, Pages};

/// The models of an agent, or one page of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentModels {
    /// Whose they are.
    pub agent: String,
    /// In its order.
    pub models: Vec<ModelRow>,
    /// Its own ways of working, with the first page.
    pub modes: Vec<ModeRow>,
    /// The one that is in force.
    pub mode: Option<String>,
    /// What is not as one may think: why there is none, or what was left out.
    pub note: Option<String>,
}

/// The slash commands of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentCommands {
    /// Whose they are.
    pub agent: String,
    /// In its order.
    pub commands: Vec<CommandRow>,
    /// What is not as one may think: why there is none, or what was left out.
    pub note: Option<String>,
}

/// Models, page by page, in their agent's order.
pub type ModelPages = Pages<Models>;

impl Paged for Models {
    type Page = AgentModels;
    type Place = u64;

    fn page() -> PageTaken<AgentModels, u64> {
        answered!(
            Models { agent, models, modes, mode, next, note }
                => (AgentModels { agent, models, modes, mode, note }, next)
        )
    }

    fn go_on(&mut self, from: u64) {
        self.after = Some(from);
    }
}

impl Client {
    /// All models of an agent, or that of a session; a process of it is started if none lives.
    ///
    /// # Errors
    /// `unsupported` where the agent can't say it, `worker-unresponsive` where it says nothing.
    pub async fn models(&mut self, asked: Models) -> Result<AgentModels, RequestError> {
        let pages = ModelPages::new(asked).rest(self).await?;
        let all = pages.into_iter().reduce(|mut all, page| {
            all.models.extend(page.models);
            all.note = page.note.or(all.note);
            all
        });
        // There is a first page.
        Ok(all.unwrap_or(AgentModels {
            agent: String::new(),
            models: Vec::new(),
            modes: Vec::new(),
            mode: None,
            note: None,
        }))
    }

    /// Which agent a send would go to by the routes, and why. Nothing is run.
    ///
    /// # Errors
    /// Those of the send, as far as they are known before it is one.
    pub async fn route(&mut self, send: &Send) -> Result<Reply<RouteAnswer>, RequestError> {
        let taken = (RequestKind::Route, |line: Line| match line {
            Line::Route(answer) => Some(*answer),
            _ => None,
        });
        self.answer_of(send, taken).await
    }

    /// The slash commands of an agent, or that of a session; a process of it is started if none lives.
    ///
    /// # Errors
    /// As `models`.
    pub async fn commands(
        &mut self,
        asked: Commands,
    ) -> Result<Reply<AgentCommands>, RequestError> {
        let taken = answered!(
            Commands { agent, commands, note } => AgentCommands { agent, commands, note }
        );
        self.answer_of(&asked, taken).await
    }
}
