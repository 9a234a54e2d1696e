//! Lists of jobs, sessions, questions and turns as text for people.
//!
//! Pure: rows and the time in, text out. What others wrote goes through `output::safe`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use agentd_protocol::Line;
use agentd_protocol::line::Level;
use agentd_protocol::rows::{FoundRow, JobRow, QuestionRow, SessionPhase, SessionRow, TurnRow};
use agentd_protocol::work::JobPhase;
use serde_json::Value;

use super::output::safe;
use super::render::{closed, preview_in, size};
use super::value::relative;
use super::wording;
use agentd_terminal::style::{Style, Tone};
use agentd_terminal::table::{Cell, Column, table};

/// Characters of a label's value in a table.
const LABEL_SHOWN: usize = 16;
/// Keys that `client/serve/src/openai` makes begin so.
const OF_A_FACE: &str = "openai.";
const NO_LABELS: &str = "-";

/// `jobs` for people.
#[must_use]
pub fn jobs(rows: &[JobRow], now: i64, style: &Style) -> String {
    let labelled = rows
        .iter()
        .any(|row| short_labels(&row.labels) != NO_LABELS);
    let mut columns = vec![
        Column::new("JOB").that_stays(),
        Column::cut("STATE", 9).that_stays(),
        Column::new("ACCEPTED"),
        Column::new("AGENT"),
        Column::cut("SESSION", 12),
    ];
    if labelled {
        columns.push(Column::cut("LABELS", 12));
    }
    let some_do = rows.iter().any(|row| row.doing.is_some());
    if some_do {
        columns.push(Column::cut("DOING", 20));
    }
    // It tells jobs apart: when they were accepted goes before it.
    columns.push(Column::cut("PROMPT", 20).that_stays());
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            let mut cells = vec![
                row.job.to_string().into(),
                Cell::toned(job_state(row, now), tone_of(row)),
                relative(&row.accepted_at, now).into(),
                row.agent.as_str().into(),
                row.session.as_str().into(),
            ];
            if labelled {
                cells.push(short_labels(&row.labels).into());
            }
            if some_do {
                cells.push(preview_in(row.doing.as_deref().unwrap_or("-"), style).into());
            }
            cells.push(preview_in(&row.preview, style).into());
            cells
        })
        .collect();
    table(&columns, &rows, style)
}

/// The colour of a job's state.
pub(super) const fn tone_of(row: &JobRow) -> Tone {
    match row.cut_off {
        true => Tone::Bad,
        false => tone(row.state),
    }
}

/// The colour of a state.
pub(super) const fn tone(phase: JobPhase) -> Tone {
    match phase {
        JobPhase::Queued | JobPhase::Held => Tone::Waits,
        JobPhase::Running => Tone::Busy,
        JobPhase::Completed => Tone::Good,
        JobPhase::Cancelled => Tone::Faint,
        JobPhase::Failed | JobPhase::Interrupted => Tone::Bad,
    }
}

pub(super) fn job_state(row: &JobRow, now: i64) -> String {
    let phase = phase(row.state);
    match (row.state, &row.code, &row.start_at) {
        (JobPhase::Failed, Some(code), _) => format!("{phase} ({code})"),
        (JobPhase::Queued, _, Some(start)) => {
            let start = relative(start, now);
            if start.starts_with("in ") {
                format!("{phase} ({start})")
            } else {
                phase.to_owned()
            }
        }
        // Whoever ran it is gone, and nobody has said yet what becomes of it.
        (JobPhase::Running, ..) if row.cut_off => "cut off".to_owned(),
        (JobPhase::Running, ..) if row.attempt > 1 => format!("{phase} ({}.)", row.attempt),
        _ => phase.to_owned(),
    }
}

pub(super) const fn phase(phase: JobPhase) -> &'static str {
    match phase {
        JobPhase::Queued => "queued",
        JobPhase::Held => "held",
        JobPhase::Running => "running",
        JobPhase::Completed => "completed",
        JobPhase::Cancelled => "cancelled",
        JobPhase::Failed => "failed",
        JobPhase::Interrupted => "interrupted",
    }
}

