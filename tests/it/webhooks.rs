//! Webhooks end to end: a real daemon, a receiver on this machine, and a `kill -9` in between.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{DEADLINE, Daemon, Place, kill, needs, repeats, wait_for};

/// What came in.
#[derive(Clone, Debug)]
pub struct Told {
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Told {
    pub fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// What a receiver does with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Says(&'static str),
    /// Closes without an answer.
    Closes,
    /// Holds the connection open until it is told another answer.
    Holds,
}

/// A receiver on a port of its own. It answers what it is told to.
pub struct Hook {
    pub port: u16,
    pub told: Receiver<Told>,
    /// One for each request that was dealt with.
    done: Receiver<()>,
    answer: Arc<(Mutex<Answer>, Condvar)>,
}

pub const TAKEN: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const FAILS: &str = "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n";

impl Hook {
    pub fn new() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub fn on(listener: TcpListener) -> Self {
        let port = listener.local_addr().unwrap().port();
        let (seen, told) = sync_channel(10_000);
        let (ended, done) = sync_channel(10_000);
        let answer = Arc::new((Mutex::new(Answer::Says(TAKEN)), Condvar::new()));
        let answers = Arc::clone(&answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, ended) = (seen.clone(), ended.clone());
                let answers = Arc::clone(&answers);
                std::thread::spawn(move || {
                    let _half = receive(stream, &seen, &answers);
                    let _over = ended.send(());
                });
            }
        });
        Self {
            port,
            told,
            done,
            answer,
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    fn answers(&self, answer: Answer) {
        *self.answer.0.lock().unwrap() = answer;
        self.answer.1.notify_all();
    }

    pub fn next(&self) -> Told {
        self.told.recv_timeout(DEADLINE).expect("a delivery")
    }

    pub fn quiet(&self) {
        assert!(self.told.try_recv().is_err(), "nothing more came");
    }
}

fn receive(
    mut stream: TcpStream,
    seen: &SyncSender<Told>,
    (answer, changed): &(Mutex<Answer>, Condvar),
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut headers = BTreeMap::new();
    reader.read_line(&mut String::new()).ok()?;
    loop {
        let mut line = String::new();
        // A daemon that is killed leaves half a request.
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).ok()?;
    let _over = seen.send(Told { headers, body });
    let held = changed.wait_while(answer.lock().unwrap(), |answer| *answer == Answer::Holds);
    match *held.unwrap() {
        Answer::Says(text) => stream.write_all(text.as_bytes()).ok(),
        Answer::Closes | Answer::Holds => None,
    }
}

