//! Speech to another machine over a connection that stands: what that adds to the turn.
//!
//! Owns this measurement. Must not know how it is judged.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
    let (there, here) = (Place::new(), Place::new());
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
    let (mut control, mut ours, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repetitions {
        control.push(runs(|| turn(&there)));
        ours.push(runs(|| spoken(&here, &mac)));
        bare.push(runs(|| nothing(&mac)));
    }
    let met = mac.met();
    assert_eq!(met, 1, "the shared connection was not used");
    master.kill().unwrap();
    master.wait().unwrap();
    vec![Figure {
        name: "voice-forward",
        unit: "ms",
        control,
        ours,
        limit: Limit::More(15.0),
        aside: format!(
            "over a warm ControlMaster, on which `ssh mac true` takes {:.1} ms; control: the turn \
             over the local socket",
            median(&bare)
        ),
    }]
}

fn runs(mut run: impl FnMut() -> f64) -> f64 {
    let times: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    median(&times)
}

/// On a connection of its own, as whoever speaks has none.
fn turn(place: &Place) -> f64 {
    let begun = Instant::now();
    let mut client = Client::connect(&place.socket());
    client.ask(r#"{"type":"hello","client":"bench"}"#);
    client.send(r#"{"type":"send","text":"hello","session":"main"}"#);
    client.finish();
    ms(begun.elapsed())
}

/// What ssh takes for nothing, by the same program.
fn nothing(mac: &Sshd) -> f64 {
    let mut ssh = Command::new(mac.bin().join("ssh"));
    ssh.args(["mac", "true"]).stdin(Stdio::null());
    let begun = Instant::now();
    assert!(succeeds(ssh), "{}", mac.log());
    ms(begun.elapsed())
}

fn spoken(place: &Place, mac: &Sshd) -> f64 {
    let mut command = place.command(AGENTCTL, &WORDS);
    let path = format!("{}:/usr/bin:/bin", mac.bin().display());
    command.env("PATH", path).stdin(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    let status = child.wait().unwrap();
    let took = ms(begun.elapsed());
    assert!(status.success(), "{}", mac.log());
    let waiting = std::fs::read_dir(place.path("state/spool/new")).unwrap();
    assert_eq!(waiting.count(), 0, "it was queued: {}", mac.log());
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
