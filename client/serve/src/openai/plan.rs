//! What is sent for a request: one send, or another one where the first is refused for one reason, or
//! can't go on from where it was to.
//!
//! Owns that choice, and whether the request was made before. Must not know what a send says.

use std::time::Duration;

use agentd_faces::openai as face;
use agentd_faces::openai::failure::Failure;
use agentd_protocol::request::Send;
use agentd_protocol::rows::{JobPhase, JobRow};
use agentd_protocol::work::Jobs;
use agentd_protocol::{Code, JobId};
use tokio::time::timeout;

use super::asking::Asking;
use super::attempts::{Attempt, Held, Meant};
use super::turn::ANSWERS_WITHIN;
use super::{Refusal, at, jobs, now};
use crate::app::App;

/// What is to be sent.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) send: Send,
    /// Where the first can't be.
    pub(super) other: Option<Other>,
    /// That it is sent for, until the turn is taken.
    pub(super) attempt: Option<Attempt>,
    /// Until then nobody else goes on in its session.
    alone: Option<Held>,
}

/// What is sent instead.
#[derive(Debug)]
pub(super) struct Other {
    send: Send,
    /// Where the first is refused so.
    code: Code,
    /// Its key where the agent of the first has lost what was said before, if it is sent then, too.
    anew: Option<Option<String>>,
}

impl Other {
    /// Is it sent where the first is refused so?
    pub(super) fn is_for(&self, code: Code) -> bool {
        self.code == code
    }

    /// What is sent where the agent has lost what was said before.
    pub(super) fn anew(self) -> Option<Send> {
        let idempotency_key = self.anew?;
        Some(Send {
            idempotency_key,
            ..self.send
        })
    }
}

/// Where a request's lines come from.
#[derive(Debug)]
pub(super) enum Source {
    /// A turn that is sent now.
    Plan(Box<Plan>),
    /// The turn that was sent when this was asked first.
    Job(Box<JobRow>),
    /// One that has no end yet. Its agent may still say that it has lost what was said before, and then
    /// the plan is sent.
    Running(Box<JobRow>, Box<Plan>),
}

impl Plan {
    pub(super) const fn only(send: Send) -> Self {
        Self {
            send,
            other: None,
            attempt: None,
            alone: None,
        }
    }

    pub(super) const fn either(send: Send, code: Code, other: Send) -> Self {
        Self {
            send,
            other: Some(Other {
                send: other,
                code,
                anew: None,
            }),
            attempt: None,
            alone: None,
        }
    }

    /// The request's own key is that of the turn that is lost.
    fn under_another_key(mut self, asking: &Asking) -> Self {
        self.send.idempotency_key = asking.other_key(ANEW);
        self
    }

    /// While nobody else goes on in its session.
    pub(super) fn alone(mut self, held: Held) -> Self {
        self.alone = Some(held);
        self
    }

    /// With the other one sent under this key where the agent has lost what was said before.
    pub(super) fn or_anew(mut self, key: Option<String>) -> Self {
        if let Some(other) = &mut self.other {
            other.anew = Some(key);
        }
        self
    }

    /// Is the other one sent where the agent has lost what was said before?
    pub(super) fn is_told_anew(&self) -> bool {
        let other = self.other.as_ref();
        other.is_some_and(|other| other.anew.is_some())
    }

    /// The other send, if this refusal asks for it.
    pub(super) fn after(&mut self, refusal: &Refusal) -> Option<Send> {
        let other = self.other.take()?;
        // Refused without a job: its agent never has it.
        if refusal.failure.code == Code::ContextLost.name() {
            return other.anew();
        }
        (refusal.failure.code == other.code.name()).then_some(other.send)
    }
}

