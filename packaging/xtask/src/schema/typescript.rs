//! The types of the TypeScript package, made of the JSON Schema.
//!
//! Owns how a schema is written as a type. Must not know which lines there are.

use std::fmt::Write as _;

use serde_json::Value;

const HEAD: &str = "\
// The lines of agentd's protocol 1 as types, made of `client/protocol/schema.json` by
// `cargo xtask schema`: changes are made there.
";

/// The whole file.
pub(super) fn types(document: &Value) -> String {
    let mut file = HEAD.to_owned();
    for (name, schema) in document["$defs"].as_object().into_iter().flatten() {
        file.push('\n');
        documented(&mut file, schema, "");
        if is_interface(schema) {
            let _infallible = writeln!(file, "export interface {name} {}", object(schema, ""));
        } else {
            let _infallible = writeln!(file, "export type {name} ={};", spread(schema));
        }
    }
    table(&mut file, document);
    file
}

/// What holds for each request, as values and as types.
fn table(file: &mut String, document: &Value) {
    file.push_str(
        "\n/** Each request and the line that answers it, unless that is an `error`. */\n",
    );
    file.push_str("export interface Requests {\n");
    let rows = || document["requests"].as_object().into_iter().flatten();
    for (name, row) in rows() {
        let (request, answer) = (text(&row["request"]), text(&row["answer"]));
        let _infallible = writeln!(
            file,
            "  {}: {{ request: {request}; answer: {answer} }};",
            key(name)
        );
    }
    file.push_str(
        "}\n\n/** What holds for each request, whatever it says. */\nexport const REQUESTS = {\n",
    );
    for (name, row) in rows() {
        let rest = ["changes", "takes_long", "from_worker", "from_send_only_key"];
        let rest: Vec<String> = rest
            .iter()
            .map(|of| format!("{of}: {}", row[*of]))
            .collect();
        let _infallible = writeln!(file, "  {}: {{ {} }},", key(name), rest.join(", "));
    }
    file.push_str("} as const;\n\n/** The members of a send, by all their names. */\n");
    let members = document["$defs"]["SendRequest"]["properties"].as_object();
    let members: Vec<&str> = members
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    listed(file, "SEND_FIELDS", members.iter().copied(), "");
    file.push_str("\n/** Every code of an `error`. */\n");
    let codes = document["$defs"]["Code"]["enum"].as_array();
    let codes = codes.into_iter().flatten().map(text);
    listed(file, "CODES", codes, " satisfies readonly Code[]");
}

/// Names, each on a line of its own.
fn listed<'a>(file: &mut String, name: &str, all: impl Iterator<Item = &'a str>, which: &str) {
    let _infallible = writeln!(file, "export const {name} = [");
    for one in all {
        let _infallible = writeln!(file, "  {one:?},");
    }
    let _infallible = writeln!(file, "] as const{which};");
}

fn text(of: &Value) -> &str {
    of.as_str().unwrap_or_default()
}

fn is_interface(schema: &Value) -> bool {
    schema.get("properties").is_some() && schema.get("oneOf").is_none()
}

fn documented(file: &mut String, schema: &Value, indent: &str) {
    let Some(what) = schema.get("description").and_then(Value::as_str) else {
        return;
    };
    let what = what.replace("*/", "* /");
    let lines: Vec<&str> = what.lines().collect();
    if let [one] = lines.as_slice() {
        let _infallible = writeln!(file, "{indent}/** {one} */");
        return;
    }
    let _infallible = writeln!(file, "{indent}/**");
    for line in lines {
        let line = format!("{indent} * {line}");
        let _infallible = writeln!(file, "{}", line.trim_end());
    }
    let _infallible = writeln!(file, "{indent} */");
}

/// A name as a key of an object.
fn key(name: &str) -> String {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.chars().all(fine) {
        name.to_owned()
    } else {
        format!("{name:?}")
    }
}

