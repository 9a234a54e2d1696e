//! What a send attaches, read before the core hears of it: by then its content can't change or go
//! away any more.
//!
//! Owns which files are read and how much of them, what a content is by its first bytes, and how
//! much is held in memory until it is in the store. It blocks for as long as a file may take, so it
//! runs in a thread of its own.
//! Must not know connections, agents or the store.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentd_core::attached::Content;
use agentd_protocol::attachment::{Attachment, IMAGES, PDF, TEXT, is_text, type_of};
use agentd_protocol::envelope::Rejected;
use agentd_protocol::limits::{MAX_ATTACHED, MAX_ATTACHMENT, MAX_LINE_IN};
use agentd_protocol::line::Budget;
use agentd_protocol::request::{Decoded, Send};
use agentd_protocol::{Code, Request, serde_json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::platform::content;

/// Contents of all connections that aren't in the store yet, in bytes: a short line that names a
/// large file must not fill the memory of the daemon. As much as unfinished lines may take.
const UNSTORED: usize = 64 * 1024 * 1024;
/// What a line to a worker has besides its text and its attachments.
const AROUND: usize = 64 * 1024;

/// Requests whose attachments are read at the same time: each has a thread.
const READERS: usize = 16;
/// Whoever waits for one of these that long waits behind files that don't answer.
const PLACE_WITHIN: Duration = Duration::from_secs(10);

static PLACES: Semaphore = Semaphore::const_new(READERS);

/// What is held at the moment, of [`UNSTORED`].
static HELD: AtomicUsize = AtomicUsize::new(0);

/// Some of [`HELD`], given back when it is dropped.
struct Hold(usize);

impl Hold {
    fn of(bytes: usize) -> Result<Self, Rejected> {
        let more = |held: usize| held.checked_add(bytes).filter(|all| *all <= UNSTORED);
        match HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_before) => Ok(Self(bytes)),
            Err(held) => {
                let error = format!(
                    "{held} bytes of attachments wait to be stored, the limit is {UNSTORED}"
                );
                Err(Rejected::new(Code::QueueFull, error).hint("nothing was run; ask again later"))
            }
        }
    }
}

