//! What the end of a process costs whoever else is there: Linux only, where ends are heard of.

use super::*;
use crate::worker::family;

/// What this thread has computed so far.
fn clock() -> Duration {
    nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID
        .now()
        .unwrap()
        .into()
}

/// What the owner's thread computes for each process that ends, in microseconds.
async fn cpu_of_an_end(ends: u32) -> u128 {
    let script = format!(
        "echo up; read go; i=0; while [ $i -lt {ends} ]; do setsid -f /bin/true; i=$((i+1)); done; echo done"
    );
    let mut running = Setup::sh(&script).start();
    running.says("up").await;
    let before = clock();
    let question = "go\n".to_owned();
    let reply = Reply::Denied;
    running.command(ProcessCommand::Tell(WorkerCommand::Answer {
        question,
        reply,
    }));
    running.says("done").await;
    let took = clock() - before;
    running.end().await;
    took.as_micros() / u128::from(ends)
}

#[tokio::test]
async fn ends_cost_the_same_among_many_processes() {
    let alone = cpu_of_an_end(100).await;
    let mut workers = Vec::new();
    for _ in 0..14 {
        let mut worker = Setup::sh("echo up; read never").start();
        worker.says("up").await;
        workers.push(worker);
    }
    // Of somebody else: in no group and of no mark of ours.
    let mut others: Vec<_> = (0..300)
        .map(|_| {
            std::process::Command::new("/bin/sleep")
                .arg("60")
                .spawn()
                .unwrap()
        })
        .collect();
    let crowded = cpu_of_an_end(100).await;
    let before = clock();
    let seen = family::table().len();
    let a_look = (clock() - before).as_micros();
    for other in &mut others {
        other.kill().unwrap();
        other.wait().unwrap();
    }
    for mut worker in workers {
        worker.command(ProcessCommand::End(StopStage::Kill));
        worker.end().await;
    }
    println!(
        "CPU of an end: {alone} us alone, {crowded} in a crowd; of a look at {seen}: {a_look}"
    );
    // With as many processes that is far less than to look at each, and nobody did.
    assert!(crowded * 4 < a_look, "{crowded} us, {a_look} us");
    assert!(crowded < 5 * alone + 100, "{crowded} us, {alone} us alone");
}
