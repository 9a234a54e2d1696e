//! What a session's agent is told before the conversation, as the session keeps it.

use agentd_core::store::NewSession;

use super::*;

fn system(store: &mut Bench, session: &str) -> Option<String> {
    let names = vec![session.to_owned()];
    match store.load(Query::Sessions { names }) {
        Loaded::Sessions(rows) => rows.into_iter().next().and_then(|row| row.system),
        other => panic!("{other:?}"),
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
        at: 1,
    };
    store.commit(vec![Write::Open(Box::new(made))]);
    assert_eq!(system(&mut store, "made").as_deref(), Some("first"));
    // The send that begins it may still say otherwise.
    store.accept(told("made", "second"));
    assert_eq!(system(&mut store, "made").as_deref(), Some("second"));
}
