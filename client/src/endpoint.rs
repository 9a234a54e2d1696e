//! Where the daemon is, and the way to it.
//!
//! Owns the search for the socket, what `daemon.lock` says of it, connecting, and the check that the
//! server is our own user before the first byte. Must not know the protocol, nor what to do when
//! there is no daemon (`fallback`). The only file of the client that names `interprocess`.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use agentd_base::configuration;
use interprocess::ConnectWaitMode;
use interprocess::local_socket::tokio::Stream;
use interprocess::local_socket::traits::StreamCommon;
use interprocess::local_socket::{ConnectOptions, GenericFilePath, ToFsName};
use nix::errno::Errno;
use nix::unistd::Uid;
use tokio::net::UnixStream;

use crate::client::ClientError;
use crate::daemon_lock::{self, Holding, LockState, read, read_lock};
use crate::fallback::{Fact, Lock};
use crate::places::Environment;

/// Longest socket path in bytes: the kernel's `sun_path` without its closing zero.
pub const MAX_SOCKET_PATH: usize = if cfg!(target_os = "macos") { 103 } else { 107 };
/// Who named the socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// `--socket`.
    Option,
    /// `$AGENTD_SOCKET`.
    Variable,
    /// The living daemon's lock.
    Lock,
    /// Nobody.
    Default,
}

/// A socket to try.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalEndpoint {
    /// The socket.
    pub path: PathBuf,
    /// Who named it.
    pub origin: Origin,
    lock: Option<PathBuf>,
}

/// Why there is no connection.
#[derive(Debug)]
pub struct NotConnected {
    /// For the decision.
    pub fact: Fact,
    /// For people.
    pub error: String,
    /// What to do, where that is known.
    pub hint: Option<String>,
}

impl LocalEndpoint {
    /// Looks in order at what was given, `$AGENTD_SOCKET`, a held `daemon.lock`, the default.
    #[must_use]
    pub fn find(given: Option<&Path>, environment: &Environment) -> Self {
        let lock = environment.state_dir().map(|dir| dir.join("daemon.lock"));
        let (path, origin) = if let Some(given) = given {
            (given.to_owned(), Origin::Option)
        } else if let Some(named) = &environment.agentd_socket {
            (named.clone(), Origin::Variable)
        } else if let Some(held) = lock.as_deref().and_then(read_lock) {
            (held.socket, Origin::Lock)
        } else {
            (environment.default_socket(), Origin::Default)
        };
        Self { path, origin, lock }
    }

    /// What the daemon's lock says about this socket now.
    #[must_use]
    pub fn lock(&self) -> Lock {
        let held = self.lock.as_deref().and_then(read_lock);
        match held.filter(|held| same_socket(&held.socket, &self.path)) {
            None => Lock::Free,
            Some(held) => match held.state {
                LockState::Starting => Lock::Starting,
                LockState::Running | LockState::Other => Lock::Running,
                LockState::Restarting => Lock::Restarting,
                LockState::Stopping => Lock::Stopping,
            },
        }
    }

    /// Why nobody can be served where the disk of the state directory says nothing: no daemon starts
    /// there, and a run without one would hang.
    ///
    /// # Errors
    /// Which directory that is; nothing has happened.
    pub fn disk_answers(&self) -> Result<(), ClientError> {
        match self.lock.as_deref() {
            Some(lock) if daemon_lock::hangs(lock) => {
                let dir = lock.parent().unwrap_or(lock).display();
                Err(ClientError::Unreachable {
                    error: format!(
                        "`{dir}`, where agentd keeps its state, does not answer: its disk hangs"
                    ),
                    hint: Some(
                        "nothing was done; ask again when the disk answers, or see to it: `mount` \
                         says which one it is"
                            .to_owned(),
                    ),
                })
            }
            _ => Ok(()),
        }
    }

    /// Is the socket what a daemon left that is gone?
    #[must_use]
    pub fn is_left(&self) -> bool {
        let known = self.lock.as_deref().and_then(read);
        known.is_some_and(|(left, holding)| {
            holding == Holding::Free && same_socket(&left.socket, &self.path)
        })
    }

    /// Did the last daemon begin with the configuration that one has that is started from here, as it
    /// is now? Then that one will have it, too.
    #[must_use]
    pub fn began_with_this_configuration(&self) -> bool {
        let left = self.lock.as_deref().and_then(read);
        let taken = left.and_then(|(left, _)| left.began_with);
        let file = configuration::file(&|name| std::env::var_os(name));
        taken
            .zip(file)
            .is_some_and(|(taken, file)| taken.is_still(&file))
    }

    /// The process that holds the daemon's lock for this socket.
    #[must_use]
    pub fn holder(&self) -> Option<u32> {
        let (held, holding) = read(self.lock.as_deref()?)?;
        let ours = holding == Holding::Held && same_socket(&held.socket, &self.path);
        ours.then(|| u32::try_from(held.pid).ok()).flatten()
    }

