//! What the store does when the disk says no.

use super::*;

#[test]
fn full_disk_refuses_new_jobs_and_heals() {
    let dir = TempDir::new().unwrap();
    let full = Arc::new(Mutex::new(false));
    let seen = Arc::clone(&full);
    let fault: Fault = Box::new(move |moment, conn| {
        if moment == Moment::BeforeBegin {
            let pages = if *seen.lock().unwrap() { 1 } else { 1_000_000 };
            conn.pragma_update(None, "max_page_count", pages)?;
        }
        Ok(())
    });
    let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
    let (job, ..) = store.accept(started("main"));
    let (other, ..) = store.accept(new(Some("other")));
    *full.lock().unwrap() = true;
    let large = NewJob {
        request: "x".repeat(100_000),
        ..new(None)
    };
    let refused = store.command(Urgency::Waited, vec![Write::Accept(Arc::new(large))]);
    assert!(matches!(
        store.event(),
        Event::StoreHealth { trouble: Some(_) }
    ));
    let Event::Stored { token, stored } = store.event() else {
        panic!("stored")
    };
    assert_eq!(token, refused);
    assert!(
        matches!(
            stored,
            Stored::Failed {
                code: Code::DiskFull,
                ..
            }
        ),
        "{stored:?}"
    );

    let text = "y".repeat(100_000);
    let kept = store.command(Urgency::Waited, vec![piece(job, 0, &text)]);
    let at_once = store.command(Urgency::Waited, vec![Write::Accept(Arc::new(new(None)))]);
    assert!(
        matches!(store.event(), Event::Stored { token, stored: Stored::Failed { .. } } if token == at_once)
    );
    assert!(
        matches!(store.job(other).state, JobState::Queued { .. }),
        "reading goes on"
    );
    *full.lock().unwrap() = false;
    assert_eq!(store.event(), Event::StoreHealth { trouble: None });
    assert!(
        matches!(store.event(), Event::Stored { token, stored: Stored::Committed(_) } if token == kept)
    );
    store.accept(new(None));
}

#[test]
fn full_disk_is_probed_until_there_is_room() {
    let dir = TempDir::new().unwrap();
    let (switch, fault) = switched();
    let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
    *switch.lock().unwrap() = Some((Moment::BeforeCommit, ffi::SQLITE_FULL));
    store.command(Urgency::Waited, vec![Write::Accept(Arc::new(new(None)))]);
    assert!(matches!(
        store.event(),
        Event::StoreHealth { trouble: Some(_) }
    ));
    assert!(matches!(
        store.event(),
        Event::Stored {
            stored: Stored::Failed { .. },
            ..
        }
    ));
    *switch.lock().unwrap() = None;
    assert_eq!(store.event(), Event::StoreHealth { trouble: None });
    assert_eq!(store.accept(new(None)).0, JobId(1), "nothing was written");
}

#[test]
fn commit_after_an_io_error_asks_the_file() {
    for (moment, there) in [(Moment::BeforeCommit, false), (Moment::AfterCommit, true)] {
        let dir = TempDir::new().unwrap();
        let (switch, fault) = switched();
        let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
        let (job, ..) = store.accept(started("main"));
        *switch.lock().unwrap() = Some((moment, ffi::SQLITE_IOERR_FSYNC));
        let end = store.command(Urgency::Lazy, vec![finish(job, End::Completed)]);
        let asked = store.command(Urgency::Waited, vec![keyed("k", "one")]);
        assert!(matches!(
            store.event(),
            Event::StoreHealth { trouble: Some(_) }
        ));
        *switch.lock().unwrap() = None;
        let mut answers = Vec::new();
        while answers.len() < 2 {
            if let Event::Stored { token, stored } = store.event() {
                answers.push((token, matches!(stored, Stored::Committed(_))));
            }
        }
        answers.sort();
        assert_eq!(answers, [(end, true), (asked, there)], "{moment:?}");
        assert!(matches!(store.job(job).state, JobState::Finished { .. }));
        store.close();
        let db = Connection::open(dir.path().join(FILE)).unwrap();
        let jobs: i64 = db
            .query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))
            .unwrap();
        assert_eq!(jobs, 1 + i64::from(there), "{moment:?}");
    }
}

