//! The words of the commands that send a turn.
//!
//! Owns their names and help. Must not know how a turn is sent.

use std::path::PathBuf;

use agentd_protocol::JobId;
use clap::{Args, ValueEnum};

use super::look::PastArgs;
use crate::value;

// `send`.
#[derive(Args, Clone, Debug)]
pub struct SendArgs {
    /// The turn; what is piped in goes behind it. `-`, or none with a pipe, is standard input alone
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,
    /// Go on with the session of this directory that was used last, of any agent or of --agent
    #[arg(long = "continue", short = 'c', conflicts_with = "session")]
    pub go_on: bool,
    /// How.
    #[command(flatten)]
    pub turn: TurnArgs,
    /// And what is seen of it.
    #[command(flatten)]
    pub shown: ShownArgs,
    /// Stop waiting after this: the turn goes on, the exit code is 75, `collect` gets the answer
    #[arg(long, value_name = "TIME", value_parser = value::not_negative, allow_hyphen_values = true)]
    pub wait: Option<f64>,
    /// When the session is busy: wait, or be refused
    #[arg(long, value_enum, default_value_t = ModeArg::Queue, hide_possible_values = false)]
    pub mode: ModeArg,
    /// And when, and what if.
    #[command(flatten)]
    pub how: HowArgs,
}

// What is seen of a turn.
#[derive(Args, Clone, Default, Debug)]
pub struct ShownArgs {
    /// Print the answer alone, when it is there: no notes, nothing that moves
    #[arg(long, short)]
    pub quiet: bool,
    /// Tell the terminal when a turn has ended that took longer than this, 10s if not given
    #[arg(
        long,
        value_name = "AFTER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10s",
        value_parser = value::not_negative
    )]
    pub notify: Option<f64>,
    /// Print the protocol's own lines
    #[arg(long, short)]
    pub json: bool,
}

// `attach`.
#[derive(Args, Clone, Debug)]
pub struct AttachArgs {
    /// A job, or a session: then its turn that runs, else its last one; without, the session of
    /// this directory that was used last
    #[arg(value_name = "JOB|SESSION")]
    which: Option<String>,
    /// A session
    #[arg(
        long,
        short,
        value_name = "NAME",
        hide = true,
        conflicts_with = "which"
    )]
    session: Option<String>,
    /// Without a daemon.
    #[command(flatten)]
    pub past: PastArgs,
    /// What is seen of it.
    #[command(flatten)]
    pub shown: ShownArgs,
}

impl AttachArgs {
    /// What was named, in whichever way.
    #[must_use]
    pub fn which(&self) -> Option<&str> {
        self.which.as_deref().or(self.session.as_deref())
    }
}

// `retry`.
#[derive(Args, Clone, Debug)]
pub struct RetryJobArgs {
    /// Which; several are sent again together, and not waited for
    #[arg(required_unless_present = "label", value_name = "JOB", value_parser = crate::value::job)]
    pub jobs: Vec<JobId>,
    /// All with this label that failed or were interrupted, and were not sent again yet
    #[arg(long, value_name = "KEY[=VALUE]", conflicts_with_all = ["jobs", "idempotency_key"])]
    pub label: Option<String>,
    /// With --label: those that were cancelled, too
    #[arg(long, requires = "label")]
    pub cancelled: bool,
    /// Pin the model's provider, instead of the one it had
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Pin the model, instead of the one it had
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Fail rather than run without the daemon
    #[arg(long)]
    pub no_fallback: bool,
    /// The same key is the same job; a random one when not given
    #[arg(long, alias = "key", value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// What is seen of it.
    #[command(flatten)]
    pub shown: ShownArgs,
}

