//! What is on the disk, whoever asks and whatever died.

use std::os::unix::fs::PermissionsExt as _;

use super::super::rows::{APPLICATION, MIGRATIONS};
use super::*;
use crate::failover::Class;
use crate::message::Assistant;

fn user(text: &str) -> Message {
    Message::user(text)
}

fn said(text: &str) -> Message {
    Message::Assistant(Assistant {
        text: text.to_owned(),
        ..Assistant::default()
    })
}

fn basis() -> Basis {
    Basis {
        system: "system".to_owned(),
        soul_sha256: Some("abc".to_owned()),
        led: Led::new(),
    }
}

fn store(dir: &tempfile::TempDir) -> Arc<Store> {
    Arc::new(Store::new(dir.path().join("timmy")))
}

async fn create(store: &Arc<Store>) -> Session {
    store
        .create(None, basis(), vec![user("first")])
        .await
        .unwrap()
}

fn native(session: &Session) -> Which {
    Which::Native(session.native().unwrap().to_owned())
}

#[tokio::test]
async fn store_keeps_what_was_appended() {
    let dir = tempfile::tempdir().unwrap();
    let (which, before) = {
        let store = store(&dir);
        let mut session = create(&store).await;
        session
            .append(vec![said("a"), user("second")])
            .await
            .unwrap();
        (native(&session), session.history().clone())
    };
    let again = store(&dir).open(which).await.unwrap().unwrap();
    assert_eq!(again.history(), &before);
    assert_eq!(again.basis(), &basis());
    let id = again.native().unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
}

#[tokio::test]
async fn store_without_a_session_says_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let which = Which::Native("0".repeat(32));
    assert!(store.open(which).await.unwrap().is_none());
    let named = Which::Name("main".to_owned());
    assert!(store.open(named.clone()).await.unwrap().is_none());
    let name = Some("main".to_owned());
    let made = store.create(name, basis(), vec![user("x")]).await.unwrap();
    drop(made);
    assert!(store.open(named).await.unwrap().is_some());
}

#[test]
fn store_log_never_grows_long_over_processes() {
    let dir = tempfile::tempdir().unwrap();
    let log = || std::fs::metadata(dir.path().join("timmy.db-wal")).map_or(0, |log| log.len());
    let (mut longest, mut shortened) = (0, 0);
    for _ in 0..60 {
        let before = log();
        let conn = prepare(dir.path()).unwrap();
        shortened += usize::from(log() < before);
        conn.execute(
            "INSERT INTO sessions (created_at, used_at, system) VALUES (1, 1, 'x')",
            [],
        )
        .unwrap();
        drop(conn);
        longest = longest.max(log());
    }
    assert!((1..8).contains(&shortened), "{shortened} times");
    assert!(
        longest < 110 * 4120,
        "{longest} bytes are read by the next one"
    );
    let conn = prepare(dir.path()).unwrap();
    let kept = conn.query_row("SELECT count(*) FROM sessions", [], |row| row.get(0));
    assert_eq!(kept, Ok(60));
}

#[tokio::test]
async fn store_opens_a_session_once_in_all_processes() {
    let dir = tempfile::tempdir().unwrap();
    // Two stores have two open files, as two processes have.
    let (one, other) = (store(&dir), store(&dir));
    let session = create(&one).await;
    let which = native(&session);
    for store in [&one, &other] {
        let again = store.open(which.clone()).await;
        assert_eq!(again.err(), Some(StoreError::Open));
    }
    drop(session);
    let mut there = other.open(which.clone()).await.unwrap().unwrap();
    assert_eq!(one.open(which.clone()).await.err(), Some(StoreError::Open));
    there.append(vec![said("a")]).await.unwrap();
    drop(there);
    let back = one.open(which).await.unwrap().unwrap();
    assert_eq!(back.history().messages().len(), 2);
}

#[tokio::test]
async fn histories_are_never_mixed_even_without_a_lock() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let mut session = create(&store).await;
    let kept = session.kept.as_ref().unwrap();
    kept.append(1, &[said("somebody else")]).await.unwrap();
    let late = session.append(vec![said("mine")]).await;
    assert_eq!(late, Err(StoreError::Changed));
    assert_eq!(session.history().messages().len(), 1);
}

#[tokio::test]
async fn store_puts_summaries_in_place_of_the_summarised() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let mut session = create(&store).await;
    session
        .append(vec![said("a"), user("b"), said("c")])
        .await
        .unwrap();
    session.compact("short".to_owned(), 2).await.unwrap();
    session.append(vec![user("d")]).await.unwrap();
    let (which, before) = (native(&session), session.history().clone());
    drop(session);
    let again = store.open(which).await.unwrap().unwrap();
    assert_eq!(again.history(), &before);
    assert_eq!(again.history().summary(), Some("short"));
    assert_eq!(again.history().messages().len(), 3);
}

