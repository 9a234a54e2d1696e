//! Sessions: made, found again by another process, listed, closed, and what is chosen in them.

use std::time::Duration;

use serde_json::{Value, json};

use super::editor::Editor;
use crate::support::{AGENTCTL, Daemon, Place};

fn opened(session: &str, place: &Place) -> Value {
    json!({"sessionId": session, "cwd": place.path("home"), "mcpServers": []})
}

#[test]
fn acp_editor_started_anew_finds_its_session() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &["--agent", "chaos"]);
    let session = editor.open(&daemon.place);
    let first = editor.prompt(&session, "chaos:say one;tool rw");
    editor.answer(first);
    editor.prompt(&session, "chaos:say two;sleep-ms 600000");
    editor.until("the second answer", |line| {
        line["params"]["update"]["content"]["text"] == "two"
    });
    // It is killed, and the turn goes on.
    drop(editor);
    let mut editor = Editor::start(&daemon.place, &[]);
    let load = editor.request("session/load", &opened(&session, &daemon.place));
    let answer = editor.answer(load);
    assert_eq!(
        answer["result"]["modes"]["currentModeId"], "chaos",
        "{answer:#}"
    );
    let told = editor.text(&session, "user_message_chunk");
    assert_eq!(told, "chaos:say one;tool rwchaos:say two;sleep-ms 600000");
    assert_eq!(editor.text(&session, "agent_message_chunk"), "one");
    let ended = |line: &Value| line["params"]["update"]["status"] == "completed";
    assert!(editor.heard.iter().any(ended), "{:#?}", editor.heard);
    // And on, and can be cancelled by whoever loaded it.
    editor.until("the turn in flight", |line| {
        line["params"]["update"]["content"]["text"] == "two"
    });
    editor.notify("session/cancel", &json!({"sessionId": session}));
    let next = editor.prompt(&session, "next");
    assert_eq!(editor.answer(next)["result"]["stopReason"], "end_turn");
    let jobs = daemon.ask(r#"{"type":"jobs"}"#).remove(0);
    assert_eq!(jobs["jobs"][1]["state"], "cancelled", "{jobs:#}");
}

#[test]
fn acp_resume_repeats_nothing() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &[]);
    let session = editor.open(&daemon.place);
    let first = editor.prompt(&session, "one");
    editor.answer(first);
    let (code, took, _) = editor.leave();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(1), "{took:?}");
    let mut editor = Editor::start(&daemon.place, &[]);
    let answer = editor.ask("session/resume", &opened(&session, &daemon.place));
    assert!(answer["result"].is_object(), "{answer:#}");
    let updates = editor
        .heard
        .iter()
        .filter(|line| line["method"] == "session/update");
    assert_eq!(updates.count(), 0, "{:#?}", editor.heard);
    let next = editor.prompt(&session, "two");
    assert_eq!(editor.answer(next)["result"]["stopReason"], "end_turn");
}

#[test]
fn acp_load_tells_long_messages_whole() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &["--agent", "chaos"]);
    let session = editor.open(&daemon.place);
    let prompt = editor.prompt(&session, "chaos:emit 60000");
    editor.answer(prompt);
    let said = editor.text(&session, "agent_message_chunk");
    drop(editor);
    let mut editor = Editor::start(&daemon.place, &[]);
    editor.ask("session/load", &opened(&session, &daemon.place));
    let told = editor.text(&session, "agent_message_chunk");
    assert!(told == said, "{} bytes of {}", told.len(), said.len());
}

