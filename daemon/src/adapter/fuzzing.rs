//! What has to hold of every translator, whatever its agent says.
//!
//! Owns the rules that `tests/fuzz` and the corpus are held to, and how bytes become a conversation.
//! Must not be part of the product: it is built for tests and for the fuzzer only.
//!
//! A line that begins with `!` and a letter is a command of the core; it counts only when the core
//! would give it then. One with `~` is the beginning of a line that was too long. All else was said by the
//! agent; in it, `"@prompt"` stands for the id of the last request of that name, and `"@prompt.1"`
//! for that of the first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agentd_core::agent::{Capabilities, Consent};
use agentd_core::effect::Spawn;
use agentd_core::ids::TurnId;
use agentd_core::store::Pins;
use agentd_core::worker::{
    Exit, ModePin, Outcome, Prompt, QuestionKind, Reply, WorkerCommand, WorkerEvent,
};
use agentd_protocol::limits::MAX_TEXT;
use serde_json::Value;
use serde_json::value::RawValue;

use super::commands::MOST as MOST_COMMANDS;
use super::exec::Output;
use super::testing::{self, spawn};
use super::{Adapter, Kind, MOST_MODELS};

/// Longest line for a log: 4 KiB of bytes, each of which may be none of UTF-8.
const LOGGED: usize = 3 * 4 * 1024;
/// Turns at once in a process that takes many.
const AT_ONCE: usize = 4;
/// So much may be told for each byte that was said: some texts are told as pieces and as a whole.
const TOLD_PER_BYTE: usize = 16;
/// … and so much for each line and each command, as sentences of our own.
const TOLD_PER_LINE: usize = 4 * 1024;
/// Events for each line, in the mean.
const EVENTS_PER_LINE: usize = 16;

/// A conversation with an agent of a kind that speaks in lines.
pub fn lines(kind: Kind, bytes: &[u8]) {
    let _turns_that_ended = talked(kind, bytes);
}

/// The same; how many turns ended.
fn talked(kind: Kind, bytes: &[u8]) -> usize {
    let mut talk = Talk::new(kind);
    talk.tell(&WorkerCommand::Probe);
    for line in bytes.split(|byte| *byte == b'\n') {
        match line {
            [b'!', letter, rest @ ..] => talk.command(*letter, rest),
            [b'~', beginning @ ..] => {
                if let Some(instead) = talk.adapter.instead_of(beginning) {
                    talk.hear(instead.to_string().as_bytes());
                }
            }
            line if line.iter().all(u8::is_ascii_whitespace) => {}
            line => {
                let line = talk.with_ids(line);
                talk.hear(&line);
            }
        }
    }
    talk.exit()
}

/// The output of a command, in pieces. The first two bytes say how it ends and how it is cut.
pub fn output(output: Output, bytes: &[u8]) {
    let [code, piece, bytes @ ..] = bytes else {
        return;
    };
    let exit = Exit::Code(i32::from(*code % 3));
    let whole = printed(output, exit, bytes, bytes.len().max(1));
    for size in [1, usize::from(*piece).max(1)] {
        assert_eq!(
            printed(output, exit, bytes, size),
            whole,
            "pieces of {size}"
        );
    }
    if output == Output::Text && bytes.len() < MAX_TEXT / 3 {
        let all = String::from_utf8_lossy(bytes);
        assert_eq!(whole.0, all.strip_suffix('\n').unwrap_or(&all));
    }
    assert!(whole.0.len() <= bytes.len() * 3 + TOLD_PER_LINE);
}

fn printed(output: Output, exit: Exit, bytes: &[u8], piece: usize) -> (String, Option<Outcome>) {
    let spawn = Spawn {
        prompt: Some(Box::new(prompt(1, &[]))),
        ..spawn()
    };
    let mut adapter = Kind::Exec.adapter_of(output, &spawn);
    let (mut events, mut write) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        adapter.decode(piece, &mut events, &mut write);
    }
    adapter.exited(exit, "the end of standard error", &mut events);
    assert!(
        write.is_empty(),
        "a command without input was told something"
    );
    let (mut text, mut end) = (String::new(), None);
    for event in events {
        assert_eq!(end, None, "{event:?} behind the end");
        match event {
            WorkerEvent::Text { text: more, .. } => text.push_str(&more),
            WorkerEvent::Ended { outcome, .. } => end = Some(*outcome),
            WorkerEvent::Skipped { .. } => {}
            other => panic!("{other:?} of a command's output"),
        }
    }
    let Some(outcome) = &end else {
        panic!("a process ended, and its turn didn't");
    };
    check_outcome(outcome);
    (text, end)
}

