//! `service restart`: one daemon leaves when its turns are done, the next takes its place.
//!
//! Owns the order: no turn starts any more, running ones end or are interrupted, the daemon
//! leaves, the service manager starts the next. What is sent meanwhile waits: accepted in the
//! store, or in the socket's queue. Must not know how the service manager is told.

use std::time::Duration;

use agentd_protocol::Code;
use agentd_protocol::request::{DaemonStop, Drain};

use super::super::args::ServiceRestartArgs;
use super::super::exit::Exit;
use super::super::output;
use super::installation::Installation;
use super::step::{self, Mode};
use super::{Done, Manager, State, Trouble, connect, installed, verify};
use crate::asked::{Asking, RequestError};
use crate::client::Client;
use crate::wire::Nothing;

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
            verify(&state.socket(&of)).await?;
            Ok(Exit::Done)
        }
    }
}

/// Says what [`gently`] would do.
pub(super) fn show(state: &State, of: &Installation, deadline: f64) -> Done<()> {
    step::perform(&state.reload(), Mode::Show)?;
    if state.pid().is_some() {
        output::out_line(&format!(
            "would ask     the daemon to end its turns within {deadline} s and to leave"
        ))?;
    }
    step::perform(&state.start(of), Mode::Show)?;
    Ok(())
}

/// Did the daemon leave?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    Yes,
    /// Somebody pressed Ctrl-C: it goes on as before.
    Interrupted,
}

/// Replaces the daemon by another one of what is installed now.
pub(super) async fn gently(of: &Installation, deadline: f64) -> Done<Left> {
    let state = Manager::ask()?;
    // Before the daemon leaves: who waits in the socket's queue starts the next one.
    step::perform(&state.reload(), Mode::Do)?;
    let Some(pid) = state.pid() else {
        step::perform(&state.start(of), Mode::Do)?;
        return Ok(Left::Yes);
    };
    let socket = state.socket(of);
    match connect(Some(&socket)).await {
        Ok(client) if client.hello.pid != pid => Err(Trouble::Outsider(client.hello.pid)),
        Ok(mut client) => {
            if drain(&mut client, deadline).await == Left::Interrupted {
                undrain(&state, of).await;
                return Ok(Left::Interrupted);
            }
            leave(client).await;
            step::perform(&state.start(of), Mode::Do)?;
            Ok(Left::Yes)
        }
        Err(error) => {
            output::note(&format!(
                "the daemon does not answer ({error}), so it is not asked to end its turns"
            ));
            step::perform(&state.restart_hard(of), Mode::Do)?;
            Ok(Left::Yes)
        }
    }
}

async fn drain(client: &mut Client, deadline: f64) -> Left {
    let fields = Drain {
        deadline: Some(deadline),
    };
    let asked = client.answer("drain", &fields, Asking::ChangesLong);
    let asked = tokio::select! {
        asked = asked => asked,
        _pressed = tokio::signal::ctrl_c() => return Left::Interrupted,
    };
    match asked {
        Ok(_) => {}
        Err(RequestError::Refused(error)) if error.code == Code::Timeout => {
            output::note(&format!(
                "after {deadline} s turns are interrupted: {}",
                error.error
            ));
        }
        Err(error) => output::note(&format!("running turns are not waited for: {error}")),
    }
    Left::Yes
}

async fn undrain(state: &State, of: &Installation) {
    let socket = state.socket(of);
    let undone = match connect(Some(&socket)).await {
        Ok(mut client) => client
            .answer("undrain", &Nothing {}, Asking::Changes)
            .await
            .is_ok(),
        Err(_) => false,
    };
    output::note(if undone {
        "interrupted: the daemon goes on as before"
    } else {
        "interrupted: the daemon starts no turns until `agentctl undrain`"
    });
}

/// Tells it to leave, and waits until it has.
async fn leave(mut client: Client) {
    let fields = DaemonStop {
        deadline: Some(0.0),
        restart: true,
    };
    let asked = client.answer("daemon.stop", &fields, Asking::ChangesLong);
    if let Err(error) = asked.await {
        output::note(&format!("the daemon was told to leave: {error}"));
    }
    let closed = async { while client.next().await.is_ok() {} };
    // One that stays is ended by the service manager.
    let _stays = tokio::time::timeout(LEAVES_WITHIN, closed).await;
}
