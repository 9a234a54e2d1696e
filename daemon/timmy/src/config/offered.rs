//! Which models can be asked: what is configured, and what the providers list that can be asked.
//!
//! Owns their order, and who is asked for a list. Must not know what the list is for.

use std::collections::BTreeSet;
use std::time::Duration;

use agentd_protocol::attachment::PDF;
use agentd_protocol::models::ModelRow;
use futures_util::future::join_all;

use super::Config;
use super::chain::{self, Ask, ModelRequest, Unchosen};
use crate::model::catalog;
use crate::provider::keys;
use crate::provider::table::{self, ALL};
use crate::provider::{Key, Provider, Target};

/// A list that takes longer is left out, and said to be: whoever asks waits 10 s for all.
const LISTS_WITHIN: Duration = Duration::from_secs(5);
/// A picture, where only the kind matters.
const PICTURE: &str = "image/png";

/// Models, the default first, and what a person would want to know.
#[derive(Default, Debug)]
pub(crate) struct Offered {
    pub(crate) rows: Vec<ModelRow>,
    pub(crate) notes: Vec<String>,
}

/// Who can be asked for a list: each with a key, or on the user's own machines. The others say why
/// they aren't usable at all.
pub(crate) fn to_ask(
    config: &Config,
    lookup: Ask<'_>,
) -> (Vec<(Provider, Option<Key>)>, Vec<String>) {
    let own = config.providers.keys().map(String::as_str);
    let own = own.filter(|name| table::known(name).is_none());
    let (mut providers, mut problems) = (Vec::new(), Vec::new());
    for name in ALL.iter().map(|row| row.id).chain(own) {
        match table::resolve(name, config, lookup) {
            Ok(provider) => {
                let key = keys::find(&provider.key_variables, lookup);
                if key.is_some() || provider.local {
                    providers.push((provider, key));
                }
            }
            Err(why) => problems.push(format!("{name}: {why}")),
        }
    }
    (providers, problems)
}

/// What can be asked by a turn that names `asked`. Nothing chosen is no error here: then there is no
/// default.
pub(crate) async fn offered(
    config: &Config,
    lookup: Ask<'_>,
    asked: &ModelRequest<'_>,
) -> Result<Offered, Unchosen> {
    let mut offered = Offered::default();
    let chosen = chain::choose(config, lookup, asked).await;
    let chain = match chosen {
        Ok(chosen) => chosen.chain,
        Err(Unchosen::Nothing(_)) => Vec::new(),
        Err(wrong @ Unchosen::Wrong(_)) => return Err(wrong),
    };
    for (place, target) in chain.iter().enumerate() {
        offered.push(target, None, place == 0);
    }
    for (name, model) in &config.models.aliases {
        let asked = ModelRequest {
            model: Some(model),
            ..ModelRequest::default()
        };
        // One that leads nowhere is `check-config`'s to tell.
        if let Ok(chosen) = chain::choose(config, lookup, &asked).await {
            let target = chosen.chain.into_iter().next();
            target.inspect(|target| offered.push(target, Some(name), false));
        }
    }
    let (providers, problems) = to_ask(config, lookup);
    offered.notes.extend(problems);
    let lists = providers.into_iter().map(|(provider, key)| async move {
        let models = catalog::of(&provider, key.as_ref(), LISTS_WITHIN).await;
        (provider, key, models)
    });
    // At once: each of them may take all of its time.
    for (provider, key, models) in join_all(lists).await {
        let provider = std::sync::Arc::new(provider);
        match models {
            Ok(models) => {
                let talks = |model: &String| !model.to_ascii_lowercase().contains("embed");
                for model in models.into_iter().filter(talks) {
                    let target = Target {
                        provider: std::sync::Arc::clone(&provider),
                        model,
                        key: key.clone(),
                    };
                    offered.push(&target, None, false);
                }
            }
            // Nobody said that a server runs here.
            Err(_) if provider.local => {}
            Err(why) => offered.notes.push(format!(
                "`{}` could not be asked for its models: {why}",
                provider.id
            )),
        }
    }
    offered.once();
    Ok(offered)
}

