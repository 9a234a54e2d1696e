//! What starting a program costs: the daemon, `agentctl`, the one-shot.
//!
//! Owns these measurements. Must not know how they are judged.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Instant;

use crate::place::{AGENTCTL, Client, Place, TIMMY, ms};
use crate::report::{Figure, Limit, median};

/// A program that does nothing.
const TRUE: &str = "/bin/true";
/// Runs per repetition; their median counts.
const RUNS: usize = 21;

fn runs(mut run: impl FnMut() -> f64) -> f64 {
    let times: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    median(&times)
}

/// From the start of the process to the first answered ping, with a store that is there already.
pub(crate) fn start(repetitions: usize) -> Vec<Figure> {
    let place = Place::new();
    place.daemon().stop();
    drop(place.control());
    let (mut control, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let (mut bare, mut whole) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let _stale = std::fs::remove_file(place.path("control.sock"));
            let server = place.control();
            bare.push(ms(server.took));
            drop(server);
            let daemon = place.daemon();
            whole.push(ms(daemon.took));
            daemon.stop();
        }
        control.push(median(&bare));
        ours.push(median(&whole));
    }
    vec![Figure {
        name: "start",
        unit: "ms",
        control,
        ours,
        limit: Limit::Alone(10.0),
        aside: "to the first answer; control: bare tokio + SQLite".to_owned(),
    }]
}

pub(crate) fn agentctl(repetitions: usize) -> Vec<Figure> {
    let (up, down) = (Place::new(), Place::new());
    let _daemon = up.daemon();
    // Where one ran before: whoever never had one has his configuration looked at besides.
    down.daemon().stop();
    let nothing = || ms(up.run(TRUE, &[], 0));
    // The turn as it is for a program that was just started: a connection of its own, cold caches.
    let turn = || {
        let started = nothing();
        let begun = Instant::now();
        let mut client = Client::kept(&up.socket());
        client.send(r#"{"type":"send","text":"hello"}"#);
        client.finish();
        started + ms(begun.elapsed())
    };
    let mut figures = [
        ("agentctl-status-up", ""),
        ("agentctl-status-down", ""),
        ("agentctl-send", " and the turn"),
    ]
    .map(|(name, more)| Figure {
        name,
        unit: "ms",
        control: Vec::new(),
        ours: Vec::new(),
        limit: Limit::More(2.0),
        aside: format!("control: /bin/true{more}"),
    });
    for _ in 0..repetitions {
        let bare = runs(nothing);
        let [is_up, is_down, sent] = &mut figures;
        is_up.control.push(bare);
        is_up
            .ours
            .push(runs(|| ms(up.run(AGENTCTL, &["status"], 0))));
        is_down.control.push(bare);
        is_down
            .ours
            .push(runs(|| ms(down.run(AGENTCTL, &["status"], 69))));
        sent.control.push(runs(turn));
        sent.ours
            .push(runs(|| ms(up.run(AGENTCTL, &["send", "hello"], 0))));
    }
    // What a start costs differs more between machines than what `/bin/true` says of it.
    let shell = runs(|| ms(up.run("/bin/bash", &["-c", ":"], 0)));
    for figure in &mut figures {
        let aside = format!("; `bash -c :` takes {shell:.2} ms");
        figure.aside.push_str(&aside);
    }
    figures.into()
}

/// Without a daemon: `agentctl` starts `agentd --stdio`, which starts the agent.
pub(crate) fn one_shot(repetitions: usize) -> Vec<Figure> {
    let place = Place::new();
    place.daemon().stop();
    let (mut control, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        control.push(runs(|| {
            ms(place.run(TIMMY, &["-p", "hello", "--provider", "echo"], 0))
        }));
        ours.push(runs(|| ms(place.run(AGENTCTL, &["send", "hello"], 0))));
    }
    vec![Figure {
        name: "one-shot",
        unit: "ms",
        control,
        ours,
        limit: Limit::More(10.0),
        aside: "`agentctl send` without a daemon; control: timmy -p".to_owned(),
    }]
}

/// A child made by `fork`, as workers are, beside one made by `vfork`, which may do nothing before its
/// program: from a process of a daemon's size, and from one that has this much in memory.
pub(crate) fn fork(repetitions: usize) -> Vec<Figure> {
    let mut figures = [("fork", 0), ("fork-large", 256 << 20)].map(|(name, bytes)| {
        let figure = Figure {
            name,
            unit: "ms",
            control: Vec::new(),
            ours: Vec::new(),
            limit: Limit::More(if bytes == 0 { 0.5 } else { 30.0 }),
            aside: format!("with {} MiB more in memory; control: vfork", bytes >> 20),
        };
        (figure, bytes)
    });
    for _ in 0..repetitions {
        for (figure, bytes) in &mut figures {
            let held = vec![1_u8; *bytes];
            figure.control.push(runs(|| made(&mut Command::new(TRUE))));
            figure.ours.push(runs(|| made(&mut forked())));
            drop(std::hint::black_box(held));
        }
    }
    figures.map(|(figure, _)| figure).into()
}

#[expect(unsafe_code, reason = "what the standard library forks for")]
fn forked() -> Command {
    let mut command = Command::new(TRUE);
    // SAFETY: it does nothing.
    unsafe { command.pre_exec(|| Ok(())) };
    command
}

fn made(command: &mut Command) -> f64 {
    let begun = Instant::now();
    let mut child = command.spawn().unwrap();
    let took = ms(begun.elapsed());
    child.wait().unwrap();
    took
}

/// A look at everything but what takes its time: versions of agents, the whole store, other machines.
pub(crate) fn doctor(repetitions: usize) -> Vec<Figure> {
    let place = Place::new();
    let _daemon = place.daemon();
    let (mut control, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        control.push(runs(|| ms(place.run(AGENTCTL, &["status"], 0))));
        ours.push(runs(|| ms(place.run(AGENTCTL, &["doctor"], 0))));
    }
    vec![Figure {
        name: "doctor",
        unit: "ms",
        control,
        ours,
        limit: Limit::Alone(300.0),
        aside: "`agentctl doctor`; control: `agentctl status`".to_owned(),
    }]
}
