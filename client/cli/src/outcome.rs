//! What is said of how a turn ended, and the exit code of that.
//!
//! Owns the sentences and how somebody asks again. Must not know how a turn is run (`turn`).

use std::io;

use agentd_protocol::line::{ErrorLine, Stop};
use agentd_protocol::request::Send;
use agentd_protocol::{Code, JobId, Line};

use super::exit::{self, Exit};
use super::turn::{AcceptedTurn, Fate, Interrupted, TurnOutcome};
use super::typed::{daemon_of, quoted, words};
use super::{output, typed, whole, wording};
use agentd_client::client::ClientError;
use agentd_client::endpoint::LocalEndpoint;
use agentd_client::fallback::Lock;
use agentd_client::places::Environment;
use agentd_client::wire::Received;

/// The commands that send one turn, and their option for its key.
const SENDING: &[&str] = &["send", "agent", "retry"];
const KEY_OPTION: &str = "--idempotency-key";

/// Says why a command ends here, and gives its exit code.
pub(super) fn ends(exit: Exit, error: &str, hint: Option<&str>) -> Exit {
    output::error(error, hint);
    exit
}

/// The exit code of an outcome; says on standard error what went wrong.
pub(super) fn conclude(outcome: &TurnOutcome, again: Again<'_>) -> Exit {
    match outcome {
        TurnOutcome::Left(signal) => (*signal).into(),
        TurnOutcome::Waited(job) => {
            let (what, hint) = match job {
                Some(job) => (
                    format!("{job} goes on by itself"),
                    answer_hint(&words(), *job),
                ),
                None => (
                    "whether the turn was accepted isn't known".to_owned(),
                    again.hint(None),
                ),
            };
            output::note(&format!("no longer waiting; {what}"));
            output::err(&hint);
            Exit::Unknown
        }
        TurnOutcome::Unwritten(error, job) => unwritten(error, *job),
        TurnOutcome::Final(received, interrupted) => {
            let exit = received.line.as_ref().map_or(Exit::Failed, exit::of_line);
            let said = match &received.line {
                Some(Line::Error(error)) => {
                    let hint = wording::hint(error).or_else(|| again.after(error));
                    let hint = hint.map(|hint| typed::there(&hint));
                    output::error(&again.named(&error.error), hint.as_deref());
                    true
                }
                Some(Line::MessageEnd(end)) if end.stop == Stop::Refusal => {
                    output::error(&refused(&received.text), None);
                    true
                }
                Some(_) => false,
                None => {
                    let error = "the final line is of a kind that this version does not know";
                    output::error(error, None);
                    true
                }
            };
            if exit == Exit::Unknown {
                output::err(&again.hint(turn_of(received)));
            }
            match interrupted {
                Interrupted::Yes => Exit::Interrupted,
                Interrupted::No => {
                    if exit == Exit::Failed && !said {
                        let job = received.line.as_ref().and_then(whole::facts);
                        let hint = job.and_then(|turn| turn.job).map(|job| {
                            let there = daemon_of(&words());
                            format!("it is {job}: `agentctl{there} retry {job}` sends it again")
                        });
                        output::error("the turn was cancelled", hint.as_deref());
                    }
                    exit
                }
            }
        }
        TurnOutcome::Failed(error, turn) => {
            tell_client_error(error);
            let exit = exit::of_client_error(error);
            if exit == Exit::Unknown {
                output::err(&again.hint(*turn));
            }
            exit
        }
    }
}

/// The turn that a final line without its outcome is of.
fn turn_of(received: &Received) -> Option<AcceptedTurn> {
    let job = match &received.line {
        Some(Line::Error(error)) => error.turn.as_ref()?.job?,
        _ => return None,
    };
    let fate = Fate::GoesOn;
    Some(AcceptedTurn { job, fate })
}

/// The answer is kept, whoever could not be told.
pub(super) fn unwritten(error: &io::Error, job: Option<JobId>) -> Exit {
    match job {
        Some(job) => output::error(
            &format!("the answer of {job} is not written: {error}"),
            Some(&format!("`agentctl history --job {job} --full` shows it")),
        ),
        None => output::error(&error.to_string(), None),
    }
    Exit::Failed
}

