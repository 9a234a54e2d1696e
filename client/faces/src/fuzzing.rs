//! What has to hold of a client's lines, whatever they are.
//!
//! Owns the rules that `tests/fuzz` and the corpus are held to. Must not be part of the product: it is
//! built for tests and for the fuzzer only.

use std::time::Instant;

use agentd_client::ClientError;
use serde_json::Value;

use crate::face::{Face, Outbox};
use crate::gateway::{self, Gateway};
use crate::json_rpc::Message;
use crate::mcp::{Mcp, Settings};

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
    fn fuzzing_corpus_of_gateway_holds() {
        crate::replay::replay("gateway", super::gateway);
    }

    #[test]
    fn fuzzing_corpus_of_mcp_holds() {
        crate::replay::replay("mcp", super::mcp);
    }
}
