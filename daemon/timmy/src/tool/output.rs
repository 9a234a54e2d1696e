//! How much of a long output a model is told, and where the rest is kept.
//!
//! Owns the limits, what is left out, and the files of what was left out. Must not know what the
//! output is of.

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A tool's answer is no longer: about 12,000 tokens, which any model has room for several times.
pub(crate) const MOST_BYTES: usize = 50_000;
/// The same in lines: a list of short lines says little for its length.
pub(crate) const MOST_LINES: usize = 2_000;
/// The head's part of what is shown, in hundredths. The end has the errors, so it gets more.
const HEAD_PERCENT: usize = 40;
/// All that one session's files may take; what comes after isn't kept.
const MOST_KEPT: u64 = 64 << 20;
/// A name that a provider gave is cut to this, to stay well below what file systems take.
const MOST_NAME: usize = 40;
/// Outputs of one call that find their name taken, before giving up.
const MOST_NAMES: u32 = 1_000;

/// Output that comes in pieces: holds its beginning and its end, and writes all of it away once
/// it is too long to be shown.
pub(crate) struct Output {
    /// The beginning.
    head: Vec<u8>,
    /// The end of what doesn't fit into `head`.
    tail: VecDeque<u8>,
    bytes: u64,
    newlines: u64,
    ends_in_newline: bool,
    whole: Whole,
    spill: PathBuf,
    name: String,
}

/// Where the whole output is.
enum Whole {
    /// In `head`.
    Here,
    /// In a file, as far as there was room.
    Kept {
        file: File,
        path: PathBuf,
        /// Bytes that may still be written.
        room: u64,
        /// Was something not written?
        cut: bool,
    },
    /// Nowhere, and this is why.
    Lost(String),
}

/// What is shown of an output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    /// Within the limits, but for one line that says what was left out.
    pub(crate) text: String,
    /// Was something left out?
    pub(crate) truncated: bool,
}

impl Output {
    /// Nothing yet. Should it get long, it is kept in directory `spill`, in a file named like
    /// `name`.
    pub(crate) fn new(spill: &Path, name: &str) -> Self {
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            bytes: 0,
            newlines: 0,
            ends_in_newline: true,
            whole: Whole::Here,
            spill: spill.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        let Some(last) = piece.last() else { return };
        self.ends_in_newline = *last == b'\n';
        self.bytes += piece.len() as u64;
        self.newlines += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        if matches!(self.whole, Whole::Here) && !self.fits() {
            self.whole = keep(&self.spill, &self.name);
            let head = std::mem::take(&mut self.head);
            self.write(&head);
            self.head = head;
        }
        self.write(piece);
        let (first, rest) = piece.split_at(piece.len().min(MOST_BYTES - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(tail_bytes())..];
        let over = (self.tail.len() + rest.len()).saturating_sub(tail_bytes());
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    fn lines(&self) -> u64 {
        self.newlines + u64::from(!self.ends_in_newline)
    }

    fn fits(&self) -> bool {
        self.bytes <= MOST_BYTES as u64 && self.lines() <= MOST_LINES as u64
    }

    fn write(&mut self, piece: &[u8]) {
        let Whole::Kept {
            file, room, cut, ..
        } = &mut self.whole
        else {
            return;
        };
        let fits = usize::try_from(*room).map_or(piece.len(), |room| room.min(piece.len()));
        *cut |= fits < piece.len();
        *room -= fits as u64;
        // A full disk is no reason to end the command: only its middle is lost.
        if let Err(error) = file.write_all(&piece[..fits]) {
            self.whole = Whole::Lost(format!("it could not be kept: {error}"));
        }
    }

    /// What a model is told of it.
    pub(crate) fn shown(mut self) -> Shown {
        if self.fits() {
            let text = String::from_utf8_lossy(&self.head);
            // Bytes that are no text become longer; usually they don't.
            if text.len() <= MOST_BYTES {
                return Shown {
                    text: text.into_owned(),
                    truncated: false,
                };
            }
            self.whole = keep(&self.spill, &self.name);
            let head = std::mem::take(&mut self.head);
            self.write(&head);
            self.head = head;
        }
        let head = first_part(&self.head);
        let rest: Vec<u8> = self.head[head.len()..]
            .iter()
            .chain(&self.tail)
            .copied()
            .collect();
        let tail = last_part(&rest);
        let left_out = self.bytes - (head.len() + tail.len()) as u64;
        let shown_lines = newlines(head) + newlines(tail);
        let mut text = lossy_start(head);
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!(
            "[… {left_out} of {} bytes and {} of {} lines left out; {} …]\n",
            self.bytes,
            self.newlines - shown_lines,
            self.lines(),
            self.whole.place(self.bytes),
        ));
        text.push_str(&lossy_end(tail));
        Shown {
            text,
            truncated: true,
        }
    }

    /// Bytes of memory that it takes.
    #[cfg(test)]
    fn memory(&self) -> usize {
        self.head.capacity() + self.tail.capacity()
    }
}

impl Whole {
    fn place(&self, bytes: u64) -> String {
        match self {
            Self::Here => "the rest was not kept".to_owned(),
            Self::Lost(why) => why.clone(),
            Self::Kept {
                path, cut: false, ..
            } => format!("all {bytes} bytes are in {}", path.display()),
            Self::Kept { path, file, .. } => format!(
                "the first {} bytes are in {}, the rest was dropped: a session keeps {} MiB",
                file.metadata().map_or(0, |found| found.len()),
                path.display(),
                MOST_KEPT >> 20,
            ),
        }
    }
}

/// Text that is there as a whole, as it is shown.
pub(crate) fn shown(text: &str, spill: &Path, name: &str) -> Shown {
    let mut output = Output::new(spill, name);
    output.push(text.as_bytes());
    output.shown()
}

const fn head_bytes() -> usize {
    MOST_BYTES * HEAD_PERCENT / 100
}

const fn tail_bytes() -> usize {
    MOST_BYTES - head_bytes()
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// The beginning: whole lines if there are any.
fn first_part(bytes: &[u8]) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(head_bytes())];
    let most_lines = MOST_LINES * HEAD_PERCENT / 100;
    let mut ends = (0..bytes.len()).filter(|at| bytes[*at] == b'\n');
    let by_lines = ends.nth(most_lines - 1);
    let end = by_lines.or_else(|| bytes.iter().rposition(|byte| *byte == b'\n'));
    match end {
        // A first line that is nearly all there is: better half of it than none.
        Some(end) if end >= bytes.len() / 2 || by_lines.is_some() => &bytes[..=end],
        _ => &bytes[..char_end(bytes)],
    }
}

