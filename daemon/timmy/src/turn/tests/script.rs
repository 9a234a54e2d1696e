//! Models and tools that do what a test says, and an environment for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde_json::{Map, Value, json};
use tokio::sync::{Barrier, mpsc};

use super::super::*;
use crate::config::{Price, PricePair};
use crate::line::OutgoingLine;
use crate::message::{CallArguments, ToolCall};
use crate::model::{Boxed, FailedAt, Piece, Request, ToolSpec, Usage};
use crate::provider::{Key, Provider, Wire};
use crate::session::Basis;
use crate::tool::{Approval, Surroundings, Tool, ToolOutcome};
use crate::turn::asker::Nobody;

/// What a model does when it is asked.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Says it, word by word, and is done.
    Says(&'static str),
    /// Says it at the end only.
    Silently(&'static str),
    /// Thinks aloud; the next step belongs to the same reply.
    Thinks(&'static str),
    /// Waits a second; the next step belongs to the same reply.
    Waits,
    /// Calls tools: a name and its arguments each.
    Calls(Vec<(&'static str, &'static str)>),
    /// The same, cut for want of room.
    CutCalls(Vec<(&'static str, &'static str)>),
    /// Says it and never ends.
    Hangs(&'static str),
    /// Says it, then fails.
    Fails(&'static str, Failure, Class),
    /// Says it and stops for this reason.
    Stops(&'static str, Stop),
}

pub(crate) fn failure(at: FailedAt) -> Failure {
    Failure {
        at,
        code: None,
        text: "the provider's words".to_owned(),
        retry_after: None,
        usage: Usage::default(),
    }
}

pub(crate) fn fails(at: FailedAt, class: Class) -> Step {
    Step::Fails("", failure(at), class)
}

pub(crate) fn limited(seconds: u64) -> Step {
    let retry_after = Some(Duration::from_secs(seconds));
    let failure = Failure {
        retry_after,
        ..failure(FailedAt::Status(429))
    };
    Step::Fails("", failure, Class::RateLimit)
}

pub(crate) fn says(text: &str) -> Reply {
    Reply {
        message: Assistant {
            text: text.to_owned(),
            ..Assistant::default()
        },
        stop: Stop::EndTurn,
        usage: Usage::default(),
        reported_usd: None,
    }
}

pub(crate) fn user(text: &str) -> Message {
    Message::user(text)
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) system: String,
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: usize,
    pub(crate) at: Instant,
}

#[derive(Default)]
pub(crate) struct Models {
    scripts: Mutex<BTreeMap<String, VecDeque<Step>>>,
    asked: Mutex<Vec<Asked>>,
    sent: Arc<AtomicUsize>,
    classes: Mutex<VecDeque<Class>>,
    pub(crate) tokens: AtomicU64,
    call_id: Mutex<Option<&'static str>>,
}

impl Models {
    pub(crate) fn script(&self, provider: &str, steps: impl IntoIterator<Item = Step>) {
        let mut scripts = self.scripts.lock().unwrap();
        scripts
            .entry(provider.to_owned())
            .or_default()
            .extend(steps);
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn pieces_sent(&self) -> impl Fn() -> usize + use<> {
        let sent = Arc::clone(&self.sent);
        move || sent.load(Ordering::Relaxed)
    }

    /// Gives every call this id, as some providers do.
    pub(crate) fn always_calls(&self, id: &'static str) {
        *self.call_id.lock().unwrap() = Some(id);
    }

    fn next(&self, provider: &str) -> Step {
        let mut scripts = self.scripts.lock().unwrap();
        let step = scripts.get_mut(provider).and_then(VecDeque::pop_front);
        step.unwrap_or_else(|| panic!("`{provider}` was not expected to be asked"))
    }

    async fn say(&self, text: &str, pieces: &mpsc::Sender<Piece>) {
        for piece in words(text) {
            pieces.send(Piece::Text(piece)).await.unwrap();
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn calls(&self, calls: &[(&str, &str)]) -> Vec<ToolCall> {
        let number = self.asked.lock().unwrap().len();
        let own = *self.call_id.lock().unwrap();
        let call = |(at, (name, arguments)): (usize, &(&str, &str))| ToolCall {
            id: own.map_or_else(|| format!("c{number}-{at}"), str::to_owned),
            name: (*name).to_owned(),
            arguments: match serde_json::from_str(arguments) {
                Ok(Value::Object(map)) => CallArguments::Object(map),
                _ => CallArguments::Malformed((*arguments).to_owned()),
            },
            signatures: Vec::new(),
        };
        calls.iter().enumerate().map(call).collect()
    }

    async fn play(
        &self,
        target: &Target,
        pieces: &mpsc::Sender<Piece>,
    ) -> Result<Reply, Box<Failure>> {
        let mut reply = says("");
        reply.message.provider.clone_from(&target.provider.id);
        reply.message.model.clone_from(&target.model);
        reply.usage = Usage {
            input: self.tokens.load(Ordering::Relaxed).max(5),
            output: 10,
            ..Usage::default()
        };
        loop {
            match self.next(&target.provider.id) {
                Step::Thinks(text) => {
                    pieces.send(Piece::Thinking(text.to_owned())).await.unwrap();
                    continue;
                }
                Step::Waits => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
                Step::Says(text) => {
                    self.say(text, pieces).await;
                    text.clone_into(&mut reply.message.text);
                }
                Step::Silently(text) => text.clone_into(&mut reply.message.text),
                Step::Stops(text, stop) => {
                    self.say(text, pieces).await;
                    text.clone_into(&mut reply.message.text);
                    reply.stop = stop;
                }
                Step::Calls(calls) => {
                    reply.message.calls = self.calls(&calls);
                    reply.stop = Stop::ToolUse;
                }
                Step::CutCalls(calls) => {
                    reply.message.calls = self.calls(&calls);
                    reply.stop = Stop::MaxTokens;
                }
                Step::Hangs(text) => {
                    self.say(text, pieces).await;
                    std::future::pending::<()>().await;
                }
                Step::Fails(text, failure, class) => {
                    self.say(text, pieces).await;
                    self.classes.lock().unwrap().push_back(class);
                    return Err(Box::new(failure));
                }
            }
            return Ok(reply);
        }
    }
}

/// `a b` is said as `a` and ` b`.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(' ').enumerate();
    words.map(|(at, word)| {
        if at == 0 {
            word.to_owned()
        } else {
            format!(" {word}")
        }
    })
}

impl ModelClient for Models {
    fn ask<'a>(
        &'a self,
        request: &'a Request,
        pieces: &'a mpsc::Sender<Piece>,
    ) -> Boxed<'a, Result<Reply, Box<Failure>>> {
        self.asked.lock().unwrap().push(Asked {
            system: request.system.to_string(),
            messages: request.messages.clone(),
            tools: request.tools.len(),
            at: Instant::now(),
        });
        Box::pin(self.play(&request.target, pieces))
    }
}

/// An environment without a machine.
pub(crate) struct Scripted {
    pub(crate) models: Arc<Models>,
    pub(crate) began: Instant,
}

impl TurnEnv for Scripted {
    fn client(&self) -> &dyn ModelClient {
        &*self.models
    }

    fn classify(&self, _target: &Target, _failure: &Failure) -> Class {
        self.models.classes.lock().unwrap().pop_front().unwrap()
    }

    fn wall_ms(&self) -> u64 {
        1_000_000 + u64::try_from(self.began.elapsed().as_millis()).unwrap()
    }

    fn chance(&self) -> f64 {
        0.5
    }
}

/// What ran, in order.
type Ran = Arc<Mutex<Vec<String>>>;

/// A tool that does as its name says.
pub(crate) struct Scriptable {
    name: &'static str,
    pub(crate) ran: Ran,
    together: Arc<Barrier>,
}

impl Tool for Scriptable {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.to_owned(),
            description: String::new(),
            schema: json!({"type": "object"}),
        }
    }

    fn is_read_only(&self) -> bool {
        self.name == "read" || self.name == "meet"
    }

    fn run<'a>(
        &'a self,
        arguments: &'a Map<String, Value>,
        context: &'a Surroundings,
    ) -> Boxed<'a, Result<ToolOutcome, String>> {
        Box::pin(async move {
            let text = serde_json::to_string(arguments).unwrap();
            let note = |what: &str| self.ran.lock().unwrap().push(format!("{what}{text}"));
            match self.name {
                // Ends only when another one runs at the same time.
                "meet" => {
                    self.together.wait().await;
                }
                "ask" => {
                    return match context
                        .asker
                        .approve(Some(&context.call), "title", "detail")
                        .await
                    {
                        Approval::Granted => Ok(ToolOutcome::done("granted".to_owned())),
                        Approval::Denied(why) => Err(why),
                    };
                }
                "stubborn" => std::future::pending().await,
                "patient" => {
                    context.cancel.cancelled().await;
                    return Err("stopped".to_owned());
                }
                "panic" => panic!("a tool panics"),
                "noisy" => {
                    for _ in 0..1000 {
                        let _full = context.progress.try_send("noise".to_owned());
                    }
                }
                _ => {}
            }
            note(self.name);
            Ok(ToolOutcome::done(format!("{} done", self.name)))
        })
    }
}

