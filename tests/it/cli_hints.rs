//! What `agentctl` proposes where no daemon runs, or its store is away: commands that help there.

use crate::support::{AGENTCTL, Daemon, Place, finish, program};

const START: &str = "hint: `agentctl start` starts it\n";

fn hinted(place: &Place, words: &[&str]) -> String {
    let mut command = place.command(AGENTCTL);
    command.args(words).env("EDITOR", "true");
    let said = finish(command, b"");
    assert_ne!(said.code, Some(0), "{words:?}: {said:?}");
    said.stderr
}

#[test]
fn hints_propose_a_start_where_that_helps() {
    let place = Place::new(&Daemon::config(""));
    for words in [&["status"][..], &["jobs"], &["ps"], &["questions"]] {
        let said = hinted(&place, words);
        assert!(said.ends_with(START), "{words:?}: {said}");
    }
}

#[test]
fn hints_of_a_broken_configuration_name_the_line() {
    let place = Place::new("default_agent = \"timmy\"\n[agents.x\n");
    for words in [
        &["status"][..],
        &["jobs"],
        &["ps"],
        &["questions"],
        &["start"],
        &["send", "hi"],
        &["models"],
        &["models", "list"],
        &["agents"],
        &["agents", "add", "mine", "--", "cat"],
        &["config", "show"],
        &["config", "edit"],
    ] {
        let said = hinted(&place, words);
        let line = format!("{}:2: ", place.path("config.toml").display());
        assert!(said.contains(&line), "{words:?}: {said}");
        assert!(
            said.contains("`agentctl config edit` opens it"),
            "{words:?}: {said}"
        );
        assert!(!said.contains(START), "{words:?}: {said}");
    }
    std::fs::remove_file(place.path("config.toml")).unwrap();
    for words in [&["status"][..], &["jobs"], &["start"]] {
        let said = hinted(&place, words);
        assert!(said.contains("`AGENTD_CONFIG` names"), "{words:?}: {said}");
        assert!(said.contains("unset `AGENTD_CONFIG`"), "{words:?}: {said}");
    }
}

#[test]
fn hints_see_a_configuration_broken_after_a_stop() {
    let daemon = Daemon::start();
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    let (place, _) = daemon.left();
    let said = hinted(&place, &["status"]);
    assert!(said.ends_with(START), "{said}");
    let file = place.path("config.toml");
    let taken = std::fs::read(&file).unwrap();
    std::fs::write(&file, "[agents.x\n").unwrap();
    let said = hinted(&place, &["status"]);
    assert!(said.contains("config.toml:1: "), "{said}");
    std::fs::write(&file, taken).unwrap();
    let said = hinted(&place, &["status"]);
    assert!(said.ends_with(START), "{said}");
}

#[test]
fn send_with_a_broken_configuration_has_one_error() {
    let place = Place::new("default_agent = \"timmy\"\n[agents.x\n");
    let sent = place.agentctl(&["send", "hi"]);
    assert_eq!(sent.code, Some(78), "{sent:?}");
    let errors = sent
        .stderr
        .lines()
        .filter(|line| line.starts_with("error:"));
    let line = format!("{}:2: ", place.path("config.toml").display());
    assert!(
        errors.clone().all(|error| error.contains(&line)),
        "{sent:?}"
    );
    assert_eq!(errors.count(), 1, "{sent:?}");
    let note = "note: nothing was done: no daemon is running";
    assert!(sent.stderr.contains(note), "{sent:?}");
}

