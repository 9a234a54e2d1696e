//! The words of `agents`.
//!
//! Owns names and help. Must not know what a command does.

use clap::{Args, Subcommand};

use super::control::RestartWorkersArgs;

// `agents`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentsArgs {
    /// What about them; without, list them.
    #[command(subcommand)]
    pub command: Option<AgentsCommand>,
    /// Those that are not installed, too, and why nobody can be asked there
    #[arg(long)]
    pub all: bool,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// What about agents.
#[derive(Subcommand, Clone, Debug)]
pub enum AgentsCommand {
    /// Add an agent to config.toml
    #[command(after_help = "\
Examples:
  agentctl agents add mine --kind acp -- my-agent --acp
  agentctl agents add shout --kind exec -- tr a-z A-Z
  agentctl agents add claude --model opus --pass-env MY_TOKEN
  agentctl agents add once --kind exec --model sonnet -- claude -p --model={model}

The kinds: jsonl, exec, pi, acp, claude, codex. Kind and command are known of the agents that
`agentctl agents` looks for. {prompt}, {model}, {session} and {cwd} are filled in for the kind exec
only. A program that is not there is added all the same, and a note says so. Secrets don't belong
there: put them into the file `env` beside config.toml, mode 0600, and name them with --pass-env.")]
    Add(AddAgentArgs),
    /// Take an agent out of config.toml
    #[command(after_help = "\
Examples:
  agentctl agents remove mine

The default can't be removed: first `agentctl agents default OTHER`, or `--clear`.")]
    Remove(AgentNameArgs),
    /// Run one real turn in a session that is thrown away, and say how it went
    #[command(after_help = "\
Examples:
  agentctl agents test claude
  agentctl agents test mine --timeout 20

Exit codes: those of `send`")]
    Test(TestAgentArgs),
    /// List the slash commands of an agent, as it says itself
    #[command(after_help = "\
Examples:
  agentctl agents commands claude
  agentctl agents commands --session main

Without either, the agent is the one that a send would go to. A process of it is started if none
lives. A prompt that begins with one of them runs it: `agentctl send --agent claude /review`. Some
agents name them only after a session's first turn.")]
    Commands(AgentCommandsArgs),
    /// Replace the processes of an agent or of a session
    #[command(after_help = "\
Examples:
  agentctl agents restart pi
  agentctl agents restart --session main --now")]
    Restart(RestartWorkersArgs),
    /// Say who answers when nobody is named, or show who that is
    #[command(after_help = "\
Examples:
  agentctl agents default
  agentctl agents default claude
  agentctl agents default --clear

Without a default, a send names its agent, or the only usable one answers; timmy, the built-in one,
only where no other can.")]
    Default(DefaultAgentArgs),
}

// `agents add`.
#[derive(Args, Clone, Debug)]
pub struct AddAgentArgs {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The protocol it speaks
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Its model provider when a send names none
    #[arg(long, value_name = "PROVIDER")]
    pub provider: Option<String>,
    /// Its model when a send names none
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Set a variable for it; no secrets; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Pass a variable on, from the file `env` or the daemon's environment; may be given again
    #[arg(long, value_name = "NAME")]
    pub pass_env: Vec<String>,
    /// Print one JSON object
    #[arg(long, short)]
    pub json: bool,
    /// Program and arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

// A command about one agent.
#[derive(Args, Clone, Debug)]
pub struct AgentNameArgs {
    /// Which
    #[arg(value_name = "AGENT")]
    pub name: String,
    /// Print one JSON object
    #[arg(long, short)]
    pub json: bool,
}

// `agents commands`.
#[derive(Args, Clone, Debug)]
pub struct AgentCommandsArgs {
    /// Whose; without, that of the session, or whom a send would reach
    #[arg(value_name = "AGENT", conflicts_with = "session")]
    pub name: Option<String>,
    /// Of this session's agent
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}

// `agents default`.
#[derive(Args, Clone, Debug)]
pub struct DefaultAgentArgs {
    /// Who; without, show the default and the file that says so
    #[arg(value_name = "AGENT")]
    pub name: Option<String>,
    /// Nobody
    #[arg(long, alias = "unset", conflicts_with = "name")]
    pub clear: bool,
    /// Though it can't be used as things are; where only nobody is logged in, it needs no force
    #[arg(long, requires = "name")]
    pub force: bool,
    /// Print one JSON object
    #[arg(long, short)]
    pub json: bool,
}

// `agents test`.
#[derive(Args, Clone, Debug)]
pub struct TestAgentArgs {
    /// Which
    #[arg(value_name = "AGENT")]
    pub name: String,
    /// Longest running time: 90s, 10m, or seconds [default: 120s]
    #[arg(long, value_name = "TIME", default_value_t = 120.0, hide_default_value = true, value_parser = crate::value::positive, allow_hyphen_values = true)]
    pub timeout: f64,
    /// Say this instead of the usual question
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Print one JSON object
    #[arg(long, short)]
    pub json: bool,
}