// What every way of sending takes.
#[derive(Args, Clone, Default, Debug)]
pub struct TurnArgs {
    /// To whom.
    #[command(flatten)]
    pub who: WhoArgs,
    /// Fail rather than run without the daemon
    #[arg(long)]
    pub no_fallback: bool,
    /// The same key is the same job; a random one when not given
    #[arg(long, alias = "key", value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

// Who answers, where, and how.
#[derive(Args, Clone, Default, Debug)]
pub struct WhoArgs {
    /// Who answers, instead of the default agent
    #[arg(long, short, value_name = "NAME")]
    pub agent: Option<String>,
    /// The conversation; without it a new one
    #[arg(long, short, visible_alias = "session-id", value_name = "NAME")]
    pub session: Option<String>,
    /// Pin the model's provider, of this turn and the session's later ones
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Pin the model, of this turn and the session's later ones
    #[arg(long, short, value_name = "NAME")]
    pub model: Option<String>,
    /// How hard to think, in the agent's words, from this turn on
    #[arg(long, value_name = "LEVEL")]
    pub thinking: Option<String>,
    /// What to ask when that model fails, as provider/model; may be given again
    #[arg(long = "fallback", value_name = "PROVIDER/MODEL", value_parser = value::model)]
    pub fallbacks: Vec<String>,
    /// Restrict the agent to these toolsets, with commas, or given again: timmy has `file`,
    /// `file-read`, `terminal`, `web`, `mcp` and `delegate`; another agent says which it has
    #[arg(long, alias = "toolsets", value_name = "TOOLSET", value_delimiter = ',', value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub tools: Vec<String>,
    /// Working directory; a new session starts here anyway
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// End the turn when it has run so long: 90s, 10m, or seconds [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = value::positive, allow_hyphen_values = true)]
    pub timeout: Option<f64>,
}

// What goes with a turn, when it starts, and what becomes of it when something goes wrong.
#[derive(Args, Clone, Default, Debug)]
pub struct HowArgs {
    /// A label, for `agentctl jobs --label`; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = value::label)]
    pub labels: Vec<(String, String)>,
    /// A picture, PDF or text that goes with the turn; may be given again
    #[arg(long, value_name = "FILE", value_parser = value::file)]
    pub attach: Vec<PathBuf>,
    /// What the agent is told before the conversation; only with the turn that begins a session
    #[arg(long, value_name = "TEXT|@FILE", value_parser = value::text_or_file)]
    pub system: Option<String>,
    /// Who is told when the turn has ended; an endpoint of `agentctl webhook add`
    #[arg(long, value_name = "URL")]
    pub callback: Option<String>,
    /// Tell the callback the text, too: up to 64 KiB of it
    #[arg(long, requires = "callback")]
    pub callback_result: bool,
    /// Not before: 2h from now, 9:00, "tomorrow 9:00", "2026-11-21 19:00", or 2026-11-21T19:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = value::start_at)]
    pub start_at: Option<String>,
    /// Longest wait before it starts, or it doesn't: 90s, 10m, or seconds [default: 1h; dispatch: 1d]
    #[arg(long, value_name = "TIME", value_parser = value::positive, allow_hyphen_values = true)]
    pub expires: Option<f64>,
    /// When a turn before it in its session was interrupted: wait for `sessions resume`, or run
    /// [default: hold]
    #[arg(long, value_enum)]
    pub after_failure: Option<AfterFailureArg>,
    /// When the agent asks something: wait for an answer, or deny [default: ask on the terminal, deny without one]
    #[arg(long, value_enum)]
    pub on_question: Option<OnQuestionArg>,
    /// Fail rather than run without the session's earlier turns
    #[arg(long)]
    pub require_context: bool,
    /// May the turn run again after a crash? [default: never]
    #[arg(long, value_enum)]
    pub retry: Option<RetryArg>,
}

/// `--mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ModeArg {
    /// Wait in the session's queue
    Queue,
    /// Refuse with exit code 3
    Reject,
}

/// `--retry`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum RetryArg {
    /// No
    Never,
    /// Yes, at most three attempts
    Auto,
}

/// `--after-failure`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum AfterFailureArg {
    /// Wait for `agentctl sessions resume`
    Hold,
    /// Run all the same
    Run,
}

/// `--on-question`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OnQuestionArg {
    /// Wait for an answer
    Wait,
    /// Deny at once
    Deny,
}

// `agent`. Its `-m` is the message, as that of the product it stands in for.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("model", |model| model.short(None)))]
pub struct AgentArgs {
    /// The turn
    #[arg(long, short = 'm', value_name = "TEXT")]
    pub message: String,
    /// How.
    #[command(flatten)]
    pub turn: TurnArgs,
    /// For callers of an older product; there is no channel to deliver to: the answer is printed
    /// here, and a note says so
    #[arg(long)]
    pub deliver: bool,
    /// Print one object with `payloads` and `meta`
    #[arg(long, short)]
    pub json: bool,
}