/// Lets callbacks go there; gives the secret.
pub fn add(place: &Place, url: &str) -> String {
    let added = place.agentctl(&["webhook", "add", url, "--allow-private", "--json"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    let added: Value = serde_json::from_str(&added.stdout).unwrap();
    added["secret"].as_str().unwrap().to_owned()
}

pub fn list(place: &Place) -> Value {
    let listed = place.agentctl(&["webhook", "list", "--json"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    serde_json::from_str(&listed.stdout).unwrap()
}

/// Waits until the newest delivery is as it should be.
pub fn until(place: &Place, fact: &str, is: impl Fn(&Value) -> bool) -> Value {
    wait_for(fact, || {
        let row = list(place)["deliveries"][0].clone();
        is(&row).then_some(row)
    })
}

#[test]
fn a_receiver_hears_of_every_kind_of_end() {
    let hook = Hook::new();
    let daemon = Daemon::start();
    let secret = add(&daemon.place, &hook.url());
    assert!(secret.starts_with("whsec_"), "{secret}");
    let file = daemon.path("webhooks.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let send = |words: &[&str]| {
        let url = hook.url();
        let sent = [&["send", "--json", "--callback", url.as_str()], words].concat();
        daemon.agentctl(&sent)
    };
    let ended = |state: &str| {
        let told = hook.next().json();
        assert_eq!(told["type"], "job.ended");
        assert_eq!(told["data"]["state"], state, "{told:#}");
        told["data"].clone()
    };
    send(&["hello", "--session", "main", "--idempotency-key", "k1"]);
    let data = ended("completed");
    assert_eq!(
        (&data["stop"], &data["session"]),
        (&json!("end_turn"), &json!("main"))
    );
    assert_eq!(data["idempotency_key"], "k1");
    let job = data["job"].as_str().unwrap();
    let result = daemon
        .ask(&format!(r#"{{"type":"collect","jobs":["{job}"]}}"#))
        .remove(0);
    assert_eq!(result["results"][0]["seq"], data["seq"]);
    assert_eq!(result["results"][0]["text"], "hello");
    // The same key is the same job, and tells nobody again.
    send(&["hello", "--session", "main", "--idempotency-key", "k1"]);
    send(&["[[error=rate-limit]]"]);
    assert_eq!(ended("failed")["code"], "rate-limit");
    send(&["a [[sleep 600000]]", "--timeout", "0.2"]);
    assert_eq!(ended("failed")["code"], "timeout");
    send(&["--agent", "chaos", "chaos:exit 3"]);
    ended("interrupted");
    let mut client = daemon.connect();
    let callback = format!(r#""callback":{{"url":"{}"}}"#, hook.url());
    client.send(&format!(
        r#"{{"type":"send","id":1,"text":"a [[sleep 600000]]",{callback}}}"#
    ));
    client.until("message_delta");
    client.send(r#"{"type":"abort","id":2}"#);
    assert_eq!(ended("cancelled")["stop"], "cancelled");
    client.send(&format!(
        r#"{{"type":"dispatch","id":3,"jobs":[{{"text":"one",{callback}}},{{"text":"two"}}]}}"#
    ));
    ended("completed");
    until(&daemon.place, "all are delivered", |row| {
        row["state"] == "delivered"
    });
    hook.quiet();
    assert_eq!(
        list(&daemon.place)["deliveries"].as_array().unwrap().len(),
        6
    );
}

#[test]
fn webhook_receiver_that_was_down_is_told_later() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let address = listener.local_addr().unwrap();
    drop(listener);
    let daemon = Daemon::start();
    add(&daemon.place, &url);
    daemon.agentctl(&["send", "hello", "--callback", &url]);
    let failed = until(&daemon.place, "an attempt failed", |row| {
        row["attempts"] == 1
    });
    assert_eq!(failed["state"], "pending");
    assert!(failed["next_at"].is_string(), "{failed:#}");
    let shown = daemon.agentctl(&["webhook", "list"]);
    assert!(shown.stdout.contains("refused"), "{shown:?}");
    // The second attempt comes by itself, after some seconds.
    let hook = Hook::on(TcpListener::bind(address).unwrap());
    let told = hook.next();
    assert_eq!(told.id(), failed["webhook"]);
    let row = until(&daemon.place, "delivered", |row| {
        row["state"] == "delivered"
    });
    assert_eq!(row["attempts"], 2);
}

#[test]
fn webhook_that_failed_is_replayed_under_its_id() {
    let hook = Hook::new();
    let daemon = Daemon::start();
    add(&daemon.place, &hook.url());
    hook.answers(Answer::Says(
        "HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n",
    ));
    daemon.agentctl(&["send", "hello", "--callback", &hook.url()]);
    let first = hook.next();
    let dead = until(&daemon.place, "given up", |row| row["state"] == "dead");
    assert_eq!(
        (&dead["attempts"], &dead["status"]),
        (&json!(1), &json!(410))
    );
    assert!(
        daemon.log().contains("a webhook is given up"),
        "{}",
        daemon.log()
    );
    let doctor = daemon.agentctl(&["doctor"]);
    assert!(
        doctor.stdout.contains("1 webhook was given up"),
        "{doctor:?}"
    );

    hook.answers(Answer::Closes);
    let replay = daemon.agentctl(&["webhook", "replay", first.id()]);
    assert_eq!(replay.code, Some(0), "{replay:?}");
    let lost = hook.next();
    assert_eq!((lost.id(), &lost.body), (first.id(), &first.body));
    until(&daemon.place, "the answer was lost", |row| {
        row["state"] == "pending" && row["attempts"] == 1
    });
    hook.answers(Answer::Says(TAKEN));
    daemon.agentctl(&["webhook", "replay", first.id()]);
    assert_eq!(hook.next().id(), first.id());
    until(&daemon.place, "taken", |row| row["state"] == "delivered");
    let nobody = daemon.agentctl(&["webhook", "replay", "evt_nobody"]);
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    assert!(
        nobody.stderr.contains("there is no delivery `evt_nobody`"),
        "{nobody:?}"
    );
}

#[test]
fn a_try_says_what_came_of_it() {
    let hook = Hook::new();
    let daemon = Daemon::start();
    let url = hook.url();
    let refused = daemon.agentctl(&["webhook", "test", &url]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("agentctl webhook add"),
        "{refused:?}"
    );
    let none = daemon.agentctl(&["webhook", "list"]);
    assert!(
        none.stdout.contains("no endpoint is configured"),
        "{none:?}"
    );
    add(&daemon.place, &url);
    let taken = daemon.agentctl(&["webhook", "test", &url]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    assert!(taken.stdout.contains("answered 204"), "{taken:?}");
    assert_eq!(hook.next().json()["type"], "webhook.test");
    hook.answers(Answer::Says(FAILS));
    let failed = daemon.agentctl(&["webhook", "test", &url]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("it answered 500"), "{failed:?}");
    hook.next();
    // It was only a try.
    let row = list(&daemon.place)["deliveries"][0].clone();
    assert_eq!((&row["state"], row.get("job")), (&json!("dead"), None));
    let removed = daemon.agentctl(&["webhook", "remove", &url]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert_eq!(daemon.agentctl(&["webhook", "test", &url]).code, Some(2));
}

#[test]
fn nobody_is_called_where_nobody_may_be() {
    let hook = Hook::new();
    let daemon = Daemon::start();
    let refused = |url: &str, code: &str| {
        let line = json!({"type": "send", "text": "x", "callback": {"url": url}});
        let answer = daemon.ask(&line.to_string()).remove(0);
        assert_eq!(
            (&answer["type"], &answer["code"]),
            (&json!("error"), &json!(code)),
            "{url}"
        );
        assert!(answer.get("job").is_none());
    };
    refused("https://ci.example/", "unknown-webhook");
    refused(&hook.url(), "unknown-webhook");
    refused("file:///etc/passwd", "invalid-request");
    refused("unix:/run/x.sock", "invalid-request");
    refused("https://user:pw@ci.example/", "invalid-request");
    // This machine needs leave, however it is spelled.
    for url in [
        "http://127.0.0.1:1/",
        "http://2130706433:1/",
        "http://[::1]:1/",
    ] {
        let added = daemon.agentctl(&["webhook", "add", url]);
        assert_eq!(added.code, Some(2), "{added:?}");
        assert!(added.stderr.contains("--allow-private"), "{added:?}");
    }
    // And with it, some addresses are still nobody's.
    let meta = "http://169.254.169.254/";
    let added = daemon.agentctl(&["webhook", "add", meta, "--allow-private"]);
    assert_eq!(added.code, Some(2), "{added:?}");
    assert!(added.stderr.contains("nothing is ever"), "{added:?}");
    refused(meta, "unknown-webhook");
    // A name that leads to this machine is found out when it is looked up.
    let named = format!("http://localhost:{}/hook", hook.port);
    let added = daemon.agentctl(&["webhook", "add", &named]);
    assert_eq!(added.code, Some(0), "{added:?}");
    daemon.agentctl(&["send", "hello", "--callback", &named]);
    let row = until(&daemon.place, "refused", |row| row["attempts"] == 1);
    let error = row["error"].as_str().unwrap();
    assert!(error.contains("private network"), "{row:#}");
    hook.quiet();
    // An agent's own request comes from inside its worker; a run without the daemon delivers nothing.
    let place = daemon.kill();
    let alone = place.agentctl(&["send", "hello", "--callback", &named]);
    assert_eq!(alone.code, Some(69), "{alone:?}");
    assert!(alone.stderr.contains("can't call back"), "{alone:?}");
}

#[test]
fn webhook_secrets_are_in_no_log_or_store() {
    let hook = Hook::new();
    let place = Place::new(&Daemon::config(""));
    let secret = add(&place, &hook.url());
    let daemon = place.start_with(&[("AGENTD_LOG", "trace")]);
    hook.answers(Answer::Says(FAILS));
    let url = format!("{}?token=sk-CANARY-7", hook.url());
    daemon.agentctl(&["send", "hello", "--callback", &url]);
    hook.next();
    until(&daemon.place, "noted", |row| row["attempts"] == 1);
    let key = secret.strip_prefix("whsec_").unwrap();
    let log = daemon.log();
    assert!(log.contains("not delivered"), "{log}");
    assert!(!log.contains("sk-CANARY-7") && !log.contains(key), "{log}");
    let place = daemon.kill();
    for file in ["agentd.db", "agentd.db-wal"] {
        let bytes = std::fs::read(place.path("state").join(file)).unwrap_or_default();
        let found = bytes.windows(key.len()).any(|part| part == key.as_bytes());
        assert!(!found, "{file}");
    }
}

#[test]
fn webhook_file_open_to_others_is_told() {
    let hook = Hook::new();
    let daemon = Daemon::start();
    add(&daemon.place, &hook.url());
    let file = daemon.path("webhooks.json");
    let mode = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&file, mode).unwrap();
    };
    hook.answers(Answer::Says(FAILS));
    daemon.agentctl(&["send", "hello", "--callback", &hook.url()]);
    let first = hook.next();
    mode(0o644);
    let refused = daemon.agentctl(&["send", "hello", "--callback", &hook.url()]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("0600"), "{refused:?}");
    let listed = daemon.agentctl(&["webhook", "list"]);
    assert_eq!(listed.code, Some(2), "{listed:?}");
    mode(0o600);
    hook.answers(Answer::Says(TAKEN));
    daemon.agentctl(&["webhook", "replay", first.id()]);
    assert_eq!(hook.next().id(), first.id());
}

#[test]
fn webhook_unnoted_answer_means_one_more_delivery() {
    let hook = Hook::new();
    let daemon = Daemon::start();
    add(&daemon.place, &hook.url());
    hook.answers(Answer::Holds);
    daemon.agentctl(&["send", "one", "--callback", &hook.url()]);
    let first = hook.next();
    // It is answered while the daemon can't note it.
    kill(daemon.pid(), Signal::SIGSTOP);
    hook.answers(Answer::Says(TAKEN));
    hook.done.recv_timeout(DEADLINE).expect("the answer is out");
    let daemon = daemon.kill().start();
    let second = hook.next();
    assert_eq!((second.id(), &second.body), (first.id(), &first.body));
    let row = until(&daemon.place, "noted", |row| row["state"] == "delivered");
    assert_eq!(row["attempts"], 1);
    // The next one hears of what ended since, and of nothing else.
    let daemon = daemon.kill().start();
    daemon.agentctl(&["send", "two", "--callback", &hook.url()]);
    assert!(hook.next().id() != first.id());
    until(&daemon.place, "noted", |row| row["state"] == "delivered");
    hook.quiet();
}

#[test]
fn every_end_is_told_through_kills_and_signed() {
    let kills = repeats("AGENTD_TEST_KILLS", 20);
    let hook = Hook::new();
    let mut daemon = Daemon::start();
    let secret = add(&daemon.place, &hook.url());
    let callback = json!({"url": hook.url()});
    let mut jobs = BTreeSet::new();
    let mut told: Vec<Told> = Vec::new();
    for round in 0..kills {
        // One that has ended, and one that the kill ends. In every third round the receiver gets
        // the first one before the kill, and the daemon never hears of it.
        hook.answers(if round % 3 == 0 {
            Answer::Holds
        } else {
            Answer::Says(TAKEN)
        });
        let mut client = daemon.connect();
        let runs =
            json!({"type": "send", "id": 1, "text": "a [[sleep 600000]]", "callback": callback});
        client.send(&runs.to_string());
        let begun = client.until("message_delta");
        let ends = json!({"type": "send", "id": 2, "text": "x", "callback": callback});
        client.send(&ends.to_string());
        let ended = client.last();
        for line in begun.iter().take(1).chain([&ended]) {
            jobs.insert(line["job"].as_str().unwrap().to_owned());
        }
        if round % 3 == 0 {
            told.push(hook.next());
        }
        daemon = daemon.kill().start();
    }
    hook.answers(Answer::Says(TAKEN));
    wait_for("all are delivered", || {
        // What waits for its next attempt needn't be waited for.
        let listed = daemon
            .ask(r#"{"type":"webhooks","state":"pending","limit":500}"#)
            .remove(0);
        let pending = listed["deliveries"].as_array().unwrap().clone();
        for row in &pending {
            daemon.ask(&json!({"type": "webhook.replay", "webhook": row["webhook"]}).to_string());
        }
        let running = daemon.status()["rpc"]["in_flight"] != 0;
        (pending.is_empty() && !running).then_some(())
    });
    told.extend(hook.told.try_iter());
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in &told {
        let job = one.json()["data"]["job"].as_str().unwrap().to_owned();
        ids.entry(job).or_default().insert(one.id().to_owned());
    }
    assert_eq!(
        ids.keys().cloned().collect::<BTreeSet<_>>(),
        jobs,
        "each at least once"
    );
    assert_eq!(jobs.len(), 2 * kills);
    let different: BTreeSet<_> = ids.values().flatten().collect();
    assert!(
        ids.values().all(|ids| ids.len() == 1),
        "one id for each: {ids:?}"
    );
    assert_eq!(different.len(), jobs.len(), "and no two the same");
    println!(
        "{kills} kills, {} ends, {} deliveries, {} ids",
        jobs.len(),
        told.len(),
        different.len()
    );
    verify(&secret, &told);
    verify_as_receivers_do(&secret, &told);
}

/// By the definition of HMAC, with nothing of what signs.
fn verify(secret: &str, told: &[Told]) {
    let key = secret.strip_prefix("whsec_").unwrap();
    let mut key = STANDARD.decode(key).unwrap();
    assert!(key.len() <= 64, "a longer one is hashed first");
    key.resize(64, 0);
    let pad = |byte: u8| key.iter().map(move |part| part ^ byte);
    for one in told {
        let header = |name: &str| one.headers[name].as_str();
        let inner: Vec<u8> = pad(0x36)
            .chain(format!("{}.{}.", one.id(), header("webhook-timestamp")).into_bytes())
            .chain(one.body.bytes())
            .collect();
        let outer: Vec<u8> = pad(0x5c).chain(Sha256::digest(inner)).collect();
        let expected = format!("v1,{}", STANDARD.encode(Sha256::digest(outer)));
        assert_eq!(header("webhook-signature"), expected, "{one:?}");
    }
}

/// The reference receiver's own check, over all that came.
fn verify_as_receivers_do(secret: &str, told: &[Told]) {
    if needs("python3").is_none() {
        return;
    }
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/client/python/examples");
    let check = "import json, sys; import webhook_receiver as receiver
secret = receiver.key(sys.stdin.readline().strip())
for line in sys.stdin:
    headers, body = json.loads(line)
    receiver.verify([secret], headers, body.encode(), now=int(headers['webhook-timestamp']))
    try:
        receiver.verify([secret], headers, body.encode() + b' ', now=int(headers['webhook-timestamp']))
    except receiver.RefusedError:
        continue
    sys.exit('a body that was changed was taken')
";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", check]).env("PYTHONPATH", example);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    let lines = told
        .iter()
        .map(|one| json!([one.headers, one.body]).to_string());
    let input: Vec<String> = std::iter::once(secret.to_owned()).chain(lines).collect();
    let verified = crate::support::finish(command, input.join("\n").as_bytes());
    assert_eq!(verified.code, Some(0), "{verified:?}");
}
