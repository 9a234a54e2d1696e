//! What goes with a send besides its words, as models get it.
//!
//! Owns that text becomes part of the words, and that everything else stays what it is. Must not
//! know which model takes what.

use agentd_protocol::Code;
use agentd_protocol::attachment::{Attachment, is_text};
use agentd_protocol::envelope::Rejected;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::message::Attached;

/// The words with the text that goes with them, and the rest.
///
/// # Errors
/// An attachment has no content, or isn't the text that it says.
pub(super) fn read(
    words: &str,
    attachments: &[Attachment],
) -> Result<(String, Vec<Attached>), Rejected> {
    let (mut words, mut attached) = (words.to_owned(), Vec::new());
    for (number, one) in attachments.iter().enumerate() {
        let wrong = |why: &str| {
            let error = format!("`attachments[{number}]` {why}");
            Rejected::new(Code::InvalidRequest, error)
        };
        let (Some(mime), Some(data)) = (&one.mime, &one.data) else {
            return Err(wrong("has no content: expected `mime` and `data`"));
        };
        let name = one.name.as_deref().unwrap_or("attachment");
        if !is_text(mime) {
            attached.push(Attached {
                mime: mime.clone(),
                name: name.to_owned(),
                data: data.as_str().into(),
            });
            continue;
        }
        let content = STANDARD.decode(data).ok();
        let content = content.and_then(|bytes| String::from_utf8(bytes).ok());
        let content = content.ok_or_else(|| wrong("is not text in UTF-8 and base64"))?;
        words.push_str(&format!(
            "\n\n<attachment name={name:?} type={mime:?}>\n{content}\n</attachment>"
        ));
    }
    Ok((words, attached))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mime: &str, data: &str) -> Attachment {
        Attachment {
            mime: Some(mime.to_owned()),
            data: Some(data.to_owned()),
            name: Some("a b".to_owned()),
            ..Attachment::default()
        }
    }

    #[test]
    fn attached_text_joins_the_words_pictures_stay() {
        let (words, attached) = read(
            "look",
            &[of("text/x-rust", "Zm4="), of("image/png", "eA==")],
        )
        .unwrap();
        assert_eq!(
            words,
            "look\n\n<attachment name=\"a b\" type=\"text/x-rust\">\nfn\n</attachment>"
        );
        assert_eq!(
            attached,
            [Attached {
                mime: "image/png".to_owned(),
                name: "a b".to_owned(),
                data: "eA==".into(),
            }]
        );
    }

    #[test]
    fn attached_without_usable_content_is_refused_by_number() {
        for wrong in [
            Attachment::of_path("/a"),
            of("text/plain", "not base64"),
            of("text/plain", "/w=="),
        ] {
            let refused = read("look", &[of("text/plain", ""), wrong]).unwrap_err();
            assert!(
                refused.error.starts_with("`attachments[1]` "),
                "{refused:?}"
            );
        }
    }
}
