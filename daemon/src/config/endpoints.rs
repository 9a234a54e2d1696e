//! `webhooks.json`: to whom deliveries may go, and the secrets they are signed with.
//!
//! Owns the file's form and which endpoint a URL belongs to. A secret never appears in a
//! message. Must not know what is delivered, nor what an address leads to.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use agentd_protocol::address::{self, Reach};
use agentd_protocol::envelope::Rejected;
use agentd_protocol::webhook::EndpointRow;
use agentd_protocol::{Code, serde_json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};

use super::edit::rewrite;
use super::secrets::read_private;
use super::{ConfigError, EditError};

/// The file's name, beside `config.toml`.
const FILE: &str = "webhooks.json";
/// Every secret begins so.
const PREFIX: &str = "whsec_";
/// Bytes of a new secret: as many as the hash gives.
const NEW_SECRET: usize = 32;
/// Bytes of a secret that somebody else made: less can be guessed, more is hashed anyway.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Secrets of one endpoint: the new one, and the old one until the receiver knows the new one.
const MOST_SECRETS: usize = 2;

/// What a delivery is signed with. `Debug` says nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    fn new() -> Result<Self, String> {
        let mut bytes = vec![0; NEW_SECRET];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_unspecified| "the system gives no random bytes".to_owned())?;
        Ok(Self(bytes))
    }

    /// Reads `whsec_` and base64.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
        SECRET_BYTES.contains(&bytes.len()).then_some(Self(bytes))
    }

    /// The key itself.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// As its owner has to know it.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Whose deliveries are signed with what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// What URLs of it begin with.
    pub url: Url,
    /// May it be in a private network, or on this machine?
    pub allow_private: bool,
    /// At least one, the newest first.
    pub secrets: Vec<Secret>,
}

/// The file as it is written.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    endpoints: Vec<WrittenEndpoint>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEndpoint {
    url: String,
    #[serde(default)]
    allow_private: bool,
    secrets: Vec<String>,
}

/// A change of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndpointChange {
    /// One more, with a new secret; one that is there keeps its secret and what it may.
    Add {
        /// May it be in a private network?
        allow_private: bool,
    },
    /// One less.
    Remove,
    /// A new secret beside the old one.
    Rotate,
    /// The new secret only.
    Retire,
}

/// All endpoints.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Endpoints(Vec<Endpoint>);

impl Endpoints {
    /// Where the file is.
    #[must_use]
    pub fn file(config: &Path) -> PathBuf {
        config.with_file_name(FILE)
    }

