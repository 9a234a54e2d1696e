//! What happens to a service over the days: its user logs out and in, its program is replaced, its
//! disk hangs, its units are changed by hand, and somebody speaks to it from another account.

use std::os::unix::fs::MetadataExt as _;
use std::process::Stdio;

use serde_json::json;

use super::*;
use crate::support::{Reaped, copy_program, needs};

/// The user's own manager, as it is started when somebody logs in.
pub(super) fn log_in() -> Reaped {
    let uid = nix::unistd::Uid::effective();
    let group = format!("/sys/fs/cgroup/user.slice/user-{uid}.slice/user@{uid}.service");
    let mut manager = Command::new("sh");
    manager.args([
        "-c",
        "echo $$ >\"$0/cgroup.procs\" && exec /lib/systemd/systemd --user",
        &group,
    ]);
    let manager = Reaped(manager.stderr(Stdio::null()).spawn().unwrap());
    wait_for("the service manager is there", || {
        let asked = run("systemctl", &["--user", "is-system-running"]);
        (asked.code == Some(0)).then_some(())
    });
    manager
}

pub(super) fn log_out(machine: &Machine) {
    let pid = machine.pid();
    systemctl(&["exit"]);
    wait_for("the service ends with its user's last session", || {
        (!crate::support::is_alive(pid)).then_some(())
    });
    // While it stops it still listens for others.
    wait_for("the service manager has closed the socket", || {
        UnixStream::connect(machine.socket()).is_err().then_some(())
    });
    wait_for("the service manager is gone", || {
        let asked = run("systemctl", &["--user", "is-system-running"]);
        (asked.code != Some(0)).then_some(())
    });
}

fn says(prompt: &str) -> String {
    let mut nc = Command::new("sh");
    let script = r#"printf '{"prompt":"%s"}\n' "$0" | agentctl nc /tmp/timmy.sock"#;
    nc.args(["-c", script, prompt]);
    let said = finish(nc, b"");
    assert!(said.stdout.contains("message_end"), "{said:?}");
    said.stdout
}

