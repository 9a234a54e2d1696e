//! The calls of one reply: which run, at the same time or one by one, and what the model hears.
//!
//! Owns their order, their lines, and that each has exactly one result. Must not know any tool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::{Ending, Turn, TurnContext};
use crate::failover::policy::Effects;
use crate::line::Line;
use crate::message::{CallArguments, Message, ToolCall, ToolResult};
use crate::model::{Boxed, ToolSpec};
use crate::session::compaction::beginning;
use crate::session::history::UNKNOWN;
use crate::tool::{Surroundings, Tool, ToolOutcome};

/// Calls that run at the same time, when they change nothing.
const AT_ONCE: usize = 8;
/// Pieces of a tool's output that wait for a slow reader; beyond, they are dropped.
const PROGRESS: usize = 64;
/// How long a tool may take to end when it is told to: whoever told us waits 5 s.
pub(crate) const GRACE: Duration = Duration::from_secs(4);
/// Bytes of malformed arguments that are shown.
const MOST_SHOWN: usize = 2_000;

/// The tools of a turn.
#[derive(Clone)]
pub(crate) struct Toolbox {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    specs: Arc<[ToolSpec]>,
    bytes: usize,
}

impl Toolbox {
    /// These tools; of two with one name the first counts.
    pub(crate) fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        let mut specs = Vec::new();
        let mut named = BTreeMap::new();
        for tool in tools {
            let spec = tool.spec();
            if !named.contains_key(&spec.name) {
                named.insert(spec.name.clone(), tool);
                specs.push(spec);
            }
        }
        let bytes = specs
            .iter()
            .map(|spec| spec.name.len() + spec.description.len() + spec.schema.to_string().len());
        Self {
            bytes: bytes.sum(),
            tools: named,
            specs: specs.into(),
        }
    }

    pub(crate) fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    /// About what they take of a request.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_read_only(&self, call: &ToolCall) -> bool {
        let tool = self.tools.get(&call.name);
        // One that isn't there changes nothing.
        tool.is_none_or(|tool| tool.is_read_only())
    }

    /// What is to be run, or why nothing is.
    fn find<'a>(&'a self, call: &'a ToolCall) -> Result<Ready<'a>, ToolOutcome> {
        let Some(tool) = self.tools.get(&call.name) else {
            let known: Vec<&str> = self.tools.keys().map(String::as_str).collect();
            return Err(ToolOutcome::failed(format!(
                "there is no tool `{}`, and nothing was run; there are: {}",
                beginning(&call.name, 64),
                known.join(", ")
            )));
        };
        match &call.arguments {
            CallArguments::Object(arguments) => Ok(Ready { tool, arguments }),
            CallArguments::Malformed(text) => Err(ToolOutcome::failed(format!(
                "the arguments are not a JSON object, and nothing was run; found: {}; make the whole call again",
                beginning(text, MOST_SHOWN)
            ))),
        }
    }
}

/// A call that can run.
struct Ready<'a> {
    tool: &'a Arc<dyn Tool>,
    arguments: &'a Map<String, Value>,
}

/// A call with the id that its lines have.
struct Numbered<'a> {
    call: &'a ToolCall,
    id: String,
}

