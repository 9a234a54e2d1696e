//! How a request asks: whether it was asked before, by which key, in which session.
//!
//! Owns the headers of clients that say so. Must not know what is asked.
//!
//! A client that got no answer asks again by itself, mostly without a key. Then the job of its first
//! request is found by a hash of what it asks, which is the job's label.

use std::time::Duration;

use agentd_faces::openai::conversation::{Conversation, Sum};
use agentd_faces::openai::failure::Again;
use agentd_faces::openai::model::ModelName;
use agentd_protocol::limits::MAX_KEY;
use agentd_protocol::request::check_session;
use axum::http::{HeaderMap, HeaderValue};

use super::Refusal;
use crate::dispatch::key_of;

/// As long as the daemon keeps a key at least.
const KEYS_ARE_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long OpenAI's clients wait for an answer if nobody says otherwise.
const USUAL_TIMEOUT: u64 = 600;
/// From one attempt to the next, at most.
const LONGEST_PAUSE: u64 = 30;

/// How it is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asking {
    /// What is asked, as a hash.
    pub(super) request: String,
    /// Of its body, in bytes.
    pub(super) length: usize,
    /// It may have been asked before: then its job was there no longer ago than this.
    pub(super) before: Option<Duration>,
    /// Does its client say nothing more of a retry than that it is one?
    pub(super) retries: bool,
    /// The daemon's key for it.
    pub(super) key: Option<String>,
    /// Is that key the client's own?
    is_keyed: bool,
    /// In which session, and what the client calls it where that is no name of the daemon's.
    pub(super) session: Option<Name>,
    /// In which chat of a front end, or else of which of its users.
    pub(super) chat: Option<String>,
    /// The model that a header names.
    pub(super) model: Option<ModelName>,
    /// The turn of a Codex: it asks again with the same one, and with what it has heard meanwhile.
    pub(super) codex: Option<String>,
}

/// The name of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Name {
    /// As the daemon calls it.
    pub(super) session: String,
    /// In the client's own words, where these can't be its name.
    pub(super) word: Option<String>,
}

impl Name {
    /// Of a client's word.
    pub(super) fn of(word: &str) -> Self {
        if check_session(word).is_ok() {
            return Self {
                session: word.to_owned(),
                word: None,
            };
        }
        let mut sum = Sum::default();
        sum.add(word);
        Self {
            session: format!("openai-{}", sum.hex()),
            word: Some(word.to_owned()),
        }
    }
}

/// What a header says. Clients write UTF-8 into it, or what is left of it is Latin-1.
fn words_of(value: &HeaderValue) -> String {
    let bytes = value.as_bytes();
    let words = std::str::from_utf8(bytes).map_or_else(
        |_latin| bytes.iter().copied().map(char::from).collect(),
        str::to_owned,
    );
    words.trim().to_owned()
}

impl Asking {
    /// Reads the headers.
    pub(super) fn read(headers: &HeaderMap, path: &str, body: &str) -> Result<Self, Refusal> {
        let said = |name: &str| headers.get(name).map(words_of);
        let (session, hermes) = (said("x-agentd-session"), said("x-hermes-session-id"));
        let chat = said("x-openwebui-chat-id").filter(|chat| !chat.is_empty());
        let chat = chat.or_else(|| said("x-openwebui-user-id"));
        let word = |name: &str| {
            let word = headers.get(name)?.to_str().ok()?;
            Some(word.trim()).filter(|word| !word.is_empty())
        };
        let key = key_of(headers)?;
        let there = |word: &&str| !word.is_empty();
        let session = session.as_deref().filter(there);
        let session = session.or(hermes.as_deref().filter(there));
        let chat = chat.as_deref().filter(there);
        let codex = word("x-codex-turn-metadata").and_then(codex_turn);
        let model = word("x-hermes-model");
        let mut sum = Sum::default();
        for part in [Some(path), Some(body), session, chat, key, model] {
            sum.add(part.unwrap_or_default());
        }
        let request = sum.hex();
        let number = |name: &str| word(name).and_then(|word| word.parse::<f64>().ok());
        let is_named = key.is_some() || codex.is_some();
        let count = number("x-stainless-retry-count");
        let before = match count {
            _ if is_named => Some(KEYS_ARE_KEPT),
            Some(count) if count >= 1.0 => {
                let timeout = number("x-stainless-read-timeout")
                    .or_else(|| number("x-stainless-timeout"))
                    .unwrap_or_default();
                Some(window(count, timeout))
            }
            Some(_) | None => None,
        };
        let key = key.map(|key| {
            if key.len() + PREFIX.len() <= MAX_KEY {
                return format!("{PREFIX}{key}");
            }
            let mut sum = Sum::default();
            sum.add(key);
            format!("{PREFIX}long {}", sum.hex())
        });
        let model = model.map(|model| ModelName::read(Some(model.to_owned())));
        Ok(Self {
            request,
            length: body.len(),
            before,
            retries: count.is_some() && !is_named,
            is_keyed: key.is_some(),
            key,
            session: session.map(Name::of),
            chat: chat.map(str::to_owned),
            model: model.transpose()?,
            codex,
        })
    }

