//! The fourteen hazards of pi's protocol, each with the adapter's part of its counter-measure.

use agentd_core::ids::TurnId;
use agentd_core::worker::{Steering, WorkerCommand};
use agentd_protocol::Code;

use super::replay::{DIALECTS, Replay};
use super::*;
use crate::adapter::Adapter as _;
use crate::adapter::testing::{cancel, compact, prompt, spawn, steer};

#[test]
fn hazard_01_second_prompt_waits_for_idle() {
    for dialect in DIALECTS {
        let mut replay = Replay::of(dialect, "10");
        replay.tell(&prompt(1, "first"));
        replay.tell(&prompt(2, "second"));
        replay.play_to("agent_end");
        assert_eq!(replay.written(), ["prompt"], "{dialect}");
        let replay = replay.play();
        assert_eq!(replay.outcome().text.as_deref(), Some("w0 w1 w2 "));
        assert_eq!(replay.wrote[1]["message"], "second");
    }
}

#[test]
fn hazard_02_abort_waits_for_the_run() {
    for dialect in DIALECTS {
        let mut replay = Replay::of(dialect, "31c");
        replay.tell(&prompt(1, "first"));
        replay.tell(&cancel(1));
        replay.tell(&cancel(1));
        assert_eq!(replay.written(), ["prompt"], "{dialect}");
        replay.play_to("agent_start");
        assert_eq!(replay.written(), ["prompt", "abort"], "{dialect}");
    }
}

#[test]
fn hazard_03_prompt_waits_for_a_compaction() {
    let mut replay = Replay::ready();
    replay.hear(&json!({"type": "compaction_start", "reason": "threshold"}));
    replay.tell(&prompt(1, "x"));
    assert!(replay.wrote.is_empty());
    replay.hear(&json!({"type": "compaction_end", "reason": "threshold", "aborted": false, "willRetry": false}));
    assert_eq!(replay.written(), ["prompt"]);
}

#[test]
fn hazard_04_compaction_is_never_asked_midrun() {
    let compact = compact(None);
    for dialect in DIALECTS {
        for number in ["02", "05", "24", "25"] {
            let mut replay = Replay::of(dialect, number);
            replay.play_to("prompt");
            replay.tell(&compact);
            replay.play_to("response");
            replay.tell(&compact);
            let busy = |event: &WorkerEvent| matches!(event, WorkerEvent::Compacted { result: Err(why) } if why.code == Code::SessionBusy);
            assert_eq!(replay.count(busy), 2, "{dialect} {number}");
            let replay = replay.play();
            assert!(!replay.written().contains(&"compact"));
        }
    }
}

#[test]
fn hazard_05_new_session_waits_for_the_run() {
    for dialect in DIALECTS {
        // The recorded client asked in the middle of a tool; 0.73.1 then went on unseen.
        let mut replay = Replay::of(dialect, "19");
        replay.play_to("new_session");
        assert_eq!(replay.written(), ["prompt"], "{dialect}");
        replay.hear(&json!({"type": "agent_end", "willRetry": false}));
        replay.hear(&json!({"type": "agent_settled", "aborted": false}));
        replay.settle();
        assert_eq!(replay.written(), ["prompt", "new_session"], "{dialect}");
        assert_eq!(replay.outcome().result, Ok(Stop::EndTurn));
    }
}

#[test]
fn hazard_06_runs_end_is_not_the_turns() {
    for dialect in DIALECTS {
        let mut replay = Replay::turn(dialect, "24", 2);
        for _ in 0..3 {
            replay.play_to("auto_retry_start");
            replay.settle();
            assert!(replay.outcomes().is_empty(), "{dialect}");
        }
    }
    let replay = Replay::turn("pi-1.5.2", "24", 2).play();
    let failure = replay.outcome().result.clone().unwrap_err();
    assert_eq!(failure.code, Code::AgentFailed);
    assert!(
        failure.error.contains("mock error 500"),
        "{}",
        failure.error
    );
    let replaced = |event: &WorkerEvent| {
        matches!(
            event,
            WorkerEvent::MessageStarted {
                replaces_last: true,
                ..
            }
        )
    };
    assert_eq!(replay.count(replaced), 3);
    assert_eq!(replay.outcome().api_calls.as_ref().unwrap().len(), 4);
}

