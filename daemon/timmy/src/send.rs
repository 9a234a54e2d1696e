//! One send: from its words to its final line, whoever asked.
//!
//! Owns how a session is opened, continued or begun for a turn. Must not know standard input, nor
//! how models, tools and settings are found: [`AgentEnv`] does.

mod echoed;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use agentd_protocol::request::{Earlier, McpServer, Speaker};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::offered::Offered;
use crate::line::Line;
use crate::message::{Assistant, Attached, Message};
use crate::model::Boxed;
use crate::session::context::{self, Beginning};
use crate::session::rows::Which;
use crate::session::store::{Store, StoreError};
use crate::session::{Basis, Session};
use crate::tool::anchor::{Anchors, Led};
use crate::tool::{Asker, Tool};
use crate::turn::inbox::Inbox;
use crate::turn::report::Report;
use crate::turn::tools::Toolbox;
use crate::turn::{Ending, Plan, Turn, TurnContext, TurnEnv, over, report};

/// What a send needs to know of this machine and its user.
pub(crate) trait AgentEnv: TurnEnv {
    /// Which models a selection means.
    fn plan<'a>(&'a self, selection: &'a ModelSelection) -> Boxed<'a, Result<Planned, Refused>>;

    /// Which models can be asked, the one first that a selection means.
    fn models<'a>(&'a self, selection: &'a ModelSelection) -> Boxed<'a, Result<Offered, Rejected>>;

    /// The tools of its toolsets, and of MCP servers that its session brings; those of the configuration when none are named.
    fn tools<'a>(&'a self, sent: &'a SendRequest) -> Boxed<'a, Result<Equipped, Rejected>>;

    /// Ends what was started for tools.
    fn leave(&self) -> Boxed<'_, ()>;

    /// The directory `timmy` beside `config.toml`.
    fn own(&self) -> &Path;

    /// The name by which it is configured, where a daemon runs it.
    fn agent(&self) -> Option<&str> {
        None
    }

    /// What is true of commands here: whether they are confined, and how.
    fn confinement(&self) -> String;
}

/// Tools, and what the user would want to know of those that are not among them.
#[derive(Default)]
pub(crate) struct Equipped {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// Directories that these may write besides the workspace.
    pub(crate) writable: Vec<PathBuf>,
    pub(crate) notes: Vec<String>,
}

/// A plan, and what the user would want to know of how it came about.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) note: Option<String>,
}

/// Why there is no plan.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) rejected: Rejected,
    /// The same in full, for programs.
    pub(crate) details: Option<Value>,
}

impl From<Rejected> for Refused {
    fn from(rejected: Rejected) -> Self {
        Self {
            rejected,
            details: None,
        }
    }
}

impl From<Refused> for Rejected {
    fn from(refused: Refused) -> Self {
        refused.rejected
    }
}

/// Everything that lives as long as the process.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) env: Arc<dyn AgentEnv>,
    pub(crate) store: Arc<Store>,
}

/// Which models are wanted, as far as it was said.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct ModelSelection {
    pub(crate) provider: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) thinking: Option<String>,
    /// Each `provider/model`.
    pub(crate) fallback_chain: Option<Vec<String>>,
    pub(crate) timeout: Option<Duration>,
    /// The provider that is configured for turns that name none.
    pub(crate) usual_provider: Option<String>,
}

/// Which conversation is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Conversation {
    /// A new one, whose native id is announced.
    New,
    /// The one that was announced as this.
    Native(String),
    /// A copy of the one that was announced as this.
    CopyOf(String),
    /// The one that a person named so, or a new one of that name.
    Named(String),
    /// One that isn't kept.
    Passing,
}

/// A send.
#[derive(Clone, Debug)]
pub(crate) struct SendRequest {
    pub(crate) text: String,
    /// What goes with it.
    pub(crate) attached: Vec<Attached>,
    pub(crate) conversation: Conversation,
    /// What a new session is told behind its own system prompt.
    pub(crate) system: Option<String>,
    /// What was said before a new session, elsewhere.
    pub(crate) earlier: Vec<Earlier>,
    pub(crate) selection: ModelSelection,
    pub(crate) toolsets: Option<Vec<String>>,
    /// MCP servers besides those of the configuration.
    pub(crate) mcp_servers: Vec<McpServer>,
    pub(crate) cwd: PathBuf,
    pub(crate) job: Option<String>,
    /// All messages of the turn in the final line?
    pub(crate) messages: Messages,
}

