//! Reading files that somebody put there, without being held up or led astray.
//!
//! Owns what may be read of a path: regular files, their beginning, as text. Must not know what the
//! text is for.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A file's text, or its beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Text {
    /// What isn't UTF-8 is replaced.
    pub(crate) text: String,
    /// Was there more?
    pub(crate) cut: bool,
}

/// Reads a file of the user's own: it may be a link.
///
/// # Errors
/// It isn't there, can't be read, or isn't a regular file.
pub(crate) fn own(path: &Path, most: usize) -> io::Result<Text> {
    read(path, most, libc::O_NONBLOCK)
}

/// Reads a file of a workspace: a link that leads out of `root` isn't followed, as it could make
/// a secret part of the conversation.
///
/// # Errors
/// It isn't there, can't be read, leads out of the root, or isn't a regular file.
pub(crate) fn within(root: &Path, path: &Path, most: usize) -> io::Result<Text> {
    let (root, real) = (root.canonicalize()?, path.canonicalize()?);
    if !real.starts_with(&root) {
        let why = format!("`{}` leads out of `{}`", path.display(), root.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    read(&real, most, libc::O_NONBLOCK | libc::O_NOFOLLOW)
}

/// A pipe doesn't hold up who opens it with `O_NONBLOCK`.
fn read(path: &Path, most: usize, flags: libc::c_int) -> io::Result<Text> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        let why = format!("`{}` is not a regular file", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    let cut = bytes.len() > most;
    bytes.truncate(most);
    if cut {
        // Half a character at the end is none.
        let whole = std::str::from_utf8(&bytes);
        let end = whole.map_or_else(|why| why.valid_up_to(), str::len);
        if bytes.len() - end < 4 {
            bytes.truncate(end);
        }
    }
    Ok(Text {
        text: String::from_utf8_lossy(&bytes).into_owned(),
        cut,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_long_file_is_cut_between_characters() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        std::fs::write(&file, "aaé").unwrap();
        let whole = own(&file, 4).unwrap();
        assert_eq!((whole.text.as_str(), whole.cut), ("aaé", false));
        let cut = own(&file, 3).unwrap();
        assert_eq!((cut.text.as_str(), cut.cut), ("aa", true));
    }

    #[test]
    fn a_pipe_a_directory_and_a_device_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe.as_path(), dir.path(), Path::new("/dev/zero")] {
            let why = own(path, 10).unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::InvalidInput, "{path:?}: {why}");
        }
    }

    #[test]
    fn a_link_of_a_workspace_leads_nowhere_outside_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("repo");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(dir.path().join("secret"), "key").unwrap();
        std::fs::write(root.join("CLAUDE.md"), "inside").unwrap();
        symlink(dir.path().join("secret"), root.join("out")).unwrap();
        symlink("CLAUDE.md", root.join("AGENTS.md")).unwrap();
        assert_eq!(
            within(&root, &root.join("AGENTS.md"), 10).unwrap().text,
            "inside"
        );
        let why = within(&root, &root.join("out"), 10).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(own(&root.join("out"), 10).unwrap().text, "key");
    }
}