#[test]
fn commit_in_doubt_waits_and_refuses_newcomers() {
    let dir = TempDir::new().unwrap();
    let (switch, mut fault) = switched();
    let seen = Arc::clone(&switch);
    let both: Fault = Box::new(move |moment, conn| {
        let told = fault(moment, conn);
        if told.is_err() {
            // From now on the file can't even be opened again.
            *seen.lock().unwrap() = Some((Moment::BeforeBegin, ffi::SQLITE_IOERR_READ));
        }
        told
    });
    let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, both);
    store.accept(new(None));
    *switch.lock().unwrap() = Some((Moment::AfterCommit, ffi::SQLITE_IOERR_FSYNC));
    let asked = store.command(Urgency::Waited, vec![keyed("k", "one")]);
    assert!(matches!(
        store.event(),
        Event::StoreHealth { trouble: Some(_) }
    ));
    let newcomer = store.command(Urgency::Waited, vec![keyed("l", "one")]);
    assert!(
        matches!(store.event(), Event::Stored { token, stored: Stored::Failed { .. } } if token == newcomer)
    );
    *switch.lock().unwrap() = None;
    assert_eq!(store.event(), Event::StoreHealth { trouble: None });
    assert!(
        matches!(store.event(), Event::Stored { token, stored: Stored::Committed(_) } if token == asked)
    );
}

#[test]
fn a_takeover_in_doubt_is_not_done_twice() {
    let dir = TempDir::new().unwrap();
    let mut gone = bench(dir.path(), "gone", Role::Daemon, dead);
    gone.accept(started("main"));
    gone.close();
    let (switch, fault) = switched();
    let store = bench_with(dir.path(), "shot", Role::OneShot, dead, fault);
    *switch.lock().unwrap() = Some((Moment::AfterCommit, ffi::SQLITE_IOERR_FSYNC));
    let instance = "gone".to_owned();
    let command = StoreCommand::Takeover { instance };
    store.opened.store.submit(command).unwrap();
    loop {
        if let Event::Recovered(recovered) = store.event() {
            assert_eq!(recovered.jobs.len(), 1);
            break;
        }
    }
}

#[test]
fn session_in_doubt_is_not_called_refused() {
    for moment in [Moment::BeforeCommit, Moment::AfterCommit] {
        let dir = TempDir::new().unwrap();
        let (switch, fault) = switched();
        let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
        let open = Write::Open(Box::new(agentd_core::store::NewSession {
            name: Some("made".to_owned()),
            agent: "one".to_owned(),
            cwd: "/".to_owned(),
            real_cwd: None,
            toolsets: None,
            system: None,
            mcp_servers: agentd_core::mcp::McpServers::default(),
            fork: None,
            at: 1,
        }));
        let close = Write::Close {
            session: "made".to_owned(),
        };
        for (write, there) in [(open, 1), (close, 0)] {
            *switch.lock().unwrap() = Some((moment, ffi::SQLITE_IOERR_FSYNC));
            let asked = store.command(Urgency::Waited, vec![write.clone()]);
            assert!(matches!(
                store.event(),
                Event::StoreHealth { trouble: Some(_) }
            ));
            *switch.lock().unwrap() = None;
            let committed = loop {
                if let Event::Stored { token, stored } = store.event() {
                    assert_eq!(token, asked);
                    break matches!(stored, Stored::Committed(_));
                }
            };
            assert_eq!(committed, moment == Moment::AfterCommit);
            if !committed {
                while store.event() != (Event::StoreHealth { trouble: None }) {}
                assert!(matches!(store.commit(vec![write]), Stored::Committed(_)));
            }
            let names = vec!["made".to_owned()];
            let Loaded::Sessions(rows) = store.load(Query::Sessions { names }) else {
                panic!("sessions")
            };
            assert_eq!(rows.len(), there, "{moment:?}");
        }
    }
}

#[test]
fn disk_faults_refuse_new_work_read_and_heal() {
    for (moment, what, expected) in [
        (Moment::BeforeBegin, ffi::SQLITE_READONLY, Code::StoreFailed),
        (Moment::BeforeBegin, ffi::SQLITE_CANTOPEN, Code::StoreFailed),
        (Moment::BeforeBegin, ffi::SQLITE_FULL, Code::DiskFull),
        (Moment::BeforeCommit, ffi::SQLITE_FULL, Code::DiskFull),
        (
            Moment::BeforeCommit,
            ffi::SQLITE_IOERR_WRITE,
            Code::StoreFailed,
        ),
        (
            Moment::BeforeCommit,
            ffi::SQLITE_IOERR_FSYNC,
            Code::StoreFailed,
        ),
    ] {
        let dir = TempDir::new().unwrap();
        let (switch, fault) = switched();
        let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
        let (known, ..) = store.accept(new(Some("main")));
        *switch.lock().unwrap() = Some((moment, what));
        let asked = store.command(Urgency::Waited, vec![keyed("k", "one")]);
        let told = store.event();
        assert!(
            matches!(told, Event::StoreHealth { trouble: Some(_) }),
            "{what}: {told:?}"
        );
        // The trouble may get another name when more is known.
        let (token, stored) = loop {
            if let Event::Stored { token, stored } = store.event() {
                break (token, stored);
            }
        };
        assert_eq!(token, asked);
        assert!(
            matches!(&stored, Stored::Failed { code, why } if *code == expected && !why.is_empty()),
            "{what}: {stored:?}"
        );
        assert!(matches!(store.job(known).state, JobState::Queued { .. }));
        *switch.lock().unwrap() = None;
        assert_eq!(
            store.event(),
            Event::StoreHealth { trouble: None },
            "{what}"
        );
        assert_eq!(store.accept(new(None)).0, JobId(2), "{what}");
    }
}

