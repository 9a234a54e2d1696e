//! Which models an agent has, over a real socket and with a real process.

use serde_json::{Value, json};

use crate::support::{Daemon, chaos_worker, needs};

/// A daemon with an agent `lists` that is started so.
fn with(flags: &[&str]) -> Daemon {
    let mut command = vec![chaos_worker().display().to_string()];
    command.extend(flags.iter().map(|flag| (*flag).to_owned()));
    Daemon::with(&format!(
        "[agents.lists]\nkind = \"jsonl\"\ncommand = {command:?}\n[agents.turn]\nkind = \"exec\"\ncommand = [\"cat\"]\n"
    ))
}

fn asked(daemon: &Daemon, fields: &Value) -> Value {
    let mut line = json!({"type": "models", "agent": "lists"});
    for (name, value) in fields.as_object().unwrap() {
        line[name] = value.clone();
    }
    daemon.ask(&line.to_string()).remove(0)
}

fn processes(daemon: &Daemon) -> Vec<Value> {
    let status = daemon.status();
    let workers = status["workers"].as_array().unwrap().iter();
    workers
        .filter(|worker| worker["agent"] == "lists")
        .map(|worker| worker["pid"].clone())
        .collect()
}

#[test]
fn models_are_asked_of_one_process() {
    let daemon = with(&["--models", "3"]);
    assert!(processes(&daemon).is_empty());
    let listed = asked(&daemon, &json!({}));
    assert_eq!(listed["ok"], true, "{listed:#}");
    let first = json!({"provider": "chaos", "model": "model-0", "default": true});
    for (name, value) in first.as_object().unwrap() {
        assert_eq!(listed["models"][0][name], *value, "{listed:#}");
    }
    assert_eq!(listed["models"].as_array().unwrap().len(), 3);
    let before = processes(&daemon);
    assert_eq!(before.len(), 1);
    // A turn that runs in it holds up nobody.
    let mut client = daemon.connect();
    client.send(r#"{"type":"send","id":1,"agent":"lists","session":"main","text":"chaos:say a;wait-file /nowhere"}"#);
    client.until("message_delta");
    let beside = asked(&daemon, &json!({}));
    assert_eq!(beside["models"], listed["models"], "{beside:#}");
    assert_eq!(processes(&daemon), before);
    daemon.ask(r#"{"type":"abort","session":"main"}"#);
    client.last();
    // What is set for the session is its default.
    daemon.ask(r#"{"type":"set_model","session":"main","provider":"chaos","model":"model-2"}"#);
    let of_session = daemon
        .ask(r#"{"type":"models","session":"main"}"#)
        .remove(0);
    let defaults: Vec<&Value> = of_session["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["default"])
        .collect();
    assert_eq!(defaults, [false, false, true], "{of_session:#}");
}

#[test]
fn models_by_the_thousand_come_in_pages() {
    let daemon = with(&["--models", "12000"]);
    let (mut names, mut pages, mut after) = (Vec::new(), 0, json!(null));
    let mut last = json!(null);
    while pages == 0 || after.is_u64() {
        last = asked(&daemon, &json!({"after": after}));
        assert!(last.to_string().len() < 1024 * 1024);
        let rows = last["models"].as_array().expect("a list").iter();
        names.extend(rows.map(|row| row["model"].as_str().unwrap().to_owned()));
        after = last["next"].clone();
        pages += 1;
    }
    assert!(pages > 1, "one page");
    let expected: Vec<String> = (0..10_000)
        .map(|number| format!("model-{number}"))
        .collect();
    assert!(names == expected, "{} models", names.len());
    let note = last["note"].as_str().unwrap_or_default();
    assert!(note.contains("more were left out"), "{last:#}");
    let shown = daemon.agentctl(&["models", "list", "--agent", "lists"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    assert_eq!(shown.stdout.lines().count(), 10_001);
}

#[test]
fn models_of_agents_that_cannot_say_are_refused() {
    let daemon = with(&[]);
    for (fields, code) in [
        (json!({}), "unsupported"),
        (json!({"agent": "turn"}), "unsupported"),
        (json!({"agent": "lost"}), "unknown-agent"),
        (json!({"session": "main"}), "invalid-request"),
        (
            json!({"agent": null, "session": "nobody"}),
            "unknown-session",
        ),
        (json!({"after": -1}), "invalid-request"),
    ] {
        let refused = asked(&daemon, &fields);
        assert_eq!(refused["code"], code, "{fields}: {refused:#}");
    }
    let daemon = with(&["--exit-at-start", "3"]);
    let refused = asked(&daemon, &json!({}));
    assert_eq!(refused["code"], "worker-start-failed", "{refused:#}");
    let why = refused["error"].as_str().unwrap();
    assert!(why.contains("exited with code 3"), "{why}");
}

#[test]
fn models_nobody_answers_hold_up_no_turn() {
    let daemon = with(&["--deaf-to-models"]);
    let mut client = daemon.connect();
    client.send(r#"{"type":"models","id":"m","agent":"lists"}"#);
    let turn = json!({"agent": "lists", "prompt": "chaos:say on"});
    let last = daemon.ask(&turn.to_string()).pop().unwrap();
    assert_eq!(last["text"], "on", "{last:#}");
    let refused = client.last();
    assert_eq!(refused["code"], "worker-unresponsive", "{refused:#}");
    // The process is as good as before.
    let again = daemon.ask(&turn.to_string()).pop().unwrap();
    assert_eq!(again["text"], "on", "{again:#}");
}

#[test]
fn models_of_silent_agents_are_asked_at_once() {
    let worker = chaos_worker().display().to_string();
    let agent = |name: &str, flag: &str| {
        format!("[agents.{name}]\nkind = \"jsonl\"\ncommand = [\"{worker}\", {flag}]\n")
    };
    let deaf = ["a", "b", "c"].map(|name| agent(name, "\"--deaf-to-models\""));
    let daemon = Daemon::with(&(deaf.concat() + &agent("z", "\"--models\", \"2\"")));
    let begun = std::time::Instant::now();
    let alone = daemon.agentctl(&["models", "list", "--agent", "a"]);
    let one = begun.elapsed();
    assert_ne!(alone.code, Some(0), "{alone:?}");
    let all = daemon.agentctl(&["models"]);
    let took = begun.elapsed() - one;
    assert_eq!(all.code, Some(0), "{all:?}");
    assert!(all.stdout.contains("chaos/model-1"), "{all:?}");
    for name in ["a: ", "b: ", "c: "] {
        assert!(all.stderr.contains(name), "{all:?}");
    }
    assert!(took < one * 2, "{took:?}, and one {one:?}");
}

#[test]
fn models_are_listed_by_agentctl_without_a_daemon() {
    let daemon = with(&["--models", "2"]);
    let json = daemon.agentctl(&["models", "list", "--agent=lists", "--json"]);
    let line: Value = serde_json::from_str(json.stdout.trim()).expect("a line");
    assert_eq!(line["models"][1]["model"], "model-1", "{line:#}");
    let refused = daemon.agentctl(&["models", "list", "--agent", "turn"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("can't say"), "{}", refused.stderr);
    let both = daemon.agentctl(&["models", "list", "--agent", "a", "--session", "b"]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
    let place = daemon.kill();
    let alone = place.agentctl(&["models", "list", "--agent", "lists"]);
    assert_eq!(alone.code, Some(0), "{}", alone.stderr);
    assert!(alone.stdout.contains("chaos/model-0"), "{}", alone.stdout);
}

#[test]
fn commands_are_listed_by_agentctl() {
    let daemon = with(&["--models", "1"]);
    let listed = daemon.agentctl(&["agents", "commands", "lists"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let rows: Vec<Vec<&str>> = (listed.stdout.lines())
        .map(|line| line.split("  ").map(str::trim).collect())
        .collect();
    assert_eq!(rows[1], ["/say words", "Says it"], "{listed:?}");
    daemon.ask(r#"{"type":"session.new","session":"main","agent":"lists"}"#);
    let json = daemon.agentctl(&["agents", "commands", "--session", "main", "--json"]);
    let line: Value = serde_json::from_str(json.stdout.trim()).expect("a line");
    assert_eq!(line["commands"][0]["name"], "say", "{line:#}");
    let refused = daemon.agentctl(&["agents", "commands", "turn"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("can't say"), "{refused:?}");
}

#[test]
fn models_are_served_over_http() {
    if needs("curl").is_none() {
        return;
    }
    let daemon = with(&["--models", "2"]);
    daemon.ask(r#"{"type":"session.new","session":"team/main","agent":"lists"}"#);
    let http = crate::http::Http::start(&daemon.place);
    for path in ["/v1/agents/lists/models", "/v1/sessions/team%2Fmain/models"] {
        let listed = http.curl(path, &[]);
        assert_eq!(listed.status, 200, "{listed:?}");
        let listed = listed.json();
        assert_eq!(listed["agent"], "lists");
        assert_eq!(listed["models"][1]["model"], "model-1", "{listed:#}");
    }
    let behind = http.curl("/v1/agents/lists/models?after=1", &[]).json();
    assert_eq!(behind["models"].as_array().unwrap().len(), 1);
    for (path, status) in [
        ("/v1/agents/nobody/models", 422),
        ("/v1/agents/turn/models", 422),
        ("/v1/sessions/nobody/models", 404),
        ("/v1/agents/lists/models?after=x", 422),
    ] {
        assert_eq!(http.curl(path, &[]).status, status, "{path}");
    }
}

#[test]
fn models_alone_lists_those_of_all_agents() {
    let daemon = with(&["--models", "2"]);
    let listed = daemon.agentctl(&["models"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    for words in ["lists\n", "chaos/model-0", "chaos/model-1"] {
        assert!(listed.stdout.contains(words), "{words}: {listed:?}");
    }
    // One that can't say it takes nothing from the others.
    assert!(listed.stderr.contains("note: turn: "), "{listed:?}");
    let lines = daemon.agentctl(&["models", "--json"]).stdout;
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of_lists = lines.iter().find(|line| line["agent"] == "lists").unwrap();
    assert_eq!(of_lists["models"][1]["model"], "model-1");
}

#[test]
fn model_that_an_agent_lists_not_is_refused() {
    let daemon = with(&["--models", "3"]);
    for (session, agent) in [("main", "lists"), ("other", "chaos")] {
        let made = daemon.agentctl(&["sessions", "new", session, "--agent", agent]);
        assert_eq!(made.code, Some(0), "{made:?}");
    }
    for listed in ["model-1", "chaos/model-1"] {
        let set = daemon.agentctl(&["model", "main", listed]);
        assert_eq!((set.code, &*set.stderr), (Some(0), ""), "{set:?}");
    }
    for (wanted, says) in [
        (
            "foo/bar",
            "hint: `agentctl models list --session main` lists them",
        ),
        ("modle-1", "did you mean `model-1`?"),
        ("other/model-1", "lists no model `other/model-1`"),
    ] {
        let refused = daemon.agentctl(&["model", "main", wanted]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(says), "{refused:?}");
    }
    let forced = daemon.agentctl(&["model", "main", "foo/bar", "--force"]);
    assert_eq!(forced.code, Some(0), "{forced:?}");
    let unchecked = daemon.agentctl(&["model", "other", "foo/bar"]);
    assert_eq!(unchecked.code, Some(0), "{unchecked:?}");
    assert!(
        unchecked.stderr.contains("`foo/bar` isn't checked"),
        "{unchecked:?}"
    );
}
