//! `status`, `metrics` and `log-level`: how the daemon is.
//!
//! Owns their exit codes and the repetition of `--watch`. Must not know how an answer looks
//! (`render`, `metrics`). None falls back: only a daemon can answer them.

use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::line::{DaemonState, StatusAnswer};
use agentd_protocol::request::LogLevel;
use agentd_protocol::{Line, RequestKind};
use serde_json::json;

use super::args::{JsonArgs, LogLevelArgs, StatusArgs};
use super::exit::{self, Exit};
use super::{ask, output, render, service, start_hint, typed};
use agentd_client::client::{ClientError, START_IT};
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::{Fallback, Lock};
use agentd_client::health::{self, Healthy, Unwell};
use agentd_client::metrics;
use agentd_client::places::Environment;
use agentd_client::ssh::Target;
use agentd_terminal::style::Style;

/// What to do about a store that was lost, or is away.
const LOST_STORE: &str = "after `agentctl stop`, `agentctl restore FILE` puts a backup in its place; \
                          `agentctl doctor --accept-loss` goes on without what was lost";
/// Between two looks of `--watch`.
const EVERY: Duration = Duration::from_secs(1);
/// Moves to the upper left and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(super) async fn status(args: StatusArgs, socket: Option<&Path>) -> io::Result<Exit> {
    if !args.watch {
        return show(&args, look(socket).await);
    }
    loop {
        // The daemon may have come back elsewhere.
        let looked = look(socket).await;
        if output::out_is_terminal() && !args.json {
            output::out(CLEAR)?;
        }
        show(&args, looked)?;
        tokio::time::sleep(EVERY).await;
    }
}

/// After a start: where what the store held is now, and what to do about it.
pub(super) fn tell_loss(answer: &StatusAnswer) {
    if is_of_loss(answer) {
        // What is told of turns and workers says nothing of one that has just come up.
        let details = answer.details.split_once("; ");
        output::note(details.map_or(answer.details.as_str(), |(_, lost)| lost));
        output::err(&format!("hint: {LOST_STORE}\n"));
    }
}

fn is_of_loss(answer: &StatusAnswer) -> bool {
    answer.state == DaemonState::Degraded && tells_of_loss(&answer.details)
}

/// Was something that was stored lost? A disk that is full or hangs is another matter.
fn tells_of_loss(details: &str) -> bool {
    let of_store = |part: &&str| part.contains("the store");
    let mut parts = details.split("; ").filter(of_store);
    parts.any(|part| !part.starts_with("the store can't write") || part.contains("damaged"))
}

/// Prometheus' text, also of a daemon that is not there.
pub(super) async fn metrics(socket: Option<&Path>) -> io::Result<Exit> {
    match look(socket).await {
        Ok(healthy) => {
            output::out(&metrics::text(&healthy.answer))?;
            Ok(Exit::Done)
        }
        Err(unwell) => {
            output::out(&metrics::down())?;
            Ok(tell(&unwell))
        }
    }
}

pub(super) async fn log_level(args: LogLevelArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = LogLevel { level: args.level };
    let asked = ask::ask(socket, RequestKind::LogLevel, &fields, Fallback::Forbidden).await;
    let (_client, received) = asked?;
    match &received.line {
        Some(Line::LogLevel { .. }) if args.json => output::out_json(&received.text)?,
        Some(Line::LogLevel { log, .. }) => {
            let (level, to) = (output::safe(&log.level), output::safe(&log.to));
            output::out_line(&format!("{level} (to {to})"))?;
        }
        _ => return Ok(ask::unexpected(&received)),
    }
    Ok(Exit::Done)
}

/// Of this program, and of the daemon if one runs: none is started by the question.
pub(super) async fn version(args: JsonArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let is_away = socket.and_then(Target::of_socket).is_some();
    let endpoint = LocalEndpoint::find(socket, &Environment::of_process());
    let looked = match is_away || endpoint.lock() != Lock::Free {
        true => look(socket).await.ok(),
        false => None,
    };
    let daemon = looked.map(|healthy| healthy.answer.daemon);
    let (own, its) = (
        env!("CARGO_PKG_VERSION"),
        daemon.as_ref().map(|daemon| &daemon.version),
    );
    if args.json {
        output::out_json(&json!({"agentctl": own, "agentd": its}).to_string())?;
        return Ok(Exit::Done);
    }
    output::out_line(&format!("agentctl {own}"))?;
    if let Some(its) = its {
        output::out_line(&format!("agentd   {}, which runs", output::safe(its)))?;
    }
    Ok(Exit::Done)
}

async fn look(socket: Option<&Path>) -> Result<Healthy, Unwell> {
    match socket.and_then(Target::of_socket) {
        Some(Ok(target)) => health::look_there(&target).await,
        Some(Err(error)) => Err(Unwell::Client(ClientError::Unreachable {
            error,
            hint: None,
        })),
        None => {
            let endpoint = LocalEndpoint::find(socket, &Environment::of_process());
            health::look(&endpoint, "agentctl").await
        }
    }
}

fn show(args: &StatusArgs, looked: Result<Healthy, Unwell>) -> io::Result<Exit> {
    let Healthy { answer, line } = match looked {
        Ok(healthy) => healthy,
        Err(unwell) => {
            if args.json {
                let name = unwell.name();
                let told = json!({"type": "status", "ok": false, "state": name,
                    "error": unwell.to_string(), "hint": hint(&unwell)});
                output::out_json(&told.to_string())?;
                return Ok(exit::of_unwell(&unwell));
            }
            return Ok(tell(&unwell));
        }
    };
    if args.json {
        output::out_json(&line)?;
    } else if args.rpc {
        output::out(&render::status_rpc(&answer))?;
    } else {
        output::out(&render::status(&answer, &Style::of_stdout()))?;
        if is_of_loss(&answer) {
            output::err(&format!("hint: {LOST_STORE}\n"));
        }
    }
    Ok(if args.rpc && !answer.rpc.live {
        Exit::Failed
    } else {
        Exit::Done
    })
}

fn tell(unwell: &Unwell) -> Exit {
    let error = match unwell {
        Unwell::Client(error @ ClientError::Unreachable { .. }) => {
            format!("agentd is not running: {error}")
        }
        other => other.to_string(),
    };
    output::error(&error, hint(unwell).as_deref());
    exit::of_unwell(unwell)
}

/// What to do, where there is a service, too.
pub(super) fn hint(unwell: &Unwell) -> Option<String> {
    let is_nowhere = matches!(
        unwell,
        Unwell::Client(ClientError::Unreachable { hint: None, .. })
    );
    match (is_nowhere, service::is_there()) {
        (true, true) => Some(START_IT.to_owned()),
        (true, false) => Some(start_hint::of_this_machine()),
        (false, _) => unwell.hint().map(|hint| typed::there(&hint)),
    }
}
