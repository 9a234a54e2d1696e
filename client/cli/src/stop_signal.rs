//! The signals that end a command which shows a turn.
//!
//! Owns which they are. Must not know what becomes of the turn.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Exit;

/// One that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl From<StopSignal> for Exit {
    fn from(signal: StopSignal) -> Self {
        match signal {
            StopSignal::Interrupt => Self::Interrupted,
            StopSignal::Terminate => Self::Terminated,
        }
    }
}

/// They are heard from now on, and end the process no more.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    pub(super) fn hear() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> StopSignal {
        tokio::select! {
            () = came(&mut self.interrupt) => StopSignal::Interrupt,
            () = came(&mut self.terminate) => StopSignal::Terminate,
        }
    }
}

async fn came(signal: &mut Signal) {
    if signal.recv().await.is_none() {
        // None can come any more.
        std::future::pending::<()>().await;
    }
}
