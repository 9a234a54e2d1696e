//! What a permission is asked for, and how far a yes goes.

use agentd_core::worker::{About, Lasting, Reply};
use serde_json::json;

use super::replay::Replay;
use super::*;

/// What the questions of a recording are about.
fn asked(file: &str) -> Vec<About> {
    let replays = Replay::of(file).into_iter();
    let events = replays.flat_map(|replay| replay.events);
    let about = events.filter_map(|event| match event {
        WorkerEvent::Asked { asking, .. } => Some(asking.about),
        _ => None,
    });
    about.collect()
}

#[test]
fn permission_of_gemini_lasts_for_its_session() {
    let about = asked("gemini-0.61.0.jsonl").remove(0);
    let call = "run_shell_command__run_shell_command_1795304862109_0";
    assert_eq!(about.call.as_deref(), Some(call));
    assert_eq!(about.lasting, [Lasting::Session]);
}

#[test]
fn permission_of_hermes_has_command_diff_and_scopes() {
    let about = asked("hermes-0.19.0.jsonl");
    assert_eq!(about[0].call.as_deref(), Some("perm-check-1"));
    assert_eq!(about[0].lasting, [Lasting::Session, Lasting::Always]);
    assert_eq!(
        about[0].data.as_deref(),
        Some(r#"{"command":"rm -rf ./junk"}"#)
    );
    let diff = r#"{"diff":[{"path":"a.txt","new":"hey"}]}"#;
    assert_eq!(about[1].data.as_deref(), Some(diff));
    assert!(about[1].lasting.is_empty());
}

#[test]
fn permission_for_longer_is_the_option_meant() {
    let options = json!([
        {"optionId": "o", "name": "Allow", "kind": "allow_once"},
        {"optionId": "s", "name": "For this Session", "kind": "allow_always"},
        {"optionId": "a", "name": "Never ask again", "kind": "allow_always"},
    ]);
    let twice = json!([
        {"optionId": "o", "name": "Allow", "kind": "allow_once"},
        {"optionId": "a", "name": "This tool", "kind": "allow_always"},
        {"optionId": "b", "name": "This server", "kind": "allow_always"},
    ]);
    for (options, lasting, chosen) in [
        (&options, Lasting::Session, Some("s")),
        (&options, Lasting::Always, Some("a")),
        (&twice, Lasting::Always, None),
    ] {
        let mut replay = Replay::running();
        let params =
            json!({"sessionId": "s1", "toolCall": {"toolCallId": "c1"}, "options": options});
        replay.hear(&json!({"jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": params}));
        let Some(WorkerEvent::Asked { asking, .. }) = replay.events.last() else {
            panic!("{:?}", replay.events);
        };
        assert_eq!(asking.about.lasting.contains(&lasting), chosen.is_some());
        replay.reply("7", Reply::ApprovedFor(lasting));
        let outcome = &replay.wrote.last().unwrap()["result"]["outcome"];
        assert_eq!(outcome["optionId"].as_str(), chosen, "{outcome}");
    }
}

#[test]
fn permission_with_two_yeses_is_a_choice() {
    let mut replay = Replay::running();
    let option = |id: &str| json!({"optionId": id, "name": id, "kind": "allow_once"});
    let params = json!({"sessionId": "s1", "toolCall": {"toolCallId": "c1"}, "options": [option("left"), option("right")]});
    replay.hear(&json!({"jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": params}));
    let Some(WorkerEvent::Asked { asking, .. }) = replay.events.last() else {
        panic!("{:?}", replay.events);
    };
    assert_eq!(asking.options, ["left", "right"]);
    replay.reply("7", Reply::Chosen("right".to_owned()));
    let outcome = &replay.wrote.last().unwrap()["result"]["outcome"];
    assert_eq!(outcome["optionId"], "right");
}
