//! Schedules in the file: a due time with its job or without, what ends do to them, what is forgotten.

use agentd_core::store::{Fired, NewSession, NextDue, Passed, ScheduleWrite};
use agentd_protocol::schedule::{ScheduleRow, ScheduleSpec};

use super::*;

fn due(at: i64) -> NextDue {
    NextDue {
        due_ms: Some(at),
        fires_ms: Some(at),
        upcoming: vec![at.to_string()],
    }
}

fn fired(expected: i64, next: Option<i64>) -> Fired {
    Fired {
        schedule: 1,
        expected: Some(expected),
        due_ms: expected,
        late_ms: 0,
        next: next.map(due).unwrap_or_default(),
        passed: None,
    }
}

fn run_of(fired: Fired) -> NewJob {
    NewJob {
        key: Some(format!("cron:c1:{}", fired.due_ms)),
        hashed: "x".to_owned(),
        fired: Some(Arc::new(fired)),
        ..new(None)
    }
}

impl Bench {
    fn schedule(&mut self, write: ScheduleWrite) -> Result<Option<ScheduleRow>, Stored> {
        match self.commit(vec![Write::Schedule(Box::new(write))]) {
            Stored::Committed(written) => match written.as_slice() {
                [Written::Schedule { row }] => {
                    Ok(row.as_ref().map(|row| serde_json::from_str(row).unwrap()))
                }
                other => panic!("{other:?}"),
            },
            refused => Err(refused),
        }
    }

    fn add(&mut self, name: Option<&str>, more: ScheduleSpec) -> ScheduleRow {
        let spec = ScheduleSpec {
            every: Some("1s".to_owned()),
            ..more
        };
        let add = ScheduleWrite::Add {
            name: name.map(str::to_owned),
            spec: serde_json::to_string(&spec).unwrap(),
            anchor_ms: 0,
            next: due(1),
        };
        self.schedule(add).unwrap().unwrap()
    }

    fn row(&mut self) -> serde_json::Value {
        let query = Query::Schedules {
            which: Some("c1".to_owned()),
            after: 0,
            limit: 5,
        };
        match self.load(query) {
            Loaded::Line(line) => {
                let line: serde_json::Value = serde_json::from_str(line.as_json()).unwrap();
                line["schedules"][0].clone()
            }
            other => panic!("{other:?}"),
        }
    }

    fn runs(&mut self) -> Vec<serde_json::Value> {
        let query = Query::ScheduleRuns {
            which: "c1".to_owned(),
            before: None,
            limit: 100,
        };
        match self.load(query) {
            Loaded::Line(line) => {
                let line: serde_json::Value = serde_json::from_str(line.as_json()).unwrap();
                line["runs"].as_array().unwrap().clone()
            }
            other => panic!("{other:?}"),
        }
    }

    fn finish(&mut self, job: JobId, end: End) {
        let line = match end {
            End::Completed => r#"{"type":"message_end","text":"well"}"#,
            _ => r#"{"type":"error","code":"rate-limit","error":"too much"}"#,
        };
        let finish = Write::Finish {
            job,
            end,
            line: Body::stored(line),
            texts: None,
        };
        assert!(matches!(self.commit(vec![finish]), Stored::Committed(_)));
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.unwrap() })
}

