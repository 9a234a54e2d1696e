//! Our faces beside those of others, each with its own agent and the same model on loopback: timmy
//! behind `serve http` and `serve acp`, Hermes behind its API server and its ACP, opencode behind its
//! ACP.
//!
//! Owns these measurements. Must not know how figures are judged. What isn't installed is left out,
//! aloud.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Measured, Pair, Pipe, acp, installed, memory_of_tree, until_quiet};
use crate::http::Http;
use crate::mock_model::MockModel;
use crate::place::{AGENTCTL, Place, ms};
use crate::report::{Figure, Limit};

/// Pairs of turns of a repetition.
const TURNS: usize = 20;
/// The first ones find cold caches.
const WARM_UP: usize = 3;
pub(super) const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// So long it is left alone: some work on after a turn.
pub(super) const REST: Duration = Duration::from_millis(300);
const CHAT: &str = "/v1/chat/completions";

/// Pairs of one protocol: the other's as the control.
#[derive(Default)]
struct Pairs {
    first: Pair,
    whole: Pair,
    memory: Pair,
}

/// Timmy with this model in a place that has what is wanted for it.
pub(super) fn ours(model: &MockModel) -> Place {
    let place = Place::new();
    place.configure(&format!(
        "default_agent = \"timmy\"\n[models]\ndefault = \"mock/m1\"\n[providers.mock]\nbase_url = \"{}\"\n",
        model.url
    ));
    place
}

pub(super) fn figure(
    name: &'static str,
    unit: &'static str,
    pair: Pair,
    limit: Limit,
    aside: String,
) -> Figure {
    Figure {
        name,
        unit,
        control: pair.control,
        ours: pair.ours,
        limit,
        aside,
    }
}

/// `serve http` beside Hermes' API server.
pub(crate) fn api(repetitions: usize) -> Vec<Figure> {
    let Some(hermes) = installed(acp::HERMES.program) else {
        return Vec::new();
    };
    let (mut pairs, mut turns) = (Pairs::default(), Pair::default());
    for _ in 0..repetitions {
        let model = MockModel::start();
        let place = ours(&model);
        let daemon = place.daemon();
        let http = Http::start(&place);
        let (_their_place, theirs) = hermes_server(&hermes, &model);
        for number in 0..WARM_UP + TURNS {
            let them = streamed(&theirs, "hermes-agent");
            let us = streamed(&http, "timmy");
            if number >= WARM_UP {
                pairs.first.add(them.0, us.0);
                pairs.whole.add(them.1, us.1);
            }
        }
        let ours = memory_of_tree(daemon.pid()) + memory_of_tree(http.pid());
        pairs.memory.add(memory_of_tree(theirs.pid()), ours);
        for (runs, program) in SDKS {
            let theirs = failed(runs, program, &theirs, "hermes-agent", &model);
            let ours = failed(runs, program, &http, "timmy", &model);
            if let (Some(theirs), Some(ours)) = (theirs, ours) {
                turns.add(theirs, ours);
            }
        }
        drop(http);
        daemon.stop();
    }
    let no_slower = Limit::Ratio(1.0);
    let aside = |what: &str| format!("{what}, timmy; control: Hermes' API server");
    let mut figures = vec![
        figure(
            "beside-api-first",
            "ms",
            pairs.first,
            no_slower,
            aside("to the first words of a streamed chat"),
        ),
        figure(
            "beside-api-whole",
            "ms",
            pairs.whole,
            no_slower,
            aside("to its end"),
        ),
        figure(
            "beside-api-memory",
            "MiB",
            pairs.memory,
            no_slower,
            aside("resident memory of all processes"),
        ),
    ];
    if !turns.ours.is_empty() {
        figures.push(figure(
            "beside-api-turns",
            "",
            turns,
            Limit::Alone(1.0),
            aside("requests that one chat costs by an SDK whose model fails"),
        ));
    }
    figures
}

