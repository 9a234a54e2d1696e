//! From the params of a request to the work behind it.
//!
//! Owns how arguments become fields of the daemon's requests, keys and directories included. Must not
//! know how that work goes on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agentd_client::key;
use agentd_protocol::JobId;
use agentd_protocol::limits::MAX_LINE_IN;
use agentd_protocol::request::{OnQuestion, Send};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::outcome::Outcome;
use super::peer::{Peer, Revision};
use super::single::{self, Again, Collect, Single};
use super::task::{Begin, Cancel, Create, LABEL, List, Update, Wait};
use super::tools::{self, Job, LONGEST_WAIT_S, Tool, WAIT_S, arguments};
use super::turn::Turn;
use super::work::{Progress, Scene, Step, Work};
use super::{Call, Mcp, invalid};
use crate::face::Ticket;
use crate::json_rpc::{self, Failure};

/// Rows of a list that nobody asked more of.
const ROWS: u64 = 20;
/// Bytes of a client's name of a tool call.
const LONGEST_NAME: usize = 160;

/// The params of `tools/call`.
#[derive(Deserialize)]
struct Params {
    name: String,
    #[serde(default)]
    arguments: Option<Map<String, Value>>,
    #[serde(default, rename = "_meta")]
    meta: Value,
    /// By which the answer is to be a task.
    #[serde(default)]
    task: Option<Map<String, Value>>,
    #[serde(default, rename = "inputResponses")]
    input_responses: Value,
    #[serde(default, rename = "requestState")]
    request_state: Option<String>,
}

#[derive(Deserialize)]
struct OfTask {
    #[serde(rename = "taskId")]
    task_id: String,
    #[serde(default, rename = "inputResponses")]
    input_responses: Map<String, Value>,
}

#[derive(Deserialize)]
struct OfPage {
    cursor: Option<String>,
}

/// A call that is answered without the daemon.
struct Answered(Option<Outcome>);

impl Work for Answered {
    fn begin(&mut self, _scene: &mut Scene<'_>) -> Step {
        self.0.take().map_or(Step::Goes, Step::Done)
    }

    fn line(&mut self, _: Ticket, _: agentd_client::wire::Received, _: &mut Scene<'_>) -> Step {
        Step::Goes
    }

    fn lost(&mut self, _: &mut Scene<'_>) -> Step {
        Step::Goes
    }
}

type Begun = (Box<dyn Work>, Option<String>);

impl Mcp {
    /// The work behind a request, which is begun by whoever has its id.
    pub(super) fn work(
        &mut self,
        method: &str,
        params: Value,
        peer: &Peer,
    ) -> Result<(Box<dyn Work>, CallFacts), Failure> {
        let token = params["_meta"].get("progressToken").cloned();
        let token = token.filter(|token| token.is_string() || token.is_number());
        let (work, used) = match method {
            "tools/call" => self.tool(json_rpc::params(params)?, peer)?,
            "tasks/list" => {
                let page: OfPage = json_rpc::params(params)?;
                let before = page.cursor.map(|cursor| job(&cursor)).transpose();
                let before = before.map_err(|why| invalid(format!("`cursor`: {why}")))?;
                let list: Box<dyn Work> = Box::new(List { before });
                (list, None)
            }
            _ => {
                let of: OfTask = json_rpc::params(params)?;
                let job = job(&of.task_id).map_err(|_| {
                    let shown: String = of.task_id.chars().take(64).collect();
                    invalid(format!("there is no task `{shown}`"))
                })?;
                let work: Box<dyn Work> = match method {
                    "tasks/result" => Box::new(Wait::new(job)),
                    "tasks/cancel" => Box::new(Cancel { job }),
                    "tasks/update" => Box::new(Update::new(job, &of.input_responses)),
                    "tasks/get" => Box::new(Create::get(job)),
                    other => return Err(Failure::no_method(other)),
                };
                (work, None)
            }
        };
        let progress = Progress::new(token);
        Ok((work, CallFacts { progress, used }))
    }

