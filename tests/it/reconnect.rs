//! A daemon that goes away under its clients: what was accepted is asked for again at the next one,
//! with the key that the client holds. Nothing runs twice, and nobody waits for ever.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::screen::{at_terminal, ended};
use crate::support::{
    AGENTCTL, Daemon, Finished, Place, Reaped, chaos_worker, finish, repeats, wait_for,
};

fn config(place: &Place) -> String {
    format!(
        "default_agent = \"chaos\"\n[agents.chaos]\nkind = \"jsonl\"\ncommand = [{:?}]\nenv = {{ CHAOS_LEDGER = {:?} }}\n",
        chaos_worker(),
        place.path("ledger"),
    )
}

/// A place whose agent writes down each turn that it runs.
fn ledger_place() -> Place {
    let place = Place::new("");
    place.configure(&config(&place));
    place
}

fn runs(place: &Place) -> usize {
    let text = std::fs::read_to_string(place.path("ledger")).unwrap_or_default();
    text.lines().count()
}

/// As an upgrade does it: the old one is asked to leave for another, which then starts.
fn restarted(daemon: Daemon) -> Daemon {
    let stop = daemon.ask(r#"{"type":"daemon.stop","restart":true}"#);
    assert_eq!(stop[0]["ok"], true, "{stop:?}");
    let (place, status) = daemon.left();
    assert!(status.success(), "{status}");
    place.start()
}

/// A command of `agentctl` that runs beside the test.
fn beside(place: &Place, args: &[&str]) -> Reaped {
    let mut command: Command = place.command(AGENTCTL);
    command.args(args).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Reaped(command.spawn().unwrap())
}

fn waited(mut child: Reaped) -> (Option<i32>, String, String) {
    let read = |stream: Option<Box<dyn std::io::Read>>| {
        let mut text = String::new();
        stream.unwrap().read_to_string(&mut text).unwrap();
        text
    };
    let status = wait_for("the command ends", || child.0.try_wait().unwrap());
    let out = child.0.stdout.take().map(|out| Box::new(out) as _);
    let err = child.0.stderr.take().map(|err| Box::new(err) as _);
    (status.code(), read(out), read(err))
}

/// Three senders in a loop, and a planned restart whenever some more have gone through.
fn senders(sends: usize, restarts: usize) -> (Vec<Finished>, Place) {
    let daemon = ledger_place().start();
    let dir = daemon.place.dir.path().to_owned();
    let (next, done, over) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicBool::new(false),
    );
    let (answers, daemon) = std::thread::scope(|scope| {
        let mut daemon = daemon;
        let sender = |_| {
            let (next, done, over) = (&next, &done, &over);
            let commands = Place::command;
            let place = &daemon.place;
            let base = commands(place, AGENTCTL);
            let environment: Vec<_> = base
                .get_envs()
                .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
                .collect();
            let home = dir.join("home");
            scope.spawn(move || {
                let mut answers = Vec::new();
                while next.fetch_add(1, Ordering::SeqCst) < sends {
                    let mut command = Command::new(AGENTCTL);
                    command.env_clear().envs(environment.iter().cloned());
                    command.current_dir(&home);
                    command.args(["send", "chaos: ledger; say one; sleep-ms 5; say two"]);
                    answers.push(finish(command, b""));
                    done.fetch_add(1, Ordering::SeqCst);
                }
                over.store(true, Ordering::SeqCst);
                answers
            })
        };
        let asking: Vec<_> = (0..3).map(sender).collect();
        for restart in 1..=restarts {
            let until = sends * restart / (restarts + 1);
            wait_for("more have been sent", || {
                let enough = done.load(Ordering::SeqCst) >= until;
                (enough || over.load(Ordering::SeqCst)).then_some(())
            });
            daemon = restarted(daemon);
        }
        let answers = asking.into_iter().flat_map(|one| one.join().unwrap());
        (answers.collect(), daemon)
    });
    let place = daemon.kill();
    (answers, place)
}

fn held(sends: usize, restarts: usize) {
    let (answers, place) = senders(sends, restarts);
    let of = |code: i32| answers.iter().filter(|one| one.code == Some(code)).count();
    let odd: Vec<_> = answers.iter().filter(|one| one.code != Some(0)).collect();
    assert_eq!(
        (of(75), odd.len(), answers.len()),
        (0, 0, sends),
        "{:#?}",
        odd.iter().take(3).collect::<Vec<_>>()
    );
    for answer in &answers {
        assert_eq!(answer.stdout, "onetwo\n", "{answer:?}");
    }
    assert_eq!(runs(&place), sends, "each ran once");
}

