//! What the adapter makes of recorded conversations with Codex 0.169.0.

use agentd_core::worker::{ContextUse, QuestionKind, Reply, Steering, WorkerCommand};
use agentd_protocol::line::CostStatus;

use super::replay::{Replay, spawn};
use super::*;
use crate::adapter::testing::{Record, prompt, servers, servers_of_today};

fn played(name: &str) -> Replay {
    Replay::of(name, None).play()
}

fn tools(replay: &Replay) -> Vec<(bool, &str)> {
    let ends = replay.events.iter().filter_map(|event| match event {
        WorkerEvent::ToolEnded { ok, output, .. } => Some((*ok, output.as_str())),
        _ => None,
    });
    ends.collect()
}

#[test]
fn codex_is_run_as_app_server_without_flags() {
    let argv = |command: &[&str]| {
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        launch(&command, &spawn(Some("x"))).argv
    };
    assert_eq!(argv(&["codex"]), ["codex", "app-server"]);
    let given = ["codex", "app-server", "-c", "model=\"m\""];
    assert_eq!(argv(&given), given);
}

#[test]
fn thread_is_named_with_its_first_turn_only() {
    let mut replay = Replay::of("text", None).play_before("[[deltas=3]]");
    let kinds = |replay: &Replay, wanted: fn(&WorkerEvent) -> bool| replay.count(wanted);
    let named = |event: &WorkerEvent| matches!(event, WorkerEvent::SessionNamed { .. });
    assert_eq!(kinds(&replay, |e| matches!(e, WorkerEvent::Ready(_))), 1);
    assert_eq!(kinds(&replay, named), 0);
    while replay.step() {}
    assert_eq!(kinds(&replay, named), 1);
}

#[test]
fn text_and_thinking_are_deltas_of_one_message() {
    let replay = played("text");
    let said = |event: &WorkerEvent| match event {
        WorkerEvent::Text { text, native, .. } => {
            assert!(native);
            Some(format!("+{text}"))
        }
        WorkerEvent::Thinking { text, .. } => Some(format!("?{text}")),
        WorkerEvent::MessageStarted { replaces_last, .. } => {
            assert!(!replaces_last);
            Some("|".to_owned())
        }
        _ => None,
    };
    let said: String = replay.events.iter().filter_map(said).collect();
    assert_eq!(said, "|+w0 +w1 +w2 |?let me ?think+echo: [[think]] x");
    let outcomes = replay.outcomes();
    assert_eq!(outcomes.len(), 2);
    assert_eq!(outcomes[0].text.as_deref(), Some("w0 w1 w2 "));
    for outcome in outcomes {
        assert_eq!(outcome.result, Ok(Stop::EndTurn));
        assert_eq!(outcome.provider.as_deref(), Some("mock"));
        assert_eq!(outcome.model.as_deref(), Some("mock-1"));
        let usage = outcome.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (12, 3));
        assert_eq!((usage.cache_read_tokens, usage.reasoning_tokens), (5, 1));
        // Of the last request: the thread's total counts each one before it again.
        assert_eq!(outcome.context, ContextUse::known(Some(15), Some(258_400)));
        assert_eq!(outcome.cost.status, CostStatus::Unknown);
        assert_eq!(outcome.cost.usd, None);
    }
}

#[test]
fn approvals_say_what_is_about_to_happen() {
    let replay = played("tools");
    let asked = replay.events.iter().filter_map(|event| match event {
        WorkerEvent::Asked { turn, asking } => {
            assert!(turn.is_some());
            assert_eq!(asking.kind, QuestionKind::Approval);
            Some((asking.title.as_str(), asking.detail.as_deref().unwrap()))
        }
        _ => None,
    });
    let asked: Vec<_> = asked.collect();
    assert_eq!(asked.len(), 4);
    assert_eq!(asked[1].0, "Run `/bin/bash -lc 'touch denied'`?");
    assert_eq!(
        asked[1].1,
        "command: /bin/bash -lc 'touch denied'\ncwd: /w\nalways would allow what begins with: \
         touch denied\nreason: Do you want to allow this?"
    );
    assert_eq!(asked[2], ("Change files?", "changes: add /w/p.txt\nhi"));
    let told = tools(&replay);
    assert_eq!(
        told,
        [
            (true, "one\ntwo\n"),
            (false, "declined"),
            (false, "declined"),
            (false, "exit code 3"),
        ]
    );
    let piece = |event: &WorkerEvent| matches!(event, WorkerEvent::ToolUpdated { offset: 0, output, .. } if output == "two\n");
    assert_eq!(replay.count(piece), 1);
    let usage = replay.outcomes()[0].usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (24, 6));
}

