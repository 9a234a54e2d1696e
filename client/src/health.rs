//! How the daemon is, known within a second whatever state it is in.
//!
//! Owns the patience for that, and what it means when there is no answer: no daemon, one that hangs,
//! one that was stopped. Never starts anything, nor waits for a daemon to come back. Must not know
//! the command line, nor print.

use std::path::PathBuf;
use std::time::Duration;

use agentd_protocol::Line;
use agentd_protocol::line::{ErrorLine, StatusAnswer};
use agentd_protocol::request::{Hello, Status};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout_at};

use crate::client::{ClientError, START_IT};
use crate::connection::{Connection, Greeting, HelloError, LostError};
use crate::endpoint::LocalEndpoint;
use crate::fallback::{Fact, Lock};
use crate::remote::{Remote, RemoteError};
use crate::ssh::{STATUS, Target};
use crate::wire::Received;

/// A daemon answers in some milliseconds; with the start of the program this stays below a second.
const PATIENCE: Duration = Duration::from_millis(650);
/// Until a daemon that is just starting is looked at again.
const PAUSE: Duration = Duration::from_millis(20);

/// Of another machine, the way there included.
const THERE_WITHIN: Duration = Duration::from_secs(20);
/// More than any status has.
const MAX_SAID: u64 = 4 * 1024 * 1024;

/// A status, and the line it came on.
#[derive(Debug)]
pub struct Healthy {
    /// What was answered.
    pub answer: Box<StatusAnswer>,
    /// As it came, without its newline.
    pub line: String,
}

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum Unwell {
    /// Somebody has the socket, and says nothing.
    #[error("the daemon{} does not answer within {} ms", named(*pid), PATIENCE.as_millis())]
    Hung {
        /// Who holds the daemon's lock.
        pid: Option<u32>,
    },
    /// It runs, and nobody gets to it.
    #[error("the daemon (pid {pid}) runs, and its socket `{}` is gone", path.display())]
    Lost {
        /// Its process.
        pid: u32,
        /// Where it should be.
        path: PathBuf,
    },
    /// The process gets no time: SIGSTOP, or a debugger.
    #[error("the daemon (pid {pid}) was stopped (SIGSTOP) and answers nobody")]
    Stopped {
        /// Its process.
        pid: u32,
    },
    /// Another machine's `agentctl` looked at its daemon, and this is what it found.
    #[error("on `{target}`: {}", .found.error)]
    There {
        /// Which machine.
        target: String,
        /// In its words.
        found: ProbeReport,
    },
    /// Another machine was not reached, or has no `agentctl`: how its daemon is, isn't known.
    #[error("{error}")]
    Unreached {
        /// Why.
        error: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// There is no daemon, or it is not to be talked to.
    #[error(transparent)]
    Client(ClientError),
    /// It said no.
    #[error("{}", .0.error)]
    Refused(Box<ErrorLine>),
    /// It said something else. It is the line.
    #[error("the daemon answered with a line that this version does not know")]
    Strange(String),
}

/// What `status --json` says without a status.
#[derive(Clone, Debug, Deserialize)]
pub struct ProbeReport {
    state: String,
    error: String,
    hint: Option<String>,
}

fn named(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

impl Unwell {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Stopped { pid } => Some(format!("`kill -CONT {pid}` lets it go on")),
            Self::Lost { .. } => Some(
                "`agentctl service restart` makes it again; a daemon that is no service does so \
                 itself within a minute, and `agentctl stop` ends it"
                    .to_owned(),
            ),
            Self::Hung { pid: Some(pid) } => Some(format!(
                "it may still be starting; if it stays so, `agentctl logs` says what it did last, and \
                 `kill -9 {pid}` ends it: nothing that was accepted is lost"
            )),
            Self::Hung { pid: None } => Some(
                "another process may have the socket, or the service manager keeps it while the \
                 daemon starts"
                    .to_owned(),
            ),
            Self::Client(ClientError::Unreachable { hint, .. }) => {
                Some(hint.clone().unwrap_or_else(|| START_IT.to_owned()))
            }
            Self::Unreached { hint, .. } => hint.clone(),
            Self::Refused(line) | Self::Client(ClientError::TooMany(line)) => line.hint.clone(),
            Self::There { found, .. } => found.hint.clone(),
            Self::Client(_) | Self::Strange(_) => None,
        }
    }

    /// In one word, for programs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hung { .. } => "hung",
            Self::Stopped { .. } => "stopped",
            Self::Client(ClientError::Draining) => "draining",
            Self::Client(ClientError::TooMany(_)) => "full",
            Self::There { found, .. } => match found.state.as_bytes() {
                b"hung" => "hung",
                b"stopped" => "stopped",
                b"draining" => "draining",
                b"full" => "full",
                b"down" => "down",
                _ => "failed",
            },
            Self::Unreached { .. } => "unknown",
            Self::Client(_) | Self::Lost { .. } => "down",
            Self::Refused(_) | Self::Strange(_) => "failed",
        }
    }
}

