//! `sessions`, `model` and `compact`.
//!
//! Owns what they ask for. Must not know how a row looks (`rows`).

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::time::Duration;

use agentd_protocol::models::{ModelRow, Models, full_name};
use agentd_protocol::nearest::nearest;
use agentd_protocol::request::unix_ms;
use agentd_protocol::rows::{FoundRow, SessionPhase, SessionRow};
use agentd_protocol::work::{
    Compact, SessionList, SessionNew, SessionRename, SessionSearch, SetModel,
};

use super::args::{
    CloseSessionsArgs, CompactArgs, ListSessionsArgs, ModelArgs, NewSessionArgs, SearchArgs,
    SessionsArgs, SessionsCommand,
};
use super::busy::Busy;
use super::exit::Exit;
use super::{ask, bench, compose, details, outcome, output, rows, terminal, typed, value};
use agentd_client::asked::RequestError;
use agentd_client::client::{Client, Server};
use agentd_client::sessions::{FoundPages, Model, SessionPages};
use agentd_protocol::{Code, Line};
use agentd_terminal::style::Style;

/// Sessions that a list shows when nobody says how many.
const LIMIT: usize = 50;
/// Of these without a name: a batch makes many, and named ones are looked for.
const UNNAMED: usize = 10;
/// Turns that a search shows when nobody says how many.
const FOUND: usize = 20;
/// Sessions that a question names: more would hide it.
const NAMED: usize = 5;

pub(super) async fn sessions(args: SessionsArgs, socket: Option<&Path>) -> io::Result<Exit> {
    match args.command {
        None => list(&args.list, socket).await,
        Some(SessionsCommand::List(args)) => list(&args, socket).await,
        Some(SessionsCommand::Show(args)) => {
            let mut client = ask::past(socket, args.past).await?;
            let exit = details::session(&mut client, &args.session.name(), args.json).await;
            client.close().await;
            exit
        }
        Some(SessionsCommand::Search(args)) => {
            let mut client = ask::past(socket, args.past).await?;
            let exit = search(&mut client, args).await;
            client.close().await;
            exit
        }
        Some(command) => match ask::daemon(socket).await {
            Ok(mut client) => change(&mut client, command).await,
            Err(exit) => Ok(exit),
        },
    }
}

/// What only a daemon does.
async fn change(client: &mut Client, command: SessionsCommand) -> io::Result<Exit> {
    match command {
        SessionsCommand::New(args) => make(client, args).await,
        SessionsCommand::Close(args) => close(client, args).await,
        SessionsCommand::Rename(args) => {
            let (session, to) = args.of().map_err(|why| {
                outcome::ends(
                    Exit::Usage,
                    why,
                    Some("`agentctl sessions rename SESSION NEW`"),
                )
            })?;
            let rename = SessionRename {
                session: session.to_owned(),
                to: to.to_owned(),
            };
            let renamed = client.session_rename(&rename).await;
            ask::print(renamed, args.output.json, |(name, was)| {
                let (name, was) = (output::safe(name), output::safe(was));
                format!("{was} is called {name} now\n")
            })
        }
        SessionsCommand::Title(args) => {
            let (titled, json) = (args.title(), args.output.json);
            ask::print(
                client.session_title(&titled).await,
                json,
                |title| match title {
                    Some(title) => format!("{}\n", output::safe(title)),
                    None => "its title is how its first prompt begins\n".to_owned(),
                },
            )
        }
        SessionsCommand::Fork(args) => {
            let (fork, json) = (args.fork(), args.output.json);
            ask::print(client.session_fork(&fork).await, json, |made| {
                format!("{}\n", output::safe(&made.session))
            })
        }
        SessionsCommand::Resume(args) => {
            let resumed = client.session_resume(&args.session.name()).await;
            ask::print(resumed, args.output.json, |jobs| match jobs.as_slice() {
                [] => "no turn was held\n".to_owned(),
                jobs => {
                    let names: Vec<String> = jobs.iter().map(ToString::to_string).collect();
                    format!("go on: {}\n", names.join(" "))
                }
            })
        }
        // These read what is stored.
        SessionsCommand::List(_) | SessionsCommand::Show(_) | SessionsCommand::Search(_) => {
            Ok(Exit::Done)
        }
    }
}

