//! Why a turn ended, where the model says why it stopped.
//!
//! Owns that an agent's own word for it reaches the sender. What it makes of the model's is its own.

use serde_json::json;

use super::{Driven, Scene};

pub fn says_why_it_stopped(driven: &Driven) {
    if driven.can.stops.is_empty() {
        return;
    }
    let scene = Scene::of(driven, "");
    for (prompt, expected) in driven.can.stops {
        let line = json!({"prompt": prompt, "session": prompt.replace(['[', ']', '=', ' '], ".")});
        let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
        let word = if last["type"] == "error" {
            "code"
        } else {
            "stop"
        };
        assert_eq!(last[word], *expected, "{} {prompt}: {last:#}", driven.label);
    }
    scene.was_understood(driven);
}
