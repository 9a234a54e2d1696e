//! What is forgotten, by a clock that the test makes up.

use super::*;
use crate::store::age::{self, Believed, Clocks};
use crate::store::prune::{self, Pruned};

const DAY: i64 = age::DAY;
const HOUR: i64 = DAY / 24;
const LONG: Duration = Duration::from_secs(10);

pub(super) fn slice_at(db: &Connection, keep: Keep, now_ms: i64) -> rusqlite::Result<Pruned> {
    slice(db, keep, now_ms, LONG)
}

/// At a time that is believed, with all jobs older than a day.
fn slice(db: &Connection, keep: Keep, now_ms: i64, time: Duration) -> rusqlite::Result<Pruned> {
    let day_old = i64::MAX;
    prune::slice(db, keep, Believed { now_ms, day_old }, time)
}

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
fn pruning_makes_room_on_a_full_disk() {
    let dir = TempDir::new().unwrap();
    // The file may have no more pages than these, as on a disk that is as small.
    let fault: Fault = Box::new(|_, conn| conn.pragma_update(None, "max_page_count", 256));
    let (answer, answers) = answering();
    let keep = Keep {
        every: Duration::from_secs(3600),
        ..keep(30, 512 * 1024)
    };
    let opener = Opener {
        keep: Some(keep),
        ..daemon("a")
    };
    let faults = Faults::of_writer(fault);
    let opened = open_with(dir.path(), opener, Box::new(dead), answer, faults).unwrap();
    let mut store = Bench {
        opened,
        answers,
        next: 1,
    };
    let big = || NewJob {
        request: format!(r#"{{"text":"{}"}}"#, "x".repeat(40_000)),
        ..new(Some("main"))
    };
    let mut troubles = 0;
    let mut stored = |store: &mut Bench, writes: Vec<Write>| {
        let asked = store.command(Urgency::Waited, writes);
        loop {
            match store.event() {
                Event::Stored { token, stored } if token == asked => break stored,
                Event::StoreHealth { trouble } => troubles += u32::from(trouble.is_some()),
                other => panic!("{other:?}"),
            }
        }
    };
    for _ in 0..100 {
        let until = Instant::now() + PATIENCE;
        let job = loop {
            match stored(&mut store, vec![Write::Accept(Arc::new(big()))]) {
                Stored::Committed(written) => match written.as_slice() {
                    [Written::Accepted { job, .. }] => break *job,
                    other => panic!("{other:?}"),
                },
                Stored::Failed { code, .. } => {
                    assert_eq!(code, Code::DiskFull);
                    assert!(Instant::now() < until, "it stays full");
                }
                other => panic!("{other:?}"),
            }
        };
        stored(&mut store, vec![finish(job, End::Completed)]);
    }
    assert!(troubles > 0, "the disk was never full");
    store.close();
}

#[test]
fn prune_takes_old_jobs_and_leaves_unfinished_ones() {
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
        first: JobId(0),
        texts: Vec::new(),
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

/// Of jobs that are kept nothing is missing, whatever else is gone.
#[test]
fn prune_of_others_leaves_cursors_of_jobs() {
    let (dir, db) = file(|store| {
        ended(store, new(None));
        store.accept(new(None));
    });
    slice(&db, keep(1, u64::MAX), 2 * DAY, LONG).unwrap();
    drop(db);
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    let mut oldest_of = |jobs: &[u64]| {
        let jobs = jobs.iter().copied().map(JobId).collect();
        let log = Query::Log {
            after: 0,
            session: None,
            jobs: Some(jobs),
            first: JobId(0),
            texts: Vec::new(),
        };
        match store.load(log) {
            Loaded::Log { oldest, .. } => oldest,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(oldest_of(&[2]), 0);
    assert_eq!(oldest_of(&[1]), 3);
    assert_eq!(oldest_of(&[2, 1]), 3);
}

#[test]
fn prune_gives_out_no_number_again() {
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
fn prune_keeps_keys_for_a_day() {
    let (_dir, db) = file(|store| {
        let key = |key: &str| NewJob {
            key: Some(key.to_owned()),
            ..new(None)
        };
        ended(store, key("k"));
        ended(store, new(None));
    });
    let slice = |day_old| {
        let now_ms = 9 * DAY;
        prune::slice(&db, keep(30, 0), Believed { now_ms, day_old }, LONG)
    };
    assert_eq!(slice(0), Ok(Pruned::Some(1)));
    assert_eq!(count(&db, "jobs WHERE key = 'k'"), 1);
    assert_eq!(slice(1), Ok(Pruned::Some(1)));
    assert_eq!(count(&db, "jobs"), 0);
}

#[test]
fn prune_closes_sessions_with_their_last_job() {
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
fn prune_for_size_takes_the_oldest_first() {
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
    since_long_ago(&db);
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

/// The clocks have been looked at for more than a day.
pub(super) fn since_long_ago(db: &Connection) {
    let wall_ms = agentd_base::clock::wall_ms();
    let hours = |hour: i64| Clocks {
        wall_ms: wall_ms - (30 - hour) * HOUR,
        boot: Some("this-boot"),
        boot_ms: u64::try_from(hour * HOUR).unwrap(),
    };
    for hour in 0..=30 {
        age::look(db, hours(hour)).unwrap();
    }
}

/// A machine whose clocks a test moves.
struct Machine<'a> {
    db: &'a Connection,
    wall_ms: i64,
    boot: String,
    boot_ms: u64,
}

impl<'a> Machine<'a> {
    fn new(db: &'a Connection, wall_ms: i64) -> Self {
        let boot = "first".to_owned();
        Self {
            db,
            wall_ms,
            boot,
            boot_ms: 5_000,
        }
    }

    /// Runs for so long, and looks at its clocks as often as a daemon does.
    fn runs(&mut self, time: i64) -> Believed {
        let step = HOUR / 6;
        for _ in 0..time / step {
            self.wall_ms += step;
            self.boot_ms += u64::try_from(step).unwrap();
            self.looks();
        }
        self.looks()
    }

    fn looks(&self) -> Believed {
        let clocks = Clocks {
            wall_ms: self.wall_ms,
            boot: Some(&self.boot),
            boot_ms: self.boot_ms,
        };
        age::look(self.db, clocks).unwrap()
    }

    /// Is switched off for so long.
    fn is_off(&mut self, time: i64) {
        self.wall_ms += time;
        self.boot.push('+');
        self.boot_ms = 5_000;
    }
}

/// 2026, roughly.
const NOW: i64 = 56 * 365 * DAY;

#[test]
fn clocks_set_forward_for_a_while_forget_nothing() {
    let (_dir, db) = file(|_| ());
    let mut machine = Machine::new(&db, NOW);
    assert_eq!(machine.looks().now_ms, 0, "nothing is known yet");
    assert_eq!(machine.runs(25 * HOUR).now_ms, machine.wall_ms);
    let real = machine.wall_ms;
    // For 36 s, and again for 20 h.
    machine.wall_ms += 40 * DAY;
    assert_eq!(machine.looks().now_ms, real);
    machine.wall_ms = real;
    assert_eq!(machine.looks().now_ms, real);
    machine.wall_ms += 40 * DAY;
    let believed = machine.runs(20 * HOUR);
    assert_eq!(believed.now_ms, real + 20 * HOUR, "it goes on as it was");
    machine.wall_ms -= 40 * DAY;
    assert_eq!(machine.runs(HOUR).now_ms, real + 21 * HOUR);
    assert_eq!(machine.runs(30 * HOUR).now_ms, real + 51 * HOUR);
}

#[test]
fn clocks_are_believed_after_a_day_across_restarts() {
    let (_dir, db) = file(|_| ());
    let mut machine = Machine::new(&db, NOW);
    machine.runs(30 * HOUR);
    let before = machine.wall_ms;
    machine.is_off(30 * DAY);
    assert!(machine.looks().now_ms <= before + HOUR, "one boot's word");
    for hours in [8, 8, 6] {
        let believed = machine.runs(hours * HOUR);
        assert!(believed.now_ms < before + DAY, "not yet");
        machine.is_off(16 * HOUR);
    }
    let off = 48 * HOUR + 2 * HOUR;
    // What wasn't noted before the machine went off doesn't count.
    let believed = machine.runs(8 * HOUR);
    let late = machine.wall_ms - believed.now_ms;
    assert!((0..=off).contains(&late), "{} h", late / HOUR);
}

#[test]
fn clocks_set_back_make_nothing_old_ever() {
    let (_dir, db) = file(|_| ());
    let mut machine = Machine::new(&db, NOW);
    machine.runs(30 * HOUR);
    let real = machine.wall_ms;
    machine.wall_ms = 5 * DAY;
    assert_eq!(machine.looks().now_ms, 5 * DAY);
    machine.wall_ms = real;
    let believed = machine.runs(20 * HOUR);
    assert_eq!(believed.now_ms, 5 * DAY + 20 * HOUR);
    assert_eq!(machine.runs(6 * HOUR).now_ms, machine.wall_ms);
}

#[test]
fn clocks_that_jump_make_no_key_free() {
    let (dir, db) = file(|_| ());
    let mut machine = Machine::new(&db, NOW);
    machine.runs(30 * HOUR);
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    let (job, ..) = store.accept(NewJob {
        key: Some("k".to_owned()),
        at: machine.wall_ms,
        ..new(Some("s"))
    });
    store.commit(vec![finish(job, End::Completed)]);
    store.close();
    let kept = |believed| {
        while prune::slice(&db, keep(1, 0), believed, LONG).unwrap() != Pruned::All {}
        count(&db, "jobs")
    };
    // 23 h at a time, and much more at once; forward, back, and into another boot.
    for jump in [23 * HOUR, 23 * HOUR, 40 * DAY, -70 * DAY, 40 * DAY] {
        machine.wall_ms += jump;
        assert_eq!(kept(machine.runs(4 * HOUR)), 1, "{jump}");
        machine.is_off(HOUR);
    }
    assert_eq!(kept(machine.runs(2 * HOUR)), 1, "22 h");
    assert_eq!(kept(machine.runs(8 * HOUR)), 0, "more than a day");
}

#[test]
fn clocks_are_noted_twice_an_hour() {
    let (_dir, db) = file(|_| ());
    let mut machine = Machine::new(&db, NOW);
    let changes = || db.query_row("SELECT total_changes()", [], |row| row.get(0));
    let before: i64 = changes().unwrap();
    machine.runs(48 * HOUR);
    let noted = changes().unwrap() - before;
    assert!((40..=120).contains(&noted), "{noted}");
    let value = "SELECT length(value) FROM meta WHERE key = 'ages'";
    let length: i64 = db.query_row(value, [], |row| row.get(0)).unwrap();
    assert!(length < 4096, "{length}");
}
