//! The session that `send -c` goes on with, and `attach` shows when nothing is named.
//!
//! Owns the rule: the one of this directory that was used last. Must not know what is sent or shown.

use std::path::{Path, PathBuf};

use agentd_protocol::request::unix_ms;
use agentd_protocol::rows::SessionRow;
use agentd_protocol::work::SessionList;

use super::exit::Exit;
use super::{ask, bench, output};
use agentd_client::client::{Client, Server};
use agentd_client::sessions::SessionPages;

/// Those used last that are looked at: sessions of `bench` may be among them, which don't count.
const LOOKED_AT: usize = 100;

/// It, of this agent if one is named; says so when there is none, and what to do then.
pub(super) async fn session(
    client: &mut Client,
    agent: Option<&str>,
    cwd: Option<&str>,
    hint: &str,
) -> Result<SessionRow, Exit> {
    let here = match (cwd, client.server()) {
        (Some(cwd), _) => Some(PathBuf::from(cwd)),
        // Directories of this machine say nothing of another one's.
        (None, Server::Remote(_)) => None,
        (None, Server::Daemon(_) | Server::OneShot(_)) => std::env::current_dir().ok(),
    };
    let here = here.map(|dir| real(&dir));
    let mut pages = SessionPages::of(SessionList {
        agent: agent.map(str::to_owned),
        cwd: (here.as_ref()).and_then(|here| here.to_str().map(str::to_owned)),
        newest: true,
        limit: Some(LOOKED_AT),
        ..SessionList::default()
    });
    let mut last: Option<SessionRow> = None;
    // A daemon of before lists all, the oldest first, in pages.
    loop {
        let page = pages.next(client).await;
        let Some(page) = page.map_err(|error| ask::tell(&error))? else {
            break;
        };
        for row in page.value {
            let is_its = agent.is_none_or(|agent| agent == row.agent)
                && is_of(&row, here.as_deref())
                && !bench::is_of_bench(&row.session);
            let is_later = (last.as_ref()).is_none_or(|last| used_at(&row) > used_at(last));
            if is_its && is_later {
                last = Some(row);
            }
        }
    }
    last.ok_or_else(|| {
        let of = agent.map_or_else(String::new, |agent| format!(" of agent `{agent}`"));
        let place = match &here {
            Some(_) => " in this directory",
            None => "",
        };
        output::error(
            &format!("there is no session{of} to go on with{place}"),
            Some(hint),
        );
        Exit::Usage
    })
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
