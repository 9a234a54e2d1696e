//! `agentctl bench`: what it runs, and what it says.

use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::mock_model::MockModel;
use crate::signals_client::ignore_nothing;
use crate::support::{AGENTCTL, Daemon, kill, wait_for};
use crate::timmy;

const SLOW: &str =
    "[agents.slow]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"cat; echo x >> $HOME/ran\"]\n";

#[test]
fn bench_times_each_kind_of_turn() {
    let daemon = Daemon::with(SLOW);
    let done = daemon.agentctl(&["bench", "slow", "--turns", "3", "--yes", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let told: Value = serde_json::from_str(&done.stdout).unwrap();
    for kind in ["own", "first", "second"] {
        let times = told[kind].as_array().unwrap();
        assert_eq!(times.len(), 3, "{told}");
        assert!(
            times.iter().all(|time| time.as_f64().unwrap() > 0.0),
            "{told}"
        );
    }
    // Three of each, and one before them.
    let ran = std::fs::read_to_string(daemon.path("home/ran")).unwrap();
    assert_eq!(ran.lines().count(), 10);
    let shown = daemon.agentctl(&["bench", "slow", "--turns", "1", "--yes"]);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    // And a sentence, where its command takes no time.
    assert!(matches!(lines.len(), 4 | 5), "{shown:?}");
    assert!(!shown.stdout.contains('%'), "{shown:?}");
    assert!(
        shown.stdout.contains("its own one-shot command"),
        "{shown:?}"
    );
    let sessions = daemon.agentctl(&["sessions"]);
    assert!(!sessions.stdout.contains("bench-"), "{sessions:?}");
}

#[test]
fn bench_of_timmy_times_its_own_command() {
    let model = MockModel::start();
    let daemon = timmy::daemon(&model, "");
    let run = |more: &[&str]| {
        let bench = ["bench", "timmy", "--turns", "1", "--yes", "--json"];
        let done = daemon.agentctl(&[&bench, more].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        (
            serde_json::from_str::<Value>(&done.stdout).unwrap(),
            done.stderr,
        )
    };
    let (told, _) = run(&[]);
    assert!(told["own"][0].as_f64().is_some(), "{told}");
    // Without a key both can be compared, too: what is left is what they take themselves.
    let (pinned, noted) = run(&["--provider", "echo"]);
    for kind in ["own", "first", "second"] {
        assert!(pinned[kind][0].as_f64().is_some(), "{pinned}");
    }
    assert!(noted.contains("`echo` asks no model"), "{noted}");
    // It costs nothing, so nobody is asked.
    let free = daemon.agentctl(&["bench", "timmy", "--turns", "1", "--provider", "echo"]);
    assert_eq!(free.code, Some(0), "{free:?}");
    assert!(free.stdout.contains("its own one-shot command"), "{free:?}");
    // The pin goes with the turns, too: this provider isn't there.
    let refused = [
        "bench",
        "timmy",
        "--turns",
        "1",
        "--yes",
        "--provider",
        "nope",
    ];
    let refused = daemon.agentctl(&refused);
    assert!(refused.stderr.contains("nope"), "{refused:?}");
    for list in [
        &["jobs"][..],
        &["sessions"],
        &["sessions", "--closed"],
        &["usage", "--by", "session"],
    ] {
        let shown = daemon.agentctl(list);
        assert!(!shown.stdout.contains("bench-"), "{shown:?}");
    }
    let jobs = daemon.agentctl(&["jobs", "--json"]);
    let jobs: Value = serde_json::from_str(jobs.stdout.lines().next().unwrap()).unwrap();
    let session = jobs["jobs"][0]["session"].as_str().unwrap();
    let named = daemon.agentctl(&["jobs", "--session", session]);
    assert!(named.stdout.contains("bench-"), "{named:?}");
}

#[test]
fn bench_runs_nothing_that_nobody_allowed() {
    let daemon = Daemon::with(SLOW);
    let refused = daemon.agentctl(&["bench", "slow"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("16 real turns"), "{refused:?}");
    assert!(refused.stderr.contains("--yes"), "{refused:?}");
    assert!(!daemon.path("home/ran").exists());
    let unknown = daemon.agentctl(&["bench", "nobody", "--yes"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
}

#[test]
fn bench_tells_why_its_own_command_failed() {
    let daemon = Daemon::with(
        "[agents.odd]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"test -n \\\"$AGENTD_JOB\\\" || { echo no agentd >&2; exit 3; }\"]\n",
    );
    let failed = daemon.agentctl(&["bench", "odd", "--yes", "--turns", "1"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("no agentd"), "{failed:?}");
}

#[test]
fn bench_without_a_command_shows_only_ours() {
    let daemon = Daemon::start();
    let shown = daemon.agentctl(&["bench", "chaos", "--yes", "--turns", "1"]);
    assert_eq!(shown.stdout.lines().count(), 3, "{shown:?}");
}

#[test]
fn bench_that_is_stopped_leaves_nothing_behind() {
    // Where this was started by `nohup`, a hangup would end no bench either.
    ignore_nothing();
    let daemon = Daemon::with("[agents.stuck]\nkind = \"exec\"\ncommand = [\"sleep\", \"60\"]\n");
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut command = daemon.place.command(AGENTCTL);
        command.args(["bench", "stuck", "--yes", "--turns", "1"]);
        let mut bench = command.stderr(Stdio::null()).spawn().unwrap();
        let running = || {
            let jobs = daemon.agentctl(&["jobs", "--state", "running"]);
            jobs.stdout.contains("bench-").then_some(())
        };
        wait_for("its turn runs", running);
        kill(bench.id(), signal);
        let code = wait_for("it ends", || bench.try_wait().unwrap()).code();
        assert_eq!(code, Some(130), "{signal}");
        assert!(running().is_none(), "{signal}");
        let sessions = daemon.agentctl(&["sessions"]);
        assert!(!sessions.stdout.contains("bench-"), "{sessions:?}");
    }
}

#[test]
fn bench_closes_what_a_killed_one_left() {
    let config = "[agents.gated]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \
        \"cat; while [ ! -e $HOME/go ]; do sleep 0.02; done\"]\n";
    let daemon = Daemon::with(config);
    let mut command = daemon.place.command(AGENTCTL);
    command.args(["bench", "gated", "--yes", "--turns", "1"]);
    let mut bench = command.stderr(Stdio::null()).spawn().unwrap();
    let runs = || {
        let jobs = daemon.agentctl(&["jobs", "--state", "running"]);
        jobs.stdout.contains("bench-").then_some(())
    };
    wait_for("its turn runs", runs);
    kill(bench.id(), Signal::SIGKILL);
    bench.wait().unwrap();
    std::fs::write(daemon.path("home/go"), "").unwrap();
    wait_for("its turn has ended", || runs().is_none().then_some(()));
    let live = format!("bench-{:08x}{:024x}-1", std::process::id(), 7);
    let sent = daemon.agentctl(&["send", "-s", &live, "hi"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let next = daemon.agentctl(&["bench", "gated", "--yes", "--turns", "1"]);
    assert_eq!(next.code, Some(0), "{next:?}");
    let rows = daemon.ask(r#"{"type":"session.list"}"#).remove(0);
    let rows = rows["sessions"].as_array().unwrap().clone();
    let left: Vec<&Value> = rows.iter().map(|row| &row["session"]).collect();
    assert_eq!(left, [&live]);
}

#[test]
fn bench_is_nothing_to_go_on_with() {
    let daemon = Daemon::start();
    let bench = format!("bench-{:032x}-1", 7);
    for session in ["main", &bench] {
        let sent = daemon.agentctl(&["send", "-s", session, "hi"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    let sent = daemon.agentctl(&["send", "-c", "more", "--json"]);
    assert!(sent.stdout.contains("\"session\":\"main\""), "{sent:?}");
}

/// What isn't shown doesn't count among as many as were asked for.
#[test]
fn bench_hides_no_job_from_lists() {
    let daemon = Daemon::start();
    let bench = format!("bench-{:032x}-1", 7);
    for session in ["main", &bench, &bench, &bench] {
        let sent = daemon.agentctl(&["send", "-s", session, "hi"]);
        assert_eq!(sent.code, Some(0), "{sent:?}");
    }
    let listed = daemon.agentctl(&["jobs", "-n", "1"]);
    assert!(listed.stdout.contains("j1 "), "{listed:?}");
    let listed = daemon.agentctl(&["jobs", "-n", "2"]);
    assert!(!listed.stdout.contains("j2 "), "{listed:?}");
    let last = daemon.agentctl(&["history", "--last"]);
    assert!(last.stdout.starts_with("j1 "), "{last:?}");
    let found = daemon.agentctl(&["sessions", "search", "hi", "-n", "1"]);
    assert!(found.stdout.contains("j1 "), "{found:?}");
    assert!(!found.stdout.contains("bench-"), "{found:?}");
    let named = daemon.agentctl(&["sessions", "search", "hi", "--session", &bench]);
    assert!(named.stdout.contains("j4 "), "{named:?}");
}
