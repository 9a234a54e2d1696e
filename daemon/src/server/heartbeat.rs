//! Signs of life for the service manager.
//!
//! Owns when one is given: only after the owner and the store's writer both answered. A daemon
//! whose disk hangs or whose owner spins is not alive, whatever its timers say. Must not know how
//! the service manager is told, nor what it does when signs stay away.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::platform::manager;
use crate::server::owner::Beat;

/// Gives signs until the owner is gone or `stop` says so. One that is not answered is waited for:
/// its silence is what the service manager is to notice.
pub async fn keep(
    every: Duration,
    beats: mpsc::Sender<Beat>,
    stopping: CancellationToken,
    stop: CancellationToken,
) {
    let signs = async {
        loop {
            tokio::time::sleep(every).await;
            let (status, said) = oneshot::channel();
            let (store, lives) = oneshot::channel();
            if beats.send(Beat { status, store }).await.is_err() {
                return;
            }
            // The store's queue may be full, and be empty at the next beat.
            let (Ok(status), Ok(())) = (said.await, lives.await) else {
                continue;
            };
            let is_stopping = stopping.is_cancelled();
            let told = move || manager::beat(&status, is_stopping);
            // A panic there would be ours, and the next beat comes all the same.
            let _told = tokio::task::spawn_blocking(told).await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = signs => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_next_sign_waits_for_both_answers() {
        let (sender, mut beats) = mpsc::channel(1);
        let stop = CancellationToken::new();
        let every = Duration::from_secs(10);
        let keeping = keep(every, sender, CancellationToken::new(), stop.clone());
        let answering = async {
            let first: Beat = beats.recv().await.unwrap();
            first.status.send("ready".to_owned()).unwrap();
            let none = tokio::time::timeout(every * 100, beats.recv()).await;
            assert!(none.is_err(), "the store has not answered");
            first.store.send(()).unwrap();
            let second: Beat = beats.recv().await.unwrap();
            // Its queue is full: the next beat is tried all the same.
            second.status.send("ready".to_owned()).unwrap();
            drop(second.store);
            assert!(beats.recv().await.is_some());
            stop.cancel();
        };
        tokio::join!(keeping, answering);
    }
}
