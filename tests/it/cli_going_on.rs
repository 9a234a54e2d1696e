//! Going on from where somebody is: with the last session.

use serde_json::Value;

use crate::supervision::jsonl;
use crate::support::{Daemon, Finished, Place, chaos_worker};

fn said(finished: &Finished) -> &str {
    assert_eq!(finished.code, Some(0), "{finished:?}");
    &finished.stdout
}

/// What the last line of a send says that it knew of the turns before it.
fn context(finished: &Finished) -> String {
    let last = said(finished).lines().last().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    last["context"].as_str().unwrap().to_owned()
}

/// A daemon with agents of each way to remember.
fn remembering() -> Daemon {
    let place = Place::new("");
    let kept = place.path("kept");
    std::fs::create_dir(&kept).unwrap();
    let worker = chaos_worker();
    let worker = worker.to_str().unwrap();
    let config = [
        Daemon::config(""),
        jsonl("many", &[worker, "--resumes", kept.to_str().unwrap()]),
        jsonl(
            "one",
            &[worker, "--one-session", "--resumes", kept.to_str().unwrap()],
        ),
        jsonl("forgets", &[worker, "--one-session"]),
    ];
    place.configure(&config.concat());
    place.start()
}

#[test]
fn unnamed_send_is_gone_on_with_and_remembered() {
    let daemon = remembering();
    let count = |agent: &str| daemon.agentctl(&["send", "-a", agent, "chaos:count"]);
    let go_on = |agent: &str, more: &[&str]| {
        let args = [&["send", "-c", "-a", agent], more, &["chaos:count"]].concat();
        daemon.agentctl(&args)
    };
    for agent in ["timmy", "chaos", "many", "one"] {
        let first = count(agent);
        let second = go_on(agent, &["--json"]);
        assert_eq!(context(&second), "continued", "{agent}: {second:?}");
        let third = go_on(agent, &[]);
        assert!(!third.stderr.contains("earlier turns"), "{third:?}");
        if agent != "timmy" {
            assert_eq!((said(&first), said(&third)), ("1\n", "3\n"), "{agent}");
        }
    }
    // Its process went with its turn, and nobody else knows what was said.
    assert_eq!(said(&count("forgets")), "1\n");
    let lost = go_on("forgets", &[]);
    assert_eq!(said(&lost), "1\n");
    let why =
        "goes on without its earlier turns: the agent `forgets` remembers them in its process";
    assert!(lost.stderr.contains(why), "{lost:?}");
    let daemon = daemon.kill().start();
    for agent in ["many", "one"] {
        let args = ["send", "-c", "-a", agent, "chaos:count"];
        assert_eq!(said(&daemon.agentctl(&args)), "4\n", "{agent}");
    }
}