pub(super) fn labels(labels: &BTreeMap<String, String>) -> String {
    let pairs = labels.iter().map(|(key, value)| format!("{key}={value}"));
    joined(pairs.collect())
}

/// The same without what is too long to be read, and without what the face of OpenAI's API finds its
/// requests by, which nobody has given.
fn short_labels(labels: &BTreeMap<String, String>) -> String {
    let given = labels.iter().filter(|(key, _)| !key.starts_with(OF_A_FACE));
    let pairs = given.map(|(key, value)| {
        let begins: String = value.chars().take(LABEL_SHOWN).collect();
        let cut = if begins.len() < value.len() { ".." } else { "" };
        format!("{key}={begins}{cut}")
    });
    joined(pairs.collect())
}

fn joined(pairs: Vec<String>) -> String {
    match pairs.is_empty() {
        true => NO_LABELS.to_owned(),
        false => pairs.join(" "),
    }
}

/// `sessions` for people.
#[must_use]
pub fn sessions(rows: &[SessionRow], now: i64, style: &Style) -> String {
    let columns = [
        Column::cut("SESSION", 10).that_stays(),
        Column::new("AGENT"),
        Column::new("ACTIVE"),
        Column::new("STATE"),
        Column::new("TURNS"),
        Column::cut("MODEL", 10),
        Column::cut("TITLE", 10).that_stays(),
    ];
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            let (state, tone) = session_state(row.state);
            vec![
                row.name().into(),
                row.agent.as_str().into(),
                relative(&row.last_active_at, now).into(),
                Cell::toned(state, tone),
                row.turns.to_string().into(),
                row.model.as_deref().unwrap_or("-").into(),
                preview_in(&row.title, style).into(),
            ]
        })
        .collect();
    table(&columns, &rows, style)
}

/// What a session does, in a word, and its colour.
pub(super) const fn session_state(state: SessionPhase) -> (&'static str, Tone) {
    match state {
        SessionPhase::Idle => ("idle", Tone::Plain),
        SessionPhase::Starting => ("starting", Tone::Busy),
        SessionPhase::Working => ("working", Tone::Busy),
        SessionPhase::Waiting => ("waiting", Tone::Waits),
        SessionPhase::Held => ("held", Tone::Waits),
        SessionPhase::Closed => ("closed", Tone::Plain),
    }
}

/// `sessions search` for people.
#[must_use]
pub fn found(rows: &[FoundRow], now: i64, style: &Style) -> String {
    let columns = [
        Column::new("JOB").that_stays(),
        Column::cut("SESSION", 10).that_stays(),
        Column::new("ACCEPTED"),
        Column::new("IN"),
        Column::cut("FOUND", 16).that_stays(),
    ];
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            vec![
                row.job.to_string().into(),
                row.name().into(),
                relative(&row.accepted_at, now).into(),
                row.part.as_str().into(),
                row.excerpt.as_str().into(),
            ]
        })
        .collect();
    table(&columns, &rows, style)
}

/// `questions` for people.
#[must_use]
pub fn questions(rows: &[QuestionRow], now: i64, style: &Style) -> String {
    let columns = [
        Column::new("QUESTION").that_stays(),
        Column::new("JOB"),
        Column::new("EXPIRES"),
        Column::new("KIND"),
        Column::cut("SESSION", 10),
        Column::cut("TITLE", 16).that_stays(),
    ];
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| {
            let options = if row.options.is_empty() {
                String::new()
            } else {
                format!(" ({})", row.options.join(", "))
            };
            vec![
                row.question_id.as_str().into(),
                row.job.to_string().into(),
                relative(&row.expires_at, now).into(),
                row.kind.as_str().into(),
                row.session.as_str().into(),
                preview_in(&format!("{}{options}", row.title), style).into(),
            ]
        })
        .collect();
    table(&columns, &rows, style)
}

