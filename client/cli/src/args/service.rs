//! The words of `service`.
//!
//! Owns names and help. Must not know what a command does.

use clap::{Args, Subcommand};

use super::JsonArgs;

// `service`.
#[derive(Args, Clone, Debug)]
pub struct ServiceArgs {
    /// What about it.
    #[command(subcommand)]
    pub command: ServiceCommand,
}

// What about the service.
#[derive(Subcommand, Clone, Debug)]
pub enum ServiceCommand {
    /// Let the service manager start agentd at login, restart it, and hold its socket
    #[command(after_help = "\
Examples:
  agentctl service install
  agentctl service install --dry-run

It may be run again at any time: after an upgrade it brings the service up to date. PATH and the
AGENTD_ and XDG_ variables that name agentd's files are the service's, too; keys belong into the
file `env` beside config.toml, as a service knows nothing of a shell.")]
    Install(ServiceChangeArgs),
    /// Stop the service and take it out; what was stored and configured stays
    #[command(after_help = "\
Examples:
  agentctl service uninstall
  agentctl service uninstall --dry-run")]
    Uninstall(ServiceChangeArgs),
    /// Start the service, also after it failed too often
    #[command(after_help = "Examples:\n  agentctl service start")]
    Start(ServiceChangeArgs),
    /// Stop the service and its socket; queued turns stay stored
    #[command(after_help = "Examples:\n  agentctl service stop")]
    Stop(ServiceChangeArgs),
    /// Let running turns end, then start the daemon anew, as after an upgrade
    #[command(after_help = "\
Examples:
  agentctl service restart
  agentctl service restart --deadline 600

Meanwhile new turns are accepted and wait; who connects in between waits for the new daemon.")]
    Restart(ServiceRestartArgs),
    /// Is it installed, does it run, does it answer?
    #[command(after_help = "\
Examples:
  agentctl service status
  agentctl service status --json

Exit codes: 0 it serves, 69 it doesn't, 70 it hangs, 71 it was stopped, 78 it is not installed")]
    Status(JsonArgs),
    /// What the service logged
    #[command(after_help = "\
Examples:
  agentctl service logs
  agentctl service logs -f")]
    Logs(ServiceLogsArgs),
}

// What changes something.
#[derive(Args, Clone, Copy, Debug)]
pub struct ServiceChangeArgs {
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

// `service restart`.
#[derive(Args, Clone, Copy, Debug)]
pub struct ServiceRestartArgs {
    /// How long running turns get before they are interrupted: 90s, 10m, or seconds
    #[arg(long, value_name = "TIME", default_value_t = 60.0, value_parser = crate::value::not_negative, allow_hyphen_values = true)]
    pub deadline: f64,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

// `service logs`.
#[derive(Args, Clone, Copy, Debug)]
pub struct ServiceLogsArgs {
    /// Go on printing what is logged
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last lines
    #[arg(short = 'n', long, value_name = "LINES", default_value_t = 100)]
    pub lines: u32,
}
