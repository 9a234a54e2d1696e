//! What a turn is doing, in a few words for a line that is redrawn.
//!
//! Pure: lines and answers in, words out. Must not know terminals, nor who asks.

use agentd_protocol::line::{DaemonState, StatusAnswer, WorkerRow, WorkerState};
use agentd_protocol::request::unix_ms;
use agentd_protocol::rows::JobRow;
use agentd_protocol::spoken::{call, span};
use agentd_protocol::work::JobPhase;
use agentd_protocol::{JobId, Line};
use std::time::Duration;

/// A process that has said nothing for so long may be no agent: the slowest are up in half of it.
pub(super) const SILENT_S: u64 = 10;

/// What a turn is doing.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) enum Activity {
    /// Nobody has accepted it yet.
    #[default]
    Sent,
    /// It waits, and nobody has said yet what for.
    Accepted,
    /// It waits for this.
    Waits(String),
    /// The agent has it, and has said nothing yet.
    Works,
    /// The agent thinks.
    Thinks,
    /// A tool runs.
    Tool {
        /// Its call.
        call: String,
        /// What it does.
        shown: String,
    },
    /// Somebody has to answer.
    Asks(String),
    /// The conversation broke.
    Lost,
    /// It was asked to end.
    Ends,
}

impl Activity {
    /// Takes a line of the turn.
    pub(super) fn line(&mut self, line: &Line) {
        if *self == Self::Ends {
            return;
        }
        let next = match line {
            Line::Accepted(accepted) if accepted.running => Self::Works,
            Line::Accepted(accepted) if accepted.drained => Self::Waits(draining()),
            Line::Accepted(_) => Self::Accepted,
            Line::Note { code, text, .. } if code == "held" => Self::Waits(text.clone()),
            // What was said before comes behind the tool that runs, for whoever joins meanwhile.
            Line::MessageStart { .. } | Line::MessageDelta { .. } | Line::ThinkingDelta { .. }
                if matches!(self, Self::Tool { .. }) =>
            {
                return;
            }
            Line::ThinkingDelta { .. } => Self::Thinks,
            Line::Running { .. }
            | Line::MessageStart { .. }
            | Line::MessageDelta { .. }
            | Line::QuestionClosed { .. } => Self::Works,
            Line::ToolStart {
                tool_call_id,
                name,
                input,
                ..
            } => Self::Tool {
                call: tool_call_id.clone(),
                shown: call(name, input),
            },
            Line::ToolEnd { tool_call_id, .. } => match self {
                // Another one runs on.
                Self::Tool { call, .. } if call != tool_call_id => return,
                _ => Self::Works,
            },
            Line::Question { title, .. } => Self::Asks(title.clone()),
            _ => return,
        };
        *self = next;
    }

    /// Does a turn wait for something that only the daemon knows?
    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self, Self::Accepted | Self::Waits(_))
    }

    /// Takes what the daemon says it waits for.
    pub(super) fn waits(&mut self, what: String) {
        if self.is_waiting() {
            *self = Self::Waits(what);
        }
    }

    /// In words, of an agent of this name.
    pub(super) fn words(&self, agent: &str) -> String {
        match self {
            Self::Sent => "waiting for agentd".to_owned(),
            Self::Accepted => "queued".to_owned(),
            Self::Waits(what) => what.clone(),
            Self::Works => format!("{agent} is working"),
            Self::Thinks => "thinking".to_owned(),
            Self::Tool { shown, .. } => format!("running: {shown}"),
            Self::Asks(title) => format!("waiting for an answer: {title}"),
            Self::Lost => "agentd went away: waiting for the next one".to_owned(),
            Self::Ends => "cancelling".to_owned(),
        }
    }
}

fn draining() -> String {
    "draining: no turn starts".to_owned()
}

