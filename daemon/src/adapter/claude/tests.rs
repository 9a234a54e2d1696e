//! What the adapter makes of recorded conversations.

use agentd_core::store::Pins;
use agentd_core::worker::{ContextUse, QuestionKind, Reply, Steering, WorkerCommand, WorkerEvent};
use agentd_protocol::line::{CostStatus, Level};

use super::replay::{CANCEL, Replay, steer};
use super::*;
use crate::adapter::Adapter as _;
use crate::adapter::testing::{Record, answer, compact, prompt, servers, spawn};

/// Did the agent say this?
fn is(kind: &str) -> impl Fn(&Record) -> bool + use<'_> {
    move |record| {
        let line = &record.value;
        let kinds = [&line["type"], &line["subtype"], &line["event"]["type"]];
        !record.ours && kinds.iter().any(|named| **named == kind)
    }
}

fn steered(number: u64, steering: &Steering) -> impl Fn(&WorkerEvent) -> bool + use<'_> {
    move |event| matches!(event, WorkerEvent::Steered { steer: found, steering: how } if *found == number && how == steering)
}

#[test]
fn settings_become_flags_or_variables() {
    let command = ["/bin/claude".to_owned()];
    let wire = "-p --verbose --include-partial-messages --input-format stream-json --output-format stream-json --permission-prompt-tool stdio";
    let bare = launch(&command, &spawn());
    assert_eq!(bare.argv.join(" "), format!("/bin/claude {wire}"));
    let full = Spawn {
        provider: Some("bedrock".into()),
        model: Some("m".into()),
        thinking: Some("high".into()),
        mode: Some("plan".into()),
        toolsets: Some(vec!["Read".into(), "Grep".into()]),
        resume: Some("s-1".into()),
        ..spawn()
    };
    let launched = launch(&command, &full);
    assert_eq!(
        launched.argv.join(" "),
        format!(
            "/bin/claude {wire} --model m --permission-mode plan --resume s-1 --tools Read,Grep --effort high"
        )
    );
    let copy = Spawn {
        resume: Some("s-1".into()),
        forks: true,
        ..spawn()
    };
    let argv = launch(&command, &copy).argv;
    assert_eq!(
        argv[argv.len() - 3..],
        ["--resume", "s-1", "--fork-session"]
    );
    for (toolsets, tools) in [
        (
            vec!["terminal".to_owned(), "web".to_owned()],
            "Bash,WebFetch,WebSearch",
        ),
        (Vec::new(), ""),
    ] {
        let spawn = Spawn {
            toolsets: Some(toolsets),
            ..spawn()
        };
        let argv = launch(&command, &spawn).argv;
        assert_eq!(argv[argv.len() - 2..], ["--tools", tools]);
    }
    let has = |launch: &Launch, name: &str| launch.env.iter().any(|(known, _)| known == name);
    assert!(has(&launched, "CLAUDE_CODE_USE_BEDROCK"));
    assert!(!has(&bare, "CLAUDE_CODE_USE_BEDROCK"));
    for thinking in ["off", "none"] {
        let thinking = Some(thinking.into());
        let launched = launch(
            &command,
            &Spawn {
                thinking,
                ..spawn()
            },
        );
        assert!(has(&launched, "CLAUDE_CODE_DISABLE_THINKING"));
    }
}

#[test]
fn handshake_answered_in_any_way_is_ready() {
    let mut replay = Replay::of("say");
    replay.tell(&WorkerCommand::Probe);
    replay.play();
    assert!(matches!(replay.events[..], [WorkerEvent::Ready(_)]));
    replay.events.clear();
    replay.tell(&WorkerCommand::Probe);
    let id = replay.wrote[1]["request_id"].clone();
    replay.hear(&json!({"type": "control_response", "response": {"subtype": "error", "request_id": id, "error": "no"}}));
    assert!(matches!(replay.events[..], [WorkerEvent::Ready(_)]));
}