/// What is held at the moment, as `status` tells it.
pub(super) fn held() -> Budget {
    Budget {
        bytes: HELD.load(Ordering::Relaxed) as u64,
        limit: UNSTORED as u64,
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Bytes that count as held for as long as anybody has them.
struct HeldBytes {
    bytes: Vec<u8>,
    _hold: Hold,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Waits until attachments may be read.
///
/// # Errors
/// `queue-full` when those of others take too long.
pub(super) async fn place() -> Result<SemaphorePermit<'static>, Rejected> {
    let place = tokio::time::timeout(PLACE_WITHIN, PLACES.acquire()).await;
    place.ok().and_then(Result::ok).ok_or_else(|| {
        let error = format!("the attachments of {READERS} other requests are still being read");
        Rejected::new(Code::QueueFull, error).hint("nothing was run; ask again later")
    })
}

/// Has a request attachments?
pub(super) fn has_any(request: &Request) -> bool {
    let turns = request.turns();
    turns.iter().any(|send| !send.attachments.is_empty())
}

/// Reads all that a request attaches: afterwards it says what each of them is, and not where it was.
/// Returns the contents of each send.
///
/// # Errors
/// `invalid-request` for what can't be attached, `queue-full` when too much is held already.
pub(super) fn read(decoded: &mut Decoded) -> Result<Vec<Vec<Content>>, Rejected> {
    let mut room = MAX_ATTACHED;
    let is_one = !matches!(decoded.request, Request::Dispatch(_));
    let turns = decoded.request.turns_mut().into_iter().enumerate();
    let of_turn = |(item, send)| {
        of_send(send, &mut room).map_err(|rejected| match is_one {
            true => rejected,
            false => Rejected {
                error: format!("`jobs[{item}]`: {}; none was accepted", rejected.error),
                ..rejected
            },
        })
    };
    turns.map(of_turn).collect()
}

fn of_send(send: &mut Send, room: &mut usize) -> Result<Vec<Content>, Rejected> {
    let mut contents = Vec::new();
    for (number, attachment) in send.attachments.iter_mut().enumerate() {
        let content = of_one(attachment, room).map_err(|rejected| Rejected {
            error: format!("`attachments[{number}]` {}", rejected.error),
            ..rejected
        })?;
        contents.push(content);
    }
    if !contents.is_empty() {
        fits_into_a_line(send, &contents)?;
    }
    Ok(contents)
}

/// Workers get a turn in one line, of which some take no more than we do.
fn fits_into_a_line(send: &Send, contents: &[Content]) -> Result<(), Rejected> {
    let text = serde_json::to_string(&send.text).map_or(MAX_LINE_IN, |text| text.len());
    let encoded = |content: &Content| content.bytes().len().div_ceil(3) * 4;
    let line = text + contents.iter().map(encoded).sum::<usize>() + AROUND;
    if line <= MAX_LINE_IN {
        return Ok(());
    }
    Err(invalid(format!(
        "the text and the attachments make a line of {line} bytes, the limit is {MAX_LINE_IN}"
    )))
}

fn of_one(attachment: &mut Attachment, room: &mut usize) -> Result<Content, Rejected> {
    let most = MAX_ATTACHMENT.min(*room);
    let held = match (attachment.path.take(), attachment.data.take()) {
        (Some(path), _) => {
            let held = of_file(&path, most)?;
            let last = path.rsplit('/').next().unwrap_or_default();
            let last: String = last.chars().filter(|c| !c.is_control()).collect();
            attachment.name = attachment.name.take().or(Some(last));
            held
        }
        (None, Some(data)) => of_data(&data, most)?,
        (None, None) => return Err(invalid("has neither `path` nor `data`")),
    };
    *room -= held.bytes.len();
    let found = type_of(&held.bytes).ok_or_else(|| {
        let images = IMAGES.join(", ");
        invalid(format!(
            "is of a type that can't be attached: expected {images}, {PDF} or text in UTF-8"
        ))
    })?;
    let mime = match attachment.mime.take() {
        // Of text the sender knows more than its bytes say.
        Some(given) if given == found || is_text(&given) && found == TEXT => given,
        Some(given) => {
            return Err(invalid(format!(
                "is called `{given}`, but its content is `{found}`"
            )));
        }
        None => found.to_owned(),
    };
    attachment.mime = Some(mime);
    attachment.bytes = Some(held.bytes.len() as u64);
    let digest = Sha256::digest(&held.bytes);
    attachment.sha256 = Some(digest.iter().map(|byte| format!("{byte:02x}")).collect());
    Ok(Content::new(held))
}

fn of_data(data: &str, most: usize) -> Result<HeldBytes, Rejected> {
    let bytes = data.len() / 4 * 3;
    // Up to two of them are padding.
    if bytes > most.saturating_add(2) {
        return Err(too_large(bytes as u64, most));
    }
    // Before it is decoded: what has no room isn't even made.
    let hold = Hold::of(bytes)?;
    let bytes = STANDARD
        .decode(data)
        .map_err(|error| invalid(format!("has `data` that isn't base64: {error}")))?;
    match bytes.len() {
        0 => Err(invalid("is empty")),
        size if size > most => Err(too_large(size as u64, most)),
        _ => Ok(HeldBytes { bytes, _hold: hold }),
    }
}

/// The whole file as it is now. Who asks is the user whose files these are, so a link is followed:
/// it leads to nothing that the user could not name.
fn of_file(path: &str, most: usize) -> Result<HeldBytes, Rejected> {
    let failed = |error: std::io::Error| invalid(format!("can't be read: `{path}`: {error}"));
    let content = content::open(path).map_err(failed)?;
    if !content.kind.is_file() {
        let what = if content.kind.is_dir() {
            "a directory"
        } else {
            "a device, pipe or socket"
        };
        return Err(invalid(format!(
            "is {what}: `{path}`: expected a regular file"
        )));
    }
    let size = match usize::try_from(content.kind.size) {
        Ok(0) => return Err(invalid(format!("is empty: `{path}`"))),
        Ok(size) if size <= most => size,
        _ => return Err(too_large(content.kind.size, most)),
    };
    // By its size, before it is read; one that grows meanwhile is another one, and refused.
    let hold = Hold::of(size)?;
    match content.read().map_err(failed)? {
        Some(bytes) => Ok(HeldBytes { bytes, _hold: hold }),
        None => Err(invalid(format!("changed while it was read: `{path}`"))
            .hint("ask again when nobody writes it")),
    }
}

fn invalid(error: impl Into<String>) -> Rejected {
    Rejected::new(Code::InvalidRequest, error)
}

fn too_large(bytes: u64, most: usize) -> Rejected {
    let error = if most == MAX_ATTACHMENT {
        format!("has {bytes} bytes, the limit is {MAX_ATTACHMENT}")
    } else {
        format!("has {bytes} bytes: all attachments of a request together may have {MAX_ATTACHED}")
    };
    invalid(error)
        .hint("say in the text where the file is: most agents can read files by themselves")
}

#[cfg(test)]
mod tests;