/// That a model refused, with the provider's word where the final line has it.
fn refused(line: &str) -> String {
    #[derive(Default, serde::Deserialize)]
    struct Refused {
        refusal: Option<String>,
    }
    let refused: Refused = serde_json::from_str(line).unwrap_or_default();
    match refused.refusal {
        Some(why) => format!("the model refused: {why}"),
        None => "the model refused".to_owned(),
    }
}

/// How an outcome is asked for that isn't known.
#[derive(Clone, Copy)]
pub(super) enum Again<'a> {
    /// By the key of our send.
    Send(&'a Send),
    /// By its number.
    Job(JobId),
}

impl Again<'_> {
    /// What to do, about the job if its number is known.
    fn hint(self, turn: Option<AcceptedTurn>) -> String {
        let words = words();
        let (turn, send) = match self {
            Self::Job(job) => {
                let fate = Fate::GoesOn;
                return turn_hint(&words, AcceptedTurn { job, fate });
            }
            Self::Send(send) => (turn, send),
        };
        let about = turn.map_or_else(String::new, |turn| turn_hint(&words, turn));
        let key = send.idempotency_key.as_deref().unwrap_or_default();
        about + &retry_hint(SENDING, KEY_OPTION, key, send.session.as_deref())
    }

    /// What to do about a turn that ended with its daemon.
    fn after(self, error: &ErrorLine) -> Option<String> {
        let job = error.turn.as_ref()?.job?;
        let is_whole = match self {
            Self::Send(send) => send.attachments.is_empty(),
            Self::Job(_) => true,
        };
        (error.code == Code::Interrupted).then(|| interrupted_hint(&words(), job, is_whole))
    }

    /// The daemon counts attachments; who sent them knows their files.
    fn named(self, error: &str) -> String {
        let mut error = error.to_owned();
        if let Self::Send(send) = self {
            for (number, of) in send.attachments.iter().enumerate() {
                if let Some(name) = of.path.as_ref().or(of.name.as_ref()) {
                    error =
                        error.replace(&format!("`attachments[{number}]`"), &format!("`{name}`"));
                }
            }
        }
        wording::error(&error).into_owned()
    }
}

/// A failed conversation on standard error.
pub(super) fn tell_client_error(error: &ClientError) {
    let hint = match error {
        // It has said itself what is wrong: there is one error, and what it means for us.
        ClientError::OneShotFailed {
            error, told: true, ..
        } => return output::note(error),
        ClientError::Unreachable { hint, .. } => hint.as_deref(),
        ClientError::Draining => Some("try again when it runs again, or allow the fallback"),
        ClientError::NotWritten(_) => Some("put what is long into a file, and name the file"),
        ClientError::TooMany(line) => line.hint.as_deref(),
        ClientError::OneShotFailed { .. } | ClientError::Unknown(_) => None,
    };
    output::error(&error.to_string(), hint);
}

/// How to ask again with the key that `option` gives to one of `commands`.
pub(super) fn retry_hint(
    commands: &[&str],
    option: &str,
    key: &str,
    session: Option<&str>,
) -> String {
    let words = words();
    let here = LocalEndpoint::find(None, &Environment::of_process());
    // Of another machine nothing is known.
    let first = match daemon_of(&words).is_empty() && here.lock() == Lock::Free {
        true => "hint: no daemon runs: `agentctl start` starts it\n",
        false => "",
    };
    format!(
        "{first}hint: ask again with the same key, which runs nothing twice:\nhint:   {}\n",
        retry_command(&words, commands, option, key, session)
    )
}

/// How somebody gets the answer of a job that goes on.
fn answer_hint(words: &[String], job: JobId) -> String {
    let there = daemon_of(words);
    format!(
        "hint: `agentctl{there} collect {job}` waits for its answer, `agentctl{there} attach {job}` \
         shows it, `agentctl{there} abort {job}` ends it\n"
    )
}

/// How somebody hears of a turn that was accepted: from the store, or from the daemon that comes
/// next.
fn turn_hint(words: &[String], turn: AcceptedTurn) -> String {
    let (there, job) = (daemon_of(words), turn.job);
    let next = match turn.fate {
        Fate::DiedWithDaemon => {
            format!("`agentctl{there} retry {job}` sends it again if it was interrupted")
        }
        Fate::GoesOn => {
            format!("`agentctl{there} attach {job}` goes on with it once a daemon runs")
        }
    };
    format!("hint: it is {job}: `agentctl{there} jobs {job}` says what is known of it, {next}\n")
}

