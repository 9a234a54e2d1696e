//! A conversation that broke: the daemon that comes next, and what of a turn was told already.
//!
//! Owns how long a next daemon is waited for, and what of its lines is new. Must not know what was
//! asked. Whoever comes back asks with the key that it holds: the daemon runs nothing twice, and no
//! one-shot ever serves what may have been accepted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use agentd_protocol::request::{Abort, Send};
use agentd_protocol::{Code, Line};
use serde_json::{Map, Value};

use crate::client::{Client, ClientError, Options, Server, Wait, is_draining};
use crate::connection::LostError;
use crate::endpoint::LocalEndpoint;
use crate::fallback::{Fact, Fallback, PATIENCE};
use crate::key;
use crate::wire::Received;

/// The first pause between two looks at a daemon that is gone; each is longer, up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The next daemon is noticed within this time.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// After each lost conversation the next one is asked for so much later than after the one before.
pub const PAUSE_AFTER_A_LOSS: Duration = Duration::from_millis(10);
/// Conversations that one request may lose: planned restarts come one at a time, and a daemon that
/// dies of a request isn't asked for ever.
pub const MOST_LOSSES: u32 = 20;

/// The conversation after one that was lost, with the same store behind it.
///
/// # Errors
/// [`ClientError::Unknown`] with what was lost when nobody comes in time, or somebody with another
/// store, who doesn't know what the first one accepted.
async fn follow(
    server: &Server,
    epoch: &str,
    options: &Options,
    lost: LostError,
) -> Result<Client, ClientError> {
    let endpoint = match server {
        Server::Daemon(endpoint) => Some(endpoint),
        // What its lock says is looked at over there.
        Server::Remote(_) => None,
        // It was the only one who knew.
        Server::OneShot(_) => return Err(ClientError::Unknown(lost)),
    };
    let options = Options {
        fallback: Fallback::Forbidden,
        ..options.clone()
    };
    let (mut wait, begun) = (Wait::begin(), Instant::now());
    let mut pause = FIRST_PAUSE;
    loop {
        match Box::pin(Client::connect_or_oneshot(options.clone())).await {
            Ok(next) if next.hello.epoch == epoch => return Ok(next),
            Ok(_) => return Err(ClientError::Unknown(lost)),
            Err(_) if goes_on(&mut wait, endpoint, begun) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(_) => return Err(ClientError::Unknown(lost)),
        }
    }
}

impl Client {
    /// Asks once more, with its key, for a send whose conversation broke, at the daemon that comes
    /// next: what was accepted is told from its beginning, and runs once.
    ///
    /// # Errors
    /// [`ClientError::Unknown`] with what was lost when no daemon comes in time, or the send has no
    /// key to ask with.
    pub async fn again(
        &mut self,
        send: &Send,
        lost: LostError,
    ) -> Result<(u64, Received), ClientError> {
        if send.idempotency_key.is_none() {
            return Err(ClientError::Unknown(lost));
        }
        let send = &*key::completed(send).map_err(ClientError::NotWritten)?;
        let fitting = self.fitting(send).map_err(ClientError::NotWritten)?;
        let send = &fitting.into_owned();
        let mut lost = lost;
        for losses in 0..MOST_LOSSES {
            tokio::time::sleep(PAUSE_AFTER_A_LOSS * losses).await;
            self.reconnect(lost).await?;
            lost = match self.first_line(send).await {
                Ok((_, received)) if is_draining(&received) || self.says_nothing(&received) => {
                    LostError::Ended
                }
                Ok(first) => return Ok(first),
                Err(lost) => lost,
            };
        }
        Err(ClientError::Unknown(lost))
    }

    /// Cancels, in a conversation of its own, a send that waits here for its acceptance. Nothing happens
    /// where there is none, it has no key, or no daemon of this machine takes it.
    pub fn cancel_beside(&self, send: Option<&Send>) -> impl Future<Output = ()> + use<> {
        let key = send.and_then(|send| send.idempotency_key.as_deref());
        let is_here = matches!(self.server, Server::Daemon(_));
        let abort = key.filter(|_| is_here).map(Abort::of_key);
        let options = Options {
            fallback: Fallback::Forbidden,
            ..self.options.clone()
        };
        async move {
            if let Some(abort) = abort
                && let Ok(mut beside) = Self::connect_or_oneshot(options).await
            {
                // Whoever sent it hears what becomes of it.
                let _gone = beside.request("abort", &abort).await;
            }
        }
    }

