//! JSON-RPC 2.0, a message a line.
//!
//! Owns what a line is, and how requests, answers and errors are written. Must not know methods, nor
//! where lines go.

use agentd_protocol::limits::MAX_ID;
use agentd_protocol::{Code, Id, strict};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// Not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// JSON, and no message.
pub const INVALID_REQUEST: i64 = -32600;
/// A method that isn't there.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// Params that the method doesn't take.
pub const INVALID_PARAMS: i64 = -32602;
/// Our failure.
pub const INTERNAL_ERROR: i64 = -32603;

/// The error of a refused request: is the client to ask otherwise, or can't it be had?
#[must_use]
pub const fn refused(code: Code) -> i64 {
    match code {
        Code::InvalidRequest
        | Code::Unsupported
        | Code::UnknownAgent
        | Code::UnknownJob
        | Code::NoAgent
        | Code::Ambiguous
        | Code::SessionConflict
        | Code::Forbidden
        | Code::FrameTooLong
        | Code::UnknownCommand => INVALID_PARAMS,
        _ => INTERNAL_ERROR,
    }
}

/// What a line of a peer is.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// It waits for an answer with its `id`.
    Request {
        /// As it was written, to be echoed byte for byte.
        id: Id,
        /// What is asked for.
        method: String,
        /// `Null` when absent: [`params`] reads them.
        params: Value,
    },
    /// It waits for nothing, whatever it is.
    Notification {
        /// What happened.
        method: String,
        /// `Null` when absent.
        params: Value,
    },
    /// The answer to a request of ours.
    Response {
        /// That request's.
        id: Id,
        /// Its result, or why there is none.
        result: Result<Value, Failure>,
    },
    /// None of these: to be answered by [`error`].
    Invalid {
        /// Its `id`, where there is one that can be echoed.
        id: Option<Id>,
        /// What is wrong.
        failure: Failure,
    },
}

/// Why a request has no result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// For programs.
    pub code: i64,
    /// A sentence.
    pub message: String,
    /// What else is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl Failure {
    /// One without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// For a request whose method isn't there.
    #[must_use]
    pub fn no_method(method: &str) -> Self {
        let shown: String = method.chars().take(100).collect();
        Self::new(METHOD_NOT_FOUND, format!("there is no method `{shown}`"))
    }
}

#[derive(Deserialize)]
struct Read<'a> {
    jsonrpc: Option<Value>,
    #[serde(
        borrow,
        default,
        deserialize_with = "agentd_protocol::envelope::present"
    )]
    id: Option<&'a RawValue>,
    method: Option<Value>,
    #[serde(default)]
    params: Value,
    #[serde(
        borrow,
        default,
        deserialize_with = "agentd_protocol::envelope::present"
    )]
    result: Option<&'a RawValue>,
    error: Option<Value>,
}

impl Message {
    /// Reads a line, whatever it is.
    #[must_use]
    pub fn parse(line: &[u8]) -> Self {
        let invalid = |code, why: String| Self::Invalid {
            id: id_of(line),
            failure: Failure::new(code, why),
        };
        let text = match std::str::from_utf8(line) {
            Ok(text) => text,
            Err(why) => {
                let at = why.valid_up_to();
                let why = format!("byte {at} of the line is not UTF-8");
                return invalid(PARSE_ERROR, why);
            }
        };
        if let Err(why) = strict::check(text) {
            return invalid(PARSE_ERROR, format!("not JSON: {why}"));
        }
        match text.trim_start().as_bytes().first() {
            Some(b'{') => {}
            Some(b'[') => {
                let why = "the line is a batch: expected one message a line";
                return invalid(INVALID_REQUEST, why.to_owned());
            }
            _ => {
                let why = "the line is JSON and not an object: expected a JSON-RPC message";
                return invalid(INVALID_REQUEST, why.to_owned());
            }
        }
        match serde_json::from_str::<Read<'_>>(text) {
            Ok(read) => Self::of(read),
            Err(why) => invalid(INVALID_REQUEST, why.to_string()),
        }
    }

    /// The answer to a line that was longer than `limit` bytes, and was skipped.
    #[must_use]
    pub fn too_long(limit: usize) -> Self {
        let why = format!("the line is longer than {limit} bytes and was skipped");
        Self::Invalid {
            id: None,
            failure: Failure::new(INVALID_REQUEST, why),
        }
    }

    fn of(read: Read<'_>) -> Self {
        let id = read.id.map(echoed).transpose();
        let invalid = |why: &str| Self::Invalid {
            id: id.clone().ok().flatten(),
            failure: Failure::new(INVALID_REQUEST, why),
        };
        let id = match &id {
            Ok(id) => id.clone(),
            Err(why) => return invalid(why),
        };
        if read.jsonrpc.as_ref().and_then(Value::as_str) != Some("2.0") {
            return invalid("the message has no `jsonrpc` of `2.0`");
        }
        match (read.method, id) {
            (Some(Value::String(method)), Some(id)) => Self::Request {
                id,
                method,
                params: read.params,
            },
            (Some(Value::String(method)), None) => Self::Notification {
                method,
                params: read.params,
            },
            (Some(_), _) => invalid("`method` is not a string"),
            (None, Some(id)) => match (read.result, read.error) {
                (_, Some(error)) => Self::Response {
                    id,
                    result: Err(failure(error)),
                },
                (Some(result), None) => Self::Response {
                    id,
                    // It was read once already.
                    result: Ok(serde_json::from_str(result.get()).unwrap_or_default()),
                },
                (None, None) => invalid("the message has neither `method`, `result` nor `error`"),
            },
            (None, None) => invalid("the message has neither `method` nor `id`"),
        }
    }
}

