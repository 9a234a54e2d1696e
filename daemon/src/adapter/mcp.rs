//! MCP servers that a session brings, as agents want to be told of them.
//!
//! Owns the shapes. Must not know when an agent is told.

use agentd_core::worker::Failure;
use agentd_protocol::Code;
use agentd_protocol::request::McpServer;
use serde_json::{Map, Value, json};

/// Why an agent doesn't take all of them, where one is reached in a way that it doesn't know.
pub(super) fn untaken(
    agent: &str,
    servers: &[McpServer],
    takes: impl Fn(&McpServer) -> bool,
) -> Option<Failure> {
    let server = servers.iter().find(|server| !takes(server))?;
    let (name, by) = (server.name(), server.transport());
    let error = format!("{agent} takes no MCP servers of the type `{by}`: `{name}`");
    Some(Failure {
        hint: Some("leave it out of `mcp_servers`, or ask another agent".to_owned()),
        ..Failure::new(Code::Unsupported, error)
    })
}

/// As Claude Code wants them: by name, each as its settings have it.
pub(super) fn by_name(servers: &[McpServer]) -> Value {
    let one = |server: &McpServer| {
        let config = match server {
            // Without the list of arguments, one that can't be started is reported as a bug of its own.
            McpServer::Stdio {
                command, args, env, ..
            } => json!({"type": "stdio", "command": command, "args": args, "env": env}),
            McpServer::Http { url, headers, .. } => {
                json!({"type": "http", "url": url, "headers": headers})
            }
            McpServer::Sse { url, headers, .. } => {
                json!({"type": "sse", "url": url, "headers": headers})
            }
        };
        (server.name().to_owned(), config)
    };
    Value::Object(servers.iter().map(one).collect())
}

/// As Codex wants them: keys of its configuration, beside those that are there.
pub(super) fn codex_config(servers: &[McpServer]) -> Value {
    let one = |server: &McpServer| {
        let config = match server {
            McpServer::Stdio {
                command, args, env, ..
            } => json!({"command": command, "args": args, "env": env}),
            McpServer::Http { url, headers, .. } | McpServer::Sse { url, headers, .. } => {
                json!({"url": url, "http_headers": headers})
            }
        };
        (format!("mcp_servers.{}", server.name()), config)
    };
    Value::Object(servers.iter().map(one).collect::<Map<_, _>>())
}

/// As the Agent Client Protocol has them: a list, and variables and headers as lists.
pub(super) fn listed(servers: &[McpServer]) -> Value {
    let pairs = |map: &std::collections::BTreeMap<String, String>| {
        let pair = |(name, value)| json!({"name": name, "value": value});
        map.iter().map(pair).collect::<Vec<_>>()
    };
    let one = |server: &McpServer| match server {
        McpServer::Stdio {
            name,
            command,
            args,
            env,
        } => json!({"name": name, "command": command, "args": args, "env": pairs(env)}),
        McpServer::Http { name, url, headers } => {
            json!({"type": "http", "name": name, "url": url, "headers": pairs(headers)})
        }
        McpServer::Sse { name, url, headers } => {
            json!({"type": "sse", "name": name, "url": url, "headers": pairs(headers)})
        }
    };
    servers.iter().map(one).collect()
}
