//! A request in the words of `genai`, with what it gets wrong put right.
//!
//! Owns what is sent: whom, which headers, what of the conversation. Must not read answers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use genai::adapter::AdapterKind;
use genai::chat::{
    Binary, CacheControl, ChatMessage, ChatOptions, ChatRequest, ContentPart, CustomPart,
    MessageContent, MessageOptions, Tool, ToolCall as CallPart, ToolResponse,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{Headers, ModelIden, ServiceTarget};
use serde_json::{Map, Value, json};

use super::thinking;
use crate::message::{Assistant, Attached, CallArguments, Message, Thought, ToolCall, ToolResult};
use crate::model::{FailedAt, Failure, Request, ToolSpec, known};
use crate::provider::{Target, Wire};

/// Providers take names of up to 64 characters.
const LONGEST_NAME: usize = 64;
/// The version of Anthropic's API that is spoken.
const ANTHROPIC_VERSION: &str = "2023-06-01";
/// Longer ids of calls are refused by OpenAI.
const LONGEST_ID: usize = 40;
/// Mistral wants exactly as many letters and digits.
const MISTRAL_ID: usize = 9;
/// Kimi and DeepSeek refuse calls without the reasoning before them, and take this for it where
/// somebody else did the reasoning.
const NO_REASONING: &str = " ";

/// Whom to ask: the address and the headers are ours, whatever `genai` thinks of the model's name.
pub(super) fn target(request: &Request, wire: Wire) -> Result<ServiceTarget, Failure> {
    let target = &request.target;
    let url = address(target, wire)?;
    // Where the URL isn't ours to say, `genai` still reads its own.
    let endpoint = Endpoint::from_owned(format!("{}/", target.provider.base_url));
    Ok(ServiceTarget {
        endpoint,
        auth: AuthData::RequestOverride {
            url,
            headers: Headers::from(headers(target, wire)),
        },
        model: ModelIden::new(adapter(wire), target.model.as_str()),
    })
}

/// Where a request goes.
pub(super) fn address(target: &Target, wire: Wire) -> Result<String, Failure> {
    let url = url(target, wire);
    reqwest::Url::parse(&url).map_err(|error| {
        let base = &target.provider.base_url;
        Failure::at(
            FailedAt::Request,
            format!("`{base}` is not a base URL: {error}; it looks like `https://example.com/v1`"),
        )
    })?;
    Ok(url)
}

const fn adapter(wire: Wire) -> AdapterKind {
    match wire {
        Wire::OpenAi => AdapterKind::OpenAI,
        Wire::Responses => AdapterKind::OpenAIResp,
        Wire::Anthropic => AdapterKind::Anthropic,
        Wire::Gemini => AdapterKind::Gemini,
        Wire::Ollama => AdapterKind::Ollama,
        Wire::Groq => AdapterKind::Groq,
        Wire::Xai => AdapterKind::Xai,
        Wire::OpenRouter => AdapterKind::OpenRouter,
        Wire::DeepSeek => AdapterKind::DeepSeek,
        Wire::Kimi => AdapterKind::Kimi,
        Wire::Mistral => AdapterKind::Mistral,
        Wire::Zai => AdapterKind::Zai,
    }
}

fn url(target: &Target, wire: Wire) -> String {
    let base = &target.provider.base_url;
    match wire {
        Wire::Anthropic if base.ends_with("/v1") => format!("{base}/messages"),
        Wire::Anthropic => format!("{base}/v1/messages"),
        Wire::Gemini => format!(
            "{base}/models/{}:streamGenerateContent?alt=sse",
            target.model.trim_start_matches("models/")
        ),
        Wire::Ollama => format!("{base}/api/chat"),
        Wire::Responses => format!("{base}/responses"),
        _ => format!("{base}/chat/completions"),
    }
}

/// A key goes into a header, never into a URL.
pub(super) fn headers(target: &Target, wire: Wire) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    let mut add = |name: &str, value: String| headers.push((name.to_owned(), value));
    if wire == Wire::Anthropic {
        add("anthropic-version", ANTHROPIC_VERSION.to_owned());
    }
    if let Some(key) = &target.key {
        match wire {
            Wire::Anthropic if !key.is_bearer() => add("x-api-key", key.secret().to_owned()),
            Wire::Gemini => add("x-goog-api-key", key.secret().to_owned()),
            _ => add("authorization", format!("Bearer {}", key.secret())),
        }
    }
    headers
}

/// Everything but the conversation.
pub(super) fn options(request: &Request, wire: Wire) -> ChatOptions {
    let target = &request.target;
    let mut extra = Map::new();
    let thinking = thinking::effort(request, wire, &mut extra);
    // `genai` cuts what it takes for a namespace or an effort off the name. Gemini's is in the URL.
    if wire != Wire::Gemini {
        extra.insert("model".to_owned(), json!(target.model));
    }
    if wire == Wire::OpenRouter {
        // OpenRouter tells its own price only to who asks for it; `frames` reads that.
        extra.insert("usage".to_owned(), json!({"include": true}));
    }
    let local = target.provider.local;
    // A local server knows best how much its model can say; a limit of ours only stops it.
    let limit = match wire {
        // Anthropic refuses a request without a limit, wherever its server is.
        Wire::Anthropic | Wire::Gemini => Some(known::max_output(&target.model, local)),
        _ if local => None,
        _ => Some(known::max_output(&target.model, local)),
    };
    let mut options = ChatOptions::default()
        .with_capture_usage(true)
        // Calls of chat completions are put together here, see `calls`.
        .with_capture_tool_calls(!wire.is_chat())
        .with_capture_reasoning_content(thinking.shown);
    options.max_tokens = limit;
    options.reasoning_effort = thinking.effort;
    options.extra_body = Some(Value::Object(extra));
    options
}

