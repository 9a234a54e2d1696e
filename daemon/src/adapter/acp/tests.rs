//! From the handshake to a turn's outcome, without an agent.

use agentd_core::attached::Attachments;
use agentd_core::worker::Reply;
use agentd_protocol::JobId;
use serde_json::json;

use super::*;

/// A translator with what it told and wrote so far.
pub(super) struct Talk {
    pub(super) acp: Acp,
    pub(super) events: Vec<WorkerEvent>,
    pub(super) wrote: Vec<Value>,
}

pub(super) fn spawn(resume: Option<&str>) -> Spawn {
    Spawn {
        agent: "it".into(),
        cwd: "/w".into(),
        provider: None,
        model: None,
        thinking: None,
        toolsets: None,
        session: None,
        resume: resume.map(str::to_owned),
        prompt: None,
    }
}

pub(super) fn prompt(turn: u64, text: &str) -> WorkerCommand {
    WorkerCommand::Prompt(Box::new(Prompt {
        turn: TurnId(turn),
        job: JobId(1),
        session: "main".into(),
        text: text.into(),
        attachments: Attachments::None,
        provider: None,
        model: None,
        thinking: None,
        fallback_chain: None,
        native: None,
        cwd: "/w".into(),
        toolsets: None,
    }))
}

/// A turn with pins; an empty one is none.
pub(super) fn pinned(turn: u64, provider: &str, model: &str, thinking: &str) -> WorkerCommand {
    let pin = |value: &str| Some(value.to_owned()).filter(|value| !value.is_empty());
    let WorkerCommand::Prompt(prompt) = prompt(turn, "x") else {
        unreachable!()
    };
    WorkerCommand::Prompt(Box::new(Prompt {
        provider: pin(provider),
        model: pin(model),
        thinking: pin(thinking),
        fallback_chain: None,
        native: None,
        ..*prompt
    }))
}

impl Talk {
    pub(super) fn begun(resume: Option<&str>) -> Self {
        let mut talk = Self {
            acp: Acp::new(&spawn(resume)),
            events: Vec::new(),
            wrote: Vec::new(),
        };
        talk.tell(&WorkerCommand::Probe);
        talk
    }

    /// An agent that reopens sessions, with a new one.
    pub(super) fn ready() -> Self {
        let mut talk = Self::begun(None);
        talk.initialized(true);
        talk.answer(&json!({"sessionId": "s1"}));
        assert!(matches!(talk.events.pop(), Some(WorkerEvent::Ready(_))));
        talk.wrote.clear();
        talk
    }

    /// The same with a turn in flight.
    pub(super) fn running() -> Self {
        let mut talk = Self::ready();
        talk.tell(&prompt(1, "x"));
        talk.events.clear();
        talk
    }

    pub(super) fn initialized(&mut self, loads: bool) {
        self.answer(&json!({
            "protocolVersion": 1,
            "agentCapabilities": {"loadSession": loads},
            "agentInfo": {"name": "mock", "version": "1"},
            "authMethods": [{"id": "key", "name": "API key"}],
        }));
    }

    pub(super) fn tell(&mut self, command: &WorkerCommand) {
        let mut write = Vec::new();
        self.acp.encode(command, &mut self.events, &mut write);
        self.written(&write);
    }

    pub(super) fn hear_raw(&mut self, line: &[u8]) {
        let mut write = Vec::new();
        self.acp.decode(line, &mut self.events, &mut write);
        self.written(&write);
    }

    pub(super) fn hear(&mut self, line: &Value) {
        self.hear_raw(line.to_string().as_bytes());
    }

