//! What `genai` lacks, or gets wrong: a test for each gap, and its number in the name.

use super::*;
use crate::message::{Assistant, CallArguments, Thought, ToolCall};
use crate::model::{FailedAt, Stop};

#[tokio::test]
async fn g1_failures_keep_status_code_and_patience() {
    let mock = MockModel::start();
    for wire in WIRES {
        let request = says(&mock, wire, "[[fail=ratelimit]] [[wait=7]]");
        let failure = ask(&request).await.unwrap_err();
        assert_eq!(failure.at, FailedAt::Status(429), "{wire:?}");
        assert_eq!(
            failure.retry_after,
            Some(Duration::from_secs(7)),
            "{wire:?}"
        );
        assert!(
            failure.text.contains("Rate limit reached"),
            "{}",
            failure.text
        );
        let code = match wire {
            Wire::Anthropic => Some("rate_limit_error"),
            Wire::Gemini => Some("RESOURCE_EXHAUSTED"),
            Wire::Ollama => None,
            _ => Some("rate_limit_exceeded"),
        };
        assert_eq!(failure.code.as_deref(), code, "{wire:?}");
    }
}

#[tokio::test]
async fn g1_page_instead_of_answers_has_its_title() {
    let mock = MockModel::start();
    for wire in WIRES {
        let failure = ask(&says(&mock, wire, "[[fail=html]]")).await.unwrap_err();
        assert_eq!(failure.at, FailedAt::Status(502), "{wire:?}");
        assert!(failure.text.contains("502 Bad Gateway"), "{}", failure.text);
        assert!(!failure.text.contains('<'), "{}", failure.text);
    }
}

#[tokio::test]
async fn g2_refusal_in_a_field_is_a_refusal() {
    let mock = MockModel::start();
    for (wire, how, word, words) in [
        (
            Wire::OpenAi,
            "field",
            "refusal",
            "I'm sorry, I can't help with that.",
        ),
        (
            Wire::Responses,
            "field",
            "refusal",
            "I can't help with that.",
        ),
        (
            Wire::Anthropic,
            "field",
            "refusal: cyber",
            "This can't be helped with.",
        ),
        (Wire::Gemini, "prompt", "PROHIBITED_CONTENT", ""),
    ] {
        let text = format!("[[refuse={how}]]");
        let (reply, pieces) = hear(&models(), &says(&mock, wire, &text)).await;
        let reply = reply.unwrap();
        let why = match words {
            "" => word.to_owned(),
            words => format!("{word}: {words}"),
        };
        assert_eq!(reply.stop, Stop::Refusal(why), "{wire:?}");
        assert_eq!(reply.message.text, words, "{wire:?}");
        assert_eq!(pieces, [], "{wire:?}");
        assert!(
            reply.usage.input > 0,
            "{wire:?}: a refusal is paid for, too"
        );
    }
}

#[tokio::test]
async fn g2_refusal_by_its_stop_keeps_its_word() {
    let mock = MockModel::start();
    for (wire, word) in [
        (Wire::OpenAi, "content_filter"),
        (Wire::Responses, "content_filter"),
        (Wire::Anthropic, "refusal"),
        (Wire::Gemini, "SAFETY"),
    ] {
        let reply = ask(&says(&mock, wire, "[[refuse=finish]]")).await.unwrap();
        assert_eq!(reply.stop, Stop::Refusal(word.to_owned()), "{wire:?}");
    }
}

#[tokio::test]
async fn g2_cost_that_a_gateway_says_is_kept() {
    let mock = MockModel::start();
    let reply = ask(&says(&mock, Wire::OpenRouter, "hi")).await.unwrap();
    assert_eq!(reply.reported_usd, Some(0.00125));
    assert_eq!(body(&mock)["usage"], json!({"include": true}));
}

#[tokio::test]
async fn g2_a_response_that_failed_says_why() {
    let mock = MockModel::start();
    let failure = ask(&says(&mock, Wire::Responses, "[[midfail]]"))
        .await
        .unwrap_err();
    assert_eq!(failure.at, FailedAt::Stream);
    assert_eq!(failure.code.as_deref(), Some("server_error"));
}

