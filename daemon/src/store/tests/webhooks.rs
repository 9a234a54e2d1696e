//! Deliveries in the file: written with the end of their job, in their order, marked, forgotten.

use super::*;
use agentd_protocol::webhook::{DeliveryRow, DeliveryState};
use rusqlite::params;

const URL: &str = "https://ci.example/hook";
const MOST_SAID: usize = 64 * 1024;
const DAY: i64 = 24 * 60 * 60 * 1000;

fn callback(job: JobId) -> Write {
    Write::Callback {
        job,
        url: URL.to_owned(),
        result: false,
    }
}

#[test]
fn webhooks_have_the_text_where_asked_for() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let long = "ö".repeat(MOST_SAID);
    for (text, result) in [("said", false), ("said", true), (&*long, true)] {
        let (job, ..) = store.accept(new(None));
        let line = format!(r#"{{"type":"message_end","stop":"end_turn","text":"{text}"}}"#);
        let finish = Write::Finish {
            job,
            end: End::Completed,
            line: Body::stored(&line),
            texts: None,
        };
        let url = URL.to_owned();
        store.commit(vec![finish, Write::Callback { job, url, result }]);
    }
    let due = store.due(&[], now() + DAY);
    let data = |at: usize| -> serde_json::Value {
        let body: serde_json::Value = serde_json::from_str(&due[at].body).unwrap();
        body["data"].clone()
    };
    assert_eq!(data(0).get("text"), None, "nobody asked for it");
    assert_eq!(
        (&data(1)["text"], &data(1)["truncated"]),
        (&"said".into(), &false.into())
    );
    assert_eq!(data(2)["truncated"], true);
    assert_eq!(data(2)["text"].as_str().unwrap().len(), MOST_SAID);
}

fn now() -> i64 {
    agentd_base::clock::wall_ms()
}

fn attempt(due: &Delivery, outcome: AttemptOutcome) -> AttemptRecord {
    AttemptRecord {
        id: due.id.clone(),
        attempts: due.attempts,
        at_ms: now(),
        outcome,
        status: Some(500),
        error: Some("it answered 500".to_owned()),
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.unwrap() })
}

impl Bench {
    fn due(&self, but: &[&str], now_ms: i64) -> Vec<Delivery> {
        let wanted = Wanted {
            now_ms,
            but: but.iter().map(|one| (*one).to_owned()).collect(),
            each: 100,
            set_back: false,
        };
        wait(self.opened.store.due(wanted)).unwrap().due
    }

    fn record(&self, attempts: Vec<AttemptRecord>) {
        wait(self.opened.store.record_attempts(attempts)).unwrap();
    }

    fn rows(&mut self, state: Option<DeliveryState>) -> Vec<DeliveryRow> {
        let query = Query::Webhooks {
            state,
            webhook: None,
            before: None,
            limit: 100,
        };
        let Loaded::Webhooks { deliveries, .. } = self.load(query) else {
            panic!("deliveries")
        };
        let rows = deliveries.iter();
        rows.map(|row| serde_json::from_str(row).unwrap()).collect()
    }

    fn ended(&mut self, key: &str, end: End) -> JobId {
        let write = NewJob {
            key: Some(key.to_owned()),
            ..started("main")
        };
        let (job, ..) = self.accept(write);
        self.commit(vec![finish(job, end), callback(job)]);
        job
    }
}

