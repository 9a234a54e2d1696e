//! The words of `sessions title` and `sessions fork`.
//!
//! Owns their names and help. Must not know how they are asked for.

use agentd_protocol::work::{SessionFork, SessionTitle};
use clap::Args;

use super::JsonArgs;

// `sessions title`.
#[derive(Args, Clone, Debug)]
pub struct TitleSessionArgs {
    /// Which
    #[arg(value_name = "SESSION")]
    session: String,
    /// What it is called in lists
    #[arg(value_name = "TITLE", required_unless_present = "clear")]
    title: Option<String>,
    /// Nothing of its own: how its first prompt begins
    #[arg(long, conflicts_with = "title")]
    clear: bool,
    /// How to print it.
    #[command(flatten)]
    pub output: JsonArgs,
}

impl TitleSessionArgs {
    /// The request.
    #[must_use]
    pub fn title(&self) -> SessionTitle {
        SessionTitle {
            session: self.session.clone(),
            title: self.title.clone(),
        }
    }
}

// `sessions fork`.
#[derive(Args, Clone, Debug)]
pub struct ForkSessionArgs {
    /// Which
    #[arg(value_name = "SESSION")]
    session: String,
    /// What the new one is called; a name is made when not given
    #[arg(value_name = "NEW")]
    to: Option<String>,
    /// How to print it.
    #[command(flatten)]
    pub output: JsonArgs,
}

impl ForkSessionArgs {
    /// The request.
    #[must_use]
    pub fn fork(&self) -> SessionFork {
        SessionFork {
            session: self.session.clone(),
            to: self.to.clone(),
        }
    }
}
