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

/// Names tried for the new link before it is renamed into place.
const TEMPORARY_NAMES: u32 = 8;

/// What is at the alias's path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AliasTarget {
    /// Nothing.
    Nothing,
    /// A symbolic link that we made.
    Link(Leads),
    /// Anything else, in words.
    Other(String),
}

/// Where our own link leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leads {
    /// To our socket.
    Here,
    /// To another socket of ours on which somebody listens.
    ToAnother(PathBuf),
    /// Nowhere that matters.
    Nowhere,
}

/// What to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Make the link.
    Create,
    /// It is as it should be.
    Keep,
    /// Put a new link in the place of ours.
    Replace,
    /// Touch nothing; the reason is for a person.
    LeaveAlone(String),
}

/// Decides.
#[must_use]
pub fn judge(found: AliasTarget) -> Action {
    match found {
        AliasTarget::Nothing => Action::Create,
        AliasTarget::Link(Leads::Here) => Action::Keep,
        AliasTarget::Link(Leads::Nowhere) => Action::Replace,
        AliasTarget::Link(Leads::ToAnother(path)) => Action::LeaveAlone(format!(
            "it leads to another living socket of yours, `{}`",
            path.display()
        )),
        AliasTarget::Other(what) => Action::LeaveAlone(format!("it is {what}")),
    }
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
        let failed = |error: io::Error| self.warn(&error.to_string());
        match judge(self.look().map_err(failed)?) {
            Action::Keep => Ok(()),
            // Fails when something came into its place meanwhile.
            Action::Create => symlink(&self.target, &self.path).map_err(failed),
            Action::Replace => self.replace().map_err(failed),
            Action::LeaveAlone(why) => Err(self.warn(&why)),
        }
    }

    /// Takes the link away if it leads to our socket.
    pub fn remove(&self) {
        if matches!(self.look(), Ok(AliasTarget::Link(Leads::Here))) {
            // Gone already, or it stays: the next start replaces it.
            let _stays = fs::remove_file(&self.path);
        }
    }

    /// What [`Self::check`] would do.
    ///
    /// # Errors
    /// When it can't be looked at.
    pub fn planned(&self) -> io::Result<Action> {
        self.look().map(judge)
    }

    /// Does somebody listen on the socket that it is to lead to?
    #[must_use]
    pub fn is_served(&self) -> bool {
        listens(&self.target)
    }

    fn warn(&self, why: &str) -> String {
        format!("the alias `{}` is left alone: {why}", self.path.display())
    }

    fn look(&self) -> io::Result<AliasTarget> {
        let meta = match fs::symlink_metadata(&self.path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(AliasTarget::Nothing);
            }
            Err(error) => return Err(error),
        };
        let kind = meta.file_type();
        let what = if kind.is_symlink() {
            "a link"
        } else if kind.is_socket() {
            "a socket"
        } else if kind.is_dir() {
            "a directory"
        } else {
            "a file"
        };
        if meta.uid() != geteuid().as_raw() {
            return Ok(AliasTarget::Other(format!("{what} of user {}", meta.uid())));
        }
        if !kind.is_symlink() {
            return Ok(AliasTarget::Other(format!("{what}, not a link")));
        }
        let to = fs::read_link(&self.path)?;
        Ok(AliasTarget::Link(self.leads(&to)))
    }

    fn leads(&self, to: &Path) -> Leads {
        if to == self.target {
            return Leads::Here;
        }
        // Relative links are relative to where they lie.
        let to = self.path.parent().unwrap_or(Path::new("/")).join(to);
        let (Ok(there), here) = (fs::metadata(&to), fs::metadata(&self.target)) else {
            return Leads::Nowhere;
        };
        if here.is_ok_and(|here| (here.dev(), here.ino()) == (there.dev(), there.ino())) {
            return Leads::Here;
        }
        if there.uid() == geteuid().as_raw() && there.file_type().is_socket() && listens(&to) {
            Leads::ToAnother(to)
        } else {
            Leads::Nowhere
        }
    }

    fn replace(&self) -> io::Result<()> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let mut refused = io::Error::from(io::ErrorKind::AlreadyExists);
        for number in 0..TEMPORARY_NAMES {
            let name = format!(".{name}.{}-{number}", std::process::id());
            let temporary = self.path.with_file_name(name);
            match symlink(&self.target, &temporary) {
                Ok(()) => {
                    return fs::rename(&temporary, &self.path).inspect_err(|_| {
                        // Leaving it behind is all that can still go wrong.
                        let _stays = fs::remove_file(&temporary);
                    });
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
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

    #[test]
    fn alias_touches_nothing_but_its_dead_link() {
        let left = |found| matches!(judge(found), Action::LeaveAlone(_));
        assert_eq!(judge(AliasTarget::Nothing), Action::Create);
        assert_eq!(judge(AliasTarget::Link(Leads::Here)), Action::Keep);
        assert_eq!(judge(AliasTarget::Link(Leads::Nowhere)), Action::Replace);
        assert!(left(AliasTarget::Link(Leads::ToAnother("/x".into()))));
        assert!(left(AliasTarget::Other("a file of user 7".to_owned())));
    }

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
