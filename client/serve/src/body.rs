//! Bodies, read within limits and as strictly as the protocol's own lines.
//!
//! Owns the limits. Must not know what a body means.

use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::limits::MAX_LINE_IN;
use agentd_protocol::{Code, strict};
use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use crate::problem::Problem;

/// Longest body: what becomes of it fits into a line of the protocol.
pub(crate) const LONGEST: usize = MAX_LINE_IN - 64 * 1024;
/// Longest body whose length isn't said before.
const LONGEST_CHUNKED: usize = 1024 * 1024;
/// All bodies and half messages together, in KiB: many large ones can't exhaust memory.
pub(crate) const TOGETHER_KIB: usize = 64 * 1024;
/// What each body may have besides: small ones go through however many large ones there are.
const RESERVED: usize = 64 * 1024;
/// From the head to the last byte.
const WITHIN: Duration = Duration::from_secs(30);

/// Text of a body, for as long as its room is taken.
pub(crate) struct BodyText {
    pub(crate) text: String,
    /// Kept for as long as something of this size is made of the text.
    pub(crate) room: OwnedSemaphorePermit,
}

/// Reads all of a body and checks that it is JSON without duplicate keys.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    room: &Arc<Semaphore>,
) -> Result<BodyText, Problem> {
    let said = headers.get(header::CONTENT_LENGTH);
    let said = said.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let most = match said {
        Some(length) if length > LONGEST => return Err(too_long(LONGEST)),
        Some(length) => length,
        None => LONGEST_CHUNKED,
    };
    let late = |_| {
        let why = format!("the body was not there within {} s", WITHIN.as_secs());
        // What still comes of the body would be taken for the next request.
        Problem::new(StatusCode::REQUEST_TIMEOUT, "late-body", why).header(
            header::CONNECTION,
            header::HeaderValue::from_static("close"),
        )
    };
    let (bytes, room) = tokio::time::timeout(WITHIN, collected(body, most, room))
        .await
        .map_err(late)??;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Problem::of(Code::BadUtf8, format!("byte {at} of the body is not UTF-8"))
    })?;
    // Of two fields of one name, what is in front of us may have looked at the other one.
    strict::check(&text).map_err(|why| Problem::of(Code::BadJson, format!("not JSON: {why}")))?;
    Ok(BodyText { text, room })
}

/// All bytes of a body, and the room that they take. Room is taken for what came, not for what was
/// said, and never waited for: two that wait for each other's would both be late.
async fn collected(
    mut body: Body,
    most: usize,
    room: &Arc<Semaphore>,
) -> Result<(Vec<u8>, OwnedSemaphorePermit), Problem> {
    let full = |_| {
        let why = "what others ask takes all the room there is";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no-room", why)
            .header(
                header::CONNECTION,
                header::HeaderValue::from_static("close"),
            )
            .later()
    };
    // None yet: a permit to which more is added.
    let acquired = |kib| room_for(kib, room).map_err(full);
    let mut taken = acquired(0)?;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::of(Code::Truncated, format!("the body broke off: {error}"))
        })?;
        // What is behind the body has no meaning here.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let length = bytes.len() + data.len();
        if length > most {
            return Err(too_long(most));
        }
        if length > bytes.capacity() {
            // Doubled, or a body in small pieces would be moved for each of them.
            let capacity = length.max(2 * bytes.capacity()).min(most);
            taken.merge(acquired(kib(capacity) - taken.num_permits())?);
            bytes.reserve_exact(capacity - bytes.len());
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes, taken))
}

/// How much of the room so many bytes of one request take.
pub(crate) fn kib(bytes: usize) -> usize {
    bytes.saturating_sub(RESERVED).div_ceil(1024)
}

