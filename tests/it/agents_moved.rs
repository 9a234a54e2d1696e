//! Agents whose programs come, go and come back while the daemon runs, as upgrades have it.

use std::os::unix::fs::symlink;

use serde_json::json;

use crate::cli_agents::{row, start};
use crate::support::{Client, Daemon, Place, chaos_worker, copy_program, program, wait_for};

fn send(client: &mut Client, agent: &str, session: &str, text: &str) {
    // Processes are shared by those of one directory.
    let cwd = if session == "lives" { "/" } else { "/tmp" };
    let line = json!({"type": "send", "agent": agent, "session": session, "cwd": cwd, "text": text, "stream": true});
    client.send(&line.to_string());
}

/// The last line of the next turn.
fn ended(client: &mut Client) -> serde_json::Value {
    loop {
        let line = client.next().expect("a final line");
        if line["type"] == "message_end" || line["type"] == "error" {
            return line;
        }
    }
}

#[test]
fn agent_away_for_a_moment_answers_once_back() {
    let place = Place::new("");
    let (there, away) = (place.path("worker"), place.path("worker.old"));
    copy_program(chaos_worker(), &there);
    let script = program(&place.path("bin"), "once", "cat");
    place.configure(&format!(
        "alias = false\n[agents.long]\nkind = \"jsonl\"\ncommand = [{there:?}]\n\
         [agents.once]\nkind = \"exec\"\ncommand = [{script:?}]\n"
    ));
    let daemon = place.start();
    let mut client = daemon.connect();
    client.send(r#"{"type":"hello"}"#);
    client.until("hello");
    send(&mut client, "long", "lives", "chaos:say one");
    assert_eq!(ended(&mut client)["text"], "one");
    std::fs::rename(&there, &away).unwrap();
    std::fs::rename(&script, script.with_extension("old")).unwrap();
    // One that has no process waits, and says for what.
    let mut other = daemon.connect();
    send(&mut other, "long", "new", "chaos:say two");
    let mut once = daemon.connect();
    send(&mut once, "once", "newer", "three");
    for client in [&mut other, &mut once] {
        let lines = client.until("note");
        assert_eq!(lines.last().unwrap()["code"], "agent-missing", "{lines:?}");
    }
    // One that has a process does not care.
    send(&mut client, "long", "lives", "chaos:say still");
    assert_eq!(ended(&mut client)["text"], "still");
    let listed = row(&daemon, "long");
    assert_eq!(listed["usable"], false, "{listed:#}");
    std::fs::rename(&away, &there).unwrap();
    std::fs::rename(script.with_extension("old"), &script).unwrap();
    assert_eq!(ended(&mut other)["text"], "two");
    assert_eq!(ended(&mut once)["text"], "three");
    assert_eq!(row(&daemon, "long")["usable"], true);
}

#[test]
fn agent_installed_meanwhile_is_found_without_a_restart() {
    let place = Place::new("");
    let bin = place.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    place.configure("alias = false\n[agents.late]\nkind = \"exec\"\ncommand = [\"late\"]\n");
    symlink(place.path("claude-2"), bin.join("claude")).unwrap();
    let daemon = start(place);
    let listed = row(&daemon, "claude");
    let why = listed["why_not"].as_str().unwrap_or_default();
    assert!(why.contains("is a link to"), "{listed:#}");
    let last = |daemon: &Daemon| {
        let line = r#"{"type":"send","agent":"late","text":"hi"}"#;
        daemon.ask(line).pop().expect("a final line")
    };
    assert_eq!(last(&daemon)["code"], "no-agent");
    // The installer is done.
    program(
        &daemon.path(""),
        "claude-2",
        "echo '2.0 (Claude Code) --input-format'",
    );
    program(&bin, "late", "cat");
    let listed = row(&daemon, "claude");
    assert_eq!(listed["usable"], true, "{listed:#}");
    assert_eq!(listed["version"], "2.0", "{listed:#}");
    wait_for("the agent that was installed", || {
        Some(last(&daemon)).filter(|line| line["text"] == "hi")
    });
}
