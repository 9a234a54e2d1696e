//! `attach` and `retry`: turns that were sent before, shown again or sent again.
//!
//! Owns which job is meant, and what of a stored send is sent once more. Must not know how a turn
//! is run (`turn`).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::JobId;
use agentd_protocol::limits::{MAX_DISPATCH, MAX_LABELS};
use agentd_protocol::request::{Send, Wait, unix_ms};
use agentd_protocol::rows::{JobRow, TurnRow};
use agentd_protocol::work::{JobPhase, Jobs};

use super::args::{AttachArgs, RetryJobArgs};
use super::closed::{self, Kept};
use super::exit::Exit;
use super::first_use::{self, Notes};
use super::outcome::{self, Again};
use super::send::{self, JsonView, OwnTurn};
use super::terminal::Asker;
use super::turn::{self, Interrupted, TurnOutcome, View};
use super::turn_text::TurnText;
use super::{ask, last, output, value, whole};
use agentd_client::client::{Client, START_IT};
use agentd_client::fallback::Fallback;
use agentd_client::jobs::JobPages;
use agentd_client::key;
use agentd_client::wire::Received;

/// The label of a job that was sent again: the number of the one before it.
pub(super) const RETRY_OF: &str = "retry-of";

pub(super) async fn attach(args: AttachArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let shown = &args.shown;
    let asker = Asker::of_terminal().filter(|_| !shown.json && !shown.quiet);
    let attended = send::attended(asker.as_ref());
    let mut client = ask::past_attended(socket, args.past, attended).await?;
    let row = match args.which() {
        Some(which) => find(&mut client, which).await?,
        None => find_last(&mut client, shown.quiet).await?,
    };
    if shown.json {
        return show(client, &row, &mut JsonView, None).await;
    }
    let mut view = TurnText::new(None, send::shown(shown, socket, asker.as_ref()));
    show(client, &row, &mut view, asker).await
}

/// A turn in flight as it goes on, or the end of one that is over.
async fn show(
    mut client: Client,
    row: &JobRow,
    view: &mut impl View,
    asker: Option<Asker>,
) -> io::Result<Exit> {
    let job = row.job;
    let again = Again::Job(job);
    if matches!(
        row.state,
        JobPhase::Queued | JobPhase::Held | JobPhase::Running
    ) {
        if client.is_alone() {
            return Ok(ask::needs_daemon(&client, &format!("{job} has")));
        }
        let since = (job, running_for(row, value::now_ms()));
        let outcome = turn::follow(client, since, view, asker, &first_use::NEXT).await?;
        return Ok(outcome::conclude(&outcome, again));
    }
    let jobs = [job];
    let collected = client.collect(&jobs, Some(Duration::ZERO), Wait::All);
    let collected = collected.await.map_err(|error| ask::tell(&error))?;
    let Some(last) = collected.results.first() else {
        output::error(&format!("{job} has no result"), None);
        return Ok(Exit::Failed);
    };
    let mut last = Received::parse(last.to_string().as_bytes());
    if last.line.as_ref().is_some_and(|line| view.lacks_text(line)) {
        whole::complete(&mut client, &mut last).await;
    }
    client.close().await;
    if let Err(error) = view.line(&last) {
        return match error.kind() {
            io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(outcome::unwritten(&error, Some(job))),
        };
    }
    view.over();
    let outcome = TurnOutcome::Final(Box::new(last), Interrupted::No);
    Ok(outcome::conclude(&outcome, again))
}

/// How long it has run, or waits.
fn running_for(row: &JobRow, now: i64) -> Duration {
    let since = row.started_at.as_ref().unwrap_or(&row.accepted_at);
    let since = unix_ms(since).unwrap_or(now);
    // Clocks of two machines may differ.
    Duration::from_millis(u64::try_from(now.saturating_sub(since)).unwrap_or(0))
}

/// The job of this name, or that of a session: the turn that runs, else the last one.
async fn find(client: &mut Client, which: &str) -> Result<JobRow, Exit> {
    if let Ok(job) = which.parse() {
        return by_number(client, job).await;
    }
    for state in [Some(JobPhase::Running), None] {
        let of_session = Jobs {
            session: Some(which.to_owned()),
            state,
            limit: Some(1),
            ..Jobs::default()
        };
        let found = client.jobs(of_session).await;
        if let Some(row) = found.map_err(|error| ask::tell(&error))?.into_iter().next() {
            return Ok(row);
        }
    }
    output::error(
        &format!("there is no job of a session `{which}`"),
        Some("give a job, as `j41`, or a session: `agentctl jobs` lists both"),
    );
    Err(Exit::Usage)
}

/// That of the session which was used last here; says which it is.
async fn find_last(client: &mut Client, quiet: bool) -> Result<JobRow, Exit> {
    let hint = "name a job, as `j41`, or a session: `agentctl jobs` lists both";
    let last = last::session(client, None, None, hint).await?;
    let row = find(client, &last.session).await?;
    if !quiet {
        let session = output::safe(&row.session);
        output::note(&format!("this is {} of session {session}", row.job));
    }
    Ok(row)
}