#[test]
fn schedule_due_time_and_job_are_one_commit() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.add(None, ScheduleSpec::default());
    let (job, ..) = store.accept(run_of(fired(1, Some(2))));
    let row = store.row();
    assert_eq!(
        (&row["next"][0], &row["last"]["job"]),
        (&"2".into(), &job.to_string().into())
    );
    // It isn't the next one any more: no job, nothing else.
    let again = NewJob {
        key: None,
        ..run_of(fired(1, Some(7)))
    };
    let stored = store.commit(vec![Write::Accept(Arc::new(again))]);
    assert_eq!(stored, Stored::Superseded);
    assert_eq!(
        (store.row()["next"][0].clone(), store.runs().len()),
        ("2".into(), 1)
    );
    // Together with what is refused it isn't there, either.
    let other = Write::Close {
        session: "nobody".to_owned(),
    };
    let taken = Write::Open(Box::new(session("s1")));
    let both = vec![
        Write::Accept(Arc::new(run_of(fired(2, Some(3))))),
        other,
        taken,
    ];
    assert!(!matches!(store.commit(both), Stored::Committed(_)));
    assert_eq!(
        (store.row()["next"][0].clone(), store.runs().len()),
        ("2".into(), 1)
    );
    // A store that was put back has the key, and goes on behind it.
    let known = NewJob {
        key: Some("cron:c1:1".to_owned()),
        ..run_of(fired(2, Some(3)))
    };
    let stored = store.commit(vec![Write::Accept(Arc::new(known))]);
    assert!(
        matches!(stored, Stored::Committed(written) if matches!(written[..], [Written::Duplicate { .. }]))
    );
    assert_eq!(store.row()["next"][0], "3");
}

fn session(name: &str) -> NewSession {
    NewSession {
        name: Some(name.to_owned()),
        agent: "pi".to_owned(),
        cwd: "/".to_owned(),
        real_cwd: None,
        toolsets: None,
        system: None,
        mcp_servers: Default::default(),
        fork: None,
        at: 1,
    }
}

#[test]
fn schedule_failures_are_counted_and_pause_it() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let spec = ScheduleSpec {
        max_failures: Some(2),
        keep: Some(3),
        ..ScheduleSpec::default()
    };
    store.add(Some("mine"), spec);
    let run = |store: &mut Bench, at: i64, end: End| {
        let (job, ..) = store.accept(run_of(fired(at, Some(at + 1))));
        store.finish(job, end);
        (
            store.row()["failures"].clone(),
            store.row()["state"].clone(),
        )
    };
    for (at, end, failures) in [
        (1, End::Failed, 1),
        (2, End::Completed, 0),
        (3, End::Interrupted, 1),
        (4, End::Cancelled, 1),
    ] {
        assert_eq!(
            run(&mut store, at, end),
            (failures.into(), "active".into()),
            "{at}"
        );
    }
    assert_eq!(run(&mut store, 5, End::Failed), (2.into(), "paused".into()));
    let row = store.row();
    assert_eq!(
        row["why"],
        "2 runs failed in a row, the last one: j5 failed"
    );
    assert_eq!(
        (&row["last"]["state"], &row["last"]["code"]),
        (&"failed".into(), &"rate-limit".into())
    );
    let told = paused_schedules(dir.path()).unwrap();
    assert_eq!(
        told,
        ["c1 (mine): 2 runs failed in a row, the last one: j5 failed"]
    );
    // Of the runs that are over three are kept, behind the one that was just made.
    let kept: Vec<_> = store.runs().iter().map(|run| run["job"].clone()).collect();
    assert_eq!(kept, ["j5", "j4", "j3"]);
    let stored = store.commit(vec![Write::Accept(Arc::new(run_of(fired(6, None))))]);
    assert_eq!(stored, Stored::Superseded, "it rests");
}

