//! What an interrupted or failed turn leaves running: Codex ends the turn, but not its commands.
//!
//! Owns the end of those commands, which comes before the end of the turn. What runs since an
//! earlier turn stays. A Codex that can't is replaced, which ends everything it started.

use agentd_core::worker::{Failure, WorkerEvent};
use agentd_protocol::line::Stop;
use serde_json::json;

use super::turn::OPEN_CALLS;
use super::{Codex, OpenRequest, Thread};
use crate::adapter::driver::Out;
use crate::adapter::object::Object;

/// A turn that Codex ended, and we not yet.
#[derive(Debug)]
pub(super) struct Ending {
    result: Result<Stop, Failure>,
    /// Commands that are to end first; unknown until Codex says what runs.
    left: Option<usize>,
}

impl Codex {
    /// Ends the turn, as soon as nothing of it runs.
    pub(super) fn end(&mut self, result: Result<Stop, Failure>, out: &mut Out<'_>) {
        let interrupted = matches!(result, Ok(Stop::Cancelled) | Err(_));
        if let (Some(turn), Thread::Open(thread)) = (&mut self.driver.turn, &self.thread)
            && interrupted
            && turn.runs_commands()
        {
            turn.ending = Some(Ending { result, left: None });
            let params = json!({"threadId": thread});
            self.request(
                OpenRequest::Terminals,
                "thread/backgroundTerminals/list",
                &params,
                out,
            );
        } else {
            self.finish(result, out);
        }
    }

    /// What runs: the turn's own commands are to end.
    pub(super) fn terminals_listed(&mut self, line: &Object<'_>, out: &mut Out<'_>) {
        let (Some(turn), Thread::Open(thread)) = (&mut self.driver.turn, &self.thread) else {
            return;
        };
        let Some(result) = line.object("result") else {
            return self.not_terminated(out);
        };
        let terminals = result.objects("data");
        let mine = |terminal: &&Object<'_>| {
            let item = terminal.string("itemId");
            item.is_some_and(|item| turn.is_open(&item))
        };
        let mine = terminals.iter().filter(mine).take(OPEN_CALLS);
        let processes: Vec<_> = mine.map(|terminal| terminal.string("processId")).collect();
        let Some(ending) = turn.ending.as_mut().filter(|ending| ending.left.is_none()) else {
            return;
        };
        ending.left = Some(processes.len());
        let thread = thread.clone();
        for process in processes {
            let params = json!({"threadId": thread, "processId": process});
            let method = "thread/backgroundTerminals/terminate";
            self.request(OpenRequest::Terminate, method, &params, out);
        }
        self.end_if_quiet(out);
    }

    /// One of them ended, or had before.
    pub(super) fn terminated(&mut self, error: Option<&str>, out: &mut Out<'_>) {
        if error.is_some() {
            return self.not_terminated(out);
        }
        let ending = self
            .driver
            .turn
            .as_mut()
            .and_then(|turn| turn.ending.as_mut());
        if let Some(left) = ending.and_then(|ending| ending.left.as_mut()) {
            *left = left.saturating_sub(1);
        }
        self.end_if_quiet(out);
    }

    fn end_if_quiet(&mut self, out: &mut Out<'_>) {
        let turn = self.driver.turn.as_mut();
        let quiet = |ending: &mut Ending| ending.left == Some(0);
        if let Some(ending) = turn.and_then(|turn| turn.ending.take_if(quiet)) {
            self.finish(ending.result, out);
        }
    }

    fn not_terminated(&mut self, out: &mut Out<'_>) {
        let turn = self.driver.turn.as_mut();
        if let Some(ending) = turn.and_then(|turn| turn.ending.take()) {
            out.push(WorkerEvent::Spoilt {
                why: "Codex left a command of an interrupted turn running",
            });
            self.finish(ending.result, out);
        }
    }
}
