//! The first step of decoding: which request is it, and how is its answer addressed?
//!
//! Owns `type` and `id`, and every error a line can have before its fields matter.
//! Must not know the fields of any request: an error here can still echo the `id`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Deserializer;
use serde_json::value::RawValue;

use crate::code::Code;
use crate::ids::Id;
use crate::limits::{MAX_ID, MAX_LINE_IN};
use crate::strict;

/// A refused line or request: one `error` line says so, and nothing else happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// For programs.
    pub code: Code,
    /// The sentence for people: what was found and what was expected.
    pub error: String,
    /// What to do, where that is known.
    pub hint: Option<String>,
    /// What could be meant, where that is the question.
    pub choices: Vec<String>,
}

impl Rejected {
    /// A refusal without a hint.
    pub fn new(code: Code, error: impl Into<String>) -> Self {
        Self {
            code,
            error: error.into(),
            hint: None,
            choices: Vec::new(),
        }
    }

    /// The same with what could be meant.
    #[must_use]
    pub fn choices(mut self, choices: Vec<String>) -> Self {
        self.choices = choices;
        self
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The refusal of a line over [`MAX_LINE_IN`].
    #[must_use]
    pub fn too_long() -> Self {
        let error = format!("the line is longer than {MAX_LINE_IN} bytes and was skipped");
        Self::new(Code::FrameTooLong, error).hint("pass large content by path")
    }
}

pub(crate) fn invalid(error: impl Into<String>) -> Rejected {
    Rejected::new(Code::InvalidRequest, error)
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl std::error::Error for Rejected {}

/// A field nobody here knows, and the known name nearest to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ignored {
    /// As written.
    pub field: String,
    /// What may have been meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

/// A line that is an object, with its request named and its fields still undecoded.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// The `type`, or `send` for a line that has `prompt`, `text` or `message` instead.
    pub kind: Cow<'a, str>,
    /// Was `type` written out?
    pub typed: bool,
    /// The `id`, if there was one.
    pub id: Option<Id>,
    /// The whole line.
    pub body: &'a str,
}

/// How a request is read from its line: see `request_table`.
pub(crate) trait Read: Sized {
    /// Its fields, and those that nobody here knows.
    fn read(envelope: &Envelope<'_>) -> Result<(Self, Vec<Ignored>), Rejected>;
}

/// The fields of a request, which serde reads.
pub(crate) trait Checked: DeserializeOwned {
    /// What serde can't say.
    fn check(&self) -> Result<(), Rejected> {
        Ok(())
    }
}

impl<T: Checked> Read for T {
    fn read(envelope: &Envelope<'_>) -> Result<(Self, Vec<Ignored>), Rejected> {
        let read: Self = fields(envelope.body)?;
        read.check()?;
        Ok((read, Vec::new()))
    }
}

pub(crate) fn fields<'de, T: Deserialize<'de>>(body: &'de str) -> Result<T, Rejected> {
    serde_json::from_str(body).map_err(|error| invalid(format!("invalid field: {error}")))
}

#[derive(Deserialize)]
struct EnvelopeHead<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

/// `null` is an id too; only an absent one is none.
pub fn present<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// The `id` of a line of which only the beginning is there, if all of it stands in that.
#[must_use]
pub fn id_at_beginning(beginning: &[u8]) -> Option<Id> {
    let text = match std::str::from_utf8(beginning) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&beginning[..error.valid_up_to()]).ok()?,
    };
    let mut found = None;
    // It breaks off, so this fails; what was read until then counts.
    let _cut = Deserializer::from_str(text).deserialize_map(IdFinder { found: &mut found });
    let raw: &str = found?;
    // A number may go on in what is missing.
    let end = raw.as_ptr().addr() + raw.len() - text.as_ptr().addr();
    let raw = (end < text.len() && raw.len() <= MAX_ID).then_some(raw)?;
    serde_json::from_str(raw).ok().map(Id::from_raw)
}

struct IdFinder<'a, 'de> {
    found: &'a mut Option<&'de str>,
}

impl<'de> Visitor<'de> for IdFinder<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<Cow<'de, str>>()? {
            if name == "id" {
                *self.found = Some(members.next_value::<&RawValue>()?.get());
                return Ok(());
            }
            members.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

