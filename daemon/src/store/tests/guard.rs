//! A store whose files are taken away, replaced or cut while it is open.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;

/// The copies that were made.
fn rescued(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_copy = |path: &PathBuf| path.to_string_lossy().contains(".rescued-");
    paths.filter(is_copy).collect()
}

fn trouble(store: &mut Bench) -> String {
    loop {
        if let Event::StoreHealth { trouble: Some(why) } = store.event() {
            return why;
        }
    }
}

/// Does this to the file of a store with a running job, has it ended, and finds that in the copy.
fn displaced(harm: impl FnOnce(&Path)) {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(started("main"));
    harm(&dir.path().join(FILE));
    store.opened.store.look();
    let why = trouble(&mut store);
    assert!(why.contains("while agentd runs"), "{why}");
    let refused = store.command(Urgency::Waited, vec![keyed("k", "one")]);
    let end = store.command(Urgency::Waited, vec![finish(job, End::Completed)]);
    let mut answers = Vec::new();
    while answers.len() < 2 {
        if let Event::Stored { token, stored } = store.event() {
            answers.push((token, stored));
        }
    }
    let of = |wanted| answers.iter().find(|(token, _)| *token == wanted);
    let (_, stored) = of(refused).unwrap();
    assert!(
        matches!(
            stored,
            Stored::Failed {
                code: Code::StoreFailed,
                ..
            }
        ),
        "{stored:?}"
    );
    let (_, stored) = of(end).unwrap();
    assert!(matches!(stored, Stored::Committed(_)), "{stored:?}");
    store.close();
    let [copy] = &rescued(dir.path())[..] else {
        panic!("one copy")
    };
    let copy = Connection::open(copy).unwrap();
    let ended: i64 = copy
        .query_row(
            "SELECT count(*) FROM jobs WHERE state = 'completed'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(ended, 1);
}

#[test]
fn guard_tells_the_next_start_what_it_saw() {
    // The whole directory becomes an older one of itself, which fits together.
    let place = TempDir::new().unwrap();
    let (dir, older) = (place.path().join("state"), place.path().join("older"));
    let mut store = bench(&dir, "a", Role::Daemon, dead);
    store.accept(started("main"));
    store.close();
    fs::create_dir(&older).unwrap();
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, older.join(path.file_name().unwrap())).unwrap();
    }
    let mut store = bench(&dir, "b", Role::Daemon, dead);
    store.accept(new(Some("main")));
    fs::rename(&dir, place.path().join("away")).unwrap();
    fs::rename(&older, &dir).unwrap();
    store.opened.store.look();
    while !trouble(&mut store).contains("what it held is in") {
        store.opened.store.look();
    }
    store.close();
    let next = bench(&dir, "c", Role::Daemon, dead);
    let [told] = &next.opened.losses[..] else {
        panic!("{:?}", next.opened.losses)
    };
    assert!(told.contains("what it held is in"), "{told}");
}

#[test]
fn guard_keeps_what_a_removed_store_held() {
    displaced(|file| fs::remove_file(file).unwrap());
}

#[test]
fn guard_keeps_what_a_wiped_directory_held() {
    displaced(|file| fs::remove_dir_all(file.parent().unwrap()).unwrap());
}

#[test]
fn guard_keeps_what_a_replaced_store_held() {
    displaced(|file| {
        let other = file.with_extension("other");
        fs::copy(file, &other).unwrap();
        fs::rename(other, file).unwrap();
    });
}

#[test]
fn guard_tells_a_truncated_store() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.accept(started("main"));
    let file = fs::File::options()
        .write(true)
        .open(dir.path().join(FILE))
        .unwrap();
    let length = file.metadata().unwrap().len();
    assert!(length > 0);
    file.set_len(length - 1).unwrap();
    store.command(Urgency::Waited, vec![keyed("k", "one")]);
    let why = trouble(&mut store);
    assert!(why.contains("was cut off"), "{why}");
}

#[test]
fn guard_lets_a_returned_store_go_on() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.accept(started("main"));
    let (file, away) = (dir.path().join(FILE), dir.path().join("away"));
    fs::rename(&file, &away).unwrap();
    store.opened.store.look();
    trouble(&mut store);
    fs::rename(&away, &file).unwrap();
    store.command(Urgency::Waited, vec![keyed("k", "one")]);
    while store.event() != (Event::StoreHealth { trouble: None }) {}
    assert_eq!(store.accept(new(None)).0, JobId(2));
    fs::rename(&file, &away).unwrap();
    store.opened.store.look();
    while !trouble(&mut store).contains("what it held is in") {}
    let [copy] = &rescued(dir.path())[..] else {
        panic!("one copy")
    };
    let copy = Connection::open(copy).unwrap();
    let jobs: i64 = copy
        .query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))
        .unwrap();
    assert_eq!(jobs, 2, "the second copy has what was written in between");
}
