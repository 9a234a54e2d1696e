//! A conversation with whoever serves us: the daemon, or a one-shot when falling back is right.
//!
//! Owns connecting with retries and the moment of falling back; every choice is `fallback::decide`'s.
//! Must not know the command line, nor print.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agentd_protocol::line::{ErrorLine, HelloAnswer};
use agentd_protocol::request::{Hello, Send};
use agentd_protocol::{Code, Line};
use serde::Serialize;
use tokio::net::UnixStream;

use crate::call::Call;
use crate::connection::{Connection, Greeting, HelloError, LostError};
use crate::endpoint::LocalEndpoint;
use crate::fallback::{Decision, Fact, Fallback, Observation, Reason, decide};
use crate::key;
use crate::oneshot::{Asks, LEAVE_PATIENCE, OneShot, START_PATIENCE};
use crate::places::Environment;
use crate::remote::{self, Remote, RemoteError};
use crate::ssh::Target;
use crate::wire::Received;

/// The first pause between two attempts; each later one is longer, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// A daemon that is ready is noticed within this time.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// The code of an `agentd` whose state can't be written: nothing happened, try again.
const UNWRITABLE: i32 = 74;
/// One look at a silent daemon; in between the lock is read again.
const LOOK: Duration = Duration::from_millis(250);

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// `--socket`; or `ssh://[USER@]HOST[:PORT]`, which is the daemon of another machine.
    pub socket: Option<PathBuf>,
    /// May a one-shot serve us?
    pub fallback: Fallback,
    /// Our name, for the daemon's log.
    pub name: String,
    /// Is somebody here who answers questions?
    pub attended: Attended,
    /// What is a one-shot asked?
    pub asks: Asks,
}

/// Does somebody at this client answer what agents ask?
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Attended {
    /// Yes: questions wait.
    Yes,
    /// No: unless somebody else does, questions are denied.
    #[default]
    No,
}

/// Who serves a conversation.
#[derive(Debug)]
pub enum Server {
    /// The daemon on this endpoint.
    Daemon(LocalEndpoint),
    /// A process of our own.
    OneShot(OneShot),
    /// Whoever serves on another machine.
    Remote(Remote),
}

/// An open conversation and who is at its other end.
#[derive(Debug)]
pub struct Client {
    pub(crate) connection: Connection,
    pub(crate) server: Server,
    /// What was said to `hello`.
    pub hello: Box<HelloAnswer>,
    pub(crate) options: Options,
}

/// What to do when there is no daemon, where the endpoint doesn't know better.
pub const START_IT: &str = "`agentctl start` starts it";

