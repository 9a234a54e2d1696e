//! The commands that ask the daemon one thing and print its answer.
//!
//! Owns the exit code of an answer. Must not know how an answer looks (`render`). None
//! falls back: only a daemon can answer them.

use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::request::{Abort, DaemonStop, Drain, RestartWorker, Wait};
use agentd_protocol::{Line, RequestKind};

use super::args::{AbortArgs, DeadlineArgs, RestartArgs};
use super::exit::Exit;
use super::{ask, output};
use agentd_client::fallback::Fallback;
use agentd_client::wire::Nothing;

/// What running turns get when nothing is said, and a margin for the daemon to leave.
const STOP_DEADLINE: f64 = 10.0;
const LEAVE_MARGIN: f64 = 15.0;

pub(super) async fn abort(args: AbortArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = Abort {
        job: args.job,
        session: args.session,
        queued: args.queued,
    };
    let job = fields.job;
    let asked = ask::ask(socket, RequestKind::Abort, &fields, Fallback::Forbidden);
    let (mut client, received) = match asked.await {
        Ok(answered) => answered,
        Err(exit) => return Ok(exit),
    };
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

pub(super) async fn restart(args: RestartArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = RestartWorker {
        agent: args.agent,
        session: args.session,
        now: args.now,
    };
    let down = "there is nothing to restart: without a daemon each turn starts its agent anew";
    let asked = ask::change_or(down, socket, RequestKind::RestartWorker, &fields).await;
    ask::done(asked, "restarted")
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

/// Returns when the daemon is gone, so that the next one can be started.
pub(super) async fn stop(args: DeadlineArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = DaemonStop {
        deadline: args.deadline,
        restart: false,
    };
    let (mut client, received) = match ask::ask(
        socket,
        RequestKind::DaemonStop,
        &fields,
        Fallback::Forbidden,
    )
    .await
    {
        Ok(asked) => asked,
        Err(exit) => return Ok(exit),
    };
    if !matches!(received.line, Some(Line::DaemonStop { ok: true })) {
        return Ok(ask::unexpected(&received));
    }
    let seconds = args.deadline.unwrap_or(STOP_DEADLINE) + LEAVE_MARGIN;
    let longest = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let left = tokio::time::timeout(longest, async { while client.next().await.is_ok() {} });
    output::out_line(if left.await.is_ok() {
        "the daemon has stopped"
    } else {
        "the daemon is stopping"
    })?;
    Ok(Exit::Done)
}
