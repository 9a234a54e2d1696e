//! The contents of attachments, from the acceptance of their job until it is forgotten.

use agentd_core::attached::{Attached, Content};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::store::attachments::of_job;
use crate::store::prune::Pruned;

fn attached(name: &str, mime: &str, content: Vec<u8>) -> Attached {
    Attached {
        name: Some(name.to_owned()),
        mime: mime.to_owned(),
        content: Content::new(content),
    }
}

fn with(attached: &[Attached]) -> NewJob {
    let said = |of: &Attached| json!({"name": of.name, "mime": of.mime});
    let said: Vec<Value> = attached.iter().map(said).collect();
    NewJob {
        request: json!({"text": "look", "attachments": said}).to_string(),
        contents: attached.iter().map(|of| of.content.clone()).collect(),
        ..new(Some("main"))
    }
}

fn two() -> Vec<Attached> {
    let bytes = (0..300_001_u32).map(|n| n.to_le_bytes()[0]).collect();
    vec![
        attached("a.png", "image/png", bytes),
        attached("b", "text/plain", b"hi".to_vec()),
    ]
}

#[test]
fn attachments_are_read_in_order_and_backed_up() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(with(&two()));
    let (bare, ..) = store.accept(new(None));
    assert_eq!(of_job(dir.path(), job), Ok(two()), "beside the writer");
    assert_eq!(of_job(dir.path(), bare), Ok(Vec::new()));
    let path = None;
    let Loaded::Backup { path, .. } = store.load(Query::Backup { path, plan: None }) else {
        panic!("backup")
    };
    store.close();
    let other = TempDir::new().unwrap();
    std::fs::copy(path, other.path().join(FILE)).unwrap();
    assert_eq!(of_job(other.path(), job), Ok(two()));
    assert_eq!(of_job(dir.path(), job), Ok(two()));
}

#[test]
fn attachments_that_are_missing_are_said_so() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(with(&two()));
    store.close();
    let db = schema::reopen(&dir.path().join(FILE)).unwrap();
    db.execute("DELETE FROM attachments WHERE place = 0", [])
        .unwrap();
    let why = of_job(dir.path(), job).unwrap_err();
    assert_eq!(why, "the store has 1 of its 2 attachments");
    let nowhere = TempDir::new().unwrap();
    assert!(of_job(nowhere.path(), job).is_err());
}

#[test]
fn attachments_of_a_refused_dispatch_are_gone() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.commit(vec![keyed("k", "one")]);
    let both = vec![Write::Accept(Arc::new(with(&two()))), keyed("k", "other")];
    assert!(matches!(
        store.commit(both),
        Stored::Conflict { item: 1, .. }
    ));
    store.close();
    assert_eq!(rows(&schema::reopen(&dir.path().join(FILE)).unwrap()), 0);
}

#[test]
fn the_same_key_again_stores_nothing_more() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let keyed = || NewJob {
        key: Some("k".to_owned()),
        ..with(&two())
    };
    store.accept(keyed());
    let Stored::Committed(again) = store.commit(vec![Write::Accept(Arc::new(keyed()))]) else {
        panic!("stored")
    };
    assert!(matches!(again[0], Written::Duplicate { .. }));
    store.close();
    assert_eq!(rows(&schema::reopen(&dir.path().join(FILE)).unwrap()), 2);
}

fn rows(db: &Connection) -> i64 {
    db.query_row("SELECT count(*) FROM attachments", [], |row| row.get(0))
        .unwrap()
}

#[test]
fn attachments_count_and_go_with_their_job() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let (job, ..) = store.accept(with(&two()));
    store.commit(vec![finish(job, End::Completed)]);
    let (waits, ..) = store.accept(with(&two()));
    store.close();
    let db = schema::reopen(&dir.path().join(FILE)).unwrap();
    db.execute_batch("UPDATE sessions SET instance = NULL")
        .unwrap();
    let keep = Keep {
        age: Duration::from_secs(1_000_000),
        bytes: 500_000,
        every: Duration::from_secs(1),
    };
    let pruned = prune::slice_at(&db, keep, 10_000_000);
    assert_eq!(pruned, Ok(Pruned::Some(1)));
    assert_eq!(rows(&db), 2);
    assert_eq!(of_job(dir.path(), waits), Ok(two()));
}

#[test]
fn attachments_are_exported_in_joinable_pieces() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for _ in 0..2 {
        store.accept(with(&two()));
    }
    let (mut after, mut found) = (0, Vec::new());
    loop {
        let (rows, next) = store.listed(
            Query::Export {
                after,
                session: None,
            },
            "rows",
        );
        let bytes: usize = rows.iter().map(|row| row.to_string().len()).sum();
        assert!(bytes <= 512 * 1024);
        found.extend(rows);
        let Some(next) = next.as_u64() else { break };
        after = next;
    }
    for job in ["j1", "j2"] {
        for (place, expected) in (0..).zip(two()) {
            let of = |row: &&Value| {
                row["kind"] == "attachment" && row["job"] == job && row["place"] == place
            };
            let pieces = found.iter().filter(of);
            let joined: String = pieces.map(|row| row["data"].as_str().unwrap()).collect();
            assert!(
                STANDARD.decode(joined).unwrap() == expected.content.bytes(),
                "{job} {place}"
            );
        }
    }
}
