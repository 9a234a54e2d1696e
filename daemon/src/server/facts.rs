//! What a connection looks up for the core: files, directories, who is on the other side.
//!
//! Owns which facts go with which request. Must not know what they lead to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use agentd_core::Event;
use agentd_core::event::Facts;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::line::LogFacts;
use agentd_protocol::{Request, request};

use crate::config;
use crate::platform::{log, process};
use crate::server::peer::{Later, PeerConfig};
use crate::worker::Versions;

/// What all connections look at.
#[derive(Clone, Debug)]
pub struct Around {
    /// The state directory.
    pub state_dir: PathBuf,
    /// The file of the endpoints of webhooks.
    pub endpoints: PathBuf,
    /// Bytes of unfinished lines of all of them together.
    pub partial: Arc<AtomicUsize>,
    /// The versions of the agents.
    pub versions: Arc<Versions>,
}

/// Facts about the host for each request of a connection; `peer` is the process on the other side.
pub fn peer_config(around: Around, peer: Option<u32>) -> PeerConfig {
    let Around {
        state_dir,
        endpoints,
        partial,
        versions,
    } = around;
    // Once per connection is enough: who descends from a worker goes on doing so.
    let known = OnceLock::new();
    let ancestry = move || -> Vec<u32> {
        known
            .get_or_init(|| peer.map(process::ancestry).unwrap_or_default())
            .clone()
    };
    let facts = move |request: &Request| match request {
        Request::Status(_) => Facts {
            rss_bytes: process::rss_bytes(),
            store_bytes: size(&state_dir, "agentd.db"),
            wal_bytes: size(&state_dir, "agentd.db-wal"),
            log: Some(Ok(log_facts(log::level()))),
            ..Facts::default()
        },
        Request::LogLevel(asked) => Facts {
            log: Some(match &asked.level {
                Some(level) => log::level_of(level).map(log_facts),
                None => Ok(log_facts(log::level())),
            }),
            ancestry: ancestry(),
            ..Facts::default()
        },
        Request::Send(send) => Facts {
            missing: missing([&**send]),
            callbacks: refused(&endpoints, [&**send]),
            ancestry: ancestry(),
            ..Facts::default()
        },
        Request::Dispatch(dispatch) => Facts {
            missing: missing(dispatch.jobs.iter().map(|job| &job.send)),
            callbacks: refused(&endpoints, dispatch.jobs.iter().map(|job| &job.send)),
            ancestry: ancestry(),
            ..Facts::default()
        },
        Request::SessionNew(new) => Facts {
            missing: new.cwd.iter().filter(|cwd| !is_dir(cwd)).cloned().collect(),
            ..Facts::default()
        },
        Request::Webhooks(_) => {
            let known = config::Endpoints::load(&endpoints);
            let rows = known.map(|known| known.rows());
            Facts {
                endpoints: Some(rows.map_err(|error| error.to_string())),
                ..Facts::default()
            }
        }
        Request::WebhookTest(callback) => Facts {
            callbacks: config::refused_callbacks(&endpoints, [callback.url.as_str()]),
            ancestry: ancestry(),
            ..Facts::default()
        },
        Request::Collect(_)
        | Request::WebhookReplay(_)
        | Request::Answer(_)
        | Request::SetModel(_)
        | Request::RestartWorker(_)
        | Request::Drain(_)
        | Request::Undrain
        | Request::DaemonStop(_) => Facts {
            ancestry: ancestry(),
            ..Facts::default()
        },
        _ => Facts::default(),
    };
    PeerConfig {
        facts: Arc::new(facts),
        later: later(versions),
        partial,
    }
}

fn log_facts(level: String) -> LogFacts {
    let to = log::place();
    LogFacts { level, to }
}

/// Lists of agents wait for their versions, beside the connection and the owner.
fn later(versions: Arc<Versions>) -> Later {
    Arc::new(move |event| {
        let Event::Requested {
            request: Ok(decoded),
            ..
        } = &event
        else {
            return Some(event);
        };
        if !matches!(decoded.request, Request::Agents) {
            return Some(event);
        }
        versions.post_when_looked(event);
        None
    })
}

fn is_dir(path: &str) -> bool {
    Path::new(path).is_dir()
}

/// Directories that sends name and that aren't there.
fn missing<'a>(sends: impl IntoIterator<Item = &'a request::Send>) -> Vec<String> {
    sends
        .into_iter()
        .filter_map(|send| send.cwd.as_ref().or(send.cwd_if_new.as_ref()))
        .filter(|cwd| !is_dir(cwd))
        .cloned()
        .collect()
}

/// Callbacks that sends name and that nobody may be told at.
fn refused<'a>(
    endpoints: &Path,
    sends: impl IntoIterator<Item = &'a request::Send>,
) -> BTreeMap<String, Rejected> {
    let callbacks = sends.into_iter().filter_map(|send| send.callback.as_ref());
    config::refused_callbacks(endpoints, callbacks.map(|callback| callback.url.as_str()))
}

fn size(dir: &Path, file: &str) -> u64 {
    std::fs::metadata(dir.join(file)).map_or(0, |found| found.len())
}
