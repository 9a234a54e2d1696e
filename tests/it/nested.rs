//! An agentd behind an agentd, as `ssh -T host agentd --stdio --worker` would be one.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{AGENTCTL, AGENTD, Daemon, Place, chaos_worker, is_alive, kill, wait_for};

/// A daemon whose agent is another agentd, which has the chaos worker.
fn daemon() -> (Daemon, tempfile::TempDir) {
    let inner = tempfile::tempdir_in("/tmp").unwrap();
    let config = inner.path().join("config.toml");
    let chaos = chaos_worker();
    let table = format!("[agents.chaos]\nkind = \"jsonl\"\ncommand = [{chaos:?}]\n");
    std::fs::write(&config, format!("default_agent = \"chaos\"\n{table}")).unwrap();
    (outside(inner.path()), inner)
}

/// A daemon whose agent is an agentd with its configuration and its state here.
fn outside(inner: &Path) -> Daemon {
    let (config, state) = (inner.join("config.toml"), inner.join("state"));
    let place = Place::new("");
    place.configure(&format!(
        "default_agent = \"far\"\n[agents.far]\nkind = \"jsonl\"\n\
         command = [{AGENTD:?}, \"--stdio\", \"--worker\"]\n\
         env = {{ AGENTD_STATE_DIR = {state:?}, AGENTD_CONFIG = {config:?} }}\n"
    ));
    place.start()
}

fn pid(daemon: &Daemon) -> u64 {
    daemon.until("the other agentd", |status| {
        status["workers"][0]["pid"].as_u64()
    })
}

