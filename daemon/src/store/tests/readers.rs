//! What is read beside the writer: what it sees, what it waits for, and what it doesn't hold up.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use agentd_core::store::{JobFilter, LogLine, SessionFilter};

use super::*;
use crate::store::readers::Limits;
use crate::store::{listed, lists, log};

fn list() -> Query {
    Query::JobList {
        filter: JobFilter::default(),
        limit: 10,
    }
}

fn log_after(after: u64) -> Query {
    Query::Log {
        after,
        session: None,
        jobs: None,
        first: JobId(0),
        texts: Vec::new(),
    }
}

fn with_faults(dir: &Path, faults: Faults) -> Bench {
    let (answer, answers) = answering();
    let opened = open_with(dir, daemon("a"), Box::new(dead), answer, faults).unwrap();
    Bench {
        opened,
        answers,
        next: 1,
    }
}

impl Bench {
    fn ask(&mut self, query: Query) -> Token {
        let token = Token(self.next);
        self.next += 1;
        let command = StoreCommand::Load { token, query };
        self.opened.store.submit(command).unwrap();
        token
    }
}

/// A writer that stays at one moment of its next transaction until it is let go.
fn held_at(moment: Moment) -> (SyncSender<()>, Receiver<()>, Fault) {
    let (go, gone) = sync_channel::<()>(1);
    let (here, is_here) = sync_channel(1);
    let mut once = Some((gone, here));
    let fault = Box::new(move |now, _: &Connection| {
        if now == moment
            && let Some((gone, here)) = once.take()
        {
            here.send(()).unwrap();
            // Let go, or the test is over.
            let _let_go = gone.recv();
        }
        Ok(())
    });
    (go, is_here, fault)
}

#[test]
fn reads_do_not_wait_for_a_writer() {
    let dir = TempDir::new().unwrap();
    let (go, is_here, fault) = held_at(Moment::BeforeCommit);
    let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
    let accept = store.command(Urgency::Waited, vec![Write::Accept(Arc::new(new(None)))]);
    is_here.recv_timeout(PATIENCE).unwrap();
    let Loaded::JobList { jobs, .. } = store.load(list()) else {
        panic!("a list")
    };
    assert!(jobs.is_empty(), "nothing is committed yet");
    go.send(()).unwrap();
    assert!(matches!(store.event(), Event::Stored { token, .. } if token == accept));
    store.close();
}

#[test]
fn reads_see_whatever_was_answered_before_them() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for _ in 0..100 {
        let (accepted, seq, _) = store.accept(new(None));
        let Loaded::JobList { jobs, .. } = store.load(list()) else {
            panic!("a list")
        };
        assert_eq!(jobs[0].job, accepted);
        let Loaded::Log { lines, last, .. } = store.load(log_after(seq - 1)) else {
            panic!("a log")
        };
        assert_eq!((lines.len(), last), (1, seq));
    }
}

#[test]
fn reads_of_the_log_come_behind_commits() {
    let dir = TempDir::new().unwrap();
    let (go, is_here, fault) = held_at(Moment::AfterCommit);
    let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
    let accept = store.command(Urgency::Waited, vec![Write::Accept(Arc::new(new(None)))]);
    is_here.recv_timeout(PATIENCE).unwrap();
    let asked = store.ask(log_after(0));
    // A list is only looked at; it says what is in the file.
    let Event::Loaded { loaded, .. } = ({
        store.ask(list());
        store.event()
    }) else {
        panic!("the list comes first")
    };
    assert!(matches!(loaded, Loaded::JobList { jobs, .. } if jobs.len() == 1));
    go.send(()).unwrap();
    assert!(matches!(store.event(), Event::Stored { token, .. } if token == accept));
    let Event::Loaded { token, loaded } = store.event() else {
        panic!("then the log")
    };
    assert_eq!(token, asked);
    assert!(matches!(loaded, Loaded::Log { lines, .. } if lines.len() == 1));
    store.close();
}

#[test]
fn reads_that_hang_are_given_up_and_replaced() {
    let dir = TempDir::new().unwrap();
    let (go, gone) = sync_channel::<()>(1);
    let gone = Mutex::new((gone, 2));
    let reader = Box::new(move || {
        let mut gone = gone.lock().unwrap();
        if gone.1 > 0 {
            gone.1 -= 1;
            let _over = gone.0.recv();
        }
    });
    let limits = Limits {
        answer: Duration::from_millis(200),
        ..Limits::default()
    };
    let faults = Faults {
        reader,
        limits,
        ..Faults::of_writer(Box::new(|_, _| Ok(())))
    };
    let mut store = with_faults(dir.path(), faults);
    let first = store.ask(list());
    let Event::Loaded { token, loaded } = store.event() else {
        panic!("an answer")
    };
    let Loaded::Failed(why) = loaded else {
        panic!("{loaded:?}")
    };
    assert_eq!(token, first);
    assert!(why.contains("0.2 s") && why.contains("agentd.db"), "{why}");
    // Who writes knows nothing of it.
    store.accept(new(None));
    drop(go);
    let until = Instant::now() + PATIENCE;
    loop {
        match store.load(list()) {
            Loaded::JobList { jobs, .. } => break assert_eq!(jobs.len(), 1),
            other => assert!(Instant::now() < until, "{other:?}"),
        }
    }
    store.close();
}

