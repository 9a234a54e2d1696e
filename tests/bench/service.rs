//! What a service manager costs: starts by a connection, the time after a kill, restarts under load.
//!
//! Owns these measurements. They run in `tests/os/user-manager.sh`, under a real `systemd --user`
//! of their own; where that can't be, nothing is measured. Must not know how they are judged.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::place::{AGENTCTL, AGENTD, TIMMY, ms};
use crate::report::{Figure, Limit, median};

const MANAGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/os/user-manager.sh");
/// Starts, and kills, per repetition; their median counts.
const RUNS: usize = 7;
const RESTARTS: u64 = 20;
const CONNECTS: u64 = 20_000;
const CLIENTS: u64 = 4;
/// A daemon that isn't back by then is not coming.
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn all(repetitions: usize) -> Vec<Figure> {
    let itself = std::env::current_exe().unwrap();
    let mut command = Command::new(MANAGER);
    for program in [
        Path::new(AGENTD),
        AGENTCTL.as_ref(),
        TIMMY.as_ref(),
        &itself,
    ] {
        command.arg("--bin").arg(program);
    }
    let ended = command
        .arg("--")
        .arg(itself.file_name().unwrap())
        .arg("--service")
        .arg(repetitions.to_string())
        .env("AGENTD_OS_WITHIN", "900")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    if ended.status.code() == Some(77) {
        println!("service: not measured, it needs {}", said.trim());
        return Vec::new();
    }
    assert!(ended.status.success(), "{}: {said}", ended.status);
    let printed = String::from_utf8_lossy(&ended.stdout);
    let found: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    figures(&found)
}

fn figures(found: &Value) -> Vec<Figure> {
    let list = |name: &str| -> Vec<f64> {
        let list = found[name].as_array().unwrap().iter();
        list.map(|value| value.as_f64().unwrap()).collect()
    };
    let figure = |name, unit, control: &str, ours: &str, limit, aside: String| Figure {
        name,
        unit,
        control: list(control),
        ours: list(ours),
        limit: Limit::Alone(limit),
        aside,
    };
    let none = "closed without an answer".to_owned();
    vec![
        figure(
            "service-start",
            "ms",
            "warm",
            "start",
            60.0,
            "systemd starts it for a connection, to the answer; control: it runs".to_owned(),
        ),
        figure(
            "service-kill",
            "ms",
            "warm",
            "kill",
            1500.0,
            "kill -9 to the next answer; control: nobody is killed".to_owned(),
        ),
        figure(
            "service-refused",
            "connects",
            "none",
            "refused",
            0.0,
            format!(
                "of {} over {RESTARTS} restarts; {} told to ask again, {} {none}",
                found["connects"], found["told"], found["lost"]
            ),
        ),
    ]
}

/// The part that runs as a user with a service manager.
pub(crate) fn inside(repetitions: usize) -> ExitCode {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    let config = home.join(".config/agentd");
    std::fs::create_dir_all(&config).unwrap();
    let text = "default_agent = \"timmy\"\n[agents.timmy]\nprovider = \"echo\"\n";
    std::fs::write(config.join("config.toml"), text).unwrap();
    run("agentctl", &["service", "install"]);
    let runtime = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").unwrap());
    let socket = runtime.join("agentd/agentd.sock");
    let (mut warm, mut start, mut kill) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repetitions {
        warm.push(runs(|| answered(&socket, Instant::now())));
        start.push(runs(|| {
            again();
            run("systemctl", &["--user", "stop", "agentd.service"]);
            answered(&socket, Instant::now())
        }));
        kill.push(runs(|| {
            again();
            let shown = [
                "--user",
                "show",
                "agentd.service",
                "--property=MainPID",
                "--value",
            ];
            let pid = run("systemctl", &shown).trim().parse().unwrap();
            let begun = Instant::now();
            let pid = nix::unistd::Pid::from_raw(pid);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
            answered(&socket, begun)
        }));
    }
    let load = restarts(&socket);
    let found = json!({
        "warm": warm, "start": start, "kill": kill, "none": [0.0], "refused": [load[1] as f64],
        "connects": load[0], "told": load[2], "lost": load[3],
    });
    println!("{found}");
    ExitCode::SUCCESS
}

fn runs(mut run: impl FnMut() -> f64) -> f64 {
    let times: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    median(&times)
}

/// These starts are no crash loop.
fn again() {
    run(
        "systemctl",
        &["--user", "reset-failed", "agentd.service", "agentd.socket"],
    );
}

/// Milliseconds from `begun` to the first answered ping; a connection that the dying daemon closed
/// is made again.
fn answered(socket: &Path, begun: Instant) -> f64 {
    loop {
        if ask(socket, r#"{"type":"ping"}"#).is_ok_and(|answer| answer.contains("pong")) {
            return ms(begun.elapsed());
        }
        assert!(begun.elapsed() < DEADLINE, "no answer");
    }
}

fn ask(socket: &Path, line: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut answer = String::new();
    if stream.write_all(format!("{line}\n").as_bytes()).is_ok() {
        let _closed = BufReader::new(stream).read_line(&mut answer);
    }
    Ok(answer)
}

/// Connects, refused ones, such as were told to ask again, and such as got no answer.
fn restarts(socket: &Path) -> [u64; 4] {
    let over = AtomicBool::new(false);
    let counts = [const { AtomicU64::new(0) }; 4];
    let count = |which: usize| counts[which].fetch_add(1, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    count(0);
                    let went_wrong = match ask(socket, r#"{"type":"hello"}"#) {
                        Err(_) => Some(1),
                        Ok(answer) if answer.is_empty() => Some(3),
                        Ok(answer) if !answer.contains("\"ok\":true") => Some(2),
                        Ok(_) => None,
                    };
                    went_wrong.map(count);
                }
            });
        }
        let begun = Instant::now();
        for restart in 1..=RESTARTS {
            run("agentctl", &["service", "restart"]);
            // Spread over the connects, so that each restart meets its share of them.
            while counts[0].load(Ordering::Relaxed) < restart * CONNECTS / RESTARTS {
                assert!(begun.elapsed() < DEADLINE * 10, "too few connects");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    counts.map(AtomicU64::into_inner)
}

fn run(program: &str, words: &[&str]) -> String {
    let done = Command::new(program).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {words:?}: {said}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}
