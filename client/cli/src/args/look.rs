//! The words of the commands that look: how the daemon is, and what it did.

use std::path::PathBuf;
use std::time::Duration;

use agentd_protocol::JobId;
use agentd_terminal::style::Colours;
use clap::{Args, ValueEnum};

/// `--color`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum ColorArg {
    #[default]
    Auto,
    Always,
    Never,
}

impl From<ColorArg> for Colours {
    fn from(color: ColorArg) -> Self {
        match color {
            ColorArg::Auto => Self::Auto,
            ColorArg::Always => Self::Always,
            ColorArg::Never => Self::Never,
        }
    }
}

// What is stored can be read without a daemon.
#[derive(Args, Clone, Copy, Default, Debug)]
pub struct PastArgs {
    /// Fail rather than read the store without the daemon
    #[arg(long)]
    pub no_fallback: bool,
}

// `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// Everything about the workers; the exit code says whether one lives
    #[arg(long)]
    pub rpc: bool,
    /// Again each second, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// `logs`.
#[derive(Args, Clone, Debug)]
pub struct LogsArgs {
    /// Only of this job
    #[arg(long, value_name = "JOB", value_parser = crate::value::job)]
    pub job: Option<JobId>,
    /// Only of this session
    #[arg(long, short, value_name = "NAME")]
    pub session: Option<String>,
    /// Only of this agent
    #[arg(long, short, value_name = "NAME", value_parser = crate::value::agent)]
    pub agent: Option<String>,
    /// Not older than this: 90s, 2h, 7d, today, yesterday
    #[arg(long, value_name = "SPAN", value_parser = crate::value::since)]
    pub since: Option<Duration>,
    /// At most so many lines, the last ones
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 1000, value_parser = crate::value::number::<usize>)]
    pub lines: usize,
    /// Then go on with what is logged, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
    /// One JSON object on each line
    #[arg(long, short)]
    pub json: bool,
}

// `usage`.
#[derive(Args, Clone, Debug)]
pub struct UsageArgs {
    /// Only turns accepted from then on, up to now: 90s, 2h or 7d ago, today, yesterday
    #[arg(long, value_name = "SPAN", value_parser = crate::value::since)]
    pub since: Option<Duration>,
    /// By what it is added up; by several at once with commas: day,agent
    #[arg(long, value_enum, value_delimiter = ',', default_value = "provider")]
    pub by: Vec<UsageBy>,
    /// One JSON object
    #[arg(long, short, conflicts_with = "csv")]
    pub json: bool,
    /// One line for each sum, with a head
    #[arg(long)]
    pub csv: bool,
    /// Without a daemon.
    #[command(flatten)]
    pub past: PastArgs,
}

/// `--by`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum UsageBy {
    Agent,
    Provider,
    Model,
    Day,
    Session,
}

// `export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// Only this session, with its jobs
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    pub of: Option<String>,
    /// The same
    #[arg(long, short, value_name = "NAME", hide = true)]
    pub session: Option<String>,
    /// A file that is not there yet, instead of standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Without a daemon.
    #[command(flatten)]
    pub past: PastArgs,
}

// `log-level`.
#[derive(Args, Clone, Debug)]
pub struct LogLevelArgs {
    /// error, warn, info, debug, trace, off, or a list as in `info,agentd_daemon::store=debug`;
    /// without it the level in force is printed
    #[arg(value_name = "LEVEL")]
    pub level: Option<String>,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// `doctor`.
#[derive(Args, Clone, Copy, Debug)]
pub struct DoctorArgs {
    /// Repair what is safe to repair: modes, missing directories, a stale alias
    #[arg(long)]
    pub fix: bool,
    /// Also ask agents for their versions, read the whole store, and try voice targets
    #[arg(long)]
    pub full: bool,
    /// You have seen what the store lost: it is told no more
    #[arg(long)]
    pub accept_loss: bool,
    /// One JSON object
    #[arg(long, short)]
    pub json: bool,
}
