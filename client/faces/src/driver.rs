//! A face over standard input and output, or whatever else has lines.
//!
//! Owns reading, writing, the clock, and the connection to the daemon, which is made when the face
//! first asks for something and again after it was lost. Must not know what any line means.

use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use agentd_client::client::Options;
use agentd_client::connection::LostError;
use agentd_client::wire::Received;
use agentd_client::{Client, ClientError, Fallback};
use agentd_protocol::{Decoder, Frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::face::{Face, Outbox, Ticket};

/// The longest line of a client: one of the daemon's (16 MiB) whose text needs twice its bytes in
/// another protocol's escapes.
pub const MAX_CLIENT_LINE: usize = 2 * agentd_protocol::limits::MAX_LINE_IN;
const READ: usize = 64 * 1024;
/// So long after the last line the program's pages are given back: an editor keeps a face for days.
const IDLE: Duration = Duration::from_secs(1);
/// A face that runs agents by itself looks so often, while it is idle, whether there is a daemon again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What woke the driver.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one, and it is used at once"
)]
enum Event {
    Bytes(io::Result<usize>),
    Daemon(Result<Received, LostError>),
    Timer,
    Stop,
    /// Nothing happens.
    Idle,
}

/// Runs until the client has ended and the face has nothing left to do, or nobody reads any more.
///
/// # Errors
/// When the client can't be read or written to.
pub async fn run(
    face: &mut impl Face,
    options: &Options,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    run_until(face, options, (input, output), std::future::pending()).await
}

/// The same until somebody ends the program.
///
/// # Errors
/// As of [`run`].
pub async fn run_until(
    face: &mut impl Face,
    options: &Options,
    (mut input, mut output): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut stop = pin!(stop);
    let mut stopped = false;
    let mut out = Outbox::default();
    let mut daemon: Option<Client> = None;
    let mut decoder = Decoder::new(MAX_CLIENT_LINE);
    let mut frames = Vec::new();
    let mut buffer = vec![0; READ].into_boxed_slice();
    let mut open = true;
    let mut idle_at = Some(Instant::now() + IDLE);
    let mut left = JoinSet::new();
    while open && !face.leaves() || !face.is_done() {
        let event = tokio::select! {
            read = input.read(&mut buffer), if open => Event::Bytes(read),
            line = next_line(&mut daemon) => Event::Daemon(line),
            () = sleep_until(face.deadline()) => Event::Timer,
            () = sleep_until(idle_at) => Event::Idle,
            () = &mut stop, if !stopped => Event::Stop,
        };
        let now = Instant::now();
        idle_at = Some(now + IDLE);
        let mut broken = None;
        match event {
            Event::Bytes(read) => {
                let count = read?;
                open = count != 0;
                if open {
                    decoder.push(&buffer[..count], &mut frames);
                } else {
                    frames.extend(decoder.finish().map(Frame::Line));
                }
                for frame in frames.drain(..) {
                    match frame {
                        Frame::Line(line) => face.client_line(&line, now, &mut out),
                        Frame::TooLong => {
                            face.client_line_too_long(MAX_CLIENT_LINE, now, &mut out);
                        }
                    }
                }
                if !open {
                    face.client_ended(now, &mut out);
                }
            }
            Event::Daemon(Ok(line)) => {
                let ticket = line.id.as_ref().and_then(|id| id.as_json().parse().ok());
                face.daemon_line(ticket.map(Ticket), line, now, &mut out);
            }
            Event::Daemon(Err(lost)) => {
                broken = Some(lost);
                face.daemon_lost(now, &mut out);
            }
            Event::Timer => face.timer(now, &mut out),
            Event::Stop => {
                stopped = true;
                face.stopped(now, &mut out);
            }
            Event::Idle => {
                agentd_base::program::forget();
                // On this machine: another one isn't called for it.
                let reason = daemon.as_ref().and_then(Client::fallback_reason);
                let is_alone = reason.is_some();
                idle_at = is_alone.then(|| now + LOOK_AGAIN);
                let follows = !face.is_idle() && face.only_follows();
                if is_alone && (face.is_idle() || follows) {
                    let is_over = go_over(&mut daemon, options, &mut left).await;
                    if is_over && follows {
                        face.daemon_lost(now, &mut out);
                    }
                }
            }
        }
        carry_out(face, options, &mut out, (&mut daemon, broken), &mut output).await?;
    }
    if let Some(daemon) = daemon {
        daemon.close().await;
    }
    left.join_all().await;
    Ok(())
}

/// Writes what the face left, until it leaves nothing. A connection that broke is given up if nobody
/// asks for anything.
async fn carry_out(
    face: &mut impl Face,
    options: &Options,
    out: &mut Outbox,
    (daemon, mut broken): (&mut Option<Client>, Option<LostError>),
    output: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    loop {
        let lines = out.take_client();
        let asks = out.take_daemon();
        if lines.is_empty() && asks.is_empty() {
            if broken.is_some() {
                *daemon = None;
            }
            return Ok(());
        }
        for mut line in lines {
            line.push('\n');
            output.write_all(line.as_bytes()).await?;
        }
        output.flush().await?;
        if asks.is_empty() {
            continue;
        }
        let client = match connected(daemon, options, broken.take()).await {
            Ok(client) => client,
            Err(why) => {
                *daemon = None;
                face.unreachable(&why, Instant::now(), out);
                continue;
            }
        };
        for ask in asks {
            let written = client.request_with_id(ask.ticket.0, ask.kind, &ask.fields);
            if let Err(lost) = written.await {
                broken = Some(lost);
                face.daemon_lost(Instant::now(), out);
                break;
            }
        }
    }
}

