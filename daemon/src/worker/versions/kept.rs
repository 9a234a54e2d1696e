//! What programs said of themselves, from one daemon to the next.
//!
//! Owns `versions.json` and for how long it is believed. Must not know how programs are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agentd_base::replace::replace_for_now;
use serde::{Deserialize, Serialize};

use crate::platform::files::Files;

/// Below the state directory.
pub(super) const FILE: &str = "versions.json";
/// What starts another program (a shim of asdf, mise or volta) doesn't change with it, so even the
/// same file is asked again after this time.
const BELIEVED: Duration = Duration::from_secs(24 * 3600);
/// Bad news is not believed without asking again: its cause may be gone, and the file the same.
/// Whoever looks again and again starts no program each time.
const DOUBTED_AFTER: Duration = Duration::from_secs(5);

/// Names one file's content, near enough.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::worker) struct Stamp {
    /// Behind all links: a new version is often another file with the same name in front.
    file: PathBuf,
    /// When it was changed in any way: packages bring times of modification of their own.
    seconds: i64,
    nanoseconds: i64,
    size: u64,
}

impl Stamp {
    /// Of the program as it is now; `None` when it is gone, or nothing answers there.
    pub(in crate::worker) fn of(program: &Path, files: &Files) -> Option<Self> {
        let found = files.at(program).ok()?;
        let (seconds, nanoseconds) = found.changed;
        Some(Self {
            file: found.real,
            seconds,
            nanoseconds,
            size: found.size,
        })
    }
}

/// When a program was asked, by the wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct AskedAt(u64);

impl AskedAt {
    pub(super) fn now() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(now.unwrap_or_default().as_secs())
    }

    /// A clock that was set back says nothing.
    fn within(self, time: Duration) -> bool {
        let age = Self::now().0.checked_sub(self.0);
        age.is_some_and(|age| age < time.as_secs())
    }

    /// Was it so recently that even bad news is believed?
    pub(super) fn is_fresh(self) -> bool {
        self.within(DOUBTED_AFTER)
    }
}

/// What a program that can be run said of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct KeptVersion {
    pub(super) stamp: Stamp,
    pub(super) asked: AskedAt,
    pub(super) version: String,
    /// The line that has the version, in which many name themselves.
    pub(super) line: String,
    /// What its help said, once it was asked for.
    pub(super) help: Option<Help>,
}

/// What a program's help says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Help {
    /// It is the agent, with its long-lived form.
    Whole,
    /// It is the agent, without that.
    // As `versions.json` has it since before it had this name.
    #[serde(rename = "OneShotOnly")]
    ExecOnly,
    /// It is something else, in its own words.
    Another(String),
}

impl KeptVersion {
    /// Does it still hold, so that there is nothing to ask?
    pub(super) fn holds(&self) -> bool {
        match self.help {
            None => false,
            Some(Help::Whole) => self.asked.within(BELIEVED),
            Some(Help::ExecOnly | Help::Another(_)) => self.asked.is_fresh(),
        }
    }

    /// Need only its help be asked for?
    pub(super) fn lacks_help(&self) -> bool {
        self.help.is_none() && self.asked.within(BELIEVED)
    }
}

/// What a start has to know of programs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Learned {
    /// Those that lack their long-lived form.
    pub exec_only: BTreeSet<PathBuf>,
    /// Those that are something else than their name says, with their own words.
    pub others: BTreeMap<PathBuf, String>,
}

/// What was found out and is still of the same files. Nothing is asked: a start runs no program.
/// That one lacks its long-lived form is believed for a day; then it is tried, and found out again.
#[must_use]
pub fn learned(state_dir: &Path, files: &Files) -> Learned {
    let mut learned = Learned::default();
    for (path, kept) in read(&state_dir.join(FILE)) {
        if Stamp::of(&path, files).as_ref() != Some(&kept.stamp) {
            continue;
        }
        match kept.help {
            Some(Help::ExecOnly) if kept.asked.within(BELIEVED) => {
                learned.exec_only.insert(path);
            }
            Some(Help::Another(words)) => {
                learned.others.insert(path, words);
            }
            Some(Help::ExecOnly | Help::Whole) | None => {}
        }
    }
    learned
}

