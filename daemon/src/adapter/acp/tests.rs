//! From the handshake to a turn's outcome, without an agent.

use super::replay::{Replay, pinned, spawn};
use super::*;
use crate::adapter::testing::{prompt, servers, servers_of_today};
use agentd_core::worker::{ContextUse, WorkerCommand};

#[test]
fn handshake_offers_nothing_and_opens_one_session() {
    let mut replay = Replay::begun(None);
    let capabilities = &replay.wrote[0]["params"]["clientCapabilities"];
    assert_eq!(
        capabilities,
        &json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false})
    );
    replay.initialized(true);
    assert!(replay.events.is_empty());
    replay.answer(&json!({"sessionId": "s1"}));
    assert_eq!(replay.written(), ["initialize", "session/new"]);
    assert!(
        matches!(&replay.events[..], [WorkerEvent::Ready(traits)] if traits.resumes == Some(true))
    );
    // A spare process has no session of the core's yet: it is named with the first turn.
    replay.tell(&prompt(1, "hi"));
    assert!(matches!(&replay.events[1], WorkerEvent::SessionNamed { native } if native == "s1"));
    assert_eq!(
        replay.wrote[2]["params"]["prompt"],
        json!([{"type": "text", "text": "hi"}])
    );
}

#[test]
fn agent_that_reopens_nothing_names_no_session() {
    let mut replay = Replay::begun(None);
    replay.initialized(false);
    replay.answer(&json!({"sessionId": "s1"}));
    replay.tell(&prompt(1, "hi"));
    assert!(
        matches!(&replay.events[..], [WorkerEvent::Ready(traits)] if traits.resumes == Some(false))
    );
}

#[test]
fn history_is_told_as_nobodys_text() {
    let mut replay = Replay::begun(Some("s1"));
    replay.initialized(true);
    assert_eq!(
        replay.wrote[1]["params"],
        json!({"sessionId": "s1", "cwd": "/w", "mcpServers": []})
    );
    replay.says("old");
    replay.answer(&json!({}));
    replay.says("older");
    replay.refuse(-32601, "no such method");
    for _ in 0..2 {
        assert!(replay.events.is_empty());
        replay.refuse(-32601, "no such method");
    }
    assert!(matches!(&replay.events[..], [WorkerEvent::Ready(_)]));
    replay.tell(&prompt(1, "hi"));
    replay.says("new");
    assert_eq!(replay.text(), "new");
}

#[test]
fn session_that_is_gone_is_noted_before_another() {
    let no_loads = |replay: &mut Replay| replay.initialized(false);
    let refuses = |replay: &mut Replay| {
        replay.initialized(true);
        replay.refuse(-32603, "no such session");
    };
    let knows_nothing = |replay: &mut Replay| {
        replay.initialized(true);
        replay.answer(&Value::Null);
    };
    for step in [no_loads, refuses, knows_nothing] {
        let mut replay = Replay::begun(Some("gone"));
        step(&mut replay);
        replay.answer(&json!({"sessionId": "s2"}));
        assert!(matches!(
            &replay.events[..],
            [
                WorkerEvent::Noted {
                    turn: None,
                    code: "context-lost",
                    ..
                },
                WorkerEvent::Ready(_)
            ]
        ));
        assert_eq!(replay.written().last(), Some(&"session/new"));
    }
}

#[test]
fn session_is_opened_with_servers_the_agent_takes() {
    for resume in [None, Some("s1")] {
        let begun = |mcp_servers, can: Value| {
            let mut replay = Replay::new(Acp::new(&Spawn {
                mcp_servers,
                ..spawn(resume)
            }));
            replay.tell(&WorkerCommand::Probe);
            replay.answer(&json!({"protocolVersion": 1, "agentCapabilities": can}));
            replay
        };
        let http = json!({"loadSession": true, "mcpCapabilities": {"http": true, "sse": false}});
        let replay = begun(servers_of_today(), http.clone());
        assert_eq!(
            replay.wrote.last().unwrap()["params"]["mcpServers"],
            json!([
                {"name": "files", "command": "mcp", "args": ["-v"], "env": [{"name": "KEY", "value": "hush"}]},
                {
                    "type": "http", "name": "web", "url": "https://a.example/mcp",
                    "headers": [{"name": "Authorization", "value": "hush"}],
                },
            ])
        );
        for (given, can, lacks) in [
            (servers(), http, "`sse`: `old`"),
            (servers_of_today(), json!({}), "`http`: `web`"),
        ] {
            let mut replay = begun(given, can);
            replay.tell(&prompt(1, "x"));
            let Some(WorkerEvent::Ended { outcome, .. }) = replay.events.last() else {
                panic!("{:?}", replay.events);
            };
            let refused = outcome.result.clone().unwrap_err();
            assert_eq!(refused.code, Code::Unsupported);
            assert!(refused.error.contains(lacks), "{refused:?}");
        }
    }
}

