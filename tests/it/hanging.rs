//! Calls that never come back: a directory whose file system doesn't answer, a journal that nobody
//! reads. Whoever named it is told; everybody else is served as ever.
//!
//! A file system of the test's own says nothing from some moment on. It is in a namespace of the
//! test's, with whatever else is mounted there, and gone when the test is.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::acp_server::editor::Editor;
use crate::fuse::{ACCESS, ANYTHING, FileSystem, OPEN, alone, mount};
use crate::support::{AGENTCTL, AGENTD, Daemon, Place, Reaped, kill, lines, skipped, wait_for};

/// Runs a test in a namespace for its mounts, or says that it is skipped.
fn with_mounts_of_its_own(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new();
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let running = thread.name(name).spawn(move || {
        if alone() {
            test();
        } else {
            skipped("mounts of its own: root");
        }
    });
    if let Err(panic) = running.unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

fn with_file_system(test: impl FnOnce(Daemon, FileSystem) + Send + 'static) {
    with_mounts_of_its_own(|| {
        let place = Place::new(&Daemon::config(""));
        match FileSystem::new() {
            Some(files) => test(place.start(), files),
            None => skipped("FUSE: `/dev/fuse`"),
        }
    });
}

fn send(text: &str, cwd: &str) -> Value {
    json!({"type": "send", "agent": "chaos", "text": text, "cwd": cwd})
}

fn pings(daemon: &Daemon) {
    let answer = daemon.ask(r#"{"type":"ping"}"#);
    assert_eq!(answer[0]["type"], "pong", "{answer:?}");
}

/// Its threads, but for those that read the store, which come and go with what is asked; and its
/// children.
fn tasks(pid: u32) -> (usize, usize) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let (mut threads, mut children) = (0, 0);
    for task in tasks.flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        threads += usize::from(!matches!(name.trim(), "reader" | "reads"));
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children += text.split_whitespace().count();
    }
    (threads, children)
}

fn stops(daemon: Daemon) {
    kill(daemon.pid(), Signal::SIGTERM);
    let (place, status) = daemon.left();
    assert!(status.success(), "{status}");
    // Nobody has its lock or its socket.
    let _log = std::fs::remove_file(place.path("state/agentd.log"));
    drop(place.start());
}

#[test]
fn hung_directory_stops_one_send_and_nobody_else() {
    with_file_system(|daemon, files| {
        files.ignore(ANYTHING);
        let mut hangs = daemon.connect();
        hangs.send(&send("chaos:say a", &files.path("")).to_string());
        pings(&daemon);
        let elsewhere = daemon.path("home");
        let turn = send("chaos:say b", elsewhere.to_str().unwrap());
        let turn = daemon.ask(&turn.to_string()).pop().unwrap();
        assert_eq!(turn["text"], "b", "{turn}");
        let refused = hangs.last();
        assert_eq!(refused["code"], "invalid-request", "{refused}");
        let error = refused["error"].as_str().unwrap();
        assert!(error.contains("the directory does not answer"), "{error}");

        // A thousand more hang nobody.
        let (threads, children) = tasks(daemon.pid());
        let mut many = daemon.connect();
        let paths: Vec<String> = (0..500).map(|at| files.path(&format!("d{at}"))).collect();
        for (id, path) in paths.iter().enumerate() {
            let mut line = send("chaos:say a", path);
            line["id"] = id.into();
            many.send(&line.to_string());
            line["id"] = format!("attach{id}").into();
            line["cwd"] = elsewhere.to_str().into();
            line["attachments"] = json!([{ "path": path }]);
            many.send(&line.to_string());
        }
        for _ in 0..1000 {
            let refused = many.last();
            assert_eq!(refused["code"], "invalid-request", "{refused}");
        }
        let (threads_now, children_now) = tasks(daemon.pid());
        assert!(threads_now <= threads + 2, "{threads} > {threads_now}");
        assert!(children_now <= children + 2, "{children} > {children_now}");
        stops(daemon);
    });
}

