//! What goes back of what a model thought, and to whom.

use super::*;
use crate::message::{Assistant, CallArguments, Thought};

/// One turn with a thought and a call, and the request after it.
async fn second(mock: &MockModel, wire: Wire, same: bool) -> (Assistant, Value) {
    let mut request = says(mock, wire, r#"[[think]] [[use read {"path":"a"}]]"#);
    request.thinking = Some(Thinking::High);
    let reply = ask(&request).await.unwrap();
    let mut said = reply.message.clone();
    if !same {
        said.model = "another".to_owned();
    }
    let call = said.calls[0].clone();
    request.messages.push(Message::Assistant(said));
    request.messages.push(result(&call.id, &call.name, "done"));
    ask(&request).await.unwrap();
    (reply.message, body(mock))
}

#[tokio::test]
async fn anthropics_thoughts_go_back_signed_and_in_order() {
    let mock = MockModel::start();
    let (said, body) = second(&mock, Wire::Anthropic, true).await;
    let thought = Thought {
        text: Some("let me see".to_owned()),
        signature: Some("bW9jaw==".to_owned()),
        native: None,
    };
    let hidden = json!({"type": "redacted_thinking", "data": "aGlkZGVu"});
    assert_eq!(said.thoughts[0], thought);
    assert_eq!(said.thoughts[1].native.as_ref(), Some(&hidden));
    let blocks = &body["messages"][1]["content"];
    let signed = json!({"type": "thinking", "thinking": "let me see", "signature": "bW9jaw=="});
    assert_eq!(blocks[0], signed, "{body}");
    assert_eq!(blocks[1], hidden, "{body}");
    assert_eq!(blocks[2]["type"], "tool_use", "{body}");
}

#[tokio::test]
async fn responses_reasoning_goes_back_encrypted() {
    let mock = MockModel::start();
    let (said, body) = second(&mock, Wire::Responses, true).await;
    let signature = said
        .thoughts
        .iter()
        .find_map(|thought| thought.signature.as_deref());
    assert_eq!(signature, Some("bW9jaw=="));
    let input = body["input"].as_array().unwrap();
    let reasoning = input.iter().find(|item| item["type"] == "reasoning");
    assert_eq!(
        reasoning.unwrap()["encrypted_content"],
        "bW9jaw==",
        "{body}"
    );
}

#[tokio::test]
async fn replay_of_gemini_returns_proof_with_its_call() {
    let mock = MockModel::start();
    let (said, body) = second(&mock, Wire::Gemini, true).await;
    assert_eq!(said.calls[0].signatures, ["bW9jaw=="]);
    let part = &body["contents"][1]["parts"][0];
    assert_eq!(part["thoughtSignature"], "bW9jaw==", "{body}");
    assert_eq!(part["functionCall"]["name"], "read", "{body}");
}

#[tokio::test]
async fn nothing_of_it_goes_to_another_model() {
    let mock = MockModel::start();
    for wire in [Wire::Anthropic, Wire::Responses, Wire::Gemini] {
        let (_, body) = second(&mock, wire, false).await;
        let sent = body.to_string();
        assert!(
            !sent.contains("bW9jaw==") && !sent.contains("aGlkZGVu"),
            "{wire:?}: {sent}"
        );
    }
}

#[test]
fn replay_of_a_gateway_joins_its_reasoning() {
    let mut frames = super::super::frames::Frames::new(Wire::OpenRouter);
    for detail in [
        json!({"type": "reasoning.text", "index": 0, "text": "let ", "signature": null}),
        json!({"type": "reasoning.text", "index": 0, "text": "me", "signature": "proof"}),
        json!({"type": "reasoning.encrypted", "index": 1, "data": "secret"}),
    ] {
        let frame = json!({"choices": [{"delta": {"reasoning_details": [detail]}}]});
        frames.read(None, &frame.to_string());
    }
    let expected = [
        json!({"type": "reasoning.text", "index": 0, "text": "let me", "signature": "proof"}),
        json!({"type": "reasoning.encrypted", "index": 1, "data": "secret"}),
    ];
    assert_eq!(frames.take_details(), expected);
}

#[tokio::test]
async fn a_gateways_reasoning_goes_back_as_it_came() {
    let mock = MockModel::start();
    let detail = json!({"type": "reasoning.text", "text": "let me", "signature": "proof"});
    let mut request = says(&mock, Wire::OpenRouter, "hi");
    request.messages.push(Message::Assistant(Assistant {
        text: "so".to_owned(),
        thoughts: vec![Thought {
            native: Some(detail.clone()),
            ..Thought::default()
        }],
        provider: "env".to_owned(),
        model: model(Wire::OpenRouter).to_owned(),
        ..Assistant::default()
    }));
    request.messages.push(user("go on"));
    ask(&request).await.unwrap();
    assert_eq!(
        body(&mock)["messages"][2]["reasoning_details"],
        json!([detail])
    );
}

#[tokio::test]
async fn replay_of_a_bad_tool_name_respells_it() {
    let mock = MockModel::start();
    let mut request = says(&mock, Wire::OpenAi, "go on");
    let call = |name: &str| crate::message::ToolCall {
        id: format!("id-{}", name.len()),
        name: name.to_owned(),
        arguments: CallArguments::Object(serde_json::Map::new()),
        signatures: Vec::new(),
    };
    let long = "x".repeat(80);
    let calls: Vec<_> = ["functions.bash<|x|>", "", &long].map(call).into();
    let said = Assistant {
        text: "\n\n".to_owned(),
        calls: calls.clone(),
        ..Assistant::default()
    };
    request.messages.push(Message::Assistant(said));
    for call in &calls {
        request
            .messages
            .push(result(&call.id, &call.name, "there is no such tool"));
    }
    ask(&request).await.unwrap();
    let body = body(&mock);
    let sent = &body["messages"];
    let spoken = sent
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["role"] == "assistant");
    let names: Vec<&str> = spoken.unwrap()["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["functions_bash__x__", "unknown", &long[..64]]);
}
