//! One attempt: a signed request to an address that was checked, and what came back.
//!
//! Owns the request and how much of the answer is read. An address is looked up once, all that came
//! of it is checked, and one of these is connected to; nothing goes through a proxy, which would look
//! it up again. Must not know when there is another attempt.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agentd_protocol::address::Reach;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};

use super::schedule::{Verdict, verdict};
use super::sign::signatures;
use crate::config::{Endpoint, literal, within};
use crate::store::Delivery;

/// An attempt takes no longer, from the look-up to the head of the answer.
const WITHIN: Duration = Duration::from_secs(15);
/// What follows the head is waited for so long: the status says all.
const BODY_WITHIN: Duration = Duration::from_secs(1);
/// So much of what follows is read, and thrown away.
const MOST_BYTES: usize = 16 * 1024;
/// So much of what went wrong is kept, in bytes.
const MOST_WORDS: usize = 300;

/// Looks up which addresses a name has.
pub(super) type LookUp = Arc<
    dyn Fn(String) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>
        + Send
        + Sync,
>;

/// As this system does it.
pub(super) fn system() -> LookUp {
    Arc::new(|name| {
        Box::pin(async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) })
    })
}

/// What came of an attempt.
pub(super) struct PostResult {
    pub(super) verdict: Verdict,
    pub(super) status: Option<u16>,
    /// Why it isn't delivered.
    pub(super) error: Option<String>,
    /// Did no answer come in time?
    pub(super) late: bool,
}

impl PostResult {
    pub(super) fn failed(error: impl Into<String>) -> Self {
        let mut error = error.into();
        while error.len() > MOST_WORDS {
            error.pop();
        }
        Self {
            verdict: Verdict::Failed(None),
            status: None,
            error: Some(error),
            late: false,
        }
    }
}

/// Sends requests.
pub(super) struct Poster {
    look_up: LookUp,
    within: Duration,
    /// Made when first needed: for the public internet or beyond it, and with the system's
    /// certificates or without them, as there may be none.
    clients: [[OnceLock<Client>; 2]; 2],
}

impl Poster {
    pub(super) const fn new(look_up: LookUp) -> Self {
        Self {
            look_up,
            within: WITHIN,
            clients: [const { [const { OnceLock::new() }; 2] }; 2],
        }
    }

    #[cfg(test)]
    pub(super) fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    fn client(&self, reach: Reach, tls: bool) -> Result<&Client, reqwest::Error> {
        let [public, private] = &self.clients;
        let [plain, secure] = match reach {
            Reach::Private => private,
            Reach::Public | Reach::Never => public,
        };
        let kept = if tls { secure } else { plain };
        if let Some(client) = kept.get() {
            return Ok(client);
        }
        // Somebody else may have done so already, with the same.
        let _is_there = rustls::crypto::ring::default_provider().install_default();
        let checked = Checked {
            look_up: Arc::clone(&self.look_up),
            reach,
        };
        let builder = if tls {
            Client::builder().https_only(true)
        } else {
            // Otherwise it would look for the system's certificates, and fail where there are none,
            // for `http` too.
            Client::builder().tls_certs_only([])
        };
        let client = builder
            .user_agent(concat!("agentd/", env!("CARGO_PKG_VERSION")))
            // Where that leads was checked by nobody.
            .redirect(Policy::none())
            .no_proxy()
            // Nobody reads it: what is small on the wire needn't become large here.
            .no_gzip()
            .referer(false)
            .dns_resolver(Arc::new(checked))
            // Each attempt is looked up and checked anew; over a kept connection it would be
            // neither.
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(kept.get_or_init(|| client))
    }

    /// Tells a receiver once, at `now_ms` since 1970.
    pub(super) async fn post(&self, endpoint: &Endpoint, due: Delivery, now_ms: i64) -> PostResult {
        let sent = tokio::time::timeout(self.within, self.send(endpoint, due, now_ms)).await;
        match sent {
            Ok(Ok(response)) => {
                let ended = answered(&response, now_ms);
                // It is taken or refused, however the rest of the answer ends.
                let _late = tokio::time::timeout(BODY_WITHIN, read_rest(response)).await;
                ended
            }
            Ok(Err(ended)) => ended,
            Err(_late) => PostResult {
                late: true,
                ..PostResult::failed(format!("no answer within {} s", self.within.as_secs()))
            },
        }
    }