/// That of a message that is wrong elsewhere, such as in half an emoji of a prompt: whoever waits for
/// its answer would wait for ever.
fn id_of(line: &[u8]) -> Option<Id> {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    let text = String::from_utf8_lossy(line);
    // A struct may be read from an array, too.
    text.trim_start().starts_with('{').then_some(())?;
    let named: Named<'_> = serde_json::from_str(&text).ok()?;
    echoed(named.id).ok()
}

/// An id that may be echoed.
fn echoed(raw: &RawValue) -> Result<Id, &'static str> {
    let first = raw.get().as_bytes().first();
    if matches!(first, Some(b'{' | b'[' | b't' | b'f')) {
        return Err("`id` is neither a string nor a number");
    }
    if raw.get().len() > MAX_ID {
        // Not echoed: the limit is for what is.
        return Err("`id` is longer than 256 bytes");
    }
    Ok(Id::from_raw(raw))
}

/// The error of a peer; one that has another shape is told as it is.
fn failure(error: Value) -> Failure {
    serde_json::from_value(error.clone())
        .unwrap_or_else(|_| Failure::new(INTERNAL_ERROR, error.to_string()))
}

/// The params of a request as what the method takes; absent ones are an empty object.
///
/// # Errors
/// For the request's answer, when they aren't that.
pub fn params<T: DeserializeOwned>(params: Value) -> Result<T, Failure> {
    let params = match params {
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::Object(_) => params,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(Failure::new(INVALID_PARAMS, "`params` is not an object"));
        }
    };
    serde_json::from_value(params)
        .map_err(|why| Failure::new(INVALID_PARAMS, format!("invalid params: {why}")))
}

/// A message of ours, to be said to the peer.
#[derive(Debug, Serialize)]
pub struct Said<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "raw")]
    id: Option<Option<&'a Id>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Failure>,
}

impl<T> Said<'_, T> {
    const NOTHING: Self = Self {
        jsonrpc: "2.0",
        id: None,
        method: None,
        params: None,
        result: None,
        error: None,
    };
}

#[expect(clippy::ref_option, reason = "serde hands it over so")]
fn raw<S: Serializer>(id: &Option<Option<&Id>>, serializer: S) -> Result<S::Ok, S::Error> {
    let json = id.flatten().map_or("null", Id::as_json);
    // It is JSON: it was read as such, or made here.
    let raw: Option<&RawValue> = serde_json::from_str(json).ok();
    raw.serialize(serializer)
}

/// The answer to a request.
pub const fn answer<'a, T: Serialize>(id: &'a Id, result: &'a T) -> Said<'a, T> {
    Said {
        id: Some(Some(id)),
        result: Some(result),
        ..Said::NOTHING
    }
}

/// The other answer; without an id for a message that has none, or one that can't be echoed.
#[must_use]
pub const fn error<'a>(id: Option<&'a Id>, failure: &'a Failure) -> Said<'a, ()> {
    Said {
        id: Some(id),
        error: Some(failure),
        ..Said::NOTHING
    }
}

/// A request of ours.
pub const fn request<'a, T: Serialize>(id: &'a Id, method: &'a str, params: &'a T) -> Said<'a, T> {
    Said {
        id: Some(Some(id)),
        method: Some(method),
        params: Some(params),
        ..Said::NOTHING
    }
}

