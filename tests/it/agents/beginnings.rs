//! What a session begins with: a system text and what was said elsewhere.
//!
//! Owns that each agent's model hears both, in whichever place, and the text after a new process, too.

use serde_json::json;

use super::{Driven, Scene, Turns, text};
use crate::support::kill;
use nix::sys::signal::Signal;

pub(super) fn is_told_how_a_session_begins(driven: &Driven) {
    let scene = Scene::of(driven, "");
    let label = &driven.label;
    let begins = json!({
        "type": "send",
        "session": "main",
        "system": "You are a lighthouse.",
        "history": [
            {"role": "user", "text": "What colour is the sea?"},
            {"role": "assistant", "text": "It is petrol today."},
        ],
        "text": "[[deltas=1]]",
    });
    let lines = scene.daemon.ask(&begins.to_string());
    assert_eq!(
        text(driven, lines.last().unwrap()).trim_end(),
        "w0",
        "{label}"
    );
    let asked = || {
        scene
            .model
            .asked()
            .last()
            .expect("a request")
            .body
            .to_string()
    };
    let first = asked();
    for told in [
        "You are a lighthouse.",
        "What colour is the sea?",
        "It is petrol today.",
    ] {
        assert!(first.contains(told), "{label}: no {told:?} in {first}");
    }
    let note = lines.iter().find(|line| line["code"] == "in-prompt");
    let can = scene.kind.describe(&[]);
    assert_eq!(note.is_none(), can.history, "{label}: {note:?}");
    scene.ask("two [[deltas=1]]");
    let later = asked();
    for told in ["You are a lighthouse.", "It is petrol today."] {
        assert!(later.contains(told), "{label}: no {told:?} in {later}");
    }
    let again = scene.daemon.ask(&begins.to_string()).remove(0);
    assert_eq!(again["code"], "invalid-request", "{label}: {again:#}");
    if driven.can.turns == Turns::InOneProcess && driven.can.keeps_young {
        let old = scene.pid();
        kill(old, Signal::SIGKILL);
        scene.daemon.until("another process", |status| {
            (super::pid(status) != Some(old)).then_some(())
        });
        scene.ask("three [[deltas=1]]");
        let restarted = asked();
        assert!(
            restarted.contains("You are a lighthouse."),
            "{label}: {restarted}"
        );
    }
    scene.was_understood(driven);
}
