//! Which models a provider has, where it says so.
//!
//! Owns the address and the shape of each wire's list. Must not know what the list is for.

use std::time::Duration;

use reqwest::Url;
use serde_json::Value;

use super::http;
use crate::provider::{Key, Provider, Wire};

/// The longest list known has a megabyte; what is much longer isn't one.
const MOST_BYTES: usize = 8 << 20;
/// Longest name that is taken for a model's.
const NAME: usize = 256;

/// Asks for the list.
///
/// # Errors
/// Why there is none, in words without the key.
pub(crate) async fn of(
    provider: &Provider,
    key: Option<&Key>,
    within: Duration,
) -> Result<Vec<String>, String> {
    let asked = tokio::time::timeout(within, ask(provider, key));
    match asked.await {
        Ok(answered) => answered,
        Err(_) => Err(format!("no answer within {:.1} s", within.as_secs_f64())),
    }
}

async fn ask(provider: &Provider, key: Option<&Key>) -> Result<Vec<String>, String> {
    let url = address(provider)?;
    let client = http::builder_for(url.as_str())
        .build()
        .map_err(|why| http::chain(&why))?;
    let mut request = client.get(url);
    if let Some(key) = key {
        request = match provider.wire {
            Wire::Gemini => request.header("x-goog-api-key", key.secret()),
            Wire::Anthropic if !key.is_bearer() => request.header("x-api-key", key.secret()),
            _ => request.bearer_auth(key.secret()),
        };
    }
    if provider.wire == Wire::Anthropic {
        request = request.header("anthropic-version", "2023-06-01");
    }
    let mut response = request.send().await.map_err(|why| {
        // The address is ours and known; what went wrong there is what counts.
        http::chain(&why.without_url())
    })?;
    let status = response.status();
    if !status.is_success() {
        return Err(format!("it answered with status {}", status.as_u16()));
    }
    let mut body = Vec::new();
    while let Some(piece) = response
        .chunk()
        .await
        .map_err(|why| http::chain(&why.without_url()))?
    {
        if body.len() + piece.len() > MOST_BYTES {
            return Err("its answer is too long for a list of models".to_owned());
        }
        body.extend_from_slice(&piece);
    }
    let body: Value =
        serde_json::from_slice(&body).map_err(|_| "its answer is no JSON".to_owned())?;
    names(&body).ok_or_else(|| "its answer is no list of models".to_owned())
}

fn address(provider: &Provider) -> Result<Url, String> {
    let base = &provider.base_url;
    let url = match provider.wire {
        Wire::Ollama => format!("{base}/api/tags"),
        // Without a limit it tells 20, and the rest on further pages; so does Gemini with 50.
        Wire::Anthropic if base.ends_with("/v1") => format!("{base}/models?limit=1000"),
        Wire::Anthropic => format!("{base}/v1/models?limit=1000"),
        Wire::Gemini => format!("{base}/models?pageSize=1000"),
        _ => format!("{base}/models"),
    };
    Url::parse(&url).map_err(|why| format!("`{base}` is no address: {why}"))
}

/// OpenAI's and Anthropic's `data[].id`, Gemini's and Ollama's `models[].name`.
fn names(body: &Value) -> Option<Vec<String>> {
    let list = body
        .get("data")
        .or_else(|| body.get("models"))?
        .as_array()?;
    let name = |entry: &Value| {
        let name = entry.get("id").or_else(|| entry.get("name"))?.as_str()?;
        let name = name.strip_prefix("models/").unwrap_or(name);
        let fine = !name.is_empty() && name.len() <= NAME && !name.contains(char::is_control);
        fine.then(|| name.to_owned())
    };
    Some(list.iter().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn catalog_reads_all_wires_and_drops_bad_names() {
        for (body, expected) in [
            (
                json!({"data": [{"id": "gpt"}, {"id": ""}, {}]}),
                Some(vec!["gpt"]),
            ),
            (
                json!({"models": [{"name": "models/gemini"}, {"name": "qwen:4b"}, {"name": "a\nb"}]}),
                Some(vec!["gemini", "qwen:4b"]),
            ),
            (json!({"data": []}), Some(vec![])),
            (json!({"error": "no"}), None),
            (json!("x"), None),
        ] {
            let found = names(&body);
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(found, expected, "{body}");
        }
    }
}