/// Why nobody serves us, or nobody answers.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon, and no fallback: nothing happened.
    #[error("{error}")]
    Unreachable {
        /// What was found.
        error: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The daemon is there, and all its connections are taken: nothing happened.
    #[error("the daemon runs, and lets nobody in: {}", .0.error)]
    TooMany(Box<ErrorLine>),
    /// The daemon refuses work: nothing happened.
    #[error("the daemon is stopping and takes no new work")]
    Draining,
    /// The one-shot, here or on another machine, didn't get as far as `hello`: nothing happened.
    #[error("{error}")]
    OneShotFailed {
        /// What was found.
        error: String,
        /// Its exit code, if it has ended.
        exit: Option<i32>,
        /// Has it said why on our standard error? Then `error` doesn't.
        told: bool,
        /// What it said there and what to do, for whoever doesn't see it.
        why: Option<String>,
    },
    /// The request can't be written down: nothing happened.
    #[error("the request was not sent: {0}")]
    NotWritten(#[source] io::Error),
    /// The request left and its outcome isn't known.
    #[error("{0}, after the request was written: its outcome is unknown")]
    Unknown(#[source] LostError),
}

impl ClientError {
    pub(crate) fn of_remote(remote: RemoteError) -> Self {
        let RemoteError {
            error, hint, exit, ..
        } = remote;
        match exit {
            // What it said there counts here, too.
            Some(3) => Self::OneShotFailed {
                error,
                exit: Some(UNWRITABLE),
                told: false,
                why: None,
            },
            // A setting is wrong there (`sysexits.h`): nobody has to start a daemon.
            Some(78) => Self::OneShotFailed {
                error,
                exit,
                told: false,
                why: None,
            },
            _ => Self::Unreachable { error, hint },
        }
    }

    fn of_lost(lost: LostError) -> Self {
        match lost {
            LostError::Oversized(_) => {
                let why = lost.to_string();
                Self::NotWritten(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
            lost => Self::Unknown(lost),
        }
    }
}

impl Client {
    /// Connects, or starts a one-shot where that is right and allowed.
    ///
    /// # Errors
    /// When nobody can serve us; nothing has happened then.
    pub async fn connect_or_oneshot(options: Options) -> Result<Self, ClientError> {
        if let Some(target) = options.socket.as_deref().and_then(Target::of_socket) {
            let target = target.map_err(|error| ClientError::Unreachable { error, hint: None })?;
            return Call::begin(&target, options).await?.answered().await;
        }
        let endpoint = LocalEndpoint::find(options.socket.as_deref(), &Environment::of_process());
        match reach(&endpoint, &options).await? {
            Reached::Daemon(connection, hello) => Ok(Self {
                connection,
                server: Server::Daemon(endpoint),
                hello,
                options,
            }),
            Reached::Nobody(reason) => Self::oneshot(options, reason).await,
        }
    }

    async fn oneshot(options: Options, reason: Reason) -> Result<Self, ClientError> {
        let started = OneShot::start(reason, options.asks);
        let (mut oneshot, stdout, stdin) = started.map_err(|error| {
            let why = reason.sentence();
            let error = format!("{why}, and going on without it failed: {error}");
            let hint = Some("put `agentd` next to `agentctl`, or on `PATH`".to_owned());
            ClientError::Unreachable { error, hint }
        })?;
        let said = Connection::open(stdout, stdin, &greeting(&options), START_PATIENCE).await;
        match said {
            Ok((connection, hello)) => Ok(Self {
                connection,
                server: Server::OneShot(oneshot),
                hello,
                options,
            }),
            Err(why) => {
                let status = oneshot.ended().await;
                let exit = status.and_then(|status| status.code());
                let error = match (exit, status) {
                    // Its standard error is ours: it has said why.
                    (Some(1..), _) => format!(
                        "nothing was done: {}, and going on without it failed",
                        reason.sentence()
                    ),
                    (_, Some(status)) => {
                        format!("`agentd --stdio` did not get ready: {why} ({status})")
                    }
                    (_, None) => format!("`agentd --stdio` did not get ready: {why}"),
                };
                let told = matches!(exit, Some(1..));
                let why = match why {
                    HelloError::Refused(said) if told => Some(said),
                    _ => None,
                };
                Err(ClientError::OneShotFailed {
                    error,
                    exit,
                    told,
                    why,
                })
            }
        }
    }

    /// Who serves us.
    #[must_use]
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// Why a one-shot serves us, if one does.
    #[must_use]
    pub const fn fallback_reason(&self) -> Option<Reason> {
        match &self.server {
            Server::Daemon(_) | Server::Remote(_) => None,
            Server::OneShot(oneshot) => Some(oneshot.reason),
        }
    }

    /// Does a run without a daemon serve us, here or on another machine?
    #[must_use]
    pub fn is_alone(&self) -> bool {
        let said = self.hello.served_by.as_deref();
        matches!(self.server, Server::OneShot(_)) || said == Some("oneshot")
    }

    /// What a send has to be for whoever serves us.
    pub(crate) fn fitting<'a>(&self, send: &'a Send) -> io::Result<Cow<'a, Send>> {
        match &self.server {
            Server::Daemon(_) | Server::OneShot(_) => Ok(Cow::Borrowed(send)),
            Server::Remote(_) => remote::carried(send).map(Cow::Owned),
        }
    }

    /// Writes a send and gives its `id` and first line: `accepted` or a refusal. A send without an
    /// idempotency key gets one; who wants to ask again with it makes it with
    /// [`crate::key::completed`].
    ///
    /// A daemon that answers `draining` has accepted nothing, so the send goes to a one-shot
    /// (or to the daemon that follows) then, if that is allowed. One that leaves without an answer
    /// may have accepted it: then it is asked for [`again`](Self::again), and no one-shot serves it.
    ///
    /// # Errors
    /// [`ClientError::Unknown`] when the connection is lost after writing, and no daemon comes next.
    pub async fn send(&mut self, send: &Send) -> Result<(u64, Received), ClientError> {
        let mut wait = Wait::begin();
        let send = &*key::completed(send).map_err(ClientError::NotWritten)?;
        let send = &*self.fitting(send).map_err(ClientError::NotWritten)?;
        let mut called_again = false;
        loop {
            let first = match self.first_line(send).await {
                Err(lost @ LostError::Oversized(_)) => return Err(ClientError::of_lost(lost)),
                // It may have been accepted: from here on only its key is asked for, never a
                // one-shot.
                Err(lost) => return self.again(send, lost).await,
                Ok((_, received)) if self.says_nothing(&received) => {
                    return self.again(send, LostError::Ended).await;
                }
                Ok(first) => first,
            };
            if !is_draining(&first.1) {
                return Ok(first);
            }
            // `draining` is the one refusal that says that somebody else may take it.
            let endpoint = match &self.server {
                Server::Daemon(endpoint) => endpoint,
                // Whoever answers there next decides by the same rule.
                Server::Remote(_) if !called_again => {
                    called_again = true;
                    let again = Self::connect_or_oneshot(self.options.clone());
                    *self = Box::pin(again).await?;
                    continue;
                }
                Server::OneShot(_) | Server::Remote(_) => return Ok(first),
            };
            let seen = wait.observe(Fact::RequestDraining, endpoint, self.options.fallback);
            match decide(seen) {
                Decision::Retry => {
                    let again = Self::connect_or_oneshot(self.options.clone());
                    *self = Box::pin(again).await?;
                }
                Decision::OneShot { reason } => {
                    *self = Self::oneshot(self.options.clone(), reason).await?;
                }
                _ => return Ok(first),
            }
        }
    }

    pub(crate) async fn first_line(&mut self, send: &Send) -> Result<(u64, Received), LostError> {
        let id = self.connection.request("send", send).await?;
        loop {
            let received = self.connection.next().await?;
            if received.answers(id) {
                return Ok((id, received));
            }
        }
    }

    /// Writes a request, its answers to be taken with [`Client::next`].
    ///
    /// # Errors
    /// When it can't be written; part of it may have left.
    pub async fn request(&mut self, kind: &str, fields: &impl Serialize) -> Result<u64, LostError> {
        self.connection.request(kind, fields).await
    }

    /// The same with an `id` of the caller's, which has to be larger than 0 and new.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn request_with_id(
        &mut self,
        id: u64,
        kind: &str,
        fields: &impl Serialize,
    ) -> Result<(), LostError> {
        self.connection.request_with_id(id, kind, fields).await
    }

    /// Asks and waits for the one answer.
    ///
    /// # Errors
    /// [`ClientError::Unknown`] when none comes, within `deadline` if there is one.
    pub async fn ask(
        &mut self,
        kind: &str,
        fields: &impl Serialize,
        deadline: Option<Duration>,
    ) -> Result<Received, ClientError> {
        let asked = self.connection.ask(kind, fields, deadline).await;
        asked.map_err(ClientError::of_lost)
    }

    /// The next line. Safe to cancel.
    ///
    /// # Errors
    /// When the conversation ended.
    pub async fn next(&mut self) -> Result<Received, LostError> {
        self.connection.next().await
    }

    /// Is it open, with nothing said that nobody asked for? Then it can be kept for later.
    pub fn is_quiet(&mut self) -> bool {
        self.connection.is_quiet()
    }

    /// Ends the conversation. A one-shot is waited for until it closes its output: then its worker
    /// is gone and its session free, and only the process itself is left to be taken apart.
    pub async fn close(mut self) {
        if let Server::OneShot(_) = &self.server {
            self.connection.finish().await;
            // It has answered; one that takes longer may finish by itself.
            let _late = tokio::time::timeout(LEAVE_PATIENCE, self.connection.ended()).await;
        }
    }

    /// Leaves at once, whatever is outstanding; what was accepted goes on.
    pub async fn abandon(mut self) -> String {
        match &mut self.server {
            Server::Remote(remote) => {
                remote.abandon();
                remote.last_words().await
            }
            Server::Daemon(_) | Server::OneShot(_) => String::new(),
        }
    }

    /// The conversation and its server apart, for a relay.
    pub(crate) fn into_parts(self) -> (Connection, Server) {
        (self.connection, self.server)
    }
}

enum Reached {
    Daemon(Connection, Box<HelloAnswer>),
    Nobody(Reason),
}

/// Nothing was accepted: the daemon is on its way out, and the next one is to be asked.
#[must_use]
pub fn is_draining(first: &Received) -> bool {
    matches!(&first.line, Some(Line::Error(error))
        if error.code == Code::Draining && error.turn.as_ref().is_none_or(|turn| turn.job.is_none()))
}

pub(crate) fn greeting(options: &Options) -> Hello {
    Hello {
        client: Some(options.name.clone()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        protocol: Some(1),
        answers: options.attended == Attended::Yes,
    }
}

/// How long somebody waits for a daemon.
#[derive(Debug)]
pub(crate) struct Wait {
    begun: Instant,
    /// When the lock last said that one comes: what it has then is patience of its own.
    coming: Option<Instant>,
}

impl Wait {
    /// From now on.
    pub(crate) fn begin() -> Self {
        Self {
            begun: Instant::now(),
            coming: None,
        }
    }

    pub(crate) fn observe(
        &mut self,
        fact: Fact,
        endpoint: &LocalEndpoint,
        fallback: Fallback,
    ) -> Observation {
        let lock = endpoint.lock();
        let since = if lock.is_coming() {
            self.coming = Some(Instant::now());
            self.begun
        } else {
            self.coming.unwrap_or(self.begun)
        };
        Observation {
            fact,
            lock,
            waited_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
            fallback,
        }
    }
}

/// Tries until `decide` has an end: connected, nobody, or an error.
async fn reach(endpoint: &LocalEndpoint, options: &Options) -> Result<Reached, ClientError> {
    let mut wait = Wait::begin();
    let mut pause = FIRST_PAUSE;
    loop {
        let (fact, error, hint) = match endpoint.connect().await {
            Ok(stream) => match greet(stream, endpoint, options, &mut wait).await {
                Ok((connection, hello)) => return Ok(Reached::Daemon(connection, hello)),
                Err((_, HelloError::TooMany(line))) => return Err(ClientError::TooMany(line)),
                Err((fact, why)) => {
                    let shown = endpoint.path.display();
                    let hint = "`agentctl status` says how it is".to_owned();
                    (fact, format!("the daemon on `{shown}`: {why}"), Some(hint))
                }
            },
            Err(failed) => (failed.fact, failed.error, failed.hint),
        };
        let seen = wait.observe(fact, endpoint, options.fallback);
        endpoint.disk_answers()?;
        match decide(seen) {
            Decision::Retry => {
                tokio::time::sleep(jittered(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Decision::OneShot { reason } => return Ok(Reached::Nobody(reason)),
            Decision::Refused => return Err(ClientError::Draining),
            // `Wait` was followed inside `greet`; what is left has no way on.
            Decision::Unreachable | Decision::Connected | Decision::Wait | Decision::Unknown => {
                return Err(ClientError::Unreachable { error, hint });
            }
        }
    }
}

async fn greet(
    stream: UnixStream,
    endpoint: &LocalEndpoint,
    options: &Options,
    wait: &mut Wait,
) -> Result<(Connection, Box<HelloAnswer>), (Fact, HelloError)> {
    let (reader, writer) = stream.into_split();
    let said = Greeting::say(reader, writer, &greeting(options)).await;
    let mut greeting = said.map_err(|why| (Fact::HelloClosed, why))?;
    loop {
        let why = match greeting.answer(LOOK).await {
            Ok(hello) => return Ok((greeting.into_connection(), hello)),
            Err(why) => why,
        };
        let fact = match &why {
            HelloError::Silent => Fact::HelloSilent,
            HelloError::Closed => Fact::HelloClosed,
            HelloError::Draining => Fact::HelloDraining,
            HelloError::TooMany(_) | HelloError::Refused(_) => Fact::HelloOther,
        };
        if decide(wait.observe(fact, endpoint, options.fallback)) != Decision::Wait {
            return Err((fact, why));
        }
    }
}

/// Half to one and a half times the pause, so that many clients don't come back together.
fn jittered(pause: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    // A random number without a crate for it: its keys are others each time.
    let percent = 50 + RandomState::new().hash_one(0) % 101;
    pause * u32::try_from(percent).unwrap_or(100) / 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::UnixListener;

    const HELLO: &str = r#"{"type":"hello","id":0,"ok":true,"server":"agentd","version":"0.1.0","protocol":1,"epoch":"e","pid":1,"uid":1,"capabilities":[],"limits":{"line_in":1,"line_out":1,"in_flight":1}}"#;
    const DRAINING: &str = r#"{"type":"error","id":ID,"code":"draining","error":"stopping"}"#;

    /// A daemon that reads a line for each of its answers, and leaves after the last.
    async fn serve(listener: UnixListener, answers: &[&str]) {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        for answer in answers {
            stream.read_line(&mut line).await.unwrap();
            let answer = format!("{answer}\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        stream.read_line(&mut line).await.unwrap();
    }

    async fn sent(answers: &[&str]) -> Result<Received, ClientError> {
        let dir = tempfile::tempdir().unwrap();
        let path: &Path = &dir.path().join("s");
        let listener = UnixListener::bind(path).unwrap();
        let options = Options {
            socket: Some(path.to_owned()),
            fallback: Fallback::Forbidden,
            name: "test".to_owned(),
            attended: Attended::No,
            asks: Asks::Anything,
        };
        let asked = async {
            let mut client = Client::connect_or_oneshot(options).await?;
            let send = Send {
                text: "hi".to_owned(),
                ..Send::default()
            };
            client.send(&send).await.map(|(_, received)| received)
        };
        let (asked, ()) = tokio::join!(asked, serve(listener, answers));
        asked
    }

    #[tokio::test]
    async fn client_told_of_a_stop_did_nothing() {
        let to_hello = sent(&[&DRAINING.replace("ID", "0")]).await;
        assert!(matches!(to_hello, Err(ClientError::Draining)));
        let to_send = sent(&[HELLO, &DRAINING.replace("ID", "1")]).await;
        assert!(to_send.unwrap().text.contains("draining"));
    }

    #[tokio::test]
    async fn client_left_after_its_request_knows_no_outcome() {
        let lost = sent(&[HELLO]).await;
        assert!(matches!(lost, Err(ClientError::Unknown(_))));
    }

    #[tokio::test]
    async fn client_never_falls_back_from_another_protocol() {
        let strange = sent(&["220 smtp ready"]).await;
        assert!(matches!(strange, Err(ClientError::Unreachable { .. })));
    }
}
