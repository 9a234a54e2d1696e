//! What a newcomer is told where silence misleads: turns that a stop cut off, a file that is broken, a
//! variable that goes before a setting, an empty pipe, keys that were used before, a script that isn't
//! what it was added as.

use std::process::Stdio;

use serde_json::json;

use crate::cli_jobs::piped;
use crate::screen::{at_terminal_with, ended};
use crate::start::Started;
use crate::support::{AGENTCTL, DEADLINE, Daemon, Place, Reaped, finish, lines, program, wait_for};

#[test]
fn config_set_names_what_stands_against_it() {
    let place = Place::new("");
    let set = |key: &str, value: &str| place.agentctl(&["config", "set", key, value]);
    for (text, line) in [("[client\n", 1), ("\nretentoin.days = 3\n", 2)] {
        place.configure(text);
        let refused = set("client.start", "never");
        assert_eq!(refused.code, Some(78), "{refused:?}");
        let where_it_is = format!("config.toml:{line}: ");
        assert!(refused.stderr.contains(&where_it_is), "{refused:?}");
    }
    place.configure("");
    let wrong = set("client.start", "soon");
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(!wrong.stderr.contains("config.toml:"), "{wrong:?}");
    let outdone = set("alias", "false");
    assert_eq!(outdone.code, Some(0), "{outdone:?}");
    assert!(outdone.stderr.contains("`AGENTD_ALIAS`"), "{outdone:?}");
    assert_eq!(set("client.start", "never").stderr, "");
}

