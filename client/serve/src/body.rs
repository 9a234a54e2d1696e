//! Bodies, read within limits and as strictly as the protocol's own lines.
//!
//! Owns the limits. Must not know what a body means.

use std::time::Duration;

use agentd_protocol::limits::MAX_LINE_IN;
use agentd_protocol::{Code, strict};
use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::problem::Problem;

/// Longest body: what becomes of it fits into a line of the protocol.
pub(crate) const LONGEST: usize = MAX_LINE_IN - 64 * 1024;
/// Longest body whose length isn't said before.
const LONGEST_CHUNKED: usize = 1024 * 1024;
/// All bodies together, in KiB: many large ones can't exhaust memory.
pub(crate) const TOGETHER_KIB: usize = 64 * 1024;
/// From the head to the last byte, waiting for room included.
const WITHIN: Duration = Duration::from_secs(30);

/// Text of a body, for as long as its room is taken.
pub(crate) struct Text<'a> {
    pub(crate) text: String,
    _room: SemaphorePermit<'a>,
}

/// Reads all of a body and checks that it is JSON without duplicate keys.
pub(crate) async fn read<'a>(
    headers: &HeaderMap,
    body: Body,
    room: &'a Semaphore,
) -> Result<Text<'a>, Problem> {
    let said = headers.get(header::CONTENT_LENGTH);
    let said = said.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let most = match said {
        Some(length) if length > LONGEST => return Err(too_long(LONGEST)),
        Some(length) => length,
        None => LONGEST_CHUNKED,
    };
    let late = |_| {
        let why = format!("the body was not there within {} s", WITHIN.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, "late-body", why).header(
            header::CONNECTION,
            header::HeaderValue::from_static("close"),
        )
    };
    let reading = async {
        let kib = u32::try_from(most / 1024 + 1).unwrap_or(u32::MAX);
        let room = room.acquire_many(kib).await.map_err(|closed| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "stopping",
                closed.to_string(),
            )
        })?;
        let collected = Limited::new(body, most).collect().await;
        let collected = collected.map_err(|error| match error.is::<LengthLimitError>() {
            true => too_long(most),
            false => Problem::of(Code::Truncated, format!("the body broke off: {error}")),
        })?;
        Ok::<_, Problem>((collected.to_bytes(), room))
    };
    let (bytes, room) = tokio::time::timeout(WITHIN, reading)
        .await
        .map_err(late)??;
    let text = String::from_utf8(bytes.into()).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Problem::of(Code::BadUtf8, format!("byte {at} of the body is not UTF-8"))
    })?;
    strict::check(&text).map_err(|why| Problem::of(Code::BadJson, format!("not JSON: {why}")))?;
    Ok(Text { text, _room: room })
}

/// What a text means, every field of it known.
pub(crate) fn parse<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Problem> {
    serde_json::from_str(text)
        .map_err(|error| Problem::of(Code::InvalidRequest, format!("invalid field: {error}")))
}

fn too_long(most: usize) -> Problem {
    let why = format!("the body is longer than {most} bytes");
    let problem = Problem::of(Code::FrameTooLong, why).header(
        header::CONNECTION,
        header::HeaderValue::from_static("close"),
    );
    if most == LONGEST_CHUNKED {
        problem.hint("a longer one says its `Content-Length`")
    } else {
        problem
    }
}

/// Reads a body that has nothing to say: none, or an empty object.
pub(crate) async fn nothing(
    headers: &HeaderMap,
    body: Body,
    room: &Semaphore,
) -> Result<(), Problem> {
    if body.is_end_stream() {
        return Ok(());
    }
    let read = read(headers, body, room).await?;
    match read.text.trim() {
        "{}" => Ok(()),
        _ => Err(Problem::of(
            Code::InvalidRequest,
            "the body has something in it: expected none, or `{}`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Bytes;
    use futures_util::stream;

    fn never() -> Body {
        Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>())
    }

    fn said(length: usize) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_LENGTH, length.into());
        headers
    }

    async fn status(headers: &HeaderMap, body: Body, room: &Semaphore) -> u16 {
        let found = read(headers, body, room).await;
        found.map_or_else(|problem| problem.status, |_| 200)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let room = Semaphore::new(TOGETHER_KIB);
        let begun = tokio::time::Instant::now();
        assert_eq!(status(&said(10), never(), &room).await, 408);
        assert_eq!(status(&HeaderMap::new(), never(), &room).await, 408);
        assert_eq!(begun.elapsed(), 2 * WITHIN);
        assert_eq!(room.available_permits(), TOGETHER_KIB);
    }

    #[tokio::test(start_paused = true)]
    async fn all_bodies_together_have_so_much_room() {
        let room = Semaphore::new(TOGETHER_KIB);
        let long = || format!("{{}}{}", " ".repeat(LONGEST - 2));
        let mut kept = Vec::new();
        for _ in 0..4 {
            let read = read(&said(LONGEST), Body::from(long()), &room).await;
            kept.push(read.map_err(|problem| problem.status).unwrap());
        }
        assert_eq!(status(&said(LONGEST), Body::from(long()), &room).await, 408);
        kept.pop();
        assert_eq!(status(&said(LONGEST), Body::from(long()), &room).await, 200);
    }
}
