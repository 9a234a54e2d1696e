//! A line of a host, as what it asks for.
//!
//! Owns the fields, and the words that refuse one. Must not know which runs there are.

use std::time::Duration;

use agentd_protocol::request::{AfterFailure, Mode, OnQuestion, Send};
use agentd_protocol::strict;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Settings;
use crate::openai::conversation::{Begins, Conversation, Role, Said};

/// Characters of what a host said that are said back in a refusal.
const SHOWN: usize = 100;
/// Bytes of an id that is echoed.
const MAX_ID: usize = 256;
/// Characters of a delta that is cut from finished text, unless the host says how many.
pub(super) const CHUNK: usize = 120;

/// Where something failed, in the words of the bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The line.
    Parse,
    /// What it asks for.
    Validation,
    /// Whoever runs agents.
    Run,
    /// The model.
    Api,
    /// The agent.
    Conversation,
}

impl Stage {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Parse => "request_parse",
            Self::Validation => "request_validation",
            Self::Run => "bridge_run",
            Self::Api => "api_call",
            Self::Conversation => "run_conversation",
        }
    }
}

/// Why something is not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    pub(super) stage: Stage,
    pub(super) message: String,
    pub(super) retryable: bool,
}

impl Failure {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self {
            stage: Stage::Validation,
            message: message.into(),
            retryable: false,
        }
    }

    fn unread(why: &str) -> Self {
        Self {
            stage: Stage::Parse,
            message: format!("Invalid JSON input: {why}"),
            retryable: true,
        }
    }
}

/// A line that was read as far as it can be.
pub(super) struct Line {
    /// Echoed on all that answers it.
    pub(super) request_id: Option<Value>,
    /// As the host has it.
    pub(super) session_id: Option<String>,
    pub(super) asks: Result<Asks, Failure>,
}

/// What a line asks for.
pub(super) enum Asks {
    Run(Box<Wanted>),
    Ping,
    Interrupt,
    Leave,
}

/// A run.
pub(super) struct Wanted {
    /// Everything but its session.
    pub(super) send: Send,
    /// Goes on in its session, if there is one.
    pub(super) resume: bool,
    pub(super) max_iterations: Option<u64>,
    pub(super) form: Form,
    pub(super) first_chunk: Option<Duration>,
    pub(super) between_chunks: Option<Duration>,
}

/// How the host is told what the agent says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Form {
    /// As it comes, from an agent that streams.
    pub(super) native: bool,
    /// Else cut into pieces of so many characters, when it is finished.
    pub(super) cut: Option<usize>,
}

/// A list, also as words with commas between them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Names {
    List(Vec<String>),
    Words(String),
}

impl Names {
    fn all(self) -> Vec<String> {
        match self {
            Self::List(all) => all,
            Self::Words(words) => words
                .split(',')
                .map(|word| word.trim().to_owned())
                .filter(|word| !word.is_empty())
                .collect(),
        }
    }
}

#[derive(Deserialize)]
struct Fields {
    message: Option<Value>,
    resume: Option<bool>,
    #[serde(default)]
    conversation_history: Option<Vec<Value>>,
    system_message: Option<String>,
    task_id: Option<String>,
    model: Option<String>,
    base_url: Option<Value>,
    api_key: Option<Value>,
    toolsets: Option<Names>,
    disabled_toolsets: Option<Names>,
    max_iterations: Option<u64>,
    cwd: Option<String>,
    assistant_delta: Option<bool>,
    assistant_delta_chunk_size: Option<usize>,
    native_assistant_delta: Option<bool>,
    native_stream: Option<bool>,
    stream_first_chunk_timeout_ms: Option<u64>,
    stream_idle_timeout_ms: Option<u64>,
}

