//! What has to hold of files that the store finds, whatever is in them.
//!
//! Owns the rules that `tests/fuzz` and the corpus are held to. Must not be part of the product: it
//! is built for tests and for the fuzzer only.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use agentd_core::store::{Loaded, Position, Query, SessionFilter};
use agentd_protocol::JobId;
use agentd_protocol::sums::By;

use super::schema::{FILE, beside, reopen_to_read};
use super::{Liveness, Loss, Opener, Role, open, read, restore};

/// A store of this version with jobs of every sort.
const WHOLE: &[u8] = include_bytes!("../../../tests/fixtures/store/v13.db");
/// Bytes of one change: where (three), and what (one).
const CHANGE: usize = 4;
/// More changes leave nothing to be found.
const CHANGES: usize = 64;
/// Pages of one list: a list that leads back to its beginning has more.
const PAGES: usize = 100;

/// A directory that goes with what is in it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("agentd-fuzz-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let made = fs::create_dir(&dir);
        assert!(made.is_ok(), "{made:?}");
        Self(dir)
    }

    fn put(&self, name: &Path, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        let written = fs::write(&path, bytes);
        assert!(written.is_ok(), "{written:?}");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _stays = fs::remove_dir_all(&self.0);
    }
}

/// A store that is damaged, foreign, or none: it opens or says in words why not, what it held is not
/// thrown away, and every question has an answer. The first byte says what the rest is.
pub fn file(bytes: &[u8]) {
    let Some((what, bytes)) = bytes.split_first() else {
        return;
    };
    let dir = Scratch::new();
    let name = Path::new(FILE);
    match what % 4 {
        0 => _ = dir.put(name, &changed(bytes)),
        1 => {
            dir.put(name, WHOLE);
            dir.put(&beside(name, "-wal"), bytes);
        }
        2 => _ = dir.put(name, bytes),
        _ => {
            dir.put(name, WHOLE);
            let backup = dir.put(Path::new("backup.db"), &changed(bytes));
            match restore(&dir.0, &backup) {
                Ok(_) => {}
                Err(why) => {
                    assert!(why.contains("backup.db"), "{why}");
                    let kept = fs::read(dir.0.join(FILE)).unwrap_or_default();
                    assert!(kept == WHOLE, "what was not replaced was changed: {why}");
                }
            }
        }
    }
    opened(&dir.0);
}

/// The store with some bytes changed.
fn changed(changes: &[u8]) -> Vec<u8> {
    let mut file = WHOLE.to_vec();
    for change in changes.chunks_exact(CHANGE).take(CHANGES) {
        let [high, middle, low, byte] = change else {
            continue;
        };
        let at = u32::from_be_bytes([0, *high, *middle, *low]) as usize % file.len();
        if let Some(place) = file.get_mut(at) {
            *place = *byte;
        }
    }
    file
}

fn opened(dir: &Path) {
    let opener = Opener {
        instance: "next",
        role: Role::Daemon,
        boot: Some("this-boot"),
        boot_ms: || 1_000,
        give_way: || (),
        keep: None,
        answers: |_| true,
    };
    let opened = open(dir, opener, Box::new(|_| Liveness::Dead), Box::new(|_| ()));
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            assert!(error.to_string().len() > 20, "{error}");
            return;
        }
    };
    if let Some(Loss::Moved(aside)) = &opened.loss {
        let size = fs::metadata(aside).map_or(0, |kept| kept.len());
        assert!(size > 0, "nothing is in {}", aside.display());
    }
    opened.store.close(opened.writer);
    let path = dir.join(FILE);
    match reopen_to_read(&path) {
        Ok(conn) => asked(&conn),
        Err(error) => panic!("what was opened can't be opened again: {error}"),
    }
}

/// Each list is asked for to its end.
fn asked(conn: &rusqlite::Connection) {
    let list = |after| Query::Export {
        after,
        session: None,
    };
    pages(conn, list, |loaded| match loaded {
        Loaded::Line(line) => {
            let page: serde_json::Value = serde_json::from_str(line.as_json()).ok()?;
            page["next"].as_u64()
        }
        _ => None,
    });
    let log = |after| Query::Log {
        after,
        session: None,
        jobs: None,
        first: JobId(0),
        texts: Vec::new(),
    };
    pages(conn, log, |loaded| match loaded {
        Loaded::Log {
            lines, more: true, ..
        } => lines.last().map(|line| line.seq),
        _ => None,
    });
    let sessions = |after| Query::SessionList {
        filter: SessionFilter::default(),
        after,
        limit: 2,
    };
    pages(conn, sessions, |_| None);
    for job in (0..8).map(JobId) {
        let from = Some(Position::default());
        let (after, session) = (0, "main".to_owned());
        read::load(conn, &Query::Jobs { jobs: vec![job] });
        read::load(conn, &Query::Events { job, after, from });
        let message = 0;
        read::load(
            conn,
            &Query::Message {
                session,
                job,
                message,
                after,
            },
        );
    }
    for by in [None, Some(By::Model), Some(By::Day)] {
        read::load(
            conn,
            &Query::Usage {
                since: None,
                before: None,
                by,
                session: None,
            },
        );
    }
    let (session, job, after, limit) = ("main".to_owned(), None, 0, 50);
    read::load(
        conn,
        &Query::History {
            session,
            job,
            after,
            limit,
            events: false,
        },
    );
    let (state, webhook, before) = (None, None, None);
    read::load(
        conn,
        &Query::Webhooks {
            state,
            webhook,
            before,
            limit,
        },
    );
}

fn pages(
    conn: &rusqlite::Connection,
    query: impl Fn(u64) -> Query,
    next: impl Fn(Loaded) -> Option<u64>,
) {
    let mut after = 0;
    for _ in 0..PAGES {
        match next(read::load(conn, &query(after))) {
            Some(more) if more > after => after = more,
            Some(more) => panic!("the page after {after} leads to {more}"),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzzing_corpus_of_the_store_holds() {
        crate::replay::replay("store", super::file);
    }
}
