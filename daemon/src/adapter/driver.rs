//! What every adapter of an agent with one turn at a time does alike.
//!
//! Owns the prompt that waits, how far the turn in flight is, the abort and the steers that wait for
//! its run to begin, and that there is one compaction at a time, between turns. What is written for
//! each of them, and when a turn is over, its `Wire` says. Must not know any wire.

use agentd_core::ids::TurnId;
use agentd_core::store::Pins;
use agentd_core::worker::{
    CommandList, Exit, Failure, ModelList, Outcome, Prompt, Reply, WorkerCommand, WorkerEvent,
};
use agentd_protocol::Code;
use agentd_protocol::line::{Level, Stop};
use serde_json::{Value, json};

use super::object::{beginning, put_line};
use super::steer_queue::SteerQueue;
use super::unknown::Unknown;
use super::{Adapter, ended};

/// Where goes what comes of a line or of a command of the core.
pub(super) struct Out<'a> {
    /// What the core is told.
    events: &'a mut Vec<WorkerEvent>,
    /// What the agent gets.
    write: &'a mut Vec<u8>,
}

impl<'a> Out<'a> {
    pub(super) const fn new(events: &'a mut Vec<WorkerEvent>, write: &'a mut Vec<u8>) -> Self {
        Self { events, write }
    }

    /// Tells the core.
    pub(super) fn push(&mut self, event: WorkerEvent) {
        self.events.push(event);
    }

    /// Tells the core, whatever there is to tell.
    pub(super) fn extend(&mut self, events: impl IntoIterator<Item = WorkerEvent>) {
        self.events.extend(events);
    }

    /// Tells what a person would want to know.
    pub(super) fn note(
        &mut self,
        turn: Option<TurnId>,
        level: Level,
        code: &'static str,
        text: impl Into<String>,
    ) {
        let text = text.into();
        self.push(WorkerEvent::Noted {
            turn,
            level,
            code,
            text,
        });
    }

    /// Tells whoever watches the turn of the mode that its agent has taken.
    pub(super) fn mode_taken(&mut self, turn: TurnId, mode: &str) {
        self.push(WorkerEvent::Other {
            turn,
            kind: "current_mode_update".to_owned(),
            data: json!(mode).to_string(),
        });
    }

    /// Tells which models there are.
    pub(super) fn models(&mut self, number: u64, result: Result<ModelList, Failure>) {
        self.push(WorkerEvent::Models { number, result });
    }

    /// Tells which slash commands there are.
    pub(super) fn commands(&mut self, number: u64, result: Result<CommandList, Failure>) {
        self.push(WorkerEvent::Commands { number, result });
    }

    /// Leaves a line that isn't understood to the log.
    pub(super) fn log(&mut self, bytes: &[u8]) {
        let line = beginning(bytes);
        self.push(WorkerEvent::Logged { line });
    }

    /// Counts a line that is of no turn.
    pub(super) fn stray(&mut self, bytes: &[u8]) {
        let line = beginning(bytes);
        self.push(WorkerEvent::Stray { line });
    }

    /// Writes a line to the agent.
    pub(super) fn put(&mut self, line: &Value) {
        put_line(self.write, line);
    }
}

/// Was the turn cancelled?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Abort {
    No,
    /// Asked for, and not yet written.
    Held,
    Sent,
}

/// How far a turn in flight is.
#[derive(Debug)]
pub(super) struct TurnState {
    pub(super) id: TurnId,
    /// Was its run seen? Before, an abort does nothing, and a steer is refused or kept for a later
    /// turn.
    pub(super) begun: bool,
    pub(super) abort: Abort,
}

impl TurnState {
    pub(super) const fn new(id: TurnId) -> Self {
        Self {
            id,
            begun: false,
            abort: Abort::No,
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.abort != Abort::No
    }
}

/// A turn in flight, with what an adapter has to know of it.
pub(super) trait InFlight {
    fn state(&self) -> &TurnState;

    fn state_mut(&mut self) -> &mut TurnState;
}

/// A turn has its state in a member of that name.
macro_rules! in_flight {
    ($turn:ty) => {
        impl $crate::adapter::driver::InFlight for $turn {
            fn state(&self) -> &TurnState {
                &self.state
            }

            fn state_mut(&mut self) -> &mut TurnState {
                &mut self.state
            }
        }
    };
}

/// A wire has what is the same for every agent in a member of that name.
macro_rules! has_driver {
    () => {
        fn driver(&self) -> &Driver<Self> {
            &self.driver
        }

        fn driver_mut(&mut self) -> &mut Driver<Self> {
            &mut self.driver
        }
    };
}

pub(super) use {has_driver, in_flight};

/// What is the same for every agent.
#[derive(Debug)]
pub(super) struct Driver<W: Wire> {
    /// The prompt that isn't written yet.
    pub(super) waiting: Option<Box<Prompt>>,
    pub(super) turn: Option<W::Turn>,
    pub(super) steers: SteerQueue,
    /// The compaction that is out.
    pub(super) compaction: Option<W::Compaction>,
    /// What wasn't understood, each kind noted once.
    pub(super) unknown: Unknown,
}

impl<W: Wire> Default for Driver<W> {
    fn default() -> Self {
        Self {
            waiting: None,
            turn: None,
            steers: SteerQueue::default(),
            compaction: None,
            unknown: Unknown::default(),
        }
    }
}

impl<W: Wire> Driver<W> {
    /// Of the turn in flight.
    pub(super) fn turn_id(&self) -> Option<TurnId> {
        self.turn.as_ref().map(|turn| turn.state().id)
    }