/// What the final line has of the messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Messages {
    /// All of the turn's.
    Included,
    /// Only the text.
    LeftOut,
}

/// What a turn is told while it runs.
pub(crate) struct TurnControl<'a> {
    pub(crate) line: &'a Line,
    pub(crate) inbox: &'a Inbox,
    pub(crate) cancel: CancellationToken,
    pub(crate) asker: Arc<dyn Asker>,
    /// Hears the session's native id, if it has one, before anything is said of the turn.
    pub(crate) opened: &'a (dyn Fn(&str) + Sync),
}

impl Agent {
    /// Plays a send to its final line, which is said.
    pub(crate) async fn play(&self, sent: SendRequest, control: TurnControl<'_>) {
        let line = control.line;
        let started = Instant::now();
        let asked = async {
            let plan = self.env.plan(&sent.selection).await?;
            let tools = self.env.tools(&sent).await?;
            Ok::<_, Refused>((plan, tools))
        };
        // Servers of tools may take long to start: an abort and the turn's own time count already.
        let asked = tokio::select! {
            asked = asked => asked,
            () = control.cancel.cancelled() => return before(&Ending::Cancelled, &control).await,
            () = over(started, sent.selection.timeout) => return before(&Ending::TimedOut, &control).await,
        };
        let (Planned { plan, note }, equipped) = match asked {
            Ok(asked) => asked,
            Err(refused) => {
                if let Some(details) = refused.details {
                    let kind = refused.rejected.code.name();
                    line.say("agent_event", json!({"kind": kind, "data": details}))
                        .await;
                }
                return rejected(&refused.rejected, &control).await;
            }
        };
        // Before there is a session: a refused turn leaves none behind.
        if let Some(why) = untaken(&plan, &sent.attached) {
            return rejected(&why, &control).await;
        }
        if let Some(note) = note {
            line.note("model", &note).await;
        }
        let Equipped {
            tools,
            writable,
            notes,
        } = equipped;
        for note in &notes {
            line.note("mcp", note).await;
        }
        let tools = Toolbox::new(tools);
        let opened = self.open(&sent, writable, line, control.opened).await;
        let (mut session, anchors, from) = match opened {
            Ok(opened) => opened,
            Err(why) => return rejected(&why, &control).await,
        };
        let native = session.native().map(str::to_owned);
        let spill = self.spill(native.as_deref());
        let turn = Turn::new(
            TurnContext {
                env: &*self.env,
                store: &self.store,
                line,
                tools: &tools,
                plan: &plan,
                started,
                inbox: control.inbox,
                cancel: control.cancel,
                asker: control.asker,
                cwd: sent.cwd,
                anchors,
                spill: spill.clone(),
                job: sent.job,
            },
            &mut session,
        );
        let (ending, report) = turn.await.run().await;
        let mut more = Map::new();
        if sent.messages == Messages::Included {
            let all = session.history();
            let said = (all.messages().iter().enumerate())
                .filter(|(at, _)| all.position(*at) >= from)
                .map(|(_, message)| told(message));
            more.insert("messages".to_owned(), said.collect());
        }
        if native.is_none() {
            // Nobody can ask for it any more.
            let _none = std::fs::remove_dir_all(&spill);
        }
        // Whoever reads the final line may send the session's next turn at once.
        drop(session);
        // The last thing that is awaited: whoever reads it may count on the turn being over.
        report::say(line, &ending, &report, more).await;
    }

    /// Shortens what is remembered of a session; the summary.
    ///
    /// # Errors
    /// It is as it was.
    pub(crate) async fn compact(
        &self,
        native: String,
        selection: &ModelSelection,
        instructions: Option<&str>,
        control: TurnControl<'_>,
    ) -> Result<String, Rejected> {
        let plan = self.env.plan(selection).await?.plan;
        let opened = self.store.open(Which::Native(native)).await;
        let Some(mut session) = opened.map_err(|why| unkept(&why))? else {
            return Err(lost(control.line).await);
        };
        let tools = Toolbox::new(Vec::new());
        let spill = self.spill(session.native());
        let context = TurnContext {
            env: &*self.env,
            store: &self.store,
            line: control.line,
            tools: &tools,
            plan: &plan,
            started: Instant::now(),
            inbox: control.inbox,
            cancel: control.cancel,
            asker: control.asker,
            // Nothing is run: there are no tools.
            cwd: PathBuf::from("/"),
            anchors: Arc::default(),
            spill,
            job: None,
        };
        let compacted = Turn::new(context, &mut session).await;
        compacted.compact(instructions).await.map_err(|ending| {
            let (code, error) = report::failure(&ending);
            Rejected::new(code, error)
        })
    }

