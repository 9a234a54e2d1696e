//! How the user's files are changed: by one program at a time, all or nothing, links and modes kept.
//!
//! Owns the lock, which is the directory's, so that whoever changes another file there waits, too.
//! Must not know what is in the files.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::replace::{PRIVATE, replace};
use crate::settings;

/// A file that nobody else changes until this is dropped.
#[derive(Debug)]
pub struct Alone {
    target: PathBuf,
    _directory: File,
}

impl Alone {
    /// Waits for others that change files there. The directory is made if it isn't there.
    ///
    /// # Errors
    /// It is no file, or the system says no.
    pub fn with(file: &Path) -> io::Result<Self> {
        let target = target(file)?;
        let dir = target.parent().unwrap_or(Path::new("/"));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)?;
        let directory = File::open(dir)?;
        // Of the directory, as the file is replaced: a lock on it would be on the one that is gone.
        directory.lock()?;
        Ok(Self {
            target,
            _directory: directory,
        })
    }

    /// What is in the file; nothing when it isn't there.
    ///
    /// # Errors
    /// As for [`settings::read`].
    pub fn read(&self) -> io::Result<String> {
        settings::read(&self.target)
    }

    /// The file's mode, where there is one.
    ///
    /// # Errors
    /// The system says no.
    pub fn mode(&self) -> io::Result<Option<u32>> {
        match fs::metadata(&self.target) {
            Ok(found) => Ok(Some(found.mode() & 0o777)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the file anew: a reader, and a power cut, find the old text or the new one. What is
    /// there keeps its mode, what is new is private from its first byte on.
    ///
    /// # Errors
    /// As for [`replace`].
    pub fn replace(&self, text: &str) -> io::Result<()> {
        let mode = self.mode()?.unwrap_or(PRIVATE);
        replace(&self.target, text.as_bytes(), mode)
    }
}

/// The file itself: it may be a link into a collection of such files, which is to stay one.
fn target(file: &Path) -> io::Result<PathBuf> {
    let not_a_file = |what: &str| io::Error::other(format!("it is {what}, expected a file"));
    match fs::symlink_metadata(file) {
        Ok(found) if found.is_symlink() => match fs::canonicalize(file) {
            // Replaced is what the link leads to: a rename onto the link would put a file in its
            // place.
            Ok(target) if target.is_file() => Ok(target),
            Ok(_) => Err(not_a_file("a link to something else")),
            Err(_) => Err(not_a_file("a link that leads nowhere")),
        },
        Ok(found) if found.is_file() => std::path::absolute(file),
        Ok(_) => Err(not_a_file("something else")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::path::absolute(file),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn file_that_is_new_is_private_old_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("below/config.toml");
        Alone::with(&file).unwrap().replace("one").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o777,
            0o700
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let alone = Alone::with(&link).unwrap();
        assert_eq!(alone.read().unwrap(), "one");
        alone.replace("two").unwrap();
        drop(alone);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        assert_eq!(
            fs::read_dir(file.parent().unwrap()).unwrap().count(),
            1,
            "nothing is left behind"
        );
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let astray = dir.path().join("astray");
        std::os::unix::fs::symlink("/nowhere/at/all", &astray).unwrap();
        let device = dir.path().join("device");
        std::os::unix::fs::symlink("/dev/null", &device).unwrap();
        for file in [dir.path(), &astray, &device, Path::new("/dev/null")] {
            let error = Alone::with(file).unwrap_err().to_string();
            assert!(error.contains("expected a file"), "{error}");
        }
    }

    #[test]
    fn two_at_once_wait_for_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let alone = Alone::with(&file).unwrap();
                    let text = alone.read().unwrap();
                    alone.replace(&format!("{text}x")).unwrap();
                });
            }
        });
        assert_eq!(fs::read_to_string(&file).unwrap(), "xxxxxxxx");
    }
}
