//! Slow, silent, flooding, half-closing and hostile peers, over pipes in memory with paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentd_core::effect::Progress;
use agentd_core::event::{Event, Origin};
use agentd_core::ids::ConnId;
use agentd_protocol::limits::{MAX_LINE_IN, MAX_PARTIAL};
use agentd_protocol::line::{Line, Telling};
use agentd_protocol::{Id, Request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use super::{COMMANDS, ConnCommand, Known, PeerConfig, serve};

mod gaps;
mod turns;

const CONN: ConnId = ConnId(5);

/// A connection with both of its ends in the test's hands.
struct Both {
    client: DuplexStream,
    inbox: mpsc::Receiver<Event>,
    commands: mpsc::Sender<ConnCommand>,
    partial: Arc<AtomicUsize>,
    tracker: TaskTracker,
}

fn open(origin: Origin) -> Both {
    open_sharing(origin, Arc::default())
}

fn open_sharing(origin: Origin, partial: Arc<AtomicUsize>) -> Both {
    let (client, server) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(server);
    let (events, inbox) = mpsc::channel(16);
    let (commands, command_room) = mpsc::channel(COMMANDS);
    let tracker = TaskTracker::new();
    let cfg = PeerConfig {
        facts: Arc::new(|_: &Request| Known::Now(Box::default())),
        later: Arc::new(Some),
        partial: Arc::clone(&partial),
        routes: Arc::default(),
    };
    tracker.spawn(serve(
        CONN,
        origin,
        reader,
        writer,
        events,
        command_room,
        cfg,
    ));
    tracker.close();
    Both {
        client,
        inbox,
        commands,
        partial,
        tracker,
    }
}

fn pong(id: Option<Id>, progress: Progress) -> ConnCommand {
    ConnCommand::Line {
        body: Line::Pong.body(),
        id,
        seq: None,
        telling: Telling::First,
        progress,
    }
}

/// Answers pings at once, keeps those who say hello, finishes on shutdown, and never answers
/// anything else.
async fn owner(mut inbox: mpsc::Receiver<Event>, commands: mpsc::Sender<ConnCommand>) -> usize {
    let mut asked = 0;
    while let Some(event) = inbox.recv().await {
        let Event::Requested { id, request, .. } = event else {
            continue;
        };
        asked += 1;
        // A peer that is closing takes no more commands.
        let _closing = match request.unwrap().request {
            Request::Ping => commands.try_send(pong(id, Progress::Answered)),
            Request::Hello(_) => commands
                .try_send(ConnCommand::Keep)
                .and_then(|()| commands.try_send(pong(id, Progress::Answered))),
            Request::Shutdown => commands
                .try_send(ConnCommand::Finish)
                .and_then(|()| commands.try_send(pong(id, Progress::Answered))),
            Request::Subscribe(_) => commands.try_send(pong(id, Progress::Subscribed)),
            Request::Unsubscribe => commands.try_send(pong(id, Progress::Unsubscribed)),
            _ => Ok(()),
        };
    }
    asked
}

/// A connection whose owner answers by itself.
struct Answered {
    client: DuplexStream,
    asked: tokio::task::JoinHandle<usize>,
}

impl Both {
    fn answered(self) -> Answered {
        let asked = self.tracker.spawn(owner(self.inbox, self.commands));
        Answered {
            client: self.client,
            asked,
        }
    }

    async fn request(&mut self) -> Option<Id> {
        match self.inbox.recv().await.unwrap() {
            Event::Requested { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }
}

impl Answered {
    async fn say(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        loop {
            let byte = self.client.read_u8().await.unwrap();
            if byte == b'\n' {
                return String::from_utf8(line).unwrap();
            }
            line.push(byte);
        }
    }

    /// Everything until the connection closes, and how long that took.
    async fn rest(&mut self) -> (String, Duration) {
        let begun = Instant::now();
        let mut text = String::new();
        let hour = Duration::from_secs(3600);
        timeout(hour, self.client.read_to_string(&mut text))
            .await
            .expect("the connection closes within an hour")
            .unwrap();
        (text, begun.elapsed())
    }

    async fn stays_open(&mut self) {
        let hour = Duration::from_secs(3600);
        let read = timeout(hour, self.client.read_u8()).await;
        assert!(read.is_err(), "closed or said something: {read:?}");
    }
}

const PONG: &str = "{\"type\":\"pong\"}\n";

fn codes(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| match serde_json::from_str(line).unwrap() {
            Line::Error(error) => error.code.name().to_owned(),
            Line::Pong => "pong".to_owned(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn bare_connection_closes_100_ms_after_its_answers() {
    let mut peer = open(Origin::Socket).answered();
    peer.say("{\"type\":\"ping\"}\n").await;
    let (text, took) = peer.rest().await;
    assert_eq!(text, PONG);
    assert!((100..110).contains(&took.as_millis()), "{took:?}");
    drop(peer.client);
    assert_eq!(peer.asked.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn bare_connection_closes_when_its_input_has_ended() {
    let mut peer = open(Origin::Socket).answered();
    peer.say("{\"type\":\"ping\"}\n").await;
    peer.client.shutdown().await.unwrap();
    let (text, took) = peer.rest().await;
    assert_eq!((text.as_str(), took.as_millis()), (PONG, 0));
}

#[tokio::test(start_paused = true)]
async fn bare_connection_unused_closes_after_five_minutes() {
    for said in ["", "\n \n"] {
        let mut peer = open(Origin::Socket).answered();
        peer.say(said).await;
        let (text, took) = peer.rest().await;
        assert_eq!((text.as_str(), took.as_secs()), ("", 300), "{said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn connection_that_ends_unasked_closes_at_once() {
    for origin in [Origin::Socket, Origin::Stdio] {
        let mut peer = open(origin).answered();
        peer.client.shutdown().await.unwrap();
        assert_eq!(peer.rest().await, (String::new(), Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn bare_connection_waits_for_answers_without_a_limit() {
    for half_close in [false, true] {
        let mut both = open(Origin::Socket);
        both.client
            .write_all(b"{\"prompt\":\"hi\",\"id\":1}\n")
            .await
            .unwrap();
        if half_close {
            both.client.shutdown().await.unwrap();
        }
        let id = both.request().await;
        let (mut client, commands) = (both.client, both.commands.clone());
        let hour = Duration::from_secs(3600);
        assert!(timeout(hour, client.read_u8()).await.is_err());
        commands.try_send(pong(id.clone(), Progress::More)).unwrap();
        commands.try_send(pong(id, Progress::Answered)).unwrap();
        let (mut text, answered) = (String::new(), Instant::now());
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text.lines().count(), 2);
        let stays = match half_close {
            true => 0..10,
            // A script that has read the answer says its next line.
            false => 100..110,
        };
        let stayed = answered.elapsed().as_millis();
        assert!(stays.contains(&stayed), "{half_close}: {stayed}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_subscription_keeps_a_bare_connection() {
    let mut peer = open(Origin::Socket).answered();
    peer.say("{\"type\":\"subscribe\",\"id\":1}\n").await;
    peer.line().await;
    peer.stays_open().await;
    peer.say("{\"type\":\"ping\",\"id\":1}\n").await;
    assert!(
        peer.line().await.contains("invalid-request"),
        "its id is taken"
    );
    peer.say("{\"type\":\"unsubscribe\"}\n").await;
    assert_eq!(peer.rest().await.0, PONG);
}

#[tokio::test(start_paused = true)]
async fn hello_keeps_a_connection_until_it_leaves() {
    let mut peer = open(Origin::Socket).answered();
    peer.say("{\"type\":\"ping\"}\n{\"type\":\"hello\"}\n")
        .await;
    peer.line().await;
    peer.line().await;
    peer.stays_open().await;
    peer.say("{\"type\":\"ping\"}\n").await;
    peer.client.shutdown().await.unwrap();
    assert_eq!(peer.rest().await, (PONG.to_owned(), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn owner_hears_once_of_a_last_request() {
    let mut both = open(Origin::Socket);
    let lines = b"{\"type\":\"hello\"}\n{\"type\":\"drain\",\"id\":1}\n";
    both.client.write_all(lines).await.unwrap();
    let id = both.request().await;
    both.commands.try_send(ConnCommand::Keep).unwrap();
    both.commands
        .try_send(pong(id, Progress::Answered))
        .unwrap();
    let id = both.request().await;
    both.client.shutdown().await.unwrap();
    let heard = both.inbox.recv().await;
    assert!(
        matches!(heard, Some(Event::AskedLast { conn: CONN })),
        "{heard:?}"
    );
    both.commands
        .try_send(pong(id, Progress::Answered))
        .unwrap();
    let heard = both.inbox.recv().await;
    assert!(
        matches!(heard, Some(Event::Disconnected { conn: CONN })),
        "{heard:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_closes_when_everything_is_answered() {
    let mut peer = open(Origin::Socket).answered();
    peer.say("{\"type\":\"hello\"}\n{\"type\":\"shutdown\"}\n")
        .await;
    let (text, took) = peer.rest().await;
    assert_eq!((text, took.as_millis()), ([PONG, PONG].concat(), 0));
}

#[tokio::test(start_paused = true)]
async fn standard_input_is_served_to_its_end() {
    let mut peer = open(Origin::Stdio).answered();
    peer.say("{\"type\":\"ping\"}\n").await;
    peer.line().await;
    peer.stays_open().await;
    peer.say("{\"type\":\"ping\"}").await;
    peer.client.shutdown().await.unwrap();
    assert_eq!(peer.rest().await, (PONG.to_owned(), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn line_that_comes_while_closing_is_served() {
    let mut peer = open(Origin::Socket).answered();
    for _ in 0..20 {
        peer.say("{\"type\":\"ping\"}\n").await;
        assert_eq!(peer.line().await, PONG.trim());
        tokio::time::advance(Duration::from_millis(99)).await;
    }
    // The time is over before the connection could look; the line is there when it does.
    peer.say("{\"type\":\"ping\"}\n").await;
    assert_eq!(peer.line().await, PONG.trim());
    peer.say("{\"type\":\"ping\"}\n").await;
    tokio::time::advance(Duration::from_millis(500)).await;
    assert_eq!(peer.rest().await.0, PONG);
}

#[tokio::test(start_paused = true)]
async fn bytes_may_come_one_at_a_time() {
    let mut peer = open(Origin::Socket).answered();
    for byte in "{\"type\":\"ping\"}\r\n".bytes() {
        peer.client.write_all(&[byte]).await.unwrap();
        tokio::time::advance(Duration::from_millis(500)).await;
    }
    assert_eq!(peer.rest().await.0, PONG);
}

#[tokio::test(start_paused = true)]
async fn requests_by_the_thousand_are_all_answered() {
    let mut peer = open(Origin::Socket).answered();
    let mut text = String::new();
    for id in 0..1000 {
        text.push_str(&format!("{{\"type\":\"ping\",\"id\":{id}}}\n"));
    }
    peer.say(&text).await;
    assert_eq!(peer.rest().await.0.lines().count(), 1000);
}

#[tokio::test(start_paused = true)]
async fn line_that_is_bad_spoils_no_next_one() {
    for (line, code) in [
        (&b"\xff\xfe"[..], "bad-utf8"),
        (b"GET / HTTP/1.1", "bad-json"),
        (b"[1]", "not-an-object"),
        (b"{\"type\":\"nope\"}", "unknown-command"),
        (b"{\"type\":\"send\",\"text\":5}", "invalid-request"),
    ] {
        let mut peer = open(Origin::Socket).answered();
        let ping = b"\n{\"type\":\"ping\"}\n";
        peer.client.write_all(&[line, ping].concat()).await.unwrap();
        assert_eq!(codes(&peer.rest().await.0), [code, "pong"]);
        drop(peer.client);
        assert_eq!(
            peer.asked.await.unwrap(),
            1,
            "the owner saw the good one only"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_line_alone_counts_as_a_line() {
    let mut peer = open(Origin::Socket).answered();
    peer.say("GET / HTTP/1.1\n").await;
    let (text, took) = peer.rest().await;
    assert_eq!(codes(&text), ["bad-json"]);
    assert!((100..110).contains(&took.as_millis()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn id_that_is_unanswered_is_taken_until_then() {
    let mut both = open(Origin::Socket);
    let lines = "{\"type\":\"agents\",\"id\":7}\n{\"type\":\"ping\",\"id\":7}\n";
    both.client.write_all(lines.as_bytes()).await.unwrap();
    let id = both.request().await;
    let mut peer = both.answered();
    let refused = peer.line().await;
    assert!(
        refused.contains("\"id\":7") && refused.contains("invalid-request"),
        "{refused}"
    );
    drop(peer);

    let mut peer = open(Origin::Socket).answered();
    for _ in 0..2 {
        peer.say("{\"type\":\"ping\",\"id\":7}\n").await;
        assert_eq!(peer.line().await, "{\"type\":\"pong\",\"id\":7}");
    }
    assert_eq!(id, Some(Id::number(7)));
}

#[tokio::test(start_paused = true)]
async fn line_unterminated_is_served_if_an_object() {
    for (last, code) in [
        ("{\"type\":\"ping\"}", "pong"),
        ("{\"type\":\"pi", "truncated"),
        ("nonsense", "bad-json"),
        ("[1]", "not-an-object"),
    ] {
        let mut peer = open(Origin::Socket).answered();
        peer.say(last).await;
        peer.client.shutdown().await.unwrap();
        let (text, took) = peer.rest().await;
        assert_eq!(
            (codes(&text), took),
            (vec![code.to_owned()], Duration::ZERO)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn line_over_the_limit_by_one_is_refused() {
    for (more, code) in [(0, "pong"), (1, "frame-too-long")] {
        let mut peer = open(Origin::Socket).answered();
        let head = "{\"type\":\"ping\",\"x\":\"";
        let pad = MAX_LINE_IN - head.len() - 2 + more;
        let line = format!("{head}{}\"}}\n{{\"type\":\"ping\"}}\n", "x".repeat(pad));
        peer.say(&line).await;
        assert_eq!(codes(&peer.rest().await.0), [code, "pong"]);
    }
}

#[tokio::test(start_paused = true)]
async fn unfinished_lines_of_all_connections_share_one_limit() {
    let shared = Arc::new(AtomicUsize::new(MAX_PARTIAL - 10));
    let both = open_sharing(Origin::Socket, Arc::clone(&shared));
    let partial = Arc::clone(&both.partial);
    let mut peer = both.answered();
    peer.say("{\"type\":").await;
    peer.say("\"ping\",\"id\":9,\"x\":0").await;
    let refused = peer.line().await;
    assert_eq!(codes(&refused), ["queue-full"]);
    assert!(refused.contains("\"id\":9"), "{refused}");
    peer.say("}\n{\"type\":\"ping\"}\n").await;
    assert_eq!(
        peer.rest().await.0,
        PONG,
        "the rest of the line was skipped"
    );
    assert_eq!(partial.load(Ordering::Relaxed), MAX_PARTIAL - 10);
}

#[tokio::test(start_paused = true)]
async fn line_unended_after_30_s_closes_its_connection() {
    let mut peer = open(Origin::Socket).answered();
    peer.say("{\"type\":\"hello\"}\n{\"type\"").await;
    peer.line().await;
    let (text, took) = peer.rest().await;
    assert_eq!(
        (codes(&text), took.as_secs()),
        (vec!["truncated".to_owned()], 30)
    );
}

#[tokio::test(start_paused = true)]
async fn peer_that_never_reads_blocks_only_itself() {
    let mut both = open(Origin::Socket);
    both.client
        .write_all(b"{\"prompt\":\"hi\"}\n")
        .await
        .unwrap();
    let id = both.request().await;
    let (mut sent, mut refused) = (0, 0);
    while refused < 100 {
        match both.commands.try_send(pong(id.clone(), Progress::More)) {
            Ok(()) => sent += 1,
            Err(_) => refused += 1,
        }
        tokio::task::yield_now().await;
    }
    // What the buffer and the pipe hold; all else waits in the channel, whose room the owner sees.
    assert!(
        sent * PONG.len() <= (256 + 65) * 1024 + COMMANDS * PONG.len(),
        "{sent}"
    );
    drop(both.client);
    both.tracker.wait().await;
}

#[tokio::test(start_paused = true)]
async fn reading_stops_while_too_much_is_unanswered() {
    let mut both = open(Origin::Socket);
    let (mut reader, mut writer) = tokio::io::split(both.client);
    both.tracker.spawn(async move {
        // The connection may close before everything is taken.
        let _closed = writer
            .write_all(&b"{\"type\":\"ping\"}\n".repeat(5000))
            .await;
    });
    let mut asked = 0;
    while let Ok(Some(_)) = timeout(Duration::from_secs(1), both.inbox.recv()).await {
        asked += 1;
    }
    assert_eq!(asked, super::UNANSWERED + 1);
    both.commands
        .try_send(pong(None, Progress::Answered))
        .unwrap();
    assert!(both.inbox.recv().await.is_some());
    assert_eq!(reader.read_u8().await.unwrap(), b'{');
}

#[tokio::test(start_paused = true)]
async fn mark_is_reported_when_all_before_is_written() {
    let mut both = open(Origin::Socket);
    both.client
        .write_all(b"{\"prompt\":\"hi\"}\n")
        .await
        .unwrap();
    both.request().await;
    for _ in 0..5000 {
        both.commands.try_send(pong(None, Progress::More)).unwrap();
    }
    both.commands.try_send(ConnCommand::Mark).unwrap();
    let wait = Duration::from_secs(5);
    assert!(
        timeout(wait, both.inbox.recv()).await.is_err(),
        "the pipe is full"
    );
    let mut taken = vec![0; 5000 * PONG.len()];
    both.client.read_exact(&mut taken).await.unwrap();
    let event = timeout(wait, both.inbox.recv()).await.unwrap().unwrap();
    assert_eq!(event, Event::CaughtUp { conn: CONN });
}

#[tokio::test(start_paused = true)]
async fn connection_that_goes_has_all_requests_served() {
    let mut both = open(Origin::Socket);
    let lines = b"{\"type\":\"ping\"}\n".repeat(100);
    both.client.write_all(&lines).await.unwrap();
    drop(both.client);
    let mut asked = 0;
    loop {
        match both.inbox.recv().await.unwrap() {
            Event::Requested { id, .. } => {
                asked += 1;
                // Its answer can't be written any more.
                let _gone = both.commands.try_send(pong(id, Progress::Answered));
            }
            Event::Disconnected { conn } => break assert_eq!(conn, CONN),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(asked, 100);
}

#[tokio::test(start_paused = true)]
async fn close_writes_what_was_said_and_stops() {
    let mut both = open(Origin::Socket);
    both.client
        .write_all(b"{\"prompt\":\"hi\"}\n")
        .await
        .unwrap();
    both.request().await;
    both.commands.try_send(pong(None, Progress::More)).unwrap();
    both.commands.try_send(ConnCommand::Close).unwrap();
    let mut text = String::new();
    both.client.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, PONG);
    // Not read any more, so the connection is over after its linger time at the latest.
    let event = timeout(Duration::from_secs(1), both.inbox.recv()).await;
    assert_eq!(event.unwrap(), Some(Event::Disconnected { conn: CONN }));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_small() {
    let (_client, server) = tokio::io::duplex(64);
    let (reader, writer) = tokio::io::split(server);
    let (events, _inbox) = mpsc::channel(16);
    let (_commands, commands) = mpsc::channel(COMMANDS);
    let cfg = PeerConfig {
        facts: Arc::new(|_: &Request| Known::Now(Box::default())),
        later: Arc::new(Some),
        partial: Arc::default(),
        routes: Arc::default(),
    };
    let future = serve(CONN, Origin::Socket, reader, writer, events, commands, cfg);
    let size = size_of_val(&future);
    // The channel's first block holds 32 commands.
    let block = 32 * size_of::<ConnCommand>();
    assert!(size + block < 6 * 1024, "{size} + {block}");
}
