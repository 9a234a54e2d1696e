//! The figures of the product, each against a control measured in the same run.
//!
//! Owns the order of measuring and the command line. Must not know how the product works inside.
//!
//! `cargo bench --bench figures -- [--json] [--strict] [--quick] [--agents=AGENT,…] [NAME…]`; a NAME is
//! the beginning of a figure's name. Its own helper processes are modes of it: `--control-server`, `--writer`,
//! `--flood`, `--quick-turns`, `--paced`, `--connect` and `--service`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a measurement that can't be made ends the run; results are printed; some are of time"
)]

mod agents;
mod control;
mod disk;
mod durable;
mod faces;
mod http;
mod idle;
mod lists;
#[path = "../it/mock_model/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "what the tests look at")]
mod mock_model;
mod openai;
mod place;
mod programs;
mod report;
mod round_trips;
mod scheduler;
mod service;
#[path = "../it/sshd.rs"]
#[allow(dead_code, unreachable_pub, reason = "what the tests do with it")]
mod sshd;
mod status;
mod timmy;
mod voice;
mod waiting;

use std::process::ExitCode;

use report::Figure;

/// Repetitions of each measurement; the median is judged.
const REPETITIONS: usize = 5;

/// What was asked for.
struct Wanted {
    names: Vec<String>,
    repetitions: usize,
}

impl Wanted {
    fn figure(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| name.starts_with(wanted))
    }
}

type Measure = fn(usize) -> Vec<Figure>;

/// Each measurement with the names of its figures.
const MEASUREMENTS: &[(&[&str], Measure)] = &[
    (&["ping"], round_trips::ping),
    (&["send"], round_trips::send),
    (&["scheduler-event", "scheduler-waiting"], scheduler::events),
    (
        &[
            "waiting-rss",
            "waiting-rss-started",
            "waiting-rss-own",
            "waiting-rss-own-started",
            "waiting-rss-long",
            "waiting-rss-long-started",
        ],
        waiting::memory,
    ),
    (
        &[
            "waiting-start",
            "waiting-start-own",
            "waiting-start-10k",
            "waiting-start-10k-own",
        ],
        waiting::start,
    ),
    (&["waiting-order"], waiting::order),
    (&["start"], programs::start),
    (
        &[
            "agentctl-status-up",
            "agentctl-status-down",
            "agentctl-send",
        ],
        programs::agentctl,
    ),
    (&["doctor"], programs::doctor),
    (&["one-shot"], programs::one_shot),
    (&["fork", "fork-large"], programs::fork),
    (&["mcp-ready", "mcp-turn", "mcp-rss"], faces::mcp),
    (&["acp-ready", "acp-turn", "acp-rss"], faces::acp),
    (
        &["bridge-ready", "bridge-turn", "bridge-rss"],
        faces::bridge,
    ),
    (
        &["gateway-ready", "gateway-turn", "gateway-rss"],
        faces::gateway,
    ),
    (&["pi-face-ready", "pi-face-turn", "pi-face-rss"], faces::pi),
    (&["voice-forward"], voice::forward),
    (&["idle-rss", "idle-anonymous"], idle::memory),
    (&["idle-cpu"], idle::cpu),
    (&["connections"], idle::connections),
    (
        &[
            "acks",
            "acks-p99",
            "acks-p99-quiet",
            "acks-tail",
            "acks-wal",
        ],
        durable::acks,
    ),
    (&["http-acks", "http-acks-p99"], http::acks),
    (&["chat-first"], openai::first),
    (&["chat-whole"], openai::whole),
    (&["chat-streams"], openai::streams),
    (&["stored-start", "stored-rss"], durable::stored),
    (
        &[
            "lists-usage",
            "lists-sessions",
            "lists-accepts",
            "lists-accepts-busy",
            "lists-turns-p99",
            "lists-turns-p99-8",
        ],
        lists::all,
    ),
    (
        &[
            "status-dispatch",
            "status-lists",
            "status-backup",
            "status-starting",
            "status-queued",
            "status-retention",
        ],
        status::all,
    ),
    (
        &["sleeping-reader", "sleeping-others"],
        durable::sleeping_reader,
    ),
    (
        &[
            "agent-turn",
            "agent-first",
            "agent-new",
            "agent-new-second",
            "agent-abort",
            "agent-program",
            "agent-memory",
            "agent-once",
        ],
        agents::all,
    ),
    (
        &[
            "beside-api-first",
            "beside-api-whole",
            "beside-api-memory",
            "beside-api-turns",
        ],
        agents::api,
    ),
    (
        &["beside-acp-first", "beside-acp-whole", "beside-acp-memory"],
        agents::editors,
    ),
    (
        &["beside-tui-ready", "beside-tui-first", "beside-tui-next"],
        agents::interface,
    ),
    (&["timmy-cold"], timmy::cold),
    (&["timmy-turn"], timmy::turn),
    (&["timmy-rss", "timmy-session"], timmy::memory),
    (&["timmy-fallback"], timmy::fallback),
    (&["timmy-streams"], timmy::streams),
    (&["timmy-compact"], timmy::compact),
    (&["timmy-search", "timmy-list"], timmy::tree),
    (
        &["service-start", "service-kill", "service-refused"],
        service::all,
    ),
];

const FLAGS: &str = "--json, --strict, --quick, --new, --agents=AGENT,…";

/// Is it the name of a figure, or a flag?
fn is_known(word: &str) -> bool {
    matches!(
        word,
        "--json" | "--strict" | "--quick" | "--new" | "--bench"
    ) || word.starts_with("--agents=")
        || MEASUREMENTS.iter().any(|(names, _)| names.contains(&word))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("--control-server") => return control::serve(&words[1]),
        Some("--writer") => return control::write(&words[1]),
        Some("--flood") => return control::flood(durable::DELTAS),
        Some("--quick-turns") => return control::flood(0),
        Some("--paced") => return openai::speak(),
        Some("--service") => return service::inside(words[1].parse().unwrap()),
        Some("--voice") => return voice::inside(words[1].parse().unwrap(), words[2].as_ref()),
        Some("--connect") => return control::connect(&words[1], words[2].parse().unwrap()),
        _ => {}
    }
    if let Some(word) = words.iter().find(|word| !is_known(word)) {
        eprintln!("`{word}` is neither a figure nor a flag: expected {FLAGS}, or some of:");
        for (names, _) in MEASUREMENTS {
            eprintln!("  {}", names.join(" "));
        }
        return ExitCode::from(2);
    }
    let flag = |name: &str| words.iter().any(|word| word == name);
    let (json, strict, quick) = (flag("--json"), flag("--strict"), flag("--quick"));
    let wanted = Wanted {
        // Cargo adds `--bench` by itself.
        names: words
            .iter()
            .filter(|word| !word.starts_with("--"))
            .cloned()
            .collect(),
        repetitions: if quick { 1 } else { REPETITIONS },
    };
    println!("{}", report::machine());
    println!("{}", report::head());
    let mut missed = 0;
    for (names, measure) in MEASUREMENTS {
        if !names.iter().any(|name| wanted.figure(name)) {
            continue;
        }
        for figure in measure(wanted.repetitions) {
            println!("{}", figure.line());
            if json {
                println!("{}", figure.json());
            }
            missed += usize::from(!figure.holds());
        }
    }
    println!("load average at the end: {}", report::load());
    match missed {
        0 => println!("every figure holds"),
        n => println!("missed: {n}"),
    }
    if strict && missed > 0 {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
