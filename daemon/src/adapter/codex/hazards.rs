//! What a hostile or newer Codex may say: nothing makes the adapter panic, hang or grow, and each
//! turn ends once.

use std::collections::BTreeSet;

use agentd_core::worker::{Reply, WorkerCommand};
use proptest::prelude::*;

use super::replay::{Replay, spawn};
use super::*;
use crate::adapter::Adapter as _;
use crate::adapter::testing::{self, answer, cancel, compact, prompt};

const CANCEL: WorkerCommand = WorkerCommand::Cancel { turn: TurnId(1) };

fn steer(number: u64) -> WorkerCommand {
    testing::steer(number, "go left")
}

#[test]
fn abort_and_steering_wait_for_the_turns_beginning() {
    let mut replay = Replay::ready();
    replay.tell(&prompt(1, "x"));
    replay.tell(&steer(1));
    assert_eq!(replay.written(), ["turn/start"]);
    replay.reply(&json!({"turn": {"id": "n1"}}));
    assert_eq!(replay.written(), ["turn/start"]);
    replay.note("turn/started", &json!({"turn": {"id": "n1"}}));
    assert_eq!(replay.written(), ["turn/start", "turn/steer"]);
    replay.tell(&CANCEL);
    replay.tell(&CANCEL);
    assert_eq!(
        replay.written(),
        ["turn/start", "turn/steer", "turn/interrupt"]
    );

    let mut replay = Replay::ready();
    replay.tell(&prompt(1, "x"));
    replay.tell(&CANCEL);
    replay.note("turn/started", &json!({"turn": {"id": "n1"}}));
    assert_eq!(replay.written(), ["turn/start", "turn/interrupt"]);
    assert_eq!(replay.wrote[1]["params"]["turnId"], "n1");
}

#[test]
fn prompt_and_compaction_wait_for_each_other() {
    let refused = |replay: &Replay, code| {
        replay.count(|event| matches!(event, WorkerEvent::Compacted { result: Err(why) } if why.code == code))
    };
    let mut replay = Replay::running();
    replay.tell(&compact(None));
    assert_eq!(refused(&replay, Code::SessionBusy), 1);
    let mut replay = Replay::ready();
    replay.tell(&compact(Some("keep the names")));
    assert_eq!(refused(&replay, Code::Unsupported), 1);
    replay.tell(&compact(None));
    replay.tell(&prompt(1, "x"));
    assert_eq!(replay.written(), ["thread/compact/start"]);
    replay.note("turn/started", &json!({"turn": {"id": "c"}}));
    replay.note(
        "turn/completed",
        &json!({"turn": {"id": "other", "status": "completed"}}),
    );
    assert_eq!(replay.written(), ["thread/compact/start"]);
    let failed = json!({"id": "c", "status": "failed", "error": {"message": "no"}});
    replay.note("turn/completed", &json!({"turn": failed}));
    assert_eq!(refused(&replay, Code::AgentFailed), 1);
    assert_eq!(replay.written(), ["thread/compact/start", "turn/start"]);
}

#[test]
fn end_over_the_line_limit_fails_its_turn() {
    let mut replay = Replay::running();
    let line = |turn: &str| {
        format!(
            r#"{{"method":"turn/completed","params":{{"threadId":"t","turn":{{"id":"{turn}","items":["aaa"#
        )
    };
    assert_eq!(replay.adapter.instead_of(line("other").as_bytes()), None);
    let instead = replay.adapter.instead_of(line("n1").as_bytes()).unwrap();
    replay.hear(&instead);
    let outcomes = replay.outcomes();
    let failure = outcomes[0].result.clone().unwrap_err();
    assert!(failure.error.contains(TOO_LONG), "{failure:?}");
}

#[test]
fn message_stopped_by_a_word_is_replaced() {
    let mut replay = Replay::running();
    replay.events.clear();
    let message = json!({"item": {"type": "agentMessage", "id": "m", "text": ""}});
    replay.note("item/started", &message);
    replay.note("item/agentMessage/delta", &json!({"delta": "half"}));
    replay.tell(&steer(1));
    let word = json!({"item": {"type": "userMessage", "id": "u", "clientId": "w1"}});
    replay.note("item/started", &word);
    replay.note("item/started", &message);
    let replaces = |event: &WorkerEvent| match event {
        WorkerEvent::MessageStarted { replaces_last, .. } => Some(*replaces_last),
        _ => None,
    };
    let replaces: Vec<bool> = replay.events.iter().filter_map(replaces).collect();
    assert_eq!(replaces, [false, true]);
}

