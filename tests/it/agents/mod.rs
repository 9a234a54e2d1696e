//! The agents people have, for real, each against the model on loopback: one suite for all.
//!
//! Owns the scenarios. What an agent does differently is data in [`Can`], never code here; how it is
//! installed and configured is in its own file. An agent that isn't installed is a loud skip.

/// The whole suite for the agents of one file.
macro_rules! suite {
    () => {
        suite! {
            says runs_a_tool is_denied_a_tool is_aborted goes_on_after_a_kill leaves_no_orphan
            serves_two_sessions_at_once changes_its_model says_what_the_provider_refused
            is_given_up_in_time looks_at_what_is_attached says_why_it_stopped lists_its_models
            says_yes_for_longer is_told_how_a_session_begins forks_a_session
            answers_openais_clients answers_acpx
        }
    };
    ($($scenario:ident)+) => {
        $(
            #[test]
            fn $scenario() {
                for driven in installed() {
                    if crate::agents::is_due(&driven, stringify!($scenario)) {
                        crate::agents::$scenario(&driven);
                    }
                }
            }
        )+
    };
}

mod acp;
mod attached;
mod beginnings;
mod behind_acp;
mod behind_http;
mod can;
pub mod claude;
pub mod codex;
mod listed;
mod openclaw;
mod pi;
mod round_trip;
mod stops;
mod timmy;
mod tools;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use agentd_daemon::adapter::Kind;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use attached::looks_at_what_is_attached;
use beginnings::{forks_a_session, is_told_how_a_session_begins};
use behind_acp::answers_acpx;
use behind_http::answers_openais_clients;
pub use can::{Asks, Can, Turns};
use listed::lists_its_models;
use stops::says_why_it_stopped;
use tools::{is_denied_a_tool, runs_a_tool, says_yes_for_longer};

use crate::mock_model::MockModel;
use crate::support::{Client, Daemon, Place, is_alive, kill, parent_of};

/// One agent, ready to be driven.
pub struct Driven {
    /// With its version, for messages.
    pub label: String,
    pub program: PathBuf,
    /// Lays out what the agent needs in the place, and returns its table in the configuration,
    /// `[agents.it]`, with `model` as its model.
    pub configure: fn(&Driven, &Place, &MockModel) -> String,
    pub can: Can,
}

/// What the list of agents says behind a name.
fn listed(name: &str) -> Option<Vec<&'static str>> {
    let list = include_str!("../../../.ci/agents");
    let mut lines = list.lines().map(|line| line.split_whitespace());
    let mut line = lines.find(|line| line.clone().next() == Some(name))?;
    line.next();
    Some(line.collect())
}

/// Is it to run on every push? The heavy ones are tested where they are installed.
pub fn is_wanted(name: &str) -> bool {
    listed(name).is_some_and(|words| words.first() == Some(&"push"))
}

/// `AGENTD_TEST_AGENTS=all`, as every night.
pub fn every_scenario_is_due() -> bool {
    std::env::var_os("AGENTD_TEST_AGENTS").is_some_and(|which| which == "all")
}

/// Does this scenario run for it on every push?
fn is_due(driven: &Driven, scenario: &str) -> bool {
    // DIR/gemini/bin/gemini, DIR/claude-2.1.329/bin/claude
    let name = driven.program.iter().rev().nth(2);
    let name = name.and_then(|name| name.to_str()).unwrap_or_default();
    let program = || {
        name.split_once('-')
            .and_then(|(program, _)| listed(program))
    };
    let words = listed(name).or_else(program);
    let scenarios = words.as_ref().and_then(|words| words.get(1..));
    every_scenario_is_due()
        || scenarios.is_none_or(|named| named.is_empty() || named.contains(&scenario))
}

/// The directory of a place where tools may write: the place itself holds the daemon's own files.
pub const WORK: &str = "work";

/// A daemon with the agent and its model.
pub struct Scene {
    pub daemon: Daemon,
    pub model: MockModel,
    pub kind: &'static Kind,
}

impl Scene {
    pub fn of(driven: &Driven, more: &str) -> Self {
        let model = MockModel::start();
        let mut place = Place::new("");
        place.deadline = driven.can.patience;
        std::fs::create_dir(place.path(WORK)).unwrap();
        let table = (driven.configure)(driven, &place, &model);
        let kind = driven.can.agrees_with(&table, &driven.label);
        place.configure(&format!("default_agent = \"it\"\n{table}{more}"));
        Self {
            daemon: place.start(),
            model,
            kind,
        }
    }

