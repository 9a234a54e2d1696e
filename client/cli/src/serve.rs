//! `serve`: the daemon in front of programs that speak another protocol.
//!
//! Owns what each is told of this process: options, directories, the environment. Must not know these
//! protocols.

pub(super) mod gateway;
pub(super) mod pi;
mod pi_models;

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use agentd_client::client::{Attended, Options};
use agentd_client::fallback::Fallback;
use agentd_client::oneshot::{self, Asks};
use agentd_client::ssh::Target;
use agentd_client::{key, stdio};
use agentd_faces::face::Face;
use agentd_faces::mcp::{Mcp, Settings};
use agentd_faces::{acp, bridge, driver};
use agentd_serve::{OnLeave, ServeError};
use agentd_terminal::output;

use crate::args::{AcpArgs, BridgeArgs, HttpArgs, McpArgs};
use crate::exit::Exit;
use crate::stop_signal::StopSignals;

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

/// How a face reaches the daemon.
fn options(socket: Option<&Path>, no_fallback: bool, name: &str, attended: Attended) -> Options {
    Options {
        socket: socket.map(Path::to_owned),
        fallback: if no_fallback {
            Fallback::Forbidden
        } else {
            Fallback::Allowed
        },
        name: name.to_owned(),
        attended,
        asks: Asks::Anything,
    }
}

/// Where a client works. A directory of this machine is none of another one.
fn here(socket: Option<&Path>) -> Option<String> {
    match socket.and_then(Target::of_socket) {
        None => std::env::current_dir().ok().map(text),
        Some(_) => None,
    }
}

fn text(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
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
    let options = options(socket, no_fallback, "agentd-mcp", Attended::No);
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
    // The editor is asked what agents ask.
    let options = options(socket, args.no_fallback, "agentd-acp", Attended::Yes);
    // Enough that no two faces make the same name, and short enough to be read.
    let nonce = key::random()?.chars().take(12).collect();
    let mut face = acp::Acp::new(args.agent, nonce);
    let (input, output) = (stdio::input(), stdio::output());
    driver::run(&mut face, &options, input, output).await?;
    Ok(Exit::Done)
}

/// A host's lines on standard input and output, until it leaves.
pub(super) async fn bridge(args: BridgeArgs, socket: Option<&Path>) -> io::Result<Exit> {
    for (option, given) in [("--api-key", &args.api_key), ("--base-url", &args.base_url)] {
        if given.is_some() {
            output::error(
                &format!("`{option}` is not taken: agents have their own keys and addresses"),
                Some("`agentctl provider add` gives timmy one; then say `--model PROVIDER/MODEL`"),
            );
            return Ok(Exit::Usage);
        }
    }
    if args.max_iterations.is_some() {
        output::note("`--max-iterations` is not heeded: agents have their own limits");
    }
    let options = options(socket, args.no_fallback, "agentd-bridge", Attended::No);
    let settings = bridge::Settings {
        agent: args.agent,
        here: here(socket),
        once: args.once,
        defaults: bridge::Defaults {
            cwd: args.cwd.map(text),
            model: args.model,
            toolsets: args.toolsets,
            disabled_toolsets: args.disabled_toolsets,
            max_iterations: args.max_iterations,
            deltas: args.assistant_delta,
            chunk: args
                .assistant_delta_chunk_size
                .and_then(|size| usize::try_from(size).ok()),
            native: !args.no_native_assistant_delta,
            native_stream: args.native_stream,
            first_chunk_ms: args.stream_first_chunk_timeout_ms,
            idle_ms: args.stream_idle_timeout_ms,
        },
        nonce: key::random()?,
        clock: SystemTime::now,
    };
    until_signalled(bridge::Bridge::new(settings), &options).await
}

/// A face over standard input and output, until its client leaves or a signal ends it.
async fn until_signalled(mut face: impl Face, options: &Options) -> io::Result<Exit> {
    let mut signals = StopSignals::hear()?;
    let mut exit = Exit::Done;
    let stop = async { exit = signals.next().await.into() };
    let ends = (stdio::input(), stdio::output());
    driver::run_until(&mut face, options, ends, stop).await?;
    Ok(exit)
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
