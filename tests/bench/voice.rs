//! Speech to another machine over a connection that stands: what that adds to the turn.
//!
//! Owns this measurement. Must not know how it is judged.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::place::{AGENTCTL, Client, Place, ms};
use crate::report::{Figure, Limit, median};
use crate::sshd::{self, Sshd};

/// As often as it is measured nobody speaks.
const WORDS: [&str; 6] = [
    "voice",
    "forward",
    "--host",
    "mac",
    "--per-minute",
    "100000",
];
/// Runs per repetition; their median counts.
const RUNS: usize = 21;
/// The shared connection is there long before.
const SHARED_WITHIN: Duration = Duration::from_secs(20);

pub(crate) fn forward(repetitions: usize) -> Vec<Figure> {
    let there = Place::new();
    let programs = match sshd::programs(on_path) {
        Ok(programs) => programs,
        Err(missing) => {
            println!("voice-forward: skipped: needs {missing}");
            return Vec::new();
        }
    };
    let _daemon = there.daemon();
    let mac = Sshd::start(programs, &environment(&there));
    let mut master = mac.ssh(&["-M", "-N", "mac"]);
    let master = master
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut master = master.spawn().unwrap();
    let begun = Instant::now();
    while !succeeds(mac.ssh(&["-O", "check", "mac"])) {
        assert!(begun.elapsed() < SHARED_WITHIN, "{}", mac.log());
    }
    let measured = at_home(&mac, repetitions, &there);
    let met = mac.met();
    master.kill().unwrap();
    master.wait().unwrap();
    let found: Value = match measured {
        Ok(found) => found,
        Err(why) => {
            println!("voice-forward: skipped: needs a mount of its own: {why}");
            return Vec::new();
        }
    };
    assert_eq!(met, 1, "the shared connection was not used");
    let list = |name: &str| -> Vec<f64> {
        let list = found[name].as_array().unwrap().iter();
        list.map(|value| value.as_f64().unwrap()).collect()
    };
    vec![Figure {
        name: "voice-forward",
        unit: "ms",
        control: list("control"),
        ours: list("ours"),
        limit: Limit::More(15.0),
        aside: format!(
            "over a warm ControlMaster, on which `ssh mac true` takes {:.1} ms; control: the turn \
             over the local socket",
            median(&list("bare"))
        ),
    }]
}

/// Measures where this user's home is one whose `.ssh/config` knows the machine: `ssh` takes its
/// home from the user database, and a script in front of it would be measured, too.
fn at_home(mac: &Sshd, repetitions: usize, there: &Place) -> Result<Value, String> {
    let home = mac.path("home");
    std::fs::create_dir_all(home.join(".ssh")).unwrap();
    std::fs::copy(mac.path("config"), home.join(".ssh/config")).unwrap();
    let users = format!("root:x:0:0::{}:/bin/sh\n", home.display());
    std::fs::write(mac.path("passwd"), users).unwrap();
    let is_root = nix::unistd::Uid::effective().is_root();
    let ended = Command::new("unshare")
        .arg(if is_root { "-m" } else { "-Urm" })
        .args(["sh", "-c"])
        .arg("mount --bind \"$0\" /etc/passwd && exec \"$@\"")
        .arg(mac.path("passwd"))
        .arg(std::env::current_exe().unwrap())
        .args(["--voice", &repetitions.to_string()])
        .arg(there.socket())
        .output()
        .map_err(|why| why.to_string())?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if !ended.status.success() && !said.contains("panicked") {
        return Err(said.trim().to_owned());
    }
    assert!(ended.status.success(), "{said}\n{}", mac.log());
    Ok(serde_json::from_slice(&ended.stdout).unwrap())
}

/// The part that runs at that home, with the socket of the daemon there.
pub(crate) fn inside(repetitions: usize, there: &Path) -> ExitCode {
    let here = Place::new();
    let (mut control, mut ours, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repetitions {
        control.push(runs(|| turn(there)));
        ours.push(runs(|| spoken(&here)));
        bare.push(runs(nothing));
    }
    println!(
        "{}",
        json!({"control": control, "ours": ours, "bare": bare})
    );
    ExitCode::SUCCESS
}

fn runs(mut run: impl FnMut() -> f64) -> f64 {
    let times: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    median(&times)
}

/// On a connection of its own, as whoever speaks has none.
fn turn(socket: &Path) -> f64 {
    let begun = Instant::now();
    let mut client = Client::kept(socket);
    client.send(r#"{"type":"send","text":"hello","session":"main"}"#);
    client.finish();
    ms(begun.elapsed())
}

/// What ssh takes for nothing.
fn nothing() -> f64 {
    let mut ssh = Command::new("ssh");
    ssh.args(["mac", "true"]).stdin(Stdio::null());
    let begun = Instant::now();
    assert!(succeeds(ssh), "ssh failed");
    ms(begun.elapsed())
}

fn spoken(place: &Place) -> f64 {
    let mut command = place.command(AGENTCTL, &WORDS);
    let path = std::env::var_os("PATH").unwrap();
    command.env("PATH", path).stdin(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    let status = child.wait().unwrap();
    let took = ms(begun.elapsed());
    assert!(status.success(), "{status}");
    let waiting = std::fs::read_dir(place.path("state/spool/new")).unwrap();
    assert_eq!(waiting.count(), 0, "it was queued");
    took
}

fn succeeds(mut command: Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().unwrap().success()
}

fn environment(place: &Place) -> [(&'static str, String); 5] {
    let bin = Path::new(AGENTCTL).parent().unwrap().display();
    let shown = |name: &str| place.path(name).display().to_string();
    [
        ("PATH", format!("{bin}:/usr/bin:/bin")),
        ("HOME", shown("home")),
        ("AGENTD_SOCKET", place.socket().display().to_string()),
        ("AGENTD_STATE_DIR", shown("state")),
        ("AGENTD_CONFIG", shown("config.toml")),
    ]
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}
