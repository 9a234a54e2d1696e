//! Work for other agents of the same daemon: hand it in, collect it, plan anew.
//!
//! Owns the two tools and how results are told. The daemon owns the jobs: they are stored there, and
//! go on when this process dies. Must not know models.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentd_base::shared::lock;
use agentd_client::asked::RequestError;
use agentd_client::client::{Attended, Client, Options};
use agentd_client::fallback::Fallback;
use agentd_client::jobs::JobPages;
use agentd_client::oneshot::Asks;
use agentd_protocol::limits::MAX_DISPATCH;
use agentd_protocol::request::{Abort, Send, Wait};
use agentd_protocol::rows::JobRow;
use agentd_protocol::work;
use agentd_protocol::{JobId, RequestKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::output::Output;
use super::{Surroundings, Tool, ToolOutcome};
use crate::model::{Boxed, ToolSpec};

/// Tasks of one call: what a model can keep an eye on.
const MOST_TASKS: usize = 16;
const _: () = assert!(MOST_TASKS <= MAX_DISPATCH);
/// `collect` without a timeout looks again after this.
const COLLECT_WITHIN: f64 = 600.0;
/// A task that is waited for begins within this, or not at all: it may have been put behind the very
/// turn that waits for it.
const BEGINS_WITHIN: f64 = 600.0;
/// Whoever is asked to stop a job answers at once, or not at all.
const ABORT_WITHIN: Duration = Duration::from_secs(2);

/// Jobs of this turn.
type HandedIn = Arc<Mutex<BTreeSet<JobId>>>;

/// Both.
pub(crate) fn tools() -> Vec<Arc<dyn Tool>> {
    let jobs = HandedIn::default();
    vec![
        Arc::new(Delegate(Arc::clone(&jobs))),
        Arc::new(Collect(jobs)),
    ]
}

/// Hands in tasks.
struct Delegate(HandedIn);

/// Gets results.
struct Collect(HandedIn);

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Tasks {
    tasks: Vec<Task>,
    #[serde(default = "yes")]
    wait: bool,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Task {
    prompt: String,
    agent: Option<String>,
    session: Option<String>,
    provider: Option<String>,
    model: Option<String>,
    timeout: Option<f64>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Jobs {
    jobs: Vec<JobId>,
    #[serde(default = "collect_within")]
    timeout: f64,
}

const fn yes() -> bool {
    true
}

const fn collect_within() -> f64 {
    COLLECT_WITHIN
}

impl Tool for Delegate {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "delegate".to_owned(),
            description: "Hands tasks to other agents, which run at the same time. With `wait` \
                (the default) it returns their results; without, their job numbers for `collect`. \
                An agent knows nothing of this conversation: its prompt must say everything."
                .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "tasks": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": MOST_TASKS,
                        "items": {
                            "type": "object",
                            "properties": {
                                "prompt": {"type": "string", "description": "the whole task"},
                                "agent": {"type": "string", "description": "which agent; the default one when left out"},
                                "session": {"type": "string", "description": "a session to go on with; a new one when left out"},
                                "provider": {"type": "string"},
                                "model": {"type": "string"},
                                "timeout": {"type": "number", "description": "seconds it may run"},
                            },
                            "required": ["prompt"],
                            "additionalProperties": false,
                        },
                    },
                    "wait": {"type": "boolean"},
                },
                "required": ["tasks"],
                "additionalProperties": false,
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn run<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        around: &'a Surroundings,
    ) -> Boxed<'a, Result<ToolOutcome, String>> {
        Box::pin(async move { delegate(read(arguments)?, &self.0, around).await })
    }
}

impl Tool for Collect {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "collect".to_owned(),
            description: "Waits for jobs of `delegate` and returns their results. Those that are \
                not done after `timeout` seconds are named, and go on."
                .to_owned(),
            schema: json!({
                "type": "object",
                "properties": {
                    "jobs": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST_TASKS},
                    "timeout": {"type": "number"},
                },
                "required": ["jobs"],
                "additionalProperties": false,
            }),
        }
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn run<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        around: &'a Surroundings,
    ) -> Boxed<'a, Result<ToolOutcome, String>> {
        Box::pin(async move {
            let asked: Jobs = read(arguments)?;
            let work = async {
                let mut client = connect().await?;
                let within = seconds(asked.timeout)?;
                for job in &asked.jobs {
                    let is_of_turn = lock(&self.0).contains(job);
                    if !is_of_turn && !is_of_session(&mut client, *job, around).await? {
                        return Err(format!(
                            "{job} is none of this conversation's; expected jobs of `delegate`"
                        ));
                    }
                }
                collect(&mut client, &asked.jobs, Some(within), around).await
            };
            tokio::select! {
                biased;
                () = around.cancel.cancelled() => Err("the turn was cancelled".to_owned()),
                collected = work => collected,
            }
        })
    }
}

