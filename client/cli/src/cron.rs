//! `cron`: schedules and their runs.
//!
//! Owns how they look, and what the options of an edit leave alone. Must not know when a schedule is
//! due: the daemon says it.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use agentd_client::asked::{Reply, RequestError};
use agentd_client::schedules::{RunPages, SchedulePages};
use agentd_protocol::request::Send;
use agentd_protocol::schedule::{
    CronList, CronRuns, Missed, Overlap, RunOutcome, RunRow, ScheduleRow, ScheduleSpec,
    ScheduleState,
};
use agentd_terminal::style::{Style, Tone};
use agentd_terminal::table::{Cell, Column, table};
use serde_json::{Map, Value, json};

use super::args::{
    CronAddArgs, CronArgs, CronCommand, CronEditArgs, CronListArgs, CronNameArgs, CronRunsArgs,
    CronWhenArgs, HowArgs, MissedArg, OverlapArg, WhoArgs,
};
use super::exit::Exit;
use super::output::safe_line;
use super::{ask, compose, output, value};

/// What takes a field away in an edit.
const NONE: &str = "none";

pub(super) async fn cron(args: CronArgs, socket: Option<&Path>) -> io::Result<Exit> {
    match args.command {
        CronCommand::Add(args) => add(*args, socket).await,
        CronCommand::List(args) => list(args, socket).await,
        CronCommand::Show(args) => show(args, socket).await,
        CronCommand::Edit(args) => edit(*args, socket).await,
        CronCommand::Pause(args) => {
            let mut client = ask::daemon(socket).await?;
            let paused = client.cron_pause(&args.schedule).await;
            ask::print(paused, args.json, |row| format!("{} rests\n", named(row)))
        }
        CronCommand::Resume(args) => {
            let mut client = ask::daemon(socket).await?;
            let resumed = client.cron_resume(&args.schedule).await;
            print_due(resumed, args.json)
        }
        CronCommand::Run(args) => {
            let mut client = ask::daemon(socket).await?;
            let run = client.cron_run(&args.schedule).await;
            ask::print(run, args.json, |run| format!("{}\n", run.job))
        }
        CronCommand::Remove(args) => {
            let mut client = ask::daemon(socket).await?;
            let removed = client.cron_remove(&args.schedule).await;
            ask::print(removed, args.json, |row| {
                format!("{} is gone\n", named(row))
            })
        }
        CronCommand::Runs(args) => runs(args, socket).await,
    }
}

async fn add(args: CronAddArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let CronWhenArgs {
        at, every, cron, ..
    } = &args.when;
    if at.is_none() && every.is_none() && cron.is_none() {
        let hint = "say --at +1m, --every 30m or --cron \"0 9 * * 1-5\"";
        output::error("when is it to be sent?", Some(hint));
        return Ok(Exit::Usage);
    }
    let text = args.message.or(args.text).unwrap_or_default();
    let when = args.when;
    let spec = ScheduleSpec {
        send: Box::new(Send {
            text,
            ..what(args.who, &when)
        }),
        name: when.name,
        at: when.at,
        every: when.every,
        cron: when.cron,
        tz: when.tz,
        jitter: when.jitter,
        missed: when.missed.map(missed).unwrap_or_default(),
        overlap: when.overlap.map(overlap).unwrap_or_default(),
        keep: when.keep,
        backoff: when.backoff,
        max_failures: when.max_failures,
    };
    let mut client = ask::daemon(socket).await?;
    print_due(client.cron_add(&spec).await, args.json)
}

/// What is sent, but for its text.
fn what(mut who: WhoArgs, when: &CronWhenArgs) -> Send {
    who.session = who.session.filter(|name| name != "new");
    let how = HowArgs {
        labels: when.labels.clone(),
        callback: when.callback.clone(),
        callback_result: when.callback_result,
        ..HowArgs::default()
    };
    compose::common(&who, &how)
}

const fn missed(given: MissedArg) -> Missed {
    match given {
        MissedArg::Skip => Missed::Skip,
        MissedArg::Last => Missed::Last,
        MissedArg::All => Missed::All,
    }
}

