//! The log in the daemon's file and its older parts.
//!
//! Owns their names and the form of their lines. Must not know what is wanted.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use agentd_protocol::request::unix_ms;
use serde_json::Value;

use super::{Row, text_of};

/// As the daemon calls it.
const FILE: &str = "agentd.log";
/// Parts that are looked for: more than the daemon keeps.
const PARTS: u32 = 9;
/// A part is smaller; what is larger isn't the daemon's.
const MOST: u64 = 64 * 1024 * 1024;

/// Reads the file from its oldest part on, and then what comes.
pub(super) struct Reader {
    path: PathBuf,
    open: Option<File>,
    /// A line whose end was not read yet.
    begun: Vec<u8>,
}

impl Reader {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            path: dir.join(FILE),
            open: None,
            begun: Vec::new(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Was there a file when it was read last?
    pub(super) const fn is_there(&self) -> bool {
        self.open.is_some()
    }

    /// Everything there is so far.
    pub(super) fn parts(&mut self) -> Vec<Row> {
        let mut rows = Vec::new();
        for part in (1..=PARTS).rev() {
            let mut name = self.path.as_os_str().to_owned();
            name.push(format!(".{part}"));
            let mut bytes = Vec::new();
            let read = File::open(name).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
            // One that can't be read isn't there, or was rotated away meanwhile.
            if read.is_ok() {
                rows.extend(bytes.split(|byte| *byte == b'\n').filter_map(row));
            }
        }
        rows.extend(self.new_rows());
        rows
    }

    /// What was written since the last look. A file that was rotated is read to its end first.
    pub(super) fn new_rows(&mut self) -> Vec<Row> {
        let mut rows = self.rest();
        if self.is_at_its_place() {
            return rows;
        }
        // What came between the look above and the rotation.
        rows.extend(self.rest());
        rows.extend(row(&std::mem::take(&mut self.begun)));
        self.open = File::open(&self.path).ok();
        rows.extend(self.rest());
        rows
    }

    fn is_at_its_place(&self) -> bool {
        let Some(Ok(open)) = self.open.as_ref().map(File::metadata) else {
            return false;
        };
        fs::metadata(&self.path)
            .is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino()))
    }

    fn rest(&mut self) -> Vec<Row> {
        let Some(file) = &mut self.open else {
            return Vec::new();
        };
        let read: io::Result<usize> = file.take(MOST).read_to_end(&mut self.begun);
        let end = self.begun.iter().rposition(|byte| *byte == b'\n');
        let (Ok(_), Some(end)) = (read, end) else {
            return Vec::new();
        };
        let rest = self.begun.split_off(end + 1);
        let whole = std::mem::replace(&mut self.begun, rest);
        whole.split(|byte| *byte == b'\n').filter_map(row).collect()
    }
}

/// A line; none for half of one.
fn row(line: &[u8]) -> Option<Row> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let text = |name: &str| text_of(value.get(name));
    let at = unix_ms(&text("timestamp")?)?;
    Some(Row {
        level: match text("level")?.as_str() {
            "ERROR" => "error",
            "WARN" => "warn",
            "INFO" => "info",
            "DEBUG" => "debug",
            _ => "trace",
        },
        message: text("message").unwrap_or_default(),
        job: text("job"),
        session: text("session"),
        agent: text("agent"),
        worker: text("worker"),
        target: text("target"),
        error: text("error"),
        ..Row::at(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn line(message: &str) -> String {
        format!(
            "{{\"timestamp\":\"2026-11-22T07:31:40.123456Z\",\"level\":\"WARN\",\"message\":\"{message}\",\"job\":\"j1\",\"worker\":3}}\n"
        )
    }

    fn messages(rows: Vec<Row>) -> Vec<String> {
        rows.into_iter().map(|row| row.message).collect()
    }

    #[test]
    fn log_parts_are_read_oldest_first_by_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("agentd.log.2"), line("one")).unwrap();
        fs::write(path("agentd.log.1"), format!("{}half a li", line("two"))).unwrap();
        let (begin, end) = (line("four"), line("five"));
        let (head, tail) = begin.split_at(20);
        fs::write(path(FILE), line("three") + head).unwrap();
        let mut reader = Reader::new(dir.path());
        assert_eq!(messages(reader.parts()), ["one", "two", "three"]);
        let mut log = File::options().append(true).open(path(FILE)).unwrap();
        write!(log, "{tail}{end}").unwrap();
        assert_eq!(messages(reader.new_rows()), ["four", "five"]);
        write!(log, "{}", line("last of the old")).unwrap();
        fs::rename(path(FILE), path("agentd.log.1")).unwrap();
        fs::write(path(FILE), line("first of the new")).unwrap();
        assert_eq!(
            messages(reader.new_rows()),
            ["last of the old", "first of the new"]
        );
        assert_eq!(messages(reader.new_rows()), [""; 0]);
    }

    #[test]
    fn a_line_has_its_names_and_its_time() {
        let row = row(line("said").trim().as_bytes()).unwrap();
        assert_eq!(
            (
                row.time.as_str(),
                row.level,
                row.job.as_deref(),
                row.worker.as_deref()
            ),
            ("2026-11-22T07:31:40Z", "warn", Some("j1"), Some("3"))
        );
        assert_eq!(super::row(b"not json"), None);
        assert_eq!(super::row(b"{\"level\":\"INFO\"}"), None);
    }
}