    /// The same, or the last one that did.
    #[must_use]
    pub fn last_holder(&self) -> Option<u32> {
        let (known, _) = read(self.lock.as_deref()?)?;
        let pid = same_socket(&known.socket, &self.path).then_some(known.pid)?;
        u32::try_from(pid).ok()
    }

    /// When the daemon that holds the lock for this socket last said how it is: it does so when it
    /// has started.
    #[must_use]
    pub fn held_since(&self) -> Option<SystemTime> {
        self.holder()?;
        std::fs::metadata(self.lock.as_deref()?)
            .ok()?
            .modified()
            .ok()
    }

    /// Connects and checks that the server is us.
    ///
    /// # Errors
    /// With the fact the decision needs. Nothing was written in any case.
    pub async fn connect(&self) -> Result<UnixStream, NotConnected> {
        let shown = self.path.display();
        let length = self.path.as_os_str().as_bytes().len();
        if length > MAX_SOCKET_PATH {
            return Err(NotConnected {
                fact: Fact::Unusable,
                error: format!(
                    "the socket path is {length} bytes, the limit here is {MAX_SOCKET_PATH}: `{shown}`"
                ),
                hint: Some("set `AGENTD_SOCKET` to a shorter path".to_owned()),
            });
        }
        let failed = |error: &io::Error| NotConnected {
            fact: fact_of(error),
            error: format!("cannot connect to `{shown}`: {}", describe(error)),
            hint: (fact_of(error) == Fact::Denied)
                .then(|| "the socket belongs to somebody else, or its directory does".to_owned()),
        };
        let stream = open(&self.path).await.map_err(|error| failed(&error))?;
        // The library takes EAGAIN for "in progress"; such a socket has no peer.
        stream.inner().peer_addr().map_err(|error| {
            let full = error.raw_os_error() == Some(Errno::ENOTCONN as i32);
            failed(&if full {
                io::Error::from_raw_os_error(Errno::EAGAIN as i32)
            } else {
                error
            })
        })?;
        let owner = stream.peer_creds().map_err(|error| failed(&error))?.euid();
        let us = Uid::effective().as_raw();
        if owner != Some(us) {
            let whose =
                owner.map_or_else(|| "an unknown user".to_owned(), |uid| format!("uid {uid}"));
            return Err(NotConnected {
                fact: Fact::ForeignUid,
                error: format!("the server on `{shown}` runs as {whose}, not as uid {us}"),
                hint: Some("nothing was sent; name your own socket with `--socket`".to_owned()),
            });
        }
        Ok(UnixStream::from(stream))
    }
}

type UdStream = interprocess::os::unix::uds_local_socket::tokio::Stream;

async fn open(path: &Path) -> io::Result<UdStream> {
    let name = path.to_fs_name::<GenericFilePath>()?;
    let options = ConnectOptions::new()
        .name(name)
        // A connection of this family is there at once or not at all.
        .wait_mode(ConnectWaitMode::Deferred);
    match options.connect_tokio().await? {
        Stream::UdSocket(stream) => Ok(stream),
    }
}

fn fact_of(error: &io::Error) -> Fact {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => Fact::NoSocket,
        Some(Errno::ECONNREFUSED) => Fact::Refused,
        Some(Errno::EACCES | Errno::EPERM) => Fact::Denied,
        Some(Errno::EAGAIN) => Fact::BacklogFull,
        _ => Fact::Unusable,
    }
}

fn describe(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => "there is no socket".to_owned(),
        Some(Errno::ECONNREFUSED) => "nobody listens on it".to_owned(),
        Some(Errno::EACCES | Errno::EPERM) => "permission denied".to_owned(),
        Some(Errno::EAGAIN) => "its backlog is full".to_owned(),
        Some(errno) => errno.desc().to_owned(),
        None => error.to_string(),
    }
}

