//! How many requests are under way at once, and whose turn it is.

use std::net::Ipv4Addr;

use super::*;

#[test]
fn turns_of_hanging_hosts_leave_others_room() {
    let hang = |_: usize| {
        Receiving::new(Box::new(|stream: &mut TcpStream, _| {
            let _held = stream.read(&mut [0]);
        }))
    };
    let hanging: Vec<Receiving> = (0..4).map(hang).collect();
    let receiver = Receiving::saying(ok());
    let busy = "HTTP/1.1 429 Busy\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
    let busy = Receiving::saying(busy);
    let mut post = Post::new(Arc::new(|_| {
        Box::pin(async { Ok(vec![(Ipv4Addr::LOCALHOST, 0).into()]) })
    }));
    let named = |name: &str, receiver: &Receiving| receiver.url.replace("127.0.0.1", name);
    let mut urls = Vec::new();
    for (number, receiver) in hanging.iter().enumerate() {
        let url = named(&format!("a-hangs{number}.example"), receiver);
        post.allow(&url, true);
        urls.extend((0..100).map(|number| format!("{url}/{number}")));
    }
    let fine = named("fine.example", &receiver);
    post.allow(&fine, true);
    let refuses = named("busy.example", &busy);
    post.allow(&refuses, true);
    urls.extend((0..50).map(|number| format!("{refuses}/{number}")));
    urls.extend((0..50).map(|number| format!("{fine}/{number}")));
    post.commit(&urls);
    let begun = std::time::Instant::now();
    post.begin();
    for _ in 0..50 {
        receiver.next();
    }
    // Each attempt at the others takes two seconds, and there are a hundred for each.
    assert!(begun.elapsed() < Duration::from_secs(10), "{begun:?}");
    let asked = busy.requests.try_iter().count();
    assert!((1..=4).contains(&asked), "{asked}");
}

#[test]
fn turns_are_four_to_a_host_of_sixteen() {
    let hangs = Receiving::new(Box::new(|stream, _| {
        let _held = stream.read(&mut [0]);
    }));
    let look_up: LookUp =
        Arc::new(|_| Box::pin(async { Ok(vec![(Ipv4Addr::LOCALHOST, 0).into()]) }));
    let mut post = Post::new(Arc::clone(&look_up));
    let names = ["a", "b", "c", "d", "e"].map(|name| format!("{name}.example"));
    let urls = names.each_ref().map(|name| {
        let url = hangs.url.replace("127.0.0.1", name);
        post.allow(&url, true);
        url
    });
    let ten = |url: &String| (0..10).map(|number| format!("{url}/{number}")).collect();
    let config = post.config();
    let mut deliverer = Deliverer::new(config, Arc::new(|| NOW), look_up);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut begun = |post: &mut Post, urls: Vec<String>| {
        post.commit(&urls);
        runtime.block_on(deliverer.begin()).unwrap();
        let all: Vec<usize> = names.iter().map(|name| deliverer.count(name)).collect();
        (all, deliverer.under_way.len())
    };
    let one = begun(&mut post, ten(&urls[0]));
    assert_eq!(one, (vec![4, 0, 0, 0, 0], 4));
    let (all, together) = begun(&mut post, urls.iter().flat_map(ten).collect::<Vec<_>>());
    assert_eq!(together, 16, "{all:?}");
    assert!(all.iter().all(|some| (3..=4).contains(some)), "{all:?}");
}

#[test]
fn turns_after_an_outage_begin_slowly() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (at_once, peak) = (Arc::clone(&now), Arc::clone(&most));
    let receiver = Receiving::new(Box::new(move |stream, _| {
        let together = at_once.fetch_add(1, Ordering::SeqCst) + 1;
        peak.fetch_max(together, Ordering::SeqCst);
        // It takes a moment over each, as receivers do.
        std::thread::park_timeout(Duration::from_millis(2));
        // Before the answer: the next request may come as soon as it is there.
        at_once.fetch_sub(1, Ordering::SeqCst);
        let _gone = stream.write_all(ok().as_bytes());
    }));
    // Another name for this machine, where nobody ever answers.
    let hangs = Receiving::new(Box::new(|stream, _| {
        let _held = stream.read(&mut [0]);
    }));
    let slow = hangs.url.replace("127.0.0.1", "localhost");
    let mut post = Post::new(post::system());
    post.allow(&receiver.url, true);
    post.allow(&slow, true);
    let mut urls: Vec<String> = (0..100).map(|number| format!("{slow}/{number}")).collect();
    urls.extend((0..5000).map(|number| format!("{}/{number}", receiver.url)));
    post.commit(&urls);
    post.begin();
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..5000 {
        ids.insert(receiver.next().headers["webhook-id"].clone());
    }
    assert_eq!(ids.len(), 5000);
    assert!((1..=4).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    let slow_ones = hangs.requests.try_iter().count();
    assert!((1..200).contains(&slow_ones), "{slow_ones}");
}
