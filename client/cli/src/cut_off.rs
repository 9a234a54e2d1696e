//! What a daemon that was just started knows of the one before it.
//!
//! Owns when that is told, and how many turns wait behind it. Must not know the words: the protocol has them for the log, too.

use agentd_protocol::request::Status;
use agentd_protocol::work::{JobPhase, Jobs};
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
    tell_held(client).await;
    status::tell_loss(&answer);
}

/// Turns that nobody runs before somebody says so.
async fn tell_held(client: &mut Client) {
    let held = Jobs {
        state: Some(JobPhase::Held),
        ..Jobs::default()
    };
    let is = match client.jobs(held).await.map_or(0, |rows| rows.len()) {
        0 => return,
        1 => "1 turn is".to_owned(),
        many => format!("{many} turns are"),
    };
    output::note(&format!(
        "{is} held behind an interrupted one (`agentctl jobs --state held`): `agentctl sessions \
         resume SESSION` runs what a session holds"
    ));
}