/// Lists them.
async fn list(args: &ListSessionsArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::past(socket, args.past).await?;
    let found = listed(&mut client, args).await;
    client.close().await;
    show_list(found.map_err(|error| ask::tell(&error))?, args)
}

async fn listed(
    client: &mut Client,
    args: &ListSessionsArgs,
) -> Result<Vec<SessionRow>, RequestError> {
    let mut pages = SessionPages::of(SessionList {
        agent: args.agent.clone(),
        closed: args.closed,
        ..SessionList::default()
    });
    let mut found = Vec::new();
    while let Some(page) = pages.next(client).await? {
        found.extend(page.value);
    }
    // A daemon of before lists all that are open, whatever is asked.
    let is_wanted = |row: &SessionRow| (row.state == SessionPhase::Closed) == args.closed;
    if !found.iter().all(is_wanted) {
        output::note("the daemon is of an earlier version, and can't list closed sessions");
    }
    found.retain(|row| {
        is_wanted(row) && args.agent.as_ref().is_none_or(|agent| row.agent == *agent)
    });
    Ok(found)
}

fn show_list(mut found: Vec<SessionRow>, args: &ListSessionsArgs) -> io::Result<Exit> {
    // What a bench ran is nothing that anybody said, once it is over.
    if !args.json {
        found.retain(|row| row.state != SessionPhase::Closed || !bench::is_of_bench(&row.session));
    }
    let before = found.len();
    if !args.json && !args.all {
        found.retain(|row| !is_unanswered(row));
    }
    let unanswered = before - found.len();
    // In the same second the one that was made last was used last, mostly.
    found.reverse();
    found.sort_by_cached_key(|row| std::cmp::Reverse(unix_ms(&row.last_active_at)));
    let unnamed = match args.json || args.all || args.limit.is_some() {
        true => 0,
        false => without_unnamed(&mut found),
    };
    let all = found.len();
    let most = match args.json {
        true => args.limit.unwrap_or(all),
        false => args.limit.unwrap_or(LIMIT),
    };
    found.truncate(most);
    if args.json {
        let line = Line::SessionList {
            ok: true,
            sessions: found,
            next: None,
        };
        output::out_json(line.body().as_json())?;
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        output::out_line(match args.closed {
            true => "no closed sessions",
            false => "no sessions",
        })?;
    } else {
        if args.closed && output::err_is_terminal() {
            output::note("`agentctl history NAME#NUMBER` reads one of them");
        }
        let style = Style::of_stdout();
        output::out(&rows::sessions(&found, value::now_ms(), &style))?;
    }
    if all > found.len() {
        output::note(&format!(
            "these are {} of {all}: see more with a larger `--limit`",
            found.len()
        ));
    }
    let left_out = unnamed + unanswered;
    if left_out > 0 {
        let sessions = output::counted(u64::try_from(left_out).unwrap_or(u64::MAX), "more session");
        output::note(&format!(
            "{sessions} without a name: `--all` lists them, too"
        ));
    }
    Ok(Exit::Done)
}

/// Is there nothing to go on with? All turns of a session that nobody named have failed, mostly
/// before the agent said anything.
fn is_unanswered(row: &SessionRow) -> bool {
    is_unnamed(row)
        && is_over(row)
        && row.turns > 0
        && row.preview.is_empty()
        && row.model.is_none()
}

