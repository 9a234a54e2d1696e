//! What is told of everything: the log, exports and backups.

use agentd_protocol::line::{Accepted, Line};

use super::*;

fn log(store: &mut Bench, after: u64, session: Option<&str>, jobs: Option<Vec<JobId>>) -> Page {
    let session = session.map(str::to_owned);
    let query = Query::Log {
        after,
        session,
        jobs,
        first: JobId(0),
        texts: Vec::new(),
    };
    match store.load(query) {
        Loaded::Log {
            lines,
            more,
            last,
            oldest,
            ..
        } => Page {
            seqs: lines.iter().map(|line| line.seq).collect(),
            lines,
            more,
            last,
            oldest,
        },
        other => panic!("{other:?}"),
    }
}

struct Page {
    seqs: Vec<u64>,
    lines: Vec<agentd_core::store::LogLine>,
    more: bool,
    last: u64,
    oldest: u64,
}

#[test]
fn log_holds_every_numbered_line_in_order() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (one, ..) = store.accept(started("main"));
    let (two, ..) = store.accept(new(Some("other")));
    let event = |job| Write::Event {
        job,
        line: line("tool"),
    };
    store.commit(vec![event(one), event(two), event(one)]);
    store.commit(vec![finish(one, End::Completed)]);
    let all = log(&mut store, 0, None, None);
    assert_eq!(all.seqs, [1, 2, 3, 4, 5, 6]);
    assert_eq!((all.more, all.last, all.oldest), (false, 6, 0));
    let jobs: Vec<_> = all.lines.iter().map(|line| line.job).collect();
    assert_eq!(jobs, [one, two, one, two, one, one]);
    let accepted = |job, session: &str, running| {
        let accepted = Accepted {
            job,
            session: session.to_owned(),
            agent: "pi".to_owned(),
            seq: None,
            replayed: false,
            ignored: Vec::new(),
            running,
            drained: false,
            made: false,
            routed: None,
        };
        Line::Accepted(accepted).body()
    };
    assert_eq!(all.lines[0].body, accepted(one, "main", true));
    assert_eq!(all.lines[1].body, accepted(two, "other", false));
    assert_eq!(all.lines[2].body, line("tool"));
    assert_eq!(all.lines[5].body, last_line("whole"));
    assert_eq!(all.lines[5].texts[0].text, "whole");
    assert_eq!(log(&mut store, 4, None, None).seqs, [5, 6]);
    assert_eq!(log(&mut store, 0, Some("main"), None).seqs, [1, 3, 5, 6]);
    assert_eq!(log(&mut store, 3, Some("main"), None).seqs, [5, 6]);
    assert_eq!(log(&mut store, 0, None, Some(vec![two, two])).seqs, [2, 4]);
    assert_eq!(log(&mut store, 6, Some("main"), None).seqs, [0; 0]);
    let unknown = log(&mut store, 0, Some("none"), None);
    assert_eq!((unknown.seqs.len(), unknown.last), (0, 6));

    let release = Write::Close {
        session: "main".to_owned(),
    };
    store.commit(vec![release]);
    let (next, ..) = store.accept(new(Some("main")));
    let open = log(&mut store, 0, Some("main"), None);
    assert_eq!(open.lines[0].job, next, "the closed one has no name");
    let closed = log(&mut store, 0, None, Some(vec![one]));
    assert_eq!(closed.lines[0].body, accepted(one, "main", true));
}

#[test]
fn a_long_log_comes_in_pages_without_gaps() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(started("main"));
    for _ in 0..10 {
        let long = line(&"x".repeat(100_000));
        store.commit(vec![Write::Event { job, line: long }]);
    }
    let short: Vec<_> = (0..5000)
        .map(|_| Write::Event {
            job,
            line: line("s"),
        })
        .collect();
    store.commit(short);
    let (mut after, mut seen, mut pages) = (0, Vec::new(), 0);
    loop {
        let page = log(&mut store, after, Some("main"), None);
        let bytes: usize = page
            .lines
            .iter()
            .map(|line| line.body.as_json().len())
            .sum();
        assert!(bytes <= 256 * 1024, "{bytes}");
        after = *page.seqs.last().unwrap();
        seen.extend(page.seqs);
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, (1..=5011).collect::<Vec<u64>>());
    assert!(pages >= 6, "{pages}");
}

