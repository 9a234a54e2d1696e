//! A configuration that is changed while the daemon runs.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::screen::said_at_terminal;
use crate::supervision::{chaos, jsonl, row, workers_of};
use crate::support::{AGENTD, Daemon, Place, chaos_worker, wait_for};

fn send(daemon: &Daemon, fields: &Value) -> Value {
    daemon.ask(&fields.to_string()).pop().unwrap()
}

fn config(daemon: &Daemon) -> Value {
    daemon.status()["daemon"]["config"].clone()
}

const UPPER: &str = "[agents.upper]\nkind = \"exec\"\ncommand = [\"tr\", \"a-z\", \"A-Z\"]\n";

#[test]
fn config_gives_a_running_daemon_its_agents() {
    let daemon = Daemon::start();
    let added = daemon.agentctl(&[
        "agents", "add", "upper", "--kind", "exec", "--", "tr", "a-z", "A-Z",
    ]);
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(!added.stderr.contains("starts again"), "{added:?}");
    let tried = daemon.agentctl(&["agents", "test", "upper", "--prompt", "works"]);
    assert_eq!(tried.code, Some(0), "{tried:?}");
    assert!(tried.stdout.contains("WORKS"), "{tried:?}");
    let removed = daemon.agentctl(&["agents", "remove", "upper"]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let refused = send(&daemon, &json!({"agent": "upper", "prompt": "x"}));
    assert_eq!(refused["code"], "unknown-agent", "{refused}");
}

#[test]
fn config_is_seen_by_the_very_next_request() {
    let daemon = Daemon::start();
    for turn in 0..20 {
        let there = turn % 2 == 0;
        let more = if there { UPPER } else { "" };
        // Another file in its place, as editors do, or the same one written anew.
        let text = Daemon::config(more);
        if turn % 4 < 2 {
            std::fs::write(daemon.path("new"), text).unwrap();
            std::fs::rename(daemon.path("new"), daemon.path("config.toml")).unwrap();
        } else {
            daemon.place.configure(&text);
        }
        let answer = send(&daemon, &json!({"agent": "upper", "prompt": "x"}));
        match there {
            true => assert_eq!(answer["text"], "X", "{turn}: {answer}"),
            false => assert_eq!(answer["code"], "unknown-agent", "{turn}: {answer}"),
        }
    }
}

#[test]
fn config_counts_for_the_next_list_of_models() {
    let daemon = Daemon::start();
    let models = || {
        let listed = daemon.ask(r#"{"type":"models","agent":"timmy"}"#).remove(0);
        let rows = listed["models"].as_array().expect("a list").len();
        (rows, listed["note"].is_string())
    };
    assert_eq!(models(), (1, false));
    daemon.place.configure("[agents.timmy]\n");
    assert_eq!(models(), (0, true));
}

#[test]
fn config_that_is_broken_leaves_the_old_one() {
    let daemon = Daemon::start();
    let since = config(&daemon)["since"].clone();
    daemon.place.configure("[agents.chaos]\nkind =\n");
    assert_eq!(chaos(&daemon, "hello")["type"], "message_end");
    let status = daemon.status();
    let told = &status["daemon"]["config"];
    assert!(
        told["refused"].as_str().unwrap().contains("config.toml:2:"),
        "{told}"
    );
    assert_eq!(told["since"], since);
    assert!(
        status["details"]
            .as_str()
            .unwrap()
            .contains("config.toml:2:"),
        "{status:#}"
    );
    assert!(daemon.log().contains("does not count"), "{}", daemon.log());
    let shown = daemon.agentctl(&["status"]).stdout;
    assert!(shown.contains("the newest does not count"), "{shown}");
    let doctor = daemon.agentctl(&["doctor"]);
    assert!(doctor.stdout.contains("config.toml:2:"), "{doctor:?}");
    let older = format!(
        "PROBLEM  daemon     the daemon uses the configuration of {}, as the newest does not count: ",
        since.as_str().unwrap()
    );
    assert!(doctor.stdout.contains(&older), "{doctor:?}");
    assert!(!doctor.stdout.contains("ok       daemon"), "{doctor:?}");
    // Once it is mended it counts.
    daemon.place.configure(&Daemon::config(UPPER));
    assert_eq!(
        send(&daemon, &json!({"agent": "upper", "prompt": "x"}))["text"],
        "X"
    );
    assert_eq!(config(&daemon)["refused"], Value::Null);
    let doctor = daemon.agentctl(&["doctor"]);
    assert!(doctor.stdout.contains("ok       daemon"), "{doctor:?}");
}

#[test]
fn config_unread_by_timmy_is_its_note() {
    let daemon = Daemon::start();
    let note = || {
        let listed = daemon.ask(r#"{"type":"agents"}"#).remove(0);
        let rows = listed["agents"].as_array().unwrap().clone();
        let timmy = rows.into_iter().find(|row| row["name"] == "timmy").unwrap();
        timmy["note"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(note(), "");
    let config = Daemon::config("[models]\non_refusal = \"go on\"\n");
    daemon.place.configure(&config);
    wait_for("the note", || {
        note()
            .contains("`on_refusal`: unknown variant `go on`")
            .then_some(())
    });
    let shown = daemon.agentctl(&["agents"]);
    assert!(shown.stdout.contains("unknown variant"), "{shown:?}");
    let checked = daemon
        .place
        .command(AGENTD)
        .args(["config", "check"])
        .output()
        .unwrap();
    assert_eq!(checked.status.code(), Some(78), "{checked:?}");
    // Everybody else goes on.
    assert_eq!(chaos(&daemon, "hello")["type"], "message_end");
    daemon.place.configure(&Daemon::config(""));
    wait_for("no note", || note().is_empty().then_some(()));
}

#[test]
fn config_that_others_may_write_is_refused() {
    let daemon = Daemon::start();
    daemon.place.configure(&Daemon::config(UPPER));
    let file = daemon.path("config.toml");
    let mode =
        |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o666);
    let refused = send(&daemon, &json!({"agent": "upper", "prompt": "x"}));
    assert_eq!(refused["code"], "unknown-agent", "{refused}");
    let told = config(&daemon);
    assert!(
        told["refused"]
            .as_str()
            .unwrap()
            .contains("isn't yours alone"),
        "{told}"
    );
    mode(0o644);
    assert_eq!(
        send(&daemon, &json!({"agent": "upper", "prompt": "x"}))["text"],
        "X"
    );
}

#[test]
fn config_renews_processes_when_they_are_idle() {
    let place = Place::new("");
    std::fs::create_dir(place.path("kept")).unwrap();
    let agent = |flag: &str| {
        let resumes = place.path("kept").display().to_string();
        jsonl(
            "chaos",
            &[
                &chaos_worker().to_string_lossy(),
                "--resumes",
                &resumes,
                flag,
                "2",
            ],
        )
    };
    let (before, after) = (agent("--concurrent"), agent("--slow-start"));
    place.configure(&before);
    let daemon = place.start();
    let mut client = daemon.connect();
    let gate = daemon.path("gate");
    client.send(
        &json!({"type": "send", "agent": "chaos", "session": "s", "prompt":
        format!("chaos:say begun;wait-file {};count", gate.display())})
        .to_string(),
    );
    client.until("message_delta");
    let old = workers_of(&daemon.place);
    daemon.place.configure(&after);
    daemon.status();
    assert_eq!(workers_of(&daemon.place), old, "its turn goes on");
    std::fs::write(&gate, "").unwrap();
    let ended = client.until("message_end").pop().unwrap();
    assert_eq!(ended["type"], "message_end");
    wait_for("the old process is gone", || {
        workers_of(&daemon.place)
            .iter()
            .all(|pid| !old.contains(pid))
            .then_some(())
    });
    assert_eq!(chaos(&daemon, "hello")["type"], "message_end");
    assert!(row(&daemon.status(), "chaos").is_some());
}

#[test]
fn config_of_variables_counts_for_the_next_process() {
    let place = Place::new(
        "[agents.env]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"echo $WORD_OF_IT\"]\npass_env = [\"WORD_OF_IT\"]\n",
    );
    let daemon = place.start();
    let said = || {
        let answer = send(&daemon, &json!({"agent": "env", "prompt": "x"}));
        answer["text"]
            .as_str()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    assert_eq!(said(), "");
    let file = daemon.path("env");
    std::fs::write(&file, "WORD_OF_IT=one\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(said(), "one");
    std::fs::write(&file, "WORD_OF_IT=two\n").unwrap();
    assert_eq!(said(), "two");
}

#[test]
fn config_behind_a_link_is_followed() {
    let place = Place::new("");
    let (one, two) = (place.path("one.toml"), place.path("two.toml"));
    std::fs::write(&one, Daemon::config("")).unwrap();
    std::fs::write(&two, Daemon::config(UPPER)).unwrap();
    let file = place.path("config.toml");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&one, &file).unwrap();
    let daemon = place.start();
    let upper = || send(&daemon, &json!({"agent": "upper", "prompt": "x"}));
    assert_eq!(upper()["code"], "unknown-agent");
    std::os::unix::fs::symlink(&two, daemon.path("next")).unwrap();
    std::fs::rename(daemon.path("next"), &file).unwrap();
    assert_eq!(upper()["text"], "X");
    std::fs::write(&two, Daemon::config("")).unwrap();
    assert_eq!(upper()["code"], "unknown-agent");
}

#[test]
fn config_that_needs_a_restart_says_so() {
    let place = Place::new("");
    let mut command = place.command(AGENTD);
    command.env_remove("AGENTD_ALIAS");
    let alias = |name: &str| format!("alias = {:?}\n{}", place.path(name), UPPER);
    let (one, two) = (alias("one.sock"), alias("two.sock"));
    place.configure(&one);
    let daemon = place.start_as(command);
    assert_eq!(config(&daemon)["needs_restart"], Value::Null);
    daemon.place.configure(&two);
    assert_eq!(config(&daemon)["needs_restart"], json!(["alias"]));
    daemon.place.configure(&one);
    assert_eq!(config(&daemon)["needs_restart"], Value::Null);
}

#[test]
fn config_not_in_force_is_noted_before_turns() {
    let daemon = Daemon::start();
    let said = |words: &[&str]| said_at_terminal(&daemon.place, words);
    let send = ["send", "--agent", "timmy", "hi"];
    assert!(!said(&send).contains("not in force"));
    daemon.place.configure("[agents.chaos]\nkind =\n");
    let seen = said(&send);
    let noted = seen
        .find("the configuration is not in force")
        .map(|at| &seen[at..]);
    assert!(
        noted.is_some_and(|note| note.contains("config.toml:2:")),
        "{seen:?}"
    );
    // In a script, too, beside the answer; and never to whoever wants the answer alone.
    let piped = daemon.agentctl(&send);
    assert!(piped.stderr.contains("not in force"), "{piped:?}");
    // Who has just given a key, or an agent, looks there whether it counts.
    for words in [
        &["agents"][..],
        &["agents", "test", "timmy"],
        &["agents", "test", "new"],
    ] {
        let looked = daemon.agentctl(words);
        assert!(looked.stderr.contains("not in force"), "{looked:?}");
    }
    assert_eq!(piped.stdout, "hi\n", "{piped:?}");
    let quiet = daemon.agentctl(&[&send[..], &["--quiet"]].concat());
    assert!(!quiet.stderr.contains("not in force"), "{quiet:?}");
    // A restart would leave nobody, so there is none; a stop is done, and says it.
    let restart = daemon.agentctl(&["restart"]);
    assert_eq!(restart.code, Some(78), "{restart:?}");
    assert!(
        restart.stderr.contains("nothing was restarted"),
        "{restart:?}"
    );
    let stop = daemon.agentctl(&["stop"]);
    assert_eq!(stop.code, Some(0), "{stop:?}");
    assert!(
        stop.stderr
            .contains("does not start with this configuration")
            && stop.stderr.contains("config.toml:2:"),
        "{stop:?}"
    );
}