const fn overlap(given: OverlapArg) -> Overlap {
    match given {
        OverlapArg::Skip => Overlap::Skip,
        OverlapArg::Queue => Overlap::Queue,
        OverlapArg::Replace => Overlap::Replace,
        OverlapArg::Parallel => Overlap::Parallel,
    }
}

async fn edit(args: CronEditArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let set = changes(args.message, args.who, args.when);
    if set.is_empty() {
        let hint = "say what, as --every 1h or --message TEXT";
        output::error("nothing is to be changed", Some(hint));
        return Ok(Exit::Usage);
    }
    let mut client = ask::daemon(socket).await?;
    print_due(client.cron_edit(&args.schedule, set).await, args.json)
}

/// The fields that were named, and no others.
fn changes(message: Option<String>, who: WhoArgs, when: CronWhenArgs) -> Map<String, Value> {
    let mut send = Map::new();
    let goes_anew = who.session.as_deref() == Some("new");
    let said = serde_json::to_value(Send {
        // Where nothing was named, what a send has by itself is no change.
        cwd_if_new: None,
        ..what(who, &when)
    });
    if let Ok(Value::Object(said)) = said {
        let plain = serde_json::to_value(Send::default()).unwrap_or_default();
        let named = said
            .into_iter()
            .filter(|(field, value)| plain.get(field) != Some(value));
        send.extend(named);
    }
    if goes_anew {
        send.insert("session".to_owned(), Value::Null);
    }
    if let Some(text) = message {
        send.insert("text".to_owned(), text.into());
    }
    let mut set = Map::new();
    let or_none = |text: String| match text.as_str() {
        NONE => Value::Null,
        _ => Value::String(text),
    };
    let texts = [
        ("name", when.name),
        ("at", when.at),
        ("every", when.every),
        ("cron", when.cron),
        ("tz", when.tz),
        ("jitter", when.jitter),
        ("backoff", when.backoff),
    ];
    for (field, text) in texts {
        set.extend(text.map(|text| (field.to_owned(), or_none(text))));
    }
    let or_null = |count: u32| {
        if count == 0 {
            Value::Null
        } else {
            count.into()
        }
    };
    let counts = [("keep", when.keep), ("max_failures", when.max_failures)];
    for (field, count) in counts {
        set.extend(count.map(|count| (field.to_owned(), or_null(count))));
    }
    set.extend(
        when.missed
            .map(|given| ("missed".to_owned(), json!(missed(given)))),
    );
    set.extend(
        when.overlap
            .map(|given| ("overlap".to_owned(), json!(overlap(given)))),
    );
    if !send.is_empty() {
        set.insert("send".to_owned(), Value::Object(send));
    }
    set
}

/// The schedule, and when it is due: one line each.
fn print_due(answer: Result<Reply<ScheduleRow>, RequestError>, json: bool) -> io::Result<Exit> {
    ask::print(answer, json, |row| {
        let now = value::now_ms();
        let mut text = match (row.state, row.next.first()) {
            (ScheduleState::Paused, _) => format!("{} rests\n", named(row)),
            (_, None) => format!("{} has no due time any more\n", named(row)),
            (_, Some(next)) => {
                let when = value::relative(next, now);
                format!("{} is due {when}: {}\n", named(row), safe_line(next))
            }
        };
        for next in row.next.iter().skip(1) {
            let _infallible = writeln!(
                text,
                "then {}: {}",
                value::relative(next, now),
                safe_line(next)
            );
        }
        text
    })
}

fn named(row: &ScheduleRow) -> String {
    match &row.spec.name {
        Some(name) => format!("{} ({})", safe_line(&row.schedule), safe_line(name)),
        None => safe_line(&row.schedule).to_string(),
    }
}

/// When it is due, in the words that it was given.
fn rule(spec: &ScheduleSpec) -> String {
    let jitter = spec
        .jitter
        .iter()
        .map(|jitter| format!(", up to {jitter} later"));
    let rule = match (&spec.at, &spec.every, &spec.cron) {
        (Some(at), _, _) => format!("at {at}"),
        (_, Some(every), _) => format!("every {every}"),
        (_, _, Some(cron)) => format!("{cron} {}", spec.tz.as_deref().unwrap_or_default()),
        _ => String::new(),
    };
    let all: String = std::iter::once(rule).chain(jitter).collect();
    safe_line(&all).to_string()
}

