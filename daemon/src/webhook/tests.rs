//! Deliveries to receivers on this machine, with a clock that the test sets.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use agentd_core::Event;
use agentd_core::ids::Token;
use agentd_core::store::{Loaded, Query, Urgency, Write};
use agentd_protocol::webhook::{DeliveryRow, DeliveryState};
use tempfile::TempDir;

use super::*;
use crate::config::{EndpointChange, Secret};
use crate::store::{self, Answers, Liveness, Opener, Role, StoreCommand};

mod guard;
mod network;
mod turns;

/// Every wait of these tests ends here.
const PATIENCE: Duration = Duration::from_secs(20);
const NOW: i64 = EARLIEST_MS + 1_000_000_000;

/// What came in.
#[derive(Clone, Debug)]
struct Request {
    path: String,
    headers: BTreeMap<String, String>,
    body: String,
}

/// How a receiver answers to its requests, one after the other; the last one stands.
type Answer = Box<dyn Fn(&mut TcpStream, usize) + Send + Sync>;

struct Receiving {
    url: String,
    requests: Receiver<Request>,
}

impl Receiving {
    fn new(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, requests) = sync_channel(10_000);
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (seen, answer) = (seen.clone(), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream.unwrap(), &seen, number, &answer));
            }
        });
        Self { url, requests }
    }

    /// One that always answers the same.
    fn saying(answer: &'static str) -> Self {
        Self::new(Box::new(move |stream, _| {
            let _gone = stream.write_all(answer.as_bytes());
        }))
    }

    fn next(&self) -> Request {
        self.requests.recv_timeout(PATIENCE).expect("a request")
    }

    fn none(&self) {
        assert!(self.requests.try_recv().is_err(), "nothing more came");
    }
}

fn serve(mut stream: TcpStream, seen: &SyncSender<Request>, number: usize, answer: &Answer) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => break,
        };
    }
    let length = headers
        .get("content-length")
        .map(|text| text.parse().unwrap());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let request = Request {
        path,
        headers,
        body,
    };
    let _over = seen.send(request);
    answer(&mut stream, number);
}

