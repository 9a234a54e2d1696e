//! A turn as a person reads it: its text on standard output, everything else beside it.
//!
//! Owns the order of text, notes and the spinner on a terminal that has both streams, and what is
//! told when a turn has ended. Must not know how a turn is run (`turn`).

use std::io;
use std::time::{Duration, Instant};

use agentd_protocol::line::{Context, ErrorLine, MessageEnd, StatusAnswer, Stop, TurnFacts};
use agentd_protocol::request::{OnQuestion, Retry, Send};
use agentd_protocol::rows::JobRow;
use agentd_protocol::{Code, JobId, Line};

use super::activity::{self, Activity};
use super::footer::{self, GoOn};
use super::notification::Notification;
use super::spinner::Spinner;
use super::stream::TextView;
use super::turn::View;
use super::{output, render, value, whole};
use agentd_client::wire::Received;

/// The same as its final line says: nothing is worth a word.
const DIM: (&str, &str) = ("\x1b[2m", "\x1b[0m");

/// How a turn is shown.
#[derive(Clone, Default, Debug)]
pub(super) struct Shown {
    /// The answer alone, when it is there.
    pub(super) quiet: bool,
    /// When its end is told the terminal.
    pub(super) notify: Option<f64>,
    /// Another machine, as it was named.
    pub(super) host: Option<String>,
    /// Is somebody asked what the agent asks?
    pub(super) attended: bool,
}

/// Text for people, streamed.
pub(super) struct TurnText {
    /// Do both streams end on the same screen?
    one_screen: bool,
    terminal: bool,
    /// Is text printed as it comes?
    streams: bool,
    text: TextView,
    spinner: Option<Spinner>,
    activity: Activity,
    agent: String,
    /// Is every question denied, because whoever sent it wanted that?
    denies: bool,
    go_on: GoOn,
    shown: Shown,
    begun: Instant,
    /// Was it told in the row below the answer?
    says_cancelled: bool,
    /// Its number, and its session.
    accepted: Option<(JobId, String)>,
    /// Was the session chosen by its name?
    names_session: bool,
    /// Or a provider or a model?
    chooses_model: bool,
}

impl TurnText {
    /// Of a send; without one, of somebody else's turn.
    pub(super) fn new(send: Option<&Send>, shown: Shown) -> Self {
        let terminal = output::out_is_terminal();
        let agent = send.and_then(|send| send.agent.clone());
        // Whoever named the session, or another directory, has to do so again.
        let is_here = send.is_some_and(|send| send.session.is_none() && send.cwd.is_none());
        let go_on = if is_here && shown.host.is_none() {
            GoOn::Here
        } else {
            GoOn::Named
        };
        // What went into a pipe can't be taken back, and a second attempt says all of it anew.
        let may_begin_anew = send.is_some_and(|send| send.retry == Retry::Auto);
        Self {
            streams: !shown.quiet && (terminal || !may_begin_anew),
            one_screen: terminal && output::err_is_terminal(),
            terminal,
            text: TextView::default(),
            spinner: Spinner::of_terminal().filter(|_| !shown.quiet),
            activity: Activity::default(),
            agent: agent.unwrap_or_else(|| "the agent".to_owned()),
            denies: send.is_some_and(|send| send.on_question == Some(OnQuestion::Deny)),
            go_on,
            shown,
            begun: Instant::now(),
            says_cancelled: false,
            accepted: None,
            names_session: send.is_some_and(|send| send.session.is_some()),
            chooses_model: send.is_some_and(|send| send.provider.is_some() || send.model.is_some()),
        }
    }

    /// The session is the last one of this directory.
    pub(super) const fn goes_on_here(mut self) -> Self {
        self.go_on = GoOn::Here;
        self
    }

    /// What is beside the text begins on a row of its own.
    fn clear(&mut self) {
        if let Some(spinner) = &mut self.spinner {
            spinner.clear();
        }
        if self.one_screen && self.text.is_mid_line() {
            output::err("\n");
            self.text.broken();
        }
    }

    fn print(&self, text: &str) -> io::Result<()> {
        if self.terminal {
            output::out(&output::safe(text))
        } else {
            output::out(text)
        }
    }

    fn finish(&mut self, turn: &TurnFacts) -> io::Result<()> {
        self.spinner = None;
        if turn.truncated && self.text.has_whole_of(&turn.text) {
            let end = self.text.end_printed();
            return self.print(end);
        }
        let rest = self.text.end(&turn.text);
        self.print(&rest)?;
        if turn.truncated {
            // To `--quiet`, too: what it has isn't the answer.
            output::note(&whole::missing(&turn.text, turn.job));
        }
        Ok(())
    }

    fn ended(&mut self, end: &MessageEnd) -> io::Result<()> {
        let turn = &end.turn;
        self.finish(turn)?;
        if let Some(refusal) = &turn.refusal {
            self.note(&format!("the model refused: {refusal}"));
        }
        if output::err_is_terminal() && !self.shown.quiet {
            let how = match end.stop {
                Stop::Cancelled => footer::End::Cancelled,
                _ => footer::End::Answered,
            };
            self.says_cancelled = how == footer::End::Cancelled;
            let row = footer::footer(turn, how, self.go_on, self.shown.host.as_deref());
            let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
            let (dim, end) = if plain { ("", "") } else { DIM };
            output::err(&format!("{dim}{row}{end}\n"));
        }
        Ok(())
    }

    fn notify(&self, how: &str) {
        if let Some(notification) = Notification::of(self.shown.notify) {
            let text = format!("agentctl: {} {how}", self.agent);
            notification.tell(&text, self.begun.elapsed());
        }
    }