async fn list(args: CronListArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::daemon(socket).await?;
    let pages = SchedulePages::new(CronList::default());
    if args.json {
        return ask::print_pages(&mut client, pages).await;
    }
    let found: Vec<ScheduleRow> = match pages.rest(&mut client).await {
        Ok(found) => found.into_iter().flatten().collect(),
        Err(error) => return Ok(ask::tell(&error)),
    };
    if found.is_empty() {
        output::out_line("no schedules: `agentctl cron add` makes one")?;
        return Ok(Exit::Done);
    }
    output::out(&schedules(&found, value::now_ms(), &Style::of_stdout()))?;
    Ok(Exit::Done)
}

fn schedules(found: &[ScheduleRow], now: i64, style: &Style) -> String {
    let columns = [
        Column::new("ID").that_stays(),
        Column::cut("NAME", 12),
        Column::new("STATE").that_stays(),
        Column::new("NEXT").that_stays(),
        Column::new("LAST"),
        Column::cut("WHEN", 16),
        Column::cut("WHAT", 16),
    ];
    let rows: Vec<Vec<Cell>> = found
        .iter()
        .map(|row| {
            let next = row.next.first().map(|next| value::relative(next, now));
            let last = row.last.as_ref().map(|run| outcome(run).0);
            vec![
                row.schedule.as_str().into(),
                row.spec.name.clone().unwrap_or_default().as_str().into(),
                Cell::toned(row.state.name(), tone(row)),
                next.unwrap_or_else(|| "-".to_owned()).into(),
                last.unwrap_or_else(|| "-".to_owned()).into(),
                rule(&row.spec).into(),
                safe_line(&row.spec.send.text).as_str().into(),
            ]
        })
        .collect();
    let mut text = table(&columns, &rows, style);
    for row in found {
        if let Some(why) = &row.why {
            let _infallible = writeln!(text, "{}: {}", named(row), safe_line(why));
        }
    }
    text
}

const fn tone(row: &ScheduleRow) -> Tone {
    match row.state {
        ScheduleState::Active => Tone::Good,
        ScheduleState::Paused if row.why.is_some() => Tone::Bad,
        ScheduleState::Paused | ScheduleState::Done => Tone::Waits,
    }
}

async fn show(args: CronNameArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::daemon(socket).await?;
    let schedule = Some(args.schedule);
    let mut pages = SchedulePages::new(CronList {
        schedule,
        ..CronList::default()
    });
    let page = match pages.next(&mut client).await {
        Ok(Some(page)) => page,
        Ok(None) => return Ok(Exit::Failed),
        Err(error) => return Ok(ask::tell(&error)),
    };
    if args.json {
        output::out_json(&page.line)?;
    } else if let Some(row) = page.value.first() {
        output::out(&details(row, value::now_ms()))?;
    }
    Ok(Exit::Done)
}

fn details(row: &ScheduleRow, now: i64) -> String {
    let spec = &row.spec;
    let send = &spec.send;
    let mut text = format!("{}, {}\n", named(row), row.state.name());
    let mut line = |what: &str, said: Option<String>| {
        if let Some(said) = said {
            let _infallible = writeln!(text, "{what:10} {}", safe_line(&said));
        }
    };
    line("why", row.why.clone());
    line("when", Some(rule(spec)));
    for next in &row.next {
        line(
            "next",
            Some(format!("{next} ({})", value::relative(next, now))),
        );
    }
    line("sends", Some(send.text.clone()));
    line("agent", send.agent.clone());
    line("model", send.model.clone());
    line(
        "session",
        Some(
            send.session
                .clone()
                .unwrap_or_else(|| "a new one each time".to_owned()),
        ),
    );
    line(
        "directory",
        send.cwd.clone().or_else(|| send.cwd_if_new.clone()),
    );
    line(
        "tools",
        send.toolsets.as_ref().map(|tools| tools.join(", ")),
    );
    line("missed", Some(format!("{:?}", spec.missed).to_lowercase()));
    line("overlap", Some(spec.overlap.name().to_owned()));
    line("back-off", spec.backoff.clone());
    line(
        "failures",
        (row.failures > 0).then(|| match spec.max_failures {
            Some(most) => format!("{} in a row, of {most} at the most", row.failures),
            None => format!("{} in a row", row.failures),
        }),
    );
    line(
        "last",
        row.last.as_ref().map(|run| {
            let job = run.job.map(|job| format!("{job} ")).unwrap_or_default();
            format!("{job}{}, {}", outcome(run).0, value::relative(&run.at, now))
        }),
    );
    text
}

