//! The store against real files, with faults made up where a disk would make them.

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentd_core::Event;
use agentd_core::ids::{Generation, Token, WorkerId};
use agentd_core::store::{
    End, JobRow, JobState, Loaded, MessageText, NewJob, Query, Stored, TextKind, Urgency, Write,
    Written,
};
use agentd_protocol::{Body, Code, JobId};
use rusqlite::{Connection, ffi};
use tempfile::TempDir;

use super::schema::{self, FILE, beside};
use super::*;

/// Every wait of these tests ends here.
const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    opened: Opened,
    answers: Receiver<Event>,
    next: u64,
}

fn dead(_instance: &str) -> Liveness {
    Liveness::Dead
}

fn bench(dir: &Path, instance: &str, role: Role, alive: fn(&str) -> Liveness) -> Bench {
    bench_with(dir, instance, role, alive, Box::new(|_, _| Ok(())))
}

fn bench_with(
    dir: &Path,
    instance: &str,
    role: Role,
    alive: fn(&str) -> Liveness,
    fault: Fault,
) -> Bench {
    let (answer, answers) = sync_channel(10_000);
    let answer = Box::new(move |event| answer.send(event).unwrap());
    let opened = open_with(dir, instance, role, Box::new(alive), answer, fault).unwrap();
    Bench {
        opened,
        answers,
        next: 1,
    }
}

impl Bench {
    fn order(&mut self, urgency: Urgency, writes: Vec<Write>) -> Token {
        let token = Token(self.next);
        self.next += 1;
        let order = Order::Commit {
            token,
            writes,
            urgency,
        };
        self.opened.store.submit(order).unwrap();
        token
    }

    fn event(&self) -> Event {
        self.answers.recv_timeout(PATIENCE).expect("an answer")
    }

    fn commit(&mut self, writes: Vec<Write>) -> Stored {
        let asked = self.order(Urgency::Waited, writes);
        match self.event() {
            Event::Stored { token, stored } if token == asked => stored,
            other => panic!("{other:?}"),
        }
    }