    /// The session with the user's words in it, its directories, and the number of that message.
    async fn open(
        &self,
        sent: &SendRequest,
        writable: Vec<PathBuf>,
        line: &Line,
        opened: &(dyn Fn(&str) + Sync),
    ) -> Result<(Session, Arc<Anchors>, u64), Rejected> {
        let own = self.env.own().to_owned();
        let text = sent.text.clone();
        let text = if text.starts_with('/') {
            blocking(move || context::words(&own, &text)).await?
        } else {
            text
        };
        let words = Message::User {
            text,
            attached: sent.attached.clone(),
            job: sent.job.clone(),
        };
        let (which, name) = match &sent.conversation {
            Conversation::Native(native) => (Some(Which::Native(native.clone())), None),
            Conversation::CopyOf(native) => {
                let copied = self.store.copy(native.clone()).await;
                let copied = copied.map_err(|why| unkept(&why))?;
                (copied.map(Which::Native), None)
            }
            Conversation::Named(name) => (Some(Which::Name(name.clone())), Some(name.clone())),
            Conversation::New | Conversation::Passing => (None, None),
        };
        if let Some(which) = which {
            let found = self.store.open(which).await.map_err(|why| unkept(&why))?;
            if let Some(mut session) = found {
                session.native().into_iter().for_each(opened);
                // Only echo was asked so far, which is told nothing.
                if session.basis().system.is_empty() {
                    let basis = self.begin(sent, line).await?;
                    let begun = session.begin(basis).await;
                    begun.map_err(|why| unkept(&why))?;
                }
                if let (Conversation::CopyOf(_), Some(native)) =
                    (&sent.conversation, session.native())
                {
                    line.say("session", json!({"native": native})).await;
                }
                // A process that died in the middle left calls without a result, which no provider
                // takes.
                let mut messages = session.history().interrupted();
                messages.push(if session.history().is_under_way(&words) {
                    Message::user(AGAIN)
                } else {
                    words
                });
                let anchors = settled(session.basis().led.clone(), sent, writable).await?;
                // Before the words: a turn that runs again after a crash goes by the same
                // directories.
                let remembered = session.remember(anchors.led()).await;
                remembered.map_err(|why| unkept(&why))?;
                let appended = session.append(messages).await;
                appended.map_err(|why| unkept(&why))?;
                // Of the prompt itself: results of before that were made up belong to the turn that
                // died.
                let from = session.history().next() - 1;
                return Ok((session, anchors, from));
            }
        }
        // Beginning anew under a name that was announced would be a conversation that forgot
        // everything in silence.
        if matches!(
            sent.conversation,
            Conversation::Native(_) | Conversation::CopyOf(_)
        ) {
            return Err(lost(line).await);
        }
        let anchors = settled(Led::new(), sent, writable).await?;
        let mut basis = self.begin(sent, line).await?;
        basis.led = anchors.led();
        let mut first = earlier(&sent.earlier);
        let from = first.len() as u64;
        first.push(words);
        if sent.conversation == Conversation::Passing {
            let mut session = Session::passing(basis);
            let appended = session.append(first).await;
            appended.map_err(|why| unkept(&why))?;
            return Ok((session, anchors, from));
        }
        let made = self.store.create(name, basis, first).await;
        let session = made.map_err(|why| unkept(&why))?;
        if let Some(native) = session.native() {
            opened(native);
            line.say("session", json!({"native": native})).await;
        }
        Ok((session, anchors, from))
    }

    /// What a new session is told.
    async fn begin(&self, sent: &SendRequest, line: &Line) -> Result<Basis, Rejected> {
        let agent = self.env.agent().map(str::to_owned);
        let (own, cwd) = (self.env.own().to_owned(), sent.cwd.clone());
        let confinement = self.env.confinement();
        let now = report::rfc3339(self.env.wall_ms());
        let begun = blocking(move || {
            context::begin(&Beginning {
                own: &own,
                agent: agent.as_deref(),
                cwd: &cwd,
                date: now.split('T').next().unwrap_or_default(),
                confinement: &confinement,
            })
        })
        .await?;
        for note in &begun.notes {
            line.warn("context", note).await;
        }
        let mut basis = begun.basis;
        if let Some(system) = &sent.system {
            let system = system.trim();
            let _infallible = write!(
                basis.system,
                "\n\n# What this conversation is for\n\n{system}"
            );
        }
        Ok(basis)
    }

