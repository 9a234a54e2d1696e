//! What `agentd doctor` tells `agentctl doctor`: one object of findings on standard output.
//!
//! Owns its members. Must not know what is looked at.

use serde::{Deserialize, Serialize};

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Worth knowing: something may not work as expected.
    Warning,
    /// Something doesn't work, or isn't safe.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at, in a word.
    pub check: String,
    /// How bad it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Was it repaired just now?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed: bool,
}

impl Finding {
    /// All is well.
    #[must_use]
    pub fn ok(check: &str, found: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            verdict: Verdict::Ok,
            found: found.into(),
            remedy: None,
            fixed: false,
        }
    }

    /// Worth knowing, with what to do.
    #[must_use]
    pub fn warning(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Warning,
            remedy: Some(remedy.into()),
            ..Self::ok(check, found)
        }
    }

    /// Wrong, with what to do.
    #[must_use]
    pub fn problem(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Problem,
            ..Self::warning(check, found, remedy)
        }
    }

    /// It was repaired: all is well now.
    #[must_use]
    pub fn fixed(check: &str, done: impl Into<String>) -> Self {
        Self {
            fixed: true,
            ..Self::ok(check, done)
        }
    }
}

/// Everything that was looked at.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Report {
    /// In the order of looking.
    pub findings: Vec<Finding>,
}