    fn accept(&mut self, job: NewJob) -> (JobId, u64, String) {
        match self.commit(vec![Write::Accept(Box::new(job))]) {
            Stored::Committed(written) => match written.as_slice() {
                [Written::Accepted { job, seq, session }] => (*job, *seq, session.clone()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn load(&mut self, query: Query) -> Loaded {
        let token = Token(self.next);
        self.next += 1;
        self.opened
            .store
            .submit(Order::Load { token, query })
            .unwrap();
        match self.event() {
            Event::Loaded {
                token: told,
                loaded,
            } if told == token => loaded,
            other => panic!("{other:?}"),
        }
    }

    fn job(&mut self, job: JobId) -> JobRow {
        match self.load(Query::Jobs { jobs: vec![job] }) {
            Loaded::Jobs(rows) => rows.into_iter().next().expect("the job"),
            other => panic!("{other:?}"),
        }
    }

    fn close(self) {
        self.opened.store.close(self.opened.writer);
    }
}

fn new(session: Option<&str>) -> NewJob {
    NewJob {
        session: session.map(str::to_owned),
        agent: "pi".to_owned(),
        cwd: "/".to_owned(),
        toolsets: None,
        request: r#"{"text":"hi"}"#.to_owned(),
        key: None,
        hashed: "hi".to_owned(),
        expires_at: 5_000,
        running: None,
        at: 1_000,
    }
}

fn keyed(key: &str, hashed: &str) -> Write {
    Write::Accept(Box::new(NewJob {
        key: Some(key.to_owned()),
        hashed: hashed.to_owned(),
        ..new(None)
    }))
}

fn started(session: &str) -> NewJob {
    NewJob {
        running: Some((WorkerId(3), Generation(2))),
        ..new(Some(session))
    }
}

fn line(text: &str) -> Body {
    Body::stored_event(&format!(r#"{{"type":"note","text":"{text}"}}"#))
}

fn last_line(text: &str) -> Body {
    Body::stored(&format!(r#"{{"type":"message_end","text":"{text}"}}"#))
}

fn finish(job: JobId, end: End) -> Write {
    let texts = vec![MessageText {
        message: 0,
        kind: TextKind::Text,
        text: "whole".to_owned(),
    }];
    Write::Finish {
        job,
        end,
        line: last_line("whole"),
        texts,
    }
}

fn piece(job: JobId, offset: u64, text: &str) -> Write {
    Write::Text {
        job,
        message: 0,
        kind: TextKind::Text,
        offset,
        text: text.to_owned(),
    }
}

fn error(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
}

/// A fault that is switched on and off by the test: what happens, and at which moment.
fn switched() -> (Arc<Mutex<Option<(Moment, i32)>>>, Fault) {
    let switch: Arc<Mutex<Option<(Moment, i32)>>> = Arc::default();
    let seen = Arc::clone(&switch);
    let fault = Box::new(move |moment, _: &Connection| match *seen.lock().unwrap() {
        Some((when, code)) if when == moment => Err(error(code)),
        _ => Ok(()),
    });
    (switch, fault)
}

#[test]
fn a_job_goes_through_its_life_and_is_read_back_after_reopening() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let epoch = store.opened.epoch.clone();
    let (job, seq, session) = store.accept(new(None));
    assert_eq!((job, seq, session.as_str()), (JobId(1), 1, "s1"));
    let running = store.commit(vec![
        Write::Start {
            job,
            worker: WorkerId(1),
            generation: Generation(1),
            attempt: 1,
            line: Some(line("running")),
        },
        piece(job, 0, "who"),
        piece(job, 3, "le"),
        Write::Event {
            job,
            line: line("tool"),
        },
    ]);
    let numbered = |seq| Written::Numbered { seq };
    assert_eq!(
        running,
        Stored::Committed(vec![numbered(2), Written::Done, Written::Done, numbered(3)])
    );
    let Loaded::Events {
        events,
        more,
        texts,
    } = store.load(Query::Events { job, after: 2 })
    else {
        panic!("events")
    };
    assert_eq!((events, more), (vec![(3, line("tool"))], false));
    assert_eq!(texts[0].text, "whole");
    let native = "n".to_owned();
    let ended = store.commit(vec![
        Write::Native { session, native },
        finish(job, End::Completed),
    ]);
    assert_eq!(ended, Stored::Committed(vec![Written::Done, numbered(4)]));
    store.close();

    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    assert_eq!(store.opened.epoch, epoch);
    let state = store.job(job).state;
    let line = last_line("whole");
    assert_eq!(state, JobState::Finished { seq: 4, line });
    let Loaded::Session(Some(row)) = store.load(Query::Session {
        name: "s1".to_owned(),
    }) else {
        panic!("session")
    };
    assert_eq!((row.native.as_deref(), row.turns), (Some("n"), 1));
    assert!(!row.named && !row.held);
    assert_eq!(store.accept(new(Some("main"))).1, 5, "numbers go on");
}

#[test]
fn a_job_ends_exactly_once() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(started("main"));
    let first = store.commit(vec![finish(job, End::Completed)]);
    assert_eq!(store.commit(vec![finish(job, End::Failed)]), first);
    assert_eq!(
        store.commit(vec![piece(job, 0, "late")]),
        Stored::Committed(vec![Written::Done])
    );
    let Loaded::Events { texts, .. } = store.load(Query::Events { job, after: 0 }) else {
        panic!("events")
    };
    assert_eq!(texts.len(), 1);
    assert_eq!(texts[0].text, "whole");
}

#[test]
fn an_interrupted_turn_holds_what_waits_behind_it() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (first, ..) = store.accept(started("main"));
    let (second, ..) = store.accept(new(Some("main")));
    let held = |store: &mut Bench| match store.load(Query::Session {
        name: "main".to_owned(),
    }) {
        Loaded::Session(Some(row)) => (row.held, row.turns, row.named),
        other => panic!("{other:?}"),
    };
    store.commit(vec![finish(first, End::Interrupted)]);
    assert_eq!(held(&mut store), (true, 1, true));
    store.commit(vec![finish(second, End::Failed)]);
    assert_eq!(
        held(&mut store),
        (false, 1, true),
        "it never ran, and nothing waits"
    );
}

#[test]
fn a_known_key_is_a_duplicate_with_the_same_hash_and_a_conflict_with_another() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.commit(vec![keyed("k", "one")]);
    let job = JobId(1);
    let twice = store.commit(vec![
        keyed("k", "one"),
        keyed("l", "one"),
        keyed("l", "one"),
    ]);
    let Stored::Committed(written) = twice else {
        panic!("{twice:?}")
    };
    assert_eq!(written[0], Written::Duplicate { job });
    assert!(matches!(
        written[1],
        Written::Accepted { job: JobId(2), .. }
    ));
    assert_eq!(written[2], Written::Duplicate { job: JobId(2) });
    let refused = store.commit(vec![keyed("new", "x"), keyed("k", "two")]);
    assert_eq!(refused, Stored::Conflict { item: 1, job });
    let (next, ..) = store.accept(new(None));
    assert_eq!(next, JobId(3), "a refused commit leaves nothing behind");
}

#[test]
fn fifty_callers_with_one_key_make_one_job() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for _ in 0..50 {
        store.order(Urgency::Waited, vec![keyed("k", "same")]);
    }
    let mut accepted = 0;
    for expected in 1..=50 {
        let Event::Stored {
            token,
            stored: Stored::Committed(written),
        } = store.event()
        else {
            panic!("stored")
        };
        assert_eq!(token, Token(expected), "answers come in order");
        accepted += usize::from(matches!(written[0], Written::Accepted { .. }));
    }
    assert_eq!(accepted, 1);
}

#[test]
fn a_refused_commit_does_not_hurt_its_neighbours() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.commit(vec![keyed("k", "one")]);
    store.order(Urgency::Lazy, vec![Write::Accept(Box::new(new(None)))]);
    store.order(Urgency::Lazy, vec![keyed("m", "one"), keyed("k", "two")]);
    let unknown = Write::Event {
        job: JobId(999),
        line: line("x"),
    };
    store.order(Urgency::Lazy, vec![unknown]);
    store.order(Urgency::Waited, vec![Write::Accept(Box::new(new(None)))]);
    let stored: Vec<Stored> = (0..4)
        .map(|_| match store.event() {
            Event::Stored { stored, .. } => stored,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        matches!(&stored[0], Stored::Committed(w) if matches!(w[0], Written::Accepted { job: JobId(2), seq: 2, .. }))
    );
    assert!(matches!(stored[1], Stored::Conflict { item: 1, .. }));
    assert!(matches!(
        stored[2],
        Stored::Failed {
            code: Code::StoreFailed,
            ..
        }
    ));
    assert!(
        matches!(&stored[3], Stored::Committed(w) if matches!(w[0], Written::Accepted { job: JobId(3), seq: 3, .. }))
    );
}

#[test]
fn a_lazy_commit_goes_by_itself_after_a_second_and_at_once_with_a_question() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let token = store.order(Urgency::Lazy, vec![Write::Accept(Box::new(new(None)))]);
    assert!(matches!(store.event(), Event::Stored { token: told, .. } if told == token));
    store.order(Urgency::Lazy, vec![Write::Accept(Box::new(new(None)))]);
    let query = Query::Jobs {
        jobs: vec![JobId(2)],
    };
    let order = Order::Load {
        token: Token(9),
        query,
    };
    store.opened.store.submit(order).unwrap();
    assert!(matches!(store.event(), Event::Stored { .. }));
    assert!(
        matches!(store.event(), Event::Loaded { loaded: Loaded::Jobs(rows), .. } if rows.len() == 1)
    );
}

#[test]
fn a_session_open_in_a_living_instance_is_leased_and_in_a_dead_one_orphaned() {
    let dir = TempDir::new().unwrap();
    let living = |_: &str| Liveness::Alive { pid: 7 };
    let mut first = bench(dir.path(), "first", Role::Daemon, living);
    first.accept(started("main"));
    let again = || vec![Write::Accept(Box::new(new(Some("main"))))];

    let mut second = bench(dir.path(), "second", Role::OneShot, living);
    let instance = "first".to_owned();
    let leased = Stored::Leased {
        item: 0,
        instance,
        pid: 7,
    };
    assert_eq!(second.commit(again()), leased);
    second.close();

    let mut third = bench(dir.path(), "third", Role::OneShot, dead);
    let instance = "first".to_owned();
    assert_eq!(
        third.commit(again()),
        Stored::Orphaned {
            instance: instance.clone()
        }
    );
    third
        .opened
        .store
        .submit(Order::Takeover { instance })
        .unwrap();
    let Event::Recovered(recovered) = third.event() else {
        panic!("recovered")
    };
    assert_eq!(recovered.sessions[0].name, "main");
    assert_eq!(recovered.jobs[0].0.state, JobState::Running { attempt: 1 });
    assert!(matches!(third.commit(again()), Stored::Committed(_)));
    let release = Write::Release {
        session: "main".to_owned(),
    };
    third.commit(vec![release]);
    assert!(matches!(first.commit(again()), Stored::Committed(_)));
}

#[test]
fn the_daemon_takes_over_queued_and_running_jobs_and_a_one_shot_takes_only_running_ones() {
    let dir = TempDir::new().unwrap();
    let mut gone = bench(dir.path(), "gone", Role::Daemon, dead);
    let (running, ..) = gone.accept(started("main"));
    gone.commit(vec![piece(running, 0, "so "), piece(running, 3, "far")]);
    let (queued, ..) = gone.accept(new(Some("main")));
    let (ended, ..) = gone.accept(new(Some("other")));
    gone.commit(vec![finish(ended, End::Failed)]);
    gone.close();

    let shot = bench(dir.path(), "shot", Role::OneShot, dead);
    assert!(shot.opened.orphans.is_empty());
    let instance = "gone".to_owned();
    shot.opened
        .store
        .submit(Order::Takeover { instance })
        .unwrap();
    let Event::Recovered(recovered) = shot.event() else {
        panic!("recovered")
    };
    assert_eq!(recovered.jobs.len(), 1);
    assert_eq!(recovered.jobs[0].1[0].text, "so far");
    shot.close();

    let daemon = bench(dir.path(), "daemon", Role::Daemon, dead);
    let orphans = &daemon.opened.orphans;
    let jobs: Vec<(&str, Vec<JobId>)> = orphans
        .iter()
        .map(|one| {
            (
                one.instance.as_str(),
                one.jobs.iter().map(|(row, _)| row.job).collect(),
            )
        })
        .collect();
    assert_eq!(jobs, [("gone", vec![queued]), ("shot", vec![running])]);
    daemon.close();
    let next = bench(dir.path(), "next", Role::Daemon, |_| Liveness::Alive {
        pid: 1,
    });
    assert!(
        next.opened.orphans.is_empty(),
        "what a living instance has is its own"
    );
}

#[test]
fn a_full_disk_refuses_new_jobs_keeps_the_rest_and_heals() {
    let dir = TempDir::new().unwrap();
    let full = Arc::new(Mutex::new(false));
    let seen = Arc::clone(&full);
    let fault: Fault = Box::new(move |moment, conn| {
        if moment == Moment::BeforeBegin {
            let pages = if *seen.lock().unwrap() { 1 } else { 1_000_000 };
            conn.pragma_update(None, "max_page_count", pages)?;
        }
        Ok(())
    });
    let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
    let (job, ..) = store.accept(started("main"));
    let (other, ..) = store.accept(new(Some("other")));
    *full.lock().unwrap() = true;
    let large = NewJob {
        request: "x".repeat(100_000),
        ..new(None)
    };
    let refused = store.order(Urgency::Waited, vec![Write::Accept(Box::new(large))]);
    assert!(matches!(
        store.event(),
        Event::StoreHealth { trouble: Some(_) }
    ));
    let Event::Stored { token, stored } = store.event() else {
        panic!("stored")
    };
    assert_eq!(token, refused);
    assert!(
        matches!(
            stored,
            Stored::Failed {
                code: Code::DiskFull,
                ..
            }
        ),
        "{stored:?}"
    );

    let text = "y".repeat(100_000);
    let kept = store.order(Urgency::Waited, vec![piece(job, 0, &text)]);
    let at_once = store.order(Urgency::Waited, vec![Write::Accept(Box::new(new(None)))]);
    assert!(
        matches!(store.event(), Event::Stored { token, stored: Stored::Failed { .. } } if token == at_once)
    );
    assert!(
        matches!(store.job(other).state, JobState::Queued { .. }),
        "reading goes on"
    );
    *full.lock().unwrap() = false;
    assert_eq!(store.event(), Event::StoreHealth { trouble: None });
    assert!(
        matches!(store.event(), Event::Stored { token, stored: Stored::Committed(_) } if token == kept)
    );
    store.accept(new(None));
}

#[test]
fn with_nothing_kept_a_full_disk_is_probed_until_there_is_room() {
    let dir = TempDir::new().unwrap();
    let (switch, fault) = switched();
    let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
    *switch.lock().unwrap() = Some((Moment::BeforeCommit, ffi::SQLITE_FULL));
    store.order(Urgency::Waited, vec![Write::Accept(Box::new(new(None)))]);
    assert!(matches!(
        store.event(),
        Event::StoreHealth { trouble: Some(_) }
    ));
    assert!(matches!(
        store.event(),
        Event::Stored {
            stored: Stored::Failed { .. },
            ..
        }
    ));
    *switch.lock().unwrap() = None;
    assert_eq!(store.event(), Event::StoreHealth { trouble: None });
    assert_eq!(store.accept(new(None)).0, JobId(1), "nothing was written");
}

#[test]
fn after_an_io_error_in_commit_the_answer_is_what_the_file_says() {
    for (moment, there) in [(Moment::BeforeCommit, false), (Moment::AfterCommit, true)] {
        let dir = TempDir::new().unwrap();
        let (switch, fault) = switched();
        let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
        let (job, ..) = store.accept(started("main"));
        *switch.lock().unwrap() = Some((moment, ffi::SQLITE_IOERR_FSYNC));
        let end = store.order(Urgency::Lazy, vec![finish(job, End::Completed)]);
        let asked = store.order(Urgency::Waited, vec![keyed("k", "one")]);
        assert!(matches!(
            store.event(),
            Event::StoreHealth { trouble: Some(_) }
        ));
        *switch.lock().unwrap() = None;
        let mut answers = Vec::new();
        while answers.len() < 2 {
            if let Event::Stored { token, stored } = store.event() {
                answers.push((token, matches!(stored, Stored::Committed(_))));
            }
        }
        answers.sort();
        assert_eq!(answers, [(end, true), (asked, there)], "{moment:?}");
        assert!(matches!(store.job(job).state, JobState::Finished { .. }));
        store.close();
        let db = Connection::open(dir.path().join(FILE)).unwrap();
        let jobs: i64 = db
            .query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))
            .unwrap();
        assert_eq!(jobs, 1 + i64::from(there), "{moment:?}");
    }
}

