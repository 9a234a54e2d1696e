//! How often is spoken: a recogniser that hears itself, or a television, wakes again and again.
//!
//! Owns the list of what was said within the last minute. Must not know what becomes of it.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

/// Nobody says more in a minute, for a minute.
pub const PER_MINUTE: usize = 60;
const MINUTE_MS: i64 = 60_000;
/// The list is shorter by far.
const MAX_LIST: u64 = 1024 * 1024;

/// Counts an utterance at `now`, in milliseconds since 1970. False when `most` others were said
/// within the minute before. The same one again counts once, and is always allowed.
///
/// # Errors
/// When the list in `dir` can't be read or written: then nothing is known.
pub fn allows(dir: &Path, id: &str, most: usize, now: i64) -> io::Result<bool> {
    let list = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(dir.join("said"))?;
    // Whoever has it is done in no time.
    let mut list = Flock::lock(list, FlockArg::LockExclusive).map_err(|(_, why)| why)?;
    let mut text = String::new();
    (&*list).take(MAX_LIST).read_to_string(&mut text)?;
    let is_recent = |line: &&str| {
        let at = line
            .split_once(' ')
            .and_then(|(at, _)| at.parse::<i64>().ok());
        // A clock that was set back leaves nothing in the future.
        at.is_some_and(|at| (0..MINUTE_MS).contains(&now.saturating_sub(at)))
    };
    let recent: Vec<&str> = text.lines().filter(is_recent).collect();
    let is_this = |line: &&str| line.split_once(' ').is_some_and(|(_, said)| said == id);
    if recent.iter().any(is_this) {
        return Ok(true);
    }
    if recent.len() >= most {
        return Ok(false);
    }
    let kept: String = recent.iter().map(|line| format!("{line}\n")).collect();
    list.rewind()?;
    // Killed before the next write, the list is empty: one minute isn't counted, and no more.
    list.set_len(0)?;
    list.write_all(format!("{kept}{now} {id}\n").as_bytes())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_allows_some_a_minute_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let now = 1_000_000_000;
        let allows = |id: &str, at: i64| allows(dir.path(), id, 2, at).unwrap();
        assert!(allows("a", now) && allows("b", now + 1) && !allows("c", now + 2));
        assert!(allows("a", now + 3), "it is asked again");
        assert!(
            allows("c", now + MINUTE_MS),
            "the first one is a minute old"
        );
        assert!(!allows("d", now + MINUTE_MS));
        assert!(allows("d", now - MINUTE_MS), "the clock was set back");
        std::fs::write(dir.path().join("said"), "nonsense\n\n9 \n").unwrap();
        assert!(allows("e", now) && allows("f", now) && !allows("g", now));
    }
}
