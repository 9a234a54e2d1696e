//! What happens when models fail, and what is told of it.

use super::script::{failure, limited};
use super::*;
use crate::provider::Provider;

fn notes(lines: &[Value], code: &str) -> Vec<String> {
    let notes = lines.iter().filter(|line| line["code"] == code);
    notes
        .map(|line| line["text"].as_str().unwrap().to_owned())
        .collect()
}

fn calls(lines: &[Value]) -> Vec<String> {
    let calls = lines.last().unwrap()["api_calls"].as_array().unwrap();
    calls
        .iter()
        .map(|call| format!("{} {}", call["provider"].as_str().unwrap(), call["class"]))
        .collect()
}

fn busy() -> Step {
    fails(FailedAt::Status(503), Class::Overloaded)
}

#[tokio::test(start_paused = true)]
async fn rate_limit_goes_on_within_three_seconds() {
    let mut play = Play::new(&["a/m", "b/m"]);
    play.script("a", [limited(60)]);
    play.script("b", [Step::Says("b")]);
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::Done);
    let asked = play.models.asked();
    assert!(asked[1].at - asked[0].at <= Duration::from_secs(3));
    assert_eq!(calls(&lines), ["a \"rate_limit\"", "b null"]);
    let first = &lines.last().unwrap()["api_calls"][0];
    assert_eq!(
        (&first["status"], &first["retry_after"]),
        (&json!(429), &json!(60.0))
    );
    let told = notes(&lines, "fallback");
    assert!(
        told[0].contains("a/m") && told[0].contains("b/m is asked instead"),
        "{told:?}"
    );
    // The next turn leaves the first model alone until its minute is over.
    play.script("b", [Step::Says("again")]);
    let (_, lines) = play.turn("and").await;
    assert_eq!(calls(&lines), ["b null"]);
    assert!(notes(&lines, "fallback")[0].contains("a/m is passed over"));
    tokio::time::advance(Duration::from_secs(60)).await;
    play.script("a", [Step::Says("back")]);
    let (_, lines) = play.turn("and").await;
    assert_eq!(
        calls(&lines),
        ["a null"],
        "the next turn starts at the first"
    );
    assert_eq!(play.store.cooldowns().await.unwrap(), [], "it answered");
}

