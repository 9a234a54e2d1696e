//! Turns with scripted models and tools, in virtual time.

mod failing;
pub(crate) mod script;
mod steering;
mod using;

use serde_json::{Value, json};

use super::*;
use crate::failover::Class;
use crate::model::FailedAt;
use script::{Play, Step, fails, says, user};

#[tokio::test(start_paused = true)]
async fn text_is_told_piece_by_piece_and_kept() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [Step::Thinks("hm"), Step::Says("Hello you")]);
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::Done);
    let kinds: Vec<&str> = lines
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "message_start",
            "thinking_delta",
            "message_delta",
            "message_delta",
            "message_end"
        ]
    );
    assert_eq!(
        (&lines[3]["text"], &lines[3]["offset"], &lines[3]["message"]),
        (&json!(" you"), &json!(5), &json!(0))
    );
    let last = &lines[4];
    assert_eq!(last["text"], "Hello you");
    assert_eq!(
        (&last["provider"], &last["model"]),
        (&json!("a"), &json!("m"))
    );
    assert_eq!(last["api_calls"].as_array().unwrap().len(), 1);
    assert_eq!(last["api_calls"][0]["class"], Value::Null);
    assert_eq!(last["usage"]["output_tokens"], 10);
    let used = last["usage"]["input_tokens"].as_u64().unwrap() + 10;
    assert_eq!(last["context_tokens"], used);
    assert_eq!(last["context_window"], Value::Null);
    assert_eq!(play.history(), ["user hi", "said Hello you"]);
}

#[tokio::test(start_paused = true)]
async fn the_next_turn_knows_the_last_one() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [Step::Says("one"), Step::Says("two")]);
    play.turn("first").await;
    play.turn("second").await;
    let asked = play.models.asked();
    let told = script::shown(&asked[1].messages);
    assert_eq!(told, ["user first", "said one", "user second"]);
    assert!(asked[1].system.contains("the basis"));
}

#[tokio::test(start_paused = true)]
async fn reply_that_was_not_streamed_is_told() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [Step::Silently("whole")]);
    let (_, lines) = play.turn("hi").await;
    assert_eq!(lines[1]["text"], "whole");
}

#[tokio::test(start_paused = true)]
async fn suspicion_of_a_refusal_is_reported_only() {
    let mut play = Play::new(&["a/m", "b/m"]);
    play.script("a", [Step::Says("I'm sorry, but I can't do that.")]);
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::Done);
    assert_eq!(lines.last().unwrap()["suspected_refusal"], true);
    assert_eq!(play.models.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn turn_has_a_limit_of_requests() {
    let mut play = Play::new(&["a/m"]);
    play.plan.requests = 3;
    play.script("a", (0..9).map(|_| Step::Calls(vec![("read", "{}")])));
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::MaxRequests);
    assert_eq!(lines.last().unwrap()["stop"], "max_turn_requests");
    assert_eq!(play.models.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn cancelled_turn_keeps_what_was_said() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [Step::Hangs("half of"), Step::Says("b")]);
    play.cancel_when_text("half of");
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::Cancelled);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["stop"], &last["text"]),
        (&json!("cancelled"), &json!("half of"))
    );
    assert_eq!(last["api_calls"][0]["class"], "cancelled");
    play.turn("more").await;
    assert_eq!(
        play.history(),
        ["user hi", "said half of", "user more", "said b"]
    );
}

#[tokio::test(start_paused = true)]
async fn timeout_of_a_turn_keeps_what_it_had() {
    let mut play = Play::new(&["a/m"]);
    play.plan.deadline = Some(Duration::from_secs(600));
    play.script("a", [Step::Hangs("half")]);
    let (ending, lines) = play.turn("hi").await;
    assert_eq!(ending, Ending::TimedOut);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["code"], &last["text"]),
        (&json!("timeout"), &json!("half"))
    );
}

