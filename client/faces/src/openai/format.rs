//! The form that an answer is asked to have.
//!
//! Owns the words in which an agent is told of it. Must not know who asks. No agent is held to it: a
//! model could be, token by token, but between us and the model there is an agent.

use serde_json::Value;

use super::failure::Failure;

/// Above these words. What is read of a session's beginning ends before it.
const HEADING: &str = "# Form of the answer\n\n";
const JSON: &str =
    "Answer with one JSON object and nothing else: no words around it, and no code fence.";

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Any text.
    Free,
    /// What these words say.
    Told(String),
    /// A form that is none of an agent's.
    Unknown,
}

/// Reads a format. Chats have what belongs to a schema in an object of its own, responses beside
/// its type.
///
/// # Errors
/// When it isn't an object that says its type.
pub(super) fn read(format: &Value, param: &str) -> Result<Form, Failure> {
    let Some(kind) = format.get("type").and_then(Value::as_str) else {
        let why = format!("`{param}`: expected an object with a string as its `type`");
        return Err(Failure::invalid(param, why));
    };
    Ok(match kind {
        "text" => Form::Free,
        "json_object" => Form::Told(format!("{HEADING}{JSON}")),
        "json_schema" => {
            let of = format.get("json_schema").unwrap_or(format);
            let Some(schema) = of.get("schema").filter(|schema| schema.is_object()) else {
                let why = format!("`{param}`: expected an object as the `schema`");
                return Err(Failure::invalid(param, why));
            };
            let word = |name: &str| of.get(name).and_then(Value::as_str);
            let about = word("description").map(|about| format!("\n\n{about}"));
            let about = about.unwrap_or_default();
            let name = word("name").map(|name| format!(" `{name}`"));
            let name = name.unwrap_or_default();
            Form::Told(format!(
                "{HEADING}{JSON} It has to fit the JSON Schema{name}:\n\n```json\n{schema}\n```{about}"
            ))
        }
        _ => Form::Unknown,
    })
}

/// What was said besides these words.
#[must_use]
pub fn without(system: &str) -> &str {
    let before = system.rsplit_once(HEADING).map(|(before, _)| before);
    before.unwrap_or(system).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn format_is_told_in_words() {
        let told = |format: &Value| match read(format, "text.format").unwrap() {
            Form::Told(words) => words,
            other => panic!("{other:?}"),
        };
        let schema = json!({"type": "object", "required": ["a"]});
        let chat = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
        let response =
            json!({"type": "json_schema", "name": "n", "schema": schema, "strict": true});
        let words = told(&chat);
        assert_eq!(words, told(&response));
        assert!(words.contains("the JSON Schema `n`:") && words.contains(&schema.to_string()));
        assert!(told(&json!({"type": "json_object"})).ends_with(JSON));
        assert_eq!(read(&json!({"type": "text"}), "x").unwrap(), Form::Free);
        let odd = json!({"type": "grammar"});
        assert_eq!(read(&odd, "x").unwrap(), Form::Unknown);
        for wrong in [
            json!(5),
            json!({}),
            json!({"type": 5}),
            json!({"type": "json_schema"}),
            json!({"type": "json_schema", "json_schema": {"schema": "x"}}),
        ] {
            let failure = read(&wrong, "x").unwrap_err();
            assert_eq!(failure.param.as_deref(), Some("x"), "{wrong}");
        }
        assert_eq!(without(&format!("be terse\n\n{words}")), "be terse");
        assert_eq!((without(&words), without("be terse")), ("", "be terse"));
    }
}
