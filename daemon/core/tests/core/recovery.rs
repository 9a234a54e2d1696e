//! What becomes of each kind of stored row when a new daemon takes over from a dead one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agentd_core::event::Origin;
use agentd_core::ids::{ConnId, Now};
use agentd_core::store::{
    Due, End, JobRow, JobState, LeftJob, MessageText, Pins, Recovered, SessionRow, SoFar, TextKind,
    Write,
};
use agentd_core::worker::WorkerCommand;
use agentd_core::{Effect, Event, State, Terms};
use agentd_protocol::{Body, JobId, Line};

use crate::agents::settings;
use crate::world::World;

const NOW: Now = Now {
    mono: Duration::from_secs(1),
    boot_ms: 500_000,
    wall_ms: 1_000_000,
};

fn session(name: &str) -> SessionRow {
    SessionRow {
        name: name.to_owned(),
        agent: "many".to_owned(),
        cwd: "/".to_owned(),
        real_cwd: None,
        toolsets: None,
        system: None,
        mcp_servers: agentd_core::mcp::McpServers::default(),
        named: true,
        native: None,
        forks: None,
        turns: 0,
        pins: Pins::default(),
        lost: false,
    }
}

fn job(number: u64, session: &str, request: &str, state: JobState) -> LeftJob {
    let row = JobRow {
        job: JobId(number),
        seq: number,
        session: session.to_owned(),
        agent: "many".to_owned(),
        cancelled: false,
        state,
        routed: None,
    };
    LeftJob {
        row,
        terms: Terms::read(request).map(Arc::new),
        so_far: SoFar::default(),
    }
}

const fn queued(held: bool, start: Option<Due>, expires: Due) -> JobState {
    JobState::Queued {
        expires,
        start,
        held,
        attempt: 0,
    }
}

const fn boot(boot_ms: u64) -> Due {
    Due {
        wall_ms: 0,
        boot_ms: Some(boot_ms),
    }
}

const FAR: Due = boot(9_000_000);

/// What a daemon does with one row, once the dead one's processes are gone.
fn fate(left: LeftJob) -> &'static str {
    let mut state = State::new(settings());
    let number = left.row.job;
    let recovered = Recovered {
        instance: "i".to_owned(),
        sessions: vec![session("s")],
        jobs: vec![left],
        holders: Vec::new(),
        last_seq: 0,
    };
    let mut effects = Vec::new();
    state.apply(NOW, Event::Recovered(Box::new(recovered)), &mut effects);
    let gone = Event::InstanceGone {
        instance: "i".to_owned(),
        survivors: Vec::new(),
    };
    let spawned_early = effects
        .iter()
        .any(|effect| matches!(effect, Effect::Spawn { .. }));
    assert!(!spawned_early, "the dead one's processes may still run");
    state.apply(NOW, gone, &mut effects);
    for effect in &effects {
        if let Effect::Tell {
            command: WorkerCommand::Prompt(_),
            ..
        } = effect
        {
            panic!("a prompt before its mark");
        }
        let Effect::Commit { writes, .. } = effect else {
            continue;
        };
        for write in writes {
            match write {
                Write::Finish { job, line, .. } if *job == number => {
                    return match serde_json(line) {
                        Line::MessageEnd(_) => "cancelled",
                        Line::Error(error) => error.code.name(),
                        other => panic!("{other:?}"),
                    };
                }
                Write::Requeue { .. } => return "again",
                _ => {}
            }
        }
    }
    let spawned = effects
        .iter()
        .any(|effect| matches!(effect, Effect::Spawn { .. }));
    if spawned { "runs" } else { "waits" }
}