async fn by_number(client: &mut Client, job: JobId) -> Result<JobRow, Exit> {
    // The newest one before the next.
    let upto = Jobs {
        before: Some(JobId(job.0.saturating_add(1))),
        limit: Some(1),
        ..Jobs::default()
    };
    let found = client.jobs(upto).await.map_err(|error| ask::tell(&error))?;
    let row = found.into_iter().find(|row| row.job == job);
    row.ok_or_else(|| {
        output::error(
            &format!("there is no job `{job}`"),
            Some("`agentctl jobs` lists those that are kept"),
        );
        Exit::Usage
    })
}

pub(super) async fn retry(args: RetryJobArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let [job] = args.jobs[..] else {
        return retry_several(args, socket).await;
    };
    let stored = stored(job, socket).await?;
    let mut send = sent_again(&stored, &args)?;
    send.idempotency_key = args.idempotency_key;
    let send = key::completed(&send)?.into_owned();
    if !args.shown.json && !args.shown.quiet {
        let session = output::safe(&stored.row.session);
        output::note(&match stored.session {
            Kept::Open => format!("{job} is sent again, in session {session}"),
            Kept::Closed => {
                format!("{job} is sent again; its session {session} was closed, and begins anew")
            }
        });
    }
    let turn = OwnTurn {
        socket,
        fallback: send::fallback(args.no_fallback),
        go_on: false,
        notes: Notes::of(args.shown.quiet),
        wait: None,
    };
    turn.shown(send, &args.shown).await
}

/// Several, or what failed of a label: handed in, in the order in which they were sent first.
async fn retry_several(args: RetryJobArgs, socket: Option<&Path>) -> io::Result<Exit> {
    if args.idempotency_key.is_some() {
        let hint = Some("name one job with it");
        output::error("`--idempotency-key` is the key of one job", hint);
        return Ok(Exit::Usage);
    }
    let mut client = ask::daemon(socket).await?;
    let jobs = match &args.label {
        Some(label) => {
            let found = failed(&mut client, label, args.cancelled).await?;
            if found.cancelled > 0 {
                let left = output::counted(found.cancelled, "cancelled job");
                output::note(&format!("{left} left out: `--cancelled` takes those, too"));
            }
            found.jobs
        }
        None => args.jobs.clone(),
    };
    let mut sends = Vec::new();
    for job in &jobs {
        sends.push(sent_again(&found(&mut client, *job).await?, &args)?);
    }
    if let (true, Some(label)) = (jobs.is_empty(), &args.label) {
        let label = output::safe(label);
        output::out_line(&format!(
            "nothing with the label `{label}` is to be sent again"
        ))?;
    }
    for part in sends.chunks(MAX_DISPATCH) {
        match client.dispatch(part).await {
            Ok(reply) if args.shown.json => output::out_json(&reply.line)?,
            Ok(reply) => {
                for row in &reply.value {
                    output::out_line(&row.job.to_string())?;
                }
            }
            Err(error) => return Ok(ask::tell(&error)),
        }
    }
    client.close().await;
    Ok(Exit::Done)
}

/// What is to be sent again of a label.
struct Unfinished {
    /// Oldest first.
    jobs: Vec<JobId>,
    /// So many more were cancelled.
    cancelled: u64,
}

/// What didn't end well of a label, but for what was sent again since.
async fn failed(
    client: &mut Client,
    label: &str,
    with_cancelled: bool,
) -> Result<Unfinished, Exit> {
    let mut found = Unfinished {
        jobs: Vec::new(),
        cancelled: 0,
    };
    for row in labelled(client, label).await? {
        match row.state {
            JobPhase::Cancelled if !with_cancelled => found.cancelled += 1,
            JobPhase::Failed | JobPhase::Interrupted | JobPhase::Cancelled => {
                found.jobs.push(row.job);
            }
            JobPhase::Queued | JobPhase::Held | JobPhase::Running | JobPhase::Completed => {}
        }
    }
    Ok(found)
}

/// The jobs with a label, oldest first, but for those that were sent again: what becomes of these, other
/// jobs of theirs say.
pub(super) async fn labelled(client: &mut Client, label: &str) -> Result<Vec<JobRow>, Exit> {
    let pages = JobPages::new(Jobs {
        label: Some(label.to_owned()),
        ..Jobs::default()
    });
    let pages = pages.rest(client).await;
    let mut rows: Vec<JobRow> = pages.map_err(|error| ask::tell(&error))?.concat();
    let labels = rows.iter().filter_map(|row| row.labels.get(RETRY_OF));
    let retried: BTreeSet<JobId> = labels.filter_map(|job| job.parse().ok()).collect();
    rows.retain(|row| !retried.contains(&row.job));
    rows.reverse();
    Ok(rows)
}

