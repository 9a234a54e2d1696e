//! One turn from the command line: sending, signals, and how it ended.
//!
//! Owns the loop over a turn's lines. Must not know how lines look (`View`) nor what the exit code
//! of an outcome is (`exit`).

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::time::Duration;

use agentd_protocol::line::Stop;
use agentd_protocol::request::{Abort, Send};
use agentd_protocol::{JobId, Line};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::exit::{self, Exit};
use super::output;
use super::terminal::Asker;
use agentd_client::again::{Heard, MOST_LOSSES, PAUSE_AFTER_A_LOSS};
use agentd_client::client::{Attended, Client, ClientError, Options, Server};
use agentd_client::connection::LostError;
use agentd_client::fallback::Fallback;
use agentd_client::wire::Received;

/// A turn that answers faster than this shows no spinner.
const SPINNER_AFTER: Duration = Duration::from_millis(300);
/// A spinner that moves, without being a cost.
const SPINNER_STEP: Duration = Duration::from_millis(100);

/// The commands that send one turn, and their option for its key.
const SENDING: &[&str] = &["send", "agent"];
const KEY_OPTION: &str = "--idempotency-key";

/// Where the lines of a turn go.
pub(super) trait View {
    /// One line, the final one too.
    fn line(&mut self, received: &Received) -> io::Result<()>;
    /// Time passed while nothing came.
    fn tick(&mut self, _waited: Duration) {}
}

/// How a turn ended.
pub(super) enum TurnOutcome {
    /// With its final line.
    Final(Box<Received>, Interrupted),
    /// Asked twice to end: we left, the turn may still be ending.
    Left,
    /// Nobody could take it, or its end isn't known.
    Failed(ClientError),
}

/// Did a signal ask for its end?
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupted {
    /// Yes.
    Yes,
    /// No.
    No,
}

/// Connects, or runs a one-shot, and says so once.
pub(super) async fn connect(
    socket: Option<&Path>,
    fallback: Fallback,
) -> Result<Client, ClientError> {
    connect_as(socket, fallback, Attended::No).await
}

/// The same for somebody who answers questions, or for nobody.
pub(super) async fn connect_as(
    socket: Option<&Path>,
    fallback: Fallback,
    attended: Attended,
) -> Result<Client, ClientError> {
    let options = Options {
        socket: socket.map(Path::to_owned),
        fallback,
        name: "agentctl".to_owned(),
        attended,
    };
    let client = Client::connect_or_oneshot(options).await?;
    tell_fallback(&client);
    Ok(client)
}

fn tell_fallback(client: &Client) {
    if let Some(reason) = client.fallback_reason() {
        output::note(&format!("{}; running once without it", reason.sentence()));
    }
    if let Server::Remote(remote) = client.server()
        && client.is_alone()
    {
        let target = remote.target();
        output::note(&format!(
            "no daemon serves on `{target}`; running once without it"
        ));
    }
}

/// Sends one turn and shows its lines until its end. Its questions go to whoever asks here. A
/// daemon that goes away is followed by the next one, which is asked for the same turn.
pub(super) async fn run(
    client: Client,
    send: &Send,
    view: &mut impl View,
    asker: Option<Asker>,
) -> io::Result<TurnOutcome> {
    let stops = Stops::hear(&client)?;
    let begun = Instant::now();
    let running = Running {
        client,
        send,
        view,
        asker,
        stops,
        abort: Interrupted::No,
        begun,
        ticks: ticks(begun),
        heard: Heard::default(),
        job: None,
    };
    running.until_its_end().await
}

/// A turn on its way, over as many conversations as that takes.
struct Running<'a, V> {
    client: Client,
    send: &'a Send,
    view: &'a mut V,
    asker: Option<Asker>,
    stops: Stops,
    abort: Interrupted,
    begun: Instant,
    ticks: Interval,
    heard: Heard,
    job: Option<JobId>,
}

