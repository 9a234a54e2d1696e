//! Which addresses a page may be fetched from: those of the public internet.
//!
//! Owns the URLs that are refused, and the look-up of names: the address that was
//! checked is the one that is connected to. Must not know what is fetched.

use std::net::{IpAddr, SocketAddr};

use agentd_protocol::address;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Ports that need no leave.
const USUAL_PORTS: &[u16] = &[80, 443];

/// What may be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WebReach {
    /// The public internet.
    Public,
    /// And this machine, where the servers of tests are. Not there in the product.
    #[cfg(test)]
    AndLoopback,
}

impl WebReach {
    /// May this address be connected to?
    pub(super) fn check(self, address: IpAddr) -> Result<(), String> {
        #[cfg(test)]
        if self == Self::AndLoopback && address.is_loopback() {
            return Ok(());
        }
        if address::reach(address) == address::Reach::Public {
            Ok(())
        } else {
            Err(format!(
                "{address} is an address of this machine or of a private network; expected a \
                 public one"
            ))
        }
    }

    /// May this URL be fetched, as far as can be said without a look-up?
    pub(super) fn check_url(self, url: &Url) -> Result<(), String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!(
                "`url`: expected http or https, found {}",
                url.scheme()
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("`url`: expected no user and password in it".to_owned());
        }
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err("`url`: expected a host in it".to_owned());
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        // Whatever way an address was written, it is in its usual form by now.
        // Here, as an address is not looked up and never comes to `Checked`.
        bare.parse().map_or(Ok(()), |address| self.check(address))
    }
}

/// Is the port one that pages are at?
pub(super) fn is_usual_port(url: &Url) -> bool {
    url.port_or_known_default()
        .is_some_and(|port| USUAL_PORTS.contains(&port))
}

/// Looks names up, and gives out addresses that were checked, or none.
pub(super) struct Checked(pub(super) WebReach);

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                // The port is put in by reqwest.
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            // One that is refused among others is a trick, not a mistake.
            for address in &found {
                let refused = |why| format!("{}: {why}", name.as_str());
                reach.check(address.ip()).map_err(refused)?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_reached() {
        for (address, expected) in [
            ("1.1.1.1", true),
            ("2606:4700::1111", true),
            ("127.0.0.1", false),
            ("10.0.0.1", false),
            ("::1", false),
            ("fc00::1", false),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
        ] {
            let checked = WebReach::Public.check(address.parse().unwrap());
            assert_eq!(checked.is_ok(), expected, "{address}");
        }
    }

    #[test]
    fn url_is_refused_in_every_spelling() {
        for refused in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://169.254.169.254/latest/meta-data/",
            "http://１２７.０.０.１/",
            "http://user@example.com/",
            "http://:secret@example.com/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "gopher://example.com/",
            "data:text/plain,x",
            "unix:/run/x.sock",
        ] {
            let checked = Url::parse(refused).map(|url| WebReach::Public.check_url(&url));
            assert!(!matches!(checked, Ok(Ok(()))), "{refused}");
        }
        let url = Url::parse("https://example.com:8443/a?b#c").unwrap();
        assert_eq!(WebReach::Public.check_url(&url), Ok(()));
        assert!(!is_usual_port(&url));
        assert!(is_usual_port(&Url::parse("http://example.com/").unwrap()));
    }
}
