//! Asking models until one answers, or none can.
//!
//! Owns how the rules of `failover` are carried out: attempts and their records, waits, cool-downs
//! and what is told of them. Must not know the rules themselves.

use std::sync::Arc;
use std::time::Duration;

use agentd_protocol::Code;
use serde_json::json;
use tokio::sync::mpsc;

use super::report::Attempt;
use super::{Ending, Failing, Turn, report};
use crate::failover::Class;
use crate::failover::class::{classify_reply, hint};
use crate::failover::cooldown::Cooldown;
use crate::failover::policy::{Cool, Failed, Next, Passed, Verdict};
use crate::model::{FailedAt, Failure, Piece, Reply, Request, Stop, Usage};
use crate::price;
use crate::provider::Target;
use crate::session::compaction::Keep;

/// Pieces that wait for a slow reader: beyond, the model waits.
const PIECES: usize = 32;

/// Is it said to whoever listens?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Audience {
    /// Piece by piece.
    Everybody,
    /// It is for ourselves.
    Nobody,
}

/// Did a model say anything?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ModelSaid {
    Something,
    Nothing,
}

impl ModelSaid {
    /// With one piece more, which may be empty.
    const fn and(self, piece: &Piece) -> Self {
        match piece {
            Piece::Text(text) | Piece::Thinking(text) if text.is_empty() => self,
            Piece::Text(_) | Piece::Thinking(_) => Self::Something,
        }
    }
}

/// A request that came to nothing.
pub(super) struct Trouble {
    pub(super) class: Class,
    pub(super) text: String,
    pub(super) retry_after: Option<Duration>,
}

