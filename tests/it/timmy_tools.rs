//! The built-in agent's tools behind the daemon: real MCP servers, and work for other agents.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::mock_model::MockModel;
use crate::support::{Daemon, Place, Reaped, chaos_worker, skipped, wait_for};
use crate::timmy::{daemon, turn};

/// The program of an MCP server of the protocol's own project.
fn server(name: &str) -> Option<PathBuf> {
    let mcp = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/mcp");
    let program = mcp.join(name).join("bin").join(name);
    if program.is_file() {
        return Some(program);
    }
    let program = program.display();
    skipped(&format!("{program} (packaging/ci/install-mcp.sh)"));
    None
}

/// What tools said in a turn, and whether each did what was asked; without what they asked for.
fn tools(last: &Value) -> Vec<(bool, String)> {
    let trace = last["tool_trace"].as_array().unwrap().iter();
    let trace = trace.filter(|call| call["name"] != "question");
    let call = |call: &Value| {
        let output = call["output"].as_str().unwrap_or_default().to_owned();
        (call["ok"] == true, output)
    };
    trace.map(call).collect()
}

#[test]
fn mcp_tool_answers_or_needs_leave() {
    let Some(server) = server("everything") else {
        return;
    };
    let model = MockModel::start();
    let mcp = format!(
        "[timmy]\ntoolsets = [\"mcp\"]\n[timmy.mcp.every]\ncommand = [{server:?}]\nread_only = [\"echo\"]\n"
    );
    let daemon = daemon(&model, &mcp);
    let none = json!({});
    let said = turn(
        &daemon,
        r#"[[use mcp__every__echo {"message":"hi"}]]"#,
        &none,
    );
    let text = said["text"].as_str().unwrap_or_default();
    assert!(text.contains("hi"), "{said:#}");
    // Nobody is there to allow it.
    let denied = turn(
        &daemon,
        r#"[[use mcp__every__get-sum {"a":1,"b":2}]]"#,
        &none,
    );
    let trace = &denied["tool_trace"];
    assert!(
        trace
            .as_array()
            .unwrap()
            .iter()
            .any(|call| call["ok"] == false),
        "{denied:#}"
    );
}

/// Makes a server of node's listen on loopback only, and says on which port.
const ON_LOOPBACK: &str = r#"
const net = require("net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (_port, ...rest) {
  this.once("listening", () =>
    require("fs").writeFileSync(process.env.PORT_FILE, this.address().port + "\n"));
  return listen.call(this, 0, "127.0.0.1", rest.find((one) => typeof one === "function"));
};
"#;

