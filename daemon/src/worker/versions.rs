//! Which version each agent's program is of, and whether somebody is logged in.
//!
//! Owns the cache: a program is asked once, and again when its file is another (path, time of
//! change, size). Programs are asked only while somebody asks for the agents, never at the start,
//! and nobody waits longer than [`ANSWER_WITHIN`] for them. Must not know requests.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentd_core::agent::Looked;
use agentd_core::event::Event;
use agentd_core::ids::{Generation, WorkerId};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::reap::Mark;
use super::spawn::Plan;
use super::{Spawner, environment, probe};
use crate::adapter::Launch;
use crate::config::{self, AgentConfig};

/// Whoever asks for the agents waits no longer for versions; the next one has them.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Programs asked at once: each is a whole interpreter that starts.
const AT_ONCE: usize = 4;
/// A longer version is no version; it is cut.
const MOST_CHARS: usize = 40;
/// Below the state directory.
const FILE: &str = "versions.json";

/// Names one file's content, near enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Stamp {
    seconds: i64,
    nanoseconds: i64,
    size: u64,
}

/// What is known of a program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Known {
    stamp: Stamp,
    version: Result<String, String>,
    /// Does its help leave out the long-lived form?
    #[serde(default)]
    one_shot_only: Option<bool>,
}

#[derive(Debug, Default)]
struct Cache {
    read: bool,
    known: BTreeMap<PathBuf, Known>,
    asking: BTreeSet<PathBuf>,
}

/// The versions of all agents.
#[derive(Debug)]
pub struct Versions {
    spawner: Spawner,
    file: PathBuf,
    cache: Mutex<Cache>,
    changed: Notify,
    room: Semaphore,
    asked: AtomicU64,
}

impl Versions {
    /// Nothing is read or run yet.
    #[must_use]
    pub fn new(spawner: Spawner, state_dir: &Path) -> Arc<Self> {
        Arc::new(Self {
            spawner,
            file: state_dir.join(FILE),
            cache: Mutex::default(),
            changed: Notify::new(),
            room: Semaphore::new(AT_ONCE),
            asked: AtomicU64::new(0),
        })
    }

    /// Completes a request with what is known of each agent, and posts it.
    pub fn post_when_looked(self: &Arc<Self>, mut event: Event) {
        let versions = Arc::clone(self);
        self.spawner.tracker.spawn(async move {
            let inbox = versions.spawner.inbox.clone();
            let looked = tokio::select! {
                () = inbox.closed() => return,
                looked = versions.look() => looked,
            };
            if let Event::Requested { facts, .. } = &mut event {
                facts.agents = looked;
            }
            // An owner that is gone answers nobody.
            let _gone = inbox.send(event).await;
        });
    }

    /// What is known of each agent, after a short wait for what isn't yet.
    async fn look(self: &Arc<Self>) -> BTreeMap<String, Looked> {
        let until = Instant::now() + ANSWER_WITHIN;
        for agent in self.spawner.agents.values() {
            self.begin(agent);
        }
        loop {
            let changed = self.changed.notified();
            let waits = {
                let cache = self.cache();
                cache.asking.iter().any(|program| {
                    let now = stamp(program);
                    let known = cache.known.get(program);
                    known.is_none_or(|known| Some(known.stamp) != now)
                })
            };
            if !waits || timeout_at(until, changed).await.is_err() {
                break;
            }
        }
        let agents = self.spawner.agents.iter();
        agents
            .map(|(name, agent)| (name.clone(), self.looked(agent)))
            .collect()
    }

    /// Asks the agent's program if that has to be.
    fn begin(self: &Arc<Self>, agent: &AgentConfig) {
        let Some(program) = agent.command.first() else {
            return;
        };
        let path = PathBuf::from(program);
        let Some(stamp) = stamp(&path).filter(|_| config::tells_version(program)) else {
            return;
        };
        let word = config::long_lived_word(program);
        {
            let mut cache = self.cache();
            let known = cache.known.get(&path).filter(|known| known.stamp == stamp);
            let done = known.is_some_and(|known| {
                known.version.is_err() || known.one_shot_only.is_some() || word.is_none()
            });
            if done || !cache.asking.insert(path.clone()) {
                return;
            }
        }
        let (versions, agent) = (Arc::clone(self), agent.clone());
        self.spawner.tracker.spawn(async move {
            let inbox = versions.spawner.inbox.clone();
            // When the owner is gone, nobody asks any more.
            tokio::select! {
                () = inbox.closed() => {}
                () = versions.ask(&agent, &path, stamp, word) => {}
            }
            versions.cache().asking.remove(&path);
            versions.changed.notify_waiters();
        });
    }

    async fn ask(&self, agent: &AgentConfig, path: &Path, stamp: Stamp, word: Option<&str>) {
        // It is never closed.
        let Ok(_room) = self.room.acquire().await else {
            return;
        };
        let known = self.cache().known.get(path).cloned();
        let known = known.filter(|known| known.stamp == stamp && known.version.is_ok());
        let mut known = match known {
            Some(known) => known,
            None => {
                let printed = probe::ask(self.plan(agent, path, "--version")).await;
                let version = printed.and_then(|printed| {
                    let version = version(&printed.stdout).or_else(|| version(&printed.stderr));
                    version.ok_or_else(|| "printed nothing".to_owned())
                });
                Known {
                    stamp,
                    version,
                    one_shot_only: None,
                }
            }
        };
        self.learn(path, known.clone());
        if let Some(word) = word.filter(|_| known.version.is_ok())
            && let Ok(printed) = probe::ask(self.plan(agent, path, "--help")).await
        {
            let help = [printed.stdout, printed.stderr].concat();
            let names = String::from_utf8_lossy(&help).contains(word);
            known.one_shot_only = Some(!help.is_empty() && !names);
            self.learn(path, known);
        }
    }

