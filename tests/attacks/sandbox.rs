//! Attempts of a sandboxed command, on this kernel and as on each older one.
//!
//! Owns in how many turns they are made, and what follows from a kernel's age. Further fields of a row:
//! `older: N TEXT` is what is said below version N of landlock instead, and `alone` in a namespace of
//! processes, where others aren't there to be reached; `bare` is what is said without a sandbox, or `-` and why that is not tried; `bare-root` the same, where the tests run as root;
//! `needs` is the machine that it is for, and with `may` a part of it is allowed to get through.

use std::process::{Command, Stdio};

use crate::catalogue::{Row, none_failed, rows};
use crate::script;
use crate::support::{finish, skipped};
use crate::world::{OLDER, World};

/// Below this there is no sandbox.
const LEAST: u8 = 3;

/// What is said of a process that isn't there, besides what is said of one that may not be reached.
const NOT_THERE: &str = "No such process | No such file | Directory nonexistent | ESRCH | ENOENT";

fn must_at(row: &Row, version: u8, is_alone: bool) -> String {
    let older = row.field("older").and_then(|text| text.split_once(' '));
    let names_others = ["$VICTIM", "$DAEMON"].map(|name| row.tries().contains(name));
    match (older, row.field("alone")) {
        (_, Some(text)) if is_alone => text.to_owned(),
        (Some((from, text)), _) if version < from.parse::<u8>().unwrap() => text.to_owned(),
        _ if is_alone && names_others.contains(&true) => format!("{} | {NOT_THERE}", row.must()),
        _ => row.must().to_owned(),
    }
}

/// Those for this machine.
fn fitting(area: &str) -> Vec<Row> {
    let fits = |row: &Row| match row.field("needs") {
        Some("x86-64") => cfg!(target_arch = "x86_64"),
        Some("attributes") => script::has_attributes(),
        Some(other) => panic!("{other}"),
        None => true,
    };
    rows(area).into_iter().filter(fits).collect()
}

/// All attempts of an area by a command of this agent, which has this version of landlock.
fn attacked(world: &mut World, area: &str, agent: &str, version: u8) -> Vec<String> {
    let attempts = fitting(area);
    let work = world.workspace(&format!("{area}-{agent}"), &attempts);
    let before = world.snapshot();
    let last = world.turn(agent, &work, &format!("[[bash={}]]", script::RUN));
    let mut failed: Vec<String> = world.harm(&before);
    let text = last["text"].as_str().unwrap_or_default();
    let said = script::said(&work);
    if version < LEAST {
        // Nobody is there to allow it.
        if said.is_some() || !text.contains("without a sandbox") {
            failed.push(format!("a command ran without a sandbox: {last:#}"));
        }
        return named(failed, agent);
    }
    let is_told = text.contains("no signals: this kernel");
    if is_told != (version < 6) {
        failed.push(format!("what signals reach is not told: {text}"));
    }
    let is_alone = last["tool_trace"][0]["sandbox"]["processes"] == "own";
    if is_alone && agent != "timmy" {
        failed.push("an older kernel's command is in a namespace".to_owned());
    } else if !is_alone && agent == "timmy" {
        skipped("a namespace of processes");
    }
    let said = said.unwrap_or_else(|| panic!("{agent}: nothing was run: {last:#}"));
    for (number, row) in attempts.iter().enumerate() {
        let Some(said) = said.get(&number) else {
            failed.push(format!("{} was not run", row.name));
            continue;
        };
        failed.extend(
            row.judge(&must_at(row, version, is_alone), said, &world.key)
                .err(),
        );
        if got_through(row, said) {
            failed.push(format!("{}: a part of it got through:\n{said}", row.name));
        }
    }
    named(failed, agent)
}

/// Does one of its lines say what is said without a sandbox?
fn got_through(row: &Row, said: &str) -> bool {
    let bare = row.field("bare").unwrap_or_default();
    let is_meant = row.field("may").is_some() || bare == row.must();
    !is_meant && said.lines().any(|line| line == "ok" || line == bare)
}

fn named(failed: Vec<String>, agent: &str) -> Vec<String> {
    let name = |why| format!("{agent}: {why}");
    failed.into_iter().map(name).collect()
}

/// The same attempts of a command without a sandbox: they get through.
fn bare(area: &str) -> Vec<String> {
    let world = World::new("");
    let expected = |row: &Row| -> Option<String> {
        let is_root = nix::unistd::geteuid().is_root();
        let of_root = row.field("bare-root").filter(|_| is_root);
        let bare = of_root.or_else(|| row.field("bare"));
        let bare = bare.unwrap_or_else(|| panic!("{} has no control", row.name));
        (!bare.starts_with('-')).then(|| bare.to_owned())
    };
    let all = fitting(area);
    let tried: Vec<Row> = all
        .into_iter()
        .filter(|row| expected(row).is_some())
        .collect();
    let work = world.workspace(&format!("{area}-bare"), &tried);
    let mut command = Command::new("/bin/sh");
    // Started by a shell, which is what it finds as its keeper.
    command
        .args(["-c", "/bin/sh ./driver; exit 0"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TMPDIR", &work)
        .current_dir(&work)
        .stdin(Stdio::null());
    let done = finish(command, b"");
    let said = script::said(&work).unwrap_or_else(|| panic!("{done:?}"));
    let judged = tried.iter().enumerate().filter_map(|(number, row)| {
        let said = said.get(&number).map_or("", String::as_str);
        row.judge(&expected(row)?, said, &world.key).err()
    });
    named(judged.collect(), "without a sandbox")
}

fn attack(area: &str, more: &str) {
    let kernel = script::landlock();
    if kernel < LEAST {
        return skipped("a sandbox");
    }
    let mut failed = bare(area);
    let mut world = World::new(more);
    failed.extend(attacked(&mut world, area, "timmy", kernel));
    if cfg!(debug_assertions) {
        for version in OLDER.filter(|version| *version <= kernel) {
            let agent = format!("abi{version}");
            failed.extend(attacked(&mut world, area, &agent, version));
        }
    } else {
        skipped("a debug build, which can be told to do as on an older kernel");
    }
    none_failed(area, &failed);
}

#[test]
fn attacks_on_files_are_refused() {
    attack("files", "");
}

#[test]
fn attacks_on_sockets_are_refused() {
    attack("sockets", "");
}

#[test]
fn attacks_by_the_network_reach_no_sockets() {
    attack("network", "network = true");
}

#[test]
fn attacks_on_processes_are_refused() {
    attack("processes", "");
}

#[test]
fn attacks_on_the_kernel_are_refused() {
    attack("kernel", "");
}

/// Where the tests run as root, a command's user is no one else's superuser all the same, but the
/// kernel refuses other things to others.
#[test]
fn attacks_of_an_unprivileged_user_are_refused() {
    use std::os::unix::process::CommandExt as _;

    const NOBODY: u32 = 65534;
    if !nix::unistd::geteuid().is_root() {
        // All the others were that.
        return;
    }
    let as_nobody = |command: &mut Command| {
        command.env_clear();
        command.env("PATH", "/usr/bin:/bin").current_dir("/");
        command.uid(NOBODY).gid(NOBODY);
    };
    let mut reaches = Command::new(crate::support::AGENTCTL);
    reaches.arg("--version");
    as_nobody(&mut reaches);
    if reaches.output().is_err() {
        return skipped("a target directory that other users may enter");
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([
        "attacks_on_files",
        "attacks_on_sockets",
        "attacks_on_processes",
    ]);
    again.args(["attacks_on_the_kernel", "attacks_by_the_network"]);
    as_nobody(&mut again);
    let done = again.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && said.contains("5 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