#[test]
fn a_newer_store_is_refused_and_left_untouched() {
    let dir = TempDir::new().unwrap();
    bench(dir.path(), "a", Role::Daemon, dead).close();
    let path = dir.path().join(FILE);
    let db = Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let before = std::fs::read(&path).unwrap();
    let refused = open(
        dir.path(),
        "b",
        Role::Daemon,
        Box::new(dead),
        Box::new(|_| ()),
    );
    let error = refused.unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Newer {
                found: 99,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_broken_file_is_moved_aside_and_a_fresh_one_begun() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(FILE);
    std::fs::write(&path, vec![0x5a; 20_000]).unwrap();
    std::fs::write(beside(&path, "-wal"), b"log").unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let aside = store.opened.moved_aside.clone().expect("moved aside");
    let name = aside.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("agentd.db.corrupt-"), "{name}");
    assert_eq!(std::fs::read(&aside).unwrap(), vec![0x5a; 20_000]);
    assert_eq!(store.accept(new(None)).0, JobId(1));
    let epoch = store.opened.epoch.clone();
    store.close();
    let store = bench(dir.path(), "a", Role::Daemon, dead);
    assert_eq!(
        (store.opened.moved_aside.clone(), &store.opened.epoch),
        (None, &epoch)
    );
}

#[test]
fn somebody_elses_database_is_left_alone() {
    let dir = TempDir::new().unwrap();
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    db.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(db);
    let refused = open(
        dir.path(),
        "b",
        Role::Daemon,
        Box::new(dead),
        Box::new(|_| ()),
    );
    assert!(matches!(refused, Err(StoreError::Foreign { .. })));
}

