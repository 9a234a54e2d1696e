//! `agentctl send` and its neighbours as people use them in pipes and scripts: what goes in, what
//! comes out meanwhile, going on, looking again, sending again.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{ChildStdout, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::supervision::with_marks;
use crate::support::{AGENTCTL, Daemon, Finished, Place, Reaped, finish, kill, lines, wait_for};

fn piped(place: &Place, args: &[&str], input: &[u8]) -> Finished {
    let mut command = place.command(AGENTCTL);
    command.args(args);
    finish(command, input)
}

/// One that goes on.
fn started(place: &Place, args: &[&str]) -> (Reaped, ChildStdout) {
    let mut command = place.command(AGENTCTL);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Reaped(command.spawn().unwrap());
    let stdout = child.0.stdout.take().unwrap();
    (child, stdout)
}

/// Reads until this has come.
fn until(stdout: &mut ChildStdout, part: &str) -> String {
    let mut said = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&said).ends_with(part) {
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "no `{part}`");
        said.push(byte[0]);
    }
    String::from_utf8(said).unwrap()
}

fn ended(mut child: Reaped, mut stdout: ChildStdout) -> Finished {
    let status = wait_for("agentctl leaves", || child.0.try_wait().unwrap());
    let mut finished = Finished {
        code: status.code(),
        stdout: String::new(),
        stderr: String::new(),
        took: std::time::Duration::ZERO,
    };
    stdout.read_to_string(&mut finished.stdout).unwrap();
    let mut stderr = child.0.stderr.take().unwrap();
    stderr.read_to_string(&mut finished.stderr).unwrap();
    finished
}

#[test]
fn send_continue_goes_on_in_this_directory() {
    let daemon = Daemon::start();
    let place = &daemon.place;
    let said = |args: &[&str]| {
        let sent = place.agentctl(args);
        assert_eq!(sent.code, Some(0), "{args:?}: {sent:?}");
        sent.stdout
    };
    let none = place.agentctl(&["send", "-c", "hi"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("in this directory"), "{none:?}");

    let first = ["send", "--agent", "chaos", "chaos:count"];
    assert_eq!(said(&first), "1\n");
    assert_eq!(said(&["send", "-c", "chaos:count"]), "2\n");
    let told = place.agentctl(&["attach"]);
    assert_eq!(
        (told.code, told.stdout.as_str()),
        (Some(0), "2\n"),
        "{told:?}"
    );
    assert!(
        told.stderr.contains("this is j2 of session s1\n"),
        "{told:?}"
    );
    // A session that was made later, and not used since, is another one.
    assert_eq!(said(&["send", "--agent", "timmy", "hi"]), "hi\n");
    let named = ["send", "-s", "s1", "chaos:count"];
    assert_eq!(said(&named), "3\n");
    assert_eq!(said(&["send", "-c", "chaos:count"]), "4\n");
    assert_eq!(said(&["send", "-c", "--agent", "timmy", "it"]), "it\n");
    assert_eq!(
        said(&["send", "-c", "--agent", "chaos", "chaos:count"]),
        "5\n"
    );
    let jobs = daemon.ask(r#"{"type":"jobs","session":"s1"}"#).remove(0);
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 5);

    // Another directory has sessions of its own; however it is written, it is the same one.
    let other = place.path("other");
    std::fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    let told = place.agentctl(&["send", "-c", "hi"]).stderr;
    assert!(
        told.starts_with("note: goes on with session s1 of chaos, used "),
        "{told}"
    );
    assert_eq!(place.agentctl(&["send", "-cq", "hi"]).stderr, "");
    let elsewhere = place.agentctl(&["send", "-c", "--cwd", other, "hi"]);
    assert_eq!(elsewhere.code, Some(2), "{elsewhere:?}");
    let home = format!("{other}/../home");
    let there = [
        "send",
        "-c",
        "--cwd",
        &home,
        "--agent",
        "chaos",
        "chaos:count",
    ];
    assert_eq!(said(&there), "8\n");

    // It is the store that knows it, so a run without the daemon goes on, too.
    let place = daemon.kill();
    let alone = place.agentctl(&["send", "-c", "--json", "chaos:count"]);
    let last: Value = serde_json::from_str(alone.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["session"], &last["served_by"]),
        (&json!("s1"), &json!("oneshot")),
        "{alone:?}"
    );
}

