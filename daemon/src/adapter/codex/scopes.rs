//! What an approval is asked for, and how far a yes goes.

use agentd_core::worker::{About, Lasting};

use super::replay::Replay;
use super::*;
use crate::adapter::testing::answer;

fn about(replay: &Replay) -> About {
    let asked = replay.events.iter().rev().find_map(|event| match event {
        WorkerEvent::Asked { asking, .. } => Some(asking.about.clone()),
        _ => None,
    });
    asked.expect("a question")
}

/// The approval that was recorded.
fn recorded() -> Value {
    let lines = crate::adapter::testing::load("codex/0.169.0/tools.jsonl");
    let asks = "item/commandExecution/requestApproval";
    let mut asked = lines
        .into_iter()
        .filter(|line| line.value["method"] == asks);
    asked.next().unwrap().value
}

#[test]
fn approval_says_its_command_and_what_lasts() {
    let mut replay = Replay::running();
    let asked = recorded();
    replay.hear(&asked);
    let about = about(&replay);
    assert_eq!(about.call.as_deref(), Some("call_1"));
    let data: Value = serde_json::from_str(&about.data.unwrap()).unwrap();
    assert_eq!(
        (&data["command"], &data["cwd"]),
        (&asked["params"]["command"], &json!("/w"))
    );
    assert_eq!(about.lasting, [Lasting::Always]);
    let Some(WorkerEvent::Asked { asking, .. }) = replay.events.last() else {
        panic!("not asked");
    };
    let detail = asking.detail.as_deref().unwrap();
    assert!(
        detail.contains("always would allow what begins with: echo one"),
        "{detail}"
    );
    replay.tell(&answer("0", Reply::ApprovedFor(Lasting::Always)));
    let decision = &replay.wrote.last().unwrap()["result"]["decision"];
    assert_eq!(*decision, asked["params"]["availableDecisions"][1]);
}

#[test]
fn approval_of_changes_lasts_for_the_session() {
    let mut replay = Replay::running();
    let changes = json!([{"path": "/w/a", "kind": {"type": "add"}, "diff": "hey"}]);
    replay.note("item/started", &json!({"item": {"id": "f1", "type": "fileChange", "changes": changes, "status": "inProgress"}}));
    let params = json!({"threadId": "t", "turnId": "n1", "itemId": "f1"});
    replay.hear(&json!({"id": 5, "method": "item/fileChange/requestApproval", "params": params}));
    let about = about(&replay);
    assert_eq!(
        (about.call.as_deref(), &about.lasting[..]),
        (Some("f1"), &[Lasting::Session][..])
    );
    let data: Value = serde_json::from_str(&about.data.expect("the changes")).unwrap();
    assert_eq!(data["diff"][0], json!({"path": "/w/a", "diff": "hey"}));
    replay.tell(&answer("5", Reply::ApprovedFor(Lasting::Session)));
    let decision = &replay.wrote.last().unwrap()["result"]["decision"];
    assert_eq!(*decision, "acceptForSession");
}