#[test]
fn mcp_server_is_reached_by_its_address() {
    let Some(server) = server("everything") else {
        return;
    };
    let place = Place::new("");
    let (hook, file) = (place.path("loopback.cjs"), place.path("port"));
    std::fs::write(&hook, ON_LOOPBACK).unwrap();
    let mut command = place.command(server);
    command
        .arg("streamableHttp")
        .env("NODE_OPTIONS", format!("--require {}", hook.display()))
        .env("PORT_FILE", &file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _serving = Reaped(command.spawn().unwrap());
    let port: u16 = wait_for("the server to listen", || {
        let said = std::fs::read_to_string(&file).ok()?;
        said.strip_suffix('\n')?.parse().ok()
    });
    let model = MockModel::start();
    let daemon = daemon(
        &model,
        &format!(
            "[timmy]\ntoolsets = [\"mcp\"]\n[timmy.mcp.every]\n\
             url = \"http://127.0.0.1:{port}/mcp\"\nread_only = [\"echo\"]\n"
        ),
    );
    let use_it = r#"[[use mcp__every__echo {"message":"over HTTP"}]]"#;
    for _ in 0..2 {
        let last = turn(&daemon, use_it, &json!({}));
        let [(true, said)] = &tools(&last)[..] else {
            panic!("{last:#}");
        };
        assert!(said.contains("over HTTP"), "{last:#}");
    }
}

#[test]
fn mcp_files_are_written_with_leave_only() {
    let Some(server) = server("filesystem") else {
        return;
    };
    let model = MockModel::start();
    let place = Place::new("");
    let notes = place.path("notes");
    std::fs::create_dir(&notes).unwrap();
    std::fs::write(notes.join("a.txt"), "what was noted").unwrap();
    std::fs::write(place.path("private"), "not for it").unwrap();
    let daemon = daemon(
        &model,
        &format!(
            "[timmy]\ntoolsets = [\"mcp\"]\n[timmy.mcp.files]\n\
             command = [{server:?}, {notes:?}]\nread_only = [\"read_text_file\"]\n"
        ),
    );
    let used = |tool: &str, arguments: Value| {
        let text = format!("[[use mcp__files__{tool} {arguments}]]");
        let last = turn(&daemon, &text, &json!({}));
        tools(&last).pop().unwrap_or_else(|| panic!("{last:#}"))
    };
    let (ok, said) = used("read_text_file", json!({"path": notes.join("a.txt")}));
    assert!(ok && said.contains("what was noted"), "{said}");
    let (ok, said) = used("read_text_file", json!({"path": place.path("private")}));
    assert!(!ok && !said.contains("not for it"), "{said}");
    let new = notes.join("new.txt");
    let (ok, said) = used("write_file", json!({"path": new, "content": "x"}));
    assert!(!ok && said.contains("not allowed"), "{said}");
    assert!(!new.exists());
}

/// A daemon whose timmy can hand work to `chaos` and to itself.
fn with_others(model: &MockModel) -> Daemon {
    let chaos = chaos_worker();
    daemon(
        model,
        &format!(
            "[timmy]\ntoolsets = [\"delegate\"]\n\
             [agents.chaos]\nkind = \"jsonl\"\ncommand = [{chaos:?}]\n"
        ),
    )
}

/// A prompt that makes the model hand in this task.
fn delegating(prompt: &str, agent: &str, wait: bool) -> String {
    // Spelt so that the model sees the directives of a prompt only when it is asked with it.
    let hidden = json!(prompt).to_string();
    let hidden = hidden.replace('[', "\\u005b").replace(']', "\\u005d");
    format!(
        r#"[[use delegate {{"tasks":[{{"prompt":{hidden},"agent":"{agent}"}}],"wait":{wait}}}]]"#
    )
}

fn job(daemon: &Daemon, name: &str) -> Value {
    let all = daemon.ask(r#"{"type":"jobs"}"#).remove(0);
    let rows = all["jobs"].as_array().unwrap().iter();
    let found = rows.into_iter().find(|row| row["job"] == name);
    found.cloned().unwrap_or(Value::Null)
}

#[test]
fn delegate_gives_a_task_and_gets_its_result() {
    let model = MockModel::start();
    let daemon = with_others(&model);
    let none = json!({});
    let last = turn(&daemon, &delegating("chaos:say sub", "chaos", true), &none);
    let [(true, said)] = &tools(&last)[..] else {
        panic!("{last:#}");
    };
    assert_eq!(said, "## j2, done by chaos (end_turn):\nsub\n");
    let child = job(&daemon, "j2");
    assert_eq!(
        (&child["parent"], &child["agent"]),
        (&json!("j1"), &json!("chaos"))
    );

    // Handed in by one turn, and collected by a later one of another process.
    let last = turn(
        &daemon,
        &delegating("chaos:say later", "chaos", false),
        &none,
    );
    assert_eq!(tools(&last), [(true, "handed in: j4".to_owned())]);
    let daemon = daemon.kill().start();
    let last = turn(&daemon, r#"[[use collect {"jobs":["j4"]}]]"#, &none);
    let [(_, said)] = &tools(&last)[..] else {
        panic!("{last:#}");
    };
    assert!(said.starts_with("## j4, "), "{said}");
}

#[test]
fn delegate_goes_three_levels_deep_and_no_deeper() {
    let model = MockModel::start();
    let daemon = with_others(&model);
    let mut prompt = "the bottom".to_owned();
    for _ in 0..3 {
        prompt = delegating(&prompt, "timmy", true);
    }
    let last = turn(&daemon, &prompt, &json!({}));
    let [(true, said)] = &tools(&last)[..] else {
        panic!("{last:#}");
    };
    // Each waits for the one below it, and the third is told that it is the last.
    assert!(said.contains("## j3, done by timmy"), "{said}");
    assert!(said.contains("3 levels are the limit"), "{said}");
    assert!(
        !model
            .seen()
            .iter()
            .flatten()
            .any(|text| text == "the bottom")
    );
    let parents = ["j1", "j2", "j3"].map(|name| job(&daemon, name)["parent"].clone());
    assert_eq!(parents, [Value::Null, json!("j1"), json!("j2")]);
}

#[test]
fn delegate_ends_its_tasks_with_its_turn() {
    let model = MockModel::start();
    let daemon = with_others(&model);
    let mut client = daemon.connect();
    let text = delegating("chaos:say half;sleep-ms 600000", "chaos", true);
    client.send(&json!({"type": "send", "id": 1, "session": "main", "text": text}).to_string());
    wait_for("the task to run", || {
        (job(&daemon, "j2")["state"] == "running").then_some(())
    });
    daemon.ask(r#"{"type":"abort","job":"j1"}"#);
    assert_eq!(client.last()["stop"], "cancelled");
    wait_for("the task to end", || {
        (job(&daemon, "j2")["state"] == "cancelled").then_some(())
    });
}
