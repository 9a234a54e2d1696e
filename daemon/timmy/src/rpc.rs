//! `timmy --rpc`: the worker protocol (PROTOCOL.md part 8) on standard input and output.
//!
//! Owns the turns in flight and what is remembered of sessions. Must not know how a turn is played.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::ids::Id;
use agentd_protocol::limits::MAX_LINE_IN;
use agentd_protocol::request::Send;
use agentd_protocol::{Code, Decoder, Envelope, Frame, Request};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::line::{Line, Said};
use crate::{ECHO, LEAVE_WITHIN, WAITING_LINES, echo, stdio};

/// Turns at once, announced in `status`: each costs a task and its prompt.
const CONCURRENT_SENDS: usize = 16;
/// Sessions whose turns are counted; beyond, the first by name is forgotten.
const SESSIONS: usize = 1024;
/// Bytes read at once.
const PORTION: usize = 16 * 1024;

/// A turn in flight.
struct Turn {
    id: Option<Id>,
    cancel: Arc<Notify>,
}

/// What the requests of one connection share.
struct Service {
    /// Was `echo` named on the command line?
    echo: bool,
    out: mpsc::Sender<Said>,
    turns: BTreeMap<u64, Turn>,
    running: JoinSet<u64>,
    next: u64,
    /// Turns so far.
    sessions: BTreeMap<String, u64>,
}

/// Serves until the end of input.
pub(crate) async fn serve(echo: bool) -> ExitCode {
    let (out, mut lines) = mpsc::channel::<Said>(WAITING_LINES);
    let write = async move {
        let mut stdout = stdio::output();
        let mut said = Vec::with_capacity(WAITING_LINES);
        while lines.recv_many(&mut said, WAITING_LINES).await > 0 {
            let mut text = String::new();
            for line in said.drain(..) {
                text.push_str(&line.render());
                text.push('\n');
            }
            stdout.write_all(text.as_bytes()).await?;
            stdout.flush().await?;
        }
        Ok(())
    };
    let mut service = Service::new(echo, out);
    let mut writer = std::pin::pin!(write);
    let read = async {
        let read = service.read().await;
        service.leave().await;
        read
    };
    let read = tokio::select! {
        // Nobody reads: there is nothing left to do.
        written = &mut writer => return code(&written),
        read = read => read,
    };
    drop(service);
    let _late = tokio::time::timeout(LEAVE_WITHIN, writer).await;
    code(&read)
}