    fn learn(&self, path: &Path, known: Known) {
        let mut cache = self.cache();
        cache.known.insert(path.to_owned(), known);
        let lasting: BTreeMap<_, _> = cache
            .known
            .iter()
            .filter(|(path, known)| known.version.is_ok() && stamp(path) == Some(known.stamp))
            .collect();
        // Only a cache: what is lost is asked again.
        if let Err(error) = write(&self.file, &lasting) {
            tracing::debug!(%error, "versions of agents are not kept");
        }
        drop(cache);
        self.changed.notify_waiters();
    }

    fn looked(&self, agent: &AgentConfig) -> Looked {
        let env = environment::of_agent(&self.spawner.environment, &self.spawner.secrets, agent);
        let value = |name: &str| {
            let value = env.get(OsStr::new(name))?;
            value.to_str().map(str::to_owned)
        };
        let home = value("HOME").map(PathBuf::from);
        let mut looked = Looked {
            logged_in: config::logged_in(agent, home.as_deref(), &value),
            ..Looked::default()
        };
        let Some(program) = agent
            .command
            .first()
            .filter(|name| config::tells_version(name))
        else {
            return looked;
        };
        let path = Path::new(program);
        let cache = self.cache();
        let known = cache.known.get(path);
        match known.filter(|known| Some(known.stamp) == stamp(path)) {
            Some(known) => {
                match &known.version {
                    Ok(version) => looked.version = Some(version.clone()),
                    Err(why) => looked.note = Some(format!("`{program} --version` {why}")),
                }
                let one_shot = agent.kind == crate::adapter::Kind::Exec;
                if let Some(word) = config::long_lived_word(program)
                    && known.one_shot_only == Some(true)
                    && !one_shot
                {
                    looked.note = Some(format!(
                        "this version has no `{word}`; from its next start on, the daemon runs \
                         its one-shot form"
                    ));
                }
            }
            None if cache.asking.contains(path) => {
                looked.note = Some("its version is still being asked for".to_owned());
            }
            None => {}
        }
        looked
    }

    fn plan(&self, agent: &AgentConfig, path: &Path, argument: &str) -> Plan {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let mark = Mark {
            instance: self.spawner.instance.clone(),
            worker: format!("probe-{number}"),
        };
        let mut env = environment::common(&self.spawner.environment, agent);
        // What dies here is found by these when this daemon is killed in between.
        env.insert(environment::INSTANCE.into(), mark.instance.clone().into());
        env.insert(environment::WORKER.into(), mark.worker.clone().into());
        Plan {
            worker: WorkerId(0),
            generation: Generation(0),
            launch: Launch {
                argv: vec![path.to_string_lossy().into_owned(), argument.to_owned()],
                ..Launch::default()
            },
            env,
            cwd: PathBuf::from("/"),
            session: None,
            mark,
            file_limit: self.spawner.file_limit,
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut cache.read, true) {
            cache.known = read(&self.file);
        }
        cache
    }
}

/// The programs that were found to lack their long-lived form and are still the same.
#[must_use]
pub fn one_shot_only(state_dir: &Path) -> BTreeSet<PathBuf> {
    let known = read(&state_dir.join(FILE)).into_iter();
    known
        .filter(|(path, known)| {
            known.one_shot_only == Some(true) && stamp(path) == Some(known.stamp)
        })
        .map(|(path, _)| path)
        .collect()
}

fn stamp(program: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(program).ok()?;
    Some(Stamp {
        seconds: found.mtime(),
        nanoseconds: found.mtime_nsec(),
        size: found.size(),
    })
}

fn read(file: &Path) -> BTreeMap<PathBuf, Known> {
    let text = std::fs::read(file).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn write(file: &Path, known: &BTreeMap<&PathBuf, &Known>) -> std::io::Result<()> {
    // A one-shot beside the daemon may write its own.
    let fresh = file.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&fresh, serde_json::to_vec(known)?)?;
    std::fs::rename(&fresh, file)
}

/// The version in what a program printed: the first word with digits around a dot, else the first
/// line, cut to what can be shown.
fn version(printed: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(printed);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let plain = |c: &char| !c.is_control();
    let numbered =
        |word: &&str| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.');
    let word = line
        .split(|c: char| c.is_whitespace() || "(),;:/".contains(c))
        .map(|word| word.trim_start_matches('v'))
        .find(numbered);
    let shown: String = word
        .unwrap_or(line)
        .chars()
        .filter(plain)
        .take(MOST_CHARS)
        .collect();
    Some(shown).filter(|shown| !shown.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_any_shape_is_cut_to_something_printable() {
        let long = "x".repeat(500);
        for (printed, expected) in [
            ("2.1.329 (Claude Code)\n", Some("2.1.329")),
            ("codex-cli 0.169.0\n", Some("0.169.0")),
            ("\n\nHermes Agent v0.19.0 (2026.3.2)\n", Some("0.19.0")),
            ("OpenClaw 2026.9.6-beta+1 (abc)", Some("2026.9.6-beta+1")),
            ("goose/1.8.0\x1b[0m", Some("1.8.0[0m")),
            ("\x1b[31mdev build\x07", Some("[31mdev build")),
            (&long, Some(&long[..MOST_CHARS])),
            ("\n \x07 \n", None),
            ("", None),
        ] {
            assert_eq!(
                version(printed.as_bytes()).as_deref(),
                expected,
                "{printed:?}"
            );
        }
        assert_eq!(version(b"\xff\xfe").as_deref(), Some("\u{fffd}\u{fffd}"));
    }
}
