//! The commands that ask the daemon one thing and print its answer.
//!
//! Owns the exit code of an answer. Must not know how an answer looks (`render`). None
//! falls back: only a daemon can answer them.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::request::{Abort, Drain, RestartWorker, Wait};
use agentd_protocol::work::{JobPhase, Jobs};
use agentd_protocol::{Code, Line, RequestKind};

use super::args::{AbortArgs, DeadlineArgs, RestartWorkersArgs};
use super::exit::Exit;
use super::value::JobOrSession;
use super::{ask, output, render, typed};
use agentd_client::asked::RequestError;
use agentd_client::client::Client;
use agentd_client::fallback::Fallback;
use agentd_client::wire::Nothing;

/// Whoever waits for longer wants to know why.
const QUIET_FOR: Duration = Duration::from_secs(1);
/// Turns that are named: more would hide what they ask.
const NAMED: usize = 5;

pub(super) async fn abort(args: AbortArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let (job, session) = match args.what {
        Some(JobOrSession::Job(job)) => (Some(job), None),
        Some(JobOrSession::Session(name)) => (None, Some(name)),
        None => (None, args.session),
    };
    if args.queued && session.is_none() {
        output::error(
            "`--queued` is about a session, and none is named",
            Some("`agentctl abort SESSION --queued`"),
        );
        return Ok(Exit::Usage);
    }
    let fields = Abort {
        job,
        session,
        queued: args.queued,
    };
    let job = fields.job;
    let asked = ask::ask(socket, RequestKind::Abort, &fields, Fallback::Forbidden);
    let (mut client, received) = asked.await?;
    if let (Some(name), Some(Line::Abort { jobs, .. })) = (&fields.session, &received.line)
        && jobs.is_empty()
        && !is_known(&mut client, name).await
    {
        output::error(
            &format!("there is no session `{name}`"),
            Some("`agentctl sessions` lists them"),
        );
        return Ok(Exit::Usage);
    }
    if let (Some(job), Some(Line::Abort { jobs, .. })) = (job, &received.line)
        && jobs.is_empty()
        // It has ended, or never was: that is told apart.
        && let Err(error) = client.collect(&[job], Some(Duration::ZERO), Wait::All).await
    {
        return Ok(ask::tell(&error));
    }
    match &received.line {
        Some(Line::Abort { .. }) if args.json => output::out_json(&received.text)?,
        Some(Line::Abort { jobs, .. }) if jobs.is_empty() => {
            let nothing = "nothing was running".to_owned();
            let told = job.map_or(nothing, |job| format!("{job} had ended already"));
            output::out_line(&told)?;
        }
        Some(Line::Abort { jobs, .. }) => {
            let names: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            output::out_line(&format!("aborted {}", names.join(", ")))?;
        }
        _ => return Ok(ask::unexpected(&received)),
    }
    Ok(Exit::Done)
}

/// Is there such a session, or was there? When that can't be found out, it is taken for granted.
async fn is_known(client: &mut Client, session: &str) -> bool {
    let filter = Jobs {
        session: Some(session.to_owned()),
        limit: Some(1),
        ..Jobs::default()
    };
    match client.jobs(filter).await {
        Ok(rows) if rows.is_empty() => {}
        // A name that no session can have.
        Err(RequestError::Refused(line)) if line.code == Code::InvalidRequest => return false,
        Ok(_) | Err(_) => return true,
    }
    let known = client.session_named(session).await;
    known.map_or(true, |row| row.is_some())
}

pub(super) async fn restart(args: RestartWorkersArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = RestartWorker {
        agent: args.agent,
        session: args.session,
        now: args.now,
    };
    let down = "there is nothing to restart: without a daemon each turn starts its agent anew";
    let asking = ask::change_or(down, socket, RequestKind::RestartWorker, &fields);
    tokio::pin!(asking);
    let mut told = BTreeSet::new();
    let asked = loop {
        tokio::select! {
            asked = &mut asking => break asked,
            () = tokio::time::sleep(QUIET_FOR) => {}
        }
        if !fields.now {
            tokio::select! {
                asked = &mut asking => break asked,
                () = tell_what_keeps_it(socket, &fields, &mut told) => {}
            }
        }
    };
    ask::done(asked, "restarted")
}

/// Which turns a restart waits for, and how to shorten that: each of them once.
async fn tell_what_keeps_it(
    socket: Option<&Path>,
    restart: &RestartWorker,
    told: &mut BTreeSet<String>,
) {
    let running = Jobs {
        agent: restart.agent.clone(),
        session: restart.session.clone(),
        state: Some(JobPhase::Running),
        limit: Some(NAMED),
        ..Jobs::default()
    };
    // Who can't be asked now is asked again.
    let Ok(mut client) = ask::connect(socket).await else {
        return;
    };
    let questions = client.questions(restart.session.as_deref()).await;
    let questions = questions.map(|reply| reply.value).unwrap_or_default();
    let there = typed::which_daemon();
    for row in client.jobs(running).await.unwrap_or_default() {
        let job = row.job;
        let question = questions.iter().find(|question| question.job == job);
        let (name, why) = match question {
            Some(question) => {
                let id = &question.question_id;
                let title = render::preview(&question.title);
                (
                    id.clone(),
                    format!("{job}, which asks: {title}; `agentctl{there} answer {id}` answers it"),
                )
            }
            None => (
                job.to_string(),
                format!("{job}, which runs; `agentctl{there} attach {job}` shows it"),
            ),
        };
        let is_first = told.is_empty();
        if told.insert(name) {
            let now = match is_first {
                true => "; with `--now` it waits for no turn",
                false => "",
            };
            output::note(&format!("the restart waits for {why}{now}"));
        }
    }
    client.close().await;
}

pub(super) async fn drain(args: DeadlineArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = Drain {
        while_connected: false,
        deadline: args.deadline,
    };
    ask::done(
        ask::ask(socket, RequestKind::Drain, &fields, Fallback::Forbidden).await,
        "drained: nothing runs, new turns wait for `agentctl undrain`",
    )
}

pub(super) async fn undrain(socket: Option<&Path>) -> io::Result<Exit> {
    let asked = ask::ask(
        socket,
        RequestKind::Undrain,
        &Nothing {},
        Fallback::Forbidden,
    )
    .await;
    ask::done(asked, "turns start again")
}
