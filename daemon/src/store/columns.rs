//! Values as they stand in columns, and back.
//!
//! Owns what SQLite's types can't say themselves. Must not know tables.

/// A session's name as people know it: a closed one is kept under a longer one.
pub(super) fn shown(mut name: String) -> String {
    name.truncate(name.find('#').unwrap_or(name.len()));
    name
}

/// The whole of a name that only a closed session has.
pub(super) fn closed_as(name: &str) -> Option<String> {
    name.contains('#').then(|| name.to_owned())
}

/// SQLite's integers are signed; no number of ours comes near the end.
pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Back again.
pub(super) fn nat(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
