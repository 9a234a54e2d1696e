//! The JSON Schema of every line, made of the table of requests and the types that are read and
//! written.
//!
//! Owns how these become one document, and how schemas are made wherever they are. Must not know who
//! reads it.

use schemars::generate::{Contract, SchemaGenerator, SchemaSettings};
use schemars::transform::ReplaceBoolSchemas;
use schemars::{JsonSchema as _, Schema};
use serde_json::{Map, Value, json};

use crate::line::Line;
use crate::request_table::{Inside, RequestEffect, RequestKind, SendOnlySshKey};

/// What a reader of the document is told first.
const ABOUT: &str = "Every line of agentd's protocol 1. Each is an object of its own, and more \
    members may come with a later version: whoever reads passes over what it doesn't know. \
    `requests` says of each request which line answers it, unless that is an `error`; what its \
    members mean is in PROTOCOL.md.";

/// Where the definitions of the document are.
const DEFINITIONS: &str = "/$defs";

/// Other names of the members of a send and of what else takes a text.
const ALIASES: &[(&str, &[&str])] = &[("text", &["prompt", "message"]), ("toolsets", &["tools"])];

/// What makes schemas, of what is read or of what is written.
#[must_use]
pub fn generator(contract: Contract, definitions: &str) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = definitions.to_owned().into();
        settings.meta_schema = None;
        settings.contract = contract;
    });
    // What may be anything is an object without words: not every reader takes `true`.
    let mut anything = ReplaceBoolSchemas::default();
    anything.skip_additional_properties = true;
    settings.with_transform(anything).into_generator()
}

/// One list of words where each has a schema of its own, as those with a comment do: few makers of
/// clients understand that.
pub fn enumerated(of: &mut Value) {
    match of {
        Value::Object(all) => {
            let word = |one: &Value| one.get("const").filter(|word| word.is_string()).cloned();
            let words = |one: &Value| match one.get("enum").and_then(Value::as_array) {
                Some(several) => Some(several.clone()),
                None => word(one).map(|word| vec![word]),
            };
            let each = all.get("oneOf").and_then(Value::as_array);
            let each = each.and_then(|each| each.iter().map(words).collect::<Option<Vec<_>>>());
            if let Some(each) = each {
                all.shift_remove("oneOf");
                all.insert("type".to_owned(), json!("string"));
                all.insert("enum".to_owned(), Value::Array(each.concat()));
            }
            all.values_mut().for_each(enumerated);
        }
        Value::Array(all) => all.iter_mut().for_each(enumerated),
        _ => {}
    }
}

/// The whole document.
#[must_use]
pub fn document() -> Value {
    let mut definitions = Map::new();
    let requests = requests(&mut definitions);
    let lines = lines(&mut definitions);
    let either = [("Request", &requests), ("Line", &lines)];
    for (name, all) in either {
        let all: Vec<Value> = all.iter().map(|name| reference(name)).collect();
        definitions.insert(name.to_owned(), json!({ "oneOf": all }));
    }
    let ends = ["MessageEndLine", "ErrorLine"].map(reference);
    definitions.insert("FinalLine".to_owned(), json!({ "oneOf": ends }));
    definitions.sort_keys();
    let mut table = Map::new();
    for kind in RequestKind::ALL {
        table.insert(kind.name().to_owned(), row(*kind));
    }
    let mut document = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agentd, protocol 1",
        "description": ABOUT,
        "anyOf": either.map(|(name, _)| reference(name)),
        "requests": table,
        "$defs": definitions,
    });
    enumerated(&mut document);
    document
}

fn reference(name: &str) -> Value {
    json!({"$ref": path(name)})
}

fn path(name: &str) -> String {
    format!("#{DEFINITIONS}/{name}")
}

/// What the table says of a request.
fn row(kind: RequestKind) -> Value {
    let rules = kind.rules();
    json!({
        "request": format!("{kind:?}Request"),
        "answer": line_name(rules.answer),
        "changes": rules.effect.changes(),
        "takes_long": matches!(rules.effect, RequestEffect::ReadsLong | RequestEffect::ChangesLong),
        "from_worker": rules.inside != Inside::Forbidden,
        "from_send_only_key": rules.send_only != SendOnlySshKey::Refused,
    })
}

/// `message_end` is `MessageEndLine`.
fn line_name(kind: &str) -> String {
    let mut name = String::new();
    for word in kind.split(['_', '.']) {
        let mut letters = word.chars();
        name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(letters.as_str());
    }
    name + "Line"
}