    fn written(&mut self, write: &[u8]) {
        let text = std::str::from_utf8(write).unwrap();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["jsonrpc"], "2.0", "{line}");
            self.wrote.push(line);
        }
    }

    pub(super) fn last_id(&self) -> Value {
        let asked = self
            .wrote
            .iter()
            .rev()
            .find(|line| line["method"].is_string() && line["id"].is_u64());
        asked.unwrap()["id"].clone()
    }

    /// The agent answers the last request.
    pub(super) fn answer(&mut self, result: &Value) {
        self.hear(&json!({"jsonrpc": "2.0", "id": self.last_id(), "result": result}));
    }

    pub(super) fn refuse(&mut self, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.hear(&json!({"jsonrpc": "2.0", "id": self.last_id(), "error": error}));
    }

    pub(super) fn update(&mut self, update: &Value) {
        let params = json!({"sessionId": "s1", "update": update});
        self.hear(&json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    pub(super) fn says(&mut self, text: &str) {
        self.update(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}));
    }

    pub(super) fn permission(&mut self, id: &Value, call: &str, kinds: &[&str]) {
        let option =
            |kind: &&str| json!({"optionId": format!("o-{kind}"), "name": kind, "kind": kind});
        let options: Vec<Value> = kinds.iter().map(option).collect();
        let tool = json!({"toolCallId": call, "title": "run it", "kind": "execute", "rawInput": {"command": "ls"}});
        let params = json!({"sessionId": "s1", "toolCall": tool, "options": options});
        self.hear(&json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}));
    }

    pub(super) fn reply(&mut self, question: &str, reply: Reply) {
        let question = question.to_owned();
        self.tell(&WorkerCommand::Answer { question, reply });
    }

    pub(super) fn methods(&self) -> Vec<&str> {
        let methods = self.wrote.iter().map(|line| line["method"].as_str());
        methods.map(|method| method.unwrap_or("-")).collect()
    }

    pub(super) fn outcomes(&self) -> Vec<&Outcome> {
        let ended = self.events.iter().filter_map(|event| match event {
            WorkerEvent::Ended { outcome, .. } => Some(&**outcome),
            _ => None,
        });
        ended.collect()
    }

    pub(super) fn text(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            WorkerEvent::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    pub(super) fn failure(&self) -> &Failure {
        self.outcomes()[0].result.as_ref().unwrap_err()
    }
}

#[test]
fn the_handshake_offers_no_files_and_no_terminals_and_opens_one_session() {
    let mut talk = Talk::begun(None);
    let capabilities = &talk.wrote[0]["params"]["clientCapabilities"];
    assert_eq!(
        capabilities,
        &json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false})
    );
    talk.initialized(true);
    assert!(talk.events.is_empty());
    talk.answer(&json!({"sessionId": "s1"}));
    assert_eq!(talk.methods(), ["initialize", "session/new"]);
    assert!(
        matches!(&talk.events[..], [WorkerEvent::Ready(traits)] if traits.resumes == Some(true))
    );
    // A spare process has no session of the core's yet: it is named with the first turn.
    talk.tell(&prompt(1, "hi"));
    assert!(matches!(&talk.events[1], WorkerEvent::SessionNamed { native } if native == "s1"));
    assert_eq!(
        talk.wrote[2]["params"]["prompt"],
        json!([{"type": "text", "text": "hi"}])
    );
}

#[test]
fn an_agent_that_reopens_nothing_says_so_and_names_no_session() {
    let mut talk = Talk::begun(None);
    talk.initialized(false);
    talk.answer(&json!({"sessionId": "s1"}));
    talk.tell(&prompt(1, "hi"));
    assert!(
        matches!(&talk.events[..], [WorkerEvent::Ready(traits)] if traits.resumes == Some(false))
    );
}

#[test]
fn history_is_nobodys_text_whether_it_comes_before_the_answer_or_after() {
    let mut talk = Talk::begun(Some("s1"));
    talk.initialized(true);
    assert_eq!(
        talk.wrote[1]["params"],
        json!({"sessionId": "s1", "cwd": "/w", "mcpServers": []})
    );
    talk.says("old");
    talk.answer(&json!({}));
    talk.says("older");
    talk.refuse(-32601, "no such method");
    for _ in 0..2 {
        assert!(talk.events.is_empty());
        talk.refuse(-32601, "no such method");
    }
    assert!(matches!(&talk.events[..], [WorkerEvent::Ready(_)]));
    talk.tell(&prompt(1, "hi"));
    talk.says("new");
    assert_eq!(talk.text(), "new");
}

