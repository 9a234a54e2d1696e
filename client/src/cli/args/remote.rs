//! The words of the commands that reach another machine.
//!
//! Owns their names and help. Must not know how it is reached.

use std::path::PathBuf;

use clap::Args;

use crate::cli::value;
use crate::ssh::Target;

/// `forward`.
#[derive(Args, Clone, Debug)]
pub struct ForwardArgs {
    /// The other machine
    #[arg(
        value_name = "[USER@]HOST[:PORT]",
        required_unless_present = "print_socket"
    )]
    pub to: Option<Target>,
    /// The socket here; without, HOST.sock beside this machine's own
    #[arg(long, value_name = "PATH")]
    pub local: Option<PathBuf>,
    /// Print where the socket of this machine's daemon is, and nothing else
    #[arg(long, conflicts_with_all = ["to", "local"])]
    pub print_socket: bool,
}

/// `ssh-key`.
#[derive(Args, Clone, Debug)]
pub struct SshKeyArgs {
    /// The machine that the key is to be for
    #[arg(value_name = "[USER@]HOST[:PORT]")]
    pub to: Target,
    /// The public key; without, the first that ssh would use for this machine
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Where `agentctl` is there, when it isn't on PATH
    #[arg(long, value_name = "PATH", value_parser = value::program)]
    pub program: Option<String>,
}
