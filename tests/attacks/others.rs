//! Attempts of an agent's own program without a sandbox, and of another user of the machine.
//!
//! Owns who runs the script. Attempts of an agent are made twice: by its process, and by one that left
//! it. A further field of a row: `bare` is what is said to whoever is not inside, or to the user
//! itself; `-` and why that is not tried.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::catalogue::{Row, none_failed, rows};
use crate::script;
use crate::support::{Finished, finish};
use crate::world::World;

/// The user that owns nothing.
const NOBODY: u32 = 65534;

/// Runs the script of a workspace without a sandbox.
fn run(work: &Path, change: impl FnOnce(&mut Command)) -> Finished {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", script::RUN])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("WAY", "ask")
        .current_dir(work)
        .stdin(Stdio::null());
    change(&mut command);
    finish(command, b"")
}

fn judged(attempts: &[Row], work: &Path, key: &str, bare: bool) -> Vec<String> {
    let said = script::said(work).unwrap_or_default();
    let mut failed = Vec::new();
    for (number, row) in attempts.iter().enumerate() {
        let must = if bare {
            row.field("bare").unwrap()
        } else {
            row.must()
        };
        if !must.starts_with('-') {
            let said = said.get(&number).map_or("", String::as_str);
            failed.extend(row.judge(must, said, key).err());
        }
    }
    failed
}

/// Those with a control that can be tried.
fn controls(attempts: &[Row]) -> Vec<Row> {
    let tried = |row: &&Row| !row.field("bare").unwrap().starts_with('-');
    attempts.iter().filter(tried).cloned().collect()
}

#[test]
fn attacks_by_an_agent_are_forbidden() {
    let mut world = World::new("[agents.sh]\nkind = \"exec\"\ncommand = [\"/bin/sh\"]\n");
    let attempts = rows("inside");
    let mut failed = Vec::new();
    for way in ["ask", "away ask", "gone"] {
        let work = world.workspace(&format!("inside-{}", way.len()), &attempts);
        let before = world.snapshot();
        let text = format!(
            "cd {} && WAY='{way}' {}",
            work.display(),
            "/bin/sh ./driver"
        );
        let last = world.turn("sh", &work, &text);
        assert!(script::said(&work).is_some(), "{last:#}");
        let found = judged(&attempts, &work, &world.key, false);
        failed.extend(found.iter().map(|why| format!("{way}: {why}")));
        failed.extend(world.harm(&before));
    }
    assert_eq!(world.daemon.status()["state"], "ready");
    // Whoever is not inside may.
    let tried = controls(&attempts);
    let work = world.workspace("inside-bare", &tried);
    run(&work, |_| {});
    failed.extend(judged(&tried, &work, &world.key, true));
    none_failed("inside", &failed);
}

#[test]
fn attacks_by_another_user_are_refused() {
    if !nix::unistd::geteuid().is_root() {
        // Also where nothing may be missing: CI need not be root.
        return crate::support::skips::say("root");
    }
    let mut world = World::new("");
    let mode = |path: &Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).unwrap();
    };
    // What keeps them out is what agentd itself looks after.
    mode(world.daemon.place.dir.path(), 0o755);
    mode(&world.daemon.place.socket(), 0o666);
    let attempts = rows("users");
    let work = world.workspace("users", &attempts);
    mode(&work, 0o777);
    let before = world.snapshot();
    let done = run(&work, |command| {
        command.uid(NOBODY).gid(NOBODY);
    });
    assert!(script::said(&work).is_some(), "{done:?}");
    let mut failed = judged(&attempts, &work, &world.key, false);
    failed.extend(world.harm(&before));
    let tried = controls(&attempts);
    let work = world.workspace("users-bare", &tried);
    run(&work, |_| {});
    failed.extend(judged(&tried, &work, &world.key, true));
    none_failed("users", &failed);
}
