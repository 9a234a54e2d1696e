//! The commands that ask the daemon one thing and print its answer.
//!
//! Owns asking, deadlines and the exit code of an answer. Must not know how an answer looks
//! (`render`). None of them falls back: only a daemon can answer them.

use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::Line;
use agentd_protocol::request::{
    Abort, Collect, DaemonStop, Drain, RestartWorker, Status, Subscribe, Wait,
};
use serde::Serialize;
use serde_json::Value;

use super::args::{
    AbortArgs, CollectArgs, DeadlineArgs, JsonArgs, RestartArgs, StatusArgs, WatchArgs,
};
use super::exit::{self, Exit};
use super::{output, render, turn};
use crate::client::{Client, ClientError};
use crate::fallback::Fallback;
use crate::wire::{Nothing, Received};

/// Longest wait for what the daemon answers from memory.
const AT_ONCE: Duration = Duration::from_secs(10);
/// Longest wait for what needs the disk.
const AFTER_COMMIT: Duration = Duration::from_secs(60);
/// What running turns get when nothing is said, and a margin for the daemon to leave.
const STOP_DEADLINE: f64 = 30.0;
const LEAVE_MARGIN: f64 = 15.0;

/// An answer, or the exit code when there is none to print.
type Asked = Result<(Client, Received), Exit>;

pub(super) async fn status(args: StatusArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = Status { workers: !args.rpc };
    let received = match ask(socket, "status", &fields, Reads::Only).await {
        Ok((_, received)) => received,
        Err(exit) => return Ok(exit),
    };
    let Some(Line::Status(answer)) = &received.line else {
        return unexpected(&received);
    };
    if args.json {
        output::out_json(&received.text)?;
    } else if args.rpc {
        output::out(&render::status_rpc(answer))?;
    } else {
        output::out(&render::status(answer))?;
    }
    Ok(if args.rpc && !answer.rpc.live {
        Exit::Failed
    } else {
        Exit::Done
    })
}

pub(super) async fn agents(args: JsonArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let received = match ask(socket, "agents", &Nothing {}, Reads::Anywhere).await {
        Ok((client, received)) => {
            client.close().await;
            received
        }
        Err(exit) => return Ok(exit),
    };
    match &received.line {
        Some(Line::Agents { .. }) if args.json => output::out_json(&received.text)?,
        Some(Line::Agents { agents, .. }) => output::out(&render::agents(agents))?,
        _ => return unexpected(&received),
    }
    Ok(Exit::Done)
}

pub(super) async fn abort(args: AbortArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = Abort {
        job: args.job,
        session: args.session,
        queued: args.queued,
    };
    let received = match ask(socket, "abort", &fields, Reads::AndChanges).await {
        Ok((_, received)) => received,
        Err(exit) => return Ok(exit),
    };
    match &received.line {
        Some(Line::Abort { .. }) if args.json => output::out_json(&received.text)?,
        Some(Line::Abort { jobs, .. }) if jobs.is_empty() => {
            output::out_line("nothing was running")?;
        }
        Some(Line::Abort { jobs, .. }) => {
            let names: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            output::out_line(&format!("aborted {}", names.join(", ")))?;
        }
        _ => return unexpected(&received),
    }
    Ok(Exit::Done)
}

pub(super) async fn collect(args: CollectArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = Collect {
        jobs: args.jobs,
        timeout: args.timeout,
        wait: if args.any { Wait::Any } else { Wait::All },
    };
    let received = match ask(socket, "collect", &fields, Reads::Waiting).await {
        Ok((_, received)) => received,
        Err(exit) => return Ok(exit),
    };
    let Some(Line::Collect {
        results, pending, ..
    }) = &received.line
    else {
        return unexpected(&received);
    };
    if args.json {
        output::out_json(&received.text)?;
    } else {
        for result in results {
            output::out(&render::result(result))?;
        }
        for job in pending {
            output::note(&format!("{job} is not done"));
        }
    }
    let failed = |line: &Value| line.get("type").and_then(Value::as_str) == Some("error");
    Ok(if results.iter().any(failed) {
        Exit::Failed
    } else if pending.is_empty() || (args.any && !results.is_empty()) {
        Exit::Done
    } else {
        Exit::Timeout
    })
}

pub(super) async fn restart(args: RestartArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = RestartWorker {
        agent: args.agent,
        session: args.session,
        now: args.now,
    };
    done(
        ask(socket, "restart_worker", &fields, Reads::Waiting).await,
        "restarted",
    )
}

pub(super) async fn drain(args: DeadlineArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = Drain {
        deadline: args.deadline,
    };
    done(
        ask(socket, "drain", &fields, Reads::Waiting).await,
        "drained: nothing runs, new turns wait for `agentctl undrain`",
    )
}

