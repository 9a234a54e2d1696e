//! Agents whose programs lack the form that they are run in.
//!
//! Owns who is told of it, and when. What a program has, its help says (`versions`).

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentd_core::agent::{ExecForm, Levels, Modes, Providers};
use agentd_core::event::Event;
use tokio::time::{Instant, timeout_at};

use super::Versions;
use super::kept::Help;
use crate::adapter::Kind;
use crate::config::{self, AgentConfig};

/// The end of a process that was never ready is told after this time, whatever its program's help
/// says: if it says more later, that is heard later.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// What a program lacks, for people.
pub(super) fn lacks(word: &str) -> String {
    format!("this version has no `{word}`")
}

/// What follows from it; and what nothing can be asked for with, as the configuration stands.
pub(super) fn is_run_once(agent: &AgentConfig, word: &str) -> String {
    let can = Kind::Exec.describe(&agent.command);
    let keys = [
        (
            "provider",
            agent.provider.is_some() && can.providers == Providers::None,
        ),
        ("model", agent.model.is_some() && !can.models),
        (
            "thinking",
            agent.thinking.is_some() && can.thinking == Levels::None,
        ),
        ("mode", agent.mode.is_some() && can.modes == Modes::None),
    ];
    let mut said = format!("{}: its exec form is run", lacks(word));
    for (key, _) in keys.iter().filter(|(_, in_the_way)| *in_the_way) {
        said.push_str(&format!(
            "; it can't be told the `{key}` of config.toml, so that each of its turns is refused"
        ));
    }
    said
}

/// What is said when the program has it by now.
pub(super) const HAS_IT_NOW: &str = "its exec form is run, as its program had no other before: \
    the daemon looks again when it is started anew (`agentctl service restart`, else `agentctl stop`)";

/// A process on its way to be ready.
pub(in crate::worker) struct Unready {
    versions: Arc<Versions>,
    agent: String,
}

impl Unready {
    pub(in crate::worker) fn new(versions: &Arc<Versions>, agent: &str) -> Self {
        Self {
            versions: Arc::clone(versions),
            agent: agent.to_owned(),
        }
    }

    /// It ended before it was ready: has its program the form that it was run in? When this is over
    /// the owner knows, unless nobody does.
    pub(in crate::worker) async fn learn_why(self) {
        let Self { versions, agent } = self;
        let agent = versions.spawner.agents.get(&agent);
        let Some(agent) = agent.filter(|agent| config::exec_form(agent).is_some()) else {
            return;
        };
        let until = Instant::now() + KNOWN_WITHIN;
        let program = agent.command.first().map(PathBuf::from);
        versions.glance().await;
        versions.begin(&agent);
        loop {
            // Made before the look, as in `look`.
            let changed = versions.changed.notified();
            let asks = |program| versions.cache().asking.contains(program);
            if !program.as_ref().is_some_and(asks) || timeout_at(until, changed).await.is_err() {
                break;
            }
        }
        versions.reform().await;
    }
}

impl Versions {
    /// Tells the owner of each agent whose program is known to lack the form that it is run in, once.
    pub(super) async fn reform(&self) {
        for (name, agent) in self.spawner.agents.all().iter() {
            let Some(exec) = config::exec_form(agent) else {
                continue;
            };
            let program = agent.command.first().map(PathBuf::from);
            if !program.is_some_and(|program| self.is_exec_only(&program))
                || !self.cache().reformed.insert(name.clone())
            {
                continue;
            }
            let why = exec.lacks.map(lacks).unwrap_or_default();
            tracing::info!(agent = name, "{why}: its exec form is run from now on");
            let form = Box::new(ExecForm {
                kind: exec.kind.name(),
                describe: exec.kind.describe(&exec.command),
                command: exec.command,
                why,
            });
            let agent = name.clone();
            // Without an owner nobody runs anything.
            let _gone = (self.spawner.inbox)
                .send(Event::FormReplaced { agent, form })
                .await;
        }
    }

    fn is_exec_only(&self, program: &Path) -> bool {
        let cache = self.cache();
        let kept = cache.kept.get(program);
        kept.is_some_and(|kept| {
            kept.help == Some(Help::ExecOnly) && cache.now.get(program) == Some(&kept.stamp)
        })
    }

    /// An agent as it is run by now.
    pub(super) fn in_force<'a>(&self, name: &str, agent: &'a AgentConfig) -> Cow<'a, AgentConfig> {
        let exec = config::exec_form(agent).filter(|_| self.cache().reformed.contains(name));
        exec.map_or(Cow::Borrowed(agent), Cow::Owned)
    }
}
