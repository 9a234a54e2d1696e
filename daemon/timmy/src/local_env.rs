//! What timmy has: this machine's providers, prices, tools and settings.
//!
//! Owns how the parts find each other. Settings are read anew for each send, so that a change
//! counts from the next turn on; whoever only has the prompt said back reads none.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::McpServer as Brought;
use tokio::sync::Mutex;

use crate::config::chain::{self, ModelRequest, Unchosen};
use crate::config::no_model::CalledAs;
use crate::config::offered::{Offered, offered};
use crate::config::read::Places;
use crate::config::{Config, McpServer};
use crate::failover::{Class, class};
use crate::model::genai::HttpModels;
use crate::model::{Boxed, Failure, ModelClient, Thinking};
use crate::provider::Target;
use crate::provider::keys::Keys;
use crate::send::{AgentEnv, Equipped, ModelSelection, Planned, Refused, SendRequest};
use crate::session::skill::ReadSkill;
use crate::session::store;
use crate::tool::mcp::Servers;
use crate::tool::places::Rules;
use crate::tool::sandbox::{self, Landlock, Signals};
use crate::tool::toolset::{self, NamedToolsets, Toolset};
use crate::turn::{Plan, REQUESTS, TurnEnv};

/// MCP servers, and what the configuration or the session said when they were made.
type Made = (BTreeMap<String, McpServer>, Arc<Servers>);

/// Lists of servers that sessions brought and that are kept up between turns: the one used last is
/// the last to go.
const BROUGHT_AT_MOST: usize = 8;

/// This machine.
pub(crate) struct LocalEnv {
    models: HttpModels,
    places: Places,
    /// The directory `timmy` beside `config.toml`.
    own: PathBuf,
    /// As the daemon names it.
    agent: Option<String>,
    called: CalledAs,
    servers: Mutex<Option<Made>>,
    /// Those that sessions brought, the ones used last at the end.
    brought: Mutex<Vec<Made>>,
}

impl LocalEnv {
    /// This one, without reading anything yet.
    ///
    /// # Errors
    /// What has to be set.
    pub(crate) fn of_process(called: CalledAs) -> Result<Self, String> {
        Ok(Self::with(Places::here()?, called))
    }

    /// The one that has its files there.
    pub(crate) fn with(places: Places, called: CalledAs) -> Self {
        Self {
            models: HttpModels::default(),
            own: places.config.with_file_name("timmy"),
            agent: std::env::var("AGENTD_AGENT")
                .ok()
                .filter(|name| !name.is_empty()),
            places,
            called,
            servers: Mutex::default(),
            brought: Mutex::default(),
        }
    }

    /// The directory of what is remembered.
    pub(crate) fn state(&self) -> PathBuf {
        self.places.state.clone()
    }

    fn config(&self) -> Result<Config, Rejected> {
        Config::load(&self.places.config)
            .map_err(|why| Rejected::new(Code::NoModel, why.to_string()))
    }

    fn keys(&self) -> Result<Keys, Rejected> {
        Keys::read(self.places.dir()).map_err(|why| Rejected::new(Code::AgentAuth, why.to_string()))
    }

    async fn plan_now(&self, selection: &ModelSelection) -> Result<Planned, Refused> {
        let config = self.config()?;
        let keys = self.keys()?;
        let thinking = selection.thinking.as_deref().map(thinking).transpose()?;
        let chosen = chain::choose(&config, &|name| keys.get(name), &asked(selection)).await;
        let chosen = chosen.map_err(|unchosen| match unchosen {
            Unchosen::Wrong(rejected) => rejected.into(),
            Unchosen::Nothing(looked) => Refused {
                rejected: looked.rejected(&self.places, self.called),
                details: Some(looked.machine(&self.places, self.called)),
            },
        })?;
        let plan = Plan {
            chain: chosen.chain,
            on_refusal: config.models.on_refusal,
            thinking,
            requests: config.timmy.max_requests.unwrap_or(REQUESTS),
            deadline: selection.timeout,
        };
        let note = chosen.announced;
        Ok(Planned { plan, note })
    }
}