    /// Is the turn in flight, or does it wait?
    fn has(&self, turn: TurnId) -> bool {
        self.turn_id() == Some(turn) || self.waits(turn)
    }

    fn waits(&self, turn: TurnId) -> bool {
        self.waiting.as_ref().map(|prompt| prompt.turn) == Some(turn)
    }

    fn state(&mut self) -> Option<&mut TurnState> {
        self.turn.as_mut().map(InFlight::state_mut)
    }
}

/// What became of an attempt to begin a turn.
pub(super) enum Begin<T> {
    /// Its prompt is written.
    Begun(T),
    /// Something else has to be answered first.
    NotYet,
    /// It can't begin.
    Failed(Failure),
}

/// What is an agent's own: its lines, and what is written for each command of the core.
pub(super) trait Wire: Send + Sized {
    type Turn: InFlight + Send + std::fmt::Debug;
    type Compaction: Send + std::fmt::Debug;

    /// For sentences.
    const NAME: &'static str;

    fn driver(&self) -> &Driver<Self>;

    fn driver_mut(&mut self) -> &mut Driver<Self>;

    /// The agent said a line.
    fn line(&mut self, bytes: &[u8], out: &mut Out<'_>);

    /// What a line that was too long is taken for.
    fn too_long(&self, beginning: &[u8]) -> Option<Value>;

    /// The process is gone.
    fn gone(&mut self, exit: Exit, tail: &str, out: &mut Out<'_>) {
        let _unused = (exit, tail, out);
    }

    /// Asks whether it is there, and begins the handshake.
    fn probe(&mut self, out: &mut Out<'_>);

    /// What became of a question.
    fn answer(&mut self, question: &str, reply: &Reply, out: &mut Out<'_>);

    /// A new session is wanted in the process, of those that recycle.
    fn recycle(&mut self) {}

    /// Other pins are wanted in the session, of those that switch.
    fn switch(&mut self, pins: &Pins, out: &mut Out<'_>) {
        let _unused = (pins, out);
    }

    /// Is there room for one more prompt?
    fn takes_prompt(&self) -> bool {
        self.driver().waiting.is_none()
    }

    /// May a prompt be written, as far as the agent goes? Writes what else waited for that.
    fn is_free(&mut self, out: &mut Out<'_>) -> bool {
        let _unused = out;
        true
    }

    /// Writes a prompt.
    fn begin(&mut self, prompt: &Prompt, out: &mut Out<'_>) -> Begin<Self::Turn>;

    /// A prompt that was not written is cancelled; its turn's end comes next.
    fn withdrawn(&mut self, out: &mut Out<'_>) {
        self.driver_mut().steers.close_all(out);
    }

    /// The turn in flight is cancelled for the first time; its abort is not written yet.
    fn cancelled(&mut self, out: &mut Out<'_>) {
        let _unused = out;
    }

    /// Writes the abort of the turn in flight.
    fn put_abort(&mut self, out: &mut Out<'_>);

    /// Can this turn still get a steer?
    fn takes_steer(&self, turn: TurnId) -> bool {
        self.driver().has(turn)
    }

    /// Writes a steer to the turn in flight; returns what it is called on the wire.
    fn put_steer(&mut self, steer: u64, text: &str, out: &mut Out<'_>) -> Result<String, Failure> {
        let _unused = (steer, text, out);
        let why = format!("{} takes no steers in a turn", Self::NAME);
        Err(Failure::new(Code::Unsupported, why))
    }

    /// Tells which models there are, or asks the agent; `pins` is what a turn has that names none.
    fn put_models(&mut self, number: u64, pins: &Pins, out: &mut Out<'_>);

    /// Tells which slash commands there are, or asks the agent.
    fn put_commands(&mut self, number: u64, out: &mut Out<'_>) {
        let why = format!("{} lists no commands", Self::NAME);
        out.commands(number, Err(Failure::new(Code::Unsupported, why)));
    }

    /// Is the agent about something between turns, so that no compaction can begin?
    fn is_busy(&self) -> bool {
        false
    }

    /// Asks the agent to shorten its session.
    fn put_compact(
        &mut self,
        instructions: Option<&str>,
        out: &mut Out<'_>,
    ) -> Result<Self::Compaction, Failure> {
        let _unused = (instructions, out);
        let why = format!("{} compacts nothing when it is asked", Self::NAME);
        Err(Failure::new(Code::Unsupported, why))
    }
}

impl<W: Wire> Adapter for W {
    fn decode(&mut self, bytes: &[u8], events: &mut Vec<WorkerEvent>, write: &mut Vec<u8>) {
        let out = &mut Out::new(events, write);
        self.line(bytes, out);
        catch_up(self, out);
    }

    fn encode(
        &mut self,
        command: &WorkerCommand,
        events: &mut Vec<WorkerEvent>,
        write: &mut Vec<u8>,
    ) {
        let out = &mut Out::new(events, write);
        match command {
            WorkerCommand::Probe => self.probe(out),
            WorkerCommand::Prompt(prompt) => take(self, prompt, out),
            WorkerCommand::Cancel { turn } => cancel(self, *turn, out),
            WorkerCommand::Recycle => self.recycle(),
            WorkerCommand::Switch(pins) => self.switch(pins, out),
            WorkerCommand::Answer { question, reply } => self.answer(question, reply, out),
            WorkerCommand::Steer { turn, steer, text } => {
                if self.takes_steer(*turn) {
                    self.driver_mut().steers.hold(*steer, text);
                } else {
                    out.push(SteerQueue::too_late(*steer));
                }
            }
            WorkerCommand::Models { number, pins } => self.put_models(*number, pins, out),
            WorkerCommand::Commands { number } => self.put_commands(*number, out),
            WorkerCommand::Compact { instructions, .. } => {
                compact(self, instructions.as_deref(), out);
            }
        }
        catch_up(self, out);
    }

    fn instead_of(&self, beginning: &[u8]) -> Option<Value> {
        self.too_long(beginning)
    }

    fn exited(&mut self, exit: Exit, tail: &str, events: &mut Vec<WorkerEvent>) {
        let mut nobody_reads_it = Vec::new();
        self.gone(exit, tail, &mut Out::new(events, &mut nobody_reads_it));
    }
}

fn take<W: Wire>(wire: &mut W, prompt: &Prompt, out: &mut Out<'_>) {
    if !wire.takes_prompt() {
        let why = format!("a second prompt was given to {}, which has one", W::NAME);
        let failure = Failure::new(Code::Internal, why);
        return out.push(ended(prompt.turn, Outcome::failed(failure)));
    }
    let driver = wire.driver_mut();
    out.extend(driver.unknown.begins(prompt.turn));
    driver.waiting = Some(Box::new(prompt.clone()));
}

fn cancel<W: Wire>(wire: &mut W, turn: TurnId, out: &mut Out<'_>) {
    let driver = wire.driver_mut();
    if driver.waits(turn) {
        driver.waiting = None;
        // It was never written, so the agent will never tell its end.
        wire.withdrawn(out);
        out.push(ended(turn, Outcome::ended(Stop::Cancelled)));
    }
    let state = wire.driver_mut().state();
    if let Some(state) = state.filter(|state| state.id == turn && !state.is_cancelled()) {
        state.abort = Abort::Held;
        wire.cancelled(out);
    }
}

fn compact<W: Wire>(wire: &mut W, instructions: Option<&str>, out: &mut Out<'_>) {
    let driver = wire.driver();
    let turns = driver.turn.is_some() || driver.waiting.is_some();
    let asked = if turns || driver.compaction.is_some() || wire.is_busy() {
        let why = format!("{} is busy", W::NAME);
        Err(Failure::new(Code::SessionBusy, why))
    } else {
        wire.put_compact(instructions, out)
    };
    match asked {
        Ok(compaction) => wire.driver_mut().compaction = Some(compaction),
        Err(failure) => out.push(WorkerEvent::Compacted {
            result: Err(failure),
        }),
    }
}

/// Writes what had to wait, as far as it may be written now.
fn catch_up<W: Wire>(wire: &mut W, out: &mut Out<'_>) {
    // The abort first: a run that is cancelled gets no more steers.
    if let Some(state) = wire.driver_mut().state()
        && state.begun
        && state.abort == Abort::Held
    {
        state.abort = Abort::Sent;
        wire.put_abort(out);
    }
    let takes_steers = |state: &mut TurnState| state.begun && !state.is_cancelled();
    if wire.driver_mut().state().is_some_and(takes_steers) {
        while let Some((steer, text)) = wire.driver_mut().steers.next_held() {
            let written = wire.put_steer(steer, &text, out);
            wire.driver_mut().steers.written(written, out);
        }
    }
    if wire.driver().turn.is_some() || !wire.is_free(out) {
        return;
    }
    let Some(prompt) = wire.driver_mut().waiting.take() else {
        return;
    };
    match wire.begin(&prompt, out) {
        Begin::Begun(turn) => wire.driver_mut().turn = Some(turn),
        // Back to where a cancel finds it.
        Begin::NotYet => wire.driver_mut().waiting = Some(prompt),
        Begin::Failed(failure) => {
            out.push(ended(prompt.turn, Outcome::failed(failure)));
        }
    }
}

#[cfg(test)]
mod tests;
