//! Hostile agents: whatever comes, nothing panics, nothing grows without bound, each turn ends once;
//! and what real agents said, word for word.

use std::path::Path;

use agentd_core::worker::Reply;
use proptest::prelude::*;
use serde_json::json;

use super::tests::{Talk, prompt, spawn};
use super::*;

fn value() -> impl Strategy<Value = Value> {
    let text = "x".repeat(9000);
    prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        Just(json!("s1")),
        Just(json!("pending")),
        Just(json!("completed")),
        Just(json!(-32000)),
        Just(json!(1e308)),
        Just(json!(text)),
        Just(json!([1, {}, {"type": "content", "content": {"type": "text", "text": text}}])),
        Just(json!({"type": "text", "text": "t"})),
        Just(json!({"stopReason": "end_turn", "sessionId": "s1", "protocolVersion": 1})),
        Just(json!({"amount": 1e308, "currency": "USD"})),
        Just(json!([{"optionId": "a", "kind": "allow_once"}, {"optionId": "b", "name": "a"}])),
        (0u32..500).prop_map(|n| json!(format!("c{n}"))),
    ]
}

fn fields(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let field = (proptest::sample::select(names), value());
    proptest::collection::vec(field, 0..5).prop_map(|fields| {
        let fields = fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        Value::Object(fields.collect())
    })
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let update = (
        proptest::sample::select(
            &[
                "agent_message_chunk",
                "agent_thought_chunk",
                "user_message_chunk",
                "tool_call",
                "tool_call_update",
                "plan",
                "usage_update",
                "config_option_update",
                "of_its_own",
            ][..],
        ),
        fields(&[
            "content",
            "toolCallId",
            "status",
            "title",
            "kind",
            "rawInput",
            "rawOutput",
            "cost",
            "messageId",
            "entries",
        ]),
    );
    let update = update.prop_map(|(kind, mut update)| {
        update["sessionUpdate"] = json!(kind);
        json!({"method": "session/update", "params": {"sessionId": "s1", "update": update}})
    });
    let answer = (
        0u64..12,
        any::<bool>(),
        fields(&[
            "stopReason",
            "usage",
            "sessionId",
            "models",
            "code",
            "message",
            "data",
        ]),
    );
    let answer = answer.prop_map(|(id, well, inner)| match well {
        true => json!({"id": id, "result": inner}),
        false => json!({"id": id, "error": inner}),
    });
    let request = (
        value(),
        any::<bool>(),
        fields(&["options", "toolCall", "sessionId"]),
    );
    let request = request.prop_map(|(id, permission, params)| {
        let method = if permission {
            "session/request_permission"
        } else {
            "fs/read_text_file"
        };
        json!({"id": id, "method": method, "params": params})
    });
    prop_oneof![
        1 => proptest::collection::vec(any::<u8>(), 0..60),
        6 => update.prop_map(|line| line.to_string().into_bytes()),
        4 => answer.prop_map(|line| line.to_string().into_bytes()),
        2 => request.prop_map(|line| line.to_string().into_bytes()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_input_makes_it_panic_or_grow_without_bound(
        resumed in any::<bool>(),
        open in any::<bool>(),
        lines in proptest::collection::vec(line(), 0..300),
    ) {
        let mut acp = match open {
            true => Talk::ready().acp,
            false => Acp::new(&spawn(resumed.then_some("s1"))),
        };
        let (mut events, mut write) = (Vec::new(), Vec::new());
        acp.encode(&WorkerCommand::Probe, &mut events, &mut write);
        let mut turns = 0;
        for (at, line) in lines.iter().enumerate() {
            if at % 20 == 0 {
                turns += 1;
                acp.encode(&prompt(turns, "x"), &mut events, &mut write);
            }
            if at % 37 == 36 {
                acp.encode(&WorkerCommand::Cancel { turn: TurnId(turns) }, &mut events, &mut write);
                let question = "\"s1\"".to_owned();
                acp.encode(&WorkerCommand::Answer { question, reply: Reply::Approved }, &mut events, &mut write);
            }
            let before = (events.len(), write.len());
            acp.decode(line, &mut events, &mut write);
            prop_assert!(events.len() - before.0 <= 64 + 6);
            prop_assert!(write.len() - before.1 <= 64 * 512);
            prop_assert!(acp.turn.as_ref().map_or(0, Turn::held) <= 64 * 2 * 64 * 1024);
            prop_assert!(acp.questions.len() <= 64);
        }
        for turn in 1..=turns {
            let named = |event: &&WorkerEvent| matches!(event, WorkerEvent::Ended { turn: ended, .. } if ended.0 == turn);
            let open = acp.turn.as_ref().is_some_and(|open| open.turn.0 == turn)
                || acp.waiting.as_ref().is_some_and(|waiting| waiting.prompt.turn.0 == turn);
            prop_assert_eq!(events.iter().filter(named).count(), usize::from(!open));
        }
    }
}

/// Plays a recording: its client's words are told to the translator, the agent's are heard, with our
/// ids for its answers.
fn play(file: &str) -> Vec<Talk> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/acp")
        .join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let mut talks: Vec<Talk> = Vec::new();
    let mut turn = 0;
    // Of the recording's requests, each with our own.
    let mut ids: Vec<(Value, Value)> = Vec::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let message = &line["msg"];
        let ours = line["dir"] == ">";
        let method = message["method"].as_str().unwrap_or_default();
        if !ours {
            let mut message = message.clone();
            let mut known = ids.iter().rev();
            if method.is_empty() {
                match known.find(|(recorded, _)| *recorded == message["id"]) {
                    Some((_, ours)) => message["id"] = ours.clone(),
                    // The answer to what is never asked here.
                    None => continue,
                }
            }
            let talk = talks.last_mut().unwrap();
            talk.hear(&message);
            // The recording's client looked once whether the history was over.
            while talk
                .wrote
                .last()
                .is_some_and(|wrote| wrote["method"] == "_agentd/ping")
                && message.get("error").is_some()
            {
                let id = talk.wrote.last().unwrap()["id"].clone();
                talk.hear(
                    &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": ""}}),
                );
                if talk.acp.step.id().is_none() {
                    break;
                }
            }
            continue;
        }
        match method {
            "initialize" => {
                let resume = text
                    .lines()
                    .filter(|line| line.contains("session/load"))
                    .nth(0);
                let resume = resume.filter(|_| !talks.is_empty()).map(|line| {
                    let line: Value = serde_json::from_str(line).unwrap();
                    line["msg"]["params"]["sessionId"]
                        .as_str()
                        .unwrap()
                        .to_owned()
                });
                talks.push(Talk::begun(resume.as_deref()));
                ids.clear();
            }
            "session/prompt" => {
                turn += 1;
                let text = message["params"]["prompt"][0]["text"].as_str().unwrap();
                talks.last_mut().unwrap().tell(&prompt(turn, text));
            }
            "session/cancel" => {
                talks
                    .last_mut()
                    .unwrap()
                    .tell(&WorkerCommand::Cancel { turn: TurnId(turn) });
            }
            "" => {
                let option = message["result"]["outcome"]["optionId"].as_str().unwrap();
                let no = ["cancel", "reject", "deny"].contains(&option);
                let reply = if no { Reply::Denied } else { Reply::Approved };
                let question = message["id"].to_string();
                let talk = talks.last_mut().unwrap();
                talk.tell(&WorkerCommand::Answer { question, reply });
                assert_eq!(&talk.wrote.last().unwrap()["result"], &message["result"]);
                continue;
            }
            _ => {}
        }
        let talk = talks.last().unwrap();
        let same = |wrote: &&Value| wrote["method"] == message["method"];
        if let Some(wrote) = talk.wrote.iter().rev().find(same) {
            ids.push((message["id"].clone(), wrote["id"].clone()));
        }
    }
    talks
}

#[test]
fn what_real_agents_said_is_understood() {
    for file in [
        "gemini-0.61.0.jsonl",
        "opencode-1.18.33.jsonl",
        "hermes-0.19.0.jsonl",
    ] {
        let talks = play(file);
        let first = &talks[0];
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
        for second in talks.get(1) {
            assert!(!second.text().contains("echo: hello"), "{file}");
        }
    }
}
