//! One conversation with a daemon or a one-shot, over any byte stream.
//!
//! Owns `hello`, request numbers, and reading lines. Must not know whether a socket or a pipe
//! carries it, nor what to do when it ends.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use agentd_protocol::limits::{MAX_LINE_IN, MAX_LINE_OUT};
use agentd_protocol::line::{ErrorLine, HelloAnswer};
use agentd_protocol::request::Hello;
use agentd_protocol::{Code, Decoder, Frame, Line};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::wire::{Received, encode};

/// Twice what a daemon of this version sends: a newer one may send more.
const MAX_LINE: usize = 2 * MAX_LINE_OUT;
/// One read. A line longer than this takes several.
const READ: usize = 16 * 1024;

type Reader = Box<dyn AsyncRead + Unpin + Send>;
type Writer = Box<dyn AsyncWrite + Unpin + Send>;

/// An open conversation.
pub struct Connection {
    reader: Reader,
    writer: Option<Writer>,
    decoder: Decoder,
    lines: VecDeque<Received>,
    frames: Vec<Frame>,
    buffer: Box<[u8]>,
    /// A line came that was too long.
    overlong: bool,
    last_id: u64,
    arrivals: Arrivals,
}

/// Is it said that something came?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arrivals {
    /// No: whoever sends doesn't wait for it.
    Silent,
    /// By an empty line, which nobody answers.
    Told,
}

/// Why a conversation didn't begin.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    /// Nothing came in time.
    #[error("`hello` was not answered")]
    Silent,
    /// The other side left.
    #[error("the connection was closed before `hello` was answered")]
    Closed,
    /// It is stopping.
    #[error("the daemon is stopping")]
    Draining,
    /// It has as many connections as it takes.
    #[error("{}", .0.error)]
    TooMany(Box<ErrorLine>),
    /// It said something else.
    #[error("`hello` was refused: {0}")]
    Refused(String),
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum LostError {
    /// The connection ended.
    #[error("the connection ended before the answer")]
    Ended,
    /// Reading or writing failed.
    #[error("the connection failed: {0}")]
    Failed(#[from] io::Error),
    /// A line without end, or longer than anything the protocol sends.
    #[error("the daemon sent a line longer than {MAX_LINE} bytes")]
    TooLong,
    /// Nothing came in time.
    #[error("no answer came within {} s", .0.as_secs())]
    Late(Duration),
    /// The request is longer than a line may be: nothing was written.
    #[error("the request has {0} bytes, the limit is {MAX_LINE_IN}")]
    Oversized(usize),
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("last_id", &self.last_id)
            .finish_non_exhaustive()
    }
}

/// A conversation whose `hello` is written and may still be answered.
#[derive(Debug)]
pub struct Greeting {
    connection: Connection,
    /// Answers to what was asked behind `hello`: who refuses for a daemon doesn't wait for its word.
    early: VecDeque<Received>,
}

impl Greeting {
    /// Writes `hello` and nothing else. Who left already may have said why, so that is read.
    ///
    /// # Errors
    /// When it can't be written down.
    pub async fn say(
        reader: impl AsyncRead + Unpin + Send + 'static,
        writer: impl AsyncWrite + Unpin + Send + 'static,
        hello: &Hello,
    ) -> Result<Self, HelloError> {
        let mut connection = Connection {
            reader: Box::new(reader),
            writer: Some(Box::new(writer)),
            decoder: Decoder::new(MAX_LINE),
            lines: VecDeque::new(),
            frames: Vec::new(),
            buffer: vec![0; READ].into_boxed_slice(),
            overlong: false,
            last_id: 0,
            arrivals: Arrivals::Silent,
        };
        let line = encode("hello", 0, hello).map_err(|why| HelloError::Refused(why.to_string()))?;
        let _gone = connection.write(line.as_bytes()).await;
        Ok(Self {
            connection,
            early: VecDeque::new(),
        })
    }

