//! `serve gateway`, also by a link that is called `hermes-gateway`.
//!
//! Owns what is told of this process. Must not know the protocol.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Instant;

use agentd_client::client::Attended;
use agentd_client::key;
use agentd_faces::gateway::{Gateway, Settings};

use super::{here, options, until_signalled};
use crate::args::GatewayArgs;
use crate::exit::Exit;

/// The words of a link that stands in for the Python of Hermes' TUI, which runs a module with it.
pub(crate) fn words(words: &[OsString]) -> Option<Vec<OsString>> {
    let (program, rest) = words.split_first()?;
    if Path::new(program).file_name()? != "hermes-gateway" {
        return None;
    }
    let rest = match rest {
        [flag, module, rest @ ..] if flag == "-m" && module == "tui_gateway.entry" => rest,
        _ => rest,
    };
    let ours = ["agentctl", "serve", "gateway"].map(OsString::from);
    Some(ours.iter().chain(rest).cloned().collect())
}

/// Hermes' gateway on standard input and output, until the client leaves.
pub(crate) async fn gateway(args: GatewayArgs, socket: Option<&Path>) -> io::Result<Exit> {
    // Its sessions outlive it: a run without the daemon would not.
    let options = options(socket, true, "agentd-gateway", Attended::Yes);
    let settings = Settings {
        agent: args.agent,
        here: here(socket),
        nonce: key::random()?,
    };
    until_signalled(Gateway::new(settings, Instant::now()), &options).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_link_takes_the_words_of_python() {
        let said = |line: &str| words(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let ours = |line: &str| Some(line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for (line, expected) in [
            (
                "/bin/hermes-gateway -m tui_gateway.entry",
                "agentctl serve gateway",
            ),
            (
                "hermes-gateway --agent pi",
                "agentctl serve gateway --agent pi",
            ),
        ] {
            assert_eq!(said(line), ours(expected));
        }
        assert_eq!(said("/bin/agentctl -m tui_gateway.entry"), None);
    }
}