#[test]
fn sessions_are_read_while_ends_wait_for_room() {
    let dir = TempDir::new().unwrap();
    let (switch, fault) = switched();
    let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
    let (job, ..) = store.accept(started("main"));
    *switch.lock().unwrap() = Some((Moment::BeforeCommit, ffi::SQLITE_FULL));
    let end = store.command(Urgency::Waited, vec![finish(job, End::Completed)]);
    assert!(matches!(
        store.event(),
        Event::StoreHealth { trouble: Some(_) }
    ));
    let names = vec!["another".to_owned()];
    let Loaded::Sessions(rows) = store.load(Query::Sessions { names }) else {
        panic!("sessions")
    };
    assert!(rows.is_empty());
    *switch.lock().unwrap() = None;
    assert_eq!(store.event(), Event::StoreHealth { trouble: None });
    let stored = store.event();
    assert!(
        matches!(&stored, Event::Stored { token, stored: Stored::Committed(_) } if *token == end),
        "{stored:?}"
    );
}

#[test]
fn closing_waits_briefly_for_a_locked_file() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(started("main"));
    let other = Connection::open(dir.path().join(FILE)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.command(Urgency::Waited, vec![finish(job, End::Completed)]);
    assert!(matches!(
        store.event(),
        Event::StoreHealth { trouble: Some(_) }
    ));
    let began = Instant::now();
    store.close();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn reader_that_is_slow_stops_nobody() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(started("main"));
    let reader = Connection::open(dir.path().join(FILE)).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM jobs;")
        .unwrap();
    let text = "x".repeat(4 << 20);
    let write = |store: &mut Bench, times| {
        for _ in 0..times {
            let began = Instant::now();
            let stored = store.commit(vec![piece(job, 0, &text)]);
            assert!(matches!(stored, Stored::Committed(_)));
            let took = began.elapsed();
            assert!(
                took < Duration::from_secs(3),
                "waited for a reader: {took:?}"
            );
        }
    };
    write(&mut store, 20);
    drop(reader);
    let log = || std::fs::metadata(beside(&dir.path().join(FILE), "-wal")).unwrap();
    let before = log().len();
    write(&mut store, 40);
    assert!(log().len() <= before.max(128 << 20), "{}", log().len());
}

#[test]
fn prune_that_fails_is_trouble_and_heals() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(new(None));
    store.commit(vec![finish(job, End::Completed)]);
    let session = "s1".to_owned();
    store.commit(vec![Write::Release { session }]);
    store.close();
    let (switch, fault) = switched();
    *switch.lock().unwrap() = Some((Moment::BeforeBegin, ffi::SQLITE_FULL));
    let (answer, answers) = answering();
    let opener = Opener {
        keep: Some(Keep {
            age: Duration::ZERO,
            bytes: 0,
            every: Duration::from_millis(20),
        }),
        ..daemon("b")
    };
    let opened = open_with(
        dir.path(),
        opener,
        Box::new(dead),
        answer,
        Faults::of_writer(fault),
    )
    .unwrap();
    let told = || answers.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(told(), Event::StoreHealth { trouble: Some(_) }));
    *switch.lock().unwrap() = None;
    assert_eq!(told(), Event::StoreHealth { trouble: None });
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    let until = Instant::now() + PATIENCE;
    let jobs = || -> i64 {
        db.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))
            .unwrap()
    };
    while jobs() > 0 {
        assert!(Instant::now() < until, "nothing is forgotten");
        let _no_news = answers.recv_timeout(Duration::from_millis(5));
    }
    opened.store.close(opened.writer);
}
