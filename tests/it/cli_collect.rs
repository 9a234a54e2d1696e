//! `collect` of many jobs, as somebody reads what it says of them.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{AGENTCTL, Daemon, kill, lines};

#[test]
fn collect_that_is_left_names_one_command() {
    let daemon = Daemon::start();
    let left = |words: &[&str], input: &str| {
        let mut command = daemon.place.command(AGENTCTL);
        command.args(words).stdin(Stdio::piped());
        let streams = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let printed = lines(child.stdout.take().unwrap());
        let first = printed.recv_timeout(Duration::from_secs(10)).unwrap();
        kill(child.id(), Signal::SIGINT);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130));
        (first, String::from_utf8(ended.stderr).unwrap())
    };
    let input = "chaos:say first\n".to_owned() + &"chaos:hang\n".repeat(50);
    let words = [
        "dispatch",
        "--agent",
        "chaos",
        "--session",
        "s",
        "--label",
        "run=7",
    ];
    let dispatch = [&words[..], &["--key-prefix", "k", "--collect"]].concat();
    let (first, said) = left(&dispatch, &input);
    assert_eq!(first, "j1 done");
    assert_eq!(
        said,
        "note: accepted 51 jobs, j1 to j51\nnote: left; 50 jobs, j2 to j51, go on: the same command \
         with `--key-prefix k` waits for the rest, `agentctl abort JOB` ends one\n"
    );
    let (_, said) = left(&["collect", "--label", "run=7"], "");
    assert!(
        said.contains("on: `agentctl collect --label 'run=7'` waits"),
        "{said}"
    );
    let late = daemon.agentctl(&["collect", "--label", "run=7", "--timeout", "0"]);
    assert_eq!(
        late.stderr,
        "note: 50 of 51 jobs are not done\nhint: `agentctl collect --label 'run=7'` goes on waiting, \
         `agentctl attach j2` shows what j2 does\n"
    );
}