    fn tool(&mut self, params: Params, peer: &Peer) -> Result<Begun, Failure> {
        let offered = Tool::offered(self.settings.answers);
        let mut named = offered.filter(|tool| tool.name() == params.name);
        let Some(tool) = named.next() else {
            let shown: String = params.name.chars().take(64).collect();
            return Err(invalid(format!("there is no tool `{shown}`")));
        };
        let as_task = params.task.is_some() && peer.revision == Revision::November2025;
        if as_task && tool != Tool::Ask {
            let why = format!("`{}` is no task", params.name);
            return Err(Failure::new(json_rpc::METHOD_NOT_FOUND, why));
        }
        let begun = match tool {
            Tool::Ask => self.ask(params, as_task, peer),
            Tool::Dispatch => self.dispatch(&params, peer),
            other => plain(other, &params.arguments.unwrap_or_default()).map(|work| (work, None)),
        };
        Ok(begun.unwrap_or_else(|why| {
            // For the model, which says it again: as the protocol has it since 2025-11-25.
            (Box::new(Answered(Some(Outcome::wrong(&why)))), None)
        }))
    }

    fn ask(&mut self, params: Params, as_task: bool, peer: &Peer) -> Result<Begun, String> {
        let ask: tools::Ask = arguments(&params.arguments.unwrap_or_default())?;
        let wait = wait(ask.wait_s)?;
        let (key, used) = self.key(&params.meta);
        let send = self.send(ask.job(), key, peer)?;
        fits(&send)?;
        if as_task {
            let fields = json!({"jobs": [send]});
            return Ok((Box::new(Begin { fields }), used));
        }
        let turn = Turn::new(send, wait);
        let turn = match params.request_state {
            Some(kept) => turn.going_on(&kept, &params.input_responses)?,
            None => turn,
        };
        Ok((Box::new(turn), used))
    }

    fn dispatch(&mut self, params: &Params, peer: &Peer) -> Result<Begun, String> {
        let arguments = params.arguments.clone().unwrap_or_default();
        let jobs: tools::Dispatch = tools::arguments(&arguments)?;
        let (key, used) = self.key(&params.meta);
        let sends = jobs.jobs.into_iter().enumerate();
        let sends = sends.map(|(at, job)| self.send(job, format!("{key}:{at}"), peer));
        let sends: Vec<Send> = sends.collect::<Result<_, _>>()?;
        fits(&sends)?;
        let fields = json!({"jobs": sends});
        let single = Single::new("dispatch", fields, Again::Keyed, single::dispatched);
        Ok((Box::new(single), used))
    }

    /// The key of a call: by what the client calls it, where that is one call only, so that whoever
    /// asks again finds the job. With it, that name.
    fn key(&mut self, meta: &Value) -> (String, Option<String>) {
        let word = |name: &str| meta[name].as_str();
        let name = match (
            word("claudecode/toolUseId"),
            word("callId"),
            word("threadId"),
        ) {
            (Some(id), _, _) => Some(id.to_owned()),
            // Its ids of calls are the model's, and not every model's are its own.
            (None, Some(call), Some(thread)) => {
                let turn = meta["x-codex-turn-metadata"]["turn_id"].as_str();
                Some(format!("{thread}:{}:{call}", turn.unwrap_or_default()))
            }
            (None, _, _) => None,
        };
        let name = name.filter(|name| name.len() <= LONGEST_NAME && !self.used.contains(name));
        if let (Some(name), Some(scope)) = (name, &self.settings.scope) {
            return (format!("mcp:{scope}:{name}"), Some(name));
        }
        self.last += 1;
        (format!("mcp:{}:{}", self.settings.nonce, self.last), None)
    }

