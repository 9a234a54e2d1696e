//! What a session begins with: where its agent takes it, who is told so, and when it is too late.

use std::time::Duration;

use agentd_core::worker::{Exit, Traits, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::serde_json::Value;

use crate::agents::settings;
use crate::scenarios::only;
use crate::world::World;

fn begins(agent: &str, more: &str) -> String {
    format!(
        r#"{{"type":"send","text":"go","session":"main","agent":"{agent}","system":"be brief","history":[{{"role":"user","text":"hi"}},{{"role":"assistant","text":"ho"}}]{more}}}"#
    )
}

fn able() -> Traits {
    Traits {
        resumes: Some(true),
        ..Traits::default()
    }
}

fn note(world: &World, conn: agentd_core::ids::ConnId) -> Option<Value> {
    let mut lines = world.clients[&conn].lines.iter();
    lines.find(|line| line["code"] == "in-prompt").cloned()
}

#[test]
fn beginning_goes_with_first_turn_where_taken() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, &begins("keeps", ""));
    let process = only(&world);
    world.get_ready_as(process, able());
    let begun = world.processes[&process].given[0]
        .begins
        .clone()
        .expect("it is told");
    assert_eq!(begun.system.as_deref(), Some("be brief"));
    assert_eq!(begun.history.len(), 2);
    assert_eq!(world.texts_told, ["go"]);
    assert_eq!(note(&world, conn), None);
    let turn = world.processes[&process].turns[0];
    let native = "n-1".to_owned();
    world.worker(process, WorkerEvent::SessionOfTurn { turn, native });
    world.end_turn(process);
    let more = r#"{"type":"send","text":"more","session":"main"}"#;
    world.request(conn, 2, more);
    assert_eq!(world.processes[&process].given[1].begins, None);
}

#[test]
fn beginning_stands_in_prompt_where_not_taken() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, &begins("many", ""));
    let process = only(&world);
    world.get_ready(process);
    assert_eq!(world.processes[&process].given[0].begins, None);
    let first = world.texts_told[0].clone();
    assert!(first.starts_with("# System\n\nbe brief\n"), "{first}");
    assert!(
        first.ends_with("## Assistant\n\nho\n\n# Prompt\n\ngo"),
        "{first}"
    );
    let told = note(&world, conn).expect("the sender is told");
    let text = told["text"].as_str().unwrap();
    assert!(text.contains("neither a system text nor"), "{text}");
    world.end_turn(process);
    world.request(conn, 2, r#"{"type":"send","text":"more","session":"main"}"#);
    assert_eq!(world.texts_told[1], "more");
    // Its memory is gone with its process, and with it what it was told; the messages were said once.
    world.end_turn(process);
    world.exit(process, Exit::Signal(9));
    world.pass(Duration::from_secs(5));
    world.request(
        conn,
        3,
        r#"{"type":"send","text":"again","session":"main"}"#,
    );
    let process = only(&world);
    world.get_ready(process);
    assert_eq!(
        world.texts_told[2],
        "# System\n\nbe brief\n\n# Prompt\n\nagain"
    );
}

#[test]
fn beginning_is_what_each_process_starts_with() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, &begins("one", ""));
    let process = only(&world);
    let told = |world: &World| {
        let processes = world.processes.values();
        processes
            .map(|process| process.system.clone())
            .collect::<Vec<_>>()
    };
    let brief = Some("be brief".to_owned());
    assert_eq!(told(&world), std::slice::from_ref(&brief));
    world.get_ready(process);
    // The messages have no place there.
    let first = world.texts_told[0].clone();
    assert!(
        first.starts_with("# Conversation so far\n\n## User\n\nhi"),
        "{first}"
    );
    world.end_turn(process);
    world.crash(settings());
    let conn = world.connect();
    world.request(conn, 2, r#"{"type":"send","text":"more","session":"main"}"#);
    assert_eq!(told(&world), std::slice::from_ref(&brief));
    // Another session's process has none of it.
    world.request(
        conn,
        3,
        r#"{"type":"send","text":"x","session":"other","agent":"one"}"#,
    );
    assert_eq!(told(&world), [brief, None]);
}

#[test]
fn beginning_comes_first_or_is_refused() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, &begins("many", r#","idempotency_key":"k""#));
    // The same again is the same job, and no second beginning.
    world.request(conn, 2, &begins("many", r#","idempotency_key":"k""#));
    world.request(conn, 3, &begins("many", ""));
    let refused = world.answer(conn, 3);
    assert_eq!(refused["code"], Code::InvalidRequest.name());
    let error = refused["error"].as_str().unwrap();
    assert_eq!(error, "`system` is given, but the session `main` has begun");
    let process = only(&world);
    world.get_ready(process);
    world.end_turn(process);
    assert_eq!(world.answer(conn, 2)["job"], "j1");
    world.request(
        conn,
        4,
        r#"{"type":"send","text":"x","session":"main","history":[{"role":"user","text":"hi"}]}"#,
    );
    assert!(
        world.answer(conn, 4)["error"]
            .as_str()
            .unwrap()
            .starts_with("`history`")
    );
    // One that was made and has no turn has not begun.
    world.request(
        conn,
        5,
        r#"{"type":"session.new","session":"made","agent":"one","system":"first"}"#,
    );
    world.request(conn, 6, r#"{"type":"send","text":"x","session":"made"}"#);
    let made = world
        .processes
        .values()
        .find(|process| process.agent == "one");
    assert_eq!(made.unwrap().system.as_deref(), Some("first"));
}
