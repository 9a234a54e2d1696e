//! The log in a file, where there is no journal: one JSON object on each line.
//!
//! Owns its size, its older parts and what happens when it can't be written: the daemon goes on,
//! and the number of lost lines is told once it can. A thread writes: a disk that is slow, or hangs,
//! holds up nobody who logs. Must not know what is logged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

/// Its name in the state directory; older parts have `.1` to `.4` behind it, `.1` the youngest.
pub const FILE: &str = "agentd.log";
/// Bytes of one part: some ten thousand turns.
const MOST: u64 = 1024 * 1024;
/// Older parts that are kept.
const PARTS: u32 = 4;
/// Lines that wait for the disk: more than come together, and little memory. More are lost.
const WAITING: usize = 256;
/// At the end the disk gets this long for the last lines.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Lines for which there was no room.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Where lines go.
enum LogTarget {
    /// To nobody's file: standard error is all.
    None,
    /// To the journal.
    Journal,
    /// Here.
    File(WrittenLog),
}

/// A file that a thread writes.
struct WrittenLog {
    path: PathBuf,
    lines: SyncSender<LogLine>,
}

/// What the thread is told.
enum LogLine {
    Whole(Vec<u8>),
    /// Somebody waits until all before this is written; it is dropped then.
    Last(SyncSender<()>),
}

static TARGET: Mutex<LogTarget> = Mutex::new(LogTarget::None);

fn target() -> MutexGuard<'static, LogTarget> {
    // A line that panicked half-way left nothing that the next one couldn't use.
    TARGET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The log is in the journal.
pub(super) fn not_needed() {
    *target() = LogTarget::Journal;
}

/// Where the log can be read, as `status` says it.
pub(super) fn place() -> String {
    match &*target() {
        LogTarget::None => "stderr".to_owned(),
        LogTarget::Journal => "journal".to_owned(),
        LogTarget::File(written) => written.path.display().to_string(),
    }
}

/// Keeps the log in this directory from now on, unless it is in the journal.
pub(super) fn open(dir: &Path) -> io::Result<()> {
    let mut target = target();
    if !matches!(*target, LogTarget::Journal) {
        *target = LogTarget::File(WrittenLog::begin(Rotated::open(dir.join(FILE), MOST)?)?);
    }
    Ok(())
}

/// Waits until what was logged is written, but not for a disk that hangs.
pub(super) fn finish() {
    let lines = match &*target() {
        LogTarget::File(written) => written.lines.clone(),
        LogTarget::None | LogTarget::Journal => return,
    };
    let (last, written) = sync_channel(0);
    if lines.try_send(LogLine::Last(last)).is_ok() {
        // It ends by being dropped.
        let _written = written.recv_timeout(ENDS_WITHIN);
    }
}

impl WrittenLog {
    fn begin(rotated: Rotated) -> io::Result<Self> {
        let path = rotated.path.clone();
        let (lines, waiting) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("log".to_owned());
        let _ends_with_us = thread.spawn(move || write(rotated, &waiting))?;
        Ok(Self { path, lines })
    }