fn is_unnamed(row: &SessionRow) -> bool {
    let number = row.session.strip_prefix('s');
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

fn is_over(row: &SessionRow) -> bool {
    matches!(row.state, SessionPhase::Idle | SessionPhase::Closed)
}

/// Leaves out all but the first of those that nobody named and nothing happens in; how many these are.
fn without_unnamed(rows: &mut Vec<SessionRow>) -> usize {
    let (before, mut shown) = (rows.len(), 0);
    rows.retain(|row| {
        let counts = is_unnamed(row) && is_over(row);
        shown += usize::from(counts);
        !counts || shown <= UNNAMED
    });
    before - rows.len()
}

async fn search(client: &mut Client, args: SearchArgs) -> io::Result<Exit> {
    let limit = args.limit.unwrap_or(FOUND);
    // What a bench ran is nothing that anybody said.
    let named = args.session.is_some();
    let is_wanted = |row: &FoundRow| named || !bench::is_of_bench(&row.session);
    let mut pages = FoundPages::new(SessionSearch {
        words: args.words,
        session: args.session,
        limit: Some(limit),
        before: None,
    });
    if args.json {
        return ask::print_pages(client, pages).await;
    }
    let found = {
        let mut busy = Busy::begin();
        let found = pages.wanted(client, limit, is_wanted);
        busy.during("looking through what was said", found).await
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => return Ok(ask::tell(&error)),
    };
    if found.is_empty() {
        output::out_line("found nothing")?;
        return Ok(Exit::Done);
    }
    let style = Style::of_stdout();
    output::out(&rows::found(&found, value::now_ms(), &style))?;
    // Whoever said how many knows that there may be more.
    if pages.has_more() && args.limit.is_none() {
        output::note(&format!(
            "these are the newest {FOUND}, there may be more: a larger `--limit` shows them"
        ));
    }
    Ok(Exit::Done)
}

/// Each by itself: one that can't be closed keeps no other.
async fn close(client: &mut Client, args: CloseSessionsArgs) -> io::Result<Exit> {
    let names = match args.idle {
        None => [args.sessions, args.session].concat(),
        Some(idle) => match idle_for(client, idle, args.agent.as_deref()).await {
            Ok(names) => names,
            Err(error) => return Ok(ask::tell(&error)),
        },
    };
    if names.is_empty() && !args.json {
        output::out_line("no session is that idle")?;
    }
    if args.idle.is_some() && !args.yes && !may_close(&names)? {
        output::note("nothing was closed");
        return Ok(Exit::Usage);
    }
    let mut worst = Ok(Exit::Done);
    let mut kept = Vec::new();
    let closing = client.sessions_close(&names, |closed| {
        let told = ask::print(closed, args.json, |one| {
            kept.extend(one.closed_as.clone());
            format!("closed {}\n", output::safe(&one.session))
        });
        match told {
            Ok(Exit::Done) => {}
            // Nobody reads it any more: they are closed all the same.
            Err(_) if worst.is_err() => {}
            told => worst = told,
        }
    });
    let closing = closing.await;
    tell_kept(&kept);
    match closing {
        Ok(()) => worst,
        Err(error) => Ok(ask::tell(&error)),
    }
}

/// By which names their past is read from now on.
fn tell_kept(names: &[String]) {
    let kept = match names {
        [] => return,
        [name] => format!("`agentctl history {name}` reads what was said in it"),
        names if names.len() <= NAMED => format!(
            "`agentctl history NAME#NUMBER` reads what was said in them: {}",
            names.join(", ")
        ),
        _ => "`agentctl history NAME#NUMBER` reads what was said in them: `agentctl sessions list \
              --closed` has their numbers"
            .to_owned(),
    };
    output::note(&output::safe(&kept));
}

/// Asks on a terminal: whoever named none sees which they are. Elsewhere it is done as told.
fn may_close(names: &[String]) -> io::Result<bool> {
    if names.is_empty() || !io::stdin().is_terminal() || !output::err_is_terminal() {
        return Ok(true);
    }
    let count = output::counted(names.len() as u64, "session");
    let mut which = names[..names.len().min(NAMED)].join(", ");
    if names.len() > NAMED {
        which.push_str(&format!(" and {} more", names.len() - NAMED));
    }
    let question = format!("close {count} ({which})? [y/N] ");
    let line = terminal::ask_line(&output::safe(&question))?;
    Ok(matches!(
        line.as_deref().map(str::trim),
        Some("y" | "Y" | "yes")
    ))
}

/// Sessions that have nothing to do, and had nothing for so long.
async fn idle_for(
    client: &mut Client,
    idle_for: Duration,
    agent: Option<&str>,
) -> Result<Vec<String>, RequestError> {
    let idle = i64::try_from(idle_for.as_millis()).unwrap_or(i64::MAX);
    let before = value::now_ms().saturating_sub(idle);
    let mut pages = SessionPages::of(SessionList {
        agent: agent.map(str::to_owned),
        idle_for: Some(idle_for.as_secs_f64()),
        ..SessionList::default()
    });
    let mut all = Vec::new();
    while let Some(page) = pages.next(client).await? {
        all.extend(page.value);
    }
    // A daemon of before lists all.
    all.retain(|row| {
        // What a daemon saw pass goes before what a clock says now, which may have been set.
        let is_old = match row.idle_s {
            Some(seen) => Duration::from_secs(seen) >= idle_for,
            None => unix_ms(&row.last_active_at).is_some_and(|used| used <= before),
        };
        row.state == SessionPhase::Idle && is_old && agent.is_none_or(|agent| row.agent == agent)
    });
    Ok(all.into_iter().map(|row| row.session).collect())
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
        system: args.system,
        mcp_servers: None,
    };
    ask::print(client.session_new(&new).await, args.json, |made| {
        format!("{}\n", output::safe(&made.session))
    })
}

