//! A prompt as the content of a user message, in the Messages API's blocks.
//!
//! Owns what an attachment becomes. Must not know when a message is written.

use agentd_core::attached::Attached;
use agentd_core::worker::Prompt;
use agentd_protocol::attachment::{is_image, is_text};
use serde_json::{Value, json};

use crate::adapter::attached::{base64, name, text};

/// Attachments first, as the text is about them. Without any it is the text alone.
pub(super) fn of(prompt: &Prompt) -> Value {
    let attached = prompt.attachments.here();
    if attached.is_empty() {
        return json!(prompt.text);
    }
    let mut blocks: Vec<Value> = attached.iter().map(block).collect();
    blocks.push(json!({"type": "text", "text": prompt.text}));
    Value::Array(blocks)
}

fn block(attached: &Attached) -> Value {
    let mime = &attached.mime;
    if is_image(mime) {
        let source = json!({"type": "base64", "media_type": mime, "data": base64(attached)});
        return json!({"type": "image", "source": source});
    }
    let source = if is_text(mime) {
        // The API knows no other type of text.
        json!({"type": "text", "media_type": "text/plain", "data": text(attached)})
    } else {
        json!({"type": "base64", "media_type": mime, "data": base64(attached)})
    };
    json!({"type": "document", "source": source, "title": name(attached)})
}

#[cfg(test)]
mod tests {
    use agentd_core::attached::Attachments;

    use super::*;
    use crate::adapter::attached::samples;

    #[test]
    fn attachments_come_before_the_prompt_as_content() {
        let pdf = samples::of("application/pdf", None, b"%PDF");
        let text = samples::of("text/csv", Some("t.csv"), b"1,2");
        let mut prompt = samples::prompt(vec![pdf, text]);
        let expected = json!([
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
            {"type": "document", "title": "attachment",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
            {"type": "document", "title": "t.csv",
                "source": {"type": "text", "media_type": "text/plain", "data": "1,2"}},
            {"type": "text", "text": "look"},
        ]);
        assert_eq!(of(&prompt), expected);
        prompt.attachments = Attachments::None;
        assert_eq!(of(&prompt), json!("look"));
    }
}
