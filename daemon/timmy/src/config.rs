//! What `config.toml` says to timmy: `[models]`, `[providers.NAME]` and `[timmy]`.
//!
//! Owns these three tables, the file that they are in, and the keys beside it: reading, changing,
//! and what they mean for a turn. Must not know the daemon's tables.

pub(crate) mod chain;
pub(crate) mod edit;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod local;
pub(crate) mod no_model;
pub(crate) mod offered;
pub(crate) mod read;
pub(crate) mod secrets;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// The three tables, as written.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    /// Which models, in which order.
    pub(crate) models: Models,
    /// Providers besides those of the table, or changes to these.
    pub(crate) providers: BTreeMap<String, ProviderConfig>,
    /// The agent itself.
    pub(crate) timmy: Timmy,
}

/// `[models]`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(default)]
pub(crate) struct Models {
    /// `provider/model`, split at the first slash.
    pub(crate) default: Option<String>,
    /// What is asked when the default fails, in this order; each `provider/model`.
    pub(crate) fallbacks: Vec<String>,
    /// Short names, each for a `provider/model`.
    pub(crate) aliases: BTreeMap<String, String>,
    /// What a refusal means for the chain.
    pub(crate) on_refusal: OnRefusal,
}

/// What a refusal means for the chain.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnRefusal {
    /// The turn ends with it.
    #[default]
    Stop,
    /// The next entry is asked, once, if no tool has changed anything.
    Next,
}

/// `[providers.NAME]`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderConfig {
    /// Where it is. Needed for a name the table doesn't have.
    pub(crate) base_url: Option<String>,
    /// What it speaks: `openai` (the default), `responses`, `anthropic`, `gemini`, `ollama`.
    pub(crate) wire: Option<String>,
    /// The variable that holds its key, in the environment or in the file `env`.
    pub(crate) key_env: Option<String>,
    /// Tokens that fit into a conversation with each of its models; for those it isn't known of.
    pub(crate) context_window: Option<u64>,
    /// US dollars for a million tokens of input, and of output.
    pub(crate) price: Option<PricePair>,
}

/// Of input, and of output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(expecting = "[INPUT, OUTPUT] in US dollars for a million tokens")]
pub(crate) struct PricePair(pub(crate) Price, pub(crate) Price);

/// A price in millionths of a dollar for a million tokens, so that it has an equality.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Price(u64);

/// `[timmy]`.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(default)]
pub(crate) struct Timmy {
    /// The toolsets a turn has that names none; `file` and `terminal` when absent.
    pub(crate) toolsets: Option<Vec<String>>,
    /// Directories that the `file` and `terminal` tools may write besides the workspace.
    pub(crate) writable: Vec<PathBuf>,
    /// Files and directories that tools don't even read without leave, besides those where programs
    /// are known to keep tokens.
    pub(crate) unreadable: Vec<PathBuf>,
    /// May commands of the `terminal` use the network without asking?
    pub(crate) network: bool,
    /// What happens to commands of the `terminal` where this system has no sandbox?
    pub(crate) unsandboxed: Unsandboxed,
    /// Requests to models in one turn; 100 when absent.
    pub(crate) max_requests: Option<u32>,
    /// MCP servers, by the name that their tools get.
    pub(crate) mcp: BTreeMap<String, McpServer>,
}

/// What happens to commands where there is no sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Unsandboxed {
    /// Somebody is asked for each; nobody there means no.
    #[default]
    Ask,
    /// They run, with all that the user may do.
    Allow,
}

/// `[timmy.mcp.NAME]`, or what a session brings: either a command or a URL.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpServer {
    /// A program that speaks MCP on its standard input and output.
    #[serde(default)]
    pub(crate) command: Vec<String>,
    /// A streamable HTTP endpoint.
    pub(crate) url: Option<String>,
    /// Variables of the environment and of the file `env` that its program gets.
    #[serde(default)]
    pub(crate) pass_env: Vec<String>,
    /// Seconds a call may take; 60 when absent.
    pub(crate) timeout: Option<u64>,
    /// Variables that its program gets as they stand here: of one that a session brings.
    #[serde(skip)]
    pub(crate) env: BTreeMap<String, String>,
    /// Sent with each request to its URL, likewise.
    #[serde(skip)]
    pub(crate) headers: BTreeMap<String, String>,
    /// Tools of it that change nothing: they run without asking, and at the same time.
    #[serde(default)]
    pub(crate) read_only: Vec<String>,
}

impl std::fmt::Debug for McpServer {
    /// Without what may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServer").finish_non_exhaustive()
    }
}

impl TryFrom<f64> for Price {
    type Error = String;

    fn try_from(usd: f64) -> Result<Self, String> {
        if usd.is_finite() && (0.0..=1e6).contains(&usd) {
            // In range, checked above.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            Ok(Self((usd * 1e6).round() as u64))
        } else {
            Err(format!(
                "a price is a number of dollars from 0 to 1000000, not {usd}"
            ))
        }
    }
}

impl Price {
    /// In US dollars for a million tokens.
    #[expect(clippy::cast_precision_loss)]
    pub(crate) fn usd(self) -> f64 {
        self.0 as f64 / 1e6
    }
}
