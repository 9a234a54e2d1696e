//! The words of the commands about work that outlives them: jobs, sessions, questions, copies.
//!
//! Owns their names and help. Must not know what a command does.

use std::path::PathBuf;
use std::time::Duration;

use agentd_protocol::JobId;
use agentd_protocol::work::{JobPhase, Scope};
use clap::{Args, Subcommand, ValueEnum};

use super::JsonArgs;
use super::look::PastArgs;
use super::session::{ForkSessionArgs, TitleSessionArgs};
use super::turn::{HowArgs, WhoArgs};
use crate::value;

// `dispatch`.
#[derive(Args, Clone, Debug)]
pub struct DispatchArgs {
    /// The turns; none, or `-`, reads one from each line of standard input
    #[arg(value_name = "TEXT")]
    pub prompts: Vec<String>,
    /// To whom.
    #[command(flatten)]
    pub who: WhoArgs,
    /// Hand each turn to every one of these, with commas, or given again: pi,claude
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with_all = ["agent", "session"], value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub agents: Vec<String>,
    /// And when, and what if.
    #[command(flatten)]
    pub how: HowArgs,
    /// The keys are PREFIX-1, PREFIX-2, …; the same key is the same job
    #[arg(long, value_name = "PREFIX")]
    pub key_prefix: Option<String>,
    /// Wait until all are done and print their results
    #[arg(long)]
    pub collect: bool,
    /// Print the protocol's own lines
    #[arg(long, short)]
    pub json: bool,
}

// `collect`.
#[derive(Args, Clone, Debug)]
pub struct CollectArgs {
    /// Which
    #[arg(required_unless_present = "label", value_name = "JOB", value_parser = crate::value::job)]
    pub jobs: Vec<JobId>,
    /// All with this label, in the order they were sent
    #[arg(long, value_name = "KEY[=VALUE]", conflicts_with = "jobs")]
    pub label: Option<String>,
    /// Stop waiting after this, the jobs go on: 90s, 10m, or seconds; 0 looks without waiting
    #[arg(long, value_name = "TIME", value_parser = value::not_negative, allow_hyphen_values = true)]
    pub timeout: Option<f64>,
    /// Wait for the first, not for all
    #[arg(long)]
    pub any: bool,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
    /// Without a daemon.
    #[command(flatten)]
    pub past: PastArgs,
}

// `ps`.
#[derive(Args, Clone, Debug)]
pub struct PsArgs {
    /// Print one JSON object
    #[arg(long, short)]
    pub json: bool,
    /// Without a daemon.
    #[command(flatten)]
    pub past: PastArgs,
}

// `jobs`.
#[derive(Args, Clone, Debug)]
pub struct JobsArgs {
    /// All about this one
    #[arg(value_name = "JOB", conflicts_with_all = ["session", "agent", "state", "label", "parent", "since", "limit"], value_parser = crate::value::job)]
    pub job: Option<JobId>,
    /// Only of this agent
    #[arg(long, short, value_name = "NAME", value_parser = value::agent)]
    pub agent: Option<String>,
    /// Only of this session
    #[arg(long, short, value_name = "NAME")]
    pub session: Option<String>,
    /// Only those in this state
    #[arg(long, value_enum)]
    pub state: Option<PhaseArg>,
    /// Only those with this label
    #[arg(long, value_name = "KEY[=VALUE]")]
    pub label: Option<String>,
    /// Only those sent from inside this job
    #[arg(long, value_name = "JOB", value_parser = crate::value::job)]
    pub parent: Option<JobId>,
    /// Only those no older than this: 90s, 2h, 7d, today, yesterday
    #[arg(long, value_name = "SPAN", value_parser = value::since)]
    pub since: Option<Duration>,
    /// At most so many, the newest ones; 50 when not given
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = value::count)]
    pub limit: Option<usize>,
    /// Print the protocol's own lines, one for each page; of one job an object
    #[arg(long, short)]
    pub json: bool,
    /// Without a daemon.
    #[command(flatten)]
    pub past: PastArgs,
}

/// `--state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum PhaseArg {
    // Those for later, too.
    #[value(aliases = ["scheduled", "waiting"])]
    Queued,
    Held,
    Running,
    // As `collect` says it.
    #[value(alias = "done")]
    Completed,
    Cancelled,
    Failed,
    Interrupted,
}

