//! `agentctl serve pi` from a client's side, with a real daemon and real agents behind it.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::acp_server::editor::Editor;
use crate::support::{
    AGENTCTL, DEADLINE, Daemon, Place, chaos_worker, finish_within, kill, program, skipped,
    wait_for,
};

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

/// pi's own client calls each of its methods; returns what came of them. Its `node` is a link to the
/// face.
fn rpc_client(daemon: &Daemon, ci: &Path, client: &str) -> Value {
    let dir = daemon.path("bin");
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(AGENTCTL, dir.join("pi")).unwrap();
    let face = format!("shift\nexec {}/pi \"$@\"", dir.display());
    program(&dir, "node", &face);
    let mut command = daemon
        .place
        .command(ci.join("node-22/node_modules/node/bin/node"));
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/pi_client.mjs"))
        .arg(ci.join(client).join("dist/modes/rpc/rpc-client.js"))
        .arg(daemon.path("home"))
        .arg(format!("{}:/usr/bin:/bin", dir.display()))
        .arg("chaos");
    let finished = finish_within(2 * DEADLINE, command, b"");
    serde_json::from_str(finished.stdout.trim())
        .unwrap_or_else(|why| panic!("{why}: {finished:#?}"))
}

/// Where the programs of both dialects are.
fn ci() -> Option<std::path::PathBuf> {
    let program = crate::pi::installed()
        .into_iter()
        .find(|at| at.ends_with("pi-1.5.2/bin/pi"))?;
    Some(program.ancestors().nth(3)?.to_owned())
}

#[test]
fn pi_rpc_client_calls_every_method() {
    let Some(ci) = ci() else {
        return skipped("pi 1.5.2 (packaging/ci/install-pi.sh)");
    };
    let daemon = Daemon::start();
    let told = rpc_client(&daemon, &ci, "pi-1.5.2/package");
    for (name, expected) in [
        ("disposition", json!("started")),
        (
            "forks",
            json!(["chaos:say one", "chaos:say half;sleep-ms 600000"]),
        ),
        ("levels", json!(["off"])),
    ] {
        assert_eq!(told[name], expected, "{name}: {told:#}");
    }
    came_of_both(&told);
}

/// The client of pi 0.73, which knows neither `agent_settled` nor dispositions.
#[test]
fn pi_rpc_client_of_older_dialect_is_served() {
    let client = "pi-0.73.1/node_modules/@mariozechner/pi-coding-agent";
    let Some(ci) = ci().filter(|ci| ci.join(client).exists()) else {
        return skipped("pi 0.73.1 and 1.5.2 (packaging/ci/install-pi.sh)");
    };
    let command = [&*chaos_worker().display().to_string(), "--models", "2"];
    let rows = format!("[agents.rows]\nkind = \"jsonl\"\ncommand = {command:?}\n");
    let daemon = Daemon::with(&rows);
    came_of_both(&rpc_client(&daemon, &ci, client));
    // What hosts ask of the command line.
    let said = |program: &Path, words: &[&str]| {
        let mut command = daemon.place.command(program);
        command.args(words);
        let said = finish_within(DEADLINE, command, b"");
        assert_eq!(said.code, Some(0), "{said:#?}");
        said.stdout
    };
    let (here, there) = (daemon.path("bin/pi"), ci.join("pi-1.5.2/bin/pi"));
    let listed = |agent: &str| said(&here, &["--list-models", "-ne", "--agent", agent]);
    for word in ["--version", "-v"] {
        assert_eq!(said(&here, &[word]), said(&there, &[word]));
    }
    let table = listed("rows");
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    let columns = [
        "provider", "model", "context", "max-out", "thinking", "images",
    ];
    assert_eq!(
        (&head[..], table.lines().count()),
        (&columns[..], 3),
        "{table}"
    );
    let none = listed("chaos");
    assert!(none.starts_with("No models available. "), "{none}");
}