/// Its server with a home of its own, which lives as long as it.
fn hermes_server(program: &Path, model: &MockModel) -> (Place, Http) {
    let place = Place::new();
    let (own, _) = (acp::HERMES.prepare)(program, &place, model);
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let at: SocketAddr = at.unwrap();
    let key = "a key that is long enough".replace(' ', "-");
    let mut command = place.command(program.to_str().unwrap(), &["gateway", "run"]);
    let child = command
        .envs(own.env)
        .env("API_SERVER_ENABLED", "true")
        .env("API_SERVER_KEY", &key)
        .env("API_SERVER_PORT", at.port().to_string())
        .spawn()
        .unwrap();
    let server = Http::of(child, at, key);
    let begun = Instant::now();
    while TcpStream::connect(at).is_err() {
        assert!(begun.elapsed() < STARTS_WITHIN, "Hermes does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    (place, server)
}

/// A streamed chat: the times to its first words and to its end.
fn streamed(server: &Http, model: &str) -> (f64, f64) {
    std::thread::sleep(REST);
    until_quiet();
    let body = format!(
        r#"{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"[[deltas=20]]"}}]}}"#
    );
    // Another one: servers close those that were left alone.
    let mut connection = server.connect();
    let begun = Instant::now();
    connection.ask(CHAT, &body);
    let mut first = None;
    while let Some(piece) = connection.piece() {
        // Whatever is between a name and its value, and not where it is empty.
        let says = |piece: &str| piece.replace("\": ", "\":").contains(r#""content":"w"#);
        if first.is_none() && says(&piece) {
            first = Some(ms(begun.elapsed()));
        }
    }
    (first.expect("words"), ms(begun.elapsed()))
}

/// Who runs an SDK of `packaging/ci/install-openai.sh`, and one chat by it.
const SDKS: [(&str, &str); 2] = [
    (
        "python/bin/python",
        "import os, openai
try:
    openai.OpenAI().chat.completions.create(model=os.environ['MODEL'], messages=[{'role': 'user', 'content': os.environ['SAID']}])
except openai.OpenAIError:
    pass",
    ),
    (
        "bin/node",
        "const { default: OpenAI } = require('openai');
new OpenAI().chat.completions.create({ model: process.env.MODEL, messages: [{ role: 'user', content: process.env.SAID }] }).catch(() => {})",
    ),
];

/// How many requests came to the model.
fn failed(runs: &str, program: &str, server: &Http, name: &str, model: &MockModel) -> Option<f64> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ci/openai");
    if !dir.join("versions").is_file() {
        println!("left out: needs {}", dir.display());
        return None;
    }
    let before = model.asked().len();
    // No agent asks again after that; who does is the SDK.
    let said = "[[fail=badrequest]]";
    let flag = if runs.ends_with("node") { "-e" } else { "-c" };
    let status = Command::new(dir.join(runs))
        .args([flag, program])
        .current_dir(&dir)
        .envs(server.environment())
        .envs([("MODEL", name), ("SAID", said)])
        .status()
        .unwrap();
    assert!(status.success(), "{runs}: {status}");
    let asked = model.asked().split_off(before);
    let of_it = |users: &Vec<String>| users.last().is_some_and(|last| last.contains(said));
    let count = asked.iter().filter(|asked| of_it(&asked.users)).count();
    Some(f64::from(u32::try_from(count).unwrap()))
}

/// `serve acp` beside the ACP of each agent that has one of its own.
pub(crate) fn editors(repetitions: usize) -> Vec<Figure> {
    let mut figures = Vec::new();
    for measured in [&acp::HERMES, &acp::OPENCODE] {
        if let Some(program) = installed(measured.program) {
            figures.extend(editor(measured, &program, repetitions));
        }
    }
    figures
}

fn editor(measured: &Measured, program: &Path, repetitions: usize) -> Vec<Figure> {
    let mut pairs = Pairs::default();
    for _ in 0..repetitions {
        let model = MockModel::start();
        let place = ours(&model);
        let daemon = place.daemon();
        let argv = super::words(AGENTCTL, "serve acp");
        let own = acp::own(argv, None, &[]);
        let their_place = Place::new();
        let (their_own, _) = (measured.prepare)(program, &their_place, &model);
        let mut them = Pipe::start(&their_place, &their_own);
        let mut us = Pipe::start(&place, &own);
        let sessions = [acp::open(&mut them), acp::open(&mut us)];
        for number in 0..WARM_UP + TURNS {
            let theirs = prompted(&mut them, &sessions[0], number);
            let ours = prompted(&mut us, &sessions[1], number);
            if number >= WARM_UP {
                pairs.first.add(theirs.0, ours.0);
                pairs.whole.add(theirs.1, ours.1);
            }
        }
        let ours = memory_of_tree(daemon.pid()) + memory_of_tree(us.child.id());
        pairs.memory.add(memory_of_tree(them.child.id()), ours);
        drop(us);
        daemon.stop();
    }
    let no_slower = Limit::Ratio(1.0);
    let aside = |what: &str| format!("{what}, timmy; control: {}'s own ACP", measured.name);
    vec![
        figure(
            "beside-acp-first",
            "ms",
            pairs.first,
            no_slower,
            aside("to the first words of a prompt's answer"),
        ),
        figure(
            "beside-acp-whole",
            "ms",
            pairs.whole,
            no_slower,
            aside("to its end"),
        ),
        figure(
            "beside-acp-memory",
            "MiB",
            pairs.memory,
            no_slower,
            aside("resident memory of all processes"),
        ),
    ]
}

/// A prompt: the times to its first words and to its end.
fn prompted(pipe: &mut Pipe, session: &str, number: usize) -> (f64, f64) {
    let own = acp::own(Vec::new(), None, &[]);
    std::thread::sleep(REST);
    until_quiet();
    let begun = Instant::now();
    pipe.send(&(own.prompt)(session, number, "[[deltas=20]]"));
    pipe.until(own.says);
    let first = ms(begun.elapsed());
    pipe.until(own.ends);
    (first, ms(begun.elapsed()))
}
