//! A file that is replaced whole: a reader, a kill and a power cut find the old text or the new one.
//!
//! Owns the file beside it, and what is synced when. Must not know what is written.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// What a new file may be: its user's alone.
pub const PRIVATE: u32 = 0o600;

/// Replaces a file, or makes it, with this mode. It is private until it is whole. What is a link is
/// replaced itself.
///
/// # Errors
/// When it can't be written or its name not be made durable; the old one is there then, or the new
/// one.
pub fn replace(file: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    replace_unsynced(file, text, mode, |fresh| fresh.sync_all())?;
    let dir = file.parent().unwrap_or(Path::new("/"));
    File::open(dir)?.sync_all()
}

/// The same for what may be lost in a power cut, as a list of what was found: a reader and a kill find
/// the old text or the new one.
///
/// # Errors
/// When it can't be written; the old one is there then.
pub fn replace_for_now(file: &Path, text: &[u8]) -> io::Result<()> {
    replace_unsynced(file, text, PRIVATE, |_| Ok(()))
}

fn replace_unsynced(
    file: &Path,
    text: &[u8],
    mode: u32,
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let fresh = beside(file);
    let written = (|| {
        // One that is there was left by a process of this number that died.
        if let Err(error) = fs::remove_file(&fresh)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut out = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(PRIVATE)
            .open(&fresh)?;
        out.write_all(text)?;
        if mode != PRIVATE {
            // Not when it is made: the umask would take some of it.
            out.set_permissions(Permissions::from_mode(mode))?;
        }
        sync(&out)?;
        fs::rename(&fresh, file)
    })();
    if written.is_err() {
        // On a full disk each try would leave one behind.
        let _gone = fs::remove_file(&fresh);
    }
    written
}

/// In the same directory, by a name that no other process has.
fn beside(file: &Path) -> PathBuf {
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(format!(".{}.new", std::process::id()));
    fresh.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn replace_keeps_the_mode_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let mode = || file.metadata().unwrap().mode() & 0o777;
        replace(&file, b"one", PRIVATE).unwrap();
        assert_eq!(mode(), 0o600);
        // Left by a dead process.
        fs::write(beside(&file), "half").unwrap();
        replace(&file, b"two", 0o644).unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode()), (b"two".to_vec(), 0o644));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn replace_that_fails_keeps_the_old_text() {
        let dir = tempfile::tempdir().unwrap();
        // What can't be renamed over.
        let file = dir.path().join("file");
        fs::create_dir_all(file.join("full")).unwrap();
        assert!(replace(&file, b"new", PRIVATE).is_err());
        assert!(replace_for_now(&file, b"new").is_err());
        assert!(file.join("full").is_dir());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
