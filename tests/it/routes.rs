//! Routes, with the real programs: which agent a prompt goes to, and what is told of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{Daemon, Place, wait_for};

/// Three agents that say who they are, and rules that tell them apart.
const ROUTES: &str = r#"
[agents.lower]
kind = "exec"
command = ["tr", "A-Z", "a-z"]
[agents.upper]
kind = "exec"
command = ["tr", "a-z", "A-Z"]
[agents.gone]
kind = "exec"
command = ["no-such-program-anywhere"]

[[route]]
name = "first"
when.text = "(?i)\\breview\\b"
use.agent = "gone"

[[route]]
name = "review"
when.text = "(?i)\\breview\\b"
use.agent = "upper"

[[route]]
name = "picture"
when.attachments = "image"
use = { agent = "chaos", timeout = "5m" }

[[route]]
name = "long"
when.chars = "> 200"
use = { agent = "upper", timeout = "1h" }

[[route]]
name = "team"
when.label.team = "docs"
use.agent = "lower"

[[route]]
name = "class"
when = { class = ["debugging", "data"], difficulty = ["easy", "medium"] }
use.agent = "lower"

[[route]]
name = "work"
when.cwd = "~/projects/**"
use.agent = "lower"
"#;

fn route(daemon: &Daemon, words: &[&str]) -> Value {
    let words: Vec<&str> = [&["route", "--json"], words].concat();
    let told = daemon.agentctl(&words);
    assert_eq!(told.code, Some(0), "{words:?}: {told:?}");
    serde_json::from_str(&told.stdout).unwrap()
}

#[test]
fn route_explains_eleven_prompts() {
    let daemon = Daemon::with(ROUTES);
    let home = daemon.path("home");
    let work = home.join("projects/a");
    std::fs::create_dir_all(&work).unwrap();
    let work = work.to_str().unwrap();
    let link = daemon.path("link");
    std::os::unix::fs::symlink(work, &link).unwrap();
    let link = link.to_str().unwrap();
    let picture = daemon.path("a.png");
    std::fs::write(&picture, b"\x89PNG\r\n\x1a\nrest").unwrap();
    let picture = picture.to_str().unwrap();
    let text = daemon.path("a.txt");
    std::fs::write(&text, "text").unwrap();
    let text = text.to_str().unwrap();
    let long = "word ".repeat(50);
    for (words, agent, rule) in [
        (&["please review it"][..], "upper", Some("review")),
        (&["REVIEW"], "upper", Some("review")),
        (&["reviewer"], "timmy", None),
        (
            &["what is it?", "--attach", picture],
            "chaos",
            Some("picture"),
        ),
        (&["what is it?", "--attach", text], "timmy", None),
        (&[&long], "upper", Some("long")),
        (&["hi", "--label", "team=docs"], "lower", Some("team")),
        (&["fix the crash"], "lower", Some("class")),
        (&["hi", "--label", "team=other"], "timmy", None),
        (&["hi", "--cwd", work], "lower", Some("work")),
        (&["hi", "--cwd", link], "lower", Some("work")),
    ] {
        let told = route(&daemon, words);
        assert_eq!(
            (&told["agent"], &told["routed"]["rule"]),
            (&json!(agent), &json!(rule)),
            "{words:?}"
        );
    }
    let told = daemon.agentctl(&["route", "review"]);
    assert!(
        told.stdout
            .starts_with("agent       upper\nclass       code-review\ndifficulty  easy\nroute       review\nbecause     `text` matches "),
        "{told:?}"
    );
    let passed = "passed over first: it holds, but the agent `gone` can't be used: ";
    assert!(told.stdout.contains(passed), "{told:?}");
    assert_eq!(
        route(&daemon, &["review"])["use"],
        json!({"agent": "upper"})
    );
    let jobs = daemon.agentctl(&["jobs", "--json"]).stdout;
    assert_eq!(
        serde_json::from_str::<Value>(&jobs).unwrap()["jobs"],
        json!([]),
        "nothing ran"
    );
}

#[test]
fn route_sends_each_turn_to_its_agent() {
    let daemon = Daemon::with(ROUTES);
    let sent = daemon.agentctl(&["send", "--agent", "auto", "--quiet", "Please Review"]);
    assert_eq!(sent.stdout.trim(), "PLEASE REVIEW", "{sent:?}");
    let accepted =
        &daemon.ask(r#"{"type":"send","agent":"auto","prompt":"Hi","labels":{"team":"docs"}}"#)[0];
    assert_eq!(accepted["routed"]["rule"], "team", "{accepted}");
    let shown = daemon.agentctl(&["jobs", "j1"]);
    assert!(
        shown.stdout.contains("\nroute     review: `text` matches "),
        "{shown:?}"
    );
    let listed = daemon.ask(r#"{"type":"jobs"}"#).remove(0);
    let rules: BTreeMap<&str, &Value> = (listed["jobs"].as_array().unwrap().iter())
        .map(|row| (row["job"].as_str().unwrap(), &row["routed"]["rule"]))
        .collect();
    assert_eq!(
        rules,
        BTreeMap::from([("j1", &json!("review")), ("j2", &json!("team"))])
    );
    assert_eq!(listed["jobs"][1]["preview"], "Please Review");

    let line = r#"{"type":"dispatch","jobs":[{"prompt":"review A","agent":"auto"},{"prompt":"Hi","agent":"auto","labels":{"team":"docs"}},{"prompt":"review B","agent":"lower"},{"prompt":"C","agent":"auto"}]}"#;
    let jobs = daemon.ask(line).remove(0)["jobs"].clone();
    let numbers: Vec<Value> = jobs
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["job"].clone())
        .collect();
    let asked = json!({"type": "collect", "jobs": numbers});
    let results = daemon.ask(&asked.to_string()).remove(0)["results"].clone();
    let of = |name: &str| -> Vec<Value> {
        results
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one[name].clone())
            .collect()
    };
    assert_eq!(of("agent"), ["upper", "lower", "lower", "timmy"]);
    assert_eq!(of("text")[..3], ["REVIEW A", "hi", "review b"]);
}

