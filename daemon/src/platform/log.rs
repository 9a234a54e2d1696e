//! Where the daemon's log goes, and how much of it.
//!
//! Owns `AGENTD_LOG`, the level in force, the journal, standard error and the file. Must not know
//! what is logged; who logs gives no prompt, no answer and no key to anything above `trace`.
//!
//! In the journal each field has the prefix `AGENTD_`: `job` is `AGENTD_JOB`, so are `session`,
//! `agent` and `worker`.

mod file;
mod journal;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::detached;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

pub use file::FILE;
use journal::Journal;

/// The field of the journal that says which state directory's daemon this is.
const STATE: &str = "AGENTD_STATE";
/// A pipe that has room at all takes so many bytes without making the writer wait.
const AT_ONCE: usize = 4096;

/// Said by what starts us under launchd, which writes standard error to a file that nobody rotates.
const KEPT: (&str, &str) = ("AGENTD_SERVICE", "launchd");

/// The filter in force.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();
/// Lines that standard error did not take.
static UNREAD: AtomicU64 = AtomicU64::new(0);
/// Is standard error only for what can't be logged, such as a panic?
static IN_FILE_ONLY: AtomicBool = AtomicBool::new(false);

/// Starts logging: to the journal when standard error leads there, else to standard error and, from
/// [`keep_in`] on, to a file.
///
/// `state` is the state directory: several daemons may have one journal. `usual` is the level when
/// `AGENTD_LOG` says nothing. `AGENTD_LOG` is a level or a list of directives as in
/// `info,agentd_daemon::store=debug`; what can't be read in it counts as `usual`.
/// There are no filters by span or field: their regular expressions would be a sixth of the program.
pub fn start(usual: &str, state: &Path) -> Result<(), TryInitError> {
    let wanted = std::env::var("AGENTD_LOG").unwrap_or_default();
    let (filter, handle) = reload::Layer::new(filter(&wanted, usual));
    let registry = tracing_subscriber::registry().with(filter);
    if leads_to_journal()
        && let Ok(journal) = Journal::open(
            Path::new(journal::SOCKET),
            &[
                ("SYSLOG_IDENTIFIER", b"agentd"),
                (STATE, plain(state).as_os_str().as_encoded_bytes()),
            ],
        )
    {
        registry.with(journal).try_init()?;
        file::not_needed();
        let _first = FILTER.set(handle);
        return Ok(());
    }
    let stderr = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(|| Stderr);
    let kept = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .log_internal_errors(false)
        .with_writer(|| file::LogWriter);
    registry.with(stderr).with(kept).try_init()?;
    let _first = FILTER.set(handle);
    Ok(())
}

/// As who looks for it writes it: absolute, without needless slashes.
fn plain(dir: &Path) -> PathBuf {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    dir.components().collect()
}

/// From now on the log is kept in a file of this directory, unless it is in the journal. Only for
/// whoever holds the directory: two writers would rotate each other's file away. Under launchd it is
/// kept nowhere else then.
pub fn keep_in(dir: &Path) {
    match file::open(dir) {
        Ok(()) => {
            let is_kept = detached::is() || std::env::var(KEPT.0).is_ok_and(|said| said == KEPT.1);
            IN_FILE_ONLY.store(is_kept, Ordering::Relaxed);
        }
        Err(error) => {
            tracing::warn!(%error, dir = %dir.display(), "the log can't be kept in a file");
        }
    }
}

/// Waits until what was logged is in its file, for a second at most.
pub fn finish() {
    file::finish();
}

/// How much is logged: a level, or a list of directives.
#[must_use]
pub fn level() -> String {
    let level = |filter: &reload::Handle<_, _>| filter.with_current(Targets::to_string).ok();
    FILTER
        .get()
        .and_then(level)
        .unwrap_or_else(|| "off".to_owned())
}

/// How [`level`] would say these directives.
///
/// # Errors
/// Says which of them can't be read.
pub fn level_of(wanted: &str) -> Result<String, String> {
    read(wanted).map(|filter| filter.to_string())
}

/// Where the log is: `journal`, `stderr`, or a file's path.
#[must_use]
pub fn place() -> String {
    file::place()
}

/// Changes how much is logged until the process ends. What can't be read changes nothing.
pub fn set(wanted: &str) {
    let Ok(filter) = read(wanted) else { return };
    if let Some(handle) = FILTER.get() {
        // It fails only when the subscriber is gone, which lives as long as the process.
        let _gone = handle.reload(filter);
    }
}

