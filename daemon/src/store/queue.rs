//! What the writer needs to know of a command before it carries it out.
//!
//! Pure: which commands go together, which can wait, which touch what. Must not know SQL or time.

use std::collections::VecDeque;

use agentd_core::Event;
use agentd_core::store::{Query, Stored, Urgency, Write};
use agentd_protocol::Code;

use super::StoreCommand;

/// Questions answered within one transaction: their answers are kept until its end.
const LOADS: usize = 8;
/// Commands in one transaction: more would make the first one wait for the last. So many take about as
/// long as a disk takes to flush.
pub(super) const BATCH: usize = 1024;
/// So much text that nobody waits for is written before more is taken: it is in memory twice.
pub(super) const HEAVY: usize = 1024 * 1024;

/// Bytes of text and of attachments that a command holds.
pub(super) fn weight(command: &StoreCommand) -> usize {
    let StoreCommand::Commit { writes, .. } = command else {
        return 0;
    };
    let text = writes.iter().map(|write| match write {
        Write::Text { text, .. } => text.len(),
        Write::Accept(new) => new.contents.iter().map(|one| one.bytes().len()).sum(),
        _ => 0,
    });
    text.sum()
}

pub(super) fn is_lazy(command: &StoreCommand) -> bool {
    matches!(
        command,
        StoreCommand::Commit {
            urgency: Urgency::Lazy,
            ..
        }
    )
}

/// Does it do nothing but give sessions back?
pub(super) fn only_releases(command: &StoreCommand) -> bool {
    let releases = |write: &Write| matches!(write, Write::Release { .. });
    matches!(command, StoreCommand::Commit { writes, .. } if writes.iter().all(releases))
}

/// What the writer has to know of a write besides its rows. Every write is named here, so that a new
/// one doesn't compile before somebody has thought of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nature {
    /// A job that somebody asked for: its number finds it again.
    Accept,
    /// What somebody asked for, although it writes no row by whose number it could be found again.
    Request,
    /// The same, and there is something to deliver afterwards.
    DeliveryRequest,
    /// The same, and what is due next may be another thing afterwards.
    ScheduleRequest,
    /// There is something to deliver afterwards.
    Delivery,
    /// What became of work that is under way.
    Work,
}

const fn nature(write: &Write) -> Nature {
    match write {
        Write::Accept(_) => Nature::Accept,
        Write::Open(_)
        | Write::Close { .. }
        | Write::Rename { .. }
        | Write::Title { .. }
        | Write::Model { .. }
        | Write::Hold { held: false, .. } => Nature::Request,
        Write::Schedule(_) => Nature::ScheduleRequest,
        Write::Replay { .. } | Write::TestCallback { .. } => Nature::DeliveryRequest,
        Write::Callback { .. } => Nature::Delivery,
        Write::Start { .. }
        | Write::Requeue { .. }
        | Write::Cancel { .. }
        | Write::Event { .. }
        | Write::Text { .. }
        | Write::Finish { .. }
        | Write::Hold { held: true, .. }
        | Write::Native { .. }
        | Write::Lost { .. }
        | Write::Release { .. } => Nature::Work,
    }
}

fn has(command: &StoreCommand, wanted: &[Nature]) -> bool {
    let is_wanted = |write: &Write| wanted.contains(&nature(write));
    matches!(command, StoreCommand::Commit { writes, .. } if writes.iter().any(is_wanted))
}

/// Does it make a job?
pub(super) fn is_accept(command: &StoreCommand) -> bool {
    has(command, &[Nature::Accept])
}

/// Is there something to deliver afterwards?
pub(super) fn delivers(command: &StoreCommand) -> bool {
    has(command, &[Nature::Delivery, Nature::DeliveryRequest])
}

/// May something else be due next afterwards?
pub(super) fn schedules(command: &StoreCommand) -> bool {
    has(command, &[Nature::ScheduleRequest])
}

/// Did somebody ask for it, although it writes no row by whose number it could be found again?
pub(super) fn is_unnumbered_request(command: &StoreCommand) -> bool {
    let asked = [
        Nature::Request,
        Nature::DeliveryRequest,
        Nature::ScheduleRequest,
    ];
    has(command, &asked)
}