#[test]
fn error_is_named_by_kind_status_or_words() {
    let replay = played("errors");
    let codes: Vec<Code> = replay
        .outcomes()
        .iter()
        .map(|outcome| outcome.result.as_ref().unwrap_err().code)
        .collect();
    let expected = [
        Code::AgentAuth,
        Code::RateLimit,
        Code::AgentFailed,
        Code::ContextOverflow,
    ];
    assert_eq!(codes, expected);
    assert!(
        replay
            .outcomes()
            .iter()
            .all(|outcome| outcome.usage.is_none())
    );
    let words = [
        ("You've hit your usage limit.", Code::RateLimit),
        ("Not logged in: run `codex login`", Code::AgentAuth),
        ("Missing environment variable: `KEY`.", Code::AgentAuth),
        ("", Code::AgentFailed),
    ];
    for (said, code) in words {
        assert_eq!(turn::failure(said, None).code, code, "{said}");
    }
}

#[test]
fn retry_is_noted_and_replaces_its_message() {
    let replay = played("retry");
    let retries = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { code: "retry", text, .. } if text.contains("stream disconnected"));
    assert_eq!(replay.count(retries), 1);
    let replaced = |event: &WorkerEvent| {
        matches!(
            event,
            WorkerEvent::MessageStarted {
                replaces_last: true,
                ..
            }
        )
    };
    assert_eq!(replay.count(replaced), 1);
    assert_eq!(
        replay.outcomes()[0].text.as_deref(),
        Some("echo: [[cut]] x")
    );
}

#[test]
fn steering_is_taken_or_too_late() {
    let replay = Replay::of("steering", None).play_before("[[bash=sleep 5]]");
    let steered = replay.events.iter().filter_map(|event| match event {
        WorkerEvent::Steered { steer, steering } => Some((*steer, steering.clone())),
        _ => None,
    });
    let steered: Vec<_> = steered.collect();
    assert_eq!(steered, [(1, Steering::Taken), (2, Steering::TooLate)]);
}

#[test]
fn abort_ends_the_turn_and_its_questions() {
    let mut replay = Replay::of("steering", None);
    // Codex withdrew the question before the recorded client declined it.
    let late = |record: &Record| record.ours && record.value["result"]["decision"] == "decline";
    replay.records.retain(|record| !late(record));
    let replay = replay.play_before("[[bash=sleep 6]]");
    let outcomes = replay.outcomes();
    assert_eq!(outcomes.len(), 3);
    assert_eq!(outcomes[0].result, Ok(Stop::EndTurn));
    assert_eq!(outcomes[1].result, Ok(Stop::Cancelled));
    assert_eq!(outcomes[2].result, Ok(Stop::Cancelled));
    let withdrew = |event: &WorkerEvent| matches!(event, WorkerEvent::Withdrew { .. });
    assert_eq!(replay.count(withdrew), 1);
    assert_eq!(replay.adapter.requests.held(), 0);
    assert_eq!(tools(&replay).last(), Some(&(false, "interrupted")));
}

#[test]
fn an_interrupted_turn_takes_its_command_along() {
    let mut replay = Replay::of("steering", None);
    let late = |record: &Record| record.ours && record.value["result"]["decision"] == "decline";
    replay.records.retain(|record| !late(record));
    let replay = replay.play();
    let asked = replay.written();
    let terminate = "thread/backgroundTerminals/terminate";
    assert_eq!(
        asked.iter().filter(|method| **method == terminate).count(),
        1
    );
    let results: Vec<_> = replay.outcomes().iter().map(|o| o.result.clone()).collect();
    assert_eq!(results[3..], [Ok(Stop::Cancelled), Ok(Stop::EndTurn)]);
}