#[test]
fn hints_of_a_lost_store_name_restore() {
    let daemon = Daemon::start();
    let sent = daemon.agentctl(&["send", "hi"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let backup = daemon.path("kept.db");
    let backup = backup.to_str().unwrap();
    let made = daemon.agentctl(&["backup", backup]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let place = daemon.kill();
    let store = place.path("state/agentd.db");
    for log in ["state/agentd.db-wal", "state/agentd.db-shm"] {
        // One that is not there needs no removal.
        let _gone = std::fs::remove_file(place.path(log));
    }
    std::fs::write(&store, "no store at all, by no means").unwrap();
    let proposed = "`agentctl restore FILE` puts a backup";
    for words in [&["status"][..], &["jobs"]] {
        let said = hinted(&place, words);
        assert!(
            said.contains("is damaged") && said.contains(proposed),
            "{words:?}: {said}"
        );
    }
    let kept = std::fs::read_to_string(&store).unwrap();
    assert!(kept.starts_with("no store"), "a look changed it");
    std::fs::remove_file(&store).unwrap();
    for words in [&["status"][..], &["jobs"]] {
        let said = hinted(&place, words);
        assert!(
            said.contains("is gone") && said.contains(proposed),
            "{words:?}: {said}"
        );
    }
    let daemon = place.start();
    let status = daemon.agentctl(&["status"]);
    assert!(
        status
            .stderr
            .contains("hint: after `agentctl stop`, `agentctl restore FILE`"),
        "{status:?}"
    );
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    let (place, _) = daemon.left();
    // What is proposed is so.
    let restored = place.agentctl(&["restore", backup]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let jobs = place.agentctl(&["jobs"]);
    assert!(jobs.stdout.contains("completed"), "{jobs:?}");
}

#[test]
fn past_is_read_with_a_broken_configuration() {
    let daemon = Daemon::start();
    let sent = daemon.agentctl(&["send", "--session", "s", "hi"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let place = daemon.kill();
    let state = || std::fs::read(place.path("state/agentd.db")).unwrap();
    let before = state();
    let read = |why: &str, copy: &str| {
        let copy = place.path(copy);
        for words in [
            &["jobs"][..],
            &["jobs", "j1"],
            &["history", "s"],
            &["collect", "j1"],
            &["sessions"],
            &["backup", copy.to_str().unwrap()],
        ] {
            let said = place.agentctl(words);
            assert_eq!(said.code, Some(0), "{words:?}: {said:?}");
            assert!(said.stderr.contains(why), "{words:?}: {said:?}");
            assert!(!said.stderr.contains("error: "), "{words:?}: {said:?}");
        }
    };
    place.configure("default_agent = \"timmy\"\n[agents.x\n");
    read("config.toml:2: ", "one.db");
    let jobs = place.agentctl(&["jobs"]);
    assert!(jobs.stdout.contains("j1"), "{jobs:?}");
    assert!(
        jobs.stderr.contains("`agentctl config edit` opens it"),
        "{jobs:?}"
    );
    std::fs::remove_file(place.path("config.toml")).unwrap();
    read("`AGENTD_CONFIG` names", "two.db");
    assert_eq!(state(), before);
}

#[test]
fn send_begins_no_session_called_as_a_job() {
    let daemon = Daemon::start();
    let send = |name: &str| daemon.agentctl(&["send", "--session", name, "hi"]);
    let refused = send("j7");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("hint: choose another name"),
        "{refused:?}"
    );
    assert_eq!(send("j").code, Some(0));
    // One of a program's goes on.
    daemon.ask(r#"{"session":"j7","prompt":"hi"}"#);
    let goes_on = send("j7");
    assert_eq!(goes_on.code, Some(0), "{goes_on:?}");
    let conflict = daemon.agentctl(&["send", "--agent", "chaos", "-s", "j", "hi"]);
    assert!(
        conflict
            .stderr
            .contains("hint: `--agent timmy` goes on with it, `--session OTHER`"),
        "{conflict:?}"
    );
    let unknown = daemon.agentctl(&["send", "--agent", "zzzzzz", "hi"]);
    assert!(unknown.stderr.contains("known agents: "), "{unknown:?}");
    assert!(
        !unknown.stderr.contains("hermes"),
        "only those there: {unknown:?}"
    );
}

#[test]
fn service_shown_without_a_manager_has_its_units() {
    let place = Place::new(&Daemon::config(""));
    let mut command = place.command(AGENTCTL);
    command.args(["service", "install", "--dry-run"]);
    command.env("PATH", place.path("bin"));
    let shown = finish(command, b"");
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("Type=notify"), "{shown:?}");
    assert!(
        shown.stderr.contains("note: there is no service manager"),
        "{shown:?}"
    );
}

#[test]
fn send_without_a_login_names_the_other_agents() {
    // The built-in agent without a key.
    let config = Daemon::config("").replace("provider = \"echo\"\n", "");
    let place = Place::new(&config);
    assert_eq!(place.agentctl(&["start"]).code, Some(0));
    let failed = place.agentctl(&["send", "hi"]);
    let named = place.agentctl(&["send", "--agent", "timmy", "hi"]);
    assert_eq!(place.agentctl(&["stop"]).code, Some(0));
    let others = "hint: other agents are there: chaos; ";
    assert!(failed.stderr.contains(others), "{failed:?}");
    assert!(!named.stderr.contains(others), "{named:?}");
}

#[test]
fn agents_default_says_what_timmy_lacks() {
    let place = Place::new("");
    let default = || place.agentctl(&["agents", "default", "timmy"]);
    let bare = default();
    assert_eq!(bare.code, Some(0), "{bare:?}");
    for part in [
        "note: `timmy` has neither a key nor a model",
        "`agentctl provider add NAME`",
        "`agentctl models default PROVIDER/MODEL`",
    ] {
        assert!(bare.stderr.contains(part), "{part}: {bare:?}");
    }
    let echo = ["config", "set", "agents.timmy.provider", "echo"];
    assert_eq!(place.agentctl(&echo).code, Some(0));
    let has = default();
    assert!(!has.stderr.contains("neither"), "{has:?}");
}

#[test]
fn send_of_two_halves_says_whose_they_are() {
    let place = Place::new("[agents.timmy]\nprovider = \"echo\"\n");
    let words = [
        "send",
        "--no-fallback",
        "--agent",
        "timmy",
        "--model",
        "gemini/x",
        "hi",
    ];
    let daemon = place.start();
    for provider in ["echo", "openai"] {
        let text = format!("[agents.timmy]\nprovider = {provider:?}\n");
        daemon.place.configure(&text);
        let said = daemon.agentctl(&words);
        for part in [
            &format!("provider `{provider}` has no model `gemini/x`")[..],
            "the provider is the one configured",
            "`--provider gemini --model x`",
        ] {
            assert!(said.stderr.contains(part), "{provider}: {part}: {said:?}");
        }
    }
    // The other way round the provider alone counts.
    let text = "[agents.timmy]\nmodel = \"gemini/x\"\n";
    daemon.place.configure(text);
    let said = daemon.agentctl(&["send", "--agent", "timmy", "--provider", "echo", "hi"]);
    assert_eq!(said.stdout, "hi\n", "{said:?}");
}

#[test]
fn agents_default_says_that_nobody_is_logged_in() {
    let place = Place::new("");
    program(&place.path("bin"), "claude", "");
    let mut command = place.command(AGENTCTL);
    command.env("PATH", place.path("bin"));
    command.args(["agents", "default", "claude"]);
    let said = finish(command, b"");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.stderr
            .contains("note: nobody is logged in to `claude`"),
        "{said:?}"
    );
}
