//! What is forgotten, by a clock that the test makes up.

use super::*;
use crate::store::prune::{Pruned, slice};

const DAY: i64 = 24 * 60 * 60 * 1000;
const LONG: Duration = Duration::from_secs(10);

fn keep(days: u64, bytes: u64) -> Keep {
    Keep {
        age: Duration::from_secs(days * 24 * 60 * 60),
        bytes,
        every: Duration::from_millis(10),
    }
}

/// A store that was filled and closed, with every job accepted and ended at 1970.
fn file(fill: impl FnOnce(&mut Bench)) -> (TempDir, Connection) {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    fill(&mut store);
    store.close();
    let db = schema::reopen(&dir.path().join(FILE)).unwrap();
    db.execute_batch(
        "UPDATE jobs SET finished_at = job, accepted_at = job WHERE final_seq IS NOT NULL;
         UPDATE sessions SET instance = NULL;",
    )
    .unwrap();
    (dir, db)
}

fn ended(store: &mut Bench, new: NewJob) -> JobId {
    let (job, ..) = store.accept(new);
    let event = line("tool");
    store.commit(vec![Write::Event { job, line: event }]);
    store.commit(vec![finish(job, End::Completed)]);
    job
}

fn count(db: &Connection, table: &str) -> i64 {
    db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
        row.get(0)
    })
    .unwrap()
}

#[test]
fn old_jobs_go_with_all_that_is_theirs_and_unfinished_ones_stay() {
    let (dir, db) = file(|store| {
        ended(store, new(None));
        let labels = Some(r#"{"a":"1"}"#.to_owned());
        ended(
            store,
            NewJob {
                labels,
                ..new(Some("main"))
            },
        );
        store.accept(new(Some("main")));
        store.accept(started("busy"));
    });
    assert_eq!(
        slice(&db, keep(30, u64::MAX), 30 * DAY, LONG),
        Ok(Pruned::All)
    );
    let late = 30 * DAY + 100;
    assert_eq!(
        slice(&db, keep(30, u64::MAX), late, LONG),
        Ok(Pruned::Some(2))
    );
    assert_eq!(slice(&db, keep(30, u64::MAX), late, LONG), Ok(Pruned::All));
    for (table, left) in [
        ("jobs", 2),
        ("events", 0),
        ("texts", 0),
        ("labels", 0),
        ("sessions", 2),
    ] {
        assert_eq!(count(&db, table), left, "{table}");
    }
    drop(db);
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    let log = Query::Log {
        after: 0,
        session: None,
        jobs: None,
    };
    let Loaded::Log {
        lines,
        last,
        oldest,
        ..
    } = store.load(log)
    else {
        panic!("log")
    };
    assert_eq!((lines.len(), last, oldest), (2, 8, 6));
    let (job, seq, _) = store.accept(new(None));
    assert_eq!((job, seq), (JobId(5), 9));
}

#[test]
fn numbers_of_what_is_forgotten_are_not_given_out_again() {
    let (dir, db) = file(|store| {
        ended(store, new(None));
        ended(store, new(None));
    });
    slice(&db, keep(1, u64::MAX), 2 * DAY, LONG).unwrap();
    assert_eq!((count(&db, "jobs"), count(&db, "sessions")), (0, 0));
    drop(db);
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    let (job, seq, name) = store.accept(new(None));
    assert_eq!((job, seq, name.as_str()), (JobId(3), 7, "s3"));
}

#[test]
fn a_key_is_kept_for_a_day_whatever_the_store_has_grown_to() {
    let (_dir, db) = file(|store| {
        let key = |key: &str| NewJob {
            key: Some(key.to_owned()),
            ..new(None)
        };
        ended(store, key("k"));
        ended(store, new(None));
    });
    assert_eq!(slice(&db, keep(30, 0), DAY, LONG), Ok(Pruned::Some(1)));
    assert_eq!(count(&db, "jobs WHERE key = 'k'"), 1);
    assert_eq!(slice(&db, keep(30, 0), DAY + 2, LONG), Ok(Pruned::Some(1)));
    assert_eq!(count(&db, "jobs"), 0);
}

#[test]
fn a_closed_session_goes_with_its_last_job_and_an_open_one_nobody_named_stays() {
    let (_dir, db) = file(|store| {
        ended(store, new(Some("main")));
        let session = "main".to_owned();
        store.commit(vec![Write::Close { session }]);
        ended(store, new(Some("main")));
        ended(store, new(None));
    });
    db.execute(
        "UPDATE sessions SET instance = 'a' WHERE NOT named AND name = 's3'",
        [],
    )
    .unwrap();
    slice(&db, keep(1, u64::MAX), 9 * DAY, LONG).unwrap();
    let left: Vec<String> = db
        .prepare("SELECT name FROM sessions ORDER BY id")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(left, ["main", "s3"]);
    assert_eq!(count(&db, "jobs"), 1, "of the session that is open");
}

#[test]
fn what_is_too_much_goes_oldest_first_until_it_fits() {
    let (_dir, db) = file(|store| {
        for _ in 0..20 {
            ended(
                store,
                NewJob {
                    request: "x".repeat(100_000),
                    ..new(Some("main"))
                },
            );
        }
    });
    slice(&db, keep(30, 1_000_000), 1000, LONG).unwrap();
    let left = count(&db, "jobs");
    assert!((6..=9).contains(&left), "{left}");
    assert_eq!(count(&db, "jobs WHERE job <= 20 - 9"), 0);
    assert_eq!(slice(&db, keep(30, 1_000_000), 1000, LONG), Ok(Pruned::All));
}

#[test]
fn a_slice_ends_when_its_time_is_over() {
    let (_dir, db) = file(|store| {
        for _ in 0..5 {
            ended(store, new(None));
        }
    });
    let keep = keep(1, u64::MAX);
    assert_eq!(
        slice(&db, keep, 9 * DAY, Duration::ZERO),
        Ok(Pruned::Some(1))
    );
    assert_eq!(count(&db, "jobs"), 4);
    assert_eq!(
        count(&db, "meta WHERE key = 'pruned_seq' AND value = '3'"),
        1
    );
}

#[test]
fn an_idle_writer_forgets_by_itself() {
    let (dir, db) = file(|store| {
        ended(store, new(None));
        store.accept(new(Some("waits")));
    });
    let (answer, answers) = sync_channel(100);
    let opener = Opener {
        keep: Some(keep(1, u64::MAX)),
        ..daemon("b")
    };
    let answer = Box::new(move |event| answer.send(event).unwrap());
    let opened = open(dir.path(), opener, Box::new(dead), answer).unwrap();
    let until = Instant::now() + PATIENCE;
    while count(&db, "jobs") > 1 {
        assert!(Instant::now() < until, "nothing is forgotten");
        let _no_news = answers.recv_timeout(Duration::from_millis(5));
    }
    opened.store.close(opened.writer);
}
