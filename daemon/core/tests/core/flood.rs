//! Text that comes faster than the store takes it.

use std::time::Duration;

use agentd_core::ids::TurnId;
use agentd_core::limits::{OUTPUT_PER_TURN, TEXT_ON_ITS_WAY, TEXT_UNSTORED};
use agentd_core::store::{MessageText, Write};
use agentd_core::worker::{Failure, Outcome, WorkerEvent};
use agentd_protocol::limits::MAX_LINE_OUT;
use agentd_protocol::line::{Level, Stop};
use agentd_protocol::{Code, JobId};

use crate::scenarios::{running, say};
use crate::world::{StoreOrder, World};

/// Bytes of text that the store was given and has not answered.
fn on_its_way(world: &World) -> usize {
    let commits = world.orders.iter().filter_map(|order| match order {
        StoreOrder::Commit(_, writes) => Some(writes),
        StoreOrder::Load(..) => None,
    });
    let text = commits.flatten().map(|write| match write {
        Write::Text { text, .. } => text.len(),
        _ => 0,
    });
    text.sum()
}

#[test]
fn text_on_its_way_is_bounded_then_stored() {
    let (mut world, _conn, process) = running();
    world.prompt_store = false;
    // Three bytes a character, so that no limit falls between two of them.
    let piece = "\u{20ac}".repeat(10_000);
    let all = 3 * TEXT_ON_ITS_WAY;
    let mut said = 0;
    let mut most = 0;
    while said < all {
        say(&mut world, process, &piece);
        said += piece.len();
        most = most.max(on_its_way(&world));
    }
    world.pass(Duration::from_secs(1));
    assert!(
        (TEXT_ON_ITS_WAY..TEXT_ON_ITS_WAY + 4).contains(&most.max(on_its_way(&world))),
        "{most} bytes of {said} wait for the store"
    );
    while world.store_pending() > 0 {
        world.store_answers();
        world.pass(Duration::from_secs(1));
        assert!(on_its_way(&world) < TEXT_ON_ITS_WAY + 4);
    }
    let stored = &world.jobs[&JobId(1)].texts[&(0, 0)];
    assert!(*stored == piece.repeat(said / piece.len()), "all, in order");
    say(&mut world, process, &piece);
    assert_eq!(on_its_way(&world), piece.len(), "there is room again");
}

fn started(turn: TurnId, call: String) -> WorkerEvent {
    WorkerEvent::ToolStarted {
        turn,
        call,
        name: "n".to_owned(),
        input: "{}".to_owned(),
        read_only: true,
        about: Default::default(),
    }
}

fn ended(turn: TurnId, call: String) -> WorkerEvent {
    WorkerEvent::ToolEnded {
        turn,
        call,
        ok: true,
        output: String::new(),
        sandbox: None,
        diff: Vec::new(),
    }
}

