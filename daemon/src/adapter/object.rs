//! A worker's line as a JSON object, read field by field.
//!
//! Owns how leniently a foreign line is read: a field of another type than expected counts as
//! absent, and what is only passed on stays as it was written. Must not know any field's meaning.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// Longest beginning of a line that is kept for a log, in bytes: the tail it goes to holds 16 KiB.
const KEPT: usize = 4 * 1024;

/// A JSON object whose fields are still text.
pub(super) struct Object<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Object<'a> {
    /// Reads one line; `None` if it is anything but one JSON object in UTF-8.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok().map(Self)
    }

    /// The field as it was written; `null` is absent.
    pub(super) fn raw(&self, name: &str) -> Option<&'a str> {
        self.0
            .get(name)
            .map(|raw| raw.get())
            .filter(|raw| *raw != "null")
    }

    /// The field, if it is there and of this type.
    pub(super) fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.raw(name)
            .and_then(|raw| serde_json::from_str(raw).ok())
    }

    /// The field, if it is a string.
    pub(super) fn string(&self, name: &str) -> Option<String> {
        self.get(name)
    }

    /// The field, if it is an object.
    pub(super) fn object(&self, name: &str) -> Option<Object<'a>> {
        self.raw(name).and_then(|raw| Self::parse(raw.as_bytes()))
    }

    /// Is the field `true`?
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.raw(name) == Some("true")
    }

    /// Every element of the field that is an object.
    pub(super) fn objects(&self, name: &str) -> Vec<Object<'a>> {
        self.raw(name).map(elements).unwrap_or_default()
    }
}

/// Every element of a list that is an object.
pub(super) fn elements(list: &str) -> Vec<Object<'_>> {
    let elements: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    let objects = elements.into_iter();
    objects
        .filter_map(|raw| Object::parse(raw.get().as_bytes()))
        .collect()
}

/// The text of a message or a tool result.
pub(super) fn content(of: &Object<'_>) -> String {
    if let Some(text) = of.string("content") {
        return text;
    }
    let parts = of.objects("content");
    let texts = parts
        .iter()
        .filter_map(|part| match part.string("type").as_deref() {
            Some("text") => part.string("text"),
            Some("image") => Some("[image]".to_owned()),
            _ => None,
        });
    texts.collect::<Vec<_>>().join("\n")
}

/// The beginning of a line, for a log.
pub(super) fn beginning(line: &[u8]) -> String {
    let cut = String::from_utf8_lossy(&line[..line.len().min(KEPT)]);
    cut.trim_end_matches(['\r', '\n']).to_owned()
}

/// Does the beginning of an object show this field with this value?
pub(super) fn shows(beginning: &[u8], name: &str, value: &serde_json::Value) -> bool {
    // Some agents put blanks behind colons and commas, most don't.
    let dense = beginning.iter().filter(|byte| !byte.is_ascii_whitespace());
    let dense: Vec<u8> = dense.copied().collect();
    let field = format!("\"{name}\":{value}");
    let mut windows = dense.windows(field.len() + 1);
    windows.any(|window| {
        let (at, behind) = window.split_at(field.len());
        // Or 1 would be found in 10.
        at == field.as_bytes() && matches!(behind, b"," | b"}")
    })
}

/// Appends a value as one line.
pub(super) fn put_line(write: &mut Vec<u8>, value: &serde_json::Value) {
    write.extend_from_slice(value.to_string().as_bytes());
    write.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_known_by_how_it_begins() {
        let shows = |line: &str, name: &str, value| shows(line.as_bytes(), name, &value);
        let line = r#"{ "type" : "result", "id":55,"n":{"id":"t1"},"text":"xx"#;
        assert!(shows(line, "type", "result".into()));
        assert!(shows(line, "id", 55.into()) && shows(line, "id", "t1".into()));
        assert!(!shows(line, "id", 5.into()) && !shows(line, "text", "xx".into()));
    }

    #[test]
    fn object_field_of_another_type_is_absent() {
        for line in [
            &b"null"[..],
            b"[1]",
            b"7",
            b"{",
            b"{} {}",
            b"\xff",
            b"{\"a\":\"\xff\"}",
            b"",
        ] {
            assert!(Object::parse(line).is_none(), "{line:?}");
        }
        let object = Object::parse(br#"{"n":1.50,"s":"x","z":null,"o":{"k":[{},1]}}"#).unwrap();
        assert_eq!(object.raw("n"), Some("1.50"));
        assert_eq!(object.string("n"), None);
        assert_eq!(object.string("s").as_deref(), Some("x"));
        assert_eq!(object.raw("z"), None);
        assert_eq!(object.object("o").unwrap().objects("k").len(), 1);
    }
}