/// What the choice of a model goes by.
fn asked(selection: &ModelSelection) -> ModelRequest<'_> {
    ModelRequest {
        provider: selection.provider.as_deref(),
        model: selection.model.as_deref(),
        usual_provider: selection.usual_provider.as_deref(),
        fallback_chain: selection.fallback_chain.as_deref(),
    }
}

impl LocalEnv {
    async fn models_now(&self, selection: &ModelSelection) -> Result<Offered, Rejected> {
        let config = self.config()?;
        let keys = self.keys()?;
        let offered = offered(&config, &|name| keys.get(name), &asked(selection)).await;
        offered.map_err(|unchosen| match unchosen {
            Unchosen::Wrong(rejected) => rejected,
            Unchosen::Nothing(looked) => looked.rejected(&self.places, self.called),
        })
    }

    async fn tools_now(
        &self,
        toolsets: Option<&[String]>,
        brought: &[Brought],
    ) -> Result<Equipped, Rejected> {
        let brought = brought.iter().map(as_configured);
        let brought = brought.collect::<Result<BTreeMap<_, _>, _>>()?;
        let config = self.config()?;
        let NamedToolsets { sets, mut notes } = match toolsets.or(config.timmy.toolsets.as_deref())
        {
            Some(names) => Toolset::named(names)?,
            None => NamedToolsets {
                sets: Toolset::USUAL.iter().copied().collect(),
                notes: Vec::new(),
            },
        };
        let rules = Rules::of_process(&config.timmy)
            .map_err(|why| Rejected::new(Code::Internal, why.to_string()))?;
        let mut tools = toolset::tools(&sets, &Arc::new(rules));
        if let Some(skill) = ReadSkill::new(&self.own) {
            tools.push(Arc::new(skill));
        }
        if sets.contains(&Toolset::Mcp) {
            let offered = self.servers(&config).await.offered().await;
            tools.extend(offered.tools);
            notes.extend(offered.problems);
        }
        // Who names toolsets means these alone.
        if !brought.is_empty() && (toolsets.is_none() || sets.contains(&Toolset::Mcp)) {
            let offered = self.brought(brought).await.offered().await;
            tools.extend(offered.tools);
            notes.extend(offered.problems);
        }
        Ok(Equipped {
            tools,
            writable: config.timmy.writable,
            notes,
        })
    }

    /// The MCP servers that a session brings, which stay up for its next turn.
    async fn brought(&self, wanted: BTreeMap<String, McpServer>) -> Arc<Servers> {
        let mut kept = self.brought.lock().await;
        let there = kept.iter().position(|(made_of, _)| *made_of == wanted);
        let made = match there {
            Some(there) => kept.remove(there),
            None => {
                let servers = Servers::new(&wanted, std::env::vars_os().collect());
                (wanted, Arc::new(servers))
            }
        };
        let servers = Arc::clone(&made.1);
        kept.push(made);
        let leaves = (kept.len() > BROUGHT_AT_MOST).then(|| kept.remove(0));
        drop(kept);
        if let Some((_, leaves)) = leaves {
            leaves.end().await;
        }
        servers
    }

    /// The MCP servers of the configuration: others than before when it changed.
    async fn servers(&self, config: &Config) -> Arc<Servers> {
        let mut kept = self.servers.lock().await;
        if let Some((made_of, servers)) = &*kept
            && *made_of == config.timmy.mcp
        {
            return Arc::clone(servers);
        }
        let mut environment: BTreeMap<_, _> = std::env::vars_os().collect();
        // What a server is allowed may be in the file, as for a service there is no shell.
        if let Ok(keys) = Keys::read(self.places.dir()) {
            let allowed = config
                .timmy
                .mcp
                .values()
                .flat_map(|server| &server.pass_env);
            let found = allowed.filter_map(|name| Some((name.into(), keys.get(name)?.into())));
            environment.extend(found);
        }
        let servers = Arc::new(Servers::new(&config.timmy.mcp, environment));
        // Other turns may begin with the new ones while the old ones take their time to leave.
        let before = kept.replace((config.timmy.mcp.clone(), Arc::clone(&servers)));
        drop(kept);
        if let Some((_, before)) = before {
            before.end().await;
        }
        servers
    }
}

