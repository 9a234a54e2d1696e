//! Which models and slash commands an agent has.
//!
//! Owns their shape in HTTP. Must not know any agent.

use std::sync::Arc;

use agentd_protocol::commands::{CommandRow, Commands};
use agentd_protocol::models::{ModeRow, ModelRow, Models};
use agentd_protocol::{Code, answered};
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::app::{App, query};
use crate::jobs::{Named, ask, name_of};
use crate::problem::Problem;

/// Which page.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Behind {
    /// The `next` of the page before.
    after: Option<u64>,
}

/// The models of an agent, as it says itself.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ModelPage {
    /// Whose they are.
    agent: String,
    /// In its order.
    models: Vec<ModelRow>,
    /// Its own ways of working, with the first page.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    modes: Vec<ModeRow>,
    /// The one that is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// There are more: the next page is `after` this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// What is not as one may think: why there is none, or what was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

pub(crate) async fn of_agent(
    State(app): State<Arc<App>>,
    agent: Named,
    uri: Uri,
) -> Result<Json<ModelPage>, Problem> {
    let agent = Some(name_of(agent, "agent", Code::UnknownAgent)?);
    let after = query::<Behind>(&uri)?.after;
    let fields = Models {
        agent,
        after,
        ..Models::default()
    };
    page(&app, &fields).await
}

pub(crate) async fn of_session(
    State(app): State<Arc<App>>,
    session: Named,
    uri: Uri,
) -> Result<Json<ModelPage>, Problem> {
    let session = Some(name_of(session, "session", Code::UnknownSession)?);
    let after = query::<Behind>(&uri)?.after;
    let fields = Models {
        session,
        after,
        ..Models::default()
    };
    page(&app, &fields).await
}

async fn page(app: &App, fields: &Models) -> Result<Json<ModelPage>, Problem> {
    let taken = answered!(
        Models { agent, models, modes, mode, next, note }
            => Json(ModelPage { agent, models, modes, mode, next, note })
    );
    ask(app, fields, taken).await
}

/// The slash commands of an agent, as it says itself.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CommandPage {
    /// Whose they are.
    agent: String,
    /// In its order.
    commands: Vec<CommandRow>,
    /// What is not as one may think: why there is none, or what was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

pub(crate) async fn commands_of_agent(
    State(app): State<Arc<App>>,
    agent: Named,
) -> Result<Json<CommandPage>, Problem> {
    let fields = Commands {
        agent: Some(name_of(agent, "agent", Code::UnknownAgent)?),
        session: None,
    };
    commands(&app, &fields).await
}

pub(crate) async fn commands_of_session(
    State(app): State<Arc<App>>,
    session: Named,
) -> Result<Json<CommandPage>, Problem> {
    let fields = Commands {
        agent: None,
        session: Some(name_of(session, "session", Code::UnknownSession)?),
    };
    commands(&app, &fields).await
}

async fn commands(app: &App, fields: &Commands) -> Result<Json<CommandPage>, Problem> {
    let taken = answered!(
        Commands { agent, commands, note } => Json(CommandPage { agent, commands, note })
    );
    ask(app, fields, taken).await
}