/// Stricter than what the library reads, which takes any word for the name of a target: a typing
/// error would turn everything off.
fn read(wanted: &str) -> Result<Targets, String> {
    for part in wanted.split(',').map(str::trim) {
        let level = part.rsplit('=').next().unwrap_or_default().trim();
        let is_level = LevelFilter::from_str(level).is_ok() && !level.is_empty();
        if !is_level || part.starts_with('=') {
            return Err(format!("`{part}` is no level"));
        }
    }
    wanted
        .parse()
        .map_err(|error| format!("`{wanted}` can't be read: {error}"))
}

fn filter(wanted: &str, usual: &str) -> Targets {
    let read = |words: &str| words.parse().ok();
    let wanted = Some(wanted).filter(|words| !words.trim().is_empty());
    wanted
        .and_then(read)
        .or_else(|| read(usual))
        .unwrap_or_default()
}

/// Standard error, for whom nobody waits: a pipe that nobody reads loses lines, and says so once
/// it is read again.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if IN_FILE_ONLY.load(Ordering::Relaxed) {
            return Ok(bytes.len());
        }
        let stderr = io::stderr();
        if !has_room(&stderr) {
            UNREAD.fetch_add(1, Ordering::Relaxed);
            return Ok(bytes.len());
        }
        let lost = UNREAD.swap(0, Ordering::Relaxed);
        let mut stderr = stderr.lock();
        if lost > 0 {
            writeln!(stderr, "[{lost} lines of the log were not read in time]")?;
        }
        // `POLLOUT` promises room for `PIPE_BUF` bytes, and no more (pipe(7)).
        stderr.write(&bytes[..bytes.len().min(AT_ONCE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn has_room(stream: &impl std::os::fd::AsFd) -> bool {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
    // What can't be polled is no pipe and no terminal.
    poll(&mut fds, PollTimeout::ZERO).map_or(true, |ready| ready > 0)
}

/// `JOURNAL_STREAM` is inherited further than the stream itself, so it is compared.
fn leads_to_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    nix::sys::stat::fstat(io::stderr())
        .is_ok_and(|stderr| is_stream(&named, stderr.st_dev, stderr.st_ino))
}

/// A device's number has another type on each system.
fn is_stream(named: &str, dev: impl Display, inode: u64) -> bool {
    named == format!("{dev}:{inode}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn log_level_that_is_nonsense_is_the_usual() {
        let shows = |wanted: &str, target: &str, level: &Level| {
            filter(wanted, "info").would_enable(target, level)
        };
        assert!(shows("", "agentd_daemon", &Level::INFO));
        assert!(!shows("", "agentd_daemon", &Level::DEBUG));
        assert!(shows("debug", "agentd_daemon", &Level::DEBUG));
        let directives = "warn,agentd_daemon::store=debug";
        assert!(shows(directives, "agentd_daemon::store", &Level::DEBUG));
        assert!(!shows(directives, "agentd_daemon::server", &Level::INFO));
        assert!(shows("=what=", "agentd_daemon", &Level::INFO));
    }

    #[test]
    fn log_level_that_is_new_is_read_strictly() {
        for level in ["debug", "off", "warn,agentd_daemon::store=debug", "INFO"] {
            assert!(read(level).is_ok(), "{level}");
        }
        for (wrong, part) in [
            ("debgu", "debgu"),
            ("", ""),
            ("info,", ""),
            ("info,agentd_daemon::store", "agentd_daemon::store"),
            ("agentd_daemon=loud", "agentd_daemon=loud"),
            ("=debug", "=debug"),
        ] {
            assert_eq!(read(wrong).unwrap_err(), format!("`{part}` is no level"));
        }
    }

    #[test]
    fn log_pipe_unread_is_full_in_the_end() {
        let (_reader, mut writer) = io::pipe().unwrap();
        let mut lines = 0;
        while has_room(&writer) {
            // Would wait for ever if it took less than is promised.
            writer.write_all(&[b'x'; AT_ONCE]).unwrap();
            lines += 1;
        }
        assert!(lines > 0);
    }

    #[test]
    fn journal_is_used_where_this_stream_leads() {
        assert!(is_stream("8:42", 8, 42));
        assert!(!is_stream("8:42", 8, 43));
        assert!(!is_stream("", 8, 42));
    }
}