    fn line(&self, line: &[u8]) {
        if self.lines.try_send(LogLine::Whole(line.to_vec())).is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write(mut rotated: Rotated, waiting: &Receiver<LogLine>) {
    while let Ok(line) = waiting.recv() {
        match line {
            LogLine::Whole(line) => {
                rotated.lose(LOST.swap(0, Ordering::Relaxed), "the disk was too slow");
                rotated.line(&line);
            }
            LogLine::Last(written) => drop(written),
        }
    }
}

/// The file as the logger writes to it, a whole line at a time.
pub(super) struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let LogTarget::File(written) = &*target() {
            written.line(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that becomes `.1` when it is full.
struct Rotated {
    path: PathBuf,
    most: u64,
    file: File,
    size: u64,
    /// Lines that could not be written, and why the first one couldn't.
    lost: Option<(u64, String)>,
}

impl Rotated {
    fn open(path: PathBuf, most: u64) -> io::Result<Self> {
        let (file, size) = append(&path)?;
        Ok(Self {
            path,
            most,
            file,
            size,
            lost: None,
        })
    }

    /// Writes a line, or counts it as lost.
    fn line(&mut self, line: &[u8]) {
        if let Err(error) = self.try_line(line) {
            self.lose(1, &error.to_string());
        }
    }

    fn lose(&mut self, lines: u64, why: &str) {
        if lines > 0 {
            let (lost, _) = self.lost.get_or_insert_with(|| (0, why.to_owned()));
            *lost += lines;
        }
    }

    fn try_line(&mut self, line: &[u8]) -> io::Result<()> {
        if !self.is_at_its_place() {
            // Somebody tidied up, or has a rotation of their own.
            (self.file, self.size) = append(&self.path)?;
        }
        if self.size > 0 && self.size + line.len() as u64 > self.most {
            self.rotate()?;
        }
        if let Some((lost, why)) = &self.lost {
            // A line that was cut in two ends here.
            let told = format!("\n{}\n", lost_line(*lost, why));
            self.file.write_all(told.as_bytes())?;
            self.size += told.len() as u64;
            self.lost = None;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    fn is_at_its_place(&self) -> bool {
        let (Ok(named), Ok(open)) = (fs::symlink_metadata(&self.path), self.file.metadata()) else {
            return false;
        };
        (named.dev(), named.ino()) == (open.dev(), open.ino())
    }

    fn rotate(&mut self) -> io::Result<()> {
        // The oldest first: killed in between, a number is missing, and no part is lost.
        for part in (1..PARTS).rev() {
            match fs::rename(self.part(part), self.part(part + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, self.part(1))?;
        (self.file, self.size) = append(&self.path)?;
        Ok(())
    }

    fn part(&self, number: u32) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }
}

/// Opens what nobody else may read; a link is not followed.
fn append(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    let found = file.metadata()?;
    if found.mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok((file, found.len()))
}

fn lost_line(lost: u64, why: &str) -> serde_json::Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = i64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
    json!({
        "timestamp": agentd_core::rfc3339(now),
        "level": "WARN",
        "message": format!("{lost} lines of the log could not be written: {why}"),
        "target": module_path!(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn rotated(dir: &TempDir, most: u64) -> Rotated {
        Rotated::open(dir.path().join(FILE), most).unwrap()
    }

    fn files(dir: &TempDir) -> Vec<(String, u64, u32)> {
        let mut found: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let meta = entry.metadata().unwrap();
                let name = entry.file_name().into_string().unwrap();
                (name, meta.len(), meta.mode() & 0o777)
            })
            .collect();
        found.sort();
        found
    }

    #[test]
    fn log_parts_are_bounded_and_the_users_only() {
        let dir = TempDir::new().unwrap();
        let mut log = rotated(&dir, 100);
        for line in 0..1000 {
            log.line(format!("line {line:04}\n").as_bytes());
        }
        let files = files(&dir);
        assert_eq!(files.len() as u32, PARTS + 1, "{files:?}");
        assert!(
            files
                .iter()
                .all(|(_, size, mode)| *size <= 100 && *mode == 0o600)
        );
        let last = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(last.ends_with("line 0999\n"), "{last}");
        let before = fs::read_to_string(dir.path().join("agentd.log.1")).unwrap();
        let next =
            |text: &str, at: usize| text.lines().nth(at).unwrap()[5..].parse::<u32>().unwrap();
        assert_eq!(
            next(&before, before.lines().count() - 1) + 1,
            next(&last, 0),
            "nothing is lost between two parts"
        );
    }

    #[test]
    fn log_file_taken_away_is_made_again() {
        let dir = TempDir::new().unwrap();
        let mut log = rotated(&dir, 100);
        log.line(b"one\n");
        fs::remove_file(dir.path().join(FILE)).unwrap();
        log.line(b"two\n");
        fs::rename(dir.path().join(FILE), dir.path().join("elsewhere")).unwrap();
        log.line(b"three\n");
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(
            (read("elsewhere"), read(FILE)),
            ("two\n".into(), "three\n".into())
        );
        let mut again = rotated(&dir, 100);
        again.line(b"four\n");
        assert_eq!(read(FILE), "three\nfour\n");
    }

    #[test]
    fn log_file_is_private_and_no_link() {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        rotated(&dir, 100);
        assert_eq!(files(&dir)[0].2, 0o600);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(Rotated::open(path, 100).is_err());
        assert_eq!(files(&dir).len(), 1);
    }

    #[test]
    fn log_on_a_hung_disk_holds_up_nobody() {
        let dir = TempDir::new().unwrap();
        // Opened for writing it waits for a reader, which never comes: like a disk that hangs.
        let path = dir.path().join(FILE);
        let mut log = rotated(&dir, 1 << 20);
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        log.path = path.clone();
        let written = WrittenLog::begin(log).unwrap();
        let (done, over) = sync_channel(1);
        std::thread::spawn(move || {
            for _ in 0..WAITING * 2 {
                written.line(b"line\n");
            }
            done.send(()).unwrap();
        });
        let within = Duration::from_secs(20);
        over.recv_timeout(within)
            .expect("logging waits for the disk");
        // The thread goes on, into what nobody reads.
        let _reader = File::open(&path).unwrap();
    }

    #[test]
    fn lines_that_are_lost_are_counted_and_told() {
        let dir = TempDir::new().unwrap();
        let mut log = rotated(&dir, 1 << 20);
        log.file = File::options().write(true).open("/dev/full").unwrap();
        // It looks as if it were in its place.
        log.path = "/dev/full".into();
        log.line(b"one\n");
        log.line(b"two\n");
        log.path = dir.path().join(FILE);
        log.line(b"three\n");
        let told = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(
            told.contains("2 lines of the log could not be written: "),
            "{told}"
        );
        assert!(told.ends_with("three\n"), "{told}");
    }
}
