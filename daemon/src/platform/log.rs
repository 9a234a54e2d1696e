//! Where the daemon's log goes, and how much of it.
//!
//! Owns `AGENTD_LOG`. Must not know what is logged.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

/// Starts logging: to the journal when standard error leads there, else to standard error.
///
/// `usual` is the level when `AGENTD_LOG` says nothing. `AGENTD_LOG` is a level or a list of directives as in `info,agentd_daemon::store=debug`; what
/// can't be read in it counts as `usual`. There are no filters by span or field: their regular
/// expressions would be a sixth of the program.
pub fn start(usual: &str) -> Result<(), TryInitError> {
    let wanted = std::env::var("AGENTD_LOG").unwrap_or_default();
    let filter = filter(&wanted, usual);
    let registry = tracing_subscriber::registry().with(filter);
    #[cfg(target_os = "linux")]
    if leads_to_journal()
        && let Ok(journal) = tracing_journald::layer()
    {
        return registry.with(journal).try_init();
    }
    let stderr = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stderr);
    registry.with(stderr).try_init()
}

fn filter(wanted: &str, usual: &str) -> Targets {
    let read = |words: &str| words.parse().ok();
    let wanted = Some(wanted).filter(|words| !words.trim().is_empty());
    wanted
        .and_then(read)
        .or_else(|| read(usual))
        .unwrap_or_default()
}

/// `JOURNAL_STREAM` is inherited further than the stream itself, so it is compared.
#[cfg(target_os = "linux")]
fn leads_to_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    nix::sys::stat::fstat(std::io::stderr())
        .is_ok_and(|stderr| is_stream(&named, stderr.st_dev, stderr.st_ino))
}

#[cfg(target_os = "linux")]
fn is_stream(named: &str, dev: u64, inode: u64) -> bool {
    named == format!("{dev}:{inode}")
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_level_or_directives_are_read_and_nonsense_counts_as_the_usual() {
        let shows = |wanted: &str, target: &str, level: &Level| {
            filter(wanted, "info").would_enable(target, level)
        };
        assert!(shows("", "agentd_daemon", &Level::INFO));
        assert!(!shows("", "agentd_daemon", &Level::DEBUG));
        assert!(shows("debug", "agentd_daemon", &Level::DEBUG));
        let directives = "warn,agentd_daemon::store=debug";
        assert!(shows(directives, "agentd_daemon::store", &Level::DEBUG));
        assert!(!shows(directives, "agentd_daemon::server", &Level::INFO));
        assert!(shows("=what=", "agentd_daemon", &Level::INFO));
    }

    #[test]
    fn the_journal_is_used_only_when_this_very_stream_leads_there() {
        assert!(is_stream("8:42", 8, 42));
        assert!(!is_stream("8:42", 8, 43));
        assert!(!is_stream("", 8, 42));
    }
}
