//! Schedules: a due time and its job are one commit, and who may not ask for them.

use std::sync::Arc;

use agentd_core::Served;
use agentd_core::event::{RequestContext, Scheduling};
use agentd_core::store::{Fired, NewJob, NextDue, ScheduleWrite, Written};
use agentd_protocol::envelope::Rejected;
use agentd_protocol::serde_json::{Value, json};
use agentd_protocol::{Code, JobId};

use crate::agents::settings;
use crate::scenarios::running;
use crate::world::World;

const RUN: &str = r#"{"type":"cron.run","schedule":"c1"}"#;

/// The model of the store: a due time is taken once, and is then another one.
pub fn fires(world: &mut World, new: &NewJob) -> bool {
    let Some(fired) = &new.fired else { return true };
    let Some(expected) = fired.expected else {
        return true;
    };
    let next = world.schedules.get_mut(&fired.schedule);
    match next.filter(|next| **next == expected) {
        Some(next) => {
            *next = fired.next.due_ms.unwrap_or(i64::MAX);
            true
        }
        None => false,
    }
}

pub fn written(world: &mut World, write: &ScheduleWrite) -> Written {
    let row = match write {
        ScheduleWrite::Add { next, .. } => {
            world.schedules.insert(1, next.due_ms.unwrap());
            Some(json!({"schedule": "c1"}).to_string())
        }
        ScheduleWrite::Remove { which } if which == "c1" => Some("{}".to_owned()),
        _ => None,
    };
    Written::Schedule { row }
}

fn due(at: i64) -> NextDue {
    NextDue {
        due_ms: Some(at),
        ..NextDue::default()
    }
}

fn send(key: &str, more: &Value) -> String {
    let mut send = json!({"text": "tick", "idempotency_key": key});
    let more = more.as_object().unwrap().clone();
    send.as_object_mut().unwrap().extend(more);
    send.to_string()
}

fn fired(at: i64, more: &Value) -> RequestContext {
    let fired = Fired {
        schedule: 1,
        expected: Some(at),
        due_ms: at,
        late_ms: 0,
        next: due(at + 1),
        passed: None,
    };
    with(Scheduling::Run {
        send: send(&format!("cron:c1:{at}"), more),
        fired: Arc::new(fired),
    })
}

fn with(scheduling: Scheduling) -> RequestContext {
    RequestContext {
        schedule: Some(Ok(scheduling)),
        ..RequestContext::default()
    }
}

fn add(send: String) -> RequestContext {
    let write = ScheduleWrite::Add {
        name: None,
        spec: "{}".to_owned(),
        anchor_ms: 0,
        next: due(1),
    };
    with(Scheduling::Write {
        write: Box::new(write),
        send: Some(send),
    })
}

const ADD: &str = r#"{"type":"cron.add","every":"1h","send":{"text":"tick"}}"#;

#[test]
fn schedule_due_time_is_one_job() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.request_from(conn, 1, ADD, add(send("k", &json!({}))));
    assert_eq!(world.answer(conn, 1)["schedule"]["schedule"], "c1");
    world.request_from(conn, 2, RUN, fired(1, &json!({})));
    let told = world.answer(conn, 2);
    assert_eq!(
        (&told["type"], &told["job"]),
        (&json!("cron.run"), &json!("j1"))
    );
    assert_eq!(world.schedules[&1], 2, "in the same commit");
    // The same again: nothing, and the next one is its own.
    world.request_from(conn, 3, RUN, fired(1, &json!({})));
    assert_eq!(world.jobs.len(), 1);
    world.request_from(conn, 4, RUN, fired(2, &json!({"session": "main"})));
    assert_eq!(world.answer(conn, 4)["session"], "main");
    // Before the commit, and behind it: whoever comes next finds one of the two.
    world.request_from(conn, 5, RUN, fired(3, &json!({"session": "main"})));
    world.crash(settings());
    world.settle();
    assert_eq!(world.schedules[&1], 1 + world.jobs.len() as i64);
    world.work();
    let ended = world.jobs.values().filter(|job| job.last.is_some());
    assert_eq!(ended.count(), world.jobs.len());
}

#[test]
fn schedule_that_is_refused_leaves_no_trace() {
    let mut world = World::new(settings());
    let conn = world.connect();
    world.schedules.insert(1, 1);
    world.request_from(conn, 1, RUN, fired(1, &json!({"agent": "nobody"})));
    let told = world.answer(conn, 1);
    assert_eq!(told["code"], "unknown-agent");
    let error = told["error"].as_str().unwrap();
    assert!(error.starts_with("there is no agent"), "{error}");
    let gone = RequestContext {
        schedule: Some(Err(Rejected::new(Code::InvalidRequest, "gone"))),
        ..RequestContext::default()
    };
    world.request_from(conn, 2, RUN, gone);
    assert_eq!(world.answer(conn, 2)["error"], "gone");
    for (id, more) in [
        (3, json!({"agent": "nobody"})),
        (4, json!({"model": "m", "agent": "exec"})),
    ] {
        world.request_from(conn, id, ADD, add(send("k", &more)));
        assert_eq!(world.answer(conn, id)["type"], "error", "{more}");
    }
    let pause = r#"{"type":"cron.pause","schedule":"c7"}"#;
    world.request(conn, 5, pause);
    assert_eq!(world.answer(conn, 5)["error"], "there is no such schedule");
    assert_eq!((world.jobs.len(), world.schedules[&1]), (0, 1));
    assert_eq!(world.sessions.len(), 0);
}

#[test]
fn schedule_is_nothing_for_agents_or_one_shots() {
    let (mut world, conn, process) = running();
    for (id, line) in [
        (2, ADD),
        (3, RUN),
        (4, r#"{"type":"cron.edit","schedule":"c1","set":{}}"#),
        (5, r#"{"type":"cron.pause","schedule":"c1"}"#),
        (6, r#"{"type":"cron.resume","schedule":"c1"}"#),
        (7, r#"{"type":"cron.remove","schedule":"c1"}"#),
    ] {
        world.request_from(conn, id, line, World::inside(process));
        assert_eq!(world.answer(conn, id)["code"], "forbidden", "{line}");
    }
    let mut alone = settings();
    alone.served = Served::OneShot { reason: None };
    let mut world = World::new(alone);
    let conn = world.connect();
    world.request_from(conn, 1, ADD, add(send("k", &json!({}))));
    world.request(conn, 2, r#"{"type":"cron.remove","schedule":"c1"}"#);
    world.request_from(conn, 3, RUN, fired(1, &json!({})));
    for id in 1..=3 {
        assert_eq!(world.answer(conn, id)["code"], "needs-daemon");
    }
    assert!(world.jobs.is_empty() && !world.jobs.contains_key(&JobId(1)));
}
