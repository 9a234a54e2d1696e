//! Servers of models on this machine, which need no key.
//!
//! Owns how long each is waited for, and that no other machine is asked. Must not start anything.

use std::time::Duration;

use futures_util::future::join_all;

use super::Config;
use super::chain::Ask;
use super::no_model::Candidate;
use crate::model::catalog;
use crate::provider::keys;
use crate::provider::table::{self, ALL};

/// A server of this machine that takes longer to name its models hangs. Where none listens, that is
/// known at once; one that listens shares the machine with its models, and may be slow.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// A place where a server could be, and what came of asking.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    /// The provider's name.
    pub(crate) provider: String,
    /// Where it was looked for.
    pub(crate) at: String,
    /// Its models; an error in words when nobody answered.
    pub(crate) models: Result<Vec<String>, String>,
}

impl Server {
    /// Its first model that can talk.
    pub(super) fn candidate(&self) -> Option<Candidate> {
        let models = self.models.as_ref().ok()?;
        let talks = |model: &&String| !model.to_ascii_lowercase().contains("embed");
        let model = models.iter().find(talks)?;
        Some(Candidate {
            provider: self.provider.clone(),
            model: Some(model.clone()),
            by: format!("a server that runs at {}", self.at),
        })
    }
}

/// Asks every place on this machine at once.
pub(crate) async fn servers(config: &Config, lookup: Ask<'_>) -> Vec<Server> {
    let places = ALL.iter().filter(|row| row.local).filter_map(|row| {
        let provider = table::resolve(row.id, config, lookup).ok()?;
        // `OLLAMA_HOST` may name another machine, which nobody asked us to look at.
        table::is_loopback(&provider.base_url).then_some(provider)
    });
    let asked = places.map(|provider| async move {
        let key = keys::find(&provider.key_variables, lookup);
        let models = catalog::of(&provider, key.as_ref(), ANSWERS_WITHIN).await;
        Server {
            at: provider.base_url.clone(),
            provider: provider.id,
            models,
        }
    });
    join_all(asked).await
}
