//! `POST /v1/dispatch`: turns handed in, all or none, and waited for if that is asked.
//!
//! Owns what a turn looks like in HTTP, and its key. Must not know what becomes of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentd_client::asked::RequestError;
use agentd_client::connection::LostError;
use agentd_client::jobs::Collected;
use agentd_client::key;
use agentd_protocol::attachment::Attachment;
use agentd_protocol::limits::{MAX_DISPATCH, MAX_KEY};
use agentd_protocol::request::{
    AfterFailure, Earlier, McpServer, Mode, OnQuestion, Retry, Send, Wait,
};
use agentd_protocol::rows::DispatchedRow;
use agentd_protocol::{Code, JobId, Line, RequestKind};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::app::{App, query};
use crate::body;
use crate::daemon::Lease;
use crate::problem::Problem;
use crate::result::Final;

/// Longest wait for results, in seconds: what is between us and the caller gives up sooner or later.
const LONGEST_WAIT: f64 = 300.0;
/// Longest wait of the daemon for us: it doesn't notice that somebody left before that is over.
const AT_A_TIME: Duration = Duration::from_secs(10);
/// So much later than it was to, the daemon has answered, or it hangs.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// One turn. The protocol's document says more of each field.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    /// The user's turn; not blank.
    #[serde(alias = "text", alias = "message")]
    #[schemars(length(min = 1), regex(pattern = r"\S"))]
    prompt: String,
    /// The conversation; a new one when absent.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9._:@/-]+$"))]
    session: Option<String>,
    /// Who answers.
    agent: Option<String>,
    /// Pins the provider of the model.
    provider: Option<String>,
    /// Pins the model.
    model: Option<String>,
    /// How hard to think, in the agent's words.
    thinking: Option<String>,
    /// What is asked when the model fails, in this order; each `provider/model`.
    #[schemars(length(max = 16))]
    fallback_chain: Option<Vec<String>>,
    /// Working directory on the daemon's machine: absolute, existing.
    cwd: Option<String>,
    /// Working directory that counts only if this turn makes the session.
    cwd_if_new: Option<String>,
    /// Restricts the agent's tools.
    #[serde(alias = "tools")]
    toolsets: Option<Vec<String>>,
    /// What the agent is told before the conversation: only with the turn that begins a session.
    #[schemars(length(min = 1, max = 65_536), regex(pattern = r"\S"))]
    system: Option<String>,
    /// What was said before elsewhere, oldest first: likewise.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    history: Vec<Earlier>,
    /// MCP servers that the session's agent has besides its own, from this turn on.
    #[schemars(length(max = 32))]
    mcp_servers: Option<Vec<McpServer>>,
    /// Seconds it may run; 3600 when absent.
    #[schemars(range(min = 0.001, max = 31_536_000))]
    timeout: Option<f64>,
    /// Seconds it may wait; 86400 when absent.
    #[schemars(range(min = 0, max = 31_536_000))]
    expires: Option<f64>,
    /// The same key twice is the same job; goes before the header.
    #[schemars(length(min = 1, max = 255))]
    idempotency_key: Option<String>,
    /// When the session is busy.
    #[serde(default)]
    mode: Mode,
    /// What an agent asks waits for an answer, or is denied.
    on_question: Option<OnQuestion>,
    /// May it run again after a crash?
    #[serde(default)]
    retry: Retry,
    /// When a turn before it in its session was interrupted.
    #[serde(default)]
    after_failure: AfterFailure,
    /// Refuse rather than run without the session's earlier turns.
    #[serde(default)]
    require_context: bool,
    /// More members of the result: `messages`, what was said in the turn and by whom.
    #[serde(default)]
    #[schemars(inner(regex(pattern = "^messages$")))]
    include: Vec<String>,
    /// Free, for `GET /v1/jobs`.
    #[serde(default)]
    #[schemars(length(max = 16))]
    labels: BTreeMap<String, String>,
    /// Not before this time.
    #[schemars(extend("format" = "date-time"))]
    start_at: Option<String>,
    /// What goes with the prompt.
    #[serde(default)]
    #[schemars(length(max = 16))]
    attachments: Vec<Content>,
    /// Who is told that it has ended: an endpoint of `agentctl webhook add`.
    #[schemars(extend("format" = "uri"))]
    callback_url: Option<String>,
    /// Is the text told there, too? Up to 64 KiB of it.
    #[serde(default)]
    callback_result: bool,
}

