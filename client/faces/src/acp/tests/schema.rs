//! What the face says against the types of the protocol's own crate, as far as that version has them.
//! Later words are checked by the TypeScript SDK (`tests/it/acp_server`).

use agent_client_protocol_schema as theirs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Words that are younger than that crate.
const YOUNGER: &[&str] = &["name"];

/// Reads ours with theirs, and nothing of it may be lost.
#[track_caller]
fn same<T: DeserializeOwned + Serialize>(ours: &Value) {
    let read: T =
        serde_json::from_value(ours.clone()).unwrap_or_else(|why| panic!("{why}: {ours}"));
    let again = serde_json::to_value(&read).unwrap();
    if let Some(lost) = lost("", ours, &again) {
        panic!("{lost} is not in the schema: {ours}");
    }
}

fn lost(at: &str, ours: &Value, theirs: &Value) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => ours.iter().find_map(|(name, value)| {
            let path = format!("{at}/{name}");
            match theirs.get(name) {
                Some(found) => lost(&path, value, found),
                // What is a default is left out by theirs.
                None if is_default(value) || YOUNGER.contains(&name.as_str()) => None,
                None => Some(path),
            }
        }),
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            let pairs = ours.iter().zip(theirs);
            pairs
                .enumerate()
                .find_map(|(place, (ours, theirs))| lost(&format!("{at}/{place}"), ours, theirs))
        }
        (Value::Number(ours), Value::Number(theirs)) if ours.as_f64() == theirs.as_f64() => None,
        (ours, theirs) => (ours != theirs).then(|| at.to_owned()),
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::String(word) => ["pending", "other"].contains(&word.as_str()),
        Value::Bool(flag) => !flag,
        _ => false,
    }
}

/// A line that was said; of an answer, to which method.
#[track_caller]
pub(super) fn check(said: &Value, method: Option<&str>) {
    if let Some(method) = said["method"].as_str() {
        let params = &said["params"];
        match method {
            "session/update" if params["update"]["sessionUpdate"] == "notice" => {}
            "session/update" => same::<theirs::SessionNotification>(params),
            "session/request_permission" => same::<theirs::RequestPermissionRequest>(params),
            "$/cancel_request" => same::<theirs::CancelRequestNotification>(params),
            other => panic!("nobody looks at {other}: {said}"),
        }
        return;
    }
    if said["error"].is_object() {
        return same::<theirs::Error>(&said["error"]);
    }
    let result = &said["result"];
    match method.unwrap_or_else(|| panic!("an answer to nothing: {said}")) {
        "initialize" => {
            let mut result = result.clone();
            let can = result.pointer_mut("/agentCapabilities/sessionCapabilities");
            let can = can.unwrap().as_object_mut().unwrap();
            // These are younger.
            can.retain(|name, _| name != "delete" && name != "title");
            same::<theirs::InitializeResponse>(&result);
        }
        "session/new" => same::<theirs::NewSessionResponse>(result),
        "session/load" => same::<theirs::LoadSessionResponse>(result),
        "session/resume" => same::<theirs::ResumeSessionResponse>(result),
        "session/fork" => same::<theirs::ForkSessionResponse>(result),
        "session/list" => same::<theirs::ListSessionsResponse>(result),
        "session/close" => same::<theirs::CloseSessionResponse>(result),
        "session/prompt" => same::<theirs::PromptResponse>(result),
        "session/set_config_option" => same::<theirs::SetSessionConfigOptionResponse>(result),
        "session/set_model" => same::<theirs::SetSessionModelResponse>(result),
        "session/set_mode" => same::<theirs::SetSessionModeResponse>(result),
        "session/delete" | "session/set_title" => assert_eq!(*result, serde_json::json!({})),
        other => panic!("nobody looks at {other}: {said}"),
    }
}
