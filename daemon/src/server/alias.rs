//! The well-known name, such as `/tmp/timmy.sock`: a symbolic link to the private socket.
//!
//! Owns when that link is made, kept, replaced and removed. Must not know who connects. It lies in
//! a directory that belongs to everybody, so nothing here follows a link it didn't read first,
//! changes a mode, or touches what isn't our own link.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::geteuid;

/// What to do about what is at the alias's path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Make the link: nothing is there.
    Create,
    /// It is as it should be.
    Keep,
    /// Put a new link in the place of ours, which leads nowhere.
    Replace,
    /// Touch nothing; the reason is for a person.
    LeaveAlone(String),
}

/// The alias of one socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alias {
    path: PathBuf,
    target: PathBuf,
}

impl Alias {
    /// An alias at `path` for the socket at `target`; nothing is done yet.
    #[must_use]
    pub const fn new(path: PathBuf, target: PathBuf) -> Self {
        Self { path, target }
    }

    /// Makes the link, or makes it again. Called at start and from time to time: whatever cleans
    /// `/tmp` takes old links away.
    ///
    /// # Errors
    /// A warning for a person when the alias isn't ours to make.
    pub fn check(&self) -> Result<(), String> {
        let done = match self.planned() {
            Ok(Action::Keep) => Ok(()),
            // Fails when something came into its place meanwhile.
            Ok(Action::Create) => symlink(&self.target, &self.path),
            Ok(Action::Replace) => self.replace(),
            Ok(Action::LeaveAlone(why)) => return Err(self.warn(&why)),
            Err(error) => Err(error),
        };
        done.map_err(|error| self.warn(&error.to_string()))
    }

    /// Takes the link away if it leads to our socket.
    pub fn remove(&self) {
        if matches!(self.planned(), Ok(Action::Keep)) {
            // Gone already, or it stays: the next start replaces it.
            let _stays = fs::remove_file(&self.path);
        }
    }

    /// Does somebody listen on the socket that it is to lead to?
    #[must_use]
    pub fn is_served(&self) -> bool {
        listens(&self.target)
    }

    fn warn(&self, why: &str) -> String {
        format!("the alias `{}` is left alone: {why}", self.path.display())
    }

    /// What [`Self::check`] would do.
    ///
    /// # Errors
    /// When it can't be looked at.
    pub fn planned(&self) -> io::Result<Action> {
        let meta = match fs::symlink_metadata(&self.path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Action::Create),
            Err(error) => return Err(error),
        };
        let kind = meta.file_type();
        let what = match kind {
            kind if kind.is_symlink() => "a link",
            kind if kind.is_socket() => "a socket",
            kind if kind.is_dir() => "a directory",
            _ => "a file",
        };
        let uid = geteuid().as_raw();
        if meta.uid() != uid {
            let whose = format!("it is {what} of user {}", meta.uid());
            return Ok(Action::LeaveAlone(whose));
        }
        if !kind.is_symlink() {
            return Ok(Action::LeaveAlone(format!("it is {what}, not a link")));
        }
        let to = fs::read_link(&self.path)?;
        if to == self.target {
            return Ok(Action::Keep);
        }
        // Relative links are relative to where they lie.
        let to = self.path.parent().unwrap_or(Path::new("/")).join(to);
        let (Ok(there), here) = (fs::metadata(&to), fs::metadata(&self.target)) else {
            return Ok(Action::Replace);
        };
        if here.is_ok_and(|here| (here.dev(), here.ino()) == (there.dev(), there.ino())) {
            return Ok(Action::Keep);
        }
        // Two daemons of one user would take the name from each other each minute.
        if there.uid() == uid && there.file_type().is_socket() && listens(&to) {
            let to = to.display();
            let why = format!("it leads to another living socket of yours, `{to}`");
            return Ok(Action::LeaveAlone(why));
        }
        Ok(Action::Replace)
    }

    fn replace(&self) -> io::Result<()> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!(".{name}.{}", std::process::id());
        let temporary = self.path.with_file_name(name);
        // One that is there was left by a process of this number that died; another user's stays,
        // and then the alias does, too.
        let _none = fs::remove_file(&temporary);
        symlink(&self.target, &temporary)?;
        fs::rename(&temporary, &self.path).inspect_err(|_| {
            // Leaving it behind is all that can still go wrong.
            let _stays = fs::remove_file(&temporary);
        })
    }
}

