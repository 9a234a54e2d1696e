//! The lines of a turn, from its acceptance to its end.
//!
//! Owns where they come from: a send of this request, or a job that is there already. A daemon that
//! goes away is followed by the next. Must not know what is made of them.

use std::collections::VecDeque;
use std::time::Duration;

use agentd_client::events::Events;
use agentd_client::turn::TurnStream;
use agentd_faces::openai::failure::Failure;
use agentd_protocol::request::{Send, Subscribe};
use agentd_protocol::rows::JobRow;
use agentd_protocol::{Code, JobId, Line};
use tokio::time::timeout;

use super::attempts::Attempt;
use super::plan::{Other, Plan, Source};
use super::{Refusal, models};
use crate::app::App;

/// A daemon that hangs longer is not waited for.
pub(super) const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// What took the turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Taken {
    pub(super) job: JobId,
    pub(super) session: String,
    pub(super) agent: String,
}

impl Taken {
    /// Of a job that is there.
    pub(super) fn of(row: &JobRow) -> Self {
        Self {
            job: row.job,
            session: row.session.clone(),
            agent: row.agent.clone(),
        }
    }
}

/// Lines to come.
pub(super) struct Lines<'a> {
    from: Origin<'a>,
    /// What was read already.
    ahead: VecDeque<Result<Line, Refusal>>,
    /// What is sent where the agent has lost what was said before.
    anew: Option<Box<Send>>,
    /// That it is sent for: until then a retry would find the turn that is lost.
    attempt: Option<Attempt>,
    /// Had its key a job before?
    is_replayed: bool,
}

enum Origin<'a> {
    Sent(Box<TurnStream<'a>>),
    Found(Box<Events>),
    Over,
}

impl<'a> Lines<'a> {
    fn of(from: Origin<'a>) -> Self {
        Self {
            from,
            ahead: VecDeque::new(),
            anew: None,
            attempt: None,
            is_replayed: false,
        }
    }

    /// Was the turn there before this request?
    pub(super) const fn is_found(&self) -> bool {
        self.is_replayed || matches!(self.from, Origin::Found(_))
    }

    /// Waits, so long at most, until the turn's first word says that its agent has what was said
    /// before. Where that is lost another turn is sent, which is told all of it, and taken instead.
    pub(super) async fn settle(
        &mut self,
        app: &'a App,
        taken: &mut Taken,
        within: Duration,
    ) -> Result<(), Refusal> {
        let Some(send) = self.anew.take() else {
            return Ok(());
        };
        let attempt = self.attempt.take();
        let read = timeout(within, ahead(self)).await;
        let settled = match read {
            Ok(Err(refusal)) if refusal.failure.code == Code::ContextLost.name() => {
                sent(app, *send).await.map(|(other, lines)| {
                    *self = lines;
                    *taken = other;
                })
            }
            // Told like one that comes later.
            Ok(Err(refusal)) => {
                self.ahead.push_back(Err(refusal));
                Ok(())
            }
            Ok(Ok(())) | Err(_) => Ok(()),
        };
        Attempt::settled(attempt, settled, |()| taken.job)
    }

    /// Its retries find this turn.
    fn is_taken(&mut self, job: JobId) {
        if let Some(attempt) = self.attempt.take() {
            attempt.taken(job);
        }
    }

    /// The next line; `message_end` is the last. Dropped before it is there, the turn goes on.
    pub(super) async fn next(&mut self) -> Result<Option<Line>, Refusal> {
        match self.ahead.pop_front() {
            Some(read) => read.map(Some),
            None => self.read().await,
        }
    }

    async fn read(&mut self) -> Result<Option<Line>, Refusal> {
        match &mut self.from {
            Origin::Sent(turn) => Ok(turn.next().await?),
            Origin::Found(events) => loop {
                let received = events.next_over_restarts().await?;
                match received.line {
                    None | Some(Line::Live { .. } | Line::Accepted(_)) => {}
                    Some(Line::Error(error)) => {
                        self.from = Origin::Over;
                        return Err(Failure::ended(&error).into());
                    }
                    Some(line) => {
                        if line.ends_job() {
                            self.from = Origin::Over;
                        }
                        return Ok(Some(line));
                    }
                }
            },
            Origin::Over => Ok(None),
        }
    }
}

