//! What a Claude Code that misbehaves does to the adapter: nothing but what is defined.

use agentd_core::worker::{Reply, Steering, WorkerCommand, WorkerEvent};
use proptest::prelude::*;

use super::replay::{CANCEL, Replay, steer};
use super::*;
use crate::adapter::Adapter as _;
use crate::adapter::testing::{answer, compact, prompt, spawn};

fn result(text: &str) -> Value {
    json!({"type": "result", "subtype": "success", "is_error": false, "result": text})
}

fn moved(id: &Value, state: &str) -> Value {
    json!({"type": "command_lifecycle", "command_uuid": id, "state": state})
}

fn asks(id: &str, tool: &str) -> Value {
    json!({"type": "control_request", "request_id": id, "request": {"subtype": "can_use_tool", "tool_name": tool, "input": {"a": 1}}})
}

#[test]
fn a_second_result_is_nobodys() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    replay.hear(&result("one"));
    replay.hear(&result("two"));
    assert_eq!(replay.outcome().text.as_deref(), Some("one"));
    let stray = |event: &WorkerEvent| matches!(event, WorkerEvent::Stray { .. });
    assert_eq!(replay.count(stray), 1);
}

#[test]
fn result_over_the_line_limit_fails_its_turn() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    let other = br#"{"type":"user","message":{"content":"aaa"#;
    assert_eq!(replay.adapter.instead_of(other), None);
    let line = br#"{"type":"result","subtype":"success","result":"aaa"#;
    let instead = replay.adapter.instead_of(line).unwrap();
    replay.hear(&instead);
    let failure = replay.outcome().result.clone().unwrap_err();
    assert!(failure.error.contains(TOO_LONG), "{failure:?}");
}

#[test]
fn run_that_nobody_asked_for_ends_no_turn() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    let id = replay.wrote[0]["uuid"].clone();
    // It is behind another run.
    replay.hear(&moved(&id, "queued"));
    replay.hear(&json!({"type": "system", "subtype": "init", "session_id": "s"}));
    replay.hear(&result("of another"));
    assert!(replay.outcomes().is_empty());
    replay.tell(&CANCEL);
    assert_eq!(
        replay.wrote.len(),
        1,
        "there is nothing of ours to interrupt"
    );
    replay.hear(&moved(&id, "started"));
    replay.hear(&json!({"type": "system", "subtype": "init", "session_id": "s"}));
    assert_eq!(replay.written(), ["user", "interrupt"]);
    replay.hear(&json!({"type": "result", "subtype": "error_during_execution", "is_error": true}));
    assert_eq!(replay.outcome().result, Ok(Stop::Cancelled));
}

#[test]
fn a_prompt_that_is_refused_ends_its_turn() {
    for (cancel, ok) in [(false, false), (true, true)] {
        let mut replay = Replay::bare();
        replay.tell(&prompt(1, "x"));
        if cancel {
            replay.tell(&CANCEL);
        }
        let id = replay.wrote[0]["uuid"].clone();
        replay.hear(&moved(&id, "refused"));
        assert_eq!(replay.outcome().result.is_ok(), ok);
    }
}

#[test]
fn prompt_that_is_second_is_refused_alone() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    replay.tell(&prompt(2, "y"));
    assert_eq!(replay.wrote.len(), 1);
    replay.hear(&result("one"));
    let ends = replay.events.iter().filter_map(|event| match event {
        WorkerEvent::Ended { turn, outcome } => Some((turn.0, outcome.result.is_ok())),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [(2, false), (1, true)]);
}

#[test]
fn question_about_an_unknown_tool_is_asked() {
    for tool in ["mcp__x__y", "", "FromTheFuture"] {
        let mut replay = Replay::bare();
        replay.tell(&prompt(1, "x"));
        replay.hear(&asks("q1", tool));
        let Some(WorkerEvent::Asked { asking, .. }) = replay.events.last() else {
            panic!("{:?}", replay.events);
        };
        assert!(!asking.title.is_empty());
    }
}