#[test]
fn reads_wait_while_others_are_answered() {
    let dir = TempDir::new().unwrap();
    let limits = Limits {
        answer: Duration::from_millis(300),
        ..Limits::default()
    };
    // Slow, and in time; all of them take longer than one may.
    let reader = Box::new(|| std::thread::park_timeout(Duration::from_millis(60)));
    let faults = Faults {
        reader,
        limits,
        ..Faults::of_writer(Box::new(|_, _| Ok(())))
    };
    let mut store = with_faults(dir.path(), faults);
    let asked = 30;
    for _ in 0..asked {
        store.ask(list());
    }
    for _ in 0..asked {
        match store.event() {
            Event::Loaded { loaded, .. } => {
                assert!(!matches!(loaded, Loaded::Failed(_)), "{loaded:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    store.close();
}

#[test]
fn readers_leave_when_nobody_asks() {
    let dir = TempDir::new().unwrap();
    let limits = Limits {
        idle: Duration::from_millis(10),
        ..Limits::default()
    };
    let faults = Faults {
        limits,
        ..Faults::of_writer(Box::new(|_, _| Ok(())))
    };
    let mut store = with_faults(dir.path(), faults);
    assert_eq!(store.opened.store.readers.threads(), 0);
    store.accept(new(None));
    assert_eq!(store.opened.store.readers.threads(), 0, "a send needs none");
    store.load(list());
    let until = Instant::now() + PATIENCE;
    while store.opened.store.readers.threads() > 0 {
        assert!(Instant::now() < until, "a reader stays");
        std::thread::park_timeout(Duration::from_millis(2));
    }
    store.load(list());
}

#[test]
fn reads_make_room_for_a_new_log() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.load(list());
    let readers = store.opened.store.readers.clone();
    readers.pause(Duration::from_secs(3600));
    store.ask(list());
    let early = store.answers.recv_timeout(Duration::from_millis(50));
    assert!(early.is_err(), "{early:?}");
    readers.resume();
    assert!(matches!(store.event(), Event::Loaded { .. }));
}

#[test]
fn reads_in_a_row_lengthen_no_log() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (text, jobs) = ("x".repeat(1 << 20), 200);
    for place in 0..jobs {
        // Some are always being read, and begin before others end.
        for _ in 0..4 {
            store.ask(log_after(0));
        }
        let request = text.clone();
        store.command(
            Urgency::Waited,
            vec![Write::Accept(Arc::new(NewJob {
                request,
                ..new(Some("main"))
            }))],
        );
        while place > 4 && !matches!(store.event(), Event::Stored { .. }) {}
    }
    let log = std::fs::metadata(beside(&dir.path().join(FILE), "-wal")).unwrap();
    // Of more than 200 MiB that were written: how early it is begun anew depends on how long readers
    // take that have begun.
    assert!(log.len() <= 160 << 20, "{}", log.len());
    store.close();
}

/// A session some of whose jobs wait while others end, in another order than that of their numbers.
fn long_session(dir: &Path, jobs: i64) -> Connection {
    let mut store = bench(dir, "a", Role::Daemon, dead);
    store.accept(new(Some("other")));
    store.accept(new(Some("main")));
    store.close();
    let conn = schema::reopen(&dir.join(FILE)).unwrap();
    conn.execute_batch("BEGIN; DELETE FROM jobs").unwrap();
    let (mut seq, mut open) = (0, VecDeque::new());
    for job in 1..=jobs {
        seq += 1;
        let session = if job % 7 == 0 { 1 } else { 2 };
        conn.prepare_cached(
            "INSERT INTO jobs (job, seq, session, state, attempt, instance, accepted_at,
                expires_at, request) VALUES (?1, ?2, ?3, 'queued', 1, 'a', 1, 1, '{}')",
        )
        .unwrap()
        .execute([job, seq, session])
        .unwrap();
        open.push_back(job);
        if open.len() > 40 {
            let place = usize::try_from(job * 7 % 40).unwrap();
            let ended = open.remove(place).unwrap();
            seq += 2;
            conn.prepare_cached("INSERT INTO events VALUES (?1, ?2, '{\"type\":\"note\"}')")
                .unwrap()
                .execute([seq - 1, ended])
                .unwrap();
            conn.prepare_cached(
                "UPDATE jobs SET state = 'completed', final = '{\"type\":\"message_end\"}',
                    final_seq = ?2, finished_at = 2 WHERE job = ?1",
            )
            .unwrap()
            .execute([ended, seq])
            .unwrap();
        }
    }
    conn.execute_batch("COMMIT").unwrap();
    conn
}

#[test]
fn log_of_a_session_equals_the_whole_logs() {
    let dir = TempDir::new().unwrap();
    let conn = long_session(dir.path(), 800);
    let of_main: Vec<i64> = conn
        .prepare("SELECT job FROM jobs JOIN sessions ON id = session WHERE name = 'main'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let is_mine = |line: &LogLine| of_main.contains(&i64::try_from(line.job.0).unwrap());
    let numbers = |pages: &dyn Fn(u64, JobId) -> Loaded, from: u64| {
        let (mut after, mut seqs, mut from_job) = (from, Vec::new(), JobId(0));
        loop {
            let Loaded::Log {
                lines, more, first, ..
            } = pages(after, from_job)
            else {
                panic!("a page")
            };
            assert!(!more || !lines.is_empty(), "more after an empty page");
            after = lines.last().map_or(after, |line| line.seq);
            seqs.extend(
                lines
                    .iter()
                    .filter(|line| is_mine(line))
                    .map(|line| line.seq),
            );
            from_job = first;
            if !more {
                return seqs;
            }
        }
    };
    let whole = |after, _| log::of_all(&conn, (after, &[])).unwrap();
    let mine = |after, first| log::of_session(&conn, (after, &[]), "main", first).unwrap();
    for from in [0, 1, 500, 1300, 5000] {
        let mine = numbers(&mine, from);
        assert_eq!(mine, numbers(&whole, from), "after {from}");
        assert!(from > 0 || mine.len() > 1500, "{}", mine.len());
    }
}

#[test]
fn log_of_a_session_costs_its_lines_once() {
    let steps = |jobs: i64| {
        let dir = TempDir::new().unwrap();
        let mut conn = long_session(dir.path(), jobs);
        let steps = counted(&mut conn);
        let (mut after, mut from_job) = (0, JobId(0));
        loop {
            let page = log::of_session(&conn, (after, &[]), "main", from_job).unwrap();
            let Loaded::Log {
                lines, more, first, ..
            } = page
            else {
                panic!("a page")
            };
            after = lines.last().map_or(after, |line| line.seq);
            from_job = first;
            if !more {
                return steps.load(Ordering::Relaxed);
            }
        }
    };
    let (short, long) = (steps(1_000), steps(20_000));
    assert!(long < short * 26, "{short} and {long} hundred steps");
}

#[test]
fn lists_look_at_few_of_many_jobs() {
    let dir = TempDir::new().unwrap();
    let mut conn = long_session(dir.path(), 20_000);
    conn.execute_batch(
        "INSERT INTO labels SELECT 'a', job % 5000, job FROM jobs;
         INSERT INTO labels SELECT 'b', '1', job FROM jobs;",
    )
    .unwrap();
    let steps = counted(&mut conn);
    let all = JobFilter::default();
    let label = |key: &str, value: Option<&str>| JobFilter {
        label: Some((key.to_owned(), value.map(str::to_owned))),
        ..JobFilter::default()
    };
    let before = |filter| JobFilter {
        before: Some(JobId(15_000)),
        ..filter
    };
    let since = JobFilter {
        since: Some(0),
        ..JobFilter::default()
    };
    let session = JobFilter {
        session: Some("main".to_owned()),
        ..JobFilter::default()
    };
    for filter in [
        all,
        label("a", None),
        label("b", Some("1")),
        before(label("a", None)),
        before(label("b", Some("1"))),
        since.clone(),
        before(since),
        session,
    ] {
        let begun = steps.load(Ordering::Relaxed);
        let Loaded::JobList { jobs, more } =
            lists::jobs(&conn, &filter, 50, &|_| Liveness::Dead).unwrap()
        else {
            panic!("a list")
        };
        assert!(more && jobs.len() == 50, "{filter:?}");
        let newest = filter.before.map_or(20_000, |before| before.0 - 1);
        assert!(jobs[0].job.0 + 1 >= newest, "{filter:?}");
        let took = steps.load(Ordering::Relaxed) - begun;
        assert!(took < 1000, "{filter:?}: {took} hundred steps");
    }
    let begun = steps.load(Ordering::Relaxed);
    let found = listed::sessions(&conn, &SessionFilter::default(), 0, 50).unwrap();
    assert!(matches!(found, Loaded::SessionList { sessions, .. } if sessions.len() == 2));
    let took = steps.load(Ordering::Relaxed) - begun;
    assert!(took < 50, "sessions: {took} hundred steps");
}

/// Counts what a connection does, by hundreds of its steps.
fn counted(conn: &mut Connection) -> Arc<AtomicU64> {
    let steps = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&steps);
    let count = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        false
    };
    conn.progress_handler(100, Some(count)).unwrap();
    steps
}
