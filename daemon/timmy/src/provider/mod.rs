//! Who serves models, and how each is reached.
//!
//! Owns the table of providers and the keys. Must not send anything.

pub(crate) mod keys;
pub(crate) mod table;

use std::fmt;
use std::sync::Arc;

use agentd_protocol::attachment;

use crate::config::PricePair;
use crate::model::known::{self, is_openai_reasoning};

/// Where OpenAI's own models are: only there is one wire chosen by the model.
const OPENAI: &str = "https://api.openai.com/v1";

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
    /// Tokens that fit into a conversation with any of its models, as the user says.
    pub(crate) window: Option<u64>,
    /// For a million tokens of input, and of output, as the user says.
    pub(crate) price: Option<PricePair>,
}

impl Provider {
    /// Does it serve models on the user's own machines? Then nothing of a turn leaves them.
    pub(crate) fn is_at_home(&self) -> bool {
        table::is_private(&self.base_url)
    }
}

impl Target {
    /// How many tokens fit into a conversation with it, where that is known.
    pub(crate) fn window(&self) -> Option<u64> {
        let asked = self.provider.window.or_else(|| self.asked_window());
        asked.or_else(|| known::window(&self.provider.id, &self.model))
    }

    /// Does its wire have a word for attachments of this type? Whether the model sees them, only its
    /// provider knows.
    pub(crate) fn takes(&self, mime: &str) -> bool {
        let wire = self.provider.wire_for(&self.model);
        if attachment::is_image(mime) {
            return wire != Wire::DeepSeek;
        }
        mime == attachment::PDF
            && match wire {
                Wire::Responses | Wire::Anthropic | Wire::Gemini | Wire::OpenRouter => true,
                Wire::OpenAi => !self.provider.local,
                _ => false,
            }
    }

    /// How many tokens its server is asked to make room for: Ollama's has a window for every model,
    /// often a small one, and forgets the beginning of what is longer without a word.
    pub(crate) fn asked_window(&self) -> Option<u64> {
        let usual = || {
            let local = self.provider.local;
            local.then(|| known::local_window(&self.model))
        };
        let is_ollama = self.provider.wire == Wire::Ollama;
        is_ollama.then(|| self.provider.window.or_else(usual))?
    }
}

impl Provider {
    /// What it speaks about this model: OpenAI's reasoning models are asked through Responses.
    pub(crate) fn wire_for(&self, model: &str) -> Wire {
        let is_theirs = self.wire == Wire::OpenAi && self.base_url == OPENAI;
        if is_theirs && is_openai_reasoning(model) {
            Wire::Responses
        } else {
            self.wire
        }
    }
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

impl Wire {
    /// Each, with the name that `wire` of `[providers.NAME]` has for it.
    pub(crate) const ALL: &[(&str, Self)] = &[
        ("openai", Self::OpenAi),
        ("responses", Self::Responses),
        ("anthropic", Self::Anthropic),
        ("gemini", Self::Gemini),
        ("ollama", Self::Ollama),
        ("groq", Self::Groq),
        ("xai", Self::Xai),
        ("openrouter", Self::OpenRouter),
        ("deepseek", Self::DeepSeek),
        ("kimi", Self::Kimi),
        ("mistral", Self::Mistral),
        ("zai", Self::Zai),
    ];

    /// Is it chat completions, of whatever house?
    pub(crate) const fn is_chat(self) -> bool {
        !matches!(
            self,
            Self::Responses | Self::Anthropic | Self::Gemini | Self::Ollama
        )
    }

    /// Does it refuse calls that come back without the reasoning before them?
    pub(crate) const fn wants_reasoning(self) -> bool {
        matches!(self, Self::DeepSeek | Self::Kimi)
    }

    /// Does it make use of reasoning that comes back?
    pub(crate) const fn takes_reasoning(self) -> bool {
        matches!(self, Self::Mistral | Self::Zai)
    }
}

/// A secret that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key {
    secret: String,
    /// Does it go where a token goes, with a provider that knows both?
    bearer: bool,
}

impl Key {
    /// Takes a secret in.
    pub(crate) const fn new(secret: String) -> Self {
        Self {
            secret,
            bearer: false,
        }
    }

    /// Takes a token in, which Anthropic wants in another header than a key.
    pub(crate) const fn bearer(secret: String) -> Self {
        Self {
            secret,
            bearer: true,
        }
    }

    /// Gives it out, to the wire only.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// Is it a token rather than a key?
    pub(crate) const fn is_bearer(&self) -> bool {
        self.bearer
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}
