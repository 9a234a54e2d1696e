//! Clients that die, ask twice, or find no daemon: rows A1 to A16 of the fault catalogue, as
//! PROTOCOL.md parts 3 and 7 and the fallback rule want them.
//!
//! Not here: A9 to A11 are `clients.rs`. A13 is `cursors.rs`. A15 is here for the words of the
//! protocol; there is no older release to run.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{
    AGENTCTL, AGENTD, Client, Daemon, Finished, Place, Reaped, chaos_worker, finish, kill, repeats,
    wait_for,
};

/// A place whose agent writes down each turn it runs.
fn ledger_place() -> Place {
    let place = Place::new("");
    place.configure(&format!(
        "default_agent = \"chaos\"\n[agents.chaos]\nkind = \"jsonl\"\ncommand = [{:?}]\nenv = {{ CHAOS_LEDGER = {:?} }}\n",
        chaos_worker(),
        place.path("ledger"),
    ));
    place
}

/// How many turns were run.
fn runs(place: &Place) -> usize {
    let text = std::fs::read_to_string(place.path("ledger")).unwrap_or_default();
    text.lines().count()
}

fn last_line(finished: &Finished) -> Value {
    let line = finished.stdout.lines().last();
    let line = line.unwrap_or_else(|| panic!("nothing was printed: {finished:?}"));
    serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {finished:?}"))
}

const SEND: &[&str] = &["send", "chaos: ledger; say done", "--json"];

#[test]
fn a1_a2_no_daemon_runs_once_with_reason() {
    let place = ledger_place();
    let sent = place.agentctl(SEND);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let end = last_line(&sent);
    assert_eq!(
        (&end["text"], &end["served_by"], &end["fallback_reason"]),
        (&"done".into(), &"oneshot".into(), &"no-socket".into())
    );
    assert_eq!(runs(&place), 1);

    // A socket that a killed daemon left.
    let place = place.start().kill();
    assert!(place.socket().exists());
    let end = last_line(&place.agentctl(SEND));
    assert_eq!(
        (&end["text"], &end["fallback_reason"]),
        (&"done".into(), &"refused".into())
    );
    assert_eq!(runs(&place), 2);

    let refused = place.agentctl(&["send", "chaos: ledger", "--no-fallback"]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert_eq!(runs(&place), 2);

    // The next daemon takes its place.
    let daemon = place.start();
    let end = last_line(&daemon.agentctl(SEND));
    assert_eq!(end["served_by"], "daemon");
}

#[test]
fn a3_stopped_daemon_gets_two_seconds_nothing_later() {
    let daemon = ledger_place().start();
    // Answered: so it isn't in the middle of making its store.
    daemon.status();
    kill(daemon.pid(), Signal::SIGSTOP);
    let sent = daemon.agentctl(SEND);
    let again = daemon.agentctl(&["send", "chaos: ledger", "--no-fallback"]);
    kill(daemon.pid(), Signal::SIGCONT);
    let end = last_line(&sent);
    assert_eq!(
        (sent.code, &end["text"], &end["fallback_reason"]),
        (Some(0), &"done".into(), &"unanswered".into()),
        "{sent:?}"
    );
    assert!(sent.took >= Duration::from_secs(2), "{:?}", sent.took);
    assert_eq!(again.code, Some(69), "{again:?}");
    // Connections are heard in their order: by now the daemon has seen what those two sent.
    assert_eq!(daemon.status()["rpc"]["sends"], 0);
    let end = last_line(&daemon.agentctl(SEND));
    assert_eq!(end["served_by"], "daemon");
    assert_eq!(
        runs(&daemon.place),
        2,
        "one by the fallback, one by the daemon"
    );
}

#[test]
fn a4_full_backlog_is_retried_and_then_named() {
    let place = ledger_place();
    let listener = UnixListener::bind(place.socket()).unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _fills_it = Client::connect(&place.socket());
    let sent = place.agentctl(SEND);
    let end = last_line(&sent);
    assert_eq!(
        (sent.code, &end["fallback_reason"]),
        (Some(0), &"backlog-full".into()),
        "{sent:?}"
    );
    assert!(sent.took >= Duration::from_secs(2), "{:?}", sent.took);
    assert_eq!(runs(&place), 1);
}

#[test]
fn a5_client_gone_early_had_one_job() {
    let daemon = ledger_place().start();
    let line = r#"{"prompt":"chaos: ledger; say done","idempotency_key":"k"}"#;
    for _ in 0..5 {
        let mut client = daemon.connect();
        client.send(line);
        drop(client);
    }
    let lines = daemon.ask(line);
    let job = lines[0]["job"].as_str().unwrap();
    assert_eq!(
        (&lines[1]["text"], job),
        (&"done".into(), "j1"),
        "{lines:#?}"
    );
    assert_eq!(runs(&daemon.place), 1);
    assert_eq!(daemon.status()["store"]["jobs"], 1);
}

#[test]
fn a6_answer_lost_to_a_kill_is_repeated() {
    let daemon = ledger_place().start();
    let line = r#"{"prompt":"chaos: ledger; say done","idempotency_key":"k"}"#;
    let job = daemon.ask(line)[1]["job"].clone();
    let daemon = daemon.kill().start();
    let lines = daemon.ask(line);
    for line in &lines {
        assert_eq!(
            (&line["job"], &line["replayed"]),
            (&job, &true.into()),
            "{lines:#?}"
        );
    }
    assert_eq!(lines[1]["text"], "done");
    assert_eq!(runs(&daemon.place), 1);
}

#[test]
fn a7_fifty_callers_of_one_key_are_one() {
    let daemon = ledger_place().start();
    let line = r#"{"prompt":"chaos: ledger; sleep-ms 50; say done","idempotency_key":"k"}"#;
    let answers: Vec<Vec<Value>> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..50).map(|_| scope.spawn(|| daemon.ask(line))).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for lines in &answers {
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert_eq!(
            (&lines[1]["job"], &lines[1]["text"]),
            (&"j1".into(), &"done".into())
        );
    }
    let first = answers.iter().filter(|lines| lines[0]["replayed"] == false);
    assert_eq!(first.count(), 1);
    assert_eq!(runs(&daemon.place), 1);
}

