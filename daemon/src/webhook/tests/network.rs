//! A machine that has no network.

use std::io;

use super::*;

const MINUTE: i64 = 60 * 1000;

/// A system where each look-up fails so; counts them.
fn without(error: impl Fn() -> io::Error + Send + Sync + 'static) -> (LookUp, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let look_up: LookUp = Arc::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let error = error();
        Box::pin(async move { Err(error) })
    });
    (look_up, asked)
}

#[test]
fn network_missing_is_not_counted_within_limits() {
    let words = "failed to lookup address information: Temporary failure in name resolution";
    let (look_up, asked) = without(move || io::Error::other(words));
    let mut post = Post::new(look_up);
    let url = "http://ci.example/";
    post.allow(url, false);
    post.commit(&(0..100).map(|n| format!("{url}{n}")).collect::<Vec<_>>());
    post.begin();
    // How many were tried at this time or later, and how many attempts are counted.
    let tried = |post: &mut Post, since: i64| {
        let rows = post.rows();
        let since = agentd_core::rfc3339(since);
        let tried = rows.iter().filter(|row| row.last_at >= Some(since.clone()));
        (tried.count(), rows.iter().map(|row| row.attempts).sum())
    };
    let until = |post: &mut Post, fact: &str, is: &dyn Fn((usize, u64)) -> bool| {
        let (begun, since) = (std::time::Instant::now(), post.now.load(Ordering::SeqCst));
        while !is(tried(post, since)) {
            let found = tried(post, since);
            assert!(begun.elapsed() < PATIENCE, "{fact}: {found:?}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    };
    until(&mut post, "tried", &|found| found == (4, 0));
    assert_eq!(asked.load(Ordering::SeqCst), 4, "the rest waits with them");
    let rows = post.rows();
    let row = rows.iter().find(|row| row.last_at.is_some()).unwrap();
    assert_eq!(row.state, DeliveryState::Pending);
    assert!(row.error.as_ref().unwrap().contains(words), "{row:?}");
    let next = agentd_core::rfc3339(NOW + 5 * MINUTE);
    assert_eq!(row.next_at.as_ref(), Some(&next));
    // A while before a week is over nothing is counted, and after it everything is. All that was
    // under way has to be noted before time goes on, or it is noted at a later time.
    for _ in 0..10 {
        post.pass(6 * MINUTE);
        until(&mut post, "tried again", &|found| found == (4, 0));
    }
    post.pass(7 * 24 * 60 * MINUTE);
    until(&mut post, "counted", &|(_, counted)| counted > 0);
}

#[test]
fn network_missing_is_told_from_a_refusal() {
    use io::ErrorKind;
    for (kind, words, counts) in [
        (ErrorKind::NetworkUnreachable, "", 0),
        (ErrorKind::NetworkDown, "", 0),
        (ErrorKind::HostUnreachable, "", 0),
        (ErrorKind::Other, "temporary failure in name resolution", 0),
        (
            ErrorKind::Other,
            "failed to lookup address information: Try again",
            0,
        ),
        (ErrorKind::Other, "Name or service not known", 1),
        (ErrorKind::ConnectionRefused, "", 1),
        (ErrorKind::TimedOut, "", 1),
    ] {
        let (look_up, _) = without(move || io::Error::new(kind, words));
        let mut post = Post::new(look_up);
        post.allow("http://ci.example/", false);
        post.send("http://ci.example/");
        let row = post.until("tried", |row| row.last_at.is_some());
        assert_eq!(row.attempts, counts, "{kind:?} {words}");
    }
}
