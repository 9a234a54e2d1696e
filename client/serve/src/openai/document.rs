//! What the document says of these routes.
//!
//! Owns their words. Of a body it names what counts here: OpenAI's own document has the rest.

use serde_json::{Map, Value, json};

use super::routes::Route;

/// Puts the routes among the paths of the document.
pub(crate) fn add(paths: &mut Map<String, Value>) {
    for route in Route::ALL {
        let mut told = operation(route);
        if let Value::Object(told) = &mut told {
            told.insert("tags".to_owned(), json!(["openai"]));
            let responses = told.entry("responses").or_insert_with(|| json!({}));
            responses["default"] = content("application/json", &error(), "Why there is no answer");
        }
        let path = paths.entry(route.path()).or_insert_with(|| json!({}));
        path[route.method().as_str().to_ascii_lowercase()] = told;
    }
}

fn content(kind: &str, schema: &Value, what: &str) -> Value {
    let mut content = Map::new();
    content.insert(kind.to_owned(), json!({ "schema": schema }));
    json!({"description": what, "content": content})
}

fn error() -> Value {
    let text = json!({"type": "string"});
    let maybe = json!({"type": ["string", "null"]});
    json!({"type": "object", "required": ["error"], "properties": {"error": {
        "type": "object", "required": ["message", "type", "param", "code"],
        "properties": {"message": text, "type": text, "param": maybe, "code": maybe}}}})
}

fn answer(what: &str) -> Value {
    content("application/json", &json!({"type": "object"}), what)
}

/// An answer of an agent: what OpenAI's or Hermes' has no member for stands beside.
fn turn(what: &str) -> Value {
    let text = json!({"type": "string"});
    let note = fields(
        &["level", "code", "text"],
        &json!({"level": text, "code": text, "text": text}),
    );
    let mut beside = fields(&[], &json!({"note": note, "stop": text}));
    beside["description"] = json!(
        "`note` where the agent had lost the turns before, `stop` of a chat that was cancelled"
    );
    let whole = fields(&[], &json!({"agentd": beside}));
    content("application/json", &whole, what)
}

/// Whole, or as it is said.
fn answer_or_stream(what: &str) -> Value {
    let mut answer = turn(what);
    answer["content"]["text/event-stream"] = json!({"schema": {}});
    answer
}

fn body(schema: &Value) -> Value {
    json!({"required": true, "content": {"application/json": {"schema": schema}}})
}

fn fields(required: &[&str], properties: &Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties})
}

fn id(pattern: &str) -> Value {
    json!({"name": "id", "in": "path", "required": true,
        "schema": {"type": "string", "pattern": pattern}})
}

fn response_id() -> Value {
    id("^resp_j[1-9][0-9]{0,18}$")
}

fn run_id() -> Value {
    id("^run_j[1-9][0-9]{0,18}$")
}

fn messages() -> Value {
    json!({"type": "array", "minItems": 1, "items": {
        "type": "object", "required": ["role", "content"], "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": {"type": "string"}}}})
}

fn input() -> Value {
    json!({"anyOf": [{"type": "string", "pattern": "\\S"}, messages()]})
}

/// What is said of a route, its errors apart.
fn operation(of: Route) -> Value {
    let (text, yes) = (json!({"type": "string"}), json!({"type": "boolean"}));
    match of {
        Route::Models => json!({"operationId": "openai_models",
            "summary": "The agents that can answer, as models",
            "responses": {"200": answer("OpenAI's list")}}),
        Route::Model => json!({"operationId": "openai_model",
            "summary": "One model: `agent`, `agent/model` or `agent/provider/model`",
            "parameters": [id("^[^/]+$")], "responses": {"200": answer("It is there")}}),
        Route::Chat => {
            let properties = json!({"model": text, "messages": messages(), "stream": yes,
                "stream_options": {"type": "object", "properties": {"include_usage": yes}},
                "user": text});
            json!({"operationId": "openai_chat", "summary": "A chat completion, by an agent",
                "requestBody": body(&fields(&["messages"], &properties)),
                "responses": {"200": answer_or_stream("OpenAI's chat completion, or its chunks")}})
        }
        Route::Respond => {
            let properties = json!({"model": text, "input": input(), "instructions": text,
                "stream": yes, "background": yes, "store": yes, "previous_response_id": text});
            json!({"operationId": "openai_respond", "summary": "A response, by an agent",
                "requestBody": body(&fields(&["input"], &properties)),
                "responses": {"200": answer_or_stream("OpenAI's response, or its events")}})
        }
        Route::Response => json!({"operationId": "openai_response",
            "summary": "A response, read again, or its events from the beginning",
            "parameters": [response_id(), {"name": "stream", "in": "query", "schema": yes}],
            "responses": {"200": answer_or_stream("OpenAI's response, or its events")}}),
        Route::DeleteResponse => json!({"operationId": "openai_delete_response",
            "summary": "Not to be read again; its job is kept", "parameters": [response_id()],
            "responses": {"200": answer("It is deleted")}}),
        Route::InputItems => json!({"operationId": "openai_input_items",
            "summary": "What a response was asked", "parameters": [response_id()],
            "responses": {"200": answer("OpenAI's list")}}),
        Route::CancelResponse => json!({"operationId": "openai_cancel_response",
            "summary": "Cancel a response", "parameters": [response_id()],
            "responses": {"200": answer("OpenAI's response")}}),
        Route::MakeConversation => json!({"operationId": "openai_make_conversation",
            "summary": "A name for a conversation, which its first response makes",
            "requestBody": {"required": false, "content": {"application/json": {
                "schema": {"type": "object"}}}},
            "responses": {"200": answer("OpenAI's conversation")}}),
        Route::Conversation => json!({"operationId": "openai_conversation",
            "summary": "A conversation: the session of this name", "parameters": [id("^[^/]+$")],
            "responses": {"200": answer("OpenAI's conversation")}}),
        Route::StartRun => {
            let properties = json!({"model": text, "input": input(), "instructions": text,
                "session_id": text, "previous_response_id": text,
                "conversation_history": messages()});
            json!({"operationId": "openai_start_run", "summary": "Start a run",
                "requestBody": body(&fields(&["input"], &properties)),
                "responses": {"202": answer("It was accepted: it survives power loss")}})
        }
        Route::Run => json!({"operationId": "openai_run", "summary": "How a run is",
            "parameters": [run_id()], "responses": {"200": turn("The run")}}),
        Route::RunEvents => json!({"operationId": "openai_run_events",
            "summary": "A run's events, from the beginning or from behind `Last-Event-ID`",
            "parameters": [run_id()], "responses": {
                "200": content("text/event-stream", &json!({}), "Until its end"),
                "204": {"description": "The run has ended, and nothing is left to tell"}}}),
        Route::ApproveRun => {
            let properties = json!({"choice": text, "question_id": text, "all": yes});
            json!({"operationId": "openai_approve_run", "summary": "Answer what a run asks",
                "parameters": [run_id()],
                "requestBody": body(&fields(&["choice"], &properties)),
                "responses": {"200": answer("The agent hears it")}})
        }
        Route::StopRun => json!({"operationId": "openai_stop_run", "summary": "Stop a run",
            "parameters": [run_id()], "responses": {"200": answer("How it is")}}),
        Route::Capabilities => json!({"operationId": "openai_capabilities",
            "summary": "What is there", "responses": {"200": answer("As Hermes' API server has it")}}),
    }
}
