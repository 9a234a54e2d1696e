//! Where text may be cut.
//!
//! Owns the search for character boundaries, which the standard library has only in newer versions.
//! Must not know what is cut, or why.

/// The last boundary at or before `at`; the end when `at` is behind it.
pub fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The first boundary at or after `at`; the end when `at` is behind it.
pub fn ceil(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_inside_a_character_moves_to_its_edge() {
        let text = "a€b";
        let floors: Vec<_> = (0..7).map(|at| floor(text, at)).collect();
        let ceils: Vec<_> = (0..7).map(|at| ceil(text, at)).collect();
        assert_eq!(floors, [0, 1, 1, 1, 4, 5, 5]);
        assert_eq!(ceils, [0, 1, 4, 4, 4, 5, 5]);
    }
}
