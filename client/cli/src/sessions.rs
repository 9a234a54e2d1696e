//! `sessions`, `history`, `model` and `compact`.
//!
//! Owns what they ask for. Must not know how a row looks (`rows`).

use std::io;
use std::path::Path;

use agentd_protocol::rows::TurnRow;
use agentd_protocol::work::{Compact, SessionNew, SetModel};

use super::args::{
    CompactArgs, HistoryArgs, ModelArgs, NewSessionArgs, SessionsArgs, SessionsCommand,
};
use super::exit::Exit;
use super::{ask, compose, output, rows, value};
use agentd_client::asked::RequestError;
use agentd_client::client::{Client, Server};
use agentd_client::sessions::{HistoryPages, Model, SessionPages};

pub(super) async fn sessions(args: SessionsArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = match ask::daemon(socket).await {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    match args.command {
        None => list(&mut client, args.json).await,
        Some(SessionsCommand::New(args)) => make(&mut client, args).await,
        Some(SessionsCommand::Close(args)) => {
            let closed = client.session_close(&args.session).await;
            ask::print(closed, args.output.json, |name| {
                format!("closed {}\n", output::safe(name))
            })
        }
        Some(SessionsCommand::Resume(args)) => {
            let resumed = client.session_resume(&args.session).await;
            ask::print(resumed, args.output.json, |jobs| match jobs.as_slice() {
                [] => "no turn was held\n".to_owned(),
                jobs => {
                    let names: Vec<String> = jobs.iter().map(ToString::to_string).collect();
                    format!("go on: {}\n", names.join(" "))
                }
            })
        }
    }
}

async fn list(client: &mut Client, json: bool) -> io::Result<Exit> {
    let mut pages = SessionPages::default();
    let mut found = Vec::new();
    loop {
        match pages.next(client).await {
            Ok(Some(page)) if json => output::out_json(&page.line)?,
            Ok(Some(page)) => found.extend(page.value),
            Ok(None) => break,
            Err(error) => return Ok(ask::tell(&error)),
        }
    }
    if json {
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        output::out_line("no sessions")?;
    } else {
        output::out(&rows::sessions(&found, value::now_ms()))?;
    }
    Ok(Exit::Done)
}

async fn make(client: &mut Client, args: NewSessionArgs) -> io::Result<Exit> {
    let here = std::env::current_dir().ok();
    let cwd = match &args.cwd {
        Some(given) => Some(compose::absolute(given, here.as_deref())),
        // Where we are is of no interest to another machine.
        None if matches!(client.server(), Server::Remote(_)) => None,
        None => here,
    };
    let new = SessionNew {
        session: args.session,
        agent: args.agent,
        cwd: cwd.and_then(|cwd| cwd.to_str().map(str::to_owned)),
        toolsets: Some(args.toolsets).filter(|toolsets| !toolsets.is_empty()),
    };
    ask::print(client.session_new(&new).await, args.json, |made| {
        format!("{}\n", output::safe(&made.session))
    })
}

pub(super) async fn history(args: HistoryArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = match ask::daemon(socket).await {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    let mut pages = HistoryPages::new(&args.session, args.job);
    let mut some = false;
    loop {
        let page = match pages.next(&mut client).await {
            Ok(Some(page)) => page,
            Ok(None) => break,
            Err(error) => return Ok(ask::tell(&error)),
        };
        if args.json {
            output::out_json(&page.line)?;
            continue;
        }
        for mut turn in page.value {
            some = true;
            if args.full
                && let Err(error) = complete(&mut client, &args.session, &mut turn).await
            {
                return Ok(ask::tell(&error));
            }
            output::out(&rows::turn(&turn, value::now_ms()))?;
        }
    }
    if !some && !args.json {
        output::out_line("no turns")?;
    }
    Ok(Exit::Done)
}

/// Replaces what is cut short by the whole message.
async fn complete(
    client: &mut Client,
    session: &str,
    turn: &mut TurnRow,
) -> Result<(), RequestError> {
    for message in turn.messages.iter_mut().filter(|one| one.truncated) {
        message.text = client
            .whole_message(session, turn.job, message.message)
            .await?;
        message.truncated = false;
    }
    Ok(())
}

pub(super) async fn model(args: ModelArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let (session, model) = match args.of() {
        Ok(named) => named,
        Err(why) => {
            output::error(why, Some("`agentctl model SESSION MODEL`"));
            return Ok(Exit::Usage);
        }
    };
    let (session, (provider, model)) = (
        session.to_owned(),
        split_model(args.provider.clone(), model),
    );
    let set = SetModel {
        session,
        provider,
        model,
        thinking: args.thinking,
    };
    let mut client = match ask::daemon(socket).await {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    ask::print(client.set_model(&set).await, args.json, in_force)
}

/// `provider/model` at the first slash, unless the provider is given.
fn split_model(provider: Option<String>, model: &str) -> (Option<String>, String) {
    match (provider, model.split_once('/')) {
        (None, Some((provider, model))) => (Some(provider.to_owned()), model.to_owned()),
        (provider, _) => (provider, model.to_owned()),
    }
}

fn in_force(model: &Model) -> String {
    let provider = model.provider.as_ref();
    let provider = provider.map_or_else(String::new, |provider| format!("{provider}/"));
    let name = model.model.as_deref().unwrap_or("the agent's own model");
    let thinking = model.thinking.as_ref();
    let thinking = thinking.map_or_else(String::new, |level| format!(", thinking {level}"));
    let shown = format!("{}: {provider}{name}{thinking}\n", model.session);
    output::safe(&shown).into_owned()
}

pub(super) async fn compact(args: CompactArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let asked = Compact {
        session: args.of.or(args.session),
        instructions: args.instructions,
    };
    let mut client = match ask::daemon(socket).await {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    ask::print(
        client.compact(&asked).await,
        args.json,
        |(name, summary)| {
            let shown = match summary {
                Some(summary) => format!("compacted {name}\n{}\n", summary.trim_end()),
                None => format!("compacted {name}\n"),
            };
            output::safe(&shown).into_owned()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_is_split_at_its_first_slash_alone() {
        let split = |provider: Option<&str>, model| {
            let (provider, model) = split_model(provider.map(str::to_owned), model);
            (provider.unwrap_or_default(), model)
        };
        let pair = |provider: &str, model: &str| (provider.to_owned(), model.to_owned());
        assert_eq!(split(None, "gpt-5"), pair("", "gpt-5"));
        assert_eq!(
            split(None, "router/openai/gpt-5"),
            pair("router", "openai/gpt-5")
        );
        assert_eq!(
            split(Some("router"), "openai/gpt-5"),
            pair("router", "openai/gpt-5")
        );
    }

    #[test]
    fn the_model_in_force_is_one_line() {
        let model = Model {
            session: "main".to_owned(),
            provider: Some("openai".to_owned()),
            model: Some("gpt-5".to_owned()),
            thinking: Some("low".to_owned()),
        };
        assert_eq!(in_force(&model), "main: openai/gpt-5, thinking low\n");
    }
}
