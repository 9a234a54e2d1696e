//! All about one job, or one session.
//!
//! Owns what belongs to that, and how to go on from there. Must not know lists.

use std::fmt::Write as _;
use std::io;

use agentd_protocol::JobId;
use agentd_protocol::request::Wait;
use agentd_protocol::rows::{JobRow, SessionPhase, SessionRow};
use agentd_protocol::work::{JobPhase, Jobs};
use serde_json::{Value, json};

use super::attach::RETRY_OF;
use super::closed::{self, Kept};
use super::exit::Exit;
use super::output::{self, safe};
use super::rows;
use super::usage::short;
use super::value::{now_ms, relative, took};
use super::{ask, render, route, typed, wording};
use agentd_client::asked::RequestError;
use agentd_client::client::{Client, Server};
use agentd_client::jobs::JobPages;
use agentd_terminal::style::{Style, Tone};
use agentd_terminal::table::wrapped;

/// Lines of a prompt that are shown: mostly that is all of it.
const LINES_OF_PROMPT: usize = 40;
/// Bytes of it, too: one line may be a book.
const BYTES_OF_PROMPT: usize = 4096;
/// Lines of an answer, each as it begins.
const LINES_OF_ANSWER: usize = 5;
/// Columns that the names of facts take.
const NAME: usize = 10;

/// What is known of a job.
struct JobFacts {
    row: JobRow,
    /// Whole, where the daemon tells it.
    prompt: Option<String>,
    last: Option<Value>,
    /// The newest job that sends it again.
    retried: Option<JobId>,
    /// Of one that is held: the interrupted one before it.
    held_by: Option<JobId>,
    /// Of one that runs: the question that it waits with.
    asks: Option<String>,
    session: Kept,
    /// Where nobody runs anything, and only what is stored was read.
    alone: Option<NoDaemon>,
    /// The options that say which daemon, as they were typed.
    there: String,
}

/// No daemon runs.
struct NoDaemon {
    /// On which other machine.
    host: Option<String>,
}

impl NoDaemon {
    fn of(client: &Client) -> Option<Self> {
        let host = match client.server() {
            Server::Remote(remote) => Some(remote.target().to_string()),
            Server::Daemon(_) | Server::OneShot(_) => None,
        };
        client.is_alone().then_some(Self { host })
    }
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
    let again = Jobs {
        label: Some(format!("{RETRY_OF}={job}")),
        limit: Some(1),
        ..Jobs::default()
    };
    let mut pages = JobPages::new(again);
    let again = match row.finished_at {
        Some(_) => pages.next(client).await?,
        None => None,
    };
    let held_by = match row.state {
        JobPhase::Held => interrupted_before(client, &row).await?,
        _ => None,
    };
    let asks = match row.doing {
        Some(_) => question_of(client, &row).await?,
        None => None,
    };
    Ok(Some(JobFacts {
        held_by,
        asks,
        retried: again.and_then(|page| Some(page.value.first()?.job)),
        row,
        prompt,
        last,
        session,
        alone: NoDaemon::of(client),
        there: typed::which_daemon(),
    }))
}

async fn interrupted_before(
    client: &mut Client,
    held: &JobRow,
) -> Result<Option<JobId>, RequestError> {
    let before = Jobs {
        session: Some(held.session.clone()),
        state: Some(JobPhase::Interrupted),
        before: Some(held.job),
        limit: Some(1),
        ..Jobs::default()
    };
    Ok(client.jobs(before).await?.first().map(|row| row.job))
}

async fn question_of(client: &mut Client, job: &JobRow) -> Result<Option<String>, RequestError> {
    let open = client.questions(Some(&job.session)).await?.value;
    let mut of_it = open.into_iter().filter(|question| question.job == job.job);
    Ok(of_it.next().map(|question| question.question_id))
}

/// Facts under each other.
struct Facts<'a> {
    text: String,
    style: &'a Style,
}