    /// Goes on with the daemon that comes after one that was lost; what was asked has to be asked
    /// again. A daemon with another store doesn't count.
    ///
    /// # Errors
    /// [`ClientError::Unknown`] with what was lost when none comes in time.
    pub async fn reconnect(&mut self, lost: LostError) -> Result<(), ClientError> {
        let epoch = &self.hello.epoch;
        let mut next = follow(&self.server, epoch, &self.options, lost).await?;
        // What may be done without a daemon isn't changed by having waited for one.
        next.options.fallback = self.options.fallback;
        *self = next;
        Ok(())
    }

    /// Does this code say that another machine's daemon was lost? The way there is still open.
    #[must_use]
    pub fn is_lost_there(&self, code: Code) -> bool {
        matches!(self.server, Server::Remote(_)) && code == Code::OutcomeUnknown
    }

    /// Is it a first line that says nothing of the send? Then it is as good as none.
    pub(crate) fn says_nothing(&self, first: &Received) -> bool {
        let Some(Line::Error(error)) = &first.line else {
            return false;
        };
        self.is_lost_there(error.code)
    }
}

/// Is a next daemon waited for any longer? As long as for a first one, by what its lock says; of
/// another machine, where that is looked at over there, not much longer.
fn goes_on(wait: &mut Wait, endpoint: Option<&LocalEndpoint>, begun: Instant) -> bool {
    let Some(endpoint) = endpoint else {
        return begun.elapsed() < PATIENCE;
    };
    let seen = wait.observe(Fact::HelloClosed, endpoint, Fallback::Forbidden);
    seen.is_patient()
}

/// What of a job was told, over all conversations. The key asked for again tells it from its
/// beginning.
#[derive(Clone, Default, Debug)]
pub struct Heard {
    /// Is it told again?
    again: bool,
    seq: u64,
    messages: BTreeMap<u32, ToldMessage>,
}

/// Bytes of a message.
#[derive(Clone, Copy, Default, Debug)]
struct ToldMessage {
    text: u64,
    thinking: u64,
}

/// What of a piece of text is new.
enum Fresh {
    All,
    /// From this byte on.
    From(usize),
    Nothing,
}

impl Heard {
    /// Was anything told of a job that was accepted?
    #[must_use]
    pub const fn is_accepted(&self) -> bool {
        self.seq > 0
    }

    /// The last numbered line that was told, 0 before there is one: a cursor for `subscribe`.
    #[must_use]
    pub const fn last_seq(&self) -> u64 {
        self.seq
    }

    /// Is an answer to the send about the conversation, or about asking again? What was accepted goes
    /// on.
    #[must_use]
    pub fn is_about_asking(&self, client: &Client, received: &Received) -> bool {
        let Some(Line::Error(error)) = &received.line else {
            return false;
        };
        let of_a_job = error.turn.as_ref().is_some_and(|turn| turn.job.is_some());
        client.is_lost_there(error.code) || self.is_accepted() && !of_a_job
    }

    /// A conversation was lost: from now on what comes may have come before.
    pub fn told_again(&mut self) {
        self.again = true;
    }

    /// What of a line wasn't told before; notes it.
    pub fn fresh(&mut self, received: Received) -> Option<Received> {
        let fresh = match &received.line {
            Some(Line::MessageStart { message, .. }) if self.messages.contains_key(message) => {
                Fresh::Nothing
            }
            Some(Line::MessageStart { message, .. }) => {
                self.messages.insert(*message, ToldMessage::default());
                Fresh::All
            }
            Some(Line::MessageDelta {
                message,
                offset,
                text,
                ..
            }) => {
                let told = self.messages.entry(*message).or_default();
                grown(&mut told.text, *offset, text)
            }
            Some(Line::ThinkingDelta {
                message,
                offset,
                text,
                ..
            }) => {
                let told = self.messages.entry(*message).or_default();
                grown(&mut told.thinking, *offset, text)
            }
            _ => match seq_of(&received) {
                Some(seq) if seq <= self.seq => Fresh::Nothing,
                Some(seq) => {
                    self.seq = seq;
                    Fresh::All
                }
                None => Fresh::All,
            },
        };
        match fresh {
            // It was noted all the same: the next conversation may tell it once more.
            _ if !self.again => Some(received),
            Fresh::All => Some(received),
            Fresh::Nothing => None,
            Fresh::From(at) => Some(cut(&received, at)),
        }
    }
}

