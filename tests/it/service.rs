//! agentd as a service of a real `systemd --user`, installed and driven by `agentctl service`.
//!
//! Each test runs itself once more inside of `tests/os/user-manager.sh`: as an unprivileged user
//! with a service manager, a home, `/tmp` and `/run` of its own. What is asserted, is asserted
//! there. Not here: launchd, whose list is read back in the client's tests.

mod home;
mod packaged;
mod trouble;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{
    AGENTCTL, AGENTD, DEADLINE, Finished, Place, TIMMY, chaos_worker, finish, kill, skipped,
    wait_for,
};

/// Set for a test that runs inside.
const INSIDE: &str = "AGENTD_TEST_INSIDE";
/// The script's status where it can't be done.
const CANNOT: i32 = 77;
const MANAGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/os/user-manager.sh");

const CONFIG: &str = r#"
default_agent = "timmy"
[agents.timmy]
provider = "echo"
[agents.chaos]
kind = "jsonl"
command = ["/run/agentd-programs/chaos-worker"]
[agents.hides]
kind = "exec"
command = ["sh", "-c", """
setsid --fork env -i sh -c 'echo > /tmp/hidden; exec sleep 4321' </dev/null >/dev/null 2>&1
until [ -e /tmp/hidden ]; do sleep 0.01; done
echo hidden"""]
"#;

/// The user's own machine: a home, a service manager, and nothing installed.
struct Machine;

/// The machine, when called inside. Outside it runs the calling test there, and gives `None`.
fn machine(test: &str) -> Option<Machine> {
    machine_with(test, &[], &[])
}

/// The same with more words for the script, and with units that a package has for every user.
fn machine_with(test: &str, more: &[&str], units: &[(&str, &str)]) -> Option<Machine> {
    if std::env::var_os(INSIDE).is_some() {
        let config = home().join(".config/agentd");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("config.toml"), CONFIG).unwrap();
        return Some(Machine);
    }
    let mut command = Command::new(MANAGER);
    command.args(more);
    for program in [Path::new(AGENTD), AGENTCTL.as_ref(), TIMMY.as_ref()] {
        command.arg("--bin").arg(program);
    }
    command.arg("--bin").arg(chaos_worker());
    let itself = std::env::current_exe().unwrap();
    command.arg("--bin").arg(&itself);
    let itself = itself.file_name().unwrap();
    let dir = tempfile::tempdir().unwrap();
    if !units.is_empty() {
        for (name, text) in units {
            fs::write(dir.path().join(name), text).unwrap();
        }
        command.arg("--units").arg(dir.path());
    }
    let ended = command
        .arg("--")
        .arg(itself)
        .args([&format!("service::{test}"), "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    if ended.status.code() == Some(CANNOT) {
        let why = said.lines().last().unwrap_or("a private service manager");
        skipped(why);
        return None;
    }
    let printed = String::from_utf8_lossy(&ended.stdout);
    assert!(
        ended.status.success(),
        "{}\n{printed}\n{said}",
        ended.status
    );
    assert!(printed.contains("1 passed"), "{printed}\n{said}");
    eprintln!("{printed}");
    None
}

fn home() -> PathBuf {
    PathBuf::from(std::env::var_os("HOME").unwrap())
}

fn run(program: &str, args: &[&str]) -> Finished {
    let mut command = Command::new(program);
    command.args(args);
    finish(command, b"")
}

/// `agentctl`, which has to succeed.
fn agentctl(args: &[&str]) -> String {
    let done = run("agentctl", args);
    assert_eq!(done.code, Some(0), "agentctl {args:?}: {done:?}");
    done.stdout
}

fn systemctl(args: &[&str]) -> String {
    let mut words = vec!["--user"];
    words.extend(args);
    let done = run("systemctl", &words);
    assert_eq!(done.code, Some(0), "systemctl {args:?}: {done:?}");
    done.stdout
}

fn property(unit: &str, name: &str) -> String {
    let name = format!("--property={name}");
    let shown = systemctl(&["show", unit, &name, "--value"]);
    shown.trim().to_owned()
}

impl Machine {
    /// With the service installed and answering.
    fn installed(self) -> Self {
        agentctl(&["service", "install"]);
        self
    }

