//! What a session begins with: a system text and what was said elsewhere, or what another one remembers.
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

pub(super) fn forks_a_session(driven: &Driven) {
    let scene = Scene::of(driven, "");
    let label = &driven.label;
    let ask = |line: &str| scene.daemon.ask(line).pop().unwrap();
    scene.ask("one");
    let forked = ask(r#"{"type":"session.fork","session":"main","to":"other"}"#);
    if !scene.kind.describe(&[]).forks {
        assert_eq!(forked["code"], "unsupported", "{label}: {forked:#}");
        return;
    }
    assert_eq!(forked["session"], "other", "{label}: {forked:#}");
    let other = |text: &str| {
        let line = json!({"prompt": text, "session": "other"});
        ask(&line.to_string())
    };
    let first = other("two [[recall]]");
    assert!(text(driven, &first).contains("one"), "{label}: {first:#}");
    assert_eq!(first["context"], "continued", "{label}: {first:#}");
    // Neither hears of the other from now on.
    let old = scene.ask("three [[recall]]");
    let said = text(driven, &old);
    assert!(
        said.contains("one") && !said.contains("two"),
        "{label}: {old:#}"
    );
    let new = other("four [[recall]]");
    let said = text(driven, &new);
    assert!(
        said.contains("two") && !said.contains("three"),
        "{label}: {new:#}"
    );
    let daemon = scene.daemon.kill().start();
    let again = daemon
        .ask(r#"{"prompt":"five [[recall]]","session":"other"}"#)
        .pop()
        .unwrap();
    let said = text(driven, &again);
    assert!(
        said.contains("two") && said.contains("four"),
        "{label}: {again:#}"
    );
}
