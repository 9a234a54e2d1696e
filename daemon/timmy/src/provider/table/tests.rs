//! Providers by name, and what the user changes of them.

use super::*;
use crate::provider::keys;

fn config(text: &str) -> Config {
    toml::from_str(text).unwrap()
}

fn variables<'a>(said: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    move |name| {
        let found = said.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    }
}

fn plain(name: &str) -> Provider {
    resolve(name, &Config::default(), &|_| None).unwrap()
}

#[test]
fn names_and_other_names_find_one_row_each() {
    let mut names = std::collections::HashSet::new();
    for row in ALL {
        for name in std::iter::once(&row.id).chain(row.aliases) {
            assert!(names.insert(*name), "`{name}` is there twice");
            assert_eq!(known(name).unwrap().id, row.id);
        }
        assert!(!row.base_url.ends_with('/'), "{}", row.id);
        assert_eq!(plain(row.id).local, row.local, "{}", row.id);
    }
    for (name, id) in [
        ("google", "gemini"),
        ("xai", "grok"),
        ("kimi", "moonshot"),
        ("Llama.cpp", "llamacpp"),
    ] {
        assert_eq!(plain(name).id, id);
    }
}

#[test]
fn provider_of_a_kimi_key_is_by_plan() {
    for (key, url) in [
        ("sk-kimi-abc", "https://api.kimi.com/coding/v1"),
        ("sk-abc", "https://api.moonshot.ai/v1"),
    ] {
        for name in ["kimi-coding", "moonshot"] {
            let said = [("KIMI_API_KEY", key)];
            let lookup = variables(&said);
            let provider = resolve(name, &Config::default(), &lookup).unwrap();
            assert_eq!(provider.base_url, url, "{name} {key}");
            let found = keys::find(&provider.key_variables, &lookup);
            assert_eq!(found.unwrap().secret(), key);
        }
    }
}

#[test]
fn provider_address_that_is_wrong_blames_its_variable() {
    for (name, variable, value) in [
        ("lmstudio", "LM_BASE_URL", "127.0.0.1:1234"),
        ("ollama", "OLLAMA_HOST", "a b"),
    ] {
        let said = [(variable, value)];
        let wrong = resolve(name, &Config::default(), &variables(&said)).unwrap_err();
        let said = wrong.to_string();
        assert!(
            said.starts_with(&format!("the variable {variable}: `")),
            "{said}"
        );
        assert!(!said.contains("config.toml"), "{said}");
    }
    let blank = [("LM_BASE_URL", " ")];
    let found = resolve("lmstudio", &Config::default(), &variables(&blank)).unwrap();
    assert_eq!(found.base_url, "http://127.0.0.1:1234/v1");
}

#[test]
fn provider_openai_reasons_through_responses_only() {
    let openai = plain("openai");
    assert_eq!(openai.wire_for("gpt-5-mini"), Wire::Responses);
    assert_eq!(openai.wire_for("gpt-4.1"), Wire::OpenAi);
    let said = [("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/")];
    let elsewhere = resolve("openai", &Config::default(), &variables(&said)).unwrap();
    assert_eq!(elsewhere.base_url, "http://127.0.0.1:9/v1");
    assert_eq!(elsewhere.wire_for("gpt-5-mini"), Wire::OpenAi);
    assert!(!elsewhere.local, "a key is still wanted");
}

#[test]
fn variables_say_where_local_servers_are() {
    for (value, url) in [
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("box", "http://box:11434"),
        ("https://ollama.com", "https://ollama.com"),
        ("http://10.0.0.5:11434/", "http://10.0.0.5:11434"),
        (":9000", "http://127.0.0.1:9000"),
    ] {
        let said = [("OLLAMA_HOST", value)];
        let found = resolve("ollama", &Config::default(), &variables(&said)).unwrap();
        assert_eq!(found.base_url, url, "{value}");
        assert_eq!(found.local, value != "https://ollama.com", "{value}");
    }
    for (name, variable) in [("lmstudio", "LM_BASE_URL"), ("llamacpp", "LLAMA_BASE_URL")] {
        let said = [(variable, "http://127.0.0.1:5/v1")];
        let found = resolve(name, &Config::default(), &variables(&said)).unwrap();
        assert_eq!(found.base_url, "http://127.0.0.1:5/v1");
    }
}

#[test]
fn the_users_table_changes_and_adds() {
    let config = config(
        "[providers.groq]\nbase_url = \"http://127.0.0.1:1/v1\"\nkey_env = \"MINE\"\n\
         [providers.my-llm]\nbase_url = \"https://llm.example/v1/\"\n\
         [providers.here]\nbase_url = \"http://localhost:7/v1\"\nwire = \"anthropic\"\n",
    );
    let resolve = |name| resolve(name, &config, &|_| None).unwrap();
    let groq = resolve("groq");
    assert_eq!(groq.base_url, "http://127.0.0.1:1/v1");
    assert_eq!(groq.key_variables, ["MINE", "GROQ_API_KEY"]);
    assert_eq!(groq.wire, Wire::Groq);
    let mine = resolve("my-llm");
    assert_eq!(mine.base_url, "https://llm.example/v1");
    assert_eq!(mine.key_variables, ["MY_LLM_API_KEY"]);
    assert!(!mine.local);
    let here = resolve("here");
    assert_eq!((here.wire, here.local), (Wire::Anthropic, true));
}

#[test]
fn provider_mistake_says_what_to_do() {
    let config = config(
        "[providers.a]\n[providers.b]\nbase_url = \"ftp://x\"\n\
         [providers.c]\nbase_url = \"https://x\"\nwire = \"telepathy\"\n[providers.my-own]\n",
    );
    for (name, words) in [
        ("gorq", "did you mean `groq`?"),
        ("my-onw", "did you mean `my-own`?"),
        ("something-else", "agentctl provider list"),
        ("a", "`base_url` is missing"),
        ("b", "begins with http:// or https://"),
        ("c", "`wire` is one of openai, responses"),
    ] {
        let error = resolve(name, &config, &|_| None).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_model_is_split_at_its_first_slash() {
    let split = |text| split(text).map_err(|error| error.to_string());
    assert_eq!(
        split("openrouter/openai/gpt-4.1-mini"),
        Ok(("openrouter", "openai/gpt-4.1-mini"))
    );
    for wrong in ["gpt-4.1", "/x", "groq/", ""] {
        assert!(
            split(wrong).unwrap_err().contains("provider/model"),
            "{wrong}"
        );
    }
}

#[test]
fn provider_window_by_the_user_comes_first() {
    let config = config("[providers.groq]\ncontext_window = 9000\n");
    let window = |name: &str, model: &str| {
        let provider = resolve(name, &config, &|_| None).unwrap();
        let (provider, model) = (provider.into(), model.to_owned());
        let target = crate::provider::Target {
            provider,
            model,
            key: None,
        };
        target.window()
    };
    assert_eq!(window("groq", "llama-3.3-70b"), Some(9000));
    assert_eq!(window("openai", "gpt-4.1"), Some(1_000_000));
    assert_eq!(window("lmstudio", "qwen3:8b"), None);
    // What its server is asked to make room for.
    assert_eq!(window("ollama", "qwen3:8b"), Some(16_384));
    assert_eq!(window("ollama", "gpt-4:local"), Some(8_192));
}