impl From<PhaseArg> for JobPhase {
    fn from(phase: PhaseArg) -> Self {
        match phase {
            PhaseArg::Queued => Self::Queued,
            PhaseArg::Held => Self::Held,
            PhaseArg::Running => Self::Running,
            PhaseArg::Completed => Self::Completed,
            PhaseArg::Cancelled => Self::Cancelled,
            PhaseArg::Failed => Self::Failed,
            PhaseArg::Interrupted => Self::Interrupted,
        }
    }
}

// `steer`.
#[derive(Args, Clone, Debug)]
pub struct SteerArgs {
    /// What to say; `-` reads standard input
    #[arg(value_name = "TEXT")]
    pub text: String,
    /// To the running turn of this session
    #[arg(long, short, value_name = "NAME")]
    pub session: Option<String>,
    /// To this job
    #[arg(long, value_name = "JOB", conflicts_with = "session", value_parser = crate::value::job)]
    pub job: Option<JobId>,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// `sessions`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct SessionsArgs {
    /// What about them; without, list them.
    #[command(subcommand)]
    pub command: Option<SessionsCommand>,
    /// Which are listed.
    #[command(flatten)]
    pub list: ListSessionsArgs,
}

// `sessions`, and `sessions list`.
#[derive(Args, Clone, Debug)]
pub struct ListSessionsArgs {
    /// Only of this agent
    #[arg(long, short, value_name = "NAME", value_parser = value::agent)]
    pub agent: Option<String>,
    /// Those that were closed, instead of those that are there
    #[arg(long)]
    pub closed: bool,
    /// Those that nobody named and that were never answered, too
    #[arg(long)]
    pub all: bool,
    /// At most so many, those used last; 50 when not given, with --json all
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = value::count)]
    pub limit: Option<usize>,
    /// Print one line as the protocol has it
    #[arg(long, short)]
    pub json: bool,
    /// Without a daemon.
    #[command(flatten)]
    pub past: PastArgs,
}

// What about sessions.
#[derive(Subcommand, Clone, Debug)]
pub enum SessionsCommand {
    /// List them, as without a command
    #[command(
        alias = "ls",
        after_help = "\
Examples:
  agentctl sessions list --closed
  agentctl history main#12

A closed session is listed with its number, as main#12: by that it is read, whoever has its name now."
    )]
    List(ListSessionsArgs),
    /// Make a session without a turn
    #[command(after_help = "Examples:\n  agentctl sessions new main --agent pi --cwd ~/src")]
    New(NewSessionArgs),
    /// All about one session
    #[command(
        override_usage = "agentctl sessions show [OPTIONS] <SESSION>",
        after_help = "\
Examples:
  agentctl sessions show main
  agentctl sessions show main#12

The second is one that was closed, as `agentctl sessions list --closed` names it."
    )]
    Show(ShowSessionArgs),
    /// Look for words in prompts and answers, newest first
    #[command(after_help = "\
Examples:
  agentctl sessions search failing test
  agentctl sessions search --session main \"two words in a row\"

All words have to be in the prompt or in the answer of one turn; small and capital letters are the
same.")]
    Search(SearchArgs),
    /// Give a session another name
    #[command(after_help = "\
Examples:
  agentctl sessions rename s41 parser

Only while none of its turns runs or waits. Its process ends, and comes again with its next turn.")]
    Rename(RenameSessionArgs),
    /// Call a session otherwise in lists, without another name
    #[command(after_help = "\
Examples:
  agentctl sessions title s41 \"the parser's last bug\"
  agentctl sessions title s41 --clear")]
    Title(TitleSessionArgs),
    /// Make another session that begins with what the agent remembers of one
    #[command(after_help = "\
Examples:
  agentctl sessions fork main
  agentctl sessions fork main other-way

The agent makes its copy when the new session's first turn begins: what the old one is told until
then is in both.")]
    Fork(ForkSessionArgs),
    /// End sessions and free their names; their history and jobs stay
    #[command(after_help = "\
Examples:
  agentctl sessions close main
  agentctl sessions close --idle 7d
  agentctl sessions close --idle 7d --yes

Their jobs stay in `agentctl jobs`, and what was said in `agentctl history`.")]
    Close(CloseSessionsArgs),
    /// Run the turns that wait because one before them was interrupted
    #[command(
        override_usage = "agentctl sessions resume [OPTIONS] <SESSION>",
        after_help = "Examples:\n  agentctl sessions resume main"
    )]
    Resume(SessionArgs),
}

