//! `history`: what was said in a session.
//!
//! Owns which turns are meant. Must not know how one looks (`rows`).

use std::io;
use std::path::Path;

use agentd_protocol::JobId;
use agentd_protocol::rows::{JobRow, TurnRow};
use agentd_protocol::work::Jobs;

use super::args::HistoryArgs;
use super::exit::Exit;
use super::{ask, bench, outcome, output, rows, value};
use agentd_client::asked::RequestError;
use agentd_client::client::Client;
use agentd_client::jobs::JobPages;
use agentd_client::sessions::HistoryPages;
use agentd_terminal::style::Style;

/// Which turns are shown.
struct Meant {
    session: Option<String>,
    last: Option<usize>,
}

pub(super) async fn history(args: HistoryArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let meant = meant(&args).map_err(|why| outcome::ends(Exit::Usage, &why, None))?;
    let mut client = ask::past(socket, args.past).await?;
    let exit = show(&mut client, &args, meant).await;
    client.close().await;
    exit
}

/// `--last main` is the last turn of `main`: what follows the option may be its number, or not.
fn meant(args: &HistoryArgs) -> Result<Meant, String> {
    let session = args.of.clone().or_else(|| args.session.clone());
    let Some(last) = &args.last else {
        return Ok(Meant {
            session,
            last: None,
        });
    };
    match (last.parse(), session) {
        (Ok(0), _) => Err("`--last` is 0, expected at least 1".to_owned()),
        (Ok(last), session) => Ok(Meant {
            session,
            last: Some(last),
        }),
        (Err(_), None) => Ok(Meant {
            session: Some(last.clone()),
            last: Some(1),
        }),
        (Err(_), Some(_)) => Err(format!(
            "`--last` is `{}`, expected a number of turns",
            output::safe(last)
        )),
    }
}

async fn show(client: &mut Client, args: &HistoryArgs, meant: Meant) -> io::Result<Exit> {
    let session = match meant.session {
        Some(session) => session,
        None => match newest(client, args.job).await {
            Ok(Some(session)) => session,
            Ok(None) => {
                output::out_line("no turns")?;
                return Ok(Exit::Done);
            }
            Err(error) => return Ok(ask::tell(&error)),
        },
    };
    let mut pages = HistoryPages::of(&session, args.job);
    if args.full {
        pages = pages.with_events();
    }
    if let Some(last) = meant.last {
        match before_last(client, &session, last).await {
            Ok(Some(before)) => pages = pages.after(before),
            Ok(None) => {}
            Err(error) => return Ok(ask::tell(&error)),
        }
    }
    let mut some = false;
    loop {
        let page = match pages.next(client).await {
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
                && let Err(error) = complete(client, &session, &mut turn).await
            {
                return Ok(ask::tell(&error));
            }
            let style = Style::of_stdout();
            output::out(&rows::turn(&turn, value::now_ms(), &style))?;
        }
    }
    if args.json {
        return Ok(Exit::Done);
    }
    if !some {
        output::out_line("no turns")?;
    }
    // An older daemon can't tell it.
    if !session.contains('#')
        && let Ok(Some(before)) = client.session_closed(&session).await
        && let Ok(Some(now)) = client.session_named(&session).await
        && now.closed_as.is_none()
    {
        output::note(&format!(
            "an earlier session of this name was closed: `agentctl history {}` reads it",
            output::safe(before.name())
        ));
    }
    Ok(Exit::Done)
}

/// The session of a job, or of the newest one.
async fn newest(client: &mut Client, job: Option<JobId>) -> Result<Option<String>, RequestError> {
    let row = match job {
        Some(job) => client.job(job).await?,
        None => {
            // What a bench ran is nothing that anybody said.
            let said = |row: &JobRow| !bench::is_of_bench(&row.session);
            let mut pages = JobPages::new(Jobs::default());
            loop {
                let Some(page) = pages.next(client).await? else {
                    break None;
                };
                let found = page.value.into_iter().find(said);
                if found.is_some() {
                    break found;
                }
            }
        }
    };
    Ok(row.map(|row| row.session))
}

/// The turn before the last ones of a session; none if these are all.
async fn before_last(
    client: &mut Client,
    session: &str,
    last: usize,
) -> Result<Option<JobId>, RequestError> {
    let newest = Jobs {
        session: Some(session.to_owned()),
        limit: Some(last.saturating_add(1)),
        ..Jobs::default()
    };
    let turns = client.jobs(newest).await?;
    Ok(turns.get(last).map(|row| row.job))
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
