//! What has to hold of a request's body and query, whatever they are.
//!
//! Owns the rules that `tests/fuzz` and the corpus are held to. Must not be part of the product: it
//! is built for tests and for the fuzzer only.

use std::sync::Arc;

use agentd_faces::openai::CONVERSATION;
use agentd_faces::openai::chat::ChatRequest;
use agentd_faces::openai::conversation::{Begins, Conversation};
use agentd_faces::openai::failure::Again;
use agentd_faces::openai::model::ModelName;
use agentd_faces::openai::response_request::ResponseRequest;
use agentd_faces::openai::run::RunRequest;
use agentd_protocol::request::Send;
use agentd_protocol::{Envelope, Request};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::app::query;
use crate::dispatch::{Waiting, turns};
use crate::jobs::{Answer, Filter, Model};
use crate::problem::{Problem, status};
use crate::{body, dispatch};

/// A body is refused by a status of 400 to 499, or it becomes a request of the protocol, which is
/// then taken or refused likewise: nothing is the server's fault. The first byte says where the body
/// goes to.
pub fn body(bytes: &[u8]) {
    let Some((place, bytes)) = bytes.split_first() else {
        return;
    };
    let result = match place % 5 {
        0 => text(bytes).and_then(|text| {
            spoken(&text);
            dispatched(&text)
        }),
        1 => text(bytes).and_then(|text| answered(&text)),
        2 => text(bytes).and_then(|text| chosen(&text)),
        3 => queried(bytes),
        _ => keyed(bytes),
    };
    if let Err(problem) = result {
        let shown = serde_json::to_value(&problem).unwrap_or_default();
        assert!((400..500).contains(&problem.status), "{shown}");
        assert!(
            shown["detail"].as_str().is_some_and(|why| !why.is_empty()),
            "{shown}"
        );
        assert_eq!(shown["retryable"], false, "{shown}");
    }
}

/// The same reader as the server's, its limits and its strictness included.
fn text(bytes: &[u8]) -> Result<String, Problem> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
    else {
        panic!("no runtime");
    };
    let room = Arc::new(Semaphore::new(body::TOGETHER_KIB));
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_LENGTH, bytes.len().into());
    let body = Body::from(bytes.to_vec());
    let read = runtime.block_on(body::read(&headers, body, &room));
    let text = read.map(|read| read.text);
    assert_eq!(room.available_permits(), body::TOGETHER_KIB, "room is lost");
    text
}

fn dispatched(text: &str) -> Result<(), Problem> {
    let turns = turns(text)?;
    let (mut sends, count) = (Vec::new(), turns.len());
    for turn in turns {
        let (fields, key) = turn.into_fields(Some("k".to_owned()))?;
        assert_eq!(fields["idempotency_key"], key.as_str(), "{text}");
        sends.push(fields);
    }
    if let Some(Request::Dispatch(dispatch)) = asked("dispatch", &json!({ "jobs": sends })) {
        assert_eq!(dispatch.jobs.len(), count, "{text}");
        let ignored = dispatch.jobs.iter().find(|job| !job.ignored.is_empty());
        assert!(ignored.is_none(), "{ignored:?} of {text}");
    }
    Ok(())
}

/// In OpenAI's words it is refused likewise, or a send that is taken or refused likewise.
fn spoken(text: &str) {
    let sent = |model: &ModelName, conversation: &Conversation| {
        let mut send = Send::default();
        model.put_into(&mut send);
        conversation.put_into(&mut send, Begins::Yes);
        send.labels
            .insert(CONVERSATION.to_owned(), conversation.label("a"));
        let _before = conversation.before("a");
        send
    };
    let read = [
        ChatRequest::read(text).map(|asked| sent(&asked.model, &asked.conversation)),
        ResponseRequest::read(text).map(|asked| sent(&asked.model, &asked.conversation)),
        RunRequest::read(text).map(|asked| sent(&asked.model, &asked.conversation)),
    ];
    for read in read {
        match read {
            Ok(send) => drop(asked("send", &send)),
            Err(failure) => {
                assert!((400..500).contains(&failure.status), "{failure:?}");
                assert!(failure.again == Again::No && !failure.message.is_empty());
            }
        }
    }
}

fn answered(text: &str) -> Result<(), Problem> {
    let answer: Answer = body::parse(text)?;
    let _taken_or_refused = asked("answer", &answer.into_fields("q1".to_owned()));
    Ok(())
}

fn chosen(text: &str) -> Result<(), Problem> {
    let model: Model = body::parse(text)?;
    let _taken_or_refused = asked("set_model", &model.into_fields("main".to_owned()));
    Ok(())
}

fn queried(bytes: &[u8]) -> Result<(), Problem> {
    let uri = [b"/v1/jobs?", bytes].concat();
    let Ok(uri) = Uri::try_from(uri) else {
        return Ok(());
    };
    let waits = query::<Waiting>(&uri).and_then(|waiting| waiting.limit());
    let fields = query::<Filter>(&uri)?.into_fields()?;
    let _taken_or_refused = asked("jobs", &fields);
    waits.map(|_| ())
}

fn keyed(bytes: &[u8]) -> Result<(), Problem> {
    let Ok(value) = HeaderValue::from_bytes(bytes) else {
        return Ok(());
    };
    let mut headers = HeaderMap::new();
    headers.insert("idempotency-key", value);
    let key = dispatch::key_of(&headers)?.unwrap_or_default();
    let send = json!({"text": "hi", "idempotency_key": key});
    assert!(
        asked("send", &send).is_some(),
        "{key} is no key for the daemon"
    );
    Ok(())
}

/// What the daemon takes it for, if it doesn't refuse it.
fn asked(kind: &str, fields: &impl Serialize) -> Option<Request> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(fields) else {
        panic!("{kind} can't be written down");
    };
    fields.insert("type".to_owned(), kind.into());
    let line = Value::Object(fields).to_string();
    let envelope = match Envelope::parse(line.as_bytes()) {
        Ok(envelope) => envelope,
        Err((_, rejected)) => panic!("{rejected}: {line}"),
    };
    match Request::decode(&envelope) {
        Ok(decoded) => Some(decoded.request),
        Err(rejected) => {
            let status = status(rejected.code);
            assert!(status.is_client_error(), "{status}: {rejected}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzzing_corpus_of_http_holds() {
        crate::replay::replay("http_body", super::body);
    }
}