/// One turn of `history` for people.
#[must_use]
pub fn turn(row: &TurnRow, now: i64, style: &Style) -> String {
    let more = style.ellipsis();
    let state = style.paint(tone(row.state), phase(row.state));
    let job = style.paint(Tone::Head, &row.job.to_string());
    let head = format!("{job} {state}, {}\n", relative(&row.accepted_at, now));
    let mut shown = String::new();
    for line in row.text.trim_end().lines() {
        let _infallible = writeln!(shown, "> {line}");
    }
    if row.truncated {
        let _infallible = writeln!(shown, "> {more} (cut short)");
    }
    for of in &row.attachments {
        let name = of.name.as_deref().unwrap_or("attachment");
        let mime = of.mime.as_deref().unwrap_or("unknown");
        let bytes = size(of.bytes.unwrap_or(0));
        let _infallible = writeln!(shown, "> [{name}: {mime}, {bytes}]");
    }
    for event in &row.events {
        if let Ok(line) = serde_json::from_value(event.clone()) {
            shown.extend(happened(&line, style));
        }
    }
    if row.events_truncated {
        let _infallible = writeln!(shown, "{more} (and more of that)");
    }
    for message in &row.messages {
        let _infallible = writeln!(shown, "{}", message.text.trim_end());
        if message.truncated {
            let _infallible = writeln!(shown, "{more} (cut short: `--full` shows all of it)");
        }
    }
    for question in &row.questions {
        let (name, title) = (&question.question_id, &question.title);
        let _infallible = writeln!(shown, "asks {name}: {title}");
    }
    let field = |name: &str| row.last.as_ref()?.get(name).and_then(Value::as_str);
    if field("type") == Some("error") {
        let (code, error) = (field("code"), field("error"));
        let (code, error) = (code.unwrap_or_default(), error.unwrap_or_default());
        let error = wording::error(error);
        let _infallible = writeln!(shown, "failed ({code}): {error}");
    } else if let (true, Some(text)) = (row.messages.is_empty(), field("text")) {
        let _infallible = writeln!(shown, "{}", text.trim_end());
    }
    shown.push('\n');
    head + &safe(&shown)
}