    /// Asks behind `hello`, before it is known who answers: only for what may be asked again.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn request(&mut self, kind: &str, fields: &impl Serialize) -> Result<u64, LostError> {
        self.connection.request(kind, fields).await
    }

    /// Waits for the answer, at most until the deadline. May be called again after `Silent`.
    ///
    /// # Errors
    /// Says which of the ways it went.
    pub async fn answer(&mut self, patience: Duration) -> Result<Box<HelloAnswer>, HelloError> {
        let next = tokio::time::timeout(patience, self.next()).await;
        let received = match next {
            Err(_) => return Err(HelloError::Silent),
            Ok(Err(_)) => return Err(HelloError::Closed),
            Ok(Ok(received)) => received,
        };
        match received.line {
            Some(Line::Hello(answer)) if answer.ok && answer.protocol == 1 => Ok(answer),
            Some(Line::Hello(answer)) => Err(HelloError::Refused(format!(
                "it speaks protocol {} (version {}), this is protocol 1 (version {})",
                answer.protocol,
                answer.version,
                env!("CARGO_PKG_VERSION"),
            ))),
            Some(Line::Error(error)) if error.code == Code::Draining => Err(HelloError::Draining),
            Some(Line::Error(error)) if error.code == Code::TooManyConnections => {
                Err(HelloError::TooMany(error))
            }
            Some(Line::Error(error)) => Err(HelloError::Refused(error.error)),
            _ => {
                let shown: String = received.text.chars().take(200).collect();
                Err(HelloError::Refused(format!("it answered `{shown}`")))
            }
        }
    }

    /// The first line that answers nothing else.
    async fn next(&mut self) -> Result<Received, LostError> {
        loop {
            let received = self.connection.next().await?;
            if !(1..=self.connection.last_id).any(|id| received.answers(id)) {
                return Ok(received);
            }
            self.early.push_back(received);
        }
    }

    /// The conversation, once `hello` was answered.
    #[must_use]
    pub fn into_connection(mut self) -> Connection {
        self.early.append(&mut self.connection.lines);
        self.connection.lines = self.early;
        self.connection
    }
}

impl Connection {
    /// Says `hello` alone and waits for its answer.
    ///
    /// # Errors
    /// See [`HelloError`].
    pub async fn open(
        reader: impl AsyncRead + Unpin + Send + 'static,
        writer: impl AsyncWrite + Unpin + Send + 'static,
        hello: &Hello,
        patience: Duration,
    ) -> Result<(Self, Box<HelloAnswer>), HelloError> {
        let mut greeting = Greeting::say(reader, writer, hello).await?;
        let answer = greeting.answer(patience).await?;
        Ok((greeting.into_connection(), answer))
    }

    /// Writes a request and returns the `id` its answers will carry.
    ///
    /// # Errors
    /// When it can't be written; part of it may have left, unless it is [`LostError::Oversized`].
    pub async fn request(&mut self, kind: &str, fields: &impl Serialize) -> Result<u64, LostError> {
        self.last_id += 1;
        self.request_with_id(self.last_id, kind, fields).await?;
        Ok(self.last_id)
    }