#[test]
fn an_end_and_its_delivery_are_one_commit() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let job = store.ended("k1", End::Interrupted);
    wait(store.opened.to_deliver.notified());
    let [due] = &store.due(&[], now())[..] else {
        panic!("one")
    };
    assert_eq!((due.url.as_str(), due.host.as_str()), (URL, "ci.example"));
    assert!(due.id.starts_with("evt_") && due.id.len() == 36, "{due:?}");
    let body: serde_json::Value = serde_json::from_str(&due.body).unwrap();
    assert_eq!(body["type"], "job.ended");
    let data = &body["data"];
    assert_eq!(data["job"], job.to_string());
    assert_eq!(data["session"], "main");
    assert_eq!(data["state"], "interrupted");
    assert_eq!(data["idempotency_key"], "k1");
    let JobState::Finished { seq, line } = store.job(job).state else {
        panic!("ended")
    };
    assert_eq!(data["seq"], seq);
    assert_eq!(data["final_bytes"], line.as_json().len());
    assert!(
        !due.body.contains("whole"),
        "nothing that was said: {}",
        due.body
    );
    let (rows, _) = store.listed(
        Query::Export {
            after: 0,
            session: None,
        },
        "rows",
    );
    let exported = rows
        .iter()
        .filter(|row| row["webhook"] == due.id.as_str())
        .count();
    assert_eq!(exported, 1, "{rows:#?}");
    // To end it again tells nobody again.
    store.commit(vec![finish(job, End::Failed), callback(job)]);
    assert_eq!(store.rows(None).len(), 1);
}

#[test]
fn webhooks_of_a_failed_commit_do_not_exist() {
    let dir = TempDir::new().unwrap();
    let (switch, fault) = switched();
    let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
    let (job, ..) = store.accept(started("main"));
    *switch.lock().unwrap() = Some((Moment::BeforeCommit, ffi::SQLITE_FULL));
    let token = store.command(
        Urgency::Waited,
        vec![finish(job, End::Completed), callback(job)],
    );
    assert!(matches!(
        store.event(),
        Event::StoreHealth { trouble: Some(_) }
    ));
    let wanted = Wanted {
        now_ms: now(),
        each: 1,
        ..Wanted::default()
    };
    assert!(wait(store.opened.store.due(wanted)).is_err(), "it waits");
    *switch.lock().unwrap() = None;
    let told = loop {
        match store.event() {
            Event::Stored { token, stored } => break (token, stored),
            Event::StoreHealth { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(
        told.0 == token && matches!(told.1, Stored::Committed(_)),
        "{told:?}"
    );
    assert_eq!(store.due(&[], now()).len(), 1);
}

#[test]
fn what_is_due_waits_for_its_time() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.ended("k1", End::Completed);
    store.ended("k2", End::Completed);
    let now = now();
    let all = store.due(&[], now);
    assert_eq!(all.len(), 2);
    let first = all[0].id.as_str();
    assert_eq!(store.due(&[first], now).len(), 1, "one is under way");
    store.record(vec![attempt(&all[0], AttemptOutcome::Again(now + 5000))]);
    assert_eq!(store.due(&[], now).len(), 1);
    let later = store.due(&[], now + 5000);
    assert_eq!((later.len(), later[1].attempts), (2, 1));
    let wanted = Wanted {
        now_ms: now,
        each: 1,
        ..Wanted::default()
    };
    let waiting = wait(store.opened.store.due(wanted)).unwrap();
    assert_eq!((waiting.due.len(), waiting.next_ms), (1, Some(now + 5000)));
}

#[test]
fn a_clock_that_was_ahead_delays_nothing() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.ended("k1", End::Completed);
    store.ended("k2", End::Completed);
    store.ended("k3", End::Completed);
    let all = store.due(&[], now());
    // Tried, and planned, an hour later than it is.
    let ahead = now() + 60 * 60 * 1000;
    let mut early = attempt(&all[0], AttemptOutcome::Again(ahead + 5000));
    early.at_ms = ahead;
    // Planned for later, rightly.
    let late = attempt(&all[1], AttemptOutcome::Again(ahead));
    store.record(vec![early, late]);
    assert_eq!(store.due(&[], now()).len(), 1);
    let wanted = |now_ms| Wanted {
        now_ms,
        each: 100,
        set_back: true,
        ..Wanted::default()
    };
    let due = |now_ms| wait(store.opened.store.due(wanted(now_ms))).unwrap().due;
    let found = due(now());
    let ids: Vec<&String> = found.iter().map(|one| &one.id).collect();
    assert_eq!(ids, [&all[2].id, &all[0].id]);
    // A year, and made by then.
    assert_eq!(due(now() - 365 * DAY).len(), 3);
}

#[test]
fn webhooks_place_each_host_apart() {
    use super::super::webhooks::host;
    for (url, expected) in [
        ("https://Example.COM./x", "example.com"),
        ("http://example.com:8080", "example.com"),
        ("http://[::1]:8080/x", "[::1]"),
        ("http://127.1/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://%3127.0.0.1/", "127.0.0.1"),
        ("https://a.b?c", "a.b"),
    ] {
        assert_eq!(host(url), expected);
    }
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let to = |url: String| Write::TestCallback { url };
    // In one commit, so all of them are due at the same time.
    let mut all: Vec<Write> = (0..50)
        .map(|n| to(format!("https://b.example/{n}")))
        .collect();
    all.push(to("https://a.example/".to_owned()));
    all.push(to("https://c.example/".to_owned()));
    store.commit(all);
    let wanted = Wanted {
        now_ms: now(),
        each: 2,
        ..Wanted::default()
    };
    let due = wait(store.opened.store.due(wanted)).unwrap().due;
    let hosts: Vec<&str> = due.iter().map(|one| one.host.as_str()).collect();
    assert_eq!(hosts, ["b.example", "b.example", "a.example", "c.example"]);
    // No more is read than that.
    let conn = schema::reopen(&dir.path().join(FILE)).unwrap();
    let plan: String = conn
        .query_row(
            "EXPLAIN QUERY PLAN SELECT body FROM webhooks
             WHERE state = 'pending' AND host = 'a' AND due_at <= 1 ORDER BY due_at",
            [],
            |row| row.get(3),
        )
        .unwrap();
    assert!(plan.contains("(host=? AND due_at<?)"), "{plan}");
}

#[test]
fn webhooks_unreadable_row_is_no_store_trouble() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.ended("k1", End::Completed);
    let conn = schema::reopen(&dir.path().join(FILE)).unwrap();
    conn.execute("UPDATE webhooks SET attempts = -1", [])
        .unwrap();
    let wanted = Wanted {
        now_ms: now(),
        each: 1,
        ..Wanted::default()
    };
    assert!(wait(store.opened.store.due(wanted)).is_err());
    // The next event is the answer to an accept.
    store.accept(started("other"));
}

