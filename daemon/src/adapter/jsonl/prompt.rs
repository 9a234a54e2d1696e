//! A turn as it is written to a worker: the fields of its `send`.
//!
//! Must not know which turns are in flight.

use agentd_core::attached::Attached;
use agentd_core::worker::Prompt;
use serde_json::{Value, json};

use super::id;
use crate::adapter::attached::base64;

pub(super) fn send(prompt: &Prompt) -> Value {
    let mut line = json!({
        "type": "send",
        "id": id(prompt.turn),
        "text": prompt.text,
        "session": prompt.session,
        "job": prompt.job,
        "cwd": prompt.cwd,
        // Whether anybody answers is for us to know, not for a daemon behind this one.
        "on_question": "wait",
    });
    for (name, value) in [
        ("provider", &prompt.provider),
        ("model", &prompt.model),
        ("thinking", &prompt.thinking),
        ("native", &prompt.native),
    ] {
        if let Some(value) = value {
            line[name] = json!(value);
        }
    }
    if prompt.forks {
        line["fork"] = json!(true);
    }
    if let Some(toolsets) = &prompt.toolsets {
        line["toolsets"] = json!(toolsets);
    }
    if !prompt.mcp_servers.is_empty() {
        line["mcp_servers"] = json!(prompt.mcp_servers.list());
    }
    if let Some(chain) = &prompt.fallback_chain {
        line["fallback_chain"] = json!(chain);
    }
    if let Some(begins) = &prompt.begins {
        if let Some(system) = &begins.system {
            line["system"] = json!(system);
        }
        if !begins.history.is_empty() {
            line["history"] = json!(begins.history);
        }
    }
    let attached = prompt.attachments.here();
    if !attached.is_empty() {
        let attachment =
            |of: &Attached| json!({"mime": of.mime, "name": of.name, "data": base64(of)});
        line["attachments"] = attached.iter().map(attachment).collect();
    }
    line
}
