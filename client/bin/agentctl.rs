//! `agentctl`: the command line of agentd. Owns nothing: `agentd_cli` does.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentd_cli::run(std::env::args_os()).into()
}