/// Adds the requests, and gives their names.
fn requests(definitions: &mut Map<String, Value>) -> Vec<String> {
    let mut read = generator(Contract::Deserialize, DEFINITIONS);
    let mut names = Vec::new();
    for kind in RequestKind::ALL {
        let mut schema = kind.schema(&mut read);
        transformed(&mut read, &mut schema);
        let mut schema = schema.to_value();
        aliased(&mut schema);
        // A text alone is a send.
        let needed = match kind {
            RequestKind::Send => Needed::No,
            _ => Needed::Yes,
        };
        tagged(&mut schema, kind.name(), needed);
        let id = json!({"description": "Comes back in every line about it."});
        member(&mut schema, "id", &id);
        let name = format!("{kind:?}Request");
        definitions.insert(name.clone(), schema);
        names.push(name);
    }
    for (name, mut schema) in read.take_definitions(true) {
        aliased(&mut schema);
        definitions.insert(name, schema);
    }
    names
}

/// Adds the lines from the daemon, and gives their names.
fn lines(definitions: &mut Map<String, Value>) -> Vec<String> {
    let mut written = generator(Contract::Serialize, DEFINITIONS);
    let mut all = Line::json_schema(&mut written);
    transformed(&mut written, &mut all);
    let all = all.to_value();
    let mut rows = written.take_definitions(true);
    let mut found = Vec::new();
    for mut schema in all["oneOf"].as_array().cloned().unwrap_or_default() {
        let kind = schema["properties"]["type"]["const"].as_str();
        let kind = kind.unwrap_or_default().to_owned();
        // Of one whose members are those of another type they stand beside `type`.
        let of = schema.get("$ref").and_then(Value::as_str);
        if let Some(of) = of.and_then(|of| of.rsplit('/').next()) {
            schema = rows.remove(of).unwrap_or_default();
            tagged(&mut schema, &kind, Needed::Yes);
        }
        addressed(&mut schema, &kind);
        // What is known of a turn stands in it as a whole, or not at all.
        if kind != "error" {
            never_null(&mut schema);
        }
        found.push((line_name(&kind), schema));
    }
    rows.values_mut().for_each(never_null);
    // What is both read and written has two faces: left out in one may be `null` in the other.
    let differs =
        |(name, row): &(&String, &Value)| definitions.get(*name).is_some_and(|read| read != *row);
    let two_faced: Vec<String> = rows
        .iter()
        .filter(differs)
        .map(|(name, _)| name.clone())
        .collect();
    let mut written = Value::Object(Map::from_iter(found.iter().cloned().chain(rows)));
    for name in two_faced {
        renamed(&mut written, &path(&name));
        if let Some(all) = written.as_object_mut() {
            let row = all.remove(&name).unwrap_or_default();
            all.insert(format!("{name}Row"), row);
        }
    }
    definitions.extend(
        written
            .as_object_mut()
            .map(std::mem::take)
            .unwrap_or_default(),
    );
    found.into_iter().map(|(name, _)| name).collect()
}

/// What is no definition of its own is looked over by nobody else.
fn transformed(generator: &mut SchemaGenerator, schema: &mut Schema) {
    for transform in generator.transforms_mut() {
        transform.transform(schema);
    }
}

/// Every `$ref` to it leads to its row.
fn renamed(of: &mut Value, reference: &str) {
    match of {
        Value::Object(all) => {
            if all.get("$ref").and_then(Value::as_str) == Some(reference) {
                all.insert("$ref".to_owned(), json!(format!("{reference}Row")));
            }
            all.values_mut().for_each(|one| renamed(one, reference));
        }
        Value::Array(all) => all.iter_mut().for_each(|one| renamed(one, reference)),
        _ => {}
    }
}

/// What a line says besides its members: whose it is, and which.
fn addressed(schema: &mut Value, kind: &str) {
    member(
        schema,
        "id",
        &json!({"description": "That of the request."}),
    );
    let seq = json!({"type": "integer", "minimum": 0,
        "description": "Its number in the store, if it has one."});
    member(schema, "seq", &seq);
    if matches!(kind, "accepted" | "message_end" | "error") {
        let replayed = json!({"type": "boolean", "description": "Is it told again, to a request with the key of an earlier one?"});
        member(schema, "replayed", &replayed);
    }
}

/// Must a member be there?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needed {
    Yes,
    No,
}

