//! The words of `bench`.
//!
//! Owns names and help. Must not know what the command does.

use clap::Args;

// `bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Which agent
    #[arg(value_name = "AGENT")]
    pub agent: String,
    /// Turns of each kind
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    pub turns: u32,
    /// What is asked, instead of a word
    #[arg(long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Pin the model's provider, of all turns
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Pin the model, of all turns
    #[arg(long, short, value_name = "NAME")]
    pub model: Option<String>,
    /// Don't ask whether the turns may be run
    #[arg(long)]
    pub yes: bool,
    /// Print all times as one JSON object
    #[arg(long)]
    pub json: bool,
}
