//! The past from the command line: one job, sessions, what was said, and all of it without a daemon.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::thread::JoinHandle;

use nix::pty::{Winsize, openpty};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::supervision::jsonl;
use crate::support::{AGENTCTL, Daemon, Finished, Place, Reaped, chaos_worker, wait_for};

fn said(finished: &Finished) -> &str {
    assert_eq!(finished.code, Some(0), "{finished:?}");
    &finished.stdout
}

fn sent(daemon: &Daemon, words: &[&str]) {
    let args = [&["send", "--agent", "chaos"], words].concat();
    said(&daemon.agentctl(&args));
}

fn json_of(finished: &Finished) -> Value {
    serde_json::from_str(said(finished).trim_end()).unwrap()
}

/// What a command shows on a terminal of this width, with more in its environment.
fn on_terminal(place: &Place, width: u16, more: &[(&str, &str)], args: &[&str]) -> String {
    let size = Winsize {
        ws_row: 24,
        ws_col: width,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(&size, None).unwrap();
    let mut command = place.command(AGENTCTL);
    command
        .args(args)
        .env("TERM", "xterm")
        .env("LANG", "C.UTF-8")
        .envs(more.iter().copied())
        .stdin(Stdio::from(pty.slave.try_clone().unwrap()))
        .stdout(Stdio::from(pty.slave.try_clone().unwrap()))
        .stderr(Stdio::from(pty.slave));
    let mut child = Reaped(command.spawn().unwrap());
    // It keeps ends of the terminal, too.
    drop(command);
    let mut screen = File::from(pty.master);
    let reading: JoinHandle<Vec<u8>> = std::thread::spawn(move || {
        let (mut all, mut part) = (Vec::new(), [0; 4096]);
        // At the end it is an error: everybody has left.
        while let Ok(count @ 1..) = screen.read(&mut part) {
            all.extend(&part[..count]);
        }
        all
    });
    wait_for("it leaves", || child.0.try_wait().unwrap());
    let shown = String::from_utf8(reading.join().unwrap()).expect("UTF-8");
    shown.replace("\r\n", "\n")
}

#[test]
fn job_is_shown_whole_with_how_on() {
    let daemon = Daemon::start();
    sent(
        &daemon,
        &["--session", "a", "--label", "run=7", "chaos:say one"],
    );
    let failed = daemon.agentctl(&["send", "--agent", "timmy", "[[error=rate-limit]]"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let shown = daemon.agentctl(&["jobs", "j1"]);
    for part in [
        "j1 completed after ",
        "prompt    chaos:say one\n",
        "session   a\n",
        "labels    run=7\n",
        "answer    one\n",
        "go on     agentctl send --session a TEXT\n",
    ] {
        assert!(said(&shown).contains(part), "no `{part}`: {shown:?}");
    }
    let failed = daemon.agentctl(&["jobs", "j2"]);
    assert!(
        said(&failed).starts_with("j2 failed (rate-limit)"),
        "{failed:?}"
    );
    let object = json_of(&daemon.agentctl(&["jobs", "j1", "--json"]));
    assert_eq!(object["job"]["state"], "completed");
    assert_eq!(object["final"]["text"], "one");
    let nobody = daemon.agentctl(&["jobs", "j99"]);
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    assert!(
        nobody.stderr.contains("there is no job `j99`"),
        "{nobody:?}"
    );
}

#[test]
fn jobs_of_one_agent_are_listed_alone() {
    let daemon = Daemon::start();
    sent(&daemon, &["chaos:say one"]);
    said(&daemon.agentctl(&["send", "--agent", "timmy", "two"]));
    sent(&daemon, &["chaos:say three"]);
    let listed = json_of(&daemon.agentctl(&["jobs", "--agent", "chaos", "--json"]));
    let names: Vec<&Value> = (listed["jobs"].as_array().unwrap().iter())
        .map(|row| &row["job"])
        .collect();
    assert_eq!(names, ["j3", "j1"]);
    let newest = json_of(&daemon.agentctl(&["jobs", "--limit", "1", "--json"]));
    assert_eq!(newest["jobs"][0]["job"], "j3");
}

#[test]
fn sessions_are_listed_last_used_first() {
    let daemon = Daemon::start();
    for session in ["a", "b", "c"] {
        sent(&daemon, &["--session", session, "chaos:say x"]);
    }
    said(&daemon.agentctl(&["send", "--agent", "timmy", "unnamed words"]));
    let place = daemon.kill();
    // Times have seconds, and all of this took less than one.
    let store = Connection::open(place.path("state/agentd.db")).unwrap();
    let later = "UPDATE sessions SET active_at = active_at + 5000 WHERE name = 'a'";
    assert_eq!(store.execute(later, []).unwrap(), 1);
    drop(store);
    let daemon = place.start();
    let names = |args: &[&str]| {
        let args = [&["sessions", "--json"], args].concat();
        let listed = json_of(&daemon.agentctl(&args));
        let rows = listed["sessions"].as_array().unwrap().clone();
        let names = rows
            .iter()
            .map(|row| row["session"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["a", "s4", "c", "b"]);
    assert_eq!(names(&["--agent", "chaos", "--limit", "2"]), ["a", "c"]);
    let shown = daemon.agentctl(&["sessions", "--limit", "2"]);
    assert!(said(&shown).contains("unnamed words"), "{shown:?}");
    assert!(shown.stderr.contains("these are 2 of 4"), "{shown:?}");
    let one = daemon.agentctl(&["sessions", "show", "a"]);
    assert!(said(&one).starts_with("a idle, 1 turn\n"), "{one:?}");
}

#[test]
fn sessions_are_closed_together_or_for_idleness() {
    let daemon = Daemon::start();
    for session in ["a", "b", "c"] {
        sent(&daemon, &["--session", session, "chaos:say x"]);
    }
    let closed = daemon.agentctl(&["sessions", "close", "a", "nobody", "b"]);
    assert_eq!(closed.code, Some(2), "{closed:?}");
    assert_eq!(closed.stdout, "closed a\nclosed b\n", "{closed:?}");
    let none = daemon.agentctl(&["sessions", "close", "--idle", "1h"]);
    assert_eq!(said(&none), "no session is that idle\n");
    let idle = daemon.agentctl(&["sessions", "close", "--idle", "0s"]);
    assert_eq!(said(&idle), "closed c\n");
}

#[test]
fn sessions_stay_when_the_clock_jumped() {
    let daemon = Daemon::start();
    sent(&daemon, &["--session", "a", "chaos:say x"]);
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    let (place, _) = daemon.left();
    // As if the wall clock had been set forward by a month since, in the same boot.
    let store = Connection::open(place.path("state/agentd.db")).unwrap();
    let back = "UPDATE jobs SET expires_at = expires_at - 2592000000,
                    accepted_at = accepted_at - 2592000000;
                UPDATE sessions SET created_at = created_at - 2592000000,
                    active_at = active_at - 2592000000;";
    store.execute_batch(back).unwrap();
    drop(store);
    let daemon = place.start();
    let listed = daemon.ask(r#"{"type":"session.list"}"#);
    let idle = listed[0]["sessions"][0]["idle_s"].as_u64().unwrap();
    assert!(idle < 3600, "{listed:?}");
    let old = daemon.ask(r#"{"type":"session.list","idle_for":86400}"#);
    assert_eq!(old[0]["sessions"], json!([]));
    let none = daemon.agentctl(&["sessions", "close", "--idle", "1d"]);
    assert_eq!(said(&none), "no session is that idle\n");
}

#[test]
fn session_renamed_goes_on_with_its_memory() {
    let kept = tempfile::tempdir().unwrap();
    let worker = chaos_worker();
    let command = [
        worker.to_str().unwrap(),
        "--one-session",
        "--resumes",
        kept.path().to_str().unwrap(),
    ];
    let daemon = Place::new(&jsonl("keeps", &command)).start();
    let send = |session: &str| {
        let args = [
            "send",
            "--agent",
            "keeps",
            "--session",
            session,
            "chaos:count",
        ];
        said(&daemon.agentctl(&args)).to_owned()
    };
    assert_eq!(
        (send("old"), send("old")),
        ("1\n".to_owned(), "2\n".to_owned())
    );
    let renamed = daemon.agentctl(&["sessions", "rename", "old", "new"]);
    assert_eq!(said(&renamed), "old is called new now\n");
    assert_eq!(send("new"), "3\n");
    let history = daemon.agentctl(&["history", "new"]);
    assert_eq!(
        said(&history).matches("> chaos:count").count(),
        3,
        "{history:?}"
    );
    // Killed at once, the store has it under one name.
    let daemon = daemon.kill().start();
    let names = json_of(&daemon.agentctl(&["sessions", "--json"]));
    assert_eq!(names["sessions"].as_array().unwrap().len(), 1, "{names}");
    assert_eq!(names["sessions"][0]["session"], "new");
}

#[test]
fn sessions_search_finds_prompts_and_answers() {
    let daemon = Daemon::start();
    sent(&daemon, &["--session", "a", "chaos:say The Needle is here"]);
    sent(&daemon, &["--session", "b", "chaos:say hay"]);
    said(&daemon.agentctl(&[
        "send",
        "--agent",
        "timmy",
        "--session",
        "c",
        "a NEEDLE of mine",
    ]));
    let found = |args: &[&str]| {
        let args = [&["sessions", "search", "--json"], args].concat();
        let page = json_of(&daemon.agentctl(&args));
        let turns = page["turns"].as_array().unwrap().clone();
        let sessions = turns
            .iter()
            .map(|row| row["session"].as_str().unwrap().to_owned());
        sessions.collect::<Vec<_>>()
    };
    assert_eq!(found(&["needle"]), ["c", "a"]);
    assert_eq!(found(&["needle", "here"]), ["a"]);
    assert_eq!(found(&["needle", "--session", "c"]), ["c"]);
    assert_eq!(found(&["no such words"]), Vec::<String>::new());
    let shown = daemon.agentctl(&["sessions", "search", "needle", "mine"]);
    assert!(said(&shown).contains("a NEEDLE of mine"), "{shown:?}");
}

#[test]
fn history_shows_last_turns_steers_and_tools() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let send = json!({"type": "send", "agent": "chaos", "session": "q",
        "text": "chaos:tool rw;say chosen;steered"});
    client.send(&send.to_string());
    client.until("message_delta");
    said(&daemon.agentctl(&["steer", "--session", "q", "a word from outside"]));
    client.until("message_end");
    sent(&daemon, &["--session", "q", "chaos:say second"]);
    sent(&daemon, &["--session", "q", "chaos:say third"]);
    let full = daemon.agentctl(&["history", "q", "--full"]);
    assert!(said(&full).contains(">> a word from outside\n"), "{full:?}");
    assert!(full.stdout.contains("\n* "), "{full:?}");
    let brief = daemon.agentctl(&["history", "q"]);
    assert!(!said(&brief).contains(">> a word"), "{brief:?}");
    for (args, shown) in [
        (&["history", "--last"][..], &["third"][..]),
        (&["history", "--last", "q"], &["third"]),
        (&["history", "q", "--last", "2"], &["second", "third"]),
        (
            &["history", "--last", "9", "q"],
            &["chosen", "second", "third"],
        ),
    ] {
        let history = daemon.agentctl(args);
        for text in ["chosen", "second", "third"] {
            let is_there = said(&history).contains(&format!("\n{text}"));
            assert_eq!(
                is_there,
                shown.contains(&text),
                "{args:?} {text}: {history:?}"
            );
        }
    }
}

#[test]
fn past_is_read_without_a_daemon() {
    let daemon = Daemon::start();
    sent(&daemon, &["--session", "kept", "chaos:say before the end"]);
    let place = daemon.kill();
    let store = || std::fs::read(place.path("state/agentd.db")).unwrap();
    said(&place.agentctl(&["jobs"]));
    let before = store();
    for (args, part) in [
        (&["jobs"][..], "chaos:say"),
        (&["jobs", "j1"], "before the end"),
        (&["sessions"], "kept"),
        (&["sessions", "show", "kept"], "kept"),
        (&["sessions", "search", "before"], "kept"),
        (&["history", "kept"], "before the end"),
        (&["usage"], "1 turn"),
        (&["export"], "before the end"),
        (&["collect", "j1"], "before the end"),
        (&["attach", "j1"], "before the end"),
        (&["attach", "kept", "--quiet"], "before the end"),
        (&["ps"], "nothing runs"),
    ] {
        let read = place.agentctl(args);
        assert!(said(&read).contains(part), "{args:?}: {read:?}");
        assert!(
            read.stderr.contains("no daemon is running") && read.stderr.contains("stored"),
            "{args:?}: {read:?}"
        );
        let strict = place.agentctl(&[args, &["--no-fallback"]].concat());
        assert_eq!(strict.code, Some(69), "{args:?}: {strict:?}");
    }
    assert!(store() == before, "a read changed the store");
    // What changes something needs a daemon.
    let closed = place.agentctl(&["sessions", "close", "kept"]);
    assert_eq!(closed.code, Some(69), "{closed:?}");
    let daemon = place.start();
    let read = daemon.agentctl(&["jobs"]);
    assert!(
        said(&read).contains("chaos:say") && read.stderr.is_empty(),
        "{read:?}"
    );
}

#[test]
fn past_job_that_waits_needs_the_daemon() {
    let daemon = Daemon::start();
    sent(&daemon, &["--session", "kept", "chaos:say before"]);
    let mut client = daemon.connect();
    for text in ["chaos:hang", "chaos:say after"] {
        let send = json!({"type": "send", "agent": "chaos", "session": "kept", "text": text});
        client.send(&send.to_string());
        client.until("accepted");
    }
    let place = daemon.kill();
    for (args, what) in [
        (&["collect", "j2"][..], "j2 has"),
        (&["collect", "j3", "j2", "--timeout", "0"], "j3, j2 have"),
        (&["collect", "j1", "j3", "--json"], "j3 has"),
        (&["attach", "j3"], "j3 has"),
        (&["attach", "kept"], "j2 has"),
    ] {
        let refused = place.agentctl(args);
        assert_eq!(refused.code, Some(69), "{args:?}: {refused:?}");
        let error = format!("error: {what} not ended, and agentd is not running\n");
        assert!(refused.stderr.contains(&error), "{args:?}: {refused:?}");
        assert!(refused.stderr.contains("`agentctl start`"), "{refused:?}");
    }
    let some = place.agentctl(&["collect", "j1", "j3"]);
    assert!(some.stdout.contains("before"), "{some:?}");
    let first = place.agentctl(&["collect", "j1", "j3", "--any"]);
    assert!(said(&first).contains("before"), "{first:?}");
    let waiting = place.agentctl(&["ps"]);
    let shown = said(&waiting);
    assert!(shown.contains("j2") && shown.contains("j3"), "{waiting:?}");
    assert!(
        shown.contains(" cut off ") && !shown.contains("running"),
        "{waiting:?}"
    );
    assert!(waiting.stderr.contains("`agentctl start`"), "{waiting:?}");
    for job in ["j2", "j3"] {
        let shown = place.agentctl(&["jobs", job]);
        let text = said(&shown);
        assert!(text.contains("go on     agentctl start\n"), "{text}");
        assert!(!text.contains("agentctl attach"), "{text}");
    }
}

#[test]
fn past_of_nothing_makes_no_store() {
    let place = Place::new("");
    for args in [
        &["jobs"][..],
        &["sessions"],
        &["usage"],
        &["export"],
        &["ps"],
        &["collect", "j1"],
        &["attach", "main"],
    ] {
        let nothing = place.agentctl(args);
        assert_eq!(nothing.code, Some(69), "{args:?}: {nothing:?}");
    }
    assert!(!place.path("state").exists());
}

#[test]
fn past_read_beside_a_start_harms_nobody() {
    let daemon = Daemon::start();
    sent(&daemon, &["--session", "kept", "chaos:say kept"]);
    let place = daemon.kill();
    let mut readers: Vec<Reaped> = (0..4)
        .map(|_| {
            let mut command = place.command(AGENTCTL);
            command.args(["jobs", "--json"]).stderr(Stdio::null());
            Reaped(command.stdout(Stdio::piped()).spawn().unwrap())
        })
        .collect();
    let daemon = place.start();
    sent(&daemon, &["--session", "kept", "chaos:say more"]);
    for reader in &mut readers {
        let status = wait_for("the reader leaves", || reader.0.try_wait().unwrap());
        let mut text = String::new();
        reader
            .0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(
            status.success() && text.contains("\"j1\""),
            "{status} {text}"
        );
    }
}

#[test]
fn lists_fit_a_narrow_terminal_without_wrapping() {
    let daemon = Daemon::start();
    let words = format!("chaos:say {}", "a long sentence ".repeat(20));
    sent(
        &daemon,
        &[
            "--session",
            "a-session-with-a-name",
            "--label",
            "run=7",
            &words,
        ],
    );
    sent(&daemon, &[&words]);
    for args in [
        &["jobs"][..],
        &["jobs", "j1"],
        &["sessions"],
        &["sessions", "show", "s2"],
        &["sessions", "search", "sentence"],
        &["usage"],
        &["status"],
        &["agents"],
    ] {
        for width in [40, 49, 100] {
            let shown = on_terminal(&daemon.place, width, &[("NO_COLOR", "1")], args);
            for line in shown.lines() {
                let taken = line.chars().count();
                assert!(
                    taken <= usize::from(width),
                    "{args:?} {width}: {taken} in {line:?}"
                );
            }
        }
    }
    // Somebody who counts no columns gets all.
    let whole = daemon.agentctl(&["jobs"]);
    assert!(said(&whole).contains("LABELS"), "{whole:?}");
    let narrow = on_terminal(&daemon.place, 40, &[], &["jobs"]);
    assert!(
        !narrow.contains("LABELS") && narrow.contains('…'),
        "{narrow}"
    );
    let ascii = on_terminal(&daemon.place, 40, &[("LANG", "C")], &["jobs"]);
    assert!(ascii.is_ascii() && ascii.contains("..."), "{ascii}");
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let daemon = Daemon::start();
    sent(&daemon, &["chaos:say x"]);
    let green = "\x1b[32mcompleted\x1b[0m";
    let at = |more: &[(&str, &str)], args: &[&str]| on_terminal(&daemon.place, 80, more, args);
    assert!(at(&[], &["jobs"]).contains(green));
    assert!(!at(&[("NO_COLOR", "1")], &["jobs"]).contains('\x1b'));
    assert!(!at(&[], &["jobs", "--color", "never"]).contains('\x1b'));
    assert!(!said(&daemon.agentctl(&["jobs"])).contains('\x1b'));
    assert!(said(&daemon.agentctl(&["--color", "always", "jobs"])).contains(green));
    let mut forced = daemon.place.command(AGENTCTL);
    forced.arg("jobs").env("CLICOLOR_FORCE", "1");
    let forced = crate::support::finish(forced, b"");
    assert!(said(&forced).contains(green), "{forced:?}");
}

#[test]
fn backup_that_takes_long_says_what_it_does() {
    let place = Place::new("");
    let listener = UnixListener::bind(place.socket()).unwrap();
    let pty = openpty(None, None).unwrap();
    let mut command = place.command(AGENTCTL);
    command
        .args(["backup", "/tmp/copy"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::from(pty.slave));
    let mut child = Reaped(command.spawn().unwrap());
    drop(command);
    let (mut stream, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let hello = json!({"type": "hello", "id": next()["id"], "ok": true, "server": "agentd",
        "version": "0", "protocol": 1, "epoch": "e", "pid": 1, "uid": 1, "capabilities": [],
        "limits": {"line_in": 1, "line_out": 1, "in_flight": 1}});
    writeln!(stream, "{hello}").unwrap();
    let asked = next();
    // Nothing is answered before it is seen what goes on.
    let mut screen = File::from(pty.master);
    let (mut shown, mut part) = (String::new(), [0; 256]);
    while !shown.contains("copying the store, ") {
        let count = screen.read(&mut part).unwrap();
        shown += &String::from_utf8_lossy(&part[..count]);
    }
    let answer = json!({"type": "backup", "id": asked["id"], "ok": true, "path": "/tmp/copy",
        "bytes": 1024});
    writeln!(stream, "{answer}").unwrap();
    let status = wait_for("it leaves", || child.0.try_wait().unwrap());
    let mut text = String::new();
    child
        .0
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(status.success(), "{status} {shown}");
    assert_eq!(
        text,
        "/tmp/copy (1.0 KiB), without the configuration and its keys\n"
    );
    // The line is gone again.
    while let Ok(count @ 1..) = screen.read(&mut part) {
        shown += &String::from_utf8_lossy(&part[..count]);
    }
    assert!(shown.ends_with("\r\u{1b}[K"), "{shown:?}");
}

#[test]
fn agents_shows_what_is_usable_first() {
    let daemon =
        Daemon::with("[agents.broken]\nkind = \"exec\"\ncommand = [\"no-such-program\"]\n");
    let listed = daemon.agentctl(&["agents"]);
    let lines: Vec<&str> = said(&listed).lines().collect();
    let place_of = |name: &str| lines.iter().position(|line| line.starts_with(name));
    assert!(place_of("timmy") < place_of("broken"), "{listed:?}");
    let last = lines.last().unwrap();
    assert!(
        last.starts_with("not installed: ") && last.contains("--all"),
        "{listed:?}"
    );
    let all = daemon.agentctl(&["agents", "--all"]);
    assert!(said(&all).contains("looked-for"), "{all:?}");
}

#[test]
fn backup_needs_neither_name_nor_daemon() {
    let daemon = Daemon::start();
    assert_eq!(daemon.agentctl(&["send", "hi"]).code, Some(0));
    let copied = |place: &Place| {
        let made = place.agentctl(&["backup"]);
        let path = said(&made).split(" (").next().unwrap().to_owned();
        let name = path.strip_prefix(place.path("home").to_str().unwrap());
        let name = name.unwrap().trim_start_matches('/').to_owned();
        assert!(
            name.starts_with("agentd-2") && name.ends_with(".db"),
            "{name}"
        );
        assert!(made.stderr.contains("same disk"), "{made:?}");
        std::fs::rename(&path, place.path(&name)).unwrap();
        place.path(&name)
    };
    copied(&daemon.place);
    let place = daemon.kill();
    let copy = copied(&place);
    std::fs::remove_dir_all(place.path("state")).unwrap();
    let restored = place.agentctl(&["restore", copy.to_str().unwrap()]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    assert!(said(&place.agentctl(&["jobs"])).contains("j1"));
    // Made by itself it is by a daemon only.
    let often = place.agentctl(&["backup", "--every", "1d"]);
    assert_eq!(often.code, Some(69), "{often:?}");
}
