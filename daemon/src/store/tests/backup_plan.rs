//! Copies that are made by themselves.

use std::time::SystemTime;

use agentd_core::store::BackupPlan;

use super::*;

const DAY_S: u64 = 24 * 60 * 60;

fn planned(dir: &Path, keep: u32) -> Query {
    let plan = BackupPlan {
        every_s: DAY_S,
        keep,
    };
    Query::Backup {
        path: Some(dir.to_str().unwrap().to_owned()),
        plan: Some(plan),
    }
}

fn made(store: &mut Bench, query: Query) -> PathBuf {
    match store.load(query) {
        Loaded::Backup { path, .. } => path.into(),
        other => panic!("{other:?}"),
    }
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

/// As if it had been made so many days ago.
fn age(copy: &Path, days: u64) {
    let made = SystemTime::now() - Duration::from_secs(days * DAY_S);
    let file = std::fs::File::options().write(true).open(copy).unwrap();
    file.set_modified(made).unwrap();
}

/// A daemon's store that looks every few milliseconds whether something is due.
fn looking(dir: &Path, instance: &str) -> Bench {
    let (answer, answers) = answering();
    let keep = Keep {
        age: Duration::from_secs(DAY_S),
        bytes: 1 << 30,
        every: Duration::from_millis(5),
    };
    let opener = Opener {
        keep: Some(keep),
        ..daemon(instance)
    };
    let faults = Faults::of_writer(Box::new(|_, _| Ok(())));
    let opened = open_with(dir, opener, Box::new(dead), answer, faults).unwrap();
    Bench {
        opened,
        answers,
        next: 1,
    }
}

#[test]
fn backups_planned_keep_the_newest() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let to = dir.path().join("copies");
    let first = made(&mut store, planned(&to, 2));
    std::fs::write(to.join("agentd-mine.db"), "").unwrap();
    let second = made(&mut store, planned(&to, 2));
    let third = made(&mut store, planned(&to, 2));
    let mut kept = [second, third, to.join("agentd-mine.db")];
    kept.sort();
    assert_eq!(names(&to), kept);
    assert!(!first.exists());
}

/// A kill amid a copy leaves the work on it under another name.
#[test]
fn backups_cut_off_push_out_no_whole_one() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let to = dir.path().join("copies");
    let whole = made(&mut store, planned(&to, 2));
    let left = to.join("agentd-20991231T000000.000Z.db.partial");
    let journal = to.join("agentd-20991231T000000.000Z.db.partial-journal");
    let at_work = to.join("agentd-20991231T000001.000Z.db.partial");
    let mine = to.join("film.partial");
    for file in [&left, &journal, &at_work, &mine] {
        std::fs::write(file, "half").unwrap();
    }
    let held = std::fs::File::open(&at_work).unwrap();
    held.lock().unwrap();
    let second = made(&mut store, planned(&to, 2));
    let mut kept = [whole, second, at_work, mine];
    kept.sort();
    assert_eq!(names(&to), kept);
}

/// Was any made just now?
fn is_fresh(copies: &[PathBuf]) -> bool {
    let age = |copy: &PathBuf| copy.metadata().ok()?.modified().ok()?.elapsed().ok();
    let copies = copies
        .iter()
        .filter(|copy| copy.extension().is_some_and(|end| end == "db"));
    copies.filter_map(age).any(|age| age.as_secs() < DAY_S)
}

/// What is told of the copies, the last as it is now.
fn told_lacks(store: &Bench) -> Option<String> {
    loop {
        if let Event::BackupsLack { lacks } = store.event() {
            return lacks;
        }
    }
}

#[test]
fn backups_without_timmy_push_out_no_whole_one() {
    let dir = TempDir::new().unwrap();
    let to = dir.path().join("copies");
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let whole = made(&mut store, planned(&to, 2));
    let whole2 = made(&mut store, planned(&to, 2));
    store.close();
    std::fs::create_dir(dir.path().join("timmy")).unwrap();
    let timmy = dir.path().join("timmy/timmy.db");
    // Whoever opens one of these waits for another that writes.
    nix::unistd::mkfifo(&timmy, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let lacking = || {
        let names = names(&to).into_iter();
        names.filter(|name| name.to_string_lossy().ends_with(".without-timmy.db"))
    };
    for round in 1..=3 {
        names(&to).iter().for_each(|copy| age(copy, 2));
        let store = looking(dir.path(), &format!("b{round}"));
        if round == 1 {
            let told = told_lacks(&store).unwrap();
            let says = ["timmy's sessions", "is no file"];
            assert!(says.iter().all(|words| told.contains(words)), "{told}");
        }
        let until = Instant::now() + PATIENCE;
        while lacking().count() < round.min(2) || !is_fresh(&names(&to)) {
            assert!(Instant::now() < until, "{:?}", names(&to));
            std::thread::park_timeout(Duration::from_millis(5));
        }
        store.close();
    }
    assert!(whole.exists() && whole2.exists(), "{:?}", names(&to));
    assert_eq!(lacking().count(), 2);
    assert!(
        backups_lack(dir.path())
            .unwrap()
            .contains("without timmy's sessions")
    );
    std::fs::remove_file(&timmy).unwrap();
    let mut store = bench(dir.path(), "c", Role::Daemon, dead);
    made(&mut store, planned(&to, 2));
    made(&mut store, planned(&to, 2));
    store.close();
    assert_eq!((names(&to).len(), lacking().count()), (2, 0));
    assert_eq!(backups_lack(dir.path()), None);
}

#[test]
fn backups_planned_outlive_the_daemon() {
    let dir = TempDir::new().unwrap();
    let to = dir.path().join("copies");
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let first = made(&mut store, planned(&to, 7));
    store.close();
    age(&first, 2);
    let store = looking(dir.path(), "b");
    let until = Instant::now() + PATIENCE;
    let second = loop {
        let mut others = names(&to);
        others.retain(|name| *name != first);
        // It has that name when it is done.
        others.retain(|name| name.extension().is_some_and(|end| end == "db"));
        if let [other] = &others[..] {
            break other.clone();
        }
        assert!(Instant::now() < until, "{:?}", names(&to));
        std::thread::park_timeout(Duration::from_millis(5));
    };
    store.close();
    assert_eq!(names(&to).len(), 2, "and no more within the day");
    let copy = Connection::open(&second).unwrap();
    copy.query_row("SELECT count(*) FROM jobs", [], |_| Ok(()))
        .unwrap();
}

#[test]
fn backups_planned_end_when_told() {
    let dir = TempDir::new().unwrap();
    let to = dir.path().join("copies");
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    made(&mut store, planned(&to, 7));
    let plan = BackupPlan {
        every_s: 0,
        keep: 7,
    };
    let path = Some(to.to_str().unwrap().to_owned());
    let never = Query::Backup {
        path,
        plan: Some(plan),
    };
    let none = made(&mut store, never);
    assert_eq!((none, names(&to).len()), (PathBuf::new(), 1));
    store.close();
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    let plans = "SELECT count(*) FROM meta WHERE key = 'backup_plan'";
    let plans: i64 = db.query_row(plans, [], |row| row.get(0)).unwrap();
    assert_eq!(plans, 0);
}
