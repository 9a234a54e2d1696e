//! The store against real files, with faults made up where a disk would make them.

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentd_core::ids::{Generation, Token, WorkerId};
use agentd_core::store::{
    Due, End, JobRow, JobState, Loaded, MessageText, NewJob, Position, Query, Recovered,
    SessionRow, Stored, TextKind, TextPiece, Urgency, Write, Written,
};
use agentd_core::{Event, Terms};
use agentd_protocol::{Body, Code, JobId};
use rusqlite::{Connection, ffi};
use tempfile::TempDir;

use super::schema::{self, FILE, beside};
use super::*;

mod attachments;
mod backup_plan;
mod beginnings;
mod commands;
mod damage;
mod faults;
mod file;
mod guard;
mod listed;
mod lists;
mod loss;
mod prune;
mod readers;
mod restore;
mod schedules;
mod search;
mod takeover;
mod texts;
mod usage;
mod webhooks;
mod whole;

/// Every wait of these tests ends here.
const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    opened: Opened,
    answers: Receiver<Event>,
    next: u64,
}

fn dead(_instance: &str) -> Liveness {
    Liveness::Dead
}

fn bench(dir: &Path, instance: &str, role: Role, alive: fn(&str) -> Liveness) -> Bench {
    bench_with(dir, instance, role, alive, Box::new(|_, _| Ok(())))
}

impl Opened {
    /// Where the file went that was here before.
    fn moved(&self) -> PathBuf {
        match &self.loss {
            Some(Loss::Moved(aside)) => aside.clone(),
            other => panic!("not moved, but {other:?}"),
        }
    }
}

fn answering() -> (Answer, Receiver<Event>) {
    let (answer, answers) = sync_channel(10_000);
    let answer = move |some: Answers| {
        for event in some.events {
            answer.send(event).unwrap();
        }
    };
    (Box::new(answer), answers)
}

fn bench_with(
    dir: &Path,
    instance: &str,
    role: Role,
    alive: fn(&str) -> Liveness,
    fault: Fault,
) -> Bench {
    let (answer, answers) = answering();
    let opener = Opener {
        instance,
        role,
        boot: Some("this-boot"),
        boot_ms: || 1_000,
        give_way: || (),
        answers: |_| true,
        keep: None,
    };
    let faults = Faults::of_writer(fault);
    let opened = open_with(dir, opener, Box::new(alive), answer, faults).unwrap();
    Bench {
        opened,
        answers,
        next: 1,
    }
}

impl Bench {
    fn command(&mut self, urgency: Urgency, writes: Vec<Write>) -> Token {
        let token = Token(self.next);
        self.next += 1;
        let command = StoreCommand::Commit {
            token,
            writes,
            urgency,
        };
        self.opened.store.submit(command).unwrap();
        token
    }

    fn event(&self) -> Event {
        self.answers.recv_timeout(PATIENCE).expect("an answer")
    }

    fn commit(&mut self, writes: Vec<Write>) -> Stored {
        let asked = self.command(Urgency::Waited, writes);
        match self.event() {
            Event::Stored { token, stored } if token == asked => stored,
            other => panic!("{other:?}"),
        }
    }

    fn accept(&mut self, job: NewJob) -> (JobId, u64, String) {
        match self.commit(vec![Write::Accept(Arc::new(job))]) {
            Stored::Committed(written) => match written.as_slice() {
                [Written::Accepted { job, seq, session }] => (*job, *seq, session.clone()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn load(&mut self, query: Query) -> Loaded {
        let token = Token(self.next);
        self.next += 1;
        self.opened
            .store
            .submit(StoreCommand::Load { token, query })
            .unwrap();
        let answer = loop {
            match self.event() {
                Event::BackupsLack { .. } => {}
                other => break other,
            }
        };
        match answer {
            Event::Loaded {
                token: told,
                loaded,
            } if told == token => loaded,
            other => panic!("{other:?}"),
        }
    }

    /// The rows of a line that is passed on as it is, and where the next page begins.
    fn listed(&mut self, query: Query, list: &str) -> (Vec<serde_json::Value>, serde_json::Value) {
        let Loaded::Line(line) = self.load(query) else {
            panic!("no line")
        };
        let mut line: serde_json::Value = serde_json::from_str(line.as_json()).unwrap();
        let rows = line[list].as_array().unwrap().clone();
        (rows, line["next"].take())
    }

    fn job(&mut self, job: JobId) -> JobRow {
        match self.load(Query::Jobs { jobs: vec![job] }) {
            Loaded::Jobs(rows) => rows.into_iter().next().expect("the job"),
            other => panic!("{other:?}"),
        }
    }

    fn session(&mut self, name: &str) -> SessionRow {
        let names = vec![name.to_owned()];
        match self.load(Query::Sessions { names }) {
            Loaded::Sessions(rows) => rows.into_iter().next().expect("the session"),
            other => panic!("{other:?}"),
        }
    }

    fn close(self) {
        self.opened.store.close(self.opened.writer);
    }
}

fn daemon(instance: &str) -> Opener<'_> {
    Opener {
        instance,
        role: Role::Daemon,
        boot: Some("this-boot"),
        boot_ms: || 1_000,
        give_way: || (),
        answers: |_| true,
        keep: None,
    }
}

fn new(session: Option<&str>) -> NewJob {
    NewJob {
        session: session.map(str::to_owned),
        agent: "pi".to_owned(),
        cwd: "/".to_owned(),
        real_cwd: None,
        toolsets: None,
        system: None,
        reserves: None,
        request: r#"{"text":"hi"}"#.to_owned(),
        contents: Vec::new(),
        key: None,
        hashed: "hi".to_owned(),
        expires: Due {
            wall_ms: 5_000,
            boot_ms: Some(4_000),
        },
        start: None,
        labels: None,
        parent: None,
        fired: None,
        running: None,
        repins: None,
        at: 1_000,
    }
}

fn keyed(key: &str, hashed: &str) -> Write {
    Write::Accept(Arc::new(NewJob {
        key: Some(key.to_owned()),
        hashed: hashed.to_owned(),
        ..new(None)
    }))
}

fn started(session: &str) -> NewJob {
    NewJob {
        running: Some((WorkerId(3), Generation(2))),
        ..new(Some(session))
    }
}

fn line(text: &str) -> Body {
    Body::stored_event(&format!(r#"{{"type":"note","text":"{text}"}}"#))
}

fn last_line(text: &str) -> Body {
    Body::stored(&format!(r#"{{"type":"message_end","text":"{text}"}}"#))
}

fn finish(job: JobId, end: End) -> Write {
    let texts = vec![MessageText {
        message: 0,
        kind: TextKind::Text,
        text: "whole".to_owned(),
    }];
    Write::Finish {
        job,
        end,
        line: last_line("whole"),
        texts: Some(texts),
    }
}

fn piece(job: JobId, offset: u64, text: &str) -> Write {
    Write::Text {
        job,
        message: 0,
        kind: TextKind::Text,
        offset,
        text: text.to_owned(),
    }
}

fn error(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
}

/// What happens to the store, and at which moment.
type Switch = Arc<Mutex<Option<(Moment, i32)>>>;

/// A fault that is switched on and off by the test: what happens, and at which moment.
fn switched() -> (Switch, Fault) {
    let switch: Switch = Arc::default();
    let seen = Arc::clone(&switch);
    let fault = Box::new(move |moment, _: &Connection| match *seen.lock().unwrap() {
        Some((when, code)) if when == moment => Err(error(code)),
        _ => Ok(()),
    });
    (switch, fault)
}
