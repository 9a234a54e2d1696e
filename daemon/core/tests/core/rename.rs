//! Another name for a session: when it may have one, and that nothing else takes it meanwhile.

use std::time::Duration;

use agentd_core::store::{Loaded, Pins, SessionRow, Stored, Written};
use agentd_core::worker::{Exit, Traits, WorkerEvent};
use agentd_protocol::rows;

use crate::agents::settings;
use crate::properties::settled;
use crate::scenarios::{ProcessId, only, running};
use crate::world::World;

const RENAME: &str = r#"{"type":"session.rename","session":"main","to":"other"}"#;

impl World {
    /// The store's part: all of it, or none.
    pub fn rename(&mut self, session: &str, to: String) -> Result<Written, Stored> {
        let mut jobs = self.jobs.values();
        if jobs.any(|job| job.session == session && job.last.is_none()) {
            let instance = "other".to_owned();
            return Err(Stored::Orphaned { instance });
        }
        if self.sessions.contains_key(&to) {
            return Err(Stored::Taken);
        }
        let Some(mut row) = self.sessions.remove(session) else {
            return Ok(Written::Done);
        };
        self.renamed.insert(to.clone(), self.last_number());
        (row.name, row.named) = (to.clone(), true);
        self.sessions.insert(to.clone(), row);
        let of_it = self.jobs.values_mut().filter(|job| job.session == session);
        of_it.for_each(|job| {
            job.former.insert(job.session.clone());
            job.session.clone_from(&to);
        });
        self.holder.remove(session);
        Ok(Written::Opened { session: to })
    }

    /// All sessions, as far as the store knows them.
    pub fn listed(&self) -> Loaded {
        let rows = self.sessions.values().map(|row| rows::SessionRow {
            session: row.name.clone(),
            agent: row.agent.clone(),
            cwd: row.cwd.clone(),
            state: rows::SessionPhase::Idle,
            title: String::new(),
            preview: String::new(),
            model: row.pins.model.clone(),
            turns: row.turns,
            context_tokens: None,
            context_window: None,
            created_at: String::new(),
            last_active_at: String::new(),
            idle_s: None,
            closed_as: None,
        });
        Loaded::SessionList {
            sessions: (1..).zip(rows).collect(),
            more: false,
        }
    }
}

fn send(session: &str) -> String {
    format!(r#"{{"type":"send","text":"x","session":"{session}","agent":"keeps"}}"#)
}

/// The store has an idle session of the agent `one`.
pub fn stored(world: &mut World, name: &str) {
    let row = SessionRow {
        name: name.to_owned(),
        agent: "one".to_owned(),
        cwd: "/home/u".to_owned(),
        real_cwd: None,
        toolsets: None,
        system: None,
        mcp_servers: agentd_core::mcp::McpServers::default(),
        named: true,
        native: Some("file".to_owned()),
        forks: None,
        turns: 3,
        pins: Pins::default(),
        lost: false,
    };
    world.sessions.insert(name.to_owned(), row);
}

/// A turn of `main` by the agent `one`, in a process of its own, that named its session.
fn begun() -> (World, agentd_core::ids::ConnId, ProcessId) {
    let mut world = World::new(settings());
    stored(&mut world, "main");
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"x","session":"main"}"#);
    let process = only(&world);
    world.get_ready(process);
    world.end_turn(process);
    (world, conn, process)
}

#[test]
fn session_rename_is_refused_while_a_turn_runs() {
    let (mut world, conn, process) = running();
    world.request(conn, 2, RENAME);
    assert_eq!(world.answer(conn, 2)["code"], "session-busy");
    world.end_turn(process);
    world.request(conn, 3, RENAME);
    // It was never named, and its process is all that remembers it.
    assert_eq!(world.answer(conn, 3)["code"], "unsupported");
    world.request(
        conn,
        4,
        r#"{"type":"session.rename","session":"no","to":"a"}"#,
    );
    assert_eq!(world.answer(conn, 4)["code"], "unknown-session");
    world.request(
        conn,
        5,
        r#"{"type":"session.rename","session":"main","to":"main"}"#,
    );
    assert_eq!(world.answer(conn, 5)["code"], "invalid-request");
}