    /// Sends to the session `main` and returns the final line.
    pub fn ask(&self, prompt: &str) -> Value {
        let line = json!({"prompt": prompt, "session": "main"});
        self.daemon
            .ask(&line.to_string())
            .pop()
            .expect("a final line")
    }

    /// A file where tools may write.
    pub fn work(&self, name: &str) -> PathBuf {
        self.daemon.path(WORK).join(name)
    }

    pub fn pid(&self) -> u32 {
        self.daemon.until("the agent's process", pid)
    }

    /// Whatever happened so far, nothing that the agent said or asked was news to its adapter.
    #[track_caller]
    fn was_understood(&self, driven: &Driven) {
        let mut client = self.daemon.connect();
        client.send(r#"{"type":"subscribe","id":"notes","after":0}"#);
        let lines = client.until("live");
        let began = |line: &Value| line["type"] == "accepted";
        assert!(lines.iter().any(began), "{}: {lines:#?}", driven.label);
        let odd = |line: &&Value| {
            let text = line["text"].as_str().unwrap_or_default();
            line["type"] == "note" && text.contains("which this version does not")
        };
        let odd: Vec<&Value> = lines.iter().filter(odd).collect();
        assert!(odd.is_empty(), "{}: {odd:#?}", driven.label);
    }
}

fn pid(status: &Value) -> Option<u32> {
    let pid = status["workers"][0]["pid"].as_u64()?;
    u32::try_from(pid).ok()
}

/// Sends something to a session that the model never ends, and waits until it began.
fn hangs(driven: &Driven, scene: &Scene, session: &str) -> Client {
    let mut client = scene.daemon.connect();
    let before = scene.model.asked().len();
    let line = json!({"type": "send", "id": 1, "text": "[[hang]]", "session": session});
    client.send(&line.to_string());
    match driven.can.turns {
        Turns::InOneProcess => drop(client.until("message_delta")),
        Turns::InOneEach => scene.daemon.until("the model is asked", |_| {
            (scene.model.asked().len() > before).then_some(())
        }),
    }
    client
}

/// Asks once more. Some put a message that was never answered before the next one, and of two
/// directives the model takes the last.
#[track_caller]
fn goes_on(driven: &Driven, scene: &Scene) -> Value {
    let next = scene.ask("[[deltas=1]]");
    assert_eq!(text(driven, &next).trim_end(), "w0", "{}", driven.label);
    next
}

/// Waits until no process is there that was started with something of the scene's place in its
/// environment, but the daemon: not all of them are in the agent's group.
fn nothing_is_left(driven: &Driven, scene: &Scene) {
    let place = scene.daemon.path("").display().to_string();
    let of_place = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        *pid != scene.daemon.pid() && String::from_utf8_lossy(&environment).contains(&place)
    };
    let fact = format!("no process of {} is left", driven.label);
    scene.daemon.until(&fact, |_| {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let left: Vec<u32> = pids.filter(of_place).collect();
        left.is_empty().then_some(())
    });
}

#[track_caller]
fn text<'a>(driven: &Driven, line: &'a Value) -> &'a str {
    assert_eq!(line["type"], "message_end", "{}: {line:#}", driven.label);
    line["text"].as_str().unwrap()
}

