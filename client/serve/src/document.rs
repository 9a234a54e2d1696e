//! The OpenAPI document, made of the types that are read and written.
//!
//! Owns its words. Must not know anything that isn't in a type or in the list of operations.

use agentd_protocol::schema::{enumerated, generator, not_null};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use schemars::generate::{Contract, SchemaGenerator};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::api::Operation;
use crate::dispatch::{Dispatched, Turns, Waiting};
use crate::health::{Detailed, Health};
use crate::jobs::{Aborted, AgentList, Answer, Answered, Filter, InForce, Model, One, Page};
use crate::models::{Behind, CommandPage, ModelPage};
use crate::openai;
use crate::problem::Problem;
use crate::sessions::{Fork, Forked, Title, Titled};

/// What a reader of the document is told first.
const ABOUT: &str = "Turns of AI agents, handed to agentd and collected from it. Every request but \
    `/health` needs the token that `agentctl token` prints. Fields are explained in the protocol's \
    document, `client/PROTOCOL.md`.";

/// Where the document has its definitions.
const COMPONENTS: &str = "/components/schemas";

/// Schemas of what is read, and of what is written.
struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        Self {
            read: generator(Contract::Deserialize, COMPONENTS),
            written: generator(Contract::Serialize, COMPONENTS),
        }
    }

    fn body<T: JsonSchema>(&mut self) -> Value {
        let schema = self.read.subschema_for::<T>();
        json!({"required": true, "content": {"application/json": {"schema": schema}}})
    }

    fn answer<T: JsonSchema>(&mut self, what: &str) -> Value {
        let schema = self.written.subschema_for::<T>();
        json!({"description": what, "content": {"application/json": {"schema": schema}}})
    }

    /// One parameter for each field.
    fn query<T: JsonSchema>(&mut self) -> Vec<Value> {
        let schema = T::json_schema(&mut self.read);
        let fields = schema.get("properties").and_then(Value::as_object);
        let fields = fields.cloned().unwrap_or_default();
        let parameter = |(name, schema): (String, Value)| {
            // What isn't given in a query isn't there.
            let mut schema = not_null(schema);
            let what = schema
                .as_object_mut()
                .and_then(|all| all.shift_remove("description"));
            json!({"name": name, "in": "query", "description": what, "schema": schema})
        };
        fields.into_iter().map(parameter).collect()
    }

    fn components(mut self) -> Map<String, Value> {
        let mut all = self.read.take_definitions(true);
        all.extend(self.written.take_definitions(true));
        all
    }
}

fn content(kind: &str, schema: Value, what: &str) -> Value {
    let mut content = Map::new();
    content.insert(kind.to_owned(), json!({ "schema": schema }));
    json!({"description": what, "content": content})
}

fn id(pattern: &str) -> Value {
    json!({"name": "id", "in": "path", "required": true,
        "schema": {"type": "string", "pattern": pattern}})
}

fn header_of(name: &str, what: &str, schema: Value) -> Value {
    let mut header = json!({"name": name, "in": "header", "description": what});
    if let Some(header) = header.as_object_mut() {
        header.insert("schema".to_owned(), schema);
    }
    header
}

fn job() -> Value {
    id("^j[1-9][0-9]{0,18}$")
}

