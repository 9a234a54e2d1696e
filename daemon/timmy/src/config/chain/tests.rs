//! Whom a turn asks, with keys and servers as they come.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use super::*;
use crate::config::no_model::CalledAs;
use crate::config::read::Places;

const CONFIGURED: &str = r#"
[models]
default = "gemini/gemini-2.5-pro"
fallbacks = ["fast", "openrouter/openai/gpt-4.1-mini", "gemini/gemini-2.5-pro"]
aliases = { fast = "groq/llama" }
"#;

/// Without servers, wherever the test runs: nobody listens there.
const NOWHERE: &str = "\n[providers.ollama]\nbase_url = 'http://127.0.0.1:9'\n\
    [providers.lmstudio]\nbase_url = 'http://127.0.0.1:9/v1'\n\
    [providers.llamacpp]\nbase_url = 'http://127.0.0.1:9/v1'\n";

fn chosen(text: &str, set: &[(&str, &str)], asked: ModelRequest<'_>) -> Result<Chosen, Unchosen> {
    let config = Config::parse(text, Path::new("/c")).unwrap();
    let set: BTreeMap<String, String> = set
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .unwrap()
        .block_on(choose(&config, &|name| set.get(name).cloned(), &asked))
}

fn names(chosen: Result<Chosen, Unchosen>) -> String {
    match chosen {
        Ok(chosen) => {
            let names = chosen.chain.iter();
            let names: Vec<String> = names
                .map(|target| format!("{}|{}", target.provider.id, target.model))
                .collect();
            names.join(" ")
        }
        Err(Unchosen::Wrong(rejected)) => format!("{}: {}", rejected.code, rejected.error),
        Err(Unchosen::Nothing(looked)) => format!("nothing of {}", looked.candidates.len()),
    }
}

fn asked<'a>(provider: Option<&'a str>, model: Option<&'a str>) -> ModelRequest<'a> {
    ModelRequest {
        provider,
        model,
        ..ModelRequest::default()
    }
}

#[test]
fn chain_asks_in_order_and_nobody_twice() {
    let chain = "gemini|gemini-2.5-pro groq|llama openrouter|openai/gpt-4.1-mini";
    assert_eq!(
        names(chosen(CONFIGURED, &[], ModelRequest::default())),
        chain
    );
    let key = [("GROQ_API_KEY", "k")];
    let with_key = chosen(CONFIGURED, &key, ModelRequest::default()).unwrap();
    let keys: Vec<bool> = with_key.chain.iter().map(|one| one.key.is_some()).collect();
    assert_eq!(keys, [false, true, false]);
    assert_eq!(with_key.announced, None);
}

#[test]
fn chain_of_a_pin_is_the_pin_alone() {
    for (provider, model, expected) in [
        (None, Some("mistral/x"), "mistral|x"),
        (None, Some("fast"), "groq|llama"),
        (Some("google"), None, "gemini|gemini-2.5-pro"),
        (Some("anthropic"), None, "anthropic|claude-haiku-4-5"),
        (Some("gemini"), Some("gemini/x"), "gemini|x"),
        (
            Some("openrouter"),
            Some("openai/gpt"),
            "openrouter|openai/gpt",
        ),
        (
            Some("openrouter"),
            Some("openrouter/auto"),
            "openrouter|openrouter/auto",
        ),
        (
            None,
            Some("openrouter/openrouter/auto"),
            "openrouter|openrouter/auto",
        ),
    ] {
        let found = names(chosen(CONFIGURED, &[], asked(provider, model)));
        assert_eq!(found, expected, "{provider:?} {model:?}");
    }
    let chain = ["fast".to_owned(), "mistral/y".to_owned()];
    for (model, expected) in [
        (Some("mistral/x"), "mistral|x groq|llama mistral|y"),
        (None, "gemini|gemini-2.5-pro groq|llama mistral|y"),
    ] {
        let asked = ModelRequest {
            provider: None,
            model,
            fallback_chain: Some(&chain),
            ..ModelRequest::default()
        };
        assert_eq!(names(chosen(CONFIGURED, &[], asked)), expected);
    }
}