/// Asks the daemon on this socket for its status.
///
/// # Errors
/// Says what is known of a daemon that gives none.
pub async fn look(endpoint: &LocalEndpoint, name: &str) -> Result<Healthy, Unwell> {
    look_within(endpoint, name, PATIENCE).await
}

/// Why a daemon gives no answer that is there all the same: it hangs, was stopped, or lost its socket.
/// Nothing where there is none, or it answers by now.
pub async fn why_silent(endpoint: &LocalEndpoint, name: &str) -> Option<Unwell> {
    let unwell = look(endpoint, name).await.err()?;
    match unwell {
        Unwell::Hung { .. } | Unwell::Lost { .. } | Unwell::Stopped { .. } => Some(unwell),
        Unwell::There { .. }
        | Unwell::Unreached { .. }
        | Unwell::Client(_)
        | Unwell::Refused(_)
        | Unwell::Strange(_) => None,
    }
}

/// Lets another machine look at its own daemon, in the same time: what hangs is told apart from what
/// was stopped only there.
///
/// # Errors
/// The same, and says why that machine can't be asked.
pub async fn look_there(target: &Target) -> Result<Healthy, Unwell> {
    let unreached = |error, hint| Unwell::Unreached { error, hint };
    let failed = |error: RemoteError| unreached(error.error, error.hint);
    let (mut remote, output, mut input) =
        Remote::start(target, target.run(STATUS)).map_err(failed)?;
    let asked = async {
        // An ssh key that may only send gets the relay, which answers this line that it may not ask.
        let _unread = input.write_all(b"{\"type\":\"status\"}\n").await;
        drop(input);
        let mut said = Vec::new();
        let read = output.take(MAX_SAID).read_to_end(&mut said).await;
        read.map(|_| said)
    };
    let late = || {
        let error = format!(
            "`{target}` did not answer within {} s",
            THERE_WITHIN.as_secs()
        );
        unreached(error, None)
    };
    let ended = tokio::time::timeout(THERE_WITHIN, asked).await;
    let said = ended.map_err(|_| late())?;
    let said = said.map_err(|error| unreached(format!("`{target}`: {error}"), None))?;
    // What shells print by themselves comes before it.
    let last = said
        .split(|byte| *byte == b'\n')
        .rfind(|line| line.starts_with(b"{"));
    let Some(last) = last else {
        return Err(failed(remote.why_ended().await));
    };
    if let Ok(found) = serde_json::from_slice::<ProbeReport>(last)
        && !found.error.is_empty()
    {
        let target = target.to_string();
        return Err(Unwell::There { target, found });
    }
    as_said(Received::parse(last))
}

/// What the answer to `status` says.
fn as_said(received: Received) -> Result<Healthy, Unwell> {
    let line = received.text;
    match received.line {
        Some(Line::Status(answer)) => Ok(Healthy { answer, line }),
        Some(Line::Error(error)) => Err(Unwell::Refused(error)),
        _ => Err(Unwell::Strange(line)),
    }
}

async fn look_within(
    endpoint: &LocalEndpoint,
    name: &str,
    patience: Duration,
) -> Result<Healthy, Unwell> {
    let until = Instant::now() + patience;
    let mut connection = match reach(endpoint, name, until).await {
        Ok(connection) => connection,
        Err(None) => return Err(silent(endpoint)),
        Err(Some(unwell)) => return Err(unwell),
    };
    let fields = Status { workers: true };
    let asked = timeout_at(until, connection.ask("status", &fields, None)).await;
    match asked {
        Ok(Ok(received)) => as_said(received),
        Ok(Err(lost @ (LostError::Ended | LostError::Failed(_)))) => {
            Err(unreachable(format!("the daemon left: {lost}"), None))
        }
        Ok(Err(_)) | Err(_) => Err(silent(endpoint)),
    }
}

