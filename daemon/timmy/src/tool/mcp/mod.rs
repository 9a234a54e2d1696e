//! Tools of MCP servers that the user configured.
//!
//! Owns which servers are up and how their tools are called here. What a server says is text of
//! strangers: what it claims of its tools decides nothing, only the configuration does. Must not
//! know models, nor how a server is reached (`server.rs` does).

mod names;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::output::Output;
use super::question::Question;
use super::{Surroundings, Tool, ToolOutcome};
use crate::config::McpServer;
use crate::model::{Boxed, ToolSpec};
use crate::session::compaction::beginning;
use server::{Called, Server};

/// Tools taken of one server: beyond, a model chooses badly, and every request pays for them.
const MOST_TOOLS: usize = 128;
/// A tool's description is cut to this.
const MOST_DESCRIPTION: usize = 2 * 1024;
/// A tool with a longer schema is left out: cut, it would be another one.
const MOST_SCHEMA: usize = 16 * 1024;
/// A server that didn't come up is left alone for this long.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// The servers of one timmy; each is started when a session first wants it, and kept.
pub(crate) struct Servers {
    configured: BTreeMap<String, Mutex<ServerSlot>>,
    environment: BTreeMap<OsString, OsString>,
}

/// One server.
struct ServerSlot {
    config: Arc<McpServer>,
    state: ServerState,
}

enum ServerState {
    /// Nobody wanted it.
    Down,
    Up(Arc<Server>),
    /// It didn't come up, and this is why.
    Failed {
        since: Instant,
        why: String,
    },
}

/// What the servers offer.
#[derive(Default)]
pub(crate) struct Offered {
    /// Their tools.
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// What a person should know: servers that are not there, tools that were left out.
    pub(crate) problems: Vec<String>,
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.configured.keys()).finish()
    }
}

impl Servers {
    /// Those of the configuration; `environment` is where the variables come from that a server
    /// is allowed.
    pub(crate) fn new(
        configured: &BTreeMap<String, McpServer>,
        environment: BTreeMap<OsString, OsString>,
    ) -> Self {
        let slot = |config: &McpServer| {
            Mutex::new(ServerSlot {
                config: Arc::new(config.clone()),
                state: ServerState::Down,
            })
        };
        let configured = configured.iter();
        Self {
            configured: configured
                .map(|(name, config)| (name.clone(), slot(config)))
                .collect(),
            environment,
        }
    }

    /// All tools of all servers, which are started where they are not up. They start at the same
    /// time; one that doesn't come up costs its own time limit and is a problem, not a failure.
    pub(crate) async fn offered(&self) -> Offered {
        let started = self
            .configured
            .iter()
            .map(|(name, slot)| self.up(name, slot));
        let started = futures_util::future::join_all(started).await;
        let mut offered = Offered::default();
        let mut taken = BTreeSet::new();
        for (name, up) in self.configured.keys().zip(started) {
            match up {
                Ok((server, config)) => take(&server, &config, &mut taken, &mut offered),
                Err(why) => offered.problems.push(format!("MCP server `{name}`: {why}")),
            }
        }
        offered
    }

    async fn up(
        &self,
        name: &str,
        slot: &Mutex<ServerSlot>,
    ) -> Result<(Arc<Server>, Arc<McpServer>), String> {
        // Held while it starts: of two sessions that want it the second finds it up.
        let mut slot = slot.lock().await;
        match &slot.state {
            ServerState::Up(server) if !server.has_ended() => {
                return Ok((Arc::clone(server), Arc::clone(&slot.config)));
            }
            // Or each turn would wait until its time to get ready is over.
            ServerState::Failed { since, why } if since.elapsed() < AGAIN_AFTER => {
                return Err(why.clone());
            }
            _ => {}
        }
        match Server::start(name, &slot.config, &self.environment).await {
            Ok(server) => {
                let server = Arc::new(server);
                slot.state = ServerState::Up(Arc::clone(&server));
                Ok((server, Arc::clone(&slot.config)))
            }
            Err(why) => {
                slot.state = ServerState::Failed {
                    since: Instant::now(),
                    why: why.clone(),
                };
                Err(why)
            }
        }
    }

    /// Ends them, each with its process group.
    pub(crate) async fn end(&self) {
        let ended = self.configured.values().map(|slot| async {
            // Taken out first: a turn that wants it meanwhile starts another one, and doesn't get
            // one that leaves.
            let state = std::mem::replace(&mut slot.lock().await.state, ServerState::Down);
            if let ServerState::Up(server) = state {
                server.end().await;
            }
        });
        futures_util::future::join_all(ended).await;
    }
}

/// A server's tools, as far as they can be offered.
fn take(
    server: &Arc<Server>,
    config: &McpServer,
    taken: &mut BTreeSet<String>,
    offered: &mut Offered,
) {
    let left_out = server.tools().len().saturating_sub(MOST_TOOLS);
    if left_out > 0 {
        let name = server.name();
        offered.problems.push(format!(
            "MCP server `{name}`: {left_out} of its tools are left out, {MOST_TOOLS} is the most"
        ));
    }
    for told in server.tools().iter().take(MOST_TOOLS) {
        let name = names::offered(server.name(), &told.name);
        let schema = told.schema.to_string();
        let problem = if schema.len() > MOST_SCHEMA {
            let bytes = schema.len();
            format!("its schema has {bytes} bytes, and {MOST_SCHEMA} is the most")
        } else if taken.insert(name.clone()) {
            offered.tools.push(Arc::new(McpTool {
                spec: ToolSpec {
                    name,
                    description: beginning(&told.description, MOST_DESCRIPTION).to_owned(),
                    schema: told.schema.clone(),
                },
                native: told.name.clone(),
                read_only: config.read_only.contains(&told.name),
                server: Arc::clone(server),
            }));
            continue;
        } else {
            format!("another tool is called `{name}`, too")
        };
        let (server, tool) = (server.name(), names::plain(&told.name));
        offered.problems.push(format!(
            "MCP server `{server}`: tool `{tool}` is left out: {problem}"
        ));
    }
}

/// One tool of one server.
struct McpTool {
    spec: ToolSpec,
    /// What the server calls it.
    native: String,
    read_only: bool,
    server: Arc<Server>,
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn run<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        around: &'a Surroundings,
    ) -> Boxed<'a, Result<ToolOutcome, String>> {
        Box::pin(async move {
            if !self.read_only {
                // The server's name is of the configuration; the tool's is its own word.
                let title = format!("call a tool of the MCP server `{}`", self.server.name());
                let question = Question::new(&title).text("the tool", &self.native).text(
                    "its arguments",
                    &Value::Object(arguments.clone()).to_string(),
                );
                around.ask(&question).await?;
            }
            let called = self.server.call(&self.native, arguments, &around.cancel);
            match called.await {
                Called::Answered { ok, text } => {
                    let mut output = Output::new(&around.spill, &around.call);
                    output.push(text.as_bytes());
                    Ok(ToolOutcome::shown(ok, output.shown()))
                }
                Called::Failed(why) => Err(why),
            }
        })
    }
}

#[cfg(test)]
mod tests;
