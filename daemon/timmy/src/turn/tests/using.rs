//! What becomes of a model's calls.

use super::*;
use crate::session::history::UNKNOWN;

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

#[tokio::test(start_paused = true)]
async fn tool_runs_and_its_model_hears_the_result() {
    let mut play = Play::new(&["a/m"]);
    play.script(
        "a",
        [
            Step::Calls(vec![("write", r#"{"x":1}"#)]),
            Step::Says("done"),
        ],
    );
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::Done);
    let start = of(&lines, "tool_start")[0];
    assert_eq!(
        (&start["name"], &start["input"]),
        (&json!("write"), &json!({"x": 1}))
    );
    assert_eq!(start["read_only"], false);
    let end = of(&lines, "tool_end")[0];
    assert_eq!(
        (&end["ok"], &end["output"]),
        (&json!(true), &json!("write done"))
    );
    assert_eq!(end["tool_call_id"], start["tool_call_id"]);
    let told = script::shown(&play.models.asked()[1].messages);
    assert_eq!(told, ["user hi", "calls write", "ok write done"]);
}

#[tokio::test]
async fn calls_that_only_read_run_at_once() {
    let mut play = Play::new(&["a/m"]);
    // Each `meet` ends only when another one runs.
    let calls = vec![
        ("meet", "{}"),
        ("meet", "{}"),
        ("write", "{}"),
        ("read", "{}"),
    ];
    play.script("a", [Step::Calls(calls), Step::Says("done")]);
    let turn = tokio::time::timeout(Duration::from_secs(60), play.turn("hi")).await;
    let (_, lines) = turn.expect("both run at the same time");
    let order: Vec<_> = lines
        .iter()
        .filter(|line| line["type"] == "tool_start" || line["type"] == "tool_end")
        .map(|line| {
            format!(
                "{} {}",
                line["type"].as_str().unwrap(),
                line["name"].as_str().unwrap_or("")
            )
        })
        .collect();
    assert_eq!(
        order,
        [
            "tool_start meet",
            "tool_start meet",
            "tool_end ",
            "tool_end ",
            "tool_start write",
            "tool_end ",
            "tool_start read",
            "tool_end ",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn call_that_is_none_is_never_run() {
    let mut play = Play::new(&["a/m"]);
    let calls = vec![
        ("rm", "{}"),
        ("write", r#"{"path":"/etc"#),
        ("write", "[1]"),
    ];
    play.script("a", [Step::Calls(calls), Step::Says("done")]);
    let (_, lines) = play.turn("hi").await;
    assert_eq!(play.ran.lock().unwrap().len(), 0);
    let ends = of(&lines, "tool_end");
    assert!(ends.iter().all(|end| end["ok"] == false));
    let history = play.history();
    assert!(
        history[2].contains("no tool `rm`") && history[2].contains("write"),
        "{history:?}"
    );
    for heard in &history[3..5] {
        assert!(heard.contains("not a JSON object"), "{heard}");
    }
    assert!(history[3].contains("/etc"));
}

#[tokio::test(start_paused = true)]
async fn replies_cut_in_calls_again_end_the_turn() {
    let mut play = Play::new(&["a/m"]);
    let cut = || Step::CutCalls(vec![("write", r#"{"path":"/etc"#)]);
    play.script("a", (0..9).map(|_| cut()));
    let (ending, _) = play.turn("hi").await;
    assert_eq!(ending, Ending::MaxTokens);
    assert_eq!(play.models.asked().len(), 3);
    assert_eq!(play.ran.lock().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn id_that_a_provider_repeats_is_changed() {
    let mut play = Play::new(&["a/m"]);
    play.models.always_calls("c1");
    let calls = || Step::Calls(vec![("read", "{}")]);
    play.script("a", [calls(), calls(), Step::Says("done")]);
    let (_, lines) = play.turn("hi").await;
    for kind in ["tool_start", "tool_end"] {
        let ids: Vec<_> = of(&lines, kind)
            .iter()
            .map(|line| &line["tool_call_id"])
            .collect();
        assert_eq!(ids, ["c1", "c1#2"], "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn tool_cancelled_ends_and_no_next_one_begins() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [Step::Calls(vec![("patient", "{}"), ("write", "{}")])]);
    play.cancel_when("tool_start");
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::Cancelled);
    assert_eq!(lines.last().unwrap()["stop"], "cancelled");
    assert_eq!(
        play.history(),
        [
            "user hi",
            "calls patient write",
            "failed stopped",
            "failed cancelled: it was not run"
        ]
    );
    assert_eq!(play.ran.lock().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn tool_that_ignores_its_end_is_dropped() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [Step::Calls(vec![("stubborn", "{}")])]);
    play.cancel_when("tool_start");
    let began = Instant::now();
    let (ending, _) = play.turn("hi").await;
    assert_eq!(ending, Ending::Cancelled);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "who asked waits 5 s"
    );
    assert_eq!(play.history()[2], format!("failed {UNKNOWN}"));
}

#[tokio::test(start_paused = true)]
async fn leave_that_nobody_gives_is_denied_and_told() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [Step::Calls(vec![("ask", "{}")]), Step::Says("well")]);
    let (_, lines) = play.turn("hi").await;
    let end = of(&lines, "tool_end")[0];
    assert_eq!(end["ok"], false);
    assert!(end["output"].as_str().unwrap().contains("nobody is there"));
    assert!(play.history()[2].contains("nobody is there"));
}

#[tokio::test(start_paused = true)]
async fn output_that_nobody_follows_is_dropped() {
    let mut play = Play::new(&["a/m"]);
    play.script(
        "a",
        [Step::Calls(vec![("noisy", "{}")]), Step::Says("done")],
    );
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::Done);
    let updates = of(&lines, "tool_update");
    assert!(
        !updates.is_empty() && updates.len() <= 64,
        "{}",
        updates.len()
    );
    let offsets: Vec<u64> = updates
        .iter()
        .map(|line| line["offset"].as_u64().unwrap())
        .collect();
    assert!(offsets.windows(2).all(|two| two[1] == two[0] + 5));
}
