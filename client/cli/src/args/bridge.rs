//! The words of `serve bridge`.
//!
//! Owns names and help. Must not know the protocol.

use std::path::PathBuf;

use clap::Args;

// `serve bridge`.
#[derive(Args, Clone, Debug)]
pub struct BridgeArgs {
    /// Who answers; without, the default
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Take one request, and leave when it is done
    #[arg(long)]
    pub once: bool,
    /// Where agents work, unless a run says it; without, here
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// The model, or `provider/model`, unless a run says it
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// What the agent may use, unless a run says it
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = crate::value::word)]
    pub toolsets: Option<Vec<String>>,
    /// What of these toolsets it may not
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = crate::value::word)]
    pub disabled_toolsets: Option<Vec<String>>,
    /// Taken and not heeded: agents have their own limits
    #[arg(long, value_name = "N")]
    pub max_iterations: Option<u64>,
    /// Cut what an agent says into deltas when it is finished, if it doesn't stream
    #[arg(long)]
    pub assistant_delta: bool,
    /// Characters of such a delta
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub assistant_delta_chunk_size: Option<u64>,
    /// Stream what the agent says, as it says it
    #[arg(long)]
    pub native_stream: bool,
    /// Pass the agent's own deltas on, when it streams; so it is without a word
    #[arg(long, overrides_with = "no_native_assistant_delta")]
    pub native_assistant_delta: bool,
    /// Cut deltas from finished text only
    #[arg(long)]
    pub no_native_assistant_delta: bool,
    /// End a streamed run when its model says nothing for so long; 0 is for ever
    #[arg(long, value_name = "MS")]
    pub stream_first_chunk_timeout_ms: Option<u64>,
    /// The same between two pieces of text
    #[arg(long, value_name = "MS")]
    pub stream_idle_timeout_ms: Option<u64>,
    /// Refused: agents have their own addresses
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// Refused: others can read an argument
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,
    /// Taken, with nothing more to say
    #[arg(long)]
    pub verbose: bool,
    /// Fail rather than run without the daemon
    #[arg(long)]
    pub no_fallback: bool,
}