impl Facts<'_> {
    /// Each line of the value stands below the first.
    fn add(&mut self, name: &str, value: &str) {
        let value = safe(value);
        let mut lines = value.lines();
        self.row(name, lines.next().unwrap_or_default());
        for line in lines {
            self.row("", line);
        }
    }

    fn row(&mut self, name: &str, value: &str) {
        let line = format!("{name:<NAME$}{value}");
        let line = wrapped(&line, &" ".repeat(NAME), self.style);
        let bold = self.style.paint(Tone::Faint, name);
        let rest = line.strip_prefix(name).unwrap_or(&line);
        let _infallible = writeln!(self.text, "{bold}{}", rest.trim_end());
    }

    fn when(&mut self, name: &str, time: &str, now: i64) {
        let short = time.get(..19).unwrap_or(time).replace('T', " ");
        self.add(name, &format!("{}, {short} UTC", relative(time, now)));
    }

    fn route(&mut self, row: &JobRow) {
        let routed = row.routed.iter();
        routed.for_each(|routed| self.add("route", &route::in_a_line(routed)));
    }

    /// A text with its lines; of a long one as much as fits, and the command that shows all.
    fn whole(&mut self, name: &str, text: &str, shows_all: &str) {
        let text = text.trim_end();
        let within = &text[..text.floor_char_boundary(BYTES_OF_PROMPT)];
        let mut lines = within.lines();
        let shown: Vec<&str> = lines.by_ref().take(LINES_OF_PROMPT).collect();
        self.add(name, &shown.join("\n"));
        if within.len() < text.len() || lines.next().is_some() {
            let ellipsis = self.style.ellipsis();
            self.add("", &format!("{ellipsis} (`{shows_all}` shows all of it)"));
        }
    }

    /// The first lines of a text, and the command that shows all where that isn't all.
    fn beginning(&mut self, name: &str, text: &str, shows_all: &str) {
        let mut lines = text.trim().lines();
        let mut is_cut = false;
        for (number, line) in lines.by_ref().take(LINES_OF_ANSWER).enumerate() {
            let name = if number == 0 { name } else { "" };
            let shown = render::preview_in(line, self.style);
            let ellipsis = self.style.ellipsis();
            is_cut |= shown.ends_with(ellipsis) && !line.trim_end().ends_with(ellipsis);
            self.add(name, &shown);
        }
        let more = lines.count();
        let ellipsis = self.style.ellipsis();
        if more > 0 {
            let more = output::counted(more as u64, "more line");
            self.add(
                "",
                &format!("{ellipsis} ({more}; `{shows_all}` shows all of it)"),
            );
        } else if is_cut {
            self.add("", &format!("{ellipsis} (`{shows_all}` shows all of it)"));
        }
    }
}

impl Facts<'_> {
    /// What can be done next.
    fn goes_on(&mut self, facts: &JobFacts) {
        let JobFacts {
            row,
            session,
            alone,
            there,
            ..
        } = facts;
        if let Some(job) = facts.held_by {
            self.add("held by", &format!("{job}, which was interrupted"));
        }
        if let Some(question) = &facts.asks {
            self.add("go on", &format!("agentctl{there} answer {question}"));
        }
        let Some(alone) = alone.as_ref().filter(|_| row.finished_at.is_none()) else {
            for go_on in go_on(row, *session, &format!("agentctl{there}")) {
                self.add("go on", &go_on);
            }
            return;
        };
        let (place, start) = match &alone.host {
            Some(host) => (
                format!("runs on `{host}`"),
                format!("ssh {host} agentctl start"),
            ),
            None => ("is there".to_owned(), "agentctl start".to_owned()),
        };
        let next = "the next one runs it, or says that it was interrupted";
        self.add("note", &format!("no daemon {place} for it: {next}"));
        self.add("go on", &start);
    }
}