#[test]
fn chain_of_two_providers_halves_is_refused() {
    let text = format!("{CONFIGURED}\n[providers.openai]\nbase_url = 'http://127.0.0.1:1/v1'\n");
    let said = |config: &str, provider, model, usual_provider| {
        let asked = ModelRequest {
            usual_provider,
            ..asked(Some(provider), Some(model))
        };
        match chosen(config, &[], asked) {
            Err(Unchosen::Wrong(no)) => format!("{}; {}", no.error, no.hint.unwrap_or_default()),
            other => names(other),
        }
    };
    assert_eq!(
        said(CONFIGURED, "openai", "gemini/x", Some("openai")),
        "provider `openai` has no model `gemini/x`: the provider is the one configured for this \
         agent, the model was named; name both, as `--provider gemini --model x`"
    );
    let both = said(CONFIGURED, "openai", "gemini/x", None);
    assert!(both.contains("named together"), "{both}");
    // By its short name, which is another provider's.
    let short = said(CONFIGURED, "gemini", "fast", Some("gemini"));
    assert!(
        short.ends_with("name both, as `--provider groq --model llama`"),
        "{short}"
    );
    // Some have models of such names, and who is behind an address of one's own is unknown.
    let groq = said(CONFIGURED, "groq", "openai/gpt-oss-120b", Some("groq"));
    assert_eq!(groq, "groq|openai/gpt-oss-120b");
    assert_eq!(said(&text, "openai", "gemini/x", None), "openai|gemini/x");
}

#[test]
fn chain_entry_without_a_slash_is_looked_up() {
    let behind = |provider, model, text: &str, entries: &[&str]| {
        let chain: Vec<String> = entries.iter().map(|name| (*name).to_owned()).collect();
        let asked = ModelRequest {
            provider,
            model,
            fallback_chain: Some(&chain),
            ..ModelRequest::default()
        };
        let found = chosen(text, &[], asked);
        let note = found
            .as_ref()
            .ok()
            .and_then(|found| found.announced.clone());
        (names(found), note)
    };
    let kimi = Some("kimi-coding");
    let both = format!("{CONFIGURED}{NOWHERE}");
    let (found, note) = behind(
        kimi,
        None,
        &both,
        &["kimi-k2.5", "fast", "anthropic", "local-llm"],
    );
    assert_eq!(
        found,
        "kimi-coding|kimi-for-coding kimi-coding|kimi-k2.5 groq|llama anthropic|claude-haiku-4-5"
    );
    assert!(note.unwrap().starts_with("`local-llm` is left out"));
    let named = behind(None, Some("mistral/x"), &both, &["y"]);
    assert_eq!(named, ("mistral|x mistral|y".to_owned(), None));
    let meant = CONFIGURED.replace("fast =", "local-llm = \"ollama/llama3\", fast =");
    let (found, note) = behind(kimi, None, &meant, &["local-llm"]);
    assert_eq!(found, "kimi-coding|kimi-for-coding ollama|llama3");
    assert_eq!(note, None);
    let (found, _) = behind(None, None, CONFIGURED, &["kimi-k2.5"]);
    assert!(found.contains("`kimi-k2.5` is neither"), "{found}");
    let (found, _) = behind(kimi, None, CONFIGURED, &["ollama"]);
    assert!(found.contains("no model of provider `ollama`"), "{found}");
}

