//! Going on from where somebody is: with the last session, a closed one, or an interrupted job.

use serde_json::Value;

use crate::screen::{at_terminal, ended};
use crate::supervision::jsonl;
use crate::support::{Daemon, Finished, Place, chaos_worker, wait_for};

fn said(finished: &Finished) -> &str {
    assert_eq!(finished.code, Some(0), "{finished:?}");
    &finished.stdout
}

/// What the last line of a send says that it knew of the turns before it.
fn context(finished: &Finished) -> String {
    let last = said(finished).lines().last().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    last["context"].as_str().unwrap().to_owned()
}

/// A daemon with agents of each way to remember.
fn remembering() -> Daemon {
    let place = Place::new("");
    let kept = place.path("kept");
    std::fs::create_dir(&kept).unwrap();
    let worker = chaos_worker();
    let worker = worker.to_str().unwrap();
    let config = [
        Daemon::config(""),
        jsonl("many", &[worker, "--resumes", kept.to_str().unwrap()]),
        jsonl(
            "one",
            &[worker, "--one-session", "--resumes", kept.to_str().unwrap()],
        ),
        jsonl("forgets", &[worker, "--one-session"]),
    ];
    place.configure(&config.concat());
    place.start()
}

#[test]
fn unnamed_send_is_gone_on_with_and_remembered() {
    let daemon = remembering();
    let count = |agent: &str| daemon.agentctl(&["send", "-a", agent, "chaos:count"]);
    let go_on = |agent: &str, more: &[&str]| {
        let args = [&["send", "-c", "-a", agent], more, &["chaos:count"]].concat();
        daemon.agentctl(&args)
    };
    for agent in ["timmy", "chaos", "many", "one"] {
        let first = count(agent);
        let second = go_on(agent, &["--json"]);
        assert_eq!(context(&second), "continued", "{agent}: {second:?}");
        let third = go_on(agent, &[]);
        assert!(!third.stderr.contains("earlier turns"), "{third:?}");
        if agent != "timmy" {
            assert_eq!((said(&first), said(&third)), ("1\n", "3\n"), "{agent}");
        }
    }
    // Its process went with its turn, and nobody else knows what was said.
    assert_eq!(said(&count("forgets")), "1\n");
    let lost = go_on("forgets", &[]);
    assert_eq!(said(&lost), "1\n");
    let why =
        "goes on without its earlier turns: the agent `forgets` remembers them in its process";
    assert!(lost.stderr.contains(why), "{lost:?}");
    let daemon = daemon.kill().start();
    for agent in ["many", "one"] {
        let args = ["send", "-c", "-a", agent, "chaos:count"];
        assert_eq!(said(&daemon.agentctl(&args)), "4\n", "{agent}");
    }
}

/// The commands that `agentctl jobs JOB` proposes.
fn proposed(daemon: &Daemon, job: &str) -> Vec<String> {
    let shown = daemon.agentctl(&["jobs", job]);
    let lines = said(&shown).lines();
    let commands = lines.filter_map(|line| line.strip_prefix("go on     agentctl "));
    commands.map(str::to_owned).collect()
}

#[test]
fn hints_about_a_closed_session_are_true() {
    let daemon = Daemon::start();
    let send = |text: &str| daemon.agentctl(&["send", "-s", "main", "-a", "chaos", text]);
    assert_eq!(said(&send("chaos:say one")), "one\n");
    let failed = send("chaos:say half; exit 9");
    assert_eq!(failed.code, Some(1), "{failed:?}");
    said(&daemon.agentctl(&["sessions", "close", "main"]));
    let shown = daemon.agentctl(&["jobs", "j1"]);
    assert!(
        said(&shown).contains("session   main (closed)\n"),
        "{shown:?}"
    );
    let history = daemon.agentctl(&["history", "main"]);
    assert!(said(&history).contains("> chaos:say one"), "{history:?}");
    let last = daemon.agentctl(&["history", "main", "--last"]);
    assert_eq!(said(&last).matches("> chaos:").count(), 1, "{last:?}");
    // The second time others have the name: the first job that is sent again.
    for _ in 0..2 {
        for (job, text) in [("j1", "one"), ("j2", "half")] {
            let commands = proposed(&daemon, job);
            let history = format!("history main --job {job} --full");
            let retry = format!("retry {job}");
            assert_eq!(commands, [&history[..], &retry], "{job}");
            let told = daemon.agentctl(&history.split(' ').collect::<Vec<_>>());
            assert!(said(&told).contains(text), "{told:?}");
        }
        let again = daemon.agentctl(&["retry", "j1"]);
        assert_eq!(said(&again), "one\n");
        let why = "j1 is sent again; its session main was closed, and begins anew";
        assert!(again.stderr.contains(why), "{again:?}");
    }
    assert_eq!(
        proposed(&daemon, "j3"),
        ["history main --job j3 --full", "send --session main TEXT"]
    );
}