#[test]
fn webhooks_dead_outlive_daemons_until_asked_for() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for key in ["k1", "k2", "k3"] {
        store.ended(key, End::Completed);
    }
    let all = store.due(&[], now());
    store.record(vec![
        attempt(&all[0], AttemptOutcome::Delivered),
        attempt(&all[1], AttemptOutcome::Dead),
    ]);
    store.close();
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    wait(store.opened.to_deliver.notified());
    let left = store.due(&[], now());
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].id, all[2].id, "the same id after a restart");
    let states: Vec<_> = store.rows(None).into_iter().map(|row| row.state).collect();
    let (pending, dead) = (DeliveryState::Pending, DeliveryState::Dead);
    assert_eq!(states, [pending, dead, DeliveryState::Delivered]);
    let [row] = &store.rows(Some(dead))[..] else {
        panic!("one dead letter")
    };
    assert_eq!((row.attempts, row.status), (1, Some(500)));
    let replay = |webhook: &str| Write::Replay {
        webhook: webhook.to_owned(),
    };
    let stored = store.commit(vec![replay(&all[1].id)]);
    let id = Some(all[1].id.clone());
    assert_eq!(stored, Stored::Committed(vec![Written::Webhook { id }]));
    let again = store.due(&[&left[0].id], now());
    assert_eq!((again.len(), again[0].attempts), (1, 0));
    // What was under way when it was asked for doesn't count any more.
    store.record(vec![attempt(&all[1], AttemptOutcome::Again(now()))]);
    let late = AttemptRecord {
        attempts: 7,
        ..attempt(&all[1], AttemptOutcome::Dead)
    };
    store.record(vec![late]);
    assert_eq!(store.rows(Some(dead)).len(), 0);
    let stored = store.commit(vec![replay("evt_nobody")]);
    assert_eq!(
        stored,
        Stored::Committed(vec![Written::Webhook { id: None }])
    );
}