/// Something to know.
pub const fn notification<'a, T: Serialize>(method: &'a str, params: &'a T) -> Said<'a, T> {
    Said {
        method: Some(method),
        params: Some(params),
        ..Said::NOTHING
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(said: &impl Serialize) -> String {
        serde_json::to_string(said).unwrap()
    }

    fn refusal(text: &str) -> String {
        match Message::parse(text.as_bytes()) {
            Message::Invalid { id, failure } => line(&error(id.as_ref(), &failure)),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn json_rpc_ids_are_echoed_as_written() {
        for written in [
            "1",
            "1.0",
            "-7",
            r#""\u0061""#,
            "12345678901234567890123",
            "null",
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{written},"method":"x"}}"#);
            let Message::Request { id, method, params } = Message::parse(text.as_bytes()) else {
                panic!("{text}");
            };
            assert_eq!((method.as_str(), params), ("x", Value::Null));
            let said = line(&answer(&id, &json!({"a": 1})));
            let expected = format!(r#"{{"jsonrpc":"2.0","id":{written},"result":{{"a":1}}}}"#);
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn json_rpc_messages_are_told_apart() {
        let parse = |text: &str| Message::parse(text.as_bytes());
        let id = Id::number(1);
        let notified = parse(r#"{"jsonrpc":"2.0","method":"n","params":{"a":1}}"#);
        let expected = Message::Notification {
            method: "n".to_owned(),
            params: json!({"a": 1}),
        };
        assert_eq!(notified, expected);
        for (text, result) in [
            (r#""result":null"#, Ok(Value::Null)),
            (r#""result":{"b":2}"#, Ok(json!({"b": 2}))),
            (
                r#""error":{"code":5,"message":"no"}"#,
                Err(Failure::new(5, "no")),
            ),
            (
                r#""error":"odd""#,
                Err(Failure::new(INTERNAL_ERROR, "\"odd\"")),
            ),
        ] {
            let answered = parse(&format!(r#"{{"jsonrpc":"2.0","id":1,{text}}}"#));
            let id = id.clone();
            assert_eq!(answered, Message::Response { id, result }, "{text}");
        }
        let said = line(&request(&id, "m", &json!({})));
        assert_eq!(said, r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#);
        let said = line(&notification("m", &json!({})));
        assert_eq!(said, r#"{"jsonrpc":"2.0","method":"m","params":{}}"#);
    }

    #[test]
    fn json_rpc_refuses_what_is_no_message() {
        let long = format!(
            r#"{{"jsonrpc":"2.0","method":"x","id":"{}"}}"#,
            "x".repeat(256)
        );
        for (text, code, id, why) in [
            ("{", PARSE_ERROR, "null", "not JSON"),
            ("", PARSE_ERROR, "null", "not JSON"),
            (r#"{"a":1,"a":2}"#, PARSE_ERROR, "null", "given twice"),
            (
                r#"{"id":4,"params":{"a":1,"a":2}}"#,
                PARSE_ERROR,
                "4",
                "given twice",
            ),
            (
                r#"{"params":{"text":"\ud83d"},"id":"x"}"#,
                PARSE_ERROR,
                "\"x\"",
                "not JSON",
            ),
            ("GET / HTTP/1.1", PARSE_ERROR, "null", "not JSON"),
            (
                r#"[{"jsonrpc":"2.0","id":1,"method":"x"}]"#,
                INVALID_REQUEST,
                "null",
                "a batch",
            ),
            ("7", INVALID_REQUEST, "null", "not an object"),
            ("{}", INVALID_REQUEST, "null", "no `jsonrpc`"),
            (
                r#"{"jsonrpc":"1.0","id":4,"method":"x"}"#,
                INVALID_REQUEST,
                "4",
                "no `jsonrpc`",
            ),
            (
                r#"{"jsonrpc":2.0,"id":4,"method":"x"}"#,
                INVALID_REQUEST,
                "4",
                "no `jsonrpc`",
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":5}"#,
                INVALID_REQUEST,
                "4",
                "not a string",
            ),
            (
                r#"{"jsonrpc":"2.0","id":4}"#,
                INVALID_REQUEST,
                "4",
                "neither",
            ),
            (r#"{"jsonrpc":"2.0"}"#, INVALID_REQUEST, "null", "neither"),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#,
                INVALID_REQUEST,
                "null",
                "`id` is",
            ),
            (
                r#"{"jsonrpc":"2.0","id":true,"method":"x"}"#,
                INVALID_REQUEST,
                "null",
                "`id` is",
            ),
            (&long, INVALID_REQUEST, "null", "`id` is longer"),
        ] {
            let said = refusal(text);
            let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"#);
            assert!(
                said.starts_with(&start) && said.contains(why),
                "{text}: {said}"
            );
        }
    }

    #[test]
    fn json_rpc_params_are_an_object_or_absent() {
        #[derive(Deserialize, PartialEq, Debug)]
        struct Takes {
            a: Option<u8>,
        }
        let read = |given: Value| params::<Takes>(given).map_err(|why| why.code);
        assert_eq!(read(Value::Null), Ok(Takes { a: None }));
        assert_eq!(read(json!({"a": 1, "b": 2})), Ok(Takes { a: Some(1) }));
        for wrong in [json!({"a": "x"}), json!([1]), json!("x")] {
            assert_eq!(read(wrong), Err(INVALID_PARAMS));
        }
    }
}