fn member(schema: &mut Value, name: &str, says: &Value) {
    let all = schema
        .as_object_mut()
        .map(|all| all.entry("properties").or_insert(json!({})));
    if let Some(all) = all.and_then(Value::as_object_mut) {
        all.entry(name).or_insert_with(|| says.clone());
    }
}

/// The same with its `type` before all others.
fn tagged(schema: &mut Value, kind: &str, needed: Needed) {
    let mut all = Map::from_iter([("type".to_owned(), json!({"type": "string", "const": kind}))]);
    if let Some(Value::Object(others)) = schema.get("properties") {
        all.extend(others.clone());
    }
    schema["properties"] = Value::Object(all);
    if needed == Needed::Yes {
        let others = schema.get("required").and_then(Value::as_array).cloned();
        let mut required = vec![json!("type")];
        required.extend(others.unwrap_or_default());
        schema["required"] = Value::Array(required);
    }
}

/// The other names that members have, where these are there.
fn aliased(schema: &mut Value) {
    for (name, others) in ALIASES {
        let says = schema
            .get("properties")
            .and_then(|all| all.get(*name))
            .cloned();
        let Some(mut says) = says else { continue };
        says["description"] = json!(format!("Another name of `{name}`."));
        says["alias_of"] = json!(name);
        for other in *others {
            member(schema, other, &says);
        }
        let required = schema.get_mut("required").and_then(Value::as_array_mut);
        if let Some(required) = required
            && required.contains(&json!(name))
        {
            required.retain(|one| one != name);
            let any = [name].into_iter().chain(*others);
            let any: Vec<Value> = any.map(|one| json!({"required": [one]})).collect();
            schema["anyOf"] = Value::Array(any);
        }
    }
}

/// What may be left out of a line is left out, never `null`.
fn never_null(schema: &mut Value) {
    let required = schema.get("required").and_then(Value::as_array).cloned();
    let required = required.unwrap_or_default();
    let all = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, says) in all.into_iter().flatten() {
        if !required.contains(&json!(name)) {
            *says = not_null(says.take());
        }
    }
}

/// The same without `null`.
#[must_use]
pub fn not_null(mut schema: Value) -> Value {
    let Some(all) = schema.as_object_mut() else {
        return schema;
    };
    if let Some(Value::Array(kinds)) = all.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [one] = kinds.as_slice() {
            let one = one.clone();
            all.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(any)) = all.shift_remove("anyOf") {
        let one = any
            .into_iter()
            .find(|one| one.get("type") != Some(&json!("null")));
        if let Some(Value::Object(one)) = one {
            all.extend(one);
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `$ref` of a value.
    fn references(of: &Value, found: &mut Vec<String>) {
        match of {
            Value::Object(all) => {
                found.extend(all.get("$ref").and_then(Value::as_str).map(str::to_owned));
                all.values().for_each(|one| references(one, found));
            }
            Value::Array(all) => all.iter().for_each(|one| references(one, found)),
            _ => {}
        }
    }

    #[test]
    fn schema_has_every_request_and_its_answer() {
        let document = document();
        let defined = |name: &Value| &document["$defs"][name.as_str().unwrap()];
        for kind in RequestKind::ALL {
            let row = &document["requests"][kind.name()];
            let request = &defined(&row["request"])["properties"]["type"]["const"];
            assert_eq!(request, kind.name());
            let answer = &defined(&row["answer"])["properties"]["type"]["const"];
            assert_eq!(answer, kind.rules().answer);
        }
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 100, "{}", found.len());
        for reference in found {
            let at = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(at).is_some(), "{reference}");
        }
    }

    #[test]
    fn schema_names_every_field_of_a_send() {
        let document = document();
        let send = document["$defs"]["SendRequest"]["properties"]
            .as_object()
            .unwrap();
        for field in crate::request::SEND_FIELDS {
            assert!(send.contains_key(*field), "{field}");
        }
        let codes = document["$defs"]["Code"]["enum"].as_array().unwrap();
        assert!(codes.contains(&json!("context-lost")), "{codes:?}");
    }

    #[test]
    fn schema_says_null_only_where_it_comes() {
        let document = document();
        let end = &document["$defs"]["MessageEndLine"];
        assert_eq!(end["properties"]["refusal"]["type"], "string");
        assert_eq!(
            end["properties"]["provider"]["type"],
            json!(["string", "null"])
        );
        let asked = &document["$defs"]["JobsRequest"]["properties"]["session"]["type"];
        assert_eq!(asked, &json!(["string", "null"]));
    }
}
