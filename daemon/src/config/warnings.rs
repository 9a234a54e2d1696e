//! What may stand in `config.toml`, and most likely isn't what was meant.
//!
//! Owns what looks like a secret, and which words in braces are filled in. By hand it is allowed
//! and told; by `agentctl agents add` it is refused. A value never appears in a message.

use super::AgentConfig;
use crate::adapter::Kind;

/// Something that was most likely not meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// What was found.
    pub what: String,
    /// What to do.
    pub hint: String,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; hint: {}", self.what, self.hint)
    }
}

/// Parts of names that people give to secrets.
const SECRET: &[&str] = &[
    "APIKEY",
    "KEY",
    "KEYS",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "SECRET",
    "SECRETS",
    "TOKEN",
    "TOKENS",
];
/// Beginnings of keys of well-known services.
const KEYS: &[&str] = &["sk-", "sk_", "ghp_", "github_pat_", "xoxb-", "AIza"];
/// What the kind `exec` fills in.
const FILLED_IN: &[&str] = &["{prompt}", "{session}", "{model}", "{cwd}"];

/// What is doubtful about an agent.
pub(super) fn of(name: &str, agent: &AgentConfig) -> Vec<Warning> {
    let mut warnings = Vec::new();
    // `--api-key=sk-…`, too.
    let in_word = |word: &String| word.split('=').any(is_key);
    if agent.command.iter().any(in_word) {
        warnings.push(Warning {
            what: format!(
                "the command of agent `{name}` holds what looks like a key: config.toml must not \
                 hold one, and command lines are seen by others"
            ),
            hint: instead("NAME"),
        });
    }
    for (variable, value) in &agent.env {
        if is_secret(variable, value) {
            warnings.push(Warning {
                what: format!(
                    "`{variable}` of agent `{name}` looks like a secret, which config.toml must \
                     not hold"
                ),
                hint: instead(variable),
            });
        }
    }
    let left = FILLED_IN.iter().find(|word| {
        let mut words = agent.command.iter().skip(1);
        words.any(|argument| argument.contains(*word))
    });
    if let Some(word) = left.filter(|_| agent.kind != Kind::Exec) {
        let kind = agent.kind.name();
        warnings.push(Warning {
            what: format!(
                "`{word}` in the command of agent `{name}` is not filled in for the kind `{kind}`, \
                 only for `exec`"
            ),
            hint: "leave it out, or take the kind `exec`".to_owned(),
        });
    }
    warnings
}

fn instead(name: &str) -> String {
    format!(
        "put it into the file `env` beside config.toml (mode 0600) as `{name}=…`, and pass it on \
         with `--pass-env {name}` (`pass_env` in config.toml)"
    )
}

fn is_key(word: &str) -> bool {
    KEYS.iter().any(|begin| word.starts_with(begin))
}

/// Is a variable called so a secret, by its name? What steers programs is not.
pub(super) fn names_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    upper.split('_').any(|part| SECRET.contains(&part))
}

fn is_secret(name: &str, value: &str) -> bool {
    let named = names_secret(name);
    // `MAX_OUTPUT_TOKENS = "32000"`, `USE_KEY = "true"`, and the name of a file with a key.
    let harmless = value.is_empty()
        || value.bytes().all(|byte| byte.is_ascii_digit())
        || matches!(value, "true" | "false")
        || value.starts_with('/');
    is_key(value) || (named && !harmless)
}