    async fn send(
        &self,
        endpoint: &Endpoint,
        due: Delivery,
        now_ms: i64,
    ) -> Result<Response, PostResult> {
        let url = Url::parse(&due.url).map_err(|_none| PostResult::failed("its URL is none"))?;
        let reach = endpoint.reach();
        // A name is checked when it is looked up, an address never is.
        // The configuration may have changed since it was allowed.
        literal(&url, reach).map_err(|why| PostResult::failed(format!("its URL {why}")))?;
        let client = self.client(reach, url.scheme() == "https");
        let client = client.map_err(|error| PostResult::failed(said(error)))?;
        let seconds = now_ms.div_euclid(1000);
        let signature = signatures(&endpoint.secrets, &due.id, seconds, &due.body);
        let request = client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", due.id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", signature)
            .body(due.body);
        request.send().await.map_err(not_sent)
    }
}

/// What the head of an answer means.
fn answered(response: &Response, now_ms: i64) -> PostResult {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok());
    let verdict = verdict(status.as_u16(), retry_after, now_ms);
    let error = match verdict {
        Verdict::Delivered => None,
        _ if status.is_redirection() => {
            Some(format!("it answered {status}; redirects are not followed"))
        }
        Verdict::Gone => Some(format!("it answered {status}: nobody wants it any more")),
        Verdict::Failed(_) | Verdict::NoNetwork => Some(format!("it answered {status}")),
    };
    PostResult {
        verdict,
        status: Some(status.as_u16()),
        error,
        late: false,
    }
}

/// To its end, if that isn't far: who is cut off in the middle may take it for an error.
async fn read_rest(mut response: Response) {
    let mut read = 0;
    while let Ok(Some(piece)) = response.chunk().await {
        read += piece.len();
        if read > MOST_BYTES {
            break;
        }
    }
}

/// Gives out addresses that were all checked, or none.
struct Checked {
    look_up: LookUp,
    reach: Reach,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (look_up, reach) = (Arc::clone(&self.look_up), self.reach);
        Box::pin(async move {
            let found = look_up(name.as_str().to_owned()).await?;
            // One that is refused among others is a trick, not a mistake.
            for address in &found {
                within(address.ip(), reach)
                    .map_err(|why| format!("the name `{}` {why}", name.as_str()))?;
            }
            // Or a receiver that refuses would seem to be none that can be reached: one of its
            // addresses often can't.
            let (ways, none): (Vec<_>, Vec<_>) =
                found.into_iter().map(way).partition(Result::is_ok);
            match none.into_iter().find_map(Result::err) {
                Some(error) if ways.is_empty() => Err(error.into()),
                _ => Ok(Box::new(ways.into_iter().flatten()) as Addrs),
            }
        })
    }
}

/// An address to which this machine has a way. Nothing is sent.
fn way(to: SocketAddr) -> io::Result<SocketAddr> {
    let from: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // The port is that of `discard`: some systems take no 0.
    UdpSocket::bind(from)?.connect((to.ip(), 9))?;
    Ok(to)
}

/// What it means that no answer came.
fn not_sent(error: reqwest::Error) -> PostResult {
    let mut cause = std::error::Error::source(&error);
    let mut no_network = false;
    while let Some(error) = cause {
        no_network |= error.downcast_ref().is_some_and(is_without_network);
        cause = error.source();
    }
    let verdict = match no_network {
        true => Verdict::NoNetwork,
        false => Verdict::Failed(None),
    };
    PostResult {
        verdict,
        ..PostResult::failed(said(error))
    }
}

/// No way leads there, or no name server answered.
fn is_without_network(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable};
    // EAI_AGAIN has no kind. Its words are the C library's: glibc's and Apple's, and musl's.
    let words = error.to_string();
    matches!(
        error.kind(),
        HostUnreachable | NetworkDown | NetworkUnreachable
    ) || words
        .to_ascii_lowercase()
        .contains("temporary failure in name resolution")
        || words.ends_with(": Try again")
}

/// An error with its causes, without the URL, which may hold a secret.
fn said(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(&format!(": {more}"));
        }
        cause = error.source();
    }
    text
}