/// A conversation; without any error, nobody answered in time.
async fn reach(
    endpoint: &LocalEndpoint,
    name: &str,
    until: Instant,
) -> Result<Connection, Option<Unwell>> {
    let hello = Hello {
        client: Some(name.to_owned()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        protocol: Some(1),
        answers: false,
    };
    loop {
        let failed = match endpoint.connect().await {
            Ok(stream) => {
                let (reader, writer) = stream.into_split();
                let greeted = timeout_at(until, async {
                    let mut greeting = Greeting::say(reader, writer, &hello).await?;
                    greeting.answer(PATIENCE).await?;
                    Ok::<_, HelloError>(greeting.into_connection())
                });
                match greeted.await {
                    Ok(Ok(connection)) => return Ok(connection),
                    Err(_) | Ok(Err(HelloError::Silent)) => return Err(None),
                    Ok(Err(HelloError::Draining)) => {
                        return Err(Some(Unwell::Client(ClientError::Draining)));
                    }
                    Ok(Err(HelloError::TooMany(line))) => {
                        return Err(Some(Unwell::Client(ClientError::TooMany(line))));
                    }
                    Ok(Err(why @ HelloError::Refused(_))) => {
                        let shown = endpoint.path.display();
                        return Err(Some(unreachable(
                            format!("the daemon on `{shown}`: {why}"),
                            None,
                        )));
                    }
                    // It is leaving, or was killed; who comes next is asked.
                    Ok(Err(HelloError::Closed)) => None,
                }
            }
            Err(failed) => Some(failed),
        };
        // A daemon has the lock before it listens.
        let starting = endpoint.lock().is_coming() || endpoint.lock() == Lock::Running;
        if let Err(hangs) = endpoint.disk_answers() {
            return Err(Some(Unwell::Client(hangs)));
        }
        match failed {
            Some(ref failed) if !matches!(failed.fact, Fact::BacklogFull) => {
                let may_come = matches!(failed.fact, Fact::NoSocket | Fact::Refused) && starting;
                if !may_come {
                    return Err(Some(unreachable(failed.error.clone(), failed.hint.clone())));
                }
            }
            _ => {}
        }
        if Instant::now() + PAUSE >= until {
            // Only at the end: one that starts, or makes its socket anew, has none for a moment
            // either.
            let nowhere = failed.is_some_and(|failed| failed.fact == Fact::NoSocket);
            let lost = nowhere && matches!(endpoint.lock(), Lock::Running);
            let lost = endpoint.holder().filter(|_| lost);
            return Err(lost.map(|pid| Unwell::Lost {
                pid,
                path: endpoint.path.clone(),
            }));
        }
        sleep(PAUSE).await;
    }
}

fn unreachable(error: String, hint: Option<String>) -> Unwell {
    Unwell::Client(ClientError::Unreachable { error, hint })
}

/// Nobody answers: does the process that should get any time?
fn silent(endpoint: &LocalEndpoint) -> Unwell {
    let pid = endpoint.holder();
    match pid.filter(|pid| is_stopped(*pid)) {
        Some(pid) => Unwell::Stopped { pid },
        None => Unwell::Hung { pid },
    }
}

/// Stopped by a signal or a debugger.
#[cfg(target_os = "linux")]
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may hold anything.
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|state| state.starts_with(['T', 't']))
}

#[cfg(not(target_os = "linux"))]
fn is_stopped(pid: u32) -> bool {
    let mut ps = std::process::Command::new("/bin/ps");
    ps.args(["-o", "state=", "-p", &pid.to_string()]);
    ps.output()
        .is_ok_and(|printed| printed.stdout.trim_ascii_start().starts_with(b"T"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::{Environment, System};
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    fn endpoint(dir: &Path) -> LocalEndpoint {
        let environment = Environment {
            system: System::Linux,
            uid: 1,
            home: None,
            xdg_runtime_dir: None,
            xdg_state_home: None,
            agentd_socket: Some(dir.join("s")),
            agentd_state_dir: Some(dir.to_owned()),
            run_user_is_ours: false,
        };
        LocalEndpoint::find(None, &environment)
    }

    #[tokio::test]
    async fn health_tells_nobody_from_somebody_silent() {
        let dir = tempfile::tempdir().unwrap();
        let name = async || {
            let patience = Duration::from_millis(50);
            let looked = look_within(&endpoint(dir.path()), "test", patience).await;
            looked.unwrap_err().name()
        };
        assert_eq!(name().await, "down");
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        assert_eq!(name().await, "hung");
        drop(listener);
        assert_eq!(name().await, "down");
    }
}