impl Turn<'_> {
    /// The next reply, of whichever model.
    pub(super) async fn reply(&mut self) -> Result<Reply, Ending> {
        let mut next = match self.entry {
            Some(entry) => Next::Ask(entry),
            None => {
                let verdict = self.policy.begin(self.context.started.elapsed());
                self.carry_out(verdict, None).await
            }
        };
        loop {
            next = match next {
                Next::Ask(entry) => {
                    self.entry = Some(entry);
                    self.shorten_if_due(entry).await?;
                    match self.attempt(entry).await? {
                        Ok(reply) => return Ok(reply),
                        Err(trouble) => self.decide(trouble).await,
                    }
                }
                Next::Wait(entry, time) => {
                    tokio::select! {
                        () = self.context.cancel.cancelled() => return Err(Ending::Cancelled),
                        () = tokio::time::sleep(time) => Next::Ask(entry),
                    }
                }
                Next::Compact(entry) => match self.shorten(entry, Keep::Least, None).await? {
                    Ok(()) => Next::Ask(entry),
                    Err(trouble) => self.decide(trouble).await,
                },
                Next::GiveUp(class, retry_in) => return Err(self.gave_up(class, retry_in)),
            };
        }
    }

    /// Asks one model once for the next reply.
    async fn attempt(&mut self, entry: usize) -> Result<Result<Reply, Trouble>, Ending> {
        // Before the steers are taken: with no request left they would be answered, and told to no
        // model.
        self.has_requests_left()?;
        // Whoever said them counts on their being told.
        self.take_steers().await.map_err(Ending::Store)?;
        let request = Request {
            target: self.context.plan.chain[entry].clone(),
            system: Arc::from(self.session.basis().system.as_str()),
            messages: self.session.history().for_model(),
            tools: self.context.tools.specs(),
            thinking: self.context.plan.thinking,
        };
        let answered = self.ask(&request, Audience::Everybody).await?;
        match &answered {
            Ok(_) => {
                self.policy.answered();
                self.rested(&request.target).await;
            }
            // What was shown of it is replaced by the next try, and never remembered.
            Err(_) => self.messages.abandon(),
        }
        Ok(answered)
    }

    /// Asks one model once, for whatever.
    pub(super) async fn ask(
        &mut self,
        request: &Request,
        audience: Audience,
    ) -> Result<Result<Reply, Trouble>, Ending> {
        self.has_requests_left()?;
        // Before it is sent: one that fails has cost its place, too.
        self.report.requests += 1;
        let env = self.context.env;
        let started = env.wall_ms();
        let (result, heard) = self.listen(request, audience).await;
        let mut attempt = Attempt::new(&request.target, started, env.wall_ms());
        if heard == ModelSaid::Something {
            // It counts, and unless it says how much, nobody knows.
            let target = &request.target;
            let nothing = Usage::default();
            attempt.cost = Some(price::cost(&target.provider, &target.model, &nothing, None));
        }
        let answered = match result {
            None => {
                attempt.class = Some(Class::Cancelled);
                self.report.attempts.push(attempt);
                return Err(Ending::Cancelled);
            }
            Some(Ok(reply)) => {
                attempt.used(&request.target, &reply.usage, reply.reported_usd);
                match unusable(&reply) {
                    None => Ok(reply),
                    Some((class, text)) => Err(Trouble {
                        class,
                        text,
                        retry_after: None,
                    }),
                }
            }
            Some(Err(failure)) => {
                if failure.usage != Usage::default() {
                    attempt.used(&request.target, &failure.usage, None);
                }
                if let FailedAt::Status(status) = failure.at {
                    attempt.status = Some(status);
                }
                attempt.retry_after = failure.retry_after;
                let text = match hint(&request.target.provider, &failure) {
                    Some(what) => format!("{} ({what})", failure.text),
                    None => failure.text.clone(),
                };
                Err(Trouble {
                    class: env.classify(&request.target, &failure),
                    text,
                    retry_after: failure.retry_after,
                })
            }
        };
        if let Err(trouble) = &answered {
            attempt.class = Some(trouble.class);
            if trouble.class == Class::NotConfigured {
                // Nobody listened: nobody was asked.
                self.report.requests -= 1;
            }
        }
        self.report.attempts.push(attempt);
        Ok(answered)
    }

    fn has_requests_left(&self) -> Result<(), Ending> {
        if self.report.requests >= self.context.plan.requests {
            return Err(Ending::MaxRequests);
        }
        Ok(())
    }

    /// Sends a request and passes on what is said until it is answered; `None` when the turn was
    /// cancelled before.
    async fn listen(
        &mut self,
        request: &Request,
        audience: Audience,
    ) -> (Option<Result<Reply, Box<Failure>>>, ModelSaid) {
        let mut heard = ModelSaid::Nothing;
        let (send, mut pieces) = mpsc::channel::<Piece>(PIECES);
        let result = {
            let mut asking = self.context.env.client().ask(request, &send);
            loop {
                tokio::select! {
                    biased;
                    () = self.context.cancel.cancelled() => break None,
                    // Before the result: what was said comes in front of what it ended with.
                    Some(piece) = pieces.recv() => {
                        heard = heard.and(&piece);
                        if audience == Audience::Everybody {
                            self.messages.say(piece, self.context.line).await;
                        }
                    }
                    result = &mut asking => break Some(result),
                }
            }
        };
        // What was said before the end was seen belongs to the answer.
        while let Ok(piece) = pieces.try_recv() {
            heard = heard.and(&piece);
            if audience == Audience::Everybody {
                self.messages.say(piece, self.context.line).await;
            }
        }
        (result, heard)
    }

    async fn decide(&mut self, trouble: Trouble) -> Next {
        let last = self.report.attempts.last();
        let took = last.map_or(0, |last| last.ended.saturating_sub(last.started));
        let failed = Failed {
            class: trouble.class,
            retry_after: trouble.retry_after,
            took: Duration::from_millis(took),
            effects: self.effects,
            jitter: self.context.env.chance(),
        };
        let verdict = self.policy.failed(self.context.started.elapsed(), failed);
        self.last_failure.clone_from(&trouble.text);
        self.carry_out(verdict, Some(trouble)).await
    }

    /// Stores and tells what was decided.
    async fn carry_out(&mut self, verdict: Verdict, trouble: Option<Trouble>) -> Next {
        if let Some(cool) = verdict.cool {
            self.cool(cool).await;
        }
        let chain = &self.context.plan.chain;
        let line = self.context.line;
        for (entry, why) in &verdict.passed {
            let name = shown(&chain[*entry]);
            let text = match why {
                Passed::Repeated => continue,
                Passed::NoKey => format!("{name} is passed over: {}", no_key(&chain[*entry])),
                Passed::Cooling(class) => {
                    format!(
                        "{name} is passed over for a while: {}",
                        report::word(*class)
                    )
                }
                Passed::NotLarger => {
                    format!("{name} is passed over: it would not take more than the one before")
                }
            };
            line.warn("fallback", &text).await;
        }
        let Some(from) = self.entry else {
            if let Next::Wait(entry, time) = verdict.next {
                let text = format!(
                    "{} is left alone for {} more",
                    shown(&chain[entry]),
                    seconds(time)
                );
                line.warn("retry", &text).await;
            }
            return verdict.next;
        };
        let reason = trouble.map_or_else(String::new, |trouble| {
            let text = crate::session::compaction::beginning(&trouble.text, 300);
            format!("{}: {text}", report::word(trouble.class))
        });
        let name = shown(&chain[from]);
        match verdict.next {
            Next::Wait(entry, time) if entry == from => {
                let text = format!("{name}: {reason}; it is asked again in {}", seconds(time));
                line.warn("retry", &text).await;
            }
            Next::Ask(entry) | Next::Wait(entry, _) => {
                let text = format!(
                    "{name}: {reason}; {} is asked instead",
                    shown(&chain[entry])
                );
                line.warn("fallback", &text).await;
            }
            Next::Compact(_) | Next::GiveUp(..) => {}
        }
        verdict.next
    }

    async fn cool(&mut self, cool: Cool) {
        let target = &self.context.plan.chain[cool.entry];
        let whose = (target.provider.id.as_str(), target.model.as_str());
        let before = self
            .report
            .cooldowns
            .iter()
            .find(|old| old.class == cool.class && old.is_about(whose.0, whose.1));
        let now = self.context.env.wall_ms();
        if let Some(mut next) = Cooldown::after(before, whose, cool.class, cool.retry_after, now) {
            next.key = target.key.as_ref().map(report::fingerprint);
            // Without it, others will find out for themselves.
            let _unkept = self.context.store.cool(next).await;
        }
    }

    /// It answered: whatever was held against it is over.
    async fn rested(&mut self, target: &Target) {
        let (provider, model) = (&target.provider.id, &target.model);
        let held = &mut self.report.cooldowns;
        let before = held.len();
        held.retain(|cooldown| !cooldown.is_about(provider, model));
        if held.len() < before {
            // Since it was asked another turn may have found it failing: that counts on.
            let asked = self.report.attempts.last().map_or(0, |last| last.started);
            let _unkept = self
                .context
                .store
                .warm(provider.clone(), model.clone(), asked)
                .await;
        }
    }

    pub(super) fn gave_up(&self, class: Class, retry_in: Option<Duration>) -> Ending {
        if class == Class::Refusal {
            return Ending::Refused(self.last_failure.clone());
        }
        if class == Class::Cancelled {
            return Ending::Cancelled;
        }
        let entry = self.policy.current();
        let target = &self.context.plan.chain[entry];
        let name = shown(target);
        // Who wasn't asked said nothing.
        let said =
            Some(&self.last_failure).filter(|said| self.entry == Some(entry) && !said.is_empty());
        let lacks_key = target.key.is_none() && !target.provider.local;
        let mut error = match class {
            Class::NotConfigured if lacks_key => {
                format!("{name} can't be asked: {}", no_key(target))
            }
            Class::NotConfigured => format!(
                "{name} can't be asked: nobody answers at {}; start the server, or name another model",
                target.provider.base_url
            ),
            Class::Auth => format!(
                "{name} refused the key{}; see `{}`",
                said.map_or_else(String::new, |said| format!(" ({said})")),
                target.provider.key_variables.join("`, `")
            ),
            Class::Certificate => format!(
                "the certificate of {name} isn't to be trusted: {}; if a proxy of yours made it, set `SSL_CERT_FILE` to its CA bundle",
                self.last_failure
            ),
            class => {
                let said = said.map_or_else(String::new, |said| format!(": {said}"));
                format!("{name}: {}{said}", report::word(class))
            }
        };
        if let Some(time) = retry_in {
            error.push_str(&format!("; it may answer again in {}", seconds(time)));
        }
        Ending::Failed(Failing {
            class,
            code: match class {
                Class::NotConfigured if lacks_key => Code::AgentAuth,
                class => report::code(class),
            },
            error,
            retry_in,
        })
    }
}

/// Why a reply isn't one, if it isn't.
fn unusable(reply: &Reply) -> Option<(Class, String)> {
    let class = classify_reply(reply)?;
    let why = match &reply.stop {
        Stop::Refusal(why) => why,
        Stop::ContextFull => "the conversation fills the model's window",
        Stop::Missing => "the answer ended without a reason: it may not be whole",
        Stop::ToolUse => "the answer announced tools and called none",
        Stop::EndTurn | Stop::MaxTokens => "the answer was empty",
    };
    Some((class, why.to_owned()))
}

/// `provider/model`.
pub(super) fn shown(target: &Target) -> String {
    format!("{}/{}", target.provider.id, target.model)
}

fn no_key(target: &Target) -> String {
    let variables = target.provider.key_variables.join("` or `");
    format!(
        "there is no key for it; set `{variables}`, in the environment or in the file `env` beside config.toml"
    )
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// What a note about a summary says.
pub(super) fn summary_note(messages: usize) -> serde_json::Value {
    json!({
        "level": "info",
        "code": "compaction",
        "text": format!("the conversation was long: its first {messages} messages are a summary now"),
    })
}