    /// Reads the file; a missing one is an empty one.
    ///
    /// # Errors
    /// When it can't be read, others can read it, or it isn't what it should be.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(&read_private(file)?).map_err(|(line, what)| ConfigError::Wrong {
            file: file.to_owned(),
            line,
            what,
            hint: Some("`agentctl webhook add` writes this file".to_owned()),
        })
    }

    pub(super) fn parse(text: &str) -> Result<Self, (usize, String)> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        // Its own words may repeat a secret.
        let written: Written = serde_json::from_str(text)
            .map_err(|error| (error.line().max(1), "this isn't as expected".to_owned()))?;
        let mut endpoints = Vec::new();
        for one in written.endpoints {
            let wrong = |what: String| (1, format!("the endpoint `{}` {what}", one.url));
            let url = base(&one.url).map_err(|why| wrong(format!("is wrong: {why}")))?;
            let secrets: Option<Vec<Secret>> =
                one.secrets.iter().map(|text| Secret::parse(text)).collect();
            let secrets = secrets.filter(|all| (1..=MOST_SECRETS).contains(&all.len()));
            let secrets = secrets.ok_or_else(|| {
                wrong(format!(
                    "needs 1 or {MOST_SECRETS} secrets, each `{PREFIX}` and the base64 of {} to {} \
                     bytes",
                    SECRET_BYTES.start(),
                    SECRET_BYTES.end()
                ))
            })?;
            endpoints.push(Endpoint {
                url,
                allow_private: one.allow_private,
                secrets,
            });
        }
        Ok(Self(endpoints))
    }

    pub(super) fn text(&self) -> String {
        let endpoints = self.0.iter().map(|one| WrittenEndpoint {
            url: one.url.to_string(),
            allow_private: one.allow_private,
            secrets: one.secrets.iter().map(Secret::reveal).collect(),
        });
        let written = Written {
            endpoints: endpoints.collect(),
        };
        // Strings and a bool can always be written.
        let text = serde_json::to_string_pretty(&written).unwrap_or_default();
        format!("{text}\n")
    }

    /// Changes one endpoint in the file. Gives its newest secret, if it is there afterwards.
    ///
    /// # Errors
    /// When the file is broken, the change is wrong, or the disk says no.
    pub fn change(
        file: &Path,
        url: &str,
        change: &EndpointChange,
    ) -> Result<Option<Secret>, EditError> {
        let url = base(url).map_err(|why| EditError::Refused {
            what: format!("the URL is wrong: {why}"),
            hint: "what callbacks begin with, as https://ci.example/hooks/".to_owned(),
        })?;
        let mut secret = None;
        rewrite(file, || {
            let mut all = Self::load(file)?;
            secret = all.changed(&url, change)?;
            Ok(all.text())
        })?;
        Ok(secret)
    }

    pub(super) fn changed(
        &mut self,
        url: &Url,
        change: &EndpointChange,
    ) -> Result<Option<Secret>, EditError> {
        let random = |why| EditError::Refused {
            what: why,
            hint: "try again".to_owned(),
        };
        let place = self.0.iter().position(|one| one.url == *url);
        if let EndpointChange::Add { allow_private } = change {
            if let Some(known) = place.and_then(|place| self.0.get_mut(place)) {
                // Whoever only wants to see the secret takes nothing away.
                known.allow_private |= *allow_private;
                return Ok(known.secrets.first().cloned());
            }
            let secret = Secret::new().map_err(random)?;
            let new = Endpoint {
                url: url.clone(),
                allow_private: *allow_private,
                secrets: vec![secret.clone()],
            };
            new.deliverable()?;
            self.0.push(new);
            return Ok(Some(secret));
        }
        let Some(place) = place else {
            return Err(EditError::Refused {
                what: format!("there is no endpoint `{url}`"),
                hint: "`agentctl webhook list` shows them".to_owned(),
            });
        };
        if *change == EndpointChange::Remove {
            self.0.remove(place);
            return Ok(None);
        }
        let Some(known) = self.0.get_mut(place) else {
            return Ok(None);
        };
        if *change == EndpointChange::Rotate {
            if known.secrets.len() >= MOST_SECRETS {
                return Err(EditError::Refused {
                    what: format!("the endpoint `{url}` has {MOST_SECRETS} secrets already"),
                    hint: "first `agentctl webhook rotate --finish`".to_owned(),
                });
            }
            known.secrets.insert(0, Secret::new().map_err(random)?);
        } else {
            known.secrets.truncate(1);
        }
        Ok(known.secrets.first().cloned())
    }

    /// The endpoint that a URL belongs to: the longest beginning counts.
    #[must_use]
    pub fn of(&self, url: &Url) -> Option<&Endpoint> {
        let fitting = self.0.iter().filter(|one| begins(url, &one.url));
        fitting.max_by_key(|one| one.url.path().len())
    }

    /// May somebody be called at this URL? Says nothing of what its name leads to by then.
    ///
    /// # Errors
    /// Says why not.
    pub fn check(&self, url: &str) -> Result<(), Rejected> {
        let invalid =
            |why| Rejected::new(Code::InvalidRequest, format!("the callback's URL {why}"));
        let url = Url::parse(url).map_err(|error| invalid(format!("is none: {error}")))?;
        let Some(endpoint) = self.of(&url) else {
            let origin = url.origin().ascii_serialization();
            let error = format!("no endpoint is configured for callbacks to `{origin}`");
            let hint = "`webhooks.json` beside config.toml lists them; `agentctl webhook add URL` \
                        adds one, and prints the secret for its receiver";
            return Err(Rejected::new(Code::UnknownWebhook, error).hint(hint));
        };
        literal(&url, endpoint.reach()).map_err(invalid)
    }

    /// For lists.
    #[must_use]
    pub fn rows(&self) -> Vec<EndpointRow> {
        let rows = self.0.iter().map(|one| EndpointRow {
            url: one.url.to_string(),
            allow_private: one.allow_private,
            secrets: one.secrets.len(),
        });
        rows.collect()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Endpoint {
    /// How far it may be reached.
    #[must_use]
    pub const fn reach(&self) -> Reach {
        match self.allow_private {
            true => Reach::Private,
            false => Reach::Public,
        }
    }

    /// Could anything be delivered here? By the same rule as each delivery.
    fn deliverable(&self) -> Result<(), EditError> {
        let refused = |what: String, hint: &str| EditError::Refused {
            what: format!("the URL {what}"),
            hint: hint.to_owned(),
        };
        // What may be reached with leave is refused for the lack of it, all else for good.
        literal(&self.url, Reach::Private).map_err(|what| {
            let hint = "name a host of the public internet, or with `--allow-private` one of your \
                        own network";
            refused(what, hint)
        })?;
        literal(&self.url, self.reach())
            .map_err(|what| refused(what, "`--allow-private`, if that is meant"))
    }
}

/// Is an address within reach?
///
/// # Errors
/// Says why not.
pub fn within(address: IpAddr, most: Reach) -> Result<(), String> {
    match (address::reach(address), most) {
        (Reach::Public, _) | (Reach::Private, Reach::Private) => Ok(()),
        (Reach::Private, _) => Err(format!(
            "leads to {address}, an address of this machine or of a private network, which its \
             endpoint isn't allowed"
        )),
        (Reach::Never, _) => Err(format!(
            "leads to {address}, where nothing is ever delivered"
        )),
    }
}

/// Checks a host that is an address: whatever way it was written, it is in its usual form by now.
///
/// # Errors
/// Says why it is out of reach.
pub fn literal(url: &Url, most: Reach) -> Result<(), String> {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse().map_or(Ok(()), |address| within(address, most))
}

/// What an endpoint's URLs begin with.
pub(super) fn base(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err("expected http or https, and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("expected no user and password in it".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("expected neither query nor fragment, as it is a beginning".to_owned());
    }
    Ok(url)
}

/// Does a URL begin with another, up to the end of a part of its path?
fn begins(url: &Url, base: &Url) -> bool {
    let same = url.scheme() == base.scheme()
        && url.host_str() == base.host_str()
        && url.port_or_known_default() == base.port_or_known_default();
    let rest = url.path().strip_prefix(base.path());
    same && rest.is_some_and(|rest| {
        let is_end = rest.is_empty() || rest.starts_with('/') || base.path().ends_with('/');
        is_end && !climbs(rest)
    })
}

/// Does a path lead upwards for a server that decodes a slash in it, or drops what follows a
/// semicolon? Plain dots were resolved before.
fn climbs(path: &str) -> bool {
    let path = path.to_ascii_lowercase().replace("%2e", ".");
    let path = path.replace("%2f", "/").replace("%5c", "/");
    let mut parts = path.split('/').map(|part| part.split(';').next());
    parts.any(|part| part == Some(".."))
}

/// What is refused, by URL.
#[must_use]
pub fn refused<'a>(
    file: &Path,
    urls: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<String, Rejected> {
    let mut refused = BTreeMap::new();
    let mut urls = urls.into_iter().peekable();
    if urls.peek().is_none() {
        return refused;
    }
    let endpoints = Endpoints::load(file);
    for url in urls {
        let checked = match &endpoints {
            Ok(endpoints) => endpoints.check(url),
            Err(error) => Err(Rejected::new(Code::UnknownWebhook, error.to_string())),
        };
        if let Err(rejected) = checked {
            refused.insert(url.to_owned(), rejected);
        }
    }
    refused
}

#[cfg(test)]
mod tests;