#[test]
fn an_older_store_is_copied_before_it_is_migrated() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.accept(new(None));
    store.close();
    let mut newer = schema::MIGRATIONS.to_vec();
    newer.push("ALTER TABLE jobs ADD COLUMN colour TEXT;");
    let ready = schema::prepare(dir.path(), &newer).unwrap();
    let version: u32 = ready
        .conn
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 2);
    let backup = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains(".backup-v1-"))
        .expect("a backup");
    let db = Connection::open(backup).unwrap();
    let jobs: i64 = db
        .query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))
        .unwrap();
    assert_eq!(jobs, 1);
}

#[test]
fn the_files_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("deep").join("agentd");
    let mut store = bench(&state, "a", Role::Daemon, dead);
    store.accept(new(None));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    for end in ["", "-wal", "-shm"] {
        assert_eq!(mode(&beside(&state.join(FILE), end)), 0o600, "{end}");
    }
}

#[test]
fn no_question_of_the_start_or_of_an_accept_reads_a_whole_table() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(new(Some("main")));
    store.commit(vec![finish(job, End::Completed)]);
    let release = Write::Release {
        session: "main".to_owned(),
    };
    store.commit(vec![release]);
    store.close();
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    db.execute_batch(
        "WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
         INSERT INTO jobs SELECT i, i * 2, i, 1, 'r', NULL, x'00', 'completed', 'gone', NULL, NULL,
            1, 0, 0, 0, 'f', i * 2 + 1, i FROM n;",
    )
    .unwrap();
    for sql in [
        "SELECT instance FROM jobs WHERE final_seq IS NULL UNION SELECT instance FROM sessions WHERE instance IS NOT NULL",
        "SELECT job FROM jobs WHERE instance = 'x' AND final_seq IS NULL",
        "SELECT max(seq) FROM jobs",
        "SELECT max(final_seq) FROM jobs",
        "SELECT 1 FROM jobs WHERE session = 1 AND final_seq IS NULL AND state = 'queued'",
    ] {
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps: Vec<String> = plan
            .query_map([], |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(
            steps
                .iter()
                .all(|step| !step.starts_with("SCAN") || step.contains("INDEX")),
            "{sql}: {steps:?}"
        );
    }
    drop(db);
    let began = std::time::Instant::now();
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    assert_eq!(store.accept(new(None)).1, 200_002);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_long_list_of_events_comes_in_pages() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(started("main"));
    let long = line(&"x".repeat(100_000));
    let write = || Write::Event {
        job,
        line: long.clone(),
    };
    store.commit((0..5).map(|_| write()).collect());
    let mut after = 0;
    let mut pages = Vec::new();
    loop {
        let Loaded::Events { events, more, .. } = store.load(Query::Events { job, after }) else {
            panic!("events")
        };
        pages.push(events.len());
        after = events.last().unwrap().0;
        if !more {
            break;
        }
    }
    assert_eq!(pages, [2, 2, 1]);
}