#[test]
fn login_missing_fails_with_the_ways_to_log() {
    for resume in [None, Some("s1")] {
        let mut replay = Replay::begun(resume);
        replay.initialized(true);
        replay.refuse(-32000, "Authentication required");
        assert!(
            matches!(&replay.events[..], [WorkerEvent::Ready(_)]),
            "{:?}",
            replay.events
        );
        replay.tell(&prompt(1, "hi"));
        assert_eq!(replay.failure().code, Code::AgentAuth);
        assert!(replay.failure().hint.as_ref().unwrap().contains("API key"));
        // The next turn gets another process.
        assert!(
            replay
                .events
                .iter()
                .any(|event| matches!(event, WorkerEvent::Spoilt { .. }))
        );
        assert_eq!(replay.wrote.len(), 2, "no `authenticate`");
    }
}

#[test]
fn version_that_is_not_spoken_fails_the_turn() {
    let mut replay = Replay::begun(None);
    replay.answer(&json!({"protocolVersion": 2}));
    replay.tell(&prompt(1, "hi"));
    assert_eq!(replay.failure().code, Code::Unsupported);
}

#[test]
fn model_and_level_are_set_before_the_prompt() {
    let option = |id: &str, category: &str, values: &[&str]| {
        let values: Vec<Value> = values
            .iter()
            .map(|value| json!({"value": value, "name": value}))
            .collect();
        json!({"id": id, "category": category, "type": "select", "currentValue": values[0]["value"], "options": values})
    };
    let options = json!([
        option("m", "model", &["p/one", "p/two"]),
        option("t", "thought_level", &["low", "high"])
    ]);
    let models = json!({"currentModelId": "p:one", "availableModels": [{"modelId": "p:one"}, {"modelId": "p:two"}]});
    for (level, offer, written) in [
        (
            "high",
            json!({"sessionId": "s1", "configOptions": options}),
            vec![
                (
                    "session/set_config_option",
                    json!({"sessionId": "s1", "configId": "m", "value": "p/two"}),
                ),
                (
                    "session/set_config_option",
                    json!({"sessionId": "s1", "configId": "t", "value": "high"}),
                ),
            ],
        ),
        (
            "",
            json!({"sessionId": "s1", "models": models}),
            vec![(
                "session/set_model",
                json!({"sessionId": "s1", "modelId": "p:two"}),
            )],
        ),
    ] {
        let mut replay = Replay::begun(None);
        replay.initialized(true);
        replay.answer(&offer);
        replay.wrote.clear();
        replay.tell(&pinned(1, "p", "two", level));
        for (at, (method, params)) in written.iter().enumerate() {
            assert_eq!(
                (&replay.wrote[at]["method"], &replay.wrote[at]["params"]),
                (&json!(method), params)
            );
            replay.answer(&json!({}));
        }
        assert_eq!(replay.written().last(), Some(&"session/prompt"));
        replay.answer(&json!({"stopReason": "end_turn"}));
        assert!(
            replay.outcomes()[0]
                .model
                .as_deref()
                .unwrap()
                .ends_with("two")
        );
        // What is set already isn't set again; a turn without a pin gets what was there at first.
        replay.wrote.clear();
        replay.tell(&pinned(2, "p", "two", level));
        assert_eq!(replay.written(), ["session/prompt"]);
        replay.answer(&json!({"stopReason": "end_turn"}));
        replay.tell(&prompt(3, "x"));
        let params = &replay.wrote.last().unwrap()["params"];
        assert!(params.to_string().contains("one"), "{params}");
    }
}

#[test]
fn model_that_is_unavailable_fails_without_another() {
    let mut replay = Replay::ready();
    replay.tell(&pinned(1, "p", "two", "low"));
    assert_eq!(replay.failure().code, Code::Unsupported);
    let mut replay = Replay::begun(None);
    replay.initialized(true);
    replay.answer(
        &json!({"sessionId": "s1", "models": {"currentModelId": "a", "availableModels": []}}),
    );
    replay.tell(&pinned(1, "", "two", ""));
    replay.refuse(-32602, "unknown model");
    assert!(replay.failure().error.contains("unknown model"));
    assert!(!replay.written().contains(&"session/prompt"));
}