#[test]
fn send_has_piped_input_behind_its_prompt() {
    let daemon = Daemon::start();
    let args = ["send", "--agent", "chaos", "sum up"];
    let sent = piped(&daemon.place, &args, b"a\nb\n");
    assert_eq!(sent.stdout, "sum up\n\na\nb\n", "{sent:?}");
    assert_eq!(piped(&daemon.place, &args, b"").stdout, "sum up\n");
    let mut command = daemon.place.command("/bin/sh");
    command.args(["-c", "exec \"$0\" \"$@\" < /dev/null", AGENTCTL]);
    command.args(args);
    assert_eq!(finish(command, b"left out").stdout, "sum up\n");
}

#[test]
fn send_waits_for_no_inherited_socket() {
    let daemon = Daemon::start();
    // As ssh has it: open, and silent.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = daemon.place.command(AGENTCTL);
    command
        .args(["send", "hi"])
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Reaped(command.spawn().unwrap());
    let stdout = child.0.stdout.take().unwrap();
    let sent = ended(child, stdout);
    assert_eq!((sent.code, sent.stdout.as_str()), (Some(0), "hi\n"));
    drop(ours);
}

#[test]
fn send_takes_bytes_that_are_no_text() {
    let daemon = Daemon::start();
    for args in [
        &["send", "--agent", "chaos", "sum up"][..],
        &["send", "--agent", "chaos", "-"],
        &["dispatch", "--agent", "chaos", "--collect"],
    ] {
        let sent = piped(&daemon.place, args, b"a\xffb");
        assert_eq!(sent.code, Some(0), "{sent:?}");
        assert!(sent.stdout.contains("a\u{fffd}b"), "{sent:?}");
        assert!(sent.stderr.contains("not all UTF-8"), "{sent:?}");
    }
    let args = ["send", "--agent", "chaos", "chaos:attached"];
    let picture = piped(&daemon.place, &args, b"\x89PNG\r\n\x1a\nx");
    assert_eq!(
        picture.stdout, "image/png standard input 12 Rw0KGgp4\n",
        "{picture:?}"
    );
    assert!(picture.stderr.contains("is attached"), "{picture:?}");
}

#[test]
fn send_streams_into_a_pipe() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    let prompt = format!("chaos:say first;wait-file {};say  second", gate.display());
    let args = ["send", "--agent", "chaos", &prompt];
    let (child, mut stdout) = started(&daemon.place, &args);
    assert_eq!(until(&mut stdout, "first"), "first");
    std::fs::write(gate, "").unwrap();
    let sent = ended(child, stdout);
    assert_eq!((sent.code, sent.stdout.trim()), (Some(0), "second"));
}

#[test]
fn send_that_is_quiet_prints_its_answer_alone() {
    let daemon = Daemon::start();
    let prompt = "chaos:note odd;ask approval;say  done";
    let args = ["send", "-q", "--agent", "chaos", prompt];
    let sent = daemon.agentctl(&args);
    assert_eq!(
        (sent.code, sent.stdout.as_str(), sent.stderr.as_str()),
        (Some(0), "approve=false done\n", "")
    );
}

#[test]
fn send_that_is_cancelled_keeps_its_text() {
    let daemon = Daemon::start();
    let prompt = "chaos:say begun;wait-file /nowhere";
    let args = ["send", "--agent", "chaos", prompt];
    let (child, mut stdout) = started(&daemon.place, &args);
    until(&mut stdout, "begun");
    kill(child.0.id(), Signal::SIGINT);
    let sent = ended(child, stdout);
    assert_eq!((sent.code, sent.stdout.as_str()), (Some(130), "\n"));
    assert_eq!(
        sent.stderr,
        "note: cancelling j1; Ctrl-C again leaves at once\nnote: cancelled j1\n"
    );
    // What was cancelled isn't what was asked for.
    assert_eq!(daemon.agentctl(&["collect", "j1"]).code, Some(1));
    assert_eq!(daemon.agentctl(&["abort", "j9999"]).code, Some(2));
}

