//! A store that was damaged or taken away: told until somebody accepts it, and what a backup is for.

use serde_json::{Value, json};

use crate::faults_disk::Mounts;
use crate::supervision::{chaos, with_marks};
use crate::support::{AGENTCTL, Daemon, Place};

fn send(session: &str, text: &str) -> String {
    json!({"type": "send", "agent": "chaos", "session": session, "text": text}).to_string()
}

/// A loss is told by the next daemon, too, and by none once it is accepted.
fn accepted(daemon: Daemon, words: &str) {
    let daemon = daemon.kill().start();
    assert_eq!(daemon.status()["state"], "degraded", "nobody accepted it");
    let doctor = daemon.agentctl(&["doctor", "--accept-loss"]);
    assert!(doctor.stdout.contains(words), "{doctor:?}");
    daemon.until("it is told no more", |status| {
        (status["state"] == "ready").then_some(())
    });
    assert_eq!(daemon.kill().start().status()["state"], "ready");
}

#[test]
fn a_broken_database_is_moved_aside_and_named() {
    let daemon = Daemon::start();
    chaos(&daemon, "hi");
    let place = daemon.kill();
    for end in ["-wal", "-shm"] {
        let _absent = std::fs::remove_file(place.path(&format!("state/agentd.db{end}")));
    }
    std::fs::write(
        place.path("state/agentd.db"),
        b"this was a database once, and is none now".repeat(200),
    )
    .unwrap();
    let daemon = place.start();
    assert_eq!(chaos(&daemon, "after")["text"], "after");
    let aside = std::fs::read_dir(daemon.path("state")).unwrap().flatten();
    let aside: Vec<String> = aside
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.contains("corrupt"))
        .collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert!(daemon.log().contains(&aside[0]), "{}", daemon.log());
    let status = daemon.status();
    assert_eq!(status["state"], "degraded");
    let details = status["details"].as_str().unwrap();
    assert!(details.contains(&aside[0]), "{details}");
    accepted(daemon, "accepted: the store was damaged");
}

#[test]
fn losses_of_commits_are_in_status_and_doctor() {
    let daemon = Daemon::start();
    for turn in 0..20 {
        chaos(&daemon, &format!("turn {turn}"));
    }
    let place = daemon.kill();
    let log = place.path("state/agentd.db-wal");
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let daemon = place.start();
    let status = daemon.status();
    assert_eq!(status["state"], "degraded");
    let details = status["details"].as_str().unwrap();
    assert!(details.contains("commits or more"), "{details}");
    assert_eq!(chaos(&daemon, "after")["text"], "after");
    let copy = "agentd.db-wal.damaged-";
    assert!(details.contains(copy), "{details}");
    let doctor = daemon.agentctl(&["doctor"]);
    assert!(doctor.stdout.contains(copy), "{doctor:?}");
    accepted(daemon, "accepted: the store's log was damaged");
}

#[test]
fn store_taken_away_is_told_and_kept() {
    let daemon = with_marks("").start();
    let go = daemon.path("go");
    let mut running = daemon.connect();
    running.send(&send(
        "s",
        &format!("chaos:say kept;wait-file {}", go.display()),
    ));
    running.until("message_delta");
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(daemon.path(&format!("state/agentd.db{end}"))).unwrap();
    }
    let copy = daemon.until("the files are missed", |status| {
        let details = status["details"].as_str()?;
        let (_, behind) = details.split_once("agentd.db.rescued-")?;
        Some(format!("agentd.db.rescued-{}", behind.split('`').next()?))
    });
    let refused = daemon.connect().request(&send("t", "chaos:say new"));
    assert_eq!(refused["code"], "store-failed", "{refused:#}");
    std::fs::write(go, "").unwrap();
    let end = running.until("message_end");
    assert_eq!(end.last().unwrap()["text"], "kept", "{end:?}");
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    let (place, left) = daemon.left();
    assert!(left.success(), "{left:?}");
    let kept = rusqlite::Connection::open(place.path("state").join(&copy)).unwrap();
    let ended = "SELECT count(*) FROM jobs WHERE state = 'completed'";
    let ended: i64 = kept.query_row(ended, [], |row| row.get(0)).unwrap();
    assert_eq!(ended, 1);
    let daemon = place.start();
    let status = daemon.status();
    assert_eq!(status["state"], "degraded", "jobs are gone");
    let details = status["details"].as_str().unwrap();
    assert!(details.contains(&copy), "{details}");
    let doctor = daemon.agentctl(&["doctor"]);
    assert!(doctor.stdout.contains(&copy), "{doctor:?}");
    accepted(daemon, "accepted: the store that was here before");
}

