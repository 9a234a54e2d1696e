//! The state's file system says no: rows C10 to C13 of the fault catalogue, a sync that
//! fails (D4), and a store that another process keeps locked (D9).
//! Mounts are made in a namespace of the daemon's own, so nothing of them is left when it ends.
//! Not here: network file systems (C10, `platform/remote.rs`), SQLite's errors (the store's tests).

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    AGENTCTL, AGENTD, Client, Daemon, Finished, Place, Reaped, finish, kill, needs, skipped,
    wait_for,
};

/// Programs that see file systems of their own.
pub(crate) struct Mounts {
    unshare: PathBuf,
    how: &'static str,
}

impl Mounts {
    /// As root, else as root of a user namespace; `None` says that the test is skipped.
    pub(crate) fn possible() -> Option<Self> {
        let unshare = needs("unshare")?;
        let _mount = needs("mount")?;
        let place = Place::new("");
        for how in ["-m", "-Urm"] {
            let mounts = Self {
                unshare: unshare.clone(),
                how,
            };
            let tried = mounts.command(&place, "mount -t tmpfs none state", "true", &[]);
            if finish(tried, b"").code == Some(0) {
                return Some(mounts);
            }
        }
        skipped("mounts of its own: root, or user namespaces");
        None
    }

    /// Mounts with a line of shell, in the place's directory, and becomes the program.
    fn command(&self, place: &Place, mount: &str, program: &str, args: &[&str]) -> Command {
        fs::create_dir_all(place.path("state")).unwrap();
        let mut command = place.command(&self.unshare);
        command.args([self.how, "sh", "-c"]);
        command.arg(format!("cd .. && {mount} && exec \"$0\" \"$@\""));
        command.arg(program).args(args);
        command
    }

    pub(crate) fn run(&self, place: &Place, mount: &str, program: &str, args: &[&str]) -> Finished {
        finish(self.command(place, mount, program, args), b"")
    }
}

/// A disk of 16 MiB for the state.
const SMALL_DISK: &str = "mount -t tmpfs -o size=16m,mode=700 none state";
/// A daemon whose state is on one, where that can be had.
fn on_small_disk() -> Option<Daemon> {
    let (mounts, place) = (Mounts::possible()?, place());
    let command = mounts.command(&place, SMALL_DISK, AGENTD, &[]);
    Some(place.start_as(command))
}

/// The state directory as the daemon sees it.
fn seen_by(daemon: &Daemon) -> PathBuf {
    let path = daemon.path("state");
    let below = path.strip_prefix("/").unwrap();
    Path::new("/proc")
        .join(daemon.pid().to_string())
        .join("root")
        .join(below)
}

