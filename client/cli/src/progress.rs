//! How far jobs are, in a line that is redrawn while somebody waits for them.
//!
//! Owns what is counted, and how often. Must not know how a result looks.

use std::time::Duration;

use agentd_protocol::JobId;
use agentd_protocol::request::Wait;
use agentd_protocol::work::{JobPhase, Jobs};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::spinner::Spinner;
use agentd_client::asked::RequestError;
use agentd_client::client::Client;
use agentd_client::jobs::Collected;

/// A change is seen within this time.
const LOOK: Duration = Duration::from_secs(1);
/// A line that moves, without being a cost.
const STEP: Duration = Duration::from_millis(100);
/// Jobs that can be waited for at once, for the first of them.
const AT_ONCE: usize = 256;
/// Running ones that are looked for.
const ROWS: usize = 500;

/// The same as [`Client::collect`], with a line on standard error about how far that is.
pub(super) async fn collect(
    client: &mut Client,
    jobs: &[JobId],
    timeout: Option<Duration>,
    wait: Wait,
) -> Result<Collected, RequestError> {
    let mut spinner = Spinner::of_terminal();
    let begun = Instant::now();
    let left = |timeout: Duration| timeout.saturating_sub(begun.elapsed());
    let mut pending: Vec<JobId> = jobs.to_vec();
    pending.sort_unstable();
    pending.dedup();
    let all = pending.len();
    loop {
        let left = timeout.map(left);
        let is_over = left.is_some_and(|left| left.is_zero());
        let is_enough = wait == Wait::Any && pending.len() < all;
        if pending.is_empty() || is_over || is_enough {
            // All of them once more, in the order asked: what has ended is there at once.
            drop(spinner);
            return client.collect(jobs, Some(Duration::ZERO), wait).await;
        }
        let words = words(all, pending.len(), running(client, &pending).await?);
        let behind = pending.split_off(pending.len().min(AT_ONCE));
        let look = left.map_or(LOOK, |left| left.min(LOOK));
        let collected = {
            let collecting = client.collect(&pending, Some(look), Wait::Any);
            tokio::pin!(collecting);
            let mut steps = interval(STEP);
            steps.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                tokio::select! {
                    collected = &mut collecting => break collected?,
                    _ = steps.tick() => if let Some(spinner) = &mut spinner {
                        spinner.draw(&words, begun.elapsed());
                    },
                }
            }
        };
        pending = collected.pending;
        pending.extend(behind);
    }
}

async fn running(client: &mut Client, jobs: &[JobId]) -> Result<usize, RequestError> {
    let running = Jobs {
        state: Some(JobPhase::Running),
        limit: Some(ROWS),
        ..Jobs::default()
    };
    let rows = client.jobs(running).await?;
    Ok(rows.iter().filter(|row| jobs.contains(&row.job)).count())
}

fn words(all: usize, pending: usize, running: usize) -> String {
    let done = all.saturating_sub(pending);
    format!("{done} of {all} done, {running} running")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_what_is_done_and_runs() {
        assert_eq!(words(8, 5, 2), "3 of 8 done, 2 running");
    }
}
