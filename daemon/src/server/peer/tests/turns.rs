//! Connections have their turns one after the other, however much one of them asks at once.

use super::*;

#[tokio::test(start_paused = true)]
async fn connection_waits_for_one_dispatch_of_another() {
    let (events, mut inbox) = mpsc::channel(64);
    let tracker = TaskTracker::new();
    let jobs = [r#"{"text":"x"}"#; 100].join(",");
    let dispatch = format!("{{\"type\":\"dispatch\",\"jobs\":[{jobs}]}}\n");
    let mut kept = Vec::new();
    for (conn, lines) in [
        (1, dispatch.repeat(12)),
        (2, "{\"type\":\"ping\"}\n".into()),
    ] {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        client.write_all(lines.as_bytes()).await.unwrap();
        let (reader, writer) = tokio::io::split(server);
        let (commands, orders) = mpsc::channel(COMMANDS);
        let cfg = PeerConfig {
            facts: Arc::new(|_: &Request| Known::Now(Box::default())),
            later: Arc::new(Some),
            partial: Arc::default(),
            routes: Arc::default(),
        };
        let (conn, events) = (ConnId(conn), events.clone());
        tracker.spawn(async move {
            serve(conn, Origin::Socket, reader, writer, events, orders, cfg).await;
        });
        kept.push((client, commands));
    }
    let mut order = Vec::new();
    while order.len() < 13 {
        match inbox.recv().await.unwrap() {
            Event::Requested { conn, .. } => order.push(conn.0),
            other => panic!("{other:?}"),
        }
    }
    let before = order.iter().position(|conn| *conn == 2);
    assert!(before.is_some_and(|before| before <= 2), "{order:?}");
    drop(kept);
}