#[test]
fn an_answer_arrives_as_deltas_and_ends_once() {
    let mut replay = Replay::turn("say");
    replay.play();
    assert_eq!(replay.text(), "echo: hello [[think]]");
    let thought = |event: &WorkerEvent| matches!(event, WorkerEvent::Thinking { .. });
    assert_eq!(replay.count(thought), 2);
    let named = |event: &WorkerEvent| matches!(event, WorkerEvent::SessionNamed { native } if native.len() == 36);
    assert_eq!(replay.count(named), 1);
    let outcome = replay.outcome();
    assert_eq!(outcome.result, Ok(Stop::EndTurn));
    assert_eq!(outcome.text.as_deref(), Some("echo: hello [[think]]"));
    assert_eq!(outcome.model.as_deref(), Some("mock-1"));
    assert_eq!(outcome.provider.as_deref(), Some("anthropic"));
    let usage = outcome.usage.unwrap();
    // Claude counts the twelve without the seven.
    assert_eq!((usage.input_tokens, usage.output_tokens), (19, 30));
    assert_eq!((usage.cache_read_tokens, usage.cache_write_tokens), (5, 2));
    assert_eq!(outcome.cost.status, CostStatus::Estimated);
    assert_eq!(outcome.api_calls.as_ref().unwrap().len(), 1);
    // This version doesn't say how much fits into a model that it doesn't know.
    assert_eq!(outcome.context, ContextUse::known(Some(49), None));
    let first = outcome.cost.usd.unwrap();
    replay.events.clear();
    replay.tell(&prompt(2, "again"));
    replay.play();
    // What the agent says is the sum of both.
    assert!((replay.outcome().cost.usd.unwrap() - first).abs() < 1e-9);
}

#[test]
fn cost_of_a_flat_plan_is_not_told() {
    for (key, status) in [
        ("none", CostStatus::Included),
        ("/login managed key", CostStatus::Estimated),
    ] {
        let mut replay = Replay::bare();
        replay.tell(&WorkerCommand::Probe);
        let account = json!({"subscriptionType": "max", "apiKeySource": key});
        let response =
            json!({"subtype": "success", "request_id": "a1", "response": {"account": account}});
        replay.hear(&json!({"type": "control_response", "response": response}));
        replay.tell(&prompt(1, "x"));
        replay.hear(
            &json!({"type": "result", "subtype": "success", "result": "y", "total_cost_usd": 0.5}),
        );
        let cost = &replay.outcome().cost;
        assert_eq!(cost.status, status);
        assert_eq!(cost.usd.is_some(), status == CostStatus::Estimated);
    }
}

#[test]
fn tool_is_asked_for_runs_and_is_told() {
    let mut replay = Replay::turn("tool");
    replay.play_until(is("control_request"));
    let asking = replay.events.iter().find_map(|event| match event {
        WorkerEvent::Asked { asking, .. } => Some(asking.clone()),
        _ => None,
    });
    let asking = asking.unwrap();
    assert_eq!(asking.kind, QuestionKind::Approval);
    assert_eq!(asking.title, "Bash: touch g-file");
    assert!(
        asking
            .detail
            .unwrap()
            .contains("\"description\": \"Make a file\"")
    );
    replay.tell(&answer(&asking.question, Reply::Approved));
    // Allowed is what was asked about, and nothing else.
    let allowed = &replay.wrote.last().unwrap()["response"]["response"];
    let input = json!({"command": "touch g-file", "description": "Make a file"});
    assert_eq!(allowed["updatedInput"], input);
    replay.play();
    assert_eq!(replay.outcome().result, Ok(Stop::EndTurn));
    assert_eq!(replay.outcome().api_calls.as_ref().unwrap().len(), 2);
    let calls: Vec<String> = replay
        .events
        .iter()
        .filter_map(|event| match event {
            WorkerEvent::ToolStarted { name, input, .. } => Some(format!("{name} {input}")),
            WorkerEvent::ToolEnded { ok, output, .. } => Some(format!("{ok} {output}")),
            _ => None,
        })
        .collect();
    let input = r#"Bash {"command":"touch g-file","description":"Make a file"}"#;
    assert_eq!(calls, [input, "true (Bash completed with no output)"]);
    // The second one is denied.
    replay.events.clear();
    replay.tell(&prompt(2, "more"));
    replay.play_until(is("control_request"));
    let Some(WorkerEvent::Asked { asking, .. }) = replay.events.last().cloned() else {
        panic!("{:#?}", replay.events);
    };
    replay.tell(&answer(&asking.question, Reply::Denied));
    assert_eq!(
        replay.wrote.last().unwrap()["response"]["response"]["behavior"],
        "deny"
    );
    replay.play();
    let failed = |event: &WorkerEvent| matches!(event, WorkerEvent::ToolEnded { ok: false, .. });
    assert_eq!(replay.count(failed), 1);
}

