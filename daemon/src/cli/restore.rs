//! `agentd restore`: a backup in the place of the store, while nobody uses it.
//!
//! Owns its argument, that nobody else has the store meanwhile, and what is said. Must not know
//! what a backup is.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{FAILED, Failure, HELD};
use crate::platform::instance;
use crate::platform::lock::{Lock, LockError};
use crate::platform::paths::{self, Paths};
use crate::store;

#[derive(Args, Debug)]
pub(super) struct RestoreArgs {
    /// A file that `agentctl backup` made
    file: PathBuf,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// Puts it there and says what became of its jobs.
pub(super) fn run(args: &RestoreArgs, paths: &Paths) -> Result<(), Failure> {
    let failed = |code, error: String| Failure {
        code,
        error: anyhow::anyhow!(error),
    };
    paths::private_dir(&paths.state).map_err(|error| failed(FAILED, error.to_string()))?;
    // Held to the end: no daemon starts meanwhile.
    let _lock = match Lock::take(&paths.state.join("daemon.lock"), &paths.socket) {
        Ok(lock) => lock,
        Err(LockError::Held { pid, .. }) => {
            let error = format!(
                "a daemon (pid {pid}) has the store open; hint: `agentctl stop` ends it, a service \
                 with `agentctl service stop`"
            );
            return Err(failed(HELD, error));
        }
        Err(error) => return Err(failed(FAILED, error.to_string())),
    };
    let instances = instance::instances(&paths.state);
    let instances = instances.map_err(|error| failed(FAILED, error.to_string()))?;
    let is_alive = |id: &String| instance::liveness(&paths.state, id) != instance::Life::Dead;
    if instances.iter().any(is_alive) {
        let error = "a run without the daemon has the store open; hint: wait for its end";
        return Err(failed(HELD, error.to_owned()));
    }
    let restored = store::restore(&paths.state, &args.file);
    let restored = restored.map_err(|error| failed(FAILED, error))?;
    say(&restored, args.json).map_err(|error| failed(FAILED, error.to_string()))
}

fn say(restored: &store::Restored, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let store::Restored {
        aside,
        jobs,
        held,
        interrupted,
    } = restored;
    if as_json {
        let aside = aside.as_ref().map(|aside| aside.to_string_lossy());
        let line = json!({"jobs": jobs, "held": held, "interrupted": interrupted, "aside": aside});
        return writeln!(out, "{line}");
    }
    let plural = if *jobs == 1 { "" } else { "s" };
    writeln!(out, "restored {jobs} job{plural}")?;
    if held + interrupted > 0 {
        writeln!(
            out,
            "{held} waited when the backup was made and are held, {interrupted} ran and are \
             interrupted: whether they have run since isn't known; `agentctl sessions resume NAME` \
             lets a session go on"
        )?;
    }
    match aside {
        Some(aside) => writeln!(out, "what was there before is in `{}`", aside.display()),
        None => Ok(()),
    }
}
