//! Agents that ask, people who answer, and everything that ends a question otherwise.

use std::time::Duration;

use agentd_core::ids::ConnId;
use agentd_core::worker::{About, AskedFor, Asking, Exit, QuestionKind, Reply, WorkerEvent};
use agentd_protocol::Code;
use agentd_protocol::work::{Private, Silence};

use crate::agents::settings;
use crate::scenarios::{ProcessId, only, running};
use crate::world::World;

pub fn asking(kind: QuestionKind) -> Asking {
    Asking {
        question: "w1".to_owned(),
        kind,
        title: "Delete it?".to_owned(),
        detail: Some("all of it".to_owned()),
        options: vec!["left".to_owned(), "right".to_owned()],
        limit: None,
        about: About::default(),
    }
}

fn ask(world: &mut World, process: ProcessId, asking: Asking) {
    let turn = world.processes[&process].turns.first().copied();
    world.worker(process, WorkerEvent::Asked { turn, asking });
}

/// A world whose one worker has a turn that was sent with `more`.
fn with(more: &str) -> (World, ConnId, ProcessId) {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = format!(r#"{{"type":"send","text":"hi","session":"main"{more}}}"#);
    world.request(conn, 1, &send);
    let process = only(&world);
    world.get_ready(process);
    (world, conn, process)
}

const WAIT: &str = r#","on_question":"wait""#;

fn heard(world: &World, process: ProcessId) -> Vec<Reply> {
    let heard = world.processes[&process].heard.iter();
    heard.map(|(_, reply)| reply.clone()).collect()
}

fn last(world: &World, conn: ConnId) -> String {
    world.told_to(conn).last().unwrap().clone()
}

fn questions(world: &mut World) -> Vec<agentd_protocol::serde_json::Value> {
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"questions"}"#);
    world.request(conn, 2, r#"{"type":"status"}"#);
    let lines = &world.clients[&conn].lines;
    let questions = lines[0]["questions"].as_array().unwrap().clone();
    assert_eq!(lines[1]["questions"], questions.len());
    questions
}

#[test]
fn question_is_listed_until_its_first_answer() {
    let (mut world, conn, process) = with(WAIT);
    ask(&mut world, process, asking(QuestionKind::Approval));
    let row = questions(&mut world).remove(0);
    assert_eq!(row["question_id"], "j1-q1");
    assert_eq!(
        (&row["session"], &row["kind"]),
        (&"main".into(), &"approval".into())
    );
    assert_eq!(
        row["expires_at"],
        world.clients[&conn].lines.last().unwrap()["expires_at"]
    );
    assert!(heard(&world, process).is_empty(), "it waits");

    let other = world.connect();
    let answer = r#"{"type":"answer","question_id":"j1-q1","approve":true}"#;
    world.request(other, 1, answer);
    world.request(other, 2, answer);
    assert_eq!(
        world.told_to(other),
        ["1:answer", "2:error already-answered"]
    );
    assert_eq!(last(&world, conn), "1:question_closed j1-q1 by answer");
    assert_eq!(heard(&world, process), [Reply::Approved]);
    assert!(questions(&mut world).is_empty());
    // Late is late, even when the job is over.
    world.end_turn(process);
    world.request(other, 3, answer);
    assert_eq!(last(&world, other), "3:error already-answered");
    world.request(
        other,
        4,
        r#"{"type":"answer","question_id":"j1-q9","approve":true}"#,
    );
    assert_eq!(last(&world, other), "4:error unknown-question");
}

#[test]
fn a_session_that_asks_is_waiting() {
    let (mut world, _, process) = with(WAIT);
    let state = |world: &mut World| {
        let conn = world.connect();
        world.request(conn, 1, r#"{"type":"session.list"}"#);
        world.clients[&conn].lines[0]["sessions"][0]["state"].clone()
    };
    assert_eq!(state(&mut world), "working");
    ask(&mut world, process, asking(QuestionKind::Text));
    assert_eq!(state(&mut world), "waiting");
    world.pass(Duration::from_secs(600));
    assert_eq!(state(&mut world), "working");
}

#[test]
fn answer_is_passed_on_only_when_durable() {
    let (mut world, conn, process) = with(WAIT);
    ask(&mut world, process, asking(QuestionKind::Approval));
    world.prompt_store = false;
    world.request(
        conn,
        2,
        r#"{"type":"answer","question_id":"j1-q1","approve":true}"#,
    );
    world.request(
        conn,
        3,
        r#"{"type":"answer","question_id":"j1-q1","approve":false}"#,
    );
    assert_eq!(last(&world, conn), "3:error already-answered");
    assert!(heard(&world, process).is_empty());
    world.store_answers();
    let told = world.told_to(conn);
    let end = &told[told.len() - 2..];
    assert_eq!(end, ["1:question_closed j1-q1 by answer", "2:answer"]);
    assert_eq!(heard(&world, process), [Reply::Approved]);
}

#[test]
fn answer_that_is_not_stored_is_refused() {
    let (mut world, conn, process) = with(WAIT);
    ask(&mut world, process, asking(QuestionKind::Approval));
    world.prompt_store = false;
    let other = world.connect();
    world.request(
        other,
        2,
        r#"{"type":"answer","question_id":"j1-q1","approve":true}"#,
    );
    world.store_gives_up();
    assert_eq!(last(&world, other), "2:error store-failed");
    assert!(heard(&world, process).is_empty());
    assert!(
        world.clients[&conn].closed,
        "what became of the turn is unknown"
    );
}

#[test]
fn answer_must_fit_the_questions_kind() {
    for (kind, wrong, right, reply) in [
        (
            QuestionKind::Approval,
            [r#""text":"yes""#, r#""choice":"left""#],
            r#""approve":false"#,
            Reply::Denied,
        ),
        (
            QuestionKind::Choice,
            [r#""choice":"up""#, r#""approve":true"#],
            r#""choice":"right""#,
            Reply::Chosen("right".to_owned()),
        ),
        (
            QuestionKind::Text,
            [r#""choice":"left""#, r#""approve":true"#],
            r#""text":"words""#,
            Reply::Text(Private("words".to_owned())),
        ),
        (
            QuestionKind::Secret,
            [r#""choice":"left""#, r#""approve":true"#],
            r#""text":"hunter2""#,
            Reply::Text(Private("hunter2".to_owned())),
        ),
        (
            QuestionKind::Text,
            [r#""choice":"left""#, r#""approve":true"#],
            r#""cancel":true"#,
            Reply::Cancelled,
        ),
    ] {
        let (mut world, _, process) = with(WAIT);
        ask(&mut world, process, asking(kind));
        let other = world.connect();
        for (id, given) in (1..).zip(wrong) {
            let answer = format!(r#"{{"type":"answer","question_id":"j1-q1",{given}}}"#);
            world.request(other, id, &answer);
            let error = world.clients[&other].lines.last().unwrap();
            assert_eq!(error["code"], "invalid-request", "{kind:?} {given}");
            let said = error["error"].as_str().unwrap();
            assert!(said.contains("expected `"), "{said}");
        }
        let answer = format!(r#"{{"type":"answer","question_id":"j1-q1",{right}}}"#);
        world.request(other, 9, &answer);
        assert_eq!(last(&world, other), "9:answer");
        assert_eq!(heard(&world, process), [reply]);
    }
}

#[test]
fn secret_answer_is_in_no_line_or_log() {
    let (mut world, conn, process) = with(WAIT);
    ask(&mut world, process, asking(QuestionKind::Secret));
    world.prompt_store = false;
    world.request(
        conn,
        2,
        r#"{"type":"answer","question_id":"j1-q1","text":"hunter2"}"#,
    );
    let meanwhile = format!("{:?} {:?}", world.state, world.orders);
    while world.store_pending() > 0 {
        world.store_answers();
    }
    let told = Reply::Text(Private("hunter2".to_owned()));
    assert_eq!(heard(&world, process), [told]);
    let after = format!("{:?} {:?}", world.state, world.processes[&process].heard);
    let books = format!("{:?} {:?}", world.jobs, world.clients[&conn].lines);
    for text in [meanwhile, after, books] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn question_with_nobody_there_is_denied_in_trace() {
    for (more, kind, reply) in [
        (
            "",
            QuestionKind::Approval,
            Reply::Unanswered(Silence::Nobody),
        ),
        ("", QuestionKind::Choice, Reply::Cancelled),
        (
            r#","on_question":"deny""#,
            QuestionKind::Secret,
            Reply::Cancelled,
        ),
    ] {
        let (mut world, conn, process) = with(more);
        ask(&mut world, process, asking(kind));
        assert_eq!(heard(&world, process), [reply]);
        assert!(questions(&mut world).is_empty());
        world.end_turn(process);
        let told = world.told_to(conn);
        let about = told.iter().filter(|line| line.contains("question"));
        let about: Vec<_> = about.collect();
        assert_eq!(
            about,
            ["1:question j1-q1", "1:question_closed j1-q1 by nobody"]
        );
        let trace = &world.clients[&conn].lines.last().unwrap()["tool_trace"][0];
        assert_eq!(
            (&trace["tool_call_id"], &trace["ok"]),
            (&"j1-q1".into(), &false.into())
        );
        assert_eq!(trace["output"], "nobody attached");
    }
}

#[test]
fn question_waits_where_any_hearer_may_answer() {
    const ANSWERS: &str = r#"{"type":"hello","answers":true}"#;
    // The sender itself.
    let (mut world, conn, process) = with("");
    world.request(conn, 2, ANSWERS);
    ask(&mut world, process, asking(QuestionKind::Text));
    assert_eq!(questions(&mut world).len(), 1);
    // What it says later counts for later questions.
    world.request(conn, 3, r#"{"type":"hello"}"#);
    ask(&mut world, process, asking(QuestionKind::Text));
    assert_eq!(questions(&mut world).len(), 1);

    for (subscription, waits) in [
        (r#"{"type":"subscribe"}"#, 1),
        (r#"{"type":"subscribe","session":"main"}"#, 1),
        (r#"{"type":"subscribe","session":"other"}"#, 0),
        (r#"{"type":"ping"}"#, 0),
    ] {
        let (mut world, _, process) = with("");
        let watcher = world.connect();
        world.request(watcher, 1, ANSWERS);
        world.request(watcher, 2, subscription);
        ask(&mut world, process, asking(QuestionKind::Text));
        assert_eq!(questions(&mut world).len(), waits, "{subscription}");
        world.disconnect(watcher);
        ask(&mut world, process, asking(QuestionKind::Text));
        assert_eq!(
            questions(&mut world).len(),
            waits,
            "who left answers nothing"
        );
    }
}

#[test]
fn question_expires_at_its_earliest_deadline() {
    let ten_minutes = Duration::from_secs(600);
    let own = |limit| Asking {
        limit,
        ..asking(QuestionKind::Approval)
    };
    let (mut world, _, process) = with(WAIT);
    let at = |wall: i64| Some(AskedFor::Until(wall));
    let now = world.now.wall_ms;
    ask(&mut world, process, own(at(now + 5_000)));
    ask(
        &mut world,
        process,
        own(Some(AskedFor::Within(Duration::from_secs(7)))),
    );
    ask(&mut world, process, own(None));
    world.pass(Duration::from_millis(4_999));
    assert_eq!(questions(&mut world).len(), 3);
    world.pass(Duration::from_millis(1));
    assert_eq!(questions(&mut world).len(), 2);
    world.pass(Duration::from_secs(2));
    assert_eq!(questions(&mut world).len(), 1);
    world.pass(ten_minutes - Duration::from_secs(8));
    assert_eq!(questions(&mut world).len(), 1);
    world.pass(Duration::from_secs(1));
    assert!(questions(&mut world).is_empty());
    assert_eq!(
        heard(&world, process),
        [(); 3].map(|()| Reply::Unanswered(Silence::Expiry))
    );

    let (mut world, conn, process) = with(r#","on_question":"wait","timeout":30"#);
    world.now.wall_ms = 0;
    ask(&mut world, process, own(None));
    let expires = &world.clients[&conn].lines.last().unwrap()["expires_at"];
    assert_eq!(expires, "1970-01-01T00:00:30Z");
    world.pass(Duration::from_secs(30));
    world.end_turn(process);
    let told = world.told_to(conn);
    let end = &told[told.len() - 2..];
    assert_eq!(
        end,
        ["1:question_closed j1-q1 by expiry", "1:error timeout"]
    );
}

#[test]
fn question_that_expired_is_no_users_no() {
    let (mut world, conn, process) = with(WAIT);
    let limited = || Asking {
        limit: Some(AskedFor::Within(Duration::from_secs(7))),
        ..asking(QuestionKind::Approval)
    };
    ask(&mut world, process, limited());
    world.pass(Duration::from_secs(7));
    // The last is of a daemon in front, which passes on that nobody said it.
    for (number, given) in [
        (2, r#""approve":false"#),
        (3, r#""cancel":true"#),
        (4, r#""approve":false,"by":"expiry""#),
    ] {
        ask(&mut world, process, limited());
        let answer = format!(r#"{{"type":"answer","question_id":"j1-q{number}",{given}}}"#);
        world.request(conn, number, &answer);
    }
    let expired = || Reply::Unanswered(Silence::Expiry);
    let all = [expired(), Reply::Denied, Reply::Denied, expired()];
    assert_eq!(heard(&world, process), all);
    world.end_turn(process);
    let lines = &world.clients[&conn].lines;
    let closed = lines
        .iter()
        .filter(|line| line["type"] == "question_closed");
    let answers: Vec<_> = closed.map(|line| line["answer"].as_str()).collect();
    assert_eq!(
        answers,
        [None, Some("deny"), Some("cancel"), Some("expiry")]
    );
    let trace = lines.last().unwrap()["tool_trace"].as_array().unwrap();
    let [trace] = &trace[..] else {
        panic!("{trace:?}")
    };
    assert_eq!(trace["output"], "nobody answered in time");
}

#[test]
fn question_beyond_sixteen_of_a_session_is_dismissed() {
    let (mut world, conn, process) = with(WAIT);
    for _ in 0..17 {
        ask(&mut world, process, asking(QuestionKind::Approval));
    }
    assert_eq!(questions(&mut world).len(), 16);
    assert_eq!(last(&world, conn), "1:question_closed j1-q17 by nobody");
    let nobody = Reply::Unanswered(Silence::Nobody);
    assert_eq!(heard(&world, process), [nobody]);
}

#[test]
fn question_is_cut_to_a_line_except_options() {
    let (mut world, conn, process) = with(WAIT);
    let long = Asking {
        title: "t".repeat(1 << 20),
        detail: Some("\u{1}".repeat(1 << 20)),
        ..asking(QuestionKind::Text)
    };
    for _ in 0..16 {
        ask(&mut world, process, long.clone());
    }
    // The world checks the length of each line.
    assert_eq!(questions(&mut world).len(), 16);
    let (mut world, _, process) = with(WAIT);
    let options = Asking {
        options: vec!["o".repeat(1 << 20)],
        ..asking(QuestionKind::Choice)
    };
    ask(&mut world, process, options);
    assert!(questions(&mut world).is_empty());
    assert_eq!(heard(&world, process), [Reply::Cancelled]);
    assert!(world.clients.contains_key(&conn));
}

#[test]
fn abort_closes_questions_after_telling_the_agent() {
    let (mut world, conn, process) = with(WAIT);
    ask(&mut world, process, asking(QuestionKind::Approval));
    world.request(conn, 2, r#"{"type":"abort"}"#);
    assert!(
        world
            .told_to(conn)
            .contains(&"1:question_closed j1-q1 by cancel".to_owned())
    );
    assert_eq!(
        heard(&world, process),
        [Reply::Unanswered(Silence::Cancel)],
        "so that it can end its turn"
    );
    // One that comes now has nobody left to wait for.
    ask(&mut world, process, asking(QuestionKind::Approval));
    assert!(questions(&mut world).is_empty());
    world.end_turn(process);
    assert_eq!(last(&world, conn), "1:message_end cancelled ");
}

#[test]
fn questions_end_with_their_process() {
    let (mut world, conn, process) = with(r#","on_question":"wait","retry":"auto""#);
    ask(&mut world, process, asking(QuestionKind::Approval));
    world.exit(process, Exit::Signal(9));
    assert!(
        world
            .told_to(conn)
            .contains(&"1:question_closed j1-q1 by exit".to_owned())
    );
    world.pass(Duration::from_secs(2));
    let process = only(&world);
    world.get_ready(process);
    ask(&mut world, process, asking(QuestionKind::Approval));
    assert_eq!(questions(&mut world)[0]["question_id"], "j1-q2");
    world.request(
        conn,
        2,
        r#"{"type":"answer","question_id":"j1-q1","approve":true}"#,
    );
    assert_eq!(last(&world, conn), "2:error already-answered");
    assert!(heard(&world, process).is_empty());
}

#[test]
fn questions_close_with_their_turn_or_when_withdrawn() {
    let (mut world, conn, process) = with(WAIT);
    ask(&mut world, process, asking(QuestionKind::Text));
    let question = "w1".to_owned();
    world.worker(process, WorkerEvent::Withdrew { question });
    assert_eq!(last(&world, conn), "1:question_closed j1-q1 by cancel");
    assert!(heard(&world, process).is_empty(), "it knows");
    ask(&mut world, process, asking(QuestionKind::Text));
    world.end_turn(process);
    let told = world.told_to(conn);
    let end = &told[told.len() - 2..];
    assert_eq!(
        end,
        [
            "1:question_closed j1-q2 by cancel",
            "1:message_end end_turn "
        ]
    );
}

#[test]
fn questions_of_a_crash_close_before_the_end() {
    for (more, end) in [("", "error interrupted"), (r#","retry":"auto""#, "")] {
        let (mut world, _, process) = with(&format!("{WAIT}{more}"));
        ask(&mut world, process, asking(QuestionKind::Approval));
        ask(&mut world, process, asking(QuestionKind::Approval));
        let conn = world.connect();
        world.request(
            conn,
            1,
            r#"{"type":"answer","question_id":"j1-q1","approve":true}"#,
        );
        world.crash(settings());
        let stored = &world.jobs[&agentd_protocol::JobId(1)];
        let closed: Vec<_> = stored
            .events
            .iter()
            .map(|(_, body)| body.as_json())
            .collect();
        let closed: Vec<_> = closed
            .iter()
            .filter(|line| line.contains("question_closed"))
            .collect();
        assert_eq!(closed.len(), 2, "{closed:?}");
        assert!(
            closed[1].contains(r#""question_id":"j1-q2","by":"exit""#),
            "{closed:?}"
        );
        assert_eq!(stored.last.is_some(), !end.is_empty(), "{end}");
        if stored.last.is_none() {
            world.pass(Duration::from_secs(2));
            let process = only(&world);
            world.get_ready(process);
            ask(&mut world, process, asking(QuestionKind::Approval));
            assert_eq!(questions(&mut world)[0]["question_id"], "j1-q3");
        }
    }
}

#[test]
fn question_that_waits_is_no_stall() {
    let (mut world, conn, process) = with(WAIT);
    world.pass(Duration::from_secs(300));
    ask(&mut world, process, asking(QuestionKind::Approval));
    world.pass(Duration::from_secs(590));
    world.pass(Duration::from_secs(20));
    assert!(!world.told_to(conn).contains(&"1:note stalled".to_owned()));
    world.pass(Duration::from_secs(1_300));
    assert!(
        world.told_to(conn).contains(&"1:note stalled".to_owned()),
        "nobody is waited for"
    );
}

#[test]
fn answer_from_inside_a_worker_is_refused() {
    let (mut world, _, process) = with(WAIT);
    ask(&mut world, process, asking(QuestionKind::Approval));
    let inside = world.connect();
    let pid = 100 + u32::try_from(process.0.0).unwrap();
    let answer = r#"{"type":"answer","question_id":"j1-q1","approve":true}"#;
    world.request_from(inside, 1, answer, World::descends_from(vec![4711, pid, 1]));
    assert_eq!(world.last_error(inside), Some(Code::Forbidden));
    assert!(heard(&world, process).is_empty());
    world.request_from(inside, 2, answer, World::descends_from(vec![4711, 1]));
    assert_eq!(heard(&world, process), [Reply::Approved]);
}

#[test]
fn question_outside_any_turn_is_dismissed_silently() {
    let (mut world, conn, process) = running();
    world.end_turn(process);
    let before = world.told_to(conn).len();
    ask(&mut world, process, asking(QuestionKind::Choice));
    assert_eq!(heard(&world, process), [Reply::Cancelled]);
    assert_eq!(world.told_to(conn).len(), before);
}

#[test]
fn answer_too_late_is_same_after_restart() {
    let (mut world, _, process) = with(WAIT);
    ask(&mut world, process, asking(QuestionKind::Approval));
    let other = world.connect();
    world.request(
        other,
        1,
        r#"{"type":"answer","question_id":"j1-q1","approve":true}"#,
    );
    world.end_turn(process);
    world.crash(settings());
    let conn = world.connect();
    for (id, question, code) in [
        (1, "j1-q1", "already-answered"),
        (2, "j1-q2", "unknown-question"),
        (3, "j9-q1", "unknown-question"),
        (4, "j1-q", "unknown-question"),
    ] {
        let answer = format!(r#"{{"type":"answer","question_id":"{question}","approve":true}}"#);
        world.request(conn, id, &answer);
        assert_eq!(last(&world, conn), format!("{id}:error {code}"));
    }
}
