//! What the `jsonl` translator must do, line by line.

use agentd_core::worker::{About, Asking, Begins, Prompt};
use agentd_protocol::JobId;
use agentd_protocol::line::{Cost, CostStatus, Usage};
use agentd_protocol::request::{Earlier, Speaker};
use proptest::prelude::*;

use super::prompt::send;
use super::*;
use crate::adapter::{Kind, testing};

fn prompt(turn: u64) -> Prompt {
    Prompt {
        job: JobId(41),
        ..testing::turn(turn, "hi\n\u{2028}")
    }
}

pub(super) fn tell(jsonl: &mut Jsonl, command: WorkerCommand) -> (Vec<WorkerEvent>, String) {
    let (mut events, mut write) = (Vec::new(), Vec::new());
    jsonl.encode(&command, &mut events, &mut write);
    (events, String::from_utf8(write).unwrap())
}

pub(super) fn hear(jsonl: &mut Jsonl, line: &str) -> Vec<WorkerEvent> {
    let (mut events, mut write) = (Vec::new(), Vec::new());
    jsonl.decode(line.as_bytes(), &mut events, &mut write);
    assert!(write.is_empty());
    events
}

/// A translator with these turns outstanding.
pub(super) fn with(turns: &[u64]) -> Jsonl {
    let mut jsonl = Jsonl::default();
    for turn in turns {
        tell(&mut jsonl, WorkerCommand::Prompt(Box::new(prompt(*turn))));
    }
    jsonl
}

