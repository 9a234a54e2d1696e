//! What turns used, as it is taken out of their final lines.

use agentd_protocol::Line;
use agentd_protocol::rows::UsageRow;
use agentd_protocol::sums::{By, NamedSum, Sum, sums};
use agentd_protocol::work::JobPhase;

use super::*;
use crate::store::usage;

fn page(
    store: &mut Bench,
    since: Option<i64>,
    before: Option<JobId>,
) -> (Vec<UsageRow>, Option<JobId>) {
    let (turns, next) = store.listed(
        Query::Usage {
            since,
            before,
            by: None,
            session: None,
        },
        "turns",
    );
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
    let texts = None;
    store.commit(vec![Write::Finish {
        job,
        end,
        line,
        texts,
    }]);
    job
}

#[test]
fn usage_of_a_turn_is_its_final_lines() {
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
fn usage_is_local_only_where_models_answered() {
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
    assert_eq!(
        local(End::Failed, late),
        None,
        "it may be an address at home"
    );
    let hosted = r#""provider":"groq","local":false"#;
    assert_eq!(local(End::Completed, hosted), Some(false));
    let used = r#""provider":"vllm","usage":{"input_tokens":3}"#;
    assert_eq!(local(End::Failed, used), Some(true));
    assert_eq!(local(End::Completed, r#""provider":"openai""#), None);
}

#[test]
fn usage_of_several_models_is_told_apart() {
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
    let home = ("home", Some(true));
    assert_eq!((told[1].provider.as_str(), told[1].local), home);
    assert_eq!(told[0].local, None);
}

#[test]
fn usage_page_goes_on_behind_the_last() {
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

fn added_up(store: &mut Bench, since: Option<i64>, by: By) -> (Sum, Vec<NamedSum>) {
    let by = Some(by);
    let query = Query::Usage {
        since,
        before: None,
        by,
        session: None,
    };
    let Loaded::Line(line) = store.load(query) else {
        panic!("a line")
    };
    match serde_json::from_str(line.as_json()).unwrap() {
        Line::Usage {
            total: Some(total),
            sums: Some(sums),
            turns,
            ..
        } => {
            assert!(turns.is_empty());
            (*total, sums)
        }
        other => panic!("{other:?}"),
    }
}

/// A turn of some model; every third one was answered by two.
fn turn(number: i64) -> String {
    let provider = ["ollama", "anthropic", "echo"][usize::try_from(number % 3).unwrap()];
    let calls = if number % 3 == 1 {
        r#""api_calls":[{"provider":"ollama","model":"small","usage":{"input_tokens":1,"output_tokens":1}}],"#
    } else {
        ""
    };
    format!(
        r#"{{"type":"message_end","agent":"pi","provider":"{provider}","model":"m{number}","text":"x",{calls}"usage":{{"input_tokens":{number},"output_tokens":4}},"cost":{{"usd":0.25,"status":"actual"}},"queued_ms":5,"duration_ms":{number}}}"#
    )
}

#[test]
fn usage_added_up_says_what_its_turns_say() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let day = 24 * 60 * 60 * 1000;
    let fill = |store: &mut Bench, numbers: std::ops::Range<i64>| {
        for number in numbers {
            ended(store, number * day / 4, End::Completed, &turn(number));
        }
        let failed = r#"{"type":"error","code":"timeout","error":"late"}"#;
        ended(store, 9 * day, End::Failed, failed);
        store.accept(new(Some("s")));
    };
    fill(&mut store, 1..10);
    let db = schema::reopen(&dir.path().join(FILE)).unwrap();
    // Some are noted, one by one; some aren't yet.
    assert_eq!(usage::note(&db, Duration::ZERO), Ok(1));
    assert_eq!(usage::note(&db, Duration::from_secs(10)), Ok(9));
    assert_eq!(usage::note(&db, Duration::from_secs(10)), Ok(0));
    fill(&mut store, 10..20);
    for by in [By::Agent, By::Provider, By::Model, By::Day] {
        for since in [None, Some(3 * day)] {
            let (mut rows, next) = page(&mut store, since, None);
            assert_eq!(next, None);
            rows.reverse();
            let (total, sums) = sums(&rows, by);
            let (ours, named) = added_up(&mut store, since, by);
            assert!(total.turns > 8 && total.local_tokens > 0);
            let plain = |sum: &Sum| serde_json::to_value(sum).unwrap();
            assert_eq!(plain(&ours), plain(&total));
            let names: Vec<_> = named.iter().map(|one| one.name.clone()).collect();
            assert_eq!(names, sums.keys().cloned().collect::<Vec<_>>());
            for one in &named {
                assert_eq!(plain(&one.sum), plain(&sums[&one.name]), "{:?}", one.name);
            }
        }
    }
}

#[test]
fn usage_of_many_new_turns_is_the_askers() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    ended(&mut store, 1, End::Completed, &turn(1));
    let db = schema::reopen(&dir.path().join(FILE)).unwrap();
    db.execute_batch(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)
         INSERT INTO jobs (job, seq, session, request, state, instance, attempt, accepted_at,
            expires_at, finished_at, final, final_seq)
         SELECT 100 + i, 1000 + 2 * i, session, request, state, instance, attempt, accepted_at,
            expires_at, finished_at, final, 1001 + 2 * i FROM n, (SELECT * FROM jobs LIMIT 1)",
    )
    .unwrap();
    let asked = || Query::Usage {
        since: None,
        before: None,
        by: Some(By::Model),
        session: None,
    };
    let (turns, next) = store.listed(asked(), "turns");
    assert!(!turns.is_empty() && !next.is_null());
    while usage::note(&db, Duration::from_secs(10)).unwrap() > 0 {}
    let (total, _) = added_up(&mut store, None, By::Model);
    assert_eq!(total.turns, 6001);
    // What is forgotten is in no sum.
    db.execute("DELETE FROM jobs WHERE job > 200", []).unwrap();
    assert_eq!(added_up(&mut store, None, By::Day).0.turns, 101);
}

#[test]
fn usage_under_many_names_is_the_askers() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    ended(&mut store, 1, End::Completed, &turn(1));
    let db = schema::reopen(&dir.path().join(FILE)).unwrap();
    while usage::note(&db, Duration::from_secs(10)).unwrap() > 0 {}
    db.execute_batch(
        "PRAGMA foreign_keys = off;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
         INSERT INTO used SELECT 100 + i, 1, 'completed', 'pi', 'p', 'm' || i, 1, 1, 1, 0.0, 0, 1,
            NULL FROM n",
    )
    .unwrap();
    assert_eq!(added_up(&mut store, None, By::Agent).0.turns, 2001);
    let asked = Query::Usage {
        since: None,
        before: None,
        by: Some(By::Model),
        session: None,
    };
    let (turns, next) = store.listed(asked, "turns");
    assert!(turns.len() == 1 && next.is_null());
}

