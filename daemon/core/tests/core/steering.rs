//! Steers, shorter memories, other models.

use std::time::Duration;

use agentd_core::agent::Sessions;
use agentd_core::ids::ConnId;
use agentd_core::worker::{Exit, Failure, Steering, WorkerEvent};
use agentd_protocol::Code;

use crate::agents::{describe, settings};
use crate::scenarios::{ProcessId, only, running, say};
use crate::world::World;

fn last(world: &World, conn: ConnId) -> String {
    world.told_to(conn).last().unwrap().clone()
}

fn steered(world: &mut World, process: ProcessId, nth: usize, steering: Steering) {
    let (steer, _) = world.processes[&process].steers[nth];
    world.worker(process, WorkerEvent::Steered { steer, steering });
}

#[test]
fn steer_is_answered_when_it_is_taken() {
    let (mut world, conn, process) = running();
    world.request(conn, 2, r#"{"type":"steer","text":"left"}"#);
    world.request(conn, 3, r#"{"type":"steer","job":"j1","text":"right"}"#);
    let other = world.connect();
    world.request(other, 1, r#"{"type":"steer","session":"main","text":"up"}"#);
    world.request(other, 2, r#"{"type":"steer","text":"the only one"}"#);
    let texts: Vec<_> = world.processes[&process]
        .steers
        .iter()
        .map(|(_, text)| text.as_str())
        .collect();
    assert_eq!(texts, ["left", "right", "up", "the only one"]);
    assert_eq!(last(&world, conn), "1:running");
    steered(&mut world, process, 0, Steering::Taken);
    // Whoever looks at the turn sees it, too, then and later.
    let told = world.told_to(conn);
    assert_eq!(told[told.len() - 2..], ["2:steer", "1:note steered"]);
    assert_eq!(world.clients[&conn].lines.last().unwrap()["text"], "left");
    let refused = Failure::new(Code::AgentFailed, "no");
    steered(&mut world, process, 1, Steering::Refused(refused));
    assert_eq!(last(&world, conn), "3:error agent-failed");
    steered(&mut world, process, 2, Steering::TooLate);
    assert_eq!(last(&world, other), "1:error session-idle");
    // The turn ends and nothing is said of the last one, and what comes after that is nobody's.
    world.end_turn(process);
    assert_eq!(last(&world, other), "2:error session-idle");
    steered(&mut world, process, 3, Steering::Taken);
    assert_eq!(last(&world, other), "2:error session-idle");
}

/// The `messages` of a job's final line, as `role: content`.
fn messages(world: &World, conn: ConnId) -> Vec<String> {
    let told = &world.clients[&conn].lines;
    let last = told.iter().rfind(|line| line["type"] == "message_end");
    let listed = last.and_then(|line| line["messages"].as_array());
    let listed = listed.into_iter().flatten();
    listed
        .map(|one| format!("{}: {}", one["role"].as_str().unwrap(), one["content"]))
        .collect()
}

#[test]
fn messages_say_who_said_them() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = r#"{"type":"send","text":"hi","session":"main","include":["messages"]}"#;
    world.request(conn, 1, send);
    let process = only(&world);
    world.get_ready(process);
    say(&mut world, process, "one");
    world.request(conn, 2, r#"{"type":"steer","text":"left"}"#);
    world.request(conn, 3, r#"{"type":"steer","text":"never taken"}"#);
    steered(&mut world, process, 0, Steering::Taken);
    let turn = world.processes[&process].turns[0];
    let replaces_last = false;
    let begun = WorkerEvent::MessageStarted {
        turn,
        replaces_last,
    };
    world.worker(process, begun);
    say(&mut world, process, "two");
    world.end_turn(process);
    assert_eq!(
        messages(&world, conn),
        [
            r#"assistant: "one""#,
            r#"user: "left""#,
            r#"assistant: "two""#
        ]
    );
}

#[test]
fn messages_without_end_leave_room_for_their_line() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send =
        r#"{"type":"send","text":"hi","session":"main","include":["messages"],"stream":false}"#;
    world.request(conn, 1, send);
    let process = only(&world);
    world.get_ready(process);
    let turn = world.processes[&process].turns[0];
    for _ in 0..8_000 {
        let replaces_last = false;
        let begun = WorkerEvent::MessageStarted {
            turn,
            replaces_last,
        };
        world.worker(process, begun);
    }
    say(&mut world, process, "the answer");
    world.end_turn(process);
    let kept = messages(&world, conn).len();
    assert!((3_000..4_000).contains(&kept), "{kept} messages");
}

#[test]
fn steer_with_no_turn_in_flight_is_refused() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"steer","text":"x"}"#);
    world.request(conn, 2, r#"{"type":"steer","session":"main","text":"x"}"#);
    world.request(conn, 3, r#"{"type":"steer","job":"j7","text":"x"}"#);
    assert_eq!(
        world.told_to(conn),
        [
            "1:error session-idle",
            "2:error session-idle",
            "3:error unknown-job"
        ]
    );
    let (mut world, conn, process) = running();
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"waits","session":"main"}"#,
    );
    world.request(conn, 3, r#"{"type":"steer","job":"j2","text":"x"}"#);
    assert_eq!(last(&world, conn), "3:error session-idle");
    let other = world.connect();
    world.request(other, 1, r#"{"type":"steer","text":"x"}"#);
    assert_eq!(last(&world, other), "1:error ambiguous");
    world.request(conn, 4, r#"{"type":"abort","job":"j1"}"#);
    world.request(conn, 5, r#"{"type":"steer","job":"j1","text":"x"}"#);
    assert_eq!(last(&world, conn), "5:error session-idle");
    world.end_turn(process);
    world.request(conn, 6, r#"{"type":"steer","job":"j1","text":"x"}"#);
    assert_eq!(last(&world, conn), "6:error session-idle");
    assert!(world.processes[&process].steers.is_empty());
}

#[test]
fn steer_names_only_jobs_that_are_live() {
    let (mut world, conn, process) = running();
    for id in 2..4 {
        let send = r#"{"type":"send","text":"waits","session":"main"}"#;
        world.request(conn, id, send);
    }
    // The end of the first is on its way to the disk: nothing can be said to it any more.
    world.prompt_store = false;
    world.end_turn(process);
    let other = world.connect();
    world.request(other, 1, r#"{"type":"steer","text":"x"}"#);
    let refused = world.answer(other, 1);
    assert_eq!(refused["error"], "2 jobs are live: j2, j3", "{refused}");
}

#[test]
fn steer_waits_for_the_turns_first_byte() {
    let (mut world, conn, process) = running();
    world.end_turn(process);
    world.prompt_store = false;
    let other = world.connect();
    world.request(conn, 2, r#"{"type":"drain"}"#);
    world.request(conn, 3, r#"{"type":"send","text":"x","session":"main"}"#);
    world.store_answers();
    world.request(conn, 4, r#"{"type":"undrain"}"#);
    world.request(
        other,
        1,
        r#"{"type":"steer","session":"main","text":"early"}"#,
    );
    assert!(world.processes[&process].steers.is_empty());
    while world.store_pending() > 0 {
        world.store_answers();
    }
    assert_eq!(world.processes[&process].steers.len(), 1);
    steered(&mut world, process, 0, Steering::Taken);
    assert_eq!(last(&world, other), "1:steer");
}

#[test]
fn steer_is_refused_where_agents_cannot() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"x","agent":"turn"}"#);
    world.request(conn, 2, r#"{"type":"steer","text":"x"}"#);
    assert_eq!(last(&world, conn), "2:error unsupported");
}

#[test]
fn steers_are_bounded_and_leavers_hear_nothing() {
    let (mut world, conn, process) = running();
    let other = world.connect();
    for id in 1..=17 {
        world.request(other, id, r#"{"type":"steer","text":"x","session":"main"}"#);
    }
    assert_eq!(world.told_to(other), ["17:error queue-full"]);
    world.disconnect(other);
    steered(&mut world, process, 0, Steering::Taken);
    world.end_turn(process);
    assert_eq!(last(&world, conn), "1:message_end end_turn ");
}

#[test]
fn steer_kept_too_long_replaces_its_process() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = r#"{"type":"send","text":"x","session":"main","agent":"one"}"#;
    world.request(conn, 1, send);
    let process = only(&world);
    world.get_ready(process);
    let native = "/s".to_owned();
    world.worker(process, WorkerEvent::SessionNamed { native });
    world.request(conn, 2, send);
    world.worker(process, WorkerEvent::Spoilt { why: "a steer" });
    world.end_turn(process);
    assert!(
        world.processes[&process].turns.is_empty(),
        "not to this one"
    );
    world.exit(process, Exit::Code(0));
    let next = only(&world);
    assert_ne!(next, process);
    world.get_ready(next);
    world.end_turn(next);
    let end = world.clients[&conn].lines.last().unwrap();
    assert_eq!(
        (&end["id"], &end["context"]),
        (&2.into(), &"continued".into())
    );
}

#[test]
fn compact_makes_the_next_turn_wait() {
    let (mut world, conn, process) = running();
    world.request(conn, 2, r#"{"type":"compact"}"#);
    assert_eq!(last(&world, conn), "2:error session-busy");
    world.end_turn(process);
    world.request(conn, 3, r#"{"type":"compact","instructions":"names"}"#);
    assert_eq!(
        world.processes[&process].compacting.as_deref(),
        Some("main")
    );
    world.request(conn, 4, r#"{"type":"compact","session":"main"}"#);
    assert_eq!(last(&world, conn), "4:error session-busy");
    world.request(conn, 5, r#"{"type":"send","text":"next","session":"main"}"#);
    assert!(world.processes[&process].turns.is_empty());
    let result = Ok(Some("short".to_owned()));
    world.worker(process, WorkerEvent::Compacted { result });
    let lines = &world.clients[&conn].lines;
    let line = lines.iter().find(|line| line["type"] == "compact").unwrap();
    assert_eq!(
        (&line["session"], &line["summary"]),
        (&"main".into(), &"short".into())
    );
    assert_eq!(world.processes[&process].turns.len(), 1, "now it goes");
}

#[test]
fn what_can_not_be_shortened_says_why() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"compact"}"#);
    assert_eq!(last(&world, conn), "1:error session-idle");
    world.request(conn, 2, r#"{"type":"compact","session":"nobody"}"#);
    assert_eq!(last(&world, conn), "2:error unknown-session");
    world.request(conn, 3, r#"{"type":"session.new","session":"fresh"}"#);
    world.request(conn, 4, r#"{"type":"compact","session":"fresh"}"#);
    assert_eq!(last(&world, conn), "4:error session-idle");
    world.request(
        conn,
        5,
        r#"{"type":"session.new","session":"turns","agent":"turn"}"#,
    );
    world.request(conn, 6, r#"{"type":"compact","session":"turns"}"#);
    assert_eq!(last(&world, conn), "6:error unsupported");
}

#[test]
fn compact_ends_with_its_process_or_timeout() {
    let (mut world, conn, process) = running();
    world.end_turn(process);
    world.request(conn, 2, r#"{"type":"compact"}"#);
    world.exit(process, Exit::Signal(9));
    assert_eq!(last(&world, conn), "2:error worker-exited");

    let (mut world, conn, process) = running();
    world.end_turn(process);
    world.request(conn, 2, r#"{"type":"compact"}"#);
    world.pass(Duration::from_secs(599));
    assert_eq!(world.processes[&process].told_to_end, None);
    world.pass(Duration::from_secs(1));
    assert_eq!(last(&world, conn), "2:error timeout");
    assert!(world.processes[&process].told_to_end.is_some());
}

fn prompt_model(world: &World, job: u64) -> String {
    let request = &world.jobs[&agentd_protocol::JobId(job)].request;
    let request: agentd_protocol::serde_json::Value =
        agentd_protocol::serde_json::from_str(request).unwrap();
    format!(
        "{}/{}/{}",
        request["provider"], request["model"], request["thinking"]
    )
    .replace('"', "")
}

#[test]
fn set_model_counts_for_later_turns() {
    let mut settings = settings();
    settings.agents.get_mut("many").unwrap().provider = Some("p0".to_owned());
    let mut world = World::new(settings);
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"send","text":"x","session":"main"}"#);
    let process = only(&world);
    world.get_ready(process);
    world.request(
        conn,
        2,
        r#"{"type":"send","text":"before","session":"main"}"#,
    );
    world.request(
        conn,
        3,
        r#"{"type":"set_model","session":"main","model":"m1","thinking":"low"}"#,
    );
    let line = world.clients[&conn].lines.last().unwrap();
    assert_eq!(
        (&line["type"], &line["provider"]),
        (&"set_model".into(), &"p0".into())
    );
    assert_eq!(
        (&line["model"], &line["thinking"]),
        (&"m1".into(), &"low".into())
    );
    world.request(
        conn,
        4,
        r#"{"type":"send","text":"after","session":"main"}"#,
    );
    assert_eq!(prompt_model(&world, 2), "p0/null/null");
    assert_eq!(prompt_model(&world, 3), "p0/m1/low");
    world.request(
        conn,
        5,
        r#"{"type":"set_model","session":"main","provider":"p1","model":"m2"}"#,
    );
    let line = world.clients[&conn].lines.last().unwrap();
    assert_eq!(
        (&line["provider"], &line["thinking"]),
        (&"p1".into(), &"low".into())
    );
    world.request(
        conn,
        6,
        r#"{"type":"set_model","session":"nobody","model":"m2"}"#,
    );
    assert_eq!(last(&world, conn), "6:error unknown-session");
}

#[test]
fn set_model_replaces_the_process_or_refuses() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"send","text":"x","session":"main","agent":"one"}"#,
    );
    let process = only(&world);
    world.get_ready(process);
    let native = "/s".to_owned();
    world.worker(process, WorkerEvent::SessionNamed { native });
    world.end_turn(process);
    world.request(
        conn,
        2,
        r#"{"type":"set_model","session":"main","model":"m"}"#,
    );
    assert_eq!(last(&world, conn), "2:set_model");
    world.request(conn, 3, r#"{"type":"send","text":"y","session":"main"}"#);
    assert!(world.processes[&process].told_to_end.is_some());
    world.exit(process, Exit::Code(0));
    let next = only(&world);
    world.get_ready(next);
    world.end_turn(next);
    let end = world.clients[&conn].lines.last().unwrap();
    assert_eq!(
        (&end["context"], &end["model"]),
        (&"continued".into(), &"m".into())
    );

    let mut settings = settings();
    let one = settings.agents.get_mut("one").unwrap();
    one.describe = describe(Sessions::One, agentd_core::agent::Resume::None);
    let mut world = World::new(settings);
    let conn = world.connect();
    world.request(
        conn,
        1,
        r#"{"type":"session.new","session":"main","agent":"one"}"#,
    );
    world.request(
        conn,
        2,
        r#"{"type":"set_model","session":"main","model":"m"}"#,
    );
    assert_eq!(
        last(&world, conn),
        "2:set_model",
        "it has nothing to forget"
    );
    world.request(conn, 3, r#"{"type":"send","text":"x","session":"main"}"#);
    let process = only(&world);
    world.get_ready(process);
    world.end_turn(process);
    world.request(
        conn,
        4,
        r#"{"type":"set_model","session":"main","model":"n"}"#,
    );
    assert_eq!(last(&world, conn), "4:error unsupported");
}

#[test]
fn set_model_of_no_session_is_refused() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.prompt_store = false;
    for made in [true, false] {
        let session = format!("made-{made}");
        let send = format!(r#"{{"type":"send","text":"x","session":"{session}"}}"#);
        let set = format!(r#"{{"type":"set_model","session":"{session}","model":"m"}}"#);
        world.request(conn, 1 + 10 * u64::from(made), &send);
        world.store_answers();
        world.request(conn, 2 + 10 * u64::from(made), &set);
        if !made {
            let (code, why) = (Code::DiskFull, "full".to_owned());
            world.store_refuses(agentd_core::store::Stored::Failed { code, why });
        }
        while world.store_pending() > 0 {
            world.store_answers();
        }
    }
    let told = world.told_to(conn);
    assert!(told.contains(&"12:set_model".to_owned()), "{told:?}");
    assert!(
        told.contains(&"2:error unknown-session".to_owned()),
        "{told:?}"
    );
}

#[test]
fn an_agent_can_not_set_its_own_model() {
    let (mut world, _, process) = running();
    let inside = world.connect();
    let pid = 100 + u32::try_from(process.0.0).unwrap();
    let set = r#"{"type":"set_model","session":"main","model":"m"}"#;
    world.request_from(inside, 1, set, World::descends_from(vec![pid]));
    assert_eq!(last(&world, inside), "1:error forbidden");
}
