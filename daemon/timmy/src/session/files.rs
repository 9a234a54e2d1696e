//! Reading files that somebody put there, without being held up or led astray.
//!
//! Owns what may be read of a path: regular files, their beginning, as text. Must not know what the
//! text is for.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptionsExt as _};

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
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    read(file, path, most)
}

/// Reads a text in Markdown of a workspace, which a command could have made a link to a secret. It
/// is followed to another such text in or below `dir`, the directory that it is in: who can put
/// a link there reads what is there.
///
/// # Errors
/// It isn't there, can't be read, leads elsewhere, or isn't a regular file.
pub(crate) fn within(dir: &Path, name: &str, most: usize) -> io::Result<Text> {
    let path = dir.join(name);
    let (dir, real) = (dir.canonicalize()?, path.canonicalize()?);
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let Ok(below) = real.strip_prefix(&dir) else {
        return refused(format!("it leads out of `{}`", dir.display()));
    };
    // Within the workspace there may be keys as well, and a command may be refused them.
    if below.extension().is_none_or(|end| end != "md") {
        return refused(format!(
            "it leads to `{}`, which is no `.md`",
            real.display()
        ));
    }
    // Whatever becomes a link meanwhile, nothing outside is opened.
    let dir = Dir::open_ambient_dir(&dir, ambient_authority())?;
    let mut options = cap_std::fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    read(dir.open_with(below, &options)?.into_std(), &path, most)
}

/// The text of an open file. A pipe doesn't hold up who opens it with `O_NONBLOCK`.
fn read(file: File, path: &Path, most: usize) -> io::Result<Text> {
    if !file.metadata()?.is_file() {
        let why = format!("`{}` is not a regular file", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut bytes = Vec::new();
    // One byte more shows that there is more; a file that grows can't fill the memory.
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
    fn files_must_be_regular_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe.as_path(), dir.path(), Path::new("/dev/zero")] {
            let why = own(path, 10).unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::InvalidInput, "{path:?}: {why}");
        }
    }

    #[test]
    fn notes_that_are_links_lead_to_notes() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("repo");
        std::fs::create_dir_all(root.join("docs")).unwrap();
        std::fs::write(dir.path().join("secret.md"), "key").unwrap();
        std::fs::write(root.join(".npmrc"), "key").unwrap();
        std::fs::write(root.join("docs/NOTES.md"), "inside").unwrap();
        for (name, to) in [
            ("out", "../secret.md"),
            ("token", ".npmrc"),
            ("AGENTS.md", "docs/NOTES.md"),
        ] {
            symlink(to, root.join(name)).unwrap();
        }
        assert_eq!(within(&root, "AGENTS.md", 10).unwrap().text, "inside");
        for name in ["out", "token", ".npmrc"] {
            let why = within(&root, name, 10).unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::PermissionDenied, "{name}");
        }
    }
}
