//! What is said of a program that prints something else.

use agentd_core::worker::{NOT_JSONL, WorkerEvent};

use super::tests::{hear, with};

#[test]
fn jsonl_tells_once_of_a_first_plain_line() {
    let told = |lines: &[&str]| {
        let mut jsonl = with(&[]);
        let events = lines.iter().flat_map(|line| hear(&mut jsonl, line));
        let noted = events.filter_map(|event| match event {
            WorkerEvent::Noted { code, text, .. } if code == NOT_JSONL => Some(text),
            _ => None,
        });
        noted.collect::<Vec<_>>()
    };
    let plain = told(&["", "Good day", "and more", r#"{"type":"status","ok":true}"#]);
    let [said] = plain.as_slice() else {
        panic!("{plain:?}")
    };
    assert!(said.contains("`Good day`") && said.contains("`kind = \"exec\"`"));
    // One that speaks it may print something else besides.
    assert!(told(&[r#"{"type":"status","ok":true}"#, "Good day"]).is_empty());
}
