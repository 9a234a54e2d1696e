//! The session that `send -c` goes on with.
//!
//! Owns the rule: the one of this directory that was used last. Must not know what is sent.

use std::path::{Path, PathBuf};

use agentd_protocol::request::unix_ms;
use agentd_protocol::rows::SessionRow;
use agentd_protocol::work::Jobs;

use super::exit::Exit;
use super::{ask, bench, output};
use agentd_client::client::{Client, Server};
use agentd_client::sessions::SessionPages;

/// Its name, of this agent if one is named; says so when there is none.
pub(super) async fn session(
    client: &mut Client,
    agent: Option<&str>,
    cwd: Option<&str>,
) -> Result<String, Exit> {
    let here = match (cwd, client.server()) {
        (Some(cwd), _) => Some(PathBuf::from(cwd)),
        // Directories of this machine say nothing of another one's.
        (None, Server::Remote(_)) => None,
        (None, Server::Daemon(_) | Server::OneShot(_)) => std::env::current_dir().ok(),
    };
    let here = here.map(|dir| real(&dir));
    let mut pages = SessionPages::default();
    let mut last: Vec<SessionRow> = Vec::new();
    loop {
        let page = pages.next(client).await;
        let Some(page) = page.map_err(|error| ask::tell(&error))? else {
            break;
        };
        last.extend(page.value.into_iter().filter(|row| {
            let is_its = agent.is_none_or(|agent| agent == row.agent);
            is_its && is_of(row, here.as_deref()) && !bench::is_of_bench(&row.session)
        }));
        let used = last.iter().map(used_at).max();
        last.retain(|row| Some(used_at(row)) == used);
    }
    newest(client, last).await?.ok_or_else(|| {
        let of = agent.map_or_else(String::new, |agent| format!(" of agent `{agent}`"));
        let place = match &here {
            Some(_) => " in this directory",
            None => "",
        };
        output::error(
            &format!("there is no session{of} to go on with{place}"),
            Some(
                "`agentctl send` without `-c` begins one; `agentctl sessions` lists those of all \
                 directories, and `-s NAME` goes on with one of them",
            ),
        );
        Exit::Usage
    })
}

/// Of several that were used in the same second, the one with the newest job.
async fn newest(client: &mut Client, rows: Vec<SessionRow>) -> Result<Option<String>, Exit> {
    if rows.len() < 2 {
        return Ok(rows.into_iter().next().map(|row| row.session));
    }
    let mut found = None;
    for row in rows {
        let of_session = Jobs {
            session: Some(row.session.clone()),
            limit: Some(1),
            ..Jobs::default()
        };
        let jobs = client.jobs(of_session).await;
        let jobs = jobs.map_err(|error| ask::tell(&error))?;
        let job = jobs.first().map(|job| job.job);
        found = found.max(Some((job, row.session)));
    }
    Ok(found.map(|(_, session)| session))
}

fn used_at(row: &SessionRow) -> i64 {
    unix_ms(&row.last_active_at).unwrap_or(i64::MIN)
}

fn is_of(row: &SessionRow, here: Option<&Path>) -> bool {
    here.is_none_or(|here| Path::new(&row.cwd) == here || real(Path::new(&row.cwd)) == here)
}

/// However it is written, it is the same directory.
fn real(dir: &Path) -> PathBuf {
    std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned())
}