    /// The same with an `id` of the caller's: for one that numbers its requests over several
    /// connections.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn request_with_id(
        &mut self,
        id: u64,
        kind: &str,
        fields: &impl Serialize,
    ) -> Result<(), LostError> {
        let line = encode(kind, id, fields).map_err(io::Error::from)?;
        if line.len() > MAX_LINE_IN {
            // The daemon would skip it, and say so without our `id`.
            return Err(LostError::Oversized(line.len()));
        }
        Ok(self.write(line.as_bytes()).await?)
    }

    /// The next line. Safe to cancel: nothing read is lost.
    ///
    /// # Errors
    /// [`LostError::Ended`] at the end, too: whoever asks still waits for something.
    pub async fn next(&mut self) -> Result<Received, LostError> {
        loop {
            if let Some(received) = self.lines.pop_front() {
                return Ok(received);
            }
            if self.overlong {
                return Err(LostError::TooLong);
            }
            let count = self.reader.read(&mut self.buffer).await?;
            if count == 0 {
                return Err(LostError::Ended);
            }
            self.take(count);
            self.tell_arrival().await;
        }
    }

    /// What was read into the buffer.
    fn take(&mut self, count: usize) {
        self.decoder.push(&self.buffer[..count], &mut self.frames);
        for frame in self.frames.drain(..) {
            match frame {
                Frame::Line(line) if !self.overlong => self.lines.push_back(Received::parse(&line)),
                Frame::Line(_) => {}
                Frame::TooLong => self.overlong = true,
            }
        }
    }

    /// From now on says by an empty line that something came. `ssh` without a terminal leaves small
    /// packets to the kernel, which holds a second one back until the first is acknowledged, and
    /// that takes 40 ms where nothing goes the other way.
    pub(crate) fn tell_arrivals(&mut self) {
        self.arrivals = Arrivals::Told;
    }

    /// Without waiting: with a full pipe something goes the other way anyhow.
    async fn tell_arrival(&mut self) {
        if self.arrivals == Arrivals::Told
            && let Some(writer) = &mut self.writer
        {
            std::future::poll_fn(|cx| {
                // A reader that is gone shows when it is read next.
                let _gone = Pin::new(&mut *writer).poll_write(cx, b"\n");
                Poll::Ready(())
            })
            .await;
        }
    }

    /// Asks and waits for the one answer. Notes and lines of other requests are passed over.
    ///
    /// # Errors
    /// When no answer came, within `deadline` if there is one.
    pub async fn ask(
        &mut self,
        kind: &str,
        fields: &impl Serialize,
        deadline: Option<Duration>,
    ) -> Result<Received, LostError> {
        let asked = async {
            let id = self.request(kind, fields).await?;
            loop {
                let received = self.next().await?;
                if received.answers(id) && received.is_final() {
                    return Ok(received);
                }
            }
        };
        match deadline {
            None => asked.await,
            Some(limit) => tokio::time::timeout(limit, asked)
                .await
                .unwrap_or(Err(LostError::Late(limit))),
        }
    }

    /// Is there nothing to read, not even the end?
    pub(crate) fn is_quiet(&mut self) -> bool {
        // A byte that is there is lost by this: such a conversation isn't used any more.
        let mut nobody = Context::from_waker(Waker::noop());
        let mut buffer = [0];
        let mut buffer = ReadBuf::new(&mut buffer);
        let read = Pin::new(&mut self.reader).poll_read(&mut nobody, &mut buffer);
        self.lines.is_empty() && read.is_pending()
    }

    /// Waits until the other side says no more; what it still says is dropped.
    pub async fn ended(&mut self) {
        while self.next().await.is_ok() {}
    }

    /// No more requests: half-closes a socket, ends a one-shot's input.
    pub async fn finish(&mut self) {
        if let Some(mut writer) = self.writer.take() {
            // The other side may have left already.
            let _gone = writer.shutdown().await;
        }
    }

    /// Its two halves, with the lines that were read but not yet taken, for a relay.
    pub(crate) fn into_parts(self) -> (Reader, Option<Writer>, Decoder, VecDeque<Received>) {
        (self.reader, self.writer, self.decoder, self.lines)
    }

    /// Reads meanwhile what comes: a daemon whose answers nobody takes reads no more requests.
    async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut reading = true;
        loop {
            let Some(writer) = &mut self.writer else {
                return Err(io::ErrorKind::BrokenPipe.into());
            };
            if bytes.is_empty() {
                return writer.flush().await;
            }
            tokio::select! {
                biased;
                written = writer.write(bytes) => match written? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    count => bytes = &bytes[count..],
                },
                // How it ended whoever reads next is told.
                read = self.reader.read(&mut self.buffer), if reading => match read {
                    Ok(count @ 1..) => self.take(count),
                    Ok(0) | Err(_) => reading = false,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Nothing;
    use tokio::io::{BufReader, DuplexStream, duplex, split};

    const HELLO: &str = r#"{"type":"hello","id":0,"ok":true,"server":"agentd","version":"0.1.0","protocol":1,"epoch":"e","pid":1,"uid":1,"capabilities":[],"limits":{"line_in":1,"line_out":1,"in_flight":1}}"#;

    async fn talk(script: &[&str]) -> (Result<Connection, HelloError>, DuplexStream) {
        let (ours, mut theirs) = duplex(64 * 1024);
        for line in script {
            theirs.write_all(line.as_bytes()).await.unwrap();
            theirs.write_all(b"\n").await.unwrap();
        }
        let (reader, writer) = split(ours);
        let hello = Hello::default();
        let opened = Connection::open(reader, writer, &hello, Duration::from_secs(2)).await;
        (opened.map(|(connection, _)| connection), theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn hello_goes_alone_before_the_request() {
        use tokio::io::AsyncBufReadExt;
        let (connection, theirs) = talk(&[HELLO]).await;
        let mut connection = connection.unwrap();
        let id = connection.request("ping", &Nothing {}).await.unwrap();
        let mut lines = BufReader::new(theirs).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        assert!(first.starts_with(r#"{"type":"hello","id":0"#), "{first}");
        let second = lines.next_line().await.unwrap().unwrap();
        assert_eq!(second, format!(r#"{{"type":"ping","id":{id}}}"#));
    }

    #[tokio::test(start_paused = true)]
    async fn request_to_a_daemon_that_answers_leaves() {
        let (connection, theirs) = talk(&[HELLO]).await;
        let mut connection = connection.unwrap();
        let (mut from_us, mut to_us) = split(theirs);
        // More than is on the way at once, before it reads anything.
        let daemon = async {
            let line = format!("{}\n", r#"{"type":"pong"}"#);
            for _ in 0..20_000 {
                to_us.write_all(line.as_bytes()).await.unwrap();
            }
            tokio::io::copy(&mut from_us, &mut tokio::io::sink())
                .await
                .unwrap();
        };
        let asked = async {
            let text = "x".repeat(1_000_000);
            let fields = serde_json::json!({"text": text});
            connection.request("send", &fields).await.unwrap();
            for _ in 0..20_000 {
                assert_eq!(connection.next().await.unwrap().kind, "pong");
            }
        };
        let both = async {
            tokio::select! { () = daemon => {}, () = asked => {} }
        };
        tokio::time::timeout(Duration::from_secs(60), both)
            .await
            .expect("both went on");
    }

    #[tokio::test(start_paused = true)]
    async fn hello_overtaken_by_a_refusal_keeps_it() {
        let (ours, mut theirs) = duplex(64 * 1024);
        let (reader, writer) = split(ours);
        let hello = Hello::default();
        let mut greeting = Greeting::say(reader, writer, &hello).await.unwrap();
        let id = greeting.request("status", &Nothing {}).await.unwrap();
        let refused = r#"{"type":"error","id":1,"code":"forbidden","error":"not this"}"#;
        let lines = format!("{refused}\n{HELLO}\n{{\"type\":\"pong\",\"id\":2}}\n");
        theirs.write_all(lines.as_bytes()).await.unwrap();
        greeting.answer(Duration::from_secs(2)).await.unwrap();
        let mut connection = greeting.into_connection();
        let first = connection.next().await.unwrap();
        assert!(first.answers(id), "{first:?}");
        assert_eq!(first.text, refused);
        assert_eq!(connection.next().await.unwrap().kind, "pong");
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_to_hello_is_told_apart() {
        let draining = r#"{"type":"error","code":"draining","error":"stopping","retryable":true}"#;
        let full = r#"{"type":"error","code":"too-many-connections","error":"full"}"#;
        let newer = HELLO.replace(r#""protocol":1"#, r#""protocol":2"#);
        let told = async |script: &[&str]| talk(script).await.0.unwrap_err().to_string();
        assert_eq!(told(&[]).await, "`hello` was not answered");
        assert_eq!(told(&[draining]).await, "the daemon is stopping");
        assert_eq!(told(&[full]).await, "full");
        assert!(told(&[&newer]).await.contains("protocol 2"));
        assert!(told(&["220 smtp ready"]).await.contains("220 smtp ready"));
    }

    #[tokio::test]
    async fn hello_unread_by_a_closer_gets_its_refusal() {
        let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
        let full = b"{\"type\":\"error\",\"code\":\"too-many-connections\",\"error\":\"full\"}\n";
        theirs.try_write(full).unwrap();
        drop(theirs);
        let (reader, writer) = ours.into_split();
        let hello = Hello::default();
        let opened = Connection::open(reader, writer, &hello, Duration::from_secs(2)).await;
        assert!(matches!(opened, Err(HelloError::TooMany(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_found_among_notes_and_strangers() {
        let note = r#"{"type":"note","id":1,"level":"info","code":"x","text":"y"}"#;
        let other = r#"{"type":"pong","id":9}"#;
        let answer = r#"{"type":"pong","id":1}"#;
        let (connection, _theirs) = talk(&[HELLO, note, other, answer]).await;
        let received = connection.unwrap().ask("ping", &Nothing {}, None).await;
        assert_eq!(received.unwrap().text, answer);
    }

    #[tokio::test(start_paused = true)]
    async fn answer_that_is_late_is_told_from_lost() {
        let (connection, theirs) = talk(&[HELLO]).await;
        let mut connection = connection.unwrap();
        let limit = Some(Duration::from_secs(5));
        let late = connection.ask("ping", &Nothing {}, limit).await;
        assert!(matches!(late, Err(LostError::Late(_))));
        drop(theirs);
        let lost = connection.ask("ping", &Nothing {}, None).await;
        assert!(matches!(lost, Err(LostError::Failed(_) | LostError::Ended)));
    }

    #[tokio::test(start_paused = true)]
    async fn input_is_told_by_an_empty_line() {
        use tokio::io::AsyncReadExt as _;
        let note = r#"{"type":"note","level":"info","code":"x","text":"y"}"#;
        let (connection, mut theirs) = talk(&[HELLO]).await;
        let mut connection = connection.unwrap();
        connection.tell_arrivals();
        for _ in 0..2 {
            let line = format!("{note}\n");
            theirs.write_all(line.as_bytes()).await.unwrap();
            connection.next().await.unwrap();
        }
        connection.finish().await;
        let mut said = String::new();
        theirs.read_to_string(&mut said).await.unwrap();
        let (hello, rest) = said.split_once('\n').unwrap();
        assert!(hello.contains("hello"), "{hello}");
        assert_eq!(rest, "\n\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_over_the_limit_is_not_written() {
        let (connection, _theirs) = talk(&[HELLO]).await;
        let mut connection = connection.unwrap();
        let long = serde_json::json!({ "text": "x".repeat(MAX_LINE_IN) });
        let refused = connection
            .ask("send", &long, Some(Duration::from_secs(5)))
            .await;
        assert!(matches!(refused, Err(LostError::Oversized(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_over_the_limit_ends_the_conversation() {
        let (connection, mut theirs) = talk(&[HELLO]).await;
        let mut connection = connection.unwrap();
        let flood = async move {
            let chunk = vec![b'x'; 64 * 1024];
            for _ in 0..=MAX_LINE / chunk.len() {
                if theirs.write_all(&chunk).await.is_err() {
                    break;
                }
            }
            theirs
        };
        let (received, _theirs) = tokio::join!(connection.next(), flood);
        assert!(matches!(received, Err(LostError::TooLong)));
    }
}
