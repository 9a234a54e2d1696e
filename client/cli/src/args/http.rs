//! The words of HTTP: `serve`, `token`.
//!
//! Owns names and help. Must not know HTTP.

use std::net::SocketAddr;

use clap::{Args, Subcommand};

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

Chat front ends and programs for OpenAI's API use any agent: OPENAI_BASE_URL=http://127.0.0.1:7878/v1,
and the token as OPENAI_API_KEY.

Every request but /health needs the token of `agentctl token`. Ask 127.0.0.1, never localhost: that
may be [::1], where another user may listen. Browsers are refused. The document
of the interface is at /openapi.json.

Exit codes: 0 ended, 3 somebody else has the port, 78 the address is not this machine's own")]
    Http(HttpArgs),
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
