//! One MCP server: its process or its URL, and the calls to it.
//!
//! Owns the connection and its time limits; `rmcp` speaks the protocol. Must not know how tools are
//! named for models, nor whether a call is allowed.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentd_base::shared::lock;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use process_wrap::tokio::{CommandWrap, ProcessGroup};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam,
    ClientRequest, ContentBlock, ResourceContents, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RunningService, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{RoleClient, ServiceExt as _};
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::McpServer;
use crate::session::compaction::beginning;

/// A server has this long to start and to name its tools; `npx` may be downloading.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// A call takes no longer, unless the configuration says otherwise or it tells of progress.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// With any amount of progress, a call takes no longer.
const LONGEST_CALL: Duration = Duration::from_secs(600);
/// A server that is told to leave has this long.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
/// What a server that died said last is waited for this long, when something else that it started
/// still could say more.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(2);
/// The end of standard error that is kept for error messages.
const TAIL: usize = 2 * 1024;
/// Of an answer so much is taken in: then it is cut for the model anyway.
const MOST_ANSWER: usize = 1 << 20;
/// What every server gets of the environment.
const PASSED: &[&str] = &[
    "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER",
];

/// A tool as a server tells of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ListedTool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) schema: Value,
}

/// What came of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Called {
    /// The server's answer, as text.
    Answered { ok: bool, text: String },
    /// There is none, and this is why.
    Failed(String),
}

/// A server that is up.
pub(super) struct Server {
    name: String,
    tools: Vec<ListedTool>,
    patience: Duration,
    peer: Peer<RoleClient>,
    service: tokio::sync::Mutex<RunningService<RoleClient, ()>>,
    /// Of its process, where it is one: what it started is in it, too.
    group: Option<Pid>,
    tail: Tail,
}

/// What a server's process says last on standard error.
struct Tail {
    said: Arc<Mutex<VecDeque<u8>>>,
    /// Nothing more will be said.
    closed: CancellationToken,
    /// Reads it to its end, so that the server never waits for a reader.
    _drain: JoinSet<()>,
}

