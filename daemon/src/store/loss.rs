//! What a start finds gone: the end of the log, or a store that was here before.
//!
//! Owns how that is told from what a power cut leaves. Must not know what is done about it.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use agentd_base::replace::{PRIVATE, replace};
use rusqlite::Connection;

use super::damage;
use super::losses;
use super::schema::{FILE, beside, free_name, reopen_to_read, text_of};

/// What is gone, in words for `status`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The file was damaged; it was moved here, and a new one begun.
    Moved(PathBuf),
    /// Commits at the end of the log can't be read any more; this is a copy of it.
    Cut {
        /// At least so many.
        commits: usize,
        /// Where it is.
        copy: PathBuf,
    },
    /// The store is an older one than it was: its log was taken away, or a copy put in its place.
    Older {
        /// The last number that is in it.
        has: u64,
        /// The last one that was.
        had: u64,
    },
    /// A page isn't what it should be.
    Damaged {
        /// What was found, in SQLite's words or ours.
        found: String,
    },
    /// Another store was here before.
    Gone {
        /// Its epoch.
        epoch: String,
        /// A copy of it, if one was made when it was taken away.
        rescued: Option<PathBuf>,
    },
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved(aside) => write!(
                f,
                "the store was damaged, what it held is in `{}`, and a new one was begun",
                aside.display()
            ),
            Self::Cut { commits, copy } => write!(
                f,
                "the store's log was damaged, what its last {commits} commits or more said of jobs \
                 is lost, and a copy of it is in `{}`",
                copy.display()
            ),
            Self::Older { has, had } => write!(
                f,
                "the store is an older one than it was: it ends with number {has} of {had}, and \
                 what was between them is lost: was its log taken away, or a copy put in its place?"
            ),
            Self::Damaged { found } => {
                write!(f, "the store is damaged: {found}; {}", damage::REMEDY)
            }
            Self::Gone {
                epoch,
                rescued: None,
            } => write!(
                f,
                "the store that was here before (epoch {epoch}) is gone, and its jobs with it"
            ),
            Self::Gone {
                epoch,
                rescued: Some(copy),
            } => write!(
                f,
                "the store that was here before (epoch {epoch}) is gone, and what it held is in `{}`",
                copy.display()
            ),
        }
    }
}

/// Says in the name of a file what it is: a copy of a log that was damaged.
pub(super) const COPIED: &str = "damaged";
/// The same of a copy of a store that was taken away under a running daemon.
pub(super) const RESCUED: &str = "rescued";
/// The log's header and that of each frame in it, in bytes: <https://sqlite.org/fileformat2.html#walformat>.
const HEADER: usize = 32;
const FRAME: usize = 24;
pub(super) const EPOCH: &str = "SELECT value FROM meta WHERE key = 'epoch'";
/// Bytes of a page of ours.
const PAGE: u32 = 4096;
/// More of zeros behind what is of the log are not copied with it.
const ROOM: u64 = 64 * 1024 * 1024;
/// Frames of an earlier round behind those of this one are left in the file; so many in a row say
/// that no more of this one follow. A hole may be as long.
const STALE: u32 = 64;

/// What is lost at the end of the log, which SQLite reads up to the first frame that does not verify.
///
/// A power cut leaves no more than one commit there, as each is on the disk before the next begins.
/// Where more follow, some of them were durable, and the log is damaged.
pub(super) fn of_log(conn: &Connection, path: &Path) -> io::Result<Option<Loss>> {
    let log = beside(path, "-wal");
    let file = match File::open(&log) {
        Ok(file) => file,
        Err(missing) if missing.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let known = frames(conn)?;
    let Behind { commits, end } = behind(&file, known)?;
    // Others that write just now were here before: whoever was the first has looked.
    if commits < 2 || frames(conn)? != known {
        return Ok(None);
    }
    // Copied and noted before the log begins anew: after that nobody could tell it any more.
    let copy = free_name(&log, COPIED);
    copy_private(&file, end, &copy)?;
    let loss = Loss::Cut { commits, copy };
    losses::note(path, &loss);
    // What is written behind the last good frame would not hide all of what follows it.
    let begun_anew = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    begun_anew.map_err(io::Error::other)?;
    Ok(Some(loss))
}

/// As many as SQLite takes for whole.
fn frames(conn: &Connection) -> io::Result<u32> {
    // `NOOP` (SQLite 3.51) tells how long the log is, and writes nothing back.
    let asked = conn.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1));
    let frames: i64 = asked.map_err(io::Error::other)?;
    Ok(u32::try_from(frames).unwrap_or(0))
}

/// What is of the same round behind so many frames.
#[derive(Default)]
struct Behind {
    commits: usize,
    /// Where it ends in the file.
    end: u64,
}

