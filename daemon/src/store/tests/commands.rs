//! What commands do on a healthy disk.

use std::sync::atomic::AtomicUsize;

use super::*;

fn events_of(job: JobId, after: u64) -> Query {
    let from = Some(Position::default());
    Query::Events { job, after, from }
}

#[test]
fn job_is_read_back_after_reopening() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let epoch = store.opened.epoch.clone();
    let (job, seq, session) = store.accept(new(None));
    assert_eq!((job, seq, session.as_str()), (JobId(1), 1, "s1"));
    let running = store.commit(vec![
        Write::Start {
            job,
            worker: WorkerId(1),
            generation: Generation(1),
            attempt: 1,
            line: line("running"),
        },
        piece(job, 0, "who"),
        piece(job, 3, "le"),
        Write::Event {
            job,
            line: line("tool"),
        },
    ]);
    let numbered = |seq| Written::Numbered { seq };
    let started = Written::Started {
        seq: 2,
        request: new(None).request,
    };
    assert_eq!(
        running,
        Stored::Committed(vec![started, Written::Done, Written::Done, numbered(3)])
    );
    let Loaded::Events {
        events,
        more,
        texts,
        whole,
    } = store.load(events_of(job, 2))
    else {
        panic!("events")
    };
    assert_eq!((events, more), (vec![(3, line("tool"))], false));
    let said: Vec<_> = texts.iter().map(|piece| piece.text.as_str()).collect();
    assert_eq!((said, whole), (vec!["who", "le"], true));
    let native = Some("n".to_owned());
    let lost = Write::Lost {
        session: session.clone(),
    };
    assert!(!store.session("s1").lost);
    let ended = store.commit(vec![
        Write::Native { session, native },
        lost,
        finish(job, End::Completed),
    ]);
    let done = Written::Done;
    assert_eq!(
        ended,
        Stored::Committed(vec![done.clone(), done, numbered(4)])
    );
    store.close();

    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    assert_eq!(store.opened.epoch, epoch);
    let state = store.job(job).state;
    let line = last_line("whole");
    assert_eq!(state, JobState::Finished { seq: 4, line });
    let row = store.session("s1");
    assert_eq!((row.native.as_deref(), row.turns), (Some("n"), 1));
    assert!(!row.named && row.lost);
    assert_eq!(store.accept(new(Some("main"))).1, 5, "numbers go on");
}

#[test]
fn a_job_ends_exactly_once() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(started("main"));
    let first = store.commit(vec![finish(job, End::Completed)]);
    assert_eq!(store.commit(vec![finish(job, End::Failed)]), first);
    assert_eq!(
        store.commit(vec![piece(job, 0, "late")]),
        Stored::Committed(vec![Written::Done])
    );
    let Loaded::Events { texts, .. } = store.load(events_of(job, 0)) else {
        panic!("events")
    };
    assert_eq!(texts.len(), 1);
    assert_eq!(texts[0].text, "whole");
}

#[test]
fn an_interrupted_turn_holds_what_waits_behind_it() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (first, ..) = store.accept(started("main"));
    let (second, ..) = store.accept(new(Some("main")));
    let hold = Write::Hold {
        job: second,
        held: true,
    };
    store.commit(vec![finish(first, End::Interrupted), hold]);
    let held = |store: &mut Bench| match store.job(second).state {
        JobState::Queued { held, .. } => held,
        other => panic!("{other:?}"),
    };
    assert!(held(&mut store));
    store.commit(vec![Write::Hold {
        job: second,
        held: false,
    }]);
    assert!(!held(&mut store));
    store.commit(vec![finish(second, End::Failed)]);
    assert_eq!(store.session("main").turns, 1, "the second never ran");
}