// `sessions new`.
#[derive(Args, Clone, Debug)]
pub struct NewSessionArgs {
    /// Its name; one is made when not given
    #[arg(value_name = "NAME")]
    pub session: Option<String>,
    /// Who answers, instead of the default agent
    #[arg(long, short, value_name = "NAME")]
    pub agent: Option<String>,
    /// Working directory, instead of this one
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Restrict the agent to these tools; may be given again
    #[arg(long = "tool", value_name = "TOOLSET")]
    pub toolsets: Vec<String>,
    /// What the agent is told before the conversation
    #[arg(long, value_name = "TEXT|@FILE", value_parser = value::text_or_file)]
    pub system: Option<String>,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// One session, as a word or by the option that other commands have for it.
#[derive(Args, Clone, Debug)]
pub struct OneSession {
    /// Which
    #[arg(value_name = "SESSION", required_unless_present = "session")]
    of: Option<String>,
    /// The same
    #[arg(long, short, value_name = "NAME", hide = true, conflicts_with = "of")]
    session: Option<String>,
}

impl OneSession {
    /// Its name, in whichever way it was given.
    #[must_use]
    pub fn name(self) -> String {
        // One of them is there, or the arguments were refused.
        self.of.or(self.session).unwrap_or_default()
    }
}

// A command about one session.
#[derive(Args, Clone, Debug)]
pub struct SessionArgs {
    /// Which.
    #[command(flatten)]
    pub session: OneSession,
    /// How to print it.
    #[command(flatten)]
    pub output: JsonArgs,
}

// `sessions show`.
#[derive(Args, Clone, Debug)]
pub struct ShowSessionArgs {
    /// Which.
    #[command(flatten)]
    pub session: OneSession,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Without a daemon.
    #[command(flatten)]
    pub past: PastArgs,
}

// `sessions search`.
#[derive(Args, Clone, Debug)]
pub struct SearchArgs {
    /// What to look for
    #[arg(value_name = "WORDS", required = true)]
    pub words: Vec<String>,
    /// Only in this session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// At most so many turns, the newest ones; 20 when not given
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = value::count)]
    pub limit: Option<usize>,
    /// Print the protocol's own lines, one for each page
    #[arg(long)]
    pub json: bool,
    /// Without a daemon.
    #[command(flatten)]
    pub past: PastArgs,
}

// `sessions rename`.
#[derive(Args, Clone, Debug)]
pub struct RenameSessionArgs {
    /// Which, and what it is called from now on
    #[arg(value_names = ["SESSION", "NEW"], num_args = 1..=2, required = true)]
    words: Vec<String>,
    /// Which, instead of the first word
    #[arg(long, short, value_name = "NAME", hide = true)]
    session: Option<String>,
    /// How to print it.
    #[command(flatten)]
    pub output: JsonArgs,
}

impl RenameSessionArgs {
    /// The session and its new name, or what to say when one of them is missing.
    ///
    /// # Errors
    /// When there are too many or too few words.
    pub fn of(&self) -> Result<(&str, &str), &'static str> {
        match (self.words.as_slice(), &self.session) {
            ([session, to], None) => Ok((session, to)),
            ([to], Some(session)) => Ok((session, to)),
            ([_], None) => Err("one word was given, expected a session and its new name"),
            _ => Err("the session was given twice"),
        }
    }
}

// `sessions close`.
#[derive(Args, Clone, Debug)]
pub struct CloseSessionsArgs {
    /// Which
    #[arg(value_name = "SESSION", required_unless_present_any = ["idle", "session"])]
    pub sessions: Vec<String>,
    /// The same; may be given again
    #[arg(long, short, value_name = "NAME", hide = true)]
    pub session: Vec<String>,
    /// All that were last used so long ago and have nothing to do: 12h, 7d; asks on a terminal
    #[arg(long, value_name = "SPAN", value_parser = value::span, conflicts_with_all = ["sessions", "session"])]
    pub idle: Option<Duration>,
    /// With --idle: close them without asking
    #[arg(long, requires = "idle")]
    pub yes: bool,
    /// With --idle: only of this agent
    #[arg(long, value_name = "NAME", requires = "idle")]
    pub agent: Option<String>,
    /// Print the protocol's own lines, one for each session
    #[arg(long)]
    pub json: bool,
}

