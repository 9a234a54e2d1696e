//! A turn where no daemon runs: shall one be started?
//!
//! Owns who is asked, and that it is asked once: the answer is `client.start` of config.toml, which
//! the daemon's program writes. Must not know how a daemon is started (`daemon`). Nobody is asked
//! where no person can answer, and a no leaves the turn to a one-shot, where it can be one.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use agentd_base::{configuration, settings, trusted};
use serde::Deserialize;

use super::daemon::{self, Up};
use super::turn::NextDaemon;
use super::{config, cut_off, output, service, terminal};
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::Lock;
use agentd_client::places::{self, Environment};

/// What the configuration says about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Start {
    Ask,
    Always,
    Never,
}

#[derive(Default, Deserialize)]
struct OfClient {
    #[serde(default)]
    client: ClientTable,
}

#[derive(Default, Deserialize)]
struct ClientTable {
    start: Option<Start>,
}

/// Is what goes well told, too?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notes {
    Told,
    /// As with `--quiet`: only what goes wrong is.
    LeftOut,
}

impl Notes {
    pub(super) const fn of(quiet: bool) -> Self {
        match quiet {
            true => Self::LeftOut,
            false => Self::Told,
        }
    }
}

/// Before a turn is sent: sees to a daemon, where that is wanted.
pub(super) async fn daemon(socket: Option<&Path>, notes: Notes) -> io::Result<()> {
    // Who names a place means what is there.
    if socket.is_some() {
        return Ok(());
    }
    let environment = Environment::of_process();
    let endpoint = LocalEndpoint::find(None, &environment);
    let has_socket = has_socket(&endpoint);
    // Mostly it is a daemon's, and what a disk that hangs would say of wishes isn't needed.
    if has_socket && is_served(&endpoint, &environment) {
        return Ok(());
    }
    let wish = wish();
    let may_be = match wish {
        Start::Never => false,
        Start::Ask => io::stdin().is_terminal() && output::err_is_terminal(),
        Start::Always => true,
    };
    // Without one, who is there takes longer to find out than what is wished.
    if !may_be || !has_socket && is_served(&endpoint, &environment) {
        return Ok(());
    }
    if wish == Start::Always || asked()? {
        let note = begin().await;
        if let Some(note) = note.filter(|_| notes == Notes::Told) {
            output::note(&note);
        }
    }
    Ok(())
}

/// The daemon that follows one that was killed.
pub(super) const NEXT: NextDaemon = NextDaemon {
    is_needed: needs_the_next,
    begin: || Box::pin(begin()),
};

/// Was the daemon killed, and is another one always wanted? One that was told to stop has taken its
/// socket along, and stays stopped.
fn needs_the_next() -> bool {
    let environment = Environment::of_process();
    let endpoint = LocalEndpoint::find(None, &environment);
    let is_killed = has_socket(&endpoint) && endpoint.is_left();
    is_killed && !is_served(&endpoint, &environment) && wish() == Start::Always
}

/// Nobody connects to find out more: that would be a service manager's sign to start a daemon.
fn has_socket(endpoint: &LocalEndpoint) -> bool {
    std::fs::symlink_metadata(&endpoint.path).is_ok()
}

/// Is somebody there, or is it the service's to start one?
fn is_served(endpoint: &LocalEndpoint, environment: &Environment) -> bool {
    endpoint.lock() != Lock::Free
        // No daemon could start there.
        || endpoint.disk_answers().is_err()
        || (has_socket(endpoint) && !endpoint.is_left())
        || service::is_there()
        || places::foreign_state(environment).is_some()
}

/// Starts one, and gives what is to be said of it.
async fn begin() -> Option<String> {
    match daemon::detached(None).await {
        Ok(Up::Already(client)) => {
            client.close().await;
            None
        }
        Ok(Up::Fresh(mut client)) => {
            let pid = client.hello.pid;
            cut_off::tell(&mut client).await;
            client.close().await;
            Some(format!(
                "started agentd in the background (pid {pid}); `agentctl stop` stops it"
            ))
        }
        Err(why) => {
            output::note(&why.error);
            if let Some(hint) = why.hint {
                output::note(&hint);
            }
            None
        }
    }
}

/// What config.toml says; what can't be read is for the daemon's program to complain about.
fn wish() -> Start {
    let Some(file) = file() else {
        return Start::Never;
    };
    match trusted::check(&file).map(|()| settings::read(&file)) {
        Ok(Ok(text)) => wish_of(&text),
        Ok(Err(_)) | Err(_) => Start::Never,
    }
}

fn wish_of(text: &str) -> Start {
    let read: Result<OfClient, _> = toml::from_str(text);
    read.map_or(Start::Never, |read| read.client.start.unwrap_or(Start::Ask))
}

/// As the daemon's program would find it.
pub(super) fn file() -> Option<PathBuf> {
    configuration::file(&|name| std::env::var_os(name))
}

/// Asks whoever sits there, and keeps the answer.
fn asked() -> io::Result<bool> {
    output::err(
        "No daemon runs here. With one, turns answer faster, wait in one queue, and are kept.\n",
    );
    let question = "Start agentd in the background, now and whenever it is needed? [Y/n] ";
    let mut line = terminal::ask_line(question)?;
    loop {
        let Some(typed) = line else {
            output::err("\n");
            return Ok(false);
        };
        let wanted = match typed.trim().to_lowercase().as_str() {
            "" | "y" | "yes" => true,
            "n" | "no" => false,
            _ => {
                line = terminal::ask_again("y or n? ")?;
                continue;
            }
        };
        keep(wanted);
        return Ok(wanted);
    }
}

fn keep(wanted: bool) {
    let word = if wanted { "always" } else { "never" };
    if !config::is_kept(&["config", "set", "client.start", word]) {
        output::note("the answer can't be kept, so this will be asked again");
        return;
    }
    let file = file().unwrap_or_default();
    let kept = format!("`client.start = \"{word}\"` is in {} now", file.display());
    output::note(&match wanted {
        true => format!("{kept}; `agentctl config set client.start ask` asks again"),
        false => format!(
            "{kept}: each turn runs by itself; `agentctl start` starts a daemon, and `agentctl \
             config set client.start ask` asks again"
        ),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_asked_for_unless_configured() {
        for (text, wish) in [
            ("", Start::Ask),
            (
                "default_agent = \"x\"\n[agents.x]\nkind = \"exec\"",
                Start::Ask,
            ),
            ("[client]\n", Start::Ask),
            ("[client]\nstart = \"always\"", Start::Always),
            ("client.start = 'never'", Start::Never),
            // Nobody is asked by a file that is broken: the turn says so.
            ("[client]\nstart = \"soon\"", Start::Never),
            ("[client", Start::Never),
        ] {
            assert_eq!(wish_of(text), wish, "{text}");
        }
    }
}
