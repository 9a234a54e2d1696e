//! Lines of the protocol as text for people.
//!
//! Pure: a line in, text out. Must not know streams, time or the connection. What workers wrote goes
//! through `output::safe` before it reaches a terminal, here or at the caller's.

mod kept;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use agentd_protocol::Line;
use agentd_protocol::line::{
    AgentRow, DaemonState, Level, MemoryFacts, RpcFacts, StatusAnswer, WorkerRow, WorkerState,
};
use agentd_protocol::spoken::span as said;

use serde_json::Value;

use super::output::{counted, safe};
use agentd_terminal::table::table;

/// Longest piece of text in a one-line view.
const PREVIEW: usize = 100;

/// `status` for people.
#[must_use]
pub fn status(answer: &StatusAnswer) -> String {
    let mut shown = format!("{}\n", safe(&answer.details));
    let daemon = &answer.daemon;
    let state = match answer.state {
        DaemonState::Ready => "ready",
        DaemonState::Degraded => "degraded",
        DaemonState::Draining => "draining",
    };
    let rss = daemon
        .rss_bytes
        .map_or_else(String::new, |bytes| format!(", {}", size(bytes)));
    let files = match (daemon.open_files, daemon.file_limit) {
        (Some(open), Some(limit)) => format!(", {open} of {limit} files open"),
        _ => String::new(),
    };
    let _ = writeln!(
        shown,
        "daemon   {state}, version {}, pid {}, up {}{rss}{files}",
        safe(&daemon.version),
        daemon.pid,
        span(daemon.uptime_s),
    );
    let rpc = &answer.rpc;
    shown.push_str(&turns(rpc));
    shown.push_str(&crashes(rpc));
    if rpc.pool_hits + rpc.pool_misses > 0 {
        let (hits, misses) = (rpc.pool_hits, rpc.pool_misses);
        let misses = if misses == 1 {
            "1 miss".to_owned()
        } else {
            format!("{misses} misses")
        };
        let _ = write!(shown, "\npool     {}, {misses}", counted(hits, "hit"));
    }
    shown.push_str(&kept::spares(answer));
    shown.push_str(&kept::config(answer));
    if !rpc.clients.is_empty() {
        let _ = write!(shown, "\nclients  {}", clients(&rpc.clients));
    }
    let store = &answer.store;
    let _ = writeln!(
        shown,
        "\nstore    {}, {}, {} + {} log",
        counted(store.jobs, "job"),
        counted(store.events, "event"),
        size(store.bytes),
        size(store.wal_bytes),
    );
    for (name, budget) in answer.memory.iter().flat_map(MemoryFacts::budgets) {
        // What is far from its limit is of no interest here.
        if budget.bytes > budget.limit / 4 {
            let (bytes, limit) = (size(budget.bytes), size(budget.limit));
            let _ = writeln!(shown, "memory   {name}: {bytes} of {limit}");
        }
    }
    if answer.questions > 0 {
        let open = counted(answer.questions, "open question");
        let _ = writeln!(shown, "waiting  {open}");
    }
    if let Some(workers) = answer
        .workers
        .as_ref()
        .filter(|workers| !workers.is_empty())
    {
        shown.push('\n');
        shown.push_str(&table(
            &[
                "AGENT",
                "SESSION",
                "STATE",
                "PID",
                "UP",
                "RESTARTS",
                "QUEUED",
                "LAST ERROR",
            ],
            &workers.iter().map(worker).collect::<Vec<_>>(),
        ));
    }
    shown
}

/// How many there were, and how long they took.
fn turns(rpc: &RpcFacts) -> String {
    let mut shown = format!(
        "turns    {} in flight, {} sent, {} failed, {}, {}",
        rpc.in_flight,
        rpc.sends,
        rpc.failures,
        counted(rpc.fallbacks, "fallback"),
        counted(rpc.restarts, "restart")
    );
    if let (Some(p50), Some(p95)) = (rpc.p50_ms, rpc.p95_ms) {
        let _ = write!(shown, ", p50 {p50} ms, p95 {p95} ms");
    }
    shown
}

/// The last process that crashed, with a newline before it.
fn crashes(rpc: &RpcFacts) -> String {
    let Some(last) = rpc.last_crashes.first() else {
        return String::new();
    };
    let (agent, error) = (safe(&last.agent), preview(&last.error));
    format!(
        "\ncrashes  {}, the last at {}: `{agent}` {error}",
        rpc.crashes,
        safe(&last.at)
    )
}

