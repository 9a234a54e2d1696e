//! One turn from the command line: sending or following it, signals, and how it ended.
//!
//! Owns the loop over a turn's lines. Must not know how lines look (`View`) nor what is said of an
//! outcome (`outcome`).

use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use agentd_protocol::line::{StatusAnswer, Stop};
use agentd_protocol::request::{Abort, Retry, Send, Subscribe};
use agentd_protocol::rows::JobRow;
use agentd_protocol::{JobId, Line};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use super::connecting::tell_fallback;
use super::stop_signal::{StopSignal, StopSignals};
use super::terminal::Asker;
use super::waiting::Waiting;
use super::{output, typed, whole};
use agentd_client::again::{Heard, MOST_LOSSES, PAUSE_AFTER_A_LOSS};
use agentd_client::client::{Client, ClientError, Server};
use agentd_client::connection::LostError;
use agentd_client::fallback::Lock;
use agentd_client::wire::Received;

/// A turn that answers faster than this shows no spinner.
const SPINNER_AFTER: Duration = Duration::from_millis(300);
/// A spinner that moves, without being a cost.
const SPINNER_STEP: Duration = Duration::from_millis(100);

/// Where the lines of a turn go.
pub(super) trait View {
    /// One line, the final one too.
    fn line(&mut self, received: &Received) -> io::Result<()>;
    /// Does this final line have only part of a text that is to be shown?
    fn lacks_text(&self, _line: &Line) -> bool {
        false
    }
    /// Time passed while nothing came.
    fn tick(&mut self, _waited: Duration) {}
    /// Would somebody see what a turn waits for that doesn't run?
    fn wants_reason(&self) -> bool {
        false
    }
    /// What the daemon says of such a turn, of the jobs of its session, and of itself.
    fn reason(&mut self, _job: JobId, _rows: &[JobRow], _status: &StatusAnswer) {}
    /// The conversation broke; the next daemon is waited for.
    fn lost(&mut self) {}
    /// The turn was asked to end.
    fn cancelling(&mut self) {}
    /// So it has ended.
    fn cancelled(&mut self, name: &str) {
        self.note(&format!("cancelled {name}"));
    }
    /// A word about the turn.
    fn note(&mut self, text: &str) {
        output::note(text);
    }
    /// Nothing more comes.
    fn over(&mut self) {}
}

/// The turn that is shown.
#[derive(Clone, Copy)]
enum Asked<'a> {
    /// One of ours.
    Send(&'a Send),
    /// Anybody's, which goes on when we leave.
    Job(JobId),
}

/// How a turn ended.
pub(super) enum TurnOutcome {
    /// With its final line.
    Final(Box<Received>, Interrupted),
    /// We left by a signal; the turn goes on, or may still be ending.
    Left(StopSignal),
    /// Nobody waits for it any longer. Once it was accepted it goes on, and has a number.
    Waited(Option<JobId>),
    /// Nobody could take it, or its end isn't known; its number is, once it was accepted.
    Failed(ClientError, Option<AcceptedTurn>),
    /// What it said could not be written.
    Unwritten(io::Error, Option<JobId>),
}

/// A turn that was accepted, and whose end isn't known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AcceptedTurn {
    pub(super) job: JobId,
    pub(super) fate: Fate,
}

/// What becomes of such a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It ran, and isn't run again by itself: with its daemon it has ended.
    DiedWithDaemon,
    /// It may go on, or wait for the daemon that comes next.
    GoesOn,
}

/// Did a signal ask for its end?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupted {
    /// Yes.
    Yes,
    /// No.
    No,
}

/// How another daemon is begun where one is always wanted and the last was killed.
pub(super) struct NextDaemon {
    pub(super) is_needed: fn() -> bool,
    /// Gives what is to be said of it.
    pub(super) begin: fn() -> Beginning,
}

/// Ends when it is there.
pub(super) type Beginning = Pin<Box<dyn Future<Output = Option<String>>>>;

