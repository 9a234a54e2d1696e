//! The file `env`: `NAME=value` lines, as a service has no shell to set them.
//!
//! Owns their syntax. Must not know what a variable is for, nor who may read the file.

use std::collections::BTreeMap;

/// Reads the lines; blank ones and those that start with `#` are skipped.
///
/// # Errors
/// The number of the first line that is neither.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, usize> {
    let mut found = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line
            .split_once('=')
            .filter(|(name, _)| is_variable(name))
            .ok_or(index + 1)?;
        found.insert(name.to_owned(), unquote(value).to_owned());
    }
    Ok(found)
}

/// May a variable be called so?
#[must_use]
pub fn is_variable(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && !name.as_bytes()[0].is_ascii_digit() && name.bytes().all(fine)
}

/// Quotes around the whole value are a shell's habit; nothing inside is interpreted.
fn unquote(value: &str) -> &str {
    ['"', '\'']
        .into_iter()
        .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(value)
}
