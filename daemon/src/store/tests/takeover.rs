//! What dead instances left, found when the store is opened and when one is asked for.

use std::sync::atomic::AtomicUsize;

use super::*;

#[test]
fn takeover_names_who_keeps_a_dead_ones_session() {
    let dir = TempDir::new().unwrap();
    let mut gone = bench(dir.path(), "gone", Role::Daemon, dead);
    let (queued, ..) = gone.accept(new(Some("main")));
    let release = || Write::Release {
        session: "main".to_owned(),
    };
    gone.commit(vec![release()]);
    gone.close();
    let mut holder = bench(dir.path(), "holder", Role::OneShot, dead);
    let (theirs, ..) = holder.accept(started("main"));

    let daemon = bench(dir.path(), "daemon", Role::Daemon, |name| match name {
        "holder" => Liveness::Alive { pid: 7 },
        _ => Liveness::Dead,
    });
    let left = &daemon.opened.orphans[0];
    assert_eq!((left.instance.as_str(), left.jobs.len()), ("gone", 0));
    assert_eq!(left.holders, ["holder"]);
    // They may leave before anybody looks for them by their files.
    assert!(daemon.opened.living.iter().eq(["holder"]));
    let again = || {
        let instance = "gone".to_owned();
        let command = StoreCommand::Takeover { instance };
        daemon.opened.store.submit(command).unwrap();
        match daemon.event() {
            Event::Recovered(recovered) => *recovered,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(again().holders, ["holder"], "it is still open there");
    holder.commit(vec![finish(theirs, End::Completed), release()]);
    holder.close();
    let taken = again();
    let jobs: Vec<JobId> = taken.jobs.iter().map(|left| left.row.job).collect();
    assert_eq!((jobs, taken.holders), (vec![queued], Vec::new()));
}

#[test]
fn takeover_writes_no_waiting_job_but_finds_it() {
    let dir = TempDir::new().unwrap();
    let mut first = bench(dir.path(), "first", Role::Daemon, dead);
    let long = NewJob {
        request: format!(r#"{{"text":"{}","model":"m"}}"#, "x".repeat(100_000)),
        ..new(Some("main"))
    };
    let jobs: Vec<JobId> = (0..20).map(|_| first.accept(long.clone()).0).collect();
    let (other, ..) = first.accept(new(Some("other")));
    first.close();
    let log = || {
        let log = std::fs::metadata(dir.path().join("agentd.db-wal"));
        log.map_or(0, |log| log.len())
    };
    let found = |store: &Bench| {
        let of = |one: &Recovered| one.jobs.iter().map(|left| left.row.job).collect::<Vec<_>>();
        store.opened.orphans.iter().map(of).collect::<Vec<_>>()
    };
    let mut second = bench(dir.path(), "second", Role::Daemon, dead);
    assert_eq!(found(&second), [[&jobs[..], &[other]].concat()]);
    assert!(
        log() < 200_000,
        "2 MB of requests were written again: {}",
        log()
    );
    let terms = second.opened.orphans[0].jobs[3].terms.as_ref().unwrap();
    assert_eq!(*terms, Arc::new(Terms::read(r#"{"model":"m"}"#).unwrap()));
    let start = Write::Start {
        job: jobs[0],
        worker: WorkerId(1),
        generation: Generation(1),
        attempt: 1,
        line: line("running"),
    };
    second.commit(vec![start]);
    second.close();
    let third = bench(dir.path(), "third", Role::Daemon, dead);
    let orphans = &third.opened.orphans;
    let names: Vec<&str> = orphans.iter().map(|left| left.instance.as_str()).collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(
        found(&third),
        [[&jobs[1..], &[other]].concat(), vec![jobs[0]]]
    );
    // The second one may have processes for all of them.
    let sessions = orphans.iter().map(|left| left.sessions.len());
    assert_eq!(sessions.collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn takeover_of_many_finds_all_in_order() {
    let dir = TempDir::new().unwrap();
    let mut gone = bench(dir.path(), "gone", Role::Daemon, dead);
    let (first, ..) = gone.accept(new(Some("main")));
    gone.close();
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    let all: u32 = 5_000;
    // Every third one is of an instance that lives.
    db.execute(
        "WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO jobs (job, seq, session, state, attempt, instance, accepted_at, expires_at,
            request)
            SELECT i, i, 1, 'queued', 0, iif(i % 3, 'gone', 'lives'), 0, 0, request
            FROM n, (SELECT request FROM jobs)",
        [all],
    )
    .unwrap();
    db.close().unwrap();
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let daemon = bench(dir.path(), "daemon", Role::Daemon, |name| {
        ASKED.fetch_add(1, Ordering::Relaxed);
        match name {
            "gone" => Liveness::Dead,
            _ => Liveness::Alive { pid: 1 },
        }
    });
    let [left] = &daemon.opened.orphans[..] else {
        panic!("{:?}", daemon.opened.orphans)
    };
    let found: Vec<u64> = left.jobs.iter().map(|left| left.row.job.0).collect();
    let theirs: Vec<u64> = (first.0..=all.into()).filter(|job| job % 3 > 0).collect();
    assert_eq!(found, theirs);
    assert_eq!(ASKED.load(Ordering::Relaxed), 2, "after each once");
}
