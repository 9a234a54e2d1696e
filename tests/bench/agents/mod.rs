//! What agentd adds to the agents that people have: each driven through it and by its own protocol,
//! turn by turn in one run, with the same model on loopback behind both.
//!
//! Owns these measurements. How an agent is driven directly is data in its own file. Must not know
//! how figures are judged. An agent that isn't installed (`packaging/ci`) is left out, aloud.

mod acp;
mod beside;
mod claude;
mod codex;
mod in_use;
mod interface;
mod openclaw;
mod pi;

pub(crate) use beside::{api, editors};
pub(crate) use interface::interface;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::disk;
use crate::mock_model::MockModel;
use crate::place::{AGENTCTL, Client, Place, Server, ms};
use crate::report::{Figure, Limit, median};

/// Turns of one repetition, each a pair: one through agentd and one without it. One turn of an agent
/// differs from the next by more than agentd adds, so what counts is the median over all pairs, and
/// there are more of them than this while there is `TIME`, but not more than `MOST_TURNS`.
const TURNS: usize = 60;
const MOST_TURNS: usize = 150;
const TIME: Duration = Duration::from_secs(12);
/// First turns of one repetition, pairs, too: so many, and more while there is time.
const FIRSTS: usize = 4;
const MOST_FIRSTS: usize = 12;
const FIRSTS_TIME: Duration = Duration::from_secs(25);
/// The first ones find cold caches.
const WARM_UP: usize = 3;
/// Runs of a program that takes a second.
const RUNS: usize = 3;

/// An agent without agentd.
pub(crate) struct Own {
    /// What is run as long as it lives.
    argv: Vec<String>,
    /// What is run for one turn, by agents that have such a form; the prompt is added.
    exec_form: Option<Vec<String>>,
    env: Vec<(String, String)>,
    /// Waits until it is ready, and opens a session; what later lines need is returned.
    open: fn(&mut Pipe) -> String,
    /// A line that asks, by the number of the turn.
    prompt: fn(&str, usize, &str) -> String,
    /// A line that ends the turn that said the piece of text.
    abort: fn(&str, &Value) -> String,
    /// Is this a piece of text?
    says: fn(&Value) -> bool,
    /// Is this the last line of a turn?
    ends: fn(&Value) -> bool,
}

/// An agent to be measured.
pub(crate) struct Measured {
    /// The beginning of its figures' names.
    name: &'static str,
    /// Lays out what it needs, and says how it is run without agentd and, as a table of the
    /// configuration, with it.
    prepare: fn(&Path, &Place, &MockModel) -> (Own, String),
    /// Where `packaging/ci` puts it.
    program: &'static str,
    /// How long it is left alone before each turn: some work on after a turn, and what they do then
    /// must not be in the other's time.
    rest: Duration,
}

const AGENTS: &[&Measured] = &[
    &pi::PI,
    &claude::CLAUDE,
    &codex::CODEX,
    &acp::GEMINI,
    &acp::OPENCODE,
    &acp::HERMES,
    &acp::CLAUDE,
];

/// A command line.
fn words(program: &str, arguments: &str) -> Vec<String> {
    let all = [program].into_iter().chain(arguments.split_whitespace());
    all.map(str::to_owned).collect()
}

fn owned(env: &[(&str, &str)]) -> Vec<(String, String)> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    env.iter().map(pair).collect()
}

/// The agent's table of the configuration, to which keys may be added.
fn table(kind: &str, command: &[&str], keys: &str, env: &[(&str, &str)]) -> String {
    let env: Vec<String> = (env.iter())
        .map(|(name, value)| format!("{name} = {value:?}"))
        .collect();
    let env = env.join(", ");
    format!("[agents.it]\nkind = {kind:?}\ncommand = {command:?}\n{keys}\nenv = {{ {env} }}\n")
}

/// A running agent of ours.
pub(crate) struct Pipe {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: String,
}