/// Sends one turn and shows its lines until its end. Its questions go to whoever asks here. A
/// daemon that goes away is followed by the next one, which is asked for the same turn.
pub(super) async fn run(
    client: Client,
    send: &Send,
    view: &mut impl View,
    asker: Option<Asker>,
) -> io::Result<TurnOutcome> {
    run_within(client, send, view, asker, None, None).await
}

/// The same, for so long at most: then the turn goes on by itself.
pub(super) async fn run_within(
    client: Client,
    send: &Send,
    view: &mut impl View,
    asker: Option<Asker>,
    wait: Option<Duration>,
    next: Option<&NextDaemon>,
) -> io::Result<TurnOutcome> {
    let asked = (Asked::Send(send), Duration::ZERO);
    shown(client, asked, view, asker, wait, next).await
}

/// Shows a turn that was sent before, and began so long ago, from its beginning to its end. Ctrl-C
/// leaves it running.
pub(super) async fn follow(
    client: Client,
    (job, since): (JobId, Duration),
    view: &mut impl View,
    asker: Option<Asker>,
    next: &NextDaemon,
) -> io::Result<TurnOutcome> {
    let asked = (Asked::Job(job), since);
    shown(client, asked, view, asker, None, Some(next)).await
}

async fn shown(
    client: Client,
    (asked, since): (Asked<'_>, Duration),
    view: &mut impl View,
    asker: Option<Asker>,
    wait: Option<Duration>,
    next: Option<&NextDaemon>,
) -> io::Result<TurnOutcome> {
    let stops = StopSignals::hear()?;
    let begun = Instant::now();
    let mut running = Running {
        client,
        asked,
        view,
        asker,
        stops,
        abort: Interrupted::No,
        // A machine that was started after it knows no such time.
        begun: begun.checked_sub(since).unwrap_or(begun),
        wait,
        until: wait.map(|wait| match asked {
            Asked::Send(_) => taken_by(begun, wait),
            Asked::Job(_) => begun + wait,
        }),
        ticks: ticks(begun),
        heard: Heard::default(),
        waiting: Waiting::default(),
        job: match asked {
            Asked::Send(_) => None,
            Asked::Job(job) => Some(job),
        },
        has_run: false,
        next,
    };
    let outcome = running.until_its_end().await;
    running.view.over();
    let outcome = match outcome {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            TurnOutcome::Unwritten(error, running.job)
        }
        outcome => outcome?,
    };
    running.tell_interrupt(&outcome);
    if let TurnOutcome::Final(..) = outcome {
        running.client.close().await;
    }
    Ok(outcome)
}

/// What came first.
enum FirstLine {
    /// A line, and the number of what it answers.
    Line(u64, Box<Received>),
    /// Nothing: we left by a signal.
    Left(StopSignal),
    /// Nothing in the time that it is waited for.
    Waited,
}

/// Whoever waits for a turn for less than this waits so long for a daemon that takes it: that is as
/// long as one may be silent.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);

/// Until when it waits for a daemon that takes its turn.
pub(super) fn taken_by(begun: Instant, wait: Duration) -> Instant {
    begun + wait.max(TAKEN_WITHIN)
}

/// Comes when nobody waits any longer.
async fn over(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// A turn on its way, over as many conversations as that takes.
struct Running<'a, V> {
    client: Client,
    asked: Asked<'a>,
    view: &'a mut V,
    asker: Option<Asker>,
    stops: StopSignals,
    abort: Interrupted,
    begun: Instant,
    /// How long it is waited for, from its acceptance on.
    wait: Option<Duration>,
    /// Then it goes on without us.
    until: Option<Instant>,
    ticks: Interval,
    heard: Heard,
    waiting: Waiting,
    job: Option<JobId>,
    has_run: bool,
    next: Option<&'a NextDaemon>,
}