#[test]
fn key_known_is_a_duplicate_or_conflict() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.commit(vec![keyed("k", "one")]);
    let job = JobId(1);
    let twice = store.commit(vec![
        keyed("k", "one"),
        keyed("l", "one"),
        keyed("l", "one"),
    ]);
    let Stored::Committed(written) = twice else {
        panic!("{twice:?}")
    };
    assert_eq!(
        written[0],
        Written::Duplicate {
            job,
            session: "s1".to_owned()
        }
    );
    assert!(matches!(
        written[1],
        Written::Accepted { job: JobId(2), .. }
    ));
    assert_eq!(
        written[2],
        Written::Duplicate {
            job: JobId(2),
            session: "s2".to_owned()
        }
    );
    let refused = store.commit(vec![keyed("new", "x"), keyed("k", "two")]);
    assert_eq!(refused, Stored::Conflict { item: 1, job });
    let (next, ..) = store.accept(new(None));
    assert_eq!(next, JobId(3), "a refused commit leaves nothing behind");
}

#[test]
fn fifty_callers_with_one_key_make_one_job() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for _ in 0..50 {
        store.command(Urgency::Waited, vec![keyed("k", "same")]);
    }
    let mut accepted = 0;
    for expected in 1..=50 {
        let Event::Stored {
            token,
            stored: Stored::Committed(written),
        } = store.event()
        else {
            panic!("stored")
        };
        assert_eq!(token, Token(expected), "answers come in command");
        accepted += usize::from(matches!(written[0], Written::Accepted { .. }));
    }
    assert_eq!(accepted, 1);
}

#[test]
fn a_refused_commit_does_not_hurt_its_neighbours() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.commit(vec![keyed("k", "one")]);
    store.command(Urgency::Lazy, vec![Write::Accept(Arc::new(new(None)))]);
    store.command(Urgency::Lazy, vec![keyed("m", "one"), keyed("k", "two")]);
    let unknown = Write::Event {
        job: JobId(999),
        line: line("x"),
    };
    store.command(Urgency::Lazy, vec![unknown]);
    store.command(Urgency::Waited, vec![Write::Accept(Arc::new(new(None)))]);
    let stored: Vec<Stored> = (0..4)
        .map(|_| match store.event() {
            Event::Stored { stored, .. } => stored,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        matches!(&stored[0], Stored::Committed(w) if matches!(w[0], Written::Accepted { job: JobId(2), seq: 2, .. }))
    );
    assert!(matches!(stored[1], Stored::Conflict { item: 1, .. }));
    assert!(matches!(
        stored[2],
        Stored::Failed {
            code: Code::StoreFailed,
            ..
        }
    ));
    assert!(
        matches!(&stored[3], Stored::Committed(w) if matches!(w[0], Written::Accepted { job: JobId(3), seq: 3, .. }))
    );
}

#[test]
fn lazy_commit_goes_alone_or_with_a_question() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let token = store.command(Urgency::Lazy, vec![Write::Accept(Arc::new(new(None)))]);
    assert!(matches!(store.event(), Event::Stored { token: told, .. } if told == token));
    store.command(Urgency::Lazy, vec![Write::Accept(Arc::new(new(None)))]);
    let names = vec!["s2".to_owned()];
    let command = StoreCommand::Load {
        token: Token(9),
        query: Query::Sessions { names },
    };
    store.opened.store.submit(command).unwrap();
    assert!(matches!(store.event(), Event::Stored { .. }));
    assert!(
        matches!(store.event(), Event::Loaded { loaded: Loaded::Sessions(rows), .. } if rows.len() == 1)
    );
}

#[test]
fn session_open_elsewhere_is_leased_or_orphaned() {
    let dir = TempDir::new().unwrap();
    let living = |_: &str| Liveness::Alive { pid: 7 };
    let mut first = bench(dir.path(), "first", Role::Daemon, living);
    first.accept(started("main"));
    let again = || vec![Write::Accept(Arc::new(new(Some("main"))))];

    let mut second = bench(dir.path(), "second", Role::OneShot, living);
    let instance = "first".to_owned();
    let leased = Stored::Leased {
        item: 0,
        instance,
        pid: 7,
    };
    assert_eq!(second.commit(again()), leased);
    second.close();

    let mut third = bench(dir.path(), "third", Role::OneShot, dead);
    let instance = "first".to_owned();
    assert_eq!(
        third.commit(again()),
        Stored::Orphaned {
            instance: instance.clone()
        }
    );
    third
        .opened
        .store
        .submit(StoreCommand::Takeover { instance })
        .unwrap();
    let Event::Recovered(recovered) = third.event() else {
        panic!("recovered")
    };
    assert_eq!(recovered.sessions[0].name, "main");
    assert_eq!(
        recovered.jobs[0].row.state,
        JobState::Running { attempt: 1 }
    );
    assert!(matches!(third.commit(again()), Stored::Committed(_)));
    let release = Write::Release {
        session: "main".to_owned(),
    };
    third.commit(vec![release]);
    assert!(matches!(first.commit(again()), Stored::Committed(_)));
}

