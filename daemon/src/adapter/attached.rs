//! Attachments in the forms that wires have for them.
//!
//! Owns encodings. Must not know which form an agent wants.

use agentd_core::attached::Attached;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The content in base64.
pub(super) fn base64(attached: &Attached) -> String {
    STANDARD.encode(attached.content.bytes())
}

/// The content as a URL that holds it.
pub(super) fn data_url(attached: &Attached) -> String {
    format!("data:{};base64,{}", attached.mime, base64(attached))
}

/// The content as text; only what was found to be UTF-8 is called text.
pub(super) fn text(attached: &Attached) -> String {
    String::from_utf8_lossy(attached.content.bytes()).into_owned()
}

/// What to call it.
pub(super) fn name(attached: &Attached) -> &str {
    attached.name.as_deref().unwrap_or("attachment")
}

#[cfg(test)]
pub(super) mod samples {
    use agentd_core::attached::{Attached, Attachments, Content};
    use agentd_core::worker::Prompt;

    use crate::adapter::testing;

    pub(in crate::adapter) fn of(
        mime: &str,
        name: Option<&str>,
        content: &'static [u8],
    ) -> Attached {
        Attached {
            name: name.map(str::to_owned),
            mime: mime.to_owned(),
            content: Content::new(content),
        }
    }

    /// A turn with a picture and some more.
    pub(in crate::adapter) fn prompt(more: Vec<Attached>) -> Prompt {
        let mut attached = vec![of("image/png", Some("a.png"), b"\x89PNG")];
        attached.extend(more);
        Prompt {
            attachments: Attachments::Here(attached),
            ..testing::turn(1, "look")
        }
    }
}