/// A store and whoever delivers from it.
struct Post {
    dir: TempDir,
    store: Store,
    events: Mutex<Receiver<Event>>,
    writer: Option<std::thread::JoinHandle<()>>,
    due: Arc<Notify>,
    now: Arc<AtomicI64>,
    stop: CancellationToken,
    next: u64,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Post {
    fn new(look_up: LookUp) -> Self {
        let dir = TempDir::new().unwrap();
        let (answer, events) = sync_channel(10_000);
        let opener = Opener {
            instance: "a",
            role: Role::Daemon,
            boot: None,
            boot_ms: || 0,
            give_way: || (),
            answers: |_| true,
            keep: None,
        };
        let answer = move |some: Answers| {
            some.events
                .into_iter()
                .for_each(|event| answer.send(event).unwrap());
        };
        let alive = Box::new(|_: &str| Liveness::Dead);
        let opened = store::open(dir.path(), opener, alive, Box::new(answer)).unwrap();
        let mut post = Self {
            store: opened.store,
            events: Mutex::new(events),
            writer: Some(opened.writer),
            due: opened.to_deliver,
            // Nothing is begun before the clock is right.
            now: Arc::new(AtomicI64::new(0)),
            stop: CancellationToken::new(),
            next: 0,
            thread: None,
            dir,
        };
        post.start(look_up);
        post
    }

    fn start(&mut self, look_up: LookUp) {
        let config = self.config();
        let now = Arc::clone(&self.now);
        let clock: Clock = Arc::new(move || now.load(Ordering::SeqCst));
        let thread = std::thread::spawn(move || {
            let mut deliverer = Deliverer::new(config, clock, Arc::clone(&look_up));
            deliverer.poster = Arc::new(Poster::new(look_up).within(Duration::from_secs(2)));
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(deliverer.run());
        });
        self.thread = Some(thread);
    }

    fn config(&self) -> DeliveryConfig {
        DeliveryConfig {
            store: self.store.clone(),
            due: Arc::clone(&self.due),
            endpoints: self.endpoints(),
            stop: self.stop.clone(),
        }
    }

    fn endpoints(&self) -> PathBuf {
        Endpoints::file(&self.dir.path().join("config.toml"))
    }

    fn allow(&self, url: &str, allow_private: bool) -> Secret {
        let change = EndpointChange::Add { allow_private };
        Endpoints::change(&self.endpoints(), url, &change)
            .unwrap()
            .unwrap()
    }

    fn ask(&mut self, order: impl FnOnce(Token) -> StoreCommand) -> Event {
        self.next += 1;
        let token = Token(self.next);
        self.store.submit(order(token)).unwrap();
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.recv_timeout(PATIENCE).expect("an answer")
    }

    /// Deliveries to these URLs, in one commit, while the clock is wrong.
    fn commit(&mut self, urls: &[String]) {
        let write = |url: &String| Write::TestCallback { url: url.clone() };
        let writes = urls.iter().map(write).collect();
        self.ask(|token| StoreCommand::Commit {
            token,
            writes,
            urgency: Urgency::Waited,
        });
        // A try has one attempt; these stand for those of jobs.
        let conn = rusqlite::Connection::open(self.dir.path().join("agentd.db")).unwrap();
        conn.busy_timeout(PATIENCE).unwrap();
        let jobs = "UPDATE webhooks SET job = place, due_at = 0, created_at = ?1";
        conn.execute(jobs, [NOW]).unwrap();
    }

    /// The clock is set right.
    fn begin(&self) {
        self.now.store(NOW, Ordering::SeqCst);
        self.due.notify_one();
    }

    /// One delivery, at once.
    fn send(&mut self, url: &str) {
        self.commit(&[url.to_owned()]);
        self.begin();
    }

    /// Time passes.
    fn pass(&self, ms: i64) {
        self.now.fetch_add(ms, Ordering::SeqCst);
        self.due.notify_one();
    }

    fn rows(&mut self) -> Vec<DeliveryRow> {
        let query = Query::Webhooks {
            state: None,
            webhook: None,
            before: None,
            limit: 10_000,
        };
        match self.ask(|token| StoreCommand::Load { token, query }) {
            Event::Loaded {
                loaded: Loaded::Webhooks { deliveries, .. },
                ..
            } => deliveries
                .iter()
                .map(|row| serde_json::from_str(row).unwrap())
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the newest delivery is as it should be.
    fn until(&mut self, fact: &str, is: impl Fn(&DeliveryRow) -> bool) -> DeliveryRow {
        let begun = std::time::Instant::now();
        loop {
            let rows = self.rows();
            if let Some(row) = rows.first().filter(|row| is(row)) {
                return row.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "{fact}: {rows:#?}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        if let Some(writer) = self.writer.take() {
            self.store.clone().close(writer);
        }
    }
}

fn ok() -> &'static str {
    "HTTP/1.1 204 No Content\r\n\r\n"
}

fn verified(secret: &Secret, request: &Request) {
    let header = |name: &str| request.headers[name].as_str();
    let seconds = header("webhook-timestamp").parse().unwrap();
    let expected = sign::signatures(
        std::slice::from_ref(secret),
        header("webhook-id"),
        seconds,
        &request.body,
    );
    let given: Vec<&str> = header("webhook-signature").split(' ').collect();
    assert!(given.contains(&expected.as_str()), "{request:?}");
}

#[test]
fn a_delivery_is_signed_and_taken_once() {
    let receiver = Receiving::saying(ok());
    let mut post = Post::new(post::system());
    let secret = post.allow(&receiver.url, true);
    post.send(&format!("{}/hook?x=1", receiver.url));
    let request = receiver.next();
    verified(&secret, &request);
    assert_eq!(request.path, "/hook?x=1");
    assert_eq!(request.headers["content-type"], "application/json");
    assert_eq!(
        request.headers["webhook-timestamp"],
        (NOW / 1000).to_string()
    );
    let row = post.until("delivered", |row| row.state == DeliveryState::Delivered);
    assert_eq!(row.webhook, request.headers["webhook-id"]);
    assert_eq!((row.attempts, row.status, row.error), (1, Some(204), None));
    post.pass(48 * 60 * 60 * 1000);
    post.until("still", |row| row.attempts == 1);
    receiver.none();
}

#[test]
fn receiver_that_fails_gets_ten_attempts_and_none() {
    let receiver = Receiving::saying("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n");
    let mut post = Post::new(post::system());
    let secret = post.allow(&receiver.url, true);
    post.send(&receiver.url);
    let mut ids = std::collections::BTreeSet::new();
    let mut times = std::collections::BTreeSet::new();
    for attempt in 1..=10 {
        let request = receiver.next();
        verified(&secret, &request);
        ids.insert(request.headers["webhook-id"].clone());
        times.insert(request.headers["webhook-timestamp"].clone());
        post.until("noted", |row| row.attempts == attempt);
        receiver.none();
        post.pass(8 * 60 * 60 * 1000);
    }
    assert_eq!((ids.len(), times.len()), (1, 10), "{ids:?} {times:?}");
    let row = post.until("dead", |row| row.state == DeliveryState::Dead);
    assert_eq!((row.status, row.next_at), (Some(500), None));
    assert!(row.error.unwrap().contains("500"));
    post.pass(48 * 60 * 60 * 1000);
    post.until("still", |row| row.attempts == 10);
    receiver.none();
}

#[test]
fn failure_of_each_kind_is_tried_again() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let target = Receiving::saying(ok());
    let to = format!("HTTP/1.1 302 Found\r\nlocation: {}/\r\n\r\n", target.url);
    let redirect = Receiving::new(Box::new(move |stream, _| {
        let _gone = stream.write_all(to.as_bytes());
    }));
    let hangs = Receiving::new(Box::new(|stream, _| {
        let _held = stream.read(&mut [0]);
    }));
    let endless = Receiving::new(Box::new(|stream, _| {
        let _gone = stream.write_all(b"HTTP/1.1 500 Oh\r\n");
        while stream
            .write_all(b"x-more: and more and more and more\r\n")
            .is_ok()
        {}
    }));
    let garbage = Receiving::saying("I am no HTTP server\r\n\r\n");
    let resets = Receiving::new(Box::new(|_, _| {}));
    let tls = redirect.url.replace("http:", "https:");
    for (url, told) in [
        (nobody.as_str(), "refused"),
        (redirect.url.as_str(), "redirects are not followed"),
        (hangs.url.as_str(), "no answer within 2 s"),
        (endless.url.as_str(), ""),
        (garbage.url.as_str(), "HTTP"),
        (resets.url.as_str(), ""),
        (tls.as_str(), ""),
    ] {
        let mut post = Post::new(post::system());
        post.allow(url, true);
        post.send(&format!("{url}/?token=hunter2"));
        let row = post.until("failed", |row| row.attempts == 1);
        assert_eq!(row.state, DeliveryState::Pending, "{url}");
        let error = row.error.unwrap();
        assert!(error.contains(told), "{url}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    target.none();
}

#[test]
fn answer_that_is_long_is_not_read_through() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let receiver = Receiving::new(Box::new(move |stream, _| {
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n");
        while stream.write_all(&[0; 4096]).is_ok() {
            count.fetch_add(4096, Ordering::SeqCst);
        }
    }));
    let mut post = Post::new(post::system());
    post.allow(&receiver.url, true);
    post.send(&receiver.url);
    post.until("delivered", |row| row.state == DeliveryState::Delivered);
    // Buffers of both ends take some.
    assert!(sent.load(Ordering::SeqCst) < 64 << 20);
}

#[test]
fn an_answer_counts_whatever_its_body_does() {
    for (answer, state, status) in [
        (
            "200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
            DeliveryState::Delivered,
            200,
        ),
        (
            "410 Gone\r\ncontent-length: 5\r\n\r\n",
            DeliveryState::Dead,
            410,
        ),
    ] {
        let receiver = Receiving::new(Box::new(move |stream, _| {
            let _gone = write!(stream, "HTTP/1.1 {answer}");
            let _held = stream.read(&mut [0]);
        }));
        let mut post = Post::new(post::system());
        post.allow(&receiver.url, true);
        post.send(&receiver.url);
        let row = post.until("noted", |row| row.attempts == 1);
        assert_eq!((row.state, row.status), (state, Some(status)));
    }
}

#[test]
fn receiver_gone_ends_it_and_busy_delays_it() {
    let gone = Receiving::saying("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n");
    let mut post = Post::new(post::system());
    post.allow(&gone.url, true);
    post.send(&gone.url);
    let row = post.until("dead", |row| row.state == DeliveryState::Dead);
    assert_eq!((row.attempts, row.status), (1, Some(410)));

    let busy = "HTTP/1.1 429 Busy\r\nretry-after: 1000000000\r\ncontent-length: 0\r\n\r\n";
    let busy = Receiving::saying(busy);
    let mut post = Post::new(post::system());
    post.allow(&busy.url, true);
    post.send(&busy.url);
    busy.next();
    post.until("failed", |row| row.attempts == 1);
    post.pass(24 * 60 * 60 * 1000 - 1000);
    post.until("waits", |row| row.attempts == 1);
    busy.none();
    post.pass(6 * 60 * 60 * 1000);
    busy.next();
}

#[test]
fn delivery_of_the_last_end_precedes_leaving() {
    let receiver = Receiving::saying(ok());
    let mut post = Post::new(post::system());
    post.allow(&receiver.url, true);
    post.commit(std::slice::from_ref(&receiver.url));
    post.now.store(NOW, Ordering::SeqCst);
    post.stop.cancel();
    receiver.next();
    post.until("noted", |row| row.state == DeliveryState::Delivered);
}

#[test]
fn delivery_with_a_lost_answer_repeats_its_id() {
    let receiver = Receiving::new(Box::new(|stream, number| {
        if number > 0 {
            let _gone = stream.write_all(ok().as_bytes());
        }
    }));
    let mut post = Post::new(post::system());
    post.allow(&receiver.url, true);
    post.send(&receiver.url);
    let first = receiver.next();
    post.until("failed", |row| row.attempts == 1);
    post.pass(10_000);
    let second = receiver.next();
    assert_eq!(first.headers["webhook-id"], second.headers["webhook-id"]);
    assert_eq!(first.body, second.body);
    assert!(first.headers["webhook-signature"] != second.headers["webhook-signature"]);
    post.until("delivered", |row| row.state == DeliveryState::Delivered);
}

#[test]
fn secret_that_is_rotated_signs_beside_the_old() {
    let receiver = Receiving::saying(ok());
    let mut post = Post::new(post::system());
    let old = post.allow(&receiver.url, true);
    let rotate = |change| Endpoints::change(&post.endpoints(), &receiver.url, &change);
    let new = rotate(EndpointChange::Rotate).unwrap().unwrap();
    post.send(&receiver.url);
    let request = receiver.next();
    verified(&old, &request);
    verified(&new, &request);
}

#[test]
fn nothing_is_signed_by_a_wrong_clock() {
    let receiver = Receiving::saying(ok());
    let mut post = Post::new(post::system());
    post.allow(&receiver.url, true);
    post.commit(std::slice::from_ref(&receiver.url));
    post.due.notify_one();
    let remove = Endpoints::change(&post.endpoints(), &receiver.url, &EndpointChange::Remove);
    remove.unwrap();
    receiver.none();
    post.begin();
    let row = post.until("tried", |row| row.attempts == 1);
    assert!(row.error.unwrap().contains("no endpoint is configured"));
    receiver.none();
    post.allow(&receiver.url, true);
    post.pass(10_000);
    let seconds = receiver.next().headers["webhook-timestamp"].clone();
    assert!(seconds.parse::<i64>().unwrap() * 1000 >= NOW);
}