#[test]
fn takeover_by_a_one_shot_leaves_queued_jobs() {
    let dir = TempDir::new().unwrap();
    let mut gone = bench(dir.path(), "gone", Role::Daemon, dead);
    let (running, ..) = gone.accept(started("main"));
    gone.commit(vec![piece(running, 0, "so "), piece(running, 3, "far")]);
    let (queued, ..) = gone.accept(new(Some("main")));
    let (ended, ..) = gone.accept(new(Some("other")));
    gone.commit(vec![finish(ended, End::Failed)]);
    gone.close();

    let shot = bench(dir.path(), "shot", Role::OneShot, dead);
    assert!(shot.opened.orphans.is_empty());
    let instance = "gone".to_owned();
    shot.opened
        .store
        .submit(StoreCommand::Takeover { instance })
        .unwrap();
    let Event::Recovered(recovered) = shot.event() else {
        panic!("recovered")
    };
    assert_eq!(recovered.jobs.len(), 1);
    assert_eq!(recovered.jobs[0].so_far.texts[0].text, "so far");
    shot.close();

    let daemon = bench(dir.path(), "daemon", Role::Daemon, dead);
    let orphans = &daemon.opened.orphans;
    let jobs: Vec<(&str, Vec<JobId>)> = orphans
        .iter()
        .map(|one| {
            (
                one.instance.as_str(),
                one.jobs.iter().map(|left| left.row.job).collect(),
            )
        })
        .collect();
    assert_eq!(jobs, [("gone", vec![queued]), ("shot", vec![running])]);
    daemon.close();
    let next = bench(dir.path(), "next", Role::Daemon, |_| Liveness::Alive {
        pid: 1,
    });
    assert!(
        next.opened.orphans.is_empty(),
        "what a living instance has is its own"
    );
}

#[test]
fn a_long_list_of_events_comes_in_pages() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(started("main"));
    let long = line(&"x".repeat(100_000));
    let write = || Write::Event {
        job,
        line: long.clone(),
    };
    store.commit((0..5).map(|_| write()).collect());
    let mut after = 0;
    let mut pages = Vec::new();
    loop {
        let Loaded::Events { events, more, .. } = store.load(events_of(job, after)) else {
            panic!("events")
        };
        pages.push(events.len());
        after = events.last().unwrap().0;
        if !more {
            break;
        }
    }
    assert_eq!(pages, [2, 2, 1]);
}

#[test]
fn numbers_of_two_stores_are_never_equal() {
    let dir = TempDir::new().unwrap();
    let living = |_: &str| Liveness::Alive { pid: 7 };
    let mut one = bench(dir.path(), "one", Role::Daemon, living);
    let mut two = bench(dir.path(), "two", Role::OneShot, living);
    let mut numbers = Vec::new();
    for _ in 0..5 {
        let (job, seq, _) = one.accept(new(None));
        numbers.push((job.0, seq));
        let (job, seq, _) = two.accept(new(None));
        numbers.push((job.0, seq));
    }
    let expected: Vec<(u64, u64)> = (1..=10).map(|number| (number, number)).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn session_unnamed_takes_the_next_free_name() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.accept(new(Some("s2")));
    assert_eq!(store.accept(new(None)).2, "s2-2");
}

#[test]
fn closing_writes_what_was_only_to_ride_along() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(started("main"));
    store.command(Urgency::Lazy, vec![piece(job, 0, "last words")]);
    store.close();
    let store = bench(dir.path(), "b", Role::Daemon, dead);
    assert_eq!(
        store.opened.orphans[0].jobs[0].so_far.texts[0].text,
        "last words"
    );
}

