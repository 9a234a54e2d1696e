//! The store's figures, each against a control on the same disk in the same run.
//!
//! `cargo test --release -p agentd-daemon --lib store::tests::figures -- --ignored --nocapture`

use std::time::Instant;

use super::*;

/// Accepts of one burst: they fit into the writer's queue.
const BURST: usize = 8_000;
const BURSTS: usize = 9;
const SESSIONS: usize = 64;

fn accept_of(number: usize) -> NewJob {
    NewJob {
        request: format!(
            r#"{{"text":"{}","mode":"queue","retry":"never"}}"#,
            "x".repeat(200)
        ),
        hashed: "x".repeat(260),
        ..new(Some(&format!("session-{}", number % SESSIONS)))
    }
}

fn burst(store: &mut Bench) -> Duration {
    let orders: Vec<Vec<Write>> = (0..BURST)
        .map(|number| vec![Write::Accept(Box::new(accept_of(number)))])
        .collect();
    let began = Instant::now();
    for writes in orders {
        store.order(Urgency::Waited, writes);
    }
    for _ in 0..BURST {
        let event = store.event();
        let stored = matches!(
            event,
            Event::Stored {
                stored: Stored::Committed(_),
                ..
            }
        );
        assert!(stored, "{event:?}");
    }
    began.elapsed()
}

/// The simplest writer that groups commits: one row of one table each.
fn bare(dir: &Path) -> impl FnMut() -> Duration {
    let conn = Connection::open(dir.join("bare.db")).unwrap();
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;
         PRAGMA cache_size = -512;
         CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;",
    )
    .unwrap();
    let (orders, received) = sync_channel::<(u64, String)>(ORDERS);
    let (answer, answers) = sync_channel::<u64>(BURST);
    std::thread::spawn(move || {
        while let Ok(first) = received.recv() {
            let batch: Vec<_> = std::iter::once(first)
                .chain(received.try_iter().take(255))
                .collect();
            conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            for (id, body) in &batch {
                conn.prepare_cached("INSERT INTO rows VALUES (?1, ?2)")
                    .unwrap()
                    .execute(rusqlite::params![*id as i64, body])
                    .unwrap();
            }
            conn.execute_batch("COMMIT").unwrap();
            for (id, _) in batch {
                answer.send(id).unwrap();
            }
        }
    });
    let mut next = 0;
    move || {
        let bodies: Vec<String> = (0..BURST).map(|number| accept_of(number).request).collect();
        let began = Instant::now();
        for body in bodies {
            next += 1;
            orders.send((next, body)).unwrap();
        }
        for _ in 0..BURST {
            answers.recv_timeout(PATIENCE).unwrap();
        }
        began.elapsed()
    }
}

fn per_second(times: &mut [Duration]) -> f64 {
    times.sort();
    BURST as f64 / times[times.len() / 2].as_secs_f64()
}

#[test]
#[ignore = "a figure"]
fn many_accepts_are_nearly_as_fast_as_bare_rows() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let other = TempDir::new().unwrap();
    let mut bare = bare(other.path());
    burst(&mut store);
    bare();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut log = 0;
    for _ in 0..BURSTS {
        ours.push(burst(&mut store));
        let wal = beside(&dir.path().join(FILE), "-wal");
        log = log.max(std::fs::metadata(wal).unwrap().len());
        theirs.push(bare());
    }
    let (ours, theirs) = (per_second(&mut ours), per_second(&mut theirs));
    println!(
        "accepts/s {ours:.0}, bare rows/s {theirs:.0}, ratio {:.2}, largest log {} MiB",
        ours / theirs,
        log >> 20
    );
}

#[test]
#[ignore = "a figure"]
fn a_store_of_100_000_jobs_is_opened_within_a_second() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "gone", Role::Daemon, dead);
    for number in 0..1000 {
        store.accept(accept_of(number));
    }
    store.close();
    let db = schema::reopen(&dir.path().join(FILE)).unwrap();
    db.execute_batch(
        "WITH RECURSIVE n (i) AS (SELECT 2001 UNION ALL SELECT i + 1 FROM n WHERE i < 102000)
         INSERT INTO jobs (job, seq, session, state, attempt, instance, accepted_at, finished_at,
            final_seq, expires_at, request, final)
            SELECT i, i * 12, 1 + i % 64, 'completed', 1, 'gone', i, i, i * 12 + 11, 0,
                hex(zeroblob(500)), hex(zeroblob(1000)) FROM n;
         WITH RECURSIVE n (i) AS (SELECT 2001 UNION ALL SELECT i + 1 FROM n WHERE i < 102000),
            k (j) AS (SELECT 1 UNION ALL SELECT j + 1 FROM k WHERE j < 10)
         INSERT INTO events SELECT i * 12 + j, i, hex(zeroblob(100)) FROM n, k;
         PRAGMA wal_checkpoint(TRUNCATE);",
    )
    .unwrap();
    drop(db);
    let size = std::fs::metadata(dir.path().join(FILE)).unwrap().len();
    let before = resident();
    let began = Instant::now();
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    let opened = began.elapsed();
    let orphans = store.opened.orphans[0].jobs.len();
    store.accept(new(None));
    let accepted = began.elapsed();
    println!(
        "{} MiB: opened with {orphans} unfinished jobs in {opened:?}, the first accept after \
         {accepted:?}, {} KiB more resident",
        size >> 20,
        resident() - before
    );
    assert_eq!(orphans, 1000);
    assert!(accepted < Duration::from_secs(1));
}

/// KiB.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
