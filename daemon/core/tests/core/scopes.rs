//! What a question is about, and how far a yes to it goes.

use agentd_core::worker::{About, Asking, Lasting, QuestionKind, Reply, ToolAbout, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::line::{ToolKind, ToolLocation};
use agentd_protocol::serde_json::json;

use crate::questions::asking;
use crate::scenarios::only;
use crate::world::World;

/// A world in which an approval of this kind is open, of connection 1 and its process.
fn asked(about: About) -> World {
    let mut world = World::new(crate::agents::settings());
    let conn = world.connect();
    let send = r#"{"type":"send","text":"hi","session":"main","on_question":"wait"}"#;
    world.request(conn, 1, send);
    let process = only(&world);
    world.get_ready(process);
    let turn = world.processes[&process].turns.first().copied();
    let asking = Asking {
        about,
        ..asking(QuestionKind::Approval)
    };
    world.worker(process, WorkerEvent::Asked { turn, asking });
    world
}

fn about(lasting: &[Lasting]) -> About {
    About {
        call: Some("c1".to_owned()),
        data: Some(r#"{"command":"ls"}"#.to_owned()),
        lasting: lasting.to_vec(),
    }
}

#[test]
fn question_says_what_it_is_about() {
    let mut world = asked(about(&[Lasting::Always]));
    let conn = *world.clients.keys().next().unwrap();
    world.request(conn, 2, r#"{"type":"questions"}"#);
    let lines = &world.clients[&conn].lines;
    let told = lines
        .iter()
        .find(|line| line["type"] == "question")
        .unwrap();
    let listed = &lines.last().unwrap()["questions"][0];
    for line in [told, listed] {
        assert_eq!(line["tool_call_id"], "c1", "{line:#}");
        assert_eq!(line["data"], json!({"command": "ls"}));
        assert_eq!(line["scopes"], json!(["once", "always"]));
    }
}

#[test]
fn question_says_what_its_call_is_about() {
    let mut world = asked(About::default());
    let process = only(&world);
    let turn = world.processes[&process].turns[0];
    let path = "/w/plan.md".to_owned();
    let begun = WorkerEvent::ToolStarted {
        turn,
        call: "c1".to_owned(),
        name: "write".to_owned(),
        input: "{}".to_owned(),
        read_only: false,
        about: ToolAbout {
            kind: ToolKind::Edit,
            locations: vec![ToolLocation { path, line: None }],
            diff: Vec::new(),
        },
    };
    world.worker(process, begun);
    let asking = Asking {
        question: "second".to_owned(),
        about: about(&[]),
        ..asking(QuestionKind::Approval)
    };
    let turn = Some(turn);
    world.worker(process, WorkerEvent::Asked { turn, asking });
    let conn = *world.clients.keys().next().unwrap();
    world.request(conn, 2, r#"{"type":"questions"}"#);
    let lines = &world.clients[&conn].lines;
    let told = lines.iter().filter(|line| line["type"] == "question");
    let listed = lines.last().unwrap()["questions"].as_array().unwrap();
    for (first, second) in [
        (told.clone().next().unwrap(), told.clone().nth(1).unwrap()),
        (&listed[0], &listed[1]),
    ] {
        // Of one without a call nothing is known.
        assert!(first.get("tool_kind").is_none() && first.get("locations").is_none());
        assert_eq!(second["tool_kind"], "edit", "{second:#}");
        assert_eq!(second["locations"], json!([{"path": "/w/plan.md"}]));
    }
}

#[test]
fn question_leaves_out_what_no_line_takes() {
    for data in [
        "not JSON".to_owned(),
        "[1]".to_owned(),
        format!("{{\"x\":\"{}\"}}", "y".repeat(20_000)),
    ] {
        let world = asked(About {
            call: Some("c".repeat(2_000)),
            data: Some(data),
            lasting: Vec::new(),
        });
        let conn = *world.clients.keys().next().unwrap();
        let lines = &world.clients[&conn].lines;
        let told = lines
            .iter()
            .find(|line| line["type"] == "question")
            .unwrap();
        assert!(
            told["data"].is_null() && told["tool_call_id"].is_null(),
            "{told:#}"
        );
        assert_eq!(told["scopes"], json!(["once"]));
    }
}

#[test]
fn yes_goes_as_far_as_is_offered() {
    for (scope, offered, expected) in [
        ("", &[][..], Ok(Reply::Approved)),
        (r#","scope":"once""#, &[], Ok(Reply::Approved)),
        (
            r#","scope":"session""#,
            &[Lasting::Session],
            Ok(Reply::ApprovedFor(Lasting::Session)),
        ),
        (
            r#","scope":"always""#,
            &[Lasting::Session, Lasting::Always],
            Ok(Reply::ApprovedFor(Lasting::Always)),
        ),
        (
            r#","scope":"always""#,
            &[Lasting::Session],
            Err(Code::InvalidRequest),
        ),
        (r#","scope":"session""#, &[], Err(Code::InvalidRequest)),
        (
            r#","scope":"later""#,
            &[Lasting::Session],
            Err(Code::InvalidRequest),
        ),
    ] {
        let mut world = asked(about(offered));
        let conn = *world.clients.keys().next().unwrap();
        let process = only(&world);
        let line = format!(r#"{{"type":"answer","question_id":"j1-q1","approve":true{scope}}}"#);
        world.request(conn, 2, &line);
        let heard = world.processes[&process]
            .heard
            .first()
            .map(|(_, reply)| reply.clone());
        match expected {
            Ok(reply) => {
                assert_eq!(heard, Some(reply.clone()), "{scope}");
                let lines = world.clients[&conn].lines.iter();
                let mut closed = lines.filter(|line| line["type"] == "question_closed");
                let closed = closed.next().unwrap();
                assert_eq!(closed["answer"], "approve");
                let told = match reply {
                    Reply::ApprovedFor(lasting) => json!(lasting.scope()),
                    _ => json!(null),
                };
                assert_eq!(closed["scope"], told, "{closed:#}");
            }
            Err(code) => {
                assert_eq!(world.last_error(conn), Some(code), "{scope}");
                assert_eq!(heard, None);
            }
        }
    }
}

#[test]
fn no_has_no_scope() {
    let mut world = asked(about(&[Lasting::Session]));
    let conn = *world.clients.keys().next().unwrap();
    world.request(
        conn,
        2,
        r#"{"type":"answer","question_id":"j1-q1","approve":false,"scope":"session"}"#,
    );
    assert_eq!(world.last_error(conn), Some(Code::InvalidRequest));
}