#[test]
fn compaction_is_a_turn_of_codex_only() {
    let replay = played("compact");
    let done = |event: &WorkerEvent| *event == WorkerEvent::Compacted { result: Ok(None) };
    assert_eq!(replay.count(done), 1);
    let outcomes = replay.outcomes();
    assert_eq!(outcomes.len(), 2);
    // The compaction's own tokens aren't the next turn's.
    assert_eq!(outcomes[1].usage.unwrap().input_tokens, 12);
    let stray = |event: &WorkerEvent| matches!(event, WorkerEvent::Stray { .. });
    assert_eq!(replay.count(stray), 0);
}

#[test]
fn thread_resumed_counts_no_old_tokens_again() {
    let records = Replay::of("resume", None).records;
    let thread = records
        .iter()
        .find_map(|record| record.value["params"]["threadId"].as_str())
        .unwrap()
        .to_owned();
    let other = Spawn {
        model: Some("mock-2".into()),
        ..spawn(Some(&thread))
    };
    let mut replay = Replay::of("resume", None);
    replay.adapter = Codex::new(&other);
    let replay = replay.play();
    let outcome = replay.outcomes()[0];
    assert_eq!(outcome.model.as_deref(), Some("mock-2"));
    assert_eq!(outcome.usage.unwrap().input_tokens, 12);
    let lost = |event: &WorkerEvent| {
        matches!(
            event,
            WorkerEvent::Noted {
                code: "context-lost",
                ..
            }
        )
    };
    assert_eq!(replay.count(lost), 0);
}

#[test]
fn thread_gone_is_noted_before_another_is_ready() {
    let replay = Replay::of("gone", Some("01a20067-0000-7000-8000-000000000000")).play();
    let [
        ..,
        WorkerEvent::Noted {
            turn: None, code, ..
        },
        WorkerEvent::Ready(_),
    ] = &replay.events[..]
    else {
        panic!("{:?}", replay.events);
    };
    assert_eq!(*code, "context-lost");
}

#[test]
fn thread_is_opened_with_the_system_text() {
    for resume in [None, Some("old")] {
        let mut replay = Replay::bare(&Spawn {
            system: Some("be brief".into()),
            ..spawn(resume)
        });
        replay.tell(&WorkerCommand::Probe);
        replay.reply(&json!({}));
        let opened = replay.wrote.last().unwrap();
        assert_eq!(
            opened["params"]["developerInstructions"], "be brief",
            "{opened}"
        );
    }
}

#[test]
fn thread_is_opened_with_servers_of_its_session() {
    for resume in [None, Some("old")] {
        let mut replay = Replay::bare(&Spawn {
            mcp_servers: servers_of_today(),
            ..spawn(resume)
        });
        replay.tell(&WorkerCommand::Probe);
        replay.reply(&json!({}));
        let opened = replay.wrote.last().unwrap();
        assert_eq!(
            opened["params"]["config"],
            json!({
                "mcp_servers.files": {"command": "mcp", "args": ["-v"], "env": {"KEY": "hush"}},
                "mcp_servers.web": {
                    "url": "https://a.example/mcp", "http_headers": {"Authorization": "hush"},
                },
            }),
        );
    }
    let mut replay = Replay::bare(&Spawn {
        mcp_servers: servers(),
        ..spawn(None)
    });
    replay.tell(&WorkerCommand::Probe);
    replay.reply(&json!({}));
    replay.tell(&prompt(1, "x"));
    let Some(WorkerEvent::Ended { outcome, .. }) = replay.events.last() else {
        panic!("{:?}", replay.events);
    };
    let refused = outcome.result.clone().unwrap_err();
    assert_eq!(refused.code, Code::Unsupported);
    assert!(refused.error.contains("type `sse`: `old`"), "{refused:?}");
    assert!(!refused.error.contains("example"), "{refused:?}");
}