#[test]
fn answer_to_a_closed_question_is_not_written() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    replay.hear(&asks("q1", "Bash"));
    replay.hear(&asks("q2", "Bash"));
    replay.hear(&json!({"type": "control_cancel_request", "request_id": "q2"}));
    let withdrew = |event: &WorkerEvent| matches!(event, WorkerEvent::Withdrew { question } if question == "q2");
    assert_eq!(replay.count(withdrew), 1);
    for gone in ["q2", "of-a-dead-process", "q1#0#1", "#"] {
        replay.tell(&answer(gone, Reply::Approved));
    }
    assert_eq!(replay.wrote.len(), 1);
    replay.tell(&answer("q1", Reply::Approved));
    replay.tell(&answer("q1", Reply::Denied));
    assert_eq!(replay.wrote.len(), 2);
    replay.hear(&asks("q3", "Bash"));
    replay.hear(&result("over"));
    assert_eq!(replay.wrote.len(), 3, "the end of the run answers it");
    replay.tell(&answer("q3", Reply::Approved));
    assert_eq!(replay.wrote.len(), 3);
}

#[test]
fn requests_under_one_id_are_both_denied() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    replay.wrote.clear();
    replay.hear(&asks("q", "Read"));
    replay.hear(&asks("q", "Bash"));
    let withdrew = |event: &WorkerEvent| matches!(event, WorkerEvent::Withdrew { question } if question == "q");
    assert_eq!(replay.count(withdrew), 1);
    assert_eq!(replay.wrote.len(), 1, "{:?}", replay.wrote);
    assert_eq!(replay.wrote[0]["response"]["response"]["behavior"], "deny");
    replay.tell(&answer("q", Reply::Approved));
    assert_eq!(replay.wrote.len(), 1, "{:?}", replay.wrote);
}

#[test]
fn request_that_is_not_served_is_refused() {
    let mut replay = Replay::bare();
    for kind in ["mcp_message", "hook_callback", "from_the_future"] {
        replay.hear(
            &json!({"type": "control_request", "request_id": "r", "request": {"subtype": kind}}),
        );
        assert_eq!(replay.wrote.last().unwrap()["response"]["subtype"], "error");
        replay.tell(&prompt(1, "x"));
        assert_eq!(noted(&replay, kind).1, 1, "{kind}");
    }
    replay.hear(&asks("q", "AskUserQuestion"));
    let denied = replay.wrote.last().unwrap()["response"]["response"]["behavior"].clone();
    assert_eq!(denied, "deny", "a question without a question");
}

#[test]
fn an_unknown_type_is_noted_once() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    for number in 0..1000 {
        replay.hear(&json!({"type": "from_the_future"}));
        replay.hear(&json!({"type": format!("future-{number}")}));
    }
    replay.hear(&json!({"type": "system", "subtype": "from_the_future"}));
    let noted = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { .. });
    assert_eq!(replay.count(noted), 32);
    replay.hear(&result("done"));
    assert_eq!(replay.outcome().result, Ok(Stop::EndTurn));
}

/// How many notes there are, and how many of them say this.
fn noted(replay: &Replay, said: &str) -> (usize, usize) {
    let any = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { .. });
    let one = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { text, .. } if text.contains(said));
    (replay.count(any), replay.count(one))
}

#[test]
fn line_of_a_newer_claude_is_noted_once() {
    let event = |event: Value| json!({"type": "stream_event", "event": event});
    let delta = |kind: &str| event(json!({"type": "content_block_delta", "delta": {"type": kind}}));
    let message = |block: &str| json!({"type": "assistant", "message": {"id": "m", "content": [{"type": block}]}});
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    for (known, newer, said) in [
        (
            json!({"type": "system", "subtype": "hook_started"}),
            json!({"type": "system", "subtype": "hologram"}),
            "`system hologram`",
        ),
        (
            event(json!({"type": "content_block_start"})),
            event(json!({"type": "content_block_hologram"})),
            "`stream_event content_block_hologram`",
        ),
        (
            delta("signature_delta"),
            delta("hologram_delta"),
            "`content_block_delta hologram_delta`",
        ),
        (
            message("redacted_thinking"),
            message("hologram"),
            "`block hologram`",
        ),
    ] {
        replay.events.clear();
        for _ in 0..2 {
            replay.hear(&known);
            replay.hear(&newer);
        }
        assert_eq!(noted(&replay, said), (1, 1), "{said}: {:?}", replay.events);
    }
}

#[test]
fn turn_ends_for_its_reason_or_notes_it() {
    let refused =
        json!({"type": "system", "subtype": "model_refusal_no_fallback", "content": "Not that."});
    for (reason, stop, notes) in [
        ("stop_sequence", Stop::EndTurn, 0),
        ("max_tokens", Stop::MaxTokens, 0),
        ("model_context_window_exceeded", Stop::MaxTokens, 0),
        ("refusal", Stop::Refusal, 0),
        ("enough", Stop::EndTurn, 1),
    ] {
        let mut replay = Replay::bare();
        replay.tell(&prompt(1, "x"));
        replay.hear(&refused);
        let mut result = result("done");
        result["stop_reason"] = json!(reason);
        replay.hear(&result);
        let outcome = replay.outcome();
        assert_eq!(outcome.result, Ok(stop), "{reason}");
        let why = (stop == Stop::Refusal).then_some("Not that.");
        assert_eq!(outcome.refusal.as_deref(), why, "{reason}");
        let said = format!("`stop_reason {reason}`");
        assert_eq!(noted(&replay, &said), (notes, notes), "{reason}");
    }
}

