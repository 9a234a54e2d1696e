//! `serve`: the daemon in front of programs that speak another protocol.
//!
//! Owns what each is told of this process: options, directories, the environment. Must not know these
//! protocols.

use std::io;
use std::path::{Path, PathBuf};

use agentd_client::client::{Attended, Options};
use agentd_client::fallback::Fallback;
use agentd_client::oneshot::Asks;
use agentd_client::ssh::Target;
use agentd_client::{key, stdio};
use agentd_faces::driver;
use agentd_faces::mcp::{Mcp, Settings};
use agentd_serve::{OnLeave, ServeError};
use agentd_terminal::output;

use crate::args::{HttpArgs, McpArgs};
use crate::exit::Exit;

/// What a process of an agent has, and its children inherit.
const INSIDE: &str = "AGENTD_INSTANCE";

/// HTTP, until it is to end.
pub(super) fn http(args: HttpArgs, socket: Option<&Path>) -> Exit {
    let HttpArgs {
        listen,
        hosts,
        origins,
        behind_tls_proxy,
        models,
        keep_turns,
    } = args;
    let options = agentd_serve::Options {
        listen,
        hosts,
        origins,
        behind_tls_proxy,
        on_leave: if keep_turns {
            OnLeave::GoOn
        } else {
            OnLeave::Cancel
        },
        models: models.into_iter().collect(),
    };
    let Err(error) = agentd_serve::run(&options, socket) else {
        return Exit::Done;
    };
    output::error(&error.to_string(), error.hint());
    match error {
        ServeError::Options { .. } => Exit::Usage,
        ServeError::Taken(_) => Exit::Refused,
        ServeError::Machine { .. } => Exit::Configuration,
        ServeError::Io(_) => Exit::Failed,
    }
}

/// MCP on standard input and output, until the client leaves.
pub(super) async fn mcp(args: McpArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let McpArgs {
        no_fallback,
        answers,
        abort_cancelled,
    } = args;
    let settings = Settings {
        // A directory of this machine is none of another one.
        cwd: match socket.and_then(Target::of_socket) {
            None => project(),
            Some(_) => None,
        },
        answers,
        abort_cancelled,
        scope: Some(std::os::unix::process::parent_id().to_string()),
        nonce: key::random()?,
        inside: std::env::var_os(INSIDE).is_some(),
    };
    let options = Options {
        socket: socket.map(Path::to_owned),
        fallback: if no_fallback {
            Fallback::Forbidden
        } else {
            Fallback::Allowed
        },
        name: "agentd-mcp".to_owned(),
        attended: Attended::No,
        asks: Asks::Anything,
    };
    let (input, output) = (stdio::input(), stdio::output());
    driver::run(&mut Mcp::new(settings), &options, input, output).await?;
    Ok(Exit::Done)
}

/// Where the user of the program that started us works. Programs of a desktop start servers at the root:
/// that is nobody's project.
fn project() -> Option<PathBuf> {
    let told = std::env::var_os("CLAUDE_PROJECT_DIR").map(PathBuf::from);
    let told = told.filter(|dir| dir.is_absolute());
    let here = || std::env::current_dir().ok();
    told.or_else(here).filter(|dir| dir.parent().is_some())
}
