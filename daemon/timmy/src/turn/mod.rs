//! One turn: the user's words, requests and tools by turns, the final line.
//!
//! Owns the loop and what ends it. Must not know wires, SQL or standard input: what it needs of
//! them is in [`TurnEnv`], [`Session`] and [`Line`].

pub(crate) mod ask;
pub(crate) mod asker;
pub(crate) mod inbox;
mod message_stream;
pub(crate) mod report;
mod shorten;
pub(crate) mod tools;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::Code;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::OnRefusal;
use crate::failover::Class;
use crate::failover::class;
use crate::failover::cooldown::{Company, Cooldown};
use crate::failover::policy::{Effects, Entry, Policy, Standing};
use crate::line::Line;
use crate::message::{Assistant, Message};
use crate::model::{Failure, ModelClient, Reply, Stop, Thinking};
use crate::provider::Target;
use crate::session::Session;
use crate::session::store::{Store, StoreError};
use crate::tool::Asker;
use crate::tool::anchor::Anchors;
use inbox::Inbox;
use message_stream::MessageStream;
use report::Report;
use tools::Toolbox;

/// Requests in one turn, failed ones and summaries included, when nothing else is configured.
pub(crate) const REQUESTS: u32 = 100;
/// Replies in a row that were cut in the middle of a call: a third is cut again.
const CUT_CALLS: u32 = 2;

/// What a turn gets from the agent.
pub(crate) trait TurnEnv: Send + Sync {
    /// Who asks models.
    fn client(&self) -> &dyn ModelClient;

    /// What a failure means.
    fn classify(&self, target: &Target, failure: &Failure) -> Class;

    /// Milliseconds of the wall clock.
    fn wall_ms(&self) -> u64;

    /// Chance, from 0 to 1.
    fn chance(&self) -> f64;
}

/// Whom to ask, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The models, in order; at least one. Each with its window and price: settings are read once
    /// a turn.
    pub(crate) chain: Vec<Target>,
    /// What a refusal means for the chain.
    pub(crate) on_refusal: OnRefusal,
    /// How hard to think.
    pub(crate) thinking: Option<Thinking>,
    /// Requests in the turn.
    pub(crate) requests: u32,
    /// How long it may take.
    pub(crate) deadline: Option<Duration>,
}

/// Where a turn happens.
pub(crate) struct TurnContext<'a> {
    pub(crate) env: &'a dyn TurnEnv,
    /// For cool-downs.
    pub(crate) store: &'a Store,
    pub(crate) line: &'a Line,
    pub(crate) tools: &'a Toolbox,
    pub(crate) plan: &'a Plan,
    /// When its time began.
    pub(crate) started: Instant,
    pub(crate) inbox: &'a Inbox,
    pub(crate) cancel: CancellationToken,
    pub(crate) asker: Arc<dyn Asker>,
    pub(crate) cwd: PathBuf,
    /// Which directories the session's names mean.
    pub(crate) anchors: Arc<Anchors>,
    /// For output too long to be said.
    pub(crate) spill: PathBuf,
    pub(crate) job: Option<String>,
}

/// How a turn ended.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Ending {
    /// The model was done.
    Done,
    /// It had no more room for output.
    MaxTokens,
    /// There were as many requests as there may be.
    MaxRequests,
    /// The model or its provider would not; the provider's word.
    Refused(String),
    /// We were told to stop.
    Cancelled,
    /// It took too long.
    TimedOut,
    /// No model could answer.
    Failed(Failing),
    /// What was said couldn't be kept.
    Store(StoreError),
}

/// Why no model could answer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Failing {
    pub(crate) class: Class,
    /// The protocol's word for it.
    pub(crate) code: Code,
    /// The sentence for people.
    pub(crate) error: String,
    /// Asking again may help after so long.
    pub(crate) retry_in: Option<Duration>,
}

/// A turn in flight.
pub(crate) struct Turn<'a> {
    context: TurnContext<'a>,
    session: &'a mut Session,
    policy: Policy,
    entry: Option<usize>,
    effects: Effects,
    messages: MessageStream,
    report: Report,
    /// The last failure's own words.
    last_failure: String,
    /// Summaries that came to nothing: one is enough.
    summaries_failed: bool,
    /// Bytes of the prompt and the tools.
    overhead: usize,
    /// Ids of calls so far in this turn: they are unique within a message only.
    calls: std::collections::BTreeSet<String>,
}

impl<'a> Turn<'a> {
    /// A turn of this session; its words are in the history already.
    pub(crate) async fn new(context: TurnContext<'a>, session: &'a mut Session) -> Self {
        // A store that can't be read is no reason to leave a model alone.
        let cooldowns = context.store.cooldowns().await.unwrap_or_default();
        let entries = entries(context.env, context.plan, &cooldowns);
        let policy = Policy::new(entries, context.plan.on_refusal, context.plan.deadline);
        let overhead = session.basis().system.len() + context.tools.bytes();
        let report = Report::new(cooldowns, session.basis().soul_sha256.clone());
        Self {
            context,
            session,
            policy,
            entry: None,
            effects: Effects::None,
            messages: MessageStream::default(),
            report,
            last_failure: String::new(),
            summaries_failed: false,
            overhead,
            calls: std::collections::BTreeSet::new(),
        }
    }

    /// Plays it to its end; all that is left to do is to say the final line.
    pub(crate) async fn run(mut self) -> (Ending, Report) {
        let cancel = self.context.cancel.clone();
        let (started, deadline) = (self.context.started, self.context.plan.deadline);
        let ending = {
            let mut play = std::pin::pin!(self.play());
            tokio::select! {
                ending = &mut play => ending,
                () = over(started, deadline) => {
                    // Played to its end all the same: tools have to be ended, and what was said be
                    // kept.
                    cancel.cancel();
                    match play.await {
                        Ending::Cancelled => Ending::TimedOut,
                        ending => ending,
                    }
                }
            }
        };
        // However it ended: a steer that came too late for the last request hears so.
        self.context.inbox.refuse(self.context.line).await;
        self.report.text = self.messages.into_text();
        (ending, self.report)
    }