#[test]
fn unknown_news_before_a_turn_is_told_within() {
    let mut replay = Replay::bare();
    replay.hear(&json!({"type": "system", "subtype": "hologram"}));
    assert_eq!(noted(&replay, "").0, 0);
    replay.tell(&prompt(1, "x"));
    assert_eq!(noted(&replay, "`system hologram`"), (1, 1));
}

#[test]
fn system_text_is_told_on_no_command_line() {
    let told = Spawn {
        system: Some("be brief".into()),
        ..spawn()
    };
    let command = ["claude".to_owned()];
    assert_eq!(
        launch(&command, &told).argv,
        launch(&command, &spawn()).argv
    );
    for (version, notes) in [("2.1.329", 0), ("2.0.60", 0), ("2.0.30", 1)] {
        let mut replay = Replay::new(Claude::new(&told));
        replay.tell(&WorkerCommand::Probe);
        let first = &replay.wrote[0]["request"];
        assert_eq!(
            (&first["subtype"], &first["appendSystemPrompt"]),
            (&json!("initialize"), &json!("be brief"))
        );
        replay.tell(&prompt(1, "x"));
        let init = json!({"type": "system", "subtype": "init", "session_id": "s", "claude_code_version": version});
        replay.hear(&init);
        replay.hear(&init);
        assert_eq!(noted(&replay, "system text"), (notes, notes), "{version}");
    }
}

#[test]
fn a_notification_is_told_in_its_words() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    replay.hear(&json!({"type": "system", "subtype": "notification", "text": "sit down"}));
    assert_eq!(noted(&replay, "sit down"), (1, 1));
}

#[test]
fn steering_is_refused_where_words_are_not_told() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    replay.tell(&steer(7));
    replay.hear(&json!({"type": "system", "subtype": "init", "session_id": "s"}));
    let refused = |event: &WorkerEvent| matches!(event, WorkerEvent::Steered { steer: 7, steering: Steering::Refused(why) } if why.code == Code::Unsupported);
    assert_eq!(replay.count(refused), 1);
    assert_eq!(replay.written(), ["user"]);
}

#[test]
fn tool_ended_without_a_start_is_passed_on() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    let block = json!({"type": "tool_result", "tool_use_id": "c9", "content": [{"type": "text", "text": "a"}, {"type": "image"}]});
    replay.hear(&json!({"type": "user", "message": {"role": "user", "content": [block]}}));
    let Some(WorkerEvent::ToolEnded { call, output, .. }) = replay.events.last() else {
        panic!("{:?}", replay.events);
    };
    assert_eq!((call.as_str(), output.as_str()), ("c9", "a\n[image]"));
}

/// A run whose word went to the agent's queue and was not taken, with what came before its result.
fn between_two_runs(before: &[Value]) -> (Replay, Value) {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    let id = replay.wrote[0]["uuid"].clone();
    replay.hear(&moved(&id, "started"));
    replay.hear(&json!({"type": "system", "subtype": "init", "session_id": "s"}));
    replay.tell(&steer(7));
    let word = replay.wrote[1]["uuid"].clone();
    for line in before {
        replay.hear(line);
    }
    replay.hear(&result("one"));
    assert!(replay.outcomes().is_empty(), "another run follows");
    (replay, word)
}

#[test]
fn turn_open_for_a_word_handles_its_questions() {
    let mut choice = asks("q2", "AskUserQuestion");
    choice["request"]["input"] = json!({"questions": [{"question": "x?"}]});
    let (replay, _) = between_two_runs(&[asks("q1", "Bash"), choice]);
    let denied: Vec<&Value> = replay.wrote[2..]
        .iter()
        .filter(|line| line["response"]["response"]["behavior"] == "deny")
        .map(|line| &line["response"]["request_id"])
        .collect();
    assert_eq!(denied, ["q1", "q2"]);
    let withdrew = replay.events.iter().filter_map(|event| match event {
        WorkerEvent::Withdrew { question } => Some(question.as_str()),
        _ => None,
    });
    assert_eq!(withdrew.collect::<Vec<_>>(), ["q1", "q2#0"]);
}

