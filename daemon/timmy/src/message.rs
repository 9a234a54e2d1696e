//! What a conversation is made of.
//!
//! Owns the stored form of messages: no other crate's types are in it. Must not know any wire.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message, as it is kept and as it is said again to a model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(crate) enum Message {
    /// The user's words, a steering word among them.
    User {
        /// What was said.
        text: String,
        /// What went with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attached: Vec<Attached>,
        /// The job whose prompt it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<String>,
    },
    /// What a model said.
    Assistant(Assistant),
    /// What came of one tool call.
    Tool(ToolResult),
}

impl Message {
    /// Words of the user.
    pub(crate) fn user(text: impl Into<String>) -> Self {
        Self::User {
            text: text.into(),
            attached: Vec::new(),
            job: None,
        }
    }
}

/// A picture or a document. Text isn't one: it is put into the user's words.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Attached {
    /// Its type.
    pub(crate) mime: String,
    /// What people call it.
    pub(crate) name: String,
    /// All of it, in base64.
    pub(crate) data: Arc<str>,
}

/// What a model said.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Assistant {
    /// Its text; empty when it only calls tools.
    pub(crate) text: String,
    /// Its reasoning, in order, with what the provider wants to see again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) thoughts: Vec<Thought>,
    /// The tools that it calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) calls: Vec<ToolCall>,
    /// Who said it: signatures are worth nothing to anybody else.
    pub(crate) provider: String,
    /// Which model.
    pub(crate) model: String,
}

/// A piece of reasoning.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Thought {
    /// Readable, where the provider shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// The provider's proof that it is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signature: Option<String>,
    /// A block in the provider's own words, for nobody else to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) native: Option<Value>,
}

/// A tool that a model wants to use.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    /// The provider's id of the call; unique within a message.
    pub(crate) id: String,
    /// Which tool.
    pub(crate) name: String,
    /// What with.
    pub(crate) arguments: CallArguments,
    /// Proofs that belong to this call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) signatures: Vec<String>,
}

/// The arguments of a call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum CallArguments {
    /// A JSON object, as it should be.
    Object(Map<String, Value>),
    /// Anything else. It is never repaired and never run: the model hears that it was malformed.
    Malformed(String),
}

/// What came of a tool call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ToolResult {
    /// The call's id.
    pub(crate) call: String,
    /// The tool's name.
    pub(crate) name: String,
    /// Did it do what was asked?
    pub(crate) ok: bool,
    /// What the model is told.
    pub(crate) output: String,
}