/// The answer to a commit that somebody asked for, while nothing can be written. What became of
/// work that is under way is kept instead.
pub(super) fn refusal(command: &StoreCommand, code: Code, why: &str) -> Option<Event> {
    let StoreCommand::Commit { token, .. } = command else {
        return None;
    };
    let asked_for = is_accept(command) || is_unnumbered_request(command);
    asked_for.then(|| Event::Stored {
        token: *token,
        stored: Stored::Failed {
            code,
            why: why.to_owned(),
        },
    })
}

/// Could this command change the answer to the question?
pub(super) fn changes(command: &StoreCommand, query: &Query) -> bool {
    let names = match query {
        Query::Sessions { names } => names,
        Query::Key { key, .. } => return takes_key(command, key),
        // A copy is of what is in the file, and everything else is read beside the writer.
        _ => return false,
    };
    let StoreCommand::Commit { writes, .. } = command else {
        return matches!(command, StoreCommand::Takeover { .. });
    };
    writes.iter().any(|write| match write {
        Write::Accept(_) | Write::Open(_) => true,
        Write::Rename { session, to } => names.contains(session) || names.contains(to),
        Write::Native { session, .. }
        | Write::Lost { session }
        | Write::Close { session }
        | Write::Model { session, .. }
        | Write::Release { session } => names.contains(session),
        // Sessions of jobs that have no stored end are in memory, and nobody asks for them.
        Write::Finish { .. }
        | Write::Start { .. }
        | Write::Requeue { .. }
        | Write::Cancel { .. }
        | Write::Event { .. }
        | Write::Hold { .. }
        | Write::Text { .. }
        | Write::Callback { .. }
        | Write::Replay { .. }
        | Write::TestCallback { .. }
        | Write::Schedule(_)
        // What is asked of sessions doesn't have it.
        | Write::Title { .. } => false,
    })
}

/// Is a refusal a fair answer to this question? That of sessions is a step of work that must not
/// end.
pub(super) const fn can_do_without(query: &Query) -> bool {
    !matches!(query, Query::Sessions { .. })
}

/// Could this command make a job with this key?
fn takes_key(command: &StoreCommand, key: &str) -> bool {
    let StoreCommand::Commit { writes, .. } = command else {
        return false;
    };
    writes.iter().any(|write| match write {
        Write::Accept(new) => new.key.as_deref() == Some(key),
        _ => false,
    })
}

/// How many commands go into the next transaction.
pub(super) fn batch_len(queue: &VecDeque<StoreCommand>) -> usize {
    let mut loads = 0;
    queue
        .iter()
        .take(BATCH)
        .take_while(|command| {
            loads += usize::from(matches!(command, StoreCommand::Load { .. }));
            loads <= LOADS
        })
        .count()
}

/// What the first commands write, by name.
#[cfg(debug_assertions)]
pub(super) fn kinds(
    queue: &VecDeque<StoreCommand>,
    commands: usize,
) -> std::collections::BTreeSet<&'static str> {
    let written = queue
        .iter()
        .take(commands)
        .flat_map(|command| match command {
            StoreCommand::Commit { writes, .. } => writes.as_slice(),
            StoreCommand::Load { .. } | StoreCommand::Takeover { .. } | StoreCommand::Flush => &[],
        });
    written
        .map(|write| match write {
            Write::Accept(new) if new.running.is_some() => "accept-running",
            Write::Accept(_) => "accept",
            Write::Start { .. } => "start",
            Write::Requeue { .. } => "requeue",
            Write::Cancel { .. } => "cancel",
            Write::Event { .. } => "event",
            Write::Text { .. } => "text",
            Write::Finish { .. } => "finish",
            Write::Callback { .. } => "callback",
            Write::Replay { .. } => "replay",
            Write::TestCallback { .. } => "test-callback",
            Write::Schedule(_) => "schedule",
            Write::Hold { .. } => "hold",
            Write::Open(_) => "open",
            Write::Close { .. } => "close",
            Write::Rename { .. } => "rename",
            Write::Title { .. } => "title",
            Write::Model { .. } => "model",
            Write::Native { .. } => "native",
            Write::Lost { .. } => "lost",
            Write::Release { .. } => "release",
        })
        .collect()
}