/// A connection. After one that broke, what is asked may have been accepted: only a daemon with the same
/// store answers it, and nothing is run without one.
async fn connected<'a>(
    daemon: &'a mut Option<Client>,
    options: &Options,
    broken: Option<LostError>,
) -> Result<&'a mut Client, ClientError> {
    match daemon {
        Some(client) => {
            if let Some(lost) = broken {
                client.reconnect(lost).await?;
            }
            Ok(client)
        }
        None => Ok(daemon.insert(Client::connect_or_oneshot(options.clone()).await?)),
    }
}

/// To the daemon, if there is one by now: what runs beside it keeps its sessions from everybody else.
async fn go_over(alone: &mut Option<Client>, options: &Options, left: &mut JoinSet<()>) -> bool {
    let daemons_only = Options {
        fallback: Fallback::Forbidden,
        ..options.clone()
    };
    if let Ok(there) = Client::connect_or_oneshot(daemons_only).await
        && let Some(alone) = alone.replace(there)
    {
        // What it accepted ends first, and nobody here waits for that.
        left.spawn(alone.close());
        return true;
    }
    false
}

/// The next line of a daemon, if there is a connection; never without one.
async fn next_line(daemon: &mut Option<Client>) -> Result<Received, LostError> {
    match daemon {
        Some(client) => client.next().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_client::Asks;
    use agentd_client::client::Attended;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::UnixListener;

    const HELLO: &str = r#"{"type":"hello","id":0,"ok":true,"server":"agentd","version":"0.1.0","protocol":1,"epoch":"e","pid":1,"uid":1,"capabilities":[],"limits":{"line_in":1,"line_out":1,"in_flight":1}}"#;

    /// Asks for a pong for each line of its client, and says which line it was for; once more where
    /// the daemon left.
    #[derive(Default)]
    struct Pings {
        asked: Vec<(Ticket, String)>,
        lost: usize,
    }

    impl Face for Pings {
        fn client_line(&mut self, line: &[u8], _now: Instant, out: &mut Outbox) {
            let ticket = out.ask("ping", &json!({}));
            let line = String::from_utf8_lossy(line).into_owned();
            self.asked.push((ticket, line));
        }

        fn client_line_too_long(&mut self, _limit: usize, _now: Instant, out: &mut Outbox) {
            out.say(&"too long");
        }

        fn client_ended(&mut self, _now: Instant, _out: &mut Outbox) {}

        fn daemon_line(
            &mut self,
            ticket: Option<Ticket>,
            line: Received,
            _now: Instant,
            out: &mut Outbox,
        ) {
            let at = self.asked.iter().position(|(one, _)| Some(*one) == ticket);
            let (_, word) = self.asked.remove(at.unwrap());
            out.say(&json!([line.kind, word]));
        }

        fn daemon_lost(&mut self, _now: Instant, out: &mut Outbox) {
            self.lost += 1;
            for (ticket, _) in &mut self.asked {
                *ticket = out.ask("ping", &json!({}));
            }
        }

        fn unreachable(&mut self, _why: &ClientError, _now: Instant, out: &mut Outbox) {
            self.asked.clear();
            out.say(&"unreachable");
        }

        fn deadline(&self) -> Option<Instant> {
            None
        }

        fn timer(&mut self, _now: Instant, _out: &mut Outbox) {}

        fn is_done(&self) -> bool {
            self.asked.is_empty()
        }
    }

    fn options(socket: std::path::PathBuf) -> Options {
        Options {
            socket: Some(socket),
            fallback: Fallback::Forbidden,
            name: "test".to_owned(),
            attended: Attended::No,
            asks: Asks::Anything,
        }
    }

    /// Says `hello`, and answers as many pings.
    async fn serve(listener: &UnixListener, answers: usize) {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        stream
            .write_all(format!("{HELLO}\n").as_bytes())
            .await
            .unwrap();
        for _ in 0..answers {
            line.clear();
            stream.read_line(&mut line).await.unwrap();
            let asked: Value = serde_json::from_str(&line).unwrap();
            let answer = format!("{}\n", json!({"type": "pong", "id": asked["id"]}));
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    async fn said(face: &mut Pings, input: &str, daemons: &[usize]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let mut output = Vec::new();
        let options = options(path);
        let run = run(face, &options, input.as_bytes(), &mut output);
        let serve = async {
            for answers in daemons {
                serve(&listener, *answers).await;
            }
            drop(listener);
            std::future::pending::<()>().await;
        };
        tokio::select! { ended = run => ended.unwrap(), () = serve => {} }
        String::from_utf8(output).unwrap()
    }

    #[tokio::test]
    async fn driver_asks_again_on_a_new_connection() {
        let mut face = Pings::default();
        let said = said(&mut face, "one\ntwo", &[1, 1]).await;
        assert_eq!(said, "[\"pong\",\"one\"]\n[\"pong\",\"two\"]\n");
        assert_eq!(face.lost, 1);
    }

    #[tokio::test]
    async fn driver_tells_when_nobody_serves() {
        let mut face = Pings::default();
        let said = said(&mut face, "one\n", &[]).await;
        assert_eq!(said, "\"unreachable\"\n");
    }

    #[tokio::test]
    async fn driver_needs_no_daemon_without_a_question() {
        let long = "x".repeat(MAX_CLIENT_LINE + 1);
        let said = said(&mut Pings::default(), &format!("{long}\n"), &[]).await;
        assert_eq!(said, "\"too long\"\n");
    }

    #[test]
    fn outbox_escapes_what_node_splits_at() {
        let mut out = Outbox::default();
        out.say(&"a\u{2028}b\u{2029}c");
        assert_eq!(out.take_client(), [r#""a\u2028b\u2029c""#]);
    }
}
