//! A session's directories from turn to turn.

use super::*;
use crate::turn::tests::script::Step;

#[tokio::test]
async fn session_works_on_only_where_it_began() {
    let home = Home::new();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    for (dir, text) in [("app", "mine"), ("other", "S3CRET")] {
        std::fs::create_dir(at(dir)).unwrap();
        std::fs::write(at(dir).join("a"), text).unwrap();
    }
    let read = || Step::Calls(vec![("read", r#"{"path": "a"}"#)]);
    let steps = (0..3).flat_map(|_| [read(), Step::Says("done")]);
    home.models.script("a", steps);
    let mut native = json!(null);
    let mut process = home.process();
    for turn in 0..3 {
        if turn == 1 {
            std::fs::rename(at("app"), at("app.old")).unwrap();
            std::os::unix::fs::symlink(at("other"), at("app")).unwrap();
        }
        if turn == 2 {
            // Another process knows as much.
            process = home.process();
        }
        let mut line = json!({"type": "send", "id": "t", "text": "hi", "session": "s",
            "provider": "a", "on_question": "deny", "cwd": at("app"), "toolsets": ["files"]});
        if !native.is_null() {
            line["native"] = native.clone();
        }
        process.say(line).await;
        let lines = process.until("message_end").await;
        if turn == 0 {
            native = lines[0]["native"].clone();
        }
        let end = lines.iter().find(|line| line["type"] == "tool_end");
        let said = end.unwrap()["output"].as_str().unwrap();
        let expected = if turn == 0 {
            "mine"
        } else {
            "when this session began"
        };
        assert!(said.contains(expected), "{turn}: {said}");
        assert!(!said.contains("S3CRET"), "{turn}: {said}");
    }
}
