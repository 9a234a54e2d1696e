//! The words of the command line.
//!
//! Owns names, help and examples of every command. Must not know what a command does.

use std::path::PathBuf;

use agentd_protocol::JobId;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Talk to AI agents through the per-user daemon `agentd`.
#[derive(Parser, Debug)]
#[command(
    name = "agentctl",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  agentctl send \"what changed here today?\"
  git diff | agentctl send --agent pi -
  agentctl status

Exit codes: 0 done, 1 failed, 2 usage, 3 refused, 69 no daemon, 75 outcome unknown,
78 configuration, 124 timeout, 130 interrupted"
)]
pub struct Cli {
    /// The daemon's socket, instead of `$AGENTD_SOCKET` or the default
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Send one turn and print the answer
    #[command(after_help = "\
Examples:
  agentctl send \"fix the failing test\" --session main
  echo \"explain this\" | agentctl send --agent claude -
  agentctl send hi --json | jq .")]
    Send(SendArgs),
    /// The same as `send`, with the options and the JSON of `openclaw agent`
    #[command(after_help = "\
Examples:
  agentctl agent --message \"hi\" --thinking low --session main
  agentctl agent --message \"hi\" --json | jq -r .payloads[0].text")]
    Agent(AgentArgs),
    /// How the daemon is and what its workers do
    #[command(after_help = "\
Examples:
  agentctl status
  agentctl status --rpc && echo \"a worker lives\"

With --rpc: exit 0 when a worker lives, 1 when none does, 69 without a daemon")]
    Status(StatusArgs),
    /// Which agents there are and whether each is usable
    #[command(after_help = "\
Examples:
  agentctl agents
  agentctl agents --json | jq '.agents[] | select(.usable).name'")]
    Agents(JsonArgs),
    /// Cancel a turn: a job, a session's turn, or the only live one
    #[command(after_help = "\
Examples:
  agentctl abort
  agentctl abort j41
  agentctl abort --session main --queued")]
    Abort(AbortArgs),
    /// Wait for jobs and print their results
    #[command(after_help = "\
Examples:
  agentctl collect j41
  agentctl collect j41 j42 --any --timeout 60")]
    Collect(CollectArgs),
    /// Print what happens, as it happens, until Ctrl-C
    #[command(after_help = "\
Examples:
  agentctl watch
  agentctl watch --session main --json")]
    Watch(WatchArgs),
    /// Replace the processes of an agent or of a session
    #[command(after_help = "\
Examples:
  agentctl restart pi
  agentctl restart --session main --now")]
    Restart(RestartArgs),
    /// Stop the daemon; queued turns stay stored
    #[command(after_help = "\
Examples:
  agentctl stop
  agentctl stop --deadline 5")]
    Stop(DeadlineArgs),
    /// Start no new turn and wait until none runs
    #[command(after_help = "\
Examples:
  agentctl drain
  agentctl drain --deadline 60 && agentctl stop")]
    Drain(DeadlineArgs),
    /// Start turns again
    #[command(after_help = "Examples:\n  agentctl undrain")]
    Undrain,
    /// Relay protocol lines between standard input and output and the daemon
    #[command(after_help = "\
Examples:
  echo '{\"prompt\":\"hi\"}' | agentctl stdio
  ssh host agentctl stdio")]
    Stdio(StdioArgs),
    /// Show the configuration in force
    #[command(after_help = "Examples:\n  agentctl config show\n  agentctl config show --json")]
    Config(ConfigArgs),
    /// See it work, without any key or network
    #[command(after_help = "Examples:\n  agentctl demo")]
    Demo,
    /// Print the completion script of a shell
    #[command(after_help = "\
Examples:
  agentctl completions bash > ~/.local/share/bash-completion/completions/agentctl
  agentctl completions fish > ~/.config/fish/completions/agentctl.fish")]
    Completions(CompletionsArgs),
}

/// `send`.
#[derive(Args, Clone, Debug)]
pub struct SendArgs {
    /// The turn; `-`, or none with a pipe, reads standard input
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,
    /// How.
    #[command(flatten)]
    pub turn: TurnArgs,
    /// Print the protocol's own lines
    #[arg(long)]
    pub json: bool,
    /// When the session is busy: wait, or be refused
    #[arg(long, value_enum, default_value_t = ModeArg::Queue, hide_possible_values = false)]
    pub mode: ModeArg,
    /// May the turn run again after a crash?
    #[arg(long, value_enum, default_value_t = RetryArg::Never)]
    pub retry: RetryArg,
}

