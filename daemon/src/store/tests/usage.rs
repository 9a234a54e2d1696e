//! What turns used, as it is taken out of their final lines.

use agentd_protocol::rows::UsageRow;
use agentd_protocol::work::JobPhase;

use super::*;

fn page(
    store: &mut Bench,
    since: Option<i64>,
    before: Option<JobId>,
) -> (Vec<UsageRow>, Option<JobId>) {
    let (turns, next) = store.listed(Query::Usage { since, before }, "turns");
    let turns = turns.into_iter();
    let turns = turns.map(|turn| serde_json::from_value(turn).unwrap());
    (turns.collect(), serde_json::from_value(next).unwrap())
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
    assert_eq!(local, [Some(true), Some(true), None, None]);
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
fn only_what_a_model_answered_is_local_or_not() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let mut local = |end, members: &str| {
        let line = format!(r#"{{"type":"message_end",{members}}}"#);
        ended(&mut store, 1000, end, &line);
        let (rows, _) = page(&mut store, None, None);
        rows[0].local
    };
    let echo = r#""provider":"echo","usage":null,"api_calls":[]"#;
    assert_eq!(local(End::Completed, echo), None);
    let early = r#""provider":"anthropic","usage":null"#;
    assert_eq!(local(End::Cancelled, early), None);
    let refused =
        r#""provider":"groq","local":false,"api_calls":[{"provider":"groq","class":"auth"}]"#;
    assert_eq!(local(End::Failed, refused), None);
    let aborted = r#""provider":"groq","api_calls":[{"provider":"groq","outcome":"cancelled"}]"#;
    assert_eq!(local(End::Cancelled, aborted), None);
    let late =
        r#""provider":"groq","api_calls":[{"provider":"groq","class":null},{"class":"auth"}]"#;
    assert_eq!(local(End::Failed, late), Some(false));
    let used = r#""provider":"vllm","usage":{"input_tokens":3}"#;
    assert_eq!(local(End::Failed, used), Some(true));
    assert_eq!(local(End::Completed, r#""provider":"openai""#), Some(false));
}

#[test]
fn what_each_of_several_models_used_is_told_apart() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let call = |provider: &str, model: &str, tokens: u64, more: &str| {
        format!(
            r#"{{"provider":"{provider}","model":"{model}","usage":{{"input_tokens":{tokens}}}{more}}}"#
        )
    };
    let paid = r#","cost":{"usd":0.25,"status":"estimated","as_of":"today"}"#;
    let calls = [
        call("anthropic", "a", 5, paid),
        call("anthropic", "a", 7, paid),
        call("home", "h", 2, r#","local":true"#),
        call("ollama", "o", 1, ""),
        r#"{"provider":"groq","model":"g","class":"auth","usage":null}"#.to_owned(),
        r#"{"provider":["strange"]}"#.to_owned(),
    ];
    let line = format!(
        r#"{{"type":"message_end","provider":"ollama","model":"o","local":true,"usage":{{"input_tokens":15}},"api_calls":[{}]}}"#,
        calls.join(",")
    );
    ended(&mut store, 1000, End::Completed, &line);
    let (rows, _) = page(&mut store, None, None);
    let told: Vec<_> = rows[0].others.iter().collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(
        (
            told[0].provider.as_str(),
            told[0].usage.input_tokens,
            told[0].usd
        ),
        ("anthropic", 12, Some(0.5))
    );
    assert_eq!((told[1].provider.as_str(), told[1].local), ("home", true));
    assert!(!told[0].local);
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
