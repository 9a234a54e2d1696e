//! The daemon dies at any moment: what was accepted has one end, and nothing runs twice.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::supervision::{chaos, chaos_in, with_marks, workers_of};
use crate::support::{AGENTCTL, AGENTD, DEADLINE, Daemon, Place, Reaped, finish, poll, wait_for};

fn send(session: &str, text: &str) -> String {
    json!({"type": "send", "agent": "chaos", "session": session, "text": text}).to_string()
}

fn collect(daemon: &Daemon, jobs: &[&Value]) -> Value {
    daemon
        .ask(&json!({"type": "collect", "jobs": jobs, "timeout": 15}).to_string())
        .remove(0)
}

#[test]
fn crash_interrupts_the_running_job_and_holds_others() {
    let daemon = with_marks("").start();
    let mut running = daemon.connect();
    // More text than is kept back, and a numbered event: when that is told, both are stored.
    running.send(&send(
        "s",
        "chaos:ledger;emit 2000;tool ro;wait-file /nowhere",
    ));
    let first = running.until("tool_start").remove(0)["job"].clone();
    let behind = daemon
        .connect()
        .request(&send("s", "chaos:ledger;say behind"))["job"]
        .clone();
    let daemon = daemon.kill().start();

    let collected = collect(&daemon, &[&first]);
    let result = &collected["results"][0];
    assert_eq!(result["code"], "interrupted", "{collected:#}");
    let text = result["text"].as_str().unwrap();
    assert!(text.starts_with("d0 d1 d2 "), "{text}");
    let looked = daemon
        .ask(&json!({"type": "collect", "jobs": [behind], "timeout": 0}).to_string())
        .remove(0);
    assert_eq!(looked["pending"], json!([behind]), "{looked:#}");
    // Other sessions run, and so does a new send in this one, ahead of what is held.
    assert_eq!(
        chaos_in(&daemon, "chaos:say other", Some("t"))["text"],
        "other"
    );
    assert_eq!(chaos_in(&daemon, "chaos:say new", Some("s"))["text"], "new");
    let aborted = daemon
        .ask(&json!({"type": "abort", "job": behind}).to_string())
        .remove(0);
    assert_eq!(aborted["jobs"], json!([behind]), "{aborted:#}");

    let daemon = daemon.kill().start();
    assert_eq!(
        collect(&daemon, &[&behind])["results"][0]["stop"],
        "cancelled"
    );
    let again = collect(&daemon, &[&first]);
    assert_eq!(
        again["results"][0]["seq"], result["seq"],
        "its end is the same one"
    );
    let ledger = std::fs::read_to_string(daemon.path("ledger")).unwrap();
    assert_eq!(ledger.lines().count(), 1, "{ledger}");
}

/// The time is the promise's own, and as much again and more for a busy machine.
#[test]
fn crash_keeps_text_that_was_told() {
    let daemon = with_marks("").start();
    let mut running = daemon.connect();
    running.send(&send("s", "chaos:say kept;wait-file /nowhere"));
    let job = running.until("message_delta")[0]["job"].clone();
    std::thread::park_timeout(std::time::Duration::from_millis(800));
    let daemon = daemon.kill().start();
    let result = collect(&daemon, &[&job])["results"][0].clone();
    assert_eq!(
        (&result["code"], &result["text"]),
        (&"interrupted".into(), &"kept".into())
    );
}

#[test]
fn crash_lets_a_queued_job_go_on_alone() {
    let daemon = with_marks("").start();
    assert_eq!(
        daemon.ask(r#"{"type":"drain","deadline":5}"#)[0]["ok"],
        true
    );
    let job = daemon
        .connect()
        .request(&send("s", "chaos:ledger;say later"))["job"]
        .clone();
    let daemon = daemon.kill().start();
    assert_eq!(collect(&daemon, &[&job])["results"][0]["text"], "later");
}

#[test]
fn dead_instances_are_ended_together_however_many() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    for ask in [r#"{"type":"hello"}"#, r#"{"type":"drain"}"#] {
        client.send(ask);
        client.next();
    }
    client.send(&send("s", "chaos:say late"));
    let job = client.until("accepted").remove(0)["job"].clone();
    let place = daemon.kill();
    // As many crashes leave, if each comes before what the last one left is ended.
    for number in 0..300 {
        let file = place.path(&format!("state/instances/{number}-1-0000000000000000"));
        std::fs::write(file, format!("{number}\n")).unwrap();
    }
    let daemon = place.start();
    let collected = collect(&daemon, &[&job]);
    assert_eq!(collected["results"][0]["text"], "late", "{collected:#}");
}