impl Line {
    /// Reads a line.
    pub(super) fn read(line: &[u8], settings: &Settings) -> Self {
        let nameless = |failure| Self {
            request_id: None,
            session_id: None,
            asks: Err(failure),
        };
        let mut all = match object(line) {
            Ok(all) => all,
            Err(why) => return nameless(Failure::unread(&why)),
        };
        let request_id = match all.remove("request_id") {
            None | Some(Value::Null) => None,
            Some(id) if (id.is_string() || id.is_number()) && id.to_string().len() <= MAX_ID => {
                Some(id)
            }
            Some(id) => {
                let why = format!(
                    "`request_id` is {}: expected a string of up to {MAX_ID} bytes",
                    shown(&id)
                );
                return nameless(Failure::invalid(why));
            }
        };
        let (session_id, wrong) = match all.remove("session_id") {
            None | Some(Value::Null) => (None, None),
            Some(Value::String(id)) if !id.is_empty() => (Some(id), None),
            Some(id) => (None, Some(id)),
        };
        let asks = match (wrong, all.remove("type")) {
            (Some(id), _) => Err(Failure::invalid(format!(
                "`session_id` is {}: expected a string",
                shown(&id)
            ))),
            (None, None | Some(Value::Null)) => run(all, settings),
            (None, Some(Value::String(kind))) => match kind.as_str() {
                "run" => run(all, settings),
                "ping" => Ok(Asks::Ping),
                "interrupt" if session_id.is_none() => {
                    Err(Failure::invalid("interrupt request requires 'session_id'."))
                }
                "interrupt" => Ok(Asks::Interrupt),
                "shutdown" | "exit" | "quit" => Ok(Asks::Leave),
                _ => Err(unsupported(&kind)),
            },
            (None, Some(kind)) => Err(unsupported(&shown(&kind))),
        };
        Self {
            request_id,
            session_id,
            asks,
        }
    }
}