impl Source {
    /// Of a request: its job, if it was made before, else what is planned now.
    pub(super) async fn of(
        app: &App,
        asking: &Asking,
        attempt: Attempt,
        plan: impl Future<Output = Result<Plan, Refusal>>,
    ) -> Result<Self, Refusal> {
        let planned = async {
            match asked_before(app, asking, &attempt).await? {
                Some(row) if row.state == JobPhase::Cancelled => Err(cancelled(row.job).into()),
                // Its agent refused it without a look at it, and nobody was there to be told anew.
                Some(row) if row.code.as_deref() == Some(Code::ContextLost.name()) => {
                    Ok(Self::Plan(Box::new(plan.await?.under_another_key(asking))))
                }
                Some(row) if row.finished_at.is_none() => Ok(match plan.await {
                    Ok(plan) if !plan.send.history.is_empty() => {
                        let plan = plan.under_another_key(asking);
                        Self::Running(Box::new(row), Box::new(plan))
                    }
                    // There is nothing that could be lost, or it is itself what nobody else can follow.
                    Ok(_) | Err(_) => Self::Job(Box::new(row)),
                }),
                Some(row) => Ok(Self::Job(Box::new(row))),
                None => Ok(Self::Plan(Box::new(plan.await?))),
            }
        };
        let planned = timeout(ANSWERS_WITHIN, planned).await;
        match planned.unwrap_or_else(|_| Err(silent())) {
            Ok(Self::Plan(mut plan)) => {
                plan.attempt = Some(attempt);
                Ok(Self::Plan(plan))
            }
            Ok(Self::Running(row, mut plan)) => {
                plan.attempt = Some(attempt);
                Ok(Self::Running(row, plan))
            }
            Ok(Self::Job(row)) => {
                attempt.taken(row.job);
                Ok(Self::Job(row))
            }
            Err(refusal) => Err(attempt.refused(refusal)),
        }
    }
}

/// Nothing was sent yet.
fn silent() -> Refusal {
    let why = format!(
        "the daemon has not answered within {} s",
        ANSWERS_WITHIN.as_secs()
    );
    Failure::later(503, "no-daemon", why).into()
}

/// Which key what is told anew to another session has.
pub(super) const ANEW: &str = "anew";

/// Its client would take what was said until then for the whole answer.
pub(super) fn cancelled(job: JobId) -> Failure {
    let why = format!(
        "the turn of this request was cancelled, as when its stream is closed: job {job} has what it \
         said; with `--keep-turns` such turns go on"
    );
    Failure {
        job: Some(job),
        ..Failure::new(424, "cancelled", why)
    }
}

/// The job of the same request, if that was made before.
///
/// One that ended is looked at by its end, too: a clock that was set while it ran doesn't make it old.
async fn asked_before(
    app: &App,
    asking: &Asking,
    attempt: &Attempt,
) -> Result<Option<JobRow>, Refusal> {
    let before = match (attempt.meant(), asking.before) {
        (Meant::New, _) | (_, None) => return Ok(None),
        // Whatever clocks say meanwhile.
        (Meant::Job(job), _) => return jobs::one(app, job).await,
        (Meant::Unsure | Meant::Unknown, Some(before)) => before,
    };
    let filter = Jobs {
        label: Some(format!("{}={}", face::REQUEST, asking.request)),
        limit: Some(1),
        ..Jobs::default()
    };
    let row = jobs::newest(app, filter).await?.into_iter().next();
    let row = row.filter(|row| was_there(row, before, now()));
    // What another one took is not it: sent with its key again, it is found.
    let is_unsure = attempt.meant() == Meant::Unsure;
    Ok(row.filter(|row| !(is_unsure && attempt.is_of_another(row.job))))
}

/// Was it there no longer ago than this?
fn was_there(row: &JobRow, before: Duration, now: Duration) -> bool {
    match &row.finished_at {
        None => true,
        Some(finished) => at(finished).max(at(&row.accepted_at)) >= now.saturating_sub(before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_finds_a_job_over_clock_jumps() {
        let row = |accepted: &str, finished: Option<&str>| -> JobRow {
            serde_json::from_value(serde_json::json!({
                "job": "j1", "session": "s", "agent": "a", "state": "completed", "attempt": 1,
                "preview": "", "accepted_at": accepted, "finished_at": finished,
            }))
            .unwrap()
        };
        let (then, now) = ("2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z");
        let found = |accepted, finished| {
            was_there(&row(accepted, finished), Duration::from_secs(60), at(now))
        };
        assert!(!found(then, Some(then)));
        assert!(found(then, None), "it runs");
        assert!(found(then, Some(now)), "the clock was set while it ran");
        assert!(found(now, Some(then)), "the clock was set back");
        assert!(found("2026-01-05T00:00:00Z", Some("2026-01-05T00:00:01Z")));
    }
}