impl Turn<'_> {
    /// Runs the calls of a reply, those that change nothing at the same time; each result is kept
    /// as soon as it is there.
    pub(super) async fn use_tools(&mut self, calls: &[ToolCall]) -> Result<(), Ending> {
        let numbered: Vec<Numbered<'_>> = calls
            .iter()
            .map(|call| Numbered {
                call,
                id: self.unique(&call.id),
            })
            .collect();
        let toolbox = self.context.tools;
        let mut rest = numbered.as_slice();
        while let Some(first) = rest.first() {
            let together = if toolbox.is_read_only(first.call) {
                let all = rest.iter();
                all.take_while(|one| toolbox.is_read_only(one.call)).count()
            } else {
                // From here on, whatever it does: that it failed doesn't say that it did nothing.
                self.effects = Effects::Possible;
                1
            };
            let (batch, later) = rest.split_at(together);
            self.run_batch(batch).await?;
            rest = later;
        }
        if self.context.cancel.is_cancelled() {
            return Err(Ending::Cancelled);
        }
        Ok(())
    }

    /// The provider's id, or one that this turn hasn't had.
    fn unique(&mut self, id: &str) -> String {
        let mut own = id.to_owned();
        let mut again = 1;
        while !self.calls.insert(own.clone()) {
            again += 1;
            own = format!("{id}#{again}");
        }
        own
    }

    async fn run_batch(&mut self, batch: &[Numbered<'_>]) -> Result<(), Ending> {
        let context = &self.context;
        let mut waiting = batch.iter();
        let mut running: FuturesUnordered<Boxed<'_, Ran<'_>>> = waiting
            .by_ref()
            .take(AT_ONCE)
            .map(|one| timed(one, context))
            .collect();
        while let Some(Ran { one, outcome, took }) = running.next().await {
            if let Some(next) = waiting.next() {
                running.push(timed(next, context));
            }
            let result = Message::Tool(ToolResult {
                call: one.call.id.clone(),
                name: one.call.name.clone(),
                ok: outcome.ok,
                output: outcome.output.clone(),
            });
            let kept = self.session.append(vec![result]).await;
            let mut end = json!({
                "tool_call_id": one.id,
                "ok": outcome.ok,
                "output": outcome.output,
                "truncated": outcome.truncated,
                "duration_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            });
            if let Some(sandbox) = outcome.sandbox {
                end["sandbox"] = json!(sandbox);
            }
            // Kept before it is told: who hears of it may rely on the next turn's knowing it.
            context.line.say("tool_end", end).await;
            kept.map_err(Ending::Store)?;
        }
        Ok(())
    }
}

/// A call that is over.
struct Ran<'a> {
    one: &'a Numbered<'a>,
    outcome: ToolOutcome,
    took: Duration,
}

fn timed<'a>(one: &'a Numbered<'a>, context: &'a TurnContext<'a>) -> Boxed<'a, Ran<'a>> {
    let surroundings = Surroundings {
        cwd: context.cwd.clone(),
        anchors: Arc::clone(&context.anchors),
        spill: context.spill.clone(),
        call: one.call.id.clone(),
        job: context.job.clone(),
        cancel: context.cancel.clone(),
        // Replaced by the call's own.
        progress: mpsc::channel(1).0,
        asker: Arc::clone(&context.asker),
    };
    Box::pin(async move {
        let began = Instant::now();
        let outcome = run(one, context.tools, surroundings, context.line).await;
        let took = began.elapsed();
        Ran { one, outcome, took }
    })
}

/// One call, from its first line to what came of it.
async fn run(
    one: &Numbered<'_>,
    toolbox: &Toolbox,
    mut context: Surroundings,
    line: &Line,
) -> ToolOutcome {
    let input = match &one.call.arguments {
        CallArguments::Object(map) => Value::Object(map.clone()),
        CallArguments::Malformed(text) => json!(beginning(text, MOST_SHOWN)),
    };
    let start = json!({
        "tool_call_id": one.id,
        "name": one.call.name,
        "input": input,
        "read_only": toolbox.is_read_only(one.call),
    });
    line.say("tool_start", start).await;
    let ready = match toolbox.find(one.call) {
        Ok(ready) => ready,
        Err(outcome) => return outcome,
    };
    if context.cancel.is_cancelled() {
        return ToolOutcome::failed("cancelled: it was not run".to_owned());
    }
    let (progress, mut pieces) = mpsc::channel::<String>(PROGRESS);
    context.progress = progress;
    let cancel = context.cancel.clone();
    let late = async {
        cancel.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    let mut late = std::pin::pin!(late);
    let mut running = ready.tool.run(ready.arguments, &context);
    let mut told = LiveOutput {
        one,
        line,
        offset: 0,
    };
    let outcome = loop {
        tokio::select! {
            // Its output first: `tool_end` closes the call, and nothing may follow it.
            biased;
            Some(piece) = pieces.recv() => told.say(piece).await,
            outcome = &mut running => break outcome.unwrap_or_else(ToolOutcome::failed),
            () = &mut late => break ToolOutcome::failed(UNKNOWN.to_owned()),
        }
    };
    while let Ok(piece) = pieces.try_recv() {
        told.say(piece).await;
    }
    outcome
}

/// Output of a call as it comes.
struct LiveOutput<'a> {
    one: &'a Numbered<'a>,
    line: &'a Line,
    offset: usize,
}

impl LiveOutput<'_> {
    async fn say(&mut self, piece: String) {
        let offset = self.offset;
        self.offset += piece.len();
        let fields = json!({"tool_call_id": self.one.id, "offset": offset, "output": piece});
        self.line.say("tool_update", fields).await;
    }
}