#[test]
fn question_cuts_long_values_but_never_a_command() {
    let long = "é".repeat(10_000);
    let mut replay = Replay::bare();
    replay.tell(&prompt(1, "x"));
    for (field, whole) in [("content", false), ("command", true)] {
        let input = json!({field: long});
        replay.hear(&json!({"type": "control_request", "request_id": field, "request": {"subtype": "can_use_tool", "tool_name": "Write", "input": input}}));
        let Some(WorkerEvent::Asked { asking, .. }) = replay.events.last() else {
            panic!("{:?}", replay.events);
        };
        assert_eq!(asking.detail.as_ref().unwrap().len() > 20_000, whole);
        assert!(asking.title.len() < 300);
    }
}

#[test]
fn a_choice_goes_back_with_its_question() {
    let mut replay = Replay::turn("choice");
    replay.play_until(is("control_request"));
    let Some(WorkerEvent::Asked { asking, .. }) = replay.events.last().cloned() else {
        panic!("{:#?}", replay.events);
    };
    assert_eq!(asking.kind, QuestionKind::Choice);
    assert_eq!(asking.title, "Which colour?");
    assert_eq!(asking.options, ["red", "blue"]);
    assert_eq!(asking.detail.as_deref(), Some("red: hot\nblue: cold"));
    replay.tell(&answer(&asking.question, Reply::Chosen("blue".into())));
    let reply = replay.wrote.last().unwrap()["response"]["response"].clone();
    assert_eq!(reply["behavior"], "allow");
    assert_eq!(
        reply["updatedInput"]["answers"],
        json!({"Which colour?": "blue"})
    );
    replay.play();
    assert_eq!(replay.outcome().result, Ok(Stop::EndTurn));
}

#[test]
fn abort_waits_for_the_run_and_cancels_it() {
    let mut replay = Replay::turn("interrupt");
    replay.tell(&CANCEL);
    replay.tell(&CANCEL);
    assert_eq!(replay.written(), ["initialize", "user"]);
    replay.play_until(is("init"));
    assert_eq!(replay.written(), ["initialize", "user", "interrupt"]);
    replay.play();
    let outcome = replay.outcome();
    assert_eq!(outcome.result, Ok(Stop::Cancelled));
    assert_eq!(outcome.usage, None, "zeros are not what it used");
    replay.events.clear();
    replay.tell(&prompt(2, "hi"));
    replay.play();
    assert_eq!(replay.outcome().result, Ok(Stop::EndTurn));
}

#[test]
fn steering_is_taken_in_the_middle_of_tools() {
    let mut replay = Replay::turn("steer-tool");
    replay.tell(&steer(7));
    assert_eq!(
        replay.written(),
        ["initialize", "user"],
        "the run is not seen"
    );
    // The recording's word came later than the adapter's, behind an approval.
    replay.events.clear();
    let mut replay = Replay::turn("steer-tool");
    replay.play_until(is("control_request"));
    let Some(WorkerEvent::Asked { asking, .. }) = replay.events.last().cloned() else {
        panic!("{:#?}", replay.events);
    };
    replay.tell(&answer(&asking.question, Reply::Approved));
    replay.play_until(is("message_stop"));
    replay.tell(&steer(7));
    replay.play_until(is("user"));
    assert_eq!(replay.count(steered(7, &Steering::Taken)), 0);
    replay.play();
    assert_eq!(replay.count(steered(7, &Steering::Taken)), 1);
    assert!(replay.outcomes().is_empty());
}

#[test]
fn steering_untaken_is_answered_in_the_same_turn() {
    let mut replay = Replay::turn("steer-late");
    replay.play_until(is("content_block_delta"));
    replay.tell(&steer(7));
    replay.play_until(is("result"));
    assert!(replay.outcomes().is_empty(), "another run follows");
    replay.play();
    assert_eq!(replay.count(steered(7, &Steering::Taken)), 1);
    let outcome = replay.outcome();
    assert_eq!(outcome.text.as_deref(), Some("echo: WORD"));
    assert_eq!(outcome.usage.unwrap().output_tokens, 60);
    assert_eq!(outcome.api_calls.as_ref().unwrap().len(), 2);
}

#[test]
fn turn_between_runs_ends_without_the_second() {
    let mut replay = Replay::turn("steer-late");
    replay.play_until(is("content_block_delta"));
    replay.tell(&steer(7));
    replay.play_until(is("result"));
    let id = replay.wrote.last().unwrap()["uuid"].clone();
    replay.hear(&json!({"type": "command_lifecycle", "command_uuid": id, "state": "cancelled"}));
    assert_eq!(replay.count(steered(7, &Steering::TooLate)), 1);
    assert!(replay.outcome().text.as_ref().unwrap().starts_with("w0 w1"));
}

