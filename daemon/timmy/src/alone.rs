//! `timmy -p`: one prompt, answered on the terminal.
//!
//! Owns what a person sees of a turn, and the exit code. Must not know how a turn is played.

use std::io::{BufRead as _, ErrorKind, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use agentd_terminal::output::{self, safe};
use agentd_terminal::question::{self, Size};
use nix::sys::termios::{FlushArg, tcflush};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::echo::EchoControl;
use crate::line::{Line, OutgoingLine};
use crate::model::Boxed;
use crate::send::{Agent, Conversation, Messages, ModelSelection, SendRequest, TurnControl};
use crate::tool::{Approval, Asker};
use crate::turn::asker::{NOBODY, Nobody, REFUSED};
use crate::turn::inbox::Inbox;
use crate::{Args, CONFIG, ECHO, WAITING_LINES, echo};

/// Ended by a signal of the terminal.
const INTERRUPTED: u8 = 130;

/// Whoever is at the terminal, if anybody is. Standard output may be a file all the same: a question
/// goes to standard error.
fn asker() -> Arc<dyn Asker> {
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        Arc::new(Terminal)
    } else {
        Arc::new(Nobody)
    }
}

/// Answers one prompt on standard output.
pub(crate) async fn answer(
    prompt: String,
    selection: ModelSelection,
    args: &Args,
    agent: &Agent,
) -> ExitCode {
    if prompt.trim().is_empty() {
        output::error("the prompt is blank", None);
        return ExitCode::from(2);
    }
    let is_for_echo =
        match echo::is_wanted(selection.provider.as_deref(), selection.model.as_deref()) {
            Ok(is_for_echo) => is_for_echo,
            Err(rejected) => {
                output::error(&rejected.error, rejected.hint.as_deref());
                return ExitCode::from(2);
            }
        };
    let cwd = match working_directory(args) {
        Ok(cwd) => cwd,
        Err(why) => {
            output::error(&why, None);
            return ExitCode::from(2);
        }
    };
    let (out, lines) = mpsc::channel(WAITING_LINES);
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let turn = async move {
        let line = Line { id: None, out };
        let conversation = args.session.clone();
        let sent = SendRequest {
            text: prompt.clone(),
            attached: Vec::new(),
            conversation: conversation.map_or(Conversation::Passing, Conversation::Named),
            system: None,
            earlier: Vec::new(),
            selection,
            toolsets: args.toolsets.clone(),
            mcp_servers: Vec::new(),
            cwd,
            job: None,
            messages: Messages::LeftOut,
        };
        let asker = asker();
        if is_for_echo {
            line.note(ECHO, echo::NOTE).await;
            let control = EchoControl {
                line: &line,
                cancel: &cancel,
                asker: &*asker,
                opened: &|_| {},
            };
            agent.play_echo(&prompt, &sent, None, &control).await;
            return agent.store.tidy().await;
        }
        let inbox = Inbox::default();
        let control = TurnControl {
            line: &line,
            inbox: &inbox,
            cancel,
            asker,
            opened: &|_| {},
        };
        agent.play(sent, control).await;
        // Behind the answer: whoever waits for that shouldn't wait for this.
        agent.store.tidy().await;
    };
    let told = async {
        interrupted().await;
        stop.cancel();
        // The turn ends by itself, and says what it said so far: its final line makes the exit
        // code.
        std::future::pending::<()>().await;
    };
    let nobody_reads = stop.clone();
    let show = async {
        let code = show_all(lines, args.json).await;
        // What nobody reads is not worth a request more.
        nobody_reads.cancel();
        code
    };
    tokio::select! {
        ((), code) = async { tokio::join!(turn, show) } => code,
        () = told => ExitCode::from(INTERRUPTED),
    }
}