/// So many KiB of the room, if they are free.
pub(crate) fn room_for(
    kib: usize,
    room: &Arc<Semaphore>,
) -> Result<OwnedSemaphorePermit, TryAcquireError> {
    let kib = u32::try_from(kib).unwrap_or(u32::MAX);
    Arc::clone(room).try_acquire_many_owned(kib)
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

/// Reads a body that may not be there.
pub(crate) async fn read_any(
    headers: &HeaderMap,
    body: Body,
    room: &Arc<Semaphore>,
) -> Result<Option<BodyText>, Problem> {
    if body.is_end_stream() {
        return Ok(None);
    }
    read(headers, body, room).await.map(Some)
}

/// Reads a body that has nothing to say: none, or an empty object.
pub(crate) async fn nothing(
    headers: &HeaderMap,
    body: Body,
    room: &Arc<Semaphore>,
) -> Result<(), Problem> {
    let Some(read) = read_any(headers, body, room).await? else {
        return Ok(());
    };
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

    async fn status(headers: &HeaderMap, body: Body, room: &Arc<Semaphore>) -> u16 {
        let found = read(headers, body, room).await;
        found.map_or_else(|problem| problem.status, |_| 200)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let room = Arc::new(Semaphore::new(TOGETHER_KIB));
        let begun = tokio::time::Instant::now();
        assert_eq!(status(&said(10), never(), &room).await, 408);
        assert_eq!(status(&HeaderMap::new(), never(), &room).await, 408);
        assert_eq!(begun.elapsed(), 2 * WITHIN);
        assert_eq!(room.available_permits(), TOGETHER_KIB);
    }

    #[tokio::test(start_paused = true)]
    async fn body_room_is_shared_but_for_small_ones() {
        let room = Arc::new(Semaphore::new(TOGETHER_KIB));
        let text = |length: usize| format!("{{}}{}", " ".repeat(length - 2));
        let mut kept = Vec::new();
        for _ in 0..4 {
            let read = read(&said(LONGEST), Body::from(text(LONGEST)), &room).await;
            kept.push(read.map_err(|problem| problem.status).unwrap());
        }
        let long = || Body::from(text(LONGEST));
        let begun = tokio::time::Instant::now();
        assert_eq!(status(&said(LONGEST), long(), &room).await, 503);
        let small = Body::from(text(RESERVED));
        assert_eq!(status(&said(RESERVED), small, &room).await, 200);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        kept.pop();
        assert_eq!(status(&said(LONGEST), long(), &room).await, 200);
        drop(kept);
        assert_eq!(room.available_permits(), TOGETHER_KIB);
    }

    /// What is said and doesn't come takes no room from others.
    #[tokio::test(start_paused = true)]
    async fn what_is_only_announced_takes_no_room() {
        let room = Arc::new(Semaphore::new(TOGETHER_KIB));
        let headers = said(LONGEST);
        let idle = std::array::from_fn::<_, 8, _>(|_| status(&headers, never(), &room));
        let looked = async {
            tokio::task::yield_now().await;
            room.available_permits()
        };
        let (_, free) = tokio::join!(futures_util::future::join_all(idle), looked);
        assert_eq!(free, TOGETHER_KIB);
    }

    /// However small the pieces are, there is one copy of them.
    #[tokio::test]
    async fn many_small_pieces_take_no_more_than_one() {
        let room = Arc::new(Semaphore::new(TOGETHER_KIB));
        let piece = || Ok::<_, std::io::Error>(Bytes::from_static(b" "));
        let body = Body::from_stream(stream::iter((0..LONGEST_CHUNKED).map(move |_| piece())));
        let (bytes, taken) = collected(body, LONGEST_CHUNKED, &room)
            .await
            .map_err(|problem| problem.status)
            .unwrap();
        assert_eq!(bytes.capacity(), LONGEST_CHUNKED);
        let kib = (LONGEST_CHUNKED - RESERVED) / 1024;
        assert_eq!(taken.num_permits(), kib);
        let body = Body::from_stream(stream::iter((0..=LONGEST_CHUNKED).map(move |_| piece())));
        assert_eq!(status(&HeaderMap::new(), body, &room).await, 413);
    }
}