#[test]
fn worker_names_keep_lines_within_their_limit() {
    // What takes the most room in a line.
    let long = "\u{1}".repeat(3_000_000);
    let failed = Failure {
        hint: Some(long.clone()),
        ..Failure::new(Code::AgentFailed, long.clone())
    };
    let call = format!(r#"{{"model":"{}"}}"#, "m".repeat(3_000));
    for result in [Ok(Stop::EndTurn), Err(failed)] {
        let (mut world, conn, process) = running();
        let turn = world.processes[&process].turns[0];
        world.worker(process, started(turn, long.clone()));
        world.worker(process, ended(turn, long.clone()));
        let other = WorkerEvent::Other {
            turn,
            kind: long.clone(),
            data: "1".to_owned(),
        };
        world.worker(process, other);
        let outcome = Outcome {
            result,
            text: Some(long.clone()),
            provider: Some(long.clone()),
            model: Some(long.clone()),
            api_calls: Some(vec![call.clone(); 1000]),
            ..Outcome::ended(Stop::EndTurn)
        };
        let outcome = Box::new(outcome);
        world.worker(process, WorkerEvent::Ended { turn, outcome });
        for _ in 0..100 {
            world.clients_read();
        }
        let lines = &world.clients[&conn].lines;
        let last = lines.last().unwrap();
        assert!(last["api_calls"].as_array().unwrap().len() > 10);
        assert_eq!(
            last["tool_trace"][0]["ok"], true,
            "start and end belong together"
        );
        for line in lines {
            let length = line.to_string().len();
            assert!(length <= MAX_LINE_OUT, "{}: {length}", line["type"]);
        }
    }
}

#[test]
fn whatever_a_turn_says_counts_against_its_limit() {
    type Says = fn(TurnId, usize) -> WorkerEvent;
    // As often as the mebibyte takes that is left to it: small ones count 256 bytes.
    let says: [(usize, Says); 3] = [
        (1, |turn, n| {
            started(turn, n.to_string() + &"x".repeat(3_000_000))
        }),
        (4_100, |turn, _| WorkerEvent::MessageStarted {
            turn,
            replaces_last: false,
        }),
        (4_100, |turn, n| ended(turn, n.to_string())),
    ];
    let piece = "x".repeat(1024 * 1024);
    for (times, says) in says {
        let (mut world, _conn, process) = running();
        world.keep_text = false;
        world.prompt_store = false;
        let turn = world.processes[&process].turns[0];
        for _ in 0..OUTPUT_PER_TURN / piece.len() - 1 {
            say(&mut world, process, &piece);
            world.orders.clear();
        }
        let cancelled = |world: &World| world.processes[&process].cancelled.contains(&turn);
        assert!(!cancelled(&world), "within its limit");
        for n in 0..times {
            world.worker(process, says(turn, n));
            world.orders.clear();
        }
        assert!(cancelled(&world), "after {times} of them");
    }
}

#[test]
#[ignore = "heavy"]
fn output_limit_holds_for_turns_told_to_end() {
    for aborted in [true, false] {
        let (mut world, conn, process) = running();
        world.keep_text = false;
        if aborted {
            world.request(conn, 99, r#"{"type":"abort","job":"j1"}"#);
        }
        let piece = "x".repeat(1024 * 1024);
        for _ in 0..3 * OUTPUT_PER_TURN / piece.len() {
            say(&mut world, process, &piece);
            world.pass(Duration::from_millis(1));
        }
        assert_eq!(world.processes[&process].cancelled.len(), 1);
        let turn = world.processes[&process].turns[0];
        let (events, bytes) = (world.log.len(), world.clients[&conn].bytes);
        world.worker(process, started(turn, "c".to_owned()));
        world.worker(
            process,
            WorkerEvent::Noted {
                turn: Some(turn),
                level: Level::Warning,
                code: "n",
                text: "n".to_owned(),
            },
        );
        assert_eq!(world.log.len(), events);
        assert_eq!(world.clients[&conn].bytes, bytes, "nor is it told");
        world.end_turn(process);
        let job = &world.jobs[&JobId(1)];
        let stored = job.texts[&(0, 0)].len();
        assert!(stored <= OUTPUT_PER_TURN + piece.len(), "{stored}");
        assert!(job.last.is_some(), "its end is heard");
    }
}

#[test]
fn output_waits_unread_for_a_slow_store() {
    let (mut world, _conn, process) = running();
    world.keep_text = false;
    world.prompt_store = false;
    let piece = "x".repeat(64 * 1024);
    let mut said = 0;
    for _ in 0..2 {
        while !world.processes[&process].paused {
            say(&mut world, process, &piece);
            said += piece.len();
            assert!(said <= 4 * (TEXT_ON_ITS_WAY + TEXT_UNSTORED), "{said}");
        }
        assert!(said >= TEXT_UNSTORED);
        while world.processes[&process].paused {
            assert!(world.store_pending() > 0, "it is never read again");
            world.store_answers();
        }
    }
    while world.store_pending() > 0 {
        world.store_answers();
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.jobs[&JobId(1)].texts[&(0, 0)].len(), said);
}

/// What the store is given of a long turn from its last piece to its end: of pieces, and of texts
/// that take their place.
fn written_at_its_end(lost: bool) -> (usize, Option<usize>) {
    let (mut world, _conn, process) = running();
    let piece = "x".repeat(64 * 1024);
    for n in 0..40 {
        world.prompt_store = !(lost && n == 20);
        say(&mut world, process, &piece);
        if !world.prompt_store {
            world.store_gives_up();
        }
    }
    world.prompt_store = false;
    say(&mut world, process, "the rest");
    world.end_turn(process);
    let pieces = on_its_way(&world);
    let commits = world.orders.iter().filter_map(|order| match order {
        StoreOrder::Commit(_, writes) => Some(writes),
        StoreOrder::Load(..) => None,
    });
    let ends: Vec<_> = commits
        .flatten()
        .filter_map(|write| match write {
            Write::Finish { texts, .. } => Some(texts),
            _ => None,
        })
        .collect();
    let [texts] = ends.as_slice() else {
        panic!("{} ends", ends.len())
    };
    let bytes = |texts: &Vec<MessageText>| texts.iter().map(|text| text.text.len()).sum();
    let whole = texts.as_ref().map(bytes);
    while world.store_pending() > 0 {
        world.store_answers();
    }
    let stored = &world.jobs[&JobId(1)].texts[&(0, 0)];
    assert_eq!(stored.len(), 40 * piece.len() + "the rest".len());
    (pieces, whole)
}

#[test]
fn output_of_a_long_turn_is_written_once() {
    assert_eq!(written_at_its_end(false), ("the rest".len(), None));
}

#[test]
fn output_that_the_store_lost_comes_whole() {
    let (_, whole) = written_at_its_end(true);
    assert_eq!(whole, Some(40 * 64 * 1024 + "the rest".len()));
}