impl<V: View> Running<'_, V> {
    async fn until_its_end(&mut self) -> io::Result<TurnOutcome> {
        let mut lost = None;
        let mut losses = 0;
        loop {
            let alone_before = self.client.is_alone();
            let (id, first) = match self.first(lost).await {
                Ok(FirstLine::Line(id, first)) => (id, *first),
                Ok(FirstLine::Left(signal)) => return Ok(TurnOutcome::Left(signal)),
                Ok(FirstLine::Waited) => return Ok(TurnOutcome::Waited(self.job)),
                Err(error) => return Ok(TurnOutcome::Failed(error, self.accepted())),
            };
            // A daemon that was stopping may have been followed by a run without one, and whoever
            // reads has to know that.
            if !alone_before {
                tell_fallback(&self.client);
            }
            match self.lines(id, first).await? {
                ConversationEnd::Over(outcome) => return Ok(outcome),
                ConversationEnd::Lost(why) if losses < MOST_LOSSES => {
                    losses += 1;
                    self.view.lost();
                    self.waiting = Waiting::default();
                    tokio::time::sleep(PAUSE_AFTER_A_LOSS * losses).await;
                    self.heard.told_again();
                    lost = Some(why);
                }
                ConversationEnd::Lost(why) => {
                    let error = ClientError::Unknown(why);
                    return Ok(TurnOutcome::Failed(error, self.accepted()));
                }
            }
        }
    }

    /// The send's first line. After a loss it is asked for again.
    async fn first(&mut self, lost: Option<LostError>) -> Result<FirstLine, ClientError> {
        let goes_on = self.goes_on_without_us();
        // As before a first one: who names a place means what is there.
        let may_start = lost.is_some()
            && matches!(self.client.server(), Server::Daemon(_))
            && typed::which_daemon().is_empty();
        let mut next = self.next.filter(|_| may_start);
        let send = match self.asked {
            Asked::Send(send) => Some(send),
            Asked::Job(_) => None,
        };
        let mut cancel = pin!(self.client.cancel_beside(send));
        let mut cancels = false;
        let (client, asked) = (&mut self.client, self.asked);
        let sending = async {
            match (asked, lost) {
                (Asked::Send(send), None) => client.send(send).await,
                (Asked::Send(send), Some(lost)) => client.again(send, lost).await,
                (Asked::Job(job), lost) => subscribed(client, job, lost).await,
            }
        };
        tokio::pin!(sending);
        loop {
            tokio::select! {
                first = &mut sending => {
                    return first.map(|(id, line)| FirstLine::Line(id, Box::new(line)));
                }
                () = over(self.until) => return Ok(FirstLine::Waited),
                signal = self.stops.next() => {
                    if leaves(signal, goes_on, asked, &mut self.abort) {
                        // However soon: the first one has to be heard.
                        let heard = timeout(Duration::from_secs(1), &mut cancel);
                        let _late = if cancels { heard.await } else { Ok(()) };
                        return Ok(FirstLine::Left(signal));
                    }
                    self.view.cancelling();
                    cancels = true;
                }
                () = &mut cancel, if cancels => cancels = false,
                now = self.ticks.tick() => {
                    self.view.tick(now - self.begun);
                    if let Some(daemon) = next.take_if(|daemon| (daemon.is_needed)())
                        && let Some(note) = (daemon.begin)().await
                    {
                        self.view.note(&note);
                    }
                }
            }
        }
    }

    /// Its lines, as long as the conversation lasts.
    async fn lines(&mut self, id: u64, first: Received) -> io::Result<ConversationEnd> {
        let named = job_of(&first);
        if self.job.is_none() && named.is_some() {
            self.until = self.wait.map(|wait| Instant::now() + wait);
        }
        self.job = named.or(self.job);
        // Wished for before there was a job that an abort could name.
        if self.abort == Interrupted::Yes && !first.ends_turn() {
            ask_abort(&mut self.client, self.job).await;
        }
        let mut received = first;
        loop {
            let is_its = received.answers(id);
            self.has_run |= is_its && is_running(&received);
            if is_its && self.heard.is_about_asking(&self.client, &received) {
                return Ok(ConversationEnd::Lost(LostError::Ended));
            }
            let ends = is_its && received.ends_turn();
            if let Some(job) = self.job
                && let Some((rows, status)) = self.waiting.line(&received)
            {
                self.view.reason(job, &rows, &status);
            }
            // Answers to an abort, or to an answer, aren't the turn's.
            let mut fresh = match is_its {
                true => self.heard.fresh(received.clone()),
                false => Some(received.clone()),
            };
            if ends
                && let Some(fresh) = &mut fresh
                && fresh
                    .line
                    .as_ref()
                    .is_some_and(|line| self.view.lacks_text(line))
            {
                whole::complete(&mut self.client, fresh).await;
            }
            if let Some(fresh) = &fresh {
                if is_its || received.id.is_none() {
                    self.view.line(fresh)?;
                }
                if let Some(asker) = &mut self.asker {
                    asker.line(fresh);
                }
            }
            if ends {
                let outcome = TurnOutcome::Final(Box::new(received), self.abort);
                return Ok(ConversationEnd::Over(outcome));
            }
            received = match self.next().await? {
                NextLine::Line(next) => *next,
                NextLine::Lost(lost) => return Ok(ConversationEnd::Lost(lost)),
                NextLine::Left(signal) => {
                    return Ok(ConversationEnd::Over(TurnOutcome::Left(signal)));
                }
                NextLine::Waited => {
                    return Ok(ConversationEnd::Over(TurnOutcome::Waited(self.job)));
                }
            };
        }
    }

    async fn next(&mut self) -> io::Result<NextLine> {
        loop {
            tokio::select! {
                next = self.client.next() => return Ok(match next {
                    Ok(next) => NextLine::Line(Box::new(next)),
                    Err(lost) => NextLine::Lost(lost),
                }),
                () = over(self.until) => return Ok(NextLine::Waited),
                signal = self.stops.next() => {
                    let goes_on = self.goes_on_without_us();
                    if leaves(signal, goes_on, self.asked, &mut self.abort) {
                        return Ok(NextLine::Left(signal));
                    }
                    ask_abort(&mut self.client, self.job).await;
                    self.view.cancelling();
                    let name = self.name();
                    self.view.note(&format!("cancelling {name}; Ctrl-C again leaves at once"));
                }
                now = self.ticks.tick() => match &mut self.asker {
                    Some(asker) if asker.is_asking() => asker.typed(&mut self.client).await?,
                    _ => {
                        self.view.tick(now - self.begun);
                        if let Some(job) = self.job
                            && self.view.wants_reason()
                        {
                            self.waiting.ask(&mut self.client, job, now).await;
                        }
                    }
                },
            }
        }
    }

    /// A daemon ends a turn; a run without one is there for us alone, and ends with us.
    fn goes_on_without_us(&self) -> GoesOn {
        match self.client.is_alone() {
            true => GoesOn::No,
            false => GoesOn::Yes,
        }
    }

    /// What is known of a turn whose end isn't.
    fn accepted(&self) -> Option<AcceptedTurn> {
        let runs_again = match self.asked {
            Asked::Send(send) => send.retry == Retry::Auto,
            // Nobody here knows what was asked.
            Asked::Job(_) => true,
        };
        let is_gone = match self.client.server() {
            Server::Daemon(endpoint) => endpoint.lock() == Lock::Free,
            Server::OneShot(_) | Server::Remote(_) => false,
        };
        let fate = match self.has_run && is_gone && !runs_again {
            true => Fate::DiedWithDaemon,
            false => Fate::GoesOn,
        };
        self.job.map(|job| AcceptedTurn { job, fate })
    }

    fn name(&self) -> String {
        self.job
            .map_or_else(|| "the turn".to_owned(), |job| job.to_string())
    }

    /// What became of somebody's wish to end it, or to leave.
    fn tell_interrupt(&mut self, outcome: &TurnOutcome) {
        let name = self.name();
        let told = match (self.asked, outcome) {
            (Asked::Job(job), TurnOutcome::Left(_)) => left(job),
            (Asked::Send(_), TurnOutcome::Left(_)) => match (self.job, self.abort) {
                (Some(job), Interrupted::Yes) => {
                    format!("left; {job} was asked to end, and may still be ending")
                }
                (Some(job), Interrupted::No) => left(job),
                (None, _) => {
                    "left before it was known whether it was accepted: it may run".to_owned()
                }
            },
            (Asked::Send(_), TurnOutcome::Final(received, Interrupted::Yes)) => {
                match &received.line {
                    Some(Line::MessageEnd(end)) if end.stop == Stop::Cancelled => {
                        self.view.cancelled(&name);
                        return;
                    }
                    Some(Line::MessageEnd(_)) => format!("{name} had ended already"),
                    // It says itself what became of it.
                    _ => return,
                }
            }
            _ => return,
        };
        self.view.note(&told);
    }
}

