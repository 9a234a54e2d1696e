//! Steers for a turn in flight: taken once, or refused.

use super::*;
use crate::turn::inbox::PendingSteer;

fn steer(text: &str) -> PendingSteer {
    PendingSteer {
        id: None,
        text: text.to_owned(),
    }
}

/// Steers a turn when it says a line of this type, and plays it.
async fn steered(play: &mut Play, at: &'static str, text: &'static str) -> (Ending, Vec<Value>) {
    // The turn is never far ahead of who reads it.
    play.room = 1;
    let mut pending = Some(text);
    // The inbox is made by the turn: it is found when the first line is read.
    play.prepare("hi").await;
    let inbox = Arc::clone(&play.inbox);
    play.play(&mut move |line: &Value| {
        if line["type"] == at
            && let Some(text) = pending.take()
        {
            let _late = inbox.put(steer(text));
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn steering_comes_between_tools_and_the_next_request() {
    let mut play = Play::new(&["a/m"]);
    let calls = vec![("write", "{}"), ("write", "{}")];
    play.script("a", [Step::Calls(calls), Step::Says("done")]);
    let (_, lines) = steered(&mut play, "tool_start", "left").await;
    assert_eq!(
        play.history(),
        [
            "user hi",
            "calls write write",
            "ok write done",
            "ok write done",
            "user left",
            "said done"
        ]
    );
    let steer = lines
        .iter()
        .position(|line| line["type"] == "steer")
        .unwrap();
    let said = lines
        .iter()
        .position(|line| line["type"] == "message_delta")
        .unwrap();
    assert!(steer < said, "it is answered when it is taken");
    assert_eq!(lines[steer]["ok"], true);
}

#[tokio::test(start_paused = true)]
async fn steering_during_the_last_reply_is_answered() {
    let mut play = Play::new(&["a/m"]);
    let thinks = [Step::Thinks("hm"), Step::Waits, Step::Says("first")];
    play.script("a", thinks);
    play.script("a", [Step::Says("second")]);
    let (ending, lines) = steered(&mut play, "thinking_delta", "left").await;
    assert_eq!(ending, Ending::Done);
    assert_eq!(
        play.history(),
        ["user hi", "said first", "user left", "said second"]
    );
    assert_eq!(lines.last().unwrap()["text"], "second");
}

#[tokio::test(start_paused = true)]
async fn steering_too_late_is_refused_and_not_kept() {
    let mut play = Play::new(&["a/m"]);
    play.script("a", [Step::Hangs("half"), Step::Says("next")]);
    play.cancel_when_text("half");
    let (ending, lines) = steered(&mut play, "message_delta", "left").await;
    assert_eq!(ending, Ending::Cancelled);
    let refusal = lines.iter().find(|line| line["code"] == "session-idle");
    assert!(refusal.is_some(), "{lines:#?}");
    assert!(!lines.iter().any(|line| line["type"] == "steer"));
    assert!(play.inbox.put(steer("later")).is_err());
    play.turn("more").await;
    assert!(!play.history().concat().contains("left"));
}

#[tokio::test(start_paused = true)]
async fn steering_is_no_way_around_the_limit() {
    let mut play = Play::new(&["a/m"]);
    play.plan.requests = 1;
    play.script("a", [Step::Thinks("hm"), Step::Waits, Step::Says("first")]);
    let (ending, lines) = steered(&mut play, "thinking_delta", "left").await;
    assert_eq!(ending, Ending::Done);
    assert!(lines.iter().any(|line| line["code"] == "session-idle"));
    assert_eq!(play.models.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn steering_without_a_request_left_is_refused() {
    let mut play = Play::new(&["a/m"]);
    play.plan.requests = 1;
    play.script("a", [Step::Calls(vec![("write", "{}")])]);
    let (ending, lines) = steered(&mut play, "tool_start", "left").await;
    assert_eq!(ending, Ending::MaxRequests);
    assert!(lines.iter().any(|line| line["code"] == "session-idle"));
    assert!(!lines.iter().any(|line| line["type"] == "steer"));
    assert!(!play.history().concat().contains("left"));
}
