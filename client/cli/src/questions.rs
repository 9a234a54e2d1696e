//! `questions` and `answer`.
//!
//! Owns where an answer comes from: options, standard input, or the terminal. Must not know how it
//! is asked for there (`terminal`).

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use agentd_protocol::rows::QuestionRow;
use agentd_protocol::work::{Answer, Private};

use super::args::{AnswerArgs, QuestionsArgs};
use super::exit::Exit;
use super::{ask, outcome, output, rows, terminal, value};
use agentd_client::client::Client;
use agentd_terminal::style::Style;

pub(super) async fn questions(args: QuestionsArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::daemon(socket).await?;
    let asked = client.questions(args.of.or(args.session).as_deref()).await;
    ask::print(asked, args.json, |found| {
        if found.is_empty() {
            "no questions are open\n".to_owned()
        } else {
            rows::questions(found, value::now_ms(), &Style::of_stdout()) + whole(found)
        }
    })
}

/// The table has titles only, cut to their beginning: what a yes would allow is seen elsewhere.
fn whole(found: &[QuestionRow]) -> &'static str {
    if found.iter().any(|row| row.kind == "approval") {
        "`agentctl answer QUESTION` shows all that it asks for, and asks\n"
    } else {
        ""
    }
}

pub(super) async fn answer(args: AnswerArgs, socket: Option<&Path>) -> io::Result<Exit> {
    let mut client = ask::daemon(socket).await?;
    let question = find(&mut client, &args.question_id).await?;
    let answer = answer_of(&args, &question)?
        .map_err(|(why, hint)| outcome::ends(Exit::Usage, &why, Some(hint)))?;
    ask::print(client.answer_question(&answer).await, args.json, |name| {
        format!("answered {}\n", output::safe(name))
    })
}

async fn find(client: &mut Client, name: &str) -> Result<QuestionRow, Exit> {
    let open = client.questions(None).await;
    let open = open.map_err(|error| ask::tell(&error))?.value;
    let found = open.into_iter().find(|row| row.question_id == name);
    found.ok_or_else(|| {
        output::error(
            &format!("there is no open question `{name}`"),
            Some("`agentctl questions` lists them"),
        );
        Exit::Usage
    })
}

/// What is wrong, and what to do.
type Wrong = (String, &'static str);

fn answer_of(args: &AnswerArgs, question: &QuestionRow) -> io::Result<Result<Answer, Wrong>> {
    let mut answer = Answer::to(args.question_id.clone());
    answer.choice.clone_from(&args.choice);
    match args.text.as_deref() {
        None if args.approve || args.deny => {
            answer.approve = Some(args.approve);
            answer.scope = args.scope.map(Into::into);
        }
        None if args.choice.is_some() => {}
        None => return asked_here(question),
        Some("-") if io::stdin().is_terminal() => return asked_here(question),
        Some("-") => {
            let mut text = String::new();
            io::stdin().lock().read_to_string(&mut text)?;
            // What `echo` or an editor puts at the end isn't meant.
            let text = text.strip_suffix('\n').unwrap_or(&text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            answer.text = Some(Private(text.to_owned()));
        }
        Some(_) if question.kind == "secret" => {
            let why = "a secret is not taken from an argument: everybody could read it with `ps`";
            let hint = "use `--text -`, and type or pipe it in; change this one, it was seen";
            return Ok(Err((why.to_owned(), hint)));
        }
        Some(text) => answer.text = Some(Private(text.to_owned())),
    }
    Ok(fits(&answer, question).map(|()| answer))
}

fn asked_here(question: &QuestionRow) -> io::Result<Result<Answer, Wrong>> {
    let hint = match question.kind.as_str() {
        "approval" => "answer with `--approve` or `--deny`",
        "choice" => "answer with `--choice OPTION`",
        _ => "answer with `--text -`, and pipe it in",
    };
    let typed = terminal::ask_now(question)?;
    Ok(typed.ok_or_else(|| ("there is nobody to ask for the answer".to_owned(), hint)))
}

/// Is it an answer to such a question?
fn fits(answer: &Answer, question: &QuestionRow) -> Result<(), Wrong> {
    let given = if answer.approve.is_some() {
        "approval"
    } else if answer.choice.is_some() {
        "choice"
    } else {
        "text"
    };
    let name = &question.question_id;
    match question.kind.as_str() {
        "approval" if given != "approval" => Err((
            format!("`{name}` asks for an approval, not for a {given}"),
            "answer with `--approve` or `--deny`",
        )),
        "choice" if given != "choice" => Err((
            format!("`{name}` asks for a choice, not for {given}"),
            "answer with `--choice OPTION`",
        )),
        "choice"
            if answer
                .choice
                .as_ref()
                .is_some_and(|choice| !question.options.contains(choice)) =>
        {
            Err((
                format!("`{name}` has the options {}", question.options.join(", ")),
                "give one of them as it is written",
            ))
        }
        "text" | "secret" if given != "text" => Err((
            format!("`{name}` asks for text, not for {given}"),
            "answer with `--text -`",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::rows::QuestionAbout;

    fn question(kind: &str) -> QuestionRow {
        QuestionRow {
            question_id: "j1-q1".to_owned(),
            job: agentd_protocol::JobId(1),
            session: "main".to_owned(),
            kind: kind.to_owned(),
            title: "which?".to_owned(),
            detail: None,
            options: vec!["a".to_owned(), "b".to_owned()],
            about: QuestionAbout::default(),
            expires_at: "2026-11-21T19:00:00Z".to_owned(),
        }
    }

    fn answered(words: &str, kind: &str) -> Result<Answer, Wrong> {
        use clap::Parser;
        let words = format!("agentctl answer j1-q1 {words}");
        let cli = crate::args::Cli::try_parse_from(words.split_whitespace()).unwrap();
        let crate::args::Command::Answer(args) = cli.command else {
            panic!("not an answer");
        };
        answer_of(&args, &question(kind)).unwrap()
    }

    #[test]
    fn answer_is_of_the_kind_asked_for() {
        assert_eq!(
            answered("--approve", "approval").unwrap().approve,
            Some(true)
        );
        assert_eq!(answered("--deny", "approval").unwrap().approve, Some(false));
        let chosen = answered("--choice b", "choice").unwrap().choice;
        assert_eq!(chosen.as_deref(), Some("b"));
        assert_eq!(
            answered("--text hi", "text").unwrap().text,
            Some(Private("hi".to_owned()))
        );
        for (words, kind) in [
            ("--approve", "choice"),
            ("--approve", "text"),
            ("--choice a", "approval"),
            ("--choice c", "choice"),
            ("--text hi", "approval"),
            ("--deny", "secret"),
        ] {
            assert!(answered(words, kind).is_err(), "{words} to {kind}");
        }
    }

    #[test]
    fn a_secret_is_not_taken_from_an_argument() {
        let (why, hint) = answered("--text hunter2", "secret").unwrap_err();
        assert!(why.contains("`ps`") && hint.contains("--text -"), "{why}");
        assert!(!why.contains("hunter2") && !hint.contains("hunter2"));
    }
}