#[test]
fn turn_that_ends_leaves_no_request_unanswered() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    replay.hear(&json!({"type": "system", "subtype": "init", "session_id": "s"}));
    replay.hear(&asks("q1", "Bash"));
    replay.wrote.clear();
    replay.hear(&result("done"));
    assert_eq!(replay.outcomes().len(), 1);
    assert_eq!(replay.wrote.len(), 1, "{:?}", replay.wrote);
    let denied = &replay.wrote[0]["response"];
    assert_eq!(
        (&denied["request_id"], &denied["response"]["behavior"]),
        (&json!("q1"), &json!("deny"))
    );
}

#[test]
fn message_that_is_no_word_ends_no_turn() {
    let (mut replay, word) = between_two_runs(&[]);
    replay.hear(&moved(&word, "started"));
    replay.hear(&moved(&json!("another"), "discarded"));
    assert!(replay.outcomes().is_empty(), "the second run comes");
    replay.hear(&json!({"type": "system", "subtype": "init", "session_id": "s"}));
    replay.hear(&result("two"));
    assert_eq!(replay.outcome().text.as_deref(), Some("two"));
}

#[test]
fn steering_never_written_keeps_no_turn_open() {
    let (mut replay, word) = between_two_runs(&[]);
    replay.tell(&steer(8));
    assert_eq!(replay.written(), ["user", "user"]);
    replay.hear(&moved(&word, "discarded"));
    assert_eq!(replay.outcome().text.as_deref(), Some("one"));
    for word in [7, 8] {
        let late = |event: &WorkerEvent| matches!(event, WorkerEvent::Steered { steer: found, steering: Steering::TooLate } if *found == word);
        assert_eq!(replay.count(late), 1);
    }
    let spoilt = |event: &WorkerEvent| matches!(event, WorkerEvent::Spoilt { .. });
    assert_eq!(replay.count(spoilt), 0);
}

#[test]
fn a_long_name_of_a_model_is_cut() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    let streamed = |event: Value| json!({"type": "stream_event", "event": event});
    let message = json!({"id": "m", "model": "é".repeat(1 << 20)});
    replay.hear(&streamed(
        json!({"type": "message_start", "message": message}),
    ));
    replay.hear(&streamed(json!({"type": "message_stop"})));
    replay.hear(&result("done"));
    let outcome = replay.outcome();
    assert!(outcome.model.as_ref().unwrap().len() <= 512);
    assert!(outcome.api_calls.as_ref().unwrap()[0].len() <= 1024);
}

#[test]
fn an_approval_is_found_by_its_whole_name() {
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    for id in ["q#0", "q", "#"] {
        replay.hear(&asks(id, "Bash"));
    }
    for id in ["q#0", "#", "q"] {
        replay.tell(&answer(id, Reply::Approved));
        let last = replay.wrote.last().map(|line| line["response"].clone());
        assert_eq!(last.unwrap_or_default()["request_id"], id);
    }
    replay.hear(&asks("q", "Bash"));
    replay.tell(&answer("q#1", Reply::Approved));
    assert_eq!(replay.wrote.len(), 4, "an approval has no parts");
}