#[test]
fn thread_of_a_fork_is_a_copy() {
    let mut replay = Replay::bare(&Spawn {
        forks: true,
        ..spawn(Some("old"))
    });
    replay.tell(&WorkerCommand::Probe);
    replay.reply(&json!({}));
    let opened = replay.wrote.last().unwrap();
    assert_eq!(opened["method"], "thread/fork", "{opened}");
    assert_eq!(opened["params"]["threadId"], "old", "{opened}");
}

#[test]
fn thread_that_can_not_be_opened_fails_turns() {
    let mut replay = Replay::bare(&spawn(Some("old")));
    replay.tell(&WorkerCommand::Probe);
    replay.reply(&json!({}));
    let id = replay.adapter.last;
    let message = "failed to read thread: permission denied";
    replay.hear(&json!({"id": id, "error": {"code": -32603, "message": message}}));
    assert!(matches!(&replay.events[..], [WorkerEvent::Ready(_)]));
    replay.tell(&prompt(1, "x"));
    assert_eq!(
        replay.written(),
        ["initialize", "initialized", "thread/resume"]
    );
    let failure = replay.outcomes()[0].result.clone().unwrap_err();
    assert!(failure.error.contains(message), "{}", failure.error);
    let spoilt = |event: &WorkerEvent| matches!(event, WorkerEvent::Spoilt { .. });
    assert_eq!(replay.count(spoilt), 1);
}

#[test]
fn login_missing_fails_the_turn_at_once() {
    let account = |needs: bool, account: Value| json!({"id": "account", "result": {"account": account, "requiresOpenaiAuth": needs}});
    let thread = json!({"thread": {"id": "t"}});
    for (account, early, code) in [
        (account(true, Value::Null), true, Some(Code::AgentAuth)),
        (account(true, Value::Null), false, Some(Code::AgentAuth)),
        (account(true, json!({"type": "apiKey"})), true, None),
        // A provider of the user's own.
        (account(false, Value::Null), true, None),
        (
            json!({"id": "account", "error": {"code": -32601}}),
            true,
            None,
        ),
    ] {
        let mut replay = Replay::bare(&spawn(None));
        replay.tell(&WorkerCommand::Probe);
        replay.reply(&json!({}));
        if early {
            replay.hear(&account);
        }
        replay.reply(&thread);
        assert!(matches!(&replay.events[..], [WorkerEvent::Ready(_)]));
        replay.tell(&prompt(1, "x"));
        if !early {
            replay.hear(&account);
        }
        let outcomes = replay.outcomes();
        let failed = outcomes
            .first()
            .map(|outcome| outcome.result.clone().unwrap_err());
        assert_eq!(failed.map(|failure| failure.code), code, "{account}");
        let spoilt = |event: &WorkerEvent| matches!(event, WorkerEvent::Spoilt { .. });
        assert_eq!(replay.count(spoilt), usize::from(code.is_some()));
    }
}

#[test]
fn question_that_nobody_can_answer_is_refused() {
    let mut replay = Replay::running();
    for method in [
        "item/tool/call",
        "account/chatgptAuthTokens/refresh",
        "attestation/generate",
        "currentTime/read",
        "of/a/newer/version",
    ] {
        replay.wrote.clear();
        replay.hear(&json!({"id": "r", "method": method, "params": {}}));
        assert_eq!(replay.wrote[0]["error"]["code"], -32601, "{method}");
        assert_eq!(replay.wrote[0]["id"], "r");
    }
    for (method, params, yes, no) in [
        (
            "execCommandApproval",
            json!({"command": ["ls", "-l"], "cwd": "/w"}),
            json!({"decision": "approved"}),
            json!({"decision": "denied"}),
        ),
        (
            "applyPatchApproval",
            json!({"fileChanges": {"a": {}}}),
            json!({"decision": "approved"}),
            json!({"decision": "denied"}),
        ),
        (
            "item/permissions/requestApproval",
            json!({"permissions": {"network": {"enabled": true}, "fileSystem": null}}),
            json!({"permissions": {"network": {"enabled": true}}, "scope": "turn"}),
            json!({"permissions": {}, "scope": "turn"}),
        ),
        (
            "mcpServer/elicitation/request",
            json!({"mode": "form", "serverName": "s", "message": "m", "requestedSchema": {"properties": {}}}),
            json!({"action": "accept", "content": {}, "_meta": null}),
            json!({"action": "decline", "content": null, "_meta": null}),
        ),
    ] {
        for (reply, expected) in [(Reply::Approved, &yes), (Reply::Denied, &no)] {
            replay.wrote.clear();
            replay.hear(&json!({"id": 7, "method": method, "params": params}));
            assert!(replay.wrote.is_empty(), "{method}");
            let question = "7".to_owned();
            replay.tell(&WorkerCommand::Answer { question, reply });
            assert_eq!(replay.wrote[0], json!({"id": 7, "result": expected}));
        }
    }
}

