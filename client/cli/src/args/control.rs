//! The words of the commands that change what the daemon does, or watch it.
//!
//! Owns names and help. Must not know what a command does.

use agentd_protocol::JobId;
use clap::Args;

use crate::value::JobOrSession;

// `abort`.
#[derive(Args, Clone, Debug)]
pub struct AbortArgs {
    /// Jobs, or sessions whose turns in flight are meant
    #[arg(value_name = "JOB|SESSION", conflicts_with = "session", value_parser = crate::value::job_or_session)]
    pub what: Vec<JobOrSession>,
    /// The turn in flight of a session
    #[arg(long, short, value_name = "NAME")]
    pub session: Option<String>,
    /// What waits in that session, too
    #[arg(long)]
    pub queued: bool,
    /// All with this label that wait or run: `KEY` or `KEY=VALUE`
    #[arg(long, value_name = "LABEL", conflicts_with_all = ["what", "session", "queued"])]
    pub label: Option<String>,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// `watch`.
#[derive(Args, Clone, Debug)]
pub struct WatchArgs {
    /// Only this session
    #[arg(long, short, value_name = "NAME")]
    pub session: Option<String>,
    /// Only this job; may be given again
    #[arg(long = "job", value_name = "JOB", conflicts_with = "session", value_parser = crate::value::job)]
    pub jobs: Vec<JobId>,
    /// First what happened after this `seq`
    #[arg(long, value_name = "SEQ", value_parser = crate::value::number::<u64>)]
    pub after: Option<u64>,
    /// The store that the `seq` is of: of another one, it is refused
    #[arg(long, requires = "after", value_name = "EPOCH")]
    pub epoch: Option<String>,
    /// Text piece by piece, as it comes, instead of each message when it is whole
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// Print the protocol's own lines
    #[arg(long, short)]
    pub json: bool,
}

// `restart`.
#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("which").args(["agent", "session"])))]
pub struct RestartArgs {
    // What this command was for before: `agents restart`.
    #[arg(value_name = "AGENT", hide = true)]
    pub agent: Option<String>,
    #[arg(long, short, value_name = "NAME", hide = true)]
    pub session: Option<String>,
    /// Don't wait for running turns
    #[arg(long, conflicts_with = "deadline")]
    pub now: bool,
    /// How long running turns get before they are interrupted: 90s, 10m, or seconds [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = crate::value::not_negative, allow_hyphen_values = true, conflicts_with = "which")]
    pub deadline: Option<f64>,
}

impl RestartArgs {
    /// The processes that are meant, where it isn't the daemon.
    pub fn workers(&self) -> Option<RestartWorkersArgs> {
        let named = self.agent.is_some() || self.session.is_some();
        named.then(|| RestartWorkersArgs {
            agent: self.agent.clone(),
            session: self.session.clone(),
            now: self.now,
        })
    }
}

// `agents restart`.
#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["agent", "session"])))]
pub struct RestartWorkersArgs {
    /// All processes of this agent
    #[arg(value_name = "AGENT")]
    pub agent: Option<String>,
    /// The process of this session
    #[arg(long, short, value_name = "NAME")]
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
