//! MCP servers that a session brings: told over its input, so that no file and no argument has them.
//!
//! Owns that the process is ready when it has tried them. Must not know turns.

use std::collections::BTreeMap;

use agentd_core::effect::Spawn;
use agentd_core::mcp::McpServers;
use agentd_core::worker::{Failure, Traits, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::Level;
use serde_json::{Value, json};

use super::Claude;
use crate::adapter::driver::Out;
use crate::adapter::mcp::by_name;
use crate::adapter::object::Object;

/// How far they are.
pub(super) enum Servers {
    /// There are none, or it has them.
    Settled,
    /// It is told of them in the handshake.
    Brought(McpServers),
    /// The request with this id has no answer.
    Asked(String),
    /// It doesn't take them, and every turn says so.
    Refused(Failure),
}

impl Servers {
    pub(super) fn new(spawn: &Spawn) -> Self {
        match spawn.mcp_servers.is_empty() {
            true => Self::Settled,
            false => Self::Brought(spawn.mcp_servers.clone()),
        }
    }

    /// Is it the request about them?
    pub(super) fn are_named(&self, request: Option<&str>) -> bool {
        matches!(self, Self::Asked(asked) if Some(asked.as_str()) == request)
    }
}

impl Claude {
    /// It is there: ready at once, unless its session brings servers.
    pub(super) fn bring_servers(&mut self, out: &mut Out<'_>) {
        match &self.servers {
            Servers::Brought(servers) => {
                let request = json!({"servers": by_name(&servers.list())});
                self.servers = Servers::Asked(self.request(request, "mcp_set_servers", out));
            }
            // Its answer is on the way.
            Servers::Asked(_) => {}
            Servers::Settled | Servers::Refused(_) => {
                out.push(WorkerEvent::Ready(Traits::default()));
            }
        }
    }

    /// It has them, or says which of them it couldn't reach.
    pub(super) fn servers_taken(&mut self, response: &Object<'_>, out: &mut Out<'_>) {
        self.servers = match response.object("response") {
            Some(taken) if response.string("subtype").as_deref() == Some("success") => {
                let errors: Option<BTreeMap<String, Value>> = taken.get("errors");
                let errors = errors.unwrap_or_default();
                if !errors.is_empty() {
                    let names: Vec<_> = errors.keys().map(|name| format!("`{name}`")).collect();
                    // Its own words may repeat what the server was started with.
                    let text = format!(
                        "Claude Code could not start or reach MCP servers of the session: {}",
                        names.join(", ")
                    );
                    out.note(None, Level::Warning, "mcp", text);
                }
                Servers::Settled
            }
            _ => {
                let error = "this Claude Code takes no MCP servers of a session";
                Servers::Refused(Failure {
                    hint: Some("leave `mcp_servers` out, or install a newer one".to_owned()),
                    ..Failure::new(Code::Unsupported, error)
                })
            }
        };
        out.push(WorkerEvent::Ready(Traits::default()));
    }
}
