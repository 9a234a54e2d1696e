//! `agentctl stdio`: lines between standard input and output and the daemon.
//!
//! Owns which requests are outstanding, and that each is answered when the daemon goes away. Must
//! not know what any request means, nor change a line that passes; `send_only.rs` may.

use std::cell::RefCell;
use std::collections::VecDeque;

use agentd_protocol::envelope::Rejected;
use agentd_protocol::limits::MAX_LINE_IN;
use agentd_protocol::line::{ErrorLine, Telling};
use agentd_protocol::{Code, Decoder, Envelope, Frame, Id, Line, RequestKind};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::client::{Client, Server};
use crate::connection::Connection;
use crate::send_only::SendOnly;
use crate::wire::Received;

const READ: usize = 16 * 1024;

/// What may pass to the daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// Everything.
    All,
    /// Sends, and what a connection needs for them: for an ssh key that may do nothing else.
    Sends(SendOnly),
}

impl Allowed {
    /// The line to pass on, or the one answer to one that may not pass.
    fn pass(&self, line: Vec<u8>) -> Result<Vec<u8>, String> {
        let Self::Sends(rules) = self else {
            return Ok(line);
        };
        rules.pass(&line).map_err(|(id, rejected)| {
            let line = Line::Error(Box::new(ErrorLine::refusal(rejected)));
            line.body().render(id.as_ref(), None, Telling::First)
        })
    }
}

/// How a relay ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelayEnd {
    /// Everything asked was answered.
    Answered,
    /// The daemon left while nothing was outstanding, but more might have been asked.
    Closed,
    /// The daemon left; each outstanding request was answered with `outcome-unknown`.
    Unknown,
    /// Whoever reads us left.
    ReaderGone,
}

#[derive(Debug, PartialEq, Eq)]
struct PendingRequest {
    id: Option<Id>,
    kind: String,
}

/// Relays until one side ends, and closes what serves us.
pub async fn run(
    client: Client,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    allowed: Allowed,
) -> RelayEnd {
    let (connection, mut server) = client.into_parts();
    let ended = relay(connection, input, output, allowed).await;
    if let Server::OneShot(oneshot) = &mut server {
        let _status = oneshot.leave().await;
    }
    ended
}

