//! What a daemon that was just started knows of the one before it.
//!
//! Owns when that is told. Must not know the words: the protocol has them for the log, too.

use agentd_protocol::request::Status;
use agentd_protocol::{Line, RequestKind};

use super::{output, status};
use agentd_client::client::Client;

/// Tells what was cut off, and what the store lost, if anything was.
pub(super) async fn tell(client: &mut Client) {
    let fields = Status { workers: false };
    let asked = client.answer(RequestKind::Status, &fields).await;
    // It runs, which is what was asked for: what it doesn't say isn't missed.
    let Ok(Some(Line::Status(answer))) = asked.map(|received| received.line) else {
        return;
    };
    if let Some(left) = answer.daemon.before {
        output::note(&left.to_string());
    }
    status::tell_loss(&answer);
}