#[tokio::test]
async fn store_commits_others_when_one_job_fails() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let made = create(&store).await;
    let kept = made.kept.as_ref().unwrap();
    let (first, second, third) = ([said("1")], [said("2")], [said("3")]);
    let all = tokio::join!(
        kept.append(1, &first),
        kept.append(1, &second),
        kept.append(2, &third),
    );
    assert_eq!(all, (Ok(()), Err(StoreError::Changed), Ok(())));
}

#[test]
fn sessions_are_forgotten_without_a_look_at_all() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let mut conn = prepare(dir.path()).unwrap();
    let many = "WITH RECURSIVE n (at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < 5000)
        INSERT INTO sessions (created_at, used_at, bytes, system) SELECT at, at, 9, 'x' FROM n";
    conn.execute(many, []).unwrap();
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&steps);
    let count = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        false
    };
    conn.progress_handler(100, Some(count)).unwrap();
    assert_eq!(rows::old(&conn, 1, MOST_BYTES, 200).unwrap(), []);
    assert_eq!(rows::old(&conn, 11, MOST_BYTES, 200).unwrap().len(), 10);
    let hundreds = steps.swap(0, Ordering::Relaxed);
    assert!(hundreds < 10, "{hundreds} hundred steps");
    // All that is beyond goes, whenever it was used: two sessions fit.
    assert_eq!(rows::old(&conn, 1, 18, 200).unwrap().len(), 200);
}

#[tokio::test]
async fn old_sessions_are_forgotten_and_open_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let (old, open) = (create(&store).await, create(&store).await);
    let (gone, stays) = (native(&old), native(&open));
    let spill = store.spill(old.native().unwrap());
    std::fs::create_dir_all(&spill).unwrap();
    drop(old);
    let later = wall_ms() + 1000 * (UNUSED.as_secs() + 60);
    let forgotten = store.forget(later, UNUSED, MOST_BYTES).await;
    assert_eq!(forgotten, Ok(1));
    assert!(store.open(gone).await.unwrap().is_none());
    assert!(!spill.exists());
    drop(open);
    assert!(store.open(stays).await.unwrap().is_some());
    assert_eq!(store.forget_old().await, Ok(0), "nothing is old");
}

#[tokio::test]
async fn store_forgets_the_longest_unused_beyond_its_room() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let mut natives = Vec::new();
    for _ in 0..3 {
        let mut session = create(&store).await;
        session.append(vec![said(&"x".repeat(1000))]).await.unwrap();
        natives.push(native(&session));
    }
    assert_eq!(store.forget(wall_ms(), UNUSED, 2500).await, Ok(1));
    assert!(store.open(natives.remove(0)).await.unwrap().is_none());
    assert!(store.open(natives.remove(0)).await.unwrap().is_some());
}

#[tokio::test]
async fn store_counts_bytes_of_what_was_summarised() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    for _ in 0..3 {
        let mut session = create(&store).await;
        let said = vec![user("a"), said(&"é".repeat(600))];
        session.append(said).await.unwrap();
        session.compact("é".repeat(200), 1).await.unwrap();
    }
    // Two take 1,200 bytes, 400 of a summary and what is around them, each.
    let forgotten = store.forget(wall_ms(), UNUSED, 4000).await;
    assert_eq!(forgotten, Ok(1));
}

#[tokio::test]
async fn cooldowns_are_shared_and_end_with_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (store(&dir), store(&dir));
    let whose = ("p", "m");
    let cooled = Cooldown::after(None, whose, Class::RateLimit, None, 5_000).unwrap();
    let billed = Cooldown::after(None, whose, Class::Billing, None, 5_000).unwrap();
    for cooldown in [&cooled, &billed] {
        one.cool(cooldown.clone()).await.unwrap();
    }
    assert_eq!(other.cooldowns().await.unwrap(), [billed, cooled]);
    other
        .warm("p".to_owned(), "other".to_owned(), 5_000)
        .await
        .unwrap();
    assert_eq!(one.cooldowns().await.unwrap().len(), 1);
    let warm = |asked| other.warm("p".to_owned(), "m".to_owned(), asked);
    warm(4_999).await.unwrap();
    assert_eq!(one.cooldowns().await.unwrap().len(), 1, "it is newer");
    warm(5_000).await.unwrap();
    assert_eq!(one.cooldowns().await.unwrap(), []);
}

