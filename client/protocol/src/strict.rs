//! JSON as strict as the contract: no duplicate keys, bounded nesting, no byte-order mark.
//!
//! Owns the question "is this line JSON we accept?". Must not know what the line means.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::limits::MAX_DEPTH;

/// Why a text isn't JSON we accept, in words for a person.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotStrict(pub String);

impl fmt::Display for NotStrict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotStrict {}

/// Checks one whole text.
///
/// # Errors
/// Says what was found: a syntax error with its column, a duplicate key by name, nesting deeper
/// than [`MAX_DEPTH`], a byte-order mark.
pub fn check(text: &str) -> Result<(), NotStrict> {
    if text.starts_with('\u{feff}') {
        // It can't be seen: "expected value" would send its writer looking for something else.
        let why = "the line starts with a byte-order mark; send UTF-8 without one";
        return Err(NotStrict(why.to_owned()));
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Depth(0)
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end())
        .map_err(|error| NotStrict(error.to_string()))
}

/// A key of an object; copied only when it is written with escapes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Key<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

#[derive(Clone, Copy)]
struct Depth(usize);

impl Depth {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        // Before serde_json's own limit, which is 128.
        if self.0 == MAX_DEPTH {
            return Err(E::custom(format_args!(
                "nesting is deeper than {MAX_DEPTH}"
            )));
        }
        Ok(Self(self.0 + 1))
    }
}

impl<'de> DeserializeSeed<'de> for Depth {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Depth {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        while seq.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            if let Some(Key(key)) = seen.replace(key) {
                return Err(A::Error::custom(format_args!(
                    "the key `{key}` is given twice"
                )));
            }
            map.next_value_seed(inner)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_refuses_other_json_with_its_reason() {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert_eq!(
            check(r#"{"a":[1,-2,3.5e3,null,true,"\ud83d\ude00"],"b":{"a":1}}"#),
            Ok(())
        );
        assert_eq!(check(&deep(MAX_DEPTH)), Ok(()));
        for (text, why) in [
            (deep(MAX_DEPTH + 1), "nesting is deeper than 64"),
            (deep(100_000), "nesting is deeper than 64"),
            (r#"{"a":1,"a":2}"#.to_owned(), "the key `a` is given twice"),
            (
                r#"{"x":{"a":1,"\u0061":2}}"#.to_owned(),
                "the key `a` is given twice",
            ),
            ("\u{feff}{}".to_owned(), "byte-order mark"),
            ("{} {}".to_owned(), "trailing characters"),
            (r#"{"n":1e999}"#.to_owned(), "number out of range"),
            (r#"{"n":NaN}"#.to_owned(), "expected"),
            (r#"{"s":"\ud800"}"#.to_owned(), "hex escape"),
            (String::new(), "EOF"),
        ] {
            let found = check(&text).unwrap_err().0;
            assert!(found.contains(why), "{text:.40}: {found}");
        }
    }
}
