//! What a message says: its text, and the pictures and documents in it.
//!
//! Owns the parts of both of OpenAI's APIs. Must not fetch anything: a URL that isn't the content
//! itself is refused, as the server would ask whomever the client names.

use agentd_protocol::attachment::Attachment;
use serde_json::Value;

use super::failure::Failure;

/// Text, and what goes with it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Content {
    /// All of its text.
    pub text: String,
    /// What goes with it.
    pub attachments: Vec<Attachment>,
}

impl Content {
    /// Text alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            attachments: Vec::new(),
        }
    }

    /// Is nothing said, or attached?
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty() && self.attachments.is_empty()
    }

    /// Reads a string, or a list of parts.
    ///
    /// # Errors
    /// When it is neither, or a part can't be passed on.
    pub fn read(value: Value, param: &str) -> Result<Self, Failure> {
        let parts = match value {
            Value::Null => return Ok(Self::default()),
            Value::String(text) => return Ok(Self::text(text)),
            Value::Array(parts) => parts,
            other => {
                let why = format!(
                    "expected a string or a list of parts, found {}",
                    named(&other)
                );
                return Err(Failure::invalid(param, format!("`{param}`: {why}")));
            }
        };
        let mut content = Self::default();
        for (number, part) in parts.into_iter().enumerate() {
            content.add(part, &format!("{param}[{number}]"))?;
        }
        Ok(content)
    }

    fn add(&mut self, part: Value, param: &str) -> Result<(), Failure> {
        let invalid = |why: &str| Err(Failure::invalid(param, format!("`{param}`: {why}")));
        let Value::Object(mut part) = part else {
            return match part {
                Value::String(text) => {
                    self.say(&text);
                    Ok(())
                }
                _ => invalid("expected a part with a `type`"),
            };
        };
        let kind = match part.get("type") {
            Some(Value::String(kind)) => kind.clone(),
            _ => return invalid("expected a part with a `type`"),
        };
        match kind.as_str() {
            "text" | "input_text" | "output_text" | "refusal" => {
                let name = if kind == "refusal" { "refusal" } else { "text" };
                match part.get(name) {
                    Some(Value::String(text)) => self.say(text),
                    _ => return invalid(&format!("expected a string as its `{name}`")),
                }
            }
            "image_url" | "input_image" => {
                let url = match part.shift_remove("image_url") {
                    Some(Value::Object(mut image)) => image.shift_remove("url"),
                    other => other,
                };
                let Some(Value::String(url)) = url else {
                    return invalid("expected a picture as a data URL: files aren't kept here");
                };
                self.attachments.push(attached(&url, None, param)?);
            }
            "file" | "input_file" => {
                let mut file = match part.shift_remove("file") {
                    Some(Value::Object(file)) => file,
                    _ => part,
                };
                let (data, name) = (
                    file.shift_remove("file_data"),
                    file.shift_remove("filename"),
                );
                let Some(Value::String(data)) = data else {
                    return invalid("expected `file_data` as a data URL: files aren't kept here");
                };
                let name = name.and_then(|name| Some(name.as_str()?.to_owned()));
                self.attachments.push(attached(&data, name, param)?);
            }
            other => {
                let shown: String = other.chars().take(64).collect();
                return invalid(&format!(
                    "a part of type `{shown}` can't be passed on: expected text, pictures or files"
                ));
            }
        }
        Ok(())
    }

    fn say(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }
}

const fn named(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The content of a `data:` URL.
fn attached(url: &str, name: Option<String>, param: &str) -> Result<Attachment, Failure> {
    let invalid = |why: &str| Failure::invalid(param, format!("`{param}`: {why}"));
    let Some((head, data)) = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(','))
    else {
        return Err(invalid(
            "expected a `data:` URL with the content itself: nothing is fetched",
        ));
    };
    let Some(head) = head.strip_suffix(";base64") else {
        return Err(invalid("expected a `data:` URL in base64"));
    };
    // Its parameters say nothing that the content doesn't.
    let mime = head.split(';').next().unwrap_or_default();
    let mime = match mime.to_ascii_lowercase().as_str() {
        "image/jpg" => "image/jpeg".to_owned(),
        mime => mime.to_owned(),
    };
    // What it is called is for people: one that can't be is left out.
    let fits = |name: &String| {
        (1..=255).contains(&name.len()) && !name.contains(|c: char| c == '/' || c.is_control())
    };
    Ok(Attachment {
        mime: Some(mime),
        data: Some(data.to_owned()),
        name: name.filter(fits),
        ..Attachment::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn content_is_text_with_pictures_of_either_api() {
        let image = "data:image/jpg;base64,aGk=";
        for parts in [
            json!([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": "b"}]),
            json!([{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": image}, {"type": "output_text", "text": "b"}]),
        ] {
            let content = Content::read(parts, "content").unwrap();
            assert_eq!(content.text, "a\nb");
            let [picture] = content.attachments.as_slice() else {
                panic!("{content:?}");
            };
            assert_eq!(picture.mime.as_deref(), Some("image/jpeg"));
            assert_eq!(picture.data.as_deref(), Some("aGk="));
        }
        let file = json!([{"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;charset=utf-8;base64,aGk="}}]);
        let content = Content::read(file, "content").unwrap();
        assert_eq!(content.attachments[0].mime.as_deref(), Some("text/plain"));
        assert_eq!(content.attachments[0].name.as_deref(), Some("a.txt"));
    }

    #[test]
    fn content_that_would_be_fetched_is_refused() {
        for part in [
            json!({"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}),
            json!({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}),
            json!({"type": "input_image", "file_id": "file-1"}),
            json!({"type": "input_image", "image_url": 5}),
            json!({"type": "image_url", "image_url": "data:image/png,raw"}),
            json!({"type": "input_audio", "input_audio": {}}),
            json!({"type": 5}),
            json!({"type": "text"}),
            json!(5),
        ] {
            let failure = Content::read(json!([part]), "c").unwrap_err();
            assert_eq!(
                (failure.status, failure.param.as_deref()),
                (400, Some("c[0]")),
                "{part}"
            );
        }
        assert_eq!(Content::read(json!({}), "c").unwrap_err().status, 400);
        assert!(Content::read(Value::Null, "c").unwrap().is_blank());
    }
}
