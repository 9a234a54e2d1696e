//! What the writer needs to know of an order before it carries it out.
//!
//! Pure: which orders go together, which can wait, which touch what. Must not know SQL or time.

use std::collections::VecDeque;

use agentd_core::Event;
use agentd_core::store::{Query, Stored, Urgency, Write};
use agentd_protocol::{Code, JobId};

use super::Order;

/// Questions answered within one transaction: their answers are kept until its end.
const LOADS: usize = 8;
/// Orders in one transaction: more would make the first one wait for the last. So many take about as
/// long as a disk takes to flush.
pub(super) const BATCH: usize = 1024;
pub(super) fn is_lazy(order: &Order) -> bool {
    matches!(
        order,
        Order::Commit {
            urgency: Urgency::Lazy,
            ..
        }
    )
}

/// The answer to a commit that holds a new job, while nothing can be written.
pub(super) fn refusal(order: &Order, code: Code, why: &str) -> Option<Event> {
    let Order::Commit { token, writes, .. } = order else {
        return None;
    };
    let accepts = writes.iter().any(|write| matches!(write, Write::Accept(_)));
    accepts.then(|| Event::Stored {
        token: *token,
        stored: Stored::Failed {
            code,
            why: why.to_owned(),
        },
    })
}

/// Could this order change the answer to the question?
pub(super) fn changes(order: &Order, query: &Query) -> bool {
    let jobs: &[JobId] = match query {
        Query::Sessions { .. } => &[],
        Query::Jobs { jobs } => jobs,
        Query::Events { job, .. } => std::slice::from_ref(job),
        // A copy of what is in the file is right by itself.
        Query::Backup { .. } => return false,
        Query::Key { .. }
        | Query::JobList { .. }
        | Query::SessionList { .. }
        | Query::History { .. }
        | Query::Message { .. }
        | Query::Log { .. }
        | Query::Export { .. } => return !matches!(order, Order::Load { .. } | Order::Flush),
    };
    let Order::Commit { writes, .. } = order else {
        return matches!(order, Order::Takeover { .. });
    };
    writes.iter().any(|write| match write {
        Write::Start { job, .. }
        | Write::Requeue { job, .. }
        | Write::Cancel { job }
        | Write::Event { job, .. }
        | Write::Hold { job, .. }
        | Write::Text { job, .. } => jobs.contains(job),
        // Its session is not known here.
        Write::Finish { job, .. } => matches!(query, Query::Sessions { .. }) || jobs.contains(job),
        Write::Native { session, .. }
        | Write::Close { session }
        | Write::Model { session, .. }
        | Write::Release { session } => {
            matches!(query, Query::Sessions { names } if names.contains(session))
        }
        Write::Accept(_) | Write::Open(_) => true,
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
