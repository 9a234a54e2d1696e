//! Which revision of the protocol a client speaks, and what it offers.
//!
//! Owns how that is read from `initialize`, or from each request by itself where the revision has no
//! `initialize`. Must not know tools, nor the daemon.

use serde_json::{Value, json};

use crate::json_rpc::{Failure, INVALID_PARAMS};

/// Under these names each request of a revision without `initialize` says what that said.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// The extension by which an answer may be a task.
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";
/// `UnsupportedProtocolVersion`.
pub const UNSUPPORTED_VERSION: i64 = -32022;
/// The revisions that are served, the newest first.
pub const VERSIONS: [&str; 3] = ["2026-07-28", "2025-11-25", "2025-06-18"];
/// Longest name of a client that is noted with its jobs.
const LONGEST_NAME: usize = 64;

/// The revision that the params of a request name themselves.
#[must_use]
pub fn own_version(params: &Value) -> Option<&str> {
    params["_meta"][VERSION].as_str()
}

/// Is the request by itself, without an `initialize` before it?
#[must_use]
pub fn is_stateless(params: &Value) -> bool {
    own_version(params).is_some()
}

/// What a client that was initialized so is called over HTTP, where it brings that with each request:
/// whatever has to be known of it. None where that is nothing.
#[must_use]
pub fn session(initialize: &Value, nonce: &str) -> Option<String> {
    let peer = Peer::of_initialize(initialize).ok()?;
    peer.elicits
        .then(|| format!("{}.elicits.{nonce}", peer.revision.name()))
}

/// A revision of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Revision {
    /// Codex, and whatever is older than a year.
    June2025,
    /// With tasks of its own.
    #[default]
    November2025,
    /// Without `initialize`, and without requests of the server.
    July2026,
}

impl Revision {
    /// The newest first.
    pub(super) const ALL: [Self; 3] = [Self::July2026, Self::November2025, Self::June2025];

    pub(super) const fn name(self) -> &'static str {
        let [july, november, june] = VERSIONS;
        match self {
            Self::June2025 => june,
            Self::November2025 => november,
            Self::July2026 => july,
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Peer {
    pub(super) revision: Revision,
    /// Does it put questions to its user, in forms?
    pub(super) elicits: bool,
    /// Does it take a task for an answer?
    pub(super) tasks: bool,
    /// Does it say in which directories its user works?
    pub(super) roots: bool,
    /// What it calls itself.
    pub(super) name: Option<String>,
}

impl Peer {
    /// The one that `initialize` tells of.
    pub(super) fn of_initialize(params: &Value) -> Result<Self, Failure> {
        let Some(version) = params["protocolVersion"].as_str() else {
            let why = "invalid params: `protocolVersion` is not a string";
            return Err(Failure::new(INVALID_PARAMS, why));
        };
        let named = Revision::named(version);
        // One without `initialize` isn't agreed on by it.
        let named = named.filter(|revision| *revision != Revision::July2026);
        Ok(Self::with(
            named.unwrap_or_default(),
            &params["capabilities"],
            &params["clientInfo"],
        ))
    }

    /// The one that has this from [`session`].
    pub(super) fn of_session(session: &str) -> Option<Self> {
        let (revision, rest) = session.split_once('.')?;
        let revision = Revision::named(revision)?;
        let is_one = revision != Revision::July2026 && rest.starts_with("elicits.");
        is_one.then(|| Self {
            revision,
            elicits: true,
            ..Self::default()
        })
    }

    /// The one that this request is of: it says so itself, or `initialize` did.
    pub(super) fn of_request(params: &Value, initialized: &Self) -> Result<Self, Failure> {
        let meta = &params["_meta"];
        let Some(version) = meta.get(VERSION) else {
            return Ok(initialized.clone());
        };
        let found = version.as_str().and_then(Revision::named);
        if found != Some(Revision::July2026) {
            return Err(Failure {
                data: Some(json!({"supported": VERSIONS, "requested": version})),
                ..Failure::new(UNSUPPORTED_VERSION, "Unsupported protocol version")
            });
        }
        Ok(Self::with(
            Revision::July2026,
            &meta[CAPABILITIES],
            &meta[CLIENT],
        ))
    }

    fn with(revision: Revision, capabilities: &Value, client: &Value) -> Self {
        let elicitation = capabilities["elicitation"].as_object();
        // Without a word on how, it is by forms.
        let by_form =
            |modes: &serde_json::Map<String, Value>| modes.is_empty() || modes.contains_key("form");
        let tasks = capabilities["extensions"][TASKS].is_object();
        let name = client["name"].as_str().map(|name| {
            let plain = name.chars().filter(|c| !c.is_control());
            plain.take(LONGEST_NAME).collect::<String>()
        });
        Self {
            revision,
            elicits: elicitation.is_some_and(by_form),
            tasks: tasks && revision == Revision::July2026,
            roots: capabilities["roots"].is_object() && revision != Revision::July2026,
            name: name.filter(|name| !name.is_empty()),
        }
    }

    /// Is each request by itself?
    pub(super) fn is_stateless(&self) -> bool {
        self.revision == Revision::July2026
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn initialized(version: &str, capabilities: &Value) -> Peer {
        Peer::of_initialize(&json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "test\u{7}"},
        }))
        .unwrap()
    }

