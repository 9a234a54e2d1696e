//! Our words against the protocol's own types: what we write is read by theirs, and what theirs
//! write is read by us.

use agent_client_protocol_schema as theirs;
use serde_json::json;

use super::replay::Replay;
use super::*;
use crate::adapter::attached::samples;
use crate::adapter::testing::prompt;

/// Reads ours with theirs, and nothing of it may be lost.
#[track_caller]
fn same<T: serde::de::DeserializeOwned + serde::Serialize>(ours: &Value) {
    let read: T = serde_json::from_value(ours.clone()).unwrap();
    let again = serde_json::to_value(&read).unwrap();
    for (name, value) in ours.as_object().unwrap() {
        assert_eq!(&again[name], value, "{name} of {ours}");
    }
}

#[test]
fn what_is_written_is_what_the_schema_reads() {
    let opened: theirs::InitializeRequest = serde_json::from_value(wire::initialize()).unwrap();
    assert_eq!(opened.protocol_version, theirs::ProtocolVersion::V1);
    let can = opened.client_capabilities;
    assert!(!can.fs.read_text_file && !can.fs.write_text_file && !can.terminal);
    let servers = crate::adapter::testing::servers().list();
    for servers in [&servers[..], &[]] {
        same::<theirs::NewSessionRequest>(&wire::new_session("/w", servers));
        same::<theirs::LoadSessionRequest>(&wire::load_session("s", "/w", servers));
    }
    same::<theirs::PromptRequest>(&wire::prompt("s", "hi\n\u{0}", &[]));
    same::<theirs::PromptRequest>(&wire::prompt("s", "look", &attached()));
    same::<theirs::CancelNotification>(&wire::cancel("s"));
    same::<theirs::SetSessionModelRequest>(&wire::set_model("s", "m"));
    same::<theirs::SetSessionConfigOptionRequest>(&wire::set_config_option("s", "o", "v"));
    same::<theirs::RequestPermissionResponse>(&wire::selected("o"));
    same::<theirs::RequestPermissionResponse>(&wire::cancelled());
}

/// A picture, and text under a name that a URI can't hold as it is.
fn attached() -> Vec<agentd_core::attached::Attached> {
    let text = samples::of("text/markdown", Some("a b%.md"), b"# hi");
    samples::prompt(vec![text]).attachments.here().to_vec()
}

#[test]
fn text_is_embedded_under_a_uri_naming_it() {
    let prompt = wire::prompt("s", "look", &attached());
    let expected = json!({"type": "resource", "resource":
        {"uri": "attachment:///a%20b%25.md", "mimeType": "text/markdown", "text": "# hi"}});
    assert_eq!(prompt["prompt"][2], expected);
}

#[test]
fn attachments_taken_are_those_of_the_handshake() {
    for (capabilities, expected) in [
        (json!({}), AttachmentSupport::Nothing),
        (json!({"embeddedContext": true}), AttachmentSupport::Nothing),
        (json!({"image": true}), AttachmentSupport::Images),
        (
            json!({"image": true, "embeddedContext": true}),
            AttachmentSupport::Texts,
        ),
    ] {
        let mut replay = Replay::begun(None);
        let can = json!({"promptCapabilities": capabilities});
        replay.answer(&json!({"protocolVersion": 1, "agentCapabilities": can}));
        replay.answer(&json!({"sessionId": "s1"}));
        let Some(WorkerEvent::Ready(traits)) = replay.events.last() else {
            panic!("{:?}", replay.events)
        };
        assert_eq!(traits.takes, Some(expected));
    }
}

/// A notification as theirs write it.
fn update(update: theirs::SessionUpdate) -> Value {
    let params = theirs::SessionNotification::new("s1", update);
    json!({"jsonrpc": "2.0", "method": "session/update", "params": params})
}

