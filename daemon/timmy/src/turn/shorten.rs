//! Making a conversation shorter in the middle of a turn, or on request.
//!
//! Owns the request for a summary and what becomes of it. Must not know what is cut where
//! (`session::compaction` does).

use std::sync::Arc;

use super::ask::{Audience, Trouble, summary_note};
use super::{Ending, Failing, Turn, report};
use crate::failover::Class;
use crate::failover::policy::Next;
use crate::message::Message;
use crate::model::Request;
use crate::session::compaction::{self, Keep};

impl Turn<'_> {
    /// Shortens the conversation when little room is left; whether that works is for the request
    /// to show.
    pub(super) async fn shorten_if_due(&mut self, entry: usize) -> Result<(), Ending> {
        let window = self.context.plan.chain[entry].window();
        let tokens = self.session.history().tokens(self.overhead);
        if self.summaries_failed || !compaction::is_due(tokens, window) {
            return Ok(());
        }
        if let Err(trouble) = self.shorten(entry, Keep::Usual, None).await? {
            self.summaries_failed = true;
            let text = format!("the conversation could not be shortened: {}", trouble.text);
            self.context.line.warn("compaction", &text).await;
        }
        Ok(())
    }

    /// Puts a summary in the place of the conversation's beginning.
    pub(super) async fn shorten(
        &mut self,
        entry: usize,
        keep: Keep,
        instructions: Option<&str>,
    ) -> Result<Result<(), Trouble>, Ending> {
        let target = self.context.plan.chain[entry].clone();
        let window = target.window();
        let history = self.session.history();
        let Some(cut) = compaction::cut(history.messages(), window, keep) else {
            return Ok(Err(Trouble {
                class: Class::ContextOverflow,
                text: "there is nothing to leave out: the last message alone is too long"
                    .to_owned(),
                retry_after: None,
            }));
        };
        let question = compaction::question(
            history.summary(),
            &history.messages()[..cut],
            window,
            instructions,
        );
        let request = Request {
            target,
            system: Arc::from(compaction::SYSTEM),
            messages: vec![Message::user(question)],
            tools: Arc::from([]),
            thinking: None,
        };
        let reply = match self.ask(&request, Audience::Nobody).await? {
            Ok(reply) => reply,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let summary = compaction::beginning(reply.message.text.trim(), compaction::MOST_SUMMARY);
        if summary.is_empty() {
            return Ok(Err(Trouble {
                class: Class::MalformedResponse,
                text: "the summary was empty".to_owned(),
                retry_after: None,
            }));
        }
        let kept = self.session.compact(summary.to_owned(), cut).await;
        kept.map_err(Ending::Store)?;
        self.context.line.say("note", summary_note(cut)).await;
        Ok(Ok(()))
    }

    /// Shortens the conversation because somebody asked for it; the summary, or why there is none.
    pub(crate) async fn compact(mut self, instructions: Option<&str>) -> Result<String, Ending> {
        let verdict = self.policy.begin(self.context.started.elapsed());
        let entry = match verdict.next {
            Next::Ask(entry) | Next::Compact(entry) => entry,
            Next::Wait(entry, time) => tokio::select! {
                () = self.context.cancel.cancelled() => return Err(Ending::Cancelled),
                () = tokio::time::sleep(time) => entry,
            },
            Next::GiveUp(class, time) => return Err(self.gave_up(class, time)),
        };
        self.entry = Some(entry);
        // Whoever asks for it wants it short, however much room is left.
        match self.shorten(entry, Keep::Least, instructions).await? {
            Ok(()) => Ok(self
                .session
                .history()
                .summary()
                .unwrap_or_default()
                .to_owned()),
            Err(trouble) => Err(Ending::Failed(Failing {
                class: trouble.class,
                code: report::code(trouble.class),
                error: trouble.text,
                retry_in: trouble.retry_after,
            })),
        }
    }
}