fn behind(log: &File, known: u32) -> io::Result<Behind> {
    let mut header = [0; HEADER];
    let mut frame = [0; FRAME];
    if !read(log, &mut header, 0)? || !read(log, &mut frame, HEADER as u64)? {
        return Ok(Behind::default());
    }
    // The frames of a header that is damaged itself have the same salts as the first one.
    let (page, salts) = if is_whole(&header) {
        (number(&header[8..12]), header[16..24].to_owned())
    } else {
        (PAGE, frame[8..16].to_owned())
    };
    let size = FRAME as u64 + u64::from(page);
    let (mut commits, mut stale, mut end) = (0, 0, 0);
    let mut place = HEADER as u64 + u64::from(known) * size;
    while stale < STALE && read(log, &mut frame, place)? {
        // No page has the number 0: that is room that was made ahead, or a hole, which may be as long
        // as somebody likes.
        let is_frame = number(&frame[..4]) > 0;
        if is_frame && frame[8..16] == salts {
            stale = 0;
            end = place + size;
            // How many pages the file has after a commit; none within one.
            commits += usize::from(number(&frame[4..8]) > 0);
        } else {
            stale += 1;
        }
        place += size;
    }
    Ok(Behind { commits, end })
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |all, byte| all << 8 | u32::from(*byte))
}

/// Does a header verify? Its sums are over the words before them, in the order of bytes that the
/// last bit of its first word says.
fn is_whole(header: &[u8; HEADER]) -> bool {
    let big = header[3] & 1 == 1;
    let word = |bytes: &[u8]| match big {
        true => number(bytes),
        false => number(bytes).swap_bytes(),
    };
    let (mut one, mut two) = (0_u32, 0_u32);
    for pair in header[..24].chunks(8) {
        one = one.wrapping_add(word(&pair[..4])).wrapping_add(two);
        two = two.wrapping_add(word(&pair[4..])).wrapping_add(one);
    }
    (one, two) == (number(&header[24..28]), number(&header[28..]))
}

/// Is there so much?
fn read(file: &File, into: &mut [u8], place: u64) -> io::Result<bool> {
    match file.read_exact_at(into, place) {
        Ok(()) => Ok(true),
        Err(short) if short.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// All of it, but for a hole that is longer than any room that was made ahead.
fn copy_private(mut from: &File, end: u64, to: &Path) -> io::Result<()> {
    let mut copy = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)?;
    from.seek(SeekFrom::Start(0))?;
    io::copy(&mut from.take(end.saturating_add(ROOM)), &mut copy)?;
    copy.sync_all()
}

/// What a start has lost, with what it has `found` gone before it knew which store this is.
pub(super) fn of_start(path: &Path, epoch: &str, found: Option<Loss>) -> Option<Loss> {
    match of_store(path, epoch, found.as_ref()) {
        Ok(gone) => found.or(gone),
        Err(error) => {
            tracing::warn!(%error, "which store this is can't be noted beside it");
            found
        }
    }
}

/// Notes beside the file which store this is; was it another one before? What the start has `found`
/// gone of it was noted then.
fn of_store(path: &Path, epoch: &str, found: Option<&Loss>) -> io::Result<Option<Loss>> {
    let note = beside(path, ".epoch");
    let before = match text_of(&note) {
        Ok(before) => String::from_utf8_lossy(&before).trim().to_owned(),
        Err(missing) if missing.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    if before == epoch {
        return Ok(None);
    }
    let mut copies = rescued(path).into_iter();
    // The note goes with the directory, and the copy is made after that.
    let rescued = copies.find(|(_, epoch)| before.is_empty() || *epoch == before);
    let loss = match rescued {
        Some((copy, epoch)) => Some(Loss::Gone {
            epoch,
            rescued: Some(copy),
        }),
        None => (!before.is_empty()).then_some(Loss::Gone {
            epoch: before,
            rescued: None,
        }),
    };
    // Before the note says that this is the store.
    if let (None, Some(loss)) = (found, &loss) {
        losses::note(path, loss);
    }
    note_epoch(path, epoch)?;
    Ok(loss)
}

/// Notes which store this is.
pub(super) fn note_epoch(path: &Path, epoch: &str) -> io::Result<()> {
    let text = format!("{epoch}\n");
    replace(&beside(path, ".epoch"), text.as_bytes(), PRIVATE)
}

/// Copies of stores that were taken away under a running daemon, with their epochs, the last first.
fn rescued(path: &Path) -> Vec<(PathBuf, String)> {
    let start = format!("{FILE}.{RESCUED}-");
    let entries = path.parent().and_then(|dir| fs::read_dir(dir).ok());
    let is_copy = |copy: &PathBuf| {
        let name = copy.file_name().and_then(|name| name.to_str());
        let seconds = name.and_then(|name| name.strip_prefix(&start));
        // Not what is still being made, nor what SQLite has beside it.
        seconds.is_some_and(|seconds| seconds.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let entries = entries.into_iter().flatten().flatten();
    let mut copies: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_copy).collect();
    copies.sort();
    let with_epoch = |copy: PathBuf| {
        let conn = reopen_to_read(&copy).ok()?;
        let epoch = conn.query_row(EPOCH, [], |row| row.get(0)).ok()?;
        Some((copy, epoch))
    };
    copies.into_iter().rev().filter_map(with_epoch).collect()
}
