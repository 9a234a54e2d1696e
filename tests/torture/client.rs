//! Clients: they ask, lose the connection, and ask again with the same key until they know the end.
//!
//! Owns connections to the daemon. Must not know what becomes of what they record.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::history::{Asked, Asker, Conn, Hold};
use crate::random::Random;
use crate::record::{Record, poll};
use crate::work::{Request, Work};

/// A daemon that is down comes back within this time.
pub(crate) const UP_WITHIN: Duration = Duration::from_secs(60);
/// How often a daemon that is down or full is tried again.
pub(crate) const KNOCK_EVERY: Duration = Duration::from_millis(10);
/// Asked at once on one connection.
const BATCH: u64 = 5;
/// From here on are the `id`s of the requests for what is held.
const RESUME: u64 = 1000;

/// How one conversation ended.
#[derive(PartialEq, Eq)]
enum Talk {
    Finished,
    Broken,
}

/// One connection's way to write and read lines.
pub(crate) struct Wire {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    pub(crate) conn: Conn,
    /// For each `session.resume` without an answer, what had been heard when it was asked.
    resumes: VecDeque<u64>,
    next_resume: u64,
}

impl Wire {
    pub(crate) fn connect(record: &Record) -> Option<Self> {
        let stream = UnixStream::connect(&record.socket).ok()?;
        stream.set_read_timeout(Some(record.patience)).ok()?;
        let reader = BufReader::new(stream.try_clone().ok()?);
        let conn = record.conn();
        Some(Self {
            stream,
            reader,
            conn,
            resumes: VecDeque::new(),
            next_resume: RESUME,
        })
    }

    /// A connection that stays until it is dropped.
    pub(crate) fn kept(record: &Record) -> Option<Self> {
        let mut wire = Self::connect(record)?;
        wire.write(&json!({"type": "hello"})).ok()?;
        wire.read(record)?;
        Some(wire)
    }

    /// Waits as long as the connection is there.
    pub(crate) fn patient(self) -> Option<Self> {
        self.stream.set_read_timeout(None).ok()?;
        Some(self)
    }

    pub(crate) fn write(&mut self, line: &Value) -> io::Result<()> {
        self.stream.write_all(format!("{line}\n").as_bytes())
    }

    /// Asks for what is held in a session to go on; gives the request's `id`.
    pub(crate) fn resume(&mut self, record: &Record, session: &str) -> io::Result<u64> {
        let id = self.next_resume;
        self.next_resume += 1;
        self.resumes.push_back(record.highest());
        self.write(&json!({"type": "session.resume", "id": id, "session": session}))?;
        Ok(id)
    }

    fn resumed(&mut self, record: &Record, answer: &Value) {
        let jobs = answer["jobs"].as_array().into_iter().flatten();
        let after = self.resumes.pop_front().unwrap_or(0);
        let released = jobs.filter_map(Value::as_str).map(|job| Hold::Released {
            job: job.to_owned(),
            after,
        });
        record.with(|history| history.holds.extend(released));
    }

    pub(crate) fn write_half(&mut self, line: &Value) {
        let text = line.to_string();
        // Whoever is gone in the middle of a line doesn't look whether it was taken.
        let _taken = self.stream.write_all(&text.as_bytes()[..text.len() / 2]);
    }

    /// The next whole line; nothing when the connection is over. What a dying daemon had not
    /// finished is no line.
    pub(crate) fn read(&mut self, record: &Record) -> Option<Value> {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                record.stuck(format!(
                    "connection {} heard nothing for {:?}",
                    self.conn, record.patience
                ));
                return None;
            }
            _ => return None,
        }
        match serde_json::from_slice::<Value>(&line) {
            Ok(value) => {
                record.heard(self.conn, value.clone());
                if value["type"] == "session.resume" {
                    self.resumed(record, &value);
                }
                Some(value)
            }
            Err(error) => {
                let line = String::from_utf8_lossy(&line);
                record.stuck(format!("connection {}: {error}: {line}", self.conn));
                None
            }
        }
    }

    /// The answer to one request; nothing when the connection broke.
    pub(crate) fn reply(&mut self, record: &Record, id: u64) -> Option<Value> {
        loop {
            let line = self.read(record)?;
            if line["id"] == id {
                return Some(line);
            }
        }
    }
}