/// Begins to read a request's turn, which is sent if it wasn't before.
pub(super) async fn begin<'a>(
    app: &'a App,
    source: impl Future<Output = Result<Source, Refusal>>,
) -> Result<(Taken, Lines<'a>), Refusal> {
    match source.await? {
        Source::Job(row) => {
            let found = found(app, &row).await;
            found.map_err(|refusal| refusal.after_job(row.job))
        }
        Source::Running(row, plan) => {
            let found = found(app, &row).await;
            let (taken, mut lines) = found.map_err(|refusal| refusal.after_job(row.job))?;
            (lines.anew, lines.attempt) = (Some(Box::new(plan.send)), plan.attempt);
            Ok((taken, lines))
        }
        Source::Plan(mut plan) => {
            let attempt = plan.attempt.take();
            match planned(app, *plan).await {
                Ok((taken, mut lines)) => {
                    lines.attempt = attempt;
                    if lines.anew.is_none() {
                        lines.is_taken(taken.job);
                    }
                    Ok((taken, lines))
                }
                Err(refusal) => {
                    let refusal = match attempt {
                        Some(attempt) => attempt.refused(refusal),
                        None => refusal,
                    };
                    Err(models::explained(app, refusal).await)
                }
            }
        }
    }
}

async fn planned(app: &App, mut plan: Plan) -> Result<(Taken, Lines<'_>), Refusal> {
    let send = std::mem::take(&mut plan.send);
    // What its program says itself an agent refuses only when it runs: before its first word.
    let other = plan.other.as_ref();
    let waits = other.is_some_and(|other| other.is_for(Code::Unsupported));
    let refusal = match sent(app, send).await {
        Ok((taken, mut lines)) if waits => match ahead(&mut lines).await {
            Ok(()) => return Ok((taken, lines)),
            Err(refusal) => refusal,
        },
        Ok((taken, mut lines)) => {
            lines.anew = plan.other.take().and_then(Other::anew).map(Box::new);
            return Ok((taken, lines));
        }
        Err(refusal) => refusal,
    };
    match plan.after(&refusal) {
        Some(send) => sent(app, send).await,
        None => Err(refusal),
    }
}

/// Reads up to a turn's first word. What is read is kept, however long this is waited for.
async fn ahead(lines: &mut Lines<'_>) -> Result<(), Refusal> {
    loop {
        let Some(line) = lines.read().await? else {
            return Ok(());
        };
        let begins = matches!(line, Line::Running { .. } | Line::Note { .. });
        lines.ahead.push_back(Ok(line));
        if !begins {
            return Ok(());
        }
    }
}

async fn sent(app: &App, send: Send) -> Result<(Taken, Lines<'_>), Refusal> {
    let Ok(sent) = timeout(ANSWERS_WITHIN, accepted(app, send)).await else {
        let why = format!(
            "the daemon has not said within {} s whether it took the turn, and may yet",
            ANSWERS_WITHIN.as_secs()
        );
        return Err(Failure::new(424, Code::OutcomeUnknown.name(), why).into());
    };
    sent
}

async fn accepted(app: &App, send: Send) -> Result<(Taken, Lines<'_>), Refusal> {
    let turn = app.daemon.agentd.turn("").set(|blank| *blank = send);
    let mut turn = turn.stream().await?;
    loop {
        match turn.next().await? {
            Some(Line::Accepted(accepted)) => {
                let taken = Taken {
                    job: accepted.job,
                    session: accepted.session,
                    agent: accepted.agent,
                };
                let mut lines = Lines::of(Origin::Sent(Box::new(turn)));
                lines.is_replayed = accepted.replayed;
                return Ok((taken, lines));
            }
            // `accepted` comes first.
            Some(_) => {}
            None => {
                let why = "the daemon neither accepted nor refused the turn";
                return Err(Failure::new(424, "strange-answer", why).into());
            }
        }
    }
}

async fn found<'a>(app: &'a App, row: &JobRow) -> Result<(Taken, Lines<'a>), Refusal> {
    let subscribe = Subscribe {
        session: None,
        jobs: Some(vec![row.job]),
        after: Some(0),
        epoch: None,
        sessions: false,
    };
    let client = app.daemon.connect().await?;
    let events = client.subscribe(&subscribe).await?;
    let taken = Taken::of(row);
    Ok((taken, Lines::of(Origin::Found(Box::new(events)))))
}
