//! Hostile agents: whatever comes, nothing panics, nothing grows without bound, each turn ends once.

use agentd_core::worker::{Reply, WorkerCommand};
use proptest::prelude::*;
use serde_json::json;

use super::replay::{Replay, spawn};
use super::*;
use crate::adapter::Adapter as _;
use crate::adapter::testing::prompt;

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

#[test]
fn answer_over_the_line_limit_fails_its_turn() {
    let mut replay = Replay::running();
    let id = replay.adapter.driver.turn.as_ref().unwrap().id;
    let line = |id: u64| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"_meta":"aaa"#);
    assert_eq!(replay.adapter.instead_of(line(10 * id).as_bytes()), None);
    let instead = replay.adapter.instead_of(line(id).as_bytes()).unwrap();
    replay.hear(&instead);
    assert!(
        replay.failure().error.contains(TOO_LONG),
        "{:?}",
        replay.failure()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    #[ignore = "heavy"]
    fn acp_never_panics_nor_grows_whatever_the_input(
        resumed in any::<bool>(),
        open in any::<bool>(),
        lines in proptest::collection::vec(line(), 0..300),
    ) {
        let mut acp = match open {
            true => Replay::ready().adapter,
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
            prop_assert!(acp.driver.turn.as_ref().map_or(0, Turn::held) <= 64 * 2 * 64 * 1024);
            prop_assert!(acp.questions.len() <= 64);
        }
        for turn in 1..=turns {
            let named = |event: &&WorkerEvent| matches!(event, WorkerEvent::Ended { turn: ended, .. } if ended.0 == turn);
            let open = acp.driver.turn.as_ref().is_some_and(|open| open.state.id.0 == turn)
                || acp.driver.waiting.as_ref().is_some_and(|prompt| prompt.turn.0 == turn);
            prop_assert_eq!(events.iter().filter(named).count(), usize::from(!open));
        }
    }
}