pub(crate) fn tools() -> (Vec<Arc<dyn Tool>>, Ran) {
    let ran = Ran::default();
    let together = Arc::new(Barrier::new(2));
    let names = [
        "read", "meet", "write", "ask", "stubborn", "patient", "panic", "noisy",
    ];
    let tools = names.map(|name| -> Arc<dyn Tool> {
        Arc::new(Scriptable {
            name,
            ran: Arc::clone(&ran),
            together: Arc::clone(&together),
        })
    });
    (tools.into(), ran)
}

pub(crate) fn target(name: &str) -> Target {
    let price = |usd| Price::try_from(usd).unwrap();
    let (provider, model) = name.split_once('/').unwrap();
    Target {
        provider: Arc::new(Provider {
            id: provider.to_owned(),
            base_url: format!("http://{provider}"),
            wire: Wire::OpenAi,
            key_variables: vec![format!("{}_KEY", provider.to_uppercase())],
            local: false,
            window: None,
            // A reply of these models costs a quarter of a dollar.
            price: Some(PricePair(price(10_000.0), price(20_000.0))),
        }),
        model: model.to_owned(),
        key: Some(Key::new("secret".to_owned())),
    }
}

pub(crate) fn shown(messages: &[Message]) -> Vec<String> {
    let show = |message: &Message| match message {
        Message::User { text, .. } => format!("user {text}"),
        Message::Assistant(said) if said.calls.is_empty() => format!("said {}", said.text),
        Message::Assistant(said) => {
            let names: Vec<_> = said.calls.iter().map(|call| call.name.as_str()).collect();
            format!("calls {}", names.join(" "))
        }
        Message::Tool(result) => {
            let ok = if result.ok { "ok" } else { "failed" };
            format!("{ok} {}", result.output)
        }
    };
    messages.iter().map(show).collect()
}