impl<V: View> Running<'_, V> {
    async fn until_its_end(mut self) -> io::Result<TurnOutcome> {
        let mut lost = None;
        let mut losses = 0;
        loop {
            let alone_before = self.client.is_alone();
            let (id, first) = match self.first(lost).await {
                Ok(Some(first)) => first,
                Ok(None) => return Ok(TurnOutcome::Left),
                Err(error) => return Ok(TurnOutcome::Failed(error)),
            };
            // A daemon that was stopping may have been followed by a run without one, and whoever
            // reads has to know that.
            if !alone_before {
                tell_fallback(&self.client);
                self.stops.hear_more(&self.client)?;
            }
            match self.lines(id, first).await? {
                ConversationEnd::Over(outcome) => {
                    if let TurnOutcome::Final(..) = outcome {
                        self.client.close().await;
                    }
                    return Ok(outcome);
                }
                ConversationEnd::Lost(why) if losses < MOST_LOSSES => {
                    losses += 1;
                    tokio::time::sleep(PAUSE_AFTER_A_LOSS * losses).await;
                    self.heard.told_again();
                    lost = Some(why);
                }
                ConversationEnd::Lost(why) => {
                    return Ok(TurnOutcome::Failed(ClientError::Unknown(why)));
                }
            }
        }
    }

    /// The send's first line, or nothing when somebody asked twice to leave. After a loss it is
    /// asked for again.
    async fn first(
        &mut self,
        lost: Option<LostError>,
    ) -> Result<Option<(u64, Received)>, ClientError> {
        let (client, send) = (&mut self.client, self.send);
        let sending = async {
            match lost {
                None => client.send(send).await,
                Some(lost) => client.again(send, lost).await,
            }
        };
        tokio::pin!(sending);
        loop {
            tokio::select! {
                first = &mut sending => return first.map(Some),
                () = self.stops.asked() => {
                    if self.abort == Interrupted::Yes {
                        return Ok(None);
                    }
                    self.abort = Interrupted::Yes;
                }
                now = self.ticks.tick() => self.view.tick(now - self.begun),
            }
        }
    }

    /// Its lines, as long as the conversation lasts.
    async fn lines(&mut self, id: u64, first: Received) -> io::Result<ConversationEnd> {
        self.job = job_of(&first).or(self.job);
        // Wished for before there was a job that an abort could name.
        if self.abort == Interrupted::Yes && !first.ends_turn() {
            ask_abort(&mut self.client, self.job).await;
        }
        let mut received = first;
        loop {
            let is_its = received.answers(id);
            if is_its && self.heard.is_about_asking(&self.client, &received) {
                return Ok(ConversationEnd::Lost(LostError::Ended));
            }
            let ends = is_its && received.ends_turn();
            // Answers to an abort, or to an answer, aren't the turn's.
            let fresh = match is_its {
                true => self.heard.fresh(received.clone()),
                false => Some(received.clone()),
            };
            if let Some(fresh) = &fresh {
                if is_its || received.id.is_none() {
                    self.view.line(fresh)?;
                }
                if let Some(asker) = &mut self.asker {
                    asker.line(fresh);
                }
            }
            if ends {
                let outcome = TurnOutcome::Final(Box::new(received), self.abort);
                return Ok(ConversationEnd::Over(outcome));
            }
            received = match self.next().await? {
                NextLine::Line(next) => next,
                NextLine::Lost(lost) => return Ok(ConversationEnd::Lost(lost)),
                NextLine::Left => return Ok(ConversationEnd::Over(TurnOutcome::Left)),
            };
        }
    }

    async fn next(&mut self) -> io::Result<NextLine> {
        loop {
            tokio::select! {
                next = self.client.next() => return Ok(match next {
                    Ok(next) => NextLine::Line(next),
                    Err(lost) => NextLine::Lost(lost),
                }),
                () = self.stops.asked() => {
                    if self.abort == Interrupted::Yes {
                        return Ok(NextLine::Left);
                    }
                    self.abort = Interrupted::Yes;
                    ask_abort(&mut self.client, self.job).await;
                }
                now = self.ticks.tick() => match &mut self.asker {
                    Some(asker) if asker.is_asking() => asker.typed(&mut self.client).await?,
                    _ => self.view.tick(now - self.begun),
                },
            }
        }
    }
}

/// How far a conversation carried a turn.
enum ConversationEnd {
    /// To its end, or ours.
    Over(TurnOutcome),
    /// Until it broke.
    Lost(LostError),
}

/// What came next.
enum NextLine {
    Line(Received),
    Lost(LostError),
    Left,
}

