//! Each row of the table, with errors as houses word them.

use super::*;
use crate::message::{Assistant, CallArguments, ToolCall};
use crate::model::{Usage, provider_error};
use crate::provider::table;

fn provider(name: &str) -> Provider {
    table::resolve(name, &crate::config::Config::default(), &|_| None).unwrap()
}

/// A failure as it would come from an HTTP error with this body.
fn http(status: u16, body: &str) -> Failure {
    from(FailedAt::Status(status), provider_error::body(body))
}

/// The same for an error in the middle of a stream.
fn stream(body: &str) -> Failure {
    from(FailedAt::Stream, provider_error::body(body))
}

fn from(at: FailedAt, told: provider_error::ErrorDetails) -> Failure {
    Failure {
        at,
        code: told.code,
        text: told.text,
        retry_after: told.retry_after,
        usage: Usage::default(),
    }
}

fn plain(at: FailedAt) -> Failure {
    from(at, provider_error::ErrorDetails::default())
}

fn kimis_hint(failure: &Failure) -> Option<&'static str> {
    hint(&provider("kimi-coding"), failure)
}

fn all(expected: Class, failures: &[Failure]) {
    for failure in failures {
        let found = classify(&provider("openai"), failure);
        assert_eq!(found, expected, "{failure:?}");
    }
}

#[test]
fn class_of_a_refused_connection_depends_on_place() {
    let refused = plain(FailedAt::Refused);
    let class = |name| classify(&provider(name), &refused);
    assert_eq!(class("ollama"), Class::NotConfigured);
    assert_eq!(class("openai"), Class::Timeout);
    assert!(hint(&provider("ollama"), &refused).is_some());
    assert_eq!(hint(&provider("openai"), &refused), None);
}

#[test]
fn class_of_a_refusal_is_whatever_its_status() {
    all(
        Class::Refusal,
        &[
            http(
                400,
                r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
            ),
            http(
                400,
                r#"{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a different prompt.","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}"#,
            ),
            http(
                400,
                r#"{"error":{"code":"1301","message":"System detected potentially unsafe or sensitive content"}}"#,
            ),
            http(
                400,
                r#"{"error":{"message":"Content Exists Risk","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#,
            ),
            http(
                400,
                r#"{"error":{"message":"The request was rejected because it was considered high risk","type":"content_filter"}}"#,
            ),
            http(
                403,
                r#"{"error":{"message":"This request was flagged for possible cybersecurity risk","code":"cyber"}}"#,
            ),
        ],
    );
}

#[test]
fn class_overflow_is_known_in_each_houses_words() {
    all(
        Class::ContextOverflow,
        &[
            http(
                400,
                r#"{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130012 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            ),
            http(
                400,
                r#"{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
            ),
            http(
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"}}"#,
            ),
            http(
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"}}"#,
            ),
            http(
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
            ),
            http(
                400,
                r#"{"error":{"code":400,"message":"The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).","status":"INVALID_ARGUMENT"}}"#,
            ),
            http(
                400,
                r#"{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}"#,
            ),
            http(
                400,
                r#"{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
            ),
            http(
                400,
                r#"{"error":{"message":"Your request exceeded model token limit: 262144 (requested: 291351)","type":"invalid_request_error"}}"#,
            ),
            http(
                400,
                r#"{"object":"error","message":"Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","code":"3051"}"#,
            ),
            http(
                400,
                r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#,
            ),
            http(
                500,
                r#"{"error":{"code":500,"message":"the request exceeds the available context size. try increasing the context size or enable context shift","type":"server_error"}}"#,
            ),
            http(
                400,
                r#"{"error":{"code":400,"message":"request (9012 tokens) exceeds the available context size (4096 tokens)","type":"exceed_context_size_error","n_prompt_tokens":9012,"n_ctx":4096}}"#,
            ),
            http(
                400,
                r#"{"error":"Trying to keep the first 7000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is greater than the context length"}"#,
            ),
            http(
                400,
                r#"{"error":"the input length exceeds the context length"}"#,
            ),
            stream(r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#),
        ],
    );
}

#[test]
fn class_overflow_is_no_limit_of_a_minute() {
    all(
        Class::RateLimit,
        &[http(
            413,
            r#"{"error":{"message":"Request too large for model `llama-3.3-70b-versatile` in organization `org` service tier `on_demand` on tokens per minute (TPM): Limit 12000, Requested 15022, please reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}"#,
        )],
    );
}

#[test]
fn class_of_money_is_told_from_haste() {
    all(
        Class::Billing,
        &[
            http(
                429,
                r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#,
            ),
            http(
                429,
                r#"{"error":{"message":"Your account is not active, please check your billing details on our website.","type":"billing_not_active","param":null,"code":"billing_not_active"}}"#,
            ),
            http(
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}"#,
            ),
            http(
                402,
                r#"{"error":{"message":"Insufficient credits. Add more using https://openrouter.ai/settings/credits","code":402}}"#,
            ),
            http(
                402,
                r#"{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}"#,
            ),
            http(
                403,
                r#"{"code":"personal-team-blocked:spending-limit","error":"Your team has either used all available credits or reached its monthly spending limit."}"#,
            ),
            http(
                403,
                r#"{"error":{"message":"Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys","code":403}}"#,
            ),
            http(
                429,
                r#"{"error":{"code":"1308","message":"Usage limit reached for 5 hour. Your limit will reset at 2026-11-22 09:00:00"}}"#,
            ),
            http(
                429,
                r#"{"error":{"code":"1113","message":"Your account is in arrears, please recharge and try again."}}"#,
            ),
            http(
                429,
                r#"{"error":{"message":"Your account org-1 <ak-1> is suspended due to insufficient balance, please recharge your account","type":"exceeded_current_quota_error"}}"#,
            ),
        ],
    );
}

#[test]
fn class_of_wrong_keys_is_a_key_matter() {
    all(
        Class::Auth,
        &[
            http(
                401,
                r#"{"error":{"message":"Incorrect API key provided: sk-abc. You can find your API key at https://platform.openai.com.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
            ),
            http(
                401,
                r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
            ),
            http(
                400,
                r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}"#,
            ),
            http(
                400,
                r#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xa***. You can obtain an API key from https://console.x.ai."}"#,
            ),
            http(
                403,
                r#"{"error":{"code":403,"message":"Permission denied","status":"PERMISSION_DENIED"}}"#,
            ),
            http(403, KIMI),
            http(
                403,
                "<html><head><title>403 Forbidden</title></head></html>",
            ),
        ],
    );
}

