//! Who serves models, and how each is reached.
//!
//! Owns the table of providers and the keys. Must not send anything.

use std::fmt;
use std::sync::Arc;

/// A model at a provider, ready to be asked.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Target {
    /// Whose.
    pub(crate) provider: Arc<Provider>,
    /// The provider's own name for it, slashes and all.
    pub(crate) model: String,
    /// What proves who asks; local servers want none.
    pub(crate) key: Option<Key>,
}

/// A provider as it is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Provider {
    /// Its name here.
    pub(crate) id: String,
    /// Where it is, without a slash at its end.
    pub(crate) base_url: String,
    /// What it speaks.
    pub(crate) wire: Wire,
    /// Variables that may hold its key, best first.
    pub(crate) key_variables: Vec<String>,
    /// Is it on this machine? Then it needs no key, and costs nothing.
    pub(crate) local: bool,
}

/// What a provider speaks: one wire, with the quirks of one house.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    /// OpenAI's chat completions, and whoever copies them.
    OpenAi,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's messages.
    Anthropic,
    /// Google's Gemini.
    Gemini,
    /// Ollama's own `/api/chat`.
    Ollama,
    /// Chat completions by Groq.
    Groq,
    /// Chat completions by xAI.
    Xai,
    /// Chat completions by OpenRouter.
    OpenRouter,
    /// Chat completions by DeepSeek.
    DeepSeek,
    /// Chat completions by Moonshot, for Kimi.
    Kimi,
    /// Chat completions by Mistral.
    Mistral,
    /// Chat completions by Z.AI.
    Zai,
}

/// A secret that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// Takes a secret in.
    pub(crate) const fn new(secret: String) -> Self {
        Self(secret)
    }

    /// Gives it out, to the wire only.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}