fn ticks(begun: Instant) -> Interval {
    let mut ticks = interval_at(begun + SPINNER_AFTER, SPINNER_STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// The signals that ask for the turn's end. With a daemon the turn goes on without us, and only
/// Ctrl-C is a wish to end it; a turn that runs for us alone ends with us.
struct Stops {
    ctrl_c: Signal,
    terminate: Option<Signal>,
}

impl Stops {
    fn hear(client: &Client) -> io::Result<Self> {
        let ctrl_c = signal(SignalKind::interrupt())?;
        let terminate = None;
        let mut stops = Self { ctrl_c, terminate };
        stops.hear_more(client)?;
        Ok(stops)
    }

    /// It may be ours alone by now.
    fn hear_more(&mut self, client: &Client) -> io::Result<()> {
        if client.fallback_reason().is_some() && self.terminate.is_none() {
            self.terminate = Some(signal(SignalKind::terminate())?);
        }
        Ok(())
    }

    async fn asked(&mut self) {
        tokio::select! {
            () = came(Some(&mut self.ctrl_c)) => {}
            () = came(self.terminate.as_mut()) => {}
        }
    }
}

async fn came(signal: Option<&mut Signal>) {
    let heard = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if heard.is_none() {
        // None can come, or none any more.
        std::future::pending::<()>().await;
    }
}

async fn ask_abort(client: &mut Client, job: Option<JobId>) {
    let abort = Abort {
        job,
        ..Abort::default()
    };
    // A connection that is gone shows when it is read next.
    let _gone: Result<u64, LostError> = client.request("abort", &abort).await;
}

fn job_of(received: &Received) -> Option<JobId> {
    match &received.line {
        Some(Line::Accepted(accepted)) => Some(accepted.job),
        _ => None,
    }
}

/// The exit code of an outcome; says on standard error what went wrong.
pub(super) fn conclude(outcome: &TurnOutcome, key: &str) -> Exit {
    match outcome {
        TurnOutcome::Left => Exit::Interrupted,
        TurnOutcome::Final(received, interrupted) => {
            let exit = received.line.as_ref().map_or(Exit::Failed, exit::of_line);
            let said = match &received.line {
                Some(Line::Error(error)) => {
                    output::error(&error.error, error.hint.as_deref());
                    true
                }
                Some(Line::MessageEnd(end)) if end.stop == Stop::Refusal => {
                    output::error(&refused(&received.text), None);
                    true
                }
                Some(_) => false,
                None => {
                    let error = "the final line is of a kind that this version does not know";
                    output::error(error, None);
                    true
                }
            };
            if exit == Exit::Unknown {
                output::err(&retry_hint(SENDING, KEY_OPTION, key));
            }
            match interrupted {
                Interrupted::Yes => Exit::Interrupted,
                Interrupted::No => {
                    if exit == Exit::Failed && !said {
                        output::error("the turn was cancelled", None);
                    }
                    exit
                }
            }
        }
        TurnOutcome::Failed(error) => {
            tell_client_error(error);
            let exit = exit::of_client_error(error);
            if exit == Exit::Unknown {
                output::err(&retry_hint(SENDING, KEY_OPTION, key));
            }
            exit
        }
    }
}

/// That a model refused, with the provider's word where the final line has it.
fn refused(line: &str) -> String {
    #[derive(Default, serde::Deserialize)]
    struct Refused {
        refusal: Option<String>,
    }
    let refused: Refused = serde_json::from_str(line).unwrap_or_default();
    match refused.refusal {
        Some(why) => format!("the model refused: {why}"),
        None => "the model refused".to_owned(),
    }
}

/// A failed conversation on standard error.
pub(super) fn tell_client_error(error: &ClientError) {
    let hint = match error {
        ClientError::Unreachable { hint, .. } => hint.as_deref(),
        ClientError::Draining => Some("try again when it runs again, or allow the fallback"),
        ClientError::NotWritten(_) => Some("put what is long into a file, and name the file"),
        ClientError::TooMany(line) => line.hint.as_deref(),
        ClientError::OneShotFailed { .. } | ClientError::Unknown(_) => None,
    };
    output::error(&error.to_string(), hint);
}

/// How to ask again with the key that `option` gives to one of `commands`.
pub(super) fn retry_hint(commands: &[&str], option: &str, key: &str) -> String {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    format!(
        "hint: ask again with the same key, which runs nothing twice:\nhint:   {}\n",
        retry_command(&words, commands, option, key)
    )
}

/// The same command with its key.
fn retry_command(words: &[String], commands: &[&str], option: &str, key: &str) -> String {
    let mut command: Vec<String> = vec!["agentctl".to_owned()];
    let with_value = format!("{option}=");
    let mut placed = words
        .iter()
        .any(|word| word == option || word.starts_with(&with_value));
    for word in words.iter().skip(1) {
        command.push(quoted(word));
        if !placed && commands.contains(&word.as_str()) {
            command.push(format!("{option} {}", quoted(key)));
            placed = true;
        }
    }
    command.join(" ")
}

fn quoted(word: &str) -> String {
    let word = output::safe(word);
    // No argument holds what can't be quoted, which is NUL.
    shlex::try_quote(&word).map_or_else(|_| word.to_string(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retried(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        retry_command(&words, SENDING, KEY_OPTION, "k1")
    }

    #[test]
    fn refusal_is_told_in_the_providers_word() {
        for (line, said) in [
            (
                r#"{"refusal":"content_filter"}"#,
                "the model refused: content_filter",
            ),
            (r#"{"refusal":null}"#, "the model refused"),
            ("{}", "the model refused"),
        ] {
            assert_eq!(refused(line), said);
        }
    }

    #[test]
    fn a_dispatch_is_asked_again_with_its_prefix() {
        let words = ["agentctl", "dispatch", "--label", "a=b", "one two"];
        let words = words.map(str::to_owned);
        assert_eq!(
            retry_command(&words, &["dispatch"], "--key-prefix", "k1"),
            "agentctl dispatch --key-prefix k1 --label 'a=b' 'one two'"
        );
    }

    #[test]
    fn retry_command_is_the_same_with_its_key() {
        assert_eq!(
            retried(&["/bin/agentctl", "--socket", "/s", "send", "it's me"]),
            r#"agentctl --socket /s send --idempotency-key k1 "it's me""#
        );
        assert_eq!(
            retried(&["agentctl", "send", "--idempotency-key=k1", "hi"]),
            "agentctl send '--idempotency-key=k1' hi"
        );
    }
}