#[test]
fn usage_of_a_session_is_its_own() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let used = |tokens: u64| {
        let tokens = serde_json::json!({"input_tokens": tokens, "output_tokens": 1});
        let line = serde_json::json!({"type": "message_end", "text": "x", "agent": "a", "provider": "p",
            "usage": tokens, "cost": {"usd": 0.5, "status": "actual"}, "duration_ms": 1});
        Body::stored(&line.to_string())
    };
    let turn = |store: &mut Bench, session: &str, tokens: u64| {
        let (job, ..) = store.accept(started(session));
        store.commit(vec![Write::Finish {
            job,
            end: End::Completed,
            line: used(tokens),
            texts: Some(Vec::new()),
        }]);
    };
    turn(&mut store, "main", 10);
    turn(&mut store, "other", 100);
    let db = Connection::open(dir.path().join(FILE)).unwrap();
    usage::note(&db, Duration::from_secs(10)).unwrap();
    // This one has no row of its own yet.
    turn(&mut store, "main", 20);
    let session = "other".to_owned();
    store.commit(vec![Write::Close { session }]);
    let mut asked = |session: Option<&str>, by| {
        let session = session.map(str::to_owned);
        let query = Query::Usage {
            since: None,
            before: None,
            by,
            session,
        };
        let Loaded::Line(line) = store.load(query) else {
            panic!("a line")
        };
        serde_json::from_str::<serde_json::Value>(line.as_json()).unwrap()
    };
    for (session, turns, tokens) in [("main", 2, 30), ("other", 1, 100), ("nobody", 0, 0)] {
        let total = asked(Some(session), Some(By::Model))["total"].take();
        let told = (total["turns"].clone(), total["input_tokens"].clone());
        assert_eq!(told, (turns.into(), tokens.into()), "{session}: {total:#}");
        let rows = asked(Some(session), None);
        assert_eq!(rows["turns"].as_array().unwrap().len(), turns, "{rows:#}");
    }
    let sums = asked(None, Some(By::Session))["sums"].take();
    let told: Vec<_> = sums.as_array().unwrap().iter().collect();
    let named = |sum: &serde_json::Value| (sum["name"].clone(), sum["sum"]["input_tokens"].clone());
    assert_eq!(named(told[0]), ("main".into(), 30.into()), "{sums:#}");
    assert_eq!(named(told[1]), ("other".into(), 100.into()), "{sums:#}");
}
