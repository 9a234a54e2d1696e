//! `serve`: the daemon in front of programs that speak another protocol.
//!
//! Owns what each is told of this process: options, directories, the environment. Must not know these
//! protocols.

use std::io;
use std::path::{Path, PathBuf};

use agentd_client::client::{Attended, Options};
use agentd_client::fallback::Fallback;
use agentd_client::oneshot::{self, Asks};
use agentd_client::ssh::Target;
use agentd_client::{key, stdio};
use agentd_faces::mcp::{Mcp, Settings};
use agentd_faces::{acp, driver};
use agentd_serve::{OnLeave, ServeError};
use agentd_terminal::output;

use crate::args::{AcpArgs, HttpArgs, McpArgs};
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

/// ACP on standard input and output, until the editor leaves; or what has an editor start it.
pub(super) async fn acp(args: AcpArgs, socket: Option<&Path>) -> io::Result<Exit> {
    if args.bootstrap {
        let program = oneshot::lasting(std::env::current_exe()?);
        let words = words(&args, socket);
        output::out_line(&acp::entries(&program.to_string_lossy(), &words))?;
        return Ok(Exit::Done);
    }
    let options = Options {
        socket: socket.map(Path::to_owned),
        fallback: if args.no_fallback {
            Fallback::Forbidden
        } else {
            Fallback::Allowed
        },
        name: "agentd-acp".to_owned(),
        // The editor is asked what agents ask.
        attended: Attended::Yes,
        asks: Asks::Anything,
    };
    // Enough that no two faces make the same name, and short enough to be read.
    let nonce = key::random()?.chars().take(12).collect();
    let mut face = acp::Acp::new(args.agent, nonce);
    let (input, output) = (stdio::input(), stdio::output());
    driver::run(&mut face, &options, input, output).await?;
    Ok(Exit::Done)
}

/// The same command once more, as an editor runs it.
fn words(args: &AcpArgs, socket: Option<&Path>) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(socket) = socket {
        words.extend(["--socket".to_owned(), socket.to_string_lossy().into_owned()]);
    }
    words.extend(["serve", "acp"].map(str::to_owned));
    if let Some(agent) = &args.agent {
        words.extend(["--agent".to_owned(), agent.clone()]);
    }
    if args.no_fallback {
        words.push("--no-fallback".to_owned());
    }
    words
}

/// Where the user of the program that started us works. Programs of a desktop start servers at the root:
/// that is nobody's project.
fn project() -> Option<PathBuf> {
    let told = std::env::var_os("CLAUDE_PROJECT_DIR").map(PathBuf::from);
    let told = told.filter(|dir| dir.is_absolute());
    let here = || std::env::current_dir().ok();
    told.or_else(here).filter(|dir| dir.parent().is_some())
}