#[test]
fn what_the_schema_writes_is_read() {
    let chunk = |text: &str| theirs::ContentChunk::new(theirs::ContentBlock::from(text));
    let mut replay = Replay::running();
    replay.hear(&update(theirs::SessionUpdate::AgentThoughtChunk(chunk(
        "hm",
    ))));
    replay.hear(&update(theirs::SessionUpdate::AgentMessageChunk(chunk(
        "hi",
    ))));
    let call = theirs::ToolCall::new("c", "list")
        .kind(theirs::ToolKind::Execute)
        .status(theirs::ToolCallStatus::InProgress)
        .raw_input(json!({"command": "ls"}));
    replay.hear(&update(theirs::SessionUpdate::ToolCall(call)));
    let fields = theirs::ToolCallUpdateFields::new()
        .status(theirs::ToolCallStatus::Completed)
        .content(vec![theirs::ToolCallContent::from("a file")]);
    let ended = theirs::ToolCallUpdate::new("c", fields.clone());
    replay.hear(&update(theirs::SessionUpdate::ToolCallUpdate(ended)));
    replay.hear(&update(theirs::SessionUpdate::Plan(theirs::Plan::new(
        vec![],
    ))));
    let cost = theirs::Cost::new(0.5, "USD");
    let usage = theirs::UsageUpdate::new(1, 2).cost(cost);
    replay.hear(&update(theirs::SessionUpdate::UsageUpdate(usage)));
    let option =
        theirs::PermissionOption::new("yes", "Yes", theirs::PermissionOptionKind::AllowOnce);
    let asked = theirs::RequestPermissionRequest::new(
        "s1",
        theirs::ToolCallUpdate::new("d", fields),
        vec![option],
    );
    replay.hear(&json!({"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": asked}));
    let usage = theirs::Usage::new(7, 5, 2);
    let response = theirs::PromptResponse::new(theirs::StopReason::EndTurn).usage(usage);
    let id = replay.adapter.driver.turn.as_ref().unwrap().id;
    replay.hear(&json!({"jsonrpc": "2.0", "id": id, "result": response}));

    let is = |found: fn(&WorkerEvent) -> bool| replay.events.iter().any(found);
    assert!(is(
        |event| matches!(event, WorkerEvent::Thinking { text, .. } if text == "hm")
    ));
    assert_eq!(replay.text(), "hi");
    assert!(is(
        |event| matches!(event, WorkerEvent::ToolStarted { input, .. } if input == r#"{"command":"ls"}"#)
    ));
    assert!(is(
        |event| matches!(event, WorkerEvent::ToolEnded { ok: true, output, .. } if output == "a file")
    ));
    assert!(is(
        |event| matches!(event, WorkerEvent::Other { kind, .. } if kind == "plan")
    ));
    assert!(is(|event| matches!(event, WorkerEvent::Asked { .. })));
    let outcome = replay.outcomes()[0];
    assert_eq!(
        (&outcome.result, outcome.cost.usd),
        (&Ok(Stop::EndTurn), Some(0.5))
    );
    assert_eq!(outcome.usage.unwrap().output_tokens, 2);
}

#[test]
fn handshake_of_the_schema_is_read() {
    let mut replay = Replay::begun(None);
    let can = theirs::AgentCapabilities::new().load_session(true);
    let opened =
        theirs::InitializeResponse::new(theirs::ProtocolVersion::V1).agent_capabilities(can);
    replay.hear(&json!({"jsonrpc": "2.0", "id": 1, "result": opened}));
    let models = theirs::SessionModelState::new("a", vec![theirs::ModelInfo::new("a", "A")]);
    let created = theirs::NewSessionResponse::new("s1").models(models);
    replay.hear(&json!({"jsonrpc": "2.0", "id": 2, "result": created}));
    assert!(
        matches!(&replay.events[..], [WorkerEvent::Ready(traits)] if traits.resumes == Some(true))
    );
    replay.tell(&prompt(1, "x"));
    assert_eq!(replay.adapter.offer.model().as_deref(), Some("a"));
}