#[test]
fn hazard_06_compaction_keeps_an_old_turn_open() {
    let mut replay = Replay::ready();
    replay.tell(&prompt(1, "x"));
    for record in [
        json!({"type": "agent_start"}),
        json!({"type": "message_end", "message": {"role": "assistant", "stopReason": "stop", "content": "hi"}}),
        json!({"type": "agent_end"}),
        json!({"type": "compaction_start", "reason": "threshold"}),
    ] {
        replay.hear(&record);
    }
    replay.settle();
    assert!(replay.outcomes().is_empty());
    replay.hear(&json!({"type": "compaction_end", "reason": "threshold", "aborted": false, "willRetry": false}));
    replay.settle();
    assert_eq!(replay.outcome().text.as_deref(), Some("hi"));
}

#[test]
fn hazard_06_one_idle_look_is_too_few() {
    let mut replay = Replay::ready();
    replay.tell(&prompt(1, "x"));
    replay.hear(&json!({"type": "agent_start"}));
    replay.hear(&json!({"type": "agent_end"}));
    replay.answer_one_look();
    assert!(replay.outcomes().is_empty());
    replay.hear(&json!({"type": "compaction_start", "reason": "threshold"}));
    replay.settle();
    assert!(replay.outcomes().is_empty());
}

#[test]
fn run_end_too_long_is_over_when_idle() {
    let mut replay = Replay::ready();
    replay.tell(&prompt(1, "x"));
    replay.hear(&json!({"type": "agent_start"}));
    let mut skipped = |line: &str| {
        let instead = replay.adapter.instead_of(line.as_bytes());
        instead.inspect(|line| replay.hear(line)).is_some()
    };
    assert!(!skipped(
        r#"{"type":"message_end","message":{"content":"aaa"#
    ));
    assert!(skipped(
        r#"{"type":"agent_end","messages":[{"content":"aaa"#
    ));
    replay.settle();
    assert_eq!(replay.outcome().result, Ok(Stop::EndTurn));
}

#[test]
fn hazard_06_abort_of_a_waiting_retry_ends() {
    for dialect in DIALECTS {
        let replay = Replay::turn(dialect, "36", 1).play();
        assert_eq!(replay.outcome().result, Ok(Stop::Cancelled), "{dialect}");
        assert_eq!(replay.written(), ["prompt", "abort"]);
    }
}

#[test]
fn hazard_07_only_objects_are_ever_written() {
    for text in [
        "null",
        "[1]",
        "\n",
        "{}\nnull\n",
        "\u{2028}\u{0}",
        "\"",
        "/null",
    ] {
        let mut replay = Replay::ready();
        // The replay checks that each line is an object with a type.
        replay.tell(&prompt(1, text));
        assert_eq!(replay.wrote[0]["message"], text);
        assert_eq!(replay.wrote.len(), 1);
    }
}

#[test]
fn hazard_08_error_without_an_id_ends_nothing() {
    let mut replay = Replay::ready();
    replay.tell(&prompt(1, "x"));
    let error = json!({"type": "response", "command": "nonsense", "success": false, "error": "Unknown command: nonsense"});
    replay.hear(&error);
    for junk in [&b"null"[..], b"[]", b"npm warn", b"{\"no\":1}", b"\xff"] {
        replay.hear_raw(junk);
    }
    assert_eq!(
        replay.count(|event| matches!(event, WorkerEvent::Logged { .. })),
        6
    );
    assert_eq!(replay.events.len(), 6);
}

#[test]
fn news_of_a_newer_pi_is_noted_once() {
    let mut replay = Replay::ready();
    replay.hear(&json!({"type": "before_the_turn"}));
    replay.tell(&prompt(1, "x"));
    let asked = |method: &str| json!({"type": "extension_ui_request", "id": method, "method": method, "title": "t"});
    for _ in 0..2 {
        replay.hear(&json!({"type": "text_stream", "delta": "d"}));
        replay.hear(&asked("multiselect"));
        replay.hear(&asked("setStatus"));
        replay.hear(&json!({"type": "turn_start"}));
    }
    let noted = |said: &'static str| move |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { text, .. } if text.contains(said));
    for said in ["before_the_turn", "text_stream", "multiselect"] {
        assert_eq!(replay.count(noted(said)), 1, "{said}");
    }
    assert_eq!(replay.events.len(), 3, "{:?}", replay.events);
    let answer = json!({"type": "extension_ui_response", "id": "multiselect", "cancelled": true});
    assert_eq!(replay.wrote[1..], [answer.clone(), answer]);
}

#[test]
fn hazard_09_snapshots_are_dropped_for_deltas() {
    for dialect in DIALECTS {
        // In the old dialect the first delta comes with a snapshot that is three words ahead.
        let replay = Replay::turn(dialect, "02", 1).play();
        let pieces = replay.count(|event| matches!(event, WorkerEvent::Text { .. }));
        assert_eq!(
            (pieces, replay.text().as_str()),
            (4, "w0 w1 w2 w3 "),
            "{dialect}"
        );
        let told: usize = replay
            .events
            .iter()
            .map(|event| format!("{event:?}").len())
            .sum();
        assert!(told < 2_000, "{dialect}: {told}");
    }
}