#[test]
fn a_session_that_is_gone_is_said_to_be_lost_before_a_new_one_begins() {
    let no_loads = |talk: &mut Talk| talk.initialized(false);
    let refuses = |talk: &mut Talk| {
        talk.initialized(true);
        talk.refuse(-32603, "no such session");
    };
    let knows_nothing = |talk: &mut Talk| {
        talk.initialized(true);
        talk.answer(&Value::Null);
    };
    for step in [no_loads, refuses, knows_nothing] {
        let mut talk = Talk::begun(Some("gone"));
        step(&mut talk);
        talk.answer(&json!({"sessionId": "s2"}));
        assert!(matches!(
            &talk.events[..],
            [
                WorkerEvent::Noted {
                    turn: None,
                    code: "context-lost",
                    ..
                },
                WorkerEvent::Ready(_)
            ]
        ));
        assert_eq!(talk.methods().last(), Some(&"session/new"));
    }
}

#[test]
fn a_missing_login_fails_the_turn_with_the_ways_to_log_in_and_is_never_made_up_for() {
    for resume in [None, Some("s1")] {
        let mut talk = Talk::begun(resume);
        talk.initialized(true);
        talk.refuse(-32000, "Authentication required");
        assert!(
            matches!(&talk.events[..], [WorkerEvent::Ready(_)]),
            "{:?}",
            talk.events
        );
        talk.tell(&prompt(1, "hi"));
        assert_eq!(talk.failure().code, Code::AgentAuth);
        assert!(talk.failure().hint.as_ref().unwrap().contains("API key"));
        // The next turn gets another process.
        assert!(
            talk.events
                .iter()
                .any(|event| matches!(event, WorkerEvent::Spoilt { .. }))
        );
        assert_eq!(talk.wrote.len(), 2, "no `authenticate`");
    }
}

#[test]
fn a_version_that_is_not_spoken_here_fails_the_turn() {
    let mut talk = Talk::begun(None);
    talk.answer(&json!({"protocolVersion": 2}));
    talk.tell(&prompt(1, "hi"));
    assert_eq!(talk.failure().code, Code::Unsupported);
}

#[test]
fn a_model_and_a_level_are_set_before_the_prompt_where_they_are_not_so_already() {
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
        let mut talk = Talk::begun(None);
        talk.initialized(true);
        talk.answer(&offer);
        talk.wrote.clear();
        talk.tell(&pinned(1, "p", "two", level));
        for (at, (method, params)) in written.iter().enumerate() {
            assert_eq!(
                (&talk.wrote[at]["method"], &talk.wrote[at]["params"]),
                (&json!(method), params)
            );
            talk.answer(&json!({}));
        }
        assert_eq!(talk.methods().last(), Some(&"session/prompt"));
        talk.answer(&json!({"stopReason": "end_turn"}));
        assert!(
            talk.outcomes()[0]
                .model
                .as_deref()
                .unwrap()
                .ends_with("two")
        );
        // What is set already isn't set again; a turn without a pin gets what was there at first.
        talk.wrote.clear();
        talk.tell(&pinned(2, "p", "two", level));
        assert_eq!(talk.methods(), ["session/prompt"]);
        talk.answer(&json!({"stopReason": "end_turn"}));
        talk.tell(&prompt(3, "x"));
        let params = &talk.wrote.last().unwrap()["params"];
        assert!(params.to_string().contains("one"), "{params}");
    }
}

