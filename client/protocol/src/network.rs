//! How the network is reached on this machine, as variables say it.
//!
//! Owns the list: the service, the workers and what they run are mute behind a proxy that one of
//! them doesn't know of. Must not know who passes it on.

/// Proxies, and whose certificates count.
pub const VARIABLES: [&str; 12] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];