#[test]
fn webhooks_with_nobody_there_end_together() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for key in ["k1", "k2"] {
        store.ended(key, End::Completed);
    }
    let other = Write::TestCallback {
        url: "https://ci.example/other".to_owned(),
    };
    store.commit(vec![other]);
    let all = store.due(&[], now());
    store.record(vec![attempt(&all[0], AttemptOutcome::Gone)]);
    // Another one was under way.
    store.record(vec![attempt(&all[1], AttemptOutcome::Again(now()))]);
    let left = store.due(&[], now());
    assert_eq!((left.len(), left[0].is_test), (1, true), "{left:?}");
    assert_eq!(store.rows(Some(DeliveryState::Dead)).len(), 2);
}

#[test]
fn webhooks_that_ended_long_ago_are_forgotten() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for key in ["k1", "k2", "k3"] {
        store.ended(key, End::Completed);
    }
    let all = store.due(&[], now());
    store.record(vec![
        attempt(&all[0], AttemptOutcome::Delivered),
        attempt(&all[1], AttemptOutcome::Dead),
    ]);
    store.close();
    let conn = schema::reopen(&dir.path().join(FILE)).unwrap();
    let left = |now_ms: i64| -> Vec<String> {
        super::super::webhooks::forget(&conn, now_ms).unwrap();
        let mut all = conn
            .prepare("SELECT id FROM webhooks ORDER BY place")
            .unwrap();
        let rows = all.query_map(params![], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let ids = |places: &[usize]| -> Vec<String> {
        places.iter().map(|place| all[*place].id.clone()).collect()
    };
    assert_eq!(left(now() + DAY - 60_000), ids(&[0, 1, 2]));
    assert_eq!(left(now() + DAY + 60_000), ids(&[1, 2]));
    assert_eq!(left(now() + 30 * DAY - 60_000), ids(&[1, 2]));
    assert_eq!(left(now() + 30 * DAY + 60_000), ids(&[2]));
    // However many: a few at once, until none is left.
    assert_eq!(left(now() + 3650 * DAY), ids(&[2]));
}

#[test]
fn deliveries_are_forgotten_as_fast_as_they_come() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    let to = |n| Write::TestCallback {
        url: format!("https://a.example/{n}"),
    };
    store.commit((0..1000).map(to).collect());
    store.close();
    let conn = schema::reopen(&dir.path().join(FILE)).unwrap();
    conn.execute("UPDATE webhooks SET state = 'delivered', last_at = 0", [])
        .unwrap();
    prune::since_long_ago(&conn);
    // After this the first look is, and each further one that finds nothing.
    let every = Duration::from_secs(2);
    let opener = Opener {
        keep: Some(Keep {
            age: Duration::from_secs(1 << 30),
            bytes: 1 << 30,
            every,
        }),
        ..daemon("b")
    };
    let (answer, _answers) = answering();
    let opened = open_with(
        dir.path(),
        opener,
        Box::new(dead),
        answer,
        Faults::of_writer(Box::new(|_, _| Ok(()))),
    );
    let opened = opened.unwrap();
    let left = || -> i64 {
        let count = "SELECT count(*) FROM webhooks";
        conn.query_row(count, [], |row| row.get(0)).unwrap()
    };
    let begun = Instant::now();
    while left() == 1000 {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::park_timeout(Duration::from_millis(2));
    }
    let begun = Instant::now();
    while left() > 0 {
        // A slice at each look would take three times as long.
        assert!(begun.elapsed() < every * 2, "{} are left", left());
        std::thread::park_timeout(Duration::from_millis(2));
    }
    opened.store.close(opened.writer);
}
