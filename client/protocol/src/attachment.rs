//! What goes with a turn besides its text: pictures and documents.
//!
//! Owns the fields of an attachment, their syntax, and which types there are. Must not know files:
//! what is behind a path is for the daemon to look at.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::check::is_absolute;
use crate::envelope::{Rejected, invalid};
use crate::limits::{MAX_ATTACHMENT_NAME, MAX_ATTACHMENTS};

/// Types of pictures.
pub const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The type of a PDF document.
pub const PDF: &str = "application/pdf";
/// The type of text of which nothing more is said.
pub const TEXT: &str = "text/plain";

/// One attachment: as its sender gave it, with `path` or with `mime` and `data`; as it was
/// accepted, with `mime`, `bytes` and `sha256`.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attachment {
    /// A file: absolute.
    pub path: Option<String>,
    /// Its type; found by the content of a file.
    pub mime: Option<String>,
    /// The content in base64.
    pub data: Option<String>,
    /// What people call it; of a file, the last part of its path.
    pub name: Option<String>,
    /// Of the content; said by the daemon.
    pub bytes: Option<u64>,
    /// Of the content, in hex; said by the daemon.
    pub sha256: Option<String>,
}

impl Attachment {
    /// A file.
    #[must_use]
    pub fn of_path(path: impl Into<String>) -> Self {
        Self {
            path: Some(path.into()),
            ..Self::default()
        }
    }
}

/// Is it a picture?
#[must_use]
pub fn is_image(mime: &str) -> bool {
    IMAGES.contains(&mime)
}

/// Is it text?
#[must_use]
pub fn is_text(mime: &str) -> bool {
    mime.strip_prefix("text/").is_some_and(|kind| {
        let fine = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        !kind.is_empty() && kind.len() <= 64 && kind.chars().all(fine)
    })
}

/// Is it a type that can be attached?
#[must_use]
pub fn is_known(mime: &str) -> bool {
    is_image(mime) || is_text(mime) || mime == PDF
}

/// What it is, whatever it is called; nothing that can't be attached.
#[must_use]
pub fn type_of(bytes: &[u8]) -> Option<&'static str> {
    let begins = |magic: &[u8]| bytes.starts_with(magic);
    if begins(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if begins(b"\xff\xd8\xff") {
        Some("image/jpeg")
    } else if begins(b"GIF87a") || begins(b"GIF89a") {
        Some("image/gif")
    } else if begins(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        Some("image/webp")
    } else if begins(b"%PDF-") {
        Some(PDF)
    // UTF-8 may have zeros in it, and no text has.
    } else if !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok() {
        Some(TEXT)
    } else {
        None
    }
}

pub(crate) fn check(attachments: &[Attachment]) -> Result<(), Rejected> {
    if attachments.len() > MAX_ATTACHMENTS {
        let count = attachments.len();
        return Err(invalid(format!(
            "`attachments` has {count} entries, the limit is {MAX_ATTACHMENTS}"
        )));
    }
    for (number, attachment) in attachments.iter().enumerate() {
        check_one(attachment).map_err(|why| invalid(format!("`attachments[{number}]` {why}")))?;
    }
    Ok(())
}

fn check_one(attachment: &Attachment) -> Result<(), String> {
    let Attachment {
        path, mime, data, ..
    } = attachment;
    match (path, data, mime) {
        (Some(_), Some(_), _) => {
            return Err("has `path` and `data`: expected one of them".to_owned());
        }
        (None, None, _) => {
            return Err(
                "has neither `path` nor `data`: expected `path`, or `mime` and `data`".to_owned(),
            );
        }
        (None, Some(_), None) => return Err("has `data` and no `mime`".to_owned()),
        _ => {}
    }
    if let Some(path) = path
        && !is_absolute(path)
    {
        return Err(format!("has the path `{path}`: expected an absolute one"));
    }
    if let Some(mime) = mime
        && !is_known(mime)
    {
        let images = IMAGES.join(", ");
        return Err(format!(
            "is of type {mime:?}: expected {images}, {PDF} or text/…"
        ));
    }
    let fine = |name: &String| {
        let odd = |c: char| c == '/' || c.is_control();
        (1..=MAX_ATTACHMENT_NAME).contains(&name.len()) && !name.contains(odd)
    };
    match &attachment.name {
        Some(name) if !fine(name) => Err(format!(
            "has a bad `name`: expected 1 to {MAX_ATTACHMENT_NAME} bytes without `/` and control characters"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(json: &str) -> Result<(), String> {
        let attachments: Vec<Attachment> = serde_json::from_str(json).unwrap();
        check(&attachments).map_err(|rejected| rejected.error)
    }

    #[test]
    fn attachment_is_a_path_or_content_of_type() {
        for fine in [
            "[]",
            r#"[{"path":"/tmp/a b"}]"#,
            r#"[{"path":"/tmp/a","mime":"text/markdown","name":"notes"}]"#,
            r#"[{"mime":"image/png","data":""},{"mime":"application/pdf","data":"eA=="}]"#,
        ] {
            assert_eq!(given(fine), Ok(()), "{fine}");
        }
        for (wrong, why) in [
            ("[{}]", "neither `path` nor `data`"),
            (
                r#"[{"path":"/a","data":"eA==","mime":"text/plain"}]"#,
                "expected one of them",
            ),
            (
                r#"[{"path":"/a"},{"data":"eA=="}]"#,
                "`attachments[1]` has `data` and no `mime`",
            ),
            (r#"[{"path":"a.png"}]"#, "expected an absolute one"),
            (r#"[{"path":"/a\u0000b"}]"#, "expected an absolute one"),
            (
                r#"[{"path":"/a","mime":"video/mp4"}]"#,
                "is of type \"video/mp4\"",
            ),
            (r#"[{"path":"/a","mime":"text/"}]"#, "is of type"),
            (r#"[{"path":"/a","mime":"text/a b"}]"#, "is of type"),
            (r#"[{"path":"/a","name":"../x"}]"#, "bad `name`"),
            (r#"[{"path":"/a","name":""}]"#, "bad `name`"),
        ] {
            let found = given(wrong).unwrap_err();
            assert!(found.contains(why), "{wrong}: {found}");
        }
    }

    #[test]
    fn so_many_can_be_attached_and_no_more() {
        let many = |count| vec![Attachment::of_path("/a"); count];
        assert!(check(&many(MAX_ATTACHMENTS)).is_ok());
        let rejected = check(&many(MAX_ATTACHMENTS + 1)).unwrap_err();
        assert!(rejected.error.contains("17 entries"), "{}", rejected.error);
    }
}
