//! A request for a response.
//!
//! Owns which of its fields count, and what it goes on from. Must not know whether that is there.

use std::collections::BTreeMap;

use agentd_protocol::JobId;
use serde_json::{Map, Value};

use super::content::Content;
use super::conversation::{Conversation, Role, Said};
use super::failure::Failure;
use super::fields::Fields;
use super::model::ModelName;
use super::{METADATA, Named, fits_label};

/// Entries of metadata that are kept: labels are needed for more than these.
const MOST_METADATA: usize = 8;

/// What the turn goes on from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Continues {
    /// What the request itself says.
    Itself,
    /// A response.
    Previous(JobId),
    /// A conversation, by its name.
    Named(String),
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResponseRequest {
    /// Who is to answer.
    pub model: ModelName,
    /// What was said; the instructions are part of it.
    pub conversation: Conversation,
    /// What whoever made the client says.
    pub instructions: Option<String>,
    /// What it goes on from.
    pub continues: Continues,
    /// Is the answer to come as it is said?
    pub streams: bool,
    /// Is only told that it was taken?
    pub in_background: bool,
    /// Is it to be read again?
    pub stored: bool,
    /// What the client keeps with it.
    pub metadata: BTreeMap<String, String>,
    /// For whom the client asks.
    pub user: Option<String>,
    /// Fields that nothing was made of.
    pub ignored: Vec<String>,
}

impl ResponseRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// When a field that counts is wrong.
    pub fn read(text: &str) -> Result<Self, Failure> {
        let mut fields = Fields::of(text)?;
        let model = ModelName::read(fields.take("model")?)?;
        let mut ignored = Vec::new();
        let said = input(&mut fields, &mut ignored)?;
        let instructions = fields.take::<String>("instructions")?;
        let system = instructions.iter().map(Said::by_system);
        let mut conversation = Conversation::of(system.chain(said).collect(), "input")?;
        text_options(&mut fields, &mut conversation, &mut ignored)?;
        let previous = fields.take::<String>("previous_response_id")?;
        let named = conversation_name(&mut fields)?;
        let continues = match (previous, named) {
            (None, None) => Continues::Itself,
            (Some(id), None) => Continues::Previous(previous_job(&id)?),
            (None, Some(name)) => Continues::Named(name),
            (Some(_), Some(_)) => {
                let why =
                    "`previous_response_id` and `conversation` are given: expected one of them";
                return Err(Failure::invalid("conversation", why));
            }
        };
        let streams = fields.take("stream")?.unwrap_or_default();
        let in_background = fields.take("background")?.unwrap_or_default();
        let stored = fields.take("store")?.unwrap_or(true);
        let mut metadata = fields.take::<BTreeMap<String, String>>("metadata")?;
        if metadata.as_ref().is_some_and(|metadata| !is_kept(metadata)) {
            ignored.push("metadata".to_owned());
            metadata = None;
        }
        let user = fields.user()?;
        ignored.extend(fields.ignored());
        Ok(Self {
            model,
            conversation,
            instructions,
            continues,
            streams,
            in_background,
            stored,
            metadata: metadata.unwrap_or_default(),
            user,
            ignored,
        })
    }
}

/// What `text` asks of the answer: of its form the agent is told.
fn text_options(
    fields: &mut Fields,
    conversation: &mut Conversation,
    ignored: &mut Vec<String>,
) -> Result<(), Failure> {
    let Some(mut text) = fields.take::<Map<String, Value>>("text")? else {
        return Ok(());
    };
    let format = text.shift_remove("format").filter(|of| !of.is_null());
    if let Some(format) = format
        && conversation.add_format(&format, "text.format")?
    {
        ignored.push("text.format".to_owned());
    }
    if text.values().any(|value| !value.is_null()) {
        ignored.push("text".to_owned());
    }
    Ok(())
}

/// Can all of it be labels?
fn is_kept(metadata: &BTreeMap<String, String>) -> bool {
    let fine = |(name, value): (&String, &String)| {
        let known = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
        name.chars().all(known) && fits_label(&format!("{METADATA}{name}")) && fits_label(value)
    };
    metadata.len() <= MOST_METADATA && metadata.iter().all(fine)
}

/// The job of the response that is named.
pub(super) fn previous_job(id: &str) -> Result<JobId, Failure> {
    let job = Named::Response.job(id).or_else(|| Named::Run.job(id));
    job.ok_or_else(|| {
        let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
        let why = format!("there is no response `{shown}`");
        Failure::not_found("previous_response_not_found", why).about("previous_response_id")
    })
}

fn conversation_name(fields: &mut Fields) -> Result<Option<String>, Failure> {
    let name = match fields.take::<Value>("conversation")? {
        None => return Ok(None),
        Some(Value::Object(mut named)) => named.shift_remove("id"),
        other => other,
    };
    match name {
        Some(Value::String(name)) if !name.is_empty() => Ok(Some(name)),
        _ => {
            let why = "`conversation`: expected its name, or an object with it as `id`";
            Err(Failure::invalid("conversation", why))
        }
    }
}