/// A turn; `pins` are its provider, its model, its thinking level and its mode, apart by
/// spaces.
fn prompt(turn: u64, pins: &[u8]) -> Prompt {
    let pins = String::from_utf8_lossy(pins);
    let mut pins = pins.split_ascii_whitespace().map(str::to_owned);
    let mut pin = || pins.next().filter(|pin| pin != "-");
    Prompt {
        provider: pin(),
        model: pin(),
        thinking: pin(),
        mode: pin().map(|id| ModePin {
            id,
            consent: Consent::Asked,
        }),
        ..testing::turn(turn, "hello")
    }
}

/// A translator, and what the core knows of its process.
struct Talk {
    adapter: Box<dyn Adapter>,
    can: Capabilities,
    at_once: usize,
    /// Prompted and not ended.
    turns: VecDeque<TurnId>,
    cancelled: BTreeSet<TurnId>,
    told_turns: u64,
    steers: BTreeSet<u64>,
    told_steers: u64,
    questions: VecDeque<(String, QuestionKind, Option<String>)>,
    compacting: bool,
    recycling: bool,
    switching: bool,
    /// Ids of requests, as JSON, by their names, and by their names and numbers.
    ids: BTreeMap<String, String>,
    counts: BTreeMap<String, usize>,
    heard: usize,
    lines: usize,
    events: usize,
    ended: usize,
    told: usize,
}

impl Talk {
    fn new(kind: Kind) -> Self {
        Self {
            adapter: kind.adapter(&spawn()),
            can: kind.describe(&[]),
            at_once: if kind == Kind::Jsonl { AT_ONCE } else { 1 },
            turns: VecDeque::new(),
            cancelled: BTreeSet::new(),
            told_turns: 0,
            steers: BTreeSet::new(),
            told_steers: 0,
            questions: VecDeque::new(),
            compacting: false,
            recycling: false,
            switching: false,
            ids: BTreeMap::new(),
            counts: BTreeMap::new(),
            heard: 0,
            lines: 0,
            events: 0,
            ended: 0,
            told: 0,
        }
    }

    fn is_between(&self) -> bool {
        self.turns.is_empty() && !self.compacting && !self.recycling && !self.switching
    }

    /// A command of the core, if it would give it now.
    fn command(&mut self, letter: u8, rest: &[u8]) {
        let command = match letter {
            b'p' => WorkerCommand::Probe,
            b't' if self.turns.len() < self.at_once && !self.recycling && !self.switching => {
                self.told_turns += 1;
                self.turns.push_back(TurnId(self.told_turns));
                WorkerCommand::Prompt(Box::new(prompt(self.told_turns, rest)))
            }
            b'c' => {
                let open = self
                    .turns
                    .iter()
                    .find(|turn| !self.cancelled.contains(turn));
                let Some(turn) = open.copied() else { return };
                self.cancelled.insert(turn);
                WorkerCommand::Cancel { turn }
            }
            b's' if self.can.steers || self.at_once > 1 => {
                let Some(turn) = self.turns.front().copied() else {
                    return;
                };
                self.told_steers += 1;
                let (steer, text) = (self.told_steers, "go left".to_owned());
                self.steers.insert(steer);
                WorkerCommand::Steer { turn, steer, text }
            }
            b'k' if (self.can.compacts || self.at_once > 1) && self.is_between() => {
                self.compacting = true;
                let (session, instructions) = ("main".to_owned(), None);
                WorkerCommand::Compact {
                    session,
                    instructions,
                }
            }
            b'l' => {
                let pins = Box::default();
                WorkerCommand::Models { number: 1, pins }
            }
            b'm' => WorkerCommand::Commands { number: 2 },
            b'r' if self.can.recycles && self.is_between() => {
                self.recycling = true;
                WorkerCommand::Recycle
            }
            b'w' if self.can.switches && self.is_between() => {
                self.switching = true;
                let Prompt {
                    provider,
                    model,
                    thinking,
                    mode,
                    ..
                } = prompt(0, rest);
                WorkerCommand::Switch(Box::new(Pins {
                    provider,
                    model,
                    thinking,
                    mode: mode.map(|mode| mode.id),
                }))
            }
            b'y' | b'n' | b'x' => match self.answer(letter) {
                Some(answer) => answer,
                None => return,
            },
            _ => return,
        };
        self.tell(&command);
    }

