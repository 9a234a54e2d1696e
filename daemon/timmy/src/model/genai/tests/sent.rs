//! What a request looks like on the wire.

use std::collections::HashSet;

use super::*;
use crate::message::{Assistant, Attached, CallArguments, ToolCall};

/// The body that is sent, without its conversation.
async fn sent(mock: &MockModel, wire: Wire, name: &str, thinking: Option<Thinking>) -> Value {
    let mut request = at(base(mock, wire), wire, name);
    request.messages.push(user("hi"));
    request.thinking = thinking;
    ask(&request).await.unwrap();
    body(mock)
}

use Thinking::{High, Low, Max, Minimal, Off};

/// A wire, a model, what is wanted, and what says so in the request.
type OutgoingLine = (Wire, &'static str, Thinking, &'static str, &'static str);

#[rustfmt::skip]
const SAID: &[OutgoingLine] = &[
    (Wire::Responses, "gpt-5", Minimal, "/reasoning/effort", "\"minimal\""),
    (Wire::Responses, "gpt-5", Off, "/reasoning/effort", "\"minimal\""),
    (Wire::Responses, "gpt-5.1", Off, "/reasoning/effort", "\"none\""),
    (Wire::Responses, "gpt-5.2", Max, "/reasoning/effort", "\"xhigh\""),
    (Wire::Responses, "o3", Max, "/reasoning/effort", "\"high\""),
    (Wire::Anthropic, "claude-opus-4-6", High, "/output_config/effort", "\"high\""),
    (Wire::Anthropic, "claude-sonnet-4-0", Low, "/thinking/budget_tokens", "1024"),
    (Wire::Gemini, "gemini-2.5-flash", Off, "/generationConfig/thinkingConfig/thinkingBudget", "0"),
    (Wire::Gemini, "gemini-2.5-pro", Off, "/generationConfig/thinkingConfig/thinkingBudget", "128"),
    (Wire::Gemini, "gemini-3-pro-preview", High, "/generationConfig/thinkingConfig/thinkingLevel", "\"HIGH\""),
    (Wire::Ollama, "qwen3", Off, "/think", "false"),
    (Wire::Ollama, "gpt-oss", High, "/think", "\"high\""),
    (Wire::Groq, "openai/gpt-oss-120b", Max, "/reasoning_effort", "\"high\""),
    (Wire::Groq, "qwen/qwen3-32b", Off, "/reasoning_effort", "\"none\""),
    (Wire::Xai, "grok-3-mini-fast", High, "/reasoning_effort", "\"high\""),
    (Wire::OpenRouter, "openai/gpt-5", Max, "/reasoning/effort", "\"xhigh\""),
    (Wire::DeepSeek, "deepseek-chat", Off, "/thinking/type", "\"disabled\""),
    (Wire::Kimi, "kimi-k2.5", High, "/thinking/type", "\"enabled\""),
    (Wire::Zai, "glm-4.6", Off, "/thinking/type", "\"disabled\""),
    (Wire::Mistral, "magistral-medium", High, "/prompt_mode", "\"reasoning\""),
    (Wire::OpenAi, "local", Off, "/chat_template_kwargs/enable_thinking", "false"),
];

#[tokio::test]
async fn thinking_is_said_in_each_houses_words() {
    let mock = MockModel::start();
    for (wire, name, level, pointer, expected) in SAID {
        let body = sent(&mock, *wire, name, Some(*level)).await;
        let found = body.pointer(pointer).map(Value::to_string);
        assert_eq!(
            found.as_deref(),
            Some(*expected),
            "{name} {level:?}: {body}"
        );
    }
}

#[tokio::test]
async fn thinking_is_not_asked_of_unable_models() {
    let mock = MockModel::start();
    for (wire, name) in [
        (Wire::Responses, "gpt-4.1"),
        (Wire::Anthropic, "claude-3-5-haiku-latest"),
        (Wire::Gemini, "gemini-2.0-flash"),
        (Wire::Groq, "llama-3.3-70b-versatile"),
        (Wire::Xai, "grok-4-0709"),
        (Wire::Mistral, "mistral-large-2512"),
    ] {
        let body = sent(&mock, wire, name, Some(High)).await;
        let all = body.to_string();
        for word in [
            "thinking",
            "effort",
            "reasoning",
            "prompt_mode",
            "includeThoughts",
        ] {
            assert!(!all.contains(word), "{name}: {all}");
        }
    }
}

#[tokio::test]
async fn schemas_for_llama_cpp_are_what_it_reads() {
    let mock = MockModel::start();
    let schema = json!({
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "pattern": "^a", "description": "a regex"},
            "format": {"type": "string", "format": "uri", "enum": ["pattern"]},
            "list": {"type": "array", "items": {"type": "string", "pattern": "b"}},
        },
    });
    for local in [true, false] {
        let mut request = says(&mock, Wire::OpenAi, "hi");
        let mut provider = Provider::clone(&request.target.provider);
        provider.local = local;
        request.target.provider = Arc::new(provider);
        request.tools = Arc::from([ToolSpec {
            schema: schema.clone(),
            ..tool("grep")
        }]);
        ask(&request).await.unwrap();
        let body = body(&mock);
        let parameters = &body["tools"][0]["function"]["parameters"];
        let stripped = json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "a regex"},
                "format": {"type": "string", "enum": ["pattern"]},
                "list": {"type": "array", "items": {"type": "string"}},
            },
        });
        assert_eq!(*parameters, if local { stripped } else { schema.clone() });
    }
}

