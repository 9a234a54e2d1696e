//! Asking the daemon one thing from the command line.
//!
//! Owns connecting, without a fallback or to read what is stored, and telling why there is no answer. Must not know what is
//! asked, nor how an answer looks.

use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::{Line, RequestKind};
use serde::Serialize;

use super::args::PastArgs;
use super::exit::{self, Exit};
use super::{connecting, outcome, output, render, start_hint, typed, wording};
use agentd_client::asked::{Reply, RequestError};
use agentd_client::client::{Attended, Client, ClientError, Options, START_IT, Server};
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::Fallback;
use agentd_client::health::{self, Unwell};
use agentd_client::oneshot::Asks;
use agentd_client::pages::{Paged, Pages};
use agentd_client::places::{self, Environment, StoreFile};
use agentd_client::ssh::Target;
use agentd_client::wire::Received;

/// An answer, or the exit code when there is none to print.
pub(super) type Answered = Result<(Client, Received), Exit>;

/// How this program connects for somebody who answers no questions.
pub(super) fn options(socket: Option<&Path>, fallback: Fallback) -> Options {
    Options {
        socket: socket.map(Path::to_owned),
        fallback,
        name: "agentctl".to_owned(),
        attended: Attended::No,
        asks: Asks::Anything,
    }
}

/// Connects to the daemon, and says nothing where there is none.
pub(super) async fn connect(socket: Option<&Path>) -> Result<Client, ClientError> {
    Client::connect_or_oneshot(options(socket, Fallback::Forbidden)).await
}

/// Connects to the daemon; without one, says so.
pub(super) async fn daemon(socket: Option<&Path>) -> Result<Client, Exit> {
    connected(socket, Fallback::Forbidden, START_IT).await
}

/// The same for what is stored already: without a daemon a run without one reads it, if there is
/// anything to read.
pub(super) async fn past(socket: Option<&Path>, past: PastArgs) -> Result<Client, Exit> {
    past_attended(socket, past, Attended::No).await
}

/// The same for somebody who answers what agents ask, or doesn't.
pub(super) async fn past_attended(
    socket: Option<&Path>,
    past: PastArgs,
    attended: Attended,
) -> Result<Client, Exit> {
    let there = socket.and_then(Target::of_socket);
    if there.is_none() {
        let endpoint = LocalEndpoint::find(socket, &Environment::of_process());
        // Before anything that is stored is looked at.
        let (_lock, disk) = (endpoint.lock(), endpoint.disk_answers());
        if let Err(hangs) = disk {
            return told(Err(hangs), socket, START_IT).await;
        }
    }
    // Elsewhere it is decided there, by the same rule.
    // One that is no store is left as it is: a run without a daemon would move it aside.
    let is_stored =
        there.is_some() || places::store_file(&Environment::of_process()) == StoreFile::There;
    let fallback = match is_stored && !past.no_fallback {
        true => Fallback::Allowed,
        false => Fallback::Forbidden,
    };
    let connecting = Client::connect_or_oneshot(Options {
        attended,
        asks: Asks::Stored,
        ..options(socket, fallback)
    });
    let client = told(connecting.await, socket, START_IT).await?;
    if let Some(reason) = client.fallback_reason() {
        output::note(&format!("{}; this is what is stored", reason.sentence()));
    } else if client.is_alone() {
        output::note("no daemon is running there; this is what is stored");
    }
    Ok(client)
}

/// What hasn't ended can't be read from the store: only a daemon gets it there.
pub(super) fn needs_daemon(client: &Client, what: &str) -> Exit {
    let hint = match client.server() {
        Server::Remote(remote) => format!("`ssh {} agentctl start` starts it", remote.target()),
        Server::Daemon(_) | Server::OneShot(_) => START_IT.to_owned(),
    };
    let error = format!("{what} not ended, and agentd is not running");
    output::error(&error, Some(&hint));
    Exit::Unreachable
}

/// Connects, and where that fails says what to do with the words of `down`.
pub(super) async fn connected(
    socket: Option<&Path>,
    fallback: Fallback,
    down: &str,
) -> Result<Client, Exit> {
    told(connecting::connect(socket, fallback).await, socket, down).await
}

async fn told(
    connected: Result<Client, ClientError>,
    socket: Option<&Path>,
    down: &str,
) -> Result<Client, Exit> {
    match connected {
        Ok(client) => Ok(client),
        Err(error) => Err(tell_unconnected(&error, socket, down).await),
    }
}

/// Says why there is no conversation, and what to do with the words of `down` where no daemon runs.
pub(super) async fn tell_unconnected(
    error: &ClientError,
    socket: Option<&Path>,
    down: &str,
) -> Exit {
    match socket.and_then(Target::of_socket) {
        Some(Ok(target)) => tell_away(error, &target),
        _ => match why_silent(error, socket).await {
            Some(unwell) => {
                output::error(&unwell.to_string(), unwell.hint().as_deref());
                exit::of_client_error(error)
            }
            None => tell_down(error, down),
        },
    }
}