/// What the `input` says; nothing if there is none.
pub(super) fn input(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Vec<Said>, Failure> {
    let items = match fields.take::<Value>("input")? {
        None => {
            let why = "`input` is missing: expected a string or a list of messages";
            return Err(Failure::invalid("input", why));
        }
        Some(Value::String(text)) => return Ok(vec![Said::by_user(text)]),
        Some(Value::Array(items)) => items,
        Some(_) => {
            let why = "`input`: expected a string or a list of messages";
            return Err(Failure::invalid("input", why));
        }
    };
    let mut said = Vec::new();
    for (number, item) in items.into_iter().enumerate() {
        let param = format!("input[{number}]");
        match item_said(item, &param)? {
            Some(one) => said.push(one),
            None if ignored.len() < 16 => ignored.push(param),
            None => {}
        }
    }
    Ok(said)
}

/// An item of the input; nothing if it says nothing that an agent could hear.
fn item_said(item: Value, param: &str) -> Result<Option<Said>, Failure> {
    let Value::Object(fields) = &item else {
        let why = format!("`{param}`: expected an object");
        return Err(Failure::invalid(param, why));
    };
    let text = |name: &str| match fields.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let by = |role, text| Said {
        role,
        content: Content::text(text),
    };
    match fields.get("type").map(Value::as_str) {
        None | Some(Some("message")) => Said::read(item, param).map(Some),
        // Calls of other models: told to the agent, never run.
        Some(Some("function_call" | "custom_tool_call")) => {
            let (name, arguments) = (text("name"), text("arguments") + &text("input"));
            let called = format!("(called {name} with {arguments})");
            Ok(Some(by(Role::Assistant, called)))
        }
        Some(Some("function_call_output" | "custom_tool_call_output")) => {
            Ok(Some(by(Role::Tool, text("output"))))
        }
        Some(Some(_)) => Ok(None),
        Some(None) => {
            let why = format!("`{param}`: expected a string as its `type`");
            Err(Failure::invalid(param, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_request_reads_both_kinds_of_input() {
        let asked = ResponseRequest::read(r#"{"input":"hi","instructions":"be terse"}"#).unwrap();
        assert_eq!(asked.conversation.system, "be terse");
        assert_eq!(asked.continues, Continues::Itself);
        assert!(asked.stored && !asked.streams && !asked.in_background);
        let asked = ResponseRequest::read(
            r#"{"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"d"}]},
                {"role":"user","content":"where"},{"type":"reasoning","summary":[]},
                {"role":"user","content":[{"type":"input_text","text":"hi"}]}],
                "tools":[],"store":false,"stream":true,"metadata":{"a":"b"}}"#,
        )
        .unwrap();
        assert_eq!(
            (
                asked.conversation.system.as_str(),
                asked.conversation.turn.len()
            ),
            ("d", 2)
        );
        assert_eq!(asked.ignored, ["input[2]", "tools"]);
        assert!(!asked.stored && asked.streams);
        assert_eq!(asked.metadata["a"], "b");
    }

    /// Codex 0.169 with us as its provider: two messages of its maker, one of its own as the user's, and
    /// what the user says.
    #[test]
    fn response_request_of_codex_is_a_plain_turn() {
        let asked = ResponseRequest::read(include_str!("recorded/codex.json")).unwrap();
        assert!(asked.conversation.system.contains("Codex CLI"));
        let texts: Vec<&str> = asked
            .conversation
            .turn
            .iter()
            .map(|said| said.content.text.as_str())
            .collect();
        assert!(texts[0].starts_with("<environment_context>"), "{texts:?}");
        assert_eq!(texts[1..], ["hi [[chunks=3]]"]);
        assert!(asked.streams && !asked.stored);
        assert!(asked.ignored.contains(&"tools".to_owned()));
    }

    #[test]
    fn response_request_says_what_it_goes_on_from() {
        let continues = |more: &str| {
            let body = format!(r#"{{"input":"hi",{more}}}"#);
            ResponseRequest::read(&body).map(|asked| asked.continues)
        };
        let named = |name: &str| Ok(Continues::Named(name.to_owned()));
        assert_eq!(
            continues(r#""previous_response_id":"resp_j7""#),
            Ok(Continues::Previous(JobId(7)))
        );
        assert_eq!(continues(r#""conversation":"main""#), named("main"));
        assert_eq!(continues(r#""conversation":{"id":"main"}"#), named("main"));
        let unknown = continues(r#""previous_response_id":"resp_nope""#).unwrap_err();
        assert_eq!(
            (unknown.status, unknown.code.as_str()),
            (404, "previous_response_not_found")
        );
        for (wrong, param) in [
            (r#""previous_response_id":5"#, "previous_response_id"),
            (r#""conversation":5"#, "conversation"),
            (r#""conversation":{}"#, "conversation"),
            (
                r#""conversation":"a","previous_response_id":"resp_j1""#,
                "conversation",
            ),
            (r#""store":"no""#, "store"),
            (r#""background":1"#, "background"),
            (r#""metadata":{"a":5}"#, "metadata"),
            (r#""instructions":[]"#, "instructions"),
        ] {
            let failure = continues(wrong).unwrap_err();
            assert_eq!(
                (failure.status, failure.param.as_deref()),
                (400, Some(param)),
                "{wrong}"
            );
        }
        for body in [
            "{}",
            r#"{"input":[]}"#,
            r#"{"input":5}"#,
            r#"{"input":[5]}"#,
            r#"{"input":[{"type":5}]}"#,
        ] {
            assert_eq!(
                ResponseRequest::read(body).unwrap_err().status,
                400,
                "{body}"
            );
        }
    }

    #[test]
    fn metadata_that_cannot_be_kept_is_told() {
        let body = format!(
            r#"{{"input":"hi","metadata":{{"a":"{}"}}}}"#,
            "x".repeat(200)
        );
        let asked = ResponseRequest::read(&body).unwrap();
        assert_eq!(
            (asked.metadata.len(), asked.ignored.as_slice()),
            (0, &["metadata".to_owned()][..])
        );
    }
}