pub(super) async fn undrain(socket: Option<&Path>) -> io::Result<Exit> {
    let asked = ask(socket, "undrain", &Nothing {}, Reads::AndChanges).await;
    done(asked, "turns start again")
}

/// Returns when the daemon is gone, so that the next one can be started.
pub(super) async fn stop(args: DeadlineArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = DaemonStop {
        deadline: args.deadline,
        restart: false,
    };
    let (mut client, received) = match ask(socket, "daemon.stop", &fields, Reads::Waiting).await {
        Ok(asked) => asked,
        Err(exit) => return Ok(exit),
    };
    if !matches!(received.line, Some(Line::DaemonStop { ok: true })) {
        return unexpected(&received);
    }
    let seconds = args.deadline.unwrap_or(STOP_DEADLINE) + LEAVE_MARGIN;
    let longest = Duration::try_from_secs_f64(seconds).unwrap_or(AFTER_COMMIT);
    let left = tokio::time::timeout(longest, async { while client.next().await.is_ok() {} });
    output::out_line(if left.await.is_ok() {
        "the daemon has stopped"
    } else {
        "the daemon is stopping"
    })?;
    Ok(Exit::Done)
}

/// Until Ctrl-C, which ends the process by itself: nothing needs to be put away.
pub(super) async fn watch(args: WatchArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = Subscribe {
        session: args.session,
        ..Subscribe::default()
    };
    let (mut client, live) = match ask(socket, "subscribe", &fields, Reads::Only).await {
        Ok(asked) => asked,
        Err(exit) => return Ok(exit),
    };
    if !matches!(live.line, Some(Line::Live { .. })) {
        return unexpected(&live);
    }
    if args.json {
        output::out_json(&live.text)?;
    }
    loop {
        let received = match client.next().await {
            Ok(received) => received,
            Err(lost) => {
                output::error(&lost.to_string(), Some("the daemon may have stopped"));
                return Ok(Exit::Unreachable);
            }
        };
        if args.json {
            output::out_json(&received.text)?;
        } else if let Some(text) = received.line.as_ref().and_then(render::event) {
            output::out_line(&text)?;
        }
    }
}

/// What a lost answer means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// Nothing could have changed: the daemon is as good as away.
    Only,
    /// It may have happened.
    AndChanges,
    /// The same, and the answer takes as long as it takes.
    Waiting,
    /// It changes nothing, and a run without a daemon can answer it as well.
    Anywhere,
}

async fn ask(socket: Option<&Path>, kind: &str, fields: &impl Serialize, reads: Reads) -> Asked {
    let deadline = match reads {
        Reads::Only | Reads::Anywhere => Some(AT_ONCE),
        Reads::AndChanges => Some(AFTER_COMMIT),
        Reads::Waiting => None,
    };
    let fallback = match reads {
        Reads::Anywhere => Fallback::Allowed,
        Reads::Only | Reads::AndChanges | Reads::Waiting => Fallback::Forbidden,
    };
    let connected = turn::connect(socket, fallback).await;
    let mut client = connected.map_err(|error| tell_down(&error))?;
    match client.ask(kind, fields, deadline).await {
        Ok(received) => match &received.line {
            Some(Line::Error(error)) => {
                output::error(&error.error, error.hint.as_deref());
                Err(exit::of_code(error.code, exit::Stage::Refused))
            }
            _ => Ok((client, received)),
        },
        Err(ClientError::Unknown(lost)) if reads == Reads::Only => {
            output::error(&format!("`{kind}`: {lost}"), None);
            Err(Exit::Unreachable)
        }
        Err(error) => {
            turn::tell_client_error(&error);
            Err(exit::of_client_error(&error))
        }
    }
}

fn tell_down(error: &ClientError) -> Exit {
    match error {
        ClientError::Unreachable { error, hint } => output::error(
            &format!("agentd is not running: {error}"),
            Some(hint.as_deref().unwrap_or("start it with `agentd`")),
        ),
        other => turn::tell_client_error(other),
    }
    exit::of_client_error(error)
}

fn done(asked: Asked, said: &str) -> io::Result<Exit> {
    match asked {
        Ok((_, received)) if received.line.is_some() => {
            output::out_line(said)?;
            Ok(Exit::Done)
        }
        Ok((_, received)) => unexpected(&received),
        Err(exit) => Ok(exit),
    }
}

fn unexpected(received: &Received) -> io::Result<Exit> {
    let shown = render::preview(&received.text);
    output::error(
        &format!("the daemon answered with a line that this version does not know: {shown}"),
        Some("`agentctl --version` and `agentd --version` may differ"),
    );
    Ok(Exit::Failed)
}
