//! Schedules whose runs or whose store did not come to their end as usual: held, and restored.

use serde_json::{Value, json};

use crate::cron::{add, ask, done, refused, row, until};
use crate::support::Daemon;

/// A job that is held goes on only when somebody says so.
#[test]
fn cron_goes_on_beside_a_held_run() {
    let daemon = Daemon::start();
    let mut first = daemon.connect();
    first
        .send(r#"{"type":"send","agent":"chaos","session":"s","text":"chaos:wait-file /nowhere"}"#);
    first.until("running");
    let fields = json!({"every": "1s", "send": {"text": "tick", "session": "s"}});
    let schedule = add(&daemon, &fields);
    until(&daemon, &schedule, "a run waits behind it", |runs| {
        (!runs.is_empty()).then_some(())
    });
    let daemon = daemon.kill().start();
    let state = |run: &Value| run["state"].as_str().map(str::to_owned);
    until(
        &daemon,
        &schedule,
        "the run is held, and others come",
        |runs| {
            let held = runs.iter().any(|run| state(run).as_deref() == Some("held"));
            let jobs = runs.iter().filter(|run| run["job"].is_string()).count();
            (held && jobs > 1).then_some(())
        },
    );
}

/// What was sent since a backup isn't known.
#[test]
fn cron_of_a_backup_rests_until_resumed() {
    let daemon = Daemon::start();
    let schedule = add(&daemon, &json!({"every": "1s"}));
    let copy = daemon.path("copy.db");
    let made = daemon.agentctl(&["backup", copy.to_str().unwrap()]);
    assert_eq!(made.code, Some(0), "{made:?}");
    until(&daemon, &schedule, "it was sent since", |runs| {
        runs.iter().any(done).then_some(())
    });
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    let place = daemon.kill();
    let restored = place.agentctl(&["restore", copy.to_str().unwrap()]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let told = "1 schedule is paused: `agentctl cron resume ID` lets it go on";
    assert!(restored.stdout.contains(told), "{restored:?}");
    let daemon = place.start();
    let paused = row(&daemon, &schedule);
    assert_eq!(paused["state"], "paused", "{paused}");
    assert!(
        paused["why"]
            .as_str()
            .unwrap()
            .contains("comes from a backup")
    );
    ask(
        &daemon,
        &json!({"type": "cron.resume", "schedule": schedule}),
    );
    until(&daemon, &schedule, "it goes on", |runs| {
        runs.iter().any(done).then_some(())
    });
    // What a list could not hold is refused.
    let text = "x".repeat(200 * 1024);
    let large = json!({"type": "cron.add", "every": "1h", "send": {"text": text}});
    let error = refused(&daemon, &large)["error"].to_string();
    assert!(error.contains("expected at most 131072"), "{error}");
}