#[test]
fn a8_key_of_another_request_is_a_conflict() {
    let daemon = ledger_place().start();
    let ask = |more: &str| {
        daemon.ask(&format!(
            r#"{{"prompt":"chaos: ledger","idempotency_key":"k"{more}}}"#
        ))
    };
    assert_eq!(ask("").len(), 2);
    for more in [
        r#","session":"s""#,
        r#","agent":"chaos""#,
        r#","provider":"p""#,
        r#","model":"m""#,
        r#","thinking":"low""#,
        r#","cwd":"/""#,
        r#","retry":"auto""#,
    ] {
        let lines = ask(more);
        assert_eq!(
            (lines.len(), &lines[0]["code"]),
            (1, &"idempotency-conflict".into()),
            "{more}"
        );
    }
    // What isn't hashed keeps its first value.
    for more in [
        r#","timeout":5"#,
        r#","cwd_if_new":"/""#,
        r#","id":4"#,
        r#","mode":"reject""#,
    ] {
        assert_eq!(ask(more)[0]["replayed"], true, "{more}");
    }
    assert_eq!(runs(&daemon.place), 1);
    // A refused send left its key free.
    let refused = daemon.ask(r#"{"prompt":"a","idempotency_key":"free","agent":"nobody"}"#);
    assert_eq!(refused[0]["code"], "unknown-agent");
    assert_eq!(
        daemon.ask(r#"{"prompt":"b","idempotency_key":"free"}"#)[1]["text"],
        "b"
    );
}

#[test]
fn a12_client_that_leaves_midway_cancels_nothing() {
    let daemon = ledger_place().start();
    let gate = daemon.path("gate");
    let mut client = daemon.connect();
    let prompt = format!(
        "chaos: ledger; say half; wait-file {}; say  done",
        gate.display()
    );
    client.send(&serde_json::json!({"type": "send", "text": prompt}).to_string());
    client.until("message_delta");
    drop(client);
    let mut waiting = daemon.connect();
    waiting.send(r#"{"type":"collect","jobs":["j1"]}"#);
    assert_eq!(daemon.status()["rpc"]["in_flight"], 1);
    std::fs::write(&gate, "").unwrap();
    let collected = waiting.next().unwrap();
    let result = &collected["results"][0];
    assert_eq!(
        (&result["stop"], &result["text"]),
        (&"end_turn".into(), &"half done".into())
    );
    assert_eq!(runs(&daemon.place), 1);
}

#[test]
fn a14_one_shot_cannot_open_the_daemons_session() {
    let daemon = ledger_place().start();
    let gate = daemon.path("gate");
    let prompt = format!("chaos: ledger; wait-file {}", gate.display());
    let mut holder = daemon.connect();
    holder
        .send(&serde_json::json!({"type": "send", "session": "main", "text": prompt}).to_string());
    holder.until("running");
    let beside = |session: &str| {
        let mut command = daemon.place.command(AGENTD);
        command.arg("--stdio");
        let line = format!("{{\"prompt\":\"chaos: ledger\",\"session\":\"{session}\"}}\n");
        last_line(&finish(command, line.as_bytes()))
    };
    let refused = beside("main");
    assert_eq!(refused["code"], "session-busy", "{refused}");
    let pid = daemon.pid().to_string();
    assert!(
        refused["error"].as_str().unwrap().contains(&pid),
        "{refused}"
    );
    assert_eq!(beside("other")["type"], "message_end");
    std::fs::write(&gate, "").unwrap();
    holder.until("message_end");
    assert_eq!(runs(&daemon.place), 2);
}

/// A one-shot that goes on as long as this conversation does.
fn long_one_shot(place: &Place) -> (Reaped, Client) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = place.command(AGENTD);
    command
        .arg("--stdio")
        .stdin(OwnedFd::from(theirs.try_clone().unwrap()))
        .stdout(OwnedFd::from(theirs));
    (Reaped(command.spawn().unwrap()), Client::new(ours))
}

/// All ask for a turn of one session at once; gives their final lines.
fn race(racers: &mut [Client], session: &str, room: &Path) -> Vec<Value> {
    let text = format!("chaos: ledger; alone {}", room.join(session).display());
    let line = serde_json::json!({"type": "send", "session": session, "text": text}).to_string();
    racers.iter_mut().for_each(|one| one.send(&line));
    racers.iter_mut().map(Client::last).collect()
}

/// How many ran; the others were told who has the session.
fn ran(ends: &[Value], pids: &[u32]) -> usize {
    for end in ends {
        if end["type"] == "message_end" {
            assert_eq!(
                end["text"], "",
                "two were in the session at once: {ends:#?}"
            );
        } else {
            assert_eq!(end["code"], "session-busy", "{ends:#?}");
            let error = end["error"].as_str().unwrap();
            let named = |pid: &u32| error.contains(&format!("pid {pid}"));
            assert!(pids.iter().any(named), "{ends:#?}");
        }
    }
    let ran = ends.iter().filter(|end| end["type"] == "message_end");
    ran.count()
}

#[test]
fn a14_session_has_one_holder_in_every_race() {
    let daemon = ledger_place().start();
    let (one, to_one) = long_one_shot(&daemon.place);
    let (other, to_other) = long_one_shot(&daemon.place);
    let mut racers = [daemon.connect(), to_one, to_other];
    for racer in &mut racers {
        assert_eq!(racer.request(r#"{"type":"hello"}"#)["ok"], true);
    }
    let pids = [daemon.pid(), one.0.id(), other.0.id()];
    let mut total = 0;
    for round in 0..repeats("AGENTD_TEST_RACES", 100) {
        let ends = race(&mut racers, &format!("s{round}"), daemon.place.dir.path());
        let ran = ran(&ends, &pids);
        assert!(ran > 0, "nobody had the session: {ends:#?}");
        total += ran;
    }
    assert_eq!(runs(&daemon.place), total);
}

#[test]
fn a14_three_at_once_share_a_new_store() {
    // Where two make the store together, one of some sixty was refused once.
    for _ in 0..repeats("AGENTD_TEST_RACES", 100) / 5 {
        let place = ledger_place();
        let (one, to_one) = long_one_shot(&place);
        let (other, to_other) = long_one_shot(&place);
        let (first, second) = (one.0.id(), other.0.id());
        let daemon = place.start();
        let mut racers = [daemon.connect(), to_one, to_other];
        let ends = race(&mut racers, "main", daemon.place.dir.path());
        let ran = ran(&ends, &[daemon.pid(), first, second]);
        assert!(ran > 0, "nobody had the session: {ends:#?}");
        assert_eq!(runs(&daemon.place), ran);
        drop((one, other));
    }
}

#[test]
fn a15_another_protocol_is_refused_with_both_versions() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let answer = client.request(r#"{"type":"hello","protocol":2,"version":"99.5","later":true}"#);
    assert_eq!(answer["code"], "unsupported");
    let hint = answer["hint"].as_str().unwrap();
    assert!(
        hint.contains("99.5") && hint.contains(env!("CARGO_PKG_VERSION")),
        "{hint}"
    );
    let answer = client.request(r#"{"type":"hello","protocol":1,"version":"99.5","later":true}"#);
    assert_eq!(answer["ok"], true, "what is unknown is ignored");
}

#[test]
fn a16_agentctl_interrupted_says_so_unread_ends() {
    let daemon = ledger_place().start();
    let prompt = format!("chaos: ledger; wait-file {}", daemon.path("gate").display());
    let mut command = daemon.place.command(AGENTCTL);
    command
        .args(["send", &prompt, "--session", "main"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = Reaped(command.spawn().unwrap());
    daemon.until("the turn runs", |status| {
        (status["rpc"]["in_flight"] == 1).then_some(())
    });
    kill(child.0.id(), Signal::SIGINT);
    let left = wait_for("it leaves", || child.0.try_wait().unwrap());
    assert_eq!(left.code(), Some(130));

    let mut command = daemon.place.command(AGENTCTL);
    command
        .args(["watch", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = Reaped(command.spawn().unwrap());
    drop(child.0.stdout.take());
    std::fs::write(daemon.path("gate"), "").unwrap();
    wait_for("it leaves when nobody reads", || {
        daemon.ask(r#"{"prompt":"an event"}"#);
        child.0.try_wait().unwrap()
    });
}
