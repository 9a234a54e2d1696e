//! Jobs that are waited for: each is told as it ends, and how far they are stands in a line that is
//! redrawn while somebody looks.
//!
//! Owns when a result is told, what is counted, and how often. Must not know how a result looks.

use std::io;
use std::time::Duration;

use agentd_protocol::JobId;
use agentd_protocol::request::Wait;
use agentd_protocol::work::{JobPhase, Jobs};
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::spinner::Spinner;
use agentd_client::asked::RequestError;
use agentd_client::client::Client;
use agentd_client::jobs::Collected;

/// A change is seen within this time.
const LOOK: Duration = Duration::from_secs(1);
/// What ends within this time of another is told with it, in the order asked.
const TOGETHER: Duration = Duration::from_millis(250);
/// A line that moves, without being a cost.
const STEP: Duration = Duration::from_millis(100);
/// Jobs that can be waited for at once, for the first of them.
const AT_ONCE: usize = 256;
/// Running ones that are looked for.
const ROWS: usize = 500;

/// Waits for what is pending in `found`, tells each result as it comes and moves it there; on a
/// terminal with a line about how far that is.
///
/// Whoever stops waiting finds in `found` what had not ended.
pub(super) async fn collect(
    client: &mut Client,
    found: &mut Collected,
    timeout: Option<Duration>,
    wait: Wait,
    mut tell: impl FnMut(&Value) -> io::Result<()>,
) -> io::Result<Result<(), RequestError>> {
    let mut spinner = Spinner::of_terminal();
    let begun = Instant::now();
    let all = found.pending.len();
    // What has ended already is there at once.
    let mut look = Some(Duration::ZERO);
    loop {
        let words = match &spinner {
            Some(_) if look != Some(Duration::ZERO) => {
                match running(client, &found.pending).await {
                    Ok(running) => Some(words(all, found, running)),
                    Err(error) => return Ok(Err(error)),
                }
            }
            _ => None,
        };
        let drawing = words.as_deref().zip(spinner.as_mut());
        let ended = tokio::select! {
            ended = ended(client, &found.pending, look, wait) => ended,
            never = redrawn(drawing, begun) => match never {},
        };
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return Ok(Err(error)),
        };
        found.pending = ended.pending;
        if let Some(spinner) = spinner.as_mut().filter(|_| !ended.results.is_empty()) {
            spinner.clear();
        }
        for result in ended.results {
            tell(&result)?;
            found.results.push(result);
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        let is_over = left.is_some_and(|left| left.is_zero());
        let is_enough = wait == Wait::Any && !found.results.is_empty();
        if found.pending.is_empty() || is_over || is_enough {
            return Ok(Ok(()));
        }
        look = match spinner.is_some() || found.pending.len() > AT_ONCE {
            true => Some(left.map_or(LOOK, |left| left.min(LOOK))),
            false => left,
        };
    }
}

/// The next that end of these, in the order asked; none when the time is over.
async fn ended(
    client: &mut Client,
    pending: &[JobId],
    look: Option<Duration>,
    wait: Wait,
) -> Result<Collected, RequestError> {
    if look == Some(Duration::ZERO) {
        return client.collect(pending, look, Wait::All).await;
    }
    let (first, behind) = pending.split_at(pending.len().min(AT_ONCE));
    let mut ended = client.collect(first, look, Wait::Any).await?;
    if ended.results.is_empty() {
        // Those behind have their turn.
        ended.pending = [behind, first].concat();
        return Ok(ended);
    }
    if wait == Wait::All && !ended.pending.is_empty() {
        let mut more = client
            .collect(&ended.pending, Some(TOGETHER), Wait::All)
            .await?;
        more.results.append(&mut ended.results);
        let place = |result: &Value| {
            let job = result.get("job").and_then(Value::as_str);
            first.iter().position(|at| job == Some(&at.to_string()))
        };
        more.results.sort_by_cached_key(place);
        ended = more;
    }
    ended.pending.extend(behind);
    Ok(ended)
}

/// Redraws the line until somebody has had enough.
async fn redrawn(
    drawing: Option<(&str, &mut Spinner)>,
    begun: Instant,
) -> std::convert::Infallible {
    let Some((words, spinner)) = drawing else {
        return std::future::pending().await;
    };
    let mut steps = interval(STEP);
    steps.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        steps.tick().await;
        spinner.draw(words, begun.elapsed());
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

fn words(all: usize, found: &Collected, running: usize) -> String {
    let ended = all.saturating_sub(found.pending.len());
    let has_failed = |result: &&Value| result.get("type").is_some_and(|kind| kind == "error");
    let failed = match found.results.iter().filter(has_failed).count() {
        0 => String::new(),
        failed => format!(" ({failed} failed)"),
    };
    format!("{ended} of {all} done{failed}, {running} running")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_what_is_done_and_runs() {
        let mut found = Collected {
            results: vec![serde_json::json!({"type": "message_end"})],
            pending: (1..=5).map(JobId).collect(),
        };
        assert_eq!(words(8, &found, 2), "3 of 8 done, 2 running");
        found.results.push(serde_json::json!({"type": "error"}));
        assert_eq!(words(8, &found, 2), "3 of 8 done (1 failed), 2 running");
    }
}
