//! A sentence that says what to do behind what is wrong, in one line: `what; hint: do this`.
//!
//! Owns how the two are told apart. Must not know what either says.

const IN_A_LINE: &str = "; hint: ";
const IN_LINES: &str = "\nhint: ";

/// What is wrong, and what to do if it is said, in the same line or in one of its own.
#[must_use]
pub fn split(said: &str) -> (&str, Option<&str>) {
    let hinted = said.split_once(IN_A_LINE);
    match hinted.or_else(|| said.split_once(IN_LINES)) {
        Some((what, hint)) => (what, Some(hint)),
        None => (said, None),
    }
}

/// The same for people: what to do has a line of its own.
#[must_use]
pub fn in_lines(said: &str) -> String {
    said.replace(IN_A_LINE, IN_LINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_is_told_apart_however_it_is_written() {
        for said in ["it is broken; hint: mend it", "it is broken\nhint: mend it"] {
            assert_eq!(split(said), ("it is broken", Some("mend it")));
            assert_eq!(in_lines(said), "it is broken\nhint: mend it");
        }
        assert_eq!(split("it is broken"), ("it is broken", None));
    }
}
