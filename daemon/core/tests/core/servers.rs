//! MCP servers that a session brings: to which process they go, when they change, and who is refused.

use agentd_core::worker::Traits;
use agentd_protocol::Code;

use crate::agents::{settings, with_spares};
use crate::scenarios::only;
use crate::world::World;

fn send(agent: &str, session: &str, names: &[&str], more: &str) -> String {
    let one = |name: &&str| {
        format!(r#"{{"type":"stdio","name":"{name}","command":"mcp","env":{{"KEY":"hush"}}}}"#)
    };
    let servers: Vec<String> = names.iter().map(one).collect();
    let servers = servers.join(",");
    format!(
        r#"{{"type":"send","text":"go","session":"{session}","agent":"{agent}","mcp_servers":[{servers}]{more}}}"#
    )
}

fn told(world: &World) -> Vec<Option<Vec<String>>> {
    let processes = world.processes.values();
    processes
        .map(|process| process.mcp_servers.clone())
        .collect()
}

fn named(name: &str) -> Option<Vec<String>> {
    Some(vec![name.to_owned()])
}

fn more(session: &str) -> String {
    format!(r#"{{"type":"send","text":"more","session":"{session}"}}"#)
}

#[test]
fn servers_are_what_each_process_starts_with() {
    let mut spares = with_spares();
    spares.agents.retain(|name, _| name == "one");
    let mut world = World::new(spares);
    let conn = world.connect();
    world.request(conn, 1, &send("one", "main", &["files"], ""));
    let process = only(&world);
    assert_eq!(told(&world), [named("files")]);
    world.get_ready(process);
    world.end_turn(process);
    // Neither another session's process nor a spare has them.
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"x","session":"other","agent":"one"}"#,
    );
    assert!(told(&world).contains(&None), "{:?}", told(&world));
    assert_eq!(
        told(&world).iter().filter(|names| names.is_some()).count(),
        1
    );
    world.crash(settings());
    let conn = world.connect();
    world.request(conn, 3, &more("main"));
    assert!(told(&world).contains(&named("files")), "{:?}", told(&world));
    // Nobody reads them where requests are read.
    let kept = world.jobs.values().map(|job| format!("{job:?}"));
    assert!(kept.into_iter().all(|job| !job.contains("hush")));
}

#[test]
fn servers_change_between_turns_only() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(
        conn,
        1,
        &send("one", "main", &["files"], r#","idempotency_key":"k""#),
    );
    let process = only(&world);
    world.get_ready(process);
    // The same ones are no change.
    world.request(conn, 2, &send("one", "main", &["files"], ""));
    assert_eq!(world.answer(conn, 2)["type"], "accepted");
    world.request(conn, 3, &send("one", "main", &["web"], ""));
    let refused = world.answer(conn, 3);
    assert_eq!(refused["code"], Code::SessionBusy.name(), "{refused}");
    world.end_turn(process);
    world.end_turn(process);
    world.request(conn, 4, &send("one", "main", &["web"], ""));
    world.exit(process, agentd_core::worker::Exit::Code(0));
    assert_eq!(told(&world), [named("web")]);
    // What proves to be a replay changes nothing.
    let process = only(&world);
    world.get_ready(process);
    world.end_turn(process);
    world.request(
        conn,
        5,
        &send("one", "main", &["files"], r#","idempotency_key":"k""#),
    );
    assert_eq!(world.answer(conn, 5)["job"], "j1");
    world.request(conn, 6, &more("main"));
    for process in world.processes.keys().copied().collect::<Vec<_>>() {
        if world.processes[&process].told_to_end.is_some() {
            world.exit(process, agentd_core::worker::Exit::Code(0));
        }
    }
    assert_eq!(told(&world), [named("web")]);
}

#[test]
fn servers_go_with_each_turn_where_taken() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, &send("keeps", "main", &["files"], ""));
    let process = only(&world);
    let able = Traits {
        resumes: Some(true),
        mcp: Some(true),
        ..Traits::default()
    };
    world.get_ready_as(process, able);
    let given =
        |world: &World, turn: usize| world.processes[&process].given[turn].mcp_servers.named();
    assert_eq!(given(&world, 0), named("files"));
    world.end_turn(process);
    world.request(conn, 2, &more("main"));
    assert_eq!(given(&world, 1), named("files"));
    world.end_turn(process);
    world.request(conn, 3, &send("keeps", "main", &[], ""));
    assert_eq!(given(&world, 2), None);
}

#[test]
fn servers_are_refused_where_none_are_taken() {
    let mut world = World::new(settings());
    let conn = world.connect();
    for (id, agent) in [(1, "many"), (2, "turn")] {
        world.request(conn, id, &send(agent, "main", &["files"], ""));
        let refused = world.answer(conn, id);
        assert_eq!(refused["code"], Code::Unsupported.name(), "{refused}");
        assert!(!refused.to_string().contains("hush"), "{refused}");
    }
    let new = r#"{"type":"session.new","agent":"many","mcp_servers":[{"type":"http","name":"a","url":"https://a.example/"}]}"#;
    world.request(conn, 3, new);
    assert_eq!(world.answer(conn, 3)["code"], Code::Unsupported.name());
    // None are fine with all.
    world.request(conn, 4, &send("many", "main", &[], ""));
    assert_eq!(world.answer(conn, 4)["type"], "accepted");
    // One that says so only when it is there.
    world.request(conn, 5, &send("keeps", "late", &["files"], ""));
    let process = *world
        .processes
        .iter()
        .find(|(_, one)| one.agent == "keeps")
        .unwrap()
        .0;
    let unable = Traits {
        mcp: Some(false),
        ..Traits::default()
    };
    world.get_ready_as(process, unable);
    let ended = world.answer(conn, 5);
    assert_eq!(ended["code"], Code::Unsupported.name(), "{ended}");
}

#[test]
fn servers_are_forbidden_from_inside_a_worker() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"send","text":"x","session":"s","agent":"one"}"#,
    );
    let process = only(&world);
    world.get_ready(process);
    let inside = World::inside(process);
    for (id, line) in [
        (2, send("one", "main", &["files"], "")),
        (3, r#"{"type":"session.new","agent":"one","mcp_servers":[{"type":"stdio","name":"a","command":"x"}]}"#.to_owned()),
    ] {
        world.request_from(conn, id, &line, inside.clone());
        let refused = world.answer(conn, id);
        assert_eq!(refused["code"], Code::Forbidden.name(), "{refused}");
    }
}
