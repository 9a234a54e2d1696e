//! timmy, the agent that comes with agentd: a worker like any other.
//!
//! Owns its command line and exit codes. This version has no model: its only provider is `echo`,
//! which plays the prompt back, so that everything around an agent can be tried without one.

#![allow(dead_code, reason = "the parts are put together by `turn`")]

mod config;
mod echo;
mod failover;
mod line;
mod message;
mod model;
mod provider;
mod rpc;
mod stdio;
mod tool;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::sync::{Notify, mpsc};

use line::{Line, Said};

/// The only provider of this version.
const ECHO: &str = "echo";
/// Lines that may wait for a slow reader.
const WAITING_LINES: usize = 64;
/// What was said before the end of input gets this long to be written.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);
/// `EX_CONFIG`: starting again will not help.
const CONFIG: u8 = 78;

/// The agent that comes with agentd.
#[derive(Parser, Debug)]
#[command(name = "timmy", version)]
#[command(group = clap::ArgGroup::new("form").required(true))]
struct Args {
    /// Serve the Clawdis Agent RPC on standard input and output
    #[arg(long, group = "form")]
    rpc: bool,
    /// Answer one prompt and leave
    #[arg(short, long, value_name = "TEXT", group = "form")]
    prompt: Option<String>,
    /// Where answers come from; this version offers only `echo`
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// With --prompt: print protocol lines instead of text
    #[arg(long, conflicts_with = "rpc")]
    json: bool,
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = tool::hidden(std::env::args_os()) {
        return code;
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _nobody_reads = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let provider = args.provider.as_deref();
    if provider.is_some_and(|name| name != ECHO) || (provider.is_none() && args.prompt.is_some()) {
        let found = provider.map_or("no provider was named".to_owned(), |name| {
            format!("there is no provider `{name}`")
        });
        complain(&found, Some("this version offers only provider `echo`"));
        return ExitCode::from(CONFIG);
    }
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("can't start: {error}"), None);
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(async {
        match args.prompt {
            Some(prompt) => alone(prompt, args.json).await,
            None => rpc::serve(provider.is_some()).await,
        }
    });
    // A blocked read of standard input must not keep the process.
    runtime.shutdown_background();
    code
}

/// Answers one prompt on standard output.
async fn alone(prompt: String, json: bool) -> ExitCode {
    if prompt.trim().is_empty() {
        complain("the prompt is blank", None);
        return ExitCode::from(2);
    }
    let (out, mut lines) = mpsc::channel(WAITING_LINES);
    let turn = async move {
        let line = Line { id: None, out };
        line.note(ECHO, echo::NOTE).await;
        echo::play(&prompt, &Arc::new(Notify::new()), &line).await;
    };
    let show = async {
        let mut code = ExitCode::SUCCESS;
        while let Some(said) = lines.recv().await {
            if said.kind == "error" {
                code = ExitCode::FAILURE;
            }
            let shown = if json {
                print(&said.render())
            } else {
                show(&said)
            };
            if shown.is_err() {
                return ExitCode::FAILURE;
            }
        }
        code
    };
    let ((), code) = tokio::join!(turn, show);
    code
}

fn print(line: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Shows a line to a person.
fn show(said: &Said) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match said.kind {
        "message_delta" => write!(stdout, "{}", said.text("text"))?,
        "message_end" => writeln!(stdout)?,
        "note" if std::io::stderr().is_terminal() => {
            writeln!(std::io::stderr(), "note: {}", said.text("text"))?;
        }
        "error" => complain(said.text("error"), None),
        _ => {}
    }
    stdout.flush()
}

fn complain(error: &str, hint: Option<&str>) {
    let mut stderr = std::io::stderr().lock();
    let _nobody_reads = writeln!(stderr, "error: {error}");
    let _nobody_reads = hint.map(|hint| writeln!(stderr, "hint: {hint}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_one_form_or_the_other() {
        let accepted = |line: &str| Args::try_parse_from(line.split(' ')).is_ok();
        for line in [
            "timmy --rpc",
            "timmy --rpc --provider echo",
            "timmy -p hi --json",
        ] {
            assert!(accepted(line), "{line}");
        }
        for line in [
            "timmy",
            "timmy --rpc -p hi",
            "timmy --rpc --json",
            "timmy x",
        ] {
            assert!(!accepted(line), "{line}");
        }
    }

    #[test]
    fn alone_it_fails_when_the_turn_does() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.unwrap();
        let code = |prompt: &str| runtime.block_on(alone(prompt.to_owned(), true));
        assert_eq!(code("hi [[tool]]"), ExitCode::SUCCESS);
        assert_eq!(code("hi [[error=timeout]]"), ExitCode::FAILURE);
        assert_eq!(code(" "), ExitCode::from(2));
    }
}
