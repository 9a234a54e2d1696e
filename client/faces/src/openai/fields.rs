//! A request's fields, one by one, so that what is wrong is named.
//!
//! Owns reading them. Must not know what any of them means. What nobody takes is ignored, and told:
//! clients send what OpenAI's own models know, and a refusal would break them.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::failure::Failure;

/// Ignored fields that are told.
const MOST_TOLD: usize = 16;

/// The fields that nobody took yet.
#[derive(Clone, Debug)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Those of a body.
    ///
    /// # Errors
    /// When it isn't an object.
    pub fn of(text: &str) -> Result<Self, Failure> {
        match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Failure::new(
                400,
                "invalid_body",
                "the body is JSON, but no object",
            )),
            Err(why) => Err(Failure::new(
                400,
                "invalid_json",
                format!("not JSON: {why}"),
            )),
        }
    }

    /// Takes a field; null is none.
    ///
    /// # Errors
    /// When it is of another type.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        match self.0.shift_remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match serde_json::from_value(value) {
                Ok(value) => Ok(Some(value)),
                Err(why) => Err(Failure {
                    code: "invalid_type".to_owned(),
                    ..Failure::invalid(name, format!("`{name}`: {why}"))
                }),
            },
        }
    }

    /// Whom a client asks for, in the older field or the newer one.
    ///
    /// # Errors
    /// When one is of another type.
    pub fn user(&mut self) -> Result<Option<String>, Failure> {
        let (user, newer) = (self.take("user")?, self.take("safety_identifier")?);
        Ok(user.or(newer))
    }

    /// The names of those that nobody took, as far as they can stand in a header.
    #[must_use]
    pub fn ignored(self) -> Vec<String> {
        let told = |name: &String| {
            let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            (1..=64).contains(&name.len()) && name.bytes().all(fine)
        };
        let given = self.0.into_iter().filter(|(_, value)| !value.is_null());
        given
            .map(|(name, _)| name)
            .filter(told)
            .take(MOST_TOLD)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_name_what_is_of_another_type() {
        let mut fields = Fields::of(r#"{"stream":"yes","n":null,"x\ny":1,"tools":[]}"#).unwrap();
        let wrong = fields.take::<bool>("stream").unwrap_err();
        assert_eq!(
            (wrong.status, wrong.param.as_deref()),
            (400, Some("stream"))
        );
        assert!(wrong.message.contains("expected a boolean"), "{wrong:?}");
        assert_eq!(fields.take::<u64>("n").unwrap(), None);
        assert_eq!(fields.ignored(), ["tools"]);
        for body in ["[]", "5", "{", ""] {
            assert_eq!(Fields::of(body).unwrap_err().status, 400, "{body}");
        }
    }
}
