//! Modes of agents: whose they are, through which processes, and which are not for clients.

use agentd_core::agent::{Consent, Mode, Modes};
use agentd_core::worker::{Exit, ModelList, Traits, WorkerEvent};
use agentd_protocol::models::ModeRow;

use crate::agents::settings;
use crate::pins::play;
use crate::scenarios::only;
use crate::world::World;

/// Modes of an agent like Claude Code.
const MODES: &[Mode] = &[
    mode("default", Consent::Asked),
    mode("plan", Consent::Asked),
    mode("all", Consent::Skipped),
];

const fn mode(id: &'static str, consent: Consent) -> Mode {
    Mode {
        id,
        description: "",
        consent,
    }
}

/// The mode that the last turn of a session ran in.
fn ran_in(world: &World) -> Option<String> {
    let process = world.processes.values().next().unwrap();
    let last = process.given.last().and_then(|prompt| prompt.mode.clone());
    let last = last.map(|pin| pin.id);
    process.mode.clone().or(last)
}

#[test]
fn mode_is_its_sessions_in_each_process() {
    for (agent, modes) in [("one", Modes::Known(MODES)), ("many", Modes::Offered)] {
        let mut settings = settings();
        settings.agents.get_mut(agent).unwrap().describe.modes = modes;
        let mut world = World::new(settings);
        let conn = world.connect();
        let send = format!(r#"{{"type":"send","text":"x","agent":"{agent}","session":"s"}}"#);
        world.request(conn, 1, &send);
        play(&mut world);
        assert_eq!(ran_in(&world), None, "{agent}");
        let set = r#"{"type":"set_model","session":"s","mode":"plan"}"#;
        world.request(conn, 2, set);
        let answer = world.answer(conn, 2);
        assert_eq!(answer["mode"], "plan", "{agent}: {answer}");
        world.request(conn, 3, &send);
        play(&mut world);
        assert_eq!(ran_in(&world).as_deref(), Some("plan"), "{agent}");
        let process = only(&world);
        world.exit(process, Exit::Signal(9));
        // A model leaves it as it is.
        let set = r#"{"type":"set_model","session":"s","model":"m"}"#;
        world.request(conn, 4, set);
        world.request(conn, 5, &send);
        play(&mut world);
        assert_eq!(ran_in(&world).as_deref(), Some("plan"), "{agent}");
        // The agent takes another one by itself; what clients may not choose isn't kept.
        let process = only(&world);
        for mode in ["default", "all", "bypass-permissions"] {
            let mode = ModeRow::named(mode);
            world.worker(process, WorkerEvent::ModeChanged { mode });
        }
        let kept = match modes {
            Modes::Known(_) => "default",
            _ => "all",
        };
        assert_eq!(world.sessions["s"].pins.mode.as_deref(), Some(kept));
    }
}

/// What an agent that tells its modes itself says of one.
fn row(id: &str, label: Option<&str>, description: Option<&str>) -> ModeRow {
    ModeRow {
        label: label.map(str::to_owned),
        description: description.map(str::to_owned),
        ..ModeRow::named(id)
    }
}

#[test]
fn modes_are_listed_by_what_they_say() {
    let rows = vec![
        row("1", None, None),
        row("2", Some("YOLO"), None),
        row("3", None, Some("Auto-approves all tools")),
    ];
    for (configured, listed) in [(None, &["1"][..]), (Some("2"), &["1", "2"])] {
        let mut settings = settings();
        let agent = settings.agents.get_mut("one").unwrap();
        agent.describe.modes = Modes::Offered;
        agent.mode = configured.map(str::to_owned);
        let mut world = World::new(settings);
        let conn = world.connect();
        let send = r#"{"type":"send","text":"x","agent":"one","session":"s"}"#;
        world.request(conn, 1, send);
        play(&mut world);
        let process = only(&world);
        let traits = Traits {
            modes: Some(rows.clone()),
            ..Traits::default()
        };
        world.worker(process, WorkerEvent::Ready(traits));
        world.request(conn, 2, r#"{"type":"models","session":"s"}"#);
        let (number, _) = world.processes[&process].listings.last().unwrap().clone();
        let list = ModelList {
            modes: rows.clone(),
            ..ModelList::default()
        };
        let result = Ok(list);
        world.worker(process, WorkerEvent::Models { number, result });
        let told = world.answer(conn, 2);
        let told = told["modes"].as_array().unwrap().iter();
        let told: Vec<_> = told.map(|row| row["id"].as_str().unwrap()).collect();
        assert_eq!(told, listed, "{configured:?}");
        let before = world.sessions["s"].pins.mode.clone();
        let mode = rows[2].clone();
        world.worker(process, WorkerEvent::ModeChanged { mode });
        assert_eq!(world.sessions["s"].pins.mode, before);
    }
}

#[test]
fn mode_that_clients_may_not_choose_is_refused() {
    let mut settings = settings();
    for (agent, modes) in [("one", Modes::Known(MODES)), ("many", Modes::Offered)] {
        settings.agents.get_mut(agent).unwrap().describe.modes = modes;
    }
    let mut world = World::new(settings.clone());
    let conn = world.connect();
    for (id, agent) in [(1, "one"), (2, "many"), (3, "turn")] {
        let new = format!(r#"{{"type":"session.new","session":"{agent}","agent":"{agent}"}}"#);
        world.request(conn, id, &new);
    }
    for (id, set, code) in [
        (4, r#""session":"one","mode":"all""#, "forbidden"),
        (5, r#""session":"many","mode":"YOLO""#, "forbidden"),
        (
            6,
            r#""session":"many","mode":"bypass_permissions""#,
            "forbidden",
        ),
        (7, r#""session":"one","mode":"nonsense""#, "unsupported"),
        (8, r#""session":"turn","mode":"plan""#, "unsupported"),
        (9, r#""session":"one""#, "invalid-request"),
        (10, r#""session":"one","provider":"p""#, "invalid-request"),
        (11, r#""session":"one","mode":"-p""#, "invalid-request"),
    ] {
        world.request(conn, id, &format!(r#"{{"type":"set_model",{set}}}"#));
        let answer = world.answer(conn, id);
        assert_eq!(answer["code"], code, "{set}: {answer}");
    }
    let nonsense = world.answer(conn, 7)["error"].to_string();
    assert!(nonsense.contains("knows `default`, `plan`"), "{nonsense}");
    // Its owner may; and then a client may say so.
    settings.agents.get_mut("one").unwrap().mode = Some("all".to_owned());
    let mut world = World::new(settings);
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"send","text":"x","agent":"one","session":"s"}"#,
    );
    play(&mut world);
    assert_eq!(ran_in(&world).as_deref(), Some("all"));
    let set = r#"{"type":"set_model","session":"s","mode":"all"}"#;
    world.request(conn, 2, set);
    assert_eq!(world.answer(conn, 2)["ok"], true);
}
