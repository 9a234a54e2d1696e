//! `agentd webhook`: the words that `agentctl webhook add`, `remove` and `rotate` pass on.
//!
//! Owns their arguments and what is said when it is done. Must not know how the file is changed.

use std::io::Write as _;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::config::{EditError, EndpointChange, Endpoints, Secret};
use crate::platform::paths::Paths;

/// What to change in `webhooks.json`.
#[derive(Subcommand, Debug)]
pub(super) enum WebhookCommand {
    /// Let callbacks go to URLs that begin so
    Add(AddArgs),
    /// Let none go there any more
    Remove(UrlArgs),
    /// A new secret beside the old one
    Rotate(RotateArgs),
}

#[derive(Args, Debug)]
pub(super) struct AddArgs {
    #[command(flatten)]
    of: UrlArgs,
    /// It may lead to this machine, or into a private network
    #[arg(long)]
    allow_private: bool,
}

#[derive(Args, Debug)]
pub(super) struct RotateArgs {
    #[command(flatten)]
    of: UrlArgs,
    /// Forget the old secret
    #[arg(long)]
    finish: bool,
}

#[derive(Args, Debug)]
pub(super) struct UrlArgs {
    url: String,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// Changes the endpoints and says so, with the secret that the receiver has to know.
pub(super) fn run(command: WebhookCommand, paths: &Paths) -> Result<(), EditError> {
    let (of, change, done) = match command {
        WebhookCommand::Add(args) => {
            let allow_private = args.allow_private;
            (args.of, EndpointChange::Add { allow_private }, "added")
        }
        WebhookCommand::Remove(of) => (of, EndpointChange::Remove, "removed"),
        WebhookCommand::Rotate(args) if args.finish => {
            (args.of, EndpointChange::Retire, "finished")
        }
        WebhookCommand::Rotate(args) => (args.of, EndpointChange::Rotate, "rotated"),
    };
    let file = Endpoints::file(&paths.config);
    let secret = Endpoints::change(&file, &of.url, &change)?;
    let secret = secret.as_ref().map(Secret::reveal);
    let (url, file) = (&of.url, file.display());
    let said = match secret {
        secret if of.json => {
            let file = file.to_string();
            json!({"done": done, "url": url, "file": file, "secret": secret}).to_string()
        }
        Some(secret) => format!("{done} `{url}` in {file}\nsecret for the receiver: {secret}"),
        None => format!("{done} `{url}` in {file}"),
    };
    // It is done, whoever reads it.
    let _closed = writeln!(std::io::stdout(), "{said}");
    Ok(())
}
