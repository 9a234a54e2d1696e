//! The checks of `doctor` that need neither the daemon's files nor its configuration.
//!
//! Each is a function from what was seen to findings. Must not know their order.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use agentd_protocol::doctor::Finding;
use agentd_protocol::line::DaemonState;
use agentd_protocol::{Line, RequestKind, serde_json};
use nix::unistd::{Pid, getsid};
use tokio::process::Command;
use tokio::time::timeout;

use super::HostState;
use super::service::Manager;
use crate::process::environment_of;
use crate::{output, process, status};
use agentd_client::client::{Attended, Client, ClientError, Options};
use agentd_client::fallback::Fallback;
use agentd_client::health::Unwell;
use agentd_client::oneshot::{self, Asks};
use agentd_client::wire::Nothing;

/// A command of the sandbox ends at once; a machine under load takes its time.
const SANDBOX_WITHIN: Duration = Duration::from_secs(10);

/// Does it answer, and is it well?
pub(super) fn daemon(seen: &HostState<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let unwell = match seen.looked {
        Ok(healthy) => {
            let answer = &healthy.answer;
            let config = answer.daemon.config.as_ref();
            let older = config.and_then(|config| Some((config, config.refused.as_ref()?)));
            if let Some((config, why)) = older {
                let found = format!(
                    "the daemon uses the configuration of {}, as the newest does not count: {why}",
                    config.since
                );
                let remedy = "mend `config.toml`, `agentctl config edit` opens it: it counts as soon as \
                              it can be used";
                findings.push(Finding::problem("daemon", found, remedy));
            }
            let finding = match answer.state {
                // Its sentence says what stands above already.
                DaemonState::Ready if older.is_some() => return findings,
                DaemonState::Ready => Finding::ok("daemon", answer.details.clone()),
                DaemonState::Draining => Finding::warning(
                    "daemon",
                    answer.details.clone(),
                    "`agentctl undrain` lets turns start again",
                ),
                DaemonState::Degraded => Finding::problem(
                    "daemon",
                    answer.details.clone(),
                    "`agentctl logs` says since when; free some room, or look at the disk",
                ),
            };
            findings.push(finding);
            return findings;
        }
        Err(unwell) => unwell,
    };
    let remedy = status::hint(unwell).unwrap_or_else(|| "look at `agentctl logs`".to_owned());
    let found = unwell.to_string();
    // Without a daemon turns still run, once each.
    let is_down = matches!(unwell, Unwell::Client(ClientError::Unreachable { .. }));
    vec![if is_down && seen.endpoint.holder().is_none() {
        Finding::warning("daemon", format!("it is not running: {found}"), remedy)
    } else {
        Finding::problem("daemon", found, remedy)
    }]
}

/// Can anybody else reach the socket?
pub(super) fn socket(seen: &HostState<'_>) -> Vec<Finding> {
    let path = &seen.endpoint.path;
    let shown = path.display();
    let Ok(found) = fs::metadata(path) else {
        return Vec::new();
    };
    let ours = nix::unistd::Uid::effective().as_raw();
    let mode = found.mode() & 0o777;
    let elsewhere = "end the daemon, remove it, and start the daemon again";
    vec![if !found.file_type().is_socket() {
        Finding::problem("socket", format!("`{shown}` is no socket"), "move it away")
    } else if found.uid() != ours {
        let found = format!("`{shown}` belongs to uid {}, not to you", found.uid());
        Finding::problem("socket", found, "name your own with `AGENTD_SOCKET`")
    } else if mode & 0o077 != 0 && !is_private(path.parent()) {
        let found = format!("`{shown}` has mode {mode:04o}, in a directory that others may enter");
        Finding::problem("socket", found, elsewhere)
    } else {
        Finding::ok("socket", format!("`{shown}` is yours alone"))
    }]
}

fn is_private(dir: Option<&Path>) -> bool {
    dir.and_then(|dir| fs::metadata(dir).ok())
        .is_some_and(|dir| dir.mode() & 0o077 == 0)
}

