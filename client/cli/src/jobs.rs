//! `jobs` and `steer`.
//!
//! Owns what they ask for. Must not know how a row looks (`rows`).

use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::rows::{JobPhase, JobRow};
use agentd_protocol::work::{Jobs, Steer};
use serde_json::json;

use super::args::{JobsArgs, PsArgs, SteerArgs};
use super::exit::Exit;
use super::{ask, bench, details, output, prompt, rows, value};
use agentd_client::client::{Client, START_IT};
use agentd_client::jobs::JobPages;
use agentd_terminal::style::Style;

/// Jobs that a list shows when nobody says how many.
const LIMIT: usize = 50;
/// Whoever waits for longer wants to know why.
const QUIET_FOR: Duration = Duration::from_secs(1);

pub(super) async fn jobs(args: JobsArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::past(socket, args.past).await?;
    let exit = match args.job {
        Some(job) => details::job(&mut client, job, args.json).await,
        None => list(&mut client, args).await,
    };
    client.close().await;
    exit
}

async fn list(client: &mut Client, args: JobsArgs) -> io::Result<Exit> {
    // A daemon of before knows no filter for it.
    let agent = args.agent.clone();
    let named = args.session.is_some();
    let is_wanted = |row: &JobRow| {
        // What a bench ran is nothing that anybody asked for, once it is over.
        let is_of_bench = row.finished_at.is_some() && bench::is_of_bench(&row.session);
        agent.as_ref().is_none_or(|agent| row.agent == *agent) && (named || !is_of_bench)
    };
    let limit = args.limit.unwrap_or(LIMIT);
    let asked = Jobs {
        session: args.session,
        agent: args.agent,
        state: args.state.map(Into::into),
        label: args.label,
        parent: args.parent,
        since: args.since.map(|since| since.as_secs_f64()),
        ..Jobs::default()
    };
    let mut pages = JobPages::new(Jobs {
        limit: Some(limit),
        ..asked.clone()
    });
    if args.json {
        return ask::print_pages(client, pages).await;
    }
    let found = match pages.wanted(client, limit, is_wanted).await {
        Ok(found) => found,
        Err(error) => return Ok(ask::tell(&error)),
    };
    if found.is_empty() {
        output::out_line("no jobs")?;
    } else {
        output::out(&rows::jobs(&found, value::now_ms(), &Style::of_stdout()))?;
    }
    // Whoever said how many knows that there may be more.
    if pages.has_more() && args.limit.is_none() {
        output::note(&format!(
            "these are the newest {LIMIT}: see more with a larger `--limit`"
        ));
    }
    // A run of many jobs has a label: how far is it?
    if asked.label.is_some() && asked.state.is_none() && !found.is_empty() {
        match JobPages::new(asked).rest(client).await {
            Ok(all) => output::err(&format!("{}\n", how_far(all.iter().flatten()))),
            Err(error) => return Ok(ask::tell(&error)),
        }
    }
    Ok(Exit::Done)
}

/// How many there are, and how many of them are over.
fn how_far<'a>(rows: impl Iterator<Item = &'a JobRow>) -> String {
    let (mut all, mut done, mut failed, mut cancelled) = (0_u64, 0, 0, 0);
    for row in rows {
        all += 1;
        match row.state {
            JobPhase::Completed => done += 1,
            JobPhase::Failed | JobPhase::Interrupted => failed += 1,
            JobPhase::Cancelled => cancelled += 1,
            JobPhase::Queued | JobPhase::Held | JobPhase::Running => {}
        }
    }
    let to_go = all - done - failed - cancelled;
    let parts = [
        (done, "done"),
        (failed, "failed"),
        (cancelled, "cancelled"),
        (to_go, "to go"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    format!("{}: {}", output::counted(all, "job"), parts.join(", "))
}

/// What isn't over: what runs first, then what waits, the next of it first.
pub(super) async fn ps(args: PsArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::past(socket, args.past).await?;
    let mut found = Vec::new();
    for state in [JobPhase::Running, JobPhase::Queued, JobPhase::Held] {
        let filter = Jobs {
            state: Some(state),
            ..Jobs::default()
        };
        match client.jobs(filter).await {
            Ok(rows) => found.extend(rows.into_iter().rev()),
            Err(error) => return Ok(ask::tell(&error)),
        }
    }
    if args.json {
        output::out_json(&json!({ "jobs": found }).to_string())?;
    } else if found.is_empty() {
        output::out_line("nothing runs, and nothing waits")?;
    } else {
        output::out(&rows::jobs(&found, value::now_ms(), &Style::of_stdout()))?;
    }
    if client.is_alone() && !found.is_empty() {
        let cut_off = match found.iter().any(|row| row.cut_off) {
            true => "; it says that what was cut off was interrupted, or runs it again",
            false => "",
        };
        output::note(&format!(
            "what has not ended needs a daemon: {START_IT}{cut_off}"
        ));
    }
    client.close().await;
    Ok(Exit::Done)
}

pub(super) async fn steer(args: SteerArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let Some(text) = prompt::text_of(&args.text)? else {
        let hint = "give it as an argument, or pipe it in: `agentctl steer -`";
        output::error("there is nothing to say", Some(hint));
        return Ok(Exit::Usage);
    };
    let steer = Steer {
        session: args.session,
        job: args.job,
        text,
    };
    let mut client = ask::daemon(socket).await?;
    let tell = || {
        output::note(
            "the agent has not taken it yet: most do when the tool that runs has ended; it is told, \
             whether this waits or not",
        );
    };
    let steered = ask::told_when_late(QUIET_FOR, tell, client.steer(&steer)).await;
    ask::print(steered, args.json, |job| format!("told {job}\n"))
}