fn required(schema: &Value) -> Vec<&str> {
    let own = schema.get("required").and_then(Value::as_array);
    // Of several names that a member has, the first is the one that is written here.
    let either = schema
        .get("anyOf")
        .and_then(|any| any[0]["required"].as_array());
    own.into_iter()
        .chain(either)
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn object(schema: &Value, indent: &str) -> String {
    let inside = format!("{indent}  ");
    let required = required(schema);
    let mut text = "{\n".to_owned();
    for (name, says) in schema["properties"].as_object().into_iter().flatten() {
        if says.get("alias_of").is_some() {
            continue;
        }
        documented(&mut text, says, &inside);
        let optional = if required.contains(&name.as_str()) {
            ""
        } else {
            "?"
        };
        let says = written(says, &inside);
        let _infallible = writeln!(text, "{inside}{}{optional}: {says};", key(name));
    }
    let _infallible = write!(text, "{indent}}}");
    text
}

/// Several that are one of them stand on lines of their own.
fn spread(schema: &Value) -> String {
    let any = schema
        .get("oneOf")
        .or_else(|| schema.get("anyOf"))
        .and_then(Value::as_array);
    let words = schema.get("enum").and_then(Value::as_array);
    let each: Vec<String> = match (any, words) {
        (Some(any), _) => any.iter().map(|one| written(one, "  ")).collect(),
        (_, Some(words)) => words.iter().map(ToString::to_string).collect(),
        _ => return format!(" {}", written(schema, "")),
    };
    each.iter().map(|one| format!("\n  | {one}")).collect()
}

fn written(schema: &Value, indent: &str) -> String {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return reference.rsplit('/').next().unwrap_or_default().to_owned();
    }
    if let Some(word) = schema.get("const") {
        return word.to_string();
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        return words.join(" | ");
    }
    let any = schema
        .get("oneOf")
        .or_else(|| schema.get("anyOf"))
        .and_then(Value::as_array);
    if let Some(any) = any {
        let any: Vec<String> = any.iter().map(|one| written(one, indent)).collect();
        return any.join(" | ");
    }
    match schema.get("type") {
        Some(Value::Array(kinds)) => {
            let kinds: Vec<String> = kinds
                .iter()
                .map(|kind| of_kind(text(kind), schema, indent))
                .collect();
            kinds.join(" | ")
        }
        Some(kind) => of_kind(text(kind), schema, indent),
        None => "unknown".to_owned(),
    }
}

fn of_kind(kind: &str, schema: &Value, indent: &str) -> String {
    match kind {
        "integer" | "number" => "number".to_owned(),
        "array" => {
            let item = schema
                .get("items")
                .map_or("unknown".to_owned(), |item| written(item, indent));
            if item.contains(' ') {
                format!("({item})[]")
            } else {
                format!("{item}[]")
            }
        }
        "object" if schema.get("properties").is_some() => object(schema, indent),
        "object" => {
            let says = schema
                .get("additionalProperties")
                .filter(|says| says.is_object());
            let says = says.map_or("unknown".to_owned(), |says| written(says, indent));
            format!("Record<string, {says}>")
        }
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn typescript_has_each_kind_of_schema() {
        for (schema, expected) in [
            (json!({"type": "integer"}), "number"),
            (json!({"type": ["string", "null"]}), "string | null"),
            (
                json!({"anyOf": [{"$ref": "#/$defs/Scope"}, {"type": "null"}]}),
                "Scope | null",
            ),
            (
                json!({"type": "array", "items": {"enum": ["a", "b"]}}),
                "(\"a\" | \"b\")[]",
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                "Record<string, string>",
            ),
            (json!({}), "unknown"),
            (
                json!({"type": "object", "properties": {"a.b": {"const": 1}}}),
                "{\n  \"a.b\"?: 1;\n}",
            ),
        ] {
            assert_eq!(written(&schema, ""), expected, "{schema}");
        }
    }

    #[test]
    fn typescript_needs_one_of_several_names() {
        let schema = json!({"type": "object", "properties": {
            "text": {"type": "string"}, "prompt": {"type": "string", "alias_of": "text"}},
            "anyOf": [{"required": ["text"]}, {"required": ["prompt"]}]});
        assert_eq!(object(&schema, ""), "{\n  text: string;\n}");
    }
}
