//! Questions on the terminal.
//!
//! Owns how a question looks there, what a typed line means, and that a secret isn't shown. Must not
//! know where questions come from. Answers are typed on standard input, questions are printed on
//! standard error.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal};
use std::os::fd::AsFd;

use agentd_protocol::Line;
use agentd_protocol::rows::QuestionRow;
use agentd_protocol::work::{Answer, Private, Scope};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{FlushArg, LocalFlags, SetArg, Termios, tcflush, tcgetattr, tcsetattr};

use super::output;
use super::render::EXPIRED;
use agentd_client::client::Client;
use agentd_client::connection::LostError;
use agentd_client::wire::Received;
use agentd_terminal::question::{self, Size};

/// Asks a person while a turn goes on.
pub(super) struct Asker {
    open: VecDeque<QuestionRow>,
    /// Is the first of them on the screen?
    shown: bool,
    unseen: Option<Unseen>,
    /// What was typed of a line that isn't over: Ctrl-D sends that, too.
    typed: String,
    /// The requests whose answers tell whether the agent got ours.
    told: Vec<u64>,
}

impl Asker {
    /// Somebody sits there who can be asked.
    pub(super) fn of_terminal() -> Option<Self> {
        (io::stdin().is_terminal() && output::err_is_terminal()).then_some(Self {
            open: VecDeque::new(),
            shown: false,
            unseen: None,
            typed: String::new(),
            told: Vec::new(),
        })
    }

    /// Does a question wait for somebody to type?
    pub(super) fn is_asking(&self) -> bool {
        !self.open.is_empty()
    }

    /// A line of the turn, or the answer to an answer of ours.
    pub(super) fn line(&mut self, received: &Received) {
        match &received.line {
            Some(Line::Question {
                job,
                question_id,
                kind,
                title,
                detail,
                options,
                about,
                expires_at,
            }) => self.open.push_back(QuestionRow {
                question_id: question_id.clone(),
                job: *job,
                session: String::new(),
                kind: kind.clone(),
                title: title.clone(),
                detail: detail.clone(),
                options: options.clone(),
                about: (**about).clone(),
                expires_at: expires_at.clone().unwrap_or_default(),
            }),
            Some(Line::QuestionClosed {
                question_id, by, ..
            }) => self.closed(question_id, by),
            Some(Line::Error(error)) if self.told.iter().any(|id| received.answers(*id)) => {
                let why = super::wording::error(&error.error);
                output::note(&format!("the answer was not taken: {why}"));
            }
            _ => {}
        }
    }

    fn closed(&mut self, name: &str, by: &str) {
        let is_first = self.open.front().is_some_and(|row| row.question_id == name);
        self.open.retain(|row| row.question_id != name);
        if is_first && std::mem::take(&mut self.shown) {
            self.unseen = None;
            output::err("\n");
            output::note(&match by {
                "expiry" => format!("the question is closed: {EXPIRED}"),
                by => format!("the question is closed: {by}"),
            });
        }
    }

    /// Shows what waits, and takes what was typed since; never waits itself.
    pub(super) async fn typed(&mut self, client: &mut Client) -> io::Result<()> {
        let Some(question) = self.open.front() else {
            return Ok(());
        };
        if !self.shown {
            self.unseen = begin(question)?;
            self.shown = true;
            self.typed.clear();
        }
        let line = match read_ready(&mut self.typed)? {
            Ready::Nothing => return Ok(()),
            Ready::Line(line) => line,
            Ready::End => {
                self.left_open();
                return Ok(());
            }
        };
        match parse(question, &line) {
            Err(again) => output::err(&format!("{again} ")),
            Ok(answer) => {
                if self.unseen.take().is_some() {
                    output::err("\n");
                }
                self.shown = false;
                self.open.pop_front();
                // A connection that is gone shows when it is read next.
                let told: Result<u64, LostError> = client.request("answer", &answer).await;
                self.told.extend(told.ok());
            }
        }
        Ok(())
    }

    /// Ctrl-D: this person doesn't want to answer here.
    fn left_open(&mut self) {
        self.unseen = None;
        self.shown = false;
        output::err("\n");
        for question in self.open.drain(..) {
            let name = output::safe_line(&question.question_id);
            let how = match question.kind.as_str() {
                "approval" => format!(", `agentctl answer {name} --approve` says yes"),
                _ => String::new(),
            };
            output::note(&format!(
                "the question stays open, and the turn waits for it: `agentctl answer {name}` asks \
                 elsewhere{how}"
            ));
        }
    }
}

