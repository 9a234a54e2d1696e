//! Two processes on one store: a daemon and runs without it.
//!
//! What one holds the other leaves alone; what one leaves the other takes over.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{AGENTD, Client, Daemon, Place, Reaped, chaos_worker, wait_for};

/// A run without a daemon on the same directories, whose turn waits for a file.
struct Beside {
    child: Reaped,
    gate: std::path::PathBuf,
    job: String,
}

impl Beside {
    fn start(place: &Place, session: &str) -> Self {
        let gate = place.path(&format!("gate-{session}"));
        let mut command: Command = place.command(AGENTD);
        command
            .arg("--stdio")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child: Child = command.spawn().unwrap();
        let line = format!(
            "{{\"type\":\"send\",\"agent\":\"chaos\",\"session\":\"{session}\",\"prompt\":\"chaos:wait-file {};say done\"}}\n",
            gate.display()
        );
        child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
        let mut accepted = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut accepted).unwrap();
        let accepted: Value = serde_json::from_str(&accepted).unwrap();
        assert_eq!(accepted["type"], "accepted", "{accepted}");
        child.stdout = Some(out.into_inner());
        let job = accepted["job"].as_str().unwrap().to_owned();
        Self {
            child: Reaped(child),
            gate,
            job,
        }
    }

    /// Ends the run as a crash would; what it started stays.
    fn crash(mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }

    /// Lets the turn go on and waits until the run has left.
    fn finish(mut self) {
        std::fs::write(&self.gate, "").unwrap();
        drop(self.child.0.stdin.take());
        let status = wait_for("the run beside the daemon leaves", || {
            self.child.0.try_wait().unwrap()
        });
        assert!(status.success(), "{status}");
    }
}

fn last(daemon: &Daemon, line: &str) -> Value {
    daemon.ask(line).pop().unwrap()
}

#[test]
fn session_held_elsewhere_gets_no_process_here() {
    let daemon = Daemon::start();
    let beside = Beside::start(&daemon.place, "main");
    let refused = last(
        &daemon,
        r#"{"agent":"chaos","prompt":"second","session":"main"}"#,
    );
    assert_eq!(refused["code"], "session-busy", "{refused:#}");
    let workers = daemon.status()["workers"].clone();
    let held = workers
        .as_array()
        .unwrap()
        .iter()
        .any(|worker| worker["session"] == "main");
    assert!(!held, "{workers:#}");
    beside.finish();
    let third = last(
        &daemon,
        r#"{"agent":"chaos","prompt":"third","session":"main"}"#,
    );
    assert_eq!(
        third["context"], "lost",
        "the first turn was another process's: {third:#}"
    );
}

#[test]
fn collect_hears_of_jobs_that_another_process_runs() {
    let daemon = Daemon::start();
    let beside = Beside::start(&daemon.place, "main");
    let mut client = daemon.connect();
    client.send(&format!(
        r#"{{"type":"collect","jobs":["{}"]}}"#,
        beside.job
    ));
    beside.finish();
    let collected = client.next().unwrap();
    assert_eq!(collected["results"][0]["text"], "done", "{collected:#}");
}

#[test]
fn queued_job_waits_for_its_sessions_other_holder() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    client.send(r#"{"type":"hello"}"#);
    client.until("hello");
    client.send(r#"{"type":"drain","id":1}"#);
    client.until("drain");
    client.send(r#"{"type":"send","id":2,"agent":"chaos","prompt":"queued","session":"main"}"#);
    let accepted = client.until("accepted").pop().unwrap();
    let job = accepted["job"].as_str().unwrap().to_owned();
    let place = daemon.kill();
    let beside = Beside::start(&place, "main");
    let daemon = place.start();
    let mut client = daemon.connect();
    client.send(&format!(r#"{{"type":"collect","jobs":["{job}"]}}"#));
    beside.finish();
    let collected = client.next().unwrap();
    assert_eq!(collected["results"][0]["text"], "queued", "{collected:#}");
}

#[test]
fn recovery_of_many_dead_instances_is_bounded() {
    // A look at all processes for each pair of them took 23 s for as many.
    const DEAD: u32 = 60;
    let place = Place::new(&Daemon::config(""));
    for number in 0..DEAD {
        let beside = Beside::start(&place, &format!("of-{number}"));
        let store = rusqlite::Connection::open(place.path("state/agentd.db")).unwrap();
        // One that was not begun would go on in the next daemon.
        wait_for("its turn runs", || {
            let running = "SELECT count(*) FROM jobs WHERE state = 'running'";
            let running: u32 = store.query_row(running, [], |row| row.get(0)).unwrap();
            (running == number + 1).then_some(())
        });
        beside.crash();
    }
    let instances = place.path("state/instances");
    let files = || std::fs::read_dir(&instances).unwrap().count();
    assert_eq!(files(), DEAD as usize);
    let began = Instant::now();
    let daemon = place.start();
    let answer = last(&daemon, r#"{"agent":"chaos","prompt":"first"}"#);
    assert_eq!(answer["text"], "first", "{answer:#}");
    assert!(began.elapsed() < Duration::from_secs(10), "it waited");
    wait_for("only the daemon's own file is left", || {
        (files() == 1).then_some(())
    });
    assert!(began.elapsed() < Duration::from_secs(20), "it took long");
}

#[test]
fn restart_helps_an_agents_crash_looped_sessions_too() {
    let daemon = Daemon::start();
    for _ in 0..3 {
        let _died = last(
            &daemon,
            r#"{"agent":"chaos","prompt":"chaos:exit 9","session":"main"}"#,
        );
    }
    let refused = last(
        &daemon,
        r#"{"agent":"chaos","prompt":"hi","session":"main"}"#,
    );
    assert_eq!(refused["code"], "crash-looped", "{refused:#}");
    let restarted = daemon.agentctl(&["restart", "chaos"]);
    assert_eq!(restarted.code, Some(0), "{restarted:?}");
    let answer = last(
        &daemon,
        r#"{"agent":"chaos","prompt":"hi","session":"main"}"#,
    );
    assert_eq!(answer["text"], "hi", "{answer:#}");
}

#[test]
fn command_that_never_stops_talking_meets_the_limit() {
    let daemon = Daemon::with("[agents.endless]\nkind = \"exec\"\ncommand = [\"yes\"]\n");
    let answer = last(&daemon, r#"{"agent":"endless","prompt":"x"}"#);
    assert_eq!(
        answer["code"],
        "output-limit",
        "{:.300}",
        answer.to_string()
    );
}

#[test]
fn default_agent_that_is_none_names_the_nearest() {
    let place = Place::new(&format!(
        "default_agent = \"chaso\"\n[agents.chaos]\nkind = \"jsonl\"\ncommand = [{:?}]\n",
        chaos_worker()
    ));
    let finished = crate::support::finish(place.command(AGENTD), b"");
    assert_eq!(finished.code, Some(78), "{finished:?}");
    assert!(
        finished.stderr.contains("did you mean `chaos`"),
        "{finished:?}"
    );
}

#[test]
fn agents_are_listed_without_a_daemon_too() {
    let place = Place::new("");
    let listed = place.agentctl(&["agents"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.stdout.contains("timmy"), "{listed:?}");
    assert!(
        Client::try_connect(&place.socket()).is_none(),
        "no daemon was left behind"
    );
}
