//! What the writer needs to know of an order before it carries it out.
//!
//! Pure: which orders go together, which can wait, which touch what. Must not know SQL or time.

use std::collections::VecDeque;

use agentd_core::Event;
use agentd_core::store::{Query, Stored, Urgency, Write};
use agentd_protocol::Code;

use super::Order;

/// Questions answered within one transaction: their answers are kept until its end.
const LOADS: usize = 8;
/// Orders in one transaction: more would make the first one wait for the last. So many take about as
/// long as a disk takes to flush.
pub(super) const BATCH: usize = 1024;
/// So much text that nobody waits for is written before more is taken: it is in memory twice.
pub(super) const HEAVY: usize = 1024 * 1024;

/// Bytes of text and of attachments that an order holds.
pub(super) fn weight(order: &Order) -> usize {
    let Order::Commit { writes, .. } = order else {
        return 0;
    };
    let text = writes.iter().map(|write| match write {
        Write::Text { text, .. } => text.len(),
        Write::Accept(new) => new.contents.iter().map(|one| one.bytes().len()).sum(),
        _ => 0,
    });
    text.sum()
}

pub(super) fn is_lazy(order: &Order) -> bool {
    matches!(
        order,
        Order::Commit {
            urgency: Urgency::Lazy,
            ..
        }
    )
}

/// Does it do nothing but give sessions back?
pub(super) fn only_releases(order: &Order) -> bool {
    let releases = |write: &Write| matches!(write, Write::Release { .. });
    matches!(order, Order::Commit { writes, .. } if writes.iter().all(releases))
}

/// Does it make a job?
pub(super) fn is_accept(order: &Order) -> bool {
    let accepts = |write: &Write| matches!(write, Write::Accept(_));
    matches!(order, Order::Commit { writes, .. } if writes.iter().any(accepts))
}

/// Is there something to deliver afterwards?
pub(super) fn delivers(order: &Order) -> bool {
    let delivers = |write: &Write| {
        matches!(
            write,
            Write::Callback { .. } | Write::Replay { .. } | Write::TestCallback { .. }
        )
    };
    matches!(order, Order::Commit { writes, .. } if writes.iter().any(delivers))
}

/// Did somebody ask for it, although it writes no row by whose number it could be found again?
pub(super) fn is_unnumbered_request(order: &Order) -> bool {
    let unnumbered = |write: &Write| {
        matches!(
            write,
            Write::Open(_)
                | Write::Close { .. }
                | Write::Model { .. }
                | Write::Hold { held: false, .. }
                | Write::Replay { .. }
                | Write::TestCallback { .. }
        )
    };
    matches!(order, Order::Commit { writes, .. } if writes.iter().any(unnumbered))
}

/// The answer to a commit that somebody asked for, while nothing can be written. What became of
/// work that is under way is kept instead.
pub(super) fn refusal(order: &Order, code: Code, why: &str) -> Option<Event> {
    let Order::Commit { token, writes, .. } = order else {
        return None;
    };
    let asked_for = writes.iter().any(|write| {
        matches!(
            write,
            Write::Accept(_)
                | Write::Open(_)
                | Write::Close { .. }
                | Write::Model { .. }
                | Write::Hold { held: false, .. }
                | Write::Replay { .. }
                | Write::TestCallback { .. }
        )
    });
    asked_for.then(|| Event::Stored {
        token: *token,
        stored: Stored::Failed {
            code,
            why: why.to_owned(),
        },
    })
}

/// Could this order change the answer to the question?
pub(super) fn changes(order: &Order, query: &Query) -> bool {
    let names = match query {
        Query::Sessions { names } => names,
        Query::Key { key, .. } => return takes_key(order, key),
        // A copy is of what is in the file, and everything else is read beside the writer.
        _ => return false,
    };
    let Order::Commit { writes, .. } = order else {
        return matches!(order, Order::Takeover { .. });
    };
    writes.iter().any(|write| match write {
        Write::Accept(_) | Write::Open(_) => true,
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
        | Write::TestCallback { .. } => false,
    })
}

/// Is a refusal a fair answer to this question? That of sessions is a step of work that must not
/// end.
pub(super) const fn can_do_without(query: &Query) -> bool {
    !matches!(query, Query::Sessions { .. })
}

/// Could this order make a job with this key?
fn takes_key(order: &Order, key: &str) -> bool {
    let Order::Commit { writes, .. } = order else {
        return false;
    };
    writes.iter().any(|write| match write {
        Write::Accept(new) => new.key.as_deref() == Some(key),
        _ => false,
    })
}

/// How many orders go into the next transaction.
pub(super) fn batch_len(queue: &VecDeque<Order>) -> usize {
    let mut loads = 0;
    queue
        .iter()
        .take(BATCH)
        .take_while(|order| {
            loads += usize::from(matches!(order, Order::Load { .. }));
            loads <= LOADS
        })
        .count()
}

/// What the first orders write, by name.
#[cfg(debug_assertions)]
pub(super) fn kinds(
    queue: &VecDeque<Order>,
    orders: usize,
) -> std::collections::BTreeSet<&'static str> {
    let written = queue.iter().take(orders).flat_map(|order| match order {
        Order::Commit { writes, .. } => writes.as_slice(),
        Order::Load { .. } | Order::Takeover { .. } | Order::Flush => &[],
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
            Write::Hold { .. } => "hold",
            Write::Open(_) => "open",
            Write::Close { .. } => "close",
            Write::Model { .. } => "model",
            Write::Native { .. } => "native",
            Write::Lost { .. } => "lost",
            Write::Release { .. } => "release",
        })
        .collect()
}
