//! The program `agentd`. Owns nothing; `agentd_daemon` does.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentd_daemon::cli::main()
}
