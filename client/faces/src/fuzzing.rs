//! What has to hold of a client's lines, whatever they are.
//!
//! Owns the rules that `tests/fuzz` and the corpus are held to. Must not be part of the product: it is
//! built for tests and for the fuzzer only.

use std::time::{Instant, UNIX_EPOCH};

use agentd_client::ClientError;
use serde_json::{Map, Value, json};

use crate::bridge::{self, Bridge};
use crate::face::{Face, Outbox};
use crate::gateway::{self, Gateway};
use crate::json_rpc::Message;
use crate::mcp::{Mcp, Settings};
use crate::pi::{self, Pi};

/// Each line of an MCP client that asks for something, or is no message, is answered once; where nobody
/// serves, by that. All that is said are messages.
pub fn mcp(bytes: &[u8]) {
    let face = Mcp::new(Settings {
        cwd: Some("/project".into()),
        answers: true,
        abort_cancelled: true,
        scope: Some("1".to_owned()),
        nonce: "nonce".to_owned(),
        inside: false,
    });
    json_rpc(face, bytes.split(|byte| *byte == b'\n'));
}

/// The same of a client of Hermes' gateway, which may say blank lines.
pub fn gateway(bytes: &[u8]) {
    let settings = gateway::Settings {
        agent: None,
        here: Some("/project".to_owned()),
        nonce: "nonce".to_owned(),
    };
    let face = Gateway::new(settings, Instant::now());
    let lines = bytes.split(|byte| *byte == b'\n');
    json_rpc(
        face,
        lines.filter(|line| !line.iter().all(u8::is_ascii_whitespace)),
    );
}

/// Of a client that asks for nothing of its own.
pub(crate) fn pi_settings(begins: pi::Begins) -> pi::Settings {
    pi::Settings {
        agent: None,
        provider: None,
        model: None,
        thinking: None,
        toolsets: None,
        system: None,
        name: None,
        here: Some("/project".to_owned()),
        begins,
        sessions: "/state/pi-sessions".to_owned(),
        nonce: "nonce".to_owned(),
        clock: || UNIX_EPOCH,
    }
}

/// Each line of a client of pi's RPC is answered once, by its own `id`; an answer to a dialog by nothing.
pub fn serve_pi(bytes: &[u8]) {
    let begins = pi::Begins::Named("s".to_owned());
    let mut face = Pi::new(pi_settings(begins));
    for line in bytes.split(|byte| *byte == b'\n') {
        let mut said = heard(&mut face, line);
        let asked: Option<Map<String, Value>> = serde_json::from_slice(line).ok();
        let is_answer =
            |asked: &Map<String, Value>| asked.get("type") == Some(&json!("extension_ui_response"));
        said.retain(|said| said["type"] == "response");
        if said.is_empty() && asked.as_ref().is_some_and(is_answer) {
            continue;
        }
        let shown = String::from_utf8_lossy(line);
        assert_eq!(said.len(), 1, "{shown}: {said:?}");
        let said = &said[0];
        assert!(said["command"].is_string(), "{shown}: {said}");
        assert_eq!(
            said["success"] == false,
            said["error"].is_string(),
            "{shown}: {said}"
        );
        let id = asked.and_then(|mut asked| asked.remove("id"));
        // One that is too long is left out, as is that of a line with two of them.
        let is_echoed = said.get("id").is_none() || said.get("id") == id.as_ref();
        assert!(is_echoed, "{shown}: {said}");
    }
}

/// Each line of a bridge's host that isn't blank is answered once, until it ends the bridge.
pub fn bridge(bytes: &[u8]) {
    let mut face = Bridge::new(bridge::Settings {
        agent: None,
        here: Some("/project".to_owned()),
        once: false,
        defaults: bridge::Defaults::default(),
        nonce: "nonce".to_owned(),
        clock: || UNIX_EPOCH,
    });
    for line in bytes.split(|byte| *byte == b'\n') {
        let said = heard(&mut face, line);
        let is_answer = |said: &&Value| {
            let kinds = ["pong", "interrupt_ack", "shutdown_ack", "error"];
            kinds.iter().any(|kind| said["type"] == *kind)
        };
        let answers = said.iter().filter(is_answer).count();
        let is_blank = line.iter().all(u8::is_ascii_whitespace);
        let shown = String::from_utf8_lossy(line);
        assert_eq!(answers, usize::from(!is_blank), "{shown}: {said:?}");
        if face.leaves() {
            return;
        }
    }
}

/// What a line leads to where nobody serves: objects, a line each.
fn heard(face: &mut impl Face, line: &[u8]) -> Vec<Value> {
    let (mut out, now) = (Outbox::default(), Instant::now());
    face.client_line(line, now, &mut out);
    while !out.take_daemon().is_empty() {
        face.unreachable(&ClientError::Draining, now, &mut out);
    }
    assert!(face.is_done(), "{}", String::from_utf8_lossy(line));
    let said = out.take_client();
    let objects = said.iter().map(|line| {
        assert!(!line.contains('\n'), "{line}");
        let said: Map<String, Value> = serde_json::from_str(line).unwrap_or_default();
        assert!(said.get("type").is_some_and(Value::is_string), "{line}");
        Value::Object(said)
    });
    objects.collect()
}

fn json_rpc<'a>(mut face: impl Face, lines: impl Iterator<Item = &'a [u8]>) {
    let (mut out, now) = (Outbox::default(), Instant::now());
    for line in lines {
        let waits = match Message::parse(line) {
            Message::Request { .. } | Message::Invalid { .. } => 1,
            Message::Notification { .. } | Message::Response { .. } => 0,
        };
        face.client_line(line, now, &mut out);
        let mut answers = answers(&mut out);
        if !out.take_daemon().is_empty() {
            face.unreachable(&ClientError::Draining, now, &mut out);
            answers += self::answers(&mut out);
        }
        assert_eq!(answers, waits, "{}", String::from_utf8_lossy(line));
        assert!(face.is_done(), "{}", String::from_utf8_lossy(line));
    }
}

fn answers(out: &mut Outbox) -> usize {
    let mut answers = 0;
    for line in out.take_client() {
        assert!(!line.contains('\n'), "{line}");
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        assert_eq!(said["jsonrpc"], "2.0", "{line}");
        let (result, error) = (said.get("result"), said.get("error"));
        match said.get("method") {
            Some(method) => assert!(method.is_string() && result.or(error).is_none(), "{line}"),
            None => {
                assert_ne!(result.is_some(), error.is_some(), "{line}");
                answers += 1;
            }
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzzing_corpus_of_bridge_holds() {
        crate::replay::replay("bridge", super::bridge);
    }

    #[test]
    fn fuzzing_corpus_of_serve_pi_holds() {
        crate::replay::replay("serve_pi", super::serve_pi);
    }

    #[test]
    fn fuzzing_corpus_of_gateway_holds() {
        crate::replay::replay("gateway", super::gateway);
    }

    #[test]
    fn fuzzing_corpus_of_mcp_holds() {
        crate::replay::replay("mcp", super::mcp);
    }
}
