//! Asks models through the crate `genai`, which speaks their wires; all but Ollama's.
//!
//! Owns all that is known of that crate: its types are nowhere but here and below. What it lacks
//! is made up for in the files below, and each gap has a test. Must not know what a failure means.

mod calls;
mod failure;
mod frames;
mod ollama;
mod reply;
mod request;
mod thinking;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentd_base::shared::lock;
use futures_util::Stream;
use genai::chat::{ChatOptions, ChatStream, ChatStreamEvent};
use tokio::sync::mpsc;

use super::{Boxed, FailedAt, Failure, ModelClient, Piece, Reply, Request};
use crate::provider::Wire;
use frames::Frames;
use reply::HeardReply;

/// A hosted model that hasn't even begun to answer by then isn't going to.
const BEGINS_WITHIN: Duration = Duration::from_secs(120);
/// Some models think for minutes without a word.
const SILENT_FOR: Duration = Duration::from_secs(300);
/// A local server loads the model and reads the whole prompt first.
const LOCAL_BEGINS_WITHIN: Duration = Duration::from_secs(600);

/// Models behind HTTP.
#[derive(Clone, Default, Debug)]
pub(crate) struct HttpModels {
    /// Somebody else's client and patience; those of the process when absent.
    own: Option<(reqwest::Client, Patience)>,
}

/// How long is waited.
#[derive(Clone, Copy, Debug)]
struct Patience {
    begins_within: Duration,
    silent_for: Duration,
}

impl Patience {
    const fn with(is_local: bool) -> Self {
        Self {
            begins_within: if is_local {
                LOCAL_BEGINS_WITHIN
            } else {
                BEGINS_WITHIN
            },
            silent_for: if is_local {
                LOCAL_BEGINS_WITHIN
            } else {
                SILENT_FOR
            },
        }
    }
}

impl ModelClient for HttpModels {
    fn ask<'a>(
        &'a self,
        request: &'a Request,
        pieces: &'a mpsc::Sender<Piece>,
    ) -> Boxed<'a, Result<Reply, Box<Failure>>> {
        Box::pin(async move {
            let key = request.target.key.as_ref().map(|key| key.secret());
            let asked = self.ask_once(request, pieces).await;
            asked.map_err(|failure| Box::new(failure.without(key)))
        })
    }
}

impl HttpModels {
    async fn ask_once(
        &self,
        request: &Request,
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<Reply, Failure> {
        let (http, patience) = match &self.own {
            Some((http, patience)) => (http.clone(), *patience),
            None => (
                super::http::client(&request.target.provider.base_url)
                    .map_err(|why| Failure::at(FailedAt::Request, why))?,
                Patience::with(request.target.provider.local),
            ),
        };
        let wire = request.target.provider.wire_for(&request.target.model);
        if wire == Wire::Ollama {
            return ollama::ask(&http, patience, request, pieces).await;
        }
        let client = genai::Client::builder().with_reqwest(http).build();
        let client = client.map_err(|error| failure::of(error, &Frames::new(wire)))?;
        let frames = Arc::new(Mutex::new(Frames::new(wire)));
        let options = watched(request::options(request, wire), &frames)
            .with_stream_header_timeout(patience.begins_within)
            .with_stream_read_timeout(patience.silent_for);
        let target = request::target(request, wire)?;
        let chat = request::chat(request, wire);
        let stream = client.exec_chat_stream(target, chat, Some(&options)).await;
        let stream = stream
            .map_err(|error| failure::of(error, &lock(&frames)))?
            .stream;
        let answer = Answer {
            frames: &frames,
            wire,
            begins_within: patience.begins_within,
            silent_for: patience.silent_for,
        };
        listen(stream, &answer, request, pieces).await
    }
}

/// What the crate leaves out is read from the frames themselves, before it sees them.
fn watched(options: ChatOptions, frames: &Arc<Mutex<Frames>>) -> ChatOptions {
    let frames = Arc::clone(frames);
    options.with_raw_frame_fn(move |_, frame| lock(&frames).read(frame.event, frame.data))
}

/// An answer on its way.
struct Answer<'a> {
    frames: &'a Mutex<Frames>,
    wire: Wire,
    begins_within: Duration,
    silent_for: Duration,
}

/// Follows an answer to its end.
async fn listen(
    stream: ChatStream,
    answer: &Answer<'_>,
    request: &Request,
    pieces: &mpsc::Sender<Piece>,
) -> Result<Reply, Failure> {
    let mut stream = pin!(stream);
    let mut heard = HeardReply::default();
    let frames = answer.frames;
    loop {
        let piece = match whole_frames(stream.as_mut(), answer).await? {
            Some(Ok(ChatStreamEvent::Chunk(chunk))) => {
                heard.text.push_str(&chunk.content);
                Piece::Text(chunk.content)
            }
            Some(Ok(ChatStreamEvent::ReasoningChunk(chunk))) => {
                heard.thinking.push_str(&chunk.content);
                Piece::Thinking(chunk.content)
            }
            Some(Ok(ChatStreamEvent::End(end))) => {
                return reply::whole(heard, end, &mut lock(frames), answer.wire, request);
            }
            // Calls come with the end; the rest says nothing.
            Some(Ok(_)) => continue,
            Some(Err(error)) => {
                let mut frames = lock(frames);
                return reply::refused_before(&mut frames, request)
                    .ok_or_else(|| failure::of(error, &frames));
            }
            None => return reply::cut_off(heard, &mut lock(frames), request),
        };
        // Whoever doesn't listen any more has their reasons.
        let _left = pieces.send(piece).await;
    }
}

/// The next event. Bytes that never make a frame are silence: the crate keeps them all, and tells
/// nobody of them.
async fn whole_frames(
    mut stream: Pin<&mut ChatStream>,
    answer: &Answer<'_>,
) -> Result<Option<genai::Result<ChatStreamEvent>>, Failure> {
    loop {
        let before = lock(answer.frames).count();
        let next = next(stream.as_mut(), answer.frames);
        // Until the first frame the crate itself says whether the answer began: later than both.
        let patience = match before {
            0 => answer.begins_within + answer.silent_for,
            _ => answer.silent_for,
        };
        match tokio::time::timeout(patience, next).await {
            Ok(next) => return next,
            Err(_late) if lock(answer.frames).count() > before => {}
            Err(_late) => return Err(failure::stopped()),
        }
    }
}

/// The next event. A panic of the crate is a malformed answer, not the end of the worker; an
/// answer that is too long ends here, as nothing else would notice.
async fn next(
    mut stream: Pin<&mut ChatStream>,
    frames: &Mutex<Frames>,
) -> Result<Option<genai::Result<ChatStreamEvent>>, Failure> {
    std::future::poll_fn(|context| {
        // After a panic the stream is dropped and never looked at again, so that nothing sees it
        // half changed.
        let polled = catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll_next(context)));
        if lock(frames).is_too_long() {
            return std::task::Poll::Ready(Err(failure::too_long()));
        }
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(_) => {
                let why = "the answer holds numbers that can't be".to_owned();
                std::task::Poll::Ready(Err(Failure::at(FailedAt::Malformed, why)))
            }
        }
    })
    .await
}
