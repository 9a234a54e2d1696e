//! What the adapter makes of recorded conversations, in both dialects.

use agentd_core::ids::TurnId;
use agentd_core::worker::{QuestionKind, WorkerCommand};
use agentd_protocol::Code;
use agentd_protocol::line::{CostStatus, Level};
use proptest::prelude::*;

use super::replay::{DIALECTS, Replay, load};
use super::*;
use crate::adapter::Adapter as _;
use crate::adapter::testing::{prompt, spawn};

#[test]
fn settings_become_flags_and_the_rest_is_pis() {
    let command = ["/bin/pi".to_owned()];
    assert_eq!(
        launch(&command, &spawn()).argv,
        ["/bin/pi", "--mode", "rpc"]
    );
    let given = ["/bin/pi".to_owned(), "--mode".to_owned(), "rpc".to_owned()];
    assert_eq!(launch(&given, &spawn()).argv, given);
    let full = Spawn {
        provider: Some("p".into()),
        model: Some("m".into()),
        thinking: Some("low".into()),
        resume: Some("/s.jsonl".into()),
        toolsets: Some(vec!["read".into(), "grep".into()]),
        ..spawn()
    };
    let argv = launch(&command, &full).argv.join(" ");
    let flags = "--provider p --model m --thinking low --session /s.jsonl --tools read,grep";
    assert_eq!(argv, format!("/bin/pi --mode rpc {flags}"));
    let copy = Spawn {
        resume: Some("/s.jsonl".into()),
        forks: true,
        system: Some("/etc/hosts".into()),
        ..spawn()
    };
    // Not the name of a file, which it would read.
    let flags = "--fork /s.jsonl --append-system-prompt # System\n\n/etc/hosts";
    assert_eq!(launch(&command, &copy).argv[3..].join(" "), flags);
    let mapped = Spawn {
        toolsets: Some(vec!["terminal".into(), "file".into()]),
        ..spawn()
    };
    let argv = launch(&command, &mapped).argv;
    assert_eq!(argv.last().unwrap(), "bash,read,write,edit,grep,find,ls");
    let none = Spawn {
        toolsets: Some(Vec::new()),
        ..spawn()
    };
    assert_eq!(
        launch(&command, &none).argv.last().unwrap(),
        "--no-tools",
        "the older one takes an empty list for none at all"
    );
}

#[test]
fn the_thinking_level_that_counts_is_told() {
    for (asked, real, told) in [
        (Some("max"), "medium", Some("medium")),
        (Some("low"), "low", Some("low")),
        (None, "medium", None),
    ] {
        let mut replay = Replay::ready();
        let spawn = Spawn {
            thinking: asked.map(str::to_owned),
            ..spawn()
        };
        replay.adapter = Pi::new(&spawn);
        replay.client.state["thinkingLevel"] = json!(real);
        replay.tell(&WorkerCommand::Probe);
        replay.settle();
        replay.tell(&prompt(1, "x"));
        run(&mut replay, json!({"stopReason": "stop"}));
        assert_eq!(replay.outcome().thinking.as_deref(), told, "{asked:?}");
        let noted = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { .. });
        let differs = told.is_some_and(|told| asked != Some(told));
        assert_eq!(replay.count(noted), usize::from(differs), "{asked:?}");
    }
}

#[test]
fn ready_is_known_by_its_state_and_session() {
    for dialect in DIALECTS {
        let mut replay = Replay::of(dialect, "40c");
        replay.tell(&WorkerCommand::Probe);
        replay.settle();
        let [WorkerEvent::SessionNamed { native }, WorkerEvent::Ready(_)] = &replay.events[..]
        else {
            panic!("{:?}", replay.events);
        };
        assert!(native.ends_with(".jsonl"), "{native}");
    }
}

