//! What leave is asked for, and how far a yes goes.

use agentd_core::worker::{About, Lasting, WorkerEvent};

use super::replay::Replay;
use super::*;
use crate::adapter::testing::{answer, prompt};

/// A process with a turn that asks so.
fn asks(request: &Value) -> (Replay, About, String) {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    let mut request = request.clone();
    request["subtype"] = json!("can_use_tool");
    replay.hear(&json!({"type": "control_request", "request_id": "q", "request": request}));
    let asked = replay.events.iter().rev().find_map(|event| match event {
        WorkerEvent::Asked { asking, .. } => Some(asking.clone()),
        _ => None,
    });
    let asking = asked.expect("a question");
    (replay, asking.about, asking.detail.unwrap_or_default())
}

fn suggested(destination: &str) -> Value {
    json!([
        {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}], "behavior": "allow", "destination": destination},
        {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
    ])
}

#[test]
fn leave_says_its_call_and_what_it_does() {
    let replay = Replay::of("tool");
    let recorded = replay
        .records
        .iter()
        .find(|line| line.value["request"]["subtype"] == "can_use_tool");
    let recorded = recorded.unwrap().value["request"].clone();
    let (_, about, _) = asks(&recorded);
    assert_eq!(about.call.as_deref(), Some("toolu_1795304150790310"));
    assert_eq!(about.data.as_deref(), Some(r#"{"command":"touch g-file"}"#));
    assert!(about.lasting.is_empty(), "it suggests nothing");
    for (tool, input, diff) in [
        (
            "Write",
            json!({"file_path": "/a", "content": "x"}),
            json!({"path": "/a", "new": "x"}),
        ),
        (
            "Edit",
            json!({"file_path": "/a", "old_string": "x", "new_string": "y"}),
            json!({"path": "/a", "old": "x", "new": "y"}),
        ),
    ] {
        let (_, about, _) = asks(&json!({"tool_name": tool, "input": input}));
        let data: Value = serde_json::from_str(&about.data.unwrap()).unwrap();
        assert_eq!(data["diff"], json!([diff]));
    }
}

#[test]
fn leave_for_longer_keeps_the_rules_suggested() {
    let request = |destination| json!({"tool_name": "Bash", "input": {"command": "touch a"}, "permission_suggestions": suggested(destination)});
    for (destination, lasting, kept) in [
        ("localSettings", Lasting::Session, "session"),
        ("localSettings", Lasting::Always, "localSettings"),
        ("session", Lasting::Session, "session"),
    ] {
        let (mut replay, about, detail) = asks(&request(destination));
        assert!(about.lasting.contains(&lasting), "{about:?}");
        assert!(detail.contains("would allow: Bash(touch:*)"), "{detail}");
        replay.tell(&answer("q", Reply::ApprovedFor(lasting)));
        let reply = &replay.wrote.last().unwrap()["response"]["response"];
        assert_eq!(reply["behavior"], "allow");
        let rules = reply["updatedPermissions"].as_array().unwrap();
        assert_eq!((rules.len(), &rules[0]["destination"]), (1, &json!(kept)));
    }
    let (mut replay, about, _) = asks(&request("session"));
    assert_eq!(about.lasting, [Lasting::Session]);
    replay.tell(&answer("q", Reply::Approved));
    let reply = &replay.wrote.last().unwrap()["response"]["response"];
    assert!(reply["updatedPermissions"].is_null(), "{reply}");
}