/// A session's server, as one of the configuration.
fn as_configured(server: &Brought) -> Result<(String, McpServer), Rejected> {
    let configured = match server {
        Brought::Stdio {
            command, args, env, ..
        } => McpServer {
            command: [command].into_iter().chain(args).cloned().collect(),
            env: env.clone(),
            ..McpServer::default()
        },
        Brought::Http { url, headers, .. } => McpServer {
            url: Some(url.clone()),
            headers: headers.clone(),
            ..McpServer::default()
        },
        Brought::Sse { name, .. } => {
            let error = format!("timmy takes no MCP servers of the type `sse`: `{name}`");
            return Err(Rejected::new(Code::Unsupported, error));
        }
    };
    Ok((server.name().to_owned(), configured))
}

fn thinking(name: &str) -> Result<Thinking, Rejected> {
    let found = Thinking::ALL.iter().find(|(known, _)| *known == name);
    let names = || {
        let names: Vec<&str> = Thinking::ALL.iter().map(|(name, _)| *name).collect();
        let error = format!("there is no thinking level `{name}`");
        let hint = format!("it is one of {}", names.join(", "));
        Rejected::new(Code::InvalidRequest, error).hint(hint)
    };
    found.map(|(_, level)| *level).ok_or_else(names)
}

impl TurnEnv for LocalEnv {
    fn client(&self) -> &dyn ModelClient {
        &self.models
    }

    fn classify(&self, target: &Target, failure: &Failure) -> Class {
        class::classify(&target.provider, failure)
    }

    fn wall_ms(&self) -> u64 {
        store::wall_ms()
    }

    fn chance(&self) -> f64 {
        // Its keys are random, which is enough to spread retries: no crate is needed for that.
        let drawn = std::collections::hash_map::RandomState::new()
            .build_hasher()
            .finish();
        f64::from(u32::try_from(drawn >> 32).unwrap_or(0)) / f64::from(u32::MAX)
    }
}

impl AgentEnv for LocalEnv {
    fn plan<'a>(&'a self, selection: &'a ModelSelection) -> Boxed<'a, Result<Planned, Refused>> {
        Box::pin(self.plan_now(selection))
    }

    fn models<'a>(&'a self, selection: &'a ModelSelection) -> Boxed<'a, Result<Offered, Rejected>> {
        Box::pin(self.models_now(selection))
    }

    fn tools<'a>(&'a self, sent: &'a SendRequest) -> Boxed<'a, Result<Equipped, Rejected>> {
        Box::pin(self.tools_now(sent.toolsets.as_deref(), &sent.mcp_servers))
    }

    fn leave(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            let servers = self.servers.lock().await.take();
            if let Some((_, servers)) = servers {
                servers.end().await;
            }
            for (_, servers) in std::mem::take(&mut *self.brought.lock().await) {
                servers.end().await;
            }
        })
    }

    fn own(&self) -> &Path {
        &self.own
    }

    fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    fn confinement(&self) -> String {
        match sandbox::available(Landlock::ALL) {
            Ok(Signals::Nobody) => "Commands run in a sandbox: what is in files can be changed in \
                                    the working directory only, there is no network without \
                                    leave, and no process can be signalled, so that `kill` and \
                                    `timeout` end nothing."
                .to_owned(),
            Ok(Signals::Own) => {
                "Commands run in a sandbox: what is in files can be changed in the working \
                       directory only, and there is no network without leave."
                    .to_owned()
            }
            Err(why) => format!("Commands are not sandboxed here: {why}."),
        }
    }
}