#[test]
fn export_holds_everything_in_pages_of_a_line() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let words = "ö\u{1}\n".repeat(200_000);
    let request = serde_json::json!({ "text": words }).to_string();
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let (job, ..) = store.accept(NewJob {
            request: request.clone(),
            ..started("main")
        });
        let event = Write::Event {
            job,
            line: line(&"e".repeat(200_000)),
        };
        store.commit(vec![event]);
        store.commit(vec![finish(job, End::Completed)]);
        jobs.push(job);
    }
    let (mut after, mut rows) = (0, Vec::new());
    loop {
        let (page, next) = store.listed(
            Query::Export {
                after,
                session: None,
            },
            "rows",
        );
        let bytes: usize = page.iter().map(|row| row.to_string().len()).sum();
        assert!(bytes <= 512 * 1024 && !page.is_empty(), "{bytes}");
        rows.extend(page);
        let Some(next) = next.as_u64() else { break };
        assert!(next > after);
        after = next;
    }
    let of_kind = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).count();
    assert_eq!((of_kind("session"), of_kind("job")), (1, 3));
    assert_eq!((of_kind("event"), of_kind("message")), (3, 3));
    for job in jobs {
        let number = serde_json::to_value(job).unwrap();
        let pieces = |of: &str| -> String {
            rows.iter()
                .filter(|row| row["kind"] == "piece" && row["job"] == number && row["of"] == of)
                .map(|row| row["text"].as_str().unwrap())
                .collect()
        };
        assert_eq!(pieces("request"), request);
        assert_eq!(pieces("event"), line(&"e".repeat(200_000)).as_json());
        let row = rows
            .iter()
            .find(|row| row["kind"] == "job" && row["job"] == number);
        assert_eq!(row.unwrap()["final"]["text"], "whole");
    }
}

fn backup(store: &mut Bench, path: Option<&Path>) -> Result<(PathBuf, u64), String> {
    let path = path.map(|path| path.to_str().unwrap().to_owned());
    match store.load(Query::Backup { path, plan: None }) {
        Loaded::Backup { path, bytes } => Ok((path.into(), bytes)),
        Loaded::Failed(why) | Loaded::Refused(why) => Err(why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn backup_is_a_store_with_every_acknowledged_job() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for _ in 0..50 {
        store.accept(new(None));
    }
    let (path, bytes) = backup(&mut store, None).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
    assert_eq!(
        std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
        1
    );
    store.accept(new(None));

    let other = TempDir::new().unwrap();
    std::fs::copy(&path, other.path().join(FILE)).unwrap();
    let mut copy = bench(other.path(), "b", Role::Daemon, dead);
    assert_eq!(copy.opened.loss, None);
    assert_ne!(copy.opened.epoch, store.opened.epoch, "another history");
    let jobs = (1..=51).map(JobId).collect();
    let Loaded::Jobs(rows) = copy.load(Query::Jobs { jobs }) else {
        panic!("jobs")
    };
    assert_eq!(rows.len(), 50);
    let named = other.path().join("copy.db");
    assert_eq!(backup(&mut store, Some(&named)).unwrap().0, named);
}

#[test]
fn backup_that_fails_says_why_and_leaves_nothing() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.accept(new(None));
    let there = dir.path().join("there");
    std::fs::write(&there, "mine").unwrap();
    let missing = dir.path().join("no").join("dir");
    for (path, said) in [
        (there.as_path(), "is there already"),
        (missing.as_path(), "can't make"),
        (Path::new("relative.db"), "is not an absolute path"),
    ] {
        let why = backup(&mut store, Some(path)).unwrap_err();
        assert!(why.contains(said), "{why}");
    }
    assert_eq!(std::fs::read(&there).unwrap(), b"mine");
    assert!(!dir.path().join("there.partial").exists());
    store.accept(new(None));
}

#[test]
fn while_a_backup_is_made_jobs_are_accepted() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for _ in 0..20 {
        store.accept(NewJob {
            request: "x".repeat(1_000_000),
            ..new(None)
        });
    }
    let token = Token(1_000_000);
    let path = None;
    let query = Query::Backup { path, plan: None };
    let command = StoreCommand::Load { token, query };
    store.opened.store.submit(command).unwrap();
    let asked = store.command(Urgency::Waited, vec![Write::Accept(Arc::new(new(None)))]);
    let answers = [store.event(), store.event()];
    let place = |wanted: &dyn Fn(&Event) -> bool| answers.iter().position(wanted);
    let accepted = place(&|event| matches!(event, Event::Stored { token, .. } if *token == asked));
    let copied = place(&|event| {
        matches!(
            event,
            Event::Loaded {
                loaded: Loaded::Backup { .. },
                ..
            }
        )
    });
    assert!(accepted.is_some() && copied.is_some(), "{answers:?}");
}
