//! What was said, on its way to a session: its words, its key, and where it waits.
//!
//! Owns the text that an agent gets and the key that makes it one turn however often it is sent.
//! `spool` keeps it on disk until a daemon has it, `deliver` brings it there in order. A transcript
//! is text and nothing else: it travels inside of JSON, and no command line ever has it.

pub mod age;
pub mod deliver;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod link;
pub mod rate;
#[cfg(test)]
#[path = "../../../tests/fuzz/replay.rs"]
mod replay;
pub mod spool;

use agentd_protocol::request::Send;
use serde::{Deserialize, Serialize};

use self::age::Moment;

/// Where everything goes that was said, unless somebody says otherwise.
pub const SESSION: &str = agentd_client::send_only::SESSION;
/// What waited longer was meant for another moment. Well below the 24 h for which a daemon knows
/// what it was given before.
pub const MAX_AGE: &str = "12h";
/// More than anybody says at once; what is longer is something else.
pub const MAX_TRANSCRIPT: usize = 8 * 1024;

/// One utterance as it waits: everything that is needed to send it, again if need be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Utterance {
    /// The socket, or `ssh://` and the machine; empty for this machine's own.
    pub to: String,
    /// What the recogniser calls it.
    pub id: String,
    /// When it was said, in milliseconds since 1970.
    pub said_at: i64,
    /// The same by a clock that nobody sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moment: Option<Moment>,
    /// The whole request, with its key: the same again is the same turn.
    pub send: Send,
}

/// A transcript as text: UTF-8, not blank, without what a terminal would obey.
///
/// # Errors
/// Says what was found instead.
pub fn transcript(bytes: &[u8]) -> Result<String, String> {
    if bytes.len() > MAX_TRANSCRIPT {
        return Err(format!(
            "the transcript has more than {MAX_TRANSCRIPT} bytes"
        ));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|why| format!("the transcript is not UTF-8: byte {}", why.valid_up_to()))?;
    let kept = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let text: String = text.chars().filter(kept).collect();
    match text.trim() {
        "" => Err("there is no transcript".to_owned()),
        text => Ok(text.to_owned()),
    }
}

/// The transcript behind the words that say how it came about.
#[must_use]
pub fn prefixed(machine: &str, transcript: &str) -> String {
    format!(
        "User talked via voice recognition on {machine} - repeat prompt first + remember some words might be incorrectly transcribed.\n\n{transcript}"
    )
}

/// The key of an utterance of this device.
#[must_use]
pub fn key(device: &str, utterance: &str) -> String {
    format!("voice-{device}-{utterance}")
}

/// What people call this machine.
#[must_use]
pub fn machine() -> String {
    let name = if cfg!(target_os = "macos") {
        let mut scutil = std::process::Command::new("/usr/sbin/scutil");
        let said = scutil.args(["--get", "ComputerName"]).output();
        said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned())
    } else {
        std::fs::read_to_string("/proc/sys/kernel/hostname")
    };
    let name: String = name.unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    match name.trim() {
        "" => "this Mac".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_before_a_transcript_are_these_only() {
        assert_eq!(
            prefixed("Ann's Mac", "what is on today"),
            "User talked via voice recognition on Ann's Mac - repeat prompt first + remember some words might be incorrectly transcribed.\n\nwhat is on today"
        );
        assert!(!machine().is_empty());
    }

    #[test]
    fn a_transcript_is_text_whatever_it_looks_like() {
        let hostile = "-rf `id` $(id) '; id; \"\n\\ ${HOME} ü 漢";
        assert_eq!(transcript(hostile.as_bytes()).as_deref(), Ok(hostile));
        assert_eq!(transcript(b" a\x1b[2J\x00b\r\n").as_deref(), Ok("a[2Jb"));
        for wrong in [&b""[..], b" \n\t", b"\x1b\x07", b"a\xff"] {
            assert!(transcript(wrong).is_err(), "{wrong:?}");
        }
        let long = vec![b'a'; MAX_TRANSCRIPT + 1];
        assert!(transcript(&long[1..]).is_ok());
        let why = transcript(&long).unwrap_err();
        assert!(why.contains("8192 bytes"), "{why}");
    }
}
