//! Steers to pi's run, answers to its dialogs, and compactions between runs.

use agentd_core::ids::TurnId;
use agentd_core::worker::{AskedFor, QuestionKind, Reply, Steering, WorkerCommand};
use agentd_protocol::work::Private;

use super::replay::{DIALECTS, Replay};
use super::*;
use crate::adapter::testing::{cancel, compact, prompt, steer};

fn steered(replay: &Replay) -> Vec<(u64, Steering)> {
    let events = replay.events.iter().filter_map(|event| match event {
        WorkerEvent::Steered { steer, steering } => Some((*steer, steering.clone())),
        _ => None,
    });
    events.collect()
}

fn queue(replay: &mut Replay, steering: &[&str]) {
    replay.hear(&json!({"type": "queue_update", "steering": steering, "followUp": []}));
}

fn answer(replay: &mut Replay, at: usize, mut more: Value) {
    more["type"] = json!("response");
    more["id"] = replay.wrote[at]["id"].clone();
    more["command"] = replay.wrote[at]["type"].clone();
    replay.hear(&more);
}

/// A pi whose run has begun.
fn running() -> Replay {
    let mut replay = Replay::ready();
    replay.tell(&prompt(1, "x"));
    answer(
        &mut replay,
        0,
        json!({"success": true, "data": {"disposition": "started"}}),
    );
    replay.hear(&json!({"type": "agent_start"}));
    replay
}

fn settled(replay: &mut Replay) {
    replay.hear(&json!({"type": "agent_end", "willRetry": false}));
    replay.hear(&json!({"type": "agent_settled", "aborted": false}));
    replay.settle();
}

#[test]
fn steering_waits_for_the_run_and_the_queue() {
    for dialect in DIALECTS {
        let mut replay = Replay::turn(dialect, "02", 1);
        replay.tell(&prompt(1, "x"));
        replay.tell(&steer(1, "early"));
        replay.records.pop_front();
        assert_eq!(replay.written(), ["prompt"], "pi would keep it for later");
        replay.play_to("agent_start");
        assert_eq!(replay.written(), ["prompt", "steer"]);
        assert_eq!(replay.wrote[1]["message"], "early");
        queue(&mut replay, &["early"]);
        answer(
            &mut replay,
            1,
            json!({"success": true, "data": {"disposition": "queued"}}),
        );
        assert!(steered(&replay).is_empty(), "{dialect}: it is only queued");
        queue(&mut replay, &[]);
        assert_eq!(steered(&replay), [(1, Steering::Taken)]);
        let replay = replay.play();
        assert_eq!(
            replay.written(),
            ["prompt", "steer"],
            "nothing is left to clear"
        );
        assert_eq!(replay.outcomes().len(), 1);
    }
}

#[test]
fn words_are_taken_in_their_order() {
    let mut replay = running();
    replay.tell(&steer(1, "same"));
    queue(&mut replay, &["same"]);
    replay.tell(&steer(2, "same"));
    queue(&mut replay, &["same", "same"]);
    answer(&mut replay, 1, json!({"success": true}));
    answer(&mut replay, 2, json!({"success": true}));
    queue(&mut replay, &["same"]);
    assert_eq!(steered(&replay), [(1, Steering::Taken)]);
    queue(&mut replay, &[]);
    assert_eq!(steered(&replay).last().unwrap(), &(2, Steering::Taken));
}

#[test]
fn steering_handled_or_refused_is_answered_at_once() {
    let mut replay = running();
    replay.tell(&steer(1, "/handled"));
    replay.tell(&steer(2, "/refused"));
    answer(
        &mut replay,
        1,
        json!({"success": true, "data": {"disposition": "handled"}}),
    );
    answer(
        &mut replay,
        2,
        json!({"success": false, "error": "not while streaming"}),
    );
    let steered = steered(&replay);
    assert_eq!(steered[0], (1, Steering::Taken));
    assert!(matches!(&steered[1], (2, Steering::Refused(why)) if why.error.contains("streaming")));
    settled(&mut replay);
    assert_eq!(replay.outcomes().len(), 1);
}

#[test]
fn steering_an_absent_or_aborted_turn_goes_nowhere() {
    let mut replay = Replay::ready();
    replay.tell(&steer(1, "x"));
    assert_eq!(steered(&replay), [(1, Steering::TooLate)]);
    let mut replay = running();
    replay.tell(&cancel(1));
    replay.tell(&steer(1, "x"));
    assert_eq!(replay.written(), ["prompt", "abort"]);
    settled(&mut replay);
    assert_eq!(steered(&replay), [(1, Steering::TooLate)]);
    assert_eq!(replay.written(), ["prompt", "abort"], "pi never had it");
    assert_eq!(replay.outcomes().len(), 1);
}

