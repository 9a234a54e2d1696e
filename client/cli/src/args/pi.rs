//! The words of `serve pi`: those of `pi --mode rpc`, and our own.
//!
//! Owns names and help. Must not know the protocol.

use clap::Args;

// `serve pi`.
#[derive(Args, Clone, Debug)]
pub struct PiArgs {
    /// Who answers in new sessions; without, the default
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// The provider of the model
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// The model, or `provider/model`; `:LEVEL` behind it is a thinking level
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// The thinking level
    #[arg(long, value_name = "LEVEL")]
    pub thinking: Option<String>,
    /// Go on in this session: its name, or the `sessionFile` of `get_state`
    #[arg(
        long,
        alias = "session-id",
        value_name = "NAME",
        conflicts_with = "continue_last"
    )]
    pub session: Option<String>,
    /// Begin with all that was said in this session
    #[arg(long, value_name = "NAME", conflicts_with_all = ["session", "continue_last"])]
    pub fork: Option<String>,
    /// Go on in the session used last in this directory
    #[arg(long = "continue", short)]
    pub continue_last: bool,
    /// What a new session is called
    #[arg(long, short, value_name = "TITLE")]
    pub name: Option<String>,
    /// What the agent may use, in pi's words or agentd's
    #[arg(long, short, value_name = "NAMES", value_delimiter = ',', value_parser = crate::value::word)]
    pub tools: Option<Vec<String>>,
    /// Nothing
    #[arg(long, alias = "no-builtin-tools", conflicts_with = "tools")]
    pub no_tools: bool,
    /// What the agent is told before the conversation, behind its own: a text, or the file that has it
    #[arg(long, alias = "append-system-prompt", value_name = "TEXT|FILE")]
    pub system_prompt: Vec<String>,
    /// Print the agent's models, or those that match, as pi does, and leave
    #[arg(long, value_name = "SEARCH")]
    pub list_models: Option<Option<String>>,
    /// Print the version of pi whose commands these are, as pi does, and leave
    #[arg(long, short = 'v')]
    pub version: bool,
    /// `rpc`, which it is anyway
    #[arg(long, value_name = "rpc", value_parser = ["rpc"])]
    pub mode: Option<String>,
    /// Fail rather than run without the daemon
    #[arg(long)]
    pub no_fallback: bool,
    // Of pi's own, with nothing to mean here; hosts give them.
    #[command(flatten)]
    pub unheeded: PiUnheeded,
}

// Taken and not heeded.
#[derive(Args, Clone, Debug)]
#[group(id = "unheeded")]
pub struct PiUnheeded {
    #[arg(long, hide = true)]
    pub offline: bool,
    #[arg(long, hide = true)]
    pub no_session: bool,
    #[arg(long, hide = true)]
    pub no_extensions: bool,
    #[arg(long, hide = true)]
    pub no_skills: bool,
    #[arg(long, hide = true)]
    pub no_context_files: bool,
    #[arg(long, hide = true)]
    pub no_prompt_templates: bool,
    #[arg(long, hide = true)]
    pub no_themes: bool,
    #[arg(long, hide = true)]
    pub no_mcp: bool,
    #[arg(long, hide = true)]
    pub auto_approve: bool,
    #[arg(long, hide = true)]
    pub approval_mode: Option<String>,
    #[arg(long, hide = true)]
    pub session_dir: Option<String>,
    #[arg(long, hide = true, value_parser = not_taken)]
    pub exclude_tools: Option<String>,
    #[arg(long, hide = true)]
    pub models: Option<String>,
    #[arg(long, short = 'e', hide = true)]
    pub extension: Vec<String>,
    #[arg(long, hide = true)]
    pub skill: Vec<String>,
    #[arg(long, hide = true)]
    pub prompt_template: Vec<String>,
    #[arg(long, hide = true)]
    pub theme: Vec<String>,
    #[arg(long, hide = true)]
    pub use_theme: Option<String>,
    #[arg(long, hide = true)]
    pub tui_mode: Option<String>,
    #[arg(long, hide = true)]
    pub verbose: bool,
    #[arg(long, short = 'a', hide = true)]
    pub approve: bool,
    #[arg(long, hide = true)]
    pub no_approve: bool,
    #[arg(long, hide = true, value_parser = no_key)]
    pub api_key: Option<String>,
}

fn no_key(_: &str) -> Result<String, String> {
    Err("agents have their own keys: `agentctl provider add` gives timmy one".to_owned())
}

fn not_taken(_: &str) -> Result<String, String> {
    Err(
        "agents are told what they may use, not what they may not: name that with --tools"
            .to_owned(),
    )
}