fn job_text(facts: &JobFacts, now: i64, style: &Style) -> String {
    let JobFacts {
        row,
        prompt,
        last,
        session,
        there,
        ..
    } = facts;
    let field = |name: &str| last.as_ref().and_then(|last| last.get(name));
    let word = |name: &str| field(name).and_then(Value::as_str);
    let number = |name: &str| field(name).and_then(Value::as_u64);
    let job = style.paint(Tone::Head, &row.job.to_string());
    let state = style.paint(rows::tone_of(row), &safe(&rows::job_state(row, now)));
    // How long a turn ran that its daemon didn't outlive, nobody knows: its final line says 0.
    let is_known = |ms: &u64| *ms > 0 || row.state != JobPhase::Interrupted;
    let ran = number("duration_ms").filter(is_known);
    let text = match ran.filter(|_| last.is_some()) {
        Some(ms) => format!("{job} {state} after {}\n", took(ms)),
        None => format!("{job} {state}\n"),
    };
    let mut shown = Facts { text, style };
    row.doing.iter().for_each(|doing| shown.add("doing", doing));
    let all = format!("agentctl{there} history --job {} --full", row.job);
    shown.whole("prompt", prompt.as_ref().unwrap_or(&row.preview), &all);
    let model = match (word("provider"), word("model")) {
        (Some(provider), Some(model)) => format!(" ({provider}/{model})"),
        (None, Some(model)) => format!(" ({model})"),
        _ => String::new(),
    };
    shown.add("agent", &format!("{}{model}", row.agent));
    shown.route(row);
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
    if let Some(retried) = facts.retried {
        shown.add("retried", &format!("as {retried}"));
    }
    if let Some(usage) = field("usage").filter(|usage| usage.is_object()) {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        let (input, output) = (count("input_tokens"), count("output_tokens"));
        shown.add("tokens", &format!("{input} in, {output} out"));
    }
    if let Some(context) = context(number("context_tokens"), number("context_window")) {
        shown.add("context", &context);
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
        shown.beginning("answer", answer, &all);
    }
    shown.goes_on(facts);
    shown.text
}

/// How full a session's context is.
fn context(tokens: Option<u64>, window: Option<u64>) -> Option<String> {
    let tokens = tokens?;
    let used = short(tokens);
    let Some(window) = window.filter(|window| *window > 0) else {
        return Some(format!("{used} tokens"));
    };
    let percent = tokens.saturating_mul(100) / window;
    Some(format!("{used} of {} tokens ({percent} %)", short(window)))
}