#[test]
fn hazard_10_model_is_a_flag_never_set() {
    let mut replay = Replay::ready();
    let WorkerCommand::Prompt(pinned) = prompt(1, "x") else {
        unreachable!()
    };
    let pinned = Prompt {
        model: Some("m".into()),
        thinking: Some("high".into()),
        ..*pinned
    };
    replay.tell(&WorkerCommand::Prompt(Box::new(pinned)));
    assert_eq!(replay.written(), ["prompt"]);
    let fields: Vec<_> = replay.wrote[0]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(fields, ["message", "type", "id"]);
    assert!(!describe().model_per_turn);
}

#[test]
fn hazard_11_cancelled_prompt_leaves_no_queue() {
    for dialect in DIALECTS {
        let mut replay = Replay::turn(dialect, "02", 1);
        replay.play_to("agent_start");
        replay.tell(&prompt(2, "second"));
        replay.tell(&cancel(2));
        assert_eq!(replay.outcome().result, Ok(Stop::Cancelled));
        let replay = replay.play();
        assert_eq!(replay.written(), ["prompt"], "{dialect}");
        assert_eq!(replay.outcomes().len(), 2);
    }
}

#[test]
fn hazard_11_late_word_reaches_no_next_turn() {
    for (dialect, cleared) in [
        ("pi-0.73.1", None),
        ("pi-1.5.2", Some(true)),
        ("pi-1.5.2", Some(false)),
    ] {
        let mut replay = Replay::turn(dialect, "02", 1);
        replay.play_to("agent_start");
        replay.tell(&steer(7, "late"));
        replay.hear(&json!({"type": "queue_update", "steering": ["late"], "followUp": []}));
        let id = replay.wrote[1]["id"].clone();
        replay.hear(&json!({"type": "response", "id": id, "command": "steer", "success": true}));
        let mut replay = replay.play();
        let late = |event: &WorkerEvent| {
            matches!(
                event,
                WorkerEvent::Steered {
                    steer: 7,
                    steering: Steering::TooLate
                }
            )
        };
        assert_eq!(replay.count(late), 1, "{dialect}");
        // The next prompt of the core may come before pi's queue is known to be empty.
        let spoilt = |event: &WorkerEvent| matches!(event, WorkerEvent::Spoilt { .. });
        if let Some(success) = cleared {
            assert!(replay.outcomes().is_empty(), "the turn is not over yet");
            replay.tell(&prompt(2, "next"));
            assert_eq!(replay.written(), ["prompt", "steer", "clear_queue"]);
            let id = replay.wrote[2]["id"].clone();
            replay.hear(&json!({"type": "response", "id": id, "command": "clear_queue", "success": success}));
            assert_eq!(replay.count(spoilt), usize::from(!success));
        } else {
            assert_eq!(replay.written(), ["prompt", "steer"]);
            assert_eq!(replay.count(spoilt), 1);
        }
        // A process that is to be replaced says so before its turn is over.
        let ended = replay
            .events
            .iter()
            .position(|event| matches!(event, WorkerEvent::Ended { .. }));
        let spoilt = replay.events.iter().position(spoilt);
        assert!(ended.is_some() && spoilt.is_none_or(|spoilt| Some(spoilt) < ended));
    }
}

#[test]
fn hazard_12_tool_ends_by_a_word() {
    for dialect in DIALECTS {
        let replay = Replay::turn(dialect, "06", 1).play();
        let aborted = |event: &WorkerEvent| matches!(event, WorkerEvent::ToolEnded { ok: false, output, .. } if output.ends_with("Command aborted"));
        assert_eq!(replay.count(aborted), 1, "{dialect}");
    }
    // The end of input would leave 0.73.1's tools behind: what ends a process is for the worker.
    assert!(describe().cancels);
    assert_eq!(launch(&["pi".to_owned()], &spawn()).stdin, None);
}

#[test]
fn hazard_13_session_opens_by_pis_name_only() {
    let resumed = Spawn {
        resume: Some("/s/a.jsonl".into()),
        session: Some("main".into()),
        ..spawn()
    };
    let argv = launch(&["pi".to_owned()], &resumed).argv;
    assert_eq!(argv, ["pi", "--mode", "rpc", "--session", "/s/a.jsonl"]);
    assert_eq!(
        launch(&["pi".to_owned()], &spawn()).argv,
        ["pi", "--mode", "rpc"]
    );
}

