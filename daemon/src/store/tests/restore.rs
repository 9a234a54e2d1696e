//! A backup in the place of the store.

use super::*;
use crate::store::backup;

/// A store with a job that ended, one that runs and one that waits; and a backup of it.
fn backed_up(dir: &TempDir) -> PathBuf {
    let mut store = bench(dir.path(), "first", Role::Daemon, dead);
    let (ended, ..) = store.accept(started("main"));
    store.commit(vec![finish(ended, End::Completed)]);
    store.accept(started("busy"));
    store.accept(new(Some("busy")));
    store.close();
    let copy = dir.path().join("copy.db");
    let conn = Connection::open(dir.path().join(FILE)).unwrap();
    backup::write_same(&conn, &copy).unwrap();
    copy
}

#[test]
fn restore_runs_nothing_by_itself() {
    let dir = TempDir::new().unwrap();
    let copy = backed_up(&dir);
    let restored = restore(dir.path(), &copy).unwrap();
    assert_eq!(
        (restored.jobs, restored.held, restored.interrupted),
        (3, 1, 1)
    );
    let next = bench(dir.path(), "next", Role::Daemon, dead);
    assert_eq!(next.opened.losses, Vec::<String>::new());
    let left: Vec<_> = next
        .opened
        .orphans
        .iter()
        .flat_map(|left| &left.jobs)
        .collect();
    let states: Vec<&JobState> = left.iter().map(|left| &left.row.state).collect();
    assert!(
        matches!(
            states[..],
            [
                JobState::Running {
                    attempt: agentd_core::limits::ATTEMPTS
                },
                JobState::Queued {
                    held: true,
                    start: None,
                    ..
                },
            ]
        ),
        "{states:?}"
    );
}

#[test]
fn restore_is_another_history_and_keeps_the_old() {
    let dir = TempDir::new().unwrap();
    let copy = backed_up(&dir);
    let mut store = bench(dir.path(), "second", Role::Daemon, dead);
    store.accept(new(Some("later")));
    let epoch = store.opened.epoch.clone();
    store.close();
    let aside = restore(dir.path(), &copy).unwrap().aside.unwrap();
    let count = |path: &Path| {
        let conn = Connection::open(path).unwrap();
        let count = conn.query_row("SELECT count(*) FROM jobs", [], |row| row.get::<_, i64>(0));
        count.unwrap()
    };
    assert_eq!((count(&aside), count(&dir.path().join(FILE))), (4, 3));
    let next = bench(dir.path(), "next", Role::Daemon, dead);
    assert_ne!(next.opened.epoch, epoch);
    next.close();
    assert_eq!(inspect(dir.path()).unwrap().kept, [aside]);
}

#[test]
fn restore_ends_what_is_told_of_losses() {
    let dir = TempDir::new().unwrap();
    let copy = backed_up(&dir);
    std::fs::write(dir.path().join(FILE), vec![7; 9000]).unwrap();
    let broken = bench(dir.path(), "second", Role::Daemon, dead);
    assert_eq!(broken.opened.losses.len(), 1);
    broken.close();
    restore(dir.path(), &copy).unwrap();
    let next = bench(dir.path(), "next", Role::Daemon, dead);
    assert_eq!(
        (next.opened.loss.as_ref(), next.opened.losses.len()),
        (None, 0)
    );
}

#[test]
fn restore_refuses_what_is_no_backup() {
    let dir = TempDir::new().unwrap();
    let copy = backed_up(&dir);
    let store = std::fs::read(dir.path().join(FILE)).unwrap();
    let other = dir.path().join("other.db");
    let refused = |bytes: &[u8], why: &str| {
        std::fs::write(&other, bytes).unwrap();
        let told = restore(dir.path(), &other).unwrap_err();
        assert!(told.contains(why), "{told}");
    };
    refused(b"", "it is empty");
    refused(b"no database at all, but some text", "not a database");
    let whole = std::fs::read(&copy).unwrap();
    let mut broken = whole.clone();
    broken[4096 * 2..4096 * 3].fill(0xAB);
    refused(&broken, "damaged");
    refused(&whole[..whole.len() / 2], "");
    let foreign = Connection::open(dir.path().join("foreign.db")).unwrap();
    foreign.execute("CREATE TABLE jobs (a)", []).unwrap();
    drop(foreign);
    let foreign = std::fs::read(dir.path().join("foreign.db")).unwrap();
    refused(&foreign, "another program");
    let newer = Connection::open(&copy).unwrap();
    newer.pragma_update(None, "user_version", 4000).unwrap();
    drop(newer);
    refused(&std::fs::read(&copy).unwrap(), "of form 4000");
    let missing = restore(dir.path(), &dir.path().join("missing.db")).unwrap_err();
    assert!(missing.contains("No such file"), "{missing}");
    assert!(
        std::fs::read(dir.path().join(FILE)).unwrap() == store,
        "it stays as it was"
    );
}

