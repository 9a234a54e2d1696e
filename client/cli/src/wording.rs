//! The daemon's refusals in the words of this command line.
//!
//! Owns what a request and a field of the protocol are called here. The daemon states facts in its
//! own words, as programs in any language ask it; whoever typed a command knows neither. Must not know
//! which command was typed.

use std::borrow::Cow;

use agentd_client::client::START_IT;
use agentd_protocol::line::ErrorLine;
use agentd_protocol::{Code, RequestKind};
use agentd_terminal::output::safe;

/// The field that an error begins with, and what it is called here.
const FIELDS: &[(&str, &str)] = &[
    ("agent", "the agent's name"),
    ("at", "`--at`"),
    ("attachments", "`--attach`"),
    ("backoff", "`--backoff`"),
    ("callback", "`--callback`"),
    ("callback.url", "`--callback`"),
    ("cron", "`--cron`"),
    ("cwd", "`--cwd`"),
    ("cwd_if_new", "the working directory"),
    ("deadline", "`--deadline`"),
    ("every", "`--every`"),
    ("expires", "`--expires`"),
    ("fallback_chain", "`--fallback`"),
    ("idempotency_key", "`--idempotency-key`"),
    ("instructions", "`--instructions`"),
    ("jitter", "`--jitter`"),
    ("keep", "`--keep`"),
    ("labels", "`--label`"),
    ("limit", "`--limit`"),
    ("max_failures", "`--max-failures`"),
    ("mode", "`--mode`"),
    ("model", "the model"),
    ("parent", "`--parent`"),
    ("provider", "the provider"),
    ("session", "the session's name"),
    ("history", "`history`"),
    ("start_at", "`--start-at`"),
    ("system", "`--system`"),
    ("text", "the text"),
    ("thinking", "`--thinking`"),
    ("title", "the title"),
    ("timeout", "`--timeout`"),
    ("to", "the new name"),
    ("toolsets", "`--tools`"),
    ("tz", "`--tz`"),
    ("words", "`WORDS`"),
];

/// What hints say of fields, and how it is typed here.
const PHRASES: &[(&str, &str)] = &[
    (
        "`abort` with `session` and `queued`",
        "`agentctl abort SESSION --queued`",
    ),
    (
        "name one with `job` or `session`",
        "name one of them, or its session: `agentctl ps` lists what runs and waits",
    ),
    (
        "name one with `session`",
        "name one: `agentctl sessions` lists them",
    ),
    (
        "what it had done is kept with ",
        "`agentctl collect` shows what it had done, for ",
    ),
    ("subscribe with `\"after\":", "`agentctl watch --after "),
    ("a longer `timeout`", "a longer `--timeout`"),
    (
        "send without `require_context`",
        "send without `--require-context`",
    ),
];

/// The command that makes a request; none where people have no need of one.
const fn command(kind: RequestKind) -> Option<&'static str> {
    Some(match kind {
        RequestKind::Abort => "agentctl abort",
        RequestKind::Agents => "agentctl agents",
        RequestKind::Answer => "agentctl answer",
        RequestKind::Backup => "agentctl backup",
        RequestKind::Collect => "agentctl collect",
        RequestKind::Commands => "agentctl agents commands",
        RequestKind::Compact => "agentctl compact",
        RequestKind::CronAdd => "agentctl cron add",
        RequestKind::CronEdit => "agentctl cron edit",
        RequestKind::CronList => "agentctl cron list",
        RequestKind::CronPause => "agentctl cron pause",
        RequestKind::CronRemove => "agentctl cron remove",
        RequestKind::CronResume => "agentctl cron resume",
        RequestKind::CronRun => "agentctl cron run",
        RequestKind::CronRuns => "agentctl cron runs",
        RequestKind::DaemonStop => "agentctl stop",
        RequestKind::Dispatch => "agentctl dispatch",
        RequestKind::Drain => "agentctl drain",
        RequestKind::Export => "agentctl export",
        RequestKind::Jobs => "agentctl jobs",
        RequestKind::LogLevel => "agentctl log-level",
        RequestKind::Questions => "agentctl questions",
        RequestKind::RestartWorker => "agentctl agents restart",
        RequestKind::Route => "agentctl route",
        RequestKind::Send => "agentctl send",
        RequestKind::SessionClose => "agentctl sessions close",
        RequestKind::SessionFork => "agentctl sessions fork",
        RequestKind::SessionHistory => "agentctl history",
        RequestKind::SessionList => "agentctl sessions",
        RequestKind::SessionNew => "agentctl sessions new",
        RequestKind::SessionRename => "agentctl sessions rename",
        RequestKind::SessionResume => "agentctl sessions resume",
        RequestKind::SessionSearch => "agentctl sessions search",
        RequestKind::SessionTitle => "agentctl sessions title",
        RequestKind::SetModel => "agentctl model",
        RequestKind::Status => "agentctl status",
        RequestKind::Steer => "agentctl steer",
        RequestKind::Subscribe => "agentctl watch",
        RequestKind::Undrain => "agentctl undrain",
        RequestKind::Usage => "agentctl usage",
        RequestKind::WebhookReplay => "agentctl webhook replay",
        RequestKind::WebhookTest => "agentctl webhook test",
        RequestKind::Webhooks => "agentctl webhook list",
        // No hint names it: `agentctl models` is more than this request.
        RequestKind::Models
        | RequestKind::Hello
        | RequestKind::Ping
        | RequestKind::Shutdown
        | RequestKind::Unsubscribe => return None,
    })
}

/// What was found, of the arguments that were given.
pub(super) fn error(said: &str) -> Cow<'_, str> {
    error_of(said, |place| format!("prompt {}", place + 1))
}

