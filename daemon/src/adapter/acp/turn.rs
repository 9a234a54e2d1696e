//! One turn of an agent: its messages, its tool calls, what it cost.
//!
//! Owns where a message begins, when a call has begun, and what of its output is new. Must not know
//! when a turn is over.

use std::collections::BTreeMap;

use agentd_core::ids::TurnId;
use agentd_core::worker::{ContextUse, Json, ToolAbout, WorkerEvent};
use agentd_protocol::line::{Cost, CostStatus, FileChange, ToolLocation};
use serde_json::{Value, json};

use super::content;
use crate::adapter::cut;
use crate::adapter::driver::{Out, TurnState, in_flight};
use crate::adapter::object::Object;

/// Tool calls that are followed at once.
const OPEN_CALLS: usize = 64;
/// Input and output of one call that is kept: what is longer is told with its end only.
const FOLLOWED: usize = 64 * 1024;
/// Ends output that came in pieces and is longer.
const CUT_OFF: &str = "\n[the rest was not kept]";
/// Where the output of a terminal that the agent's client would show comes in pieces: codex-acp has
/// the first, other adapters the second, as Zed reads it.
const TERMINAL: &[&str] = &["terminal_output_delta", "terminal_output"];
/// Longest id, name or title of a call, in characters.
pub(super) const NAME: usize = 1024;

/// The turn in flight.
#[derive(Debug)]
pub(in crate::adapter) struct Turn {
    /// It begins with its prompt: a cancel needs no run.
    pub(super) state: TurnState,
    /// The id of its `session/prompt`.
    pub(super) id: u64,
    /// Was its cancel written again, as the agent went on all the same? It may not have begun its
    /// turn when the first one came.
    pub(super) repeated: bool,
    /// Is a message open?
    message: bool,
    /// The agent's id of it, where it gives one.
    message_id: Option<String>,
    calls: BTreeMap<String, FollowedCall>,
    /// Was there ever no room for a call? Then one that isn't among them may have begun already.
    full: bool,
    /// What the session cost before, and costs now.
    spent: (Option<f64>, Option<f64>),
    /// What was said of the session's context in this turn.
    pub(super) context: ContextUse,
}

/// A tool call that has not ended.
#[derive(Debug, Default)]
struct FollowedCall {
    started: bool,
    title: Option<String>,
    kind: Option<String>,
    input: Option<Json>,
    output: String,
    locations: Vec<ToolLocation>,
    /// Told with its end.
    diff: Vec<FileChange>,
}

/// What a record says of a tool call.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) call: Option<String>,
    pub(super) title: Option<String>,
    kind: Option<String>,
    status: Option<String>,
    pub(super) input: Option<Json>,
    /// Its output as text, where it is told.
    pub(super) output: Option<String>,
    /// What is new of it, from agents that show a terminal of their own in their client.
    piece: Option<String>,
    locations: Option<Vec<ToolLocation>>,
    diff: Vec<FileChange>,
}

/// Reads a tool call, an update of one, or the one a permission is asked for.
pub(super) fn seen(record: &Object<'_>) -> Seen {
    let short = |name| -> Option<String> {
        let text: String = record.string(name)?.chars().take(NAME).collect();
        (!text.is_empty()).then_some(text)
    };
    // Most agents fill the content; some only the raw form.
    let raw = || {
        if let Some(text) = record.string("rawOutput") {
            return Some(text);
        }
        let object = record.object("rawOutput");
        let known = ["output", "error"];
        let inner = object.and_then(|object| known.iter().find_map(|name| object.string(name)));
        inner.or_else(|| record.raw("rawOutput").map(str::to_owned))
    };
    let shown = content::outputs(record);
    let meta = record.object("_meta");
    let terminal = |name: &&str| meta.as_ref()?.object(name)?.string("data");
    Seen {
        call: short("toolCallId"),
        title: short("title"),
        kind: short("kind"),
        status: short("status"),
        input: record.raw("rawInput").map(str::to_owned),
        output: shown.filter(|text| !text.is_empty()).or_else(raw),
        piece: TERMINAL.iter().find_map(terminal),
        locations: record.raw("locations").map(|_| content::locations(record)),
        diff: content::changes(record),
    }
}

