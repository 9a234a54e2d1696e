//! The words of `route`.
//!
//! Owns names and help. Must not know what the command does.

use std::path::PathBuf;

use clap::Args;

use crate::value;

// `route`.
#[derive(Args, Clone, Debug)]
pub struct RouteArgs {
    /// The prompt; what is piped in goes behind it, as with `send`
    #[arg(value_name = "TEXT")]
    pub text: Option<String>,
    /// A picture, PDF or text that would go with it; may be given again
    #[arg(long, value_name = "FILE", value_parser = value::file)]
    pub attach: Vec<PathBuf>,
    /// Working directory, instead of this one
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// A label that it would have; may be given again
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = value::label)]
    pub labels: Vec<(String, String)>,
    /// A session that it would go to
    #[arg(long, short, value_name = "NAME")]
    pub session: Option<String>,
    /// Print the protocol's own line
    #[arg(long, short)]
    pub json: bool,
}