/// Content that goes with a prompt. Files of the daemon's machine can't be named here.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Content {
    /// Its type.
    mime: String,
    /// In base64.
    #[schemars(extend("contentEncoding" = "base64"))]
    data: String,
    /// What people call it.
    #[schemars(length(max = 255))]
    name: Option<String>,
}

/// Several turns.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    /// All are accepted, or none.
    #[schemars(length(min = 1, max = 256))]
    jobs: Vec<Job>,
}

/// One turn, or several.
#[derive(Debug, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "it is written down, and read by `turns`")]
pub(crate) enum Turns {
    One(Box<Job>),
    Named(Batch),
    Several(#[schemars(length(min = 1, max = 256))] Vec<Job>),
}

/// How long to wait.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waiting {
    /// Seconds to wait for results.
    #[schemars(range(min = 0, max = 300))]
    pub(crate) wait: Option<f64>,
}

/// What was accepted, and what is done already.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Dispatched {
    /// In the order asked.
    jobs: Vec<DispatchedRow>,
    /// Of those that are done, in the order asked.
    #[schemars(with = "Vec<Final>")]
    results: Vec<Value>,
    /// Those that are not.
    pending: Vec<JobId>,
}

impl Waiting {
    /// As a time.
    pub(crate) fn limit(&self) -> Result<Option<Duration>, Problem> {
        match self.wait {
            None => Ok(None),
            Some(wait) if (0.0..=LONGEST_WAIT).contains(&wait) => {
                Ok(Some(Duration::from_secs_f64(wait)))
            }
            Some(wait) => Err(Problem::of(
                Code::InvalidRequest,
                format!("`wait` is {wait}: expected 0 to {LONGEST_WAIT} seconds"),
            )),
        }
    }
}

/// The turns of a body.
pub(crate) fn turns(text: &str) -> Result<Vec<Job>, Problem> {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        jobs: Option<&'a serde_json::value::RawValue>,
    }
    let jobs = match text.trim_start().as_bytes() {
        [b'[', ..] => body::parse(text)?,
        [b'{', ..] => match body::parse(text) {
            // The error is about what it seems to be: a list where there are `jobs`, else a turn.
            Ok(job) => return Ok(vec![job]),
            Err(_) if body::parse::<Named<'_>>(text).is_ok_and(|named| named.jobs.is_some()) => {
                body::parse::<Batch>(text)?.jobs
            }
            Err(problem) => return Err(problem),
        },
        _ => {
            let why = "the body is JSON, but neither an object nor a list of them";
            return Err(Problem::of(Code::NotAnObject, why));
        }
    };
    if jobs.is_empty() || jobs.len() > MAX_DISPATCH {
        let why = format!(
            "there are {} jobs, expected 1 to {MAX_DISPATCH}",
            jobs.len()
        );
        return Err(Problem::of(Code::InvalidRequest, why));
    }
    Ok(jobs)
}

/// The header's key; in quotes, as structured fields have them, or without.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut given = headers.get_all("idempotency-key").iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    let key = value.to_str().unwrap_or_default();
    let quoted = key.strip_prefix('"').and_then(|key| key.strip_suffix('"'));
    let key = quoted.unwrap_or(key);
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'"';
    if given.next().is_some() || !(1..=MAX_KEY).contains(&key.len()) || !key.bytes().all(fits) {
        let why = format!(
            "`Idempotency-Key` has to be one, of 1 to {MAX_KEY} visible characters of ASCII without quotes"
        );
        return Err(Problem::of(Code::InvalidRequest, why));
    }
    Ok(Some(key))
}