impl Pipe {
    fn start(place: &Place, own: &Own) -> Self {
        let mut command = command(place, own, &own.argv);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            line: String::new(),
            child,
        }
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    /// Reads up to a line that is wanted.
    pub(crate) fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            self.line.clear();
            let read = self.output.read_line(&mut self.line).unwrap();
            assert!(read > 0, "the agent left");
            let line: Value = serde_json::from_str(&self.line).unwrap_or_default();
            if wanted(&line) {
                return line;
            }
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn command(place: &Place, own: &Own, argv: &[String]) -> Command {
    let words: Vec<&str> = argv.iter().skip(1).map(String::as_str).collect();
    let mut command = place.command(&argv[0], &words);
    command.envs(own.env.iter().cloned());
    command
}

/// An agent with a place of its own.
struct Rig {
    place: Place,
    own: Own,
    _model: MockModel,
}

impl Rig {
    fn of(measured: &Measured, program: &Path) -> Self {
        Self::with(measured, program, "warm = 1\n")
    }

    /// The same with these keys in its table.
    fn with(measured: &Measured, program: &Path, keys: &str) -> Self {
        let model = MockModel::start();
        let place = Place::new();
        let (own, table) = (measured.prepare)(program, &place, &model);
        place.configure(&format!("default_agent = \"it\"\n{table}{keys}"));
        Self {
            place,
            own,
            _model: model,
        }
    }

    /// A daemon whose spare process is ready.
    fn daemon(&self) -> Server {
        let daemon = self.place.daemon();
        self.until_spare();
        daemon
    }

