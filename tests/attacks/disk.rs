//! Attempts of whoever could write beside the configuration or the store: a daemon doesn't start with
//! them, or serves without them.
//!
//! Owns the places. `try` is a script that is run in the place before the daemon begins; `must` is what
//! is said by a daemon that refuses, with its exit code, or, where there is a `check`, what that script
//! says while the daemon serves. `needs` is `root` where files change hands.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::catalogue::{Row, none_failed, rows};
use crate::support::{AGENTCTL, AGENTD, Daemon, Place, finish};

const NO_KEY: &str = "PLANTED-nowhere";

/// A place with a configuration, keys and webhooks in directories of their own.
fn place() -> Place {
    let place = Place::new(&Daemon::config(""));
    let dir = place.path("etc/agentd");
    std::fs::create_dir_all(&dir).unwrap();
    // Below a closed directory nobody else could change anything.
    std::fs::set_permissions(&place.dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (name, text) in [
        ("config.toml", Daemon::config("")),
        ("env", "PLANTED_KEY=x\n".to_owned()),
        ("webhooks.json", "{\"endpoints\":[]}".to_owned()),
    ] {
        let mut script = Command::new("/bin/sh");
        script.args(["-c", "umask 077; cat > \"$0\"", name]);
        script.current_dir(&dir);
        assert_eq!(finish(script, text.as_bytes()).code, Some(0));
    }
    place
}

fn script(place: &Place, text: &str) -> String {
    let mut command = place.command("/bin/sh");
    command
        .args(["-ec", text])
        .current_dir(place.dir.path())
        .env("AGENTCTL", AGENTCTL);
    let done = finish(command, b"");
    assert_eq!(done.code, Some(0), "{text}: {done:?}");
    format!("{}{}", done.stdout, done.stderr)
}

fn daemon(place: &Place) -> Command {
    let mut command = place.command(AGENTD);
    command.env("AGENTD_CONFIG", place.path("etc/agentd/config.toml"));
    command
}

/// One that served and has left.
fn served() -> Place {
    let place = place();
    let command = daemon(&place);
    let daemon = place.start_as(command);
    let last = daemon
        .ask(r#"{"prompt":"kept","session":"kept"}"#)
        .pop()
        .unwrap();
    assert_eq!(last["text"], "kept", "{last:#}");
    daemon.agentctl(&["stop"]);
    let (place, status) = daemon.left();
    assert!(status.success(), "{status}");
    place
}

fn said(place: Place, row: &Row) -> String {
    script(&place, row.tries());
    let command = daemon(&place);
    let Some(check) = row.field("check") else {
        let done = finish(command, b"");
        return format!("exit {:?}\n{}", done.code, done.stderr);
    };
    let daemon = place.start_as(command);
    let said = script(&daemon.place, check);
    daemon.agentctl(&["stop"]);
    let (place, _status) = daemon.left();
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    format!("{said}\n{log}")
}

fn attack(area: &str, place: fn() -> Place) {
    let mut failed = Vec::new();
    for row in rows(area) {
        if row.field("needs") == Some("root") && !nix::unistd::geteuid().is_root() {
            // Also where nothing may be missing: CI need not be root.
            crate::support::skips::say(&format!("root for \"{}\"", row.name));
            continue;
        }
        let said = said(place(), &row);
        failed.extend(row.judge(row.must(), &said, NO_KEY).err());
    }
    none_failed(area, &failed);
}

#[test]
fn attacks_on_the_configuration_are_seen() {
    // As it is, it is fine.
    drop(served());
    attack("configuration", place);
}

#[test]
fn attacks_on_the_store_are_seen() {
    attack("store", served);
}
