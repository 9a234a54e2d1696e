//! One connection, over any pair of streams: lines in, lines out, and when it closes.
//!
//! Owns the close rules of PROTOCOL.md part 3 and what a line can be refused for before the core
//! sees it. Must not know sessions or jobs: it counts what was asked and what was answered.
//!
//! The caller announces the connection to the owner (`Event::Connected`) and hands over the other
//! end of `commands`; [`serve`] says `Disconnected` when it is over.

mod input;
mod ledger;
mod output;
mod reading;

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::Duration;

use agentd_core::effect::Progress;
use agentd_core::event::{Event, Origin, RequestContext};
use agentd_core::ids::ConnId;
use agentd_protocol::envelope::{Envelope, Rejected};
use agentd_protocol::limits::MAX_PARTIAL;
use agentd_protocol::line::{Body, ErrorLine, Line, Telling};
use agentd_protocol::request::Decoded;
use agentd_protocol::{Code, Id, Request};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::platform::{gap, memory};
use crate::server::routes::Routes;
use input::{Input, Item};
use ledger::Ledger;
use output::Output;
use reading::Reading;

/// Orders for one connection that wait; each is a line of the core, which counts their bytes.
pub const COMMANDS: usize = 8192;
/// What a connection takes, about.
const OF_A_CONNECTION: usize = 8 * 1024;
/// A bare connection is closed when all is said and nothing came or went for this long: `nc -U` never
/// says that it is done, and the next line of a script follows an answer sooner.
const QUIET: Duration = Duration::from_millis(100);
/// A connection that never sends a line is closed after this time.
const FIRST_LINE_WITHIN: Duration = Duration::from_secs(300);
/// A line once begun must end within this time.
const LINE_WITHIN: Duration = Duration::from_secs(30);
/// After the write side is shut, input is dropped for this long, so that closing with unread
/// input doesn't destroy the last answer.
const LINGER: Duration = Duration::from_millis(50);
/// A peer that doesn't read gets this long for the last lines when nothing else keeps it.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(1);
/// So much is posted before all others have their turn, in requests and the turns that they bring:
/// what one connection asked at once would else be dealt with before anything that others ask.
const TOGETHER: usize = 64;
/// Unanswered requests before reading stops. Sends can't get here: the core refuses them long
/// before.
const UNANSWERED: usize = 1024;

/// What the owner wants of a connection.
#[derive(Clone, PartialEq, Debug)]
pub enum ConnCommand {
    /// Write a line.
    Line {
        /// The line.
        body: Body,
        /// The request's id, echoed.
        id: Option<Id>,
        /// The line's number, if it has one.
        seq: Option<u64>,
        /// For the first time, or again?
        telling: Telling,
        /// Does it end the request?
        progress: Progress,
    },
    /// Say `CaughtUp` when everything before this was written.
    Mark,
    /// The client said `hello`: it closes when it likes.
    Keep,
    /// Close when everything asked is answered.
    Finish,
    /// Close now.
    Close,
}

/// What all connections share.
#[derive(Clone)]
pub struct PeerConfig {
    /// Looks up what the core can't.
    pub facts: Arc<dyn Fn(&Request) -> Known + Send + Sync>,
    /// Takes a request whose facts take time, and posts it when they are there; gives back any
    /// other.
    pub later: Later,
    /// Bytes of unfinished lines of all connections together.
    pub partial: Arc<AtomicUsize>,
    /// The rules for turns that name no agent.
    pub routes: Arc<Routes>,
}

/// What was looked up for a request.
pub enum Known {
    /// All of it.
    Now(Box<RequestContext>),
    /// It takes time, and may be what this request can't do without.
    Soon(Pin<Box<dyn Future<Output = Result<Box<RequestContext>, Rejected>> + Send>>),
}

/// See [`PeerConfig::later`].
pub type Later = Arc<dyn Fn(Event) -> Option<Event> + Send + Sync>;

/// Serves a connection until it is over.
pub async fn serve<R, W>(
    conn: ConnId,
    origin: Origin,
    mut reader: R,
    mut writer: W,
    inbox: mpsc::Sender<Event>,
    commands: mpsc::Receiver<ConnCommand>,
    cfg: PeerConfig,
) where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut peer = Peer::new(conn, origin, commands, cfg);
    peer.run(&mut reader, &mut writer, &inbox).await;
    // Whatever is refused here, the other side is gone.
    let shut = timeout(LAST_LINES_WITHIN, writer.shutdown()).await;
    if matches!(shut, Ok(Ok(()))) && origin == Origin::Socket && !peer.input.ended() {
        let _quiet = timeout(LINGER, discard(&mut reader)).await;
    }
    drop((reader, writer));
    memory::let_go(OF_A_CONNECTION);
    // The owner may be gone as well.
    let _gone = inbox.send(Event::Disconnected { conn }).await;
}

