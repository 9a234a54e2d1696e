//! `agentctl`: the command line of agentd, with the HTTP server that it can start. Owns nothing:
//! `agentd_client::cli` and `agentd_serve` do.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentd_client::cli::run(std::env::args_os(), agentd_serve::run).into()
}