/// What is said of an operation, its errors apart.
fn operation(of: Operation, schemas: &mut Schemas) -> Value {
    match of {
        Operation::Dispatch => {
            let what = "The same key is the same request: nothing runs twice. Of several turns each \
                has it with its place and their number, as in `KEY 1/2`: a list of another length is \
                another request.";
            let key =
                json!({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!#-~]+$"});
            let mut parameters = schemas.query::<Waiting>();
            parameters.push(header_of("Idempotency-Key", what, key));
            json!({"operationId": "dispatch", "summary": "Hand in turns, all or none",
                "parameters": parameters, "requestBody": schemas.body::<Turns>(), "responses": {
                    "200": schemas.answer::<Dispatched>("Accepted, and all are done"),
                    "202": schemas.answer::<Dispatched>("Accepted: they survive power loss")}})
        }
        Operation::Jobs => json!({"operationId": "list_jobs", "summary": "Jobs, newest first",
            "parameters": schemas.query::<Filter>(),
            "responses": {"200": schemas.answer::<Page>("One page")}}),
        Operation::Job => {
            let mut parameters = schemas.query::<Waiting>();
            parameters.push(job());
            json!({"operationId": "get_job", "summary": "A job, and its result if it is done",
                "parameters": parameters, "responses": {"200": schemas.answer::<One>("The job")}})
        }
        Operation::Events => {
            let what = "The `id` of the last event that was read: later ones follow";
            let cursor = json!({"type": "string", "pattern": "^[0-9]{1,19}(\\.[0-9a-z-]+)?$"});
            json!({"operationId": "watch_job", "summary": "A job's lines as they come",
            "parameters": [job(), header_of("Last-Event-ID", what, cursor)], "responses": {
                "200": content("text/event-stream", json!({}), "Lines of the protocol, until the final one"),
                "204": {"description": "The job has ended, and nothing is left to tell"}}})
        }
        Operation::Abort => json!({"operationId": "abort_job", "summary": "Cancel a job",
            "parameters": [job()],
            "responses": {"200": schemas.answer::<Aborted>("What is being cancelled")}}),
        Operation::Answer => json!({"operationId": "answer_question",
            "summary": "Answer what an agent asks", "parameters": [id("^[^/]+$")],
            "requestBody": schemas.body::<Answer>(),
            "responses": {"200": schemas.answer::<Answered>("The agent hears it")}}),
        Operation::Model => json!({"operationId": "set_model",
            "summary": "Another model, thinking level or mode for the turns of a session from now on",
            "parameters": [id("^[^/]+$")], "requestBody": schemas.body::<Model>(),
            "responses": {"200": schemas.answer::<InForce>("It is in force")}}),
        Operation::Title => json!({"operationId": "set_session_title",
            "summary": "What a session is called in lists",
            "parameters": [id("^[^/]+$")], "requestBody": schemas.body::<Title>(),
            "responses": {"200": schemas.answer::<Titled>("It is called so")}}),
        Operation::Fork => json!({"operationId": "fork_session",
            "summary": "Another session that begins with what the agent remembers of one",
            "parameters": [id("^[^/]+$")], "requestBody": schemas.body::<Fork>(),
            "responses": {"200": schemas.answer::<Forked>("The new session")}}),
        Operation::SessionModels => models("session", "list_session_models", schemas),
        Operation::AgentModels => models("agent", "list_agent_models", schemas),
        Operation::SessionCommands => commands("session", "list_session_commands", schemas),
        Operation::AgentCommands => commands("agent", "list_agent_commands", schemas),
        Operation::Agents => json!({"operationId": "list_agents",
            "summary": "Which agents there are, and whether each is usable",
            "responses": {"200": schemas.answer::<AgentList>("Every agent known or looked for")}}),
        Operation::Health => json!({"operationId": "health", "summary": "Is this server there?",
            "security": [], "responses": {"200": schemas.answer::<Health>("It is")}}),
        Operation::Detailed => json!({"operationId": "health_detailed",
            "summary": "How is the daemon?",
            "responses": {"200": schemas.answer::<Detailed>("It answers")}}),
        Operation::Metrics => json!({"operationId": "metrics", "summary": "For Prometheus",
            "responses": {"200": content("text/plain", json!({"type": "string"}), "Text format 0.0.4; `agentd_up 0` without a daemon")}}),
        Operation::Document => json!({"operationId": "openapi", "summary": "This document",
            "responses": {"200": content("application/json", json!({"type": "object"}), "OpenAPI 3.1")}}),
    }
}

fn models(of: &str, name: &str, schemas: &mut Schemas) -> Value {
    let mut parameters = schemas.query::<Behind>();
    parameters.push(id("^[^/]+$"));
    let summary = format!("Which models the agent of this {of} has, as it says itself");
    let summary = summary.replace("the agent of this agent", "an agent");
    json!({"operationId": name, "summary": summary, "parameters": parameters,
        "responses": {"200": schemas.answer::<ModelPage>("One page; mostly that is all")}})
}

fn commands(of: &str, name: &str, schemas: &mut Schemas) -> Value {
    let summary = format!("Which slash commands the agent of this {of} has, as it says itself");
    let summary = summary.replace("the agent of this agent", "an agent");
    json!({"operationId": name, "summary": summary, "parameters": [id("^[^/]+$")],
        "responses": {"200": schemas.answer::<CommandPage>("All of them")}})
}

/// The whole document.
pub(crate) fn document() -> String {
    let mut schemas = Schemas::new();
    let problem: Schema = schemas.written.subschema_for::<Problem>();
    let problem = json!({"description": "Why there is no answer (RFC 9457)",
        "content": {"application/problem+json": {"schema": problem}}});
    let mut paths = Map::new();
    for one in Operation::ALL {
        let mut told = operation(one, &mut schemas);
        if let Some(Value::Object(responses)) = told.get_mut("responses") {
            responses.insert("default".to_owned(), problem.clone());
        }
        let path = paths.entry(one.path()).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(one.method().as_str().to_ascii_lowercase(), told);
        }
    }
    openai::document::add(&mut paths);
    let token = json!({"type": "http", "scheme": "bearer"});
    let mut document = json!({"openapi": "3.1.0",
        "info": {"title": "agentd", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT},
        "security": [{"token": []}], "paths": paths,
        "components": {"schemas": schemas.components(), "securitySchemes": {"token": token}}});
    enumerated(&mut document);
    document.to_string()
}

pub(crate) fn response(document: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `$ref` of a value.
    fn references(of: &Value, found: &mut Vec<String>) {
        match of {
            Value::Object(all) => {
                if let Some(Value::String(reference)) = all.get("$ref") {
                    found.push(reference.clone());
                }
                all.values().for_each(|one| references(one, found));
            }
            Value::Array(all) => all.iter().for_each(|one| references(one, found)),
            _ => {}
        }
    }

    #[test]
    fn document_has_every_operation_and_its_schemas() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        for one in Operation::ALL {
            let method = one.method().as_str().to_ascii_lowercase();
            let told = &document["paths"][one.path()][method];
            assert!(told["operationId"].is_string(), "{one:?}");
            assert!(told["responses"]["default"].is_object(), "{one:?}");
        }
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 10, "{found:?}");
        for reference in found {
            let at = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(at).is_some(), "{reference}");
        }
    }

    #[test]
    fn what_restricts_a_turn_is_in_its_schema() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        let job = &document["components"]["schemas"]["Job"];
        assert_eq!(job["required"], json!(["prompt"]));
        assert_eq!(job["additionalProperties"], json!(false));
        let context = &document["components"]["schemas"]["Context"];
        assert_eq!(context["enum"], json!(["continued", "new", "lost"]));
        let asked = document["paths"]["/v1/jobs"]["get"]["parameters"].as_array();
        let mut asked = asked.unwrap().iter();
        let state = asked.find(|one| one["name"] == "state").unwrap();
        assert_eq!(state["schema"]["$ref"], "#/components/schemas/JobPhase");
    }
}