fn code(result: &std::io::Result<()>) -> ExitCode {
    if result.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl Service {
    fn new(echo: bool, out: mpsc::Sender<Said>) -> Self {
        Self {
            echo,
            out,
            turns: BTreeMap::new(),
            running: JoinSet::new(),
            next: 0,
            sessions: BTreeMap::new(),
        }
    }

    async fn read(&mut self) -> std::io::Result<()> {
        let mut stdin = stdio::input();
        let mut decoder = Decoder::new(MAX_LINE_IN);
        let mut portion = vec![0; PORTION];
        let mut frames = Vec::new();
        loop {
            let read = tokio::select! {
                read = stdin.read(&mut portion) => read?,
                Some(ended) = self.running.join_next() => {
                    self.forget(ended);
                    continue;
                }
            };
            if read == 0 {
                break;
            }
            decoder.push(&portion[..read], &mut frames);
            for frame in frames.drain(..) {
                match frame {
                    Frame::Line(line) => self.serve(&line).await,
                    Frame::TooLong => self.refuse(None, &Rejected::too_long()).await,
                }
            }
        }
        if let Some(line) = decoder.finish() {
            self.serve(&line).await;
        }
        Ok(())
    }

    fn forget(&mut self, ended: Result<u64, tokio::task::JoinError>) {
        // A turn can't panic, and is aborted only when leaving.
        if let Ok(number) = ended {
            self.turns.remove(&number);
        }
    }

    /// Cancels what runs and lets it say so.
    async fn leave(&mut self) {
        for turn in self.turns.values() {
            turn.cancel.notify_one();
        }
        let ended = async { while self.running.join_next().await.is_some() {} };
        let _late = tokio::time::timeout(LEAVE_WITHIN, ended).await;
        self.running.abort_all();
        // The writer ends when nobody can say anything any more.
        self.out = mpsc::channel(1).0;
    }

    async fn serve(&mut self, line: &[u8]) {
        let envelope = match Envelope::parse(line) {
            Ok(envelope) => envelope,
            Err((id, rejected)) => return self.refuse(id, &rejected).await,
        };
        let id = envelope.id.clone();
        match Request::decode(&envelope).map(|decoded| decoded.request) {
            Ok(Request::Send(send)) => match self.start(id.clone(), *send) {
                Ok(()) => {}
                Err(rejected) => self.refuse(id, &rejected).await,
            },
            Ok(Request::Abort(_)) => {
                self.abort(id.as_ref());
                self.answer("abort", id, json!({"ok": true, "jobs": []}))
                    .await;
            }
            Ok(Request::Status(_)) => {
                let running = self.turns.len();
                let fields = json!({
                    "ok": true,
                    "details": format!("timmy is ready with provider `echo`; {running} turns in flight"),
                    "sessions": "many",
                    "concurrent_sends": CONCURRENT_SENDS,
                    "cwd": true,
                    "attachments": true,
                });
                self.answer("status", id, fields).await;
            }
            Ok(Request::Ping) => self.answer("pong", id, json!({})).await,
            Ok(_) => {
                let error = format!("`{}` is not served by a worker", envelope.kind);
                self.refuse(id, &Rejected::new(Code::Unsupported, error))
                    .await;
            }
            Err(rejected) => self.refuse(id, &rejected).await,
        }
    }

    /// The turn of that id; without one, every turn.
    fn abort(&self, id: Option<&Id>) {
        let turns = self.turns.values();
        for turn in turns.filter(|turn| id.is_none() || turn.id.as_ref() == id) {
            turn.cancel.notify_one();
        }
    }

    fn start(&mut self, id: Option<Id>, send: Send) -> Result<(), Rejected> {
        check(self.echo, &send)?;
        // The peer may have read a final line before this loop heard of the turn's end.
        while let Some(ended) = self.running.try_join_next() {
            self.forget(ended);
        }
        if self.turns.len() >= CONCURRENT_SENDS {
            let error = format!("{CONCURRENT_SENDS} turns are in flight already");
            return Err(Rejected::new(Code::QueueFull, error));
        }
        if id.is_some() && self.turns.values().any(|turn| turn.id == id) {
            let error = "a send with this `id` is still outstanding";
            return Err(Rejected::new(Code::InvalidRequest, error));
        }
        let first = self.count(send.session.as_deref().unwrap_or(""));
        let cancel = Arc::new(Notify::new());
        let number = self.next;
        self.next += 1;
        self.turns.insert(
            number,
            Turn {
                id: id.clone(),
                cancel: Arc::clone(&cancel),
            },
        );
        let line = Line {
            id,
            out: self.out.clone(),
        };
        self.running.spawn(async move {
            if first {
                line.note(ECHO, echo::NOTE).await;
            }
            let text = format!("{}{}", send.text, echo::attached(&send.attachments));
            echo::play(&text, &cancel, &line).await;
            number
        });
        Ok(())
    }

    /// Counts a turn; is it the session's first?
    fn count(&mut self, session: &str) -> bool {
        if self.sessions.len() >= SESSIONS && !self.sessions.contains_key(session) {
            self.sessions.pop_first();
        }
        let turns = self.sessions.entry(session.to_owned()).or_insert(0);
        *turns += 1;
        *turns == 1
    }

    async fn refuse(&self, id: Option<Id>, rejected: &Rejected) {
        let _gone = self.out.send(Said::refusal(id, rejected)).await;
    }

    async fn answer(&self, kind: &'static str, id: Option<Id>, fields: serde_json::Value) {
        let _gone = self.out.send(Said::new(kind, id, fields)).await;
    }
}

/// A pinned provider or model that isn't there is refused, never replaced by another.
fn check(echo: bool, send: &Send) -> Result<(), Rejected> {
    let hint = "this version offers only provider `echo`";
    match send.provider.as_deref() {
        Some(ECHO) => {}
        None if echo => {}
        Some(name) => {
            let error = format!("timmy has no provider `{name}`");
            return Err(Rejected::new(Code::NoAgent, error).hint(hint));
        }
        None => {
            let error = "timmy has no model to answer with";
            return Err(Rejected::new(Code::NoAgent, error).hint(hint));
        }
    }
    match send.model.as_deref() {
        None | Some("scripted" | "echo/scripted") => Ok(()),
        Some(name) => {
            let error = format!("provider `echo` has no model `{name}`");
            Err(Rejected::new(Code::InvalidRequest, error).hint("its only model is `scripted`"))
        }
    }
}

#[cfg(test)]
mod tests;