fn state_of(daemon: &Daemon, job: &Value) -> Value {
    let rows = daemon.ask(&json!({"type": "jobs"}).to_string()).remove(0);
    let rows = rows["jobs"].as_array().unwrap();
    let row = rows.iter().find(|row| row["job"] == *job);
    row.unwrap_or_else(|| panic!("{job} of {rows:?}"))["state"].clone()
}

#[test]
fn restore_puts_a_backup_and_holds_jobs() {
    let daemon = with_marks("").start();
    chaos(&daemon, "before");
    let gate = daemon.path("gate");
    let waits = format!("chaos:ledger;wait-file {}", gate.display());
    let running = daemon.connect().request(&send("s", &waits))["job"].clone();
    let behind = daemon.connect().request(&send("s", "chaos:ledger"))["job"].clone();
    let other = daemon.path("copy.db");
    let copy = other.to_str().unwrap();
    let made = daemon.agentctl(&["backup", copy]);
    assert_eq!(made.code, Some(0), "{made:?}");
    chaos(&daemon, "after");
    let refused = daemon.agentctl(&["restore", copy]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("agentctl stop"), "{refused:?}");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    let (place, _left) = daemon.left();
    let ran = std::fs::read_to_string(place.path("ledger")).unwrap();
    let none = place.agentctl(&["restore", place.path("none.db").to_str().unwrap()]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.stderr.contains("no backup to use"), "{none:?}");
    let restored = place.agentctl(&["restore", copy]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    assert!(restored.stdout.contains("restored 3 jobs"), "{restored:?}");
    let daemon = place.start();
    assert_eq!(daemon.status()["state"], "ready");
    assert_eq!(state_of(&daemon, &running), "interrupted");
    assert_eq!(state_of(&daemon, &behind), "held");
    let now = std::fs::read_to_string(daemon.path("ledger")).unwrap();
    assert_eq!(now, ran, "something ran again");
    let resumed = daemon.agentctl(&["sessions", "resume", "s"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    daemon.until("what was held runs", |_| {
        (state_of(&daemon, &behind) == "completed").then_some(())
    });
}

#[test]
fn restore_elsewhere_ends_nobodys_turn() {
    let daemon = with_marks("").start();
    let gate = daemon.path("gate");
    let waits = format!("chaos:say up;wait-file {}", gate.display());
    let mut client = daemon.connect();
    client.send(&send("s", &waits));
    client.until("message_delta");
    let copy = daemon.path("copy.db");
    let copy = copy.to_str().unwrap();
    assert_eq!(daemon.agentctl(&["backup", copy]).code, Some(0));
    let other = with_marks("");
    let restored = other.agentctl(&["restore", copy]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let other = other.start();
    other.until("its own copy of the job is over", |_| {
        (state_of(&other, &json!("j1")) == "interrupted").then_some(())
    });
    std::fs::write(gate, "").unwrap();
    let last = client.last();
    assert_eq!(last["type"], "message_end", "{last}");
}

/// A copy has its name when it is whole, and what a kill left of the work on it goes with the next.
#[test]
fn backup_killed_leaves_nothing_of_its_name() {
    let place = Place::new(&Daemon::config(""));
    let daemon = place.start_with(&[("AGENTD_FAILPOINT", "before-backup:1")]);
    chaos(&daemon, "before");
    let copy = daemon.path("monday.db");
    let made = daemon.agentctl(&["backup", copy.to_str().unwrap()]);
    assert_ne!(made.code, Some(0), "{made:?}");
    let (place, left) = daemon.left();
    assert!(!left.success(), "{left:?}");
    assert!(!copy.exists());
    assert!(
        place.path("monday.db.partial").exists(),
        "it was killed amid the work"
    );
    let daemon = place.start();
    let made = daemon.agentctl(&["backup", copy.to_str().unwrap()]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(copy.exists() && !daemon.path("monday.db.partial").exists());
}

#[test]
fn restore_says_how_much_room_is_missing() {
    let Some(mounts) = Mounts::possible() else {
        return;
    };
    let daemon = Daemon::start();
    chaos(&daemon, "before");
    let copy = daemon.path("copy.db");
    let copy = copy.to_str().unwrap().to_owned();
    assert_eq!(daemon.agentctl(&["backup", &copy]).code, Some(0));
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    let (place, _left) = daemon.left();
    let restored = |size: &str| {
        let mount = format!(
            "mount -t tmpfs -o size={size},mode=700 none state && \
             {{ {AGENTCTL} restore {copy}; code=$?; ls -A state; {AGENTCTL} start && \
             {AGENTCTL} stop; exit $code; }}"
        );
        mounts.run(&place, &mount, "true", &[])
    };
    let small = restored("5m");
    assert_eq!(small.code, Some(1), "{small:?}");
    assert!(small.stderr.contains("bytes are missing"), "{small:?}");
    assert!(!small.stdout.contains("agentd.db.restoring"), "{small:?}");
    let enough = restored("9m");
    assert_eq!(enough.code, Some(0), "{enough:?}");
    assert!(
        enough.stdout.contains("the daemon has stopped"),
        "{enough:?}"
    );
}

#[test]
fn backup_planned_says_how_often_at_least() {
    let daemon = Daemon::start();
    let often = daemon.agentctl(&["backup", "--every", "5m"]);
    assert_eq!(often.code, Some(2), "{often:?}");
    assert!(often.stderr.contains("at least 3600 s"), "{often:?}");
    let made = daemon.agentctl(&["backup", "--every", "1d", "--keep", "3"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stdout.contains("state/backups/agentd-"), "{made:?}");
    let ended = daemon.agentctl(&["backup", "--every", "never"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let left = std::fs::read_dir(daemon.path("state/backups")).unwrap();
    assert_eq!(left.count(), 1, "the end makes one more: {ended:?}");
}

/// Puts zeros over the middle of what a job was asked, while nobody serves.
fn overwrite(file: &std::path::Path, prompt: &str) {
    let mut bytes = std::fs::read(file).unwrap();
    let found = bytes.windows(prompt.len());
    let place = found.into_iter().position(|some| some == prompt.as_bytes());
    let place = place.expect("the prompt");
    bytes[place..place + prompt.len()].fill(0);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn losses_of_waiting_prompts_are_told_truly() {
    let daemon = Daemon::start();
    let prompt = "do this in another year ".repeat(40);
    let later = json!({"type": "send", "agent": "chaos", "session": "later", "text": prompt,
        "start_at": "2027-06-01T00:00:00Z"});
    let job = daemon.connect().request(&later.to_string())["job"].clone();
    assert_eq!(daemon.agentctl(&["stop"]).code, Some(0));
    let (place, _left) = daemon.left();
    overwrite(&place.path("state/agentd.db"), &prompt[100..612]);
    let daemon = place.start();
    let asked = json!({"type": "collect", "jobs": [job], "timeout": 5});
    let end = daemon.ask(&asked.to_string());
    let end = serde_json::to_string(&end).unwrap();
    for word in [
        "store-failed",
        "the store is damaged",
        "nothing of it was run",
    ] {
        assert!(end.contains(word), "{word}: {end}");
    }
    let status = daemon.status();
    assert_eq!(status["state"], "degraded", "{status}");
    let log = daemon.log();
    assert!(log.contains("what was asked of job"), "{log}");
    accepted(daemon, "what was asked of job");
}