#[test]
fn send_says_how_a_denied_question_is_answered() {
    let daemon = Daemon::start();
    let asks = |more: &[&str]| {
        let args = [&["send", "--agent", "chaos", "chaos:ask approval"], more].concat();
        let sent = daemon.agentctl(&args);
        assert_eq!(sent.stdout, "approve=false\n", "{sent:?}");
        sent.stderr.contains("`--on-question wait`")
    };
    assert!(asks(&[]));
    assert!(!asks(&["--on-question", "deny"]));
}

#[test]
fn send_names_a_file_it_can_not_attach() {
    let daemon = Daemon::start();
    let device = ["send", "--attach", "/dev/zero", "hi"];
    for args in [
        &["send", "--attach", "no.png", "hi"][..],
        &["send", "--attach", ".", "hi"],
        &device,
    ] {
        let refused = daemon.agentctl(args);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(!refused.stderr.contains("attachments["), "{refused:?}");
        assert!(refused.stderr.contains(args[2]), "{refused:?}");
    }
}

#[test]
fn attach_shows_a_running_turn_and_leaves() {
    let daemon = Daemon::start();
    let place = &daemon.place;
    let gate = daemon.path("gate");
    let script = format!("chaos:say first;wait-file {};say  second", gate.display());
    let mut turn = daemon.connect();
    let send = json!({"type": "send", "agent": "chaos", "session": "main", "text": script});
    turn.send(&send.to_string());
    turn.until("message_delta");

    let (child, mut stdout) = started(place, &["attach", "j1"]);
    assert_eq!(until(&mut stdout, "first"), "first");
    kill(child.0.id(), Signal::SIGINT);
    let left = ended(child, stdout);
    assert_eq!(left.code, Some(130));
    assert!(left.stderr.contains("left; j1 goes on"), "{left:?}");

    let (child, mut stdout) = started(place, &["attach", "main"]);
    assert_eq!(until(&mut stdout, "first"), "first");
    std::fs::write(gate, "").unwrap();
    let shown = ended(child, stdout);
    assert_eq!((shown.code, shown.stdout.trim()), (Some(0), "second"));

    // What has ended is there.
    turn.until("message_end");
    for which in ["j1", "main"] {
        let over = place.agentctl(&["attach", which]);
        assert_eq!(
            (over.code, over.stdout.as_str()),
            (Some(0), "first second\n"),
            "{over:?}"
        );
    }
    let failed = place.agentctl(&["send", "--agent", "chaos", "chaos:say so;exit 3"]);
    let again = place.agentctl(&["attach", "j2"]);
    assert_eq!(
        (again.code, &again.stdout, &again.stderr),
        (failed.code, &failed.stdout, &failed.stderr)
    );
    for which in ["j99", "nobody"] {
        assert_eq!(place.agentctl(&["attach", which]).code, Some(2), "{which}");
    }
}