#[test]
fn session_is_renamed_once_its_file_is_made() {
    for dialect in DIALECTS {
        let mut replay = Replay::turn(dialect, "40c", 1);
        replay.tell(&WorkerCommand::Probe);
        replay.settle();
        let replay = replay.play();
        let named = |event: &WorkerEvent| matches!(event, WorkerEvent::SessionNamed { .. });
        assert_eq!(replay.count(named), 2, "{dialect}");
        assert_eq!(replay.outcome().text.as_deref(), Some("echo: first"));
    }
}

#[test]
fn session_that_comes_back_empty_is_lost() {
    for (dialect, number, lost) in [
        ("pi-0.73.1", "40b", 1),
        ("pi-0.73.1", "40d", 0),
        ("pi-1.5.2", "40b", 0),
        ("pi-1.5.2", "40d", 0),
    ] {
        let mut replay = Replay::of(dialect, number);
        let resumed = Spawn {
            resume: Some("/s.jsonl".into()),
            ..spawn()
        };
        replay.adapter = Pi::new(&resumed);
        replay.tell(&WorkerCommand::Probe);
        replay.settle();
        let noted = |event: &WorkerEvent| {
            matches!(
                event,
                WorkerEvent::Noted {
                    code: "context-lost",
                    ..
                }
            )
        };
        assert_eq!(replay.count(noted), lost, "{dialect} {number}");
    }
}

#[test]
fn session_whose_file_goes_gets_another_process() {
    for (error, gone) in [
        (
            "ENOENT: no such file or directory, open '/s/one.jsonl'",
            true,
        ),
        (
            "ENOENT: no such file or directory, open '/elsewhere'",
            false,
        ),
        ("429 about /s/one.jsonl", false),
    ] {
        let mut replay = Replay::ready();
        (replay.adapter.named, replay.adapter.kept) = (Some("/s/one.jsonl".to_owned()), true);
        replay.tell(&prompt(1, "x"));
        run(
            &mut replay,
            json!({"role": "assistant", "stopReason": "error", "errorMessage": error, "content": []}),
        );
        assert!(replay.outcome().result.is_err());
        let spoilt = |event: &&WorkerEvent| matches!(event, WorkerEvent::Spoilt { .. });
        assert_eq!(
            replay.events.iter().filter(spoilt).count(),
            usize::from(gone),
            "{error}"
        );
    }
}

#[test]
fn answer_comes_as_deltas_and_ends_when_idle() {
    for dialect in DIALECTS {
        let mut replay = Replay::turn(dialect, "02", 1);
        replay.play_to("agent_end");
        assert!(replay.outcomes().is_empty(), "{dialect}");
        let replay = replay.play();
        assert_eq!(replay.text(), "w0 w1 w2 w3 ");
        let outcome = replay.outcome();
        assert_eq!(outcome.result, Ok(Stop::EndTurn));
        assert_eq!(outcome.text.as_deref(), Some("w0 w1 w2 w3 "));
        assert_eq!(outcome.provider.as_deref(), Some("mock"));
        assert_eq!(outcome.model.as_deref(), Some("mock-1"));
        assert_eq!(outcome.api_calls.as_ref().unwrap().len(), 1);
        assert_eq!(replay.written(), ["prompt"]);
    }
}

#[test]
fn usage_and_cost_are_summed_as_pi_does() {
    for dialect in DIALECTS {
        let records = load(dialect, "03");
        let stats = records
            .iter()
            .find(|record| record.value["data"]["tokens"].is_object());
        let stats = stats.unwrap().value["data"].clone();
        let replay = Replay::turn(dialect, "03", 1).play();
        let outcome = replay.outcome();
        let usage = outcome.usage.unwrap();
        assert_eq!(outcome.api_calls.as_ref().unwrap().len(), 2);
        assert_eq!(json!(usage.input_tokens), stats["tokens"]["input"]);
        assert_eq!(json!(usage.output_tokens), stats["tokens"]["output"]);
        let held = json!([outcome.context.tokens, outcome.context.window]);
        assert_eq!(held, json!([stats["contextUsage"]["tokens"], 128_000]));
        let (found, expected) = (outcome.cost.usd.unwrap(), stats["cost"].as_f64().unwrap());
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        assert_eq!(outcome.cost.status, CostStatus::Estimated);
        assert_eq!(outcome.cost.source.as_deref(), Some("pi"));
    }
}

