//! The HTTP clients of the process: their name, their certificates, their patience.
//!
//! Owns how timmy connects. Must not know providers, nor what is said over a connection.
//! Proxies are those of the environment, for the way out of this machine only. Certificates are the
//! system's, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::redirect::{Attempt, Policy};

use crate::provider::table::is_loopback;

/// Who we say we are, to everybody alike.
pub(crate) const AGENT: &str = concat!("agentd/", env!("CARGO_PKG_VERSION"));
/// A server that takes longer to take a connection is away: the next model is asked.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A peer that vanished without a word is noticed about this long after.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Connections kept for the next request, for each host: a turn asks one model at a time.
const IDLE_CONNECTIONS: usize = 4;
/// Redirects within one server that are followed.
const MOST_REDIRECTS: usize = 5;

/// The client for an address, made when it is first needed.
///
/// # Errors
/// Why there can't be one, in words for the user.
pub(crate) fn client(url: &str) -> Result<reqwest::Client, String> {
    // Two for the process, as each reads the system's certificates when it is made.
    type Made = OnceLock<Result<reqwest::Client, String>>;
    static HERE: Made = OnceLock::new();
    static ELSEWHERE: Made = OnceLock::new();
    let made = if is_loopback(url) { &HERE } else { &ELSEWHERE };
    made.get_or_init(|| {
        let built = builder_for(url).build();
        built.map_err(|error| format!("no HTTP client can be made: {}", chain(&error)))
    })
    .clone()
}

/// What clients for this address have in common: to this machine there is no proxy.
pub(crate) fn builder_for(url: &str) -> reqwest::ClientBuilder {
    if is_loopback(url) {
        builder().no_proxy()
    } else {
        builder()
    }
}

/// What all clients of this process have in common.
pub(crate) fn builder() -> reqwest::ClientBuilder {
    // Somebody may have been here before; there is only this provider in the program.
    let _already = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(AGENT)
        // None for the whole: an answer may take as long as it says something, see `genai`.
        .connect_timeout(CONNECT_WITHIN)
        .tcp_keepalive(KEEP_ALIVE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .redirect(Policy::custom(within_one_server))
        // Events come in small pieces, and a few bytes could become gigabytes.
        .no_gzip()
        .referer(false)
}

/// Keys go to whom they were meant for: a redirect elsewhere is not followed, and the answer that
/// asked for it is what the caller gets.
fn within_one_server(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let next = attempt.url();
    let same = attempt.previous().first().is_some_and(|first| {
        (
            first.scheme(),
            first.host_str(),
            first.port_or_known_default(),
        ) == (next.scheme(), next.host_str(), next.port_or_known_default())
    });
    if same && attempt.previous().len() <= MOST_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

/// An error with its causes: the first alone says little more than that something went wrong.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    text
}
