//! New sessions in an agent in use, as somebody at a shell meets them: nothing is configured to be
//! warm. Beside each are a turn of a session that goes on and the agent's own one-shot, by turns in
//! one run.
//!
//! Owns these two figures. Must not know how an agent is run.

use std::path::Path;
use std::time::Instant;

use super::{Measured, Rig, command, until_quiet};
use crate::place::{AGENTCTL, ms};
use crate::report::{Figure, Limit, median};

/// Of each kind in one repetition.
const ROUNDS: usize = 5;
/// The first turn of a session, compared with the agent's own one-shot.
const OF_ONE_SHOT: f64 = 0.5;
/// The same, compared with a turn that follows, of agents that go from one session to the next
/// within a process: others begin a session with it, which is their own time.
const OF_SECOND: f64 = 1.3;

#[derive(Default)]
struct Times {
    own: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

pub(super) fn of(measured: &Measured, program: &Path, repetitions: usize) -> Vec<Figure> {
    let mut all = Times::default();
    for _ in 0..repetitions {
        let times = repetition(measured, program);
        all.own
            .extend((!times.own.is_empty()).then(|| median(&times.own)));
        all.first.push(median(&times.first));
        all.second.push(median(&times.second));
    }
    let figure = |name, control: &[f64], limit, aside: &str| Figure {
        name,
        unit: "ms",
        control: control.to_vec(),
        ours: all.first.clone(),
        limit,
        aside: format!("{}: {aside}", measured.name),
    };
    let mut figures = Vec::new();
    if !all.own.is_empty() {
        figures.push(figure(
            "agent-new",
            &all.own,
            Limit::Ratio(OF_ONE_SHOT),
            "`agentctl send`, the first turn of a session; control: its own one-shot",
        ));
    }
    let limit = match measured.name {
        "pi" => Limit::Ratio(OF_SECOND),
        _ => Limit::Ratio(f64::INFINITY),
    };
    figures.push(figure(
        "agent-new-second",
        &all.second,
        limit,
        "the same; control: a turn of a session that goes on",
    ));
    figures
}

fn repetition(measured: &Measured, program: &Path) -> Times {
    let rig = Rig::with(measured, program, "");
    let daemon = rig.place.daemon();
    let mut times = Times::default();
    // From here on it is in use, and there is a session to go on with.
    let second = ["send", "--session", "goes-on", "hello"];
    rig.place.run(AGENTCTL, &second, 0);
    rig.until_spare();
    // The first turn of a process that comes up is not what a turn in use is like.
    rig.place.run(AGENTCTL, &["send", "hello"], 0);
    let send = |words: &[&str]| {
        rig.until_spare();
        until_quiet();
        ms(rig.place.run(AGENTCTL, words, 0))
    };
    for _ in 0..ROUNDS {
        if let Some(exec_form) = &rig.own.exec_form {
            until_quiet();
            let mut argv = exec_form.clone();
            argv.push("hello".to_owned());
            let mut own = command(&rig.place, &rig.own, &argv);
            let begun = Instant::now();
            let status = own.status().unwrap();
            times.own.push(ms(begun.elapsed()));
            assert!(status.success(), "{argv:?}: {status}");
        }
        times.first.push(send(&["send", "hello"]));
        times.second.push(send(&second));
    }
    daemon.stop();
    times
}