#[test]
fn request_that_is_not_served_is_noted_once() {
    let mut replay = Replay::running();
    replay.wrote.clear();
    let fields = json!({"properties": {"name": {"type": "string"}}});
    let form =
        json!({"mode": "form", "serverName": "s", "message": "m", "requestedSchema": fields});
    for (method, params) in [
        ("mcpServer/elicitation/request", form),
        ("item/from_the_future", json!({})),
    ] {
        for id in 1..3 {
            replay.hear(&json!({"id": id, "method": method, "params": params}));
        }
        let noted = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { text, .. } if text.contains(method));
        assert_eq!(replay.count(noted), 1, "{method}");
    }
    assert_eq!(replay.wrote.len(), 4);
    assert_eq!(replay.wrote[0]["result"]["action"], "decline");
    assert_eq!(replay.wrote[2]["error"]["code"], -32601);
}

#[test]
fn several_questions_are_answered_together() {
    let mut replay = Replay::running();
    replay.wrote.clear();
    let questions = json!([
        {"id": "a", "header": "A", "question": "Which?", "options": [{"label": "x"}, {"label": "y"}]},
        {"id": "b", "header": "B", "question": "Key?", "isSecret": true, "options": null},
        {"id": "c", "header": "C", "question": "More?", "options": null},
    ]);
    replay.hear(&json!({"id": 3, "method": "item/tool/requestUserInput", "params": {"questions": questions}}));
    let kinds = replay.events.iter().filter_map(|event| match event {
        WorkerEvent::Asked { asking, .. } => Some((asking.question.clone(), asking.kind)),
        _ => None,
    });
    let kinds: Vec<_> = kinds.collect();
    let expected = [
        QuestionKind::Choice,
        QuestionKind::Secret,
        QuestionKind::Text,
    ];
    assert_eq!(
        kinds.iter().map(|(_, kind)| *kind).collect::<Vec<_>>(),
        expected
    );
    let replies = [
        Reply::Chosen("y".into()),
        Reply::Text(agentd_protocol::work::Private("s".into())),
        Reply::Cancelled,
    ];
    for ((question, _), reply) in kinds.into_iter().zip(replies) {
        assert!(replay.wrote.is_empty());
        replay.tell(&WorkerCommand::Answer { question, reply });
    }
    let answers = json!({"a": {"answers": ["y"]}, "b": {"answers": ["s"]}, "c": {"answers": []}});
    assert_eq!(
        replay.wrote,
        [json!({"id": 3, "result": {"answers": answers}})]
    );
}

#[test]
fn warning_of_every_turn_is_said_once() {
    let replay = played("text");
    let warnings = |event: &WorkerEvent| matches!(event, WorkerEvent::Noted { code: "worker", text, .. } if text.contains("mock-1"));
    assert_eq!(replay.count(warnings), 1);
}

#[test]
fn configuration_told_by_every_process_is_no_news() {
    let mut replay = Replay::bare(&spawn(None));
    replay.hear(&json!({"method": "configWarning", "params": {"summary": "no bwrap"}}));
    let logged = WorkerEvent::Logged {
        line: "no bwrap".to_owned(),
    };
    assert_eq!(replay.events, [logged]);
}

#[test]
fn a_picture_is_an_item_of_the_input() {
    let prompt = crate::adapter::attached::samples::prompt(Vec::new());
    let expected = json!([
        {"type": "text", "text": "look"},
        {"type": "image", "url": "data:image/png;base64,iVBORw=="},
    ]);
    assert_eq!(input(&prompt), expected);
}