/// Of a daemon of this machine that was not reached, and runs all the same.
pub(super) async fn why_silent(error: &ClientError, socket: Option<&Path>) -> Option<Unwell> {
    match error {
        ClientError::Unreachable { .. } => {
            let endpoint = LocalEndpoint::find(socket, &Environment::of_process());
            health::why_silent(&endpoint, "agentctl").await
        }
        _ => None,
    }
}

/// Asks whoever may answer.
pub(super) async fn ask(
    socket: Option<&Path>,
    kind: RequestKind,
    fields: &impl Serialize,
    fallback: Fallback,
) -> Answered {
    let client = connected(socket, fallback, START_IT).await?;
    answer(client, kind, fields).await
}

/// Asks the daemon for what makes no sense without one; `down` says what to do then.
pub(super) async fn change_or(
    down: &str,
    socket: Option<&Path>,
    kind: RequestKind,
    fields: &impl Serialize,
) -> Answered {
    let client = connected(socket, Fallback::Forbidden, down).await?;
    answer(client, kind, fields).await
}

async fn answer(mut client: Client, kind: RequestKind, fields: &impl Serialize) -> Answered {
    match client.answer(kind, fields).await {
        Ok(received) => Ok((client, received)),
        Err(error) => Err(tell(&error)),
    }
}

/// Waits; whoever does so longer than anybody expects is told what for.
pub(super) async fn told_when_late<T>(
    after: Duration,
    tell: impl FnOnce(),
    end: impl Future<Output = T>,
) -> T {
    tokio::pin!(end);
    match tokio::time::timeout(after, &mut end).await {
        Ok(ended) => ended,
        Err(_late) => {
            tell();
            end.await
        }
    }
}

/// The value of a reply for a text, or its line as it came for `--json`.
pub(super) fn print<T>(
    asked: Result<Reply<T>, RequestError>,
    json: bool,
    text: impl FnOnce(&T) -> String,
) -> io::Result<Exit> {
    match asked {
        Ok(reply) => {
            if json {
                output::out_json(&reply.line)?;
            } else {
                output::out(&text(&reply.value))?;
            }
            Ok(Exit::Done)
        }
        Err(error) => Ok(tell(&error)),
    }
}

/// Each page as it came, for `--json`.
pub(super) async fn print_pages<Q: Paged>(
    client: &mut Client,
    mut pages: Pages<Q>,
) -> io::Result<Exit> {
    loop {
        match pages.next(client).await {
            Ok(Some(page)) => output::out_json(&page.line)?,
            Ok(None) => return Ok(Exit::Done),
            Err(error) => return Ok(tell(&error)),
        }
    }
}

/// Says why a request has no result, and gives the exit code of that.
pub(super) fn tell(error: &RequestError) -> Exit {
    match error {
        RequestError::Refused(line) => {
            let hint = wording::hint(line).map(|hint| typed::there(&hint));
            output::error(&wording::error(&line.error), hint.as_deref());
        }
        RequestError::Strange(line) => tell_strange(line),
        RequestError::NoAnswer(lost) => {
            output::error(&lost.to_string(), Some("the daemon may have stopped"));
        }
        RequestError::Unknown { .. } => output::error(&error.to_string(), None),
        RequestError::Client(error) => outcome::tell_client_error(error),
    }
    exit::of_request_error(error)
}

/// What is to be done about the daemon of another machine is to be done there.
fn tell_away(error: &ClientError, target: &Target) -> Exit {
    match error {
        ClientError::Unreachable { error, hint: None } => {
            let hint = format!("`ssh {target} agentctl status` says what is wrong there");
            output::error(error, Some(&hint));
        }
        other => outcome::tell_client_error(other),
    }
    exit::of_client_error(error)
}

fn tell_down(error: &ClientError, down: &str) -> Exit {
    match error {
        ClientError::Unreachable { error, hint } => {
            let hint = hint.clone().unwrap_or_else(|| match down {
                START_IT => start_hint::of_this_machine(),
                down => down.to_owned(),
            });
            output::error(&format!("agentd is not running: {error}"), Some(&hint));
        }
        other => outcome::tell_client_error(other),
    }
    exit::of_client_error(error)
}

/// For answers where any known line will do.
pub(super) fn done(asked: Answered, said: &str) -> io::Result<Exit> {
    match asked {
        Ok((_, received)) if received.line.is_some() => {
            output::out_line(said)?;
            Ok(Exit::Done)
        }
        Ok((_, received)) => Ok(unexpected(&received)),
        Err(exit) => Ok(exit),
    }
}

/// An answer that this version can't read.
pub(super) fn unexpected(received: &Received) -> Exit {
    debug_assert!(
        !matches!(received.line, Some(Line::Error(_))),
        "a refusal isn't an answer"
    );
    tell_strange(&received.text);
    Exit::Failed
}

fn tell_strange(line: &str) {
    let shown = render::preview(line);
    output::error(
        &format!("the daemon answered with a line that this version does not know: {shown}"),
        Some("`agentctl --version` and `agentd --version` may differ"),
    );
}