/// The end: whole lines if there are any.
fn last_part(bytes: &[u8]) -> &[u8] {
    let bytes = &bytes[bytes.len().saturating_sub(tail_bytes())..];
    let most_lines = MOST_LINES - MOST_LINES * HEAD_PERCENT / 100;
    let content = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let mut starts = (0..content.len()).rev().filter(|at| content[*at] == b'\n');
    let by_lines = starts.nth(most_lines - 1);
    let start = by_lines.or_else(|| content.iter().position(|byte| *byte == b'\n'));
    match start {
        Some(start) if start <= bytes.len() / 2 || by_lines.is_some() => &bytes[start + 1..],
        _ => &bytes[char_start(bytes)..],
    }
}

/// Where the last whole character ends.
fn char_end(bytes: &[u8]) -> usize {
    // A character has four bytes at most; what is longer broken isn't text anyway.
    let from = bytes.len().saturating_sub(4);
    match (from..bytes.len()).rfind(|at| bytes[*at] & 0xC0 != 0x80) {
        Some(start) if std::str::from_utf8(&bytes[start..]).is_err() => start,
        _ => bytes.len(),
    }
}

/// Where the first whole character starts.
fn char_start(bytes: &[u8]) -> usize {
    let within = bytes.iter().take(4);
    within.take_while(|byte| **byte & 0xC0 == 0x80).count() % 4
}

/// As text of no more bytes than the part may have: bytes that are no text become longer.
fn lossy_start(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    text.truncate(text.floor_char_boundary(head_bytes()));
    text
}

fn lossy_end(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let from = text.len().saturating_sub(tail_bytes());
    text[text.ceil_char_boundary(from)..].to_owned()
}

/// Makes a file for a whole output.
fn keep(spill: &Path, name: &str) -> Whole {
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(MOST_NAME)
        .collect();
    match try_keep(spill, &name) {
        Ok(kept) => kept,
        Err(error) => Whole::Lost(format!("it could not be kept: {error}")),
    }
}

fn try_keep(spill: &Path, name: &str) -> std::io::Result<Whole> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(spill)?;
    let mut taken = 0;
    // Counted anew for each, as calls at the same time and earlier turns have written there.
    for entry in std::fs::read_dir(spill)? {
        let found = entry?.metadata()?;
        taken += if found.is_file() { found.len() } else { 0 };
    }
    let room = MOST_KEPT.saturating_sub(taken);
    if room == 0 {
        return Ok(Whole::Lost(format!(
            "it was dropped: a session keeps {} MiB, and these are full",
            MOST_KEPT >> 20
        )));
    }
    for number in 1..=MOST_NAMES {
        let path = spill.join(format!("{name}-{number}.txt"));
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                return Ok(Whole::Kept {
                    file,
                    path,
                    room,
                    cut: false,
                });
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests;