impl Job {
    /// As the protocol has it, its key included.
    pub(crate) fn into_fields(self, key: Option<String>) -> Result<(Value, String), Problem> {
        let callback = self.callback_url;
        let result = self.callback_result;
        let attachments = self.attachments.into_iter().map(|content| Attachment {
            mime: Some(content.mime),
            data: Some(content.data),
            name: content.name,
            ..Attachment::default()
        });
        let send = Send {
            text: self.prompt,
            session: self.session,
            agent: self.agent,
            provider: self.provider,
            model: self.model,
            thinking: self.thinking,
            fallback_chain: self.fallback_chain,
            cwd: self.cwd,
            cwd_if_new: self.cwd_if_new,
            toolsets: self.toolsets,
            system: self.system,
            history: self.history,
            mcp_servers: self.mcp_servers,
            timeout: self.timeout,
            expires: self.expires,
            idempotency_key: self.idempotency_key.or(key),
            mode: self.mode,
            on_question: self.on_question,
            retry: self.retry,
            after_failure: self.after_failure,
            require_context: self.require_context,
            include: self.include,
            labels: self.labels,
            start_at: self.start_at,
            attachments: attachments.collect(),
            ..Send::default()
        };
        let internal = |why: String| Problem::of(Code::Internal, why);
        let send = key::completed(&send).map_err(|error| internal(error.to_string()))?;
        let key = send.idempotency_key.clone().unwrap_or_default();
        let mut fields =
            serde_json::to_value(&*send).map_err(|error| internal(error.to_string()))?;
        if let (Some(url), Value::Object(fields)) = (callback, &mut fields) {
            let mut callback = json!({ "url": url });
            if result {
                callback["result"] = true.into();
            }
            fields.insert("callback".to_owned(), callback);
        }
        Ok((fields, key))
    }
}

