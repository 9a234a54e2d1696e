//! The arguments of tools: written once, for the model as a schema and for the tool as a type.
//!
//! Owns what a model is told when its arguments don't fit. They are never repaired. Must not know
//! any tool.

use serde_json::{Map, Value, json};

/// A value found is quoted up to here.
const MOST_QUOTED: usize = 60;

/// A type that an argument can have.
pub(crate) trait Argument: Sized {
    /// What is expected, in words.
    const EXPECTED: &'static str;
    /// What it is when it's left out; nothing means that it must not be.
    fn absent() -> Option<Self> {
        None
    }
    /// Its JSON schema.
    fn schema() -> Value;
    /// Reads it.
    fn read(found: &Value) -> Option<Self>;
}

impl Argument for String {
    const EXPECTED: &'static str = "a string";

    fn schema() -> Value {
        json!({ "type": "string" })
    }

    fn read(found: &Value) -> Option<Self> {
        found.as_str().map(str::to_owned)
    }
}

impl Argument for u64 {
    const EXPECTED: &'static str = "a whole number from 1";

    fn schema() -> Value {
        json!({ "type": "integer", "minimum": 1 })
    }

    fn read(found: &Value) -> Option<Self> {
        found.as_u64().filter(|number| *number > 0)
    }
}

impl Argument for bool {
    const EXPECTED: &'static str = "true or false";

    fn schema() -> Value {
        json!({ "type": "boolean" })
    }

    fn read(found: &Value) -> Option<Self> {
        found.as_bool()
    }
}

impl<T: Argument> Argument for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn schema() -> Value {
        T::schema()
    }

    /// Models write `null` for what they leave out.
    fn read(found: &Value) -> Option<Self> {
        if found.is_null() {
            Some(None)
        } else {
            T::read(found).map(Some)
        }
    }
}

/// One argument, as the schema has it.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) required: bool,
    pub(crate) schema: Value,
}

/// The schema of them all.
pub(crate) fn object(fields: Vec<Field>) -> Value {
    let required: Vec<_> = fields
        .iter()
        .filter(|field| field.required)
        .map(|field| field.name)
        .collect();
    let properties: Map<_, _> = fields
        .into_iter()
        .map(|mut field| {
            field.schema["description"] = field.about.into();
            (field.name.to_owned(), field.schema)
        })
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Refuses what isn't one of the arguments.
pub(crate) fn only(arguments: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match arguments
        .keys()
        .find(|name| !known.contains(&name.as_str()))
    {
        None => Ok(()),
        Some(name) => Err(format!(
            "there is no argument `{}`; expected {}",
            cut(name),
            known
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}

/// Reads one argument.
pub(crate) fn field<T: Argument>(arguments: &Map<String, Value>, name: &str) -> Result<T, String> {
    match arguments.get(name) {
        None => T::absent().ok_or_else(|| format!("`{name}` is missing; expected {}", T::EXPECTED)),
        Some(found) => T::read(found).ok_or_else(|| {
            format!(
                "`{name}`: expected {}, found {}",
                T::EXPECTED,
                cut(&found.to_string())
            )
        }),
    }
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(MOST_QUOTED);
    let more = if end < text.len() { "…" } else { "" };
    format!("{}{more}", &text[..end])
}

/// All that a tool takes.
pub(crate) trait Arguments: Sized {
    /// For the model.
    fn schema() -> Value;
    /// From the model.
    fn parse(arguments: &Map<String, Value>) -> Result<Self, String>;
}

/// A type of arguments: `Name { field: Type = "what it is", … }`.
macro_rules! arguments {
    ($(#[$about_all:meta])* $seen:vis $name:ident { $($field:ident: $type:ty = $about:expr,)* }) => {
        $(#[$about_all])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        $seen struct $name {
            $($field: $type,)*
        }

        impl $crate::tool::schema::Arguments for $name {
            fn schema() -> serde_json::Value {
                $crate::tool::schema::object(vec![$($crate::tool::schema::Field {
                    name: stringify!($field),
                    about: $about,
                    required: <$type as $crate::tool::schema::Argument>::absent().is_none(),
                    schema: <$type as $crate::tool::schema::Argument>::schema(),
                }),*])
            }

            fn parse(
                arguments: &serde_json::Map<String, serde_json::Value>,
            ) -> Result<Self, String> {
                $crate::tool::schema::only(arguments, &[$(stringify!($field)),*])?;
                Ok(Self {
                    $($field: $crate::tool::schema::field(arguments, stringify!($field))?,)*
                })
            }
        }
    };
}
pub(crate) use arguments;

#[cfg(test)]
mod tests {
    use super::*;

    arguments! {
        /// Some.
        Some_ {
            path: String = "Where.",
            limit: Option<u64> = "How many.",
            all: Option<bool> = "Each of them?",
        }
    }

    fn parse(arguments: Value) -> Result<Some_, String> {
        Some_::parse(arguments.as_object().unwrap())
    }

    #[test]
    fn what_fits_is_taken_as_it_is() {
        let found = parse(json!({ "path": "a", "limit": 3, "all": null }));
        assert_eq!(
            found,
            Ok(Some_ {
                path: "a".to_owned(),
                limit: Some(3),
                all: None
            })
        );
    }

    #[test]
    fn schema_error_says_what_was_found_and_expected() {
        for (arguments, error) in [
            (json!({}), "`path` is missing; expected a string"),
            (
                json!({ "path": null }),
                "`path`: expected a string, found null",
            ),
            (
                json!({ "path": ["a"] }),
                "`path`: expected a string, found [\"a\"]",
            ),
            (
                json!({ "path": "a", "limit": "3" }),
                "`limit`: expected a whole number from 1, found \"3\"",
            ),
            (
                json!({ "path": "a", "limit": 0 }),
                "`limit`: expected a whole number from 1, found 0",
            ),
            (
                json!({ "path": "a", "limit": -1 }),
                "`limit`: expected a whole number from 1, found -1",
            ),
            (
                json!({ "path": "a", "all": "true" }),
                "`all`: expected true or false, found \"true\"",
            ),
            (
                json!({ "path": "a", "file": "b" }),
                "there is no argument `file`; expected `path`, `limit`, `all`",
            ),
        ] {
            assert_eq!(parse(arguments), Err(error.to_owned()));
        }
        let long = parse(json!({ "path": vec!["ä"; 1000] })).unwrap_err();
        assert!(long.len() < 120 && long.ends_with('…'), "{long}");
    }

    #[test]
    fn the_schema_says_the_same_as_the_type() {
        assert_eq!(
            Some_::schema(),
            json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "Where." },
                    "limit": { "type": "integer", "minimum": 1, "description": "How many." },
                    "all": { "type": "boolean", "description": "Each of them?" },
                },
                "required": ["path"],
                "additionalProperties": false,
            })
        );
    }
}
