//! Older kernels: what their landlock lacks is made good, or said.

use agentd_protocol::line::{Reach, Sandbox};

use super::*;
use crate::tool::sandbox::Landlock;

/// From a process of a sandbox: its own group, its child, a process outside, and what it asks for
/// by other ways.
const PROBE: &str = "
t() { if \"$@\" 2> /dev/null; then echo yes; else echo no; fi; }
t kill -0 $OUTSIDE; t kill -0 1
sleep 100 & t kill $!
t kill -0 0
t timeout 1 true
echo done; kill -9 0";

#[tokio::test]
async fn kernels_of_each_age_signal_nobody_outside() {
    if !has_sandbox() {
        return;
    }
    // What has all of today's means has them where they are.
    let newest = Terminal::new()
        .bash("true")
        .await
        .sandbox
        .unwrap()
        .processes;
    for version in 3..=9 {
        let mut terminal = Terminal::new();
        terminal.rules.landlock = Landlock(version);
        let mut outside = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let command = PROBE.replace("$OUTSIDE", &outside.id().to_string());
        let done = terminal.bash(&command).await;
        let lives = outside.try_wait().unwrap().is_none();
        outside.kill().unwrap();
        outside.wait().unwrap();
        assert!(lives, "{version}: {}", done.output);
        let is_old = version < 6;
        let expected = if is_old {
            "no\nno\nno\nyes\n"
        } else {
            "no\nno\nyes\nyes\n"
        };
        assert!(
            done.output.starts_with(expected),
            "{version}: {}",
            done.output
        );
        assert_eq!(
            done.output.contains("no signals: this kernel"),
            is_old,
            "{}",
            done.output
        );
        let held = Sandbox {
            files: Reach::Granted,
            network: Reach::None,
            signals: if is_old { Reach::None } else { Reach::Own },
            sockets: Reach::None,
            processes: if version == 9 { newest } else { Reach::All },
        };
        assert_eq!(done.sandbox, Some(held), "{version}");
    }
}

#[tokio::test]
async fn kernels_of_each_age_guard_files() {
    if !has_sandbox() {
        return;
    }
    for version in 3..=9 {
        let mut terminal = Terminal::new();
        terminal.rules.landlock = Landlock(version);
        terminal.place.write("outside/secret", "S3CRET\n");
        let look = "echo mine > a && cat a && mkdir d && mv a d/ && echo > /dev/null && echo fine; \
            cat ../outside/secret; truncate -s 0 ../outside/secret; mv d ../outside/; ls ..";
        let done = terminal.bash(look).await;
        assert!(
            done.output.starts_with("mine\nfine\n"),
            "{version}: {}",
            done.output
        );
        assert!(
            !done.ok && !done.output.contains("S3CRET"),
            "{version}: {}",
            done.output
        );
        assert_eq!(
            terminal.place.read("outside/secret"),
            "S3CRET\n",
            "{version}"
        );
    }
}

#[tokio::test]
async fn kernels_too_old_have_somebody_asked() {
    for version in 0..=2 {
        let mut terminal = Terminal::asking(Says::no());
        terminal.rules.landlock = Landlock(version);
        let refused = terminal.bash("touch x").await;
        assert!(
            refused.output.contains("without a sandbox"),
            "{version}: {}",
            refused.output
        );
        assert!(!exists(&terminal.place.path("ws/x")));
        // Should anything start it all the same, it doesn't run.
        let grants = Grants {
            landlock: Landlock(version),
            ..Grants::default()
        };
        let anchor = terminal
            .place
            .around
            .anchors
            .find(&terminal.place.around.cwd)
            .unwrap();
        let touch = ["/usr/bin/touch".into(), "x".into()];
        let mut command = std::process::Command::new(&terminal.rules.program);
        let ended = command
            .args(sandbox::arguments(Some(&grants), &anchor, &touch))
            .output()
            .unwrap();
        assert!(
            !ended.status.success() && !exists(&terminal.place.path("ws/x")),
            "{version}"
        );
        let mut terminal = Terminal::asking(Says::yes());
        terminal.rules.landlock = Landlock(version);
        let done = terminal.bash("touch x").await;
        assert_eq!(done.sandbox.unwrap().files, Reach::All);
        assert!(done.output.contains("not sandboxed"), "{}", done.output);
    }
}
