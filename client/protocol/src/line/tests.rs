//! How lines are written and read back.

use super::*;
use crate::Id;
use crate::code::Code;
use crate::envelope::Rejected;

#[test]
fn line_has_its_id_and_seq_behind_type() {
    let id = Id::from_raw(&serde_json::value::RawValue::from_string("[1,  2]".to_owned()).unwrap());
    assert_eq!(
        Line::Pong.body().render(Some(&id), None, Telling::First),
        r#"{"type":"pong","id":[1,  2]}"#
    );
    let accepted = Line::Accepted(Accepted {
        job: JobId(4),
        session: "s4".to_owned(),
        agent: "pi".to_owned(),
        seq: None,
        replayed: false,
        ignored: Vec::new(),
        running: true,
        drained: false,
        made: false,
        routed: None,
    });
    assert_eq!(
        accepted.body().render(None, Some(9), Telling::Replay),
        r#"{"type":"accepted","seq":9,"replayed":true,"job":"j4","session":"s4","agent":"pi","ignored":[],"running":true}"#
    );
}

#[test]
fn every_line_reads_back_as_what_it_was() {
    let turn = TurnFacts {
        job: Some(JobId(1)),
        text: "hi".to_owned(),
        ..TurnFacts::default()
    };
    let end = MessageEnd {
        stop: Stop::EndTurn,
        turn: turn.clone(),
        seq: Some(3),
        replayed: true,
    };
    let rendered =
        Line::MessageEnd(Box::new(end.clone()))
            .body()
            .render(None, Some(3), Telling::Replay);
    assert_eq!(
        serde_json::from_str::<Line>(&rendered).unwrap(),
        Line::MessageEnd(Box::new(end))
    );

    let refusal = ErrorLine::refusal(Rejected::new(Code::QueueFull, "full"));
    let rendered = Line::Error(Box::new(refusal))
        .body()
        .render(None, None, Telling::First);
    assert_eq!(
        rendered,
        r#"{"type":"error","code":"queue-full","error":"full","retryable":true}"#
    );
    let minimal = r#"{"type":"error","error":"message"}"#;
    assert!(
        matches!(serde_json::from_str(minimal).unwrap(), Line::Error(e) if !Line::Error(e.clone()).ends_job())
    );
}