    fn send(&self, job: Job, key: String, peer: &Peer) -> Result<Send, String> {
        let here = self.root.as_ref().or(self.settings.cwd.as_ref());
        let cwd = job
            .cwd
            .map(|cwd| absolute(&cwd, here.map(PathBuf::as_path)))
            .transpose()?;
        let mut labels =
            std::collections::BTreeMap::from([(LABEL.0.to_owned(), LABEL.1.to_owned())]);
        if let Some(name) = &peer.name {
            labels.insert("client".to_owned(), name.clone());
        }
        let before = |session: &String| self.spoken.agent(session).cloned();
        let send = Send {
            text: job.prompt,
            agent: job.agent.or_else(|| job.session.as_ref().and_then(before)),
            session: job.session,
            provider: job.provider,
            model: job.model,
            cwd_if_new: cwd
                .is_none()
                .then(|| Some(here?.to_str()?.to_owned()))
                .flatten(),
            cwd,
            idempotency_key: Some(key),
            on_question: peer.elicits.then_some(OnQuestion::Wait),
            labels,
            ..Send::default()
        };
        // It has a key: none is made.
        let completed = key::completed(&send).map_err(|why| why.to_string())?;
        Ok(completed.into_owned())
    }
}

/// What is known of a call before it has an id.
pub(super) struct CallFacts {
    pub(super) progress: Progress,
    pub(super) used: Option<String>,
}

impl CallFacts {
    /// The whole.
    pub(super) fn call(self, id: agentd_protocol::Id, peer: Peer, work: Box<dyn Work>) -> Call {
        Call {
            id,
            peer,
            progress: self.progress,
            used: self.used,
            work,
        }
    }
}

/// The tools that are one request.
fn plain(tool: Tool, given: &Map<String, Value>) -> Result<Box<dyn Work>, String> {
    let single = |kind, fields, again, read| -> Result<Box<dyn Work>, String> {
        Ok(Box::new(Single::new(kind, fields, again, read)))
    };
    match tool {
        Tool::Collect => {
            let collect: tools::Collect = arguments(given)?;
            let jobs = collect.jobs.iter().map(|name| job(name));
            let jobs = jobs.collect::<Result<Vec<JobId>, _>>()?;
            Ok(Box::new(Collect::new(
                jobs,
                collect.any,
                wait(collect.wait_s)?,
            )))
        }
        Tool::Steer => single(
            "steer",
            fields(given, &["job", "text"])?,
            Again::No,
            single::steered,
        ),
        Tool::Cancel => single(
            "abort",
            fields(given, &["job"])?,
            Again::Yes,
            single::cancelled,
        ),
        Tool::Sessions => {
            let mut fields = fields(given, &["agent", "cwd", "limit"])?;
            fields["newest"] = json!(true);
            limited(&mut fields);
            single("session.list", fields, Again::Yes, single::sessions)
        }
        Tool::Agents => single("agents", fields(given, &[])?, Again::Yes, single::agents),
        Tool::Jobs => {
            let mut fields = fields(given, &["session", "agent", "state", "limit"])?;
            limited(&mut fields);
            single("jobs", fields, Again::Yes, single::jobs)
        }
        Tool::History => {
            let history: tools::History = arguments(given)?;
            let mut fields = json!({"session": history.session});
            if let Some(name) = history.job {
                fields["job"] = json!(job(&name)?);
            }
            if let Some(after) = history.after {
                fields["after"] = json!(after);
            }
            single("session.history", fields, Again::Yes, single::history)
        }
        Tool::Questions => single(
            "questions",
            fields(given, &["session"])?,
            Again::Yes,
            single::questions,
        ),
        Tool::Answer => {
            let known = ["question_id", "approve", "choice", "text"];
            single(
                "answer",
                fields(given, &known)?,
                Again::Yes,
                single::answered,
            )
        }
        Tool::Ask | Tool::Dispatch => Err("this is no request of its own".to_owned()),
    }
}