#[tokio::test]
async fn anthropic_is_told_what_to_keep() {
    let mock = MockModel::start();
    let mut request = says(&mock, Wire::Anthropic, "hi");
    request.tools = Arc::from([tool("read")]);
    ask(&request).await.unwrap();
    let body = body(&mock);
    let mark = json!({"type": "ephemeral"});
    assert_eq!(body["system"][0]["cache_control"], mark, "{body}");
    assert_eq!(body["system"][0]["text"], "Be brief.");
    assert_eq!(
        body["messages"][0]["content"][0]["cache_control"], mark,
        "{body}"
    );
}

fn call(id: &str, arguments: CallArguments) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "read".to_owned(),
        arguments,
        signatures: vec!["c2ln".to_owned()],
    }
}

/// Two turns of another house: its ids come again, and have signs in them that not all take.
fn foreign(request: &mut Request) {
    for _ in 0..2 {
        request.messages.push(Message::Assistant(Assistant {
            calls: vec![
                call("call#read#0", CallArguments::Object(serde_json::Map::new())),
                call("call#read#1", CallArguments::Malformed("{\"a".to_owned())),
            ],
            provider: "gemini".to_owned(),
            model: "gemini-2.5-flash".to_owned(),
            ..Assistant::default()
        }));
        request.messages.push(result("call#read#0", "read", "one"));
        request.messages.push(result("call#read#1", "read", "two"));
    }
}

#[tokio::test]
async fn calls_of_another_house_get_usable_ids() {
    let mock = MockModel::start();
    for wire in [
        Wire::Anthropic,
        Wire::OpenAi,
        Wire::Responses,
        Wire::Mistral,
    ] {
        let mut request = says(&mock, wire, "hi");
        foreign(&mut request);
        ask(&request).await.unwrap();
        let sent = body(&mock);
        let (calls, results) = ids(wire, &sent);
        assert_eq!(calls.len(), 4, "{wire:?}: {sent}");
        assert_eq!(calls, results, "{wire:?}: {sent}");
        assert_eq!(
            calls.iter().collect::<HashSet<_>>().len(),
            4,
            "{wire:?}: {calls:?}"
        );
        for id in &calls {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!(id.chars().all(is_plain), "{wire:?}: {id}");
            assert!(wire != Wire::Mistral || id.len() == 9, "{id}");
        }
        ask(&request).await.unwrap();
        assert_eq!(
            body(&mock),
            sent,
            "{wire:?}: the same conversation is sent the same way"
        );
    }
}

