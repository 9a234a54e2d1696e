//! The words of every command.
//!
//! Owns names and help. Must not know what a command does.

use std::path::PathBuf;

use agentd_client::ssh::Target;
use clap::Args;

use super::ColorArg;

/// Above the options that every command has.
const ELSEWHERE: &str = "Options of every command";

// What every command has.
#[derive(Args, Debug)]
pub struct EverywhereArgs {
    /// The daemon's socket, instead of `$AGENTD_SOCKET` or the default
    #[arg(long, global = true, value_name = "PATH", help_heading = ELSEWHERE)]
    pub socket: Option<PathBuf>,
    /// The daemon of another machine, by ssh
    #[arg(
        long,
        global = true,
        value_name = "[USER@]HOST[:PORT]",
        help_heading = ELSEWHERE,
        conflicts_with = "socket"
    )]
    pub host: Option<Target>,
    /// When to write in colours; `NO_COLOR` and `CLICOLOR_FORCE` count, too
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_default_value = true,
        help_heading = ELSEWHERE
    )]
    pub color: ColorArg,
}
