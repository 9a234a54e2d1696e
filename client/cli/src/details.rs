//! All about one job, or one session.
//!
//! Owns what belongs to that, and how to go on from there. Must not know lists.

use std::fmt::Write as _;
use std::io;

use agentd_protocol::JobId;
use agentd_protocol::request::Wait;
use agentd_protocol::rows::{JobRow, SessionPhase, SessionRow};
use agentd_protocol::work::JobPhase;
use serde_json::{Value, json};

use super::closed::{self, Kept};
use super::exit::Exit;
use super::output::{self, safe};
use super::rows;
use super::value::{now_ms, relative, took};
use super::{ask, render, wording};
use agentd_client::asked::RequestError;
use agentd_client::client::{Client, Server};
use agentd_terminal::style::{Style, Tone};
use agentd_terminal::table::wrapped;

/// Lines of a prompt, and of an answer, that are shown.
const LINES: usize = 5;
/// Columns that the names of facts take.
const NAME: usize = 10;

/// What is known of a job.
struct JobFacts {
    row: JobRow,
    /// Whole, where the daemon tells it.
    prompt: Option<String>,
    last: Option<Value>,
    session: Kept,
    /// Only what is stored was read: no daemon runs anything.
    is_past: bool,
}

pub(super) async fn job(client: &mut Client, job: JobId, json: bool) -> io::Result<Exit> {
    let facts = match job_facts(client, job).await {
        Ok(Some(facts)) => facts,
        Ok(None) => {
            let hint = "`agentctl jobs` lists them; what ended long ago is forgotten";
            output::error(&format!("there is no job `{job}`"), Some(hint));
            return Ok(Exit::Usage);
        }
        Err(error) => return Ok(ask::tell(&error)),
    };
    if json {
        let JobFacts {
            row, prompt, last, ..
        } = facts;
        let prompt = prompt.unwrap_or_else(|| row.preview.clone());
        output::out_json(&json!({"job": row, "prompt": prompt, "final": last}).to_string())?;
    } else {
        output::out(&job_text(&facts, now_ms(), &Style::of_stdout()))?;
    }
    Ok(Exit::Done)
}

async fn job_facts(client: &mut Client, job: JobId) -> Result<Option<JobFacts>, RequestError> {
    let Some(row) = client.job(job).await? else {
        return Ok(None);
    };
    let last = match row.finished_at {
        Some(_) => {
            let none = Some(std::time::Duration::ZERO);
            let mut collected = client.collect(&[job], none, Wait::All).await?;
            collected.results.pop()
        }
        None => None,
    };
    let prompt = match client.session_history(&row.session, Some(job)).await {
        Ok(mut turns) => turns.pop().map(|turn| turn.text),
        // A daemon of before tells nothing of a session that was closed.
        Err(RequestError::Refused(_)) => None,
        Err(error) => return Err(error),
    };
    let session = closed::session_of(client, &row).await?;
    Ok(Some(JobFacts {
        row,
        prompt,
        last,
        session,
        is_past: matches!(client.server(), Server::OneShot(_)),
    }))
}

/// Facts under each other.
struct Facts<'a> {
    text: String,
    style: &'a Style,
}

impl Facts<'_> {
    fn add(&mut self, name: &str, value: &str) {
        let line = format!("{name:<NAME$}{}", safe(value));
        let line = wrapped(&line, &" ".repeat(NAME), self.style);
        let bold = self.style.paint(Tone::Faint, name);
        let rest = line.strip_prefix(name).unwrap_or(&line);
        let _infallible = writeln!(self.text, "{bold}{rest}");
    }

    fn when(&mut self, name: &str, time: &str, now: i64) {
        let short = time.get(..19).unwrap_or(time).replace('T', " ");
        self.add(name, &format!("{}, {short} UTC", relative(time, now)));
    }

    /// The first lines of a text.
    fn beginning(&mut self, name: &str, text: &str) {
        let mut lines = text.trim().lines();
        for (number, line) in lines.by_ref().take(LINES).enumerate() {
            let name = if number == 0 { name } else { "" };
            self.add(name, &render::preview_in(line, self.style));
        }
        match lines.count() {
            0 => {}
            more => {
                let more = output::counted(more as u64, "more line");
                self.add("", &format!("{} ({more})", self.style.ellipsis()));
            }
        }
    }
}