    /// More in the service's unit.
    fn drop_in(&self, text: &str) {
        let dir = self.units().join("agentd.service.d");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("test.conf"), text).unwrap();
        systemctl(&["daemon-reload"]);
    }

    fn units(&self) -> PathBuf {
        home().join(".config/systemd/user")
    }

    fn socket(&self) -> PathBuf {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").unwrap();
        Path::new(&runtime).join("agentd/agentd.sock")
    }

    fn pid(&self) -> u32 {
        property("agentd.service", "MainPID").parse().unwrap()
    }

    /// A request over a connection of its own, and its first answer.
    fn ask(&self, line: &str) -> Value {
        let answer = ask(&self.socket(), line).unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    fn serving_pid(&self) -> u64 {
        let status = self.ask(r#"{"type":"status"}"#);
        status["daemon"]["pid"].as_u64().unwrap()
    }

    /// Everything that the service may leave outside of its state.
    fn files(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let runtime = self.socket().parent().unwrap().to_owned();
        let mut left = vec![self.units(), PathBuf::from("/tmp"), runtime];
        while let Some(dir) = left.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() && !path.is_symlink() {
                    left.push(path.clone());
                }
                found.insert(path);
            }
        }
        found
    }
}

/// What came of one request; an error is that of `connect`.
fn ask(socket: &Path, line: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut answer = String::new();
    // A daemon that leaves may close first: no answer.
    if stream.write_all(format!("{line}\n").as_bytes()).is_ok() {
        let _closed = BufReader::new(stream).read_line(&mut answer);
    }
    Ok(answer)
}

/// Processes whose command line is this.
fn processes(words: &[&str]) -> Vec<u32> {
    let wanted: Vec<u8> = words
        .iter()
        .flat_map(|word| word.bytes().chain([0]))
        .collect();
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == wanted)
    })
    .collect()
}

#[test]
fn service_is_installed_again_and_leaves_nothing() {
    let Some(machine) = machine("service_is_installed_again_and_leaves_nothing") else {
        return;
    };
    let before = machine.files();
    let none = run("agentctl", &["service", "status"]);
    assert_eq!(none.code, Some(78), "{none:?}");
    assert!(none.stderr.contains("service install"), "{none:?}");

    let shown = agentctl(&["service", "install", "--dry-run"]);
    assert!(
        shown.contains("would write") && shown.contains("Type=notify"),
        "{shown}"
    );
    assert_eq!(machine.files(), before, "it was only shown");

    let said = agentctl(&["service", "install"]);
    assert!(said.contains("answers  agentd"), "{said}");
    assert_eq!(fs::read_link("/tmp/timmy.sock").unwrap(), machine.socket());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&machine.socket()), 0o600);
    assert_eq!(mode(machine.socket().parent().unwrap()), 0o700);
    let mut nc = Command::new("sh");
    nc.args([
        "-c",
        r#"echo '{"prompt":"hello"}' | agentctl nc /tmp/timmy.sock"#,
    ]);
    let heard = finish(nc, b"");
    assert!(heard.stdout.contains("message_end"), "{heard:?}");
    assert!(property("agentd.service", "StatusText").starts_with("serving /run"));

    let pid = machine.pid();
    let again = agentctl(&["service", "install"]);
    assert!(
        again.contains("kept") && !again.contains("wrote"),
        "{again}"
    );
    assert_eq!(
        machine.pid(),
        pid,
        "nothing changed, so nothing is restarted"
    );
    let status = agentctl(&["service", "status"]);
    for part in ["active (running)", "started; lingering is off", "is ready"] {
        assert!(status.contains(part), "{part}: {status}");
    }

    agentctl(&["service", "uninstall"]);
    assert_eq!(machine.files(), before);
    for list in ["list-unit-files", "list-units"] {
        // With a status of its own when there is none.
        let listed = run(
            "systemctl",
            &["--user", list, "--all", "agentd*", "--no-legend"],
        );
        assert_eq!(listed.stdout, "", "{listed:?}");
    }
    assert!(UnixStream::connect(machine.socket()).is_err());
    agentctl(&["service", "uninstall"]);
}

