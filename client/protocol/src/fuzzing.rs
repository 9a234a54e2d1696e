//! What has to hold of bytes that anybody may send, whatever they are.
//!
//! Owns the rules that `tests/fuzz` and the corpus are held to. Must not be part of the product:
//! it is built for tests and for the fuzzer only.

use serde_json::Value;

use crate::envelope::Rejected;
use crate::frame::{Decoder, Frame};
use crate::limits::{FIRST_BUFFER, MAX_ID, MAX_LINE_OUT, MAX_REFUSAL};
use crate::line::{ErrorLine, Telling};
use crate::request::hashed;
use crate::{Body, Code, Envelope, Id, Line, Request};

/// Short enough for lines that are too long to be found soon.
const LIMIT: usize = 64;
/// Says that a sentence goes on.
const GOES_ON: usize = 64;

/// Lines don't depend on how their bytes come in, take bounded memory, and read as themselves
/// again. The first byte says into which pieces the rest is cut.
pub fn frames(bytes: &[u8]) {
    let Some((piece, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = decoded(bytes, bytes.len().max(1));
    for size in [1, usize::from(*piece).max(1)] {
        assert_eq!(decoded(bytes, size), whole, "in pieces of {size}");
    }
    let (frames, rest) = whole;
    let mut again = Vec::new();
    let mut lines = 0;
    for frame in &frames {
        if let Frame::Line(line) = frame {
            assert!(line.len() <= LIMIT && !line.contains(&b'\n'), "{line:?}");
            again.extend_from_slice(line);
            again.extend_from_slice(b"\r\n");
            lines += 1;
        }
    }
    let (second, none) = decoded(&again, again.len().max(1));
    assert_eq!(none, None);
    assert_eq!(second.len(), lines, "a line became another number of lines");
    let kept = frames.iter().filter(|frame| **frame != Frame::TooLong);
    assert!(kept.eq(second.iter()), "a line reads as another one");
    let newlines = bytes.iter().filter(|byte| **byte == b'\n').count();
    assert!(frames.len() <= newlines + 1, "more frames than lines");
    assert!(rest.is_none_or(|rest| rest.len() <= LIMIT + 1));
}

fn decoded(bytes: &[u8], piece: usize) -> (Vec<Frame>, Option<Vec<u8>>) {
    let mut decoder = Decoder::new(LIMIT);
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece, &mut frames);
        assert!(decoder.partial_len() <= LIMIT + 1);
        assert!(
            decoder.capacity() <= FIRST_BUFFER.min(2 * (LIMIT + 1)),
            "{}",
            decoder.capacity()
        );
    }
    let rest = decoder.finish();
    assert!(!decoder.in_line(), "a line goes on behind the end");
    (frames, rest)
}

/// A request is taken or refused in words, and what was taken reads the same when it is sent on.
pub fn request(line: &[u8]) {
    let envelope = match Envelope::parse(line) {
        Ok(envelope) => envelope,
        Err((id, rejected)) => {
            assert!(id.is_none_or(|id| id.as_json().len() <= MAX_ID));
            return refused(rejected);
        }
    };
    let request = match Request::decode(&envelope) {
        Ok(decoded) => decoded.request,
        Err(rejected) => return refused(rejected),
    };
    let Request::Send(send) = request else { return };
    let Ok(mut fields) = serde_json::to_value(&send) else {
        panic!("a send can't be written: {send:?}");
    };
    fields["type"] = "send".into();
    let written = fields.to_string();
    let again = Envelope::parse(written.as_bytes())
        .map_err(|(_, rejected)| rejected)
        .and_then(|envelope| Request::decode(&envelope));
    match again {
        Ok(again) => {
            let Request::Send(again) = again.request else {
                panic!("{written} is no send any more");
            };
            assert_eq!(hashed(&send), hashed(&again), "{written}");
            let again = serde_json::to_string(&again).unwrap_or_default();
            fields["type"].take();
            let mut again = value(&again);
            again["type"].take();
            assert!(same(&fields, &again), "{written}\n{again}");
        }
        Err(rejected) => panic!("{written} is refused when sent on: {rejected}"),
    }
}

fn refused(rejected: Rejected) {
    assert!(
        !rejected.error.is_empty(),
        "{} without a word",
        rejected.code
    );
    assert!(rejected.code != Code::Internal, "{rejected}");
    let line = ErrorLine::refusal(rejected);
    assert!(
        line.error.len() <= MAX_REFUSAL + GOES_ON,
        "{}",
        line.error.len()
    );
    let body = Line::Error(Box::new(line)).body();
    assert!(body.as_json().len() <= MAX_LINE_OUT);
}

/// A line of the daemon that is understood is written again as one line of JSON, with its number
/// and id, and is then understood as the same.
pub fn line(bytes: &[u8]) {
    let Ok(line) = serde_json::from_slice::<Line>(bytes) else {
        return;
    };
    let id = Id::number(41);
    let body = line.body();
    for telling in [Telling::First, Telling::Replay] {
        let rendered = body.render(Some(&id), Some(7), telling);
        assert!(!rendered.contains('\n'), "{rendered}");
        let read = value(&rendered);
        assert_eq!((&read["id"], &read["seq"]), (&41.into(), &7.into()));
    }
    // What an older or a broken sender left out is written with its default, once.
    let known = read(body.as_json()).body();
    let again = read(Body::stored(known.as_json()).as_json()).body();
    let (known, again) = (known.as_json(), again.as_json());
    assert!(same(&value(known), &value(again)), "{known}\n{again}");
}

/// Are they the same, but for the last digit of a fraction? `serde_json` reads that as it likes.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) if one.is_f64() => {
            let (one, other) = (one.as_f64(), other.as_f64());
            one.zip(other)
                .is_some_and(|(one, other)| (one - other).abs() <= one.abs() * 1e-12)
        }
        (Value::Array(one), Value::Array(other)) => {
            let mut both = one.iter().zip(other);
            one.len() == other.len() && both.all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let found = |(name, one): (&String, &Value)| {
                other.get(name).is_some_and(|other| same(one, other))
            };
            one.len() == other.len() && one.iter().all(found)
        }
        _ => one == other,
    }
}

fn value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => panic!("{error}: {text}"),
    }
}

fn read(line: &str) -> Line {
    match serde_json::from_str(line) {
        Ok(line) => line,
        Err(error) => panic!("{error}: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::replay::replay;

    #[test]
    fn fuzzing_corpus_of_the_wire_holds() {
        replay("frames", super::frames);
        replay("request", super::request);
        replay("line", super::line);
    }
}
