//! The words of what is served to programs of other protocols: `serve`, `token`.
//!
//! Owns names and help. Must not know HTTP, nor any other protocol.

use std::net::SocketAddr;

use clap::{Args, Subcommand};

use super::{AcpArgs, BridgeArgs, PiArgs};

// `serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// As what.
    #[command(subcommand)]
    pub command: ServeCommand,
}

// As what the daemon is served.
#[derive(Subcommand, Clone, Debug)]
pub enum ServeCommand {
    /// HTTP on this machine, until Ctrl-C
    #[command(after_help = "\
Examples:
  agentctl serve http
  agentctl serve http --listen 127.0.0.1:8080
  printf 'header = \"Authorization: Bearer %s\"\\n' \"$(agentctl token)\" | \\
      curl -K - http://127.0.0.1:7878/v1/jobs

Chat front ends and programs for OpenAI's API use any agent, with the token as OPENAI_API_KEY and
OPENAI_BASE_URL=http://127.0.0.1:7878/v1.

Every request but /health needs the token of `agentctl token`. Ask 127.0.0.1, never localhost: that
may be [::1], where another user may listen. Browsers are refused. The document of the interface is
at /openapi.json.

Exit codes: 0 ended, 3 somebody else has the port, 78 the address is not this machine's own")]
    Http(HttpArgs),
    /// Agents as tools, for programs that speak MCP on standard input and output
    #[command(after_help = "\
Examples:
  claude mcp add agentd -- agentctl serve mcp
  codex mcp add agentd -- agentctl serve mcp
  agentctl serve mcp --host me@mac

Tools: ask, dispatch, collect, steer, cancel, sessions, agents, jobs, history. Agents work in the
directory of the program that asks, unless a call names another one. A turn that takes longer than
its call waits goes on, and `collect` has its result. Without a daemon, turns run without it, as
those of `agentctl send` do.")]
    Mcp(McpArgs),
    /// Agents for an editor, by the Agent Client Protocol on standard input and output
    #[command(after_help = "\
Examples:
  agentctl serve acp --bootstrap
  agentctl serve acp --agent pi

The editor starts it; --bootstrap prints what goes into its settings. The editor chooses agent,
model and thinking level, and answers what agents ask. Its sessions are those of `agentctl
sessions`: a turn goes on without the editor, which finds it again when it opens the session.
Without a daemon it runs one for itself, as `agentctl send` does.")]
    Acp(AcpArgs),
    /// Agents for a host that writes `run` and reads events, as `hermes bridge` does
    #[command(after_help = "\
Examples:
  agentctl serve bridge
  agentctl serve bridge --agent claude --once --native-stream
  echo '{\"message\":\"hello\"}' | agentctl serve bridge --once

A JSON object a line: `run`, `interrupt`, `ping` and `shutdown` on standard input, and events on
standard output. A session_id goes on in later processes, too. When the input ends, what runs is
finished; a signal ends it. What an agent asks is denied, as the protocol has no word for it.

Exit codes: 0 ended, 130 and 143 by a signal")]
    Bridge(BridgeArgs),
    /// Agents for Hermes' TUI and other clients of its gateway
    #[command(after_help = "\
Examples:
  agentctl serve gateway
  agentctl serve gateway --agent claude
  ln -s \"$(command -v agentctl)\" hermes-gateway

JSON-RPC on standard input and output, a message a line, as Hermes' own gateway has it. Sessions are
those of `agentctl sessions`; a turn goes on when the client leaves, and is found again when it
resumes the session. It needs the daemon.

The TUI starts a Python for its gateway: with HERMES_PYTHON it is a link to agentctl that is called
`hermes-gateway`.

Exit codes: 0 ended, 130 and 143 by a signal")]
    Gateway(GatewayArgs),
    /// Agents for a client of pi's RPC, as `pi --mode rpc` is
    #[command(after_help = "\
Examples:
  agentctl serve pi --agent claude
  agentctl serve pi --mode rpc --provider anthropic --model claude-sonnet-4-5
  agentctl serve pi --session main

pi's commands and events on standard input and output, a JSON object a line. Sessions are those of
`agentctl sessions`; a turn goes on when the client leaves, and is told on to one that comes back with
--session. Other options of pi's are taken and not heeded.

A link to agentctl that is called `pi` does the same.

Exit codes: 0 ended, 130 and 143 by a signal")]
    Pi(Box<PiArgs>),
}

// `serve gateway`.
#[derive(Args, Clone, Debug)]
pub struct GatewayArgs {
    /// Who answers in new sessions; without, the default
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
}

// `serve mcp`.
#[derive(Args, Clone, Copy, Debug)]
pub struct McpArgs {
    /// Fail rather than run without the daemon
    #[arg(long)]
    pub no_fallback: bool,
    /// Offer the tools `questions` and `answer`, too: a model may then allow what agents ask leave for
    #[arg(long)]
    pub answers: bool,
    /// End the job of an `ask` that is cancelled; else it goes on, as clients cancel what takes long, too
    #[arg(long)]
    pub abort_cancelled: bool,
}

// `serve http`.
#[derive(Args, Clone, Debug)]
pub struct HttpArgs {
    /// Where to listen: an address of this machine only; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7878", value_parser = crate::value::address)]
    pub listen: SocketAddr,
    /// Another name that requests may give as their host, as in `Host:`; may be given again
    #[arg(long = "allow-host", value_name = "NAME[:PORT]")]
    pub hosts: Vec<String>,
    /// A page's origin that may ask, as in `Origin:`; may be given again
    #[arg(long = "allow-origin", value_name = "SCHEME://NAME[:PORT]")]
    pub origins: Vec<String>,
    /// Listen on an address that other machines reach. Something in front has to speak TLS:
    /// the token is in every request
    #[arg(long)]
    pub behind_tls_proxy: bool,
    /// For OpenAI's clients: another name of a model, as a front end has it; may be given again
    #[arg(long = "model", value_name = "NAME=AGENT[/MODEL]", value_parser = crate::value::model_name)]
    pub models: Vec<(String, String)>,
    /// For OpenAI's clients: the turn of a stream that is closed goes on, rather than be cancelled
    #[arg(long)]
    pub keep_turns: bool,
}

// `token`.
#[derive(Args, Clone, Copy, Debug)]
pub struct TokenArgs {
    /// Make another one: the one before opens nothing from now on
    #[arg(long)]
    pub new: bool,
}