/// Writes until there is no room.
fn fill(file: &Path) {
    let mut file = fs::File::create(file).unwrap();
    for block in [&[0; 4096][..], &[0]] {
        loop {
            match file.write_all(block) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn place() -> Place {
    Place::new(&Daemon::config(""))
}

/// A prompt that needs room in the store; its agent keeps nothing itself.
fn large(key: &str) -> String {
    let text = "x".repeat(256 * 1024);
    json!({"prompt": text, "agent": "chaos", "idempotency_key": key}).to_string()
}

fn ended_well(lines: &[Value]) -> bool {
    lines.last().unwrap()["type"] == "message_end"
}

#[test]
fn c10_overlay_is_as_good_as_any_disk() {
    let Some(mounts) = Mounts::possible() else {
        return;
    };
    let place = place();
    let mount = "mount -t tmpfs none state && mkdir state/up state/work state/low && \
        mount -t overlay -o lowerdir=state/low,upperdir=state/up,workdir=state/work none state";
    let command = mounts.command(&place, mount, AGENTD, &[]);
    let daemon = place.start_as(command);
    assert!(ended_well(&daemon.ask(r#"{"prompt":"a"}"#)));
    assert_eq!(daemon.status()["state"], "ready");
    assert!(
        !daemon.log().contains("several machines"),
        "{}",
        daemon.log()
    );
}

#[test]
fn c11_state_read_only_says_what_to_do() {
    let Some(mounts) = Mounts::possible() else {
        return;
    };
    for mount in [
        "mount -t tmpfs -o ro,mode=700 none state",
        // The directory is not even there.
        "rmdir state && mount --bind . . && mount -o remount,bind,ro . && cd \"$PWD\"",
    ] {
        let place = place();
        let daemon = mounts.run(&place, mount, AGENTD, &[]);
        assert_eq!(daemon.code, Some(74), "{daemon:?}");
        let sent = mounts.run(&place, mount, AGENTCTL, &["send", "hi"]);
        assert_eq!(sent.code, Some(3), "{sent:?}");
        for (said, finished) in [("", &daemon), ("nothing was done", &sent)] {
            let text = &finished.stderr;
            assert!(
                text.contains("Read-only") && text.contains("hint: make it writable"),
                "{text}"
            );
            assert!(text.contains(said), "{text}");
        }
    }
}

/// What is accepted survives a power cut only if every name on the way to it does.
#[test]
fn c10_names_of_a_store_are_synced_first() {
    let Some(strace) = needs("strace") else {
        return;
    };
    let place = place();
    let (trace, state) = (place.path("trace"), place.path("new/er/state"));
    let mut command = place.command(strace);
    command
        .args(["-f", "-y", "-e", "trace=fsync,fdatasync,write", "-o"])
        .arg(&trace)
        .args([AGENTD, "--stdio"])
        .env("AGENTD_STATE_DIR", &state);
    let run = finish(command, b"{\"type\":\"send\",\"text\":\"hi\"}\n");
    let calls = fs::read_to_string(&trace).unwrap_or_default();
    if calls.is_empty() {
        return skipped("to be let trace a process");
    }
    let said = calls
        .lines()
        .position(|call| call.contains(r#"\"accepted\""#));
    let said = said.unwrap_or_else(|| panic!("nothing was accepted: {run:?}"));
    let synced = |path: &Path| {
        let named = format!("<{}>", path.display());
        let mut calls = calls.lines().take(said);
        calls.any(|call| call.contains("sync(") && call.contains(&named))
    };
    let parents = [
        "",
        "new",
        "new/er",
        "new/er/state",
        "new/er/state/agentd.db-wal",
    ];
    for path in parents.map(|name| place.dir.path().join(name)) {
        let path: PathBuf = path.components().collect();
        assert!(synced(&path), "{} in\n{calls}", path.display());
    }
}

/// From now on these calls of the daemon's aren't made, and give that error; until this is told to end.
fn answering(strace: &Path, daemon: &Daemon, calls: &str, error: &str) -> Option<Reaped> {
    let mut command = daemon.place.command(strace);
    command
        .args(["-f", "-qq", "-e", &format!("trace={calls}"), "-e"])
        .arg(format!("inject={calls}:error={error}"))
        .args(["-o", "/dev/null", "-p"])
        .arg(daemon.pid().to_string())
        .stdin(Stdio::null());
    let mut tracer = Reaped(command.stderr(Stdio::null()).spawn().unwrap());
    let is_traced = wait_for("it is traced, or can't be", || {
        let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        let mut threads = threads.filter_map(|thread| {
            // One may end meanwhile.
            fs::read_to_string(thread.unwrap().path().join("status")).ok()
        });
        let gave_up = tracer.0.try_wait().unwrap().is_some();
        let all = threads.all(|status| !status.contains("TracerPid:\t0"));
        (gave_up || all).then_some(!gave_up)
    });
    if !is_traced {
        skipped("to be let trace a process (`kernel.yama.ptrace_scope`)");
    }
    is_traced.then_some(tracer)
}

/// It says that it is in trouble, and takes nothing.
fn refuses_new_work(daemon: &Daemon) {
    daemon.until("it is in trouble", |status| {
        (status["state"] == "degraded").then_some(())
    });
    let refused = daemon.ask(r#"{"prompt":"c"}"#);
    assert_eq!(
        (refused.len(), &refused[0]["code"]),
        (1, &"store-failed".into()),
        "{refused:?}"
    );
}

/// Its calls are answered as ever: it is well again, and who sent `b` meanwhile has an end, which is
/// given.
fn healed(daemon: &Daemon, tracer: &Reaped, first: &mut Client) -> Value {
    // It lets go of the daemon when it is told to end, not when it is killed.
    kill(tracer.0.id(), Signal::SIGTERM);
    daemon.until("it is well again", |status| {
        (status["state"] == "ready").then_some(())
    });
    let mut lines = first.rest();
    lines.retain(|line| line["type"] != "pong");
    let alone = lines.len() == 1;
    let end = lines.pop().expect("an answer");
    assert!(
        end["text"] == "b" || (alone && end["code"] == "store-failed"),
        "{lines:?} {end}"
    );
    end
}

/// The kernel says it once, and may have dropped what it could not write: a second sync would work.
#[test]
fn d4_failed_sync_is_never_called_durable() {
    let Some(strace) = needs("strace") else {
        return;
    };
    let daemon = Daemon::start();
    assert!(ended_well(&daemon.ask(r#"{"prompt":"a"}"#)));
    let Some(failing) = answering(&strace, &daemon, "fsync,fdatasync", "EIO") else {
        return;
    };
    let asks = r#"{"prompt":"b","idempotency_key":"b"}"#;
    let mut first = daemon.connect();
    first.send(asks);
    first.send(r#"{"type":"ping"}"#);
    // That is answered behind it: now it is on its way to the disk.
    wait_for("a pong", || first.peek().contains("pong").then_some(()));
    refuses_new_work(&daemon);
    // Whether its rows are on the disk nobody knows: it isn't told more, unless another sync failed
    // before its own, and it was refused.
    assert!(!first.peek().contains("accepted"), "{}", first.peek());
    let end = healed(&daemon, &failing, &mut first);
    let again = daemon.ask(asks);
    assert!(ended_well(&again), "{again:?}");
    if end["text"] == "b" {
        assert_eq!(again.last().unwrap()["job"], end["job"], "{again:?}");
    }
}

#[test]
fn c11_store_turned_read_only_refuses_and_heals() {
    let Some(strace) = needs("strace") else {
        return;
    };
    let daemon = Daemon::start();
    assert!(ended_well(&daemon.ask(r#"{"prompt":"a"}"#)));
    // A file system with open files can't be made read-only by force; its answers can.
    let Some(read_only) = answering(&strace, &daemon, "pwrite64", "EROFS") else {
        return;
    };
    // Whether the first commit is in the file can't be seen now, so its sender waits.
    let mut first = daemon.connect();
    first.send(r#"{"prompt":"b"}"#);
    refuses_new_work(&daemon);
    let sent = daemon.agentctl(&["send", "c"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    healed(&daemon, &read_only, &mut first);
    assert!(ended_well(&daemon.ask(r#"{"prompt":"d"}"#)));
}

#[test]
fn c12_full_disk_refuses_loses_nothing_and_heals() {
    let Some(mounts) = Mounts::possible() else {
        return;
    };
    let place = place();
    let ledger = place.path("ledger");
    let mut command = mounts.command(&place, SMALL_DISK, AGENTD, &[]);
    command.env("CHAOS_LEDGER", &ledger);
    let daemon = place.start_as(command);
    assert!(ended_well(&daemon.ask(r#"{"prompt":"stored"}"#)));
    let gate = daemon.path("gate");
    let mut before = daemon.connect();
    let text = format!("chaos: wait-file {}; emit 20000", gate.display());
    before.send(&json!({"type": "send", "agent": "chaos", "text": text}).to_string());
    before.until("running");
    let filler = seen_by(&daemon).join("fill");
    fill(&filler);
    // One that was accepted ends; of those that come the log has room for a few.
    fs::write(&gate, "").unwrap();
    let mut accepted = Vec::new();
    let (key, refused) = (0..20)
        .find_map(|number| {
            let key = format!("k{number}");
            let mut client = daemon.connect();
            client.send(&large(&key));
            let first = client.next().unwrap();
            if first["type"] == "accepted" {
                accepted.push(client);
                return None;
            }
            Some((key, first))
        })
        .expect("a full disk");
    assert_eq!(
        (&refused["code"], &refused["retryable"]),
        (&"disk-full".into(), &true.into()),
        "{refused:?}"
    );
    let why = refused["error"].as_str().unwrap();
    assert!(why.contains("there is no room on the disk"), "{why}");
    let status = daemon.status();
    assert_eq!(status["state"], "degraded", "{status}");
    let mut command = daemon.place.command(AGENTCTL);
    command.args(["send", "--agent", "chaos", "-"]);
    let text = format!("chaos: ledger; {}", "y".repeat(256 * 1024));
    let sent = finish(command, text.as_bytes());
    assert_eq!(sent.code, Some(3), "{sent:?}");
    assert!(sent.stderr.contains("no room"), "{sent:?}");
    let stored = daemon.ask(r#"{"type":"collect","jobs":["j1"],"timeout":0}"#);
    assert_eq!(stored[0]["results"][0]["text"], "stored", "{stored:?}");
    fs::remove_file(&filler).unwrap();
    for mut client in std::iter::once(before).chain(accepted) {
        let end = client.last();
        assert_eq!(end["stop"], "end_turn", "{}", end["error"]);
    }
    daemon.until("it is well again", |status| {
        (status["state"] == "ready").then_some(())
    });
    let again = daemon.ask(&large(&key));
    assert_eq!(again[0]["replayed"], false, "a refused key is free");
    assert!(ended_well(&again));
    assert!(!ledger.exists(), "what was refused ran");
}

/// Who has room for the beginning of a turn has it for its end.
#[test]
fn c12_full_disk_takes_ends_of_running_turns() {
    let Some(daemon) = on_small_disk() else {
        return;
    };
    let gate = daemon.path("gate");
    let text = format!("chaos: wait-file {}; emit 30000", gate.display());
    let send = json!({"type": "send", "agent": "chaos", "text": text}).to_string();
    let running: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = daemon.connect();
            client.send(&send);
            client.until("running");
            client
        })
        .collect();
    let reserve = seen_by(&daemon).join("agentd.db.reserve");
    assert!(reserve.exists());
    let filler = seen_by(&daemon).join("fill");
    fill(&filler);
    // None of these runs: what is kept is for the ends of the three.
    let refused = |size: usize| {
        let mut client = daemon.connect();
        let (text, start) = ("x".repeat(size), "2099-01-01T00:00:00Z");
        let send = json!({"type": "send", "agent": "timmy", "text": text, "start_at": start});
        client.request(&send.to_string())["code"] == "disk-full"
    };
    for size in [256 * 1024, 16 * 1024] {
        wait_for("a full disk", || refused(size).then_some(()));
    }
    fs::write(&gate, "").unwrap();
    for mut client in running {
        assert_eq!(client.last()["stop"], "end_turn");
    }
    assert!(!reserve.exists());
    assert!(refused(16), "new work has no part in it");
    // Not all that it took comes back.
    let filled = fs::File::options().write(true).open(&filler).unwrap();
    let length = filled.metadata().unwrap().len();
    filled.set_len(length - 6 * 1024 * 1024).unwrap();
    daemon.until("it is well again", |status| {
        (status["state"] == "ready").then_some(())
    });
    assert!(reserve.exists(), "it is there for the next time");
    assert!(ended_well(&daemon.ask(r#"{"prompt":"after"}"#)));
}

/// A log that may grow as it likes takes the room that its contents need in the file.
#[test]
fn c12_small_disk_is_for_jobs_not_logs() {
    let Some(daemon) = on_small_disk() else {
        return;
    };
    let mut stored = 0;
    for number in 0..200 {
        let mut client = daemon.connect();
        let answer = client.request(&large(&format!("k{number}")));
        if answer["code"] == "disk-full" {
            break;
        }
        assert_eq!(answer["type"], "accepted", "{answer}");
        // The end of the last one may wait for room.
        let full = daemon.until("an end, or a full disk", |status| {
            let open = ["in_flight", "queued"].map(|name| status["rpc"][name].as_u64().unwrap());
            let is_full = status["state"] == "degraded";
            (is_full || open == [0, 0]).then_some(open != [0, 0])
        });
        if full {
            break;
        }
        assert_eq!(client.last()["type"], "message_end");
        stored += 1;
    }
    // Each is stored as it came and as it was answered; 17 fit where the log gives its room up and some is kept.
    assert!((14..200).contains(&stored), "{stored} of half a MiB in 16");
}

#[test]
fn c12_c13_one_shot_without_room_does_nothing() {
    let Some(mounts) = Mounts::possible() else {
        return;
    };
    let full = "dd if=/dev/zero of=state/fill bs=4k 2>/dev/null";
    for (row, mount) in [
        ("no block", format!("size=64k none state; {full}")),
        (
            "a block or two",
            format!("size=64k none state; {full}; truncate -s 52k state/fill"),
        ),
        ("no file", "nr_inodes=1 none state".to_owned()),
        ("a file or two", "nr_inodes=4 none state".to_owned()),
        ("all but the log", "nr_inodes=5 none state".to_owned()),
    ] {
        let place = place();
        let mount = format!("{{ mount -t tmpfs -o mode=700,{mount}; true; }}");
        // Afterwards nothing is left over that would grow with each try.
        let send = "\"$1\" send hi; code=$?; ls state/instances 2>/dev/null; exit $code";
        let sent = mounts.run(&place, &mount, "sh", &["-c", send, "sh", AGENTCTL]);
        assert_eq!((sent.code, &*sent.stdout), (Some(3), ""), "{row}: {sent:?}");
        for says in ["No space left", "hint: free some room", "nothing was done"] {
            assert!(sent.stderr.contains(says), "{row}: {sent:?}");
        }
        let refused = mounts.run(&place, &mount, AGENTCTL, &["send", "hi", "--no-fallback"]);
        assert_eq!(refused.code, Some(69), "{row}: {refused:?}");
    }
}

#[test]
fn d9_store_locked_by_another_process_names_it() {
    let place = place();
    // As a daemon does that makes the store, and is stopped in the middle of it.
    let holding = place.held_store();
    let me = std::process::id();
    let sent = place.agentctl(&["send", "hi"]);
    assert_eq!((sent.code, &*sent.stdout), (Some(3), ""), "{sent:?}");
    for says in [
        format!("is locked by process {me}"),
        format!("kill -CONT {me}"),
        "nothing was done".to_owned(),
    ] {
        assert!(sent.stderr.contains(&says), "{sent:?}");
    }
    holding.execute_batch("ROLLBACK").unwrap();
    drop(holding);
    let sent = place.agentctl(&["send", "hi"]);
    assert_eq!((sent.code, &*sent.stdout), (Some(0), "hi\n"), "{sent:?}");
}

#[test]
fn c11_what_is_stored_is_read_read_only() {
    let Some(mounts) = Mounts::possible() else {
        return;
    };
    let place = place();
    let stored = format!(
        "mount -t tmpfs -o mode=700 none state && {AGENTCTL} send -s main hello && \
         mount -o remount,ro state"
    );
    for words in [
        &["jobs"][..],
        &["jobs", "j1"],
        &["sessions"],
        &["sessions", "show", "main"],
        &["sessions", "search", "hello"],
        &["history", "main"],
        &["export"],
        &["collect", "j1"],
    ] {
        let read = mounts.run(&place, &stored, AGENTCTL, words);
        assert_eq!(read.code, Some(0), "{words:?}: {read:?}");
        let (_sent, said) = read.stdout.split_once("hello\n").unwrap();
        assert!(
            said.contains("hello") || said.contains("main"),
            "{words:?}: {read:?}"
        );
        assert!(!read.stderr.contains("error: "), "{words:?}: {read:?}");
    }
    let past = mounts.run(&place, &stored, AGENTCTL, &["usage"]);
    assert_eq!(past.code, Some(0), "{past:?}");
    let looked = mounts.run(&place, &stored, AGENTCTL, &["doctor"]);
    assert!(
        looked.stdout.contains("can't be written: Read-only"),
        "{looked:?}"
    );
    let left = fs::read_dir(std::env::temp_dir()).unwrap();
    let left = left.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    assert_eq!(
        left.filter(|name| name.starts_with("agentd-past-")).count(),
        0
    );
}

#[test]
fn c12_a_run_that_only_reads_changes_nothing() {
    let place = place();
    let mut command = place.command(AGENTD);
    command.args(["--stdio", "--past"]);
    let refused = finish(
        command,
        b"{\"type\":\"send\",\"text\":\"hi\"}\n{\"type\":\"jobs\"}\n",
    );
    assert!(
        refused.stdout.contains("only reads what is stored"),
        "{refused:?}"
    );
    assert!(refused.stdout.contains("\"jobs\":[]"), "{refused:?}");
}

#[test]
fn c12_start_on_a_full_disk_says_so() {
    let Some(mounts) = Mounts::possible() else {
        return;
    };
    let place = place();
    let full = "mount -t tmpfs -o size=128k,mode=700 none state && \
        { cat /dev/zero > state/fill; true; }";
    for words in [&["start"][..], &["restart"]] {
        for _ in 0..3 {
            let failed = mounts.run(&place, full, AGENTCTL, words);
            assert_eq!(failed.code, Some(3), "{words:?}: {failed:?}");
            let text = failed.stderr.to_lowercase();
            assert!(text.contains("no space"), "{words:?}: {failed:?}");
            assert!(text.contains("free some room"), "{words:?}: {failed:?}");
        }
    }
    let later = format!(
        "mount -t tmpfs -o size=4m,mode=700 none state && {AGENTCTL} send hi && \
         {{ cat /dev/zero > state/fill; true; }}"
    );
    let sent = mounts.run(&place, &later, AGENTCTL, &["send", "hi"]);
    assert_ne!(sent.code, Some(0), "{sent:?}");
    assert!(!sent.stderr.contains("ERROR"), "{sent:?}");
}

#[test]
fn c12_backup_to_a_full_disk_leaves_nothing() {
    let Some(mounts) = Mounts::possible() else {
        return;
    };
    let place = place();
    let mount = "mkdir small && mount -t tmpfs -o size=64k,mode=700 none small";
    let command = mounts.command(&place, mount, AGENTD, &[]);
    let daemon = place.start_as(command);
    let send = json!({"prompt": "x".repeat(512 * 1024)});
    assert!(ended_well(&daemon.ask(&send.to_string())));
    let copy = daemon.path("small/copy.db");
    let made = daemon.agentctl(&["backup", copy.to_str().unwrap()]);
    assert_ne!(made.code, Some(0), "{made:?}");
    let left = fs::read_dir(seen_by(&daemon).with_file_name("small"));
    let left: Vec<_> = left.unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
