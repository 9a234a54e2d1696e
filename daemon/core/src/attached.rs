//! What goes with a turn besides its text, as the core sees it: a type, a name, and bytes that it
//! passes on unread.
//!
//! Owns which agents take which types. Must not know files, encodings or the store's tables.

use std::fmt;
use std::sync::Arc;

use agentd_protocol::attachment::{Attachment, is_image, is_text};

/// Bytes that somebody else holds. The core has them only until they are in the store.
#[derive(Clone)]
pub struct Content(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Content {
    /// Bytes, and whatever is to be dropped with them.
    pub fn new(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(bytes))
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Content {}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.bytes().len())
    }
}

/// One attachment of a turn, as a worker gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// What people call it.
    pub name: Option<String>,
    /// Its type.
    pub mime: String,
    /// All of it.
    pub content: Content,
}

/// The attachments of a turn that is about to begin.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Attachments {
    /// It has none.
    #[default]
    None,
    /// They are in the store, under the job's number.
    InStore,
    /// They were fetched.
    Here(Vec<Attached>),
}

impl Attachments {
    /// Those that were fetched.
    #[must_use]
    pub fn here(&self) -> &[Attached] {
        match self {
            Self::Here(attached) => attached,
            Self::None | Self::InStore => &[],
        }
    }
}

/// What an agent takes besides text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum AttachmentSupport {
    /// Nothing.
    #[default]
    Nothing,
    /// Pictures.
    Images,
    /// Pictures and text.
    Texts,
    /// Pictures, PDF documents and text.
    Files,
}

impl AttachmentSupport {
    /// Does it take this type?
    #[must_use]
    pub fn takes(self, mime: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Images => is_image(mime),
            Self::Texts => is_image(mime) || is_text(mime),
            Self::Files => true,
        }
    }

    /// The first of some attachments that it doesn't take, in words for a person.
    pub(crate) fn refuses(self, agent: &str, attachments: &[Attachment]) -> Option<String> {
        let mime = |of: &Attachment| of.mime.clone().unwrap_or_default();
        let mut mimes = attachments.iter().map(mime);
        let refused = mimes.find(|mime| !self.takes(mime))?;
        let taken = match self {
            Self::Nothing => "no attachments",
            Self::Images => "only pictures",
            Self::Texts => "only pictures and text",
            Self::Files => "only what it knows",
        };
        Some(format!(
            "an attachment is `{refused}`, but the agent `{agent}` takes {taken}"
        ))
    }
}