/// Where it works: as it was told, else where it was started.
fn working_directory(args: &Args) -> Result<PathBuf, String> {
    let told = args.cwd.clone();
    match told.map_or_else(std::env::current_dir, |cwd| cwd.canonicalize()) {
        Ok(cwd) if cwd.is_dir() => Ok(cwd),
        Ok(cwd) => Err(format!("`{}` is not a directory", cwd.display())),
        Err(why) => Err(format!("the working directory can't be used: {why}")),
    }
}

async fn interrupted() {
    let told = |kind| async move {
        match signal(kind) {
            Ok(mut told) => {
                told.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = told(SignalKind::interrupt()) => {}
        () = told(SignalKind::terminate()) => {}
    }
}

async fn show_all(mut lines: mpsc::Receiver<OutgoingLine>, json: bool) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    while let Some(said) = lines.recv().await {
        match (said.kind, said.text("stop"), said.text("code")) {
            // Nothing that is tried again mends these, as a script has to know.
            ("error", _, "no-agent" | "no-model" | "agent-auth") => code = ExitCode::from(CONFIG),
            ("error", ..) => code = ExitCode::FAILURE,
            ("message_end", "cancelled", _) => code = ExitCode::from(INTERRUPTED),
            ("message_end", "refusal", _) => code = ExitCode::FAILURE,
            _ => {}
        }
        let shown = if json {
            output::out_json(&said.render())
        } else {
            show(&said)
        };
        if let Err(error) = shown {
            if error.kind() != ErrorKind::BrokenPipe {
                output::error(&error.to_string(), None);
            }
            return ExitCode::FAILURE;
        }
    }
    code
}

/// Shows a line to a person: a model's words are as it wrote them only where no terminal obeys them.
fn show(said: &OutgoingLine) -> std::io::Result<()> {
    let text = said.text("text");
    match said.kind {
        "message_delta" if output::out_is_terminal() => output::out(&safe(text))?,
        "message_delta" => output::out(text)?,
        "message_end" if said.text("stop") == "refusal" => {
            if !text.is_empty() {
                output::out("\n")?;
            }
            let refusal = safe(said.text("refusal"));
            output::error(&format!("the model refused: {refusal}"), None);
        }
        "message_end" => output::out("\n")?,
        "tool_start" => output::err(&format!("\n[{}]\n", safe(said.text("name")))),
        "note" if said.text("level") == "warning" || std::io::stderr().is_terminal() => {
            output::note(text);
        }
        "error" => {
            let hint = said.text("hint");
            output::error(
                said.text("error"),
                Some(hint).filter(|hint| !hint.is_empty()),
            );
        }
        _ => {}
    }
    Ok(())
}

/// Asks on the terminal.
#[derive(Debug)]
struct Terminal;

impl Asker for Terminal {
    fn approve<'a>(
        &'a self,
        _call: Option<&'a str>,
        title: &'a str,
        detail: &'a str,
    ) -> Boxed<'a, Approval> {
        let size = Size::of_terminal();
        let rows = question::rows(detail, size.columns);
        let title = output::safe_line(title);
        let asked = question::approve(rows.len(), size);
        let question = format!("\n{title}\n{}\n{asked}", rows.join("\n"));
        Box::pin(async move {
            let answer = tokio::task::spawn_blocking(move || {
                let mut stderr = std::io::stderr().lock();
                // Typed before the question was seen, it can't be an answer to it.
                tcflush(std::io::stdin().as_fd(), FlushArg::TCIFLUSH)?;
                write!(stderr, "{question}")?;
                stderr.flush()?;
                let mut line = String::new();
                let read = std::io::stdin().lock().read_line(&mut line)?;
                Ok::<_, std::io::Error>((read > 0).then_some(line))
            });
            match answer.await {
                Ok(Ok(Some(line))) if matches!(line.trim(), "y" | "Y" | "yes") => Approval::Granted,
                Ok(Ok(Some(_))) => Approval::Denied(REFUSED.to_owned()),
                // Ctrl-D, or the terminal is gone: nobody said no.
                _ => Approval::Denied(NOBODY.to_owned()),
            }
        })
    }
}