impl Server {
    /// Starts or reaches it, and asks what it has.
    ///
    /// # Errors
    /// In words for people.
    pub(super) async fn start(
        name: &str,
        config: &McpServer,
        environment: &BTreeMap<OsString, OsString>,
    ) -> Result<Self, String> {
        let mut tail = Tail::of(None);
        let mut group = None;
        let begun = async {
            let service = match (&config.command[..], &config.url) {
                ([program, arguments @ ..], None) => {
                    let (transport, errors) = spawn(program, arguments, config, environment)?;
                    let id = transport.id().and_then(|id| i32::try_from(id).ok());
                    group = id.map(Pid::from_raw);
                    tail = Tail::of(errors);
                    ().serve(transport).await
                }
                ([], Some(url)) => ().serve(reach(url, &config.headers)?).await,
                _ => return Err("it needs either `command` or `url`".to_owned()),
            };
            let service = service.map_err(|error| error.to_string())?;
            let tools = service.list_all_tools().await;
            Ok((service, tools.map_err(|error| error.to_string())?))
        };
        let begun = timeout(READY_WITHIN, begun).await.unwrap_or_else(|_late| {
            let seconds = READY_WITHIN.as_secs();
            Err(format!("it did not get ready within {seconds} s"))
        });
        let (service, tools) = match begun {
            Ok(begun) => begun,
            Err(why) => return Err(tail.added_to(why).await),
        };
        let told = |tool: rmcp::model::Tool| ListedTool {
            name: tool.name.into_owned(),
            description: tool.description.map(Into::into).unwrap_or_default(),
            schema: Value::Object((*tool.input_schema).clone()),
        };
        Ok(Self {
            name: name.to_owned(),
            tools: tools.into_iter().map(told).collect(),
            patience: config.timeout.map_or(ANSWER_WITHIN, Duration::from_secs),
            peer: service.peer().clone(),
            service: tokio::sync::Mutex::new(service),
            group,
            tail,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn tools(&self) -> &[ListedTool] {
        &self.tools
    }

    /// Has its process ended, or its connection?
    pub(super) fn has_ended(&self) -> bool {
        self.peer.is_transport_closed()
    }

    /// Calls a tool. When the time is over, or the turn, the server is told so.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        cancel: &CancellationToken,
    ) -> Called {
        let asked = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.clone());
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(asked));
        let mut options = PeerRequestOptions::with_timeout(self.patience);
        options.reset_timeout_on_progress = true;
        options.max_total_timeout = Some(self.patience.max(LONGEST_CALL));
        let sent = self.peer.send_cancellable_request(request, options);
        // A process that doesn't read its input can stop the writing, too.
        let handle = tokio::select! {
            biased;
            () = cancel.cancelled() => return Called::Failed("the turn was cancelled".to_owned()),
            sent = timeout(self.patience, sent) => match sent {
                Ok(Ok(handle)) => handle,
                Ok(Err(error)) => return self.failed(&error).await,
                Err(_late) => return self.failed(&ServiceError::Timeout { timeout: self.patience }).await,
            },
        };
        let (peer, id) = (handle.peer.clone(), handle.id.clone());
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                let why = "the turn was cancelled".to_owned();
                let told = CancelledNotificationParam::new(Some(id), Some(why.clone()));
                let _it_may_be_deaf = timeout(LEAVE_WITHIN, peer.notify_cancelled(told)).await;
                Called::Failed(why)
            }
            // Behind the cancel: who cancelled hears that, and not what came in the same moment.
            answer = handle.await_response() => match answer {
                Ok(ServerResult::CallToolResult(result)) => answered(&result),
                Ok(_) => self.failed(&ServiceError::UnexpectedResponse).await,
                Err(error) => self.failed(&error).await,
            },
        }
    }

    async fn failed(&self, error: &ServiceError) -> Called {
        let name = &self.name;
        let why = match error {
            ServiceError::McpError(error) => {
                format!("the MCP server `{name}` refused: {}", error.message)
            }
            ServiceError::Timeout { timeout } => {
                let seconds = timeout.as_secs_f32();
                format!("the MCP server `{name}` did not answer within {seconds} s")
            }
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
                let why = format!(
                    "the MCP server `{name}` has ended; it is started again with the next turn"
                );
                self.tail.added_to(why).await
            }
            other => format!("the MCP server `{name}`: {other}"),
        };
        Called::Failed(why)
    }

    /// Ends it, with what it started. Whoever still calls it hears that it ended.
    pub(super) async fn end(&self) {
        let mut service = self.service.lock().await;
        let _it_may_have_ended = service.close_with_timeout(LEAVE_WITHIN).await;
        if let Some(group) = self.group {
            // What it left behind keeps the group's number taken; with nobody there it is an error.
            let _nobody_there = killpg(group, Signal::SIGKILL);
        }
    }
}

/// Starts a server's process in a group of its own, with nothing of the environment but what it is
/// allowed.
fn spawn(
    program: &str,
    arguments: &[String],
    config: &McpServer,
    environment: &BTreeMap<OsString, OsString>,
) -> Result<(TokioChildProcess, Option<ChildStderr>), String> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    let passed = PASSED.iter().copied();
    for name in passed.chain(config.pass_env.iter().map(String::as_str)) {
        if let Some(value) = environment.get(std::ffi::OsStr::new(name)) {
            command.env(name, value);
        }
    }
    command.envs(&config.env);
    // The workspace belongs to a session, the server to all of them.
    command.current_dir(
        environment
            .get(std::ffi::OsStr::new("HOME"))
            .map_or("/".as_ref(), |home| std::path::Path::new(home)),
    );
    let mut command = CommandWrap::from(command);
    command.wrap(ProcessGroup::leader());
    let spawned = TokioChildProcess::builder(command)
        .stderr(Stdio::piped())
        .spawn();
    spawned.map_err(|error| format!("`{program}` can't be started: {error}"))
}

