//! Models asked over real connections: a server on loopback plays each wire.

mod gaps;
mod hostile;
mod replay;
mod sent;
mod tls;
mod wires;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{HttpModels, Patience};
use crate::message::{Message, ToolResult};
use crate::mock_model::MockModel;
use crate::model::{Failure, ModelClient, Piece, Reply, Request, Thinking, ToolSpec};
use crate::provider::{Key, Provider, Target, Wire};

/// No test here waits longer.
const SOON: Duration = Duration::from_secs(20);
/// Pieces that a test takes in; more would block the answer.
const ROOM: usize = 4096;
const KEY: &str = "secret-of-the-test-1234";
/// The five wires. Chat completions of other houses differ in words only.
const WIRES: [Wire; 5] = [
    Wire::OpenAi,
    Wire::Responses,
    Wire::Anthropic,
    Wire::Gemini,
    Wire::Ollama,
];

/// A model that answers as fast as it can is waited for as long as it takes; one that doesn't
/// answer is what is tested.
fn models() -> HttpModels {
    patient(SOON)
}

fn patient(within: Duration) -> HttpModels {
    let http = crate::model::http::builder().no_proxy().build().unwrap();
    let patience = Patience {
        begins_within: within,
        silent_for: within,
    };
    HttpModels {
        own: Some((http, patience)),
    }
}

fn base(mock: &MockModel, wire: Wire) -> String {
    match wire {
        Wire::Anthropic | Wire::Ollama => mock.base.clone(),
        Wire::Gemini => format!("{}/v1beta", mock.base),
        _ => mock.url.clone(),
    }
}

/// A model whose name the wire's house could have.
const fn model(wire: Wire) -> &'static str {
    match wire {
        Wire::Responses => "gpt-5",
        Wire::Anthropic => "claude-sonnet-4-5",
        Wire::Gemini => "gemini-2.5-flash",
        _ => "mock-1",
    }
}

fn at(base_url: String, wire: Wire, model: &str) -> Request {
    let provider = Provider {
        id: "env".to_owned(),
        base_url,
        wire,
        key_variables: Vec::new(),
        local: false,
        window: None,
        price: None,
    };
    Request {
        target: Target {
            provider: Arc::new(provider),
            model: model.to_owned(),
            key: Some(Key::new(KEY.to_owned())),
        },
        system: Arc::from("Be brief."),
        messages: Vec::new(),
        tools: Arc::from([]),
        thinking: None,
    }
}

fn says(mock: &MockModel, wire: Wire, text: &str) -> Request {
    let mut request = at(base(mock, wire), wire, model(wire));
    request.messages.push(user(text));
    request
}

fn user(text: &str) -> Message {
    Message::user(text)
}

fn result(call: &str, name: &str, output: &str) -> Message {
    Message::Tool(ToolResult {
        call: call.to_owned(),
        name: name.to_owned(),
        ok: true,
        output: output.to_owned(),
    })
}

fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "Reads a file".to_owned(),
        schema: json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
    }
}

async fn ask(request: &Request) -> Result<Reply, Box<Failure>> {
    hear(&models(), request).await.0
}

/// The outcome, and the pieces as they came.
async fn hear(models: &HttpModels, request: &Request) -> (Result<Reply, Box<Failure>>, Vec<Piece>) {
    let (pieces, mut heard) = mpsc::channel(ROOM);
    let asked = tokio::time::timeout(SOON, models.ask(request, &pieces)).await;
    let outcome = asked.expect("no answer and no failure in time");
    drop(pieces);
    let mut all = Vec::new();
    while let Some(piece) = heard.recv().await {
        all.push(piece);
    }
    (outcome, all)
}

/// The body of the last request.
fn body(mock: &MockModel) -> Value {
    mock.asked().pop().expect("nobody asked").body
}
