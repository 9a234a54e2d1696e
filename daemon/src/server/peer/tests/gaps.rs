//! Lines that went on while this process did not run.

use super::*;

#[tokio::test(start_paused = true)]
async fn line_unread_meanwhile_is_not_truncated() {
    let mut peer = open(Origin::Socket).answered();
    peer.say("{\"type\":\"hello\"}\n{\"type\"").await;
    peer.line().await;
    tokio::time::advance(Duration::from_secs(60)).await;
    peer.say(":\"ping\"}\n{").await;
    assert_eq!(codes(&peer.line().await), ["pong"]);
    tokio::time::advance(Duration::from_secs(60)).await;
    let (text, took) = peer.rest().await;
    assert_eq!(
        (codes(&text), took.as_secs()),
        (vec!["truncated".to_owned()], 2)
    );
}