#[tokio::test(start_paused = true)]
async fn model_that_is_alone_is_asked_again() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [limited(10), busy(), Step::Says("at last")]);
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::Done);
    let asked = play.models.asked();
    let waits: Vec<u64> = asked
        .windows(2)
        .map(|two| (two[1].at - two[0].at).as_secs())
        .collect();
    assert_eq!(waits, [10, 4]);
    assert!(notes(&lines, "retry")[0].contains("asked again in 10.0 s"));
    assert_eq!(calls(&lines).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn chain_stays_with_the_third_for_the_turn() {
    let mut play = Play::new(&["a/m", "b/m", "c/m"]);
    play.script("a", [fails(FailedAt::Status(401), Class::Auth)]);
    play.script("b", [fails(FailedAt::Status(402), Class::Billing)]);
    play.script("c", [Step::Calls(vec![("read", "{}")]), Step::Says("done")]);
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::Done);
    assert_eq!(
        calls(&lines),
        ["a \"auth\"", "b \"billing\"", "c null", "c null"]
    );
    let last = lines.last().unwrap();
    assert_eq!(last["provider"], "c");
    assert_eq!(
        last["cost"],
        json!({"usd": 0.5, "status": "estimated", "source": "config"})
    );
    let kept = play.store.cooldowns().await.unwrap();
    let cooled: Vec<_> = kept
        .iter()
        .map(|one| (one.provider.as_str(), one.model.as_deref()))
        .collect();
    assert_eq!(cooled, [("a", Some("m")), ("b", None)]);
    assert!(kept[0].key.is_some() && !format!("{kept:?}").contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn text_that_was_abandoned_is_never_remembered() {
    let mut play = Play::new(&["a/m"]);
    let broken = failure(FailedAt::Transport);
    play.script(
        "a",
        [
            Step::Fails("half an", broken.clone(), Class::Timeout),
            Step::Fails("", broken, Class::Timeout),
            Step::Says("whole"),
        ],
    );
    let (_, lines) = play.turn("hi").await;
    let starts: Vec<_> = lines
        .iter()
        .filter(|line| line["type"] == "message_start")
        .collect();
    assert_eq!(starts.len(), 2);
    assert_eq!(
        (&starts[0]["message"], &starts[0]["replaces"]),
        (&json!(0), &Value::Null)
    );
    assert_eq!(
        (&starts[1]["message"], &starts[1]["replaces"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(lines.last().unwrap()["text"], "whole");
    assert_eq!(play.history(), ["user hi", "said whole"]);
}

#[tokio::test(start_paused = true)]
async fn refusal_ends_the_turn_and_is_not_remembered() {
    let mut play = Play::new(&["a/m", "b/m"]);
    play.script(
        "a",
        [Step::Stops(
            "I would",
            Stop::Refusal("content_filter".to_owned()),
        )],
    );
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::Refused("content_filter".to_owned()));
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["type"], &last["stop"]),
        (&json!("message_end"), &json!("refusal"))
    );
    assert_eq!(last["refusal"], "content_filter");
    assert_eq!(play.history(), ["user hi"]);
}

#[tokio::test(start_paused = true)]
async fn refusal_goes_one_further_unless_something_was_changed() {
    let refusal = || Step::Stops("", Stop::Refusal("no".to_owned()));
    let mut play = Play::new(&["a/m", "b/m", "c/m"]);
    play.plan.on_refusal = OnRefusal::Next;
    play.script(
        "a",
        [refusal(), Step::Calls(vec![("write", "{}")]), refusal()],
    );
    play.script("b", [refusal()]);
    let (_, lines) = play.turn("hi").await;
    assert_eq!(calls(&lines), ["a \"refusal\"", "b \"refusal\""]);
    let (_, lines) = play.turn("write").await;
    assert_eq!(calls(&lines), ["a null", "a \"refusal\""]);
}

#[tokio::test(start_paused = true)]
async fn answer_that_is_none_is_asked_again() {
    let mut play = Play::new(&["a/m"]);
    play.script(
        "a",
        [
            Step::Stops("cut", Stop::Missing),
            Step::Stops("", Stop::EndTurn),
            Step::Says("whole"),
        ],
    );
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::Done);
    assert_eq!(
        calls(&lines),
        [
            "a \"malformed_response\"",
            "a \"malformed_response\"",
            "a null"
        ]
    );
    assert_eq!(play.history(), ["user hi", "said whole"]);
}

#[tokio::test(start_paused = true)]
async fn key_that_is_missing_names_its_variable() {
    let mut play = Play::new(&["a/m"]);
    play.plan.chain[0].key = None;
    let (_, lines) = play.turn("hi").await;
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["class"], &last["code"]),
        (&json!("not_configured"), &json!("agent-auth"))
    );
    assert!(
        last["error"].as_str().unwrap().contains("`A_KEY`"),
        "{last}"
    );
    assert_eq!(play.models.asked().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn local_server_that_is_absent_is_no_request() {
    let mut play = Play::new(&["a/m"]);
    play.plan.requests = 1;
    let provider = (*play.plan.chain[0].provider).clone();
    let provider = Provider {
        local: true,
        ..provider
    };
    play.plan.chain[0].provider = Arc::new(provider);
    play.plan.chain[0].key = None;
    play.script(
        "a",
        [
            fails(FailedAt::Refused, Class::NotConfigured),
            Step::Says("up"),
        ],
    );
    let (_, lines) = play.turn("hi").await;
    let last = lines.last().unwrap();
    assert!(
        last["error"].as_str().unwrap().contains("http://a"),
        "{last}"
    );
    // Alone it is asked again at once: it may have been started.
    let (ending, _) = play.turn("again").await;
    assert_eq!(ending, Ending::Done);
}

#[tokio::test(start_paused = true)]
async fn failure_of_all_tells_class_and_time() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [limited(600)]);
    let (_, lines) = play.turn("hi").await;
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["code"], &last["retryable"]),
        (&json!("rate-limit"), &json!(true))
    );
    assert_eq!(
        (&last["class"], &last["retry_in"]),
        (&json!("rate_limit"), &json!(600.0))
    );
    // And nobody is asked before that time.
    tokio::time::advance(Duration::from_secs(100)).await;
    let (_, lines) = play.turn("again").await;
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["code"], &last["retry_in"]),
        (&json!("rate-limit"), &json!(500.0))
    );
    assert_eq!(play.models.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn tool_is_never_rerun_for_a_failed_model() {
    let mut play = Play::new(&["a/m", "b/m"]);
    play.script("a", [Step::Calls(vec![("write", "{}")]), busy(), busy()]);
    play.script("b", [Step::Says("done")]);
    let (ending, _) = play.turn("hi").await;
    assert_eq!(ending, Ending::Done);
    assert_eq!(*play.ran.lock().unwrap(), ["write{}"]);
    assert_eq!(
        play.history(),
        ["user hi", "calls write", "ok write done", "said done"]
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_is_overloaded_may_answer_later() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [busy(), busy(), busy(), busy()]);
    let (_, lines) = play.turn("hi").await;
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["code"], &last["retryable"], &last["class"]),
        (&json!("rate-limit"), &json!(true), &json!("overloaded"))
    );
}