/// The conversation.
pub(super) fn chat(request: &Request, wire: Wire) -> ChatRequest {
    let mut sent = Sent::new(request, wire);
    for message in &request.messages {
        sent.push(message);
    }
    let mut chat = ChatRequest::new(sent.done());
    // The others cache by themselves what begins alike.
    let is_cached = wire == Wire::Anthropic;
    match request.system.trim() {
        "" => {}
        // Anthropic caches up to where it is told: the system prompt, and what was said so far.
        system if is_cached => {
            let system = ChatMessage::system(system).with_options(cached());
            chat.messages.insert(0, system);
        }
        system => chat.system = Some(system.to_owned()),
    }
    if is_cached && let Some(last) = chat.messages.last_mut() {
        last.options = Some(cached());
    }
    if !request.tools.is_empty() {
        let strips = request.target.provider.local && wire == Wire::OpenAi;
        let tools = request.tools.iter().map(|spec| tool(spec, strips));
        chat.tools = Some(tools.collect());
    }
    chat
}

fn cached() -> MessageOptions {
    MessageOptions::from(CacheControl::Ephemeral)
}

fn tool(spec: &ToolSpec, strips: bool) -> Tool {
    let mut schema = spec.schema.clone();
    if strips {
        strip(&mut schema);
    }
    Tool::new(spec.name.clone())
        .with_description(spec.description.clone())
        .with_schema(schema)
}

