//! Connecting for a turn, and what whoever waits for that is told.
//!
//! Owns these words. Must not know turns, nor when running without a daemon is right
//! (`agentd_client::fallback`).

use std::path::Path;
use std::time::Duration;

use super::output;
use agentd_client::client::{Attended, Client, ClientError, Options, Server};
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::{Fallback, Lock};
use agentd_client::oneshot::Asks;
use agentd_client::places::Environment;

/// Whoever waits so long for a daemon is told what for.
const TOLD_AFTER: Duration = Duration::from_secs(5);

/// Connects, or runs a one-shot, and says so once.
pub(super) async fn connect(
    socket: Option<&Path>,
    fallback: Fallback,
) -> Result<Client, ClientError> {
    connect_as(socket, fallback, Attended::No).await
}

/// The same for somebody who answers questions, or for nobody.
pub(super) async fn connect_as(
    socket: Option<&Path>,
    fallback: Fallback,
    attended: Attended,
) -> Result<Client, ClientError> {
    let options = Options {
        socket: socket.map(Path::to_owned),
        fallback,
        name: "agentctl".to_owned(),
        attended,
        asks: Asks::Anything,
    };
    let connecting = Client::connect_or_oneshot(options);
    tokio::pin!(connecting);
    let connected = tokio::select! {
        connected = &mut connecting => connected,
        () = tokio::time::sleep(TOLD_AFTER) => {
            tell_start(socket);
            connecting.await
        }
    };
    let client = connected?;
    tell_fallback(&client);
    Ok(client)
}

/// Whoever waits for a daemon that starts is told so.
fn tell_start(socket: Option<&Path>) {
    let endpoint = LocalEndpoint::find(socket, &Environment::of_process());
    if endpoint.lock() == Lock::Starting {
        let pid = endpoint.holder().map(|pid| format!(" (pid {pid})"));
        output::note(&format!(
            "waiting for the daemon{}, which is still starting: its store is large, or its disk hangs",
            pid.unwrap_or_default()
        ));
    }
}

pub(super) fn tell_fallback(client: &Client) {
    if let Some(reason) = client.fallback_reason() {
        output::note(&format!("{}; going on without it", reason.sentence()));
    }
    if let Server::Remote(remote) = client.server()
        && client.is_alone()
    {
        let target = remote.target();
        output::note(&format!(
            "no daemon serves on `{target}`; going on without it"
        ));
    }
}