async fn discard<R: AsyncRead + Unpin>(reader: &mut R) {
    while matches!(input::read(reader, |bytes| bytes.len()).await, Ok(1..)) {}
}

/// How far a connection is from its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// Closes by the rule for connections that never said `hello`.
    Bare,
    /// Said `hello`.
    Kept,
    /// Closes when everything asked is answered.
    Finishing,
    /// Closes when what is written was written, whatever is outstanding.
    Closing,
}

struct Peer {
    conn: ConnId,
    origin: Origin,
    commands: mpsc::Receiver<ConnCommand>,
    cfg: PeerConfig,
    input: Input,
    output: Output,
    ledger: Ledger,
    stage: Stage,
    closing_since: Option<Instant>,
    reading: Reading,
    told_last: bool,
}

/// A request that was read from a line.
struct ReadRequest {
    id: Option<Id>,
    decoded: Decoded,
    known: Known,
}

/// What happened in one step, where it isn't done with at once.
enum PeerStep {
    Read(io::Result<usize>),
    Ordered(Option<ConnCommand>),
    Written(io::Result<usize>),
    Attached(Option<Box<Event>>),
    Room,
    OwnerGone,
    Due,
}

impl Peer {
    fn new(
        conn: ConnId,
        origin: Origin,
        commands: mpsc::Receiver<ConnCommand>,
        cfg: PeerConfig,
    ) -> Self {
        Self {
            conn,
            origin,
            commands,
            input: Input::new(Arc::clone(&cfg.partial)),
            cfg,
            output: Output::default(),
            ledger: Ledger::default(),
            stage: Stage::Bare,
            closing_since: None,
            reading: Reading::Nothing,
            told_last: false,
        }
    }

