//! What `agentctl` says when something is wrong elsewhere: of the machine that is meant, in words of
//! its own, and with nothing made in somebody else's home.
//!
//! Owns stand-ins for `ssh`, which say what the real one says. The real one is in `ssh`.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use nix::unistd::Uid;

use crate::support::{AGENTCTL, AGENTD, Daemon, Finished, Place, finish, skipped};

const NOBODY: u32 = 65534;

fn place() -> Place {
    Place::new(&Daemon::config(""))
}

/// With an `ssh` that is this script.
fn by_ssh(script: &str, words: &[&str]) -> Finished {
    let place = place();
    let bin = place.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let ssh = bin.join("ssh");
    std::fs::write(&ssh, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = place.command(AGENTCTL);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command.args(words);
    finish(command, b"")
}

#[test]
fn cli_failing_one_shot_prints_no_log_line() {
    let failed = place().agentctl(&["send", "--agent", "chaos", "chaos:exit 3"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("error: "), "{failed:?}");
    for log in ["WARN", "ERROR", "agentd_core"] {
        assert!(!failed.stderr.contains(log), "{failed:?}");
    }
}

#[test]
fn cli_hints_for_another_machine_speak_of_it() {
    let refused = "echo 'ssh: connect to host mac port 22: Connection refused' >&2; exit 255";
    for words in [&["jobs"][..], &["sessions"], &["abort"], &["drain"]] {
        let all = [&["--host", "mac"], words].concat();
        let failed = by_ssh(refused, &all);
        assert_eq!(failed.code, Some(69), "{failed:?}");
        assert!(
            failed.stderr.contains("can't be reached by ssh"),
            "{failed:?}"
        );
        assert!(
            failed.stderr.contains("`ssh mac agentctl status`"),
            "{failed:?}"
        );
        for of_here in ["agentd is not running", "agentctl start"] {
            assert!(!failed.stderr.contains(of_here), "{failed:?}");
        }
    }
}

#[test]
fn cli_forward_says_the_ssh_key_only_sends() {
    // The relay that such a key runs there ends with its input, and has said nothing.
    let failed = by_ssh("exec cat > /dev/null", &["forward", "mac"]);
    assert_eq!(failed.code, Some(69), "{failed:?}");
    assert!(
        failed.stderr.contains("may send there, and nothing else"),
        "{failed:?}"
    );
    assert!(
        failed.stderr.contains("agentctl --host mac send"),
        "{failed:?}"
    );
}

#[test]
fn cli_makes_nothing_in_the_home_of_another() {
    if !Uid::effective().is_root() {
        skipped("root, whom `sudo -E` leaves somebody else's `HOME`");
        return;
    }
    let place = place();
    let home = place.path("home");
    chown(&home, Some(NOBODY), None).unwrap();
    let inside = |home: &Path| std::fs::read_dir(home).unwrap().count();
    for (program, words) in [
        (AGENTCTL, &["token"][..]),
        (AGENTCTL, &["serve", "http", "--listen", "127.0.0.1:0"]),
        (AGENTCTL, &["voice", "flush"]),
        (AGENTCTL, &["service", "install"]),
        (AGENTD, &["--socket", "/nowhere/s", "--no-alias"]),
    ] {
        let mut command = place.command(program);
        command
            .env_remove("AGENTD_STATE_DIR")
            .env_remove("AGENTD_CONFIG")
            .env("SUDO_UID", NOBODY.to_string())
            .args(words);
        let refused = finish(command, b"");
        assert_eq!(refused.code, Some(78), "{words:?}: {refused:?}");
        assert!(refused.stderr.contains("65534"), "{words:?}: {refused:?}");
        assert!(
            refused.stderr.contains("`sudo -H`"),
            "{words:?}: {refused:?}"
        );
        assert_eq!(inside(&home), 0, "{words:?}");
    }
}
