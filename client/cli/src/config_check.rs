//! Before a daemon is told to make way: would the next one come up with this configuration?
//!
//! Owns who is asked, and what is said of a configuration that can't be used. What is in the file,
//! only the daemon's program knows. Must not know who restarts.

use std::process::{Command, Stdio};

use agentd_base::hinted;
use agentd_base::settings::MEND_IT;
use agentd_protocol::line::StatusAnswer;
use agentd_protocol::request::Status;
use agentd_protocol::{Line, RequestKind};
use serde::Deserialize;

use super::exit::Exit;
use super::output;
use agentd_client::client::Client;
use agentd_client::oneshot;

/// Why the next daemon would not come up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unusable {
    pub(super) why: String,
    pub(super) hint: String,
}

impl Unusable {
    /// Of what the daemon's program says: a sentence, and often what to do.
    fn of(why: &str) -> Self {
        let (why, hint) = hinted::split(why);
        Self {
            why: why.to_owned(),
            hint: hint.unwrap_or(MEND_IT).to_owned(),
        }
    }

    /// Before a restart.
    pub(super) fn error(&self) -> String {
        let why = &self.why;
        format!(
            "{why}: nothing was restarted, the running daemon goes on with the configuration it has"
        )
    }

    /// Beside a turn that the running daemon takes as it is.
    pub(super) fn not_in_force(&self) -> String {
        let (why, hint) = (&self.why, &self.hint);
        format!(
            "the configuration is not in force, the daemon goes on with the one before: {why}; {hint}"
        )
    }

    /// Before a daemon leaves for good.
    pub(super) fn keeps_it_down(&self) -> String {
        let (why, hint) = (&self.why, &self.hint);
        format!("the next daemon does not start with this configuration: {why}; {hint}")
    }

    pub(super) fn tell(&self) -> Exit {
        output::error(&self.error(), Some(&self.hint));
        Exit::Configuration
    }
}

/// What `agentd config check --json` says.
#[derive(Deserialize)]
struct Checked {
    refused: Option<String>,
}

/// By the program that would be started from here, with the variables that it would have.
pub(super) fn of_program() -> Option<Unusable> {
    let program = oneshot::program();
    let mut asked = Command::new(&program);
    asked.args(["config", "check", "--json"]);
    let why = match asked.stdin(Stdio::null()).output() {
        Ok(said) => match serde_json::from_slice(&said.stdout) {
            Ok(Checked { refused }) => refused?,
            // It knows no place for its files, or is no agentd.
            Err(_) => {
                let said = String::from_utf8_lossy(&said.stderr);
                let said = said.trim_end();
                said.strip_prefix("error: ").unwrap_or(said).to_owned()
            }
        },
        Err(error) => {
            let program = program.display();
            format!(
                "cannot start `{program}`: {error}; hint: put `agentd` next to `agentctl`, or on \
                 `PATH`"
            )
        }
    };
    Some(Unusable::of(&why))
}

/// By the daemon that runs: its successor has the same variables.
pub(super) async fn of_daemon(client: &mut Client) -> Option<Unusable> {
    let answer = status(client).await?;
    of_status(&answer)
}

/// The same, of what it said.
pub(super) fn of_status(answer: &StatusAnswer) -> Option<Unusable> {
    let refused = answer.daemon.config.as_ref()?.refused.as_deref()?;
    Some(Unusable::of(refused))
}

/// How a daemon is that is about to be told something. One that doesn't say is told all the same.
pub(super) async fn status(client: &mut Client) -> Option<Box<StatusAnswer>> {
    let fields = Status { workers: false };
    let asked = client.answer(RequestKind::Status, &fields).await;
    match asked.ok()?.line {
        Some(Line::Status(answer)) => Some(answer),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_check_says_what_goes_on() {
        let why = Unusable::of("/c.toml:3: unknown key `x`; hint: known here: `y`");
        assert!(
            why.error()
                .starts_with("/c.toml:3: unknown key `x`: nothing was restarted"),
            "{why:?}"
        );
        assert_eq!(why.hint, "known here: `y`");
        assert!(Unusable::of("broken").hint.contains("config edit"));
    }
}
