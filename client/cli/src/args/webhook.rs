//! The words of `webhook`.
//!
//! Owns names and help. Must not know what a command does.

use clap::{Args, Subcommand, ValueEnum};

// `webhook`.
#[derive(Args, Clone, Debug)]
pub struct WebhookArgs {
    /// What about them.
    #[command(subcommand)]
    pub command: WebhookCommand,
}

// What about webhooks.
#[derive(Subcommand, Clone, Debug)]
pub enum WebhookCommand {
    /// Let callbacks go to URLs that begin so, and print the secret they are signed with
    #[command(after_help = "\
Examples:
  agentctl webhook add https://ci.example/hooks/
  agentctl webhook add http://127.0.0.1:8080/ --allow-private

The secret is for the receiver, who checks with it that a request is from here. It is kept in
webhooks.json beside config.toml, mode 0600. The daemon that runs knows it at once.")]
    Add(AddWebhookArgs),
    /// Let no callbacks go there any more
    #[command(after_help = "Examples:\n  agentctl webhook remove https://ci.example/hooks/")]
    Remove(WebhookUrlArgs),
    /// A new secret beside the old one, until the receiver knows it
    #[command(after_help = "\
Examples:
  agentctl webhook rotate https://ci.example/hooks/
  agentctl webhook rotate https://ci.example/hooks/ --finish

Until it is finished, each request is signed with both.")]
    Rotate(RotateWebhookArgs),
    /// The endpoints, and the deliveries, newest first
    #[command(after_help = "\
Examples:
  agentctl webhook list
  agentctl webhook list --state dead --json
  agentctl webhook list --limit 1000 --before 4711")]
    List(WebhookListArgs),
    /// Send a delivery again now, under its old id, or all that were given up
    #[command(after_help = "\
Examples:
  agentctl webhook replay evt_0123456789abcdef0123456789abcdef
  agentctl webhook replay --dead
  agentctl webhook replay --dead --url https://ci.example/hooks/")]
    Replay(ReplayWebhookArgs),
    /// Send a request that tells nothing, and say what came of it
    #[command(after_help = "\
Examples:
  agentctl webhook test https://ci.example/hooks/agentd

Exit codes: 0 it was taken, 1 it wasn't, 2 no endpoint is configured for it")]
    Test(TestWebhookArgs),
}

// `webhook add`.
#[derive(Args, Clone, Debug)]
pub struct AddWebhookArgs {
    /// What the URLs begin with
    #[arg(value_name = "URL")]
    pub url: String,
    /// It may lead to this machine, or into a private network
    #[arg(long)]
    pub allow_private: bool,
    /// Print one JSON object
    #[arg(long, short)]
    pub json: bool,
}

// `webhook remove`.
#[derive(Args, Clone, Debug)]
pub struct WebhookUrlArgs {
    /// As it was added
    #[arg(value_name = "URL")]
    pub url: String,
    /// Print one JSON object
    #[arg(long, short)]
    pub json: bool,
}

// `webhook rotate`.
#[derive(Args, Clone, Debug)]
pub struct RotateWebhookArgs {
    /// As it was added
    #[arg(value_name = "URL")]
    pub url: String,
    /// The receiver knows the new secret: forget the old one
    #[arg(long)]
    pub finish: bool,
    /// Print one JSON object
    #[arg(long, short)]
    pub json: bool,
}

// `webhook list`.
#[derive(Args, Clone, Debug)]
pub struct WebhookListArgs {
    /// Only deliveries in this state
    #[arg(long, value_enum)]
    pub state: Option<DeliveryArg>,
    /// At most so many deliveries
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50, value_parser = crate::value::count)]
    pub limit: usize,
    /// Only those before this place, where a list that was cut off says that it goes on
    #[arg(long, value_name = "PLACE", value_parser = crate::value::number::<u64>)]
    pub before: Option<u64>,
    /// Print the protocol's own lines, one for each page
    #[arg(long, short)]
    pub json: bool,
}

// `webhook replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayWebhookArgs {
    /// Which, as `webhook list` shows it
    #[arg(value_name = "ID", required_unless_present = "dead")]
    pub webhook: Option<String>,
    /// All that were given up, but for tries
    #[arg(long, conflicts_with = "webhook")]
    pub dead: bool,
    /// Of these only those whose URL begins so
    #[arg(long, value_name = "PREFIX", requires = "dead")]
    pub url: Option<String>,
}

// `webhook test`.
#[derive(Args, Clone, Debug)]
pub struct TestWebhookArgs {
    /// Where to
    #[arg(value_name = "URL")]
    pub url: String,
}

/// `--state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DeliveryArg {
    /// There is another attempt
    Pending,
    /// The receiver has it
    Delivered,
    /// It was given up
    Dead,
}