#[test]
fn schedule_changes_only_what_was_read() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.add(Some("one"), ScheduleSpec::default());
    let two = store.add(Some("two"), ScheduleSpec::default());
    assert_eq!(two.schedule, "c2");
    let kept = |store: &Bench, which: &str| {
        wait(store.opened.store.kept_schedule(which.to_owned())).unwrap()
    };
    let set = |kept: &KeptSchedule, name: &str, resumes| ScheduleWrite::Set {
        schedule: kept.schedule,
        revision: kept.revision,
        name: Some(name.to_owned()),
        spec: serde_json::to_string(&kept.spec).unwrap(),
        anchor_ms: 0,
        next: due(9),
        resumes,
    };
    let read = kept(&store, "one").unwrap();
    assert_eq!(store.schedule(set(&read, "two", false)), Err(Stored::Taken));
    // A due time came in between.
    store.accept(run_of(fired(1, Some(2))));
    assert_eq!(
        store.schedule(set(&read, "uno", false)),
        Err(Stored::Superseded)
    );
    let read = kept(&store, "c1").unwrap();
    assert_eq!((read.over_ms, read.next.due_ms), (Some(1), Some(2)));
    assert_eq!(
        store
            .schedule(set(&read, "uno", false))
            .unwrap()
            .unwrap()
            .next,
        ["9"]
    );
    let pause = |which: &str| ScheduleWrite::Pause {
        which: which.to_owned(),
    };
    assert!(
        store
            .schedule(pause("uno"))
            .unwrap()
            .unwrap()
            .next
            .is_empty()
    );
    let read = kept(&store, "uno").unwrap();
    assert!(read.paused);
    assert_eq!(
        store
            .schedule(set(&read, "uno", true))
            .unwrap()
            .unwrap()
            .next,
        ["9"]
    );
    assert_eq!(store.schedule(pause("nobody")).unwrap(), None);
    // It goes with its runs, and its number isn't given again; its job stays.
    for which in ["c2", "uno"] {
        let which = which.to_owned();
        assert!(
            store
                .schedule(ScheduleWrite::Remove { which })
                .unwrap()
                .is_some()
        );
    }
    assert_eq!(store.add(None, ScheduleSpec::default()).schedule, "c3");
    assert_eq!(kept(&store, "c1"), None);
    let jobs = Query::Jobs {
        jobs: vec![JobId(1)],
    };
    assert!(matches!(store.load(jobs), Loaded::Jobs(rows) if rows.len() == 1));
}

#[test]
fn schedule_that_is_due_is_told() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let due_at =
        |store: &Bench, now, after| wait(store.opened.store.due_schedules(now, after, 2)).unwrap();
    assert_eq!(due_at(&store, 10, None), DueSchedules::default());
    for _ in 0..3 {
        store.add(None, ScheduleSpec::default());
    }
    assert_eq!(due_at(&store, 0, None).next_ms, Some(1));
    let page = due_at(&store, 1, None);
    assert_eq!((page.due.len(), page.more), (2, Some((1, 2))));
    let rest = due_at(&store, 1, page.more);
    assert_eq!(
        (rest.due.len(), rest.due[0].schedule, rest.more),
        (1, 3, None)
    );
    // What goes on is told with it, until it has ended.
    let (job, ..) = store.accept(run_of(fired(1, Some(2))));
    let busy = |store: &Bench| due_at(store, 2, Some((1, 3))).due[0].busy;
    assert_eq!(busy(&store), Some(job));
    store.finish(job, End::Failed);
    assert_eq!(busy(&store), None);
    // What became no job is noted once.
    let skip = Fired {
        passed: Some(Passed {
            due_ms: 4,
            times: 3,
            why: "missed".to_owned(),
        }),
        ..fired(2, Some(5))
    };
    let record = |store: &Bench, unsent| {
        wait(store.opened.store.record_due(skip.clone(), unsent, 7)).unwrap()
    };
    assert!(record(&store, Unsent::Skipped));
    let why = "no".to_owned();
    assert!(!record(&store, Unsent::Refused { why }), "it is over");
    let run = store.runs().remove(0);
    assert_eq!(
        (&run["outcome"], &run["times"]),
        (&"skipped".into(), &3.into())
    );
    assert_eq!(store.row()["next"][0], "5");
    // The last one.
    let why = "no".to_owned();
    let last = fired(5, None);
    assert!(
        wait(
            store
                .opened
                .store
                .record_due(last, Unsent::Refused { why }, 7)
        )
        .unwrap()
    );
    let row = store.row();
    assert_eq!(
        (&row["state"], &row["failures"]),
        (&"done".into(), &2.into())
    );
    assert_eq!(due_at(&store, 100, None).due.len(), 2);
    // The next daemon is told that there is something.
    drop(store);
    let again = bench(dir.path(), "b", Role::Daemon, dead);
    wait(again.opened.scheduled.notified());
}
