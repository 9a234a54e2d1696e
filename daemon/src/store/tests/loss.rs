//! What a start finds gone, and what a power cut leaves, which is no loss.

use super::*;

/// What a power cut leaves of a daemon with so many jobs, each a commit of its own: what is synced.
fn killed(jobs: usize) -> TempDir {
    image(jobs, &["", "-wal", ".epoch"])
}

/// What a kill leaves of one: everything.
fn killed_alone(jobs: usize) -> TempDir {
    image(jobs, &["", "-wal", ".epoch", ".mark"])
}

fn image(jobs: usize, files: &[&str]) -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "killed", Role::Daemon, dead);
    for _ in 0..jobs {
        store.accept(new(Some("main")));
    }
    let image = TempDir::new().unwrap();
    for end in files {
        let name = beside(Path::new(FILE), end);
        std::fs::copy(dir.path().join(&name), image.path().join(&name)).unwrap();
    }
    image
}

fn log(dir: &TempDir) -> PathBuf {
    beside(&dir.path().join(FILE), "-wal")
}

fn reopened(dir: &TempDir) -> Opened {
    bench(dir.path(), "next", Role::Daemon, dead).opened
}

fn jobs(opened: &Opened) -> usize {
    opened.orphans.iter().map(|left| left.jobs.len()).sum()
}

/// How much of a log is in use: room that was made ahead is of zeros.
fn used(log: &[u8]) -> usize {
    log.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

/// Changes a log at this place of so many bytes.
fn flip(dir: &TempDir, place: impl FnOnce(usize) -> usize) -> Vec<u8> {
    let mut bytes = std::fs::read(log(dir)).unwrap();
    let place = place(used(&bytes));
    bytes[place] ^= 1;
    std::fs::write(log(dir), &bytes).unwrap();
    bytes
}

#[test]
fn loss_in_the_log_is_told_and_copied() {
    // In its header, in the first frame's salt, in its middle.
    for place in [
        |_| 20,
        |_| 32 + 9,
        |size: usize| size / 2,
        |size: usize| size - 20 * 4120,
    ] {
        let image = killed(40);
        let damaged = flip(&image, place);
        let opened = reopened(&image);
        assert!(jobs(&opened) < 40);
        let Some(Loss::Cut { commits, copy }) = &opened.loss else {
            panic!("{:?} with {} jobs", opened.loss, jobs(&opened))
        };
        assert!((2..60).contains(commits), "{commits}");
        assert!(std::fs::read(copy).unwrap() == damaged);
        drop(opened);
        let again = reopened(&image);
        assert_eq!((again.loss, again.losses.len()), (None, 1), "found once");
    }
}

#[test]
fn loss_is_not_what_a_power_cut_leaves() {
    let image = killed(40);
    assert_eq!(reopened(&image).loss, None);
    // A commit that was on its way.
    for torn in [1, 4096, 4120, 5000] {
        let image = killed(40);
        let bytes = std::fs::read(log(&image)).unwrap();
        std::fs::write(log(&image), &bytes[..used(&bytes) - torn]).unwrap();
        let opened = reopened(&image);
        assert_eq!(opened.loss, None, "{torn}");
        assert!(jobs(&opened) >= 39, "{torn}");
    }
    let image = killed(40);
    flip(&image, |size| size - 10);
    let opened = reopened(&image);
    assert_eq!((opened.loss.as_ref(), jobs(&opened)), (None, 39));
}

#[test]
fn loss_is_no_hole_in_a_log() {
    let sparse = |log: &Path| {
        let file = std::fs::File::options().write(true).open(log).unwrap();
        file.set_len(900 << 30).unwrap();
    };
    let begun = Instant::now();
    let image = killed(3);
    sparse(&log(&image));
    let opened = reopened(&image);
    assert_eq!((opened.loss.as_ref(), jobs(&opened)), (None, 3));
    drop(opened);
    // Nothing but a hole: the log was taken away.
    let image = killed_alone(3);
    std::fs::write(log(&image), "").unwrap();
    sparse(&log(&image));
    assert!(reopened(&image).loss.is_some());
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[test]
fn loss_is_no_frame_of_an_earlier_round() {
    let image = killed(40);
    let db = Connection::open(image.path().join(FILE)).unwrap();
    db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))
        .unwrap();
    db.execute("UPDATE jobs SET attempt = 0 WHERE job = 1", [])
        .unwrap();
    let again = TempDir::new().unwrap();
    for end in ["", "-wal"] {
        let name = beside(Path::new(FILE), end);
        std::fs::copy(image.path().join(&name), again.path().join(&name)).unwrap();
    }
    assert!(std::fs::metadata(log(&again)).unwrap().len() > 40 * 4096);
    let opened = reopened(&again);
    assert_eq!((opened.loss.as_ref(), jobs(&opened)), (None, 40));
}