#[test]
fn hazard_14_hidden_and_told_retries_end_alike() {
    for (dialect, notes) in [("pi-0.73.1", 0), ("pi-1.5.2", 1)] {
        let replay = Replay::turn(dialect, "24", 1).play();
        assert_eq!(replay.text(), "echo: recover");
        assert_eq!(replay.outcome().result, Ok(Stop::EndTurn));
        let retries =
            |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { code: "retry", .. });
        assert_eq!(replay.count(retries), notes, "{dialect}");
    }
}

#[test]
fn tool_and_run_ends_unstarted_are_harmless() {
    let mut replay = Replay::ready();
    replay.tell(&prompt(1, "x"));
    replay.hear(&json!({"type": "agent_start"}));
    replay.hear(
        &json!({"type": "tool_execution_end", "toolCallId": "c", "result": {"content": "o"}}),
    );
    let ended = WorkerEvent::ToolEnded {
        turn: TurnId(1),
        call: "c".into(),
        ok: true,
        output: "o".into(),
        sandbox: None,
        diff: Vec::new(),
    };
    assert_eq!(replay.events.last(), Some(&ended));
    let message = |text: &str| json!({"role": "assistant", "content": text, "stopReason": "stop"});
    for text in ["first", "second"] {
        replay.hear(&json!({"type": "message_end", "message": message(text)}));
        replay.hear(&json!({"type": "agent_end", "willRetry": false}));
        replay.hear(&json!({"type": "agent_settled", "aborted": false}));
        replay.settle();
    }
    assert_eq!(replay.outcome().text.as_deref(), Some("first"));
    assert_eq!(replay.text(), "first");
}

#[test]
fn refusal_is_told_as_one_with_its_words() {
    let prompt = crate::adapter::attached::samples::prompt(Vec::new());
    for (stop, error, told) in [
        ("length", "", Some(Stop::MaxTokens)),
        (
            "error",
            "Provider finish_reason: content_filter",
            Some(Stop::Refusal),
        ),
        (
            "error",
            "The model refused to complete the request",
            Some(Stop::Refusal),
        ),
        ("error", "Provider finish_reason: network_error", None),
    ] {
        let mut turn = Turn::new(&prompt, "p".into());
        let message = json!({"stopReason": stop, "errorMessage": error}).to_string();
        turn.message(&crate::adapter::object::Object::parse(message.as_bytes()).unwrap());
        let outcome = turn.outcome(None);
        assert_eq!(outcome.result.ok(), told, "{error}");
        let words = (told == Some(Stop::Refusal)).then_some(error);
        assert_eq!(outcome.refusal.as_deref(), words, "{error}");
    }
}

#[test]
fn piece_of_a_newer_pi_is_noted_once() {
    let mut replay = Replay::turn("pi-1.5.2", "02", 1);
    replay.play_to("message_update");
    for _ in 0..3 {
        for kind in ["hologram_delta", "toolcall_delta"] {
            let part = json!({"type": kind, "delta": "x"});
            replay.hear(&json!({"type": "message_update", "assistantMessageEvent": part}));
        }
        let parts = json!([{"type": "text", "text": "x"}, {"type": "hologram"}]);
        let message = json!({"role": "assistant", "content": parts, "stopReason": "enough"});
        replay.hear(&json!({"type": "message_end", "message": message}));
    }
    for said in [
        "message_update hologram_delta",
        "content hologram",
        "stopReason enough",
    ] {
        let noted = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { text, .. } if text.contains(said));
        assert_eq!(replay.count(noted), 1, "{said}");
    }
    let any = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { .. });
    assert_eq!(replay.count(any), 3);
}

#[test]
fn command_that_changes_sessions_leaves_that_name() {
    for kept in [false, true] {
        let mut replay = Replay::ready();
        (replay.adapter.named, replay.adapter.kept) = (Some("/s/old.jsonl".to_owned()), kept);
        replay.tell(&prompt(1, "/fresh"));
        for kind in ["agent_start", "agent_end", "agent_settled"] {
            replay.hear(&json!({"type": kind, "willRetry": false, "aborted": false}));
        }
        replay.client.state["sessionFile"] = json!("/s/new.jsonl");
        replay.settle();
        let mut named = replay.events.iter().filter_map(|event| match event {
            WorkerEvent::SessionNamed { native } => Some(native.as_str()),
            _ => None,
        });
        assert_eq!(named.next_back(), Some("/s/new.jsonl"), "{kept}");
        assert_eq!(replay.outcome().result, Ok(Stop::EndTurn));
    }
}