#[test]
fn write_that_fails_midway_spares_its_neighbours() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let broken = NewJob {
        labels: Some("no labels".to_owned()),
        ..new(Some("broken"))
    };
    let commands = [new(Some("one")), broken, new(Some("two"))]
        .map(|job| store.command(Urgency::Waited, vec![Write::Accept(Arc::new(job))]));
    let mut answers = Vec::new();
    for asked in commands {
        let Event::Stored { token, stored } = store.event() else {
            panic!("stored")
        };
        assert_eq!(token, asked);
        answers.push(stored);
    }
    let [
        Stored::Committed(_),
        Stored::Failed { .. },
        Stored::Committed(last),
    ] = answers.as_slice()
    else {
        panic!("{answers:?}")
    };
    assert!(matches!(
        last[0],
        Written::Accepted {
            job: JobId(2),
            seq: 2,
            ..
        }
    ));
    let names = vec!["one".to_owned(), "broken".to_owned(), "two".to_owned()];
    let Loaded::Sessions(sessions) = store.load(Query::Sessions { names }) else {
        panic!("sessions")
    };
    assert_eq!(sessions.len(), 2);
}

#[test]
fn session_changed_meanwhile_is_looked_up_again() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (first, ..) = store.accept(new(Some("main")));
    let session = || "main".to_owned();
    let accept = || Write::Accept(Arc::new(new(Some("main"))));
    let stored = store.commit(vec![
        accept(),
        finish(first, End::Completed),
        finish(JobId(2), End::Completed),
        Write::Close { session: session() },
        accept(),
        Write::Release { session: session() },
        accept(),
    ]);
    assert!(matches!(stored, Stored::Committed(_)), "{stored:?}");
    store.close();
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    let found: Vec<(String, Option<String>, i64)> = db
        .prepare(
            "SELECT name, sessions.instance, count(*) FROM sessions
             JOIN jobs ON jobs.session = sessions.id GROUP BY sessions.id ORDER BY sessions.id",
        )
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let ours = Some("a".to_owned());
    assert_eq!(
        found,
        [("main#1".to_owned(), None, 2), ("main".to_owned(), ours, 2)]
    );
}

#[test]
fn interrupted_turns_end_holds_other_instances_jobs() {
    let dir = TempDir::new().unwrap();
    let mut gone = bench(dir.path(), "gone", Role::Daemon, dead);
    let (first, ..) = gone.accept(started("main"));
    let (behind, ..) = gone.accept(new(Some("main")));
    let anyway = NewJob {
        request: r#"{"text":"hi","after_failure":"run"}"#.to_owned(),
        ..new(Some("main"))
    };
    let (anyway, ..) = gone.accept(anyway);
    gone.close();
    let mut shot = bench(dir.path(), "shot", Role::OneShot, dead);
    let instance = "gone".to_owned();
    let command = StoreCommand::Takeover { instance };
    shot.opened.store.submit(command).unwrap();
    let Event::Recovered(recovered) = shot.event() else {
        panic!("recovered")
    };
    assert_eq!(recovered.jobs.len(), 1, "a one-shot leaves what waits");
    shot.commit(vec![finish(first, End::Interrupted)]);
    let mut held = |job| match shot.job(job).state {
        JobState::Queued { held, .. } => held,
        other => panic!("{other:?}"),
    };
    assert!(held(behind) && !held(anyway));
}

#[test]
fn commands_that_come_together_are_one_commit() {
    let dir = TempDir::new().unwrap();
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&commits);
    let fault = Box::new(move |moment, _: &Connection| {
        counted.fetch_add(
            usize::from(moment == Moment::AfterCommit),
            Ordering::Relaxed,
        );
        Ok(())
    });
    let store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
    for round in 0..20 {
        let before = commits.load(Ordering::Relaxed);
        let mut several: VecDeque<_> = (0..3)
            .map(|each| StoreCommand::Commit {
                token: Token(3 * round + each),
                writes: vec![Write::Accept(Arc::new(new(None)))],
                urgency: Urgency::Waited,
            })
            .collect();
        store.opened.store.submit_together(&mut several).unwrap();
        for _ in 0..3 {
            store.event();
        }
        assert_eq!(commits.load(Ordering::Relaxed) - before, 1);
    }
    store.close();
}
