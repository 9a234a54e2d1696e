//! `dispatch` and `collect`: work handed in, and its results.
//!
//! Owns where the turns come from, their keys, and what is said of what isn't done. Must not know
//! how a result looks (`render`).

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use agentd_protocol::limits::MAX_DISPATCH;
use agentd_protocol::request::{Send, Wait};
use agentd_protocol::rows::DispatchedRow;
use agentd_protocol::work::{JobPhase, Jobs};
use agentd_protocol::{JobId, Line};
use serde_json::{Value, json};

use super::args::{CollectArgs, DispatchArgs};
use super::exit::{self, Exit};
use super::send::is_past;
use super::stop_signal::{StopSignal, StopSignals};
use super::{
    ask, attach, compose, first_use, outcome, output, progress, prompt, render, typed, wording,
};
use agentd_client::asked::RequestError;
use agentd_client::client::Client;
use agentd_client::jobs::{Collected, JobPages};
use agentd_client::key;

/// Jobs that are named one by one; of more, only how many they are.
const FEW: usize = 8;

pub(super) async fn dispatch(args: DispatchArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let prefix = match &args.key_prefix {
        Some(prefix) => prefix.clone(),
        None => key::random()?,
    };
    let (sends, names) = match sends_of(&args, &prefix)? {
        Ok(turns) => turns.into_iter().unzip::<Send, String, Vec<_>, Vec<_>>(),
        Err(why) => {
            let hint = "give prompts as arguments, or one on each line of standard input";
            output::error(&why, Some(hint));
            return Ok(Exit::Usage);
        }
    };
    tell_start(&args);
    first_use::daemon(socket, first_use::Notes::Told).await?;
    let mut client = ask::daemon(socket).await?;
    let mut rows: Vec<DispatchedRow> = Vec::new();
    let mut refused = None;
    let mut stopped = None;
    let mut stops = StopSignals::hear()?;
    // More than one request takes go one after the other, in their order.
    for part in sends.chunks(MAX_DISPATCH) {
        let answer = match answer_of(client.dispatch(part), &mut stops, &mut stopped).await {
            Ok(answer) => answer,
            Err(signal) => {
                tell_left(rows.len(), sends.len(), &prefix);
                return Ok(signal.into());
            }
        };
        match answer {
            Ok(reply) if args.json && sends.len() <= MAX_DISPATCH => {
                reply.value.iter().for_each(tell_ignored);
                // As it came: a newer daemon may say more.
                output::out_json(&reply.line)?;
                rows = reply.value;
            }
            Ok(reply) => {
                reply.value.iter().for_each(tell_ignored);
                if !args.json {
                    tell_accepted(&args, &jobs_of(&reply.value))?;
                }
                rows.extend(reply.value);
            }
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
        if stopped.is_some() {
            break;
        }
    }
    let jobs = jobs_of(&rows);
    let accepted = jobs.len();
    tell_known(&args, &rows, sends.len());
    if args.json && sends.len() > MAX_DISPATCH && !rows.is_empty() {
        let line = Line::Dispatch {
            ok: refused.is_none(),
            jobs: rows,
        };
        output::out_json(line.body().as_json())?;
    }
    if let Some(error) = refused {
        let exit = tell(&error, &prefix, &names[accepted..]);
        if !jobs.is_empty() {
            tell_left(jobs.len(), sends.len(), &prefix);
        }
        return Ok(exit);
    }
    if let Some(signal) = stopped {
        tell_left(jobs.len(), sends.len(), &prefix);
        return Ok(signal.into());
    }
    tell_file(&args.prompts);
    if args.collect {
        let going = Going::of(&args, &prefix);
        return results(&mut client, &jobs, None, Wait::All, args.json, &going).await;
    }
    Ok(Exit::Done)
}

/// A time is typed by the clock here.
fn tell_start(args: &DispatchArgs) {
    if let Some(start) = &args.how.start_at {
        output::note(&match is_past(start) {
            true => format!("{start} is past: what has no other time starts now"),
            false => format!("what has no other time starts at {start}"),
        });
    }
}

pub(super) async fn collect(args: CollectArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let wait = if args.any { Wait::Any } else { Wait::All };
    let timeout = args
        .timeout
        .map(Duration::try_from_secs_f64)
        .transpose()
        .map_err(|why| outcome::ends(Exit::Usage, &format!("`--timeout`: {why}"), None))?;
    let mut client = ask::past(socket, args.past).await?;
    // Nothing comes to its end before a daemon runs.
    let timeout = match client.is_alone() {
        true => Some(Duration::ZERO),
        false => timeout,
    };
    let (jobs, again) = match &args.label {
        None => (args.jobs, "the same command".to_owned()),
        Some(label) => {
            let (there, named) = (typed::which_daemon(), typed::quoted(label));
            let again = format!("`agentctl{there} collect --label {named}`");
            (labelled(&mut client, label).await?, again)
        }
    };
    let going = Going {
        again,
        label: args.label,
    };
    let exit = results(&mut client, &jobs, timeout, wait, args.json, &going).await;
    client.close().await;
    exit
}

/// Those of a label; says so when there is none.
async fn labelled(client: &mut Client, label: &str) -> Result<Vec<JobId>, Exit> {
    let rows = attach::labelled(client, label).await?;
    let jobs: Vec<JobId> = rows.iter().map(|row| row.job).collect();
    if jobs.is_empty() {
        let error = format!("there is no job with the label `{}`", output::safe(label));
        let hint = "`agentctl jobs` lists them with their labels";
        return Err(outcome::ends(Exit::Usage, &error, Some(hint)));
    }
    Ok(jobs)
}

/// What is on its way may be accepted already: a signal ends no wait for its answer, but a second one.
async fn answer_of<T>(
    asking: impl Future<Output = T>,
    stops: &mut StopSignals,
    stopped: &mut Option<StopSignal>,
) -> Result<T, StopSignal> {
    let mut asking = pin!(asking);
    tokio::select! {
        biased;
        signal = stops.next() => *stopped = Some(signal),
        answer = &mut asking => return Ok(answer),
    }
    tokio::select! {
        answer = &mut asking => Ok(answer),
        signal = stops.next() => Err(signal),
    }
}

/// Who names a file means what is in it.
fn tell_file(prompts: &[String]) {
    if let [file] = prompts
        && file != "-"
        && Path::new(file).is_file()
    {
        let file = typed::quoted(file);
        output::note(&format!(
            "sent the words {file}, not what is in that file: `agentctl dispatch < {file}` sends \
             each of its lines"
        ));
    }
}

fn jobs_of(rows: &[DispatchedRow]) -> Vec<JobId> {
    rows.iter().map(|row| row.job).collect()
}

fn tell_accepted(args: &DispatchArgs, jobs: &[JobId]) -> io::Result<()> {
    if args.collect {
        output::note(&format!("accepted {}", short_names_of(jobs)));
        return Ok(());
    }
    output::out(&format!("{}\n", names_of(jobs).replace(' ', "\n")))
}

/// A held job is waited for in vain until somebody releases it: says so, and how.
async fn tell_held(client: &mut Client, jobs: &[JobId]) -> Result<(), RequestError> {
    let held = Jobs {
        state: Some(JobPhase::Held),
        ..Jobs::default()
    };
    let mut pages = JobPages::new(held);
    while let Some(page) = pages.next(client).await? {
        for row in page.value.iter().filter(|row| jobs.contains(&row.job)) {
            let (job, how) = (row.job, render::of_held(row.job, &row.session));
            output::note(&format!("{job} is held behind an interrupted turn: {how}"));
        }
    }
    Ok(())
}

/// Jobs that go on when nobody waits for them any more.
struct Going {
    /// What goes on waiting when there are too many of them to name.
    again: String,
    /// The label that they have.
    label: Option<String>,
}

impl Going {
    fn of(args: &DispatchArgs, prefix: &str) -> Self {
        let prefix = typed::quoted(prefix);
        let label = args.how.labels.first();
        Self {
            again: format!("the same command with `--key-prefix {prefix}`"),
            label: label.map(|(key, value)| format!("{key}={value}")),
        }
    }
}

async fn results(
    client: &mut Client,
    jobs: &[JobId],
    timeout: Option<Duration>,
    wait: Wait,
    json: bool,
    going: &Going,
) -> io::Result<Exit> {
    let again = &going.again;
    if !json {
        // Should it not be known, the results are asked for all the same.
        let _unknown = tell_held(client, jobs).await;
    }
    let mut seen = BTreeSet::new();
    let mut found = Collected {
        results: Vec::new(),
        pending: jobs
            .iter()
            .copied()
            .filter(|job| seen.insert(*job))
            .collect(),
    };
    let mut stops = StopSignals::hear()?;
    let collecting = async {
        if json && wait == Wait::All {
            let collected = client.collect(jobs, timeout, wait).await;
            return Ok(collected.map(|collected| found = collected));
        }
        let tell = |result: &Value| match json {
            true => Ok(()),
            false => output::out(&render::result(result)),
        };
        progress::collect(client, &mut found, timeout, wait, tell).await
    };
    let collected = tokio::select! {
        collected = collecting => collected?,
        signal = stops.next() => {
            tell_unfinished(&found.pending, going);
            return Ok(signal.into());
        }
    };
    if let Err(error) = collected {
        let exit = ask::tell(&error);
        if matches!(
            error,
            RequestError::NoAnswer(_) | RequestError::Unknown { .. }
        ) {
            let again = going_on(&found.pending, again);
            output::err(&format!(
                "hint: {again} asks for them again once a daemon runs\n"
            ));
        }
        return Ok(exit);
    }
    let exit = exit::of_collected(&found, wait);
    let missing = found.pending.clone();
    if json {
        let Collected {
            mut results,
            pending,
        } = found;
        tell_apart(client, &mut results).await;
        let line = Line::Collect {
            ok: true,
            results,
            pending,
        };
        output::out_json(line.body().as_json())?;
    }
    let is_enough = wait == Wait::Any && missing.len() < jobs.len();
    if client.is_alone() && !missing.is_empty() && !is_enough {
        let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let have = if names.len() == 1 { "has" } else { "have" };
        let what = format!("{} {have}", names.join(", "));
        return Ok(ask::needs_daemon(client, &what));
    }
    if !json {
        tell_missing(&missing, seen.len());
    }
    if let (Exit::Timeout, [first, ..]) = (exit, missing.as_slice()) {
        let again = going_on(&missing, again);
        output::err(&format!(
            "hint: {again} goes on waiting, `agentctl attach {first}` shows what {first} does\n"
        ));
    }
    Ok(exit)
}

/// Which result is which: each gets the beginning of its prompt, and its labels, as `jobs` has them.
async fn tell_apart(client: &mut Client, results: &mut [Value]) {
    for result in results {
        let job = result["job"].as_str().and_then(|job| job.parse().ok());
        let Some(job) = job else {
            continue;
        };
        match client.job(job).await {
            Ok(Some(row)) => {
                result["preview"] = row.preview.into();
                result["labels"] = json!(row.labels);
            }
            Ok(None) => {}
            // The results are there all the same.
            Err(_unknown) => return,
        }
    }
}

fn tell_missing(missing: &[JobId], all: usize) {
    if missing.len() > FEW {
        return output::note(&format!("{} of {all} jobs are not done", missing.len()));
    }
    for job in missing {
        output::note(&format!("{job} is not done"));
    }
}

/// Who stops waiting is told that the jobs don't stop.
fn tell_unfinished(pending: &[JobId], going: &Going) {
    let go_on = if pending.len() == 1 { "goes" } else { "go" };
    let (names, again) = (short_names_of(pending), going_on(pending, &going.again));
    let there = typed::which_daemon();
    let comma = if pending.len() > FEW { "," } else { "" };
    let ends = match &going.label {
        Some(label) => format!(
            "`agentctl{there} abort --label {}` ends all with that label",
            typed::quoted(label)
        ),
        None => format!("`agentctl{there} abort JOB` ends one"),
    };
    output::note(&format!(
        "left; {names}{comma} {go_on} on: {again} waits for the rest, {ends}"
    ));
}

/// What waits for these: a command that names them, or, of many, the one that there is.
fn going_on(pending: &[JobId], again: &str) -> String {
    if pending.len() > FEW {
        return again.to_owned();
    }
    format!(
        "`agentctl{} collect {}`",
        typed::which_daemon(),
        names_of(pending)
    )
}

/// As people read them: of many, how many.
fn short_names_of(jobs: &[JobId]) -> String {
    match jobs {
        [first, .., last] if jobs.len() > FEW => {
            format!("{} jobs, {first} to {last}", jobs.len())
        }
        few => names_of(few),
    }
}

/// Not all were handed in, or nobody waited to hear so.
fn tell_left(accepted: usize, all: usize, prefix: &str) {
    output::note(&format!(
        "{accepted} of {all} were accepted; the same with `--key-prefix {prefix}` sends the rest, \
         and runs nothing twice"
    ));
}

/// The same command was there before, it may be by another's choice of the same prefix.
fn tell_known(args: &DispatchArgs, rows: &[DispatchedRow], all: usize) {
    let known = rows.iter().filter(|row| row.replayed).count();
    // With keys of our own they were asked for again by ourselves, after a daemon that left.
    if let Some(prefix) = args.key_prefix.as_ref().filter(|_| known > 0) {
        let (were, are) = match known {
            1 => ("was", "is the job"),
            _ => ("were", "are the jobs"),
        };
        output::note(&format!(
            "{known} of {all} {were} handed in before with `--key-prefix {}`, and {are} of then: \
             another prefix runs all anew, `agentctl{} retry JOB` one",
            output::safe(prefix),
            typed::which_daemon()
        ));
    }
}

/// As a command takes them.
fn names_of(jobs: &[JobId]) -> String {
    let names: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    names.join(" ")
}

/// The turns with their keys, and what whoever typed them calls each; or what is wrong with them.
fn sends_of(args: &DispatchArgs, prefix: &str) -> io::Result<Result<Vec<(Send, String)>, String>> {
    let common = compose::common(&args.who, &args.how);
    let from_input = match args.prompts.as_slice() {
        [] => !io::stdin().is_terminal(),
        [only] => only == "-",
        _ => false,
    };
    let what = if from_input { "line" } else { "prompt" };
    let sends = if from_input {
        let mut input = Vec::new();
        io::stdin().lock().read_to_end(&mut input)?;
        compose::sends_of_lines(&prompt::text_of_bytes(input), &common)
    } else {
        let prompts = (1..).zip(&args.prompts);
        Ok(prompts
            .map(|(number, prompt)| (number, compose::send_of_text(prompt, &common)))
            .collect())
    };
    Ok(sends.and_then(|sends| {
        if sends.is_empty() {
            return Err("there is no turn to dispatch".to_owned());
        }
        let named = |(number, send)| {
            let each = to_each(send, &args.agents).into_iter();
            each.map(move |send| (send, format!("{what} {number}")))
        };
        let mut sends: Vec<_> = sends.into_iter().flat_map(named).collect();
        for (number, (send, _)) in sends.iter_mut().enumerate() {
            let key = || format!("{prefix}-{}", number + 1);
            // By their place: the same command with the same prefix asks for the same jobs.
            send.idempotency_key.get_or_insert_with(key);
        }
        Ok(sends)
    }))
}

/// The same turn to every agent, if any are named, with a key for each where it has its own; a line that
/// names its agent goes to that one.
fn to_each(send: Send, agents: &[String]) -> Vec<Send> {
    if agents.is_empty() || send.agent.is_some() {
        return vec![send];
    }
    let to = |agent: &String| Send {
        agent: Some(agent.clone()),
        idempotency_key: send
            .idempotency_key
            .as_ref()
            .map(|key| format!("{key}:{agent}")),
        ..send.clone()
    };
    agents.iter().map(to).collect()
}

/// `names` are those of the turns that were not accepted, the first of which are in the request.
fn tell(error: &RequestError, prefix: &str, names: &[String]) -> Exit {
    let exit = match error {
        RequestError::Refused(line) => {
            let name = |place: usize| names.get(place).cloned().unwrap_or_default();
            let hint = wording::hint(line).map(|hint| typed::there(&hint));
            output::error(&wording::error_of(&line.error, name), hint.as_deref());
            exit::of_request_error(error)
        }
        _ => ask::tell(error),
    };
    if exit == Exit::Unknown {
        output::err(&outcome::retry_hint(
            &["dispatch"],
            "--key-prefix",
            prefix,
            None,
        ));
    }
    exit
}

fn tell_ignored(row: &DispatchedRow) {
    for ignored in &row.ignored {
        let field = &ignored.field;
        output::note(&format!(
            "{}: the daemon does not know and ignored `{field}`",
            row.job
        ));
    }
}