    fn until_spare(&self) {
        let mut client = Client::kept(&self.place.socket());
        loop {
            let status = client.ask(r#"{"type":"status","workers":true}"#);
            let status: Value = serde_json::from_str(status).unwrap();
            let workers = status["workers"].as_array().cloned().unwrap_or_default();
            let spare = |row: &Value| row["state"] == "idle" && row["session"].is_null();
            if workers.iter().any(spare) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// All figures of every agent that is there, or of those that `--agents=NAME,…` names.
pub(crate) fn all(repetitions: usize) -> Vec<Figure> {
    let mut words = std::env::args();
    let wanted = words.find_map(|word| Some(word.strip_prefix("--agents=")?.to_owned()));
    let is_wanted = |name: &str| {
        let wanted = wanted.as_deref();
        wanted.is_none_or(|wanted| wanted.split(',').any(|wanted| wanted == name))
    };
    let mut figures = Vec::new();
    for measured in AGENTS.iter().filter(|measured| is_wanted(measured.name)) {
        if let Some(program) = installed(measured.program) {
            // `--new` leaves out what a configured spare gains.
            if !std::env::args().any(|word| word == "--new") {
                figures.extend(of(measured, &program, repetitions));
            }
            figures.extend(in_use::of(measured, &program, repetitions));
        }
    }
    if is_wanted(openclaw::NAME) {
        figures.extend(installed(openclaw::PROGRAM).map(|it| openclaw::of(&it, repetitions)));
    }
    figures
}

fn installed(program: &str) -> Option<PathBuf> {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(program);
    if !program.is_file() {
        println!("left out: needs {}", program.display());
    }
    Some(program).filter(|program| program.is_file())
}

/// What is measured of one agent.
#[derive(Default)]
struct Pairs {
    /// One per pair of turns.
    turns: Pair,
    firsts: Pair,
    aborts: Pair,
    programs: Pair,
    memory: Pair,
}

fn of(measured: &Measured, program: &Path, repetitions: usize) -> Vec<Figure> {
    let (mut pairs, mut syncs) = (Pairs::default(), Vec::new());
    for _ in 0..repetitions {
        let rig = Rig::of(measured, program);
        let daemon = rig.daemon();
        first(&rig, &mut pairs.firsts);
        let mut pipe = Pipe::start(&rig.place, &rig.own);
        let context = (rig.own.open)(&mut pipe);
        syncs.extend(turn_by_turn(
            &rig,
            &mut pipe,
            &context,
            measured.rest,
            &mut pairs.turns,
        ));
        pairs.memory.control.push(memory_of_tree(pipe.child.id()));
        pairs.memory.ours.push(mib_of(daemon.pid()));
        abort(&rig, &mut pipe, &context, &mut pairs.aborts);
        exec_form(&rig, &mut pairs.programs);
        daemon.stop();
    }
    figures(measured.name, pairs, median(&syncs))
}

fn figures(agent: &str, pairs: Pairs, sync: f64) -> Vec<Figure> {
    let figure = |name: &'static str, pair: Pair, limit, aside: &str| Figure {
        name,
        unit: "ms",
        control: pair.control,
        ours: pair.ours,
        limit,
        aside: format!("{agent}: {aside}"),
    };
    let (low, high) = pairs.turns.middle_half();
    let turn = format!(
        "a warm turn; control: its own protocol; limit: 1 ms + 3 × fdatasync of {sync:.3} ms; half of \
         the pairs differ by {low:+.2} to {high:+.2} ms"
    );
    let mut figures = vec![
        figure(
            "agent-turn",
            pairs.turns,
            Limit::More(1.0 + 3.0 * sync),
            &turn,
        ),
        figure(
            "agent-first",
            pairs.firsts,
            Limit::Ratio(1.2),
            "the first turn of a session, with a spare process; control: its own on a ready process",
        ),
        figure(
            "agent-abort",
            pairs.aborts,
            Limit::More(300.0),
            "abort to the last line; control: its own",
        ),
    ];
    if !pairs.programs.ours.is_empty() {
        let aside = "`agentctl send`, warm; control: its own one-shot";
        figures.push(figure(
            "agent-program",
            pairs.programs,
            Limit::Ratio(1.0),
            aside,
        ));
    }
    let aside = "the daemon beside it; control: the agent's processes";
    figures.push(Figure {
        unit: "MiB",
        ..figure("agent-memory", pairs.memory, Limit::Alone(20.0), aside)
    });
    figures
}

/// Resident memory of a process in MiB.
fn mib_of(pid: u32) -> f64 {
    crate::idle::memory_of(pid, "Rss:") / 1024.0
}

/// The same with the processes that it started: an adapter has its agent in another one.
fn memory_of_tree(pid: u32) -> f64 {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    // Some are there for a moment only.
    let is_there = |pid: &u32| std::fs::read(format!("/proc/{pid}/smaps_rollup")).is_ok();
    mib_of(pid) + children.filter(is_there).map(memory_of_tree).sum::<f64>()
}

/// Times in milliseconds, each of ours beside one of the control's.
#[derive(Default)]
struct Pair {
    control: Vec<f64>,
    ours: Vec<f64>,
}

impl Pair {
    fn add(&mut self, control: f64, ours: f64) {
        self.control.push(control);
        self.ours.push(ours);
    }

    /// The bounds of the middle half of the differences.
    fn middle_half(&self) -> (f64, f64) {
        let pairs = self.ours.iter().zip(&self.control);
        let mut differences: Vec<f64> = pairs.map(|(ours, control)| ours - control).collect();
        differences.sort_by(f64::total_cmp);
        let quarter = differences.len() / 4;
        let last = differences.len() - 1;
        (differences[quarter], differences[last - quarter])
    }
}

/// The first turn on a process that is ready, with nothing else under way: no other process starts
/// meanwhile, and both have rested, as one that was just started still has everything at hand.
fn first(rig: &Rig, firsts: &mut Pair) {
    let begun = Instant::now();
    for number in 0..MOST_FIRSTS {
        if number >= FIRSTS && begun.elapsed() >= FIRSTS_TIME {
            break;
        }
        let mut pipe = Pipe::start(&rig.place, &rig.own);
        let context = (rig.own.open)(&mut pipe);
        let own = || {
            rig.until_spare();
            until_quiet();
            let begun = Instant::now();
            pipe.send(&(rig.own.prompt)(&context, 1, "hello"));
            pipe.until(rig.own.ends);
            ms(begun.elapsed())
        };
        let through = || {
            rig.until_spare();
            let mut client = Client::kept(&rig.place.socket());
            until_quiet();
            let begun = Instant::now();
            client.send(&format!(
                r#"{{"id":1,"prompt":"hello","session":"first-{number}"}}"#
            ));
            client.finish();
            let took = ms(begun.elapsed());
            client.ask(&format!(
                r#"{{"type":"session.close","id":2,"session":"first-{number}"}}"#
            ));
            took
        };
        let (control, ours) = in_turn(number, own, through);
        firsts.control.push(control);
        firsts.ours.push(ours);
    }
}

/// Waits until the machine has next to nothing to do, for a while at most: what an agent does after
/// its turn must not be in the other's time.
fn until_quiet() {
    for _ in 0..50 {
        let (busy, all) = ticks();
        std::thread::sleep(Duration::from_millis(200));
        let (busy_then, all_then) = ticks();
        if (busy_then - busy) * 20 <= all_then - all {
            return;
        }
    }
}

/// Of all cores since they were started: how many clock ticks they worked, and all.
fn ticks() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let all = stat.lines().next().unwrap().split_whitespace().skip(1);
    let all: Vec<u64> = all.take(8).map(|ticks| ticks.parse().unwrap()).collect();
    let sum = all.iter().sum::<u64>();
    // The fourth and fifth were idle, or waiting for a disk.
    (sum - all[3] - all[4], sum)
}

/// In each pair another one comes first: what one leaves to be done after it would otherwise always
/// be done in the other's time.
fn in_turn<T>(number: usize, mut own: impl FnMut() -> T, mut through: impl FnMut() -> T) -> (T, T) {
    if number.is_multiple_of(2) {
        let control = own();
        (control, through())
    } else {
        let ours = through();
        (own(), ours)
    }
}

/// Beside each pair is one sync of a page, whose times are returned: one that follows another takes
/// half as long as one of a disk and a core that rested, as those of a turn do.
fn turn_by_turn(
    rig: &Rig,
    pipe: &mut Pipe,
    context: &str,
    rest: Duration,
    turns: &mut Pair,
) -> Vec<f64> {
    let mut disk = disk::Growing::at(&rig.place.path("synced"));
    let mut syncs = Vec::new();
    let mut client = Client::kept(&rig.place.socket());
    let mut own = |number: usize| {
        std::thread::sleep(rest);
        let begun = Instant::now();
        pipe.send(&(rig.own.prompt)(context, number + 2, "hello"));
        pipe.until(rig.own.ends);
        ms(begun.elapsed())
    };
    let mut through = |number: usize| {
        std::thread::sleep(rest);
        let begun = Instant::now();
        client.send(&format!(
            r#"{{"id":{number},"prompt":"hello","session":"bench"}}"#
        ));
        client.finish();
        ms(begun.elapsed())
    };
    let begun = Instant::now();
    for number in 0..WARM_UP + MOST_TURNS {
        if number >= WARM_UP + TURNS && begun.elapsed() >= TIME {
            break;
        }
        let (control, ours) = in_turn(number, || own(number), || through(number));
        if number >= WARM_UP {
            turns.control.push(control);
            turns.ours.push(ours);
            syncs.push(disk.sync());
        }
    }
    syncs
}

fn abort(rig: &Rig, pipe: &mut Pipe, context: &str, aborts: &mut Pair) {
    let number = 1000;
    pipe.send(&(rig.own.prompt)(context, number, "[[hang]]"));
    let said = pipe.until(rig.own.says);
    let begun = Instant::now();
    pipe.send(&(rig.own.abort)(context, &said));
    pipe.until(rig.own.ends);
    aborts.control.push(ms(begun.elapsed()));
    let mut client = Client::kept(&rig.place.socket());
    client.send(r#"{"type":"send","id":1,"text":"[[hang]]","session":"bench"}"#);
    while !client.next().contains(r#""type":"message_delta""#) {}
    let begun = Instant::now();
    client.send(r#"{"type":"abort","id":2,"session":"bench"}"#);
    client.finish();
    aborts.ours.push(ms(begun.elapsed()));
}

/// From a shell's point of view.
fn exec_form(rig: &Rig, programs: &mut Pair) {
    let Some(exec_form) = &rig.own.exec_form else {
        return;
    };
    let (mut control, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let mut argv = exec_form.clone();
        argv.push("hello".to_owned());
        let begun = Instant::now();
        let status = command(&rig.place, &rig.own, &argv).status().unwrap();
        control.push(ms(begun.elapsed()));
        assert!(status.success(), "{argv:?}: {status}");
        let words = ["send", "--session", "bench", "hello"];
        ours.push(ms(rig.place.run(AGENTCTL, &words, 0)));
    }
    programs.control.push(median(&control));
    programs.ours.push(median(&ours));
}
