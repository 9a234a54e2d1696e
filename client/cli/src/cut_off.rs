//! Turns that the end of a daemon cuts off: as whoever ends it hears of them, and as the next one knows.
//!
//! Owns what is said of them, and of those that wait behind them. Must not know how a daemon is ended.

use std::collections::BTreeSet;
use std::time::Duration;

use agentd_protocol::request::{Status, Subscribe};
use agentd_protocol::work::{JobPhase, Jobs};
use agentd_protocol::{Code, JobId, Line, RequestKind};

use super::{output, status, typed};
use agentd_client::client::Client;

/// Turns that are named: more would hide what is said of them.
const NAMED: usize = 5;

/// A daemon that doesn't say so within this time leaves without telling of its turns.
const LIVE_WITHIN: Duration = Duration::from_secs(3);

/// What runs is heard of on the conversation that tells the daemon to leave, to its last words. It says
/// first that it will: a turn may be cut off faster than a subscription begins.
pub(super) async fn hear_turns(client: &mut Client) {
    let fields = Subscribe::default();
    // Who can't hear of them looks into the list.
    let _deaf = client.ask("subscribe", &fields, Some(LIVE_WITHIN)).await;
}

/// Reads a conversation to its end: the turns that were cut off, unless it isn't over in time.
pub(super) async fn last_words(mut client: Client, within: Duration) -> Option<BTreeSet<JobId>> {
    let mut cut = BTreeSet::new();
    let left = async {
        while let Ok(received) = client.next().await {
            if let Some(Line::Error(error)) = received.line
                && error.code == Code::Interrupted
            {
                cut.extend(error.turn.and_then(|turn| turn.job));
            }
        }
    };
    tokio::time::timeout(within, left).await.ok()?;
    Some(cut)
}

/// Says which turns a stop cut off, and how they run again.
pub(super) fn tell_cut(cut: &BTreeSet<JobId>) {
    let were = match cut.len() {
        0 => return,
        1 => "turn was",
        _ => "turns were",
    };
    let there = typed::which_daemon();
    let again = match cut.iter().take(NAMED + 1).collect::<Vec<_>>()[..] {
        [job] => format!("`agentctl{there} retry {job}` sends it again"),
        ref jobs if jobs.len() <= NAMED => {
            let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            format!(
                "`agentctl{there} retry {}` sends them again",
                jobs.join(" ")
            )
        }
        _ => format!("`agentctl{there} retry JOB` sends one again"),
    };
    output::note(&format!(
        "{} {were} interrupted (`agentctl{there} jobs --state interrupted`): {again}",
        cut.len()
    ));
}

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
