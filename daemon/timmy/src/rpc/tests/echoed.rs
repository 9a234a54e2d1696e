//! Turns of the scripted provider in sessions: kept as those of a model are.

use super::sessions::{Home, Process};
use super::*;
use crate::turn::tests::script::{Step, shown};

fn send(text: &str, native: Option<&str>) -> Value {
    let mut line = json!({"type": "send", "id": "t1", "text": text, "session": "s",
        "provider": "echo", "cwd": "/tmp"});
    if let Some(native) = native {
        line["native"] = json!(native);
    }
    line
}

/// The session's name here, as the turn announced it.
fn announced(lines: &[Value]) -> Option<&str> {
    let line = lines.iter().find(|line| line["type"] == "session")?;
    assert_eq!(line["id"], "t1");
    line["native"].as_str()
}

async fn play(process: &mut Process, line: Value) -> Vec<Value> {
    process.say(line).await;
    process.until_final().await
}

#[tokio::test]
async fn echo_is_known_to_a_model_later() {
    let home = Home::new();
    home.models.script("a", [Step::Says("three")]);
    let lines = play(&mut home.process(), send("one  \none", None)).await;
    let native = announced(&lines).expect("a name").to_owned();
    // Its process is gone, and so is what that had in memory.
    let lines = play(&mut home.process(), send("two [[tool]]", Some(&native))).await;
    assert_eq!(announced(&lines), None, "it is announced once");
    let mut asked = send("and?", Some(&native));
    asked["provider"] = json!("a");
    let lines = play(&mut home.process(), asked).await;
    assert_eq!(lines.last().unwrap()["text"], "three");
    let asked = home.models.asked();
    assert!(asked[0].system.contains("abc"), "its soul: {asked:?}");
    let told = shown(&asked[0].messages);
    let known = [
        "user one  \none",
        "said one  \none",
        "user two [[tool]]",
        "said two",
        "user and?",
    ];
    assert_eq!(told, known);
}

#[tokio::test]
async fn echo_answers_where_nothing_can_be_kept() {
    let home = Home::new();
    // Root may write anywhere, but not below a file.
    std::fs::write(home.state(), "").unwrap();
    let lines = play(&mut home.process(), send("one", None)).await;
    let notes: Vec<_> = lines.iter().filter(|line| line["type"] == "note").collect();
    let text = notes[1]["text"].as_str().unwrap();
    assert!(text.starts_with("this turn is not kept"), "{text}");
    assert_eq!(announced(&lines), None);
    assert_eq!(lines.last().unwrap()["text"], "one");
}

#[tokio::test]
async fn echo_without_a_session_keeps_nothing() {
    let home = Home::new();
    let mut line = send("one", None);
    line.as_object_mut().unwrap().remove("session");
    let lines = play(&mut home.process(), line).await;
    assert_eq!(lines.last().unwrap()["text"], "one");
    assert!(!home.state().exists(), "no store was made");
}

#[tokio::test]
async fn echo_session_has_nothing_to_shorten() {
    let home = Home::new();
    let mut process = home.process();
    play(&mut process, send("one", None)).await;
    process
        .say(json!({"type": "compact", "id": "c", "session": "s"}))
        .await;
    let refused = process.until_final().await;
    assert_eq!(refused[0]["code"], "session-idle");
}

#[tokio::test]
async fn echo_of_a_lost_session_says_so() {
    let home = Home::new();
    let lines = play(&mut home.process(), send("one", Some("gone"))).await;
    assert_eq!(lines.last().unwrap()["code"], "context-lost");
}
