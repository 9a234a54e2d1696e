//! Processes that are not read, as the store is behind.

use super::*;

#[tokio::test]
async fn paused_process_is_not_read_nor_called_stuck() {
    let dir = tempfile::tempdir().unwrap();
    let said = dir.path().join("said");
    let script = format!(
        "echo up; read a; echo $a; touch {}; exec sleep 300",
        said.display()
    );
    let mut running = Setup::sh(&script).start();
    running.says("up").await;
    running.command(ProcessCommand::Pause(true));
    running.command(ProcessCommand::Tell(WorkerCommand::Cancel {
        turn: TurnId(1),
    }));
    while !said.exists() {
        tokio::task::yield_now().await;
    }
    let brief = Duration::from_millis(50);
    let heard = tokio::time::timeout(brief, running.inbox.recv()).await;
    assert!(heard.is_err(), "it was read: {heard:?}");
    // It takes no more, and has the time that the store takes.
    let question = "x".repeat(1024 * 1024);
    let reply = Reply::Denied;
    running.command(ProcessCommand::Tell(WorkerCommand::Answer {
        question,
        reply,
    }));
    tokio::time::pause();
    let heard = tokio::time::timeout(Duration::from_secs(60), running.inbox.recv()).await;
    tokio::time::resume();
    assert!(heard.is_err(), "it was called stuck: {heard:?}");
    running.command(ProcessCommand::Pause(false));
    running.says("x").await;
    running.command(ProcessCommand::End(StopStage::Kill));
    running.end().await;
}
