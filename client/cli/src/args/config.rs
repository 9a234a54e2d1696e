//! The words of `config`.
//!
//! Owns names and help. Must not know what a setting means.

use clap::{Args, Subcommand};

use super::JsonArgs;

// `config`.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// What about it; without, show it.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

// What about the configuration.
#[derive(Subcommand, Clone, Debug)]
pub enum ConfigCommand {
    /// Print each value and where it comes from
    #[command(after_help = "Examples:\n  agentctl config show --json")]
    Show(JsonArgs),
    /// Open config.toml in your editor, and keep it if it can be read
    #[command(after_help = "\
Examples:
  agentctl config edit
  EDITOR=nano agentctl config edit

$VISUAL or $EDITOR opens a copy. What can't be read is never put in place: you may edit again. Where
the file is left as it was and can't be read, the exit code is 78.")]
    Edit,
    /// Change one value; comments and order stay
    #[command(after_help = "\
Examples:
  agentctl config set default_agent pi
  agentctl config set agents.pi.model gpt-5
  agentctl config set client.start always

The value is TOML, or a plain word. What the daemon could not read is refused.")]
    Set(ConfigSetArgs),
    /// Print one value, or all of a table
    #[command(after_help = "\
Examples:
  agentctl config get default_agent
  agentctl config get agents.pi")]
    Get(ConfigKeyArgs),
    /// Make one value the default again
    #[command(
        alias = "clear",
        after_help = "Examples:\n  agentctl config unset agents.pi.model"
    )]
    Unset(ConfigKeyArgs),
    /// Say whether config.toml can be used, and where it can't
    #[command(after_help = "\
Examples:
  agentctl config check

The exit code is 78 where the next daemon, or the built-in agent, could not use it.")]
    Check,
    /// Write a config.toml that has every setting as a comment
    #[command(after_help = "Examples:\n  agentctl config init && agentctl config edit")]
    Init,
    /// Print where config.toml is
    #[command(after_help = "Examples:\n  agentctl config path")]
    Path,
}

// `config set`.
#[derive(Args, Clone, Debug)]
pub struct ConfigSetArgs {
    /// Its dotted key
    #[arg(value_name = "KEY")]
    pub key: String,
    /// What it is to be
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub value: String,
}

// `config get` and `config unset`.
#[derive(Args, Clone, Debug)]
pub struct ConfigKeyArgs {
    /// Its dotted key
    #[arg(value_name = "KEY")]
    pub key: String,
}
