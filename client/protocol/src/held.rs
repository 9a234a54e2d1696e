//! Lines that rows have in them, by their names: the final line of a turn, and any.
//!
//! Owns what a schema calls them. Must not know what they say: a line has rows, too.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

macro_rules! held {
    ($(#[$doc:meta] $name:ident $reference:literal)*) => {$(
        #[$doc]
        pub(crate) enum $name {}

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"$ref": $reference})
            }

            fn inline_schema() -> bool {
                true
            }
        }
    )*};
}

held! {
    /// `message_end`, or an `error` with a job.
    FinalLine "#/$defs/FinalLine"
    /// Any line of a turn.
    AnyLine "#/$defs/Line"
}