/// A turn with a command that runs, interrupted, and what Codex then says that runs.
fn left_running(answer: &Value) -> Replay {
    let mut replay = Replay::running();
    let command = json!({"item": {"type": "commandExecution", "id": "c1"}});
    replay.note("item/started", &command);
    replay.tell(&CANCEL);
    let done = json!({"turn": {"id": "n1", "status": "interrupted"}});
    replay.note("turn/completed", &done);
    replay.note("turn/completed", &done);
    assert!(replay.outcomes().is_empty());
    assert_eq!(
        replay.written().last(),
        Some(&"thread/backgroundTerminals/list")
    );
    let mut line = answer.clone();
    line["id"] = json!(replay.adapter.last);
    replay.hear(&line);
    replay
}

#[test]
fn abort_ends_a_turn_after_its_own_commands() {
    let runs = |item: &str| json!({"itemId": item, "processId": format!("p-{item}")});
    let data = json!([runs("earlier"), runs("c1"), 7]);
    let mut replay = left_running(&json!({"result": {"data": data}}));
    assert!(replay.outcomes().is_empty());
    let last = replay.wrote.last().unwrap();
    assert_eq!(last["method"], "thread/backgroundTerminals/terminate");
    assert_eq!(last["params"]["processId"], "p-c1");
    replay.reply(&json!({"terminated": true}));
    assert_eq!(replay.outcomes()[0].result, Ok(Stop::Cancelled));
    let spoilt = |event: &WorkerEvent| matches!(event, WorkerEvent::Spoilt { .. });
    assert_eq!(replay.count(spoilt), 0);

    let nothing = left_running(&json!({"result": {"data": []}}));
    assert_eq!((nothing.outcomes().len(), nothing.count(spoilt)), (1, 0));
    let cant = left_running(&json!({"error": {"message": "unknown variant"}}));
    assert_eq!((cant.outcomes().len(), cant.count(spoilt)), (1, 1));
}

#[test]
fn a_second_completion_of_a_turn_is_nobodys() {
    let mut replay = Replay::running();
    for status in ["completed", "failed"] {
        replay.note(
            "turn/completed",
            &json!({"turn": {"id": "n1", "status": status}}),
        );
    }
    assert_eq!(replay.outcomes().len(), 1);
    assert_eq!(replay.outcomes()[0].result, Ok(Stop::EndTurn));
    assert!(matches!(
        replay.events.last(),
        Some(WorkerEvent::Stray { .. })
    ));
}

#[test]
fn threads_of_others_are_silent_but_for_questions() {
    let mut replay = Replay::running();
    replay.events.clear();
    for (thread, turn) in [("child", "n1"), ("t", "n0")] {
        let of = json!({"threadId": thread, "turnId": turn});
        let with = |name: &str, value: Value| {
            let mut params = of.clone();
            params[name] = value;
            params
        };
        replay.note("item/agentMessage/delta", &with("delta", json!("x")));
        let item = json!({"type": "commandExecution", "id": "c"});
        replay.note("item/started", &with("item", item));
        let done = json!({"id": turn, "status": "completed"});
        if thread == "child" {
            replay.note("turn/completed", &with("turn", done));
        }
    }
    assert!(replay.events.is_empty(), "{:?}", replay.events);
    let params = json!({"threadId": "child", "itemId": "c", "command": "ls"});
    replay.hear(
        &json!({"id": 1, "method": "item/commandExecution/requestApproval", "params": params}),
    );
    assert!(matches!(
        &replay.events[..],
        [WorkerEvent::Asked {
            turn: Some(TurnId(1)),
            ..
        }]
    ));
}

