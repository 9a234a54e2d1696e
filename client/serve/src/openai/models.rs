//! `GET /v1/models`: the agents, as models; and which of them a request means.
//!
//! Owns the routes, and other names for models. Must not know any agent.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use agentd_faces::openai::failure::Failure;
use agentd_faces::openai::model::{self, ModelName};
use agentd_protocol::models::Models;
use agentd_protocol::{Code, answered};
use axum::Json;
use axum::extract::State;
use serde_json::Value;
use tokio_util::task::TaskTracker;

use super::asking::Asking;
use super::attempts::Attempts;
use super::deleted::Deleted;
use super::readers::Readers;
use super::{OnLeave, Refusal, jobs};
use crate::app::App;
use crate::jobs::{Named, ask};
use crate::problem::Problem;

/// Pages of an agent's models that are looked at.
const MOST_PAGES: usize = 20;

/// What whoever serves this says of it.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) on_leave: OnLeave,
    /// Models by the names that clients have for them.
    pub(crate) aliases: BTreeMap<String, String>,
    pub(crate) deleted: Deleted,
    pub(crate) attempts: Attempts,
    pub(super) readers: Readers,
    /// Streams that are told, and turns that nobody reads any more being cancelled.
    pub(crate) tasks: TaskTracker,
}

impl Settings {
    /// With what is kept beside the token.
    pub(crate) fn of(token: &Path, on_leave: OnLeave, aliases: BTreeMap<String, String>) -> Self {
        let deleted = Deleted::beside(token);
        Self {
            on_leave,
            aliases,
            deleted,
            attempts: Attempts::default(),
            readers: Readers::default(),
            tasks: TaskTracker::new(),
        }
    }
}

/// The model that a request means.
pub(super) fn meant(app: &App, asking: &Asking, model: ModelName) -> Result<ModelName, Failure> {
    let asked = asking.model.clone().unwrap_or(model);
    let alias = asked.word.as_ref();
    match alias.and_then(|word| app.openai.aliases.get(word)) {
        Some(other) => Ok(ModelName {
            word: asked.word,
            ..ModelName::read(Some(other.clone()))?
        }),
        None => Ok(asked),
    }
}

/// A refusal with the models that there are, where the one that was asked for isn't.
pub(super) async fn explained(app: &App, refusal: Refusal) -> Refusal {
    if refusal.failure.code != "model_not_found" {
        return refusal;
    }
    match jobs::agents(app).await {
        Ok(agents) => model::unknown(refusal.failure, &agents).into(),
        Err(_) => refusal,
    }
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<Value>, Refusal> {
    let agents = jobs::agents(&app).await?;
    let mut list = model::list(&agents);
    if let Some(Value::Array(data)) = list.get_mut("data") {
        data.extend(app.openai.aliases.keys().map(|name| model::object(name)));
    }
    Ok(Json(list))
}

pub(super) async fn one(State(app): State<Arc<App>>, name: Named) -> Result<Json<Value>, Refusal> {
    let word = name.map_or_else(|_| char::REPLACEMENT_CHARACTER.into(), |name| name.0);
    let asked = ModelName::read(Some(word.clone()))?;
    let meant = match app.openai.aliases.get(&word) {
        Some(other) => ModelName::read(Some(other.clone()))?,
        None => asked,
    };
    let agents = jobs::agents(&app).await?;
    let is_it = |name: &String| agents.iter().any(|row| row.usable && row.name == *name);
    let is_agent = meant.agent.as_ref().is_none_or(is_it);
    if is_agent && (meant.model.is_none() || is_there(&app, &meant).await?) {
        return Ok(Json(model::object(&word)));
    }
    let shown: String = word.chars().filter(|c| !c.is_control()).take(128).collect();
    let why = format!("there is no model `{shown}`");
    let failure = Failure::not_found("model_not_found", why).about("model");
    Err(model::unknown(failure, &agents).into())
}

/// Does its agent have the model? One that can't say takes what it is told.
async fn is_there(app: &App, name: &ModelName) -> Result<bool, Refusal> {
    let mut after = None;
    for _ in 0..MOST_PAGES {
        let fields = Models {
            agent: name.agent.clone(),
            after,
            ..Models::default()
        };
        let taken = answered!(Models { models, next } => (models, next));
        let (models, next) = match ask(app, &fields, taken).await {
            Ok(page) => page,
            Err(problem) if problem.code == Code::Unsupported.name() => return Ok(true),
            Err(problem) => return Err(Problem::into(problem)),
        };
        if name.is_among(&models) {
            return Ok(true);
        }
        if next.is_none() {
            return Ok(false);
        }
        after = next;
    }
    Ok(false)
}