#[test]
fn service_units_are_right_and_closed() {
    let Some(machine) = machine("service_units_are_right_and_closed") else {
        return;
    };
    agentctl(&["service", "install"]);
    let units = ["agentd.socket", "agentd.service"].map(|unit| machine.units().join(unit));
    let [socket, service] = units.each_ref().map(|unit| unit.to_str().unwrap());
    let verified = run("systemd-analyze", &["--user", "verify", socket, service]);
    assert_eq!(
        (verified.code, verified.stderr.as_str()),
        (Some(0), ""),
        "{verified:?}"
    );
    // In tenths; what is left would be in the way of agents, see the unit.
    let secure = run(
        "systemd-analyze",
        &[
            "--user",
            "--offline=true",
            "--threshold=86",
            "security",
            service,
        ],
    );
    assert_eq!(secure.code, Some(0), "{secure:?}");
    let status = fs::read_to_string(format!("/proc/{}/status", machine.pid())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
}

#[test]
fn service_that_was_stopped_starts_when_connected_to() {
    let Some(machine) = machine("service_that_was_stopped_starts_when_connected_to") else {
        return;
    };
    let machine = machine.installed();
    let first = machine.pid();
    systemctl(&["stop", "agentd.service"]);
    assert_eq!(machine.pid(), 0);
    assert_eq!(fs::read_link("/tmp/timmy.sock").unwrap(), machine.socket());
    let status = run("agentctl", &["service", "status"]);
    assert_eq!(status.code, Some(69), "asking did not start it: {status:?}");
    assert_eq!(machine.pid(), 0);
    let second = machine.serving_pid();
    assert_ne!(second, u64::from(first));
    assert_eq!(second, u64::from(machine.pid()));
    // With its socket it stays down.
    agentctl(&["service", "stop"]);
    assert!(UnixStream::connect(machine.socket()).is_err());
    agentctl(&["service", "start"]);
    assert_ne!(machine.serving_pid(), second);
}

#[test]
fn after_kill_9_the_next_request_is_answered() {
    let Some(machine) = machine("after_kill_9_the_next_request_is_answered") else {
        return;
    };
    let machine = machine.installed();
    let pid = machine.pid();
    let killed = Instant::now();
    kill(pid, Signal::SIGKILL);
    // A connection to the one that dies may be closed without an answer.
    let next = wait_for("the next daemon answers", || {
        let answer = ask(&machine.socket(), r#"{"type":"status"}"#).unwrap();
        let status: Value = serde_json::from_str(&answer).ok()?;
        status["daemon"]["pid"].as_u64()
    });
    println!("answered {:?} after kill -9", killed.elapsed());
    assert_ne!(next, u64::from(pid));
    assert_eq!(property("agentd.service", "NRestarts"), "1");
}

#[test]
fn service_that_hangs_is_replaced_by_its_watchdog() {
    let Some(machine) = machine("service_that_hangs_is_replaced_by_its_watchdog") else {
        return;
    };
    machine.drop_in("[Service]\nWatchdogSec=1\n");
    let machine = machine.installed();
    let pid = machine.pid();
    let mut beats = BTreeSet::new();
    wait_for("signs of life", || {
        beats.insert(property("agentd.service", "WatchdogTimestampMonotonic"));
        (beats.len() > 4).then_some(())
    });
    assert_eq!(machine.pid(), pid, "it lives");
    assert!(property("agentd.service", "StatusText").contains("is ready"));
    kill(pid, Signal::SIGSTOP);
    let next = wait_for("another daemon", || {
        let now = machine.pid();
        (now != pid && now != 0).then_some(now)
    });
    assert_eq!(machine.serving_pid(), u64::from(next));
    assert_eq!(property("agentd.service", "NRestarts"), "1");
}

#[test]
fn service_restart_keeps_what_waits_and_runs() {
    let Some(machine) = machine("service_restart_keeps_what_waits_and_runs") else {
        return;
    };
    let machine = machine.installed();
    let gate = home().join("gate");
    let prompt = format!("chaos:wait-file {};say done", gate.display());
    let running = agentctl(&["dispatch", "--agent", "chaos", "--session", "s", &prompt]);
    let waiting = agentctl(&[
        "dispatch",
        "--agent",
        "chaos",
        "--session",
        "s",
        "chaos:say later",
    ]);
    let before = machine.pid();
    let mut restart = Command::new("agentctl")
        .args(["service", "restart", "--deadline", "60"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("no turn starts any more", || {
        (machine.ask(r#"{"type":"status"}"#)["state"] == "draining").then_some(())
    });
    // Work is taken all the while.
    let late = agentctl(&["dispatch", "--agent", "timmy", "late"]);
    assert!(restart.try_wait().unwrap().is_none(), "a turn still runs");
    fs::write(&gate, "").unwrap();
    let status = wait_for("the restart is done", || restart.try_wait().unwrap());
    assert!(status.success());
    assert_ne!(machine.pid(), before);
    for (job, says) in [(&running, "done"), (&waiting, "later"), (&late, "late")] {
        let collected = agentctl(&["collect", job.trim()]);
        assert!(collected.contains(says), "{says}: {collected}");
    }
}

#[test]
fn a_restart_refuses_no_connection() {
    const CLIENTS: u64 = 4;
    const RESTARTS: u64 = 3;
    let Some(machine) = machine("a_restart_refuses_no_connection") else {
        return;
    };
    let machine = machine.installed();
    let socket = machine.socket();
    let over = AtomicBool::new(false);
    let [connects, refused, told, lost] = [const { AtomicU64::new(0) }; 4];
    let pids: BTreeSet<u64> = std::thread::scope(|scope| {
        let client = || {
            while !over.load(Ordering::Relaxed) {
                connects.fetch_add(1, Ordering::Relaxed);
                let Ok(answer) = ask(&socket, r#"{"type":"hello"}"#) else {
                    refused.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                if answer.is_empty() {
                    lost.fetch_add(1, Ordering::Relaxed);
                } else if !answer.contains("\"ok\":true") {
                    told.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        for _ in 0..CLIENTS {
            scope.spawn(client);
        }
        let restarts = (0..RESTARTS).map(|_| {
            agentctl(&["service", "restart"]);
            machine.serving_pid()
        });
        let pids = restarts.collect();
        over.store(true, Ordering::Relaxed);
        pids
    });
    let [connects, refused, told, lost] =
        [connects, refused, told, lost].map(AtomicU64::into_inner);
    println!(
        "{connects} connects over {RESTARTS} restarts: {refused} refused, {told} told to ask \
         again, {lost} closed without an answer"
    );
    assert_eq!(pids.len() as u64, RESTARTS, "each was another daemon");
    assert_eq!(refused, 0);
    // Who was let in and takes more than 100 ms to ask comes too late: one of each client at most.
    assert!(
        told + lost <= CLIENTS * RESTARTS,
        "{told} told, {lost} lost"
    );
    assert!(connects > 100, "{connects}");
}

#[test]
fn service_ends_what_hides_from_its_worker() {
    let Some(machine) = machine("service_ends_what_hides_from_its_worker") else {
        return;
    };
    let machine = machine.installed();
    let hidden = ["sleep", "4321"];
    let end = agentctl(&["send", "--agent", "hides", "x"]);
    assert!(end.contains("hidden"), "{end}");
    wait_for("nothing of it is left", || {
        processes(&hidden).is_empty().then_some(())
    });
    // The groups go with their workers.
    let group = format!(
        "/sys/fs/cgroup{}",
        property("agentd.service", "ControlGroup")
    );
    wait_for("no group is left", || {
        let entries = fs::read_dir(&group).unwrap().flatten();
        (!entries.map(|entry| entry.path()).any(|path| path.is_dir())).then_some(())
    });
    assert_ne!(machine.pid(), 0);
}

#[test]
fn a_daemon_by_hand_is_not_run_over() {
    let Some(machine) = machine("a_daemon_by_hand_is_not_run_over") else {
        return;
    };
    let by_hand = crate::support::Reaped(Command::new("agentd").spawn().unwrap());
    wait_for("it answers", || {
        ask(&machine.socket(), r#"{"type":"ping"}"#).ok()
    });
    let refused = run("agentctl", &["service", "install"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("agentctl stop"), "{refused:?}");
    assert!(!machine.units().join("agentd.service").exists());
    agentctl(&["stop"]);
    drop(by_hand);
    agentctl(&["service", "install"]);
}

#[test]
fn service_without_a_manager_says_what_next() {
    let place = Place::new("");
    for command in ["install", "start", "status", "restart", "uninstall"] {
        let mut agentctl = place.command(AGENTCTL);
        agentctl
            .args(["service", command])
            .env("XDG_RUNTIME_DIR", place.path("nothing"));
        let refused = finish(agentctl, b"");
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.stderr.contains("agentctl start"), "{refused:?}");
    }
    assert!(!place.path("home/.config").exists());
}
