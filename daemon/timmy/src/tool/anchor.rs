//! Directories that stay the ones that they were when a session began.
//!
//! Owns where a name led then, and the open directory behind it. Whoever swaps the name for a link
//! afterwards gets nobody to follow. Must not know what may be done there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

use agentd_base::shared::lock;
use cap_std::fs::Dir;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

/// Where names of directories led, without links.
pub(crate) type Led = BTreeMap<PathBuf, PathBuf>;

/// Which file it is, whatever it is called: device and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Inode {
    pub(crate) device: u64,
    pub(crate) number: u64,
}

/// An open directory. While it is open, no other one gets its number.
#[derive(Debug)]
pub(crate) struct Anchor {
    /// Without links.
    pub(crate) path: PathBuf,
    /// Which one it is.
    pub(crate) inode: Inode,
    dir: File,
}

/// Why there is no directory of a name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    /// The name leads elsewhere than it did.
    #[error(
        "{} is not the directory any more that it was when this session began: put it back, or \
         begin another session", .0.display()
    )]
    Moved(PathBuf),
    /// It can't be opened.
    #[error("{} can't be opened: {source}", path.display())]
    Closed {
        /// Without links.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Anchor {
    /// Opens a directory by a path that has no links in it.
    ///
    /// # Errors
    /// There is none; or one of its names is a link.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let dir = File::from(open(path)?);
        let found = dir.metadata()?;
        if !found.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self {
            path: path.to_owned(),
            inode: inode(&found),
            dir,
        })
    }

    /// It, for whatever is done beneath it.
    pub(crate) fn dir(&self) -> io::Result<Dir> {
        Ok(Dir::from_std_file(self.dir.try_clone()?))
    }

    /// Does its path still lead to it?
    fn is_there(&self) -> bool {
        Self::open(&self.path).is_ok_and(|now| now.inode == self.inode)
    }
}

/// The directories of one session.
#[derive(Default, Debug)]
pub(crate) struct Anchors {
    /// Where their names led when the session began.
    led: Mutex<Led>,
    /// Those that were used since.
    open: Mutex<BTreeMap<PathBuf, Arc<Anchor>>>,
}

impl Anchors {
    /// Those of a session that began with these.
    pub(crate) fn new(led: Led) -> Self {
        Self {
            led: Mutex::new(led),
            open: Mutex::default(),
        }
    }

    /// Where the names lead that were settled so far.
    pub(crate) fn led(&self) -> Led {
        lock(&self.led).clone()
    }

    /// Settles a name for the rest of the session, unless it is already.
    fn settle(&self, name: &Path) -> PathBuf {
        let mut led = lock(&self.led);
        if let Some(path) = led.get(name) {
            return path.clone();
        }
        // What isn't there yet is a directory of this name later, and no link.
        let path = settle(name).unwrap_or_else(|_| name.to_owned());
        led.insert(name.to_owned(), path.clone());
        path
    }

    /// The same for several, and opens those that are there.
    pub(crate) fn settle_all<'a>(&self, names: impl IntoIterator<Item = &'a PathBuf>) {
        for name in names {
            let _said_when_used = self.find(name);
        }
    }

    /// The directory of a name.
    ///
    /// # Errors
    /// There is none, or the name leads to another one than it did.
    pub(crate) fn find(&self, name: &Path) -> Result<Arc<Anchor>, Lost> {
        let path = self.settle(name);
        let mut open = lock(&self.open);
        if let Some(anchor) = open.get(name) {
            if !anchor.is_there() {
                return Err(Lost::Moved(path));
            }
            return Ok(Arc::clone(anchor));
        }
        match Anchor::open(&path) {
            Ok(anchor) => {
                let anchor = Arc::new(anchor);
                open.insert(name.to_owned(), Arc::clone(&anchor));
                Ok(anchor)
            }
            // A link has come into a path that had none.
            Err(_) if path.canonicalize().is_ok_and(|now| now != path) => Err(Lost::Moved(path)),
            Err(source) => Err(Lost::Closed { path, source }),
        }
    }
}

/// What a file is.
pub(crate) fn inode(found: &std::fs::Metadata) -> Inode {
    Inode {
        device: found.dev(),
        number: found.ino(),
    }
}

/// Opens what an absolute path names, but never what a link in it points to. It gives a handle only:
/// that something may be read is no condition, and nothing is touched.
///
/// # Errors
/// It isn't there, or one of the names is a link.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    // Elsewhere than on Linux a handle is had by opening for reading.
    #[cfg(target_os = "linux")]
    let handle = OFlag::O_PATH;
    #[cfg(not(target_os = "linux"))]
    let handle = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
    let flags = handle | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let mut steps = path.components().peekable();
    if steps.next() != Some(Component::RootDir) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not an absolute path",
        ));
    }
    let mut at = nix::fcntl::open("/", flags | OFlag::O_DIRECTORY, Mode::empty())?;
    while let Some(step) = steps.next() {
        let Component::Normal(name) = step else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let is_last = steps.peek().is_none();
        let kind = if is_last {
            OFlag::empty()
        } else {
            OFlag::O_DIRECTORY
        };
        at = nix::fcntl::openat(&at, name, flags | kind, Mode::empty())?;
    }
    let found = File::from(at.try_clone()?).metadata()?;
    // With `O_PATH` the last step opens a link itself instead of failing (open(2), `O_NOFOLLOW`).
    if found.is_symlink() {
        return Err(io::Error::other("it is a link"));
    }
    Ok(at)
}

/// A path without links and `..`, as far as it exists; what doesn't exist yet is only names.
///
/// # Errors
/// It can't be looked at, or a link in it leads nowhere.
pub(crate) fn settle(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (Some(parent), Some(Component::Normal(name))) =
                (path.parent(), path.components().next_back())
            else {
                return Err(error);
            };
            // Taken for a name that is free, it would lead wherever somebody makes its target.
            if path.symlink_metadata().is_ok() {
                let error = "a link that leads nowhere";
                return Err(io::Error::new(io::ErrorKind::NotFound, error));
            }
            Ok(settle(parent)?.join(name))
        }
        settled => settled,
    }
}

#[cfg(test)]
mod tests;
