//! What a worker finds in its environment.
//!
//! Owns the list of variables that pass, and the daemon's own. Must not know processes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use agentd_base::TOKEN_PREFIX;
use agentd_core::Served;
use agentd_core::effect::Spawn;
use agentd_core::ids::{Generation, WorkerId};
use agentd_protocol::network;

use super::Spawner;
use super::reap::SpawnTag;
use crate::adapter::Launch;
use crate::config::{self, AgentConfig};

/// The variables that pass from the daemon's environment: who the user is and where things are.
/// Keys, tokens and agent sockets pass by `pass_env` only.
const PASSED: &[&str] = &[
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER",
];
const PASSED_PREFIXES: &[&str] = &["LC_", "XDG_"];

/// The variable that names the instance in every process it started.
pub(super) const INSTANCE: &str = "AGENTD_INSTANCE";
/// The variable that names slot and spawn.
pub(super) const WORKER: &str = "AGENTD_WORKER";

/// The variable that says in how many runs a process runs.
const DEPTH: &str = "AGENTD_DEPTH";

/// In how many runs of others this one runs. A daemon runs in none: it knows by their processes who of
/// those that ask it runs inside a turn.
pub(crate) fn around(served: &Served) -> usize {
    let said = || std::env::var(DEPTH).ok()?.parse().ok();
    match served {
        Served::Daemon => 0,
        Served::OneShot { .. } => said().unwrap_or_default(),
    }
}

/// A process's whole environment.
pub(crate) type Environment = BTreeMap<OsString, OsString>;

/// The value of [`WORKER`].
pub(super) fn worker_mark(worker: WorkerId, generation: Generation) -> String {
    format!("{}-{}", worker.0, generation.0)
}