    async fn play(&mut self) -> Ending {
        let mut cut = 0;
        loop {
            let reply = match self.reply().await {
                Ok(reply) => reply,
                Err(ending) => return self.broken_off(ending).await,
            };
            let stop = reply.stop.clone();
            let said = match self.keep(reply).await {
                Ok(said) => said,
                Err(why) => return Ending::Store(why),
            };
            if !said.calls.is_empty() {
                // Before a word that waits: no provider takes anything between a call and its
                // result.
                if let Err(ending) = self.use_tools(&said.calls).await {
                    return ending;
                }
                cut = if stop == Stop::MaxTokens { cut + 1 } else { 0 };
                // A model that begins the same long call again and again would use up the turn.
                if cut > CUT_CALLS {
                    return Ending::MaxTokens;
                }
                continue;
            }
            // A word that came during the last reply is answered in this turn: its sender was told
            // so.
            if self.context.inbox.close_if_empty()
                || self.report.requests >= self.context.plan.requests
            {
                self.report.suspected_refusal = class::suspected_refusal(&said.text, false);
                return match stop {
                    Stop::MaxTokens => Ending::MaxTokens,
                    _ => Ending::Done,
                };
            }
        }
    }

    /// What was said before the turn was cancelled stays, so that the model knows it.
    async fn broken_off(&mut self, ending: Ending) -> Ending {
        let partial = self.messages.partial();
        if ending == Ending::Cancelled && !partial.trim().is_empty() {
            let target = self
                .entry
                .and_then(|entry| self.context.plan.chain.get(entry));
            let said = Message::Assistant(Assistant {
                text: partial.to_owned(),
                provider: target.map_or_else(String::new, |target| target.provider.id.clone()),
                model: target.map_or_else(String::new, |target| target.model.clone()),
                ..Assistant::default()
            });
            if let Err(why) = self.session.append(vec![said]).await {
                return Ending::Store(why);
            }
        }
        ending
    }

    /// Keeps a reply before anything is done about it.
    async fn keep(&mut self, reply: Reply) -> Result<Assistant, StoreError> {
        let said = reply.message;
        self.messages.finish(&said.text, self.context.line).await;
        let tokens = reply.usage.input + reply.usage.output;
        // Some providers count nothing: then it is guessed, which 0 would not be.
        let counted = Some(tokens).filter(|tokens| *tokens > 0);
        let message = Message::Assistant(said.clone());
        self.session.append_counted(message, counted).await?;
        Ok(said)
    }

    /// Steers that came while the model or its tools were busy, as the user's next ones.
    async fn take_steers(&mut self) -> Result<(), StoreError> {
        let steers = self.context.inbox.take();
        if steers.is_empty() {
            return Ok(());
        }
        let said = steers
            .iter()
            .map(|steer| Message::user(steer.text.as_str()));
        let said = said.collect();
        if let Err(why) = self.session.append(said).await {
            // They are in no history: whoever said them must not believe that the model knows them.
            inbox::too_late(steers, self.context.line).await;
            return Err(why);
        }
        for steer in steers {
            self.context.line.answer("steer", steer.id).await;
        }
        Ok(())
    }
}

/// Ends when the time is over that began then.
pub(crate) async fn over(started: Instant, deadline: Option<Duration>) {
    match deadline {
        Some(deadline) => tokio::time::sleep(deadline.saturating_sub(started.elapsed())).await,
        None => std::future::pending().await,
    }
}

/// Can it be asked at all?
fn is_usable(target: &Target) -> bool {
    target.key.is_some() || target.provider.local
}

/// Could more than one model of a chain be asked?
pub(crate) fn company(chain: &[Target]) -> Company {
    let mut distinct: Vec<(&str, &str)> = Vec::new();
    for target in chain.iter().filter(|target| is_usable(target)) {
        let whose = (target.provider.id.as_str(), target.model.as_str());
        if !distinct.contains(&whose) {
            distinct.push(whose);
        }
    }
    if distinct.len() > 1 {
        Company::Others
    } else {
        Company::Alone
    }
}

/// Why a model is left alone now, and for how long still.
pub(crate) fn resting(
    target: &Target,
    cooldowns: &[Cooldown],
    now: u64,
    company: Company,
) -> Option<(Duration, Class)> {
    let key = target.key.as_ref().map(report::fingerprint);
    cooldowns
        .iter()
        .filter(|cooldown| cooldown.is_about(&target.provider.id, &target.model))
        .filter_map(|cooldown| {
            let left = cooldown.left(now, key.as_deref(), company)?;
            Some((left, cooldown.class))
        })
        .max_by_key(|(left, _)| *left)
}

/// The chain as the rules see it.
fn entries(env: &dyn TurnEnv, plan: &Plan, cooldowns: &[Cooldown]) -> Vec<Entry> {
    let now = env.wall_ms();
    let company = company(&plan.chain);
    let entry = |target: &Target| {
        let provider = &target.provider;
        let standing = match resting(target, cooldowns, now, company) {
            _ if !is_usable(target) => Standing::NoKey,
            Some((left, class)) => Standing::Cooling(left, class),
            None => Standing::Ready,
        };
        Entry {
            provider: provider.id.clone(),
            model: target.model.clone(),
            url: provider.base_url.clone(),
            window: target.window(),
            standing,
        }
    };
    plan.chain.iter().map(entry).collect()
}

#[cfg(test)]
pub(crate) mod tests;
