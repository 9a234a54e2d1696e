//! The log in systemd's journal: one datagram for each line, for which nobody waits.
//!
//! Owns the fields of an entry, and that a journal that doesn't read loses lines instead of holding
//! anybody up: they are counted, and told when it reads again. Must not know what is logged.
//!
//! The format is that of <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.

use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Where journald listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";
/// Fields of our own have this before their name.
const PREFIX: &str = "AGENTD_";
/// The longest value: a line that is too long for a datagram would be lost. Nothing that is logged
/// comes near it.
const VALUE: usize = 64 * 1024;

/// The way to the journal.
pub(super) struct Journal {
    socket: UnixDatagram,
    to: PathBuf,
    /// What every entry has.
    always: Vec<u8>,
    lost: AtomicU64,
}

impl Journal {
    /// Opens the way. `always` are fields that every entry has.
    ///
    /// # Errors
    /// When nobody listens there.
    pub(super) fn open(to: &Path, always: &[(&str, &[u8])]) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        // As the library of systemd asks whether it is there.
        match socket.send_to(&[], to) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _there => {}
        }
        let mut fields = Vec::new();
        for (name, value) in always {
            put(&mut fields, name, value);
        }
        Ok(Self {
            socket,
            to: to.to_owned(),
            always: fields,
            lost: AtomicU64::new(0),
        })
    }

    fn entry(&self, level: Level, target: &str) -> Vec<u8> {
        // As syslog numbers them.
        let priority = match level {
            Level::ERROR => b"3",
            Level::WARN => b"4",
            Level::INFO => b"5",
            Level::DEBUG => b"6",
            Level::TRACE => b"7",
        };
        let mut entry = Vec::with_capacity(512);
        put(&mut entry, "PRIORITY", priority);
        put(&mut entry, "TARGET", target.as_bytes());
        entry.extend_from_slice(&self.always);
        entry
    }

    fn send(&self, entry: &[u8]) {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > 0 {
            let mut told = self.entry(Level::WARN, module_path!());
            let message = format!("{lost} lines of the log were not read in time");
            put(&mut told, "MESSAGE", message.as_bytes());
            if self.socket.send_to(&told, &self.to).is_ok() {
                // As many as were told: others may have been lost since.
                self.lost.fetch_sub(lost, Ordering::Relaxed);
            }
        }
        if self.socket.send_to(entry, &self.to).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        let mut entry = self.entry(*metadata.level(), metadata.target());
        if let Some(file) = metadata.file() {
            put(&mut entry, "CODE_FILE", file.as_bytes());
        }
        if let Some(line) = metadata.line() {
            put(&mut entry, "CODE_LINE", line.to_string().as_bytes());
        }
        event.record(&mut Fields(&mut entry));
        self.send(&entry);
    }
}

/// The fields of a line.
struct Fields<'a>(&'a mut Vec<u8>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let name = match field.name() {
            "message" => "MESSAGE".to_owned(),
            name => {
                let letters = name.chars().map(|letter| match letter {
                    'a'..='z' | '0'..='9' => letter.to_ascii_uppercase(),
                    'A'..='Z' => letter,
                    _ => '_',
                });
                PREFIX.chars().chain(letters).collect()
            }
        };
        put(self.0, &name, value.as_bytes());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a string fails for a value that fails by itself.
        let _as_far_as_it_goes = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}

/// A field, with its length before the value, which may have any bytes.
fn put(entry: &mut Vec<u8>, name: &str, value: &[u8]) {
    let value = &value[..value.len().min(VALUE)];
    entry.extend_from_slice(name.as_bytes());
    entry.push(b'\n');
    entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    entry.extend_from_slice(value);
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn read(socket: &UnixDatagram) -> Option<String> {
        let mut entry = [0; 4096];
        let length = socket.recv(&mut entry).ok()?;
        Some(String::from_utf8_lossy(&entry[..length]).replace('\0', ""))
    }

    #[test]
    fn journal_that_does_not_read_is_told_later() {
        const LINES: usize = 2000;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let reader = UnixDatagram::bind(&path).unwrap();
        reader.set_nonblocking(true).unwrap();
        let journal = Journal::open(&path, &[("AGENTD_STATE", b"/s")]).unwrap();
        let subscriber = tracing_subscriber::registry().with(journal);
        let (logged, done) = mpsc::sync_channel(1);
        let (go_on, more) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            tracing::subscriber::with_default(subscriber, || {
                for number in 0..LINES {
                    tracing::info!(job = number, "line");
                }
                logged.send(()).unwrap();
                more.recv().unwrap();
                tracing::warn!(worker.name = "w", "after");
                logged.send(()).unwrap();
            });
        });
        let within = Duration::from_secs(20);
        done.recv_timeout(within).expect("logging waits");
        let before = std::iter::from_fn(|| read(&reader));
        let before: Vec<_> = before.filter(|entry| !entry.is_empty()).collect();
        assert!(before.len() < LINES);
        assert!(before[0].contains("MESSAGE\n\u{4}line\n"), "{}", before[0]);
        assert!(before[0].contains("AGENTD_JOB\n\u{1}0\n"), "{}", before[0]);
        assert!(
            before[0].contains("AGENTD_STATE\n\u{2}/s\n"),
            "{}",
            before[0]
        );
        assert!(before[0].contains("PRIORITY\n\u{1}5\n"), "{}", before[0]);
        go_on.send(()).unwrap();
        done.recv_timeout(within).expect("logging waits");
        let told = read(&reader).unwrap();
        let lost = format!("{} lines of the log were not read", LINES - before.len());
        assert!(told.contains(&lost), "{told}");
        let after = read(&reader).unwrap();
        assert!(after.contains("AGENTD_WORKER_NAME\n\u{1}w\n"), "{after}");
        assert_eq!(read(&reader), None);
    }

    #[test]
    fn journal_that_is_not_there_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Journal::open(&dir.path().join("socket"), &[]).is_err());
    }
}