#[test]
fn reconnect_no_send_is_lost_over_planned_restarts() {
    let sends = repeats("AGENTD_TEST_SENDS", 300);
    held(sends, sends / 25);
}

/// A turn that runs until the test says so, seen running.
fn running(place: &Place, args: &[&str]) -> Reaped {
    let gate = place.path("gate");
    let text = format!(
        "chaos: ledger; say one; wait-file {}; say two",
        gate.display()
    );
    let mut all = args.to_vec();
    all.push(&text);
    let child = beside(place, &all);
    wait_for("the turn has begun", || (runs(place) == 1).then_some(()));
    child
}

fn kinds(out: &str) -> Vec<(Value, Value)> {
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        (line["type"].clone(), line["text"].clone())
    };
    out.lines().map(line).collect()
}

#[test]
fn reconnect_tells_a_queued_turn_by_another_daemon() {
    let daemon = ledger_place().start();
    daemon.ask(r#"{"type":"drain","deadline":0}"#);
    let sent = beside(
        &daemon.place,
        &["send", "--json", "chaos: ledger; say done"],
    );
    let jobs = beside(
        &daemon.place,
        &["dispatch", "--collect", "chaos: ledger; say a"],
    );
    daemon.until("both are accepted", |status| {
        (status["rpc"]["queued"] == 2).then_some(())
    });
    let daemon = restarted(daemon);
    let (code, out, err) = waited(sent);
    assert_eq!(code, Some(0), "{out}{err}");
    let kinds = kinds(&out);
    let of = |kind: &str| kinds.iter().filter(|line| line.0 == kind).count();
    assert_eq!((of("accepted"), of("message_end")), (1, 1), "{out}");
    let (code, out, err) = waited(jobs);
    assert_eq!((code, out.contains("a\n")), (Some(0), true), "{out}{err}");
    assert_eq!(runs(&daemon.place), 2);
}

/// What was told of a turn amid which the daemon was killed, and the daemon that came next.
fn killed_amid(args: &[&str]) -> (Daemon, (Option<i32>, String, String)) {
    let daemon = ledger_place().start();
    let sent = running(&daemon.place, args);
    let place = daemon.kill();
    std::fs::write(place.path("gate"), "").unwrap();
    let daemon = place.start();
    let told = waited(sent);
    (daemon, told)
}

/// `kill -9` in the middle of a turn that may run again: no numbered line comes twice.
#[test]
fn reconnect_after_a_kill_the_turn_goes_on() {
    let (daemon, (code, out, err)) = killed_amid(&["send", "--json", "--retry", "auto"]);
    assert_eq!(code, Some(0), "{out}{err}");
    let told = kinds(&out);
    let ends = told.iter().filter(|line| line.0 == "message_end");
    assert_eq!(ends.map(|line| &line.1).collect::<Vec<_>>(), ["onetwo"]);
    let accepted = told.iter().filter(|line| line.0 == "accepted");
    assert_eq!(accepted.count(), 1, "{out}");
    let seqs: Vec<u64> = out
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64())
        .collect();
    assert!(seqs.is_sorted_by(|one, next| one < next), "{out}");
    assert_eq!(runs(&daemon.place), 2, "two attempts of one job");
}

/// What went into a pipe can't be taken back.
#[test]
fn reconnect_prints_the_attempt_that_counts_once() {
    let (daemon, (code, out, err)) = killed_amid(&["send", "--retry", "auto"]);
    assert_eq!((code, &*out), (Some(0), "onetwo\n"), "{err}");
    assert!(err.contains("begins anew"), "{err}");
    assert_eq!(runs(&daemon.place), 2, "two attempts of one job");
}

