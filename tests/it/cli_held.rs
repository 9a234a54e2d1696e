//! Jobs that wait until somebody does something, from the command line: held behind an interrupted turn,
//! or left by a daemon that was killed. Whoever asks is told what to do.

use std::process::Stdio;

use crate::support::{AGENTCTL, Daemon, Place, Reaped, lines, wait_for};

const AFTER: &[&str] = &[
    "send",
    "--agent",
    "chaos",
    "--session",
    "kept",
    "--idempotency-key",
    "after",
    "chaos:say after",
];

/// A command that goes on, with what it says on its standard error to be read.
fn begun(place: &Place, words: &[&str]) -> Reaped {
    let mut command = place.command(AGENTCTL);
    command.args(words).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    Reaped(command.spawn().unwrap())
}

/// A turn runs, another one waits behind it, and the daemon is killed.
fn killed() -> Place {
    let daemon = Daemon::start();
    let hang = [
        "send",
        "--agent",
        "chaos",
        "--session",
        "kept",
        "chaos:hang",
    ];
    let mut waiting = Vec::new();
    for (words, jobs) in [(&hang as &[&str], 1), (AFTER, 2)] {
        waiting.push(begun(&daemon.place, words));
        wait_for("it is accepted", || {
            let listed = daemon.agentctl(&["jobs", "--json"]).stdout;
            (listed.matches("\"job\":").count() == jobs).then_some(())
        });
    }
    drop(waiting);
    daemon.kill()
}

#[test]
fn key_of_a_left_job_names_the_start() {
    let place = killed();
    let again = place.agentctl(AFTER);
    assert_eq!(again.code, Some(3), "{again:?}");
    assert!(
        again
            .stderr
            .contains("j2 has the key and waits for a daemon"),
        "{again:?}"
    );
    assert!(again.stderr.contains("`agentctl start`"), "{again:?}");
}

#[test]
fn held_job_says_how_it_goes_on() {
    let daemon = killed().start();
    let how = "`agentctl sessions resume kept` runs it, `agentctl abort j2` ends it";
    for words in [&["attach", "j2"] as &[&str], AFTER] {
        let mut asked = begun(&daemon.place, words);
        let said = lines(asked.0.stderr.take().unwrap());
        wait_for("it says how", || {
            said.try_iter().any(|line| line.contains(how)).then_some(())
        });
    }
    let mut waits = begun(&daemon.place, &["attach", "j2"]);
    let resumed = daemon.agentctl(&["sessions", "resume", "kept"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let ended = wait_for("it runs", || waits.0.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}