#[test]
fn retry_sends_a_stored_prompt_again() {
    let daemon = with_marks("").start();
    let script = "chaos:ledger;given labels";
    let args = ["send", "-s", "main", "--agent", "chaos", "--label", "run=7"];
    let sent = daemon.agentctl(&[&args[..], &[script]].concat());
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let again = daemon.agentctl(&["retry", "j1"]);
    assert_eq!(
        (again.code, &again.stdout),
        (Some(0), &sent.stdout),
        "{again:?}"
    );
    assert!(again.stderr.contains("j1 is sent again"), "{again:?}");
    let jobs = daemon.ask(r#"{"type":"jobs","session":"main","label":"run=7"}"#);
    let numbers: Vec<&Value> = jobs[0]["jobs"].as_array().unwrap().iter().collect();
    assert_eq!(numbers.len(), 2, "{numbers:?}");
    let ledger = std::fs::read_to_string(daemon.path("ledger")).unwrap();
    assert_eq!(ledger.lines().count(), 2, "{ledger}");
    assert_eq!(daemon.agentctl(&["retry", "j99"]).code, Some(2));
    daemon.agentctl(&["sessions", "close", "main"]);
    let anew = daemon.agentctl(&["retry", "j1"]);
    assert_eq!(
        (anew.code, &anew.stdout),
        (Some(0), &sent.stdout),
        "{anew:?}"
    );
    assert!(anew.stderr.contains("session main was closed"), "{anew:?}");
}

#[test]
fn watch_joins_text_and_has_times() {
    let daemon = Daemon::start();
    let (mut child, stdout) = started(&daemon.place, &["watch"]);
    let lines = lines(stdout);
    let mut seen = Vec::new();
    // A watcher that isn't there yet misses a turn.
    let job = wait_for("it watches", || {
        let told = daemon.ask(r#"{"prompt":"chaos:emit 3","agent":"chaos"}"#);
        seen.extend(lines.try_iter());
        let job = told[0]["job"].as_str().unwrap().to_owned();
        let whole = |line: &&String| line.contains(" accepted ") || line.contains(" done ");
        let mine: Vec<&String> = seen.iter().filter(|line| line.contains(&job)).collect();
        (mine.into_iter().filter(whole).count() == 2).then_some(job)
    });
    child.0.kill().unwrap();
    let of_job = |line: &&String| line.split(' ').nth(1) == Some(&job);
    let texts: Vec<&str> = seen
        .iter()
        .filter(of_job)
        .filter_map(|line| Some(line.split_once(" text ")?.1.trim()))
        .collect();
    assert_eq!(texts, ["d0 d1 d2"], "{seen:?}");
    for line in &seen {
        let (time, _) = line.split_once(' ').unwrap();
        let digits = time.chars().filter(char::is_ascii_digit);
        assert_eq!((digits.count(), time.len()), (6, 8), "{line}");
    }
}

#[test]
fn send_stops_waiting_while_its_turn_goes_on() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    let text = format!("chaos:wait-file {}; say done", gate.display());
    // From when it was accepted, however short that is.
    let left = daemon.agentctl(&["send", "-a", "chaos", "--wait", "0", &text]);
    assert_eq!(left.code, Some(75), "{left:?}");
    for says in ["j1 goes on", "`agentctl collect j1`"] {
        assert!(left.stderr.contains(says), "{left:?}");
    }
    std::fs::write(&gate, "").unwrap();
    let done = daemon.agentctl(&["collect", "j1"]);
    assert!(done.stdout.contains("done"), "{done:?}");
    let soon = daemon.agentctl(&["send", "--wait", "1m", "hi"]);
    assert_eq!((soon.code, &*soon.stdout), (Some(0), "hi\n"), "{soon:?}");
    // Nothing would go on without it.
    let place = daemon.kill();
    for option in ["--wait=1m", "--no-fallback"] {
        let refused = place.agentctl(&["send", option, "hi"]);
        assert_eq!(refused.code, Some(69), "{refused:?}");
        let hint = "hint: `agentctl start` starts it\n";
        assert!(refused.stderr.ends_with(hint), "{refused:?}");
    }
}

#[test]
fn send_that_is_terminated_says_what_goes_on() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    let text = format!("chaos:say a;wait-file {};say b", gate.display());
    for words in [&["send", "-a", "chaos", &text][..], &["attach", "j1"]] {
        let (client, mut stdout) = started(&daemon.place, words);
        until(&mut stdout, "a");
        kill(client.0.id(), Signal::SIGTERM);
        let left = ended(client, stdout);
        assert_eq!(left.code, Some(143), "{words:?}: {left:?}");
        for says in [
            "left; j1 goes on",
            "`agentctl attach j1`",
            "`agentctl abort j1`",
        ] {
            assert!(left.stderr.contains(says), "{words:?}: {left:?}");
        }
    }
    std::fs::write(&gate, "").unwrap();
    let done = daemon.agentctl(&["collect", "j1"]);
    assert!(done.stdout.contains("ab"), "{done:?}");
}

#[test]
fn send_with_a_used_key_says_so() {
    let daemon = Daemon::start();
    let send = ["send", "--idempotency-key", "k", "hi"];
    let first = daemon.agentctl(&send);
    assert!(!first.stderr.contains("earlier send"), "{first:?}");
    let again = daemon.agentctl(&send);
    assert_eq!((again.code, &*again.stdout), (Some(0), "hi\n"), "{again:?}");
    let note = "note: this is j1, an earlier send with this key: nothing is run anew\n";
    assert!(again.stderr.contains(note), "{again:?}");
}

#[test]
fn time_options_say_what_becomes_of_turns() {
    let place = Place::new("");
    for (command, says) in [
        ("send", "End the turn"),
        ("send", "Stop waiting"),
        ("collect", "Stop waiting"),
    ] {
        let help = place.agentctl(&["help", command]).stdout;
        assert!(help.contains(says), "{help}");
    }
}