#[tokio::test(start_paused = true)]
async fn reader_that_is_slow_holds_up_the_model() {
    let mut play = Play::new(&["a/m"]);
    let text: &'static str = Box::leak("word ".repeat(5_000).into_boxed_str());
    play.script("a", [Step::Says(text)]);
    let sent = play.models.pieces_sent();
    let room = play.room;
    let (_, lines) = play
        .turn_watched("hi", move |line| {
            if line["type"] == "message_start" {
                // Nobody has read any further: what waits is bounded.
                assert!(sent() <= 2 * room + 64, "{} pieces wait", sent());
            }
        })
        .await;
    assert_eq!(
        lines.last().unwrap()["text"].as_str().unwrap().len(),
        25_000
    );
}

#[tokio::test(start_paused = true)]
async fn conversation_is_shortened_before_it_overflows() {
    let mut play = Play::new(&["a/m"]);
    play.fits(4_000);
    let long: &'static str = Box::leak("x".repeat(8_000).into_boxed_str());
    play.script(
        "a",
        [
            Step::Says("one"),
            Step::Says("the summary"),
            Step::Says("two"),
        ],
    );
    play.model_counts(3_500);
    play.turn(long).await;
    let (ending, lines) = play.turn("second").await;
    assert_eq!(ending, Ending::Done);
    let asked = play.models.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked[1].system.contains("summaries") && asked[1].tools == 0);
    let told = script::shown(&asked[2].messages);
    assert!(told[0].ends_with("the summary"), "{told:?}");
    assert_eq!(told[1..], ["said one", "user second"]);
    let last = lines.last().unwrap();
    assert_eq!(
        last["api_calls"].as_array().unwrap().len(),
        2,
        "the summary is one"
    );
    assert_eq!(last["text"], "two", "nobody hears the summary");
    let note = lines.iter().find(|line| line["code"] == "compaction");
    assert!(note.is_some(), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_overflow_shortens_the_conversation_and_asks_again() {
    let mut play = Play::new(&["a/m"]);
    play.script(
        "a",
        [
            Step::Says("one"),
            fails(FailedAt::Status(400), Class::ContextOverflow),
            Step::Says("the summary"),
            Step::Says("two"),
        ],
    );
    play.turn("first").await;
    let (ending, lines) = play.turn("second").await;
    assert_eq!(ending, Ending::Done);
    assert_eq!(
        lines.last().unwrap()["api_calls"][0]["class"],
        "context_overflow"
    );
    assert_eq!(play.history(), ["user second", "said two"]);
    assert_eq!(play.session().history().summary(), Some("the summary"));
}

#[tokio::test(start_paused = true)]
async fn an_overflow_that_nothing_helps_ends_the_turn() {
    let mut play = Play::new(&["a/m"]);
    let overflow = || fails(FailedAt::Status(400), Class::ContextOverflow);
    play.script("a", [overflow(), overflow(), overflow()]);
    let (_, lines) = play.turn("first").await;
    assert_eq!(lines.last().unwrap()["code"], "context-overflow");
    assert_eq!(
        play.models.asked().len(),
        1,
        "one message can't be shortened"
    );
}

#[tokio::test(start_paused = true)]
async fn a_session_is_shortened_on_request() {
    let mut play = Play::new(&["a/m"]);
    play.script(
        "a",
        [Step::Says("one"), Step::Says("short"), Step::Says("two")],
    );
    play.turn("first").await;
    play.session_mut()
        .append(vec![user("second")])
        .await
        .unwrap();
    assert_eq!(play.compact(Some("names")).await, Ok("short".to_owned()));
    let asked = play.models.asked();
    let question = script::shown(&asked[1].messages).join("");
    assert!(
        question.contains("names") && question.contains("first"),
        "{question}"
    );
    assert_eq!(play.history(), ["user second"]);
    let again = play.compact(None).await;
    assert!(matches!(again, Err(Ending::Failed(_))), "{again:?}");
}

#[test]
fn a_scripted_reply_is_one() {
    assert_eq!(says("x").message.text, "x");
}
