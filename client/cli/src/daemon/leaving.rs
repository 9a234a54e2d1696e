//! A daemon that was told to leave, by us or by somebody else, and its end.
//!
//! Owns how long that is waited for, and what is said when it takes longer. Must not know what is
//! started then.

use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

use agentd_protocol::Code;
use agentd_protocol::line::{DaemonState, StatusAnswer};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::LOOKS_EVERY;
use crate::exit::Exit;
use crate::process::Process;
use crate::{ask, output, typed};
use agentd_client::asked::RequestError;
use agentd_client::client::{Client, ClientError};
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::{Fact, Lock};

/// What running turns get when nothing is said.
pub(super) const STOP_DEADLINE: f64 = 10.0;
/// Mostly it is gone by then; whoever waits longer wants to know what for.
const SAYS_SO_AFTER: Duration = Duration::from_secs(2);
/// As long as the daemon tries to write its last lines, in seconds.
const LAST_WRITES: f64 = 5.0;
/// A margin for the daemon to leave.
const LEAVE_MARGIN: f64 = 15.0;

/// Why a daemon of this machine can't be asked to leave.
pub(super) enum Absent {
    /// There is none.
    Gone,
    /// It does so already.
    Leaving(Leaving),
}

impl Absent {
    /// None while one is there, starts, or is about to be followed by another.
    pub(super) fn of(endpoint: &LocalEndpoint) -> Option<Self> {
        match (endpoint.lock(), endpoint.holder()) {
            (Lock::Free, None) => {
                let is_left = endpoint.is_left();
                let nothing = std::fs::symlink_metadata(&endpoint.path).is_err();
                let is_known = endpoint.disk_answers().is_ok();
                (is_known && (is_left || nothing)).then_some(Self::Gone)
            }
            (Lock::Stopping, Some(pid)) => Some(Self::Leaving(Leaving {
                pid,
                endpoint: endpoint.clone(),
                process: Process::of(pid),
            })),
            (
                Lock::Free | Lock::Starting | Lock::Running | Lock::Restarting | Lock::Stopping,
                _,
            ) => None,
        }
    }
}

/// A daemon that was told to leave.
pub(super) struct Leaving {
    pid: u32,
    endpoint: LocalEndpoint,
    process: Option<Process>,
}

impl Leaving {
    pub(super) fn of(client: &Client, endpoint: LocalEndpoint) -> Self {
        let pid = client.hello.pid;
        // Of one elsewhere the number says nothing here.
        let is_here = endpoint.last_holder() == Some(pid);
        Self {
            process: is_here.then(|| Process::of(pid)).flatten(),
            pid,
            endpoint,
        }
    }

    /// Is it no wonder that there is no answer? Others may have told it before, and it left meanwhile.
    pub(super) fn explains(&self, error: &RequestError) -> bool {
        let is_lost = match error {
            RequestError::NoAnswer(_) | RequestError::Unknown { .. } => true,
            RequestError::Client(error) => {
                matches!(error, ClientError::Unknown(_) | ClientError::Draining)
            }
            RequestError::Refused(line) => line.code == Code::Draining,
            RequestError::Strange(_) => false,
        };
        // Its successor may be there already.
        let is_gone = self
            .process
            .as_ref()
            .is_some_and(|process| !process.lives());
        is_lost && (is_gone || self.endpoint.last_holder() == Some(self.pid))
    }

    /// Its last words are behind it: waits for its end, and says whether it came in time.
    pub(super) async fn over(&self, within: Duration) -> bool {
        let longest = Instant::now() + within;
        let is_there = || {
            let lives = self.process.as_ref().is_some_and(Process::lives);
            lives || self.endpoint.holder() == Some(self.pid)
        };
        while is_there() {
            if Instant::now() > longest {
                return false;
            }
            tokio::time::sleep(LOOKS_EVERY).await;
        }
        true
    }

