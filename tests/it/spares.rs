//! Spares that nobody configured, with real processes.

use serde_json::{Value, json};

use crate::supervision::workers_of;
use crate::support::{Daemon, Place, chaos_worker};

/// A daemon with an agent whose processes have one session each, which can be opened again, on a
/// machine of which the file `machine` says what it is like.
fn start(more: &str) -> Daemon {
    let place = Place::new("");
    let kept = place.path("kept");
    std::fs::create_dir(&kept).unwrap();
    place.configure(&format!(
        "[agents.one]\nkind = \"jsonl\"\ncommand = [{:?}, \"--one-session\", \"--resumes\", {kept:?}]\n{more}",
        chaos_worker()
    ));
    let machine = place.path("machine");
    std::fs::write(&machine, "mains").unwrap();
    let machine = machine.display().to_string();
    place.start_with(&[("AGENTD_TEST_MACHINE", &machine)])
}

fn count(daemon: &Daemon, session: &str) -> Value {
    let line = json!({"agent": "one", "prompt": "chaos:count", "session": session});
    daemon.ask(&line.to_string()).pop().unwrap()
}

fn spare(daemon: &Daemon) -> u32 {
    daemon.until("an idle spare", |status| {
        let rows = status["workers"].as_array()?;
        let row = rows
            .iter()
            .find(|row| row["spare"] == true && row["state"] == "idle")?;
        u32::try_from(row["pid"].as_u64()?).ok()
    })
}

#[test]
fn spare_comes_by_itself_and_serves_a_session() {
    let daemon = start("");
    assert!(workers_of(&daemon.place).is_empty());
    assert_eq!(count(&daemon, "a")["text"], "1");
    let first = spare(&daemon);
    assert_eq!(daemon.status()["spares"]["processes"], 1);
    assert_eq!(count(&daemon, "b")["text"], "1");
    let rows = daemon.status()["workers"].as_array().unwrap().clone();
    let of_b = rows.iter().find(|row| row["session"] == "b").unwrap();
    assert_eq!(of_b["pid"], first, "{rows:#?}");
    assert_ne!(spare(&daemon), first, "another one comes");
}

#[test]
fn spare_goes_when_its_agent_was_idle() {
    let daemon = start("idle_timeout = \"3s\"\n");
    count(&daemon, "a");
    spare(&daemon);
    daemon.until("no process is left", |status| {
        status["workers"].as_array()?.is_empty().then_some(())
    });
    assert!(workers_of(&daemon.place).is_empty());
}

#[test]
fn spare_is_not_there_on_battery() {
    let daemon = start("");
    std::fs::write(daemon.path("machine"), "battery").unwrap();
    count(&daemon, "a");
    let held = daemon.until("why there is none", |status| {
        status["spares"]["held"].as_str().map(str::to_owned)
    });
    assert!(held.contains("battery"), "{held}");
    assert_eq!(workers_of(&daemon.place).len(), 1);
    let shown = daemon.agentctl(&["status"]).stdout;
    assert!(
        shown.contains("spares   0; the machine runs on its battery"),
        "{shown}"
    );
}

#[test]
fn spare_that_is_killed_comes_again() {
    let daemon = start("");
    count(&daemon, "a");
    let first = spare(&daemon);
    crate::support::kill(first, nix::sys::signal::Signal::SIGKILL);
    daemon.until("its death was counted", |status| {
        (status["rpc"]["crashes"] == 1).then_some(())
    });
    // Not at once; and its agent answers as ever.
    assert_eq!(count(&daemon, "a")["text"], "2");
    assert_eq!(count(&daemon, "b")["text"], "1");
}
