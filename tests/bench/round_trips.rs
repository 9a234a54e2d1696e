//! Round trips: a ping, and a turn of a warm worker.
//!
//! Owns these two measurements. Must not know how they are judged.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Instant;

use crate::disk;
use crate::place::{Client, Place, TIMMY, is_final, ms};
use crate::report::{Figure, Limit, median};

const PINGS: usize = 3000;
const TURNS: usize = 200;
const SYNCS: usize = 200;
/// The first ones find cold caches.
const WARM_UP: usize = 20;

/// The median time of a round trip in milliseconds.
pub(crate) fn p50(times: usize, mut round_trip: impl FnMut(usize)) -> f64 {
    for number in 0..WARM_UP {
        round_trip(number);
    }
    let times: Vec<f64> = (WARM_UP..WARM_UP + times)
        .map(|number| {
            let begun = Instant::now();
            round_trip(number);
            ms(begun.elapsed())
        })
        .collect();
    median(&times)
}

/// Lets a process run on these cores only; `false` where there is no `taskset`.
fn keep_on(cores: &str, pid: u32) -> bool {
    let mut command = std::process::Command::new("taskset");
    command.args(["-cp", cores, &pid.to_string()]);
    let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

pub(crate) fn ping(repetitions: usize) -> Vec<Figure> {
    let place = Place::new();
    // A process of its own, as the daemon is: a thread of ours would be woken on the same core.
    let control_server = place.control();
    let bare = place.path("control.sock");
    let daemon = place.daemon();
    // On one core, as waking an idle one takes longer than a ping, and who shares one is chance.
    let all = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    let ours_too = std::process::id();
    let together = [control_server.pid(), daemon.pid(), ours_too];
    let pinned = together.iter().all(|pid| keep_on("0", *pid));
    let (mut control, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        for (socket, times) in [(&bare, &mut control), (&place.socket(), &mut ours)] {
            let mut client = Client::kept(socket);
            let p50 = p50(PINGS, |number| {
                client.ask(&format!(r#"{{"type":"ping","id":{number}}}"#));
            });
            times.push(p50 * 1000.0);
        }
    }
    keep_on(&format!("0-{all}"), ours_too);
    let where_ = if pinned {
        "all on one core"
    } else {
        "on any core: no `taskset`"
    };
    vec![Figure {
        name: "ping",
        unit: "µs",
        control,
        ours,
        limit: Limit::Ratio(3.0),
        aside: format!("p50; control: a bare tokio echo; {where_}"),
    }]
}

pub(crate) fn send(repetitions: usize) -> Vec<Figure> {
    let place = Place::new();
    let _daemon = place.daemon();
    let (mut control, mut ours, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repetitions {
        control.push(by_pipe(&place));
        let mut client = Client::kept(&place.socket());
        ours.push(p50(TURNS, |number| {
            client.send(&format!(
                r#"{{"id":{number},"prompt":"hello","session":"bench"}}"#
            ));
            client.finish();
        }));
        syncs.push(median(&disk::syncs(&place.path("synced"), SYNCS)));
    }
    let sync = median(&syncs);
    vec![Figure {
        name: "send",
        unit: "ms",
        control,
        ours,
        limit: Limit::More(1.0 + 3.0 * sync),
        aside: format!(
            "p50; control: the worker by pipe; limit: 1 ms + 3 × fdatasync of {sync:.3} ms"
        ),
    }]
}

/// The same turns, said to the same agent directly.
fn by_pipe(place: &Place) -> f64 {
    let mut worker = place
        .command(TIMMY, &["--rpc", "--provider", "echo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = worker.stdin.take().unwrap();
    let mut output = BufReader::new(worker.stdout.take().unwrap());
    let mut line = String::new();
    let p50 = p50(TURNS, |number| {
        let send = format!(r#"{{"type":"send","id":{number},"text":"hello","session":"bench"}}"#);
        writeln!(input, "{send}").unwrap();
        loop {
            line.clear();
            output.read_line(&mut line).unwrap();
            if is_final(&line) {
                break;
            }
        }
    });
    drop(input);
    worker.wait().unwrap();
    p50
}
