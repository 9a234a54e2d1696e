//! What an agent has no way to heed is refused before anything is accepted.

use std::time::Duration;

use agentd_core::Settings;
use agentd_core::agent::{Levels, Providers};
use agentd_core::store::{NewJob, Stored};
use agentd_core::worker::{Exit, Traits, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::serde_json::{self, Value};

use crate::agents::settings;
use crate::scenarios::only;
use crate::world::World;

/// A world whose agent `one` is like Claude Code, `many` like an ACP agent, `turn` a plain command.
fn world() -> World {
    let mut settings = settings();
    for (name, models, providers, thinking) in [
        (
            "one",
            true,
            Providers::Known(&["bedrock", "vertex"]),
            Levels::Known(&["off", "high"]),
        ),
        ("many", true, Providers::OfModel, Levels::Any),
        ("turn", false, Providers::None, Levels::None),
    ] {
        let describe = &mut settings.agents.get_mut(name).unwrap().describe;
        (describe.models, describe.providers, describe.thinking) = (models, providers, thinking);
    }
    World::new(settings)
}

#[test]
fn pin_that_an_agent_lacks_is_refused_helpfully() {
    for (agent, pin, said) in [
        ("one", r#""provider":"openai""#, "knows `bedrock`, `vertex`"),
        ("one", r#""thinking":"hgih""#, "knows `off`, `high`"),
        ("many", r#""provider":"p""#, "name the `model`, too"),
        ("turn", r#""model":"m""#, "no `{model}` in its command"),
        ("turn", r#""provider":"p""#, "which provider"),
        ("turn", r#""thinking":"low""#, "how hard to think"),
    ] {
        let mut world = world();
        let conn = world.connect();
        let send = format!(r#"{{"type":"send","text":"x","agent":"{agent}",{pin}}}"#);
        world.request(conn, 1, &send);
        let answer = world.answer(conn, 1);
        let error = answer["error"].as_str().unwrap_or_default();
        assert_eq!(answer["code"], "unsupported", "{agent} {pin}: {answer}");
        assert!(error.contains(said), "{error}");
        assert!(world.jobs.is_empty() && world.processes.is_empty());
    }
}

#[test]
fn a_pin_that_it_can_heed_is_taken() {
    for (agent, pin) in [
        ("one", r#""provider":"vertex","thinking":"off","model":"m""#),
        ("many", r#""provider":"p","model":"m","thinking":"any""#),
    ] {
        let mut world = world();
        let conn = world.connect();
        let send = format!(r#"{{"type":"send","text":"x","agent":"{agent}",{pin}}}"#);
        world.request(conn, 1, &send);
        world.work();
        assert_eq!(world.answer(conn, 1)["type"], "message_end", "{pin}");
    }
}

#[test]
fn set_model_refuses_what_an_agent_lacks() {
    let mut world = world();
    let conn = world.connect();
    for (id, agent) in [(1, "one"), (2, "turn")] {
        let new = format!(r#"{{"type":"session.new","session":"{agent}","agent":"{agent}"}}"#);
        world.request(conn, id, &new);
    }
    for (id, set, code) in [
        (
            3,
            r#""session":"one","model":"m","provider":"openai""#,
            "unsupported",
        ),
        (
            4,
            r#""session":"one","model":"m","thinking":"hgih""#,
            "unsupported",
        ),
        (5, r#""session":"turn","model":"m""#, "unsupported"),
        (6, r#""session":"one","model":" ""#, "invalid-request"),
        (7, r#""session":"one","model":"a\nb""#, "invalid-request"),
    ] {
        world.request(conn, id, &format!(r#"{{"type":"set_model",{set}}}"#));
        assert_eq!(world.answer(conn, id)["code"], code, "{set}");
    }
    let long = "x".repeat(257);
    let set = format!(r#"{{"type":"set_model","session":"one","model":"{long}"}}"#);
    world.request(conn, 8, &set);
    assert_eq!(world.answer(conn, 8)["code"], "invalid-request");
    let set = r#"{"type":"set_model","session":"one","model":"m","provider":"vertex"}"#;
    world.request(conn, 9, set);
    assert_eq!(world.answer(conn, 9)["ok"], true);
}

#[test]
fn pin_of_the_configuration_is_checked_alike() {
    let mut settings = settings();
    let one = settings.agents.get_mut("one").unwrap();
    one.describe.thinking = Levels::Known(&["off"]);
    one.thinking = Some("hgih".to_owned());
    let mut world = World::new(settings);
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"x","agent":"one"}"#);
    let answer = world.answer(conn, 1);
    assert_eq!(answer["code"], "unsupported");
    assert!(answer["hint"].as_str().unwrap().contains("config.toml"));
}

#[test]
fn model_not_offered_is_refused_naming_offered_ones() {
    let mut world = world();
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"send","text":"x","agent":"many","session":"s"}"#,
    );
    let process = *world.processes.keys().next().unwrap();
    let models = ["p/sonnet", "p/opus"].map(str::to_owned).to_vec();
    let traits = Traits {
        models: Some(models),
        ..Traits::default()
    };
    world.processes.get_mut(&process).unwrap().ready = true;
    world.worker(process, WorkerEvent::Ready(traits));
    world.work();
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
    let set = r#"{"type":"set_model","session":"s","model":"nonsense"}"#;
    let send = r#"{"type":"send","text":"x","session":"s","model":"p/opuss"}"#;
    for (id, request, hint) in [(2, set, ""), (3, send, "`p/opus`")] {
        world.request(conn, id, request);
        let refused = world.answer(conn, id);
        assert_eq!(refused["code"], "unsupported", "{refused}");
        let error = refused["error"].as_str().unwrap();
        assert!(error.contains("p/sonnet, p/opus"), "{error}");
        assert!(refused["hint"].as_str().unwrap_or_default().contains(hint));
    }
    for (id, model) in [
        (4, r#""model":"p/opus""#),
        (5, r#""model":"opus","provider":"p""#),
    ] {
        let set = format!(r#"{{"type":"set_model","session":"s",{model}}}"#);
        world.request(conn, id, &set);
        assert_eq!(world.answer(conn, id)["type"], "set_model", "{model}");
    }
}

/// Does what processes are told, until nothing is left to do.
pub fn play(world: &mut World) {
    for _ in 0..100 {
        let Some(process) = world.processes.keys().next().copied() else {
            world.pass(Duration::from_millis(100));
            continue;
        };
        if world.processes[&process].told_to_end.is_some() {
            world.exit(process, Exit::Signal(15));
        } else if !world.processes[&process].ready {
            world.get_ready(process);
        } else if let Some(pins) = world.processes.get_mut(&process).unwrap().switched.pop() {
            let has_them = pins.model.as_deref() != Some("unknown");
            world.worker(process, WorkerEvent::Switched(has_them));
        } else if world.processes[&process].turns.is_empty() {
            break;
        } else {
            world.end_turn(process);
        }
    }
}

/// Sends of one session to `one`, each with these pins; says how many processes were started.
fn spawned(settings: Settings, pins: &[&str]) -> u64 {
    let mut world = World::new(settings);
    let conn = world.connect();
    for (id, pin) in (1..).zip(pins) {
        let send = format!(r#"{{"type":"send","text":"x","agent":"one","session":"s"{pin}}}"#);
        world.request(conn, id, &send);
        play(&mut world);
        assert_eq!(world.answer(conn, id)["type"], "message_end");
    }
    world.spawns
}

#[test]
fn pins_in_force_start_no_new_process() {
    let (low, model) = (r#","thinking":"low""#, r#","model":"m""#);
    assert_eq!(spawned(settings(), &[low, "", low, "", low]), 1);
    assert_eq!(spawned(settings(), &[model, "", low, "", model]), 2);
    assert_eq!(spawned(settings(), &["", low, "", ""]), 2);
    let high = r#","thinking":"high""#;
    assert_eq!(spawned(settings(), &[low, high, "", low]), 3);
}

#[test]
fn pins_that_go_with_turns_start_no_process() {
    let mut settings = settings();
    let one = settings.agents.get_mut("one").unwrap();
    one.describe.thinking_per_turn = true;
    let (low, high) = (r#","thinking":"low""#, r#","thinking":"high""#);
    assert_eq!(spawned(settings.clone(), &[low, high, "", low]), 1);
    assert_eq!(spawned(settings, &[low, r#","model":"m""#, high]), 2);
}

#[test]
fn pins_that_a_process_takes_start_no_other() {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().describe.switches = true;
    let (low, high) = (r#","thinking":"low""#, r#","thinking":"high""#);
    let (model, other) = (r#","model":"m""#, r#","model":"n""#);
    let unknown = r#","model":"unknown""#;
    let of = |turns: &[&str]| spawned(settings.clone(), turns);
    assert_eq!(of(&["", model, other, "", low, high, ""]), 1);
    // What it can't take, a new process is started with.
    assert_eq!(of(&[model, unknown, "", other, other]), 2);
}

#[test]
fn pins_that_are_never_taken_hold_nothing_up() {
    let mut settings = settings();
    settings.agents.get_mut("one").unwrap().describe.switches = true;
    let mut world = World::new(settings);
    let conn = world.connect();
    let send = r#"{"type":"send","text":"a","session":"s","agent":"one""#;
    world.request(conn, 1, &format!("{send}}}"));
    let first = only(&world);
    world.get_ready(first);
    world.end_turn(first);
    world.request(conn, 2, &format!(r#"{send},"model":"m"}}"#));
    assert_eq!(world.processes[&first].switched.len(), 1);
    assert!(world.processes[&first].turns.is_empty());
    // Its turn may be taken back meanwhile, and another one may want what it had.
    world.request(conn, 3, r#"{"type":"abort","session":"s","queued":true}"#);
    world.request(conn, 4, &format!(r#"{send},"model":"n"}}"#));
    assert_eq!(world.processes[&first].switched.len(), 1);
    world.pass(Duration::from_secs(6));
    assert!(world.processes[&first].told_to_end.is_some());
    world.exit(first, Exit::Signal(15));
    let next = only(&world);
    world.get_ready(next);
    assert_eq!(world.processes[&next].turns.len(), 1);
}

/// What the store knows of the last job's pins: provider, model, thinking.
fn pinned(world: &World) -> [Option<String>; 3] {
    let stored = world.jobs.values().last().unwrap();
    let request: Value = serde_json::from_str(&stored.request).unwrap();
    ["provider", "model", "thinking"].map(|pin| request[pin].as_str().map(str::to_owned))
}

#[test]
fn pins_count_for_later_turns_of_their_session() {
    for agent in ["one", "many"] {
        let mut settings = settings();
        settings.agents.get_mut(agent).unwrap().model = Some("usual".to_owned());
        let mut world = World::new(settings);
        let conn = world.connect();
        for (id, pins, wanted) in [
            (
                1,
                r#","provider":"p","model":"m""#,
                [Some("p"), Some("m"), None],
            ),
            (2, "", [Some("p"), Some("m"), None]),
            (
                3,
                r#","thinking":"low""#,
                [Some("p"), Some("m"), Some("low")],
            ),
            (4, r#","model":"n""#, [None, Some("n"), Some("low")]),
            (5, "", [None, Some("n"), Some("low")]),
        ] {
            let send =
                format!(r#"{{"type":"send","text":"x","agent":"{agent}","session":"s"{pins}}}"#);
            world.request(conn, id, &send);
            play(&mut world);
            assert_eq!(world.answer(conn, id)["type"], "message_end");
            assert_eq!(
                pinned(&world),
                wanted.map(|pin| pin.map(str::to_owned)),
                "{agent} {id}"
            );
        }
        let stored = &world.sessions["s"].pins;
        assert_eq!(
            (&stored.provider, stored.model.as_deref()),
            (&None, Some("n"))
        );
        // Another session begins with the agent's own.
        world.request(
            conn,
            6,
            &format!(r#"{{"type":"send","text":"x","agent":"{agent}"}}"#),
        );
        assert_eq!(pinned(&world), [None, Some("usual".to_owned()), None]);
    }
}

#[test]
fn pins_of_another_provider_leave_the_configured_model() {
    let mut settings = settings();
    let agent = settings.agents.get_mut("many").unwrap();
    agent.provider = Some("mine".to_owned());
    agent.model = Some("usual".to_owned());
    let mut world = World::new(settings);
    let conn = world.connect();
    for (id, pins, wanted) in [
        (1, "", [Some("mine"), Some("usual")]),
        (2, r#","provider":"mine""#, [Some("mine"), Some("usual")]),
        (3, r#","model":"m""#, [Some("mine"), Some("m")]),
        (4, r#","provider":"p","model":"m""#, [Some("p"), Some("m")]),
        (5, r#","provider":"p""#, [Some("p"), None]),
    ] {
        let send = format!(r#"{{"type":"send","text":"x","agent":"many"{pins}}}"#);
        world.request(conn, id, &send);
        let [provider, model, _] = pinned(&world);
        assert_eq!([provider.as_deref(), model.as_deref()], wanted, "{id}");
    }
}

#[test]
fn pins_leave_a_model_named_with_another_provider() {
    for (model, wanted) in [
        ("q/usual", None),
        ("p/usual", Some("p/usual")),
        ("usual", Some("usual")),
    ] {
        let mut settings = settings();
        let agent = settings.agents.get_mut("many").unwrap();
        (agent.provider, agent.model) = (None, Some(model.to_owned()));
        let mut world = World::new(settings);
        let conn = world.connect();
        let send = r#"{"type":"send","text":"x","agent":"many","provider":"p"}"#;
        world.request(conn, 1, send);
        let [provider, model, _] = pinned(&world);
        assert_eq!((provider.as_deref(), model.as_deref()), (Some("p"), wanted));
    }
}

#[test]
fn pins_of_a_refused_send_bind_nothing() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"send","text":"x","agent":"one","session":"s","model":"m"}"#,
    );
    world.work();
    assert_eq!(world.answer(conn, 1)["type"], "message_end");
    world.prompt_store = false;
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"x","session":"s","model":"n"}"#,
    );
    let failed = Stored::Failed {
        code: Code::DiskFull,
        why: "full".to_owned(),
    };
    world.store_refuses(failed);
    assert_eq!(world.answer(conn, 2)["code"], "disk-full");
    world.prompt_store = true;
    world.request(conn, 3, r#"{"type":"send","text":"x","session":"s"}"#);
    assert_eq!(pinned(&world), [None, Some("m".to_owned()), None]);
}

#[test]
fn pins_that_its_program_refuses_bind_nothing() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = r#"{"type":"send","text":"x","agent":"one","session":"s""#;
    world.request(conn, 1, &format!(r#"{send},"model":"nope"}}"#));
    while let Some(process) = world.processes.keys().next().copied() {
        world.exit(process, Exit::Code(78));
        world.pass(Duration::from_secs(60));
    }
    assert_eq!(world.answer(conn, 1)["code"], "worker-start-failed");
    world.request(conn, 2, &format!("{send}}}"));
    world.work();
    assert_eq!(world.answer(conn, 2)["type"], "message_end");
    assert_eq!(
        world.sessions["s"].pins,
        agentd_core::store::Pins::default()
    );
}

#[test]
fn pins_taken_back_leave_those_on_their_way() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = r#"{"type":"send","text":"x","agent":"one","session":"s""#;
    world.request(conn, 1, &format!(r#"{send},"model":"nope"}}"#));
    // Another one is on its way to a store that says nothing just then.
    world.prompt_store = false;
    world.request(conn, 2, &format!(r#"{send},"model":"m"}}"#));
    let process = *world.processes.keys().next().unwrap();
    world.exit(process, Exit::Code(78));
    world.prompt_store = true;
    world.pass(Duration::ZERO);
    assert_eq!(world.answer(conn, 1)["code"], "worker-start-failed");
    assert_eq!(world.sessions["s"].pins.model.as_deref(), Some("m"));
}

#[test]
fn pins_of_replayed_sends_bind_nothing() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = |key: &str, model: &str| {
        format!(
            r#"{{"type":"send","text":"x","agent":"one","session":"s","model":"{model}","idempotency_key":"{key}"}}"#
        )
    };
    for (id, key, model) in [(1, "a", "m"), (2, "b", "n")] {
        world.request(conn, id, &send(key, model));
        play(&mut world);
        assert_eq!(world.answer(conn, id)["type"], "message_end");
    }
    // Both are asked before the store has answered one.
    world.prompt_store = false;
    world.request(conn, 3, &send("a", "m"));
    world.request(conn, 4, &send("b", "n"));
    world.prompt_store = true;
    world.pass(Duration::ZERO);
    world.request(conn, 5, r#"{"type":"send","text":"x","session":"s"}"#);
    assert_eq!(pinned(&world), [None, Some("n".to_owned()), None]);
}

/// The rule of pins: a pin counts from its send on. What a job runs with is what it names, else what
/// the accepted ones before it in its session left, and nothing of those that weren't accepted. Of a
/// store that lost something, or has refused one of many, nobody can say that.
pub fn counts_from_its_send_on(world: &World, new: &NewJob, session: &str) {
    let session = world.sessions.get(session);
    let request: Value = serde_json::from_str(&new.request).unwrap();
    let named = request["labels"]["pin"].as_str();
    let set = session.and_then(|row| row.pins.model.as_deref());
    let runs_with = request["model"].as_str();
    let books = !world.out_of_step && !world.reordered;
    let pins = [named, set, runs_with].into_iter().flatten();
    if books && pins.into_iter().any(|pin| pin.starts_with("pin-")) {
        assert_eq!(
            runs_with,
            named.or(set),
            "the session has {set:?}: {request}"
        );
    }
}

/// A world whose session `s` ran the job of the key `a` with the model `m`, and has `n` since.
fn with_a_key() -> World {
    let mut world = World::new(settings());
    let conn = world.connect();
    for (id, more) in [
        (1, r#","model":"m","idempotency_key":"a""#),
        (2, r#","model":"n""#),
    ] {
        world.request(conn, id, &in_s(more));
        play(&mut world);
        assert_eq!(world.answer(conn, id)["type"], "message_end");
    }
    world
}

/// A send of the session `s`.
fn in_s(more: &str) -> String {
    format!(r#"{{"type":"send","text":"x","agent":"one","session":"s"{more}}}"#)
}

#[test]
fn pins_of_a_replay_skip_those_behind() {
    let key = r#","model":"m","idempotency_key":"a""#;
    for (what, asked) in [
        ("replay", in_s(key)),
        ("conflict", in_s(key).replace(r#""x""#, r#""y""#)),
    ] {
        for from_elsewhere in [false, true] {
            let mut world = with_a_key();
            let conn = world.connect();
            let other = if from_elsewhere {
                world.connect()
            } else {
                conn
            };
            world.prompt_store = false;
            world.request(conn, 3, &asked);
            world.request(other, 4, &in_s(""));
            world.request(other, 5, &in_s(r#","thinking":"low""#));
            world.prompt_store = true;
            world.pass(Duration::ZERO);
            let stored = world.jobs.values().rev().take(2);
            let runs_with = stored.map(|job| {
                let request: Value = serde_json::from_str(&job.request).unwrap();
                request["model"].clone()
            });
            assert_eq!(runs_with.collect::<Vec<_>>(), ["n", "n"], "{what}");
            let stored = &world.sessions["s"].pins;
            assert_eq!(stored.model.as_deref(), Some("n"), "{what}");
            assert_eq!(stored.thinking.as_deref(), Some("low"), "{what}");
        }
    }
}

#[test]
fn pins_of_an_unstored_send_skip_those_behind() {
    let mut world = with_a_key();
    let conn = world.connect();
    world.prompt_store = false;
    world.request(conn, 3, &in_s(r#","model":"o""#));
    world.request(conn, 4, &in_s(""));
    world.store_refuses(Stored::Failed {
        code: Code::DiskFull,
        why: "full".to_owned(),
    });
    world.prompt_store = true;
    world.pass(Duration::ZERO);
    assert_eq!(world.answer(conn, 3)["code"], "disk-full");
    assert_eq!(pinned(&world), [None, Some("n".to_owned()), None]);
}

#[test]
fn pins_set_before_a_send_count_for_it() {
    let mut world = with_a_key();
    let conn = world.connect();
    world.prompt_store = false;
    let set = r#"{"type":"set_model","session":"s","model":"o"}"#;
    world.request(conn, 3, set);
    world.request(conn, 4, &in_s(""));
    world.prompt_store = true;
    world.pass(Duration::ZERO);
    assert_eq!(world.answer(conn, 3)["ok"], true);
    assert_eq!(pinned(&world), [None, Some("o".to_owned()), None]);
}

#[test]
fn pins_within_a_dispatch_are_those_before() {
    let mut world = with_a_key();
    let conn = world.connect();
    let replayed = r#"{"text":"x","agent":"one","session":"s","model":"m","idempotency_key":"a"}"#;
    let dispatch = format!(
        r#"{{"type":"dispatch","jobs":[{replayed},{{"text":"x","session":"s"}},{{"text":"x","session":"s"}}]}}"#
    );
    world.request(conn, 3, &dispatch);
    let answer = world.answer(conn, 3);
    assert_eq!(answer["jobs"][0]["replayed"], true, "{answer}");
    assert_eq!(answer["jobs"][1]["replayed"], false, "{answer}");
    // The second asks for them as if it named them.
    assert_eq!(pinned(&world), [None, Some("m".to_owned()), None]);
    let stored = &world.sessions["s"].pins;
    assert_eq!(stored.model.as_deref(), Some("m"));
}

#[test]
fn pins_on_a_silent_store_hold_nobody() {
    let mut world = with_a_key();
    let conn = world.connect();
    let other = world.connect();
    world.prompt_store = false;
    world.request(conn, 3, &in_s(r#","model":"o""#));
    world.request(other, 4, &in_s(""));
    world.pass(Duration::from_secs(11));
    assert_eq!(world.answer(other, 4)["code"], "store-failed");
    assert!(world.clients[&conn].closed);
}