pub(super) async fn model(args: ModelArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let (session, model) = args
        .of()
        .map_err(|why| outcome::ends(Exit::Usage, why, Some("`agentctl model SESSION MODEL`")))?;
    let wrong =
        |model: &str| model.is_empty() || (args.provider.is_none() && model.starts_with('/'));
    if let Some(model) = model.filter(|model| wrong(model)) {
        let error = format!("`{model}` is no model: expected MODEL, or PROVIDER/MODEL");
        output::error(&error, Some("`agentctl model SESSION MODEL`"));
        return Ok(Exit::Usage);
    }
    let session = session.to_owned();
    let (provider, model) = match model {
        Some(model) => {
            let (provider, model) = split_model(args.provider.clone(), model);
            (provider, Some(model))
        }
        None => (args.provider.clone(), None),
    };
    let set = SetModel {
        session,
        provider,
        model,
        thinking: args.thinking,
        mode: args.mode,
    };
    let mut client = ask::daemon(socket).await?;
    if let Some(model) = set.model.as_deref().filter(|_| !args.force) {
        listed_by_agent(&mut client, &set, model).await?;
    }
    ask::print(client.set_model(&set).await, args.json, in_force)
}

/// Refuses a model that the session's agent doesn't list; says so where that can't be known.
async fn listed_by_agent(client: &mut Client, set: &SetModel, model: &str) -> Result<(), Exit> {
    let asked = Models {
        session: Some(set.session.clone()),
        ..Models::default()
    };
    let mut busy = Busy::begin();
    let what = "asking the agent for its models";
    let told = busy.during(what, client.models(asked)).await;
    drop(busy);
    let wanted = full_name(set.provider.as_deref(), model);
    let listed = match told {
        Ok(told) if !told.models.is_empty() => told,
        Err(RequestError::Refused(why)) if why.code == Code::UnknownSession => return Ok(()),
        Ok(_) | Err(RequestError::Refused(_)) => {
            output::note(&format!(
                "the agent doesn't say which models it has, so `{}` isn't checked",
                output::safe(&wanted)
            ));
            return Ok(());
        }
        // Nothing is changed then either, and that says why.
        Err(_) => return Ok(()),
    };
    let names: Vec<String> = listed.models.iter().map(ModelRow::full_name).collect();
    let is_meant = |row: &ModelRow| {
        let of_provider =
            set.provider.is_none() || row.provider.is_none() || row.provider == set.provider;
        (row.model == model && of_provider) || row.model == wanted
    };
    if listed.models.iter().any(is_meant) {
        return Ok(());
    }
    let (agent, session) = (output::safe(&listed.agent), typed::quoted(&set.session));
    let error = format!(
        "the agent `{agent}` lists no model `{}`",
        output::safe(&wanted)
    );
    let list = format!(
        "`agentctl models list --session {session}` lists them, `--force` takes it all the same"
    );
    let bare = listed.models.iter().map(|row| row.model.as_str());
    let near = nearest(&wanted, names.iter().map(String::as_str).chain(bare));
    let hint = match near {
        Some(near) => format!("did you mean `{}`? {list}", output::safe(near)),
        None => list,
    };
    Err(outcome::ends(Exit::Usage, &error, Some(&hint)))
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
    let mode = model.mode.as_ref();
    let mode = mode.map_or_else(String::new, |mode| format!(", mode {mode}"));
    let shown = format!("{}: {provider}{name}{thinking}{mode}\n", model.session);
    output::safe(&shown).into_owned()
}

pub(super) async fn compact(args: CompactArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let asked = Compact {
        session: args.of.or(args.session),
        instructions: args.instructions,
    };
    let mut client = ask::daemon(socket).await?;
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
            mode: Some("plan".to_owned()),
        };
        let shown = "main: openai/gpt-5, thinking low, mode plan\n";
        assert_eq!(in_force(&model), shown);
    }
}
