//! The names that `agentctl` completes: asked as the scripts of the shells ask.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{AGENTCTL, Daemon, Place, finish, kill, wait_for};

/// What is offered behind these words, and how long it took.
fn offered(place: &Place, shell: &str, words: &[&str]) -> (Vec<String>, Duration) {
    offered_at(place, shell, words, "")
}

/// The same for a word that was begun.
fn offered_at(place: &Place, shell: &str, words: &[&str], word: &str) -> (Vec<String>, Duration) {
    let mut command = place.command(AGENTCTL);
    command
        .env("_AGENTCTL_COMPLETE", shell)
        .env("_CLAP_COMPLETE_INDEX", (words.len() + 1).to_string())
        .args(["--", "agentctl"])
        .args(words)
        .arg(word);
    let done = finish(command, b"");
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done:?}");
    // Behind the word stands what it is, where the shell shows that.
    let word = |line: &str| line.split([':', '\t']).next().unwrap().to_owned();
    (done.stdout.lines().map(word).collect(), done.took)
}

#[test]
fn completions_offer_the_names_of_the_daemon() {
    let daemon = Daemon::with("[models]\ndefault = \"gemini/x\"\n");
    let sent = daemon.agentctl(&["send", "hi", "--session", "main"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let other = daemon.agentctl(&["send", "hi", "--session", "old"]);
    assert_eq!(other.code, Some(0), "{other:?}");
    assert_eq!(daemon.agentctl(&["sessions", "close", "old"]).code, Some(0));
    std::fs::create_dir(daemon.path("home/.ssh")).unwrap();
    std::fs::write(daemon.path("home/.ssh/config"), "Host mac\n").unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let offers = |words: &[&str], name: &str| {
            // On a busy machine the daemon may answer later than a shell waits.
            wait_for(&format!("{name} behind {words:?}"), || {
                let (found, _) = offered(&daemon.place, shell, words);
                found.iter().any(|one| one == name).then_some(())
            });
        };
        offers(&["send", "--agent"], "chaos");
        offers(&["send", "-a"], "timmy");
        offers(&["send", "--session"], "main");
        offers(&["history"], "main");
        offers(&["history"], "old#2");
        offers(&["collect"], "j1");
        offers(&["send", "--model"], "gemini/x");
        offers(&["--host"], "mac");
        offers(&["config", "set"], "agents.chaos.model");
        offers(&["models"], "fallbacks");
    }
}

#[test]
fn completions_offer_options_behind_a_dash_only() {
    let place = Place::new(&Daemon::config(""));
    for shell in ["bash", "zsh", "fish"] {
        for (words, name) in [
            (&["send", "--agent"][..], Some("chaos")),
            (&["agents"], Some("add")),
            (&[], Some("send")),
            (&["sessions", "show"], None),
            (&["status"], None),
        ] {
            let (found, _) = offered(&place, shell, words);
            let options: Vec<&String> = found.iter().filter(|one| one.starts_with('-')).collect();
            assert!(options.is_empty(), "{shell} {words:?}: {options:?}");
            let is_there = |name: &str| found.iter().any(|one| one == name);
            assert!(name.is_none_or(is_there), "{shell} {words:?}: {found:?}");
        }
        for (word, option) in [("-", "-j"), ("--", "--json"), ("--j", "--json")] {
            let (found, _) = offered_at(&place, shell, &["status"], word);
            assert!(found.contains(&option.to_owned()), "{shell}: {found:?}");
        }
    }
}

#[test]
fn completions_wait_for_no_daemon_that_hangs() {
    let daemon = Daemon::start();
    let agents = |place: &Place| offered(place, "bash", &["send", "--agent"]);
    kill(daemon.pid(), Signal::SIGSTOP);
    let (found, took) = agents(&daemon.place);
    kill(daemon.pid(), Signal::SIGCONT);
    // The configuration names them, too.
    assert!(found.contains(&"chaos".to_owned()), "{found:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn completions_start_nothing() {
    let place = Place::new(&Daemon::config(""));
    // As a service manager holds it: whoever connects starts the daemon.
    let socket = UnixListener::bind(place.socket()).unwrap();
    socket.set_nonblocking(true).unwrap();
    for words in [
        &["send", "--agent"][..],
        &["history"],
        &["collect"],
        &["answer"],
    ] {
        offered(&place, "bash", words);
    }
    assert!(socket.accept().is_err(), "somebody connected");
    assert!(!place.path("state").exists());
}