const KIMI: &str = r#"{"error":{"message":"Kimi For Coding is currently only available for Coding Agents such as Kimi CLI, Claude Code, Roo Code, Kilo Code, etc.","type":"access_terminated_error"}}"#;

#[test]
fn the_gate_of_kimis_plan_is_explained() {
    let told = kimis_hint(&http(403, KIMI)).unwrap();
    assert!(told.contains("Moonshot key"), "{told}");
    assert_eq!(kimis_hint(&http(401, "{}")), None);
    assert!(
        kimis_hint(&plain(FailedAt::Certificate))
            .unwrap()
            .contains("SSL_CERT_FILE")
    );
}

#[test]
fn class_of_a_missing_model_needs_its_name() {
    all(
        Class::ModelNotFound,
        &[
            http(
                404,
                r#"{"error":{"message":"The model `gpt-9` does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}"#,
            ),
            http(
                404,
                r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
            ),
            http(
                404,
                r#"{"error":{"code":404,"message":"models/gemini-9 is not found for API version v1beta, or is not supported for generateContent.","status":"NOT_FOUND"}}"#,
            ),
            http(
                400,
                r#"{"error":{"message":"openai/gpt-9 is not a valid model ID","code":400}}"#,
            ),
            http(
                404,
                r#"{"error":{"message":"No endpoints found for openai/gpt-9.","code":404}}"#,
            ),
            http(404, r#"{"error":"model 'llama9' not found"}"#),
            http(
                400,
                r#"{"error":{"code":"1211","message":"Unknown Model, please check the model code."}}"#,
            ),
            http(
                404,
                r#"{"error":{"message":"Not found the model kimi-k9 or Permission denied","type":"resource_not_found_error"}}"#,
            ),
        ],
    );
    all(
        Class::Unknown,
        &[
            http(404, ""),
            http(404, r#"{"error":{"message":"not found"}}"#),
        ],
    );
}

#[test]
fn class_of_too_much_is_a_rate_limit() {
    all(
        Class::RateLimit,
        &[
            http(
                429,
                r#"{"error":{"message":"Rate limit reached for gpt-4.1 in organization org on tokens per min (TPM): Limit 30000, Used 29000, Requested 3000. Please try again in 4s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}"#,
            ),
            http(
                429,
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit"}}"#,
            ),
            http(
                429,
                r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}"#,
            ),
            http(
                402,
                r#"{"error":{"message":"Free usage is used up; it resets in 3 hours","code":402}}"#,
            ),
            http(429, ""),
            stream(r#"{"error":{"code":429,"message":"Rate limited upstream"}}"#),
        ],
    );
}

#[test]
fn class_of_a_busy_provider_is_overloaded() {
    all(
        Class::Overloaded,
        &[
            http(
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ),
            http(
                503,
                r#"{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}"#,
            ),
            http(
                429,
                r#"{"error":{"code":"1305","message":"The service may be temporarily overloaded, please try again later"}}"#,
            ),
            http(
                429,
                r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded_error"}}"#,
            ),
            http(
                503,
                "<html><head><title>503 Service Temporarily Unavailable</title></head></html>",
            ),
            stream(
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ),
        ],
    );
}

#[test]
fn a_broken_provider_is_its_own_fault() {
    all(
        Class::ServerError,
        &[
            http(
                500,
                r#"{"error":{"message":"The server had an error while processing your request.","type":"server_error","param":null,"code":null}}"#,
            ),
            http(
                502,
                "<html><head><title>502 Bad Gateway</title></head></html>",
            ),
            http(504, ""),
            http(524, "<!DOCTYPE html><title>a timeout occurred</title>"),
            stream(
                r#"{"code":502,"message":"Provider returned error","metadata":{"provider_name":"X"}}"#,
            ),
            stream(r#"{"message":"something broke"}"#),
        ],
    );
    all(
        Class::BadRequest,
        &[http(
            500,
            r#"{"error":{"code":500,"message":"tools param requires --jinja flag","type":"invalid_request_error"}}"#,
        )],
    );
}

#[test]
fn class_of_what_breaks_or_tarries_is_timeout() {
    all(
        Class::Timeout,
        &[
            plain(FailedAt::TimedOut),
            plain(FailedAt::Transport),
            http(408, r#"{"error":{"message":"Request timeout"}}"#),
        ],
    );
}

#[test]
fn class_of_an_unknown_certificate_is_its_own() {
    all(Class::Certificate, &[plain(FailedAt::Certificate)]);
}

#[test]
fn answers_that_make_no_sense_are_malformed() {
    let mut gemini = plain(FailedAt::Stream);
    gemini.code = Some("MALFORMED_FUNCTION_CALL".to_owned());
    all(
        Class::MalformedResponse,
        &[plain(FailedAt::Malformed), gemini],
    );
}

#[test]
fn class_of_the_rest_is_request_or_unknown() {
    all(
        Class::BadRequest,
        &[
            http(
                400,
                r#"{"error":{"message":"Unsupported parameter: 'temperature'","type":"invalid_request_error","param":"temperature","code":"unsupported_parameter"}}"#,
            ),
            http(
                422,
                r#"{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted"}]}"#,
            ),
            plain(FailedAt::Request),
        ],
    );
    all(Class::Unknown, &[http(307, ""), http(599, "")]);
}

fn reply(stop: Stop, text: &str, calls: bool) -> Reply {
    let call = ToolCall {
        id: "c".to_owned(),
        name: "read".to_owned(),
        arguments: CallArguments::Malformed(String::new()),
        signatures: Vec::new(),
    };
    Reply {
        message: Assistant {
            text: text.to_owned(),
            calls: if calls { vec![call] } else { Vec::new() },
            ..Assistant::default()
        },
        stop,
        usage: Usage::default(),
        reported_usd: None,
    }
}

#[test]
fn class_of_a_reply_is_good_once_whole() {
    let refused = Stop::Refusal("SAFETY".to_owned());
    for (stop, text, calls, expected) in [
        (Stop::EndTurn, "hi", false, None),
        (Stop::ToolUse, "", true, None),
        (Stop::MaxTokens, "hi", false, None),
        (Stop::MaxTokens, "", true, None),
        (Stop::EndTurn, " ", false, Some(Class::MalformedResponse)),
        (Stop::ToolUse, "hi", false, Some(Class::MalformedResponse)),
        (Stop::Missing, "hi", false, Some(Class::MalformedResponse)),
        (Stop::ContextFull, "hi", false, Some(Class::ContextOverflow)),
        (refused, "hi", true, Some(Class::Refusal)),
    ] {
        let reply = reply(stop, text, calls);
        assert_eq!(classify_reply(&reply), expected, "{reply:?}");
    }
}

#[test]
fn only_short_replies_that_begin_so_are_suspected() {
    for text in [
        "I'm sorry, but I can't assist with that request.",
        "I’m sorry, but I can’t help.",
        "I can't help with that.",
        "I'm unable to assist with this.",
        " I cannot help with weapons.",
    ] {
        assert!(suspected_refusal(text, false), "{text}");
        assert!(!suspected_refusal(text, true), "{text}");
        let long = format!("{text}{}", "x".repeat(LONGEST_REFUSAL));
        assert!(!suspected_refusal(&long, false));
    }
    for text in [
        "I'm sorry, there was a bug in my patch. Fixed now.",
        "As an AI, I like this code.",
        "I cannot find the file.",
        "The server says: I can't help with that.",
    ] {
        assert!(!suspected_refusal(text, false), "{text}");
    }
}
