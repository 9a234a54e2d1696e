//! The program `timmy`: the agent that comes with agentd.

use std::process::ExitCode;

fn main() -> ExitCode {
    timmy::main()
}
