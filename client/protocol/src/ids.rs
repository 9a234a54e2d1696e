//! Names of things on the wire: request ids and job ids.
//!
//! Owns their syntax. Must not know what they refer to.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// The `id` of a request: any JSON value, echoed byte for byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Id(Arc<str>);

impl Id {
    /// Takes the value's text as it stood on the line.
    #[must_use]
    pub fn from_raw(raw: &RawValue) -> Self {
        Self(Arc::from(raw.get()))
    }

    /// An id that is a number.
    #[must_use]
    pub fn number(number: u64) -> Self {
        Self(Arc::from(number.to_string()))
    }

    /// An id that is a string.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self(Arc::from(serde_json::Value::from(text).to_string()))
    }

    /// The JSON text, exactly as the sender wrote it.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// The number of an accepted job, written `"j41"`. Handed out by the commit that accepted it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "j{}", self.0)
    }
}

/// A string that isn't `j` and a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAJobId(pub String);

impl fmt::Display for NotAJobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a job: expected `j` and a number, as in `j41`",
            self.0
        )
    }
}

impl std::error::Error for NotAJobId {}

impl FromStr for JobId {
    type Err = NotAJobId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // One way to write each: programs compare them as texts.
        let digits = text.strip_prefix('j').filter(|rest| {
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()) && !rest.starts_with('0')
        });
        digits
            .and_then(|digits| digits.parse().ok())
            .map(Self)
            .ok_or_else(|| NotAJobId(text.to_owned()))
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for JobId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "JobId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "pattern": "^j[1-9][0-9]{0,18}$"})
    }

    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_id_is_j_and_a_number_only() {
        assert_eq!("j41".parse(), Ok(JobId(41)));
        for bad in [
            "",
            "j",
            "41",
            "j041",
            "J41",
            "j-1",
            "j4 1",
            "j99999999999999999999999",
        ] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }
}