#[test]
fn a_cost_from_the_provider_itself_is_actual() {
    let mut replay = Replay::ready();
    replay.tell(&prompt(1, "x"));
    let usage = json!({"input": 1, "cost": {"total": 0.25, "totalFromProvider": true}});
    run(&mut replay, json!({"stopReason": "stop", "usage": usage}));
    let cost = &replay.outcome().cost;
    assert_eq!((cost.usd, cost.status), (Some(0.25), CostStatus::Actual));
}

/// A run with one assistant message, in the new dialect.
fn run(replay: &mut Replay, mut message: Value) {
    message["role"] = json!("assistant");
    replay.hear(&json!({"type": "agent_start"}));
    replay.hear(&json!({"type": "message_start", "message": {"role": "assistant"}}));
    replay.hear(&json!({"type": "message_end", "message": message}));
    replay.hear(&json!({"type": "agent_end", "willRetry": false}));
    replay.hear(&json!({"type": "agent_settled", "aborted": false}));
    replay.settle();
}

#[test]
fn tool_call_has_output_piecewise_and_whole() {
    for dialect in DIALECTS {
        let replay = Replay::turn(dialect, "04", 1).play();
        let turn = TurnId(1);
        let pieces = replay.events.iter().filter_map(|event| match event {
            WorkerEvent::ToolUpdated {
                call,
                offset,
                output,
                ..
            } if call.ends_with("_0") => Some((*offset, output.as_str())),
            _ => None,
        });
        let pieces: Vec<_> = pieces.collect();
        assert_eq!(pieces, [(0, "a1\n"), (3, "a2\n"), (6, "a3\n")], "{dialect}");
        let ends: Vec<_> = replay
            .events
            .iter()
            .filter_map(|event| match event {
                WorkerEvent::ToolEnded {
                    turn: of,
                    ok,
                    output,
                    ..
                } => {
                    assert_eq!(*of, turn);
                    Some((*ok, output.lines().next().unwrap()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(ends.len(), 4);
        assert!(ends.contains(&(true, "a1")) && ends.contains(&(false, "fast")));
        let read_only = replay.count(|event| {
            matches!(event, WorkerEvent::ToolStarted { read_only: true, name, .. } if name == "read")
        });
        assert_eq!(read_only, 1);
        let started = replay.count(|event| matches!(event, WorkerEvent::MessageStarted { .. }));
        assert_eq!(started, 2);
    }
}

#[test]
fn thinking_is_kept_apart_from_text() {
    for dialect in DIALECTS {
        let replay = Replay::turn(dialect, "14", 1).play();
        let thinking: String = replay
            .events
            .iter()
            .filter_map(|event| match event {
                WorkerEvent::Thinking { text, .. } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(
            (thinking.as_str(), replay.text().as_str()),
            ("let me think about this", "done")
        );
    }
}

#[test]
fn abort_keeps_the_text_and_the_next_runs() {
    for dialect in DIALECTS {
        let replay = Replay::of(dialect, "05").play();
        let outcomes = replay.outcomes();
        assert_eq!(outcomes[0].result, Ok(Stop::Cancelled), "{dialect}");
        assert_eq!(outcomes[0].text.as_deref(), Some("w0 w1 w2 w3 w4 w5 "));
        assert_eq!(outcomes[1].text.as_deref(), Some("echo: after abort"));
        assert_eq!(replay.written(), ["prompt", "abort", "prompt"]);
        let replay = Replay::turn(dialect, "06", 1).play();
        assert_eq!(replay.outcome().result, Ok(Stop::Cancelled));
    }
}

#[test]
fn an_error_is_named_by_its_obvious_signs() {
    for (error, code) in [
        ("No API key found for anthropic.", Code::AgentAuth),
        ("401: {\"message\":\"bad key\"}", Code::AgentAuth),
        ("429 Too Many Requests", Code::RateLimit),
        ("You exceeded your current quota", Code::RateLimit),
        (
            "prompt is too long: 210000 tokens > 200000 maximum",
            Code::ContextOverflow,
        ),
        ("500 mock error 500", Code::AgentFailed),
        ("read 14290 bytes", Code::AgentFailed),
        ("", Code::AgentFailed),
    ] {
        let mut replay = Replay::ready();
        replay.tell(&prompt(1, "x"));
        run(
            &mut replay,
            json!({"stopReason": "error", "errorMessage": error}),
        );
        assert_eq!(
            replay.outcome().result.as_ref().unwrap_err().code,
            code,
            "{error}"
        );
    }
}

#[test]
fn prompt_that_pi_refuses_is_a_failed_turn() {
    let mut replay = Replay::ready();
    replay.tell(&prompt(1, "x"));
    let id = &replay.wrote[0]["id"];
    let error = "No API key found for mock.";
    replay.hear(&json!({"id": id, "type": "response", "command": "prompt", "success": false, "error": error}));
    let failure = replay.outcome().result.clone().unwrap_err();
    assert_eq!(
        (failure.code, failure.error),
        (Code::AgentAuth, format!("pi: {error}"))
    );
    assert!(failure.hint.is_some());
    replay.tell(&prompt(2, "y"));
    assert_eq!(replay.wrote.len(), 2);
}

#[test]
fn a_pi_without_any_model_reports_none() {
    for dialect in DIALECTS {
        let mut replay = Replay::of(dialect, "37b");
        replay.tell(&WorkerCommand::Probe);
        replay.settle();
        assert_eq!(
            (&replay.adapter.provider, &replay.adapter.model),
            (&None, &None),
            "{dialect}"
        );
    }
}

#[test]
fn message_cut_short_or_without_deltas_is_told() {
    let mut replay = Replay::ready();
    replay.tell(&prompt(1, "x"));
    run(
        &mut replay,
        json!({"stopReason": "length", "content": [{"type": "text", "text": "abc"}]}),
    );
    assert_eq!(replay.outcome().result, Ok(Stop::MaxTokens));
    assert_eq!(
        replay
            .count(|e| matches!(e, WorkerEvent::Text { native: false, text, .. } if text == "abc")),
        1
    );
}

#[test]
fn dialog_becomes_a_question_and_is_dismissed_safely() {
    for dialect in DIALECTS {
        let replay = Replay::turn(dialect, "25", 2).play();
        let asked = replay.count(|event| {
            matches!(event, WorkerEvent::Asked { turn: Some(TurnId(1)), asking } if asking.kind == QuestionKind::Text && asking.title == "Edit some text")
        });
        assert_eq!(asked, 1, "{dialect}");
        let answer = replay
            .wrote
            .iter()
            .find(|value| value["type"] == "extension_ui_response");
        assert_eq!(answer.unwrap()["cancelled"], true);
        let noted = replay.count(|event| {
            matches!(event, WorkerEvent::Noted { level: Level::Info, code: "extension", text, .. } if text == "Editor cancelled")
        });
        assert_eq!(noted, 1);
        let replay = Replay::turn(dialect, "25", 4).play();
        assert_eq!(replay.count(|e| matches!(e, WorkerEvent::Asked { asking, .. } if asking.kind == QuestionKind::Choice && asking.options.len() == 2)), 1);
    }
}

#[test]
fn command_of_an_extension_ends_its_turn() {
    for dialect in DIALECTS {
        for nth in 1..=3 {
            let mut replay = Replay::turn(dialect, "25", nth);
            // What follows the third is a request for a new session.
            replay
                .records
                .retain(|record| record.value["type"] != "new_session");
            let replay = replay.play();
            assert_eq!(
                replay.outcome().result,
                Ok(Stop::EndTurn),
                "{dialect} {nth}"
            );
        }
    }
}

#[test]
fn process_recycled_by_a_new_session_names_it() {
    for dialect in DIALECTS {
        let mut replay = Replay::of(dialect, "40c");
        replay.tell(&WorkerCommand::Recycle);
        let id = &replay.wrote[0]["id"];
        assert_eq!(replay.written(), ["new_session"]);
        replay.hear(&json!({"id": id, "type": "response", "command": "new_session", "success": true, "data": {"cancelled": false}}));
        assert!(replay.events.is_empty());
        replay.settle();
        assert!(matches!(
            &replay.events[..],
            [WorkerEvent::SessionNamed { .. }, WorkerEvent::Recycled]
        ));
    }
    let replay = Replay::of("pi-1.5.2", "30").play();
    assert_eq!(replay.count(|event| *event == WorkerEvent::Recycled), 1);
    assert_eq!(replay.outcome().text.as_deref(), Some("echo: hi"));
}

#[test]
fn process_is_not_recycled_when_extensions_cancel() {
    let mut replay = Replay::ready();
    replay.tell(&WorkerCommand::Recycle);
    let id = &replay.wrote[0]["id"];
    replay.hear(&json!({"id": id, "type": "response", "command": "new_session", "success": true, "data": {"cancelled": true}}));
    replay.settle();
    assert_eq!(replay.count(|event| *event == WorkerEvent::Recycled), 0);
    replay.tell(&prompt(1, "x"));
    assert_eq!(replay.written(), ["new_session", "prompt"]);
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        Just("null"),
        Just("true"),
        Just("\"a3\""),
        Just("\"a4\""),
        Just("1e308"),
        Just("[1,{}]"),
        Just(
            r#"{"role":"assistant","stopReason":"error","content":[{"type":"text","text":"x"}],"usage":{"input":18446744073709551615,"cost":{"total":1e308}}}"#
        ),
        Just(r#"{"type":"text_delta","delta":"d"}"#),
        Just(r#"{"content":[{"type":"text","text":"out"}]}"#),
    ];
    let field = prop_oneof![
        Just("id"),
        Just("success"),
        Just("message"),
        Just("assistantMessageEvent"),
        Just("data"),
        Just("partialResult"),
        Just("willRetry"),
        Just("method"),
        Just("options"),
    ];
    let kind = prop_oneof![
        Just("response"),
        Just("agent_start"),
        Just("agent_end"),
        Just("agent_settled"),
        Just("auto_retry_start"),
        Just("auto_retry_end"),
        Just("compaction_start"),
        Just("compaction_end"),
        Just("message_start"),
        Just("message_end"),
        Just("message_update"),
        Just("tool_execution_start"),
        Just("tool_execution_end"),
        Just("extension_ui_request"),
    ];
    prop_oneof![
        1 => proptest::collection::vec(any::<u8>(), 0..60),
        8 => (kind, proptest::collection::vec((field, value), 0..4)).prop_map(|(kind, fields)| {
            let fields: String = fields.iter().map(|(f, v)| format!(",\"{f}\":{v}")).collect();
            format!("{{\"type\":\"{kind}\"{fields}}}").into_bytes()
        }),
        2 => (0u32..500, 1usize..3000).prop_map(|(n, size)| {
            let text = "o".repeat(size);
            format!(r#"{{"type":"tool_execution_update","toolCallId":"c{n}","partialResult":{{"content":"{text}"}}}}"#).into_bytes()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test] #[ignore = "heavy"]
    fn pi_never_panics_nor_grows_whatever_the_input(lines in proptest::collection::vec(line(), 0..400)) {
        let mut pi = Pi::default();
        let (mut events, mut write) = (Vec::new(), Vec::new());
        for command in [WorkerCommand::Probe, prompt(1, "/x"), WorkerCommand::Recycle, prompt(2, "y"), prompt(3, "z")] {
            pi.encode(&command, &mut events, &mut write);
        }
        for line in &lines {
            let before = (events.len(), write.len());
            pi.decode(line, &mut events, &mut write);
            prop_assert!(events.len() - before.0 <= 3);
            prop_assert!(write.len() - before.1 <= 200);
            prop_assert!(pi.driver.turn.as_ref().map_or(0, Turn::held) <= 64 * 64 * 1024 + 1000);
        }
        let ends = events.iter().filter(|event| matches!(event, WorkerEvent::Ended { .. })).count();
        prop_assert!(ends <= 3);
    }
}

/// One whole run, as the newer dialect tells it; returns what was written meanwhile.
fn whole_run(pi: &mut Pi, number: u64, events: &mut Vec<WorkerEvent>) -> String {
    let mut write = Vec::new();
    pi.encode(&prompt(number, "x"), events, &mut write);
    write.clear();
    for kind in ["agent_start", "agent_end", "agent_settled"] {
        let line = json!({"type": kind, "willRetry": false, "aborted": false});
        pi.decode(line.to_string().as_bytes(), events, &mut write);
    }
    String::from_utf8(write).unwrap()
}

#[test]
fn turn_of_a_known_session_ends_when_settled() {
    let (mut pi, mut events, mut write) = (Pi::new(&spawn()), Vec::new(), Vec::new());
    let asked = whole_run(&mut pi, 1, &mut events);
    let asked: Value = serde_json::from_str(asked.trim()).unwrap();
    assert_eq!(asked["type"], "get_state", "its file is not known yet");
    let ended = |event: &&WorkerEvent| matches!(event, WorkerEvent::Ended { .. });
    assert_eq!(events.iter().filter(ended).count(), 0);
    let state = json!({"type": "response", "id": asked["id"], "success": true, "data": {
        "isStreaming": false, "isCompacting": false, "sessionFile": "/s.jsonl",
    }});
    pi.decode(state.to_string().as_bytes(), &mut events, &mut write);
    assert_eq!(events.iter().filter(ended).count(), 1);
    assert_eq!(whole_run(&mut pi, 2, &mut events), "");
    assert_eq!(events.iter().filter(ended).count(), 2);
}

#[test]
fn turn_that_is_first_settles_with_its_file() {
    let (mut pi, mut events, mut write) = (Pi::new(&spawn()), Vec::new(), Vec::new());
    pi.encode(&WorkerCommand::Probe, &mut events, &mut write);
    let asked: Value = serde_json::from_slice(&write).unwrap();
    let state = json!({"type": "response", "id": asked["id"], "success": true, "data": {
        "isStreaming": false, "isCompacting": false, "sessionFile": "/s.jsonl",
    }});
    pi.decode(state.to_string().as_bytes(), &mut events, &mut Vec::new());
    for (turn, named) in [(1, 1), (2, 0)] {
        events.clear();
        assert_eq!(
            whole_run(&mut pi, turn, &mut events),
            "",
            "nothing is asked"
        );
        let is_named = |event: &WorkerEvent| {
            *event
                == WorkerEvent::SessionNamed {
                    native: "/s.jsonl".to_owned(),
                }
        };
        assert_eq!(events.iter().filter(|event| is_named(event)).count(), named);
        assert!(matches!(events.last(), Some(WorkerEvent::Ended { .. })));
    }
}

#[test]
fn picture_goes_with_its_prompt_only() {
    let mut prompt = crate::adapter::attached::samples::prompt(Vec::new());
    let picture = json!({"type": "image", "data": "iVBORw==", "mimeType": "image/png"});
    assert_eq!(
        fields(&prompt),
        json!({"message": "look", "images": [picture]})
    );
    prompt.attachments = agentd_core::attached::Attachments::None;
    assert_eq!(fields(&prompt), json!({"message": "look"}));
}