impl<'a> Envelope<'a> {
    /// Reads the envelope of one line.
    ///
    /// # Errors
    /// `bad-utf8`, `bad-json`, `not-an-object` without an id; `invalid-request` with the id where
    /// it could be read.
    pub fn parse(line: &'a [u8]) -> Result<Self, (Option<Id>, Rejected)> {
        let text = std::str::from_utf8(line).map_err(|error| {
            let at = error.valid_up_to();
            (
                None,
                Rejected::new(Code::BadUtf8, format!("byte {at} of the line is not UTF-8")),
            )
        })?;
        // All of the line before any of it: what is wrong at its end would be found when half of it
        // counts.
        strict::check(text).map_err(|why| {
            (
                None,
                Rejected::new(Code::BadJson, format!("not JSON: {why}")),
            )
        })?;
        if !text.trim_start().starts_with('{') {
            let error = "the line is JSON but not an object";
            let hint = r#"send one object per line, such as {"prompt":"hi"}"#;
            return Err((None, Rejected::new(Code::NotAnObject, error).hint(hint)));
        }
        let head: EnvelopeHead<'a> = serde_json::from_str(text).map_err(|why| {
            (
                None,
                Rejected::new(Code::BadJson, format!("not JSON: {why}")),
            )
        })?;
        let id = match head.id {
            Some(raw) if raw.get().len() > MAX_ID => {
                let error = format!("`id` is {} bytes, the limit is {MAX_ID}", raw.get().len());
                // Not echoed: the limit is for what is.
                return Err((None, Rejected::new(Code::InvalidRequest, error)));
            }
            raw => raw.map(Id::from_raw),
        };
        let invalid = |error: &str| (id.clone(), Rejected::new(Code::InvalidRequest, error));
        let (kind, typed) = match head
            .kind
            .map(|raw| serde_json::from_str::<Cow<'a, str>>(raw.get()))
        {
            Some(Ok(kind)) => (kind, true),
            Some(Err(_)) => return Err(invalid("`type` is not a string")),
            None if head.text.is_some() || head.prompt.is_some() || head.message.is_some() => {
                (Cow::Borrowed("send"), false)
            }
            None => return Err(invalid("the object has neither `type` nor `prompt`")),
        };
        Ok(Self {
            kind,
            typed,
            id,
            body: text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_at_beginning_is_whole_or_none() {
        for (beginning, id) in [
            (r#"{"type":"send","id":7,"text":"aaa"#, Some("7")),
            (r#"{"id":"a b","te"#, Some(r#""a b""#)),
            (r#"{"x":{"id":1},"id":[2] ,"#, Some("[2]")),
            (r#"{"type":"send","id":7"#, None),
            (r#"{"text":"aaa","id":"b"#, None),
            (r#"{"text":"a\"id\":1,"#, None),
            (r#"["id",1,"#, None),
            ("", None),
        ] {
            let found = id_at_beginning(beginning.as_bytes());
            assert_eq!(found.as_ref().map(Id::as_json), id, "{beginning}");
        }
        let cut = &"{\"id\":1,\"text\":\"ö".as_bytes()[..18];
        assert_eq!(id_at_beginning(cut).as_ref().map(Id::as_json), Some("1"));
    }

    #[test]
    fn envelope_names_the_request_and_keeps_its_id() {
        for (line, kind, typed, id) in [
            (r#"{"type":"ping","id":1.0}"#, "ping", true, Some("1.0")),
            (r#"{"prompt":"hi","id":null}"#, "send", false, Some("null")),
            (r#"{"text":"hi"}"#, "send", false, None),
            (
                r#"{"id":{"a": [1, 2]},"type":"s\u0065nd"}"#,
                "send",
                true,
                Some(r#"{"a": [1, 2]}"#),
            ),
        ] {
            let envelope = Envelope::parse(line.as_bytes()).unwrap();
            assert_eq!(envelope.kind, kind, "{line}");
            assert_eq!(envelope.typed, typed, "{line}");
            assert_eq!(envelope.id.as_ref().map(Id::as_json), id, "{line}");
        }
    }

    #[test]
    fn envelope_of_a_bad_line_keeps_its_id() {
        let long = format!(r#"{{"type":"ping","id":"{}"}}"#, "x".repeat(MAX_ID));
        for (line, code, id) in [
            (&b"\xff"[..], Code::BadUtf8, None),
            (b"{", Code::BadJson, None),
            (b"{\"a\":1,\"a\":2}", Code::BadJson, None),
            (b"GET / HTTP/1.1", Code::BadJson, None),
            (b"[1]", Code::NotAnObject, None),
            (b"null", Code::NotAnObject, None),
            (b"{}", Code::InvalidRequest, None),
            (b"{\"id\":7}", Code::InvalidRequest, Some("7")),
            (
                b"{\"type\":5,\"id\":\"a\"}",
                Code::InvalidRequest,
                Some("\"a\""),
            ),
            (long.as_bytes(), Code::InvalidRequest, None),
        ] {
            let (found, rejected) = Envelope::parse(line).unwrap_err();
            assert_eq!(rejected.code, code, "{}", String::from_utf8_lossy(line));
            assert_eq!(found.as_ref().map(Id::as_json), id);
        }
    }
}