#[test]
fn retry_takes_what_failed_of_a_label() {
    let daemon = Daemon::start();
    let words = [
        "dispatch",
        "-a",
        "chaos",
        "--label",
        "run=9",
        "--collect",
        "chaos:say half; exit 9",
        "chaos:say whole",
        "chaos:say half; exit 9",
    ];
    assert_eq!(daemon.agentctl(&words).code, Some(1));
    // What was sent again is not meant a second time.
    for [first, second] in [["j4", "j5"], ["j6", "j7"]] {
        let sent = daemon.agentctl(&["retry", "--label", "run=9"]);
        assert_eq!(said(&sent), format!("{first}\n{second}\n"));
        let ended = daemon.agentctl(&["collect", first, second]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
    }
    let shown = daemon.agentctl(&["jobs", "j1"]);
    assert!(said(&shown).contains("retried   as j4\n"), "{shown:?}");
    let both = daemon.agentctl(&["retry", "j2", "j1"]);
    assert_eq!(said(&both), "j8\nj9\n");
}

#[test]
fn sessions_close_idle_asks_on_a_terminal() {
    let daemon = Daemon::start();
    for session in ["a", "b"] {
        said(&daemon.agentctl(&["send", "-s", session, "-a", "chaos", "chaos:say x"]));
    }
    let args = ["sessions", "close", "--idle", "0s"];
    let sessions = || {
        let listed = daemon.ask(r#"{"type":"session.list"}"#).remove(0);
        listed["sessions"].as_array().unwrap().len()
    };
    for no in ["\n", "n\n"] {
        let (mut terminal, mut child) = at_terminal(&daemon.place, &args);
        terminal.until("close 2 sessions (a, b)? [y/N] ");
        terminal.type_in(no);
        assert_eq!(ended(&mut child), (Some(2), String::new()));
        assert!(terminal.rest().contains("nothing was closed"));
        assert_eq!(sessions(), 2);
    }
    let (mut terminal, mut child) = at_terminal(&daemon.place, &args);
    terminal.until("? [y/N] ");
    terminal.type_in("y\n");
    assert_eq!(
        ended(&mut child),
        (Some(0), "closed a\nclosed b\n".to_owned())
    );
    assert_eq!(sessions(), 0);
    said(&daemon.agentctl(&["send", "-s", "c", "-a", "chaos", "chaos:say x"]));
    let yes = [&args[..], &["--yes"]].concat();
    let (terminal, mut child) = at_terminal(&daemon.place, &yes);
    assert_eq!(ended(&mut child), (Some(0), "closed c\n".to_owned()));
    let told = "note: `agentctl history c#3` reads what was said in it\r\n";
    assert_eq!(terminal.rest(), told);
}

#[test]
fn session_is_named_by_word_or_option() {
    let daemon = Daemon::start();
    for session in ["a", "b", "c"] {
        said(&daemon.agentctl(&["send", "-s", session, "-a", "chaos", "chaos:say x"]));
    }
    for command in [
        &["history"][..],
        &["attach"],
        &["sessions", "show"],
        &["sessions", "resume"],
    ] {
        let word = daemon.agentctl(&[command, &["a"]].concat());
        let option = daemon.agentctl(&[command, &["--session", "a"]].concat());
        // How long ago it was is another second's.
        let timeless = |text: &str| text.replace("1 s ago", "0 s ago");
        let both = [said(&word), said(&option)].map(timeless);
        assert_eq!(both[0], both[1], "{command:?}");
        let both = daemon.agentctl(&[command, &["a", "--session", "a"]].concat());
        assert_eq!(both.code, Some(2), "{both:?}");
        let neither = daemon.agentctl(command);
        let newest = matches!(command, ["history" | "attach"]);
        assert_eq!(neither.code == Some(0), newest, "{neither:?}");
    }
    said(&daemon.agentctl(&["sessions", "new", "d", "--agent", "chaos"]));
    let renamed = daemon.agentctl(&["sessions", "rename", "--session", "d", "e"]);
    assert_eq!(said(&renamed), "d is called e now\n");
    let closed = daemon.agentctl(&["sessions", "close", "--session", "b", "--session", "c"]);
    assert_eq!(said(&closed), "closed b\nclosed c\n");
}

#[test]
fn interrupted_job_has_no_time_nobody_knows() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    client.send(r#"{"type":"send","agent":"chaos","session":"s","text":"chaos:say x;wait-file /nowhere/at/all"}"#);
    client.until("message_delta");
    let daemon = daemon.kill().start();
    let shown = wait_for("it is told", || {
        let shown = daemon.agentctl(&["jobs", "j1"]);
        said(&shown)
            .contains("interrupted")
            .then(|| shown.stdout.clone())
    });
    assert!(shown.starts_with("j1 interrupted\n"), "{shown}");
}

#[test]
fn session_goes_on_with_what_it_was_given() {
    let daemon = Place::new("").start();
    let begun = [
        "send",
        "-a",
        "timmy",
        "--provider",
        "echo",
        "-s",
        "trip",
        "a",
    ];
    assert_eq!(said(&daemon.agentctl(&begun)), "a\n");
    assert_eq!(said(&daemon.agentctl(&["send", "-s", "trip", "b"])), "b\n");
    assert_eq!(said(&daemon.agentctl(&["send", "-c", "c"])), "c\n");
    // The next daemon knows it, and so does a run without one.
    let daemon = daemon.kill().start();
    assert_eq!(said(&daemon.agentctl(&["send", "-s", "trip", "d"])), "d\n");
    let place = daemon.kill();
    assert_eq!(said(&place.agentctl(&["send", "-s", "trip", "e"])), "e\n");
    let another = place.agentctl(&["send", "-a", "timmy", "f"]);
    assert_ne!(another.code, Some(0), "{another:?}");
}

#[test]
fn echo_session_outlives_its_daemon_and_is_renamed() {
    let daemon = Daemon::start();
    let first = daemon.agentctl(&["send", "-s", "trip", "pack  a\n\ntent"]);
    assert_eq!(said(&first), "pack  a\n\ntent\n");
    let renamed = daemon.agentctl(&["sessions", "rename", "trip", "walk"]);
    assert_eq!(said(&renamed), "trip is called walk now\n");
    said(&daemon.agentctl(&["stop"]));
    let daemon = daemon.left().0.start();
    let next = daemon.agentctl(&["send", "--json", "-s", "walk", "where to?"]);
    assert_eq!(context(&next), "continued");
    assert!(!next.stderr.contains("earlier turns"), "{next:?}");
}
