//! Which addresses a page may be fetched from: those of the public internet.
//!
//! Owns the addresses and URLs that are refused, and the look-up of names: the address that was
//! checked is the one that is connected to. Must not know what is fetched.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Ports that need no leave.
const USUAL_PORTS: &[u16] = &[80, 443];

/// What may be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// The public internet.
    Public,
    /// And this machine, where the servers of tests are. Not there in the product.
    #[cfg(test)]
    AndLoopback,
}

impl Reach {
    /// May this address be connected to?
    pub(super) fn check(self, address: IpAddr) -> Result<(), String> {
        #[cfg(test)]
        if self == Self::AndLoopback && address.is_loopback() {
            return Ok(());
        }
        let is_public = match address {
            IpAddr::V4(address) => is_public_v4(address),
            IpAddr::V6(address) => is_public_v6(address),
        };
        if is_public {
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
        bare.parse().map_or(Ok(()), |address| self.check(address))
    }
}

/// Is the port one that pages are at?
pub(super) fn is_usual_port(url: &Url) -> bool {
    url.port_or_known_default()
        .is_some_and(|port| USUAL_PORTS.contains(&port))
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    // <https://www.iana.org/assignments/iana-ipv4-special-registry>
    let is_special = match a {
        0 | 10 | 127 => true,
        100 => (64..128).contains(&b),
        169 => b == 254,
        172 => (16..32).contains(&b),
        192 => b == 168 || (b == 0 && (c == 0 || c == 2)) || (b == 88 && c == 99),
        198 => b == 18 || b == 19 || (b == 51 && c == 100),
        203 => b == 0 && c == 113,
        // Multicast, and what is reserved.
        224..=255 => true,
        _ => false,
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // IPv4 within IPv6: mapped, translated, 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] => embedded(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo, benchmarks, ORCHID and documentation.
        [0x2001, 0, ..] | [0x2001, 2, 0, ..] | [0x2001, 0xdb8, ..] => false,
        [0x2001, 0x10..=0x3f, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // All else that was given out for the public is within 2000::/3.
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

/// Looks names up, and gives out addresses that were checked, or none.
pub(super) struct Checked(pub(super) Reach);

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let found: Vec<SocketAddr> =
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
        for refused in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "203.0.113.9",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            let address = refused.parse().unwrap();
            assert!(Reach::Public.check(address).is_err(), "{refused}");
        }
        for reached in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            let address = reached.parse().unwrap();
            assert_eq!(Reach::Public.check(address), Ok(()), "{reached}");
        }
    }

    #[test]
    fn a_url_is_refused_whatever_way_its_address_is_written() {
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
            let checked = Url::parse(refused).map(|url| Reach::Public.check_url(&url));
            assert!(!matches!(checked, Ok(Ok(()))), "{refused}");
        }
        let url = Url::parse("https://example.com:8443/a?b#c").unwrap();
        assert_eq!(Reach::Public.check_url(&url), Ok(()));
        assert!(!is_usual_port(&url));
        assert!(is_usual_port(&Url::parse("http://example.com/").unwrap()));
    }
}
