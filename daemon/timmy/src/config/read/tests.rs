//! The configuration as people write it, right and wrong.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::provider::keys::Keys;

fn refused(text: &str) -> String {
    let parsed = Config::parse(text, Path::new("/c/config.toml"));
    parsed.unwrap_err().to_string()
}

#[test]
fn configuration_file_is_named_or_xdg_or_home() {
    let at = |set: &[(&str, &str)]| {
        let variable = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let places = Places::of(&variable, Some("/state".into()));
        places.map(|places| places.config.display().to_string())
    };
    let home = ("HOME", "/home/u");
    assert_eq!(at(&[home]).unwrap(), "/home/u/.config/agentd/config.toml");
    assert_eq!(
        at(&[home, ("XDG_CONFIG_HOME", "/x")]).unwrap(),
        "/x/agentd/config.toml"
    );
    // As the specification has it, a relative one is none.
    assert_eq!(
        at(&[home, ("XDG_CONFIG_HOME", "x")]).unwrap(),
        "/home/u/.config/agentd/config.toml"
    );
    assert_eq!(at(&[("AGENTD_CONFIG", "/c.toml")]).unwrap(), "/c.toml");
    assert!(at(&[("HOME", "")]).unwrap_err().contains("AGENTD_CONFIG"));
}

#[test]
fn configuration_reads_our_tables_and_leaves_the_daemons() {
    let text = r#"
default_agent = "pi"
[agents.pi]
kind = "pi"
[models]
default = "fast"
fallbacks = ["openrouter/openai/gpt-4.1-mini", "own/m"]
aliases = { fast = "gemini/gemini-2.5-flash" }
[providers.own]
base_url = "http://127.0.0.1:9"
key_env = "OWN_KEY"
price = [0.5, 1.5]
[timmy]
network = true
[timmy.mcp.files]
command = ["mcp"]
"#;
    let config = Config::parse(text, Path::new("/c")).unwrap();
    assert_eq!(config.models.default.as_deref(), Some("fast"));
    assert_eq!(config.models.fallbacks.len(), 2);
    assert!(config.providers.contains_key("own") && config.timmy.network);
    assert_eq!(
        Config::load(Path::new("/nowhere/c")).unwrap(),
        Config::default()
    );
}

#[test]
fn config_that_others_may_write_is_refused() {
    let dir = tempfile::TempDir::new().unwrap();
    for name in ["config.toml", "env"] {
        let file = dir.path().join(name);
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    }
    let read = || {
        let config = Config::load(&dir.path().join("config.toml")).map_err(|why| why.to_string());
        let keys = Keys::read(dir.path()).map_err(|why| why.to_string());
        (config.map(drop), keys.map(drop))
    };
    assert_eq!(read(), (Ok(()), Ok(())));
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let (config, keys) = read();
    for why in [config.unwrap_err(), keys.unwrap_err()] {
        assert!(why.contains("hint: chmod go-w"), "{why}");
    }
}

