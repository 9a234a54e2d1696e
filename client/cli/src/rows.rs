//! Lists of jobs, sessions, questions and turns as text for people.
//!
//! Pure: rows and the time in, text out. What others wrote goes through `output::safe`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use agentd_protocol::rows::{JobRow, QuestionRow, SessionPhase, SessionRow, TurnRow};
use agentd_protocol::work::JobPhase;
use serde_json::Value;

use super::output::safe;
use super::render::preview;
use super::value::relative;
use agentd_terminal::table::table;

/// `jobs` for people.
#[must_use]
pub fn jobs(rows: &[JobRow], now: i64) -> String {
    let labelled = rows.iter().any(|row| !row.labels.is_empty());
    let mut head = vec!["JOB", "STATE", "ACCEPTED", "AGENT", "SESSION"];
    if labelled {
        head.push("LABELS");
    }
    head.push("PROMPT");
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let mut cells = vec![
                row.job.to_string(),
                job_state(row, now),
                relative(&row.accepted_at, now),
                row.agent.clone(),
                row.session.clone(),
            ];
            if labelled {
                cells.push(labels(&row.labels));
            }
            cells.push(preview(&row.preview));
            cells
        })
        .collect();
    table(&head, &rows)
}

fn job_state(row: &JobRow, now: i64) -> String {
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
        (JobPhase::Running, ..) if row.attempt > 1 => format!("{phase} ({}.)", row.attempt),
        _ => phase.to_owned(),
    }
}

const fn phase(phase: JobPhase) -> &'static str {
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

fn labels(labels: &BTreeMap<String, String>) -> String {
    let shown: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if shown.is_empty() {
        "-".to_owned()
    } else {
        shown.join(" ")
    }
}

/// `sessions` for people.
#[must_use]
pub fn sessions(rows: &[SessionRow], now: i64) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let state = match row.state {
                SessionPhase::Idle => "idle",
                SessionPhase::Starting => "starting",
                SessionPhase::Working => "working",
                SessionPhase::Waiting => "waiting",
                SessionPhase::Held => "held",
            };
            vec![
                row.session.clone(),
                row.agent.clone(),
                state.to_owned(),
                row.turns.to_string(),
                relative(&row.last_active_at, now),
                row.model.clone().unwrap_or_else(|| "-".to_owned()),
                preview(&row.title),
            ]
        })
        .collect();
    table(
        &[
            "SESSION", "AGENT", "STATE", "TURNS", "ACTIVE", "MODEL", "TITLE",
        ],
        &rows,
    )
}

/// `questions` for people.
#[must_use]
pub fn questions(rows: &[QuestionRow], now: i64) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let options = if row.options.is_empty() {
                String::new()
            } else {
                format!(" ({})", row.options.join(", "))
            };
            vec![
                row.question_id.clone(),
                row.job.to_string(),
                row.session.clone(),
                row.kind.clone(),
                relative(&row.expires_at, now),
                preview(&format!("{}{options}", row.title)),
            ]
        })
        .collect();
    table(
        &["QUESTION", "JOB", "SESSION", "KIND", "EXPIRES", "TITLE"],
        &rows,
    )
}

/// One turn of `history` for people.
#[must_use]
pub fn turn(row: &TurnRow, now: i64) -> String {
    let state = phase(row.state);
    let mut shown = format!("{} {state}, {}\n", row.job, relative(&row.accepted_at, now));
    for line in row.text.trim_end().lines() {
        let _infallible = writeln!(shown, "> {line}");
    }
    if row.truncated {
        shown.push_str("> … (cut short)\n");
    }
    for of in &row.attachments {
        let name = of.name.as_deref().unwrap_or("attachment");
        let mime = of.mime.as_deref().unwrap_or("unknown");
        let bytes = of.bytes.unwrap_or(0);
        let _infallible = writeln!(shown, "> [{name}: {mime}, {bytes} bytes]");
    }
    for message in &row.messages {
        let _infallible = writeln!(shown, "{}", message.text.trim_end());
        if message.truncated {
            shown.push_str("… (cut short: `--full` shows all of it)\n");
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
        let _infallible = writeln!(shown, "failed ({code}): {error}");
    } else if let (true, Some(text)) = (row.messages.is_empty(), field("text")) {
        let _infallible = writeln!(shown, "{}", text.trim_end());
    }
    shown.push('\n');
    safe(&shown).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> i64 {
        agentd_protocol::request::unix_ms("2026-11-21T19:00:00Z").unwrap()
    }

    #[test]
    fn jobs_are_a_table_with_labels_if_any() {
        let plain = r#"{"job":"j2","session":"s2","agent":"pi","state":"failed","attempt":1,"preview":"two\nlines","accepted_at":"2026-11-21T18:58:00Z","code":"timeout"}"#;
        let labelled = r#"{"job":"j1","session":"main","agent":"pi","state":"queued","attempt":0,"preview":"one","labels":{"run":"7"},"accepted_at":"2026-11-21T18:00:00Z","start_at":"2026-11-21T20:00:00Z"}"#;
        let rows = |lines: &[&str]| -> Vec<JobRow> {
            let row = |line: &&str| serde_json::from_str(line).unwrap();
            lines.iter().map(row).collect()
        };
        assert_eq!(
            jobs(&rows(&[plain]), now()),
            "\
JOB  STATE             ACCEPTED   AGENT  SESSION  PROMPT
j2   failed (timeout)  2 min ago  pi     s2       two lines
"
        );
        assert_eq!(
            jobs(&rows(&[plain, labelled]), now()),
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
            sessions(&[serde_json::from_str(session).unwrap()], now()),
            "\
SESSION  AGENT  STATE  TURNS  ACTIVE    MODEL  TITLE
main     pi     held   3      10 s ago  -      fix it
"
        );
        let question = r#"{"question_id":"q1","job":"j1","session":"main","kind":"choice","title":"where to?","options":["a","b"],"expires_at":"2026-11-21T19:09:00Z"}"#;
        assert_eq!(
            questions(&[serde_json::from_str(question).unwrap()], now()),
            "\
QUESTION  JOB  SESSION  KIND    EXPIRES   TITLE
q1        j1   main     choice  in 9 min  where to? (a, b)
"
        );
    }

    #[test]
    fn turn_is_its_question_answer_and_end() {
        let row = r#"{"job":"j1","state":"failed","accepted_at":"2026-11-21T18:00:00Z","text":"a\nb","messages":[{"message":0,"text":"so\u001b far","truncated":true}],"final":{"type":"error","code":"timeout","error":"too long"}}"#;
        assert_eq!(
            turn(&serde_json::from_str(row).unwrap(), now()),
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
            turn(&serde_json::from_str(bare).unwrap(), now()),
            "j2 completed, 0 s ago\n> hi\nhello\n\n"
        );
    }
}