#[test]
fn abort_clears_the_queue_before_turns_end() {
    let mut replay = running();
    replay.tell(&steer(1, "x"));
    queue(&mut replay, &["x"]);
    answer(&mut replay, 1, json!({"success": true}));
    replay.tell(&cancel(1));
    settled(&mut replay);
    assert_eq!(
        replay.written(),
        ["prompt", "steer", "abort", "clear_queue"]
    );
    assert!(replay.outcomes().is_empty());
    // pi may settle once more meanwhile.
    replay.hear(&json!({"type": "agent_settled", "aborted": true}));
    replay.settle();
    assert!(replay.outcomes().is_empty());
    queue(&mut replay, &[]);
    answer(
        &mut replay,
        3,
        json!({"success": true, "data": {"steering": ["x"], "followUp": []}}),
    );
    assert_eq!(replay.outcome().result, Ok(Stop::Cancelled));
    assert_eq!(steered(&replay), [(1, Steering::TooLate)]);
}

#[test]
fn dialog_of_each_kind_gets_its_answer() {
    let mut replay = running();
    for (method, more, kind, reply, expected) in [
        (
            "confirm",
            json!({"message": "really?", "timeout": 3000}),
            QuestionKind::Approval,
            Reply::Approved,
            json!({"confirmed": true}),
        ),
        (
            "confirm",
            json!({}),
            QuestionKind::Approval,
            Reply::Denied,
            json!({"confirmed": false}),
        ),
        (
            "select",
            json!({"options": ["a", "b"]}),
            QuestionKind::Choice,
            Reply::Chosen("b".into()),
            json!({"value": "b"}),
        ),
        (
            "input",
            json!({"placeholder": "p"}),
            QuestionKind::Text,
            Reply::Text(Private("t".into())),
            json!({"value": "t"}),
        ),
        (
            "editor",
            json!({"prefill": "p"}),
            QuestionKind::Text,
            Reply::Cancelled,
            json!({"cancelled": true}),
        ),
    ] {
        let mut record = more;
        record["type"] = json!("extension_ui_request");
        record["id"] = json!("d1");
        record["method"] = json!(method);
        record["title"] = json!("T");
        replay.hear(&record);
        let Some(WorkerEvent::Asked { turn, asking }) = replay.events.pop() else {
            panic!("{method}: {:?}", replay.events);
        };
        assert_eq!((turn, asking.kind), (Some(TurnId(1)), kind), "{method}");
        let timeout = record["timeout"].as_u64().map(Duration::from_millis);
        assert_eq!(asking.limit, timeout.map(AskedFor::Within));
        let question = asking.question;
        replay.tell(&WorkerCommand::Answer { question, reply });
        let mut written = replay.wrote.pop().unwrap();
        let fields = written.as_object_mut().unwrap();
        assert_eq!(fields.remove("type").unwrap(), "extension_ui_response");
        assert_eq!(fields.remove("id").unwrap(), "d1");
        assert_eq!(written, expected, "{method}");
    }
}

#[test]
fn answers_of_the_recording_are_written_as_recorded() {
    for dialect in DIALECTS {
        let replay = Replay::turn(dialect, "25", 4).play();
        let answers = replay.wrote.iter();
        let answers: Vec<_> = answers
            .filter(|line| line["type"] == "extension_ui_response")
            .collect();
        assert_eq!(answers.len(), 1, "{dialect}");
        assert_eq!(answers[0]["value"], "Block");
    }
}

#[test]
fn compaction_between_turns_holds_the_next_prompt() {
    let compact = compact(Some("names"));
    for (given, expected) in [
        (
            json!({"success": true, "data": {"summary": "short"}}),
            Ok(Some("short".to_owned())),
        ),
        (json!({"success": true, "data": {}}), Ok(None)),
        (
            json!({"success": false, "error": "Already compacted"}),
            Err("pi: Already compacted"),
        ),
    ] {
        let mut replay = Replay::ready();
        replay.tell(&compact);
        assert_eq!(replay.wrote[0]["customInstructions"], "names");
        replay.tell(&prompt(1, "x"));
        replay.hear(&json!({"type": "compaction_start", "reason": "manual"}));
        replay.hear(&json!({"type": "compaction_end", "reason": "manual", "aborted": false, "willRetry": false}));
        assert_eq!(replay.written(), ["compact"], "the answer is still to come");
        answer(&mut replay, 0, given);
        assert_eq!(replay.written(), ["compact", "prompt"]);
        let results = replay.events.iter().filter_map(|event| match event {
            WorkerEvent::Compacted { result } => Some(result.clone().map_err(|why| why.error)),
            _ => None,
        });
        let results: Vec<_> = results.collect();
        assert_eq!(results, [expected.map_err(str::to_owned)]);
    }
}