/// timmy's file with one session, in words of its own; 0 is the version of its tables.
fn timmy(file: &Path) -> Connection {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let conn = Connection::open(file).unwrap();
    conn.execute_batch(
        "CREATE TABLE sessions (id INTEGER PRIMARY KEY, native TEXT, name TEXT, used_at INTEGER);
         CREATE TABLE messages (session INTEGER, at INTEGER, message TEXT);
         INSERT INTO sessions VALUES (1, 'n', 'main', 5);
         PRAGMA application_id = 0x74696d6d",
    )
    .unwrap();
    conn
}

/// The files of the directory, but what SQLite has beside its own.
fn seen(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(dir).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.is_file() && !path.ends_with("agentd.db-shm"));
    // Nor an empty log.
    let files = files.filter(|path| path.metadata().unwrap().len() > 0);
    let mut files: Vec<_> = files
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn restore_is_all_or_nothing_with_timmy() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("timmy/timmy.db");
    drop(timmy(&file));
    let mut store = bench(dir.path(), "first", Role::Daemon, dead);
    store.accept(new(Some("s")));
    let copy = dir.path().join("copy.db");
    let path = Some(copy.to_str().unwrap().to_owned());
    let Loaded::Backup { .. } = store.load(Query::Backup { path, plan: None }) else {
        panic!("no backup")
    };
    store.close();
    let before = seen(dir.path());
    let pipe = |file: &Path| nix::unistd::mkfifo(file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::remove_file(&file).unwrap();
    pipe(&file);
    let told = restore(dir.path(), &copy).unwrap_err();
    assert!(told.contains("is no file"), "{told}");
    assert!(seen(dir.path()) == before, "it stays as it was");
    // Whatever fails behind the store's change puts that back: here a mark that can't be removed.
    std::fs::remove_file(&file).unwrap();
    let mark = dir.path().join("agentd.db.mark");
    std::fs::remove_file(&mark).unwrap();
    std::fs::create_dir(&mark).unwrap();
    let told = restore(dir.path(), &copy).unwrap_err();
    assert!(told.contains("can't be put there"), "{told}");
    assert!(!file.exists(), "timmy has none of it");
    std::fs::remove_dir(&mark).unwrap();
    assert_eq!(seen(dir.path()).len(), before.len() - 1);
    assert_eq!(restore(dir.path(), &copy).unwrap().remembered, 1);
}

#[test]
fn restore_leaves_the_plan_of_another_machine() {
    let dir = TempDir::new().unwrap();
    let to = dir.path().join("my copies");
    let mut store = bench(dir.path(), "first", Role::Daemon, dead);
    let plan = |keep| agentd_core::store::BackupPlan {
        every_s: 86_400,
        keep,
    };
    let mut planned = |keep| {
        let path = Some(to.to_str().unwrap().to_owned());
        let plan = Some(plan(keep));
        match store.load(Query::Backup { path, plan }) {
            Loaded::Backup { path, .. } => PathBuf::from(path),
            other => panic!("{other:?}"),
        }
    };
    let copy = planned(7);
    planned(3);
    store.close();
    // Here its own plan stays.
    assert_eq!(restore(dir.path(), &copy).unwrap().plan, None);
    let command = format!("agentctl backup --every 1day --keep 3 '{}'", to.display());
    let plan_of = |dir: &Path| {
        let plan = crate::store::backup_plan::Planned::of(&dir.join(FILE));
        plan.map(|plan| plan.command())
    };
    assert_eq!(plan_of(dir.path()), Some(command));
    let other = TempDir::new().unwrap();
    let left = restore(other.path(), &copy).unwrap().plan.unwrap();
    assert!(left.contains("--keep 7"), "{left}");
    assert_eq!(plan_of(other.path()), None);
}