    /// What somebody can do about a turn that is held: this one, or the one that it overtakes.
    fn about_held(&mut self, line: &Line) {
        let (Line::Note { code, text, .. }, Some((job, session))) = (line, &self.accepted) else {
            return;
        };
        let held = match code.as_str() {
            "held" => Some(*job),
            "overtakes" => text.split(' ').find_map(|word| word.parse().ok()),
            _ => None,
        };
        if let Some(held) = held {
            let hint = render::of_held(held, session);
            self.note(&hint);
        }
    }

    /// Where nobody is logged in, an earlier send may have chosen that one.
    fn about_pins(&mut self, error: &ErrorLine) {
        let goes_on = error.turn.as_ref().is_some_and(|turn| {
            turn.context == Some(Context::Continued) && turn.provider.is_some()
        });
        if error.code == Code::AgentAuth && goes_on && !self.chooses_model {
            self.note(
                "a session goes on with the provider and model that it was given last: \
                 `--provider` and `--model` give it others",
            );
        }
    }

    /// What somebody can do about a question that isn't asked here.
    fn about_questions(&mut self, line: &Line) {
        match line {
            Line::Question {
                question_id,
                expires_at: Some(_),
                ..
            } if !self.shown.attended => {
                self.note(&format!("`agentctl answer {question_id}` answers it"));
            }
            Line::QuestionClosed { by, .. } if by == "nobody" && !self.denies => self.note(
                "denied, as nobody was here to answer: send from a terminal to be asked, or with \
                 `--on-question wait` to answer by `agentctl answer`",
            ),
            Line::QuestionClosed { by, .. } if by == "expiry" && !self.shown.attended => {
                self.note(render::EXPIRED);
            }
            _ => {}
        }
    }
}

impl View for TurnText {
    fn line(&mut self, received: &Received) -> io::Result<()> {
        let Some(line) = &received.line else {
            return Ok(());
        };
        self.activity.line(line);
        if let Line::Accepted(accepted) = line {
            self.agent.clone_from(&accepted.agent);
            self.accepted = Some((accepted.job, accepted.session.clone()));
            if accepted.made && self.names_session && output::err_is_terminal() {
                // It may be another one's name, mistyped.
                self.note(&format!("session `{}` is new", accepted.session));
            }
            if accepted.replayed {
                let job = accepted.job;
                self.note(&format!(
                    "this is {job}, an earlier send with this key: nothing is run anew"
                ));
            }
        }
        if let Some(text) = render::side_note(line) {
            self.note(&text);
        }
        self.about_held(line);
        self.about_questions(line);
        match line {
            Line::Running { attempt, .. } if *attempt > 1 => {
                let said = match self.text.is_empty() {
                    true => "",
                    false => ": what was said so far doesn't count",
                };
                self.note(&format!("the turn was interrupted and begins anew{said}"));
                self.text = TextView::default();
                Ok(())
            }
            Line::MessageStart {
                replaces: Some(_), ..
            } if !self.text.is_empty() => {
                self.note("what was said so far doesn't count: the next text takes its place");
                Ok(())
            }
            Line::MessageDelta {
                message,
                offset,
                text,
                ..
            } if self.streams => {
                if let Some(spinner) = &mut self.spinner {
                    spinner.clear();
                }
                let fresh = self.text.delta(*message, *offset, text);
                self.print(&fresh)
            }
            Line::MessageEnd(end) => {
                self.ended(end)?;
                self.notify(match end.stop {
                    Stop::Cancelled => "was cancelled",
                    _ => "is done",
                });
                Ok(())
            }
            Line::Error(error) => {
                self.finish(error.turn.as_ref().unwrap_or(&TurnFacts::default()))?;
                self.about_pins(error);
                self.notify("failed");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn lacks_text(&self, line: &Line) -> bool {
        let turn = whole::facts(line).filter(|turn| turn.truncated);
        turn.is_some_and(|turn| !self.text.has_whole_of(&turn.text))
    }

    fn tick(&mut self, waited: Duration) {
        // The text that comes is the better sign of life, and a row that it broke off in isn't
        // broken for a pause.
        let is_tool = matches!(self.activity, Activity::Tool { .. });
        if self.spinner.is_none() || self.text.is_mid_line() && !is_tool {
            return;
        }
        if self.one_screen && self.text.is_mid_line() {
            output::err("\n");
            self.text.broken();
        }
        let words = self.activity.words(&self.agent);
        if let Some(spinner) = &mut self.spinner {
            spinner.draw(&words, waited);
        }
    }

    fn wants_reason(&self) -> bool {
        self.spinner.is_some() && self.activity.is_waiting()
    }

    fn reason(&mut self, job: JobId, rows: &[JobRow], status: &StatusAnswer) {
        let now = value::now_ms();
        let why = activity::waits_for(job, &self.agent, rows, status, now);
        self.activity.waits(why);
    }

    fn lost(&mut self) {
        self.activity = Activity::Lost;
    }

    fn cancelling(&mut self) {
        self.activity = Activity::Ends;
    }

    fn cancelled(&mut self, name: &str) {
        if !self.says_cancelled {
            self.note(&format!("cancelled {name}"));
        }
    }

    fn note(&mut self, text: &str) {
        self.clear();
        if !self.shown.quiet {
            output::note(text);
        }
    }

    fn over(&mut self) {
        self.clear();
        self.spinner = None;
        if !self.terminal && self.text.is_mid_line() {
            // A reader that left has no need of it.
            let _gone = output::out("\n");
            self.text.broken();
        }
    }
}