async fn relay(
    connection: Connection,
    mut input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    allowed: Allowed,
) -> RelayEnd {
    let (mut reader, writer, decoder, waiting) = connection.into_parts();
    let asked = RefCell::new(VecDeque::new());
    let output = tokio::sync::Mutex::new(output);
    let input_ended = {
        let up = up(&mut input, writer, &output, &asked, &allowed);
        let down = down(&mut reader, decoder, waiting, &output, &asked);
        tokio::pin!(up, down);
        let first = tokio::select! {
            // A daemon that left ends it, whatever may still be typed. The end of the input
            // doesn't: answers may be outstanding.
            went = &mut down => Some((went, InputState::Open)),
            () = &mut up => None,
        };
        match first {
            Some(ended) => ended,
            None => (down.await, InputState::Ended),
        }
    };
    let (down, input) = input_ended;
    if down == Down::ReaderGone {
        return RelayEnd::ReaderGone;
    }
    let left = asked.take();
    if left.is_empty() {
        return match input {
            InputState::Ended => RelayEnd::Answered,
            InputState::Open => RelayEnd::Closed,
        };
    }
    let mut output = output.into_inner();
    // Each request has its answer, as if the daemon had given it: whoever reads counts them.
    for asked in left {
        if write_line(&mut output, unknown(&asked).as_bytes())
            .await
            .is_err()
        {
            return RelayEnd::ReaderGone;
        }
    }
    RelayEnd::Unknown
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InputState {
    Open,
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Down {
    DaemonGone,
    ReaderGone,
}

/// Standard input to the daemon; at its end the daemon is told that no more comes.
async fn up(
    input: &mut (impl AsyncRead + Unpin),
    writer: Option<impl AsyncWrite + Unpin>,
    output: &tokio::sync::Mutex<impl AsyncWrite + Unpin>,
    asked: &RefCell<VecDeque<PendingRequest>>,
    allowed: &Allowed,
) {
    let Some(mut writer) = writer else { return };
    let mut decoder = Decoder::new(MAX_LINE_IN);
    let mut frames = Vec::new();
    let mut buffer = vec![0; READ];
    loop {
        // An unreadable input has ended.
        let count = input.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            break;
        }
        decoder.push(&buffer[..count], &mut frames);
        for frame in frames.drain(..) {
            match frame {
                Frame::Line(line) => match allowed.pass(line) {
                    Err(refusal) => {
                        let _gone = write_line(&mut *output.lock().await, refusal.as_bytes()).await;
                    }
                    Ok(mut line) => {
                        note_asked(&line, asked);
                        // Noted before it is written: part of it may have left when the daemon
                        // goes.
                        line.push(b'\n');
                        // A daemon that is gone shows when it is read.
                        let _gone = writer.write_all(&line).await;
                    }
                },
                Frame::TooLong => {
                    let refused = Line::Error(Box::new(ErrorLine::refusal(Rejected::too_long())));
                    let line = refused.body().render(None, None, Telling::First);
                    // A reader that is gone shows at the next line.
                    let _gone = write_line(&mut *output.lock().await, line.as_bytes()).await;
                }
            }
        }
        let _gone = writer.flush().await;
    }
    match decoder.finish().map(|rest| allowed.pass(rest)) {
        None => {}
        Some(Err(refusal)) => {
            let _gone = write_line(&mut *output.lock().await, refusal.as_bytes()).await;
        }
        Some(Ok(rest)) => {
            // Its newline is missing here as it was there: the end of the input ends the line, too.
            note_asked(&rest, asked);
            let _gone = writer.write_all(&rest).await;
        }
    }
    let _gone = writer.shutdown().await;
}

/// The daemon to standard output, until either is gone.
async fn down(
    reader: &mut (impl AsyncRead + Unpin),
    mut decoder: Decoder,
    waiting: VecDeque<Received>,
    output: &tokio::sync::Mutex<impl AsyncWrite + Unpin>,
    asked: &RefCell<VecDeque<PendingRequest>>,
) -> Down {
    let mut frames: Vec<Frame> = waiting
        .into_iter()
        .map(|received| Frame::Line(received.text.into_bytes()))
        .collect();
    let mut buffer = vec![0; READ];
    loop {
        for frame in frames.drain(..) {
            let Frame::Line(mut line) = frame else {
                return Down::DaemonGone;
            };
            let received = Received::parse(&line);
            line.push(b'\n');
            if write_whole(&mut *output.lock().await, &line).await.is_err() {
                return Down::ReaderGone;
            }
            note_answered(&received, asked);
        }
        match reader.read(&mut buffer).await {
            Ok(0) | Err(_) => return Down::DaemonGone,
            Ok(count) => decoder.push(&buffer[..count], &mut frames),
        }
    }
}

async fn write_line(output: &mut (impl AsyncWrite + Unpin), line: &[u8]) -> std::io::Result<()> {
    write_whole(output, &[line, b"\n"].concat()).await
}

/// At once, as each write is a packet of its own on the way to another machine.
async fn write_whole(output: &mut (impl AsyncWrite + Unpin), line: &[u8]) -> std::io::Result<()> {
    output.write_all(line).await?;
    output.flush().await
}

/// A line that can't be read is asked, too: the daemon answers it with one `error`.
fn note_asked(line: &[u8], asked: &RefCell<VecDeque<PendingRequest>>) {
    let one = match Envelope::parse(line) {
        Ok(envelope) => PendingRequest {
            id: envelope.id,
            kind: envelope.kind.into_owned(),
        },
        Err((id, _)) => PendingRequest {
            id,
            kind: String::new(),
        },
    };
    asked.borrow_mut().push_back(one);
}

fn note_answered(received: &Received, asked: &RefCell<VecDeque<PendingRequest>>) {
    if !received.is_final() {
        return;
    }
    let mut asked = asked.borrow_mut();
    let same_id = |one: &PendingRequest| one.id == received.id;
    // Two may be open under one id, an `abort` under that of its send: the kind tells whose it is.
    let same_kind = |one: &PendingRequest| {
        let answer = RequestKind::named(&one.kind).map(|kind| kind.rules().answer);
        received.kind == "error" || answer == Some(&*received.kind)
    };
    if let Some(at) = asked.iter().position(|one| same_id(one) && same_kind(one)) {
        asked.remove(at);
    }
}

fn unknown(asked: &PendingRequest) -> String {
    let error = "the connection to the daemon was lost before the answer: the outcome is unknown";
    let hint = "ask again with the same `idempotency_key`, or look with `status` and `collect`";
    let rejected = Rejected::new(Code::OutcomeUnknown, error).hint(hint);
    let line = Line::Error(Box::new(ErrorLine::refusal(rejected)));
    line.body().render(asked.id.as_ref(), None, Telling::First)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::request::Hello;
    use std::time::Duration;
    use tokio::io::{AsyncBufReadExt, BufReader, DuplexStream, duplex, split};

    const HELLO: &str = "{\"type\":\"hello\",\"id\":0,\"ok\":true,\"server\":\"agentd\",\"version\":\"0.1.0\",\"protocol\":1,\"epoch\":\"e\",\"pid\":1,\"uid\":1,\"capabilities\":[],\"limits\":{\"line_in\":1,\"line_out\":1,\"in_flight\":1}}\n";

    async fn connected() -> (Connection, DuplexStream) {
        let (ours, mut theirs) = duplex(64 * 1024);
        theirs.write_all(HELLO.as_bytes()).await.unwrap();
        let (reader, writer) = split(ours);
        let patience = Duration::from_secs(2);
        let hello = Hello::default();
        let opened = Connection::open(reader, writer, &hello, patience).await;
        let mut line = [0; 1024];
        let _hello = theirs.read(&mut line).await.unwrap();
        (opened.unwrap().0, theirs)
    }

    #[tokio::test]
    async fn relay_passes_lines_and_hides_its_hello() {
        let (connection, theirs) = connected().await;
        let daemon = async move {
            let mut theirs = BufReader::new(theirs);
            let mut line = String::new();
            theirs.read_line(&mut line).await.unwrap();
            assert_eq!(line, "{\"type\":\"ping\", \"id\":[1,  2]}\n");
            let answer = b"{\"type\":\"pong\",\"id\":[1,  2]}\n";
            theirs.write_all(answer).await.unwrap();
            // The half-close reaches the daemon, which then closes.
            assert_eq!(theirs.read_line(&mut line).await.unwrap(), 0);
        };
        let mut output = Vec::new();
        let input = &b"{\"type\":\"ping\", \"id\":[1,  2]}\n"[..];
        let (ended, ()) = tokio::join!(relay(connection, input, &mut output, Allowed::All), daemon);
        assert_eq!(ended, RelayEnd::Answered);
        assert_eq!(output, b"{\"type\":\"pong\",\"id\":[1,  2]}\n");
    }

    #[tokio::test]
    async fn relay_for_sends_only_passes_nothing_else() {
        let (connection, theirs) = connected().await;
        let daemon = async move {
            let mut theirs = BufReader::new(theirs);
            let mut line = String::new();
            theirs.read_line(&mut line).await.unwrap();
            assert!(line.contains(r#""text":"1""#), "{line}");
            let answer = b"{\"type\":\"message_end\",\"id\":\"a\",\"text\":\"x\"}\n";
            theirs.write_all(answer).await.unwrap();
            line.clear();
            assert_eq!(theirs.read_line(&mut line).await.unwrap(), 0, "{line}");
        };
        let mut output = Vec::new();
        let input = &b"{\"prompt\":\"1\",\"id\":\"a\"}\n{\"type\":\"daemon.stop\",\"id\":\"b\"}\n{\"prompt\":\"2\",\"callback\":{\"url\":\"https://a.example/\"},\"id\":\"d\"}\n{\"type\":\"s\\u0074atus\",\"id\":\"c\"}\nnonsense\n{\"type\":\"jobs\"}"[..];
        let relaying = relay(
            connection,
            input,
            &mut output,
            Allowed::Sends(SendOnly::default()),
        );
        let (ended, ()) = tokio::join!(relaying, daemon);
        assert_eq!(ended, RelayEnd::Answered);
        let output = String::from_utf8(output).unwrap();
        let forbidden = output.matches("\"code\":\"forbidden\"").count();
        let unread = output.matches("\"code\":\"bad-json\"").count();
        assert_eq!(
            (forbidden, unread, output.lines().count()),
            (4, 1, 6),
            "{output}"
        );
    }

    #[tokio::test]
    async fn relay_answers_every_request_when_daemons_die() {
        let (connection, theirs) = connected().await;
        let daemon = async move {
            let mut theirs = BufReader::new(theirs);
            let mut line = String::new();
            for _ in 0..3 {
                theirs.read_line(&mut line).await.unwrap();
            }
            let answer = b"{\"type\":\"message_end\",\"id\":\"b\",\"text\":\"x\"}\n";
            theirs.write_all(answer).await.unwrap();
        };
        let mut output = Vec::new();
        let input = &b"{\"prompt\":\"1\",\"id\":\"a\"}\n{\"prompt\":\"2\",\"id\":\"b\"}\n{\"prompt\":\"3\"}\n"[..];
        let (ended, ()) = tokio::join!(relay(connection, input, &mut output, Allowed::All), daemon);
        assert_eq!(ended, RelayEnd::Unknown);
        let output = String::from_utf8(output).unwrap();
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines.len(), 3, "{output}");
        assert!(lines[0].starts_with(r#"{"type":"message_end","id":"b""#));
        assert!(lines[1].starts_with(r#"{"type":"error","id":"a","code":"outcome-unknown""#));
        assert!(lines[2].starts_with(r#"{"type":"error","code":"outcome-unknown""#));
    }

    #[tokio::test]
    async fn relay_left_with_open_input_is_no_success() {
        let (connection, theirs) = connected().await;
        drop(theirs);
        let (input, _kept_open) = duplex(16);
        let mut output = Vec::new();
        assert_eq!(
            relay(connection, input, &mut output, Allowed::All).await,
            RelayEnd::Closed
        );
    }

    #[tokio::test]
    async fn a_subscription_is_answered_by_live() {
        let asked = RefCell::new(VecDeque::new());
        note_asked(br#"{"type":"subscribe","id":1}"#, &asked);
        note_answered(
            &Received::parse(br#"{"type":"message_end","id":1}"#),
            &asked,
        );
        assert_eq!(asked.borrow().len(), 1);
        note_answered(
            &Received::parse(br#"{"type":"live","id":1,"seq":1,"epoch":"e"}"#),
            &asked,
        );
        assert!(asked.borrow().is_empty());
    }
}