#[test]
fn loss_of_the_log_is_told() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 6] = [
        ("removed", |log| std::fs::remove_file(log).unwrap()),
        ("emptied", |log| std::fs::write(log, "").unwrap()),
        ("cut", |log| {
            let file = std::fs::File::options().write(true).open(log).unwrap();
            file.set_len(32).unwrap();
        }),
        ("zeros", |log| std::fs::write(log, [0; 100_000]).unwrap()),
        ("garbage", |log| std::fs::write(log, [7; 100_000]).unwrap()),
        ("without its header", |log| {
            let mut bytes = std::fs::read(log).unwrap();
            bytes[..32].fill(0);
            std::fs::write(log, bytes).unwrap();
        }),
    ];
    assert_eq!(reopened(&killed_alone(7)).loss, None);
    for (harm, harms) in harms {
        let image = killed_alone(7);
        harms(&log(&image));
        let opened = reopened(&image);
        assert!(jobs(&opened) < 7, "{harm}");
        assert!(opened.loss.is_some(), "{harm}: {} jobs", jobs(&opened));
        drop(opened);
        let again = reopened(&image);
        assert_eq!((again.loss, again.losses.len()), (None, 1), "{harm}");
    }
}

#[test]
fn loss_by_an_older_copy_is_told() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join(FILE);
    let with_jobs = |instance| {
        let mut store = bench(dir.path(), instance, Role::Daemon, dead);
        for _ in 0..5 {
            store.accept(new(Some("main")));
        }
        store.close();
    };
    with_jobs("a");
    let older = std::fs::read(&file).unwrap();
    with_jobs("b");
    for end in ["-wal", "-shm"] {
        let _gone = std::fs::remove_file(beside(&file, end));
    }
    std::fs::write(&file, older).unwrap();
    // Whoever opens it first says so.
    let shot = bench(dir.path(), "shot", Role::OneShot, dead);
    assert!(
        matches!(shot.opened.loss, Some(Loss::Older { has: 5, had: 10 })),
        "{:?}",
        shot.opened.loss
    );
    shot.close();
    let next = reopened(&dir);
    assert_eq!((next.loss, next.losses.len()), (None, 1));
}

#[test]
fn loss_of_the_file_beside_its_log() {
    let image = killed(3);
    let kept = std::fs::read(log(&image)).unwrap();
    std::fs::write(image.path().join(FILE), "").unwrap();
    let opened = reopened(&image);
    assert_eq!(jobs(&opened), 0);
    let aside = beside(&opened.moved(), "-wal");
    assert!(std::fs::read(aside).unwrap() == kept, "the log is kept");
}

#[test]
fn loss_of_all_files_is_told_once() {
    let dir = TempDir::new().unwrap();
    let first = bench(dir.path(), "a", Role::Daemon, dead);
    assert_eq!(first.opened.loss, None, "nothing was here");
    let epoch = first.opened.epoch.clone();
    first.close();
    std::fs::remove_file(dir.path().join(FILE)).unwrap();
    // Who begins anew need not be a daemon.
    bench(dir.path(), "shot", Role::OneShot, dead).close();
    let second = bench(dir.path(), "b", Role::Daemon, dead);
    let rescued = None;
    assert_eq!(second.opened.loss, Some(Loss::Gone { epoch, rescued }));
    second.close();
    let third = bench(dir.path(), "c", Role::Daemon, dead);
    assert_eq!(third.opened.loss, None);
    third.close();
}