#[test]
fn approval_for_unknown_items_and_turns_is_asked() {
    let mut replay = Replay::ready();
    replay.hear(&json!({"id": 1, "method": "item/fileChange/requestApproval", "params": {"itemId": "none"}}));
    let [WorkerEvent::Asked { turn: None, asking }] = &replay.events[..] else {
        panic!("{:?}", replay.events);
    };
    assert_eq!(
        (asking.title.as_str(), &asking.detail),
        ("Change files?", &None)
    );
}

#[test]
fn answer_that_nobody_waits_for_is_not_written() {
    let mut replay = Replay::running();
    let approve = json!({"id": 1, "method": "item/commandExecution/requestApproval", "params": {"command": "ls"}});
    replay.hear(&approve);
    replay.hear(
        &json!({"method": "serverRequest/resolved", "params": {"threadId": "t", "requestId": 1}}),
    );
    let withdrew = |event: &WorkerEvent| matches!(event, WorkerEvent::Withdrew { question } if question == "1");
    assert_eq!(replay.count(withdrew), 1);
    replay.wrote.clear();
    for question in ["1", "2", "\"x\"", "1/0", "/", ""] {
        replay.tell(&answer(question, Reply::Approved));
    }
    assert!(replay.wrote.is_empty());
}

#[test]
fn tool_ended_unbegun_or_unknown_is_shown() {
    let mut replay = Replay::running();
    replay.events.clear();
    let command = json!({"type": "commandExecution", "id": "c", "status": "completed", "exitCode": 0, "aggregatedOutput": "out"});
    replay.note("item/completed", &json!({"item": command}));
    let newer = json!({"type": "timeTravel", "id": "d", "status": "failed"});
    replay.note("item/started", &json!({"item": newer}));
    replay.note("item/completed", &json!({"item": newer}));
    let [
        WorkerEvent::ToolEnded { ok: true, .. },
        WorkerEvent::Noted { .. },
        WorkerEvent::ToolStarted { name, .. },
        WorkerEvent::ToolEnded {
            ok: false, output, ..
        },
    ] = &replay.events[..]
    else {
        panic!("{:?}", replay.events);
    };
    assert_eq!((name.as_str(), output.as_str()), ("timeTravel", "failed"));
}

#[test]
fn thread_closed_by_codex_ends_turn_and_process() {
    let mut replay = Replay::running();
    replay.note("thread/closed", &json!({}));
    assert!(replay.outcomes()[0].result.is_err());
    let spoilt = |event: &WorkerEvent| matches!(event, WorkerEvent::Spoilt { .. });
    assert_eq!(replay.count(spoilt), 1);
}

#[test]
fn more_requests_than_anybody_can_answer_are_refused() {
    let mut replay = Replay::running();
    replay.wrote.clear();
    let ask = |id: Value| json!({"id": id, "method": "item/commandExecution/requestApproval", "params": {"command": "ls"}});
    for id in 0..100 {
        replay.hear(&ask(json!(id)));
    }
    assert_eq!(replay.adapter.requests.held(), 64);
    assert_eq!(replay.wrote.len(), 36);
    // An id that isn't one is not echoed, and one that is too long to be kept is.
    let long = "x".repeat(1000);
    for (id, echoed) in [
        (json!({"a": 1}), Value::Null),
        (json!("x".repeat(1 << 20)), Value::Null),
        (json!(long), json!(long)),
    ] {
        replay.wrote.clear();
        replay.hear(&ask(id));
        assert_eq!(replay.wrote.len(), 1);
        assert_eq!(replay.wrote[0]["id"], echoed);
        assert_eq!(replay.wrote[0]["error"]["code"], -32600);
    }
    replay.wrote.clear();
    replay.note(
        "turn/completed",
        &json!({"turn": {"id": "n1", "status": "completed"}}),
    );
    assert_eq!(
        (replay.wrote.len(), replay.adapter.requests.held()),
        (64, 0)
    );
}

