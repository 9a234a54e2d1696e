//! A command that an agent runs, with leave and without.
//!
//! Owns what its trace says, where it runs, and that a denied one does not.

use serde_json::{Value, json};

use super::{Asks, Driven, Scene, WORK, text};

/// Sends a prompt that lets the agent run a command, and answers its question, if it `asks`.
fn runs(driven: &Driven, scene: &Scene, prompt: &str, asks: bool, approve: bool) -> Vec<Value> {
    let mut client = scene.daemon.connect();
    let mut line =
        json!({"type": "send", "id": 1, "text": prompt, "session": "main", "on_question": "wait"});
    line["cwd"] = json!(scene.daemon.path(WORK));
    client.send(&line.to_string());
    let mut lines = Vec::new();
    if asks {
        lines = client.until("question");
        let question = lines.last().unwrap().clone();
        assert_eq!(
            question["kind"], "approval",
            "{}: {question:#}",
            driven.label
        );
        let answer =
            json!({"type": "answer", "question_id": question["question_id"], "approve": approve});
        let told = scene.daemon.ask(&answer.to_string()).remove(0);
        assert_eq!(told["ok"], true, "{}: {told:#}", driven.label);
    }
    lines.extend(client.until("message_end"));
    lines
}

pub fn runs_a_tool(driven: &Driven) {
    let scene = Scene::of(driven, "");
    // Some agents run a mere `echo` without asking.
    let made = scene.work("made");
    let prompt = format!(
        "[[bash=touch {} && echo from-the-tool in $PWD]]",
        made.display()
    );
    let asks = driven.can.asks == Asks::Always;
    let lines = runs(driven, &scene, &prompt, asks, true);
    let last = lines.last().unwrap();
    let printed = format!("from-the-tool in {}", scene.daemon.path(WORK).display());
    assert!(
        text(driven, last).contains(&printed),
        "{}: {last:#}",
        driven.label
    );
    let Some(tool) = driven.can.tool else { return };
    let trace = &last["tool_trace"][0];
    assert_eq!(
        (&trace["name"], &trace["ok"]),
        (&json!(tool), &json!(true)),
        "{}: {trace:#}",
        driven.label
    );
    assert!(
        trace["input"].to_string().contains("echo from-the-tool"),
        "{}: {trace:#}",
        driven.label
    );
    assert!(
        trace["output"].to_string().contains("from-the-tool"),
        "{}: {trace:#}",
        driven.label
    );
    let kinds: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["type"].as_str())
        .collect();
    let at = |kind| {
        let found = kinds.iter().position(|found| *found == kind);
        found.unwrap_or_else(|| panic!("{}: {kind}: {kinds:?}", driven.label))
    };
    assert!(at("tool_start") < at("tool_end") && at("tool_end") < at("message_end"));
    scene.was_understood(driven);
}

pub fn is_denied_a_tool(driven: &Driven) {
    let (command, is_there) = match driven.can.asks {
        Asks::Never => return,
        Asks::Always => ("touch", false),
        Asks::Before(command) => (command, true),
    };
    let scene = Scene::of(driven, "");
    let at_stake = scene.work("at-stake");
    if is_there {
        std::fs::create_dir(&at_stake).unwrap();
    }
    let prompt = format!("[[bash={command} {}]]", at_stake.display());
    let lines = runs(driven, &scene, &prompt, true, false);
    assert_eq!(
        at_stake.exists(),
        is_there,
        "{}: it ran although it was denied",
        driven.label
    );
    let last = lines.last().unwrap();
    let said = last.to_string();
    assert!(
        said.contains(driven.can.denied),
        "{}: {last:#}",
        driven.label
    );
    if is_there {
        // Asked once more, the model of these tests calls the tool until Hermes allows no more calls.
        return;
    }
    // Nobody there is a denial, too.
    let alone = scene.ask(&prompt);
    assert_eq!(
        at_stake.exists(),
        is_there,
        "{}: nobody approved it: {alone:#}",
        driven.label
    );
    assert_eq!(text(driven, &scene.ask("still there")), "echo: still there");
    runs(driven, &scene, &prompt, true, true);
    assert_ne!(
        at_stake.exists(),
        is_there,
        "{}: it was approved",
        driven.label
    );
    scene.was_understood(driven);
}

/// A question names its call and how far a yes can go, and the agent takes one for the session, where
/// it offers that.
pub fn says_yes_for_longer(driven: &Driven) {
    if driven.can.asks != Asks::Always {
        return;
    }
    let (scene, label) = (Scene::of(driven, ""), &driven.label);
    let made = scene.work("made");
    let prompt = format!("[[bash=touch {}]]", made.display());
    let mut client = scene.daemon.connect();
    let mut line =
        json!({"type": "send", "id": 1, "text": prompt, "session": "main", "on_question": "wait"});
    line["cwd"] = json!(scene.daemon.path(WORK));
    client.send(&line.to_string());
    let mut lines = client.until("question");
    let question = lines.last().unwrap().clone();
    let mut answer =
        json!({"type": "answer", "question_id": question["question_id"], "approve": true});
    let scopes = question["scopes"].as_array().expect("scopes");
    assert_eq!(scopes[0], "once", "{label}: {question:#}");
    if scopes.contains(&json!("session")) {
        answer["scope"] = json!("session");
    }
    let told = scene.daemon.ask(&answer.to_string()).remove(0);
    assert_eq!(told["ok"], true, "{label}: {told:#}");
    lines.extend(client.until("message_end"));
    assert!(made.exists(), "{label}: it was approved");
    let started = lines.iter().filter(|line| line["type"] == "tool_start");
    let calls: Vec<&Value> = started.map(|line| &line["tool_call_id"]).collect();
    let call = &question["tool_call_id"];
    assert!(calls.contains(&call), "{label}: {calls:?}: {question:#}");
    let mut closed = lines
        .iter()
        .filter(|line| line["type"] == "question_closed");
    let scope = &closed.next().expect("an end of the question")["scope"];
    assert_eq!(*scope, answer["scope"], "{label}");
    scene.was_understood(driven);
}
