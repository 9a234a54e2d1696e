//! The file: its age, its health, its mode and its indexes.

use agentd_core::attached::Content;

use super::*;

#[test]
fn a_newer_store_is_refused_and_left_untouched() {
    let dir = TempDir::new().unwrap();
    bench(dir.path(), "a", Role::Daemon, dead).close();
    let path = dir.path().join(FILE);
    let db = Connection::open(&path).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let before = std::fs::read(&path).unwrap();
    let refused = open(dir.path(), daemon("b"), Box::new(dead), Box::new(|_| ()));
    let error = refused.err().unwrap();
    assert!(
        matches!(
            error,
            StoreError::Newer { found: 99, known, .. } if known == migrations::MIGRATIONS.len()
        ),
        "{error}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn file_that_is_broken_is_moved_aside() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(FILE);
    std::fs::write(&path, vec![0x5a; 20_000]).unwrap();
    std::fs::write(beside(&path, "-wal"), b"log").unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let aside = store.opened.moved();
    let name = aside.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("agentd.db.corrupt-"), "{name}");
    assert_eq!(std::fs::read(&aside).unwrap(), vec![0x5a; 20_000]);
    assert_eq!(store.accept(new(None)).0, JobId(1));
    let epoch = store.opened.epoch.clone();
    store.close();
    let store = bench(dir.path(), "a", Role::Daemon, dead);
    assert_eq!(
        (store.opened.loss.clone(), &store.opened.epoch),
        (None, &epoch)
    );
}

#[test]
fn damage_that_the_check_finds_is_moved_unwritten() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(FILE);
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.accept(new(None));
    store.close();
    let db = Connection::open(&path).unwrap();
    // Nobody looks at it who takes over what is open.
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'labels'";
    let root: u32 = db.query_row(root, [], |row| row.get(0)).unwrap();
    drop(db);
    let mut damaged = std::fs::read(&path).unwrap();
    damaged[(root as usize - 1) * 4096] = 0xff;
    std::fs::write(&path, &damaged).unwrap();
    let log = usize::try_from(schema::SHORT_LOG).unwrap();
    std::fs::write(beside(&path, "-wal"), vec![0; log]).unwrap();
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    assert!(store.opened.orphans.is_empty(), "of the new one");
    let aside = store.opened.moved();
    assert!(
        std::fs::read(&aside).unwrap() == damaged,
        "nothing was written to what is damaged"
    );
    assert_eq!(store.accept(new(None)).0, JobId(1));
}

#[test]
fn somebody_elses_database_is_left_alone() {
    let dir = TempDir::new().unwrap();
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    db.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(db);
    let refused = open(dir.path(), daemon("b"), Box::new(dead), Box::new(|_| ()));
    assert!(matches!(refused, Err(StoreError::Foreign { .. })));
}

#[test]
fn store_that_is_older_is_copied_before_migration() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.accept(new(None));
    store.close();
    let mut newer = migrations::MIGRATIONS.to_vec();
    newer.push("ALTER TABLE jobs ADD COLUMN colour TEXT;");
    let ready = schema::prepare(dir.path(), &newer).unwrap();
    let version: u32 = ready
        .conn
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(usize::try_from(version).unwrap(), newer.len());
    let backup = format!(".backup-v{}-", migrations::MIGRATIONS.len());
    let backup = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains(&backup))
        .expect("a backup");
    let db = Connection::open(backup).unwrap();
    let jobs: i64 = db
        .query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))
        .unwrap();
    assert_eq!(jobs, 1);
}

#[test]
fn migration_goes_on_beside_a_killed_ones_copy() {
    let dir = TempDir::new().unwrap();
    bench(dir.path(), "a", Role::Daemon, dead).close();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = since.unwrap().as_secs();
    let version = migrations::MIGRATIONS.len();
    // Of this second, and of those that the test may take.
    for second in now..now + 60 {
        let copy = format!(".backup-v{version}-{second}");
        // Longer than what SQLite takes for empty.
        std::fs::write(beside(&dir.path().join(FILE), &copy), [b'x'; 8192]).unwrap();
    }
    let mut newer = migrations::MIGRATIONS.to_vec();
    newer.push("ALTER TABLE jobs ADD COLUMN colour TEXT;");
    schema::prepare(dir.path(), &newer).unwrap();
    let whole = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let is_copy = path.to_string_lossy().contains(".backup-v");
        is_copy && std::fs::read(path).unwrap().starts_with(b"SQLite")
    };
    let copies = std::fs::read_dir(dir.path()).unwrap();
    assert_eq!(copies.map(whole).filter(|whole| *whole).count(), 1);
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
fn queries_of_starts_and_accepts_scan_no_table() {
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
         INSERT INTO jobs (job, seq, session, state, attempt, instance, accepted_at, finished_at,
            final_seq, expires_at, request, final)
            SELECT i, i * 2, 1, 'completed', 1, 'gone', 0, 0, i * 2 + 1, 0, 'r', 'f' FROM n;",
    )
    .unwrap();
    for sql in [
        "SELECT instance FROM jobs WHERE final_seq IS NULL UNION SELECT instance FROM sessions WHERE instance IS NOT NULL",
        "SELECT job FROM jobs WHERE instance = 'x' AND final_seq IS NULL",
        "SELECT max(seq) FROM jobs",
        "SELECT final_seq FROM jobs WHERE final_seq IS NOT NULL ORDER BY final_seq DESC LIMIT 1",
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
    let began = Instant::now();
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    assert_eq!(store.accept(new(None)).1, 200_002);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}