#[test]
fn pin_not_offered_fails_with_the_offer() {
    let models = |names: [&str; 2]| {
        let offered = names.map(|name| json!({"modelId": name}));
        json!({"sessionId": "s1", "models": {"currentModelId": names[0], "availableModels": offered}})
    };
    let levels = json!({"sessionId": "s1", "configOptions": [
        {"id": "t", "category": "thought_level", "currentValue": "low", "options": [{"value": "low"}, {"value": "high"}]},
    ]});
    let bare = json!({"sessionId": "s1"});
    for (offer, (provider, model, thinking), said) in [
        (
            models(["a", "b"]),
            ("p", "b", ""),
            "provider `p`; it offers a, b",
        ),
        (
            models(["q/a", "q/b"]),
            ("p", "b", ""),
            "provider `p`; it offers q/a",
        ),
        (bare.clone(), ("p", "", ""), "no choice of a provider: `p`"),
        (bare.clone(), ("", "b", ""), "no choice of a model: `b`"),
        (
            bare,
            ("", "", "high"),
            "no choice of a thinking level: `high`",
        ),
        (
            levels,
            ("", "", "max"),
            "thinking level `max`; it offers low, high",
        ),
    ] {
        let mut replay = Replay::begun(None);
        replay.initialized(true);
        replay.answer(&offer);
        replay.tell(&pinned(1, provider, model, thinking));
        let failure = replay.failure();
        assert_eq!(failure.code, Code::Unsupported);
        assert!(failure.error.contains(said), "{}", failure.error);
        assert!(!replay.written().contains(&"session/prompt"), "{said}");
    }
}

#[test]
fn cached_tokens_are_part_of_the_input() {
    for (total, input) in [(107, 105), (7, 5), (110, 105), (10, 5)] {
        let mut replay = Replay::running();
        let usage = json!({"inputTokens": 5, "outputTokens": 2, "cachedReadTokens": 60,
            "cachedWriteTokens": 40, "thoughtTokens": 3, "totalTokens": total});
        replay.answer(&json!({"stopReason": "end_turn", "usage": usage}));
        assert_eq!(
            replay.outcomes()[0].usage.unwrap().input_tokens,
            input,
            "{total}"
        );
    }
}

#[test]
fn stop_reasons_and_usage_are_taken_over() {
    for (reason, stop) in [
        ("end_turn", Stop::EndTurn),
        ("max_tokens", Stop::MaxTokens),
        ("max_turn_requests", Stop::MaxTurnRequests),
        ("refusal", Stop::Refusal),
        ("cancelled", Stop::Cancelled),
        ("of_its_own", Stop::EndTurn),
    ] {
        let mut replay = Replay::running();
        let usage = json!({"inputTokens": 5, "outputTokens": 2, "totalTokens": 7});
        replay.answer(&json!({"stopReason": reason, "usage": usage}));
        assert_eq!(replay.outcomes()[0].result, Ok(stop));
        assert_eq!(replay.outcomes()[0].usage.unwrap().input_tokens, 5);
    }
    let mut replay = Replay::running();
    replay.answer(&json!({}));
    assert_eq!(replay.failure().code, Code::AgentFailed);
}

