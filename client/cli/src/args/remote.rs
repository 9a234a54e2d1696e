//! The words of the commands that reach another machine.
//!
//! Owns their names and help. Must not know how it is reached.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::value;
use agentd_client::send_only::SendOnly;
use agentd_client::ssh::Target;
use agentd_voice::rate;

// `forward`.
#[derive(Args, Clone, Debug)]
pub struct ForwardArgs {
    /// The other machine
    #[arg(
        value_name = "[USER@]HOST[:PORT]",
        required_unless_present = "print_socket"
    )]
    pub to: Option<Target>,
    /// The socket here; without, HOST.sock beside this machine's own
    #[arg(long, value_name = "PATH")]
    pub local: Option<PathBuf>,
    /// Print where the socket of this machine's daemon is, and nothing else
    #[arg(long, conflicts_with_all = ["to", "local"])]
    pub print_socket: bool,
}

// `ssh-key`.
#[derive(Args, Clone, Debug)]
pub struct SshKeyArgs {
    /// The machine that the ssh key is to be for
    #[arg(value_name = "[USER@]HOST[:PORT]")]
    pub to: Target,
    /// The public key; without, the first that ssh would use for this machine
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Where `agentctl` is there, when it isn't on PATH
    #[arg(long, value_name = "PATH", value_parser = value::plain_path)]
    pub program: Option<String>,
    /// What may be sent with it.
    #[command(flatten)]
    pub rules: SendOnlyArgs,
}

// What whoever may only send may say: of `stdio --send-only`, and of `ssh-key`, which writes that.
#[derive(Args, Clone, Debug)]
#[group(id = "rules")]
pub struct SendOnlyArgs {
    /// Only in these sessions, `main` without; a send that names none begins one of its own
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = value::word)]
    pub sessions: Vec<String>,
    /// Only to these agents; a send that names none goes to the first
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = value::word)]
    pub agents: Vec<String>,
    /// Only with these toolsets; a send that names none gets all of them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = value::word)]
    pub tools: Vec<String>,
    /// Only without tools
    #[arg(long, conflicts_with = "tools")]
    pub no_tools: bool,
    /// Also in this directory and below; without, a send names no directory
    #[arg(long = "cwd-root", value_name = "DIR", value_parser = value::plain_path)]
    pub cwd_roots: Vec<String>,
}

impl SendOnlyArgs {
    /// The rules that they are.
    pub fn send_only(self) -> SendOnly {
        let usual = SendOnly::default().sessions;
        SendOnly {
            sessions: match self.sessions.is_empty() {
                true => usual,
                false => self.sessions,
            },
            agents: self.agents,
            tools: (self.no_tools || !self.tools.is_empty()).then_some(self.tools),
            cwd_roots: self.cwd_roots.into_iter().map(PathBuf::from).collect(),
        }
    }

    /// The words that say them once more, to a shell.
    pub fn words(&self) -> String {
        let list = |name, values: &[String]| match values {
            [] => String::new(),
            _ => format!(" --{name} {}", values.join(",")),
        };
        let mut words = list("sessions", &self.sessions);
        words.push_str(&list("agents", &self.agents));
        words.push_str(&list("tools", &self.tools));
        if self.no_tools {
            words.push_str(" --no-tools");
        }
        for root in &self.cwd_roots {
            words.push_str(&format!(" --cwd-root {root}"));
        }
        words
    }
}

// `voice`.
#[derive(Args, Clone, Debug)]
pub struct VoiceArgs {
    /// What about it.
    #[command(subcommand)]
    pub command: VoiceCommand,
}

// What about what was said.
#[derive(Subcommand, Clone, Debug)]
pub enum VoiceCommand {
    /// Send the transcript on standard input and print the answer
    #[command(after_help = "\
Examples:
  echo \"what is on today\" | agentctl voice forward --host me@mac
  agentctl voice forward --utterance 7F3A --no-prefix < transcript.txt

It is on disk before anything is sent. When the machine can't be reached it waits there for
`agentctl voice flush`, or for the next one, and the exit code is 0: it isn't lost.
The same --utterance again is the same turn, which never runs twice.")]
    Forward(VoiceForwardArgs),
    /// Deliver what waits, in the order it was said
    #[command(after_help = "\
Examples:
  agentctl voice flush
  agentctl voice flush --max-age 1h

Exit codes: 0 nothing waits any more, 69 something still does")]
    Flush(VoiceFlushArgs),
    /// Put aside what waits for a machine that is gone for good
    #[command(after_help = "\
Examples:
  agentctl voice forget me@oldmac

What waited is kept in `old` of the spool, and delivered nowhere. `agentctl doctor` calls that
machine no more.")]
    Forget(VoiceForgetArgs),
    /// Can a machine be reached, and does its daemon serve?
    #[command(after_help = "Examples:\n  agentctl voice check me@mac")]
    Check(VoiceCheckArgs),
}

// `voice forward`.
#[derive(Args, Clone, Debug)]
pub struct VoiceForwardArgs {
    /// Say first that this is speech and may be misheard; so it is without a word
    #[arg(long, conflicts_with = "no_prefix")]
    pub prefix: bool,
    /// Send the transcript as it is
    #[arg(long)]
    pub no_prefix: bool,
    /// What the recogniser calls it, the same again when asked again; a random one when not given
    #[arg(long, value_name = "ID", value_parser = value::utterance)]
    pub utterance: Option<String>,
    /// The conversation
    #[arg(long, short, value_name = "NAME", default_value = agentd_voice::SESSION)]
    pub session: String,
    /// Who answers, instead of the default agent
    #[arg(long, short, value_name = "NAME")]
    pub agent: Option<String>,
    /// How long to wait for the answer, everything before it included: 90s, 10m, or seconds
    #[arg(long, value_name = "TIME", default_value_t = 30.0, value_parser = value::positive, allow_hyphen_values = true)]
    pub deadline: f64,
    /// What waited longer isn't delivered any more, as 90s, 30m or 12h; at most 24h
    #[arg(long, value_name = "SPAN", default_value = agentd_voice::MAX_AGE, value_parser = value::age)]
    pub max_age: Duration,
    /// As many utterances are taken within a minute; what comes more often is no speech
    #[arg(long, value_name = "N", default_value_t = rate::PER_MINUTE)]
    pub per_minute: usize,
    /// Print one line of JSON
    #[arg(long, short)]
    pub json: bool,
}

// `voice flush`.
#[derive(Args, Clone, Debug)]
pub struct VoiceFlushArgs {
    /// How long each machine gets: 90s, 10m, or seconds
    #[arg(long, value_name = "TIME", default_value_t = 60.0, value_parser = value::positive, allow_hyphen_values = true)]
    pub deadline: f64,
    /// What waited longer isn't delivered any more, as 90s, 30m or 12h; at most 24h
    #[arg(long, value_name = "SPAN", default_value = agentd_voice::MAX_AGE, value_parser = value::age)]
    pub max_age: Duration,
}

// `voice forget`.
#[derive(Args, Clone, Debug)]
pub struct VoiceForgetArgs {
    /// The other machine, as `agentctl doctor` names it
    #[arg(value_name = "[USER@]HOST[:PORT]")]
    pub to: Target,
}

// `voice check`.
#[derive(Args, Clone, Debug)]
pub struct VoiceCheckArgs {
    /// The other machine
    #[arg(value_name = "[USER@]HOST[:PORT]")]
    pub to: Target,
    /// Print one line of JSON
    #[arg(long, short)]
    pub json: bool,
}
