//! A daemon's turns end before it is told to leave for another one.
//!
//! Owns how long they are waited for, and what is said meanwhile: who looks, answers or aborts is served,
//! and what is sent is accepted for the next daemon. Must not know how a daemon is told to leave, nor
//! what is started then.

use std::collections::BTreeSet;
use std::path::Path;

use agentd_protocol::request::{Drain, RestartWorker};
use agentd_protocol::{Code, RequestKind};

use super::{ask, control, output};
use agentd_client::asked::RequestError;
use agentd_client::client::Client;
use agentd_client::wire::Nothing;

/// Did the turns end, or was their time over?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    Yes,
    /// Somebody pressed Ctrl-C: it goes on as before.
    Interrupted,
}

/// Lets running turns end, for at most so many seconds, and says which of them keep it up.
pub(super) async fn drain(client: &mut Client, socket: Option<&Path>, deadline: f64) -> Left {
    let fields = Drain {
        deadline: Some(deadline),
        // Should this process be ended, it goes on as before.
        while_connected: true,
    };
    let asking = client.answer(RequestKind::Drain, &fields);
    tokio::pin!(asking);
    let all = RestartWorker::default();
    let mut told = BTreeSet::new();
    let asked = loop {
        tokio::select! {
            asked = &mut asking => break asked,
            _pressed = tokio::signal::ctrl_c() => return Left::Interrupted,
            () = control::tell_late(socket, &all, NOW, &mut told) => {}
        }
    };
    match asked {
        Ok(_) => {}
        Err(RequestError::Refused(error)) if error.code == Code::Timeout => {
            output::note(&format!(
                "after {deadline} s the turns that still run are interrupted"
            ));
        }
        Err(RequestError::Refused(error)) if error.code != Code::Draining => {
            output::note(&format!(
                "running turns are not waited for: {}",
                error.error
            ));
        }
        // It leaves by itself, or is asked once more by who asked for this.
        Err(_) => {}
    }
    Left::Yes
}

/// What ends the wait.
const NOW: &str = "`agentctl restart --now` waits for no turn";

/// Turns start again, as nobody leaves.
pub(super) async fn undrain(socket: Option<&Path>) {
    let undone = match ask::connect(socket).await {
        Ok(mut client) => client
            .answer(RequestKind::Undrain, &Nothing {})
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
