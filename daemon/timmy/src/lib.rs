//! timmy, the agent that comes with agentd: a worker like any other.
//!
//! Owns its command line and exit codes. Must not know how a turn is played.

mod alone;
mod cli;
mod config;
mod echo;
mod failover;
mod line;
mod local_env;
mod message;
#[cfg(test)]
#[path = "../../../tests/it/mock_model/mod.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "shared with the tests from outside, which look at more of it"
)]
mod mock_model;
mod model;
mod price;
mod provider;
#[cfg(test)]
#[path = "../../../tests/fuzz/replay.rs"]
mod replay;
mod rpc;
mod send;
mod session;
#[cfg(test)]
#[path = "../../../tests/skips.rs"]
mod skips;
mod tool;
mod turn;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use agentd_terminal::output;
use clap::{CommandFactory as _, Parser};

use config::no_model::CalledAs;
use local_env::LocalEnv;
use send::{Agent, ModelSelection};
use session::store::Store;

/// What has to hold of timmy's tables, whatever is in them; for the fuzzer.
#[cfg(feature = "fuzzing")]
pub fn fuzz_config(bytes: &[u8]) {
    config::fuzzing::toml(bytes);
}

/// The scripted provider.
const ECHO: &str = "echo";
/// Lines that may wait for a slow reader.
const WAITING_LINES: usize = 64;
/// What was said before the end of input gets this long to be written.
const LEAVE_WITHIN: Duration = Duration::from_secs(4);
/// `EX_CONFIG`: starting again will not help.
const CONFIG: u8 = 78;

/// The agent that comes with agentd.
#[derive(Parser, Debug)]
#[command(
    name = "timmy",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  timmy -p \"what does this repository do?\" --toolsets file
  timmy provider add gemini
  timmy models status

`timmy provider --help` and `timmy models --help` say how models are found.
Exit codes: 0 done, 1 failed, 2 usage, 78 configuration, 130 interrupted"
)]
#[command(group = clap::ArgGroup::new("form").required(true))]
struct Args {
    /// Serve the Clawdis Agent RPC on standard input and output
    #[arg(long, group = "form")]
    rpc: bool,
    /// Answer one prompt and leave
    #[arg(short, long, value_name = "TEXT", group = "form")]
    prompt: Option<String>,
    /// Where answers come from; `echo` says the prompt back without any model
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Which model, as `provider/model` or a name of [models.aliases]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// How hard to think: off, minimal, low, medium, high or max
    #[arg(long, value_name = "LEVEL")]
    thinking: Option<String>,
    /// What to ask when the model fails, in this order
    #[arg(long, value_name = "MODEL", value_delimiter = ',')]
    fallback: Option<Vec<String>>,
    /// With --prompt: print protocol lines instead of text
    #[arg(long, conflicts_with = "rpc")]
    json: bool,
    /// With --prompt: go on with the conversation of this name, or begin it
    #[arg(long, value_name = "NAME", conflicts_with = "rpc")]
    session: Option<String>,
    /// With --prompt: the tools, as file,terminal,web
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "rpc"
    )]
    toolsets: Option<Vec<String>>,
    /// With --prompt: the directory to work in
    #[arg(long, value_name = "DIR", conflicts_with = "rpc")]
    cwd: Option<PathBuf>,
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    // Before anything else: a keeper makes its namespace with one thread, and needs no
    // configuration.
    if let Some(code) = tool::hidden(std::env::args_os()) {
        return code;
    }
    // Keys and prompts are in memory. It is not hidden besides: a sandbox is made by way of `/proc`.
    agentd_base::secrecy::leave_no_core();
    agentd_client::signals::outlive_large_files();
    let words: Vec<OsString> = std::env::args_os().collect();
    let named = |word: &OsString| cli::COMMANDS.iter().any(|command| word == command);
    if words.get(1).is_some_and(named) {
        return cli::run(words, Args::command());
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _nobody_reads = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let called = if args.rpc {
        CalledAs::Agentctl
    } else {
        CalledAs::Timmy
    };
    let env = match LocalEnv::of_process(called) {
        Ok(env) => env,
        Err(why) => {
            output::error(&why, None);
            return ExitCode::from(CONFIG);
        }
    };
    let state = env.state();
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            output::error(&format!("can't start: {error}"), None);
            return ExitCode::FAILURE;
        }
    };
    let agent = Agent {
        env: Arc::new(env),
        store: Arc::new(Store::new(state.join("timmy"))),
    };
    let code = runtime.block_on(async {
        let selection = ModelSelection {
            provider: args.provider.clone(),
            model: args.model.clone(),
            thinking: args.thinking.clone(),
            fallback_chain: args.fallback.clone(),
            timeout: None,
            usual_provider: None,
        };
        let code = match args.prompt.clone() {
            Some(prompt) => alone::answer(prompt, selection, &args, &agent).await,
            None => rpc::serve(selection, agent.clone()).await,
        };
        // However it ended: MCP servers are in groups of their own, which nobody else ends.
        agent.env.leave().await;
        code
    });
    // A blocked read of standard input must not keep the process.
    runtime.shutdown_background();
    code
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, Write as _};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;

    /// How a program ended that was hit by a signal after it had said a line; and the files that it
    /// left.
    fn hit(program: &std::path::Path, argument: &str, signal: Signal) -> (bool, usize) {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -c unlimited; exec \"$0\" \"$1\""])
            .arg(program)
            .arg(argument)
            .current_dir(dir.path())
            .env("HOME", dir.path())
            .env("XDG_STATE_HOME", dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"{\"type\":\"ping\",\"id\":1}\n").unwrap();
        let mut said = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut said).unwrap();
        assert!(said.contains("\"id\":1"), "{said}");
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal as i32));
        let cores = std::fs::read_dir(dir.path()).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().contains("core")
        });
        (status.core_dumped(), cores.count())
    }

    #[test]
    fn crash_leaves_no_core() {
        let (dumped, _) = hit("cat".as_ref(), "-", Signal::SIGABRT);
        if !dumped {
            return skips::say("cores: nothing that crashes here leaves one");
        }
        let timmy = tool::tests::rules().program;
        // Rust takes the first SIGSEGV itself.
        for signal in [Signal::SIGABRT, Signal::SIGTRAP] {
            assert_eq!(hit(&timmy, "--rpc", signal), (false, 0), "{signal}");
        }
    }

    #[test]
    fn command_line_is_one_form_or_another() {
        let accepted = |line: &str| Args::try_parse_from(line.split(' ')).is_ok();
        for line in [
            "timmy --rpc",
            "timmy --rpc --provider echo",
            "timmy -p hi --json",
            "timmy -p hi --session s --model a/b --toolsets file,web --fallback a/b,c/d",
        ] {
            assert!(accepted(line), "{line}");
        }
        for line in [
            "timmy",
            "timmy --rpc -p hi",
            "timmy --rpc --json",
            "timmy --rpc --session s",
            "timmy x",
        ] {
            assert!(!accepted(line), "{line}");
        }
    }
}