/// A sender waits for the sync of both: a turn's time is mostly that.
#[test]
fn job_costs_three_pages_and_then_seven() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    // Not by the log's length: room is made ahead.
    let beside = Connection::open(dir.path().join(FILE)).unwrap();
    let frames = || -> i64 {
        let asked = beside.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1));
        asked.unwrap()
    };
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let before = frames();
        let (job, ..) = store.accept(started("busy"));
        let accepted = frames();
        store.commit(vec![finish(job, End::Completed)]);
        jobs.push((accepted - before, frames() - accepted));
    }
    assert_eq!(jobs.last(), Some(&(3, 7)), "{jobs:?}");
}

/// SQLite reads an entry of an index, or a row without a rowid, whole wherever a search compares with
/// it: one of megabytes makes each of its neighbours' writes read them.
#[test]
fn store_searches_no_tree_with_long_entries() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let long = "a".repeat(300_000);
    let (job, ..) = store.accept(NewJob {
        request: format!(r#"{{"text":"{long}"}}"#),
        contents: vec![Content::new(long.clone())],
        system: Some(long.as_str().into()),
        ..started("main")
    });
    store.commit(vec![Write::Event {
        job,
        line: line(&long),
    }]);
    store.commit(vec![piece(job, 0, &long)]);
    let texts = vec![MessageText {
        message: 0,
        kind: TextKind::Text,
        text: long.clone(),
    }];
    let ended = Write::Finish {
        job,
        end: End::Completed,
        line: last_line(&long),
        texts: Some(texts),
    };
    store.commit(vec![ended]);
    store.close();
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    let trees = |which: &str| -> Vec<String> {
        let sql = format!(
            "SELECT DISTINCT name FROM dbstat WHERE pagetype = 'overflow' AND name {which} IN
                (SELECT name FROM sqlite_schema WHERE type = 'index' UNION
                 SELECT name FROM pragma_table_list WHERE wr) ORDER BY name"
        );
        let mut all = db.prepare(&sql).unwrap();
        let names = all.query_map([], |row| row.get(0)).unwrap();
        names.map(Result::unwrap).collect()
    };
    assert_eq!(trees(""), [""; 0]);
    let long = ["attachments", "events", "jobs", "sessions", "texts"];
    assert_eq!(trees("NOT"), long);
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/store")
}

/// Every row of every table that version 1 had, in words.
fn dump(conn: &Connection) -> Vec<String> {
    let mut rows = Vec::new();
    for table in ["meta", "sessions", "jobs", "events", "texts"] {
        let every = format!("SELECT * FROM {table} ORDER BY 1, 2");
        let mut all = conn.prepare(&every).unwrap();
        let columns = all.column_count();
        let mut found = all.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let value = |column| format!("{:?}", row.get_ref(column).unwrap());
            let values: Vec<String> = (0..columns).map(value).collect();
            rows.push(format!("{table}: {}", values.join(" ")));
        }
    }
    rows
}

#[test]
fn fixture_of_version_1_is_its_scripts() {
    let dir = TempDir::new().unwrap();
    let ready = schema::prepare(dir.path(), &migrations::MIGRATIONS[..1]).unwrap();
    let script = std::fs::read_to_string(fixtures().join("v1.sql")).unwrap();
    ready.conn.execute_batch(&script).unwrap();
    let copy = dir.path().join("fixture.db");
    std::fs::copy(fixtures().join("v1.db"), &copy).unwrap();
    let fixture = Connection::open(copy).unwrap();
    let made = dump(&ready.conn);
    let jobs = made.iter().filter(|row| row.starts_with("jobs"));
    assert_eq!(jobs.count(), 8);
    assert_eq!(dump(&fixture), made);
}

#[test]
fn fixture_of_later_versions_came_from_the_first() {
    for version in 2..=migrations::MIGRATIONS.len() {
        is_what_became_of_the_first(version);
    }
}

