//! Who is at the other end of a connection: the user on this machine, else the address.
//!
//! Owns the kernel's answer to whose a socket is. Must not know what follows from that.

use std::net::{IpAddr, SocketAddr};

/// Whoever shares a place at this server with nobody else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// A user of this machine.
    #[cfg(target_os = "linux")]
    User(u32),
    /// A machine; or this one, where its users can't be told apart.
    Host(IpAddr),
}

/// Asks the kernel, where it knows.
pub(crate) struct Peers {
    #[cfg(target_os = "linux")]
    sockets: Option<linux::Sockets>,
}

impl Peers {
    /// Without an answer of the kernel's every connection of this machine is of one peer.
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            sockets: linux::Sockets::open().ok(),
        }
    }

    /// Who connected from `there` to `here`.
    pub(crate) fn who(&self, there: SocketAddr, here: SocketAddr) -> Peer {
        let (there, here) = (plain(there), plain(here));
        self.user(there, here)
            .unwrap_or_else(|| Peer::Host(there.ip()))
    }

    #[cfg(target_os = "linux")]
    fn user(&self, there: SocketAddr, here: SocketAddr) -> Option<Peer> {
        // A connection to an address of this machine comes from that one, or from loopback.
        let is_here = there.ip().is_loopback() || there.ip() == here.ip();
        let sockets = self.sockets.as_ref().filter(|_| is_here)?;
        sockets.owner(there, here).map(Peer::User)
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "the kernel is asked elsewhere")]
    const fn user(&self, _there: SocketAddr, _here: SocketAddr) -> Option<Peer> {
        None
    }
}

/// An IPv4 address that is written as an IPv6 one is an IPv4 address.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::net::{IpAddr, SocketAddr};
    use std::os::fd::{AsRawFd as _, OwnedFd};

    use nix::sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
        socket,
    };

    /// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`: both the question and the answer.
    const BY_FAMILY: u16 = 20;
    /// `NLM_F_REQUEST` of `linux/netlink.h`.
    const REQUEST: u16 = 1;
    /// Length of a question: `nlmsghdr` and `inet_diag_req_v2`.
    const ASKED: usize = 72;
    /// Where an answer has the user: behind `nlmsghdr`, four bytes, `inet_diag_sockid` and three
    /// numbers of `inet_diag_msg`.
    const USER: std::ops::Range<usize> = 80..84;

    /// The kernel's table of sockets. It looks one up as it does for a packet: however many there
    /// are, unlike `/proc/net/tcp`, which lists them all.
    pub(super) struct Sockets(OwnedFd);

    impl Sockets {
        pub(super) fn open() -> nix::Result<Self> {
            socket(
                AddressFamily::Netlink,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
                SockProtocol::NetlinkSockDiag,
            )
            .map(Self)
        }

        /// Whose socket has this address, connected to that one. What isn't known is `None`.
        pub(super) fn owner(&self, of: SocketAddr, to: SocketAddr) -> Option<u32> {
            let asked = question(of, to);
            let kernel = NetlinkAddr::new(0, 0);
            let fd = self.0.as_raw_fd();
            sendto(fd, &asked, &kernel, MsgFlags::empty()).ok()?;
            // It was answered within the call before.
            let mut answer = [0; 512];
            let length = recv(fd, &mut answer, MsgFlags::empty()).ok()?;
            let answer = answer.get(..length)?;
            // Else it is an error: there is no such socket.
            if answer.get(4..6)? != BY_FAMILY.to_ne_bytes() {
                return None;
            }
            Some(u32::from_ne_bytes(answer.get(USER)?.try_into().ok()?))
        }
    }

    fn question(of: SocketAddr, to: SocketAddr) -> [u8; ASKED] {
        let mut asked = [0; ASKED];
        let mut put = |at: usize, bytes: &[u8]| {
            for (to, from) in asked.iter_mut().skip(at).zip(bytes) {
                *to = *from;
            }
        };
        put(0, &72_u32.to_ne_bytes());
        put(4, &BY_FAMILY.to_ne_bytes());
        put(6, &REQUEST.to_ne_bytes());
        let family = match of {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        put(16, &[u8::try_from(family as i32).unwrap_or_default()]);
        // IPPROTO_TCP, and every state.
        put(17, &[6]);
        put(20, &u32::MAX.to_ne_bytes());
        put(24, &of.port().to_be_bytes());
        put(26, &to.port().to_be_bytes());
        put(28, &octets(of.ip()));
        put(44, &octets(to.ip()));
        // No cookie: it is named by its addresses alone.
        put(64, &[u8::MAX; 8]);
        asked
    }

    fn octets(address: IpAddr) -> [u8; 16] {
        match address {
            IpAddr::V6(address) => address.octets(),
            IpAddr::V4(address) => {
                let mut octets = [0; 16];
                for (to, from) in octets.iter_mut().zip(address.octets()) {
                    *to = from;
                }
                octets
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn peers_of_this_machine_are_its_users() {
        for at in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(at) else {
                eprintln!("left out: this machine can't listen on {at}");
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let to = match at {
                "[::1]:0" => format!("[::1]:{port}"),
                _ => format!("127.0.0.1:{port}"),
            };
            let _stays = TcpStream::connect(to).unwrap();
            let (taken, there) = listener.accept().unwrap();
            let here = taken.local_addr().unwrap();
            let own = nix::unistd::Uid::current().as_raw();
            let peers = Peers::new();
            assert_eq!(peers.who(there, here), Peer::User(own), "{at}");
            // No such connection: no user, and the next question has its own answer.
            let nobody = SocketAddr::new(there.ip(), 1);
            assert_eq!(
                peers.who(nobody, here),
                Peer::Host(there.ip().to_canonical())
            );
            assert_eq!(peers.who(there, here), Peer::User(own), "{at}");
        }
    }
}