    #[test]
    fn mcp_revision_is_the_clients_or_usual() {
        for (asked, agreed) in [
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2024-11-05", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("", "2025-11-25"),
        ] {
            let peer = initialized(asked, &json!({}));
            assert_eq!(peer.revision.name(), agreed, "{asked}");
        }
        let wrong = Peer::of_initialize(&json!({"protocolVersion": 5}));
        assert_eq!(wrong.unwrap_err().code, INVALID_PARAMS);
    }

    #[test]
    fn mcp_offers_are_read_leniently() {
        let offers = |capabilities: Value| {
            let peer = initialized("2025-11-25", &capabilities);
            (peer.elicits, peer.roots, peer.tasks)
        };
        let form = json!({"elicitation": {"form": {}}, "roots": {"listChanged": true}});
        assert_eq!(offers(form), (true, true, false));
        assert_eq!(offers(json!({"elicitation": {}})), (true, false, false));
        let url = json!({"elicitation": {"url": {}}, "roots": 5});
        assert_eq!(offers(url), (false, false, false));
        let tasks = json!({"extensions": {TASKS: {}}, "elicitation": "x"});
        assert_eq!(offers(tasks.clone()), (false, false, false));
        assert_eq!(offers(json!([])), (false, false, false));
        let peer = initialized("2025-06-18", &json!({}));
        assert_eq!(peer.name.as_deref(), Some("test"));
        let meta = json!({"_meta": {VERSION: "2026-07-28", CAPABILITIES: tasks}});
        let own = Peer::of_request(&meta, &peer).unwrap();
        assert!(own.tasks && own.is_stateless() && own.name.is_none());
        assert_eq!(Peer::of_request(&json!({}), &peer).unwrap(), peer);
    }

    #[test]
    fn mcp_session_says_what_has_to_be_known() {
        let begun = |capabilities: Value| {
            let params = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities});
            session(&params, "x")
        };
        assert_eq!(begun(json!({})), None);
        let given = begun(json!({"elicitation": {}})).unwrap();
        let peer = Peer::of_session(&given).unwrap();
        assert_eq!((peer.revision, peer.elicits), (Revision::June2025, true));
        for other in [
            "",
            "x",
            "2025-06-18",
            "2025-06-18.x",
            "2026-07-28.elicits.x",
        ] {
            assert_eq!(Peer::of_session(other), None, "{other}");
        }
    }

    #[test]
    fn mcp_request_of_an_unknown_revision_is_refused() {
        for version in [json!("1900-01-01"), json!("2025-11-25"), json!(5)] {
            let meta = json!({"_meta": {VERSION: version}});
            let refused = Peer::of_request(&meta, &Peer::default()).unwrap_err();
            assert_eq!(refused.code, UNSUPPORTED_VERSION);
            let data = refused.data.unwrap();
            assert_eq!(data["requested"], version);
            assert_eq!(data["supported"][0], "2026-07-28");
        }
    }
}