#[test]
fn session_rename_waits_until_its_process_ended() {
    let (mut world, conn, process) = begun();
    world.request(conn, 2, RENAME);
    assert!(world.processes[&process].told_to_end.is_some());
    world.request(conn, 3, r#"{"type":"send","text":"x","session":"main"}"#);
    assert_eq!(world.answer(conn, 3)["code"], "session-busy");
    assert!(world.sessions.contains_key("main"), "it is still there");
    world.exit(process, Exit::Code(0));
    let renamed = world.answer(conn, 2);
    assert_eq!(
        (&renamed["session"], &renamed["was"]),
        (&"other".into(), &"main".into())
    );
    assert_eq!(world.sessions["other"].native.as_deref(), Some("file"));
    world.request(conn, 4, r#"{"type":"send","text":"x","session":"other"}"#);
    let process = only(&world);
    let resumes = Traits {
        resumes: Some(true),
        ..Traits::default()
    };
    world.get_ready_as(process, resumes);
    world.end_turn(process);
    assert_eq!(world.answer(conn, 4)["context"], "continued");
    // The old name is free.
    world.request(
        conn,
        5,
        r#"{"type":"session.new","session":"main","agent":"one"}"#,
    );
    assert_eq!(world.answer(conn, 5)["ok"], true);
}

#[test]
fn session_rename_leaves_a_shared_process_alone() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, &send("main"));
    let process = only(&world);
    let resumes = Traits {
        resumes: Some(true),
        ..Traits::default()
    };
    world.get_ready_as(process, resumes);
    let turn = world.processes[&process].turns[0];
    let native = "n-1".to_owned();
    world.worker(process, WorkerEvent::SessionOfTurn { turn, native });
    world.end_turn(process);
    world.request(conn, 2, RENAME);
    assert_eq!(world.answer(conn, 2)["session"], "other");
    assert_eq!(world.processes[&process].told_to_end, None);
    world.request(conn, 3, &send("other"));
    world.end_turn(process);
    assert_eq!(world.natives.last().unwrap().as_deref(), Some("n-1"));
    assert_eq!(world.answer(conn, 3)["context"], "continued");
}

#[test]
fn session_rename_never_takes_another_sessions_name() {
    let (mut world, conn, process) = begun();
    stored(&mut world, "other");
    world.request(conn, 2, RENAME);
    world.exit(process, Exit::Code(0));
    assert_eq!(world.answer(conn, 2)["code"], "session-conflict");
    // It goes on under the name that it has.
    world.request(conn, 3, r#"{"type":"send","text":"x","session":"main"}"#);
    assert_eq!(world.answer(conn, 3)["type"], "accepted");
}

#[test]
fn session_rename_loses_to_whoever_makes_the_name() {
    let (mut world, conn, process) = begun();
    world.request(conn, 2, RENAME);
    world.prompt_store = false;
    world.request(conn, 3, &send("other"));
    world.exit(process, Exit::Code(0));
    // Whether there is such a session is being asked.
    assert!(
        !world
            .told_to(conn)
            .iter()
            .any(|told| told.starts_with("session.rename"))
    );
    world.prompt_store = true;
    world.pass(Duration::from_secs(1));
    world.work();
    assert_eq!(world.answer(conn, 2)["code"], "session-conflict");
    assert_eq!(world.sessions["other"].agent, "keeps");
    assert_eq!(world.sessions["main"].agent, "one");
}

/// A name is subscribed to from the beginning, and while the store is read another session gets it.
#[test]
fn session_rename_amid_a_subscription_misses_nothing_new() {
    settled([
        3_156_661_735,
        3_364_144_201,
        411_204_758,
        2_520_567_791,
        1_309_043_076,
        4_115_725_352,
        4_005_402_884,
        3_486_667_836,
        3_787_293_132,
        1_899_197_953,
    ]);
}