fn reach(
    url: &str,
    headers: &BTreeMap<String, String>,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
    let safe = url.starts_with("https://")
        || local.iter().any(|local| {
            let rest = url.strip_prefix(local);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
        });
    // In the clear anybody on the way reads what is asked, and answers.
    if !safe {
        return Err(format!(
            "its `url` is `{url}`, expected `https://…`, or `http://` to this machine"
        ));
    }
    // Only the configuration says who is asked, and not the server.
    let client = crate::model::http::builder_for(url).redirect(reqwest::redirect::Policy::none());
    let header = |(name, value): (&String, &String)| {
        let name: HeaderName = name.parse().ok()?;
        let mut value: HeaderValue = value.parse().ok()?;
        value.set_sensitive(true);
        Some((name, value))
    };
    let headers: Option<HeaderMap> = headers.iter().map(header).collect();
    let headers = headers.ok_or("one of its `headers` can't be sent")?;
    let client = client
        .default_headers(headers)
        .build()
        .map_err(|error| error.to_string())?;
    let config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

impl Tail {
    /// Of this standard error, if there is one.
    fn of(errors: Option<ChildStderr>) -> Self {
        let (said, closed) = (
            Arc::<Mutex<VecDeque<u8>>>::default(),
            CancellationToken::new(),
        );
        let mut drain = JoinSet::new();
        match errors {
            Some(errors) => {
                let (said, closed) = (Arc::clone(&said), closed.clone().drop_guard());
                drain.spawn(async move {
                    keep(errors, &said).await;
                    drop(closed);
                });
            }
            None => closed.cancel(),
        }
        Self {
            said,
            closed,
            _drain: drain,
        }
    }

    /// Why a server is gone, with its last words. Its end is heard on one pipe, and these come on
    /// the other: they are waited for.
    async fn added_to(&self, why: String) -> String {
        let _all_of_them = timeout(LAST_WORDS_WITHIN, self.closed.cancelled()).await;
        let mut said = lock(&self.said);
        let said = String::from_utf8_lossy(said.make_contiguous());
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        match last {
            Some(last) => format!("{why}; its last words: {}", beginning(last.trim(), 300)),
            None => why,
        }
    }
}

async fn keep(mut errors: ChildStderr, tail: &Mutex<VecDeque<u8>>) {
    let mut portion = [0; 4096];
    while let Ok(read @ 1..) = errors.read(&mut portion).await {
        let mut tail = lock(tail);
        tail.extend(&portion[..read]);
        let over = tail.len().saturating_sub(TAIL);
        tail.drain(..over);
    }
}

/// An answer as text; what is no text is named.
fn answered(result: &CallToolResult) -> Called {
    let mut text = String::new();
    for block in &result.content {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        match block {
            ContentBlock::Text(said) => text.push_str(&said.text),
            ContentBlock::Image(image) => {
                text.push_str(&format!("[an image, {}, not shown]", image.mime_type));
            }
            ContentBlock::Audio(audio) => {
                text.push_str(&format!("[a sound, {}, not shown]", audio.mime_type));
            }
            ContentBlock::Resource(resource) => match &resource.resource {
                ResourceContents::TextResourceContents { text: said, .. } => text.push_str(said),
                other => text.push_str(&json!(other).to_string()),
            },
            other => text.push_str(&json!(other).to_string()),
        }
        if text.len() > MOST_ANSWER {
            text.truncate(beginning(&text, MOST_ANSWER).len());
            break;
        }
    }
    // Servers should say it as text as well, and need not (MCP 2025-06-18, "Structured Content").
    if let (true, Some(structured)) = (text.is_empty(), &result.structured_content) {
        text = structured.to_string();
    }
    Called::Answered {
        ok: result.is_error != Some(true),
        text,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn last_words_are_waited_for() {
        let mut child = Command::new("sh")
            .args(["-c", "read -r line; echo 'out of luck' >&2"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let tail = Tail::of(child.stderr.take());
        let mut input = child.stdin.take().unwrap();
        // It says them when somebody waits for them already.
        let (said, told) = tokio::join!(
            tail.added_to("it has ended".to_owned()),
            input.write_all(b"speak\n")
        );
        told.unwrap();
        assert_eq!(said, "it has ended; its last words: out of luck");
        let nothing = Tail::of(None).added_to("it is gone".to_owned()).await;
        assert_eq!(nothing, "it is gone");
    }
}