    fn answer(&mut self, letter: u8) -> Option<WorkerCommand> {
        let (question, kind, option) = self.questions.pop_front()?;
        let reply = match (letter, kind, option) {
            (b'y', QuestionKind::Approval, _) => Reply::Approved,
            (_, QuestionKind::Approval, _) => Reply::Denied,
            (b'y', QuestionKind::Choice, Some(option)) => Reply::Chosen(option),
            (b'y', QuestionKind::Text | QuestionKind::Secret, _) => {
                Reply::Text(serde_json::from_value("an answer".into()).ok()?)
            }
            _ => Reply::Cancelled,
        };
        Some(WorkerCommand::Answer { question, reply })
    }

    /// What was said, with the ids of requests where it names them.
    fn with_ids(&self, line: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(line.len());
        let mut rest = line;
        while let Some(at) = rest.windows(2).position(|two| two == b"\"@") {
            let (before, from) = rest.split_at(at);
            out.extend_from_slice(before);
            let end = from[2..].iter().position(|byte| *byte == b'"');
            let name = end.and_then(|end| std::str::from_utf8(&from[2..2 + end]).ok());
            match name.and_then(|name| Some((name, self.ids.get(name)?))) {
                Some((name, id)) => {
                    out.extend_from_slice(id.as_bytes());
                    rest = &from[name.len() + 3..];
                }
                None => {
                    out.extend_from_slice(b"\"@");
                    rest = &from[2..];
                }
            }
        }
        out.extend_from_slice(rest);
        out
    }

    fn tell(&mut self, command: &WorkerCommand) {
        let (mut events, mut write) = (Vec::new(), Vec::new());
        self.adapter.encode(command, &mut events, &mut write);
        self.happened(events, &write);
    }

    fn hear(&mut self, line: &[u8]) {
        self.heard += line.len();
        let (mut events, mut write) = (Vec::new(), Vec::new());
        self.adapter.decode(line, &mut events, &mut write);
        self.happened(events, &write);
    }

    fn exit(mut self) -> usize {
        let mut events = Vec::new();
        let tail = "No conversation found";
        self.adapter.exited(Exit::Code(1), tail, &mut events);
        self.happened(events, &[]);
        self.ended
    }

    fn happened(&mut self, events: Vec<WorkerEvent>, write: &[u8]) {
        self.lines += 1;
        self.wrote(write);
        self.events += events.len();
        for event in events {
            // The models that are offered come again with each answer to a probe.
            if !matches!(event, WorkerEvent::Ready(_)) {
                self.told += format!("{event:?}").len();
            }
            self.event(event);
        }
        let most = EVENTS_PER_LINE * (self.lines + 4);
        assert!(
            self.events <= most,
            "{} events of {} lines",
            self.events,
            self.lines
        );
        let most = TOLD_PER_BYTE * self.heard + TOLD_PER_LINE * (self.lines + 4);
        assert!(
            self.told <= most,
            "{} bytes told of {} heard",
            self.told,
            self.heard
        );
    }

