//! Permission modes: asked for by a word, and told when it takes one by itself.

use agentd_core::store::Pins;
use agentd_core::worker::{WorkerCommand, WorkerEvent};
use serde_json::json;

use super::replay::Replay;
use super::tests::switched;

#[test]
fn mode_is_changed_by_a_word_and_told() {
    let mut replay = Replay::bare();
    let changed = |replay: &Replay| {
        let modes = replay.events.iter().filter_map(|event| match event {
            WorkerEvent::ModeChanged { mode } => Some(mode.id.clone()),
            _ => None,
        });
        modes.collect::<Vec<_>>()
    };
    let says = |replay: &mut Replay, mode: &str| {
        let status =
            json!({"type": "system", "subtype": "status", "status": null, "permissionMode": mode});
        replay.hear(&status);
    };
    says(&mut replay, "default");
    let to = |mode: &str| {
        WorkerCommand::Switch(Box::new(Pins {
            mode: Some(mode.to_owned()),
            ..Pins::default()
        }))
    };
    replay.tell(&to("plan"));
    let asked = json!({"subtype": "set_permission_mode", "mode": "plan"});
    assert_eq!(replay.wrote[0]["request"], asked);
    let id = replay.wrote[0]["request_id"].clone();
    let response = json!({"subtype": "success", "request_id": id});
    replay.hear(&json!({"type": "control_response", "response": response}));
    says(&mut replay, "plan");
    assert_eq!(
        (switched(&replay), changed(&replay)),
        (Some(true), Vec::new())
    );
    // Its user took the plan: it is in another one by itself, and need not be asked for that.
    says(&mut replay, "acceptEdits");
    says(&mut replay, "acceptEdits");
    assert_eq!(changed(&replay), ["acceptEdits"]);
    replay.tell(&to("acceptEdits"));
    assert_eq!(replay.wrote.len(), 1);
}
