//! What the sandbox of this machine holds, for `agentctl doctor`.
//!
//! Owns the finding. A command is run to see it; it reads and writes nothing of the user's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use agentd_protocol::doctor::Finding;

use super::keeper::{ALONE, KEEP, Report, itself};
use crate::tool::anchor::Anchor;
use crate::tool::sandbox::{self, Grants, Landlock, Signals};

/// The hidden word by which this program is asked.
pub(crate) const LOOK: &str = "__sandbox";
const CHECK: &str = "sandbox";

/// Says what was found, as one line on standard output.
pub(crate) fn main() -> ExitCode {
    let said = serde_json::to_writer(std::io::stdout(), &found(Landlock::of_process()));
    if said.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn found(landlock: Landlock) -> Finding {
    let signals = match sandbox::available(landlock) {
        Ok(signals) => signals,
        Err(why) => {
            let found = format!("timmy's commands run without one: {why}");
            return Finding::warning(CHECK, found, "somebody is asked for each command");
        }
    };
    let told = |signals: &str, processes: &str| {
        format!(
            "timmy's commands have granted files, no network and no sockets, {signals}, and {processes}"
        )
    };
    let signals = match signals {
        Signals::Own => "signal their own",
        Signals::Nobody => "signal nobody, as Linux before 6.12 can't tell whose a process is",
    };
    match tried(landlock) {
        Ok(Report {
            not_alone: None,
            failed: None,
            code: Some(0),
            ..
        }) => Finding::ok(CHECK, told(signals, "see their own processes")),
        Ok(Report {
            not_alone: Some(why),
            ..
        }) => Finding::warning(
            CHECK,
            told(
                signals,
                &format!("see the arguments of all processes: {why}"),
            ),
            "allow users namespaces (`sysctl kernel.apparmor_restrict_unprivileged_userns=0` on \
             Ubuntu), or keep secrets out of arguments",
        ),
        Ok(report) => Finding::problem(CHECK, format!("a command failed: {report:?}"), REPORT_IT),
        Err(error) => Finding::problem(CHECK, format!("a command failed: {error}"), REPORT_IT),
    }
}

const REPORT_IT: &str = "`timmy -p 'run: true'` may say more; if it doesn't, report it";

/// Runs `true` as the tool would.
fn tried(landlock: Landlock) -> anyhow::Result<Report> {
    if !landlock.is_newest() {
        let not_alone = Some("an older kernel is played".to_owned());
        return Ok(Report {
            not_alone,
            ..Report::default()
        });
    }
    let system = ["/usr", "/bin", "/lib", "/lib64", "/etc", "/nix/store"];
    let grants = Grants {
        read: system.map(PathBuf::from).into(),
        landlock,
        ..Grants::default()
    };
    let workspace = Anchor::open(Path::new("/"))?;
    let command: [OsString; 3] = ["/bin/sh".into(), "-c".into(), "exit 0".into()];
    let mut keeper = Command::new(itself()?);
    let mut kept = keeper
        .args([KEEP, ALONE])
        .args(sandbox::arguments(Some(&grants), &workspace, &command))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    // When nobody has its other end the command is ended.
    let alive = kept.stdin.take();
    let ended = kept.wait_with_output()?;
    drop(alive);
    Ok(serde_json::from_slice(&ended.stderr)?)
}