#[tokio::test(start_paused = true)]
async fn silence_of_a_model_delays_no_next_one() {
    let mut play = Play::new(&["a/m", "b/m"]);
    let silent = [
        Step::Waits,
        Step::Waits,
        Step::Waits,
        Step::Waits,
        fails(FailedAt::TimedOut, Class::Timeout),
    ];
    play.script("a", silent);
    play.script("b", [Step::Says("b")]);
    let (_, lines) = play.turn("hi").await;
    assert_eq!(calls(&lines), ["a \"timeout\"", "b null"]);
}

#[tokio::test(start_paused = true)]
async fn model_that_was_not_asked_has_its_reason() {
    let mut play = Play::new(&["a/m", "b/m"]);
    for (provider, class, seconds) in [
        ("a", Class::Billing, None),
        ("b", Class::RateLimit, Some(300)),
    ] {
        let asked = seconds.map(Duration::from_secs);
        let whose = (provider, "m");
        let mut cooled = Cooldown::after(None, whose, class, asked, 1_000_000).unwrap();
        cooled.key = play.plan.chain[0].key.as_ref().map(report::fingerprint);
        play.store.cool(cooled).await.unwrap();
    }
    let (_, lines) = play.turn("hi").await;
    assert_eq!(
        lines.last().unwrap()["error"],
        "b/m: too many requests; it may answer again in 300.0 s"
    );
    assert_eq!(play.models.asked().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn summary_that_failed_is_told_as_such() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [Step::Says("one"), Step::Says("two")]);
    play.turn("first").await;
    play.turn("second").await;
    let overflow = || fails(FailedAt::Status(400), Class::ContextOverflow);
    play.script("a", [overflow(), limited(600)]);
    let (_, lines) = play.turn("third").await;
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["code"], &last["retry_in"]),
        (&json!("rate-limit"), &json!(600.0)),
        "{last:#}"
    );
}

#[tokio::test(start_paused = true)]
async fn cost_is_unknown_when_words_are_uncounted() {
    let mut play = Play::new(&["a/m"]);
    let cut = Step::Fails("half", failure(FailedAt::Transport), Class::Timeout);
    play.script("a", [cut, Step::Says("whole"), Step::Hangs("half")]);
    let (_, lines) = play.turn("hi").await;
    let cost = &lines.last().unwrap()["cost"];
    assert_eq!(
        (&cost["status"], &cost["usd"]),
        (&json!("unknown"), &Value::Null)
    );
    play.cancel_when_text("half");
    let (ending, lines) = play.turn("more").await;
    assert_eq!(ending, Ending::Cancelled);
    assert_eq!(lines.last().unwrap()["cost"]["status"], "unknown");
    // Who said nothing took nothing.
    play.script("a", [busy(), Step::Says("whole")]);
    let (_, lines) = play.turn("again").await;
    assert_eq!(lines.last().unwrap()["cost"]["usd"], 0.25);
}