#[test]
fn hung_directory_after_acceptance_ends_its_turn_alone() {
    with_file_system(|daemon, files| {
        // A look goes well, entering hangs; so does reading.
        files.ignore(ACCESS);
        let mut hangs = daemon.connect();
        let mut line = send("chaos:say a", &files.path("below"));
        line["stream"] = true.into();
        hangs.send(&line.to_string());
        assert_eq!(hangs.next().unwrap()["type"], "accepted");
        pings(&daemon);
        let elsewhere = daemon.path("home");
        let turn = send("chaos:say b", elsewhere.to_str().unwrap());
        let turn = daemon.ask(&turn.to_string()).pop().unwrap();
        assert_eq!(turn["text"], "b", "{turn}");
        let failed = hangs.last();
        let error = failed["error"].as_str().unwrap_or_default();
        assert!(error.contains("did not answer within"), "{failed}");
        stops(daemon);
    });
}

/// An agent whose program hangs, and directories of PATH that do: one by itself, one by a link.
fn with_hanging_programs(test: impl FnOnce(Place, String, FileSystem) + Send + 'static) {
    with_mounts_of_its_own(|| {
        let Some(files) = FileSystem::new() else {
            return skipped("FUSE: `/dev/fuse`");
        };
        let program = files.path("file");
        let there = format!("[agents.there]\nkind = \"jsonl\"\ncommand = [{program:?}]\n");
        let place = Place::new(&Daemon::config(&there));
        let bin = place.path("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(&program, bin.join("pi")).unwrap();
        let path = format!("{}:{}:/usr/bin:/bin", files.path("bin"), bin.display());
        test(place, path, files);
    });
}

fn turns_end(daemon: &Daemon) {
    let turn = send("chaos:say b", daemon.path("home").to_str().unwrap());
    let turn = daemon.ask(&turn.to_string()).pop().unwrap();
    assert_eq!(turn["text"], "b", "{turn}");
}

#[test]
fn hung_programs_stop_their_own_agents_alone() {
    with_hanging_programs(|place, path, files| {
        let daemon = place.start_with(&[("PATH", &path)]);
        let files = files;
        files.ignore(ANYTHING);
        let (mut list, mut hangs) = (daemon.connect(), daemon.connect());
        list.send(r#"{"type":"agents"}"#);
        hangs.send(r#"{"type":"send","agent":"there","text":"x"}"#);
        pings(&daemon);
        turns_end(&daemon);
        let listed = list.until("agents").remove(0);
        let row = |name: &str| {
            let mut rows = listed["agents"].as_array().unwrap().iter();
            rows.find(|row| row["name"] == name).unwrap().clone()
        };
        assert_eq!(row("chaos")["usable"], true, "{listed:#}");
        for name in ["there", "pi"] {
            let row = row(name).to_string();
            assert!(row.contains("does not answer"), "{row}");
        }
        let failed = hangs.last();
        assert_eq!(failed["type"], "error", "{failed}");
        stops(daemon);
    });
}

#[test]
fn hung_programs_keep_no_daemon_from_starting() {
    with_hanging_programs(|place, path, files| {
        files.ignore(ANYTHING);
        let daemon = place.start_with(&[("PATH", &path)]);
        let files = files;
        turns_end(&daemon);
        let refused = daemon.ask(r#"{"type":"send","agent":"there","text":"x"}"#);
        let refused = refused[0]["error"].as_str().unwrap_or_default();
        assert!(refused.contains("does not answer"), "{refused}");
        stops(daemon);
        drop(files);
    });
}

#[test]
fn hung_file_to_attach_is_refused_alone() {
    with_file_system(|daemon, files| {
        let mut line = send("chaos:attached", daemon.path("home").to_str().unwrap());
        line["attachments"] = json!([{ "path": files.path("file") }]);
        let read = daemon.ask(&line.to_string()).pop().unwrap();
        assert_eq!(read["type"], "message_end", "{read}");
        files.ignore(OPEN);
        let mut hangs = daemon.connect();
        hangs.send(&line.to_string());
        pings(&daemon);
        let refused = hangs.last();
        let error = refused["error"].as_str().unwrap();
        assert!(error.contains("does not answer"), "{refused}");
        stops(daemon);
    });
}

#[test]
fn hung_directory_takes_no_backup_and_stops_nobody() {
    with_file_system(|daemon, files| {
        files.ignore(ANYTHING);
        let mut asks = daemon.connect();
        // It stays after its first answer.
        asks.request(r#"{"type":"hello"}"#);
        let backup = json!({"type": "backup", "id": 1, "path": files.path("copy.db")});
        asks.send(&backup.to_string());
        let elsewhere = daemon.path("home");
        let turn = send("chaos:say b", elsewhere.to_str().unwrap());
        let turn = daemon.ask(&turn.to_string()).pop().unwrap();
        assert_eq!(turn["text"], "b", "{turn}");
        let refused = asks.last();
        assert_eq!(refused["type"], "error", "{refused}");
        let error = refused["error"].as_str().unwrap();
        assert!(error.contains("does not answer"), "{error}");
        // The next one goes where there is a disk.
        let kept = daemon.path("copy.db");
        asks.send(&json!({"type": "backup", "id": 2, "path": kept}).to_string());
        let made = asks.next().unwrap();
        assert_eq!(made["type"], "backup", "{made}");
        stops(daemon);
    });
}

#[test]
fn hung_directory_of_a_shell_stops_no_command() {
    with_file_system(|daemon, files| {
        let script = format!(
            "cd {:?} && echo in && read go && exec \"$0\" \"$@\"",
            files.at
        );
        let in_it = |args: &[&str]| {
            let mut command: Command = daemon.place.command("/bin/sh");
            command.args(["-c", &script, AGENTCTL]).args(args);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = Reaped(command.spawn().unwrap());
            let said = lines(child.0.stdout.take().unwrap());
            let first = said.recv_timeout(crate::support::DEADLINE).unwrap();
            assert_eq!(first, "in");
            (child, said)
        };
        let mut commands = [in_it(&["status"]), in_it(&["jobs"]), in_it(&["agents"])];
        files.ignore(ANYTHING);
        for (child, said) in &mut commands {
            child.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
            let status = wait_for("agentctl ends", || child.0.try_wait().unwrap());
            assert!(status.success(), "{status}: {:?}", said.try_iter().last());
        }
    });
}

#[test]
fn log_on_a_disk_that_hangs_stops_nobody() {
    let daemon = Daemon::start();
    let log = daemon.path("state/agentd.log");
    std::fs::remove_file(&log).unwrap();
    // Opened for writing it waits for a reader, who never comes.
    nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let turn = send("chaos:say a", daemon.path("home").to_str().unwrap());
    for _ in 0..3 {
        let turn = daemon.ask(&turn.to_string()).pop().unwrap();
        assert_eq!(turn["text"], "a", "{turn}");
    }
    stops(daemon);
}

#[test]
fn journal_that_nobody_reads_stops_nobody() {
    with_mounts_of_its_own(|| {
        let place = Place::new(&Daemon::config(""));
        assert!(mount("none", Path::new("/run"), "tmpfs", "", 0));
        std::fs::create_dir_all("/run/systemd/journal").unwrap();
        let journal = UnixDatagram::bind("/run/systemd/journal/socket").unwrap();
        // The harness writes standard error into this file, which is the stream to the journal then.
        let stream = File::create(place.path("log")).unwrap().metadata().unwrap();
        let stream = format!("{}:{}", stream.dev(), stream.ino());
        let mut command = place.command(AGENTD);
        command
            .env("JOURNAL_STREAM", stream)
            .env("AGENTD_LOG", "debug");
        let daemon = place.start_as(command);
        let turn = send("chaos:say a", daemon.path("home").to_str().unwrap());
        for _ in 0..20 {
            let turn = daemon.ask(&turn.to_string()).pop().unwrap();
            assert_eq!(turn["text"], "a", "{turn}");
        }
        let place = daemon.ask(r#"{"type":"log_level"}"#);
        assert_eq!(place[0]["to"], "journal", "{place:?}");
        journal.set_nonblocking(true).unwrap();
        let mut entry = [0; 64 * 1024];
        wait_for("what was lost is told", || {
            daemon.ask(&turn.to_string());
            let length = journal.recv(&mut entry).ok()?;
            let text = String::from_utf8_lossy(&entry[..length]).into_owned();
            text.contains("lines of the log were not read in time")
                .then_some(())
        });
    });
}

#[test]
fn send_says_soon_that_the_disk_hangs() {
    let place = Place::new(&Daemon::config(""));
    let daemon = place.start_with(&[("AGENTD_FAILPOINT", "store-hangs")]);
    let hangs = daemon.path("state/agentd.hangs");
    std::fs::write(&hangs, "").unwrap();
    let begun = std::time::Instant::now();
    let sent = daemon.agentctl(&["send", "hi"]);
    let took = begun.elapsed();
    assert_eq!(sent.code, Some(75), "{sent:?}");
    assert!(took < std::time::Duration::from_secs(20), "{took:?}");
    assert!(sent.stderr.contains("not answered for 10 s"), "{sent:?}");
    assert_eq!(daemon.status()["state"], "degraded");
    let status = daemon.agentctl(&["status"]);
    assert!(
        !status.stderr.contains("restore"),
        "nothing is lost: {status:?}"
    );
    // Who comes then need not wait at all.
    let begun = std::time::Instant::now();
    assert_eq!(daemon.agentctl(&["send", "b"]).code, Some(75));
    assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    std::fs::remove_file(&hangs).unwrap();
    daemon.until("it is well again", |status| {
        (status["state"] == "ready").then_some(())
    });
    let mut words = sent.stderr.split_whitespace();
    words.find(|word| *word == "--idempotency-key");
    let key = words.next().unwrap();
    let again = daemon.agentctl(&["send", "hi", "--idempotency-key", key]);
    assert_eq!((again.code, &*again.stdout), (Some(0), "hi\n"), "{again:?}");
    let jobs = daemon.agentctl(&["jobs", "--json"]).stdout;
    assert_eq!(jobs.matches("\"job\":").count(), 1, "it ran once: {jobs}");
}

#[test]
fn send_cancelled_in_a_hang_never_runs() {
    let place = Place::new(&Daemon::config(""));
    let daemon = place.start_with(&[("AGENTD_FAILPOINT", "store-hangs")]);
    let hangs = daemon.path("state/agentd.hangs");
    std::fs::write(&hangs, "").unwrap();
    let mut command = daemon.place.command(AGENTCTL);
    command.args(["send", "--agent", "chaos", "chaos:hang"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut sending = Reaped(command.spawn().unwrap());
    daemon.until("it waits", |status| {
        (status["rpc"]["queued"] == 1).then_some(())
    });
    kill(sending.0.id(), Signal::SIGINT);
    wait_for("it leaves", || sending.0.try_wait().unwrap());
    std::fs::remove_file(&hangs).unwrap();
    wait_for("it is cancelled", || {
        let rows = daemon.ask(r#"{"type":"jobs"}"#).remove(0);
        (rows["jobs"][0]["state"] == "cancelled").then_some(())
    });
}

#[test]
fn state_on_a_disk_that_hangs_is_told() {
    with_mounts_of_its_own(|| {
        let Some(files) = FileSystem::new() else {
            return skipped("FUSE: `/dev/fuse`");
        };
        let place = Place::new(&Daemon::config(""));
        let state = files.path("state");
        files.ignore(ANYTHING);
        let says = |program: &str, words: &[&str], what: &str| {
            let mut command = place.command(program);
            command.args(words).env("AGENTD_STATE_DIR", &state);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            let mut asked = Reaped(command.spawn().unwrap());
            let said = lines(asked.0.stderr.take().unwrap());
            wait_for(what, || {
                said.try_iter()
                    .any(|line| line.contains(what))
                    .then_some(())
            });
            asked
        };
        let _daemon = says(AGENTD, &[], "still starting after 10 s");
        let asked = [
            &["send", "hi"] as &[&str],
            &["send", "hi", "--wait", "3s"],
            &["status"],
            &["jobs"],
            &["sessions"],
            &["stop"],
        ]
        .map(|words| {
            let begun = std::time::Instant::now();
            let asked = says(AGENTCTL, words, "its disk hangs");
            assert!(
                begun.elapsed() < std::time::Duration::from_secs(10),
                "{words:?}"
            );
            asked
        });
        // The kernel keeps a process as long as one of its threads waits for such a disk.
        drop(files);
        for mut asked in asked {
            let ended = wait_for("it leaves", || asked.0.try_wait().unwrap());
            assert_eq!(ended.code(), Some(69));
        }
    });
}

#[test]
fn changes_say_soon_that_the_disk_hangs() {
    let place = Place::new(&Daemon::config(""));
    let daemon = place.start_with(&[("AGENTD_FAILPOINT", "store-hangs")]);
    let mut running = daemon.connect();
    running.send(r#"{"type":"send","agent":"chaos","session":"busy","text":"chaos:hang"}"#);
    running.until("accepted");
    let idle = daemon.agentctl(&[
        "send",
        "--agent",
        "chaos",
        "--session",
        "idle",
        "chaos:say a",
    ]);
    assert_eq!(idle.code, Some(0), "{idle:?}");
    let hangs = daemon.path("state/agentd.hangs");
    std::fs::write(&hangs, "").unwrap();
    let asked = [
        &["sessions", "new", "new", "--agent", "chaos"] as &[&str],
        &["sessions", "close", "idle"],
        &["abort", "busy"],
    ];
    std::thread::scope(|scope| {
        for words in asked {
            let place = &daemon.place;
            scope.spawn(move || {
                let begun = std::time::Instant::now();
                let said = place.agentctl(words);
                let took = begun.elapsed();
                assert_eq!(said.code, Some(75), "{words:?} {said:?}");
                assert!(took < std::time::Duration::from_secs(20), "{took:?}");
                assert!(
                    said.stderr.contains("its disk may hang"),
                    "{words:?} {said:?}"
                );
            });
        }
    });
    std::fs::remove_file(&hangs).unwrap();
}

/// What is cancelled before anybody knows whether it was accepted doesn't run when it is.
#[test]
fn faces_cancel_what_hangs_for_good() {
    let place = Place::new(&Daemon::config(""));
    let daemon = place.start_with(&[("AGENTD_FAILPOINT", "store-hangs")]);
    let place = &daemon.place;
    let mut acp = Editor::start(place, &["--agent", "chaos"]);
    let session = acp.open(place);
    let mut pi = Editor::of(place, &["pi", "--mode", "rpc", "--agent", "chaos"]);
    // Their sessions are known: else these are looked for first.
    let prompt = acp.prompt(&session, "chaos:say a");
    assert_eq!(acp.answer(prompt)["result"]["stopReason"], "end_turn");
    pi.say(&json!({"type": "prompt", "message": "chaos:say b"}));
    pi.until("its end", |line| line["type"] == "agent_settled");
    let hangs = daemon.path("state/agentd.hangs");
    std::fs::write(&hangs, "").unwrap();
    let prompt = acp.prompt(&session, "chaos:hang");
    acp.notify("session/cancel", &json!({"sessionId": session}));
    pi.say(&json!({"type": "prompt", "message": "chaos:hang"}));
    pi.say(&json!({"type": "abort"}));
    let unknown = acp.answer(prompt)["error"]["data"].clone();
    let hint = "it may run yet: look before you ask again";
    let expected = json!({"code": "outcome-unknown", "retryable": false, "hint": hint});
    assert_eq!(unknown, expected);
    let refused = pi.until("its answer", |line| {
        line["command"] == "prompt" && line["success"] == false
    });
    let why = refused["error"].as_str().unwrap();
    assert!(why.contains("isn't known") && why.contains(hint), "{why}");
    std::fs::remove_file(&hangs).unwrap();
    wait_for("both are cancelled", || {
        let rows = daemon.ask(r#"{"type":"jobs","limit":2}"#).remove(0);
        let mut rows = rows["jobs"].as_array()?.iter();
        rows.all(|row| row["state"] == "cancelled").then_some(())
    });
}
