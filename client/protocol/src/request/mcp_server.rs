//! MCP servers that a session's agent is given besides its own.
//!
//! Owns what is said of one, and its syntax. Must not know which agent takes which, nor how.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::envelope::{Rejected, invalid};
use crate::limits::{MAX_MCP_BYTES, MAX_MCP_NAME, MAX_MCP_SERVERS};

/// One of them. What it is started or asked with may hold secrets: `Debug` says its name only.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum McpServer {
    /// A program, which the agent starts and talks to over its standard input and output.
    Stdio {
        /// What its tools are called after.
        name: String,
        /// The program.
        command: String,
        /// Its arguments.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        args: Vec<String>,
        /// Variables that it gets besides those that the agent gives it.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        #[cfg_attr(feature = "schema", schemars(with = "Texts"))]
        env: BTreeMap<String, String>,
    },
    /// One that is reached by "Streamable HTTP".
    Http {
        /// What its tools are called after.
        name: String,
        /// Where it is.
        url: String,
        /// Sent with each request.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        #[cfg_attr(feature = "schema", schemars(with = "Texts"))]
        headers: BTreeMap<String, String>,
    },
    /// One that is reached by HTTP as it was before that.
    Sse {
        /// What its tools are called after.
        name: String,
        /// Where it is.
        url: String,
        /// Sent with each request.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        #[cfg_attr(feature = "schema", schemars(with = "Texts"))]
        headers: BTreeMap<String, String>,
    },
}

/// Texts by their names. With a name of its own, as generators of clients fail at one without.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
struct Texts(#[allow(dead_code, reason = "a schema's alone")] BTreeMap<String, String>);

impl std::fmt::Debug for McpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "McpServer({}, {})", self.transport(), self.name())
    }
}

impl McpServer {
    /// What its tools are called after.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Stdio { name, .. } | Self::Http { name, .. } | Self::Sse { name, .. } => name,
        }
    }

    /// How it is reached, as its `type` says.
    #[must_use]
    pub const fn transport(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
            Self::Sse { .. } => "sse",
        }
    }
}

/// Checks a list of them. No value is repeated, as any may be a secret.
pub(super) fn check_servers(servers: &[McpServer]) -> Result<(), Rejected> {
    if servers.len() > MAX_MCP_SERVERS {
        let count = servers.len();
        return Err(invalid(format!(
            "`mcp_servers` has {count} entries, the limit is {MAX_MCP_SERVERS}"
        )));
    }
    let mut names = BTreeSet::new();
    for (at, server) in servers.iter().enumerate() {
        let refuse = |what: &str| Err(invalid(format!("`mcp_servers[{at}]`: {what}")));
        let name = server.name();
        let fine = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if name.is_empty() || name.len() > MAX_MCP_NAME || !name.chars().all(fine) {
            return refuse(&format!(
                "`name` must be 1 to {MAX_MCP_NAME} letters, digits, `_` and `-`"
            ));
        }
        if !names.insert(name) {
            return refuse(&format!("another one is called `{name}`, too"));
        }
        match server {
            McpServer::Stdio {
                command, args, env, ..
            } => {
                let values = env.values().chain(args).chain([command]);
                if command.trim().is_empty() {
                    return refuse("`command` is blank: expected a program");
                }
                if env.keys().any(|name| name.is_empty() || name.contains('=')) {
                    return refuse("`env` has a name that is empty or has a `=`");
                }
                if values.chain(env.keys()).any(|value| value.contains('\0')) {
                    return refuse("there is a NUL in it: expected text");
                }
            }
            McpServer::Http { url, headers, .. } | McpServer::Sse { url, headers, .. } => {
                crate::webhook::check_address(&format!("mcp_servers[{at}].url"), url)?;
                let token = |c: char| c.is_ascii_graphic() && !"()<>@,;:\\\"/[]?={}".contains(c);
                if !headers
                    .keys()
                    .all(|name| !name.is_empty() && name.chars().all(token))
                {
                    return refuse("`headers` has a name that no header can have");
                }
                if headers
                    .values()
                    .any(|value| value.chars().any(char::is_control))
                {
                    return refuse("`headers` has a value with a control character");
                }
            }
        }
    }
    let bytes = serde_json::to_string(servers).map_or(0, |text| text.len());
    if bytes > MAX_MCP_BYTES {
        return Err(invalid(format!(
            "`mcp_servers` has {bytes} bytes, the limit is {MAX_MCP_BYTES}"
        )));
    }
    Ok(())
}
