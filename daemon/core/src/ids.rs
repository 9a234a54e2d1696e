//! Names of things inside the daemon. Plain numbers; nothing here outlives the process, except
//! what `agentd-protocol` names.

use std::time::Duration;

/// One connection, numbered by the shell in the order of accepting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// One process slot. It keeps its number when its process is replaced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId(pub u64);

/// Which spawn of a slot. What arrives with an older one is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u64);

/// One turn handed to a worker: the name by which core and adapter speak of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TurnId(pub u64);

/// What an answer of the store refers to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// The clocks, read by the owner for each event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Now {
    /// Since the daemon started; never goes back, counts suspend where the system's clock does.
    pub mono: Duration,
    /// Milliseconds since the machine was started, suspend included; never goes back.
    pub boot_ms: u64,
    /// Milliseconds since 1970; may jump.
    pub wall_ms: i64,
}
