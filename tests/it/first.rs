//! The main job: a prompt goes in, an answer comes back.

use crate::support::Daemon;

#[test]
fn first_bare_prompt_is_answered_and_closed() {
    let daemon = Daemon::start();
    let lines = daemon.ask(r#"{"agent":"timmy","prompt":"hello world"}"#);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert_eq!(lines[0]["type"], "accepted");
    assert_eq!(
        (&lines[1]["type"], &lines[1]["text"]),
        (&"message_end".into(), &"hello world".into())
    );
}

#[test]
fn agentctl_sends_through_the_daemon_and_without_it() {
    let daemon = Daemon::start();
    let sent = daemon.agentctl(&["send", "hi there"]);
    assert_eq!(
        (sent.code, sent.stdout.as_str()),
        (Some(0), "hi there\n"),
        "{sent:?}"
    );
    let place = daemon.kill();
    let sent = place.agentctl(&["send", "hi there"]);
    assert_eq!(
        (sent.code, sent.stdout.as_str()),
        (Some(0), "hi there\n"),
        "{sent:?}"
    );
    assert!(sent.stderr.contains("going on without it"), "{sent:?}");
}