/// Is the daemon of this version?
pub(super) fn version(seen: &HostState<'_>) -> Vec<Finding> {
    let Ok(healthy) = seen.looked else {
        return Vec::new();
    };
    let (ours, theirs) = (env!("CARGO_PKG_VERSION"), &healthy.answer.daemon.version);
    vec![if ours == theirs {
        Finding::ok("version", format!("agentctl and the daemon are {ours}"))
    } else {
        let found = format!("agentctl is {ours}, the daemon that runs is {theirs}");
        Finding::warning("version", found, "start the daemon again")
    }]
}

/// How a daemon runs that no service manager has.
fn without_service(seen: &HostState<'_>) -> &'static str {
    let Ok(healthy) = seen.looked else {
        return "`agentctl start` runs it";
    };
    // Who was started by `agentctl start` leads a session of its own.
    let pid = i32::try_from(healthy.answer.daemon.pid).map(Pid::from_raw);
    match pid.map(|pid| (pid, getsid(Some(pid)))) {
        Ok((pid, Ok(leader))) if leader != pid => "it runs in the foreground",
        Ok(_) | Err(_) => "it runs by itself, detached from any terminal",
    }
}

/// Is there a service, and does it run?
pub(super) fn service(seen: &HostState<'_>) -> Vec<Finding> {
    vec![match seen.manager {
        Manager::Absent(why) => Finding::ok(
            "service",
            format!(
                "no service manager for users here ({why}): {}",
                without_service(seen)
            ),
        ),
        Manager::There(unit) if unit.is_there() && !unit.is_installed() => Finding::ok(
            "service",
            "agentd.service is there and not enabled: `agentctl service install` makes use of it",
        ),
        Manager::There(unit) if !unit.is_installed() => Finding::ok(
            "service",
            format!(
                "agentd is not installed as a service: {}",
                without_service(seen)
            ),
        ),
        Manager::There(unit) if unit.is_failed() => Finding::problem(
            "service",
            format!("agentd.service has failed ({})", unit.get("Result")),
            "`agentctl service logs` says why; then `agentctl service start`",
        ),
        Manager::There(unit) if unit.is_active() || unit.socket_is_active() => Finding::ok(
            "service",
            format!(
                "agentd.service is {}, {}",
                unit.get("ActiveState"),
                unit.get("UnitFileState")
            ),
        ),
        Manager::There(_) => Finding::warning(
            "service",
            "agentd.service is installed and does not run",
            "`agentctl service start`",
        ),
    }]
}

/// Does the service outlive the last logout?
pub(super) fn linger(seen: &HostState<'_>) -> Vec<Finding> {
    let Manager::There(unit) = seen.manager else {
        return Vec::new();
    };
    if !unit.is_installed() {
        return Vec::new();
    }
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
    let Ok(Some(user)) = user else {
        return Vec::new();
    };
    let lingers = Path::new("/var/lib/systemd/linger")
        .join(&user.name)
        .exists();
    vec![if lingers {
        Finding::ok(
            "linger",
            "the service goes on after logout, and starts with the machine",
        )
    } else {
        let found = "the service ends at logout, and running turns with it";
        Finding::warning("linger", found, "`loginctl enable-linger`")
    }]
}

/// `PATH` as the daemon that runs has it, else as the service manager would give it.
pub(super) fn service_path(seen: &HostState<'_>) -> Option<OsString> {
    let running = seen
        .looked
        .as_ref()
        .ok()
        .map(|healthy| healthy.answer.daemon.pid);
    let of_daemon = running.and_then(|pid| variable_of(pid, "PATH"));
    let of_manager = || match seen.manager {
        Manager::There(unit) if unit.is_installed() => unit.path(),
        _ => None,
    };
    of_daemon.or_else(of_manager)
}

/// The names of the variables that the daemon has that runs, else that the service would have; none
/// where that isn't known, or there is no service.
pub(super) fn service_variables(seen: &HostState<'_>) -> Option<String> {
    let Manager::There(unit) = seen.manager else {
        return None;
    };
    if !unit.is_installed() {
        return None;
    }
    let running = seen.looked.as_ref().ok();
    let environment = running.and_then(|healthy| environment_of(healthy.answer.daemon.pid));
    Some(match environment {
        None => unit.variables().join(","),
        Some(environment) => names(&environment).join(","),
    })
}

/// Never the values. A name that isn't plain is nobody's key.
fn names(environment: &[u8]) -> Vec<String> {
    let pairs = environment.split(|byte| *byte == 0);
    let names = pairs.filter_map(|pair| pair.split(|byte| *byte == b'=').next());
    let names = names.filter_map(|name| String::from_utf8(name.to_vec()).ok());
    let is_plain = |name: &String| {
        let mut chars = name.chars();
        !name.is_empty() && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    names.filter(is_plain).collect()
}

fn variable_of(pid: u32, name: &str) -> Option<OsString> {
    let environment = environment_of(pid)?;
    let mut variables = process::variables(&environment);
    variables.find_map(|(known, value)| (known == OsStr::new(name)).then(|| value.to_owned()))
}

/// What holds commands of the built-in agent here: its program runs one, and says.
pub(super) async fn sandbox() -> Option<Finding> {
    let program = oneshot::sibling("timmy");
    let mut command = Command::new(&program);
    let asked = command
        .arg("__sandbox")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let printed = match timeout(SANDBOX_WITHIN, asked).await {
        Ok(Ok(printed)) => printed,
        // There is no such agent here.
        Ok(Err(_)) => return None,
        Err(_) => {
            let (shown, seconds) = (program.display(), SANDBOX_WITHIN.as_secs());
            let found = format!("`{shown}` did not say within {seconds} s what holds commands");
            return Some(Finding::problem(
                "sandbox",
                found,
                "`agentctl doctor` asks again",
            ));
        }
    };
    // One of another version; the check of versions says so.
    serde_json::from_slice(&printed.stdout).ok()
}

/// Every agent's program is asked for its version.
pub(super) async fn agents(socket: Option<&Path>) -> Vec<Finding> {
    let failed = |why: String| {
        let remedy = "`agentctl agents` asks again";
        vec![Finding::problem("versions", why, remedy)]
    };
    let options = Options {
        socket: socket.map(Path::to_owned),
        fallback: Fallback::Allowed,
        name: "agentctl doctor".to_owned(),
        attended: Attended::No,
        asks: Asks::Anything,
    };
    let mut client = match Client::connect_or_oneshot(options).await {
        Ok(client) => client,
        Err(error) => return failed(error.to_string()),
    };
    let answered = client.answer(RequestKind::Agents, &Nothing {}).await;
    client.close().await;
    let rows = match answered {
        Ok(received) => match received.line {
            Some(Line::Agents { agents, .. }) => agents,
            _ => return failed("the daemon did not say which agents there are".to_owned()),
        },
        Err(error) => return failed(error.to_string()),
    };
    rows.into_iter()
        .filter(|row| row.found != "looked-for")
        .map(|row| {
            let name = output::safe(&row.name).into_owned();
            let version = row
                .version
                .unwrap_or_else(|| "of unknown version".to_owned());
            match (row.usable, row.why_not, row.note) {
                (false, why, _) => {
                    let why = why.unwrap_or_else(|| "it does not say why".to_owned());
                    let found = format!("`{name}` can't be used: {why}");
                    Finding::warning("versions", found, format!("`agentctl agents test {name}`"))
                }
                (true, _, Some(note)) => {
                    let found = format!("`{name}` {version}: {note}");
                    Finding::warning("versions", found, format!("`agentctl agents test {name}`"))
                }
                (true, _, None) => Finding::ok("versions", format!("`{name}` {version}")),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_variables_only_the_names_are_told() {
        let environment = b"A_KEY=secret=1\0PATH=/bin\0b,c=2\0";
        assert_eq!(names(environment), ["A_KEY", "PATH"]);
    }
}
