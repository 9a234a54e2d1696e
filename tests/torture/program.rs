//! Clients that are programs: `agentctl send`, killed in the middle of it, and asked again.
//!
//! Owns their processes. Must not know when they are killed.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::history::{Asked, Asker, Retry};
use crate::place::Environment;
use crate::random::Random;
use crate::record::{Record, held};
use crate::work::{Request, Work};

/// The program that runs now, to be killed by whoever likes.
#[derive(Clone, Default)]
pub(crate) struct Victim(Arc<Mutex<Option<Child>>>);

impl Victim {
    /// `kill -9`; false when there was none.
    pub(crate) fn kill(&self) -> bool {
        held(&self.0)
            .as_mut()
            .is_some_and(|child| child.kill().is_ok())
    }

    fn set(&self, child: Child) {
        *held(&self.0) = Some(child);
    }

    fn reap(&self) {
        if let Some(mut child) = held(&self.0).take() {
            let _status = child.wait();
        }
    }
}

/// May a program run its turn without the daemon?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fallback {
    /// Half of them may.
    Allowed,
    /// It would write to a disk that is the daemon's alone.
    Never,
}

/// A daemon that is down is tried again so much later.
const AGAIN_AFTER: Duration = Duration::from_millis(30);
/// The only `id` on the connection of a program.
const ID: u64 = 1;

/// Runs one program after the other until the run stops, and then until the last one has its end.
pub(crate) fn run_and_run_again(
    record: &Arc<Record>,
    environment: &Environment,
    victim: &Victim,
    fallback: Fallback,
    mut work: Work,
    mut random: Random,
) {
    let mut open: Option<Request> = None;
    while !record.is_stopping() || open.is_some() {
        let request = open.take().unwrap_or_else(|| work.next_alone());
        let mut command = environment.agentctl();
        command.args(["send", "--json", "--agent", request.agent]);
        command.args(["--idempotency-key", &request.nonce]);
        if request.retry == Retry::Auto {
            command.args(["--retry", "auto"]);
        }
        if fallback == Fallback::Never || random.percent(50) {
            command.arg("--no-fallback");
        }
        command.arg(&request.text);
        if !has_ended(record, &request, command, victim) {
            open = Some(request);
            std::thread::park_timeout(AGAIN_AFTER);
        }
    }
}

/// Runs the program and records what it printed; did it tell an end?
fn has_ended(record: &Record, request: &Request, mut command: Command, victim: &Victim) -> bool {
    let conn = record.conn();
    record.asked(Asked {
        conn,
        id: ID,
        by: Asker::Program,
        key: request.key.clone(),
        nonce: request.nonce.clone(),
        retry: request.retry,
    });
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("agentctl starts");
    let mut output = child.stdout.take().expect("its output is a pipe");
    victim.set(child);
    let mut text = Vec::new();
    let _cut = output.read_to_end(&mut text);
    victim.reap();
    let mut ended = false;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        // The last one may be cut off.
        let Ok(mut line) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        let last = line["type"] == "message_end" || line["type"] == "error";
        ended |= last && (line["job"].is_string() || line["retryable"] == false);
        line["id"] = json!(ID);
        record.heard(conn, line);
    }
    ended
}
