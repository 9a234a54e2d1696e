//! The words of `cron`.
//!
//! Owns names and help. Must not know what a command does.

use clap::{Args, Subcommand, ValueEnum};

use super::turn::WhoArgs;
use crate::value;

// `cron`.
#[derive(Args, Clone, Debug)]
pub struct CronArgs {
    /// What about them.
    #[command(subcommand)]
    pub command: CronCommand,
}

// What about schedules.
#[derive(Subcommand, Clone, Debug)]
pub enum CronCommand {
    /// Add a schedule: a turn that is sent by itself, once or again and again
    #[command(after_help = "\
Examples:
  agentctl cron add --model kimi-coding/kimi-k2.5 --message \"Work on issue #98\" --at +1m
  agentctl cron add --message \"what broke overnight?\" --cron \"0 9 * * 1-5\" --tz Europe/Berlin
  agentctl cron add --name tidy --message \"tidy up\" --every 30m --session tidy --max-failures 3

Each due time is one job, whatever is killed. Cron has five fields: minute, hour, day, month,
weekday. A time that the clocks leave out comes right behind, one that comes twice counts once.
Without --session each run has a session of its own.")]
    Add(Box<CronAddArgs>),
    /// List schedules, with the next due time of each
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  agentctl cron list\n  agentctl cron list --json"
    )]
    List(CronListArgs),
    /// Show all about a schedule, with its next three due times
    #[command(after_help = "Examples:\n  agentctl cron show c1\n  agentctl cron show tidy --json")]
    Show(CronNameArgs),
    /// Change a schedule; what isn't named stays
    #[command(after_help = "\
Examples:
  agentctl cron edit c1 --message \"tidy up the tests\"
  agentctl cron edit tidy --every 1h
  agentctl cron edit tidy --jitter none --session new

`none` takes away a name, a jitter or a back-off, 0 a limit of failures.")]
    Edit(Box<CronEditArgs>),
    /// Let a schedule rest until it is resumed
    #[command(
        visible_alias = "disable",
        after_help = "Examples:\n  agentctl cron pause tidy"
    )]
    Pause(CronNameArgs),
    /// Let a paused schedule go on, from its next due time
    #[command(
        visible_alias = "enable",
        after_help = "Examples:\n  agentctl cron resume tidy"
    )]
    Resume(CronNameArgs),
    /// Run a schedule once now, besides
    #[command(after_help = "\
Examples:
  agentctl cron run tidy

It prints the job, for `agentctl collect`.")]
    Run(CronNameArgs),
    /// Forget a schedule and its runs; their jobs stay
    #[command(
        visible_alias = "rm",
        after_help = "Examples:\n  agentctl cron remove tidy"
    )]
    Remove(CronNameArgs),
    /// Show what became of a schedule's due times, newest first
    #[command(after_help = "\
Examples:
  agentctl cron runs tidy
  agentctl cron runs c1 --limit 5 --json")]
    Runs(CronRunsArgs),
}

// `cron add`.
#[derive(Args, Clone, Debug)]
pub struct CronAddArgs {
    /// The turn
    #[arg(value_name = "TEXT", required_unless_present = "message")]
    pub text: Option<String>,
    /// The same
    #[arg(long, value_name = "TEXT", conflicts_with = "text")]
    pub message: Option<String>,
    /// When, and what if.
    #[command(flatten)]
    pub when: CronWhenArgs,
    /// To whom.
    #[command(flatten)]
    pub who: WhoArgs,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// `cron edit`.
#[derive(Args, Clone, Debug)]
pub struct CronEditArgs {
    /// Which, by its id or name
    #[arg(value_name = "SCHEDULE")]
    pub schedule: String,
    /// Another turn
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// When, and what if.
    #[command(flatten)]
    pub when: CronWhenArgs,
    /// To whom.
    #[command(flatten)]
    pub who: WhoArgs,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// When a schedule is due, and what if.
#[derive(Args, Clone, Default, Debug)]
pub struct CronWhenArgs {
    /// What to call it
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Once: +1m from now, 2026-12-01T09:00 in --tz, or 2026-12-01T09:00:00Z
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["every", "cron"])]
    pub at: Option<String>,
    /// Again and again, each so long: 30m, 1h30m, 7d
    #[arg(long, value_name = "TIME", conflicts_with = "cron")]
    pub every: Option<String>,
    /// At times as crontab has them: "0 9 * * 1-5"
    #[arg(long, value_name = "FIELDS")]
    pub cron: Option<String>,
    /// The time zone of --cron and --at, as Europe/Berlin; this machine's if not given
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// Later by up to so much, by the same each time that it is asked
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<String>,
    /// Of due times that passed while the daemon was down or the machine asleep: none, the last or all
    #[arg(long, value_enum)]
    pub missed: Option<MissedArg>,
    /// While the run before goes on: leave it out, wait for it, cancel it, or run both
    #[arg(long, value_enum)]
    pub overlap: Option<OverlapArg>,
    /// Keep so many runs, 100 if not given
    #[arg(long, value_name = "COUNT", value_parser = value::number::<u32>)]
    pub keep: Option<u32>,
    /// After a run that failed wait so long, and twice as long after each further one
    #[arg(long, value_name = "TIME")]
    pub backoff: Option<String>,
    /// Pause it after so many runs that failed in a row
    #[arg(long, value_name = "COUNT", value_parser = value::number::<u32>)]
    pub max_failures: Option<u32>,
    /// A label of its jobs, for `agentctl jobs --label`; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = value::label)]
    pub labels: Vec<(String, String)>,
    /// Who is told when a run has ended; an endpoint of `agentctl webhook add`
    #[arg(long, value_name = "URL")]
    pub callback: Option<String>,
    /// Tell the callback the text, too: up to 64 KiB of it
    #[arg(long, requires = "callback")]
    pub callback_result: bool,
}

// `cron list`.
#[derive(Args, Clone, Copy, Debug)]
pub struct CronListArgs {
    /// Print the protocol's own lines, one for each page
    #[arg(long, short)]
    pub json: bool,
}

// `cron show` and others of one schedule.
#[derive(Args, Clone, Debug)]
pub struct CronNameArgs {
    /// Which, by its id or name
    #[arg(value_name = "SCHEDULE")]
    pub schedule: String,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// `cron runs`.
#[derive(Args, Clone, Debug)]
pub struct CronRunsArgs {
    /// Which, by its id or name
    #[arg(value_name = "SCHEDULE")]
    pub schedule: String,
    /// At most so many
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20, value_parser = value::count)]
    pub limit: usize,
    /// Print the protocol's own lines, one for each page
    #[arg(long, short)]
    pub json: bool,
}

/// `--missed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MissedArg {
    /// None of them
    Skip,
    /// The last of them, once
    Last,
    /// Each of them, one after the other
    All,
}

/// `--overlap`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OverlapArg {
    /// Leave it out
    Skip,
    /// Wait for its end
    Queue,
    /// Cancel it
    Replace,
    /// Run both
    Parallel,
}
