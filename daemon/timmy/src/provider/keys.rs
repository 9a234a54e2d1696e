//! Keys: where they are looked for.
//!
//! Owns the order (the environment, then the file `env` beside `config.toml`), the file's
//! mode. A value never appears in a message.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use agentd_base::trusted::{self, Untrusted};
use agentd_base::{env_file, settings};

use super::Key;

/// Holds a token rather than a key, which goes into another header.
pub(crate) const ANTHROPIC_TOKEN: &str = "ANTHROPIC_AUTH_TOKEN";
/// The file's name.
const FILE: &str = "env";

/// What a variable says, if it says anything.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The keys of the file.
#[derive(Clone, Default)]
pub(crate) struct Keys {
    file: BTreeMap<String, String>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.file.keys()).finish()
    }
}

/// Why the file can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    /// Others could read the keys.
    #[error("{} can be read by others (mode {mode:04o}); run `chmod 600 {}`", .file.display(), .file.display())]
    Readable {
        /// Which file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Others could change them, or where they go.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// A line is not what it should be.
    #[error("{}, line {line}: this line is not `NAME=value`", .file.display())]
    Wrong {
        /// Which file.
        file: PathBuf,
        /// Which line.
        line: usize,
    },
    /// It can't be read.
    #[error("{} can't be read: {source}", .file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Keys {
    /// Reads the file `env` of a directory. None there is no error.
    ///
    /// # Errors
    /// Others can read or change it, or it isn't of the form.
    pub(crate) fn read(dir: &Path) -> Result<Self, KeysError> {
        let file = dir.join(FILE);
        let wrong = |source| KeysError::Io {
            file: file.clone(),
            source,
        };
        let opened = match settings::open(&file) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(wrong(error)),
        };
        // Of the open file: what its name leads to may be another one by now.
        let mode = opened.metadata().map_err(wrong)?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(KeysError::Readable { file, mode });
        }
        trusted::check(&file)?;
        let text = settings::read_from(&opened).map_err(wrong)?;
        let parsed = env_file::parse(&text).map_err(|line| KeysError::Wrong { file, line })?;
        Ok(Self { file: parsed })
    }

    /// What a variable says: in the environment, else in the file. Blank is nothing.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.get_with(name, &|name| std::env::var(name).ok())
    }

    fn get_with(&self, name: &str, environment: Lookup<'_>) -> Option<String> {
        let is_said = |value: &String| !value.trim().is_empty();
        environment(name)
            .filter(is_said)
            .or_else(|| self.file.get(name).cloned().filter(is_said))
    }

    /// The names in the file.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.file.keys().map(String::as_str)
    }
}

/// The first key that one of the variables holds.
pub(crate) fn find(variables: &[String], lookup: Lookup<'_>) -> Option<Key> {
    variables.iter().find_map(|name| {
        let value = lookup(name)?.trim().to_owned();
        if value.is_empty() {
            return None;
        }
        Some(if name == ANTHROPIC_TOKEN {
            Key::bearer(value)
        } else {
            Key::new(value)
        })
    })
}

#[cfg(test)]
#[path = "keys/tests.rs"]
mod tests;