fn read<T: for<'de> Deserialize<'de>>(arguments: &Map<String, Value>) -> Result<T, String> {
    T::deserialize(Value::Object(arguments.clone()))
        .map_err(|error| format!("the arguments don't fit: {error}"))
}

fn seconds(given: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(given)
        .map_err(|_error| format!("`timeout` is {given}, expected seconds from 0"))
}

async fn connect() -> Result<Client, String> {
    let options = Options {
        socket: None,
        // A one-shot would run the tasks as ours, and end them with us.
        fallback: Fallback::Forbidden,
        name: "timmy".to_owned(),
        attended: Attended::No,
        asks: Asks::Anything,
    };
    let client = Client::connect_or_oneshot(options).await;
    client.map_err(|error| format!("there is no daemon to hand work to: {error}"))
}

async fn delegate(
    asked: Tasks,
    handed: &HandedIn,
    around: &Surroundings,
) -> Result<ToolOutcome, String> {
    if asked.tasks.is_empty() || asked.tasks.len() > MOST_TASKS {
        let count = asked.tasks.len();
        return Err(format!(
            "`tasks` has {count} entries, expected 1 to {MOST_TASKS}"
        ));
    }
    let sends: Result<Vec<Send>, String> = asked
        .tasks
        .into_iter()
        .map(|task| send(task, asked.wait, around))
        .collect();
    let sends = sends?;
    let mut client = connect().await?;
    let handed_in = client.dispatch(&sends).await.map_err(|error| match error {
        // A dispatch is taken whole or not at all, so one refusal is one for all.
        RequestError::Refused(_) => format!("the daemon refused, and nothing runs: {error}"),
        error => format!("it is unknown whether the tasks run: {error}"),
    })?;
    let jobs: Vec<JobId> = handed_in.value.iter().map(|row| row.job).collect();
    // Before they are waited for: a later call may collect them although this one was cancelled.
    lock(handed).extend(&jobs);
    if !asked.wait {
        let names: Vec<String> = jobs.iter().map(JobId::to_string).collect();
        return Ok(ToolOutcome::done(format!("handed in: {}", names.join(" "))));
    }
    let collected = tokio::select! {
        biased;
        () = around.cancel.cancelled() => None,
        collected = collect(&mut client, &jobs, None, around) => Some(collected),
    };
    match collected {
        Some(collected) => collected,
        None => {
            // Nobody waits for them any more.
            abort(&jobs).await;
            Err("the turn was cancelled, and its tasks with it".to_owned())
        }
    }
}

fn send(task: Task, wait: bool, around: &Surroundings) -> Result<Send, String> {
    let parent = match &around.job {
        Some(job) => Some(job.parse().map_err(|_error| format!("`{job}` is no job"))?),
        None => None,
    };
    let cwd = Some(around.cwd.to_string_lossy().into_owned());
    // A session that is there already keeps the directory that it was made with.
    let (cwd, cwd_if_new) = match task.session {
        Some(_) => (None, cwd),
        None => (cwd, None),
    };
    Ok(Send {
        text: task.prompt,
        agent: task.agent,
        session: task.session,
        provider: task.provider,
        model: task.model,
        timeout: task.timeout,
        expires: wait.then_some(BEGINS_WITHIN),
        cwd,
        cwd_if_new,
        parent,
        ..Send::default()
    })
}

async fn collect(
    client: &mut Client,
    jobs: &[JobId],
    within: Option<Duration>,
    around: &Surroundings,
) -> Result<ToolOutcome, String> {
    let collected = client.collect(jobs, within, Wait::All).await;
    let collected = collected.map_err(|error| format!("the results can't be had: {error}"))?;
    let mut output = Output::new(&around.spill, &around.call);
    for result in &collected.results {
        output.push(told(result).as_bytes());
    }
    for job in &collected.pending {
        output.push(format!("## {job}: not done yet\n").as_bytes());
    }
    let all_went_well = collected
        .results
        .iter()
        .all(|result| result["type"] == "message_end");
    Ok(ToolOutcome::shown(all_went_well, output.shown()))
}

