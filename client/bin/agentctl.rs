//! `agentctl`: the command line of agentd. Owns nothing; `agentd_client::cli` does.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentd_client::cli::run(std::env::args_os()).into()
}
