//! `watch`: what happens, as it happens, a line each.
//!
//! Owns how an event looks, the times, and that a message is one line. Must not know streams.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::line::Stop;
use agentd_protocol::request::Subscribe;
use agentd_protocol::spoken::span as said;
use agentd_protocol::{JobId, Line};
use jiff::Zoned;

use super::args::WatchArgs;
use super::exit::Exit;
use super::render::{closed, preview};
use super::{ask, output, wording};

/// As wide as a time.
const NO_TIME: &str = "        ";

/// Until Ctrl-C, which ends the process by itself: nothing needs to be put away.
pub(super) async fn watch(args: WatchArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let fields = Subscribe {
        session: args.session,
        jobs: Some(args.jobs).filter(|jobs| !jobs.is_empty()),
        after: args.after,
        epoch: args.epoch,
        sessions: false,
    };
    let client = ask::daemon(socket).await?;
    let mut events = client
        .subscribe(&fields)
        .await
        .map_err(|error| ask::tell(&error))?;
    let mut watched = Watched {
        raw: args.raw,
        ..Watched::default()
    };
    loop {
        let received = events
            .next_over_restarts()
            .await
            .map_err(|error| ask::tell(&error))?;
        if args.json {
            output::out_json(&received.text)?;
            continue;
        }
        let Some(line) = &received.line else { continue };
        // Of what happened before, nobody here knows when that was.
        let time = match watched.live {
            true => Zoned::now().strftime("%H:%M:%S").to_string(),
            false => NO_TIME.to_owned(),
        };
        for shown in watched.line(line) {
            output::out_line(&format!("{time} {shown}"))?;
        }
    }
}

/// What was told, as far as later lines depend on it.
#[derive(Default)]
struct Watched {
    /// Is each piece of text a line?
    raw: bool,
    /// Is it no history any more?
    live: bool,
    open: BTreeMap<JobId, OpenText>,
}

/// What a turn says at the moment.
#[derive(Default)]
struct OpenText {
    of: Option<(u32, Kind)>,
    text: String,
    /// Did it say anything?
    said: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
}

impl Watched {
    /// The rows that a line makes complete.
    fn line(&mut self, line: &Line) -> Vec<String> {
        if let Line::Live { .. } = line {
            self.live = true;
        }
        let (job, message, kind, offset, text) = match line {
            Line::MessageDelta {
                job,
                message,
                offset,
                text,
                ..
            } if !self.raw => (*job, *message, Kind::Text, *offset, text),
            Line::ThinkingDelta {
                job,
                message,
                offset,
                text,
            } if !self.raw => (*job, *message, Kind::Thinking, *offset, text),
            other => return self.event(other),
        };
        let open = self.open.entry(job).or_default();
        let mut shown = Vec::new();
        if open.of != Some((message, kind)) {
            shown.extend(open.close(job));
            open.of = Some((message, kind));
        }
        // Told again, as where history ends.
        let known = u64::try_from(open.text.len()).unwrap_or(u64::MAX);
        let known = usize::try_from(known.saturating_sub(offset)).unwrap_or(usize::MAX);
        open.text.push_str(text.get(known..).unwrap_or_default());
        open.said |= kind == Kind::Text;
        shown
    }

    fn event(&mut self, line: &Line) -> Vec<String> {
        let mut shown = Vec::new();
        let job = match line {
            Line::MessageStart { job, .. } => Some(*job),
            other => job_of(other),
        };
        let event = event(line);
        if let Some(job) = job.filter(|_| event.is_some() || is_start(line))
            && let Some(open) = self.open.get_mut(&job)
        {
            shown.extend(open.close(job));
        }
        if let Line::MessageEnd(end) = line
            && let Some(job) = job
        {
            let said = self.open.remove(&job).is_some_and(|open| open.said);
            let whole = OpenText {
                of: Some((0, Kind::Text)),
                text: end.turn.text.clone(),
                said,
            };
            shown.extend(
                Some(whole)
                    .filter(|_| !said && !self.raw)
                    .and_then(|mut all| all.close(job)),
            );
        } else if let (Line::Error(_), Some(job)) = (line, job) {
            self.open.remove(&job);
        }
        shown.extend(event);
        shown
    }
}

fn is_start(line: &Line) -> bool {
    matches!(line, Line::MessageStart { .. })
}

impl OpenText {
    /// The row of what was said, unless that is nothing.
    fn close(&mut self, job: JobId) -> Option<String> {
        let (_, kind) = self.of.take()?;
        let text = std::mem::take(&mut self.text);
        let what = match kind {
            Kind::Text => "text    ",
            Kind::Thinking => "thinking",
        };
        Some(format!("{job} {what}   {}", preview(&text))).filter(|_| !text.trim().is_empty())
    }
}