/// What every way of sending takes.
#[derive(Args, Clone, Default, Debug)]
pub struct TurnArgs {
    /// Who answers, instead of the default agent
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// The conversation; without it a new one
    #[arg(long, visible_alias = "session-id", value_name = "NAME")]
    pub session: Option<String>,
    /// Pin the model's provider
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Pin the model
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// How hard to think, in the agent's words
    #[arg(long, value_name = "LEVEL")]
    pub thinking: Option<String>,
    /// Working directory; a new session starts here anyway
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Longest running time
    #[arg(long, value_name = "SECS", value_parser = positive, allow_hyphen_values = true)]
    pub timeout: Option<f64>,
    /// Fail rather than run without the daemon
    #[arg(long)]
    pub no_fallback: bool,
    /// The same key is the same job; a random one when not given
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

/// Seconds in which something can happen.
fn positive(word: &str) -> Result<f64, String> {
    let seconds = word.parse().ok().filter(|seconds| *seconds > 0.0);
    finite(seconds).ok_or_else(|| "expected a number of seconds greater than 0".to_owned())
}

/// Seconds, or none at all.
fn not_negative(word: &str) -> Result<f64, String> {
    let seconds = word.parse().ok().filter(|seconds| *seconds >= 0.0);
    finite(seconds).ok_or_else(|| "expected a number of seconds, 0 or more".to_owned())
}

fn finite(seconds: Option<f64>) -> Option<f64> {
    seconds.filter(|seconds| seconds.is_finite())
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

/// `agent`.
#[derive(Args, Clone, Debug)]
pub struct AgentArgs {
    /// The turn
    #[arg(long, short = 'm', value_name = "TEXT")]
    pub message: String,
    /// How.
    #[command(flatten)]
    pub turn: TurnArgs,
    /// Accepted and without effect: the answer is always printed
    #[arg(long)]
    pub deliver: bool,
    /// Print one object with `payloads` and `meta`
    #[arg(long)]
    pub json: bool,
}

/// `status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// Ask only whether a worker lives
    #[arg(long)]
    pub rpc: bool,
    /// Print the protocol's own line
    #[arg(long)]
    pub json: bool,
}

/// A command with nothing but `--json`.
#[derive(Args, Clone, Debug)]
pub struct JsonArgs {
    /// Print the protocol's own line
    #[arg(long)]
    pub json: bool,
}

/// `abort`.
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

/// `collect`.
#[derive(Args, Clone, Debug)]
pub struct CollectArgs {
    /// Which
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<JobId>,
    /// Longest wait; 0 looks without waiting
    #[arg(long, value_name = "SECS", value_parser = not_negative, allow_hyphen_values = true)]
    pub timeout: Option<f64>,
    /// Wait for the first, not for all
    #[arg(long)]
    pub any: bool,
    /// Print the protocol's own line
    #[arg(long)]
    pub json: bool,
}

/// `watch`.
#[derive(Args, Clone, Debug)]
pub struct WatchArgs {
    /// Only this session
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Print the protocol's own lines
    #[arg(long)]
    pub json: bool,
}

/// `restart`.
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

/// `stop` and `drain`.
#[derive(Args, Clone, Debug)]
pub struct DeadlineArgs {
    /// Seconds that running turns get
    #[arg(long, value_name = "SECS", value_parser = not_negative, allow_hyphen_values = true)]
    pub deadline: Option<f64>,
}

/// `stdio`.
#[derive(Args, Clone, Debug)]
pub struct StdioArgs {
    /// Fail rather than run without the daemon
    #[arg(long)]
    pub no_fallback: bool,
}

/// `config`.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// What about it.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What about the configuration.
#[derive(Subcommand, Clone, Debug)]
pub enum ConfigCommand {
    /// Print each value and where it comes from
    #[command(after_help = "Examples:\n  agentctl config show --json")]
    Show(JsonArgs),
}

/// `completions`.
#[derive(Args, Clone, Copy, Debug)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// A shell we write completions for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_help_of_every_command_has_an_example_that_parses() {
        fn check(command: &clap::Command) {
            let name = command.get_name();
            let help = command.get_after_help().map(ToString::to_string);
            if name != "config" || help.is_some() {
                let help = help.unwrap_or_else(|| panic!("`{name}` has no example"));
                assert!(help.contains("Examples:\n  "), "{name}");
            }
            for inner in command.get_subcommands() {
                check(inner);
            }
        }
        let command = Cli::command();
        command.clone().debug_assert();
        check(&command);
    }

    #[test]
    fn what_scripts_already_say_parses() {
        for words in [
            "agentctl agent --message hi --thinking low --session main --deliver --json",
            "agentctl collect j1 --timeout 0",
            "agentctl send hi --retry auto --mode reject --timeout 1.5 --socket /s",
            "agentctl --socket /s status --rpc",
            "agentctl abort j41",
            "agentctl restart pi --now",
            "agentctl config show --json",
        ] {
            assert!(Cli::try_parse_from(words.split(' ')).is_ok(), "{words}");
        }
        for word in ["-1", "0", "--", "nan", "inf", "soon"] {
            let words = ["agentctl", "send", "hi", "--timeout", word];
            let error = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(
                error.contains("expected a number of seconds greater than 0"),
                "{error}"
            );
        }
        for words in [
            "agentctl abort 41",
            "agentctl restart",
            "agentctl collect",
            "agentctl collect j1 --timeout -1",
            "agentctl stop --deadline=-1",
        ] {
            assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{words}");
        }
    }
}
