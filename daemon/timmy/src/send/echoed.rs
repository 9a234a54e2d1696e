//! A send to the scripted provider: its words are kept in the session as those of any other.
//!
//! Owns what becomes of them where nothing can be kept. Must not know the script.
//!
//! It is quick where a model isn't, so nothing is read for it that only a model is told, and its turn
//! is added whole, in one commit that doesn't wait for the disk.

use agentd_protocol::envelope::Rejected;

use super::{Agent, Conversation, SendRequest, earlier, lost, unkept};
use crate::echo::{self, EchoControl};
use crate::line::Line;
use crate::message::{Assistant, Message};
use crate::session::rows::Which;
use crate::tool::toolset::Toolset;
use serde_json::json;

impl Agent {
    /// Plays a script to its final line, which is said. A session that is `known` was open in this
    /// process before: it needs no look.
    pub(crate) async fn play_echo(
        &self,
        script: &str,
        sent: &SendRequest,
        known: Option<&str>,
        control: &EchoControl<'_>,
    ) {
        let line = control.line;
        // The script calls none, and a name that is none is wrong with any provider.
        let names = sent.toolsets.as_deref().unwrap_or_default();
        if let Err(why) = Toolset::named(names) {
            return line.reject(&why.into()).await;
        }
        let to = match self.session_of_echo(sent, line).await {
            Ok(to) => to,
            Err(rejected) => return line.reject(&rejected).await,
        };
        let is_new = !matches!(
            (&to, &sent.conversation),
            (None | Some(Which::Name(_)), _) | (_, Conversation::Native(_))
        );
        if let Conversation::Native(native) = &sent.conversation
            && known != Some(native)
            // One that can't be read is told of below.
            && self.store.has(Which::Native(native.clone())).await == Ok(false)
        {
            return line.reject(&lost(line).await).await;
        }
        let played = echo::play(script, control).await;
        if sent.conversation != Conversation::Passing {
            match self.store.add_turn(to, &said(sent, played.text())).await {
                Ok(added) => {
                    (control.opened)(&added.native);
                    if added.made || is_new {
                        line.say("session", json!({"native": added.native})).await;
                    }
                }
                // A disk that can't be written takes nobody's answer away.
                Err(why) => {
                    let text = format!("this turn is not kept in the session: {why}");
                    line.warn("session", &text).await;
                }
            }
        }
        // Last: whoever reads the final line may send the session's next turn at once.
        played.say(line).await;
    }
}

impl Agent {
    /// Where the turn goes. A session is made before only if it begins with what later models have to
    /// be told, or is a copy.
    async fn session_of_echo(
        &self,
        sent: &SendRequest,
        line: &Line,
    ) -> Result<Option<Which>, Rejected> {
        let is_told = sent.system.is_some() || !sent.earlier.is_empty();
        let name = match &sent.conversation {
            Conversation::Native(native) => return Ok(Some(Which::Native(native.clone()))),
            Conversation::CopyOf(native) => {
                let copied = self.store.copy(native.clone()).await;
                return match copied.map_err(|why| unkept(&why))? {
                    Some(copy) => Ok(Some(Which::Native(copy))),
                    None => Err(lost(line).await),
                };
            }
            Conversation::Named(name) => {
                let which = Which::Name(name.clone());
                if !is_told || self.store.has(which.clone()).await != Ok(false) {
                    return Ok(Some(which));
                }
                Some(name.clone())
            }
            Conversation::New if is_told => None,
            Conversation::New | Conversation::Passing => return Ok(None),
        };
        let basis = self.begin(sent, line).await?;
        let made = self.store.create(name, basis, earlier(&sent.earlier)).await;
        let made = made.map_err(|why| unkept(&why))?;
        Ok(made.native().map(|native| Which::Native(native.to_owned())))
    }
}

/// What was said in a turn.
fn said(sent: &SendRequest, answer: &str) -> Vec<Message> {
    let mut said = vec![Message::User {
        text: sent.text.clone(),
        attached: sent.attached.clone(),
        job: sent.job.clone(),
    }];
    if !answer.trim().is_empty() {
        said.push(Message::Assistant(Assistant {
            text: answer.to_owned(),
            provider: echo::PROVIDER.to_owned(),
            model: echo::MODEL.to_owned(),
            ..Assistant::default()
        }));
    }
    said
}
