//! What the daemon knows of jobs, sessions and agents, as this API asks for it.
//!
//! Owns looking it up. Must not know what is answered with it.

use std::sync::Arc;
use std::time::Duration;

use agentd_client::asked::RequestError;
use agentd_client::sessions::HistoryPages;
use agentd_client::wire::Nothing;
use agentd_faces::openai::failure::Failure;
use agentd_protocol::request::{Abort, Send, Wait};
use agentd_protocol::rows::{
    AgentRow, DispatchedRow, JobPhase, JobRow, QuestionRow, SessionPhase, SessionRow, TurnRow,
};
use agentd_protocol::work::{Answer, Jobs};
use agentd_protocol::{JobId, Line, RequestKind};
use tokio::time::{sleep, timeout};

use super::attempts::{Asker, Attempt};
use super::plan::{Plan, Source};
use super::turn::Taken;
use super::{Refusal, answer};
use crate::app::App;
use crate::daemon::Lease;

/// How long a job is waited for that was told to end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// A turn that nobody reads any more is ended when the daemon can be asked, at the latest after this: one
/// that hangs for longer is replaced by its watchdog.
const ENDED_WITHIN: Duration = Duration::from_secs(600);
const ASKED_EVERY: Duration = Duration::from_secs(1);
/// Of that, what the end of this server leaves: it waits 5 s for what is under way.
const LEFT_WITHIN: Duration = Duration::from_secs(4);
/// Turns without an answer behind which the last answered one is looked for.
const MOST_UNANSWERED: usize = 64;

/// An answer, once its conversation is given back if it can be used again.
fn given_back<T>(client: Lease<'_>, answer: Result<T, RequestError>) -> Result<T, Refusal> {
    if matches!(answer, Ok(_) | Err(RequestError::Refused(_))) {
        client.done();
    }
    answer.map_err(Refusal::from)
}

/// The newest jobs that fit.
pub(super) async fn newest(app: &App, filter: Jobs) -> Result<Vec<JobRow>, Refusal> {
    let mut client = app.daemon.lease().await?;
    let rows = client.jobs(filter).await;
    given_back(client, rows)
}

/// One job, if it is there.
pub(super) async fn one(app: &App, job: JobId) -> Result<Option<JobRow>, Refusal> {
    let mut client = app.daemon.lease().await?;
    let row = client.job(job).await;
    given_back(client, row)
}

/// The last one of a session.
pub(super) async fn last(app: &App, session: &str) -> Result<Option<JobRow>, Refusal> {
    let filter = Jobs {
        session: Some(session.to_owned()),
        limit: Some(1),
        ..Jobs::default()
    };
    Ok(newest(app, filter).await?.pop())
}

/// Is it the last one of its session?
pub(super) async fn is_last(app: &App, row: &JobRow) -> Result<bool, Refusal> {
    let last = last(app, &row.session).await?;
    Ok(last.is_some_and(|last| last.job == row.job))
}

/// A session that can be gone on in, if it is there.
pub(super) async fn session(app: &App, name: &str) -> Result<Option<SessionRow>, Refusal> {
    let mut client = app.daemon.lease().await?;
    let row = client.session_named(name).await;
    let row = given_back(client, row)?;
    Ok(row.filter(|row| row.state != SessionPhase::Closed))
}

/// Is it the last one of its session that was answered? Those behind it failed, or were stopped.
pub(super) async fn is_last_answered(app: &App, row: &JobRow) -> Result<bool, Refusal> {
    let filter = Jobs {
        session: Some(row.session.clone()),
        limit: Some(MOST_UNANSWERED),
        ..Jobs::default()
    };
    for later in newest(app, filter).await? {
        if later.job == row.job {
            return Ok(true);
        }
        match later.state {
            JobPhase::Failed | JobPhase::Cancelled | JobPhase::Interrupted => {}
            JobPhase::Queued | JobPhase::Held | JobPhase::Running | JobPhase::Completed => break,
        }
    }
    Ok(false)
}

/// What was said in a turn.
pub(super) async fn history(app: &App, row: &JobRow) -> Result<Option<TurnRow>, Refusal> {
    let mut pages = HistoryPages::of(&row.session, Some(row.job)).with_events();
    let mut client = app.daemon.lease().await?;
    let page = pages.next(&mut client).await;
    let page = given_back(client, page)?;
    let turns = page.map(|page| page.value).unwrap_or_default();
    Ok(turns.into_iter().find(|turn| turn.job == row.job))
}

/// The last line of a job, if it comes in time.
pub(super) async fn last_line(
    app: &App,
    job: JobId,
    within: Duration,
) -> Result<Option<Line>, Refusal> {
    let mut client = app.daemon.lease().await?;
    let collected = client.collect(&[job], Some(within), Wait::All).await;
    let mut collected = given_back(client, collected)?;
    let last = collected.results.pop();
    Ok(last.and_then(|last| serde_json::from_value(last).ok()))
}

/// Ends a job, and waits a moment for its end.
pub(super) async fn abort(app: &App, job: JobId) -> Result<(), Refusal> {
    cancel(app, job).await?;
    last_line(app, job, ENDS_WITHIN).await.map(drop)
}