/// Asks one question and waits for the answer; none without a terminal, or after Ctrl-D.
pub(super) fn ask_now(question: &QuestionRow) -> io::Result<Option<Answer>> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(None);
    }
    output::err(&format!("{}\n", output::safe_line(&question.title)));
    let unseen = begin(question)?;
    loop {
        let Some(line) = read_line()? else {
            return Ok(None);
        };
        match parse(question, &line) {
            Err(again) => output::err(&format!("{again} ")),
            Ok(answer) => {
                if unseen.is_some() {
                    output::err("\n");
                }
                return Ok(Some(answer));
            }
        }
    }
}

/// Prints what there is to know, and makes sure that what is typed from now on is the answer.
fn begin(question: &QuestionRow) -> io::Result<Option<Unseen>> {
    let unseen = match question.kind.as_str() {
        "secret" => Some(Unseen::begin()?),
        _ => None,
    };
    // Typed before the question was seen, it can't be an answer to it.
    tcflush(io::stdin().as_fd(), FlushArg::TCIFLUSH)?;
    output::err(&prompt(question, Size::of_terminal()));
    Ok(unseen)
}

/// All that belongs to a question, and what to type.
fn prompt(question: &QuestionRow, size: Size) -> String {
    let mut shown = String::new();
    let detail = question.detail.as_deref().map(str::trim_end);
    let rows = detail.map(|detail| question::rows(detail, size.columns));
    let rows = rows.unwrap_or_default();
    for row in &rows {
        shown.push_str(row);
        shown.push('\n');
    }
    for (number, option) in question.options.iter().enumerate() {
        let _infallible = writeln!(shown, "  {}  {}", number + 1, output::safe_line(option));
    }
    match question.kind.as_str() {
        "approval" => {
            let asked = question::approve(rows.len(), size);
            shown.push_str(&asked.replacen("[y/N]", &yes_or_no(question), 1));
        }
        "choice" => shown.push_str("number: "),
        "secret" => shown.push_str("secret (not shown): "),
        _ => shown.push_str("answer: "),
    }
    shown
}

/// What can be typed: how far a yes can go, too.
fn yes_or_no(question: &QuestionRow) -> String {
    let offers = |scope: Scope| question.about.scopes.iter().any(|it| it == scope.name());
    let mut shown = "[y/N".to_owned();
    if offers(Scope::Session) {
        shown.push_str(", s: for the session");
    }
    if offers(Scope::Always) {
        shown.push_str(", a: always");
    }
    shown.push(']');
    shown
}

/// How far a yes goes that was typed in this word, if it is offered.
fn scope_of(question: &QuestionRow, word: &str) -> Option<Scope> {
    let scope = match word {
        "s" | "session" => Scope::Session,
        "a" | "always" => Scope::Always,
        _ => return None,
    };
    let mut offered = question.about.scopes.iter();
    offered.any(|it| it == scope.name()).then_some(scope)
}

/// What a typed line means, or what to say when it means nothing.
fn parse(question: &QuestionRow, line: &str) -> Result<Answer, String> {
    let mut answer = Answer::to(question.question_id.clone());
    match question.kind.as_str() {
        "approval" => {
            let word = line.trim().to_lowercase();
            answer.scope = scope_of(question, &word);
            answer.approve = Some(match word.as_str() {
                "y" | "yes" => true,
                "" | "n" | "no" => false,
                _ if answer.scope.is_some() => true,
                _ => return Err(format!("{}?", yes_or_no(question).trim_matches(['[', ']']))),
            });
        }
        "choice" => {
            let options = &question.options;
            let number = line.trim().parse::<usize>().ok();
            let chosen = number.and_then(|number| options.get(number.checked_sub(1)?));
            let chosen = chosen.or_else(|| options.iter().find(|option| *option == line.trim()));
            let Some(chosen) = chosen else {
                return Err(format!("a number from 1 to {}:", options.len()));
            };
            answer.choice = Some(chosen.clone());
        }
        _ if line.is_empty() => return Err("some text:".to_owned()),
        _ => answer.text = Some(Private(line.to_owned())),
    }
    Ok(answer)
}

/// Asks for a line of whoever sits there; none after Ctrl-D.
pub(super) fn ask_line(question: &str) -> io::Result<Option<String>> {
    // Typed before the question was seen, it can't be an answer to it.
    tcflush(io::stdin().as_fd(), FlushArg::TCIFLUSH)?;
    ask_again(question)
}

/// The same after an answer that meant nothing.
pub(super) fn ask_again(question: &str) -> io::Result<Option<String>> {
    output::err(question);
    read_line()
}

/// What is there to be read.
enum Ready {
    Nothing,
    Line(String),
    End,
}