fn says(driven: &Driven) {
    let scene = Scene::of(driven, "");
    let lines = scene
        .daemon
        .ask(r#"{"type":"send","text":"[[deltas=50]]","session":"main"}"#);
    let whole: String = (0..50).map(|n| format!("w{n} ")).collect();
    let streamed: String = lines
        .iter()
        .filter(|line| line["type"] == "message_delta")
        .map(|line| line["text"].as_str().unwrap())
        .collect();
    let last = lines.last().unwrap();
    assert_eq!(
        text(driven, last).trim_end(),
        whole.trim_end(),
        "{}",
        driven.label
    );
    assert_eq!(streamed, last["text"].as_str().unwrap(), "{}", driven.label);
    assert_eq!(last["stop"], "end_turn", "{}: {last:#}", driven.label);
    assert_eq!(last["context"], "new", "{}: {last:#}", driven.label);
    assert!(
        last["usage"]["output_tokens"].as_u64() > Some(0),
        "{}: {last:#}",
        driven.label
    );
    let next = scene.ask("two [[recall]]");
    assert!(
        text(driven, &next).contains("[[deltas=50]]"),
        "{}: {next:#}",
        driven.label
    );
    assert_eq!(next["context"], "continued", "{}: {next:#}", driven.label);
    scene.was_understood(driven);
}

fn is_aborted(driven: &Driven) {
    let scene = Scene::of(driven, "");
    if driven.can.turns == Turns::InOneEach {
        // Of a first turn that never ended, nobody knows whether there is a session.
        scene.ask("one");
    }
    let mut client = hangs(driven, &scene, "main");
    let aborted_in = scene.pid();
    let aborted = scene
        .daemon
        .ask(r#"{"type":"abort","session":"main"}"#)
        .remove(0);
    assert_eq!(aborted["ok"], true, "{}: {aborted:#}", driven.label);
    let last = client.until("message_end").pop().unwrap();
    assert_eq!(last["stop"], "cancelled", "{}: {last:#}", driven.label);
    if driven.can.turns == Turns::InOneEach {
        nothing_is_left(driven, &scene);
    }
    let next = goes_on(driven, &scene);
    assert_eq!(next["context"], "continued", "{}: {next:#}", driven.label);
    if scene.kind.describe(&[]).cancels {
        assert_eq!(scene.pid(), aborted_in, "{}: the process", driven.label);
    }
    scene.was_understood(driven);
}

fn goes_on_after_a_kill(driven: &Driven) {
    if driven.can.keeps_young {
        goes_on_after(driven, |_| ());
    } else {
        is_lost_while_young(driven);
    }
}

/// What is gone is said to be: nothing is sent to an empty session under the old name.
fn is_lost_while_young(driven: &Driven) {
    let scene = Scene::of(driven, "");
    let began = minute();
    scene.ask("one");
    let old = scene.pid();
    kill(old, Signal::SIGKILL);
    let gone = |status: &Value| (pid(status) != Some(old)).then_some(());
    scene.daemon.until("the process is gone", gone);
    let next = scene.ask("two [[recall]]");
    let kept = next["context"] == "continued";
    let remembers = text(driven, &next).contains("one");
    assert_eq!(remembers, kept, "{}: {next:#}", driven.label);
    // On a busy machine that minute may be over.
    assert!(
        !kept || minute() != began,
        "{} keeps young sessions: {next:#}",
        driven.label
    );
    let line = json!({"prompt": "three", "session": "main", "require_context": true});
    let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
    let code = if kept {
        json!(null)
    } else {
        json!("context-lost")
    };
    assert_eq!(last["code"], code, "{}: {last:#}", driven.label);
}

fn minute() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs() / 60
}

/// From now on, also in the processes to come.
fn is_set_to(driven: &Driven, scene: &Scene, mode: &str) {
    let set = |mode: &str| {
        let set = json!({"type": "set_model", "session": "main", "mode": mode});
        scene.daemon.ask(&set.to_string()).remove(0)
    };
    let odd = set("no-such-mode");
    let error = odd["error"].as_str().unwrap_or_default();
    assert_eq!(odd["code"], "unsupported", "{}: {odd:#}", driven.label);
    assert!(error.contains(mode), "{}: {odd:#}", driven.label);
    let told = set(mode);
    assert_eq!(told["mode"], mode, "{}: {told:#}", driven.label);
    let listed = scene
        .daemon
        .ask(r#"{"type":"models","session":"main"}"#)
        .remove(0);
    assert_eq!(listed["mode"], mode, "{}: {listed:#}", driven.label);
}

/// The same where something has to pass between, with the agent at rest.
fn goes_on_after(driven: &Driven, between: impl Fn(&Scene)) {
    let scene = Scene::of(driven, "");
    scene.ask("one");
    if let Some((mode, _)) = driven.can.mode {
        is_set_to(driven, &scene, mode);
    }
    let mut client = hangs(driven, &scene, "main");
    let first = scene.pid();
    kill(first, Signal::SIGKILL);
    let last = client.until("error").pop().unwrap();
    let code = match driven.can.turns {
        Turns::InOneProcess => "worker-exited",
        Turns::InOneEach => "agent-failed",
    };
    assert_eq!(last["code"], code, "{}: {last:#}", driven.label);
    between(&scene);
    let next = scene.ask("three [[recall]]");
    if let Some((_, told)) = driven.can.mode {
        let asked = scene.model.asked().pop().unwrap().body.to_string();
        assert!(asked.contains(told), "{}: {asked}", driven.label);
    }
    assert!(
        text(driven, &next).contains("one"),
        "{}: {next:#}",
        driven.label
    );
    assert_eq!(next["context"], "continued", "{}: {next:#}", driven.label);
    let old = match driven.can.turns {
        Turns::InOneProcess => scene.pid(),
        Turns::InOneEach => first,
    };
    between(&scene);
    let daemon = scene.daemon.kill().start();
    let line = json!({"prompt": "four [[recall]]", "session": "main"});
    let last = daemon.ask(&line.to_string()).pop().unwrap();
    assert!(
        text(driven, &last).contains("one"),
        "{}: {last:#}",
        driven.label
    );
    assert_eq!(last["context"], "continued", "{}: {last:#}", driven.label);
    assert!(!is_alive(old), "{}: the old process is gone", driven.label);
    let history = daemon.ask(r#"{"type":"session.history","session":"main"}"#);
    let turns = history[0]["turns"].as_array().expect("turns");
    let texts: Vec<_> = turns.iter().map(|turn| &turn["text"]).collect();
    assert_eq!(
        texts,
        ["one", "[[hang]]", "three [[recall]]", "four [[recall]]"],
        "{}",
        driven.label
    );
}

/// The number here of a process that knows itself by `pid`, which is another one where the agent
/// puts it into a namespace.
fn as_seen_here(pid: u32, agent: u32) -> Option<u32> {
    let numbers = |of: u32| -> Option<Vec<u32>> {
        let status = std::fs::read_to_string(format!("/proc/{of}/status")).ok()?;
        let numbers = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers
            .split_whitespace()
            .map(|it| it.parse().ok())
            .collect()
    };
    let descends =
        |of: u32| std::iter::successors(Some(of), |of| parent_of(*of)).any(|of| of == agent);
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut all = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_it = |seen: &u32| numbers(*seen).and_then(|all| all.last().copied()) == Some(pid);
    // One that got away from its agent is in no namespace.
    all.find(|seen| is_it(seen) && descends(*seen))
        .or(Some(pid))
}

fn leaves_no_orphan(driven: &Driven) {
    let scene = Scene::of(driven, "");
    let file = scene.work("tool-pid");
    // It has neither the shell's session nor its environment.
    let prompt = format!(
        "[[bash=env -i setsid -w sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000'; true]]",
        file.display()
    );
    let mut client = scene.daemon.connect();
    let line =
        json!({"type": "send", "id": 1, "text": prompt, "session": "main", "on_question": "wait"});
    client.send(&line.to_string());
    if driven.can.asks == Asks::Always {
        let question = client.until("question").pop().unwrap();
        let answer =
            json!({"type": "answer", "question_id": question["question_id"], "approve": true});
        scene.daemon.ask(&answer.to_string());
    }
    let agent = scene.pid();
    // Not the shell itself, which dies with the agent where that asks the system for it.
    let tools = scene.daemon.until("the tool runs", |_| {
        let pid: u32 = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        let pid = as_seen_here(pid, agent)?;
        Some([pid, parent_of(pid)?])
    });
    kill(agent, Signal::SIGKILL);
    client.until("error");
    scene.daemon.until("the tool is gone, too", |_| {
        (!tools.iter().any(|tool| is_alive(*tool))).then_some(())
    });
    if driven.can.turns == Turns::InOneEach {
        nothing_is_left(driven, &scene);
    }
    scene.was_understood(driven);
}

fn serves_two_sessions_at_once(driven: &Driven) {
    let scene = Scene::of(driven, "");
    let mut first = hangs(driven, &scene, "one");
    let line = json!({"prompt": "beside", "session": "two"});
    let second = scene.daemon.ask(&line.to_string()).pop().unwrap();
    match driven.can.beside {
        None => assert_eq!(text(driven, &second), "echo: beside"),
        Some(code) => assert_eq!(second["code"], code, "{}: {second:#}", driven.label),
    }
    scene.daemon.ask(r#"{"type":"abort","session":"one"}"#);
    assert_eq!(
        first.until("message_end").pop().unwrap()["stop"],
        "cancelled"
    );
    scene.was_understood(driven);
}

fn changes_its_model(driven: &Driven) {
    let scene = Scene::of(driven, "");
    assert_eq!(text(driven, &scene.ask("one")), "echo: one");
    let lives_on = driven.can.turns == Turns::InOneProcess;
    let first = lives_on.then(|| scene.pid());
    let (provider, model) = driven.can.models[1];
    let set = json!({"type": "set_model", "session": "main", "provider": provider, "model": model});
    let set = scene.daemon.ask(&set.to_string()).remove(0);
    assert_eq!(set["ok"], true, "{}: {set:#}", driven.label);
    let odd = json!({"prompt": "no", "session": "main", "thinking": "no-such-level"});
    let odd = scene.daemon.ask(&odd.to_string()).pop().unwrap();
    let refused = ["unsupported", "invalid-request"].map(|code| odd["code"] == code);
    assert!(refused.contains(&true), "{}: {odd:#}", driven.label);
    let next = scene.ask("two [[recall]]");
    assert!(
        text(driven, &next).contains("one"),
        "{}: {next:#}",
        driven.label
    );
    assert_eq!(next["context"], "continued", "{}: {next:#}", driven.label);
    let asked = scene.model.asked().pop().unwrap();
    assert!(asked.model.contains(model), "{}: {asked:?}", driven.label);
    if let Some(first) = first {
        let stays = scene.kind.describe(&[]).model_per_turn || driven.can.switches;
        assert_eq!(scene.pid() == first, stays, "{}", driven.label);
    }
    scene.was_understood(driven);
}

fn says_what_the_provider_refused(driven: &Driven) {
    let scene = Scene::of(driven, "");
    for status in driven.can.tries_again {
        let prompt = format!("[[error={status}]]");
        let mut client = scene.daemon.connect();
        let line = json!({"type": "send", "id": 1, "text": prompt, "session": "stubborn"});
        client.send(&line.to_string());
        scene.daemon.until("the model is asked again", |_| {
            let seen = scene.model.seen();
            // Some put words of their own around it.
            let same =
                |users: &&Vec<String>| users.last().is_some_and(|last| last.contains(&prompt));
            (seen.iter().filter(same).count() > 1).then_some(())
        });
        scene.daemon.ask(r#"{"type":"abort","session":"stubborn"}"#);
        let last = client.until("message_end").pop().unwrap();
        assert_eq!(last["stop"], "cancelled", "{}: {last:#}", driven.label);
    }
    if let Some(code) = driven.can.overflow {
        let last = scene.ask("[[overflow]]");
        assert_eq!(
            (&last["type"], &last["code"]),
            (&json!("error"), &json!(code)),
            "{}: {last:#}",
            driven.label
        );
    }
    for (status, code) in driven.can.errors {
        let last = scene.ask(&format!("[[error={status}]]"));
        assert_eq!(
            (&last["type"], &last["code"]),
            (&json!("error"), &json!(code)),
            "{} {status}: {last:#}",
            driven.label
        );
    }
    for (directive, said) in driven.can.told {
        let line = json!({"prompt": format!("[[{directive}]]"), "session": "told"});
        let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
        let answer = text(driven, &last);
        assert!(
            answer.contains(said),
            "{} {directive}: {last:#}",
            driven.label
        );
    }
    let line = json!({"prompt": "and now", "session": "other"});
    let next = scene.daemon.ask(&line.to_string()).pop().unwrap();
    match driven.can.refusal_lasts {
        None => assert_eq!(text(driven, &next), "echo: and now"),
        // It lasts for a while, and on a busy machine the turn may begin after that.
        Some(code) => assert!(
            next["code"] == code || next["text"] == "echo: and now",
            "{}: {next:#}",
            driven.label
        ),
    }
    scene.was_understood(driven);
}

fn is_given_up_in_time(driven: &Driven) {
    let scene = Scene::of(driven, "");
    scene.ask("one");
    let line = json!({"type": "send", "text": "[[hang]]", "session": "main", "timeout": 1.0});
    let last = scene.daemon.ask(&line.to_string()).pop().unwrap();
    assert_eq!(last["code"], "timeout", "{}: {last:#}", driven.label);
    goes_on(driven, &scene);
    scene.was_understood(driven);
}
