//! The built-in agent, by the same suite as everybody's.
//!
//! Its shell works without asking, in a sandbox, so leave is what a command needs that has to get out
//! of it.

use std::path::PathBuf;

use serde_json::json;

use super::{Asks, Can, Driven, Scene, Turns, WORK, text};
use crate::mock_model::MockModel;
use crate::support::{DEADLINE, Place, TIMMY};

fn installed() -> Vec<Driven> {
    vec![Driven {
        label: "timmy".to_owned(),
        program: PathBuf::from(TIMMY),
        configure,
        can: Can {
            turns: Turns::InOneProcess,
            tool: Some("bash"),
            asks: Asks::Never,
            denied: "",
            errors: &[(401, "agent-auth")],
            overflow: Some("context-overflow"),
            keeps_young: true,
            told: &[],
            // A server on this machine gets no documents.
            stops: &[("[[full]]", "max_tokens"), ("[[refuse=finish]]", "refusal")],
            attached: &["pixel.png", "notes.txt"],
            hears_of_tools: "tides_low_water",
            models: [(Some("mock"), "mock-1"), (Some("mock"), "mock-2")],
            switches: false,
            mode: None,
            beside: None,
            tries_again: &[429, 500],
            // A key that was refused isn't tried again until it is another one.
            refusal_lasts: Some("agent-auth"),
            patience: DEADLINE,
        },
    }]
}

fn configure(driven: &Driven, place: &Place, model: &MockModel) -> String {
    let (program, dir, url) = (&driven.program, place.path(WORK), &model.url);
    format!(
        "[agents.it]\nkind = \"jsonl\"\ncommand = [{program:?}, \"--rpc\"]\n\
         [models]\ndefault = \"mock/mock-1\"\n[providers.mock]\nbase_url = {url:?}\n\
         [timmy]\nwritable = [{dir:?}]\n"
    )
}

suite!();

#[test]
fn sandbox_denies_a_command_outside_when_nobody_answers() {
    for driven in installed() {
        let scene = Scene::of(&driven, "");
        let file = scene.daemon.path("made-outside");
        let wanted = json!({"command": format!("touch {}", file.display()),
            "outside": true, "reason": "the test"});
        let prompt = format!("[[use bash {wanted}]]");
        for (approve, is_made) in [(Some(false), false), (None, false), (Some(true), true)] {
            let last = match approve {
                None => scene.ask(&prompt),
                Some(approve) => {
                    let mut client = scene.daemon.connect();
                    let line = json!({"type": "send", "id": 1, "text": prompt, "session": "main",
                        "on_question": "wait"});
                    client.send(&line.to_string());
                    let question = client.until("question").pop().unwrap();
                    assert_eq!(question["kind"], "approval", "{question:#}");
                    assert!(!file.exists(), "nothing happens before the answer");
                    let id = &question["question_id"];
                    let answer = json!({"type": "answer", "question_id": id, "approve": approve});
                    scene.daemon.ask(&answer.to_string());
                    client.until("message_end").pop().unwrap()
                }
            };
            text(&driven, &last);
            assert_eq!(file.exists(), is_made, "{approve:?}: {last:#}");
            let tool = &last["tool_trace"][0];
            assert_eq!(tool["ok"], is_made, "{last:#}");
            let reached = &tool["sandbox"]["files"];
            assert_eq!(reached == "all", is_made, "{last:#}");
        }
    }
}
