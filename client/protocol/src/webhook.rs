//! Webhooks on the wire: the `callback` of a send, and the requests about deliveries.
//!
//! Owns their fields and the syntax of a URL. Must not know which endpoints there are, nor what an
//! address leads to.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::check::check_limit;
use crate::envelope::{Checked, Rejected, invalid};
use crate::ids::JobId;
use crate::limits::MAX_URL;

/// Who is told of a job's end; the whole of `webhook.test`, too.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Callback {
    /// Where to, http or https.
    pub url: String,
    /// Is the text told, too?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result: bool,
}

impl Callback {
    pub(crate) fn check_as(&self, field: &str) -> Result<(), Rejected> {
        check_address(field, &self.url)
    }
}

/// Checks what can be said of a URL without parsing it whole; `field` is what it is called.
pub(crate) fn check_address(field: &str, url: &str) -> Result<(), Rejected> {
    if url.len() > MAX_URL {
        let found = url.len();
        return Err(invalid(format!(
            "`{field}` is {found} bytes, the limit is {MAX_URL}"
        )));
    }
    // It may hold a secret, so it is not repeated.
    let refuse = |found: &str, expected: &str| {
        Err(invalid(format!("`{field}` {found}: expected {expected}")))
    };
    let Some(authority) = authority(url) else {
        return refuse("has another scheme", "a URL with http or https");
    };
    // Browsers' rules (WHATWG) read a backslash as a slash: the host would be another one than
    // here.
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains('\\') {
        return refuse(
            "has blanks, backslashes, or what isn't ASCII",
            "a URL as it is sent",
        );
    }
    if authority.is_empty() || authority.starts_with(':') {
        return refuse("has no host", "a URL with one");
    }
    // What stands before it is easily taken for the host.
    if authority.contains('@') {
        return refuse("has a user or password", "a URL without them");
    }
    if url.contains('#') {
        return refuse(
            "has a fragment",
            "a URL without one, as servers never see it",
        );
    }
    Ok(())
}

impl Checked for Callback {
    fn check(&self) -> Result<(), Rejected> {
        self.check_as("url")
    }
}

/// What is between `http://` and the path.
fn authority(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let known = ["http", "https"];
    let known = known.iter().any(|known| scheme.eq_ignore_ascii_case(known));
    known.then(|| rest.split(['/', '?', '#']).next().unwrap_or_default())
}

/// How far a delivery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum DeliveryState {
    Pending,
    Delivered,
    Dead,
}

impl DeliveryState {
    /// As it stands on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }
}

/// `webhooks`: the endpoints, and deliveries, newest first.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Webhooks {
    /// Only those so far.
    pub state: Option<DeliveryState>,
    /// Only this one.
    pub webhook: Option<String>,
    /// At most so many; 50 when absent.
    pub limit: Option<usize>,
    /// The `next` of the page before.
    pub before: Option<u64>,
}

impl Checked for Webhooks {
    fn check(&self) -> Result<(), Rejected> {
        check_limit(self.limit)
    }
}

/// `webhook.replay`: send one again now, whatever became of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Delivery {
    /// Its id, `evt_…`.
    pub webhook: String,
}

/// One delivery of a list.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct DeliveryRow {
    pub webhook: String,
    /// None: it was a test.
    pub job: Option<JobId>,
    pub url: String,
    pub state: DeliveryState,
    pub attempts: u64,
    pub created_at: String,
    /// Of the next attempt, while there is one.
    pub next_at: Option<String>,
    /// Of the last attempt.
    pub last_at: Option<String>,
    /// What the receiver answered to it, if it did.
    pub status: Option<u16>,
    /// Why it isn't delivered.
    pub error: Option<String>,
}

/// One configured endpoint; its secrets are told to nobody.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "PROTOCOL.md part 5 documents each")]
pub struct EndpointRow {
    pub url: String,
    pub allow_private: bool,
    /// How many: two while they are rotated.
    pub secrets: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_is_a_plain_http_url() {
        let check = |url: &str| {
            let url = url.to_owned();
            Callback {
                url,
                ..Callback::default()
            }
            .check_as("callback.url")
        };
        for fine in [
            "https://example.com",
            "http://example.com:8080/a/b?c=d",
            "HTTPS://example.com/",
            "https://[2001:db8::1]/x",
        ] {
            assert!(check(fine).is_ok(), "{fine}");
        }
        for (wrong, why) in [
            ("", "scheme"),
            ("example.com", "scheme"),
            ("ftp://example.com/", "scheme"),
            ("file:///etc/passwd", "scheme"),
            ("gopher://example.com/", "scheme"),
            ("unix:/run/x.sock", "scheme"),
            ("javascript:alert(1)", "scheme"),
            ("https:///path", "no host"),
            ("https://:80/", "no host"),
            ("https://user@example.com/", "user or password"),
            ("https://example.com:80@127.0.0.1/", "user or password"),
            ("https://example.com/#part", "fragment"),
            ("https://example.com/a b", "blanks"),
            ("https://example.com\\@127.0.0.1/", "backslashes"),
            ("https://ex\u{e4}mple.com/", "ASCII"),
            ("https://example.com/\r\nX: y", "blanks"),
        ] {
            let error = check(wrong).unwrap_err().error;
            assert!(error.contains(why), "{wrong}: {error}");
        }
        let long = format!("https://example.com/{}", "x".repeat(MAX_URL));
        assert!(check(&long).unwrap_err().error.contains("the limit is"));
        // What it holds may be a secret.
        let error = check("https://user:hunter2@example.com/").unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"));
    }
}