impl Seen {
    /// Has the call ended?
    pub(super) fn is_over(&self) -> bool {
        self.ended().is_some()
    }

    fn ended(&self) -> Option<bool> {
        match self.status.as_deref() {
            Some("completed") => Some(true),
            Some("failed") => Some(false),
            _ => None,
        }
    }
}

impl FollowedCall {
    /// Takes over what is said. A call that does not begin with it holds its input for later, if
    /// that is short.
    fn learn(&mut self, seen: &Seen, held: bool) {
        self.title = seen.title.clone().or_else(|| self.title.take());
        self.kind = seen.kind.clone().or_else(|| self.kind.take());
        if let Some(locations) = seen.locations.as_ref().filter(|_| !self.started) {
            self.locations.clone_from(locations);
        }
        if !seen.diff.is_empty() {
            self.diff.clone_from(&seen.diff);
        }
        let kept = |input: &&String| !self.started && (!held || input.len() <= FOLLOWED);
        if let Some(input) = seen.input.as_ref().filter(kept) {
            self.input = Some(input.clone());
        }
    }

    /// ACP has no names of tools: its kind is the same with every agent, the title is prose.
    fn name(&self) -> String {
        let kind = self.kind.as_deref().filter(|kind| *kind != "other");
        let name = kind.or(self.title.as_deref());
        name.unwrap_or("tool").to_owned()
    }

    fn start(&mut self, turn: TurnId, call: &str) -> WorkerEvent {
        self.started = true;
        // Not every agent tells the input. The title then says what is done.
        let told = self.input.take().filter(|input| input != "{}");
        let input = told.unwrap_or_else(|| json!({"title": self.title}).to_string());
        let kind = self.kind.clone().map(Value::String);
        WorkerEvent::ToolStarted {
            turn,
            call: call.to_owned(),
            name: self.name(),
            input,
            about: ToolAbout {
                kind: kind
                    .and_then(|kind| serde_json::from_value(kind).ok())
                    .unwrap_or_default(),
                locations: std::mem::take(&mut self.locations),
                diff: Vec::new(),
            },
            read_only: matches!(self.kind.as_deref(), Some("read" | "search" | "think")),
        }
    }

    /// The output so far with a piece of it; of what is longer than is kept, the beginning.
    fn with(&self, piece: &str) -> String {
        if self.output.ends_with(CUT_OFF) {
            return self.output.clone();
        }
        let whole = format!("{}{piece}", self.output);
        match whole.len() <= FOLLOWED {
            true => whole,
            false => format!("{}{CUT_OFF}", cut(&whole, FOLLOWED - CUT_OFF.len())),
        }
    }

    /// The new piece of output, which comes whole each time, and where it begins. One that doesn't
    /// continue what was told is left to the call's end.
    fn more(&mut self, output: &str) -> Option<(u64, String)> {
        let piece = output.strip_prefix(self.output.as_str())?;
        if piece.is_empty() || output.len() > FOLLOWED {
            return None;
        }
        let told = (self.output.len() as u64, piece.to_owned());
        output.clone_into(&mut self.output);
        Some(told)
    }
}

in_flight!(Turn);

impl Turn {
    pub(super) const fn new(turn: TurnId, id: u64, spent: Option<f64>) -> Self {
        Self {
            state: TurnState {
                begun: true,
                ..TurnState::new(turn)
            },
            id,
            repeated: false,
            message: false,
            message_id: None,
            calls: BTreeMap::new(),
            full: false,
            spent: (spent, spent),
            context: ContextUse {
                tokens: None,
                window: None,
            },
        }
    }

