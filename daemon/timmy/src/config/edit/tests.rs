//! Changes of files as people write them.

use super::*;

const FILE: &str = "/c/config.toml";

fn after(text: &str, change: Change) -> String {
    changed(text, Path::new(FILE), &change).unwrap().0
}

fn refusal(text: &str, change: Change) -> String {
    match changed(text, Path::new(FILE), &change).unwrap_err() {
        EditError::Refused { what, hint } => format!("{what}; {hint}"),
        other => other.to_string(),
    }
}

fn add(model: &str) -> Change {
    Change::AddFallback(model.to_owned(), None)
}

const WRITTEN: &str = r#"# my agents
default_agent = "pi" # the best

[agents.pi]
warm = 1

# what timmy asks
[models]
default = "kimi-coding/k3" # fast
fallbacks = [
    "gemini/gemini-2.5-flash", # free
    # this one costs
    "openrouter/openai/gpt-4.1-mini",
]

[retention]
days = 7 # a week
"#;

#[test]
fn default_is_set_or_changed_with_its_comment() {
    let set = |text| after(text, Change::Default(Some("gemini/x".to_owned())));
    assert_eq!(set(""), "[models]\ndefault = \"gemini/x\"\n");
    let fresh = set(WRITTEN);
    assert_eq!(
        fresh,
        WRITTEN.replace("\"kimi-coding/k3\" # fast", "\"gemini/x\" # fast")
    );
    let unset = after("[models]\ndefault = 'gemini/x'\n", Change::Default(None));
    assert_eq!(unset, "[models]\n");
    assert_eq!(
        set("models = { on_refusal = 'next' }"),
        "models = { on_refusal = 'next' , default = \"gemini/x\" }\n"
    );
}

#[test]
fn fallbacks_come_go_and_move_with_their_comments() {
    let fresh = after(WRITTEN, add("groq/a/b"));
    assert!(
        fresh.contains("# this one costs\n    \"openrouter/openai/gpt-4.1-mini\""),
        "{fresh}"
    );
    assert!(fresh.contains("\"groq/a/b\""), "{fresh}");
    let first = Change::Reorder(vec!["openrouter/openai/gpt-4.1-mini".to_owned()]);
    let fresh = after(WRITTEN, first);
    let (one, other) = (fresh.find("openrouter/"), fresh.find("gemini/"));
    assert!(one < other && fresh.contains("# this one costs"), "{fresh}");
    let less = Change::RemoveFallback("gemini/gemini-2.5-flash".to_owned());
    assert!(!after(WRITTEN, less).contains("gemini/"));
    let none = after(WRITTEN, Change::ClearFallbacks);
    assert!(
        none.contains("days = 7 # a week") && !none.contains("gpt-4.1"),
        "{none}"
    );
    let flat = "[models]\nfallbacks = [\"gemini/a\", \"groq/b\"] # both\n";
    let at_first = Change::AddFallback("mistral/c".to_owned(), Some(1));
    assert_eq!(
        after(flat, at_first),
        "[models]\nfallbacks = [\"mistral/c\", \"gemini/a\", \"groq/b\"] # both\n"
    );
}

#[test]
fn short_names_and_providers_come_and_go() {
    let alias = Change::SetAlias("fast".to_owned(), "gemini/x".to_owned());
    let fresh = after(WRITTEN, alias);
    assert!(
        fresh.contains("[models.aliases]\nfast = \"gemini/x\""),
        "{fresh}"
    );
    assert_eq!(
        Config::parse(&fresh, Path::new(FILE))
            .unwrap()
            .models
            .fallbacks
            .len(),
        2
    );
    let gone = after(&fresh, Change::RemoveAlias("fast".to_owned()));
    assert!(!gone.contains("fast = "), "{gone}");
    let provider = ProviderConfig {
        base_url: Some("http://127.0.0.1:9".to_owned()),
        wire: Some("openai".to_owned()),
        key_env: Some("OWN_KEY".to_owned()),
        ..ProviderConfig::default()
    };
    let set = Change::SetProvider("own.one".to_owned(), provider);
    let fresh = after(WRITTEN, set);
    assert!(fresh.starts_with(WRITTEN), "{fresh}");
    assert!(
        fresh.ends_with("\n[providers.\"own.one\"]\nbase_url = \"http://127.0.0.1:9\"\nwire = \"openai\"\nkey_env = \"OWN_KEY\"\n"),
        "{fresh}"
    );
    let gone = after(&fresh, Change::RemoveProvider("own.one".to_owned()));
    assert_eq!(gone, WRITTEN);
}

#[test]
fn edit_without_sense_says_what_was_meant() {
    for (change, expected) in [
        (add("kimi-coding/k3"), "is the default model"),
        (
            add("gemini/gemini-2.5-flash"),
            "is in the chain already, at place 1",
        ),
        (
            add("gemni/x"),
            "there is no provider `gemni`; did you mean `gemini`?",
        ),
        (
            Change::RemoveFallback("gemini/gemini-2.5-flsh".to_owned()),
            "did you mean `gemini/gemini-2.5-flash`?",
        ),
        (
            Change::RemoveAlias("x".to_owned()),
            "there is no short name `x` in config.toml; there is none",
        ),
        (
            Change::Reorder(vec!["gemini/gemini-2.5-flash".to_owned(); 2]),
            "there is no fallback",
        ),
        (
            Change::SetProvider("own".to_owned(), ProviderConfig::default()),
            "has no `base_url`",
        ),
    ] {
        let said = refusal(WRITTEN, change);
        assert!(said.contains(expected), "{said}\nexpected {expected}");
    }
    let said = refusal("[models]\ndefualt = 1", add("gemini/x"));
    assert!(
        said.contains("config.toml:2: unknown key `defualt`"),
        "{said}"
    );
    let full: Vec<String> = (0..MAX_FALLBACKS)
        .map(|n| format!("'gemini/m{n}'"))
        .collect();
    let full = format!("[models]\nfallbacks = [{}]", full.join(","));
    assert!(refusal(&full, add("gemini/x")).contains("has 16 models, the limit"));
}

#[test]
fn edit_is_one_at_a_time_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let file = &file;
            scope.spawn(move || save(file, &add(&format!("gemini/m{number}"))).unwrap());
        }
    });
    let config = Config::load(&file).unwrap();
    assert_eq!(config.models.fallbacks.len(), 8);
}

#[test]
fn inline_tables_get_a_provider_and_an_alias() {
    let new = ProviderConfig {
        base_url: Some("http://h/".to_owned()),
        ..ProviderConfig::default()
    };
    let provider = || Change::SetProvider("new".to_owned(), new.clone());
    for (text, fresh) in [
        (
            "providers = {}\n",
            "providers = { new = { base_url = \"http://h/\" } }\n",
        ),
        (
            "providers = { own = { base_url = 'http://o/' } ,}\n",
            "providers = { own = { base_url = 'http://o/' } , new = { base_url = \"http://h/\" } ,}\n",
        ),
    ] {
        assert_eq!(after(text, provider()), fresh);
    }
    let alias = Change::SetAlias("s".to_owned(), "ollama/x".to_owned());
    assert_eq!(
        after("models = { default = 'ollama/x', }\n", alias),
        "models = { default = 'ollama/x', aliases = { s = \"ollama/x\" } , }\n"
    );
}
