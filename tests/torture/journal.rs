//! A journal that has stopped: datagrams are taken as long as its queue has room, and nobody reads.
//!
//! Owns the socket where daemons look for journald, in mounts of this run's own. Must not know when a
//! daemon is sent there.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use crate::fuse;
use crate::place::Variables;

/// Where journald is, and where daemons look for it.
const DIRECTORY: &str = "/run/systemd/journal";
const SOCKET: &str = "/run/systemd/journal/socket";

/// The socket, for all daemons of all runs.
#[derive(Clone, Debug)]
pub(crate) struct Journal(Arc<UnixDatagram>);

impl Journal {
    /// Takes the place of journald, for this program and what it starts. Call it before there is
    /// another thread, and only in mounts of our own; `None` where that can't be had.
    pub(crate) fn new() -> Option<Self> {
        if !fuse::mount("none", Path::new("/run"), "tmpfs", "", 0) {
            return None;
        }
        fs::create_dir_all(DIRECTORY).ok()?;
        let socket = UnixDatagram::bind(SOCKET).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Self(Arc::new(socket)))
    }

    /// What a daemon is started with whose standard error is `log`: it takes that for the journal's
    /// stream, and tells the journal as much as it can.
    pub(crate) fn variables(log: &Path) -> io::Result<Variables> {
        let log = fs::metadata(log)?;
        let stream = format!("{}:{}", log.dev(), log.ino());
        Ok(vec![
            ("JOURNAL_STREAM", OsString::from(stream)),
            ("AGENTD_LOG", OsString::from("debug")),
        ])
    }

    /// Does it take nothing more?
    pub(crate) fn is_full(&self) -> bool {
        let tried = UnixDatagram::unbound().and_then(|sender| {
            sender.set_nonblocking(true)?;
            sender.send_to(b"", SOCKET)
        });
        tried.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// It reads what is there, and stops again.
    pub(crate) fn catch_up(&self) {
        let mut entry = [0; 1024];
        while self.0.recv(&mut entry).is_ok() {}
    }
}
