//! A command in a namespace of processes, and where none may be made.

use agentd_protocol::line::Reach;

use super::outliving::in_workspace;
use super::*;
use crate::tool::tests::skip;

/// A terminal whose commands have one; `None`, said loudly, where none may be made.
async fn alone() -> Option<Terminal> {
    if !has_sandbox() {
        return None;
    }
    let terminal = Terminal::new();
    let done = terminal.bash("true").await;
    assert!(done.ok, "{}", done.output);
    if done.sandbox.unwrap().processes == Reach::Own {
        return Some(terminal);
    }
    skip("a namespace of processes");
    None
}

/// Another program of the same user, with something in its arguments.
struct Other(std::process::Child);

impl Other {
    fn start() -> Self {
        let mut command = std::process::Command::new("sleep");
        Self(command.args(["1000", "000031.4159"]).spawn().unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn namespace_hides_arguments_of_other_processes() {
    let Some(mut terminal) = alone().await else {
        return;
    };
    let other = Other::start();
    let look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; echo /proc/[0-9]*; \
                ls /proc/self/fd > /dev/null && cat /proc/self/comm";
    let done = terminal.bash(look).await;
    let pid = format!("/proc/{}", other.0.id());
    assert!(
        done.ok && done.output.contains("\ncat\n") && done.output.contains("/proc/1 "),
        "{}",
        done.output
    );
    assert!(!done.output.contains("31.4159"), "{}", done.output);
    assert!(
        !done.output.split_whitespace().any(|word| word == pid),
        "{}",
        done.output
    );
    // The control: as on an older system.
    terminal.rules.landlock = sandbox::Landlock(8);
    let done = terminal.bash(look).await;
    assert!(done.output.contains("000031.4159"), "{}", done.output);
    assert_eq!(done.sandbox.unwrap().processes, Reach::All);
}

#[tokio::test]
async fn namespace_tells_how_a_command_ended() {
    let Some(terminal) = alone().await else {
        return;
    };
    for (command, told) in [
        ("exit 7", "[exit code 7; sandboxed"),
        ("kill -9 $$", "[killed by signal 9; "),
        ("kill -PIPE $$", "[killed by signal 13; "),
        (
            "sleep 100 & kill -9 -1; echo there",
            "there\n[exit code 0; ",
        ),
        ("kill -9 1; sleep 0.1; echo there", "there\n[exit code 0; "),
        (
            "trap 'echo tidy; exit 3' TERM; kill -TERM $$; sleep 9",
            "tidy\n[exit code 3; ",
        ),
        (
            "setsid sleep 100 & sleep 100 &",
            "; 2 processes that it left behind were killed]",
        ),
        // Its own group and session, as a shell with jobs wants them.
        (
            "set -m; sleep 100 & kill %1; read -r _ _ _ _ group session _ < /proc/self/stat; \
             test \"$group\" -gt 0 && test \"$session\" -gt 0 && echo fine",
            "fine\n[exit code 0; ",
        ),
    ] {
        let done = terminal.bash(command).await;
        assert!(done.output.contains(told), "{command}: {}", done.output);
    }
}

#[tokio::test]
async fn namespace_ends_what_forks_for_ever() {
    let Some(terminal) = alone().await else {
        return;
    };
    // Faster than anybody could find them.
    let chain = "echo 'setsid bash hop & exit' > hop; for i in 1 2 3 4; do setsid bash hop & done; \
                 sleep 0.3";
    let done = terminal.bash(chain).await;
    assert!(done.ok, "{}", done.output);
    assert_eq!(in_workspace(&terminal), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn namespace_ends_with_whoever_made_it() {
    let Some(terminal) = alone().await else {
        return;
    };
    let run = terminal.bash("setsid sleep 1000 & echo > there; sleep 1000");
    let kill = async {
        let until = Instant::now() + DEADLINE;
        while !exists(&terminal.place.path("ws/there")) {
            assert!(Instant::now() < until, "it never started");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let keepers = std::fs::read_dir("/proc").unwrap();
        let all = keepers.filter_map(|entry| Some(entry.ok()?.path()));
        let is_maker = |pid: &PathBuf| {
            let line = std::fs::read(pid.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            let work = terminal.place.path("ws").display().to_string();
            line.contains(&format!("\0{KEEP}\0{ALONE}\0")) && line.contains(&work)
        };
        let maker = all.into_iter().find(is_maker).unwrap();
        let pid: i32 = maker
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
    };
    let (done, ()) = tokio::join!(run, kill);
    assert!(
        !done.ok && done.output.contains("how it ended is unknown"),
        "{}",
        done.output
    );
    let until = Instant::now() + DEADLINE;
    while !in_workspace(&terminal).is_empty() {
        assert!(Instant::now() < until, "{:?}", in_workspace(&terminal));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Where a part of `/proc` is hidden, as in a container, and where nobody may make a namespace.
#[tokio::test]
async fn namespace_that_may_not_be_made_is_told() {
    let Some(mut terminal) = alone().await else {
        return;
    };
    let itself = terminal.rules.program.clone();
    for (number, hindrance) in [
        "mount --bind /dev/null /proc/version",
        "echo 0 > /proc/sys/user/max_user_namespaces",
        "echo 0 > /proc/sys/user/max_pid_namespaces",
    ]
    .iter()
    .enumerate()
    {
        terminal.rules.program = hindered(&terminal, &itself, number, hindrance);
        let done = terminal.bash("echo ran >> ran; cat ran").await;
        assert!(
            done.ok && done.output.starts_with("ran\n[exit code 0; sandboxed, "),
            "{hindrance}: {}",
            done.output
        );
        assert_eq!(done.sandbox.unwrap().processes, Reach::All, "{hindrance}");
        std::fs::remove_file(terminal.place.path("ws/ran")).unwrap();
    }
}

/// timmy, in a namespace of users in which something is in its way.
fn hindered(terminal: &Terminal, itself: &Path, number: usize, hindrance: &str) -> PathBuf {
    let name = format!("hindered-{number}");
    let text = format!(
        "#!/bin/sh\nexec unshare -Urm sh -c '{hindrance} || exit 99; exec \"$@\"' sh {} \"$@\"\n",
        itself.display()
    );
    terminal.place.program(&name, &text);
    terminal.place.path(&name)
}

/// All that the user may have are in use: others may be hidden again in a moment, so nothing is shown.
#[tokio::test]
async fn namespace_that_can_not_be_made_runs_nothing() {
    let Some(mut terminal) = alone().await else {
        return;
    };
    let itself = terminal.rules.program.clone();
    let ready = terminal.place.path("ready");
    let in_use = format!(
        "echo 1 > /proc/sys/user/max_user_namespaces; \
         unshare -U sh -c \"echo > {0}; exec sleep 5\" > /dev/null 2>&1 < /dev/null & \
         until [ -e {0} ]; do :; done",
        ready.display()
    );
    terminal.rules.program = hindered(&terminal, &itself, 0, &in_use);
    let done = terminal.bash("echo ran > ran").await;
    assert!(
        !done.ok && done.output.contains("it was not run"),
        "{}",
        done.output
    );
    assert!(!exists(&terminal.place.path("ws/ran")));
}
