//! Sessions that begin as copies of others, and their titles.

use agentd_core::ids::ConnId;
use agentd_core::mcp::McpServers;
use agentd_core::store::{NewJob, NewSession, Pins, SessionRow};
use agentd_core::worker::{Traits, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::serde_json::json;

use crate::agents::settings;
use crate::scenarios::{ProcessId, only};
use crate::world::World;

const FORK: &str = r#"{"type":"session.fork","session":"main","to":"other"}"#;
const OTHER: &str = r#"{"type":"send","text":"x","session":"other"}"#;

/// How a session that was made is stored.
pub fn row_of(name: &str, new: NewSession) -> SessionRow {
    let fork = new.fork.as_ref();
    SessionRow {
        name: name.to_owned(),
        agent: new.agent,
        cwd: new.cwd,
        real_cwd: new.real_cwd,
        toolsets: new.toolsets,
        system: new.system,
        mcp_servers: new.mcp_servers,
        named: true,
        native: None,
        forks: fork.map(|fork| fork.native.clone()),
        turns: fork.map_or(0, |fork| fork.turns),
        pins: fork.map_or_else(Pins::default, |fork| fork.pins.clone()),
        lost: false,
    }
}

/// The same of one that begins with a job.
pub fn row_of_job(name: &str, new: &NewJob) -> SessionRow {
    SessionRow {
        named: new.session.is_some(),
        ..row_of(
            name,
            NewSession {
                name: None,
                agent: new.agent.clone(),
                cwd: new.cwd.clone(),
                real_cwd: new.real_cwd.clone(),
                toolsets: new.toolsets.clone(),
                system: None,
                mcp_servers: McpServers::default(),
                fork: None,
                at: 0,
            },
        )
    }
}

/// A world whose session `main` of this agent had a turn, and an id.
fn begun(agent: &str) -> (World, ConnId, ProcessId) {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = format!(r#"{{"type":"send","text":"x","session":"main","agent":"{agent}"}}"#);
    world.request(conn, 1, &send);
    let process = only(&world);
    world.get_ready_as(process, able());
    let turn = world.processes[&process].turns[0];
    let native = "n-1".to_owned();
    let named = match agent {
        "one" => WorkerEvent::SessionNamed { native },
        _ => WorkerEvent::SessionOfTurn { turn, native },
    };
    world.worker(process, named);
    world.end_turn(process);
    (world, conn, process)
}

fn able() -> Traits {
    Traits {
        resumes: Some(true),
        ..Traits::default()
    }
}

/// Which of its turns were told to copy.
fn copied(world: &World, process: ProcessId) -> Vec<bool> {
    let given = world.processes[&process].given.iter();
    given.map(|prompt| prompt.forks).collect()
}

#[test]
fn fork_is_copied_by_its_own_process() {
    let (mut world, conn, process) = begun("one");
    world.request(conn, 2, FORK);
    let made = world.answer(conn, 2);
    assert_eq!(
        (&made["session"], &made["from"]),
        (&json!("other"), &json!("main"))
    );
    world.request(conn, 3, OTHER);
    let other = *world.processes.keys().find(|key| **key != process).unwrap();
    let copying = &world.processes[&other];
    assert_eq!(
        (copying.resume.as_deref(), copying.forks),
        (Some("n-1"), true)
    );
    world.get_ready(other);
    let native = "n-2".to_owned();
    world.worker(other, WorkerEvent::SessionNamed { native });
    world.end_turn(other);
    assert_eq!(world.answer(conn, 3)["context"], "continued");
    // From now on it has an id of its own, and the old session has its.
    assert_eq!(world.sessions["other"].native.as_deref(), Some("n-2"));
    assert_eq!(world.sessions["other"].forks, None);
    assert_eq!(world.sessions["main"].native.as_deref(), Some("n-1"));
    world.crash(settings());
    let conn = world.connect();
    world.request(conn, 4, OTHER);
    let reopened = &world.processes[&only(&world)];
    assert_eq!(
        (reopened.resume.as_deref(), reopened.forks),
        (Some("n-2"), false)
    );
}

#[test]
fn fork_goes_with_its_first_turn_where_taken() {
    let (mut world, conn, process) = begun("keeps");
    world.request(conn, 2, FORK);
    world.crash(settings());
    let conn = world.connect();
    world.request(conn, 3, OTHER);
    let process = match world.processes.contains_key(&process) {
        true => process,
        false => only(&world),
    };
    world.get_ready_as(process, able());
    assert_eq!(world.natives.last().unwrap().as_deref(), Some("n-1"));
    assert_eq!(copied(&world, process), [true]);
    let turn = world.processes[&process].turns[0];
    let native = "n-2".to_owned();
    world.worker(process, WorkerEvent::SessionOfTurn { turn, native });
    world.end_turn(process);
    assert_eq!(world.answer(conn, 3)["context"], "continued");
    world.request(conn, 4, OTHER);
    assert_eq!(world.natives.last().unwrap().as_deref(), Some("n-2"));
    assert_eq!(copied(&world, process), [true, false]);
}

#[test]
fn fork_that_can_not_be_is_refused() {
    let (mut world, conn, process) = begun("one");
    for (id, line, code) in [
        (
            2,
            r#"{"type":"session.fork","session":"nobody"}"#,
            Code::UnknownSession,
        ),
        (
            3,
            r#"{"type":"session.fork","session":"main","to":"main"}"#,
            Code::InvalidRequest,
        ),
        (
            4,
            r#"{"type":"session.fork","session":"main","to":"a b"}"#,
            Code::InvalidRequest,
        ),
    ] {
        world.request(conn, id, line);
        assert_eq!(world.answer(conn, id)["code"], code.name(), "{line}");
    }
    world.request(
        conn,
        5,
        r#"{"type":"session.new","session":"made","agent":"one"}"#,
    );
    world.request(conn, 6, r#"{"type":"session.fork","session":"made"}"#);
    assert_eq!(world.answer(conn, 6)["code"], "invalid-request");
    world.request(
        conn,
        7,
        r#"{"type":"session.fork","session":"main","to":"made"}"#,
    );
    assert_eq!(world.answer(conn, 7)["code"], "session-conflict");
    world.request(conn, 8, r#"{"type":"send","text":"x","session":"main"}"#);
    world.request(conn, 9, FORK);
    assert_eq!(world.answer(conn, 9)["code"], "session-busy");
    world.end_turn(process);
    for agent in ["turn", "many"] {
        let mut world = World::new(settings());
        let conn = world.connect();
        let send = format!(r#"{{"type":"send","text":"x","session":"main","agent":"{agent}"}}"#);
        world.request(conn, 1, &send);
        let process = only(&world);
        if agent == "many" {
            world.get_ready(process);
        }
        world.end_turn(process);
        world.request(conn, 2, FORK);
        assert_eq!(world.answer(conn, 2)["code"], "unsupported", "{agent}");
    }
    // One whose handshake says that it can't.
    let (mut world, conn, process) = begun("keeps");
    let unable = Traits {
        forks: Some(false),
        ..able()
    };
    world.exit(process, agentd_core::worker::Exit::Code(0));
    world.request(conn, 2, FORK);
    assert_eq!(world.answer(conn, 2)["ok"], true);
    world.request(conn, 3, OTHER);
    world.pass(std::time::Duration::from_secs(5));
    let process = only(&world);
    world.get_ready_as(process, unable);
    assert_eq!(world.answer(conn, 3)["code"], "unsupported");
    world.request(
        conn,
        4,
        r#"{"type":"session.fork","session":"main","to":"third"}"#,
    );
    assert_eq!(world.answer(conn, 4)["code"], "unsupported");
}

#[test]
fn title_is_the_stores_whatever_the_session_does() {
    let (mut world, conn, process) = begun("one");
    world.request(conn, 2, r#"{"type":"send","text":"x","session":"main"}"#);
    world.request(
        conn,
        3,
        r#"{"type":"session.title","session":"main","title":"a b"}"#,
    );
    assert_eq!(world.answer(conn, 3)["title"], "a b");
    world.end_turn(process);
    world.request(conn, 4, r#"{"type":"session.title","session":"main"}"#);
    assert!(world.answer(conn, 4)["title"].is_null());
    for (id, line, code) in [
        (
            5,
            r#"{"type":"session.title","session":"nobody","title":"x"}"#,
            "unknown-session",
        ),
        (
            6,
            r#"{"type":"session.title","session":"main","title":" "}"#,
            "invalid-request",
        ),
        (
            7,
            r#"{"type":"session.title","session":"main","title":"a\nb"}"#,
            "invalid-request",
        ),
    ] {
        world.request(conn, id, line);
        assert_eq!(world.answer(conn, id)["code"], code, "{line}");
    }
}
