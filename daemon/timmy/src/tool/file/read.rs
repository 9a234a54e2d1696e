//! The tool `read`.
//!
//! Owns which lines of a file are told. Reads no more of a file than it has to.

use std::io::{BufRead, BufReader};

use super::{Here, Wants, open, short};
use crate::tool::output::{MOST_BYTES, MOST_LINES};
use crate::tool::places::Access;
use crate::tool::schema::arguments;
use crate::tool::{Surroundings, ToolOutcome};

/// A zero byte within these means that it's no text.
const LOOKED_AT: usize = 8 << 10;

arguments! {
    /// What `read` takes.
    pub(super) Wanted {
        path: String = "The file: absolute, or relative to the workspace.",
        offset: Option<u64> = "The first line to read, counted from 1.",
        limit: Option<u64> = "How many lines to read; 2000 at most.",
    }
}

impl Wants for Wanted {
    const NAME: &'static str = "read";
    const DESCRIPTION: &'static str = "Reads a text file: 2000 lines or 50,000 bytes at a time. What is left says at which offset \
        to go on.";
    const ACCESS: Access = Access::Read;

    fn path(&self) -> &str {
        &self.path
    }

    fn done(&self, here: &Here) -> Result<ToolOutcome, String> {
        read(here, self)
    }
}

fn read(here: &Here, wanted: &Wanted) -> Result<ToolOutcome, String> {
    let Here { place, around, .. } = here;
    let name = short(&place.path, around).display();
    let said = |error: std::io::Error| format!("can't read {name}: {error}");
    let (file, found) = open(place)?;
    let mut reader = BufReader::with_capacity(LOOKED_AT, file);
    if reader.fill_buf().map_err(said)?.contains(&0) {
        let size = found.len();
        return Err(format!(
            "{name} is a binary file of {size} bytes; expected text"
        ));
    }
    let first = wanted.offset.unwrap_or(1);
    let before = skip(&mut reader, first - 1, around).map_err(said)?;
    if first > 1 && reader.fill_buf().map_err(said)?.is_empty() {
        return Err(format!(
            "{name} has {before} lines; expected an offset up to that, found {first}"
        ));
    }
    let most = MOST_LINES as u64;
    let most = wanted.limit.map_or(most, |limit| limit.min(most));
    let Taken {
        bytes,
        lines,
        is_cut,
    } = take(&mut reader, most).map_err(said)?;
    let more = !reader.fill_buf().map_err(said)?.is_empty();
    let mut shown = String::from_utf8_lossy(&bytes).into_owned();
    let mut notes = String::new();
    if std::str::from_utf8(&bytes).is_err() && !is_cut {
        notes.push_str("[some bytes are not UTF-8, and shown as \u{FFFD}]\n");
    }
    if is_cut {
        notes.push_str(&format!(
            "[line {first} is longer than {MOST_BYTES} bytes, and cut; {} bytes in all; go on with \
             offset {}]\n",
            found.len(),
            first + 1
        ));
    } else if more {
        notes.push_str(&format!(
            "[lines {first} to {}; there are more: go on with offset {}]\n",
            first + lines - 1,
            first + lines
        ));
    } else if shown.is_empty() {
        notes.push_str("[the file is empty]\n");
    }
    if !notes.is_empty() && !shown.is_empty() && !shown.ends_with('\n') {
        shown.push('\n');
    }
    shown.push_str(&notes);
    Ok(ToolOutcome {
        ok: true,
        output: shown,
        truncated: more || is_cut,
        sandbox: None,
    })
}

/// Passes over some lines; returns how many there were.
fn skip(reader: &mut impl BufRead, lines: u64, around: &Surroundings) -> std::io::Result<u64> {
    let mut passed = 0;
    let mut is_within = false;
    while passed < lines {
        // A file may have gigabytes before that line.
        if around.cancel.is_cancelled() {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(passed + u64::from(is_within));
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        passed += u64::from(end.is_some());
        is_within = end.is_none();
        reader.consume(used);
    }
    Ok(passed)
}

struct Taken {
    bytes: Vec<u8>,
    /// Whole lines in it; the last one of the file may lack its end.
    lines: u64,
    /// Is it only the beginning of a line that is too long?
    is_cut: bool,
}

/// Takes whole lines, as many as may be told.
fn take(reader: &mut impl BufRead, most_lines: u64) -> std::io::Result<Taken> {
    let mut taken = Taken {
        bytes: Vec::new(),
        lines: 0,
        is_cut: false,
    };
    // Where the line that is being read starts.
    let mut start = 0;
    while taken.lines < most_lines {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            taken.lines += u64::from(start < taken.bytes.len());
            return Ok(taken);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        if taken.bytes.len() + used > MOST_BYTES {
            // A line that doesn't fit any more comes whole with the next call, unless it is the
            // first one.
            if start == 0 {
                let room = MOST_BYTES - taken.bytes.len();
                taken.bytes.extend_from_slice(&buffer[..room]);
                taken.is_cut = true;
            } else {
                taken.bytes.truncate(start);
            }
            return Ok(taken);
        }
        taken.bytes.extend_from_slice(&buffer[..used]);
        reader.consume(used);
        if end.is_some() {
            taken.lines += 1;
            start = taken.bytes.len();
        }
    }
    Ok(taken)
}