#[test]
fn nested_turns_are_said_aborted_and_answered() {
    let (daemon, _inner) = daemon();
    let last = daemon
        .ask(r#"{"prompt":"chaos:say one","session":"main"}"#)
        .pop()
        .unwrap();
    assert_eq!(last["text"], "one", "{last:#}");
    let first = pid(&daemon);

    let mut client = daemon.connect();
    client
        .send(r#"{"type":"send","id":1,"text":"chaos:say half;sleep-ms 60000","session":"main"}"#);
    client.until("message_delta");
    let aborted = daemon.ask(r#"{"type":"abort","session":"main"}"#).remove(0);
    assert_eq!(aborted["ok"], true, "{aborted:#}");
    let last = client.until("message_end").pop().unwrap();
    assert_eq!(
        (&last["stop"], &last["text"]),
        (&json!("cancelled"), &json!("half")),
        "{last:#}"
    );

    let mut client = daemon.connect();
    client.send(r#"{"type":"send","id":2,"text":"chaos:ask approval","session":"main","on_question":"wait"}"#);
    let question = client.until("question").pop().unwrap();
    let answer: Value =
        json!({"type": "answer", "question_id": question["question_id"], "approve": true});
    assert_eq!(daemon.ask(&answer.to_string())[0]["ok"], true);
    let last = client.until("message_end").pop().unwrap();
    assert_eq!(last["text"], "approve=true", "{last:#}");
    assert_eq!(pid(&daemon), first, "it is still the same process");
}

#[test]
fn nested_sessions_outlive_it_until_they_are_closed() {
    let inner = tempfile::tempdir_in("/tmp").unwrap();
    let keep = format!("cat >> {0}/$0; cat {0}/$0", inner.path().display());
    let command = format!("[\"/bin/sh\", \"-c\", {keep:?}, \"{{session}}\"]");
    let table = format!("[agents.e]\nkind = \"exec\"\ncommand = {command}\n");
    let config = inner.path().join("config.toml");
    std::fs::write(&config, format!("default_agent = \"e\"\n{table}")).unwrap();
    let daemon = outside(inner.path());
    let send = |text: &str| {
        let line = json!({"prompt": text, "session": "main", "require_context": true});
        let last = daemon.ask(&line.to_string()).pop().unwrap();
        (last["text"].clone(), last["context"].clone())
    };
    assert_eq!(send("one "), (json!("one "), json!("new")));
    assert_eq!(send("two "), (json!("one two "), json!("continued")));
    let first = pid(&daemon);
    kill(u32::try_from(first).unwrap(), Signal::SIGKILL);
    daemon.until("another process", |status| {
        let now = status["workers"][0]["pid"].as_u64()?;
        (now != first).then_some(())
    });
    assert_eq!(
        send("three "),
        (json!("one two three "), json!("continued"))
    );
    let closed = daemon.ask(r#"{"type":"session.close","session":"main"}"#);
    assert_eq!(closed[0]["ok"], true, "{closed:#?}");
    assert_eq!(send("four "), (json!("four "), json!("new")));
}

#[test]
fn nested_processes_end_however_it_dies() {
    let inner = tempfile::tempdir_in("/tmp").unwrap();
    let (config, tool) = (inner.path().join("config.toml"), inner.path().join("tool"));
    let hang = format!(
        "sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait",
        tool.display()
    );
    let table = format!("[agents.e]\nkind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", {hang:?}]\n");
    std::fs::write(&config, format!("default_agent = \"e\"\n{table}")).unwrap();
    let daemon = outside(inner.path());
    let mut client = daemon.connect();
    client.send(r#"{"type":"send","id":1,"text":"hang","session":"main"}"#);
    let tool: u32 = wait_for("the tool runs", || {
        std::fs::read_to_string(&tool).ok()?.trim().parse().ok()
    });
    kill(u32::try_from(pid(&daemon)).unwrap(), Signal::SIGKILL);
    let last = client.until("error").pop().unwrap();
    assert_eq!(last["code"], "worker-exited", "{last:#}");
    wait_for("the tool is gone", || (!is_alive(tool)).then_some(()));
}

#[test]
fn abort_by_a_sends_id_means_that_one() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    for (id, session) in [(1, "one"), (2, "two")] {
        let line = json!({
            "type": "send", "id": id, "agent": "chaos", "session": session,
            "text": "chaos:say half;sleep-ms 60000",
        });
        client.send(&line.to_string());
        client.until("message_delta");
    }
    client.send(r#"{"type":"abort","id":1}"#);
    let last = client.until("message_end").pop().unwrap();
    assert_eq!(
        (&last["id"], &last["stop"]),
        (&json!(1), &json!("cancelled")),
        "{last:#}"
    );
    let running = daemon.ask(r#"{"type":"jobs","state":"running"}"#).remove(0);
    assert_eq!(running["jobs"].as_array().unwrap().len(), 1, "{running:#}");
    let taken = client.request(r#"{"type":"ping","id":2}"#);
    assert_eq!(taken["code"], "invalid-request", "{taken:#}");
}

#[test]
fn abort_by_an_ended_sends_id_means_none() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    client.send(r#"{"type":"hello","client":"test"}"#);
    client
        .send(r#"{"type":"send","id":1,"agent":"chaos","session":"one","text":"chaos:say done"}"#);
    client.until("message_end");
    client.send(
        r#"{"type":"send","id":2,"agent":"chaos","session":"two","text":"chaos:say half;sleep-ms 60000"}"#,
    );
    client.until("message_delta");
    let aborted = client.request(r#"{"type":"abort","id":1}"#);
    assert_eq!(
        (&aborted["ok"], &aborted["jobs"]),
        (&json!(true), &json!([])),
        "{aborted:#}"
    );
    let running = daemon.ask(r#"{"type":"jobs","state":"running"}"#).remove(0);
    assert_eq!(running["jobs"].as_array().unwrap().len(), 1, "{running:#}");
}

/// A script in front of `agentctl` that has an agent's name, as those for OpenClaw's command line have.
#[test]
fn agent_that_asks_itself_ends_without_daemon() {
    let place = Place::new("");
    let counted = place.path("counted");
    let script = format!("echo x >> {counted:?}; exec \"$0\" send --agent e \"$1\"");
    let table = format!(
        "[agents.e]\nkind = \"exec\"\ncommand = [\"/bin/sh\", \"-c\", {script:?}, {AGENTCTL:?}, \"{{prompt}}\"]\n\
         pass_env = [\"AGENTD_CONFIG\", \"AGENTD_STATE_DIR\"]\n"
    );
    place.configure(&table);
    let said = place.agentctl(&["send", "--agent", "e", "hi"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("3 levels are the limit"), "{said:?}");
    let counted = std::fs::read_to_string(&counted).unwrap();
    assert_eq!(counted.lines().count(), 3, "{said:?}");
}
