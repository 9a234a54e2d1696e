//! What a list says of sessions, in the columns that are kept for it.

use agentd_core::store::{NewSession, SessionFilter};
use agentd_protocol::rows;

use super::prune::slice_at;
use super::*;
use crate::store::{listed, read};

const LONG: Duration = Duration::from_secs(10);

fn asks(session: &str, text: &str, at: i64) -> NewJob {
    NewJob {
        request: serde_json::json!({ "session": session, "text": text }).to_string(),
        at,
        ..new(Some(session))
    }
}

fn ends(job: JobId, text: &str) -> Write {
    Write::Finish {
        job,
        end: End::Completed,
        line: last_line(text),
        texts: Some(Vec::new()),
    }
}

fn turn(store: &mut Bench, session: &str, text: &str, answer: &str) -> JobId {
    let (job, ..) = store.accept(asks(session, text, 1_000));
    store.commit(vec![ends(job, answer)]);
    job
}

fn list(db: &Connection) -> Vec<rows::SessionRow> {
    let query = Query::SessionList {
        filter: SessionFilter::default(),
        after: 0,
        limit: 50,
    };
    match read::load(db, &query) {
        Loaded::SessionList { sessions, .. } => sessions.into_iter().map(|(_, row)| row).collect(),
        other => panic!("{other:?}"),
    }
}

/// Title and preview of each.
fn said(db: &Connection) -> Vec<(String, String)> {
    let rows = list(db).into_iter();
    rows.map(|row| (row.title, row.preview)).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(title, preview): &(&str, &str)| ((*title).to_owned(), (*preview).to_owned());
    pairs.iter().map(owned).collect()
}

fn kept(db: &Connection) -> Vec<(Option<String>, Option<String>)> {
    db.prepare("SELECT title, preview FROM sessions ORDER BY id")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

fn db(dir: &TempDir) -> Connection {
    schema::reopen(&dir.path().join(FILE)).unwrap()
}

#[test]
fn session_lists_read_no_job_that_has_ended() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let new_session = NewSession {
        name: Some("opened".to_owned()),
        agent: "pi".to_owned(),
        cwd: "/".to_owned(),
        real_cwd: None,
        toolsets: None,
        system: None,
        mcp_servers: agentd_core::mcp::McpServers::default(),
        fork: None,
        at: 500,
    };
    store.commit(vec![Write::Open(Box::new(new_session))]);
    turn(&mut store, "opened", "first\n prompt", "first answer");
    turn(&mut store, "opened", "second prompt", "second answer");
    turn(&mut store, "main", "hello", "hi");
    let far = 4_000_000_000_000;
    store.accept(asks("main", "waits", far));
    let db = db(&dir);
    db.execute_batch(
        "UPDATE jobs SET request = '', final = '', accepted_at = 0, finished_at = 0
         WHERE final_seq IS NOT NULL",
    )
    .unwrap();
    assert_eq!(
        said(&db),
        pairs(&[("first prompt", "second answer"), ("hello", "hi")])
    );
    let rows = list(&db);
    assert_eq!(rows[0].created_at, agentd_core::rfc3339(500));
    assert!(rows[0].last_active_at > rows[0].created_at);
    assert_eq!(rows[1].last_active_at, agentd_core::rfc3339(far));
}

#[test]
fn session_lists_say_how_full_contexts_are() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let context = |db: &Connection| {
        let row = list(db).remove(0);
        (row.context_tokens, row.context_window)
    };
    let mut said = |head: &str, text: &str| {
        let (job, ..) = store.accept(asks("main", "x", 1_000));
        let line = format!(
            r#"{{"type":"message_end",{head}"text":"{text}","tool_trace":[{{"context_tokens":7}}]}}"#
        );
        store.commit(vec![Write::Finish {
            job,
            end: End::Completed,
            line: Body::stored(&line),
            texts: Some(Vec::new()),
        }]);
    };
    let db = db(&dir);
    let full = r#""context_tokens":12,"context_window":900,"#;
    said("", "a");
    assert_eq!(context(&db), (None, None));
    said(full, &"a".repeat(5000));
    assert_eq!(context(&db), (Some(12), Some(900)));
    // A turn that says nothing of it leaves it as it was said.
    said("", "b");
    assert_eq!(context(&db), (Some(12), Some(900)));
    said(full, "c");
    store.close();
    // The columns that an earlier version left as they were are made anew.
    db.execute_batch("UPDATE sessions SET listed_turns = NULL, context_tokens = 1")
        .unwrap();
    assert_eq!(context(&db), (Some(12), Some(900)));
    listed::make_anew(&db, 1).unwrap();
    assert_eq!(context(&db), (Some(12), Some(900)));
}

