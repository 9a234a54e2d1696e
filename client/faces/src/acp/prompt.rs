//! A prompt's blocks as what a send takes: text and attachments.
//!
//! Owns what becomes of each kind of block. Nothing is fetched for a client, and no file is read.

use agentd_protocol::attachment::{Attachment, PDF, is_image, is_text};
use agentd_protocol::limits::MAX_ATTACHMENT_NAME;

use super::wire::{Block, Resource};
use crate::json_rpc::{Failure, INVALID_PARAMS};

/// What is asked with a picture and no word: a send has some text.
const LOOK: &str = "Look at what is attached.";

/// A prompt for the daemon.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Asking {
    pub(super) text: String,
    pub(super) attachments: Vec<Attachment>,
}

/// Reads the blocks. A link stands in the text where it was; text that comes along stands behind it,
/// as not every agent takes it as an attachment.
pub(super) fn asking(blocks: Vec<Block>) -> Result<Asking, Failure> {
    let mut text = String::new();
    let mut context = String::new();
    let mut attachments = Vec::new();
    // Is the last piece a text of its own? The next one is another row then.
    let mut is_text_before = false;
    for (number, block) in blocks.into_iter().enumerate() {
        let refused = |why: String| refused(number, &why);
        let is_text = matches!(block, Block::Text { .. });
        match block {
            Block::Text { text: piece } => {
                if is_text_before && !text.ends_with('\n') && !piece.starts_with('\n') {
                    text.push('\n');
                }
                text.push_str(&piece);
            }
            Block::ResourceLink { uri } => mention(&mut text, &uri),
            Block::Image { mime_type, data } => {
                if !is_image(&mime_type) {
                    return Err(refused(format!("is of type {mime_type:?}: {TYPES}")));
                }
                attachments.push(attached(mime_type, data, None));
            }
            Block::Audio {} => {
                return Err(refused("is audio, which is not offered".to_owned()));
            }
            Block::Resource { resource } => {
                resource_read(resource, &mut text, &mut context, &mut attachments)
                    .map_err(refused)?;
            }
        }
        is_text_before = is_text;
    }
    if text.trim().is_empty() && !attachments.is_empty() {
        LOOK.clone_into(&mut text);
    }
    text.push_str(&context);
    if text.trim().is_empty() {
        let why = "`prompt` says nothing: expected some text";
        return Err(Failure::new(INVALID_PARAMS, why));
    }
    Ok(Asking { text, attachments })
}

const TYPES: &str = "expected image/png, image/jpeg, image/gif or image/webp";

fn resource_read(
    resource: Resource,
    text: &mut String,
    context: &mut String,
    attachments: &mut Vec<Attachment>,
) -> Result<(), String> {
    let Resource {
        uri,
        mime_type,
        text: inside,
        blob,
    } = resource;
    match (inside, blob) {
        (Some(inside), None) => {
            mention(text, &uri);
            let end = if inside.ends_with('\n') { "" } else { "\n" };
            let uri = uri.replace('"', "%22");
            context.push_str(&format!(
                "\n<context uri=\"{uri}\">\n{inside}{end}</context>"
            ));
            Ok(())
        }
        (None, Some(blob)) => {
            let mime = mime_type.unwrap_or_default();
            if !(is_image(&mime) || is_text(&mime) || mime == PDF) {
                return Err(format!(
                    "is a resource of type {mime:?}: expected text, a picture or {PDF}"
                ));
            }
            attachments.push(attached(mime, blob, name(&uri)));
            Ok(())
        }
        (None, None) => Err("is a resource with neither `text` nor `blob`".to_owned()),
        (Some(_), Some(_)) => {
            Err("is a resource with `text` and `blob`: expected one of them".to_owned())
        }
    }
}

fn attached(mime: String, data: String, name: Option<String>) -> Attachment {
    Attachment {
        mime: Some(mime),
        data: Some(data),
        name,
        ..Attachment::default()
    }
}

/// Puts a link between what is said before and behind it.
fn mention(text: &mut String, uri: &str) {
    if !text.is_empty() && !text.ends_with(char::is_whitespace) && !text.ends_with(['(', '@', '"'])
    {
        text.push(' ');
    }
    text.push_str(uri);
}

/// The last part of a URI, where it can be an attachment's name.
fn name(uri: &str) -> Option<String> {
    let last = uri.rsplit('/').next()?;
    let fine = (1..=MAX_ATTACHMENT_NAME).contains(&last.len()) && !last.contains(char::is_control);
    fine.then(|| last.to_owned())
}

fn refused(number: usize, why: &str) -> Failure {
    Failure::new(INVALID_PARAMS, format!("`prompt[{number}]` {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(blocks: Value) -> Result<Asking, String> {
        asking(serde_json::from_value(blocks).unwrap()).map_err(|failure| failure.message)
    }

    #[test]
    fn acp_prompt_keeps_its_order() {
        let text = |blocks: Value| read(blocks).unwrap().text;
        assert_eq!(
            text(json!([
                {"type": "text", "text": "look at "},
                {"type": "resource_link", "uri": "file:///w/a.rs", "name": "a.rs"},
                {"type": "text", "text": " and"},
                {"type": "text", "text": "say"},
            ])),
            "look at file:///w/a.rs and\nsay"
        );
        assert_eq!(
            text(json!([
                {"type": "text", "text": "sum up"},
                {"type": "resource", "resource": {"uri": "file:///w/a\"b", "text": "inside"}},
            ])),
            "sum up file:///w/a\"b\n<context uri=\"file:///w/a%22b\">\ninside\n</context>"
        );
    }

    #[test]
    fn acp_prompt_attaches_pictures_and_documents() {
        let asking = read(json!([
            {"type": "image", "mimeType": "image/png", "data": "aGk="},
            {"type": "resource", "resource": {"uri": "file:///w/l.pdf", "mimeType": "application/pdf", "blob": "aGk="}},
        ]))
        .unwrap();
        assert_eq!(asking.text, LOOK);
        let [picture, paper] = &asking.attachments[..] else {
            panic!("{asking:?}");
        };
        assert_eq!(picture.mime.as_deref(), Some("image/png"));
        assert_eq!(paper.name.as_deref(), Some("l.pdf"));
    }

    #[test]
    fn acp_prompt_refuses_what_cannot_be_sent() {
        for (blocks, why) in [
            (json!([]), "says nothing"),
            (json!([{"type": "text", "text": " "}]), "says nothing"),
            (
                json!([{"type": "text", "text": "a"}, {"type": "audio", "data": "", "mimeType": "audio/wav"}]),
                "`prompt[1]` is audio",
            ),
            (
                json!([{"type": "image", "mimeType": "image/tiff", "data": "aGk="}]),
                "\"image/tiff\"",
            ),
            (
                json!([{"type": "resource", "resource": {"uri": "a:b"}}]),
                "neither",
            ),
            (
                json!([{"type": "resource", "resource": {"uri": "a:b", "blob": "aGk="}}]),
                "of type \"\"",
            ),
        ] {
            let found = read(blocks).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }
}