/// The environment of one spawn; later sources replace earlier ones, the daemon's marks come last.
pub(super) fn of_worker(
    spawner: &Spawner,
    agent: &AgentConfig,
    launch: &Launch,
    mark: &SpawnTag,
    spawn: &Spawn,
) -> Environment {
    let mut env = of_agent(&spawner.environment, &spawner.agents.secrets(), agent);
    env.extend(
        launch
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    if config::is_built_in(agent) {
        env.extend((*spawner.built_in).clone());
        env.insert("AGENTD_AGENT".into(), spawn.agent.clone().into());
    }
    let marks = mark.variables();
    env.extend(marks.map(|(name, value)| (name.into(), value.into())));
    let depth = spawner.around.saturating_add(1);
    env.insert(DEPTH.into(), depth.to_string().into());
    if let Some(socket) = &spawner.socket {
        env.insert("AGENTD_SOCKET".into(), socket.into());
    }
    if let Some(prompt) = &spawn.prompt {
        env.insert("AGENTD_JOB".into(), prompt.job.to_string().into());
    }
    env
}

/// What an agent gets for its turns, but for what names the turn.
pub(super) fn of_agent(
    environment: &Environment,
    secrets: &BTreeMap<String, String>,
    agent: &AgentConfig,
) -> Environment {
    let mut env = common(environment, agent);
    let by_default = config::passes(agent);
    let asked_for = agent.pass_env.iter().map(String::as_str);
    for name in by_default.into_iter().chain(asked_for) {
        let secret = secrets.get(name).map(OsString::from);
        let own = || environment.get(OsStr::new(name)).filter(is_theirs).cloned();
        if let Some(value) = secret.or_else(own) {
            env.insert(name.into(), value);
        }
    }
    let given = agent.env.iter();
    env.extend(given.map(|(name, value)| (name.into(), value.into())));
    // Once more, as the agent's own `env` may name another.
    clean_path(&mut env, agent);
    env
}

/// Is it a key of somebody else's? With the token of our own HTTP server, which clients have in the
/// variable of a provider's key, that provider could ask our agents anything.
fn is_theirs(value: &&OsString) -> bool {
    !value
        .as_encoded_bytes()
        .starts_with(TOKEN_PREFIX.as_bytes())
}

/// What every process of this agent gets, whatever it is run for: no key, and nothing of its own.
pub(super) fn common(environment: &Environment, agent: &AgentConfig) -> Environment {
    let mut env: Environment = environment
        .iter()
        .filter(|(name, _)| passes(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    // Nobody looks at a terminal there: no colours, no pagers.
    env.insert("TERM".into(), "dumb".into());
    clean_path(&mut env, agent);
    env
}

fn clean_path(env: &mut Environment, agent: &AgentConfig) {
    let program = agent.command.first().map(Path::new);
    let path = search_path(env.get(OsStr::new("PATH")), program.and_then(Path::parent));
    env.insert("PATH".into(), path);
}

/// PATH without what means the current directory, which is the session's and may hold a `node` or
/// a `git` of anybody's; and with the program's own directory last, where its interpreter often is.
fn search_path(path: Option<&OsString>, own: Option<&Path>) -> OsString {
    let entries = path.into_iter().flat_map(std::env::split_paths);
    let mut kept: Vec<PathBuf> = entries.filter(|dir| dir.is_absolute()).collect();
    // A directory with a colon in its name can't stand in a PATH.
    let fits = |own: &Path| own.is_absolute() && std::env::join_paths([own]).is_ok();
    if let Some(own) = own.filter(|own| fits(own) && !kept.iter().any(|dir| dir == own)) {
        kept.push(own.to_owned());
    }
    std::env::join_paths(kept).unwrap_or_default()
}

fn passes(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        PASSED.contains(&name)
            || network::VARIABLES.contains(&name)
            || PASSED_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::Kind;

    fn env(pairs: &[(&str, &str)]) -> Environment {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    fn agent(kind: Kind, program: &str) -> AgentConfig {
        AgentConfig::new(kind, vec![program.to_owned()])
    }

    #[test]
    fn environment_has_no_token_of_our_own() {
        let own = env(&[("OPENAI_API_KEY", "agentd_0123456789abcdef")]);
        let codex = agent(Kind::Codex, "/x/codex");
        let name = OsStr::new("OPENAI_API_KEY");
        assert_eq!(of_agent(&own, &BTreeMap::new(), &codex).get(name), None);
    }

    #[test]
    fn environment_has_an_agents_own_key_and_network() {
        let own = env(&[
            ("ANTHROPIC_API_KEY", "of claude"),
            ("OPENAI_API_KEY", "of codex"),
            ("GEMINI_API_KEY", "of gemini"),
            ("HTTPS_PROXY", "http://proxy"),
            ("NODE_EXTRA_CA_CERTS", "/ca"),
            ("AWS_SECRET_ACCESS_KEY", "of nobody"),
        ]);
        let secrets = BTreeMap::from([("OPENAI_API_KEY".to_owned(), "from the file".to_owned())]);
        let keys = |agent: &AgentConfig| -> Vec<String> {
            let env = of_agent(&own, &secrets, agent);
            assert_eq!(env[OsStr::new("HTTPS_PROXY")], "http://proxy");
            assert_eq!(env[OsStr::new("NODE_EXTRA_CA_CERTS")], "/ca");
            let keys = env
                .iter()
                .filter(|(name, _)| name.to_str().unwrap().ends_with("_KEY"));
            let shown = keys.map(|(name, value)| format!("{}={}", name.display(), value.display()));
            shown.collect()
        };
        for (kind, program, expected) in [
            (
                Kind::Claude,
                "/x/claude",
                &["ANTHROPIC_API_KEY=of claude"][..],
            ),
            (Kind::Codex, "/x/codex", &["OPENAI_API_KEY=from the file"]),
            (Kind::Acp, "/x/gemini", &["GEMINI_API_KEY=of gemini"]),
            (Kind::Acp, "/x/goose", &[]),
            (Kind::Pi, "/x/pi", &[]),
            (Kind::Exec, "/bin/cat", &[]),
            (Kind::Jsonl, "/x/worker", &[]),
            (
                Kind::Jsonl,
                "/x/timmy",
                &[
                    "ANTHROPIC_API_KEY=of claude",
                    "GEMINI_API_KEY=of gemini",
                    "OPENAI_API_KEY=from the file",
                ],
            ),
        ] {
            assert_eq!(keys(&agent(kind, program)), *expected, "{program}");
        }
        let mut asked = agent(Kind::Pi, "/x/pi");
        asked.pass_env = vec!["GEMINI_API_KEY".to_owned()];
        asked.env = BTreeMap::from([("A_KEY".to_owned(), "1".to_owned())]);
        assert_eq!(keys(&asked), ["A_KEY=1", "GEMINI_API_KEY=of gemini"]);
    }

    #[test]
    fn path_leads_last_to_the_programs_own() {
        let path = |path: &str, program: &str| {
            let env = common(&env(&[("PATH", path)]), &agent(Kind::Acp, program));
            env[OsStr::new("PATH")].clone()
        };
        assert_eq!(path(":/usr/bin:.:bin:", "/usr/bin/x"), "/usr/bin");
        assert_eq!(
            path("/usr/bin::/bin", "/opt/node/bin/x"),
            "/usr/bin:/bin:/opt/node/bin"
        );
        assert_eq!(path(".:/usr/bin", "x"), "/usr/bin");
        assert_eq!(path(".:/usr/bin", "/a:b/x"), "/usr/bin");
        let mut asked = agent(Kind::Acp, "/usr/bin/x");
        asked.pass_env = vec!["PATH".to_owned()];
        let passed = of_agent(&env(&[("PATH", ".:bin:/bin")]), &BTreeMap::new(), &asked);
        assert_eq!(passed[OsStr::new("PATH")], "/bin:/usr/bin");
    }
}