/// llama.cpp makes a grammar of a schema, and fails on most `pattern`s and `format`s. Properties
/// may be called so, and stay.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("pattern");
            fields.remove("format");
            for (name, inner) in fields {
                match (name.as_str(), inner) {
                    ("properties" | "$defs" | "definitions", Value::Object(named)) => {
                        named.values_mut().for_each(strip);
                    }
                    // These are values, not schemas: a `format` in them is a word of somebody's.
                    ("enum" | "const" | "default" | "examples", _) => {}
                    (_, inner) => strip(inner),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Messages on their way.
struct Sent<'a> {
    request: &'a Request,
    wire: Wire,
    messages: Vec<ChatMessage>,
    /// Results that go into one message.
    results: Vec<ContentPart>,
    /// The ids of the last message's calls, as stored and as sent.
    ids: HashMap<&'a str, String>,
    used: HashSet<String>,
}

impl<'a> Sent<'a> {
    fn new(request: &'a Request, wire: Wire) -> Self {
        Self {
            request,
            wire,
            messages: Vec::with_capacity(request.messages.len()),
            results: Vec::new(),
            ids: HashMap::new(),
            used: HashSet::new(),
        }
    }

    fn push(&mut self, message: &'a Message) {
        match message {
            Message::Tool(result) => {
                let part = self.result(result);
                self.results.push(part);
            }
            Message::User { text, attached, .. } => {
                self.flush();
                let target = &self.request.target;
                let with = attached.iter().map(|one| seen(one, target));
                let parts = std::iter::once(ContentPart::from_text(text.as_str())).chain(with);
                let content = MessageContent::from_parts(parts.collect::<Vec<_>>());
                self.messages.push(ChatMessage::user(content));
            }
            Message::Assistant(assistant) => {
                self.flush();
                self.assistant(assistant);
            }
        }
    }

    fn flush(&mut self) {
        if !self.results.is_empty() {
            let results = std::mem::take(&mut self.results);
            let content = MessageContent::from_parts(results);
            self.messages.push(ChatMessage::tool(content));
        }
    }

    fn done(mut self) -> Vec<ChatMessage> {
        self.flush();
        self.messages
    }

    fn result(&self, result: &ToolResult) -> ContentPart {
        let id = self.ids.get(result.call.as_str());
        let id = id.cloned().unwrap_or_else(|| result.call.clone());
        if self.wire == Wire::Anthropic && !result.ok {
            // The only wire with a word for it, which `genai` doesn't have.
            let failed = json!({
                "type": "tool_result", "tool_use_id": id, "content": result.output, "is_error": true,
            });
            return custom(failed);
        }
        let response = ToolResponse::new(id, result.output.as_str());
        ContentPart::ToolResponse(response.with_fn_name(called(&result.name)))
    }

    fn assistant(&mut self, said: &'a Assistant) {
        let target = &self.request.target;
        // Signatures are worth nothing to anybody else, and neither is somebody else's reasoning.
        let is_own = said.provider == target.provider.id && said.model == target.model;
        let mut parts = Vec::new();
        if is_own {
            self.thoughts(&said.thoughts, &mut parts);
        }
        // Some wires refuse text that is nothing but blanks.
        if !said.text.trim().is_empty() {
            parts.push(ContentPart::from_text(said.text.as_str()));
        }
        self.ids.clear();
        for (at, call) in said.calls.iter().enumerate() {
            let id = self.id(call, at);
            self.ids.insert(&call.id, id.clone());
            parts.push(ContentPart::ToolCall(part(call, id, is_own)));
        }
        // A message without any part is refused by most wires.
        if parts.is_empty() {
            return;
        }
        let wants = self.wire.wants_reasoning() && !said.calls.is_empty();
        let has = parts
            .iter()
            .any(|part| matches!(part, ContentPart::ReasoningContent(_)));
        if wants && !has {
            parts.push(ContentPart::ReasoningContent(NO_REASONING.to_owned()));
        }
        let content = MessageContent::from_parts(parts);
        self.messages.push(ChatMessage::assistant(content));
    }

    fn thoughts(&self, thoughts: &[Thought], parts: &mut Vec<ContentPart>) {
        let text = || {
            thoughts
                .iter()
                .filter_map(|thought| thought.text.as_deref())
        };
        match self.wire {
            Wire::Anthropic => {
                for thought in thoughts {
                    if let Some(block) = &thought.native {
                        parts.push(custom(block.clone()));
                    } else if let Some(signature) = &thought.signature {
                        parts.push(ContentPart::ThoughtSignature(signature.clone()));
                        let text = thought.text.clone().unwrap_or_default();
                        parts.push(ContentPart::ReasoningContent(text));
                    }
                }
            }
            Wire::Gemini | Wire::Responses => {
                let signatures = thoughts
                    .iter()
                    .filter_map(|thought| thought.signature.clone());
                parts.extend(signatures.map(ContentPart::ThoughtSignature));
            }
            Wire::OpenRouter => {
                let blocks = thoughts.iter().filter_map(|thought| thought.native.clone());
                parts.extend(blocks.map(custom));
            }
            wire if wire.wants_reasoning() || wire.takes_reasoning() => {
                let text = text().collect::<Vec<_>>().join("\n");
                if !text.is_empty() {
                    parts.push(ContentPart::ReasoningContent(text));
                }
            }
            _ => {}
        }
    }

    /// An id that this wire takes, and that no other call of the conversation has. The same
    /// conversation gets the same ids, so that caches know it again.
    fn id(&mut self, call: &ToolCall, at: usize) -> String {
        if self.wire == Wire::Gemini {
            // Gemini's ids are made by `genai`, which finds the tool's name in them.
            return call.id.clone();
        }
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let mut id: String = match self.wire {
            Wire::Mistral => call
                .id
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .collect(),
            _ => call
                .id
                .chars()
                .map(|c| if is_plain(&c) { c } else { '_' })
                .collect(),
        };
        let longest = if self.wire == Wire::Mistral {
            MISTRAL_ID
        } else {
            LONGEST_ID
        };
        if self.wire == Wire::Mistral && id.len() != MISTRAL_ID || id.is_empty() {
            id = format!("{:09}", self.used.len() + at);
        }
        id.truncate(longest);
        let mut number = self.used.len();
        while self.used.contains(&id) {
            let tail = format!("{number:03}");
            id.truncate(longest - tail.len());
            id.push_str(&tail);
            number += 1;
        }
        self.used.insert(id.clone());
        id
    }
}

/// What goes with the user's words, or that it does where this wire has no word for it.
fn seen(one: &Attached, target: &Target) -> ContentPart {
    if !target.takes(&one.mime) {
        return ContentPart::from_text(unseen(one));
    }
    let (mime, name) = (one.mime.as_str(), Some(one.name.clone()));
    ContentPart::Binary(Binary::from_base64(mime, Arc::clone(&one.data), name))
}

/// What a model is told of an attachment that it isn't shown.
pub(super) fn unseen(one: &Attached) -> String {
    format!(
        "[attached and not shown to you: {} ({})]",
        one.name, one.mime
    )
}

fn custom(data: Value) -> ContentPart {
    ContentPart::Custom(CustomPart {
        model_iden: None,
        data,
    })
}

/// A tool's name as every wire takes it: a model may have called for one that no wire would repeat.
pub(super) fn called(name: &str) -> String {
    let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    let spelt = name.chars().map(|char| if fits(char) { char } else { '_' });
    let spelt: String = spelt.take(LONGEST_NAME).collect();
    match spelt.as_str() {
        "" => "unknown".to_owned(),
        _ => spelt,
    }
}

/// A call as it was, except that no wire takes arguments that aren't an object.
fn part(call: &ToolCall, id: String, is_own: bool) -> CallPart {
    let fn_arguments = match &call.arguments {
        CallArguments::Object(fields) => Value::Object(fields.clone()),
        CallArguments::Malformed(text) => json!({"malformed_arguments": text}),
    };
    let signatures = Some(call.signatures.clone()).filter(|list| is_own && !list.is_empty());
    CallPart {
        call_id: id,
        fn_name: called(&call.name),
        fn_arguments,
        thought_signatures: signatures,
    }
}
