//! Changes of the file `env`: a key more, another one, one less.
//!
//! Owns how a key is written. Reading is `provider::keys`' work. A key appears in no message.

use std::io;
use std::path::{Path, PathBuf};

use agentd_base::alone::Alone;
use agentd_base::env_file::is_variable;
use agentd_base::trusted::typed;

/// Longest key: a token of a cloud is a few thousand bytes.
const LONGEST: usize = 16 * 1024;

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretsError {
    /// Others can read the keys that are there.
    #[error("`{}` has mode {mode:04o}, expected 0600, as it holds keys; hint: chmod 600 {}", file.display(), typed(file))]
    Readable {
        /// Which file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It can't be a key.
    #[error("this is not a key: {0}")]
    NotAKey(&'static str),
    /// The system says no.
    #[error("can't write `{}`: {source}", file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Was the variable there before?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    /// Yes.
    There,
    /// No.
    Absent,
}

/// A key as it is typed or piped: its blanks at both ends are nobody's.
///
/// # Errors
/// It can't be one.
pub(crate) fn key_of(typed: &str) -> Result<&str, SecretsError> {
    let key = typed.trim();
    if key.is_empty() {
        return Err(SecretsError::NotAKey("it is empty"));
    }
    if key.len() > LONGEST {
        return Err(SecretsError::NotAKey("it is longer than 16 KiB"));
    }
    // A line end would begin another variable, and a header takes neither.
    if key.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(SecretsError::NotAKey("there are blanks or line ends in it"));
    }
    Ok(key)
}

/// Stores a key under a variable's name; every other line stays as it is.
///
/// # Errors
/// Others can read the file, or the system says no.
pub(crate) fn store(file: &Path, variable: &str, key: &str) -> Result<Before, SecretsError> {
    debug_assert!(is_variable(variable), "checked by whoever asks");
    // The reader takes one pair of quotes off.
    let written = match key.chars().next() {
        Some('"' | '\'') => format!("{variable}=\"{key}\""),
        _ => format!("{variable}={key}"),
    };
    change(file, variable, Some(&written))
}

/// Forgets the key under a variable's name.
///
/// # Errors
/// As for [`store`].
pub(crate) fn forget(file: &Path, variable: &str) -> Result<Before, SecretsError> {
    change(file, variable, None)
}

fn change(file: &Path, variable: &str, line: Option<&str>) -> Result<Before, SecretsError> {
    let io = |source| SecretsError::Io {
        file: file.to_owned(),
        source,
    };
    let alone = Alone::with(file).map_err(io)?;
    // Not mended in silence: others may have read the keys, and the user should know.
    if let Some(mode) = alone.mode().map_err(io)?.filter(|mode| mode & 0o077 != 0) {
        let file = file.to_owned();
        return Err(SecretsError::Readable { file, mode });
    }
    let text = alone.read().map_err(io)?;
    let (fresh, before) = with(&text, variable, line);
    if fresh != text {
        alone.replace(&fresh).map_err(io)?;
    }
    Ok(before)
}

/// The text with the variable's line replaced where it stood, appended, or left out.
fn with(text: &str, variable: &str, line: Option<&str>) -> (String, Before) {
    let mut fresh = String::with_capacity(text.len() + 128);
    let mut waits = line;
    let mut before = Before::Absent;
    for old in text.split_inclusive('\n') {
        if !is_of(old, variable) {
            fresh.push_str(old);
            continue;
        }
        before = Before::There;
        // A later line of the same name would win over this one, so it goes.
        if let Some(line) = waits.take() {
            fresh.push_str(line);
            fresh.push('\n');
        }
    }
    if let Some(line) = waits {
        if !fresh.is_empty() && !fresh.ends_with('\n') {
            fresh.push('\n');
        }
        fresh.push_str(line);
        fresh.push('\n');
    }
    (fresh, before)
}

/// Does a line set the variable?
fn is_of(line: &str, variable: &str) -> bool {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    line.split_once('=')
        .is_some_and(|(name, _)| name == variable)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::provider::keys::Keys;

    #[test]
    fn secret_is_kept_privately_among_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("env");
        assert_eq!(store(&file, "A_KEY", "one").unwrap(), Before::Absent);
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(
            &file,
            "# mine\nexport A_KEY='old'\n\nB=x=y\nA_KEY=older\nno newline=1",
        )
        .unwrap();
        assert_eq!(store(&file, "A_KEY", "two").unwrap(), Before::There);
        assert_eq!(store(&file, "C_KEY", "\"q\"").unwrap(), Before::Absent);
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(
            text,
            "# mine\nA_KEY=two\n\nB=x=y\nno newline=1\nC_KEY=\"\"q\"\"\n"
        );
        fs::write(&file, text.replace("no newline=1\n", "")).unwrap();
        let keys = Keys::read(dir.path()).unwrap();
        assert_eq!(keys.get("A_KEY").as_deref(), Some("two"));
        assert_eq!(keys.get("C_KEY").as_deref(), Some("\"q\""));
        assert_eq!(forget(&file, "A_KEY").unwrap(), Before::There);
        assert_eq!(forget(&file, "A_KEY").unwrap(), Before::Absent);
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text, "# mine\n\nB=x=y\nC_KEY=\"\"q\"\"\n");
    }

    #[test]
    fn secret_never_goes_where_others_can_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("env");
        fs::write(&file, "A=1\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let error = store(&file, "B", "s3cret").unwrap_err().to_string();
        assert!(error.contains("mode 0644, expected 0600"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "A=1\n");
    }

    #[test]
    fn many_keys_stored_at_once_are_all_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("env");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let file = &file;
                scope.spawn(move || store(file, &format!("K{number}"), "x").unwrap());
            }
        });
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 8);
    }

    #[test]
    fn secret_that_is_none_is_refused_unrepeated() {
        assert_eq!(key_of("  sk-1\r\n").unwrap(), "sk-1");
        for typed in ["", " \n", "two words", "two\nlines", "a\u{7}b"] {
            let error = key_of(typed).unwrap_err().to_string();
            assert!(
                typed.trim().is_empty() || !error.contains(typed.trim()),
                "{error}"
            );
        }
        assert!(key_of(&"x".repeat(LONGEST + 1)).is_err());
    }
}
