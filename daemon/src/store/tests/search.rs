//! What was said is found, and a session has one name at a time.

use agentd_protocol::rows::FoundRow;
use agentd_protocol::{Line, serde_json};

use super::*;

fn turn(store: &mut Bench, session: &str, text: &str, answer: &str) -> JobId {
    let request = serde_json::json!({ "session": session, "text": text }).to_string();
    let (job, ..) = store.accept(NewJob {
        request,
        ..new(Some(session))
    });
    let end = Write::Finish {
        job,
        end: End::Completed,
        line: last_line(answer),
        texts: None,
    };
    store.commit(vec![end]);
    job
}

fn found(
    store: &mut Bench,
    words: &[&str],
    session: Option<&str>,
    before: Option<JobId>,
    limit: usize,
) -> (Vec<FoundRow>, Option<JobId>) {
    let query = Query::Search {
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        session: session.map(str::to_owned),
        before,
        limit,
    };
    match store.load(query) {
        Loaded::Line(line) => match serde_json::from_str(line.as_json()).unwrap() {
            Line::SessionSearch { turns, next, .. } => (turns, next),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn search_finds_all_words_in_either_part() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let first = turn(&mut store, "one", "Wörter \"quoted\" here", "nothing");
    let second = turn(&mut store, "two", "a question", "the ANSWER with WÖRTER");
    turn(&mut store, "one", "else", "text");
    // One that has no end has no answer.
    store.accept(new(Some("three")));
    let jobs = |found: (Vec<FoundRow>, _)| {
        let rows = found.0.into_iter();
        rows.map(|row| (row.job, row.part)).collect::<Vec<_>>()
    };
    let prompt = |job| (job, "prompt".to_owned());
    let answer = |job| (job, "answer".to_owned());
    let all = found(&mut store, &["wörter"], None, None, 10);
    assert_eq!(jobs(all), [answer(second), prompt(first)]);
    let both = found(&mut store, &["question", "answer"], None, None, 10);
    assert_eq!(jobs(both), [prompt(second)]);
    let quoted = found(&mut store, &["\"quoted\""], Some("one"), None, 10);
    assert_eq!(jobs(quoted), [prompt(first)]);
    // The name of a member is nothing that was said.
    for (words, session) in [(["session"], None), (["wörter"], Some("nobody"))] {
        let (none, next) = found(&mut store, &words, session, None, 10);
        assert!(none.is_empty() && next.is_none(), "{none:?}");
    }
}

#[test]
fn search_pages_go_on_behind_the_last_turn() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for number in 0..5 {
        turn(&mut store, "one", &format!("same {number}"), "x");
    }
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let (page, next) = found(&mut store, &["same"], None, before, 2);
        assert!(page.len() <= 2, "{page:?}");
        seen.extend(page.into_iter().map(|row| row.job.0));
        before = next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, [5, 4, 3, 2, 1]);
}

fn rename(store: &mut Bench, session: &str, to: &str) -> Stored {
    let (session, to) = (session.to_owned(), to.to_owned());
    store.commit(vec![Write::Rename { session, to }])
}

#[test]
fn renamed_session_keeps_its_turns_and_agents_id() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let job = turn(&mut store, "old", "said", "heard");
    let native = Write::Native {
        session: "old".to_owned(),
        native: Some("n-1".to_owned()),
    };
    store.commit(vec![native]);
    let session = "new".to_owned();
    let opened = Stored::Committed(vec![Written::Opened { session }]);
    assert_eq!(rename(&mut store, "old", "new"), opened);
    let names = ["old", "new"].map(str::to_owned).to_vec();
    let Loaded::Sessions(rows) = store.load(Query::Sessions { names }) else {
        panic!("no sessions");
    };
    let [row] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!(
        (row.name.as_str(), row.native.as_deref()),
        ("new", Some("n-1"))
    );
    let (of_it, _) = found(&mut store, &["said"], Some("new"), None, 10);
    assert_eq!(of_it[0].job, job);
    // Another one is made under the old name.
    turn(&mut store, "old", "anew", "x");
    assert!(
        found(&mut store, &["said"], Some("old"), None, 10)
            .0
            .is_empty()
    );
    let nobody = Stored::Committed(vec![Written::Done]);
    assert_eq!(rename(&mut store, "nobody", "other"), nobody);
}

#[test]
fn rename_takes_no_name_and_no_busy_session() {
    let dir = TempDir::new().unwrap();
    let alive = |instance: &str| match instance {
        "other" => Liveness::Alive { pid: 7 },
        _ => Liveness::Dead,
    };
    let mut store = bench(dir.path(), "a", Role::Daemon, alive);
    turn(&mut store, "one", "x", "y");
    turn(&mut store, "two", "x", "y");
    assert_eq!(rename(&mut store, "one", "two"), Stored::Taken);
    let mut other = bench(dir.path(), "other", Role::OneShot, alive);
    other.accept(new(Some("theirs")));
    assert!(matches!(
        rename(&mut store, "theirs", "mine"),
        Stored::Leased { pid: 7, .. }
    ));
    store.accept(new(Some("one")));
    assert!(matches!(
        rename(&mut store, "one", "three"),
        Stored::Orphaned { .. }
    ));
}