#[tokio::test]
async fn store_cooldown_is_cut_by_keys_or_clocks() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    let cooled = |class, seconds: u64, now: u64| {
        let asked = Some(Duration::from_secs(seconds));
        Cooldown::after(None, ("p", "m"), class, asked, now).unwrap()
    };
    let kept = async || store.cooldowns().await.unwrap();
    let long = cooled(Class::RateLimit, 3000, 1_000_000);
    store.cool(long.clone()).await.unwrap();
    let late = cooled(Class::Overloaded, 0, 1_001_000);
    store.cool(late).await.unwrap();
    assert_eq!(kept().await, [long]);
    let mut other = cooled(Class::RateLimit, 10, 1_002_000);
    other.key = Some("another".to_owned());
    store.cool(other.clone()).await.unwrap();
    assert_eq!(kept().await, [other.clone()]);
    let mut back = cooled(Class::RateLimit, 10, 900_000);
    back.key = other.key;
    store.cool(back.clone()).await.unwrap();
    assert_eq!(kept().await, [back]);
}

#[tokio::test]
async fn store_file_is_private_and_of_ours_only() {
    let dir = tempfile::tempdir().unwrap();
    drop(create(&store(&dir)).await);
    let home = dir.path().join("timmy");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&home), 0o700);
    for file in std::fs::read_dir(&home).unwrap().flatten() {
        assert_eq!(mode(&file.path()), 0o600, "{:?}", file.path());
    }
    let conn = Connection::open(home.join("timmy.db")).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    let why = store(&dir).cooldowns().await.unwrap_err().to_string();
    assert!(why.contains("form 99"), "{why}");
    conn.pragma_update(None, "application_id", 1).unwrap();
    let why = store(&dir).cooldowns().await.unwrap_err().to_string();
    assert!(why.contains("another program"), "{why}");
}

#[tokio::test]
async fn store_file_that_failed_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let in_the_way = dir.path().join("timmy");
    std::fs::write(&in_the_way, "a file").unwrap();
    let store = store(&dir);
    assert!(matches!(
        store.cooldowns().await,
        Err(StoreError::Failed(..))
    ));
    std::fs::remove_file(&in_the_way).unwrap();
    assert_eq!(store.cooldowns().await, Ok(Vec::new()));
}

#[tokio::test]
async fn session_remembers_where_its_directories_led() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::new(dir.path().to_owned()));
    let led = Led::from([("/home/u/app".into(), "/data/app".into())]);
    let begun = Basis {
        led: led.clone(),
        ..basis()
    };
    let made = store.create(None, begun, vec![Message::user("one")]).await;
    let mut session = made.unwrap();
    let native = session.native().unwrap().to_owned();
    let more = Led::from([("/x".into(), "/y".into())]);
    let more: Led = led.into_iter().chain(more).collect();
    session.remember(more.clone()).await.unwrap();
    drop(session);
    let store = Arc::new(Store::new(dir.path().to_owned()));
    let found = store.open(Which::Native(native)).await.unwrap().unwrap();
    assert_eq!(found.basis().led, more);
}

/// A row without a rowid is read whole wherever a search compares with it.
#[tokio::test]
async fn store_keeps_old_messages_outside_its_index() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("timmy");
    std::fs::create_dir(&home).unwrap();
    let conn = Connection::open(home.join("timmy.db")).unwrap();
    for script in &MIGRATIONS[..2] {
        conn.execute_batch(script).unwrap();
    }
    conn.pragma_update(None, "user_version", 2).unwrap();
    conn.pragma_update(None, "application_id", APPLICATION)
        .unwrap();
    let long = [user(&"a".repeat(100_000)), said(&"b".repeat(100_000))];
    conn.execute_batch(
        "INSERT INTO sessions (created_at, used_at, system, native) VALUES (1, 1, 's', 'n')",
    )
    .unwrap();
    for (at, message) in (0_i64..).zip(&long) {
        let message = serde_json::to_string(message).unwrap();
        conn.execute("INSERT INTO messages VALUES (1, ?1, ?2)", (at, message))
            .unwrap();
    }
    let which = || Which::Native("n".to_owned());
    let mut session = store(&dir).open(which()).await.unwrap().unwrap();
    session.append(vec![user("third")]).await.unwrap();
    drop(session);
    let session = store(&dir).open(which()).await.unwrap().unwrap();
    let all = [&long[..], &[user("third")]].concat();
    assert!(session.history().messages() == all);
    let trees = "SELECT group_concat(DISTINCT name) FROM dbstat WHERE pagetype = 'overflow'";
    let trees: String = conn.query_row(trees, [], |row| row.get(0)).unwrap();
    assert_eq!(trees, "messages");
    let searched = "SELECT count(*) FROM pragma_table_list WHERE name = 'messages' AND wr";
    let searched: i64 = conn.query_row(searched, [], |row| row.get(0)).unwrap();
    assert_eq!(searched, 0);
}
