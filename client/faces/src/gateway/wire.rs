//! What methods take.
//!
//! Owns the names and types of params: one of another type is refused before anything is done. Must
//! not know what is done.

use agentd_protocol::request::work::Private;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub(super) struct OfSession {
    pub(super) session_id: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[expect(dead_code, reason = "some are read for their type only")]
pub(super) struct Create {
    cols: Option<u64>,
    pub(super) messages: Option<Vec<Value>>,
    pub(super) title: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) model: Option<String>,
    pub(super) provider: Option<String>,
    pub(super) reasoning_effort: Option<String>,
    parent_session_id: Option<String>,
    source: Option<String>,
    profile: Option<String>,
    fast: Option<bool>,
    close_on_disconnect: Option<bool>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "some are read for their type only")]
pub(super) struct Resume {
    pub(super) session_id: Option<String>,
    cols: Option<u64>,
    lazy: Option<bool>,
    eager_build: Option<bool>,
    profile: Option<String>,
    source: Option<String>,
    close_on_disconnect: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct List {
    pub(super) limit: Option<usize>,
}

#[derive(Deserialize)]
pub(super) struct ActiveList {
    pub(super) current_session_id: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Submit {
    pub(super) text: String,
    pub(super) truncate_before_user_ordinal: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Text {
    pub(super) text: String,
}

#[derive(Deserialize)]
pub(super) struct Title {
    pub(super) title: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Branch {
    pub(super) name: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Compress {
    pub(super) focus_topic: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Approval {
    pub(super) choice: Option<String>,
    pub(super) all: Option<bool>,
}

/// What is answered has another name in each of the methods.
#[derive(Deserialize)]
pub(super) struct Response {
    pub(super) request_id: String,
    #[serde(alias = "text", alias = "password", alias = "value")]
    pub(super) answer: Private,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "some are read for their type only")]
pub(super) struct ConfigSet {
    pub(super) key: String,
    pub(super) value: Option<Value>,
    confirm_expensive_model: Option<bool>,
    scope: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ConfigGet {
    pub(super) key: String,
}

/// A command by its name, or as it is typed.
#[derive(Deserialize)]
pub(super) struct Command {
    pub(super) name: Option<String>,
    pub(super) arg: Option<String>,
    pub(super) command: Option<String>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "read for their type only")]
pub(super) struct Complete {
    pub(super) text: Option<String>,
    word: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Resize {
    pub(super) cols: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Image {
    pub(super) path: String,
}

#[derive(Deserialize)]
pub(super) struct Subagent {
    pub(super) subagent_id: String,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "read for their type only")]
pub(super) struct Exec {
    argv: Vec<String>,
    timeout: Option<f64>,
}
