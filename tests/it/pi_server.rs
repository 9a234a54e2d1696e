//! `agentctl serve pi` from a client's side, with a real daemon and real agents behind it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::acp_server::editor::Editor;
use crate::support::{AGENTCTL, DEADLINE, Daemon, Place, finish_within, kill, skipped, wait_for};

fn client(place: &Place) -> Editor {
    Editor::of(place, &["pi", "--mode", "rpc", "--agent", "chaos"])
}

fn say(client: &mut Editor, kind: &str, mut fields: Value) {
    fields["type"] = json!(kind);
    fields["id"] = json!(kind);
    client.say(&fields);
}

#[track_caller]
fn answer(client: &mut Editor, kind: &str) -> Value {
    client.until(kind, |line| {
        line["type"] == "response" && line["command"] == kind
    })
}

/// pi's own client, whose `node` is a link to the face.
#[test]
fn pi_rpc_client_calls_every_method() {
    let Some(program) = crate::pi::installed()
        .into_iter()
        .find(|at| at.ends_with("pi-1.5.2/bin/pi"))
    else {
        return skipped("pi 1.5.2 (packaging/ci/install-pi.sh)");
    };
    let daemon = Daemon::start();
    let dir = daemon.path("bin");
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(AGENTCTL, dir.join("pi")).unwrap();
    let face = format!("#!/bin/sh\nshift\nexec {}/pi \"$@\"\n", dir.display());
    std::fs::write(dir.join("node"), face).unwrap();
    std::fs::set_permissions(dir.join("node"), std::fs::Permissions::from_mode(0o700)).unwrap();
    let installed = program.ancestors().nth(2).unwrap();
    let node = installed
        .parent()
        .unwrap()
        .join("node-22/node_modules/node/bin/node");
    let mut command = daemon.place.command(node);
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/pi_client.mjs"))
        .arg(installed.join("package/dist/modes/rpc/rpc-client.js"))
        .arg(daemon.path("home"))
        .arg(format!("{}:/usr/bin:/bin", dir.display()))
        .arg("chaos");
    let finished = finish_within(2 * DEADLINE, command, b"");
    let told: Value = serde_json::from_str(finished.stdout.trim())
        .unwrap_or_else(|why| panic!("{why}: {finished:#?}"));
    for (name, expected) in [
        ("disposition", json!("started")),
        ("text", json!("one")),
        ("idle", json!(false)),
        ("count", json!(2)),
        ("roles", json!(["user", "assistant", "user", "assistant"])),
        (
            "forks",
            json!(["chaos:say one", "chaos:say half;sleep-ms 600000"]),
        ),
        ("name", json!("a name")),
        ("anew", json!({"cancelled": false})),
        ("empty", json!(0)),
        ("again", json!(2)),
    ] {
        assert_eq!(told[name], expected, "{name}: {told:#}");
    }
    assert_eq!(told["kinds"][0], "agent_start", "{told:#}");
    assert!(
        !told["refused"].as_array().unwrap().contains(&json!("done")),
        "{told:#}"
    );
}

#[test]
fn pi_daemon_killed_under_a_turn_is_told() {
    let daemon = Daemon::start();
    let mut client = client(&daemon.place);
    say(
        &mut client,
        "prompt",
        json!({"message": "chaos:say half;sleep-ms 600000"}),
    );
    client.until("its text", |line| line["type"] == "message_update");
    let daemon = daemon.kill().start();
    let settled = client.until("its end", |line| line["type"] == "agent_settled");
    assert_eq!(settled["aborted"], false);
    let mut heard = client.heard.iter().rev();
    let last = heard.find(|line| line["type"] == "message_end");
    assert_eq!(last.unwrap()["message"]["stopReason"], "error");
    say(&mut client, "prompt", json!({"message": "chaos:say on"}));
    client.until("the next one's end", |line| line["type"] == "agent_settled");
    drop(daemon);
}