#[test]
fn send_says_that_its_pipe_is_empty() {
    let daemon = Daemon::start();
    let said = "standard input is empty";
    let send = ["send", "-a", "chaos", "chaos:say hi"];
    for (words, expected) in [(&send[..], true), (&[&send[..], &["-q"]].concat(), false)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        let (terminal, mut child) = at_terminal_with(&daemon.place, words, Some(reader.into()));
        assert_eq!(ended(&mut child), (Some(0), "hi\n".to_owned()));
        let shown = terminal.rest();
        assert_eq!(shown.contains(said), expected, "{shown}");
    }
    // Nobody looks: cron, or a program that has none to pass on.
    assert_eq!(daemon.agentctl(&send).stderr, "");
    for words in [&["send"][..], &["send", "-"]] {
        let refused = daemon.agentctl(words);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
}

#[test]
fn stop_and_start_tell_of_cut_turns() {
    let started = Started::place();
    let ok = |words: &[&str]| {
        let done = started.agentctl(words);
        assert_eq!(done.code, Some(0), "{words:?}: {done:?}");
        done
    };
    let runs = |job: &str| {
        wait_for("the turn runs", || {
            let running = ok(&["jobs", "--state", "running"]).stdout;
            running.contains(&format!("{job} ")).then_some(())
        });
    };
    assert_eq!(ok(&["start"]).stderr, "");
    ok(&["dispatch", "-s", "a", "[[sleep 600000]]", "behind it"]);
    runs("j1");
    let cut = "1 turn was interrupted (`agentctl jobs --state interrupted`)";
    let restarted = ok(&["restart", "--now"]).stderr;
    assert!(restarted.contains(cut), "{restarted}");
    assert!(restarted.contains("`agentctl retry j1`"), "{restarted}");
    let held = "1 turn is held behind an interrupted one (`agentctl jobs --state held`)";
    assert!(restarted.contains(held), "{restarted}");
    let details = ok(&["jobs", "j2"]).stdout;
    assert!(details.contains("held by   j1"), "{details}");
    ok(&["dispatch", "-s", "b", "[[sleep 600000]]", "behind it"]);
    runs("j3");
    let stopped = ok(&["stop", "--deadline", "0"]).stderr;
    assert!(stopped.contains("2 turns still wait"), "{stopped}");
    assert!(stopped.contains(cut), "{stopped}");
    assert!(stopped.contains("`agentctl retry j3`"), "{stopped}");
    let started = ok(&["start"]).stderr;
    let held = "2 turns are held behind an interrupted one (`agentctl jobs --state held`)";
    assert!(started.contains(held), "{started}");
}

#[test]
fn send_for_later_says_that_it_waits() {
    let daemon = Daemon::start();
    let send = ["send", "-a", "chaos", "--start-at", "1s", "chaos:say hi"];
    let sent = daemon.agentctl(&send);
    assert_eq!((sent.code, sent.stdout.as_str()), (Some(0), "hi\n"));
    assert!(
        sent.stderr.contains("note: the turn starts at 2"),
        "{sent:?}"
    );
    let past = daemon.agentctl(&["send", "--start-at", "2026-01-02T03:04:05Z", "hi"]);
    assert_eq!((past.code, past.stdout.as_str()), (Some(0), "hi\n"));
    assert!(
        past.stderr.contains("is past: the turn starts now"),
        "{past:?}"
    );
    daemon.agentctl(&["dispatch", "--start-at", "2h", "hi"]);
    let status = daemon.agentctl(&["status", "--rpc"]).stdout;
    assert!(status.contains("0 waiting, 1 for later"), "{status}");
}

#[test]
fn usage_errors_say_what_was_most_likely_meant() {
    let place = Place::new("");
    for (words, tip) in [
        ("send fix the test", "in quotes"),
        ("agents add loud tr a-z A-Z", "--kind exec -- PROGRAM"),
        ("sessions export trip", "`agentctl export NAME`"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let refused = place.agentctl(&words);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(tip), "{refused:?}");
    }
}

#[test]
fn start_is_told_by_the_set_zone() {
    let daemon = Daemon::start();
    let dispatched = |at: &str, zone: &str| {
        let mut command = daemon.place.command(AGENTCTL);
        command.args(["dispatch", "--start-at", at, "x"]);
        command.env("TZ", zone);
        finish(command, b"").stderr
    };
    let told = dispatched("2199-12-01 09:00", "Europe/Berlin");
    assert_eq!(
        told,
        "note: what has no other time starts at 2199-12-01T08:00:00Z\n"
    );
    let past = dispatched("2026-01-02 09:00", "UTC");
    assert!(past.contains("2026-01-02T09:00:00Z is past: "), "{past}");
    let later = daemon.agentctl(&["status"]).stdout;
    assert!(later.contains("in flight, 1 for later"), "{later}");
    let stopped = daemon.agentctl(&["stop"]).stderr;
    assert!(
        stopped.contains("note: 1 turn waits for its time, and begins when a daemon runs"),
        "{stopped}"
    );
}

#[test]
fn cancelled_turn_says_how_it_is_sent_again() {
    let daemon = Daemon::start();
    let mut command = daemon.place.command(AGENTCTL);
    command.args(["send", "-a", "chaos", "chaos:say half;wait-file /nowhere"]);
    let sent = std::thread::spawn(move || finish(command, b""));
    wait_for("it runs", || {
        let running = daemon.agentctl(&["jobs", "--state", "running"]).stdout;
        running.contains("j1").then_some(())
    });
    let aborted = daemon.agentctl(&["abort", "j1"]);
    assert_eq!(aborted.code, Some(0), "{aborted:?}");
    let sent = sent.join().unwrap();
    assert_eq!(sent.code, Some(1), "{sent:?}");
    let hint =
        "error: the turn was cancelled\nhint: it is j1: `agentctl retry j1` sends it again\n";
    assert!(sent.stderr.ends_with(hint), "{sent:?}");
}

#[test]
fn editor_without_a_terminal_is_not_started() {
    let place = Place::new("");
    let mut command = place.command(AGENTCTL);
    command
        .args(["config", "edit"])
        .env_remove("EDITOR")
        .env_remove("VISUAL");
    let refused = finish(command, b"");
    assert_eq!(
        (refused.code, &*refused.stdout),
        (Some(2), ""),
        "{refused:?}"
    );
    assert!(
        refused
            .stderr
            .contains("there is no terminal for an editor"),
        "{refused:?}"
    );
}

#[test]
fn session_without_a_login_says_who_chose_it() {
    let daemon = Daemon::start();
    let send = |more: &[&str]| {
        let words = [&["send", "-s", "trip", "hi"][..], more].concat();
        daemon.agentctl(&words)
    };
    assert_eq!(send(&[]).code, Some(0));
    let kept = "goes on with the provider and model that it was given last";
    let chosen = send(&["--provider", "gemini"]);
    assert_eq!(
        (chosen.code, chosen.stderr.contains(kept)),
        (Some(78), false)
    );
    let again = send(&[]);
    assert_eq!((again.code, again.stderr.contains(kept)), (Some(78), true));
    assert_eq!(send(&["--provider", "echo"]).code, Some(0));
}

#[test]
fn jobs_are_found_by_their_number_alone() {
    let daemon = Daemon::start();
    assert_eq!(daemon.agentctl(&["dispatch", "hi"]).stdout, "j1\n");
    for words in [&["collect", "1"][..], &["jobs", "1"], &["retry", "1"]] {
        let done = daemon.agentctl(words);
        assert_eq!(done.code, Some(0), "{words:?}: {done:?}");
    }
    for wrong in ["0", "j0", "x1", "-1"] {
        let refused = daemon.agentctl(&["collect", "--", wrong]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("a job such as j41"), "{refused:?}");
    }
}

#[test]
fn jobs_that_ask_say_how_to_answer() {
    let daemon = Daemon::start();
    let dispatch = [
        "dispatch",
        "-a",
        "chaos",
        "--on-question",
        "wait",
        "chaos:ask approval",
    ];
    assert_eq!(daemon.agentctl(&dispatch).stdout, "j1\n");
    daemon.until("it asks", |status| (status["questions"] == 1).then_some(()));
    let shown = daemon.agentctl(&["jobs", "j1"]).stdout;
    assert!(shown.contains("agentctl answer j1-q1"), "{shown}");
}

#[test]
fn dispatch_tells_of_keys_and_lines() {
    let daemon = Daemon::start();
    let dispatch = ["dispatch", "--key-prefix", "k"];
    let first = piped(&daemon.place, &dispatch, "one\ntwo\n");
    assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""));
    let again = piped(&daemon.place, &dispatch, "one\ntwo\nthree\n");
    assert_eq!(again.stdout, "j1\nj2\nj3\n", "{again:?}");
    let known = "2 of 3 were handed in before with `--key-prefix k`";
    assert!(again.stderr.contains(known), "{again:?}");
    // A line of its own key goes to each agent, and is known there again.
    let line = json!({"prompt": "hi", "idempotency_key": "mine"}).to_string();
    let each = ["dispatch", "--agents", "timmy,chaos"];
    let both = piped(&daemon.place, &each, &line);
    assert_eq!(
        (both.code, both.stdout.as_str()),
        (Some(0), "j4\nj5\n"),
        "{both:?}"
    );
    let both = piped(&daemon.place, &each, &line);
    assert_eq!(both.stdout, "j4\nj5\n", "{both:?}");
    // The second portion counts on.
    let mut lines = "fine\n\n".repeat(256);
    lines.push_str(&json!({"prompt": "hi", "agent": "nobody"}).to_string());
    let wrong = piped(&daemon.place, &["dispatch"], &lines);
    assert!(wrong.stderr.contains("line 513: "), "{wrong:?}");
    let wrong = daemon.agentctl(&["dispatch", "fine", ""]);
    assert!(wrong.stderr.contains("prompt 2: "), "{wrong:?}");
}

