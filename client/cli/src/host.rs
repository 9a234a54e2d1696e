//! `--host`: which commands may go to another machine.
//!
//! Owns that list. A command that isn't on it looks at files or runs programs of this machine, and
//! would say something about the wrong one. Must not know how the other machine is reached.

use std::path::PathBuf;

use super::args::{AgentsCommand, Cli, Command, ServeCommand, VoiceCommand, WebhookCommand};
use super::exit::Exit;
use super::output;
use agentd_client::ssh::Target;

/// Where the daemon is, as `--socket` or `--host` names it.
pub(super) fn socket(cli: &Cli) -> Result<Option<PathBuf>, Exit> {
    socket_of(cli).map_err(|target| {
        output::error(
            "this command is about this machine, and can't be given `--host`",
            Some(&format!("run it there: `ssh {target} agentctl …`")),
        );
        Exit::Usage
    })
}

/// The same; or the machine on which such a command has to be run itself.
pub(super) fn socket_of(cli: &Cli) -> Result<Option<PathBuf>, &Target> {
    match &cli.everywhere.host {
        None => Ok(cli.everywhere.socket.clone()),
        Some(target) if goes_there(&cli.command) => Ok(Some(target.as_socket())),
        Some(target) => Err(target),
    }
}

/// Is all it does said to a daemon?
fn goes_there(command: &Command) -> bool {
    match command {
        Command::Send(_)
        | Command::Agent(_)
        | Command::Attach(_)
        | Command::Retry(_)
        | Command::Status(_)
        | Command::Metrics
        | Command::LogLevel(_)
        | Command::Abort(_)
        | Command::Dispatch(_)
        | Command::Collect(_)
        | Command::Jobs(_)
        | Command::Ps(_)
        | Command::Version(_)
        | Command::Usage(_)
        | Command::Cron(_)
        | Command::Route(_)
        | Command::Steer(_)
        | Command::Sessions(_)
        | Command::History(_)
        | Command::Questions(_)
        | Command::Answer(_)
        | Command::Model(_)
        | Command::Compact(_)
        | Command::Backup(_)
        | Command::Export(_)
        | Command::Watch(_)
        | Command::Stop(_)
        | Command::Drain(_)
        | Command::Undrain
        | Command::Stdio(_)
        | Command::Demo => true,
        // The list, or a turn; the others change this machine's configuration.
        Command::Agents(args) => matches!(
            args.command,
            None | Some(AgentsCommand::Test(_) | AgentsCommand::Restart(_))
        ),
        // Processes there, or the daemon here.
        Command::Restart(args) => args.workers().is_some(),
        Command::Webhook(args) => matches!(
            args.command,
            WebhookCommand::List(_) | WebhookCommand::Replay(_) | WebhookCommand::Test(_)
        ),
        Command::Voice(args) => !matches!(
            args.command,
            VoiceCommand::Check(_) | VoiceCommand::Forget(_)
        ),
        // It asks any daemon; HTTP is served where the daemon is.
        Command::Serve(args) => {
            matches!(
                args.command,
                ServeCommand::Mcp(_)
                    | ServeCommand::Acp(_)
                    | ServeCommand::Bridge(_)
                    | ServeCommand::Gateway(_)
                    | ServeCommand::Pi(_)
            )
        }
        // An agent's list there; the others are this machine's configuration.
        Command::Models(args) => args.lists_of_agent(),
        // A new command doesn't compile before somebody has thought of it.
        // Its own command is one of this machine.
        Command::Bench(_)
        | Command::Doctor(_)
        | Command::Logs(_)
        | Command::Provider(_)
        | Command::Restore(_)
        | Command::Service(_)
        | Command::Start
        | Command::Nc(_)
        | Command::Forward(_)
        | Command::Token(_)
        | Command::SshKey(_)
        | Command::Config(_)
        | Command::Completions(_)
        | Command::Man(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn found(words: &str) -> Result<Option<PathBuf>, Exit> {
        socket(&Cli::try_parse_from(words.split(' ')).unwrap())
    }

    #[test]
    fn host_gets_what_is_asked_of_a_daemon() {
        let there = Ok(Some(PathBuf::from("ssh://me@mac:2222")));
        for words in [
            "status",
            "send hi",
            "agents",
            "agents test pi",
            "webhook list",
            "cron list",
            "models list --agent pi",
            "voice flush",
            "serve mcp",
            "serve acp",
            "serve bridge",
            "serve gateway",
            "serve pi",
        ] {
            assert_eq!(
                found(&format!("agentctl --host me@mac:2222 {words}")),
                there
            );
        }
        for words in [
            "agents add mine -- x",
            "agents default pi",
            "webhook add https://ci.example/",
            "config show",
            "provider list",
            "models",
            "completions bash",
            "forward mac",
            "serve http",
            "ssh-key mac",
            "voice check mac",
        ] {
            let words = format!("agentctl --host mac {words}");
            assert_eq!(found(&words), Err(Exit::Usage), "{words}");
        }
        assert_eq!(
            found("agentctl --socket /s status"),
            Ok(Some(PathBuf::from("/s")))
        );
    }
}
