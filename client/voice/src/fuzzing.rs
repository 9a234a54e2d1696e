//! What has to hold of a transcript and of a file in the spool, whatever they are.
//!
//! Owns the rules that `tests/fuzz` and the corpus are held to. Must not be part of the product: it
//! is built for tests and for the fuzzer only.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use super::spool::Spool;
use super::{MAX_TRANSCRIPT, transcript};

/// The oldest name that there can be.
const OLDEST: &str = "00000000000000000001";

/// A transcript is text that no terminal obeys; looked at again, it is the same. A file in the spool is
/// an utterance or says why not, and none hides another. An utterance is written as it is read.
pub fn spool(bytes: &[u8]) {
    if let Ok(text) = transcript(bytes) {
        assert_eq!(transcript(text.as_bytes()).as_ref(), Ok(&text));
        let obeyed = text
            .chars()
            .find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
        assert_eq!(obeyed, None);
        assert!(text.len() <= MAX_TRANSCRIPT);
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("agentd-fuzz-spool-{}-{number}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    let looked = fs::create_dir(&dir).and_then(|()| {
        let spool = Spool::open(&dir)?;
        fs::write(spool.dir().join("new").join(OLDEST), bytes)?;
        looked(&spool)
    });
    let _stays = fs::remove_dir_all(&dir);
    if let Err(error) = looked {
        panic!("{error}");
    }
}

fn looked(spool: &Spool) -> std::io::Result<()> {
    let mut waiting = spool.waiting()?;
    assert_eq!(waiting.len(), 1, "one file is one utterance");
    let Some((name, Ok(utterance))) = waiting.pop() else {
        let machines = spool.machines()?;
        assert!(machines.is_empty(), "{machines:?} of what can't be read");
        return Ok(());
    };
    let again = spool.put(&utterance)?;
    assert!(again > name, "it was put before what waits");
    let both = spool.waiting()?;
    assert_eq!(both.len(), 2);
    let written = serde_json::to_string(&utterance)?;
    for (name, read) in both {
        match read {
            Ok(read) => assert_eq!(serde_json::to_string(&read)?, written, "{name:?}"),
            Err(why) => panic!("{name:?}: {why}"),
        }
    }
    spool.put_aside(&name)?;
    spool.remove(&again)?;
    assert!(spool.waiting()?.is_empty());
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzzing_corpus_of_the_spool_holds() {
        crate::replay::replay("spool", super::spool);
    }
}