#[test]
fn reconnect_names_what_a_kill_interrupted() {
    let (daemon, (code, out, err)) = killed_amid(&["send"]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(
        err.contains("error: agentd died while the turn ran"),
        "{err}"
    );
    let hint = "hint: it is j1: `agentctl retry j1` sends it again, `agentctl history --job j1 --full` \
                shows what it did\n";
    assert!(err.contains(hint), "{err}");
    let shown = daemon.agentctl(&["history", "--job", "j1", "--full"]);
    assert!(shown.stdout.contains("one"), "{shown:?}");
    let again = daemon.agentctl(&["retry", "j1"]);
    assert_eq!(
        (again.code, &*again.stdout),
        (Some(0), "onetwo\n"),
        "{again:?}"
    );
    assert_eq!(runs(&daemon.place), 2);
}

/// A restart that doesn't wait for it.
#[test]
fn reconnect_after_restart_now_the_turn_goes_on() {
    let daemon = ledger_place().start();
    let sent = running(&daemon.place, &["send", "--json", "--retry", "auto"]);
    let stop = daemon.ask(r#"{"type":"daemon.stop","deadline":0,"restart":true}"#);
    assert_eq!(stop[0]["ok"], true, "{stop:?}");
    let (place, status) = daemon.left();
    assert!(status.success(), "{status}");
    std::fs::write(place.path("gate"), "").unwrap();
    let daemon = place.start();
    let (code, out, err) = waited(sent);
    assert_eq!(code, Some(0), "{out}{err}");
    let told = kinds(&out);
    let ends = told.iter().filter(|line| line.0 == "message_end");
    assert_eq!(ends.map(|line| &line.1).collect::<Vec<_>>(), ["onetwo"]);
    assert_eq!(runs(&daemon.place), 2, "two attempts of one job");
}

#[test]
fn reconnect_gives_up_when_nobody_comes() {
    let daemon = ledger_place().start();
    let key = ["send", "--idempotency-key", "mine"];
    let sent = running(&daemon.place, &key);
    let begun = Instant::now();
    let place = daemon.kill();
    let (code, out, err) = waited(sent);
    assert_eq!(code, Some(75), "{out}{err}");
    assert!(err.contains("its outcome is unknown"), "{err}");
    assert!(err.contains("--idempotency-key mine"), "{err}");
    let hint = "hint: it is j1: `agentctl jobs j1` says what is known of it, `agentctl retry j1` \
                sends it again if it was interrupted";
    assert!(err.contains(hint), "{err}");
    // It waited for a next one: at least the patience with a silent daemon.
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert_eq!(runs(&place), 1, "no one-shot ran what had left");
    // Both commands are true, without a daemon, too.
    let known = place.agentctl(&["jobs", "j1"]);
    assert!(known.stdout.starts_with("j1 "), "{known:?}");
    std::fs::write(place.path("gate"), "").unwrap();
    let again = place.agentctl(&["retry", "j1"]);
    assert_eq!(again.stdout, "onetwo\n", "{again:?}");
    let daemon = place.start();
    let attached = daemon.agentctl(&["attach", "j1"]);
    assert!(attached.stderr.contains("agentd died"), "{attached:?}");
}

#[test]
fn reconnect_gives_up_on_a_turn_that_waits() {
    let daemon = ledger_place().start();
    daemon.ask(r#"{"type":"drain","deadline":0}"#);
    let sent = beside(&daemon.place, &["send", "chaos: ledger; say done"]);
    daemon.until("it is accepted", |status| {
        (status["rpc"]["queued"] == 1).then_some(())
    });
    let place = daemon.kill();
    let (code, out, err) = waited(sent);
    assert_eq!(code, Some(75), "{out}{err}");
    let hint = "`agentctl attach j1` goes on with it once a daemon runs";
    assert!(err.contains(hint), "{err}");
    let daemon = place.start();
    let attached = daemon.agentctl(&["attach", "j1"]);
    assert_eq!(attached.stdout, "done\n", "{attached:?}");
}

#[test]
fn reconnect_of_collect_that_fails_names_its_jobs() {
    let daemon = ledger_place().start();
    let args = [
        "dispatch",
        "chaos: ledger; wait-file /nowhere/at/all",
        "chaos: say b",
    ];
    let jobs = daemon.agentctl(&args);
    assert_eq!(jobs.stdout, "j1\nj2\n", "{jobs:?}");
    wait_for("one has begun", || (runs(&daemon.place) == 1).then_some(()));
    let (mut terminal, mut child) = at_terminal(&daemon.place, &["collect", "j1", "j2"]);
    terminal.until("1 of 2 done");
    let _place = daemon.kill();
    assert_eq!(ended(&mut child).0, Some(69));
    let seen = terminal.rest();
    let hint = "hint: `agentctl collect j1` asks for them again once a daemon runs";
    assert!(seen.contains(hint), "{seen}");
}

#[test]
fn reconnect_another_store_is_not_asked() {
    let daemon = ledger_place().start();
    let sent = running(&daemon.place, &["send"]);
    let place = daemon.kill();
    for file in std::fs::read_dir(place.path("state")).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("agentd.db") {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    let daemon = place.start();
    let (code, out, err) = waited(sent);
    assert_eq!(code, Some(75), "{out}{err}");
    std::fs::write(daemon.path("gate"), "").unwrap();
    assert_eq!(runs(&daemon.place), 1, "the new store knows nothing of it");
}
