//! Lists of jobs and sessions, what was said, and the log.

use agentd_core::store::{JobFilter, NewSession, SessionFilter};
use agentd_protocol::limits::MAX_LINE_OUT;
use agentd_protocol::rows;
use agentd_protocol::work::JobPhase;

use super::*;

/// A store with a job in every state, by what it is called.
struct Filled {
    dir: TempDir,
    store: Bench,
    jobs: Vec<(&'static str, JobId)>,
}

fn asked(session: &str, text: &str) -> NewJob {
    NewJob {
        request: serde_json::json!({ "session": session, "text": text }).to_string(),
        ..new(Some(session))
    }
}

fn filled() -> Filled {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let mut jobs: Vec<(&str, JobId)> = Vec::new();
    for (place, (name, end)) in [
        ("completed", Some(End::Completed)),
        ("cancelled", Some(End::Cancelled)),
        ("failed", Some(End::Failed)),
        ("interrupted", Some(End::Interrupted)),
        ("running", None),
        ("queued", None),
        ("held", None),
        ("labelled", None),
        ("child", None),
    ]
    .into_iter()
    .enumerate()
    {
        let session = if place % 2 == 0 { "even" } else { "odd" };
        let mut new = asked(session, name);
        new.at = 10_000 * i64::try_from(place).unwrap();
        match name {
            "running" => new.running = Some((WorkerId(1), Generation(1))),
            "labelled" => new.labels = Some(r#"{"a":"1","b":"2"}"#.to_owned()),
            "child" => new.parent = Some(jobs[0].1),
            _ => {}
        }
        let (job, ..) = store.accept(new);
        if name == "held" {
            store.commit(vec![Write::Hold { job, held: true }]);
        }
        if let Some(end) = end {
            let (line, texts) = (final_of(name, end), Some(said(0, "an answer\nto it")));
            let end = Write::Finish {
                job,
                end,
                line,
                texts,
            };
            store.commit(vec![end]);
        }
        jobs.push((name, job));
    }
    Filled { dir, store, jobs }
}

fn final_of(text: &str, end: End) -> Body {
    Body::stored(&match end {
        End::Failed | End::Interrupted => {
            format!(r#"{{"type":"error","code":"timeout","error":"late","text":"{text}"}}"#)
        }
        _ => format!(r#"{{"type":"message_end","stop":"end_turn","job":"1","text":"{text}"}}"#),
    })
}

fn said(message: u32, text: &str) -> Vec<MessageText> {
    vec![MessageText {
        message,
        kind: TextKind::Text,
        text: text.to_owned(),
    }]
}

impl Filled {
    fn list(&mut self, filter: JobFilter, limit: usize) -> (Vec<rows::JobRow>, bool) {
        match self.store.load(Query::JobList { filter, limit }) {
            Loaded::JobList { jobs, more } => (jobs, more),
            other => panic!("{other:?}"),
        }
    }

    fn names(&mut self, filter: JobFilter) -> Vec<&'static str> {
        let (rows, more) = self.list(filter, 50);
        assert!(!more);
        let name = |row: &rows::JobRow| {
            let found = self.jobs.iter().find(|(_, job)| *job == row.job);
            found.unwrap().0
        };
        rows.iter().map(name).collect()
    }
}

const EVERYTHING: [&str; 9] = [
    "child",
    "labelled",
    "held",
    "queued",
    "running",
    "interrupted",
    "failed",
    "cancelled",
    "completed",
];

#[test]
fn jobs_are_listed_newest_first_by_every_filter() {
    let mut all = filled();
    let any = JobFilter::default;
    let state = |state| JobFilter {
        state: Some(state),
        ..JobFilter::default()
    };
    let session = |name: &str| JobFilter {
        session: Some(name.to_owned()),
        ..JobFilter::default()
    };
    let label = |key: &str, value: Option<&str>| JobFilter {
        label: Some((key.to_owned(), value.map(str::to_owned))),
        ..JobFilter::default()
    };
    let first = all.jobs[0].1;
    let before = all.jobs[2].1;
    for (filter, expected) in [
        (any(), EVERYTHING.as_slice()),
        (state(JobPhase::Queued), &["child", "labelled", "queued"]),
        (state(JobPhase::Held), &["held"]),
        (state(JobPhase::Running), &["running"]),
        (state(JobPhase::Completed), &["completed"]),
        (state(JobPhase::Cancelled), &["cancelled"]),
        (state(JobPhase::Failed), &["failed"]),
        (state(JobPhase::Interrupted), &["interrupted"]),
        (
            session("odd"),
            &["labelled", "queued", "interrupted", "cancelled"],
        ),
        (session("none"), &[]),
        (label("a", None), &["labelled"]),
        (label("a", Some("1")), &["labelled"]),
        (label("a", Some("2")), &[]),
        (
            JobFilter {
                parent: Some(first),
                ..any()
            },
            &["child"],
        ),
        (
            JobFilter {
                before: Some(before),
                ..any()
            },
            &["cancelled", "completed"],
        ),
        (
            JobFilter {
                since: Some(50_000),
                ..any()
            },
            &["child", "labelled", "held", "queued"],
        ),
        (
            JobFilter {
                since: Some(20_000),
                state: Some(JobPhase::Failed),
                ..session("even")
            },
            &["failed"],
        ),
        (
            JobFilter {
                state: Some(JobPhase::Queued),
                before: Some(all.jobs[7].1),
                ..session("odd")
            },
            &["queued"],
        ),
    ] {
        assert_eq!(all.names(filter.clone()), expected, "{filter:?}");
    }
    let (page, more) = all.list(any(), 2);
    assert_eq!((page.len(), more), (2, true));
}

#[test]
fn jobs_of_one_agent_are_listed_alone() {
    let mut all = filled();
    let mut of = |agent: &str| {
        let agent = Some(agent.to_owned());
        all.names(JobFilter {
            agent,
            ..JobFilter::default()
        })
    };
    assert!(!of("pi").is_empty());
    assert!(of("nobody").is_empty());
}

#[test]
fn job_row_says_how_it_began_and_ended() {
    let mut all = filled();
    let long = format!("  first\nline {}", "ö\"".repeat(5000));
    let (long, ..) = all.store.accept(asked("even", &long));
    let (rows, _) = all.list(JobFilter::default(), 50);
    let row = |job| rows.iter().find(|row| row.job == job).unwrap();
    let preview = &row(long).preview;
    assert!(preview.starts_with("first line ö\"ö"), "{preview}");
    assert_eq!(preview.chars().count(), 80);
    let done = row(all.jobs[0].1);
    assert_eq!(
        (done.preview.as_str(), done.stop.as_deref(), &done.code),
        ("completed", Some("end_turn"), &None)
    );
    assert_eq!(done.accepted_at, "1970-01-01T00:00:00Z");
    assert!(done.finished_at.is_some());
    let failed = row(all.jobs[2].1);
    assert_eq!(
        (failed.code.as_deref(), &failed.stop),
        (Some("timeout"), &None)
    );
    assert_eq!(row(all.jobs[4].1).attempt, 1);
    assert_eq!(row(all.jobs[7].1).labels["b"], "2");
    assert_eq!(row(all.jobs[8].1).parent, Some(all.jobs[0].1));
}

#[test]
fn sessions_are_listed_as_made_without_closed_ones() {
    let mut all = filled();
    let open = |name: &str| {
        Write::Open(Box::new(NewSession {
            name: Some(name.to_owned()),
            agent: "pi".to_owned(),
            cwd: "/".to_owned(),
            real_cwd: None,
            toolsets: None,
            system: None,
            mcp_servers: agentd_core::mcp::McpServers::default(),
            fork: None,
            at: 70_000,
        }))
    };
    all.store.commit(vec![open("gone"), open("empty")]);
    let session = "gone".to_owned();
    all.store.commit(vec![Write::Close { session }]);
    let mut page = |after, limit| match all.store.load(Query::SessionList {
        filter: SessionFilter::default(),
        after,
        limit,
    }) {
        Loaded::SessionList { sessions, more } => (sessions, more),
        other => panic!("{other:?}"),
    };
    let (sessions, more) = page(0, 2);
    assert!(more);
    let rest = page(sessions[1].0, 2);
    assert_eq!((rest.0.len(), rest.1), (1, false));
    assert_eq!(rest.0[0].1.session, "empty");
    assert_eq!(rest.0[0].1.last_active_at, rest.0[0].1.created_at);
    let even = &sessions[0].1;
    assert_eq!(
        (even.session.as_str(), even.title.as_str()),
        ("even", "completed")
    );
    assert_eq!((even.preview.as_str(), even.turns), ("failed", 0));
    assert_eq!(sessions[1].1.preview, "interrupted");
    assert!(even.last_active_at > even.created_at);
}

fn history(store: &mut Bench, job: Option<JobId>, after: u64) -> (Vec<rows::TurnRow>, bool) {
    let query = Query::History {
        session: "even".to_owned(),
        job,
        after,
        limit: 50,
        events: false,
    };
    match store.load(query) {
        Loaded::History {
            turns: Some(turns),
            more,
        } => (turns, more),
        other => panic!("{other:?}"),
    }
}

#[test]
fn history_is_told_oldest_first_with_unfinished_text() {
    let mut all = filled();
    let running = all.jobs[4].1;
    all.store
        .commit(vec![piece(running, 0, "so"), piece(running, 2, " far")]);
    let (turns, more) = history(&mut all.store, None, 0);
    let states: Vec<_> = turns.iter().map(|turn| turn.state).collect();
    assert_eq!(
        states,
        [
            JobPhase::Completed,
            JobPhase::Failed,
            JobPhase::Running,
            JobPhase::Held,
            JobPhase::Queued
        ]
    );
    assert!(!more);
    assert_eq!(turns[0].text, "completed");
    assert_eq!(turns[0].messages[0].text, "an answer\nto it");
    assert_eq!(turns[0].last.as_ref().unwrap()["stop"], "end_turn");
    assert_eq!(turns[2].messages[0].text, "so far");
    assert_eq!(turns[2].last, None);
    let (mut one, _) = history(&mut all.store, Some(running), 0);
    assert!(one[0].request.take().is_some(), "of one it is told whole");
    assert_eq!(one, turns[2..3]);
    let (later, _) = history(&mut all.store, None, turns[1].job.0);
    assert_eq!(later, turns[2..]);
    let unknown = Query::History {
        session: "none".to_owned(),
        job: None,
        after: 0,
        limit: 1,
        events: false,
    };
    let nothing = Loaded::History {
        turns: None,
        more: false,
    };
    assert_eq!(all.store.load(unknown), nothing);
}

#[test]
fn history_of_closed_session_is_still_read() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    // Names that sort around it.
    for name in ["even", "even-", "even.", "eve"] {
        let end = |store: &mut Bench, text: &str| {
            let (job, ..) = store.accept(asked(name, text));
            let line = final_of(text, End::Completed);
            let (end, texts) = (End::Completed, Some(vec![]));
            store.commit(vec![Write::Finish {
                job,
                end,
                line,
                texts,
            }]);
            job
        };
        end(&mut store, "before");
    }
    let close = || {
        let session = "even".to_owned();
        vec![Write::Close { session }]
    };
    let first = JobId(1);
    store.commit(close());
    let texts = |turns: &[rows::TurnRow]| -> Vec<String> {
        turns.iter().map(|turn| turn.text.clone()).collect()
    };
    assert_eq!(texts(&history(&mut store, None, 0).0), ["before"]);
    store.accept(asked("even", "anew"));
    assert_eq!(texts(&history(&mut store, None, 0).0), ["anew"]);
    let (turns, _) = history(&mut store, Some(first), 0);
    assert_eq!(texts(&turns), ["before"]);
    assert!(turns[0].request.is_some(), "it can be sent again");
    // One that is another session's isn't told as this one's.
    assert!(history(&mut store, Some(JobId(2)), 0).0.is_empty());
}

#[test]
fn history_page_always_fits_into_a_line() {
    let mut all = filled();
    for _ in 0..4 {
        let (job, ..) = all.store.accept(asked("even", &"\u{1}".repeat(200_000)));
        let mut texts = said(0, &"ö\n".repeat(300_000));
        texts.extend(said(1, &"x".repeat(300_000)));
        let texts = Some(texts);
        let text = "y".repeat(400_000);
        let line = Body::stored(&format!(
            r#"{{"type":"message_end","stop":"end_turn","text":"{text}","tool_trace":["{text}"]}}"#
        ));
        let end = End::Completed;
        all.store.commit(vec![Write::Finish {
            job,
            end,
            line,
            texts,
        }]);
    }
    let mut after = 0;
    let mut seen = 0;
    loop {
        let (turns, more) = history(&mut all.store, None, after);
        let line = serde_json::to_string(&turns).unwrap();
        assert!(line.len() < MAX_LINE_OUT * 3 / 4, "{}", line.len());
        seen += turns.len();
        let last = turns.last().unwrap();
        after = last.job.0;
        if !more {
            assert!(last.truncated && last.messages[0].truncated);
            assert_eq!(last.last.as_ref().unwrap()["truncated"], true);
            break;
        }
    }
    assert_eq!(seen, 5 + 4);
}

#[test]
fn message_comes_whole_in_pieces_between_characters() {
    let mut all = filled();
    let (job, ..) = all.store.accept(asked("even", "long"));
    let whole = "aö\u{1}".repeat(150_000);
    let (line, texts) = (final_of("x", End::Completed), Some(said(3, &whole)));
    all.store.commit(vec![Write::Finish {
        job,
        end: End::Completed,
        line,
        texts,
    }]);
    let mut piece = |session: &str, message, after| {
        let session = session.to_owned();
        let query = Query::Message {
            session,
            job,
            message,
            after,
        };
        match all.store.load(query) {
            Loaded::Message(piece) => piece,
            other => panic!("{other:?}"),
        }
    };
    let mut text = String::new();
    loop {
        let row = piece("even", 3, text.len() as u64).unwrap();
        assert_eq!(row.offset, text.len() as u64);
        let encoded = serde_json::to_string(&row.text).unwrap();
        assert!(encoded.len() <= agentd_protocol::limits::MAX_TEXT + 2);
        text.push_str(&row.text);
        if !row.truncated {
            break;
        }
    }
    assert_eq!(text, whole);
    assert_eq!(piece("even", 3, 2).unwrap().offset, 1, "inside a character");
    assert_eq!(piece("even", 2, 0), None);
    assert_eq!(piece("odd", 3, 0), None);
}

/// Of some times, that in which nobody else had the core.
fn quickest(mut work: impl FnMut()) -> Duration {
    let times = (0..10).map(|_| {
        let began = Instant::now();
        work();
        began.elapsed()
    });
    times.min().unwrap()
}

#[test]
#[ignore = "heavy"]
fn list_reads_no_more_than_its_rows() {
    let all = filled();
    all.store.close();
    let db = Connection::open(all.dir.path().join(FILE)).unwrap();
    db.execute_batch(
        "WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
         INSERT INTO jobs (job, seq, session, state, attempt, instance, accepted_at, finished_at,
            final_seq, expires_at, request, final)
            SELECT i, i * 2, 1, 'completed', 1, 'gone', 0, 0, i * 2 + 1, 0,
                hex(zeroblob(500)), 'f' FROM n;",
    )
    .unwrap();
    drop(db);
    let mut store = bench(all.dir.path(), "b", Role::Daemon, dead);
    let filters = [
        JobFilter::default(),
        JobFilter {
            state: Some(JobPhase::Failed),
            ..JobFilter::default()
        },
        JobFilter {
            state: Some(JobPhase::Held),
            ..JobFilter::default()
        },
        JobFilter {
            session: Some("odd".to_owned()),
            ..JobFilter::default()
        },
        JobFilter {
            since: Some(10_000),
            ..JobFilter::default()
        },
        JobFilter {
            before: Some(JobId(5)),
            ..JobFilter::default()
        },
    ];
    let lists = quickest(|| {
        for filter in filters.clone() {
            let limit = 50;
            let Loaded::JobList { jobs, .. } = store.load(Query::JobList { filter, limit }) else {
                panic!("jobs")
            };
            assert!(!jobs.is_empty());
        }
    });
    let db = Connection::open(all.dir.path().join(FILE)).unwrap();
    let whole = "SELECT count(*) FROM jobs WHERE length(request) = 7";
    let whole = quickest(|| {
        db.query_row(whole, [], |row| row.get::<_, i64>(0)).unwrap();
    });
    assert!(
        lists * 2 < whole,
        "{lists:?}, and the whole table once {whole:?}"
    );
}
