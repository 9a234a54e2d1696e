//! What a worker finds in its environment.
//!
//! Owns the list of variables that pass, and the daemon's own. Must not know processes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use agentd_core::effect::Spawn;
use agentd_core::ids::{Generation, WorkerId};

use super::Spawner;
use crate::adapter::Launch;
use crate::config::AgentConfig;

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

/// A process's whole environment.
pub(super) type Environment = BTreeMap<OsString, OsString>;

/// The value of [`WORKER`].
pub(super) fn worker_mark(worker: WorkerId, generation: Generation) -> String {
    format!("{}-{}", worker.0, generation.0)
}

/// The environment of one spawn; later sources replace earlier ones, the daemon's marks come last.
pub(super) fn of_worker(
    spawner: &Spawner,
    agent: &AgentConfig,
    launch: &Launch,
    worker: WorkerId,
    generation: Generation,
    spawn: &Spawn,
) -> Environment {
    let mut env: Environment = spawner
        .environment
        .iter()
        .filter(|(name, _)| passes(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    // Nobody looks at a terminal there: no colours, no pagers.
    env.insert("TERM".into(), "dumb".into());
    for name in &agent.pass_env {
        let secret = spawner.secrets.get(name).map(OsString::from);
        let own = || spawner.environment.get(OsStr::new(name)).cloned();
        if let Some(value) = secret.or_else(own) {
            env.insert(name.into(), value);
        }
    }
    env.extend(
        agent
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    env.extend(
        launch
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    env.insert(INSTANCE.into(), spawner.instance.clone().into());
    env.insert(WORKER.into(), worker_mark(worker, generation).into());
    if let Some(socket) = &spawner.socket {
        env.insert("AGENTD_SOCKET".into(), socket.into());
    }
    if let Some(prompt) = &spawn.prompt {
        env.insert("AGENTD_JOB".into(), prompt.job.to_string().into());
    }
    env
}

fn passes(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        PASSED.contains(&name)
            || PASSED_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
    })
}
