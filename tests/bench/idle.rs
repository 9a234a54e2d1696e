//! What the daemon costs while nothing is asked of it: memory, time, connections.
//!
//! Owns these measurements and reading `/proc`. Must not know how they are judged.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::place::{Client, Place, Server};
use crate::report::{Figure, Limit};

/// The part of a day that is watched.
const WATCHED: Duration = Duration::from_secs(10);
/// So long nobody asks for anything: after 5 to 10 s a daemon gives its program's pages back.
const IDLE: Duration = Duration::from_secs(12);
const CONNECTIONS: usize = 10_000;

/// A value of `/proc/PID/smaps_rollup` in KiB.
pub(crate) fn memory_of(pid: u32, name: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Clock ticks of all threads.
fn ticks(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after = stat.rsplit(')').next().unwrap();
    let mut fields = after.split_whitespace().skip(11);
    let mut next = || fields.next().unwrap().parse::<f64>().unwrap();
    next() + next()
}

fn switches(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .filter_map(|status| {
            let line = status
                .lines()
                .find(|line| line.starts_with("voluntary_ctxt_switches"))?
                .to_owned();
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .sum()
}

pub(crate) fn memory(repetitions: usize) -> Vec<Figure> {
    let mut figures = [
        ("idle-rss", "Rss:", 7.0),
        ("idle-anonymous", "Anonymous:", 2.0),
        ("idle-rss-used", "Rss:", 7.0),
        ("idle-anonymous-used", "Anonymous:", 2.0),
    ]
    .map(|(name, key, limit)| {
        let figure = Figure {
            name,
            unit: "MiB",
            control: Vec::new(),
            ours: Vec::new(),
            limit: Limit::Alone(limit),
            aside: "control: bare tokio + SQLite".to_owned(),
        };
        (key, figure)
    });
    let (fresh, used) = figures.split_at_mut(2);
    for (_, figure) in &mut *used {
        figure
            .aside
            .push_str("; after 100 turns and as many `status`");
    }
    for _ in 0..repetitions {
        let place = Place::new();
        let (control, daemon) = (place.control(), place.daemon());
        for figures in [&mut *fresh, &mut *used] {
            std::thread::sleep(IDLE);
            for (key, figure) in figures {
                figure.control.push(memory_of(control.pid(), key) / 1024.0);
                figure.ours.push(memory_of(daemon.pid(), key) / 1024.0);
            }
            use_it(&mut Client::kept(&place.socket()));
        }
    }
    figures.map(|(_, figure)| figure).into()
}

/// A hundred turns, each with a look at how it is.
fn use_it(client: &mut Client) {
    for id in 0..100 {
        client.send(&format!(
            r#"{{"type":"send","id":{id},"text":"hi","agent":"timmy","session":"main"}}"#
        ));
        client.finish();
        client.ask(r#"{"type":"status"}"#);
    }
}

pub(crate) fn cpu(repetitions: usize) -> Vec<Figure> {
    let place = Place::new();
    let (control, daemon) = (place.control(), place.daemon());
    std::thread::sleep(IDLE);
    let (mut bare, mut ours, mut woken) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let before = (
            ticks(control.pid()),
            ticks(daemon.pid()),
            switches(daemon.pid()),
        );
        std::thread::sleep(WATCHED);
        bare.push(ticks(control.pid()) - before.0);
        ours.push(ticks(daemon.pid()) - before.1);
        woken.push(switches(daemon.pid()) - before.2);
    }
    vec![Figure {
        name: "idle-cpu",
        unit: "ticks",
        control: bare,
        ours,
        limit: Limit::Alone(0.0),
        aside: format!("in 10 s; voluntary context switches {woken:?}"),
    }]
}

pub(crate) fn connections(repetitions: usize) -> Vec<Figure> {
    let (mut control, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let place = Place::new();
        control.push(per_connection(
            &place.control(),
            &place.path("control.sock"),
        ));
        ours.push(per_connection(&place.daemon(), &place.socket()));
    }
    vec![Figure {
        name: "connections",
        unit: "KiB",
        control,
        ours,
        limit: Limit::Alone(12.0),
        aside: format!("each of {CONNECTIONS} idle ones that said hello; control: the echo"),
    }]
}

fn per_connection(server: &Server, socket: &Path) -> f64 {
    let before = memory_of(server.pid(), "Rss:");
    // The limit of open files is per process, so the clients are in one of their own.
    let mut clients = std::process::Command::new(std::env::current_exe().unwrap())
        .arg("--connect")
        .arg(socket)
        .arg(CONNECTIONS.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(clients.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n", "not every connection was taken");
    let after = memory_of(server.pid(), "Rss:");
    drop(clients.stdin.take());
    clients.wait().unwrap();
    (after - before) / f64::from(u32::try_from(CONNECTIONS).unwrap())
}