/// A link such as `/tmp/timmy.sock` leads to the daemon's own path.
fn same_socket(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    one == other || real(one).is_some_and(|one| Some(one) == real(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::System;
    use agentd_base::clock::boot_ms;
    use nix::fcntl::{Flock, FlockArg};
    use std::fs::File;
    use std::os::unix::net::UnixListener;

    fn environment(state: &Path) -> Environment {
        Environment {
            system: System::Linux,
            uid: 1,
            home: None,
            xdg_runtime_dir: Some("/nowhere".into()),
            xdg_state_home: None,
            agentd_socket: None,
            agentd_state_dir: Some(state.to_owned()),
            run_user_is_ours: false,
        }
    }

    fn hold(state: &Path, word: &str) -> Flock<File> {
        let path = state.join("daemon.lock");
        let pid = std::process::id();
        let text = format!(r#"{{"pid":{pid},"socket":"/live.sock","state":"{word}"}}"#);
        std::fs::write(&path, text).unwrap();
        let file = File::open(path).unwrap();
        Flock::lock(file, FlockArg::LockExclusiveNonblock).unwrap()
    }

    #[test]
    fn endpoint_is_of_option_variable_lock_or_default() {
        let dir = tempfile::tempdir().unwrap();
        let held = hold(dir.path(), "running");
        let mut environment = environment(dir.path());
        environment.agentd_socket = Some("/variable.sock".into());
        let find = |given: Option<&Path>, environment: &Environment| {
            let endpoint = LocalEndpoint::find(given, environment);
            (endpoint.path.display().to_string(), endpoint.origin)
        };
        let given = Some(Path::new("/given.sock"));
        assert_eq!(
            find(given, &environment),
            ("/given.sock".to_owned(), Origin::Option)
        );
        assert_eq!(
            find(None, &environment),
            ("/variable.sock".to_owned(), Origin::Variable)
        );
        environment.agentd_socket = None;
        assert_eq!(
            find(None, &environment),
            ("/live.sock".to_owned(), Origin::Lock)
        );
        drop(held);
        assert_eq!(
            find(None, &environment),
            ("/nowhere/agentd/agentd.sock".to_owned(), Origin::Default)
        );
    }

    #[test]
    fn endpoint_lock_speaks_for_its_socket_while_held() {
        let dir = tempfile::tempdir().unwrap();
        let environment = environment(dir.path());
        for (word, lock) in [
            ("starting", Lock::Starting),
            ("running", Lock::Running),
            ("restarting", Lock::Restarting),
            ("stopping", Lock::Stopping),
            ("from-the-future", Lock::Running),
        ] {
            let held = hold(dir.path(), word);
            let ours = LocalEndpoint::find(Some(Path::new("/live.sock")), &environment);
            let other = LocalEndpoint::find(Some(Path::new("/other.sock")), &environment);
            assert_eq!((ours.lock(), other.lock()), (lock, Lock::Free), "{word}");
            drop(held);
            assert_eq!(ours.lock(), Lock::Free);
        }
    }

    #[test]
    fn endpoint_lock_of_a_restart_counts_a_minute() {
        let dir = tempfile::tempdir().unwrap();
        let endpoint = LocalEndpoint::find(Some(Path::new("/live.sock")), &environment(dir.path()));
        let mut pid = i32::MAX;
        let mut left = |word: &str, until: u64| {
            // Of a process that is gone, or whose number somebody else has.
            pid = if pid == 1 { i32::MAX } else { 1 };
            let text = format!(
                r#"{{"pid":{pid},"socket":"/live.sock","state":"{word}","until_boot_ms":{until}}}"#
            );
            std::fs::write(dir.path().join("daemon.lock"), text).unwrap();
            (endpoint.lock(), endpoint.holder())
        };
        let now = boot_ms();
        for until in [now + 30_000, now + 30_001] {
            assert_eq!(left("restarting", until), (Lock::Restarting, None));
            assert_eq!(left("stopping", until), (Lock::Free, None));
        }
        // Of a time that is over, and of another run of the machine.
        assert_eq!(left("restarting", now.saturating_sub(1)).0, Lock::Free);
        assert_eq!(left("restarting", now + 120_000).0, Lock::Free);
    }

    async fn fact(path: &Path) -> (Fact, String) {
        let endpoint = LocalEndpoint {
            path: path.to_owned(),
            origin: Origin::Option,
            lock: None,
        };
        let failed = endpoint.connect().await.unwrap_err();
        (failed.fact, failed.error)
    }

    #[tokio::test]
    async fn each_way_of_not_connecting_is_told_apart() {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};
        use std::os::fd::AsRawFd as _;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert_eq!(fact(&path).await.0, Fact::NoSocket);
        // It never listened: after that it may live on for a moment, in a process that another test
        // is just starting.
        let socket = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::empty(),
            None,
        )
        .unwrap();
        bind(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        drop(socket);
        assert_eq!(fact(&path).await.0, Fact::Refused);
        let long = dir.path().join("x".repeat(MAX_SOCKET_PATH));
        let (found, error) = fact(&long).await;
        assert_eq!(found, Fact::Unusable);
        assert!(error.contains("the limit here is"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn endpoint_with_a_full_backlog_is_not_down() {
        use nix::sys::socket::{
            AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
        };
        use std::os::fd::AsRawFd;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::empty(),
            None,
        )
        .unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let endpoint = LocalEndpoint {
            path: path.clone(),
            origin: Origin::Option,
            lock: None,
        };
        let _first = endpoint.connect().await.unwrap();
        assert_eq!(fact(&path).await.0, Fact::BacklogFull);
    }

    #[tokio::test]
    async fn our_own_server_is_connected_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let endpoint = LocalEndpoint {
            path,
            origin: Origin::Option,
            lock: None,
        };
        assert!(endpoint.connect().await.is_ok());
    }
}