#[test]
fn a_cancelled_run_takes_its_words_along() {
    let mut replay = Replay::turn("steer-stop");
    replay.play_until(is("content_block_delta"));
    replay.tell(&steer(7));
    replay.tell(&CANCEL);
    assert_eq!(
        replay.written()[2..],
        ["user", "cancel_async_message", "interrupt"]
    );
    assert_eq!(replay.count(steered(7, &Steering::TooLate)), 1);
    replay.play();
    assert_eq!(replay.outcome().result, Ok(Stop::Cancelled));
    let spoilt = |event: &WorkerEvent| matches!(event, WorkerEvent::Spoilt { .. });
    assert_eq!(replay.count(spoilt), 0);
}

#[test]
fn errors_have_the_codes_of_the_protocol() {
    for (name, code) in [
        ("error-401", Code::AgentAuth),
        ("overflow", Code::ContextOverflow),
    ] {
        let mut replay = Replay::turn(name);
        replay.play();
        let failure = replay.outcome().result.clone().unwrap_err();
        assert_eq!(failure.code, code, "{failure:?}");
        assert_eq!(replay.text(), "", "an error is no answer");
    }
    for (fields, code) in [
        (json!({"api_error_status": 429}), Code::RateLimit),
        (json!({"api_error_status": 529}), Code::RateLimit),
        (json!({"api_error_status": 403}), Code::AgentAuth),
        (json!({"api_error_status": 500}), Code::AgentFailed),
        (json!({"result": "API Error: 429 {}"}), Code::RateLimit),
        (
            json!({"result": "Not logged in · Please run /login"}),
            Code::AgentAuth,
        ),
        (
            json!({"subtype": "error_max_budget_usd", "errors": ["spent"]}),
            Code::AgentFailed,
        ),
    ] {
        let mut replay = Replay::bare();
        replay.tell(&prompt(1, "x"));
        let mut line = json!({"type": "result", "subtype": "success", "is_error": true});
        line.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        replay.hear(&line);
        let failure = replay.outcome().result.clone().unwrap_err();
        assert_eq!(failure.code, code, "{fields}");
    }
}

#[test]
fn session_that_is_gone_is_noted_before_ready() {
    let mut replay = Replay::of("resume-gone");
    let resume = Some("54295bc1".into());
    replay.adapter = Claude::new(&Spawn { resume, ..spawn() });
    replay.tell(&WorkerCommand::Probe);
    replay.play();
    let [
        WorkerEvent::Noted {
            turn: None,
            level: Level::Warning,
            code: "context-lost",
            ..
        },
    ] = &replay.events[..]
    else {
        panic!("{:?}", replay.events);
    };
}

#[test]
fn an_exit_without_a_session_says_so() {
    let tail = "No conversation found with session ID: 54295bc1";
    let resume = Some("54295bc1".to_owned());
    for (resume, noted) in [(resume, 1), (None, 0)] {
        let mut claude = Claude::new(&Spawn { resume, ..spawn() });
        let mut events = Vec::new();
        claude.exited(Exit::Code(1), tail, &mut events);
        assert_eq!(events.len(), noted);
    }
}

#[test]
fn a_compaction_is_answered_with_its_summary() {
    let mut replay = Replay::turn("compact");
    replay.play();
    replay.tell(&prompt(2, "two"));
    replay.play();
    replay.events.clear();
    let compact = compact(None);
    replay.tell(&compact);
    assert_eq!(
        replay.wrote.last().unwrap()["message"]["content"],
        "/compact"
    );
    replay.tell(&compact);
    replay.play();
    let [
        WorkerEvent::Compacted { result: Err(busy) },
        WorkerEvent::Compacted {
            result: Ok(Some(summary)),
        },
    ] = &replay.events[..]
    else {
        panic!("{:#?}", replay.events);
    };
    assert_eq!(busy.code, Code::SessionBusy);
    assert!(
        summary.starts_with("This session is being continued"),
        "{summary}"
    );
    replay.tell(&prompt(3, "hi"));
    replay.play();
    assert_eq!(replay.outcomes().len(), 1);
}

#[test]
fn command_of_its_own_is_answered_without_models() {
    let mut replay = Replay::turn("slash");
    replay.play();
    assert!(
        replay.text().starts_with("Estimated cost"),
        "{}",
        replay.text()
    );
    assert_eq!(replay.outcome().result, Ok(Stop::EndTurn));
    replay.tell(&prompt(2, "/clear"));
    replay.play();
    let named = |event: &WorkerEvent| matches!(event, WorkerEvent::SessionNamed { .. });
    assert_eq!(replay.count(named), 2, "it has a new session now");
}

