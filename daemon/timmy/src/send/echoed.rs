//! A send to the scripted provider: its words are kept in the session as those of any other.
//!
//! Owns what becomes of them where nothing can be kept. Must not know the script.

use agentd_protocol::Code;
use agentd_protocol::envelope::Rejected;
use tokio_util::sync::CancellationToken;

use super::{Agent, Conversation, SendRequest};
use crate::echo;
use crate::line::Line;
use crate::message::{Assistant, Message};
use crate::session::Session;

impl Agent {
    /// Plays a script to its final line, which is said.
    pub(crate) async fn play_echo(
        &self,
        script: &str,
        sent: &SendRequest,
        cancel: &CancellationToken,
        line: &Line,
        opened: &(dyn Fn(&str) + Sync),
    ) {
        let mut session = match self.keep(sent, line, opened).await {
            Ok(session) => session,
            Err(why) => return line.reject(&why).await,
        };
        let played = echo::play(script, cancel, line).await;
        if let Some(session) = &mut session
            && !played.text().trim().is_empty()
        {
            let answer = Message::Assistant(Assistant {
                text: played.text().to_owned(),
                provider: echo::PROVIDER.to_owned(),
                model: echo::MODEL.to_owned(),
                ..Assistant::default()
            });
            if let Err(why) = session.append(vec![answer]).await {
                unkept(line, "answer", &why.to_string()).await;
            }
        }
        // Whoever reads the final line may send the session's next turn at once.
        drop(session);
        played.say(line).await;
    }

    /// The session with the user's words in it; none for words that aren't to be kept, or can't be.
    async fn keep(
        &self,
        sent: &SendRequest,
        line: &Line,
        opened: &(dyn Fn(&str) + Sync),
    ) -> Result<Option<Session>, Rejected> {
        // Neither a store nor anything else is looked at for it.
        if sent.conversation == Conversation::Passing {
            return Ok(None);
        }
        match self.open(sent, Vec::new(), line, opened).await {
            Ok((session, ..)) => Ok(Some(session)),
            // It needs no disk: one that can't be written takes nobody's answer away.
            Err(why) if matches!(why.code, Code::StoreFailed | Code::DiskFull) => {
                unkept(line, "turn", &why.error).await;
                Ok(None)
            }
            Err(why) => Err(why),
        }
    }
}

async fn unkept(line: &Line, what: &str, why: &str) {
    let text = format!("this {what} is not kept in the session: {why}");
    line.warn("session", &text).await;
}