/// The new send, with what is asked for this time; says why there is none.
fn sent_again(stored: &StoredJob, args: &RetryJobArgs) -> Result<Send, Exit> {
    let send = again(&stored.turn, &stored.row, stored.session).map_err(|why| {
        let hint = "`agentctl history` shows what it said: send that with `agentctl send`";
        let error = format!("{} can't be sent again: {why}", stored.row.job);
        outcome::ends(Exit::Refused, &error, Some(hint))
    })?;
    Ok(Send {
        provider: args.provider.clone().or(send.provider),
        model: args.model.clone().or(send.model),
        ..send
    })
}

struct StoredJob {
    row: JobRow,
    turn: TurnRow,
    session: Kept,
}

async fn stored(job: JobId, socket: Option<&Path>) -> Result<StoredJob, Exit> {
    let mut client = ask::connected(socket, Fallback::Allowed, START_IT).await?;
    let found = found(&mut client, job).await;
    client.close().await;
    found
}

async fn found(client: &mut Client, job: JobId) -> Result<StoredJob, Exit> {
    let row = by_number(client, job).await?;
    let turns = client.session_history(&row.session, Some(job)).await;
    let turns = turns.map_err(|error| ask::tell(&error))?;
    let turn = turns.into_iter().next().ok_or_else(|| {
        output::error(
            &format!("{job} can't be sent again: what it asked is not told any more"),
            None,
        );
        Exit::Usage
    })?;
    let session = closed::session_of(client, &row).await;
    let session = session.map_err(|error| ask::tell(&error))?;
    Ok(StoredJob { row, turn, session })
}

/// The send that a stored one is once more, or why it can't be one.
fn again(turn: &TurnRow, row: &JobRow, session: Kept) -> Result<Send, String> {
    let Some(request) = &turn.request else {
        return Err("its prompt is too long to be told by the daemon, or that is older".to_owned());
    };
    if !turn.attachments.is_empty() {
        return Err("it had attachments, which are not sent again".to_owned());
    }
    let send: Send = serde_json::from_value(request.clone()).map_err(|why| why.to_string())?;
    let send = match session {
        // It keeps its agent, its directory and its tools.
        Kept::Open => Send {
            agent: None,
            cwd: None,
            cwd_if_new: None,
            toolsets: None,
            ..send
        },
        Kept::Closed => Send {
            agent: Some(row.agent.clone()),
            ..send
        },
    };
    let mut labels = send.labels;
    if labels.len() < MAX_LABELS || labels.contains_key(RETRY_OF) {
        labels.insert(RETRY_OF.to_owned(), row.job.to_string());
    }
    Ok(Send {
        session: Some(row.session.clone()),
        labels,
        // Of the first time.
        idempotency_key: None,
        parent: None,
        start_at: None,
        stream: Some(true),
        ..send
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn row() -> JobRow {
        let row = json!({"job": "j4", "session": "s4", "agent": "pi", "state": "failed",
            "attempt": 1, "preview": "", "accepted_at": "2026-11-21T19:00:00Z"});
        serde_json::from_value(row).unwrap()
    }

    fn turn(more: Value) -> TurnRow {
        let mut turn = json!({"job": "j4", "state": "failed", "accepted_at": "", "text": "hi",
            "messages": [], "final": null});
        let (members, more) = (turn.as_object_mut().unwrap(), more.as_object().unwrap());
        members.extend(more.clone());
        serde_json::from_value(turn).unwrap()
    }

    #[test]
    fn retry_is_the_stored_send_in_its_session() {
        let request = json!({"text": "hi", "agent": "pi", "cwd": "/tmp", "model": "m", "parent": "j1",
            "idempotency_key": "k", "start_at": "2026-11-21T19:00:00Z", "labels": {"a": "b"}});
        let send = again(&turn(json!({"request": request})), &row(), Kept::Open).unwrap();
        let expected = Send {
            text: "hi".to_owned(),
            session: Some("s4".to_owned()),
            model: Some("m".to_owned()),
            stream: Some(true),
            labels: [("a", "b"), ("retry-of", "j4")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..Send::default()
        };
        assert_eq!(send, expected);
        let turn = turn(json!({"request": request}));
        let anew = again(&turn, &row(), Kept::Closed).unwrap();
        let begins = Send {
            agent: Some("pi".to_owned()),
            cwd: Some("/tmp".to_owned()),
            ..expected
        };
        assert_eq!(anew, begins);
    }

    #[test]
    fn retry_without_all_of_a_send_is_refused() {
        assert!(again(&turn(json!({})), &row(), Kept::Open).is_err());
        let attached = json!({"request": {"text": "hi"}, "attachments": [{"mime": "text/plain"}]});
        assert!(again(&turn(attached), &row(), Kept::Open).is_err());
    }
}
