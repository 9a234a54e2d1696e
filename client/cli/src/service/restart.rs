//! `service restart` and `service stop`: a daemon leaves, and the next takes its place, or none.
//!
//! Owns the order of a restart: no turn starts any more, running ones end or are interrupted, the daemon
//! leaves, the service manager starts the next. What is sent meanwhile waits: accepted in the
//! store, or in the socket's queue. Must not know how the service manager is told.

use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::RequestKind;
use agentd_protocol::request::DaemonStop;
use tokio::task::JoinSet;

use super::super::args::{ServiceChangeArgs, ServiceRestartArgs};
use super::super::drain::{self, Left};
use super::super::exit::Exit;
use super::super::{ask, config_check, cut_off, output};
use super::installation::Installation;
use super::step::{self, Failed, Mode};
use super::{Done, Manager, ServiceState, Trouble, installed, mode, verify};
use agentd_client::client::Client;
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::Fact;
use agentd_client::places::Environment;

/// What running turns get when nothing is said.
pub(super) const DEADLINE: f64 = 60.0;
/// From the word to leave until the connection closes: turns that are interrupted, and the store.
const LEAVES_WITHIN: Duration = Duration::from_secs(45);

pub(super) async fn restart(args: ServiceRestartArgs) -> Done<Exit> {
    let (of, state) = installed()?;
    if args.dry_run {
        show(&state, &of, args.deadline)?;
        return Ok(Exit::Done);
    }
    match gently(&of, args.deadline).await? {
        Left::Interrupted => Ok(Exit::Interrupted),
        Left::Yes => {
            let mut client = verify(&state.socket(&of)).await?;
            cut_off::tell(&mut client).await;
            Ok(Exit::Done)
        }
    }
}

pub(super) async fn stop(args: ServiceChangeArgs) -> Done<Exit> {
    let (of, state) = installed()?;
    let (steps, mode) = (state.stop(&of), mode(args.dry_run));
    let is_told = mode == Mode::Do && state.pid().is_some();
    let mut hearing = JoinSet::new();
    if is_told && let Ok(mut client) = ask::connect(Some(&state.socket(&of))).await {
        cut_off::hear_turns(&mut client).await;
        hearing.spawn(cut_off::last_words(client, LEAVES_WITHIN));
    }
    let stopping = tokio::task::spawn_blocking(move || step::perform(&steps, mode));
    stopping
        .await
        .map_err(io::Error::other)
        .map_err(Failed::Output)??;
    if let Some(Ok(Some(cut))) = hearing.join_next().await {
        cut_off::tell_cut(&cut);
    }
    Ok(Exit::Done)
}

/// Says what [`gently`] would do.
pub(super) fn show(state: &ServiceState, of: &Installation, deadline: f64) -> Done<()> {
    step::perform(&state.reload(), Mode::Show)?;
    show_drain(state, deadline)?;
    step::perform(&state.start(of), Mode::Show)?;
    Ok(())
}

pub(super) fn show_drain(state: &ServiceState, deadline: f64) -> Done<()> {
    if state.pid().is_some() {
        output::out_line(&format!(
            "would ask     the daemon to end its turns within {deadline} s and to leave"
        ))?;
    }
    Ok(())
}

/// Replaces the daemon by another one of what is installed now.
pub(super) async fn gently(of: &Installation, deadline: f64) -> Done<Left> {
    let state = Manager::ask()?;
    // Before the daemon leaves: who waits in the socket's queue starts the next one.
    step::perform(&state.reload(), Mode::Do)?;
    if is_lost(&state, of, Mode::Do).await {
        output::note("its socket is gone, so nobody can ask it to end its turns: it is ended");
        step::perform(&state.stop(of), Mode::Do)?;
        step::perform(&state.start(of), Mode::Do)?;
        return Ok(Left::Yes);
    }
    let Some(pid) = state.pid() else {
        step::perform(&state.start(of), Mode::Do)?;
        return Ok(Left::Yes);
    };
    match quiet(pid, &state.socket(of), deadline).await? {
        Quiet::Interrupted => return Ok(Left::Interrupted),
        Quiet::Asked(client) => {
            // One that stays is ended; the next one may be there already.
            if leave(*client).await || Manager::ask()?.pid() != Some(pid) {
                step::perform(&state.start(of), Mode::Do)?;
            } else {
                output::note("the daemon does not leave, so it is ended");
                step::perform(&state.restart_hard(of), Mode::Do)?;
            }
        }
        Quiet::Silent => step::perform(&state.restart_hard(of), Mode::Do)?,
    }
    Ok(Left::Yes)
}

/// Does the manager listen where nobody gets to it? The socket's file was taken away, or another
/// one left in its place. Only shown, it is looked at alone: who connects starts the daemon.
pub(super) async fn is_lost(state: &ServiceState, of: &Installation, mode: Mode) -> bool {
    if !state.is_listening() {
        return false;
    }
    if mode == Mode::Show {
        return !state.socket(of).exists();
    }
    let endpoint = LocalEndpoint::find(Some(&state.socket(of)), &Environment::of_process());
    let connected = endpoint.connect().await;
    connected.is_err_and(|failed| matches!(failed.fact, Fact::NoSocket | Fact::Refused))
}

/// Lets the daemon end its turns, if there is one. It starts no others while what comes of it is
/// held.
pub(super) async fn drained(state: &ServiceState, of: &Installation, deadline: f64) -> Done<Quiet> {
    match state.pid() {
        Some(pid) => quiet(pid, &state.socket(of), deadline).await,
        None => Ok(Quiet::Silent),
    }
}

/// What came of asking it to end its turns.
pub(super) enum Quiet {
    Asked(Box<Client>),
    /// It doesn't answer.
    Silent,
    Interrupted,
}

async fn quiet(pid: u32, socket: &Path, deadline: f64) -> Done<Quiet> {
    match ask::connect(Some(socket)).await {
        // Somebody else may have restarted it meanwhile.
        Ok(client)
            if client.hello.pid != pid && Manager::ask()?.pid() != Some(client.hello.pid) =>
        {
            Err(Trouble::Outsider(client.hello.pid))
        }
        Ok(mut client) => {
            // What would not come up again is better left running.
            if let Some(unusable) = config_check::of_daemon(&mut client).await {
                return Err(Trouble::Configuration(unusable));
            }
            if drain::drain(&mut client, Some(socket), deadline).await == Left::Interrupted {
                drain::undrain(Some(socket)).await;
                return Ok(Quiet::Interrupted);
            }
            Ok(Quiet::Asked(Box::new(client)))
        }
        Err(error) => {
            output::note(&format!(
                "the daemon does not answer ({error}), so it is not asked to end its turns"
            ));
            Ok(Quiet::Silent)
        }
    }
}

/// Tells it to leave, and waits until it has. Did it?
async fn leave(mut client: Client) -> bool {
    let fields = DaemonStop {
        deadline: Some(0.0),
        restart: true,
    };
    cut_off::hear_turns(&mut client).await;
    let asked = client.answer(RequestKind::DaemonStop, &fields);
    if let Err(error) = asked.await {
        output::note(&format!("the daemon was told to leave: {error}"));
    }
    let cut = cut_off::last_words(client, LEAVES_WITHIN).await;
    if let Some(cut) = &cut {
        cut_off::tell_cut(cut);
    }
    cut.is_some()
}