#[test]
fn service_outlives_a_logout_with_its_journal() {
    let Some(machine) = machine("home::service_outlives_a_logout_with_its_journal") else {
        return;
    };
    let machine = machine.installed();
    let first = machine.pid();
    says("hello");
    agentctl(&["drain"]);
    let waiting = agentctl(&["dispatch", "after the night"]);
    log_out(&machine);
    let _manager = log_in();
    // Nobody asked for it: it is started at login, and goes on with what waited.
    let second = wait_for("it runs", || Some(machine.pid()).filter(|pid| *pid != 0));
    assert_ne!(second, first);
    let collected = agentctl(&["collect", waiting.trim()]);
    assert!(collected.contains("after the night"), "{collected}");
    kill(second, Signal::SIGKILL);
    wait_for("the next one answers", || {
        let answer = ask(&machine.socket(), r#"{"type":"status"}"#).ok()?;
        let status: Value = serde_json::from_str(&answer).ok()?;
        (status["daemon"]["pid"] != second).then_some(())
    });
    says("once more");
    let history = agentctl(&["jobs", "--json"]);
    assert!(
        history.contains("hello") && history.contains("once more"),
        "{history}"
    );
    let log = wait_for("the journal has it", || {
        let words = ["--user", "-u", "agentd", "--no-pager", "-o", "cat"];
        let log = run("journalctl", &words).stdout;
        (log.matches("serves `").count() >= 3).then_some(log)
    });
    assert!(
        !log.contains("after the night"),
        "no prompt is logged: {log}"
    );
}

#[test]
fn service_with_a_replaced_program_refuses_nobody() {
    let Some(machine) = machine("home::service_with_a_replaced_program_refuses_nobody") else {
        return;
    };
    let bin = home().join("bin");
    fs::create_dir(&bin).unwrap();
    let ours = Path::new("/run/agentd-programs");
    for program in ["agentd", "agentctl"] {
        copy_program(ours.join(program), &bin.join(program));
    }
    let installed = bin.join("agentctl");
    let installed = installed.to_str().unwrap();
    let done = run(installed, &["service", "install"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let program = bin.join("agentd");
    let runs = |pid: u32| fs::metadata(format!("/proc/{pid}/exe")).unwrap().ino();
    let before = machine.pid();
    assert_eq!(runs(before), fs::metadata(&program).unwrap().ino());

    let gate = home().join("gate");
    let prompt = format!("chaos:wait-file {};say done", gate.display());
    let dispatch =
        |prompt: &str| agentctl(&["dispatch", "--agent", "chaos", "--session", "s", prompt]);
    let jobs = [dispatch(&prompt), dispatch("chaos:say later")];
    // As a package does it: the old program's file stays as long as it runs.
    copy_program(ours.join("agentd"), &bin.join("agentd.new"));
    fs::rename(bin.join("agentd.new"), &program).unwrap();
    assert_ne!(runs(before), fs::metadata(&program).unwrap().ino());
    let over = AtomicBool::new(false);
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if ask(&machine.socket(), r#"{"type":"ping"}"#).is_err() {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut restart = Command::new(installed);
        restart.args(["service", "restart"]).stdout(Stdio::null());
        let mut restart = Reaped(restart.spawn().unwrap());
        wait_for("no turn starts any more", || {
            (machine.ask(r#"{"type":"status"}"#)["state"] == "draining").then_some(())
        });
        fs::write(&gate, "").unwrap();
        let ended = wait_for("the restart is done", || restart.0.try_wait().unwrap());
        over.store(true, Ordering::Relaxed);
        assert!(ended.success());
    });
    assert_eq!(refused.into_inner(), 0);
    let after = machine.pid();
    assert_ne!(after, before);
    assert_eq!(runs(after), fs::metadata(&program).unwrap().ino());
    for (job, says) in jobs.iter().zip(["done", "later"]) {
        let collected = agentctl(&["collect", job.trim()]);
        assert!(collected.contains(says), "{says}: {collected}");
    }
}

#[test]
fn service_on_a_hung_disk_keeps_its_jobs() {
    let Some(machine) = machine("home::service_on_a_hung_disk_keeps_its_jobs") else {
        return;
    };
    let Some(strace) = needs("strace") else {
        return;
    };
    machine.drop_in("[Service]\nWatchdogSec=2\n");
    let machine = machine.installed();
    let pid = machine.pid();
    let done = agentctl(&["dispatch", "--collect", "before"]);
    assert!(done.contains("before"), "{done}");
    agentctl(&["drain"]);
    let waiting = agentctl(&["dispatch", "still there"]);
    // From now on nothing gets to the disk: the writer waits in it, and everything else goes on.
    let said = home().join("strace.err");
    let mut hang = Command::new(strace);
    hang.args(["-f", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]);
    hang.args([
        "-e",
        "inject=fsync,fdatasync:delay_enter=600000000",
        "-p",
        &pid.to_string(),
    ]);
    hang.stderr(fs::File::create(&said).unwrap());
    let hang = Reaped(hang.spawn().unwrap());
    let told = wait_for("it hangs", || {
        let told = fs::read_to_string(&said).unwrap();
        (!told.is_empty()).then_some(told)
    });
    if told.contains("Operation not permitted") {
        skipped("a kernel that lets a user trace its own processes");
        return;
    }
    let mut unanswered = UnixStream::connect(machine.socket()).unwrap();
    unanswered
        .write_all(b"{\"prompt\":\"never accepted\"}\n")
        .unwrap();
    // Everybody else is answered all the while.
    assert_eq!(machine.ask(r#"{"type":"ping"}"#)["type"], "pong");
    wait_for("it is noticed", || {
        let words = ["--user", "-u", "agentd", "--no-pager", "-o", "cat"];
        let log = run("journalctl", &words).stdout;
        log.contains("Watchdog timeout").then_some(())
    });
    // A process that waits in a disk can't be ended before the disk goes on.
    drop(hang);
    let next = wait_for("another daemon", || {
        let now = machine.pid();
        (now != pid && now != 0).then_some(now)
    });
    assert_eq!(machine.serving_pid(), u64::from(next));
    assert_eq!(property("agentd.service", "NRestarts"), "1");
    let log = run(
        "journalctl",
        &["--user", "-u", "agentd", "--no-pager", "-o", "cat"],
    )
    .stdout;
    assert!(log.contains("Watchdog timeout"), "{log}");
    let collected = agentctl(&["collect", "j1", waiting.trim()]);
    assert!(
        collected.contains("before") && collected.contains("still there"),
        "{collected}"
    );
}

#[test]
fn service_state_is_told_and_hand_edits_kept() {
    let Some(machine) = machine("home::service_state_is_told_and_hand_edits_kept") else {
        return;
    };
    let status = || -> (Option<i32>, Value) {
        let said = run("agentctl", &["service", "status", "--json"]);
        (said.code, serde_json::from_str(&said.stdout).unwrap())
    };
    let (code, none) = status();
    assert_eq!(
        (code, &none["installed"]),
        (Some(78), &json!(false)),
        "{none}"
    );
    machine.drop_in("[Service]\nNice=1\n");
    let machine = machine.installed();
    let (code, serves) = status();
    assert_eq!(code, Some(0), "{serves}");
    assert_eq!(serves["daemon"]["state"], "ready", "{serves}");
    assert_eq!(
        (
            &serves["service"],
            &serves["socket"],
            &serves["at_login"],
            &serves["lingers"]
        ),
        (
            &json!("active"),
            &json!("active"),
            &json!(true),
            &json!(false)
        )
    );
    let pid = machine.pid();
    assert_eq!(serves["pid"], pid);
    kill(pid, Signal::SIGSTOP);
    let (code, stopped) = status();
    kill(pid, Signal::SIGCONT);
    assert_eq!(
        (code, &stopped["daemon"]["state"]),
        (Some(71), &json!("stopped"))
    );

    // Changes by hand don't survive, but aren't lost either.
    let unit = machine.units().join("agentd.service");
    let before = fs::read_to_string(&unit).unwrap();
    let by_hand = format!("{before}# mine\n");
    fs::write(&unit, &by_hand).unwrap();
    let again = run("agentctl", &["service", "install"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stderr.contains("agentd.service.old"), "{again:?}");
    assert_eq!(fs::read_to_string(&unit).unwrap(), before);
    let kept = machine.units().join("agentd.service.old");
    assert_eq!(fs::read_to_string(&kept).unwrap(), by_hand);
    agentctl(&["service", "stop"]);
    assert_eq!(status().0, Some(69));

    let gone = run("agentctl", &["service", "uninstall"]);
    assert_eq!(gone.code, Some(0), "{gone:?}");
    assert!(
        gone.stderr.contains("agentd.service.d` is yours and stays"),
        "{gone:?}"
    );
    assert!(machine.units().join("agentd.service.d/test.conf").exists());
    assert!(!unit.exists() && !kept.exists());
}

#[test]
fn speech_of_one_account_reaches_anothers_agent() {
    let test = "home::speech_of_one_account_reaches_anothers_agent";
    let Some(_machine) = machine_with(test, &["--other"], &[]) else {
        return;
    };
    let there = |script: &str| -> Finished {
        let mut ssh = Command::new("ssh");
        ssh.args(["other", script]);
        finish(ssh, b"")
    };
    let config = "mkdir -p ~/.config/agentd && cat >~/.config/agentd/config.toml";
    let mut ssh = Command::new("ssh");
    ssh.args(["other", config]);
    let written = finish(ssh, CONFIG.as_bytes());
    assert_eq!(written.code, Some(0), "{written:?}");
    let start = || {
        let started = there("agentd >/dev/null 2>&1 </dev/null & echo $!");
        assert_eq!(started.code, Some(0), "{started:?}");
        wait_for("it serves there", || {
            let asked = run("agentctl", &["--host", "other", "status", "--json"]);
            (asked.code == Some(0)).then_some(())
        });
    };
    let say = |text: &str| -> String {
        let mut voice = Command::new("agentctl");
        voice.args(["voice", "forward", "--host", "other", "--no-prefix"]);
        let said = finish(voice, text.as_bytes());
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout
    };
    start();
    assert_eq!(say("one"), "one\n");
    // Its daemon is stopped for a while: each turn runs by itself, in that account.
    assert_eq!(there("agentctl stop").code, Some(0));
    let down = run("agentctl", &["--host", "other", "status"]);
    assert_eq!(down.code, Some(69), "{down:?}");
    assert_eq!(say("two"), "two\n");
    // The machine can't be reached: what is said waits here, and comes later, in its place.
    let known = home().join(".ssh/known_hosts");
    let key = fs::read(&known).unwrap();
    fs::write(&known, "").unwrap();
    for text in ["three", "four"] {
        assert_eq!(say(text), "queued on disk, not delivered yet\n");
    }
    fs::write(&known, key).unwrap();
    start();
    assert_eq!(say("five"), "five\n");
    let history = run(
        "agentctl",
        &["--host", "other", "history", "main", "--json"],
    );
    let order: Vec<usize> = ["one", "two", "three", "four", "five"]
        .iter()
        .map(|text| {
            history
                .stdout
                .find(&format!("\"text\":\"{text}\""))
                .unwrap()
        })
        .collect();
    assert!(order.is_sorted(), "{history:?}");
    let owner = there("stat -c %U ~/.local/state/agentd/agentd.db");
    assert_eq!(owner.stdout, "other\n", "{owner:?}");
    assert!(
        !home().join(".local/state/agentd/agentd.db").exists(),
        "nothing ran here"
    );
    assert_eq!(there("agentctl stop").code, Some(0));
}

#[test]
fn service_leaves_others_files_and_waits_for_turns() {
    let Some(machine) = machine("home::service_leaves_others_files_and_waits_for_turns") else {
        return;
    };
    let link = Path::new("/tmp/timmy.sock");
    fs::write(link, "mine").unwrap();
    let installed = run("agentctl", &["service", "install"]);
    assert_eq!(installed.code, Some(0), "{installed:?}");
    assert!(installed.stderr.contains("stays"), "{installed:?}");
    assert_eq!(fs::read_to_string(link).unwrap(), "mine");
    assert_eq!(
        property("agentd-voice-flush.timer", "ActiveState"),
        "active"
    );
    systemctl(&["start", "agentd-voice-flush.service"]);

    // Who stops it and asks again is no crash loop.
    for _ in 0..11 {
        agentctl(&["stop"]);
        machine.serving_pid();
    }

    let gate = home().join("gate");
    let prompt = format!("chaos:wait-file {};say done", gate.display());
    let job = agentctl(&["dispatch", "--agent", "chaos", &prompt]);
    let pid = machine.pid();
    let mut moved = Command::new("agentctl");
    moved.args(["service", "install"]);
    moved
        .env("AGENTD_ALIAS", "/tmp/other.sock")
        .stdout(Stdio::null());
    let mut moved = Reaped(moved.spawn().unwrap());
    wait_for("no turn starts any more", || {
        (machine.ask(r#"{"type":"status"}"#)["state"] == "draining").then_some(())
    });
    fs::write(&gate, "").unwrap();
    let ended = wait_for("it is installed", || moved.0.try_wait().unwrap());
    assert!(ended.success());
    assert_ne!(machine.pid(), pid);
    assert_eq!(fs::read_link("/tmp/other.sock").unwrap(), machine.socket());
    let collected = agentctl(&["collect", job.trim()]);
    assert!(collected.contains("done"), "{collected}");

    // What the daemon can't read is in nobody's way but its own.
    fs::write(home().join(".config/agentd/config.toml"), "= broken").unwrap();
    let status = run("agentctl", &["service", "status", "--json"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    agentctl(&["service", "stop"]);
    let down = run("agentctl", &["status"]);
    assert!(down.stderr.contains("`agentctl start`"), "{down:?}");
    agentctl(&["service", "uninstall"]);
    assert!(!Path::new("/tmp/other.sock").is_symlink() && !machine.socket().exists());
    assert_eq!(fs::read_to_string(link).unwrap(), "mine");
    assert_eq!(
        property("agentd-voice-flush.timer", "LoadState"),
        "not-found"
    );
}
