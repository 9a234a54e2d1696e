//! Events in the order that helpers of clients need, and the same output from what is kept.

use std::collections::BTreeMap;

use agentd_protocol::Code;
use agentd_protocol::JobId;

use super::*;
use crate::openai::response::Failing;

fn head() -> ResponseHead {
    ResponseHead {
        job: JobId(4),
        agent: "pi".to_owned(),
        created: 7,
        model: "pi/large".to_owned(),
        previous: Some("resp_j3".to_owned()),
        conversation: None,
        instructions: None,
        metadata: BTreeMap::new(),
        stored: true,
        in_background: false,
        failing: Failing::Told,
    }
}

fn line(json: &str) -> Line {
    serde_json::from_str(json).unwrap()
}

const LINES: &[&str] = &[
    r#"{"type":"running","job":"j4","attempt":1}"#,
    r#"{"type":"message_start","job":"j4","message":0,"role":"assistant"}"#,
    r#"{"type":"thinking_delta","job":"j4","message":0,"offset":0,"text":"hm"}"#,
    r#"{"type":"message_delta","job":"j4","message":0,"offset":0,"text":"one ","native":true}"#,
    r#"{"type":"message_delta","job":"j4","message":0,"offset":4,"text":"word","native":true}"#,
    r#"{"type":"tool_start","job":"j4","tool_call_id":"c1","name":"ls","input":{"a":1},"read_only":true}"#,
    r#"{"type":"tool_start","job":"j4","tool_call_id":"c2","name":"rm","input":{},"read_only":false}"#,
    r#"{"type":"tool_end","job":"j4","tool_call_id":"c2","ok":false,"output":"no","truncated":false,"duration_ms":5}"#,
    r#"{"type":"tool_end","job":"j4","tool_call_id":"c1","ok":true,"output":"x","truncated":false,"duration_ms":5}"#,
    r#"{"type":"message_start","job":"j4","message":1,"role":"assistant"}"#,
    r#"{"type":"message_delta","job":"j4","message":1,"offset":0,"text":"two","native":true}"#,
];
const END: &str = r#"{"type":"message_end","stop":"end_turn","job":"j4","session":"s","text":"two","context":"new","agent":"pi","provider":null,"model":null,"thinking":null,"usage":{"input_tokens":3,"output_tokens":2},"cost":{"usd":null,"status":"unknown"},"api_calls":null}"#;

fn end() -> MessageEnd {
    match line(END) {
        Line::MessageEnd(end) => *end,
        other => panic!("{other:?}"),
    }
}

fn events(stream: &str) -> Vec<(String, Value)> {
    let event = |event: &str| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        let name = name.strip_prefix("event: ").unwrap().to_owned();
        assert_eq!(data["type"], *name);
        (name, data)
    };
    stream.split_terminator("\n\n").map(event).collect()
}

fn streamed() -> (Vec<(String, Value)>, Value) {
    let mut turn = ResponseTurn::new(head(), Told::Events);
    let mut stream = turn.first();
    for json in LINES {
        stream += &turn.line(&line(json));
    }
    stream += &turn.end(&end());
    (events(&stream), turn.object())
}

#[test]
fn response_events_announce_each_part_before_its_text() {
    let (events, _) = streamed();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let short: Vec<&str> = names
        .iter()
        .map(|name| name.strip_prefix("response.").unwrap())
        .collect();
    let text = [
        "output_item.added",
        "content_part.added",
        "output_text.delta",
    ];
    let text_done = ["output_text.done", "content_part.done", "output_item.done"];
    let call = [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
    ];
    let expected = [
        &["created", "in_progress", "output_item.added"][..],
        &[
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
        ],
        &[
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
        ],
        &text,
        &["output_text.delta"],
        &text_done,
        &call,
        &call,
        &[
            "mcp_call.failed",
            "output_item.done",
            "mcp_call.completed",
            "output_item.done",
        ],
        &text,
        &text_done,
        &["completed"],
    ];
    assert_eq!(short, expected.concat());
    for (number, (_, event)) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
}