/// The ids of calls and of results, in order.
fn ids(wire: Wire, body: &Value) -> (Vec<String>, Vec<String>) {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match wire {
        Wire::Responses => {
            let of = |kind: &str| {
                let items = list(&body["input"]).into_iter();
                let items = items.filter(|item| item["type"] == kind);
                items.filter_map(|item| text(&item["call_id"])).collect()
            };
            (of("function_call"), of("function_call_output"))
        }
        Wire::Anthropic => {
            let blocks: Vec<Value> = list(&body["messages"])
                .iter()
                .flat_map(|message| list(&message["content"]))
                .collect();
            let of = |kind: &str, field: &str| {
                let found = blocks.iter().filter(|block| block["type"] == kind);
                found.filter_map(|block| text(&block[field])).collect()
            };
            (of("tool_use", "id"), of("tool_result", "tool_use_id"))
        }
        _ => {
            let messages = list(&body["messages"]);
            let calls = messages
                .iter()
                .flat_map(|message| list(&message["tool_calls"]));
            let results = messages.iter().filter(|message| message["role"] == "tool");
            (
                calls.filter_map(|call| text(&call["id"])).collect(),
                results
                    .filter_map(|message| text(&message["tool_call_id"]))
                    .collect(),
            )
        }
    }
}

#[tokio::test]
async fn malformed_arguments_go_back_as_what_they_were() {
    let mock = MockModel::start();
    for wire in WIRES {
        let mut request = says(&mock, wire, "hi");
        foreign(&mut request);
        ask(&request).await.unwrap();
        let sent = body(&mock).to_string();
        assert!(sent.contains("malformed_arguments"), "{wire:?}: {sent}");
    }
}

#[tokio::test]
async fn anthropic_hears_that_a_tool_failed() {
    let mock = MockModel::start();
    let mut request = says(&mock, Wire::Anthropic, "hi");
    foreign(&mut request);
    if let Some(Message::Tool(result)) = request.messages.last_mut() {
        result.ok = false;
    }
    ask(&request).await.unwrap();
    let sent = body(&mock);
    let blocks = sent["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    assert_eq!(blocks[1]["is_error"], json!(true), "{sent}");
    assert_eq!(blocks[0].get("is_error"), None, "{sent}");
}

#[tokio::test]
async fn pictures_are_sent_or_said_to_be_there() {
    let mock = MockModel::start();
    let picture = |mime: &str| Attached {
        mime: mime.to_owned(),
        name: "shot".to_owned(),
        data: "cGl4ZWxz".into(),
    };
    for (wire, pointer) in [
        (Wire::OpenAi, "/messages/1/content/1/image_url/url"),
        (Wire::Responses, "/input/0/content/1/image_url"),
        (Wire::Anthropic, "/messages/0/content/1/source/data"),
        (Wire::Gemini, "/contents/0/parts/1/inline_data/data"),
        (Wire::Ollama, "/messages/1/images/0"),
        (Wire::DeepSeek, ""),
    ] {
        let mut request = at(base(&mock, wire), wire, model(wire));
        request.messages.push(Message::User {
            text: "what is this?".to_owned(),
            attached: vec![picture("image/png"), picture("application/pdf")],
            job: None,
        });
        ask(&request).await.unwrap();
        let body = body(&mock);
        let sent = body.pointer(pointer).and_then(Value::as_str);
        assert!(body.to_string().contains("what is this?"), "{body}");
        match wire {
            Wire::DeepSeek => {
                assert!(!body.to_string().contains("cGl4ZWxz"), "{body}");
                assert!(
                    body.to_string()
                        .contains("not shown to you: shot (image/png)"),
                    "{body}"
                );
            }
            _ => assert!(
                sent.is_some_and(|sent| sent.ends_with("cGl4ZWxz")),
                "{wire:?}: {body}"
            ),
        }
        let documents = body.to_string().matches("cGl4ZWxz").count();
        let expected = match wire {
            Wire::DeepSeek => 0,
            Wire::Ollama => 1,
            _ => 2,
        };
        assert_eq!(documents, expected, "{wire:?}: {body}");
    }
}
