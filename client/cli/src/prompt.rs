//! What is said in a turn: the argument, standard input, or both.
//!
//! Owns when standard input is read, and what becomes of bytes that aren't text. Must not know who
//! is told.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;

use agentd_protocol::attachment::{self, Attachment};
use agentd_protocol::limits::MAX_LINE_IN;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};

use super::first_use::Notes;
use super::output;

/// A pipe that says nothing for so long may have been passed on by mistake: it is told that it is
/// waited for.
const SILENT_MS: u16 = 3_000;

/// A text, and what goes with it.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Prompt {
    pub(super) text: String,
    /// Standard input, where it is a picture or a PDF.
    pub(super) attached: Option<Attachment>,
}

/// Why there is no prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoPrompt {
    /// Nobody gave one.
    NotGiven,
    /// What was to have it has nothing.
    EmptyInput,
}

impl NoPrompt {
    /// In words.
    pub(super) const fn error(self) -> &'static str {
        match self {
            Self::NotGiven => "there is no text to send",
            Self::EmptyInput => "standard input is empty, and there is no other text to send",
        }
    }
}

/// The argument, and behind it what is piped in; standard input alone for `-`, or when there is no
/// argument and it isn't a terminal.
///
/// A pipe or a file is read to its end. What else a program may have been started with (a socket, as
/// by ssh, `/dev/null`, a terminal) is left alone when there is an argument: nobody meant it.
pub(super) fn prompt_of(
    argument: Option<&str>,
    notes: Notes,
) -> io::Result<Result<Prompt, NoPrompt>> {
    let stdin = io::stdin();
    match argument {
        Some("-") => {}
        Some(text) if text.trim().is_empty() => return Ok(Err(NoPrompt::NotGiven)),
        Some(text) if !is_piped(&stdin) => return Ok(Ok(Prompt::of(text))),
        Some(text) => {
            tell_silence(&stdin);
            let piped = read(stdin.lock())?;
            // A program, or cron, may have none to pass on; somebody who looks meant one.
            if piped.is_empty() && notes == Notes::Told && io::stderr().is_terminal() {
                output::note("standard input is empty: nothing goes behind the prompt");
            }
            return Ok(Ok(joined(text, piped)));
        }
        // Nobody is asked for a text by a cursor that blinks.
        None if stdin.is_terminal() => return Ok(Err(NoPrompt::NotGiven)),
        None => {}
    }
    Ok(alone(read(stdin.lock())?).ok_or(NoPrompt::EmptyInput))
}

/// The same where nothing can go with it, and an argument is all.
pub(super) fn text_of(argument: &str) -> io::Result<Option<String>> {
    let text = match argument {
        "-" => text_of_bytes(read(io::stdin().lock())?),
        text => text.to_owned(),
    };
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

impl Prompt {
    fn of(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            attached: None,
        }
    }
}

/// Does somebody hand something over?
fn is_piped(stdin: &impl AsFd) -> bool {
    fstat(stdin).is_ok_and(|stat| {
        let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
        kind == SFlag::S_IFIFO || kind == SFlag::S_IFREG
    })
}

fn tell_silence(stdin: &impl AsFd) {
    let mut looked = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let ready = poll(&mut looked, PollTimeout::from(SILENT_MS));
    if ready == Ok(0) {
        output::note(
            "standard input is a pipe and goes into the prompt: waiting for its end; \
             `< /dev/null` leaves it out",
        );
    }
}

/// All of it, or so much that it is too long for a request: that is said when it is sent.
fn read(stdin: impl Read) -> io::Result<Vec<u8>> {
    let most = u64::try_from(MAX_LINE_IN).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    stdin.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A prompt with what was piped in behind it.
fn joined(text: &str, piped: Vec<u8>) -> Prompt {
    if let Some(mime) = document(&piped) {
        let kind = if mime == attachment::PDF {
            "a PDF"
        } else {
            "a picture"
        };
        output::note(&format!("standard input is {kind}, and is attached"));
        let attached = Attachment {
            mime: Some(mime.to_owned()),
            data: Some(STANDARD.encode(piped)),
            name: Some("standard input".to_owned()),
            ..Attachment::default()
        };
        return Prompt {
            text: text.to_owned(),
            attached: Some(attached),
        };
    }
    let piped = text_of_bytes(piped);
    if piped.trim().is_empty() {
        return Prompt::of(text);
    }
    Prompt::of(&format!("{text}\n\n{piped}"))
}

/// What was piped in as the prompt.
fn alone(piped: Vec<u8>) -> Option<Prompt> {
    let text = text_of_bytes(piped);
    Some(Prompt::of(&text)).filter(|prompt| !prompt.text.trim().is_empty())
}

/// The type of what is no text, and can go with a turn.
fn document(bytes: &[u8]) -> Option<&'static str> {
    attachment::type_of(bytes).filter(|mime| *mime != attachment::TEXT)
}

/// Text, whatever it is: bytes that aren't UTF-8 are replaced, and that is told.
pub(super) fn text_of_bytes(bytes: Vec<u8>) -> String {
    match String::from_utf8_lossy(&bytes) {
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(text) => {
            output::note(
                "standard input is not all UTF-8: what isn't is replaced by U+FFFD; \
                 `--attach FILE` sends pictures and PDF as they are",
            );
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_has_what_is_piped_behind_it() {
        let text = |piped: &[u8]| joined("sum up", piped.to_vec()).text;
        assert_eq!(text(b"a\nb\n"), "sum up\n\na\nb\n");
        assert_eq!(text(b""), "sum up");
        assert_eq!(text(b" \n"), "sum up");
        assert_eq!(text(b"a\xffb"), "sum up\n\na\u{fffd}b");
    }

    #[test]
    fn prompt_goes_with_a_picture_that_is_piped() {
        let prompt = joined("what is it?", b"\x89PNG\r\n\x1a\nx".to_vec());
        assert_eq!(prompt.text, "what is it?");
        let attached = prompt.attached.unwrap();
        assert_eq!(attached.mime.as_deref(), Some("image/png"));
        assert_eq!(attached.data.as_deref(), Some("iVBORw0KGgp4"));
        assert!(joined("sum up", b"a\n".to_vec()).attached.is_none());
    }

    #[test]
    fn prompt_that_is_blank_is_none() {
        let blank = prompt_of(Some(" "), Notes::Told).unwrap();
        assert_eq!(blank, Err(NoPrompt::NotGiven));
        assert_eq!(text_of(" ").unwrap(), None);
        assert_eq!(alone(b"\n".to_vec()), None);
    }
}
