//! What a model is told of a history, whole or not.

use super::*;
use crate::message::ToolCall;

fn user(text: &str) -> Message {
    Message::user(text)
}

fn calls(ids: &[&str]) -> Message {
    let call = |id: &&str| ToolCall {
        id: (*id).to_owned(),
        name: "read".to_owned(),
        arguments: CallArguments::Object(serde_json::Map::new()),
        signatures: Vec::new(),
    };
    Message::Assistant(Assistant {
        calls: ids.iter().map(call).collect(),
        ..Assistant::default()
    })
}

fn said(text: &str) -> Message {
    Message::Assistant(Assistant {
        text: text.to_owned(),
        ..Assistant::default()
    })
}

fn result(id: &str, output: &str) -> Message {
    Message::Tool(ToolResult {
        call: id.to_owned(),
        name: "read".to_owned(),
        ok: true,
        output: output.to_owned(),
    })
}

fn shown(messages: &[Message]) -> Vec<String> {
    let show = |message: &Message| match message {
        Message::User { text, .. } => format!("user {text}"),
        Message::Assistant(said) if said.calls.is_empty() => format!("said {}", said.text),
        Message::Assistant(said) => {
            let ids: Vec<_> = said.calls.iter().map(|call| call.id.as_str()).collect();
            format!("calls {}", ids.join(" "))
        }
        Message::Tool(result) => format!("{}: {}", result.call, result.output),
    };
    messages.iter().map(show).collect()
}

fn history(messages: Vec<Message>) -> History {
    History::new(None, messages, 0)
}

#[test]
fn history_answers_dead_calls_and_reruns_none() {
    let cut = history(vec![user("a"), calls(&["1", "2"]), result("2", "two")]);
    let missing = cut.interrupted();
    assert_eq!(shown(&missing), [format!("1: {UNKNOWN}")]);
    assert!(matches!(&missing[0], Message::Tool(result) if !result.ok));
    let mut whole = cut;
    whole.append(missing);
    assert_eq!(whole.interrupted(), []);
}

#[test]
fn history_puts_results_behind_calls_in_order() {
    let mixed = history(vec![
        user("a"),
        calls(&["1", "2"]),
        result("2", "two"),
        result("1", "one"),
        said("b"),
    ]);
    let told = shown(&mixed.for_model());
    assert_eq!(told, ["user a", "calls 1 2", "1: one", "2: two", "said b"]);
}

#[test]
fn history_keeps_results_by_call_when_ids_repeat() {
    let again = history(vec![
        user("a"),
        calls(&["1"]),
        result("1", "first"),
        calls(&["1"]),
        result("1", "second"),
    ]);
    let told = shown(&again.for_model());
    assert_eq!(
        told,
        ["user a", "calls 1", "1: first", "calls 1", "1: second"]
    );
    let cut = history(vec![calls(&["1"]), result("1", "first"), calls(&["1"])]);
    assert_eq!(cut.interrupted().len(), 1);
}

#[test]
fn history_has_no_users_side_by_side() {
    let odd = History::new(
        Some("before".to_owned()),
        vec![
            user("a"),
            user("b"),
            said(""),
            user("c"),
            result("9", "nobody's"),
            said("d"),
        ],
        7,
    );
    let told = shown(&odd.for_model());
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].ends_with("before\n\na\n\nb\n\nc"), "{told:?}");
    assert_eq!(told[1], "said d");
    let headless = history(vec![said("d"), user("e")]);
    assert!(matches!(headless.for_model()[0], Message::User { .. }));
}

#[test]
fn history_counts_tokens_or_guesses_the_rest() {
    let mut counted = history(vec![user(&"x".repeat(4000))]);
    assert_eq!(counted.tokens(400), 100 + 1000 + TOKENS_PER_MESSAGE);
    counted.count(77);
    assert_eq!(counted.tokens(400), 77);
    counted.append(vec![user("abcd")]);
    assert_eq!(counted.tokens(400), 77 + 1 + TOKENS_PER_MESSAGE);
    counted.compact("12345678".to_owned(), 1);
    assert_eq!(counted.tokens(400), 102 + 1 + TOKENS_PER_MESSAGE);
    assert_eq!((counted.position(0), counted.next()), (1, 2));
}