fn job_text(facts: &JobFacts, now: i64, style: &Style) -> String {
    let JobFacts {
        row,
        prompt,
        last,
        session,
        is_past,
    } = facts;
    let field = |name: &str| last.as_ref().and_then(|last| last.get(name));
    let word = |name: &str| field(name).and_then(Value::as_str);
    let number = |name: &str| field(name).and_then(Value::as_u64);
    let job = style.paint(Tone::Head, &row.job.to_string());
    let state = style.paint(rows::tone(row.state), &safe(&rows::job_state(row, now)));
    // How long a turn ran that its daemon didn't outlive, nobody knows: its final line says 0.
    let is_known = |ms: &u64| *ms > 0 || row.state != JobPhase::Interrupted;
    let ran = number("duration_ms").filter(is_known);
    let text = match ran.filter(|_| last.is_some()) {
        Some(ms) => format!("{job} {state} after {}\n", took(ms)),
        None => format!("{job} {state}\n"),
    };
    let mut shown = Facts { text, style };
    shown.beginning("prompt", prompt.as_ref().unwrap_or(&row.preview));
    let model = match (word("provider"), word("model")) {
        (Some(provider), Some(model)) => format!(" ({provider}/{model})"),
        (None, Some(model)) => format!(" ({model})"),
        _ => String::new(),
    };
    shown.add("agent", &format!("{}{model}", row.agent));
    match session {
        Kept::Open => shown.add("session", &row.session),
        Kept::Closed => shown.add("session", &format!("{} (closed)", row.session)),
    }
    shown.when("accepted", &row.accepted_at, now);
    if let Some(start) = &row.start_at {
        shown.when("start", start, now);
    }
    if let Some(ms) = number("queued_ms").filter(|ms| *ms >= 1_000) {
        shown.add("waited", &took(ms));
    }
    if let Some(finished) = &row.finished_at {
        shown.when("ended", finished, now);
    }
    if row.attempt > 1 {
        shown.add("attempt", &row.attempt.to_string());
    }
    if !row.labels.is_empty() {
        shown.add("labels", &rows::labels(&row.labels));
    }
    if let Some(parent) = row.parent {
        shown.add("parent", &parent.to_string());
    }
    if let Some(usage) = field("usage").filter(|usage| usage.is_object()) {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        let (input, output) = (count("input_tokens"), count("output_tokens"));
        shown.add("tokens", &format!("{input} in, {output} out"));
    }
    if let Some(usd) = field("cost").and_then(|cost| cost.get("usd")?.as_f64()) {
        shown.add("cost", &format!("${usd:.4}"));
    }
    if let Some(tools) = field("tool_trace").and_then(Value::as_array)
        && !tools.is_empty()
    {
        shown.add("tools", &output::counted(tools.len() as u64, "call"));
    }
    if let Some(error) = word("error") {
        shown.add("error", &wording::error(error));
    }
    if let Some(answer) = word("text").filter(|text| !text.trim().is_empty()) {
        shown.beginning("answer", answer);
    }
    if *is_past && row.finished_at.is_none() {
        let said =
            "no daemon is there for it: the next one runs it, or says that it was interrupted";
        shown.add("note", said);
        shown.add("go on", "agentctl start");
        return shown.text;
    }
    for go_on in go_on(row, *session) {
        shown.add("go on", &go_on);
    }
    shown.text
}

/// What somebody may want to do next.
fn go_on(row: &JobRow, kept: Kept) -> Vec<String> {
    let (job, session) = (row.job, &row.session);
    match row.state {
        JobPhase::Completed if kept == Kept::Closed => vec![
            format!("agentctl history {session} --job {job} --full"),
            format!("agentctl retry {job}"),
        ],
        JobPhase::Queued => vec![
            format!("agentctl attach {job}"),
            format!("agentctl abort {job}"),
        ],
        JobPhase::Held => vec![
            format!("agentctl sessions resume {session}"),
            format!("agentctl abort {job}"),
        ],
        JobPhase::Running => vec![
            format!("agentctl attach {job}"),
            format!("agentctl abort {job}"),
        ],
        JobPhase::Completed => vec![
            format!("agentctl history {session} --job {job} --full"),
            format!("agentctl send --session {session} TEXT"),
        ],
        JobPhase::Cancelled | JobPhase::Failed | JobPhase::Interrupted => vec![
            format!("agentctl history {session} --job {job} --full"),
            format!("agentctl retry {job}"),
        ],
    }
}