/// What somebody may want to do next.
fn go_on(row: &JobRow, kept: Kept, agentctl: &str) -> Vec<String> {
    let (job, session) = (row.job, &row.session);
    match row.state {
        JobPhase::Completed if kept == Kept::Closed => vec![
            format!("{agentctl} history {session} --job {job} --full"),
            format!("{agentctl} retry {job}"),
        ],
        JobPhase::Queued => vec![
            format!("{agentctl} attach {job}"),
            format!("{agentctl} abort {job}"),
        ],
        JobPhase::Held => vec![
            format!("{agentctl} sessions resume {session}"),
            format!("{agentctl} abort {job}"),
        ],
        JobPhase::Running => vec![
            format!("{agentctl} attach {job}"),
            format!("{agentctl} abort {job}"),
        ],
        JobPhase::Completed => vec![
            format!("{agentctl} history {session} --job {job} --full"),
            format!("{agentctl} send --session {session} TEXT"),
        ],
        JobPhase::Cancelled | JobPhase::Failed | JobPhase::Interrupted => vec![
            format!("{agentctl} history {session} --job {job} --full"),
            format!("{agentctl} retry {job}"),
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
        let there = typed::which_daemon();
        output::out(&session_text(&row, &there, now_ms(), &Style::of_stdout()))?;
    }
    Ok(Exit::Done)
}

fn session_text(row: &SessionRow, there: &str, now: i64, style: &Style) -> String {
    let (state, tone) = rows::session_state(row.state);
    let name = style.paint(Tone::Head, &safe(row.name()));
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
    if let Some(context) = context(row.context_tokens, row.context_window) {
        shown.add("context", &context);
    }
    shown.add("directory", &row.cwd);
    shown.when("made", &row.created_at, now);
    shown.when("used", &row.last_active_at, now);
    for (name, text) in [("first", &row.title), ("last", &row.preview)] {
        if !text.is_empty() {
            shown.add(name, text);
        }
    }
    let session = row.name();
    let next = match row.state {
        SessionPhase::Closed => format!("agentctl{there} history {session}"),
        SessionPhase::Idle
        | SessionPhase::Starting
        | SessionPhase::Working
        | SessionPhase::Waiting => format!("agentctl{there} send --session {session} TEXT"),
        SessionPhase::Held => format!("agentctl{there} sessions resume {session}"),
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
        let last = r#"{"type":"error","job":"j4","code":"timeout","error":"too\u001b long","provider":"a","model":"b","context_tokens":30000,"context_window":200000,"usage":{"input_tokens":5,"output_tokens":1},"cost":{"usd":0.5,"status":"actual"},"queued_ms":0,"duration_ms":61000,"tool_trace":[{}],"text":""}"#;
        let facts = JobFacts {
            row: serde_json::from_str(row).unwrap(),
            prompt: Some("1\n  2\n\n4".to_owned()),
            last: Some(serde_json::from_str(last).unwrap()),
            held_by: None,
            asks: None,
            retried: Some("j9".parse().unwrap()),
            session: Kept::Open,
            alone: None,
            there: String::new(),
        };
        let now = agentd_protocol::request::unix_ms("2026-11-21T19:00:00Z").unwrap();
        assert_eq!(
            job_text(&facts, now, &Style::PLAIN),
            "\
j4 failed (timeout) after 1 min 1 s
prompt    1
            2

          4
agent     pi (a/b)
session   main
accepted  1 min ago, 2026-11-21 18:58:00 UTC
ended     1 min ago, 2026-11-21 18:59:00 UTC
retried   as j9
tokens    5 in, 1 out
context   30k of 200k tokens (15 %)
cost      $0.5000
tools     1 call
error     too\\u{1b} long
go on     agentctl history main --job j4 --full
go on     agentctl retry j4
"
        );
    }

    #[test]
    fn job_details_show_prompts_whole_or_say_how() {
        let shown = |prompt: &str| {
            let mut facts = Facts {
                text: String::new(),
                style: &Style::PLAIN,
            };
            facts.whole("prompt", prompt, "agentctl history --job j4 --full");
            facts.text
        };
        let long = "word ".repeat(100);
        assert_eq!(shown(&long), format!("prompt    {}\n", long.trim_end()));
        let rest = "\n          … (`agentctl history --job j4 --full` shows all of it)\n";
        let lines = "line\n".repeat(41);
        assert_eq!(shown(&lines).lines().count(), 41);
        assert!(shown(&lines).ends_with(rest), "{}", shown(&lines));
        assert!(!shown(&"line\n".repeat(40)).contains("shows all"));
        assert!(shown(&"ü".repeat(3000)).ends_with(rest));
    }

    #[test]
    fn job_details_say_how_to_see_long_answers() {
        let shown = |answer: &str| {
            let mut facts = Facts {
                text: String::new(),
                style: &Style::PLAIN,
            };
            facts.beginning("answer", answer, "agentctl history --job j4 --full");
            facts.text
        };
        let shows = "`agentctl history --job j4 --full` shows all of it)\n";
        assert!(!shown("short").contains("shows all"));
        assert!(!shown("it goes on …").contains("shows all"));
        let lines = shown(&"line\n".repeat(8));
        assert!(
            lines.ends_with(&format!("(3 more lines; {shows}")),
            "{lines}"
        );
        let long = shown(&"word ".repeat(200));
        assert!(long.ends_with(&format!("({shows}")), "{long}");
    }

    #[test]
    fn job_without_a_daemon_names_its_machine() {
        let row = r#"{"job":"j4","session":"main","agent":"pi","state":"queued","attempt":1,"preview":"fix","accepted_at":"2026-11-21T18:58:00.250Z"}"#;
        for (host, note, start) in [
            (None, "no daemon is there for it", "agentctl start"),
            (
                Some("me@mac"),
                "no daemon runs on `me@mac` for it",
                "ssh me@mac agentctl start",
            ),
        ] {
            let facts = JobFacts {
                row: serde_json::from_str(row).unwrap(),
                prompt: None,
                last: None,
                retried: None,
                held_by: None,
                asks: None,
                session: Kept::Open,
                alone: Some(NoDaemon {
                    host: host.map(str::to_owned),
                }),
                there: String::new(),
            };
            let shown = job_text(&facts, 0, &Style::PLAIN);
            assert!(shown.contains(note), "{shown}");
            assert!(shown.ends_with(&format!("go on     {start}\n")), "{shown}");
        }
    }

    #[test]
    fn job_details_leave_out_a_time_nobody_knows() {
        let row = r#"{"job":"j4","session":"main","agent":"pi","state":"interrupted","attempt":1,"preview":"fix","accepted_at":"2026-11-21T18:58:00.250Z","code":"interrupted"}"#;
        let last = r#"{"type":"error","job":"j4","code":"interrupted","error":"died","queued_ms":0,"duration_ms":0,"text":""}"#;
        let facts = |ms: u64, session| JobFacts {
            alone: None,
            there: String::new(),
            retried: None,
            held_by: None,
            asks: None,
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