/// What a turn of a play has; a macro, as the session is borrowed beside it.
macro_rules! context {
    ($play:expr, $line:expr, $cancel:expr) => {
        TurnContext {
            env: &$play.env,
            store: &$play.store,
            line: $line,
            tools: &$play.tools,
            plan: &$play.plan,
            started: Instant::now(),
            inbox: &$play.inbox,
            cancel: $cancel,
            asker: Arc::new(Nobody),
            cwd: $play.dir.path().to_owned(),
            anchors: Arc::default(),
            spill: $play.dir.path().join("spill"),
            job: None,
        }
    };
}

/// When a turn is cancelled.
#[derive(Clone, Copy)]
enum Cancel {
    Line(&'static str),
    Text(&'static str),
}

/// A session and what it is played with.
pub(crate) struct Play {
    pub(crate) models: Arc<Models>,
    pub(crate) env: Scripted,
    pub(crate) plan: Plan,
    pub(crate) ran: Ran,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) cancel: CancellationToken,
    /// Lines that may wait.
    pub(crate) room: usize,
    pub(crate) store: Arc<Store>,
    cancel_at: Option<Cancel>,
    tools: Toolbox,
    session: Session,
    dir: tempfile::TempDir,
}

impl Play {
    pub(crate) fn new(chain: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (tools, ran) = tools();
        let models = Arc::<Models>::default();
        Self {
            env: Scripted {
                models: Arc::clone(&models),
                began: Instant::now(),
            },
            models,
            plan: Plan {
                chain: chain.iter().map(|name| target(name)).collect(),
                on_refusal: OnRefusal::Stop,
                thinking: None,
                requests: REQUESTS,
                deadline: None,
            },
            ran,
            inbox: Arc::default(),
            cancel: CancellationToken::new(),
            room: 8,
            store: Arc::new(Store::new(dir.path().join("timmy"))),
            cancel_at: None,
            tools: Toolbox::new(tools),
            session: Session::passing(Basis {
                system: "the basis".to_owned(),
                soul_sha256: None,
                led: crate::tool::anchor::Led::new(),
            }),
            dir,
        }
    }