/// What a turn that doesn't run waits for, as far as its session's jobs and the status tell.
pub(super) fn waits_for(
    job: JobId,
    agent: &str,
    rows: &[JobRow],
    status: &StatusAnswer,
    now_ms: i64,
) -> String {
    let own = rows.iter().find(|row| row.job == job);
    let start = own.and_then(|row| unix_ms(row.start_at.as_deref()?));
    if let Some(start) = start.filter(|start| *start > now_ms) {
        let ahead = Duration::from_millis((start - now_ms).unsigned_abs());
        return format!("starts in {}", span(ahead));
    }
    if own.is_some_and(|row| row.state == JobPhase::Held) {
        return "held: a turn before it in the session was interrupted".to_owned();
    }
    if status.state == DaemonState::Draining {
        return draining();
    }
    let is_open = |row: &&JobRow| {
        let phases = [JobPhase::Queued, JobPhase::Held, JobPhase::Running];
        row.job < job && phases.contains(&row.state)
    };
    let before = rows.iter().filter(is_open).count();
    if before > 0 {
        return format!("queued, {before} before it");
    }
    let workers = status.workers.as_deref().unwrap_or_default();
    let is_coming = |row: &&WorkerRow| {
        row.agent == agent && matches!(row.state, WorkerState::Starting | WorkerState::Backoff)
    };
    if let Some(first) = workers.iter().find(is_coming) {
        let silent = match first.state {
            WorkerState::Starting if first.uptime_s >= SILENT_S => {
                let silent = span(Duration::from_secs(first.uptime_s));
                format!(
                    ": silent for {silent}; a script that reads its prompt to the end and prints its \
                     answer is of `kind = \"exec\"`"
                )
            }
            _ => String::new(),
        };
        return format!("starting {agent}{silent}");
    }
    format!("queued, waiting for a process of {agent}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn after(lines: &[Value]) -> String {
        let mut activity = Activity::default();
        for line in lines {
            activity.line(&serde_json::from_value(line.clone()).unwrap());
        }
        activity.words("pi")
    }

    #[test]
    fn activity_is_the_tool_that_still_runs() {
        let mut activity = Activity::default();
        for json in [
            r#"{"type":"tool_start","job":"j1","tool_call_id":"c","name":"bash","input":{"command":"ls"},"read_only":false}"#,
            r#"{"type":"message_start","job":"j1","message":0,"role":"assistant"}"#,
            r#"{"type":"message_delta","job":"j1","message":0,"offset":0,"text":"so far","native":true}"#,
        ] {
            activity.line(&serde_json::from_str(json).unwrap());
        }
        assert_eq!(activity.words("pi"), "running: bash ls");
    }

    #[test]
    fn activity_is_what_the_last_line_says() {
        let accepted = json!({"type": "accepted", "job": "j1", "session": "s", "agent": "pi"});
        let start = |call: &str, input: Value| {
            json!({"type": "tool_start", "job": "j1", "tool_call_id": call, "name": "bash",
                "input": input, "read_only": false})
        };
        let end = |call: &str| {
            json!({"type": "tool_end", "job": "j1", "tool_call_id": call, "ok": true,
                "output": "", "truncated": false, "duration_ms": 1})
        };
        let running = json!({"type": "running", "job": "j1", "attempt": 1});
        let thinks =
            json!({"type": "thinking_delta", "job": "j1", "message": 0, "offset": 0, "text": "a"});
        assert_eq!(after(&[]), "waiting for agentd");
        assert_eq!(after(std::slice::from_ref(&accepted)), "queued");
        assert_eq!(after(&[accepted.clone(), running.clone()]), "pi is working");
        assert_eq!(after(&[accepted, running, thinks]), "thinking");
        let tests = start("a", json!({"command": "cargo \n test"}));
        assert_eq!(
            after(std::slice::from_ref(&tests)),
            "running: bash cargo test"
        );
        assert_eq!(
            after(&[tests.clone(), start("b", json!({})), end("a")]),
            "running: bash"
        );
        assert_eq!(after(&[tests, end("a")]), "pi is working");
        let long = start("a", json!({"cmd": ["x".repeat(90)]}));
        let shown = format!("running: bash {}...", "x".repeat(60));
        assert_eq!(after(&[long]), shown);
    }

    fn row(job: u64, state: &str) -> JobRow {
        let row = json!({"job": format!("j{job}"), "session": "s", "agent": "pi", "state": state,
            "attempt": 0, "preview": "", "accepted_at": "2026-11-21T19:00:00Z"});
        serde_json::from_value(row).unwrap()
    }

    fn status(state: &str, worker: &str) -> StatusAnswer {
        let status = json!({"type": "status", "ok": true, "details": "", "state": state,
            "daemon": {"version": "0", "pid": 1, "uptime_s": 0, "epoch": "e", "rss_bytes": null},
            "rpc": {"live": true, "in_flight": 0, "sends": 0, "failures": 0, "fallbacks": 0,
                "restarts": 0, "p50_ms": null, "p95_ms": null, "clients": {}},
            "workers": [{"agent": "pi", "session": null, "state": worker, "pid": null,
                "generation": 1, "restarts": 0, "last_exit": null, "last_error": null,
                "uptime_s": 0, "in_flight": 0, "queued": 0, "last_ok_at": null}],
            "store": {"jobs": 0, "events": 0, "bytes": 0, "wal_bytes": 0}, "questions": 0});
        let Line::Status(answer) = serde_json::from_value(status).unwrap() else {
            panic!("not a status");
        };
        *answer
    }

    #[test]
    fn activity_of_a_turn_that_waits_says_why() {
        let now = unix_ms("2026-11-21T19:00:00Z").unwrap();
        let why = |rows: &[JobRow], state: &str, worker: &str| {
            waits_for(JobId(5), "pi", rows, &status(state, worker), now)
        };
        let rows = [
            row(5, "queued"),
            row(4, "queued"),
            row(3, "running"),
            row(2, "completed"),
        ];
        assert_eq!(why(&rows, "ready", "busy"), "queued, 2 before it");
        assert_eq!(why(&rows, "draining", "busy"), "draining: no turn starts");
        assert_eq!(why(&rows[..1], "ready", "starting"), "starting pi");
        let mut silent = status("ready", "starting");
        silent.workers.as_mut().unwrap()[0].uptime_s = 12;
        let waits = waits_for(JobId(5), "pi", &rows[..1], &silent, now);
        assert!(
            waits.starts_with("starting pi: silent for 12 s; "),
            "{waits}"
        );
        assert_eq!(
            why(&rows[..1], "ready", "busy"),
            "queued, waiting for a process of pi"
        );
        assert!(why(&[row(5, "held")], "ready", "busy").starts_with("held: "));
        let later = JobRow {
            start_at: Some("2026-11-21T21:05:00Z".to_owned()),
            ..row(5, "queued")
        };
        assert_eq!(why(&[later], "ready", "busy"), "starts in 2 h 5 min");
    }
}