#[test]
fn response_has_every_member_that_strict_clients_read() {
    let (events, object) = streamed();
    assert_eq!(events.last().unwrap().1["response"], object);
    for member in [
        "id",
        "object",
        "created_at",
        "status",
        "error",
        "incomplete_details",
        "instructions",
        "metadata",
        "model",
        "output",
        "parallel_tool_calls",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
        "previous_response_id",
        "text",
        "truncation",
        "usage",
        "store",
    ] {
        assert!(object.get(member).is_some(), "{member}");
    }
    assert_eq!(
        (&object["id"], &object["status"]),
        (&json!("resp_j4"), &json!("completed"))
    );
    assert_eq!(object["previous_response_id"], "resp_j3");
    assert_eq!(object["usage"]["input_tokens_details"]["cached_tokens"], 0);
    let output = object["output"].as_array().unwrap();
    let kinds: Vec<&Value> = output.iter().map(|item| &item["type"]).collect();
    assert_eq!(
        kinds,
        ["reasoning", "message", "mcp_call", "mcp_call", "message"]
    );
    assert_eq!(output[1]["content"][0]["annotations"], json!([]));
    assert_eq!(
        (&output[2]["output"], &output[2]["arguments"]),
        (&json!("x"), &json!("{\"a\":1}"))
    );
    assert_eq!(
        (
            &output[3]["error"]["content"][0]["text"],
            &output[3]["status"]
        ),
        (&json!("no"), &json!("failed"))
    );
}

#[test]
fn response_that_fails_keeps_what_it_had() {
    let mut turn = ResponseTurn::new(head(), Told::Events);
    turn.first();
    for json in &LINES[..6] {
        turn.line(&line(json));
    }
    let failure = Failure::new(424, Code::RateLimit.name(), "slow down");
    let last = events(&turn.failed(&failure)).pop().unwrap();
    assert_eq!(last.0, "response.failed");
    let response = &last.1["response"];
    assert_eq!(
        response["error"],
        json!({"code": "rate_limit_exceeded", "message": "rate-limit: slow down"})
    );
    let head = ResponseHead {
        failing: Failing::AskedAgain,
        ..head()
    };
    let code = |code: &str| {
        let progress = Progress::Failed(Failure::new(424, code, ""));
        head.object(&progress, &[])["error"]["code"].clone()
    };
    assert_eq!(code("rate-limit"), "invalid_prompt");
    assert_eq!(code("context_length_exceeded"), "context_length_exceeded");
    assert_eq!(response["output"][2]["status"], "incomplete");
    assert_eq!(response["output"][1]["content"][0]["text"], "one word");
}

#[test]
fn response_abandons_what_was_replaced() {
    let mut turn = ResponseTurn::new(head(), Told::Output);
    for json in &LINES[..5] {
        turn.line(&line(json));
    }
    turn.line(&line(
        r#"{"type":"message_start","job":"j4","message":1,"role":"assistant","replaces":0}"#,
    ));
    turn.line(&line(LINES[10]));
    turn.end(&end());
    let object = turn.object();
    assert_eq!(object["output"][1]["status"], "incomplete");
    assert_eq!(object["output"][2]["content"][0]["text"], "two");
}

#[test]
fn response_that_is_kept_has_the_same_items() {
    let mut end: Value = serde_json::from_str(END).unwrap();
    end["tool_trace"] = json!([
        {"tool_call_id": "c1", "name": "ls", "input": {"a": 1}, "ok": true, "output": "x", "truncated": false, "duration_ms": 5},
        {"tool_call_id": "c2", "name": "rm", "input": {}, "ok": false, "output": "no", "truncated": false, "duration_ms": 5},
    ]);
    let mut row: TurnRow = serde_json::from_value(json!({
        "job": "j4", "state": "completed", "accepted_at": "", "text": "hi", "final": end,
        "messages": [{"message": 0, "text": "one word", "thinking": "hm"}, {"message": 1, "text": "two"}],
    }))
    .unwrap();
    let (_, object) = streamed();
    assert_eq!(kept(head(), &row), object);
    row.last = None;
    row.state = agentd_protocol::rows::JobPhase::Running;
    let running = kept(head(), &row);
    assert_eq!(
        (&running["status"], &running["usage"]),
        (&json!("in_progress"), &Value::Null)
    );
    row.last = Some(
        json!({"type": "error", "code": "interrupted", "error": "gone", "job": "j4", "context": "lost"}),
    );
    let failed = kept(head(), &row);
    assert_eq!(
        (&failed["status"], &failed["agentd"]["note"]["code"]),
        (&json!("failed"), &json!("context-lost"))
    );
}