impl Offered {
    fn push(&mut self, target: &Target, label: Option<&str>, default: bool) {
        let mut input = vec!["text".to_owned()];
        for (kind, mime) in [("image", PICTURE), ("pdf", PDF)] {
            if target.takes(mime) {
                input.push(kind.to_owned());
            }
        }
        self.rows.push(ModelRow {
            provider: Some(target.provider.id.clone()),
            model: target.model.clone(),
            label: label.map(str::to_owned),
            // Which levels a model takes only its provider knows.
            thinking: None,
            input: Some(input),
            context_window: target.window(),
            default,
        });
    }

    /// Each model once, by its first row; a short name is kept of a later one.
    fn once(&mut self) {
        let mut seen = BTreeSet::new();
        let rows = std::mem::take(&mut self.rows);
        for row in rows {
            let name = (row.provider.clone(), row.model.clone());
            if seen.insert(name) {
                self.rows.push(row);
            } else if row.label.is_some() {
                let same = |one: &&mut ModelRow| {
                    (&one.provider, &one.model) == (&row.provider, &row.model)
                };
                if let Some(first) = self.rows.iter_mut().find(same) {
                    first.label = row.label;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    fn offered_by(text: &str, set: &[(&str, &str)], asked: &ModelRequest<'_>) -> Offered {
        let config = Config::parse(text, Path::new("/c")).unwrap();
        let set: BTreeMap<&str, &str> = set.iter().copied().collect();
        let lookup = |name: &str| set.get(name).map(|value| (*value).to_owned());
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(offered(&config, &lookup, asked)).unwrap()
    }

    fn names(offered: &Offered) -> Vec<String> {
        let rows = offered.rows.iter();
        rows.map(|row| {
            let provider = row.provider.as_deref().unwrap_or_default();
            let default = if row.default { " default" } else { "" };
            let label = row
                .label
                .as_deref()
                .map_or_else(String::new, |label| format!(" {label}"));
            format!("{provider}/{}{label}{default}", row.model)
        })
        .collect()
    }

    /// Without servers, wherever the test runs: nobody listens there.
    const NOWHERE: &str = "\n[providers.ollama]\nbase_url = 'http://127.0.0.1:9'\n\
        [providers.lmstudio]\nbase_url = 'http://127.0.0.1:9/v1'\n\
        [providers.llamacpp]\nbase_url = 'http://127.0.0.1:9/v1'\n";

    #[test]
    fn models_configured_come_first_and_once() {
        let text = format!(
            "[models]\ndefault = 'groq/llama'\nfallbacks = ['gemini/gemini-2.5-pro', 'groq/llama']\n\
             aliases = {{ fast = 'groq/llama' }}\n{NOWHERE}"
        );
        let all = offered_by(&text, &[], &ModelRequest::default());
        assert_eq!(
            names(&all),
            ["groq/llama fast default", "gemini/gemini-2.5-pro"]
        );
        assert_eq!(
            all.rows[1].input.as_deref().unwrap(),
            ["text", "image", "pdf"]
        );
        assert!(all.rows[1].context_window > Some(100_000));
        let pinned = ModelRequest {
            model: Some("gemini/gemini-2.5-pro"),
            ..ModelRequest::default()
        };
        let pinned = offered_by(&text, &[], &pinned);
        assert_eq!(names(&pinned)[0], "gemini/gemini-2.5-pro default");
    }

    #[test]
    fn models_of_a_provider_that_fails_are_noted() {
        let text = format!(
            "[models]\ndefault = 'mine/a'\n[providers.mine]\nbase_url = 'https://mine.invalid/v1'\n\
             key_env = 'MINE'\n{NOWHERE}"
        );
        let all = offered_by(&text, &[("MINE", "k")], &ModelRequest::default());
        assert_eq!(names(&all), ["mine/a default"]);
        let [note] = &all.notes[..] else {
            panic!("{:?}", all.notes);
        };
        assert!(
            note.starts_with("`mine` could not be asked for its models"),
            "{note}"
        );
    }

    #[test]
    fn models_nobody_configured_are_none() {
        let nothing = offered_by(NOWHERE, &[], &ModelRequest::default());
        assert!(
            nothing.rows.is_empty() && nothing.notes.is_empty(),
            "{nothing:?}"
        );
    }
}
