//! What subscribers who ask for sessions hear of them.

use agentd_core::ids::ConnId;
use agentd_core::worker::{About, Asking, QuestionKind, WorkerEvent};
use agentd_protocol::serde_json::{Value, json};

use crate::agents::settings;
use crate::scenarios::only;
use crate::world::World;

/// A world, who asks in it, and who hears of sessions.
fn heard(filter: &str) -> (World, ConnId, ConnId) {
    let mut world = World::new(settings());
    let (conn, hears) = (world.connect(), world.connect());
    let line = format!(r#"{{"type":"subscribe","sessions":true{filter}}}"#);
    world.request(hears, 1, &line);
    (world, conn, hears)
}

/// What it heard since, without what all lines have.
fn news(world: &mut World, hears: ConnId) -> Vec<Value> {
    let lines = &mut world.clients.get_mut(&hears).unwrap().lines;
    let all = std::mem::take(lines);
    let of_sessions = all
        .into_iter()
        .filter(|line| line["type"] == "session_changed");
    of_sessions
        .map(|mut line| {
            assert!(line["seq"].is_null(), "{line}");
            assert_eq!(line["id"], 1, "{line}");
            let fields = line.as_object_mut().unwrap();
            fields.retain(|name, _| name != "type" && name != "id");
            line
        })
        .collect()
}

fn state(session: &str, state: &str) -> Value {
    json!({"session": session, "change": "state", "state": state})
}

#[test]
fn session_news_tell_a_life_in_order() {
    let (mut world, conn, hears) = heard("");
    world.request(
        conn,
        1,
        r#"{"type":"send","text":"x","session":"main","model":"large"}"#,
    );
    let process = only(&world);
    world.get_ready(process);
    let told = news(&mut world, hears);
    let made = json!({"session": "main", "change": "made", "agent": "many", "cwd": "/home/u"});
    assert_eq!(told[0], made, "{told:#?}");
    assert_eq!(
        told[1],
        json!({"session": "main", "change": "model", "model": "large"})
    );
    assert_eq!(
        told[2..],
        [state("main", "starting"), state("main", "working")]
    );
    world.end_turn(process);
    assert_eq!(news(&mut world, hears), [state("main", "idle")]);
    for (id, line) in [
        (
            2,
            r#"{"type":"session.title","session":"main","title":"a"}"#,
        ),
        (
            3,
            r#"{"type":"set_model","session":"main","model":"small"}"#,
        ),
        (
            4,
            r#"{"type":"session.new","session":"made","agent":"one"}"#,
        ),
        (
            5,
            r#"{"type":"session.rename","session":"made","to":"other"}"#,
        ),
        (6, r#"{"type":"session.close","session":"main"}"#),
    ] {
        world.request(conn, id, line);
        assert_eq!(world.answer(conn, id)["ok"], true, "{line}");
    }
    assert_eq!(
        news(&mut world, hears),
        [
            json!({"session": "main", "change": "titled", "title": "a"}),
            json!({"session": "main", "change": "model", "model": "small"}),
            json!({"session": "made", "change": "made", "agent": "one", "cwd": "/home/u"}),
            json!({"session": "other", "change": "renamed", "was": "made"}),
            json!({"session": "main", "change": "closed"}),
        ]
    );
}

#[test]
fn session_news_say_who_waits_for_an_answer() {
    let (mut world, conn, hears) = heard("");
    let send = r#"{"type":"send","text":"x","session":"main","on_question":"wait"}"#;
    world.request(conn, 1, send);
    let process = only(&world);
    world.get_ready(process);
    news(&mut world, hears);
    let turn = world.processes[&process].turns[0];
    let asking = Asking {
        question: "q".to_owned(),
        kind: QuestionKind::Approval,
        title: "may I?".to_owned(),
        detail: None,
        options: Vec::new(),
        limit: None,
        about: About::default(),
    };
    let turn = Some(turn);
    world.worker(process, WorkerEvent::Asked { turn, asking });
    assert_eq!(news(&mut world, hears), [state("main", "waiting")]);
    world.request(
        conn,
        2,
        r#"{"type":"answer","question_id":"j1-q1","approve":true}"#,
    );
    assert_eq!(news(&mut world, hears), [state("main", "working")]);
}

#[test]
fn session_news_begin_with_who_is_busy() {
    let (mut world, conn, _) = heard("");
    world.request(conn, 1, r#"{"type":"send","text":"x","session":"main"}"#);
    let process = only(&world);
    world.get_ready(process);
    let late = world.connect();
    world.request(late, 1, r#"{"type":"subscribe","sessions":true}"#);
    assert_eq!(news(&mut world, late), [state("main", "working")]);
    // Of another session nothing is told, and without the word nothing at all.
    let (other, plain) = (world.connect(), world.connect());
    world.request(
        other,
        1,
        r#"{"type":"subscribe","sessions":true,"session":"other"}"#,
    );
    world.request(plain, 1, r#"{"type":"subscribe"}"#);
    world.end_turn(process);
    assert_eq!(news(&mut world, late), [state("main", "idle")]);
    assert!(news(&mut world, other).is_empty());
    assert!(news(&mut world, plain).is_empty());
    let both = world.connect();
    world.request(
        both,
        1,
        r#"{"type":"subscribe","sessions":true,"jobs":["j1"]}"#,
    );
    assert_eq!(world.answer(both, 1)["code"], "invalid-request");
}

#[test]
fn session_news_are_missed_by_who_is_behind() {
    let (mut world, conn, hears) = heard("");
    world.request(conn, 1, r#"{"type":"send","text":"x","session":"main"}"#);
    let process = only(&world);
    world.get_ready(process);
    for _ in 0..100 {
        crate::scenarios::say(&mut world, process, &"x".repeat(10_000));
    }
    world.end_turn(process);
    world.request(
        conn,
        2,
        r#"{"type":"session.title","session":"main","title":"a"}"#,
    );
    for _ in 0..50 {
        world.clients_read();
    }
    let told = news(&mut world, hears);
    assert_eq!(
        told.last().unwrap(),
        &json!({"change": "missed"}),
        "{told:#?}"
    );
}