    /// A piece of a message or a thought: does a new message begin with it? Agents that name none
    /// begin one after a tool; one that has the name of the last message goes on with it.
    pub(super) fn begins(&mut self, id: Option<String>, out: &mut Out<'_>) {
        let id = id.filter(|id| id.len() <= NAME);
        let both = id.is_some() && self.message_id.is_some();
        let (other, same) = (both && id != self.message_id, both && id == self.message_id);
        if other || (!self.message && !same) {
            self.message_id = None;
            out.push(WorkerEvent::MessageStarted {
                turn: self.state.id,
                replaces_last: false,
            });
        }
        self.message = true;
        self.message_id = id.or_else(|| self.message_id.take());
    }

    /// What is said of a call. One that begins as pending has no input yet, or waits for a
    /// permission. One that there is no room for begins where it is announced.
    pub(super) fn called(&mut self, seen: &Seen, announced: bool, out: &mut Out<'_>) {
        self.message = false;
        let turn = self.state.id;
        let name = seen.call.clone().unwrap_or_default();
        let known = self.calls.contains_key(&name);
        let room = self.calls.len() < OPEN_CALLS;
        // From here on a call that isn't followed may be one that has begun: it must not begin
        // twice.
        self.full |= !known && !room;
        let followed = known || (room && (announced || !self.full));
        let mut spare = FollowedCall::default();
        let call = match followed {
            true => self.calls.entry(name.clone()).or_default(),
            false => &mut spare,
        };
        let waits = seen.status.as_deref() == Some("pending");
        call.learn(seen, waits);
        let begins = if followed { !waits } else { announced };
        if !call.started && begins {
            out.push(call.start(turn, &name));
        }
        let pieced = || seen.piece.as_ref().map(|piece| call.with(piece));
        let output = seen.output.clone().or_else(pieced);
        let Some(ok) = seen.ended() else {
            let more = output.as_deref().filter(|_| call.started);
            if let Some((offset, output)) = more.and_then(|output| call.more(output)) {
                out.push(WorkerEvent::ToolUpdated {
                    turn,
                    call: name,
                    offset,
                    output,
                });
            }
            return;
        };
        let before = std::mem::take(&mut call.output);
        let diff = std::mem::take(&mut call.diff);
        self.calls.remove(&name);
        out.push(WorkerEvent::ToolEnded {
            turn,
            call: name,
            ok,
            output: output.unwrap_or(before),
            sandbox: None,
            diff: if ok { diff } else { Vec::new() },
        });
    }

    /// What an earlier record said that a call would do, while it hasn't begun.
    pub(super) fn input_of(&self, call: &str) -> Option<&Json> {
        self.calls.get(call)?.input.as_ref()
    }

    /// A permission is asked for a call. Gemini tells of it nowhere else before it ends; Hermes asks
    /// for one that has another name, and is told already.
    pub(super) fn asked_about(&mut self, call: &str, about: &Seen) {
        let known = self.calls.contains_key(call);
        let runs = self.calls.values().any(|call| call.started);
        if known || (!runs && self.calls.len() < OPEN_CALLS) {
            self.calls
                .entry(call.to_owned())
                .or_default()
                .learn(about, true);
        }
    }

    /// A call may run: now it begins.
    pub(super) fn allowed(&mut self, name: &str, out: &mut Out<'_>) {
        if let Some(call) = self.calls.get_mut(name).filter(|call| !call.started) {
            self.message = false;
            out.push(call.start(self.state.id, name));
        }
    }

    /// What the whole session costs by now.
    pub(super) const fn costs(&mut self, spent: f64) {
        self.spent.1 = Some(spent);
    }

    pub(super) fn cost(&self, agent: Option<&str>) -> Cost {
        match self.spent {
            // Nothing was said of it, ever or in this turn.
            (Some(before), Some(now)) if now > before => Cost {
                usd: Some(now - before),
                // Whoever speaks this protocol reckons it from prices of its own.
                status: CostStatus::Estimated,
                source: agent.map(str::to_owned),
            },
            _ => Cost::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let call = |call: &FollowedCall| {
            let diff = call.diff.iter().map(FileChange::bytes).sum::<usize>();
            diff + call.output.len() + call.input.as_ref().map_or(0, String::len)
        };
        self.calls.values().map(call).sum()
    }
}
