//! `timmy --rpc`: the worker protocol (PROTOCOL.md part 8) on standard input and output.
//!
//! Owns the turns in flight and what is remembered of sessions. Must not know how a turn is played.

mod attached;
mod request;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use agentd_base::shared::lock;
use agentd_client::stdio;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::ids::Id;
use agentd_protocol::limits::MAX_LINE_IN;
use agentd_protocol::request::Send;
use agentd_protocol::work::{Compact, Steer};
use agentd_protocol::{Code, Decoder, Envelope, Frame, Request};
use futures_util::FutureExt as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::offered::Offered;
use crate::echo::EchoControl;
use crate::line::{Line, OutgoingLine};
use crate::send::{Agent, Conversation, ModelSelection, TurnControl, died};
use crate::tool::Asker;
use crate::turn::asker::{ByLine, Nobody, Questions};
use crate::turn::inbox::{Inbox, PendingSteer, Unwelcome};
use crate::{ECHO, LEAVE_WITHIN, WAITING_LINES, echo};

/// Turns at once, announced in `status`: each costs a task and its conversation.
const CONCURRENT_SENDS: usize = 64;
/// Sessions of which something is remembered; beyond, the first by name is forgotten, and can't be
/// shortened before its next turn.
const SESSIONS: usize = 1024;
/// What is said where no model can be asked at all.
const NO_MODELS: &str = "there is nobody to ask: no provider has a key, and no server of models \
                         answers here; `agentctl provider add NAME` stores a key, and `agentctl \
                         models list` says which models there would be";
/// Longest line: a prompt that the daemon takes comes with the session's history and its own fields.
const MAX_LINE: usize = 2 * MAX_LINE_IN;
/// Bytes read at once.
const PORTION: usize = 16 * 1024;

/// A turn in flight.
struct Turn {
    id: Option<Id>,
    session: Option<String>,
    cancel: CancellationToken,
    /// For words; the echo provider takes none.
    inbox: Option<Arc<Inbox>>,
}

/// What is remembered of a session between its turns.
#[derive(Clone, Default, Debug)]
struct Remembered {
    /// Has the echo provider said that it is one?
    echoed: bool,
    native: Option<String>,
    /// The models of its last turn; none while only echo had one.
    selection: Option<ModelSelection>,
}

type Sessions = Arc<Mutex<BTreeMap<String, Remembered>>>;

/// What the requests of one connection share.
struct Service {
    /// What the command line says of sends that don't say it themselves.
    default: ModelSelection,
    agent: Agent,
    out: mpsc::Sender<OutgoingLine>,
    turns: BTreeMap<u64, Turn>,
    running: JoinSet<u64>,
    next: u64,
    sessions: Sessions,
    questions: Arc<Questions>,
    /// Lists of models that are being made are not waited for at the end.
    lists: CancellationToken,
}

