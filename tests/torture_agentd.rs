//! The program `agentd` with its failpoints, for `cargo xtask torture`. Owns nothing.

use std::process::ExitCode;

fn main() -> ExitCode {
    agentd_daemon::cli::main()
}