#[test]
fn final_line_too_long_fails_its_turn() {
    for (turns, id, kind, ends) in [
        (&[1][..], "", "message_end", Some(1)),
        (&[1, 2], r#""id":"t2","#, "error", Some(2)),
        (&[1, 2], "", "message_end", None),
        (&[1], "", "tool_end", None),
    ] {
        let mut jsonl = with(turns);
        let line = format!(r#"{{"type":"{kind}",{id}"text":"aaa"#);
        let instead = jsonl.instead_of(line.as_bytes());
        let told = instead.map_or_else(Vec::new, |line| hear(&mut jsonl, &line.to_string()));
        let failed = told.iter().find_map(|event| match event {
            WorkerEvent::Ended { turn, outcome } => Some((turn.0, outcome.result.clone())),
            _ => None,
        });
        let failure = Failure::new(Code::AgentFailed, TOO_LONG);
        assert_eq!(failed, ends.map(|turn| (turn, Err(failure))), "{line}");
    }
}

/// What a worker can do whose `status` names nothing.
pub(super) fn says_nothing() -> Traits {
    Traits {
        resumes: Some(false),
        toolsets: Some(false),
        fallback_chain: Some(false),
        mcp: Some(false),
        forks: Some(false),
        system: Some(false),
        history: Some(false),
        lists_models: Some(false),
        lists_commands: Some(false),
        ..Traits::default()
    }
}

fn ended(events: &[WorkerEvent]) -> &Outcome {
    match events {
        [WorkerEvent::Ended { outcome, .. }] => outcome,
        other => panic!("not one final word: {other:?}"),
    }
}

#[test]
fn send_names_what_is_pinned_and_nothing_else() {
    let mut jsonl = Jsonl::default();
    let (events, line) = tell(&mut jsonl, WorkerCommand::Prompt(Box::new(prompt(7))));
    assert!(events.is_empty());
    assert_eq!(line.matches('\n').count(), 1);
    assert_eq!(
        serde_json::from_str::<Value>(&line).unwrap(),
        json!({"type":"send","id":"t7","text":"hi\n\u{2028}","session":"main","job":"j41","cwd":"/w","on_question":"wait"})
    );
    let pinned = Prompt {
        provider: Some("p".into()),
        model: Some("m".into()),
        thinking: Some("low".into()),
        fallback_chain: Some(vec!["q/n/o".into()]),
        native: Some("s-1".into()),
        forks: true,
        toolsets: Some(vec!["read".into()]),
        mcp_servers: testing::servers(),
        begins: Some(Box::new(Begins {
            system: Some("be brief".into()),
            history: vec![Earlier {
                role: Speaker::Assistant,
                text: "ho".into(),
            }],
        })),
        ..prompt(8)
    };
    let (_, line) = tell(&mut jsonl, WorkerCommand::Prompt(Box::new(pinned)));
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["provider"], "p");
    assert_eq!(value["model"], "m");
    assert_eq!(value["thinking"], "low");
    assert_eq!(value["toolsets"], json!(["read"]));
    assert_eq!(value["fallback_chain"], json!(["q/n/o"]));
    assert_eq!(value["native"], "s-1");
    assert_eq!(value["mcp_servers"][0]["env"], json!({"KEY": "hush"}));
    assert!(value["fork"] == true && value["system"] == "be brief");
    assert_eq!(value["history"][0]["text"], "ho");
}

#[test]
fn probe_is_answered_with_what_workers_can_do() {
    let mut jsonl = Jsonl::default();
    let (_, line) = tell(&mut jsonl, WorkerCommand::Probe);
    assert_eq!(line, "{\"type\":\"status\",\"id\":\"probe\"}\n");
    for (line, one_session, concurrent_sends) in [
        (r#"{"type":"status","ok":true}"#, None, None),
        (r#"{"type":"status","sessions":"one"}"#, Some(true), None),
        (
            r#"{"type":"status","sessions":"many","concurrent_sends":4}"#,
            Some(false),
            Some(4),
        ),
        (r#"{"type":"status","concurrent_sends":0}"#, None, Some(1)),
        (r#"{"type":"status","concurrent_sends":"x"}"#, None, None),
    ] {
        let traits = Traits {
            one_session,
            concurrent_sends,
            cwd_per_turn: false,
            takes: Some(AttachmentSupport::Nothing),
            ..says_nothing()
        };
        assert_eq!(
            hear(&mut jsonl, line),
            [WorkerEvent::Ready(traits)],
            "{line}"
        );
    }
}

#[test]
fn session_is_named_in_one_of_its_turns() {
    let mut jsonl = with(&[7, 8]);
    let native = "n-1".to_owned();
    let turn = TurnId(7);
    assert_eq!(
        hear(&mut jsonl, r#"{"type":"session","id":"t7","native":"n-1"}"#),
        [WorkerEvent::SessionOfTurn { turn, native }]
    );
    let long = "n".repeat(NATIVE_BYTES + 1);
    for ignored in [
        r#"{"type":"session","id":"t7","native":""}"#.to_owned(),
        r#"{"type":"session","id":"t7","native":7}"#.to_owned(),
        r#"{"type":"session","id":"t7"}"#.to_owned(),
        format!(r#"{{"type":"session","id":"t7","native":"{long}"}}"#),
    ] {
        assert_eq!(hear(&mut jsonl, &ignored), [], "{ignored:.60}");
    }
    for stray in [
        r#"{"type":"session","id":"t9","native":"n-2"}"#,
        r#"{"type":"session","native":"n-2"}"#,
    ] {
        let events = hear(&mut jsonl, stray);
        assert!(matches!(events[..], [WorkerEvent::Stray { .. }]), "{stray}");
    }
}

#[test]
fn probe_that_is_refused_keeps_its_words() {
    for line in [
        r#"{"type":"status","ok":false,"details":"no key"}"#,
        r#"{"type":"error","id":"probe","error":"what?"}"#,
    ] {
        let events = hear(&mut with(&[1]), line);
        assert_eq!(events, [WorkerEvent::Logged { line: line.into() }]);
    }
}

#[test]
fn text_and_thinking_become_their_words() {
    let mut jsonl = with(&[7]);
    let turn = TurnId(7);
    for (line, expected) in [
        (
            r#"{"type":"message_start","id":"t7","message":0,"role":"assistant"}"#,
            WorkerEvent::MessageStarted {
                turn,
                replaces_last: false,
            },
        ),
        (
            r#"{"type":"message_start","message":1,"replaces":0}"#,
            WorkerEvent::MessageStarted {
                turn,
                replaces_last: true,
            },
        ),
        (
            r#"{"type":"message_delta","id":"t7","text":"a"}"#,
            WorkerEvent::Text {
                turn,
                text: "a".into(),
                native: true,
            },
        ),
        (
            r#"{"type":"message_delta","text":"b","native":false}"#,
            WorkerEvent::Text {
                turn,
                text: "b".into(),
                native: false,
            },
        ),
        (
            r#"{"type":"thinking_delta","text":"hm"}"#,
            WorkerEvent::Thinking {
                turn,
                text: "hm".into(),
            },
        ),
    ] {
        assert_eq!(hear(&mut jsonl, line), [expected], "{line}");
    }
}

#[test]
fn tool_call_becomes_words_with_its_output_counted() {
    let (mut jsonl, turn, call) = (with(&[7]), TurnId(7), || "c1".to_owned());
    for (line, expected) in [
        (
            r#"{"type":"tool_start","tool_call_id":"c1","name":"bash","input":{"n":1.0},"read_only":true}"#,
            WorkerEvent::ToolStarted {
                turn,
                call: call(),
                name: "bash".into(),
                input: r#"{"n":1.0}"#.into(),
                read_only: true,
                about: tool::about("bash", "", true),
            },
        ),
        (
            r#"{"type":"tool_update","tool_call_id":"c1","output":"ab"}"#,
            WorkerEvent::ToolUpdated {
                turn,
                call: call(),
                offset: 0,
                output: "ab".into(),
            },
        ),
        (
            r#"{"type":"tool_update","tool_call_id":"c1","output":"cd"}"#,
            WorkerEvent::ToolUpdated {
                turn,
                call: call(),
                offset: 2,
                output: "cd".into(),
            },
        ),
        (
            r#"{"type":"tool_end","tool_call_id":"c1","ok":false,"output":"abcd"}"#,
            WorkerEvent::ToolEnded {
                turn,
                call: call(),
                ok: false,
                output: "abcd".into(),
                sandbox: None,
                diff: Vec::new(),
            },
        ),
    ] {
        assert_eq!(hear(&mut jsonl, line), [expected], "{line}");
    }
    // One that never began is told all the same.
    let end = hear(&mut with(&[7]), r#"{"type":"tool_end","tool_call_id":"c"}"#);
    assert!(matches!(end[..], [WorkerEvent::ToolEnded { ok: true, .. }]));
}

#[test]
fn question_note_and_event_become_their_words() {
    let mut jsonl = with(&[7]);
    let turn = TurnId(7);
    for (line, expected) in [
        (
            r#"{"type":"question","question_id":"q","kind":"choice","title":"?","options":["a"]}"#,
            WorkerEvent::Asked {
                turn: Some(turn),
                asking: Asking {
                    question: "q".into(),
                    kind: QuestionKind::Choice,
                    title: "?".into(),
                    detail: None,
                    options: vec!["a".into()],
                    limit: None,
                    about: About::default(),
                },
            },
        ),
        (
            r#"{"type":"note","level":"warning","code":"odd","text":"n"}"#,
            WorkerEvent::Noted {
                turn: Some(turn),
                level: Level::Warning,
                code: "worker",
                text: "n".into(),
            },
        ),
        (
            r#"{"type":"agent_event","kind":"plan","data":{"b":1, "a":2.0}}"#,
            WorkerEvent::Other {
                turn,
                kind: "plan".into(),
                data: r#"{"b":1, "a":2.0}"#.into(),
            },
        ),
    ] {
        assert_eq!(hear(&mut jsonl, line), [expected], "{line}");
    }
    for (kind, notes) in [
        ("accepted", 0),
        ("running", 0),
        ("question_closed", 0),
        ("from_the_future", 1),
        ("from_the_future", 0),
    ] {
        let events = hear(&mut jsonl, &format!(r#"{{"type":"{kind}","id":"t7"}}"#));
        assert_eq!(events.len(), notes, "{kind}: {events:?}");
        let says = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { text, .. } if text.contains(kind));
        assert!(events.iter().all(says), "{events:?}");
    }
}

#[test]
fn final_line_has_what_is_known_only() {
    let line = r#"{"type":"message_end","id":"t7","text":"done","stop":"max_tokens","provider":"p","model":"m","thinking":"low","local":true,
        "usage":{"input_tokens":3},"context_tokens":9,"context_window":50,"cost":{"usd":0.5,"status":"actual"},"api_calls":[{"provider": "p"},7],
        "refusal":"no","suspected_refusal":true,"soul_sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}"#;
    let events = hear(&mut with(&[7]), line);
    let expected = Outcome {
        result: Ok(Stop::MaxTokens),
        text: Some("done".into()),
        provider: Some("p".into()),
        model: Some("m".into()),
        thinking: Some("low".into()),
        local: Some(true),
        usage: Some(Usage {
            input_tokens: 3,
            ..Usage::default()
        }),
        context: ContextUse::known(Some(9), Some(50)),
        cost: Cost {
            usd: Some(0.5),
            status: CostStatus::Actual,
            source: None,
        },
        api_calls: Some(vec![r#"{"provider": "p"}"#.into()]),
        refusal: Some("no".into()),
        suspected_refusal: true,
        soul_sha256: Some(
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
        ),
    };
    assert_eq!(*ended(&events), expected);
    let nothing =
        r#"{"type":"message_end","usage":null,"local":"yes","refusal":7,"soul_sha256":"a sum"}"#;
    let events = hear(&mut with(&[7]), nothing);
    assert_eq!(*ended(&events), Outcome::ended(Stop::EndTurn));
}

#[test]
fn error_line_fails_its_turn_with_its_code() {
    for (line, code, error) in [
        (
            r#"{"type":"error","error":"boom"}"#,
            Code::AgentFailed,
            "boom",
        ),
        (
            r#"{"type":"error","id":"t7","code":"rate-limit","error":"slow"}"#,
            Code::RateLimit,
            "slow",
        ),
        (
            r#"{"type":"error","code":"from-the-future","error":"x"}"#,
            Code::AgentFailed,
            "x",
        ),
        (
            r#"{"type":"error","code":5,"error":{"message":"m"}}"#,
            Code::AgentFailed,
            r#"{"message":"m"}"#,
        ),
        (
            r#"{"type":"error"}"#,
            Code::AgentFailed,
            "the agent reported an error without saying which",
        ),
    ] {
        let events = hear(&mut with(&[7]), line);
        let failure = ended(&events).result.as_ref().unwrap_err();
        assert_eq!(
            (failure.code, failure.error.as_str()),
            (code, error),
            "{line}"
        );
    }
}

#[test]
fn stray_line_makes_a_late_answer_nobodys() {
    for (turns, line) in [
        (&[][..], r#"{"type":"message_end","text":"x"}"#),
        (&[], r#"{"type":"error","error":"x"}"#),
        (&[7], r#"{"type":"message_end","id":"t6","text":"x"}"#),
        (&[7], r#"{"type":"message_end","id":7,"text":"x"}"#),
        (&[7, 8], r#"{"type":"message_delta","text":"x"}"#),
    ] {
        let stray = WorkerEvent::Stray { line: line.into() };
        assert_eq!(hear(&mut with(turns), line), [stray], "{line}");
    }
    let mut jsonl = with(&[7]);
    ended(&hear(&mut jsonl, r#"{"type":"message_end","id":"t7"}"#));
    assert!(matches!(
        hear(&mut jsonl, r#"{"type":"message_end","id":"t7"}"#)[..],
        [WorkerEvent::Stray { .. }]
    ));
}

#[test]
fn what_is_no_object_is_a_log_line() {
    for line in [
        "hello",
        "null",
        "[1]",
        "\"x\"",
        "{\"type\":",
        "{\"no\":\"type\"}",
    ] {
        let logged = WorkerEvent::Logged { line: line.into() };
        assert_eq!(hear(&mut with(&[7]), line).pop(), Some(logged), "{line}");
    }
}

#[test]
fn cancel_names_its_send_while_outstanding() {
    let mut jsonl = with(&[7]);
    let cancel = WorkerCommand::Cancel { turn: TurnId(7) };
    assert_eq!(
        tell(&mut jsonl, cancel.clone()).1,
        "{\"type\":\"abort\",\"id\":\"t7\"}\n"
    );
    let events = hear(
        &mut jsonl,
        r#"{"type":"message_end","stop":"cancelled","text":"so f"}"#,
    );
    assert_eq!(ended(&events).result, Ok(Stop::Cancelled));
    assert_eq!(tell(&mut jsonl, cancel).1, "");
}

#[test]
fn abort_that_is_unknown_is_not_done() {
    let mut jsonl = with(&[7]);
    tell(&mut jsonl, WorkerCommand::Cancel { turn: TurnId(7) });
    let refusal = r#"{"type":"error","id":"t7","code":"unknown-command","error":"abort?"}"#;
    let logged = WorkerEvent::Logged {
        line: refusal.into(),
    };
    assert_eq!(hear(&mut jsonl, refusal), [logged]);
    let events = hear(
        &mut jsonl,
        r#"{"type":"message_end","id":"t7","text":"all"}"#,
    );
    assert_eq!(ended(&events).result, Ok(Stop::EndTurn));
    // Without an abort the same line is the worker's final word.
    ended(&hear(&mut with(&[7]), refusal));
}

#[test]
fn process_is_recycled_unless_for_one_session() {
    let mut jsonl = Jsonl::default();
    let recycled = (vec![WorkerEvent::Recycled], String::new());
    assert_eq!(tell(&mut jsonl, WorkerCommand::Recycle), recycled);
    hear(&mut jsonl, r#"{"type":"status","sessions":"one"}"#);
    assert_eq!(
        tell(&mut jsonl, WorkerCommand::Recycle),
        (vec![], String::new())
    );
}

#[test]
fn the_command_is_run_as_it_is() {
    let spawn = testing::spawn();
    let command = ["/bin/w".to_owned(), "{prompt}".to_owned()];
    let launch = Kind::Jsonl.launch(&command, &spawn);
    assert_eq!(launch.argv, command);
    assert_eq!(launch.stdin, None);
}

/// Anything a worker might print, from nonsense to nearly right.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![
        Just("status"),
        Just("message_start"),
        Just("message_delta"),
        Just("tool_update"),
        Just("tool_end"),
        Just("message_end"),
        Just("error"),
        Just("question"),
        Just("question_closed"),
        Just("steer"),
        Just("compact"),
        Just("note"),
    ];
    let value = prop_oneof![
        Just("null"),
        Just("1e999"),
        Just("-1"),
        Just("18446744073709551615"),
        Just("\"t7\""),
        Just("\"s1\""),
        Just("\"t99999999999999999999\""),
        Just("[{}]"),
        Just("{\"a\":[]}"),
        Just("true"),
    ];
    let field = prop_oneof![
        Just("id"),
        Just("text"),
        Just("offset"),
        Just("output"),
        Just("api_calls"),
        Just("usage"),
        Just("tool_call_id"),
        Just("options"),
        Just("concurrent_sends"),
    ];
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..60),
        (kinds, proptest::collection::vec((field, value), 0..5)).prop_map(|(kind, fields)| {
            let fields: String = fields
                .iter()
                .map(|(f, v)| format!(",\"{f}\":{v}"))
                .collect();
            format!("{{\"type\":\"{kind}\"{fields}}}").into_bytes()
        }),
        (0u32..2000).prop_map(|n| {
            format!("{{\"type\":\"tool_update\",\"tool_call_id\":\"c{n}\"}}").into_bytes()
        }),
    ]
}

proptest! {
    #[test] #[ignore = "heavy"]
    fn jsonl_never_panics_nor_grows_whatever_the_input(lines in proptest::collection::vec(line(), 0..600)) {
        let mut jsonl = with(&[7]);
        let (mut events, mut write) = (Vec::new(), Vec::new());
        for line in &lines {
            jsonl.decode(line, &mut events, &mut write);
            prop_assert!(jsonl.open_calls.len() <= OPEN_CALLS);
            prop_assert!(jsonl.outstanding.len() <= 1);
        }
        // One more says that the first that is no JSON is none.
        prop_assert!(events.len() <= lines.len() + 1);
    }
}

#[test]
fn attachments_go_to_workers_that_take_them() {
    for (line, files) in [
        (r#"{"type":"status","attachments":true}"#, true),
        (r#"{"type":"status","attachments":1}"#, false),
    ] {
        let [WorkerEvent::Ready(traits)] = &hear(&mut with(&[]), line)[..] else {
            panic!("{line}")
        };
        let taken = traits.takes == Some(AttachmentSupport::Files);
        assert_eq!(taken, files, "{line}");
    }
    let line = send(&crate::adapter::attached::samples::prompt(Vec::new()));
    let expected = json!([{"mime": "image/png", "name": "a.png", "data": "iVBORw=="}]);
    assert_eq!(line["attachments"], expected);
    assert!(send(&prompt(1)).get("attachments").is_none());
}