fn is_what_became_of_the_first(version: usize) {
    let dir = TempDir::new().unwrap();
    std::fs::copy(fixtures().join("v1.db"), dir.path().join(FILE)).unwrap();
    let ready = schema::prepare(dir.path(), &migrations::MIGRATIONS[..version]).unwrap();
    let copy = dir.path().join("fixture.db");
    std::fs::copy(fixtures().join(format!("v{version}.db")), &copy).unwrap();
    let fixture = Connection::open(copy).unwrap();
    let found = |conn: &Connection| -> usize {
        let version = conn.query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0));
        usize::try_from(version.unwrap()).unwrap()
    };
    assert_eq!((found(&ready.conn), found(&fixture)), (version, version));
    assert_eq!(dump(&fixture), dump(&ready.conn));
}

#[test]
fn store_that_is_older_goes_on_with_all() {
    for version in 1..u32::try_from(migrations::MIGRATIONS.len()).unwrap() {
        goes_on_with_all_it_held(version);
    }
}

fn goes_on_with_all_it_held(version: u32) {
    use agentd_core::store::{JobFilter, LogLine};
    use agentd_protocol::work::JobPhase;
    let dir = TempDir::new().unwrap();
    let fixture = fixtures().join(format!("v{version}.db"));
    std::fs::copy(fixture, dir.path().join(FILE)).unwrap();
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    let backup = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.to_string_lossy()
                .contains(&format!(".backup-v{version}-"))
        });
    // What only adds needs no copy, which takes long in a large store.
    assert_eq!(backup.is_some(), version < 12);
    if let Some(backup) = backup {
        let before = Connection::open(backup).unwrap();
        let (was, jobs): (u32, i64) = before
            .query_row(
                "SELECT (SELECT user_version FROM pragma_user_version), count(*) FROM jobs",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        assert_eq!((was, jobs), (version, 8));
    }
    assert_eq!(store.opened.epoch, "0123456789abcdef");

    let (filter, limit) = (JobFilter::default(), 50);
    let Loaded::JobList { jobs, .. } = store.load(Query::JobList { filter, limit }) else {
        panic!("jobs")
    };
    let found: Vec<_> = jobs
        .iter()
        .map(|row| {
            (
                row.job.0,
                row.session.as_str(),
                row.state,
                row.preview.as_str(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            (8, "waits", JobPhase::Queued, "eighth"),
            (7, "stuck", JobPhase::Held, "seventh"),
            (6, "stuck", JobPhase::Interrupted, "sixth"),
            (5, "s5", JobPhase::Running, "fifth"),
            (4, "main", JobPhase::Interrupted, "fourth"),
            (3, "main", JobPhase::Failed, "third"),
            (2, "main", JobPhase::Cancelled, "second"),
            (1, "main", JobPhase::Completed, "first"),
        ]
    );
    let orphans = &store.opened.orphans;
    let left: Vec<_> = orphans[0].jobs.iter().map(|left| left.row.job.0).collect();
    assert_eq!((orphans.len(), left), (1, vec![5, 7, 8]));
    assert_eq!(orphans[0].jobs[0].so_far.texts[0].text, "half a word");
    assert_eq!(orphans[0].sessions.len(), 3);

    let (after, session, jobs) = (0, None, None);
    let Loaded::Log { lines, .. } = store.load(Query::Log {
        after,
        session,
        jobs,
        first: JobId(0),
        texts: Vec::new(),
    }) else {
        panic!("log")
    };
    let seqs: Vec<u64> = lines.iter().map(|line: &LogLine| line.seq).collect();
    assert_eq!(seqs, (1..=15).collect::<Vec<u64>>());
    assert_eq!(lines[2].texts.len(), 2);
    let main = store.session("main");
    assert_eq!((main.native.as_deref(), main.turns), (Some("native-1"), 4));
    let Stored::Committed(known) = store.commit(vec![keyed("k", "one")]) else {
        panic!("stored")
    };
    assert!(matches!(known[0], Written::Duplicate { job: JobId(1), .. }));
    let (job, seq, _) = store.accept(new(Some("main")));
    assert_eq!((job, seq), (JobId(9), 16));
}

#[test]
fn log_room_is_made_by_daemons_only() {
    let dir = TempDir::new().unwrap();
    let log = beside(&dir.path().join(FILE), "-wal");
    let length = || std::fs::metadata(&log).map_or(0, |log| log.len());
    let mut store = bench(dir.path(), "a", Role::OneShot, dead);
    store.accept(new(None));
    let short = length();
    assert!(short < schema::SHORT_LOG, "{short}");
    store.close();
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    let begun = Instant::now();
    while length() < 1024 * 1024 {
        assert!(begun.elapsed() < PATIENCE, "{} bytes", length());
        std::thread::yield_now();
    }
    let job = store.accept(new(None)).0;
    assert!(matches!(store.job(job).state, JobState::Queued { .. }));
    store.close();
}