fn came_of_both(told: &Value) {
    for (name, expected) in [
        ("text", json!("one")),
        ("idle", json!(false)),
        ("count", json!(2)),
        // The one that was ended is in the past, too.
        ("roles", json!(["user", "assistant", "user", "assistant"])),
        ("stops", json!(["stop", "aborted"])),
        ("name", json!("a name")),
        ("anew", json!({"cancelled": false})),
        ("empty", json!(0)),
        ("again", json!(2)),
        ("resumed", json!(4)),
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

/// A turn goes on without the client, which is told the rest of it when it comes back.
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
    let path = state["sessionFile"].as_str().unwrap();
    // A daemon that hangs just then is asked as soon as it answers.
    kill(daemon.pid(), Signal::SIGSTOP);
    let mut next = Editor::of(&daemon.place, &["pi", "--session", path]);
    say(&mut next, "get_state", json!({}));
    let found = answer(&mut next, "get_state")["data"].clone();
    kill(daemon.pid(), Signal::SIGCONT);
    assert_eq!(
        (&found["isStreaming"], &found["pendingMessageCount"]),
        (&json!(true), &json!(1))
    );
    let said = next.until("its text so far", |line| line["type"] == "message_update");
    assert_eq!(said["assistantMessageEvent"]["type"], "text_start");
    say(&mut next, "prompt", json!({"message": "x"}));
    let refused = answer(&mut next, "prompt")["error"].clone();
    assert!(
        refused.as_str().unwrap().contains("already processing"),
        "{refused}"
    );
    std::fs::write(&gate, "").unwrap();
    let ended = next.until("the end of both turns", |line| line["type"] == "agent_end");
    let roles: Vec<&Value> = ended["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["role"])
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    next.until("the run's end", |line| line["type"] == "agent_settled");
    say(&mut next, "get_last_assistant_text", json!({}));
    assert_eq!(
        answer(&mut next, "get_last_assistant_text")["data"]["text"],
        "after"
    );
    // One that is come back to can be ended.
    let endless = json!({"message": "chaos:say on;sleep-ms 600000"});
    say(&mut next, "prompt", endless);
    next.until("its text", |line| line["type"] == "message_update");
    assert_eq!(next.leave().0, Some(0));
    let mut last = Editor::of(&daemon.place, &["pi", "--session", path]);
    say(&mut last, "abort", json!({}));
    let settled = last.until("the run's end", |line| line["type"] == "agent_settled");
    assert_eq!(settled["aborted"], true);
    assert_eq!(answer(&mut last, "abort")["success"], true);
    say(&mut last, "prompt", json!({"message": "chaos:say anew"}));
    last.until("the next one's end", |line| line["type"] == "agent_settled");
}

/// A client that lies: each line has its answer, and the next one is served.
#[test]
fn pi_wrong_types_in_every_field_are_answered() {
    let daemon = Daemon::start();
    let mut client = Editor::of(&daemon.place, &["pi", "--agent", "timmy"]);
    let fields = [
        (
            "prompt",
            &["message", "images", "streamingBehavior", "attachments"][..],
        ),
        ("steer", &["message", "images"]),
        ("follow_up", &["message", "images"]),
        ("set_model", &["provider", "modelId"]),
        ("set_thinking_level", &["level"]),
        ("set_steering_mode", &["mode"]),
        ("set_follow_up_mode", &["mode"]),
        ("set_auto_compaction", &["enabled"]),
        ("set_auto_retry", &["enabled"]),
        ("compact", &["customInstructions"]),
        ("new_session", &["parentSession"]),
        ("switch_session", &["sessionPath"]),
        ("fork", &["entryId"]),
        ("get_entries", &["since"]),
        ("set_session_name", &["name"]),
        ("bash", &["command", "excludeFromContext"]),
        ("export_html", &["outputPath"]),
        ("nonsense", &["x"]),
    ];
    let each = fields
        .iter()
        .flat_map(|(kind, names)| names.iter().map(move |name| (kind, name)));
    for (kind, field) in each {
        for value in [
            json!(null),
            json!(true),
            json!(-1),
            json!(""),
            json!([[]]),
            json!({"a": {}}),
        ] {
            let mut line = json!({"message": "x"});
            line[field] = value.clone();
            line["id"] = json!([kind, field, value]);
            line["type"] = json!(kind);
            client.say(&line);
            let id = line["id"].clone();
            client.until(&format!("an answer to {line}"), |said| said["id"] == id);
            // An answer to no question, with a lie in each of its fields.
            client.say(
                &json!({"type": "extension_ui_response", "id": value, "value": value,
                "confirmed": value, "cancelled": value}),
            );
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