pub(super) fn read(file: &Path) -> BTreeMap<PathBuf, KeptVersion> {
    let text = std::fs::read(file).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

pub(super) fn write(file: &Path, kept: &BTreeMap<PathBuf, KeptVersion>) -> std::io::Result<()> {
    // A one-shot beside the daemon may write its own.
    replace_for_now(file, &serde_json::to_vec(kept)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(program: &Path) -> Option<Stamp> {
        Stamp::of(program, &Files::default())
    }

    fn asked(ago: Duration) -> AskedAt {
        AskedAt(AskedAt::now().0 - ago.as_secs())
    }

    fn kept(asked: AskedAt, help: Option<Help>) -> KeptVersion {
        let stamp = stamp(Path::new("/")).unwrap();
        let version = "1.0".to_owned();
        KeptVersion {
            stamp,
            asked,
            line: version.clone(),
            version,
            help,
        }
    }

    #[test]
    fn kept_good_news_holds_a_day_bad_shortly() {
        let (now, yesterday) = (asked(Duration::ZERO), asked(BELIEVED));
        let almost = asked(BELIEVED - Duration::from_secs(60));
        let another = || Some(Help::Another("3.14".to_owned()));
        for (asked, help, holds) in [
            (now, Some(Help::Whole), true),
            (almost, Some(Help::Whole), true),
            (yesterday, Some(Help::Whole), false),
            (now, Some(Help::ExecOnly), true),
            (now, another(), true),
            (almost, Some(Help::ExecOnly), false),
            (asked(DOUBTED_AFTER), another(), false),
            (now, None, false),
            // The clock was set back since.
            (AskedAt(now.0 + 3600), Some(Help::Whole), false),
        ] {
            let kept = kept(asked, help);
            assert_eq!(kept.holds(), holds, "{kept:?}");
        }
        assert!(kept(almost, None).lacks_help() && !kept(yesterday, None).lacks_help());
    }

    #[test]
    fn kept_lack_of_a_form_holds_a_day() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::TempDir::new().unwrap();
        for (ago, believed) in [(Duration::ZERO, true), (BELIEVED, false)] {
            let program = PathBuf::from("/");
            let lacks = kept(asked(ago), Some(Help::ExecOnly));
            let all = BTreeMap::from([(program.clone(), lacks)]);
            write(&dir.path().join(FILE), &all).unwrap();
            let learned = learned(dir.path(), &Files::default());
            assert_eq!(learned.exec_only.contains(&program), believed, "{ago:?}");
        }
        let file = std::fs::metadata(dir.path().join(FILE)).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn kept_link_led_elsewhere_is_another_program() {
        let dir = tempfile::TempDir::new().unwrap();
        let (one, two) = (dir.path().join("1.0"), dir.path().join("2.0"));
        std::fs::write(&one, "same").unwrap();
        std::fs::hard_link(&one, &two).unwrap();
        let link = dir.path().join("tool");
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let before = stamp(&link);
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&two, &link).unwrap();
        let after = stamp(&link);
        assert!(before.is_some() && before != after, "{before:?}");
        assert_eq!(stamp(&dir.path().join("gone")), None);
    }

    #[test]
    fn kept_file_of_another_time_is_another_program() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("tool");
        std::fs::write(&file, "1.0").unwrap();
        let (before, old) = (stamp(&file), std::fs::metadata(&file).unwrap());
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "2.0").unwrap();
        let opened = std::fs::File::options().write(true).open(&file).unwrap();
        opened.set_modified(old.modified().unwrap()).unwrap();
        assert_ne!(before, stamp(&file));
    }
}
