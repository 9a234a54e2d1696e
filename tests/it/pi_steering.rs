//! The real pi, asked and told in the middle of its turns, in both of its dialects.

use serde_json::{Value, json};

use crate::pi::{Pi, due, text};

/// A command `/sure` that asks and says what it heard.
const EXTENSION: &str = r#"
export default function (pi) {
  pi.registerCommand("sure", {
    description: "asks",
    handler: async (_args, ctx) => {
      const sure = await ctx.ui.confirm("Sure?", "really");
      const side = await ctx.ui.select("Which?", ["left", "right"]);
      ctx.ui.notify(`sure=${sure} side=${side}`, "info");
    },
  });
}
"#;

#[test]
fn pi_steering_amid_a_tool_reaches_the_run() {
    for program in due() {
        let pi = Pi::start(&program);
        let gate = pi.daemon.path("gate");
        // The word has the tool's last second to get into pi's queue.
        let command = format!(
            "until test -e {}; do sleep 0.1; done; sleep 1",
            gate.display()
        );
        let mut client = pi.daemon.connect();
        let line =
            json!({"type": "send", "text": format!("[[bash={command}]]"), "session": "main"});
        client.send(&line.to_string());
        client.until("tool_start");
        let mut other = pi.daemon.connect();
        other.send(r#"{"type":"steer","session":"main","text":"go left"}"#);
        std::fs::write(&gate, "").unwrap();
        let taken = other.next().unwrap();
        assert_eq!(
            (&taken["type"], &taken["ok"]),
            (&json!("steer"), &json!(true)),
            "{program:?}: {taken:#}"
        );
        let last = client.until("message_end").pop().unwrap();
        assert_eq!(text(&last), "echo: go left", "{program:?}");
        let first = pi.pid();
        let next = pi.ask(&json!({"prompt": "next", "session": "main"}));
        assert_eq!(text(&next), "echo: next", "{program:?}");
        assert_eq!(pi.pid(), first, "nothing was left behind");
        let users = pi.model.seen().pop().unwrap();
        assert_eq!(users[1..], ["go left", "next"], "{program:?}");
    }
}

#[test]
fn pi_steering_never_taken_is_not_carried_over() {
    for program in due() {
        let pi = Pi::start(&program);
        pi.ask(&json!({"prompt": "one", "session": "main"}));
        let mut client = pi.daemon.connect();
        client.send(r#"{"type":"send","text":"[[hang]]","session":"main"}"#);
        client.until("message_delta");
        let mut other = pi.daemon.connect();
        other.send(r#"{"type":"steer","id":1,"session":"main","text":"too late"}"#);
        other.send(r#"{"type":"abort","id":2,"session":"main"}"#);
        let answers = [other.next().unwrap(), other.next().unwrap()];
        let steer = answers.iter().find(|line| line["id"] == 1).unwrap();
        assert_eq!(steer["code"], "session-idle", "{program:?}: {steer:#}");
        assert_eq!(client.last()["stop"], "cancelled", "{program:?}");
        let next = pi.ask(&json!({"prompt": "two", "session": "main"}));
        assert_eq!(
            (text(&next), &next["context"]),
            ("echo: two", &json!("continued")),
            "{program:?}"
        );
        for users in pi.model.seen() {
            assert!(
                !users.contains(&"too late".to_owned()),
                "{program:?}: {users:?}"
            );
        }
    }
}

#[test]
fn a_dialog_of_an_extension_is_answered() {
    for program in due() {
        let file = tempfile::Builder::new().suffix(".js").tempfile().unwrap();
        std::fs::write(file.path(), EXTENSION).unwrap();
        let flags = format!(", \"-e\", {:?}", file.path());
        let pi = Pi::with_flags(&program, &flags, "");
        let mut client = pi.daemon.connect();
        client.send(r#"{"type":"send","text":"/sure","session":"main","on_question":"wait"}"#);
        for (kind, given) in [
            ("approval", r#""approve":true"#),
            ("choice", r#""choice":"right""#),
        ] {
            let lines = client.until("question");
            let question: &Value = lines.last().unwrap();
            assert_eq!(question["kind"], kind, "{program:?}: {question:#}");
            let question = &question["question_id"];
            let answer = format!(r#"{{"type":"answer","question_id":{question},{given}}}"#);
            assert_eq!(pi.daemon.ask(&answer)[0]["ok"], true);
        }
        let lines = client.until("message_end");
        let said = lines
            .iter()
            .any(|line| line["text"] == "sure=true side=right");
        assert!(said, "{program:?}: {lines:#?}");
    }
}

#[test]
fn pi_compacts_or_says_why_and_goes_on() {
    for program in due() {
        let pi = Pi::start(&program);
        let send = |prompt: &str| pi.ask(&json!({"prompt": prompt, "session": "main"}));
        send("one");
        let done = pi.ask(&json!({"type": "compact", "session": "main", "instructions": "names"}));
        let small =
            done["code"] == "agent-failed" && done["error"].as_str().unwrap().contains("compact");
        assert!(done["ok"] == true || small, "{program:?}: {done:#}");
        assert_eq!(text(&send("two")), "echo: two", "{program:?}");
    }
}

#[test]
fn another_model_goes_on_with_the_same_session() {
    for program in due() {
        // Only the newer dialect has words for it.
        let in_place = !program.to_string_lossy().contains("pi-0.");
        let pi = Pi::start(&program);
        let send = |prompt: &str| pi.ask(&json!({"prompt": prompt, "session": "main"}));
        assert_eq!(send("one")["thinking"], json!(null));
        let first = pi.pid();
        let set = pi.ask(
            &json!({"type": "set_model", "session": "main", "model": "mock-1", "thinking": "low"}),
        );
        assert_eq!(
            (&set["provider"], &set["thinking"]),
            (&json!("mock"), &json!("low")),
            "{set:#}"
        );
        let second = send("two [[recall]]");
        // The model can't think, so that it did not.
        assert_eq!(
            (text(&second), &second["thinking"]),
            ("earlier: one", &json!("off")),
            "{program:?}"
        );
        assert_eq!(pi.pid() == first, in_place, "{program:?}");
    }
}
