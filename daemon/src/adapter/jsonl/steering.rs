//! What the `jsonl` translator says beside sends: steers, answers, `compact`.

use agentd_protocol::work::{Private, Silence};

use super::tests::{hear, says_nothing, tell, with};
use agentd_core::worker::{AskedFor, Reply};

use super::*;

fn steer(turn: u64, steer: u64) -> WorkerCommand {
    WorkerCommand::Steer {
        turn: TurnId(turn),
        steer,
        text: "left".to_owned(),
    }
}

fn line(written: &str) -> Value {
    serde_json::from_str(written).unwrap()
}

fn steered(steer: u64, steering: Steering) -> WorkerEvent {
    WorkerEvent::Steered { steer, steering }
}

#[test]
fn status_tells_abilities_besides_turns() {
    let events = hear(
        &mut with(&[]),
        r#"{"type":"status","steer":true,"compact":false,"resumes":true,"toolsets":true,"fallback_chain":"yes"}"#,
    );
    let traits = Traits {
        steers: Some(true),
        compacts: Some(false),
        resumes: Some(true),
        toolsets: Some(true),
        takes: Some(AttachmentSupport::Nothing),
        ..says_nothing()
    };
    assert_eq!(events, [WorkerEvent::Ready(traits)]);
    assert!(
        !describe().steers && !describe().compacts,
        "who says nothing can't"
    );
}

#[test]
fn steering_names_its_turns_session_and_is_answered() {
    let mut jsonl = with(&[7]);
    let (events, written) = tell(&mut jsonl, steer(7, 3));
    assert!(events.is_empty());
    let expected = json!({"type": "steer", "id": "s3", "session": "main", "text": "left"});
    assert_eq!(line(&written), expected);
    for (answer, expected) in [
        (
            r#"{"type":"steer","id":"s3","ok":true}"#,
            Some(Steering::Taken),
        ),
        (r#"{"type":"steer","ok":true}"#, Some(Steering::Taken)),
        (
            r#"{"type":"error","id":"s3","code":"session-idle","error":"-"}"#,
            Some(Steering::TooLate),
        ),
        (r#"{"type":"steer","id":"s4","ok":true}"#, None),
    ] {
        let mut jsonl = with(&[7]);
        tell(&mut jsonl, steer(7, 3));
        let expected: Vec<_> = expected.into_iter().map(|how| steered(3, how)).collect();
        assert_eq!(hear(&mut jsonl, answer), expected, "{answer}");
        let events = hear(&mut jsonl, r#"{"type":"message_end","text":"x"}"#);
        assert!(
            matches!(events[..], [WorkerEvent::Ended { .. }]),
            "the turn goes on"
        );
    }
    let mut jsonl = with(&[7]);
    tell(&mut jsonl, steer(7, 3));
    let events = hear(
        &mut jsonl,
        r#"{"type":"error","id":"s3","code":"unknown-command","error":"what?"}"#,
    );
    assert!(
        matches!(&events[..], [WorkerEvent::Steered { steer: 3, steering: Steering::Refused(why) }] if why.code == Code::Unsupported)
    );
}

#[test]
fn steering_an_ended_turn_is_not_written() {
    let mut jsonl = with(&[7]);
    tell(&mut jsonl, steer(7, 3));
    hear(&mut jsonl, r#"{"type":"message_end","id":"t7","text":"x"}"#);
    assert!(hear(&mut jsonl, r#"{"type":"steer","id":"s3","ok":true}"#).is_empty());
    let (events, written) = tell(&mut jsonl, steer(7, 4));
    assert_eq!(
        (events, written),
        (vec![steered(4, Steering::TooLate)], String::new())
    );
}

#[test]
fn answer_has_its_kinds_form_and_an_id() {
    let mut jsonl = with(&[7]);
    for (reply, name, value) in [
        (Reply::Approved, "approve", json!(true)),
        (Reply::Denied, "approve", json!(false)),
        (Reply::Unanswered(Silence::Expiry), "approve", json!(false)),
        (Reply::Chosen("a".into()), "choice", json!("a")),
        (
            Reply::Text(Private("hunter2".into())),
            "text",
            json!("hunter2"),
        ),
        (Reply::Cancelled, "cancel", json!(true)),
    ] {
        let question = "w1".to_owned();
        let why = matches!(reply, Reply::Unanswered(_)).then_some("expiry");
        let (events, written) = tell(&mut jsonl, WorkerCommand::Answer { question, reply });
        assert!(events.is_empty());
        let mut written = line(&written);
        let id = written.as_object_mut().unwrap().remove("id").unwrap();
        let mut expected = json!({"type": "answer", "question_id": "w1"});
        expected[name] = value;
        if let Some(why) = why {
            expected["by"] = json!(why);
        }
        assert_eq!(written, expected);
        let refusal = json!({"type": "error", "id": id, "code": "already-answered", "error": "-"});
        let events = hear(&mut jsonl, &refusal.to_string());
        assert!(
            matches!(events[..], [WorkerEvent::Logged { .. }]),
            "{events:?}"
        );
        let ok = json!({"type": "answer", "id": id, "ok": true, "question_id": "w1"});
        assert!(hear(&mut jsonl, &ok.to_string()).is_empty());
    }
}

#[test]
fn question_keeps_its_deadline_and_can_be_withdrawn() {
    let mut jsonl = with(&[7]);
    let asked = r#"{"type":"question","question_id":"w1","kind":"secret","title":"?","expires_at":"1970-01-01T00:00:02Z"}"#;
    let events = hear(&mut jsonl, asked);
    let [WorkerEvent::Asked { asking, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (asking.kind, asking.limit),
        (QuestionKind::Secret, Some(AskedFor::Until(2000)))
    );
    let events = hear(
        &mut jsonl,
        r#"{"type":"question_closed","question_id":"w1","by":"expiry"}"#,
    );
    let question = "w1".to_owned();
    assert_eq!(events, [WorkerEvent::Withdrew { question }]);
}

#[test]
fn compaction_is_answered_by_type_or_refused() {
    for (answer, expected) in [
        (
            r#"{"type":"compact","id":"compact","ok":true,"summary":"s"}"#,
            Ok(Some("s".to_owned())),
        ),
        (r#"{"type":"compact","ok":true}"#, Ok(None)),
        (
            r#"{"type":"error","id":"compact","code":"unknown-command","error":"-"}"#,
            Err(Code::Unsupported),
        ),
        (r#"{"type":"error","error":"-"}"#, Err(Code::AgentFailed)),
    ] {
        let mut jsonl = with(&[]);
        let command = WorkerCommand::Compact {
            session: "main".to_owned(),
            instructions: Some("names".to_owned()),
        };
        let (_, written) = tell(&mut jsonl, command);
        let expected_line =
            json!({"type": "compact", "id": "compact", "session": "main", "instructions": "names"});
        assert_eq!(line(&written), expected_line);
        let events = hear(&mut jsonl, answer);
        let [WorkerEvent::Compacted { result }] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(result.clone().map_err(|why| why.code), expected);
        assert!(
            hear(&mut jsonl, r#"{"type":"compact","ok":true}"#).is_empty(),
            "once"
        );
    }
}