    /// May it be asked again once its turn is taken? By a key or a count of retries that turn is found.
    pub(super) const fn again(&self) -> Again {
        match self.retries || self.is_keyed || self.codex.is_some() {
            true => Again::Later,
            false => Again::No,
        }
    }

    /// The key of another turn that may be sent for it.
    pub(super) fn other_key(&self, which: &str) -> Option<String> {
        let mut sum = Sum::default();
        sum.add(&self.request);
        sum.add(self.key.as_ref()?);
        Some(format!("{PREFIX}{which} {}", sum.hex()))
    }

    /// With what is asked known: Codex asks the same as long as its user says nothing more.
    pub(super) fn known(mut self, asked: &Conversation) -> Self {
        if let Some(turn) = &self.codex {
            let mut sum = Sum::default();
            sum.add(turn);
            for words in asked.words_of_user() {
                sum.add(words);
            }
            self.request = sum.hex();
            self.key = Some(format!("{PREFIX}codex {}", self.request));
        }
        self
    }
}

/// Of keys that come from here.
const PREFIX: &str = "openai:";

/// How long ago the first attempt was at most.
fn window(count: f64, timeout: f64) -> Duration {
    let usual = Duration::from_secs(USUAL_TIMEOUT);
    let each = Duration::try_from_secs_f64(timeout).unwrap_or(usual);
    // Of a timeout that isn't said, or is 0 for none.
    let each = if each.is_zero() { usual } else { each };
    let each = each.saturating_add(Duration::from_secs(LONGEST_PAUSE));
    let count = count.clamp(1.0, 100.0);
    let all = Duration::try_from_secs_f64(each.as_secs_f64() * count);
    all.unwrap_or(KEYS_ARE_KEPT).min(KEYS_ARE_KEPT)
}

/// The turn of a Codex that has us as its provider: it asks again with the same one.
fn codex_turn(metadata: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        turn_id: String,
    }
    let metadata: Metadata = serde_json::from_str(metadata).ok()?;
    Some(metadata.turn_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_faces::openai::conversation::{Role, Said};
    use axum::http::HeaderName;

    fn asking(headers: &[(&'static str, &str)], body: &str) -> Asking {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        Asking::read(&map, "/v1/responses", body).unwrap()
    }

    #[test]
    fn asking_again_is_told_in_three_ways() {
        let first = asking(&[("x-stainless-retry-count", "0")], "{}");
        let count = ("x-stainless-retry-count", "2");
        let again = asking(&[count, ("x-stainless-read-timeout", "60")], "{}");
        assert_eq!((first.before, &first.request), (None, &again.request));
        assert_eq!(first.again(), Again::Later);
        assert_eq!(asking(&[], "{}").again(), Again::No);
        assert_eq!(again.before, Some(Duration::from_secs(180)));
        let again = asking(&[count], "{}");
        assert_eq!(again.before, Some(Duration::from_secs(1260)));
        assert_ne!(first.request, asking(&[], "{ }").request);
        let keyed = asking(&[("idempotency-key", "a")], "{}");
        assert_eq!(keyed.key.as_deref(), Some("openai:a"));
        assert_eq!(keyed.before, Some(KEYS_ARE_KEPT));
        let long = asking(&[("idempotency-key", &"k".repeat(255))], "{}");
        assert!(long.key.unwrap().len() < MAX_KEY);
        let codex = |said: &[Said]| {
            let turn = ("x-codex-turn-metadata", r#"{"turn_id":"t","x":1}"#);
            let asked = Conversation::of(said.to_vec(), "input").unwrap();
            asking(&[turn], "{}").known(&asked)
        };
        let user = Said::by_user("a");
        let heard = Said {
            role: Role::Assistant,
            ..Said::by_user("half")
        };
        let first = codex(std::slice::from_ref(&user));
        assert_eq!(first.before, Some(KEYS_ARE_KEPT));
        assert_eq!(first, codex(&[user.clone(), heard.clone()]));
        let more = codex(&[user, heard, Said::by_user("b")]);
        assert_ne!(first.key, more.key);
        for odd in ["NaN", "-1", "1e300", "x", ""] {
            let odd = asking(
                &[
                    ("x-stainless-retry-count", odd),
                    ("x-stainless-timeout", odd),
                ],
                "{}",
            );
            assert!(odd.before.is_none_or(|before| before <= KEYS_ARE_KEPT));
        }
    }

    #[test]
    fn session_that_is_no_name_gets_one() {
        let named = |word: &str| {
            asking(&[("x-hermes-session-id", word)], "")
                .session
                .unwrap()
        };
        assert_eq!(named("main").session, "main");
        let odd = named("a b");
        assert_eq!((odd.session.len(), odd.word.as_deref()), (39, Some("a b")));
        assert_eq!(odd, named("a b"));
        assert_ne!(odd.session, named("a  b").session);
        // As clients write what isn't ASCII, either way.
        assert_eq!(named("é").word.as_deref(), Some("é"));
        let latin = HeaderMap::from_iter([(
            HeaderName::from_static("x-agentd-session"),
            HeaderValue::from_bytes(b"\xe9").unwrap(),
        )]);
        let latin = Asking::read(&latin, "/v1/responses", "").unwrap();
        assert_eq!(latin.session, Some(named("é")));
    }
}
