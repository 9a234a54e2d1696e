//! What a crash of a client leaves behind: no file with the prompts and tokens in its memory.
//!
//! Owns how cores are made likely. That the daemon and its workers leave none is theirs to show.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{
    AGENTCTL, AGENTD, DEADLINE, Daemon, Place, Reaped, TIMMY, lines, skipped, wait_for,
};

/// As of a shell whose user wants cores.
fn with_cores(place: &Place, words: &[&str]) -> Command {
    let mut sh = place.command("/bin/sh");
    sh.args(["-c", "ulimit -c unlimited && exec \"$@\"", "sh"]);
    sh.args(words).current_dir(place.path("cores"));
    sh
}

fn cores(place: &Place) -> Vec<String> {
    let all = std::fs::read_dir(place.path("cores")).unwrap();
    all.map(|one| one.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// A place where others leave cores; says so where they don't.
fn place() -> Option<Place> {
    let place = Place::new(&Daemon::config(""));
    std::fs::create_dir(place.path("cores")).unwrap();
    let _ended = with_cores(&place, &["/bin/sh", "-c", "kill -SEGV $$"]).status();
    if cores(&place).is_empty() {
        skipped("cores in the current directory (`core_pattern`, `ulimit -H -c`)");
        return None;
    }
    for core in cores(&place) {
        std::fs::remove_file(place.path("cores").join(core)).unwrap();
    }
    Some(place)
}

fn crash(mut child: Reaped, signal: Signal, of: &Place, what: &str) {
    let pid = Pid::from_raw(child.0.id().cast_signed());
    // The standard library takes the first one that is no overflow of a stack as a mistake.
    let status = wait_for("it is over", || {
        let _gone = kill(pid, signal);
        child.0.try_wait().unwrap()
    });
    assert_eq!(status.signal(), Some(signal as i32), "{what}");
    assert_eq!(cores(of), [""; 0], "{what} after {signal}");
}

fn limit(pid: u32) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    line.unwrap().split_whitespace().nth(4).unwrap().to_owned()
}

#[test]
fn secrecy_of_clients_outlives_a_crash() {
    let Some(place) = place() else {
        return;
    };
    let ledger = place.path("ledger");
    let daemon = place.start_with(&[("CHAOS_LEDGER", ledger.to_str().unwrap())]);
    let turns = || std::fs::read_to_string(&ledger).map_or(0, |ledger| ledger.lines().count());
    for signal in [Signal::SIGSEGV, Signal::SIGABRT] {
        let begun = turns();
        let send = [
            AGENTCTL,
            "send",
            "--agent",
            "chaos",
            "chaos:ledger up;wait-file /nowhere",
        ];
        let serve = [AGENTCTL, "serve", "http", "--listen", "127.0.0.1:0"];
        let nc = [AGENTCTL, "nc"];
        for words in [&send[..], &serve, &nc] {
            let mut command = with_cores(&daemon.place, words);
            // A send would wait for what a pipe has to say.
            let stdin = match words[1] {
                "nc" => Stdio::piped(),
                _ => Stdio::null(),
            };
            command
                .stdin(stdin)
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
            let mut child = Reaped(command.spawn().unwrap());
            let pid = child.0.id();
            match words[1] {
                "send" => wait_for("a turn", || (turns() > begun).then_some(())),
                "serve" => {
                    let said = lines(child.0.stdout.take().unwrap());
                    said.recv_timeout(DEADLINE).unwrap();
                }
                // It says nothing by itself.
                _ => wait_for("it has begun", || (limit(pid) == "1").then_some(())),
            }
            assert_eq!(limit(pid), "1", "{words:?}");
            crash(child, signal, &daemon.place, words[1]);
        }
        daemon.agentctl(&["abort"]);
    }
}

#[test]
fn secrecy_of_timmy_and_agentd_outlives_a_crash() {
    let Some(place) = place() else {
        return;
    };
    for words in [&[TIMMY, "--rpc"][..], &[AGENTD, "--stdio"]] {
        let mut command = with_cores(&place, words);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = Reaped(command.spawn().unwrap());
        let pid = child.0.id();
        wait_for("it has lowered its limit", || {
            (limit(pid) == "1").then_some(())
        });
        crash(child, Signal::SIGSEGV, &place, words[0]);
    }
}