async fn runs(args: CronRunsArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::daemon(socket).await?;
    let mut pages = RunPages::new(CronRuns {
        schedule: args.schedule,
        limit: Some(args.limit),
        before: None,
    });
    if args.json {
        return ask::print_pages(&mut client, pages).await;
    }
    let found = match pages
        .wanted(&mut client, args.limit, |_: &RunRow| true)
        .await
    {
        Ok(found) => found,
        Err(error) => return Ok(ask::tell(&error)),
    };
    if found.is_empty() {
        output::out_line("no runs yet")?;
        return Ok(Exit::Done);
    }
    output::out(&run_rows(&found, value::now_ms(), &Style::of_stdout()))?;
    if found.iter().any(|run| run.job.is_some()) {
        output::note("the log of one: `agentctl logs --job JOB`");
    }
    Ok(Exit::Done)
}

fn run_rows(found: &[RunRow], now: i64, style: &Style) -> String {
    let columns = [
        Column::new("DUE").that_stays(),
        Column::new("RESULT").that_stays(),
        Column::new("JOB").that_stays(),
        Column::new("LATE"),
        Column::new("COST"),
        Column::cut("WHAT", 24),
    ];
    let rows: Vec<Vec<Cell>> = found
        .iter()
        .map(|run| {
            let (result, tone) = outcome(run);
            let late = match run.late_ms {
                0..1000 => "-".to_owned(),
                ms => value::short(ms),
            };
            let said = run.why.as_ref().or(run.preview.as_ref());
            vec![
                value::relative(&run.due_at, now).into(),
                Cell::toned(result, tone),
                run.job
                    .map_or_else(|| "-".to_owned(), |job| job.to_string())
                    .into(),
                late.into(),
                run.usd
                    .map_or_else(|| "-".to_owned(), |usd| format!("${usd:.4}"))
                    .into(),
                safe_line(said.map_or("", String::as_str)).as_str().into(),
            ]
        })
        .collect();
    table(&columns, &rows, style)
}

/// In a word or two.
fn outcome(run: &RunRow) -> (String, Tone) {
    match run.outcome {
        RunOutcome::Skipped => match run.times {
            Some(times) => (format!("{times} left out"), Tone::Waits),
            None => ("left out".to_owned(), Tone::Waits),
        },
        RunOutcome::Refused => ("refused".to_owned(), Tone::Bad),
        RunOutcome::Job => match run.state.as_deref() {
            Some("completed") => ("done".to_owned(), Tone::Good),
            Some(state @ ("failed" | "interrupted")) => (state.to_owned(), Tone::Bad),
            Some(state) => (safe_line(state).to_string(), Tone::Waits),
            None => ("gone".to_owned(), Tone::Waits),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cron_edit_says_only_what_was_named() {
        let of = |who, when| Value::Object(changes(None, who, when));
        assert_eq!(of(WhoArgs::default(), CronWhenArgs::default()), json!({}));
        let who = WhoArgs {
            session: Some("new".to_owned()),
            model: Some("m".to_owned()),
            ..WhoArgs::default()
        };
        let when = CronWhenArgs {
            every: Some("1h".to_owned()),
            jitter: Some("none".to_owned()),
            max_failures: Some(0),
            overlap: Some(OverlapArg::Queue),
            ..CronWhenArgs::default()
        };
        let expected = json!({
            "every": "1h", "jitter": null, "max_failures": null, "overlap": "queue",
            "send": {"session": null, "model": "m"},
        });
        assert_eq!(of(who, when), expected);
    }
}