#[test]
fn what_a_send_names_wrong_is_said() {
    for (provider, model, expected) in [
        (None, Some("fst"), "invalid-request: `fst` is neither"),
        (None, Some("gemni/x"), "did you mean `gemini`?"),
        (Some("gemni"), None, "did you mean `gemini`?"),
        (
            Some("lmstudio"),
            None,
            "no model of provider `lmstudio` was named",
        ),
    ] {
        let found = names(chosen(CONFIGURED, &[], asked(provider, model)));
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn chain_by_keys_is_the_only_one_there() {
    let only = |set: &[(&str, &str)]| chosen(NOWHERE, set, ModelRequest::default());
    let found = only(&[("GOOGLE_API_KEY", "k")]).unwrap();
    assert!(
        found
            .announced
            .as_ref()
            .unwrap()
            .contains("key GOOGLE_API_KEY"),
        "{found:?}"
    );
    assert_eq!(names(Ok(found)), "gemini|gemini-2.5-flash");
    // Two variables of one house, and one variable of two, are one key.
    for set in [
        &[("GEMINI_API_KEY", "k"), ("GOOGLE_API_KEY", "k")][..],
        &[("KIMI_API_KEY", "sk-kimi-1")],
        &[("ZAI_API_KEY", "k"), ("GLM_API_KEY", " ")],
    ] {
        assert!(only(set).is_ok(), "{set:?}");
    }
    let Err(Unchosen::Nothing(looked)) = only(&[("GROQ_API_KEY", "k"), ("XAI_API_KEY", "k")])
    else {
        panic!("one was guessed");
    };
    let places = Places {
        config: "/nowhere/config.toml".into(),
        state: "/nowhere".into(),
    };
    let said = looked.rejected(&places, CalledAs::Agentctl);
    assert_eq!(said.code, Code::NoModel);
    assert!(
        said.error
            .contains("groq/openai/gpt-oss-120b (key GROQ_API_KEY), grok/"),
        "{said:?}"
    );
    let hint = said.hint.unwrap();
    assert!(
        hint.contains("agentctl models default grok/grok-4.3"),
        "{hint}"
    );
}

#[test]
fn chain_of_an_empty_machine_says_what_helps() {
    let begun = std::time::Instant::now();
    let Err(Unchosen::Nothing(looked)) = chosen(NOWHERE, &[], ModelRequest::default()) else {
        panic!("there is nothing");
    };
    assert!(begun.elapsed().as_secs_f64() < 1.0);
    let places = Places {
        config: "/nowhere/config.toml".into(),
        state: "/nowhere".into(),
    };
    let said = looked.rejected(&places, CalledAs::Timmy);
    for word in [
        "/nowhere/config.toml (not there)",
        "KIMI_API_KEY",
        "http://127.0.0.1:9 (no answer)",
    ] {
        assert!(said.error.contains(word), "{}", said.error);
    }
    assert!(said.hint.unwrap().contains("timmy provider add gemini"));
    let machine = looked.machine(&places, CalledAs::Agentctl);
    assert_eq!(machine["checked"].as_array().unwrap().len(), 3, "{machine}");
    assert_eq!(
        machine["next"][0]["command"],
        "agentctl provider add gemini"
    );
    let own = format!("[providers.mine]\nbase_url = 'http://127.0.0.1:9'\n{NOWHERE}");
    let Err(Unchosen::Nothing(with_own)) = chosen(&own, &[], ModelRequest::default()) else {
        panic!("there is nothing");
    };
    let machine = with_own.machine(&places, CalledAs::Agentctl);
    assert_eq!(
        machine["next"][0]["command"],
        "agentctl models default mine/MODEL"
    );
    let said = looked.rejected(&places, CalledAs::Agentctl);
    let echo = "agentctl send --provider echo hello ";
    assert!(said.hint.unwrap().contains(echo));
}

/// An Ollama with two models, its place in a configuration, and what it is asked.
fn ollama() -> (std::thread::JoinHandle<String>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = [0; 1024];
        let read = stream.read(&mut asked).unwrap();
        let body = r#"{"models":[{"name":"nomic-embed-text"},{"name":"qwen3:4b"}]}"#;
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
        .unwrap();
        String::from_utf8_lossy(&asked[..read]).into_owned()
    });
    let text = NOWHERE.replacen("127.0.0.1:9", &address.to_string(), 1);
    (served, text)
}

#[test]
fn chain_without_keys_is_a_local_server() {
    let (served, text) = ollama();
    let found = chosen(&text, &[], ModelRequest::default()).unwrap();
    assert!(
        found
            .announced
            .as_ref()
            .unwrap()
            .contains("a server that runs at")
    );
    assert_eq!(names(Ok(found)), "ollama|qwen3:4b");
    let asked = served.join().unwrap();
    assert!(asked.starts_with("GET /api/tags "), "{asked}");
}

#[test]
fn a_local_fallback_is_the_server_that_runs() {
    let (served, text) = ollama();
    let chain = ["kimi-k2.5".to_owned(), "local-llm".to_owned()];
    let asked = ModelRequest {
        provider: Some("kimi-coding"),
        fallback_chain: Some(&chain),
        ..ModelRequest::default()
    };
    let found = chosen(&text, &[], asked).unwrap();
    assert_eq!(found.announced, None);
    assert_eq!(
        names(Ok(found)),
        "kimi-coding|kimi-for-coding kimi-coding|kimi-k2.5 ollama|qwen3:4b"
    );
    served.join().unwrap();
}

#[test]
fn chain_knows_a_usual_model_of_each_provider() {
    for row in ALL.iter().filter(|row| !row.local) {
        let provider = table::resolve(row.id, &Config::default(), &|_| None).unwrap();
        assert!(usual(&provider).is_some(), "{}", row.id);
    }
}

#[test]
fn chain_asks_kimis_houses_for_their_own_models() {
    for (key, expected) in [
        ("sk-kimi-abc", "kimi-coding|kimi-for-coding"),
        ("sk-abc", "kimi-coding|kimi-k2.6"),
    ] {
        let found = chosen(NOWHERE, &[("KIMI_API_KEY", key)], ModelRequest::default());
        assert_eq!(names(found), expected);
        let pinned = ModelRequest {
            provider: Some("kimi"),
            ..ModelRequest::default()
        };
        let found = names(chosen(NOWHERE, &[("KIMI_API_KEY", key)], pinned));
        let model = expected.replace("kimi-coding|", "moonshot|");
        assert_eq!(found, model);
    }
}