/// Lines of the wire, the wrong ones too.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let id = prop_oneof![Just("q1"), Just("q2"), Just("a1"), Just("")];
    let state = prop_oneof![
        Just("queued"),
        Just("started"),
        Just("completed"),
        Just("cancelled"),
        Just("refused")
    ];
    let subtype = prop_oneof![
        Just("init"),
        Just("status"),
        Just("api_retry"),
        Just("compact_boundary"),
        Just("informational")
    ];
    let event = prop_oneof![
        Just("message_start"),
        Just("content_block_delta"),
        Just("message_delta"),
        Just("message_stop")
    ];
    let json = prop_oneof![
        (id.clone(), prop_oneof![Just("Bash"), Just("AskUserQuestion"), Just("?")]).prop_map(|(id, tool)| {
            let options = json!([{"label": "a"}, {"label": 1}, 7]);
            let questions = json!([{"question": "x?", "options": options}, {"question": "x?"}]);
            json!({"type": "control_request", "request_id": id, "request": {"subtype": "can_use_tool", "tool_name": tool, "input": {"questions": questions}}})
        }),
        id.clone().prop_map(|id| json!({"type": "control_cancel_request", "request_id": id})),
        id.clone().prop_map(|id| json!({"type": "control_response", "response": {"subtype": "success", "request_id": id}})),
        // The ids of the adapter under test end in the number of the message.
        (0..4u8, state).prop_map(|(number, state)| json!({"type": "command_lifecycle", "command_uuid": number, "state": state})),
        subtype.prop_map(|subtype| json!({"type": "system", "subtype": subtype, "session_id": "s", "status": "compacting", "content": "c"})),
        (event, any::<bool>()).prop_map(|(event, own)| {
            let inner = json!({"type": event, "message": {"id": "m", "usage": {"output_tokens": 1}}, "delta": {"text": "t", "thinking": "t"}, "usage": {"input_tokens": -1}});
            json!({"type": "stream_event", "event": inner, "parent_tool_use_id": (!own).then_some("p")})
        }),
        any::<bool>().prop_map(|error| {
            let content = json!([{"type": "text", "text": "t"}, {"type": "tool_use", "id": 3, "name": null}, {"type": "tool_result"}, 5]);
            json!({"type": "assistant", "message": {"id": error, "content": content}, "error": error.then_some("rate_limit")})
        }),
        any::<bool>().prop_map(|error| json!({"type": "result", "subtype": "success", "is_error": error, "total_cost_usd": -1e300, "usage": {"output_tokens": u64::MAX}})),
        "[a-z_]{0,12}".prop_map(|kind| json!({"type": kind})),
    ];
    prop_oneof![
        8 => json.prop_map(|line| line.to_string().into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..64),
        1 => Just(format!(r#"{{"type":"stream_event","event":{{"type":"content_block_delta","delta":{{"text":"{}"}}}}}}"#, "x".repeat(100_000)).into_bytes()),
    ]
}

/// What the core may say meanwhile.
fn command() -> impl Strategy<Value = WorkerCommand> {
    let reply = prop_oneof![
        Just(Reply::Approved),
        Just(Reply::Denied),
        Just(Reply::Cancelled),
        Just(Reply::Chosen("a".into()))
    ];
    let question = prop_oneof![Just("q1"), Just("q1#0"), Just("q1#1"), Just("q2#7")];
    prop_oneof![
        Just(CANCEL),
        Just(WorkerCommand::Probe),
        (0..9u64).prop_map(steer),
        (question, reply).prop_map(|(question, reply)| answer(question, reply)),
        Just(compact(None)),
    ]
}

proptest! {
    #[test]
    fn turn_ends_once_and_nothing_grows_whatever_comes(
        steps in proptest::collection::vec(prop_oneof![3 => line().prop_map(Ok), 1 => command().prop_map(Err)], 0..60)
    ) {
        let mut replay = Replay::bare();
        replay.tell(&prompt(1, "x"));
        let mut heard = 0;
        for step in steps {
            match step {
                Ok(line) => {
                    // A lifecycle of one of ours: the number becomes the id.
                    let mut line = line;
                    if let Ok(mut value) = serde_json::from_slice::<Value>(&line)
                        && let Some(number) = value["command_uuid"].as_u64()
                    {
                        let ours: Vec<Value> = replay.wrote.iter().filter(|line| line["type"] == "user").map(|line| line["uuid"].clone()).collect();
                        value["command_uuid"] = ours.get(usize::try_from(number).unwrap()).cloned().unwrap_or_default();
                        line = value.to_string().into_bytes();
                    }
                    heard += line.len();
                    replay.hear_raw(&line);
                }
                Err(command) => replay.tell(&command),
            }
        }
        prop_assert!(replay.outcomes().len() <= 1, "{:?}", replay.outcomes());
        let told: usize = replay.events.iter().map(|event| format!("{event:?}").len()).sum();
        prop_assert!(told <= 20 * heard + 50_000, "{told} of {heard}");
        // What it says at last ends the turn, whatever was before, unless a compaction is in between.
        let prompt = replay.wrote[0]["uuid"].clone();
        replay.hear(&moved(&prompt, "started"));
        for _ in 0..2 {
            let words: Vec<Value> = replay.wrote.iter().skip(1).filter(|line| line["type"] == "user").map(|line| line["uuid"].clone()).collect();
            for word in words {
                replay.hear(&moved(&word, "started"));
            }
            replay.hear(&result("at last"));
        }
        prop_assert_eq!(replay.outcomes().len(), 1);
    }

    #[test]
    fn random_bytes_are_logged_and_end_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut replay = Replay::bare();
        replay.tell(&prompt(1, "x"));
        replay.hear_raw(&bytes);
        prop_assert!(replay.outcomes().is_empty());
        prop_assert!(replay.events.len() <= 1);
    }
}
