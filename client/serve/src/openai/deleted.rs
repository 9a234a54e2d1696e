//! Responses that a client deleted: their jobs are kept as any others, and not read again here.
//!
//! Owns the file that says which. Must not know what a response is.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use agentd_protocol::JobId;

/// Beside the token.
const NAME: &str = "http.deleted";
/// A file that is longer loses its older half: the jobs of these are forgotten by then.
const LONGEST: usize = 1024 * 1024;

/// What was deleted.
#[derive(Clone, Debug)]
pub(crate) struct Deleted(PathBuf);

impl Deleted {
    /// Beside this file.
    pub(crate) fn beside(token: &Path) -> Self {
        Self(token.with_file_name(NAME))
    }

    /// Was this one deleted? The epoch tells stores apart, whose jobs have the same numbers.
    pub(crate) fn has(&self, epoch: &str, job: JobId) -> bool {
        let line = line(epoch, job);
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().any(|one| one == line)
    }

    /// Notes one.
    pub(crate) fn add(&self, epoch: &str, job: JobId) -> io::Result<()> {
        if self.has(epoch, job) {
            return Ok(());
        }
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        if text.len() > LONGEST {
            let half = text.ceil_char_boundary(text.len() / 2);
            let rest = text.get(half..).and_then(|rest| rest.split_once('\n'));
            fs::write(&self.0, rest.map_or("", |(_, rest)| rest))?;
        }
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.0)?;
        file.write_all(format!("{}\n", line(epoch, job)).as_bytes())
    }
}

fn line(epoch: &str, job: JobId) -> String {
    format!("{epoch} {job}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_is_known_by_whoever_serves_next() {
        let dir = tempfile::tempdir().unwrap();
        let deleted = || Deleted::beside(&dir.path().join("http.token"));
        assert!(!deleted().has("e", JobId(1)));
        deleted().add("e", JobId(1)).unwrap();
        deleted().add("e", JobId(1)).unwrap();
        assert!(deleted().has("e", JobId(1)));
        assert!(!deleted().has("e", JobId(11)) && !deleted().has("f", JobId(1)));
        let file = dir.path().join(NAME);
        assert_eq!(fs::read_to_string(&file).unwrap(), "e j1\n");
        fs::write(&file, "e j2\n".repeat(LONGEST / 5 + 1)).unwrap();
        deleted().add("e", JobId(3)).unwrap();
        assert!(fs::metadata(&file).unwrap().len() < 600 * 1024);
        assert!(deleted().has("e", JobId(2)) && deleted().has("e", JobId(3)));
    }
}
