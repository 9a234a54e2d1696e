//! What goes, what stays, and that the two fit together.

use proptest::prelude::*;
use serde_json::Map;

use super::*;
use crate::message::{Assistant, ToolCall, ToolResult};
use crate::session::history::History;

fn user(size: usize) -> Message {
    Message::user("u".repeat(size))
}

fn step(id: &str, size: usize) -> [Message; 2] {
    let call = ToolCall {
        id: id.to_owned(),
        name: "read".to_owned(),
        arguments: CallArguments::Object(Map::new()),
        signatures: Vec::new(),
    };
    [
        Message::Assistant(Assistant {
            calls: vec![call],
            ..Assistant::default()
        }),
        Message::Tool(ToolResult {
            call: id.to_owned(),
            name: "read".to_owned(),
            ok: true,
            output: "r".repeat(size),
        }),
    ]
}

#[test]
fn compaction_is_due_when_the_reserve_is_touched() {
    for (tokens, window, due) in [
        (183_616, Some(200_000), false),
        (183_617, Some(200_000), true),
        (111_617, None, true),
        (6_000, Some(8_000), false),
        (6_001, Some(8_000), true),
        (1, Some(0), true),
    ] {
        assert_eq!(is_due(tokens, window), due, "{tokens} of {window:?}");
    }
}

#[test]
fn about_twenty_thousand_tokens_stay() {
    let messages: Vec<Message> = (0..10).map(|_| user(40_000)).collect();
    assert_eq!(cut(&messages, Some(200_000), Keep::Usual), Some(9));
    let small: Vec<Message> = (0..100).map(|_| user(4_000)).collect();
    let at = cut(&small, Some(200_000), Keep::Usual).unwrap();
    assert_eq!(at, 81, "19 messages of 1004 tokens fit");
    assert_eq!(cut(&small, Some(200_000), Keep::Least), Some(99));
}

#[test]
fn a_single_message_cant_be_cut() {
    assert_eq!(cut(&[user(1_000_000)], Some(1000), Keep::Least), None);
    assert_eq!(cut(&[], None, Keep::Least), None);
}

#[test]
fn compaction_cuts_one_long_turn_between_steps() {
    let mut messages = vec![user(10)];
    for n in 0..50 {
        messages.extend(step(&n.to_string(), 8_000));
    }
    let at = cut(&messages, Some(200_000), Keep::Usual).unwrap();
    assert!(at > 50, "{at}");
    assert!(matches!(messages[at], Message::Assistant(_)));
}

#[test]
fn compaction_asks_with_the_end_and_earlier_summary() {
    let mut messages = vec![user(400_000)];
    messages.extend(step("1", 100_000));
    let asked = question(Some("before"), &messages, Some(32_000), Some("names"));
    assert!(asked.len() < 80_000, "{}", asked.len());
    assert!(asked.contains("before") && asked.contains("in particular: names"));
    assert!(asked.contains(&"r".repeat(MOST_OF_RESULT)));
    assert!(!asked.contains(&"r".repeat(MOST_OF_RESULT + 1)));
}

proptest! {
    #[test]
    fn no_call_is_ever_parted_from_its_result(
        sizes in prop::collection::vec((0usize..3, 0usize..60_000), 1..40),
        window in prop::option::of(1_000u64..400_000),
        least in any::<bool>(),
    ) {
        let mut messages = vec![user(5)];
        for (at, (kind, size)) in sizes.iter().enumerate() {
            if *kind == 0 {
                messages.push(user(*size));
            } else {
                messages.extend(step(&at.to_string(), *size));
            }
        }
        let keep = if least { Keep::Least } else { Keep::Usual };
        if let Some(at) = cut(&messages, window, keep) {
            prop_assert!(at > 0 && at < messages.len());
            let mut whole = History::new(None, messages, 0);
            whole.compact("s".to_owned(), at);
            prop_assert!(whole.interrupted().is_empty());
            let results = whole.messages().iter().filter(|m| matches!(m, Message::Tool(_))).count();
            let told = whole.for_model();
            let said = told.iter().filter(|m| matches!(m, Message::Tool(_))).count();
            prop_assert_eq!(results, said, "a result lost its call");
        }
    }
}
