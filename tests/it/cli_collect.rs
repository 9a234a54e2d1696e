//! Many jobs, as somebody reads what `collect` and `ps` say of them.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{AGENTCTL, Daemon, kill, lines, wait_for};

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
    assert_eq!(first, "j1 done (chaos)");
    assert_eq!(
        said,
        "note: accepted 51 jobs, j1 to j51\nnote: left; 50 jobs, j2 to j51, go on: the same command \
         with `--key-prefix k` waits for the rest, `agentctl abort --label 'run=7'` ends all with that \
         label\n"
    );
    let listed = daemon.agentctl(&["jobs", "--label", "run=7", "-n", "2"]);
    assert_eq!(listed.stderr, "51 jobs: 1 done, 50 to go\n");
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

#[test]
fn dispatch_asks_each_agent_named() {
    let daemon = Daemon::start();
    let words = ["dispatch", "--agents", "chaos,timmy", "--collect", "a", "b"];
    let again = [&words[..], &["--key-prefix", "k"]].concat();
    for words in [&again, &again] {
        let done = daemon.agentctl(words);
        for who in [
            "j1 done (chaos)",
            "j2 done (timmy)",
            "j3 done (chaos)",
            "j4 done (timmy)",
        ] {
            assert!(done.stdout.contains(who), "{done:?}");
        }
    }
    let named = daemon.agentctl(&["dispatch", "--agents", "chaos", "--session", "s", "a"]);
    assert_eq!(named.code, Some(2), "{named:?}");
}

#[test]
fn ps_says_what_running_turns_do() {
    let daemon = Daemon::start();
    for (job, does, says) in [
        (
            "j1",
            "call cargo test;wait-file /nowhere",
            "bash cargo test",
        ),
        ("j2", "ask text", "waiting for an answer: "),
    ] {
        let prompt = format!("chaos:{does}");
        let words = [
            "dispatch",
            "--agent",
            "chaos",
            "--on-question",
            "wait",
            &prompt,
        ];
        let sent = daemon.agentctl(&words);
        assert_eq!(sent.stdout, format!("{job}\n"), "{sent:?}");
        let shown = wait_for(says, || {
            let shown = daemon.agentctl(&["ps"]).stdout;
            shown.contains(says).then_some(shown)
        });
        assert!(shown.contains("DOING"), "{shown}");
        let of_one = daemon.agentctl(&["jobs", job]).stdout;
        assert!(of_one.contains(&format!("doing     {says}")), "{of_one}");
        assert_eq!(daemon.agentctl(&["abort", job]).code, Some(0));
        wait_for("it has ended", || {
            let shown = daemon.agentctl(&["ps"]).stdout;
            shown.contains("nothing runs").then_some(())
        });
    }
}

#[test]
fn sessions_that_nobody_answered_are_left_out() {
    let daemon = Daemon::start();
    for (session, text) in [
        (None, "chaos:exit 3"),
        (Some("kept"), "chaos:exit 3"),
        (None, "hi"),
    ] {
        let mut words = vec!["send", "--agent", "chaos", text];
        words.extend(session.into_iter().flat_map(|name| ["--session", name]));
        daemon.agentctl(&words);
    }
    let listed = |words: &[&str]| {
        let listed = daemon.agentctl(words);
        assert_eq!(listed.code, Some(0), "{listed:?}");
        let names = listed
            .stdout
            .lines()
            .skip(1)
            .filter_map(|line| line.split(' ').next());
        (
            names.map(str::to_owned).collect::<Vec<_>>().join(" "),
            listed.stderr,
        )
    };
    let (names, note) = listed(&["sessions"]);
    assert!(names.ends_with(" kept") && !names.contains("s1"), "{names}");
    let says = "note: 1 more session without a name: `--all` lists them, too\n";
    assert_eq!(note, says);
    assert_eq!(
        listed(&["sessions", "--all"]),
        (format!("{names} s1"), String::new())
    );
    // One agent, not a list of them.
    for words in [["jobs", "--agent", "a,b"], ["sessions", "--agent", "a,b"]] {
        let refused = daemon.agentctl(&words);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("expected one agent"), "{refused:?}");
    }
    let cwd = r#"{"type":"send","text":"hi","cwd":"/a\u0000b"}"#;
    let refused = daemon.ask(cwd).remove(0);
    assert_eq!(
        refused["error"],
        "`cwd` holds a NUL byte, which no path has"
    );
}