    pub(crate) fn script(&self, provider: &str, steps: impl IntoIterator<Item = Step>) {
        self.models.script(provider, steps);
    }

    /// So many tokens fit into a conversation with any of the models.
    pub(crate) fn fits(&mut self, tokens: u64) {
        for target in &mut self.plan.chain {
            Arc::make_mut(&mut target.provider).window = Some(tokens);
        }
    }

    pub(crate) fn model_counts(&self, tokens: u64) {
        self.models.tokens.store(tokens, Ordering::Relaxed);
    }

    pub(crate) const fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) const fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    pub(crate) fn history(&self) -> Vec<String> {
        shown(self.session.history().messages())
    }

    /// Cancels the next turn when so much was said.
    pub(crate) fn cancel_when_text(&mut self, text: &'static str) {
        self.cancel_at = Some(Cancel::Text(text));
    }

    /// Cancels the next turn when a line of this type is read.
    pub(crate) fn cancel_when(&mut self, kind: &'static str) {
        self.cancel_at = Some(Cancel::Line(kind));
    }

    pub(crate) async fn turn(&mut self, text: &str) -> (Ending, Vec<Value>) {
        self.turn_watched(text, |_| {}).await
    }

    /// Plays a turn; `watch` sees each line when it is read.
    pub(crate) async fn turn_watched(
        &mut self,
        text: &str,
        mut watch: impl FnMut(&Value),
    ) -> (Ending, Vec<Value>) {
        self.prepare(text).await;
        self.play(&mut watch).await
    }

    /// Makes ready for a turn with these words.
    pub(crate) async fn prepare(&mut self, text: &str) {
        self.inbox = Arc::default();
        self.cancel = CancellationToken::new();
        self.session.append(vec![user(text)]).await.unwrap();
    }

    /// Plays a turn whose words are in the history.
    pub(crate) async fn play(&mut self, watch: &mut impl FnMut(&Value)) -> (Ending, Vec<Value>) {
        let (out, mut said) = mpsc::channel::<OutgoingLine>(self.room);
        let line = Line { id: None, out };
        let cancel = self.cancel.clone();
        let stop = (self.cancel_at.take(), cancel.clone());
        let context = context!(self, &line, cancel);
        let turn = Turn::new(context, &mut self.session).await;
        let playing = async {
            let (ending, report) = turn.run().await;
            report::say(&line, &ending, &report, Map::new()).await;
            ending
        };
        let reading = async {
            let mut lines = Vec::new();
            let mut text = String::new();
            while let Some(line) = said.recv().await {
                let line: Value = serde_json::from_str(&line.render()).unwrap();
                text.push_str(line["text"].as_str().unwrap_or_default());
                let now = match stop.0 {
                    Some(Cancel::Line(kind)) => line["type"] == kind,
                    Some(Cancel::Text(so_far)) => text == so_far,
                    None => false,
                };
                if now {
                    stop.1.cancel();
                }
                watch(&line);
                let last = !line["api_calls"].is_null();
                lines.push(line);
                if last {
                    break;
                }
            }
            lines
        };
        tokio::join!(playing, reading)
    }

    pub(crate) async fn compact(&mut self, instructions: Option<&str>) -> Result<String, Ending> {
        let (out, _said) = mpsc::channel::<OutgoingLine>(1000);
        let line = Line { id: None, out };
        let context = context!(self, &line, CancellationToken::new());
        let turn = Turn::new(context, &mut self.session).await;
        turn.compact(instructions).await
    }
}
