//! What was chosen in a session that is made again.

use super::opening::set_option;
use super::*;

/// A session in which a model and a level were chosen.
fn chosen() -> Scene {
    let mut scene = Scene::open();
    set_option(&mut scene, "thinking", "high");
    scene.answer("set_model", set());
    scene
}

fn set() -> Value {
    json!({"type": "set_model", "ok": true, "session": SESSION, "provider": "p", "model": "one",
        "thinking": "high"})
}

/// Those that are set again.
fn wanted() -> Value {
    json!({"session": SESSION, "provider": "p", "model": "one", "thinking": "high"})
}

fn closed() -> Value {
    json!({"type": "session.close", "ok": true, "session": SESSION})
}

#[test]
fn acp_choices_outlive_another_agent() {
    let mut scene = chosen();
    let id = set_option(&mut scene, "agent", "timmy");
    scene.answer("session.close", closed());
    scene.answer("session.new", made("timmy"));
    scene.told();
    scene.answer("models", models());
    assert!(scene.said.is_empty(), "they are not set yet");
    assert_eq!(scene.answer("set_model", set()), wanted());
    let said = scene.said.pop().unwrap();
    assert_eq!(said["id"], id);
    let options = &said["result"]["configOptions"];
    assert_eq!(options[0]["currentValue"], "timmy");
    assert_eq!(options[2]["currentValue"], "high");
    // One that has nothing of it keeps its own.
    set_option(&mut scene, "agent", "pi");
    scene.answer("session.close", closed());
    scene.answer("session.new", made("pi"));
    scene.told();
    let none = json!({"type": "models", "ok": true, "agent": "pi", "models": []});
    scene.answer("models", none);
    assert_eq!(scene.told().len(), 2);
}

#[test]
fn acp_choices_outlive_an_agent_that_fails() {
    let mut scene = chosen();
    set_option(&mut scene, "agent", "timmy");
    scene.answer("session.close", closed());
    let refused = json!({"type": "error", "code": "no-agent", "error": "no", "retryable": false});
    scene.answer("session.new", refused);
    assert_eq!(scene.answer("session.new", made("pi"))["agent"], "pi");
    scene.answer("models", models());
    assert_eq!(scene.answer("set_model", set()), wanted());
    // Somebody closes it elsewhere, and the next prompt makes it.
    scene.prompt("hi");
    let send = scene.asked("send");
    let mut anew = accepted("j1", 1);
    anew["made"] = json!(true);
    scene.line(&send, anew);
    assert_eq!(scene.answer("set_model", set()), wanted());
}