fn object(line: &[u8]) -> Result<serde_json::Map<String, Value>, String> {
    let text = std::str::from_utf8(line)
        .map_err(|why| format!("byte {} of the line is not UTF-8", why.valid_up_to()))?;
    strict::check(text).map_err(|why| why.to_string())?;
    match serde_json::from_str(text) {
        Ok(Value::Object(all)) => Ok(all),
        Ok(_) => Err("the line is not an object".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

fn unsupported(kind: &str) -> Failure {
    let kind: String = kind.chars().take(SHOWN).collect();
    Failure::invalid(format!("Unsupported request type '{kind}'."))
}

fn shown(value: &Value) -> String {
    value.to_string().chars().take(SHOWN).collect()
}

fn run(all: serde_json::Map<String, Value>, settings: &Settings) -> Result<Asks, Failure> {
    let fields: Fields = serde_json::from_value(Value::Object(all))
        .map_err(|why| Failure::invalid(format!("Invalid run request: {why}")))?;
    let Some(Value::String(message)) = &fields.message else {
        return Err(no_message());
    };
    if message.trim().is_empty() {
        return Err(no_message());
    }
    refuse_keys(&fields)?;
    let defaults = &settings.defaults;
    let mut send = Send {
        agent: settings.agent.clone(),
        mode: Mode::Reject,
        stream: Some(true),
        // There is no word for a question in this protocol.
        on_question: Some(OnQuestion::Deny),
        // There is none for letting a turn run that waits because of the one before it, either.
        after_failure: AfterFailure::Run,
        ..Send::default()
    };
    conversation(&fields, message, &mut send)?;
    if let Some(model) = fields.model.as_ref().or(defaults.model.as_ref()) {
        match model.split_once('/') {
            Some((provider, model)) => {
                send.provider = Some(provider.to_owned());
                send.model = Some(model.to_owned());
            }
            None => send.model = Some(model.clone()),
        }
    }
    send.toolsets = toolsets(
        fields
            .toolsets
            .map(Names::all)
            .or(defaults.toolsets.clone()),
        fields
            .disabled_toolsets
            .map(Names::all)
            .or(defaults.disabled_toolsets.clone()),
    )?;
    match (
        fields.cwd.as_ref().or(defaults.cwd.as_ref()),
        &settings.here,
    ) {
        (Some(named), here) => send.cwd = Some(directory(named, here.as_deref())?),
        (None, here) => send.cwd_if_new.clone_from(here),
    }
    if let Some(task) = fields.task_id {
        send.labels.insert("task_id".to_owned(), task);
    }
    let chunk = fields.assistant_delta_chunk_size;
    let chunk = chunk.or(defaults.chunk).unwrap_or(CHUNK);
    if chunk == 0 {
        let why = "`assistant_delta_chunk_size` is 0: expected a number of characters from 1 on";
        return Err(Failure::invalid(why));
    }
    let streams = fields.native_stream.unwrap_or(defaults.native_stream);
    let native = fields.native_assistant_delta.unwrap_or(defaults.native);
    let deltas = fields.assistant_delta.unwrap_or(defaults.deltas);
    let limit = |given: Option<u64>, usual: Option<u64>| {
        let ms = given.or(usual).filter(|ms| *ms > 0)?;
        (streams && native).then(|| Duration::from_millis(ms))
    };
    Ok(Asks::Run(Box::new(Wanted {
        send,
        resume: fields.resume.unwrap_or(true),
        max_iterations: fields.max_iterations.or(defaults.max_iterations),
        form: Form {
            native: streams && native,
            cut: deltas.then_some(chunk),
        },
        first_chunk: limit(
            fields.stream_first_chunk_timeout_ms,
            defaults.first_chunk_ms,
        ),
        between_chunks: limit(fields.stream_idle_timeout_ms, defaults.idle_ms),
    })))
}

fn no_message() -> Failure {
    Failure::invalid("Run request requires a non-empty 'message' string.")
}

/// A key in a line would be in the host's logs and in a core of it; an address without its key is of no
/// use.
fn refuse_keys(fields: &Fields) -> Result<(), Failure> {
    let given = [("api_key", &fields.api_key), ("base_url", &fields.base_url)];
    let is_given = |value: &&Option<Value>| {
        !matches!(value, None | Some(Value::Null)) && **value != Some(json!(""))
    };
    match given.iter().find(|(_, value)| is_given(value)) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::invalid(format!(
            "`{name}` is not taken here: agents have their own keys and addresses. `agentctl \
             provider add` gives timmy one; then name its model as `provider/model`"
        ))),
    }
}

/// What was said before and what is said now.
fn conversation(fields: &Fields, message: &str, send: &mut Send) -> Result<(), Failure> {
    let mut conversation = Conversation {
        system: fields.system_message.clone().unwrap_or_default(),
        turn: vec![Said::by_user(message)],
        ..Conversation::default()
    };
    for (at, said) in fields.conversation_history.iter().flatten().enumerate() {
        let param = format!("conversation_history[{at}]");
        let said = Said::read(said.clone(), &param)
            .map_err(|failure| Failure::invalid(failure.message))?;
        match said.role {
            Role::System => conversation.add_system(&said.content.text),
            Role::User | Role::Assistant | Role::Tool => conversation.past.push(said),
        }
    }
    conversation.put_into(send, Begins::Yes);
    Ok(())
}

/// Those that are left of the allowed ones. Without these nobody here knows what there is.
fn toolsets(
    allowed: Option<Vec<String>>,
    disabled: Option<Vec<String>>,
) -> Result<Option<Vec<String>>, Failure> {
    let disabled = disabled.unwrap_or_default();
    match allowed {
        None if disabled.is_empty() => Ok(None),
        None => Err(Failure::invalid(
            "`disabled_toolsets` is given without `toolsets`: agents are told what they may use, so \
             name that in `toolsets`",
        )),
        Some(mut allowed) => {
            allowed.retain(|name| !disabled.contains(name));
            Ok(Some(allowed))
        }
    }
}

/// A whole path.
fn directory(named: &str, here: Option<&str>) -> Result<String, Failure> {
    match (named.starts_with('/'), here) {
        _ if named.is_empty() => Err(Failure::invalid("`cwd` is empty: expected a directory")),
        (true, _) => Ok(named.to_owned()),
        (false, Some(here)) => Ok(format!("{}/{named}", here.trim_end_matches('/'))),
        (false, None) => {
            let shown: String = named.chars().take(SHOWN).collect();
            Err(Failure::invalid(format!(
                "`cwd` is `{shown}`: expected an absolute path"
            )))
        }
    }
}