    async fn run<R, W>(&mut self, reader: &mut R, writer: &mut W, inbox: &mpsc::Sender<Event>)
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            if self.digest(inbox).is_break() {
                tokio::task::yield_now().await;
            }
            let due = match self.due() {
                Due::Now => {
                    // What has arrived by now is served; only then is it over.
                    tokio::task::yield_now().await;
                    if !self.takes_a_last_look(reader).await {
                        return;
                    }
                    continue;
                }
                Due::At(when) => Some(when),
                Due::Never => None,
            };
            match self.step(reader, writer, inbox, due).await {
                PeerStep::Read(read) => self.input.heard(read),
                PeerStep::Ordered(Some(command)) => self.obey(command),
                PeerStep::Ordered(None) | PeerStep::OwnerGone => self.close(),
                PeerStep::Written(written) => {
                    self.output.wrote(written);
                    failpoint!("after-line");
                }
                PeerStep::Attached(Some(event)) => self.reading = Reading::Done(event),
                PeerStep::Attached(None) => self.close(),
                PeerStep::Room => {}
                PeerStep::Due => {
                    self.line_took_too_long();
                }
            }
        }
    }

    async fn step<R, W>(
        &mut self,
        reader: &mut R,
        writer: &mut W,
        inbox: &mpsc::Sender<Event>,
        due: Option<Instant>,
    ) -> PeerStep
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let posting = self.output.caught_up() || self.may_serve() || self.has_asked_last();
        let (reading, ordering) = (self.may_read(), self.stage < Stage::Closing);
        let Self {
            input,
            output,
            commands,
            reading: attaching,
            ..
        } = self;
        tokio::select! {
            command = commands.recv(), if ordering && output.has_room() => PeerStep::Ordered(command),
            written = output.write(writer), if output.busy() => PeerStep::Written(written),
            room = inbox.reserve(), if posting => match room {
                // Only that there is room: what is posted into it `digest` decides, when more may
                // have come.
                Ok(_given_back) => PeerStep::Room,
                Err(_) => PeerStep::OwnerGone,
            },
            event = attaching.done() => PeerStep::Attached(event),
            read = input.read(reader), if reading => PeerStep::Read(read),
            () = at(due) => PeerStep::Due,
        }
    }

    /// Posts and answers as much as there is room for, without waiting; breaks off when it is the turn
    /// of others.
    fn digest(&mut self, inbox: &mpsc::Sender<Event>) -> ControlFlow<()> {
        let mut posted = 0;
        loop {
            let (caught_up, last) = (self.output.caught_up(), self.has_asked_last());
            if !caught_up && !last && !self.may_serve() {
                return ControlFlow::Continue(());
            }
            if posted >= TOGETHER {
                return ControlFlow::Break(());
            }
            let Ok(permit) = inbox.try_reserve() else {
                return ControlFlow::Continue(());
            };
            posted += 1;
            if caught_up {
                self.output.told_caught_up();
                permit.send(Event::CaughtUp { conn: self.conn });
                continue;
            }
            if last {
                self.told_last = true;
                permit.send(Event::AskedLast { conn: self.conn });
                continue;
            }
            let event = self.next_event();
            if let Some(Event::Requested {
                request: Ok(asked), ..
            }) = &event
            {
                posted += asked.request.turns().len();
            }
            if let Some(event) = event.and_then(|event| (self.cfg.later)(event)) {
                permit.send(event);
            }
        }
    }

    /// The next request for the owner, if it is ready.
    fn next_event(&mut self) -> Option<Event> {
        match std::mem::replace(&mut self.reading, Reading::Nothing) {
            Reading::Done(event) => return Some(*event),
            Reading::Nothing => {}
            begun @ Reading::Begun(_) => {
                self.reading = begun;
                return None;
            }
        }
        let ReadRequest { id, decoded, known } =
            self.input.next().and_then(|item| self.serve(item))?;
        let (conn, rules) = (self.conn, &self.cfg.routes);
        match known {
            Known::Now(facts) if !Reading::is_needed(&decoded, rules) => Some(Event::Requested {
                conn,
                id,
                request: Ok(decoded),
                facts,
            }),
            known => {
                self.reading = Reading::begin((conn, id), decoded, known, rules);
                None
            }
        }
    }

    /// A request for the owner; `None` when the line was refused here.
    fn serve(&mut self, item: Item) -> Option<ReadRequest> {
        let (id, rejected) = match item {
            Item::Line(line) => match self.decode(&line) {
                Ok(asked) => return Some(asked),
                Err(refused) => refused,
            },
            Item::Last(line) => match self.decode(&line) {
                Ok(asked) => return Some(asked),
                // It would have gone on: whoever sent it has to hear that the rest is missing, not
                // that it can't write JSON. Whose it was can't be told, as its `id` may be in that
                // rest.
                Err((_, rejected)) if rejected.code == Code::BadJson && is_fragment(&line) => {
                    (None, truncated("the input ended in the middle of a line"))
                }
                Err(refused) => refused,
            },
            Item::TooLong(id) => (id, Rejected::too_long()),
            Item::NoRoom(id) => (id, no_room()),
        };
        self.refuse(id.as_ref(), rejected);
        None
    }

    fn decode(&mut self, line: &[u8]) -> Result<ReadRequest, (Option<Id>, Rejected)> {
        let envelope = Envelope::parse(line)?;
        let id = envelope.id.clone();
        let taken = id.as_ref().is_some_and(|id| self.ledger.is_open(id));
        // Under the id of a send that isn't answered yet, an `abort` means that send.
        if taken && envelope.kind != "abort" {
            let error = "a request with this `id` is still unanswered on this connection";
            return Err((id, Rejected::new(Code::InvalidRequest, error)));
        }
        let decoded = Request::decode(&envelope).map_err(|rejected| (id.clone(), rejected))?;
        // It is let go when its prompt is in the store, which is soon.
        memory::let_go(line.len());
        let known = (self.cfg.facts)(&decoded.request);
        self.ledger.asked(id.clone());
        Ok(ReadRequest { id, decoded, known })
    }

    fn refuse(&mut self, id: Option<&Id>, rejected: Rejected) {
        let line = Line::Error(Box::new(ErrorLine::refusal(rejected))).body();
        self.output.push(&line.render(id, None, Telling::First));
    }

    fn obey(&mut self, command: ConnCommand) {
        match command {
            ConnCommand::Line {
                body,
                id,
                seq,
                telling,
                progress,
            } => {
                failpoint!("before-line");
                wrong!(
                    "lose-lines",
                    if progress == Progress::More && seq.is_some_and(|seq| seq % 7 == 0) {
                        return self.ledger.told(id, progress);
                    }
                );
                self.output.push(&body.render(id.as_ref(), seq, telling));
                self.ledger.told(id, progress);
            }
            ConnCommand::Mark => self.output.mark(),
            // Stages only go on: a `hello` doesn't keep a connection that is about to end.
            ConnCommand::Keep => self.stage = self.stage.max(Stage::Kept),
            ConnCommand::Finish => self.stage = self.stage.max(Stage::Finishing),
            ConnCommand::Close => self.close(),
        }
    }

    fn close(&mut self) {
        self.stage = Stage::Closing;
        self.input.stop();
        self.closing_since.get_or_insert_with(Instant::now);
    }

    /// Is a line over, or has it more time as we couldn't read it?
    fn line_took_too_long(&mut self) -> bool {
        let (now, began) = (Instant::now(), self.input.began());
        let Some(due) = began.map(|at| at + LINE_WITHIN).filter(|due| *due <= now) else {
            return false;
        };
        if !self.may_read() {
            return false;
        }
        if let Some(left) = gap::left_after(now - due) {
            self.input.began_at(now + left - LINE_WITHIN);
            return true;
        }
        let error = format!("a line did not end within {} s", LINE_WITHIN.as_secs());
        self.refuse(None, truncated(error));
        self.input.stop();
        self.stage = self.stage.max(Stage::Finishing);
        true
    }

    /// Does it still wait for answers, and can't ask for anything more? To be told once.
    fn has_asked_last(&self) -> bool {
        let served = matches!(self.reading, Reading::Nothing) && !self.input.has_items();
        let waits = self.stage == Stage::Kept && self.ledger.unanswered() > 0;
        self.input.ended() && served && waits && !self.told_last
    }

    fn may_read(&self) -> bool {
        self.input.wants_more() && self.may_ask()
    }

    fn may_serve(&self) -> bool {
        let ready = match self.reading {
            Reading::Nothing => self.input.has_items(),
            Reading::Begun(_) => false,
            Reading::Done(_) => true,
        };
        ready && self.may_ask() && self.stage < Stage::Closing
    }

    fn may_ask(&self) -> bool {
        self.ledger.unanswered() <= UNANSWERED && self.output.has_room()
    }

    /// When is something to be done although nothing happens?
    fn due(&self) -> Due {
        let input = &self.input;
        if self.stage == Stage::Closing {
            let Some(since) = self.closing_since.filter(|_| self.output.busy()) else {
                return Due::Now;
            };
            return Due::from(since + LAST_LINES_WITHIN);
        }
        // Everything that came is still posted, then there is nobody left to talk to.
        if self.output.broken() {
            let posted = matches!(self.reading, Reading::Nothing) && !input.has_items();
            return if input.ended() && posted {
                Due::Now
            } else {
                Due::Never
            };
        }
        let line_due = input
            .began()
            // What we don't read, as answers pile up, can't be late.
            .filter(|_| self.may_read())
            .map(|at| at + LINE_WITHIN);
        let settled = self.ledger.unanswered() == 0
            && !input.has_items()
            && (!input.in_line() || input.ended())
            && !self.output.busy();
        let over = match (self.stage, self.origin) {
            (Stage::Finishing, _) => settled.then(Instant::now),
            // Whoever said `hello`, or started this process for itself, says when it is over.
            (Stage::Kept, _) | (_, Origin::Stdio) => (settled && input.ended()).then(Instant::now),
            (_, Origin::Socket) => self.bare_end(settled),
        };
        match line_due.into_iter().chain(over).min() {
            Some(when) => Due::from(when),
            None => Due::Never,
        }
    }

    fn bare_end(&self, settled: bool) -> Option<Instant> {
        let input = &self.input;
        if !input.any_line() && !input.ended() {
            return Some(input.opened() + FIRST_LINE_WITHIN);
        }
        // A subscriber waits for lines that it won't ask for one by one.
        if !settled || self.ledger.subscribed() {
            return None;
        }
        if input.ended() {
            return Some(Instant::now());
        }
        let last = self.output.wrote_at().max(Some(input.last_byte()));
        last.map(|at| at + QUIET)
    }

    /// Was there something after all?
    async fn takes_a_last_look<R: AsyncRead + Unpin>(&mut self, reader: &mut R) -> bool {
        // A line that isn't over in time comes to its end here, too.
        let late = self.stage < Stage::Closing && !self.output.broken();
        if late && self.line_took_too_long() {
            return true;
        }
        if !self.may_read() || self.input.stopped() {
            return false;
        }
        let looked = {
            let mut reading = std::pin::pin!(self.input.read(reader));
            poll_fn(|cx| match reading.as_mut().poll(cx) {
                Poll::Ready(read) => Poll::Ready(Some(read)),
                Poll::Pending => Poll::Ready(None),
            })
            .await
        };
        let Some(read) = looked else {
            return false;
        };
        self.input.heard(read);
        true
    }
}

enum Due {
    Now,
    At(Instant),
    Never,
}

impl From<Instant> for Due {
    fn from(when: Instant) -> Self {
        if when <= Instant::now() {
            Self::Now
        } else {
            Self::At(when)
        }
    }
}

/// Is it the beginning of an object, without its end?
fn is_fragment(line: &[u8]) -> bool {
    line.trim_ascii_start().first() == Some(&b'{')
        && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err_and(|why| why.is_eof())
}

fn no_room() -> Rejected {
    let most = MAX_PARTIAL / (1024 * 1024);
    let error = format!(
        "lines that aren't over yet take {most} MiB on all connections together: this one was \
         skipped"
    );
    Rejected::new(Code::QueueFull, error).hint("nothing was done; send it again")
}

fn truncated(error: impl Into<String>) -> Rejected {
    Rejected::new(Code::Truncated, error)
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
