//! A request for a chat completion.
//!
//! Owns which of its fields count. Must not know sessions, or who else asks.

use super::conversation::{Conversation, messages};
use super::failure::Failure;
use super::fields::Fields;
use super::model::ModelName;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChatRequest {
    /// Who is to answer.
    pub model: ModelName,
    /// What was said.
    pub conversation: Conversation,
    /// Is the answer to come as it is said?
    pub streams: bool,
    /// Is what it used told at the end of the stream?
    pub tells_usage: bool,
    /// For whom the client asks.
    pub user: Option<String>,
    /// Fields that nothing was made of.
    pub ignored: Vec<String>,
}

/// How a stream is to be.
#[derive(Default, serde::Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

impl ChatRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// When a field that counts is wrong.
    pub fn read(text: &str) -> Result<Self, Failure> {
        let mut fields = Fields::of(text)?;
        let model = ModelName::read(fields.take("model")?)?;
        let said = messages(&mut fields, "messages")?.ok_or_else(|| {
            Failure::invalid(
                "messages",
                "`messages` is missing: expected a list of messages",
            )
        })?;
        let mut conversation = Conversation::of(said, "messages")?;
        let mut ignored = Vec::new();
        if let Some(format) = fields.take("response_format")?
            && conversation.add_format(&format, "response_format")?
        {
            // It is asked for, and nobody is held to it.
            ignored.push("response_format".to_owned());
        }
        if let Some(n) = fields.take::<u64>("n")?.filter(|n| *n != 1) {
            let why = format!("`n` is {n}: an agent gives one answer");
            return Err(Failure::invalid("n", why));
        }
        let streams = fields.take("stream")?.unwrap_or_default();
        let options: StreamOptions = fields.take("stream_options")?.unwrap_or_default();
        let user = fields.user()?;
        ignored.extend(fields.ignored());
        Ok(Self {
            model,
            conversation,
            streams,
            tells_usage: options.include_usage.unwrap_or_default(),
            user,
            ignored,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chat_request_tells_what_it_ignores() {
        let asked = ChatRequest::read(
            r#"{"model":"pi","messages":[{"role":"user","content":"hi"}],"stream":true,"n":1,
                "stream_options":{"include_usage":true},"user":"me","temperature":0.5,"tools":[{}]}"#,
        )
        .unwrap();
        assert!(asked.streams && asked.tells_usage);
        assert_eq!(asked.ignored, ["temperature", "tools"]);
        assert_eq!(asked.user.as_deref(), Some("me"));
        assert_eq!(asked.model.agent.as_deref(), Some("pi"));
    }

    #[test]
    fn chat_request_tells_the_form_to_the_agent() {
        let asked = ChatRequest::read(
            r#"{"messages":[{"role":"system","content":"be terse"},{"role":"user","content":"hi"}],
                "response_format":{"type":"json_object"}}"#,
        )
        .unwrap();
        let system = &asked.conversation.system;
        assert!(
            system.starts_with("be terse\n\n# Form of the answer"),
            "{system}"
        );
        assert_eq!(asked.ignored, ["response_format"]);
        let free = ChatRequest::read(
            r#"{"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"text"}}"#,
        );
        let free = free.unwrap();
        assert!(free.conversation.system.is_empty() && free.ignored.is_empty());
    }

    /// The four requests of Open WebUI 0.12 for one message: the title, the message, what may be said
    /// next, tags.
    #[test]
    fn chat_request_of_open_webui_is_told_apart() {
        let recorded: Vec<serde_json::Value> =
            serde_json::from_str(include_str!("recorded/open_webui.json")).unwrap();
        let asked = recorded
            .iter()
            .map(|body| ChatRequest::read(&body.to_string()).unwrap());
        let side: Vec<(bool, bool)> = asked
            .map(|asked| (asked.conversation.is_side_request(), asked.streams))
            .collect();
        assert_eq!(
            side,
            [(true, false), (false, true), (true, false), (true, false)]
        );
    }

    #[test]
    fn chat_request_names_the_field_that_is_wrong() {
        let with =
            |more: &str| format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{more}}}"#);
        for (body, param) in [
            ("{}".to_owned(), "messages"),
            (r#"{"messages":"hi"}"#.to_owned(), "messages"),
            (with(r#","n":2"#), "n"),
            (with(r#","n":-1"#), "n"),
            (with(r#","stream":"yes""#), "stream"),
            (with(r#","stream_options":5"#), "stream_options"),
            (with(r#","model":5"#), "model"),
            (with(r#","user":{}"#), "user"),
            (with(r#","safety_identifier":7"#), "safety_identifier"),
            (with(r#","response_format":"json""#), "response_format"),
        ] {
            let failure = ChatRequest::read(&body).unwrap_err();
            assert_eq!(
                (failure.status, failure.param.as_deref()),
                (400, Some(param)),
                "{body}"
            );
        }
        assert!(ChatRequest::read(&with(r#","stream":null,"n":null"#)).is_ok());
    }
}
