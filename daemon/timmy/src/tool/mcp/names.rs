//! What the tools of servers are called here.
//!
//! Owns the form of names that every provider takes. Must not know servers.

use sha2::{Digest as _, Sha256};

/// Providers take names of up to 64 characters.
const MOST: usize = 64;
/// Of a name that is too long, so much is a sum of all of it.
const SUM: usize = 8;

/// `mcp__SERVER__TOOL` in letters, digits, `_` and `-`. A name that had to be changed for that ends
/// with a sum of what it was, so that two tools don't get one name.
pub(super) fn offered(server: &str, tool: &str) -> String {
    let exact = format!("mcp__{server}__{tool}");
    let mut name = String::with_capacity(exact.len());
    for char in exact.chars() {
        let fits = char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
        name.push(if fits { char } else { '_' });
    }
    if name == exact && name.len() <= MOST {
        return name;
    }
    let sum = Sha256::digest(exact.as_bytes());
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    // It is ASCII by now, so that no character is cut in two.
    name.truncate(MOST - SUM - 1);
    format!("{name}-{}", &sum[..SUM])
}

/// A stranger's word on one line of a message to people.
pub(super) fn plain(text: &str) -> String {
    let shown = text.chars().filter(|char| !char.is_control()).take(MOST);
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mcp_names_fit_providers_and_stay_different() {
        assert_eq!(offered("fs", "read_file"), "mcp__fs__read_file");
        let long = "x".repeat(80);
        let names = [
            offered("fs", "a.b"),
            offered("fs", "a/b"),
            offered("fs", "é\n"),
            offered("fs", &format!("{long}1")),
            offered("fs", &format!("{long}2")),
            offered(&long, &long),
        ];
        for name in &names {
            assert!(name.len() <= MOST, "{name}");
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            assert!(name.bytes().all(fits), "{name}");
        }
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }
}
