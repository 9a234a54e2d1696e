//! What the core keeps of a send once it is a job: enough to place it, to time it and to end it.
//!
//! Owns which part of a request waits in memory. The rest, its text above all, waits in the store
//! and comes back with the *running* mark. Must not know how requests are stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::request::{AfterFailure, OnQuestion, Retry, Send};
use agentd_protocol::routed::Routed;
use agentd_protocol::serde::Deserialize;
use agentd_protocol::webhook::Callback;
use agentd_protocol::{JobId, serde_json};

use crate::limits::SHARED_TERMS;
use crate::store::Pins;

/// What a job goes by while it waits and when it ends.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(crate = "agentd_protocol::serde", default)]
pub struct Terms {
    provider: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) thinking: Option<String>,
    /// The conversation as the one asked named it.
    pub(crate) native: Option<String>,
    pub(crate) callback: Option<Callback>,
    pub(crate) parent: Option<JobId>,
    /// Why it has its agent.
    pub(crate) routed: Option<Box<Routed>>,
    include: Vec<String>,
    timeout: Option<f64>,
    pub(crate) retry: Retry,
    pub(crate) after_failure: AfterFailure,
    pub(crate) on_question: Option<OnQuestion>,
    pub(crate) require_context: bool,
}

/// A stored request that doesn't read back as a whole, as one of a newer version may.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Unreadable {
    /// It is what a request is made of, and says what is not known here.
    pub(crate) is_newer: bool,
    /// Whoever is to be told of its end is told all the same.
    pub(crate) callback: Option<Callback>,
}

impl Unreadable {
    /// Is it nothing that any version writes?
    #[must_use]
    pub const fn is_damaged(&self) -> bool {
        !self.is_newer
    }
}

impl Terms {
    /// Those of a send, with everything resolved that acceptance resolves.
    pub(crate) fn of(send: &Send) -> Self {
        Self {
            provider: send.provider.clone(),
            model: send.model.clone(),
            thinking: send.thinking.clone(),
            native: send.native.clone(),
            callback: send.callback.clone(),
            parent: send.parent,
            routed: send.routed.clone(),
            include: send.include.clone(),
            timeout: send.timeout,
            retry: send.retry,
            after_failure: send.after_failure,
            on_question: send.on_question,
            require_context: send.require_context,
        }
    }

    /// Those of a stored request, without a copy of its text.
    ///
    /// # Errors
    /// When it doesn't read back: then it is never run.
    pub fn read(request: impl AsRef<[u8]>) -> Result<Self, Unreadable> {
        let request = request.as_ref();
        // What is passed over in it, its text above all, is of characters, too.
        let request = std::str::from_utf8(request).map_err(|_damage| Unreadable::default())?;
        serde_json::from_str(request).map_err(|_newer| {
            let request = serde_json::from_str::<serde_json::Value>(request).ok();
            let callback = || {
                let callback = request.as_ref()?.get("callback")?;
                let result = callback.get("result").and_then(serde_json::Value::as_bool);
                Some(Callback {
                    url: callback.get("url")?.as_str()?.to_owned(),
                    result: result == Some(true),
                })
            };
            Unreadable {
                callback: callback(),
                is_newer: request.as_ref().is_some_and(serde_json::Value::is_object),
            }
        })
    }

    /// Of a request that can't be run: who is told of its end.
    pub(crate) fn of_unreadable(unreadable: Unreadable) -> Self {
        Self {
            callback: unreadable.callback,
            ..Self::default()
        }
    }

    /// The model that it is pinned to.
    pub(crate) fn pins(&self) -> Pins {
        Pins {
            provider: self.provider.clone(),
            model: self.model.clone(),
            thinking: self.thinking.clone(),
            // It is its session's, whenever the turn begins.
            mode: None,
        }
    }

    /// How long it may run, when it says.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let seconds = self.timeout?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Does its final line list the messages?
    pub(crate) fn wants_messages(&self) -> bool {
        self.include.iter().any(|part| part == "messages")
    }

    /// Bytes that they take in memory.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [&self.provider, &self.model, &self.thinking, &self.native];
        let texts = texts.into_iter().flatten().map(String::len);
        let include = self
            .include
            .iter()
            .map(|part| size_of::<String>() + part.len());
        let callback = self.callback.iter().map(|callback| callback.url.len());
        let routed = self.routed.iter().map(|routed| routed.bytes());
        let all = texts.chain(include).chain(callback).chain(routed);
        size_of::<Self>() + all.sum::<usize>()
    }
}

/// The terms of the last jobs: who sends many asks for the same each time.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct SharedTerms(VecDeque<Arc<Terms>>);

impl SharedTerms {
    /// Terms that are in memory once, if they were among the last ones; and the bytes that they
    /// took anew.
    pub(crate) fn share(&mut self, terms: Arc<Terms>) -> (Arc<Terms>, usize) {
        if let Some(known) = self.0.iter().find(|known| **known == terms) {
            return (Arc::clone(known), 0);
        }
        if self.0.len() >= SHARED_TERMS {
            self.0.pop_front();
        }
        let bytes = terms.bytes();
        self.0.push_back(Arc::clone(&terms));
        (terms, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_of_a_stored_request_are_its_sends() {
        let request = r#"{"text":"a\nb","session":"s","provider":"p","model":"m","thinking":"low",
            "timeout":2.5,"retry":"auto","after_failure":"run","on_question":"deny",
            "require_context":true,"include":["messages"],"labels":{"a":"b"},"parent":"j7",
            "callback":{"url":"http://x/"},"mode":"queue"}"#;
        let send: Send = serde_json::from_str(request).unwrap();
        let stored = serde_json::to_string(&send).unwrap();
        let terms = Terms::read(&stored).unwrap();
        assert_eq!(terms, Terms::of(&send));
        assert!(terms.wants_messages());
        assert_eq!(terms.timeout(), Some(Duration::from_millis(2500)));
        assert_eq!(terms.pins().model.as_deref(), Some("m"));
        let newer = r#"{"text":"x","retry":"twice","callback":{"url":"http://y/"}}"#;
        let unreadable = Terms::read(newer).unwrap_err();
        assert!(!unreadable.is_damaged());
        assert_eq!(unreadable.callback.unwrap().url, "http://y/");
        // In the text, too, which is not looked at otherwise.
        for damaged in [
            &b"{"[..],
            b"{\"text\":\"\0\0\"}",
            b"{\"text\":\"\xff\"}",
            b"",
        ] {
            let unreadable = Terms::read(damaged).unwrap_err();
            assert_eq!(unreadable, Unreadable::default());
            assert!(unreadable.is_damaged());
        }
    }

    #[test]
    fn terms_that_are_equal_are_stored_once() {
        let mut shared = SharedTerms::default();
        let with = |model: &str| {
            Arc::new(Terms {
                model: Some(model.to_owned()),
                ..Terms::default()
            })
        };
        let (first, bytes) = shared.share(with("a"));
        assert_eq!(bytes, size_of::<Terms>() + 1);
        let (again, bytes) = shared.share(with("a"));
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(bytes, 0);
        for n in 0..SHARED_TERMS {
            shared.share(with(&n.to_string()));
        }
        assert_eq!(shared.0.len(), SHARED_TERMS);
        assert!(!Arc::ptr_eq(&first, &shared.share(with("a")).0));
    }
}