    /// What is written is whole lines, each an object; requests are known by their ids.
    fn wrote(&mut self, write: &[u8]) {
        assert!(
            write.is_empty() || write.ends_with(b"\n"),
            "half a line was written"
        );
        for line in write
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let line: Value = match serde_json::from_slice(line) {
                Ok(line) => line,
                Err(error) => panic!("{error}: {}", String::from_utf8_lossy(line)),
            };
            assert!(line.is_object(), "{line} is no object");
            let names = [&line["request"]["subtype"], &line["method"], &line["type"]];
            let ids = [&line["id"], &line["request_id"], &line["uuid"]];
            let name = names.into_iter().find_map(Value::as_str);
            let id = ids.into_iter().find(|id| !id.is_null());
            if let (Some(name), Some(id)) = (name, id) {
                let count = self.counts.entry(name.to_owned()).or_default();
                *count += 1;
                self.ids.insert(format!("{name}.{count}"), id.to_string());
                self.ids.insert(name.to_owned(), id.to_string());
            }
        }
    }

    fn event(&mut self, event: WorkerEvent) {
        use WorkerEvent as Said;
        match event {
            Said::MessageStarted { turn, .. }
            | Said::Text { turn, .. }
            | Said::Thinking { turn, .. }
            | Said::ToolUpdated { turn, .. }
            | Said::ToolEnded { turn, .. }
            | Said::SessionOfTurn { turn, .. }
            | Said::Skipped { turn, .. } => self.runs(turn),
            Said::Noted { turn, .. } => {
                let _of_the_process = turn.map(|turn| self.runs(turn));
            }
            Said::ToolStarted { turn, input, .. } => {
                self.runs(turn);
                check_json(&input);
            }
            Said::Other { turn, data, .. } => {
                self.runs(turn);
                check_json(&data);
            }
            Said::Asked { turn, asking } => {
                let _of_the_process = turn.map(|turn| self.runs(turn));
                let option = asking.options.into_iter().next();
                self.questions
                    .push_back((asking.question, asking.kind, option));
            }
            Said::Withdrew { question } => self.questions.retain(|(open, ..)| *open != question),
            Said::Steered { steer, .. } => {
                assert!(
                    self.steers.remove(&steer),
                    "steer {steer} has two answers, or none was told"
                );
            }
            Said::Compacted { .. } => {
                assert!(std::mem::take(&mut self.compacting), "compacted unasked");
            }
            Said::Switched(_) => assert!(std::mem::take(&mut self.switching), "switched unasked"),
            Said::Recycled => assert!(std::mem::take(&mut self.recycling), "recycled unasked"),
            Said::Ended { turn, outcome } => {
                self.runs(turn);
                self.turns.retain(|running| *running != turn);
                self.ended += 1;
                check_outcome(&outcome);
            }
            Said::Stray { line } | Said::Logged { line } => {
                assert!(line.len() <= LOGGED, "{} bytes for a log", line.len());
            }
            Said::Models { result, .. } => {
                if let Ok(list) = result {
                    assert!(
                        list.rows.len() <= MOST_MODELS + 1,
                        "{} models",
                        list.rows.len()
                    );
                }
            }
            Said::Commands { result, .. } => {
                let rows = result.map_or_else(|_| Vec::new(), |list| list.rows);
                assert!(rows.len() <= MOST_COMMANDS, "{} commands", rows.len());
            }
            Said::Ready(traits) => assert!(traits.concurrent_sends != Some(0)),
            Said::ModeChanged { .. } | Said::SessionNamed { .. } | Said::Spoilt { .. } => {}
        }
    }

    fn runs(&self, turn: TurnId) {
        assert!(
            self.turns.contains(&turn),
            "{turn:?} has ended, or never began"
        );
    }
}

fn check_json(text: &str) {
    if let Err(error) = serde_json::from_str::<&RawValue>(text) {
        panic!("{error}: {text}");
    }
}

/// What counts of a turn can be written down.
fn check_outcome(outcome: &Outcome) {
    if let Some(usd) = outcome.cost.usd {
        assert!(usd.is_finite() && usd >= 0.0, "a cost of {usd}");
    }
    for call in outcome.api_calls.iter().flatten() {
        check_json(call);
        assert!(call.starts_with('{'), "{call}");
    }
    if let Err(failure) = &outcome.result {
        assert!(!failure.error.is_empty(), "a failure without a word");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;

    #[test]
    fn fuzzing_corpus_of_every_adapter_holds() {
        for kind in Kind::ALL.iter().filter(|kind| **kind != Kind::Exec) {
            let mut ended = 0;
            replay(kind.name(), |bytes| ended += talked(*kind, bytes));
            // What was recorded says something to this version.
            assert!(ended >= 2, "{ended} turns of {} ended", kind.name());
        }
        replay("exec", |bytes| output(Output::Text, bytes));
        replay("openclaw", |bytes| output(Output::Openclaw, bytes));
    }
}