fn serde_json(line: &Body) -> Line {
    agentd_protocol::serde_json::from_str(line.as_json()).unwrap()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_kind_of_row_has_its_fate() {
    let plain = r#"{"text":"x"}"#;
    let auto = r#"{"text":"x","retry":"auto"}"#;
    let running = |attempt| JobState::Running { attempt };
    let cancelled = |mut left: LeftJob| {
        left.row.cancelled = true;
        left
    };
    let ended = JobState::Finished {
        seq: 2,
        line: Body::stored(r#"{"type":"message_end"}"#),
    };
    let other_boot = |wall_ms| Due {
        wall_ms,
        boot_ms: None,
    };
    let rows = [
        (
            "queued",
            job(1, "s", plain, queued(false, None, FAR)),
            "runs",
        ),
        ("held", job(1, "s", plain, queued(true, None, FAR)), "waits"),
        (
            "for later",
            job(1, "s", plain, queued(false, Some(boot(600_000)), FAR)),
            "waits",
        ),
        (
            "for a time that has passed",
            job(1, "s", plain, queued(false, Some(boot(400_000)), FAR)),
            "runs",
        ),
        (
            "too late",
            job(1, "s", plain, queued(false, None, boot(499_000))),
            "expired",
        ),
        (
            "held, too late",
            job(1, "s", plain, queued(true, None, boot(499_000))),
            "expired",
        ),
        (
            "of another boot, in time by the wall clock",
            job(1, "s", plain, queued(false, None, other_boot(1_000_001))),
            "runs",
        ),
        (
            "of another boot, too late by the wall clock",
            job(1, "s", plain, queued(false, None, other_boot(999_999))),
            "expired",
        ),
        (
            "cancelled while it waited",
            cancelled(job(1, "s", plain, queued(false, None, FAR))),
            "cancelled",
        ),
        (
            "unreadable",
            job(1, "s", "{", queued(false, None, FAR)),
            "store-failed",
        ),
        (
            "of a newer version",
            job(1, "s", r#"{"retry":"twice"}"#, queued(true, None, FAR)),
            "store-failed",
        ),
        (
            "for later, unreadable",
            job(1, "s", "\0", queued(false, Some(boot(600_000)), FAR)),
            "store-failed",
        ),
        (
            "cancelled while it waited, unreadable",
            cancelled(job(1, "s", "{", queued(false, None, FAR))),
            "cancelled",
        ),
        ("running", job(1, "s", plain, running(1)), "interrupted"),
        ("running, retry", job(1, "s", auto, running(1)), "again"),
        ("running, retry", job(1, "s", auto, running(2)), "again"),
        (
            "running for the third time, retry",
            job(1, "s", auto, running(3)),
            "interrupted",
        ),
        (
            "cancelled while it ran, retry",
            cancelled(job(1, "s", auto, running(1))),
            "cancelled",
        ),
        (
            "running, unreadable",
            job(1, "s", "[]", running(1)),
            "interrupted",
        ),
        ("ended", job(1, "s", plain, ended), "waits"),
        (
            "of a session that is not there",
            job(1, "elsewhere", plain, queued(false, None, FAR)),
            "waits",
        ),
    ];
    for (what, row, expected) in rows {
        assert_eq!(fate(row), expected, "{what}");
    }
}

#[test]
fn lost_prompts_end_with_what_is_true() {
    let newer = r#"{"text":"x","retry":"twice"}"#;
    let again = |attempt| JobState::Queued {
        expires: FAR,
        start: None,
        held: false,
        attempt,
    };
    for (request, state, words) in [
        (
            "\0\0",
            again(0),
            ["the store is damaged", "nothing of it was run"],
        ),
        (
            "\0\0",
            again(1),
            ["the store is damaged", "may have taken effect"],
        ),
        (newer, again(0), ["a newer agentd", "nothing of it was run"]),
    ] {
        let mut state_of_all = State::new(settings());
        let recovered = Recovered {
            instance: "i".to_owned(),
            sessions: vec![session("s")],
            jobs: vec![job(1, "s", request, state)],
            holders: Vec::new(),
            last_seq: 0,
        };
        let mut effects = Vec::new();
        let recovered = Event::Recovered(Box::new(recovered));
        state_of_all.apply(NOW, recovered, &mut effects);
        let writes = effects.iter().filter_map(|effect| match effect {
            Effect::Commit { writes, .. } => Some(writes),
            _ => None,
        });
        let end = writes.flatten().find_map(|write| match write {
            Write::Finish { end, line, .. } => Some((*end, line.as_json().to_owned())),
            _ => None,
        });
        let (end, line) = end.expect("an end");
        assert_eq!(end, End::Failed, "{line}");
        for word in words {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
}

#[test]
fn interrupted_turn_keeps_text_and_holds_queue() {
    let mut state = State::new(settings());
    let texts = vec![MessageText {
        message: 0,
        kind: TextKind::Text,
        text: "so far".to_owned(),
    }];
    let so_far = SoFar {
        texts,
        events: Vec::new(),
    };
    let running = JobState::Running { attempt: 1 };
    let behind = queued(false, None, FAR);
    let recovered = Recovered {
        instance: "i".to_owned(),
        sessions: vec![session("s")],
        holders: Vec::new(),
        last_seq: 0,
        jobs: vec![
            LeftJob {
                so_far,
                ..job(1, "s", r#"{"text":"x"}"#, running)
            },
            job(2, "s", r#"{"text":"y"}"#, behind),
        ],
    };
    let mut effects = Vec::new();
    state.apply(NOW, Event::Recovered(Box::new(recovered)), &mut effects);
    let together = effects.iter().find_map(|effect| match effect {
        Effect::Commit { writes, .. } => match writes.as_slice() {
            [
                Write::Finish {
                    end: End::Interrupted,
                    line,
                    ..
                },
                Write::Hold {
                    job: JobId(2),
                    held: true,
                },
                Write::Event { job: JobId(2), .. },
            ] => Some(line.clone()),
            _ => None,
        },
        _ => None,
    });
    let line = together.expect("the end and the hold are one commit");
    assert!(line.as_json().contains(r#""text":"so far""#));
}

/// PROTOCOL.md allows 10,000 waiting turns; a store may hold more of an older daemon.
#[test]
fn recovery_takes_linear_time_in_jobs() {
    let take = |count: u64| {
        let rows = (1..=count).map(|number| {
            let session = format!("s{}", number % 1000);
            job(number, &session, r#"{"text":"x"}"#, queued(true, None, FAR))
        });
        let recovered = Recovered {
            instance: "i".to_owned(),
            sessions: (0..1000).map(|n| session(&format!("s{n}"))).collect(),
            jobs: rows.collect(),
            holders: Vec::new(),
            last_seq: 0,
        };
        let mut state = State::new(settings());
        let mut effects = Vec::new();
        let conn = ConnId(1);
        let begun = Instant::now();
        state.apply(NOW, Event::Recovered(Box::new(recovered)), &mut effects);
        let origin = Origin::Socket;
        state.apply(NOW, Event::Connected { conn, origin }, &mut effects);
        begun.elapsed()
    };
    let (tenth, all) = (take(10_000), take(100_000));
    // Ten times as many; a square would be a hundred times as long.
    assert!(
        all < tenth * 40,
        "{tenth:?} for 10,000, {all:?} for 100,000"
    );
}

/// A second daemon died before it had run all that it took over from a first one.
#[test]
fn recovery_of_a_session_waits_for_both_dead() {
    let mut state = State::new(settings());
    let mut effects = Vec::new();
    let take = |instance: &str, left: LeftJob| {
        Event::Recovered(Box::new(Recovered {
            instance: instance.to_owned(),
            sessions: vec![session("s")],
            jobs: vec![left],
            holders: Vec::new(),
            last_seq: 0,
        }))
    };
    let gone = |instance: &str| Event::InstanceGone {
        instance: instance.to_owned(),
        survivors: Vec::new(),
    };
    let spawns = |effects: &[Effect]| {
        let spawn = |effect: &&Effect| matches!(effect, Effect::Spawn { .. });
        effects.iter().filter(spawn).count()
    };
    // Its processes may still run.
    let running = JobState::Running { attempt: 1 };
    let auto = r#"{"text":"x","retry":"auto"}"#;
    let waits = queued(false, None, FAR);
    let second = job(2, "s", r#"{"text":"y"}"#, waits);
    state.apply(NOW, take("first", second), &mut effects);
    state.apply(
        NOW,
        take("second", job(1, "s", auto, running)),
        &mut effects,
    );
    state.apply(NOW, gone("first"), &mut effects);
    assert_eq!(spawns(&effects), 0, "the second one's process may live");
    state.apply(NOW, gone("second"), &mut effects);
    assert_eq!(spawns(&effects), 1);
    let order = format!("{state:?}");
    let order = order.split("queue: [").nth(1).unwrap();
    let order = order.split(']').next().unwrap();
    let turns: Vec<&str> = order.split("TurnId(").skip(1).collect();
    assert_eq!(turns.len(), 2);
    assert!(
        turns[0] > turns[1],
        "the older job was told of later: {order}"
    );
}

#[test]
fn status_is_degraded_and_names_what_is_lost() {
    let mut settings = settings();
    settings.losses = vec!["the log is cut".to_owned()];
    settings.backups_lack = Some("the last planned backup failed".to_owned());
    let mut world = World::new(settings);
    let conn = world.connect();
    world.request(conn, 1, r#"{"type":"status"}"#);
    let status = world.answer(conn, 1);
    assert_eq!(status["state"], "degraded");
    let details = status["details"].as_str().unwrap();
    let ends = "; the log is cut; the last planned backup failed";
    assert!(details.ends_with(ends), "{details}");
    world.event(Event::BackupsLack { lacks: None });
    let losses = Vec::new();
    world.event(Event::StoreLosses { losses });
    world.request(conn, 2, r#"{"type":"status"}"#);
    assert_eq!(world.answer(conn, 2)["state"], "ready", "it is accepted");
}
