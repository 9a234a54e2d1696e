//! MCP servers that a client brings for a session, as the daemon has them.
//!
//! Owns their names, which are stricter there. Must not know sessions.

use std::collections::{BTreeMap, BTreeSet};

use agentd_protocol::limits::MAX_MCP_NAME;
use agentd_protocol::request::McpServer;
use serde::Deserialize;
use serde_json::Value;

use super::failure::invalid;
use crate::json_rpc::Failure;

/// One of `mcpServers`: without a `type`, a program.
#[derive(Deserialize)]
struct Given {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: String,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Pair>,
    url: Option<String>,
    #[serde(default)]
    headers: Vec<Pair>,
}

/// A variable or a header.
#[derive(Deserialize)]
struct Pair {
    name: String,
    value: String,
}

/// All of them; an empty list says nothing of those that a session has.
pub(super) fn brought(given: &[Value]) -> Result<Option<Vec<McpServer>>, Failure> {
    let mut names = BTreeSet::new();
    let read = given.iter().enumerate().map(|(at, value)| {
        // What it has may be secret: it isn't repeated.
        let unread = |_| invalid(format!("`mcpServers[{at}]` is not as the protocol has it"));
        let one: Given = Given::deserialize(value).map_err(unread)?;
        let name = plain(&one.name, &mut names);
        let map = |pairs: Vec<Pair>| pairs.into_iter().map(|one| (one.name, one.value));
        let (env, headers) = (map(one.env), map(one.headers).collect::<BTreeMap<_, _>>());
        Ok(match (one.kind.as_deref(), one.command, one.url) {
            (None | Some("stdio"), Some(command), _) => McpServer::Stdio {
                name,
                command,
                args: one.args,
                env: env.collect(),
            },
            (Some("http"), _, Some(url)) => McpServer::Http { name, url, headers },
            (Some("sse"), _, Some(url)) => McpServer::Sse { name, url, headers },
            _ => {
                return Err(invalid(format!(
                    "`mcpServers[{at}]`: expected a `command`, or the `type` `http` or `sse` with a `url`"
                )));
            }
        })
    });
    let read: Vec<McpServer> = read.collect::<Result<_, _>>()?;
    Ok((!read.is_empty()).then_some(read))
}

/// A name as every agent takes it, and of no other one: people name them as they like.
fn plain(name: &str, taken: &mut BTreeSet<String>) -> String {
    let fine = |c: char| match c {
        c if c.is_ascii_alphanumeric() || "_-".contains(c) => c,
        _ => '_',
    };
    let base: String = name.chars().map(fine).take(MAX_MCP_NAME - 4).collect();
    let base = if base.is_empty() {
        "server".to_owned()
    } else {
        base
    };
    let mut name = base.clone();
    for number in 2..1000 {
        if taken.insert(name.clone()) {
            break;
        }
        name = format!("{base}-{number}");
    }
    name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_get_names_that_agents_take() {
        let stdio = json!({"name": "My files!", "command": "/bin/x", "args": ["a"], "env": [{"name": "K", "value": "v"}]});
        let web = json!({"type": "http", "name": "My files?", "url": "https://a.example", "headers": [{"name": "A", "value": "b"}]});
        let read = brought(&[stdio, web]).unwrap().unwrap();
        let names: Vec<&str> = read.iter().map(McpServer::name).collect();
        assert_eq!(names, ["My_files_", "My_files_-2"]);
        assert_eq!(
            json!(read[0]),
            json!({"type": "stdio", "name": "My_files_", "command": "/bin/x", "args": ["a"], "env": {"K": "v"}})
        );
        assert_eq!(json!(read[1])["headers"], json!({"A": "b"}));
        assert!(brought(&[]).unwrap().is_none());
        for wrong in [
            json!({"name": "x"}),
            json!({"name": "x", "command": 5}),
            json!({"name": "x", "type": "tcp", "url": "x"}),
            json!("hush"),
        ] {
            let refused = brought(&[wrong]).unwrap_err();
            assert!(!refused.message.contains("hush"), "{refused:?}");
        }
    }
}