fn worker(row: &WorkerRow) -> Vec<String> {
    let state = worker_state(row.state);
    vec![
        row.agent.clone(),
        row.session.clone().unwrap_or_else(|| "-".to_owned()),
        state.to_owned(),
        row.pid
            .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
        span(row.uptime_s),
        row.restarts.to_string(),
        row.queued.to_string(),
        row.last_error
            .as_ref()
            .or(row.last_exit.as_ref())
            .map_or_else(|| "-".to_owned(), |text| preview(text)),
    ]
}

const fn worker_state(state: WorkerState) -> &'static str {
    match state {
        WorkerState::Starting => "starting",
        WorkerState::Idle => "idle",
        WorkerState::Busy => "busy",
        WorkerState::Settling => "settling",
        WorkerState::Backoff => "backoff",
        WorkerState::Stopping => "stopping",
        WorkerState::CrashLooped => "crash-looped",
        WorkerState::Failed => "failed",
    }
}

/// `status --rpc` for people: everything about the workers.
#[must_use]
pub fn status_rpc(answer: &StatusAnswer) -> String {
    let rpc = &answer.rpc;
    let live = if rpc.live {
        "a worker lives"
    } else {
        "no worker lives"
    };
    let mut shown = format!(
        "{live}, {} in flight, {} waiting, {}\n",
        counted(rpc.in_flight, "turn"),
        rpc.queued,
        counted(rpc.restarts, "restart")
    );
    let _ = writeln!(
        shown,
        "{} sent, {} failed, p50 {}, p95 {}, {}",
        rpc.sends,
        rpc.failures,
        ms(rpc.p50_ms),
        ms(rpc.p95_ms),
        counted(rpc.fallbacks, "fallback")
    );
    let (hits, misses) = (counted(rpc.pool_hits, "turn"), rpc.pool_misses);
    let _ = writeln!(
        shown,
        "{hits} began in a process that was there, {misses} had to wait for one"
    );
    if !rpc.clients.is_empty() {
        let _ = writeln!(shown, "clients: {}", clients(&rpc.clients));
    }
    let workers = answer.workers.as_deref().unwrap_or_default();
    for row in workers {
        shown.push('\n');
        shown.push_str(&worker_rpc(row));
    }
    shown
}

/// One worker with everything that is known of it.
fn worker_rpc(row: &WorkerRow) -> String {
    let live = if row.live { "live" } else { "not live" };
    let of = match &row.session {
        Some(session) => format!(", session {}", safe(session)),
        None => String::new(),
    };
    let mut shown = format!(
        "worker {} of {}{of}: {live}, {}",
        row.worker,
        safe(&row.agent),
        worker_state(row.state)
    );
    if let Some(pid) = row.pid {
        let _ = write!(shown, ", pid {pid}, up {}", span(row.uptime_s));
    }
    let _ = write!(
        shown,
        "\n  turns       {} in flight, {} waiting, {} ended, {} failed, p50 {}, p95 {}\
         \n  restarts    {}\n",
        row.in_flight,
        row.queued,
        row.turns,
        row.failures,
        ms(row.p50_ms),
        ms(row.p95_ms),
        row.restarts
    );
    for (name, text) in [
        ("last exit ", &row.last_exit),
        ("last error", &row.last_error),
        ("last ok   ", &row.last_ok_at),
    ] {
        if let Some(text) = text {
            let _ = writeln!(shown, "  {name}  {}", preview(text));
        }
    }
    shown
}

fn ms(ms: Option<u64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"))
}

fn clients(counts: &BTreeMap<String, u64>) -> String {
    let shown: Vec<String> = counts
        .iter()
        .map(|(client, jobs)| format!("{} {jobs}", safe(client)))
        .collect();
    shown.join(", ")
}

/// `agents` for people.
#[must_use]
pub fn agents(rows: &[AgentRow]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let name = if row.default {
                format!("{} (default)", row.name)
            } else {
                row.name.clone()
            };
            let mut usable = match (&row.why_not, row.usable) {
                (_, true) => "yes".to_owned(),
                // Whole: it ends with what to do.
                (Some(why), false) => format!("no: {}", why.trim().replace('\n', " ")),
                (None, false) => "no".to_owned(),
            };
            if let Some(note) = &row.note {
                let _ = write!(usable, " ({})", note.trim().replace('\n', " "));
            }
            let login = match row.logged_in {
                Some(true) => "yes",
                Some(false) => "no",
                None => "-",
            };
            let command = match row.command.is_empty() {
                true => "-".to_owned(),
                false => row.command.join(" "),
            };
            vec![
                name,
                row.kind.clone(),
                row.version.clone().unwrap_or_else(|| "-".to_owned()),
                login.to_owned(),
                row.found.clone(),
                preview(&command),
                usable,
            ]
        })
        .collect();
    let head = [
        "AGENT", "KIND", "VERSION", "LOGIN", "FOUND", "COMMAND", "USABLE",
    ];
    table(&head, &rows)
}

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
            safe(field("error"))
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
    format!("{job} {how}\n{}\n", text.trim_end())
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

