//! What turns used, as it is taken out of their final lines.

use agentd_protocol::rows::UsageRow;
use agentd_protocol::work::JobPhase;

use super::*;

fn page(
    store: &mut Bench,
    since: Option<i64>,
    before: Option<JobId>,
) -> (Vec<UsageRow>, Option<JobId>) {
    match store.load(Query::Usage { since, before }) {
        Loaded::Usage { turns, next } => {
            let turns = turns.iter().map(|turn| serde_json::from_str(turn).unwrap());
            (turns.collect(), next)
        }
        other => panic!("{other:?}"),
    }
}

fn ended(store: &mut Bench, at: i64, end: End, line: &str) -> JobId {
    let (job, ..) = store.accept(NewJob {
        at,
        ..new(Some("s"))
    });
    let line = Body::stored(line);
    let texts = Vec::new();
    store.commit(vec![Write::Finish {
        job,
        end,
        line,
        texts,
    }]);
    job
}

#[test]
fn each_ended_turn_is_told_with_what_its_final_line_says_of_it() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let whole = r#"{"type":"message_end","agent":"pi","provider":"mine","model":"m","local":true,"text":"x","usage":{"input_tokens":3,"output_tokens":4,"cache_read_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"cost":{"usd":0.25,"status":"actual"},"queued_ms":5,"duration_ms":6}"#;
    let first = ended(&mut store, 1000, End::Completed, whole);
    let named =
        r#"{"type":"message_end","provider":"Ollama","cost":{"usd":null,"status":"unknown"}}"#;
    ended(&mut store, 2000, End::Completed, named);
    let hosted = r#"{"type":"error","code":"timeout","error":"late","provider":"groq"}"#;
    ended(&mut store, 3000, End::Failed, hosted);
    store.accept(new(Some("s")));
    ended(
        &mut store,
        4000,
        End::Interrupted,
        r#"{"type":"error","code":"interrupted"}"#,
    );

    let (rows, next) = page(&mut store, None, None);
    assert_eq!(next, None);
    let local: Vec<_> = rows.iter().rev().map(|row| row.local).collect();
    assert_eq!(local, [Some(true), Some(true), Some(false), None]);
    let states: Vec<_> = rows.iter().rev().map(|row| row.state).collect();
    let completed = JobPhase::Completed;
    let expected = [
        completed,
        completed,
        JobPhase::Failed,
        JobPhase::Interrupted,
    ];
    assert_eq!(states, expected);
    let oldest = rows.last().unwrap();
    assert_eq!((oldest.job, oldest.agent.as_str()), (first, "pi"));
    assert_eq!((oldest.cost.usd, oldest.duration_ms), (Some(0.25), 6));
    assert_eq!(oldest.usage.unwrap().output_tokens, 4);
    assert_eq!(rows[1].code.as_deref(), Some("timeout"));
    assert_eq!(
        rows[0].agent, "pi",
        "the session's, where the line has none"
    );

    let (later, _) = page(&mut store, Some(3000), None);
    assert_eq!(later.len(), 2);
    let (older, _) = page(&mut store, None, Some(rows[1].job));
    assert_eq!(older.len(), 2);
}

#[test]
fn a_page_reads_so_much_and_the_next_one_goes_on_behind_it() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let text = "x".repeat(500_000);
    let line = format!(r#"{{"type":"message_end","agent":"pi","text":"{text}"}}"#);
    let jobs: Vec<JobId> = (0..20)
        .map(|at| ended(&mut store, at, End::Completed, &line))
        .collect();
    let mut told = Vec::new();
    let mut before = None;
    for pages in 1.. {
        let (rows, next) = page(&mut store, None, before);
        assert!(rows.len() <= 9, "{}", rows.len());
        told.extend(rows.iter().rev().map(|row| row.job));
        before = next;
        if next.is_none() {
            assert_eq!(pages, 3);
            break;
        }
    }
    told.sort_unstable();
    assert_eq!(told, jobs);
}
