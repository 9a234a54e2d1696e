//! The whole of an answer that its final line has cut short.
//!
//! Owns how a cut text is told from another one, and where the whole is: in the history. Must not
//! know where it is shown.

use agentd_protocol::line::TurnFacts;
use agentd_protocol::{JobId, Line};

use agentd_client::client::Client;
use agentd_client::wire::Received;

/// Around the number of bytes that are left out, where they were.
const BEFORE: &str = "\n[… ";
const BEHIND: &str = " bytes left out …]\n";

/// What a final line knows of its turn.
pub(super) fn facts(line: &Line) -> Option<&TurnFacts> {
    match line {
        Line::MessageEnd(end) => Some(&end.turn),
        Line::Error(error) => error.turn.as_ref(),
        _ => None,
    }
}

fn facts_mut(line: &mut Line) -> Option<&mut TurnFacts> {
    match line {
        Line::MessageEnd(end) => Some(&mut end.turn),
        Line::Error(error) => error.turn.as_mut(),
        _ => None,
    }
}

/// Beginning, number of bytes left out and end, for each place that may be the cut: a text may have
/// such words itself.
fn cuts(cut: &str) -> impl Iterator<Item = (&str, usize, &str)> {
    cut.match_indices(BEFORE).filter_map(|(at, mark)| {
        let (number, tail) = cut[at + mark.len()..].split_once(BEHIND)?;
        Some((&cut[..at], number.parse().ok()?, tail))
    })
}

/// Is the one what is left of the other?
pub(super) fn is_of(cut: &str, whole: &str) -> bool {
    cuts(cut).any(|(head, left_out, tail)| {
        head.len().checked_add(left_out) == whole.len().checked_sub(tail.len())
            && whole.starts_with(head)
            && whole.ends_with(tail)
    })
}

/// What to say of a text that is shown cut short.
pub(super) fn missing(cut: &str, job: Option<JobId>) -> String {
    // The longest that is left out, as a text that was cut has at least one.
    let left_out = cuts(cut).map(|(_, left_out, _)| left_out).max();
    let missing = match left_out {
        Some(bytes) => format!("{bytes} bytes of the answer are missing here"),
        None => "the answer is cut short here".to_owned(),
    };
    match job {
        Some(job) => format!("{missing}: `agentctl history --job {job} --full` shows all of it"),
        None => missing,
    }
}

/// Puts the whole into a final line that has it cut short; where it can't be had, the line stays as
/// it is.
pub(super) async fn complete(client: &mut Client, received: &mut Received) {
    let Some(turn) = received.line.as_mut().and_then(facts_mut) else {
        return;
    };
    if let (true, Some(session), Some(job)) = (turn.truncated, &turn.session, turn.job)
        && let Some(whole) = fetched(client, session, job, &turn.text).await
    {
        turn.text = whole;
        turn.truncated = false;
    }
}

/// The message of a turn that this was cut from, the last one first.
async fn fetched(client: &mut Client, session: &str, job: JobId, cut: &str) -> Option<String> {
    let turns = client.session_history(session, Some(job)).await.ok()?;
    let messages = turns.into_iter().flat_map(|turn| turn.messages);
    let mut numbers: Vec<u32> = messages.map(|message| message.message).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for message in numbers.into_iter().rev() {
        let whole = client.whole_message(session, job, message).await.ok()?;
        if is_of(cut, &whole) {
            return Some(whole);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_text_is_of_its_whole_only() {
        let cut = "abc\n[… 4 bytes left out …]\nhij";
        assert!(is_of(cut, "abcdefghij"));
        for other in ["abcdefghi", "abcdefghijj", "xbcdefghij", "", "abc", cut] {
            assert!(!is_of(cut, other), "{other}");
        }
        // The words of the text itself are no cut.
        let quoted = "a\n[… 9 bytes left out …]\nb\n[… 2 bytes left out …]\nc";
        assert!(is_of(quoted, "a\n[… 9 bytes left out …]\nbxxc"));
        assert!(!is_of("no cut", "no cut"));
    }

    #[test]
    fn missing_bytes_are_told_with_their_place() {
        let told = missing("a\n[… 4 bytes left out …]\nb", Some(JobId(7)));
        assert_eq!(
            told,
            "4 bytes of the answer are missing here: `agentctl history --job j7 --full` shows all \
             of it"
        );
    }
}