    fn spill(&self, native: Option<&str>) -> PathBuf {
        match native {
            Some(native) => self.store.spill(native),
            // By the process: two that run at once would take each other's files away.
            None => self.store.spill(&format!("passing-{}", std::process::id())),
        }
    }
}

/// What a model is told instead of its prompt when a turn is run again that was interrupted.
const AGAIN: &str = "(This turn was interrupted and runs again: go on with what was asked last. What was \
done before that is done.)";

/// What stands before the first words of a conversation that a model had none of before.
const BEFORE: &str = "(What was said before is not known.)";

/// What was said before, elsewhere: by whom else is worth nothing to the model that reads it.
fn earlier(said: &[Earlier]) -> Vec<Message> {
    let mut messages = Vec::with_capacity(said.len() + 2);
    // Not every provider takes a conversation that the model itself begins.
    if said
        .first()
        .is_some_and(|first| first.role == Speaker::Assistant)
    {
        messages.push(Message::user(BEFORE));
    }
    messages.extend(said.iter().map(|one| match one.role {
        Speaker::User => Message::user(one.text.clone()),
        Speaker::Assistant => Message::Assistant(Assistant {
            text: one.text.clone(),
            ..Assistant::default()
        }),
    }));
    messages
}

/// Why the first model of a plan can't be asked with what is attached. Those behind it are told what
/// they don't see.
fn untaken(plan: &Plan, attached: &[Attached]) -> Option<Rejected> {
    let first = plan.chain.first()?;
    let one = attached.iter().find(|one| !first.takes(&one.mime))?;
    let (provider, model) = (&first.provider.id, &first.model);
    let error = format!(
        "an attachment is `{}`, which {provider}/{model} doesn't take",
        one.mime
    );
    let hint = "leave it out, or name another model";
    Some(Rejected::new(Code::Unsupported, error).hint(hint))
}

/// A message for the final line, where pictures have no room.
fn told(message: &Message) -> Value {
    let mut told = json!(message);
    let attached = told.get_mut("attached").and_then(Value::as_array_mut);
    for one in attached.into_iter().flatten() {
        if let Some(fields) = one.as_object_mut() {
            fields.remove("data");
        }
    }
    told
}

/// Says that a turn ended before it began. Steers that came meanwhile hear so first.
async fn before(ending: &Ending, control: &TurnControl<'_>) {
    control.inbox.refuse(control.line).await;
    let report = Report::new(Vec::new(), None);
    report::say(control.line, ending, &report, Map::new()).await;
}

/// The same of a turn that can't begin.
async fn rejected(why: &Rejected, control: &TurnControl<'_>) {
    control.inbox.refuse(control.line).await;
    control.line.reject(why).await;
}

/// Says that a turn ended because of a bug here, so that nobody waits for it.
pub(crate) async fn died(line: &Line) {
    let fields = json!({
        "code": Code::Internal,
        "error": "the turn ended because of a bug in timmy; what was said so far is kept",
        "retryable": false,
    });
    line.say("error", fields).await;
}

/// A session's directories: those that it began with, and those that are new to it.
async fn settled(
    led: Led,
    sent: &SendRequest,
    mut names: Vec<PathBuf>,
) -> Result<Arc<Anchors>, Rejected> {
    names.push(sent.cwd.clone());
    blocking(move || {
        let anchors = Anchors::new(led);
        anchors.settle_all(&names);
        Arc::new(anchors)
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Rejected> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|why| Rejected::new(Code::Internal, why.to_string()))
}

fn unkept(why: &StoreError) -> Rejected {
    Rejected::new(report::store_code(why), why.to_string())
}

/// A session that was announced is gone.
async fn lost(line: &Line) -> Rejected {
    let text = "the earlier turns of this session are not there any more";
    line.warn("context-lost", text).await;
    Rejected::new(
        Code::ContextLost,
        "the session isn't there any more, so its earlier turns are not known",
    )
    .hint("begin a new session")
}