#[test]
fn a_model_that_can_not_be_had_fails_the_turn_and_no_other_is_used() {
    let mut talk = Talk::ready();
    talk.tell(&pinned(1, "p", "two", "low"));
    assert_eq!(talk.failure().code, Code::Unsupported);
    let mut talk = Talk::begun(None);
    talk.initialized(true);
    talk.answer(
        &json!({"sessionId": "s1", "models": {"currentModelId": "a", "availableModels": []}}),
    );
    talk.tell(&pinned(1, "", "two", ""));
    talk.refuse(-32602, "unknown model");
    assert!(talk.failure().error.contains("unknown model"));
    assert!(!talk.methods().contains(&"session/prompt"));
}

#[test]
fn a_pin_that_the_agent_does_not_offer_fails_the_turn_and_says_what_it_offers() {
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
        let mut talk = Talk::begun(None);
        talk.initialized(true);
        talk.answer(&offer);
        talk.tell(&pinned(1, provider, model, thinking));
        let failure = talk.failure();
        assert_eq!(failure.code, Code::Unsupported);
        assert!(failure.error.contains(said), "{}", failure.error);
        assert!(!talk.methods().contains(&"session/prompt"), "{said}");
    }
}

#[test]
fn what_was_cached_is_part_of_the_input_however_the_agent_counts_it() {
    for (total, input) in [(107, 105), (7, 5), (110, 105), (10, 5)] {
        let mut talk = Talk::running();
        let usage = json!({"inputTokens": 5, "outputTokens": 2, "cachedReadTokens": 60,
            "cachedWriteTokens": 40, "thoughtTokens": 3, "totalTokens": total});
        talk.answer(&json!({"stopReason": "end_turn", "usage": usage}));
        assert_eq!(
            talk.outcomes()[0].usage.unwrap().input_tokens,
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
        let mut talk = Talk::running();
        let usage = json!({"inputTokens": 5, "outputTokens": 2, "totalTokens": 7});
        talk.answer(&json!({"stopReason": reason, "usage": usage}));
        assert_eq!(talk.outcomes()[0].result, Ok(stop));
        assert_eq!(talk.outcomes()[0].usage.unwrap().input_tokens, 5);
    }
    let mut talk = Talk::running();
    talk.answer(&json!({}));
    assert_eq!(talk.failure().code, Code::AgentFailed);
}

#[test]
fn the_cost_of_a_turn_is_what_the_session_cost_more() {
    let mut talk = Talk::running();
    for (turn, amount, usd) in [(1, 0.25, Some(0.25)), (2, 1.0, Some(0.75)), (3, 1.0, None)] {
        talk.update(&json!({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": amount, "currency": "USD"}}));
        talk.answer(&json!({"stopReason": "end_turn"}));
        assert_eq!(talk.outcomes()[turn - 1].cost.usd, usd);
        talk.tell(&prompt(turn as u64 + 1, "x"));
    }
}

#[test]
fn errors_are_told_apart_as_far_as_their_words_go() {
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
        let mut talk = Talk::running();
        talk.refuse(number, message);
        assert_eq!(talk.failure().code, code, "{number} {message}");
    }
}

#[test]
fn only_words_of_absence_lose_a_session_all_else_fails_the_turn_and_keeps_it() {
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
        let mut talk = Talk::begun(Some("s1"));
        talk.initialized(true);
        talk.hear(&json!({"jsonrpc": "2.0", "id": talk.last_id(), "error": error}));
        let Some(code) = code else {
            assert_eq!(talk.methods().last(), Some(&"session/new"), "{error}");
            continue;
        };
        talk.tell(&prompt(1, "hi"));
        assert_eq!(talk.methods(), ["initialize", "session/load"], "{error}");
        let [
            WorkerEvent::Ready(_),
            WorkerEvent::Spoilt { .. },
            WorkerEvent::Ended { .. },
        ] = &talk.events[..]
        else {
            panic!("{error}: {:?}", talk.events)
        };
        assert_eq!(talk.failure().code, code, "{error}");
    }
}