/// Did an earlier turn of this one's session hand it in? The results of others are not for it.
async fn is_of_session(
    client: &mut Client,
    job: JobId,
    around: &Surroundings,
) -> Result<bool, String> {
    let Some(own) = around.job.as_ref().and_then(|own| own.parse().ok()) else {
        return Ok(false);
    };
    let Some(parent) = row(client, job).await?.and_then(|row| row.parent) else {
        return Ok(false);
    };
    let (own, parent) = (row(client, own).await?, row(client, parent).await?);
    Ok(own.is_some_and(|own| parent.is_some_and(|parent| own.session == parent.session)))
}

/// A job's row in the list.
async fn row(client: &mut Client, job: JobId) -> Result<Option<JobRow>, String> {
    let filter = work::Jobs {
        // A list of one row, as no request asks for a single job.
        before: Some(JobId(job.0.saturating_add(1))),
        limit: Some(1),
        ..work::Jobs::default()
    };
    let page = JobPages::new(filter).next(client).await;
    let page = page.map_err(|error| format!("the jobs can't be listed: {error}"))?;
    let rows = page.map(|page| page.value).unwrap_or_default();
    Ok(rows.into_iter().find(|row| row.job == job))
}

/// A final line, for a model. Another agent's words are no instructions, and are marked as its.
fn told(result: &Value) -> String {
    let word = |name: &str| result[name].as_str().unwrap_or_default();
    let (job, agent, text) = (word("job"), word("agent"), word("text"));
    if word("type") == "message_end" {
        let stop = word("stop");
        return format!("## {job}, done by {agent} ({stop}):\n{text}\n");
    }
    let (code, error) = (word("code"), word("error"));
    let mut told = format!("## {job}, {agent} failed ({code}): {error}\n");
    if !text.is_empty() {
        told.push_str(&format!("It had said:\n{text}\n"));
    }
    told
}

async fn abort(jobs: &[JobId]) {
    let all = async {
        // The first connection still waits for its answer.
        let Ok(mut client) = connect().await else {
            return;
        };
        for job in jobs {
            let asked = Abort {
                job: Some(*job),
                ..Abort::default()
            };
            let _it_may_have_ended = client.answer(RequestKind::Abort, &asked).await;
        }
    };
    let _as_far_as_it_went = tokio::time::timeout(ABORT_WITHIN, all).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn delegate_arguments_that_misfit_name_the_field() {
        for (given, names) in [
            (json!({}), "tasks"),
            (json!({"tasks": [{"agent": "pi"}]}), "prompt"),
            (json!({"tasks": [{"prompt": "a", "root": true}]}), "root"),
            (json!({"tasks": "a"}), "sequence"),
        ] {
            let refused = read::<Tasks>(&arguments(given)).unwrap_err();
            assert!(refused.contains(names), "{refused}");
        }
        let fits = read::<Tasks>(&arguments(json!({"tasks": [{"prompt": "a"}]}))).unwrap();
        assert!(fits.wait);
    }

    #[test]
    fn delegate_does_not_wait_long_to_begin() {
        let place = crate::tool::tests::AllowedPath::new(crate::tool::tests::Says::no());
        let task = || Task::deserialize(json!({"prompt": "a"})).unwrap();
        let sent = send(task(), true, &place.around).unwrap();
        assert_eq!(sent.expires, Some(BEGINS_WITHIN));
        let sent = send(task(), false, &place.around).unwrap();
        assert_eq!(sent.expires, None);
    }

    #[test]
    fn delegate_failure_tells_its_code_and_words() {
        let failed = json!({"type": "error", "job": "j2", "agent": "pi", "code": "rate-limit",
            "error": "later", "text": "half"});
        assert_eq!(
            told(&failed),
            "## j2, pi failed (rate-limit): later\nIt had said:\nhalf\n"
        );
        let done = json!({"type": "message_end", "job": "j1", "agent": "pi", "stop": "end_turn", "text": "hi"});
        assert_eq!(told(&done), "## j1, done by pi (end_turn):\nhi\n");
    }
}