/// Does somebody accept connections there? Never waits.
fn listens(path: &Path) -> bool {
    let try_it = || -> Result<(), Errno> {
        let fd = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::empty(),
            None,
        )?;
        // By `fcntl`, as macOS has no `SOCK_NONBLOCK`.
        let flags = nix::fcntl::OFlag::O_NONBLOCK;
        nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFL(flags))?;
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)
    };
    // A full queue is somebody's, too.
    matches!(try_it(), Ok(()) | Err(Errno::EAGAIN | Errno::EINPROGRESS))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        alias: Alias,
        _socket: UnixListener,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("private.sock");
        let socket = UnixListener::bind(&target).unwrap();
        let alias = Alias::new(dir.path().join("alias.sock"), target);
        Place {
            dir,
            alias,
            _socket: socket,
        }
    }

    #[test]
    fn alias_is_made_again_when_aged_away() {
        let place = place();
        for _ in 0..2 {
            place.alias.check().unwrap();
            place.alias.check().unwrap();
            assert_eq!(
                fs::read_link(&place.alias.path).unwrap(),
                place.alias.target
            );
            fs::remove_file(&place.alias.path).unwrap();
        }
        place.alias.check().unwrap();
        place.alias.remove();
        assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn our_own_link_to_nowhere_is_replaced() {
        for to in ["/no/such/socket", "plain", "dead.sock"] {
            let place = place();
            fs::write(place.dir.path().join("plain"), "").unwrap();
            crate::server::listen::tests::stale(&place.dir.path().join("dead.sock"));
            symlink(to, &place.alias.path).unwrap();
            place.alias.remove();
            assert!(
                fs::symlink_metadata(&place.alias.path).is_ok(),
                "{to}: not ours to remove"
            );
            place.alias.check().unwrap();
            assert_eq!(
                fs::read_link(&place.alias.path).unwrap(),
                place.alias.target
            );
            assert_eq!(
                fs::read_dir(place.dir.path()).unwrap().count(),
                4,
                "nothing is left over"
            );
        }
    }

    #[test]
    fn alias_that_is_not_ours_is_kept() {
        let place = place();
        fs::write(&place.alias.path, "mine").unwrap();
        let warning = place.alias.check().unwrap_err();
        assert!(
            warning.contains("alias.sock") && warning.contains("a file"),
            "{warning}"
        );
        place.alias.remove();
        assert_eq!(fs::read_to_string(&place.alias.path).unwrap(), "mine");

        fs::remove_file(&place.alias.path).unwrap();
        fs::create_dir(&place.alias.path).unwrap();
        assert!(place.alias.check().unwrap_err().contains("a directory"));
        fs::remove_dir(&place.alias.path).unwrap();
        let _socket = UnixListener::bind(&place.alias.path).unwrap();
        assert!(place.alias.check().unwrap_err().contains("a socket"));
    }

    #[test]
    fn a_link_of_another_user_is_left_alone() {
        // Only root can make one; the rule itself is in the table above.
        if !geteuid().is_root() {
            return;
        }
        let place = place();
        symlink("/no/such/socket", &place.alias.path).unwrap();
        std::os::unix::fs::lchown(&place.alias.path, Some(12_345), None).unwrap();
        assert!(place.alias.check().unwrap_err().contains("user 12345"));
        place.alias.remove();
        assert_eq!(
            fs::read_link(&place.alias.path).unwrap(),
            Path::new("/no/such/socket")
        );
    }

    #[test]
    fn alias_to_another_living_socket_is_left_alone() {
        let place = place();
        let other = place.dir.path().join("other.sock");
        let living = UnixListener::bind(&other).unwrap();
        symlink("other.sock", &place.alias.path).unwrap();
        assert!(place.alias.check().unwrap_err().contains("other.sock"));
        drop(living);
        // What was listened to may live on in a process that another test is just starting.
        fs::remove_file(&other).unwrap();
        crate::server::listen::tests::stale(&other);
        place.alias.check().unwrap();
        assert_eq!(
            fs::read_link(&place.alias.path).unwrap(),
            place.alias.target
        );

        fs::remove_file(&place.alias.path).unwrap();
        symlink("private.sock", &place.alias.path).unwrap();
        place.alias.check().unwrap();
        assert_eq!(
            fs::read_link(&place.alias.path).unwrap(),
            Path::new("private.sock")
        );
    }
}
