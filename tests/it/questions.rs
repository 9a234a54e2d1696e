//! Agents that ask and are told, over a real socket and with a real process.

use serde_json::{Value, json};

use crate::supervision::chaos;
use crate::support::{Client, Daemon};

/// Sends a script whose questions wait, and reads up to the first line of a type.
fn start(daemon: &Daemon, script: &str, until: &str) -> (Client, Value) {
    let mut client = daemon.connect();
    let line = json!({
        "type": "send", "id": 1, "agent": "chaos", "session": "main", "text": script, "on_question": "wait",
    });
    client.send(&line.to_string());
    let line = client.until(until).pop().unwrap();
    (client, line)
}

fn answer(daemon: &Daemon, question: &Value, given: &str) -> Value {
    let question = &question["question_id"];
    let line = format!(r#"{{"type":"answer","question_id":{question},{given}}}"#);
    daemon.ask(&line).remove(0)
}

#[test]
fn whoever_answers_first_lets_the_agent_go_on() {
    let daemon = Daemon::start();
    for (kind, given, said) in [
        ("approval", r#""approve":true"#, "approve=true"),
        ("choice", r#""choice":"right""#, r#"choice="right""#),
        ("text", r#""text":"words""#, r#"text="words""#),
        ("text", r#""cancel":true"#, "cancel=true"),
        ("approval session", r#""approve":true"#, "approve=true"),
        (
            "approval session",
            r#""approve":true,"scope":"session""#,
            r#"approve=truescope="session""#,
        ),
    ] {
        let (mut client, question) = start(&daemon, &format!("chaos:ask {kind}"), "question");
        let open = daemon.ask(r#"{"type":"questions"}"#).remove(0);
        assert_eq!(open["questions"][0]["question_id"], question["question_id"]);
        assert_eq!(daemon.status()["questions"], 1);
        let first = answer(&daemon, &question, given);
        assert_eq!(
            (&first["type"], &first["ok"]),
            (&json!("answer"), &json!(true))
        );
        let second = answer(&daemon, &question, given);
        assert_eq!(second["code"], "already-answered");
        let lines = client.until("message_end");
        assert_eq!(lines[0]["type"], "question_closed");
        assert_eq!(lines[0]["by"], "answer");
        assert_eq!(lines.last().unwrap()["text"], said);
        assert_eq!(daemon.status()["questions"], 0);
    }
}

#[test]
fn yes_that_is_not_offered_is_refused() {
    let daemon = Daemon::start();
    let (mut client, question) = start(&daemon, "chaos:ask approval always", "question");
    for (name, expected) in [
        ("tool_call_id", json!("c1")),
        ("data", json!({"command": "ls"})),
        ("scopes", json!(["once", "always"])),
    ] {
        assert_eq!(question[name], expected, "{question:#}");
    }
    let refused = answer(&daemon, &question, r#""approve":true,"scope":"session""#);
    assert_eq!(refused["code"], "invalid-request", "{refused:#}");
    let id = question["question_id"].as_str().unwrap();
    let wrong = daemon.agentctl(&["answer", id, "--deny", "--scope", "always"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    let said = daemon.agentctl(&["answer", id, "--approve", "--scope", "always"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let lines = client.until("message_end");
    assert_eq!(lines[0]["scope"], "always", "{lines:#?}");
    assert_eq!(
        lines.last().unwrap()["text"],
        r#"approve=truescope="always""#
    );
}

#[test]
fn question_for_a_secret_leaves_it_nowhere() {
    let daemon = Daemon::start();
    // The script doesn't say it: that would be the agent's own doing.
    let (mut client, question) = start(
        &daemon,
        "chaos:ask-on secret;sleep-ms 1;wait-file go",
        "question",
    );
    let told = answer(&daemon, &question, r#""text":"correct-horse-battery""#);
    assert_eq!(told["ok"], true, "{told:#}");
    let wrong = answer(&daemon, &question, r#""text":731094"#);
    assert_eq!(wrong["code"], "invalid-request");
    assert!(!wrong.to_string().contains("731094"), "{wrong:#}");
    daemon.ask(r#"{"type":"abort","session":"main"}"#);
    client.last();
    let mut files = 0;
    for entry in std::fs::read_dir(daemon.path("state")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let secret = b"correct-horse-battery";
            let found = bytes.windows(secret.len()).any(|part| part == secret);
            assert!(!found, "{}", path.display());
            files += 1;
        }
    }
    assert!(files > 0, "the store was looked at");
    assert!(!daemon.log().contains("correct-horse-battery"));
}

#[test]
fn question_with_nobody_there_is_denied() {
    let daemon = Daemon::start();
    let last = chaos(&daemon, "chaos:ask approval");
    assert_eq!(last["text"], "approve=false", "{last:#}");
    assert_eq!(last["tool_trace"][0]["output"], "nobody attached");

    let mut client = daemon.connect();
    client.request(r#"{"type":"hello","answers":true}"#);
    client.send(r#"{"type":"send","id":1,"agent":"chaos","text":"chaos:ask choice"}"#);
    let question = client.until("question").pop().unwrap();
    assert!(question["expires_at"].is_string());
    let line = json!({"type": "answer", "id": 2, "question_id": question["question_id"], "choice": "left"});
    client.send(&line.to_string());
    assert_eq!(client.last()["text"], r#"choice="left""#);
}

#[test]
fn question_nobody_answered_is_no_users_no() {
    let daemon = Daemon::start();
    let (mut client, question) = start(&daemon, "chaos:ask approval", "question");
    answer(&daemon, &question, r#""approve":false"#);
    let lines = client.until("message_end");
    assert_eq!(
        (&lines[0]["by"], &lines[0]["answer"]),
        (&json!("answer"), &json!("deny"))
    );
    assert_eq!(lines.last().unwrap()["tool_trace"], json!([]));
    // Its turn's time is over before anybody answers.
    let send = r#"{"type":"send","agent":"chaos","session":"main","text":"chaos:ask approval","on_question":"wait","timeout":1}"#;
    let lines = daemon.ask(send);
    let closed = lines
        .iter()
        .find(|line| line["type"] == "question_closed")
        .unwrap();
    assert_eq!(
        (&closed["by"], &closed["answer"]),
        (&json!("expiry"), &Value::Null)
    );
    let trace = &lines.last().unwrap()["tool_trace"][0];
    assert_eq!(trace["output"], "nobody answered in time", "{lines:#?}");
    let shown = daemon.agentctl(&["history", "main", "--full"]).stdout;
    for part in [
        "closed by answer: deny",
        "closed by expiry: nobody answered in time",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn question_is_closed_by_abort_and_death() {
    let daemon = Daemon::start();
    let (mut client, _) = start(&daemon, "chaos:ask approval", "question");
    daemon.ask(r#"{"type":"abort","session":"main"}"#);
    assert_eq!(
        client.until("question_closed").pop().unwrap()["by"],
        "cancel"
    );
    assert_eq!(client.last()["stop"], "cancelled");
    let (mut client, _) = start(&daemon, "chaos:ask-on text;exit 3", "question");
    assert_eq!(client.until("question_closed").pop().unwrap()["by"], "exit");
    assert_eq!(client.last()["code"], "worker-exited");
    assert_eq!(daemon.status()["questions"], 0);
}

#[test]
fn question_is_closed_before_a_crashed_turn_ends() {
    let daemon = Daemon::start();
    let send = r#"{"type":"send","id":1,"agent":"chaos","text":"chaos:ask approval","on_question":"wait","idempotency_key":"k"}"#;
    let mut client = daemon.connect();
    client.send(send);
    let question = client.until("question").pop().unwrap();
    let daemon = daemon.kill().start();
    let late = answer(&daemon, &question, r#""approve":true"#);
    let code = late["code"].as_str().unwrap();
    assert!(
        ["unknown-question", "already-answered"].contains(&code),
        "{late:#}"
    );
    let told = daemon.ask(send);
    let end: Vec<&Value> = told.iter().rev().take(2).collect();
    assert_eq!(end[0]["code"], "interrupted", "{told:#?}");
    assert_eq!(end[1]["type"], "question_closed", "{told:#?}");
    assert_eq!(end[1]["by"], "exit");
    let open = daemon.ask(r#"{"type":"questions"}"#).remove(0);
    assert_eq!(open["questions"], json!([]));
}

#[test]
fn steering_is_for_running_turns_only() {
    let daemon = Daemon::start();
    let (mut client, _) = start(&daemon, "chaos:say first;steered", "message_delta");
    let taken = daemon
        .ask(r#"{"type":"steer","session":"main","text":"left"}"#)
        .remove(0);
    assert_eq!(
        (&taken["type"], &taken["job"]),
        (&json!("steer"), &json!("j1")),
        "{taken:#}"
    );
    assert_eq!(client.last()["text"], "firstleft");
    for target in [r#""session":"main""#, r#""job":"j1""#] {
        let late = daemon
            .ask(&format!(r#"{{"type":"steer",{target},"text":"x"}}"#))
            .remove(0);
        assert_eq!(late["code"], "session-idle", "{late:#}");
    }
    let nobody = daemon
        .ask(r#"{"type":"steer","job":"j99","text":"x"}"#)
        .remove(0);
    assert_eq!(nobody["code"], "unknown-job");
    // A word that the agent never took ends with the turn.
    let (mut client, _) = start(&daemon, "chaos:say a;sleep-ms 600000", "message_delta");
    let mut other = daemon.connect();
    other.send(r#"{"type":"steer","id":7,"session":"main","text":"x"}"#);
    other.send(r#"{"type":"abort","session":"main"}"#);
    let answers = [other.next().unwrap(), other.next().unwrap()];
    let steer = answers.iter().find(|line| line["id"] == 7).unwrap();
    assert_eq!(steer["code"], "session-idle", "{answers:#?}");
    client.last();
}

#[test]
fn compact_and_set_model_come_between_turns() {
    let daemon = Daemon::start();
    let (mut client, _) = start(&daemon, "chaos:say a;sleep-ms 600000", "message_delta");
    let compact = r#"{"type":"compact","session":"main","instructions":"names"}"#;
    assert_eq!(daemon.ask(compact)[0]["code"], "session-busy");
    daemon.ask(r#"{"type":"abort","session":"main"}"#);
    client.last();
    let done = daemon.ask(compact).remove(0);
    assert_eq!(
        (&done["ok"], &done["summary"]),
        (&json!(true), &json!("short: names")),
        "{done:#}"
    );
    let set = daemon
        .ask(r#"{"type":"set_model","session":"main","model":"m1"}"#)
        .remove(0);
    assert_eq!(
        (&set["ok"], &set["model"]),
        (&json!(true), &json!("m1")),
        "{set:#}"
    );
    let (mut client, _) = start(&daemon, "chaos:say b", "message_delta");
    assert_eq!(client.last()["model"], "m1");
    let timmy = daemon.ask(r#"{"type":"send","session":"t","text":"hi"}"#);
    assert_eq!(timmy.last().unwrap()["text"], "hi");
    // What was only said back is no conversation.
    let no = daemon.ask(r#"{"type":"compact","session":"t"}"#).remove(0);
    assert_eq!(no["code"], "session-idle", "{no:#}");
}