#[test]
fn sessions_of_an_earlier_version_are_listed_alike() {
    let dir = TempDir::new().unwrap();
    let before = &migrations::MIGRATIONS[..7];
    drop(schema::prepare(dir.path(), before).unwrap());
    db(&dir)
        .execute_batch(
            r#"INSERT INTO sessions (id, name, agent, cwd, named, turns, created_at)
                VALUES (1, 'main', 'pi', '/', 1, 2, 10), (2, 'empty', 'pi', '/', 1, 0, 20),
                    (3, 'gone#3', 'pi', '/', 0, 1, 30), (4, 'waits', 'pi', '/', 1, 0, 40);
            INSERT INTO jobs (job, seq, session, state, attempt, instance, accepted_at,
                finished_at, final_seq, expires_at, request, final)
                VALUES (1, 1, 1, 'completed', 1, 'x', 50, 60, 2, 9, '{"text":"a"}', '{"text":"A"}'),
                    (2, 3, 1, 'completed', 1, 'x', 70, 80, 4, 9, '{"text":"b"}', '{"text":"B"}'),
                    (3, 5, 3, 'completed', 1, 'x', 90, 91, 6, 9, '{"text":"c"}', '{"text":"C"}'),
                    (4, 7, 4, 'queued', 0, 'x', 95, NULL, NULL, 9, '{"text":"d"}', NULL);"#,
        )
        .unwrap();
    bench(dir.path(), "a", Role::Daemon, dead).close();
    let db = db(&dir);
    let listed = pairs(&[("a", "B"), ("", ""), ("d", "")]);
    assert_eq!(said(&db), listed);
    let rows = list(&db);
    assert_eq!(rows[0].last_active_at, agentd_core::rfc3339(80));
    assert_eq!(listed::note(&db, Duration::ZERO), Ok(1));
    assert_eq!(listed::note(&db, LONG), Ok(3));
    assert_eq!(listed::note(&db, LONG), Ok(0));
    assert_eq!(list(&db), rows);
    let text = |text: &str| Some(text.to_owned());
    let columns = [
        (text("a"), text("B")),
        (None, None),
        (None, None),
        (text("d"), None),
    ];
    assert_eq!(kept(&db), columns);
}

#[test]
fn session_lists_know_turns_of_another_version() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    turn(&mut store, "main", "a", "A");
    let db = db(&dir);
    db.execute_batch(
        r#"INSERT INTO jobs (job, seq, session, state, attempt, instance, accepted_at,
                finished_at, final_seq, expires_at, request, final)
            VALUES (9, 90, 1, 'completed', 1, 'x', 1, 2, 91, 9, '{"text":"b"}', '{"text":"B"}');
            UPDATE sessions SET turns = turns + 1;"#,
    )
    .unwrap();
    assert_eq!(said(&db), pairs(&[("a", "B")]));
    turn(&mut store, "main", "c", "C");
    db.execute_batch("UPDATE jobs SET request = '', final = ''")
        .unwrap();
    assert_eq!(said(&db), pairs(&[("a", "C")]));
}

#[test]
fn sessions_are_listed_without_what_was_forgotten() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for text in ["a", "b", "c"] {
        turn(&mut store, "main", text, text);
    }
    turn(&mut store, "other", "d", "d");
    let db = db(&dir);
    db.execute_batch("UPDATE jobs SET finished_at = job")
        .unwrap();
    let active = list(&db)[0].last_active_at.clone();
    let keep = |at: i64| {
        let keep = Keep {
            age: Duration::ZERO,
            bytes: u64::MAX,
            every: LONG,
        };
        slice_at(&db, keep, at).unwrap();
        said(&db)
    };
    assert_eq!(keep(2), pairs(&[("b", "c"), ("d", "d")]));
    assert_eq!(keep(3), pairs(&[("c", "c"), ("d", "d")]));
    assert_eq!(keep(4), pairs(&[("", ""), ("d", "d")]));
    assert_eq!(kept(&db)[0], (None, None));
    assert_eq!(list(&db)[0].last_active_at, active);
    turn(&mut store, "main", "e", "E");
    assert_eq!(said(&db)[0], ("e".to_owned(), "E".to_owned()));
}

#[test]
fn closed_sessions_keep_nothing_for_lists() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    turn(&mut store, "main", "a", "A");
    let session = "main".to_owned();
    store.commit(vec![Write::Close { session }]);
    assert_eq!(kept(&db(&dir)), [(None, None)]);
    turn(&mut store, "main", "b", "B");
    assert_eq!(said(&db(&dir)), pairs(&[("b", "B")]));
}