/// Serves until the end of input, or until it is told to end.
pub(crate) async fn serve(default: ModelSelection, agent: Agent) -> ExitCode {
    let (out, mut lines) = mpsc::channel::<OutgoingLine>(WAITING_LINES);
    let write = async move {
        let mut stdout = stdio::output();
        let mut said = Vec::with_capacity(WAITING_LINES);
        // All that waits goes out in one write: models say a few letters at a time.
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
    let mut service = Service::new(default, agent, out);
    let mut writer = std::pin::pin!(write);
    let read = async {
        let read = tokio::select! {
            read = service.read() => read,
            // The daemon closes standard input first, and signals who doesn't leave: both are one
            // to us.
            () = told_to_end() => Ok(()),
        };
        service.leave().await;
        read
    };
    let read = tokio::select! {
        // Nobody reads: there is nothing left to do.
        written = &mut writer => return code(&written),
        read = read => read,
    };
    // The last sender of lines: the writer ends when there is none.
    drop(service);
    let _late = tokio::time::timeout(LEAVE_WITHIN, writer).await;
    code(&read)
}

async fn told_to_end() {
    match signal(SignalKind::terminate()) {
        Ok(mut told) => {
            told.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

fn code(result: &std::io::Result<()>) -> ExitCode {
    if result.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl Service {
    fn new(default: ModelSelection, agent: Agent, out: mpsc::Sender<OutgoingLine>) -> Self {
        Self {
            default,
            agent,
            out,
            turns: BTreeMap::new(),
            running: JoinSet::new(),
            next: 0,
            sessions: Sessions::default(),
            questions: Arc::default(),
            lists: CancellationToken::new(),
        }
    }

    async fn read(&mut self) -> std::io::Result<()> {
        let mut stdin = stdio::input();
        let mut decoder = Decoder::new(MAX_LINE);
        let mut portion = vec![0; PORTION];
        let mut frames = Vec::new();
        loop {
            let read = tokio::select! {
                read = stdin.read(&mut portion) => read?,
                // Without a turn this is `None` at once, and only input is waited for.
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
        // The last line may lack its end, as when somebody types it by hand.
        if let Some(line) = decoder.finish() {
            self.serve(&line).await;
        }
        Ok(())
    }

    fn forget(&mut self, ended: Result<u64, tokio::task::JoinError>) {
        // A turn's panic ends in it, and it is aborted only when leaving.
        if let Ok(number) = ended {
            self.turns.remove(&number);
            // Not before the first turn: it would wait for it.
            let store = Arc::clone(&self.agent.store);
            if self.turns.is_empty() && !store.is_tidy() {
                self.running.spawn(async move {
                    store.tidy().await;
                    number
                });
            }
        }
    }

    /// Cancels what runs and lets it say so.
    async fn leave(&mut self) {
        for turn in self.turns.values() {
            turn.cancel.cancel();
        }
        self.lists.cancel();
        let ended = async { while self.running.join_next().await.is_some() {} };
        let _late = tokio::time::timeout(LEAVE_WITHIN, ended).await;
        self.running.abort_all();
        while self.running.join_next().await.is_some() {}
        // The writer ends when nobody can say anything any more.
        self.out = mpsc::channel(1).0;
    }

    async fn serve(&mut self, line: &[u8]) {
        let envelope = match Envelope::parse(line) {
            Ok(envelope) => envelope,
            Err((id, rejected)) => return self.refuse(id, &rejected).await,
        };
        let id = envelope.id.clone();
        let served = match Request::decode(&envelope).map(|decoded| decoded.request) {
            Ok(Request::Send(send)) => self.start(id.clone(), *send, envelope.body),
            Ok(Request::Abort(_)) => {
                // Answered at once: that a turn ends is said by its own final line.
                self.abort(id.as_ref());
                return self
                    .answer("abort", id, json!({"ok": true, "jobs": []}))
                    .await;
            }
            Ok(Request::Status(_)) => return self.answer("status", id, self.status()).await,
            Ok(Request::Ping) => return self.answer("pong", id, json!({})).await,
            Ok(Request::Steer(steer)) => self.steer(id.clone(), steer),
            Ok(Request::Models(_)) => self.models(id.clone(), envelope.body),
            Ok(Request::Compact(compact)) => self.compact(id.clone(), compact),
            Ok(Request::Answer(answer)) => {
                let question = answer.question_id.clone();
                if self.questions.answer(&answer) {
                    let fields = json!({"ok": true, "question_id": question});
                    return self.answer("answer", id, fields).await;
                }
                let error = format!("there is no open question `{question}`");
                Err(Rejected::new(Code::UnknownQuestion, error))
            }
            Ok(_) => {
                let error = format!("`{}` is not served by a worker", envelope.kind);
                Err(Rejected::new(Code::Unsupported, error))
            }
            Err(rejected) => Err(rejected),
        };
        if let Err(rejected) = served {
            self.refuse(id, &rejected).await;
        }
    }

    fn status(&self) -> serde_json::Value {
        let running = self.turns.len();
        json!({
            "ok": true,
            "details": format!("timmy is ready; {running} turns in flight"),
            "sessions": "many",
            "concurrent_sends": CONCURRENT_SENDS,
            "cwd": true,
            "resumes": true,
            "steer": true,
            "compact": true,
            "toolsets": true,
            "fallback_chain": true,
            "forks": true,
            "mcp_servers": true,
            "system": true,
            "history": true,
            "models": true,
            "attachments": true,
        })
    }

    /// The turn of that id; without one, every turn.
    fn abort(&self, id: Option<&Id>) {
        let turns = self.turns.values();
        for turn in turns.filter(|turn| id.is_none() || turn.id.as_ref() == id) {
            turn.cancel.cancel();
        }
    }

    /// Finds room for one more turn.
    fn admit(&mut self, id: Option<&Id>) -> Result<(), Rejected> {
        // The peer may have read a final line before this loop heard of the turn's end.
        while let Some(ended) = self.running.try_join_next() {
            self.forget(ended);
        }
        if self.turns.len() >= CONCURRENT_SENDS {
            let error = format!("{CONCURRENT_SENDS} turns are in flight already");
            return Err(Rejected::new(Code::QueueFull, error));
        }
        if id.is_some() && self.turns.values().any(|turn| turn.id.as_ref() == id) {
            let error = "a send with this `id` is still outstanding";
            return Err(Rejected::new(Code::InvalidRequest, error));
        }
        Ok(())
    }

    fn insert(&mut self, turn: Turn) -> u64 {
        let number = self.next;
        self.next += 1;
        self.turns.insert(number, turn);
        number
    }

    fn start(&mut self, id: Option<Id>, send: Send, body: &str) -> Result<(), Rejected> {
        let echoes = request::is_for_echo(&self.default, &send)?;
        // What can't be played is refused before it takes anybody's place.
        let mut sent = request::sent(&self.default, &send, body)?;
        if echoes && send.session.is_none() && sent.conversation == Conversation::New {
            // Nobody could come back to it.
            sent.conversation = Conversation::Passing;
        }
        self.admit(id.as_ref())?;
        let cancel = CancellationToken::new();
        let inbox = (!echoes).then(Arc::<Inbox>::default);
        let number = self.insert(Turn {
            id: id.clone(),
            session: send.session.clone(),
            cancel: cancel.clone(),
            inbox: inbox.clone(),
        });
        let line = Line {
            id,
            out: self.out.clone(),
        };
        let session = send.session.clone().unwrap_or_default();
        let asker: Arc<dyn Asker> = if request::may_ask(&send) {
            Arc::new(ByLine {
                line: line.clone(),
                questions: Arc::clone(&self.questions),
            })
        } else {
            Arc::new(Nobody)
        };
        let Some(inbox) = inbox else {
            let first = remember(&self.sessions, &session, |known| {
                !std::mem::replace(&mut known.echoed, true)
            });
            let (agent, sessions) = (self.agent.clone(), Arc::clone(&self.sessions));
            self.running.spawn(async move {
                if first {
                    line.note(ECHO, echo::NOTE).await;
                }
                let script = format!("{}{}", send.text, echo::attached(&send.attachments));
                let opened = |native: &str| {
                    remember(&sessions, &session, |known| {
                        known.native = Some(native.to_owned());
                    });
                };
                let known = remember(&sessions, &session, |known| known.native.clone());
                let control = EchoControl {
                    line: &line,
                    cancel: &cancel,
                    asker: &*asker,
                    opened: &opened,
                };
                agent
                    .play_echo(&script, &sent, known.as_deref(), &control)
                    .await;
                number
            });
            return Ok(());
        };
        let (agent, sessions) = (self.agent.clone(), Arc::clone(&self.sessions));
        let selection = sent.selection.clone();
        self.running.spawn(async move {
            let opened = |native: &str| {
                remember(&sessions, &session, |known| {
                    known.native = Some(native.to_owned());
                    known.selection = Some(selection.clone());
                });
            };
            let control = TurnControl {
                line: &line,
                inbox: &inbox,
                cancel,
                asker,
                opened: &opened,
            };
            let played = AssertUnwindSafe(agent.play(sent, control)).catch_unwind();
            // A bug in a tool or a wire ends its own turn; the others of this process go on.
            if played.await.is_err() {
                inbox.refuse(&line).await;
                died(&line).await;
            }
            number
        });
        Ok(())
    }

    /// A word for a turn in flight: that of its session, or the only one.
    fn steer(&mut self, id: Option<Id>, steer: Steer) -> Result<(), Rejected> {
        let idle = |error: &str| Rejected::new(Code::SessionIdle, error);
        let mut turns = self.turns.values().filter(|turn| match &steer.session {
            Some(session) => turn.session.as_ref() == Some(session),
            None => true,
        });
        let turn = turns.next().ok_or_else(|| idle("no turn is in flight"))?;
        if turns.next().is_some() {
            let error = "several turns are in flight: name the `session`";
            return Err(Rejected::new(Code::Ambiguous, error));
        }
        let Some(inbox) = &turn.inbox else {
            let error = "provider `echo` takes no steers";
            return Err(Rejected::new(Code::Unsupported, error));
        };
        let text = steer.text;
        inbox
            .put(PendingSteer { id, text })
            .map_err(|why| match why {
                Unwelcome::TooLate => idle("the turn is over"),
                Unwelcome::TooMany => {
                    Rejected::new(Code::QueueFull, "too many steers wait for the turn already")
                }
            })
    }

    /// Which models can be asked, beside the turns: providers are asked for their lists.
    fn models(&mut self, id: Option<Id>, body: &str) -> Result<(), Rejected> {
        let asked = request::models(&self.default, body)?;
        let line = Line {
            id,
            out: self.out.clone(),
        };
        let (agent, lists) = (self.agent.clone(), self.lists.clone());
        // No turn: what waits for the end of turns waits for none of it.
        let number = self.next;
        self.next += 1;
        self.running.spawn(async move {
            let offered = lists.run_until_cancelled(offered(&agent, &asked));
            match offered.await {
                Some(Ok(fields)) => line.say("models", fields).await,
                Some(Err(rejected)) => line.reject(&rejected).await,
                None => {}
            }
            number
        });
        Ok(())
    }

    /// Shortens what is remembered of a session that had a turn here; only a model can.
    fn compact(&mut self, id: Option<Id>, compact: Compact) -> Result<(), Rejected> {
        self.admit(id.as_ref())?;
        let session = compact.session.unwrap_or_default();
        let known = lock(&self.sessions).get(&session).cloned();
        let Some((native, selection)) =
            known.and_then(|known| Some((known.native?, known.selection?)))
        else {
            let error = "no model has had a turn of the session in this process";
            return Err(Rejected::new(Code::SessionIdle, error));
        };
        let cancel = CancellationToken::new();
        let number = self.insert(Turn {
            id: id.clone(),
            session: None,
            cancel: cancel.clone(),
            inbox: None,
        });
        let agent = self.agent.clone();
        let line = Line {
            id,
            out: self.out.clone(),
        };
        // Its lines belong to no turn: the answer is all there is.
        let silent = Line {
            id: None,
            out: mpsc::channel(1).0,
        };
        self.running.spawn(async move {
            let control = TurnControl {
                line: &silent,
                inbox: &Inbox::default(),
                cancel,
                asker: Arc::new(Nobody),
                opened: &|_| {},
            };
            let instructions = compact.instructions.as_deref();
            let compacted = agent
                .compact(native, &selection, instructions, control)
                .await;
            match compacted {
                Ok(summary) => {
                    let fields = json!({"ok": true, "session": session, "summary": summary});
                    line.say("compact", fields).await;
                }
                Err(rejected) => line.reject(&rejected).await,
            }
            number
        });
        Ok(())
    }

    async fn refuse(&self, id: Option<Id>, rejected: &Rejected) {
        let _gone = self.out.send(OutgoingLine::refusal(id, rejected)).await;
    }

    async fn answer(&self, kind: &'static str, id: Option<Id>, fields: serde_json::Value) {
        let _gone = self.out.send(OutgoingLine::new(kind, id, fields)).await;
    }
}

async fn offered(agent: &Agent, asked: &ModelSelection) -> Result<serde_json::Value, Rejected> {
    let echoes = echo::is_wanted(asked.provider.as_deref(), asked.model.as_deref())?;
    let own = ModelSelection::default();
    let offered = agent.env.models(if echoes { &own } else { asked }).await;
    let offered = match offered {
        // It needs no configuration, broken or not.
        Err(rejected) if echoes => Offered {
            rows: Vec::new(),
            notes: vec![rejected.error],
        },
        offered => offered?,
    };
    let (mut rows, mut notes) = (offered.rows, offered.notes);
    if rows.is_empty() && notes.is_empty() && !echoes {
        notes.push(NO_MODELS.to_owned());
    }
    if echoes {
        for row in &mut rows {
            row.default = false;
        }
        rows.insert(0, echo::row());
    }
    let mut fields = json!({"ok": true, "models": rows});
    if !notes.is_empty() {
        fields["note"] = json!(notes.join("; "));
    }
    Ok(fields)
}

/// Changes what is remembered of a session.
fn remember<T>(sessions: &Sessions, session: &str, change: impl FnOnce(&mut Remembered) -> T) -> T {
    let mut all = lock(sessions);
    if all.len() >= SESSIONS && !all.contains_key(session) {
        all.pop_first();
    }
    change(all.entry(session.to_owned()).or_default())
}

#[cfg(test)]
mod tests;