#[test]
fn acp_list_and_close_are_of_the_daemon() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &[]);
    let session = editor.open(&daemon.place);
    let prompt = editor.prompt(&session, "what is it called?");
    editor.answer(prompt);
    daemon.agentctl(&["send", "--session", "mine", "hi"]);
    let cwd = daemon.path("home");
    let listed = editor.ask("session/list", &json!({"cwd": cwd}));
    let rows = listed["result"]["sessions"].as_array().unwrap();
    let ids: Vec<&str> = rows
        .iter()
        .map(|row| row["sessionId"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["mine", &session], "{listed:#}");
    assert_eq!(rows[1]["title"], "what is it called?");
    assert_eq!(
        editor.ask("session/close", &json!({"sessionId": session}))["result"],
        json!({})
    );
    let closed = editor.ask(
        "session/prompt",
        &json!({"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}),
    );
    assert_eq!(closed["error"]["code"], -32002, "{closed:#}");
    // It is there still: closing ends the work, deleting takes it from the list.
    assert!(editor.ask("session/load", &opened(&session, &daemon.place))["result"].is_object());
    assert_eq!(
        editor.ask("session/delete", &json!({"sessionId": session}))["result"],
        json!({})
    );
    let again = editor.ask("session/load", &opened(&session, &daemon.place));
    assert_eq!(again["error"]["code"], -32002, "{again:#}");
}

#[test]
fn acp_fork_begins_with_what_was_said() {
    let daemon = Daemon::start();
    let mut editor = Editor::start(&daemon.place, &[]);
    let session = editor.open(&daemon.place);
    let prompt = editor.prompt(&session, "one");
    editor.answer(prompt);
    let title = json!({"sessionId": session, "title": "the first"});
    assert_eq!(editor.ask("session/set_title", &title)["result"], json!({}));
    let forked = editor.ask("session/fork", &opened(&session, &daemon.place));
    let copy = forked["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = editor.prompt(&copy, "two");
    assert_eq!(editor.answer(prompt)["result"]["stopReason"], "end_turn");
    let line = r#"{"type":"collect","jobs":["j2"]}"#;
    let last = &daemon.ask(line).remove(0)["results"][0];
    assert_eq!(
        (&last["session"], &last["context"]),
        (&json!(copy), &json!("continued"))
    );
    let listed = editor.ask("session/list", &json!({}));
    let rows = listed["result"]["sessions"].as_array().unwrap();
    assert!(
        rows.len() == 2 && rows.iter().all(|row| row["title"] == "the first"),
        "{listed:#}"
    );
}

#[test]
fn acp_editor_chooses_agent_and_model() {
    let daemon = Daemon::with("[agents.lists]\nkind = \"jsonl\"\ncommand = [\"sh\", \"-c\", \"exec \\\"$0\\\" --models 3\"]\n"
        .replace("$0", crate::support::chaos_worker().to_str().unwrap()).as_str());
    let mut editor = Editor::start(&daemon.place, &[]);
    let session = editor.open(&daemon.place);
    let choose = |option: &str, value: &str| json!({"sessionId": session, "configId": option, "value": value});
    let chosen = editor.ask("session/set_config_option", &choose("agent", "lists"));
    let options = &chosen["result"]["configOptions"];
    assert_eq!(options[0]["currentValue"], "lists", "{chosen:#}");
    let models = options[1]["options"].as_array().unwrap();
    assert_eq!(models.len(), 3, "{chosen:#}");
    let second = models[1]["value"].as_str().unwrap();
    let chosen = editor.ask("session/set_config_option", &choose("model", second));
    assert_eq!(
        chosen["result"]["configOptions"][1]["currentValue"], second,
        "{chosen:#}"
    );
    let prompt = editor.prompt(&session, "chaos:given model");
    editor.answer(prompt);
    let said = editor.text(&session, "agent_message_chunk");
    assert!(
        second.contains(said.trim_matches('"')) && !said.is_empty(),
        "{said} of {second}"
    );
    let refused = editor.ask("session/set_config_option", &choose("agent", "timmy"));
    assert_eq!(refused["error"]["code"], -32602, "{refused:#}");
}

#[test]
fn acp_bootstrap_prints_an_entry_for_each_editor() {
    let place = Place::new("");
    let printed = place.agentctl(&["serve", "acp", "--agent", "pi", "--bootstrap"]);
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    for part in [
        "Zed",
        "JetBrains",
        "Neovim",
        "Emacs",
        "agent_servers",
        "\"pi\"",
    ] {
        assert!(printed.stdout.contains(part), "{part}: {}", printed.stdout);
    }
    let program = std::fs::canonicalize(AGENTCTL).unwrap();
    assert!(
        printed.stdout.contains(program.to_str().unwrap()),
        "{}",
        printed.stdout
    );
}