pub(crate) async fn dispatch(
    State(app): State<Arc<App>>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let wait = query::<Waiting>(&uri)?.limit()?;
    let key = key_of(&headers)?;
    let read = body::read(&headers, body, &app.room).await?;
    let turns = turns(&read.text)?;
    let (mut sends, mut keys) = (Vec::new(), Vec::new());
    let count = turns.len();
    for (number, turn) in turns.into_iter().enumerate() {
        // No header's key has a space: no other request has the keys of these.
        let key = key.map(|key| match count {
            1 => key.to_owned(),
            _ => format!("{key} {}/{count}", number + 1),
        });
        let (fields, key) = turn.into_fields(key)?;
        sends.push(fields);
        keys.push(key);
    }
    let mut client = app.daemon.lease().await?;
    let fields = json!({ "jobs": sends });
    let asking = client.answer_over_restarts(RequestKind::Dispatch, &fields);
    let answered = asking.await;
    // Their room is for other bodies while results are waited for.
    drop((fields, read));
    let received = answered.map_err(|error| match error {
        RequestError::Unknown { lost, .. } => RequestError::Unknown { lost, keys },
        other => other,
    });
    let jobs = match received {
        Ok(received) => match received.line {
            Some(Line::Dispatch { jobs, .. }) => jobs,
            _ => return Err(RequestError::Strange(received.text).into()),
        },
        Err(error @ RequestError::Refused(_)) => {
            client.done();
            return Err(error.into());
        }
        Err(error) => return Err(error.into()),
    };
    let mut found = Collected {
        results: Vec::new(),
        pending: jobs.iter().map(|row| row.job).collect(),
    };
    // Whoever asks again is told what came of it.
    let seen_before = jobs.iter().any(|row| row.replayed);
    match wait.or(seen_before.then_some(Duration::ZERO)) {
        None => client.done(),
        // They are accepted: whatever happens now, that is the answer.
        Some(wait) => drop(app.results(client, &mut found, wait).await),
    }
    let Collected { results, pending } = found;
    let status = match pending.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    let location = match jobs.as_slice() {
        [one] => HeaderValue::from_str(&format!("/v1/jobs/{}", one.job)).ok(),
        _ => None,
    };
    let answer = Dispatched {
        jobs,
        results,
        pending,
    };
    let mut response = (status, Json(answer)).into_response();
    if let Some(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

impl App {
    /// Moves what is done from `pending` to `results`, until all are, the time is over, or this
    /// server has to end. It keeps what it found when it fails.
    pub(crate) async fn results(
        &self,
        mut client: Lease<'_>,
        found: &mut Collected,
        wait: Duration,
    ) -> Result<(), Problem> {
        let asked = found.pending.clone();
        let until = Instant::now() + wait;
        let mut stopping = self.stopping.clone();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let part = left.min(AT_A_TIME);
            let looking = client.collect(&found.pending, Some(part), Wait::All);
            let looked = tokio::select! {
                looked = in_time(part + ANSWERS_WITHIN, looking) => looked,
                // Its conversation isn't given back: an answer is outstanding.
                _ = stopping.wait_for(|stopping| *stopping) => return Ok(()),
            };
            if let Err(RequestError::Refused(_)) = &looked {
                client.done();
                return looked.map(drop).map_err(Problem::from);
            }
            let Collected { results, pending } = looked?;
            found.results.extend(results);
            found.pending = pending;
            if found.pending.is_empty() || left <= AT_A_TIME {
                break;
            }
        }
        client.done();
        // In order within each look, but not over all of them.
        found.results.sort_by_cached_key(|result| {
            let job = result.get("job").and_then(Value::as_str);
            let job = job.and_then(|job| job.parse::<JobId>().ok());
            asked.iter().position(|one| Some(*one) == job)
        });
        Ok(())
    }
}

/// What the daemon says to a request that has no time of its own, or that it said nothing.
pub(crate) async fn in_time<T>(
    limit: Duration,
    answering: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    let late = |_| RequestError::NoAnswer(LostError::Late(limit));
    tokio::time::timeout(limit, answering).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_turn_or_several() {
        let one = turns(r#"{"prompt":"a"}"#).unwrap();
        assert_eq!(one.len(), 1);
        let several = turns(r#"{"jobs":[{"prompt":"a"},{"text":"b"}]}"#).unwrap();
        assert_eq!(several.len(), 2);
        let list = turns(r#" [{"message":"a"}]"#).unwrap();
        assert_eq!(list.len(), 1);
        for (text, status) in [
            (r#"{"jobs":[]}"#, 422),
            ("[]", 422),
            (r#"{"jobs":[{"prompt":"a"}],"wait":1}"#, 422),
            (r#"{"prompt":"a","colour":1}"#, 422),
            (
                r#"{"prompt":"a","attachments":[{"path":"/etc/passwd"}]}"#,
                422,
            ),
            (r#"{"prompt":"a","parent":"j1"}"#, 422),
            (r#"{"prompt":5}"#, 422),
            ("5", 400),
        ] {
            assert_eq!(turns(text).unwrap_err().status, status, "{text}");
        }
        let many = format!("[{}]", vec![r#"{"prompt":"a"}"#; 257].join(","));
        assert_eq!(turns(&many).unwrap_err().status, 422);
    }

    #[test]
    fn dispatch_insists_on_restrictions_and_keys_each_turn() {
        let mut jobs = turns(
            r#"{"prompt":"a","tools":["x"],"callback_url":"https://a.example/b","timeout":30}"#,
        )
        .unwrap();
        let (fields, key) = jobs.remove(0).into_fields(None).unwrap();
        assert_eq!(fields["text"], "a");
        assert_eq!(fields["toolsets"], json!(["x"]));
        assert_eq!(fields["must"], json!(["toolsets"]));
        assert_eq!(fields["callback"], json!({"url": "https://a.example/b"}));
        assert_eq!((key.len(), &fields["idempotency_key"]), (32, &json!(key)));
    }
}