/// A line for what happened in a turn besides what was said; none for what nobody looks for.
fn happened(line: &Line, style: &Style) -> Option<String> {
    Some(match line {
        Line::ToolStart { name, input, .. } => {
            format!("* {name} {}\n", preview_in(&input.to_string(), style))
        }
        Line::ToolEnd {
            ok: false, output, ..
        } => {
            format!("  failed: {}\n", preview_in(output, style))
        }
        Line::Note { code, text, .. } if code == "steered" => {
            let lines = text.trim_end().lines();
            let quoted: Vec<String> = lines.map(|line| format!(">> {line}\n")).collect();
            quoted.concat()
        }
        Line::Note {
            text,
            level: Level::Warning,
            ..
        } => {
            format!("* note: {}\n", preview_in(text, style))
        }
        Line::Question { title, .. } => format!("* asked: {}\n", preview_in(title, style)),
        Line::QuestionClosed { by, answer, .. } => {
            format!("  closed by {}\n", closed(by, answer.as_deref()))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_narrow_keep_what_tells_them_apart() {
        let row: JobRow = serde_json::from_value(serde_json::json!({
            "job": "j12", "state": "failed", "code": "authentication_failed", "agent": "timmy",
            "session": "camping", "attempt": 1, "preview": "write a poem about the sea",
            "accepted_at": "2026-11-27T10:00:00Z", "labels": {}
        }))
        .unwrap();
        let style = Style {
            columns: Some(40),
            ..Style::PLAIN
        };
        let shown = jobs(&[row], 0, &style);
        assert!(shown.starts_with("JOB  STATE"), "{shown}");
        assert!(shown.contains("  write a poem about"), "{shown}");
        assert!(!shown.contains("AGENT"), "{shown}");
    }

    fn now() -> i64 {
        agentd_protocol::request::unix_ms("2026-11-21T19:00:00Z").unwrap()
    }

    #[test]
    fn jobs_are_a_table_with_labels_if_any() {
        let plain = r#"{"job":"j2","session":"s2","agent":"pi","state":"failed","attempt":1,"preview":"two\nlines","accepted_at":"2026-11-21T18:58:00Z","code":"timeout"}"#;
        let labelled = r#"{"job":"j1","session":"main","agent":"pi","state":"queued","attempt":0,"preview":"one","labels":{"openai.request":"5f","run":"7"},"accepted_at":"2026-11-21T18:00:00Z","start_at":"2026-11-21T20:00:00Z"}"#;
        let rows = |lines: &[&str]| -> Vec<JobRow> {
            let row = |line: &&str| serde_json::from_str(line).unwrap();
            lines.iter().map(row).collect()
        };
        assert_eq!(
            jobs(&rows(&[plain]), now(), &Style::PLAIN),
            "\
JOB  STATE             ACCEPTED   AGENT  SESSION  PROMPT
j2   failed (timeout)  2 min ago  pi     s2       two lines
"
        );
        assert_eq!(
            jobs(&rows(&[plain, labelled]), now(), &Style::PLAIN),
            "\
JOB  STATE             ACCEPTED   AGENT  SESSION  LABELS  PROMPT
j2   failed (timeout)  2 min ago  pi     s2       -       two lines
j1   queued (in 1 h)   1 h ago    pi     main     run=7   one
"
        );
    }

    #[test]
    fn sessions_and_questions_are_tables() {
        let session = r#"{"session":"main","agent":"pi","cwd":"/tmp","state":"held","title":"fix it","preview":"done","model":null,"turns":3,"created_at":"2026-11-20T19:00:00Z","last_active_at":"2026-11-21T18:59:50Z"}"#;
        assert_eq!(
            sessions(
                &[serde_json::from_str(session).unwrap()],
                now(),
                &Style::PLAIN
            ),
            "\
SESSION  AGENT  ACTIVE    STATE  TURNS  MODEL  TITLE
main     pi     10 s ago  held   3      -      fix it
"
        );
        let question = r#"{"question_id":"j1-q1","job":"j1","session":"main","kind":"choice","title":"where to?","options":["a","b"],"expires_at":"2026-11-21T19:09:00Z"}"#;
        assert_eq!(
            questions(
                &[serde_json::from_str(question).unwrap()],
                now(),
                &Style::PLAIN
            ),
            "\
QUESTION  JOB  EXPIRES   KIND    SESSION  TITLE
j1-q1     j1   in 9 min  choice  main     where to? (a, b)
"
        );
    }

    #[test]
    fn turn_is_its_question_answer_and_end() {
        let row = r#"{"job":"j1","state":"failed","accepted_at":"2026-11-21T18:00:00Z","text":"a\nb","messages":[{"message":0,"text":"so\u001b far","truncated":true}],"final":{"type":"error","code":"timeout","error":"too long"}}"#;
        assert_eq!(
            turn(&serde_json::from_str(row).unwrap(), now(), &Style::PLAIN),
            "\
j1 failed, 1 h ago
> a
> b
so\\u{1b} far
… (cut short: `--full` shows all of it)
failed (timeout): too long

"
        );
        let bare = r#"{"job":"j2","state":"completed","accepted_at":"2026-11-21T19:00:00Z","text":"hi","messages":[],"final":{"type":"message_end","text":"hello"}}"#;
        assert_eq!(
            turn(&serde_json::from_str(bare).unwrap(), now(), &Style::PLAIN),
            "j2 completed, 0 s ago\n> hi\nhello\n\n"
        );
    }

    #[test]
    fn turn_with_its_events_shows_steers_and_tools() {
        let row = r#"{"job":"j1","state":"completed","accepted_at":"2026-11-21T19:00:00Z","text":"hi","messages":[{"message":0,"text":"done"}],"events":[{"type":"running","job":"j1","attempt":1},{"type":"tool_start","job":"j1","tool_call_id":"c","name":"bash","input":{"command":"ls"},"read_only":false},{"type":"tool_end","job":"j1","tool_call_id":"c","ok":false,"output":"no","truncated":false,"duration_ms":1},{"type":"note","job":"j1","level":"info","code":"steered","text":"left"}],"final":{"type":"message_end","text":"done"}}"#;
        assert_eq!(
            turn(&serde_json::from_str(row).unwrap(), now(), &Style::PLAIN),
            "j1 completed, 0 s ago\n> hi\n* bash {\"command\":\"ls\"}\n  failed: no\n>> left\ndone\n\n"
        );
    }
}