/// The same, where whoever handed in several turns calls them something else, by their place.
pub(super) fn error_of(said: &str, name: impl Fn(usize) -> String) -> Cow<'_, str> {
    let Some((field, rest)) = named_first(said) else {
        return Cow::Borrowed(said);
    };
    let (field, place) = match field.strip_suffix(']').and_then(|one| one.split_once('[')) {
        Some((field, place)) => (field, place.parse::<usize>().ok()),
        None => (field, None),
    };
    if let ("jobs", Some(place)) = (field, place) {
        let rest = rest.strip_prefix(": ").unwrap_or(rest);
        return format!("{}: {}", name(place), error(rest)).into();
    }
    match FIELDS.iter().find(|(name, _)| *name == field) {
        Some((_, here)) => format!("{here}{rest}").into(),
        None => Cow::Borrowed(said),
    }
}

/// The word in backticks that a sentence begins with, and what comes after it.
fn named_first(said: &str) -> Option<(&str, &str)> {
    said.strip_prefix('`')?.split_once('`')
}

/// What to do about it.
pub(super) fn hint(line: &ErrorLine) -> Option<String> {
    if let (Code::Ambiguous, Some(first)) = (line.code, line.choices.first()) {
        let first = safe(first);
        return Some(format!(
            "`agentctl agents default {first}` chooses it from now on, `--agent {first}` this once"
        ));
    }
    let said = line.hint.as_deref().map(typed);
    match line.code {
        Code::NeedsDaemon => Some(START_IT.to_owned()),
        Code::UnknownJob => {
            said.or_else(|| Some("`agentctl jobs` lists those that are kept".into()))
        }
        Code::StoreFailed => said.or_else(|| {
            Some("`agentctl status` and `agentctl doctor` say how the store is".into())
        }),
        Code::SessionIdle => {
            said.or_else(|| Some("`agentctl ps` lists what runs and waits".into()))
        }
        // What it was made with is the last name there.
        Code::SessionConflict if line.error.starts_with("`agent` is ") => {
            let made_with = line.error.rsplit('`').nth(1).map(safe)?;
            Some(format!(
                "`--agent {made_with}` goes on with it, `--session OTHER` begins another one"
            ))
        }
        Code::NoAgent => said.map(|said| {
            format!("{said}; `agentctl demo` checks the installation without any model")
        }),
        _ => said,
    }
}

/// A hint with the commands of its requests.
fn typed(said: &str) -> String {
    // What could be meant are names of others.
    if said.starts_with("did you mean ") {
        return said.to_owned();
    }
    let mut said = said.to_owned();
    for (phrase, here) in PHRASES {
        said = said.replace(phrase, here);
    }
    for kind in RequestKind::ALL {
        if let Some(command) = command(*kind) {
            said = said.replace(&format!("`{}`", kind.name()), &format!("`{command}`"));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use agentd_protocol::request::SEND_FIELDS;
    use clap::{CommandFactory as _, Parser as _};

    #[test]
    fn wording_of_fields_is_that_of_arguments() {
        for (said, here) in [
            (
                "`session` is 0 bytes, expected 1 to 128",
                "the session's name is 0 bytes, expected 1 to 128",
            ),
            (
                "`jobs[1]`: `text` is blank: expected the user's turn",
                "prompt 2: the text is blank: expected the user's turn",
            ),
            (
                "`jobs[0]`: there is no agent `text`; none was accepted",
                "prompt 1: there is no agent `text`; none was accepted",
            ),
            ("`attachments[1]` is a device", "`--attach` is a device"),
            ("`/b.txt` is a device", "`/b.txt` is a device"),
            ("there is no session `to`", "there is no session `to`"),
        ] {
            assert_eq!(error(said), here);
        }
        let mut cli = Cli::command();
        cli.build();
        let options: Vec<String> = std::iter::once(&cli)
            .chain(cli.get_subcommands())
            .chain(
                cli.get_subcommands()
                    .flat_map(clap::Command::get_subcommands),
            )
            .flat_map(clap::Command::get_arguments)
            .filter_map(|one| Some(format!("`--{}`", one.get_long()?)))
            .collect();
        for (field, here) in FIELDS {
            let is_option = options.iter().any(|option| option == here);
            assert!(is_option || !here.starts_with("`--"), "{field}: {here}");
        }
        // Those that people give.
        let no_argument = "after_failure id include job mcp_servers message mode must on_question prompt \
                           require_context retry stream tools type";
        let no_argument: Vec<&str> = no_argument.split_whitespace().collect();
        for field in SEND_FIELDS.iter().filter(|one| !no_argument.contains(one)) {
            assert!(FIELDS.iter().any(|(name, _)| name == field), "{field}");
        }
    }

    #[test]
    fn wording_of_hints_names_commands_that_exist() {
        for kind in RequestKind::ALL {
            let Some(command) = command(*kind) else {
                continue;
            };
            let words = command.split(' ').chain(["--help"]);
            let told = Cli::try_parse_from(words).unwrap_err();
            assert_eq!(
                told.kind(),
                clap::error::ErrorKind::DisplayHelp,
                "{command}"
            );
        }
        for (said, here) in [
            (
                "`session.list` lists them",
                "`agentctl sessions` lists them",
            ),
            (
                "abort them first: `abort` with `session` and `queued`",
                "abort them first: `agentctl abort SESSION --queued`",
            ),
            (
                "subscribe with `\"after\":3` for everything that is kept",
                "`agentctl watch --after 3` for everything that is kept",
            ),
            ("did you mean `status`?", "did you mean `status`?"),
            (
                "send without `require_context` to go on without them",
                "send without `--require-context` to go on without them",
            ),
        ] {
            assert_eq!(typed(said), here);
        }
    }
}