/// What somebody does about a turn that was cut short. One with attachments isn't sent again from
/// the store.
fn interrupted_hint(words: &[String], job: JobId, is_whole: bool) -> String {
    let there = daemon_of(words);
    let again = match is_whole {
        true => format!("`agentctl{there} retry {job}` sends it again, "),
        false => String::new(),
    };
    format!("it is {job}: {again}`agentctl{there} history --job {job} --full` shows what it did")
}

/// The same command with its key. The last session may be another one by then.
fn retry_command(
    words: &[String],
    commands: &[&str],
    option: &str,
    key: &str,
    session: Option<&str>,
) -> String {
    let mut command: Vec<String> = vec!["agentctl".to_owned()];
    let with_value = format!("{option}=");
    let mut placed = words
        .iter()
        .any(|word| word == option || word.starts_with(&with_value));
    for word in words.iter().skip(1) {
        match (word.as_str(), session) {
            ("-c" | "--continue", Some(session)) => {
                command.push(format!("--session {}", quoted(session)));
            }
            _ => command.push(quoted(word)),
        }
        if !placed && commands.contains(&word.as_str()) {
            command.push(format!("{option} {}", quoted(key)));
            placed = true;
        }
    }
    command.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::attachment::Attachment;

    fn retried(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        retry_command(&words, SENDING, KEY_OPTION, "k1", Some("s9"))
    }

    #[test]
    fn refusal_is_told_in_the_providers_word() {
        for (line, said) in [
            (
                r#"{"refusal":"content_filter"}"#,
                "the model refused: content_filter",
            ),
            (r#"{"refusal":null}"#, "the model refused"),
            ("{}", "the model refused"),
        ] {
            assert_eq!(refused(line), said);
        }
    }

    #[test]
    fn attachment_that_is_refused_has_its_name() {
        let send = Send {
            attachments: vec![Attachment::of_path("/a.png"), Attachment::of_path("/b.txt")],
            ..Send::default()
        };
        let named = Again::Send(&send).named("`attachments[1]` is a device");
        assert_eq!(named, "`/b.txt` is a device");
    }

    #[test]
    fn outcome_unknown_names_the_job_and_command() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let of = |typed: &[&str]| -> String {
            let typed: Vec<String> = words(typed);
            let fate = Fate::GoesOn;
            turn_hint(
                &typed,
                AcceptedTurn {
                    job: JobId(4),
                    fate,
                },
            )
        };
        assert_eq!(
            of(&["agentctl", "send", "hi"]),
            "hint: it is j4: `agentctl jobs j4` says what is known of it, \
             `agentctl attach j4` goes on with it once a daemon runs\n"
        );
        for (typed, there) in [
            (
                &["agentctl", "--host", "mac", "send", "hi"][..],
                " --host mac ",
            ),
            (
                &["agentctl", "send", "--socket=/a b", "hi"],
                " '--socket=/a b' ",
            ),
            (&["agentctl", "send", "--", "--host"], " "),
        ] {
            let hint = of(typed);
            assert!(
                hint.contains(&format!("`agentctl{there}jobs j4`")),
                "{hint}"
            );
        }
    }

    #[test]
    fn a_dispatch_is_asked_again_with_its_prefix() {
        let words = ["agentctl", "dispatch", "--label", "a=b", "one two"];
        let words = words.map(str::to_owned);
        assert_eq!(
            retry_command(&words, &["dispatch"], "--key-prefix", "k1", None),
            "agentctl dispatch --key-prefix k1 --label 'a=b' 'one two'"
        );
    }

    #[test]
    fn retry_command_is_the_same_with_its_key() {
        assert_eq!(
            retried(&["/bin/agentctl", "--socket", "/s", "send", "it's me"]),
            r#"agentctl --socket /s send --idempotency-key k1 "it's me""#
        );
        assert_eq!(
            retried(&["agentctl", "send", "--idempotency-key=k1", "hi"]),
            "agentctl send '--idempotency-key=k1' hi"
        );
        assert_eq!(
            retried(&["agentctl", "send", "-c", "hi"]),
            "agentctl send --idempotency-key k1 --session s9 hi"
        );
    }
}