#[test]
fn requests_under_one_id_are_both_declined() {
    let mut replay = Replay::running();
    replay.wrote.clear();
    let ask = |command: &str| json!({"id": 7, "method": "item/commandExecution/requestApproval", "params": {"command": command}});
    replay.hear(&ask("ls"));
    replay.hear(&ask("rm -rf /"));
    let asked = |event: &WorkerEvent| matches!(event, WorkerEvent::Asked { .. });
    let withdrew = |event: &WorkerEvent| matches!(event, WorkerEvent::Withdrew { question } if question == "7");
    assert_eq!((replay.count(asked), replay.count(withdrew)), (1, 1));
    assert_eq!(replay.wrote.len(), 2, "{:?}", replay.wrote);
    assert_eq!(replay.wrote[0]["result"]["decision"], "decline");
    assert_eq!(replay.wrote[1]["error"]["code"], -32600);
    // A yes that was on its way approves nothing.
    replay.tell(&answer("7", Reply::Approved));
    assert_eq!(replay.wrote.len(), 2, "{:?}", replay.wrote);
}

#[test]
fn a_failed_turn_takes_its_command_along() {
    let mut replay = Replay::running();
    let command = json!({"item": {"type": "commandExecution", "id": "c1"}});
    replay.note("item/started", &command);
    let error = json!({"message": "the provider left"});
    let done = json!({"turn": {"id": "n1", "status": "failed", "error": error}});
    replay.note("turn/completed", &done);
    assert!(replay.outcomes().is_empty(), "{:?}", replay.outcomes());
    replay.reply(&json!({"data": [{"itemId": "c1", "processId": "p"}]}));
    let last = replay.wrote.last().unwrap();
    assert_eq!(last["method"], "thread/backgroundTerminals/terminate");
    replay.reply(&json!({"terminated": true}));
    assert!(replay.outcomes()[0].result.is_err());
}

#[test]
fn change_is_asked_with_files_and_cuts_marked() {
    let mut replay = Replay::running();
    let change =
        |path: &str| json!({"path": path, "kind": {"type": "update"}, "diff": "+x\n".repeat(8000)});
    let changes = json!([change("a.rs"), change("precious.rs")]);
    let item = json!({"item": {"type": "fileChange", "id": "f", "changes": changes}});
    replay.note("item/started", &item);
    replay.hear(
        &json!({"id": 3, "method": "item/fileChange/requestApproval", "params": {"itemId": "f"}}),
    );
    let Some(WorkerEvent::Asked { asking, .. }) = replay.events.last() else {
        panic!("{:?}", replay.events);
    };
    let detail = asking.detail.as_deref().unwrap();
    assert!(
        detail.contains("update a.rs\nupdate precious.rs"),
        "{detail}"
    );
    assert!(
        detail.ends_with("bytes more)"),
        "{}",
        &detail[detail.len() - 40..]
    );
}

#[test]
fn news_of_a_newer_codex_is_noted_once() {
    let mut replay = Replay::running();
    for _ in 0..3 {
        replay.note("item/hologram/delta", &json!({"delta": "x"}));
        replay.note("turn/diff/updated", &json!({"diff": "x"}));
    }
    let noted = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { text, .. } if text.contains("item/hologram/delta"));
    assert_eq!(replay.count(noted), 1);
    let any = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { .. });
    assert_eq!(replay.count(any), 1);
}

#[test]
fn news_between_turns_is_noted_in_the_next() {
    let mut replay = Replay::bare(&spawn(None));
    let told = |replay: &Replay, said: &str| {
        replay
            .count(|event| matches!(event, WorkerEvent::Noted { text, .. } if text.contains(said)))
    };
    replay.hear(&json!({"method": "before/the/thread", "params": {}}));
    replay.hear(&json!({"method": "without/params"}));
    replay.hear(&json!({"method": "account/updated", "params": {}}));
    replay.hear(&json!({"method": "thread/started", "params": {"threadId": "t"}}));
    replay.tell(&WorkerCommand::Probe);
    replay.reply(&json!({"userAgent": "x"}));
    replay.reply(&json!({"thread": {"id": "t"}}));
    for method in ["thread/hologram", "turn/diff/updated"] {
        replay.note(method, &json!({"turnId": "earlier"}));
    }
    replay.hear(&json!({"method": "of/another", "params": {"threadId": "other"}}));
    assert_eq!(told(&replay, ""), 0);
    replay.begin(1, "x");
    for method in ["before/the/thread", "without/params", "thread/hologram"] {
        assert_eq!(told(&replay, method), 1, "{method}");
    }
    replay.note(
        "item/started",
        &json!({"item": {"type": "hologram", "id": "h"}}),
    );
    assert_eq!(
        (told(&replay, "`item hologram`"), told(&replay, "")),
        (1, 4)
    );
}

