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

/// A power cut amid a copy leaves the empty file that kept its name, and the work beside it.
#[test]
fn backups_cut_off_push_out_no_whole_one() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let to = dir.path().join("copies");
    let whole = made(&mut store, planned(&to, 2));
    let cut_off = to.join("agentd-20991231T000000.000Z.db");
    let partial = to.join("agentd-20991231T000000.000Z.db.partial");
    let fresh = to.join("agentd-20991231T000001.000Z.db");
    for (file, content) in [(&cut_off, ""), (&partial, "half"), (&fresh, "")] {
        std::fs::write(file, content).unwrap();
    }
    age(&cut_off, 1);
    age(&partial, 1);
    let second = made(&mut store, planned(&to, 2));
    // Somebody may be at work on what is fresh.
    let mut kept = [whole, second, fresh];
    kept.sort();
    assert_eq!(names(&to), kept);
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
        // It has its whole name when it is done.
        if let [other] = &others[..]
            && other.extension().is_some_and(|end| end == "db")
            && other.metadata().unwrap().len() > 0
        {
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