    /// The same for one that a signal told, which gives what runs as long as one that is asked does.
    pub(super) async fn over_after(&self, deadline: Option<f64>) -> io::Result<Exit> {
        if deadline.is_some_and(|deadline| deadline != STOP_DEADLINE) {
            output::note(&format!(
                "its socket is gone, so it was told by a signal: what runs gets {STOP_DEADLINE} s"
            ));
        }
        self.told_over(None).await
    }

    /// The same for one that was told by others.
    pub(super) async fn told_over(&self, deadline: Option<f64>) -> io::Result<Exit> {
        if !self.over(patience(deadline.unwrap_or(STOP_DEADLINE))).await {
            return Ok(self.stays());
        }
        output::out_line("the daemon has stopped")?;
        Ok(Exit::Done)
    }

    pub(super) fn stays(&self) -> Exit {
        let pid = self.pid;
        output::error(
            &format!("the daemon is stopping, and its process (pid {pid}) is still there"),
            Some(&format!(
                "it waits for a disk, or for something it started; `kill -9 {pid}` ends it: nothing that was accepted is lost"
            )),
        );
        Exit::Hung
    }
}

/// Tells a daemon to leave that runs and has lost its socket: by a signal, as nobody gets to it.
pub(super) async fn without_socket(endpoint: &LocalEndpoint) -> Option<Leaving> {
    let nowhere = endpoint.connect().await.err()?.fact == Fact::NoSocket;
    // One that starts has none yet, and one that leaves has none any more.
    let pid = endpoint
        .holder()
        .filter(|_| nowhere && endpoint.lock() == Lock::Running)?;
    let process = Process::of(pid);
    kill(Pid::from_raw(i32::try_from(pid).ok()?), Signal::SIGTERM).ok()?;
    Some(Leaving {
        pid,
        endpoint: endpoint.clone(),
        process,
    })
}

/// How long one that has so much time is waited for.
pub(super) fn patience(deadline: f64) -> Duration {
    Duration::try_from_secs_f64(deadline + LEAVE_MARGIN).unwrap_or(Duration::MAX)
}

/// What a daemon may wait for before it leaves, from how it was just before.
pub(super) fn waits_for(before: Option<&StatusAnswer>, deadline: f64) -> String {
    match before {
        // What ends can't be written, so it never is over by itself.
        Some(answer) if answer.state == DaemonState::Degraded => {
            let why = output::safe(&answer.details).into_owned();
            format!(
                "what it can't write keeps it up to {} s: {why}",
                deadline + LAST_WRITES
            )
        }
        Some(answer) if answer.rpc.in_flight > 0 => {
            let turns = output::counted(answer.rpc.in_flight, "running turn");
            format!("{turns} may take {deadline} s to end; `--deadline 0` gives them none")
        }
        Some(_) | None => "it waits for a disk, or for what it started to end".to_owned(),
    }
}

/// Waits for its end; says what for when that takes longer than anybody expects.
pub(super) async fn told_when_late<T>(waits_for: &str, end: impl Future<Output = T>) -> T {
    let tell = || output::note(&format!("the daemon is still stopping: {waits_for}"));
    ask::told_when_late(SAYS_SO_AFTER, tell, end).await
}

/// Says that turns which hadn't begun stay stored.
pub(super) fn tell_waiting(before: Option<&StatusAnswer>) {
    let Some(rpc) = before.map(|before| &before.rpc) else {
        return;
    };
    let there = typed::which_daemon();
    if rpc.queued > 0 {
        let verb = if rpc.queued == 1 { "waits" } else { "wait" };
        output::note(&format!(
            "{} still {verb} in the store, for the next daemon (`agentctl{there} jobs`)",
            output::counted(rpc.queued, "turn")
        ));
    }
    if rpc.scheduled > 0 {
        let (verb, their) = match rpc.scheduled {
            1 => ("waits", "its"),
            _ => ("wait", "their"),
        };
        output::note(&format!(
            "{} {verb} for {their} time, and begin{} when a daemon runs then (`agentctl{there} ps`)",
            output::counted(rpc.scheduled, "turn"),
            if rpc.scheduled == 1 { "s" } else { "" }
        ));
    }
}