/// Takes what was typed, and waits for no more: a line may be sent by Ctrl-D before it is over.
fn read_ready(typed: &mut String) -> io::Result<Ready> {
    let stdin = io::stdin();
    let mut looked = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut looked, PollTimeout::ZERO) {
        Ok(1..) => {}
        Ok(_) | Err(Errno::EINTR) => return Ok(Ready::Nothing),
        Err(error) => return Err(error.into()),
    }
    let mut bytes = [0; 4096];
    let count = match nix::unistd::read(stdin.as_fd(), &mut bytes) {
        Ok(count) => count,
        Err(Errno::EINTR) => return Ok(Ready::Nothing),
        Err(error) => return Err(error.into()),
    };
    if count == 0 {
        typed.clear();
        return Ok(Ready::End);
    }
    typed.push_str(&String::from_utf8_lossy(&bytes[..count]));
    Ok(match typed.split_once('\n') {
        Some((line, _)) => {
            let line = line.to_owned();
            typed.clear();
            Ready::Line(line)
        }
        None => Ready::Nothing,
    })
}

/// A line without its end; none at the end of the input.
fn read_line() -> io::Result<Option<String>> {
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let line = line.strip_suffix('\n').unwrap_or(&line);
    Ok(Some(line.to_owned()))
}

/// While it lives, the terminal doesn't show what is typed.
struct Unseen(Termios);

impl Unseen {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin().as_fd())?;
        let mut unseen = before.clone();
        unseen.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, &unseen)?;
        Ok(Self(before))
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing any more.
        let _gone = tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentd_protocol::JobId;
    use agentd_protocol::rows::QuestionAbout;

    fn question(kind: &str) -> QuestionRow {
        QuestionRow {
            question_id: "j1-q1".to_owned(),
            job: JobId(1),
            session: String::new(),
            kind: kind.to_owned(),
            title: "which?".to_owned(),
            detail: Some("rm -rf \x1b[2Jx".to_owned()),
            options: vec!["a".to_owned(), "b".to_owned()],
            about: QuestionAbout::default(),
            expires_at: String::new(),
        }
    }

    #[test]
    fn only_a_clear_yes_approves() {
        let approved = |line| parse(&question("approval"), line).map(|answer| answer.approve);
        assert_eq!(approved("y"), Ok(Some(true)));
        assert_eq!(approved(" Yes "), Ok(Some(true)));
        for no in ["", "n", "NO"] {
            assert_eq!(approved(no), Ok(Some(false)), "{no:?}");
        }
        assert!(approved("yep").is_err());
        // What isn't offered is no yes.
        assert!(approved("s").is_err() && approved("always").is_err());
        let mut lasting = question("approval");
        lasting.about.scopes = ["once", "session", "later"].map(str::to_owned).to_vec();
        for (line, scope) in [("s", Some(Scope::Session)), ("y", None)] {
            let answer = parse(&lasting, line).unwrap();
            assert_eq!((answer.approve, answer.scope), (Some(true), scope));
        }
        assert!(parse(&lasting, "a").is_err());
        assert_eq!(yes_or_no(&lasting), "[y/N, s: for the session]");
    }

    #[test]
    fn a_choice_is_its_number_or_its_name() {
        let chosen = |line| parse(&question("choice"), line).ok()?.choice;
        assert_eq!(chosen("2").as_deref(), Some("b"));
        assert_eq!(chosen("a").as_deref(), Some("a"));
        for wrong in ["0", "3", "", "c", "-1"] {
            assert_eq!(chosen(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn terminal_takes_text_literally_and_nothing_as_none() {
        let text = |line| parse(&question("secret"), line).ok()?.text;
        assert_eq!(text(" pass word "), Some(Private(" pass word ".to_owned())));
        assert_eq!(text(""), None);
    }

    #[test]
    fn terminal_prompt_is_safe_and_says_what_fits() {
        let size = Size {
            columns: 80,
            rows: 24,
        };
        assert_eq!(
            prompt(&question("choice"), size),
            "  rm -rf \\u{1b}[2Jx\n  1  a\n  2  b\nnumber: "
        );
        assert!(prompt(&question("approval"), size).ends_with("approve? [y/N] "));
    }

    #[test]
    fn question_is_shown_whole_whatever_its_length() {
        let mut long = question("approval");
        let lines: Vec<String> = (0..400).map(|line| format!("| line {line}")).collect();
        long.detail = Some(lines.join("\n"));
        let size = Size {
            columns: 80,
            rows: 24,
        };
        let shown = prompt(&long, size);
        for line in &lines {
            assert!(shown.contains(&format!("  {line}\n")), "{line}");
        }
        assert!(shown.contains("all of the 400 rows above"));
    }
}
