//! What the core wants logged, as lines of the log.
//!
//! Owns the names of their fields: `job`, `session`, `agent`, `worker`. Must not know where the log
//! is, nor what is worth a line.

use agentd_core::log::{Entry, Weight};

/// Writes one line. The target is that of the core, so that `agentd_core=debug` means these lines.
pub(super) fn log(entry: &Entry) {
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                target: "agentd_core",
                job = entry.about.job.map(tracing::field::display),
                session = entry.about.session.as_deref(),
                agent = entry.about.agent.as_deref(),
                worker = entry.about.worker.map(|(worker, _)| worker.0),
                generation = entry.about.worker.map(|(_, generation)| generation.0),
                "{}",
                entry.what
            )
        };
    }
    match entry.weight() {
        Weight::Warning => line!(warn),
        Weight::Info => line!(info),
        Weight::Debug => line!(debug),
    }
}
