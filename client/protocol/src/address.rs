//! Which addresses are of the public internet, and which of a private network.
//!
//! Owns the registries' special ranges. Must not know who wants to connect to what.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What kind of network an address belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The public internet.
    Public,
    /// This machine, or a network of the user's own.
    Private,
    /// Nothing that anybody should send requests to: where clouds keep credentials, many at once,
    /// examples, what is reserved.
    Never,
}

/// Says which kind of network an address belongs to.
#[must_use]
pub fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    // <https://www.iana.org/assignments/iana-ipv4-special-registry>
    match address.octets() {
        [10 | 127, ..] | [192, 168, ..] => Reach::Private,
        [172, b, ..] if (16..32).contains(&b) => Reach::Private,
        // What a provider has between its customers and itself; overlay networks have it, too.
        // One address of it is where a cloud keeps credentials.
        [100, 100, 100, 200] => Reach::Never,
        [100, b, ..] if (64..128).contains(&b) => Reach::Private,
        // A cloud's machines get certificates and settings here.
        [168, 63, 129, 16] => Reach::Never,
        // Link-local: the metadata of clouds.
        [0, ..] | [169, 254, ..] => Reach::Never,
        [192, 0, 0 | 2, _] | [192, 88, 99, _] => Reach::Never,
        [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => Reach::Never,
        // Multicast, and what is reserved.
        [224..=255, ..] => Reach::Never,
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        reach_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Reach::Private,
        // IPv4 within IPv6: mapped, translated, 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] => embedded(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        // Where clouds keep credentials.
        [0xfd00, 0xec2, ..] => Reach::Never,
        [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => Reach::Never,
        [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe] => Reach::Never,
        [first, ..] if (first & 0xfe00) == 0xfc00 => Reach::Private,
        // Teredo, benchmarks, ORCHID and documentation.
        [0x2001, 0, ..] | [0x2001, 2, 0, ..] | [0x2001, 0xdb8, ..] => Reach::Never,
        [0x2001, 0x10..=0x3f, ..] | [0x3fff, 0..=0xfff, ..] => Reach::Never,
        // All else that was given out for the public is within 2000::/3.
        [0x2000..=0x3fff, ..] => Reach::Public,
        _ => Reach::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(expected: Reach, addresses: &[&str]) {
        for address in addresses {
            let found = reach(address.parse().unwrap());
            assert_eq!(found, expected, "{address}");
        }
    }

    #[test]
    fn every_address_has_its_reach() {
        all(
            Reach::Public,
            &[
                "1.1.1.1",
                "100.63.255.255",
                "100.128.0.1",
                "168.63.129.17",
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
            ],
        );
        all(
            Reach::Private,
            &[
                "10.0.0.1",
                "100.64.0.1",
                "100.127.255.255",
                "127.0.0.1",
                "127.9.9.9",
                "172.16.0.1",
                "172.31.255.255",
                "192.168.1.1",
                "::1",
                "::ffff:127.0.0.1",
                "::ffff:10.0.0.1",
                "64:ff9b::7f00:1",
                "2002:7f00:1::",
                "fc00::1",
                "fd12:3456::1",
                "fd20:ce::253",
            ],
        );
        all(
            Reach::Never,
            &[
                "0.0.0.0",
                "0.1.2.3",
                "100.100.100.200",
                "168.63.129.16",
                "169.254.169.254",
                "192.0.0.1",
                "192.0.0.192",
                "192.0.2.1",
                "192.88.99.1",
                "198.18.0.1",
                "198.19.255.255",
                "198.51.100.1",
                "203.0.113.9",
                "224.0.0.1",
                "239.1.1.1",
                "240.0.0.1",
                "255.255.255.255",
                "::",
                "::127.0.0.1",
                "::ffff:169.254.169.254",
                "64:ff9b:1::1",
                "100::1",
                "2001::1",
                "2001:db8::1",
                "2002:a9fe:a9fe::",
                "3fff::1",
                "fd00:c1::a9fe:a9fe",
                "fd00:ec2::254",
                "fd20:ce::254",
                "fe80::1",
                "fec0::1",
                "ff02::1",
            ],
        );
    }
}