#[test]
fn commands_are_those_that_were_told_last() {
    let mut replay = Replay::running();
    let mut told = || {
        replay.tell(&WorkerCommand::Commands { number: 7 });
        match replay.events.pop() {
            Some(WorkerEvent::Commands { number: 7, result }) => result.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let list = told();
    assert!(list.rows.is_empty() && list.note.unwrap().contains("so far"));
    let commands =
        json!([{"name": "plan", "description": "d", "input": {"hint": "what"}}, {"name": 7}]);
    replay.update(
        &json!({"sessionUpdate": "available_commands_update", "availableCommands": commands}),
    );
    replay.tell(&WorkerCommand::Commands { number: 8 });
    let Some(WorkerEvent::Commands {
        result: Ok(list), ..
    }) = replay.events.pop()
    else {
        panic!("no list");
    };
    let [row] = &list.rows[..] else {
        panic!("{list:?}");
    };
    assert_eq!(
        (row.name.as_str(), row.hint.as_deref()),
        ("plan", Some("what"))
    );
    assert_eq!(list.note, None);
}

#[test]
fn cost_of_a_turn_is_the_sessions_increase() {
    let mut replay = Replay::running();
    for (turn, amount, usd) in [(1, 0.25, Some(0.25)), (2, 1.0, Some(0.75)), (3, 1.0, None)] {
        replay.update(&json!({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": amount, "currency": "USD"}}));
        replay.answer(&json!({"stopReason": "end_turn"}));
        let outcome = replay.outcomes()[turn - 1];
        assert_eq!(outcome.cost.usd, usd);
        assert_eq!(outcome.context, ContextUse::known(Some(1), Some(2)));
        replay.tell(&prompt(turn as u64 + 1, "x"));
    }
}

#[test]
fn errors_are_told_apart_by_their_words() {
    for (number, message, code) in [
        (-32000, "x", Code::AgentAuth),
        (401, "x", Code::AgentAuth),
        (-32603, "Internal error: mock error 401", Code::AgentAuth),
        (429, "x", Code::RateLimit),
        (-32603, "Internal error: quota exceeded", Code::RateLimit),
        (
            400,
            "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            Code::ContextOverflow,
        ),
        (500, "x", Code::AgentFailed),
        (-32603, "", Code::AgentFailed),
    ] {
        let mut replay = Replay::running();
        replay.refuse(number, message);
        assert_eq!(replay.failure().code, code, "{number} {message}");
    }
}

#[test]
fn session_is_lost_by_words_of_absence_only() {
    let service = |data: Value| json!({"code": -32603, "message": "Internal error: OpenCode service failure", "data": data});
    let internal = |details: &str| json!({"code": -32603, "message": "Internal error", "data": {"details": details}});
    let said = |code: i64, message: &str| json!({"code": code, "message": message});
    for (error, code) in [
        // Of ACP, of Gemini CLI 0.61.0, of opencode 1.18.33, of others.
        (said(-32002, "Resource not found: s1"), None),
        (
            internal("No previous sessions found for this project."),
            None,
        ),
        (internal("Invalid session identifier \"s1\"."), None),
        (service(json!({"service": "session"})), None),
        (said(-32602, "Invalid params: session not found: s1"), None),
        (said(-32603, "Session s1 does not exist"), None),
        (said(-32603, "Unknown session"), None),
        (
            service(json!({"service": "session", "errorName": "APIError"})),
            Some(Code::AgentFailed),
        ),
        (
            service(json!({"service": "directory"})),
            Some(Code::AgentFailed),
        ),
        (internal("fetch failed"), Some(Code::AgentFailed)),
        (said(-32603, ""), Some(Code::AgentFailed)),
        (
            said(-32602, "Invalid params: model not found: m"),
            Some(Code::AgentFailed),
        ),
        (
            said(-32601, "Method not found: session/load"),
            Some(Code::AgentFailed),
        ),
        (
            said(-32603, "unknown error while loading the session"),
            Some(Code::AgentFailed),
        ),
        (
            said(-32603, "could not load the session: timeout"),
            Some(Code::AgentFailed),
        ),
        (
            said(-32603, "could not load the session: /w does not exist"),
            Some(Code::AgentFailed),
        ),
        (said(429, "session not found"), Some(Code::RateLimit)),
    ] {
        let mut replay = Replay::begun(Some("s1"));
        replay.initialized(true);
        replay.hear(&json!({"jsonrpc": "2.0", "id": replay.last_id(), "error": error}));
        let Some(code) = code else {
            assert_eq!(replay.written().last(), Some(&"session/new"), "{error}");
            continue;
        };
        replay.tell(&prompt(1, "hi"));
        assert_eq!(replay.written(), ["initialize", "session/load"], "{error}");
        let [
            WorkerEvent::Ready(_),
            WorkerEvent::Spoilt { .. },
            WorkerEvent::Ended { .. },
        ] = &replay.events[..]
        else {
            panic!("{error}: {:?}", replay.events)
        };
        assert_eq!(replay.failure().code, code, "{error}");
    }
}

#[test]
fn what_real_agents_said_is_understood() {
    for file in [
        "gemini-0.61.0.jsonl",
        "opencode-1.18.33.jsonl",
        "hermes-0.19.0.jsonl",
    ] {
        let replays = Replay::of(file);
        let first = &replays[0];
        let results: Vec<_> = first
            .outcomes()
            .iter()
            .map(|outcome| outcome.result.clone())
            .collect();
        let stops: Vec<_> = results
            .iter()
            .filter_map(|result| result.clone().ok())
            .collect();
        assert!(
            stops.starts_with(&[Stop::EndTurn, Stop::EndTurn]),
            "{file}: {results:?}"
        );
        assert!(stops.contains(&Stop::Cancelled), "{file}: {results:?}");
        for failure in results.iter().filter_map(|result| result.clone().err()) {
            assert_eq!(failure.code, Code::AgentAuth, "{file}: {failure:?}");
        }
        assert!(
            first.outcomes()[0].usage.unwrap().output_tokens > 0,
            "{file}"
        );
        let count = |wanted: fn(&WorkerEvent) -> bool| {
            first.events.iter().filter(|event| wanted(event)).count()
        };
        let asked = count(|event| matches!(event, WorkerEvent::Asked { .. }));
        let started = count(|event| matches!(event, WorkerEvent::ToolStarted { .. }));
        let ended = count(|event| matches!(event, WorkerEvent::ToolEnded { .. }));
        assert!(
            asked >= 2 && started >= 1 && ended <= started,
            "{file}: {asked} {started} {ended}"
        );
        let strange = count(|event| {
            matches!(
                event,
                WorkerEvent::Logged { .. } | WorkerEvent::Noted { .. }
            )
        });
        assert_eq!(strange, 0, "{file}");
        // Nothing of the history is text.
        if let Some(second) = replays.get(1) {
            assert!(!second.text().contains("echo: hello"), "{file}");
        }
    }
}