#[test]
fn pi_question_is_answered_by_the_client() {
    let daemon = Daemon::start();
    let mut client = client(&daemon.place);
    say(
        &mut client,
        "prompt",
        json!({"message": "chaos:ask approval"}),
    );
    let asked = client.until("a dialog", |line| line["type"] == "extension_ui_request");
    assert_eq!(asked["method"], "confirm");
    client.say(&json!({"type": "extension_ui_response", "id": asked["id"], "confirmed": true}));
    client.until("its end", |line| line["type"] == "agent_settled");
    say(&mut client, "get_last_assistant_text", json!({}));
    assert_eq!(
        answer(&mut client, "get_last_assistant_text")["data"]["text"],
        "approve=true"
    );
}

/// A turn goes on without the client, which finds it again.
#[test]
fn pi_client_that_leaves_ends_no_turn() {
    let daemon = Daemon::start();
    let mut first = client(&daemon.place);
    let gate = daemon.path("gate");
    say(
        &mut first,
        "prompt",
        json!({"message": format!("chaos:say on;wait-file {}", gate.display())}),
    );
    first.until("its text", |line| line["type"] == "message_update");
    say(&mut first, "get_state", json!({}));
    let state = answer(&mut first, "get_state")["data"].clone();
    say(
        &mut first,
        "follow_up",
        json!({"message": "chaos:say after"}),
    );
    answer(&mut first, "follow_up");
    kill(first.child.0.id(), Signal::SIGTERM);
    let status = wait_for("it leaves, with its input open", || {
        first.child.0.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(143));
    std::fs::write(&gate, "").unwrap();
    let session = state["sessionId"].as_str().unwrap();
    daemon.until("both turns end", |_| {
        let jobs = daemon
            .ask(&json!({"type": "jobs", "session": session}).to_string())
            .remove(0);
        let jobs = jobs["jobs"].as_array().unwrap();
        let ended = jobs.iter().filter(|job| job["state"] == "completed");
        (ended.count() == 2).then_some(())
    });
    let path = state["sessionFile"].as_str().unwrap();
    let mut next = Editor::of(&daemon.place, &["pi", "--session", path]);
    say(&mut next, "get_last_assistant_text", json!({}));
    assert_eq!(
        answer(&mut next, "get_last_assistant_text")["data"]["text"],
        "after"
    );
}

/// A client that lies: each line has its answer, and the next one is served.
#[test]
fn pi_wrong_types_in_every_field_are_answered() {
    let daemon = Daemon::start();
    let mut client = Editor::of(&daemon.place, &["pi", "--agent", "timmy"]);
    let fields = [
        ("prompt", "images"),
        ("steer", "message"),
        ("follow_up", "message"),
        ("set_model", "modelId"),
        ("set_thinking_level", "level"),
        ("set_steering_mode", "mode"),
        ("set_follow_up_mode", "mode"),
        ("set_auto_compaction", "enabled"),
        ("switch_session", "sessionPath"),
        ("fork", "entryId"),
        ("get_entries", "since"),
        ("set_session_name", "name"),
        ("nonsense", "x"),
    ];
    for (kind, field) in fields {
        for value in [
            json!(null),
            json!(true),
            json!(-1),
            json!(""),
            json!([[]]),
            json!({"a": {}}),
        ] {
            let mut line = json!({"message": null, field: value});
            line["id"] = json!([field, value]);
            line["type"] = json!(kind);
            client.say(&line);
            let id = line["id"].clone();
            client.until(&format!("an answer to {line}"), |said| said["id"] == id);
        }
    }
    for bytes in [&b"\xff\n"[..], b"null\n", b"[\n", b"{\"type\":7}\n"] {
        client.write(bytes);
        client.until("a refusal", |said| {
            said["success"] == false && said["id"].is_null()
        });
    }
    say(&mut client, "get_state", json!({}));
    assert_eq!(answer(&mut client, "get_state")["success"], true);
    assert_eq!(client.leave().0, Some(0));
}
