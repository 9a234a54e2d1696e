//! What goes with a turn besides its text: who takes it, when it is let go, and that it is part of the
//! request.

use std::sync::Arc;

use agentd_core::Event;
use agentd_core::attached::{AttachmentSupport, Content};
use agentd_core::event::RequestContext;
use agentd_core::store::Stored;
use agentd_core::worker::{Exit, Traits, WorkerEvent};
use agentd_protocol::{Code, JobId};

use crate::agents::settings;
use crate::scenarios::only;
use crate::world::World;

fn with(agent: &str, mime: &str, more: &str) -> String {
    format!(
        r#"{{"type":"send","text":"look","session":"{agent}-1","agent":"{agent}","attachments":[{{"mime":"{mime}","data":"x","sha256":"aa"}}]{more}}}"#
    )
}

fn attached() -> RequestContext {
    RequestContext {
        contents: vec![vec![Content::new(b"x")]],
        ..RequestContext::default()
    }
}

/// Bytes of which it is known how many hold them.
struct Counted(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        b"x"
    }
}

fn counted() -> (Arc<()>, RequestContext) {
    let held = Arc::new(());
    let facts = RequestContext {
        contents: vec![vec![Content::new(Counted(Arc::clone(&held)))]],
        ..RequestContext::default()
    };
    (held, facts)
}

#[test]
fn attachment_that_an_agent_lacks_is_refused_first() {
    let mut world = World::new(settings());
    let conn = world.connect();
    for (id, agent, mime, taken) in [
        (1, "turn", "image/png", false),
        (2, "one", "text/plain", false),
        (3, "one", "application/pdf", false),
        (4, "one", "image/webp", true),
        (5, "many", "application/pdf", true),
    ] {
        world.request_from(conn, id, &with(agent, mime, ""), attached());
        let answer = world.answer(conn, id);
        if taken {
            assert_eq!(answer["type"], "accepted", "{agent} {mime}: {answer}");
        } else {
            assert_eq!(answer["code"], "unsupported", "{agent} {mime}: {answer}");
            assert!(answer["job"].is_null(), "{answer}");
            assert!(answer["error"].as_str().unwrap().contains(mime), "{answer}");
        }
    }
    assert_eq!(world.jobs.len(), 2);
    let line = r#"{"type":"dispatch","jobs":[{"text":"a"},{"text":"b","agent":"turn","attachments":[{"mime":"image/png","data":"x"}]}]}"#;
    world.request_from(conn, 6, line, attached());
    let refused = world.answer(conn, 6);
    assert_eq!(refused["code"], "unsupported");
    assert!(refused["error"].as_str().unwrap().starts_with("`jobs[1]`"));
}

#[test]
fn attachment_refusal_follows_what_its_process_said() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request_from(conn, 1, &with("many", "image/png", ""), attached());
    let process = only(&world);
    world.event(Event::Spawned {
        worker: process.0,
        generation: process.1,
        pid: 100,
    });
    world.processes.get_mut(&process).unwrap().ready = true;
    let traits = Traits {
        takes: Some(AttachmentSupport::Nothing),
        ..Traits::default()
    };
    world.worker(process, WorkerEvent::Ready(traits));
    let answer = world.answer(conn, 1);
    assert_eq!(
        (&answer["code"], &answer["job"]),
        (&"unsupported".into(), &"j1".into()),
        "{answer}"
    );
    assert_eq!(world.prompts.len(), 0, "not a byte of it was told");
    world.request_from(conn, 2, &with("many", "image/png", ""), attached());
    let answer = world.answer(conn, 2);
    assert_eq!(answer["code"], "unsupported");
    assert!(answer["job"].is_null(), "{answer}");
    world.request(
        conn,
        3,
        r#"{"type":"send","text":"without","session":"many-1"}"#,
    );
    world.work();
    assert_eq!(world.answer(conn, 3)["type"], "message_end");
}

#[test]
fn attachment_content_is_fetched_by_each_attempt() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conn = world.connect();
    let (held, facts) = counted();
    let send = with("many", "image/png", r#","retry":"auto""#);
    world.request_from(conn, 1, &send, facts);
    assert!(Arc::strong_count(&held) > 1);
    world.prompt_store = true;
    world.pass(std::time::Duration::ZERO);
    assert_eq!(world.answer(conn, 1)["type"], "accepted");
    assert_eq!(Arc::strong_count(&held), 1, "the core holds no bytes of it");
    let process = only(&world);
    world.get_ready(process);
    assert_eq!(world.attached, [JobId(1)]);
    world.exit(process, Exit::Signal(9));
    world.pass(std::time::Duration::from_secs(5));
    world.get_ready(only(&world));
    assert_eq!(world.attached, [JobId(1), JobId(1)]);
    world.crash(settings());
    world.recovers();
    world.work();
    assert_eq!(world.attached, [JobId(1), JobId(1), JobId(1)]);
}

#[test]
fn attachment_content_is_part_of_its_key() {
    let mut world = World::new(settings());
    let conn = world.connect();
    let send = with("many", "image/png", r#","idempotency_key":"k""#);
    world.request_from(conn, 1, &send, attached());
    world.work();
    world.request_from(conn, 2, &send, attached());
    assert_eq!(world.answer(conn, 2)["type"], "message_end");
    // Not by what it is called, nor by where it was.
    let renamed = send.replace(r#""data":"x""#, r#""data":"x","name":"other""#);
    world.request_from(conn, 3, &renamed, attached());
    assert_eq!(world.answer(conn, 3)["type"], "message_end");
    for (id, from, to) in [(4, "\"aa\"", "\"bb\""), (5, "image/png", "image/gif")] {
        world.request_from(conn, id, &send.replace(from, to), attached());
        assert_eq!(world.last_error(conn), Some(Code::IdempotencyConflict));
    }
    let bare =
        r#"{"type":"send","text":"look","session":"many-1","agent":"many","idempotency_key":"k"}"#;
    world.request(conn, 6, bare);
    assert_eq!(world.answer(conn, 6)["code"], "idempotency-conflict");
    assert_eq!(world.jobs.len(), 1);
}

#[test]
fn what_a_full_disk_refuses_is_let_go() {
    let mut world = World::new(settings());
    world.prompt_store = false;
    let conn = world.connect();
    let (held, facts) = counted();
    world.request_from(conn, 1, &with("many", "image/png", ""), facts);
    // Its session was looked up; its acceptance waits.
    world.store_answers();
    let failed = Stored::Failed {
        code: Code::DiskFull,
        why: "full".to_owned(),
    };
    world.store_refuses(failed);
    assert_eq!(world.answer(conn, 1)["code"], "disk-full");
    assert_eq!(Arc::strong_count(&held), 1);
}
