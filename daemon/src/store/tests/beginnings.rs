//! What a session begins with, as it is kept: what its agent is told, whose copy it is, its title.

use agentd_core::mcp::{McpServers, Reserving};
use agentd_core::store::{Fork, NewSession, Pins, SessionFilter, SessionRow};
use agentd_protocol::rows;

use super::*;

fn session(store: &mut Bench, session: &str) -> SessionRow {
    let names = vec![session.to_owned()];
    match store.load(Query::Sessions { names }) {
        Loaded::Sessions(mut rows) => rows.remove(0),
        other => panic!("{other:?}"),
    }
}

fn system(store: &mut Bench, name: &str) -> Option<String> {
    session(store, name).system
}

fn listed(store: &mut Bench, name: &str) -> rows::SessionRow {
    let query = Query::SessionList {
        filter: SessionFilter {
            name: Some(name.to_owned()),
            ..SessionFilter::default()
        },
        after: 0,
        limit: 1,
    };
    match store.load(query) {
        Loaded::SessionList { mut sessions, .. } => sessions.remove(0).1,
        other => panic!("{other:?}"),
    }
}

fn entitle(store: &mut Bench, name: &str, title: Option<&str>) {
    let (session, title) = (name.to_owned(), title.map(str::to_owned));
    let titled = store.commit(vec![Write::Title { session, title }]);
    let session = name.to_owned();
    assert_eq!(titled, Stored::Committed(vec![Written::Opened { session }]));
}

fn asked(text: &str) -> NewJob {
    NewJob {
        request: serde_json::json!({ "text": text }).to_string(),
        ..new(Some("main"))
    }
}

fn told(session: &str, text: &str) -> NewJob {
    NewJob {
        system: Some(text.into()),
        ..new(Some(session))
    }
}

#[test]
fn session_keeps_what_its_agent_is_told() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.accept(told("main", "be brief"));
    store.accept(new(Some("main")));
    assert_eq!(system(&mut store, "main").as_deref(), Some("be brief"));
    store.accept(new(Some("other")));
    assert_eq!(system(&mut store, "other"), None);
    let made = NewSession {
        name: Some("made".to_owned()),
        agent: "pi".to_owned(),
        cwd: "/".to_owned(),
        real_cwd: None,
        toolsets: None,
        system: Some("first".to_owned()),
        mcp_servers: McpServers::default(),
        fork: None,
        at: 1,
    };
    store.commit(vec![Write::Open(Box::new(made))]);
    assert_eq!(system(&mut store, "made").as_deref(), Some("first"));
    // The send that begins it may still say otherwise.
    store.accept(told("made", "second"));
    assert_eq!(system(&mut store, "made").as_deref(), Some("second"));
}

#[test]
fn title_that_was_set_outlives_turns_and_close() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(asked("first prompt"));
    assert_eq!(listed(&mut store, "main").title, "first prompt");
    entitle(&mut store, "main", Some("the parser"));
    store.commit(vec![finish(job, End::Completed)]);
    let (job, ..) = store.accept(asked("second prompt"));
    store.commit(vec![finish(job, End::Completed)]);
    assert_eq!(listed(&mut store, "main").title, "the parser");
    entitle(&mut store, "main", None);
    assert_eq!(listed(&mut store, "main").title, "first prompt");
    entitle(&mut store, "main", Some("closed"));
    let session = "main".to_owned();
    store.commit(vec![Write::Close { session }]);
    assert_eq!(listed(&mut store, "main").title, "closed");
    let (session, title) = ("nobody".to_owned(), None);
    let titled = store.commit(vec![Write::Title { session, title }]);
    assert_eq!(titled, Stored::Committed(vec![Written::Done]));
}

#[test]
fn fork_has_what_its_origin_has() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(asked("first prompt"));
    store.commit(vec![finish(job, End::Completed)]);
    let pins = Pins {
        model: Some("large".to_owned()),
        ..Pins::default()
    };
    let forked = NewSession {
        name: Some("other".to_owned()),
        agent: "pi".to_owned(),
        cwd: "/".to_owned(),
        real_cwd: None,
        toolsets: None,
        system: Some("be brief".to_owned()),
        mcp_servers: McpServers::default(),
        fork: Some(Box::new(Fork {
            from: "main".to_owned(),
            native: "n-1".to_owned(),
            turns: 7,
            pins: pins.clone(),
        })),
        at: 1,
    };
    store.commit(vec![Write::Open(Box::new(forked))]);
    let row = session(&mut store, "other");
    assert_eq!((row.forks.as_deref(), row.native), (Some("n-1"), None));
    assert_eq!((row.turns, row.pins), (7, pins));
    assert_eq!(listed(&mut store, "other").title, "first prompt");
    let (session_name, native) = ("other".to_owned(), Some("n-2".to_owned()));
    store.commit(vec![Write::Native {
        session: session_name,
        native,
    }]);
    let row = session(&mut store, "other");
    assert_eq!((row.forks, row.native.as_deref()), (None, Some("n-2")));
}

#[test]
fn session_keeps_its_servers_until_it_closes() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let list = |name: &str| {
        let text = format!(r#"[{{"type":"stdio","name":"{name}","command":"hush"}}]"#);
        McpServers::stored(Some(text))
    };
    let brings = |session: Option<&str>, to: McpServers| NewJob {
        reserves: Some(Box::new(Reserving {
            from: McpServers::default(),
            to,
        })),
        ..new(session)
    };
    store.accept(brings(Some("main"), list("files")));
    store.accept(new(Some("main")));
    let has = |store: &mut Bench| session(store, "main").mcp_servers;
    assert_eq!(has(&mut store), list("files"));
    let (job, ..) = store.accept(brings(Some("main"), list("web")));
    assert_eq!(has(&mut store), list("web"));
    let (rows, _) = store.listed(
        Query::Export {
            after: 0,
            session: None,
        },
        "rows",
    );
    let rows = serde_json::to_string(&rows).unwrap();
    assert!(rows.contains(r#""mcp_servers":["web"]"#), "{rows}");
    assert!(!rows.contains("hush"), "{rows}");
    for job in 1..=job.0 {
        store.commit(vec![finish(JobId(job), End::Completed)]);
    }
    store.commit(vec![Write::Close {
        session: "main".to_owned(),
    }]);
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    let kept = "SELECT count(*) FROM sessions WHERE mcp_servers IS NOT NULL";
    assert_eq!(db.query_row(kept, [], |row| row.get::<_, i64>(0)), Ok(0));
}
