//! The nearest known name to a misspelt one. Pure; knows no list of its own.

/// The name of `known` that is close enough to `given` to be what was meant.
///
/// Close is at most a third of the letters, and at least two, changed (Damerau–Levenshtein).
#[must_use]
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A name longer than any of ours can't be near one, and the distance is quadratic.
    if given.len() > 64 {
        return None;
    }
    let allowed = (given.chars().count() / 3).max(2);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(given, name), name))
        // Of a short name two changes may leave nothing.
        .filter(|(distance, name)| *distance <= allowed && *distance < name.len())
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_is_a_slip_and_never_a_stranger() {
        let known = ["send", "status", "session", "toolsets"];
        assert_eq!(nearest("sned", known), Some("send"));
        assert_eq!(nearest("toolset", known), Some("toolsets"));
        assert_eq!(nearest("zebra", known), None);
        assert_eq!(nearest(&"s".repeat(100_000), known), None);
    }
}