#[test]
fn steer_says_that_it_waits() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    let text = format!("chaos:say a;wait-file {};steered", gate.display());
    let send = json!({"type": "send", "agent": "chaos", "session": "s", "text": text});
    let mut client = daemon.connect();
    client.send(&send.to_string());
    client.until("message_delta");
    let mut command = daemon.place.command(AGENTCTL);
    command
        .args(["steer", "-s", "s", "left"])
        .stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut steering = Reaped(command.spawn().unwrap());
    let said = lines(steering.0.stderr.take().unwrap());
    wait_for("it says so", || {
        let mut said = said.try_iter();
        said.any(|line| line.contains("has not taken it yet"))
            .then_some(())
    });
    std::fs::write(&gate, "").unwrap();
    let told = lines(steering.0.stdout.take().unwrap());
    assert_eq!(told.recv_timeout(DEADLINE).unwrap(), "told j1");
}

#[test]
fn send_starts_the_daemon_that_was_killed() {
    let started = Started::place();
    let gate = started.0.path("gate");
    let text = format!("chaos:wait-file {};say done", gate.display());
    for (start, job) in [("never", "j1 "), ("always", "j2 ")] {
        let set = started.agentctl(&["config", "set", "client.start", start]);
        assert_eq!(set.code, Some(0), "{set:?}");
        assert_eq!(started.agentctl(&["start"]).code, Some(0));
        let mut command = started.0.command(AGENTCTL);
        command.args(["send", "-a", "chaos", "--retry", "auto", &text]);
        let sending = std::thread::spawn(move || finish(command, b""));
        wait_for("the turn runs", || {
            let running = started.agentctl(&["jobs", "--state", "running"]).stdout;
            running.contains(job).then_some(())
        });
        started.kill();
        if start == "never" {
            let sent = sending.join().unwrap();
            assert_eq!((sent.code, started.pid()), (Some(75), None), "{sent:?}");
            continue;
        }
        std::fs::write(&gate, "").unwrap();
        let sent = sending.join().unwrap();
        assert_eq!(
            (sent.code, sent.stdout.as_str()),
            (Some(0), "done\n"),
            "{sent:?}"
        );
        assert!(sent.stderr.contains("started agentd"), "{sent:?}");
    }
}

#[test]
fn script_that_is_no_jsonl_is_told() {
    let place = Place::new("");
    let script = program(
        &place.path("bin"),
        "prints",
        "echo 'Good day'; cat > /dev/null",
    );
    place.configure(&format!(
        "[agents.prints]\nkind = \"jsonl\"\ncommand = [{script:?}]\n"
    ));
    let daemon = place.start();
    for words in [
        &["agents", "test", "prints"][..],
        &["send", "-a", "prints", "hi"],
    ] {
        let mut command = daemon.place.command(AGENTCTL);
        command.args(words).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut asking = Reaped(command.spawn().unwrap());
        let said = lines(asking.0.stderr.take().unwrap());
        let said = said.recv_timeout(DEADLINE).unwrap();
        assert!(said.contains("no JSON object: `Good day`"), "{said}");
        assert!(said.contains("`kind = \"exec\"`"), "{said}");
    }
}

/// Nobody could answer, or would be there then.
#[test]
fn send_that_needs_a_daemon_runs_no_other() {
    let place = Place::new(&Daemon::config(""));
    for more in [["--on-question", "wait"], ["--start-at", "1h"]] {
        let sent = place.agentctl(&[&["send", "-a", "chaos", "chaos:say hi"], &more[..]].concat());
        assert_eq!((sent.code, &*sent.stdout), (Some(69), ""), "{sent:?}");
        assert!(sent.stderr.contains("`agentctl start`"), "{sent:?}");
    }
}