/// Does a turn go on when whoever shows it leaves?
#[derive(Clone, Copy, PartialEq, Eq)]
enum GoesOn {
    /// In its daemon.
    Yes,
    /// No.
    No,
}

/// Does a signal end our looking on? Else it is a wish that the turn ends.
fn leaves(signal: StopSignal, goes_on: GoesOn, asked: Asked<'_>, abort: &mut Interrupted) -> bool {
    // Whoever ends this program doesn't speak of the turn.
    if (signal, goes_on) == (StopSignal::Terminate, GoesOn::Yes) {
        return true;
    }
    let again = std::mem::replace(abort, Interrupted::Yes);
    again == Interrupted::Yes || matches!(asked, Asked::Job(_))
}

/// A turn that goes on without us, and what can be done about it.
fn left(job: JobId) -> String {
    let there = typed::which_daemon();
    format!(
        "left; {job} goes on: `agentctl{there} attach {job}` shows it again, \
         `agentctl{there} abort {job}` ends it"
    )
}

/// The first line about a job that was sent before, from its beginning.
async fn subscribed(
    client: &mut Client,
    job: JobId,
    lost: Option<LostError>,
) -> Result<(u64, Received), ClientError> {
    if let Some(lost) = lost {
        client.reconnect(lost).await?;
    }
    let subscribe = Subscribe {
        jobs: Some(vec![job]),
        after: Some(0),
        ..Subscribe::default()
    };
    let asked = async {
        let id = client.request("subscribe", &subscribe).await?;
        loop {
            let received = client.next().await?;
            if received.answers(id) {
                return Ok((id, received));
            }
        }
    };
    asked.await.map_err(ClientError::Unknown)
}

/// How far a conversation carried a turn.
enum ConversationEnd {
    /// To its end, or ours.
    Over(TurnOutcome),
    /// Until it broke.
    Lost(LostError),
}

/// What came next.
enum NextLine {
    Line(Box<Received>),
    Lost(LostError),
    Left(StopSignal),
    /// It was waited for long enough.
    Waited,
}

fn ticks(begun: Instant) -> Interval {
    let mut ticks = interval_at(begun + SPINNER_AFTER, SPINNER_STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

async fn ask_abort(client: &mut Client, job: Option<JobId>) {
    let abort = Abort {
        job,
        ..Abort::default()
    };
    // A connection that is gone shows when it is read next.
    let _gone: Result<u64, LostError> = client.request("abort", &abort).await;
}

fn is_running(received: &Received) -> bool {
    match &received.line {
        Some(Line::Accepted(accepted)) => accepted.running,
        Some(Line::Running { .. }) => true,
        _ => false,
    }
}

fn job_of(received: &Received) -> Option<JobId> {
    let Some(Line::Accepted(accepted)) = &received.line else {
        return None;
    };
    Some(accepted.job)
}