/// What is written, and what is said of it.
const MISTAKES: &[(&str, &str)] = &[
    (
        "\n[models]\nfallback = []",
        "/c/config.toml:3: unknown key `fallback`; hint: did you mean `fallbacks`?",
    ),
    (
        "[timmy]\nzzzzzzzzzzz = 1",
        "/c/config.toml:2: unknown key `zzzzzzzzzzz`; hint: known here: toolsets, writable",
    ),
    (
        "[models]\n\ndefault = 'gemni/x'",
        "/c/config.toml:3: `models.default`: there is no provider `gemni`; hint: did you mean `gemini`?",
    ),
    (
        "[models]\ndefault = 'kimi'",
        "`kimi` is neither `provider/model` nor a short name",
    ),
    (
        "[models]\ndefault = 'fst'\naliases = { fast = 'gemini/x' }",
        ":2: `models.default`: `fst` is neither `provider/model` nor a short name; hint: did you mean `fast`?",
    ),
    (
        "[models]\nfallbacks = ['gemini/x', 'zzzzzz/y']",
        ":2: `models.fallbacks`: there is no provider `zzzzzz`",
    ),
    (
        "[models.aliases]\na = 'gemini/x'\nb = 'a'",
        ":3: `b` is a short name for `a`, which is one itself",
    ),
    (
        "[models.aliases]\n'a/b' = 'gemini/x'",
        ":2: `a/b` can't be a short name",
    ),
    (
        "[models]\non_refusal = 'go on'",
        ":2: `on_refusal`: unknown variant `go on`",
    ),
    (
        "[providers.mine]\nwire = 'openai'",
        ":1: `providers.mine` has no `base_url`",
    ),
    (
        "[providers.own]\nbase_url = 'http://127.0.0.1:1'\nwire = 'opnai'",
        ":3: `providers.own.wire` is `opnai`; hint: did you mean `openai`?",
    ),
    (
        "[providers.own]\nbase_url = 'http://127.0.0.1:1'\nprice = [-1.0, 2.0]",
        ":3: `price`: a price is a number of dollars",
    ),
    (
        "[providers.own]\nbase_url = 'http://127.0.0.1:1'\nprice = 3",
        ":3: `price`: invalid type: integer `3`, expected [INPUT, OUTPUT] in US dollars for a million",
    ),
    (
        "[timmy.mcp.x]\nread_only = []",
        ":1: `timmy.mcp.x` has neither `command` nor `url`",
    ),
    (
        "[timmy]\n\ntoolsets = ['file', 'fiel']",
        ":3: `timmy.toolsets`: there is no toolset `fiel`; expected `file`,",
    ),
    (
        "[timmy]\nmax_requests = 0",
        ":2: `timmy.max_requests` is 0, expected a number from 1",
    ),
    (
        "[timmy]\nnetwork = true\nwritable = ['/tmp/x', '~/x']",
        ":3: `timmy.writable` has `~/x`, expected absolute paths; hint: write it from `/` on",
    ),
    (
        "[providers.gemini]\n\ncontext_window = 0",
        ":3: `providers.gemini.context_window` is 0, expected tokens from 1",
    ),
    (
        "[timmy]\nnetwork = 'maybe'",
        ":2: `network`: invalid type: string",
    ),
    (
        "[providers.x]\nbase_url = 'ftp://a'",
        ":2: `providers.x.base_url`: `ftp://a` is not a base URL",
    ),
    ("[models", ":1: "),
];

#[test]
fn configuration_mistake_names_line_and_what_was_meant() {
    for (text, expected) in MISTAKES {
        let said = refused(text);
        assert!(said.contains(expected), "{said}\nexpected {expected}");
    }
    let many = vec!["'gemini/x'"; MAX_FALLBACKS + 1].join(",");
    let said = refused(&format!("[models]\nfallbacks = [{many}]"));
    assert!(said.contains("has 17 entries, the limit is 16"), "{said}");
}

#[test]
fn configuration_never_repeats_a_key_of_a_provider() {
    for url in [
        "https://joe:hunter2@h/v1",
        "https://h/v1?key=hunter2",
        "https://h#hunter2",
    ] {
        let said = refused(&format!("[providers.x]\nbase_url = '{url}'"));
        assert!(
            said.contains("`key_env`") && !said.contains("hunter2"),
            "{said}"
        );
    }
    for key in ["sk-abcdef", "sk_abcdef", "AIzaabcdef", "a b"] {
        let said = refused(&format!("[providers.gemini]\nkey_env = '{key}'"));
        assert!(
            said.contains(":2: `providers.gemini.key_env` is not"),
            "{said}"
        );
        assert!(!said.contains(key), "{said}");
    }
}

#[test]
fn unreadable_takes_absolute_paths_only() {
    let parsed = Config::parse("[timmy]\nunreadable = ['/a', 'x']", Path::new("/c"));
    let said = parsed.unwrap_err().to_string();
    let expected = ":2: `timmy.unreadable` has `x`, expected absolute paths";
    assert!(said.contains(expected), "{said}");
}