/// What of a piece lies behind what was told.
fn grown(told: &mut u64, offset: u64, text: &str) -> Fresh {
    let end = offset.saturating_add(text.len() as u64);
    let known = usize::try_from(told.saturating_sub(offset)).unwrap_or(usize::MAX);
    *told = end.max(*told);
    match known {
        0 => Fresh::All,
        known if known >= text.len() => Fresh::Nothing,
        known if text.is_char_boundary(known) => Fresh::From(known),
        // Not the text that was told.
        _ => Fresh::All,
    }
}

/// The number of a line that has one.
pub(crate) fn seq_of(received: &Received) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        seq: Option<u64>,
    }
    // Not from the typed line: one that this version doesn't know has a number, too.
    let numbered: Option<Numbered> = serde_json::from_str(&received.text).ok();
    numbered.and_then(|line| line.seq)
}

/// The same delta without its first bytes.
fn cut(received: &Received, at: usize) -> Received {
    // The text is changed, not the typed line: fields stay that this version doesn't know.
    let mut line: Map<String, Value> = serde_json::from_str(&received.text).unwrap_or_default();
    let offset = line.get("offset").and_then(Value::as_u64).unwrap_or(0);
    let text = line.get("text").and_then(Value::as_str).unwrap_or("");
    let rest = text.get(at..).unwrap_or("").to_owned();
    line.insert("offset".to_owned(), (offset + at as u64).into());
    line.insert("text".to_owned(), rest.into());
    Received::parse(Value::Object(line).to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> Vec<String> {
        let mut heard = Heard::default();
        heard.told_again();
        let lines = lines.iter().map(|line| Received::parse(line.as_bytes()));
        let told = lines.filter_map(|line| heard.fresh(line));
        told.map(|line| line.text).collect()
    }

    const ACCEPTED: &str = r#"{"type":"accepted","id":1,"seq":3,"job":"j1","session":"s","agent":"a","replayed":false,"ignored":[]}"#;

    #[test]
    fn a_turn_told_again_is_told_on() {
        let start = r#"{"type":"message_start","job":"j1","message":0,"role":"assistant"}"#;
        let delta = |offset: u64, text: &str| {
            format!(
                r#"{{"type":"message_delta","job":"j1","message":0,"offset":{offset},"text":"{text}","native":true}}"#
            )
        };
        let tool = r#"{"type":"tool_start","seq":5,"job":"j1","tool_call_id":"c","name":"ls","input":{},"read_only":true}"#;
        let end = r#"{"type":"message_end","seq":6,"job":"j1","stop":"end_turn","text":"one two"}"#;
        let told = heard(&[
            ACCEPTED,
            start,
            &delta(0, "on"),
            tool,
            ACCEPTED,
            start,
            &delta(0, "one "),
            tool,
            &delta(0, "o"),
            &delta(4, "two"),
            end,
        ]);
        let rest = delta(2, "e ");
        let expected = [
            ACCEPTED,
            start,
            &delta(0, "on"),
            tool,
            &rest,
            &delta(4, "two"),
            end,
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn on_the_first_conversation_everything_passes() {
        let mut heard = Heard::default();
        for _ in 0..2 {
            let delta = r#"{"type":"message_delta","job":"j1","message":0,"offset":0,"text":"x","native":true}"#;
            assert!(heard.fresh(Received::parse(delta.as_bytes())).is_some());
        }
    }

    #[test]
    fn what_has_no_number_and_no_text_passes() {
        let event = r#"{"type":"agent_event","job":"j1","kind":"x","data":{}}"#;
        assert_eq!(heard(&[event, event]).len(), 2);
        let thinking = r#"{"type":"thinking_delta","job":"j1","message":0,"offset":0,"text":"hm"}"#;
        assert_eq!(heard(&[thinking, thinking]).len(), 1);
    }
}
