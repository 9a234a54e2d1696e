//! The last line of a file that was written here: it tells whether somebody changed the file.
//!
//! Owns that line. The sum guards against nobody: it may differ from one version to the next, and
//! then the file counts as changed. Must not know what else is in a file.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

/// The text with its last line.
pub(super) fn sealed(path: &Path, text: &str) -> String {
    let sum = sum(text);
    match path.extension().and_then(OsStr::to_str) {
        Some("plist") => format!("{text}<!-- as written: {sum} -->\n"),
        _ => format!("{text}# As written: {sum}\n"),
    }
}

/// Is it as it was written?
pub(super) fn is_whole(path: &Path, found: &str) -> bool {
    let lines = found.strip_suffix('\n').and_then(|rest| rest.rfind('\n'));
    lines.is_some_and(|end| sealed(path, &found[..=end]) == found)
}

fn sum(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_anywhere_shows() {
        for name in ["agentd.service", "local.agentd.plist"] {
            let path = Path::new(name);
            let written = sealed(path, "a\nb\n");
            assert!(is_whole(path, &written), "{written}");
            let changed = [
                written.replace('b', "c"),
                format!("{written}# mine\n"),
                "a\nb\n".to_owned(),
                String::new(),
            ];
            assert!(!changed.iter().any(|text| is_whole(path, text)), "{name}");
        }
    }
}