#[test]
fn route_is_stored_through_a_crash() {
    let daemon = Daemon::with(ROUTES);
    let line = r#"{"type":"send","agent":"auto","prompt":"review","idempotency_key":"k"}"#;
    let first = daemon.ask(line).remove(0);
    let place = daemon.kill();
    // Other rules by then.
    place.configure(&Daemon::config(&ROUTES.replace("review", "nothing")));
    let daemon = place.start();
    let again = daemon.ask(line).remove(0);
    assert_eq!(
        (&again["job"], &again["replayed"]),
        (&first["job"], &json!(true))
    );
    assert_eq!(again["routed"], first["routed"]);
    let mut follower = daemon.connect();
    follower.send(r#"{"type":"subscribe","after":0}"#);
    let accepted = follower.until("accepted").pop().unwrap();
    assert_eq!(
        accepted["routed"], first["routed"],
        "for who follows from the beginning, too"
    );
}

#[test]
fn route_that_is_changed_counts_for_the_next() {
    let daemon = Daemon::with(ROUTES);
    let rule = || route(&daemon, &["review"])["routed"]["rule"].clone();
    assert_eq!(rule(), "review");
    daemon
        .place
        .configure(&Daemon::config(&ROUTES.replace("\"review\"", "\"other\"")));
    assert_eq!(rule(), "other");
    daemon.place.configure(&Daemon::config(""));
    assert_eq!(rule(), Value::Null);
    let wrong = format!("{ROUTES}\n[[route]]\nuse.agent = \"upper\"\nwhen.txt = \"x\"\n");
    let text = Daemon::config(&wrong);
    let line = 1 + text.lines().position(|line| line.contains("txt")).unwrap();
    daemon.place.configure(&text);
    let told = route(&daemon, &["review"]);
    assert_eq!(told["routed"]["rule"], Value::Null, "the one before counts");
    wait_for("the log says why", || {
        daemon.log().contains("does not count").then_some(())
    });
    let log = daemon.log();
    let expected =
        format!("config.toml:{line}: unknown key `route.8.when.txt`; hint: did you mean `text`?");
    assert!(log.contains(&expected), "{log}");
}

#[test]
fn route_by_default_needs_rules() {
    let daemon = Daemon::with("");
    let refused = daemon.agentctl(&["agents", "default", "auto"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("there is no route"), "{refused:?}");
    daemon.place.configure(&Daemon::config(ROUTES));
    let taken = daemon.agentctl(&["agents", "default", "auto"]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let sent = daemon.agentctl(&["send", "--quiet", "Review"]);
    assert_eq!(sent.stdout.trim(), "REVIEW", "{sent:?}");
    let named = daemon.ask(r#"{"type":"send","prompt":"Review","agent":"lower"}"#);
    assert_eq!(
        (&named[0]["agent"], named[0].get("routed")),
        (&json!("lower"), None)
    );
    // Without any rule it can't be the default, also not by hand.
    let place = Place::new("default_agent = \"auto\"\n");
    let refused = place.agentctl(&["send", "--quiet", "hi"]);
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(
        refused.stderr.contains("`auto` needs a `[[route]]`"),
        "{refused:?}"
    );
}

#[test]
fn route_goes_without_a_daemon() {
    let place = Place::new(&Daemon::config(ROUTES));
    let sent = place.agentctl(&["send", "--agent", "auto", "--quiet", "Review"]);
    assert_eq!(sent.stdout.trim(), "REVIEW", "{sent:?}");
    let told = place.agentctl(&["route", "--json", "Review"]);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    assert_eq!(told["routed"]["rule"], "review");
}

#[test]
fn route_is_asked_when_a_schedule_is_due() {
    let daemon = Daemon::with(ROUTES);
    let added = daemon.agentctl(&[
        "cron",
        "add",
        "--message",
        "Review",
        "--agent",
        "auto",
        "--every",
        "1h",
    ]);
    assert_eq!(added.code, Some(0), "{added:?}");
    // The rules count as they are by then.
    let changed = ROUTES.replace("\"review\"", "\"changed\"");
    daemon.place.configure(&Daemon::config(&changed));
    let ran = daemon.agentctl(&["cron", "run", "c1"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let row = daemon.ask(r#"{"type":"jobs"}"#).remove(0)["jobs"][0].clone();
    assert_eq!(
        (&row["agent"], &row["routed"]["rule"]),
        (&json!("upper"), &json!("changed")),
        "{row}"
    );
}