#[test]
fn crash_loses_no_job_after_a_one_shot() {
    let daemon = with_marks("").start();
    assert_eq!(
        daemon.ask(r#"{"type":"drain","deadline":5}"#)[0]["ok"],
        true
    );
    let job = daemon
        .connect()
        .request(&send("s", "chaos:ledger;say later"))["job"]
        .clone();
    let place = daemon.kill();
    // The first one may find the session in the hands of the dead daemon, and says so.
    wait_for("a one-shot is served in the session", || {
        let sent = place.agentctl(&[
            "send",
            "--agent",
            "chaos",
            "--session",
            "s",
            "chaos:say between",
        ]);
        assert!(matches!(sent.code, Some(0 | 3)), "{sent:?}");
        (sent.code == Some(0)).then_some(())
    });
    let daemon = place.start();
    assert_eq!(collect(&daemon, &[&job])["results"][0]["text"], "later");
}

/// What the senders of the kill loop saw.
#[derive(Default)]
struct Seen {
    accepted: BTreeSet<String>,
    finals: BTreeMap<String, Vec<Value>>,
}

/// How often each job of the ledger ran.
fn runs_of(ledger: &str) -> BTreeMap<&str, usize> {
    let mut runs = BTreeMap::new();
    for line in ledger.lines() {
        *runs.entry(line.split(' ').next().unwrap()).or_default() += 1;
    }
    runs
}

/// Waits for the end of each job; the answers are about 50 jobs each.
fn all_ended(daemon: &Daemon, jobs: &[&String]) -> Vec<Value> {
    let ask = |jobs: &[&String]| {
        let ask = json!({"type": "collect", "jobs": jobs, "timeout": 15});
        let collected = daemon.ask(&ask.to_string()).remove(0);
        assert_eq!(collected["pending"], json!([]), "{collected:#}");
        collected
    };
    jobs.chunks(50).map(ask).collect()
}

/// Sends one turn after the other, and writes down what it is told. A connection that breaks is
/// the point of it.
fn sender(socket: &Path, name: usize, seen: &Mutex<Seen>, stop: &AtomicBool) {
    let mut n = 0;
    while !stop.load(Ordering::SeqCst) {
        n += 1;
        let Ok(mut stream) = UnixStream::connect(socket) else {
            std::thread::park_timeout(std::time::Duration::from_millis(2));
            continue;
        };
        // Half of them share sessions; the others have one for each turn.
        let session = if name.is_multiple_of(2) {
            format!("s{}", name % 4)
        } else {
            format!("own-{name}-{n}")
        };
        // Long enough that some run whenever the daemon is killed.
        let line = send(&session, &format!("chaos:ledger;sleep-ms 5;say {name}-{n}"));
        if writeln!(stream, "{line}").is_err() {
            continue;
        }
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { break };
            let Ok(line) = serde_json::from_str::<Value>(&line) else {
                break;
            };
            let Some(job) = line["job"].as_str().map(str::to_owned) else {
                continue;
            };
            let mut seen = seen.lock().unwrap();
            match line["type"].as_str() {
                Some("accepted") => drop(seen.accepted.insert(job)),
                Some("message_end" | "error") => {
                    seen.finals.entry(job).or_default().push(line);
                    break;
                }
                _ => {}
            }
        }
    }
}

/// A few accepted sends after the last kill, a different number each time, and now and then some
/// that are done.
fn wait_for_work(daemon: &Daemon, seen: &Mutex<Seen>, round: usize) {
    let count = || {
        let seen = seen.lock().unwrap();
        (seen.accepted.len(), seen.finals.len())
    };
    let (accepted, ended) = count();
    let there_is = poll(DEADLINE, || {
        let (now_accepted, now_ended) = count();
        let done = round.is_multiple_of(2) || now_ended > ended + 2;
        (done && now_accepted > accepted + round % 5).then_some(())
    });
    assert!(
        there_is.is_some(),
        "{accepted} accepted and {ended} done in round {round}, then {:?}: {:#} {}",
        count(),
        daemon.status(),
        daemon.log()
    );
}