/// Arguments that the daemon takes by the same names. Whether their values fit, it says.
fn fields(given: &Map<String, Value>, known: &[&str]) -> Result<Value, String> {
    let unknown = given.keys().find(|name| !known.contains(&name.as_str()));
    if let Some(name) = unknown {
        let shown: String = name.chars().take(64).collect();
        let expected = known.join("`, `");
        return Err(format!(
            "there is no argument `{shown}`: expected `{expected}`"
        ));
    }
    fits(given)?;
    let given = given.iter().filter(|(_, value)| !value.is_null());
    Ok(Value::Object(
        given.map(|(k, v)| (k.clone(), v.clone())).collect(),
    ))
}

/// A line of the daemon's takes so much; one that doesn't fit is never written.
fn fits(fields: &impl Serialize) -> Result<(), String> {
    let length = serde_json::to_string(fields).map_or(0, |json| json.len());
    // With its type and id.
    if length + 1024 > MAX_LINE_IN {
        return Err(format!(
            "this takes {length} bytes, and the limit is {MAX_LINE_IN}: name large files by their path"
        ));
    }
    Ok(())
}

fn limited(fields: &mut Value) {
    if fields.get("limit").is_none() {
        fields["limit"] = json!(ROWS);
    }
}

fn job(name: &str) -> Result<JobId, String> {
    let shown: String = name.chars().take(64).collect();
    name.parse()
        .map_err(|_| format!("`{shown}` is not a job: expected `j` and a number, as in `j41`"))
}

fn wait(seconds: Option<f64>) -> Result<Duration, String> {
    let seconds = seconds.unwrap_or(WAIT_S);
    if !(0.0..=LONGEST_WAIT_S).contains(&seconds) {
        return Err(format!(
            "`wait_s` is {seconds}, expected 0 to {LONGEST_WAIT_S}"
        ));
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn absolute(cwd: &str, here: Option<&Path>) -> Result<String, String> {
    let path = Path::new(cwd);
    let path = match (path.is_absolute(), here) {
        (true, _) => path.to_owned(),
        (false, Some(here)) => here.join(path),
        (false, None) => return Err(format!("`cwd` is `{cwd}`: expected an absolute path")),
    };
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| "`cwd` is not UTF-8".to_owned())
}

/// The first directory that a client's user works in.
pub(super) fn first_root(result: &Value) -> Option<PathBuf> {
    let roots = result["roots"].as_array()?.iter();
    let mut paths = roots.filter_map(|root| {
        let path = root["uri"].as_str()?.strip_prefix("file://")?;
        let path = path.strip_prefix("localhost").unwrap_or(path);
        Some(PathBuf::from(unescaped(path)?)).filter(|path| path.is_absolute())
    });
    paths.next()
}

/// The text of a URL's path.
fn unescaped(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mcp_root_is_the_first_file_url() {
        let roots = |uris: &[&str]| {
            let roots = uris.iter().map(|uri| json!({"uri": uri}));
            first_root(&json!({"roots": roots.collect::<Vec<_>>()}))
        };
        let found = roots(&["https://x", "file:///srv/a%20b/%C3%A9", "file:///other"]);
        assert_eq!(found, Some(PathBuf::from("/srv/a b/é")));
        assert_eq!(roots(&["file://localhost/x"]), Some(PathBuf::from("/x")));
        assert_eq!(
            roots(&["file://server/x", "file:///%zz", "file:///%"]),
            None
        );
        assert_eq!(first_root(&json!({"roots": 5})), None);
    }

    #[test]
    fn mcp_relative_cwd_is_below_the_project() {
        let here = Some(Path::new("/project"));
        assert_eq!(absolute("sub", here), Ok("/project/sub".to_owned()));
        assert_eq!(absolute("/sub", None), Ok("/sub".to_owned()));
        assert!(absolute("sub", None).unwrap_err().contains("absolute"));
    }

    #[test]
    fn mcp_wait_is_no_longer_than_an_hour() {
        assert_eq!(wait(None), Ok(Duration::from_secs(45)));
        assert_eq!(wait(Some(0.0)), Ok(Duration::ZERO));
        for wrong in [-1.0, 3601.0, f64::NAN, f64::INFINITY] {
            assert!(wait(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