pub(super) async fn session(client: &mut Client, name: &str, json: bool) -> io::Result<Exit> {
    let found = client
        .session_named(name)
        .await
        .map_err(|error| ask::tell(&error))?;
    let Some(row) = found else {
        let hint = "`agentctl sessions` lists them";
        output::error(&format!("there is no session `{}`", safe(name)), Some(hint));
        return Ok(Exit::Usage);
    };
    if json {
        output::out_json(&json!(row).to_string())?;
    } else {
        output::out(&session_text(&row, now_ms(), &Style::of_stdout()))?;
    }
    Ok(Exit::Done)
}

fn session_text(row: &SessionRow, now: i64, style: &Style) -> String {
    let (state, tone) = rows::session_state(row.state);
    let name = style.paint(Tone::Head, &safe(&row.session));
    let state = style.paint(tone, state);
    let turns = output::counted(row.turns, "turn");
    let mut shown = Facts {
        text: format!("{name} {state}, {turns}\n"),
        style,
    };
    shown.add("agent", &row.agent);
    if let Some(model) = &row.model {
        shown.add("model", model);
    }
    shown.add("directory", &row.cwd);
    shown.when("made", &row.created_at, now);
    shown.when("used", &row.last_active_at, now);
    for (name, text) in [("first", &row.title), ("last", &row.preview)] {
        if !text.is_empty() {
            shown.add(name, text);
        }
    }
    let session = &row.session;
    let next = match row.state {
        SessionPhase::Closed => format!("agentctl history {session}"),
        SessionPhase::Idle
        | SessionPhase::Starting
        | SessionPhase::Working
        | SessionPhase::Waiting
        | SessionPhase::Held => format!("agentctl send --session {session} TEXT"),
    };
    shown.add("go on", &next);
    shown.text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_details_say_what_and_how_on() {
        let row = r#"{"job":"j4","session":"main","agent":"pi","state":"failed","attempt":1,"preview":"fix","accepted_at":"2026-11-21T18:58:00.250Z","finished_at":"2026-11-21T18:59:00Z","code":"timeout"}"#;
        let last = r#"{"type":"error","job":"j4","code":"timeout","error":"too\u001b long","provider":"a","model":"b","usage":{"input_tokens":5,"output_tokens":1},"cost":{"usd":0.5,"status":"actual"},"queued_ms":0,"duration_ms":61000,"tool_trace":[{}],"text":""}"#;
        let facts = JobFacts {
            row: serde_json::from_str(row).unwrap(),
            prompt: Some("1\n2\n3\n4\n5\n6\n7".to_owned()),
            last: Some(serde_json::from_str(last).unwrap()),
            session: Kept::Open,
            is_past: false,
        };
        let now = agentd_protocol::request::unix_ms("2026-11-21T19:00:00Z").unwrap();
        assert_eq!(
            job_text(&facts, now, &Style::PLAIN),
            "\
j4 failed (timeout) after 1 min 1 s
prompt    1
          2
          3
          4
          5
          … (2 more lines)
agent     pi (a/b)
session   main
accepted  1 min ago, 2026-11-21 18:58:00 UTC
ended     1 min ago, 2026-11-21 18:59:00 UTC
tokens    5 in, 1 out
cost      $0.5000
tools     1 call
error     too\\u{1b} long
go on     agentctl history main --job j4 --full
go on     agentctl retry j4
"
        );
    }

    #[test]
    fn job_details_leave_out_a_time_nobody_knows() {
        let row = r#"{"job":"j4","session":"main","agent":"pi","state":"interrupted","attempt":1,"preview":"fix","accepted_at":"2026-11-21T18:58:00.250Z","code":"interrupted"}"#;
        let last = r#"{"type":"error","job":"j4","code":"interrupted","error":"died","queued_ms":0,"duration_ms":0,"text":""}"#;
        let facts = |ms: u64, session| JobFacts {
            is_past: false,
            row: serde_json::from_str(row).unwrap(),
            prompt: None,
            last: serde_json::from_str(
                &last.replace(r#"_ms":0,"text"#, &format!(r#"_ms":{ms},"text"#)),
            )
            .unwrap(),
            session,
        };
        let shown = |ms, session| job_text(&facts(ms, session), 0, &Style::PLAIN);
        let dead = shown(0, Kept::Closed);
        assert!(dead.starts_with("j4 interrupted\n"), "{dead}");
        assert!(dead.contains("session   main (closed)\n"), "{dead}");
        let stopped = shown(2_000, Kept::Open);
        assert!(
            stopped.starts_with("j4 interrupted after 2 s\n"),
            "{stopped}"
        );
    }
}