/// Ends what nobody reads any more, also when its daemon can't be asked for a while.
pub(super) async fn cancel_left(app: &App, abort: Abort) {
    let mut stops = app.stopping.clone();
    // Whoever is sent away by this server's end has not left.
    let ends = *stops.borrow();
    if ends {
        return;
    }
    let asked = async {
        while !is_told(app, &abort).await {
            sleep(ASKED_EVERY).await;
        }
    };
    let ended = async {
        drop(stops.wait_for(|stops| *stops).await);
        sleep(LEFT_WITHIN).await;
    };
    tokio::select! {
        _told = timeout(ENDED_WITHIN, asked) => {}
        () = ended => {}
    }
}

/// Has the daemon an `abort`?
async fn is_told(app: &App, abort: &Abort) -> bool {
    let Ok(mut client) = app.daemon.lease().await else {
        return false;
    };
    let answer = client.answer(RequestKind::Abort, abort).await;
    let is_told = matches!(answer, Ok(_) | Err(RequestError::Refused(_)));
    if is_told {
        client.done();
    }
    is_told
}

/// Ends a job.
pub(super) async fn cancel(app: &App, job: JobId) -> Result<(), Refusal> {
    let mut client = app.daemon.lease().await?;
    let answer = client.answer(RequestKind::Abort, &abort_of(job)).await;
    given_back(client, answer).map(drop)
}

pub(super) fn abort_of(job: JobId) -> Abort {
    Abort {
        job: Some(job),
        ..Abort::default()
    }
}

/// Which store the daemon has.
pub(super) async fn epoch(app: &App) -> Result<String, Refusal> {
    let client = app.daemon.lease().await?;
    let epoch = client.hello.epoch.clone();
    client.done();
    Ok(epoch)
}

/// A turn that was handed in, as far as it is known.
pub(super) struct HandedIn {
    pub(super) taken: Taken,
    pub(super) phase: JobPhase,
}

impl HandedIn {
    fn of(row: &JobRow) -> Self {
        Self {
            taken: Taken::of(row),
            phase: row.state,
        }
    }
}

/// Hands a turn in, if it wasn't before. It is handed in whether or not anybody waits for that still:
/// who has left asks again, and finds it.
pub(super) async fn handed_in(
    app: &Arc<App>,
    source: impl Future<Output = Result<Source, Refusal>> + std::marker::Send + 'static,
    asker: &Asker,
) -> Result<HandedIn, Refusal> {
    let (tasks, of) = (app.openai.tasks.clone(), Arc::clone(app));
    let handing = tasks.spawn(async move {
        let mut plan = match source.await? {
            Source::Job(row) => return Ok(HandedIn::of(&row)),
            Source::Running(row, plan) => {
                if let Some(attempt) = plan.attempt {
                    attempt.taken(row.job);
                }
                return Ok(HandedIn::of(&row));
            }
            Source::Plan(plan) => plan,
        };
        let (attempt, agent) = (plan.attempt.take(), plan.send.agent.clone());
        let accepted = accepted(&of, *plan).await;
        let accepted = Attempt::settled(attempt, accepted, |row| row.job)?;
        let DispatchedRow { job, session, .. } = accepted;
        // It was accepted: told that it can't be read now, its client would ask for another one.
        Ok::<_, Refusal>(match one(&of, job).await {
            Ok(Some(row)) => HandedIn::of(&row),
            Ok(None) | Err(_) => HandedIn {
                taken: Taken {
                    job,
                    session,
                    agent: agent.unwrap_or_default(),
                },
                phase: JobPhase::Queued,
            },
        })
    });
    let handed_in = handing.await;
    asker.answered();
    let handed_in = handed_in.unwrap_or_else(|_| Err(answer::lost().into()))?;
    // More isn't told of it.
    app.openai.attempts.told(handed_in.taken.job);
    Ok(handed_in)
}

async fn accepted(app: &App, mut plan: Plan) -> Result<DispatchedRow, Refusal> {
    let mut send = std::mem::take(&mut plan.send);
    // Nobody is there who would hear of it and send the other one.
    send.require_context &= !plan.is_told_anew();
    match dispatched(app, send).await {
        Ok(row) => Ok(row),
        Err(refusal) => match plan.after(&refusal) {
            Some(send) => dispatched(app, send).await,
            None => Err(refusal),
        },
    }
}

async fn dispatched(app: &App, send: Send) -> Result<DispatchedRow, Refusal> {
    let mut client = app.daemon.lease().await?;
    let answer = client.dispatch(&[send]).await;
    let mut rows = given_back(client, answer)?.value;
    rows.pop().ok_or_else(|| {
        let why = "the daemon accepted the turn, and gave no job";
        Failure::new(424, "strange-answer", why).into()
    })
}

/// What a job asks, the oldest first.
pub(super) async fn questions(app: &App, row: &JobRow) -> Result<Vec<QuestionRow>, Refusal> {
    let mut client = app.daemon.lease().await?;
    let answer = client.questions(Some(&row.session)).await;
    let questions = given_back(client, answer)?.value;
    let own = questions
        .into_iter()
        .filter(|question| question.job == row.job);
    Ok(own.collect())
}

/// Answers a question.
pub(super) async fn answer(app: &App, answer: &Answer) -> Result<(), Refusal> {
    let mut client = app.daemon.lease().await?;
    let answered = client.answer_question(answer).await;
    given_back(client, answered).map(drop)
}

/// All agents.
pub(super) async fn agents(app: &App) -> Result<Vec<AgentRow>, Refusal> {
    let mut client = app.daemon.lease().await?;
    let answer = client.answer(RequestKind::Agents, &Nothing {}).await;
    match given_back(client, answer)?.line {
        Some(Line::Agents { agents, .. }) => Ok(agents),
        _ => Ok(Vec::new()),
    }
}
