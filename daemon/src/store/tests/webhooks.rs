//! Deliveries in the file: written with the end of their job, in their order, marked, forgotten.

use super::*;
use agentd_protocol::webhook::{DeliveryRow, DeliveryState};
use rusqlite::params;

const URL: &str = "https://ci.example/hook";
const DAY: i64 = 24 * 60 * 60 * 1000;

fn callback(job: JobId) -> Write {
    Write::Callback {
        job,
        url: URL.to_owned(),
    }
}

fn now() -> i64 {
    transaction::wall_ms()
}

fn mark(due: &Delivery, outcome: Outcome) -> Mark {
    Mark {
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
    fn due(&self, but: &[&str], busy: &[&str], now_ms: i64) -> Vec<Delivery> {
        let words = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        let wanted = Wanted {
            now_ms,
            but: words(but),
            busy: words(busy),
            limit: 100,
        };
        wait(self.opened.store.due(wanted)).unwrap().due
    }

    fn mark(&self, marks: Vec<Mark>) {
        wait(self.opened.store.mark(marks)).unwrap();
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
    let [due] = &store.due(&[], &[], now())[..] else {
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
    let Loaded::Export { rows, .. } = store.load(Query::Export { after: 0 }) else {
        panic!("everything")
    };
    let exported = rows.iter().filter(|row| row.contains(&due.id)).count();
    assert_eq!(exported, 1, "{rows:#?}");
    // To end it again tells nobody again.
    store.commit(vec![finish(job, End::Failed), callback(job)]);
    assert_eq!(store.rows(None).len(), 1);
}

#[test]
fn a_commit_that_fails_leaves_neither_the_end_nor_the_delivery() {
    let dir = TempDir::new().unwrap();
    let (switch, fault) = switched();
    let mut store = bench_with(dir.path(), "a", Role::Daemon, dead, fault);
    let (job, ..) = store.accept(started("main"));
    *switch.lock().unwrap() = Some((Moment::BeforeCommit, ffi::SQLITE_FULL));
    let token = store.order(
        Urgency::Waited,
        vec![finish(job, End::Completed), callback(job)],
    );
    assert!(matches!(
        store.event(),
        Event::StoreHealth { trouble: Some(_) }
    ));
    let wanted = Wanted {
        now_ms: now(),
        limit: 1,
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
    assert_eq!(store.due(&[], &[], now()).len(), 1);
}

#[test]
fn what_is_due_waits_for_its_time_and_for_its_host() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    store.ended("k1", End::Completed);
    store.ended("k2", End::Completed);
    let now = now();
    let all = store.due(&[], &[], now);
    assert_eq!(all.len(), 2);
    let first = all[0].id.as_str();
    assert_eq!(store.due(&[first], &[], now).len(), 1, "one is under way");
    assert!(
        store.due(&[], &["ci.example"], now).is_empty(),
        "the host is busy"
    );
    store.mark(vec![mark(&all[0], Outcome::Again(now + 5000))]);
    assert_eq!(store.due(&[], &[], now).len(), 1);
    let later = store.due(&[], &[], now + 5000);
    assert_eq!((later.len(), later[1].attempts), (2, 1));
    // A clock that was a year ahead when it was planned.
    assert_eq!(store.due(&[], &[], now - 365 * DAY).len(), 2);
    let wanted = Wanted {
        now_ms: now,
        limit: 1,
        ..Wanted::default()
    };
    let waiting = wait(store.opened.store.due(wanted)).unwrap();
    assert_eq!((waiting.due.len(), waiting.next_ms), (1, Some(now + 5000)));
}

#[test]
fn marks_outlive_the_daemon_and_a_dead_letter_goes_out_again_when_asked() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for key in ["k1", "k2", "k3"] {
        store.ended(key, End::Completed);
    }
    let all = store.due(&[], &[], now());
    store.mark(vec![
        mark(&all[0], Outcome::Delivered),
        mark(&all[1], Outcome::Dead),
    ]);
    store.close();
    let mut store = bench(dir.path(), "b", Role::Daemon, dead);
    wait(store.opened.to_deliver.notified());
    let left = store.due(&[], &[], now());
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
    let again = store.due(&[&left[0].id], &[], now());
    assert_eq!((again.len(), again[0].attempts), (1, 0));
    // What was under way when it was asked for doesn't count any more.
    store.mark(vec![mark(&all[1], Outcome::Again(now()))]);
    let late = Mark {
        attempts: 7,
        ..mark(&all[1], Outcome::Dead)
    };
    store.mark(vec![late]);
    assert_eq!(store.rows(Some(dead)).len(), 0);
    let stored = store.commit(vec![replay("evt_nobody")]);
    assert_eq!(
        stored,
        Stored::Committed(vec![Written::Webhook { id: None }])
    );
}

#[test]
fn nobody_at_a_url_ends_all_that_is_to_go_there() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for key in ["k1", "k2"] {
        store.ended(key, End::Completed);
    }
    let other = Write::TestCallback {
        url: "https://ci.example/other".to_owned(),
    };
    store.commit(vec![other]);
    let all = store.due(&[], &[], now());
    store.mark(vec![mark(&all[0], Outcome::Gone)]);
    let left = store.due(&[], &[], now());
    assert_eq!((left.len(), left[0].is_test), (1, true), "{left:?}");
    assert_eq!(store.rows(Some(DeliveryState::Dead)).len(), 2);
}

#[test]
fn what_ended_long_ago_is_forgotten_and_what_waits_never_is() {
    let dir = TempDir::new().unwrap();
    let mut store = bench(dir.path(), "a", Role::Daemon, dead);
    for key in ["k1", "k2", "k3"] {
        store.ended(key, End::Completed);
    }
    let all = store.due(&[], &[], now());
    store.mark(vec![
        mark(&all[0], Outcome::Delivered),
        mark(&all[1], Outcome::Dead),
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