#[test]
fn crashes_leave_each_job_one_end_and_run() {
    const KILLS: usize = 30;
    const SENDERS: usize = 6;
    let mut daemon = with_marks("").start();
    let socket: PathBuf = daemon.place.socket();
    let seen = Arc::<Mutex<Seen>>::default();
    let stop = Arc::<AtomicBool>::default();
    let senders: Vec<_> = (0..SENDERS)
        .map(|name| {
            let (socket, seen, stop) = (socket.clone(), Arc::clone(&seen), Arc::clone(&stop));
            std::thread::spawn(move || sender(&socket, name, &seen, &stop))
        })
        .collect();
    for round in 0..KILLS {
        wait_for_work(&daemon, &seen, round);
        daemon = daemon.kill().start();
    }
    stop.store(true, Ordering::SeqCst);
    senders
        .into_iter()
        .for_each(|sender| sender.join().unwrap());
    // What waits behind an interrupted turn is held.
    for session in [0, 2] {
        daemon.ask(
            &json!({"type": "abort", "session": format!("s{session}"), "queued": true}).to_string(),
        );
    }

    let seen = seen.lock().unwrap();
    let accepted: Vec<&String> = seen.accepted.iter().collect();
    assert!(accepted.len() > KILLS, "{}", accepted.len());
    let ended = all_ended(&daemon, &accepted);
    // Only now nothing runs any more.
    let ledger = std::fs::read_to_string(daemon.path("ledger")).unwrap();
    let runs = runs_of(&ledger);
    let twice: Vec<_> = runs.iter().filter(|(_, runs)| **runs > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let (mut interrupted, mut done, mut held) = (0, 0, 0);
    for (jobs, collected) in accepted.chunks(50).zip(&ended) {
        let results = collected["results"].as_array().unwrap();
        assert_eq!(results.len(), jobs.len(), "{collected:#}");
        for result in results {
            let job = result["job"].as_str().unwrap();
            match (result["stop"].as_str(), result["code"].as_str()) {
                (Some("end_turn"), _) => {
                    assert!(runs.contains_key(job), "{job} ended without having run");
                    done += 1;
                }
                (Some("cancelled"), _) => held += 1,
                (_, code) => {
                    assert_eq!(code, Some("interrupted"), "{result:#}");
                    interrupted += 1;
                }
            }
            for told in seen.finals.get(job).into_iter().flatten() {
                assert_eq!(
                    (&told["seq"], &told["type"]),
                    (&result["seq"], &result["type"]),
                    "{job} had two ends"
                );
            }
        }
    }
    assert!(seen.finals.values().all(|finals| finals.len() == 1));
    let told = format!(
        "{} accepted, {done} done, {held} held, {interrupted} interrupted",
        accepted.len()
    );
    assert!(
        done > KILLS && interrupted > 0,
        "too little happened: {told}"
    );
    let place = daemon.kill();
    wait_for("their workers leave with them", || {
        workers_of(&place).is_empty().then_some(())
    });
}

#[test]
fn session_between_one_shots_is_busy_for_one() {
    let place = with_marks("");
    let gate = place.path("gate");
    let text = format!("chaos:ledger;say held;wait-file {}", gate.display());
    std::thread::scope(|scope| {
        let first =
            scope.spawn(|| place.agentctl(&["send", "--agent", "chaos", "--session", "s", &text]));
        wait_for("the first one runs", || {
            std::fs::read_to_string(place.path("ledger")).ok()
        });
        let second = place.agentctl(&[
            "send",
            "--agent",
            "chaos",
            "--session",
            "s",
            "--json",
            "chaos:ledger;say two",
        ]);
        assert_eq!(second.code, Some(3), "{second:?}");
        let refusal: Value = serde_json::from_str(second.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(refusal["code"], "session-busy", "{refusal:#}");
        let other = place.agentctl(&[
            "send",
            "--agent",
            "chaos",
            "--session",
            "t",
            "chaos:say other",
        ]);
        assert_eq!(
            (other.code, other.stdout.as_str()),
            (Some(0), "other\n"),
            "{other:?}"
        );
        std::fs::write(&gate, "").unwrap();
        let first = first.join().unwrap();
        assert_eq!(
            (first.code, first.stdout.as_str()),
            (Some(0), "held\n"),
            "{first:?}"
        );
    });
    let after = place.agentctl(&[
        "send",
        "--agent",
        "chaos",
        "--session",
        "s",
        "chaos:say three",
    ]);
    assert_eq!(
        (after.code, after.stdout.as_str()),
        (Some(0), "three\n"),
        "{after:?}"
    );
}

#[test]
fn draining_daemon_queues_a_send() {
    let daemon = Daemon::start();
    assert_eq!(daemon.agentctl(&["drain"]).code, Some(0));
    let mut client = daemon.connect();
    let accepted = client.request(&send("s", "chaos:say served"));
    assert_eq!(accepted["type"], "accepted");
    assert_eq!(daemon.agentctl(&["undrain"]).code, Some(0));
    let last = client.until("message_end").pop().unwrap();
    assert_eq!(
        (&last["text"], &last["served_by"]),
        (&json!("served"), &json!("daemon"))
    );
}

#[test]
fn stopping_daemon_keeps_only_its_busy_session() {
    let daemon = Daemon::start();
    let gate = daemon.path("gate");
    let mut running = daemon.connect();
    running.send(&send(
        "s",
        &format!("chaos:say last;wait-file {}", gate.display()),
    ));
    running.until("message_delta");
    assert_eq!(
        daemon.ask(r#"{"type":"daemon.stop","deadline":30}"#)[0]["ok"],
        true
    );
    let alone = daemon.agentctl(&["send", "--agent", "chaos", "chaos:say alone"]);
    assert_eq!(
        (alone.code, alone.stdout.as_str()),
        (Some(0), "alone\n"),
        "{alone:?}"
    );
    assert!(alone.stderr.contains("going on without it"), "{alone:?}");
    let busy = daemon.agentctl(&["send", "--agent", "chaos", "--session", "s", "hi"]);
    assert_eq!(busy.code, Some(3), "{busy:?}");
    std::fs::write(&gate, "").unwrap();
    let last = running.until("message_end").pop().unwrap();
    assert_eq!(last["text"], "last");
    assert_eq!(daemon.left().1.code(), Some(0));
}

#[test]
fn starting_daemon_is_waited_for_by_a_client() {
    // The lock is held and nobody listens: as in the first moments of a daemon.
    let daemon = Daemon::start();
    let pid = i32::try_from(daemon.pid()).unwrap();
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let socket = daemon.place.socket();
    let aside = daemon.path("aside.sock");
    std::fs::rename(&socket, &aside).unwrap();
    let answer = daemon.path("answer");
    let mut command = daemon.place.command(AGENTCTL);
    command.args(["send", "--no-fallback", "hi"]);
    command.stdout(std::fs::File::create(&answer).unwrap());
    let mut client = Reaped(command.spawn().unwrap());
    wait_for("the client has looked again and again", || {
        let gone = client.0.try_wait().unwrap();
        assert!(gone.is_none(), "it gave up: {gone:?}");
        let status = std::fs::read_to_string(format!("/proc/{}/status", client.0.id())).unwrap();
        let slept = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        (slept.unwrap().trim().parse::<u32>().unwrap() > 10).then_some(())
    });
    std::fs::rename(&aside, &socket).unwrap();
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    let status = wait_for("the client ends", || client.0.try_wait().unwrap());
    assert_eq!(
        (
            status.code(),
            std::fs::read_to_string(&answer).unwrap().as_str()
        ),
        (Some(0), "hi\n")
    );
}

fn start_and_fail(place: &Place) -> crate::support::Finished {
    finish(place.command(AGENTD), b"")
}

#[test]
fn store_of_a_newer_version_is_left_alone() {
    let daemon = Daemon::start();
    chaos(&daemon, "hi");
    let place = daemon.kill();
    let file = place.path("state/agentd.db");
    let database = rusqlite::Connection::open(&file).unwrap();
    database
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA user_version = 4000")
        .unwrap();
    drop(database);
    let before = std::fs::read(&file).unwrap();
    let refused = start_and_fail(&place);
    assert!(!matches!(refused.code, Some(0) | None), "{refused:?}");
    assert!(refused.stderr.contains("newer"), "{refused:?}");
    let sent = place.agentctl(&["send", "hi"]);
    assert!(
        !matches!(sent.code, Some(0) | None) && sent.stderr.contains("newer"),
        "{sent:?}"
    );
    assert!(
        std::fs::read(&file).unwrap() == before,
        "the file was written to"
    );
}

#[test]
fn second_daemon_on_a_state_leaves_with_3() {
    let daemon = Daemon::start();
    daemon.status();
    let second = start_and_fail(&daemon.place);
    assert_eq!(second.code, Some(3), "{second:?}");
    assert!(
        second.stderr.contains(&daemon.pid().to_string()),
        "{second:?}"
    );
    assert_eq!(daemon.status()["state"], "ready");
}
