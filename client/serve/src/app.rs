//! What all requests share.
//!
//! Owns what is there for each of them, and how their query is read. Must not know the operations.

use std::sync::Arc;

use agentd_protocol::Code;
use axum::extract::Query;
use axum::http::Uri;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, watch};

use crate::daemon::Daemon;
use crate::guard::Guard;
use crate::openai::Settings;
use crate::problem::Problem;

/// What all requests share. Nothing of it is remembered.
pub(crate) struct App {
    pub(crate) daemon: Daemon,
    pub(crate) guard: Guard,
    /// How OpenAI's API is served.
    pub(crate) openai: Settings,
    /// For bodies, in KiB.
    pub(crate) room: Arc<Semaphore>,
    /// Is this server to end?
    pub(crate) stopping: watch::Receiver<bool>,
    /// The document, written down once.
    pub(crate) document: String,
}

/// The words behind the question mark, every one of them known.
pub(crate) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    let found = Query::<T>::try_from_uri(uri);
    found.map(|Query(found)| found).map_err(|error| {
        // The error says only that the query is wrong; its cause says what.
        let why = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
        Problem::of(Code::InvalidRequest, format!("invalid query: {why}"))
    })
}