/// Asks until the run stops, and then until everything asked has its end.
pub(crate) fn ask_and_ask_again(record: &Arc<Record>, mut work: Work, mut random: Random) {
    let mut open: Vec<Request> = Vec::new();
    while !record.is_stopping() || !open.is_empty() {
        if !record.is_stopping() {
            let more = random.within(1, BATCH).saturating_sub(open.len() as u64);
            open.extend((0..more).map(|_| work.next()));
        }
        let Some(mut wire) = poll(UP_WITHIN, || Wire::connect(record)) else {
            record.stuck(format!("no daemon for {UP_WITHIN:?}, open are {open:?}"));
            return;
        };
        let mut talk = Conversation {
            record,
            wire: &mut wire,
            open: Vec::new(),
            refused: Vec::new(),
        };
        let ended = talk.hold(std::mem::take(&mut open), &mut random);
        let left = std::mem::take(&mut talk.open);
        let refused = std::mem::take(&mut talk.refused);
        if ended == Talk::Broken {
            // Without a key nobody can ask again: whether it was accepted is seen in the store.
            open.extend(
                left.into_iter()
                    .map(|(_, request)| request)
                    .filter(|request| request.key.is_some()),
            );
        }
        if !refused.is_empty() {
            std::thread::park_timeout(KNOCK_EVERY);
        }
        open.extend(refused);
    }
}

struct Conversation<'a> {
    record: &'a Record,
    wire: &'a mut Wire,
    open: Vec<(u64, Request)>,
    /// What the daemon could not take now.
    refused: Vec<Request>,
}

impl Conversation<'_> {
    fn hold(&mut self, requests: Vec<Request>, random: &mut Random) -> Talk {
        self.open = (1..).zip(requests).collect();
        // Some are bare, as `nc` is.
        if random.percent(80) && self.wire.write(&json!({"type": "hello"})).is_err() {
            return Talk::Broken;
        }
        // Some are gone in the middle of it, and come back with the same keys: in the middle of a
        // line, or of the answer.
        let half = random.percent(3).then(|| random.within(1, BATCH));
        for (id, request) in &self.open {
            self.record.asked(Asked {
                conn: self.wire.conn,
                id: *id,
                by: Asker::Socket,
                key: request.key.clone(),
                nonce: request.nonce.clone(),
                retry: request.retry,
            });
            if half == Some(*id) {
                self.wire.write_half(&request.line(*id));
                return Talk::Broken;
            }
            if self.wire.write(&request.line(*id)).is_err() {
                return Talk::Broken;
            }
        }
        let patience = if random.percent(6) {
            random.below(12)
        } else {
            u64::MAX
        };
        self.listen(patience, random)
    }

    fn listen(&mut self, patience: u64, random: &mut Random) -> Talk {
        let mut heard = 0;
        while !self.open.is_empty() {
            if heard == patience {
                return Talk::Broken;
            }
            heard += 1;
            let Some(line) = self.wire.read(self.record) else {
                return Talk::Broken;
            };
            let id = line["id"].as_u64();
            match line["type"].as_str() {
                Some("message_end" | "error") => self.ended(id, &line),
                // Behind an interrupted turn it waits for one of these.
                Some("note") if line["code"] == "held" => {
                    let asked = self.open.iter().find(|(open, _)| Some(*open) == id);
                    let session = asked.and_then(|(_, request)| request.session.as_ref());
                    let released = match session {
                        Some(session) if random.percent(50) => {
                            self.wire.resume(self.record, session).map(drop)
                        }
                        _ => self
                            .wire
                            .write(&json!({"type": "abort", "job": line["job"]})),
                    };
                    if released.is_err() {
                        return Talk::Broken;
                    }
                }
                _ => {}
            }
        }
        Talk::Finished
    }

    fn ended(&mut self, id: Option<u64>, line: &Value) {
        let Some(place) = self.open.iter().position(|(open, _)| Some(*open) == id) else {
            return;
        };
        let (_, request) = self.open.swap_remove(place);
        if line["job"].is_null() && line["retryable"] == true {
            self.refused.push(request);
        }
    }
}