#[test]
fn refusal_is_told_as_one_with_its_words() {
    let filtered = "Incomplete response returned, reason: content_filter";
    for (message, info, refuses) in [
        (filtered, "other", true),
        ("Not that.", "cyberPolicy", true),
        ("Not that.", "misalignmentPolicyViolation", true),
        ("Not that.", "sandboxError", false),
    ] {
        let mut replay = Replay::running();
        let error = json!({"message": message, "codexErrorInfo": info});
        let turn = json!({"id": "n1", "status": "failed", "error": error});
        replay.note("turn/completed", &json!({"turn": turn}));
        let outcome = replay.outcomes()[0];
        assert_eq!(outcome.result == Ok(Stop::Refusal), refuses, "{info}");
        let words = refuses.then_some(message);
        assert_eq!(outcome.refusal.as_deref(), words, "{info}");
    }
}

#[test]
fn answer_that_is_late_spares_the_next_turn() {
    for late in [
        json!({"result": {"turn": {"id": "n1"}}}),
        json!({"error": {"message": "no"}}),
    ] {
        let mut replay = Replay::ready();
        replay.tell(&prompt(1, "x"));
        let asked = replay.adapter.last;
        replay.note("turn/started", &json!({"turn": {"id": "n1"}}));
        let done = json!({"turn": {"id": "n1", "status": "completed"}});
        replay.note("turn/completed", &done);
        assert_eq!(replay.outcomes().len(), 1);
        replay.tell(&prompt(2, "y"));
        let mut late = late;
        late["id"] = json!(asked);
        replay.hear(&late);
        assert_eq!(replay.outcomes().len(), 1);
        replay.note("turn/started", &json!({"turn": {"id": "n2"}}));
        let done = json!({"turn": {"id": "n2", "status": "completed"}});
        replay.note("turn/completed", &done);
        let results = replay.outcomes();
        assert_eq!(results.len(), 2);
        assert_eq!(results[1].result, Ok(Stop::EndTurn));
    }
}

fn method() -> impl Strategy<Value = &'static str> + Clone {
    prop_oneof![
        Just("turn/started"),
        Just("turn/completed"),
        Just("item/started"),
        Just("item/completed"),
        Just("item/agentMessage/delta"),
        Just("item/reasoning/summaryTextDelta"),
        Just("item/reasoning/summaryPartAdded"),
        Just("item/commandExecution/outputDelta"),
        Just("item/commandExecution/requestApproval"),
        Just("item/fileChange/requestApproval"),
        Just("item/permissions/requestApproval"),
        Just("item/tool/requestUserInput"),
        Just("mcpServer/elicitation/request"),
        Just("applyPatchApproval"),
        Just("serverRequest/resolved"),
        Just("thread/tokenUsage/updated"),
        Just("thread/closed"),
        Just("error"),
        Just("warning"),
        Just("no/such/thing"),
    ]
}

