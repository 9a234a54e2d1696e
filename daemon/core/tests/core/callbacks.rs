//! Callbacks: every end of a job that asked for one is told, in the commit of the end; and who may
//! not ask.

use std::time::Duration;

use agentd_core::Served;
use agentd_core::event::RequestContext;
use agentd_core::worker::Exit;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::{Code, JobId};

use crate::agents::settings;
use crate::scenarios::running;
use crate::world::World;

const URL: &str = "https://ci.example/hook";

fn line(more: &str) -> String {
    format!(r#"{{"type":"send","text":"x","session":"main","callback":{{"url":"{URL}"}}{more}}}"#)
}

#[test]
fn callback_is_in_the_commit_of_the_end() {
    let (mut world, conn, process) = running();
    world.request(conn, 2, &line(""));
    world.request(conn, 3, &line(r#","expires":60"#));
    world.request(conn, 4, &line(r#","after_failure":"run""#));
    world.request(conn, 5, &line(""));
    assert!(world.callbacks.is_empty());
    world.request(conn, 6, r#"{"type":"abort","job":"j2"}"#);
    assert_eq!(world.callbacks.keys().next(), Some(&JobId(2)), "cancelled");
    world.exit(process, Exit::Signal(9));
    world.pass(Duration::from_secs(61));
    assert!(world.callbacks.contains_key(&JobId(3)), "expired");
    world.work();
    assert!(world.callbacks.contains_key(&JobId(4)), "completed");
    world.crash(settings());
    world.settle();
    assert!(world.callbacks.contains_key(&JobId(5)), "after a crash");
    assert_eq!(world.callbacks.len(), 4, "{:?}", world.callbacks);
    assert!(world.callbacks.values().all(|url| url == URL));
}

#[test]
fn a_turn_that_a_crash_interrupted_is_told() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, &line(""));
    let process = *world.processes.keys().next().unwrap();
    world.get_ready(process);
    assert!(world.jobs[&JobId(1)].running, "it runs");
    world.crash(settings());
    world.settle();
    let last = world.jobs[&JobId(1)].last.clone().unwrap().1;
    assert!(last.as_json().contains("interrupted"), "{last:?}");
    assert_eq!(world.callbacks[&JobId(1)], URL);
}

#[test]
fn callback_is_made_for_an_unreadable_request() {
    let (mut world, conn, _process) = running();
    world.request(conn, 2, &line(""));
    let job = world.jobs.get_mut(&JobId(2)).unwrap();
    job.request = job
        .request
        .replacen('{', r#"{"retry":"as a later version says","#, 1);
    world.crash(settings());
    world.settle();
    assert_eq!(world.callbacks[&JobId(2)], URL);
}

#[test]
fn callback_that_is_forbidden_is_refused_first() {
    let (mut world, conn, process) = running();
    world.request_from(conn, 2, &line(""), World::inside(process));
    assert_eq!(world.answer(conn, 2)["code"], "forbidden");
    let test = format!(r#"{{"type":"webhook.test","url":"{URL}"}}"#);
    world.request_from(conn, 3, &test, World::inside(process));
    assert_eq!(world.answer(conn, 3)["code"], "forbidden");
    // Where others are called may be secret.
    world.request_from(conn, 6, r#"{"type":"webhooks"}"#, World::inside(process));
    assert_eq!(world.answer(conn, 6)["code"], "forbidden");
    let mut facts = RequestContext::default();
    let refused = Rejected::new(Code::UnknownWebhook, "no endpoint");
    facts.callbacks.insert(URL.to_owned(), refused);
    world.request_from(conn, 4, &line(""), facts.clone());
    assert_eq!(world.answer(conn, 4)["code"], "unknown-webhook");
    let several = format!(r#"{{"type":"dispatch","jobs":[{}]}}"#, line(""));
    world.request_from(conn, 5, &several, facts);
    assert_eq!(world.answer(conn, 5)["code"], "unknown-webhook");
    assert_eq!(world.jobs.len(), 1, "only the one that runs");

    let mut alone = settings();
    alone.served = Served::OneShot { reason: None };
    let mut world = World::new(alone);
    let conn = world.connect();
    world.request(conn, 1, &line(""));
    assert_eq!(world.answer(conn, 1)["code"], "needs-daemon");
    world.request(conn, 2, r#"{"type":"webhook.replay","webhook":"evt_1"}"#);
    assert_eq!(world.answer(conn, 2)["code"], "needs-daemon");
}

#[test]
fn webhook_delivery_is_sent_again_or_tried() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"webhook.replay","webhook":"evt_1"}"#);
    assert_eq!(world.answer(conn, 1)["webhook"], "evt_1");
    world.request(conn, 2, r#"{"type":"webhook.replay","webhook":"evt_7"}"#);
    assert_eq!(world.answer(conn, 2)["code"], "unknown-webhook");
    world.request(
        conn,
        3,
        &format!(r#"{{"type":"webhook.test","url":"{URL}"}}"#),
    );
    assert_eq!(world.answer(conn, 3)["webhook"], "evt_2");
}

#[test]
fn callback_is_part_of_its_key() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request(conn, 1, &line(r#","idempotency_key":"k""#));
    world.work();
    let other = line(r#","idempotency_key":"k""#).replace("/hook", "/other");
    world.request(conn, 2, &other);
    assert_eq!(world.answer(conn, 2)["code"], "idempotency-conflict");
}
