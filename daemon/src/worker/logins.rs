//! Which agents have what they need to answer, as far as a look at files and variables says.
//!
//! Owns putting that into what the core knows of them. Runs nothing, and reads no login. Where an
//! agent keeps its login, `config` knows.

use std::ffi::OsStr;
use std::path::PathBuf;

use agentd_core::agent::Agent;

use super::environment::{self, Environment};
use crate::config::{self, AgentConfig, Config};
use crate::platform::files::Files;

/// The provider that needs neither key nor server.
const ECHO: &str = "echo";

/// Says of each agent that can be run whether somebody is logged in, and of the built-in one which
/// providers the configuration gives it.
pub fn tell_logins(
    agents: &mut [(Agent, Option<AgentConfig>)],
    config: &Config,
    environment: &Environment,
    files: &Files,
) {
    for (agent, run) in agents {
        let Some(run) = run.as_ref().filter(|_| agent.usable.is_ok()) else {
            continue;
        };
        let env = environment::of_agent(environment, &config.secrets, run);
        let value = |name: &str| {
            let value = env.get(OsStr::new(name))?;
            value.to_str().map(str::to_owned)
        };
        let home = value("HOME").map(PathBuf::from);
        agent.logged_in = config::logged_in(run, home.as_deref(), &value, files);
        if config::is_built_in(run) {
            let chosen = run.provider.is_some() || run.model.is_some() || has_models(config);
            agent.logged_in = agent.logged_in.or(chosen.then_some(true));
            agent.has = providers(config);
        }
    }
}

/// Does the configuration say which models the built-in agent asks, or where the key is of a provider that
/// it knows? Of one with an address of its own it knows no model.
fn has_models(config: &Config) -> bool {
    let is_own = |provider: &str| {
        let address = format!("providers.{provider}.base_url");
        config.of_timmy.contains_key(&address)
    };
    let mut keys = config.of_timmy.keys();
    keys.any(|key| match key.strip_prefix("providers.") {
        Some(key) => {
            let provider = key.strip_suffix(".key_env");
            provider.is_some_and(|provider| !is_own(provider))
        }
        None => key.starts_with("models."),
    })
}

fn providers(config: &Config) -> Vec<String> {
    let keys = config.of_timmy.keys();
    let named = keys.filter_map(|key| key.strip_prefix("providers.")?.split('.').next());
    let mut names: Vec<String> = named.chain([ECHO]).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HostEnv, agents};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn logins_and_providers_are_told_of_each_agent() {
        let dir = tempfile::TempDir::new().unwrap();
        for program in ["claude", "timmy"] {
            let file = dir.path().join(program);
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let look = HostEnv {
            path: vec![dir.path().to_owned()],
            exe_dir: Some(dir.path().to_owned()),
            ..HostEnv::default()
        };
        let told = |text: &str| {
            let config = Config::parse(text, "config.toml".as_ref(), &look).unwrap();
            let mut agents = agents(&config, &look);
            let home = [("HOME".into(), dir.path().as_os_str().to_owned())];
            let environment = Environment::from(home);
            tell_logins(&mut agents, &config, &environment, &Files::default());
            let of = |name: &str| {
                let mut known = agents.iter().map(|(agent, _)| agent);
                let agent = known.find(|agent| agent.name == name).unwrap();
                (agent.logged_in, agent.has.join(" "))
            };
            (of("claude"), of("timmy"))
        };
        let nothing = String::new;
        assert_eq!(
            told(""),
            ((Some(false), nothing()), (None, "echo".to_owned()))
        );
        let own = "[providers.own]\nbase_url = \"http://127.0.0.1:1\"\n";
        let (claude, timmy) = told(own);
        assert_eq!(claude, (Some(false), nothing()));
        assert_eq!(timmy, (None, "echo own".to_owned()));
        let chosen = format!("{own}[models]\ndefault = \"own/m\"\n");
        assert_eq!(told(&chosen).1.0, Some(true));
        let key = "[providers.openai]\nkey_env = \"MY_KEY\"\n";
        assert_eq!(told(key).1.0, Some(true));
    }
}
