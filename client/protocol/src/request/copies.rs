//! The requests that copy what is stored: `backup` and `export`.
//!
//! Owns their fields and syntax. Must not know what is in a store.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::check::{check_path, check_session_read};
use crate::envelope::{Checked, Rejected, invalid};

/// `backup`: a copy of the store that is whole by itself.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Backup {
    /// Absolute, not there yet; a name with the time in the state directory when absent. With `every`
    /// a directory, in which each copy has a name with its time.
    pub path: Option<String>,
    /// From now on such a copy is made by itself so often, in seconds; 0 ends that.
    pub every: Option<u64>,
    /// So many of those copies are kept; [`Self::KEPT`] when absent.
    pub keep: Option<u32>,
}

impl Backup {
    /// Copies that are kept when nobody says how many.
    pub const KEPT: u32 = 7;
    /// The shortest `every`, in seconds: whether one is due is looked at each ten minutes.
    pub const MOST_OFTEN: u64 = 3600;
}

impl Checked for Backup {
    fn check(&self) -> Result<(), Rejected> {
        match (self.every, self.keep) {
            (Some(every), _) if every > 0 && every < Self::MOST_OFTEN => Err(invalid(format!(
                "`every` is {every} s, expected 0 or at least {} s",
                Self::MOST_OFTEN
            ))),
            (_, Some(0)) => Err(invalid("`keep` is 0, expected at least 1")),
            (None, Some(_)) => Err(invalid("`keep` is given without `every`")),
            _ => check_path("path", self.path.as_deref()),
        }
    }
}

/// `export`: everything stored, or a session with its jobs, in pages.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Export {
    /// The `next` of the page before.
    pub after: Option<u64>,
    /// Only this session and its jobs.
    pub session: Option<String>,
}

impl Checked for Export {
    fn check(&self) -> Result<(), Rejected> {
        self.session.as_deref().map_or(Ok(()), check_session_read)
    }
}
