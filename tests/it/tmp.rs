//! `/tmp`, where anybody can be first: nothing of ours has a name there besides the alias, and what is
//! named by whoever starts it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{AGENTCTL, AGENTD, Daemon, Place, finish, needs, skipped, wait_for};

/// Writes down which names the program and its children use.
fn traced(place: &Place, strace: &Path, to: &str, program: &str) -> Command {
    let mut command = place.command(strace);
    command
        // The program is this test's child, and not strace.
        .args(["-D", "-f", "-e", "trace=%file,bind,connect", "-o"])
        .arg(place.path(to))
        .arg(program);
    command
}

fn read(place: &Place, name: &str) -> String {
    fs::read_to_string(place.path(name)).unwrap_or_default()
}

#[test]
fn tmp_has_no_name_that_others_guess() {
    let Some(strace) = needs("strace") else {
        return;
    };
    let place = Place::new(&Daemon::config(""));
    let mut alone = traced(&place, &strace, "alone", AGENTCTL);
    alone.args(["send", "alone"]);
    let sent = finish(alone, b"");
    if read(&place, "alone").is_empty() {
        return skipped("to be let trace a process");
    }
    assert_eq!(sent.stdout, "alone\n", "{sent:?}");
    let command = traced(&place, &strace, "served", AGENTD);
    let daemon = place.start_as(command);
    for agent in ["timmy", "chaos"] {
        let sent = daemon.agentctl(&["send", "--agent", agent, "served"]);
        assert_eq!(sent.stdout, "served\n", "{sent:?}");
    }
    let pid = daemon.pid();
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    let (place, status) = daemon.left();
    assert!(status.success(), "{status}");
    let over = format!("{pid} +++ exited");
    wait_for("all of it is written down", || {
        let calls = read(&place, "served");
        let mut ends = calls.lines().filter(|line| line.contains("+++ exited"));
        ends.any(|line| {
            line.split_whitespace()
                .eq(over.split(' ').chain(["with", "0", "+++"]))
        })
        .then_some(())
    });
    let below = |dir: &Path| format!("\"{}", dir.display());
    let ours = below(place.dir.path());
    // The programs may have been built there.
    let built = below(Path::new(env!("CARGO_MANIFEST_DIR")));
    for name in ["alone", "served"] {
        let calls = read(&place, name);
        let store = format!("{ours}/state/agentd.db\"");
        assert!(calls.contains(&store), "{name}: {calls}");
        let guessed = |call: &&str| {
            call.contains("\"/tmp/") && ![&ours, &built].iter().any(|dir| call.contains(*dir))
        };
        let guessed: Vec<&str> = calls.lines().filter(guessed).collect();
        assert!(guessed.is_empty(), "{name}: {guessed:#?}");
    }
}
