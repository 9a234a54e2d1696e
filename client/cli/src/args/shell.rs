//! The words of `completions` and `man`.
//!
//! Owns names and help. Must not know what the commands do.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

// `completions`.
#[derive(Args, Clone, Copy, Debug)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    pub shell: Shell,
}

// `man`.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// The directory, which is made when it is not there
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// A shell we write completions for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}
