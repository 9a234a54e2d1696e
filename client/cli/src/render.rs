//! Lines of the protocol as text for people.
//!
//! Pure: a line in, text out. Must not know streams, time or the connection. What workers wrote goes
//! through `output::safe` before it reaches a terminal, here or at the caller's.

mod agents;
mod kept;
mod status;

use std::fmt::Write as _;
use std::time::Duration;

use agentd_protocol::line::Level;
use agentd_protocol::spoken::span as said;
use agentd_protocol::{JobId, Line};

use serde_json::Value;

use super::output::safe;
use super::wording;
use agentd_terminal::style::Style;

pub use agents::{DefaultBy, Shown, agents};
pub use status::{status, status_rpc};

/// Longest piece of text in a one-line view.
const PREVIEW: usize = 100;

/// One result of `collect`: a final line as stored.
#[must_use]
pub fn result(line: &Value) -> String {
    let field = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or("");
    let job = safe(field("job"));
    let text = safe(field("text"));
    if field("type") == "error" {
        let mut shown = format!(
            "{job} failed ({}): {}\n",
            safe(field("code")),
            safe(&wording::error(field("error")))
        );
        let trace = line.get("tool_trace").and_then(Value::as_array);
        for tool in trace.into_iter().flatten() {
            let _ = writeln!(shown, "  had done: {}", tool_done(tool));
        }
        if !text.is_empty() {
            let _ = writeln!(shown, "{}", text.trim_end());
        }
        return shown;
    }
    let stop = field("stop");
    let how = if stop == "end_turn" || stop.is_empty() {
        "done".to_owned()
    } else {
        safe(stop).into_owned()
    };
    let agent = match field("agent") {
        "" => String::new(),
        agent => format!(" ({})", safe(agent)),
    };
    format!("{job} {how}{agent}\n{}\n", text.trim_end())
}

/// A tool call of a turn that failed: what it may have changed.
fn tool_done(tool: &Value) -> String {
    let name = tool.get("name").and_then(Value::as_str).unwrap_or("?");
    let input = tool.get("input").map_or_else(String::new, Value::to_string);
    let how = match tool.get("ok").and_then(Value::as_bool) {
        Some(true) => "ok",
        Some(false) => "failed",
        None => "did not end",
    };
    preview(&format!("{name} {input}, {how}"))
}

/// A note as it stands on standard error; none for what only explains itself in `watch`.
#[must_use]
pub fn side_note(line: &Line) -> Option<String> {
    match line {
        Line::Note {
            level: Level::Warning,
            text,
            ..
        } => Some(text.clone()),
        Line::Note { text, code, .. } if code == "steered" => {
            Some(format!("the turn was told: {text}"))
        }
        Line::Note {
            level: Level::Info,
            text,
            code,
            ..
        } if code != "debug" => Some(text.clone()),
        Line::Question { title, kind, .. } => Some(format!("the agent asks ({kind}): {title}")),
        Line::Accepted(accepted) if accepted.drained && accepted.ignored.is_empty() => {
            Some(format!(
                "the daemon is drained and starts no turns: {} waits until `agentctl undrain`, or for \
             the next daemon",
                accepted.job
            ))
        }
        Line::Accepted(accepted) if !accepted.ignored.is_empty() => {
            let names: Vec<&str> = accepted
                .ignored
                .iter()
                .map(|one| one.field.as_str())
                .collect();
            Some(format!(
                "the daemon does not know and ignored: {}",
                names.join(", ")
            ))
        }
        _ => None,
    }
}

/// What to do about a job that is held, which is waited for in vain until somebody releases it.
#[must_use]
pub fn of_held(job: JobId, session: &str) -> String {
    let session = safe(session);
    format!("`agentctl sessions resume {session}` runs it, `agentctl abort {job}` ends it")
}

/// The first line of a text, shortened and safe.
#[must_use]
pub fn preview(text: &str) -> String {
    preview_in(text, &Style::PLAIN)
}

/// The same, for whoever may have ASCII alone.
#[must_use]
pub fn preview_in(text: &str, style: &Style) -> String {
    let flat: String = text
        .trim()
        .chars()
        .map(|c| if c == '\n' { ' ' } else { c })
        .collect();
    let mut shown: String = safe(&flat).chars().take(PREVIEW + 1).collect();
    if shown.chars().count() > PREVIEW {
        shown = shown.chars().take(PREVIEW).collect();
        shown.push_str(style.ellipsis());
    }
    shown
}

/// Of a question that nobody answered in time.
pub(super) const EXPIRED: &str = "nobody answered in time, which is no answer of the user's";

/// What closed a question, and with which answer.
pub(super) fn closed(by: &str, answer: Option<&str>) -> String {
    match (by, answer) {
        ("expiry", _) => format!("{by}: {EXPIRED}"),
        (by, Some(answer)) => format!("{}: {}", safe(by), safe(answer)),
        (by, None) => safe(by).into_owned(),
    }
}

pub(super) fn span(seconds: u64) -> String {
    // Of a second that isn't over nobody counts milliseconds here.
    if seconds == 0 {
        return "0 s".to_owned();
    }
    said(Duration::from_secs(seconds))
}

pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = bytes * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_its_text_or_its_error() {
        let shown = |json: &str| result(&serde_json::from_str(json).unwrap());
        assert_eq!(
            shown(
                r#"{"type":"message_end","job":"j1","agent":"pi","stop":"end_turn","text":"hi\n"}"#
            ),
            "j1 done (pi)\nhi\n"
        );
        assert_eq!(
            shown(r#"{"type":"error","job":"j2","code":"timeout","error":"too long","text":"so"}"#),
            "j2 failed (timeout): too long\nso\n"
        );
        assert_eq!(
            shown(
                r#"{"type":"error","job":"j3","code":"interrupted","error":"the daemon died","tool_trace":[{"name":"bash","input":{"command":"ls"},"ok":true},{"name":"rm","input":{},"ok":null}]}"#
            ),
            "\
j3 failed (interrupted): the daemon died
  had done: bash {\"command\":\"ls\"}, ok
  had done: rm {}, did not end
"
        );
    }

    #[test]
    fn sizes_and_spans_are_short() {
        assert_eq!(
            [size(0), size(1536), size(3 << 30)],
            ["0 B", "1.5 KiB", "3.0 GiB"]
        );
        assert_eq!(
            [span(59), span(60), span(90_000)],
            ["59 s", "1 min", "1 d 1 h"]
        );
    }
}
