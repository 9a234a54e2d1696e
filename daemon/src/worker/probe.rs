//! One question to a program that is not a worker: what `--version` or `--help` prints.
//!
//! Owns its limits. It runs in a group of its own, with no key in its environment and `/` as its
//! directory, and is gone with all it started when this is over or nobody waits any more. Must
//! not know what the answer is for.

use std::sync::Arc;
use std::time::Duration;

use agentd_core::worker::Exit;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

use super::reap::Leader;
use super::said::Printed;
use super::spawn::{self, Plan, Started};

/// A version is printed within this time, or never: the slowest agent known takes 4 s.
pub(super) const WITHIN: Duration = Duration::from_secs(10);
/// What is still in the pipes of a dead process is there at once.
const REST_WITHIN: Duration = Duration::from_millis(200);
/// The longest help known has 30 KB; more is no answer.
const MOST: usize = 256 * 1024;

/// Why there is no answer.
pub(super) enum NoAnswer {
    /// It ended with an error.
    Ended(Exit, Printed),
    /// It can't be run, or doesn't do what was asked; in words for a person.
    Broken(String),
    /// Nobody knows: another time it may do better.
    Unclear(String),
}

/// It prints more than [`MOST`].
struct Flood;

/// A leader that doesn't outlive whoever waits for it.
struct ProbeLeader(Option<Leader>);

impl Drop for ProbeLeader {
    fn drop(&mut self) {
        let Some(mut leader) = self.0.take() else {
            return;
        };
        leader.kill();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                leader.dead().await;
                leader.clear().await;
            });
        }
    }
}

/// Runs a program to its end.
pub(super) async fn ask(plan: Plan) -> Result<Printed, NoAnswer> {
    let Started { mut child, group } =
        spawn::start(&plan, None, Arc::new(|_| {}))
            .await
            .map_err(|failure| {
                let permanent = failure.is_permanent();
                let why = failure.into_error();
                if permanent {
                    NoAnswer::Broken(why)
                } else {
                    NoAnswer::Unclear(why)
                }
            })?;
    // One that asks something gets an end, and no answer that would be waited for.
    drop(child.stdin.take());
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let unclear = |why: &str| NoAnswer::Unclear(why.to_owned());
    let pid = child.id().ok_or_else(|| unclear("it was gone at once"))?;
    let mut held = ProbeLeader(Some(Leader::new(child, pid, plan.mark, group)));
    let mut printed = Printed::default();
    let ended = timeout(WITHIN, async {
        let Some(leader) = &mut held.0 else {
            return Ok(());
        };
        let read = tokio::select! {
            // Its end is enough: what it started may hold the pipes for long.
            () = leader.dead() => return Ok(()),
            read = read(&mut stdout, &mut stderr, &mut printed) => read,
        };
        if read.is_ok() {
            leader.dead().await;
        }
        read
    })
    .await;
    if ended.is_err()
        && let Some(leader) = &held.0
    {
        leader.kill();
    }
    let exit = match held.0.take() {
        Some(leader) => leader.clear().await,
        None => Exit::Code(-1),
    };
    let flooded = || NoAnswer::Broken(format!("printed more than {MOST} bytes"));
    match ended {
        Err(_) => {
            let late = format!("gave no answer within {} s", WITHIN.as_secs());
            return Err(NoAnswer::Unclear(late));
        }
        Ok(Err(Flood)) => return Err(flooded()),
        Ok(Ok(())) => {}
    }
    let rest = read(&mut stdout, &mut stderr, &mut printed);
    if let Ok(Err(Flood)) = timeout(REST_WITHIN, rest).await {
        return Err(flooded());
    }
    match exit {
        Exit::Code(0) => Ok(printed),
        exit => Err(NoAnswer::Ended(exit, printed)),
    }
}

async fn read(
    stdout: &mut Option<impl AsyncRead + Unpin>,
    stderr: &mut Option<impl AsyncRead + Unpin>,
    printed: &mut Printed,
) -> Result<(), Flood> {
    let Printed {
        stdout: out,
        stderr: err,
    } = printed;
    tokio::try_join!(fill(stdout, out), fill(stderr, err))?;
    Ok(())
}

/// Keeps what it has when it is dropped in between.
async fn fill(from: &mut Option<impl AsyncRead + Unpin>, to: &mut Vec<u8>) -> Result<(), Flood> {
    let Some(from) = from else { return Ok(()) };
    while matches!(from.read_buf(to).await, Ok(1..)) {
        if to.len() > MOST {
            return Err(Flood);
        }
    }
    Ok(())
}