#[test]
fn losses_are_told_until_accepted() {
    let dir = TempDir::new().unwrap();
    bench(dir.path(), "a", Role::Daemon, dead).close();
    std::fs::remove_file(dir.path().join(FILE)).unwrap();
    let told = |name| {
        let store = bench(dir.path(), name, Role::Daemon, dead);
        let losses = store.opened.losses.clone();
        store.close();
        losses
    };
    let first = told("b");
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(told("c"), first, "at every start");
    // Damage of another kind is told beside it.
    std::fs::write(dir.path().join(FILE), vec![7; 9000]).unwrap();
    let both = told("d");
    assert_eq!((both.len(), &both[..1]), (2, &first[..]), "{both:?}");
    let open = bench(dir.path(), "e", Role::Daemon, dead);
    assert_eq!(accept_losses(dir.path()).unwrap(), both);
    open.opened.store.look();
    let losses = Vec::new();
    while open.event()
        != (Event::StoreLosses {
            losses: losses.clone(),
        })
    {}
    open.close();
    assert_eq!(told("f"), losses);
}

#[test]
fn losses_taken_away_are_told_again() {
    let dir = TempDir::new().unwrap();
    bench(dir.path(), "a", Role::Daemon, dead).close();
    std::fs::remove_file(dir.path().join(FILE)).unwrap();
    let first = bench(dir.path(), "b", Role::Daemon, dead);
    let told = first.opened.losses.clone();
    assert_eq!(told.len(), 1);
    let list = dir.path().join("agentd.db.losses");
    // While it runs, too.
    std::fs::remove_file(&list).unwrap();
    first.opened.store.look();
    first.close();
    assert_eq!(losses(dir.path()).unwrap(), told);
    std::fs::write(&list, "").unwrap();
    let next = bench(dir.path(), "c", Role::Daemon, dead);
    assert_eq!(next.opened.losses, told, "it was cut");
    next.close();
    std::fs::remove_file(&list).unwrap();
    let next = bench(dir.path(), "d", Role::Daemon, dead);
    assert_eq!(next.opened.losses, told, "it was taken away");
    next.close();
    // Nobody serves when it is accepted.
    assert_eq!(accept_losses(dir.path()).unwrap(), told);
    assert!(!list.exists());
    // Somebody serves, and nothing is written back from the log yet.
    std::fs::remove_file(dir.path().join(FILE)).unwrap();
    let next = bench(dir.path(), "log", Role::Daemon, dead);
    assert_eq!(next.opened.losses.len(), 1);
    accept_losses(dir.path()).unwrap();
    next.opened.store.look();
    next.close();
    let next = bench(dir.path(), "e", Role::Daemon, dead);
    assert_eq!(next.opened.losses, [""; 0]);
    next.close();
}

#[test]
fn losses_name_the_copy_that_was_rescued() {
    // With the note that it was here, and without: all was taken away.
    for all in [false, true] {
        let dir = TempDir::new().unwrap();
        let mut store = bench(dir.path(), "a", Role::Daemon, dead);
        store.accept(new(None));
        let epoch = store.opened.epoch.clone();
        for end in ["", "-wal", "-shm"] {
            std::fs::remove_file(dir.path().join(beside(Path::new(FILE), end))).unwrap();
        }
        if all {
            std::fs::remove_dir_all(dir.path()).unwrap();
        }
        store.opened.store.look();
        store.close();
        let next = bench(dir.path(), "b", Role::Daemon, dead);
        let Some(Loss::Gone {
            epoch: gone,
            rescued: Some(copy),
        }) = &next.opened.loss
        else {
            panic!("{:?}", next.opened.loss)
        };
        assert_eq!(*gone, epoch);
        assert!(copy.is_file(), "{copy:?}");
        assert!(next.opened.losses[0].contains(copy.to_str().unwrap()));
        next.close();
    }
}