fn pins(provider: Option<&str>, model: Option<&str>, thinking: Option<&str>) -> WorkerCommand {
    let own = |pin: Option<&str>| pin.map(str::to_owned);
    WorkerCommand::Switch(Box::new(Pins {
        provider: own(provider),
        model: own(model),
        thinking: own(thinking),
        mode: None,
    }))
}

pub(super) fn switched(replay: &Replay) -> Option<bool> {
    let last = replay.events.iter().rev();
    let mut told = last.filter_map(|event| match event {
        WorkerEvent::Switched(has_them) => Some(*has_them),
        _ => None,
    });
    told.next()
}

#[test]
fn model_and_level_are_changed_by_words() {
    let mut replay = Replay::bare();
    let answers = |replay: &mut Replay, at: usize, subtype: &str| {
        let id = replay.wrote[at]["request_id"].clone();
        let response = json!({"subtype": subtype, "request_id": id});
        replay.hear(&json!({"type": "control_response", "response": response}));
    };
    replay.tell(&pins(None, Some("m"), Some("minimal")));
    let asked = |at: usize, replay: &Replay| replay.wrote[at]["request"].clone();
    let model = json!({"subtype": "set_model", "model": "m"});
    assert_eq!(asked(0, &replay), model);
    let level = json!({"subtype": "apply_flag_settings", "settings": {"effortLevel": "low"}});
    assert_eq!(asked(1, &replay), level);
    answers(&mut replay, 0, "success");
    assert_eq!(switched(&replay), None);
    answers(&mut replay, 1, "success");
    assert_eq!(switched(&replay), Some(true));
    // What it has is not asked for again.
    replay.tell(&pins(None, Some("n"), Some("minimal")));
    assert_eq!(replay.wrote.len(), 3);
    answers(&mut replay, 2, "error");
    assert_eq!(switched(&replay), Some(false));
}

#[test]
fn what_is_a_variable_takes_a_new_process() {
    for (provider, model, thinking) in [
        (Some("bedrock"), Some("m"), None),
        (None, Some("m"), Some("off")),
    ] {
        let mut replay = Replay::bare();
        replay.tell(&pins(provider, model, thinking));
        assert_eq!(switched(&replay), Some(false));
        assert_eq!(replay.wrote.len(), 0);
    }
}

#[test]
fn servers_of_its_session_are_brought_when_starting() {
    let told = Spawn {
        mcp_servers: servers(),
        ..spawn()
    };
    let argv = launch(&["/bin/claude".to_owned()], &told).argv.join(" ");
    assert!(!argv.contains("mcp"), "{argv}");
    let begun = |answer: Value| {
        let mut replay = Replay::new(Claude::new(&told));
        replay.tell(&WorkerCommand::Probe);
        let success = |id: &str, response: Value| {
            let response = json!({"subtype": "success", "request_id": id, "response": response});
            json!({"type": "control_response", "response": response})
        };
        replay.hear(&success("a1", json!({"models": []})));
        // Not ready before it has tried them.
        assert_eq!(replay.events, []);
        let asked = replay.wrote.last().unwrap();
        assert_eq!(asked["request"]["subtype"], "mcp_set_servers");
        let files = &asked["request"]["servers"]["files"];
        assert_eq!(
            *files,
            json!({"type": "stdio", "command": "mcp", "args": ["-v"], "env": {"KEY": "hush"}})
        );
        assert_eq!(asked["request"]["servers"]["old"]["type"], "sse");
        match answer {
            Value::Null => {
                let error =
                    json!({"subtype": "error", "request_id": "a2", "error": "no such request"});
                replay.hear(&json!({"type": "control_response", "response": error}));
            }
            answer => replay.hear(&success("a2", answer)),
        }
        replay
    };
    let replay = begun(json!({"added": ["files"], "errors": {"web": "hush"}}));
    let [
        WorkerEvent::Noted {
            code: "mcp", text, ..
        },
        WorkerEvent::Ready(_),
    ] = &replay.events[..]
    else {
        panic!("{:?}", replay.events);
    };
    assert!(text.ends_with("of the session: `web`"), "{text}");
    let replay = begun(json!({"added": ["files"], "errors": {}}));
    assert!(matches!(replay.events[..], [WorkerEvent::Ready(_)]));
    // An older one, which doesn't know the request.
    let mut replay = begun(Value::Null);
    replay.tell(&prompt(1, "x"));
    let Some(WorkerEvent::Ended { outcome, .. }) = replay.events.last() else {
        panic!("{:?}", replay.events);
    };
    assert_eq!(outcome.result.clone().unwrap_err().code, Code::Unsupported);
}
