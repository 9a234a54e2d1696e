//! The words of `serve acp`.
//!
//! Owns names and help. Must not know the protocol.

use clap::Args;

// `serve acp`.
#[derive(Args, Clone, Debug)]
pub struct AcpArgs {
    /// Who answers in new sessions; without, the default. The editor can choose another one
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Print what goes into the settings of Zed, JetBrains, Neovim and Emacs, and nothing else
    #[arg(long)]
    pub bootstrap: bool,
    /// Fail rather than run turns without a daemon
    #[arg(long)]
    pub no_fallback: bool,
}
