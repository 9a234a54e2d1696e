//! Every word that is written to an agent.
//!
//! Owns the shapes of ACP's requests, notifications and answers, as the protocol's schema has them.
//! Every value has its type by construction. Must not know when a word is written.

use agentd_core::attached::Attached;
use agentd_protocol::attachment::is_image;
use agentd_protocol::request::McpServer;
use serde_json::{Value, json};

use crate::adapter::attached::{base64, name, text};
use crate::adapter::driver::Out;
use crate::adapter::mcp::listed;

/// Not a request that is served here.
pub(super) const METHOD_NOT_FOUND: i64 = -32601;
/// A request that makes no sense.
pub(super) const INVALID_PARAMS: i64 = -32602;
/// The agent wants its user to log in.
pub(super) const AUTH_REQUIRED: i64 = -32000;
/// What was asked for isn't there: a session, or a file.
pub(super) const RESOURCE_NOT_FOUND: i64 = -32002;
/// The version that is spoken here.
pub(super) const VERSION: u64 = 1;

pub(super) fn put_request(id: u64, method: &str, params: &Value, out: &mut Out<'_>) {
    let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    out.put(&line);
}

pub(super) fn put_notification(method: &str, params: &Value, out: &mut Out<'_>) {
    out.put(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
}

/// Answers a request of the agent's, under the id that it gave.
pub(super) fn put_result(id: &Value, result: &Value, out: &mut Out<'_>) {
    out.put(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

/// Refuses a request of the agent's.
pub(super) fn put_error(id: &Value, code: i64, message: &str, out: &mut Out<'_>) {
    let error = json!({"code": code, "message": message});
    out.put(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
}

/// No files and no terminals are offered: the agent uses its own.
pub(super) fn initialize() -> Value {
    json!({
        "protocolVersion": VERSION,
        "clientCapabilities": {
            "fs": {"readTextFile": false, "writeTextFile": false},
            "terminal": false,
        },
        "clientInfo": {"name": "agentd", "version": env!("CARGO_PKG_VERSION")},
    })
}

pub(super) fn new_session(cwd: &str, servers: &[McpServer]) -> Value {
    // The schema wants the list, also an empty one.
    json!({"cwd": cwd, "mcpServers": listed(servers)})
}

pub(super) fn load_session(session: &str, cwd: &str, servers: &[McpServer]) -> Value {
    json!({"sessionId": session, "cwd": cwd, "mcpServers": listed(servers)})
}

pub(super) fn prompt(session: &str, text: &str, attached: &[Attached]) -> Value {
    let mut prompt = vec![json!({"type": "text", "text": text})];
    prompt.extend(attached.iter().map(content));
    json!({"sessionId": session, "prompt": prompt})
}

/// A picture, or text that is embedded: with a URI that leads nowhere, as the agent is to read what
/// it is given.
fn content(attached: &Attached) -> Value {
    let mime = &attached.mime;
    if is_image(mime) {
        return json!({"type": "image", "mimeType": mime, "data": base64(attached)});
    }
    let uri = format!("attachment:///{}", escaped(name(attached)));
    let resource = json!({"uri": uri, "mimeType": mime, "text": text(attached)});
    json!({"type": "resource", "resource": resource})
}

/// A name as part of a URI.
fn escaped(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(escape).collect()
}

pub(super) fn cancel(session: &str) -> Value {
    json!({"sessionId": session})
}

/// `session/set_model`, which not every version of the protocol has.
pub(super) fn set_model(session: &str, model: &str) -> Value {
    json!({"sessionId": session, "modelId": model})
}

/// `session/set_mode`, likewise.
pub(super) fn set_mode(session: &str, mode: &str) -> Value {
    json!({"sessionId": session, "modeId": mode})
}

/// `session/set_config_option`, which came after it.
pub(super) fn set_config_option(session: &str, option: &str, value: &str) -> Value {
    json!({"sessionId": session, "configId": option, "value": value})
}

/// The answer to a permission request: this option.
pub(super) fn selected(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

/// The answer to a permission request: nobody chose.
pub(super) fn cancelled() -> Value {
    json!({"outcome": {"outcome": "cancelled"}})
}
