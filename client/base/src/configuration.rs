//! The files of the configuration: where they are, and whether they are those that a daemon took.
//!
//! Owns the rule for their place, and what tells one content of a file from the next without reading
//! it. Must not know what is in them.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// `config.toml`: where `AGENTD_CONFIG` says, else in `agentd` below `XDG_CONFIG_HOME`, else below
/// `~/.config`. None without any of these variables. A relative `XDG_CONFIG_HOME` or `HOME` is
/// ignored, as the XDG Base Directory Specification wants it.
pub fn file(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| {
        let value = variable(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let absolute = |name: &str| set(name).filter(|path| path.is_absolute());
    set("AGENTD_CONFIG").or_else(|| {
        let below = absolute("XDG_CONFIG_HOME");
        let below = below.or_else(|| Some(absolute("HOME")?.join(".config")));
        Some(below?.join("agentd/config.toml"))
    })
}

/// The file of secrets beside it.
#[must_use]
pub fn env_file(config: &Path) -> PathBuf {
    config.with_file_name("env")
}

/// What tells one content of a file from the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileStamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Of the file that a path leads to, behind links: where a link leads to another file, that is
    /// another one. None where there is none, or it can't be looked at.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            file: (found.dev(), found.ino()),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// How long ago it was changed; `None` when that was in another time.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        let (seconds, nanoseconds) = self.changed;
        let at = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
        SystemTime::now().duration_since(UNIX_EPOCH + at).ok()
    }
}

/// The files that a daemon began with, as they were then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Taken {
    config: PathBuf,
    stamps: [Option<FileStamp>; 2],
}

impl Taken {
    /// As they are now.
    #[must_use]
    pub fn now(config: &Path) -> Self {
        Self {
            config: config.to_owned(),
            stamps: [config.to_owned(), env_file(config)].map(|file| FileStamp::of(&file)),
        }
    }

    /// Are they still so, and those of whoever would look for `config`?
    #[must_use]
    pub fn is_still(&self, config: &Path) -> bool {
        *self == Self::now(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_file_is_where_its_variables_say() {
        let found = |set: &[(&str, &str)]| {
            let set = set.to_vec();
            let found = file(&|name| Some(set.iter().find(|(known, _)| *known == name)?.1.into()));
            found.map(|file| file.to_str().unwrap().to_owned())
        };
        let named = [("AGENTD_CONFIG", "c.toml"), ("HOME", "/h")];
        assert_eq!(found(&named).unwrap(), "c.toml");
        let xdg = [("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(found(&xdg).unwrap(), "/x/agentd/config.toml");
        let relative = [("XDG_CONFIG_HOME", "x"), ("HOME", "/h")];
        assert_eq!(found(&relative).unwrap(), "/h/.config/agentd/config.toml");
        let empty = [("AGENTD_CONFIG", ""), ("HOME", "/h")];
        assert_eq!(found(&empty).unwrap(), "/h/.config/agentd/config.toml");
        assert_eq!(found(&[("HOME", "h")]), None);
    }

    #[test]
    fn configuration_taken_is_another_after_each_change() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.toml");
        let none = Taken::now(&config);
        assert!(none.is_still(&config) && !none.is_still(&dir.path().join("other.toml")));
        std::fs::write(&config, "a").unwrap();
        let one = Taken::now(&config);
        assert!(!none.is_still(&config) && one.is_still(&config));
        std::fs::write(dir.path().join("env"), "KEY=a").unwrap();
        assert!(!one.is_still(&config));
        let two = Taken::now(&config);
        // As an editor does it: the same size, and another file.
        std::fs::write(dir.path().join("new"), "b").unwrap();
        std::fs::rename(dir.path().join("new"), &config).unwrap();
        assert!(!two.is_still(&config));
    }
}
