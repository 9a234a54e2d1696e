//! `abort`: turns are cancelled, by their jobs, by their sessions, or by a label.
//!
//! Owns which turns are meant, and what is said of them. Must not know how a turn ends.

use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::request::{Abort, Wait};
use agentd_protocol::work::{JobPhase, Jobs};
use agentd_protocol::{Code, JobId, Line, RequestKind};

use super::args::AbortArgs;
use super::exit::Exit;
use super::value::JobOrSession;
use super::{ask, output};
use agentd_client::asked::RequestError;
use agentd_client::client::Client;

/// Jobs that are named: more would hide how many they are.
const NAMED: usize = 20;

pub(super) async fn abort(args: AbortArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut targets = named(&args);
    if args.queued && targets.iter().all(|target| target.session.is_none()) {
        output::error(
            "`--queued` is about a session, and none is named",
            Some("`agentctl abort SESSION --queued`"),
        );
        return Ok(Exit::Usage);
    }
    let mut client = match ask::daemon(socket).await {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    if let Some(label) = &args.label {
        targets = match labelled(&mut client, label).await {
            Ok(targets) => targets,
            Err(error) => return Ok(ask::tell(&error)),
        };
        if targets.is_empty() && !args.json {
            output::out_line(&format!("nothing with the label `{label}` waits or runs"))?;
        }
    }
    let mut exit = Exit::Done;
    let mut aborted = Vec::new();
    for target in &targets {
        let received = match client.answer(RequestKind::Abort, target).await {
            Ok(received) => received,
            Err(error) => return Ok(ask::tell(&error)),
        };
        let Some(Line::Abort { jobs, .. }) = &received.line else {
            return Ok(ask::unexpected(&received));
        };
        if jobs.is_empty()
            && let Some(failed) = is_unknown(&mut client, target).await
        {
            exit = failed;
        } else if args.json {
            output::out_json(&received.text)?;
        } else if !jobs.is_empty() {
            aborted.extend_from_slice(jobs);
        } else if args.label.is_none() {
            output::out_line(&match (target.job, &target.session) {
                (Some(job), _) => format!("{job} had ended already"),
                _ => "nothing was running".to_owned(),
            })?;
        }
    }
    if !aborted.is_empty() {
        output::out_line(&said(&aborted))?;
    }
    Ok(exit)
}

/// What is asked for by name; without one, what this daemon takes for the turn that is meant.
fn named(args: &AbortArgs) -> Vec<Abort> {
    let by_option = args.session.iter().cloned().map(JobOrSession::Session);
    let targets: Vec<Abort> = args
        .what
        .iter()
        .cloned()
        .chain(by_option)
        .map(|what| match what {
            JobOrSession::Job(job) => Abort {
                job: Some(job),
                ..Abort::default()
            },
            JobOrSession::Session(name) => Abort {
                session: Some(name),
                queued: args.queued,
                ..Abort::default()
            },
        })
        .collect();
    match targets.is_empty() && args.label.is_none() {
        true => vec![Abort::default()],
        false => targets,
    }
}

/// All that has not ended. What waits is looked for first and aborted first: what runs would make room
/// for it.
async fn labelled(client: &mut Client, label: &str) -> Result<Vec<Abort>, RequestError> {
    let mut targets = Vec::new();
    for state in [JobPhase::Queued, JobPhase::Held, JobPhase::Running] {
        let filter = Jobs {
            label: Some(label.to_owned()),
            state: Some(state),
            ..Jobs::default()
        };
        targets.extend(client.jobs(filter).await?.iter().map(|row| Abort {
            job: Some(row.job),
            ..Abort::default()
        }));
    }
    Ok(targets)
}

/// Where nothing was cancelled: was there never such a job or session? That is said, and how it ends.
async fn is_unknown(client: &mut Client, target: &Abort) -> Option<Exit> {
    if let Some(job) = target.job {
        let jobs = [job];
        let looked = client.collect(&jobs, Some(Duration::ZERO), Wait::All);
        return looked.await.err().map(|error| ask::tell(&error));
    }
    let name = target.session.as_ref()?;
    if is_known(client, name).await {
        return None;
    }
    output::error(
        &format!("there is no session `{name}`"),
        Some("`agentctl sessions` lists them"),
    );
    Some(Exit::Usage)
}

/// Is there such a session, or was there? When that can't be found out, it is taken for granted.
async fn is_known(client: &mut Client, session: &str) -> bool {
    let filter = Jobs {
        session: Some(session.to_owned()),
        limit: Some(1),
        ..Jobs::default()
    };
    match client.jobs(filter).await {
        Ok(rows) if rows.is_empty() => {}
        // A name that no session can have.
        Err(RequestError::Refused(line)) if line.code == Code::InvalidRequest => return false,
        Ok(_) | Err(_) => return true,
    }
    let known = client.session_named(session).await;
    known.map_or(true, |row| row.is_some())
}

fn said(aborted: &[JobId]) -> String {
    if aborted.len() > NAMED {
        return format!("aborted {} turns", aborted.len());
    }
    let names: Vec<String> = aborted.iter().map(ToString::to_string).collect();
    format!("aborted {}", names.join(", "))
}