fn field() -> impl Strategy<Value = &'static str> + Clone {
    prop_oneof![
        Just(r#""threadId":"t""#),
        Just(r#""threadId":7"#),
        Just(r#""turnId":"n1""#),
        Just(r#""turn":{"id":"n1","status":"completed"}"#),
        Just(
            r#""turn":{"id":"n2","status":"failed","error":{"codexErrorInfo":{"x":{"httpStatusCode":429}}}}"#
        ),
        Just(r#""turn":{"id":"c","status":[]}"#),
        Just(r#""item":{"type":"agentMessage","id":"m","text":"hi"}"#),
        Just(r#""item":{"type":"reasoning","id":"r","summary":["a",1]}"#),
        Just(
            r#""item":{"type":"commandExecution","id":"c1","exitCode":1e308,"commandActions":{}}"#
        ),
        Just(
            r#""item":{"type":"fileChange","id":"c2","changes":[{"path":"p","kind":{"type":"add"},"diff":"d"},5]}"#
        ),
        Just(r#""item":{"type":"userMessage","id":"u","clientId":"w1"}"#),
        Just(r#""item":{"type":"","id":[]}"#),
        Just(r#""itemId":"c1""#),
        Just(r#""delta":"piece""#),
        Just(r#""delta":"""#),
        Just(r#""message":"warned""#),
        Just(r#""willRetry":true"#),
        Just(r#""requestId":1"#),
        Just(r#""mode":"form""#),
        Just(r#""questions":[{"id":"a","question":"q"},{}]"#),
        Just(
            r#""tokenUsage":{"total":{"inputTokens":18446744073709551615},"last":{"inputTokens":-1}}"#
        ),
    ]
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let id = prop_oneof![
        Just("1"),
        Just("2"),
        Just("3"),
        Just("4"),
        Just("5"),
        Just("99"),
        Just("\"s\""),
        Just("null"),
        Just("{}"),
        Just("-1"),
        Just("1e308"),
    ];
    let method = method();
    let fields = proptest::collection::vec(field(), 0..5)
        .prop_map(|fields| fields.into_iter().collect::<BTreeSet<_>>());
    let join = |fields: BTreeSet<&str>| fields.into_iter().collect::<Vec<_>>().join(",");
    prop_oneof![
        1 => proptest::collection::vec(any::<u8>(), 0..60),
        8 => (method.clone(), fields.clone()).prop_map(move |(method, fields)| {
            format!(r#"{{"method":"{method}","params":{{{}}}}}"#, join(fields)).into_bytes()
        }),
        3 => (id.clone(), method, fields).prop_map(move |(id, method, fields)| {
            format!(r#"{{"id":{id},"method":"{method}","params":{{{}}}}}"#, join(fields)).into_bytes()
        }),
        2 => (id.clone(), prop_oneof![
            Just(r#""result":{"turn":{"id":"n1"},"thread":{"id":"t"}}"#),
            Just(r#""result":7"#),
            Just(r#""error":{"message":"no rollout found"}"#),
            Just(r#""error":[]"#),
        ]).prop_map(|(id, answer)| format!(r#"{{"id":{id},{answer}}}"#).into_bytes()),
        2 => (0u32..500, 1usize..3000).prop_map(|(n, size)| {
            let text = "o".repeat(size);
            format!(r#"{{"method":"item/started","params":{{"threadId":"t","turnId":"n1","item":{{"type":"fileChange","id":"f{n}","changes":[{{"path":"{text}"}}]}}}}}}"#).into_bytes()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    #[ignore = "heavy"]
    fn codex_never_panics_nor_grows_whatever_the_input(
        resumes: bool,
        runs: bool,
        lines in proptest::collection::vec(line(), 0..300),
    ) {
        let mut replay = if runs {
            Replay::running()
        } else {
            Replay::bare(&spawn(resumes.then_some("old")))
        };
        replay.events.clear();
        let compact = compact(None);
        let commands = [
            WorkerCommand::Probe, prompt(2, "y"), steer(1), CANCEL, compact, WorkerCommand::Recycle,
            prompt(3, "z"), steer(2), cancel(2), prompt(4, "z"),
        ];
        let mut commands = commands.iter();
        for (at, line) in lines.iter().enumerate() {
            if at % 7 == 0 && let Some(command) = commands.next() {
                replay.tell(command);
            }
            let before = (replay.events.len(), replay.wrote.len());
            replay.hear_raw(line);
            // A turn's end may decline every request, end every call and begin the next turn.
            prop_assert!(replay.events.len() - before.0 <= 64 + 10);
            prop_assert!(replay.wrote.len() - before.1 <= 64 + 3);
            let held = replay.adapter.driver.turn.as_ref().map_or(0, Turn::held);
            prop_assert!(held <= 64 * (4 * 1024 + 256));
            prop_assert!(replay.adapter.requests.held() <= 64);
            prop_assert!(replay.adapter.warned.len() <= WARNINGS);
        }
        let mut ended = BTreeSet::new();
        for event in &replay.events {
            if let WorkerEvent::Ended { turn, .. } = event {
                prop_assert!(ended.insert(*turn), "{turn:?} ended twice");
            }
        }
    }
}