#[tokio::test]
async fn g3_answer_without_a_stop_is_no_success() {
    let mock = MockModel::start();
    for wire in [Wire::OpenAi, Wire::Anthropic, Wire::Gemini, Wire::Ollama] {
        let outcome = ask(&says(&mock, wire, "[[nostop]]")).await;
        let is_missing = matches!(&outcome, Ok(reply) if reply.stop == Stop::Missing);
        // Anthropic's ends without its last event here.
        let is_cut = matches!(&outcome, Err(failure) if failure.at == FailedAt::Transport);
        assert!(is_missing || is_cut, "{wire:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn g3_answer_that_only_ends_is_no_success() {
    let mock = MockModel::start();
    for wire in WIRES {
        let outcome = ask(&says(&mock, wire, "[[noend]]")).await;
        let is_missing = matches!(&outcome, Ok(reply) if reply.stop == Stop::Missing);
        let is_cut = matches!(&outcome, Err(failure) if failure.at == FailedAt::Transport);
        assert!(is_missing || is_cut, "{wire:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn g4_arguments_cut_short_stay_malformed() {
    let mock = MockModel::start();
    for wire in [Wire::OpenAi, Wire::Responses, Wire::Anthropic, Wire::Ollama] {
        let reply = ask(&says(&mock, wire, "[[cutargs]]")).await.unwrap();
        assert_eq!(reply.stop, Stop::MaxTokens, "{wire:?}");
        let arguments = &reply.message.calls[0].arguments;
        let cut = CallArguments::Malformed(r#"{"path": "/etc"#.to_owned());
        assert_eq!(*arguments, cut, "{wire:?}");
    }
    let failure = ask(&says(&mock, Wire::Gemini, "[[cutargs]]"))
        .await
        .unwrap_err();
    assert_eq!(failure.code.as_deref(), Some("MALFORMED_FUNCTION_CALL"));
}

#[tokio::test]
async fn g5_arguments_in_pieces_are_put_together_once() {
    let mock = MockModel::start();
    for wire in WIRES {
        let text = r#"[[use read {"path":"/a/long/path/in/pieces"}]]"#;
        let reply = ask(&says(&mock, wire, text)).await.unwrap();
        let expected = json!({"path": "/a/long/path/in/pieces"});
        let expected = CallArguments::Object(expected.as_object().unwrap().clone());
        assert_eq!(reply.message.calls.len(), 1, "{wire:?}");
        assert_eq!(reply.message.calls[0].arguments, expected, "{wire:?}");
    }
}

#[tokio::test]
async fn g6_ollama_gets_each_result_by_itself() {
    let mock = MockModel::start();
    let text = r#"[[use read {"path":"a"}]] [[use read {"path":"b"}]]"#;
    let mut request = says(&mock, Wire::Ollama, text);
    let reply = ask(&request).await.unwrap();
    request
        .messages
        .push(Message::Assistant(reply.message.clone()));
    for (call, said) in reply.message.calls.iter().zip(["one", "two"]) {
        request.messages.push(result(&call.id, &call.name, said));
    }
    let reply = ask(&request).await.unwrap();
    assert_eq!(reply.message.text, "tool said: one & two");
}

#[tokio::test]
async fn g7_name_of_a_model_decides_nothing() {
    let mock = MockModel::start();
    for (wire, name) in [
        (Wire::OpenAi, "qwen-max"),
        (Wire::OpenAi, "claude-sonnet-4-5"),
        (Wire::OpenRouter, "openai/gpt-4.1-mini"),
        (Wire::Zai, "zai_coding::glm-4.6"),
        (Wire::Responses, "some-model-high"),
        (Wire::Anthropic, "qwen-max"),
        (Wire::Ollama, "gpt-4o"),
    ] {
        let mut request = at(base(&mock, wire), wire, name);
        request.messages.push(user("hi"));
        ask(&request).await.unwrap();
        let body = body(&mock);
        assert_eq!(body["model"], name, "{wire:?}");
        for effort in ["reasoning_effort", "thinking", "output_config"] {
            assert!(body.get(effort).is_none(), "{wire:?} {name}: {body}");
        }
    }
}

#[tokio::test]
async fn g8_reasoning_goes_back_to_houses_wanting_it() {
    let mock = MockModel::start();
    let call = ToolCall {
        id: "call_1".to_owned(),
        name: "read".to_owned(),
        arguments: CallArguments::Object(serde_json::Map::new()),
        signatures: Vec::new(),
    };
    for (wire, provider, expected) in [
        (Wire::Kimi, "env", json!("let me see")),
        (Wire::DeepSeek, "env", json!("let me see")),
        // Somebody else's reasoning isn't sent, but something has to be.
        (Wire::Kimi, "elsewhere", json!(" ")),
        (Wire::OpenAi, "env", Value::Null),
    ] {
        let mut request = says(&mock, wire, "hi");
        request.messages.push(Message::Assistant(Assistant {
            thoughts: vec![Thought {
                text: Some("let me see".to_owned()),
                ..Thought::default()
            }],
            calls: vec![call.clone()],
            provider: provider.to_owned(),
            model: model(wire).to_owned(),
            ..Assistant::default()
        }));
        request.messages.push(result("call_1", "read", "done"));
        ask(&request).await.unwrap();
        let sent = &body(&mock)["messages"][2];
        assert_eq!(sent["reasoning_content"], expected, "{wire:?}: {sent}");
    }
}

#[tokio::test]
async fn g9_limit_of_a_reply_is_the_models() {
    let mock = MockModel::start();
    for (wire, name, pointer, expected) in [
        (
            Wire::Anthropic,
            "claude-3-haiku-20240307",
            "/max_tokens",
            json!(4096),
        ),
        (Wire::Anthropic, "unheard-of", "/max_tokens", json!(16384)),
        (
            Wire::Gemini,
            "gemini-2.5-flash",
            "/generationConfig/maxOutputTokens",
            json!(65536),
        ),
        (
            Wire::Responses,
            "gpt-5",
            "/max_output_tokens",
            json!(128_000),
        ),
        (
            Wire::OpenAi,
            "gpt-5",
            "/max_completion_tokens",
            json!(128_000),
        ),
        (
            Wire::Groq,
            "llama-3.3-70b-versatile",
            "/max_tokens",
            json!(32768),
        ),
    ] {
        let mut request = at(base(&mock, wire), wire, name);
        request.messages.push(user("hi"));
        ask(&request).await.unwrap();
        let body = body(&mock);
        assert_eq!(
            body.pointer(pointer),
            Some(&expected),
            "{wire:?} {name}: {body}"
        );
    }
}

#[tokio::test]
async fn g10_error_is_short_and_has_no_key() {
    let mock = MockModel::start();
    for wire in WIRES {
        let failure = ask(&says(&mock, wire, "[[fail=auth]]")).await.unwrap_err();
        assert!(
            failure.text.contains("Incorrect API key provided"),
            "{}",
            failure.text
        );
        assert!(!format!("{failure:?}").contains(KEY), "{failure:?}");
        let failure = ask(&says(&mock, wire, "[[fail=long]]")).await.unwrap_err();
        assert_eq!(
            failure.text.len(),
            crate::model::provider_error::MOST_TEXT,
            "{wire:?}"
        );
    }
}

#[tokio::test]
async fn g11_ollama_is_told_of_its_window() {
    let mock = MockModel::start();
    for (local, window, name, expected) in [
        (true, None, "qwen3:8b", json!(16_384)),
        (true, None, "gpt-4:local", json!(8_192)),
        (true, Some(65_536), "qwen3:8b", json!(65_536)),
        // Where it isn't the user's own, it makes room for all that the model takes.
        (false, None, "qwen3:480b", Value::Null),
        (false, Some(65_536), "qwen3:480b", json!(65_536)),
    ] {
        let mut request = at(base(&mock, Wire::Ollama), Wire::Ollama, name);
        let mut provider = Provider::clone(&request.target.provider);
        (provider.local, provider.window) = (local, window);
        request.target.provider = Arc::new(provider);
        request.messages.push(user("hi"));
        ask(&request).await.unwrap();
        let body = body(&mock);
        assert_eq!(body["options"]["num_ctx"], expected, "{body}");
        // The conversation is shortened before that much is in it.
        let shortened = request.target.window();
        assert_eq!(shortened, expected.as_u64().or(Some(131_072)), "{name}");
    }
}