/// The first line of a text, shortened and safe.
#[must_use]
pub fn preview(text: &str) -> String {
    let flat: String = text
        .trim()
        .chars()
        .map(|c| if c == '\n' { ' ' } else { c })
        .collect();
    let mut shown: String = safe(&flat).chars().take(PREVIEW + 1).collect();
    if shown.chars().count() > PREVIEW {
        shown = shown.chars().take(PREVIEW).collect();
        shown.push('…');
    }
    shown
}

fn span(seconds: u64) -> String {
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

    const STATUS: &str = r#"{"type":"status","ok":true,"details":"ready, 1 worker","state":"ready","daemon":{"version":"0.1.0","pid":7,"uptime_s":3720,"epoch":"e","rss_bytes":10485760},"rpc":{"live":true,"in_flight":1,"sends":3,"failures":0,"fallbacks":0,"restarts":2,"p50_ms":4,"p95_ms":9,"clients":{"nc\u001b":1}},"workers":[{"worker":3,"live":true,"turns":7,"agent":"pi","session":"main","state":"busy","pid":9,"generation":1,"restarts":2,"last_exit":null,"last_error":"bad\u001b[2J","uptime_s":5,"in_flight":1,"queued":0,"last_ok_at":null}],"store":{"jobs":3,"events":12,"bytes":4096,"wal_bytes":0},"questions":0}"#;

    fn line(json: &str) -> Line {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn status_is_a_sentence_facts_and_a_table() {
        let Line::Status(answer) = line(STATUS) else {
            panic!("not a status");
        };
        assert_eq!(
            status(&answer),
            "\
ready, 1 worker
daemon   ready, version 0.1.0, pid 7, up 1 h 2 min, 10.0 MiB
turns    1 in flight, 3 sent, 0 failed, 0 fallbacks, 2 restarts, p50 4 ms, p95 9 ms
clients  nc\\u{1b} 1
store    3 jobs, 12 events, 4.0 KiB + 0 B log

AGENT  SESSION  STATE  PID  UP   RESTARTS  QUEUED  LAST ERROR
pi     main     busy   9    5 s  2         0       bad\\u{1b}[2J
"
        );
        assert_eq!(
            status_rpc(&answer),
            "\
a worker lives, 1 turn in flight, 0 waiting, 2 restarts
3 sent, 0 failed, p50 4 ms, p95 9 ms, 0 fallbacks
0 turns began in a process that was there, 0 had to wait for one
clients: nc\\u{1b} 1

worker 3 of pi, session main: live, busy, pid 9, up 5 s
  turns       1 in flight, 0 waiting, 7 ended, 0 failed, p50 -, p95 -
  restarts    2
  last error  bad\\u{1b}[2J
"
        );
    }

    #[test]
    fn agents_say_why_they_are_not_usable() {
        let Line::Agents { agents: rows, .. } = line(
            r#"{"type":"agents","ok":true,"agents":[{"name":"pi","kind":"pi","command":["pi"],"found":"path","version":"1.5","logged_in":true,"note":"odd","usable":true,"why_not":null,"default":true},{"name":"hermes","kind":"acp","command":[],"found":"looked-for","version":null,"usable":false,"why_not":"`hermes` is not on PATH","default":false}]}"#,
        ) else {
            panic!("not agents");
        };
        assert_eq!(
            agents(&rows),
            "\
AGENT         KIND  VERSION  LOGIN  FOUND       COMMAND  USABLE
pi (default)  pi    1.5      yes    path        pi       yes (odd)
hermes        acp   -        -      looked-for  -        no: `hermes` is not on PATH
"
        );
    }

    #[test]
    fn result_is_its_text_or_its_error() {
        let shown = |json: &str| result(&serde_json::from_str(json).unwrap());
        assert_eq!(
            shown(r#"{"type":"message_end","job":"j1","stop":"end_turn","text":"hi\n"}"#),
            "j1 done\nhi\n"
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
