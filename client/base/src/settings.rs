//! Files that a person writes, read whole: settings, keys, lists of endpoints.
//!
//! Owns how much of one is read, and what isn't read at all: whatever its name leads to, a start ends
//! in time and in bounds. Must not know what is in them, nor who may have written it (`trusted`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;

use crate::trusted::typed;

/// Longest such file, in bytes. Ten thousand agents are about one million.
pub const MOST: usize = 4 * 1024 * 1024;

/// What to do about a configuration that can't be used, where the reason doesn't say it.
pub const MEND_IT: &str = "mend it, `agentctl config edit` opens it";

/// What to do about a file that can't be read, as the end of a message; nothing where the reason is
/// in the file.
#[must_use]
pub fn unreadable(file: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "; hint: it has to be yours and readable: `ls -l {0}`, then `chmod u+r {0}`, or \
             `sudo chown \"$USER\" {0}`",
            typed(file)
        ),
        _ => String::new(),
    }
}

/// Opens such a file, or `/dev/null`, which is an empty one.
///
/// # Errors
/// As for [`File::open`], and what isn't a file. A pipe that nobody writes to would be waited for, or
/// be taken for an empty file.
pub fn open(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A terminal that is opened may become the one whose Ctrl-C and hang-up are ours (`open(2)`).
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let opened = options.read(true).custom_flags(flags.bits()).open(file)?;
    let kind = opened.metadata()?.file_type();
    if kind.is_file() || kind.is_char_device() {
        return Ok(opened);
    }
    let found = match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a pipe",
        () => "a device",
    };
    Err(wrong(format!("found {found}, expected a file")))
}

/// The text that is left of an opened one.
///
/// # Errors
/// It can't be read, isn't UTF-8, or is longer than [`MOST`], as `/dev/zero` is.
pub fn read_from(opened: &File) -> io::Result<String> {
    let mut text = Vec::new();
    opened.take(MOST as u64 + 1).read_to_end(&mut text)?;
    if text.len() > MOST {
        return Err(wrong(format!("longer than {} MiB", MOST / 1024 / 1024)));
    }
    String::from_utf8(text).map_err(|_not_utf8| wrong("not UTF-8".to_owned()))
}

/// The whole text of one; a missing one is an empty one.
///
/// # Errors
/// As for [`open`] and [`read_from`], but for a file that isn't there.
pub fn read(file: &Path) -> io::Result<String> {
    match open(file) {
        Ok(opened) => read_from(&opened),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(file: &Path) -> String {
        read(file).unwrap_err().to_string()
    }

    #[test]
    fn settings_that_are_missing_are_empty() {
        let dir = tempfile::TempDir::new().unwrap();
        assert_eq!(read(&dir.path().join("none")).unwrap(), "");
        assert_eq!(read(Path::new("/dev/null")).unwrap(), "");
    }

    #[test]
    fn settings_without_end_are_refused() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("config.toml");
        for device in ["/dev/zero", "/dev/urandom"] {
            std::os::unix::fs::symlink(device, &file).unwrap();
            assert_eq!(why(&file), "longer than 4 MiB");
            std::fs::remove_file(&file).unwrap();
        }
        std::fs::write(&file, "#".repeat(MOST)).unwrap();
        assert_eq!(read(&file).unwrap().len(), MOST);
        std::fs::write(&file, "#".repeat(MOST + 1)).unwrap();
        assert_eq!(why(&file), "longer than 4 MiB");
    }

    #[test]
    fn settings_are_files_and_text() {
        let dir = tempfile::TempDir::new().unwrap();
        assert_eq!(why(dir.path()), "found a directory, expected a file");
        let file = dir.path().join("config.toml");
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(why(&file), "found a pipe, expected a file");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, b"\xff").unwrap();
        assert_eq!(why(&file), "not UTF-8");
    }
}
