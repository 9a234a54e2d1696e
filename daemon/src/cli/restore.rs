//! `agentd restore`: a backup in the place of the store, while nobody uses it.
//!
//! Owns its argument and what is said. Must not know what a backup is.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{CliFailure, FAILED, HELD, with};
use crate::platform::paths::Paths;
use crate::server::restore::{self, RestoreError, Restored};

#[derive(Args, Debug)]
pub(super) struct RestoreArgs {
    /// A file that `agentctl backup` made
    file: PathBuf,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// Puts it there and says what became of its jobs.
pub(super) fn run(args: &RestoreArgs, paths: &Paths) -> Result<(), CliFailure> {
    let restored = restore::restore(paths, &args.file).map_err(|error| {
        let code = match error {
            RestoreError::Held(_) => HELD,
            RestoreError::Failed(_) => FAILED,
        };
        with(code)(error)
    })?;
    say(&restored, args.json).map_err(with(FAILED))
}

fn say(restored: &Restored, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Restored {
        aside,
        jobs,
        held,
        interrupted,
        schedules,
        remembered,
        plan,
    } = restored;
    if as_json {
        let aside = aside.as_ref().map(|aside| aside.to_string_lossy());
        let line = json!({"jobs": jobs, "held": held, "interrupted": interrupted,
            "schedules": schedules, "aside": aside,
            "timmy_sessions": remembered, "plan": plan});
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
    match schedules {
        0 => {}
        1 => writeln!(
            out,
            "1 schedule is paused: `agentctl cron resume ID` lets it go on"
        )?,
        many => writeln!(
            out,
            "{many} schedules are paused: `agentctl cron resume ID` lets one go on"
        )?,
    }
    match remembered {
        0 => {}
        1 => writeln!(out, "timmy remembers 1 session again")?,
        count => writeln!(out, "timmy remembers {count} sessions again")?,
    }
    if let Some(command) = plan {
        writeln!(
            out,
            "backups are not made by themselves here, as they were where this one comes from: \
             `{command}` has them made"
        )?;
    }
    writeln!(
        out,
        "configuration and keys are not in a backup: those of here count (`agentctl agents` lists \
         the agents that there are)"
    )?;
    match aside {
        Some(aside) => writeln!(out, "what was there before is in `{}`", aside.display()),
        None => Ok(()),
    }
}
