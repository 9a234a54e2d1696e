//! The words of the commands that change what the daemon does, or watch it.
//!
//! Owns names and help. Must not know what a command does.

use agentd_protocol::JobId;
use clap::Args;

// `abort`.
#[derive(Args, Clone, Debug)]
pub struct AbortArgs {
    /// One job
    #[arg(value_name = "JOB", conflicts_with = "session")]
    pub job: Option<JobId>,
    /// The turn in flight of a session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// What waits in that session, too
    #[arg(long, requires = "session")]
    pub queued: bool,
    /// Print the protocol's own line
    #[arg(long)]
    pub json: bool,
}

// `watch`.
#[derive(Args, Clone, Debug)]
pub struct WatchArgs {
    /// Only this session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Only this job; may be given again
    #[arg(long = "job", value_name = "JOB", conflicts_with = "session")]
    pub jobs: Vec<JobId>,
    /// First what happened after this `seq`
    #[arg(long, value_name = "SEQ")]
    pub after: Option<u64>,
    /// The store that the `seq` is of: of another one, it is refused
    #[arg(long, requires = "after", value_name = "EPOCH")]
    pub epoch: Option<String>,
    /// Text piece by piece, as it comes, instead of each message when it is whole
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// Print the protocol's own lines
    #[arg(long)]
    pub json: bool,
}

// `restart`.
#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["agent", "session"])))]
pub struct RestartArgs {
    /// All processes of this agent
    #[arg(value_name = "AGENT")]
    pub agent: Option<String>,
    /// The process of this session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Don't wait for running turns
    #[arg(long)]
    pub now: bool,
}

// `stop` and `drain`.
#[derive(Args, Clone, Debug)]
pub struct DeadlineArgs {
    /// How long running turns get: 90s, 10m, or seconds
    #[arg(long, value_name = "TIME", value_parser = crate::value::not_negative, allow_hyphen_values = true)]
    pub deadline: Option<f64>,
}