// `history`.
#[derive(Args, Clone, Debug)]
pub struct HistoryArgs {
    /// Which; without, the one with the newest turn
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    pub of: Option<String>,
    /// The same
    #[arg(long, short, value_name = "NAME", hide = true)]
    pub session: Option<String>,
    /// Only this turn
    #[arg(long, value_name = "JOB", value_parser = crate::value::job)]
    pub job: Option<JobId>,
    /// Only the last turns, so many; 1 when not said
    #[arg(long, value_name = "COUNT", num_args = 0..=1, default_missing_value = "1", conflicts_with = "job")]
    pub last: Option<String>,
    /// With what the agent's tools did and what it was told meanwhile; and long messages whole
    #[arg(long, conflicts_with = "json")]
    pub full: bool,
    /// Print the protocol's own lines, one for each page
    #[arg(long, short)]
    pub json: bool,
    /// Without a daemon.
    #[command(flatten)]
    pub past: PastArgs,
}

// `questions`.
#[derive(Args, Clone, Debug)]
pub struct QuestionsArgs {
    /// Only of this session
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    pub of: Option<String>,
    /// Only of this session
    #[arg(long, short, value_name = "NAME")]
    pub session: Option<String>,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// How far a yes goes.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScopeArg {
    /// For what was asked
    Once,
    /// For the like of it, in this session
    Session,
    /// For the like of it, from now on
    Always,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Once => Self::Once,
            ScopeArg::Session => Self::Session,
            ScopeArg::Always => Self::Always,
        }
    }
}

// `answer`.
#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("how").args(["approve", "deny", "choice", "text"])))]
pub struct AnswerArgs {
    /// Which, as `j41-q1`
    #[arg(value_name = "QUESTION", value_parser = value::question)]
    pub question_id: String,
    /// Yes
    #[arg(long)]
    pub approve: bool,
    /// How far the yes goes, where the agent offers more than once
    #[arg(long, value_name = "SCOPE", requires = "approve")]
    pub scope: Option<ScopeArg>,
    /// No
    #[arg(long)]
    pub deny: bool,
    /// One of the options
    #[arg(long, value_name = "OPTION")]
    pub choice: Option<String>,
    /// Some text; `-` reads standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub text: Option<String>,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// `model`.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Of which session, and which: MODEL, or PROVIDER/MODEL
    #[arg(value_names = ["SESSION", "MODEL"], num_args = 0..=2)]
    pub words: Vec<String>,
    /// Of which session, instead of the first word
    #[arg(long, short, value_name = "NAME")]
    pub session: Option<String>,
    /// The model's provider; then MODEL is taken as it is
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// How hard to think, in the agent's words
    #[arg(long, value_name = "LEVEL")]
    pub thinking: Option<String>,
    /// Whatever models the agent lists
    #[arg(long)]
    pub force: bool,
    /// In which of the agent's own modes to work: `agentctl models list --session` lists them
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

impl ModelArgs {
    /// The session, and the model unless something else is changed; or what to say of what is missing.
    ///
    /// # Errors
    /// When there are too many or too few words.
    pub fn of(&self) -> Result<(&str, Option<&str>), &'static str> {
        let changes = self.thinking.is_some() || self.mode.is_some();
        match (self.words.as_slice(), &self.session) {
            ([session, model], None) => Ok((session, Some(model))),
            ([model], Some(session)) => Ok((session, Some(model))),
            ([session], None) if changes => Ok((session, None)),
            ([], Some(session)) if changes => Ok((session, None)),
            ([_], None) => Err("one word was given, expected a session and a model"),
            ([], _) => Err("nothing to change was given, expected a session and a model"),
            _ => Err("the session was given twice"),
        }
    }
}

// `compact`.
#[derive(Args, Clone, Debug)]
pub struct CompactArgs {
    /// Which; without, the only one with a running turn
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    pub of: Option<String>,
    /// The same
    #[arg(long, short, value_name = "NAME", hide = true)]
    pub session: Option<String>,
    /// What to keep
    #[arg(long, value_name = "TEXT")]
    pub instructions: Option<String>,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// `backup`.
#[derive(Args, Clone, Debug)]
pub struct BackupArgs {
    /// A new file, in this directory if not given. With --every a directory, else beside the store
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// One now, and one by itself so often, as 1d or 12h; `never` ends that
    #[arg(long, value_name = "SPAN", value_parser = value::span_or_never)]
    pub every: Option<Duration>,
    /// Of those, keep so many; 7 when not given
    #[arg(long, value_name = "COUNT", requires = "every")]
    pub keep: Option<u32>,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// `restore`.
#[derive(Args, Clone, Debug)]
pub struct RestoreArgs {
    /// A file that `backup` made
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// One JSON object
    #[arg(long, short)]
    pub json: bool,
}