/// The job that a line of `watch` is about.
fn job_of(line: &Line) -> Option<JobId> {
    match line {
        Line::Accepted(accepted) => Some(accepted.job),
        Line::Running { job, .. }
        | Line::ToolStart { job, .. }
        | Line::ToolEnd { job, .. }
        | Line::Question { job, .. }
        | Line::QuestionClosed { job, .. } => Some(*job),
        Line::Note { job, .. } => *job,
        Line::MessageEnd(end) => end.turn.job,
        Line::Error(error) => error.turn.as_ref()?.job,
        _ => None,
    }
}

/// One line of `watch`; none for a line with nothing to see.
fn event(line: &Line) -> Option<String> {
    let shown = match line {
        Line::Accepted(accepted) => format!(
            "{} accepted   session {}, agent {}",
            accepted.job, accepted.session, accepted.agent
        ),
        Line::Running { job, attempt } => format!("{job} running    attempt {attempt}"),
        Line::MessageDelta { job, text, .. } => format!("{job} text       {}", preview(text)),
        Line::ThinkingDelta { job, text, .. } => format!("{job} thinking   {}", preview(text)),
        Line::ToolStart {
            job, name, input, ..
        } => {
            format!("{job} tool       {name} {}", preview(&input.to_string()))
        }
        Line::ToolEnd {
            job,
            ok,
            duration_ms,
            ..
        } => {
            let how = if *ok { "ok" } else { "failed" };
            let took = said(Duration::from_millis(*duration_ms));
            format!("{job} tool end   {how} after {took}")
        }
        Line::Question {
            job, title, kind, ..
        } => {
            format!("{job} question   {kind}: {}", preview(title))
        }
        Line::QuestionClosed {
            job, by, answer, ..
        } => {
            let by = closed(by, answer.as_deref());
            format!("{job} closed     by {by}")
        }
        Line::Note { job, text, .. } => {
            let job = job.map_or_else(|| "-".to_owned(), |job| job.to_string());
            format!("{job} note       {}", preview(text))
        }
        Line::MessageEnd(end) => {
            let job = end
                .turn
                .job
                .map_or_else(|| "-".to_owned(), |job| job.to_string());
            let how = match end.stop {
                Stop::EndTurn => "done",
                Stop::MaxTokens => "max_tokens",
                Stop::MaxTurnRequests => "max_turn_requests",
                Stop::Refusal => "refusal",
                Stop::Cancelled => "cancelled",
            };
            let took = said(Duration::from_millis(end.turn.duration_ms));
            format!("{job} {how:<10} {took}")
        }
        Line::Error(error) => {
            let job = error.turn.as_ref().and_then(|turn| turn.job);
            let job = job.map_or_else(|| "-".to_owned(), |job| job.to_string());
            format!(
                "{job} failed     {}: {}",
                error.code,
                preview(&wording::error(&error.error))
            )
        }
        _ => return None,
    };
    Some(output::safe(&shown).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn watched(raw: bool, lines: &[Value]) -> Vec<String> {
        let mut watched = Watched {
            raw,
            ..Watched::default()
        };
        let lines = lines
            .iter()
            .map(|line| serde_json::from_value(line.clone()).unwrap());
        lines.flat_map(|line: Line| watched.line(&line)).collect()
    }

    fn delta(message: u32, offset: u64, text: &str) -> Value {
        json!({"type": "message_delta", "job": "j1", "message": message, "offset": offset,
            "text": text, "native": true})
    }

    #[test]
    fn an_event_is_one_safe_line() {
        let shown = |json: &str| event(&serde_json::from_str(json).unwrap()).unwrap_or_default();
        assert_eq!(
            shown(
                r#"{"type":"message_delta","job":"j1","message":0,"offset":0,"text":"a\nb\u001b","native":true}"#
            ),
            "j1 text       a b\\u{1b}"
        );
        assert_eq!(
            shown(r#"{"type":"error","job":"j1","code":"timeout","error":"too long"}"#),
            "j1 failed     timeout: too long"
        );
        assert_eq!(shown(r#"{"type":"pong"}"#), "");
    }

    #[test]
    fn watch_joins_a_message_into_one_line() {
        let tool = json!({"type": "tool_start", "job": "j1", "tool_call_id": "c", "name": "ls",
            "input": {}, "read_only": true});
        let end = json!({"type": "message_end", "job": "j1", "stop": "end_turn", "text": "b",
            "duration_ms": 1200});
        let lines = [
            delta(0, 0, "a "),
            delta(0, 2, "long\n"),
            delta(0, 0, "a long"),
            delta(0, 7, "one"),
            tool,
            delta(1, 0, "b"),
            end.clone(),
        ];
        assert_eq!(
            watched(false, &lines),
            [
                "j1 text       a long one",
                "j1 tool       ls {}",
                "j1 text       b",
                "j1 done       1.2 s",
            ]
        );
        assert_eq!(watched(true, &lines).len(), 7);
        // Of a turn that told nothing on the way.
        assert_eq!(
            watched(false, &[end]),
            ["j1 text       b", "j1 done       1.2 s"]
        );
    }
}
